/*
 * Sweeps the cache of open files every second, and closes what the sweep and
 * others dropped; when the cache is full, at once. Each disk has a thread of its
 * own for closing (vfs/disk_queue.h): a close that waits for a hung disk delays neither
 * the next sweep nor the files of other disks. Belongs to the thread of its loop.
 */
#pragma once

#include <stddef.h>

#include "base/cleanup.h"

struct hf_exports;
struct hf_loop;
struct hf_sweeper;

/* @n_disks: as for hf_disk_queue_new(). */
int hf_sweeper_new(struct hf_sweeper **sweeperp, struct hf_loop *loop, struct hf_exports *exports,
		   size_t n_disks);
/* How many works of the loop's pool it uses at most. */
size_t hf_sweeper_threads(size_t n_disks);
/* To stop, when no other thread uses the files any more: sweeps no more, and waits until the closes that were
 * begun have ended. Drain the loop after it. */
void hf_sweeper_wait(struct hf_sweeper *sweeper);
struct hf_sweeper *hf_sweeper_free(struct hf_sweeper *sweeper);

HF_DEFINE_CLEANUP(struct hf_sweeper *, hf_sweeper_free)
