/*
 * Intrusive chained hash table. The caller hashes (with hf_siphash() if a peer
 * chooses the key) and compares. The table stores the hash beside the link, so
 * that a walk touches no keys of other objects:
 *
 *	hf_hash_for_each(node, &table, hash)
 *		if (is_equal(hf_container_of(node, struct thing, node), key))
 *			…
 *
 * The table doubles by moving a few chains with each insertion: no call pays
 * for the whole table. If memory for the larger array is not available, the
 * table continues with long chains and tries again later, so insertion never
 * fails.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hf_hash_node {
	struct hf_hash_node *next;
	uint64_t hash;
};

struct hf_hashtable {
	struct hf_hash_node **chains;
	struct hf_hash_node **old; /* while growing: the chains not yet moved */
	size_t mask;
	size_t old_mask;
	size_t n_moved; /* chains of @old moved so far */
	size_t n;
};

int hf_hashtable_init(struct hf_hashtable *table); /* 0 or -ENOMEM */
void hf_hashtable_deinit(struct hf_hashtable *table);

void hf_hashtable_insert(struct hf_hashtable *table, struct hf_hash_node *node, uint64_t hash);
void hf_hashtable_remove(struct hf_hashtable *table, struct hf_hash_node *node);
/* Takes all nodes out and gives each to @fn, which may free it. */
void hf_hashtable_empty(struct hf_hashtable *table, void (*fn)(struct hf_hash_node *node));

/* The place of the chain of @hash. */
static inline struct hf_hash_node **hf_hashtable_chain(const struct hf_hashtable *table, uint64_t hash)
{
	if (table->old && (hash & table->old_mask) >= table->n_moved)
		return &table->old[hash & table->old_mask];
	return &table->chains[hash & table->mask];
}

/* The first node with @hash in the chain that begins at @node. */
static inline struct hf_hash_node *hf_hash_match(struct hf_hash_node *node, uint64_t hash)
{
	while (node && node->hash != hash)
		node = node->next;
	return node;
}

#define hf_hash_for_each(pos, table, hash_)                                                                 \
	for (struct hf_hash_node *pos = hf_hash_match(*hf_hashtable_chain((table), (hash_)), (hash_)); pos; \
	     pos = hf_hash_match(pos->next, (hash_)))
