/*
 * Which lock or waiter is the next one of a list?
 *
 * A cursor holds no pointer. It holds the position of the last element in an
 * order that no change disturbs: files, owners and waiters by their order of
 * creation, the locks of a file by (mode, start, id), the locks of an owner by
 * (file, start). Each call searches the position in O(log n) and returns the
 * element after it. The waiters of one file are searched in O(n).
 */
#include "lock/internal.h"

static struct hf_lock_file *file_of(struct hf_rb_node *node)
{
	return node ? hf_rb_entry(node, struct hf_lock_file, by_id) : NULL;
}

static struct hf_lock_file *waiting_file_of(struct hf_rb_node *node)
{
	return node ? hf_rb_entry(node, struct hf_lock_file, in_waiting) : NULL;
}

/* The first file of that id or later. */
static struct hf_lock_file *file_from(const struct hf_rb_tree *tree, uint64_t id,
				      struct hf_lock_file *(*file_at)(struct hf_rb_node *node))
{
	struct hf_rb_node *node = tree->root;
	struct hf_lock_file *found = NULL;

	while (node) {
		struct hf_lock_file *file = file_at(node);

		if (file->id >= id)
			found = file;
		node = file->id >= id ? node->left : node->right;
	}
	return found;
}

static struct hf_lock_file *scope_file(const struct hf_locks *locks, const struct hf_lock_scope *scope)
{
	const struct hf_lock_target *who = scope->file;
	uint64_t hash = hf_lock_file_hash(locks, who->handle);

	return hf_lock_file_find(locks, hash, who->handle);
}

/* LOCKS OF A FILE */

static struct hf_lock *lock_behind(const struct hf_tree *tree, const struct hf_lock_cursor *cursor)
{
	struct hf_spot spot =
		cursor->begun ? hf_tree_behind(tree, cursor->start, cursor->id) : hf_tree_begin(tree);

	while (hf_spot_lock(&spot) && hf_spot_lock(&spot)->flags & HF_LOCK_GHOST)
		hf_spot_next(&spot);
	return hf_spot_lock(&spot);
}

static struct hf_lock *next_in_file(const struct hf_lock_file *file, struct hf_lock_cursor *cursor)
{
	if (file->id != cursor->file)
		*cursor = (struct hf_lock_cursor){ .file = file->id };
	for (; cursor->mode < HF_ARRAY_SIZE(file->held); cursor->mode++, cursor->begun = false) {
		struct hf_lock *lock = lock_behind(&file->held[cursor->mode], cursor);

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
	struct hf_lock_file *file = file_from(&locks->by_id, cursor->file, file_of);

	for (; file; file = file_of(hf_rb_next(&file->by_id))) {
		struct hf_lock *lock = next_in_file(file, cursor);

		if (lock)
			return lock;
	}
	return NULL;
}

/* LOCKS OF A CLIENT */

static struct hf_owner *owner_from(const struct hf_lock_client *client, uint64_t seq)
{
	struct hf_rb_node *node = client->owners.root;
	struct hf_owner *found = NULL;

	while (node) {
		struct hf_owner *owner = hf_rb_entry(node, struct hf_owner, in_client);

		if (owner->seq >= seq)
			found = owner;
		node = owner->seq >= seq ? node->left : node->right;
	}
	return found;
}

static struct hf_holding *holding_from(const struct hf_owner *owner, uint64_t file)
{
	struct hf_rb_node *node = owner->holdings.root;
	struct hf_holding *found = NULL;

	while (node) {
		struct hf_holding *holding = hf_rb_entry(node, struct hf_holding, in_owner);

		if (holding->file->id >= file)
			found = holding;
		node = holding->file->id >= file ? node->left : node->right;
	}
	return found;
}

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
	struct hf_owner *owner = owner_from(client, cursor->owner);
	struct hf_rb_node *node;

	while (owner) {
		uint64_t file = owner->seq == cursor->owner ? cursor->file : 0;
		struct hf_holding *holding = holding_from(owner, file);

		while (holding) {
			struct hf_lock *lock = next_in_holding(holding, cursor);

			if (lock)
				return lock;
			node = hf_rb_next(&holding->in_owner);
			holding = node ? hf_rb_entry(node, struct hf_holding, in_owner) : NULL;
		}
		node = hf_rb_next(&owner->in_client);
		owner = node ? hf_rb_entry(node, struct hf_owner, in_client) : NULL;
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
		file = scope_file(locks, scope);
		lock = file ? next_in_file(file, cursor) : NULL;
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

		for (unsigned int i = 0; i < HF_ARRAY_SIZE(file->held); i++) {
			struct hf_spot spot = hf_tree_begin(&file->held[i]);

			for (; hf_spot_lock(&spot); hf_spot_next(&spot)) {
				hf_view_lock(hf_spot_lock(&spot), &view);
				hf_spot_lock(&spot)->tag = fn(context, &view);
			}
		}
	}
	locks->in_event = false;
}

/* WAITERS */

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
	struct hf_lock_file *file = file_from(&locks->waiting, cursor->file, waiting_file_of);

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
	struct hf_rb_node *node = client->waiters.root;
	struct hf_waiter *found = NULL;

	while (node) {
		struct hf_waiter *waiter = hf_rb_entry(node, struct hf_waiter, by_id);

		if (waiter->id > cursor->id)
			found = waiter;
		node = waiter->id > cursor->id ? node->left : node->right;
	}
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
		file = scope_file(locks, scope);
		waiter = file ? next_waiter_in_file(file, cursor) : NULL;
	} else {
		waiter = next_waiter_of_all(locks, cursor);
	}
	if (waiter)
		hf_view_waiter(waiter, viewp);
	return waiter;
}
