/*
 * Durable handles: a second protocol beside NLM, with LMDB on disk and a loop in real time.
 *
 * Its clients live by their connections. A handle is a reservation of the file and a lock in it. A client
 * that is disconnected, by itself or by a restart of the server, has the protocol's window to come back and
 * to reclaim its handles. Nothing is ever sent to it.
 */
#include "one.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../turn.h"

#define WINDOW (1500 * MS)

static char folder[32];

/* The protocol */

static struct hf_client *session(void)
{
	struct hf_client *client;
	struct hf_addr addr;

	assert_true(hf_addr_parse(&addr, "10.0.0.50"));
	assert_int_equal(hf_clients_get(&client, hf_recovery_clients(w.recovery), "smb", &addr,
					hf_bytes_of_str("session")),
			 0);
	if (!hf_client_is_registered(client))
		assert_int_equal(hf_client_register(client), 0);
	hf_client_unref(client); /* being registered it stays */
	return client;
}

static struct hf_lock_request handle(void)
{
	struct hf_lock_request request = world_request(session(), 1, "doc", 0, 9);

	request.who.owner_kind = 1;
	return request;
}

static bool is_suspended;

static void on_durable(struct hf_promise *promise, bool is_durable)
{
	assert_true(is_durable);
	is_suspended = true;
}

static void open_handle(void)
{
	struct hf_lock_request request = handle();
	struct hf_promise promise;
	struct hf_delays delays = { w.recovery };

	assert_int_equal(hf_lock_reserve(hf_recovery_locks(w.recovery), &request.who, 1, 2, 0, false),
			 HF_LOCK_OK);
	assert_int_equal(hf_lock_acquire(hf_recovery_locks(w.recovery), &request, NULL), HF_LOCK_OK);
	is_suspended = hf_delays_add(&delays, &promise, HF_SAYS_GRANTED, session(), on_durable);
	world_until(&w, is_suspended);
}

static int reclaim_lock(void)
{
	struct hf_lock_request request = handle();

	request.reclaim = true;
	request.backed_only = hf_recovery_reclaim(w.recovery, &request) == HF_RECLAIM_BACKED;
	return hf_lock_acquire(hf_recovery_locks(w.recovery), &request, NULL);
}

static int reclaim_reservation(void)
{
	struct hf_lock_request request = handle();
	struct hf_lock_reservation_view view = { .export = request.who.export,
						 .handle = request.who.handle,
						 .client = request.who.client,
						 .oh = request.who.oh,
						 .access = 1,
						 .deny = 2 };

	if (hf_recovery_reclaim_reservation(w.recovery, &view) == HF_RECLAIM_REFUSED)
		return HF_LOCK_E_GRACE;
	return hf_lock_reserve(hf_recovery_locks(w.recovery), &request.who, 1, 2, 0, true);
}

static bool has_handle(void)
{
	const struct hf_lock_client *locking = &session()->locking;

	return locking->n_locks == 1 && locking->n_unreclaimed == 0 && locking->n_reservations == 1;
}

/* Another client, of NLM */

static int others_lock(void)
{
	return world_lock(&w, a(), 1, "doc", 5, 5);
}

static int others_reservation(void)
{
	struct hf_lock_target who = world_request(a(), 1, "doc", 0, 0).who;

	return hf_lock_reserve(hf_recovery_locks(w.recovery), &who, 2, 0, 0, false);
}

static void let_the_window_pass(void)
{
	uint64_t over = hf_loop_now(w.loop) + WINDOW + 200 * MS;

	while (hf_loop_now(w.loop) < over)
		turn_for(w.loop, 20 * MS);
}

static int set_up(void **state)
{
	snprintf(folder, sizeof(folder), "/tmp/hf-durable-XXXXXX");
	assert_non_null(mkdtemp(folder));
	world_init(&w);
	w.options.open_store = NULL;
	w.options.backend = HF_STORE_BACKEND_LMDB;
	w.options.store_path = folder;
	w.options.protocols[WORLD_SMB].window_ns = WINDOW;
	world_up(&w);
	return 0;
}

static int tear_down(void **state)
{
	char command[64];

	world_deinit(&w);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

/* While the server runs */

static void test_reconnected_in_time(void **state)
{
	open_handle();
	hf_client_disconnected(session());
	world_turn(&w);
	assert_int_equal(others_lock(), HF_LOCK_E_CONFLICT);
	hf_client_reconnected(session());
	let_the_window_pass();
	assert_true(has_handle());
	assert_int_equal(session()->status, HF_CLIENT_ACTIVE);
	assert_int_equal(w.n_events[HF_EVENT_CRASH], 0);
}

static void test_expired(void **state)
{
	struct hf_lock_request waiting = world_request(a(), 1, "doc", 0, 9);

	open_handle();
	waiting.wait = true;
	assert_int_equal(hf_lock_acquire(hf_recovery_locks(w.recovery), &waiting, NULL), HF_LOCK_E_QUEUED);
	hf_client_disconnected(session());
	world_until(&w, w.n_granted == 1);
	assert_int_equal(session()->status, HF_CLIENT_CRASHED);
	assert_int_equal(session()->locking.n_reservations, 0);
	assert_int_equal(w.n_events[HF_EVENT_CLEANUP], 1);
}

/* After a restart of the server */

static void restart(void)
{
	a();
	open_handle();
	world_restart(&w);
	assert_int_equal(world_unreclaimed(&w), 2); /* the lock and the reservation */
}

/* The other client was told of the restart, and the session was not. */
static void assert_nothing_was_sent(void)
{
	world_until(&w, w.n_told == 1);
	assert_int_equal(hf_recovery_notify_again(w.recovery, session()), -ENOENT);
	assert_int_equal(hf_recovery_notify_again(w.recovery, NULL), 0);
	world_until(&w, w.n_told == 2);
	world_turn(&w);
	assert_int_equal(w.n_told + w.n_failed + w.n_in_flight, 2);
}

static void test_reclaimed_after_a_restart(void **state)
{
	restart();
	assert_int_equal(hf_recovery_phase(w.recovery), HF_PHASE_SERVING); /* no grace for a complete list */
	assert_int_equal(world_lock(&w, a(), 1, "other", 0, 9), HF_LOCK_OK);
	assert_int_equal(others_lock(), HF_LOCK_E_CONFLICT);
	assert_int_equal(others_reservation(), HF_LOCK_E_CONFLICT);
	assert_nothing_was_sent();
	hf_client_reconnected(session());
	assert_int_equal(reclaim_lock(), HF_LOCK_OK);
	assert_int_equal(reclaim_reservation(), HF_LOCK_OK);
	let_the_window_pass();
	assert_true(has_handle());
	assert_int_equal(others_lock(), HF_LOCK_E_CONFLICT);
	assert_int_equal(w.n_events[HF_EVENT_CRASH], 0);
}

static void test_expired_after_a_restart(void **state)
{
	struct hf_lock_request waiting;

	restart();
	assert_nothing_was_sent();
	waiting = world_request(a(), 1, "doc", 0, 9);
	waiting.wait = true;
	assert_int_equal(hf_lock_acquire(hf_recovery_locks(w.recovery), &waiting, NULL), HF_LOCK_E_QUEUED);
	world_until(&w, w.n_granted == 1);
	assert_int_equal(session()->status, HF_CLIENT_CRASHED);
	assert_int_equal(world_unreclaimed(&w), 0);
	assert_int_equal(reclaim_lock(), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(others_reservation(), HF_LOCK_OK);
	world_turn(&w);
	world_restart(&w);
	assert_int_equal(session()->locking.n_locks, 0);
}

/* It came back, and asked for its lock only: the reservation goes at the end of the window. */
static void test_reclaimed_in_part(void **state)
{
	restart();
	hf_client_reconnected(session());
	assert_int_equal(reclaim_lock(), HF_LOCK_OK);
	assert_int_equal(others_reservation(), HF_LOCK_E_CONFLICT);
	world_until(&w, world_unreclaimed(&w) == 0);
	assert_int_equal(others_reservation(), HF_LOCK_OK);
	assert_int_equal(others_lock(), HF_LOCK_E_CONFLICT);
	assert_int_equal(session()->locking.n_locks, 1);
	assert_int_equal(w.n_events[HF_EVENT_CRASH], 0);
}

static void test_a_second_restart_in_the_window(void **state)
{
	restart();
	world_restart(&w);
	assert_int_equal(world_unreclaimed(&w), 2);
	hf_client_reconnected(session());
	assert_int_equal(reclaim_lock(), HF_LOCK_OK);
	assert_int_equal(reclaim_reservation(), HF_LOCK_OK);
	assert_true(has_handle());
}

/* Grace ends for the clients of NLM; the handle has its own time. */
static void test_it_outlives_grace(void **state)
{
	w.options.protocols[WORLD_NLM].window_ns = 50 * MS;
	w.options.protocols[WORLD_NSM].window_ns = 50 * MS;
	assert_int_equal(world_lock(&w, a(), 1, "other", 0, 9), HF_LOCK_OK);
	open_handle();
	world_restart(&w);
	assert_int_equal(hf_recovery_phase(w.recovery), HF_PHASE_CHECKED_GRACE);
	assert_int_equal(world_unreclaimed(&w), 3);
	world_until(&w, hf_recovery_phase(w.recovery) == HF_PHASE_SERVING);
	assert_int_equal(w.last[HF_EVENT_GRACE_ENDED].n_locks, 1);
	assert_int_equal(world_unreclaimed(&w), 2);
	assert_int_equal(others_lock(), HF_LOCK_E_CONFLICT);
	hf_client_reconnected(session());
	assert_int_equal(reclaim_lock(), HF_LOCK_OK);
	assert_int_equal(reclaim_reservation(), HF_LOCK_OK);
	assert_true(has_handle());
}

/* Grace does not wait for handles: it ends when the lock of NLM is back. */
static void test_grace_ends_early_without_it(void **state)
{
	assert_int_equal(world_lock(&w, a(), 1, "other", 0, 9), HF_LOCK_OK);
	open_handle();
	world_restart(&w);
	assert_int_equal(world_reclaim(&w, a(), 1, "other", 0, 9), HF_LOCK_OK);
	world_until(&w, hf_recovery_phase(w.recovery) == HF_PHASE_SERVING);
	assert_int_equal(world_unreclaimed(&w), 2);
}

/* Where the stored list is not complete, grace is as long as any registered client has to come back. */
static void test_open_grace_is_as_long_as_the_window(void **state)
{
	struct hf_grace_info info;

	world_kill(&w);
	w.options.durability = HF_STORE_NONE;
	w.options.protocols[WORLD_NLM].window_ns = 50 * MS;
	w.options.protocols[WORLD_NSM].window_ns = 50 * MS;
	world_up(&w);
	open_handle();
	world_restart(&w);
	hf_recovery_grace_info(w.recovery, &info);
	assert_int_equal(hf_recovery_phase(w.recovery), HF_PHASE_OPEN_GRACE);
	assert_true(info.ends_in_ns > 50 * MS);
	hf_client_reconnected(session());
	assert_int_equal(reclaim_lock(), HF_LOCK_OK);
	assert_int_equal(reclaim_reservation(), HF_LOCK_OK);
	assert_true(has_handle());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(test_reconnected_in_time),
		T(test_expired),
		T(test_reclaimed_after_a_restart),
		T(test_expired_after_a_restart),
		T(test_reclaimed_in_part),
		T(test_a_second_restart_in_the_window),
		T(test_it_outlives_grace),
		T(test_grace_ends_early_without_it),
		T(test_open_grace_is_as_long_as_the_window),
	};

	return cmocka_run_group_tests_name("durable", tests, NULL, NULL);
}
