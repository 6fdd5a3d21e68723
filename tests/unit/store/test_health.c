/* How soon a store that has failed is tried again. No time passes here: what is looked at is what it waits
 * for. */
#include "../test.h"

#include <errno.h>

#include "base/log.h"
#include "quiet.h"
#include "standin/disk.h"

static struct hf_loop *loop;
static struct disk disk;
static struct hf_store *store;

static int setup(void **state)
{
	const struct hf_store_options options = { .durability = HF_STORE_PROCESS, .events = &quiet_events };
	struct hf_store_start start;

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	assert_int_equal(hf_loop_new(&loop), 0);
	disk_wipe(&disk);
	disk_in_use = &disk;
	assert_int_equal(disk_open(&store, loop, &options), 0);
	assert_int_equal(hf_store_begin_epoch(store, &start), 0);
	return 0;
}

static int teardown(void **state)
{
	hf_store_free(store);
	loop = hf_loop_free(loop);
	return 0;
}

/* Until the next try, in ms; and that try. */
static uint64_t gap_before_try(void)
{
	struct hf_timer *timer = &store->recover_timer;
	uint64_t gap;

	assert_true(hf_timer_is_running(timer));
	gap = (timer->deadline - hf_loop_now(loop) + HF_NS_PER_MS / 2) / HF_NS_PER_MS;
	hf_timer_stop(timer);
	timer->fn(timer);
	return gap;
}

static void test_a_medium_that_is_away_is_asked_every_second(void **state)
{
	static const uint64_t gaps[] = { 100, 200, 400, 800, 1000, 1000, 1000, 1000 };

	disk.is_broken = true;
	hf_store_lost(store, -ECONNRESET);
	for (size_t i = 0; i < HF_ARRAY_SIZE(gaps); i++)
		assert_int_equal(gap_before_try(), gaps[i]);
	assert_int_equal(disk.n_resyncs, 0);
	disk.is_broken = false;
	assert_int_equal(gap_before_try(), 1000);
	assert_true(hf_store_is_healthy(store));
}

static void test_a_medium_that_fails_is_written_to_every_ten_seconds(void **state)
{
	static const uint64_t gaps[] = { 100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000 };

	disk.is_full = true;
	hf_store_lost(store, -ENOSPC);
	for (size_t i = 0; i < HF_ARRAY_SIZE(gaps); i++)
		assert_int_equal(gap_before_try(), gaps[i]);
	assert_int_equal(disk.n_resyncs, HF_ARRAY_SIZE(gaps));
}

static void test_being_away_does_not_excuse_failing(void **state)
{
	disk.is_full = true;
	hf_store_lost(store, -ENOSPC);
	for (int i = 0; i < 7; i++)
		gap_before_try();
	disk.is_broken = true;
	assert_int_equal(gap_before_try(), 10000);
	assert_int_equal(gap_before_try(), 1000);
	disk.is_broken = false;
	assert_int_equal(gap_before_try(), 1000);
	assert_int_equal(gap_before_try(), 10000);
}

/* A database that went back may look as if this node still served. */
static void test_a_node_without_its_lease_does_not_come_back(void **state)
{
	struct hf_lease lease = { 0 };

	hf_loop_set_lease(loop, &lease);
	hf_store_lost(store, -ECONNRESET);
	assert_int_equal(gap_before_try(), 100);
	assert_false(hf_store_is_healthy(store));
	assert_int_equal(disk.n_resyncs, 0);
	hf_lease_set(&lease, UINT64_MAX, 0);
	assert_int_equal(gap_before_try(), 200);
	assert_true(hf_store_is_healthy(store));
	assert_int_equal(disk.n_resyncs, 1);
	hf_loop_set_lease(loop, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_node_without_its_lease_does_not_come_back, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_medium_that_is_away_is_asked_every_second, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_medium_that_fails_is_written_to_every_ten_seconds,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_being_away_does_not_excuse_failing, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
