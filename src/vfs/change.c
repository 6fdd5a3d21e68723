#include "vfs/change.h"

#include <pthread.h>
#include <stdatomic.h>

#define BEGUN    (UINT64_C(1) << 32) /* units of a count */
#define UNDERWAY UINT64_C(1)

/* Counts of changes; upper half: begun; lower half: in progress. Files share one by chance, and then a change
 * of one may hide the attributes before from a change of the other: its client asks again. */
#define COUNTS_BITS 14
static _Atomic uint64_t counts[1 << COUNTS_BITS];

/* The same for the file in every export */
static _Atomic uint64_t *count_of(const struct hf_file *file)
{
	uint64_t key = file->id.inode ^ ((uint64_t)file->dev << 40);

	return &counts[(key * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - COUNTS_BITS)];
}

void hf_change_before(struct hf_change *change, struct hf_file *file)
{
	change->has_before = fstat(file->fd, &change->before) == 0;
}

void hf_change_after(struct hf_change *change, struct hf_file *file)
{
	change->has_after = fstat(file->fd, &change->after) == 0;
}

void hf_change_watch(struct hf_change *change, struct hf_file *file)
{
	uint64_t seen = atomic_load(count_of(file));

	change->is_alone = (uint32_t)seen == 0;
	change->begun = (uint32_t)(seen >> 32);
	hf_change_before(change, file);
}

void hf_change_end_watch(struct hf_change *change, struct hf_file *file)
{
	hf_change_after(change, file);
	change->is_alone = change->is_alone && (uint32_t)(atomic_load(count_of(file)) >> 32) == change->begun;
	change->has_before = change->has_before && change->is_alone;
}

void hf_change_begin_open(struct hf_change *change, struct hf_file *file)
{
	uint64_t seen = atomic_fetch_add(count_of(file), BEGUN + UNDERWAY);

	change->is_alone = (uint32_t)seen == 0;
	change->begun = (uint32_t)(seen >> 32) + 1;
	hf_change_before(change, file);
}

void hf_change_end_open(struct hf_change *change, struct hf_file *file)
{
	hf_change_end_watch(change, file);
	atomic_fetch_sub(count_of(file), UNDERWAY);
}

void hf_change_begin(struct hf_change *change, struct hf_file *file)
{
	pthread_mutex_lock(&file->change_lock);
	hf_change_begin_open(change, file);
}

void hf_change_end(struct hf_change *change, struct hf_file *file)
{
	hf_change_end_open(change, file);
	pthread_mutex_unlock(&file->change_lock);
}
