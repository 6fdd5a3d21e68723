/* A store without a server; offline.h describes it. The loop runs only while a copy is being written. */
#include "store/offline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "store/backend.h"

#define AT_ONCE 1000 /* facts in one commit */

struct hf_offline {
	struct hf_loop *loop;
	struct hf_store *store;
	bool has_failed;
};

/* Making and freeing */

static void on_reached(void *user, enum hf_store_kind kind, uint64_t ticket)
{
	struct hf_offline *offline = user;

	if (hf_store_is_idle(offline->store))
		hf_loop_stop(offline->loop);
}

static void on_failed(void *user, uint64_t first_lost)
{
	struct hf_offline *offline = user;

	offline->has_failed = true;
	hf_loop_stop(offline->loop);
}

/* After a failure the loop does not run again. */
static void on_resync(void *user)
{
}

static void on_recovered(void *user)
{
}

static const struct hf_store_events events = {
	.on_reached = on_reached,
	.on_failed = on_failed,
	.on_resync = on_resync,
	.on_recovered = on_recovered,
};

struct hf_offline *hf_offline_close(struct hf_offline *offline)
{
	if (!offline)
		return NULL;
	hf_store_free(offline->store);
	hf_loop_free(offline->loop);
	free(offline);
	return NULL;
}

int hf_offline_open(struct hf_offline **offlinep, const struct hf_offline_options *options)
{
	hf_cleanup(hf_offline_closep) struct hf_offline *offline = calloc(1, sizeof(*offline));
	struct hf_store_options store = {
		.durability = HF_STORE_MACHINE,
		.path = options->path,
		.postgres = options->postgres,
		.server = options->server,
		.events = &events,
		.user = offline,
	};
	int r;

	if (!offline)
		return hf_trace(-ENOMEM);
	r = hf_loop_new(&offline->loop);
	if (r == 0)
		r = options->path ? hf_store_open_lmdb(&offline->store, offline->loop, &store)
				  : hf_store_open_postgres(&offline->store, offline->loop, &store);
	if (r < 0)
		return hf_trace(r);
	*offlinep = offline;
	offline = NULL;
	return 0;
}

struct hf_store *hf_offline_store(struct hf_offline *offline)
{
	return offline->store;
}

/* Looking */

int hf_offline_look(struct hf_offline *offline, struct hf_store_state *statep, bool *is_trustedp)
{
	struct hf_store *store = offline->store;
	int r = store->ops->load_state(store, statep);

	if (r > 0)
		*is_trustedp = hf_store_is_intact(statep, &store->state);
	return hf_trace(r);
}

/* Copying */

struct copying {
	struct hf_offline *to;
	size_t n; /* facts since the last commit */
};

/* Runs the loop until everything that was put is synced. */
static int flush(struct copying *copying)
{
	struct hf_offline *to = copying->to;

	copying->n = 0;
	while (!to->has_failed && !hf_store_is_idle(to->store))
		hf_loop_run(to->loop);
	return to->has_failed ? hf_trace(-EIO) : 0;
}

static int count(struct copying *copying, int r)
{
	if (r < 0)
		return hf_trace(r);
	return ++copying->n >= AT_ONCE ? flush(copying) : 0;
}

static int copy_client(void *user, const struct hf_store_client *client)
{
	struct copying *copying = user;

	return count(copying, hf_store_put_client(copying->to->store, client, NULL));
}

static int copy_lock(void *user, const struct hf_store_lock *lock)
{
	struct copying *copying = user;

	return count(copying, hf_store_put_lock(copying->to->store, lock, NULL));
}

static int copy_reservation(void *user, const struct hf_store_reservation *reservation)
{
	struct copying *copying = user;

	return count(copying, hf_store_put_reservation(copying->to->store, reservation, NULL));
}

static int copy_waiter(void *user, const struct hf_store_waiter *waiter)
{
	struct copying *copying = user;

	return count(copying, hf_store_put_waiter(copying->to->store, waiter, NULL));
}

static int copy_facts(struct copying *copying, struct hf_store *from, bool with_locks)
{
	int r = hf_store_load_clients(from, copy_client, copying);

	if (r == 0 && with_locks)
		r = hf_store_load_locks(from, copy_lock, copying);
	if (r == 0 && with_locks)
		r = hf_store_load_reservations(from, copy_reservation, copying);
	if (r == 0 && with_locks)
		r = hf_store_load_waiters(from, copy_waiter, copying);
	return r < 0 ? r : flush(copying);
}

/* The run that copies takes the place of the run whose facts these are. */
static int begin(struct hf_store *to, const struct hf_store_state *state)
{
	struct hf_store_state before;
	int r = to->ops->load_state(to, &before);

	if (r)
		return r < 0 ? r : -EEXIST;
	to->state = *state;
	to->state.is_clean = to->state.is_complete = to->state.is_settled = false;
	r = to->ops->save_state(to, &to->state, true);
	if (r < 0)
		return r;
	/* No id is new: each was given by a run before. */
	to->next_id = UINT64_MAX;
	to->has_begun = true;
	hf_store_reset_streams(to);
	return 0;
}

int hf_offline_copy(struct hf_offline *to, struct hf_offline *from)
{
	struct copying copying = { .to = to };
	struct hf_store_state state;
	bool is_trusted;
	int r = hf_offline_look(from, &state, &is_trusted);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	/* The copy is synced, so that it depends neither on this boot nor on the old medium. Its start cannot
	 * see that a replica took the place of the old medium, so that the copy has the state number to count
	 * from. */
	state.sm_state = hf_store_skip_lost(&state, &from->store->state);
	state.durability = HF_STORE_MACHINE;
	snprintf(state.medium, sizeof(state.medium), "%s", to->store->state.medium);
	r = begin(to->store, &state);
	if (r == 0)
		r = copy_facts(&copying, from->store, is_trusted);
	if (r < 0)
		return hf_trace(r);
	state.is_complete &= is_trusted;
	state.is_settled &= is_trusted;
	return hf_trace(to->store->ops->save_state(to->store, &state, false));
}
