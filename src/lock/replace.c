/*
 * A request replaces what its owner holds in its range: how are locks merged and split?
 *
 * The owner's locks there are searched once, by the caller or here. A second search
 * is needed only after a lock was taken out.
 */
#include "lock/internal.h"

/* What a replacement leaves of the locks that it overlaps. */
struct rest {
	struct hf_range range; /* of the new lock, with the locks that merge into it */
	struct hf_range left;  /* the rest of a lock that begins before the range; empty if start > end */
	struct hf_range right;
	struct hf_lock_attrs left_attrs;
	struct hf_lock_attrs right_attrs;
};

static const struct hf_range nothing = { 1, 0 };

static bool is_empty(struct hf_range range)
{
	return range.start > range.end;
}

/* Leaves the attrs unset: they are set with their ranges, and most requests meet no lock. */
static void begin_rest(struct rest *rest, struct hf_range range)
{
	rest->range = range;
	rest->left = nothing;
	rest->right = nothing;
}

/* The range in which locks matter for a replacement. With @attrs, locks that only touch may merge, and then
 * also what touches those: locks of the run before touch, and are not merged. */
static struct hf_range neighbourhood(struct hf_range range, const struct hf_lock_attrs *attrs)
{
	if (attrs && range.start > 0)
		range.start--;
	if (attrs && range.end < HF_RANGE_EOF)
		range.end++;
	return range;
}

/* Notes what remains of @lock. False: @lock stays as it is. */
static bool cut(struct rest *rest, const struct hf_lock *lock, struct hf_range range,
		const struct hf_lock_attrs *attrs)
{
	struct hf_lock_attrs its;

	hf_attrs_of(lock, &its);
	if (attrs && hf_attrs_can_merge(attrs, &its)) {
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

/* Does no lock of the owner overlap or touch @range? */
static inline bool is_clear(const struct hf_spot *around, struct hf_range range)
{
	return around->at == around->n ||
	       (range.end < HF_RANGE_EOF && hf_spot_range(around).start > range.end + 1);
}

int hf_holding_growth(struct hf_spot around, struct hf_range range, const struct hf_lock_attrs *attrs)
{
	uint64_t end = neighbourhood(range, attrs).end;
	struct rest rest;
	int growth = 1;

	if (is_clear(&around, range))
		return growth;
	begin_rest(&rest, range);
	for (; hf_spot_lock(&around) && hf_spot_range(&around).start <= end; hf_spot_next(&around)) {
		if (!cut(&rest, hf_spot_lock(&around), range, attrs))
			continue;
		growth--;
		end = neighbourhood(rest.range, attrs).end;
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

static void put(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range,
		const struct hf_lock_attrs *attrs, const struct hf_hint *hint)
{
	hf_emit_added(locks, hf_holding_put(locks, holding, range, attrs, hint));
}

static HF_NOINLINE void replace(struct hf_locks *locks, struct hf_holding *holding, struct hf_spot spot,
				struct hf_hint hint, struct hf_range range, const struct hf_lock_attrs *attrs)
{
	static const struct hf_hint none;
	uint64_t end = neighbourhood(range, attrs).end;
	struct rest rest;

	begin_rest(&rest, range);
	while (hf_spot_lock(&spot) && hf_spot_range(&spot).start <= end) {
		struct hf_lock *lock = hf_spot_lock(&spot);
		uint64_t behind = lock->end + 1;

		if (!cut(&rest, lock, range, attrs)) {
			hf_spot_next(&spot);
			continue;
		}
		touch_weakened(locks, lock, range, attrs);
		hf_holding_take_out(locks, lock, &hint, HF_LOCK_CAUSE_REQUEST);
		hint = none; /* the sets have changed */
		end = neighbourhood(rest.range, attrs).end;
		if (behind > end)
			break;
		spot = hf_holding_from(holding, behind);
	}
	if (!is_empty(rest.left)) {
		put(locks, holding, rest.left, &rest.left_attrs, &hint);
		hint = none;
	}
	if (attrs) {
		put(locks, holding, rest.range, attrs, &hint);
		hint = none;
	}
	if (!is_empty(rest.right))
		put(locks, holding, rest.right, &rest.right_attrs, &hint);
}

/* The common cases come first: a lock where its owner has none, and an unlock of exactly one lock. */
void hf_holding_replace_at(struct hf_locks *locks, struct hf_holding *holding, struct hf_spot spot,
			   const struct hf_aim *aim, struct hf_range range, const struct hf_lock_attrs *attrs)
{
	struct hf_hint hint = { .own = spot.leaf, .file = *aim };

	if (attrs && is_clear(&spot, range)) {
		put(locks, holding, range, attrs, &hint);
	} else if (!attrs && hf_holding_is_whole(&spot, range)) {
		hf_waiters_touch(locks, holding->file, range);
		hf_holding_take_out(locks, hf_spot_lock(&spot), &hint, HF_LOCK_CAUSE_REQUEST);
	} else {
		replace(locks, holding, spot, hint, range, attrs);
	}
}

void hf_holding_replace(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range,
			const struct hf_lock_attrs *attrs)
{
	hf_holding_replace_at(locks, holding, hf_holding_from(holding, neighbourhood(range, attrs).start),
			      &(struct hf_aim){ 0 }, range, attrs);
}
