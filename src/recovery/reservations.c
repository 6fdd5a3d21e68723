/*
 * Share reservations in the store, and those that a restart has found there.
 *
 * The lock table does not know of loaded ones, since nobody gets a new one while
 * grace lasts; they are kept here until they come back, so that grace does not
 * end before. One record stands for all equal reservations of an owner (DOS
 * programs open a file several times); it carries their number.
 *
 * In the store a record is:
 *
 *	u8 access deny   u16 lengths of share handle client oh   u32 count   i32 state   then those bytes
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/le.h"
#include "base/log.h"
#include "recovery/internal.h"

#define HEADER 18

struct reservation {
	struct hf_hash_node node;
	struct hf_link link;        /* of all */
	struct hf_link unreclaimed; /* while n_missing */
	struct hf_link in_client;
	struct hf_client *client; /* a reference */
	uint64_t store_id;        /* 0: not stored */
	bool is_unsaved;          /* as it is now */
	uint32_t share;
	uint32_t count;     /* in the lock table */
	uint32_t n_missing; /* loaded, and not come back */
	uint32_t n_unsure;  /* of count: come back, and their owner was told to ask again */
	int32_t state;
	uint8_t access, deny, handle_len;
	uint16_t oh_len;
	uint8_t handle[HF_LOCK_HANDLE_MAX];
	uint8_t oh[];
};

/* Finding */

static uint64_t hash_of(const struct hf_recovery *recovery, const struct hf_lock_share_view *view)
{
	uint64_t parts[4] = {
		view->client->id,
		(uint64_t)view->access << 8 | view->deny,
		hf_siphash(&recovery->key, view->handle.data, view->handle.len),
		hf_siphash(&recovery->key, view->oh.data, view->oh.len),
	};

	return hf_siphash(&recovery->key, parts, sizeof(parts));
}

static bool is_same(const struct reservation *it, const struct hf_lock_share_view *view)
{
	return &it->client->holds == view->client && it->access == view->access && it->deny == view->deny &&
	       hf_bytes_equal(hf_bytes_of(it->handle, it->handle_len), view->handle) &&
	       hf_bytes_equal(hf_bytes_of(it->oh, it->oh_len), view->oh);
}

static struct reservation *find(const struct hf_recovery *recovery, const struct hf_lock_share_view *view)
{
	hf_hash_for_each(node, &recovery->reservations.table, hash_of(recovery, view)) {
		struct reservation *it = hf_container_of(node, struct reservation, node);

		if (is_same(it, view))
			return it;
	}
	return NULL;
}

static struct reservation *make(struct hf_recovery *recovery, const struct hf_lock_share_view *view)
{
	struct reservation *it = calloc(1, sizeof(*it) + view->oh.len);

	if (!it)
		return NULL;
	assert(view->handle.len <= sizeof(it->handle) && view->oh.len <= HF_LOCK_OH_MAX);
	it->client = hf_client_ref(hf_client_of(view->client));
	it->share = view->share;
	it->access = view->access;
	it->deny = view->deny;
	it->handle_len = (uint8_t)view->handle.len;
	it->oh_len = (uint16_t)view->oh.len;
	memcpy(it->handle, view->handle.data, view->handle.len);
	if (view->oh.len)
		memcpy(it->oh, view->oh.data, view->oh.len);
	hf_link_init(&it->unreclaimed);
	hf_list_push_back(&recovery->reservations.all, &it->link);
	hf_list_push_back(&it->client->reservations, &it->in_client);
	hf_hashtable_insert(&recovery->reservations.table, &it->node, hash_of(recovery, view));
	return it;
}

static void forget(struct hf_recovery *recovery, struct reservation *it)
{
	hf_hashtable_remove(&recovery->reservations.table, &it->node);
	hf_link_remove(&it->unreclaimed);
	hf_link_remove(&it->link);
	hf_link_remove(&it->in_client);
	hf_client_unref(it->client);
	free(it);
}

/* As bytes */

static uint32_t encode(struct hf_recovery *recovery, const struct reservation *it,
		       uint8_t blob[HF_STORE_MAX_BLOB])
{
	struct hf_bytes parts[4] = {
		hf_recovery_share_name(recovery, it->share),
		hf_bytes_of(it->handle, it->handle_len),
		hf_bytes_of_str(it->client->id),
		hf_bytes_of(it->oh, it->oh_len),
	};
	uint8_t *p = blob;

	*p++ = it->access;
	*p++ = it->deny;
	for (size_t i = 0; i < HF_ARRAY_SIZE(parts); i++)
		p = hf_le_put16(p, parts[i].len);
	p = hf_le_put32(p, it->count + it->n_missing);
	p = hf_le_put32(p, (uint32_t)it->state);
	for (size_t i = 0; i < HF_ARRAY_SIZE(parts); i++)
		p = hf_le_put_bytes(p, parts[i]);
	return (uint32_t)(p - blob);
}

struct decoded {
	uint8_t access, deny;
	uint32_t count;
	int32_t state;
	struct hf_bytes parts[4]; /* share, handle, client, oh */
};

static bool decode(struct decoded *out, struct hf_bytes blob)
{
	size_t at = HEADER;

	if (blob.len < HEADER)
		return false;
	out->access = blob.data[0];
	out->deny = blob.data[1];
	for (size_t i = 0; i < 4; i++) {
		uint32_t len = hf_le_get16(blob.data + 2 + 2 * i);

		if (len > blob.len - at)
			return false;
		out->parts[i] = hf_bytes_of(blob.data + at, len);
		at += len;
	}
	out->count = hf_le_get32(blob.data + 10);
	out->state = (int32_t)hf_le_get32(blob.data + 14);
	return at == blob.len && out->access <= 3 && out->deny <= 3 && out->count > 0 &&
	       out->parts[1].len <= HF_LOCK_HANDLE_MAX && out->parts[3].len <= HF_LOCK_OH_MAX;
}

/* Writing */

static int save(struct hf_recovery *recovery, struct reservation *it)
{
	uint8_t blob[HF_STORE_MAX_BLOB];
	struct hf_store_share fact = {
		.id = it->store_id ? it->store_id : hf_store_new_id(recovery->store),
		.blob = { blob, encode(recovery, it, blob) },
	};
	int r = hf_store_put_share(recovery->store, &fact, &recovery->persist.ticket);

	if (r < 0)
		return r;
	it->store_id = fact.id;
	it->is_unsaved = false;
	return 0;
}

static void note_unsaved(struct hf_recovery *recovery, int r)
{
	recovery->persist.has_unsaved = true;
	hf_promises_look(recovery);
	if (r != -EROFS)
		hf_timer_start(&recovery->persist.save_timer, HF_NS_PER_S);
}

static void save_or_note(struct hf_recovery *recovery, struct reservation *it)
{
	int r = save(recovery, it);

	if (r == 0)
		return;
	it->is_unsaved = true;
	note_unsaved(recovery, r);
}

static void settle(struct hf_recovery *recovery, struct reservation *it)
{
	if (it->count + it->n_missing) {
		if (recovery->persist.keeps)
			save_or_note(recovery, it);
		return;
	}
	if (it->store_id && hf_persist_delete(recovery, it->store_id, true) < 0)
		hf_log_error("a share reservation that is released stays in the store", "client=%s",
			     it->client->id);
	forget(recovery, it);
}

static void came_back(struct hf_recovery *recovery, struct reservation *it, uint32_t n)
{
	if (it->n_missing == 0)
		return;
	it->n_missing -= HF_MIN(n, it->n_missing);
	if (it->n_missing)
		return;
	hf_link_remove(&it->unreclaimed);
	recovery->reservations.n_unreclaimed--;
	hf_grace_look(recovery);
}

void hf_reservations_added(struct hf_recovery *recovery, const struct hf_lock_share_view *view)
{
	struct reservation *it;

	if (!recovery->persist.keeps)
		return;
	it = find(recovery, view);
	if (!it)
		it = make(recovery, view);
	if (!it) {
		note_unsaved(recovery, -ENOMEM);
		return;
	}
	came_back(recovery, it, view->count > it->count ? view->count - it->count : 0);
	it->count = view->count;
	it->state = (int32_t)view->client_state;
	save_or_note(recovery, it);
}

void hf_reservations_removed(struct hf_recovery *recovery, const struct hf_lock_share_view *view)
{
	struct reservation *it = find(recovery, view);

	if (!it)
		return;
	it->count = view->count;
	it->n_unsure = HF_MIN(it->n_unsure, it->count);
	settle(recovery, it);
}

static void remember_missing(struct hf_recovery *recovery, const struct reservation *it)
{
	const struct hf_lock_share_view missing = {
		.handle = hf_bytes_of(it->handle, it->handle_len),
		.client = &it->client->holds,
		.oh = hf_bytes_of(it->oh, it->oh_len),
		.access = it->access,
		.deny = it->deny,
		.count = it->n_missing,
	};

	hf_late_reclaim_remember_shares(recovery, &missing);
}

static void drop(struct hf_recovery *recovery, struct reservation *it)
{
	if (recovery->late_reclaims.is_dropping)
		remember_missing(recovery, it);
	came_back(recovery, it, it->n_missing);
	settle(recovery, it);
}

void hf_reservations_drop(struct hf_recovery *recovery, struct hf_client *client, int32_t state)
{
	struct hf_link *link;

	if (!client) {
		while ((link = hf_list_first(&recovery->reservations.unreclaimed)))
			drop(recovery, hf_list_entry(link, struct reservation, unreclaimed));
		return;
	}
	hf_list_for_each_safe(pos, &client->reservations) {
		struct reservation *it = hf_list_entry(pos, struct reservation, in_client);

		if (it->n_missing && (!state || it->state != state))
			drop(recovery, it);
	}
}

/* The lock table is asked: where locks are not stored nobody else knows. */
static uint32_t count_held(const struct hf_recovery *recovery, const struct hf_lock_share_view *share)
{
	const struct hf_lock_target who = { .handle = share->handle,
					    .client = share->client,
					    .oh = share->oh };

	return hf_lock_count_shares(recovery->locks, &who, share->access, share->deny);
}

/* Reclaims. They are counted, so what is answered twice must not be added twice; but where we do not know how
 * many there were, one too many is the lesser evil: it stands in others' way until its owner is gone. */
enum hf_recovery_reclaim hf_recovery_reclaim_share(struct hf_recovery *recovery,
						   const struct hf_lock_share_view *share)
{
	struct reservation *it = find(recovery, share);

	if (it && it->n_unsure) {
		it->n_unsure--;
		return HF_RECLAIM_BACKED;
	}
	if (!recovery->grace.is_complete || (it && it->n_missing))
		return HF_RECLAIM_NORMAL;
	if (!recovery->grace.is_active && hf_late_reclaim_allows_share(recovery, share)) {
		recovery->counts.late_reclaims++;
		return HF_RECLAIM_LATE;
	}
	if (count_held(recovery, share))
		return HF_RECLAIM_BACKED;
	return HF_RECLAIM_REFUSED;
}

/* Where locks are not stored there are records of these alone. */
static struct reservation *find_unsure(struct hf_recovery *recovery, const struct hf_lock_share_view *share)
{
	uint32_t n = count_held(recovery, share);
	struct reservation *it = find(recovery, share);

	if (recovery->persist.keeps || !n)
		return it;
	if (!it)
		it = make(recovery, share);
	if (it)
		it->count = n;
	return it;
}

void hf_recovery_unsure_share(struct hf_recovery *recovery, const struct hf_lock_share_view *share)
{
	struct reservation *it = find_unsure(recovery, share);

	if (it && it->n_unsure < it->count)
		it->n_unsure++;
}

bool hf_recovery_unshare(struct hf_recovery *recovery, const struct hf_lock_share_view *share)
{
	struct reservation *it = find(recovery, share);

	if (it && it->count)
		return false;
	if (!it || !it->n_missing)
		return hf_late_reclaim_share_settled(recovery, share);
	came_back(recovery, it, 1);
	settle(recovery, it);
	return true;
}

int hf_reservations_save(struct hf_recovery *recovery)
{
	hf_list_for_each(pos, &recovery->reservations.all) {
		struct reservation *it = hf_list_entry(pos, struct reservation, link);
		int r = it->is_unsaved ? save(recovery, it) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

void hf_reservations_resync(struct hf_recovery *recovery)
{
	uint8_t blob[HF_STORE_MAX_BLOB];

	if (!recovery->persist.keeps)
		return;
	hf_list_for_each(pos, &recovery->reservations.all) {
		struct reservation *it = hf_list_entry(pos, struct reservation, link);
		struct hf_store_share fact = { .blob = { blob, encode(recovery, it, blob) } };

		if (!it->store_id)
			it->store_id = hf_store_new_id(recovery->store);
		fact.id = it->store_id;
		it->is_unsaved = false;
		hf_store_resync_share(recovery->store, &fact); /* the store knows of its own failures */
	}
}

/* Loading. Whoever was told that he has one is registered; a reservation without its client was never
 * promised. */

int hf_reservations_load(struct hf_recovery *recovery, const struct hf_store_share *share)
{
	struct hf_reservations *reservations = &recovery->reservations;
	hf_cleanup(hf_client_unrefp) struct hf_client *client = NULL;
	struct hf_lock_share_view view = { 0 };
	uint8_t room[HF_LOCK_HANDLE_MAX];
	struct reservation *it;
	struct decoded fact;

	if (!decode(&fact, share->blob))
		return HF_RESERVATION_WRONG;
	client = hf_clients_find_id(recovery->clients, fact.parts[2]);
	if (!client)
		return HF_RESERVATION_WRONG;
	if (!recovery->shares.find(recovery->shares.user, fact.parts[0], &view.share))
		return HF_RESERVATION_ELSEWHERE;
	view.client = &client->holds;
	view.handle = hf_recovery_key_of(recovery, view.share, fact.parts[1], room);
	if (hf_recovery_is_foreign(recovery, view.handle))
		return HF_RESERVATION_FOREIGN;
	view.oh = fact.parts[3];
	view.access = fact.access;
	view.deny = fact.deny;
	if (find(recovery, &view))
		return HF_RESERVATION_WRONG;
	it = make(recovery, &view);
	if (!it)
		return hf_trace(-ENOMEM);
	it->store_id = share->id;
	it->state = hf_client_stored_number(fact.state);
	it->n_missing = fact.count;
	hf_list_push_back(&reservations->unreclaimed, &it->unreclaimed);
	reservations->n_unreclaimed++;
	return 0;
}

/* Life */

int hf_reservations_init(struct hf_recovery *recovery)
{
	hf_list_init(&recovery->reservations.all);
	hf_list_init(&recovery->reservations.unreclaimed);
	return hf_trace(hf_hashtable_init(&recovery->reservations.table));
}

void hf_reservations_deinit(struct hf_recovery *recovery)
{
	struct hf_link *link;

	while ((link = hf_list_first(&recovery->reservations.all)))
		forget(recovery, hf_list_entry(link, struct reservation, link));
	hf_hashtable_deinit(&recovery->reservations.table);
}
