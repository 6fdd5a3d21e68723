/*
 * The server's own state: what a start must know about the run before it to
 * judge what that run stored.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

struct hf_store_state {
	uint64_t epoch;
	int32_t sm_state;
	bool is_clean;    /* the run ended with hf_store_mark_clean() */
	bool is_complete; /* the stored locks are all that were granted */
	bool is_settled;  /* no client reclaims, and the waiters are stored: a run may go on from here */
	enum hf_store_durability durability;
	/* Which key made the handles in the facts; 0: unknown, or there are none. Not in a state record: a
	 * backend stores it separately, and only save_state writes it. */
	uint64_t handle_key;
	char boot_id[HF_STORE_MAX_BOOT_ID + 1]; /* of the machine that the run was on */
	/* Names the process whose crash loses unsynced data; empty: the kernel of this machine. Then, after a
	 * slash, the line of its history: a replica that takes its place begins another one. */
	char medium[HF_STORE_MAX_BOOT_ID + 1];
	/* A replica that takes its place has everything that was synced. Not in a state record. */
	bool is_replicated;
};

/* Odd, positive, two more than before; wraps to 1. */
int32_t hf_store_next_sm_state(int32_t before);

/* The last state number that clients may have been told. The next one counts from it. */
int32_t hf_store_skip_lost(const struct hf_store_state *before, const struct hf_store_state *now);

/* Is everything that the run of @before wrote still there? @now: the present boot and medium. */
bool hf_store_is_intact(const struct hf_store_state *before, const struct hf_store_state *now);

/*
 * Derives the state of this run, and what the start may rely on, from the state
 * of the last run in @before (NULL: none). The caller has set durability,
 * boot_id and medium in @next. @known_state: the last state number that this node
 * knows of; 0: none. @continues: this run goes on where the last one ended, if what
 * is stored allows it.
 */
void hf_store_judge(const struct hf_store_state *before, struct hf_store_state *next, int32_t known_state,
		    bool continues, struct hf_store_start *start);

/* Reads the kernel's boot id; 0 or -errno. */
int hf_store_read_boot_id(char out[HF_STORE_MAX_BOOT_ID + 1]);
