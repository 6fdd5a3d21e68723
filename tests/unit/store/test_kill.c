/*
 * The embedded store against SIGKILL at random moments: whatever was acknowledged
 * is found again, and nothing that was never asked for. HF_STORE_KILLS says how
 * often; thousands are quick where TMPDIR is in memory.
 */
#include "kit.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../until.h"

/* What the child has been promised, in memory that outlives it: for each lock, 1 put, 2 deleted. */
#define MAX_LOCKS 4096

struct promises {
	volatile uint64_t n; /* ids are first + index */
	volatile uint64_t first;
	volatile uint8_t acknowledged[MAX_LOCKS];
	volatile uint8_t asked[MAX_LOCKS];
};

/* In the child: locks come and go, until the parent kills it. */
static void be_killed(struct kit *kit, struct promises *promises, unsigned int seed)
{
	kit->backend->open(kit);
	if (hf_store_begin_epoch(kit->store, &kit->start) != 0)
		_exit(1);
	for (size_t i = 0; i < MAX_LOCKS;) {
		unsigned int batch = 1 + (unsigned int)rand_r(&seed) % 20;
		size_t end = i + batch < MAX_LOCKS ? i + batch : MAX_LOCKS;
		size_t begin = i;

		for (; i < end; i++) {
			struct hf_store_lock lock = kit_lock(hf_store_new_id(kit->store), (unsigned int)i);

			if (i == 0)
				promises->first = lock.id;
			promises->n = i + 1;
			promises->asked[i] = 1;
			if (hf_store_put_lock(kit->store, &lock, &kit->last_ticket) != 0)
				_exit(1);
			if (begin > 40 && rand_r(&seed) % 2) {
				size_t victim = begin - 1 - (size_t)rand_r(&seed) % 40;

				promises->asked[victim] = 2;
				if (hf_store_delete_lock(kit->store, lock.id - (i - victim),
							 &kit->last_ticket) != 0)
					_exit(1);
			}
		}
		kit_settle(kit);
		for (size_t k = 0; k < i; k++)
			promises->acknowledged[k] = promises->asked[k];
	}
	for (;;)
		pause();
}

static int check_lock(void *user, const struct hf_store_lock *lock)
{
	struct promises *found = user;
	struct hf_store_lock expected;
	uint64_t i = lock->id - found->first;

	assert_true(i < found->n);
	assert_int_equal(found->asked[i], 0);
	found->asked[i] = 1;
	expected = kit_lock(lock->id, (unsigned int)i);
	assert_true(hf_bytes_equal(lock->oh, expected.oh));
	assert_int_equal(lock->owner, expected.owner);
	return 0;
}

static void kill_once(struct kit *kit, struct promises *promises, unsigned int seed)
{
	static struct promises found;
	long delay_ns = (long)(rand_r(&seed) % 8000) * 1000;
	bool at_start = rand_r(&seed) % 8 == 0;
	int status;
	pid_t pid;

	memset(promises, 0, sizeof(*promises));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		/* The parent's loop is of no use here: it has threads of the parent's. */
		if (hf_loop_new(&kit->loop) != 0)
			_exit(1);
		be_killed(kit, promises, seed);
	}
	while (!at_start && promises->n == 0)
		sched_yield();
	lapse(delay_ns);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));

	kit_open(kit);
	memset(&found, 0, sizeof(found));
	found.first = promises->first;
	found.n = promises->n;
	assert_int_equal(hf_store_load_locks(kit->store, check_lock, &found), 0);
	for (size_t i = 0; i < promises->n; i++) {
		if (promises->acknowledged[i] == promises->asked[i]) /* nothing under way */
			assert_int_equal(found.asked[i], promises->asked[i] == 1);
		if (promises->acknowledged[i] == 2)
			assert_int_equal(found.asked[i], 0);
	}
	assert_int_equal(hf_store_clear(kit->store), 0);
	kit_close(kit);
}

static void test_sigkill_loses_nothing(void **state)
{
	struct promises *promises =
		mmap(NULL, sizeof(*promises), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const char *rounds = getenv("HF_STORE_KILLS");
	int n = rounds ? atoi(rounds) : 300;
	struct kit kit;

	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	for (int i = 0; i < n; i++) {
		kit.options.durability = i % 4 ? HF_STORE_PROCESS : HF_STORE_MACHINE;
		kill_once(&kit, promises, (unsigned int)i * 7919 + 1);
	}
	kit_deinit(&kit);
	munmap(promises, sizeof(*promises));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sigkill_loses_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
