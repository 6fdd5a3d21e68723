/* Calls whose end waits for the store, and what has become of their owner by then. */
#include "calls.h"

#include "../../turn.h"

static void expect(uint32_t n, const char *result)
{
	world_until(&calls.world, calls.said[n]);
	assert_string_equal(calls.said[n], result);
}

static void lock(struct ask ask)
{
	ask.procedure = HF_NLM_LOCK;
	expect(call_up(ask), "GRANTED");
}

static void assert_has(const char *name, uint32_t n_locks)
{
	struct hf_client *client = world_client(&calls.world, CALLS_HOST, name);

	assert_int_equal(client->locking.n_locks, n_locks);
}

/* A client at the same address, with a lock of the same process number in the same file, that was not heard
 * of since, must not be taken for the client that is gone. */

static void test_a_downgrade_changes_no_other_owners_lock(void **state)
{
	uint32_t downgrade;

	lock((struct ask){ .name = "x", .offset = 100 });
	lock((struct ask){ .name = "y" });
	calls.world.disk.is_slow = true;
	call_up((struct ask){ HF_NLM_LOCK, .host = "10.0.0.5", .name = "z", .file = "g" });
	downgrade = call_up((struct ask){ HF_NLM_LOCK, .name = "y", .is_shared = true });
	assert_null(calls.said[downgrade]);
	calls_kill(CALLS_HOST, "y");
	calls.world.disk.is_slow = false;
	disk_let_go(&calls.world.disk);
	expect(downgrade, "GRANTED");
	assert_has("y", 0);
	assert_has("x", 1);
}

static void test_what_is_taken_back_is_no_other_owners(void **state)
{
	uint32_t taking, giving;

	lock((struct ask){ .name = "x", .is_shared = true });
	lock((struct ask){ .name = "y", .file = "g" });
	calls.world.disk.is_slow = true;
	taking = call_up((struct ask){ HF_NLM_LOCK, .name = "y", .is_shared = true });
	world_turn(&calls.world); /* it is on its way to the disk */
	giving = call_up((struct ask){ HF_NLM_UNLOCK, .name = "y" });
	assert_null(calls.said[taking]);
	calls.world.disk.is_broken = true;
	disk_let_go(&calls.world.disk);
	expect(taking, "DENIED_NOLOCKS");
	expect(giving, "GRANTED");
	assert_has("x", 1);
	calls.world.disk.is_broken = false;
}

/* A client that asks and is refused for good waits no longer; another client still does. */
static void test_a_refused_client_ends_no_other_wait(void **state)
{
	struct hf_client *waiter;

	lock((struct ask){ .host = "10.0.0.5", .name = "z" });
	expect(call_up((struct ask){ HF_NLM_LOCK, .name = "x", .block = true }), "BLOCKED");
	waiter = world_client(&calls.world, CALLS_HOST, "x");
	assert_int_equal(waiter->locking.n_waiters, 1);
	calls.world.disk.is_broken = true;
	call_up((struct ask){ HF_NLM_LOCK, .name = "y", .file = "g" });
	world_until(&calls.world, !hf_recovery_can_promise(calls.world.recovery));
	expect(call_up((struct ask){ HF_NLM_LOCK, .name = "y", .block = true }), "DENIED_NOLOCKS");
	assert_int_equal(waiter->locking.n_waiters, 1);
	expect(call_up((struct ask){ HF_NLM_LOCK, .name = "x", .block = true }), "DENIED_NOLOCKS");
	assert_int_equal(waiter->locking.n_waiters, 0);
	calls.world.disk.is_broken = false;
}

/* The next run would have the wait again: its client is told to ask again, and keeps its place. */
static void test_a_client_that_waits_when_the_store_fails(void **state)
{
	const struct ask poll = { HF_NLM_LOCK, .name = "x", .block = true };
	struct hf_client *waiter;

	lock((struct ask){ .host = "10.0.0.5", .name = "z" });
	expect(call_up(poll), "BLOCKED");
	waiter = world_client(&calls.world, CALLS_HOST, "x");
	calls.world.disk.is_broken = true;
	call_up((struct ask){ HF_NLM_LOCK, .name = "y", .file = "g" });
	world_until(&calls.world, !hf_recovery_can_promise(calls.world.recovery));
	expect(call_up(poll), "DENIED_GRACE_PERIOD");
	assert_int_equal(waiter->locking.n_waiters, 1);
	expect(call_up((struct ask){ HF_NLM_LOCK, .name = "x" }), "DENIED_NOLOCKS"); /* it does not wait */
	calls.world.disk.is_broken = false;
	world_until(&calls.world, hf_recovery_can_promise(calls.world.recovery));
	expect(call_up(poll), "BLOCKED");
	assert_int_equal(waiter->locking.n_waiters, 1);
}

/* One thread waits, another one asks for more and cannot have it: the first has been told that it waits. */
static void take_back_from_who_waits(bool by_tcp)
{
	struct hf_client *other = world_client(&calls.world, "10.0.0.5", "z");
	struct hf_lock_request holds = world_request(other, 7, "f", 5, 5);
	struct hf_client *waiter;
	uint32_t taking;

	holds.mode = HF_LOCK_SHARED;
	assert_int_equal(hf_lock_acquire(calls.nlm->locks, &holds, NULL), HF_LOCK_OK);
	expect(call_up((struct ask){ HF_NLM_LOCK, .name = "x", .offset = 5, .len = 1, .block = true }),
	       "BLOCKED");
	waiter = world_client(&calls.world, CALLS_HOST, "x");
	calls.world.disk.is_slow = true;
	taking = call_up((struct ask){ HF_NLM_LOCK, .name = "x", .is_shared = true, .by_tcp = by_tcp });
	world_turn(&calls.world);
	assert_int_equal(waiter->locking.n_locks, 1);
	calls.world.disk.is_broken = true;
	disk_let_go(&calls.world.disk);
	world_until(&calls.world, !waiter->locking.n_locks);
	assert_non_null(calls.said[taking]);
	assert_int_equal(waiter->locking.n_waiters, 1);
	calls.world.disk.is_slow = calls.world.disk.is_broken = false;
	world_until(&calls.world, hf_recovery_can_promise(calls.world.recovery));
	world_unlock(&calls.world, other, 7, "f", 5, 5);
	world_until(&calls.world, calls.n_granted == 1);
}

static void test_who_waits_still_waits_when_a_call_is_taken_back(void **state)
{
	take_back_from_who_waits(false);
}

static void test_who_waits_still_waits_when_a_reply_is_taken_back(void **state)
{
	take_back_from_who_waits(true);
}

static void on_stopped(void *user)
{
}

/* Two threads wait for the same, one shared, one exclusively. Both are granted; the first one polls, and its
 * answer as well as both grants wait for a store that fails. */
static void fail_for_who_polls(bool by_tcp)
{
	struct hf_client *other = world_client(&calls.world, "10.0.0.5", "z");
	struct hf_client *waiter;
	uint32_t poll;

	assert_int_equal(world_lock(&calls.world, other, 7, "f", 0, 9), HF_LOCK_OK);
	expect(call_up((struct ask){ HF_NLM_LOCK, .name = "x", .block = true, .is_shared = true }),
	       "BLOCKED");
	expect(call_up((struct ask){ HF_NLM_LOCK, .name = "x", .block = true }), "BLOCKED");
	waiter = world_client(&calls.world, CALLS_HOST, "x");
	world_turn(&calls.world);
	calls.world.disk.is_slow = true;
	world_unlock(&calls.world, other, 7, "f", 0, 9);
	assert_int_equal(waiter->locking.n_grants, 2);
	poll = call_up(
		(struct ask){ HF_NLM_LOCK, .name = "x", .block = true, .is_shared = true, .by_tcp = by_tcp });
	turn_for(calls.world.loop, 3 * HF_NS_PER_S); /* until it is served as things are */
	calls.world.disk.is_broken = true;
	disk_let_go(&calls.world.disk);
	expect(poll, "DENIED_NOLOCKS");
	world_turn(&calls.world);
	assert_int_equal(waiter->locking.n_grants, 0);
	assert_int_equal(waiter->locking.n_waiters, 1); /* the other thread */
	calls.world.disk.is_slow = calls.world.disk.is_broken = false;
}

static void test_who_polls_when_the_store_fails_waits_no_more(void **state)
{
	fail_for_who_polls(false);
}

static void test_who_polls_when_the_store_fails_waits_no_more_on_a_connection(void **state)
{
	fail_for_who_polls(true);
}

/* A message that is not served any more is forgotten: the next one is served. */
static void test_a_message_that_is_dropped(void **state)
{
	uint32_t downgrade, last;

	lock((struct ask){ .name = "x" });
	calls.world.disk.is_slow = true;
	call_up((struct ask){ HF_NLM_LOCK, .host = "10.0.0.5", .name = "z", .file = "g" });
	downgrade = call_up((struct ask){ HF_NLM_LOCK, .name = "x", .is_shared = true });
	call_up((struct ask){ HF_NLM_UNLOCK_MSG, .name = "x" });
	assert_null(calls.said[downgrade]);
	hf_recovery_stop(calls.world.recovery, on_stopped, NULL);
	calls.world.disk.is_slow = false;
	disk_let_go(&calls.world.disk);
	expect(downgrade, "GRANTED");
	assert_has("x", 1);
	assert_true(hf_list_is_empty(&calls.nlm->suspended));
	last = call_up((struct ask){ HF_NLM_UNLOCK_MSG, .name = "x", .file = "other" });
	expect(last, "GRANTED");
	assert_true(hf_list_is_empty(&calls.nlm->suspended));
}

/* A waiter was told BLOCKED, and may never ask again. */
static void test_a_waiter_when_the_store_fails(void **state)
{
	struct hf_client *other = world_client(&calls.world, "10.0.0.5", "z");
	struct hf_client *waiter;

	assert_int_equal(world_lock(&calls.world, other, 7, "f", 0, 9), HF_LOCK_OK);
	expect(call_up((struct ask){ HF_NLM_LOCK, .name = "x", .block = true }), "BLOCKED");
	waiter = world_client(&calls.world, CALLS_HOST, "x");
	world_turn(&calls.world);
	calls.world.disk.is_broken = true;
	world_unlock(&calls.world, other, 7, "f", 0, 9);
	world_until(&calls.world, !hf_recovery_can_promise(calls.world.recovery));
	world_turn(&calls.world);
	assert_int_equal(waiter->locking.n_waiters, 1);
	assert_int_equal(waiter->locking.n_locks, 0);
	assert_int_equal(calls.n_granted, 0);
	calls.world.disk.is_broken = false;
	world_until(&calls.world, calls.n_granted == 1);
	calls_answer(HF_NLM_GRANTED_STAT);
	assert_int_equal(waiter->locking.n_locks, 1);
}

/* Process 7 of x waits for what 10.0.0.5 has, and y behind it; x is being called back. */
static struct hf_client *call_back(void)
{
	struct hf_client *other = world_client(&calls.world, "10.0.0.5", "z");

	assert_int_equal(world_lock(&calls.world, other, 7, "f", 0, 9), HF_LOCK_OK);
	expect(call_up((struct ask){ HF_NLM_LOCK, .name = "x", .block = true }), "BLOCKED");
	expect(call_up((struct ask){ HF_NLM_LOCK, .host = "10.0.0.6", .name = "y", .block = true }),
	       "BLOCKED");
	world_unlock(&calls.world, other, 7, "f", 0, 9);
	world_until(&calls.world, calls.n_granted == 1);
	return world_client(&calls.world, CALLS_HOST, "x");
}

static void be_in_grace(unsigned int n_times)
{
	for (unsigned int i = 0; i < n_times; i++) {
		unsigned int n = calls.n_granted;

		calls_answer(HF_NLM_DENIED_GRACE_PERIOD);
		turn_for(calls.world.loop, 11 * HF_NS_PER_S);
		assert_int_equal(calls.n_granted, n + 1);
	}
}

/* The lock manager of a client may be in grace for longer than a silent client has. */
static void test_a_client_in_grace_is_called_again(void **state)
{
	struct hf_client *client = call_back();

	be_in_grace(9);
	calls_answer(HF_NLM_GRANTED_STAT);
	assert_int_equal(calls.nlm->counts.grants_told, 1);
	assert_int_equal(calls.nlm->counts.grants_kept, 0);
	assert_int_equal(client->locking.n_grants, 0);
	assert_int_equal(client->locking.n_locks, 1);
}

/* Its earlier answers say that it had not taken the lock: there is no doubt about this one. */
static void test_a_client_that_was_in_grace_does_not_want_it(void **state)
{
	struct hf_client *client = call_back();

	be_in_grace(2);
	calls_answer(HF_NLM_DENIED);
	assert_int_equal(calls.nlm->counts.grants_refused, 1);
	assert_int_equal(calls.nlm->counts.grants_kept, 0);
	assert_int_equal(client->locking.n_locks, 0);
	assert_int_equal(world_client(&calls.world, "10.0.0.6", "y")->locking.n_locks, 1);
}

static void test_grace_without_an_end(void **state)
{
	struct hf_client *client = call_back();

	for (int i = 0; i < 100 && client->locking.n_grants; i++) {
		calls_answer(HF_NLM_DENIED_GRACE_PERIOD);
		turn_for(calls.world.loop, 11 * HF_NS_PER_S);
	}
	assert_int_equal(client->locking.n_grants, 0);
	assert_int_equal(calls.nlm->counts.grants_abandoned, 1); /* the client said that it did not take it */
	assert_int_equal(world_client(&calls.world, "10.0.0.6", "y")->locking.n_locks, 1);
}

/* Until the end: teardown finds it waiting. */
static void test_a_downgrade_that_does_not_end(void **state)
{
	struct hf_client *other = world_client(&calls.world, "10.0.0.5", "z");
	uint32_t downgrade;

	assert_int_equal(world_lock(&calls.world, other, 7, "f", 0, 9), HF_LOCK_OK);
	expect(call_up((struct ask){ HF_NLM_LOCK, .name = "x", .block = true }), "BLOCKED");
	world_unlock(&calls.world, other, 7, "f", 0, 9);
	world_until(&calls.world, calls.n_granted == 1);
	downgrade = call_up((struct ask){ HF_NLM_LOCK, .name = "x", .is_shared = true });
	world_turn(&calls.world);
	assert_null(calls.said[downgrade]);
	assert_false(hf_list_is_empty(&calls.nlm->suspended));
}

/* Of one lock a client could make as many as it likes. */
static void test_an_unlock_that_makes_too_many(void **state)
{
	lock((struct ask){ .name = "x", .len = 100 });
	expect(call_up((struct ask){ HF_NLM_UNLOCK, .name = "x", .offset = 10 }), "GRANTED");
	assert_has("x", 2);
	expect(call_up((struct ask){ HF_NLM_UNLOCK, .name = "x", .offset = 30 }), "DENIED_NOLOCKS");
	assert_has("x", 2);
	expect(call_up((struct ask){ HF_NLM_UNLOCK, .name = "x", .len = 100 }), "GRANTED");
	assert_has("x", 0);
}

/* The client is told that it has less; it must not keep others out of it because its limit is met meanwhile.
 */
static void test_a_downgrade_has_room(void **state)
{
	uint32_t downgrade, other;

	lock((struct ask){ .name = "x" });
	calls.world.disk.is_slow = true;
	call_up((struct ask){ HF_NLM_LOCK, .host = "10.0.0.5", .name = "z", .file = "g" });
	downgrade =
		call_up((struct ask){ HF_NLM_LOCK, .name = "x", .offset = 3, .len = 1, .is_shared = true });
	other = call_up((struct ask){ HF_NLM_LOCK, .name = "x", .file = "h" });
	calls.world.disk.is_slow = false;
	disk_let_go(&calls.world.disk);
	expect(other, "GRANTED");
	expect(downgrade, "GRANTED");
	assert_has("x", 4);
}

/* SM_SIMU_CRASH while it is being stored: what is held stays so, and the client is told of less. */
static void test_a_downgrade_meets_grace(void **state)
{
	uint32_t downgrade;

	lock((struct ask){ .name = "x" });
	calls.world.disk.is_slow = true;
	call_up((struct ask){ HF_NLM_LOCK, .host = "10.0.0.5", .name = "z", .file = "g" });
	downgrade = call_up((struct ask){ HF_NLM_LOCK, .name = "x", .is_shared = true });
	assert_null(calls.said[downgrade]);
	hf_lock_set_grace(hf_recovery_locks(calls.world.recovery), true);
	calls.world.disk.is_slow = false;
	disk_let_go(&calls.world.disk);
	expect(downgrade, "GRANTED");
	hf_lock_set_grace(hf_recovery_locks(calls.world.recovery), false);
	expect(call_up((struct ask){ HF_NLM_LOCK, .host = "10.0.0.5", .name = "z", .is_shared = true }),
	       "GRANTED");
}

/* A client that has not read that it waits does not know what it is granted. */
static void test_granted_comes_after_blocked(void **state)
{
	struct hf_client *other = world_client(&calls.world, "10.0.0.5", "z");
	uint32_t waiting, holding;

	lock((struct ask){ .name = "x", .file = "g" });
	assert_int_equal(world_lock(&calls.world, other, 7, "f", 0, 9), HF_LOCK_OK);
	world_turn(&calls.world);
	calls.world.disk.is_slow = true;
	world_lock(&calls.world, other, 7, "1", 0, 9);
	world_turn(&calls.world); /* on its way */
	world_lock(&calls.world, other, 7, "2", 0, 9);
	waiting = call_up((struct ask){ HF_NLM_LOCK, .name = "x", .block = true, .by_tcp = true });
	world_unlock(&calls.world, other, 7, "f", 0, 9);
	disk_let_go(&calls.world.disk);
	world_turn(&calls.world); /* now this is on its way */
	assert_null(calls.said[waiting]);
	holding = call_up((struct ask){ HF_NLM_LOCK, .name = "x", .file = "h", .by_tcp = true });
	disk_let_go(&calls.world.disk);
	world_until(&calls.world, calls.n_granted);
	assert_string_equal(calls.said[waiting], "BLOCKED");
	assert_true(calls.n_left > 0);
	calls.world.disk.is_slow = false;
	disk_let_go(&calls.world.disk);
	expect(holding, "GRANTED");
	world_until(&calls.world, calls.n_left == 2 * (4 + HF_RPC_REPLY_LEN + 4 + 8 + 4));
}

/* Answered before, it would be back after a crash. */
static void test_an_unlock_while_everything_is_written_anew(void **state)
{
	struct disk *disk = &calls.world.disk;
	uint32_t unlocking;

	lock((struct ask){ .name = "x" });
	lock((struct ask){ .name = "x", .offset = 100 });
	disk->is_broken = true;
	expect(call_up((struct ask){ HF_NLM_LOCK, .name = "x", .file = "g" }), "DENIED_NOLOCKS");
	expect(call_up((struct ask){ HF_NLM_UNLOCK, .name = "x" }),
	       "GRANTED"); /* the store is away: at once */
	disk->is_broken = false;
	disk->is_slow = true;
	world_until(&calls.world, disk->n_held == 1);
	unlocking = call_up((struct ask){ HF_NLM_UNLOCK, .name = "x", .offset = 100 });
	assert_has("x", 0);
	disk_let_go(disk);
	world_until(&calls.world, disk->n_held == 1);
	assert_int_equal(disk_count(disk, HF_RECORD_LOCK), 1);
	assert_null(calls.said[unlocking]);
	disk->is_slow = false;
	disk_let_go(disk);
	assert_int_equal(disk_count(disk, HF_RECORD_LOCK), 0);
	expect(unlocking, "GRANTED");
}

/* The exclusive lock would be back after a crash, and keep others out. */
static void test_a_downgrade_is_answered_when_it_is_stored(void **state)
{
	struct disk *disk = &calls.world.disk;
	uint32_t downgrade;

	lock((struct ask){ .name = "x" });
	world_turn(&calls.world);
	disk->is_slow = true;
	downgrade = call_up((struct ask){ HF_NLM_LOCK, .name = "x", .is_shared = true });
	world_until(&calls.world, disk->n_held == 1);
	assert_null(calls.said[downgrade]);
	disk->is_slow = false;
	disk_let_go(disk);
	expect(downgrade, "GRANTED");
}

/* It waits for the store before it is done, and again after. */
static void test_a_downgrade_behind_another_write(void **state)
{
	struct disk *disk = &calls.world.disk;
	uint32_t downgrade;

	lock((struct ask){ .name = "x" });
	disk->is_slow = true;
	call_up((struct ask){ HF_NLM_LOCK, .host = "10.0.0.5", .name = "z", .file = "g" });
	downgrade =
		call_up((struct ask){ HF_NLM_LOCK, .name = "x", .offset = 3, .len = 1, .is_shared = true });
	while (!calls.said[downgrade]) {
		world_until(&calls.world, disk->n_held || calls.said[downgrade]);
		if (!calls.said[downgrade])
			disk_let_go(disk);
		world_turn(&calls.world);
	}
	assert_int_equal(disk_count(disk, HF_RECORD_LOCK), 4);
	disk->is_slow = false;
	disk_let_go(disk);
	expect(downgrade, "GRANTED");
}

/* A program that is refused believes that it still has the exclusive lock. */
static void test_a_downgrade_that_is_not_stored(void **state)
{
	struct disk *disk = &calls.world.disk;
	struct hf_client *other = world_client(&calls.world, "10.0.0.5", "z");
	struct hf_lock_request sharing = world_request(other, 7, "f", 0, 9);

	lock((struct ask){ .name = "x" });
	world_turn(&calls.world);
	disk->is_broken = true;
	expect(call_up((struct ask){ HF_NLM_LOCK, .name = "x", .is_shared = true }), "GRANTED");
	assert_false(hf_recovery_can_promise(calls.world.recovery));
	sharing.mode = HF_LOCK_SHARED;
	assert_int_equal(hf_lock_acquire(calls.nlm->locks, &sharing, NULL), HF_LOCK_OK);
	disk->is_broken = false;
	world_until(&calls.world, hf_recovery_can_promise(calls.world.recovery));
}

static int setup(void **state)
{
	return calls_setup(0, false);
}

static int setup_to_go_on(void **state)
{
	return calls_setup(0, true);
}

static int setup_for_three(void **state)
{
	return calls_setup(3, false);
}

static int setup_for_one(void **state)
{
	return calls_setup(1, false);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, calls_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_a_downgrade_changes_no_other_owners_lock),
		T(test_what_is_taken_back_is_no_other_owners),
		T(test_a_refused_client_ends_no_other_wait),
		T(test_granted_comes_after_blocked),
		T(test_an_unlock_while_everything_is_written_anew),
		T(test_a_message_that_is_dropped),
		T(test_a_downgrade_that_does_not_end),
		T(test_a_client_in_grace_is_called_again),
		T(test_a_client_that_was_in_grace_does_not_want_it),
		T(test_grace_without_an_end),
		T(test_a_waiter_when_the_store_fails),
		T(test_who_polls_when_the_store_fails_waits_no_more),
		T(test_who_polls_when_the_store_fails_waits_no_more_on_a_connection),
		T(test_who_waits_still_waits_when_a_call_is_taken_back),
		T(test_who_waits_still_waits_when_a_reply_is_taken_back),
		cmocka_unit_test_setup_teardown(test_a_client_that_waits_when_the_store_fails, setup_to_go_on,
						calls_teardown),
		cmocka_unit_test_setup_teardown(test_a_downgrade_is_answered_when_it_is_stored,
						setup_to_go_on, calls_teardown),
		cmocka_unit_test_setup_teardown(test_a_downgrade_behind_another_write, setup_to_go_on,
						calls_teardown),
		cmocka_unit_test_setup_teardown(test_a_downgrade_that_is_not_stored, setup_to_go_on,
						calls_teardown),
		cmocka_unit_test_setup_teardown(test_a_downgrade_meets_grace, setup_for_three,
						calls_teardown),
		cmocka_unit_test_setup_teardown(test_a_downgrade_has_room, setup_for_three, calls_teardown),
		cmocka_unit_test_setup_teardown(test_an_unlock_that_makes_too_many, setup_for_one,
						calls_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
