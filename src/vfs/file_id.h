/*
 * What identifies a file for ever.
 *
 * An id is what the kernel calls a file handle (mostly inode and generation),
 * so it survives renames and restarts, and is never reused. On file systems
 * without such handles it is the inode number and the birth time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct hf_volume;

#define HF_FILE_ID_MAX 36

enum hf_file_id_kind {
	HF_FILE_ID_KERNEL = 1, /* name_to_handle_at(2) */
	HF_FILE_ID_INODE = 2,  /* inode number and birth time */
};

struct hf_file_id {
	uint64_t inode;
	uint8_t kind;
	uint8_t type; /* the kernel's */
	uint8_t len;
	uint8_t bytes[HF_FILE_ID_MAX];
};

bool hf_file_id_equal(const struct hf_file_id *a, const struct hf_file_id *b);

/* The id of a file, with its attributes, which are needed for it anyway. @fd is any descriptor of the file.
 * -EXDEV: it is on another file system. */
int hf_volume_identify(const struct hf_volume *volume, int fd, struct hf_file_id *idp, struct stat *stp);
/* The same for an entry of a directory, without opening it. Id and attributes belong to the same file only if
 * the name did not change meanwhile; the caller checks that. -EAGAIN: this volume cannot do it. */
int hf_volume_identify_entry(const struct hf_volume *volume, int dir, const char *name,
			     struct hf_file_id *idp, struct stat *stp);

/* For volume.c. An id of either kind, with kind and bytes alone or with the inode number, too; -errno. */
int hf_file_id_by_kernel(int fd, const char *name, struct hf_file_id *id, uint64_t *mount_idp);
int hf_file_id_by_inode(int fd, struct hf_file_id *id);
/* Opens a file (O_PATH) by the id that the kernel gave. @mount: any directory of its file system, opened for
 * reading. -errno */
int hf_file_id_open(int mount, const struct hf_file_id *id);
