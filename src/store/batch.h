/*
 * What is written together: the records of one kind since the last commit, as
 * bytes (store/record.h), in the order in which they happened.
 *
 * A lock or share whose put is still in here when it is deleted, or put again,
 * leaves nothing behind: its record is made void, and the void ones are taken
 * out before the batch is written. That is right only for ids that are new in
 * this batch; an older one may be stored already.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "store/store.h"

struct hf_store_batch {
	struct hf_store *store;
	enum hf_store_kind kind; /* HF_STORE_ALL: replaces everything that is stored */
	bool is_flying;          /* the backend has it */
	bool is_lost;            /* the store failed meanwhile: its end does not matter any more */
	uint8_t *data;
	size_t len;
	size_t capacity;
	uint64_t n_records;
	uint64_t n_void;
	uint64_t last_ticket;
	uint64_t started_at;

	/* Where the record of each new id is: offset / 8 + 1, by id - first_id. */
	uint64_t first_id;
	uint32_t *places;
	size_t n_places;
	size_t places_capacity;
};

void hf_batch_init(struct hf_store_batch *batch, struct hf_store *store, enum hf_store_kind kind);
void hf_batch_deinit(struct hf_store_batch *batch);
void hf_batch_reset(struct hf_store_batch *batch, uint64_t first_id); /* empty; ids from first_id are new */

/* Room for one more record, to be encoded there; NULL: no memory. hf_batch_add() then keeps it. */
uint8_t *hf_batch_reserve(struct hf_store_batch *batch);
void hf_batch_add(struct hf_store_batch *batch, int length);
void hf_batch_add_new(struct hf_store_batch *batch, int length, uint64_t id); /* of a lock or share */
bool hf_batch_cancel(struct hf_store_batch *batch, uint64_t id); /* was there, and is not any more */

/* Takes the void records out and gives what is to be written. */
struct hf_bytes hf_batch_bytes(struct hf_store_batch *batch);

static inline bool hf_batch_is_empty(const struct hf_store_batch *batch)
{
	return batch->n_records == 0;
}
