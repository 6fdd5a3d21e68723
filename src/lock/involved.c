/* Who has something in a file, for protocols that must guess whom a request is about. */
#include "lock/internal.h"

bool hf_lock_is_involved(const struct hf_locks *locks, const struct hf_lock_target *who)
{
	struct hf_place place;

	hf_place_find(locks, who, &place);
	return place.holding != NULL;
}

bool hf_lock_is_held(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		     enum hf_lock_mode mode)
{
	struct hf_place place;

	if (!who->client)
		return false;
	hf_place_find(locks, who, &place);
	/* Whatever conflicts with an exclusive lock is one of any mode. */
	return place.holding && hf_own_conflicts(place.holding, range,
						 mode == HF_LOCK_SHARED ? HF_LOCK_EXCLUSIVE : HF_LOCK_SHARED);
}

uint64_t hf_lock_changed_grant(const struct hf_locks *locks, const struct hf_lock_target *who)
{
	struct hf_place place;

	if (HF_LIKELY(!locks->n.grants))
		return 0;
	hf_place_find(locks, who, &place);
	if (!place.holding)
		return 0;
	hf_list_for_each(pos, &place.holding->grants) {
		const struct hf_waiter *grant = hf_list_entry(pos, struct hf_waiter, in_holding);

		if (!hf_grant_is_whole(grant))
			return grant->id;
	}
	return 0;
}
