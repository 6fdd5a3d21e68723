/* A table outside that refuses: for which requests of an owner does its answer count? */
#include "bed.h"

#include <errno.h>

static int answer; /* of the table outside */

static int take(void *context, const struct hf_lock_target *who, struct hf_range range,
		enum hf_lock_mode mode)
{
	return answer;
}

static int test(void *context, const struct hf_lock_target *who, struct hf_range range,
		enum hf_lock_mode mode, struct hf_lock_view *conflictp)
{
	*conflictp = (struct hf_lock_view){ .range = range, .mode = mode };
	return answer;
}

static void trim(void *context, struct hf_bytes handle, struct hf_range range, size_t n_locks)
{
}

static int setup(void **state)
{
	static const struct hf_lock_outside outside = { .take = take, .test = test, .trim = trim };
	static struct bed bed;

	answer = HF_LOCK_OK;
	bed_open_beside(&bed, &outside, NULL);
	*state = &bed;
	return 0;
}

static int teardown(void **state)
{
	bed_close(*state);
	return 0;
}

/* The lock was granted when the outside was not asked. */
static void test_what_the_owner_holds_stays(void **state)
{
	static const int answers[] = { HF_LOCK_E_CONFLICT, HF_LOCK_E_LIMIT };
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		answer = answers[i];
		assert_int_equal(bed_lock(bed, 1, E, 0, 9), HF_LOCK_OK);
		assert_int_equal(bed_wait(bed, 1, E, 2, 5), HF_LOCK_OK);
		assert_int_equal(bed_waiters(bed), 0);
		assert_locked(bed, 1, "E[0,9]");
	}
}

static void test_more_than_the_owner_holds_is_refused(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	answer = HF_LOCK_E_CONFLICT;
	assert_int_equal(bed_lock(bed, 1, E, 0, 10), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed_wait(bed, 1, E, 0, 10), HF_LOCK_E_QUEUED);
	assert_locked(bed, 1, "E[0,9]");
}

/* The grant is not confirmed yet. */
static void test_a_repetition_confirms_a_grant(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_unlock(bed, 1, 0, 9);
	assert_locked(bed, 11, "E[0,9]?");
	answer = HF_LOCK_E_CONFLICT;
	assert_int_equal(bed_wait(bed, 11, E, 0, 9), HF_LOCK_OK);
	assert_locked(bed, 11, "E[0,9]");
}

static void test_no_memory_outside(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	answer = -ENOMEM;
	assert_int_equal(bed_lock(bed, 1, E, 0, 9), -ENOMEM);
}

/* A process outside may have taken it while the server was down. */
static void test_a_reclaim_is_refused(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, E, 0, 9);
	hf_lock_set_grace(bed->locks, true);
	answer = HF_LOCK_E_CONFLICT;
	assert_int_equal(bed_reclaim(bed, 1, E, 0, 9, true), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed_reclaim(bed, 1, E, 4, 9, true), HF_LOCK_E_CONFLICT);
	answer = HF_LOCK_OK;
	assert_int_equal(bed_reclaim(bed, 1, E, 0, 4, true), HF_LOCK_OK);
	answer = HF_LOCK_E_CONFLICT;
	assert_int_equal(bed_reclaim(bed, 1, E, 0, 4, true), HF_LOCK_OK); /* beside what is unreclaimed */
	assert_int_equal(bed_reclaim(bed, 1, E, 0, 5, true), HF_LOCK_E_CONFLICT);
	assert_locked(bed, 1, "E[0,4] E[5,9]~");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_what_the_owner_holds_stays, setup, teardown),
		cmocka_unit_test_setup_teardown(test_more_than_the_owner_holds_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_repetition_confirms_a_grant, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_memory_outside, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_reclaim_is_refused, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
