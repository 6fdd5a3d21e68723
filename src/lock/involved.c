/* Who has something in a file, for protocols that must guess whom a request is about. */
#include "lock/internal.h"

bool hf_lock_is_involved(const struct hf_locks *locks, const struct hf_lock_target *who)
{
	struct hf_place place;

	hf_place_find(locks, who, &place);
	return place.holding != NULL;
}
