/* Reservations over a restart: in grace, and after it. */
#include "one.h"

static struct hf_lock_target target(struct hf_client *client)
{
	return world_request(client, 0, "s", 0, 0).who;
}

static int reserve(struct hf_client *client, uint8_t access, uint8_t deny)
{
	struct hf_lock_target who = target(client);

	return hf_lock_reserve(hf_recovery_locks(w.recovery), &who, access, deny, 5, false);
}

static struct hf_lock_reservation_view view_of(struct hf_client *client, uint8_t access, uint8_t deny)
{
	struct hf_lock_target who = target(client);

	return (struct hf_lock_reservation_view){ .export = who.export,
						  .handle = who.handle,
						  .client = who.client,
						  .oh = who.oh,
						  .access = access,
						  .deny = deny };
}

/* As the protocol does it: a lock answer, GRACE where it is refused. */
static int reclaim(struct hf_client *client, uint8_t access, uint8_t deny)
{
	struct hf_lock_target who = target(client);
	struct hf_lock_reservation_view view = view_of(client, access, deny);

	switch (hf_recovery_reclaim_reservation(w.recovery, &view)) {
	case HF_RECLAIM_REFUSED:
		return HF_LOCK_E_GRACE;
	case HF_RECLAIM_BACKED:
		return HF_LOCK_OK;
	default:
		return hf_lock_reserve(hf_recovery_locks(w.recovery), &who, access, deny, 5, true);
	}
}

static void unreserve(struct hf_client *client, uint8_t access, uint8_t deny)
{
	struct hf_lock_target who = target(client);
	struct hf_lock_reservation_view view = view_of(client, access, deny);

	if (!hf_recovery_unreserve(w.recovery, &view))
		hf_lock_unreserve(hf_recovery_locks(w.recovery), &who, access, deny);
}

static size_t n_reservations(struct hf_client *client)
{
	return client->locking.n_reservations;
}

static size_t n_late(void)
{
	struct hf_recovery_counts counts;

	hf_recovery_counts(w.recovery, &counts);
	return counts.late_records;
}

/* alpha reads and denies writing, @n times. The server is killed; alpha hears of it after grace. */
static void lost(unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		assert_int_equal(reserve(a(), 1, 2), HF_LOCK_OK);
	world_turn(&w);
	world_restart(&w);
	assert_int_equal(hf_recovery_end_grace(w.recovery), 0);
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_RESERVATION), 0);
}

static void test_they_hold_grace_until_they_are_back(void **state)
{
	assert_int_equal(reserve(a(), 1, 2), HF_LOCK_OK);
	assert_int_equal(reserve(a(), 1, 2), HF_LOCK_OK);
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_RESERVATION), 1);
	world_restart(&w);
	assert_int_equal(world_unreclaimed(&w), 1);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK);
	world_turn(&w);
	assert_true(world_in_grace(&w));
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK);
	world_until(&w, !world_in_grace(&w));
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_RESERVATION), 1);
	world_restart(&w);
	assert_int_equal(hf_recovery_client_crashed(w.recovery, a(), "test"), 0);
	world_until(&w, !world_in_grace(&w));
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_RESERVATION), 0);
}

/* The first reclaim is served, but cannot be promised: the owner is told to ask again, and does. */
static void restart_and_reclaim_twice(void)
{
	struct hf_lock_reservation_view view;

	world_turn(&w);
	world_restart(&w);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK);
	view = view_of(a(), 1, 2);
	hf_recovery_unsure_reservation(w.recovery, &view);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK);
	assert_int_equal(n_reservations(a()), 1);
}

static void test_one_that_is_asked_for_again(void **state)
{
	assert_int_equal(reserve(a(), 1, 2), HF_LOCK_OK);
	assert_int_equal(reserve(a(), 1, 2), HF_LOCK_OK);
	restart_and_reclaim_twice();
	assert_true(world_in_grace(&w));
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK);
	assert_int_equal(n_reservations(a()), 2);
	world_until(&w, !world_in_grace(&w));
}

static void test_late_reclaim_of_what_no_other_had(void **state)
{
	struct hf_recovery_counts counts;

	lost(1);
	assert_int_equal(reserve(c(), 1, 0), HF_LOCK_OK); /* c reads, too: that is no conflict */
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK);
	assert_int_equal(n_reservations(a()), 1);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK); /* its reply was lost */
	assert_int_equal(n_reservations(a()), 1);
	hf_recovery_counts(w.recovery, &counts);
	assert_int_equal(counts.late_reclaims, 1);
	assert_int_equal(counts.late_records, 0);
	assert_int_equal(reserve(c(), 2, 0), HF_LOCK_E_CONFLICT);
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_RESERVATION), 2);
}

static void test_late_reclaim_of_what_another_client_had(void **state)
{
	lost(1);
	assert_int_equal(reserve(c(), 2, 0), HF_LOCK_OK);
	unreserve(c(), 2, 0);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_E_GRACE);
	assert_int_equal(n_reservations(a()), 0);
	assert_int_equal(reserve(a(), 1, 2), HF_LOCK_OK); /* as a new share it is granted */
}

static void test_late_reclaim_of_what_another_client_denied(void **state)
{
	lost(1);
	assert_int_equal(reserve(c(), 0, 1), HF_LOCK_OK);
	unreserve(c(), 0, 1);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_E_GRACE);
}

static void test_late_reclaim_of_what_was_not_held(void **state)
{
	lost(1);
	assert_int_equal(reclaim(a(), 3, 2), HF_LOCK_E_GRACE);
	assert_int_equal(reclaim(a(), 1, 3), HF_LOCK_E_GRACE);
	assert_int_equal(reclaim(c(), 1, 2), HF_LOCK_E_GRACE);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK);
}

/* Reservations of one owner never conflict, whatever it took in between. */
static void test_late_reclaim_beside_new_ones_of_the_owner(void **state)
{
	lost(1);
	assert_int_equal(reserve(a(), 2, 0), HF_LOCK_OK);
	assert_int_equal(reserve(a(), 1, 2), HF_LOCK_OK);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK);
	assert_int_equal(n_reservations(a()), 3); /* the new one is not the old one */
}

static void test_late_reclaims_are_counted(void **state)
{
	lost(3);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK);
	assert_int_equal(n_reservations(a()), 2);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK);
	assert_int_equal(n_reservations(a()), 3);
}

static void test_a_late_one_that_is_given_up(void **state)
{
	lost(2);
	unreserve(a(), 1, 2);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK);
	assert_int_equal(n_reservations(a()), 1);
	unreserve(a(), 1, 2);
	assert_int_equal(n_reservations(a()), 0);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_E_GRACE);
}

static void test_late_ones_of_the_dead_are_forgotten(void **state)
{
	lost(1);
	assert_int_equal(n_late(), 1);
	hf_recovery_client_crashed(w.recovery, a(), "test");
	assert_int_equal(n_late(), 0);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_E_GRACE);
}

static void test_late_ones_are_forgotten_in_time(void **state)
{
	w.options.notify_retry_ns = 30 * MS;
	lost(1);
	world_until(&w, n_late() == 0);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_E_GRACE);
}

/* Reservations and locks never conflict with each other. */
static void test_locks_in_between_are_no_conflict(void **state)
{
	assert_int_equal(world_lock(&w, a(), 1, "s", 0, 9), HF_LOCK_OK);
	lost(1);
	assert_int_equal(n_late(), 2);
	assert_int_equal(reserve(c(), 2, 3), HF_LOCK_OK);
	unreserve(c(), 2, 3);
	assert_int_equal(n_late(), 1);
	assert_int_equal(world_reclaim(&w, a(), 1, "s", 0, 9), HF_LOCK_OK);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_E_GRACE);
}

static void stop_keeping(void)
{
	world_kill(&w);
	disk_wipe(&w.disk);
	w.options.durability = HF_STORE_NONE;
	world_up(&w);
}

static void test_one_that_is_asked_for_again_without_a_store(void **state)
{
	struct hf_lock_reservation_view view;

	stop_keeping();
	assert_int_equal(reserve(a(), 1, 2), HF_LOCK_OK);
	restart_and_reclaim_twice();
	view = view_of(a(), 1, 2);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK); /* another: no store says otherwise */
	assert_int_equal(n_reservations(a()), 2);
	hf_recovery_unsure_reservation(w.recovery, &view);
	unreserve(a(), 1, 2);
	unreserve(a(), 1, 2);
	assert_int_equal(n_reservations(a()), 0);
	hf_recovery_unsure_reservation(w.recovery, &view);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK);
	assert_int_equal(n_reservations(a()), 1);
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_RESERVATION), 0);
}

static void test_reclaim_repeated_after_grace_without_a_store(void **state)
{
	stop_keeping();
	assert_int_equal(reserve(a(), 1, 2), HF_LOCK_OK);
	world_turn(&w);
	world_restart(&w);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK); /* no store says otherwise */
	hf_recovery_end_grace(w.recovery);
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK);
	assert_int_equal(n_reservations(a()), 1);
	assert_int_equal(reclaim(a(), 1, 3), HF_LOCK_E_GRACE);
	assert_int_equal(hf_recovery_simulate_crash(w.recovery), 0);
	world_until(&w, world_in_grace(&w));
	assert_int_equal(reclaim(a(), 1, 2), HF_LOCK_OK); /* a has it */
	assert_int_equal(n_reservations(a()), 1);
}

static uint32_t count_of(struct hf_client *client)
{
	struct hf_lock_target who = target(client);

	return hf_lock_count_reservations(hf_recovery_locks(w.recovery), &who, 1, 2);
}

/* The client comes again with another number, when the next run goes on. */
static void test_a_release_that_was_undone_counts_in_the_next_run(void **state)
{
	struct hf_lock_target who;

	world_kill(&w);
	disk_wipe(&w.disk);
	w.options.continues = true;
	world_up(&w);
	assert_int_equal(hf_recovery_start(w.recovery), 0);
	for (unsigned int i = 0; i < 2; i++)
		assert_int_equal(reserve(a(), 1, 2), HF_LOCK_OK);
	world_turn(&w);
	w.disk.is_broken = true;
	who = target(a());
	hf_lock_unreserve_once(hf_recovery_locks(w.recovery), &who, 1, 2, 77);
	world_until(&w, !hf_recovery_can_promise(w.recovery));
	hf_lock_undo_unreserve(hf_recovery_locks(w.recovery), &who, 1, 2);
	w.disk.is_broken = false;
	world_until(&w, hf_recovery_can_promise(w.recovery));
	world_turn(&w);
	world_restart(&w);
	assert_true(hf_recovery_continues(w.recovery));
	assert_int_equal(count_of(a()), 2);
	who = target(a());
	hf_lock_unreserve_once(hf_recovery_locks(w.recovery), &who, 1, 2, 78);
	assert_int_equal(count_of(a()), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_they_hold_grace_until_they_are_back),
		T(test_one_that_is_asked_for_again),
		T(test_one_that_is_asked_for_again_without_a_store),
		T(test_late_reclaim_of_what_no_other_had),
		T(test_late_reclaim_of_what_another_client_had),
		T(test_late_reclaim_of_what_another_client_denied),
		T(test_late_reclaim_of_what_was_not_held),
		T(test_late_reclaim_beside_new_ones_of_the_owner),
		T(test_late_reclaims_are_counted),
		T(test_a_late_one_that_is_given_up),
		T(test_late_ones_of_the_dead_are_forgotten),
		T(test_late_ones_are_forgotten_in_time),
		T(test_locks_in_between_are_no_conflict),
		T(test_reclaim_repeated_after_grace_without_a_store),
		T(test_a_release_that_was_undone_counts_in_the_next_run),
	};

	return cmocka_run_group_tests_name("reservations", tests, NULL, NULL);
}
