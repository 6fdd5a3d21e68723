/*
 * LOCK and UNLOCK a second, over TCP, with the PostgreSQL store: beside a bare
 * libpq loop that commits one row at a time in the same database, beside the
 * embedded store, and beside nfs-ganesha, which stores nothing, in the same run.
 * "both" is what one call after the other could do that takes as long as the bare
 * loop and the embedded store together: the way of a LOCK over two sockets.
 *
 *	database PATH/holdfastd [--alone] [SECONDS [CONNECTIONS DEPTH]]
 *
 * One export on the file system of /tmp, defaults but for the store; PostgreSQL on
 * the same machine, as its package configures it. An UNLOCK comes so long after its
 * LOCK that both are stored: none cancels the other out. Each row has the best rate
 * of many short rounds, and the least CPU time for a call in any of them. Needs
 * root for the namespaces in which ganesha runs; without, or with --alone, it is
 * left out.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "database_server.h"
#include "load.h"
#include "nlm_call.h"
#include "nlm_peer.h"

#define MAX_CONNECTIONS 64
#define MAX_DEPTH       256
#define RANGE           4096
#define N_ROUNDS        10

static const struct {
	int n_connections;
	int depth;
} shapes[] = { { 1, 1 }, { 1, 64 }, { 16, 16 }, { 4, 256 } };

enum {
	OURS,
	EMBEDDED,
	GANESHA,
	N_SERVERS
};

static const char *const server_names[N_SERVERS] = { "postgres", "lmdb", "ganesha" };

struct target {
	pid_t pid;
	uint16_t port;
	struct peer_handle handle;
	struct nlm_call lock;
	struct nlm_call unlock;
	uint64_t distance; /* between a lock and its unlock, in pairs */
};

struct row {
	int n_connections;
	int depth;
	struct load_result results[N_SERVERS];
	double cpu_us[N_SERVERS]; /* a call */
	double database_us;       /* a call of ours, of the database's CPU */
	double bare;              /* commits a second */
	double fenced;
};

/* Messages */

static const struct load_message *next_call(void *user, int connection, uint64_t n)
{
	struct target *target = user;
	uint64_t pair = n / 2, lanes = 4 * target->distance;
	uint64_t lane = (n % 2 ? pair + lanes - target->distance : pair) % lanes;

	return nlm_call_fill(n % 2 ? &target->unlock : &target->lock, &target->handle,
			     (uint32_t)connection + 1,
			     ((uint32_t)connection * 4 * MAX_DEPTH + (uint32_t)lane) * RANGE);
}

/* The lock that is always held: ganesha registers a client with statd whenever it takes its first one. */
static int hold_one(struct target *target)
{
	const struct load_message *lock =
		nlm_call_fill(&target->lock, &target->handle, 1000000,
			      (uint32_t)(MAX_CONNECTIONS + 1) * 4 * MAX_DEPTH * RANGE);
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
	nlm_call_make(&target->lock, NLM_LOCK, &target->handle, RANGE);
	nlm_call_make(&target->unlock, NLM_UNLOCK, &target->handle, RANGE);
	return hold_one(target);
}

/* Measuring */

static int measure(struct target *target, const struct database *database, struct row *row, int server,
		   double seconds)
{
	const struct load_setup setup = { .address = "127.0.0.1",
					  .port = target->port,
					  .n_connections = row->n_connections,
					  .depth = row->depth,
					  .message = next_call,
					  .user = target,
					  .seconds = seconds,
					  .reply_offset = NLM_STAT_OFFSET };
	double cpu = load_cpu(target->pid), database_cpu_before = database_cpu(database);
	struct load_result result, *best = &row->results[server];
	uint64_t n_wrong;
	int r;

	/* Depth 1 waits for the reply anyway. */
	target->distance = row->depth > 1 ? (uint64_t)row->depth : 1;
	r = load_run(&setup, &result);
	if (r < 0)
		return r;
	n_wrong = best->n_wrong + result.n_wrong;
	cpu = 1e6 * (load_cpu(target->pid) - cpu) / (double)result.n_calls;
	if (row->cpu_us[server] == 0 || cpu < row->cpu_us[server])
		row->cpu_us[server] = cpu;
	if (server == OURS && result.rate > best->rate)
		row->database_us =
			1e6 * (database_cpu(database) - database_cpu_before) / (double)result.n_calls;
	if (result.rate > best->rate)
		*best = result;
	best->n_wrong = n_wrong;
	return 0;
}

static int measure_bare(const struct database *database, bool is_fenced, double seconds, double *bestp)
{
	double rate;
	int r = database_commits(database, is_fenced, seconds, &rate);

	if (r == 0 && rate > *bestp)
		*bestp = rate;
	return r;
}

static void print_row(const struct row *row, bool is_last)
{
	printf("  {\"connections\":%d,\"depth\":%d", row->n_connections, row->depth);
	for (int i = 0; i < N_SERVERS; i++) {
		const struct load_result *result = &row->results[i];

		if (result->rate > 0)
			printf(",\"%s\":{\"rate\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"cpu_us\":%.2f,"
			       "\"wrong\":%llu}",
			       server_names[i], result->rate, result->p50_us, result->p99_us, row->cpu_us[i],
			       (unsigned long long)result->n_wrong);
	}
	printf(",\"database_cpu_us\":%.2f,\"bare\":%.0f,\"bare_fenced\":%.0f,\"postgres_by_bare\":%.2f",
	       row->database_us, row->bare, row->fenced, row->results[OURS].rate / row->bare);
	printf(",\"both\":%.0f", 1 / (1 / row->bare + 1 / row->results[EMBEDDED].rate));
	if (row->results[GANESHA].rate > 0)
		printf(",\"postgres_by_ganesha\":%.2f", row->results[OURS].rate / row->results[GANESHA].rate);
	printf("}%s\n", is_last ? "" : ",");
	fflush(stdout);
}

static int measure_row(struct target *const *targets, const struct database *database, struct row *row,
		       double seconds, bool is_last)
{
	double share = seconds / N_ROUNDS;
	int r = 0;

	for (int i = 0; i < N_ROUNDS && r == 0; i++) {
		r = measure_bare(database, false, share, &row->bare);
		if (r == 0)
			r = measure_bare(database, true, share, &row->fenced);
		for (int server = 0; server < N_SERVERS && r == 0; server++)
			if (targets[server])
				r = measure(targets[server], database, row, server, share);
	}
	if (r == 0)
		print_row(row, is_last);
	return r;
}

static int measure_all(struct target *const *targets, const struct database *database, double seconds,
		       struct row *only)
{
	const size_t n_shapes = sizeof(shapes) / sizeof(*shapes);
	int r = 0;

	printf("{\"bench\":\"database\",\"unit\":\"calls a second\",\"rows\":[\n");
	if (only)
		r = measure_row(targets, database, only, seconds, true);
	for (size_t i = 0; i < n_shapes && r == 0 && !only; i++) {
		struct row row = { .n_connections = shapes[i].n_connections, .depth = shapes[i].depth };

		r = measure_row(targets, database, &row, seconds, i == n_shapes - 1);
	}
	printf("]}\n");
	return r;
}

/* Servers */

/* With @database, or with the embedded store. Each server has a directory of its own: their locks must not
 * meet in the kernel. */
static int start_ours(const char *program, const char *data, const struct database *database,
		      struct target *target, struct load_daemon **daemonp)
{
	const char *backend = database ? "postgres" : "lmdb";
	char directory[96], export[128], store[64], connection[256];
	const char *settings[] = {
		export, store, "recovery.grace=never", "api.listen=127.0.0.1:0", NULL, NULL
	};
	int r;

	snprintf(directory, sizeof(directory), "%s/%s", data, backend);
	snprintf(export, sizeof(export), "--export=%s:/bench", directory);
	snprintf(store, sizeof(store), "store.backend=%s", backend);
	if (database) {
		snprintf(connection, sizeof(connection), "store.postgres=%s", database_conninfo(database));
		settings[4] = connection;
	}
	r = peer_make_files(directory, 1);
	if (r < 0)
		return r;
	r = load_daemon_start(daemonp, program, settings, &target->port);
	if (r < 0)
		return r;
	target->pid = load_daemon_pid(*daemonp);
	r = peer_find_handles(target->port, target->port, "/bench", 1, &target->handle);
	return r < 0 ? r : prepare(target);
}

static int start_ganesha(struct target **targetp, struct target *target, struct peer **peerp)
{
	int r = geteuid() == 0 ? peer_enter_namespaces() : -EPERM;

	if (r == 0)
		r = peer_start(peerp, 1, &target->handle, &target->port);
	if (r == 0) {
		target->pid = peer_pid(*peerp);
		r = prepare(target);
	}
	if (r < 0) {
		fprintf(stderr, "database: without nfs-ganesha: %s\n", strerror(-r));
		return r;
	}
	*targetp = target;
	return 0;
}

static bool read_row(struct row *row, char *const words[])
{
	*row = (struct row){ .n_connections = atoi(words[0]), .depth = atoi(words[1]) };
	return row->n_connections >= 1 && row->n_connections <= MAX_CONNECTIONS && row->depth >= 1 &&
	       row->depth <= MAX_DEPTH;
}

static int usage(void)
{
	fprintf(stderr, "usage: database PATH/holdfastd [--alone] [SECONDS [CONNECTIONS DEPTH]]\n");
	return 2;
}

static int run(const char *program, bool is_alone, double seconds, struct row *only)
{
	static struct target ours, embedded, ganesha;
	struct target *targets[N_SERVERS] = { [OURS] = &ours, [EMBEDDED] = &embedded };
	char data[] = "/tmp/holdfast-bench-XXXXXX", command[96];
	struct load_daemon *daemons[2] = { NULL };
	struct database *database = NULL;
	struct peer *peer = NULL;
	int r;

	if (!is_alone)
		start_ganesha(&targets[GANESHA], &ganesha, &peer);
	r = mkdtemp(data) && chmod(data, 0755) == 0 ? 0 : -errno;
	if (r == 0)
		r = database_start(&database);
	if (r == 0)
		r = start_ours(program, data, database, &ours, &daemons[0]);
	if (r == 0)
		r = start_ours(program, data, NULL, &embedded, &daemons[1]);
	if (r == 0)
		r = measure_all(targets, database, seconds, only);
	for (int i = 0; i < 2; i++)
		if (daemons[i])
			load_daemon_stop(daemons[i]);
	if (database)
		database_stop(database);
	if (peer)
		peer_stop(peer);
	snprintf(command, sizeof(command), "rm -rf '%s'", data);
	if (system(command) != 0)
		fprintf(stderr, "could not remove %s\n", data);
	return r;
}

int main(int argc, char *argv[])
{
	bool is_alone = argc > 2 && strcmp(argv[2], "--alone") == 0;
	char **rest = argv + 2 + is_alone;
	int n_rest = argc - 2 - is_alone, r;
	struct row only;

	if (argc < 2 || (n_rest > 2 && !read_row(&only, rest + 1)))
		return usage();
	r = run(argv[1], is_alone, n_rest > 0 ? strtod(rest[0], NULL) : 5, n_rest > 2 ? &only : NULL);
	if (r < 0)
		fprintf(stderr, "database: %s\n", strerror(-r));
	return r < 0;
}
