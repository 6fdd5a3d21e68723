/*
 * The locks of a file, whoever holds them: for each mode an interval tree by
 * (start, id). Each node knows of its subtree
 *
 *	max_end, max_holder  the largest end and a holding (one of several) that has it
 *	other_end            the largest end among all other holdings' locks
 *
 * so that "the largest end of a lock that is not mine" is one comparison, and a
 * foreign lock that overlaps a range is found in O(log n) even if a million
 * locks of my own overlap it.
 *
 * Why the search is right: let the left subtree have a foreign lock that ends
 * at or behind the range's start. If that lock begins at or before the range's
 * end, it overlaps. If not, everything further right begins even later, so an
 * overlap can only be in that left subtree. Either way the search may forget
 * the rest.
 */
#include "lock/internal.h"

static struct hf_lock *lock_of(struct hf_rb_node *node)
{
	return hf_rb_entry(node, struct hf_lock, in_file);
}

/* Adds what is known of a subtree to (max, holder, other). */
static inline void fold(uint64_t *max, struct hf_holding **holder, uint64_t *rest, uint64_t max2,
			struct hf_holding *holder2, uint64_t rest2)
{
	if (*holder == holder2) {
		*max = HF_MAX(*max, max2);
		*rest = HF_MAX(*rest, rest2);
	} else if (*max >= max2) {
		*rest = HF_MAX(*rest, max2);
	} else {
		*rest = HF_MAX(*max, rest2);
		*max = max2;
		*holder = holder2;
	}
}

bool hf_tree_update(struct hf_rb_node *node)
{
	struct hf_lock *lock = lock_of(node);
	uint64_t max = lock->end + 1, rest = 0;
	struct hf_holding *holder = lock->holding;
	bool is_changed;

	if (node->left) {
		const struct hf_lock *left = lock_of(node->left);

		fold(&max, &holder, &rest, left->max_end, left->max_holder, left->other_end);
	}
	if (node->right) {
		const struct hf_lock *right = lock_of(node->right);

		fold(&max, &holder, &rest, right->max_end, right->max_holder, right->other_end);
	}
	is_changed = max != lock->max_end || holder != lock->max_holder || rest != lock->other_end;
	lock->max_end = max;
	lock->max_holder = holder;
	lock->other_end = rest;
	return is_changed;
}

static bool is_before(const struct hf_lock *a, const struct hf_lock *b)
{
	return a->start != b->start ? a->start < b->start : a->id < b->id;
}

void hf_tree_insert(struct hf_file *file, struct hf_lock *lock)
{
	struct hf_rb_tree *tree = &file->held[hf_mode_index(lock->mode)];
	struct hf_rb_node **link = &tree->root, *parent = NULL;

	while (*link) {
		parent = *link;
		link = is_before(lock, lock_of(parent)) ? &parent->left : &parent->right;
	}
	hf_rb_insert(tree, &lock->in_file, parent, link, hf_tree_update);
}

void hf_tree_erase(struct hf_file *file, struct hf_lock *lock)
{
	hf_rb_erase(&file->held[hf_mode_index(lock->mode)], &lock->in_file, hf_tree_update);
}

/* Does a foreign lock in this subtree end at @start or behind? Ends are kept + 1. */
static inline bool reaches(struct hf_rb_node *node, const struct hf_holding *me, uint64_t start)
{
	const struct hf_lock *lock = lock_of(node);

	return (lock->max_holder != me ? lock->max_end : lock->other_end) > start;
}

static struct hf_lock *find_foreign(const struct hf_rb_tree *tree, const struct hf_holding *me,
				    struct hf_range range)
{
	struct hf_rb_node *node = tree->root;

	if (!node || !reaches(node, me, range.start))
		return NULL;
	while (node) {
		struct hf_lock *lock = lock_of(node);

		__builtin_prefetch(node->right);
		if (node->left && reaches(node->left, me, range.start)) {
			node = node->left;
			continue;
		}
		if (lock->start > range.end)
			return NULL;
		if (lock->end >= range.start && lock->holding != me)
			return lock;
		node = node->right;
		if (node && !reaches(node, me, range.start))
			return NULL;
	}
	return NULL;
}

struct hf_lock *hf_tree_from(const struct hf_file *file, uint64_t pos, enum hf_lock_mode mode)
{
	return find_foreign(&file->held[hf_mode_index(mode)], NULL, (struct hf_range){ pos, HF_RANGE_EOF });
}

struct hf_lock *hf_tree_conflict(const struct hf_file *file, const struct hf_holding *me,
				 struct hf_range range, enum hf_lock_mode mode)
{
	struct hf_lock *lock;

	lock = find_foreign(&file->held[hf_mode_index(HF_LOCK_EXCLUSIVE)], me, range);
	if (!lock && mode == HF_LOCK_EXCLUSIVE)
		lock = find_foreign(&file->held[hf_mode_index(HF_LOCK_SHARED)], me, range);
	return lock;
}
