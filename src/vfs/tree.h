/*
 * Names in directories. A name is a single component: any bytes but '/' and
 * NUL, not empty, at most 255 long (hf_name_get()). "." and ".." can be looked
 * up, but not made, removed or renamed (hf_name_is_dots()).
 *
 * Every function that changes a directory fills a hf_change of it, also if it
 * fails. No function follows a symbolic link, leaves the volume or waits for
 * the disk. A change is safe after the directory was synced; a file that was
 * created with more than its mode, after the file was synced, too
 * (vfs/syncer.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/bytes.h"
#include "vfs/attr.h"
#include "vfs/change.h"
#include "vfs/file.h"
#include "vfs/identity.h"

#define HF_NAME_MAX 255

struct hf_name {
	char text[HF_NAME_MAX + 1];
};

/* -ENAMETOOLONG; -EACCES if it contains '/'; -EINVAL if it is empty or contains NUL. "." and ".." pass. */
int hf_name_get(struct hf_name *name, struct hf_bytes bytes);
bool hf_name_is_dots(const struct hf_name *name);

/* Checks that this is a directory, inside its volume, and not removed; gives its attributes. */
int hf_dir_check(struct hf_file *dir, struct stat *stp);
/* The same for any file; the place of other types than directories is not checked. */
int hf_file_check(struct hf_file *file, struct stat *stp);

/* @turn: on a loop, the time of its turn, and -EAGAIN if the kernel would have to wait; 0: on a thread that
 * may wait. ".." of the root is the root. *dir_stp, *stp: attributes of the directory and of the file. */
int hf_dir_lookup(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		  uint64_t turn, struct stat *dir_stp, struct hf_file **filep, struct stat *stp);

/* Making. *filep stays NULL if the object was made, but memory or descriptors to open it ran out. */
enum hf_create_how {
	HF_CREATE_UNCHECKED, /* an existing file is fine; of the attributes only the size is set then */
	HF_CREATE_GUARDED,   /* -EEXIST */
	HF_CREATE_EXCLUSIVE, /* -EEXIST, unless this same request created it, as the verifier shows */
};

int hf_dir_create(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		  enum hf_create_how how, const struct hf_setattr *set, const uint8_t verifier[8],
		  struct hf_change *change, struct hf_file **filep);
int hf_dir_mkdir(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		 const struct hf_setattr *set, struct hf_change *change, struct hf_file **filep);
int hf_dir_symlink(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		   const char *target, const struct hf_setattr *set, struct hf_change *change,
		   struct hf_file **filep);
/* @type: S_IFCHR, S_IFBLK, S_IFIFO or S_IFSOCK */
int hf_dir_mknod(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		 mode_t type, dev_t device, const struct hf_setattr *set, struct hf_change *change,
		 struct hf_file **filep);
int hf_dir_link(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		struct hf_file *file, struct hf_change *change);

/* Removing */
int hf_dir_remove(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		  struct hf_change *change);
int hf_dir_rmdir(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		 struct hf_change *change);
int hf_dir_rename(struct hf_file *from_dir, const struct hf_name *from, struct hf_file *to_dir,
		  const struct hf_name *to, const struct hf_identity *caller, struct hf_change *from_change,
		  struct hf_change *to_change);

/* The text of a symbolic link, without NUL. *lenp: in, the room; out, the length. -EINVAL: not a symbolic
 * link. */
int hf_file_readlink(struct hf_file *file, char *text, size_t *lenp);
