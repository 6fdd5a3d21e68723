/* What one address may have the lock table search, and what remains for others. */
#include "../test.h"

#include <string.h>

#include "lock/lock.h"

#define S        HF_LOCK_SHARED
#define E        HF_LOCK_EXCLUSIVE
#define NS_PER_S UINT64_C(1000000000)
#define ROW      1000
#define FAR      5000

struct rig {
	struct hf_locks *locks;
	struct hf_lock_group greedy_group, honest_group;
	struct hf_lock_client greedy, honest;
	uint64_t now;
};

static int setup(void **state)
{
	struct rig *rig = test_calloc(1, sizeof(*rig));

	assert_int_equal(hf_locks_new(&rig->locks, &(struct hf_locks_options){ .epoch = 1 }), 0);
	hf_lock_client_init(rig->locks, &rig->greedy);
	hf_lock_client_init(rig->locks, &rig->honest);
	hf_lock_client_join(&rig->greedy, &rig->greedy_group);
	hf_lock_client_join(&rig->honest, &rig->honest_group);
	rig->now = NS_PER_S;
	*state = rig;
	return 0;
}

static int teardown(void **state)
{
	struct rig *rig = *state;

	assert_null(hf_locks_check(rig->locks));
	hf_locks_free(rig->locks);
	test_free(rig);
	return 0;
}

static struct hf_lock_request request_of(const struct rig *rig, struct hf_lock_client *client, uint64_t owner,
					 const char *file, uint64_t start, uint64_t end)
{
	return (struct hf_lock_request){
		.who = { .handle = hf_bytes_of_str(file), .client = client, .owner_id = owner },
		.range = { start, end },
		.mode = E,
		.wait = true,
		.stamp = rig->now,
	};
}

static int ask(struct rig *rig, struct hf_lock_client *client, uint64_t owner, const char *file, uint64_t at)
{
	struct hf_lock_request request = request_of(rig, client, owner, file, at, at);

	return hf_lock_acquire(rig->locks, &request, NULL);
}

static int cancel(struct rig *rig, struct hf_lock_client *client, uint64_t owner, const char *file,
		  uint64_t at)
{
	struct hf_lock_target who = { .handle = hf_bytes_of_str(file), .client = client, .owner_id = owner };

	return hf_lock_cancel(rig->locks, &who, (struct hf_range){ at, at }, E);
}

/* Each owner has a byte and waits for that of the one before; the first has all of them behind it. */
static void make_row(struct rig *rig)
{
	for (uint64_t i = 0; i < ROW; i++)
		assert_int_equal(ask(rig, &rig->greedy, i, "row", i), HF_LOCK_OK);
	for (uint64_t i = 1; i < ROW; i++) {
		assert_int_equal(ask(rig, &rig->greedy, i, "row", i - 1), HF_LOCK_E_QUEUED);
		rig->now += NS_PER_S;
	}
	assert_int_equal(ask(rig, &rig->greedy, FAR, "row", FAR), HF_LOCK_OK);
}

/* A few steps for each waiter of the row, and not the square of them. */
static void test_a_row_is_cheap(void **state)
{
	struct rig *rig = *state;

	make_row(rig);
	rig->now += NS_PER_S;
	rig->greedy_group = (struct hf_lock_group){ 0 };
	assert_int_equal(ask(rig, &rig->greedy, 0, "row", FAR), HF_LOCK_E_QUEUED);
	assert_in_range(rig->greedy_group.steps.spent, ROW, 10 * ROW);
	assert_true(hf_lock_take_steps(rig->locks) >= rig->greedy_group.steps.spent);
	assert_int_equal(hf_lock_take_steps(rig->locks), 0);
	assert_int_equal(cancel(rig, &rig->greedy, 0, "row", FAR), HF_LOCK_OK);
	/* A cycle is found through all of them. */
	assert_int_equal(ask(rig, &rig->greedy, 0, "row", ROW - 1), HF_LOCK_E_DEADLOCK);
}

/* In one turn of the loop time stands still. An address that has spent its steps cannot wait for anything
 * that needs a search. */
static void test_what_is_spent_is_refused(void **state)
{
	struct rig *rig = *state;
	int n = 0, r;

	make_row(rig);
	rig->now += NS_PER_S;
	while ((r = ask(rig, &rig->greedy, 0, "row", FAR)) == HF_LOCK_E_QUEUED) {
		assert_int_equal(cancel(rig, &rig->greedy, 0, "row", FAR), HF_LOCK_OK);
		assert_true(n++ < 1000);
	}
	assert_int_equal(r, HF_LOCK_E_LIMIT);
	assert_true(n > 10);
	/* Not queued unsearched, be it a cycle or not. */
	assert_int_equal(ask(rig, &rig->greedy, 0, "row", ROW - 1), HF_LOCK_E_LIMIT);
	/* What needs no search is served, and so is another address. */
	assert_int_equal(ask(rig, &rig->greedy, 7, "other", 0), HF_LOCK_OK);
	assert_int_equal(ask(rig, &rig->honest, 7, "other", 0), HF_LOCK_E_QUEUED);
	assert_int_equal(ask(rig, &rig->honest, 8, "row", FAR), HF_LOCK_E_QUEUED);
	assert_int_equal(ask(rig, &rig->honest, 9, "mine", 0), HF_LOCK_OK);
	assert_int_equal(ask(rig, &rig->honest, 9, "row", 3), HF_LOCK_E_QUEUED);
	/* As time goes by there is more. */
	rig->now += NS_PER_S / 10;
	assert_int_equal(ask(rig, &rig->greedy, 0, "row", FAR), HF_LOCK_E_QUEUED);
}

/* When the wide waiter at the end leaves, each waiter of the row is looked at. That is charged, too. */
static void test_leaving_a_row_is_charged(void **state)
{
	struct rig *rig = *state;
	struct hf_lock_target wide = { .handle = hf_bytes_of_str("row"), .client = &rig->greedy };
	struct hf_range range = { 0, FAR };
	int n = 0, r;

	assert_int_equal(ask(rig, &rig->honest, 1, "row", FAR), HF_LOCK_OK);
	for (uint64_t i = 0; i < 500; i++) {
		struct hf_lock_request request =
			request_of(rig, &rig->greedy, i + 1, "row", FAR - 10 - i, FAR - (i ? 5 : 0));

		assert_int_equal(hf_lock_acquire(rig->locks, &request, NULL), HF_LOCK_E_QUEUED);
		rig->now += NS_PER_S;
	}
	wide.owner_id = 9999;
	do {
		struct hf_lock_request request = request_of(rig, &rig->greedy, 9999, "row", 0, FAR);

		r = hf_lock_acquire(rig->locks, &request, NULL);
		if (r == HF_LOCK_E_QUEUED)
			assert_int_equal(hf_lock_cancel(rig->locks, &wide, range, E), HF_LOCK_OK);
		assert_true(n++ < 1000);
	} while (r == HF_LOCK_E_QUEUED);
	assert_int_equal(r, HF_LOCK_E_LIMIT);
	assert_true(n > 1);
}

/* One address has half of a file's queue. */
static void test_half_of_a_queue(void **state)
{
	struct rig *rig = *state;
	uint64_t n = 0;

	assert_int_equal(ask(rig, &rig->honest, 1, "row", 0), HF_LOCK_OK);
	while (ask(rig, &rig->greedy, n, "row", 0) == HF_LOCK_E_QUEUED) {
		rig->now += NS_PER_S;
		assert_true(n++ < 3000);
	}
	assert_int_equal(n, 1024);
	for (n = 0; n < 1000; n++) {
		assert_int_equal(ask(rig, &rig->honest, 2 + n, "row", 0), HF_LOCK_E_QUEUED);
		rig->now += NS_PER_S / 10;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_a_row_is_cheap),
		T(test_what_is_spent_is_refused),
		T(test_leaving_a_row_is_charged),
		T(test_half_of_a_queue),
	};

	return cmocka_run_group_tests_name("work", tests, NULL, NULL);
}
