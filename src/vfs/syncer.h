/*
 * Putting changes on stable storage, many at a time.
 *
 * Whoever changes something enters, and says at leaving which files it was; he
 * is told when it is safe. Changes gather until nobody is about to make another:
 * none is next in the queue of jobs, and those under way have left, or have had
 * a moment to do so. Then one thread waits for the disk, for all of them: a
 * directory in which a hundred names were made is synced once. This matters
 * more than it seems, because the kernel lets who would change a block wait
 * while it is being written: one sync too early, and the next change of the
 * same directory takes as long as the disk.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct hf_file;

#define HF_SYNC_FILES 2

struct hf_sync {
	struct hf_link link;
	struct hf_file *files[HF_SYNC_FILES]; /* references of the caller's, until told; NULL: none */
	int result;                           /* 0, or the first error */
	void (*told)(struct hf_sync *sync);   /* on whichever thread; may free it */
};

struct hf_jobs;

struct hf_syncer {
	pthread_mutex_t lock;
	pthread_cond_t has_left;
	struct hf_list waiting; /* under lock, as the next */
	size_t n_inside;        /* entered, and not left */
	size_t n_passed;        /* who left it to others to sync, since it was last done */
	size_t n_due;           /* who was told when others waited already, and will soon be back as a rule */
	uint64_t last_took;     /* ns that the disk took */
	bool is_busy;
};

void hf_syncer_init(struct hf_syncer *syncer);
void hf_syncer_deinit(struct hf_syncer *syncer);

/* Around a change. @sync is NULL where there is nothing to sync, and else told: maybe before this returns.
 * @jobs is the queue in which more changes may be, submitted with the syncer as their group. Leaving blocks
 * where this one has to sync, and then as long as others come. */
void hf_syncer_enter(struct hf_syncer *syncer);
void hf_syncer_leave(struct hf_syncer *syncer, struct hf_sync *sync, struct hf_jobs *jobs);
