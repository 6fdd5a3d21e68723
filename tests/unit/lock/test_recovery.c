/* Crashes: of a client (purge) and of the server (restore, reclaim, ghosts, grace). */
#include "bed.h"

/* PURGE */

static void test_purge_takes_everything_of_the_client(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	bed->file = 1;
	bed_lock(bed, 2, S, 0, 9);
	bed_lock(bed, 11, S, 0, 9);
	bed_wait(bed, 1, E, 0, 9);
	hf_lock_client_purge(bed->locks, &bed->clients[0]);
	assert_true(hf_lock_client_is_idle(&bed->clients[0]));
	assert_int_equal(bed->clients[0].n_locks, 0);
	assert_int_equal(bed->clients[0].n_waiters, 0);
	assert_locked(bed, 11, "S[0,9]");
}

static void test_purge_serves_the_waiters_of_every_touched_file(void **state)
{
	struct bed *bed = *state;

	for (bed->file = 0; bed->file < 3; bed->file++) {
		bed_lock(bed, 1, E, 0, 0);
		bed_lock(bed, 2, E, 5, 5);
		bed_wait(bed, 11, E, 0, 5);
	}
	bed_told(bed);
	hf_lock_client_purge(bed->locks, &bed->clients[0]);
	assert_int_equal(bed_count(bed).waiters, 0);
	for (bed->file = 0; bed->file < 3; bed->file++)
		assert_locked(bed, 11, "E[0,5]?");
	bed->file = 0;
}

static void test_purge_by_state_keeps_the_new_ones(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	bed->state = 3;
	bed_lock(bed, 1, E, 20, 29);
	bed->state = 0;
	bed_lock(bed, 1, E, 40, 49);
	hf_lock_client_purge_older(bed->locks, &bed->clients[0], 3);
	assert_locked(bed, 1, "E[20,29]");
}

static void test_state_0_never_matches(void **state)
{
	struct bed *bed = *state;

	bed->state = 0;
	bed_lock(bed, 1, E, 0, 9);
	hf_lock_client_purge_older(bed->locks, &bed->clients[0], 0);
	assert_locked(bed, 1, "");
}

static void test_purge_takes_old_waiters_and_grants_in_flight(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_wait(bed, 12, E, 0, 9);
	bed->state = 3;
	bed_wait(bed, 13, E, 0, 9);
	bed_unlock(bed, 1, 0, 9);
	bed_told(bed);
	hf_lock_client_purge_older(bed->locks, &bed->clients[1], 3);
	assert_told(bed, "-o11 E[0,9]?, gone o11 purged, gone o12 purged, +o13 E[0,9]?, grant o13");
}

/* A grant of the new life over a lock of the old one has nothing to restore. */
static void test_purge_forgets_what_a_grant_would_restore(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 11, S, 0, 9);
	bed_lock(bed, 1, S, 5, 5);
	bed->state = 3;
	bed_wait(bed, 11, E, 0, 9);
	bed_unlock(bed, 1, 5, 5);
	hf_lock_client_purge_older(bed->locks, &bed->clients[1], 3);
	assert_locked(bed, 11, "E[0,9]?");
	hf_lock_grant_refuse(bed->locks, bed->last_grant);
	assert_locked(bed, 11, "");
}

static void test_purge_restores_the_new_lock_below_an_old_grant(void **state)
{
	struct bed *bed = *state;

	bed->state = 3;
	bed_lock(bed, 11, S, 0, 9);
	bed_lock(bed, 1, S, 5, 5);
	bed->state = 1;
	bed_wait(bed, 11, E, 0, 9);
	bed_unlock(bed, 1, 5, 5);
	hf_lock_client_purge_older(bed->locks, &bed->clients[1], 3);
	assert_locked(bed, 11, "S[0,9]");
}

/* GRACE */

static void test_restored_lock_conflicts_and_tells_nothing(void **state)
{
	struct bed *bed = *state;

	assert_int_equal(bed_restore(bed, 1, E, 0, 9), HF_LOCK_OK);
	assert_told(bed, "");
	assert_locked(bed, 1, "E[0,9]~");
	assert_int_equal(bed_count(bed).unreclaimed, 1);
	assert_int_equal(bed_lock(bed, 11, S, 0, 0), HF_LOCK_E_CONFLICT);
}

static void test_restored_record_keeps_its_tag(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, E, 0, 9);
	bed_restore(bed, 1, E, 20, 29);
	assert_int_equal(bed_test(bed, 11, E, 0, 9), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed->conflict.tag, 1);
	assert_int_equal(bed_test(bed, 11, E, 20, 29), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed->conflict.tag, 2);
}

struct tagging {
	int n, n_ghosts, n_tagged;
};

static uint64_t tag(void *context, const struct hf_lock_view *lock)
{
	struct tagging *tagging = context;

	tagging->n++;
	tagging->n_ghosts += lock->flags & HF_LOCK_GHOST ? 1 : 0;
	tagging->n_tagged += lock->tag > 100;
	return 100 + lock->range.start;
}

static void test_every_record_can_be_tagged(void **state)
{
	struct bed *bed = *state;
	struct tagging first = { 0 }, second = { 0 };

	bed_restore(bed, 1, E, 10, 19);
	hf_lock_set_grace(bed->locks, true);
	hf_lock_client_release_reclaimable(bed->locks, &bed->clients[0]);
	bed_restore(bed, 11, S, 30, 39);
	bed->file = 1;
	bed_restore(bed, 11, E, 50, 59);
	hf_lock_tag_all(bed->locks, tag, &first);
	hf_lock_tag_all(bed->locks, tag, &second);
	assert_int_equal(first.n, 3);
	assert_int_equal(first.n_ghosts, 1);
	assert_int_equal(first.n_tagged, 0);
	assert_int_equal(second.n_tagged, 3);
}

static void test_volatile_record_is_not_restored(void **state)
{
	struct bed *bed = *state;

	bed->is_volatile = true;
	assert_int_equal(bed_restore(bed, 1, E, 0, 9), HF_LOCK_OK);
	assert_int_equal(bed_count(bed).locks, 0);
}

static void test_conflicting_record_is_not_restored(void **state)
{
	assert_int_equal(bed_restore(*state, 1, E, 0, 9), HF_LOCK_OK);
	assert_int_equal(bed_restore(*state, 11, S, 9, 9), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed_restore(*state, 1, E, 9, 20), HF_LOCK_E_CONFLICT);
}

/* Found by the fuzzer: 11 would wait for 1, which waits for 11. */
static void test_record_is_not_restored_into_a_queue(void **state)
{
	bed_lock(*state, 21, E, 0, 0);
	bed_lock(*state, 11, E, 20, 20);
	bed_wait(*state, 11, E, 0, 9);
	bed_wait(*state, 1, E, 20, 20);
	assert_int_equal(bed_restore(*state, 1, E, 5, 5), HF_LOCK_E_CONFLICT);
}

static void test_grace_answers_grace(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_target who = bed_target(bed, 1);

	hf_lock_set_grace(bed->locks, true);
	assert_true(hf_lock_in_grace(bed->locks));
	assert_int_equal(bed_lock(bed, 1, S, 0, 9), HF_LOCK_E_GRACE);
	assert_int_equal(bed_wait(bed, 1, S, 0, 9), HF_LOCK_E_GRACE);
	assert_int_equal(bed_test(bed, 1, S, 0, 9), HF_LOCK_E_GRACE);
	assert_int_equal(hf_lock_reserve(bed->locks, &who, 1, 0, 1, false), HF_LOCK_E_GRACE);
	assert_int_equal(hf_lock_reserve(bed->locks, &who, 1, 0, 1, true), HF_LOCK_OK);
	assert_int_equal(hf_lock_unreserve(bed->locks, &who, 1, 0), HF_LOCK_OK);
	bed_unlock(bed, 1, 0, 9);
	hf_lock_set_grace(bed->locks, false);
	assert_int_equal(bed_lock(bed, 1, S, 0, 9), HF_LOCK_OK);
}

static void test_reclaim_and_its_repetition(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, E, 0, 9);
	hf_lock_set_grace(bed->locks, true);
	bed->state = 5;
	assert_int_equal(bed_reclaim(bed, 1, E, 0, 9, true), HF_LOCK_OK);
	assert_told(bed, "-o1 E[0,9]~, +o1 E[0,9]");
	assert_int_equal(bed_reclaim(bed, 1, E, 0, 9, true), HF_LOCK_OK);
	assert_told(bed, "");
	hf_lock_set_grace(bed->locks, false);
	assert_locked(bed, 1, "E[0,9]");
}

static void test_reclaim_of_a_part(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, E, 0, 9);
	hf_lock_set_grace(bed->locks, true);
	assert_int_equal(bed_reclaim(bed, 1, E, 3, 5, true), HF_LOCK_OK);
	assert_locked(bed, 1, "E[0,2]~ E[3,5] E[6,9]~");
	assert_int_equal(bed_count(bed).unreclaimed, 2);
	hf_lock_set_grace(bed->locks, false);
	assert_locked(bed, 1, "E[3,5]");
}

static void test_reclaim_over_several_records(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, E, 0, 4);
	bed_restore(bed, 1, E, 5, 9);
	assert_locked(bed, 1, "E[0,4]~ E[5,9]~"); /* as in the store */
	hf_lock_set_grace(bed->locks, true);
	assert_int_equal(bed_reclaim(bed, 1, E, 0, 9, true), HF_LOCK_OK);
	assert_locked(bed, 1, "E[0,9]");
}

static void test_reclaim_as_shared_of_what_was_exclusive(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, E, 0, 9);
	hf_lock_set_grace(bed->locks, true);
	assert_int_equal(bed_reclaim(bed, 1, S, 0, 9, true), HF_LOCK_OK);
	assert_locked(bed, 1, "S[0,9]");
}

static void test_reclaim_that_no_record_backs(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, S, 0, 9);
	hf_lock_set_grace(bed->locks, true);
	assert_int_equal(bed_reclaim(bed, 2, S, 0, 9, true), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(bed_reclaim(bed, 1, E, 0, 9, true), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(bed_reclaim(bed, 1, S, 0, 10, true), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(bed_reclaim(bed, 2, S, 0, 9, false), HF_LOCK_OK); /* the list is not complete */
}

/* Every byte must be backed, not only where the range begins. */
static void test_reclaim_that_only_its_first_piece_backs(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, E, 0, 4);
	bed_restore(bed, 1, E, 6, 9); /* a gap */
	bed_restore(bed, 1, E, 20, 24);
	bed_restore(bed, 1, S, 25, 29); /* less than is asked for */
	bed_restore(bed, 1, E, 40, 44);
	bed_restore(bed, 1, E, 45, 49); /* too short */
	hf_lock_set_grace(bed->locks, true);
	assert_int_equal(bed_reclaim(bed, 1, E, 0, 9, true), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(bed_reclaim(bed, 1, E, 20, 29, true), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(bed_reclaim(bed, 1, E, 40, 50, true), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(bed_reclaim(bed, 1, E, 39, 49, true), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(bed_count(bed).unreclaimed, 6);
	assert_int_equal(bed_reclaim(bed, 1, S, 20, 29, true), HF_LOCK_OK);
	assert_int_equal(bed_reclaim(bed, 1, E, 40, 49, true), HF_LOCK_OK);
	hf_lock_set_grace(bed->locks, false);
	assert_locked(bed, 1, "S[20,29] E[40,49]");
}

static void test_conflicting_reclaim_is_refused_and_not_queued(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, E, 0, 9);
	hf_lock_set_grace(bed->locks, true);
	assert_int_equal(bed_reclaim(bed, 11, E, 0, 9, false), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed_count(bed).waiters, 0);
}

static void test_unlock_in_grace(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, E, 0, 9);
	hf_lock_set_grace(bed->locks, true);
	bed_unlock(bed, 1, 0, 9);
	assert_told(bed, "-o1 E[0,9]~");
	assert_int_equal(bed_count(bed).unreclaimed, 0);
}

static void test_purge_in_grace_takes_unreclaimed(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, E, 0, 9);
	hf_lock_set_grace(bed->locks, true);
	hf_lock_client_purge_older(bed->locks, &bed->clients[0], 9);
	assert_told(bed, "-o1 E[0,9]~");
}

static void test_end_of_grace_drops_unreclaimed(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, E, 0, 9);
	bed_restore(bed, 11, S, 20, 29);
	hf_lock_set_grace(bed->locks, true);
	bed_reclaim(bed, 11, S, 20, 29, true);
	bed_told(bed);
	hf_lock_set_grace(bed->locks, false);
	assert_told(bed, "-o1 E[0,9]~");
	assert_int_equal(bed_count(bed).unreclaimed, 0);
	assert_int_equal(bed_count(bed).locks, 1);
}

static void test_waiters_are_served_at_the_end_of_grace_only(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	hf_lock_set_grace(bed->locks, true);
	bed_unlock(bed, 1, 0, 9);
	assert_locked(bed, 11, "");
	hf_lock_set_grace(bed->locks, false);
	assert_locked(bed, 11, "E[0,9]?");
}

/* GHOSTS */

static void test_ghosts_are_neither_listed_nor_counted(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, E, 0, 9);
	hf_lock_set_grace(bed->locks, true);
	hf_lock_client_release_reclaimable(bed->locks, &bed->clients[0]);
	assert_told(bed, ""); /* the store keeps it, for a second restart */
	assert_locked(bed, 1, "");
	assert_int_equal(bed_count(bed).locks, 0);
	assert_int_equal(bed_count(bed).unreclaimed, 0);
	assert_int_equal(bed_count(bed).ghosts, 1);
	assert_int_equal(bed->clients[0].n_locks, 0);
	assert_false(hf_lock_client_is_idle(&bed->clients[0]));
}

static void count_ghost(void *context, const struct hf_lock_view *ghost)
{
	assert_true(ghost->flags & HF_LOCK_GHOST);
	++*(int *)context;
}

static void test_ghosts_are_shown_on_request(void **state)
{
	struct bed *bed = *state;
	int n = 0;

	bed_restore(bed, 1, E, 0, 9);
	bed_restore(bed, 11, E, 20, 29);
	hf_lock_set_grace(bed->locks, true);
	hf_lock_client_release_reclaimable(bed->locks, &bed->clients[0]);
	hf_lock_show_ghosts(bed->locks, count_ghost, &n);
	assert_int_equal(n, 1);
}

static void test_ghost_is_still_reclaimed(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, E, 0, 9);
	hf_lock_set_grace(bed->locks, true);
	hf_lock_client_release_reclaimable(bed->locks, &bed->clients[0]);
	assert_int_equal(bed_reclaim(bed, 1, E, 0, 9, true), HF_LOCK_OK);
	hf_lock_set_grace(bed->locks, false);
	assert_locked(bed, 1, "E[0,9]");
	assert_int_equal(bed_count(bed).ghosts, 0);
}

static void test_no_other_client_reclaims_a_ghost(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, E, 0, 9);
	hf_lock_set_grace(bed->locks, true);
	hf_lock_client_release_reclaimable(bed->locks, &bed->clients[0]);
	assert_int_equal(bed_reclaim(bed, 11, E, 0, 9, false), HF_LOCK_E_CONFLICT);
}

static void test_ghosts_go_when_grace_ends(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, E, 0, 9);
	hf_lock_set_grace(bed->locks, true);
	hf_lock_client_release_reclaimable(bed->locks, &bed->clients[0]);
	hf_lock_set_grace(bed->locks, false);
	assert_told(bed, "-o1 E[0,9]~");
	assert_int_equal(bed_count(bed).ghosts, 0);
	assert_true(hf_lock_client_is_idle(&bed->clients[0]));
}

static void test_outside_grace_reclaimable_locks_go_at_once(void **state)
{
	struct bed *bed = *state;

	bed_restore(bed, 1, E, 0, 9);
	bed_lock(bed, 2, E, 20, 29);
	bed_told(bed);
	hf_lock_client_release_reclaimable(bed->locks, &bed->clients[0]);
	assert_told(bed, "-o1 E[0,9]~");
	assert_locked(bed, 2, "E[20,29]");
}

/* A shared reclaim of an exclusive lock, with no_downgrade: the lock is reclaimed and stays exclusive, also
 * when grace ends. */
static void test_reclaim_of_less_that_keeps_more(void **state)
{
	struct bed *bed = *state;

	hf_lock_set_grace(bed->locks, true);
	bed_restore(bed, 1, E, 0, 9);
	bed->no_downgrade = true;
	assert_int_equal(bed_reclaim(bed, 1, S, 0, 9, true), HF_LOCK_OK);
	bed->no_downgrade = false;
	hf_lock_set_grace(bed->locks, false);
	assert_locked(bed, 1, "E[0,9]");
	assert_int_equal(bed_lock(bed, 1, S, 0, 9), HF_LOCK_OK);
	assert_locked(bed, 1, "S[0,9]");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		bed_test_of(test_reclaim_of_less_that_keeps_more),
		bed_test_of(test_purge_takes_everything_of_the_client),
		bed_test_of(test_purge_serves_the_waiters_of_every_touched_file),
		bed_test_of(test_purge_by_state_keeps_the_new_ones),
		bed_test_of(test_state_0_never_matches),
		bed_test_of(test_purge_takes_old_waiters_and_grants_in_flight),
		bed_test_of(test_purge_forgets_what_a_grant_would_restore),
		bed_test_of(test_purge_restores_the_new_lock_below_an_old_grant),
		bed_test_of(test_restored_lock_conflicts_and_tells_nothing),
		bed_test_of(test_restored_record_keeps_its_tag),
		bed_test_of(test_every_record_can_be_tagged),
		bed_test_of(test_volatile_record_is_not_restored),
		bed_test_of(test_conflicting_record_is_not_restored),
		bed_test_of(test_record_is_not_restored_into_a_queue),
		bed_test_of(test_grace_answers_grace),
		bed_test_of(test_reclaim_and_its_repetition),
		bed_test_of(test_reclaim_of_a_part),
		bed_test_of(test_reclaim_over_several_records),
		bed_test_of(test_reclaim_as_shared_of_what_was_exclusive),
		bed_test_of(test_reclaim_that_no_record_backs),
		bed_test_of(test_reclaim_that_only_its_first_piece_backs),
		bed_test_of(test_conflicting_reclaim_is_refused_and_not_queued),
		bed_test_of(test_unlock_in_grace),
		bed_test_of(test_purge_in_grace_takes_unreclaimed),
		bed_test_of(test_end_of_grace_drops_unreclaimed),
		bed_test_of(test_waiters_are_served_at_the_end_of_grace_only),
		bed_test_of(test_ghosts_are_neither_listed_nor_counted),
		bed_test_of(test_ghosts_are_shown_on_request),
		bed_test_of(test_ghost_is_still_reclaimed),
		bed_test_of(test_no_other_client_reclaims_a_ghost),
		bed_test_of(test_ghosts_go_when_grace_ends),
		bed_test_of(test_outside_grace_reclaimable_locks_go_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
