/*
 * What does a grant in flight change in its owner's locks, and how is that undone?
 *
 * A grant in flight is a waiter that has its lock while its client has not yet
 * acknowledged the grant. The waiter's record lives on as the grant. Its lock
 * consists of pieces: locks of the holding that point to the grant and lie within
 * its range.
 *
 *	PROVISIONAL  the owner did not hold this piece, or held it shared and the
 *	             grant is exclusive; prior_* is what a refusal restores.
 *	DOWNGRADING  the owner holds this piece exclusively and the grant is shared.
 *	             The piece becomes shared only when the client confirms: if the
 *	             grant were refused after another owner had locked the range, the
 *	             exclusive lock could not be given back.
 *
 * A part that the owner held in the granted mode, or has from another grant in
 * flight, is no piece and does not change. If that other grant is undone, the part
 * becomes a piece of this one. An exclusive grant over a DOWNGRADING piece ends the
 * downgrade, whenever the earlier grant is confirmed.
 *
 * Two things are never downgraded: the range of an exclusive grant in flight (see
 * GUARD below), and what the owner requested exclusively while a shared request of
 * it waited.
 *
 * The owner's own requests may remove pieces while the grant is in flight. A
 * confirmation or a refusal then applies to the pieces that are left.
 */
#include "lock/internal.h"

#include <errno.h>

#include "base/error.h"

enum {
	FEW = 64,    /* grants in flight of one holding that are applied again one by one */
	MANY = 4096, /* own locks in the range beyond which a grant has no pieces */
};

static bool is_piece(const struct hf_lock *lock, const struct hf_waiter *grant)
{
	return lock->flags & (HF_LOCK_PROVISIONAL | HF_LOCK_DOWNGRADING) && lock->grant == grant;
}

/* GUARD */

/*
 * The range of an exclusive grant in flight is guarded: nothing downgrades it. The
 * owner may have several threads. One thread may receive the answer to a shared
 * request before another thread receives the exclusive grant, and rely on the
 * exclusive lock. So the owner holds the range exclusively until it unlocks. A
 * protocol that can delay the shared request until the grant has ended asks
 * hf_lock_is_guarded() first.
 */
struct hf_range hf_grant_guarded(const struct hf_holding *holding, struct hf_range range,
				 const struct hf_waiter *but)
{
	struct hf_range guarded = { HF_RANGE_EOF, 0 };

	hf_list_for_each(pos, &holding->grants) {
		const struct hf_waiter *grant = hf_list_entry(pos, struct hf_waiter, in_holding);

		if (grant != but && grant->mode == HF_LOCK_EXCLUSIVE &&
		    hf_range_overlaps(hf_waiter_range(grant), range))
			guarded = (struct hf_range){ HF_MIN(guarded.start, grant->start),
						     HF_MAX(guarded.end, grant->end) };
	}
	return guarded;
}

bool hf_grant_is_guarded(struct hf_range guarded, struct hf_range *part)
{
	bool is_guarded = part->start >= guarded.start && part->start <= guarded.end;

	if (is_guarded)
		part->end = HF_MIN(part->end, guarded.end);
	else if (part->start < guarded.start && guarded.start <= guarded.end)
		part->end = HF_MIN(part->end, guarded.start - 1);
	return is_guarded;
}

void hf_grant_set_prior(struct hf_locks *locks, const struct hf_lock *lock, struct hf_range part,
			const struct hf_lock_attrs *less)
{
	struct hf_lock_attrs attrs;

	if (!(lock->flags & HF_LOCK_PROVISIONAL))
		return;
	hf_attrs_of(lock, &attrs);
	attrs.prior_mode = less->mode;
	attrs.prior_state = less->state;
	attrs.prior_epoch = less->epoch;
	attrs.prior_flags = less->flags;
	hf_holding_replace(locks, lock->holding, part, &attrs);
}

/* GRANT */

static void set_prior(struct hf_lock_attrs *attrs, const struct hf_lock *lock)
{
	if (!(lock->flags & HF_LOCK_PROVISIONAL)) {
		attrs->prior_mode = lock->mode;
		attrs->prior_state = lock->state;
		attrs->prior_epoch = lock->epoch;
		attrs->prior_flags = lock->flags;
	} else if (lock->prior_mode) {
		attrs->prior_mode = lock->prior_mode;
		attrs->prior_state = lock->prior_state;
		attrs->prior_epoch = lock->prior_epoch;
		attrs->prior_flags = lock->prior_flags;
	}
}

/* Makes @part a piece of @grant if it must be one. @lock is the owner's lock there; NULL: it has none. */
static void grant_part(struct hf_locks *locks, struct hf_waiter *grant, struct hf_range part,
		       const struct hf_lock *lock)
{
	struct hf_lock_attrs attrs = {
		.grant = grant,
		.mode = grant->mode,
		.state = grant->state,
		.epoch = locks->epoch,
		.flags = (uint8_t)(HF_LOCK_PROVISIONAL | (grant->is_volatile ? HF_LOCK_VOLATILE : 0)),
	};

	if (lock && lock->mode == grant->mode && !(lock->flags & HF_LOCK_DOWNGRADING))
		return;
	if (lock && lock->mode == grant->mode) {
		hf_attrs_of(lock, &attrs);
		attrs.grant = NULL;
		attrs.flags &= (uint8_t)~HF_LOCK_DOWNGRADING;
	} else if (lock && lock->mode > grant->mode) {
		if (lock->flags & (HF_LOCK_PROVISIONAL | HF_LOCK_DOWNGRADING))
			return;
		hf_attrs_of(lock, &attrs);
		attrs.grant = grant;
		attrs.flags |= HF_LOCK_DOWNGRADING;
	} else if (lock) {
		set_prior(&attrs, lock);
	}
	hf_holding_replace(locks, grant->holding, part, &attrs);
}

/* Applies the grant to @range of the owner's locks. Exclusive locks in @guarded stay exclusive. */
static void apply(struct hf_locks *locks, struct hf_waiter *grant, struct hf_range range,
		  struct hf_range guarded)
{
	struct hf_range part;

	for (uint64_t pos = range.start; pos <= range.end; pos = part.end + 1) {
		struct hf_lock *lock;

		part = hf_holding_part(grant->holding, pos, range.end, &lock);
		if (lock && lock->mode > grant->mode &&
		    (hf_grant_is_guarded(guarded, &part) || grant->no_downgrade))
			continue;
		grant_part(locks, grant, part, lock);
	}
}

static void insert_by_id(struct hf_locks *locks, struct hf_waiter *grant)
{
	struct hf_rb_node **link = &locks->grants.root, *parent = NULL;

	while (*link) {
		parent = *link;
		link = grant->id < hf_rb_entry(parent, struct hf_waiter, by_id)->id ? &parent->left
										    : &parent->right;
	}
	hf_rb_insert(&locks->grants, &grant->by_id, parent, link, NULL);
	grant->holding->owner->client->n_grants++;
	locks->n.grants++;
}

/* GRANT OVER MANY */

/*
 * A grant in flight changes every lock that its owner has in the range, and a
 * refusal changes all of them back. A client with hundreds of thousands of locks
 * could cause that work again and again with a few messages. So where the owner has
 * more than MANY locks in the range, a few locks replace all of them, as an
 * immediate request would do. This costs as much as it cost to take them, and
 * happens once.
 *
 * The grant does not remember the replaced locks. If the client refuses it, the
 * owner must not have less than before. It has more, until it unlocks: the whole
 * range as shared if it had no exclusive lock there, otherwise the granted lock.
 */
static bool is_over_many_locks(const struct hf_waiter *waiter)
{
	struct hf_spot spot = hf_holding_from(waiter->holding, waiter->start);
	unsigned int n = 0;

	if (waiter->holding->own.n <= MANY)
		return false;
	for (; hf_spot_lock(&spot) && hf_spot_range(&spot).start <= waiter->end && n <= MANY;
	     hf_spot_next(&spot))
		n++;
	return n > MANY;
}

static struct hf_lock *first_exclusive(const struct hf_holding *holding, struct hf_range range)
{
	struct hf_spot spot = hf_tree_exclusive(&holding->own, range);

	return hf_spot_lock(&spot);
}

/* One exclusive lock replaces all locks of the range. */
static void apply_exclusive_to_many(struct hf_locks *locks, struct hf_waiter *grant,
				    struct hf_lock_attrs attrs)
{
	if (!first_exclusive(grant->holding, hf_waiter_range(grant))) {
		attrs.prior_mode = HF_LOCK_SHARED;
		attrs.prior_state = attrs.state;
		attrs.prior_epoch = attrs.epoch;
		attrs.prior_flags = attrs.flags;
		attrs.flags |= HF_LOCK_PROVISIONAL;
		attrs.grant = grant;
	}
	hf_holding_replace(locks, grant->holding, hf_waiter_range(grant), &attrs);
}

/* Between two exclusive locks, which stay, one shared lock replaces all locks. */
static void apply_shared_to_many(struct hf_locks *locks, struct hf_waiter *grant,
				 const struct hf_lock_attrs *attrs)
{
	struct hf_range range = hf_waiter_range(grant);

	while (range.start <= range.end) {
		struct hf_lock *lock = first_exclusive(grant->holding, range);
		struct hf_range part = { range.start, lock ? lock->start - 1 : range.end };

		range.start = lock ? lock->end + 1 : range.end + 1;
		if (!lock || lock->start > part.start)
			hf_holding_replace(locks, grant->holding, part, attrs);
	}
}

static void apply_to_many(struct hf_locks *locks, struct hf_waiter *grant)
{
	const struct hf_lock_attrs attrs = {
		.mode = grant->mode,
		.state = grant->state,
		.epoch = locks->epoch,
		.flags = grant->is_volatile ? HF_LOCK_VOLATILE : 0,
	};

	if (grant->mode == HF_LOCK_EXCLUSIVE)
		apply_exclusive_to_many(locks, grant, attrs);
	else
		apply_shared_to_many(locks, grant, &attrs);
}

int hf_grant_waiter(struct hf_locks *locks, struct hf_waiter *waiter)
{
	struct hf_holding *holding = waiter->holding;
	struct hf_spot spot = hf_holding_from(holding, waiter->start);
	struct hf_range guarded = hf_grant_guarded(holding, hf_waiter_range(waiter), waiter);
	bool is_over_many = is_over_many_locks(waiter);
	struct hf_lock_target who;
	size_t n = 0;
	int r;

	for (; hf_spot_lock(&spot) && hf_spot_range(&spot).start <= waiter->end; hf_spot_next(&spot))
		n += !is_over_many || hf_spot_lock(&spot)->mode > waiter->mode;
	r = hf_holding_reserve(locks, 2 * n + HF_REPLACE_RECORDS + 2);
	if (r < 0)
		return hf_trace(r);
	hf_view_target(holding, &who);
	who.export = waiter->export;
	r = hf_outside_take(locks, &who, hf_waiter_range(waiter), (enum hf_lock_mode)waiter->mode);
	if (r)
		return r;
	hf_waiters_remove(locks, waiter);
	waiter->is_granted = true;
	hf_list_push_back(&holding->grants, &waiter->in_holding);
	insert_by_id(locks, waiter);
	if (HF_UNLIKELY(is_over_many))
		apply_to_many(locks, waiter);
	else
		apply(locks, waiter, hf_waiter_range(waiter), guarded);
	hf_emit_granted(locks, waiter);
	return 0;
}

/* LOOK */

struct hf_waiter *hf_grant_find(const struct hf_holding *holding, struct hf_range range,
				enum hf_lock_mode mode)
{
	return hf_waiters_find(&holding->grants, range, mode);
}

bool hf_grant_is_whole(const struct hf_waiter *grant)
{
	struct hf_stretch stretch = { .spot = hf_holding_from(grant->holding, grant->start),
				      .pos = grant->start };
	struct hf_lock *lock;

	while (stretch.pos <= grant->end && (lock = hf_stretch_lock(&stretch)) &&
	       (lock->mode == grant->mode || is_piece(lock, grant)))
		hf_stretch_next(&stretch);
	return stretch.pos > grant->end;
}

struct hf_waiter *hf_grant_by_id(const struct hf_locks *locks, uint64_t id)
{
	struct hf_rb_node *node = locks->grants.root;

	while (node) {
		struct hf_waiter *grant = hf_rb_entry(node, struct hf_waiter, by_id);

		if (grant->id == id)
			return grant;
		node = id < grant->id ? node->left : node->right;
	}
	return NULL;
}

/* CHANGE */

void hf_grant_note_change(struct hf_holding *holding, struct hf_range range, enum hf_lock_mode mode)
{
	hf_list_for_each(pos, &holding->grants) {
		struct hf_waiter *grant = hf_list_entry(pos, struct hf_waiter, in_holding);

		if (grant->mode != mode && hf_range_overlaps(hf_waiter_range(grant), range))
			grant->is_changed = true;
	}
}

void hf_grant_note_upgrade(const struct hf_holding *holding, struct hf_range range)
{
	hf_list_for_each(pos, &holding->waiters) {
		struct hf_waiter *waiter = hf_list_entry(pos, struct hf_waiter, in_holding);

		if (waiter->mode == HF_LOCK_SHARED && hf_range_overlaps(hf_waiter_range(waiter), range))
			waiter->no_downgrade = true;
	}
}

void hf_grant_note_wait(const struct hf_waiter *waiter)
{
	hf_list_for_each(pos, &waiter->holding->grants) {
		struct hf_waiter *grant = hf_list_entry(pos, struct hf_waiter, in_holding);

		if (grant->start == waiter->start && grant->end == waiter->end)
			grant->is_changed = true;
	}
}

/* END */

/* The client has confirmed the grant. What does @lock, which overlaps its range, become? False: no change. */
static bool confirm_part(const struct hf_waiter *grant, const struct hf_lock *lock, bool downgrades,
			 struct hf_lock_attrs *attrs)
{
	hf_attrs_of(lock, attrs);
	if (is_piece(lock, grant) && lock->flags & HF_LOCK_DOWNGRADING && !downgrades) {
		attrs->grant = NULL;
		attrs->flags &= (uint8_t)~HF_LOCK_DOWNGRADING;
		return true;
	}
	if (is_piece(lock, grant) || (lock->flags & HF_LOCK_PROVISIONAL && lock->mode == grant->mode)) {
		*attrs = (struct hf_lock_attrs){
			.mode = grant->mode,
			.state = lock->state,
			.epoch = lock->epoch,
			.flags = lock->flags & HF_LOCK_VOLATILE,
		};
		return true;
	}
	/* @lock is a piece of a later exclusive grant. Its refusal must leave what this grant gave. */
	if (lock->flags & HF_LOCK_PROVISIONAL && lock->mode > grant->mode && lock->prior_mode < grant->mode) {
		attrs->prior_mode = grant->mode;
		attrs->prior_state = grant->state;
		attrs->prior_epoch = lock->epoch;
		attrs->prior_flags = grant->is_volatile ? HF_LOCK_VOLATILE : 0;
		return true;
	}
	return false;
}

void hf_grant_confirm(struct hf_locks *locks, struct hf_waiter *grant, bool downgrades)
{
	struct hf_holding *holding = grant->holding;
	struct hf_lock_attrs attrs;
	struct hf_range part;

	for (uint64_t pos = grant->start; pos <= grant->end; pos = part.end + 1) {
		struct hf_spot spot = hf_holding_from(holding, pos);
		struct hf_lock *lock = hf_spot_lock(&spot);

		if (!lock || lock->start > grant->end)
			break;
		part = (struct hf_range){ HF_MAX(lock->start, pos), HF_MIN(lock->end, grant->end) };
		if (confirm_part(grant, lock, downgrades, &attrs))
			hf_holding_replace(locks, holding, part, &attrs); /* frees @lock */
	}
}

/* Has the owner other grants in flight in this file? They may overlap this one. */
static bool has_others(const struct hf_waiter *grant)
{
	return hf_list_first(&grant->holding->grants) != &grant->in_holding ||
	       grant->in_holding.next != &grant->holding->grants.head;
}

static bool reserve_to_apply(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range)
{
	struct hf_spot spot = hf_holding_from(holding, range.start);
	size_t n = 0;

	for (; hf_spot_lock(&spot) && hf_spot_range(&spot).start <= range.end; hf_spot_next(&spot))
		n++;
	hf_list_for_each(pos, &holding->grants)
		n++;
	if (hf_holding_reserve(locks, 4 * n + HF_REPLACE_RECORDS + 2) == 0)
		return true;
	/* Without memory the other grants lose that part: the client repeats its request, or unlocks. */
	hf_grant_note_change(holding, range, HF_LOCK_NONE);
	return false;
}

/* Applies the owner's grants in flight, except @but, to @part: what was a piece of @but becomes theirs. */
static void apply_others(struct hf_locks *locks, struct hf_holding *holding, const struct hf_waiter *but,
			 struct hf_range part, struct hf_range guarded)
{
	hf_list_for_each(pos, &holding->grants) {
		struct hf_waiter *other = hf_list_entry(pos, struct hf_waiter, in_holding);
		struct hf_range both = { HF_MAX(other->start, part.start), HF_MIN(other->end, part.end) };

		if (other != but && both.start <= both.end)
			apply(locks, other, both, guarded);
	}
}

/* The purge calls this for each lock it removes, so the number of grants is bounded by FEW. */
void hf_grant_apply_again(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range)
{
	static const struct hf_range nothing = { HF_RANGE_EOF, 0 };
	unsigned int n = 0;

	for (struct hf_link *pos = holding->grants.head.next; pos != &holding->grants.head && n <= FEW;
	     pos = pos->next)
		n++;
	if (n > FEW)
		hf_grant_note_change(holding, range, HF_LOCK_NONE);
	else if (n && reserve_to_apply(locks, holding, range))
		apply_others(locks, holding, NULL, range, nothing);
}

void hf_grant_undo(struct hf_locks *locks, struct hf_waiter *grant)
{
	struct hf_holding *holding = grant->holding;
	struct hf_spot spot = hf_holding_from(holding, grant->start);
	struct hf_lock *lock;
	bool applies_others = has_others(grant) && reserve_to_apply(locks, holding, hf_waiter_range(grant));
	struct hf_range guarded = hf_grant_guarded(holding, hf_waiter_range(grant), grant);

	while ((lock = hf_spot_lock(&spot)) && lock->start <= grant->end) {
		struct hf_range part = hf_lock_range(lock);
		struct hf_lock_attrs attrs;

		hf_attrs_of(lock, &attrs);
		if (is_piece(lock, grant) && lock->flags & HF_LOCK_DOWNGRADING) {
			attrs.grant = NULL;
			attrs.flags &= (uint8_t)~HF_LOCK_DOWNGRADING;
			hf_holding_replace(locks, holding, part, &attrs);
			if (applies_others)
				apply_others(locks, holding, grant, part, guarded);
		} else if (is_piece(lock, grant)) {
			struct hf_lock_attrs prior = {
				.mode = attrs.prior_mode,
				.state = attrs.prior_state,
				.epoch = attrs.prior_epoch,
				.flags = attrs.prior_flags,
			};

			hf_holding_replace(locks, holding, part, prior.mode ? &prior : NULL);
			if (applies_others)
				apply_others(locks, holding, grant, part, guarded);
		}
		spot = hf_holding_from(holding, part.end + 1);
	}
}

void hf_grant_unlink(struct hf_locks *locks, struct hf_waiter *grant)
{
	assert(grant->is_granted);
	hf_link_remove(&grant->in_holding);
	hf_rb_erase(&locks->grants, &grant->by_id, NULL);
	grant->holding->owner->client->n_grants--;
	locks->n.grants--;
}

void hf_grant_end(struct hf_locks *locks, struct hf_waiter *grant, enum hf_lock_end why)
{
	hf_grant_unlink(locks, grant);
	hf_emit_gone(locks, grant, why);
	grant->holding->owner->client->group->n_waiters--;
	hf_room_use(locks, grant->holding->owner->client, -(int64_t)HF_COST_WAITER);
	hf_pool_give(&locks->waiter_pool, grant);
}

bool hf_lock_is_guarded(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range)
{
	struct hf_range guarded = { 1, 0 };
	struct hf_found found;

	hf_target_find(locks, who, &found);
	if (found.holding)
		guarded = hf_grant_guarded(found.holding, range, NULL);
	return guarded.start <= guarded.end;
}

bool hf_lock_any_grant(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		       bool (*is_meant)(void *user, uint64_t id), void *user)
{
	struct hf_found found;

	hf_target_find(locks, who, &found);
	if (!found.holding)
		return false;
	hf_list_for_each(pos, &found.holding->grants) {
		const struct hf_waiter *grant = hf_list_entry(pos, struct hf_waiter, in_holding);

		if (hf_range_overlaps(hf_waiter_range(grant), range) &&
		    (!is_meant || is_meant(user, grant->id)))
			return true;
	}
	return false;
}

bool hf_lock_has_grant(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range)
{
	return hf_lock_any_grant(locks, who, range, NULL, NULL);
}
