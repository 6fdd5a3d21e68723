/* The bytes of regular files. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vfs/change.h"
#include "vfs/file.h"
#include "vfs/identity.h"

enum hf_stability {
	HF_UNSTABLE,  /* in the kernel's memory */
	HF_DATA_SYNC, /* data and what is needed to find it again */
	HF_FILE_SYNC, /* data and all attributes */
};

/* Reads up to @len bytes to @data; *np is their number, *stp the attributes afterwards. With @cached: -EAGAIN
 * if it would have to wait for the disk. */
int hf_file_read(struct hf_file *file, const struct hf_identity *caller, uint64_t offset, void *data,
		 size_t len, bool cached, size_t *np, struct stat *stp);
/* A write is short only if the disk is full or a similar limit is reached; the bytes written are then as
 * stable as requested. A stable write that meets a disk error fails as a whole. */
int hf_file_write(struct hf_file *file, const struct hf_identity *caller, uint64_t offset, const void *data,
		  size_t len, enum hf_stability stability, struct hf_change *change, size_t *np);
/* Makes earlier writes stable. */
int hf_file_commit(struct hf_file *file, const struct hf_identity *caller, struct hf_change *change);
