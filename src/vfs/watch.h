/*
 * Changes to files that decide who may use them: rights, owner, number of names.
 *
 * The kernel tells of them before the call that makes them returns (inotify). So
 * what was found out about a file, by a look that began after hf_watch_add(), is
 * true as long as hf_watch_is_unchanged() says so right after hf_watch_read().
 *
 * A watch tells of one change and is over. The newest MAX_WATCHES are kept: one
 * that makes room for another counts as changed. Files whose changes this kernel
 * does not make itself (network file systems, FUSE) are not watched.
 *
 * hf_watch_add() is for any thread, the rest for the loop's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"

struct hf_file;
struct hf_watch;

/* -errno where the kernel has none to give. */
int hf_watch_new(struct hf_watch **watchp);
struct hf_watch *hf_watch_free(struct hf_watch *watch);

HF_DEFINE_CLEANUP(struct hf_watch *, hf_watch_free)

/* The number of the watch, or 0: changes to this file are not told of. */
int hf_watch_add(struct hf_watch *watch, struct hf_file *file);
/* Takes what the kernel has to tell; waits for nothing. */
void hf_watch_read(struct hf_watch *watch);
/* How many changes have been read: before the file is looked at. */
uint64_t hf_watch_count(const struct hf_watch *watch);
/* Nothing was read about @number since the count was @since. True at most for those that were added. */
bool hf_watch_is_unchanged(const struct hf_watch *watch, int number, uint64_t since);
