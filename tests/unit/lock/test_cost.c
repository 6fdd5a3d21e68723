/*
 * What a lock costs in memory, all in: its record, its places in the sets of its
 * file and of its owner, and its part of owner, holding and file, with all that
 * the pools keep in reserve. At most 160 bytes where there are many.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lock/lock.h"

enum {
	LOCKS = 1000000,
	MOST = 160,
};

static struct hf_bytes handle_of(uint8_t room[32], uint32_t file)
{
	memset(room, 0, 32);
	memcpy(room, &file, sizeof(file));
	return hf_bytes_of(room, 32);
}

/* In no order, so that nodes are as full as they are in life: each number once. */
static uint64_t shuffled(uint64_t i)
{
	return i * 611953 % LOCKS; /* a prime, which does not divide it */
}

static void check(uint32_t n_files, uint32_t n_owners)
{
	struct hf_locks_options options = {
		.key = { 1, 2 },
		.limits = { .locks_per_client = LOCKS, .locks_per_file = LOCKS },
	};
	struct hf_lock_client client;
	struct hf_lock_counters n;
	struct hf_locks *locks;
	uint8_t room[32];

	assert_int_equal(hf_locks_new(&locks, &options), 0);
	hf_lock_client_init(locks, &client);
	for (uint64_t i = 0; i < LOCKS; i++) {
		uint64_t at = shuffled(i);
		struct hf_lock_request request = {
			.who = { .handle = handle_of(room, (uint32_t)(at % n_files)),
				 .client = &client,
				 .owner_id = at % n_owners,
				 .oh = hf_bytes_of_str("1234567@client.example.org") },
			.range = { 4 * at, 4 * at },
			.mode = HF_LOCK_EXCLUSIVE,
		};

		assert_int_equal(hf_lock_acquire(locks, &request, NULL), HF_LOCK_OK);
	}
	hf_lock_count(locks, &n);
	print_message("%u files, %u owners: %.1f bytes a lock\n", n_files, n_owners,
		      (double)n.bytes / (double)n.locks);
	assert_int_equal(n.locks, LOCKS);
	assert_in_range(n.bytes, LOCKS, (uint64_t)LOCKS * MOST);
	hf_locks_free(locks);
}

static void test_many_owners_in_a_file(void **state)
{
	check(1, 1000);
}

static void test_one_owner_of_all(void **state)
{
	check(1, 1);
}

static void test_many_files(void **state)
{
	check(100000, 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_owners_in_a_file),
		cmocka_unit_test(test_one_owner_of_all),
		cmocka_unit_test(test_many_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
