/*
 * For each fact that a run of records is about, the latest record. To fold a
 * batch or a journal into a database, only these need to be written.
 */
#pragma once

#include <stddef.h>

#include "store/record.h"

struct hf_latest_record {
	uint64_t key;          /* 0: free */
	const uint8_t *record; /* including its header */
};

struct hf_latest_records {
	struct hf_latest_record *slots; /* open addressing; ids rise by one and so are neighbours here */
	size_t n_slots;                 /* a power of two, or 0 */
	size_t n;
};

/* Reads all of @records, whose bytes must outlive the table. -EBADMSG, -ENOMEM. */
int hf_latest_records_collect(struct hf_latest_records *table, struct hf_bytes records);
int hf_latest_records_decode(const struct hf_latest_record *last, struct hf_record *record); /* -EBADMSG */
void hf_latest_records_deinit(struct hf_latest_records *table);
