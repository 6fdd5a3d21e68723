/*
 * Putting changes on stable storage, many at a time.
 *
 * Whoever has changed something says which files that was, and is told when it
 * is safe. While one thread waits for the disk, the changes of others gather,
 * and the next wait is for all of them: a directory in which a hundred names
 * were made is synced once. Nobody but that one thread ever waits here.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/list.h"

struct hf_file;

#define HF_SYNC_FILES 2

struct hf_sync {
	struct hf_link link;
	struct hf_file *files[HF_SYNC_FILES]; /* references of the caller's, until told; NULL: none */
	int result;                           /* 0, or the first error */
	void (*told)(struct hf_sync *sync);   /* on whichever thread; may free it */
};

struct hf_syncer {
	pthread_mutex_t lock;
	struct hf_list waiting; /* under lock, as the next */
	bool is_busy;
};

void hf_syncer_init(struct hf_syncer *syncer);
void hf_syncer_deinit(struct hf_syncer *syncer);

/* Blocks if nobody else is at it, and then as long as others come. told() may be called before it returns. */
void hf_syncer_submit(struct hf_syncer *syncer, struct hf_sync *sync);
