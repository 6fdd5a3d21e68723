/*
 * Every change of the lock table and of the registrations, to the store.
 *
 * The lock table keeps the store's id as the tag of its record. Where locks are
 * not stored (lock_durability none, or a store that forgets) there are no tags,
 * and nothing is done.
 *
 * A write that is refused while the store is well (no memory, too much waiting)
 * leaves a record without a tag. Nothing is promised then, and every second all
 * records without one are written again. While the store is not well nothing is
 * written at all: hf_persist_resync() brings everything when it is back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "recovery/internal.h"

#define SAVE_AGAIN_NS HF_NS_PER_S
#define MAX_UNDELETED 65536
#define NOT_STORED    0 /* the tag of a record that should be, or of a volatile one */

/* Locks */

static struct hf_store_lock fact_of(struct hf_recovery *recovery, const struct hf_lock_view *view)
{
	return (struct hf_store_lock){
		.share = hf_recovery_share_name(recovery, view->who.share),
		.handle = view->who.handle,
		.client = hf_bytes_of_str(hf_client_of(view->who.client)->id),
		.oh = view->who.oh,
		.owner = view->who.owner_id,
		.start = view->range.start,
		.end = view->range.end,
		.epoch = view->epoch,
		.client_state = (int32_t)view->client_state,
		.kind = view->who.owner_kind,
		.mode = (uint8_t)view->mode,
	};
}

/* The record's new tag, or NOT_STORED with -errno in *rp. */
static uint64_t save(struct hf_recovery *recovery, const struct hf_lock_view *view, int *rp)
{
	struct hf_store_lock fact = fact_of(recovery, view);

	fact.id = hf_store_new_id(recovery->store);
	*rp = hf_store_put_lock(recovery->store, &fact, &recovery->persist.ticket);
	return *rp < 0 ? NOT_STORED : fact.id;
}

static void note_unsaved(struct hf_recovery *recovery, int r)
{
	struct hf_persist *persist = &recovery->persist;

	if (!persist->has_unsaved && r != -EROFS)
		hf_log_error("a lock could not be stored; nothing new is promised until it is", "error=%s",
			     strerror(-r));
	persist->has_unsaved = true;
	hf_promises_look(recovery);
	if (r != -EROFS)
		hf_timer_start(&persist->save_timer, SAVE_AGAIN_NS);
}

static uint64_t on_added(void *context, const struct hf_lock_change *lock)
{
	struct hf_recovery *recovery = context;
	bool is_kept = recovery->persist.keeps && !(lock->flags & HF_LOCK_VOLATILE);
	struct hf_lock_view view;
	uint64_t id;
	int r;

	hf_share_counts_came(recovery, lock->share, lock->client);
	if (!recovery->late_reclaims.n && !is_kept)
		return NOT_STORED;
	hf_lock_show(lock, &view);
	if (recovery->late_reclaims.n)
		hf_late_reclaim_granted(recovery, &view);
	if (!is_kept)
		return NOT_STORED;
	id = save(recovery, &view, &r);
	if (r < 0)
		note_unsaved(recovery, r);
	return id;
}

static int erase(struct hf_recovery *recovery, struct hf_undeleted what)
{
	return (what.is_share ? hf_store_delete_share : hf_store_delete_lock)(recovery->store, what.id,
									      &recovery->persist.ticket);
}

int hf_persist_delete(struct hf_recovery *recovery, uint64_t store_id, bool is_share)
{
	const struct hf_undeleted what = { store_id, is_share };
	struct hf_persist *persist = &recovery->persist;
	struct hf_undeleted *more;
	int r = erase(recovery, what);

	if (r == 0 || r == -EROFS) /* the resync will not have it */
		return 0;
	/* A record that stays comes back after a restart, until that grace ends: it is tried again, but
	 * nobody needs to wait for it. */
	if (persist->n_undeleted >= MAX_UNDELETED)
		return hf_trace(r);
	more = realloc(persist->undeleted, (persist->n_undeleted + 1) * sizeof(*more));
	if (!more)
		return hf_trace(r);
	persist->undeleted = more;
	persist->undeleted[persist->n_undeleted++] = what;
	hf_timer_start(&persist->save_timer, SAVE_AGAIN_NS);
	return 0;
}

static void on_unreclaimed_removed(struct hf_recovery *recovery, const struct hf_lock_change *lock)
{
	struct hf_lock_view view;

	hf_grace_look(recovery);
	if (!recovery->late_reclaims.is_dropping)
		return;
	hf_lock_show(lock, &view);
	hf_late_reclaim_remember(recovery, &view);
}

static void on_removed(void *context, const struct hf_lock_change *lock)
{
	struct hf_recovery *recovery = context;

	if (!(lock->flags & HF_LOCK_GHOST))
		hf_share_counts_went(recovery, lock->share, lock->client);
	if (HF_UNLIKELY(lock->flags & HF_LOCK_UNRECLAIMED))
		on_unreclaimed_removed(recovery, lock);
	if (lock->tag != NOT_STORED && hf_persist_delete(recovery, lock->tag, false) < 0)
		hf_log_error("a lock that is released stays in the store", "client=%s",
			     hf_client_of(lock->client)->id);
}

/* It stays stored, but nobody sees it any more. */
static void on_hidden(void *context, const struct hf_lock_change *lock)
{
	hf_share_counts_went(context, lock->share, lock->client);
}

/* Waiters are nobody's business here, but the protocol's who has them. */

static void on_granted(void *context, const struct hf_lock_view *waiter)
{
	struct hf_recovery *recovery = context;

	if (hf_recovery_wants_locks(recovery))
		hf_recovery_tell_lock(recovery, HF_EVENT_GRANTED, waiter);
	if (recovery->waiter_events.granted)
		recovery->waiter_events.granted(recovery->waiter_user, waiter);
}

static void on_waiter_gone(void *context, const struct hf_lock_view *waiter, enum hf_lock_end why)
{
	struct hf_recovery *recovery = context;

	if (recovery->waiter_events.waiter_gone)
		recovery->waiter_events.waiter_gone(recovery->waiter_user, waiter, why);
}

static void on_share_added(void *context, const struct hf_lock_share_view *share)
{
	struct hf_recovery *recovery = context;

	if (recovery->late_reclaims.n)
		hf_late_reclaim_share_granted(recovery, share);
	hf_reservations_added(recovery, share);
}

static void on_share_removed(void *context, const struct hf_lock_share_view *share)
{
	hf_reservations_removed(context, share);
}

const struct hf_lock_events hf_persist_lock_events = {
	.added = on_added,
	.removed = on_removed,
	.hidden = on_hidden,
	.granted = on_granted,
	.waiter_gone = on_waiter_gone,
	.share_added = on_share_added,
	.share_removed = on_share_removed,
};

/* Once more */

struct saving {
	struct hf_recovery *recovery;
	int result; /* of the last write; after a failure there are no more */
};

static uint64_t save_unsaved(void *context, const struct hf_lock_view *view)
{
	struct saving *saving = context;

	if (view->flags & HF_LOCK_VOLATILE || view->tag != NOT_STORED || saving->result < 0)
		return view->tag;
	return save(saving->recovery, view, &saving->result);
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
	if (persist->has_unsaved)
		hf_lock_tag_all(recovery->locks, save_unsaved, &saving);
	return saving.result < 0 ? saving.result : hf_reservations_save(recovery);
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

/* Clients */

static struct hf_store_client client_fact_of(const struct hf_client *client)
{
	const char *host = client->callback.host;
	struct hf_store_client fact = {
		.id = hf_bytes_of_str(client->id),
		.protocol = hf_bytes_of_str(client->protocol),
		.mon_name = hf_bytes_of_str(client->mon_name ? client->mon_name : client->name),
		.address = client->address,
		.local = client->local,
		.has_callback = host != NULL,
		.is_privileged = client->is_privileged,
		.callback_host = host ? hf_bytes_of_str(host) : (struct hf_bytes){ 0 },
		.callback_program = client->callback.program,
		.callback_version = client->callback.version,
		.callback_procedure = client->callback.procedure,
		.sm_state = client->n_settling ? client->stored_state : client->sm_state,
		.is_state_unproven =
			!(client->n_settling ? client->is_stored_state_proven : client->is_state_proven),
		.registered_at = client->registered_at,
		.last_seen = client->last_seen,
	};

	memcpy(fact.priv, client->priv, sizeof(fact.priv));
	return fact;
}

static int on_registered(void *user, struct hf_client *client, uint64_t *ticketp)
{
	struct hf_recovery *recovery = user;
	struct hf_store_client fact = client_fact_of(client);
	int r = hf_store_put_client(recovery->store, &fact, ticketp);

	if (r < 0)
		return r;
	hf_recovery_tell(recovery,
			 &(struct hf_recovery_event){ .kind = HF_EVENT_REGISTERED, .client = client });
	return 0;
}

static void on_unregistered(void *user, struct hf_client *client)
{
	struct hf_recovery *recovery = user;

	hf_notifier_forget(recovery, client);
	hf_store_delete_client(recovery->store, hf_bytes_of_str(client->id), &client->registration_ticket);
	hf_recovery_tell(recovery,
			 &(struct hf_recovery_event){ .kind = HF_EVENT_UNREGISTERED, .client = client });
}

static uint64_t mark(void *user)
{
	const struct hf_recovery *recovery = user;

	return recovery->persist.ticket;
}

static bool is_settled(void *user, const struct hf_client *client)
{
	const struct hf_recovery *recovery = user;

	return hf_recovery_can_promise(recovery) &&
	       client->idle_mark <= hf_store_reached(recovery->store, HF_STORE_LOCKS) &&
	       client->registration_ticket <= hf_store_reached(recovery->store, HF_STORE_CLIENTS);
}

static void on_crashed(void *user, struct hf_client *client)
{
	hf_crash_clean_up(user, client, "its recovery window is over");
}

const struct hf_client_events hf_persist_client_events = {
	.registered = on_registered,
	.unregistered = on_unregistered,
	.mark = mark,
	.is_settled = is_settled,
	.crashed = on_crashed,
};

/* The store is back: all that is true */

static uint64_t resync_lock(void *context, const struct hf_lock_view *view)
{
	struct hf_recovery *recovery = context;
	struct hf_store_lock fact = fact_of(recovery, view);

	if (view->flags & HF_LOCK_VOLATILE)
		return NOT_STORED;
	fact.id = view->tag != NOT_STORED ? view->tag : hf_store_new_id(recovery->store);
	hf_store_resync_lock(recovery->store, &fact); /* the store knows of its own failures */
	return fact.id;
}

static void resync_clients(struct hf_recovery *recovery)
{
	struct hf_client *client = NULL;
	uint64_t serial = 0;

	while ((client = hf_clients_next(recovery->clients, serial))) {
		struct hf_store_client fact = client_fact_of(client);

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
	hf_reservations_resync(recovery);
	hf_not_exported_resync(recovery);
	if (persist->keeps)
		hf_lock_tag_all(recovery->locks, resync_lock, recovery);
}

/* Life */

void hf_persist_init(struct hf_recovery *recovery)
{
	struct hf_persist *persist = &recovery->persist;

	persist->keeps =
		recovery->options.durability != HF_STORE_NONE &&
		(recovery->options.open_store || recovery->options.backend != HF_STORE_BACKEND_MEMORY);
	hf_timer_init(&persist->save_timer, recovery->loop, on_save_timer);
}

void hf_persist_deinit(struct hf_recovery *recovery)
{
	struct hf_persist *persist = &recovery->persist;

	hf_timer_stop(&persist->save_timer);
	free(persist->undeleted);
}
