/*
 * What a call costs where many locks are: LOCK and UNLOCK in pairs, and TEST,
 * at random places of one file that has 1 k, 10 k, 100 k and 1 M locks, or of
 * 100 k files that have as many in all. Over TCP, through the whole server;
 * bench/lock_engine.c measures the engine alone. Prints JSON.
 *
 *	nlm_many PATH/holdfastd [SECONDS [DURABILITY]]
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
#include <unistd.h>

#include "load.h"
#include "nlm_call.h"

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
	TESTS,
	N_WHATS
};
static const char *const what_names[N_WHATS] = { "pair", "test" };

struct server {
	struct load_daemon *daemon;
	uint16_t port;
	uint64_t n_locks;
	uint64_t n_files;
	uint64_t random;
	uint64_t at; /* the lock that is asked for or given back now */
	double bytes_per_lock;
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

static struct peer_handle handle_of(uint64_t file)
{
	struct peer_handle handle = { .len = 32 };

	memset(handle.data, 0x5a, handle.len);
	memcpy(handle.data, &file, sizeof(file));
	return handle;
}

/* About lock @i: its file, its place and @shift bytes more. */
static const struct load_message *about(struct server *server, struct nlm_call *call, uint64_t i,
					uint32_t svid, uint32_t shift)
{
	const struct peer_handle handle = handle_of(i % server->n_files);

	return nlm_call_fill(call, &handle, svid, (uint32_t)(i / server->n_files) * STEP + shift);
}

/* FILLING: every lock once, in an order that is none. 7919 is prime, and divides no number of locks. */
static const struct load_message *next_of_all(void *user, int connection, uint64_t n)
{
	struct server *server = user;
	uint64_t i = n * 7919 % server->n_locks;
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

static const struct load_message *next_test(void *user, int connection, uint64_t n)
{
	struct server *server = user;

	return about(server, &server->test, chance(server, server->n_locks), 1, STEP / 2);
}

static int measure(struct server *server, enum what what, int is_deep, double seconds)
{
	const struct load_setup setup = { .address = "127.0.0.1",
					  .port = server->port,
					  .n_connections = 1,
					  .depth = is_deep ? DEPTH : 1,
					  .message = what == PAIRS ? next_pair : next_test,
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

static void print(const struct server *servers, const char *name, int is_last)
{
	printf(" \"%s\":[\n", name);
	for (int i = 0; i < N_SIZES; i++) {
		const struct server *first = &servers[0], *server = &servers[i];

		printf("  {\"locks\":%llu,\"files\":%llu,\"bytes_per_lock\":%.0f",
		       (unsigned long long)server->n_locks, (unsigned long long)server->n_files,
		       server->bytes_per_lock);
		for (int k = 0; k < 2 * N_WHATS; k++) {
			int what = k / 2, is_deep = k % 2;

			/* x: how much more a call costs than in the first row, in time and in CPU time */
			printf(",\"%s_depth_%d\":{\"rate\":%.0f,\"x\":%.2f,\"cpu_us\":%.2f,\"cpu_x\":%.2f}",
			       what_names[what], is_deep ? DEPTH : 1, server->rate[what][is_deep],
			       first->rate[what][is_deep] / server->rate[what][is_deep],
			       server->cpu_us[what][is_deep],
			       server->cpu_us[what][is_deep] / first->cpu_us[what][is_deep]);
		}
		printf("}%s\n", i + 1 < N_SIZES ? "," : "");
	}
	printf(" ]%s\n", is_last ? "" : ",");
}

static int start(struct server *server, const char *program, const char *durability)
{
	char setting[64];
	const char *const settings[] = { setting, "recovery.grace=never", "api.listen=127.0.0.1:0", NULL };
	const struct peer_handle handle = handle_of(0);
	int r;

	snprintf(setting, sizeof(setting), "store.lock_durability=%s", durability);
	r = load_daemon_start(&server->daemon, program, settings, &server->port);
	if (r < 0)
		return r;
	server->random = 88172645463325252u;
	nlm_call_make(&server->lock, NLM_LOCK, &handle, 1);
	nlm_call_make(&server->unlock, NLM_UNLOCK, &handle, 1);
	nlm_call_make(&server->test, NLM_TEST, &handle, 1);
	return fill(server);
}

static int measure_sizes(char *const words[], const char *name, uint64_t most_files, int is_last)
{
	struct server servers[N_SIZES] = { { 0 } };
	double seconds = words[1] ? strtod(words[1], NULL) : 2;
	int r = 0;

	for (int i = 0; i < N_SIZES && r == 0; i++) {
		servers[i].n_locks = sizes[i];
		servers[i].n_files = sizes[i] < most_files ? sizes[i] : most_files;
		r = start(&servers[i], words[0], words[1] && words[2] ? words[2] : "none");
	}
	for (int i = 0; i < N_ROUNDS * 2 * N_WHATS * N_SIZES && r == 0; i++)
		r = measure(&servers[i % N_SIZES], (enum what)(i / N_SIZES % N_WHATS),
			    i / N_SIZES / N_WHATS % 2, seconds / N_ROUNDS);
	for (int i = 0; i < N_SIZES; i++)
		if (servers[i].daemon)
			load_daemon_stop(servers[i].daemon);
	if (r == 0)
		print(servers, name, is_last);
	return r;
}

int main(int argc, char *argv[])
{
	int r;

	if (argc < 2) {
		fprintf(stderr, "usage: nlm_many PATH/holdfastd [SECONDS [DURABILITY]]\n");
		return 2;
	}
	printf("{\"bench\":\"nlm_many\",\"unit\":\"calls a second\",\n");
	r = measure_sizes(argv + 1, "one_file", 1, 0);
	if (r == 0)
		r = measure_sizes(argv + 1, "many_files", MAX_FILES, 1);
	printf("}\n");
	if (r < 0)
		fprintf(stderr, "nlm_many: %s\n", strerror(-r));
	return r < 0;
}
