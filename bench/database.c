/*
 * LOCK and UNLOCK a second, over TCP, with the PostgreSQL store, and what they are
 * measured by, in the same run:
 *
 *	bare          a libpq loop that commits one row of 150 bytes at a time, in a table with a
 *	              primary key; no call is received or answered. What LOCK at depth 1 is held
 *	              against: "postgres_by_bare"
 *	bare_log, bare_fenced, bare_checked
 *	              the same loop on a table without index; on that table through a view, which
 *	              is the store's fence; and with a look at a locked row in each transaction
 *	answering     a server that does nothing but receive a call, commit such a row with libpq,
 *	              and answer: the same two sockets as holdfastd. Only at depth 1: it has one row in
 *	              flight
 *	unfenced      holdfastd, but a plain table replaces the view through which it writes. What
 *	              the fence costs a call: "fence_costs", and "fence_costs_database_cpu"
 *	cluster       holdfastd as a node of a cluster of one, with a lease
 *	lmdb          holdfastd with the embedded store
 *	ganesha       nfs-ganesha, which stores nothing
 *
 *	database PATH/holdfastd [--alone] [--first] [SECONDS [CONNECTIONS DEPTH]]
 *
 * One export on the file system of /tmp, defaults but for the store; PostgreSQL on
 * the same machine, as its package configures it; its commits do not wait for the disk,
 * in the loops neither. An UNLOCK comes so long after its LOCK that both are stored:
 * none cancels the other out. All are measured in turn, in many short rounds. A rate
 * is the best of them, CPU time the least; a ratio is the median of the rounds' ratios.
 *
 * --first gives the loops, the servers and the database a real-time priority, the same
 * for all: other programs of a busy machine then do not take part. Needs root, also for
 * the namespaces in which ganesha runs; without, or with --alone, it is left out.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
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
#define N_ROUNDS        20

static const struct {
	int n_connections;
	int depth;
} shapes[] = { { 1, 1 }, { 1, 64 }, { 16, 16 }, { 4, 256 } };

enum {
	OURS,
	UNFENCED,
	CLUSTER,
	EMBEDDED,
	ANSWERING,
	GANESHA,
	N_SERVERS
};

static const char *const server_names[N_SERVERS] = { "postgres", "unfenced",  "cluster",
						     "lmdb",     "answering", "ganesha" };
static const char *const bare_names[DATABASE_TARGETS] = { "bare", "bare_log", "bare_fenced", "bare_checked" };

struct target {
	pid_t pid;
	uint16_t port;
	struct peer_handle handle;
	struct nlm_call lock;
	struct nlm_call unlock;
	uint64_t distance; /* between a lock and its unlock, in pairs */
};

/* What one program did, and what it cost. */
struct figures {
	double rates[N_ROUNDS];
	double p50_us; /* of the best round */
	double p99_us;
	double cpu_us;      /* a call, its own */
	double database_us; /* a call, the database's */
	uint64_t n_wrong;
};

struct row {
	int n_connections;
	int depth;
	struct figures servers[N_SERVERS];
	struct figures bare[DATABASE_TARGETS];
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

/* Figures */

static double best_rate(const struct figures *figures)
{
	double best = 0;

	for (int i = 0; i < N_ROUNDS; i++)
		best = figures->rates[i] > best ? figures->rates[i] : best;
	return best;
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The median of @one by @two in the same round. */
static double by(const struct figures *one, const struct figures *two)
{
	double ratios[N_ROUNDS];

	for (int i = 0; i < N_ROUNDS; i++)
		ratios[i] = one->rates[i] / two->rates[i];
	qsort(ratios, N_ROUNDS, sizeof(*ratios), compare);
	return (ratios[(N_ROUNDS - 1) / 2] + ratios[N_ROUNDS / 2]) / 2;
}

static void keep_least(double *least, double value)
{
	if (*least == 0 || value < *least)
		*least = value;
}

/* Measuring */

static int measure(struct target *target, const struct database *database, struct row *row, int server,
		   int round, double seconds)
{
	const struct load_setup setup = { .address = "127.0.0.1",
					  .port = target->port,
					  .n_connections = row->n_connections,
					  .depth = row->depth,
					  .message = next_call,
					  .user = target,
					  .seconds = seconds,
					  .reply_offset = NLM_STAT_OFFSET };
	double cpu = load_cpu(target->pid), of_database = database_cpu(database);
	struct figures *figures = &row->servers[server];
	struct load_result result;
	int r;

	/* Depth 1 waits for the reply anyway. */
	target->distance = row->depth > 1 ? (uint64_t)row->depth : 1;
	r = load_run(&setup, &result);
	if (r < 0)
		return r;
	keep_least(&figures->cpu_us, 1e6 * (load_cpu(target->pid) - cpu) / (double)result.n_calls);
	keep_least(&figures->database_us,
		   1e6 * (database_cpu(database) - of_database) / (double)result.n_calls);
	if (result.rate > best_rate(figures)) {
		figures->p50_us = result.p50_us;
		figures->p99_us = result.p99_us;
	}
	figures->rates[round] = result.rate;
	figures->n_wrong += result.n_wrong;
	return 0;
}

/* Each round begins with another one: what comes after a loop or a server bears what that has left behind. */
static int measure_round(struct target *const *targets, const struct database *database, struct row *row,
			 int round, double seconds)
{
	const int n = N_SERVERS + DATABASE_TARGETS;
	int r = 0;

	for (int i = 0; i < n && r == 0; i++) {
		int which = (i + 3 * round) % n, bare = which - N_SERVERS;

		if (bare >= 0)
			r = database_commits(database, (enum database_target)bare, seconds,
					     &row->bare[bare].rates[round]);
		else if (targets[which] && (which != ANSWERING || row->n_connections * row->depth == 1))
			r = measure(targets[which], database, row, which, round, seconds);
	}
	return r;
}

static void print_ratios(const struct row *row)
{
	const struct figures *servers = row->servers, *ours = &servers[OURS];

	printf(",\"postgres_by_bare\":%.2f,\"cluster_by_postgres\":%.2f", by(ours, &row->bare[DATABASE_ROWS]),
	       by(&servers[CLUSTER], ours));
	printf(",\"fence_costs\":%.3f,\"fence_costs_bare\":%.3f,\"fence_costs_database_cpu\":%.3f",
	       1 - by(ours, &servers[UNFENCED]),
	       1 - by(&row->bare[DATABASE_FENCED], &row->bare[DATABASE_LOG]),
	       ours->database_us / servers[UNFENCED].database_us - 1);
	if (best_rate(&servers[ANSWERING]) > 0)
		printf(",\"answering_by_bare\":%.2f,\"postgres_by_answering\":%.2f",
		       by(&servers[ANSWERING], &row->bare[DATABASE_ROWS]), by(ours, &servers[ANSWERING]));
	if (best_rate(&servers[GANESHA]) > 0)
		printf(",\"postgres_by_ganesha\":%.2f", by(ours, &servers[GANESHA]));
}

static void print_row(const struct row *row, bool is_last)
{
	printf("  {\"connections\":%d,\"depth\":%d", row->n_connections, row->depth);
	for (int i = 0; i < N_SERVERS; i++) {
		const struct figures *figures = &row->servers[i];

		if (best_rate(figures) > 0)
			printf(",\n   \"%s\":{\"rate\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"cpu_us\":%.2f,"
			       "\"database_cpu_us\":%.2f,\"wrong\":%llu}",
			       server_names[i], best_rate(figures), figures->p50_us, figures->p99_us,
			       figures->cpu_us, figures->database_us, (unsigned long long)figures->n_wrong);
	}
	printf(",\n   ");
	for (int i = 0; i < DATABASE_TARGETS; i++)
		printf("%s\"%s\":%.0f", i ? "," : "", bare_names[i], best_rate(&row->bare[i]));
	print_ratios(row);
	printf("}%s\n", is_last ? "" : ",");
	fflush(stdout);
}

static int measure_row(struct target *const *targets, const struct database *database, struct row *row,
		       double seconds, bool is_last)
{
	int r = 0;

	for (int i = 0; i < N_ROUNDS && r == 0; i++)
		r = measure_round(targets, database, row, i, seconds / N_ROUNDS);
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

/* With @database, or with the embedded store. Each server has a name and a directory of its own: their locks
 * must not meet in the database or in the kernel. */
static int start_ours(const char *program, const char *data, const struct database *database, int server,
		      struct target *target, struct load_daemon **daemonp)
{
	const char *name = server_names[server];
	char directory[96], export[128], own[64], connection[256];
	const char *settings[] = { export, "recovery.grace=never", "api.listen=127.0.0.1:0", own, NULL, NULL,
				   NULL };
	int r;

	snprintf(directory, sizeof(directory), "%s/%s", data, name);
	snprintf(export, sizeof(export), "--export=%s:/bench", directory);
	snprintf(own, sizeof(own), "%s=%s", server == CLUSTER ? "cluster.service" : "server.name", name);
	if (server != EMBEDDED) {
		snprintf(connection, sizeof(connection), "store.postgres=%s", database_conninfo(database));
		settings[4] = "store.backend=postgres";
		settings[5] = connection;
	}
	r = peer_make_files(directory, 1);
	if (r < 0)
		return r;
	r = load_daemon_start(daemonp, program, settings, &target->port);
	if (r < 0)
		return r;
	target->pid = load_daemon_pid(*daemonp);
	r = peer_find_handles(target->port, target->port, "/bench", 1, &target->handle);
	if (r == 0 && server == UNFENCED)
		r = database_unfence(database, name); /* before the first row */
	return r < 0 ? r : prepare(target);
}

static int start_answering(const struct database *database, struct target *target,
			   struct database_peer **peerp)
{
	int r = database_peer_start(peerp, database, &target->port);

	if (r < 0)
		return r;
	target->pid = database_peer_pid(*peerp);
	return prepare(target);
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
	fprintf(stderr, "usage: database PATH/holdfastd [--alone] [--first] [SECONDS [CONNECTIONS DEPTH]]\n");
	return 2;
}

/* What this process starts inherits it. */
static int come_first(void)
{
	const struct sched_param param = { .sched_priority = 10 };

	return sched_setscheduler(0, SCHED_FIFO, &param) < 0 ? -errno : 0;
}

struct options {
	const char *program;
	bool is_alone;
	bool is_first;
	double seconds;
	struct row *only; /* NULL: all rows */
};

static int run(const struct options *options)
{
	static struct target targets[N_SERVERS];
	struct target *running[N_SERVERS] = { NULL };
	char data[] = "/tmp/holdfast-bench-XXXXXX", command[96];
	struct load_daemon *daemons[N_SERVERS] = { NULL };
	struct database_peer *answering = NULL;
	struct database *database = NULL;
	struct peer *peer = NULL;
	int r = options->is_first ? come_first() : 0;

	if (r < 0)
		return r;
	if (!options->is_alone)
		start_ganesha(&running[GANESHA], &targets[GANESHA], &peer);
	r = mkdtemp(data) && chmod(data, 0755) == 0 ? 0 : -errno;
	if (r == 0)
		r = database_start(&database);
	for (int i = OURS; i <= EMBEDDED && r == 0; i++) {
		running[i] = &targets[i];
		r = start_ours(options->program, data, database, i, running[i], &daemons[i]);
	}
	if (r == 0) {
		running[ANSWERING] = &targets[ANSWERING];
		r = start_answering(database, running[ANSWERING], &answering);
	}
	if (r == 0)
		r = measure_all(running, database, options->seconds, options->only);
	for (int i = 0; i < N_SERVERS; i++)
		if (daemons[i])
			load_daemon_stop(daemons[i]);
	if (answering)
		database_peer_stop(answering);
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
	struct options options = { .seconds = 5 };
	static struct row only;
	int i = 2, r;

	for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
		options.is_alone |= strcmp(argv[i], "--alone") == 0;
		options.is_first |= strcmp(argv[i], "--first") == 0;
	}
	if (argc < 2 || (argc - i > 2 && !read_row(&only, argv + i + 1)))
		return usage();
	options.program = argv[1];
	if (argc > i)
		options.seconds = strtod(argv[i], NULL);
	if (argc - i > 2)
		options.only = &only;
	r = run(&options);
	if (r < 0)
		fprintf(stderr, "database: %s\n", strerror(-r));
	return r < 0;
}
