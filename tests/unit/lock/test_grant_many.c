/* Waiters whose owners have very many locks in the range already. */
#include "bed.h"

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

/* To put back each lock would be too much work. The owner has not less than before. */
static void test_who_has_very_many_shared_ones_there(void **state)
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

static void test_very_many_shared_ones_confirmed(void **state)
{
	struct bed *bed = *state;

	make_very_many(bed, S);
	grant_over_very_many(bed, E);
	assert_int_equal(hf_lock_grant_confirm(bed->locks, bed->last_grant), HF_LOCK_OK);
	assert_locked(bed, 11, "E[0,9001]");
}

static void test_who_has_very_many_exclusive_ones_there(void **state)
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
static void test_who_has_very_many_and_wants_less(void **state)
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

/* The second time it is no work any more. */
static void test_very_many_are_few_after_a_grant(void **state)
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
static void test_very_many_and_another_grant(void **state)
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

static void test_who_has_many_locks_there_is_granted(void **state)
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
		bed_test_of(test_who_has_very_many_shared_ones_there),
		bed_test_of(test_very_many_shared_ones_confirmed),
		bed_test_of(test_who_has_very_many_exclusive_ones_there),
		bed_test_of(test_who_has_very_many_and_wants_less),
		bed_test_of(test_very_many_are_few_after_a_grant),
		bed_test_of(test_very_many_and_another_grant),
		bed_test_of(test_who_has_many_locks_there_is_granted),
	};

	return cmocka_run_group_tests_name("heavy", tests, NULL, NULL);
}
