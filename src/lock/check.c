/*
 * Does every invariant of the engine hold? For tests and the simulation; the
 * cost is that of all records.
 *
 * Queue and interval trees agree. Outside grace every queued waiter is blocked.
 * The pieces of a grant lie within it. No owner waits for itself. The checks ask
 * these questions by walking the lists, not with the searches of the engine. In
 * small files they compare each pair of locks, so that a tree is not only
 * compared with itself.
 */
#include "lock/internal.h"

#include <string.h>

#include "lock/invariant.h"

enum {
	SMALL = 64, /* compare each pair of locks in files with no more locks than this */
	MANY = 256, /* do not search the graph for cycles if there are more waiters than this */
};

struct hf_check {
	struct hf_locks *locks;
	uint64_t n_locks, n_ghosts, n_unreclaimed, n_waiters, n_grants, n_reservations, n_owners, n_holdings;
	uint64_t n_first; /* holdings embedded in their owners */
	uint64_t n_owed;
	uint64_t n_waiting_files, n_file_holdings;
	uint64_t n_file_locks, n_file_ghosts; /* of the file under check */
	uint64_t n_client_locks, n_client_ghosts, n_client_unreclaimed, n_client_waiters, n_client_grants;
};

/* WAITERS */

static struct hf_waiter *queued(struct hf_link *link)
{
	return hf_list_entry(link, struct hf_waiter, in_queue);
}

static struct hf_waiter *in_tree(struct hf_rb_node *node)
{
	return node ? hf_rb_entry(node, struct hf_waiter, in_file) : NULL;
}

static bool conflict(const struct hf_waiter *a, const struct hf_waiter *b)
{
	return a->holding != b->holding && (a->mode == HF_LOCK_EXCLUSIVE || b->mode == HF_LOCK_EXCLUSIVE) &&
	       a->start <= b->end && b->start <= a->end;
}

static bool is_blocked_by_lock(const struct hf_waiter *waiter, const struct hf_holding *holding)
{
	struct hf_spot spot = hf_tree_begin(&holding->own);
	const struct hf_lock *lock;

	for (; (lock = hf_spot_lock(&spot)); hf_spot_next(&spot)) {
		if ((lock->mode == HF_LOCK_EXCLUSIVE || waiter->mode == HF_LOCK_EXCLUSIVE) &&
		    lock->start <= waiter->end && waiter->start <= lock->end)
			return true;
	}
	return false;
}

static bool is_blocked(const struct hf_waiter *waiter)
{
	struct hf_lock_file *file = waiter->holding->file;

	for (struct hf_link *pos = waiter->in_queue.prev; pos != &file->queue.head; pos = pos->prev)
		if (conflict(queued(pos), waiter))
			return true;
	return hf_lock_file_conflict(file, waiter->holding, hf_waiter_range(waiter),
				     (enum hf_lock_mode)waiter->mode);
}

/* QUEUE */

static const char *check_tree(const struct hf_lock_file *file, enum hf_lock_mode mode, int64_t *n)
{
	const struct hf_rb_tree *tree = &file->waiting[hf_mode_index(mode)];
	struct hf_waiter *prev = NULL, *waiter = in_tree(hf_rb_first(tree));
	int64_t size = hf_rb_check(tree);

	FAIL_UNLESS(size >= 0);
	*n += size;
	for (; waiter; prev = waiter, waiter = in_tree(hf_rb_next(&waiter->in_file))) {
		FAIL_UNLESS(waiter->mode == mode && waiter->holding->file == file);
		FAIL_UNLESS(!prev || prev->start < waiter->start ||
			    (prev->start == waiter->start && prev->id < waiter->id));
		FAIL_UNLESS(!hf_waiters_update(&waiter->in_file));
	}
	return NULL;
}

static const char *check_queue(struct hf_lock_file *file, struct hf_check *check)
{
	const struct hf_locks *locks = check->locks;
	bool may_run =
		locks->is_grace || locks->is_paused || locks->outside || hf_link_is_linked(&file->in_dirty);
	uint64_t last = 0;
	uint32_t n = 0;
	int64_t n_trees = 0;

	hf_list_for_each(pos, &file->queue) {
		struct hf_waiter *waiter = queued(pos);

		FAIL_UNLESS(waiter->order > last && !waiter->is_granted);
		last = waiter->order;
		FAIL_UNLESS(may_run || is_blocked(waiter));
		n++;
	}
	PASS_ON(check_tree(file, HF_LOCK_SHARED, &n_trees));
	PASS_ON(check_tree(file, HF_LOCK_EXCLUSIVE, &n_trees));
	FAIL_UNLESS(n == file->n_waiters && n_trees == n);
	check->n_waiters += n;
	check->n_waiting_files += n > 0;
	return NULL;
}

/* GRANTS */

static const char *check_piece(const struct hf_lock *lock)
{
	if (!(lock->flags & (HF_LOCK_PROVISIONAL | HF_LOCK_DOWNGRADING)))
		return NULL;
	FAIL_UNLESS((lock->flags & (HF_LOCK_PROVISIONAL | HF_LOCK_DOWNGRADING)) !=
		    (HF_LOCK_PROVISIONAL | HF_LOCK_DOWNGRADING));
	FAIL_UNLESS(!(lock->flags & HF_LOCK_UNRECLAIMED));
	hf_list_for_each(pos, &lock->holding->grants) {
		const struct hf_waiter *grant = hf_list_entry(pos, struct hf_waiter, in_holding);

		if (grant != lock->grant)
			continue;
		FAIL_UNLESS(hf_range_contains(hf_waiter_range(grant), hf_lock_range(lock)));
		FAIL_UNLESS(lock->flags & HF_LOCK_DOWNGRADING ? grant->mode == HF_LOCK_SHARED
							      : grant->mode == lock->mode);
		FAIL_UNLESS(lock->flags & HF_LOCK_DOWNGRADING || lock->prior_mode < lock->mode);
		return NULL;
	}
	return "a piece of a grant that does not exist";
}

/* Does the owner hold the granted range in the granted mode or a stronger one? An exclusive grant in flight
 * may lie over a shared one. */
static bool is_still_locked(const struct hf_waiter *grant)
{
	struct hf_spot spot = hf_holding_from(grant->holding, grant->start);
	uint64_t pos = grant->start;
	struct hf_lock *lock;

	for (; (lock = hf_spot_lock(&spot)) && lock->start <= pos && lock->mode >= grant->mode;
	     hf_spot_next(&spot)) {
		if (lock->end >= grant->end)
			return true;
		pos = lock->end + 1;
	}
	return false;
}

static const char *check_grants(struct hf_holding *holding, struct hf_check *check)
{
	hf_list_for_each(pos, &holding->grants) {
		const struct hf_waiter *grant = hf_list_entry(pos, struct hf_waiter, in_holding);

		FAIL_UNLESS(grant->is_granted && grant->holding == holding);
		FAIL_UNLESS(grant->is_changed || is_still_locked(grant));
		check->n_grants++;
		check->n_client_grants++;
	}
	return NULL;
}

/* GRAPH */

/* Does @waiter wait for an owner that is not marked? */
static bool waits_for_unmarked(const struct hf_check *check, const struct hf_waiter *waiter)
{
	struct hf_lock_file *file = waiter->holding->file;
	bool is_ahead = true;

	hf_list_for_each(pos, &file->queue) {
		is_ahead = is_ahead && queued(pos) != waiter;
		if (is_ahead && conflict(queued(pos), waiter) &&
		    queued(pos)->holding->owner->walk != check->locks->last_walk)
			return true;
	}
	/* An owner that waits in any file may hold a lock in this one. */
	for (struct hf_rb_node *node = hf_rb_first(&check->locks->waiting); node; node = hf_rb_next(node)) {
		hf_list_for_each(pos, &hf_rb_entry(node, struct hf_lock_file, in_waiting)->queue) {
			struct hf_owner *owner = queued(pos)->holding->owner;
			struct hf_holding *holding = hf_holding_find(owner, file);

			if (owner != waiter->holding->owner && owner->walk != check->locks->last_walk &&
			    holding && is_blocked_by_lock(waiter, holding))
				return true;
		}
	}
	return false;
}

static bool owner_waits_for_unmarked(const struct hf_check *check, const struct hf_owner *owner)
{
	for (struct hf_rb_node *node = hf_rb_first(&owner->holdings); node; node = hf_rb_next(node)) {
		struct hf_holding *holding = hf_rb_entry(node, struct hf_holding, in_owner);

		hf_list_for_each(pos, &holding->waiters)
			if (waits_for_unmarked(check, hf_list_entry(pos, struct hf_waiter, in_holding)))
				return true;
	}
	return false;
}

/* Marks the owners that wait for marked owners only. Returns how many it marked. */
static size_t mark_free(struct hf_check *check, size_t *n_leftp)
{
	size_t n = 0;

	*n_leftp = 0;
	for (struct hf_rb_node *node = hf_rb_first(&check->locks->waiting); node; node = hf_rb_next(node)) {
		hf_list_for_each(pos, &hf_rb_entry(node, struct hf_lock_file, in_waiting)->queue) {
			struct hf_owner *owner = queued(pos)->holding->owner;

			if (owner->walk == check->locks->last_walk)
				continue;
			if (owner_waits_for_unmarked(check, owner)) {
				++*n_leftp;
				continue;
			}
			owner->walk = check->locks->last_walk;
			n++;
		}
	}
	return n;
}

static const char *check_graph(struct hf_check *check)
{
	size_t n_left;

	FAIL_UNLESS(check->n_waiting_files == check->locks->n_waiting);
	FAIL_UNLESS(hf_rb_check(&check->locks->waiting) == (int64_t)check->locks->n_waiting);
	FAIL_UNLESS(hf_rb_check(&check->locks->grants) == (int64_t)check->locks->n.grants);
	if (check->locks->n.waiters > MANY)
		return NULL;
	check->locks->last_walk++;
	while (mark_free(check, &n_left) > 0)
		;
	return n_left ? "owners wait for each other in a cycle" : NULL;
}

/* FILES */

static const char *check_lock(const struct hf_lock_file *file, const struct hf_lock *lock,
			      enum hf_lock_mode mode)
{
	struct hf_spot own = hf_holding_from(lock->holding, lock->start);

	FAIL_UNLESS(lock->mode == mode);
	FAIL_UNLESS(hf_range_is_valid(hf_lock_range(lock)));
	FAIL_UNLESS(lock->holding->file == file);
	FAIL_UNLESS(hf_spot_lock(&own) == lock);
	FAIL_UNLESS(!(lock->flags & HF_LOCK_GHOST) || lock->flags & HF_LOCK_UNRECLAIMED);
	FAIL_UNLESS(!(lock->flags & HF_LOCK_DOWNGRADING) || lock->mode == HF_LOCK_EXCLUSIVE);
	FAIL_UNLESS(!hf_lock_file_conflict(file, lock->holding, hf_lock_range(lock), mode));
	return NULL;
}

static const char *check_against(const struct hf_lock_file *file, const struct hf_lock *lock)
{
	for (unsigned int i = 0; i < HF_ARRAY_SIZE(file->trees); i++) {
		struct hf_spot spot = hf_tree_begin(&file->trees[i]);
		struct hf_lock *other;

		for (; (other = hf_spot_lock(&spot)); hf_spot_next(&spot))
			FAIL_UNLESS(other->holding == lock->holding ||
				    !hf_modes_conflict((enum hf_lock_mode)other->mode,
						       (enum hf_lock_mode)lock->mode) ||
				    !hf_range_overlaps(hf_lock_range(lock), hf_lock_range(other)));
	}
	return NULL;
}

static const char *check_trees(const struct hf_lock_file *file, enum hf_lock_mode mode,
			       struct hf_check *check)
{
	const struct hf_tree *tree = &file->trees[hf_mode_index(mode)];
	bool is_small = file->n_locks + file->n_ghosts <= SMALL;
	struct hf_spot spot = hf_tree_begin(tree);
	struct hf_lock *lock;

	FAIL_UNLESS(!tree->of_one);
	PASS_ON(hf_tree_check(tree));
	for (; (lock = hf_spot_lock(&spot)); hf_spot_next(&spot)) {
		PASS_ON(check_lock(file, lock, mode));
		if (is_small)
			PASS_ON(check_against(file, lock));
		check->n_file_locks += !(lock->flags & HF_LOCK_GHOST);
		check->n_file_ghosts += !!(lock->flags & HF_LOCK_GHOST);
	}
	return NULL;
}

static const char *check_reservations(struct hf_lock_file *file, struct hf_check *check)
{
	uint32_t n = 0, n_records = 0, n_access[2] = { 0 }, n_deny[2] = { 0 };

	hf_list_for_each(pos, &file->reservations) {
		struct hf_lock_reservation *reservation =
			hf_list_entry(pos, struct hf_lock_reservation, in_file);
		uint32_t sum = reservation->count + reservation->n_unreclaimed;

		for (unsigned int bit = 0; bit < 2; bit++) {
			n_access[bit] += reservation->access >> bit & 1 ? sum : 0;
			n_deny[bit] += reservation->deny >> bit & 1 ? sum : 0;
		}
		FAIL_UNLESS(reservation->file == file && sum > 0 &&
			    reservation->n_unsure <= reservation->count);
		FAIL_UNLESS(!reservation->n_unreclaimed == !hf_link_is_linked(&reservation->unreclaimed));
		n += reservation->count;
		n_records++;
	}
	FAIL_UNLESS(n == file->n_reservations && n_records == file->n_reservation_records);
	FAIL_UNLESS(memcmp(n_access, file->n_access, sizeof(n_access)) == 0);
	FAIL_UNLESS(memcmp(n_deny, file->n_deny, sizeof(n_deny)) == 0);
	check->n_reservations += n;
	return NULL;
}

static const char *check_file(struct hf_lock_file *file, struct hf_check *check)
{
	struct hf_bytes handle = hf_bytes_of(file->handle, file->handle_len);
	uint64_t hash = hf_lock_file_hash(check->locks, handle);

	FAIL_UNLESS(hf_lock_file_find(check->locks, hash, handle) == file);
	FAIL_UNLESS(file->n_holdings || file->n_reservation_records);
	FAIL_UNLESS(hf_crowd_is_right(file));
	check->n_file_locks = check->n_file_ghosts = 0;
	PASS_ON(check_trees(file, HF_LOCK_SHARED, check));
	PASS_ON(check_trees(file, HF_LOCK_EXCLUSIVE, check));
	FAIL_UNLESS(check->n_file_locks == file->n_locks && check->n_file_ghosts == file->n_ghosts);
	check->n_locks += file->n_locks;
	check->n_ghosts += file->n_ghosts;
	check->n_file_holdings += file->n_holdings;
	PASS_ON(check_reservations(file, check));
	return check_queue(file, check);
}

static const char *check_files(struct hf_check *check)
{
	const struct hf_locks *locks = check->locks;
	struct hf_rb_node *node = hf_rb_first(&locks->by_id);
	uint64_t last = 0;

	FAIL_UNLESS(hf_rb_check(&locks->by_id) == (int64_t)locks->n.files);
	FAIL_UNLESS(locks->files.n == locks->n.files);
	for (; node; node = hf_rb_next(node)) {
		struct hf_lock_file *file = hf_rb_entry(node, struct hf_lock_file, by_id);

		FAIL_UNLESS(file->id > last);
		last = file->id;
		PASS_ON(check_file(file, check));
	}
	return NULL;
}

/* OWNERS */

/* Two locks of the run before that touch stay apart, as the store has them, also when one of them grows. */
static bool is_any_restored(const struct hf_locks *locks, const struct hf_lock *a, const struct hf_lock *b)
{
	return a->epoch < locks->epoch || b->epoch < locks->epoch;
}

static const char *check_own(struct hf_holding *holding, struct hf_check *check)
{
	struct hf_spot spot = hf_tree_begin(&holding->own);
	struct hf_lock *prev = NULL, *lock;
	uint32_t n_exclusive = 0;

	FAIL_UNLESS(holding->own.of_one);
	PASS_ON(hf_tree_check(&holding->own));
	for (; (lock = hf_spot_lock(&spot)); prev = lock, hf_spot_next(&spot)) {
		struct hf_lock_attrs a, b;

		FAIL_UNLESS(lock->holding == holding);
		n_exclusive += lock->mode == HF_LOCK_EXCLUSIVE;
		check->n_client_locks += !(lock->flags & HF_LOCK_GHOST);
		check->n_client_ghosts += !!(lock->flags & HF_LOCK_GHOST);
		check->n_client_unreclaimed +=
			(lock->flags & (HF_LOCK_GHOST | HF_LOCK_UNRECLAIMED)) == HF_LOCK_UNRECLAIMED;
		check->n_owed += lock->flags & HF_LOCK_DOWNGRADING ||
				 (lock->flags & HF_LOCK_PROVISIONAL && lock->prior_mode);
		PASS_ON(check_piece(lock));
		if (!prev)
			continue;
		FAIL_UNLESS(prev->end < lock->start);
		hf_attrs_of(prev, &a);
		hf_attrs_of(lock, &b);
		FAIL_UNLESS(prev->end + 1 < lock->start || !hf_attrs_can_merge(&a, &b) ||
			    is_any_restored(check->locks, prev, lock));
	}
	FAIL_UNLESS(n_exclusive == holding->n_exclusive);
	return NULL;
}

static const char *check_owner(struct hf_owner *owner, struct hf_check *check)
{
	struct hf_rb_node *node = hf_rb_first(&owner->holdings);
	bool has_first = false;
	uint32_t n_waiters = 0;
	uint64_t last = 0;

	FAIL_UNLESS(hf_rb_check(&owner->holdings) == owner->n_holdings && owner->n_holdings > 0);
	FAIL_UNLESS(!owner->newest || (&owner->newest->in_owner == hf_rb_last(&owner->holdings) &&
				       owner->newest->file->id == owner->newest_file));
	for (; node; node = hf_rb_next(node)) {
		struct hf_holding *holding = hf_rb_entry(node, struct hf_holding, in_owner);

		FAIL_UNLESS(holding->owner == owner && holding->file->id > last);
		last = holding->file->id;
		FAIL_UNLESS(holding->own.n || !hf_list_is_empty(&holding->waiters) ||
			    !hf_list_is_empty(&holding->grants));
		PASS_ON(check_own(holding, check));
		PASS_ON(check_grants(holding, check));
		hf_list_for_each(pos, &holding->waiters) {
			FAIL_UNLESS(hf_list_entry(pos, struct hf_waiter, in_holding)->holding == holding);
			n_waiters++;
		}
		check->n_holdings++;
		has_first |= holding == &owner->first;
	}
	check->n_first += has_first;
	FAIL_UNLESS(has_first == (owner->first.file != NULL));
	FAIL_UNLESS(n_waiters == owner->n_waiters);
	check->n_client_waiters += n_waiters;
	check->n_owners++;
	return NULL;
}

static const char *check_client(struct hf_lock_client *client, struct hf_check *check)
{
	struct hf_rb_node *node = hf_rb_first(&client->owners);
	uint32_t n_reservations = 0;
	uint64_t last = 0;

	check->n_client_locks = check->n_client_ghosts = check->n_client_unreclaimed = 0;
	check->n_client_waiters = check->n_client_grants = 0;
	FAIL_UNLESS(hf_rb_check(&client->owners) >= 0);
	for (; node; node = hf_rb_next(node)) {
		struct hf_owner *owner = hf_rb_entry(node, struct hf_owner, in_client);

		FAIL_UNLESS(owner->client == client && owner->seq > last);
		last = owner->seq;
		PASS_ON(check_owner(owner, check));
	}
	hf_list_for_each(pos, &client->reservations)
		n_reservations += hf_list_entry(pos, struct hf_lock_reservation, in_client)->count;
	FAIL_UNLESS(check->n_client_locks == client->n_locks);
	FAIL_UNLESS(check->n_client_ghosts == client->n_ghosts);
	FAIL_UNLESS(check->n_client_unreclaimed == client->n_unreclaimed);
	FAIL_UNLESS(check->n_client_waiters == client->n_waiters);
	FAIL_UNLESS(check->n_client_grants == client->n_grants);
	FAIL_UNLESS(hf_rb_check(&client->waiters) == client->n_waiters);
	FAIL_UNLESS(n_reservations == client->n_reservations);
	check->n_unreclaimed += client->n_unreclaimed;
	return NULL;
}

/* Checks each client once: at its first owner. */
static const char *check_chain(struct hf_hash_node *node, struct hf_check *check)
{
	for (; node; node = node->next) {
		struct hf_owner *owner = hf_container_of(node, struct hf_owner, node);

		if (hf_rb_first(&owner->client->owners) == &owner->in_client)
			PASS_ON(check_client(owner->client, check));
	}
	return NULL;
}

static const char *check_owners(struct hf_check *check)
{
	const struct hf_hashtable *table = &check->locks->owners;

	for (size_t i = 0; i <= table->mask; i++)
		if (table->chains[i])
			PASS_ON(check_chain(table->chains[i], check));
	for (size_t i = table->n_moved; table->old && i <= table->old_mask; i++)
		PASS_ON(check_chain(table->old[i], check));
	FAIL_UNLESS(check->n_owners == check->locks->n.owners && table->n == check->n_owners);
	FAIL_UNLESS(check->n_holdings == check->n_file_holdings);
	return NULL;
}

/* TOTALS */

static const char *check_unreclaimed(struct hf_locks *locks)
{
	uint64_t n = 0, n_outliving = 0;

	hf_list_for_each(pos, &locks->unreclaimed) {
		const struct hf_lock *lock = hf_list_entry(pos, struct hf_lock, unreclaimed);

		FAIL_UNLESS(lock->flags & HF_LOCK_UNRECLAIMED);
		n_outliving += lock->holding->owner->client->outlives_grace;
		n++;
	}
	FAIL_UNLESS(n == locks->n.unreclaimed + locks->n.ghosts);
	n = 0;
	hf_list_for_each(pos, &locks->unreclaimed_reservations) {
		n_outliving +=
			hf_list_entry(pos, struct hf_lock_reservation, unreclaimed)->client->outlives_grace;
		n++;
	}
	FAIL_UNLESS(n == locks->n.unreclaimed_reservations && n_outliving == locks->n.outliving);
	return NULL;
}

static const char *check_reservation_order(const struct hf_locks *locks)
{
	const struct hf_lock_reservation *before = NULL;

	FAIL_UNLESS(hf_rb_check(&locks->reservation_order) == (int64_t)locks->reservation_pool.n_used);
	for (struct hf_rb_node *node = hf_rb_first(&locks->reservation_order); node;
	     node = hf_rb_next(node)) {
		const struct hf_lock_reservation *next =
			hf_rb_entry(node, struct hf_lock_reservation, in_order);

		FAIL_UNLESS(!before || before->client->id < next->client->id ||
			    (before->client == next->client && before->seq < next->seq));
		before = next;
	}
	return NULL;
}

static const char *check_totals(struct hf_check *check)
{
	struct hf_locks *locks = check->locks;

	FAIL_UNLESS(check->n_locks == locks->n.locks);
	FAIL_UNLESS(check->n_ghosts == locks->n.ghosts);
	FAIL_UNLESS(check->n_unreclaimed == locks->n.unreclaimed);
	FAIL_UNLESS(check->n_waiters == locks->n.waiters);
	FAIL_UNLESS(check->n_grants == locks->n.grants);
	FAIL_UNLESS(check->n_reservations == locks->n.reservations);
	FAIL_UNLESS(check->n_owed == locks->n_owed);
	FAIL_UNLESS(locks->lock_pool.n_used == locks->n.locks + locks->n.ghosts);
	FAIL_UNLESS(locks->waiter_pool.n_used == locks->n.waiters + locks->n.grants);
	FAIL_UNLESS(locks->holding_pool.n_used == check->n_holdings - check->n_first);
	FAIL_UNLESS(locks->owner_pool.n_used == locks->n.owners);
	FAIL_UNLESS(locks->file_pool.n_used == locks->n.files);
	FAIL_UNLESS(locks->bytes == locks->owner_pool.n_used * HF_COST_OWNER +
					    check->n_holdings * HF_COST_HOLDING +
					    locks->waiter_pool.n_used * HF_COST_WAITER +
					    locks->reservation_pool.n_used * HF_COST_RESERVATION);
	FAIL_UNLESS(locks->oh_bytes == locks->oh_pool.n_used * HF_LOCK_OH_MAX);
	return check_unreclaimed(locks);
}

const char *hf_locks_check(const struct hf_locks *locks)
{
	/* The check changes nothing but the marks of the search for cycles. */
	struct hf_check check = { .locks = (struct hf_locks *)(uintptr_t)locks };

	PASS_ON(check_files(&check));
	PASS_ON(check_owners(&check));
	PASS_ON(check_graph(&check));
	PASS_ON(check_reservation_order(locks));
	return check_totals(&check);
}
