/*
 * What a disk has: the records that batches leave behind, and the state of the server. It is the medium of
 * the stand-ins for the store: disk.h for tests, and the simulation's own (sim/disk.c).
 *
 * A view allocates nothing. So a test can refuse memory to the server alone, and the simulation can copy a
 * view.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/batch.h"
#include "store/record.h"
#include "store/state.h"

#define DISK_RECORDS 1024
#define DISK_BYTES   320

struct disk_record {
	uint8_t type; /* LOCK, RESERVATION, WAITER or CLIENT of enum hf_record_type */
	uint16_t len;
	uint16_t name_at, name_len; /* a client's id, within its bytes */
	uint64_t id;                /* of a lock, a reservation or a waiter */
	uint8_t bytes[DISK_BYTES];
};

struct disk_view {
	bool has_state;
	struct hf_store_state state;
	uint64_t version; /* rises with every change of its records */
	uint32_t n;
	struct disk_record records[DISK_RECORDS]; /* not touched before they are used: there are many */
};

void disk_view_init(struct disk_view *view);
void disk_view_copy(struct disk_view *view, const struct disk_view *from);
/* All of a batch; HF_STORE_ALL replaces what was there. */
void disk_view_apply(struct disk_view *view, struct hf_bytes batch, enum hf_store_kind kind);
void disk_view_save_state(struct disk_view *view, const struct hf_store_state *state, bool drop_locks);
/* As the operation of a store; waiters come in the order of their ids. */
int disk_view_load(const struct disk_view *view, enum hf_record_type type,
		   int (*fn)(void *user, const struct hf_record *record), void *user);

/* False: it is of another type. */
bool disk_record_read(const struct disk_record *mine, enum hf_record_type type, struct hf_record *record);

static inline struct hf_bytes disk_name(const struct disk_record *record)
{
	return hf_bytes_of(record->bytes + record->name_at, record->name_len);
}
