/*
 * Intrusive red-black tree, with a hook for augmentation.
 *
 * The tree knows no order. The caller descends itself, with comparisons
 * inline, and links the new node where the descent ends:
 *
 *	struct hf_rb_node **link = &tree->root, *parent = NULL;
 *
 *	while (*link) {
 *		parent = *link;
 *		link = key < key_of(parent) ? &parent->left : &parent->right;
 *	}
 *	hf_rb_insert(tree, node, parent, link, update);
 *
 * If a node caches a value about its subtree, @update recomputes that value
 * from the node and its two children, and says whether it changed. It is called
 * bottom-up, on exactly the nodes whose subtree changed. Without augmentation
 * pass NULL.
 *
 * left and right stand before the parent, so that an object can place its node
 * with the two hot words at the end of a cache line.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct hf_rb_node {
	struct hf_rb_node *left;
	struct hf_rb_node *right;
	uintptr_t parent_color; /* parent | 1 if black */
};

struct hf_rb_tree {
	struct hf_rb_node *root;
};

typedef bool (*hf_rb_update_fn)(struct hf_rb_node *node);

#define hf_rb_entry(node, type, member) hf_container_of(node, type, member)

static inline struct hf_rb_node *hf_rb_parent(const struct hf_rb_node *node)
{
	return (struct hf_rb_node *)(node->parent_color & ~(uintptr_t)1);
}

static inline bool hf_rb_is_black(const struct hf_rb_node *node)
{
	return node->parent_color & 1;
}

static inline bool hf_rb_is_empty(const struct hf_rb_tree *tree)
{
	return !tree->root;
}

void hf_rb_insert_below(struct hf_rb_tree *tree, struct hf_rb_node *node, struct hf_rb_node *parent,
			struct hf_rb_node **link, hf_rb_update_fn update);
void hf_rb_erase_among(struct hf_rb_tree *tree, struct hf_rb_node *node, hf_rb_update_fn update);

/* CHANGE: links @node at *@link below @parent; *@link must be empty. What needs no repair is inline: the
 * first node of a tree, and a new leaf below a black node. */
static inline void hf_rb_insert(struct hf_rb_tree *tree, struct hf_rb_node *node, struct hf_rb_node *parent,
				struct hf_rb_node **link, hf_rb_update_fn update)
{
	if (parent && (update || !hf_rb_is_black(parent))) {
		hf_rb_insert_below(tree, node, parent, link, update);
		return;
	}
	node->left = node->right = NULL;
	node->parent_color = parent ? (uintptr_t)parent : 1; /* red, or the black root */
	*link = node;
	if (update)
		update(node);
}

/* @node goes behind all others: for trees in the order of creation. */
static inline void hf_rb_append(struct hf_rb_tree *tree, struct hf_rb_node *node)
{
	struct hf_rb_node **link = &tree->root, *parent = NULL;

	while (*link) {
		parent = *link;
		link = &parent->right;
	}
	hf_rb_insert(tree, node, parent, link, NULL);
}

/* What needs no repair is inline: the last node of a tree, and a red leaf. */
static inline void hf_rb_erase(struct hf_rb_tree *tree, struct hf_rb_node *node, hf_rb_update_fn update)
{
	struct hf_rb_node *parent = hf_rb_parent(node);

	if (node->left || node->right || (parent && (update || hf_rb_is_black(node))))
		hf_rb_erase_among(tree, node, update);
	else if (!parent)
		tree->root = NULL;
	else if (parent->left == node)
		parent->left = NULL;
	else
		parent->right = NULL;
}

/* Updates @node and then its ancestors, until one does not change. */
void hf_rb_propagate(struct hf_rb_node *node, hf_rb_update_fn update);

/* ORDER: NULL at either end. */
struct hf_rb_node *hf_rb_first(const struct hf_rb_tree *tree);
struct hf_rb_node *hf_rb_last(const struct hf_rb_tree *tree);
struct hf_rb_node *hf_rb_next(const struct hf_rb_node *node);
struct hf_rb_node *hf_rb_prev(const struct hf_rb_node *node);

/* CHECK: colours, black heights and parents; for tests. Returns the number of nodes or -1. */
int64_t hf_rb_check(const struct hf_rb_tree *tree);
