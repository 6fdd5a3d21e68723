/*
 * A change to a file with its attributes before and after: what NFS calls weak
 * cache consistency. Between begin and end no other change of ours happens to
 * the file.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "vfs/file.h"

struct hf_change {
	bool has_before;
	bool has_after;
	struct stat before;
	struct stat after;
};

static inline void hf_change_before(struct hf_change *change, struct hf_file *file)
{
	change->has_before = fstat(file->fd, &change->before) == 0;
}

static inline void hf_change_after(struct hf_change *change, struct hf_file *file)
{
	change->has_after = fstat(file->fd, &change->after) == 0;
}

static inline void hf_change_begin(struct hf_change *change, struct hf_file *file)
{
	pthread_mutex_lock(&file->change_lock);
	hf_change_before(change, file);
}

static inline void hf_change_end(struct hf_change *change, struct hf_file *file)
{
	hf_change_after(change, file);
	pthread_mutex_unlock(&file->change_lock);
}

/* The block that follows is the change; it must be left at its end, not by return or break. */
#define HF_WITH_CHANGE(change, file)                                              \
	for (bool hf_is_in = (hf_change_begin((change), (file)), true); hf_is_in; \
	     hf_change_end((change), (file)), hf_is_in = false)
