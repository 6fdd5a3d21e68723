/*
 * A directory tree that is shared: its root, and the way from a file to an id
 * that names it for ever, and back.
 *
 * As the superuser the root is a private copy of the mount (open_tree) that has
 * the shared directory as its root and no other file systems in it. So whatever
 * a client does, ".." ends there, in the kernel; and a directory that was moved
 * out of the tree has no ".." at all, which is how hf_volume_check_place() knows.
 * Without that right (CAP_SYS_ADMIN) the same holds where the directory is the
 * root of a mount, whose ".." the kernel denies likewise to what is outside.
 * Elsewhere the place of a directory is found by walking up, which costs a call
 * for each level. Other file systems below the root are not entered.
 *
 * An id is what the kernel calls a file handle (inode and generation, as a
 * rule), so it stays through renames and restarts, and is never used again. The
 * kernel opens files by it where we have CAP_DAC_READ_SEARCH. Elsewhere, and on
 * file systems that have no such handles, vfs/finder.h finds the file by its
 * inode number, and what was found must have the same id.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "vfs/syncer.h"

struct hf_finder;

#define HF_FILE_ID_MAX 36

enum hf_file_id_kind {
	HF_FILE_ID_KERNEL = 1, /* name_to_handle_at(2) */
	HF_FILE_ID_INODE = 2,  /* the inode number and the time of birth */
};

struct hf_file_id {
	uint64_t inode;
	uint8_t kind;
	uint8_t type; /* the kernel's */
	uint8_t len;
	uint8_t bytes[HF_FILE_ID_MAX];
};

struct hf_volume {
	_Atomic unsigned int n_refs;
	int root;   /* (c) O_PATH */
	int mount;  /* (c) the same, opened: open_by_handle_at() wants it so */
	int anchor; /* (c) the directory in its own mount: keeps that from being unmounted below us; or -1 */
	bool is_clone;            /* (c) see above */
	bool is_mount_root;       /* (c) likewise */
	bool has_ids;             /* (c) the kernel opens files by their ids */
	bool is_local;            /* (c) what the kernel has in memory it gives without waiting for anybody */
	bool syncs_made_with_dir; /* (c) hf_fskind_syncs_made_with_dir() */
	uint64_t magic;           /* (c) of the file system: f_type of statfs(2) */
	struct hf_file_id root_id; /* (c) */
	struct stat root_stat;     /* (c) st_dev, st_ino only */
	uint64_t mount_id;         /* (c) */
	struct hf_syncer syncer;
	struct hf_finder *finder; /* (c) where has_ids is false, else NULL */
};

/* -errno of opening: -ENOENT, -ENOTDIR, ... */
int hf_volume_new(struct hf_volume **volumep, const char *path);
struct hf_volume *hf_volume_ref(struct hf_volume *volume);
struct hf_volume *hf_volume_unref(struct hf_volume *volume);

HF_DEFINE_CLEANUP(struct hf_volume *, hf_volume_unref)

/* Is this the directory that is now at @path? */
bool hf_volume_is_at(const struct hf_volume *volume, const char *path);

/* Ids, with the attributes, which are needed for it anyway. @fd is any descriptor of the file. -EXDEV: it is
 * in another file system. */
int hf_volume_identify(const struct hf_volume *volume, int fd, struct hf_file_id *idp, struct stat *stp);
/* The same for an entry of a directory, without opening it. Both halves of the answer are of the same file
 * only if the name was not changed meanwhile: the caller sees to that. -EAGAIN: this volume cannot. */
int hf_volume_identify_entry(const struct hf_volume *volume, int dir, const char *name,
			     struct hf_file_id *idp, struct stat *stp);
/* Gives an O_PATH descriptor, and attributes. -ESTALE: there is no such file any more, or it is outside. */
int hf_volume_open_id(struct hf_volume *volume, const struct hf_file_id *id, int *fdp, struct stat *stp);
bool hf_file_id_equal(const struct hf_file_id *a, const struct hf_file_id *b);

/* Is the directory @fd in the tree, now? -ESTALE: it is not. Other errors: we cannot know. */
int hf_volume_check_place(const struct hf_volume *volume, int fd);

/* Not an answer to what was asked: once there is enough again it is another one. */
bool hf_volume_is_want(int error);

/* What we saw on the way: the file of this id is called @name in the directory with this inode number. Only
 * the finder wants to know. */
void hf_volume_saw(struct hf_volume *volume, uint64_t dir_inode, const char *name, uint64_t inode);

/* One step: opens (O_PATH) the entry @name of @dir, never through a symbolic link, never into another file
 * system, never up. @cached: only if the kernel needs not wait; else -EAGAIN. */
int hf_volume_step(const struct hf_volume *volume, int dir, const char *name, bool cached, int *fdp);
