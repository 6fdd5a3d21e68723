/*
 * A second lock engine, as naive as can be: for each file and owner an array of
 * bytes, for each file an array of waiters, every question answered by looking
 * at everything. It shares no code and no idea with src/lock but the words.
 *
 * A file has BYTES bytes; the last one stands for the rest of the file, up to
 * its end. Clients, owners and files are numbers.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lock/lock.h"

enum {
	FILES = 3,
	CLIENTS = 3,
	OWNERS = 9, /* owner o is of client o % CLIENTS */
	BYTES = 20,
	WAITERS = 64,
	EVENTS = 256,
	OHS = 2,
};

struct cell {
	uint8_t mode;
	bool is_provisional, is_unreclaimed, is_ghost, is_volatile, is_downgrading;
	uint32_t state;
	uint64_t grant;
	uint8_t prior_mode;
	bool prior_volatile;
	uint32_t prior_state;
};

struct model_waiter {
	uint64_t id;
	int file, owner, from, to;
	uint8_t mode;
	bool is_volatile;
	uint32_t state;
	uintptr_t user;
	bool is_changed;   /* granted, and no longer that since the owner went on */
	bool no_downgrade; /* downgrades nothing */
};

struct model_queue {
	struct model_waiter at[WAITERS];
	int n;
};

/* What a call let happen, in order. */
struct happening {
	uint64_t id;
	int file;
	int why; /* enum hf_lock_end, or -1 for granted */
	uintptr_t user;
};

struct model {
	struct cell cells[FILES][OWNERS][BYTES];
	struct model_queue queues[FILES];
	struct model_queue grants;
	uint32_t reservations[FILES][CLIENTS][OHS][4][4];
	uint32_t reservation_state[FILES][CLIENTS][OHS];
	uint64_t last_id;
	bool is_grace;
	struct happening happened[EVENTS];
	int n_happened;
};

struct model_request {
	int file, owner, from, to;
	uint8_t mode;
	bool wait, reclaim, backed_only, is_due, is_volatile, no_downgrade;
	uint32_t state;
	uintptr_t user;
};

int model_acquire(struct model *m, const struct model_request *request);
int model_test(const struct model *m, const struct model_request *request);
void model_release(struct model *m, int file, int owner, int from, int to);
void model_revoke(struct model *m, int file, int owner, int from, int to); /* its waiters stay */
int model_cancel(struct model *m, int file, int owner, int from, int to, uint8_t mode);
int model_confirm(struct model *m, uint64_t id);
int model_stay(struct model *m, uint64_t id);
void model_stay_changed(struct model *m, int file, int owner);
int model_refuse(struct model *m, uint64_t id);
void model_purge(struct model *m, int client, bool all, uint32_t state);
void model_restart(struct model *m);
void model_set_grace(struct model *m, bool is_on);
void model_release_reclaimable(struct model *m, int client);
int model_reserve(struct model *m, int file, int client, int oh, int access, int deny, uint32_t state,
		  bool reclaim);
void model_unreserve(struct model *m, int file, int client, int oh, int access, int deny);
bool model_is_locked(const struct model *m, int file, int owner);
bool model_is_involved(const struct model *m, int file, int owner);
/* The most that the owner has of any byte there. */
uint8_t model_most_locked(const struct model *m, int file, int owner, int from, int to);
