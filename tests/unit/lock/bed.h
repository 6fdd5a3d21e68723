/*
 * Test bed of the lock engine: a few clients, owners and files by number, and a
 * diary of what the engine told. In the diary a lock is "+o1 E[0,9]" when
 * added and "-o1 E[0,9]" when removed ("?" provisional, "~" unreclaimed, "!" volatile), a grant
 * "grant o1" and an end "gone o1 cancelled".
 */
#pragma once

#include "../test.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lock/lock.h"

enum {
	BED_CLIENTS = 3,
};

#define S      HF_LOCK_SHARED
#define E      HF_LOCK_EXCLUSIVE
#define TO_EOF HF_RANGE_EOF

struct bed {
	struct hf_locks *locks;
	struct hf_lock_client clients[BED_CLIENTS];
	uint32_t state; /* of the following requests */
	int file;       /* likewise */
	bool is_volatile;
	bool no_downgrade;
	bool is_silent;      /* no diary */
	uint64_t last_grant; /* id of the last granted event */
	uint64_t last_tag;   /* of what was added or restored */
	char diary[4096];
	struct hf_lock_view conflict;
};

void bed_open(struct bed *bed);
void bed_open_with(struct bed *bed, const struct hf_lock_limits *limits);
void bed_open_beside(struct bed *bed, const struct hf_lock_outside *outside, void *context);
void bed_close(struct bed *bed); /* checks all invariants first */
int bed_setup(void **state);
int bed_teardown(void **state);

/* Owner @owner is of client @owner / 10. */
struct hf_lock_target bed_target(struct bed *bed, int owner);
int bed_lock(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end);
int bed_wait(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end);
int bed_reclaim(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end,
		bool backed_only);
int bed_test(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end);
void bed_unlock(struct bed *bed, int owner, uint64_t start, uint64_t end);
int bed_revoke(struct bed *bed, int owner, uint64_t start, uint64_t end);
int bed_cancel(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end);
int bed_restore(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end);

/* What an owner holds in the current file, as "S[0,4] E[5,eof]?". */
const char *bed_locked(struct bed *bed, int owner);
/* How many wait in the current file. */
int bed_waiters(struct bed *bed);
/* The diary since the last call. */
const char *bed_told(struct bed *bed);
struct hf_lock_counters bed_count(struct bed *bed);

#define assert_locked(bed, owner, text) assert_string_equal(bed_locked(bed, owner), text)
#define assert_told(bed, text)          assert_string_equal(bed_told(bed), text)
#define bed_test_of(f)                  cmocka_unit_test_setup_teardown(f, bed_setup, bed_teardown)
