/* How soon a store that has failed is tried again. No time passes here: what is looked at is what it waits
 * for. */
#include "../test.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "store/backend.h"

struct medium {
	struct hf_store store;
	bool is_away; /* it cannot even be asked */
	bool fails;   /* it can, and does not take what is written */
	int n_tries;
	int n_resyncs;
};

static void op_free(struct hf_store *store)
{
}

static int op_load_state(struct hf_store *store, struct hf_store_state *statep)
{
	return 0;
}

static int op_save_state(struct hf_store *store, const struct hf_store_state *state, bool drop_locks)
{
	return 0;
}

static void op_commit(struct hf_store *store, struct hf_store_batch *batch)
{
	struct medium *medium = (struct medium *)store;

	medium->n_resyncs += batch->kind == HF_STORE_ALL;
	hf_store_batch_done(batch, medium->fails ? -ENOSPC : 0);
}

static void op_recover(struct hf_store *store)
{
	struct medium *medium = (struct medium *)store;

	medium->n_tries++;
	hf_store_recover_done(store, medium->is_away ? -ECONNREFUSED : 0);
}

static const struct hf_store_ops ops = {
	.name = "medium",
	.free = op_free,
	.load_state = op_load_state,
	.save_state = op_save_state,
	.commit = op_commit,
	.recover = op_recover,
};

static void on_reached(void *user, enum hf_store_kind kind, uint64_t ticket)
{
}

static void on_failed(void *user, uint64_t first_lost)
{
}

static void on_nothing(void *user)
{
}

static const struct hf_store_events events = {
	.on_reached = on_reached,
	.on_failed = on_failed,
	.on_resync = on_nothing,
	.on_recovered = on_nothing,
};

static struct hf_loop *loop;
static struct medium *medium;

static int setup(void **state)
{
	const struct hf_store_options options = { .durability = HF_STORE_PROCESS,
						  .boot_id = "b",
						  .events = &events };
	struct hf_store_start start;

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	assert_int_equal(hf_loop_new(&loop), 0);
	medium = calloc(1, sizeof(*medium));
	assert_non_null(medium);
	assert_int_equal(hf_store_init(&medium->store, loop, &ops, &options), 0);
	assert_int_equal(hf_store_begin_epoch(&medium->store, &start), 0);
	return 0;
}

static int teardown(void **state)
{
	hf_store_free(&medium->store);
	loop = hf_loop_free(loop);
	return 0;
}

/* Until the next try, in ms; and that try. */
static uint64_t gap_before_try(void)
{
	struct hf_timer *timer = &medium->store.recover_timer;
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

	medium->is_away = true;
	hf_store_lost(&medium->store, -ECONNRESET);
	for (size_t i = 0; i < HF_ARRAY_SIZE(gaps); i++)
		assert_int_equal(gap_before_try(), gaps[i]);
	assert_int_equal(medium->n_resyncs, 0);
	medium->is_away = false;
	assert_int_equal(gap_before_try(), 1000);
	assert_true(hf_store_is_healthy(&medium->store));
}

static void test_a_medium_that_fails_is_written_to_every_ten_seconds(void **state)
{
	static const uint64_t gaps[] = { 100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000 };

	medium->fails = true;
	hf_store_lost(&medium->store, -ENOSPC);
	for (size_t i = 0; i < HF_ARRAY_SIZE(gaps); i++)
		assert_int_equal(gap_before_try(), gaps[i]);
	assert_int_equal(medium->n_resyncs, HF_ARRAY_SIZE(gaps));
}

static void test_being_away_does_not_excuse_failing(void **state)
{
	medium->fails = true;
	hf_store_lost(&medium->store, -ENOSPC);
	for (int i = 0; i < 7; i++)
		gap_before_try();
	medium->is_away = true;
	assert_int_equal(gap_before_try(), 10000);
	assert_int_equal(gap_before_try(), 1000);
	medium->is_away = false;
	assert_int_equal(gap_before_try(), 1000);
	assert_int_equal(gap_before_try(), 10000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_medium_that_is_away_is_asked_every_second, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_medium_that_fails_is_written_to_every_ten_seconds,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_being_away_does_not_excuse_failing, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
