/*
 * The invariants of a set of locks, for tests. The check computes what inner nodes
 * say from the locks themselves, not with the code that maintains it.
 */
#include "lock/tree.h"

#include "lock/invariant.h"

/* Everything below a node, from a walk through all of it. */
struct below {
	const struct hf_lock *first, *last;
	const struct hf_tree_leaf *last_leaf;
	uint64_t max_end;   /* + 1 */
	uint64_t other_end; /* + 1, of a lock that is not of @except; of_one: of an exclusive lock */
	const struct hf_holding *except;
	bool has_max; /* a lock of @except has max_end */
	bool of_one;
	uint32_t n;
};

static bool is_before(const struct hf_lock *a, const struct hf_lock *b)
{
	return a->start != b->start ? a->start < b->start : a->id < b->id;
}

static const char *look_at_lock(const struct hf_lock *lock, struct below *below)
{
	FAIL_UNLESS(!below->last || is_before(below->last, lock));
	below->first = below->first ? below->first : lock;
	below->last = lock;
	if (lock->end + 1 > below->max_end)
		below->has_max = false;
	below->max_end = HF_MAX(below->max_end, lock->end + 1);
	if (below->of_one ? lock->mode == HF_LOCK_EXCLUSIVE : lock->holding != below->except)
		below->other_end = HF_MAX(below->other_end, lock->end + 1);
	else if (lock->end + 1 == below->max_end)
		below->has_max = true;
	below->n++;
	return NULL;
}

static const char *look_at_leaf(const struct hf_tree_leaf *leaf, bool is_root, struct below *below)
{
	FAIL_UNLESS(leaf->n <= HF_TREE_LEAF_MAX && leaf->n >= (is_root ? 2 : HF_TREE_LEAF_MIN));
	FAIL_UNLESS(!below->last_leaf || below->last_leaf->next == leaf);
	below->last_leaf = leaf;
	for (unsigned int i = 0; i < leaf->n; i++) {
		FAIL_UNLESS(leaf->start[i] == leaf->lock[i]->start && leaf->end[i] == leaf->lock[i]->end);
		PASS_ON(look_at_lock(leaf->lock[i], below));
	}
	return NULL;
}

static const char *look_below(const struct hf_tree *tree, const void *node, unsigned int level,
			      struct below *below)
{
	const struct hf_tree_inner *inner = node;

	if (level == 1)
		return look_at_leaf(node, node == tree->root, below);
	FAIL_UNLESS(inner->n <= HF_TREE_INNER_MAX);
	FAIL_UNLESS(inner->n >= (node == tree->root ? 2 : HF_TREE_INNER_MIN));
	for (unsigned int i = 0; i < inner->n; i++)
		PASS_ON(look_below(tree, inner->child[i], level - 1, below));
	return NULL;
}

static const char *check_child(const struct hf_tree *tree, const struct hf_tree_inner *inner, unsigned int i,
			       unsigned int level)
{
	struct below below = { .except = inner->max_holder[i], .of_one = tree->of_one };
	const struct hf_tree_leaf *leaf;

	PASS_ON(look_below(tree, inner->child[i], level, &below));
	FAIL_UNLESS(inner->start[i] == below.first->start);
	FAIL_UNLESS(inner->max_end[i] == below.max_end);
	FAIL_UNLESS(inner->other_end[i] == below.other_end);
	FAIL_UNLESS(tree->of_one || (inner->id[i] == below.first->id && below.has_max));
	if (level > 1)
		return NULL;
	leaf = inner->child[i];
	FAIL_UNLESS(leaf->max_end == inner->max_end[i] && leaf->max_holder == inner->max_holder[i] &&
		    leaf->other_end == inner->other_end[i]);
	return NULL;
}

static const char *check_sums(const struct hf_tree *tree, const void *node, unsigned int level)
{
	const struct hf_tree_inner *inner = node;

	for (unsigned int i = 0; level > 1 && i < inner->n; i++) {
		PASS_ON(check_child(tree, inner, i, level - 1));
		PASS_ON(check_sums(tree, inner->child[i], level - 1));
	}
	return NULL;
}

static const char *check_one_holder(const struct hf_tree *tree)
{
	struct hf_spot spot = hf_tree_begin(tree);
	const struct hf_lock *prev = NULL, *lock;

	for (; (lock = hf_spot_lock(&spot)); prev = lock, hf_spot_next(&spot))
		FAIL_UNLESS(!prev || (prev->holding == lock->holding && prev->end < lock->start));
	return NULL;
}

const char *hf_tree_check(const struct hf_tree *tree)
{
	struct below below = { 0 };

	if (tree->height) {
		PASS_ON(look_below(tree, tree->root, tree->height, &below));
		FAIL_UNLESS(!below.last_leaf->next);
		PASS_ON(check_sums(tree, tree->root, tree->height));
	} else {
		FAIL_UNLESS(tree->n <= (tree->few_size ? HF_TREE_FEW_MAX : 1));
		FAIL_UNLESS(tree->few_size != 1 || tree->n <= HF_TREE_FEW_FIRST);
		FAIL_UNLESS(!tree->few_size || tree->n > 1);
		for (unsigned int i = 0; i < tree->n; i++)
			PASS_ON(look_at_lock(tree->few_size ? tree->few[i] : tree->one, &below));
	}
	FAIL_UNLESS(below.n == tree->n);
	return tree->of_one ? check_one_holder(tree) : NULL;
}
