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

static int measure(const char *program, size_t i, double seconds, bool is_last)
{
	struct load_message null = { .len = 0 };
	struct load_setup setup = { .address = "127.0.0.1",
				    .udp = rows[i].udp,
				    .n_connections = rows[i].n_connections,
				    .depth = rows[i].depth,
				    .message = same_message,
				    .user = &null,
				    .seconds = seconds };
	struct load_result ours, limit;
	struct load_daemon *daemon;
	struct load_echo *echo;
	int r;

	null.len = load_put_header(null.data, 100021, 4, 0);
	r = load_echo_start(&echo, setup.udp, &setup.port);
	if (r < 0)
		return r;
	setup.is_echo = true;
	r = load_run(&setup, &limit);
	load_echo_stop(echo);
	if (r < 0)
		return r;
	r = load_daemon_start(&daemon, program, NULL, &setup.port);
	if (r < 0)
		return r;
	setup.is_echo = false;
	setup.reply_offset = 20; /* the accept status */
	r = load_run(&setup, &ours);
	load_daemon_stop(daemon);
	printf("  "
	       "{\"transport\":\"%s\",\"connections\":%d,\"depth\":%d,\"calls_per_second\":%.0f,\"p50_us\":%."
	       "1f,"
	       "\"p99_us\":%.1f,\"wrong\":%llu,\"echo_per_second\":%.0f,\"echo_p50_us\":%.1f,\"ratio\":%.2f}%"
	       "s\n",
	       rows[i].udp ? "udp" : "tcp", rows[i].n_connections, rows[i].depth, ours.rate, ours.p50_us,
	       ours.p99_us, (unsigned long long)ours.n_wrong, limit.rate, limit.p50_us,
	       ours.rate / limit.rate, is_last ? "" : ",");
	fflush(stdout);
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
