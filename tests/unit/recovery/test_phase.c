/* The phases of the server's life: which there are, what leads from one to the next, and what does not. */
#include "one.h"

#include <errno.h>

#include "../turn.h"

static enum hf_recovery_phase phase(void)
{
	return hf_recovery_phase(w.recovery);
}

static void hold_one(void)
{
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
}

static void note_phase(void *user)
{
	*(enum hf_recovery_phase *)user = phase();
}

static void test_nothing_stored(void **state)
{
	assert_int_equal(phase(), HF_PHASE_SERVING);
	assert_int_equal(hf_recovery_end_grace(w.recovery), -ENOENT);
}

static void test_a_complete_list_is_checked(void **state)
{
	hold_one();
	world_restart(&w);
	assert_int_equal(phase(), HF_PHASE_CHECKED_GRACE);
	assert_int_equal(world_reclaim(&w, a(), 2, "f", 20, 29), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_until(&w, phase() == HF_PHASE_SERVING);
	assert_int_equal(w.n_events[HF_EVENT_GRACE_ENDED], 1);
	assert_int_equal(w.last[HF_EVENT_GRACE_ENDED].n_locks, 0);
}

static void test_without_early_end_grace_lasts(void **state)
{
	w.options.early_end = false;
	w.options.window_ns = 500 * MS;
	hold_one();
	world_restart(&w);
	assert_int_equal(phase(), HF_PHASE_CHECKED_GRACE);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	assert_int_equal(phase(), HF_PHASE_CHECKED_GRACE);
	world_until(&w, phase() == HF_PHASE_SERVING);
}

static void set_early_end(bool is_on)
{
	w.options.early_end = is_on;
	hf_recovery_change(w.recovery, &w.options);
}

static void test_early_end_changes_in_the_midst_of_grace(void **state)
{
	hold_one();
	world_restart(&w);
	set_early_end(false);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	assert_int_equal(phase(), HF_PHASE_CHECKED_GRACE);
	set_early_end(true);
	world_until(&w, phase() == HF_PHASE_SERVING);
	assert_int_equal(w.n_events[HF_EVENT_GRACE_ENDED], 1);
}

static uint64_t grace_left(void)
{
	struct hf_grace_info info;

	hf_recovery_grace_info(w.recovery, &info);
	return info.ends_in_ns;
}

static void test_windows_are_those_of_the_next_grace(void **state)
{
	w.options.window_ns = 60 * HF_NS_PER_S;
	w.options.early_end = false;
	hold_one();
	world_restart(&w);
	w.options.window_ns = 2 * HF_NS_PER_S;
	w.options.protocols[WORLD_SMB].window_ns = 7 * HF_NS_PER_S;
	hf_recovery_change(w.recovery, &w.options);
	assert_true(grace_left() > 50 * HF_NS_PER_S);
	assert_int_equal(hf_clients_window(hf_recovery_clients(w.recovery), "smb"), 7 * HF_NS_PER_S);
	assert_int_equal(hf_recovery_simulate_crash(w.recovery), 0);
	world_until(&w, phase() == HF_PHASE_WHOLE_GRACE);
	assert_in_range(grace_left(), HF_NS_PER_S, 2 * HF_NS_PER_S);
}

static void test_a_list_that_is_not_complete_is_open(void **state)
{
	world_kill(&w);
	w.options.durability = HF_STORE_NONE;
	w.options.window_ns = 500 * MS;
	world_up(&w);
	hold_one();
	world_restart(&w);
	assert_int_equal(phase(), HF_PHASE_OPEN_GRACE);
	assert_int_equal(world_reclaim(&w, a(), 2, "f", 20, 29), HF_LOCK_OK);
	assert_int_equal(hf_recovery_simulate_crash(w.recovery), 0);
	world_turn(&w);
	assert_int_equal(phase(), HF_PHASE_OPEN_GRACE); /* it still lacks what the first run granted */
	world_until(&w, phase() == HF_PHASE_SERVING);
}

static void test_no_grace_drops_what_was_loaded(void **state)
{
	w.options.grace = HF_RECOVERY_GRACE_NEVER;
	hold_one();
	world_restart(&w);
	assert_int_equal(phase(), HF_PHASE_SERVING);
	assert_int_equal(world_unreclaimed(&w), 0);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK); /* late */
}

/* What an earlier grace dropped can be reclaimed as long as no other owner has had it: also in the grace of a
 * simulated restart, which tells the client that it must reclaim. */
static void test_late_in_the_grace_of_a_simulated_restart(void **state)
{
	w.options.grace = HF_RECOVERY_GRACE_NEVER;
	hold_one();
	world_restart(&w);
	w.options.grace = HF_RECOVERY_GRACE_AUTO;
	assert_int_equal(hf_client_register(a()), 0);
	assert_int_equal(hf_recovery_simulate_crash(w.recovery), 0);
	world_until(&w, phase() == HF_PHASE_WHOLE_GRACE);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 20, 29), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
}

static void unlock(uint64_t owner, uint64_t start, uint64_t end)
{
	const struct hf_lock_request request = world_request(a(), owner, "f", start, end);

	world_unlock(&w, a(), owner, "f", start, end);
	hf_recovery_unlocked(w.recovery, &request.who, request.range);
}

static void test_what_its_owner_unlocks_is_not_reclaimed_late(void **state)
{
	w.options.grace = HF_RECOVERY_GRACE_NEVER;
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 99), HF_LOCK_OK);
	assert_int_equal(world_lock(&w, a(), 2, "f", 200, 299), HF_LOCK_OK);
	assert_int_equal(hf_client_register(a()), 0);
	world_turn(&w);
	world_restart(&w);
	unlock(1, 40, 49); /* in the midst of it */
	unlock(1, 0, 9);
	unlock(1, 90, 250);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 99), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 40, 40), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 90, 99), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 10, 39), HF_LOCK_OK);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 50, 89), HF_LOCK_OK);
	assert_int_equal(world_reclaim(&w, a(), 2, "f", 200, 299), HF_LOCK_OK); /* of another owner */
	unlock(1, 0, 99);
	unlock(2, 200, 299);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 10, 39), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(world_reclaim(&w, a(), 2, "f", 200, 299), HF_LOCK_E_NOT_BACKED);
}

static void test_a_simulated_restart_is_a_whole_grace(void **state)
{
	w.options.window_ns = 500 * MS;
	world_restart(&w);
	hold_one();
	assert_int_equal(hf_recovery_simulate_crash(w.recovery), 0);
	world_until(&w, phase() == HF_PHASE_WHOLE_GRACE);
	assert_int_equal(w.n_events[HF_EVENT_GRACE_STARTED], 1);
	assert_int_equal(world_lock(&w, a(), 1, "g", 0, 9), HF_LOCK_E_GRACE);
	world_until(&w, phase() == HF_PHASE_SERVING);
	assert_int_equal(a()->locking.n_locks, 1);
}

static void test_stop(void **state)
{
	enum hf_recovery_phase at_the_end = HF_PHASE_LOADING;

	hold_one();
	hf_recovery_stop(w.recovery, note_phase, &at_the_end);
	assert_int_equal(phase(), HF_PHASE_STOPPING);
	assert_true(hf_recovery_is_stopping(w.recovery));
	world_until(&w, at_the_end != HF_PHASE_LOADING);
	assert_int_equal(at_the_end, HF_PHASE_STOPPED);
}

/* The state number is stored while the server stops: no grace begins, and no client is told. */
static void test_no_simulated_restart_while_stopping(void **state)
{
	enum hf_recovery_phase at_the_end = HF_PHASE_LOADING;
	int32_t before = hf_recovery_state(w.recovery);

	hold_one();
	assert_int_equal(hf_recovery_simulate_crash(w.recovery), 0);
	hf_recovery_stop(w.recovery, note_phase, &at_the_end);
	world_until(&w, at_the_end != HF_PHASE_LOADING);
	assert_int_equal(at_the_end, HF_PHASE_STOPPED);
	assert_int_equal(hf_recovery_state(w.recovery), before);
	assert_int_equal(w.n_events[HF_EVENT_GRACE_STARTED], 0);
	assert_int_equal(w.n_told, 0);
	assert_int_equal(hf_recovery_simulate_crash(w.recovery), -EINVAL);
}

/* A stop in grace keeps what is unreclaimed, whatever the time: the next run waits for its owner again. */
static void test_stop_in_grace(void **state)
{
	enum hf_recovery_phase at_the_end = HF_PHASE_LOADING;

	w.options.window_ns = MS;
	hold_one();
	world_restart(&w);
	hf_recovery_stop(w.recovery, note_phase, &at_the_end);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_E_GRACE);
	world_until(&w, at_the_end != HF_PHASE_LOADING);
	world_turn(&w);
	world_turn(&w);
	assert_int_equal(at_the_end, HF_PHASE_STOPPED);
	assert_int_equal(hf_recovery_end_grace(w.recovery), -ENOENT);
	assert_int_equal(world_unreclaimed(&w), 1);
	world_restart(&w);
	assert_int_equal(phase(), HF_PHASE_CHECKED_GRACE);
	assert_int_equal(world_unreclaimed(&w), 1);
}

/* Without its lease a node hears no reclaim: when it has its lease again, the whole window begins. */
static void test_time_without_the_lease_does_not_count(void **state)
{
	const uint64_t window = 60 * HF_NS_PER_S;
	struct hf_lease lease = { 0 };

	w.options.window_ns = window;
	hold_one();
	world_restart(&w);
	hf_lease_set(&lease, UINT64_MAX, hf_loop_boottime(w.loop));
	hf_loop_set_lease(w.loop, &lease);
	assert_int_equal(hf_recovery_start(w.recovery), 0);
	turn_for(w.loop, window / 2);
	hf_lease_set(&lease, 1, hf_loop_boottime(w.loop)); /* it is over */
	turn_for(w.loop, 3 * window);
	assert_int_equal(phase(), HF_PHASE_CHECKED_GRACE);
	hf_lease_set(&lease, UINT64_MAX, hf_loop_boottime(w.loop));
	turn_for(w.loop, window - HF_NS_PER_S);
	assert_int_equal(phase(), HF_PHASE_CHECKED_GRACE);
	assert_int_equal(world_unreclaimed(&w), 1);
	turn_for(w.loop, window / 8);
	assert_int_equal(phase(), HF_PHASE_SERVING);
	hf_loop_set_lease(w.loop, NULL);
}

/* A reclaim gets no answer while the store cannot write: its client has the whole window to send it again. */
static void test_a_reclaim_that_is_put_off_begins_the_window_anew(void **state)
{
	const uint64_t window = 60 * HF_NS_PER_S;

	w.options.window_ns = window;
	hold_one();
	world_restart(&w);
	turn_for(w.loop, window / 2);
	hf_recovery_put_off_reclaim(w.recovery);
	turn_for(w.loop, window - HF_NS_PER_S);
	assert_int_equal(phase(), HF_PHASE_CHECKED_GRACE);
	turn_for(w.loop, window / 8);
	assert_int_equal(phase(), HF_PHASE_SERVING);
	hf_recovery_put_off_reclaim(w.recovery); /* no grace begins */
	assert_int_equal(phase(), HF_PHASE_SERVING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_nothing_stored),
		T(test_a_complete_list_is_checked),
		T(test_without_early_end_grace_lasts),
		T(test_early_end_changes_in_the_midst_of_grace),
		T(test_windows_are_those_of_the_next_grace),
		T(test_a_list_that_is_not_complete_is_open),
		T(test_no_grace_drops_what_was_loaded),
		T(test_late_in_the_grace_of_a_simulated_restart),
		T(test_what_its_owner_unlocks_is_not_reclaimed_late),
		T(test_a_simulated_restart_is_a_whole_grace),
		T(test_stop),
		T(test_no_simulated_restart_while_stopping),
		T(test_stop_in_grace),
		T(test_time_without_the_lease_does_not_count),
		T(test_a_reclaim_that_is_put_off_begins_the_window_anew),
	};

	return cmocka_run_group_tests_name("phase", tests, NULL, NULL);
}
