/*
 * Stored waiters return to their queues.
 *
 * A run that goes on where the last one ended still owes every waiter its call. The
 * waiters are read with the locks, but they enter the lock table only when their protocol
 * is there, which alone understands the route of a grant.
 *
 *	granted, not answered  first: the waiter gets its lock again, and its client is
 *	                       called again, with the same cookie
 *	waiting                then: in the order in which they came
 *
 * They are queued before any call is served, and grants are paused until the server serves:
 * only then are clients called. A run that starts over deletes the stored waiters: their
 * clients ask again after they have reclaimed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/le.h"
#include "base/log.h"
#include "recovery/internal.h"

struct loaded {
	struct hf_link link;
	struct hf_hash_node node; /* in grants, if it is one that can be restored */
	uint8_t key_len;          /* of that grant: the file as the lock table knows it */
	uint8_t key[HF_LOCK_HANDLE_MAX];
	struct hf_store_waiter fact; /* its bytes are in @bytes */
	uint8_t bytes[];
};

static struct hf_bytes copy(uint8_t **to, struct hf_bytes bytes)
{
	struct hf_bytes mine = hf_bytes_of(*to, bytes.len);

	if (bytes.len)
		memcpy(*to, bytes.data, bytes.len);
	*to += bytes.len;
	return mine;
}

static bool is_possible(const struct hf_store_lock *wants)
{
	return hf_range_is_valid((struct hf_range){ wants->start, wants->end }) &&
	       wants->handle.len <= HF_LOCK_HANDLE_MAX && wants->oh.len <= HF_LOCK_OH_MAX &&
	       (wants->mode == HF_LOCK_SHARED || wants->mode == HF_LOCK_EXCLUSIVE);
}

/* False: it names nothing that is there. */
static bool find_file(struct hf_recovery *recovery, const struct hf_store_lock *wants, uint32_t *exportp,
		      uint8_t room[HF_LOCK_HANDLE_MAX], struct hf_bytes *keyp)
{
	if (!is_possible(wants) || !recovery->exports.find(recovery->exports.user, wants->export, exportp))
		return false;
	*keyp = hf_export_names_key_of(recovery, *exportp, wants->handle, room);
	return keyp->len != 0;
}

static uint64_t hash_of(const struct hf_recovery *recovery, struct hf_bytes client, uint64_t owner,
			struct hf_bytes key)
{
	uint8_t bytes[16 + HF_LOCK_HANDLE_MAX];
	uint8_t *p = hf_le_put64(bytes, hf_siphash(&recovery->key, client.data, client.len));

	p = hf_le_put_bytes(hf_le_put64(p, owner), key);
	return hf_siphash(&recovery->key, bytes, (size_t)(p - bytes));
}

/* The export of a grant may not be that of the owner's locks, and have gone alone. */
static void note_grant(struct hf_recovery *recovery, struct loaded *loaded)
{
	const struct hf_store_lock *wants = &loaded->fact.wants;
	uint8_t room[HF_LOCK_HANDLE_MAX];
	struct hf_bytes key;
	uint32_t export;

	if (!find_file(recovery, wants, &export, room, &key))
		return;
	loaded->key_len = (uint8_t)key.len;
	memcpy(loaded->key, key.data, key.len);
	hf_hashtable_insert(&recovery->waiting.grants, &loaded->node,
			    hash_of(recovery, wants->client, wants->owner, key));
}

static int load_waiter(void *user, const struct hf_store_waiter *fact)
{
	struct hf_recovery *recovery = user;
	const struct hf_store_lock *wants = &fact->wants;
	struct loaded *loaded = malloc(sizeof(*loaded) + wants->export.len + wants->handle.len +
				       wants->client.len + wants->oh.len + fact->route.len);
	uint8_t *to;

	if (!loaded)
		return hf_trace(-ENOMEM);
	to = loaded->bytes;
	loaded->fact = *fact;
	loaded->fact.wants.export = copy(&to, wants->export);
	loaded->fact.wants.handle = copy(&to, wants->handle);
	loaded->fact.wants.client = copy(&to, wants->client);
	loaded->fact.wants.oh = copy(&to, wants->oh);
	loaded->fact.route = copy(&to, fact->route);
	hf_list_push_back(&recovery->waiting.loaded, &loaded->link);
	if (fact->is_granted)
		note_grant(recovery, loaded);
	return 0;
}

static void forget(struct hf_recovery *recovery, struct loaded *loaded)
{
	hf_persist_delete(recovery, (struct hf_persist_record){ loaded->fact.wants.id, HF_PERSIST_WAITER });
}

int hf_waiting_load(struct hf_recovery *recovery)
{
	int r = hf_hashtable_init(&recovery->waiting.grants);

	return r < 0 ? hf_trace(r) : hf_store_load_waiters(recovery->store, load_waiter, recovery);
}

int hf_waiting_visit(struct hf_recovery *recovery, int (*fn)(void *user, const struct hf_store_lock *wants),
		     void *user)
{
	int r = 0;

	hf_list_for_each(pos, &recovery->waiting.loaded) {
		r = fn(user, &hf_list_entry(pos, struct loaded, link)->fact.wants);
		if (r)
			break;
	}
	return r;
}

void hf_waiting_forget(struct hf_recovery *recovery)
{
	hf_list_for_each(pos, &recovery->waiting.loaded)
		forget(recovery, hf_list_entry(pos, struct loaded, link));
	hf_waiting_deinit(recovery);
}

bool hf_waiting_has_grant(const struct hf_recovery *recovery, const struct hf_lock_target *who,
			  struct hf_range range)
{
	const struct hf_bytes client = hf_bytes_of_str(hf_client_of(who->client)->id);

	hf_hash_for_each(node, &recovery->waiting.grants,
			 hash_of(recovery, client, who->owner_id, who->handle)) {
		const struct loaded *loaded = hf_container_of(node, struct loaded, node);
		const struct hf_store_lock *wants = &loaded->fact.wants;

		if (wants->owner == who->owner_id && wants->kind == who->owner_kind &&
		    wants->start <= range.start && wants->end >= range.end &&
		    hf_bytes_equal(wants->client, client) &&
		    hf_bytes_equal(hf_bytes_of(loaded->key, loaded->key_len), who->handle))
			return true;
	}
	return false;
}

/* Everything but the way of the grant. False: it names nothing that is there. */
static bool make_request(struct hf_recovery *recovery, const struct hf_store_lock *wants,
			 struct hf_client *client, uint8_t room[HF_LOCK_HANDLE_MAX],
			 struct hf_lock_request *request)
{
	if (!client || !find_file(recovery, wants, &request->who.export, room, &request->who.handle))
		return false;
	request->who.client = &client->locking;
	request->who.owner_id = wants->owner;
	request->who.owner_kind = wants->kind;
	request->who.oh = wants->oh;
	request->range = (struct hf_range){ wants->start, wants->end };
	request->mode = (enum hf_lock_mode)wants->mode;
	request->client_state = (uint32_t)hf_client_stored_number(wants->client_state);
	request->no_downgrade = true; /* the owner may have asked for more since */
	return true;
}

/* Its registration was lost, and the restart made another one, without the address. */
static void note_local(struct hf_client *client, const struct hf_addr *local)
{
	if (!local || client->local.family)
		return;
	client->local = *local;
	hf_client_register(client);
}

/* False: the waiter is not restored, and its client asks again after a while. If only its route is not valid,
 * and the client may have been told GRANTED, it gets the lock. */
static bool restore(struct hf_recovery *recovery, const struct hf_store_waiter *fact)
{
	const struct hf_recovery_waiter_events *events = &recovery->waiter_events;
	hf_cleanup(hf_client_unrefp) struct hf_client *client =
		hf_clients_find_id(recovery->clients, fact->wants.client);
	struct hf_lock_request request = { 0 };
	uint8_t room[HF_LOCK_HANDLE_MAX];
	struct hf_recovery_route route;

	if (!make_request(recovery, &fact->wants, client, room, &request))
		return false;
	if (!events->restore ||
	    !events->restore(recovery->waiter_user, fact->route, fact->is_granted, &route)) {
		if (fact->is_granted)
			hf_lock_acquire(recovery->locks, &request, NULL);
		return false;
	}
	note_local(client, route.local);
	hf_client_note_stored_number(client, fact->wants.client_state);
	request.wait = request.must_wait = true;
	request.tag = fact->wants.id;
	request.offset = route.offset;
	request.len = route.len;
	request.user = route.user;
	return hf_lock_acquire(recovery->locks, &request, NULL) == HF_LOCK_E_QUEUED;
}

static size_t restore_some(struct hf_recovery *recovery, bool is_granted)
{
	size_t n = 0;

	hf_list_for_each(pos, &recovery->waiting.loaded) {
		struct loaded *loaded = hf_list_entry(pos, struct loaded, link);

		if (loaded->fact.is_granted != is_granted)
			continue;
		if (restore(recovery, &loaded->fact)) {
			n++;
			continue;
		}
		hf_log_warn(is_granted ? "a stored grant could not be restored"
				       : "a stored waiter could not be restored; its client asks again",
			    "id=%llu", (unsigned long long)loaded->fact.wants.id);
		forget(recovery, loaded);
	}
	return n;
}

void hf_waiting_restore(struct hf_recovery *recovery)
{
	size_t n_granted, n_waiting;

	if (hf_list_is_empty(&recovery->waiting.loaded))
		return;
	hf_lock_pause_grants(recovery->locks, true);
	n_granted = restore_some(recovery, true);
	n_waiting = restore_some(recovery, false);
	hf_log_info("stored waiters wait again", "granted=%zu waiting=%zu", n_granted, n_waiting);
	hf_waiting_deinit(recovery);
}

void hf_waiting_init(struct hf_recovery *recovery)
{
	hf_list_init(&recovery->waiting.loaded);
}

void hf_waiting_deinit(struct hf_recovery *recovery)
{
	struct hf_link *link;

	hf_hashtable_deinit(&recovery->waiting.grants);
	while ((link = hf_list_pop_front(&recovery->waiting.loaded)))
		free(hf_list_entry(link, struct loaded, link));
}
