/* What a start concludes from what the last run has stored, and from what this node knows beside that. */
#include "../test.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "quiet.h"
#include "standin/disk.h"

static struct hf_store_state state_on(const char *medium, int32_t sm_state)
{
	struct hf_store_state state = {
		.epoch = 7,
		.sm_state = sm_state,
		.is_complete = true,
		.is_settled = true,
		.durability = HF_STORE_MACHINE,
	};

	snprintf(state.medium, sizeof(state.medium), "%s", medium);
	return state;
}

static struct hf_store_start judge_knowing(struct hf_store_state before, const char *medium, int32_t known)
{
	struct hf_store_state next = state_on(medium, 0);
	struct hf_store_start start;

	hf_store_judge(&before, &next, known, true, &start);
	return start;
}

static struct hf_store_start judge(struct hf_store_state before, const char *medium)
{
	return judge_knowing(before, medium, 0);
}

static void test_same_history_goes_on(void **state)
{
	struct hf_store_start start = judge(state_on("1.5/00000001", 3), "9.5/00000001");

	assert_true(start.continues);
	assert_int_equal(start.sm_state, 3);
}

static void test_replica_that_all_commits_waited_for_goes_on(void **state)
{
	struct hf_store_state before = state_on("1.5/00000001", 3);
	struct hf_store_start start;

	before.is_replicated = true;
	start = judge(before, "9.5/00000002");
	assert_true(start.continues);
	assert_int_equal(start.sm_state, 3);
}

/* It may lack what clients were told since; the state numbers, too. */
static void test_other_replica_starts_over(void **state)
{
	struct hf_store_start start = judge(state_on("1.5/00000001", 3), "9.5/00000002");

	assert_false(start.continues);
	assert_false(start.has_all_locks);
	assert_true(start.dropped_locks);
	assert_int_equal(start.sm_state, 1005);
}

/* The replica before that one has told clients of 1005, and this one does not know of it. */
static void test_each_promotion_skips_more_state_numbers(void **state)
{
	assert_int_equal(judge(state_on("1.5/00000001", 3), "9.5/00000003").sm_state, 2005);
	assert_int_equal(judge(state_on("1.5/00000009", 3), "9.5/0000000B").sm_state, 2005);
	assert_int_equal(judge(state_on("1.5/00000002", 3), "9.5/00000001").sm_state, 1005);
	assert_int_equal(judge(state_on("1.5/00000001", INT32_MAX - 100), "9.5/00000002").sm_state,
			 INT32_MAX - 98);
}

/* One node knows of 1005, and starts on a replica that does not. The next start, by a node that does not know
 * of it either, must give a higher number. */
static void test_a_number_that_one_node_knows_skips_no_promotion_twice(void **state)
{
	int32_t known = judge_knowing(state_on("1.5/00000001", 3), "9.5/00000003", 1005).sm_state;

	assert_int_equal(known, 2005);
	assert_true(judge(state_on("1.5/00000001", 3), "9.5/00000004").sm_state > known);
	assert_int_equal(judge_knowing(state_on("1.5/00000001", 3), "9.5/00000002", 1201).sm_state, 1203);
}

/* Starts on an empty disk. */
static struct hf_store_start begin_empty(uint64_t known_epoch, int32_t known_state)
{
	const struct hf_store_options options = { .durability = HF_STORE_MACHINE,
						  .continues = true,
						  .known_epoch = known_epoch,
						  .known_state = known_state,
						  .events = &quiet_events };
	static struct disk disk;
	struct hf_store_start start;
	struct hf_store *store;
	struct hf_loop *loop;

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	assert_int_equal(hf_loop_new(&loop), 0);
	disk_wipe(&disk);
	disk_in_use = &disk;
	assert_int_equal(disk_open(&store, loop, &options), 0);
	assert_int_equal(hf_store_begin_epoch(store, &start), 0);
	hf_store_free(store);
	hf_loop_free(loop);
	return start;
}

static void test_database_that_has_forgotten_everything(void **state)
{
	struct hf_store_start start = begin_empty(0, 0);

	assert_true(start.is_first);
	assert_int_equal(start.sm_state, 3);
	start = begin_empty(12, 41);
	assert_false(start.is_first);
	assert_false(start.has_all_locks);
	assert_false(start.continues);
	assert_int_equal(start.epoch, 13);
	assert_int_equal(start.sm_state, 43);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_history_goes_on),
		cmocka_unit_test(test_replica_that_all_commits_waited_for_goes_on),
		cmocka_unit_test(test_other_replica_starts_over),
		cmocka_unit_test(test_each_promotion_skips_more_state_numbers),
		cmocka_unit_test(test_a_number_that_one_node_knows_skips_no_promotion_twice),
		cmocka_unit_test(test_database_that_has_forgotten_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
