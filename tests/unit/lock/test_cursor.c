/* Cursors: complete, without repetition, and stable while everything changes. */
#include "bed.h"

static void fill(struct bed *bed)
{
	bed->is_silent = true;
	for (bed->file = 0; bed->file < 3; bed->file++)
		for (int owner = 0; owner < 30; owner += 5)
			for (uint64_t i = 0; i < 3; i++)
				bed_lock(bed, owner, S, 100 * (uint64_t)owner + 10 * i,
					 100 * (uint64_t)owner + 10 * i + 1);
	bed->file = 0;
}

static int count(struct bed *bed, const struct hf_lock_scope *scope)
{
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;
	int n = 0;

	while (hf_lock_next_lock(bed->locks, scope, &cursor, &view))
		n++;
	assert_false(hf_lock_next_lock(bed->locks, scope, &cursor, &view)); /* the end stays the end */
	return n;
}

static void test_all(void **state)
{
	fill(*state);
	assert_int_equal(count(*state, NULL), 54);
}

static void test_of_a_client(void **state)
{
	struct bed *bed = *state;

	fill(bed);
	for (int c = 0; c < BED_CLIENTS; c++)
		assert_int_equal(count(bed, &(struct hf_lock_scope){ .client = &bed->clients[c] }), 18);
}

static void test_of_a_file(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_target who;

	fill(bed);
	who = bed_target(bed, 0);
	assert_int_equal(count(bed, &(struct hf_lock_scope){ .file = &who }), 18);
	who.handle = hf_bytes_of_str("no such file");
	assert_int_equal(count(bed, &(struct hf_lock_scope){ .file = &who }), 0);
}

/* Shared locks: a long one lies over short ones that end before the range. */
static void test_of_a_range(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_target who;

	fill(bed);
	bed_lock(bed, 1, S, 5, 2000);
	bed_lock(bed, 2, E, 3000, 3001);
	who = bed_target(bed, 0);
	for (uint64_t start = 0; start < 3010; start += 3)
		for (uint64_t end = start; end < start + 700; end += 90) {
			const struct hf_range range = { start, end };
			struct hf_lock_scope scope = { .file = &who };
			struct hf_lock_cursor cursor = { 0 };
			struct hf_lock_view view;
			int n = 0;

			while (hf_lock_next_lock(bed->locks, &scope, &cursor, &view))
				n += view.range.start <= end && view.range.end >= start;
			scope.range = &range;
			assert_int_equal(count(bed, &scope), n);
		}
}

/* Everything of clients 1 and 2 comes and goes around each step; client 0's locks are seen once each. */
static void check_stable(struct bed *bed, const struct hf_lock_scope *scope, int expected)
{
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;
	uint64_t seen[64];
	int n = 0, step = 0;

	fill(bed);
	while (hf_lock_next_lock(bed->locks, scope, &cursor, &view)) {
		if (view.who.client == &bed->clients[0]) {
			for (int i = 0; i < n; i++)
				assert_true(seen[i] != view.id);
			seen[n++] = view.id;
		}
		hf_lock_client_purge(bed->locks, &bed->clients[1 + step % 2]);
		bed->file = step++ % 3;
		bed_lock(bed, 10 + step % 10, S, (uint64_t)step, (uint64_t)step + 2000);
		bed_lock(bed, 20 + step % 10, S, (uint64_t)step * 100, (uint64_t)step * 100);
		assert_true(step < 1000);
	}
	assert_int_equal(n, expected);
}

static void test_all_is_stable(void **state)
{
	check_stable(*state, NULL, 18);
}

static void test_of_a_client_is_stable(void **state)
{
	struct bed *bed = *state;

	check_stable(bed, &(struct hf_lock_scope){ .client = &bed->clients[0] }, 18);
}

static void test_of_a_file_is_stable(void **state)
{
	struct hf_lock_target who = bed_target(*state, 0);

	check_stable(*state, &(struct hf_lock_scope){ .file = &who }, 6);
}

/* Own locks vanish behind and before the cursor. */
static void test_vanishing_locks(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_scope scope = { .client = &bed->clients[0] };
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;

	for (uint64_t i = 0; i < 5; i++)
		bed_lock(bed, 1, S, 10 * i, 10 * i);
	assert_true(hf_lock_next_lock(bed->locks, &scope, &cursor, &view));
	assert_true(hf_lock_next_lock(bed->locks, &scope, &cursor, &view));
	bed_unlock(bed, 1, 10, 20);
	assert_true(hf_lock_next_lock(bed->locks, &scope, &cursor, &view));
	assert_true(view.range.start == 30);
	bed_unlock(bed, 1, 0, TO_EOF);
	assert_false(hf_lock_next_lock(bed->locks, &scope, &cursor, &view));
}

static void test_waiters_in_all_scopes(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_target who;
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;
	int n = 0;

	for (bed->file = 0; bed->file < 2; bed->file++) {
		bed_lock(bed, 1, E, 0, 9);
		bed_wait(bed, 11, E, 0, 9);
		bed_wait(bed, 21, S, 0, 9);
	}
	bed->file = 1;
	who = bed_target(bed, 0);
	while (hf_lock_next_waiter(bed->locks, NULL, &cursor, &view))
		n++;
	assert_int_equal(n, 4);
	cursor = (struct hf_lock_cursor){ 0 };
	for (n = 0; hf_lock_next_waiter(bed->locks, &(struct hf_lock_scope){ .file = &who }, &cursor, &view);
	     n++)
		assert_true(hf_bytes_equal(view.who.handle, who.handle));
	assert_int_equal(n, 2);
	cursor = (struct hf_lock_cursor){ 0 };
	for (n = 0; hf_lock_next_waiter(bed->locks, &(struct hf_lock_scope){ .client = &bed->clients[2] },
					&cursor, &view);
	     n++)
		assert_int_equal(view.who.owner_id, 21);
	assert_int_equal(n, 2);
}

static void test_waiter_walk_survives_grants(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;

	bed_lock(bed, 1, E, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	bed_wait(bed, 12, E, 0, 9);
	bed_wait(bed, 13, E, 0, 9);
	assert_true(hf_lock_next_waiter(bed->locks, NULL, &cursor, &view));
	bed_unlock(bed, 1, 0, 9); /* 11 is no longer queued */
	assert_true(hf_lock_next_waiter(bed->locks, NULL, &cursor, &view));
	assert_int_equal(view.who.owner_id, 12);
	assert_true(hf_lock_next_waiter(bed->locks, NULL, &cursor, &view));
	assert_int_equal(view.who.owner_id, 13);
	assert_false(hf_lock_next_waiter(bed->locks, NULL, &cursor, &view));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		bed_test_of(test_all),
		bed_test_of(test_of_a_client),
		bed_test_of(test_of_a_file),
		bed_test_of(test_of_a_range),
		bed_test_of(test_all_is_stable),
		bed_test_of(test_of_a_client_is_stable),
		bed_test_of(test_of_a_file_is_stable),
		bed_test_of(test_vanishing_locks),
		bed_test_of(test_waiters_in_all_scopes),
		bed_test_of(test_waiter_walk_survives_grants),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
