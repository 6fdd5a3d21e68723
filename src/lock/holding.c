/*
 * What does one owner have in one file? The record of a holding, and its locks.
 *
 * A holding exists while it has a lock, a waiter or a grant in flight. It hangs in
 * its owner by the file's id. The owner's first holding is embedded in the owner.
 *
 * Invariants of its locks: the ranges are disjoint; two locks that touch differ in
 * something that forbids merging (hf_attrs_can_merge); each lock is also in
 * trees[mode] of the file, and in locks->unreclaimed if it is unreclaimed; the
 * counters of file, client and engine agree. hf_holding_put() and
 * hf_holding_take_out() preserve these invariants, and every change goes through them.
 * A lock never changes in place: a different lock is another record. The one exception
 * is a restored lock that is held from then on.
 */
#include "lock/internal.h"

#include "base/error.h"

/* RECORD */

static struct hf_holding *holding_of(struct hf_rb_node *node)
{
	return hf_rb_entry(node, struct hf_holding, in_owner);
}

struct hf_holding *hf_holding_find(const struct hf_owner *owner, const struct hf_lock_file *file)
{
	struct hf_rb_node *node = owner->holdings.root;

	if (HF_LIKELY(owner->first.file == file))
		return (struct hf_holding *)(uintptr_t)&owner->first;
	if (owner->newest && file->id >= owner->newest_file)
		return file->id == owner->newest_file ? owner->newest : NULL;
	while (node) {
		struct hf_holding *holding = holding_of(node);

		if (holding->file == file)
			return holding;
		node = file->id < holding->file->id ? node->left : node->right;
	}
	return NULL;
}

static void insert_holding(struct hf_owner *owner, struct hf_holding *holding)
{
	struct hf_rb_node **link = &owner->holdings.root, *parent = NULL;
	uint64_t file = holding->file->id;
	bool is_last = true;

	/* Most files are new, so their holdings come in order: append without a search. */
	if (owner->newest && file > owner->newest_file) {
		parent = &owner->newest->in_owner;
		link = &parent->right;
	}
	while (*link) {
		bool is_before = file < holding_of(*link)->file->id;

		parent = *link;
		link = is_before ? &parent->left : &parent->right;
		is_last = is_last && !is_before;
	}
	hf_rb_insert(&owner->holdings, &holding->in_owner, parent, link, NULL);
	if (is_last) {
		owner->newest = holding;
		owner->newest_file = file;
	}
}

struct hf_holding *hf_holding_make(struct hf_locks *locks, struct hf_owner *owner, struct hf_lock_file *file,
				   uint32_t export)
{
	struct hf_holding *holding = owner->first.file ? hf_pool_take(&locks->holding_pool) : &owner->first;

	*holding = (struct hf_holding){ .owner = owner, .file = file, .export = export, .own.of_one = true };
	hf_list_init(&holding->waiters);
	hf_list_init(&holding->grants);
	insert_holding(owner, holding);
	owner->n_holdings++;
	file->n_holdings++;
	hf_room_use(locks, owner->client, HF_COST_HOLDING);
	return holding;
}

void hf_holding_free_if_empty(struct hf_locks *locks, struct hf_holding *holding)
{
	struct hf_owner *owner = holding->owner;
	struct hf_lock_file *file = holding->file;

	if (holding->own.n || !hf_list_is_empty(&holding->waiters) || !hf_list_is_empty(&holding->grants))
		return;
	if (locks->recent->holding == holding)
		locks->recent->holding = NULL;
	if (owner->newest == holding)
		owner->newest = NULL;
	hf_rb_erase(&owner->holdings, &holding->in_owner, NULL);
	if (holding == &owner->first)
		holding->file = NULL;
	else
		hf_pool_give(&locks->holding_pool, holding);
	owner->n_holdings--;
	file->n_holdings--;
	hf_room_use(locks, owner->client, -(int64_t)HF_COST_HOLDING);
	hf_owner_free_if_empty(locks, owner);
	hf_lock_file_free_if_unused(locks, file);
}

/* LOOK */

struct hf_spot hf_holding_from(const struct hf_holding *holding, uint64_t pos)
{
	return hf_tree_first(&holding->own, NULL, (struct hf_range){ pos, HF_RANGE_EOF });
}

struct hf_spot hf_holding_around(const struct hf_holding *holding, struct hf_range range)
{
	if (!holding)
		return (struct hf_spot){ 0 };
	return hf_holding_from(holding, range.start ? range.start - 1 : 0);
}

void hf_attrs_of(const struct hf_lock *lock, struct hf_lock_attrs *attrsp)
{
	*attrsp = (struct hf_lock_attrs){
		.state = lock->state,
		.epoch = lock->epoch,
		.mode = lock->mode,
		.flags = lock->flags,
	};
	if (lock->flags & (HF_LOCK_PROVISIONAL | HF_LOCK_DOWNGRADING))
		attrsp->grant = lock->grant;
	if (lock->flags & HF_LOCK_PROVISIONAL && lock->prior_mode) {
		attrsp->prior_mode = lock->prior_mode;
		attrsp->prior_flags = lock->prior_flags;
		attrsp->prior_state = lock->prior_state;
		attrsp->prior_epoch = lock->prior_epoch;
	}
}

bool hf_attrs_can_merge(const struct hf_lock_attrs *a, const struct hf_lock_attrs *b)
{
	return a->mode == b->mode && a->state == b->state && a->flags == b->flags && a->grant == b->grant &&
	       a->prior_mode == b->prior_mode && a->prior_state == b->prior_state &&
	       a->prior_flags == b->prior_flags && a->prior_epoch == b->prior_epoch &&
	       !(a->flags & HF_LOCK_UNRECLAIMED);
}

struct hf_range hf_holding_part(const struct hf_holding *holding, uint64_t pos, uint64_t end,
				struct hf_lock **lockp)
{
	struct hf_spot spot = hf_holding_from(holding, pos);
	struct hf_lock *lock = hf_spot_lock(&spot);
	bool is_gap = !lock || lock->start > pos;

	*lockp = is_gap ? NULL : lock;
	if (lock)
		end = HF_MIN(end, is_gap ? lock->start - 1 : lock->end);
	return (struct hf_range){ pos, end };
}

bool hf_holding_has_all(struct hf_spot from, struct hf_range range, enum hf_lock_mode mode)
{
	struct hf_stretch stretch = { .spot = from, .pos = range.start };
	struct hf_lock *lock;

	while (stretch.pos <= range.end && (lock = hf_stretch_lock(&stretch)) && lock->mode == mode)
		hf_stretch_next(&stretch);
	return stretch.pos > range.end;
}

bool hf_holding_conflicts(const struct hf_holding *holding, struct hf_range range, enum hf_lock_mode mode)
{
	struct hf_spot spot;

	if (mode == HF_LOCK_SHARED && !holding->n_exclusive)
		return false;
	spot = mode == HF_LOCK_SHARED ? hf_tree_exclusive(&holding->own, range)
				      : hf_tree_first(&holding->own, NULL, range);
	return hf_spot_lock(&spot);
}

/* CHANGE */

/* Does undoing its grant put another lock in its place? */
static bool is_owed(const struct hf_lock *lock)
{
	return lock->flags & HF_LOCK_DOWNGRADING || (lock->flags & HF_LOCK_PROVISIONAL && lock->prior_mode);
}

int hf_holding_reserve(struct hf_locks *locks, size_t n)
{
	/* Each of @n may itself be owed a replacement. Each is in two sets: the file's and the holding's. */
	size_t n_puts = 2 * n + locks->n_owed;
	size_t n_locks = locks->n.locks + locks->n.ghosts + n_puts;
	/* Each may be the first lock of its file and of its holding. */
	size_t n_sets = 2 * locks->n.files + locks->n.owners + locks->holding_pool.n_used + 3 * n;
	int r = hf_pool_reserve(&locks->lock_pool, n);

	if (!r)
		r = hf_tree_reserve(&locks->trees, 2 * n_puts, n_sets, 2 * n_locks);
	return r < 0 ? hf_trace(r) : 0;
}

/* Adds @n, 1 or -1, to every counter that counts @lock. */
static void count(struct hf_locks *locks, const struct hf_lock *lock, int n)
{
	struct hf_holding *holding = lock->holding;
	struct hf_lock_client *client = holding->owner->client;
	uint32_t n32 = (uint32_t)n;
	uint64_t n64 = (uint64_t)(int64_t)n;

	if (lock->mode == HF_LOCK_EXCLUSIVE)
		holding->n_exclusive += n32;
	if (is_owed(lock))
		locks->n_owed += (size_t)n64;
	if (lock->flags & HF_LOCK_GHOST) {
		holding->file->n_ghosts += n32;
		client->n_ghosts += n32;
		locks->n.ghosts += n64;
		locks->n.outliving += client->outlives_grace ? n64 : 0;
		return;
	}
	holding->file->n_locks += n32;
	hf_crowd_note(locks, holding->file);
	client->n_locks += n32;
	client->group->n_locks += n32;
	locks->n.locks += n64;
	if (lock->flags & HF_LOCK_UNRECLAIMED) {
		client->n_unreclaimed += n32;
		locks->n.unreclaimed += n64;
		locks->n.outliving += client->outlives_grace ? n64 : 0;
	}
}

void hf_holding_accept(struct hf_locks *locks, struct hf_lock *lock)
{
	count(locks, lock, -1);
	hf_link_remove(&lock->unreclaimed);
	lock->flags &= (uint8_t) ~(HF_LOCK_UNRECLAIMED | HF_LOCK_GHOST);
	lock->grant = NULL;
	lock->prior_state = lock->prior_epoch = 0;
	count(locks, lock, 1);
}

struct hf_lock *hf_holding_put_aside(struct hf_locks *locks, struct hf_holding *holding,
				     struct hf_range range, const struct hf_lock_attrs *attrs,
				     struct hf_tree_leaf *hint)
{
	struct hf_lock *lock = hf_pool_take(&locks->lock_pool);

	/* One assignment: to set bit fields one by one would first read them, from cold memory. */
	*lock = (struct hf_lock){
		.start = range.start,
		.end = range.end,
		.holding = holding,
		.state = attrs->state,
		.epoch = attrs->epoch,
		.id = ++locks->last_lock,
		.mode = attrs->mode,
		.flags = attrs->flags,
		.prior_mode = attrs->prior_mode,
		.prior_flags = attrs->prior_flags,
	};
	if (attrs->flags & HF_LOCK_UNRECLAIMED) {
		hf_list_push_back(&locks->unreclaimed, &lock->unreclaimed);
	} else {
		lock->grant = attrs->grant;
		lock->prior_state = attrs->prior_state;
		lock->prior_epoch = attrs->prior_epoch;
	}
	hf_tree_insert(&locks->trees, &holding->own, hint, lock);
	count(locks, lock, 1);
	return lock;
}

struct hf_lock *hf_holding_put(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range,
			       const struct hf_lock_attrs *attrs, const struct hf_hint *hint)
{
	struct hf_lock *lock = hf_holding_put_aside(locks, holding, range, attrs, hint->own);
	unsigned int i = hf_mode_index((enum hf_lock_mode)attrs->mode);

	hf_tree_insert(&locks->trees, &holding->file->trees[i], hint->file.leaf[i], lock);
	return lock;
}

void hf_holding_take_out(struct hf_locks *locks, struct hf_lock *lock, const struct hf_hint *hint,
			 enum hf_lock_cause cause)
{
	struct hf_holding *holding = lock->holding;
	unsigned int i = hf_mode_index((enum hf_lock_mode)lock->mode);

	count(locks, lock, -1);
	if (lock->flags & HF_LOCK_UNRECLAIMED)
		hf_link_remove(&lock->unreclaimed);
	hf_tree_erase(&locks->trees, &holding->file->trees[i], hint->file.leaf[i], lock);
	hf_tree_erase(&locks->trees, &holding->own, hint->own, lock);
	hf_emit_removed(locks, lock, cause);
	hf_pool_give(&locks->lock_pool, lock);
}

void hf_holding_remove(struct hf_locks *locks, struct hf_lock *lock, enum hf_lock_cause cause)
{
	hf_waiters_touch(locks, lock->holding->file, hf_lock_range(lock));
	hf_holding_take_out(locks, lock, &(struct hf_hint){ 0 }, cause);
}

void hf_holding_hide(struct hf_locks *locks, struct hf_lock *lock)
{
	assert(lock->flags & HF_LOCK_UNRECLAIMED);
	count(locks, lock, -1);
	lock->flags |= HF_LOCK_GHOST;
	count(locks, lock, 1);
	hf_emit_hidden(locks, lock);
}
