/*
 * Sets of locks by place: all locks of a file in one mode, and all locks of a
 * holding. In order of (start, id).
 *
 * Most sets are tiny, some have a million, so there are three forms:
 *
 *	one       the set is a pointer to its only lock
 *	few       a sorted array of pointers with room for 4, then for 16
 *	wide      a B+-tree; leaves are linked, all are at the same depth
 *
 * A search in a large binary tree waits for memory once a level, twenty times
 * at a million. Here it does so three or four times: nodes are wide, the keys of
 * a node lie side by side, and what a search wants to know of a lock or of a
 * subtree (where it begins, how far it reaches, whose that is) stands in the
 * node above it. Leaves have start and end of each lock: a search that finds
 * nothing touches no lock at all. A leaf also notes what its parent says of it:
 * a lock that comes or goes without changing that concerns this leaf alone.
 *
 * For each child an inner node has
 *
 *	start, id            of its first lock
 *	max_end, max_holder  the largest end + 1 and a holding (one of several) that has it
 *	other_end            the largest end + 1 among all other holdings' locks, 0 if there are none
 *
 * so that "how far does a lock that is not mine reach" is one comparison, and a
 * foreign lock that overlaps a range is found on one way down, even if a
 * million locks of my own overlap it: see hf_tree_first().
 *
 * The set of a holding (of_one) has disjoint locks of one holder. max_holder is
 * NULL there, and other_end that of its exclusive locks, so that one of them is
 * found among a million shared ones: see hf_tree_exclusive().
 *
 * FILL. A node but the root has at least a quarter of its room. A full leaf
 * shares with a neighbour that has room rather than split. Splitting halves, but
 * at either end of a node it leaves the larger part behind, since locks often
 * come in order. A node that has become too small takes from a
 * neighbour, or the two become one if that leaves a quarter free: an insertion
 * right afterwards does not split again. A set that shrinks to one lock takes
 * the form of one; otherwise few and wide stay what they are.
 *
 * MEMORY. Insertion takes nodes that hf_tree_reserve() has made sure of. Erasing
 * needs none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "lock/range.h"
#include "lock/record.h"

/* A test builds it with narrow nodes, so that small sets have many levels. */
#ifndef HF_TREE_NODE_BYTES
#define HF_TREE_NODE_BYTES 1536
#define HF_TREE_FEW_MAX    16
#endif

enum {
	HF_TREE_LEAF_MAX = (HF_TREE_NODE_BYTES - 40) / 24,
	HF_TREE_LEAF_MIN = HF_TREE_LEAF_MAX / 4,
	HF_TREE_INNER_MAX = (HF_TREE_NODE_BYTES - 16) / 48,
	HF_TREE_INNER_MIN = HF_TREE_INNER_MAX / 4 < 2 ? 2 : HF_TREE_INNER_MAX / 4,
	HF_TREE_LEVELS_MAX = 24, /* 2^23 leaves are more than there can be */
	HF_TREE_FEW_SIZES = 2,
	HF_TREE_FEW_FIRST = 4,                             /* room of the first of them */
	HF_TREE_TOP_BYTES = 8 + 2 * 8 * HF_TREE_INNER_MAX, /* of an inner node, what a search reads */
};

struct hf_tree_leaf {
	uint32_t n;
	struct hf_tree_leaf *next;
	uint64_t max_end; /* what the parent, if there is one, says of it */
	struct hf_holding *max_holder;
	uint64_t other_end;
	uint64_t start[HF_TREE_LEAF_MAX];
	uint64_t end[HF_TREE_LEAF_MAX];
	struct hf_lock *lock[HF_TREE_LEAF_MAX];
};

/* What every search reads comes first. */
struct hf_tree_inner {
	uint32_t n;
	uint64_t max_end[HF_TREE_INNER_MAX];
	void *child[HF_TREE_INNER_MAX]; /* leaf or inner, by its level */
	struct hf_holding *max_holder[HF_TREE_INNER_MAX];
	uint64_t other_end[HF_TREE_INNER_MAX];
	uint64_t start[HF_TREE_INNER_MAX];
	uint64_t id[HF_TREE_INNER_MAX];
};

struct hf_tree {
	union {
		struct hf_lock *one;
		struct hf_lock **few;
		void *root;
	};
	uint32_t n;
	uint8_t height;   /* levels of nodes; 0: one or few */
	uint8_t few_size; /* 0: one; else which array, from 1 */
	bool of_one;      /* disjoint locks of one holding; set before the first insertion */
};

struct hf_tree_pools {
	struct hf_pool few[HF_TREE_FEW_SIZES];
	struct hf_pool nodes;
};

/* A place in a set, valid until the set changes. */
struct hf_spot {
	struct hf_lock *const *locks;
	struct hf_tree_leaf *leaf; /* NULL if @locks are all there are */
	uint32_t at;               /* == n: at the end */
	uint32_t n;
};

/* MEMORY */
void hf_tree_pools_init(struct hf_tree_pools *pools);
void hf_tree_pools_deinit(struct hf_tree_pools *pools);
size_t hf_tree_pools_bytes(const struct hf_tree_pools *pools);
/*
 * 0 or -ENOMEM: the next @n insertions, into whatever sets, find memory. There are @n_sets sets with @n_locks
 * entries in all, those @n included.
 */
int hf_tree_reserve(struct hf_tree_pools *pools, size_t n, size_t n_sets, size_t n_locks);

/*
 * CHANGE. A new lock must have a larger id than all of the set. @hint is a leaf where the lock may belong, as
 * found by a search since the last change, or NULL. Mostly it does, and nothing changes above that leaf; then
 * no other node is read.
 */
void hf_tree_insert(struct hf_tree_pools *pools, struct hf_tree *tree, struct hf_tree_leaf *hint,
		    struct hf_lock *lock);
void hf_tree_erase(struct hf_tree_pools *pools, struct hf_tree *tree, struct hf_tree_leaf *hint,
		   struct hf_lock *lock);

/* Fills an empty set with @n locks, at least one, that are in order. Takes no more memory than @n insertions
 * may. (tree_build.c) */
void hf_tree_build(struct hf_tree_pools *pools, struct hf_tree *tree, struct hf_lock *const *locks, size_t n);

/* LOOK. O(log n). */
/* The first lock that overlaps @range and is not of @me (NULL: of any holding). */
struct hf_spot hf_tree_first(const struct hf_tree *tree, const struct hf_holding *me, struct hf_range range);
/*
 * Its two halves, for callers that have something else to do while the leaf arrives from memory:
 * hf_tree_aim() finds the leaf without reading it, and hf_tree_hit() searches it. The set must not change in
 * between.
 */
struct hf_tree_leaf *hf_tree_aim_wide(const struct hf_tree *tree, const struct hf_holding *me,
				      struct hf_range range);
static inline struct hf_tree_leaf *hf_tree_aim(const struct hf_tree *tree, const struct hf_holding *me,
					       struct hf_range range)
{
	return tree->height ? hf_tree_aim_wide(tree, me, range) : NULL;
}
struct hf_spot hf_tree_hit(const struct hf_tree *tree, struct hf_tree_leaf *leaf, const struct hf_holding *me,
			   struct hf_range range);
/* In the set of a holding: the first exclusive lock that overlaps @range. */
struct hf_spot hf_tree_exclusive(const struct hf_tree *tree, struct hf_range range);
/* Prefetches the root, for callers that search soon and have something else to do before. */
static inline void hf_tree_expect(const struct hf_tree *tree)
{
	uintptr_t top =
		(uintptr_t)tree->root; /* an empty set has none; a prefetch of any address is harmless */

	for (unsigned int i = 0; i < HF_TREE_TOP_BYTES; i += 64)
		__builtin_prefetch((const void *)(top + i));
}
/* The first lock behind (@start, @id). */
struct hf_spot hf_tree_behind(const struct hf_tree *tree, uint64_t start, uint64_t id);
struct hf_spot hf_tree_begin(const struct hf_tree *tree);
/* How many entries of nodes hf_tree_first() looks at; for tests. */
unsigned int hf_tree_steps(const struct hf_tree *tree, const struct hf_holding *me, struct hf_range range);

/* NULL at the end. */
static inline struct hf_lock *hf_spot_lock(const struct hf_spot *spot)
{
	return spot->at < spot->n ? spot->locks[spot->at] : NULL;
}

/* Does not read the lock if a leaf has its range. Not at the end. */
static inline struct hf_range hf_spot_range(const struct hf_spot *spot)
{
	if (spot->leaf)
		return (struct hf_range){ spot->leaf->start[spot->at], spot->leaf->end[spot->at] };
	return hf_lock_range(spot->locks[spot->at]);
}

static inline void hf_spot_next(struct hf_spot *spot)
{
	if (++spot->at < spot->n || !spot->leaf || !spot->leaf->next)
		return;
	spot->leaf = spot->leaf->next;
	spot->locks = spot->leaf->lock;
	spot->n = spot->leaf->n;
	spot->at = 0;
}

/* CHECK: order, fill, sums and what inner nodes say. NULL, or what is broken. (tree_check.c) */
const char *hf_tree_check(const struct hf_tree *tree);
