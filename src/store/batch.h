/*
 * A batch: the records of one kind since the last commit, written together as
 * bytes (store/record.h), in the order in which they were made.
 *
 * If a lock or reservation is deleted or put again while its put is still in
 * the batch, the old record is made void; void records are removed before the
 * batch is written. This is correct only for ids that are new in this batch: an
 * older id may already be stored.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "store/store.h"

struct hf_store_batch {
	struct hf_store *store;
	enum hf_store_kind kind; /* HF_STORE_ALL replaces everything that is stored */
	bool is_flying;          /* the backend is writing it */
	bool is_lost;            /* the store failed meanwhile: the result of this batch is ignored */
	uint8_t *data;
	size_t len;
	size_t capacity;
	uint64_t n_records;
	uint64_t n_void;
	uint64_t last_ticket;
	uint64_t started_at;

	/* The place of each new id's record, as offset / 8 + 1, indexed by id - first_id. */
	uint64_t first_id;
	uint32_t *places;
	size_t n_places;
	size_t places_capacity;
};

void hf_batch_init(struct hf_store_batch *batch, struct hf_store *store, enum hf_store_kind kind);
void hf_batch_deinit(struct hf_store_batch *batch);
/* Empties it; ids from first_id on are new. */
void hf_batch_reset(struct hf_store_batch *batch, uint64_t first_id);

/* Room to encode one more record; NULL: no memory. hf_batch_add() then appends what was encoded. */
uint8_t *hf_batch_reserve(struct hf_store_batch *batch);
void hf_batch_add(struct hf_store_batch *batch, int length);
void hf_batch_add_new(struct hf_store_batch *batch, int length, uint64_t id); /* for a lock or reservation */
/* True: its put was in the batch and is void now. */
bool hf_batch_cancel(struct hf_store_batch *batch, uint64_t id);

/* Removes the void records and returns the bytes to write. */
struct hf_bytes hf_batch_bytes(struct hf_store_batch *batch);

static inline bool hf_batch_is_empty(const struct hf_store_batch *batch)
{
	return batch->n_records == 0;
}
