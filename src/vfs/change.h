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

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "vfs/file.h"

struct hf_change {
	bool has_before;
	bool has_after;
	bool is_made;   /* something was changed, also if a later step failed; set only where steps follow */
	bool is_alone;  /* no other change was in progress when it began */
	uint32_t begun; /* how many changes had begun then, including this one */
	struct stat before;
	struct stat after;
};

void hf_change_before(struct hf_change *change, struct hf_file *file);
void hf_change_after(struct hf_change *change, struct hf_file *file);

/* For a caller that changes nothing but must know whether other calls do. */
void hf_change_watch(struct hf_change *change, struct hf_file *file);
void hf_change_end_watch(struct hf_change *change, struct hf_file *file);

/* For a change that waits for the disk. */
void hf_change_begin_open(struct hf_change *change, struct hf_file *file);
void hf_change_end_open(struct hf_change *change, struct hf_file *file);

void hf_change_begin(struct hf_change *change, struct hf_file *file);
void hf_change_end(struct hf_change *change, struct hf_file *file);

/* Notes a step of the change; @r is its answer, and returned. */
static inline int hf_change_step(struct hf_change *change, int r)
{
	if (r == 0)
		change->is_made = true;
	return r;
}

/* The following block is the change. Leave it at its end, not by return or break. */
#define HF_WITH_CHANGE(change, file)                                              \
	for (bool hf_is_in = (hf_change_begin((change), (file)), true); hf_is_in; \
	     hf_change_end((change), (file)), hf_is_in = false)
