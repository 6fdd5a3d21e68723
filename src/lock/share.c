/*
 * Share reservations (DOS deny modes): may this owner open the file so?
 *
 * The owner of a reservation is a client and an oh. Windows opens a file several
 * times with one oh and closes it as often, so each owner has a count for each pair
 * (access, deny). An owner's reservations never conflict with each other. A record
 * exists while the sum of its counts is not 0. Reservations affect neither locks nor
 * reading and writing.
 *
 * One client can make tens of thousands of reservations in a file, so no request
 * walks through them. A hash finds a record. The file has the sum of all its
 * reservations: what is not the owner's own belongs to other owners.
 */
#include "lock/internal.h"

#include <string.h>

#include "base/error.h"

static bool is_owned_by(const struct hf_share *share, const struct hf_lock_target *who)
{
	return share->client == who->client && hf_bytes_equal(hf_oh_bytes(&share->oh), who->oh);
}

static uint64_t hash_of(const struct hf_locks *locks, const struct hf_lock_file *file,
			const struct hf_lock_target *who)
{
	const uint64_t parts[] = { file->id, who->client->id,
				   hf_siphash(&locks->key, who->oh.data, who->oh.len) };

	return hf_siphash(&locks->key, parts, sizeof(parts));
}

static struct hf_share *find(const struct hf_locks *locks, const struct hf_lock_file *file,
			     const struct hf_lock_target *who)
{
	if (!file->n_share_records)
		return NULL;
	hf_hash_for_each(node, &locks->shares, hash_of(locks, file, who)) {
		struct hf_share *share = hf_container_of(node, struct hf_share, node);

		if (share->file == file && is_owned_by(share, who))
			return share;
	}
	return NULL;
}

/* How many of the owner's reservations have @bit in their access, or (@in_deny) in what they deny? */
static uint32_t count_own(const struct hf_share *own, unsigned int bit, bool in_deny)
{
	uint32_t n = 0;

	for (unsigned int i = 0; own && i < 16; i++)
		if ((in_deny ? i % 4 : i / 4) & bit)
			n += own->count[i / 4][i % 4];
	return n;
}

static bool conflicts_with_others(const struct hf_lock_file *file, const struct hf_share *own, uint8_t access,
				  uint8_t deny)
{
	for (unsigned int i = 0; i < 2; i++) {
		unsigned int bit = 1U << i;

		if ((access & bit) && file->n_deny[i] > count_own(own, bit, true))
			return true;
		if ((deny & bit) && file->n_access[i] > count_own(own, bit, false))
			return true;
	}
	return false;
}

static struct hf_share *make(struct hf_locks *locks, struct hf_lock_file *file,
			     const struct hf_lock_target *who)
{
	struct hf_share *share = hf_pool_take(&locks->share_pool);

	memset(share, 0, sizeof(*share));
	share->file = file;
	share->share = who->share;
	share->client = who->client;
	hf_oh_set(locks, who->client, &share->oh, who->oh);
	hf_room_use(locks, who->client, HF_COST_SHARE);
	hf_list_push_back(&file->shares, &share->in_file);
	hf_list_push_back(&who->client->shares, &share->in_client);
	hf_hashtable_insert(&locks->shares, &share->node, hash_of(locks, file, who));
	file->n_share_records++;
	return share;
}

/* Adds @n to every counter of the reservation. A negative number arrives as its two's complement. */
static void count(struct hf_locks *locks, struct hf_share *share, uint8_t access, uint8_t deny, uint32_t n)
{
	share->count[access][deny] += n;
	share->n += n;
	share->file->n_shares += n;
	for (unsigned int i = 0; i < 2; i++) {
		share->file->n_access[i] += access >> i & 1 ? n : 0;
		share->file->n_deny[i] += deny >> i & 1 ? n : 0;
	}
	share->client->n_shares += n;
	share->client->group->n_shares += n;
	locks->n.shares += (uint64_t)(int64_t)(int32_t)n;
}

/* Frees @share if its counts are all 0, and then its file if nothing else refers to it. */
static void free_if_empty(struct hf_locks *locks, struct hf_share *share)
{
	struct hf_lock_file *file = share->file;

	if (share->n)
		return;
	hf_hashtable_remove(&locks->shares, &share->node);
	hf_link_remove(&share->in_file);
	hf_link_remove(&share->in_client);
	hf_oh_deinit(locks, share->client, &share->oh);
	hf_room_use(locks, share->client, -(int64_t)HF_COST_SHARE);
	hf_pool_give(&locks->share_pool, share);
	file->n_share_records--;
	hf_lock_file_free_if_unused(locks, file);
}

static int reserve(struct hf_locks *locks, const struct hf_lock_target *who, const struct hf_lock_file *file,
		   const struct hf_share *share)
{
	int r = 0;

	if (!share)
		r = hf_pool_reserve(&locks->share_pool, 1);
	if (!r && !share)
		r = hf_oh_reserve(locks, who->oh);
	if (!r && !file)
		r = hf_pool_reserve(&locks->file_pool, 1);
	return r;
}

int hf_lock_share(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access, uint8_t deny,
		  uint32_t client_state, bool reclaim)
{
	uint64_t hash = hf_lock_file_hash(locks, who->handle);
	struct hf_lock_file *file;
	struct hf_share *share;
	int r;

	assert(!locks->in_event && access < 4 && deny < 4 && who->client->id &&
	       who->oh.len <= HF_LOCK_OH_MAX);
	if (locks->is_grace && !reclaim)
		return HF_LOCK_E_GRACE;
	file = hf_lock_file_find(locks, hash, who->handle);
	share = file ? find(locks, file, who) : NULL;
	if (file && conflicts_with_others(file, share, access, deny))
		return HF_LOCK_E_CONFLICT;
	if (!hf_room_for_share(locks, file, who, !share))
		return HF_LOCK_E_LIMIT;
	r = reserve(locks, who, file, share);
	if (r < 0)
		return hf_trace(r);
	if (!file)
		file = hf_lock_file_make(locks, hash, who->handle);
	if (!share)
		share = make(locks, file, who);
	if (client_state)
		share->state = client_state;
	count(locks, share, access, deny, 1);
	hf_emit_share(locks, share, access, deny, reclaim, locks->events->share_added);
	return HF_LOCK_OK;
}

int hf_lock_unshare(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access, uint8_t deny)
{
	struct hf_lock_file *file = hf_lock_file_of(locks, who->handle);
	struct hf_share *share = file ? find(locks, file, who) : NULL;

	assert(!locks->in_event && access < 4 && deny < 4);
	if (!share || !share->count[access][deny])
		return HF_LOCK_OK;
	count(locks, share, access, deny, UINT32_MAX);
	hf_emit_share(locks, share, access, deny, false, locks->events->share_removed);
	free_if_empty(locks, share);
	return HF_LOCK_OK;
}

uint32_t hf_lock_count_shares(const struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access,
			      uint8_t deny)
{
	const struct hf_lock_file *file = hf_lock_file_of(locks, who->handle);
	const struct hf_share *share = file ? find(locks, file, who) : NULL;

	assert(access < 4 && deny < 4);
	return share ? share->count[access][deny] : 0;
}

static void purge_share(struct hf_locks *locks, struct hf_share *share)
{
	for (uint8_t a = 0; a < 4; a++) {
		for (uint8_t d = 0; d < 4; d++) {
			uint32_t n = share->count[a][d];

			if (!n)
				continue;
			count(locks, share, a, d, -n);
			hf_emit_share(locks, share, a, d, false, locks->events->share_removed);
		}
	}
	free_if_empty(locks, share);
}

void hf_share_purge(struct hf_locks *locks, struct hf_lock_client *client, bool all, uint32_t state,
		    uint32_t also)
{
	hf_list_for_each_safe(pos, &client->shares) {
		struct hf_share *share = hf_list_entry(pos, struct hf_share, in_client);

		if (all || share->state == 0 || (share->state != state && share->state != also))
			purge_share(locks, share);
	}
}
