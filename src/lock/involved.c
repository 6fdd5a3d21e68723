/* Who has something in a file, for protocols that must guess whom a request is about. */
#include "lock/internal.h"

bool hf_lock_is_involved(const struct hf_locks *locks, const struct hf_lock_target *who)
{
	struct hf_place place;

	hf_place_find(locks, who, &place);
	return place.holding != NULL;
}

bool hf_lock_find_oh(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_bytes *ohp)
{
	struct hf_place place;

	hf_place_find(locks, who, &place);
	if (!place.holding)
		return false;
	*ohp = hf_oh_bytes(&place.owner->oh);
	return true;
}
