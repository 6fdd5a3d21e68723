/* A load of many locks at a restart: the result must be the same as that of loading each lock alone, in any
 * order. */
#include "bed.h"

#include "base/cleanup.h"

struct load_bed {
	struct bed bed;
	struct hf_lock_load *load;
};

static struct load_bed b;

static int setup(void **state)
{
	b = (struct load_bed){ 0 };
	bed_open(&b.bed);
	assert_int_equal(hf_lock_load_new(&b.load, b.bed.locks), 0);
	return 0;
}

static int teardown(void **state)
{
	b.load = hf_lock_load_free(b.load);
	for (int i = 0; i < BED_CLIENTS; i++)
		hf_lock_client_purge(b.bed.locks, &b.bed.clients[i]);
	bed_close(&b.bed);
	return 0;
}

static int add(struct hf_lock_load *load, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end)
{
	const struct hf_lock_view lock = {
		.tag = ++b.bed.last_tag,
		.who = bed_target(&b.bed, owner),
		.range = { start, end },
		.mode = mode,
		.epoch = 6,
	};

	return hf_lock_load_add(load, &lock);
}

/* What is loaded is in the table when the load has ended. */
static void end(void)
{
	b.load = hf_lock_load_free(b.load);
	assert_null(hf_locks_check(b.bed.locks));
}

static void test_in_order(void **state)
{
	assert_int_equal(add(b.load, 1, E, 0, 0), HF_LOCK_OK);
	assert_int_equal(add(b.load, 1, E, 1, 9), HF_LOCK_OK);
	assert_int_equal(add(b.load, 11, S, 20, 29), HF_LOCK_OK);
	assert_int_equal(add(b.load, 1, E, 30, TO_EOF), HF_LOCK_OK);
	end();
	assert_locked(&b.bed, 1, "E[0,0]~ E[1,9]~ E[30,eof]~");
	assert_locked(&b.bed, 11, "S[20,29]~");
	assert_told(&b.bed, "");
	assert_int_equal(bed_count(&b.bed).unreclaimed, 4);
}

static void test_in_no_order(void **state)
{
	assert_int_equal(add(b.load, 1, E, 40, 49), HF_LOCK_OK);
	assert_int_equal(add(b.load, 1, E, 0, 9), HF_LOCK_OK);
	b.bed.file = 1;
	assert_int_equal(add(b.load, 1, E, 5, 5), HF_LOCK_OK);
	b.bed.file = 0;
	assert_int_equal(add(b.load, 11, E, 20, 29), HF_LOCK_OK);
	assert_int_equal(add(b.load, 1, E, 10, 19), HF_LOCK_OK);
	end();
	assert_locked(&b.bed, 1, "E[0,9]~ E[10,19]~ E[40,49]~");
	assert_locked(&b.bed, 11, "E[20,29]~");
}

static void test_what_overlaps_is_refused(void **state)
{
	assert_int_equal(add(b.load, 1, E, 10, 19), HF_LOCK_OK);
	assert_int_equal(add(b.load, 11, E, 19, 30), HF_LOCK_E_CONFLICT);
	assert_int_equal(add(b.load, 11, S, 0, 10), HF_LOCK_E_CONFLICT);
	assert_int_equal(add(b.load, 1, E, 15, 25), HF_LOCK_E_CONFLICT); /* its own */
	assert_int_equal(add(b.load, 11, E, 20, 30), HF_LOCK_OK);        /* what was refused is not there */
	assert_int_equal(add(b.load, 1, E, 30, 30), HF_LOCK_E_CONFLICT);
	b.bed.file = 1;
	assert_int_equal(add(b.load, 11, S, 0, TO_EOF), HF_LOCK_OK);
	assert_int_equal(add(b.load, 1, S, 0, TO_EOF), HF_LOCK_OK);
	assert_int_equal(add(b.load, 21, E, TO_EOF, TO_EOF), HF_LOCK_E_CONFLICT);
	b.bed.file = 0;
	assert_int_equal(add(b.load, 11, E, 12, 12),
			 HF_LOCK_E_CONFLICT); /* back in a file that it had left */
	end();
	assert_locked(&b.bed, 1, "E[10,19]~");
	assert_locked(&b.bed, 11, "E[20,30]~");
}

static void test_what_was_there_before_counts(void **state)
{
	bed_lock(&b.bed, 1, E, 50, 59);
	bed_wait(&b.bed, 11, E, 50, 59);
	b.bed.file = 1;
	bed_lock(&b.bed, 1, E, 0, 0);
	bed_wait(&b.bed, 11, E, 0, 9);
	b.bed.file = 0;
	assert_int_equal(add(b.load, 21, E, 100, 109), HF_LOCK_OK);
	assert_int_equal(add(b.load, 21, E, 55, 55), HF_LOCK_E_CONFLICT);
	assert_int_equal(add(b.load, 1, E, 59, 70), HF_LOCK_E_CONFLICT);
	b.bed.file = 1;
	assert_int_equal(add(b.load, 21, E, 5, 5), HF_LOCK_E_CONFLICT); /* a waiter waits for it */
}

static void test_oh_is_the_last_one(void **state)
{
	struct hf_lock_view lock = { .who = bed_target(&b.bed, 1), .range = { 0, 9 }, .mode = E };
	struct hf_lock_load *load = b.load;

	lock.who.oh = hf_bytes_of_str("first");
	assert_int_equal(hf_lock_load_add(load, &lock), HF_LOCK_OK);
	lock.range = (struct hf_range){ 10, 19 };
	lock.who.oh = hf_bytes_of_str("second");
	assert_int_equal(hf_lock_load_add(load, &lock), HF_LOCK_OK);
	end();
	bed_test(&b.bed, 11, E, 0, 9);
	assert_true(hf_bytes_equal(b.bed.conflict.who.oh, hf_bytes_of_str("second")));
}

/* More than there is memory for at a time: the second part comes to a file that has the first. */
static void test_a_long_file(void **state)
{
	b.bed.is_silent = true;
	for (uint64_t i = 0; i < 5000; i++)
		assert_int_equal(add(b.load, i % 2 ? 1 : 11, i % 3 ? E : S, 10 * i, 10 * i + 8), HF_LOCK_OK);
	assert_int_equal(add(b.load, 1, E, 48, 49), HF_LOCK_E_CONFLICT);
	assert_int_equal(add(b.load, 1, E, 49, 49), HF_LOCK_OK);
	assert_int_equal(add(b.load, 1, E, 49998, 49998), HF_LOCK_E_CONFLICT); /* the last one */
	assert_int_equal(add(b.load, 1, E, 60000, 60000), HF_LOCK_OK);
	end();
	assert_int_equal(bed_count(&b.bed).unreclaimed, 5002);
	assert_int_equal(bed_test(&b.bed, 21, E, 49, 49), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed_test(&b.bed, 21, E, 39998, 39998), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed_test(&b.bed, 21, E, 39999, 39999), HF_LOCK_OK);
	assert_int_equal(bed_test(&b.bed, 21, E, 60000, 60000), HF_LOCK_E_CONFLICT);
}

/* MANY: against a table that gets each in a load of its own. */

enum {
	N_MANY = 20000,
	N_OWNERS = 700, /* more than a load remembers */
};

static uint64_t next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static struct hf_lock_view draw(struct bed *bed, uint64_t *seed, uint64_t i)
{
	uint64_t r = next_random(seed), start = i * 8 + r % 4, jump = r >> 8 & 7;
	struct hf_lock_view lock = {
		.tag = i + 1,
		.who = bed_target(bed, (int)(r >> 16 & 15) + 1),
		.mode = r >> 24 & 3 ? E : S,
		.epoch = 6,
	};

	lock.who.client = &bed->clients[r >> 20 & 1];
	lock.who.owner_id = (r >> 32) % N_OWNERS;
	if (jump == 0) /* somewhere before, and so often in the way */
		start = (r >> 40) % (i * 8 + 1);
	lock.range = (struct hf_range){ start, start + (r >> 12 & 7) };
	return lock;
}

static void load_many(struct bed *bed, bool at_once, int *answers)
{
	hf_cleanup(hf_lock_load_freep) struct hf_lock_load *load = NULL;
	uint64_t seed = 20261115;

	for (uint64_t i = 0; i < N_MANY; i++) {
		struct hf_lock_view lock;

		bed->file = (int)(i / 64 % 3);
		lock = draw(bed, &seed, i);
		if (!at_once || !load) {
			load = hf_lock_load_free(load);
			assert_int_equal(hf_lock_load_new(&load, bed->locks), 0);
		}
		answers[i] = hf_lock_load_add(load, &lock);
	}
}

static void assert_same_tables(struct bed *one, struct bed *other)
{
	struct hf_lock_cursor at = { 0 }, there = { 0 };
	struct hf_lock_view mine, theirs;
	size_t n = 0;

	while (hf_lock_next_lock(one->locks, NULL, &at, &mine)) {
		assert_true(hf_lock_next_lock(other->locks, NULL, &there, &theirs));
		assert_int_equal(mine.tag, theirs.tag);
		assert_int_equal(mine.range.start, theirs.range.start);
		assert_int_equal(mine.range.end, theirs.range.end);
		assert_int_equal(mine.mode, theirs.mode);
		assert_int_equal(mine.who.owner_id, theirs.who.owner_id);
		n++;
	}
	assert_false(hf_lock_next_lock(other->locks, NULL, &there, &theirs));
	assert_true(n > N_MANY / 2 && n < N_MANY);
}

static void test_many_at_once_are_as_one_by_one(void **state)
{
	static int answers[N_MANY], expected[N_MANY];
	static struct bed other;

	bed_open(&other);
	b.bed.is_silent = other.is_silent = true;
	load_many(&b.bed, true, answers);
	load_many(&other, false, expected);
	assert_memory_equal(answers, expected, sizeof(answers));
	assert_same_tables(&b.bed, &other);
	assert_null(hf_locks_check(b.bed.locks));
	hf_lock_set_grace(other.locks, true);
	hf_lock_set_grace(other.locks, false);
	bed_close(&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_in_no_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_overlaps_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_was_there_before_counts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_oh_is_the_last_one, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_long_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_at_once_are_as_one_by_one, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
