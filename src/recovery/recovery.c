/* The whole: its life, the store's events, and those who watch. */
#include "recovery/recovery.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "recovery/internal.h"

#define UNMONITOR_IDLE_NS (300 * HF_NS_PER_S)
#define STOP_PATIENCE_NS  (5 * HF_NS_PER_S)
#define STOP_LOOK_NS      (10 * HF_NS_PER_MS)

/* Watching */

void hf_recovery_observe(struct hf_recovery *recovery, struct hf_recovery_observer *observer)
{
	hf_list_push_back(&recovery->observers, &observer->link);
}

void hf_recovery_tell(struct hf_recovery *recovery, const struct hf_recovery_event *event)
{
	hf_list_for_each_safe(pos, &recovery->observers) {
		struct hf_recovery_observer *observer = hf_list_entry(pos, struct hf_recovery_observer, link);

		observer->fn(observer, event);
	}
}

bool hf_recovery_wants_locks(const struct hf_recovery *recovery)
{
	for (const struct hf_link *pos = recovery->observers.head.next; pos != &recovery->observers.head;
	     pos = pos->next) {
		const struct hf_recovery_observer *observer =
			(const struct hf_recovery_observer *)((const char *)pos -
							      offsetof(struct hf_recovery_observer, link));

		if (atomic_load_explicit(&observer->wants_locks, memory_order_relaxed))
			return true;
	}
	return false;
}

void hf_recovery_tell_lock(struct hf_recovery *recovery, enum hf_recovery_event_kind kind,
			   const struct hf_lock_view *lock)
{
	const struct hf_recovery_event event = {
		.kind = kind,
		.client = hf_client_of(lock->who.client),
		.lock = lock,
	};

	hf_list_for_each_safe(pos, &recovery->observers) {
		struct hf_recovery_observer *observer = hf_list_entry(pos, struct hf_recovery_observer, link);

		if (atomic_load_explicit(&observer->wants_locks, memory_order_relaxed))
			observer->fn(observer, &event);
	}
}

/* Shares without names */

static struct hf_bytes number_name(void *user, uint32_t share)
{
	struct hf_recovery *recovery = user;
	int n;

	if (share == 0) /* where handles are another server's, all of them */
		return hf_bytes_of_str("0");
	n = snprintf(recovery->share_text, sizeof(recovery->share_text), "%u", share);

	return hf_bytes_of(recovery->share_text, (uint32_t)n);
}

static bool find_number(void *user, struct hf_bytes name, uint32_t *sharep)
{
	uint64_t value = 0;

	if (name.len == 0 || name.len > 10)
		return false;
	for (uint32_t i = 0; i < name.len; i++) {
		if (name.data[i] < '0' || name.data[i] > '9')
			return false;
		value = value * 10 + (name.data[i] - '0');
	}
	*sharep = (uint32_t)value;
	return value <= UINT32_MAX;
}

struct hf_bytes hf_recovery_share_name(struct hf_recovery *recovery, uint32_t share)
{
	return recovery->shares.name(recovery->shares.user, share);
}

struct hf_bytes hf_recovery_key_of(struct hf_recovery *recovery, uint32_t share, struct hf_bytes handle,
				   uint8_t room[HF_LOCK_HANDLE_MAX])
{
	if (!recovery->shares.key)
		return handle;
	return recovery->shares.key(recovery->shares.user, share, handle, room);
}

struct hf_bytes hf_recovery_handle_of(struct hf_recovery *recovery, uint32_t share, struct hf_bytes key,
				      uint8_t room[HF_LOCK_HANDLE_MAX])
{
	if (!recovery->shares.handle)
		return key;
	return recovery->shares.handle(recovery->shares.user, share, key, room);
}

/* The store speaks */

static void on_reached(void *user, enum hf_store_kind kind, uint64_t ticket)
{
	hf_promises_reached(user);
}

static void on_failed(void *user, uint64_t first_lost)
{
	hf_promises_look(user);
	/* Whoever waits waits for something that is not reached, and now never will be. */
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
}

static void on_taken(void *user)
{
	struct hf_recovery *recovery = user;

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

/* Starting */

static int open_store(struct hf_recovery *recovery)
{
	const struct hf_recovery_options *options = &recovery->options;
	struct hf_store_options store = {
		.durability = (enum hf_store_durability)options->durability,
		.path = options->store_path,
		.postgres = options->postgres,
		.server = options->server_name,
		.gives_up = options->clear_store,
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

static int make_tables(struct hf_recovery *recovery)
{
	const struct hf_recovery_options *options = &recovery->options;
	struct hf_locks_options locks = {
		.key = recovery->key,
		.limits = options->lock_limits,
		.events = &hf_persist_lock_events,
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
		.events = &hf_persist_client_events,
		.user = recovery,
	};
	int r = hf_locks_new(&recovery->locks, &locks);

	clients.locks = recovery->locks;
	if (r == 0)
		r = hf_clients_new(&recovery->clients, &clients);
	if (r == 0 && options->nlm_grace_ns != UINT64_MAX)
		r = hf_clients_set_window(recovery->clients, "nlm", options->nlm_grace_ns);
	if (r == 0 && options->smb_durable_ns != UINT64_MAX)
		r = hf_clients_set_window(recovery->clients, "smb", options->smb_durable_ns);
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
		recovery->sm_state = recovery->start.sm_state;
		r = make_tables(recovery);
	}
	if (r == 0)
		r = hf_restart_load(recovery);
	if (r == 0 && recovery->options.handle_key) /* which all that was loaded fits */
		r = hf_store_name_key(recovery->store, recovery->options.handle_key);
	if (r == 0)
		r = hf_grace_decide(recovery);
	if (r < 0)
		hf_log_error("cannot take up what was stored", "error=%s", strerror(-r));
	return r;
}

static void init_shares(struct hf_recovery *recovery)
{
	if (recovery->options.shares)
		recovery->shares = *recovery->options.shares;
	else
		recovery->shares = (struct hf_recovery_shares){ .name = number_name,
								.find = find_number,
								.user = recovery };
}

int hf_recovery_new(struct hf_recovery **recoveryp, const struct hf_recovery_options *options)
{
	hf_cleanup(hf_recovery_freep) struct hf_recovery *recovery = calloc(1, sizeof(*recovery));
	int r;

	if (!recovery)
		return hf_trace(-ENOMEM);
	recovery->options = *options;
	recovery->loop = options->loop;
	init_shares(recovery);
	hf_loop_random(recovery->loop, &recovery->key, sizeof(recovery->key));
	hf_list_init(&recovery->observers);
	hf_crash_init(recovery);
	hf_promises_init(recovery);
	hf_grace_init(recovery);
	hf_notifier_init(recovery);
	hf_persist_init(recovery);
	hf_not_exported_init(recovery);
	r = hf_share_counts_init(recovery);
	if (r == 0)
		r = hf_reservations_init(recovery);
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

int hf_recovery_start(struct hf_recovery *recovery)
{
	int r = hf_grace_restart_clock(recovery);

	if (r == 0)
		r = hf_notifier_start(recovery);
	return hf_trace(r);
}

/* Ending */

struct hf_recovery *hf_recovery_free(struct hf_recovery *recovery)
{
	if (!recovery)
		return NULL;
	if (recovery->stop_timer.loop)
		hf_timer_stop(&recovery->stop_timer);
	hf_notifier_deinit(recovery);
	hf_late_reclaim_deinit(recovery);
	hf_reservations_deinit(recovery);
	hf_grace_deinit(recovery);
	hf_promises_deinit(recovery);
	hf_crash_deinit(recovery);
	hf_locks_free(recovery->locks);
	recovery->locks = NULL;
	hf_clients_free(recovery->clients);
	hf_persist_deinit(recovery);
	hf_not_exported_deinit(recovery);
	hf_share_counts_deinit(recovery);
	hf_store_free(recovery->store);
	free(recovery);
	return NULL;
}

static void stopped(struct hf_recovery *recovery)
{
	void (*done)(void *user) = recovery->stop_done;

	recovery->stop_done = NULL;
	done(recovery->stop_user);
	/* @recovery may be gone here */
}

/* The last write of an orderly stop is the marker that it was one. */
static void on_stop_timer(struct hf_timer *timer)
{
	struct hf_recovery *recovery = hf_container_of(timer, struct hf_recovery, stop_timer);
	int r = hf_store_mark_clean(recovery->store);

	if (r < 0 && hf_loop_now(recovery->loop) < recovery->stop_by &&
	    hf_timer_start(timer, STOP_LOOK_NS) == 0)
		return;
	if (r < 0)
		hf_log_warn("the stop could not be marked as clean: the next start will take it for a crash",
			    "error=%s", strerror(-r));
	stopped(recovery);
}

void hf_recovery_stop(struct hf_recovery *recovery, void (*done)(void *user), void *user)
{
	hf_notifier_stop(recovery);
	recovery->is_stopping = true;
	recovery->stop_done = done;
	recovery->stop_user = user;
	recovery->stop_by = hf_loop_now(recovery->loop) + STOP_PATIENCE_NS;
	hf_timer_init(&recovery->stop_timer, recovery->loop, on_stop_timer);
	if (hf_timer_start(&recovery->stop_timer, 0) < 0)
		stopped(recovery);
}

bool hf_recovery_is_stopping(const struct hf_recovery *recovery)
{
	return recovery->is_stopping;
}

/* Neighbours */

void hf_recovery_set_waiter_events(struct hf_recovery *recovery,
				   const struct hf_recovery_waiter_events *events, void *user)
{
	recovery->waiter_events = events ? *events : (struct hf_recovery_waiter_events){ 0 };
	recovery->waiter_user = user;
}

void hf_recovery_set_teller(struct hf_recovery *recovery, const struct hf_recovery_teller *teller)
{
	recovery->teller = teller ? *teller : (struct hf_recovery_teller){ 0 };
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
