/* A store that has no memory for a while: some of its functions fail (ld --wrap). */
#include "world.h"

#include <errno.h>

static struct world w;
static int n_failures;

static bool fails(void)
{
	return n_failures > 0 && n_failures-- > 0;
}

int __real_hf_store_delete_reservation(struct hf_store *store, uint64_t id, uint64_t *ticketp);
int __wrap_hf_store_delete_reservation(struct hf_store *store, uint64_t id, uint64_t *ticketp);
int __wrap_hf_store_delete_reservation(struct hf_store *store, uint64_t id, uint64_t *ticketp)
{
	return fails() ? -ENOMEM : __real_hf_store_delete_reservation(store, id, ticketp);
}

int __real_hf_store_put_reservation(struct hf_store *store, const struct hf_store_reservation *reservation,
				    uint64_t *ticketp);
int __wrap_hf_store_put_reservation(struct hf_store *store, const struct hf_store_reservation *reservation,
				    uint64_t *ticketp);
int __wrap_hf_store_put_reservation(struct hf_store *store, const struct hf_store_reservation *reservation,
				    uint64_t *ticketp)
{
	return fails() ? -ENOMEM : __real_hf_store_put_reservation(store, reservation, ticketp);
}

uint8_t *__real_hf_batch_reserve(struct hf_store_batch *batch);
uint8_t *__wrap_hf_batch_reserve(struct hf_store_batch *batch);
uint8_t *__wrap_hf_batch_reserve(struct hf_store_batch *batch)
{
	return fails() ? NULL : __real_hf_batch_reserve(batch);
}

static int setup(void **state)
{
	n_failures = 0;
	world_init(&w);
	world_up(&w);
	world_turn(&w);
	return 0;
}

static int teardown(void **state)
{
	world_deinit(&w);
	return 0;
}

static struct hf_lock_target one(void)
{
	return world_request(world_client(&w, "10.0.0.11", "alpha"), 0, "s", 0, 0).who;
}

static void reserve(void)
{
	struct hf_lock_target who = one();

	assert_int_equal(hf_lock_reserve(hf_recovery_locks(w.recovery), &who, 1, 2, 5, false), HF_LOCK_OK);
	world_turn(&w);
}

static void unreserve(void)
{
	struct hf_lock_target who = one();

	assert_int_equal(hf_lock_unreserve(hf_recovery_locks(w.recovery), &who, 1, 2), HF_LOCK_OK);
	world_turn(&w);
}

static void test_a_released_reservation_leaves_the_store(void **state)
{
	reserve();
	n_failures = 1;
	unreserve();
	assert_int_equal(disk_count(&w.disk, HF_RECORD_RESERVATION), 1);
	world_until(&w, disk_count(&w.disk, HF_RECORD_RESERVATION) == 0);
}

/* It is one record whatever happens: a second one would outlive its reservation. */
static void test_a_reservation_that_could_not_be_updated(void **state)
{
	reserve();
	n_failures = 1;
	reserve();
	world_until(&w, hf_recovery_can_promise(w.recovery));
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_RESERVATION), 1);
	unreserve();
	unreserve();
	assert_int_equal(disk_count(&w.disk, HF_RECORD_RESERVATION), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* What is written next must not say a number that no client is told of. */
static void test_a_restart_that_could_not_be_simulated(void **state)
{
	struct hf_store *store = hf_recovery_store(w.recovery);
	int32_t before = hf_recovery_state(w.recovery);

	n_failures = 1;
	assert_int_equal(hf_recovery_simulate_crash(w.recovery), -ENOMEM);
	assert_int_equal(hf_store_mark_complete(store, NULL), 0);
	world_turn(&w);
	assert_int_equal(w.disk.view.state.sm_state, before);
	assert_int_equal(hf_recovery_simulate_crash(w.recovery), 0);
	world_until(&w, hf_recovery_state(w.recovery) != before);
	assert_int_equal(w.disk.view.state.sm_state, hf_recovery_state(w.recovery));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_a_released_reservation_leaves_the_store),
		T(test_a_reservation_that_could_not_be_updated),
		T(test_a_restart_that_could_not_be_simulated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
