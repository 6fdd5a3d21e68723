/*
 * Owners and holdings. An owner is found by a keyed hash of (client, id, kind)
 * and hangs in its client by order of creation. A holding, what an owner has in
 * one file, hangs in its owner by the file's id; one of them has its memory
 * there, too. Both exist only while there is something to hold or to wait for.
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
	/* memmove, since gcc makes of a short memcpy an inline "rep movs", which costs 30 ns. */
	if (bytes.len)
		memmove(oh->big ? oh->big : oh->room, bytes.data, bytes.len);
}

void hf_oh_renew(struct hf_locks *locks, struct hf_lock_client *client, struct hf_oh *oh,
		 struct hf_bytes bytes)
{
	if (oh->big || hf_room_for_oh(locks, client, bytes))
		hf_oh_set(locks, client, oh, bytes);
}

struct hf_bytes hf_oh_bytes(const struct hf_oh *oh)
{
	return hf_bytes_of(oh->big ? oh->big : oh->room, oh->len);
}

/* OWNER */

static uint64_t owner_hash(const struct hf_locks *locks, const struct hf_lock_target *who)
{
	const uint64_t key[] = { who->client->id, who->owner_id, who->owner_kind };

	return hf_siphash(&locks->key, key, sizeof(key));
}

static struct hf_owner *owner_find(const struct hf_locks *locks, uint64_t hash,
				   const struct hf_lock_target *who)
{
	hf_hash_for_each(node, &locks->owners, hash) {
		struct hf_owner *owner = hf_container_of(node, struct hf_owner, node);

		if (owner->client == who->client && owner->id == who->owner_id &&
		    owner->kind == who->owner_kind)
			return owner;
	}
	return NULL;
}

static struct hf_owner *owner_make(struct hf_locks *locks, uint64_t hash, const struct hf_lock_target *who)
{
	struct hf_owner *owner = hf_pool_take(&locks->owner_pool);
	struct hf_rb_node **link = &who->client->owners.root, *parent = NULL;

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
	while (*link) {
		parent = *link;
		link = &parent->right;
	}
	hf_rb_insert(&who->client->owners, &owner->in_client, parent, link, NULL);
	hf_hashtable_insert(&locks->owners, &owner->node, hash);
	hf_room_use(locks, owner->client, HF_COST_OWNER);
	locks->n.owners++;
	return owner;
}

static void owner_settle(struct hf_locks *locks, struct hf_owner *owner)
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

/* HOLDING */

static struct hf_holding *holding_of(struct hf_rb_node *node)
{
	return hf_rb_entry(node, struct hf_holding, in_owner);
}

struct hf_holding *hf_holding_find(const struct hf_owner *owner, const struct hf_file *file)
{
	struct hf_rb_node *node = owner->holdings.root;

	if (HF_LIKELY(owner->first.file == file))
		return (struct hf_holding *)(uintptr_t)&owner->first;
	if (owner->newest && file->id >= owner->newest_file)
		return file->id == owner->newest_file ? owner->newest : NULL;
	while (node) {
		struct hf_holding *holding = holding_of(node);

		if (holding->file == file)
			return holding;
		node = file->id < holding->file->id ? node->left : node->right;
	}
	return NULL;
}

static void insert_holding(struct hf_owner *owner, struct hf_holding *holding)
{
	struct hf_rb_node **link = &owner->holdings.root, *parent = NULL;
	uint64_t file = holding->file->id;
	bool is_last = true;

	/* Files are mostly new: their holdings come in order, and nobody has to look for the end. */
	if (owner->newest && file > owner->newest_file) {
		parent = &owner->newest->in_owner;
		link = &parent->right;
	}
	while (*link) {
		bool is_before = file < holding_of(*link)->file->id;

		parent = *link;
		link = is_before ? &parent->left : &parent->right;
		is_last = is_last && !is_before;
	}
	hf_rb_insert(&owner->holdings, &holding->in_owner, parent, link, NULL);
	if (is_last) {
		owner->newest = holding;
		owner->newest_file = file;
	}
}

static struct hf_holding *holding_make(struct hf_locks *locks, struct hf_owner *owner, struct hf_file *file,
				       uint32_t share)
{
	struct hf_holding *holding = owner->first.file ? hf_pool_take(&locks->holding_pool) : &owner->first;

	*holding = (struct hf_holding){ .owner = owner, .file = file, .share = share, .own.of_one = true };
	hf_list_init(&holding->waiters);
	hf_list_init(&holding->grants);
	insert_holding(owner, holding);
	owner->n_holdings++;
	file->n_holdings++;
	hf_room_use(locks, owner->client, HF_COST_HOLDING);
	return holding;
}

void hf_holding_settle(struct hf_locks *locks, struct hf_holding *holding)
{
	struct hf_owner *owner = holding->owner;
	struct hf_file *file = holding->file;

	if (holding->own.n || !hf_list_is_empty(&holding->waiters) || !hf_list_is_empty(&holding->grants))
		return;
	if (locks->recent->holding == holding)
		locks->recent->holding = NULL;
	if (owner->newest == holding)
		owner->newest = NULL;
	hf_rb_erase(&owner->holdings, &holding->in_owner, NULL);
	if (holding == &owner->first)
		holding->file = NULL;
	else
		hf_pool_give(&locks->holding_pool, holding);
	owner->n_holdings--;
	file->n_holdings--;
	hf_room_use(locks, owner->client, -(int64_t)HF_COST_HOLDING);
	owner_settle(locks, owner);
	hf_file_settle(locks, file);
}

/* PLACE */

void hf_recent_init(struct hf_recent *recent)
{
	/* No file and no client is like these. */
	*recent = (struct hf_recent){ .handle_len = UINT16_MAX, .client_id = UINT64_MAX };
}

static void find_file(const struct hf_locks *locks, const struct hf_lock_target *who,
		      struct hf_recent *recent)
{
	struct hf_bytes handle = hf_bytes_of(recent->handle, recent->handle_len);

	if (!hf_bytes_equal(handle, who->handle)) {
		recent->file_hash = hf_file_hash(locks, who->handle);
		recent->file = NULL;
		recent->handle_len = (uint16_t)who->handle.len;
		if (who->handle.len)
			memmove(recent->handle, who->handle.data, who->handle.len);
	}
	if (!recent->file)
		recent->file = hf_file_find(locks, recent->file_hash, who->handle);
}

/* Lets the owner's record come while the file is looked for. */
static void aim_at_owner(const struct hf_locks *locks, const struct hf_lock_target *who,
			 struct hf_recent *recent)
{
	if (recent->client_id == who->client->id && recent->owner_id == who->owner_id &&
	    recent->owner_kind == who->owner_kind)
		return;
	recent->owner_hash = owner_hash(locks, who);
	recent->owner = NULL;
	recent->client_id = who->client->id;
	recent->owner_id = who->owner_id;
	recent->owner_kind = who->owner_kind;
	__builtin_prefetch(*hf_hashtable_chain(&locks->owners, recent->owner_hash));
}

void hf_place_find(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_place *placep)
{
	struct hf_recent *recent = locks->recent;
	struct hf_holding *holding;

	assert(who->handle.len <= HF_LOCK_HANDLE_MAX);
	aim_at_owner(locks, who, recent);
	find_file(locks, who, recent);
	if (!recent->owner)
		recent->owner = owner_find(locks, recent->owner_hash, who);
	holding = recent->holding;
	if (!recent->file || !recent->owner)
		holding = NULL;
	else if (!holding || holding->file != recent->file || holding->owner != recent->owner)
		holding = recent->holding = hf_holding_find(recent->owner, recent->file);
	*placep = (struct hf_place){
		.file_hash = recent->file_hash,
		.owner_hash = recent->owner_hash,
		.file = recent->file,
		.owner = recent->owner,
		.holding = holding,
	};
}

int hf_place_reserve(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_place *place)
{
	int r = hf_oh_reserve(locks, who->oh);

	if (!r && !place->file)
		r = hf_pool_reserve(&locks->file_pool, 1);
	if (!r && !place->owner)
		r = hf_pool_reserve(&locks->owner_pool, 1);
	if (!r && !place->holding)
		r = hf_pool_reserve(&locks->holding_pool, 1);
	return r;
}

void hf_place_make(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_place *place)
{
	if (!place->file)
		place->file = hf_file_make(locks, place->file_hash, who->handle);
	if (place->owner) {
		hf_oh_renew(locks, who->client, &place->owner->oh, who->oh);
	} else {
		place->owner = owner_make(locks, place->owner_hash, who);
		hf_oh_set(locks, who->client, &place->owner->oh, who->oh);
	}
	if (!place->holding)
		place->holding = holding_make(locks, place->owner, place->file, who->share);
	locks->recent->file = place->file; /* it is about this place since hf_place_find() */
	locks->recent->owner = place->owner;
	locks->recent->holding = place->holding;
}
