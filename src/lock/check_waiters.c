/*
 * The invariants of those who wait: queue and interval trees agree; outside
 * grace everybody queued is blocked; pieces of a grant lie within it; nobody
 * waits for himself. The questions are asked anew here, by going through the
 * lists, not with the searches of the product.
 */
#include "lock/check.h"

enum {
	MANY = 256, /* waiters beyond which the graph is not searched */
};

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
	struct hf_file *file = waiter->holding->file;

	for (struct hf_link *pos = waiter->in_queue.prev; pos != &file->queue.head; pos = pos->prev)
		if (conflict(queued(pos), waiter))
			return true;
	return hf_file_conflict(file, waiter->holding, hf_waiter_range(waiter),
				(enum hf_lock_mode)waiter->mode);
}

/* QUEUE */

static const char *check_tree(const struct hf_file *file, enum hf_lock_mode mode, int64_t *n)
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

const char *hf_check_queue(struct hf_file *file, struct hf_check *check)
{
	const struct hf_locks *locks = check->locks;
	bool may_run = locks->is_grace || locks->holds_waiters || locks->outside ||
		       hf_link_is_linked(&file->in_dirty);
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

const char *hf_check_piece(const struct hf_lock *lock)
{
	if (!(lock->flags & (HF_LOCK_PROVISIONAL | HF_LOCK_KEPT)))
		return NULL;
	FAIL_UNLESS((lock->flags & (HF_LOCK_PROVISIONAL | HF_LOCK_KEPT)) !=
		    (HF_LOCK_PROVISIONAL | HF_LOCK_KEPT));
	FAIL_UNLESS(!(lock->flags & HF_LOCK_UNRECLAIMED));
	hf_list_for_each(pos, &lock->holding->grants) {
		const struct hf_waiter *grant = hf_list_entry(pos, struct hf_waiter, in_holding);

		if (grant != lock->grant)
			continue;
		FAIL_UNLESS(hf_range_contains(hf_waiter_range(grant), hf_lock_range(lock)));
		FAIL_UNLESS(lock->flags & HF_LOCK_KEPT ? grant->mode == HF_LOCK_SHARED
						       : grant->mode == lock->mode);
		FAIL_UNLESS(lock->flags & HF_LOCK_KEPT || lock->prior_mode < lock->mode);
		return NULL;
	}
	return "a piece of a grant that is no more";
}

/* What was granted, or more: a shared one may lie below an exclusive one that is in flight, too. */
static bool is_still_held(const struct hf_waiter *grant)
{
	struct hf_spot spot = hf_own_from(grant->holding, grant->start);
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

const char *hf_check_grants(struct hf_holding *holding, struct hf_check *check)
{
	hf_list_for_each(pos, &holding->grants) {
		const struct hf_waiter *grant = hf_list_entry(pos, struct hf_waiter, in_holding);

		FAIL_UNLESS(grant->is_granted && grant->holding == holding);
		FAIL_UNLESS(grant->is_changed || is_still_held(grant));
		check->n_grants++;
		check->n_client_grants++;
	}
	return NULL;
}

/* GRAPH */

/* Does @waiter wait for anybody who still waits himself (is not marked)? */
static bool waits_for_unmarked(const struct hf_check *check, const struct hf_waiter *waiter)
{
	struct hf_file *file = waiter->holding->file;
	bool is_ahead = true;

	hf_list_for_each(pos, &file->queue) {
		is_ahead = is_ahead && queued(pos) != waiter;
		if (is_ahead && conflict(queued(pos), waiter) &&
		    queued(pos)->holding->owner->walk != check->locks->last_walk)
			return true;
	}
	/* Whoever waits anywhere may hold here. */
	for (struct hf_rb_node *node = hf_rb_first(&check->locks->waiting); node; node = hf_rb_next(node)) {
		hf_list_for_each(pos, &hf_rb_entry(node, struct hf_file, in_waiting)->queue) {
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

/* Marks owners who wait only for marked ones; returns how many. */
static size_t mark_free(struct hf_check *check, size_t *n_leftp)
{
	size_t n = 0;

	*n_leftp = 0;
	for (struct hf_rb_node *node = hf_rb_first(&check->locks->waiting); node; node = hf_rb_next(node)) {
		hf_list_for_each(pos, &hf_rb_entry(node, struct hf_file, in_waiting)->queue) {
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

const char *hf_check_graph(struct hf_check *check)
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
	return n_left ? "owners wait for one another in a circle" : NULL;
}
