/*
 * What durability costs.
 *
 *	bench_store FOLDER [CONNECTION-STRING]
 *
 * FOLDER is made and filled; give one on the disk in question. With a connection
 * string PostgreSQL is measured, too. Prints one line of JSON.
 *
 *	candidates  ns for a LOCK and an UNLOCK at 64 a turn, of bare ways to keep them
 *	            through the death of the process
 *	locks       the same through the store, by durability; and where both fall into
 *	            one turn and so cancel out
 *	clients     durable registrations a second, by how many wait at once
 *	load        seconds for a start with a million locks, beside reading the same
 *	            records from LMDB and nothing else
 */
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macros.h"
#include "loop/loop.h"
#include "plain.h"
#include "store/store.h"

#define BATCH    64
#define N_TURNS  4000
#define N_LOADED 1000000
#define PUT_SIZE 136
#define DEL_SIZE 24
#define JOURNAL  ((size_t)8 << 20)

struct bench {
	struct hf_loop *loop;
	struct hf_store *store;
	const char *folder;
	const char *conninfo;
	uint64_t ids[BATCH];
	uint64_t n_left;
	uint64_t n_waiting; /* registrations under way */
	uint64_t serial;
	bool is_put; /* what the turn did */
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Of this thread alone: what the store takes from the loop, however busy the machine is. */
static double cpu(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void must(int r, const char *what)
{
	if (r == 0)
		return;
	fprintf(stderr, "bench_store: %s: %s\n", what, r < 0 && r > -4096 ? strerror(-r) : "failed");
	exit(1);
}

/* Candidates */

static double bare_lmdb(const char *folder)
{
	uint8_t value[PUT_SIZE] = { 0 };
	uint64_t id = 1;
	char path[512];
	double began;
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;

	snprintf(path, sizeof(path), "%s/bare.mdb", folder);
	must(mdb_env_create(&env), "lmdb");
	must(mdb_env_set_mapsize(env, (size_t)1 << 30), "lmdb");
	must(mdb_env_open(env, path, MDB_NOSUBDIR | MDB_NOSYNC | MDB_WRITEMAP | MDB_NOLOCK, 0600), "lmdb");
	must(mdb_txn_begin(env, NULL, 0, &txn), "lmdb");
	must(mdb_dbi_open(txn, NULL, 0, &dbi), "lmdb");
	must(mdb_txn_commit(txn), "lmdb");
	began = now();
	for (int turn = 0; turn < 2 * N_TURNS; turn++) {
		must(mdb_txn_begin(env, NULL, 0, &txn), "lmdb");
		for (uint64_t i = 0; i < BATCH; i++) {
			uint64_t key = __builtin_bswap64(id + i);
			MDB_val k = { sizeof(key), &key }, v = { sizeof(value), value };

			must(turn % 2 ? mdb_del(txn, dbi, &k, NULL) : mdb_put(txn, dbi, &k, &v, 0), "lmdb");
		}
		must(mdb_txn_commit(txn), "lmdb");
		id += turn % 2 ? BATCH : 0;
	}
	began = (now() - began) * 1e9 / N_TURNS / BATCH;
	mdb_env_close(env);
	return began;
}

static double bare_journal(const char *folder, bool mapped)
{
	static uint8_t records[BATCH * PUT_SIZE];
	uint8_t *map = NULL;
	char path[512];
	size_t at = 0;
	double began;
	int fd;

	snprintf(path, sizeof(path), "%s/bare.journal", folder);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	must(fd < 0 || ftruncate(fd, (off_t)JOURNAL) < 0 ? -errno : 0, "journal");
	if (mapped)
		map = mmap(NULL, JOURNAL, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(map == MAP_FAILED ? -errno : 0, "journal");
	began = now();
	for (int turn = 0; turn < 2 * N_TURNS; turn++) {
		size_t len = BATCH * (turn % 2 ? DEL_SIZE : PUT_SIZE);

		at = at + len > JOURNAL ? 0 : at;
		if (mapped)
			memcpy(map + at, records, len);
		else
			must(pwrite(fd, records, len, (off_t)at) < 0 ? -errno : 0, "journal");
		at += len;
	}
	began = (now() - began) * 1e9 / N_TURNS / BATCH;
	if (mapped)
		munmap(map, JOURNAL);
	close(fd);
	return began;
}

/* The store: what it reaches starts the next turn. */

static struct hf_store_lock a_lock(uint64_t id)
{
	static const uint8_t handle[32], oh[20];

	return (struct hf_store_lock){
		.id = id,
		.export = hf_bytes_of_str("/data"),
		.handle = hf_bytes_of(handle, sizeof(handle)),
		.client = hf_bytes_of_str("nlm:192.0.2.17:client"),
		.oh = hf_bytes_of(oh, sizeof(oh)),
		.owner = id,
		.end = UINT64_MAX,
		.mode = 1,
	};
}

static void put_batch(struct bench *bench)
{
	for (int i = 0; i < BATCH; i++) {
		struct hf_store_lock lock = a_lock(bench->ids[i] = hf_store_new_id(bench->store));

		must(hf_store_put_lock(bench->store, &lock, NULL), "put");
	}
}

static void delete_batch(struct bench *bench)
{
	for (int i = 0; i < BATCH; i++)
		must(hf_store_delete_lock(bench->store, bench->ids[i], NULL), "delete");
}

static void next_turn(struct bench *bench)
{
	if (bench->n_left == 0) {
		hf_loop_stop(bench->loop);
		return;
	}
	bench->n_left--;
	bench->is_put = !bench->is_put;
	if (bench->is_put)
		put_batch(bench);
	else
		delete_batch(bench);
}

static void put_client(struct bench *bench)
{
	char id[64], name[32];
	struct hf_store_client client = { .protocol = hf_bytes_of_str("nlm") };

	snprintf(name, sizeof(name), "client-%llu", (unsigned long long)bench->serial);
	snprintf(id, sizeof(id), "nlm:192.0.2.1:%s", name);
	bench->serial++;
	client.id = hf_bytes_of_str(id);
	client.mon_name = hf_bytes_of_str(name);
	client.address.family = client.local.family = AF_INET;
	client.registered_at = client.last_seen = hf_loop_wall(bench->loop);
	must(hf_store_put_client(bench->store, &client, NULL), "put client");
}

static void on_reached(void *user, enum hf_store_kind kind, uint64_t ticket)
{
	struct bench *bench = user;

	if (kind == HF_STORE_LOCKS) {
		next_turn(bench);
		return;
	}
	for (uint64_t i = 0; i < bench->n_waiting && bench->n_left; i++, bench->n_left--)
		put_client(bench);
	if (bench->n_left == 0 && hf_store_is_idle(bench->store))
		hf_loop_stop(bench->loop);
}

static void on_failed(void *user, uint64_t first_lost)
{
	fprintf(stderr, "bench_store: the store failed\n");
	exit(1);
}

static void on_nothing(void *user)
{
}

static const struct hf_store_events events = {
	.on_reached = on_reached,
	.on_failed = on_failed,
	.on_resync = on_nothing,
	.on_recovered = on_nothing,
};

static void open_store(struct bench *bench, const char *backend, enum hf_store_durability durability)
{
	struct hf_store_options options = {
		.durability = durability,
		.path = bench->folder,
		.postgres = bench->conninfo,
		.server = "bench",
		.events = &events,
		.user = bench,
	};
	struct hf_store_start start;

	must(hf_loop_new(&bench->loop), "loop");
	if (strcmp(backend, "memory") == 0)
		must(hf_store_open_memory(&bench->store, bench->loop, &options), "open");
	else if (strcmp(backend, "lmdb") == 0)
		must(hf_store_open_lmdb(&bench->store, bench->loop, &options), "open");
	else
		must(hf_store_open_postgres(&bench->store, bench->loop, &options), "open");
	must(hf_store_begin_epoch(bench->store, &start), "begin");
	bench->is_put = false;
}

static void close_store(struct bench *bench)
{
	bench->store = hf_store_free(bench->store);
	bench->loop = hf_loop_free(bench->loop);
}

struct cost {
	double wall_ns;
	double cpu_ns;
};

/* A put and a delete in different turns */
static struct cost measure_locks(struct bench *bench, const char *backend,
				 enum hf_store_durability durability, int n_turns)
{
	double wall, busy;

	open_store(bench, backend, durability);
	wall = now();
	busy = cpu();
	if (strcmp(backend, "memory") == 0 || durability == HF_STORE_NONE) {
		for (int i = 0; i < n_turns; i++) {
			put_batch(bench);
			delete_batch(bench);
		}
	} else {
		bench->n_left = 2 * (uint64_t)n_turns;
		next_turn(bench);
		must(hf_loop_run(bench->loop), "run");
	}
	wall = (now() - wall) * 1e9 / n_turns / BATCH;
	busy = (cpu() - busy) * 1e9 / n_turns / BATCH;
	close_store(bench);
	return (struct cost){ wall, busy };
}

static void print_locks(struct bench *bench, const char *name, const char *backend,
			enum hf_store_durability durability, int n_turns)
{
	struct cost best = { 1e9, 1e9 };

	for (int i = 0; i < 3; i++) {
		struct cost cost = measure_locks(bench, backend, durability, n_turns);

		best.wall_ns = HF_MIN(best.wall_ns, cost.wall_ns);
		best.cpu_ns = HF_MIN(best.cpu_ns, cost.cpu_ns);
	}
	printf("\"%s_pair_ns\":%.0f,\"%s_pair_loop_cpu_ns\":%.0f", name, best.wall_ns, name, best.cpu_ns);
}

/* CPU ns for both in one turn, the turn itself included */
static double measure_cancelling(struct bench *bench)
{
	double spent;

	open_store(bench, "lmdb", HF_STORE_PROCESS);
	spent = cpu();
	for (int i = 0; i < N_TURNS; i++) {
		put_batch(bench);
		delete_batch(bench);
		bench->n_left = 0;
		must(hf_loop_run(bench->loop), "run"); /* on_reached stops it */
	}
	spent = cpu() - spent;
	close_store(bench);
	return spent * 1e9 / N_TURNS / BATCH;
}

static double measure_clients(struct bench *bench, const char *backend, uint64_t n_waiting, uint64_t n)
{
	double began;

	open_store(bench, backend, HF_STORE_PROCESS);
	must(hf_store_clear(bench->store), "clear");
	bench->n_waiting = n_waiting;
	bench->n_left = n - n_waiting;
	began = now();
	for (uint64_t i = 0; i < n_waiting; i++)
		put_client(bench);
	must(hf_loop_run(bench->loop), "run");
	began = (double)n / (now() - began);
	close_store(bench);
	return began;
}

/* Loading */

static int count_lock(void *user, const struct hf_store_lock *lock)
{
	++*(uint64_t *)user;
	return 0;
}

static void fill_store(struct bench *bench, const char *backend)
{
	open_store(bench, backend, HF_STORE_PROCESS);
	must(hf_store_clear(bench->store), "clear");
	for (int i = 0; i < N_LOADED; i++) {
		struct hf_store_lock lock = a_lock(hf_store_new_id(bench->store));

		must(hf_store_put_lock(bench->store, &lock, NULL), "put");
		if (i % 20000 == 19999) {
			bench->n_left = 0;
			must(hf_loop_run(bench->loop), "run");
		}
	}
	close_store(bench);
}

static double measure_load(struct bench *bench, const char *backend)
{
	double began = now();
	uint64_t n = 0;

	open_store(bench, backend, HF_STORE_PROCESS);
	must(hf_store_load_locks(bench->store, count_lock, &n), "load");
	began = now() - began;
	must(n == N_LOADED ? 0 : -EIO, "count");
	close_store(bench);
	return began;
}

static void measure_postgres(struct bench *bench)
{
	printf(",\"postgres\":{");
	print_locks(bench, "process", "postgres", HF_STORE_PROCESS, 300);
	printf(",");
	print_locks(bench, "machine", "postgres", HF_STORE_MACHINE, 100);
	printf(",\"clients_per_s_1\":%.0f", measure_clients(bench, "postgres", 1, 200));
	printf(",\"clients_per_s_256\":%.0f", measure_clients(bench, "postgres", 256, 20480));
	fill_store(bench, "postgres");
	printf(",\"load_1m_s\":%.2f}", measure_load(bench, "postgres"));
}

int main(int argc, char **argv)
{
	struct bench bench = { 0 };
	double load = 1e9, plain = 1e9;
	uint64_t n;

	if (argc < 2) {
		fprintf(stderr, "usage: %s FOLDER [CONNECTION-STRING]\n", argv[0]);
		return 2;
	}
	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	bench.folder = argv[1];
	bench.conninfo = argc > 2 ? argv[2] : NULL;
	if (mkdir(bench.folder, 0700) < 0 && errno != EEXIST)
		must(-errno, bench.folder);
	printf("{\"bench\":\"store\",\"batch\":%d", BATCH);
	printf(",\"candidates\":{\"lmdb_nosync_writemap_pair_ns\":%.0f", bare_lmdb(bench.folder));
	printf(",\"journal_mapped_pair_ns\":%.0f", bare_journal(bench.folder, true));
	printf(",\"journal_written_pair_ns\":%.0f}", bare_journal(bench.folder, false));
	printf(",\"locks\":{");
	print_locks(&bench, "memory", "memory", HF_STORE_PROCESS, N_TURNS);
	printf(",");
	print_locks(&bench, "none", "lmdb", HF_STORE_NONE, N_TURNS);
	printf(",");
	print_locks(&bench, "process", "lmdb", HF_STORE_PROCESS, 5 * N_TURNS);
	printf(",");
	print_locks(&bench, "machine", "lmdb", HF_STORE_MACHINE, 200);
	printf(",\"process_cancelling_pair_loop_cpu_ns\":%.0f}", measure_cancelling(&bench));
	printf(",\"clients\":{\"per_s_1\":%.0f", measure_clients(&bench, "lmdb", 1, 200));
	printf(",\"per_s_64\":%.0f", measure_clients(&bench, "lmdb", 64, 12800));
	printf(",\"per_s_1024\":%.0f}", measure_clients(&bench, "lmdb", 1024, 102400));
	fill_store(&bench, "lmdb");
	printf(",\"load\":{\"after_kill_s\":%.3f", measure_load(&bench, "lmdb"));
	for (int i = 0; i < 5; i++) { /* the best of each, side by side */
		load = HF_MIN(load, measure_load(&bench, "lmdb"));
		plain = HF_MIN(plain, plain_reading(bench.folder, &n));
	}
	printf(",\"open_and_load_s\":%.3f,\"plain_reading_s\":%.3f}", load, plain);
	if (bench.conninfo)
		measure_postgres(&bench);
	printf("}\n");
	return 0;
}
