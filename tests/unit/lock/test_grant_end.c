/* Grants that the store could not write go back to the queue. While grants are paused, no waiter is granted a
 * lock, and no request passes the waiters. */
#include "bed.h"

static void pause_grants(struct bed *bed, bool is_on)
{
	hf_lock_pause_grants(bed->locks, is_on);
	assert_string_equal(hf_locks_check(bed->locks) ?: "", "");
}

static void put_back(struct bed *bed, uint64_t grant)
{
	assert_int_equal(hf_lock_grant_put_back(bed->locks, grant), HF_LOCK_OK);
	assert_string_equal(hf_locks_check(bed->locks) ?: "", "");
}

static void test_no_waiter_is_granted_meanwhile(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_wait(bed, 21, E, 20, 29);
	pause_grants(bed, true);
	bed_unlock(bed, 1, 0, 9);
	assert_int_equal(bed_waiters(bed), 1);
	assert_int_equal(bed_lock(bed, 1, E, 0, 9), HF_LOCK_E_CONFLICT); /* the waiter is first */
	bed_told(bed);
	pause_grants(bed, false);
	assert_told(bed, "+o11 E[0,9]?, grant o11");
	pause_grants(bed, false);
	assert_told(bed, "");
}

static void test_put_back_is_first(void **state)
{
	struct bed *bed = *state;
	uint64_t grant;

	bed_lock(bed, 1, E, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_wait(bed, 21, E, 0, 9);
	bed_wait(bed, 2, S, 5, 5);
	bed_unlock(bed, 1, 0, 9);
	grant = bed->last_grant;
	bed_told(bed);
	pause_grants(bed, true);
	put_back(bed, grant);
	assert_told(bed, "-o11 E[0,9]?, gone o11 put back");
	assert_int_equal(bed_waiters(bed), 3);
	assert_int_equal(bed_count(bed).grants, 0);
	assert_int_equal(hf_lock_grant_confirm(bed->locks, grant), HF_LOCK_E_NOTHING);
	pause_grants(bed, false);
	assert_told(bed, "+o11 E[0,9]?, grant o11");
	assert_int_equal(hf_lock_grant_confirm(bed->locks, bed->last_grant), HF_LOCK_OK);
	bed_told(bed);
	bed_unlock(bed, 11, 0, 9);
	assert_told(bed, "-o11 E[0,9], +o21 E[0,9]?, grant o21");
}

/* Readers that were granted together, and one that had a lock there before. */
static void test_several_are_put_back(void **state)
{
	struct bed *bed = *state;
	uint64_t grants[2];

	bed_lock(bed, 21, S, 0, 4);
	bed_lock(bed, 1, E, 5, 9);
	bed_wait(bed, 11, S, 0, 9);
	bed_wait(bed, 21, S, 0, 9);
	bed_unlock(bed, 1, 5, 9);
	grants[1] = bed->last_grant;
	grants[0] = grants[1] - 1;
	pause_grants(bed, true);
	put_back(bed, grants[0]);
	put_back(bed, grants[1]);
	assert_locked(bed, 21, "S[0,4]");
	assert_locked(bed, 11, "");
	assert_int_equal(bed_cancel(bed, 11, S, 0, 9), HF_LOCK_OK);
	pause_grants(bed, false);
	assert_locked(bed, 21, "S[0,4] S[5,9]?");
	assert_int_equal(bed_waiters(bed), 0);
}

/* It could be promised again by then. */
static void test_put_back_and_granted_at_once(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_unlock(bed, 1, 0, 9);
	bed_told(bed);
	put_back(bed, bed->last_grant);
	assert_told(bed, "-o11 E[0,9]?, gone o11 put back, +o11 E[0,9]?, grant o11");
}

static void leave(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end)
{
	struct hf_lock_target who = bed_target(bed, owner);

	assert_int_equal(hf_lock_leave_queue(bed->locks, &who, (struct hf_range){ start, end }, mode),
			 HF_LOCK_E_NOTHING);
}

/* The client of o11 polled and was refused while its grant waited for the store: its program has the error.
 */
static void test_refused_meanwhile_is_not_put_back(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_wait(bed, 21, E, 0, 9);
	bed_unlock(bed, 1, 0, 9);
	leave(bed, 11, S, 0, 9); /* another mode, another range: another wait */
	leave(bed, 11, E, 0, 8);
	bed_told(bed);
	pause_grants(bed, true);
	put_back(bed, bed->last_grant);
	assert_told(bed, "-o11 E[0,9]?, gone o11 put back");
	pause_grants(bed, false);
	assert_told(bed, "+o11 E[0,9]?, grant o11");
	leave(bed, 11, E, 0, 9);
	pause_grants(bed, true);
	put_back(bed, bed->last_grant);
	assert_told(bed, "-o11 E[0,9]?, gone o11 refused");
	assert_int_equal(bed_waiters(bed), 1);
	pause_grants(bed, false);
	assert_told(bed, "+o21 E[0,9]?, grant o21");
}

/* The client had heard of the grant all the same. */
static void test_refused_meanwhile_and_confirmed(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_unlock(bed, 1, 0, 9);
	leave(bed, 11, E, 0, 9);
	assert_int_equal(hf_lock_grant_confirm(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_locked(bed, 11, "E[0,9]");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		bed_test_of(test_no_waiter_is_granted_meanwhile),
		bed_test_of(test_put_back_is_first),
		bed_test_of(test_several_are_put_back),
		bed_test_of(test_put_back_and_granted_at_once),
		bed_test_of(test_refused_meanwhile_is_not_put_back),
		bed_test_of(test_refused_meanwhile_and_confirmed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
