/* Restarts: what is loaded, whether there is a grace, how it ends, and what comes after. */
#include "one.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recovery/internal.h"

/* Two locks of alpha, one of carol, killed and up again. */
static void three_locks_and_a_crash(void)
{
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_lock(&w, a(), 1, "f", 20, 29), HF_LOCK_OK);
	assert_int_equal(world_lock(&w, c(), 1, "g", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	world_restart(&w);
}

static void test_first_start_has_no_grace_and_an_odd_state(void **state)
{
	assert_false(world_in_grace(&w));
	assert_int_equal(hf_recovery_state(w.recovery) % 2, 1);
	assert_int_equal(hf_recovery_epoch(w.recovery), 1);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
}

static void test_state_grows_over_restarts(void **state)
{
	int32_t before = hf_recovery_state(w.recovery);

	for (int i = 0; i < 5; i++) {
		world_restart(&w);
		assert_true(hf_recovery_state(w.recovery) == before + 2);
		before = hf_recovery_state(w.recovery);
	}
}

static void test_crash_with_locks_begins_grace(void **state)
{
	three_locks_and_a_crash();
	assert_true(world_in_grace(&w));
	assert_int_equal(world_unreclaimed(&w), 3);
	assert_int_equal(world_lock(&w, c(), 5, "elsewhere", 0, 9), HF_LOCK_E_GRACE);
	/* and a reclaim of another's lock is refused, for it is not backed */
	assert_int_equal(world_reclaim(&w, c(), 1, "f", 0, 9), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK); /* idempotently */
	assert_null(hf_locks_check(hf_recovery_locks(w.recovery)));
}

static void test_grace_ends_early_when_all_is_accounted_for(void **state)
{
	three_locks_and_a_crash();
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	assert_true(world_in_grace(&w)); /* locks are counted, not clients */
	world_unlock(&w, a(), 1, "f", 20, 29);
	world_turn(&w);
	assert_true(world_in_grace(&w));
	assert_int_equal(hf_recovery_client_crashed(w.recovery, c(), "test"), 1);
	world_until(&w, !world_in_grace(&w));
	assert_int_equal(w.n_events[HF_EVENT_GRACE_ENDED], 1);
	assert_int_equal(world_lock(&w, c(), 5, "f", 0, 9), HF_LOCK_E_CONFLICT);
	assert_int_equal(world_lock(&w, c(), 5, "f", 20, 29), HF_LOCK_OK);
}

static void test_early_end_can_be_off(void **state)
{
	w.options.early_end = false;
	w.options.window_ns = 600 * MS;
	three_locks_and_a_crash();
	hf_recovery_client_crashed(w.recovery, a(), "test");
	hf_recovery_client_crashed(w.recovery, c(), "test");
	world_turn(&w);
	world_turn(&w);
	assert_true(world_in_grace(&w));
	world_until(&w, !world_in_grace(&w));
}

static void test_grace_ends_at_its_deadline(void **state)
{
	w.options.window_ns = 300 * MS;
	three_locks_and_a_crash();
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_until(&w, !world_in_grace(&w));
	assert_int_equal(w.last[HF_EVENT_GRACE_ENDED].n_locks, 2);
	assert_int_equal(world_unreclaimed(&w), 0);
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 1);
}

static void test_grace_is_as_long_as_the_protocol_says(void **state)
{
	struct hf_grace_info info;

	w.options.window_ns = 60 * HF_NS_PER_S;
	w.options.protocols[WORLD_NLM].window_ns = 7 * HF_NS_PER_S;
	w.options.protocols[WORLD_NSM].window_ns = 7 * HF_NS_PER_S;
	three_locks_and_a_crash();
	hf_recovery_grace_info(w.recovery, &info);
	assert_true(info.ends_in_ns > 6 * HF_NS_PER_S && info.ends_in_ns <= 7 * HF_NS_PER_S);
}

static void test_grace_ends_by_hand(void **state)
{
	three_locks_and_a_crash();
	assert_int_equal(hf_recovery_end_grace(w.recovery), 0);
	assert_false(world_in_grace(&w));
	assert_int_equal(hf_recovery_end_grace(w.recovery), -ENOENT);
}

static void test_waiters_are_served_when_grace_ends(void **state)
{
	struct hf_lock_request request;

	three_locks_and_a_crash();
	hf_recovery_end_grace(w.recovery);
	assert_int_equal(world_lock(&w, a(), 1, "h", 0, 9), HF_LOCK_OK);
	request = world_request(c(), 3, "h", 0, 9);
	request.wait = true;
	assert_int_equal(hf_lock_acquire(hf_recovery_locks(w.recovery), &request, NULL), HF_LOCK_E_QUEUED);
	assert_int_equal(hf_recovery_simulate_crash(w.recovery), 0);
	world_until(&w, world_in_grace(&w));
	world_unlock(&w, a(), 1, "h", 0, 9);
	assert_int_equal(w.n_granted, 0);
	hf_recovery_end_grace(w.recovery);
	assert_int_equal(w.n_granted, 1);
}

static void test_second_crash_inside_grace_loses_nothing(void **state)
{
	three_locks_and_a_crash();
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	world_restart(&w);
	assert_true(world_in_grace(&w));
	assert_int_equal(world_unreclaimed(&w), 3);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 20, 29), HF_LOCK_OK);
	assert_int_equal(world_reclaim(&w, c(), 1, "g", 0, 9), HF_LOCK_OK);
	world_until(&w, !world_in_grace(&w));
}

static void test_clean_stop_with_nothing_held_has_no_grace(void **state)
{
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_unlock(&w, a(), 1, "f", 0, 9);
	world_stop(&w);
	assert_true(w.disk.view.state.is_clean);
	world_up(&w);
	assert_false(world_in_grace(&w));
	assert_false(w.disk.view.state.is_clean);
}

static void test_clean_stop_with_locks_has_grace(void **state)
{
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_stop(&w);
	world_up(&w);
	assert_true(world_in_grace(&w));
	assert_int_equal(world_unreclaimed(&w), 1);
}

static void test_reboot_of_the_machine_trusts_registrations_only(void **state)
{
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	w.disk.boot_id = "boot-2";
	w.options.window_ns = 600 * MS;
	world_restart(&w);
	assert_true(world_in_grace(&w));
	assert_int_equal(world_unreclaimed(&w), 0);
	/* whatever does not conflict is granted, and grace does not end early */
	assert_int_equal(world_reclaim(&w, c(), 9, "x", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_reclaim(&w, a(), 1, "x", 5, 6), HF_LOCK_E_CONFLICT);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_until(&w, w.n_told == 1);
	world_turn(&w);
	assert_true(world_in_grace(&w));
	/* a crash in here: what was reclaimed is not all that there was */
	world_restart(&w);
	assert_true(world_in_grace(&w));
	assert_int_equal(world_reclaim(&w, c(), 9, "y", 0, 9), HF_LOCK_OK);
	world_until(&w, !world_in_grace(&w));
	world_turn(&w);
	world_restart(&w);
	assert_int_equal(world_reclaim(&w, c(), 9, "z", 0, 9), HF_LOCK_E_NOT_BACKED);
}

static void test_durability_none_stores_no_locks(void **state)
{
	world_kill(&w);
	disk_wipe(&w.disk);
	w.options.durability = HF_STORE_NONE;
	world_up(&w);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 0);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_CLIENT), 1);
	world_restart(&w);
	assert_true(world_in_grace(&w));
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
}

static void test_grace_rules(void **state)
{
	w.options.grace = HF_RECOVERY_GRACE_ALWAYS;
	world_restart(&w);
	world_turn(&w);
	world_turn(&w);
	assert_true(world_in_grace(&w)); /* although there was nothing */
	hf_recovery_end_grace(w.recovery);
	three_locks_and_a_crash();
	assert_true(world_in_grace(&w));
	w.options.grace = HF_RECOVERY_GRACE_NEVER;
	world_restart(&w);
	assert_false(world_in_grace(&w));
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK); /* late, but it was a's */
}

static void test_late_reclaim_of_what_no_other_had(void **state)
{
	struct hf_recovery_counts counts;

	three_locks_and_a_crash();
	hf_recovery_end_grace(w.recovery);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 29), HF_LOCK_E_NOT_BACKED); /* more than a had */
	assert_int_equal(world_reclaim(&w, c(), 1, "f", 20, 29), HF_LOCK_E_NOT_BACKED);
	assert_int_equal(world_reclaim(&w, a(), 2, "f", 20, 29), HF_LOCK_E_NOT_BACKED); /* another owner */
	/* another client had it in between, and gave it back */
	assert_int_equal(world_lock(&w, a(), 1, "g", 5, 5), HF_LOCK_OK);
	world_unlock(&w, a(), 1, "g", 5, 5);
	assert_int_equal(world_reclaim(&w, c(), 1, "g", 0, 9), HF_LOCK_E_NOT_BACKED);
	hf_recovery_counts(w.recovery, &counts);
	assert_int_equal(counts.late_reclaims, 2);
	assert_int_equal(counts.late_records, 2);
}

static void test_late_records_are_forgotten(void **state)
{
	struct hf_recovery_counts counts;

	w.options.notify_retry_ns = 30 * MS;
	three_locks_and_a_crash();
	hf_recovery_end_grace(w.recovery);
	hf_recovery_counts(w.recovery, &counts);
	assert_int_equal(counts.late_records, 3);
	hf_recovery_client_crashed(w.recovery, c(), "test");
	hf_recovery_counts(w.recovery, &counts);
	assert_int_equal(counts.late_records, 2);
	world_until(&w, (hf_recovery_counts(w.recovery, &counts), counts.late_records == 0));
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_E_NOT_BACKED);
}

static void test_reclaim_repeated_after_grace(void **state)
{
	three_locks_and_a_crash();
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	hf_recovery_end_grace(w.recovery);
	/* its reply was lost */
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
}

static void test_partial_unlock_in_grace_is_stored(void **state)
{
	three_locks_and_a_crash();
	world_unlock(&w, a(), 1, "f", 3, 5);
	world_turn(&w);
	world_restart(&w);
	assert_int_equal(world_unreclaimed(&w), 4);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 2), HF_LOCK_OK);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 4, 4), HF_LOCK_E_NOT_BACKED);
}

static void test_what_was_registered_comes_back(void **state)
{
	struct hf_client *client = a();
	struct hf_addr local;

	client->sm_state = 77;
	memcpy(client->priv, "0123456789abcdef", 16);
	assert_int_equal(hf_client_set_callback(client, hf_bytes_of_str("cb.host"), 1, 2, 3), 0);
	assert_int_equal(hf_client_set_mon_name(client, hf_bytes_of_str("watched")), 0);
	assert_int_equal(hf_client_register(client), 0);
	world_client(&w, "fd00::5", "six");
	world_turn(&w);
	world_restart(&w);
	assert_int_equal(hf_clients_count_registered(hf_recovery_clients(w.recovery)), 2);
	client = a();
	assert_int_equal(client->sm_state, 77);
	assert_memory_equal(client->priv, "0123456789abcdef", 16);
	assert_string_equal(client->callback.host, "cb.host");
	assert_int_equal(client->callback.procedure, 3);
	assert_string_equal(client->mon_name, "watched");
	assert_true(hf_addr_parse(&local, "10.0.0.1") && hf_addr_same_host(&client->local, &local));
	assert_string_equal(world_client(&w, "fd00::5", "six")->id, "nlm:fd00::5:six");
}

static void put_record(const uint8_t *bytes, int len)
{
	disk_view_apply(&w.disk.view, hf_bytes_of(bytes, (uint32_t)len), HF_STORE_LOCKS);
}

static struct hf_store_lock lock_fact(const char *client, const char *export, uint64_t id, uint64_t start,
				      uint64_t end)
{
	return (struct hf_store_lock){
		.id = id,
		.export = hf_bytes_of_str(export),
		.handle = hf_bytes_of_str("f"),
		.client = hf_bytes_of_str(client),
		.owner = 1,
		.start = start,
		.end = end,
		.client_state = 37,
		.mode = HF_LOCK_EXCLUSIVE,
	};
}

static void put_lock(const char *client, const char *export, uint64_t id, uint64_t start, uint64_t end)
{
	uint8_t out[HF_RECORD_MAX];
	struct hf_store_lock fact = lock_fact(client, export, id, start, end);

	put_record(out, hf_record_encode_lock(out, &fact));
}

/* Granted in the run of that epoch. */
static void put_lock_of_run(uint64_t epoch, const char *client, const char *export, uint64_t id,
			    uint64_t start, uint64_t end)
{
	uint8_t out[HF_RECORD_MAX];
	struct hf_store_lock fact = lock_fact(client, export, id, start, end);

	fact.epoch = epoch;
	put_record(out, hf_record_encode_lock(out, &fact));
}

static void put_waiter(const char *client, uint64_t id)
{
	uint8_t out[HF_RECORD_MAX];
	struct hf_store_waiter fact = { .wants = lock_fact(client, "7", id, 0, 9) };

	put_record(out, hf_record_encode_waiter(out, &fact));
}

/* A reservation that the client has once. The name of its export has one letter. */
static void put_reservation_in(const char *export, const char *client, uint64_t id)
{
	uint8_t out[HF_RECORD_MAX], blob[64] = { 1, 3, 1, 0, 1, 0, (uint8_t)strlen(client), 0, 0, 0, 1 };
	struct hf_store_reservation fact = { .id = id, .blob = { blob, 20 + (uint32_t)strlen(client) } };

	blob[18] = (uint8_t) * export;
	blob[19] = 'f'; /* the handle */
	memcpy(blob + 20, client, strlen(client));
	put_record(out, hf_record_encode_reservation(out, &fact));
}

static void put_reservation(const char *client, uint64_t id)
{
	put_reservation_in("7", client, id);
}

static void test_records_that_cannot_be_true(void **state)
{
	struct hf_client *client;

	world_turn(&w);
	world_kill(&w);
	put_lock("nlm:fd00::9:unknown", "7", 1, 0, 9);
	put_lock("nonsense", "7", 3, 100, 109);          /* whose? */
	put_lock("nlm:10.0.0.9:other", "7", 4, 30, 20);  /* no range */
	put_lock("nlm:10.0.0.9:other", "gone", 5, 0, 9); /* not exported now */
	put_reservation("nlm:10.0.0.8:never", 6);        /* never promised: its client is not registered */
	world_up(&w);
	assert_int_equal(world_unreclaimed(&w), 1);
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_RESERVATION), 0);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 2);
	client = hf_clients_find_id(hf_recovery_clients(w.recovery), hf_bytes_of_str("nlm:fd00::9:unknown"));
	assert_non_null(client);
	assert_true(hf_client_is_registered(client));
	assert_string_equal(client->name, "unknown");
	hf_client_unref(client);
	assert_true(disk_count(&w.disk, HF_RECORD_CLIENT) >= 1);
}

static bool is_loaded(const char *id)
{
	struct hf_client *client = hf_clients_find_id(hf_recovery_clients(w.recovery), hf_bytes_of_str(id));
	bool has_locks = client && !hf_lock_client_is_idle(&client->locking);

	hf_client_unref(client);
	return has_locks;
}

/* They were granted by two names of a directory, the later one while it was not exported by the other name.
 * The store returns them in the order of their ids, or of their positions in the file. */
static void test_later_one_of_conflicting_records_is_true(void **state)
{
	world_turn(&w);
	world_kill(&w);
	put_lock("nlm:10.0.0.1:old", "7", 1, 0, 9);
	put_lock("nlm:10.0.0.1:old", "7", 2, 10, 19);
	put_lock("nlm:10.0.0.2:new", "7", 3, 5, 12);
	put_lock("nlm:10.0.0.4:newest", "7", 5, 100, 109);
	put_lock("nlm:10.0.0.3:older", "7", 4, 105, 119);
	put_lock("nlm:10.0.0.5:own", "7", 6, 200, 209); /* an owner that locked more since */
	put_lock("nlm:10.0.0.5:own", "7", 7, 205, 219);
	world_up(&w);
	assert_false(is_loaded("nlm:10.0.0.1:old"));
	assert_true(is_loaded("nlm:10.0.0.2:new"));
	assert_false(is_loaded("nlm:10.0.0.3:older"));
	assert_true(is_loaded("nlm:10.0.0.4:newest"));
	assert_true(is_loaded("nlm:10.0.0.5:own"));
	assert_int_equal(world_unreclaimed(&w), 4); /* of the last owner: 200 to 204, and the later one */
	assert_null(hf_locks_check(hf_recovery_locks(w.recovery)));
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 4);
}

static bool find_any(void *user, struct hf_bytes name, uint32_t *exportp)
{
	*exportp = hf_bytes_equal(name, hf_bytes_of_str("7")) ? 7 : 8;
	return true;
}

/* By a reload. The file is the same one by both exports. */
static void bring_export_back(void)
{
	w.recovery->exports.find = find_any;
	hf_recovery_exports_changed(w.recovery);
	assert_null(hf_locks_check(hf_recovery_locks(w.recovery)));
	world_turn(&w);
}

/* The client of the older one could not be told: its lock is a ghost. */
static void test_later_one_than_a_ghost_is_true(void **state)
{
	struct hf_client *old;

	world_turn(&w);
	world_kill(&w);
	put_lock("nlm:10.0.0.1:old", "7", 1, 0, 9);
	put_lock("nlm:10.0.0.2:new", "gone", 3, 5, 12);
	world_up(&w);
	old = hf_clients_find_id(hf_recovery_clients(w.recovery), hf_bytes_of_str("nlm:10.0.0.1:old"));
	hf_crash_release_reclaimable(w.recovery, old);
	bring_export_back();
	assert_true(is_loaded("nlm:10.0.0.2:new"));
	assert_true(hf_lock_client_is_idle(&old->locking));
	hf_client_unref(old);
	assert_int_equal(world_unreclaimed(&w), 1);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 1);
}

/* In the grace of a simulated restart: until then other clients could have the lock by another export. */
static void test_lock_of_an_export_that_is_back_too_late(void **state)
{
	world_turn(&w);
	world_kill(&w);
	put_lock("nlm:10.0.0.2:new", "gone", 3, 5, 12);
	world_up(&w);
	assert_int_equal(hf_recovery_start(w.recovery), 0);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_unlock(&w, a(), 1, "f", 0, 9);
	assert_int_equal(hf_recovery_simulate_crash(w.recovery), 0);
	world_until(&w, world_in_grace(&w));
	bring_export_back();
	assert_false(is_loaded("nlm:10.0.0.2:new"));
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 0);
}

/* The store returns the larger id first or last. */
static void later_reservation_is_true(uint64_t id_of_a, uint64_t id_of_c)
{
	char id[2][64];
	bool is_of_a = id_of_a > id_of_c;

	snprintf(id[0], sizeof(id[0]), "%s", a()->id);
	snprintf(id[1], sizeof(id[1]), "%s", c()->id);
	world_turn(&w);
	world_kill(&w);
	put_reservation(id[0], id_of_a);
	put_reservation(id[1], id_of_c);
	world_up(&w);
	assert_int_equal(is_loaded(id[0]), is_of_a);
	assert_int_equal(is_loaded(id[1]), !is_of_a);
	assert_int_equal(world_unreclaimed(&w), 1);
	assert_null(hf_locks_check(hf_recovery_locks(w.recovery)));
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_RESERVATION), 1);
}

static void test_later_one_of_conflicting_reservations_is_true(void **state)
{
	later_reservation_is_true(1, 2);
}

static void test_later_one_of_conflicting_reservations_may_come_first(void **state)
{
	later_reservation_is_true(2, 1);
}

/* The lock was stored, its client was not. The client's next call shows whether it was restarted since. */
static void test_stored_lock_of_an_unknown_client_dies_with_it(void **state)
{
	struct hf_client *client;

	world_turn(&w);
	world_kill(&w);
	put_lock("nlm:10.0.0.9:stranger", "7", 1, 0, 9);
	w.options.handle_key = 7; /* to be stored, before the stranger's registration */
	world_up(&w);
	client =
		hf_clients_find_id(hf_recovery_clients(w.recovery), hf_bytes_of_str("nlm:10.0.0.9:stranger"));
	assert_non_null(client);
	assert_false(hf_recovery_client_rebooted(w.recovery, client, 37));
	assert_int_equal(world_unreclaimed(&w), 1);
	hf_recovery_client_state(w.recovery, client, 39);
	assert_int_equal(world_unreclaimed(&w), 0);
	hf_client_unref(client);
}

/* So does a waiter that was stored before its client. If it were only deleted, the next run could find it
 * once more, with the client that registered after its restart. */
static void test_stored_waiter_of_an_unknown_client_dies_with_it(void **state)
{
	struct hf_client *client;

	world_kill(&w);
	disk_wipe(&w.disk);
	w.options.continues = true;
	world_up(&w);
	assert_int_equal(hf_recovery_start(w.recovery), 0);
	world_turn(&w);
	world_kill(&w);
	put_waiter("nlm:10.0.0.9:stranger", 1);
	world_restart(&w);
	assert_true(hf_recovery_continues(w.recovery));
	client =
		hf_clients_find_id(hf_recovery_clients(w.recovery), hf_bytes_of_str("nlm:10.0.0.9:stranger"));
	assert_non_null(client);
	assert_true(hf_client_is_registered(client));
	hf_recovery_client_state(w.recovery, client, 37);
	assert_int_equal(client->locking.n_waiters + client->locking.n_locks, 1);
	hf_recovery_client_state(w.recovery, client, 39);
	assert_int_equal(client->locking.n_waiters + client->locking.n_locks, 0);
	hf_client_unref(client);
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_WAITER), 0);
}

/* The next run goes on from here. */
static void settle_to_go_on(void)
{
	world_kill(&w);
	disk_wipe(&w.disk);
	w.options.continues = true;
	world_up(&w);
	assert_int_equal(hf_recovery_start(w.recovery), 0);
	assert_non_null(a());
	world_turn(&w);
	world_kill(&w);
}

/* What the start has changed is stored only after that: no run may go on with a number that no client knows.
 */
static void test_simulated_restart_before_what_the_start_changed_is_stored(void **state)
{
	settle_to_go_on();
	put_lock("nlm:10.0.0.11:alpha", "7", 4, 30, 20); /* no range: it is deleted */
	w.disk.is_slow = true;
	world_up(&w);
	assert_int_equal(hf_recovery_start(w.recovery), 0);
	assert_true(hf_recovery_continues(w.recovery));
	world_turn(&w);
	assert_int_equal(hf_recovery_simulate_crash(w.recovery), 0);
	world_turn(&w);
	disk_let_go_of(&w.disk, HF_STORE_LOCKS);
	world_turn(&w);
	w.disk.is_slow = false;
	disk_let_go(&w.disk);
	world_until(&w, world_in_grace(&w));
	world_turn(&w);
	assert_int_equal(w.disk.view.state.sm_state, hf_recovery_state(w.recovery));
	assert_false(w.disk.view.state.is_settled);
}

/* A lock of a grant in flight, in this file. Before the grant the owner had nothing there. */
static void put_piece(const char *file, uint64_t id)
{
	uint8_t out[HF_RECORD_MAX];
	struct hf_store_lock fact = lock_fact("nlm:10.0.0.11:alpha", "7", id, 0, 9);

	fact.handle = hf_bytes_of_str(file);
	fact.flags = HF_PERSIST_OF_GRANT;
	put_record(out, hf_record_encode_lock(out, &fact));
}

static void put_grant(const char *file, const char *export, uint64_t id)
{
	uint8_t out[HF_RECORD_MAX];
	struct hf_store_waiter fact = { .wants = lock_fact("nlm:10.0.0.11:alpha", export, id, 0, 9),
					.is_granted = true };

	fact.wants.handle = hf_bytes_of_str(file);
	put_record(out, hf_record_encode_waiter(out, &fact));
}

static void expect_held(const char *file)
{
	struct hf_lock_request request = world_request(c(), 7, file, 0, 9);

	assert_int_equal(hf_lock_acquire(hf_recovery_locks(w.recovery), &request, NULL), HF_LOCK_E_CONFLICT);
}

/* Its client may have been told. The grant of another file does not give it this lock again. */
static void test_stored_lock_of_a_grant_that_is_not_stored(void **state)
{
	settle_to_go_on();
	put_piece("f", 5);
	put_piece("g", 6);
	put_grant("g", "7", 8);
	world_restart(&w);
	assert_true(hf_recovery_continues(w.recovery));
	expect_held("f");
	expect_held("g");
}

/* The client waited by another export than it had locked by. */
static void test_stored_grant_of_an_export_that_is_gone(void **state)
{
	settle_to_go_on();
	put_piece("f", 5);
	put_grant("f", "gone", 8);
	world_restart(&w);
	assert_true(hf_recovery_continues(w.recovery));
	expect_held("f");
}

/* Its client reclaims, too: it may have been told. */
static void test_stored_grant_of_a_run_that_starts_over(void **state)
{
	settle_to_go_on();
	put_lock("nlm:10.0.0.12:beta", "gone", 4, 0, 9);
	put_piece("f", 5);
	put_grant("f", "7", 8);
	put_waiter("nlm:10.0.0.12:beta", 9);
	world_restart(&w);
	assert_false(hf_recovery_continues(w.recovery));
	assert_true(world_in_grace(&w));
	assert_int_equal(world_unreclaimed(&w), 1);
	assert_int_equal(w.n_granted, 0);
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_WAITER), 0);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 2);
	assert_null(hf_locks_check(hf_recovery_locks(w.recovery)));
}

/* Alpha is registered, and has a lock and a reservation in an export that this run does not have. */
static void lose_export(void)
{
	assert_non_null(a());
	world_turn(&w);
	world_kill(&w);
	put_lock("nlm:10.0.0.11:alpha", "gone", 5, 0, 9);
	put_reservation_in("g", "nlm:10.0.0.11:alpha", 6);
	w.options.max_clients = 1;
	world_up(&w);
	assert_int_equal(hf_recovery_start(w.recovery), 0);
	world_until(&w, w.n_told == 1 && !world_in_grace(&w));
}

static bool is_registered(const char *id)
{
	hf_cleanup(hf_client_unrefp) struct hf_client *client =
		hf_clients_find_id(hf_recovery_clients(w.recovery), hf_bytes_of_str(id));

	return client && hf_client_is_registered(client);
}

static void try_to_register_carol(void)
{
	hf_cleanup(hf_client_unrefp) struct hf_client *client = NULL;
	struct hf_addr addr;

	assert_true(hf_addr_parse(&addr, "10.0.0.12"));
	assert_int_equal(hf_clients_get(&client, hf_recovery_clients(w.recovery), "nlm", &addr,
					hf_bytes_of_str("carol")),
			 0);
	hf_client_confirm(client);
	hf_client_register(client);
}

/* The next run may have the export, and the client must hear of it then. */
static void test_client_with_something_in_an_export_that_is_gone_stays(void **state)
{
	lose_export();
	try_to_register_carol();
	world_turn(&w);
	assert_true(is_registered("nlm:10.0.0.11:alpha"));
	assert_false(is_registered("nlm:10.0.0.12:carol"));
}

static void test_client_with_something_in_an_export_that_is_gone_dies(void **state)
{
	lose_export();
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	world_until(&w, disk_count(&w.disk, HF_RECORD_LOCK) == 0 &&
				disk_count(&w.disk, HF_RECORD_RESERVATION) == 0);
	try_to_register_carol(); /* in its place */
	world_until(&w, is_registered("nlm:10.0.0.12:carol"));
	assert_false(is_registered("nlm:10.0.0.11:alpha"));
}

/* The server was killed before it had stored the number of the client's new life, which is 5. */
static void kill_with_locks_of_two_lives(void)
{
	struct hf_store_lock fact = lock_fact("nlm:10.0.0.11:alpha", "gone", 5, 0, 9);
	uint8_t out[HF_RECORD_MAX];

	assert_non_null(a());
	world_turn(&w);
	world_kill(&w);
	put_lock("nlm:10.0.0.11:alpha", "gone", 6, 20, 29);
	fact.client_state = 5;
	put_record(out, hf_record_encode_lock(out, &fact));
}

/* The server had not answered the notice: it comes again. */
static void test_what_a_client_took_in_its_new_life_stays_in_an_export_that_is_gone(void **state)
{
	kill_with_locks_of_two_lives();
	world_restart(&w);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	world_until(&w, disk_count(&w.disk, HF_RECORD_LOCK) == 1);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 7));
	world_until(&w, disk_count(&w.disk, HF_RECORD_LOCK) == 0);
}

/* The same, and a reload brings the export back: the client can reclaim what it took in its new life. */
static void test_what_a_client_took_in_its_new_life_comes_back_with_the_export(void **state)
{
	kill_with_locks_of_two_lives();
	put_lock("nlm:10.0.0.2:other", "7", 7, 100, 109); /* grace waits for it */
	world_up(&w);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	bring_export_back();
	assert_true(is_loaded("nlm:10.0.0.11:alpha"));
	assert_int_equal(world_unreclaimed(&w), 2);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 2);
}

/* The server was killed before it had stored the registration. */
static void test_unknown_client_with_a_lock_in_an_export_that_is_gone_dies(void **state)
{
	world_turn(&w);
	world_kill(&w);
	put_lock("nlm:10.0.0.11:alpha", "gone", 5, 0, 9);
	world_restart(&w);
	assert_true(is_registered("nlm:10.0.0.11:alpha"));
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	world_until(&w, disk_count(&w.disk, HF_RECORD_LOCK) == 0);
}

static void expect_restart_when_the_store_is_back(int32_t before)
{
	world_turn(&w);
	assert_int_equal(w.n_told, 0);
	assert_int_equal(hf_recovery_state(w.recovery), before);
	w.disk.is_full = false;
	world_until(&w, w.n_told);
	assert_true(world_in_grace(&w));
	assert_true(hf_recovery_state(w.recovery) > before);
	assert_int_equal(w.disk.view.state.sm_state, hf_recovery_state(w.recovery));
}

/* The store fails when the run starts over, since it lacks the locks of an export. When the store is back,
 * clients are told. Grace lasts from the start. */
static void test_start_over_that_is_stored_late(void **state)
{
	uint64_t late;
	int32_t before;

	settle_to_go_on();
	put_lock("nlm:10.0.0.11:alpha", "gone", 5, 0, 9);
	w.options.window_ns = 500 * MS;
	world_up(&w);
	assert_false(hf_recovery_continues(w.recovery));
	assert_true(world_in_grace(&w));
	before = hf_recovery_state(w.recovery);
	w.disk.is_full = true;
	assert_int_equal(hf_recovery_start(w.recovery), 0);
	world_until(&w, !hf_recovery_can_promise(w.recovery));
	late = hf_loop_now(w.loop) + 2 * w.options.window_ns;
	world_until(&w, hf_loop_now(w.loop) > late);
	assert_true(world_in_grace(&w));
	expect_restart_when_the_store_is_back(before);
}

/* The same if the store is away already. */
static void test_simulated_restart_while_the_store_is_away(void **state)
{
	int32_t before = hf_recovery_state(w.recovery);

	assert_non_null(a());
	world_turn(&w);
	w.disk.is_full = true;
	assert_non_null(c());
	world_until(&w, !hf_recovery_can_promise(w.recovery));
	assert_int_equal(hf_recovery_simulate_crash(w.recovery), 0);
	expect_restart_when_the_store_is_back(before);
}

/* After 2^20 restarts the ids in the store begin anew: a lock that has one keeps it. */
static void test_ids_that_come_round_again(void **state)
{
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_lock(&w, a(), 1, "f", 20, 29), HF_LOCK_OK);
	world_turn(&w);
	world_kill(&w);
	w.disk.view.state.epoch += (1 << 20) - 1;
	world_up(&w);
	assert_int_equal(world_unreclaimed(&w), 2);
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 20, 29), HF_LOCK_OK);
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 2);
	world_kill(&w);
	world_up(&w);
	assert_int_equal(world_unreclaimed(&w), 2);
}

static void test_clear_store(void **state)
{
	three_locks_and_a_crash();
	w.options.clear_store = true;
	world_restart(&w);
	assert_false(world_in_grace(&w));
	assert_int_equal(hf_clients_count_registered(hf_recovery_clients(w.recovery)), 0);
}

static void test_volatile_locks_are_not_stored(void **state)
{
	struct hf_lock_request request = world_request(a(), 1, "f", 0, 9);

	request.is_volatile = true;
	assert_int_equal(hf_lock_acquire(hf_recovery_locks(w.recovery), &request, NULL), HF_LOCK_OK);
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 0);
	/* asked for again, and monitored this time, it is */
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 1);
}

/* Also where the server keeps no record for a late reclaim. */
static void test_a_client_that_lost_all_with_grace_may_be_unregistered(void **state)
{
	struct hf_client *client;

	w.options.notify_retry_ns = 0;
	three_locks_and_a_crash();
	world_until(&w, w.n_told == 2);
	client = c();
	assert_false(hf_link_is_linked(&client->idle_link));
	assert_int_equal(hf_recovery_end_grace(w.recovery), 0);
	assert_true(hf_lock_client_is_idle(&client->locking));
	assert_true(hf_link_is_linked(&client->idle_link));
}

/* The owner locked more by another name of the directory, while the run did not have the first name. */
static void expect_rest_of_own(void)
{
	struct hf_client *own = world_client(&w, "10.0.0.5", "own");

	assert_int_equal(world_unreclaimed(&w), 2);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 2);
	assert_int_equal(world_reclaim(&w, own, 1, "f", 200, 209), HF_LOCK_OK);
	assert_int_equal(world_reclaim(&w, own, 1, "f", 210, 219), HF_LOCK_OK);
	assert_int_equal(world_reclaim(&w, own, 1, "f", 199, 199), HF_LOCK_E_NOT_BACKED);
}

static void test_rest_of_an_older_lock_stays(void **state)
{
	world_turn(&w);
	world_kill(&w);
	put_lock_of_run(2, "nlm:10.0.0.5:own", "7", 7, 200, 209); /* it lies before the older one */
	put_lock_of_run(1, "nlm:10.0.0.5:own", "7", 6, 205, 219);
	world_up(&w);
	world_turn(&w);
	expect_rest_of_own();
}

static void test_rest_of_an_older_lock_stays_by_a_reload(void **state)
{
	world_turn(&w);
	world_kill(&w);
	put_lock_of_run(1, "nlm:10.0.0.5:own", "gone", 6, 200, 219);
	put_lock_of_run(2, "nlm:10.0.0.5:own", "7", 7, 200, 209);
	world_up(&w);
	assert_int_equal(world_unreclaimed(&w), 1);
	bring_export_back();
	expect_rest_of_own();
}

/* What lies between two later locks of the owner, before the first and behind the last one. */
static void test_parts_of_an_older_lock_stay(void **state)
{
	struct hf_client *own;

	world_turn(&w);
	world_kill(&w);
	put_lock_of_run(1, "nlm:10.0.0.5:own", "gone", 6, 200, 299);
	put_lock_of_run(2, "nlm:10.0.0.5:own", "7", 7, 250, 259);
	put_lock_of_run(2, "nlm:10.0.0.5:own", "7", 8, 210, 219);
	world_up(&w);
	bring_export_back();
	own = world_client(&w, "10.0.0.5", "own");
	assert_int_equal(world_unreclaimed(&w), 5);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 5);
	assert_int_equal(world_reclaim(&w, own, 1, "f", 200, 299), HF_LOCK_OK);
}

static void test_rest_of_an_older_lock_is_not_later_than_others(void **state)
{
	world_turn(&w);
	world_kill(&w);
	put_lock_of_run(1, "nlm:10.0.0.5:own", "7", 1, 0, 99);
	put_lock_of_run(2, "nlm:10.0.0.5:own", "7", 2, 0, 9);
	put_lock_of_run(2, "nlm:10.0.0.2:other", "7", 3, 50, 59);
	world_up(&w);
	assert_true(is_loaded("nlm:10.0.0.2:other"));
}

/* The run does not have the export of the later lock. */
static void test_part_that_is_unlocked_makes_no_lock_later(void **state)
{
	struct hf_lock_target who;
	struct hf_client *own, *other;

	world_turn(&w);
	world_kill(&w);
	put_lock_of_run(1, "nlm:10.0.0.5:own", "7", 1, 0, 99);
	put_lock_of_run(2, "nlm:10.0.0.2:other", "gone", 3, 50, 59);
	world_up(&w);
	own = world_client(&w, "10.0.0.5", "own");
	who = world_request(own, 1, "f", 0, 0).who;
	who.export = 7;
	assert_int_equal(hf_lock_release(hf_recovery_locks(w.recovery), &who, (struct hf_range){ 90, 99 }),
			 0);
	world_turn(&w);
	bring_export_back();
	other = world_client(&w, "10.0.0.2", "other");
	assert_int_equal(other->locking.n_locks, 1);
	assert_true(hf_lock_client_is_idle(&own->locking));
}

/* The client of the later one could not be told. */
static void expect_later_ghost(const char *older)
{
	struct hf_client *new;

	world_turn(&w);
	world_kill(&w);
	put_lock_of_run(1, older, "gone", 6, 0, 9);
	put_lock_of_run(2, "nlm:10.0.0.2:new", "7", 7, 5, 14);
	world_up(&w);
	new = world_client(&w, "10.0.0.2", "new");
	hf_crash_release_reclaimable(w.recovery, new);
	bring_export_back();
	world_turn(&w);
	assert_null(hf_locks_check(hf_recovery_locks(w.recovery)));
}

static void test_older_one_than_a_ghost_is_outdated(void **state)
{
	expect_later_ghost("nlm:10.0.0.1:old");
	assert_false(is_loaded("nlm:10.0.0.1:old"));
}

static void test_rest_of_an_older_one_than_the_owners_ghost(void **state)
{
	expect_later_ghost("nlm:10.0.0.2:new");
	assert_int_equal(world_reclaim(&w, world_client(&w, "10.0.0.2", "new"), 1, "f", 0, 4), HF_LOCK_OK);
}

/* A run before this one checked a notice, and its tag is that of another check now. */
static void test_tag_of_an_earlier_run_is_no_sign_of_life(void **state)
{
	struct hf_store_lock fact = lock_fact("nlm:10.0.0.11:alpha", "gone", 5, 0, 9);
	uint8_t out[HF_RECORD_MAX];

	a()->sm_state = 5;
	a()->is_state_proven = true;
	hf_client_register(a());
	world_turn(&w);
	world_kill(&w);
	fact.client_state = hf_client_make_doubt_tag(0, 7);
	put_record(out, hf_record_encode_lock(out, &fact));
	world_restart(&w);
	a()->doubted_state = 7;
	a()->doubt_tag = hf_client_make_doubt_tag(7, 7);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 7));
	world_until(&w, disk_count(&w.disk, HF_RECORD_LOCK) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_first_start_has_no_grace_and_an_odd_state),
		T(test_state_grows_over_restarts),
		T(test_crash_with_locks_begins_grace),
		T(test_grace_ends_early_when_all_is_accounted_for),
		T(test_a_client_that_lost_all_with_grace_may_be_unregistered),
		T(test_early_end_can_be_off),
		T(test_grace_ends_at_its_deadline),
		T(test_grace_is_as_long_as_the_protocol_says),
		T(test_grace_ends_by_hand),
		T(test_waiters_are_served_when_grace_ends),
		T(test_second_crash_inside_grace_loses_nothing),
		T(test_clean_stop_with_nothing_held_has_no_grace),
		T(test_clean_stop_with_locks_has_grace),
		T(test_reboot_of_the_machine_trusts_registrations_only),
		T(test_durability_none_stores_no_locks),
		T(test_grace_rules),
		T(test_late_reclaim_of_what_no_other_had),
		T(test_late_records_are_forgotten),
		T(test_reclaim_repeated_after_grace),
		T(test_partial_unlock_in_grace_is_stored),
		T(test_what_was_registered_comes_back),
		T(test_records_that_cannot_be_true),
		T(test_later_one_of_conflicting_records_is_true),
		T(test_later_one_than_a_ghost_is_true),
		T(test_lock_of_an_export_that_is_back_too_late),
		T(test_later_one_of_conflicting_reservations_is_true),
		T(test_later_one_of_conflicting_reservations_may_come_first),
		T(test_stored_lock_of_an_unknown_client_dies_with_it),
		T(test_stored_waiter_of_an_unknown_client_dies_with_it),
		T(test_simulated_restart_before_what_the_start_changed_is_stored),
		T(test_stored_lock_of_a_grant_that_is_not_stored),
		T(test_stored_grant_of_an_export_that_is_gone),
		T(test_stored_grant_of_a_run_that_starts_over),
		T(test_client_with_something_in_an_export_that_is_gone_stays),
		T(test_client_with_something_in_an_export_that_is_gone_dies),
		T(test_what_a_client_took_in_its_new_life_stays_in_an_export_that_is_gone),
		T(test_what_a_client_took_in_its_new_life_comes_back_with_the_export),
		T(test_unknown_client_with_a_lock_in_an_export_that_is_gone_dies),
		T(test_rest_of_an_older_lock_stays),
		T(test_rest_of_an_older_lock_stays_by_a_reload),
		T(test_parts_of_an_older_lock_stay),
		T(test_rest_of_an_older_lock_is_not_later_than_others),
		T(test_part_that_is_unlocked_makes_no_lock_later),
		T(test_older_one_than_a_ghost_is_outdated),
		T(test_rest_of_an_older_one_than_the_owners_ghost),
		T(test_tag_of_an_earlier_run_is_no_sign_of_life),
		T(test_start_over_that_is_stored_late),
		T(test_simulated_restart_while_the_store_is_away),
		T(test_ids_that_come_round_again),
		T(test_clear_store),
		T(test_volatile_locks_are_not_stored),
	};

	return cmocka_run_group_tests_name("restart", tests, NULL, NULL);
}
