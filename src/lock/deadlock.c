/*
 * Which owner waits for which? Owner A waits for owner B if a waiter of A is blocked by
 * a lock of B, or by a waiter of B that stands before it.
 *
 * The graph has no cycle, and no change makes one:
 *
 *   - a request that would wait for an owner that waits for the requesting
 *     owner, directly or through others, is not queued (DEADLOCK);
 *   - a request passes only waiters that wait for its owner anyway, or its owner waits for nothing;
 *   - a grant turns "behind its waiter" into "behind its lock";
 *   - every other change only removes edges.
 *
 * The walk goes against the edges, from an owner to the owners that wait for it.
 * Most requesting owners hold nothing: their walk ends at once. Owners that wait
 * for nothing are never visited. The walk marks each waiter once.
 *
 * Where an owner has few locks and waiters in a file, the walk looks only at the
 * waiters that overlap them: a chain of waiters costs a few steps for each, and so
 * does a crowd that waits for one range. Otherwise it looks at all waiters of the
 * file. The walk counts its steps and stops at a limit (steps.c). A request whose
 * walk was cut off is not queued: it could close a cycle.
 */
#include "lock/internal.h"

enum {
	LITTLE = 8,
};

static bool may_go_on(struct hf_locks *locks)
{
	return ++locks->n_steps <= locks->max_steps;
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

/* A lock of a holding (order 0: before the whole queue) or a waiter of it, at its position in the queue. */
struct piece {
	struct hf_holding *holding;
	struct hf_range range;
	enum hf_lock_mode mode;
	uint64_t order;
};

static bool is_blocked_by(const struct hf_waiter *waiter, const struct piece *piece)
{
	return waiter->order > piece->order && waiter->holding != piece->holding &&
	       hf_modes_conflict((enum hf_lock_mode)waiter->mode, piece->mode) &&
	       hf_range_overlaps(hf_waiter_range(waiter), piece->range);
}

/*
 * Finds an earlier piece of this walk that blocks everything that @piece blocks: the walk has marked those
 * waiters, except waiters of the earlier piece's own holding. Many waiters often want the same range. NULL:
 * there is no such piece.
 */
static const struct hf_walk_memo *recall(struct hf_locks *locks, const struct piece *piece)
{
	for (unsigned int i = 0; i < HF_ARRAY_SIZE(locks->memos); i++) {
		const struct hf_walk_memo *memo = &locks->memos[i];

		if (memo->walk == locks->last_walk && memo->holding->file == piece->holding->file &&
		    memo->order <= piece->order && hf_range_contains(memo->range, piece->range) &&
		    (memo->mode == HF_LOCK_EXCLUSIVE || piece->mode == HF_LOCK_SHARED))
			return memo;
	}
	return NULL;
}

static void memorize(struct hf_locks *locks, const struct piece *piece)
{
	locks->memos[locks->last_memo++ % HF_ARRAY_SIZE(locks->memos)] = (struct hf_walk_memo){
		.walk = locks->last_walk,
		.holding = piece->holding,
		.range = piece->range,
		.order = piece->order,
		.mode = piece->mode,
	};
}

static void mark_if_blocked(struct hf_locks *locks, struct hf_waiter *waiter, const struct piece *piece,
			    struct hf_owner **tailp)
{
	if (waiter->walk != locks->last_walk && is_blocked_by(waiter, piece))
		mark(locks, waiter, tailp);
}

static void mark_behind(struct hf_locks *locks, const struct piece *piece, struct hf_owner **tailp)
{
	const struct hf_lock_file *file = piece->holding->file;
	const struct hf_walk_memo *memo = recall(locks, piece);

	if (!may_go_on(locks))
		return;
	if (memo) {
		hf_list_for_each(pos, &memo->holding->waiters)
			mark_if_blocked(locks, hf_list_entry(pos, struct hf_waiter, in_holding), piece,
					tailp);
		return;
	}
	for (unsigned int i = 0; i < HF_ARRAY_SIZE(file->waiting); i++) {
		struct hf_waiter *waiter;

		if (piece->mode == HF_LOCK_SHARED && i == hf_mode_index(HF_LOCK_SHARED))
			continue;
		waiter = hf_waiters_first_in(&file->waiting[i], piece->range);
		for (; waiter && may_go_on(locks); waiter = hf_waiters_next_in(waiter, piece->range))
			mark_if_blocked(locks, waiter, piece, tailp);
	}
	memorize(locks, piece);
}

static bool has_little(const struct hf_holding *holding)
{
	size_t n = holding->own.n;

	for (const struct hf_link *pos = holding->waiters.head.next;
	     pos != &holding->waiters.head && n <= LITTLE; pos = pos->next)
		n++;
	return n <= LITTLE;
}

static void mark_by_place(struct hf_locks *locks, struct hf_holding *holding, struct hf_owner **tailp)
{
	struct hf_spot spot = hf_tree_begin(&holding->own);
	struct piece piece = { .holding = holding };

	for (; hf_spot_lock(&spot); hf_spot_next(&spot)) {
		piece.range = hf_spot_range(&spot);
		piece.mode = (enum hf_lock_mode)hf_spot_lock(&spot)->mode;
		mark_behind(locks, &piece, tailp);
	}
	hf_list_for_each(pos, &holding->waiters) {
		const struct hf_waiter *waiter = hf_list_entry(pos, struct hf_waiter, in_holding);

		piece.range = hf_waiter_range(waiter);
		piece.mode = (enum hf_lock_mode)waiter->mode;
		piece.order = waiter->order;
		mark_behind(locks, &piece, tailp);
	}
}

/* Marks the waiters in the file of @holding that wait for its owner. */
static void mark_blocked_by(struct hf_locks *locks, struct hf_holding *holding, struct hf_owner **tailp)
{
	struct hf_lock_file *file = holding->file;

	if (file->walk != locks->last_walk) {
		file->walk = locks->last_walk;
		file->n_walked = 0;
	}
	if (file->n_walked == file->n_waiters)
		return;
	if (has_little(holding)) {
		mark_by_place(locks, holding, tailp);
		return;
	}
	hf_list_for_each(pos, &file->queue) {
		struct hf_waiter *waiter = hf_list_entry(pos, struct hf_waiter, in_queue);

		if (!may_go_on(locks))
			return;
		if (waiter->walk == locks->last_walk || waiter->holding == holding)
			continue;
		if (is_behind(locks, waiter, holding) ||
		    hf_holding_conflicts(holding, hf_waiter_range(waiter), (enum hf_lock_mode)waiter->mode))
			mark(locks, waiter, tailp);
	}
}

/* Marks the waiters that wait for @owner. Visits its holdings or the files with waiters, whichever are fewer.
 */
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

		holding = hf_holding_find(owner, hf_rb_entry(node, struct hf_lock_file, in_waiting));
		if (holding)
			mark_blocked_by(locks, holding, tailp);
	}
}

struct hf_owner *hf_deadlock_walk(struct hf_locks *locks, struct hf_owner *owner, uint64_t max_steps)
{
	struct hf_owner *tail = owner;

	locks->last_walk++;
	locks->max_steps = locks->n_steps + max_steps;
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
	return locks->n_steps > locks->max_steps;
}

bool hf_deadlock_blocks(const struct hf_owner *marked, const struct hf_lock_file *file, struct hf_range range,
			enum hf_lock_mode mode)
{
	for (; marked; marked = marked->walk_next) {
		const struct hf_holding *holding = hf_holding_find(marked, file);

		if (holding && hf_holding_conflicts(holding, range, mode))
			return true;
	}
	return false;
}
