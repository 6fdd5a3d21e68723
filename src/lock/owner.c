/*
 * The record of an owner, and its owner handle (oh).
 *
 * A keyed hash of (client, id, kind) finds an owner. It hangs in its client by its
 * order of creation. It exists while it has a holding.
 */
#include "lock/internal.h"

#include <string.h>

/* OH */

int hf_oh_reserve(struct hf_locks *locks, struct hf_bytes bytes)
{
	if (!hf_oh_is_long(bytes))
		return 0;
	return hf_pool_reserve(&locks->oh_pool, 1);
}

static void use_long(struct hf_locks *locks, struct hf_lock_client *client, int64_t bytes)
{
	client->oh_bytes += (uint64_t)bytes;
	client->group->oh_bytes += (uint64_t)bytes;
	locks->oh_bytes += (uint64_t)bytes;
}

void hf_oh_deinit(struct hf_locks *locks, struct hf_lock_client *client, struct hf_oh *oh)
{
	if (oh->big) {
		hf_pool_give(&locks->oh_pool, oh->big);
		use_long(locks, client, -HF_LOCK_OH_MAX);
	}
	oh->big = NULL;
	oh->len = 0;
}

void hf_oh_set(struct hf_locks *locks, struct hf_lock_client *client, struct hf_oh *oh, struct hf_bytes bytes)
{
	assert(bytes.len <= HF_LOCK_OH_MAX);
	if (!hf_oh_is_long(bytes)) {
		hf_oh_deinit(locks, client, oh);
	} else if (!oh->big) {
		oh->big = hf_pool_take(&locks->oh_pool);
		use_long(locks, client, HF_LOCK_OH_MAX);
	}
	oh->len = (uint16_t)bytes.len;
	/* memmove, because gcc turns a short memcpy into an inline "rep movs", which costs 30 ns. */
	if (bytes.len)
		memmove(oh->big ? oh->big : oh->room, bytes.data, bytes.len);
}

void hf_oh_renew(struct hf_locks *locks, struct hf_lock_client *client, struct hf_oh *oh,
		 struct hf_bytes bytes)
{
	if (oh->big || hf_room_for_oh(locks, client, bytes))
		hf_oh_set(locks, client, oh, bytes);
}

/* OWNER */

uint64_t hf_owner_hash(const struct hf_locks *locks, const struct hf_lock_target *who)
{
	const uint64_t key[] = { who->client->id, who->owner_id, who->owner_kind };

	return hf_siphash(&locks->key, key, sizeof(key));
}

struct hf_owner *hf_owner_find(const struct hf_locks *locks, uint64_t hash, const struct hf_lock_target *who)
{
	hf_hash_for_each(node, &locks->owners, hash) {
		struct hf_owner *owner = hf_container_of(node, struct hf_owner, node);

		if (owner->client == who->client && owner->id == who->owner_id &&
		    owner->kind == who->owner_kind)
			return owner;
	}
	return NULL;
}

struct hf_owner *hf_owner_make(struct hf_locks *locks, uint64_t hash, const struct hf_lock_target *who)
{
	struct hf_owner *owner = hf_pool_take(&locks->owner_pool);

	owner->client = who->client;
	owner->id = who->owner_id;
	owner->kind = who->owner_kind;
	owner->seq = ++locks->last_owner;
	owner->n_holdings = owner->n_waiters = 0;
	owner->holdings = (struct hf_rb_tree){ 0 };
	owner->newest = NULL;
	owner->walk = 0;
	owner->walk_next = NULL;
	owner->first.file = NULL;
	owner->oh.big = NULL;
	owner->oh.len = 0;
	hf_rb_append(&who->client->owners, &owner->in_client);
	hf_hashtable_insert(&locks->owners, &owner->node, hash);
	hf_room_use(locks, owner->client, HF_COST_OWNER);
	locks->n.owners++;
	return owner;
}

void hf_owner_free_if_empty(struct hf_locks *locks, struct hf_owner *owner)
{
	if (owner->n_holdings)
		return;
	assert(!owner->n_waiters);
	if (locks->recent->owner == owner)
		locks->recent->owner = NULL;
	hf_oh_deinit(locks, owner->client, &owner->oh);
	hf_room_use(locks, owner->client, -(int64_t)HF_COST_OWNER);
	hf_rb_erase(&owner->client->owners, &owner->in_client, NULL);
	hf_hashtable_remove(&locks->owners, &owner->node);
	hf_pool_give(&locks->owner_pool, owner);
	locks->n.owners--;
}
