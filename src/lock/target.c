/*
 * Which records does a target have: its file, its owner, and the owner's holding?
 *
 * The engine remembers the records of the last call. The next call is often about
 * the same file or the same owner, and to compare costs less than to hash.
 */
#include "lock/internal.h"

#include <string.h>

void hf_recent_init(struct hf_recent *recent)
{
	/* No handle has this length, and no client this id. */
	*recent = (struct hf_recent){ .handle_len = UINT16_MAX, .client_id = UINT64_MAX };
}

static void find_file(const struct hf_locks *locks, const struct hf_lock_target *who,
		      struct hf_recent *recent)
{
	struct hf_bytes handle = hf_bytes_of(recent->handle, recent->handle_len);

	if (!hf_bytes_equal(handle, who->handle)) {
		recent->file_hash = hf_lock_file_hash(locks, who->handle);
		recent->file = NULL;
		recent->handle_len = (uint16_t)who->handle.len;
		if (who->handle.len)
			memmove(recent->handle, who->handle.data, who->handle.len);
	}
	if (!recent->file)
		recent->file = hf_lock_file_find(locks, recent->file_hash, who->handle);
}

/* Prefetches the owner's record, so that it arrives while the file is looked up. */
static void aim_at_owner(const struct hf_locks *locks, const struct hf_lock_target *who,
			 struct hf_recent *recent)
{
	if (recent->client_id == who->client->id && recent->owner_id == who->owner_id &&
	    recent->owner_kind == who->owner_kind)
		return;
	recent->owner_hash = hf_owner_hash(locks, who);
	recent->owner = NULL;
	recent->client_id = who->client->id;
	recent->owner_id = who->owner_id;
	recent->owner_kind = who->owner_kind;
	__builtin_prefetch(*hf_hashtable_chain(&locks->owners, recent->owner_hash));
}

void hf_target_find(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_found *foundp)
{
	struct hf_recent *recent = locks->recent;
	struct hf_holding *holding;

	assert(who->handle.len <= HF_LOCK_HANDLE_MAX);
	aim_at_owner(locks, who, recent);
	find_file(locks, who, recent);
	if (!recent->owner)
		recent->owner = hf_owner_find(locks, recent->owner_hash, who);
	holding = recent->holding;
	if (!recent->file || !recent->owner)
		holding = NULL;
	else if (!holding || holding->file != recent->file || holding->owner != recent->owner)
		holding = recent->holding = hf_holding_find(recent->owner, recent->file);
	*foundp = (struct hf_found){
		.file_hash = recent->file_hash,
		.owner_hash = recent->owner_hash,
		.file = recent->file,
		.owner = recent->owner,
		.holding = holding,
	};
}

int hf_target_reserve(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_found *found)
{
	int r = hf_oh_reserve(locks, who->oh);

	if (!r && !found->file)
		r = hf_pool_reserve(&locks->file_pool, 1);
	if (!r && !found->owner)
		r = hf_pool_reserve(&locks->owner_pool, 1);
	if (!r && !found->holding)
		r = hf_pool_reserve(&locks->holding_pool, 1);
	return r;
}

void hf_target_make(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_found *found)
{
	if (!found->file)
		found->file = hf_lock_file_make(locks, found->file_hash, who->handle);
	if (found->owner) {
		hf_oh_renew(locks, who->client, &found->owner->oh, who->oh);
	} else {
		found->owner = hf_owner_make(locks, found->owner_hash, who);
		hf_oh_set(locks, who->client, &found->owner->oh, who->oh);
	}
	if (!found->holding)
		found->holding = hf_holding_make(locks, found->owner, found->file, who->export);
	locks->recent->file = found->file; /* hf_target_find() has set the keys of @recent */
	locks->recent->owner = found->owner;
	locks->recent->holding = found->holding;
}

/* PUBLIC */

bool hf_lock_is_involved(const struct hf_locks *locks, const struct hf_lock_target *who)
{
	struct hf_found found;

	hf_target_find(locks, who, &found);
	return found.holding != NULL;
}

bool hf_lock_touches(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range)
{
	struct hf_found found;

	hf_target_find(locks, who, &found);
	if (!found.holding)
		return false;
	hf_list_for_each(pos, &found.holding->waiters)
		if (hf_range_overlaps(hf_waiter_range(hf_list_entry(pos, struct hf_waiter, in_holding)),
				      range))
			return true;
	return hf_holding_conflicts(found.holding, range, HF_LOCK_EXCLUSIVE);
}

bool hf_lock_has_shared(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range)
{
	struct hf_found found;

	hf_target_find(locks, who, &found);
	return found.holding &&
	       hf_holding_has_all(hf_holding_around(found.holding, range), range, HF_LOCK_SHARED);
}

bool hf_lock_find_oh(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_bytes *ohp)
{
	struct hf_found found;

	hf_target_find(locks, who, &found);
	if (!found.holding)
		return false;
	*ohp = hf_oh_bytes(&found.owner->oh);
	return true;
}
