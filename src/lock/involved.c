/* Who has something in a file, for protocols that must guess whom a request is about. */
#include "lock/internal.h"

bool hf_lock_is_involved(const struct hf_locks *locks, const struct hf_lock_target *who)
{
	struct hf_place place;

	hf_place_find(locks, who, &place);
	return place.holding != NULL;
}

bool hf_lock_has_exclusive(const struct hf_locks *locks, const struct hf_lock_target *who,
			   struct hf_range range)
{
	struct hf_place place;

	if (!who->client)
		return false;
	hf_place_find(locks, who, &place);
	return place.holding && hf_own_conflicts(place.holding, range, HF_LOCK_SHARED);
}
