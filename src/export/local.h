/*
 * local_locks: what is granted to clients is held in the kernel, too, so that
 * local processes and other servers on this host see it, and theirs are
 * honoured. It is the outside of the lock table (lock/lock.h), and belongs to
 * the home loop's thread.
 *
 * A file must be open before anything can be asked of the kernel, and opening
 * may wait for a disk; so whoever is about to ask the lock table for a lock or a
 * test looks whether hf_local_needs() the file, opens it on a thread that may
 * wait (hf_local_open) and hands it over (hf_local_adopt). It stays open while
 * anybody holds or awaits anything in it, and a little longer.
 *
 * Who is blocked by a local process alone is tried again after growing gaps: the
 * kernel tells nobody that a lock was let go but those who sleep for it, and a
 * sleeping thread for each waiter is a bound that peers would reach.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "export/export.h"
#include "lock/lock.h"

struct hf_file;
struct hf_local;
struct hf_loop;

struct hf_local_options {
	struct hf_loop *loop;
	struct hf_exports *exports;
	/* By the lock table's number of a share. AUTO: as good as we can; ON: a lock that the kernel does not
	 * take for want of anything is not granted. */
	enum hf_local_locks (*policy)(void *user, uint32_t share);
	/* The handle of the lock table's file in this share; in @room, or @key itself. */
	struct hf_bytes (*handle)(void *user, uint32_t share, struct hf_bytes key,
				  uint8_t room[HF_LOCK_HANDLE_MAX]);
	void *user;
	size_t max_files; /* open at a time; 0: a quarter of what RLIMIT_NOFILE allows */
};

int hf_local_new(struct hf_local **localp, const struct hf_local_options *options);
struct hf_local *hf_local_free(struct hf_local *local); /* after the lock table, before the exports */
void hf_local_set_locks(struct hf_local *local, struct hf_locks *locks);

HF_DEFINE_CLEANUP(struct hf_local *, hf_local_free)

extern const struct hf_lock_outside hf_local_outside; /* its context is a struct hf_local */

/* Opening */
struct hf_local_opened {
	struct hf_file *file; /* pinned; NULL: it could not be */
	int fd;
	int error;
};

bool hf_local_needs(const struct hf_local *local, uint32_t share, struct hf_bytes key);
/* On any thread. */
struct hf_local_opened hf_local_open(struct hf_file *file);
/* Takes what was opened; hf_local_needs() is false then. -ENOMEM: it is still true. */
int hf_local_adopt(struct hf_local *local, struct hf_bytes key, struct hf_local_opened opened);

/* After a restart, before anybody is served: takes what was loaded. Opens files, and may wait for them. */
void hf_local_restore(struct hf_local *local);
