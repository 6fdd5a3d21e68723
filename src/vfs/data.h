/* The bytes of regular files. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vfs/change.h"
#include "vfs/file.h"
#include "vfs/identity.h"

enum hf_stability {
	HF_UNSTABLE,  /* in the kernel's memory is enough */
	HF_DATA_SYNC, /* the data and what is needed to find it again */
	HF_FILE_SYNC, /* all of it */
};

/* Reads up to @len bytes to @data; *np says how many, *stp the attributes afterwards. @cached: -EAGAIN where
 * it would have to wait for the disk. */
int hf_file_read(struct hf_file *file, const struct hf_identity *caller, uint64_t offset, void *data,
		 size_t len, bool cached, size_t *np, struct stat *stp);
/* Fewer bytes than asked for were written only when the disk is full, or the like; those are as stable as all
 * should have been. A stable write that the disk failed in has failed as a whole. */
int hf_file_write(struct hf_file *file, const struct hf_identity *caller, uint64_t offset, const void *data,
		  size_t len, enum hf_stability stability, struct hf_change *change, size_t *np);
/* Makes stable what was written before. */
int hf_file_commit(struct hf_file *file, const struct hf_identity *caller, struct hf_change *change);
