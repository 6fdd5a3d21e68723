/* What one owner holds in one file: merge, split, replace, and what the store is told. */
#include "bed.h"

static void test_touching_ranges_merge(void **state)
{
	bed_lock(*state, 1, S, 0, 4);
	bed_lock(*state, 1, S, 5, 9);
	assert_locked(*state, 1, "S[0,9]");
	assert_told(*state, "+o1 S[0,4], -o1 S[0,4], +o1 S[0,9]");
}

static void test_overlapping_ranges_merge(void **state)
{
	bed_lock(*state, 1, E, 0, 6);
	bed_lock(*state, 1, E, 4, 9);
	assert_locked(*state, 1, "E[0,9]");
}

static void test_bridge_merges_both_sides(void **state)
{
	bed_lock(*state, 1, S, 0, 2);
	bed_lock(*state, 1, S, 7, 9);
	bed_lock(*state, 1, S, 3, 6);
	assert_locked(*state, 1, "S[0,9]");
}

static void test_gap_stays(void **state)
{
	bed_lock(*state, 1, S, 0, 2);
	bed_lock(*state, 1, S, 4, 6);
	assert_locked(*state, 1, "S[0,2] S[4,6]");
}

static void test_downgrade_of_the_middle_splits(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	bed_told(*state);
	bed_lock(*state, 1, S, 3, 5);
	assert_locked(*state, 1, "E[0,2] S[3,5] E[6,9]");
	assert_told(*state, "-o1 E[0,9], +o1 E[0,2], +o1 S[3,5], +o1 E[6,9]");
}

static void test_upgrade_of_the_middle_splits(void **state)
{
	bed_lock(*state, 1, S, 0, 9);
	bed_lock(*state, 1, E, 3, 5);
	assert_locked(*state, 1, "S[0,2] E[3,5] S[6,9]");
}

static void test_request_over_many_replaces_all(void **state)
{
	bed_lock(*state, 1, S, 0, 1);
	bed_lock(*state, 1, E, 3, 4);
	bed_lock(*state, 1, S, 6, 7);
	bed_lock(*state, 1, E, 0, 9);
	assert_locked(*state, 1, "E[0,9]");
}

static void test_unlock_of_the_middle(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	bed_told(*state);
	bed_unlock(*state, 1, 3, 5);
	assert_locked(*state, 1, "E[0,2] E[6,9]");
	assert_told(*state, "-o1 E[0,9], +o1 E[0,2], +o1 E[6,9]");
}

static void test_unlock_of_the_edges(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	bed_unlock(*state, 1, 0, 2);
	bed_unlock(*state, 1, 8, 9);
	assert_locked(*state, 1, "E[3,7]");
}

static void test_unlock_of_nothing(void **state)
{
	bed_unlock(*state, 1, 0, TO_EOF);
	bed_lock(*state, 1, E, 5, 6);
	bed_told(*state);
	bed_unlock(*state, 1, 0, 4);
	assert_told(*state, "");
}

static void test_unlock_over_several(void **state)
{
	bed_lock(*state, 1, E, 0, 2);
	bed_lock(*state, 1, S, 4, 6);
	bed_lock(*state, 1, E, 8, TO_EOF);
	bed_unlock(*state, 1, 1, 8);
	assert_locked(*state, 1, "E[0,0] E[9,eof]");
}

static void test_to_eof(void **state)
{
	bed_lock(*state, 1, E, 5, TO_EOF);
	bed_lock(*state, 1, E, 0, 4);
	assert_locked(*state, 1, "E[0,eof]");
	bed_unlock(*state, 1, TO_EOF, TO_EOF);
	assert_locked(*state, 1, "E[0,9223372036854775806]");
}

static void test_repeat_changes_nothing(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	bed_told(*state);
	assert_int_equal(bed_lock(*state, 1, E, 0, 9), HF_LOCK_OK);
	assert_int_equal(bed_lock(*state, 1, E, 3, 5), HF_LOCK_OK);
	assert_told(*state, "");
}

static void test_owners_do_not_merge(void **state)
{
	bed_lock(*state, 1, S, 0, 4);
	bed_lock(*state, 2, S, 5, 9);
	assert_locked(*state, 1, "S[0,4]");
	assert_locked(*state, 2, "S[5,9]");
}

static void test_kind_is_part_of_the_owner(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_request request = { .who = bed_target(bed, 1), .range = { 0, 9 }, .mode = E };

	bed_lock(bed, 1, E, 0, 9);
	request.who.owner_kind = 1;
	assert_int_equal(hf_lock_acquire(bed->locks, &request, NULL), HF_LOCK_E_CONFLICT);
}

static void test_other_state_number_does_not_merge(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, S, 0, 4);
	bed->state = 3;
	bed_lock(bed, 1, S, 5, 9);
	assert_locked(bed, 1, "S[0,4] S[5,9]");
	bed_lock(bed, 1, S, 0, 9);
	assert_locked(bed, 1, "S[0,9]");
}

static void test_repeat_takes_the_new_state_number(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, S, 0, 9);
	bed->state = 3;
	bed_lock(bed, 1, S, 3, 4);
	assert_locked(bed, 1, "S[0,2] S[3,4] S[5,9]");
	hf_lock_client_purge_older(bed->locks, &bed->clients[0], 3);
	assert_locked(bed, 1, "S[3,4]");
}

static void test_repeat_with_state_0_keeps_the_known_one(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, S, 0, 9);
	bed->state = 0;
	bed_lock(bed, 1, S, 0, 9);
	hf_lock_client_purge_older(bed->locks, &bed->clients[0], 1);
	assert_locked(bed, 1, "S[0,9]");
}

static void test_volatile_does_not_merge(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, S, 0, 4);
	bed->is_volatile = true;
	bed_lock(bed, 1, S, 5, 9);
	assert_locked(bed, 1, "S[0,4] S[5,9]!");
}

static void test_repeat_makes_volatile_firm_but_not_back(void **state)
{
	struct bed *bed = *state;

	bed->is_volatile = true;
	bed_lock(bed, 1, S, 0, 9);
	bed->is_volatile = false;
	bed_lock(bed, 1, S, 0, 9);
	assert_locked(bed, 1, "S[0,9]");
	bed->is_volatile = true;
	bed_lock(bed, 1, S, 0, 9);
	assert_locked(bed, 1, "S[0,9]");
}

static void test_records_vanish_with_the_last_lock(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, S, 0, 4);
	assert_int_equal(bed_count(bed).files, 1);
	assert_int_equal(bed_count(bed).owners, 1);
	bed_unlock(bed, 1, 0, TO_EOF);
	assert_int_equal(bed_count(bed).files, 0);
	assert_int_equal(bed_count(bed).owners, 0);
	assert_int_equal(bed_count(bed).locks, 0);
}

/* A file is one, whichever export it was reached by; each owner's locks are shown in the export it came by
 * first. */
static void test_export_is_not_part_of_the_file(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_request request = { .who = bed_target(bed, 2), .range = { 0, 9 }, .mode = E };

	bed_lock(bed, 1, E, 0, 9);
	request.who.export = 2;
	assert_int_equal(hf_lock_acquire(bed->locks, &request, &bed->conflict), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed->conflict.who.export, 1);
	request.range = (struct hf_range){ 10, 19 };
	assert_int_equal(hf_lock_acquire(bed->locks, &request, NULL), HF_LOCK_OK);
	assert_int_equal(bed_test(bed, 1, E, 10, 10), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed->conflict.who.export, 2);
	request.who.export = 3;
	request.range = (struct hf_range){ 20, 29 };
	assert_int_equal(hf_lock_acquire(bed->locks, &request, NULL), HF_LOCK_OK);
	assert_int_equal(bed_test(bed, 1, E, 25, 25), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed->conflict.who.export, 2);
}

/* The client that waits has the handle of the export that it last asked by. */
static void test_export_of_a_waiter_is_that_of_its_own_request(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_request request = {
		.who = bed_target(bed, 2), .range = { 0, 9 }, .mode = E, .wait = true
	};
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view waiter;

	bed_lock(bed, 1, E, 0, 9);
	bed_lock(bed, 2, E, 20, 29);
	for (uint32_t export = 2; export < 4; export ++) {
		request.who.export = export;
		assert_int_equal(hf_lock_acquire(bed->locks, &request, NULL), HF_LOCK_E_QUEUED);
		cursor = (struct hf_lock_cursor){ 0 };
		assert_true(hf_lock_next_waiter(bed->locks, &(struct hf_lock_scope){ 0 }, &cursor, &waiter));
		assert_int_equal(waiter.who.export, export);
	}
}

static void test_oh_of_any_length_is_echoed_as_last_seen(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_request request = { .who = bed_target(bed, 1), .range = { 0, 9 }, .mode = E };
	static char oh[HF_LOCK_OH_MAX];
	static const uint32_t lengths[] = { 0, 1, 70, 71, 1024, 5, 1024 };

	memset(oh, 'x', sizeof(oh));
	for (size_t i = 0; i < HF_ARRAY_SIZE(lengths); i++) {
		request.who.oh = hf_bytes_of(oh, lengths[i]);
		assert_int_equal(hf_lock_acquire(bed->locks, &request, NULL), HF_LOCK_OK);
		assert_int_equal(bed_test(bed, 2, E, 0, 0), HF_LOCK_E_CONFLICT);
		assert_true(hf_bytes_equal(bed->conflict.who.oh, request.who.oh));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		bed_test_of(test_touching_ranges_merge),
		bed_test_of(test_overlapping_ranges_merge),
		bed_test_of(test_bridge_merges_both_sides),
		bed_test_of(test_gap_stays),
		bed_test_of(test_downgrade_of_the_middle_splits),
		bed_test_of(test_upgrade_of_the_middle_splits),
		bed_test_of(test_request_over_many_replaces_all),
		bed_test_of(test_unlock_of_the_middle),
		bed_test_of(test_unlock_of_the_edges),
		bed_test_of(test_unlock_of_nothing),
		bed_test_of(test_unlock_over_several),
		bed_test_of(test_to_eof),
		bed_test_of(test_repeat_changes_nothing),
		bed_test_of(test_owners_do_not_merge),
		bed_test_of(test_kind_is_part_of_the_owner),
		bed_test_of(test_other_state_number_does_not_merge),
		bed_test_of(test_repeat_takes_the_new_state_number),
		bed_test_of(test_repeat_with_state_0_keeps_the_known_one),
		bed_test_of(test_volatile_does_not_merge),
		bed_test_of(test_repeat_makes_volatile_firm_but_not_back),
		bed_test_of(test_records_vanish_with_the_last_lock),
		bed_test_of(test_export_is_not_part_of_the_file),
		bed_test_of(test_export_of_a_waiter_is_that_of_its_own_request),
		bed_test_of(test_oh_of_any_length_is_echoed_as_last_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
