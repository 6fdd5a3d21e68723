/*
 * An open file of a volume, shared by all its users, and the cache of open
 * files.
 *
 * A file is identified by volume and id. One descriptor exists from the start
 * and serves everything but data: O_PATH, or the one that created the file.
 * Descriptors for reading and for writing are opened separately when they are
 * first needed, because a file that is open for writing cannot be executed on
 * this host. All are opened with the server's own rights; each call checks
 * whether its caller may (vfs/access.h).
 *
 * The cache is bounded by a number of descriptors. It evicts the least used
 * files first and closes files that were not used for a while: if a local
 * process removed a file, its disk space stays occupied while the server has it
 * open.
 *
 * Locks in the kernel belong to an open file description. hf_file_pin() gives
 * the one that owns all locks of the server in a file; a pinned file stays open.
 *
 * The folder:
 *
 *	volume.c         an exported tree: places; fskind.c: types of file systems
 *	file_id.c        what identifies a file for ever
 *	finder.c         finds files by inode number where the kernel cannot
 *	file.c, files.c  one open file; the cache of open files; names.c: which file a name led to, lately
 *	identity.c       switches to the caller's identity; access.c: may the caller?
 *	tree.c           names; create.c, remove.c: making; removal and renaming
 *	attr.c, data.c   attributes; bytes; change.c: attributes before and after a change
 *	listing.c        reads directories; pages.c: a cache of encoded listings
 *	syncer.c         makes changes stable, many at a time
 *	watch.c          reports changes of files that locks depend on
 *	jobs.c           threads for files; disk_queue.c: one for each disk; client_queue.c: whose job is next
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

/* The kernel's answer about one caller's rights, valid while the file's ctime stays the same. */
struct hf_verdict {
	struct hf_identity who;
	struct timespec ctime;
	bool is_set;
	uint8_t allowed; /* R_OK, W_OK, X_OK */
};

struct hf_files;
struct hf_names;
struct hf_pages;

struct hf_file {
	struct hf_file *next; /* next in its bucket */
	struct hf_link lru;
	struct hf_link closing;   /* in volume->unused or volume->unsynced */
	struct hf_files *files;   /* (c) */
	struct hf_volume *volume; /* (c) */
	struct hf_file_id id;     /* (c) */
	uint64_t hash;            /* (c) */
	int fd;                   /* (c) O_PATH, or the same as write_fd */
	dev_t dev;                /* (c) a volume may have several: subvolumes with equal inode numbers */
	mode_t type;              /* (c) S_IFMT bits */
	_Atomic unsigned int n_refs;
	_Atomic unsigned int n_pins; /* changed under lock */
	_Atomic uint32_t used;       /* the sweep in which it was last used */
	_Atomic uint64_t placed_in;  /* the last turn of a loop that found this directory in its volume */
	bool is_forgotten;           /* lookups do not find it any more; under its shard's lock */
	/* Held during a change, from the attributes before to those after, so that no other change of this
	 * server comes between. Two locks are taken in the order of their addresses. */
	pthread_mutex_t change_lock;
	/* Held during a sync. The kernel reports a loss once for a descriptor, to one of all that share
	 * it. */
	pthread_mutex_t sync_lock;
	_Atomic uint64_t syncs_begun; /* changed under sync_lock, like the next */
	_Atomic uint64_t syncs_failed;
	int sync_error; /* of the last sync that failed; under sync_lock */
	/* Data was written, and no sync began since. The cache drops the file only after a sync: without a
	 * descriptor the kernel may forget that it lost the data. */
	_Atomic bool is_unsynced;
	pthread_mutex_t lock; /* for the rest; held briefly */
	_Atomic int read_fd;  /* -1: not open; set once, under lock */
	_Atomic int write_fd;
	_Atomic int lock_fd;
	struct hf_verdict verdicts[HF_FILE_N_VERDICTS]; /* under lock */
	unsigned int next_verdict;
};

/* The cache */
int hf_files_new(struct hf_files **filesp, size_t max_fds);
struct hf_files *hf_files_free(struct hf_files *files); /* call it when no file is in use or pinned */
/* Call about once a second: drops files that were not used in the last few sweeps. */
void hf_files_sweep(struct hf_files *files);
/* Drops all files of a volume that is no longer exported. */
void hf_files_forget_volume(struct hf_files *files, const struct hf_volume *volume);
/* Dropped files wait here for a thread that may wait: a close may have to free the file's space, or wait for
 * a hung disk. So do files to sync before they are dropped. One thread at a time closes files of a volume.
 * hf_files_next_to_close() gives a volume whose files wait, and a reference to it; NULL: there is none. The
 * caller has a thread call hf_files_close() for it, or calls hf_files_put_off(). */
struct hf_volume *hf_files_next_to_close(struct hf_files *files);
void hf_files_close(struct hf_files *files, struct hf_volume *volume);
void hf_files_put_off(struct hf_files *files, struct hf_volume *volume);
/* @fn is called, on any thread, for each file that waits while the cache is full. Set it while no other
 * thread uses the cache. */
void hf_files_set_on_full(struct hf_files *files, void (*fn)(void *user), void *user);
/* Closes all that wait, on this thread. */
void hf_files_close_all(struct hf_files *files);
/* A file that is opened now makes it necessary to close another one, which may wait. */
bool hf_files_are_full(const struct hf_files *files);
size_t hf_files_count_fds(const struct hf_files *files);
/* How often the disk failed to take written data. The kernel reports that once, to the next sync of the file,
 * and data that other calls wrote before may be lost with it. A caller that has promised such data checks
 * this count. */
uint64_t hf_files_count_losses(const struct hf_files *files);
void hf_files_note_loss(struct hf_files *files, int error);
struct hf_pages *hf_files_pages(struct hf_files *files);
struct hf_names *hf_files_names(struct hf_files *files);

HF_DEFINE_CLEANUP(struct hf_files *, hf_files_free)

/* Finds the file of an id. With @cached: -EAGAIN if it is not already open. -ESTALE: it is gone. */
int hf_files_get(struct hf_files *files, struct hf_volume *volume, const struct hf_file_id *id, bool cached,
		 struct hf_file **filep);
/* The same without opening anything: a reference, or NULL. */
struct hf_file *hf_files_find(struct hf_files *files, const struct hf_volume *volume,
			      const struct hf_file_id *id);
/* One with this inode number; see dev. */
struct hf_file *hf_files_find_inode(struct hf_files *files, const struct hf_volume *volume, uint64_t inode);
/* The file behind the O_PATH descriptor @fd, and its attributes. Takes @fd in every case. May close another
 * file to make room, unless @cached. */
int hf_files_take(struct hf_files *files, struct hf_volume *volume, int fd, bool cached,
		  struct hf_file **filep, struct stat *stp);
/* The same for a file that was just created; @fd is open for writing. */
int hf_files_take_made(struct hf_files *files, struct hf_volume *volume, int fd, struct hf_file **filep);

struct hf_file *hf_file_ref(struct hf_file *file);
/* Does not wait: the last reference leaves the file to hf_files_close(). */
struct hf_file *hf_file_unref(struct hf_file *file);
/* The same for callers that may wait: the last reference closes the file at once. */
struct hf_file *hf_file_close(struct hf_file *file);
/* The file was removed from its directory or from the disk: lookups no longer find it. It is closed when its
 * last user drops it. */
void hf_file_forget(struct hf_file *file);

HF_DEFINE_CLEANUP(struct hf_file *, hf_file_unref)
HF_DEFINE_CLEANUP(struct hf_file *, hf_file_close)

/* Descriptors of regular files, valid as long as the file. -errno of opening. With @cached: -EAGAIN if it is
 * not already open. */
int hf_file_read_fd(struct hf_file *file, bool cached);
int hf_file_write_fd(struct hf_file *file, bool cached);

/* For one stable write: opens a new descriptor, which reports every loss from now on, even if others report
 * it, too. The caller closes it. */
int hf_file_open_to_write(struct hf_file *file);

/* Syncs the file: its data, or its names if it is a directory. One sync runs at a time. Callers that come
 * during a sync share the next one, and fail if the one before it failed. */
int hf_file_sync(struct hf_file *file);
/* Syncs the whole file system: for a file in this directory that could not be opened. */
int hf_file_sync_around(struct hf_file *dir);

/* Locks. If the file could be opened only for reading, fcntl(2) returns the error. The last unpin closes the
 * file, and the kernel drops all its locks. */
int hf_file_pin(struct hf_file *file, int *lock_fdp);
void hf_file_unpin(struct hf_file *file);

/* This server has changed the file's data or attributes: invalidates what is cached about them. */
void hf_file_changed(struct hf_file *file);

/* Attributes; -ESTALE if it has no name left. */
int hf_file_stat(struct hf_file *file, struct stat *stp);
