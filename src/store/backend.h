/*
 * The table that a storage medium implements to carry a store. The media are
 * memory.c, lmdb/, postgres/ and the simulation's store. Every other caller
 * uses store.h.
 *
 * The front (store.c, write.c, health.c) manages tickets, batches and health; a
 * backend only moves bytes. All functions run on the loop's thread.
 */
#pragma once

#include "loop/loop.h"
#include "loop/timer.h"
#include "store/batch.h"
#include "store/record.h"
#include "store/state.h"

struct hf_store_ops {
	const char *name;
	bool is_volatile; /* nothing outlives the process: the front writes nothing and reaches every ticket
			     at once */

	void (*free)(struct hf_store *store); /* frees the backend's parts, not @store itself */

	/* These block. The front calls them only before service begins and after it has ended. */
	/* 1: found; 0: no state is stored. */
	int (*load_state)(struct hf_store *store, struct hf_store_state *statep);
	/* Synced when it returns 0. With @drop_locks, the same step deletes all locks, reservations
	 * and waiters. */
	int (*save_state)(struct hf_store *store, const struct hf_store_state *state, bool drop_locks);
	/* Calls @fn with every stored record of @type, decoded. Stops and returns @fn's answer if that is not
	 * 0. */
	int (*load)(struct hf_store *store, enum hf_record_type type,
		    int (*fn)(void *user, const struct hf_record *record), void *user);
	int (*clear)(struct hf_store *store);

	/*
	 * Makes the batch as durable as its kind and the store's durability
	 * demand, then calls hf_store_batch_done(), within this call or later.
	 * At most one batch of each kind is in flight. A batch of kind
	 * HF_STORE_ALL is in flight alone: it replaces everything but the
	 * state, in one step.
	 */
	void (*commit)(struct hf_store *store, struct hf_store_batch *batch);
	/* Called after a failure, with no batch in flight. Tries to make the medium writable again, then
	 * calls hf_store_recover_done(), within this call or later. */
	void (*recover)(struct hf_store *store);
};

enum hf_store_health {
	HF_STORE_HEALTHY,
	HF_STORE_FAILED,    /* the timer of the next attempt runs */
	HF_STORE_TRYING,    /* the backend is recovering */
	HF_STORE_ASKING,    /* on_resync is running */
	HF_STORE_RESYNCING, /* the resync is being written; new writes queue behind it */
	HF_STORE_TAKEN,     /* another run uses the store; this state is final */
};

/* The writes of one kind: one batch fills while the other is in flight. */
struct hf_store_stream {
	struct hf_store_batch batches[2];
	struct hf_store_batch *filling;
	uint64_t reached;
};

/* The common part of every store; a backend embeds it as its first member. */
struct hf_store {
	const struct hf_store_ops *ops; /* (c) */
	struct hf_loop *loop;           /* (c) */
	const struct hf_store_events *events;
	void *user;
	struct hf_store_state state; /* of this run, as it is stored */
	/* (c) the handle key that the facts must have been written with; 0: accept any. */
	uint64_t handle_key;
	bool continues;       /* (c) */
	bool is_claimed;      /* (c) by a node of a cluster, before the epoch begins */
	uint64_t known_epoch; /* (c) */
	int32_t known_state;  /* (c) */
	bool has_begun;
	uint64_t next_id;
	uint64_t issued;                   /* the last ticket that was given */
	struct hf_store_stream streams[2]; /* indexed by enum hf_store_kind */
	struct hf_task commit_task;
	struct hf_store_counts counts;

	enum hf_store_health health;
	struct hf_store_batch resync;
	struct hf_timer recover_timer;
	uint64_t recover_gap;
	uint64_t recovered_at;
	int failure;      /* the -errno that was logged last */
	int resync_error; /* set while on_resync runs */
};

/* For a backend's open function: @store is zeroed and the first member of its struct. */
int hf_store_init(struct hf_store *store, struct hf_loop *loop, const struct hf_store_ops *ops,
		  const struct hf_store_options *options);

/* The backend reports its results. */
void hf_store_batch_done(struct hf_store_batch *batch, int r);
void hf_store_recover_done(struct hf_store *store, int r);
void hf_store_lost(struct hf_store *store, int r); /* the medium went away while no batch was in flight */
/* Another run has used the store since this run wrote last. The backend calls this before it reports the
 * batches in flight as failed. A backend that finds out while it recovers calls this instead of
 * hf_store_recover_done(). */
void hf_store_taken(struct hf_store *store);

/* Shared by the front's own files. */
void hf_store_init_writing(struct hf_store *store);
void hf_store_deinit_writing(struct hf_store *store);
void hf_store_init_health(struct hf_store *store);
void hf_store_deinit_health(struct hf_store *store);
void hf_store_fail(struct hf_store *store, int r);
void hf_store_reset_streams(struct hf_store *store);
void hf_store_resync_done(struct hf_store *store, int r);

static inline bool hf_store_stream_is_flying(const struct hf_store_stream *stream)
{
	return stream->batches[0].is_flying || stream->batches[1].is_flying;
}

static inline bool hf_store_stream_is_idle(const struct hf_store_stream *stream)
{
	return !hf_store_stream_is_flying(stream) && stream->filling->last_ticket <= stream->reached;
}
