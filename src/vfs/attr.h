/* Changes attributes. A change is safe after the file was synced (vfs/syncer.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "vfs/change.h"
#include "vfs/file.h"
#include "vfs/identity.h"

/* What to set; times are as in utimensat(2), including UTIME_OMIT and UTIME_NOW. */
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
	HF_SETATTR_E_NOT_SYNC, /* ctime differs from the guard */
};

/* @guard: change only if the file has this ctime; NULL: always. */
int hf_file_setattr(struct hf_file *file, const struct hf_identity *caller, const struct hf_setattr *set,
		    const struct timespec *guard, struct hf_change *change);

/* Sets the remaining attributes of a file that was just created. Creating has set mode and owner, except that
 * the superuser may give the file away. */
int hf_file_setattr_new(struct hf_file *file, const struct hf_identity *caller, const struct hf_setattr *set);
/* Is nothing left to set once a file of this type (S_IFMT) was created? */
bool hf_setattr_is_done_by_making(const struct hf_setattr *set, const struct hf_identity *caller,
				  mode_t type);
