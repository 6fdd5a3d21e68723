/*
 * local_locks: a lock that is granted to a client is also taken in the kernel,
 * so that local processes and other servers on this host see it; their locks
 * are respected in turn. This module is the "outside" of the lock table
 * (lock/lock.h) and belongs to the home loop's thread.
 *
 * Only an open file can be locked in the kernel, and opening may wait for a
 * disk. So before a caller asks the lock table for a lock or a test, it checks
 * hf_local_needs(), opens the file on a thread that may wait (hf_local_open())
 * and hands it over (hf_local_adopt()). The file stays open while a client has
 * or awaits a lock in it, and a little longer. If a waiter can get its lock and the
 * file is not open, because it could not be opened or a reload has turned
 * local_locks on since, this module has it opened.
 *
 * A waiter that only a local process blocks is retried after growing gaps. The
 * kernel reports a released lock only to a thread that sleeps for it, and peers
 * could exhaust any bound on threads with one sleeping thread for each waiter.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/limit.h"
#include "export/export.h"
#include "lock/lock.h"

struct hf_disk_queue;
struct hf_file;
struct hf_local;
struct hf_loop;

struct hf_local_options {
	struct hf_loop *loop;
	struct hf_exports *exports;
	/* The policy of an export, by the lock table's number. AUTO: grant also if the kernel cannot take the
	 * lock. ON: refuse it then. */
	enum hf_local_locks (*policy)(void *user, uint32_t export);
	/* The handle of the lock table's file in this export; in @room, or @key itself. */
	struct hf_bytes (*handle)(void *user, uint32_t export, struct hf_bytes key,
				  uint8_t room[HF_LOCK_HANDLE_MAX]);
	/* The number of its disk, for @disk_queue. */
	uint64_t (*disk)(void *user, uint32_t export);
	void *user;
	struct hf_disk_queue *disk_queue; /* opens files that waiters need */
	size_t max_files;                 /* files open at a time; 0: a quarter of RLIMIT_NOFILE */
};

int hf_local_new(struct hf_local **localp, const struct hf_local_options *options);
struct hf_local *hf_local_free(struct hf_local *local); /* after the lock table, before the exports */
void hf_local_set_locks(struct hf_local *local, struct hf_locks *locks);

HF_DEFINE_CLEANUP(struct hf_local *, hf_local_free)

void hf_local_show_limit(const struct hf_local *local, struct hf_limit_use *use);

extern const struct hf_lock_outside hf_local_outside; /* its context is a struct hf_local */

/* Opening */
struct hf_local_opened {
	struct hf_file *file; /* pinned; NULL: it could not be opened */
	int fd;
	int error;
};

/* Is the file to be opened? One that could not be is tried again, at most once a second. */
bool hf_local_needs(struct hf_local *local, uint32_t export, struct hf_bytes key);
/* On any thread. */
struct hf_local_opened hf_local_open(struct hf_file *file);
/* Takes the opened file, or why there is none; hf_local_needs() is false then. -ENOMEM: it is still true. */
int hf_local_adopt(struct hf_local *local, struct hf_bytes key, struct hf_local_opened opened);

/* After a restart, before the first call: takes the loaded locks in the kernel. Opens files and may wait for
 * them. */
void hf_local_restore(struct hf_local *local);
/* A lock in this file is being loaded while the server serves: has the file opened, and takes the loaded
 * locks in the kernel then. Does not wait, and does not ask the lock table. */
void hf_local_take_up(struct hf_local *local, uint32_t export, struct hf_bytes key);
