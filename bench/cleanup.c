/*
 * The clean-up after a client that died with 100,000 locks in 1,000 files, with
 * a waiter behind each file: everything freed, the waiters granted, the store
 * told; beside a plain loop that frees as many nodes of a tree, in the same run.
 *
 *	cleanup [HOLDFASTD]
 *
 * The argument is ignored. The median of some rounds, in CPU time of the process,
 * since others use the machine, too: up to the moment when the loop may go on,
 * and until it is as durable as a lock is. Prints JSON.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/addr.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/rbtree.h"
#include "client/client.h"
#include "client/clients.h"
#include "lock/lock.h"
#include "loop/loop.h"
#include "recovery/recovery.h"
#include "store/store.h"

#define N_LOCKS  100000
#define N_FILES  1000
#define N_OWNERS 100
#define N_ROUNDS 5

struct bench {
	struct hf_loop *loop;
	struct hf_recovery *recovery;
	struct hf_client *dead, *heir;
	struct hf_delays delays;
	struct hf_promise promise;
	size_t n_granted;
};

struct cost {
	double at_once_ms, durable_ms, plain_ms;
};

static double cpu_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static void must(int r, const char *what)
{
	if (r == 0)
		return;
	fprintf(stderr, "cleanup: %s: %s\n", what, strerror(r < 0 ? -r : EIO));
	exit(1);
}

/* The clients that live and die */

static void on_granted(void *user, const struct hf_lock_view *waiter)
{
	((struct bench *)user)->n_granted++;
}

static const struct hf_recovery_waiter_events waiter_events = { .granted = on_granted };

static struct hf_client *make_client(struct bench *bench, const char *address, const char *name)
{
	struct hf_client *client = NULL;
	struct hf_addr addr;

	must(hf_addr_parse(&addr, address) ? 0 : -EINVAL, "address");
	must(hf_clients_get(&client, hf_recovery_clients(bench->recovery), "nlm", &addr,
			    hf_bytes_of_str(name)),
	     "client");
	must(hf_client_register(client), "register");
	return client;
}

static void take(struct bench *bench, struct hf_client *client, uint32_t i, bool is_waiter)
{
	uint32_t file = i % N_FILES, answer = is_waiter ? HF_LOCK_E_QUEUED : HF_LOCK_OK;
	uint64_t start = is_waiter ? 0 : (uint64_t)i / N_FILES * 100;
	struct hf_lock_request request = {
		.who = { .client = &client->locking,
			 .handle = hf_bytes_of(&file, sizeof(file)),
			 .owner_id = is_waiter ? i : i % N_OWNERS,
			 .oh = hf_bytes_of(&file, sizeof(file)) },
		.range = { start, is_waiter ? HF_RANGE_EOF : start + 49 },
		.offset = start,
		.len = is_waiter ? 0 : 50,
		.mode = HF_LOCK_EXCLUSIVE,
		.client_state = 3,
		.wait = is_waiter,
	};

	must(hf_lock_acquire(hf_recovery_locks(bench->recovery), &request, NULL) == (int)answer ? 0 : -EBUSY,
	     "a lock");
}

static void on_durable(struct hf_promise *promise, bool is_durable)
{
	must(is_durable ? 0 : -EIO, "the store failed");
	hf_loop_stop(hf_container_of(promise, struct bench, promise)->loop);
}

static void await_store(struct bench *bench)
{
	bench->delays.recovery = bench->recovery;
	if (!hf_delays_add(&bench->delays, &bench->promise, HF_SAYS_GRANTED, bench->dead, on_durable))
		must(hf_loop_run(bench->loop), "run");
}

static void measure(const char *folder, enum hf_store_backend backend, struct cost *costp)
{
	struct hf_recovery_options options = {
		.backend = backend,
		.durability = HF_STORE_PROCESS,
		.store_path = folder,
		.server_name = "bench",
		.window_ns = 60 * HF_NS_PER_S,
		.grace = HF_RECOVERY_GRACE_NEVER,
		.notify_timeout_ns = HF_NS_PER_S,
		.notify_parallel = 1,
		.max_clients = 100,
		.clear_store = true,
	};
	struct bench bench = { 0 };
	double began;

	must(hf_loop_new(&bench.loop), "loop");
	options.loop = bench.loop;
	must(hf_recovery_new(&bench.recovery, &options), "recovery");
	hf_recovery_set_waiter_events(bench.recovery, &waiter_events, &bench);
	bench.dead = make_client(&bench, "10.0.0.1", "dead");
	bench.heir = make_client(&bench, "10.0.0.2", "heir");
	for (uint32_t i = 0; i < N_LOCKS; i++)
		take(&bench, bench.dead, i, false);
	for (uint32_t i = 0; i < N_FILES; i++)
		take(&bench, bench.heir, i, true);
	await_store(&bench);
	began = cpu_ms();
	must(hf_recovery_client_crashed(bench.recovery, bench.dead, "bench") == N_LOCKS ? 0 : -EIO,
	     "clean-up");
	costp->at_once_ms = cpu_ms() - began;
	await_store(&bench);
	costp->durable_ms = cpu_ms() - began;
	must(bench.n_granted == N_FILES ? 0 : -EIO, "waiters");
	hf_client_unref(bench.dead);
	hf_client_unref(bench.heir);
	hf_recovery_free(bench.recovery);
	hf_loop_free(bench.loop);
}

/* The plain loop */

struct plain {
	struct hf_rb_node node;
	uint64_t key;
};

static double measure_plain(void)
{
	struct hf_rb_tree tree = { NULL };
	struct hf_rb_node *node;
	uint64_t random = 1234567;
	double began;

	for (uint32_t i = 0; i < N_LOCKS; i++) {
		struct plain *plain = malloc(sizeof(*plain));
		struct hf_rb_node **link = &tree.root, *parent = NULL;

		must(plain ? 0 : -ENOMEM, "memory");
		random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		plain->key = random >> 20;
		while (*link) {
			parent = *link;
			link = plain->key < hf_rb_entry(parent, struct plain, node)->key ? &parent->left
											 : &parent->right;
		}
		hf_rb_insert(&tree, &plain->node, parent, link, NULL);
	}
	began = cpu_ms();
	while ((node = hf_rb_first(&tree))) {
		hf_rb_erase(&tree, node, NULL);
		free(hf_rb_entry(node, struct plain, node));
	}
	return cpu_ms() - began;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, N_ROUNDS, sizeof(*values), compare);
	return values[N_ROUNDS / 2];
}

static void measure_store(const char *folder, enum hf_store_backend backend, const char *name)
{
	double at_once[N_ROUNDS], durable[N_ROUNDS], plain[N_ROUNDS];
	struct cost cost;

	for (int i = 0; i < N_ROUNDS; i++) {
		measure(folder, backend, &cost);
		at_once[i] = cost.at_once_ms;
		durable[i] = cost.durable_ms;
		plain[i] = measure_plain();
	}
	printf(",\"%s\":{\"loop_ms\":%.2f,\"durable_ms\":%.2f,\"plain_ms\":%.2f,\"loop_x\":%.2f,"
	       "\"durable_x\":%.2f}",
	       name, median(at_once), median(durable), median(plain), median(at_once) / median(plain),
	       median(durable) / median(plain));
}

int main(void)
{
	char folder[] = "/tmp/hf-cleanup-XXXXXX";

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	must(mkdtemp(folder) ? 0 : -errno, "mkdtemp");
	printf("{\"bench\":\"cleanup\",\"locks\":%d,\"files\":%d,\"waiters\":%d", N_LOCKS, N_FILES, N_FILES);
	measure_store(folder, HF_STORE_BACKEND_MEMORY, "memory");
	measure_store(folder, HF_STORE_BACKEND_LMDB, "lmdb");
	printf("}\n");
	fflush(stdout);
	execlp("rm", "rm", "-rf", folder, (char *)NULL);
	return 1;
}
