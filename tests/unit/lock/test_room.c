/* How much one client and one address may have, in number and in bytes, and that the bytes are not too few.
 */
#include "../test.h"

#include <stdio.h>
#include <string.h>

#include "lock/lock.h"

#define E     HF_LOCK_EXCLUSIVE
#define MANY  60000
#define SLABS (16 << 20) /* that pools have beyond what is used, however little */

struct rig {
	struct hf_locks *locks;
	struct hf_lock_group groups[2];
	struct hf_lock_client clients[4]; /* two of each group */
	uint8_t oh[HF_LOCK_OH_MAX];
};

static struct rig rig;

static void open_with(struct hf_lock_limits limits)
{
	struct hf_locks_options options = { .epoch = 1, .limits = limits };

	memset(&rig, 0, sizeof(rig));
	assert_int_equal(hf_locks_new(&rig.locks, &options), 0);
	for (unsigned int i = 0; i < 4; i++) {
		hf_lock_client_init(rig.locks, &rig.clients[i]);
		hf_lock_client_join(&rig.clients[i], &rig.groups[i / 2]);
	}
}

static int teardown(void **state)
{
	assert_null(hf_locks_check(rig.locks));
	for (unsigned int i = 0; i < 4; i++) {
		hf_lock_client_purge(rig.locks, &rig.clients[i]);
		assert_int_equal(rig.clients[i].bytes, 0);
		assert_int_equal(rig.clients[i].oh_bytes, 0);
	}
	for (unsigned int i = 0; i < 2; i++) {
		struct hf_lock_group empty = { .steps = rig.groups[i].steps };

		assert_memory_equal(&rig.groups[i], &empty, sizeof(empty));
	}
	assert_null(hf_locks_check(rig.locks));
	hf_locks_free(rig.locks);
	return 0;
}

static struct hf_lock_target target(unsigned int client, uint64_t owner, const char *file, uint32_t oh_len)
{
	return (struct hf_lock_target){
		.handle = hf_bytes_of_str(file),
		.client = &rig.clients[client],
		.owner_id = owner,
		.oh = hf_bytes_of(rig.oh, oh_len),
	};
}

static int ask(unsigned int client, uint64_t owner, const char *file, uint64_t at, uint32_t oh_len, bool wait)
{
	struct hf_lock_request request = {
		.who = target(client, owner, file, oh_len),
		.range = { at, at },
		.mode = E,
		.wait = wait,
	};

	return hf_lock_acquire(rig.locks, &request, NULL);
}

static int lock(unsigned int client, uint64_t owner, uint64_t at)
{
	return ask(client, owner, "f", 2 * at, 0, false);
}

static int reserve(unsigned int client, const char *file, uint32_t oh_len)
{
	struct hf_lock_target who = target(client, 0, file, oh_len);

	return hf_lock_reserve(rig.locks, &who, 1, 0, 0, false);
}

static void test_half_of_the_locks(void **state)
{
	open_with((struct hf_lock_limits){ .locks = 20 });
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(lock(i % 2, 1, i), HF_LOCK_OK);
	assert_int_equal(lock(0, 1, 20), HF_LOCK_E_LIMIT);
	assert_int_equal(lock(1, 1, 20), HF_LOCK_E_LIMIT);
	assert_int_equal(lock(2, 1, 20), HF_LOCK_OK);
	assert_int_equal(lock(1, 1, 1), HF_LOCK_OK); /* it has that */
}

static struct hf_limit_use use_of(enum hf_limit limit, int client)
{
	struct hf_limit_use uses[HF_N_LIMITS] = { 0 };

	hf_lock_show_limits(rig.locks, uses);
	hf_lock_show_file_limits(rig.locks, uses);
	if (client >= 0)
		hf_lock_show_client_limits(rig.locks, &rig.clients[client], 0, uses);
	return uses[limit];
}

static void expect_use(enum hf_limit limit, int client, uint64_t used, uint64_t max, uint64_t refused)
{
	struct hf_limit_use use = use_of(limit, client);

	assert_int_equal(use.used, used);
	assert_int_equal(use.max, max);
	assert_int_equal(use.refused, refused);
}

/* A refusal counts for the limit that was reached, and for no other. */
static void test_refusals_are_counted_by_limit(void **state)
{
	open_with((struct hf_lock_limits){
		.locks = 40, .locks_per_client = 4, .waiters_per_file = 4, .reservations_per_client = 2 });
	for (uint64_t i = 0; i < 6; i++)
		assert_int_equal(lock(0, 1, i), i < 4 ? HF_LOCK_OK : HF_LOCK_E_LIMIT);
	expect_use(HF_LIMIT_LOCKS_PER_CLIENT, 0, 4, 4, 2);
	expect_use(HF_LIMIT_LOCKS_PER_ADDRESS, 1, 4, 20, 0); /* the address of both */
	expect_use(HF_LIMIT_LOCKS, -1, 4, 40, 0);
	for (uint64_t i = 0; i < 3; i++) /* half of the queue is for one address */
		assert_int_equal(ask(2, 10 + i, "f", 0, 0, true), i < 2 ? HF_LOCK_E_QUEUED : HF_LOCK_E_LIMIT);
	expect_use(HF_LIMIT_WAITERS_PER_FILE, -1, 2, 4, 1);
	expect_use(HF_LIMIT_WAITERS, -1, 2, 262144, 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(reserve(3, "f", 8), i < 2 ? HF_LOCK_OK : HF_LOCK_E_LIMIT);
	expect_use(HF_LIMIT_RESERVATIONS_PER_CLIENT, 3, 2, 2, 1);
	assert_int_equal(use_of(HF_LIMIT_LOCK_SEARCHES, -1).refused, 0);
	assert_int_equal(use_of(HF_LIMIT_OWNER_BYTES, -1).refused, 0);
}

static void expect_most(uint64_t locks, uint64_t waiters, uint64_t reservations)
{
	struct hf_limit_use uses[HF_N_LIMITS] = { 0 };

	hf_lock_show_file_limits(rig.locks, uses);
	assert_int_equal(uses[HF_LIMIT_LOCKS_PER_FILE].used, locks);
	assert_int_equal(uses[HF_LIMIT_WAITERS_PER_FILE].used, waiters);
	assert_int_equal(uses[HF_LIMIT_RESERVATIONS_PER_FILE].used, reservations);
}

static void lock_many(const char *file, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
		assert_int_equal(ask(0, 1, file, 2 * i, 0, false), HF_LOCK_OK);
}

static void unlock(const char *file, uint64_t from, uint64_t to)
{
	struct hf_lock_target who = target(0, 1, file, 0);

	assert_int_equal(hf_lock_release(rig.locks, &who, (struct hf_range){ 2 * from, 2 * to }), HF_LOCK_OK);
}

static void test_the_most_in_one_file(void **state)
{
	open_with((struct hf_lock_limits){ 0 });
	expect_most(0, 0, 0);
	for (uint64_t n = 1; n <= 300; n++) {
		lock_many("file", n - 1, n);
		expect_most(n, 0, 0);
	}
	lock_many("small", 0, 5);
	for (uint64_t n = 1; n <= 20; n++) {
		assert_int_equal(ask(2, n, "small", 0, 0, true), HF_LOCK_E_QUEUED);
		assert_int_equal(reserve(1, "other", (uint32_t)n), HF_LOCK_OK);
		expect_most(300, n, n);
	}
	for (uint64_t n = 300; n > 25; n--) {
		unlock("file", n - 1, n - 1);
		expect_most(n - 1, 20, 20);
		assert_null(hf_locks_check(rig.locks));
	}
	unlock("file", 0, 24);
	expect_most(25, 20, 20); /* the small one and its waiters */
}

/* Not all files are visited, but the largest are. */
static void test_the_most_in_one_of_many_files(void **state)
{
	char file[8];

	open_with((struct hf_lock_limits){ 0 });
	lock_many("most", 0, 16);
	for (unsigned int i = 0; i < 5000; i++) {
		snprintf(file, sizeof(file), "%u", i);
		lock_many(file, 0, 10);
	}
	lock_many("few", 0, 1);
	expect_most(16, 0, 0);
	unlock("most", 0, 15);
	expect_most(10, 0, 0);
}

static void test_half_of_the_waiters(void **state)
{
	char file[8];

	open_with((struct hf_lock_limits){ .waiters = 8 });
	for (uint64_t i = 0; i < 10; i++) {
		snprintf(file, sizeof(file), "w%u", (unsigned int)i);
		assert_int_equal(ask(3, 1, file, 0, 0, false), HF_LOCK_OK);
		assert_int_equal(ask(i % 2, 2, file, 0, 0, true), i < 4 ? HF_LOCK_E_QUEUED : HF_LOCK_E_LIMIT);
	}
	assert_int_equal(ask(2, 1, "w0", 0, 0, true), HF_LOCK_E_QUEUED);
}

static void test_half_of_the_reservations(void **state)
{
	open_with((struct hf_lock_limits){ .reservations = 6 });
	for (unsigned int i = 0; i < 4; i++)
		assert_int_equal(reserve(i % 2, "s", 5), i < 3 ? HF_LOCK_OK : HF_LOCK_E_LIMIT);
	assert_int_equal(reserve(2, "s", 5), HF_LOCK_OK);
}

/* How many reservations a client gets, each in a file of its own, until one is refused. */
static unsigned int reserve_many(const char *prefix, bool reclaim)
{
	struct hf_lock_target who;
	unsigned int n = 0;
	char file[16];
	int r;

	do {
		snprintf(file, sizeof(file), "%s%u", prefix, n);
		who = target(0, 0, file, 5);
		r = hf_lock_reserve(rig.locks, &who, 1, 0, 0, reclaim);
		n += r == HF_LOCK_OK;
	} while (r == HF_LOCK_OK);
	assert_int_equal(r, HF_LOCK_E_LIMIT);
	return n;
}

/* The client cannot have had more than its limit before the restart: it may not reclaim more. */
static void test_reclaimed_reservations_are_limited(void **state)
{
	open_with((struct hf_lock_limits){ .reservations = 8, .reservations_per_client = 3 });
	assert_int_equal(reserve_many("new", false), 3);
	hf_lock_set_grace(rig.locks, true);
	assert_int_equal(reserve_many("old", true), 0);
	assert_int_equal(reserve(1, "f", 5), HF_LOCK_E_GRACE);
	hf_lock_set_grace(rig.locks, false);
}

/* What a client reclaims may come in another order than it was made in, and the last record, which alone may
 * exceed the limit of memory, may then be a larger one. */
static void test_memory_of_reclaimed_reservations(void **state)
{
	unsigned int n;

	open_with((struct hf_lock_limits){ .bytes_per_client = 4096 });
	n = reserve_many("new", false);
	hf_lock_set_grace(rig.locks, true);
	assert_in_range(reserve_many("old", true), n - 1, n + 1);
	hf_lock_set_grace(rig.locks, false);
}

static void test_bytes(void **state)
{
	uint64_t n = 0, n_others = 0;

	open_with((struct hf_lock_limits){ .bytes_per_client = 64 << 10, .bytes = 200 << 10 });
	while (lock(0, n, n) == HF_LOCK_OK)
		n++;
	assert_in_range(n, 40, 100);
	while (lock(1, n_others, 1000 + n_others) == HF_LOCK_OK)
		n_others++;
	assert_in_range(n_others, n / 3, n - 1); /* of the address: half of all */
	assert_int_equal(lock(2, 1, 5000), HF_LOCK_OK);
	assert_int_equal(reserve(0, "s", 5), HF_LOCK_E_LIMIT);
	assert_int_equal(ask(0, 1, "f", 10000, 0, true), HF_LOCK_E_LIMIT);
}

static void test_long_owner_handles(void **state)
{
	open_with((struct hf_lock_limits){ .oh_bytes = 64 << 10 });
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(ask(0, i, "f", i, 1024, false), i < 8 ? HF_LOCK_OK : HF_LOCK_E_LIMIT);
	assert_int_equal(reserve(0, "s", 1024), HF_LOCK_E_LIMIT);
	assert_int_equal(ask(3, 1, "g", 0, 0, false), HF_LOCK_OK);
	assert_int_equal(ask(0, 99, "g", 0, 1024, true), HF_LOCK_E_LIMIT);
	/* The same owner has it once, in however many files. */
	assert_int_equal(ask(0, 1, "other", 0, 1024, false), HF_LOCK_OK);
	/* Those of usual length are served. */
	assert_int_equal(ask(0, 50, "f", 50, 70, false), HF_LOCK_OK);
	assert_int_equal(ask(0, 99, "g", 0, 70, true), HF_LOCK_E_QUEUED);
	/* Nor does a longer one come in by a repetition. */
	assert_int_equal(ask(0, 50, "f", 50, 1024, false), HF_LOCK_OK);
	assert_int_equal(ask(0, 50, "f", 51, 1024, false), HF_LOCK_OK);
	assert_int_equal(ask(0, 99, "g", 0, 1024, true), HF_LOCK_E_QUEUED);
	assert_int_equal(rig.clients[0].oh_bytes, 8 << 10);
	/* Another client of that address has its own eighth. */
	assert_int_equal(ask(1, 1, "f", 100, 1024, false), HF_LOCK_OK);
}

/* What is counted is at least what the pools have, whatever the shape. */
static void test_bytes_are_not_too_few(void **state)
{
	static const struct {
		uint64_t n_files, n_owners;
		uint32_t oh_len;
	} shapes[] = {
		{ 1, 1, 20 }, { 1, MANY, 20 }, { MANY, 1, 20 }, { MANY, MANY, 20 }, { MANY, MANY, 1024 }
	};
	struct hf_lock_counters count;
	char file[16];

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		uint64_t counted;

		open_with(
			(struct hf_lock_limits){ .oh_bytes = UINT64_C(1) << 32, .bytes = UINT64_C(1) << 32 });
		for (uint64_t at = 0; at < MANY; at++) {
			snprintf(file, sizeof(file), "f%u", (unsigned int)(at % shapes[i].n_files));
			assert_int_equal(ask(0, at % shapes[i].n_owners, file, 2 * (at * 7919 % MANY),
					     shapes[i].oh_len, false),
					 HF_LOCK_OK);
		}
		hf_lock_count(rig.locks, &count);
		counted = rig.clients[0].bytes + rig.clients[0].oh_bytes + UINT64_C(256) * count.locks;
		print_message("%llu bytes a lock are counted, %llu are there\n",
			      (unsigned long long)(counted / count.locks),
			      (unsigned long long)(count.bytes / count.locks));
		assert_in_range(count.bytes, 0, counted + SLABS);
		if (i + 1 < sizeof(shapes) / sizeof(shapes[0]))
			teardown(NULL);
	}
}

/* Of any limit: from then on only a client that exists may add something. */
static void test_an_eighth_makes_it_scarce(void **state)
{
	struct hf_lock_target who = target(0, 1, "file", 8), elsewhere = target(0, 1, "elsewhere", 8),
			      wordy = target(0, 1, "elsewhere", HF_LOCK_OH_MAX);

	open_with((struct hf_lock_limits){
		.locks = 80, .locks_per_file = 16, .oh_bytes = 16 * HF_LOCK_OH_MAX, .bytes = 1 << 20 });
	assert_false(hf_lock_is_scarce(rig.locks, &who));
	assert_int_equal(ask(0, 1, "file", 0, 8, false), HF_LOCK_OK);
	assert_false(hf_lock_is_scarce(rig.locks, &who));
	assert_int_equal(ask(0, 1, "file", 10, 8, false), HF_LOCK_OK);
	assert_true(hf_lock_is_scarce(rig.locks, &who)); /* of the file's 16 */
	assert_false(hf_lock_is_scarce(rig.locks, &elsewhere));
	for (unsigned int i = 0; i < 2; i++)
		assert_int_equal(ask(1, i, "wordy", i, HF_LOCK_OH_MAX, false), HF_LOCK_OK);
	assert_true(hf_lock_is_scarce(rig.locks, &wordy));
	assert_false(hf_lock_is_scarce(rig.locks, &elsewhere));
	for (unsigned int i = 0; i < 6; i++) {
		char name[2] = { (char)('a' + i), '\0' };

		assert_false(hf_lock_is_scarce(rig.locks, &elsewhere));
		assert_int_equal(ask(2, i, name, 0, 8, false), HF_LOCK_OK);
	}
	assert_true(hf_lock_is_scarce(rig.locks, &elsewhere)); /* of all 80 */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_teardown(name, teardown)
		T(test_half_of_the_locks),
		T(test_refusals_are_counted_by_limit),
		T(test_the_most_in_one_file),
		T(test_the_most_in_one_of_many_files),
		T(test_half_of_the_waiters),
		T(test_half_of_the_reservations),
		T(test_reclaimed_reservations_are_limited),
		T(test_memory_of_reclaimed_reservations),
		T(test_bytes),
		T(test_long_owner_handles),
		T(test_bytes_are_not_too_few),
		T(test_an_eighth_makes_it_scarce),
	};

	return cmocka_run_group_tests_name("room", tests, NULL, NULL);
}
