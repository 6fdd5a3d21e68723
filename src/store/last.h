/*
 * Of many records about the same things, the last about each: what is true in
 * the end. Where a batch or a journal is folded into a database, nothing else
 * needs to be written.
 */
#pragma once

#include <stddef.h>

#include "store/record.h"

struct hf_last {
	uint64_t key;          /* 0: free */
	const uint8_t *record; /* with its header */
};

struct hf_last_table {
	struct hf_last *slots; /* open addressing; ids rise one by one and so lie side by side */
	size_t n_slots;        /* a power of two, or 0 */
	size_t n;
};

/* Reads all of @records, whose bytes must outlive the table; -EBADMSG, -ENOMEM. */
int hf_last_collect(struct hf_last_table *table, struct hf_bytes records);
int hf_last_decode(const struct hf_last *last, struct hf_record *record); /* -EBADMSG */
void hf_last_deinit(struct hf_last_table *table);
