/* Evidence that a client crashed, and what is none. */
#include "one.h"

#include "../turn.h"

#include <stdlib.h>
#include <string.h>

static void wait_for(const char *file)
{
	struct hf_lock_request request = world_request(c(), 1, file, 0, 9);

	request.wait = true;
	assert_int_equal(hf_lock_acquire(hf_recovery_locks(w.recovery), &request, NULL), HF_LOCK_E_QUEUED);
}

/* Gives the client a number that it said over a connection. */
static void say_for_sure(int32_t number)
{
	a()->sm_state = number;
	a()->is_state_proven = true;
}

static void test_notice_frees_everything_and_serves_waiters(void **state)
{
	struct hf_recovery_counts counts;

	say_for_sure(3);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_lock(&w, a(), 2, "g", 0, 9), HF_LOCK_OK);
	wait_for("f");
	wait_for("g");
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	assert_int_equal(w.n_granted, 2);
	assert_int_equal(w.n_events[HF_EVENT_CRASH], 1);
	assert_int_equal(w.last[HF_EVENT_CLEANUP].n_locks, 2);
	assert_true(hf_lock_client_is_idle(&a()->locking));
	world_turn(&w);
	assert_int_equal(disk_count(&w.disk, HF_RECORD_LOCK), 2); /* carol's, the grants in flight */
	hf_recovery_counts(w.recovery, &counts);
	assert_int_equal(counts.crashes, 1);
	assert_int_equal(counts.locks_cleaned, 2);
	assert_true(hf_client_is_registered(a()));
}

static void test_equal_state_is_a_repetition(void **state)
{
	say_for_sure(5);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_false(hf_recovery_client_rebooted(w.recovery, a(), 5));
	assert_false(hf_recovery_client_rebooted(w.recovery, a(), 0));
	assert_int_equal(a()->locking.n_locks, 1);
	/* and it is known after a restart, too */
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 7));
	world_turn(&w);
	world_restart(&w);
	assert_int_equal(a()->sm_state, 7);
	assert_false(hf_recovery_client_rebooted(w.recovery, a(), 7));
}

/* Killed when the new state number could be stored, and the end of the locks could not: the notice comes
 * again. */
static void test_killed_in_the_midst_of_a_clean_up(void **state)
{
	say_for_sure(3);
	assert_int_equal(hf_client_register(a()), 0);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	w.disk.is_slow = true;
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	assert_int_equal(hf_client_register(a()), 0); /* for whatever other reason */
	world_turn(&w);
	disk_let_go_of(&w.disk, HF_STORE_CLIENTS);
	world_turn(&w);
	w.disk.is_slow = false;
	world_restart(&w);
	assert_int_equal(world_unreclaimed(&w), 1);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	assert_int_equal(world_unreclaimed(&w), 0);
}

/* A notice is being checked, and the client tells of its restart itself: what it takes then is of that life.
 * Otherwise the server, killed before it has stored the number, would release it when it is reclaimed. */
static void test_what_is_taken_after_a_restart_has_its_number_whatever_is_checked(void **state)
{
	say_for_sure(3);
	a()->doubted_state = 101;
	a()->doubt_tag = hf_client_make_doubt_tag(101, 1);
	assert_int_equal(hf_client_state_for(a(), 0, 0), a()->doubt_tag);
	hf_recovery_client_state(w.recovery, a(), 5);
	assert_int_equal(hf_client_state_for(a(), 5, 0), 5);
	assert_int_equal(hf_client_state_for(a(), 0, 0), 5);
}

static void doubt(int32_t number, uint32_t serial)
{
	a()->doubted_state = number;
	a()->doubt_tag = hf_client_make_doubt_tag(number, serial);
}

static void lock_as(int32_t said, const char *file)
{
	struct hf_lock_request request = world_request(a(), 1, file, 0, 9);

	request.client_state = (uint32_t)hf_client_state_for(a(), said, 0);
	assert_int_equal(hf_lock_acquire(hf_recovery_locks(w.recovery), &request, NULL), HF_LOCK_OK);
}

/* The host was restarted, and locks with its new number 5 while a forged notice is checked. The host's
 * silence confirms the forged notice. The host's own notice is late. */
static void test_what_is_taken_during_a_check_stays_with_the_number_in_its_lock(void **state)
{
	say_for_sure(3);
	doubt(101, 1);
	lock_as(5, "f");
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 101));
	hf_recovery_client_proves(a(), false);
	assert_int_equal(a()->locking.n_locks, 1);
	doubt(5, 2);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	assert_int_equal(a()->locking.n_locks, 1);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 7));
	assert_int_equal(a()->locking.n_locks, 0);
}

/* The client has the number 3 for sure, and its LOCK says that while a forged notice is checked. The host
 * denies the notice, and the server is killed. */
static void lock_while_it_is_forged(int32_t number)
{
	say_for_sure(3);
	assert_int_equal(hf_client_register(a()), 0);
	doubt(number, 1);
	lock_as(3, "f");
	a()->doubted_state = a()->doubt_tag = 0;
	world_turn(&w);
	world_restart(&w);
	assert_int_equal(world_unreclaimed(&w), 1);
}

/* The forger sends the notice again while the host is down. Its number is two restarts later: the LOCK cannot
 * be of that life. */
static void test_what_is_taken_while_a_far_notice_is_checked_goes_when_it_comes_again(void **state)
{
	lock_while_it_is_forged(7);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 7));
	assert_int_equal(world_unreclaimed(&w), 0);
}

/* The number is one restart later. The LOCK may be of that life: a statd that was started too early gives the
 * number before. */
static void test_what_is_taken_while_the_next_notice_is_checked_stays_when_it_comes_again(void **state)
{
	lock_while_it_is_forged(5);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	assert_int_equal(world_unreclaimed(&w), 1);
}

/* LOCKs of two lives, or of a client without a number, have the tag alone. */
static void test_what_is_taken_during_a_check_with_several_numbers_has_none(void **state)
{
	say_for_sure(3);
	doubt(101, 1);
	lock_as(3, "f");
	lock_as(5, "g");
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 101));
	assert_int_equal(a()->locking.n_locks, 2);
	doubt(103, 2);
	lock_as(0, "h");
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	assert_int_equal(a()->locking.n_locks, 1); /* its own check is the last one */
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 7));
	assert_int_equal(a()->locking.n_locks, 0);
}

/* The server stood still. It reads the notice of 5 first, then a LOCK that the client sent before its
 * restart, then a LOCK with the new number. */
static void test_what_an_old_lock_takes_during_a_check_goes_with_the_life_before(void **state)
{
	say_for_sure(3);
	lock_as(3, "f");
	doubt(5, 1);
	lock_as(3, "g");
	hf_recovery_client_state(w.recovery, a(), 5);
	assert_int_equal(a()->locking.n_locks, 0);
	doubt(101, 2);
	lock_as(5, "f");
	hf_recovery_client_state(w.recovery, a(), 7);
	assert_int_equal(a()->locking.n_locks, 0);
}

/* A statd that was started too early gives the old number, and so do the LOCKs of the new life. Other LOCKs
 * have no number. */
static void test_what_a_lock_takes_during_a_check_stays_if_nothing_says_that_it_is_old(void **state)
{
	say_for_sure(3);
	lock_as(3, "f");
	doubt(5, 1);
	lock_as(3, "g");
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	assert_int_equal(a()->locking.n_locks, 1);
	doubt(7, 2);
	lock_as(0, "h");
	hf_recovery_client_state(w.recovery, a(), 7);
	assert_int_equal(a()->locking.n_locks, 1);
}

/* A forger guessed 9 while the client was down. Since then the client had 5 for sure. */
static void test_a_number_that_was_guessed_is_no_copy(void **state)
{
	say_for_sure(3);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 9));
	hf_recovery_client_proves(a(), false);
	assert_true(hf_recovery_may_be_copy(w.recovery, a(), 9));
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	assert_false(hf_recovery_may_be_copy(w.recovery, a(), 9));
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 7));
	hf_recovery_client_proves(a(), false);
	assert_false(hf_recovery_may_be_copy(w.recovery, a(), 9));
	assert_true(hf_recovery_may_be_copy(w.recovery, a(), 5));
	assert_true(hf_recovery_may_be_copy(w.recovery, a(), 3));
}

/* The server was killed after it had stored the lock, and before it had stored the number of its client. */
static void test_the_number_of_a_stored_lock_may_be_a_copy(void **state)
{
	a()->sm_state = 0;
	hf_client_note_stored_number(a(), 5);
	assert_true(hf_recovery_may_be_copy(w.recovery, a(), 5));
	assert_false(hf_recovery_may_be_copy(w.recovery, a(), 7));
}

/* A forged LOCK said 2029. It was not believed, but its wait was stored. The next run must still hear of the
 * client's restart by its LOCK. */
static void test_a_stored_number_that_may_be_guessed_is_not_of_this_life(void **state)
{
	a()->sm_state = 25;
	hf_client_note_stored_number(a(), 25);
	hf_client_note_stored_number(a(), 2029);
	assert_int_equal(hf_client_life_state(a()), 25);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	hf_recovery_client_state(w.recovery, a(), 27);
	assert_int_equal(a()->locking.n_locks, 0);
	/* One restart may have come between a lock and the number of its client. */
	hf_client_note_stored_number(a(), 29);
	assert_int_equal(a()->lock_state, 29);
}

/* A statd that was started too early gives the number before: the higher one is the client's all the same. */
static void test_the_number_above_that_of_the_statd_may_be_a_copy(void **state)
{
	say_for_sure(3);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 7));
	hf_recovery_client_proves(a(), false);
	hf_recovery_client_began(w.recovery, a(), 5);
	assert_true(hf_recovery_may_be_copy(w.recovery, a(), 7));
}

static void test_stragglers_from_before_the_reboot(void **state)
{
	struct hf_recovery_counts counts;

	say_for_sure(3);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 7));
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_false(hf_recovery_client_rebooted(w.recovery, a(), 3));
	assert_false(hf_recovery_client_rebooted(w.recovery, a(), 5));
	hf_recovery_client_state(w.recovery, a(), 5);
	assert_int_equal(a()->locking.n_locks, 1);
	assert_int_equal(a()->sm_state, 7);
	hf_recovery_counts(w.recovery, &counts);
	assert_int_equal(counts.stragglers, 3);
	/* a number that is lower, but new, is of a machine that forgot its own */
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 1));
	assert_int_equal(a()->locking.n_locks, 0);
}

/* sm-notify goes on for 15 minutes with the number of a life that may be over by then. */
static void test_a_straggler_is_one_for_a_quarter_of_an_hour(void **state)
{
	say_for_sure(3);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	turn_for(w.loop, 16 * HF_NS_PER_S);
	assert_false(hf_recovery_client_rebooted(w.recovery, a(), 3));
	turn_for(w.loop, (14 * 60 + 43) * HF_NS_PER_S);
	assert_false(hf_recovery_client_rebooted(w.recovery, a(), 3));
	assert_int_equal(a()->locking.n_locks, 1);
	turn_for(w.loop, 2 * HF_NS_PER_S);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 3)); /* by now it is a machine that forgot */
	assert_int_equal(a()->locking.n_locks, 0);
}

static void test_late_free_all_of_an_earlier_restart(void **state)
{
	hf_recovery_client_state(w.recovery, a(), 3);
	hf_recovery_client_freed(w.recovery, a(), 5);
	hf_recovery_client_freed(w.recovery, a(), 7);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	hf_recovery_client_freed(w.recovery, a(), 5);
	assert_int_equal(a()->locking.n_locks, 1);
	hf_recovery_client_freed(w.recovery, a(), 7);
	assert_int_equal(a()->locking.n_locks, 0);
}

static void test_lock_with_a_new_state(void **state)
{
	hf_recovery_client_state(w.recovery, a(), 3);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	hf_recovery_client_state(w.recovery, a(), 0);
	hf_recovery_client_state(w.recovery, a(), 3);
	assert_int_equal(a()->locking.n_locks, 1);
	hf_recovery_client_state(w.recovery, a(), 5);
	assert_int_equal(a()->locking.n_locks, 0);
	/* what is taken with the new one survives the late notice of the same reboot */
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_false(hf_recovery_client_rebooted(w.recovery, a(), 5));
	assert_int_equal(a()->locking.n_locks, 1);
}

/* A forged datagram said it. */
static void say_unproven(int32_t number)
{
	hf_recovery_client_state(w.recovery, a(), number);
	hf_recovery_client_proves(a(), false);
}

static void test_whether_a_number_is_proven_is_stored(void **state)
{
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	say_unproven(7);
	world_turn(&w);
	world_restart(&w);
	assert_int_equal(a()->sm_state, 7);
	assert_true(hf_recovery_is_new_restart(w.recovery, a(), 7));
	hf_recovery_client_proves(a(), true);
	world_turn(&w);
	world_restart(&w);
	assert_false(hf_recovery_is_new_restart(w.recovery, a(), 7));
}

static void test_a_number_that_is_not_proven_makes_no_notice_old(void **state)
{
	say_unproven(7);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_true(hf_recovery_is_new_restart(w.recovery, a(), 7));
	assert_true(hf_recovery_may_be_copy(w.recovery, a(), 7));
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5)); /* though it is older */
	assert_true(a()->is_state_proven);
	assert_int_equal(a()->sm_state, 5);
	assert_true(
		hf_recovery_is_new_restart(w.recovery, a(), 7)); /* it was never proven that it had that */
	assert_true(hf_recovery_may_be_copy(w.recovery, a(), 7));
	assert_false(hf_recovery_is_new_restart(w.recovery, a(), 5));
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 7));
	assert_false(hf_recovery_is_new_restart(w.recovery, a(), 5)); /* that was proven */
}

static void test_a_number_that_is_not_proven_is_put_right(void **state)
{
	say_unproven(1001);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	hf_recovery_client_state(w.recovery, a(), 5);
	assert_int_equal(a()->sm_state, 5);
	assert_true(a()->is_state_proven);
	assert_int_equal(a()->locking.n_locks, 1);
	assert_int_equal(w.n_events[HF_EVENT_CRASH], 0);
	world_turn(&w);
	/* What it took before goes at its next restart. */
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 7));
	assert_int_equal(a()->locking.n_locks, 0);
}

/* A LOCK is compared with the number of the client's LOCKs, if the last number may be forged. */
static void test_a_far_number_that_is_not_proven_hides_no_restart(void **state)
{
	say_unproven(1001);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	hf_client_note_lock_state(a(), 5);
	assert_int_equal(hf_client_life_state(a()), 5);
	hf_recovery_client_state(w.recovery, a(), 7);
	assert_int_equal(a()->sm_state, 7);
	assert_int_equal(a()->locking.n_locks, 0);
	assert_int_equal(hf_client_life_state(a()), 7);
}

/* A forger guessed 7 while the client was down. The LOCKs of its next life said 5, those of the life after
 * that say 7. */
static void test_a_number_that_was_guessed_hides_no_restart(void **state)
{
	assert_int_equal(hf_client_register(a()), 0);
	say_unproven(7);
	lock_as(5, "f");
	hf_client_note_lock_state(a(), 5);
	world_turn(&w);
	/* Killed before the end of the lock is stored, the server must not know the number for sure. */
	w.disk.is_slow = true;
	hf_recovery_client_state(w.recovery, a(), 7);
	assert_int_equal(a()->locking.n_locks, 0);
	world_turn(&w);
	disk_let_go_of(&w.disk, HF_STORE_CLIENTS);
	world_turn(&w);
	w.disk.is_slow = false;
	world_restart(&w);
	assert_int_equal(world_unreclaimed(&w), 1);
	assert_true(hf_recovery_is_new_restart(w.recovery, a(), 7));
}

static void test_a_forged_lock_changes_no_number_of_a_client_with_locks(void **state)
{
	hf_client_note_lock_state(a(), 1001);
	hf_client_note_lock_state(a(), 5); /* it has nothing: any of them may be its own */
	assert_int_equal(a()->lock_state, 5);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	hf_client_note_lock_state(a(), 3);
	hf_client_note_lock_state(a(), 1001);
	assert_int_equal(a()->lock_state, 5);
	say_for_sure(7);
	hf_client_note_lock_state(a(), 7);
	assert_int_equal(a()->lock_state, 7);
}

static void test_the_number_of_its_locks_stays_with_a_notice_of_that_number(void **state)
{
	say_unproven(7);
	hf_client_note_lock_state(a(), 7);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 7));
	assert_int_equal(a()->lock_state, 7);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 9));
	assert_int_equal(a()->lock_state, 0);
}

static void test_an_older_number_does_not_replace_one_that_is_proven(void **state)
{
	say_for_sure(7);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	hf_recovery_client_state(w.recovery, a(), 5);
	assert_int_equal(a()->sm_state, 7);
	assert_int_equal(a()->locking.n_locks, 1);
}

static void test_a_number_is_proven_when_it_is_said_for_sure(void **state)
{
	say_unproven(5);
	hf_recovery_client_state(w.recovery, a(), 5);
	assert_true(a()->is_state_proven);
	assert_false(hf_recovery_client_rebooted(w.recovery, a(), 5));
}

static void test_what_began_with_a_number_is_of_one_life(void **state)
{
	say_unproven(3);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	hf_recovery_client_began(w.recovery, a(), 5); /* newer, and nothing goes */
	assert_int_equal(a()->sm_state, 5);
	assert_int_equal(a()->locking.n_locks, 1);
	hf_recovery_client_began(w.recovery, a(), 7); /* but 5 is proven */
	assert_int_equal(a()->locking.n_locks, 0);
}

static void test_first_state_that_we_learn_says_nothing_of_a_reboot(void **state)
{
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK); /* with state 0 */
	hf_recovery_client_state(w.recovery, a(), 3);
	assert_int_equal(a()->locking.n_locks, 1);
	assert_int_equal(w.n_events[HF_EVENT_CRASH], 0);
}

static void test_first_notice_that_we_get_does(void **state)
{
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK); /* with state 0 */
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 3));
	assert_int_equal(a()->locking.n_locks, 0);
}

static void test_only_older_locks_go(void **state)
{
	struct hf_lock_request request = world_request(a(), 1, "f", 0, 9);

	say_for_sure(3);
	assert_int_equal(world_lock(&w, a(), 1, "g", 0, 9), HF_LOCK_OK);
	request.client_state = 5; /* taken after the reboot, whose notice is late */
	assert_int_equal(hf_lock_acquire(hf_recovery_locks(w.recovery), &request, NULL), HF_LOCK_OK);
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	assert_int_equal(a()->locking.n_locks, 1);
	assert_int_equal(w.last[HF_EVENT_CLEANUP].n_locks, 1);
}

static void test_no_other_clients_locks_go(void **state)
{
	struct hf_client *twin = world_client(&w, "10.0.0.99", "alpha");

	assert_int_equal(world_lock(&w, twin, 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_lock(&w, world_client(&w, "10.0.0.11", "other"), 1, "g", 0, 9), HF_LOCK_OK);
	hf_recovery_client_crashed(w.recovery, a(), "test");
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	assert_int_equal(twin->locking.n_locks, 1);
	assert_int_equal(world_client(&w, "10.0.0.11", "other")->locking.n_locks, 1);
}

static void test_evidence_counts_in_grace(void **state)
{
	say_for_sure(3);
	assert_int_equal(hf_client_register(a()), 0);
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	world_restart(&w);
	assert_true(world_in_grace(&w));
	assert_true(hf_recovery_client_rebooted(w.recovery, a(), 5));
	assert_int_equal(world_reclaim(&w, a(), 1, "f", 0, 9), HF_LOCK_E_NOT_BACKED);
	world_until(&w, !world_in_grace(&w));
	assert_int_equal(world_lock(&w, world_client(&w, "10.0.0.12", "carol"), 1, "f", 0, 9), HF_LOCK_OK);
}

static void test_operator(void **state)
{
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_lock(&w, a(), 1, "f", 20, 29), HF_LOCK_OK);
	assert_int_equal(hf_recovery_client_crashed(w.recovery, a(), "an operator said so"), 2);
	assert_int_equal(a()->status, HF_CLIENT_CRASHED);
	assert_int_equal(hf_recovery_client_crashed(w.recovery, a(), "an operator said so"), 0);
}

/* Another protocol, whose clients live by their connections: the same path. */
static void test_durable_handles_of_another_protocol(void **state)
{
	struct hf_client *client;
	struct hf_lock_request request;
	struct hf_addr addr;

	world_kill(&w);
	w.options.protocols[WORLD_SMB].window_ns = 500 * MS;
	world_up(&w);
	assert_true(hf_addr_parse(&addr, "10.0.0.50"));
	assert_int_equal(hf_clients_get(&client, hf_recovery_clients(w.recovery), "smb", &addr,
					hf_bytes_of_str("session-1")),
			 0);
	assert_int_equal(hf_client_register(client), 0);
	request = world_request(client, 1, "doc", 0, 9);
	request.who.owner_kind = 1;
	assert_int_equal(hf_lock_acquire(hf_recovery_locks(w.recovery), &request, NULL), HF_LOCK_OK);
	wait_for("doc");
	hf_client_disconnected(client);
	for (int i = 0; i < 10; i++)
		world_turn(&w);
	assert_int_equal(client->locking.n_locks, 1); /* kept */
	hf_client_reconnected(client);
	for (uint64_t since = hf_loop_now(w.loop); hf_loop_now(w.loop) < since + 700 * MS;)
		world_turn(&w);
	assert_int_equal(client->locking.n_locks, 1); /* and given back */
	hf_client_disconnected(client);
	world_until(&w, client->locking.n_locks == 0); /* not this time */
	assert_int_equal(client->status, HF_CLIENT_CRASHED);
	assert_int_equal(w.n_granted, 1);
	assert_int_equal(w.n_events[HF_EVENT_CLEANUP], 1);
	hf_client_unref(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_notice_frees_everything_and_serves_waiters),
		T(test_equal_state_is_a_repetition),
		T(test_killed_in_the_midst_of_a_clean_up),
		T(test_stragglers_from_before_the_reboot),
		T(test_a_straggler_is_one_for_a_quarter_of_an_hour),
		T(test_late_free_all_of_an_earlier_restart),
		T(test_lock_with_a_new_state),
		T(test_whether_a_number_is_proven_is_stored),
		T(test_a_number_that_is_not_proven_makes_no_notice_old),
		T(test_a_number_that_is_not_proven_is_put_right),
		T(test_a_far_number_that_is_not_proven_hides_no_restart),
		T(test_a_number_that_was_guessed_hides_no_restart),
		T(test_a_forged_lock_changes_no_number_of_a_client_with_locks),
		T(test_the_number_of_its_locks_stays_with_a_notice_of_that_number),
		T(test_an_older_number_does_not_replace_one_that_is_proven),
		T(test_a_number_is_proven_when_it_is_said_for_sure),
		T(test_what_began_with_a_number_is_of_one_life),
		T(test_first_state_that_we_learn_says_nothing_of_a_reboot),
		T(test_first_notice_that_we_get_does),
		T(test_only_older_locks_go),
		T(test_what_is_taken_during_a_check_stays_with_the_number_in_its_lock),
		T(test_what_is_taken_while_a_far_notice_is_checked_goes_when_it_comes_again),
		T(test_what_is_taken_while_the_next_notice_is_checked_stays_when_it_comes_again),
		T(test_what_is_taken_during_a_check_with_several_numbers_has_none),
		T(test_what_an_old_lock_takes_during_a_check_goes_with_the_life_before),
		T(test_what_a_lock_takes_during_a_check_stays_if_nothing_says_that_it_is_old),
		T(test_a_number_that_was_guessed_is_no_copy),
		T(test_the_number_of_a_stored_lock_may_be_a_copy),
		T(test_a_stored_number_that_may_be_guessed_is_not_of_this_life),
		T(test_the_number_above_that_of_the_statd_may_be_a_copy),
		T(test_what_is_taken_after_a_restart_has_its_number_whatever_is_checked),
		T(test_no_other_clients_locks_go),
		T(test_evidence_counts_in_grace),
		T(test_operator),
		T(test_durable_handles_of_another_protocol),
	};

	return cmocka_run_group_tests_name("crash", tests, NULL, NULL);
}
