/* Each client hears of a restart. A client that cannot be told delays no other one, and loses no lock that it
 * reclaims in time. */
#include "one.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static void fleet(const char *prefix, int n)
{
	char address[32], name[32];

	for (int i = 0; i < n; i++) {
		snprintf(address, sizeof(address), "10.%c.%d.%d", '0' + prefix[0] % 7, i / 256, i % 256);
		snprintf(name, sizeof(name), "%s%d", prefix, i);
		world_client(&w, address, name);
	}
	world_turn(&w);
}

static void test_all_are_told(void **state)
{
	fleet("fine", 500);
	world_restart(&w);
	world_until(&w, w.n_told == 500);
	assert_true(w.max_in_flight <= 64);
	assert_int_equal(world_client(&w, "10.4.0.7", "fine7")->status, HF_CLIENT_NOTIFIED);
	assert_int_equal(w.n_events[HF_EVENT_NOTIFY], 500);
	for (int i = 0; i < 20; i++)
		world_turn(&w);
	assert_int_equal(w.n_told, 500); /* once each */
}

static void test_black_holes_delay_no_other(void **state)
{
	uint64_t began;

	w.options.notify_timeout_ns = 5 * HF_NS_PER_S;
	fleet("black", 400);
	fleet("fine", 100);
	world_restart(&w);
	began = hf_loop_now(w.loop);
	world_until(&w, w.n_told == 100);
	/* 400 of them with 64 at a time and 5 s each would be half a minute */
	assert_true(w.told_at - began < 3 * HF_NS_PER_S);
}

static void test_too_many_calls_of_others_delay_but_lose_no_notice(void **state)
{
	struct hf_recovery_counts counts;

	fleet("fine", 3);
	w.n_busy = 2; /* and no notice is under way whose end would be the next chance */
	world_restart(&w);
	world_until(&w, w.n_told == 3);
	hf_recovery_counts(w.recovery, &counts);
	assert_int_equal(counts.notifications_started, 3);
	assert_int_equal(counts.notifications_failed, 0);
}

/* The server has no socket for the notice. */
static void test_a_shortage_of_the_server_is_no_crash_of_the_client(void **state)
{
	struct hf_client *client = world_client(&w, "10.0.0.66", "fine");
	struct hf_recovery_counts counts;
	uint64_t began;

	assert_int_equal(world_lock(&w, client, 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	w.n_short = 10;
	world_restart(&w);
	began = hf_loop_now(w.loop);
	client = world_client(&w, "10.0.0.66", "fine");
	world_until(&w, w.n_told == 1);
	assert_true(w.told_at - began >= 10 * 200 * MS); /* it does not try in every turn */
	assert_int_equal(client->status, HF_CLIENT_NOTIFIED);
	assert_int_equal(client->locking.n_locks, 1);
	assert_int_equal(w.n_events[HF_EVENT_NOTIFY], 1);
	hf_recovery_counts(w.recovery, &counts);
	assert_int_equal(counts.notifications_started, 1);
	assert_int_equal(counts.notifications_failed, 0);
	assert_int_equal(counts.unreachable, 0);
}

static void test_a_shortage_of_the_server_that_lasts(void **state)
{
	struct hf_client *client = world_client(&w, "10.0.0.66", "fine");
	unsigned int n_left;
	uint64_t began;

	w.options.notify_retry_ns = HF_NS_PER_S;
	world_turn(&w);
	w.n_short = 1000;
	world_restart(&w);
	began = hf_loop_now(w.loop);
	world_until(&w, hf_loop_now(w.loop) - began > w.options.notify_retry_ns + 500 * MS);
	n_left = w.n_short;
	for (int i = 0; i < 400; i++)
		world_turn(&w);
	assert_int_equal(w.n_in_flight, 0);
	assert_int_equal(w.n_short, n_left); /* no further try */
	assert_int_equal(w.n_told, 0);
	client = world_client(&w, "10.0.0.66", "fine");
	assert_int_equal(client->status, HF_CLIENT_ACTIVE);
}

static void test_who_cannot_be_told_is_taken_for_crashed_but_may_reclaim(void **state)
{
	struct hf_client *client = world_client(&w, "10.0.0.66", "refuses");
	struct hf_recovery_counts counts;

	assert_int_equal(world_lock(&w, client, 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_lock(&w, client, 1, "f", 20, 29), HF_LOCK_OK);
	world_turn(&w);
	world_restart(&w);
	client = world_client(&w, "10.0.0.66", "refuses");
	world_until(&w, client->status == HF_CLIENT_CRASHED);
	assert_int_equal(client->locking.n_locks, 0); /* released */
	assert_true(world_in_grace(&w));              /* and grace does not end by that */
	assert_int_equal(world_unreclaimed(&w), 2);
	assert_int_equal(world_reclaim(&w, world_client(&w, "10.0.0.7", "thief"), 1, "f", 0, 9),
			 HF_LOCK_E_NOT_BACKED);
	assert_int_equal(world_reclaim(&w, client, 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_reclaim(&w, client, 1, "f", 20, 29), HF_LOCK_OK);
	for (int i = 0; i < 5; i++)
		world_turn(&w);
	assert_true(world_in_grace(&w)); /* a client is unreachable: not early */
	hf_recovery_counts(w.recovery, &counts);
	assert_int_equal(counts.unreachable, 1);
	assert_int_equal(counts.crashes, 1);
	assert_int_equal(counts.locks_cleaned, 2);
	assert_int_equal(w.last[HF_EVENT_CRASH].state, 0); /* not a restart of its own */
	assert_int_equal(w.last[HF_EVENT_CLEANUP].n_locks, 2);
	assert_true(client->is_pinned);
	hf_recovery_end_grace(w.recovery);
	assert_int_equal(client->locking.n_locks, 2);
}

/* One client has reclaimed all that was held. Another one holds nothing and is unreachable. */
static struct hf_client *grace_for_one_unreachable(void)
{
	struct hf_client *client = world_client(&w, "10.0.0.66", "fine"), *gone;

	world_client(&w, "10.0.0.67", "refuses");
	assert_int_equal(world_lock(&w, client, 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	world_restart(&w);
	client = world_client(&w, "10.0.0.66", "fine");
	gone = world_client(&w, "10.0.0.67", "refuses");
	world_until(&w, w.n_told == 1 && gone->status == HF_CLIENT_UNREACHABLE);
	assert_int_equal(world_reclaim(&w, client, 1, "f", 0, 9), HF_LOCK_OK);
	for (int i = 0; i < 5; i++)
		world_turn(&w);
	assert_true(world_in_grace(&w));
	return gone;
}

static void test_grace_ends_when_the_unreachable_client_leaves(void **state)
{
	hf_client_unregister(grace_for_one_unreachable());
	for (int i = 0; i < 5; i++)
		world_turn(&w);
	assert_false(world_in_grace(&w));
}

static void test_grace_ends_when_the_unreachable_client_leaves_during_a_try(void **state)
{
	struct hf_client *client = world_client(&w, "10.0.0.66", "fine"), *gone;

	world_client(&w, "10.0.0.67", "black");
	assert_int_equal(world_lock(&w, client, 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	w.options.notify_timeout_ns = 100 * MS;
	world_restart(&w);
	client = world_client(&w, "10.0.0.66", "fine");
	gone = world_client(&w, "10.0.0.67", "black");
	world_until(&w, gone->status == HF_CLIENT_UNREACHABLE);
	assert_int_equal(world_reclaim(&w, client, 1, "f", 0, 9), HF_LOCK_OK);
	world_until(&w, w.n_in_flight == 1); /* the second try */
	assert_true(world_in_grace(&w));
	hf_client_unregister(gone);
	for (int i = 0; i < 5; i++)
		world_turn(&w);
	assert_int_equal(w.n_in_flight, 1);
	assert_false(world_in_grace(&w));
}

static void test_grace_ends_when_the_unreachable_client_is_given_up(void **state)
{
	uint64_t began;

	w.options.notify_retry_ns = HF_NS_PER_S;
	grace_for_one_unreachable();
	began = hf_loop_now(w.loop);
	world_until(&w, !world_in_grace(&w));
	assert_true(hf_loop_now(w.loop) - began < 2 * HF_NS_PER_S);
}

static void on_export(void *user, const struct hf_recovery_export *export)
{
	*(struct hf_recovery_export *)user = *export;
}

static void assert_counted(uint64_t n_locks, uint64_t n_clients)
{
	struct hf_recovery_export export = { 0 };

	hf_recovery_show_exports(w.recovery, on_export, &export);
	assert_int_equal(export.n_locks, n_locks);
	assert_int_equal(export.n_clients, n_clients);
}

static void test_what_is_not_listed_is_not_counted(void **state)
{
	struct hf_client *client = world_client(&w, "10.0.0.66", "refuses");

	assert_int_equal(world_lock(&w, client, 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_lock(&w, client, 1, "f", 20, 29), HF_LOCK_OK);
	assert_counted(2, 1);
	world_turn(&w);
	world_restart(&w);
	assert_counted(2, 1);
	client = world_client(&w, "10.0.0.66", "refuses");
	world_until(&w, client->status == HF_CLIENT_CRASHED);
	assert_counted(0, 0);
	assert_int_equal(world_reclaim(&w, client, 1, "f", 20, 29), HF_LOCK_OK);
	assert_counted(1, 1);
	hf_recovery_end_grace(w.recovery);
	assert_counted(1, 1);
}

static void test_ghosts_survive_a_second_crash(void **state)
{
	assert_int_equal(world_lock(&w, world_client(&w, "10.0.0.66", "refuses"), 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	world_restart(&w);
	world_until(&w, world_client(&w, "10.0.0.66", "refuses")->status == HF_CLIENT_CRASHED);
	world_turn(&w);
	world_restart(&w);
	assert_int_equal(world_unreclaimed(&w), 1);
	world_until(&w, world_client(&w, "10.0.0.66", "refuses")->status == HF_CLIENT_CRASHED);
	assert_int_equal(world_reclaim(&w, world_client(&w, "10.0.0.66", "refuses"), 1, "f", 0, 9),
			 HF_LOCK_OK);
}

static void test_unreachable_after_grace_may_come_late(void **state)
{
	w.options.window_ns = 20 * MS;
	w.options.notify_timeout_ns = 100 * MS;
	assert_int_equal(world_lock(&w, world_client(&w, "10.0.0.66", "black"), 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	world_restart(&w);
	world_until(&w, w.n_failed == 1);
	assert_false(world_in_grace(&w));
	assert_int_equal(world_reclaim(&w, world_client(&w, "10.0.0.66", "black"), 1, "f", 0, 9), HF_LOCK_OK);
}

static void test_tried_again_until_told(void **state)
{
	struct hf_recovery_counts counts;
	struct hf_client *client;

	w.options.notify_timeout_ns = 10 * MS;
	world_client(&w, "10.0.0.66", "stubborn");
	world_turn(&w);
	world_restart(&w);
	client = world_client(&w, "10.0.0.66", "stubborn");
	world_until(&w, client->status == HF_CLIENT_UNREACHABLE); /* it had no lock to lose */
	world_until(&w, client->status == HF_CLIENT_NOTIFIED);
	hf_recovery_counts(w.recovery, &counts);
	assert_int_equal(counts.notifications_started, 2);
	assert_int_equal(counts.notifications_failed, 1);
	assert_int_equal(counts.notifications_told, 1);
	assert_int_equal(counts.unreachable, 0);
	assert_int_equal(counts.crashes + counts.cleanups, 0);
	assert_false(client->is_pinned);
}

static void test_retries_end(void **state)
{
	struct hf_recovery_counts counts;
	uint64_t began;

	w.options.notify_retry_ns = 100 * MS;
	world_client(&w, "10.0.0.66", "refuses");
	world_turn(&w);
	world_restart(&w);
	began = hf_loop_now(w.loop);
	world_until(&w, (hf_recovery_counts(w.recovery, &counts), counts.notifications_failed == 1));
	assert_int_equal(counts.notices_waiting, 1);
	world_until(&w, (hf_recovery_counts(w.recovery, &counts), counts.notifications_failed == 2));
	assert_true(hf_loop_now(w.loop) - began >= 100 * MS); /* the last one is at the end */
	assert_int_equal(counts.notices_waiting + counts.notices_in_flight, 0);
	assert_int_equal(world_client(&w, "10.0.0.66", "refuses")->status, HF_CLIENT_UNREACHABLE);
}

static void test_unregistered_while_being_told(void **state)
{
	world_client(&w, "10.0.0.66", "black");
	world_client(&w, "10.0.0.67", "refuses");
	world_turn(&w);
	world_restart(&w);
	world_until(&w, w.n_in_flight == 1);
	hf_client_unregister(world_client(&w, "10.0.0.66", "black"));
	hf_client_unregister(world_client(&w, "10.0.0.67", "refuses"));
	assert_int_equal(hf_clients_count(hf_recovery_clients(w.recovery)), 0);
	world_until(&w, w.n_failed == 1);
}

static void on_stopped(void *user)
{
	*(bool *)user = true;
}

static void test_stopped_while_telling(void **state)
{
	bool is_stopped = false;

	w.options.notify_timeout_ns = 20 * MS;
	w.options.notify_parallel = 2;
	fleet("black", 3);
	fleet("fine", 3);
	fleet("refuses", 3);
	world_restart(&w);
	world_until(&w, w.n_in_flight >= 2);
	hf_recovery_stop(w.recovery, on_stopped, &is_stopped);
	world_until(&w, is_stopped);
	world_until(&w, w.n_in_flight == 0);
	assert_true(w.disk.view.state.is_clean);
}

/* The next run tells it. */
static void test_stop_keeps_a_client_that_was_not_told(void **state)
{
	hf_cleanup(hf_client_unrefp) struct hf_client *other = NULL;
	bool is_stopped = false;
	struct hf_addr addr;

	w.options.max_clients = 1;
	world_client(&w, "10.0.0.66", "black");
	world_turn(&w);
	world_restart(&w);
	world_until(&w, w.n_in_flight == 1);
	hf_recovery_stop(w.recovery, on_stopped, &is_stopped);
	assert_true(hf_addr_parse(&addr, "10.0.0.67"));
	assert_int_equal(hf_clients_get(&other, hf_recovery_clients(w.recovery), "nlm", &addr,
					hf_bytes_of_str("fine")),
			 0);
	assert_int_equal(hf_client_register(other), HF_CLIENT_E_LIMIT);
	world_until(&w, is_stopped);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_CLIENT), 1);
}

static void test_again_by_hand(void **state)
{
	struct hf_client *client = world_client(&w, "10.0.0.65", "fine");

	assert_int_equal(world_lock(&w, client, 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(hf_recovery_notify_again(w.recovery, client), 0);
	world_until(&w, w.n_told == 1);
	assert_int_equal(hf_recovery_notify_again(w.recovery, NULL), 0);
	world_until(&w, w.n_told == 2);
	world_restart(&w);
	client = world_client(&w, "10.0.0.65", "fine");
	world_until(&w, w.n_told == 1);
	w.all_deaf = true;
	assert_int_equal(hf_recovery_notify_again(w.recovery, client), 0);
	world_until(&w, client->status == HF_CLIENT_UNREACHABLE);
	assert_int_equal(client->locking.n_locks, 1); /* it is no evidence of anything */
	hf_client_unregister(client);
	assert_int_equal(hf_recovery_notify_again(w.recovery, client), -ENOENT);
}

static void test_simulated_crash(void **state)
{
	int32_t before = hf_recovery_state(w.recovery);
	struct hf_client *client = world_client(&w, "10.0.0.65", "fine");

	assert_int_equal(world_lock(&w, client, 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	w.disk.is_slow = true;
	assert_int_equal(hf_recovery_simulate_crash(w.recovery), 0);
	world_turn(&w);
	world_turn(&w);
	assert_int_equal(w.n_in_flight + w.n_told, 0); /* no client hears of it before it is stored */
	assert_int_equal(hf_recovery_state(w.recovery), before);
	disk_let_go(&w.disk);
	w.disk.is_slow = false;
	assert_int_equal(hf_recovery_state(w.recovery), before + 2);
	assert_int_equal(w.disk.view.state.sm_state, before + 2);
	assert_true(world_in_grace(&w));
	world_until(&w, w.n_told == 1);
	assert_int_equal(world_lock(&w, client, 1, "g", 0, 9), HF_LOCK_E_GRACE);
	assert_int_equal(world_reclaim(&w, client, 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	assert_true(world_in_grace(&w));
	world_restart(&w);
	assert_true(hf_recovery_state(w.recovery) > before + 2);
}

/* A client is being told of the server's number, and that rises meanwhile. */
static struct hf_client *rise_while_telling(void)
{
	struct hf_client *client;
	int32_t before;

	assert_int_equal(world_lock(&w, world_client(&w, "10.0.0.66", "late"), 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	world_restart(&w);
	client = world_client(&w, "10.0.0.66", "late");
	world_until(&w, w.n_in_flight == 1);
	before = hf_recovery_state(w.recovery);
	assert_int_equal(hf_recovery_simulate_crash(w.recovery), 0);
	world_until(&w, hf_recovery_state(w.recovery) == before + 2);
	assert_int_equal(w.n_in_flight, 1);
	return client;
}

static void assert_told_of_the_newer(struct hf_client *client)
{
	size_t n_told = w.n_told;

	assert_true(client->is_pinned);
	assert_int_not_equal(client->status, HF_CLIENT_NOTIFIED);
	world_until(&w, w.n_told == n_told + 1);
	assert_int_equal(w.told_state, hf_recovery_state(w.recovery));
	assert_int_equal(client->status, HF_CLIENT_NOTIFIED);
	assert_false(client->is_pinned);
}

static void test_acknowledged_late_counts_for_the_older_number_alone(void **state)
{
	struct hf_client *client = rise_while_telling();
	struct hf_recovery_counts counts;

	world_end_telling(&w, true);
	world_until(&w, w.n_told == 1);
	assert_int_equal(w.told_state, hf_recovery_state(w.recovery) - 2);
	assert_told_of_the_newer(client);
	hf_recovery_counts(w.recovery, &counts);
	assert_int_equal(counts.notifications_started, 2);
	assert_int_equal(counts.notifications_told, 2);
}

/* It is no evidence against the client: of the newer number it was not told yet. */
static void test_failed_late_counts_for_the_older_number_alone(void **state)
{
	struct hf_client *client = rise_while_telling();
	struct hf_recovery_counts counts;

	world_end_telling(&w, false);
	world_until(&w, w.n_failed == 1);
	assert_int_equal(client->locking.n_locks, 1);
	hf_recovery_counts(w.recovery, &counts);
	assert_int_equal(counts.unreachable, 0);
	assert_told_of_the_newer(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_all_are_told),
		T(test_black_holes_delay_no_other),
		T(test_too_many_calls_of_others_delay_but_lose_no_notice),
		T(test_a_shortage_of_the_server_is_no_crash_of_the_client),
		T(test_a_shortage_of_the_server_that_lasts),
		T(test_who_cannot_be_told_is_taken_for_crashed_but_may_reclaim),
		T(test_grace_ends_when_the_unreachable_client_leaves),
		T(test_grace_ends_when_the_unreachable_client_leaves_during_a_try),
		T(test_grace_ends_when_the_unreachable_client_is_given_up),
		T(test_what_is_not_listed_is_not_counted),
		T(test_ghosts_survive_a_second_crash),
		T(test_unreachable_after_grace_may_come_late),
		T(test_tried_again_until_told),
		T(test_retries_end),
		T(test_unregistered_while_being_told),
		T(test_stopped_while_telling),
		T(test_stop_keeps_a_client_that_was_not_told),
		T(test_again_by_hand),
		T(test_simulated_crash),
		T(test_acknowledged_late_counts_for_the_older_number_alone),
		T(test_failed_late_counts_for_the_older_number_alone),
	};

	return cmocka_run_group_tests_name("notifier", tests, NULL, NULL);
}
