/*
 * Watches for changes that decide who may use a file: mode, owner, number of
 * names.
 *
 * The kernel reports such a change before the call that makes it returns
 * (inotify). So an answer about a file that was found after hf_watch_add() is
 * valid as long as hf_watch_is_unchanged() is true right after hf_watch_read().
 *
 * A watch reports one change and ends. The newest MAX_WATCHES exist; one that
 * makes room for another counts as changed. Files that other kernels or
 * processes can change (network file systems, FUSE) are not watched.
 *
 * hf_watch_add() may be called from any thread, the rest only from the loop's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"

struct hf_file;
struct hf_watch;

/* -errno if the kernel provides no inotify instance. */
int hf_watch_new(struct hf_watch **watchp);
struct hf_watch *hf_watch_free(struct hf_watch *watch);

HF_DEFINE_CLEANUP(struct hf_watch *, hf_watch_free)

/* Returns the number of the watch, or 0: changes to this file are not reported. */
int hf_watch_add(struct hf_watch *watch, struct hf_file *file);
/* Reads the kernel's events; does not block. */
void hf_watch_read(struct hf_watch *watch);
/* The number of events read so far; take it before looking at the file. */
uint64_t hf_watch_count(const struct hf_watch *watch);
/* No event of @number was read since the count was @since. Can be true only for watches that were added. */
bool hf_watch_is_unchanged(const struct hf_watch *watch, int number, uint64_t since);
