/*
 * Growing: @chains is the new array, @old the previous one. Chains of @old
 * below n_moved are empty and their nodes are in @chains. Every insertion moves
 * MOVE_PER_INSERT chains, so the move ends long before the next doubling.
 */
#include "base/hashtable.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"

enum {
	FIRST_SIZE = 64,
	MOVE_PER_INSERT = 4,
};

int hf_hashtable_init(struct hf_hashtable *table)
{
	*table = (struct hf_hashtable){ 0 };
	table->chains = calloc(FIRST_SIZE, sizeof(*table->chains));
	if (!table->chains)
		return -ENOMEM;
	table->mask = FIRST_SIZE - 1;
	return 0;
}

void hf_hashtable_deinit(struct hf_hashtable *table)
{
	free(table->chains);
	free(table->old);
	*table = (struct hf_hashtable){ 0 };
}

static void push(struct hf_hash_node **chain, struct hf_hash_node *node)
{
	node->next = *chain;
	*chain = node;
}

static void move_chain(struct hf_hashtable *table)
{
	struct hf_hash_node *node = table->old[table->n_moved];

	while (node) {
		struct hf_hash_node *next = node->next;

		push(&table->chains[node->hash & table->mask], node);
		node = next;
	}
	table->n_moved++;
	if (table->n_moved > table->old_mask) {
		free(table->old);
		table->old = NULL;
	}
}

static void begin_growing(struct hf_hashtable *table)
{
	size_t size = (table->mask + 1) * 2;
	struct hf_hash_node **chains = calloc(size, sizeof(*chains));

	if (!chains)
		return;
	table->old = table->chains;
	table->old_mask = table->mask;
	table->n_moved = 0;
	table->chains = chains;
	table->mask = size - 1;
}

void hf_hashtable_insert(struct hf_hashtable *table, struct hf_hash_node *node, uint64_t hash)
{
	if (HF_UNLIKELY(!table->old && table->n > table->mask))
		begin_growing(table);
	for (int i = 0; HF_UNLIKELY(table->old) && i < MOVE_PER_INSERT; i++)
		move_chain(table);
	node->hash = hash;
	push(hf_hashtable_chain(table, hash), node);
	table->n++;
}

void hf_hashtable_remove(struct hf_hashtable *table, struct hf_hash_node *node)
{
	struct hf_hash_node **link = hf_hashtable_chain(table, node->hash);

	while (*link != node) {
		assert(*link);
		link = &(*link)->next;
	}
	*link = node->next;
	node->next = NULL;
	table->n--;
}

static void empty_chain(struct hf_hash_node **chain, void (*fn)(struct hf_hash_node *node))
{
	struct hf_hash_node *node = *chain;

	*chain = NULL;
	while (node) {
		struct hf_hash_node *next = node->next;

		fn(node);
		node = next;
	}
}

void hf_hashtable_empty(struct hf_hashtable *table, void (*fn)(struct hf_hash_node *node))
{
	for (size_t i = table->n_moved; table->old && i <= table->old_mask; i++)
		empty_chain(&table->old[i], fn);
	for (size_t i = 0; table->chains && i <= table->mask; i++)
		empty_chain(&table->chains[i], fn);
	table->n = 0;
}
