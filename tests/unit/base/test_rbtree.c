#include "../test.h"

#include <stdlib.h>

#include "base/rbtree.h"

/* Augmented with the sum of its subtree, which any forgotten update spoils. */
struct item {
	struct hf_rb_node node;
	uint32_t key;
	uint64_t sum;
	bool is_in;
};

static struct item *item_of(struct hf_rb_node *node)
{
	return node ? hf_rb_entry(node, struct item, node) : NULL;
}

static bool update(struct hf_rb_node *node)
{
	struct item *item = item_of(node);
	uint64_t before = item->sum;

	item->sum = item->key;
	if (node->left)
		item->sum += item_of(node->left)->sum;
	if (node->right)
		item->sum += item_of(node->right)->sum;
	return item->sum != before;
}

static void insert(struct hf_rb_tree *tree, struct item *item, hf_rb_update_fn fn)
{
	struct hf_rb_node **link = &tree->root, *parent = NULL;

	while (*link) {
		parent = *link;
		link = item->key < item_of(parent)->key ? &parent->left : &parent->right;
	}
	hf_rb_insert(tree, &item->node, parent, link, fn);
	item->is_in = true;
}

static uint64_t check_sums(struct hf_rb_node *node)
{
	uint64_t sum;

	if (!node)
		return 0;
	sum = item_of(node)->key + check_sums(node->left) + check_sums(node->right);
	assert_true(item_of(node)->sum == sum);
	return sum;
}

static void check_order(const struct hf_rb_tree *tree, long n)
{
	struct item *item = item_of(hf_rb_first(tree)), *last = NULL;
	long n_up = 0, n_down = 0;

	assert_true(hf_rb_check(tree) == n);
	for (; item; last = item, item = item_of(hf_rb_next(&item->node)), n_up++)
		assert_true(!last || last->key <= item->key);
	assert_true(last == item_of(hf_rb_last(tree)));
	for (; last; last = item_of(hf_rb_prev(&last->node)))
		n_down++;
	assert_true(n_up == n && n_down == n);
}

static void test_empty(void **state)
{
	struct hf_rb_tree tree = { NULL };

	assert_true(hf_rb_is_empty(&tree));
	assert_null(hf_rb_first(&tree));
	assert_null(hf_rb_last(&tree));
	assert_true(hf_rb_check(&tree) == 0);
}

static void test_rising_keys_stay_balanced(void **state)
{
	static struct item items[1000];
	struct hf_rb_tree tree = { NULL };

	for (uint32_t i = 0; i < 1000; i++) {
		items[i].key = i;
		insert(&tree, &items[i], NULL);
	}
	check_order(&tree, 1000);
	for (uint32_t i = 0; i < 1000; i++) {
		hf_rb_erase(&tree, &items[i].node, NULL);
		assert_true(hf_rb_check(&tree) == 999 - (long)i);
	}
}

static void test_random_changes_keep_order_and_augmentation(void **state)
{
	static struct item items[200];
	struct hf_rb_tree tree = { NULL };
	long n = 0;

	srand(1);
	for (int step = 0; step < 20000; step++) {
		struct item *item = &items[rand() % 200];

		if (item->is_in) {
			hf_rb_erase(&tree, &item->node, update);
			item->is_in = false;
			n--;
		} else {
			/* Zeros and equal keys: sums that do not change although the tree does. */
			item->key = (uint32_t)(rand() % 8);
			insert(&tree, item, update);
			n++;
		}
		check_sums(tree.root);
		if (step % 10 == 0)
			check_order(&tree, n);
	}
}

static void test_propagate(void **state)
{
	static struct item items[100];
	struct hf_rb_tree tree = { NULL };

	for (uint32_t i = 0; i < 100; i++) {
		items[i].key = 10 * i;
		insert(&tree, &items[i], update);
	}
	items[42].key += 5;
	hf_rb_propagate(&items[42].node, update);
	check_sums(tree.root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_rising_keys_stay_balanced),
		cmocka_unit_test(test_random_changes_keep_order_and_augmentation),
		cmocka_unit_test(test_propagate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
