/*
 * Our locks in one file, as the kernel has them: of one open file description,
 * which is one owner for the kernel, so they are the union of what our clients
 * hold, and never conflict with each other.
 *
 * The kernel keeps the locks of a file in a list and walks all of it for every
 * request. So from HF_LOCAL_MAX_RANGES separate ranges on we take everything
 * from the first to the last byte in one, if no local process is in the way;
 * what is between is then refused to local processes without need, until few are
 * left.
 */
#pragma once

#include "export/local_ranges.h"
#include "lock/lock.h"

#define HF_LOCAL_MAX_RANGES  256   /* separate ones, then they are taken as a whole */
#define HF_LOCAL_MOST_RANGES 16384 /* where that is refused */

struct hf_local_file {
	int fd;            /* open, and somebody else's */
	bool is_read_only; /* then the kernel gives shared locks only */
	bool is_whole;     /* more is held than needed */
	size_t whole_at;   /* so many ranges are a reason to take it as a whole */
	struct hf_local_ranges ranges;
};

void hf_local_file_init(struct hf_local_file *file, int fd);
void hf_local_file_deinit(struct hf_local_file *file); /* gives back nothing: closing does */

/* OK, CONFLICT with a local process, LIMIT, or -errno of fcntl(2). */
int hf_local_file_take(struct hf_local_file *file, struct hf_range range, enum hf_lock_mode mode);
/* OK, or CONFLICT and whose, as far as the kernel says. */
int hf_local_file_test(const struct hf_local_file *file, struct hf_range range, enum hf_lock_mode mode,
		       struct hf_lock_view *conflictp);

/* What is needed in a range: as hf_lock_next_held(). */
typedef bool (*hf_local_needed_fn)(void *user, uint64_t pos, struct hf_range *rangep,
				   enum hf_lock_mode *modep);
/* Gives back what is not needed any more; @n_needed: how many locks need anything in the whole file. */
int hf_local_file_settle(struct hf_local_file *file, struct hf_range range, size_t n_needed,
			 hf_local_needed_fn needed, void *user);
