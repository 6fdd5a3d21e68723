/*
 * How the store fails, and how it comes back.
 *
 *	healthy -> failed -> trying -> asking -> resyncing -> healthy
 *	              ^--------'----------'-----------'
 *
 * Every state can also lead to "taken", which is final: another run has used
 * the store.
 *
 * A failure discards every write that is queued or in flight. The caller undoes
 * the grants behind them, so writing them later would be wrong. The caller's
 * tables are the truth: to come back, the store writes all of them anew.
 */
#include "store/store.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "store/backend.h"

#define FIRST_GAP (100 * HF_NS_PER_MS)
/* Asking a medium that is unreachable costs little, and clients wait for it: retry often. A medium that
 * answers and then fails gets everything written to it on each attempt: back off further. */
#define AWAY_GAP HF_NS_PER_S
#define MAX_GAP  (10 * HF_NS_PER_S)
/* After this long in health, the next failure starts with FIRST_GAP again. */
#define CALM (60 * HF_NS_PER_S)

static void on_recover_timer(struct hf_timer *timer);

void hf_store_init_health(struct hf_store *store)
{
	hf_batch_init(&store->resync, store, HF_STORE_ALL);
	hf_timer_init(&store->recover_timer, store->loop, on_recover_timer);
	store->recover_gap = FIRST_GAP;
}

void hf_store_deinit_health(struct hf_store *store)
{
	hf_timer_stop(&store->recover_timer);
	hf_batch_deinit(&store->resync);
}

bool hf_store_is_healthy(const struct hf_store *store)
{
	return store->health == HF_STORE_HEALTHY;
}

bool hf_store_takes_writes(const struct hf_store *store)
{
	return store->health == HF_STORE_HEALTHY || store->health == HF_STORE_RESYNCING;
}

/* Failing */

static void try_later(struct hf_store *store, uint64_t max_gap)
{
	uint64_t gap = HF_MIN(store->recover_gap, max_gap);

	store->health = HF_STORE_FAILED;
	/* Without memory for the timer, the store cannot try again. */
	if (hf_timer_start(&store->recover_timer, gap) < 0)
		hf_log_error("no memory for a timer: the store is not tried again", "backend=%s",
			     store->ops->name);
	/* An unreachable medium must not shorten the gap of a medium that fails. */
	store->recover_gap = HF_MAX(store->recover_gap, HF_MIN(gap * 2, max_gap));
}

/* Discards the queued writes of @stream; returns the first ticket that is lost. */
static uint64_t give_up(struct hf_store *store, struct hf_store_stream *stream, bool was_healthy)
{
	uint64_t first_lost = store->issued + 1;
	bool is_lossy = !hf_store_stream_is_idle(stream);

	for (int i = 0; i < 2; i++) {
		if (stream->batches[i].is_lost)
			is_lossy = true;
		if (stream->batches[i].is_flying)
			stream->batches[i].is_lost = true;
		else
			hf_batch_reset(&stream->batches[i], store->next_id);
	}
	if (is_lossy)
		first_lost = stream->reached + 1;
	else if (was_healthy)
		stream->reached = store->issued;
	stream->filling->last_ticket = stream->reached;
	return first_lost;
}

/* Discards the queued writes of both streams; returns the first ticket that is lost. */
static uint64_t give_up_all(struct hf_store *store)
{
	bool was_healthy = store->health == HF_STORE_HEALTHY;
	uint64_t clients, locks;

	hf_task_cancel(&store->commit_task);
	clients = give_up(store, &store->streams[HF_STORE_CLIENTS], was_healthy);
	locks = give_up(store, &store->streams[HF_STORE_LOCKS], was_healthy);
	return HF_MIN(clients, locks);
}

void hf_store_fail(struct hf_store *store, int r)
{
	bool was_healthy = store->health == HF_STORE_HEALTHY;
	uint64_t first_lost;

	if (!was_healthy && store->health != HF_STORE_RESYNCING)
		return;
	if (was_healthy && hf_loop_now(store->loop) - store->recovered_at > CALM) {
		store->recover_gap = FIRST_GAP;
		store->failure = 0;
	}
	if (r != store->failure)
		hf_log_error(
			"the store cannot write; no lock is granted and no client registered until it can",
			"backend=%s error=%s", store->ops->name, strerror(-r));
	store->failure = r;
	store->counts.n_failures++;
	first_lost = give_up_all(store);
	try_later(store, MAX_GAP);
	store->events->on_failed(store->user, first_lost);
}

void hf_store_lost(struct hf_store *store, int r)
{
	hf_store_fail(store, r);
}

/* The other run's facts are newer, and it may have granted the same ranges. Writing the facts of this run
 * would undo the other run's promises; continuing without a store would break the promises of this one. */
void hf_store_taken(struct hf_store *store)
{
	uint64_t first_lost = store->issued + 1;
	bool could_write = store->health == HF_STORE_HEALTHY || store->health == HF_STORE_RESYNCING;

	if (store->health == HF_STORE_TAKEN)
		return;
	if (store->is_claimed)
		hf_log_warn("another node has the service; this one writes nothing more",
			    "backend=%s epoch=%llu", store->ops->name,
			    (unsigned long long)store->state.epoch);
	else
		hf_log_error(
			"another holdfastd with the same server.name has used the store; this one writes "
			"nothing more and stops. Give each its own server.name",
			"backend=%s epoch=%llu", store->ops->name, (unsigned long long)store->state.epoch);
	if (could_write)
		first_lost = give_up_all(store);
	hf_timer_stop(&store->recover_timer);
	store->health = HF_STORE_TAKEN;
	store->counts.n_failures++;
	if (could_write)
		store->events->on_failed(store->user, first_lost);
	if (store->events->on_taken)
		store->events->on_taken(store->user);
}

/* Coming back */

static bool is_flying(const struct hf_store *store)
{
	return store->resync.is_flying || hf_store_stream_is_flying(&store->streams[HF_STORE_CLIENTS]) ||
	       hf_store_stream_is_flying(&store->streams[HF_STORE_LOCKS]);
}

static void on_recover_timer(struct hf_timer *timer)
{
	struct hf_store *store = hf_container_of(timer, struct hf_store, recover_timer);

	if (is_flying(store)) {
		try_later(store, AWAY_GAP);
		return;
	}
	store->health = HF_STORE_TRYING;
	store->ops->recover(store);
}

static int add_state(struct hf_store *store)
{
	uint8_t *out = hf_batch_reserve(&store->resync);

	if (!out)
		return hf_trace(-ENOMEM);
	hf_batch_add(&store->resync, hf_record_encode_state(out, &store->state));
	return 0;
}

/* Both streams begin again, after a start or a failure. */
void hf_store_reset_streams(struct hf_store *store)
{
	for (int kind = 0; kind < 2; kind++) {
		struct hf_store_stream *stream = &store->streams[kind];

		hf_batch_reset(stream->filling, store->next_id);
		stream->filling->last_ticket = stream->reached;
	}
}

void hf_store_recover_done(struct hf_store *store, int r)
{
	assert(store->health == HF_STORE_TRYING);
	/* The database may have gone back to what it was when this node served. Only a lease that still runs
	 * says that no other node has served since. */
	if (r == 0 && !hf_loop_may_act(store->loop))
		r = -EAGAIN;
	if (r < 0) {
		hf_log_debug("the store still cannot write", "backend=%s error=%s", store->ops->name,
			     strerror(-r));
		try_later(store, AWAY_GAP);
		return;
	}
	store->health = HF_STORE_ASKING;
	store->resync_error = 0;
	hf_batch_reset(&store->resync, UINT64_MAX);
	store->resync_error = add_state(store);
	if (store->resync_error == 0)
		store->events->on_resync(store->user);
	if (store->resync_error < 0) {
		hf_batch_reset(&store->resync, UINT64_MAX);
		try_later(store, MAX_GAP);
		return;
	}
	/* From here on the store accepts new writes. They queue behind the resync and are lost if it
	 * fails. */
	store->health = HF_STORE_RESYNCING;
	hf_store_reset_streams(store);
	store->resync.is_flying = true;
	store->ops->commit(store, &store->resync);
}

void hf_store_resync_done(struct hf_store *store, int r)
{
	hf_batch_reset(&store->resync, UINT64_MAX);
	if (store->health != HF_STORE_RESYNCING)
		return;
	if (r < 0) {
		hf_store_fail(store, r);
		return;
	}
	store->health = HF_STORE_HEALTHY;
	store->recovered_at = hf_loop_now(store->loop);
	hf_log_info("the store can write again; all locks and registrations are stored", "backend=%s",
		    store->ops->name);
	hf_loop_defer(store->loop, &store->commit_task);
	store->events->on_recovered(store->user);
}

/* Resync */

static int append(struct hf_store *store, int length)
{
	if (length < 0) {
		store->resync_error = length;
		return hf_trace(length);
	}
	hf_batch_add(&store->resync, length);
	return 0;
}

static uint8_t *reserve(struct hf_store *store)
{
	uint8_t *out;

	assert(store->health == HF_STORE_ASKING);
	out = hf_batch_reserve(&store->resync);
	if (!out)
		store->resync_error = -ENOMEM;
	return out;
}

int hf_store_resync_client(struct hf_store *store, const struct hf_store_client *client)
{
	uint8_t *out = reserve(store);

	return out ? append(store, hf_record_encode_client(out, client)) : hf_trace(-ENOMEM);
}

int hf_store_resync_lock(struct hf_store *store, const struct hf_store_lock *lock)
{
	uint8_t *out;

	if (store->state.durability == HF_STORE_NONE)
		return 0;
	out = reserve(store);
	return out ? append(store, hf_record_encode_lock(out, lock)) : hf_trace(-ENOMEM);
}

int hf_store_resync_reservation(struct hf_store *store, const struct hf_store_reservation *reservation)
{
	uint8_t *out;

	if (store->state.durability == HF_STORE_NONE)
		return 0;
	out = reserve(store);
	return out ? append(store, hf_record_encode_reservation(out, reservation)) : hf_trace(-ENOMEM);
}

int hf_store_resync_waiter(struct hf_store *store, const struct hf_store_waiter *waiter)
{
	uint8_t *out;

	if (store->state.durability == HF_STORE_NONE)
		return 0;
	out = reserve(store);
	return out ? append(store, hf_record_encode_waiter(out, waiter)) : hf_trace(-ENOMEM);
}
