/*
 * What an exclusive grant in flight is about is guarded: nothing lowers it. If the
 * owner has threads, one of them may hear that he has more after another one has
 * heard that he has less, and rely on it. So the owner has more than he may know
 * of, until he unlocks. Whoever can wait with such a request until the grant is
 * settled asks hf_lock_is_guarded() first.
 */
#include "lock/internal.h"

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

void hf_grant_lay_under(struct hf_locks *locks, const struct hf_lock *lock, struct hf_range part,
			const struct hf_lock_attrs *less)
{
	struct hf_lock_attrs attrs;

	if (!(lock->flags & HF_LOCK_PROVISIONAL))
		return;
	hf_own_attrs(lock, &attrs);
	attrs.prior_mode = less->mode;
	attrs.prior_state = less->state;
	attrs.prior_epoch = less->epoch;
	attrs.prior_flags = less->flags;
	hf_own_replace(locks, lock->holding, part, &attrs);
}

bool hf_lock_is_guarded(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range)
{
	struct hf_range guarded = { 1, 0 };
	struct hf_place place;

	hf_place_find(locks, who, &place);
	if (place.holding)
		guarded = hf_grant_guarded(place.holding, range, NULL);
	return guarded.start <= guarded.end;
}
