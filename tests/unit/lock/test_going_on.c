/* A run that goes on where the last one ended: what was restored is held, and waiters wait again. */
#include "bed.h"

static void check(struct bed *bed)
{
	assert_string_equal(hf_locks_check(bed->locks) ?: "", "");
}

static int queue_again(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end)
{
	struct hf_lock_request request = {
		.who = bed_target(bed, owner),
		.range = { start, end },
		.mode = mode,
		.wait = true,
		.must_wait = true,
		.tag = 1,
	};

	return hf_lock_acquire(bed->locks, &request, NULL);
}

static void test_restored_locks_are_held(void **state)
{
	struct bed *bed = *state;

	hf_lock_set_grace(bed->locks, true);
	bed_restore(bed, 1, E, 0, 9);
	bed_restore(bed, 11, S, 20, 29);
	hf_lock_accept_restored(bed->locks);
	check(bed);
	bed_told(bed);
	hf_lock_set_grace(bed->locks, false);
	assert_told(bed, ""); /* nothing was unreclaimed */
	assert_locked(bed, 1, "E[0,9]");
	assert_locked(bed, 11, "S[20,29]");
	assert_int_equal(bed_count(bed).unreclaimed, 0);
	assert_int_equal(bed_lock(bed, 21, S, 5, 5), HF_LOCK_E_CONFLICT);
	bed_lock(bed, 1, E, 10, 14); /* merges as if it had been granted in this run */
	assert_locked(bed, 1, "E[0,14]");
}

/* Two locks that differed in the run before, for instance by a check that was under way, and touch. */
static void test_restored_locks_that_touch_stay_as_they_are_stored(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, S, 0, 9);
	bed_restore(bed, 1, S, 10, 19);
	hf_lock_accept_restored(bed->locks);
	check(bed);
	assert_locked(bed, 1, "S[0,9] S[10,19]");
	bed_lock(bed, 1, S, 20, 29);
	check(bed);
	assert_locked(bed, 1, "S[0,9] S[10,29]");
	bed_unlock(bed, 1, 5, 12);
	check(bed);
	assert_locked(bed, 1, "S[0,4] S[13,29]");
}

static void test_restored_locks_that_touch_and_have_grown_are_one(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, S, 10, 19);
	bed_restore(bed, 1, S, 20, 29);
	hf_lock_accept_restored(bed->locks);
	bed_lock(bed, 1, S, 30, 39);
	assert_locked(bed, 1, "S[10,19] S[20,39]");
	bed_lock(bed, 1, S, 0, 9);
	check(bed);
	assert_locked(bed, 1, "S[0,39]");
}

static void test_a_client_that_reconnects_still_reclaims(void **state)
{
	struct bed *bed = *state;

	hf_lock_set_grace(bed->locks, true);
	bed->clients[1].outlives_grace = true;
	bed_restore(bed, 1, E, 0, 9);
	bed_restore(bed, 11, E, 20, 29);
	hf_lock_accept_restored(bed->locks);
	check(bed);
	assert_locked(bed, 1, "E[0,9]");
	assert_locked(bed, 11, "E[20,29]~");
}

static void test_waiters_keep_their_order(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	hf_lock_pause_grants(bed->locks, true);
	assert_int_equal(queue_again(bed, 11, E, 0, 9), HF_LOCK_E_QUEUED);
	assert_int_equal(queue_again(bed, 21, S, 0, 9), HF_LOCK_E_QUEUED);
	assert_int_equal(queue_again(bed, 2, S, 0, 9), HF_LOCK_E_QUEUED);
	bed_told(bed);
	hf_lock_pause_grants(bed->locks, false);
	assert_told(bed, "");
	bed_unlock(bed, 1, 0, 9);
	assert_told(bed, "-o1 E[0,9], +o11 E[0,9]?, grant o11");
	assert_int_equal(hf_lock_grant_confirm(bed->locks, bed->last_grant), HF_LOCK_OK);
	bed_told(bed);
	bed_unlock(bed, 11, 0, 9);
	assert_told(bed, "-o11 E[0,9], +o21 S[0,9]?, grant o21, +o2 S[0,9]?, grant o2");
}

/* Its range is free, and its client waits for a call: the event comes, not an answer. */
static void test_a_waiter_that_can_run_is_granted_by_an_event(void **state)
{
	struct bed *bed = *state;

	hf_lock_pause_grants(bed->locks, true);
	assert_int_equal(queue_again(bed, 11, E, 0, 9), HF_LOCK_E_QUEUED);
	bed_told(bed);
	hf_lock_pause_grants(bed->locks, false);
	assert_told(bed, "+o11 E[0,9]?, grant o11");
}

/* The owner had a shared lock there; a refusal gives back exactly that. */
static void test_a_refused_upgrade_gives_back(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 11, S, 0, 9);
	hf_lock_pause_grants(bed->locks, true);
	assert_int_equal(queue_again(bed, 11, E, 0, 9), HF_LOCK_E_QUEUED);
	hf_lock_pause_grants(bed->locks, false);
	assert_locked(bed, 11, "E[0,9]?");
	assert_int_equal(hf_lock_grant_refuse(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_locked(bed, 11, "S[0,9]");
}

/* Reservations are counted: a request that a run before has counted is not counted again. */
static void test_a_repeated_reservation_counts_once(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_target who = bed_target(bed, 1);
	const struct hf_lock_reservation_view view = {
		.handle = who.handle,
		.client = who.client,
		.oh = who.oh,
		.access = 1,
		.count = 1,
		.mark = 77,
	};

	assert_int_equal(hf_lock_restore_reservation(bed->locks, &view), HF_LOCK_OK);
	hf_lock_accept_restored(bed->locks);
	check(bed);
	assert_int_equal(hf_lock_count_reservations(bed->locks, &who, 1, 0), 1);
	assert_int_equal(hf_lock_reserve_once(bed->locks, &who, 1, 0, 0, false, 77), HF_LOCK_OK);
	assert_int_equal(hf_lock_count_reservations(bed->locks, &who, 1, 0), 1);
	assert_int_equal(hf_lock_reserve_once(bed->locks, &who, 1, 0, 0, false, 78), HF_LOCK_OK);
	assert_int_equal(hf_lock_count_reservations(bed->locks, &who, 1, 0), 2);
	/* In this run the same number is another request. */
	assert_int_equal(hf_lock_reserve_once(bed->locks, &who, 1, 0, 0, false, 78), HF_LOCK_OK);
	assert_int_equal(hf_lock_count_reservations(bed->locks, &who, 1, 0), 3);
	hf_lock_unreserve_once(bed->locks, &who, 1, 0, 79);
	hf_lock_undo_unreserve(bed->locks, &who, 1, 0); /* it could not be promised, and comes again */
	assert_int_equal(hf_lock_count_reservations(bed->locks, &who, 1, 0), 3);
	hf_lock_unreserve_once(bed->locks, &who, 1, 0, 80);
	assert_int_equal(hf_lock_count_reservations(bed->locks, &who, 1, 0), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		bed_test_of(test_restored_locks_are_held),
		bed_test_of(test_restored_locks_that_touch_stay_as_they_are_stored),
		bed_test_of(test_restored_locks_that_touch_and_have_grown_are_one),
		bed_test_of(test_a_client_that_reconnects_still_reclaims),
		bed_test_of(test_waiters_keep_their_order),
		bed_test_of(test_a_waiter_that_can_run_is_granted_by_an_event),
		bed_test_of(test_a_refused_upgrade_gives_back),
		bed_test_of(test_a_repeated_reservation_counts_once),
	};

	return cmocka_run_group_tests_name("going on", tests, NULL, NULL);
}
