/*
 * Builds a set from locks that are in order: nodes are filled one after another, and
 * the sum of a child is computed once, when the child is complete.
 *
 * The locks are distributed evenly among as few nodes as leave some room in each.
 * So every node except the root is at least half as full as that allows.
 */
#include "lock/tree_node.h"

#include <string.h>

enum {
	LEAF_FILL = HF_TREE_LEAF_MAX - HF_TREE_LEAF_MAX / 8,
	INNER_FILL = HF_TREE_INNER_MAX - HF_TREE_INNER_MAX / 8,
};

static_assert(LEAF_FILL / 2 >= HF_TREE_LEAF_MIN, "half of a leaf's fill is enough");
static_assert((INNER_FILL + 1) / 2 >= HF_TREE_INNER_MIN, "half of an inner node's fill is enough");

struct building {
	struct hf_tree_pools *pools;
	struct hf_lock *const *locks; /* the locks that are not built in yet */
	struct hf_tree_leaf **next;   /* where to link the next leaf */
	bool of_one;
};

static struct hf_tree_leaf *build_leaf(struct building *building, size_t n)
{
	struct hf_tree_leaf *leaf = hf_pool_take(&building->pools->nodes);

	assert(n <= HF_TREE_LEAF_MAX);
	for (size_t i = 0; i < n; i++) {
		struct hf_lock *lock = building->locks[i];

		leaf->start[i] = lock->start;
		leaf->end[i] = lock->end;
		leaf->lock[i] = lock;
	}
	leaf->n = (uint32_t)n;
	leaf->next = NULL;
	*building->next = leaf;
	building->next = &leaf->next;
	building->locks += n;
	return leaf;
}

/* Builds a node over the next @n locks. Each of its children has room for @room locks. */
static void *build_node(struct building *building, size_t n, unsigned int height, size_t room)
{
	struct hf_tree_inner *inner;
	size_t n_children;

	if (height == 1)
		return build_leaf(building, n);
	n_children = (n + room - 1) / room;
	assert(n_children <= HF_TREE_INNER_MAX);
	inner = hf_pool_take(&building->pools->nodes);
	inner->n = (uint32_t)n_children;
	for (size_t i = 0; i < n_children; i++) {
		size_t n_of = n * (i + 1) / n_children - n * i / n_children;
		void *child = build_node(building, n_of, height - 1, room / INNER_FILL);
		struct hf_tree_sum sum = hf_tree_sum_of(child, height == 2, building->of_one);

		inner->child[i] = child;
		hf_tree_sum_set(inner, (unsigned int)i, &sum);
	}
	return inner;
}

static void build_few(struct hf_tree_pools *pools, struct hf_tree *tree, struct hf_lock *const *locks,
		      size_t n)
{
	tree->few_size = n <= HF_TREE_FEW_FIRST ? 1 : 2;
	tree->few = hf_pool_take(&pools->few[tree->few_size - 1]);
	memcpy(tree->few, locks, n * sizeof(*locks));
}

static void build_wide(struct hf_tree_pools *pools, struct hf_tree *tree, struct hf_lock *const *locks,
		       size_t n)
{
	struct hf_tree_leaf *first;
	struct building building = {
		.pools = pools,
		.locks = locks,
		.next = &first,
		.of_one = tree->of_one,
	};
	size_t room = LEAF_FILL, room_below = 0; /* of the root, and of each of its children */

	for (tree->height = 1; room < n; tree->height++) {
		room_below = room;
		room *= INNER_FILL;
	}
	tree->few_size = HF_TREE_FEW_SIZES;
	tree->root = build_node(&building, n, tree->height, room_below);
	if (tree->height == 1)
		hf_tree_sum_of(tree->root, true, tree->of_one); /* the leaf notes its sum */
}

void hf_tree_build(struct hf_tree_pools *pools, struct hf_tree *tree, struct hf_lock *const *locks, size_t n)
{
	assert(!tree->n && !tree->height && !tree->few_size);
	if (n == 1)
		tree->one = locks[0];
	else if (n <= HF_TREE_FEW_MAX)
		build_few(pools, tree, locks, n);
	else
		build_wide(pools, tree, locks, n);
	tree->n = (uint32_t)n;
}
