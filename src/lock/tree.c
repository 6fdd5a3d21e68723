/*
 * Sets of locks: the small forms, searching, and memory. See tree.h; the nodes
 * of the wide form change in tree_node.c.
 *
 * Why a search descends only once: it looks for the first lock, in order, that is
 * not of @me and ends at the range's start or behind. No lock before it reaches the
 * range. If it begins behind the range's end, so do all locks after it, and no lock
 * overlaps. So at each node only the first child that reaches far enough matters.
 */
#include "lock/tree_node.h"

#include "base/error.h"

static const uint8_t few_room[HF_TREE_FEW_SIZES + 1] = { 1, HF_TREE_FEW_FIRST, HF_TREE_FEW_MAX };

/* MEMORY */

void hf_tree_pools_init(struct hf_tree_pools *pools)
{
	for (unsigned int i = 0; i < HF_TREE_FEW_SIZES; i++)
		hf_pool_init_huge(&pools->few[i], few_room[i + 1] * sizeof(struct hf_lock *), 8);
	hf_pool_init_huge(&pools->nodes, HF_TREE_NODE_BYTES, 64);
}

void hf_tree_pools_deinit(struct hf_tree_pools *pools)
{
	for (unsigned int i = 0; i < HF_TREE_FEW_SIZES; i++)
		hf_pool_deinit(&pools->few[i]);
	hf_pool_deinit(&pools->nodes);
}

size_t hf_tree_pools_bytes(const struct hf_tree_pools *pools)
{
	size_t bytes = hf_pool_bytes(&pools->nodes);

	for (unsigned int i = 0; i < HF_TREE_FEW_SIZES; i++)
		bytes += hf_pool_bytes(&pools->few[i]);
	return bytes;
}

/*
 * How many nodes @n insertions may take: at each level as many as nodes can split there. That is at most @n,
 * and at most as many as the level can have. A new root is a node of the level above.
 */
static size_t nodes_needed(size_t n, size_t n_locks)
{
	size_t n_nodes = n_locks / HF_TREE_LEAF_MIN, sum = 0;

	if (n_locks <= HF_TREE_FEW_MAX)
		return 0;
	for (; n_nodes > 0; n_nodes /= HF_TREE_INNER_MIN)
		sum += HF_MIN(n, n_nodes + 1);
	return sum + 1;
}

int hf_tree_reserve(struct hf_tree_pools *pools, size_t n, size_t n_sets, size_t n_locks)
{
	size_t n_few = HF_MIN(n, n_sets), n_nodes = n * HF_TREE_LEVELS_MAX;
	int r = 0;

	/* Usually the pool has plenty. */
	if (HF_UNLIKELY(pools->nodes.n_free < n_nodes))
		n_nodes = nodes_needed(n, n_locks);
	for (unsigned int i = 0; !r && i < HF_TREE_FEW_SIZES; i++)
		r = hf_pool_reserve(&pools->few[i], n_few);
	if (!r)
		r = hf_pool_reserve(&pools->nodes, n_nodes);
	return r < 0 ? hf_trace(r) : 0;
}

/* ONE AND FEW */

static struct hf_lock **few_locks(struct hf_tree *tree)
{
	return tree->few_size ? tree->few : &tree->one;
}

/* Moves to the next larger array, or to the wide form. */
static void grow_few(struct hf_tree_pools *pools, struct hf_tree *tree)
{
	unsigned int size = tree->few_size;
	struct hf_lock **locks = tree->few, **more;

	if (size == HF_TREE_FEW_SIZES) {
		hf_tree_widen(pools, tree);
	} else {
		more = hf_pool_take(&pools->few[size]);
		for (unsigned int i = 0; i < tree->n; i++)
			more[i] = size ? locks[i] : tree->one;
		tree->few = more;
		tree->few_size++;
	}
	if (size)
		hf_pool_give(&pools->few[size - 1], locks);
}

static void few_insert(struct hf_tree *tree, struct hf_lock *lock)
{
	struct hf_lock **locks = few_locks(tree);
	unsigned int at = tree->n;

	for (; at > 0 && locks[at - 1]->start > lock->start; at--)
		locks[at] = locks[at - 1];
	locks[at] = lock;
}

static void few_erase(struct hf_tree_pools *pools, struct hf_tree *tree, struct hf_lock *lock)
{
	struct hf_lock **locks = few_locks(tree);
	unsigned int at = 0;

	while (locks[at] != lock) {
		at++;
		assert(at <= tree->n);
	}
	for (; at < tree->n; at++)
		locks[at] = locks[at + 1];
	if (tree->n == 1 && tree->few_size) {
		tree->one = locks[0];
		hf_pool_give(&pools->few[tree->few_size - 1], locks);
		tree->few_size = 0;
	}
}

/* CHANGE */

void hf_tree_insert(struct hf_tree_pools *pools, struct hf_tree *tree, struct hf_tree_leaf *hint,
		    struct hf_lock *lock)
{
	if (!tree->height && tree->n == few_room[tree->few_size])
		grow_few(pools, tree);
	if (!tree->height)
		few_insert(tree, lock);
	else if (!hint || !hf_tree_node_insert_at(tree, hint, lock))
		hf_tree_node_insert(pools, tree, lock);
	tree->n++;
}

void hf_tree_erase(struct hf_tree_pools *pools, struct hf_tree *tree, struct hf_tree_leaf *hint,
		   struct hf_lock *lock)
{
	tree->n--;
	if (!tree->height)
		few_erase(pools, tree, lock);
	else if (!hint || !hf_tree_node_erase_at(tree, hint, lock))
		hf_tree_node_erase(pools, tree, lock);
}

/* LOOK */

static const struct hf_spot nowhere;

static inline struct hf_spot spot_in_few(const struct hf_tree *tree, unsigned int at)
{
	return (struct hf_spot){ .locks = tree->few_size ? tree->few : &tree->one, .at = at, .n = tree->n };
}

static inline struct hf_spot spot_in_leaf(struct hf_tree_leaf *leaf, unsigned int at)
{
	return (struct hf_spot){ .locks = leaf->lock, .leaf = leaf, .at = at, .n = leaf->n };
}

/* The first child with a lock that is not of @me and ends at @start or behind; n if there is none. */
static inline unsigned int reaching_child(const struct hf_tree_inner *inner, const struct hf_holding *me,
					  bool of_one, uint64_t start)
{
	unsigned int i = 0;

	if (of_one || !me) {
		while (i < inner->n && inner->max_end[i] <= start)
			i++;
		return i;
	}
	while (i < inner->n &&
	       (inner->max_end[i] <= start || (inner->max_holder[i] == me && inner->other_end[i] <= start)))
		i++;
	return i;
}

/* The only leaf that can have the lock that the search looks for. */
static inline struct hf_tree_leaf *aim(const struct hf_tree *tree, const struct hf_holding *me,
				       struct hf_range range, unsigned int *steps)
{
	void *node = tree->root;

	for (unsigned int level = tree->height; level > 1; level--) {
		const struct hf_tree_inner *inner = node;
		unsigned int i = reaching_child(inner, me, tree->of_one, range.start);

		*steps += i + 1;
		if (i == inner->n)
			return NULL;
		node = inner->child[i];
		if (level > 2)
			hf_tree_prefetch(node, offsetof(struct hf_tree_inner, max_holder));
		else
			hf_tree_prefetch(node, offsetof(struct hf_tree_leaf, lock));
	}
	return node;
}

static inline struct hf_spot hit(struct hf_tree_leaf *leaf, const struct hf_holding *me,
				 struct hf_range range, unsigned int *steps)
{
	for (unsigned int i = 0; leaf && i < leaf->n; i++) {
		++*steps;
		if (leaf->end[i] < range.start)
			continue;
		if (leaf->start[i] > range.end)
			break;
		if (!me || leaf->lock[i]->holding != me)
			return spot_in_leaf(leaf, i);
	}
	return nowhere;
}

static struct hf_spot first_few(const struct hf_tree *tree, const struct hf_holding *me,
				struct hf_range range)
{
	struct hf_lock *const *locks = tree->few_size ? tree->few : &tree->one;

	for (unsigned int i = 0; i < tree->n && locks[i]->start <= range.end; i++)
		if (locks[i]->end >= range.start && (!me || locks[i]->holding != me))
			return spot_in_few(tree, i);
	return nowhere;
}

struct hf_tree_leaf *hf_tree_aim_wide(const struct hf_tree *tree, const struct hf_holding *me,
				      struct hf_range range)
{
	unsigned int steps = 0;

	return aim(tree, me, range, &steps);
}

struct hf_spot hf_tree_hit(const struct hf_tree *tree, struct hf_tree_leaf *leaf, const struct hf_holding *me,
			   struct hf_range range)
{
	unsigned int steps = 0;

	return tree->height ? hit(leaf, me, range, &steps) : first_few(tree, me, range);
}

struct hf_spot hf_tree_first(const struct hf_tree *tree, const struct hf_holding *me, struct hf_range range)
{
	return hf_tree_hit(tree, hf_tree_aim(tree, me, range), me, range);
}

struct hf_spot hf_tree_exclusive(const struct hf_tree *tree, struct hf_range range)
{
	struct hf_spot spot = spot_in_few(tree, 0);
	void *node = tree->root;

	assert(tree->of_one);
	for (unsigned int level = tree->height; level > 1; level--) {
		const struct hf_tree_inner *inner = node;
		unsigned int i = 0;

		while (i < inner->n && inner->other_end[i] <= range.start)
			i++;
		if (i == inner->n)
			return nowhere;
		node = inner->child[i];
	}
	if (tree->height)
		spot = spot_in_leaf(node, 0);
	/* Only this leaf can have it: do not go on to the next one. */
	for (; spot.at < spot.n && hf_spot_range(&spot).start <= range.end; spot.at++)
		if (hf_spot_range(&spot).end >= range.start && hf_spot_lock(&spot)->mode == HF_LOCK_EXCLUSIVE)
			return spot;
	return nowhere;
}

unsigned int hf_tree_steps(const struct hf_tree *tree, const struct hf_holding *me, struct hf_range range)
{
	unsigned int steps = 0;

	if (!tree->height)
		return tree->n;
	hit(aim(tree, me, range, &steps), me, range, &steps);
	return steps;
}

struct hf_spot hf_tree_begin(const struct hf_tree *tree)
{
	void *node = tree->root;

	if (!tree->height)
		return spot_in_few(tree, 0);
	for (unsigned int level = tree->height; level > 1; level--)
		node = ((const struct hf_tree_inner *)node)->child[0];
	return spot_in_leaf(node, 0);
}

struct hf_spot hf_tree_behind(const struct hf_tree *tree, uint64_t start, uint64_t id)
{
	void *node = tree->root;
	struct hf_spot spot;

	for (unsigned int level = tree->height; level > 1; level--) {
		const struct hf_tree_inner *inner = node;

		node = inner->child[hf_tree_child_at(inner, start, id)];
	}
	spot = tree->height ? spot_in_leaf(node, 0) : spot_in_few(tree, 0);
	while (spot.at < spot.n && (spot.locks[spot.at]->start < start ||
				    (spot.locks[spot.at]->start == start && spot.locks[spot.at]->id <= id)))
		hf_spot_next(&spot);
	return spot;
}
