/*
 * A store whose medium is a piece of memory that outlives it, as a disk outlives a process: the stand-in for
 * a store in unit tests. A test makes it slow, full or broken.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "disk_view.h"
#include "store/backend.h"

struct disk {
	struct disk_view view; /* first */
	bool is_slow;          /* commits wait for disk_let_go() */
	bool is_broken;        /* it cannot even be asked */
	bool is_full;          /* it can be asked, and does not take what is written */
	const char *boot_id;
	struct hf_store_batch *held[4];
	size_t n_held;
	size_t n_commits, n_tries, n_resyncs;
};

/* The disk that the next store is opened on. */
extern struct disk *disk_in_use;

int disk_open(struct hf_store **storep, struct hf_loop *loop, const struct hf_store_options *options);
void disk_let_go(struct disk *disk); /* writes all that waits */
void disk_let_go_of(struct disk *disk, enum hf_store_kind kind);
void disk_let_go_of_first(struct disk *disk); /* not of what the store writes next */
size_t disk_count(const struct disk *disk, enum hf_record_type type);
void disk_wipe(struct disk *disk);
