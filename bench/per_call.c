/*
 * What settings take for each call, without the call. metrics.per_client: counting a call of the same pair
 * again and again, and of pairs in turn, up to more than there is room for. log.slow_ms: a look at the clock.
 *
 *	per_call [PROGRAM [ROUNDS]]
 *
 * PROGRAM is not needed; ./dev bench gives it to all. A row has the least of all rounds, in
 * nanoseconds for a call: a round that another program interrupted does not count. Prints JSON.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/macros.h"
#include "export/usage.h"
#include "loop/loop.h"

#define N_CALLS 20000

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
	printf("}, \"log.slow_ms\": %.1f}\n", clock);
	hf_loop_free(loop);
	return EXIT_SUCCESS;
}
