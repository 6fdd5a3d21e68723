/*
 * An exported directory tree: its root, and the way from a file to an id that
 * identifies it for ever, and back.
 *
 * As the superuser, the root is a private clone of the mount (open_tree) that
 * has the exported directory as its root and no other file systems in it. So
 * ".." ends there, in the kernel, for every client. A directory that was moved
 * out of the tree has no ".." at all, which is how hf_volume_check_place()
 * detects it. Without CAP_SYS_ADMIN the same holds if the directory is the root
 * of a mount: the kernel denies ".." to directories outside of it. Otherwise
 * the place of a directory is found by walking up, which costs a call for each
 * level. Other file systems below the root are not entered.
 *
 * With CAP_DAC_READ_SEARCH the kernel opens files by their ids (vfs/file_id.h).
 * Otherwise, and on file systems without file handles, vfs/finder.h finds the
 * file by its inode number, and the result must have the same id.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "vfs/file_id.h"
#include "vfs/syncer.h"

struct hf_finder;

struct hf_volume {
	_Atomic unsigned int n_refs;
	int root;           /* (c) O_PATH */
	int mount;          /* (c) the root opened for reading, as open_by_handle_at() requires */
	int anchor;         /* (c) the directory in its own mount, so that it cannot be unmounted; or -1 */
	bool is_clone;      /* (c) see above */
	bool is_mount_root; /* (c) see above */
	bool has_ids;       /* (c) the kernel opens files by their ids */
	bool is_local;      /* (c) hf_fskind_is_local() */
	bool has_unique_inodes;    /* (c) hf_fskind_has_unique_inodes() */
	bool syncs_made_with_dir;  /* (c) hf_fskind_syncs_made_with_dir() */
	uint64_t magic;            /* (c) of the file system: f_type of statfs(2) */
	struct hf_file_id root_id; /* (c) */
	struct stat root_stat;     /* (c) st_dev, st_ino only */
	uint64_t mount_id;         /* (c) */
	struct hf_syncer syncer;
	struct hf_finder *finder; /* (c) where has_ids is false, else NULL */
	/* Its files that wait to be closed, or to be synced before; under a lock of vfs/files.c, like the
	 * next two */
	struct hf_list unused, unsynced;
	struct hf_link to_close; /* linked while files wait and no closer works */
	bool has_closer;
};

/* -errno of opening: -ENOENT, -ENOTDIR, ... */
int hf_volume_new(struct hf_volume **volumep, const char *path);
struct hf_volume *hf_volume_ref(struct hf_volume *volume);
struct hf_volume *hf_volume_unref(struct hf_volume *volume);

HF_DEFINE_CLEANUP(struct hf_volume *, hf_volume_unref)

/* Is this the directory that is at @path now? */
bool hf_volume_is_at(const struct hf_volume *volume, const char *path);

/* Gives an O_PATH descriptor and attributes. -ESTALE: the file is gone, or outside the volume. */
int hf_volume_open_id(struct hf_volume *volume, const struct hf_file_id *id, int *fdp, struct stat *stp);

/* Is the directory @fd inside the volume now? -ESTALE: it is not. Other errors: unknown. */
int hf_volume_check_place(const struct hf_volume *volume, int fd);

/* Does @error mean that memory or descriptors ran out? Then it says nothing about the file. */
static inline bool hf_volume_is_want(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

/* Reports that the file @inode has the name @name in the directory @dir_inode. Only the finder uses this. */
void hf_volume_saw(struct hf_volume *volume, uint64_t dir_inode, const char *name, uint64_t inode);

/* One step: opens (O_PATH) the entry @name of @dir. Never follows a symbolic link, enters another file system
 * or goes up. With @cached: -EAGAIN if the kernel would have to wait. */
int hf_volume_step(const struct hf_volume *volume, int dir, const char *name, bool cached, int *fdp);
