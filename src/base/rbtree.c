/*
 * Red-black tree. Invariants: the root is black; a red node has no red child;
 * every path down passes the same number of black nodes. Missing nodes count as
 * black. The repairs after insertion and removal are the classic ones (CLRS);
 * the mirrored halves are written once, with a side as parameter.
 */
#include "base/rbtree.h"

#include <assert.h>

enum side {
	LEFT,
	RIGHT,
};

static struct hf_rb_node **child_of(struct hf_rb_node *node, enum side side)
{
	return side == LEFT ? &node->left : &node->right;
}

static enum side other(enum side side)
{
	return side == LEFT ? RIGHT : LEFT;
}

static bool is_red(const struct hf_rb_node *node)
{
	return node && !hf_rb_is_black(node);
}

static void set_parent(struct hf_rb_node *node, struct hf_rb_node *parent)
{
	node->parent_color = (uintptr_t)parent | (node->parent_color & 1);
}

static void set_black(struct hf_rb_node *node)
{
	node->parent_color |= 1;
}

static void set_red(struct hf_rb_node *node)
{
	node->parent_color &= ~(uintptr_t)1;
}

/* Puts @to in the place of @from below @parent. */
static void replace_child(struct hf_rb_tree *tree, struct hf_rb_node *parent, struct hf_rb_node *from,
			  struct hf_rb_node *to)
{
	if (!parent)
		tree->root = to;
	else if (parent->left == from)
		parent->left = to;
	else
		parent->right = to;
}

void hf_rb_propagate(struct hf_rb_node *node, hf_rb_update_fn update)
{
	while (node && update(node))
		node = hf_rb_parent(node);
}

/* Rotates @node down to @side; its child on the other side comes up. */
static void rotate(struct hf_rb_tree *tree, struct hf_rb_node *node, enum side side, hf_rb_update_fn update)
{
	struct hf_rb_node *up = *child_of(node, other(side));
	struct hf_rb_node *inner = *child_of(up, side);
	struct hf_rb_node *parent = hf_rb_parent(node);

	*child_of(node, other(side)) = inner;
	if (inner)
		set_parent(inner, node);
	*child_of(up, side) = node;
	set_parent(up, parent);
	replace_child(tree, parent, node, up);
	set_parent(node, up);
	if (update) {
		update(node);
		update(up);
	}
}

static void repair_insert(struct hf_rb_tree *tree, struct hf_rb_node *node, hf_rb_update_fn update)
{
	struct hf_rb_node *parent;

	while ((parent = hf_rb_parent(node)) && !hf_rb_is_black(parent)) {
		struct hf_rb_node *grand = hf_rb_parent(parent); /* exists: a red parent is no root */
		enum side side = parent == grand->left ? LEFT : RIGHT;
		struct hf_rb_node *uncle = *child_of(grand, other(side));

		if (is_red(uncle)) {
			set_black(parent);
			set_black(uncle);
			set_red(grand);
			node = grand;
			continue;
		}
		if (node == *child_of(parent, other(side))) {
			rotate(tree, parent, side, update);
			parent = node;
		}
		set_black(parent);
		set_red(grand);
		rotate(tree, grand, other(side), update);
		break;
	}
	set_black(tree->root);
}

void hf_rb_insert_below(struct hf_rb_tree *tree, struct hf_rb_node *node, struct hf_rb_node *parent,
			struct hf_rb_node **link, hf_rb_update_fn update)
{
	assert(!*link);
	node->left = node->right = NULL;
	node->parent_color = (uintptr_t)parent;
	*link = node;
	if (update) {
		update(node);
		hf_rb_propagate(parent, update);
	}
	repair_insert(tree, node, update);
}

/* The path through @parent to @node, which may be missing, lacks one black node. */
static void repair_erase(struct hf_rb_tree *tree, struct hf_rb_node *parent, struct hf_rb_node *node,
			 hf_rb_update_fn update)
{
	while (parent && !is_red(node)) {
		enum side side = node == parent->left ? LEFT : RIGHT;
		struct hf_rb_node *sibling = *child_of(parent, other(side));

		if (is_red(sibling)) {
			set_black(sibling);
			set_red(parent);
			rotate(tree, parent, side, update);
			sibling = *child_of(parent, other(side));
		}
		if (!is_red(sibling->left) && !is_red(sibling->right)) {
			set_red(sibling);
			node = parent;
			parent = hf_rb_parent(node);
			continue;
		}
		if (!is_red(*child_of(sibling, other(side)))) {
			set_black(*child_of(sibling, side));
			set_red(sibling);
			rotate(tree, sibling, other(side), update);
			sibling = *child_of(parent, other(side));
		}
		if (hf_rb_is_black(parent))
			set_black(sibling);
		else
			set_red(sibling);
		set_black(parent);
		set_black(*child_of(sibling, other(side)));
		rotate(tree, parent, side, update);
		return;
	}
	if (node)
		set_black(node);
}

/* Takes @node, which has at most one child, out of its place. */
static void splice_out(struct hf_rb_tree *tree, struct hf_rb_node *node, struct hf_rb_node **parentp,
		       struct hf_rb_node **childp)
{
	struct hf_rb_node *child = node->left ? node->left : node->right;
	struct hf_rb_node *parent = hf_rb_parent(node);

	if (child)
		set_parent(child, parent);
	replace_child(tree, parent, node, child);
	*parentp = parent;
	*childp = child;
}

/* @heir, already removed from the tree, takes the place, colour and children of @node. */
static void take_place(struct hf_rb_tree *tree, struct hf_rb_node *node, struct hf_rb_node *heir)
{
	*heir = *node;
	replace_child(tree, hf_rb_parent(node), node, heir);
	if (heir->left)
		set_parent(heir->left, heir);
	if (heir->right)
		set_parent(heir->right, heir);
}

void hf_rb_erase_among(struct hf_rb_tree *tree, struct hf_rb_node *node, hf_rb_update_fn update)
{
	struct hf_rb_node *parent, *child, *gone = node, *heir = NULL;
	bool was_black;

	if (node->left && node->right) {
		heir = node->right;
		while (heir->left)
			heir = heir->left;
		gone = heir;
	}
	was_black = hf_rb_is_black(gone);
	splice_out(tree, gone, &parent, &child);
	if (heir) {
		take_place(tree, node, heir);
		if (parent == node)
			parent = heir;
	}
	if (update) {
		hf_rb_propagate(parent, update);
		/* @heir is new in its place, so its ancestors must be updated even if its own cached value
		 * did not change. */
		if (heir) {
			update(heir);
			hf_rb_propagate(hf_rb_parent(heir), update);
		}
	}
	if (was_black)
		repair_erase(tree, parent, child, update);
}

struct hf_rb_node *hf_rb_first(const struct hf_rb_tree *tree)
{
	struct hf_rb_node *node = tree->root;

	while (node && node->left)
		node = node->left;
	return node;
}

struct hf_rb_node *hf_rb_last(const struct hf_rb_tree *tree)
{
	struct hf_rb_node *node = tree->root;

	while (node && node->right)
		node = node->right;
	return node;
}

static struct hf_rb_node *step(const struct hf_rb_node *node, enum side side)
{
	const struct hf_rb_node *from = node;
	struct hf_rb_node *to = side == LEFT ? node->left : node->right;

	if (to) {
		struct hf_rb_node *far;

		while ((far = side == LEFT ? to->right : to->left))
			to = far;
		return to;
	}
	for (to = hf_rb_parent(from); to && from == (side == LEFT ? to->left : to->right);
	     to = hf_rb_parent(to))
		from = to;
	return to;
}

struct hf_rb_node *hf_rb_next(const struct hf_rb_node *node)
{
	return step(node, RIGHT);
}

struct hf_rb_node *hf_rb_prev(const struct hf_rb_node *node)
{
	return step(node, LEFT);
}

/* Returns the black height or -1. A red-black tree of 2^60 nodes is less than 128 deep. */
static int check_node(const struct hf_rb_node *node, const struct hf_rb_node *parent, int64_t *n, int depth)
{
	int left, right;

	if (!node)
		return 0;
	if (depth > 128 || hf_rb_parent(node) != parent)
		return -1;
	if (!hf_rb_is_black(node) && (is_red(node->left) || is_red(node->right)))
		return -1;
	left = check_node(node->left, node, n, depth + 1);
	right = check_node(node->right, node, n, depth + 1);
	if (left < 0 || left != right)
		return -1;
	++*n;
	return left + (hf_rb_is_black(node) ? 1 : 0);
}

int64_t hf_rb_check(const struct hf_rb_tree *tree)
{
	int64_t n = 0;

	if (tree->root && !hf_rb_is_black(tree->root))
		return -1;
	return check_node(tree->root, NULL, &n, 0) < 0 ? -1 : n;
}
