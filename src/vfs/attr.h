/* Changing attributes. It is safe when the file was synced (vfs/syncer.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "vfs/change.h"
#include "vfs/file.h"
#include "vfs/identity.h"

/* What to set; times are as utimensat(2) takes them, UTIME_OMIT and UTIME_NOW included. */
struct hf_setattr {
	bool set_mode;
	bool set_uid;
	bool set_gid;
	bool set_size;
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
	uint64_t size;
	struct timespec atime;
	struct timespec mtime;
};

enum { /* answer of hf_file_setattr() */
	HF_SETATTR_OK = 0,
	HF_SETATTR_E_NOT_SYNC, /* ctime is not that of the guard */
};

/* @guard: only if this is the file's ctime; NULL: always. */
int hf_file_setattr(struct hf_file *file, const struct hf_identity *caller, const struct hf_setattr *set,
		    const struct timespec *guard, struct hf_change *change);

/* The rest of what creating a file was asked to set: the mode and who owns it were settled by then, except
 * for the superuser, who may give it away. */
int hf_file_setattr_new(struct hf_file *file, const struct hf_identity *caller, const struct hf_setattr *set);
