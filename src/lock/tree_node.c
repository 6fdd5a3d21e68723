/*
 * The wide form of a set of locks: insertion and erasure in the B+-tree that
 * tree.h describes.
 *
 * Both descend once, note the way, and ascend as far as something changes. On the
 * way down an insertion adds the new lock to the sum of each child that gets it:
 * nothing is computed anew unless a node splits. An erasure computes a sum anew only
 * if the lock gave its child its start or one of its two ends. Only then are locks
 * themselves read: their cache lines are cold.
 */
#include "lock/tree_node.h"

#include <string.h>

static_assert(sizeof(struct hf_tree_leaf) <= HF_TREE_NODE_BYTES, "a leaf is a node");
static_assert(sizeof(struct hf_tree_inner) <= HF_TREE_NODE_BYTES, "an inner node is a node");
static_assert(HF_TREE_LEAF_MIN >= 2 && HF_TREE_INNER_MIN >= 2, "a node but the root has neighbours");
static_assert(HF_TREE_FEW_MAX < HF_TREE_LEAF_MAX, "few locks become one leaf");

enum {
	LEAF_WITH_ROOM = HF_TREE_LEAF_MAX - (HF_TREE_LEAF_MIN + 1) / 2 -
			 1, /* a neighbour with no more locks than this has room */
	/* Two neighbours with no more than this together are merged. */
	LEAF_MERGE = HF_TREE_LEAF_MAX - HF_TREE_LEAF_MIN,
	INNER_MERGE = HF_TREE_INNER_MAX - HF_TREE_INNER_MIN,
};

/* The way down to a leaf, from the root. */
struct way {
	struct hf_tree_inner *node[HF_TREE_LEVELS_MAX];
	uint8_t at[HF_TREE_LEVELS_MAX];
	unsigned int n;
};

/* ARRAYS of a node: of numbers or of pointers, whose sizes differ on some machines. */

#define OPEN_GAP(array, at, n)           open_gap(array, sizeof((array)[0]), at, n)
#define CLOSE_GAP(array, at, n)          close_gap(array, sizeof((array)[0]), at, n)
#define SLIDE(left, n, right, m, n_left) slide(left, n, right, m, n_left, sizeof((left)[0]))

static void open_gap(void *array, size_t size, unsigned int at, unsigned int n)
{
	char *p = (char *)array + at * size;

	memmove(p + size, p, (n - at) * size);
}

static void close_gap(void *array, size_t size, unsigned int at, unsigned int n)
{
	char *p = (char *)array + at * size;

	memmove(p, p + size, (n - at - 1) * size);
}

/* Moves elements between @left, which has @n, and @right, which has @m, so that @left has @n_left. */
static void slide(void *left, unsigned int n, void *right, unsigned int m, unsigned int n_left, size_t size)
{
	char *l = left, *r = right;
	size_t k;

	if (n_left >= n) {
		k = n_left - n;
		memcpy(l + n * size, r, k * size);
		memmove(r, r + k * size, (m - k) * size);
	} else {
		k = n - n_left;
		memmove(r + k * size, r, m * size);
		memcpy(r, l + n_left * size, k * size);
	}
}

static void slide_leaves(struct hf_tree_leaf *left, struct hf_tree_leaf *right, unsigned int n_left)
{
	unsigned int n = left->n, m = right->n;

	SLIDE(left->start, n, right->start, m, n_left);
	SLIDE(left->end, n, right->end, m, n_left);
	SLIDE(left->lock, n, right->lock, m, n_left);
	left->n = n_left;
	right->n = n + m - n_left;
}

static void slide_inners(struct hf_tree_inner *left, struct hf_tree_inner *right, unsigned int n_left)
{
	unsigned int n = left->n, m = right->n;

	SLIDE(left->max_end, n, right->max_end, m, n_left);
	SLIDE(left->start, n, right->start, m, n_left);
	SLIDE(left->child, n, right->child, m, n_left);
	SLIDE(left->max_holder, n, right->max_holder, m, n_left);
	SLIDE(left->other_end, n, right->other_end, m, n_left);
	SLIDE(left->id, n, right->id, m, n_left);
	left->n = n_left;
	right->n = n + m - n_left;
}

/* How many elements stay in the left node when one is inserted at @at of a full node? */
static unsigned int split_point(unsigned int at, unsigned int max, unsigned int min)
{
	if (at == max)
		return max + 1 - min;
	return at == 0 ? min - 1 : max / 2;
}

/* INSERT */

static void put_lock(struct hf_tree_leaf *leaf, unsigned int at, struct hf_lock *lock)
{
	OPEN_GAP(leaf->start, at, leaf->n);
	OPEN_GAP(leaf->end, at, leaf->n);
	OPEN_GAP(leaf->lock, at, leaf->n);
	leaf->start[at] = lock->start;
	leaf->end[at] = lock->end;
	leaf->lock[at] = lock;
	leaf->n++;
}

static void put_child(struct hf_tree_inner *inner, unsigned int at, void *child,
		      const struct hf_tree_sum *sum)
{
	OPEN_GAP(inner->max_end, at, inner->n);
	OPEN_GAP(inner->start, at, inner->n);
	OPEN_GAP(inner->child, at, inner->n);
	OPEN_GAP(inner->max_holder, at, inner->n);
	OPEN_GAP(inner->other_end, at, inner->n);
	OPEN_GAP(inner->id, at, inner->n);
	inner->n++;
	inner->child[at] = child;
	hf_tree_sum_set(inner, at, sum);
}

static struct hf_tree_leaf *split_leaf(struct hf_tree_pools *pools, struct hf_tree_leaf *leaf,
				       unsigned int at, struct hf_lock *lock)
{
	struct hf_tree_leaf *right = hf_pool_take(&pools->nodes);
	unsigned int n_left = split_point(at, HF_TREE_LEAF_MAX, HF_TREE_LEAF_MIN);

	right->n = 0;
	right->next = leaf->next;
	leaf->next = right;
	slide_leaves(leaf, right, n_left);
	if (at <= n_left)
		put_lock(leaf, at, lock);
	else
		put_lock(right, at - n_left, lock);
	return right;
}

static struct hf_tree_inner *split_inner(struct hf_tree_pools *pools, struct hf_tree_inner *inner,
					 unsigned int at, void *child, const struct hf_tree_sum *sum)
{
	struct hf_tree_inner *right = hf_pool_take(&pools->nodes);
	unsigned int n_left = split_point(at, HF_TREE_INNER_MAX, HF_TREE_INNER_MIN);

	right->n = 0;
	slide_inners(inner, right, n_left);
	if (at <= n_left)
		put_child(inner, at, child, sum);
	else
		put_child(right, at - n_left, child, sum);
	return right;
}

/* The root has split. */
static void grow(struct hf_tree_pools *pools, struct hf_tree *tree, const struct hf_tree_sum *left_sum,
		 void *right, const struct hf_tree_sum *right_sum)
{
	struct hf_tree_inner *root = hf_pool_take(&pools->nodes);

	root->n = 0;
	put_child(root, 0, tree->root, left_sum);
	put_child(root, 1, right, right_sum);
	tree->root = root;
	tree->height++;
	assert(tree->height < HF_TREE_LEVELS_MAX);
}

/* @left, at the end of @way, has split. */
static void link_right(struct hf_tree_pools *pools, struct hf_tree *tree, struct way *way, void *left,
		       void *right)
{
	bool is_leaf = true;

	for (;;) {
		struct hf_tree_sum left_sum = hf_tree_sum_of(left, is_leaf, tree->of_one);
		struct hf_tree_sum right_sum = hf_tree_sum_of(right, is_leaf, tree->of_one);
		struct hf_tree_inner *parent;
		unsigned int at;

		if (!way->n) {
			grow(pools, tree, &left_sum, right, &right_sum);
			return;
		}
		parent = way->node[--way->n];
		at = way->at[way->n];
		hf_tree_sum_set(parent, at, &left_sum);
		if (parent->n < HF_TREE_INNER_MAX) {
			put_child(parent, at + 1, right, &right_sum);
			return;
		}
		right = split_inner(pools, parent, at + 1, right, &right_sum);
		left = parent;
		is_leaf = false;
	}
}

/* The full leaf at the end of @way moves locks to a neighbour that has room: nodes are fewer and fuller. */
static bool balance_and_put(const struct hf_tree *tree, const struct way *way, struct hf_lock *lock)
{
	struct hf_tree_inner *parent = way->n ? way->node[way->n - 1] : NULL;
	unsigned int at = way->n ? way->at[way->n - 1] : 0;
	struct hf_tree_leaf *left, *right;
	struct hf_tree_sum sum;

	if (!parent)
		return false;
	if (at + 1 < parent->n && ((struct hf_tree_leaf *)parent->child[at + 1])->n <= LEAF_WITH_ROOM)
		at++;
	else if (at == 0 || ((struct hf_tree_leaf *)parent->child[at - 1])->n > LEAF_WITH_ROOM)
		return false;
	left = parent->child[at - 1];
	right = parent->child[at];
	slide_leaves(left, right, (left->n + right->n) / 2);
	if (lock->start >= right->start[0])
		left = right;
	put_lock(left, hf_tree_rank(left->start, left->n, lock->start + 1), lock);
	for (unsigned int i = at - 1; i <= at; i++) {
		sum = hf_tree_sum_of(parent->child[i], true, tree->of_one);
		hf_tree_sum_set(parent, i, &sum);
	}
	return true;
}

void hf_tree_node_insert(struct hf_tree_pools *pools, struct hf_tree *tree, struct hf_lock *lock)
{
	struct hf_tree_leaf *leaf;
	void *node = tree->root;
	struct way way;
	unsigned int at;

	way.n = 0;
	for (unsigned int level = tree->height; level > 1; level--) {
		struct hf_tree_inner *inner = node;

		at = hf_tree_rank(inner->start, inner->n, lock->start + 1);
		at = at ? at - 1 : 0;
		way.node[way.n] = inner;
		way.at[way.n++] = (uint8_t)at;
		node = inner->child[at];
		hf_tree_prefetch(node, HF_TREE_NODE_BYTES);
		hf_tree_sum_absorb(inner, at, lock, tree->of_one);
	}
	leaf = node;
	at = hf_tree_rank(leaf->start, leaf->n, lock->start + 1);
	if (leaf->n < HF_TREE_LEAF_MAX) {
		put_lock(leaf, at, lock);
		hf_tree_sum_absorb_leaf(leaf, lock, tree->of_one);
	} else if (!balance_and_put(tree, &way, lock)) {
		link_right(pools, tree, &way, leaf, split_leaf(pools, leaf, at, lock));
	}
}

bool hf_tree_node_insert_at(struct hf_tree *tree, struct hf_tree_leaf *leaf, struct hf_lock *lock)
{
	if (leaf->n == HF_TREE_LEAF_MAX || lock->start <= leaf->start[0] ||
	    lock->start >= leaf->start[leaf->n - 1] || hf_tree_sum_would_change(leaf, lock, tree->of_one))
		return false;
	put_lock(leaf, hf_tree_rank(leaf->start, leaf->n, lock->start + 1), lock);
	return true;
}

void hf_tree_widen(struct hf_tree_pools *pools, struct hf_tree *tree)
{
	struct hf_tree_leaf *leaf = hf_pool_take(&pools->nodes);

	leaf->n = 0;
	leaf->next = NULL;
	for (unsigned int i = 0; i < tree->n; i++)
		put_lock(leaf, i, tree->few[i]);
	hf_tree_sum_of(leaf, true, tree->of_one);
	tree->root = leaf;
	tree->height = 1;
}

/* ERASE */

static void drop_lock(struct hf_tree_leaf *leaf, unsigned int at)
{
	CLOSE_GAP(leaf->start, at, leaf->n);
	CLOSE_GAP(leaf->end, at, leaf->n);
	CLOSE_GAP(leaf->lock, at, leaf->n);
	leaf->n--;
}

static void drop_child(struct hf_tree_inner *inner, unsigned int at)
{
	CLOSE_GAP(inner->max_end, at, inner->n);
	CLOSE_GAP(inner->start, at, inner->n);
	CLOSE_GAP(inner->child, at, inner->n);
	CLOSE_GAP(inner->max_holder, at, inner->n);
	CLOSE_GAP(inner->other_end, at, inner->n);
	CLOSE_GAP(inner->id, at, inner->n);
	inner->n--;
}

/* Distributes the locks of two neighbours evenly, or merges them. True: @right is empty and unlinked. */
static bool even_leaves(struct hf_tree_leaf *left, struct hf_tree_leaf *right)
{
	unsigned int n = left->n + right->n;

	if (n > LEAF_MERGE) {
		slide_leaves(left, right, n / 2);
		return false;
	}
	slide_leaves(left, right, n);
	left->next = right->next;
	return true;
}

static bool even_inners(struct hf_tree_inner *left, struct hf_tree_inner *right)
{
	unsigned int n = left->n + right->n;

	slide_inners(left, right, n > INNER_MERGE ? n / 2 : n);
	return n <= INNER_MERGE;
}

/* Child @at of @parent has become too small. */
static void mend(struct hf_tree_pools *pools, struct hf_tree_inner *parent, unsigned int at, bool is_leaf,
		 bool of_one)
{
	unsigned int first = at ? at - 1 : 0;
	void *left = parent->child[first], *right = parent->child[first + 1];
	struct hf_tree_sum sum;

	assert(parent->n >= 2);
	if (is_leaf ? even_leaves(left, right) : even_inners(left, right)) {
		drop_child(parent, first + 1);
		hf_pool_give(&pools->nodes, right);
	} else {
		sum = hf_tree_sum_of(right, is_leaf, of_one);
		hf_tree_sum_set(parent, first + 1, &sum);
	}
	sum = hf_tree_sum_of(left, is_leaf, of_one);
	hf_tree_sum_set(parent, first, &sum);
}

/* Repairs sizes and sums from the leaf @node, at the end of @way, upwards. */
static void repair(struct hf_tree_pools *pools, struct hf_tree *tree, struct way *way, void *node,
		   bool is_changed)
{
	bool is_leaf = true, is_small = ((struct hf_tree_leaf *)node)->n < HF_TREE_LEAF_MIN;

	while (way->n && (is_changed || is_small)) {
		struct hf_tree_inner *parent = way->node[--way->n];
		unsigned int at = way->at[way->n];
		struct hf_tree_sum sum;

		if (is_small) {
			mend(pools, parent, at, is_leaf, tree->of_one);
			is_changed = true;
		} else {
			sum = hf_tree_sum_of(node, is_leaf, tree->of_one);
			is_changed = hf_tree_sum_set(parent, at, &sum);
		}
		node = parent;
		is_leaf = false;
		is_small = parent->n < HF_TREE_INNER_MIN;
	}
}

/* Removes a root that has one child, or a root leaf that has one lock. */
static void shrink(struct hf_tree_pools *pools, struct hf_tree *tree)
{
	void *root = tree->root;

	if (tree->height > 1 && ((struct hf_tree_inner *)root)->n == 1) {
		tree->root = ((struct hf_tree_inner *)root)->child[0];
		tree->height--;
		hf_pool_give(&pools->nodes, root);
	} else if (tree->height == 1 && tree->n == 1) {
		tree->one = ((struct hf_tree_leaf *)root)->lock[0];
		tree->height = 0;
		tree->few_size = 0;
		hf_pool_give(&pools->nodes, root);
	}
}

/* The index of @lock in @leaf; n if it is not there. */
static unsigned int place_in(const struct hf_tree_leaf *leaf, const struct hf_lock *lock)
{
	unsigned int at = hf_tree_rank(leaf->start, leaf->n, lock->start);

	while (at < leaf->n && leaf->lock[at] != lock)
		at++;
	return at;
}

bool hf_tree_node_erase_at(struct hf_tree *tree, struct hf_tree_leaf *leaf, const struct hf_lock *lock)
{
	unsigned int at = place_in(leaf, lock);

	if (at == 0 || at == leaf->n || leaf->n <= HF_TREE_LEAF_MIN ||
	    hf_tree_sum_is_of(leaf, lock, tree->of_one))
		return false;
	drop_lock(leaf, at);
	return true;
}

void hf_tree_node_erase(struct hf_tree_pools *pools, struct hf_tree *tree, struct hf_lock *lock)
{
	struct hf_tree_leaf *leaf;
	void *node = tree->root;
	struct way way;
	unsigned int at;
	bool is_changed;

	way.n = 0;
	for (unsigned int level = tree->height; level > 1; level--) {
		struct hf_tree_inner *inner = node;

		at = hf_tree_child_at(inner, lock->start, lock->id);
		way.node[way.n] = inner;
		way.at[way.n++] = (uint8_t)at;
		node = inner->child[at];
		hf_tree_prefetch(node, HF_TREE_NODE_BYTES);
	}
	leaf = node;
	at = place_in(leaf, lock);
	assert(at < leaf->n);
	is_changed = at == 0 || hf_tree_sum_is_of(leaf, lock, tree->of_one);
	drop_lock(leaf, at);
	if (is_changed)
		hf_tree_sum_of(leaf, true, tree->of_one);
	repair(pools, tree, &way, leaf, is_changed);
	shrink(pools, tree);
}
