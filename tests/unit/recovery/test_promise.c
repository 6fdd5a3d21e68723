/* Promises: a client is told once the store has what it is promised, and not at all when the store fails. */
#include "world.h"

#include <errno.h>
#include <stdlib.h>

static struct world w;
static struct hf_delays delays;

struct told {
	struct hf_promise promise;
	int n_kept, n_broken;
	int order;
};

static int next_order;

static void on_told(struct hf_promise *promise, bool is_durable)
{
	struct told *told = hf_container_of(promise, struct told, promise);

	if (is_durable)
		told->n_kept++;
	else
		told->n_broken++;
	told->order = ++next_order;
}

static bool delay(struct told *told, enum hf_reply_says says, struct hf_client *client)
{
	*told = (struct told){ 0 };
	delays.recovery = w.recovery; /* of this life */
	return hf_delays_add(&delays, &told->promise, says, client, on_told);
}

static bool ask(struct told *told, struct hf_client *client)
{
	return delay(told, HF_SAYS_GRANTED, client);
}

static int setup(void **state)
{
	next_order = 0;
	world_init(&w);
	world_up(&w);
	world_turn(&w);
	return 0;
}

static int teardown(void **state)
{
	w.disk.is_slow = false;
	world_deinit(&w);
	return 0;
}

static struct hf_client *a(void)
{
	return world_client(&w, "10.0.0.11", "alpha");
}

static void test_told_when_the_store_has_it(void **state)
{
	struct told told;

	w.disk.is_slow = true;
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_false(ask(&told, a()));
	world_turn(&w);
	assert_int_equal(told.n_kept + told.n_broken, 0);
	disk_let_go_of(&w.disk, HF_STORE_LOCKS);
	assert_int_equal(told.n_kept, 0); /* the registration is not there yet */
	disk_let_go_of(&w.disk, HF_STORE_CLIENTS);
	assert_int_equal(told.n_kept, 1);
	assert_true(ask(&told, a())); /* nothing new */
}

static void test_registration_first_lock_last(void **state)
{
	struct told told;

	w.disk.is_slow = true;
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_false(ask(&told, a()));
	world_turn(&w);
	disk_let_go_of(&w.disk, HF_STORE_CLIENTS);
	assert_int_equal(told.n_kept, 0);
	disk_let_go_of(&w.disk, HF_STORE_LOCKS);
	assert_int_equal(told.n_kept, 1);
}

static void test_who_is_registered_does_not_wait_for_who_is_not(void **state)
{
	struct told old, new;

	a();
	world_turn(&w);
	w.disk.is_slow = true;
	assert_int_equal(world_lock(&w, world_client(&w, "10.0.0.12", "new"), 1, "g", 0, 9), HF_LOCK_OK);
	assert_false(ask(&new, world_client(&w, "10.0.0.12", "new")));
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_false(ask(&old, a()));
	world_turn(&w);
	disk_let_go_of(&w.disk, HF_STORE_LOCKS);
	assert_int_equal(old.n_kept, 1);
	assert_int_equal(new.n_kept, 0);
	disk_let_go(&w.disk);
	assert_int_equal(new.n_kept, 1);
}

/* Two clients are being registered, one after the other: the second asks first. */
static void test_who_asks_later_and_was_registered_earlier(void **state)
{
	struct hf_client *earlier, *later;
	struct told first, second;

	w.disk.is_slow = true;
	earlier = a();
	world_turn(&w);
	later = world_client(&w, "10.0.0.12", "later");
	assert_false(ask(&second, later));
	assert_false(ask(&first, earlier));
	disk_let_go_of(&w.disk, HF_STORE_CLIENTS);
	assert_int_equal(first.n_kept, 1);
	assert_int_equal(second.n_kept, 0);
	world_turn(&w);
	disk_let_go(&w.disk);
	assert_int_equal(second.n_kept, 1);
}

static void test_the_first_is_not_behind_when_its_registration_is_stored(void **state)
{
	struct told first, second;

	a();
	world_turn(&w);
	w.disk.is_slow = true;
	assert_int_equal(world_lock(&w, world_client(&w, "10.0.0.12", "new"), 1, "g", 0, 9), HF_LOCK_OK);
	assert_false(ask(&first, world_client(&w, "10.0.0.12", "new")));
	world_until(&w, w.disk.n_held == 2); /* its lock and its registration are under way */
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_false(ask(&second, a()));
	disk_let_go_of(&w.disk, HF_STORE_CLIENTS);
	disk_let_go_of(&w.disk, HF_STORE_LOCKS);
	assert_int_equal(first.n_kept, 1);
	assert_int_equal(second.n_kept, 0);
	world_until(&w, w.disk.n_held == 1);
	disk_let_go(&w.disk);
	assert_int_equal(second.n_kept, 1);
}

static void test_told_in_order(void **state)
{
	struct told told[20];

	w.disk.is_slow = true;
	for (uint64_t i = 0; i < 20; i++) {
		assert_int_equal(world_lock(&w, a(), 1, "f", 10 * i, 10 * i + 5), HF_LOCK_OK);
		assert_false(ask(&told[i], a()));
	}
	world_until(&w, w.disk.n_held == 2);
	disk_let_go(&w.disk);
	for (int i = 0; i < 20; i++)
		assert_int_equal(told[i].order, i + 1);
}

static int32_t stored_state(void)
{
	struct hf_record record;

	for (uint32_t i = 0; i < w.disk.view.n; i++)
		if (disk_record_read(&w.disk.view.records[i], HF_RECORD_CLIENT, &record))
			return record.client.sm_state;
	return -1;
}

/* If the server answered before the number is stored, it would take the number in the next LOCK for another
 * restart after a crash. */
static void test_restart_of_a_client_is_acknowledged_with_its_state_number(void **state)
{
	struct told told = { 0 };

	hf_recovery_client_state(w.recovery, a(), 3);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_until(&w, stored_state() == 3);
	w.disk.is_slow = true;
	hf_recovery_client_freed(w.recovery, a(), 5);
	assert_false(delay(&told, HF_SAYS_RESTARTED, NULL));
	world_turn(&w);
	disk_let_go_of(&w.disk, HF_STORE_LOCKS);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 0);
	world_turn(&w);
	assert_int_equal(stored_state(), 3);
	assert_int_equal(told.n_kept + told.n_broken, 0);
	disk_let_go_of(&w.disk, HF_STORE_CLIENTS);
	assert_int_equal(stored_state(), 5);
	assert_int_equal(told.n_kept, 1);
	assert_true(delay(&told, HF_SAYS_RESTARTED, NULL)); /* nothing new */
}

static void test_restart_of_a_client_is_acknowledged_while_the_next_one_is_stored(void **state)
{
	struct told first = { 0 }, second = { 0 };

	hf_recovery_client_state(w.recovery, a(), 3);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_until(&w, stored_state() == 3);
	w.disk.is_slow = true;
	hf_recovery_client_freed(w.recovery, a(), 5);
	assert_false(delay(&first, HF_SAYS_RESTARTED, NULL));
	world_turn(&w);
	assert_int_equal(w.disk.n_held, 1);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	hf_recovery_client_freed(w.recovery, a(), 7);
	assert_false(delay(&second, HF_SAYS_RESTARTED, NULL));
	disk_let_go_of_first(&w.disk);
	assert_int_equal(first.n_kept + first.n_broken, 0);
	world_turn(&w);
	disk_let_go_of(&w.disk, HF_STORE_CLIENTS);
	assert_int_equal(stored_state(), 5);
	assert_int_equal(first.n_kept, 1);
	assert_int_equal(second.n_kept + second.n_broken, 0);
	disk_let_go_of(&w.disk, HF_STORE_LOCKS);
	world_turn(&w);
	disk_let_go_of(&w.disk, HF_STORE_CLIENTS);
	assert_int_equal(stored_state(), 7);
	assert_int_equal(second.n_kept, 1);
}

static void test_restart_of_a_client_that_cannot_be_stored(void **state)
{
	struct told told = { 0 };

	hf_recovery_client_state(w.recovery, a(), 3);
	world_until(&w, stored_state() == 3);
	w.disk.is_broken = true;
	hf_recovery_client_freed(w.recovery, a(), 5);
	assert_false(delay(&told, HF_SAYS_RESTARTED, NULL));
	world_until(&w, told.n_broken);
	assert_int_equal(told.n_kept, 0);
}

static void test_one_promise_for_all_that_is_written_together(void **state)
{
	struct told many, one, late;

	a();
	world_turn(&w);
	w.disk.is_slow = true;
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(hf_recovery_durability(w.recovery, a()), HF_DURABLE_SOON);
	assert_false(ask(&many, NULL));
	assert_int_equal(world_lock(&w, a(), 1, "f", 20, 29), HF_LOCK_OK);
	assert_false(ask(&one, a()));
	assert_int_equal(world_lock(&w, a(), 1, "f", 40, 49), HF_LOCK_OK);
	assert_true(hf_recovery_promise_more(w.recovery, &many.promise));
	world_until(&w, w.disk.n_held == 1); /* all three are under way */
	assert_int_equal(world_lock(&w, a(), 1, "f", 60, 69), HF_LOCK_OK);
	assert_false(hf_recovery_promise_more(w.recovery, &many.promise));
	assert_false(ask(&late, a()));
	disk_let_go_of(&w.disk, HF_STORE_LOCKS);
	assert_int_equal(many.n_kept, 1);
	assert_int_equal(one.order, 1);
	assert_int_equal(many.order, 2); /* it is about what came last */
	assert_int_equal(late.n_kept, 0);
	world_until(&w, w.disk.n_held == 1);
	disk_let_go(&w.disk);
	assert_int_equal(late.n_kept, 1);
}

static void test_one_promise_for_many_is_broken_once(void **state)
{
	struct told many;

	a();
	world_turn(&w);
	w.disk.is_broken = true;
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_false(ask(&many, NULL));
	assert_int_equal(world_lock(&w, a(), 1, "f", 20, 29), HF_LOCK_OK);
	assert_true(hf_recovery_promise_more(w.recovery, &many.promise));
	world_until(&w, many.n_broken == 1);
	assert_int_equal(hf_recovery_durability(w.recovery, a()), HF_DURABLE_NOT);
	world_unlock(&w, a(), 1, "f", 0, 29);
	w.disk.is_broken = false;
	world_until(&w, hf_recovery_can_promise(w.recovery));
	assert_int_equal(many.n_kept, 0);
}

static void test_cancelled(void **state)
{
	struct told told = { 0 }, never = { 0 };

	w.disk.is_slow = true;
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_false(ask(&told, a()));
	hf_promise_cancel(&told.promise);
	hf_promise_cancel(&told.promise);
	hf_promise_cancel(&never.promise);
	world_turn(&w);
	disk_let_go(&w.disk);
	assert_int_equal(told.n_kept + told.n_broken, 0);
}

static size_t n_dropped;

static void on_drop(struct hf_promise *promise)
{
	n_dropped += hf_container_of(promise, struct told, promise)->n_kept == 0;
}

/* A service that ends gets back what still waits, once, and is told nothing afterwards. */
static void test_a_service_that_ends_waits_for_nothing(void **state)
{
	struct told soon, lock, restart;

	hf_recovery_client_state(w.recovery, a(), 3);
	world_until(&w, stored_state() == 3);
	assert_true(ask(&soon, a()));
	w.disk.is_slow = true;
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_false(ask(&lock, a()));
	hf_recovery_client_freed(w.recovery, a(), 5);
	assert_false(delay(&restart, HF_SAYS_RESTARTED, NULL));
	world_turn(&w);
	disk_let_go_of(&w.disk, HF_STORE_LOCKS);
	assert_int_equal(lock.n_kept, 1);
	assert_int_equal(restart.n_kept, 0); /* its number is on the way */
	n_dropped = 0;
	hf_delays_end(&delays, on_drop);
	hf_delays_end(&delays, on_drop);
	assert_int_equal(n_dropped, 1);
	world_turn(&w);
	disk_let_go(&w.disk);
	assert_int_equal(restart.n_kept + restart.n_broken, 0);
}

static void test_broken_when_the_store_fails_and_all_is_written_when_it_is_back(void **state)
{
	struct told told, later;
	struct hf_client *client = a();

	assert_int_equal(world_lock(&w, client, 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	w.disk.is_broken = true;
	assert_int_equal(world_lock(&w, client, 1, "f", 20, 29), HF_LOCK_OK);
	assert_false(ask(&told, client));
	world_until(&w, told.n_broken == 1);
	assert_int_equal(told.n_kept, 0);
	assert_false(hf_recovery_can_promise(w.recovery));
	/* The grant is taken back; the client unlocks; what remains is true. */
	world_unlock(&w, client, 1, "f", 20, 29);
	world_unlock(&w, client, 1, "f", 3, 4);
	assert_int_equal(world_lock(&w, client, 2, "g", 0, 0), HF_LOCK_OK);
	assert_false(ask(&later, client));
	world_until(&w, later.n_broken == 1);
	w.disk.is_broken = false;
	world_until(&w, hf_recovery_can_promise(w.recovery));
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 3);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_CLIENT), 1);
	world_restart(&w);
	assert_int_equal(world_unreclaimed(&w), 3);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 2), HF_LOCK_OK);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 5, 9), HF_LOCK_OK);
	assert_int_equal(world_reclaim(&w, a(), 2, "g", 0, 0), HF_LOCK_OK);
}

/* A notice that is answered is never repeated. */
static void test_what_ends_in_an_outage_is_promised_when_it_is_over(void **state)
{
	struct told told, again;

	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	w.disk.is_broken = true;
	world_client(&w, "10.0.0.13", "fails");
	world_until(&w, !hf_recovery_can_promise(w.recovery));
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	assert_false(ask(&told, a()));
	world_until(&w, told.n_broken == 1);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 1);
	w.disk.is_broken = false;
	world_until(&w, hf_recovery_can_promise(w.recovery));
	assert_true(ask(&again, a()));
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 0);
}

static bool ask_release(struct told *told)
{
	*told = (struct told){ 0 };
	return delay(told, HF_SAYS_RELEASED, NULL);
}

/* Until then the store has what was released, and a crash would bring it back. */
static void test_a_release_while_everything_is_written_anew(void **state)
{
	struct told away, behind, lost;

	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_lock(&w, a(), 1, "f", 20, 29), HF_LOCK_OK);
	assert_int_equal(world_lock(&w, a(), 1, "f", 40, 49), HF_LOCK_OK);
	world_turn(&w);
	w.disk.is_broken = true;
	world_client(&w, "10.0.0.13", "fails");
	world_until(&w, !hf_recovery_can_promise(w.recovery));
	world_unlock(&w, a(), 1, "f", 0, 9);
	assert_true(hf_recovery_is_release_durable(w.recovery));
	assert_true(ask_release(&away)); /* what is written anew does not have it */
	w.disk.is_broken = false;
	w.disk.is_slow = true;
	world_until(&w, w.disk.n_held == 1); /* everything, with the second lock */
	world_unlock(&w, a(), 1, "f", 20, 29);
	assert_false(hf_recovery_can_promise(w.recovery));
	assert_false(hf_recovery_is_release_durable(w.recovery));
	assert_false(ask_release(&behind));
	disk_let_go(&w.disk);
	assert_true(hf_recovery_can_promise(w.recovery));
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 2);
	assert_int_equal(behind.n_kept + behind.n_broken, 0);
	world_until(&w, w.disk.n_held == 1);
	disk_let_go(&w.disk);
	assert_int_equal(behind.n_kept, 1);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 1);
	world_unlock(&w, a(), 1, "f", 40, 49);
	assert_false(ask_release(&lost));
	world_until(&w, w.disk.n_held == 1);
	w.disk.is_broken = true;
	disk_let_go(&w.disk);
	assert_int_equal(lost.n_broken, 1); /* and is released nevertheless */
}

static void test_a_resync_has_unreclaimed_locks_and_ghosts(void **state)
{
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_lock(&w, world_client(&w, "10.0.0.66", "refuses"), 1, "g", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	world_restart(&w);
	world_until(&w, world_client(&w, "10.0.0.66", "refuses")->status == HF_CLIENT_CRASHED);
	w.disk.is_broken = true;
	world_client(&w, "10.0.0.13", "another"); /* whose record cannot be written */
	world_until(&w, !hf_recovery_can_promise(w.recovery));
	w.disk.is_broken = false;
	world_until(&w, hf_recovery_can_promise(w.recovery));
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 2);
	world_restart(&w);
	assert_int_equal(world_unreclaimed(&w), 2);
}

static void test_put_and_deleted_in_one_turn_is_not_written(void **state)
{
	struct hf_store_counts before, after;

	a();
	world_turn(&w);
	hf_store_counts(hf_recovery_store(w.recovery), &before);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
		world_unlock(&w, a(), 1, "f", 0, 9);
	}
	world_turn(&w);
	hf_store_counts(hf_recovery_store(w.recovery), &after);
	assert_int_equal(after.n_records, before.n_records);
}

static void test_max_clients(void **state)
{
	struct hf_client *client;
	struct hf_addr addr;

	world_kill(&w);
	w.options.max_clients = 2;
	world_up(&w);
	assert_int_equal(world_lock(&w, world_client(&w, "10.0.0.1", "one"), 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_lock(&w, world_client(&w, "10.0.0.2", "two"), 1, "g", 0, 9), HF_LOCK_OK);
	assert_true(hf_addr_parse(&addr, "10.0.0.3"));
	assert_int_equal(hf_clients_get(&client, hf_recovery_clients(w.recovery), "nlm", &addr,
					hf_bytes_of_str("three")),
			 0);
	assert_int_equal(hf_client_register(client), HF_CLIENT_E_LIMIT);
	hf_client_unref(client);
	world_client(&w, "10.0.0.2", "two"); /* the same again is fine */
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_CLIENT), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_told_when_the_store_has_it),
		T(test_registration_first_lock_last),
		T(test_who_is_registered_does_not_wait_for_who_is_not),
		T(test_the_first_is_not_behind_when_its_registration_is_stored),
		T(test_told_in_order),
		T(test_restart_of_a_client_is_acknowledged_with_its_state_number),
		T(test_restart_of_a_client_is_acknowledged_while_the_next_one_is_stored),
		T(test_restart_of_a_client_that_cannot_be_stored),
		T(test_one_promise_for_all_that_is_written_together),
		T(test_one_promise_for_many_is_broken_once),
		T(test_cancelled),
		T(test_a_service_that_ends_waits_for_nothing),
		T(test_broken_when_the_store_fails_and_all_is_written_when_it_is_back),
		T(test_what_ends_in_an_outage_is_promised_when_it_is_over),
		T(test_a_release_while_everything_is_written_anew),
		T(test_a_resync_has_unreclaimed_locks_and_ghosts),
		T(test_put_and_deleted_in_one_turn_is_not_written),
		T(test_who_asks_later_and_was_registered_earlier),
		T(test_max_clients),
	};

	return cmocka_run_group_tests_name("promise", tests, NULL, NULL);
}
