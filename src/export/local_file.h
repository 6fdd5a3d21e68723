/*
 * This server's locks in one file, as the kernel has them. They belong to one
 * open file description, which is one owner to the kernel; so they are the
 * union of the clients' locks and never conflict with each other.
 *
 * The kernel has the locks of a file in a list and walks all of it for every
 * request. From HF_LOCAL_MAX_RANGES separate ranges on, the server therefore
 * takes everything from the first to the last byte as one range, or as one range
 * on each side of the locks of local processes. Until the number of locks falls,
 * the kernel then refuses the gaps to local processes, too.
 *
 * The caller may also take the whole file as one range for a moment (a cover).
 * Meanwhile every lock of a client is taken already, and nothing is given back.
 */
#pragma once

#include "export/local_ranges.h"
#include "lock/lock.h"

#define HF_LOCAL_MAX_RANGES  256   /* separate ranges; beyond this, take one range over all */
#define HF_LOCAL_MOST_RANGES 16384 /* bound if locks of local processes prevent that */

struct hf_local_file {
	int fd;               /* open; its owner is the caller */
	bool is_read_only;    /* the kernel then gives shared locks only */
	bool is_whole;        /* one range over all is taken: more than needed */
	bool is_covered;      /* the whole file is taken, until hf_local_file_uncover() */
	size_t whole_at;      /* number of ranges at which the server tries to take one over all */
	struct hf_range hull; /* while it is covered: from the first to the last byte that was needed */
	struct hf_local_ranges ranges;
};

void hf_local_file_init(struct hf_local_file *file, int fd);
void hf_local_file_deinit(struct hf_local_file *file); /* releases no locks: closing the file does */

/* HF_LOCK_OK, HF_LOCK_E_CONFLICT with a local process, HF_LOCK_E_LIMIT, or -errno of fcntl(2). */
int hf_local_file_take(struct hf_local_file *file, struct hf_range range, enum hf_lock_mode mode);
/* HF_LOCK_OK, or HF_LOCK_E_CONFLICT and the holder, as far as the kernel tells. */
int hf_local_file_test(const struct hf_local_file *file, struct hf_range range, enum hf_lock_mode mode,
		       struct hf_lock_view *conflictp);

/* Which locks a range needs: like hf_lock_next_locked(). */
typedef bool (*hf_local_needed_fn)(void *user, uint64_t pos, struct hf_range *rangep,
				   enum hf_lock_mode *modep);
/* Releases what no lock needs any more; nothing while the file is covered. @n_needed: the number of locks in
 * the whole file. */
int hf_local_file_trim(struct hf_local_file *file, struct hf_range range, size_t n_needed,
		       hf_local_needed_fn needed, void *user);

/* Is this range taken already? Then hf_local_file_take() does not ask the kernel. */
bool hf_local_file_has(struct hf_local_file *file, struct hf_range range, enum hf_lock_mode mode);
/* Takes the whole file, for a lock of @range. False: a local process has a lock in it, or it cannot be taken;
 * nothing has changed. */
bool hf_local_file_cover(struct hf_local_file *file, struct hf_range range);
/* Gives back what no lock needs. -errno: the file is still covered, at least in part. */
int hf_local_file_uncover(struct hf_local_file *file, hf_local_needed_fn needed, void *user);
