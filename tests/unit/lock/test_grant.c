/* Grants in flight: confirm, refuse, cancel, and what the owner does meanwhile. */
#include "bed.h"

#include <time.h>

/* 1 holds the range; 11 waits for it and gets it. */
static void grant_to_11(struct bed *bed, enum hf_lock_mode mode)
{
	bed_lock(bed, 1, E, 0, 9);
	assert_int_equal(bed_wait(bed, 11, mode, 0, 9), HF_LOCK_E_QUEUED);
	bed_unlock(bed, 1, 0, 9);
	bed_told(bed);
}

/* The same where 1 holds only a part of the range. */
static void grant_to_11_around(struct bed *bed)
{
	bed_lock(bed, 1, E, 8, 8);
	assert_int_equal(bed_wait(bed, 11, E, 0, 9), HF_LOCK_E_QUEUED);
	bed_unlock(bed, 1, 8, 8);
}

/* 11 holds shared, and gets exclusive. */
static void upgrade_for_11(struct bed *bed)
{
	bed_lock(bed, 11, S, 0, 9);
	bed_lock(bed, 1, S, 5, 5);
	assert_int_equal(bed_wait(bed, 11, E, 0, 9), HF_LOCK_E_QUEUED);
	bed_unlock(bed, 1, 5, 5);
	assert_locked(bed, 11, "E[0,9]?");
	bed_told(bed);
}

/* 11 holds a part shared and one exclusive, and gets all of it exclusive. */
static void patch_for_11(struct bed *bed)
{
	bed_lock(bed, 11, S, 2, 3);
	bed_lock(bed, 11, E, 6, 7);
	bed_lock(bed, 1, E, 9, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_unlock(bed, 1, 9, 9);
}

/* 11 holds a part exclusive and gets all of it shared; 21 waits to share that part. */
static void downgrade_for_11(struct bed *bed)
{
	bed_lock(bed, 11, E, 0, 4);
	bed_lock(bed, 1, E, 5, 9);
	bed_wait(bed, 11, S, 0, 9);
	bed_wait(bed, 21, S, 0, 0);
	bed_unlock(bed, 1, 5, 9);
}

static void test_provisional_lock_conflicts_as_a_real_one(void **state)
{
	grant_to_11(*state, E);
	assert_int_equal(bed_lock(*state, 21, S, 0, 0), HF_LOCK_E_CONFLICT);
	assert_int_equal(((struct bed *)*state)->conflict.flags, HF_LOCK_PROVISIONAL);
}

static void test_confirm(void **state)
{
	struct bed *bed = *state;

	grant_to_11(bed, E);
	assert_int_equal(hf_lock_grant_confirm(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_told(bed, "-o11 E[0,9]?, +o11 E[0,9], gone o11 confirmed");
	assert_int_equal(hf_lock_grant_confirm(bed->locks, bed->last_grant), HF_LOCK_E_NOTHING);
	assert_int_equal(hf_lock_grant_refuse(bed->locks, bed->last_grant), HF_LOCK_E_NOTHING);
	assert_locked(bed, 11, "E[0,9]");
}

/* How many of 11's grants in flight its own requests have changed. */
static uint64_t keep_changed(struct bed *bed)
{
	struct hf_lock_target who = bed_target(bed, 11);
	uint64_t n = bed_count(bed).grants;

	assert_int_equal(hf_lock_assume_changed(bed->locks, &who), HF_LOCK_OK);
	return n - bed_count(bed).grants;
}

static void test_changed_by_its_owner(void **state)
{
	struct bed *bed = *state;

	assert_int_equal(keep_changed(bed), 0);
	grant_to_11(bed, E);
	assert_int_equal(keep_changed(bed), 0);
	bed_lock(bed, 11, E, 20, 29); /* elsewhere */
	bed_lock(bed, 11, E, 0, 4);   /* what it is */
	bed_unlock(bed, 11, 20, 29);
	assert_int_equal(keep_changed(bed), 0);
	bed_lock(bed, 11, S, 3, 3); /* which downgrades nothing now */
	assert_int_equal(keep_changed(bed), 0);
	bed_unlock(bed, 11, 3, 3);
	assert_int_equal(keep_changed(bed), 1);
	assert_locked(bed, 11, "E[0,2] E[4,9]");
}

static void test_changed_by_a_partial_unlock(void **state)
{
	struct bed *bed = *state;

	grant_to_11(bed, S);
	bed_unlock(bed, 11, 9, 12);
	assert_int_equal(keep_changed(bed), 1);
	assert_locked(bed, 11, "S[0,8]");
}

/* A client knows a grant by its range: told of the shared grant again, it would take it for the exclusive
 * one. */
static void test_changed_by_waiting_for_more_of_the_same(void **state)
{
	struct bed *bed = *state;

	grant_to_11(bed, S);
	bed_lock(bed, 21, S, 9, 9);
	assert_int_equal(bed_wait(bed, 11, E, 1, 9),
			 HF_LOCK_E_QUEUED); /* another range: no grant can be mistaken for it */
	assert_int_equal(keep_changed(bed), 0);
	assert_int_equal(bed_wait(bed, 11, E, 0, 9), HF_LOCK_E_QUEUED);
	assert_int_equal(keep_changed(bed), 1);
	assert_locked(bed, 11, "S[0,9]");
}

/* 11 has a part, and gets all of it exclusively. Another of its threads makes a shared request there. The
 * server cannot know which of the two answers the client receives last. */
static void test_request_downgrades_nothing_of_an_exclusive_grant(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 11, E, 3, 4);
	grant_to_11_around(bed);
	for (int i = 0; i < 2; i++) {
		bed->no_downgrade = i == 0;
		assert_int_equal(bed_lock(bed, 11, S, 2, 12), HF_LOCK_OK);
		assert_locked(bed, 11, "E[0,1]? E[2,2]? E[3,4] E[5,9]? S[10,12]");
		assert_int_equal(keep_changed(bed), 0);
	}
	assert_int_equal(hf_lock_grant_confirm(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_locked(bed, 11, "E[0,9] S[10,12]");
	bed_lock(bed, 11, S, 2, 12); /* now it knows */
	assert_locked(bed, 11, "E[0,1] S[2,12]");
}

static void test_request_outlives_an_exclusive_grant(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 11, E, 3, 4);
	grant_to_11_around(bed);
	bed_lock(bed, 11, S, 2, 6);
	assert_int_equal(hf_lock_grant_refuse(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_locked(bed, 11, "S[2,2] E[3,4] S[5,6]");
}

static void test_grant_downgrades_nothing_of_an_exclusive_one(void **state)
{
	struct bed *bed = *state;
	uint64_t exclusive;

	bed_lock(bed, 11, E, 0, 6);
	bed_lock(bed, 1, E, 7, 9);
	bed_wait(bed, 11, E, 2, 9);
	bed_wait(bed, 11, S, 0, 7);
	bed_unlock(bed, 1, 7, 9);
	exclusive = bed->last_grant - 1;
	assert_int_equal(hf_lock_grant_confirm(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_locked(bed, 11, "S[0,1] E[2,6] E[7,7]? E[8,9]?");
	assert_int_equal(keep_changed(bed), 0);
	assert_int_equal(hf_lock_grant_confirm(bed->locks, exclusive), HF_LOCK_OK);
	assert_locked(bed, 11, "S[0,1] E[2,9]");
}

/* A reboot takes a lock of the old life from under a grant of the new life. The grant is whole: its client
 * may have heard of all of it. */
static void test_whole_after_what_a_reboot_took(void **state)
{
	struct bed *bed = *state;

	bed->state = 3;
	bed_lock(bed, 11, E, 3, 4);
	bed->state = 5;
	grant_to_11_around(bed);
	hf_lock_client_purge_older(bed->locks, &bed->clients[1], 5);
	assert_locked(bed, 11, "E[0,9]?");
	assert_int_equal(keep_changed(bed), 0);
	assert_int_equal(hf_lock_grant_refuse(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_locked(bed, 11, "");
}

/* An exclusive lock of the old life stays until a shared grant over it is confirmed. A reboot takes that
 * lock, and the grant stays. */
static void test_whole_after_what_was_kept_is_gone(void **state)
{
	struct bed *bed = *state;

	bed->state = 3;
	bed_lock(bed, 11, E, 0, 4);
	bed->state = 5;
	bed_lock(bed, 1, E, 5, 9);
	bed_wait(bed, 11, S, 0, 9);
	bed_wait(bed, 21, S, 0, 0);
	bed_unlock(bed, 1, 5, 9);
	assert_locked(bed, 11, "E[0,4] S[5,9]?");
	hf_lock_client_purge_older(bed->locks, &bed->clients[1], 5);
	assert_locked(bed, 11, "S[0,9]?");
	assert_locked(bed, 21, "S[0,0]?");
}

/* The reboot does not give back what the owner has unlocked of the grant. */
static void test_changed_before_a_reboot_took_more(void **state)
{
	struct bed *bed = *state;

	bed->state = 3;
	bed_lock(bed, 11, E, 3, 4);
	bed->state = 5;
	grant_to_11_around(bed);
	bed_unlock(bed, 11, 6, 6);
	hf_lock_client_purge_older(bed->locks, &bed->clients[1], 5);
	assert_locked(bed, 11, "E[0,5]? E[7,9]?");
	assert_int_equal(keep_changed(bed), 1);
}

/* The engine does not look through many grants for each lock that goes: it counts all of them as changed, so
 * that none is told again. */
static void test_changed_by_what_a_reboot_took_from_many(void **state)
{
	struct bed *bed = *state;

	bed->is_silent = true;
	bed->state = 3;
	bed_lock(bed, 11, E, 0, 0);
	bed->state = 5;
	bed_lock(bed, 1, E, 1, 1);
	for (uint64_t i = 0; i < 65; i++)
		bed_wait(bed, 11, E, 0, 1 + i);
	bed_unlock(bed, 1, 1, 1);
	hf_lock_client_purge_older(bed->locks, &bed->clients[1], 5);
	assert_int_equal(bed_lock(bed, 21, E, 0, 0), HF_LOCK_OK);
	assert_int_equal(keep_changed(bed), 65);
}

/* Many grants over many pieces: a request costs by what it changes, not by their product. */
static void test_looking_for_changes_among_many_pieces(void **state)
{
	struct bed *bed = *state;
	const uint64_t n_pieces = 4000, n_grants = 1000;
	clock_t begun;
	uint64_t n_changed = 0;

	bed->is_silent = true;
	bed_lock(bed, 1, E, n_pieces, TO_EOF);
	for (uint64_t i = 0; i < n_pieces; i++) {
		bed->is_volatile = i % 2;
		bed_lock(bed, 11, E, i, i);
	}
	/* Eight have all of those pieces: more would take long to make. */
	for (uint64_t i = 0; i < n_grants; i++)
		assert_int_equal(bed_wait(bed, 11, E, i < 8 ? 0 : n_pieces - 1, n_pieces + i),
				 HF_LOCK_E_QUEUED);
	bed_unlock(bed, 1, n_pieces, TO_EOF);
	assert_int_equal(bed_count(bed).grants, n_grants);
	begun = clock();
	for (int i = 0; i < 2000; i++) {
		bed_lock(bed, 11, E, TO_EOF - 1, TO_EOF);
		n_changed += keep_changed(bed);
	}
	assert_int_equal(n_changed, 0);
	assert_true(clock() - begun < CLOCKS_PER_SEC);
}

static void test_confirmed_lock_merges(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 11, E, 10, 19);
	grant_to_11(bed, E);
	assert_locked(bed, 11, "E[0,9]? E[10,19]");
	hf_lock_grant_confirm(bed->locks, bed->last_grant);
	assert_locked(bed, 11, "E[0,19]");
}

static void test_refuse_releases_exactly_that_range_and_serves_the_next(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 11, E, 10, 19);
	grant_to_11(bed, E);
	bed_wait(bed, 21, E, 5, 5);
	assert_int_equal(hf_lock_grant_refuse(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_told(bed, "-o11 E[0,9]?, gone o11 refused, +o21 E[5,5]?, grant o21");
	assert_locked(bed, 11, "E[10,19]");
}

static void test_refuse_restores_the_shared_lock_of_an_upgrade(void **state)
{
	struct bed *bed = *state;

	upgrade_for_11(bed);
	bed_wait(bed, 21, S, 3, 3);
	hf_lock_grant_refuse(bed->locks, bed->last_grant);
	assert_locked(bed, 11, "S[0,9]");
	assert_locked(bed, 21, "S[3,3]?");
}

static void test_refuse_restores_state_number_and_volatility(void **state)
{
	struct bed *bed = *state;

	bed->is_volatile = true;
	bed_lock(bed, 11, S, 0, 9);
	bed->is_volatile = false;
	bed_lock(bed, 1, S, 5, 5);
	bed->state = 3;
	bed_wait(bed, 11, E, 0, 9);
	bed_unlock(bed, 1, 5, 5);
	hf_lock_grant_refuse(bed->locks, bed->last_grant);
	assert_locked(bed, 11, "S[0,9]!");
	hf_lock_client_purge_older(bed->locks, &bed->clients[1], 3);
	assert_locked(bed, 11, "");
}

/* Gaps become new, shared parts are upgraded, exclusive parts stay as they were; and back. */
static void test_refuse_restores_a_patchwork(void **state)
{
	struct bed *bed = *state;

	patch_for_11(bed);
	assert_locked(bed, 11, "E[0,1]? E[2,3]? E[4,5]? E[6,7] E[8,9]?");
	hf_lock_grant_refuse(bed->locks, bed->last_grant);
	assert_locked(bed, 11, "S[2,3] E[6,7]");
}

static void test_confirm_merges_a_patchwork(void **state)
{
	struct bed *bed = *state;

	patch_for_11(bed);
	hf_lock_grant_confirm(bed->locks, bed->last_grant);
	assert_locked(bed, 11, "E[0,9]");
}

/* A shared request over an own exclusive lock, granted late: nothing is given up before it is confirmed. */
static void test_grant_never_weakens_before_it_is_confirmed(void **state)
{
	struct bed *bed = *state;

	downgrade_for_11(bed);
	assert_locked(bed, 11, "E[0,4] S[5,9]?");
	assert_locked(bed, 21, "");
	bed_told(bed);
	hf_lock_grant_refuse(bed->locks, bed->last_grant);
	assert_locked(bed, 11, "E[0,4]");
}

static void test_confirmed_downgrade_serves_others(void **state)
{
	struct bed *bed = *state;

	downgrade_for_11(bed);
	hf_lock_grant_confirm(bed->locks, bed->last_grant);
	assert_locked(bed, 11, "S[0,9]");
	assert_locked(bed, 21, "S[0,0]?");
}

/* It has the lock if it took it, and what it had if it did not. */
static void test_doubtful_grant_is_kept_and_weakens_nothing(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 11, E, 2, 3);
	bed_lock(bed, 1, E, 8, 8);
	bed_wait(bed, 11, S, 0, 9);
	bed_unlock(bed, 1, 8, 8);
	assert_int_equal(hf_lock_grant_assume(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_locked(bed, 11, "S[0,1] E[2,3] S[4,9]");
	assert_int_equal(hf_lock_grant_assume(bed->locks, bed->last_grant), HF_LOCK_E_NOTHING);
}

/* 11 waits for a shared lock, and another of its threads gets a part of that exclusively, at once. The client
 * may hear this answer after the one to the older request. */
static void test_grant_downgrades_nothing_that_was_asked_for_since(void **state)
{
	struct bed *bed = *state;

	for (int i = 0; i < 2; i++) {
		bed_lock(bed, 1, E, 8, 8);
		assert_int_equal(bed_wait(bed, 11, S, 0, 9), HF_LOCK_E_QUEUED);
		assert_int_equal(bed_lock(bed, 11, E, 3, 4), HF_LOCK_OK); /* the second time it has it */
		bed_unlock(bed, 1, 8, 8);
		assert_locked(bed, 11, "S[0,2]? E[3,4] S[5,9]?");
		assert_int_equal(hf_lock_grant_confirm(bed->locks, bed->last_grant), HF_LOCK_OK);
		assert_locked(bed, 11, "S[0,2] E[3,4] S[5,9]");
		bed_unlock(bed, 11, 0, 2);
		bed_unlock(bed, 11, 5, 9);
	}
}

/* 11 has the range exclusively, waits for it shared, and then for a part of it exclusively. It is told of
 * both grants in that order, and answers them in any order. */
static void confirm_in_order(struct bed *bed, bool is_last_first)
{
	uint64_t shared, exclusive;

	bed_lock(bed, 11, E, 3, 6);
	bed_lock(bed, 1, E, 8, 8);
	assert_int_equal(bed_wait(bed, 11, S, 0, 9), HF_LOCK_E_QUEUED);
	bed_unlock(bed, 1, 8, 8);
	shared = bed->last_grant;
	bed_lock(bed, 1, S, 7, 7);
	assert_int_equal(bed_wait(bed, 11, E, 6, 7), HF_LOCK_E_QUEUED);
	bed_unlock(bed, 1, 7, 7);
	exclusive = bed->last_grant;
	assert_int_not_equal(exclusive, shared);
	assert_int_equal(hf_lock_grant_confirm(bed->locks, is_last_first ? exclusive : shared), HF_LOCK_OK);
	assert_int_equal(hf_lock_grant_confirm(bed->locks, is_last_first ? shared : exclusive), HF_LOCK_OK);
	assert_locked(bed, 11, "S[0,5] E[6,7] S[8,9]");
}

static void test_late_answer_downgrades_nothing_that_was_granted_since(void **state)
{
	confirm_in_order(*state, true);
}

static void test_answer_downgrades_nothing_that_was_granted_since(void **state)
{
	confirm_in_order(*state, false);
}

/* The owner asks for something else there, so it does not wait any more, and denies the grant. */
static void test_refusal_takes_nothing_from_a_later_request(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_target who = bed_target(bed, 11);

	bed_lock(bed, 1, E, 4, 4);
	assert_int_equal(bed_wait(bed, 11, E, 4, 4), HF_LOCK_E_QUEUED);
	bed_unlock(bed, 1, 4, 4);
	bed->no_downgrade = true;
	assert_int_equal(bed_lock(bed, 11, S, 4, 5), HF_LOCK_OK);
	bed->no_downgrade = false;
	assert_int_equal(hf_lock_assume_changed(bed->locks, &who), HF_LOCK_OK);
	assert_locked(bed, 11, "E[4,4]? S[5,5]");
	assert_int_equal(hf_lock_grant_refuse(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_locked(bed, 11, "S[4,5]");
	assert_int_equal(bed_lock(bed, 11, S, 4, 5), HF_LOCK_OK);
	assert_locked(bed, 11, "S[4,5]");
}

static void test_repeated_request_confirms(void **state)
{
	grant_to_11(*state, E);
	assert_int_equal(bed_wait(*state, 11, E, 0, 9), HF_LOCK_OK);
	assert_told(*state, "-o11 E[0,9]?, +o11 E[0,9], gone o11 confirmed");
}

/* The downgrade waits for the store: then the same request comes without no_downgrade. */
static void test_repeated_request_may_confirm_and_keep_more(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 11, E, 2, 3);
	bed_lock(bed, 1, E, 8, 8);
	bed_wait(bed, 11, S, 0, 9);
	bed_unlock(bed, 1, 8, 8);
	bed->no_downgrade = true;
	assert_int_equal(bed_wait(bed, 11, S, 0, 9), HF_LOCK_OK);
	bed->no_downgrade = false;
	assert_locked(bed, 11, "S[0,1] E[2,3] S[4,9]");
	assert_int_equal(bed_count(bed).grants, 0);
	bed_lock(bed, 11, S, 0, 9);
	assert_locked(bed, 11, "S[0,9]");
}

static void test_repeated_non_blocking_request_confirms(void **state)
{
	grant_to_11(*state, S);
	assert_int_equal(bed_lock(*state, 11, S, 0, 9), HF_LOCK_OK);
	assert_locked(*state, 11, "S[0,9]");
	assert_int_equal(bed_count(*state).grants, 0);
}

static void test_unlock_ends_a_grant_within_the_range(void **state)
{
	struct bed *bed = *state;

	grant_to_11(bed, E);
	bed_unlock(bed, 11, 0, TO_EOF);
	assert_told(bed, "-o11 E[0,9]?, gone o11 released");
	assert_int_equal(hf_lock_grant_confirm(bed->locks, bed->last_grant), HF_LOCK_E_NOTHING);
	assert_locked(bed, 11, "");
}

static void test_partial_unlock_is_not_undone_by_a_late_confirmation(void **state)
{
	struct bed *bed = *state;

	grant_to_11(bed, E);
	bed_unlock(bed, 11, 3, 4);
	hf_lock_grant_confirm(bed->locks, bed->last_grant);
	assert_locked(bed, 11, "E[0,2] E[5,9]");
}

/* The owner has unlocked a part. Neither a late answer to the grant nor the refusal of a later grant gives it
 * that part again. */
static void test_late_answer_is_not_what_a_later_grant_was_before(void **state)
{
	struct bed *bed = *state;
	uint64_t first;

	grant_to_11(bed, E);
	first = bed->last_grant;
	bed_unlock(bed, 11, 3, 4);
	bed_lock(bed, 1, E, 3, 4);
	assert_int_equal(bed_wait(bed, 11, S, 3, 4), HF_LOCK_E_QUEUED);
	bed_unlock(bed, 1, 3, 4);
	assert_int_equal(hf_lock_grant_confirm(bed->locks, first), HF_LOCK_OK);
	assert_locked(bed, 11, "E[0,2] S[3,4]? E[5,9]");
	assert_int_equal(hf_lock_grant_refuse(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_locked(bed, 11, "E[0,2] E[5,9]");
}

static void test_partial_unlock_of_an_upgrade_is_not_restored(void **state)
{
	struct bed *bed = *state;

	upgrade_for_11(bed);
	bed_unlock(bed, 11, 3, 4);
	hf_lock_grant_refuse(bed->locks, bed->last_grant);
	assert_locked(bed, 11, "S[0,2] S[5,9]");
}

static void test_request_over_a_grant_is_not_refused_with_it(void **state)
{
	struct bed *bed = *state;

	grant_to_11(bed, E);
	assert_int_equal(bed_lock(bed, 11, E, 2, 3), HF_LOCK_OK); /* by another thread */
	hf_lock_grant_refuse(bed->locks, bed->last_grant);
	assert_locked(bed, 11, "E[2,3]");
}

/* CANCEL */

static void test_cancel_of_a_waiter(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	bed_wait(*state, 11, E, 0, 9);
	bed_told(*state);
	assert_int_equal(bed_cancel(*state, 11, E, 0, 9), HF_LOCK_OK);
	assert_told(*state, "gone o11 cancelled");
	bed_unlock(*state, 1, 0, 9);
	assert_locked(*state, 11, "");
}

static void test_cancel_serves_who_stood_behind(void **state)
{
	bed_lock(*state, 1, S, 0, 9);
	bed_wait(*state, 11, E, 0, 9);
	bed_wait(*state, 21, S, 0, 9);
	bed_cancel(*state, 11, E, 0, 9);
	assert_locked(*state, 21, "S[0,9]?");
}

static void test_cancel_beats_a_grant_in_flight(void **state)
{
	struct bed *bed = *state;

	grant_to_11(bed, E);
	assert_int_equal(bed_cancel(bed, 11, E, 0, 9), HF_LOCK_OK);
	assert_told(bed, "-o11 E[0,9]?, gone o11 cancelled");
	assert_int_equal(hf_lock_grant_confirm(bed->locks, bed->last_grant), HF_LOCK_E_NOTHING);
}

static void test_cancel_of_an_upgrade_in_flight_restores(void **state)
{
	upgrade_for_11(*state);
	assert_int_equal(bed_cancel(*state, 11, E, 0, 9), HF_LOCK_OK);
	assert_locked(*state, 11, "S[0,9]");
}

static void test_cancel_of_a_held_lock(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	assert_int_equal(bed_cancel(*state, 1, E, 0, 9), HF_LOCK_E_LOCKED);
	assert_locked(*state, 1, "E[0,9]");
}

static void test_cancel_of_nothing(void **state)
{
	assert_int_equal(bed_cancel(*state, 1, E, 0, 9), HF_LOCK_E_NOTHING);
	bed_lock(*state, 1, E, 0, 9);
	assert_int_equal(bed_cancel(*state, 11, E, 0, 9), HF_LOCK_E_NOTHING);
	assert_int_equal(bed_cancel(*state, 1, S, 0, 9), HF_LOCK_E_NOTHING);
}

/* The request was granted, and downgraded its range except the part of an exclusive grant. A client that is
 * told that it never got the lock would believe that it still has all of it exclusively. */
static void test_cancel_of_what_was_downgraded_in_parts(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 4, 4);
	bed_wait(bed, 11, E, 4, 4);
	bed_unlock(bed, 1, 4, 4);
	bed_lock(bed, 11, E, 7, 7);
	assert_int_equal(bed_wait(bed, 11, S, 4, 7), HF_LOCK_OK);
	assert_locked(bed, 11, "E[4,4]? S[5,7]");
	assert_int_equal(bed_cancel(bed, 11, S, 4, 7), HF_LOCK_E_LOCKED);
	assert_int_equal(bed_cancel(bed, 11, S, 4, 8), HF_LOCK_E_NOTHING);
	assert_int_equal(bed_cancel(bed, 11, S, 4, 4), HF_LOCK_E_NOTHING);
	assert_locked(bed, 11, "E[4,4]? S[5,7]");
}

/* Two of its threads wait, and both are told; one of them does not want it any more. */
static void test_undone_grant_leaves_what_another_one_has(void **state)
{
	struct bed *bed = *state;
	uint64_t first;

	bed_lock(bed, 1, E, 0, 9);
	bed_wait(bed, 11, S, 0, 9);
	bed_wait(bed, 11, S, 5, 6);
	bed_unlock(bed, 1, 0, 9);
	assert_locked(bed, 11, "S[0,9]?");
	first = bed->last_grant - 1;
	bed_wait(bed, 21, E, 6, 7);
	assert_int_equal(hf_lock_grant_refuse(bed->locks, first), HF_LOCK_OK);
	assert_locked(bed, 11, "S[5,6]?");
	assert_locked(bed, 21, "");
	assert_int_equal(hf_lock_grant_confirm(bed->locks, first + 1), HF_LOCK_OK);
	assert_locked(bed, 11, "S[5,6]");
}

static void test_cancelled_grant_leaves_what_another_one_has(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 11, S, 3, 4);
	bed_lock(bed, 1, S, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_wait(bed, 11, E, 4, 6);
	bed_unlock(bed, 1, 0, 9);
	assert_int_equal(bed_cancel(bed, 11, E, 0, 9), HF_LOCK_OK);
	assert_locked(bed, 11, "S[3,3] E[4,4]? E[5,6]?");
	assert_int_equal(bed_cancel(bed, 11, E, 4, 6), HF_LOCK_OK);
	assert_locked(bed, 11, "S[3,4]");
}

static void test_cancel_matches_range_and_mode(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	bed_wait(*state, 11, E, 0, 9);
	assert_int_equal(bed_cancel(*state, 11, E, 0, 8), HF_LOCK_E_NOTHING);
	assert_int_equal(bed_cancel(*state, 11, S, 0, 9), HF_LOCK_E_NOTHING);
	assert_int_equal(bed_waiters(*state), 1);
}

/* Waiters whose owners have very many locks in the range already */

/* More locks of owner 11 than are put back one by one, at the even places up to 8192. */
static void make_very_many(struct bed *bed, enum hf_lock_mode mode)
{
	bed->is_silent = true;
	for (uint64_t i = 0; i <= 4096; i++)
		bed_lock(bed, 11, mode, 2 * i, 2 * i);
}

/* Owner 11 waits for all that and more, behind owner 1, and owner 21 behind owner 11. Then owner 1 unlocks.
 */
static void grant_over_very_many(struct bed *bed, enum hf_lock_mode mode)
{
	bed_lock(bed, 1, E, 9001, 9001);
	assert_int_equal(bed_wait(bed, 11, mode, 0, 9001), HF_LOCK_E_QUEUED);
	assert_int_equal(bed_wait(bed, 21, E, 9001, 9001), HF_LOCK_E_QUEUED);
	bed_told(bed);
	bed_unlock(bed, 1, 9001, 9001);
	assert_string_equal(hf_locks_check(bed->locks) ?: "", "");
	assert_int_equal(bed_waiters(bed), 1);
	bed->is_silent = false;
}

/* Putting back each lock would be too much work: after the refusal the owner has at least what it had. */
static void test_refused_grant_over_very_many_shared_locks(void **state)
{
	struct bed *bed = *state;

	make_very_many(bed, S);
	grant_over_very_many(bed, E);
	assert_locked(bed, 11, "E[0,9001]?");
	assert_int_equal(hf_lock_grant_refuse(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_told(bed, "-o11 E[0,9001]?, +o11 S[0,9001], gone o11 refused");
	assert_int_equal(bed_waiters(bed), 1); /* 21 has 11 before it still */
	assert_int_equal(bed_lock(bed, 1, S, 0, 9000), HF_LOCK_OK);
	bed_unlock(bed, 11, 0, 9001);
	assert_told(bed, "+o1 S[0,9000], -o11 S[0,9001], +o21 E[9001,9001]?, grant o21");
}

static void test_confirmed_grant_over_very_many_shared_locks(void **state)
{
	struct bed *bed = *state;

	make_very_many(bed, S);
	grant_over_very_many(bed, E);
	assert_int_equal(hf_lock_grant_confirm(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_locked(bed, 11, "E[0,9001]");
}

static void test_cancelled_grant_over_very_many_exclusive_locks(void **state)
{
	struct bed *bed = *state;

	make_very_many(bed, E);
	bed_lock(bed, 11, S, 8200, 8300);
	grant_over_very_many(bed, E);
	assert_locked(bed, 11, "E[0,9001]");
	assert_int_equal(bed_cancel(bed, 11, E, 0, 9001), HF_LOCK_OK);
	assert_locked(bed, 11, "E[0,9001]"); /* more than the owner knows of, until it unlocks */
	assert_int_equal(bed_count(bed).grants, 0);
}

/* Shared over exclusive ones: these stay, and so does what is between them. */
static void test_shared_grant_over_very_many_locks(void **state)
{
	struct bed *bed = *state;

	make_very_many(bed, S);
	bed_lock(bed, 11, E, 0, 0);
	bed_lock(bed, 11, E, 8200, 8209);
	grant_over_very_many(bed, S);
	assert_locked(bed, 11, "E[0,0] S[1,8199] E[8200,8209] S[8210,9001]");
	assert_int_equal(hf_lock_grant_refuse(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_locked(bed, 11, "E[0,0] S[1,8199] E[8200,8209] S[8210,9001]");
	bed_unlock(bed, 11, 0, TO_EOF);
	assert_locked(bed, 21, "E[9001,9001]?");
}

/* After one such grant the owner has few locks there: the next refusal puts back each of them. */
static void test_very_many_locks_are_few_after_a_grant(void **state)
{
	struct bed *bed = *state;
	uint64_t tag;

	make_very_many(bed, S);
	grant_over_very_many(bed, E);
	assert_int_equal(hf_lock_grant_refuse(bed->locks, bed->last_grant), HF_LOCK_OK);
	bed_unlock(bed, 11, 9001, 9001);
	assert_int_equal(bed_wait(bed, 11, E, 0, 9001), HF_LOCK_E_QUEUED);
	tag = bed->last_tag;
	bed_unlock(bed, 21, 9001, 9001);
	assert_int_equal(bed_count(bed).grants, 1);
	assert_int_equal(hf_lock_grant_refuse(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_true(bed->last_tag - tag < 10);
	assert_locked(bed, 11, "S[0,9000]");
}

/* Another grant in flight of the same owner, of a part: either may end first, in each way. */
static void test_very_many_locks_and_another_grant(void **state)
{
	struct bed *bed = *state;
	uint64_t other;

	make_very_many(bed, S);
	bed_lock(bed, 1, E, 501, 501);
	assert_int_equal(bed_wait(bed, 11, S, 501, 501), HF_LOCK_E_QUEUED);
	bed_unlock(bed, 1, 501, 501);
	other = bed->last_grant;
	grant_over_very_many(bed, E);
	assert_int_equal(hf_lock_grant_refuse(bed->locks, other), HF_LOCK_OK);
	assert_locked(bed, 11, "E[0,9001]?");
	assert_int_equal(hf_lock_grant_refuse(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_locked(bed, 11, "S[0,9001]");
}

static void test_grant_over_many_locks(void **state)
{
	struct bed *bed = *state;

	bed->is_silent = true;
	for (uint64_t i = 0; i <= 4096; i++)
		bed_lock(bed, 11, E, 2 * i, 2 * i);
	bed_lock(bed, 1, E, 9001, 9001);
	assert_int_equal(bed_wait(bed, 11, E, 1, 9001), HF_LOCK_E_QUEUED); /* one less */
	bed_unlock(bed, 1, 9001, 9001);
	assert_int_equal(bed_count(bed).grants, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		bed_test_of(test_provisional_lock_conflicts_as_a_real_one),
		bed_test_of(test_confirm),
		bed_test_of(test_changed_by_its_owner),
		bed_test_of(test_changed_by_a_partial_unlock),
		bed_test_of(test_changed_by_waiting_for_more_of_the_same),
		bed_test_of(test_request_downgrades_nothing_of_an_exclusive_grant),
		bed_test_of(test_request_outlives_an_exclusive_grant),
		bed_test_of(test_grant_downgrades_nothing_of_an_exclusive_one),
		bed_test_of(test_whole_after_what_a_reboot_took),
		bed_test_of(test_whole_after_what_was_kept_is_gone),
		bed_test_of(test_changed_before_a_reboot_took_more),
		bed_test_of(test_changed_by_what_a_reboot_took_from_many),
		bed_test_of(test_looking_for_changes_among_many_pieces),
		bed_test_of(test_confirmed_lock_merges),
		bed_test_of(test_refuse_releases_exactly_that_range_and_serves_the_next),
		bed_test_of(test_refuse_restores_the_shared_lock_of_an_upgrade),
		bed_test_of(test_refuse_restores_state_number_and_volatility),
		bed_test_of(test_refuse_restores_a_patchwork),
		bed_test_of(test_confirm_merges_a_patchwork),
		bed_test_of(test_grant_never_weakens_before_it_is_confirmed),
		bed_test_of(test_confirmed_downgrade_serves_others),
		bed_test_of(test_doubtful_grant_is_kept_and_weakens_nothing),
		bed_test_of(test_grant_downgrades_nothing_that_was_asked_for_since),
		bed_test_of(test_late_answer_downgrades_nothing_that_was_granted_since),
		bed_test_of(test_answer_downgrades_nothing_that_was_granted_since),
		bed_test_of(test_refusal_takes_nothing_from_a_later_request),
		bed_test_of(test_repeated_request_confirms),
		bed_test_of(test_repeated_request_may_confirm_and_keep_more),
		bed_test_of(test_repeated_non_blocking_request_confirms),
		bed_test_of(test_unlock_ends_a_grant_within_the_range),
		bed_test_of(test_partial_unlock_is_not_undone_by_a_late_confirmation),
		bed_test_of(test_late_answer_is_not_what_a_later_grant_was_before),
		bed_test_of(test_partial_unlock_of_an_upgrade_is_not_restored),
		bed_test_of(test_request_over_a_grant_is_not_refused_with_it),
		bed_test_of(test_cancel_of_a_waiter),
		bed_test_of(test_cancel_serves_who_stood_behind),
		bed_test_of(test_cancel_beats_a_grant_in_flight),
		bed_test_of(test_cancel_of_an_upgrade_in_flight_restores),
		bed_test_of(test_cancel_of_a_held_lock),
		bed_test_of(test_cancel_of_nothing),
		bed_test_of(test_cancel_of_what_was_downgraded_in_parts),
		bed_test_of(test_undone_grant_leaves_what_another_one_has),
		bed_test_of(test_cancelled_grant_leaves_what_another_one_has),
		bed_test_of(test_cancel_matches_range_and_mode),
		bed_test_of(test_refused_grant_over_very_many_shared_locks),
		bed_test_of(test_confirmed_grant_over_very_many_shared_locks),
		bed_test_of(test_cancelled_grant_over_very_many_exclusive_locks),
		bed_test_of(test_shared_grant_over_very_many_locks),
		bed_test_of(test_very_many_locks_are_few_after_a_grant),
		bed_test_of(test_very_many_locks_and_another_grant),
		bed_test_of(test_grant_over_many_locks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
