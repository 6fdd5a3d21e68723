/*
 * Puts changes on stable storage, many at a time.
 *
 * A thread that makes a change enters the syncer, and names the changed files
 * when it leaves; a call-back tells when they are safe. Changes gather until no
 * other is about to be made: none is next in the job queue, and those in
 * progress have left, or had a moment to do so. Then one thread syncs for all
 * of them: a directory in which a hundred names were created is synced once.
 *
 * This matters more than it seems. The kernel blocks changes to a block while
 * it is being written: after a sync that comes too early, the next change of
 * the same directory takes as long as the disk.
 */
#pragma once

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/list.h"

struct hf_file;

#define HF_SYNC_FILES 2

struct hf_sync {
	struct hf_link link;
	/* The caller's references, until told() is called; NULL: none. */
	struct hf_file *files[HF_SYNC_FILES];
	int result;                         /* 0, or the first error */
	void (*told)(struct hf_sync *sync); /* on any thread; may free it */
};

struct hf_jobs;

struct hf_syncer {
	pthread_mutex_t lock;
	pthread_cond_t has_left;
	struct hf_list waiting; /* under lock, like the next */
	size_t n_inside;        /* entered and not yet left */
	size_t n_passed;        /* changes that were left for others to sync, since the last sync */
	size_t n_due; /* changes that were told while others already waited; their callers mostly come back
			 soon */
	uint64_t last_took; /* duration of the last sync, in ns */
	bool is_busy;
};

/* The volume that has the syncer in it makes and ends it. */
static inline void hf_syncer_init(struct hf_syncer *syncer)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&syncer->has_left, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&syncer->lock, NULL);
	hf_list_init(&syncer->waiting);
	syncer->n_inside = syncer->n_passed = syncer->n_due = 0;
	syncer->last_took = 0;
	syncer->is_busy = false;
}

static inline void hf_syncer_deinit(struct hf_syncer *syncer)
{
	assert(hf_list_is_empty(&syncer->waiting) && !syncer->is_busy && syncer->n_inside == 0);
	pthread_cond_destroy(&syncer->has_left);
	pthread_mutex_destroy(&syncer->lock);
}

/* Around a change. @sync is NULL if there is nothing to sync; otherwise told() is called, maybe before this
 * returns. @jobs is the queue of further changes, submitted with the syncer as their group. hf_syncer_leave()
 * blocks if this thread has to sync, and then as long as others come. */
void hf_syncer_enter(struct hf_syncer *syncer);
void hf_syncer_leave(struct hf_syncer *syncer, struct hf_sync *sync, struct hf_jobs *jobs);
