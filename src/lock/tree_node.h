/* What the files of the tree share: sums, and wide nodes. */
#pragma once

#include "lock/tree.h"

/* What an inner node knows of a child. */
struct hf_tree_sum {
	uint64_t start;
	uint64_t id;
	uint64_t max_end;
	struct hf_holding *max_holder;
	uint64_t other_end;
};

/* How many of the sorted @keys are less than @key? Without branches: they would be mispredicted. */
static inline unsigned int hf_tree_rank(const uint64_t *keys, unsigned int n, uint64_t key)
{
	unsigned int rank = 0;

	for (unsigned int i = 0; i < n; i++)
		rank += keys[i] < key;
	return rank;
}

/* A search reads a node in several places: fetch all of them at once. */
static inline void hf_tree_prefetch(const void *node, unsigned int bytes)
{
	for (unsigned int i = 0; i < bytes; i += 64)
		__builtin_prefetch((const char *)node + i);
}

/* The child that has, or would have, (start, id). */
static inline unsigned int hf_tree_child_at(const struct hf_tree_inner *inner, uint64_t start, uint64_t id)
{
	unsigned int i = hf_tree_rank(inner->start, inner->n, start);

	while (i < inner->n && inner->start[i] == start && inner->id[i] <= id)
		i++;
	return i ? i - 1 : 0;
}

/* SUM (tree_sum.c) */
/* Computes the sum of @node anew. A leaf notes it. */
struct hf_tree_sum hf_tree_sum_of(void *node, bool is_leaf, bool of_one);
/* Returns whether the sum changed. */
bool hf_tree_sum_set(struct hf_tree_inner *inner, unsigned int at, const struct hf_tree_sum *sum);
/* Adds @lock to the sum of child @at, or of @leaf. */
void hf_tree_sum_absorb(struct hf_tree_inner *inner, unsigned int at, const struct hf_lock *lock,
			bool of_one);
void hf_tree_sum_absorb_leaf(struct hf_tree_leaf *leaf, const struct hf_lock *lock, bool of_one);
/* Would @lock, inserted somewhere inside @leaf, change its sum? */
bool hf_tree_sum_would_change(const struct hf_tree_leaf *leaf, const struct hf_lock *lock, bool of_one);
/* Does the sum of @leaf depend on @lock, which is not its first lock? */
bool hf_tree_sum_is_of(const struct hf_tree_leaf *leaf, const struct hf_lock *lock, bool of_one);

/* NODE: a set in the wide form. (tree_node.c) */
void hf_tree_widen(struct hf_tree_pools *pools, struct hf_tree *tree); /* from few */
/* True: done. False: @leaf is not the right one, or something changes above it. */
bool hf_tree_node_insert_at(struct hf_tree *tree, struct hf_tree_leaf *leaf, struct hf_lock *lock);
bool hf_tree_node_erase_at(struct hf_tree *tree, struct hf_tree_leaf *leaf, const struct hf_lock *lock);
void hf_tree_node_insert(struct hf_tree_pools *pools, struct hf_tree *tree, struct hf_lock *lock);
void hf_tree_node_erase(struct hf_tree_pools *pools, struct hf_tree *tree, struct hf_lock *lock);
