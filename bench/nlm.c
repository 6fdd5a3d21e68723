/*
 * LOCK and UNLOCK in pairs a second, over TCP, as users get them: with one
 * exported directory on a real file system and every default. Beside it, in the
 * same run: the same with local_locks off; without any export, where a handle is
 * only bytes and no file is looked at (opaque); a bare loop that grants whatever
 * it is asked and looks at nothing, which is what sockets can do with calls of
 * this size; and nfs-ganesha.
 *
 *	nlm PATH/holdfastd [--alone] [--beside OTHER/holdfastd] [SECONDS [CONNECTIONS DEPTH FILES [apart]]]
 *
 * All servers are measured in turn, in many short rounds of SECONDS each. A row has
 * the median of the rates, of the latencies and of the server's CPU time for a call. A
 * ratio is the median of the ratios within a round: the speed of a machine changes from
 * second to second, and less within a round.
 *
 * A client sends each UNLOCK right behind its LOCK, or (apart) each when the reply
 * to its LOCK is there, as programs do: then all that is in flight is locked, too.
 * No call waits for another: each pair has a range of its own.
 * The client has one more lock all the time: ganesha registers a client with
 * statd whenever the client takes its first one, and would be measured doing
 * that. The namespaces in which ganesha runs need root; without root, or with
 * --alone, ganesha is left out. With --beside, another build is measured in the same
 * rounds, each of its rows right after or before the same row of the first.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "load.h"
#include "nlm_call.h"
#include "nlm_peer.h"

#define MAX_FILES 1000
#define MAX_LANES 64 /* ranges of one connection */
#define RANGE     4096
#define APART     (2u * MAX_LANES * MAX_LANES * RANGE) /* a round of pairs may end with locks below that */
#define N_ROUNDS  25

static const struct {
	int n_connections;
	int depth;
	size_t n_files;
	bool are_apart; /* a LOCK and its UNLOCK */
} shapes[] = {
	{ 1, 1, 16, false },   { 1, 64, 16, false }, { 16, 16, 16, false },
	{ 64, 64, 16, false }, { 1, 64, 16, true },  { 64, 64, 16, true },
};

/* Behind each server of this build is the same of the other build. */
enum server {
	DEFAULT,
	OTHER_DEFAULT,
	NO_LOCAL,
	OTHER_NO_LOCAL,
	OPAQUE,
	OTHER_OPAQUE,
	LIMIT,
	GANESHA,
	N_SERVERS
};

static const char *const server_names[N_SERVERS] = {
	"default", "other_default", "local_locks_off", "other_local_locks_off",
	"opaque",  "other_opaque",  "bare_loop",       "ganesha",
};

struct target {
	pid_t pid;
	uint16_t port;
	struct peer_handle handles[MAX_FILES];
	struct nlm_call lock;
	struct nlm_call unlock;
	size_t n_files; /* of this row */
	uint64_t depth; /* the same */
};

struct round {
	double rate;
	double p50_us;
	double p99_us;
	double cpu_us; /* of the server, for a call */
};

struct row {
	int n_connections;
	int depth;
	size_t n_files;
	bool are_apart;
	struct round rounds[N_SERVERS][N_ROUNDS];
	struct round medians[N_SERVERS];
	uint64_t n_wrong[N_SERVERS];
};

/* Messages */

/* The UNLOCK follows its LOCK at once. */
static const struct load_message *next_of_pair(void *user, int connection, uint64_t n)
{
	struct target *target = user;
	uint64_t pair = n / 2;
	uint32_t lane = (uint32_t)connection * MAX_LANES + (uint32_t)(pair % MAX_LANES);
	const struct peer_handle *handle =
		&target->handles[((uint64_t)connection * 37 + pair) % target->n_files];

	return nlm_call_fill(n % 2 ? &target->unlock : &target->lock, handle, (uint32_t)connection + 1,
			     lane * RANGE);
}

/* Each of the calls in flight is of another program, which sends its UNLOCK when the reply to its LOCK is
 * there: replies come in order, and message n is sent after the reply to message n - depth. */
static const struct load_message *next_of_program(void *user, int connection, uint64_t n)
{
	struct target *target = user;
	uint32_t program = (uint32_t)connection * MAX_LANES + (uint32_t)(n % target->depth);
	const struct peer_handle *handle = &target->handles[(program * 37) % target->n_files];

	return nlm_call_fill(n / target->depth % 2 ? &target->unlock : &target->lock, handle, program + 1,
			     APART + program * RANGE);
}

/* The lock that the client has all the time */
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
	return hold_one(target);
}

/* Where no file is looked at, any bytes are a handle. */
static void make_handles(struct target *target)
{
	for (uint32_t i = 0; i < MAX_FILES; i++) {
		target->handles[i].len = 40; /* as long as a handle of holdfastd */
		memset(target->handles[i].data, 0x5a, 40);
		memcpy(target->handles[i].data, &i, 4);
	}
}

/* Measuring */

static int measure(struct target *target, struct row *row, int server, int round, double seconds)
{
	const struct load_setup setup = { .address = "127.0.0.1",
					  .port = target->port,
					  .n_connections = row->n_connections,
					  .depth = row->depth,
					  .message = row->are_apart ? next_of_program : next_of_pair,
					  .user = target,
					  .seconds = seconds,
					  .reply_offset = NLM_STAT_OFFSET };
	struct load_result result;
	double cpu = load_cpu(target->pid);
	int r;

	target->n_files = row->n_files;
	target->depth = (uint64_t)row->depth;
	r = load_run(&setup, &result);
	if (r < 0)
		return r;
	cpu = 1e6 * (load_cpu(target->pid) - cpu) / (double)result.n_calls;
	row->rounds[server][round] = (struct round){ result.rate, result.p50_us, result.p99_us, cpu };
	row->n_wrong[server] += result.n_wrong;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double values[static N_ROUNDS])
{
	qsort(values, N_ROUNDS, sizeof(double), by_value);
	return values[N_ROUNDS / 2];
}

/* Of one member of the rounds, which are doubles and nothing else */
static double median_of(const struct round *rounds, size_t member)
{
	double values[N_ROUNDS];

	for (int i = 0; i < N_ROUNDS; i++)
		memcpy(&values[i], (const char *)&rounds[i] + member, sizeof(double));
	return median(values);
}

static void find_medians(struct row *row, int server)
{
	const struct round *rounds = row->rounds[server];

	row->medians[server] = (struct round){ median_of(rounds, offsetof(struct round, rate)),
					       median_of(rounds, offsetof(struct round, p50_us)),
					       median_of(rounds, offsetof(struct round, p99_us)),
					       median_of(rounds, offsetof(struct round, cpu_us)) };
}

static void print_server(const struct row *row, int server)
{
	const struct round *round = &row->medians[server];

	printf(",\n   \"%s\":{\"rate\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"cpu_us\":%.2f,\"wrong\":%llu}",
	       server_names[server], round->rate, round->p50_us, round->p99_us, round->cpu_us,
	       (unsigned long long)row->n_wrong[server]);
}

static void print_ratio(const struct row *row, int ours, int other)
{
	double ratios[N_ROUNDS];

	for (int i = 0; i < N_ROUNDS; i++)
		ratios[i] = row->rounds[ours][i].rate / row->rounds[other][i].rate;
	printf(",\"%s_by_%s\":%.2f", server_names[ours], server_names[other], median(ratios));
}

static void print_row(struct row *row, struct target *const *targets, bool is_last)
{
	printf("  {\"connections\":%d,\"depth\":%d,\"files\":%zu,\"unlock\":\"%s\"", row->n_connections,
	       row->depth, row->n_files, row->are_apart ? "after the reply" : "at once");
	for (int i = 0; i < N_SERVERS; i++) {
		if (!targets[i])
			continue;
		find_medians(row, i);
		print_server(row, i);
	}
	printf(",\n   \"ratios\":{\"of\":\"rates\"");
	print_ratio(row, DEFAULT, LIMIT);
	print_ratio(row, DEFAULT, NO_LOCAL);
	print_ratio(row, DEFAULT, OPAQUE);
	if (targets[GANESHA])
		print_ratio(row, DEFAULT, GANESHA);
	for (int i = DEFAULT; i <= OPAQUE && targets[OTHER_DEFAULT]; i += 2)
		print_ratio(row, i, i + 1);
	printf("}}%s\n", is_last ? "" : ",");
	fflush(stdout);
}

static int measure_row(struct target *const *targets, struct row *row, double seconds, bool is_last)
{
	for (int i = 0; i < N_ROUNDS * N_SERVERS; i++) {
		int round = i / N_SERVERS;
		/* In every second round the other build comes first. */
		int server = (i % N_SERVERS) ^ (round % 2);
		struct target *target = targets[server];
		int r = target ? measure(target, row, server, round, seconds) : 0;

		if (r < 0)
			return r;
	}
	print_row(row, targets, is_last);
	return 0;
}

/* The file system on which the exported directory is; its number where it has no name here */
static const char *file_system(const char *directory, char number[32])
{
	static const struct {
		unsigned int type;
		const char *name;
	} known[] = {
		{ 0xef53, "ext4" }, { 0x58465342, "xfs" }, { 0x9123683e, "btrfs" }, { 0x01021994, "tmpfs" }
	};
	struct statfs fs = { 0 };

	statfs(directory, &fs);
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if ((unsigned int)fs.f_type == known[i].type)
			return known[i].name;
	snprintf(number, 32, "%#lx", (unsigned long)fs.f_type);
	return number;
}

static int measure_all(struct target *const *targets, const char *directory, double seconds,
		       const struct row *only)
{
	const size_t n_shapes = only ? 1 : sizeof(shapes) / sizeof(*shapes);
	char number[32];
	int r = 0;

	printf("{\"bench\":\"nlm\",\"unit\":\"calls a "
	       "second\",\"file_system\":\"%s\",\"rounds\":%d,\"rows\":[\n",
	       file_system(directory, number), N_ROUNDS);
	for (size_t i = 0; i < n_shapes && r == 0; i++) {
		struct row row = { 0 };

		row.n_connections = only ? only->n_connections : shapes[i].n_connections;
		row.depth = only ? only->depth : shapes[i].depth;
		row.n_files = only ? only->n_files : shapes[i].n_files;
		row.are_apart = only ? only->are_apart : shapes[i].are_apart;
		r = measure_row(targets, &row, seconds, i == n_shapes - 1);
	}
	printf("]}\n");
	return r;
}

/* Servers */

static int start_ours(const char *program, const char *setting, const char *directory, struct target *target,
		      struct load_daemon **daemonp)
{
	const char *const settings[] = { "api.listen=127.0.0.1:0", setting, NULL };
	int r = load_daemon_start(daemonp, program, settings, &target->port);

	if (r < 0)
		return r;
	target->pid = load_daemon_pid(*daemonp);
	if (directory)
		r = peer_find_handles(target->port, target->port, directory, MAX_FILES, target->handles);
	else
		make_handles(target);
	return r < 0 ? r : prepare(target);
}

/* An export with a setting of its own needs a file of configuration. */
static int write_config(const char *path, const char *directory)
{
	FILE *file = fopen(path, "we");

	if (!file)
		return -errno;
	fprintf(file, "exports:\n  - path: %s\n    local_locks: off\n", directory);
	return fclose(file) == 0 ? 0 : -errno;
}

/* @which: 0, or 1 for the other build. Each build has a directory of its own: their locks would meet in the
 * kernel. */
static int start_all_ours(const char *program, const char *base, int which, struct target **targets,
			  struct target *all, struct load_daemon **daemons)
{
	char data[64], export[96], path[64], config[96];
	int r;

	snprintf(data, sizeof(data), "%s/data%d", base, which);
	snprintf(export, sizeof(export), "--export=%s", data);
	snprintf(path, sizeof(path), "%s/config%d", base, which);
	snprintf(config, sizeof(config), "--config=%s", path);
	r = peer_make_files(data, MAX_FILES);
	if (r == 0)
		r = write_config(path, data);
	for (int i = DEFAULT; i <= OPAQUE && r == 0; i += 2) {
		const char *setting = i == DEFAULT ? export : i == NO_LOCAL ? config : NULL;
		int at = i + which;

		targets[at] = &all[at];
		r = start_ours(program, setting, setting ? data : NULL, targets[at], &daemons[at]);
	}
	return r;
}

static int start_ganesha(struct target **targetp, struct target *target, struct peer **peerp)
{
	int r = geteuid() == 0 ? peer_enter_namespaces() : -EPERM;

	if (r == 0)
		r = peer_start(peerp, MAX_FILES, target->handles, &target->port);
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

static void remove_all(const char *base)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf '%s'", base);
	if (system(command) != 0)
		fprintf(stderr, "could not remove %s\n", base);
}

static int usage(void)
{
	fprintf(stderr, "usage: nlm PATH/holdfastd [--alone] [--beside OTHER/holdfastd] "
			"[SECONDS [CONNECTIONS DEPTH FILES [apart]]]\n");
	return 2;
}

static bool read_row(struct row *row, char *const words[])
{
	row->n_connections = atoi(words[0]);
	row->depth = atoi(words[1]);
	row->n_files = strtoul(words[2], NULL, 10);
	row->are_apart = words[3] && strcmp(words[3], "apart") == 0;
	if (row->n_connections >= 1 && row->n_connections <= MAX_LANES && row->depth >= 1 &&
	    row->depth <= MAX_LANES && row->n_files >= 1 && row->n_files <= MAX_FILES)
		return true;
	fprintf(stderr, "nlm: up to %d connections, depth %d, %d files\n", MAX_LANES, MAX_LANES, MAX_FILES);
	return false;
}

static int run(const char *program, const char *other, bool is_alone, double seconds, const struct row *only)
{
	static struct target all[N_SERVERS];
	struct target *targets[N_SERVERS] = { [LIMIT] = &all[LIMIT] };
	struct load_daemon *daemons[N_SERVERS] = { NULL };
	struct load_echo *echo = NULL;
	struct peer *peer = NULL;
	char base[] = "/tmp/holdfast-bench-XXXXXX";
	int r;

	if (!mkdtemp(base) || chmod(base, 0755) < 0)
		return -errno;
	if (!is_alone)
		start_ganesha(&targets[GANESHA], &all[GANESHA], &peer);
	r = start_limit(&all[LIMIT], &echo);
	if (r == 0)
		r = start_all_ours(program, base, 0, targets, all, daemons);
	if (r == 0 && other)
		r = start_all_ours(other, base, 1, targets, all, daemons);
	if (r == 0)
		r = measure_all(targets, base, seconds, only);
	for (int i = 0; i < N_SERVERS; i++)
		if (daemons[i])
			load_daemon_stop(daemons[i]);
	if (echo)
		load_echo_stop(echo);
	if (peer)
		peer_stop(peer);
	remove_all(base);
	return r;
}

int main(int argc, char *argv[])
{
	const char *other = NULL;
	bool is_alone = false;
	char **rest = argv + 2;
	int n_rest = argc - 2;
	static struct row only;
	int r;

	if (argc < 2)
		return usage();
	for (; n_rest > 0 && strncmp(*rest, "--", 2) == 0; rest++, n_rest--) {
		if (strcmp(*rest, "--alone") == 0) {
			is_alone = true;
		} else if (strcmp(*rest, "--beside") == 0 && n_rest > 1) {
			other = *++rest;
			n_rest--;
		} else {
			return usage();
		}
	}
	if (n_rest > 3 && !read_row(&only, rest + 1))
		return usage();
	r = run(argv[1], other, is_alone, n_rest > 0 ? strtod(rest[0], NULL) : 0.1,
		n_rest > 3 ? &only : NULL);
	if (r < 0)
		fprintf(stderr, "nlm: %s\n", strerror(-r));
	return r < 0;
}
