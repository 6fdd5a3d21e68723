/*
 * The queue of a file: in which order do its waiters wait, and which overlap a range?
 *
 * Invariants: the queue is in the order of waiter->order. A waiter is blocked by
 * conflicting locks of other owners and by conflicting waiters of other owners
 * before it. Outside grace every queued waiter is blocked, with three exceptions:
 * memory for its grant was missing, grants are paused, or a lock outside blocks it.
 * So that this holds, each function that removes something that may block calls
 * hf_waiters_touch(), and each operation ends with hf_serve_waiters().
 *
 * Each waiter is also in waiting[mode], an interval tree by (start, id). A release
 * and a request look only at the waiters that overlap their range.
 */
#include "lock/internal.h"

static struct hf_waiter *waiter_of(struct hf_rb_node *node)
{
	return node ? hf_rb_entry(node, struct hf_waiter, in_file) : NULL;
}

static struct hf_waiter *queued(struct hf_link *link)
{
	return hf_list_entry(link, struct hf_waiter, in_queue);
}

/* INTERVALS */

bool hf_waiters_update(struct hf_rb_node *node)
{
	struct hf_waiter *waiter = waiter_of(node);
	uint64_t max = waiter->end + 1;
	bool is_changed;

	if (node->left)
		max = HF_MAX(max, waiter_of(node->left)->max_end);
	if (node->right)
		max = HF_MAX(max, waiter_of(node->right)->max_end);
	is_changed = max != waiter->max_end;
	waiter->max_end = max;
	return is_changed;
}

/* The leftmost waiter in the subtree of @node that overlaps @range. */
static struct hf_waiter *first_in(struct hf_rb_node *node, struct hf_range range)
{
	while (node && waiter_of(node)->max_end > range.start) {
		struct hf_waiter *waiter = waiter_of(node);

		if (node->left && waiter_of(node->left)->max_end > range.start)
			node = node->left;
		else if (waiter->start > range.end)
			return NULL;
		else if (waiter->end >= range.start)
			return waiter;
		else
			node = node->right;
	}
	return NULL;
}

static struct hf_waiter *next_in(const struct hf_waiter *waiter, struct hf_range range)
{
	const struct hf_rb_node *node = &waiter->in_file;

	for (;;) {
		struct hf_waiter *found = first_in(node->right, range);
		const struct hf_rb_node *child;

		if (found)
			return found;
		do {
			child = node;
			node = hf_rb_parent(node);
			if (!node)
				return NULL;
		} while (child == node->right);
		found = hf_rb_entry((uintptr_t)node, struct hf_waiter, in_file);
		if (found->start > range.end)
			return NULL;
		if (found->end >= range.start)
			return found;
	}
}

struct hf_waiter *hf_waiters_first_in(const struct hf_rb_tree *tree, struct hf_range range)
{
	return first_in(tree->root, range);
}

struct hf_waiter *hf_waiters_next_in(const struct hf_waiter *waiter, struct hf_range range)
{
	return next_in(waiter, range);
}

static void insert_interval(struct hf_rb_tree *tree, struct hf_waiter *waiter)
{
	struct hf_rb_node **link = &tree->root, *parent = NULL;

	/* The new waiter has the largest id: it goes behind those with the same start. */
	while (*link) {
		parent = *link;
		link = waiter->start < waiter_of(parent)->start ? &parent->left : &parent->right;
	}
	hf_rb_insert(tree, &waiter->in_file, parent, link, hf_waiters_update);
}

static struct hf_waiter *conflict_in(struct hf_locks *locks, const struct hf_rb_tree *tree,
				     const struct hf_holding *me, struct hf_range range, uint64_t order)
{
	struct hf_waiter *waiter = first_in(tree->root, range);

	for (; waiter && (waiter->holding == me || waiter->order >= order); locks->n_steps++)
		waiter = next_in(waiter, range);
	return waiter;
}

struct hf_waiter *hf_waiters_conflict(struct hf_locks *locks, const struct hf_lock_file *file,
				      const struct hf_holding *me, struct hf_range range,
				      enum hf_lock_mode mode, uint64_t order)
{
	struct hf_waiter *waiter;

	waiter = conflict_in(locks, &file->waiting[hf_mode_index(HF_LOCK_EXCLUSIVE)], me, range, order);
	if (!waiter && mode == HF_LOCK_EXCLUSIVE)
		waiter = conflict_in(locks, &file->waiting[hf_mode_index(HF_LOCK_SHARED)], me, range, order);
	return waiter;
}

struct hf_waiter *hf_waiters_find(const struct hf_list *list, struct hf_range range, enum hf_lock_mode mode)
{
	hf_list_for_each(pos, list) {
		struct hf_waiter *waiter = hf_list_entry(pos, struct hf_waiter, in_holding);

		if (waiter->mode == mode && hf_range_equal(hf_waiter_range(waiter), range))
			return waiter;
	}
	return NULL;
}

/* QUEUE */

static void renumber(struct hf_lock_file *file)
{
	uint64_t order = 0;

	hf_list_for_each(pos, &file->queue)
		queued(pos)->order = ++order;
}

/* Moves the waiters from @from up to @waiter that the deadlock walk has reached behind @waiter. They stay in
 * order. */
static void move_behind(struct hf_locks *locks, struct hf_waiter *waiter, struct hf_waiter *from)
{
	struct hf_link *at = waiter->in_queue.next;
	struct hf_link *pos = &from->in_queue;

	while (pos != &waiter->in_queue) {
		struct hf_link *next = pos->next;

		if (hf_deadlock_reached(locks, queued(pos))) {
			hf_link_remove(pos);
			hf_link_insert_before(at, pos);
		}
		pos = next;
	}
}

static void enqueue(struct hf_locks *locks, struct hf_lock_file *file, struct hf_waiter *waiter,
		    struct hf_waiter *after, struct hf_waiter *before)
{
	struct hf_waiter *last;

	if (!before) {
		last = hf_list_is_empty(&file->queue) ? NULL : queued(hf_list_last(&file->queue));
		waiter->order = last ? last->order + 1 : 1;
		hf_list_push_back(&file->queue, &waiter->in_queue);
		return;
	}
	/*
	 * A reached waiter may move behind waiters that are not reached. They do not conflict: a waiter that
	 * stands behind a reached waiter and conflicts with it waits for it, and so is reached itself.
	 */
	if (!after || after->order < before->order) {
		hf_link_insert_before(&before->in_queue, &waiter->in_queue);
	} else {
		hf_link_insert_before(after->in_queue.next, &waiter->in_queue);
		move_behind(locks, waiter, before);
	}
	renumber(file);
}

static void insert_file_by_id(struct hf_locks *locks, struct hf_lock_file *file)
{
	struct hf_rb_node **link = &locks->waiting.root, *parent = NULL;

	while (*link) {
		parent = *link;
		link = file->id < hf_rb_entry(parent, struct hf_lock_file, in_waiting)->id ? &parent->left
											   : &parent->right;
	}
	hf_rb_insert(&locks->waiting, &file->in_waiting, parent, link, NULL);
	locks->n_waiting++;
}

static void insert(struct hf_locks *locks, struct hf_waiter *waiter)
{
	struct hf_holding *holding = waiter->holding;
	struct hf_lock_file *file = holding->file;

	insert_interval(&file->waiting[hf_mode_index(waiter->mode)], waiter);
	hf_rb_append(&holding->owner->client->waiters,
		     &waiter->by_id); /* a waiter that is put back has a new id */
	holding->owner->client->n_waiters++;
	hf_list_push_back(&holding->waiters, &waiter->in_holding);
	if (file->n_waiters++ == 0)
		insert_file_by_id(locks, file);
	hf_crowd_note(locks, file);
	holding->owner->n_waiters++;
	locks->n.waiters++;
}

void hf_waiters_insert(struct hf_locks *locks, struct hf_waiter *waiter, struct hf_waiter *after,
		       struct hf_waiter *before)
{
	enqueue(locks, waiter->holding->file, waiter, after, before);
	insert(locks, waiter);
}

void hf_waiters_insert_first(struct hf_locks *locks, struct hf_waiter *waiter)
{
	struct hf_lock_file *file = waiter->holding->file;

	hf_list_push_front(&file->queue, &waiter->in_queue);
	renumber(file);
	insert(locks, waiter);
}

void hf_waiters_remove(struct hf_locks *locks, struct hf_waiter *waiter)
{
	struct hf_holding *holding = waiter->holding;
	struct hf_lock_file *file = holding->file;

	assert(!waiter->is_granted);
	hf_link_remove(&waiter->in_queue);
	hf_link_remove(&waiter->in_holding);
	hf_rb_erase(&file->waiting[hf_mode_index(waiter->mode)], &waiter->in_file, hf_waiters_update);
	hf_rb_erase(&holding->owner->client->waiters, &waiter->by_id, NULL);
	holding->owner->client->n_waiters--;
	if (--file->n_waiters == 0) {
		hf_rb_erase(&locks->waiting, &file->in_waiting, NULL);
		locks->n_waiting--;
	}
	hf_crowd_note(locks, file);
	holding->owner->n_waiters--;
	locks->n.waiters--;
}

void hf_waiters_end(struct hf_locks *locks, struct hf_waiter *waiter, enum hf_lock_end why)
{
	hf_waiters_remove(locks, waiter);
	hf_waiters_touch(locks, waiter->holding->file, hf_waiter_range(waiter));
	hf_emit_gone(locks, waiter, why);
	waiter->holding->owner->client->group->n_waiters--;
	hf_room_use(locks, waiter->holding->owner->client, -(int64_t)HF_COST_WAITER);
	hf_pool_give(&locks->waiter_pool, waiter);
}

/* TOUCH */

void hf_waiters_touch(struct hf_locks *locks, struct hf_lock_file *file, struct hf_range range)
{
	if (!file->n_waiters && !locks->outside)
		return;
	if (hf_link_is_linked(&file->in_dirty)) {
		file->dirty_range.start = HF_MIN(file->dirty_range.start, range.start);
		file->dirty_range.end = HF_MAX(file->dirty_range.end, range.end);
		return;
	}
	file->dirty_range = range;
	hf_list_push_back(&locks->dirty, &file->in_dirty);
}
