/*
 * Every change of the lock table and of the registrations is written to the store.
 *
 * The lock table has the store's id as the tag of its record. Where locks are not
 * stored (lock_durability none, or a store that forgets) there are no tags, and
 * nothing is written.
 *
 * A lock never changes: it is removed, and another one is added. A record of
 * reservations is written again under its id when their number changes.
 *
 * Waiters are stored only where the next run may go on where this one ends. Their ids
 * rise in the order in which they came; a resync gives all of them new ids, in the order
 * of the queues.
 *
 * A write that is refused while the store is well (no memory, too much waiting)
 * leaves a record that the store lacks (NOT_STORED), or that it has as it was before
 * (OUTDATED). Then nothing is promised, and every second all such records are written
 * again. While the store is not well, nothing is written at all: hf_persist_resync()
 * writes everything when it is back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "recovery/internal.h"

#define SAVE_AGAIN_NS HF_NS_PER_S
#define MAX_UNDELETED 65536
#define NOT_STORED    0                   /* the tag of a record that should be, or of a volatile one */
#define OUTDATED      (UINT64_C(1) << 63) /* in the tag of reservations; no id is that large */

/* Facts */

/* Where a run may go on, it must know which locks their clients may still refuse, and what then remains. */
static uint32_t stored_flags(const struct hf_recovery *recovery, const struct hf_lock_view *view)
{
	if (!recovery->persist.stores_waiters || !view->is_of_grant)
		return 0;
	return HF_PERSIST_OF_GRANT | (uint32_t)view->prior << HF_PERSIST_PRIOR_SHIFT;
}

static struct hf_store_lock lock_fact(struct hf_recovery *recovery, const struct hf_lock_view *view,
				      uint64_t id)
{
	return (struct hf_store_lock){
		.id = id,
		.export = hf_recovery_export_name(recovery, view->who.export),
		.handle = view->who.handle,
		.client = hf_bytes_of_str(hf_client_of(view->who.client)->id),
		.oh = view->who.oh,
		.owner = view->who.owner_id,
		.start = view->range.start,
		.end = view->range.end,
		.epoch = view->epoch,
		.client_state = (int32_t)view->client_state,
		.flags = stored_flags(recovery, view),
		.kind = view->who.owner_kind,
		.mode = (uint8_t)view->mode,
	};
}

static struct hf_store_reservation reservation_fact(struct hf_recovery *recovery,
						    const struct hf_lock_reservation_view *view, uint64_t id,
						    uint8_t blob[HF_STORE_MAX_BLOB])
{
	const struct hf_reservation reservation = {
		.export = hf_recovery_export_name(recovery, view->export),
		.handle = view->handle,
		.client = hf_bytes_of_str(hf_client_of(view->client)->id),
		.oh = view->oh,
		.count = view->count + view->n_unreclaimed,
		.state = (int32_t)view->client_state,
		.access = view->access,
		.deny = view->deny,
		.mark = recovery->persist.stores_waiters ? view->mark : 0,
	};

	return (struct hf_store_reservation){ .id = id,
					      .blob = { blob, hf_reservation_encode(&reservation, blob) } };
}

static struct hf_store_waiter waiter_fact(struct hf_recovery *recovery, const struct hf_lock_view *view,
					  uint64_t id, uint8_t route[HF_STORE_MAX_ROUTE])
{
	const struct hf_recovery_waiter_events *events = &recovery->waiter_events;
	size_t len = events->describe ? events->describe(recovery->waiter_user, view, route) : 0;
	struct hf_store_waiter fact = {
		.wants = lock_fact(recovery, view, id),
		.is_granted = view->flags & HF_LOCK_PROVISIONAL,
		.route = hf_bytes_of(route, (uint32_t)len),
	};

	fact.wants.flags = 0;
	return fact;
}

static struct hf_store_client client_fact(const struct hf_client *client)
{
	const struct hf_recovery_client *mine = client->recovery;
	const char *host = client->callback.host;
	struct hf_store_client fact = {
		.id = hf_bytes_of_str(client->id),
		.protocol = hf_bytes_of_str(client->protocol),
		.mon_name = hf_bytes_of_str(client->mon_name ? client->mon_name : client->name),
		.address = client->address,
		.local = client->local,
		.has_callback = host != NULL,
		.is_privileged = client->is_privileged,
		.is_secured = client->is_secured,
		.identity = client->identity ? hf_bytes_of_str(client->identity) : (struct hf_bytes){ 0 },
		.callback_host = hf_bytes_of_str(host                   ? host
						 : client->other_locals ? client->other_locals
									: ""),
		.callback_program = client->callback.program,
		.callback_version = client->callback.version,
		.callback_procedure = client->callback.procedure,
		.sm_state = mine->n_state_waits ? mine->stored_state : client->sm_state,
		.is_state_unproven =
			!(mine->n_state_waits ? mine->is_stored_state_proven : client->is_state_proven),
		.told_state = mine->told_state,
		.registered_at = client->registered_at,
		.last_seen = client->last_seen,
	};

	memcpy(fact.priv, client->priv, sizeof(fact.priv));
	return fact;
}

/* Writing. Each answers the record's new tag, and -errno in *rp where the store did not take it. */

static uint64_t save_lock(struct hf_recovery *recovery, const struct hf_lock_view *view, int *rp)
{
	struct hf_store_lock fact = lock_fact(recovery, view, hf_store_new_id(recovery->store));

	*rp = hf_store_put_lock(recovery->store, &fact, &recovery->persist.ticket);
	return *rp < 0 ? NOT_STORED : fact.id;
}

static uint64_t save_reservation(struct hf_recovery *recovery, const struct hf_lock_reservation_view *view,
				 int *rp)
{
	uint64_t before = view->tag & ~OUTDATED;
	uint8_t blob[HF_STORE_MAX_BLOB];
	struct hf_store_reservation fact =
		reservation_fact(recovery, view,
				 before != NOT_STORED ? before : hf_store_new_id(recovery->store), blob);

	*rp = hf_store_put_reservation(recovery->store, &fact, &recovery->persist.ticket);
	if (*rp == 0)
		return fact.id;
	return before != NOT_STORED ? before | OUTDATED : NOT_STORED;
}

static uint64_t save_waiter(struct hf_recovery *recovery, const struct hf_lock_view *view, int *rp)
{
	uint8_t route[HF_STORE_MAX_ROUTE];
	struct hf_store_waiter fact =
		waiter_fact(recovery, view,
			    view->tag != NOT_STORED ? view->tag : hf_store_new_id(recovery->store), route);

	*rp = hf_store_put_waiter(recovery->store, &fact, &recovery->persist.ticket);
	return *rp < 0 ? view->tag : fact.wants.id;
}

static void note_unsaved(struct hf_recovery *recovery, int r)
{
	struct hf_persist *persist = &recovery->persist;

	if (!persist->has_unsaved && r != -EROFS)
		hf_log_error("a lock could not be stored; nothing new is granted until it is", "error=%s",
			     strerror(-r));
	persist->has_unsaved = true;
	hf_promises_look(recovery);
	if (r != -EROFS)
		hf_timer_start(&persist->save_timer, SAVE_AGAIN_NS);
}

static int erase(struct hf_recovery *recovery, struct hf_persist_record record)
{
	uint64_t *ticketp = &recovery->persist.ticket;

	if (record.kind == HF_PERSIST_LOCK)
		return hf_store_delete_lock(recovery->store, record.id, ticketp);
	if (record.kind == HF_PERSIST_WAITER)
		return hf_store_delete_waiter(recovery->store, record.id, ticketp);
	return hf_store_delete_reservation(recovery->store, record.id, ticketp);
}

int hf_persist_delete(struct hf_recovery *recovery, struct hf_persist_record record)
{
	struct hf_persist *persist = &recovery->persist;
	struct hf_persist_record *more;
	int r = erase(recovery, record);

	if (r == 0 || r == -EROFS) /* the resync leaves it out */
		return 0;
	/* A record that stays comes back after a restart, until that grace ends. It is deleted again later,
	 * and no reply waits for that. */
	if (persist->n_undeleted >= MAX_UNDELETED)
		return hf_trace(r);
	more = realloc(persist->undeleted, (persist->n_undeleted + 1) * sizeof(*more));
	if (!more)
		return hf_trace(r);
	persist->undeleted = more;
	persist->undeleted[persist->n_undeleted++] = record;
	hf_timer_start(&persist->save_timer, SAVE_AGAIN_NS);
	return 0;
}

static void delete_released(struct hf_recovery *recovery, struct hf_persist_record record,
			    struct hf_lock_client *client)
{
	if (hf_persist_delete(recovery, record) < 0)
		hf_log_error("a lock that is released stays in the store", "client=%s",
			     hf_client_of(client)->id);
}

/* Changes of the lock table */

uint64_t hf_persist_add_lock(struct hf_recovery *recovery, const struct hf_lock_view *view)
{
	uint64_t tag;
	int r;

	if (!recovery->persist.stores_locks || view->flags & HF_LOCK_VOLATILE)
		return NOT_STORED;
	tag = save_lock(recovery, view, &r);
	if (r < 0)
		note_unsaved(recovery, r);
	return tag;
}

void hf_persist_remove_lock(struct hf_recovery *recovery, const struct hf_lock_change *lock)
{
	if (lock->tag != NOT_STORED)
		delete_released(recovery, (struct hf_persist_record){ lock->tag, HF_PERSIST_LOCK },
				lock->client);
}

uint64_t hf_persist_reservation(struct hf_recovery *recovery, const struct hf_lock_reservation_view *view)
{
	uint64_t id = view->tag & ~OUTDATED, tag;
	int r;

	if (!recovery->persist.stores_locks)
		return NOT_STORED;
	if (view->count + view->n_unreclaimed == 0) {
		if (id != NOT_STORED)
			delete_released(recovery, (struct hf_persist_record){ id, HF_PERSIST_RESERVATION },
					view->client);
		return NOT_STORED;
	}
	tag = save_reservation(recovery, view, &r);
	if (r < 0)
		note_unsaved(recovery, r);
	return tag;
}

uint64_t hf_persist_waiter(struct hf_recovery *recovery, const struct hf_lock_view *view)
{
	uint64_t tag;
	int r;

	if (!recovery->persist.stores_waiters || view->flags & HF_LOCK_VOLATILE)
		return NOT_STORED;
	tag = save_waiter(recovery, view, &r);
	if (r < 0)
		note_unsaved(recovery, r);
	return tag;
}

void hf_persist_remove_waiter(struct hf_recovery *recovery, const struct hf_lock_view *view)
{
	if (view->tag != NOT_STORED)
		delete_released(recovery, (struct hf_persist_record){ view->tag, HF_PERSIST_WAITER },
				view->who.client);
}

int hf_persist_client(struct hf_recovery *recovery, struct hf_client *client, uint64_t *ticketp)
{
	struct hf_store_client fact = client_fact(client);

	return hf_store_put_client(recovery->store, &fact, ticketp);
}

/* What the store refused is written again */

struct saving {
	struct hf_recovery *recovery;
	int result; /* of the last write; after a failure there are no more */
};

static uint64_t save_missing_lock(void *context, const struct hf_lock_view *view)
{
	struct saving *saving = context;

	if (view->flags & HF_LOCK_VOLATILE || view->tag != NOT_STORED || saving->result < 0)
		return view->tag;
	return save_lock(saving->recovery, view, &saving->result);
}

static uint64_t save_missing_reservation(void *context, const struct hf_lock_reservation_view *view)
{
	struct saving *saving = context;

	if ((view->tag != NOT_STORED && !(view->tag & OUTDATED)) || saving->result < 0)
		return view->tag;
	return save_reservation(saving->recovery, view, &saving->result);
}

static uint64_t save_missing_waiter(void *context, const struct hf_lock_view *view)
{
	struct saving *saving = context;

	if (view->flags & HF_LOCK_VOLATILE || saving->result < 0)
		return view->tag;
	return save_waiter(saving->recovery, view, &saving->result);
}

static int save_all(struct hf_recovery *recovery)
{
	struct hf_persist *persist = &recovery->persist;
	struct saving saving = { .recovery = recovery };
	int r;

	while (persist->n_undeleted) {
		r = erase(recovery, persist->undeleted[persist->n_undeleted - 1]);
		if (r < 0)
			return r;
		persist->n_undeleted--;
	}
	if (persist->has_unsaved) {
		hf_lock_tag_all(recovery->locks, save_missing_lock, &saving);
		hf_lock_tag_all_reservations(recovery->locks, save_missing_reservation, &saving);
		if (persist->stores_waiters) /* which of them is outdated is not known: write all */
			hf_lock_tag_all_waiters(recovery->locks, save_missing_waiter, &saving);
	}
	return saving.result;
}

static void on_save_timer(struct hf_timer *timer)
{
	struct hf_recovery *recovery = hf_container_of(timer, struct hf_recovery, persist.save_timer);
	int r = save_all(recovery);

	if (r == 0) {
		recovery->persist.has_unsaved = false;
		hf_promises_look(recovery);
	} else if (r != -EROFS) {
		hf_timer_start(timer, SAVE_AGAIN_NS);
	}
}

/* The store is back: everything that is true. The store knows of its own failures. */

static uint64_t resync_lock(void *context, const struct hf_lock_view *view)
{
	struct hf_recovery *recovery = context;
	struct hf_store_lock fact;

	if (view->flags & HF_LOCK_VOLATILE)
		return NOT_STORED;
	fact = lock_fact(recovery, view,
			 view->tag != NOT_STORED ? view->tag : hf_store_new_id(recovery->store));
	hf_store_resync_lock(recovery->store, &fact);
	return fact.id;
}

static uint64_t resync_reservation(void *context, const struct hf_lock_reservation_view *view)
{
	struct hf_recovery *recovery = context;
	uint64_t before = view->tag & ~OUTDATED;
	uint8_t blob[HF_STORE_MAX_BLOB];
	struct hf_store_reservation fact =
		reservation_fact(recovery, view,
				 before != NOT_STORED ? before : hf_store_new_id(recovery->store), blob);

	hf_store_resync_reservation(recovery->store, &fact);
	return fact.id;
}

static uint64_t resync_waiter(void *context, const struct hf_lock_view *view)
{
	struct hf_recovery *recovery = context;
	uint8_t route[HF_STORE_MAX_ROUTE];
	struct hf_store_waiter fact;

	if (view->flags & HF_LOCK_VOLATILE)
		return NOT_STORED;
	fact = waiter_fact(recovery, view, hf_store_new_id(recovery->store), route);
	hf_store_resync_waiter(recovery->store, &fact);
	return fact.wants.id;
}

static void resync_clients(struct hf_recovery *recovery)
{
	struct hf_client *client = NULL;
	uint64_t serial = 0;

	while ((client = hf_clients_next(recovery->clients, serial))) {
		struct hf_store_client fact = client_fact(client);

		serial = client->serial;
		if (hf_client_is_registered(client))
			hf_store_resync_client(recovery->store, &fact);
		hf_client_unref(client);
	}
}

void hf_persist_resync(struct hf_recovery *recovery)
{
	struct hf_persist *persist = &recovery->persist;

	persist->has_unsaved = false;
	persist->n_undeleted = 0;
	hf_timer_stop(&persist->save_timer);
	resync_clients(recovery);
	hf_not_exported_resync(recovery);
	if (persist->stores_locks) {
		hf_lock_tag_all(recovery->locks, resync_lock, recovery);
		hf_lock_tag_all_reservations(recovery->locks, resync_reservation, recovery);
	}
	if (persist->stores_waiters)
		hf_lock_tag_all_waiters(recovery->locks, resync_waiter, recovery);
}

/* Making and freeing */

void hf_persist_init(struct hf_recovery *recovery)
{
	const struct hf_recovery_options *options = &recovery->options;

	recovery->persist.stores_locks = options->durability != HF_STORE_NONE &&
					 (options->open_store || options->backend != HF_STORE_BACKEND_MEMORY);
	recovery->persist.stores_waiters = recovery->persist.stores_locks && options->continues;
	hf_timer_init(&recovery->persist.save_timer, recovery->loop, on_save_timer);
}

void hf_persist_deinit(struct hf_recovery *recovery)
{
	hf_timer_stop(&recovery->persist.save_timer);
	free(recovery->persist.undeleted);
}
