/*
 * An open file of a volume, shared by all who use it, and the cache of them.
 *
 * A file is known by volume and id. A descriptor is there from the start and
 * serves everything but data: O_PATH, or the one that it was made with. Those
 * for reading and for writing are opened when they are first needed, apart from
 * each other, because a file that is open for writing cannot be executed on this
 * host. All are opened with our own rights: whether a caller may is asked for
 * each call (vfs/access.h).
 *
 * The cache keeps files within a number of descriptors, the least used going
 * first, and lets go of those unused for a while: a file that was removed by a
 * local process holds its space on disk only as long as we have it open.
 *
 * Locks of the kernel belong to an open file description. hf_file_lock_fd() is
 * the one that holds all of ours for a file; a pinned file stays, with it.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "vfs/identity.h"
#include "vfs/volume.h"

#define HF_FILE_N_VERDICTS 4

/* What the kernel said about one caller's rights, while the file's ctime stays the same. */
struct hf_verdict {
	struct hf_identity who;
	struct timespec ctime;
	bool is_set;
	uint8_t allowed; /* R_OK, W_OK, X_OK */
};

struct hf_files;
struct hf_pages;

struct hf_file {
	struct hf_file *next; /* in its bucket */
	struct hf_link lru;
	struct hf_files *files;   /* (c) */
	struct hf_volume *volume; /* (c) */
	struct hf_file_id id;     /* (c) */
	uint64_t hash;            /* (c) */
	int fd;                   /* (c) O_PATH, or the same as write_fd */
	mode_t type;              /* (c) S_IFMT bits */
	_Atomic unsigned int n_refs;
	_Atomic unsigned int n_pins; /* changed under lock */
	_Atomic uint32_t used;       /* the sweep in which it was last used */
	bool is_forgotten;           /* not to be found any more; under its shard's lock */
	/* Held around a change with the attributes before and after it, so that no other change of ours comes
	 * between. Two at once are taken in the order of their addresses. */
	pthread_mutex_t change_lock;
	_Atomic uint64_t changes; /* how many have begun, and in the lower half how many are under way */
	/* Held by who syncs. The kernel tells of a loss once for a descriptor: to one of all who share it. */
	pthread_mutex_t sync_lock;
	_Atomic uint64_t syncs_begun; /* changed under sync_lock, as the next */
	_Atomic uint64_t syncs_failed;
	int sync_error;       /* of the last that failed; under sync_lock */
	pthread_mutex_t lock; /* for the rest; held for short */
	_Atomic int read_fd;  /* -1: not open; set once, under lock */
	_Atomic int write_fd;
	_Atomic int lock_fd;
	struct hf_verdict verdicts[HF_FILE_N_VERDICTS]; /* under lock */
	unsigned int next_verdict;
};

/* The cache */
int hf_files_new(struct hf_files **filesp, size_t max_fds);
struct hf_files *hf_files_free(struct hf_files *files); /* no file is in use any more, nor pinned */
/* To be called about once a second: closes what was not used in the last few calls. */
void hf_files_sweep(struct hf_files *files);
/* Everything of a volume that is no longer shared goes. */
void hf_files_forget_volume(struct hf_files *files, const struct hf_volume *volume);
size_t hf_files_count_fds(const struct hf_files *files);
/* How often the disk has not taken what it was given. The kernel says so once, to whoever syncs the file
 * next, and what others have written there before may be gone with it: whoever has promised them anything
 * asks here. */
uint64_t hf_files_count_losses(const struct hf_files *files);
void hf_files_note_loss(struct hf_files *files, int error);
struct hf_pages *hf_files_pages(struct hf_files *files);

HF_DEFINE_CLEANUP(struct hf_files *, hf_files_free)

/* Finding: the file of an id. With @cached: -EAGAIN if it is not open already. -ESTALE if it is gone. */
int hf_files_get(struct hf_files *files, struct hf_volume *volume, const struct hf_file_id *id, bool cached,
		 struct hf_file **filep);
/* The same without opening anything: a reference, or NULL. */
struct hf_file *hf_files_find(struct hf_files *files, const struct hf_volume *volume,
			      const struct hf_file_id *id);
/* The file that @fd, an O_PATH descriptor, has open, and its attributes. Takes @fd in any case. */
int hf_files_take(struct hf_files *files, struct hf_volume *volume, int fd, struct hf_file **filep,
		  struct stat *stp);
/* The same for one that was just made, with @fd open for writing. */
int hf_files_take_made(struct hf_files *files, struct hf_volume *volume, int fd, struct hf_file **filep);

struct hf_file *hf_file_ref(struct hf_file *file);
struct hf_file *hf_file_unref(struct hf_file *file);
/* It is gone from its directory, or from the disk: nobody finds it any more. The cache lets go of it at the
 * next sweep, since closing may have to free its space; or at once, for who may wait. */
void hf_file_forget(struct hf_file *file);
void hf_file_forget_now(struct hf_file *file);

HF_DEFINE_CLEANUP(struct hf_file *, hf_file_unref)

/* Descriptors of regular files, for as long as the file is. -errno of opening. @cached: -EAGAIN if it is not
 * open already. */
int hf_file_read_fd(struct hf_file *file, bool cached);
int hf_file_write_fd(struct hf_file *file, bool cached);

/* For one write that is to be on stable storage: open anew, so that it hears of every loss from now on,
 * whoever else hears of it, too. The caller closes it. */
int hf_file_open_to_write(struct hf_file *file);

/* Puts what was done to it, its data and its names if it is a directory, on stable storage. One at a time:
 * who comes while another syncs shares the next one with all who wait for it, and fails with the one before.
 */
int hf_file_sync(struct hf_file *file);

/* Locks: -EROFS and the like where it could be opened for reading only are for the caller to see from
 * fcntl(2). Unpinning the last time closes it, and the kernel drops all its locks. */
int hf_file_pin(struct hf_file *file, int *lock_fdp);
void hf_file_unpin(struct hf_file *file);

/* We have changed its data or attributes: what was kept of them is not true any more. */
void hf_file_changed(struct hf_file *file);

/* Attributes; -ESTALE where it has no name left. */
int hf_file_stat(struct hf_file *file, struct stat *stp);
