#include "../test.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/hashtable.h"
#include "base/macros.h"

struct item {
	struct hf_hash_node node;
	uint32_t key;
	int is_in;
};

enum {
	N = 3000,
};

static uint64_t hash_of(uint32_t key)
{
	return key * UINT64_C(0x9e3779b97f4a7c15) >> 20;
}

static struct item *find(const struct hf_hashtable *table, uint32_t key)
{
	hf_hash_for_each(node, table, hash_of(key)) {
		struct item *item = hf_container_of(node, struct item, node);

		if (item->key == key)
			return item;
	}
	return NULL;
}

static void test_finds_all_while_growing(void **state)
{
	static struct item items[N];
	struct hf_hashtable table;

	assert_int_equal(hf_hashtable_init(&table), 0);
	for (uint32_t i = 0; i < N; i++) {
		items[i].key = i;
		hf_hashtable_insert(&table, &items[i].node, hash_of(i));
		for (uint32_t j = i % 7; j <= i; j += 7)
			assert_ptr_equal(find(&table, j), &items[j]);
		assert_null(find(&table, i + 1));
	}
	assert_true(table.n == N);
	assert_true(table.mask + 1 >= N); /* grown, not just long chains */
	hf_hashtable_deinit(&table);
}

static void test_random_changes(void **state)
{
	static struct item items[N];
	struct hf_hashtable table;
	size_t n = 0;

	hf_hashtable_init(&table);
	srand(1);
	for (int step = 0; step < 200000; step++) {
		uint32_t key = (uint32_t)(rand() % N);
		struct item *item = &items[key];

		item->key = key;
		assert_ptr_equal(find(&table, key), item->is_in ? item : NULL);
		if (item->is_in) {
			hf_hashtable_remove(&table, &item->node);
			n--;
		} else {
			hf_hashtable_insert(&table, &item->node, hash_of(key));
			n++;
		}
		item->is_in = !item->is_in;
		assert_true(table.n == n);
	}
	hf_hashtable_deinit(&table);
}

static void test_equal_hashes(void **state)
{
	struct hf_hashtable table;
	struct item items[10];
	int n = 0;

	hf_hashtable_init(&table);
	for (int i = 0; i < 10; i++)
		hf_hashtable_insert(&table, &items[i].node, 5);
	hf_hashtable_remove(&table, &items[4].node);
	hf_hash_for_each(node, &table, 5) {
		assert_ptr_not_equal(node, &items[4].node);
		n++;
	}
	assert_int_equal(n, 9);
	hf_hashtable_deinit(&table);
}

static int n_taken;

static void take(struct hf_hash_node *node)
{
	struct item *item = hf_container_of(node, struct item, node);

	assert_true(item->is_in);
	item->is_in = false;
	memset(node, 0xff, sizeof(*node)); /* as if it were freed */
	n_taken++;
}

/* With every number of nodes, so also while the table grows. */
static void test_empties(void **state)
{
	static struct item items[300];
	struct hf_hashtable table;
	bool has_grown = false;

	hf_hashtable_init(&table);
	for (int n = 0; n <= (int)HF_ARRAY_SIZE(items); n++) {
		for (int i = 0; i < n; i++) {
			items[i] = (struct item){ .key = (uint32_t)i, .is_in = true };
			hf_hashtable_insert(&table, &items[i].node, hash_of(items[i].key));
		}
		has_grown |= table.old != NULL;
		n_taken = 0;
		hf_hashtable_empty(&table, take);
		assert_int_equal(n_taken, n);
		assert_true(table.n == 0);
		for (uint32_t i = 0; i < HF_ARRAY_SIZE(items); i++)
			assert_null(find(&table, i));
	}
	assert_true(has_grown);
	hf_hashtable_deinit(&table);
	hf_hashtable_empty(&table, take); /* of one that could not be made */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_finds_all_while_growing),
		cmocka_unit_test(test_random_changes),
		cmocka_unit_test(test_equal_hashes),
		cmocka_unit_test(test_empties),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
