/*
 * A change to a file, with the file's attributes before and after: what NFS
 * calls weak cache consistency. If a client sees only its own change between
 * the two, it trusts its cache. So the attributes before are given only if no
 * other change through this server came between. Most changes exclude each
 * other. A change that waits for the disk does not exclude others, but detects
 * them. Changes through another export that has the file, too, are also only
 * detected: it is another hf_file there.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "vfs/file.h"

struct hf_change {
	bool has_before;
	bool has_after;
	bool is_alone;  /* no other change was in progress when it began */
	uint32_t begun; /* how many changes had begun then, including this one */
	struct stat before;
	struct stat after;
};

#define HF_CHANGE_BEGUN    (UINT64_C(1) << 32) /* units of a count */
#define HF_CHANGE_UNDERWAY UINT64_C(1)

/* Counts of changes; upper half: begun; lower half: in progress. Files share one by chance, and then a change
 * of one may hide the attributes before from a change of the other: its client asks again. */
#define HF_CHANGE_COUNTS_BITS 14
extern _Atomic uint64_t hf_change_counts[1 << HF_CHANGE_COUNTS_BITS];

/* The same for the file in every export */
static inline _Atomic uint64_t *hf_change_count(const struct hf_file *file)
{
	uint64_t key = file->id.inode ^ ((uint64_t)file->dev << 40);

	return &hf_change_counts[(key * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - HF_CHANGE_COUNTS_BITS)];
}

static inline void hf_change_before(struct hf_change *change, struct hf_file *file)
{
	change->has_before = fstat(file->fd, &change->before) == 0;
}

static inline void hf_change_after(struct hf_change *change, struct hf_file *file)
{
	change->has_after = fstat(file->fd, &change->after) == 0;
}

/* For a caller that changes nothing but must know whether other calls do. */
static inline void hf_change_watch(struct hf_change *change, struct hf_file *file)
{
	uint64_t seen = atomic_load(hf_change_count(file));

	change->is_alone = (uint32_t)seen == 0;
	change->begun = (uint32_t)(seen >> 32);
	hf_change_before(change, file);
}

static inline void hf_change_end_watch(struct hf_change *change, struct hf_file *file)
{
	hf_change_after(change, file);
	change->is_alone =
		change->is_alone && (uint32_t)(atomic_load(hf_change_count(file)) >> 32) == change->begun;
	change->has_before = change->has_before && change->is_alone;
}

/* For a change that waits for the disk. */
static inline void hf_change_begin_open(struct hf_change *change, struct hf_file *file)
{
	uint64_t seen = atomic_fetch_add(hf_change_count(file), HF_CHANGE_BEGUN + HF_CHANGE_UNDERWAY);

	change->is_alone = (uint32_t)seen == 0;
	change->begun = (uint32_t)(seen >> 32) + 1;
	hf_change_before(change, file);
}

static inline void hf_change_end_open(struct hf_change *change, struct hf_file *file)
{
	hf_change_end_watch(change, file);
	atomic_fetch_sub(hf_change_count(file), HF_CHANGE_UNDERWAY);
}

static inline void hf_change_begin(struct hf_change *change, struct hf_file *file)
{
	pthread_mutex_lock(&file->change_lock);
	hf_change_begin_open(change, file);
}

static inline void hf_change_end(struct hf_change *change, struct hf_file *file)
{
	hf_change_end_open(change, file);
	pthread_mutex_unlock(&file->change_lock);
}

/* The following block is the change. Leave it at its end, not by return or break. */
#define HF_WITH_CHANGE(change, file)                                              \
	for (bool hf_is_in = (hf_change_begin((change), (file)), true); hf_is_in; \
	     hf_change_end((change), (file)), hf_is_in = false)
