/* Reservations. */
#include "bed.h"

#include <time.h>

enum {
	NONE = 0,
	READ = 1,
	WRITE = 2,
	BOTH = 3,
};

/* The owner is the client of @owner, and @oh. */
static int reserve(struct bed *bed, int owner, const char *oh, uint8_t access, uint8_t deny)
{
	struct hf_lock_target who = bed_target(bed, owner);

	who.oh = hf_bytes_of_str(oh);
	return hf_lock_reserve(bed->locks, &who, access, deny, bed->state, false);
}

static void unreserve(struct bed *bed, int owner, const char *oh, uint8_t access, uint8_t deny)
{
	struct hf_lock_target who = bed_target(bed, owner);

	who.oh = hf_bytes_of_str(oh);
	assert_int_equal(hf_lock_unreserve(bed->locks, &who, access, deny), HF_LOCK_OK);
}

static void test_my_access_against_their_deny(void **state)
{
	assert_int_equal(reserve(*state, 1, "a", READ, WRITE), HF_LOCK_OK);
	assert_int_equal(reserve(*state, 11, "a", WRITE, NONE), HF_LOCK_E_CONFLICT);
	assert_int_equal(reserve(*state, 11, "a", READ, NONE), HF_LOCK_OK);
}

static void test_my_deny_against_their_access(void **state)
{
	reserve(*state, 1, "a", READ, NONE);
	assert_int_equal(reserve(*state, 11, "a", WRITE, READ), HF_LOCK_E_CONFLICT);
	assert_int_equal(reserve(*state, 11, "a", WRITE, WRITE), HF_LOCK_OK);
}

static void test_owner_is_client_and_oh(void **state)
{
	reserve(*state, 1, "a", READ, BOTH);
	assert_int_equal(reserve(*state, 2, "a", BOTH, BOTH), HF_LOCK_OK); /* the svid does not matter */
	assert_int_equal(reserve(*state, 1, "b", READ, NONE), HF_LOCK_E_CONFLICT);
}

static void test_counted_as_a_multiset(void **state)
{
	reserve(*state, 1, "a", READ, WRITE);
	reserve(*state, 1, "a", READ, WRITE);
	assert_told(*state, "+reservation a1 d2 n1, +reservation a1 d2 n2");
	unreserve(*state, 1, "a", READ, WRITE);
	assert_int_equal(reserve(*state, 11, "x", WRITE, NONE), HF_LOCK_E_CONFLICT);
	unreserve(*state, 1, "a", READ, WRITE);
	assert_told(*state, "-reservation a1 d2 n1, -reservation a1 d2 n0");
	assert_int_equal(reserve(*state, 11, "x", WRITE, NONE), HF_LOCK_OK);
}

static uint32_t count(struct bed *bed, int owner, const char *oh, uint8_t access, uint8_t deny)
{
	struct hf_lock_target who = bed_target(bed, owner);

	who.oh = hf_bytes_of_str(oh);
	return hf_lock_count_reservations(bed->locks, &who, access, deny);
}

static void test_count_is_of_one_owner_and_mode(void **state)
{
	assert_int_equal(count(*state, 1, "a", READ, NONE), 0);
	reserve(*state, 1, "a", READ, NONE);
	reserve(*state, 1, "a", READ, NONE);
	reserve(*state, 1, "b", READ, NONE);
	reserve(*state, 11, "a", READ, NONE);
	assert_int_equal(count(*state, 1, "a", READ, NONE), 2);
	assert_int_equal(count(*state, 11, "a", READ, NONE), 1);
	assert_int_equal(count(*state, 1, "a", WRITE, NONE), 0);
	assert_int_equal(count(*state, 1, "a", READ, WRITE), 0);
	unreserve(*state, 1, "a", READ, NONE);
	assert_int_equal(count(*state, 1, "a", READ, NONE), 1);
}

static void test_unreserve_without_a_match_is_ok(void **state)
{
	unreserve(*state, 1, "a", READ, WRITE);
	reserve(*state, 1, "a", READ, WRITE);
	unreserve(*state, 1, "a", READ, NONE);
	unreserve(*state, 1, "b", READ, WRITE);
	assert_told(*state, "+reservation a1 d2 n1");
	assert_int_equal(bed_count(*state).reservations, 1);
}

static void test_reservations_and_locks_do_not_meet(void **state)
{
	reserve(*state, 1, "a", BOTH, BOTH);
	assert_int_equal(bed_lock(*state, 11, E, 0, TO_EOF), HF_LOCK_OK);
}

static void test_purge_takes_reservations(void **state)
{
	struct bed *bed = *state;

	reserve(bed, 1, "a", READ, WRITE);
	reserve(bed, 1, "a", READ, WRITE);
	reserve(bed, 1, "b", READ, NONE);
	bed_told(bed);
	hf_lock_client_purge(bed->locks, &bed->clients[0]);
	assert_told(bed, "-reservation a1 d2 n0, -reservation a1 d0 n0");
	assert_int_equal(bed->clients[0].n_reservations, 0);
	assert_int_equal(bed_count(bed).files, 0);
}

static void test_purge_by_state_keeps_the_new_ones(void **state)
{
	struct bed *bed = *state;

	reserve(bed, 1, "old", READ, NONE);
	bed->state = 0;
	reserve(bed, 1, "unknown", READ, NONE);
	bed->state = 3;
	reserve(bed, 1, "new", READ, NONE);
	hf_lock_client_purge_older(bed->locks, &bed->clients[0], 3);
	assert_int_equal(bed_count(bed).reservations, 1);
}

/* RESTART */

static int restore(struct bed *bed, int owner, const char *oh, uint8_t access, uint8_t deny, uint32_t n)
{
	struct hf_lock_target who = bed_target(bed, owner);
	const struct hf_lock_reservation_view view = {
		.tag = 77,
		.export = who.export,
		.handle = who.handle,
		.client = who.client,
		.oh = hf_bytes_of_str(oh),
		.client_state = 1,
		.access = access,
		.deny = deny,
		.count = n,
	};

	hf_lock_set_grace(bed->locks, true);
	return hf_lock_restore_reservation(bed->locks, &view);
}

static int reclaim(struct bed *bed, int owner, const char *oh, uint8_t access, uint8_t deny)
{
	struct hf_lock_target who = bed_target(bed, owner);

	who.oh = hf_bytes_of_str(oh);
	return hf_lock_reserve(bed->locks, &who, access, deny, bed->state, true);
}

static void test_restored_ones_wait_for_their_owner(void **state)
{
	struct bed *bed = *state;

	assert_int_equal(restore(bed, 1, "a", READ, WRITE, 2), HF_LOCK_OK);
	assert_int_equal(bed_count(bed).reservations, 0);
	assert_int_equal(bed_count(bed).unreclaimed_reservations, 1);
	assert_false(hf_lock_client_is_idle(&bed->clients[0]));
	assert_int_equal(reclaim(bed, 11, "a", WRITE, NONE), HF_LOCK_E_CONFLICT);
	assert_int_equal(reclaim(bed, 1, "a", READ, WRITE), HF_LOCK_OK);
	assert_int_equal(bed_count(bed).unreclaimed_reservations, 1);
	assert_int_equal(reclaim(bed, 1, "a", READ, WRITE), HF_LOCK_OK);
	assert_int_equal(bed_count(bed).unreclaimed_reservations, 0);
	assert_told(bed, "+reservation a1 d2 n1, +reservation a1 d2 n2");
	hf_lock_set_grace(bed->locks, false);
	assert_told(bed, "");
	assert_int_equal(count(bed, 1, "a", READ, WRITE), 2);
}

static void test_the_end_of_grace_drops_what_was_not_reclaimed(void **state)
{
	struct bed *bed = *state;

	restore(bed, 1, "a", READ, WRITE, 2);
	restore(bed, 1, "b", READ, NONE, 1);
	reclaim(bed, 1, "a", READ, WRITE);
	bed_told(bed);
	hf_lock_set_grace(bed->locks, false);
	assert_told(bed, "-reservation a1 d2 n1 expired, -reservation a1 d0 n0 expired");
	assert_int_equal(bed_count(bed).unreclaimed_reservations, 0);
	assert_int_equal(bed_count(bed).reservations, 1);
}

static void test_restored_ones_can_be_given_up_and_purged(void **state)
{
	struct bed *bed = *state;

	restore(bed, 1, "a", READ, WRITE, 2);
	unreserve(bed, 1, "a", READ, WRITE);
	unreserve(bed, 1, "a", READ, WRITE);
	assert_told(bed, "-reservation a1 d2 n0, -reservation a1 d2 n0");
	restore(bed, 1, "a", READ, WRITE, 2);
	hf_lock_client_purge_older(bed->locks, &bed->clients[0], 1);
	assert_told(bed, "");
	hf_lock_client_purge_older(bed->locks, &bed->clients[0], 3);
	assert_told(bed, "-reservation a1 d2 n0");
	assert_int_equal(bed_count(bed).files, 0);
}

static void test_two_that_conflict_cannot_both_be_restored(void **state)
{
	assert_int_equal(restore(*state, 1, "a", READ, WRITE, 1), HF_LOCK_OK);
	assert_int_equal(restore(*state, 1, "a", READ, WRITE, 1), HF_LOCK_E_CONFLICT);
	assert_int_equal(restore(*state, 1, "a", WRITE, NONE, 1), HF_LOCK_OK);
	assert_int_equal(restore(*state, 11, "a", WRITE, NONE, 1), HF_LOCK_E_CONFLICT);
}

static size_t drop_older(struct bed *bed, int owner, const char *oh, uint8_t access, uint8_t deny,
			 uint64_t tag)
{
	const struct hf_lock_target who = bed_target(bed, owner);
	const struct hf_lock_reservation_view later = {
		.tag = tag,
		.export = who.export,
		.handle = who.handle,
		.client = who.client,
		.oh = hf_bytes_of_str(oh),
		.access = access,
		.deny = deny,
	};

	return hf_lock_drop_older_reservations(bed->locks, &later);
}

static void test_older_ones_make_way(void **state)
{
	struct bed *bed = *state;

	restore(bed, 1, "a", READ, WRITE, 2);
	restore(bed, 1, "b", READ, NONE, 1);
	assert_int_equal(drop_older(bed, 11, "a", WRITE, NONE, 76), 0);
	assert_int_equal(drop_older(bed, 11, "a", READ, NONE, 78), 0);
	assert_int_equal(drop_older(bed, 1, "a", WRITE, NONE, 78), 0);
	assert_told(bed, "");
	assert_int_equal(drop_older(bed, 11, "a", WRITE, NONE, 78), 1);
	assert_told(bed, "-reservation a1 d2 n0");
	assert_int_equal(drop_older(bed, 1, "b", READ, NONE, 78), 1);
	assert_told(bed, "-reservation a1 d0 n0");
	assert_int_equal(bed_count(bed).unreclaimed_reservations, 0);
	assert_int_equal(bed_count(bed).files, 0);
}

static void test_a_reclaimed_one_makes_no_way(void **state)
{
	struct bed *bed = *state;

	restore(bed, 1, "a", READ, WRITE, 2);
	reclaim(bed, 1, "a", READ, WRITE);
	assert_int_equal(drop_older(bed, 11, "a", WRITE, NONE, 78), 0);
	assert_int_equal(drop_older(bed, 1, "a", READ, WRITE, 78), 0);
	assert_int_equal(bed_count(bed).unreclaimed_reservations, 1);
}

/* Its owner was told to ask again: it does, and still has one. */
static void test_a_doubted_one_is_not_added_again(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_target who = bed_target(bed, 1);

	who.oh = hf_bytes_of_str("a");
	restore(bed, 1, "a", READ, WRITE, 1);
	reclaim(bed, 1, "a", READ, WRITE);
	hf_lock_doubt_reservation(bed->locks, &who, READ, WRITE);
	hf_lock_doubt_reservation(bed->locks, &who, READ, WRITE);
	bed_told(bed);
	assert_int_equal(reclaim(bed, 1, "a", READ, WRITE), HF_LOCK_OK);
	assert_told(bed, "");
	assert_int_equal(count(bed, 1, "a", READ, WRITE), 1);
	reclaim(bed, 1, "a", READ, WRITE);
	assert_int_equal(count(bed, 1, "a", READ, WRITE), 2);
}

static uint64_t cpu_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* As many as there may be in a file, of one client: a request does not pay for all of them. It takes
 * a second of a slow machine with sanitizers, and took minutes of a fast one when a request looked at each.
 */
static void test_tens_of_thousands_in_a_file(void **state)
{
	enum {
		N = 60000
	};
	struct bed *bed = *state;
	uint64_t begun = cpu_ms();
	char oh[16];

	bed->is_silent = true;
	for (int i = 0; i < N; i++) {
		snprintf(oh, sizeof(oh), "%d", i);
		assert_int_equal(reserve(bed, 1, oh, i ? READ : BOTH, i % 2 ? WRITE : NONE),
				 i % 2 ? HF_LOCK_E_CONFLICT : HF_LOCK_OK);
	}
	assert_int_equal(bed_count(bed).reservations, N / 2);
	unreserve(bed, 1, "0", BOTH, NONE);
	for (int i = 1; i < N; i++) {
		snprintf(oh, sizeof(oh), "%d", i);
		if (i % 2)
			assert_int_equal(reserve(bed, 11, oh, NONE, WRITE), HF_LOCK_OK);
		else
			unreserve(bed, 1, oh, READ, NONE);
	}
	assert_in_range(cpu_ms() - begun, 0, 10000);
}

static void test_limits(void **state)
{
	struct bed bed;

	bed_open_with(&bed,
		      &(struct hf_lock_limits){ .reservations_per_client = 2, .reservations_per_file = 3 });
	reserve(&bed, 1, "a", READ, NONE);
	reserve(&bed, 1, "a", READ, NONE);
	assert_int_equal(reserve(&bed, 1, "a", READ, NONE), HF_LOCK_E_LIMIT);
	assert_int_equal(reserve(&bed, 11, "a", READ, NONE), HF_LOCK_OK);
	assert_int_equal(reserve(&bed, 21, "a", READ, NONE), HF_LOCK_E_LIMIT);
	bed_close(&bed);
}

static void test_limit_in_all(void **state)
{
	struct bed bed;

	bed_open_with(&bed, &(struct hf_lock_limits){ .reservations = 1 });
	reserve(&bed, 1, "a", READ, NONE);
	bed.file = 1;
	assert_int_equal(reserve(&bed, 11, "a", READ, NONE), HF_LOCK_E_LIMIT);
	bed_close(&bed);
}

/* Which reservations a list shows, each as its client's number and its oh: "0a 1x". */
static const char *listed(struct bed *bed, const struct hf_lock_client *client, struct hf_lock_cursor *cursor,
			  size_t max)
{
	static char text[256];
	struct hf_lock_reservation_view view;

	text[0] = '\0';
	for (size_t i = 0; i < max && hf_lock_next_reservation(bed->locks, client, cursor, &view); i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%d%.*s", i ? " " : "",
			 (int)(view.client - bed->clients), (int)view.oh.len, (const char *)view.oh.data);
	return text;
}

static void test_all_are_listed_client_by_client(void **state)
{
	struct bed *bed = *state;

	reserve(bed, 11, "x", READ, NONE);
	reserve(bed, 1, "a", READ, NONE);
	bed->file = 1;
	reserve(bed, 1, "b", BOTH, NONE);
	reserve(bed, 21, "q", READ, NONE);
	reserve(bed, 1, "b", BOTH, NONE); /* is counted in the same record */
	assert_string_equal(listed(bed, NULL, &(struct hf_lock_cursor){ 0 }, 10), "0a 0b 1x 2q");
	assert_string_equal(listed(bed, &bed->clients[0], &(struct hf_lock_cursor){ 0 }, 10), "0a 0b");
	assert_string_equal(listed(bed, &bed->clients[2], &(struct hf_lock_cursor){ 0 }, 10), "2q");
	hf_lock_client_purge(bed->locks, &bed->clients[0]);
	assert_string_equal(listed(bed, &bed->clients[0], &(struct hf_lock_cursor){ 0 }, 10), "");
	assert_string_equal(listed(bed, NULL, &(struct hf_lock_cursor){ 0 }, 10), "1x 2q");
}

static void test_a_list_goes_on_while_others_come_and_go(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_cursor all = { 0 }, one = { 0 };

	reserve(bed, 1, "a", READ, NONE);
	reserve(bed, 1, "b", READ, NONE);
	reserve(bed, 1, "c", READ, NONE);
	reserve(bed, 11, "x", READ, NONE);
	assert_string_equal(listed(bed, NULL, &all, 2), "0a 0b");
	assert_string_equal(listed(bed, &bed->clients[0], &one, 2), "0a 0b");
	unreserve(bed, 1, "b", READ, NONE); /* where the cursors are */
	reserve(bed, 1, "d", READ, NONE);
	assert_string_equal(listed(bed, NULL, &all, 10), "0c 0d 1x");
	assert_string_equal(listed(bed, &bed->clients[0], &one, 10), "0c 0d");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		bed_test_of(test_my_access_against_their_deny),
		bed_test_of(test_my_deny_against_their_access),
		bed_test_of(test_owner_is_client_and_oh),
		bed_test_of(test_counted_as_a_multiset),
		bed_test_of(test_count_is_of_one_owner_and_mode),
		bed_test_of(test_unreserve_without_a_match_is_ok),
		bed_test_of(test_reservations_and_locks_do_not_meet),
		bed_test_of(test_purge_takes_reservations),
		bed_test_of(test_purge_by_state_keeps_the_new_ones),
		bed_test_of(test_restored_ones_wait_for_their_owner),
		bed_test_of(test_the_end_of_grace_drops_what_was_not_reclaimed),
		bed_test_of(test_restored_ones_can_be_given_up_and_purged),
		bed_test_of(test_two_that_conflict_cannot_both_be_restored),
		bed_test_of(test_older_ones_make_way),
		bed_test_of(test_a_reclaimed_one_makes_no_way),
		bed_test_of(test_a_doubted_one_is_not_added_again),
		bed_test_of(test_tens_of_thousands_in_a_file),
		bed_test_of(test_all_are_listed_client_by_client),
		bed_test_of(test_a_list_goes_on_while_others_come_and_go),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_limit_in_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
