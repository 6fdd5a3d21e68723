/*
 * Which lock or waiter is the next one of a list?
 *
 * A cursor holds no pointer. It holds the position of the last element in an
 * order that no change disturbs: files, owners and waiters by their order of
 * creation, the locks of a file by (mode, start, id), the locks of an owner by
 * (file, start). Each call searches the position in O(log n) and returns the
 * element after it. The waiters of one file are searched in O(n).
 *
 * hf_lock_tag_all*() visit everything at once, without a cursor: for a store that is
 * written anew.
 */
#include "lock/internal.h"

/*
 * The first node of @tree whose key is @key or larger. Every order that a cursor
 * follows through files, owners, holdings or waiters is such a tree.
 */
static struct hf_rb_node *first_from(const struct hf_rb_tree *tree, uint64_t key,
				     uint64_t (*key_of)(struct hf_rb_node *node))
{
	struct hf_rb_node *node = tree->root, *found = NULL;

	while (node) {
		bool is_behind = key_of(node) >= key;

		if (is_behind)
			found = node;
		node = is_behind ? node->left : node->right;
	}
	return found;
}

static struct hf_lock_file *file_of(struct hf_rb_node *node)
{
	return node ? hf_rb_entry(node, struct hf_lock_file, by_id) : NULL;
}

static struct hf_lock_file *waiting_file_of(struct hf_rb_node *node)
{
	return node ? hf_rb_entry(node, struct hf_lock_file, in_waiting) : NULL;
}

static struct hf_owner *owner_of(struct hf_rb_node *node)
{
	return node ? hf_rb_entry(node, struct hf_owner, in_client) : NULL;
}

static struct hf_holding *holding_of(struct hf_rb_node *node)
{
	return node ? hf_rb_entry(node, struct hf_holding, in_owner) : NULL;
}

static struct hf_waiter *waiter_of(struct hf_rb_node *node)
{
	return node ? hf_rb_entry(node, struct hf_waiter, by_id) : NULL;
}

static uint64_t file_key(struct hf_rb_node *node)
{
	return file_of(node)->id;
}

static uint64_t waiting_file_key(struct hf_rb_node *node)
{
	return waiting_file_of(node)->id;
}

static uint64_t owner_key(struct hf_rb_node *node)
{
	return owner_of(node)->seq;
}

static uint64_t holding_key(struct hf_rb_node *node)
{
	return holding_of(node)->file->id;
}

static uint64_t waiter_key(struct hf_rb_node *node)
{
	return waiter_of(node)->id;
}

/* LOCKS OF A FILE */

static struct hf_spot spot_behind(const struct hf_tree *tree, const struct hf_lock_cursor *cursor,
				  const struct hf_range *range)
{
	if (cursor->begun)
		return hf_tree_behind(tree, cursor->start, cursor->id);
	return range ? hf_tree_first(tree, NULL, *range) : hf_tree_begin(tree);
}

static bool is_in_scope(const struct hf_lock *lock, const struct hf_lock_scope *scope)
{
	return (scope->with_ghosts || !(lock->flags & HF_LOCK_GHOST)) &&
	       (!scope->range || lock->end >= scope->range->start);
}

static struct hf_lock *lock_behind(const struct hf_tree *tree, const struct hf_lock_cursor *cursor,
				   const struct hf_lock_scope *scope)
{
	struct hf_spot spot = spot_behind(tree, cursor, scope->range);
	struct hf_lock *lock;

	while ((lock = hf_spot_lock(&spot)) && !is_in_scope(lock, scope))
		hf_spot_next(&spot);
	return lock && scope->range && lock->start > scope->range->end ? NULL : lock;
}

static struct hf_lock *next_in_file(const struct hf_lock_file *file, struct hf_lock_cursor *cursor,
				    const struct hf_lock_scope *scope)
{
	if (file->id != cursor->file)
		*cursor = (struct hf_lock_cursor){ .file = file->id };
	for (; cursor->mode < HF_ARRAY_SIZE(file->trees); cursor->mode++, cursor->begun = false) {
		struct hf_lock *lock = lock_behind(&file->trees[cursor->mode], cursor, scope);

		if (!lock)
			continue;
		cursor->begun = true;
		cursor->start = lock->start;
		cursor->id = lock->id;
		return lock;
	}
	return NULL;
}

static struct hf_lock *next_of_all(const struct hf_locks *locks, struct hf_lock_cursor *cursor)
{
	struct hf_lock_file *file = file_of(first_from(&locks->by_id, cursor->file, file_key));

	for (; file; file = file_of(hf_rb_next(&file->by_id))) {
		struct hf_lock *lock = next_in_file(file, cursor, &(struct hf_lock_scope){ 0 });

		if (lock)
			return lock;
	}
	return NULL;
}

/* LOCKS OF A CLIENT */

static struct hf_lock *next_in_holding(const struct hf_holding *holding, struct hf_lock_cursor *cursor)
{
	struct hf_spot spot;
	struct hf_lock *lock;

	if (holding->owner->seq != cursor->owner || holding->file->id != cursor->file)
		*cursor = (struct hf_lock_cursor){ .owner = holding->owner->seq, .file = holding->file->id };
	spot = hf_holding_from(holding, cursor->begun ? cursor->start : 0);
	while ((lock = hf_spot_lock(&spot)) &&
	       (lock->flags & HF_LOCK_GHOST || (cursor->begun && lock->start <= cursor->start)))
		hf_spot_next(&spot);
	if (!lock)
		return NULL;
	cursor->begun = true;
	cursor->start = lock->start;
	return lock;
}

static struct hf_lock *next_of_client(const struct hf_lock_client *client, struct hf_lock_cursor *cursor)
{
	struct hf_owner *owner = owner_of(first_from(&client->owners, cursor->owner, owner_key));

	for (; owner; owner = owner_of(hf_rb_next(&owner->in_client))) {
		uint64_t file = owner->seq == cursor->owner ? cursor->file : 0;
		struct hf_holding *holding = holding_of(first_from(&owner->holdings, file, holding_key));

		for (; holding; holding = holding_of(hf_rb_next(&holding->in_owner))) {
			struct hf_lock *lock = next_in_holding(holding, cursor);

			if (lock)
				return lock;
		}
	}
	return NULL;
}

bool hf_lock_next_lock(const struct hf_locks *locks, const struct hf_lock_scope *scope,
		       struct hf_lock_cursor *cursor, struct hf_lock_view *viewp)
{
	struct hf_lock *lock;
	struct hf_lock_file *file;

	if (scope && scope->client) {
		lock = next_of_client(scope->client, cursor);
	} else if (scope && scope->file) {
		file = hf_lock_file_of(locks, scope->file->handle);
		lock = file ? next_in_file(file, cursor, scope) : NULL;
	} else {
		lock = next_of_all(locks, cursor);
	}
	if (lock)
		hf_view_lock(lock, viewp);
	return lock;
}

void hf_lock_tag_all(struct hf_locks *locks, uint64_t (*fn)(void *context, const struct hf_lock_view *lock),
		     void *context)
{
	struct hf_lock_view view;

	locks->in_event = true;
	for (struct hf_rb_node *node = hf_rb_first(&locks->by_id); node; node = hf_rb_next(node)) {
		const struct hf_lock_file *file = file_of(node);

		for (unsigned int i = 0; i < HF_ARRAY_SIZE(file->trees); i++) {
			struct hf_spot spot = hf_tree_begin(&file->trees[i]);

			for (; hf_spot_lock(&spot); hf_spot_next(&spot)) {
				hf_view_lock(hf_spot_lock(&spot), &view);
				hf_spot_lock(&spot)->tag = fn(context, &view);
			}
		}
	}
	locks->in_event = false;
}

/* WAITERS */

static void tag_waiter(struct hf_waiter *waiter,
		       uint64_t (*fn)(void *context, const struct hf_lock_view *waiter), void *context)
{
	struct hf_lock_view view;

	hf_view_waiter(waiter, &view);
	waiter->tag = fn(context, &view);
}

void hf_lock_tag_all_waiters(struct hf_locks *locks,
			     uint64_t (*fn)(void *context, const struct hf_lock_view *waiter), void *context)
{
	locks->in_event = true;
	for (struct hf_rb_node *node = hf_rb_first(&locks->grants); node; node = hf_rb_next(node))
		tag_waiter(hf_rb_entry(node, struct hf_waiter, by_id), fn, context);
	for (struct hf_rb_node *node = hf_rb_first(&locks->waiting); node; node = hf_rb_next(node)) {
		struct hf_lock_file *file = hf_rb_entry(node, struct hf_lock_file, in_waiting);

		hf_list_for_each(pos, &file->queue)
			tag_waiter(hf_list_entry(pos, struct hf_waiter, in_queue), fn, context);
	}
	locks->in_event = false;
}

static struct hf_waiter *next_waiter_in_file(struct hf_lock_file *file, struct hf_lock_cursor *cursor)
{
	struct hf_waiter *found = NULL;

	if (file->id != cursor->file)
		*cursor = (struct hf_lock_cursor){ .file = file->id };
	hf_list_for_each(pos, &file->queue) {
		struct hf_waiter *waiter = hf_list_entry(pos, struct hf_waiter, in_queue);

		if (waiter->id > cursor->id && (!found || waiter->id < found->id))
			found = waiter;
	}
	if (found)
		cursor->id = found->id;
	return found;
}

static struct hf_waiter *next_waiter_of_all(const struct hf_locks *locks, struct hf_lock_cursor *cursor)
{
	struct hf_lock_file *file =
		waiting_file_of(first_from(&locks->waiting, cursor->file, waiting_file_key));

	for (; file; file = waiting_file_of(hf_rb_next(&file->in_waiting))) {
		struct hf_waiter *waiter = next_waiter_in_file(file, cursor);

		if (waiter)
			return waiter;
	}
	return NULL;
}

static struct hf_waiter *next_waiter_of_client(const struct hf_lock_client *client,
					       struct hf_lock_cursor *cursor)
{
	struct hf_waiter *found = waiter_of(first_from(&client->waiters, cursor->id + 1, waiter_key));

	if (found)
		cursor->id = found->id;
	return found;
}

bool hf_lock_next_waiter(const struct hf_locks *locks, const struct hf_lock_scope *scope,
			 struct hf_lock_cursor *cursor, struct hf_lock_view *viewp)
{
	struct hf_waiter *waiter;
	struct hf_lock_file *file;

	if (scope && scope->client) {
		waiter = next_waiter_of_client(scope->client, cursor);
	} else if (scope && scope->file) {
		file = hf_lock_file_of(locks, scope->file->handle);
		waiter = file ? next_waiter_in_file(file, cursor) : NULL;
	} else {
		waiter = next_waiter_of_all(locks, cursor);
	}
	if (waiter)
		hf_view_waiter(waiter, viewp);
	return waiter;
}
