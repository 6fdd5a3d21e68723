/*
 * The locks of one holding, in a tree by start.
 *
 * Invariants: the ranges are disjoint; two that touch differ in something that
 * forbids merging (hf_own_is_mergeable); each lock is also in held[mode] of the
 * file, and in locks->unreclaimed if it is that; the counters of file, client
 * and engine follow. Everything that changes a lock goes through put() and
 * take_out(), which keep all that and tell the store. A lock never changes in
 * place: what is different is another record.
 */
#include "lock/internal.h"

static struct hf_lock *lock_of(struct hf_rb_node *node)
{
	return node ? hf_rb_entry(node, struct hf_lock, in_own) : NULL;
}

/* LOOK */

struct hf_lock *hf_own_from(const struct hf_holding *holding, uint64_t pos)
{
	struct hf_rb_node *node = holding->own.root;
	struct hf_lock *found = NULL;

	/* Disjoint ranges are in order of their ends, too. */
	while (node) {
		struct hf_lock *lock = lock_of(node);

		if (lock->end >= pos) {
			found = lock;
			node = node->left;
		} else {
			node = node->right;
		}
	}
	return found;
}

struct hf_lock *hf_own_next(const struct hf_lock *lock)
{
	return lock_of(hf_rb_next(&lock->in_own));
}

void hf_own_attrs(const struct hf_lock *lock, struct hf_lock_attrs *attrsp)
{
	*attrsp = (struct hf_lock_attrs){
		.state = lock->state,
		.epoch = lock->epoch,
		.mode = lock->mode,
		.flags = lock->flags,
	};
	if (lock->flags & (HF_LOCK_PROVISIONAL | HF_LOCK_KEPT))
		attrsp->grant = lock->grant;
	if (lock->flags & HF_LOCK_PROVISIONAL && lock->prior_mode) {
		attrsp->prior_mode = lock->prior_mode;
		attrsp->prior_flags = lock->prior_flags;
		attrsp->prior_state = lock->prior_state;
		attrsp->prior_epoch = lock->prior_epoch;
	}
}

bool hf_own_is_mergeable(const struct hf_lock_attrs *a, const struct hf_lock_attrs *b)
{
	return a->mode == b->mode && a->state == b->state && a->flags == b->flags && a->grant == b->grant &&
	       a->prior_mode == b->prior_mode && a->prior_state == b->prior_state &&
	       a->prior_flags == b->prior_flags && a->prior_epoch == b->prior_epoch &&
	       !(a->flags & HF_LOCK_UNRECLAIMED);
}

bool hf_own_covers(const struct hf_holding *holding, struct hf_range range, enum hf_lock_mode mode)
{
	uint64_t pos = range.start;

	for (struct hf_lock *lock = hf_own_from(holding, pos); lock; lock = hf_own_next(lock)) {
		if (lock->start > pos || lock->mode != mode)
			return false;
		if (lock->end >= range.end)
			return true;
		pos = lock->end + 1;
	}
	return false;
}

bool hf_own_conflicts(const struct hf_holding *holding, struct hf_range range, enum hf_lock_mode mode)
{
	if (mode == HF_LOCK_SHARED && !holding->n_exclusive)
		return false;
	for (struct hf_lock *lock = hf_own_from(holding, range.start); lock && lock->start <= range.end;
	     lock = hf_own_next(lock)) {
		if (hf_modes_conflict(lock->mode, mode))
			return true;
	}
	return false;
}

/* CHANGE */

/* Adds @n, 1 or -1, wherever a lock with @flags is counted. */
static void count(struct hf_locks *locks, const struct hf_lock *lock, int n)
{
	struct hf_holding *holding = lock->holding;
	struct hf_lock_client *client = holding->owner->client;
	uint32_t n32 = (uint32_t)n;
	uint64_t n64 = (uint64_t)(int64_t)n;

	holding->n_locks += n32;
	if (lock->mode == HF_LOCK_EXCLUSIVE)
		holding->n_exclusive += n32;
	if (lock->flags & HF_LOCK_GHOST) {
		holding->file->n_ghosts += n32;
		client->n_ghosts += n32;
		locks->n.ghosts += n64;
		return;
	}
	holding->file->n_locks += n32;
	client->n_locks += n32;
	locks->n.locks += n64;
	if (lock->flags & HF_LOCK_UNRECLAIMED) {
		client->n_unreclaimed += n32;
		locks->n.unreclaimed += n64;
	}
}

static void insert_own(struct hf_lock *lock)
{
	struct hf_rb_tree *tree = &lock->holding->own;
	struct hf_rb_node **link = &tree->root, *parent = NULL;

	while (*link) {
		parent = *link;
		link = lock->start < lock_of(parent)->start ? &parent->left : &parent->right;
	}
	hf_rb_insert(tree, &lock->in_own, parent, link, NULL);
}

static struct hf_lock *put_quietly(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range,
				   const struct hf_lock_attrs *attrs)
{
	struct hf_lock *lock = hf_pool_take(&locks->lock_pool);

	lock->start = range.start;
	lock->end = range.end;
	lock->holding = holding;
	lock->id = ++locks->last_lock;
	lock->state = attrs->state;
	lock->epoch = attrs->epoch;
	lock->mode = attrs->mode;
	lock->flags = attrs->flags;
	lock->prior_mode = attrs->prior_mode;
	lock->prior_flags = attrs->prior_flags;
	if (attrs->flags & HF_LOCK_UNRECLAIMED) {
		hf_list_push_back(&locks->unreclaimed, &lock->unreclaimed);
	} else {
		lock->grant = attrs->grant;
		lock->prior_state = attrs->prior_state;
		lock->prior_epoch = attrs->prior_epoch;
	}
	insert_own(lock);
	hf_tree_insert(holding->file, lock);
	count(locks, lock, 1);
	return lock;
}

static void put(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range,
		const struct hf_lock_attrs *attrs)
{
	hf_emit_added(locks, put_quietly(locks, holding, range, attrs));
}

static void take_out(struct hf_locks *locks, struct hf_lock *lock)
{
	count(locks, lock, -1);
	if (lock->flags & HF_LOCK_UNRECLAIMED)
		hf_link_remove(&lock->unreclaimed);
	hf_tree_erase(lock->holding->file, lock);
	hf_rb_erase(&lock->holding->own, &lock->in_own, NULL);
	hf_emit_removed(locks, lock);
	hf_pool_give(&locks->lock_pool, lock);
}

void hf_own_put(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range,
		const struct hf_lock_attrs *attrs)
{
	put_quietly(locks, holding, range, attrs);
}

void hf_own_remove(struct hf_locks *locks, struct hf_lock *lock)
{
	hf_waiters_touch(locks, lock->holding->file, hf_lock_range(lock));
	take_out(locks, lock);
}

void hf_own_haunt(struct hf_locks *locks, struct hf_lock *lock)
{
	assert(lock->flags & HF_LOCK_UNRECLAIMED);
	count(locks, lock, -1);
	lock->flags |= HF_LOCK_GHOST;
	count(locks, lock, 1);
}

/* What a replacement leaves of the locks in its way. */
struct rest {
	struct hf_range range; /* of the new lock, grown by those that merge */
	struct hf_range left;  /* empty if start > end */
	struct hf_range right;
	struct hf_lock_attrs left_attrs;
	struct hf_lock_attrs right_attrs;
};

static const struct hf_range nothing = { 1, 0 };

static bool is_empty(struct hf_range range)
{
	return range.start > range.end;
}

/* The attrs are set with their ranges: most requests meet nothing. */
static void begin_rest(struct rest *rest, struct hf_range range)
{
	rest->range = range;
	rest->left = nothing;
	rest->right = nothing;
}

/* The range in which locks matter for a replacement: with merging also those that touch it. */
static struct hf_range neighbourhood(struct hf_range range, const struct hf_lock_attrs *attrs)
{
	if (attrs && range.start > 0)
		range.start--;
	if (attrs && range.end < HF_RANGE_EOF)
		range.end++;
	return range;
}

/* Notes what remains of @lock. False: it is in nobody's way and stays. */
static bool cut(struct rest *rest, const struct hf_lock *lock, struct hf_range range,
		const struct hf_lock_attrs *attrs)
{
	struct hf_lock_attrs its;

	hf_own_attrs(lock, &its);
	if (attrs && hf_own_is_mergeable(attrs, &its)) {
		rest->range.start = HF_MIN(rest->range.start, lock->start);
		rest->range.end = HF_MAX(rest->range.end, lock->end);
		return true;
	}
	if (!hf_range_overlaps(hf_lock_range(lock), range))
		return false;
	if (lock->start < range.start) {
		rest->left = (struct hf_range){ lock->start, range.start - 1 };
		rest->left_attrs = its;
	}
	if (lock->end > range.end) {
		rest->right = (struct hf_range){ range.end + 1, lock->end };
		rest->right_attrs = its;
	}
	return true;
}

int hf_own_growth(const struct hf_holding *holding, struct hf_range range, const struct hf_lock_attrs *attrs)
{
	struct hf_range around = neighbourhood(range, attrs);
	struct rest rest;
	int growth = attrs ? 1 : 0;

	begin_rest(&rest, range);
	for (struct hf_lock *lock = hf_own_from(holding, around.start); lock && lock->start <= around.end;
	     lock = hf_own_next(lock)) {
		if (cut(&rest, lock, range, attrs))
			growth--;
	}
	return growth + !is_empty(rest.left) + !is_empty(rest.right);
}

static void touch_weakened(struct hf_locks *locks, const struct hf_lock *lock, struct hf_range range,
			   const struct hf_lock_attrs *attrs)
{
	struct hf_range part = { HF_MAX(lock->start, range.start), HF_MIN(lock->end, range.end) };

	if (!is_empty(part) && (!attrs || attrs->mode < lock->mode))
		hf_waiters_touch(locks, lock->holding->file, part);
}

void hf_own_replace(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range,
		    const struct hf_lock_attrs *attrs)
{
	struct hf_range around = neighbourhood(range, attrs);
	struct rest rest;
	struct hf_lock *lock = hf_own_from(holding, around.start);

	begin_rest(&rest, range);
	while (lock && lock->start <= around.end) {
		struct hf_lock *next = hf_own_next(lock);

		if (cut(&rest, lock, range, attrs)) {
			touch_weakened(locks, lock, range, attrs);
			take_out(locks, lock);
		}
		lock = next;
	}
	if (!is_empty(rest.left))
		put(locks, holding, rest.left, &rest.left_attrs);
	if (attrs)
		put(locks, holding, rest.range, attrs);
	if (!is_empty(rest.right))
		put(locks, holding, rest.right, &rest.right_attrs);
}
