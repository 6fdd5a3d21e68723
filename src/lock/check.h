/* What the two halves of the check share: sums, to be compared with the counters. */
#pragma once

#include "lock/internal.h"

/* A check returns NULL, or what is broken. */
#define FAIL_UNLESS(condition)             \
	do {                               \
		if (!(condition))          \
			return #condition; \
	} while (0)
#define PASS_ON(call)                     \
	do {                              \
		const char *why = (call); \
                                          \
		if (why)                  \
			return why;       \
	} while (0)

struct hf_check {
	struct hf_locks *locks;
	uint64_t n_locks, n_ghosts, n_unreclaimed, n_waiters, n_grants, n_shares, n_owners, n_holdings;
	uint64_t n_first; /* holdings that are in their owners */
	uint64_t n_owed;
	uint64_t n_waiting_files, n_file_holdings;
	uint64_t n_file_locks, n_file_ghosts; /* of the file at hand */
	uint64_t n_client_locks, n_client_ghosts, n_client_unreclaimed, n_client_waiters, n_client_grants;
};

const char *hf_check_queue(struct hf_file *file, struct hf_check *check);
const char *hf_check_grants(struct hf_holding *holding, struct hf_check *check);
const char *hf_check_piece(const struct hf_lock *lock);
const char *hf_check_graph(struct hf_check *check);
