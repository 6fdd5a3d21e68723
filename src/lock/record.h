/* The record of a lock: what the tree and the engine both know of it. */
#pragma once

#include <assert.h>

#include "lock/lock.h"

enum {
	/* Internal flag: the lock is exclusive, and becomes shared when its shared grant is confirmed. */
	HF_LOCK_DOWNGRADING = 1 << 4,
	HF_LOCK_PUBLIC_FLAGS = HF_LOCK_DOWNGRADING - 1,
};

/* One held range, in one cache line. It is in trees[mode] of its file and in the set of its holding. */
struct hf_lock {
	uint64_t start;
	uint64_t end;
	struct hf_holding *holding;
	union {
		struct hf_link unreclaimed; /* if UNRECLAIMED */
		struct {
			struct hf_waiter *grant; /* if PROVISIONAL or DOWNGRADING: the grant that it is a
						    piece of, else NULL */
			uint32_t prior_state;    /* if PROVISIONAL: what a refusal restores; likewise below */
			uint32_t prior_epoch;
		};
	};
	uint64_t tag; /* see struct hf_lock_view */
	uint32_t state;
	uint32_t epoch;
	uint64_t id : 48;
	uint64_t mode : 2;
	uint64_t flags : 6;
	uint64_t prior_mode : 2; /* NONE or SHARED */
	uint64_t prior_flags : 6;
};
static_assert(sizeof(struct hf_lock) <= 64, "a lock is one cache line");

static inline struct hf_range hf_lock_range(const struct hf_lock *lock)
{
	return (struct hf_range){ lock->start, lock->end };
}
