/*
 * The lock engine alone, without sockets and store: nanoseconds per operation
 * with many locks in one file and over many files, the cost of a lock in
 * bytes, and of a client's death. Prints JSON.
 *
 * Ranges are drawn at random, in batches, so that caches help no more than they
 * do in life; each number is the median over the batches.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/rbtree.h"
#include "lock/lock.h"

enum {
	OWNERS = 1000, /* of the locks that are there */
	BUSY = 16,     /* others, who hold next to nothing */
	FILES = 100000,
	BATCH = 1000,
	BATCHES = 101,
	PAIRS = 2000000,
};

struct bench {
	struct hf_locks *locks;
	struct hf_lock_client clients[2];
	uint64_t random;
	uint32_t n_files;
	uint64_t n_slots;
	uint64_t first_owner, n_owners; /* who does what is measured */
	unsigned long n_conflicts;      /* of tests: an answer that is not used need not be computed */
};

static uint64_t now(void)
{
	struct timespec t;

	/* Of this thread: what others do on the machine must not count. */
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t chance(struct bench *bench, uint64_t n)
{
	bench->random ^= bench->random >> 12;
	bench->random ^= bench->random << 25;
	bench->random ^= bench->random >> 27;
	return (bench->random * UINT64_C(0x2545F4914F6CDD1D)) % n;
}

/* Of the whole process, in pages that are really there: pools keep more than they use, in reserve. */
static double resident(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long pages = 0;

	if (file && fscanf(file, "%*u %lu", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void die(const char *why)
{
	fprintf(stderr, "bench: %s\n", why);
	exit(1);
}

static void begin(struct bench *bench)
{
	struct hf_locks_options options = {
		.key = { 1, 2 },
		.limits = { .locks_per_client = UINT32_MAX,
			    .locks_per_file = UINT32_MAX,
			    .locks = UINT32_MAX,
			    .waiters_per_client = UINT32_MAX },
	};

	*bench = (struct bench){ .random = 88172645463325252u };
	if (hf_locks_new(&bench->locks, &options) < 0)
		die("no memory");
	for (size_t c = 0; c < HF_ARRAY_SIZE(bench->clients); c++)
		hf_lock_client_init(bench->locks, &bench->clients[c]);
}

/* A request of owner @owner for byte 4 * @slot + @shift, so that no two locks ever touch. */
struct op {
	uint8_t handle[32]; /* a little shorter than a handle of the server */
	struct hf_lock_request request;
};

static void prepare(struct bench *bench, struct op *op, uint32_t file, uint64_t owner, uint64_t slot,
		    uint64_t shift)
{
	memset(op, 0, sizeof(*op));
	memcpy(op->handle, &file, sizeof(file));
	op->request.who = (struct hf_lock_target){
		.handle = hf_bytes_of(op->handle, sizeof(op->handle)),
		.client = &bench->clients[0],
		.owner_id = owner,
		.oh = hf_bytes_of_str("1234567@client.example.org"),
	};
	op->request.range = (struct hf_range){ 4 * slot + shift, 4 * slot + shift };
	op->request.mode = HF_LOCK_EXCLUSIVE;
	op->request.client_state = 3;
}

static void acquire(struct bench *bench, const struct op *op)
{
	if (hf_lock_acquire(bench->locks, &op->request, NULL) != HF_LOCK_OK)
		die("a lock was refused");
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), compare);
	return values[n / 2];
}

/* SIZES */

/* Lock number @i of the basic population: file and owner follow from it. */
static void populate(struct bench *bench, uint64_t n, uint32_t n_files)
{
	uint64_t *order = malloc(n * sizeof(*order));
	struct op op;

	if (!order)
		die("no memory");
	for (uint64_t i = 0; i < n; i++) {
		uint64_t j = chance(bench, i + 1);

		order[i] = order[j];
		order[j] = i;
	}
	bench->n_files = n_files;
	bench->n_slots = n / n_files ? n / n_files : 1;
	for (uint64_t i = 0; i < n; i++) {
		prepare(bench, &op, (uint32_t)(order[i] % n_files), order[i] % OWNERS, order[i] / n_files, 0);
		acquire(bench, &op);
	}
	free(order);
}

struct result {
	double insert, test, release;
};

static void draw(struct bench *bench, struct op *ops)
{
	for (int i = 0; i < BATCH; i++)
		prepare(bench, &ops[i], (uint32_t)chance(bench, bench->n_files),
			bench->first_owner + chance(bench, bench->n_owners), chance(bench, bench->n_slots),
			2);
}

/*
 * Looks at random gaps, puts locks into random gaps, and takes them out again. The release finds warm what
 * the insertion touched; the other two find what a random place has.
 */
static struct result measure(struct bench *bench)
{
	static struct op ops[BATCH], others[BATCH];
	static double inserts[BATCHES], tests[BATCHES], releases[BATCHES];

	for (int b = 0; b < BATCHES; b++) {
		uint64_t t0, t1, t2, t3;

		draw(bench, ops);
		draw(bench, others);
		/* Two of a batch may want the same byte: then one is refused, and its release finds nothing.
		 */
		t0 = now();
		for (int i = 0; i < BATCH; i++)
			bench->n_conflicts +=
				hf_lock_test(bench->locks, &others[i].request.who, others[i].request.range,
					     HF_LOCK_EXCLUSIVE, NULL) != HF_LOCK_OK;
		t1 = now();
		for (int i = 0; i < BATCH; i++)
			hf_lock_acquire(bench->locks, &ops[i].request, NULL);
		t2 = now();
		for (int i = 0; i < BATCH; i++)
			hf_lock_release(bench->locks, &ops[i].request.who, ops[i].request.range);
		t3 = now();
		tests[b] = (double)(t1 - t0) / BATCH;
		inserts[b] = (double)(t2 - t1) / BATCH;
		releases[b] = (double)(t3 - t2) / BATCH;
	}
	if (bench->n_conflicts)
		die("a gap is not free");
	return (struct result){ median(inserts, BATCHES), median(tests, BATCHES), median(releases, BATCHES) };
}

/* Returns the ratio of the last size to the first one. */
static struct result bench_sizes(const char *name, uint32_t n_files, uint64_t first_owner, uint64_t n_owners)
{
	static const uint64_t sizes[] = { 1000, 10000, 100000, 1000000 };
	struct result first = { 0 }, x = { 0 };

	printf("  \"%s\": [\n", name);
	for (size_t i = 0; i < HF_ARRAY_SIZE(sizes); i++) {
		struct bench bench;
		struct result r;
		struct hf_lock_counters n;
		double before = resident(), after;

		begin(&bench);
		populate(&bench, sizes[i], n_files);
		hf_lock_count(bench.locks, &n);
		after = resident();
		bench.first_owner = first_owner;
		bench.n_owners = n_owners;
		r = measure(&bench);
		if (i == 0)
			first = r;
		x = (struct result){ r.insert / first.insert, r.test / first.test,
				     r.release / first.release };
		printf("    { \"locks\": %llu, \"files\": %llu, \"owners\": %llu, \"insert_ns\": %.0f, "
		       "\"test_ns\": %.0f, "
		       "\"release_ns\": %.0f, \"insert_x\": %.2f, \"test_x\": %.2f, \"release_x\": %.2f, "
		       "\"bytes_per_lock\": %.1f, \"resident_per_lock\": %.1f }%s\n",
		       (unsigned long long)sizes[i], (unsigned long long)n.files,
		       (unsigned long long)n.owners, r.insert, r.test, r.release, x.insert, x.test, x.release,
		       (double)n.bytes / (double)n.locks, (after - before) / (double)n.locks,
		       i + 1 < HF_ARRAY_SIZE(sizes) ? "," : "");
		fflush(stdout);
		hf_locks_free(bench.locks);
	}
	printf("  ],\n");
	return x;
}

static void print_ratio(const char *name, struct result x)
{
	printf("  \"%s_million_to_thousand\": { \"insert\": %.2f, \"test\": %.2f, \"release\": %.2f },\n",
	       name, x.insert, x.test, x.release);
}

/* PAIRS */

/* Lock and unlock by one owner in a file where @n_others hold something. */
static double measure_pairs(int n_others, bool keep_owner)
{
	struct bench bench;
	struct op op;
	uint64_t t0;

	begin(&bench);
	for (int i = 0; i < n_others; i++) {
		prepare(&bench, &op, 0, 1000 + (uint64_t)i, (uint64_t)i, 0);
		acquire(&bench, &op);
	}
	if (keep_owner) {
		prepare(&bench, &op, 0, 1, 100000, 0);
		acquire(&bench, &op);
	}
	prepare(&bench, &op, 0, 1, (uint64_t)n_others / 2, 2);
	t0 = now();
	for (int i = 0; i < PAIRS; i++) {
		hf_lock_acquire(bench.locks, &op.request, NULL);
		hf_lock_release(bench.locks, &op.request.who, op.request.range);
	}
	t0 = now() - t0;
	hf_locks_free(bench.locks);
	return (double)t0 / PAIRS;
}

/* CRASH */

enum {
	DEAD_LOCKS = 100000,
	DEAD_FILES = 1000,
};

static double measure_purge(void)
{
	struct bench bench;
	struct hf_lock_counters n;
	struct op op;
	uint64_t t;

	begin(&bench);
	for (uint32_t i = 0; i < DEAD_LOCKS; i++) {
		prepare(&bench, &op, i % DEAD_FILES, i % 100, i / DEAD_FILES, 0);
		acquire(&bench, &op);
	}
	for (uint32_t i = 0; i < DEAD_FILES; i++) {
		prepare(&bench, &op, i, i, 0, 0);
		op.request.who.client = &bench.clients[1];
		op.request.range.end = HF_RANGE_EOF;
		op.request.wait = true;
		if (hf_lock_acquire(bench.locks, &op.request, NULL) != HF_LOCK_E_QUEUED)
			die("not queued");
	}
	t = now();
	hf_lock_client_purge(bench.locks, &bench.clients[0]);
	t = now() - t;
	hf_lock_count(bench.locks, &n);
	if (n.locks != DEAD_FILES || n.grants != DEAD_FILES)
		die("waiters were not served");
	hf_locks_free(bench.locks);
	return (double)t / 1e6;
}

/* For comparison: as many nodes of one tree, of the size of a lock, freed one by one. */
struct plain {
	struct hf_rb_node node;
	uint64_t key;
	char rest[96];
};

static double measure_plain(void)
{
	struct hf_rb_tree tree = { NULL };
	struct hf_rb_node *node;
	struct bench bench = { .random = 1234567 };
	uint64_t t;

	for (uint32_t i = 0; i < DEAD_LOCKS; i++) {
		struct plain *plain = malloc(sizeof(*plain));
		struct hf_rb_node **link = &tree.root, *parent = NULL;

		if (!plain)
			die("no memory");
		plain->key = chance(&bench, UINT32_MAX);
		while (*link) {
			parent = *link;
			link = plain->key < hf_rb_entry(parent, struct plain, node)->key ? &parent->left
											 : &parent->right;
		}
		hf_rb_insert(&tree, &plain->node, parent, link, NULL);
	}
	t = now();
	while ((node = hf_rb_first(&tree))) {
		hf_rb_erase(&tree, node, NULL);
		free(hf_rb_entry(node, struct plain, node));
	}
	return (double)(now() - t) / 1e6;
}

static double median_of_5(double (*measure_once)(void))
{
	double values[5];

	for (size_t i = 0; i < HF_ARRAY_SIZE(values); i++)
		values[i] = measure_once();
	return median(values, HF_ARRAY_SIZE(values));
}

int main(void)
{
	struct result one, own;
	double purge, plain;

	printf("{\n");
	printf("  \"pair_ns\": { \"empty_file\": %.0f, \"ten_others\": %.0f, \"owner_stays\": %.0f },\n",
	       measure_pairs(0, false), measure_pairs(10, false), measure_pairs(10, true));
	fflush(stdout);
	one = bench_sizes("one_file", 1, 1000000, BUSY);
	own = bench_sizes("one_file_by_its_holders", 1, 0, OWNERS);
	bench_sizes("many_files", FILES, 1000000, BUSY);
	/* The goal is at most 3. */
	print_ratio("one_file", one);
	print_ratio("one_file_by_its_holders", own);
	purge = median_of_5(measure_purge);
	plain = median_of_5(measure_plain);
	printf("  \"purge\": { \"locks\": %d, \"files\": %d, \"waiters\": %d, \"ms\": %.2f, \"plain_ms\": "
	       "%.2f, "
	       "\"x\": %.2f }\n}\n",
	       DEAD_LOCKS, DEAD_FILES, DEAD_FILES, purge, plain, purge / plain);
	return 0;
}
