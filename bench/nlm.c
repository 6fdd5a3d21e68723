/*
 * LOCK and UNLOCK in pairs a second, over TCP: beside our own NULL calls, which
 * is what the RPC layer alone can do; beside a bare loop that grants whatever it
 * is asked and looks at nothing, which is what sockets can do with calls of this
 * size; and beside nfs-ganesha, in the same run.
 *
 *	nlm PATH/holdfastd [--alone] [SECONDS [CONNECTIONS DEPTH FILES]]
 *
 * Each row has the best rate of many short rounds, and the least CPU time of the
 * server for a call in any of them: what remains true on a busy machine.
 *
 * Every call under way has a range of its own, so that no call waits for another.
 * The client holds one more lock all the time: ganesha registers a client with
 * statd whenever it takes its first one, and would be measured doing that. Needs
 * root for the namespaces in which ganesha runs; without, or with --alone, it is
 * left out.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"
#include "nlm_call.h"
#include "nlm_peer.h"

#define N_FILES   1000
#define MAX_LANES 64 /* ranges of one connection */
#define RANGE     4096
#define N_ROUNDS  20 /* of each measurement; the best counts, because others use the machine, too */

static const int connection_counts[] = { 1, 8, 64 };
static const int depths[] = { 1, 64 };
static const size_t file_counts[] = { 1, N_FILES };

/* Who is measured. */
enum {
	NULLS,
	NONE,
	PROCESS,
	LIMIT,
	GANESHA,
	N_SERVERS
};

static const char *const server_names[N_SERVERS] = { "null", "none", "process", "limit", "ganesha" };

struct target {
	pid_t pid;
	uint16_t port;
	struct peer_handle handles[N_FILES];
	struct nlm_call lock;
	struct nlm_call unlock;
	struct load_message null;
	size_t n_files; /* of this row */
};

struct row {
	int n_connections;
	int depth;
	size_t n_files;
	struct load_result results[N_SERVERS]; /* of the best round; n_calls and n_wrong of all */
	double cpu_us[N_SERVERS];              /* a call, in the best round */
};

/* Messages */

static const struct load_message *next_pair(void *user, int connection, uint64_t n)
{
	struct target *target = user;
	uint64_t pair = n / 2;
	uint32_t lane = (uint32_t)connection * MAX_LANES + (uint32_t)(pair % MAX_LANES);
	const struct peer_handle *handle =
		&target->handles[((uint64_t)connection * 37 + pair) % target->n_files];

	return nlm_call_fill(n % 2 ? &target->unlock : &target->lock, handle, (uint32_t)connection + 1,
			     lane * RANGE);
}

static const struct load_message *next_null(void *user, int connection, uint64_t n)
{
	return &((struct target *)user)->null;
}

/* The lock that is always held */
static int hold_one(struct target *target)
{
	const struct load_message *lock = nlm_call_fill(&target->lock, &target->handles[0], 1000000,
							(MAX_LANES + 1) * MAX_LANES * RANGE);
	uint8_t results[64];
	size_t len = 0;
	uint32_t stat = 1;
	int r = peer_call(target->port, lock->data, lock->len, results, sizeof(results), &len);

	if (r < 0)
		return r;
	if (len >= 12)
		memcpy(&stat, results + 8, 4);
	return stat == 0 ? 0 : -EPROTO;
}

static int prepare(struct target *target)
{
	nlm_call_make(&target->lock, NLM_LOCK, &target->handles[0], RANGE);
	nlm_call_make(&target->unlock, NLM_UNLOCK, &target->handles[0], RANGE);
	target->null.len = load_put_header(target->null.data, NLM, 4, 0);
	return hold_one(target);
}

/* To us a handle is bytes. */
static void make_handles(struct target *target)
{
	for (uint32_t i = 0; i < N_FILES; i++) {
		target->handles[i].len = 32;
		memset(target->handles[i].data, 0x5a, 32);
		memcpy(target->handles[i].data, &i, 4);
	}
}

/* Measuring */

static int measure(struct target *target, struct row *row, int server, double seconds)
{
	const struct load_setup setup = { .address = "127.0.0.1",
					  .port = target->port,
					  .n_connections = row->n_connections,
					  .depth = row->depth,
					  .message = server == NULLS ? next_null : next_pair,
					  .user = target,
					  .seconds = seconds,
					  .reply_offset = server == NULLS ? 20 : NLM_STAT_OFFSET };

	struct load_result result, *best = &row->results[server];
	double cpu = load_cpu(target->pid);
	int r;

	target->n_files = row->n_files;
	r = load_run(&setup, &result);
	if (r < 0)
		return r;
	cpu = 1e6 * (load_cpu(target->pid) - cpu) / (double)result.n_calls;
	if (row->cpu_us[server] == 0 || cpu < row->cpu_us[server])
		row->cpu_us[server] = cpu;
	result.n_calls += best->n_calls;
	result.n_wrong += best->n_wrong;
	if (result.rate > best->rate)
		*best = result;
	best->n_calls = result.n_calls;
	best->n_wrong = result.n_wrong;
	return 0;
}

static void print_server(const struct row *row, int server)
{
	const struct load_result *result = &row->results[server];

	printf(",\"%s\":{\"rate\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"cpu_us\":%.2f,\"wrong\":%llu}",
	       server_names[server], result->rate, result->p50_us, result->p99_us, row->cpu_us[server],
	       (unsigned long long)result->n_wrong);
}

static void print_ratio(const struct row *row, int ours, int other)
{
	printf(",\"%s_by_%s\":{\"rate\":%.2f,\"cpu\":%.2f}", server_names[ours], server_names[other],
	       row->results[ours].rate / row->results[other].rate, row->cpu_us[other] / row->cpu_us[ours]);
}

static void print_row(const struct row *row, bool has_ganesha, bool is_last)
{
	printf("  {\"connections\":%d,\"depth\":%d,\"files\":%zu", row->n_connections, row->depth,
	       row->n_files);
	for (int i = 0; i < (has_ganesha ? N_SERVERS : GANESHA); i++)
		print_server(row, i);
	for (int i = NONE; i <= PROCESS; i++) {
		print_ratio(row, i, NULLS);
		print_ratio(row, i, LIMIT);
		if (has_ganesha)
			print_ratio(row, i, GANESHA);
	}
	printf("}%s\n", is_last ? "" : ",");
	fflush(stdout);
}

static int measure_row(struct target *const *targets, struct row *row, double seconds, bool is_last)
{
	for (int i = 0; i < N_ROUNDS * N_SERVERS; i++) {
		int server = i % N_SERVERS;
		/* NULL is asked of the server with no durability */
		struct target *target = targets[server == NULLS ? NONE : server];
		int r = target ? measure(target, row, server, seconds / N_ROUNDS) : 0;

		if (r < 0)
			return r;
	}
	print_row(row, targets[GANESHA] != NULL, is_last);
	return 0;
}

static int measure_all(struct target *const *targets, double seconds, struct row *only)
{
	const size_t n_counts = sizeof(connection_counts) / sizeof(*connection_counts);
	int r = 0;

	printf("{\"bench\":\"nlm\",\"unit\":\"calls a second\",\"rows\":[\n");
	if (only) {
		r = measure_row(targets, only, seconds, true);
		printf("]}\n");
		return r;
	}
	for (size_t i = 0; i < n_counts * 4 && r == 0; i++) {
		struct row row = { .n_connections = connection_counts[i / 4],
				   .depth = depths[i / 2 % 2],
				   .n_files = file_counts[i % 2] };

		r = measure_row(targets, &row, seconds, i == n_counts * 4 - 1);
	}
	printf("]}\n");
	return r;
}

/* Servers */

static int start_ours(const char *program, const char *durability, struct target *target,
		      struct load_daemon **daemonp)
{
	char setting[64];
	const char *const settings[] = { setting, "recovery.grace=never", "api.listen=127.0.0.1:0", NULL };
	int r;

	snprintf(setting, sizeof(setting), "store.lock_durability=%s", durability);
	r = load_daemon_start(daemonp, program, settings, &target->port);
	if (r < 0)
		return r;
	target->pid = load_daemon_pid(*daemonp);
	make_handles(target);
	return prepare(target);
}

static int start_ganesha(struct target **targetp, struct target *target, struct peer **peerp)
{
	int r = geteuid() == 0 ? peer_enter_namespaces() : -EPERM;

	if (r == 0)
		r = peer_start(peerp, N_FILES, target->handles, &target->port);
	if (r == 0) {
		target->pid = peer_pid(*peerp);
		r = prepare(target);
	}
	if (r < 0) {
		fprintf(stderr, "nlm: without nfs-ganesha: %s\n", strerror(-r));
		return r;
	}
	*targetp = target;
	return 0;
}

/* Header, cookie, GRANTED */
static int start_limit(struct target *target, struct load_echo **limitp)
{
	static const uint32_t words[] = { 0, 1, 0, 0, 0, 0, 4, 0, 0 };
	static uint8_t reply[sizeof(words)];
	int r;

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		uint32_t word = htonl(words[i]);

		memcpy(reply + 4 * i, &word, 4);
	}
	r = load_answer_start(limitp, reply, sizeof(reply), &target->port);
	if (r < 0)
		return r;
	target->pid = load_echo_pid(*limitp);
	make_handles(target);
	return prepare(target);
}

static int usage(void)
{
	fprintf(stderr, "usage: nlm PATH/holdfastd [--alone] [SECONDS [CONNECTIONS DEPTH FILES]]\n");
	return 2;
}

static bool read_row(struct row *row, char *const words[])
{
	*row = (struct row){ .n_connections = atoi(words[0]),
			     .depth = atoi(words[1]),
			     .n_files = strtoul(words[2], NULL, 10) };
	if (row->n_connections >= 1 && row->n_connections <= MAX_LANES && row->depth >= 1 &&
	    row->depth <= MAX_LANES && row->n_files >= 1 && row->n_files <= N_FILES)
		return true;
	fprintf(stderr, "nlm: up to %d connections, depth %d, %d files\n", MAX_LANES, MAX_LANES, N_FILES);
	return false;
}

int main(int argc, char *argv[])
{
	static struct target none, process, limit, ganesha;
	struct target *targets[N_SERVERS] = { [NONE] = &none, [PROCESS] = &process, [LIMIT] = &limit };
	bool is_alone = argc > 2 && strcmp(argv[2], "--alone") == 0;
	char **rest = argv + 2 + is_alone;
	int n_rest = argc - 2 - is_alone;
	struct load_daemon *daemons[2] = { NULL };
	struct load_echo *echo = NULL;
	struct peer *peer = NULL;
	struct row only;
	int r;

	if (argc < 2)
		return usage();
	if (n_rest > 3 && !read_row(&only, rest + 1))
		return usage();
	if (!is_alone)
		start_ganesha(&targets[GANESHA], &ganesha, &peer);
	r = start_limit(&limit, &echo);
	if (r == 0)
		r = start_ours(argv[1], "none", &none, &daemons[0]);
	if (r == 0)
		r = start_ours(argv[1], "process", &process, &daemons[1]);
	if (r == 0)
		r = measure_all(targets, n_rest > 0 ? strtod(rest[0], NULL) : 2, n_rest > 3 ? &only : NULL);
	for (int i = 0; i < 2; i++)
		if (daemons[i])
			load_daemon_stop(daemons[i]);
	if (echo)
		load_echo_stop(echo);
	if (peer)
		peer_stop(peer);
	if (r < 0)
		fprintf(stderr, "nlm: %s\n", strerror(-r));
	return r < 0;
}
