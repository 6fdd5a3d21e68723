/* The queue: order, no overtaking and its exceptions, repetition, deadlock. */
#include "bed.h"

#include <time.h>

static void test_queued_and_granted_on_release(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	assert_int_equal(bed_wait(*state, 11, E, 0, 9), HF_LOCK_E_QUEUED);
	bed_told(*state);
	bed_unlock(*state, 1, 0, 9);
	assert_told(*state, "-o1 E[0,9], +o11 E[0,9]?, grant o11");
	assert_locked(*state, 11, "E[0,9]?");
}

static void test_fifo(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	bed_wait(*state, 11, E, 0, 9);
	bed_wait(*state, 21, E, 0, 9);
	bed_unlock(*state, 1, 0, 9);
	assert_locked(*state, 11, "E[0,9]?");
	assert_locked(*state, 21, "");
	bed_unlock(*state, 11, 0, 9);
	assert_locked(*state, 21, "E[0,9]?");
}

static void test_shared_waiters_are_granted_together(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	bed_wait(*state, 11, S, 0, 9);
	bed_wait(*state, 12, S, 5, 5);
	bed_wait(*state, 21, E, 0, 9);
	bed_wait(*state, 13, S, 0, 9);
	bed_told(*state);
	bed_unlock(*state, 1, 0, 9);
	assert_told(*state, "-o1 E[0,9], +o11 S[0,9]?, grant o11, +o12 S[5,5]?, grant o12");
}

static void test_reader_does_not_pass_a_queued_writer(void **state)
{
	bed_lock(*state, 1, S, 0, 9);
	bed_wait(*state, 11, E, 0, 9);
	assert_int_equal(bed_wait(*state, 21, S, 0, 9), HF_LOCK_E_QUEUED);
	assert_int_equal(bed_lock(*state, 22, S, 0, 9), HF_LOCK_E_CONFLICT);
	bed_unlock(*state, 1, 0, 9);
	assert_locked(*state, 11, "E[0,9]?");
	bed_unlock(*state, 11, 0, 9);
	assert_locked(*state, 21, "S[0,9]?");
}

/* 21 could have the range, but 11, which stands before it, wants it too. */
static void test_release_does_not_let_a_later_waiter_pass(void **state)
{
	bed_lock(*state, 1, E, 0, 0);
	bed_lock(*state, 2, E, 9, 9);
	bed_wait(*state, 11, E, 0, 9);
	bed_wait(*state, 21, E, 9, 9);
	bed_unlock(*state, 2, 9, 9);
	assert_locked(*state, 21, "");
	bed_unlock(*state, 1, 0, 0);
	assert_locked(*state, 11, "E[0,9]?");
}

static void test_conflict_with_a_waiter_shows_it(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, S, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_lock(bed, 21, S, 0, 9);
	assert_true(bed->conflict.waits);
	assert_int_equal(bed->conflict.who.owner_id, 11);
}

static void test_who_does_not_conflict_passes(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	bed_wait(*state, 11, E, 0, 9);
	assert_int_equal(bed_lock(*state, 21, E, 20, 29), HF_LOCK_OK);
	bed_wait(*state, 22, E, 5, 5);
	bed_lock(*state, 2, E, 30, 30);
	bed_wait(*state, 12, S, 30, 30);
	bed_told(*state);
	bed_unlock(*state, 2, 30, 30);
	assert_told(*state, "-o2 E[30,30], +o12 S[30,30]?, grant o12");
}

/* Exception a: what is held in that mode already. */
static void test_repetition_of_a_held_lock_passes_a_waiter(void **state)
{
	bed_lock(*state, 1, S, 0, 9);
	bed_wait(*state, 11, E, 0, 9);
	assert_int_equal(bed_lock(*state, 1, S, 0, 9), HF_LOCK_OK);
	assert_int_equal(bed_lock(*state, 1, S, 2, 3), HF_LOCK_OK);
}

/* Exception b: the waiter waits for the requesting owner. */
static void test_upgrade_by_the_sole_reader_passes_a_waiter(void **state)
{
	bed_lock(*state, 1, S, 0, 9);
	bed_wait(*state, 11, E, 0, 9);
	assert_int_equal(bed_lock(*state, 1, E, 0, 9), HF_LOCK_OK);
	assert_int_equal(bed_waiters(*state), 1);
}

static void test_extension_passes_a_waiter_that_waits_for_the_owner(void **state)
{
	bed_lock(*state, 1, E, 0, 4);
	bed_wait(*state, 11, E, 0, 9);
	assert_int_equal(bed_lock(*state, 1, E, 5, 9), HF_LOCK_OK);
}

static void test_transitively_waiting_one_is_passed(void **state)
{
	bed_lock(*state, 1, E, 0, 4);
	bed_wait(*state, 11, E, 0, 9);  /* for 1 */
	bed_wait(*state, 21, E, 9, 20); /* behind 11 */
	assert_int_equal(bed_lock(*state, 1, E, 15, 20), HF_LOCK_OK);
}

static void test_waiter_for_another_owner_is_not_passed(void **state)
{
	bed_lock(*state, 2, E, 0, 4);
	bed_lock(*state, 1, E, 20, 29);
	bed_wait(*state, 11, E, 0, 9);
	assert_int_equal(bed_lock(*state, 1, E, 5, 9), HF_LOCK_E_CONFLICT);
}

static void test_waiting_upgrade_stands_before_who_waits_for_it(void **state)
{
	bed_lock(*state, 1, S, 0, 9);
	bed_lock(*state, 2, S, 0, 9);
	bed_wait(*state, 11, E, 0, 9); /* for 1 and 2 */
	assert_int_equal(bed_wait(*state, 1, E, 0, 9), HF_LOCK_E_QUEUED);
	assert_locked(*state, 1, "S[0,9]"); /* untouched while the upgrade waits */
	bed_told(*state);
	bed_unlock(*state, 2, 0, 9);
	assert_told(*state, "-o2 S[0,9], -o1 S[0,9], +o1 E[0,9]?, grant o1");
}

/* 11 waits for 1 and must be passed; 21 does not and must not; 21 came last. */
static void test_passed_one_goes_behind_the_one_not_to_be_passed(void **state)
{
	bed_lock(*state, 1, E, 0, 0);
	bed_lock(*state, 2, E, 10, 10);
	bed_wait(*state, 11, E, 0, 5);
	bed_wait(*state, 21, E, 10, 15);
	assert_int_equal(bed_wait(*state, 1, E, 3, 12), HF_LOCK_E_QUEUED);
	bed_told(*state);
	bed_unlock(*state, 2, 10, 10);
	assert_told(*state, "-o2 E[10,10], +o21 E[10,15]?, grant o21");
	bed_unlock(*state, 21, 10, 15);
	assert_told(*state, "-o21 E[10,15]?, gone o21 released, +o1 E[3,12]?, grant o1");
	bed_unlock(*state, 1, 0, 20);
	assert_locked(*state, 11, "E[0,5]?");
}

static void test_repetition_keeps_the_place(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_request request = { .range = { 0, 9 }, .mode = E, .wait = true, .user = bed };

	bed_lock(bed, 1, E, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_wait(bed, 21, E, 0, 9);
	request.who = bed_target(bed, 11);
	request.who.oh = hf_bytes_of_str("new oh");
	assert_int_equal(hf_lock_acquire(bed->locks, &request, NULL), HF_LOCK_E_QUEUED);
	assert_int_equal(bed_waiters(bed), 2);
	bed_lock(bed, 22, E, 0, 9); /* for the view */
	bed_unlock(bed, 1, 0, 9);
	assert_locked(bed, 11, "E[0,9]?");
	bed_test(bed, 1, E, 0, 9);
	assert_true(hf_bytes_equal(bed->conflict.who.oh, request.who.oh));
}

static void test_waiter_keeps_offset_len_and_user(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_request request = {
		.range = { 5, TO_EOF }, .offset = 5, .len = UINT64_MAX, .mode = E, .wait = true, .user = bed
	};
	struct hf_lock_scope scope = { .client = &bed->clients[1] };
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;

	bed_lock(bed, 1, E, 0, 9);
	request.who = bed_target(bed, 11);
	assert_int_equal(hf_lock_acquire(bed->locks, &request, NULL), HF_LOCK_E_QUEUED);
	assert_true(hf_lock_next_waiter(bed->locks, &scope, &cursor, &view));
	assert_true(view.offset == 5 && view.len == UINT64_MAX && view.user == bed && view.waits);
	assert_false(hf_lock_next_waiter(bed->locks, &scope, &cursor, &view));
}

static void test_downgrade_serves_waiters(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	bed_wait(*state, 11, S, 3, 4);
	bed_lock(*state, 1, S, 0, 9);
	assert_locked(*state, 11, "S[3,4]?");
}

static void test_partial_release_serves_who_fits(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	bed_wait(*state, 11, E, 0, 4);
	bed_wait(*state, 21, E, 4, 9);
	bed_unlock(*state, 1, 0, 4);
	assert_locked(*state, 11, "E[0,4]?");
	assert_locked(*state, 21, "");
}

static void test_non_blocking_request_leaves_the_own_waiter(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	bed_wait(*state, 11, E, 0, 9);
	assert_int_equal(bed_lock(*state, 11, E, 0, 9), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed_waiters(*state), 1);
}

static void test_release_ends_own_waiters_within_the_range(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	bed_wait(*state, 11, E, 2, 4);
	bed_wait(*state, 11, E, 5, 20);
	bed_told(*state);
	bed_unlock(*state, 11, 0, 9);
	assert_told(*state, "gone o11 released");
	assert_int_equal(bed_waiters(*state), 1);
}

/* More than are sorted at once: the queue is walked, and stops at the first that shuts out the rest. */
static void test_a_revoked_lock_goes_to_the_next_waiter(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	bed_wait(*state, 11, E, 0, 4);
	bed_told(*state);
	assert_int_equal(bed_revoke(*state, 1, 0, 9), HF_LOCK_OK);
	assert_told(*state, "-o1 E[0,9] by order, +o11 E[0,4]?, grant o11");
	assert_int_equal(bed_revoke(*state, 1, 0, 9), HF_LOCK_E_NOTHING);
}

/* An operator means the lock that a list shows. */
static void test_only_the_very_lock_is_revoked(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	assert_int_equal(bed_revoke(*state, 1, 0, 8), HF_LOCK_E_NOTHING);
	assert_int_equal(bed_revoke(*state, 1, 1, 9), HF_LOCK_E_NOTHING);
	assert_int_equal(bed_revoke(*state, 1, 0, TO_EOF), HF_LOCK_E_NOTHING);
	assert_int_equal(bed_revoke(*state, 2, 0, 9), HF_LOCK_E_NOTHING);
	assert_locked(*state, 1, "E[0,9]");
}

static void test_revoke_ends_a_grant_in_flight_and_no_waiter(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_unlock(bed, 1, 0, 9);
	bed_lock(bed, 2, E, 20, 29);
	bed_wait(bed, 11, E, 20, 29);
	bed_told(bed);
	assert_int_equal(bed_revoke(bed, 11, 0, 9), HF_LOCK_OK);
	assert_told(bed, "-o11 E[0,9]? by order, gone o11 released");
	assert_int_equal(hf_lock_grant_confirm(bed->locks, bed->last_grant), HF_LOCK_E_NOTHING);
	assert_int_equal(bed_waiters(bed), 1);
	assert_int_equal(bed_revoke(bed, 2, 20, 29), HF_LOCK_OK);
	assert_locked(bed, 11, "E[20,29]?");
}

/* 11 has a part, waits for more, and gets it in pieces. */
static void grant_in_pieces(struct bed *bed)
{
	bed_lock(bed, 11, S, 0, 9);
	bed_lock(bed, 1, E, 10, 19);
	bed_wait(bed, 11, S, 0, 19);
	bed_unlock(bed, 1, 10, 19);
	assert_locked(bed, 11, "S[0,9] S[10,19]?");
	bed_told(bed);
}

/* GRANTED would name what another owner has now. */
static void test_revoke_of_a_piece_ends_the_grant(void **state)
{
	struct bed *bed = *state;

	grant_in_pieces(bed);
	assert_int_equal(bed_revoke(bed, 11, 10, 19), HF_LOCK_OK);
	assert_told(bed, "-o11 S[10,19]? by order, gone o11 confirmed");
	assert_int_equal(bed_lock(bed, 21, E, 10, 19), HF_LOCK_OK);
	assert_int_equal(hf_lock_grant_confirm(bed->locks, bed->last_grant), HF_LOCK_E_NOTHING);
	assert_locked(bed, 11, "S[0,9]");
}

/* The client may have heard of the grant. */
static void test_revoke_beside_a_piece_leaves_the_piece(void **state)
{
	struct bed *bed = *state;

	grant_in_pieces(bed);
	assert_int_equal(bed_revoke(bed, 11, 0, 9), HF_LOCK_OK);
	assert_told(bed, "-o11 S[0,9] by order, -o11 S[10,19]?, +o11 S[10,19], gone o11 confirmed");
	assert_locked(bed, 11, "S[10,19]");
}

static void test_many_waiters_in_order(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_request request = { .range = { 0, 9 }, .mode = E, .wait = true };
	char text[32];

	bed_lock(bed, 1, E, 0, 9);
	request.who = bed_target(bed, 11);
	for (uint64_t i = 0; i < 200; i++) {
		request.who.owner_id = 100 + i;
		assert_int_equal(hf_lock_acquire(bed->locks, &request, NULL), HF_LOCK_E_QUEUED);
	}
	bed_unlock(bed, 1, 0, 9);
	for (uint64_t i = 0; i < 200; i++) {
		struct hf_lock_target who = request.who;

		snprintf(text, sizeof(text), "grant o%d", 100 + (int)i);
		assert_non_null(strstr(bed_told(bed), text));
		who.owner_id = 100 + i;
		hf_lock_release(bed->locks, &who, request.range);
	}
	bed_told(bed);
	assert_int_equal(bed_count(bed).waiters, 0);
}

static void test_many_shared_waiters_at_once(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_request request = { .range = { 0, 9 }, .mode = S, .wait = true };

	bed_lock(bed, 1, E, 5, 5);
	request.who = bed_target(bed, 11);
	for (uint64_t i = 0; i < 100; i++) {
		request.who.owner_id = 100 + i;
		hf_lock_acquire(bed->locks, &request, NULL);
	}
	bed_unlock(bed, 1, 0, 9);
	assert_int_equal(bed_count(bed).waiters, 0);
	assert_int_equal(bed_count(bed).grants, 100);
	bed_told(bed);
}

/* DEADLOCK */

static void test_deadlock_of_two(void **state)
{
	bed_lock(*state, 1, E, 0, 0);
	bed_lock(*state, 11, E, 1, 1);
	assert_int_equal(bed_wait(*state, 1, E, 1, 1), HF_LOCK_E_QUEUED);
	assert_int_equal(bed_wait(*state, 11, E, 0, 0), HF_LOCK_E_DEADLOCK);
	assert_int_equal(bed_lock(*state, 11, E, 0, 0), HF_LOCK_E_CONFLICT);
	assert_locked(*state, 11, "E[1,1]");
}

static void test_deadlock_of_three_over_files(void **state)
{
	struct bed *bed = *state;

	for (int i = 0; i < 3; i++) {
		bed->file = i;
		bed_lock(bed, 10 * i, E, 0, 0);
	}
	bed->file = 1;
	assert_int_equal(bed_wait(bed, 0, E, 0, 0), HF_LOCK_E_QUEUED);
	bed->file = 2;
	assert_int_equal(bed_wait(bed, 10, E, 0, 0), HF_LOCK_E_QUEUED);
	bed->file = 0;
	assert_int_equal(bed_wait(bed, 20, E, 0, 0), HF_LOCK_E_DEADLOCK);
}

static void test_two_upgrades_are_a_deadlock(void **state)
{
	bed_lock(*state, 1, S, 0, 9);
	bed_lock(*state, 11, S, 0, 9);
	assert_int_equal(bed_wait(*state, 1, E, 0, 9), HF_LOCK_E_QUEUED);
	assert_int_equal(bed_wait(*state, 11, E, 0, 9), HF_LOCK_E_DEADLOCK);
	bed_unlock(*state, 11, 0, 9);
	assert_locked(*state, 1, "E[0,9]?");
}

/* 11 is behind 21's waiter only; 21 waits for 11 in another file. */
static void test_deadlock_through_the_queue(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, S, 0, 9);
	bed->file = 1;
	bed_lock(bed, 11, E, 0, 0);
	bed->file = 0;
	bed_wait(bed, 21, E, 0, 9);
	bed->file = 1;
	bed_wait(bed, 21, E, 0, 0);
	bed->file = 0;
	assert_int_equal(bed_wait(bed, 11, S, 0, 9), HF_LOCK_E_DEADLOCK);
}

static void test_no_deadlock_once_released(void **state)
{
	bed_lock(*state, 1, E, 0, 0);
	bed_lock(*state, 11, E, 1, 1);
	bed_wait(*state, 1, E, 1, 1);
	bed_cancel(*state, 1, E, 1, 1);
	assert_int_equal(bed_wait(*state, 11, E, 0, 0), HF_LOCK_E_QUEUED);
}

static int leave(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end)
{
	struct hf_lock_target who = bed_target(bed, owner);

	return hf_lock_leave_queue(bed->locks, &who, (struct hf_range){ start, end }, mode);
}

static void test_who_leaves_the_queue_is_no_longer_in_the_way(void **state)
{
	bed_lock(*state, 1, S, 0, 9);
	bed_wait(*state, 11, E, 0, 9);
	bed_wait(*state, 21, S, 0, 9);
	assert_told(*state, "+o1 S[0,9]");
	assert_int_equal(leave(*state, 11, S, 0, 9), HF_LOCK_E_NOTHING); /* another mode */
	assert_int_equal(leave(*state, 11, E, 0, 9), HF_LOCK_OK);
	assert_told(*state, "gone o11 cancelled, +o21 S[0,9]?, grant o21");
	assert_int_equal(leave(*state, 11, E, 0, 9), HF_LOCK_E_NOTHING);
}

static void test_a_grant_in_flight_is_not_left(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	bed_wait(*state, 11, E, 0, 9);
	bed_unlock(*state, 1, 0, 9);
	assert_told(*state, "+o1 E[0,9], -o1 E[0,9], +o11 E[0,9]?, grant o11");
	assert_int_equal(leave(*state, 11, E, 0, 9), HF_LOCK_E_NOTHING);
	assert_told(*state, "");
}

static void test_owner_may_wait_several_times(void **state)
{
	bed_lock(*state, 1, E, 0, 0);
	bed_lock(*state, 2, E, 5, 5);
	assert_int_equal(bed_wait(*state, 11, E, 0, 0), HF_LOCK_E_QUEUED);
	assert_int_equal(bed_wait(*state, 11, E, 5, 5), HF_LOCK_E_QUEUED);
	assert_int_equal(bed_wait(*state, 11, E, 0, 9), HF_LOCK_E_QUEUED);
	bed_unlock(*state, 2, 5, 5);
	assert_locked(*state, 11, "E[5,5]?");
	bed_unlock(*state, 1, 0, 0);
	assert_locked(*state, 11, "E[0,0]? E[1,4]? E[5,5]? E[6,9]?");
}

static void test_owners_of_one_client_can_deadlock(void **state)
{
	bed_lock(*state, 1, E, 0, 0);
	bed_lock(*state, 2, E, 1, 1);
	bed_wait(*state, 1, E, 1, 1);
	assert_int_equal(bed_wait(*state, 2, E, 0, 0), HF_LOCK_E_DEADLOCK);
}

/* A request of an owner that holds much, and for which many wait, must not search all that it holds. */
static void test_a_search_for_a_deadlock_does_not_go_through_all_that_is_held(void **state)
{
	const uint64_t far = UINT64_C(1) << 40, farther = UINT64_C(1) << 41;
	struct bed *bed = *state;
	clock_t began;

	bed->is_silent = true;
	for (uint64_t i = 0; i < 100000; i++)
		assert_int_equal(bed_lock(bed, 11, S, 2 * i, 2 * i), HF_LOCK_OK);
	assert_int_equal(bed_lock(bed, 11, E, far, far), HF_LOCK_OK);
	assert_int_equal(bed_lock(bed, 1, E, farther, farther), HF_LOCK_OK);
	for (uint64_t i = 0; i < 1000; i++)
		assert_int_equal(bed_wait(bed, 21, S, i, far), HF_LOCK_E_QUEUED);
	began = clock();
	assert_int_equal(bed_wait(bed, 11, E, farther, farther), HF_LOCK_E_QUEUED);
	assert_true(clock() - began < CLOCKS_PER_SEC / 4); /* seconds, if each of the 1,000 were a search */
	assert_int_equal(bed_wait(bed, 1, E, 0, 0), HF_LOCK_E_DEADLOCK);
}

#define FAR (UINT64_C(1) << 20)

static int wait_as(struct bed *bed, uint64_t owner, uint64_t start, uint64_t end)
{
	struct hf_lock_request request = {
		.who = bed_target(bed, 21),
		.range = { start, end },
		.mode = E,
		.wait = true,
	};

	request.who.owner_id = owner;
	return hf_lock_acquire(bed->locks, &request, NULL);
}

/* @n owners wait for owner 1 in the current file, each for a larger range than the one before: a walk has to
 * look at each of them for each. One more owner waits for owner 11. */
static void make_crowd(struct bed *bed, uint64_t n)
{
	static uint64_t last_owner = 1000;

	assert_int_equal(bed_lock(bed, 1, E, 0, 0), HF_LOCK_OK);
	assert_int_equal(bed_lock(bed, 11, E, FAR, FAR), HF_LOCK_OK);
	assert_int_equal(wait_as(bed, ++last_owner, FAR, FAR), HF_LOCK_E_QUEUED);
	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(wait_as(bed, ++last_owner, 0, i), HF_LOCK_E_QUEUED);
}

/* A search has an end: a request whose search was cut off is not queued, and passes no waiter. */
static void test_a_search_for_a_deadlock_that_takes_too_long(void **state)
{
	struct bed *bed = *state;

	bed->is_silent = true;
	make_crowd(bed, 400);
	assert_int_equal(bed_wait(bed, 1, E, FAR, FAR), HF_LOCK_E_QUEUED);
	assert_int_equal(bed_cancel(bed, 1, E, FAR, FAR), HF_LOCK_OK);
	bed->file = 1;
	make_crowd(bed, 1000);
	bed->file = 0;
	assert_int_equal(bed_wait(bed, 1, E, FAR, FAR), HF_LOCK_E_LIMIT);
	assert_int_equal(bed_lock(bed, 1, E, FAR, FAR), HF_LOCK_E_CONFLICT);
	bed_unlock(bed, 11, FAR, FAR);
	assert_int_equal(bed_lock(bed, 1, E, FAR, FAR),
			 HF_LOCK_E_CONFLICT); /* the other owner, which waited, has it */
	assert_int_equal(bed_wait(bed, 1, E, FAR + 5, FAR + 5), HF_LOCK_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		bed_test_of(test_queued_and_granted_on_release),
		bed_test_of(test_fifo),
		bed_test_of(test_shared_waiters_are_granted_together),
		bed_test_of(test_reader_does_not_pass_a_queued_writer),
		bed_test_of(test_release_does_not_let_a_later_waiter_pass),
		bed_test_of(test_conflict_with_a_waiter_shows_it),
		bed_test_of(test_who_does_not_conflict_passes),
		bed_test_of(test_repetition_of_a_held_lock_passes_a_waiter),
		bed_test_of(test_upgrade_by_the_sole_reader_passes_a_waiter),
		bed_test_of(test_extension_passes_a_waiter_that_waits_for_the_owner),
		bed_test_of(test_transitively_waiting_one_is_passed),
		bed_test_of(test_waiter_for_another_owner_is_not_passed),
		bed_test_of(test_waiting_upgrade_stands_before_who_waits_for_it),
		bed_test_of(test_passed_one_goes_behind_the_one_not_to_be_passed),
		bed_test_of(test_repetition_keeps_the_place),
		bed_test_of(test_waiter_keeps_offset_len_and_user),
		bed_test_of(test_downgrade_serves_waiters),
		bed_test_of(test_partial_release_serves_who_fits),
		bed_test_of(test_non_blocking_request_leaves_the_own_waiter),
		bed_test_of(test_release_ends_own_waiters_within_the_range),
		bed_test_of(test_a_revoked_lock_goes_to_the_next_waiter),
		bed_test_of(test_only_the_very_lock_is_revoked),
		bed_test_of(test_revoke_ends_a_grant_in_flight_and_no_waiter),
		bed_test_of(test_revoke_of_a_piece_ends_the_grant),
		bed_test_of(test_revoke_beside_a_piece_leaves_the_piece),
		bed_test_of(test_many_waiters_in_order),
		bed_test_of(test_many_shared_waiters_at_once),
		bed_test_of(test_deadlock_of_two),
		bed_test_of(test_deadlock_of_three_over_files),
		bed_test_of(test_two_upgrades_are_a_deadlock),
		bed_test_of(test_deadlock_through_the_queue),
		bed_test_of(test_no_deadlock_once_released),
		bed_test_of(test_who_leaves_the_queue_is_no_longer_in_the_way),
		bed_test_of(test_a_grant_in_flight_is_not_left),
		bed_test_of(test_owner_may_wait_several_times),
		bed_test_of(test_owners_of_one_client_can_deadlock),
		bed_test_of(test_a_search_for_a_deadlock_does_not_go_through_all_that_is_held),
		bed_test_of(test_a_search_for_a_deadlock_that_takes_too_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
