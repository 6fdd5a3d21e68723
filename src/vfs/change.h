/*
 * A change to a file with its attributes before and after: what NFS calls weak
 * cache consistency. A client that finds its own change alone between the two
 * takes what it has cached for true, so the attributes before are given only if
 * no other change of ours came between. As a rule none does, since others are
 * kept out; what waits for the disk does not keep them out, but sees whether
 * they came.
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
	bool is_alone;  /* no other was under way when it began */
	uint32_t begun; /* how many had begun then, itself included */
	struct stat before;
	struct stat after;
};

#define HF_CHANGE_BEGUN    (UINT64_C(1) << 32) /* in hf_file.changes */
#define HF_CHANGE_UNDERWAY UINT64_C(1)

static inline void hf_change_before(struct hf_change *change, struct hf_file *file)
{
	change->has_before = fstat(file->fd, &change->before) == 0;
}

static inline void hf_change_after(struct hf_change *change, struct hf_file *file)
{
	change->has_after = fstat(file->fd, &change->after) == 0;
}

/* For who changes nothing, and wants to know whether others do. */
static inline void hf_change_watch(struct hf_change *change, struct hf_file *file)
{
	uint64_t seen = atomic_load(&file->changes);

	change->is_alone = (uint32_t)seen == 0;
	change->begun = (uint32_t)(seen >> 32);
	hf_change_before(change, file);
}

static inline void hf_change_end_watch(struct hf_change *change, struct hf_file *file)
{
	hf_change_after(change, file);
	change->is_alone = change->is_alone && (uint32_t)(atomic_load(&file->changes) >> 32) == change->begun;
	change->has_before = change->has_before && change->is_alone;
}

/* For a change that waits for the disk. */
static inline void hf_change_begin_open(struct hf_change *change, struct hf_file *file)
{
	uint64_t seen = atomic_fetch_add(&file->changes, HF_CHANGE_BEGUN + HF_CHANGE_UNDERWAY);

	change->is_alone = (uint32_t)seen == 0;
	change->begun = (uint32_t)(seen >> 32) + 1;
	hf_change_before(change, file);
}

static inline void hf_change_end_open(struct hf_change *change, struct hf_file *file)
{
	hf_change_end_watch(change, file);
	atomic_fetch_sub(&file->changes, HF_CHANGE_UNDERWAY);
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

/* The block that follows is the change; it must be left at its end, not by return or break. */
#define HF_WITH_CHANGE(change, file)                                              \
	for (bool hf_is_in = (hf_change_begin((change), (file)), true); hf_is_in; \
	     hf_change_end((change), (file)), hf_is_in = false)
