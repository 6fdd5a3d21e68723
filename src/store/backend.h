/*
 * What a medium must offer to carry a store: memory, lmdb/, postgres/, and the
 * simulated one, implement this table; everybody else uses store.h.
 *
 * The front (store.c, write.c, health.c) keeps tickets, batches and health; a
 * backend only moves bytes. All is called on the loop's thread.
 */
#pragma once

#include "loop/loop.h"
#include "loop/timer.h"
#include "store/batch.h"
#include "store/record.h"
#include "store/state.h"

struct hf_store_ops {
	const char *name;
	bool is_volatile; /* nothing outlives the process: no write is made, every ticket reached at once */

	void (*free)(struct hf_store *store); /* the backend's parts, not @store itself */

	/* These block; they are used only before service begins and after it has ended. */
	int (*load_state)(struct hf_store *store, struct hf_store_state *statep); /* 1: found, 0: none */
	/* Synced. With @drop_locks locks and shares are gone in the same step. */
	int (*save_state)(struct hf_store *store, const struct hf_store_state *state, bool drop_locks);
	/* Every stored record of @type, decoded; ends early with what @fn returns, if not 0. */
	int (*load)(struct hf_store *store, enum hf_record_type type,
		    int (*fn)(void *user, const struct hf_record *record), void *user);
	int (*clear)(struct hf_store *store);

	/*
	 * Makes the batch durable, by its kind and the store's durability, and then calls
	 * hf_store_batch_done(), within this call or later. At most one batch of each kind is under way,
	 * and none beside one of kind HF_STORE_ALL, which replaces everything but the state in one piece.
	 */
	void (*commit)(struct hf_store *store, struct hf_store_batch *batch);
	/* After a failure, with no batch under way: tries to be able to write again, then calls
	 * hf_store_recover_done(), within this call or later. */
	void (*recover)(struct hf_store *store);
};

enum hf_store_health {
	HF_STORE_HEALTHY,
	HF_STORE_FAILED,    /* waits for the next try */
	HF_STORE_TRYING,    /* the backend recovers */
	HF_STORE_ASKING,    /* in on_resync */
	HF_STORE_RESYNCING, /* the answer is being written; new writes wait behind it */
	HF_STORE_TAKEN,     /* by another run: for good */
};

/* The writes of one kind: one batch fills while the other may fly. */
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
	struct hf_store_state state; /* of this run, as stored */
	uint64_t handle_key;         /* (c) that it should have been written with; 0: any will do */
	bool has_begun;
	uint64_t next_id;
	uint64_t issued;                   /* the last ticket */
	struct hf_store_stream streams[2]; /* by kind */
	struct hf_task commit_task;
	struct hf_store_counts counts;

	enum hf_store_health health;
	struct hf_store_batch resync;
	struct hf_timer recover_timer;
	uint64_t recover_gap;
	uint64_t recovered_at;
	int failure;      /* -errno that was logged */
	int resync_error; /* while asking */
};

/* For a backend's open function: @store is zeroed and the first member of its struct. */
int hf_store_init(struct hf_store *store, struct hf_loop *loop, const struct hf_store_ops *ops,
		  const struct hf_store_options *options);

/* For a backend to report. */
void hf_store_batch_done(struct hf_store_batch *batch, int r);
void hf_store_recover_done(struct hf_store *store, int r);
void hf_store_lost(struct hf_store *store, int r); /* the medium went away while nothing was under way */
/* Another run has used it since. Called before the batches that are under way are reported as failed; a
 * backend that finds it out while it recovers calls this instead of hf_store_recover_done(). */
void hf_store_taken(struct hf_store *store);

/* Between the front's own files. */
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
