/*
 * What a call costs where many locks are: LOCK and UNLOCK in pairs, and TEST, over
 * TCP, through the whole server; bench/lock_engine.c measures the engine alone.
 * Prints JSON.
 *
 *	nlm_many PATH/holdfastd [SECONDS [DURABILITY]]
 *
 * - one_file_default: one file of an exported directory, every default, so that
 *   the kernel has the locks, too (local_locks). The locks are taken in rising
 *   order, in falling order, and in an order that is none. A pair is at a random
 *   place between the locks, or behind the last one.
 * - one_file_opaque and many_files_opaque: without any export, where a handle is
 *   only bytes and no file is looked at. The locks are in one file, or in up to
 *   100 k files.
 *
 * There is a server for each size, all are asked in turn, and each row has the
 * best rate of many short rounds and the least CPU time of the server for a
 * call: what remains true on a busy machine. bytes_per_lock is what the server's
 * own memory grew by while it was filled, with all buffers that it keeps.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "load.h"
#include "nlm_call.h"
#include "nlm_peer.h"

enum {
	N_ROUNDS = 10,
	N_CALLERS = 8, /* a client may have 262,144 locks */
	N_OWNERS = 1000,
	MAX_FILES = 100000,
	DEPTH = 64,
	STEP = 4, /* bytes from lock to lock: no two ever touch */
	FILL_SECONDS = 120,
};

static const uint64_t sizes[] = { 1000, 10000, 100000, 1000000 };
enum {
	N_SIZES = sizeof(sizes) / sizeof(*sizes)
};

enum what {
	PAIRS,
	BEHIND, /* pairs behind the last lock */
	TESTS,
	N_WHATS
};
static const char *const what_names[N_WHATS] = { "pair", "pair_behind", "test" };

enum order {
	ANY,
	RISING,
	FALLING,
	N_ORDERS
};
static const char *const order_names[N_ORDERS] = { "any", "rising", "falling" };

/* What is measured together */
struct group {
	const char *name;
	int n_sizes;
	uint64_t most_files;
	bool is_exported;
	enum order order;
};

static const struct group groups[] = {
	{ "one_file_default", 3, 1, true, ANY },
	{ "one_file_default", 3, 1, true, RISING },
	{ "one_file_default", 3, 1, true, FALLING },
	{ "one_file_opaque", N_SIZES, 1, false, ANY },
	{ "many_files_opaque", N_SIZES, MAX_FILES, false, ANY },
};

struct server {
	struct load_daemon *daemon;
	uint16_t port;
	enum order order;
	struct peer_handle handle; /* of the exported file, if there is one */
	uint64_t n_locks;
	uint64_t n_files;
	uint64_t random;
	uint64_t at; /* the lock that is asked for or given back now */
	double bytes_per_lock;
	double fill_us; /* a lock */
	struct nlm_call lock, unlock, test;
	double rate[N_WHATS][2];   /* at depth 1 and DEPTH */
	double cpu_us[N_WHATS][2]; /* a call */
};

static uint64_t chance(struct server *server, uint64_t n)
{
	server->random ^= server->random >> 12;
	server->random ^= server->random << 25;
	server->random ^= server->random >> 27;
	return (server->random * UINT64_C(0x2545F4914F6CDD1D)) % n;
}

static struct peer_handle handle_of(const struct server *server, uint64_t file)
{
	struct peer_handle handle = { .len = 32 };

	if (server->handle.len)
		return server->handle;
	memset(handle.data, 0x5a, handle.len);
	memcpy(handle.data, &file, sizeof(file));
	return handle;
}

/* About lock @i: its file, its place and @shift bytes more. */
static const struct load_message *about(struct server *server, struct nlm_call *call, uint64_t i,
					uint32_t svid, uint32_t shift)
{
	const struct peer_handle handle = handle_of(server, i % server->n_files);

	return nlm_call_fill(call, &handle, svid, (uint32_t)(i / server->n_files) * STEP + shift);
}

/* FILLING: every lock once. More calls than that are on their way when it ends: they repeat the last one. */

/* In an order that is none: 7919 is prime, and divides no number of locks. */
static uint64_t nth_lock(const struct server *server, uint64_t n)
{
	switch (server->order) {
	case RISING:
		return n < server->n_locks ? n : server->n_locks - 1;
	case FALLING:
		return n < server->n_locks ? server->n_locks - 1 - n : 0;
	default:
		return n * 7919 % server->n_locks;
	}
}

static const struct load_message *next_of_all(void *user, int connection, uint64_t n)
{
	struct server *server = user;
	uint64_t i = nth_lock(server, n);
	char caller[NLM_CALLER_LEN + 1];

	snprintf(caller, sizeof(caller), "fill%u", (unsigned int)(i % N_CALLERS));
	nlm_call_name(&server->lock, caller);
	return about(server, &server->lock, i, (uint32_t)(i % N_OWNERS) + 1, 0);
}

/* Of the server, without what it has mapped from files */
static double own_memory(const struct server *server)
{
	unsigned long n_pages = 0, n_shared = 0;
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)load_daemon_pid(server->daemon));
	file = fopen(path, "re");
	if (file && fscanf(file, "%*u %lu %lu", &n_pages, &n_shared) != 2)
		n_pages = n_shared = 0;
	if (file)
		fclose(file);
	return (double)(n_pages - n_shared) * (double)sysconf(_SC_PAGESIZE);
}

static int fill(struct server *server)
{
	const struct load_setup setup = { .address = "127.0.0.1",
					  .port = server->port,
					  .n_connections = 1,
					  .depth = DEPTH,
					  .message = next_of_all,
					  .user = server,
					  .seconds = FILL_SECONDS,
					  .n_calls = server->n_locks,
					  .reply_offset = NLM_STAT_OFFSET };
	double before = own_memory(server);
	struct load_result result;
	int r = load_run(&setup, &result);

	server->bytes_per_lock = (own_memory(server) - before) / (double)server->n_locks;
	server->fill_us = 1e6 / result.rate;
	nlm_call_name(&server->lock, "bench");
	if (r < 0)
		return r;
	return result.n_wrong ? -EPROTO : result.n_calls < server->n_locks ? -ETIME : 0;
}

/* MEASURING: between the locks, where no client has a lock. */
static const struct load_message *next_pair(void *user, int connection, uint64_t n)
{
	struct server *server = user;

	if (n % 2 == 0)
		server->at = chance(server, server->n_locks);
	return about(server, n % 2 ? &server->unlock : &server->lock, server->at, 1, STEP / 2);
}

static const struct load_message *next_pair_behind(void *user, int connection, uint64_t n)
{
	struct server *server = user;

	if (n % 2 == 0)
		server->at = server->n_locks + chance(server, server->n_locks);
	return about(server, n % 2 ? &server->unlock : &server->lock, server->at, 1, STEP / 2);
}

static const struct load_message *next_test(void *user, int connection, uint64_t n)
{
	struct server *server = user;

	return about(server, &server->test, chance(server, server->n_locks), 1, STEP / 2);
}

static int measure(struct server *server, enum what what, int is_deep, double seconds)
{
	static const struct load_message *(*const next[N_WHATS])(void *, int, uint64_t) = { next_pair,
											    next_pair_behind,
											    next_test };
	const struct load_setup setup = { .address = "127.0.0.1",
					  .port = server->port,
					  .n_connections = 1,
					  .depth = is_deep ? DEPTH : 1,
					  .message = next[what],
					  .user = server,
					  .seconds = seconds,
					  .reply_offset = NLM_STAT_OFFSET };
	double *rate = &server->rate[what][is_deep], *least = &server->cpu_us[what][is_deep], cpu;
	struct load_result result;
	int r;

	cpu = load_cpu(load_daemon_pid(server->daemon));
	r = load_run(&setup, &result);
	if (r < 0)
		return r;
	if (result.n_wrong || !result.n_calls)
		return -EPROTO;
	cpu = 1e6 * (load_cpu(load_daemon_pid(server->daemon)) - cpu) / (double)result.n_calls;
	if (result.rate > *rate)
		*rate = result.rate;
	if (*least == 0 || cpu < *least)
		*least = cpu;
	return 0;
}

static void print(const struct server *servers, const struct group *group, bool is_last)
{
	for (int i = 0; i < group->n_sizes; i++) {
		const struct server *first = &servers[0], *server = &servers[i];

		printf(" {\"group\":\"%s\",\"order\":\"%s\",\"locks\":%llu,\"files\":%llu,"
		       "\"bytes_per_lock\":%.0f,\"fill_us\":%.2f",
		       group->name, order_names[group->order], (unsigned long long)server->n_locks,
		       (unsigned long long)server->n_files, server->bytes_per_lock, server->fill_us);
		for (int k = 0; k < 2 * N_WHATS; k++) {
			int what = k / 2, is_deep = k % 2;

			/* x: how much more a call costs than in the first row, in time and in CPU time */
			printf(",\n  "
			       "\"%s_depth_%d\":{\"rate\":%.0f,\"x\":%.2f,\"cpu_us\":%.2f,\"cpu_x\":%.2f}",
			       what_names[what], is_deep ? DEPTH : 1, server->rate[what][is_deep],
			       first->rate[what][is_deep] / server->rate[what][is_deep],
			       server->cpu_us[what][is_deep],
			       server->cpu_us[what][is_deep] / first->cpu_us[what][is_deep]);
		}
		printf("}%s\n", is_last && i + 1 == group->n_sizes ? "" : ",");
	}
	fflush(stdout);
}

static int start(struct server *server, const char *program, const char *durability, const char *exported)
{
	char setting[64], export[96];
	const char *const settings[] = { "api.listen=127.0.0.1:0", setting, exported ? export : NULL, NULL };
	struct peer_handle handle;
	int r;

	snprintf(setting, sizeof(setting), "store.lock_durability=%s", durability);
	snprintf(export, sizeof(export), "--export=%s", exported ? exported : "");
	r = load_daemon_start(&server->daemon, program, settings, &server->port);
	if (r == 0 && exported)
		r = peer_find_handles(server->port, server->port, exported, 1, &server->handle);
	if (r < 0)
		return r;
	server->random = 88172645463325252u;
	handle = handle_of(server, 0);
	nlm_call_make(&server->lock, NLM_LOCK, &handle, 1);
	nlm_call_make(&server->unlock, NLM_UNLOCK, &handle, 1);
	nlm_call_make(&server->test, NLM_TEST, &handle, 1);
	return fill(server);
}

/* A directory for each server: what one has in the kernel, another one does not get. */
static int start_sizes(struct server *servers, const struct group *group, char *const words[],
		       const char *base)
{
	const char *durability = words[1] && words[2] ? words[2] : "process";
	char data[64];
	int r = 0;

	for (int i = 0; i < group->n_sizes && r == 0; i++) {
		snprintf(data, sizeof(data), "%s/%s%d", base, order_names[group->order], i);
		servers[i].n_locks = sizes[i];
		servers[i].n_files = sizes[i] < group->most_files ? sizes[i] : group->most_files;
		servers[i].order = group->order;
		if (group->is_exported)
			r = peer_make_files(data, 1);
		if (r == 0)
			r = start(&servers[i], words[0], durability, group->is_exported ? data : NULL);
	}
	return r;
}

static int measure_group(char *const words[], const struct group *group, const char *base, bool is_last)
{
	struct server servers[N_SIZES] = { { 0 } };
	double seconds = words[1] ? strtod(words[1], NULL) : 2;
	int n = group->n_sizes, r = start_sizes(servers, group, words, base);

	for (int i = 0; i < N_ROUNDS * 2 * N_WHATS * n && r == 0; i++)
		r = measure(&servers[i % n], (enum what)(i / n % N_WHATS), i / n / N_WHATS % 2,
			    seconds / N_ROUNDS);
	for (int i = 0; i < n; i++)
		if (servers[i].daemon)
			load_daemon_stop(servers[i].daemon);
	if (r == 0)
		print(servers, group, is_last);
	return r;
}

int main(int argc, char *argv[])
{
	const size_t n_groups = sizeof(groups) / sizeof(*groups);
	char base[] = "/tmp/holdfast-bench-XXXXXX", command[64];
	int r = 0;

	if (argc < 2) {
		fprintf(stderr, "usage: nlm_many PATH/holdfastd [SECONDS [DURABILITY]]\n");
		return 2;
	}
	if (!mkdtemp(base) || chmod(base, 0755) < 0)
		r = -errno;
	printf("{\"bench\":\"nlm_many\",\"unit\":\"calls a second\",\"rows\":[\n");
	for (size_t i = 0; i < n_groups && r == 0; i++)
		r = measure_group(argv + 1, &groups[i], base, i + 1 == n_groups);
	printf("]}\n");
	snprintf(command, sizeof(command), "rm -rf '%s'", base);
	if (system(command) != 0)
		fprintf(stderr, "could not remove %s\n", base);
	if (r < 0)
		fprintf(stderr, "nlm_many: %s\n", strerror(-r));
	return r < 0;
}
