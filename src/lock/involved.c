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
