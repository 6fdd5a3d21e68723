/*
 * What every store must do, whatever it is made of. The one argument names the
 * backend: memory, lmdb or postgres.
 */
#include "kit.h"

#include <errno.h>
#include <stdio.h>

#include "cluster.h"
#include "base/log.h"
#include "base/macros.h"
#include "store/state.h"

static const struct kit_backend *backend; /* (c) from the command line */

/* Start */

static void test_epoch_and_state_rise(void **state)
{
	struct kit kit;
	int32_t before;

	kit_init(&kit, backend, HF_STORE_PROCESS);
	kit_open(&kit);
	assert_true(kit.start.is_first);
	assert_false(kit.start.was_clean);
	assert_false(kit.start.has_all_locks);
	assert_true(kit.start.sm_state > 0 && kit.start.sm_state % 2 == 1);
	if (!backend->is_volatile) {
		assert_int_equal(kit.start.epoch, 1);
		assert_int_equal(kit.start.sm_state, 3);
		for (int i = 2; i < 6; i++) {
			before = kit.start.sm_state;
			kit_reopen(&kit);
			assert_false(kit.start.is_first);
			assert_int_equal(kit.start.epoch, i);
			assert_int_equal(kit.start.sm_state, before + 2);
		}
	}
	kit_deinit(&kit);
}

static void test_state_number_wraps(void **state)
{
	assert_int_equal(hf_store_next_sm_state(0), 3);
	assert_int_equal(hf_store_next_sm_state(3), 5);
	assert_int_equal(hf_store_next_sm_state(4), 7);
	assert_int_equal(hf_store_next_sm_state(-7), 3);
	assert_int_equal(hf_store_next_sm_state(INT32_MAX - 2), INT32_MAX);
	assert_int_equal(hf_store_next_sm_state(INT32_MAX - 1), 1);
	assert_int_equal(hf_store_next_sm_state(INT32_MAX), 1);
}

static void test_clean_marker(void **state)
{
	struct kit kit;

	kit_init(&kit, backend, HF_STORE_PROCESS);
	kit_open(&kit);
	kit_put_client(&kit, 1, 1);
	assert_int_equal(hf_store_mark_clean(kit.store), backend->is_volatile ? 0 : -EBUSY);
	kit_settle(&kit);
	assert_int_equal(hf_store_mark_clean(kit.store), 0);
	kit_reopen(&kit);
	assert_int_equal(kit.start.was_clean, !backend->is_volatile);
	kit_expect(&kit);
	kit_reopen(&kit); /* cleared by the start */
	assert_false(kit.start.was_clean);
	kit_deinit(&kit);
}

/* A timer may fire between the marker and the end of the process. */
static void test_nothing_is_stored_after_the_clean_marker(void **state)
{
	const char *id = "nlm:192.0.2.1:host-1"; /* as kit_put_client() names it */
	struct kit kit;

	kit_init(&kit, backend, HF_STORE_PROCESS);
	kit_open(&kit);
	kit_put_client(&kit, 1, 1);
	kit_settle(&kit);
	assert_int_equal(hf_store_mark_clean(kit.store), 0);
	assert_int_equal(hf_store_delete_client(kit.store, hf_bytes_of_str(id), NULL), 0);
	for (int i = 0; i < 2000; i++) /* time for a commit, which must not begin */
		kit_turn(&kit);
	kit_reopen(&kit);
	assert_int_equal(kit.start.was_clean, !backend->is_volatile);
	kit_expect(&kit);
	kit_deinit(&kit);
}

static void test_new_ids_rise_over_restarts(void **state)
{
	struct kit kit;
	uint64_t before = 0;

	kit_init(&kit, backend, HF_STORE_PROCESS);
	kit_open(&kit);
	for (int i = 0; i < 3; i++) {
		uint64_t first = hf_store_new_id(kit.store), second = hf_store_new_id(kit.store);

		assert_true(first > before && second > first);
		before = backend->is_volatile ? 0 : second;
		kit_reopen(&kit);
	}
	kit_deinit(&kit);
}

/* Reload */

static void test_reload_equals_what_was_written(void **state)
{
	uint64_t ids[400], reservations[40];
	struct kit kit;

	kit_init(&kit, backend, HF_STORE_PROCESS);
	kit_open(&kit);
	for (unsigned int i = 0; i < 60; i++)
		kit_put_client(&kit, i, i * 3);
	for (unsigned int i = 0; i < HF_ARRAY_SIZE(ids); i++) {
		kit_put_lock(&kit, ids[i] = hf_store_new_id(kit.store), i);
		if (i % 37 == 0)
			kit_turn(&kit);
	}
	for (unsigned int i = 0; i < HF_ARRAY_SIZE(reservations); i++)
		kit_put_reservation(&kit, reservations[i] = hf_store_new_id(kit.store), i * 11);
	kit_settle(&kit);
	kit_reopen(&kit);
	kit_expect(&kit);

	/* Changes of what is there, and deletes, also of what is not. */
	for (unsigned int i = 0; i < 60; i += 2)
		kit_put_client(&kit, i, i + 1000);
	for (unsigned int i = 0; i < 60; i += 3)
		kit_delete_client(&kit, i);
	kit_delete_client(&kit, 1234);
	for (unsigned int i = 0; i < HF_ARRAY_SIZE(ids); i += 2)
		kit_put_lock(&kit, ids[i], i + 5000);
	for (unsigned int i = 0; i < HF_ARRAY_SIZE(ids); i += 5)
		kit_delete_lock(&kit, ids[i]);
	for (unsigned int i = 0; i < HF_ARRAY_SIZE(reservations); i += 3)
		kit_delete_reservation(&kit, reservations[i]);
	kit_delete_lock(&kit, ids[0]);
	kit_settle(&kit);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

static void test_last_write_of_a_turn_counts(void **state)
{
	struct kit kit;
	uint64_t id;

	kit_init(&kit, backend, HF_STORE_PROCESS);
	kit_open(&kit);
	id = hf_store_new_id(kit.store);
	for (unsigned int i = 0; i < 9; i++) {
		kit_put_client(&kit, 1, i);
		kit_put_lock(&kit, id, i);
	}
	kit_settle(&kit);
	for (unsigned int i = 0; i < 9; i++) {
		kit_delete_client(&kit, 1);
		kit_put_client(&kit, 1, i + 20);
		kit_put_lock(&kit, id, i + 30);
	}
	kit_settle(&kit);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

static int stop_at_third(void *user, const struct hf_store_lock *lock)
{
	return ++*(int *)user == 3 ? 77 : 0;
}

static void test_load_can_be_stopped(void **state)
{
	struct kit kit;
	int n = 0;

	kit_init(&kit, backend, HF_STORE_PROCESS);
	kit_open(&kit);
	for (unsigned int i = 0; i < 9; i++)
		kit_put_lock(&kit, hf_store_new_id(kit.store), i);
	kit_settle(&kit);
	kit_reopen(&kit);
	assert_int_equal(hf_store_load_locks(kit.store, stop_at_third, &n), backend->is_volatile ? 0 : 77);
	assert_int_equal(n, backend->is_volatile ? 0 : 3);
	n = 5;
	assert_int_equal(hf_store_load_locks(kit.store, stop_at_third, &n), 0);
	kit_deinit(&kit);
}

static void test_clear_takes_all_but_the_state(void **state)
{
	struct kit kit;

	kit_init(&kit, backend, HF_STORE_PROCESS);
	kit_open(&kit);
	for (unsigned int i = 0; i < 20; i++) {
		kit_put_client(&kit, i, i);
		kit_put_lock(&kit, hf_store_new_id(kit.store), i);
		kit_put_reservation(&kit, hf_store_new_id(kit.store), i);
	}
	kit_settle(&kit);
	assert_int_equal(hf_store_clear(kit.store), 0);
	kit_facts_drop(&kit.facts, true, true);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 99);
	kit_settle(&kit);
	kit_reopen(&kit);
	kit_expect(&kit);
	if (!backend->is_volatile)
		assert_int_equal(kit.start.epoch, 2);
	kit_deinit(&kit);
}

/* Tickets */

static void open_with_key(struct kit *kit, uint64_t key, int expected)
{
	kit_close(kit);
	kit->options.handle_key = key;
	kit->reached[0] = kit->reached[1] = kit->last_ticket = 0;
	assert_int_equal(kit->backend->open(kit), 0);
	assert_int_equal(hf_store_begin_epoch(kit->store, &kit->start), expected);
}

/* Facts with handles of one key are not given to a server with another. */
static void test_key_of_the_handles(void **state)
{
	int refused = backend->is_volatile ? 0 : -EKEYREJECTED;
	struct kit kit;

	kit_init(&kit, backend, HF_STORE_PROCESS);
	open_with_key(&kit, 5, 0);
	assert_int_equal(hf_store_name_key(kit.store, 5), 0);
	open_with_key(&kit, 6, 0); /* nothing is stored that it matters for */
	assert_int_equal(hf_store_name_key(kit.store, 6), 0);
	kit_put_client(&kit, 1, 1);
	kit_settle(&kit);
	open_with_key(&kit, 5, refused);
	open_with_key(&kit, 6, 0);
	kit_delete_client(&kit, 1);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 1);
	kit_settle(&kit);
	open_with_key(&kit, 7, refused);
	open_with_key(&kit, 6, 0);
	assert_true(backend->is_volatile || kit.start.epoch == 4); /* a refusal changes nothing */
	if (!backend->is_volatile)
		kit_expect(&kit);
	open_with_key(&kit, 0, 0); /* it does not look at handles, and forgets nothing */
	open_with_key(&kit, 7, refused);
	open_with_key(&kit, 0, 0);
	assert_int_equal(hf_store_clear(kit.store), 0);
	assert_int_equal(hf_store_name_key(kit.store, 7), 0);
	open_with_key(&kit, 7, 0);
	kit_put_reservation(&kit, hf_store_new_id(kit.store), 1);
	kit_settle(&kit);
	open_with_key(&kit, 6, refused);
	kit_deinit(&kit);
}

static void test_tickets_are_reached_in_order(void **state)
{
	struct kit kit;
	uint64_t lock, client, both;

	kit_init(&kit, backend, HF_STORE_MACHINE);
	kit_open(&kit);
	assert_true(hf_store_is_idle(kit.store));
	lock = kit_put_lock(&kit, hf_store_new_id(kit.store), 1);
	kit_put_client(&kit, 1, 1);
	client = kit.last_ticket;
	assert_true(client > lock);
	if (backend->is_volatile) {
		assert_int_equal(hf_store_reached(kit.store, HF_STORE_ALL), client);
	} else {
		assert_true(hf_store_reached(kit.store, HF_STORE_LOCKS) < lock);
		assert_true(hf_store_reached(kit.store, HF_STORE_CLIENTS) < client);
		assert_false(hf_store_is_idle(kit.store));
	}
	kit_settle(&kit);
	/* A kind with nothing to write does not delay a caller that waits for all kinds. */
	both = kit_put_lock(&kit, hf_store_new_id(kit.store), 2);
	kit_settle(&kit);
	assert_true(hf_store_reached(kit.store, HF_STORE_CLIENTS) >= both);
	assert_true(hf_store_reached(kit.store, HF_STORE_ALL) >= both);
	kit_deinit(&kit);
}

static void test_one_commit_a_turn(void **state)
{
	struct hf_store_counts before, after;
	struct kit kit;

	kit_init(&kit, backend, HF_STORE_PROCESS);
	kit_open(&kit);
	hf_store_counts(kit.store, &before);
	for (unsigned int i = 0; i < 500; i++)
		kit_put_lock(&kit, hf_store_new_id(kit.store), i);
	kit_settle(&kit);
	hf_store_counts(kit.store, &after);
	assert_int_equal(after.n_commits - before.n_commits, backend->is_volatile ? 0 : 1);
	assert_int_equal(after.n_records - before.n_records, backend->is_volatile ? 0 : 500);
	assert_int_equal(kit.n_commits, backend->is_volatile ? 0 : 1);
	kit_deinit(&kit);
}

static void test_put_and_delete_cancel_out(void **state)
{
	struct hf_store_counts before, after;
	struct kit kit;
	uint64_t kept, id, ticket;

	kit_init(&kit, backend, HF_STORE_PROCESS);
	kit_open(&kit);
	kept = hf_store_new_id(kit.store);
	kit_put_lock(&kit, kept, 1);
	kit_settle(&kit);
	hf_store_counts(kit.store, &before);
	for (unsigned int i = 0; i < 300; i++) {
		id = hf_store_new_id(kit.store);
		kit_put_lock(&kit, id, i);
		kit_put_lock(&kit, id, i + 1);
		kit_delete_lock(&kit, id);
		id = hf_store_new_id(kit.store);
		kit_put_reservation(&kit, id, i);
		kit_delete_reservation(&kit, id);
	}
	ticket = kit.last_ticket;
	kit_settle(&kit);
	hf_store_counts(kit.store, &after);
	assert_int_equal(after.n_commits, before.n_commits);
	assert_int_equal(after.n_records, before.n_records);
	assert_true(hf_store_reached(kit.store, HF_STORE_LOCKS) >= ticket);

	/* What is stored already does not cancel out: the delete must be written. */
	kit_put_lock(&kit, kept, 2);
	kit_delete_lock(&kit, kept);
	/* And around what cancels out the rest stays whole. */
	for (unsigned int i = 0; i < 50; i++) {
		id = hf_store_new_id(kit.store);
		kit_put_lock(&kit, id, i);
		if (i % 3)
			kit_delete_lock(&kit, id);
	}
	kit_settle(&kit);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

static void test_durability_none_stores_no_locks(void **state)
{
	struct kit kit;
	uint64_t ticket, id;

	kit_init(&kit, backend, HF_STORE_PROCESS);
	kit_open(&kit);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 1);
	kit_put_client(&kit, 1, 1);
	kit_settle(&kit);
	kit.options.durability = HF_STORE_NONE;
	kit_reopen(&kit);
	assert_int_equal(kit.start.dropped_locks, !backend->is_volatile);
	assert_false(kit.start.has_all_locks);
	kit_facts_drop(&kit.facts, true, false);
	kit_expect(&kit);
	id = hf_store_new_id(kit.store);
	ticket = kit_put_lock(&kit, id, 1);
	assert_true(hf_store_reached(kit.store, HF_STORE_LOCKS) >= ticket);
	kit_delete_lock(&kit, id);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 3);
	kit_settle(&kit);
	kit_facts_drop(&kit.facts, true, false);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

static void test_bounds(void **state)
{
	static uint8_t big[HF_STORE_MAX_BLOB + 1];
	struct hf_store_client client = kit_client(1, 1);
	struct hf_store_reservation reservation = { .blob = hf_bytes_of(big, sizeof(big)) };
	struct hf_store_lock lock;
	struct kit kit;

	if (backend->is_volatile)
		return; /* it looks at nothing */
	kit_init(&kit, backend, HF_STORE_PROCESS);
	kit_open(&kit);
	lock = kit_lock(hf_store_new_id(kit.store), 1);
	lock.handle = hf_bytes_of(big, HF_STORE_MAX_HANDLE + 1);
	assert_int_equal(hf_store_put_lock(kit.store, &lock, NULL), -EINVAL);
	lock = kit_lock(lock.id, 1);
	lock.oh = hf_bytes_of(big, HF_STORE_MAX_OH + 1);
	assert_int_equal(hf_store_put_lock(kit.store, &lock, NULL), -EINVAL);
	assert_int_equal(hf_store_put_reservation(kit.store, &reservation, NULL), -EINVAL);
	client.mon_name = hf_bytes_of(big, HF_STORE_MAX_NAME + 1);
	assert_int_equal(hf_store_put_client(kit.store, &client, NULL), -EINVAL);
	client = kit_client(1, 1);
	client.id.len = 0;
	assert_int_equal(hf_store_put_client(kit.store, &client, NULL), -EINVAL);
	assert_int_equal(hf_store_delete_client(kit.store, hf_bytes_of(big, HF_STORE_MAX_ID + 1), NULL),
			 -EINVAL);
	assert_true(hf_store_is_idle(kit.store));
	kit_expect(&kit);
	kit_deinit(&kit);
}

/* Is the list of locks complete? Which run came before, and what this start may believe. */

static void run_before(struct kit *kit, enum hf_store_durability durability, const char *boot_id)
{
	bool is_lost = kit->options.boot_id && strcmp(kit->options.boot_id, boot_id) != 0;

	kit->options.durability = durability;
	kit->options.boot_id = boot_id;
	if (is_lost && kit->backend->lose_machine) {
		kit->store = hf_store_free(kit->store);
		kit->backend->lose_machine(kit);
	}
	kit_reopen(kit);
}

static void complete(struct kit *kit)
{
	uint64_t ticket;

	assert_int_equal(hf_store_mark_complete(kit->store, &ticket), 0);
	kit->last_ticket = ticket;
	kit_settle(kit);
}

/* May a run go on where the last one ended? Then waiters are there again, and the state number stays. */

static void settle(struct kit *kit)
{
	uint64_t ticket;

	complete(kit);
	assert_int_equal(hf_store_mark_settled(kit->store, &ticket), 0);
	kit->last_ticket = ticket;
	kit_settle(kit);
}

static struct hf_store_waiter waiter_of(uint64_t id, bool is_granted)
{
	return (struct hf_store_waiter){
		.wants = { .id = id,
			   .export = hf_bytes_of_str("/data"),
			   .handle = hf_bytes_of_str("file"),
			   .client = hf_bytes_of_str("nlm:10.0.0.1:host"),
			   .oh = hf_bytes_of_str("7@host"),
			   .owner = 7,
			   .start = 10,
			   .end = UINT64_MAX >> 1,
			   .epoch = 1,
			   .client_state = 5,
			   .kind = 1,
			   .mode = 2 },
		.is_granted = is_granted,
		.route = hf_bytes_of_str("by the door"),
	};
}

static void put_waiter(struct kit *kit, uint64_t id, bool is_granted)
{
	struct hf_store_waiter waiter = waiter_of(id, is_granted);

	assert_int_equal(hf_store_put_waiter(kit->store, &waiter, &kit->last_ticket), 0);
}

struct waiters {
	struct hf_store_waiter expected[4];
	size_t n, n_seen;
};

static int see_waiter(void *user, const struct hf_store_waiter *waiter)
{
	struct waiters *waiters = user;
	const struct hf_store_waiter *expected = &waiters->expected[waiters->n_seen];
	static uint8_t bytes[2][HF_RECORD_MAX];

	assert_true(waiters->n_seen++ < waiters->n);
	assert_int_equal(hf_record_encode_waiter(bytes[0], waiter),
			 hf_record_encode_waiter(bytes[1], expected));
	assert_memory_equal(bytes[0], bytes[1], hf_record_length(bytes[0]));
	return 0;
}

static void expect_waiters(struct kit *kit, struct waiters *waiters)
{
	waiters->n_seen = 0;
	assert_int_equal(hf_store_load_waiters(kit->store, see_waiter, waiters), 0);
	assert_int_equal(waiters->n_seen, waiters->n);
}

static void test_going_on(void **state)
{
	struct waiters waiters = { .n = 2 };
	uint64_t ids[3];
	struct kit kit;
	int32_t number;

	if (backend->is_volatile)
		return;
	kit_init(&kit, backend, HF_STORE_PROCESS);
	kit.options.continues = true;
	kit_open(&kit);
	assert_false(kit.start.continues);
	settle(&kit);
	number = kit.start.sm_state;
	for (size_t i = 0; i < HF_ARRAY_SIZE(ids); i++) {
		ids[i] = hf_store_new_id(kit.store);
		put_waiter(&kit, ids[i], false);
	}
	kit_settle(&kit);
	put_waiter(&kit, ids[0], true); /* granted: the record changes, and stays the first */
	assert_int_equal(hf_store_delete_waiter(kit.store, ids[1], &kit.last_ticket), 0);
	kit_settle(&kit);

	run_before(&kit, HF_STORE_PROCESS, "boot-1"); /* the daemon died */
	assert_true(kit.start.continues);
	assert_int_equal(kit.start.sm_state, number);
	assert_int_equal(kit.start.epoch, 2);
	waiters.expected[0] = waiter_of(ids[0], true);
	waiters.expected[1] = waiter_of(ids[2], false);
	expect_waiters(&kit, &waiters);
	assert_true(hf_store_new_id(kit.store) > ids[2]);

	run_before(&kit, HF_STORE_PROCESS, "boot-1"); /* and again */
	assert_true(kit.start.continues);
	run_before(&kit, HF_STORE_PROCESS, "boot-2"); /* the machine died: locks may be lost */
	assert_false(kit.start.continues);
	assert_int_equal(kit.start.sm_state, number + 2);
	waiters.n = 0;
	expect_waiters(&kit, &waiters);
	run_before(&kit, HF_STORE_PROCESS, "boot-2"); /* the daemon died while clients reclaimed */
	assert_false(kit.start.continues);
	settle(&kit);
	kit.options.continues = false;
	run_before(&kit, HF_STORE_PROCESS, "boot-2"); /* the operator does not want it */
	assert_false(kit.start.continues);
	complete(&kit);
	kit.options.continues = true;
	run_before(&kit, HF_STORE_PROCESS, "boot-2"); /* the last run stored no waiters */
	assert_false(kit.start.continues);
	settle(&kit);
	assert_int_equal(hf_store_raise_state(kit.store, &number, &kit.last_ticket), 0);
	kit_settle(&kit);
	run_before(&kit, HF_STORE_PROCESS, "boot-2"); /* it died after it feigned a restart */
	assert_false(kit.start.continues);
	kit_deinit(&kit);
}

static void test_completeness(void **state)
{
	struct kit kit;

	if (backend->is_volatile)
		return;
	kit_init(&kit, backend, HF_STORE_PROCESS);
	kit_open(&kit);
	complete(&kit);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 1);
	kit_settle(&kit);

	run_before(&kit, HF_STORE_PROCESS, "boot-1"); /* the daemon died */
	assert_true(kit.start.has_all_locks);
	assert_false(kit.start.has_other_boot);
	kit_expect(&kit);
	run_before(&kit, HF_STORE_PROCESS, "boot-2"); /* the machine died */
	assert_false(kit.start.has_all_locks);
	assert_true(kit.start.has_other_boot);
	assert_true(kit.start.dropped_locks);
	kit_facts_drop(&kit.facts, true, false);
	kit_expect(&kit);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 2); /* reclaimed in grace */
	kit_settle(&kit);
	run_before(&kit, HF_STORE_PROCESS, "boot-2"); /* the daemon died within that grace */
	assert_false(kit.start.has_all_locks);
	assert_false(kit.start.dropped_locks);
	kit_expect(&kit);
	complete(&kit); /* grace has ended */
	run_before(&kit, HF_STORE_MACHINE, "boot-2");
	assert_true(kit.start.has_all_locks);
	run_before(&kit, HF_STORE_MACHINE, "boot-3"); /* synced: the machine may die */
	assert_true(kit.start.has_all_locks);
	assert_true(kit.start.has_other_boot);
	kit_expect(&kit);
	run_before(&kit, HF_STORE_PROCESS, "boot-4"); /* what counts is what the run before promised */
	assert_true(kit.start.has_all_locks);
	kit_expect(&kit);
	run_before(&kit, HF_STORE_NONE, "boot-4");
	assert_false(kit.start.has_all_locks);
	complete(&kit);
	run_before(&kit, HF_STORE_PROCESS, "boot-4"); /* the run before stored no locks */
	assert_false(kit.start.has_all_locks);
	kit_deinit(&kit);
}

/* Failure */

static bool has_failed(struct kit *kit)
{
	return kit->n_failed > 0;
}

static bool has_recovered(struct kit *kit)
{
	return kit->n_recovered > 0;
}

static void lose_something(struct kit *kit, bool client)
{
	struct hf_store_lock lock = kit_lock(hf_store_new_id(kit->store), 77);
	struct hf_store_client lost = kit_client(500, 1);
	uint64_t reached = hf_store_reached(kit->store, HF_STORE_ALL), ticket;

	kit->backend->break_medium(kit);
	kit->n_failed = kit->n_recovered = kit->n_resync = 0;
	if (client)
		assert_int_equal(hf_store_put_client(kit->store, &lost, &ticket), 0);
	else
		assert_int_equal(hf_store_put_lock(kit->store, &lock, &ticket), 0);
	kit_run_until(kit, has_failed);
	assert_false(hf_store_is_healthy(kit->store));
	assert_true(kit->first_lost > reached && kit->first_lost <= ticket);
	assert_true(hf_store_reached(kit->store, client ? HF_STORE_CLIENTS : HF_STORE_LOCKS) < ticket);
	assert_int_equal(hf_store_put_lock(kit->store, &lock, NULL), -EROFS);
	assert_int_equal(hf_store_delete_lock(kit->store, lock.id, NULL), -EROFS);
	assert_int_equal(hf_store_put_client(kit->store, &lost, NULL), -EROFS);
	assert_int_equal(hf_store_mark_clean(kit->store), -EROFS);
	assert_int_equal(kit->n_failed, 1);
}

static void test_failure_and_resync(void **state)
{
	struct kit kit;
	uint64_t first;
	char key[32];

	if (backend->is_volatile)
		return;
	for (int round = 0; round < 2; round++) {
		kit_init(&kit, backend, HF_STORE_PROCESS);
		kit_open(&kit);
		first = hf_store_new_id(kit.store);
		kit_put_lock(&kit, first, 0);
		for (unsigned int i = 0; i < 20; i++) {
			kit_put_client(&kit, i, i);
			kit_put_lock(&kit, hf_store_new_id(kit.store), i);
			kit_put_reservation(&kit, hf_store_new_id(kit.store), i);
		}
		kit_settle(&kit);
		kit_reopen(&kit); /* wherever the newest are kept first, they are not only there now */
		lose_something(&kit, round == 1);
		/* What changes meanwhile reaches the store by the resync. */
		snprintf(key, sizeof(key), "%020llu", (unsigned long long)first);
		kit_facts_delete(&kit.facts, HF_RECORD_LOCK, key);
		kit_facts_drop(&kit.facts, false, true);
		kit.backend->repair_medium(&kit);
		kit_run_until(&kit, has_recovered);
		assert_int_equal(kit.n_resync, 1);
		kit_put_lock(&kit, hf_store_new_id(kit.store), 1000);
		kit_settle(&kit);
		kit_reopen(&kit);
		kit_expect(&kit);
		kit_deinit(&kit);
	}
}

static void test_failure_of_the_idle_store_loses_nothing(void **state)
{
	struct kit kit;

	if (backend->is_volatile)
		return;
	kit_init(&kit, backend, HF_STORE_MACHINE);
	kit_open(&kit);
	for (unsigned int i = 0; i < 20; i++)
		kit_put_lock(&kit, hf_store_new_id(kit.store), i);
	kit_settle(&kit);
	kit.backend->break_medium(&kit);
	kit_close(&kit);
	kit.backend->repair_medium(&kit);
	kit_open(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

/* A store that is freed with work under way gives up without harm. */
static void test_free_while_writing(void **state)
{
	struct kit kit;

	for (int i = 0; i < 10; i++) {
		kit_init(&kit, backend, HF_STORE_MACHINE);
		kit_open(&kit);
		kit_put_client(&kit, 1, 1);
		kit_put_lock(&kit, hf_store_new_id(kit.store), 1);
		if (i % 2)
			kit_turn(&kit);
		kit_close(&kit);
		kit_deinit(&kit);
	}
}

/* Size */

static int count_lock(void *user, const struct hf_store_lock *lock)
{
	++*(uint64_t *)user;
	return 0;
}

static void test_a_million_locks(void **state)
{
	const unsigned int n = 1000000;
	uint64_t found = 0, began, ticket = 0;
	struct kit kit;

	kit_init(&kit, backend, HF_STORE_PROCESS);
	kit_open(&kit);
	began = hf_loop_clock(kit.loop);
	for (unsigned int i = 0; i < n; i++) {
		struct hf_store_lock lock = kit_lock(hf_store_new_id(kit.store), i % 96 + 1);

		assert_int_equal(hf_store_put_lock(kit.store, &lock, &ticket), 0);
		if (i % 10000 == 0) {
			kit.last_ticket = ticket;
			kit_settle(&kit);
		}
	}
	kit.last_ticket = ticket;
	kit_settle(&kit);
	print_message("%s: 1 M locks put in %.2f s\n", backend->name,
		      (double)(hf_loop_clock(kit.loop) - began) / 1e9);
	began = hf_loop_clock(kit.loop);
	kit_reopen(&kit);
	assert_int_equal(hf_store_load_locks(kit.store, count_lock, &found), 0);
	print_message("%s: opened and loaded in %.2f s\n", backend->name,
		      (double)(hf_loop_clock(kit.loop) - began) / 1e9);
	assert_int_equal(found, backend->is_volatile ? 0 : n);
	kit_deinit(&kit);
}

int main(int argc, char **argv)
{
	static const struct kit_backend *const backends[] = { &kit_memory, &kit_lmdb, &kit_postgres };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_epoch_and_state_rise),
		cmocka_unit_test(test_state_number_wraps),
		cmocka_unit_test(test_clean_marker),
		cmocka_unit_test(test_nothing_is_stored_after_the_clean_marker),
		cmocka_unit_test(test_new_ids_rise_over_restarts),
		cmocka_unit_test(test_reload_equals_what_was_written),
		cmocka_unit_test(test_last_write_of_a_turn_counts),
		cmocka_unit_test(test_load_can_be_stopped),
		cmocka_unit_test(test_clear_takes_all_but_the_state),
		cmocka_unit_test(test_key_of_the_handles),
		cmocka_unit_test(test_tickets_are_reached_in_order),
		cmocka_unit_test(test_one_commit_a_turn),
		cmocka_unit_test(test_put_and_delete_cancel_out),
		cmocka_unit_test(test_durability_none_stores_no_locks),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_completeness),
		cmocka_unit_test(test_going_on),
		cmocka_unit_test(test_failure_and_resync),
		cmocka_unit_test(test_failure_of_the_idle_store_loses_nothing),
		cmocka_unit_test(test_free_while_writing),
		cmocka_unit_test(test_a_million_locks),
	};

	for (size_t i = 0; i < HF_ARRAY_SIZE(backends) && argc == 2; i++) {
		if (strcmp(argv[1], backends[i]->name) == 0)
			backend = backends[i];
	}
	if (!backend) {
		fprintf(stderr, "usage: %s memory|lmdb|postgres\n", argv[0]);
		return 2;
	}
	if (backend == &kit_postgres && !cluster_is_possible())
		return 77; /* skipped */
	return cmocka_run_group_tests_name(backend->name, tests, NULL, NULL);
}
