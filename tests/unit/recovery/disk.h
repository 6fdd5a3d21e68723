/*
 * A store whose medium is a piece of memory that outlives it, as a disk outlives
 * a process: what a test needs for restarts. It can be slow, and it can fail.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "store/backend.h"

struct disk_record {
	enum hf_record_type type; /* LOCK, SHARE or CLIENT */
	uint64_t id;
	char *name;
	uint8_t *bytes;
	size_t len;
};

struct disk {
	bool has_state;
	struct hf_store_state state;
	struct disk_record *records;
	size_t n, room;
	bool is_slow; /* commits wait for disk_let_go() */
	bool is_broken;
	const char *boot_id;
	struct hf_store_batch *held[4];
	size_t n_held;
	size_t n_commits;
};

/* The disk that the next store is opened on. */
extern struct disk *disk_in_use;

int disk_open(struct hf_store **storep, struct hf_loop *loop, const struct hf_store_options *options);
void disk_let_go(struct disk *disk); /* whatever waits is written */
void disk_let_go_of(struct disk *disk, enum hf_store_kind kind);
size_t disk_count(const struct disk *disk, enum hf_record_type type);
void disk_wipe(struct disk *disk);
