/*
 * Who waits for whom. Owner A waits for owner B if a waiter of A is blocked by
 * a lock of B, or by a waiter of B that stands before it.
 *
 * The graph has no cycle, and each change keeps it so:
 *
 *   - a request that would wait for somebody who waits for it, directly or
 *     through others, is not queued (DEADLOCK);
 *   - a request that passes queued waiters passes only those that wait for its
 *     owner anyway;
 *   - a grant turns "behind its waiter" into "behind its lock";
 *   - everything else only takes edges away.
 *
 * The walk goes against the edges, from an owner to all that wait for it: an
 * owner that has nothing and waits for nothing, as most that ask, is done at
 * once, and the millions of holders who wait for nobody are never visited. Each
 * waiter is marked once; the work is bounded by marked owners times the waiters
 * in files where they have something. A host with many names can make that a
 * long work of each of its requests, so it has an end (MAX_STEPS, some
 * milliseconds; all that can be in one file takes half of that), beyond which
 * nobody is queued: it could be a cycle.
 */
#include "lock/internal.h"

#define MAX_STEPS (UINT32_C(1) << 21)

static bool may_go_on(struct hf_locks *locks)
{
	return ++locks->n_steps <= MAX_STEPS;
}

/* Is @waiter blocked by a waiter of @holding that stands before it? */
static bool is_behind(struct hf_locks *locks, const struct hf_waiter *waiter,
		      const struct hf_holding *holding)
{
	hf_list_for_each(pos, &holding->waiters) {
		const struct hf_waiter *other = hf_list_entry(pos, struct hf_waiter, in_holding);

		locks->n_steps++;
		if (other->order < waiter->order && hf_modes_conflict(other->mode, waiter->mode) &&
		    hf_range_overlaps(hf_waiter_range(other), hf_waiter_range(waiter)))
			return true;
	}
	return false;
}

static void mark(struct hf_locks *locks, struct hf_waiter *waiter, struct hf_owner **tailp)
{
	struct hf_owner *owner = waiter->holding->owner;

	waiter->walk = locks->last_walk;
	waiter->holding->file->n_walked++;
	if (owner->walk == locks->last_walk)
		return;
	owner->walk = locks->last_walk;
	owner->walk_next = NULL;
	(*tailp)->walk_next = owner;
	*tailp = owner;
}

/* Marks those in the file of @holding who wait for its owner. */
static void mark_blocked_by(struct hf_locks *locks, struct hf_holding *holding, struct hf_owner **tailp)
{
	struct hf_file *file = holding->file;

	if (file->walk != locks->last_walk) {
		file->walk = locks->last_walk;
		file->n_walked = 0;
	}
	if (file->n_walked == file->n_waiters)
		return;
	hf_list_for_each(pos, &file->queue) {
		struct hf_waiter *waiter = hf_list_entry(pos, struct hf_waiter, in_queue);

		if (!may_go_on(locks))
			return;
		if (waiter->walk == locks->last_walk || waiter->holding == holding)
			continue;
		if (is_behind(locks, waiter, holding) ||
		    hf_own_conflicts(holding, hf_waiter_range(waiter), (enum hf_lock_mode)waiter->mode))
			mark(locks, waiter, tailp);
	}
}

/* Of the owner's holdings and the files with waiters, goes through the fewer. */
static void expand(struct hf_locks *locks, struct hf_owner *owner, struct hf_owner **tailp)
{
	if (owner->n_holdings <= locks->n_waiting) {
		for (struct hf_rb_node *node = hf_rb_first(&owner->holdings); node && may_go_on(locks);
		     node = hf_rb_next(node))
			mark_blocked_by(locks, hf_rb_entry(node, struct hf_holding, in_owner), tailp);
		return;
	}
	for (struct hf_rb_node *node = hf_rb_first(&locks->waiting); node && may_go_on(locks);
	     node = hf_rb_next(node)) {
		struct hf_holding *holding;

		holding = hf_holding_find(owner, hf_rb_entry(node, struct hf_file, in_waiting));
		if (holding)
			mark_blocked_by(locks, holding, tailp);
	}
}

struct hf_owner *hf_deadlock_walk(struct hf_locks *locks, struct hf_owner *owner)
{
	struct hf_owner *tail = owner;

	locks->last_walk++;
	locks->n_steps = 0;
	if (!owner)
		return NULL;
	owner->walk = locks->last_walk;
	owner->walk_next = NULL;
	for (struct hf_owner *next = owner; next && !hf_deadlock_is_unclear(locks); next = next->walk_next)
		expand(locks, next, &tail);
	return owner->walk_next;
}

bool hf_deadlock_is_unclear(const struct hf_locks *locks)
{
	return locks->n_steps > MAX_STEPS;
}

bool hf_deadlock_holds(const struct hf_owner *marked, const struct hf_file *file, struct hf_range range,
		       enum hf_lock_mode mode)
{
	for (; marked; marked = marked->walk_next) {
		const struct hf_holding *holding = hf_holding_find(marked, file);

		if (holding && hf_own_conflicts(holding, range, mode))
			return true;
	}
	return false;
}
