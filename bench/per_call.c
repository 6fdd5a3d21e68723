/*
 * What settings take for each call, without the call. metrics.per_client: counting a call of the same pair
 * again and again, and of pairs in turn, up to more than there is room for. log.slow_ms: a look at the clock.
 * Clients by name: whether a client is the host of a name, or one of a domain. server.manage_gids: the groups
 * of a user who is in so many. What is looked up is known already.
 *
 *	per_call [PROGRAM [ROUNDS]]
 *
 * PROGRAM is not needed; ./dev bench gives it to all. A row has the least of all rounds, in
 * nanoseconds for a call: a round that another program interrupted does not count. Prints JSON.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/macros.h"
#include "export/client_names.h"
#include "export/groups.h"
#include "export/usage.h"
#include "loop/loop.h"

#define N_CALLS 20000
#define LONG_NS (10 * HF_NS_PER_S)
#define NAME    "client.example.org"
#define DOMAIN  "*.example.org"

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static double round_of(struct hf_usage *usage, unsigned int n_pairs, unsigned int *nextp)
{
	struct hf_usage_call call = { .export_id = 1, .kind = HF_USAGE_READS, .n_read = 4096, .now = 1 };
	struct hf_addr client = { .ip = { 10 }, .port = 700, .family = AF_INET };
	uint64_t begun = now_ns();

	for (unsigned int i = 0; i < N_CALLS; i++) {
		unsigned int number = *nextp;

		*nextp = number + 1 < n_pairs ? number + 1 : 0;
		client.ip[1] = (uint8_t)(number >> 16);
		client.ip[2] = (uint8_t)(number >> 8);
		client.ip[3] = (uint8_t)number;
		hf_usage_count(usage, 0, &client, &call);
	}
	return (double)(now_ns() - begun) / N_CALLS;
}

static double round_of_clock(struct hf_loop *loop)
{
	uint64_t begun = now_ns(), sum = 0;

	for (unsigned int i = 0; i < N_CALLS; i++)
		sum += hf_loop_clock(loop);
	return sum ? (double)(now_ns() - begun) / N_CALLS : 0;
}

/* Clients by name, with a resolver that knows one client */

static const struct hf_addr client = { .ip = { 10, 0, 0, 1 }, .port = 700, .family = AF_INET };

static int find_addresses(void *user, const char *name, struct hf_addr *addrs, size_t max, size_t *np)
{
	*addrs = client;
	*np = 1;
	return 0;
}

static int find_name(void *user, const struct hf_addr *addr, char name[HF_CLIENT_NAME_MAX + 1])
{
	strcpy(name, NAME);
	return 0;
}

typedef enum hf_named (*ask_fn)(struct hf_client_names *names, const char *text,
				const struct hf_addr *client);

static double round_of_names(struct hf_client_names *names, ask_fn ask, const char *text)
{
	uint64_t begun = now_ns();

	for (unsigned int i = 0; i < N_CALLS; i++)
		if (ask(names, text, &client) != HF_NAMED_YES)
			exit(EXIT_FAILURE);
	return (double)(now_ns() - begun) / N_CALLS;
}

static void measure_names(int n_rounds)
{
	static const struct hf_resolver resolver = { .find_addresses = find_addresses,
						     .find_name = find_name };
	double host = 1e9, domain = 1e9;
	struct hf_client_names *names;

	if (hf_client_names_new(&names, &resolver) < 0)
		exit(EXIT_FAILURE);
	while (hf_client_names_is_in_domain(names, DOMAIN, &client) == HF_NAMED_UNKNOWN) {
		hf_client_names_wait(names, NULL, &client, LONG_NS); /* its name, and that name's addresses */
		hf_client_names_wait(names, NAME, &client, LONG_NS);
	}
	for (int i = 0; i < n_rounds; i++) {
		host = HF_MIN(host, round_of_names(names, hf_client_names_is_host, NAME));
		domain = HF_MIN(domain, round_of_names(names, hf_client_names_is_in_domain, DOMAIN));
	}
	printf(", \"names\": {\"host\": %.1f, \"domain\": %.1f}", host, domain);
	hf_client_names_free(names);
}

/* Groups of users: each is in as many as its number says */

static int find_groups(void *user, uint32_t uid, uint32_t *gids, size_t max, size_t *np)
{
	*np = HF_MIN(uid, max);
	for (uint32_t i = 0; i < *np; i++)
		gids[i] = 1000 + i;
	return 0;
}

static double round_of_groups(struct hf_groups *groups, uint32_t uid)
{
	const struct hf_group_list *list;
	uint64_t begun = now_ns();

	for (unsigned int i = 0; i < N_CALLS; i++)
		if (hf_groups_find(groups, uid, &list) < 0 || list->n != uid)
			exit(EXIT_FAILURE);
	return (double)(now_ns() - begun) / N_CALLS;
}

static void measure_groups(int n_rounds)
{
	static const struct hf_group_source source = { .find = find_groups };
	static const uint32_t users[] = { 20, 140, 1024 };
	struct hf_groups *groups;

	if (hf_groups_new(&groups, &source) < 0)
		exit(EXIT_FAILURE);
	printf(", \"server.manage_gids\": {");
	for (size_t i = 0; i < HF_ARRAY_SIZE(users); i++) {
		double least = 1e9;

		hf_groups_wait(groups, users[i], LONG_NS);
		for (int j = 0; j < n_rounds; j++)
			least = HF_MIN(least, round_of_groups(groups, users[i]));
		printf("%s\"%u\": %.1f", i ? ", " : "", users[i], least);
	}
	printf("}");
	hf_groups_free(groups);
}

int main(int argc, char **argv)
{
	static const unsigned int sizes[] = { 1, 2, 64, 1024, 2 * HF_USAGE_MAX_PAIRS };
	int n_rounds = argc > 2 ? atoi(argv[2]) : 500;
	double clock = 1e9;
	struct hf_loop *loop;

	if (hf_loop_new(&loop) < 0)
		return EXIT_FAILURE;
	printf("{\"metrics.per_client\": {");
	for (size_t i = 0; i < HF_ARRAY_SIZE(sizes); i++) {
		struct hf_usage *usage;
		unsigned int next = 0;
		double least = 1e9;

		if (hf_usage_new(&usage, 2, HF_USAGE_MAX_PAIRS, loop) < 0)
			return EXIT_FAILURE;
		for (int j = 0; j < n_rounds; j++)
			least = HF_MIN(least, round_of(usage, sizes[i], &next));
		printf("%s\"%u\": %.1f", i ? ", " : "", sizes[i], least);
		hf_usage_free(usage);
	}
	for (int j = 0; j < n_rounds; j++)
		clock = HF_MIN(clock, round_of_clock(loop));
	printf("}, \"log.slow_ms\": %.1f", clock);
	measure_names(n_rounds);
	measure_groups(n_rounds);
	printf("}\n");
	hf_loop_free(loop);
	return EXIT_SUCCESS;
}
