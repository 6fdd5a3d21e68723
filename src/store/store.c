/* The front of every store: life, start, stop and loading. write.c does the writing, health.c handles
 * failure. */
#include "store/store.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "store/backend.h"

/* The ids of a run start with its epoch. 2^44 of them last half a year at a million a second. After 2^20 runs
 * the epochs repeat; pass_id() begins new ids after those still in use. */
#define EPOCH_SHIFT 44

#define SECONDS_TO_2020 UINT64_C(1577836800)

int hf_store_init(struct hf_store *store, struct hf_loop *loop, const struct hf_store_ops *ops,
		  const struct hf_store_options *options)
{
	int r;

	assert(options->events && options->events->on_reached && options->events->on_failed);
	assert(options->events->on_resync && options->events->on_recovered);
	store->ops = ops;
	store->loop = loop;
	store->events = options->events;
	store->user = options->user;
	store->state.durability = options->durability;
	store->handle_key = options->handle_key;
	store->continues = options->continues;
	store->is_claimed = options->owner != NULL;
	store->known_epoch = options->known_epoch;
	store->known_state = options->known_state;
	if (options->boot_id) {
		snprintf(store->state.boot_id, sizeof(store->state.boot_id), "%s", options->boot_id);
	} else {
		r = hf_store_read_boot_id(store->state.boot_id);
		if (r < 0)
			return hf_trace(r);
	}
	hf_store_init_writing(store);
	hf_store_init_health(store);
	return 0;
}

struct hf_store *hf_store_free(struct hf_store *store)
{
	if (!store)
		return NULL;
	hf_store_deinit_health(store);
	store->ops->free(store); /* afterwards no work is in flight */
	hf_store_deinit_writing(store);
	free(store);
	return NULL;
}

/* Start */

/* Without a stored state number, the clock provides one that grows: twice the seconds. */
static int32_t clock_sm_state(struct hf_loop *loop)
{
	uint64_t seconds = hf_loop_wall(loop) / HF_NS_PER_S;

	return (int32_t)(((seconds - SECONDS_TO_2020) << 1 & 0x7fffffff) | 1);
}

static int find_one(void *user, const struct hf_record *record)
{
	return 1;
}

/* 1: the store has a fact that a client may rely on. */
static int has_facts(struct hf_store *store)
{
	int r = store->ops->load(store, HF_RECORD_CLIENT, find_one, NULL);

	if (r == 0)
		r = store->ops->load(store, HF_RECORD_LOCK, find_one, NULL);
	return r ? r : store->ops->load(store, HF_RECORD_RESERVATION, find_one, NULL);
}

/* A registration alone is a reason to refuse: a crash of the machine may have lost its client's locks, and
 * under another handle key the client could not reclaim them. */
static int check_key(struct hf_store *store, const struct hf_store_state *before)
{
	int r;

	if (!store->handle_key || !before->handle_key || before->handle_key == store->handle_key)
		return 0;
	r = has_facts(store);
	return r > 0 ? -EKEYREJECTED : r;
}

/* If the medium has forgotten what this node saw there, it has forgotten locks, too. */
static void remember(const struct hf_store *store, struct hf_store_state *before)
{
	if (before->epoch < store->known_epoch) {
		before->epoch = store->known_epoch;
		before->durability = HF_STORE_NONE;
	}
}

int hf_store_begin_epoch(struct hf_store *store, struct hf_store_start *startp)
{
	struct hf_store_state before = { 0 };
	bool has_state;
	int r;

	assert(!store->has_begun);
	r = store->ops->load_state(store, &before);
	if (r < 0)
		return hf_trace(r);
	has_state = r;
	if (has_state) {
		r = check_key(store, &before);
		if (r < 0)
			return hf_trace(r);
	}
	remember(store, &before);
	has_state |= before.epoch > 0;
	hf_store_judge(has_state ? &before : NULL, &store->state, store->known_state, store->continues,
		       startp);
	if (store->ops->is_volatile)
		startp->sm_state = store->state.sm_state = clock_sm_state(store->loop);
	r = store->ops->save_state(store, &store->state, startp->dropped_locks);
	if (r < 0)
		return hf_trace(r);
	store->next_id = (store->state.epoch << EPOCH_SHIFT) + 1;
	store->has_begun = true;
	hf_store_reset_streams(store);
	return 0;
}

int hf_store_clear(struct hf_store *store)
{
	assert(hf_store_is_idle(store));
	return hf_trace(store->ops->clear(store));
}

int hf_store_name_key(struct hf_store *store, uint64_t handle_key)
{
	struct hf_store_state state = store->state;
	int r;

	assert(store->has_begun && hf_store_is_idle(store));
	if (state.handle_key == handle_key || store->ops->is_volatile)
		return 0;
	if (state.handle_key)
		hf_log_warn("the key of the file handles has changed: clients must mount again. No lock was "
			    "stored under the old key",
			    "%s", "");
	state.handle_key = handle_key;
	r = store->ops->save_state(store, &state, false);
	if (r < 0)
		return hf_trace(r);
	store->state = state;
	return 0;
}

int hf_store_mark_clean(struct hf_store *store)
{
	struct hf_store_state state = store->state;
	int r;

	assert(store->has_begun);
	if (store->health != HF_STORE_HEALTHY)
		return hf_trace(-EROFS);
	if (!hf_store_is_idle(store))
		return -EBUSY;
	state.is_clean = true;
	r = store->ops->save_state(store, &state, false);
	if (r < 0)
		return hf_trace(r);
	store->state = state;
	return 0;
}

/* Loading */

struct loading {
	struct hf_store *store;
	int (*client)(void *user, const struct hf_store_client *client);
	int (*lock)(void *user, const struct hf_store_lock *lock);
	int (*reservation)(void *user, const struct hf_store_reservation *reservation);
	int (*waiter)(void *user, const struct hf_store_waiter *waiter);
	void *user;
};

static int load_client(void *user, const struct hf_record *record)
{
	struct loading *loading = user;

	return loading->client(loading->user, &record->client);
}

/* A record of an old run whose epoch has the same low bits has its old id; new ids start after it. */
static void pass_id(struct hf_store *store, uint64_t id)
{
	if (id >> EPOCH_SHIFT == store->next_id >> EPOCH_SHIFT && id >= store->next_id)
		store->next_id = id + 1;
}

static int load_lock(void *user, const struct hf_record *record)
{
	struct loading *loading = user;

	pass_id(loading->store, record->lock.id);
	return loading->lock(loading->user, &record->lock);
}

static int load_reservation(void *user, const struct hf_record *record)
{
	struct loading *loading = user;

	pass_id(loading->store, record->reservation.id);
	return loading->reservation(loading->user, &record->reservation);
}

static int load_waiter(void *user, const struct hf_record *record)
{
	struct loading *loading = user;

	pass_id(loading->store, record->waiter.wants.id);
	return loading->waiter(loading->user, &record->waiter);
}

int hf_store_load_clients(struct hf_store *store, int (*fn)(void *user, const struct hf_store_client *client),
			  void *user)
{
	struct loading loading = { .client = fn, .user = user };

	return store->ops->load(store, HF_RECORD_CLIENT, load_client, &loading);
}

int hf_store_load_locks(struct hf_store *store, int (*fn)(void *user, const struct hf_store_lock *lock),
			void *user)
{
	struct loading loading = { .store = store, .lock = fn, .user = user };

	return store->ops->load(store, HF_RECORD_LOCK, load_lock, &loading);
}

int hf_store_load_reservations(struct hf_store *store,
			       int (*fn)(void *user, const struct hf_store_reservation *reservation),
			       void *user)
{
	struct loading loading = { .store = store, .reservation = fn, .user = user };

	return store->ops->load(store, HF_RECORD_RESERVATION, load_reservation, &loading);
}

int hf_store_load_waiters(struct hf_store *store, int (*fn)(void *user, const struct hf_store_waiter *waiter),
			  void *user)
{
	struct loading loading = { .store = store, .waiter = fn, .user = user };

	return store->ops->load(store, HF_RECORD_WAITER, load_waiter, &loading);
}

/* Questions */

const char *hf_store_name(const struct hf_store *store)
{
	return store->ops->name;
}

enum hf_store_durability hf_store_durability(const struct hf_store *store)
{
	return store->state.durability;
}

void hf_store_counts(const struct hf_store *store, struct hf_store_counts *countsp)
{
	*countsp = store->counts;
}
