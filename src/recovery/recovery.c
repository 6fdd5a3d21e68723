/*
 * The whole: its making and freeing, an operator's orders, and the events of store, lock
 * table and clients, each of which goes from here to the parts of this folder.
 */
#include "recovery/recovery.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "recovery/internal.h"

#define UNMONITOR_IDLE_NS (300 * HF_NS_PER_S)
#define STOP_PATIENCE_NS  (5 * HF_NS_PER_S)
#define STOP_LOOK_NS      (10 * HF_NS_PER_MS)

/* A simulated restart. No client may hear of the new state number before it is stored. */

static void on_raised(struct hf_promise *promise, bool is_durable)
{
	struct hf_recovery *recovery = hf_container_of(promise, struct hf_recovery, raised);
	int r;

	if (!is_durable || hf_phase_is_over(recovery))
		return; /* a store that comes back has it: finish_raise() */
	recovery->sm_state = recovery->raised_state;
	hf_log_info("simulated a restart", "state=%d", recovery->sm_state);
	hf_waiting_forget(recovery);
	r = hf_phase_begin_whole_grace(recovery, "a simulated restart");
	if (r == 0)
		r = hf_notifier_start(recovery);
	if (r < 0)
		hf_log_error("the simulated restart is not complete", "error=%s", strerror(-r));
}

/* The store is back, and all it lacked is stored, with the number. */
static void finish_raise(struct hf_recovery *recovery)
{
	if (hf_phase_is_raising(recovery) && !hf_link_is_linked(&recovery->raised.link))
		on_raised(&recovery->raised, true);
}

int hf_recovery_simulate_crash(struct hf_recovery *recovery)
{
	uint64_t ticket;
	int32_t state;
	int r;

	if (hf_phase_is_over(recovery))
		return -EINVAL;
	r = hf_store_raise_state(recovery->store, &state, &ticket);
	if (r < 0 && r != -EROFS)
		return hf_trace(r);
	recovery->raised_state = state;
	hf_promise_cancel(&recovery->raised);
	if (r == 0 && hf_promises_await(recovery, &recovery->raised, 0, ticket, on_raised))
		on_raised(&recovery->raised, true);
	return 0;
}

/* An operator releases one lock. Its client does not learn of it. */

int hf_recovery_revoke(struct hf_recovery *recovery, const struct hf_lock_view *lock)
{
	const struct hf_lock_target who = lock->who;
	struct hf_client *client = hf_client_ref(hf_client_of(who.client));
	int r;

	/* The observers see the lock while it exists, and before they see which waiter gets it. */
	hf_observe_tell(recovery, &(struct hf_recovery_event){ .kind = HF_EVENT_UNLOCK,
							       .client = client,
							       .lock = lock,
							       .reason = "an operator released it" });
	r = hf_lock_revoke(recovery->locks, &who, lock->range);
	hf_client_unref(client);
	return r;
}

/* The store speaks */

static void on_reached(void *user, enum hf_store_kind kind, uint64_t ticket)
{
	hf_promises_reached(user);
}

static void on_failed(void *user, uint64_t first_lost)
{
	hf_promises_look(user);
	/* Every promise that waits does so for a ticket that is now never reached. */
	hf_promises_break(user);
}

static void on_resync(void *user)
{
	hf_persist_resync(user);
}

static void on_recovered(void *user)
{
	hf_promises_reached(user);
	hf_promises_look(user);
	finish_raise(user);
	hf_phase_settle(user);
}

static void on_taken(void *user)
{
	struct hf_recovery *recovery = user;

	hf_phase_enter(recovery, HF_PHASE_TAKEN, "another run uses the store");
	if (recovery->options.store_taken)
		recovery->options.store_taken(recovery->options.store_taken_user);
}

static void on_commit(void *user, enum hf_store_kind kind, uint64_t ns)
{
	struct hf_recovery *recovery = user;

	hf_histogram_add(&recovery->commits, ns, 1);
}

static const struct hf_store_events measured_events = {
	.on_reached = on_reached,
	.on_failed = on_failed,
	.on_resync = on_resync,
	.on_recovered = on_recovered,
	.on_taken = on_taken,
	.on_commit = on_commit,
};

static const struct hf_store_events store_events = {
	.on_reached = on_reached,
	.on_failed = on_failed,
	.on_resync = on_resync,
	.on_recovered = on_recovered,
	.on_taken = on_taken,
};

/* The lock table speaks */

static uint64_t on_added(void *context, const struct hf_lock_change *lock)
{
	struct hf_recovery *recovery = context;
	bool is_stored = recovery->persist.stores_locks && !(lock->flags & HF_LOCK_VOLATILE);
	struct hf_lock_view view;

	hf_export_counts_add(recovery, lock->export, lock->client);
	if (!recovery->late_reclaims.n && !is_stored)
		return 0;
	hf_lock_show(lock, &view);
	if (recovery->late_reclaims.n)
		hf_late_reclaim_granted(recovery, &view);
	return hf_persist_add_lock(recovery, &view);
}

static void on_unreclaimed_removed(struct hf_recovery *recovery, const struct hf_lock_change *lock)
{
	struct hf_lock_view view;

	hf_phase_look(recovery);
	if (lock->cause != HF_LOCK_CAUSE_EXPIRY)
		return;
	hf_lock_show(lock, &view);
	hf_late_reclaim_remember(recovery, &view);
}

static void on_removed(void *context, const struct hf_lock_change *lock)
{
	struct hf_recovery *recovery = context;

	if (!(lock->flags & HF_LOCK_GHOST))
		hf_export_counts_remove(recovery, lock->export, lock->client);
	if (HF_UNLIKELY(lock->flags & HF_LOCK_UNRECLAIMED))
		on_unreclaimed_removed(recovery, lock);
	recovery->counts.locks_revoked += lock->cause == HF_LOCK_CAUSE_ORDER;
	hf_persist_remove_lock(recovery, lock);
}

/* It stays stored, but is in no list any more. */
static void on_hidden(void *context, const struct hf_lock_change *lock)
{
	hf_export_counts_remove(context, lock->export, lock->client);
}

static uint64_t on_reservation_added(void *context, const struct hf_lock_reservation_view *reservation)
{
	struct hf_recovery *recovery = context;

	if (recovery->late_reclaims.n)
		hf_late_reclaim_reservation_granted(recovery, reservation);
	if (reservation->is_reclaim)
		hf_phase_look(recovery);
	return hf_persist_reservation(recovery, reservation);
}

static uint64_t on_reservation_removed(void *context, const struct hf_lock_reservation_view *reservation,
				       uint32_t n, enum hf_lock_cause cause)
{
	struct hf_recovery *recovery = context;

	hf_phase_look(recovery);
	if (cause == HF_LOCK_CAUSE_EXPIRY)
		hf_late_reclaim_remember_reservations(recovery, reservation, n);
	return hf_persist_reservation(recovery, reservation);
}

/* Waiters are the protocol's. */

static uint64_t on_queued(void *context, const struct hf_lock_view *waiter)
{
	return hf_persist_waiter(context, waiter);
}

static uint64_t on_passed(void *context, const struct hf_lock_view *waiter)
{
	struct hf_lock_view anew = *waiter;

	hf_persist_remove_waiter(context, waiter);
	anew.tag = 0;
	return hf_persist_waiter(context, &anew);
}

static void on_granted(void *context, const struct hf_lock_view *waiter)
{
	struct hf_recovery *recovery = context;

	if (hf_recovery_wants_locks(recovery))
		hf_recovery_tell_lock(recovery, HF_EVENT_GRANTED, waiter);
	hf_persist_waiter(recovery, waiter);
	if (recovery->waiter_events.granted)
		recovery->waiter_events.granted(recovery->waiter_user, waiter);
}

static void on_waiter_gone(void *context, const struct hf_lock_view *waiter, enum hf_lock_end why)
{
	struct hf_recovery *recovery = context;

	hf_persist_remove_waiter(recovery, waiter);
	if (recovery->waiter_events.waiter_gone)
		recovery->waiter_events.waiter_gone(recovery->waiter_user, waiter, why);
}

static const struct hf_lock_events lock_events = {
	.added = on_added,
	.removed = on_removed,
	.hidden = on_hidden,
	.queued = on_queued,
	.passed = on_passed,
	.granted = on_granted,
	.waiter_gone = on_waiter_gone,
	.reservation_added = on_reservation_added,
	.reservation_removed = on_reservation_removed,
};

/* The clients speak */

static void on_made(void *user, struct hf_client *client)
{
	hf_list_init(&client->recovery->late);
	client->recovery->told_state = ((struct hf_recovery *)user)->sm_state;
	hf_protocols_join(user, client);
}

static int on_registered(void *user, struct hf_client *client, uint64_t *ticketp)
{
	struct hf_recovery *recovery = user;
	int r = hf_persist_client(recovery, client, ticketp);

	if (r < 0)
		return r;
	hf_observe_tell(recovery,
			&(struct hf_recovery_event){ .kind = HF_EVENT_REGISTERED, .client = client });
	return 0;
}

static void on_unregistered(void *user, struct hf_client *client)
{
	struct hf_recovery *recovery = user;

	hf_notifier_forget(recovery, client);
	hf_store_delete_client(recovery->store, hf_bytes_of_str(client->id), &client->registration_ticket);
	hf_observe_tell(recovery,
			&(struct hf_recovery_event){ .kind = HF_EVENT_UNREGISTERED, .client = client });
}

static uint64_t mark(void *user)
{
	const struct hf_recovery *recovery = user;

	return recovery->persist.ticket;
}

static bool may_leave(void *user, const struct hf_client *client)
{
	const struct hf_recovery *recovery = user;

	/* A client that is not told any more, because the server stops, is told by the next run. */
	return !hf_phase_is_over(recovery) && hf_recovery_can_promise(recovery) &&
	       client->idle_mark <= hf_store_reached(recovery->store, HF_STORE_LOCKS) &&
	       client->registration_ticket <= hf_store_reached(recovery->store, HF_STORE_CLIENTS);
}

static bool may_reclaim(void *user, const struct hf_client *client)
{
	return !hf_list_is_empty(&client->recovery->late) || client->recovery->n_not_exported;
}

static void on_crashed(void *user, struct hf_client *client)
{
	hf_crash_clean_up(user, client, "its recovery window is over");
}

/* It came back in time: what it has not reclaimed since goes. */
static void on_window_over(void *user, struct hf_client *client)
{
	struct hf_recovery *recovery = user;

	hf_lock_client_drop_unreclaimed(recovery->locks, &client->locking);
}

static const struct hf_client_events client_events = {
	.made = on_made,
	.registered = on_registered,
	.unregistered = on_unregistered,
	.mark = mark,
	.may_leave = may_leave,
	.may_reclaim = may_reclaim,
	.crashed = on_crashed,
	.window_over = on_window_over,
};

/* Starting */

static int open_store(struct hf_recovery *recovery)
{
	const struct hf_recovery_options *options = &recovery->options;
	struct hf_store_options store = {
		.durability = (enum hf_store_durability)options->durability,
		.path = options->store_path,
		.postgres = options->postgres,
		.server = options->server_name,
		.owner = options->owner,
		.known_epoch = options->known_epoch,
		.known_state = options->known_state,
		.gives_up = options->clear_store,
		.continues = options->continues,
		/* A store that is about to be cleared may have been written with any. */
		.handle_key = options->clear_store ? 0 : options->handle_key,
		.events = options->measures ? &measured_events : &store_events,
		.user = recovery,
	};

	if (options->open_store)
		return options->open_store(&recovery->store, recovery->loop, &store);
	switch (options->backend) {
	case HF_STORE_BACKEND_LMDB:
		return hf_store_open_lmdb(&recovery->store, recovery->loop, &store);
	case HF_STORE_BACKEND_POSTGRES:
		return hf_store_open_postgres(&recovery->store, recovery->loop, &store);
	case HF_STORE_BACKEND_MEMORY:
		break;
	}
	return hf_store_open_memory(&recovery->store, recovery->loop, &store);
}

void hf_recovery_change(struct hf_recovery *recovery, const struct hf_recovery_options *options)
{
	recovery->options.notify_timeout_ns = options->notify_timeout_ns;
	recovery->options.notify_parallel = options->notify_parallel;
	recovery->options.notify_retry_ns = options->notify_retry_ns;
	recovery->options.max_clients = options->max_clients;
	recovery->options.max_clients_per_address = options->max_clients_per_address;
	hf_clients_set_max(recovery->clients, options->max_clients, options->max_clients_per_address);
	hf_silents_change(recovery, options->release_silent_ns);
	hf_protocols_change(recovery, options);
	recovery->options.early_end = options->early_end;
	hf_phase_look(recovery);
}

static int make_tables(struct hf_recovery *recovery)
{
	const struct hf_recovery_options *options = &recovery->options;
	struct hf_locks_options locks = {
		.key = recovery->key,
		.limits = options->lock_limits,
		.events = &lock_events,
		.context = recovery,
		.outside = options->outside,
		.outside_context = options->outside_context,
		.epoch = (uint32_t)recovery->start.epoch,
	};
	struct hf_clients_options clients = {
		.loop = recovery->loop,
		.key = recovery->key,
		.max_registered = options->max_clients,
		.max_per_address = options->max_clients_per_address,
		.window_ns = options->window_ns,
		.idle_ns = options->idle_ns ? options->idle_ns : UNMONITOR_IDLE_NS,
		.recovery_size = sizeof(struct hf_recovery_client),
		.events = &client_events,
		.user = recovery,
	};
	int r = hf_locks_new(&recovery->locks, &locks);

	clients.locks = recovery->locks;
	if (r == 0)
		hf_lock_set_grace(recovery->locks, true); /* what is loaded is unreclaimed */
	if (r == 0)
		r = hf_clients_new(&recovery->clients, &clients);
	if (r == 0)
		r = hf_protocols_set_windows(recovery);
	return hf_trace(r);
}

static void explain_key(const struct hf_recovery *recovery)
{
	hf_log_error(
		"the key of the file handles is not the one that the locks in the store were granted with; "
		"restore it. Without a copy of it, start once with --clear-store: all locks are forgotten "
		"then, and all clients mount again",
		"file=%s/handle.key", recovery->options.store_path);
}

/* Clients are told of a restart although the operator wants to go on: say why. */
static void explain_start(const struct hf_recovery *recovery)
{
	const struct hf_store_start *start = &recovery->start;
	const char *why = "the last run did not store its waiters, or its clients were still reclaiming";

	if (!recovery->options.continues || start->continues || start->is_first)
		return;
	if (recovery->options.durability == HF_STORE_NONE)
		why = "locks are not stored";
	else if (start->dropped_locks)
		why = "the machine or the database was restarted, and locks may be lost";
	hf_log_info("cannot go on where the last run ended: clients reclaim their locks", "reason=\"%s\"",
		    why);
}

static int begin(struct hf_recovery *recovery)
{
	int r = open_store(recovery);

	if (r < 0)
		return r; /* it has said why */
	r = hf_store_begin_epoch(recovery->store, &recovery->start);
	if (r == -EKEYREJECTED)
		explain_key(recovery);
	if (r == 0 && recovery->options.clear_store) {
		r = hf_store_clear(recovery->store);
		if (r == 0)
			hf_log_info("the store was cleared: registrations and locks are gone", "%s", "");
	}
	if (r == 0) {
		explain_start(recovery);
		recovery->sm_state = recovery->start.sm_state;
		r = make_tables(recovery);
	}
	if (r == 0)
		r = hf_restart_load(recovery);
	if (r == 0)
		r = hf_phase_decide(recovery);
	if (r < 0)
		hf_log_error("cannot take up what was stored", "error=%s", strerror(-r));
	return r;
}

int hf_recovery_new(struct hf_recovery **recoveryp, const struct hf_recovery_options *options)
{
	hf_cleanup(hf_recovery_freep) struct hf_recovery *recovery = calloc(1, sizeof(*recovery));
	int r;

	if (!recovery)
		return hf_trace(-ENOMEM);
	recovery->options = *options;
	recovery->loop = options->loop;
	hf_export_names_init(recovery);
	hf_loop_random(recovery->loop, &recovery->key, sizeof(recovery->key));
	hf_list_init(&recovery->observers);
	hf_link_init(&recovery->raised.link);
	hf_crash_init(recovery);
	hf_promises_init(recovery);
	hf_phase_init(recovery);
	hf_notifier_init(recovery);
	hf_persist_init(recovery);
	hf_not_exported_init(recovery);
	hf_waiting_init(recovery);
	hf_protocols_init(recovery);
	hf_silents_init(recovery);
	r = hf_export_counts_init(recovery);
	if (r == 0)
		r = hf_late_reclaim_init(recovery);
	if (r == 0)
		r = begin(recovery);
	if (r < 0)
		return r;
	*recoveryp = recovery;
	recovery = NULL;
	return 0;
}

void hf_recovery_restore_waiters(struct hf_recovery *recovery)
{
	if (!recovery->starts_over)
		hf_waiting_restore(recovery);
}

int hf_recovery_start(struct hf_recovery *recovery)
{
	int r;

	hf_recovery_restore_waiters(recovery);
	hf_promises_look(recovery); /* grants go on */
	r = recovery->starts_over ? hf_recovery_simulate_crash(recovery) : 0;
	if (r == 0)
		r = hf_phase_restart_clock(recovery);
	if (r == 0)
		r = hf_notifier_start(recovery);
	if (r == 0)
		r = hf_silents_start(recovery);
	if (r == 0)
		hf_protocols_start(recovery, hf_phase_pins(recovery));
	return hf_trace(r);
}

/* Ending */

struct hf_recovery *hf_recovery_free(struct hf_recovery *recovery)
{
	if (!recovery)
		return NULL;
	hf_phase_enter(recovery, HF_PHASE_STOPPED, "freed");
	if (recovery->stop_timer.loop)
		hf_timer_stop(&recovery->stop_timer);
	hf_silents_deinit(recovery);
	hf_notifier_deinit(recovery);
	hf_late_reclaim_deinit(recovery);
	hf_not_exported_deinit(recovery);
	hf_phase_deinit(recovery);
	hf_promises_deinit(recovery);
	hf_crash_deinit(recovery);
	hf_locks_free(recovery->locks);
	recovery->locks = NULL;
	hf_clients_free(recovery->clients);
	hf_persist_deinit(recovery);
	hf_waiting_deinit(recovery);
	hf_export_counts_deinit(recovery);
	hf_store_free(recovery->store);
	free(recovery);
	return NULL;
}

static void stopped(struct hf_recovery *recovery)
{
	void (*done)(void *user) = recovery->stop_done;

	hf_phase_enter(recovery, HF_PHASE_STOPPED, "stopped in order");
	recovery->stop_done = NULL;
	done(recovery->stop_user);
	/* @recovery may be gone here */
}

/* The last write of an orderly stop is the marker that it was one. */
static void on_stop_timer(struct hf_timer *timer)
{
	struct hf_recovery *recovery = hf_container_of(timer, struct hf_recovery, stop_timer);
	bool may_wait = recovery->phase.now == HF_PHASE_STOPPING &&
			hf_loop_now(recovery->loop) < recovery->phase.since + STOP_PATIENCE_NS;
	int r = hf_store_mark_clean(recovery->store);

	if (r < 0 && may_wait && hf_timer_start(timer, STOP_LOOK_NS) == 0)
		return;
	if (r < 0)
		hf_log_warn("the stop could not be marked as clean: the next start will take it for a crash",
			    "error=%s", strerror(-r));
	stopped(recovery);
}

void hf_recovery_stop(struct hf_recovery *recovery, void (*done)(void *user), void *user)
{
	hf_phase_enter(recovery, HF_PHASE_STOPPING, "asked to stop");
	hf_notifier_stop(recovery);
	recovery->stop_done = done;
	recovery->stop_user = user;
	hf_timer_init(&recovery->stop_timer, recovery->loop, on_stop_timer);
	if (hf_timer_start(&recovery->stop_timer, 0) < 0)
		stopped(recovery);
}

/* Neighbours */

void hf_recovery_set_waiter_events(struct hf_recovery *recovery,
				   const struct hf_recovery_waiter_events *events, void *user)
{
	recovery->waiter_events = events ? *events : (struct hf_recovery_waiter_events){ 0 };
	recovery->waiter_user = user;
}

/* Questions */

struct hf_locks *hf_recovery_locks(struct hf_recovery *recovery)
{
	return recovery->locks;
}

struct hf_clients *hf_recovery_clients(struct hf_recovery *recovery)
{
	return recovery->clients;
}

struct hf_store *hf_recovery_store(struct hf_recovery *recovery)
{
	return recovery->store;
}

int32_t hf_recovery_state(const struct hf_recovery *recovery)
{
	return recovery->sm_state;
}

uint64_t hf_recovery_epoch(const struct hf_recovery *recovery)
{
	return recovery->start.epoch;
}

bool hf_recovery_is_continuable(const struct hf_recovery *recovery)
{
	return recovery->persist.stores_waiters;
}

bool hf_recovery_continues(const struct hf_recovery *recovery)
{
	return recovery->start.continues;
}

void hf_recovery_counts(const struct hf_recovery *recovery, struct hf_recovery_counts *countsp)
{
	const struct hf_notifier *notifier = &recovery->notifier;

	*countsp = recovery->counts;
	countsp->notices_waiting = notifier->n[HF_NOTICE_QUEUE] + notifier->n[HF_NOTICE_RESTS];
	countsp->notices_in_flight = notifier->n[HF_NOTICE_YOUNG] + notifier->n[HF_NOTICE_OLD];
	countsp->late_records = recovery->late_reclaims.n;
}

const struct hf_histogram *hf_recovery_commits(const struct hf_recovery *recovery)
{
	return &recovery->commits;
}
