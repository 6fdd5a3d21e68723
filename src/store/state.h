/*
 * The server's own state: what must be known about the run before to judge what
 * it has left.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

struct hf_store_state {
	uint64_t epoch;
	int32_t sm_state;
	bool is_clean;    /* the run ended in order */
	bool is_complete; /* the stored locks are all that were granted */
	enum hf_store_durability durability;
	uint64_t handle_key; /* that the handles in the facts are of; 0: not known, or they are of none. Not a
			      * part of a state record: a backend keeps it by itself, and only save_state
			      * writes it */
	char boot_id[HF_STORE_MAX_BOOT_ID + 1]; /* of the machine the run was on */
	char medium[HF_STORE_MAX_BOOT_ID + 1];  /* of whoever keeps what is not synced: dies with it */
};

/* odd, positive, two more than before; wraps to 1 */
int32_t hf_store_next_sm_state(int32_t before);

/* Is all still there that the run of @before has written? @now: where we are. */
bool hf_store_is_intact(const struct hf_store_state *before, const struct hf_store_state *now);

/*
 * From what the last run left in @before (NULL: nothing) to the state of this run and to what the start
 * may believe. @next comes with durability, boot_id and medium set.
 */
void hf_store_judge(const struct hf_store_state *before, struct hf_store_state *next,
		    struct hf_store_start *start);

/* The kernel's boot id, or -errno. */
int hf_store_read_boot_id(char out[HF_STORE_MAX_BOOT_ID + 1]);
