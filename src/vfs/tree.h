/*
 * Names in directories. Names are single components, any bytes but '/' and NUL,
 * not empty, not "." or ".." (hf_name_check()), at most 255 long.
 *
 * Every function that changes a directory fills a hf_change of it, and if it
 * fails, too. Nothing here follows a symbolic link or leaves the volume. None of
 * it waits for the disk: what was done is safe after the directory was synced,
 * and a file that was made with more than its mode, after that was, too
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

/* -ENAMETOOLONG, -EACCES for a '/', -EINVAL for an empty one or a NUL in it. "." and ".." pass. */
int hf_name_get(struct hf_name *name, struct hf_bytes bytes);
bool hf_name_is_dots(const struct hf_name *name);

/* The directory is one, is in its tree, and is not gone; and its attributes. */
int hf_dir_check(struct hf_file *dir, struct stat *stp);
/* The same for any file: others than directories are nowhere in particular. */
int hf_file_check(struct hf_file *file, struct stat *stp);

/* @cached: -EAGAIN where the kernel would have to wait. ".." of the root is the root. *stp: the file's
 * attributes. */
int hf_dir_lookup(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		  bool cached, struct hf_file **filep, struct stat *stp);

/* Making */
enum hf_create_how {
	HF_CREATE_UNCHECKED, /* one that is there already will do; of what is to be set only the size is */
	HF_CREATE_GUARDED,   /* -EEXIST */
	HF_CREATE_EXCLUSIVE, /* -EEXIST, unless it was made by this same request, as the verifier tells */
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

/* Unmaking */
int hf_dir_remove(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		  struct hf_change *change);
int hf_dir_rmdir(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		 struct hf_change *change);
int hf_dir_rename(struct hf_file *from_dir, const struct hf_name *from, struct hf_file *to_dir,
		  const struct hf_name *to, const struct hf_identity *caller, struct hf_change *from_change,
		  struct hf_change *to_change);

/* The text of a symbolic link, without NUL; *lenp: in, the room; out, the length. -EINVAL: not one. */
int hf_file_readlink(struct hf_file *file, char *text, size_t *lenp);
