/* Waiters whose clients may not wait any more leave all queues at once. */
#include "bed.h"

#include "lock/internal.h"

static size_t n_asked;    /* waiters that may_wait() was asked about */
static size_t n_searches; /* for a lock in the way of a waiter */

struct hf_lock *__real_hf_lock_file_conflict(const struct hf_lock_file *file, const struct hf_holding *me,
					     struct hf_range range, enum hf_lock_mode mode);
struct hf_lock *__wrap_hf_lock_file_conflict(const struct hf_lock_file *file, const struct hf_holding *me,
					     struct hf_range range, enum hf_lock_mode mode);
struct hf_lock *__wrap_hf_lock_file_conflict(const struct hf_lock_file *file, const struct hf_holding *me,
					     struct hf_range range, enum hf_lock_mode mode)
{
	n_searches++;
	return __real_hf_lock_file_conflict(file, me, range, mode);
}

/* All but those of one client. */
static bool is_of_another(void *context, const struct hf_lock_view *waiter)
{
	n_asked++;
	return waiter->who.client != context;
}

static size_t sift(struct bed *bed, int client)
{
	n_asked = n_searches = 0;
	return hf_lock_sift_waiters(bed->locks, is_of_another, &bed->clients[client]);
}

static void test_those_of_all_files_leave(void **state)
{
	struct bed *bed = *state;

	for (bed->file = 0; bed->file < 2; bed->file++) {
		bed_lock(bed, 1, E, 0, 9);
		bed_wait(bed, 11, E, 0, 9);
		bed_wait(bed, 21, S, 0, 4);
		bed_wait(bed, 12, S, 0, 9);
	}
	bed_told(bed);
	assert_int_equal(sift(bed, 1), 4);
	assert_int_equal(n_asked, 6);
	assert_told(bed, "gone o11 cancelled, gone o12 cancelled, gone o11 cancelled, gone o12 cancelled");
	for (bed->file = 0; bed->file < 2; bed->file++)
		assert_int_equal(bed_waiters(bed), 1);
	assert_int_equal(bed->clients[1].n_waiters, 0);
	assert_int_equal(sift(bed, 1), 0);
}

static void test_the_others_are_served(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, S, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_wait(bed, 21, S, 0, 9);
	bed_told(bed);
	assert_int_equal(sift(bed, 1), 1);
	assert_told(bed, "gone o11 cancelled, +o21 S[0,9]?, grant o21");
}

static void test_none_that_leaves_is_served_before(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, S, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_wait(bed, 12, S, 0, 9);
	bed_told(bed);
	assert_int_equal(sift(bed, 1), 2);
	assert_told(bed, "gone o11 cancelled, gone o12 cancelled");
}

static void test_a_grant_in_flight_stays(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_unlock(bed, 1, 0, 9);
	assert_int_equal(sift(bed, 1), 0);
	assert_locked(bed, 11, "E[0,9]?");
}

/* The client has not heard of it, and does not wait again. */
static void test_a_grant_that_is_put_back_leaves(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_unlock(bed, 1, 0, 9);
	assert_int_equal(sift(bed, 1), 0);
	hf_lock_pause_grants(bed->locks, true);
	assert_int_equal(hf_lock_grant_put_back(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_int_equal(bed_waiters(bed), 0);
	assert_locked(bed, 11, "");
	assert_string_equal(hf_locks_check(bed->locks) ?: "", "");
}

/* No lock is left in it. */
static void test_a_file_goes_with_its_last_waiter(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_wait(bed, 12, E, 0, 9);
	hf_lock_pause_grants(bed->locks, true);
	bed_unlock(bed, 1, 0, 9);
	assert_int_equal(sift(bed, 1), 2);
	assert_int_equal(bed_count(bed).files, 0);
}

/* As a restart restores a wait: so many cost more steps than an address has at once. */
static void restore_wait(struct bed *bed, int owner, uint64_t pos)
{
	const struct hf_lock_request request = {
		.who = bed_target(bed, owner),
		.range = { pos, TO_EOF },
		.mode = S,
		.wait = true,
		.must_wait = true,
	};

	assert_int_equal(hf_lock_acquire(bed->locks, &request, NULL), HF_LOCK_E_QUEUED);
}

/* What it costs to sift the waiters of @n ranges that overlap, half of which leave. */
static size_t cost_of(uint64_t n)
{
	struct bed bed;
	size_t cost;

	bed_open(&bed);
	bed.is_silent = true;
	bed_lock(&bed, 1, E, 0, TO_EOF);
	for (uint64_t i = 0; i < n; i++)
		restore_wait(&bed, i % 2 ? 11 : 21, 2 * i);
	assert_int_equal(sift(&bed, 1), n / 2);
	cost = n_asked + n_searches;
	assert_int_equal(bed_waiters(&bed), n / 2);
	bed_close(&bed);
	return cost;
}

static void test_the_cost_grows_with_their_number(void **state)
{
	size_t cost = cost_of(1024);

	assert_in_range(cost_of(2048), cost, 2 * cost + 100);
	assert_in_range(cost, 1024, 4 * 1024);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		bed_test_of(test_those_of_all_files_leave),
		bed_test_of(test_the_others_are_served),
		bed_test_of(test_none_that_leaves_is_served_before),
		bed_test_of(test_a_grant_in_flight_stays),
		bed_test_of(test_a_grant_that_is_put_back_leaves),
		bed_test_of(test_a_file_goes_with_its_last_waiter),
		cmocka_unit_test(test_the_cost_grows_with_their_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
