/*
 * NULL calls a second and their latency, over TCP and UDP, beside a bare echo
 * loop on the same kind of socket in the same run: the ratio is what counts.
 *
 *	rpc_null PATH/holdfastd [SECONDS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

#define N_ROUNDS 20

static const struct {
	bool udp;
	int n_connections;
	int depth;
} rows[] = {
	{ false, 1, 1 },   { false, 1, 64 }, { false, 64, 1 },
	{ false, 64, 64 }, { true, 1, 1 },   { true, 1, 64 },
};

static const struct load_message *same_message(void *user, int connection, uint64_t n)
{
	return user;
}

static int take_best(const struct load_setup *setup, struct load_result *best)
{
	struct load_result result;
	int r = load_run(setup, &result);

	if (r < 0)
		return r;
	result.n_wrong += best->n_wrong;
	if (result.rate > best->rate)
		*best = result;
	best->n_wrong = result.n_wrong;
	return 0;
}

/* Both in turn, many times; of each the best, because others use the machine, too. */
static int compare(struct load_setup ours, struct load_setup echo, struct load_result bests[2])
{
	ours.seconds /= N_ROUNDS;
	echo.seconds /= N_ROUNDS;
	for (int i = 0; i < N_ROUNDS; i++) {
		int r = take_best(&echo, &bests[1]);

		if (r == 0)
			r = take_best(&ours, &bests[0]);
		if (r < 0)
			return r;
	}
	return 0;
}

static void print_row(size_t i, const struct load_result *ours, const struct load_result *limit, bool is_last)
{
	printf("  {\"transport\":\"%s\",\"connections\":%d,\"depth\":%d,\"calls_per_second\":%.0f,",
	       rows[i].udp ? "udp" : "tcp", rows[i].n_connections, rows[i].depth, ours->rate);
	printf("\"p50_us\":%.1f,\"p99_us\":%.1f,\"wrong\":%llu,", ours->p50_us, ours->p99_us,
	       (unsigned long long)ours->n_wrong);
	printf("\"echo_per_second\":%.0f,\"echo_p50_us\":%.1f,\"ratio\":%.2f}%s\n", limit->rate,
	       limit->p50_us, ours->rate / limit->rate, is_last ? "" : ",");
	fflush(stdout);
}

static int measure(const char *program, size_t i, double seconds, bool is_last)
{
	struct load_message null = { .len = 0 };
	struct load_setup ours = { .address = "127.0.0.1",
				   .udp = rows[i].udp,
				   .n_connections = rows[i].n_connections,
				   .depth = rows[i].depth,
				   .message = same_message,
				   .user = &null,
				   .reply_offset = 20, /* the accept status */
				   .seconds = seconds };
	struct load_setup echo = ours;
	struct load_result bests[2] = { { 0 } };
	struct load_daemon *daemon;
	struct load_echo *limit;
	int r;

	null.len = load_put_header(null.data, 100021, 4, 0);
	echo.is_echo = true;
	echo.reply_offset = 0;
	r = load_echo_start(&limit, echo.udp, &echo.port);
	if (r < 0)
		return r;
	r = load_daemon_start(&daemon, program, NULL, &ours.port);
	if (r == 0) {
		r = compare(ours, echo, bests);
		load_daemon_stop(daemon);
	}
	load_echo_stop(limit);
	if (r == 0)
		print_row(i, &bests[0], &bests[1], is_last);
	return r;
}

int main(int argc, char *argv[])
{
	const size_t n = sizeof(rows) / sizeof(rows[0]);
	double seconds = argc > 2 ? strtod(argv[2], NULL) : 2;

	if (argc < 2) {
		fprintf(stderr, "usage: rpc_null PATH/holdfastd [SECONDS]\n");
		return 2;
	}
	printf("{\"bench\":\"rpc_null\",\"rows\":[\n");
	for (size_t i = 0; i < n; i++) {
		int r = measure(argv[1], i, seconds, i == n - 1);

		if (r < 0) {
			fprintf(stderr, "rpc_null: %s\n", strerror(-r));
			return 1;
		}
	}
	printf("]}\n");
	return 0;
}
