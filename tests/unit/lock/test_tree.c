/*
 * The sets of locks alone: random insertions and erasures against a sorted
 * array, up to a hundred thousand locks; how full nodes are; and how much a
 * search looks at. HF_SEED changes the sequence.
 */
#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lock/internal.h"

#include "chance.h"

enum {
	HOLDERS = 5,
	LARGE = 100000,
};

struct bed {
	struct hf_tree_pools pools;
	struct hf_tree tree;
	struct hf_lock **model; /* in order of (start, id) */
	size_t n;
	struct hf_holding holders[HOLDERS];
	uint64_t last_id;
	uint64_t random;
	uint64_t space; /* ranges begin below this */
	bool is_disjoint;
};

static uint64_t chance(struct bed *bed, uint64_t n)
{
	return (chance_next(&bed->random) >> 1) % n;
}

static int set_up(void **state)
{
	struct bed *bed = calloc(1, sizeof(*bed));

	assert_non_null(bed);
	bed->random = chance_setting(0, NULL, 0, "HF_SEED", 88172645463325252u);
	print_message("seed %llu\n", (unsigned long long)bed->random);
	bed->model = calloc(LARGE + 1, sizeof(struct hf_lock *));
	assert_non_null(bed->model);
	hf_tree_pools_init(&bed->pools);
	*state = bed;
	return 0;
}

static int tear_down(void **state)
{
	struct bed *bed = *state;

	assert_int_equal(bed->tree.n, 0);
	assert_int_equal(bed->pools.nodes.n_used, 0);
	assert_int_equal(bed->pools.few[0].n_used + bed->pools.few[1].n_used, 0);
	hf_tree_pools_deinit(&bed->pools);
	free(bed->model);
	free(bed);
	return 0;
}

/* MODEL */

static bool is_before(const struct hf_lock *a, const struct hf_lock *b)
{
	return a->start != b->start ? a->start < b->start : a->id < b->id;
}

/* How many of the model stand before @lock. */
static size_t rank_of(const struct bed *bed, const struct hf_lock *lock)
{
	size_t low = 0, high = bed->n;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (is_before(bed->model[middle], lock))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct hf_lock *model_first(const struct bed *bed, const struct hf_holding *me, struct hf_range range)
{
	for (size_t i = 0; i < bed->n && bed->model[i]->start <= range.end; i++)
		if (bed->model[i]->end >= range.start && bed->model[i]->holding != me)
			return bed->model[i];
	return NULL;
}

static struct hf_lock *model_exclusive(const struct bed *bed, struct hf_range range)
{
	for (size_t i = 0; i < bed->n && bed->model[i]->start <= range.end; i++)
		if (bed->model[i]->end >= range.start && bed->model[i]->mode == HF_LOCK_EXCLUSIVE)
			return bed->model[i];
	return NULL;
}

/* CHANGES, with a hint and without. */

static struct hf_lock *make(struct bed *bed, struct hf_range range, struct hf_holding *holder)
{
	struct hf_lock *lock = calloc(1, sizeof(*lock));

	assert_non_null(lock);
	lock->start = range.start;
	lock->end = range.end;
	lock->id = ++bed->last_id;
	lock->holding = holder;
	lock->mode = chance(bed, 1 + bed->last_id % 64) ? HF_LOCK_SHARED : HF_LOCK_EXCLUSIVE;
	return lock;
}

static struct hf_tree_leaf *draw_hint(struct bed *bed, struct hf_range range)
{
	return chance(bed, 2) ? hf_tree_aim(&bed->tree, NULL, range) : NULL;
}

/* Without a reservation. */
static void put_now(struct bed *bed, struct hf_range range, struct hf_holding *holder)
{
	struct hf_lock *lock = make(bed, range, holder);
	size_t at = rank_of(bed, lock);

	hf_tree_insert(&bed->pools, &bed->tree, draw_hint(bed, range), lock);
	memmove(&bed->model[at + 1], &bed->model[at], (bed->n - at) * sizeof(bed->model[0]));
	bed->model[at] = lock;
	bed->n++;
}

static void put(struct bed *bed, struct hf_range range, struct hf_holding *holder)
{
	assert_int_equal(hf_tree_reserve(&bed->pools, 1, 1, bed->n + 1), 0);
	put_now(bed, range, holder);
}

static void drop(struct bed *bed, size_t at)
{
	struct hf_lock *lock = bed->model[at];

	hf_tree_erase(&bed->pools, &bed->tree, draw_hint(bed, hf_lock_range(lock)), lock);
	bed->n--;
	memmove(&bed->model[at], &bed->model[at + 1], (bed->n - at) * sizeof(bed->model[0]));
	free(lock);
}

static void put_any(struct bed *bed)
{
	uint64_t start = chance(bed, bed->space);
	uint64_t len = chance(bed, 16) ? chance(bed, 8) : chance(bed, bed->space);
	struct hf_range range = { start, chance(bed, 200) ? start + len : HF_RANGE_EOF };

	if (bed->is_disjoint) {
		range = (struct hf_range){ 2 * start, 2 * start };
		if (model_first(bed, NULL, range))
			return;
	}
	put(bed, range, &bed->holders[bed->is_disjoint ? 0 : chance(bed, HOLDERS)]);
}

static void drop_any(struct bed *bed)
{
	if (bed->n)
		drop(bed, chance(bed, bed->n));
}

/* Near the end of the array, which need not move then. */
static void drop_all(struct bed *bed)
{
	while (bed->n)
		drop(bed, bed->n - 1 - chance(bed, HF_MIN(bed->n, 100)));
}

/* COMPARISON */

static void compare_searches(struct bed *bed)
{
	uint64_t start = chance(bed, bed->space * 2);
	struct hf_range range = { start, start + chance(bed, 10) };
	struct hf_holding *me = chance(bed, 3) ? &bed->holders[chance(bed, HOLDERS)] : NULL;
	struct hf_lock probe = { .start = range.start, .id = chance(bed, bed->last_id + 2) };
	struct hf_spot spot;
	size_t at;

	if (bed->is_disjoint) {
		me = NULL;
		range.end = start + chance(bed, bed->space);
		spot = hf_tree_exclusive(&bed->tree, range);
		assert_ptr_equal(hf_spot_lock(&spot), model_exclusive(bed, range));
	}
	spot = hf_tree_first(&bed->tree, me, range);
	assert_ptr_equal(hf_spot_lock(&spot), model_first(bed, me, range));
	if (hf_spot_lock(&spot))
		assert_int_equal(hf_spot_range(&spot).end, hf_spot_lock(&spot)->end);
	probe.id++; /* behind (start, id) is at or behind (start, id + 1) */
	at = rank_of(bed, &probe);
	spot = hf_tree_behind(&bed->tree, range.start, probe.id - 1);
	assert_ptr_equal(hf_spot_lock(&spot), at < bed->n ? bed->model[at] : NULL);
}

static void compare_all(struct bed *bed)
{
	struct hf_spot spot = hf_tree_begin(&bed->tree);
	const char *why = hf_tree_check(&bed->tree);

	if (why)
		fail_msg("%s", why);
	assert_int_equal(bed->tree.n, bed->n);
	for (size_t i = 0; i < bed->n; i++, hf_spot_next(&spot))
		assert_ptr_equal(hf_spot_lock(&spot), bed->model[i]);
	assert_null(hf_spot_lock(&spot));
}

/* TESTS */

/* Up and down between nothing and @max; everything is compared after each @every steps. */
static void drive(struct bed *bed, size_t max, size_t steps, size_t every)
{
	bool is_growing = true;

	for (size_t i = 0; i < steps; i++) {
		if (bed->n >= max)
			is_growing = false;
		if (bed->n == 0)
			is_growing = true;
		if (chance(bed, 10) < (is_growing ? 7 : 3))
			put_any(bed);
		else
			drop_any(bed);
		compare_searches(bed);
		if (i % every == 0)
			compare_all(bed);
	}
	compare_all(bed);
	drop_all(bed);
}

static void test_small_sets_against_a_model(void **state)
{
	struct bed *bed = *state;

	for (size_t max = 1; max < 200; max = max * 3 / 2 + 1) {
		bed->space = 1 + max / 2;
		drive(bed, max, 1500, 1);
	}
}

static void test_sets_of_one_holder_against_a_model(void **state)
{
	struct bed *bed = *state;

	bed->is_disjoint = true;
	bed->tree.of_one = true;
	for (size_t max = 1; max < 1000; max = max * 3 + 1) {
		bed->space = 2 * max;
		drive(bed, max, 6000, 8);
	}
}

static void test_many_at_the_same_place(void **state)
{
	struct bed *bed = *state;

	bed->space = 3;
	drive(bed, 2000, 10000, 500);
}

/* Large ones grow first, without comparing everything: that is O(n). */
static void test_large_set_against_a_model(void **state)
{
	struct bed *bed = *state;

	bed->space = 4 * LARGE;
	for (size_t target = 1000; target <= LARGE; target *= 10) {
		while (bed->n < target)
			put_any(bed);
		compare_all(bed);
		for (size_t i = 0; i < 2000; i++) {
			drop_any(bed);
			put_any(bed);
			if (i % 40 == 0)
				compare_searches(bed);
		}
		compare_all(bed);
	}
	while (bed->n > LARGE / 2)
		drop_any(bed);
	compare_all(bed);
	drop_all(bed);
}

/* In one go; it is a set like any other afterwards. */
static void build(struct bed *bed, size_t n)
{
	uint64_t start = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t len = chance(bed, 16) ? chance(bed, 8) : chance(bed, 2 * n);

		start += bed->is_disjoint ? 2 + 2 * chance(bed, 2) : chance(bed, 3);
		bed->model[bed->n++] =
			make(bed, (struct hf_range){ start, start + (bed->is_disjoint ? 0 : len) },
			     &bed->holders[bed->is_disjoint ? 0 : chance(bed, HOLDERS)]);
	}
	bed->space = start / 2 + 1;
	assert_int_equal(hf_tree_reserve(&bed->pools, n, 1, n), 0);
	hf_tree_build(&bed->pools, &bed->tree, bed->model, n);
	compare_all(bed);
	for (size_t i = 0; i < 50; i++) {
		compare_searches(bed);
		if (bed->n < LARGE)
			put_any(bed);
		drop_any(bed);
		drop_any(bed);
	}
	compare_all(bed);
	drop_all(bed);
}

static void build_all_sizes(struct bed *bed)
{
	for (size_t n = 1; n < 400; n++)
		build(bed, n);
	for (size_t n = 1000; n <= LARGE; n *= 3)
		build(bed, n);
}

static void test_sets_built_in_one_go(void **state)
{
	build_all_sizes(*state);
}

static void test_sets_of_one_holder_built_in_one_go(void **state)
{
	struct bed *bed = *state;

	bed->is_disjoint = true;
	bed->tree.of_one = true;
	build_all_sizes(bed);
}

static double fill_of(const struct bed *bed)
{
	return (double)bed->n * 24 / ((double)bed->pools.nodes.n_used * HF_TREE_NODE_BYTES);
}

/* Narrow nodes have the same header, so less is left. */
static bool is_well_filled(const struct bed *bed, const char *how, double wanted)
{
	print_message("%s %.2f\n", how, fill_of(bed));
	return fill_of(bed) > (HF_TREE_NODE_BYTES < 1024 ? wanted / 2 : wanted);
}

static void test_nodes_are_well_filled(void **state)
{
	struct bed *bed = *state;

	for (uint64_t i = 0; i < 20000; i++)
		put(bed, (struct hf_range){ 2 * i, 2 * i }, &bed->holders[i % HOLDERS]);
	compare_all(bed);
	assert_true(is_well_filled(bed, "ascending", 0.7));
	drop_all(bed);
	for (uint64_t i = 20000; i > 0; i--)
		put(bed, (struct hf_range){ 2 * i, 2 * i }, &bed->holders[i % HOLDERS]);
	assert_true(is_well_filled(bed, "descending", 0.7));
	drop_all(bed);
	bed->space = 100000;
	while (bed->n < 20000)
		put_any(bed);
	assert_true(is_well_filled(bed, "random", 0.65));
	drop_all(bed);
	for (uint64_t i = 0; i < 20000; i++)
		bed->model[bed->n++] =
			make(bed, (struct hf_range){ 2 * i, 2 * i }, &bed->holders[i % HOLDERS]);
	assert_int_equal(hf_tree_reserve(&bed->pools, bed->n, 1, bed->n), 0);
	hf_tree_build(&bed->pools, &bed->tree, bed->model, bed->n);
	assert_true(is_well_filled(bed, "in one go", 0.75));
	drop_all(bed);
}

/* The most that a search of n locks may look at: each level once, and of a node everything. */
static unsigned int steps_allowed(size_t n)
{
	unsigned int steps = HF_TREE_LEAF_MAX;

	for (size_t nodes = n / HF_TREE_LEAF_MIN; nodes > 1; nodes /= HF_TREE_INNER_MIN)
		steps += HF_TREE_INNER_MAX;
	return steps;
}

/* Worst for a plain interval tree: everything overlaps, and all but one is mine. */
static void test_steps_of_a_search_are_logarithmic(void **state)
{
	struct bed *bed = *state;
	struct hf_range all = { 0, HF_RANGE_EOF };
	unsigned int steps, most = 0;

	bed->space = LARGE;
	while (bed->n < LARGE)
		put(bed, (struct hf_range){ bed->n, HF_RANGE_EOF }, &bed->holders[0]);
	assert_true(bed->tree.height >= 2);
	steps = hf_tree_steps(&bed->tree, &bed->holders[0], all);
	assert_true(steps <= steps_allowed(bed->n));
	put(bed, (struct hf_range){ bed->space / 2, bed->space / 2 }, &bed->holders[1]);
	for (uint64_t start = 0; start < bed->space; start += 97) {
		struct hf_range range = { start, HF_RANGE_EOF };

		steps = hf_tree_steps(&bed->tree, &bed->holders[0], range);
		most = HF_MAX(most, steps);
		steps = hf_tree_steps(&bed->tree, NULL, (struct hf_range){ start, start });
		most = HF_MAX(most, steps);
	}
	print_message("at most %u steps, height %u\n", most, bed->tree.height);
	assert_true(most <= steps_allowed(bed->n));
	drop_all(bed);
}

/* Takes away what is free beyond the reservation: the pool asserts that it has something to give. */
static void hide_the_rest(struct hf_pool *pool, size_t *n_hiddenp)
{
	*n_hiddenp = pool->n_free - pool->n_reserved;
	pool->n_free = pool->n_reserved;
}

static void insert_reserved(struct bed *bed, size_t n)
{
	struct hf_pool *const pools[] = { &bed->pools.few[0], &bed->pools.few[1], &bed->pools.nodes };
	uint64_t base = chance(bed, bed->space);
	size_t n_hidden[HF_ARRAY_SIZE(pools)];

	assert_int_equal(hf_tree_reserve(&bed->pools, n, 1, bed->n + n), 0);
	for (size_t i = 0; i < HF_ARRAY_SIZE(pools); i++)
		hide_the_rest(pools[i], &n_hidden[i]);
	for (size_t i = 0; i < n; i++) {
		uint64_t start = chance(bed, 2) ? base + i : chance(bed, bed->space);

		put_now(bed, (struct hf_range){ start, start }, &bed->holders[chance(bed, HOLDERS)]);
	}
	for (size_t i = 0; i < HF_ARRAY_SIZE(pools); i++)
		pools[i]->n_free += n_hidden[i];
}

static void test_reservation_is_enough(void **state)
{
	struct bed *bed = *state;

	bed->space = 1 << 20;
	for (int round = 0; round < 60; round++) {
		insert_reserved(bed, 1 + chance(bed, 3000));
		for (uint64_t n = chance(bed, 3000); n > 0; n--)
			drop_any(bed);
		if (chance(bed, 10) == 0)
			drop_all(bed);
	}
	compare_all(bed);
	drop_all(bed);
}

#define tree_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		tree_test(test_small_sets_against_a_model),
		tree_test(test_sets_of_one_holder_against_a_model),
		tree_test(test_many_at_the_same_place),
		tree_test(test_large_set_against_a_model),
		tree_test(test_sets_built_in_one_go),
		tree_test(test_sets_of_one_holder_built_in_one_go),
		tree_test(test_nodes_are_well_filled),
		tree_test(test_steps_of_a_search_are_logarithmic),
		tree_test(test_reservation_is_enough),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
