/*
 * Share reservations (DOS deny modes): may this owner open the file so?
 *
 * The owner of a reservation is a client and an oh. Windows opens a file several
 * times with one oh and closes it as often, so reservations are counted: one record stands for all of an
 * owner's with the same access and deny, at most 16 for an owner in a file. The owner's own reservations
 * never conflict with one another. Reservations affect neither locks nor reading
 * and writing.
 *
 * After a restart of the server a record has two numbers: those that the owner holds
 * (count), and those that were restored and wait to be reclaimed (n_unreclaimed).
 * Both conflict with other owners. A record exists while their sum is not 0.
 *
 * A file may have tens of thousands of records, all of one client's making, so no
 * request walks through them: records are found by a hash, and the file has the sums
 * of what they access and deny. What is not the owner's own of a sum is of others.
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

static struct hf_share *share_of(struct hf_hash_node *node)
{
	return hf_container_of(node, struct hf_share, node);
}

static struct hf_share *find(const struct hf_locks *locks, const struct hf_lock_file *file,
			     const struct hf_lock_target *who, uint8_t access, uint8_t deny)
{
	if (!file || !file->n_share_records)
		return NULL;
	hf_hash_for_each(node, &locks->shares, hash_of(locks, file, who)) {
		struct hf_share *share = share_of(node);

		if (share->access == access && share->deny == deny && share->file == file &&
		    is_owned_by(share, who))
			return share;
	}
	return NULL;
}

static struct hf_share *find_by_handle(const struct hf_locks *locks, const struct hf_lock_target *who,
				       uint8_t access, uint8_t deny)
{
	assert(access < 4 && deny < 4);
	return find(locks, hf_lock_file_of(locks, who->handle), who, access, deny);
}

/* How many reservations this is in the sums of its file. */
static uint32_t weight(const struct hf_share *share)
{
	return share->count + share->n_unreclaimed;
}

/* What the owner's own reservations add to the sums of the file, and their state number. */
struct own {
	uint32_t n_access[2], n_deny[2];
	uint32_t state;
};

static struct own sum_own(const struct hf_locks *locks, const struct hf_lock_file *file,
			  const struct hf_lock_target *who)
{
	struct own own = { 0 };

	if (!file || !file->n_share_records)
		return own;
	hf_hash_for_each(node, &locks->shares, hash_of(locks, file, who)) {
		const struct hf_share *share = share_of(node);

		if (share->file != file || !is_owned_by(share, who))
			continue;
		own.state = share->state;
		for (unsigned int i = 0; i < 2; i++) {
			own.n_access[i] += share->access >> i & 1 ? weight(share) : 0;
			own.n_deny[i] += share->deny >> i & 1 ? weight(share) : 0;
		}
	}
	return own;
}

static bool conflicts_with_others(const struct hf_lock_file *file, const struct own *own, uint8_t access,
				  uint8_t deny)
{
	for (unsigned int i = 0; file && i < 2; i++) {
		if ((access >> i & 1) && file->n_deny[i] > own->n_deny[i])
			return true;
		if ((deny >> i & 1) && file->n_access[i] > own->n_access[i])
			return true;
	}
	return false;
}

static struct hf_share *make(struct hf_locks *locks, struct hf_lock_file *file,
			     const struct hf_lock_target *who, uint8_t access, uint8_t deny)
{
	struct hf_share *share = hf_pool_take(&locks->share_pool);

	memset(share, 0, sizeof(*share));
	share->file = file;
	share->export = who->export;
	share->client = who->client;
	share->access = access;
	share->deny = deny;
	hf_oh_set(locks, who->client, &share->oh, who->oh);
	hf_room_use(locks, who->client, HF_COST_SHARE);
	hf_link_init(&share->unreclaimed);
	hf_list_push_back(&file->shares, &share->in_file);
	hf_list_push_back(&who->client->shares, &share->in_client);
	hf_hashtable_insert(&locks->shares, &share->node, hash_of(locks, file, who));
	file->n_share_records++;
	return share;
}

/* Adds @n to the sums of the file. @n may stand for a negative number. */
static void add_to_sums(struct hf_share *share, uint32_t n)
{
	for (unsigned int i = 0; i < 2; i++) {
		share->file->n_access[i] += share->access >> i & 1 ? n : 0;
		share->file->n_deny[i] += share->deny >> i & 1 ? n : 0;
	}
}

static void count(struct hf_locks *locks, struct hf_share *share, uint32_t n)
{
	share->count += n;
	share->n_unsure = HF_MIN(share->n_unsure, share->count);
	share->file->n_shares += n;
	share->client->n_shares += n;
	share->client->group->n_shares += n;
	locks->n.shares += (uint64_t)(int64_t)(int32_t)n;
	add_to_sums(share, n);
}

static void count_unreclaimed(struct hf_locks *locks, struct hf_share *share, uint32_t n)
{
	if (!share->n_unreclaimed) {
		hf_list_push_back(&locks->unreclaimed_shares, &share->unreclaimed);
		locks->n.unreclaimed_shares++;
		locks->n.outliving += share->client->outlives_grace;
	}
	share->n_unreclaimed += n;
	add_to_sums(share, n);
	if (!share->n_unreclaimed) {
		hf_link_remove(&share->unreclaimed);
		locks->n.unreclaimed_shares--;
		locks->n.outliving -= share->client->outlives_grace;
	}
}

/* Frees @share if it stands for nothing, and then its file if nothing else refers to it. */
static void free_if_empty(struct hf_locks *locks, struct hf_share *share)
{
	struct hf_lock_file *file = share->file;

	if (weight(share))
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

/* The owner has one state number: that of its last request that had one. */
static void set_state(struct hf_locks *locks, const struct hf_lock_file *file,
		      const struct hf_lock_target *who, uint32_t state)
{
	hf_hash_for_each(node, &locks->shares, hash_of(locks, file, who)) {
		struct hf_share *share = share_of(node);

		if (share->file == file && is_owned_by(share, who))
			share->state = state;
	}
}

/* A reclaim takes one that waits for it; a repeated reclaim finds what the one before it took. */
static void take(struct hf_locks *locks, struct hf_share *share, bool reclaim)
{
	if (reclaim && share->n_unsure) {
		share->n_unsure--;
		return;
	}
	if (reclaim && share->n_unreclaimed)
		count_unreclaimed(locks, share, UINT32_MAX);
	count(locks, share, 1);
	hf_emit_share_added(locks, share, reclaim);
}

int hf_lock_share(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access, uint8_t deny,
		  uint32_t client_state, bool reclaim)
{
	uint64_t hash = hf_lock_file_hash(locks, who->handle);
	struct hf_lock_file *file;
	struct hf_share *share;
	struct own own;
	bool is_counted;
	int r;

	assert(!locks->in_event && access < 4 && deny < 4 && who->client->id &&
	       who->oh.len <= HF_LOCK_OH_MAX);
	if (locks->is_grace && !reclaim)
		return HF_LOCK_E_GRACE;
	file = hf_lock_file_find(locks, hash, who->handle);
	share = find(locks, file, who, access, deny);
	own = sum_own(locks, file, who);
	if (conflicts_with_others(file, &own, access, deny))
		return HF_LOCK_E_CONFLICT;
	/* What was restored is counted already. */
	is_counted = reclaim && share && (share->n_unreclaimed || share->n_unsure);
	if (!is_counted && !hf_room_for_share(locks, file, who, !share))
		return HF_LOCK_E_LIMIT;
	r = reserve(locks, who, file, share);
	if (r < 0)
		return hf_trace(r);
	if (!file)
		file = hf_lock_file_make(locks, hash, who->handle);
	if (!share)
		share = make(locks, file, who, access, deny);
	set_state(locks, file, who, client_state ? client_state : own.state);
	take(locks, share, reclaim);
	return HF_LOCK_OK;
}

int hf_lock_unshare(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access, uint8_t deny)
{
	struct hf_share *share = find_by_handle(locks, who, access, deny);

	assert(!locks->in_event);
	if (!share)
		return HF_LOCK_OK;
	if (share->count)
		count(locks, share, UINT32_MAX);
	else
		count_unreclaimed(locks, share, UINT32_MAX);
	hf_emit_share_removed(locks, share, 1, HF_LOCK_CAUSE_REQUEST);
	free_if_empty(locks, share);
	return HF_LOCK_OK;
}

bool hf_lock_find_share(const struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access,
			uint8_t deny, struct hf_lock_share_view *viewp)
{
	const struct hf_share *share = find_by_handle(locks, who, access, deny);

	if (share)
		hf_view_share(share, viewp);
	return share != NULL;
}

uint32_t hf_lock_count_shares(const struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access,
			      uint8_t deny)
{
	const struct hf_share *share = find_by_handle(locks, who, access, deny);

	return share ? share->count : 0;
}

/* RESTART */

int hf_lock_restore_share(struct hf_locks *locks, const struct hf_lock_share_view *view)
{
	const struct hf_lock_target who = {
		.export = view->export, .handle = view->handle, .client = view->client, .oh = view->oh
	};
	uint64_t hash = hf_lock_file_hash(locks, view->handle);
	struct hf_lock_file *file = hf_lock_file_find(locks, hash, view->handle);
	const struct own own = sum_own(locks, file, &who);
	struct hf_share *share;
	int r;

	assert(!locks->in_event && view->access < 4 && view->deny < 4 && view->count);
	if (find(locks, file, &who, view->access, view->deny) ||
	    conflicts_with_others(file, &own, view->access, view->deny))
		return HF_LOCK_E_CONFLICT;
	r = reserve(locks, &who, file, NULL);
	if (r < 0)
		return hf_trace(r);
	if (!file)
		file = hf_lock_file_make(locks, hash, view->handle);
	share = make(locks, file, &who, view->access, view->deny);
	share->state = view->client_state;
	share->tag = view->tag;
	count_unreclaimed(locks, share, view->count);
	return HF_LOCK_OK;
}

void hf_lock_doubt_share(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access,
			 uint8_t deny)
{
	struct hf_share *share = find_by_handle(locks, who, access, deny);

	if (share && share->n_unsure < share->count)
		share->n_unsure++;
}

static void drop(struct hf_locks *locks, struct hf_share *share)
{
	uint32_t n = share->n_unreclaimed;

	count_unreclaimed(locks, share, -n);
	hf_emit_share_removed(locks, share, n, HF_LOCK_CAUSE_EXPIRY);
	free_if_empty(locks, share);
}

void hf_share_drop_unreclaimed(struct hf_locks *locks, struct hf_lock_client *client)
{
	if (client) {
		hf_list_for_each_safe(pos, &client->shares) {
			struct hf_share *share = hf_list_entry(pos, struct hf_share, in_client);

			if (share->n_unreclaimed)
				drop(locks, share);
		}
		return;
	}
	hf_list_for_each_safe(pos, &locks->unreclaimed_shares) {
		struct hf_share *share = hf_list_entry(pos, struct hf_share, unreclaimed);

		if (!share->client->outlives_grace)
			drop(locks, share);
	}
}

/* CRASH */

static void purge_share(struct hf_locks *locks, struct hf_share *share)
{
	uint32_t n = weight(share);

	count(locks, share, -share->count);
	if (share->n_unreclaimed)
		count_unreclaimed(locks, share, -share->n_unreclaimed);
	hf_emit_share_removed(locks, share, n, HF_LOCK_CAUSE_CRASH);
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

/* WALK */

void hf_lock_tag_all_shares(struct hf_locks *locks,
			    uint64_t (*fn)(void *context, const struct hf_lock_share_view *share),
			    void *context)
{
	struct hf_lock_share_view view;

	locks->in_event = true;
	for (struct hf_rb_node *node = hf_rb_first(&locks->by_id); node; node = hf_rb_next(node)) {
		hf_list_for_each(pos, &hf_rb_entry(node, struct hf_lock_file, by_id)->shares) {
			struct hf_share *share = hf_list_entry(pos, struct hf_share, in_file);

			hf_view_share(share, &view);
			share->tag = fn(context, &view);
		}
	}
	locks->in_event = false;
}
