/*
 * A table of values, not base/hashtable: a fold puts up to a million records here, and an object for each
 * would cost an allocation a record. Ids that rise stay neighbours in @slots, which LMDB writes faster.
 */
#include "store/latest_records.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "store/checksum.h"

#define FIRST_SLOTS 1024

/* The client's id if the record puts or deletes a client, otherwise nothing. */
static struct hf_bytes name_of(const uint8_t *bytes)
{
	struct hf_latest_record last = { .record = bytes };
	struct hf_record record;

	if (hf_record_type(bytes) != HF_RECORD_CLIENT && hf_record_type(bytes) != HF_RECORD_CLIENT_DELETE)
		return (struct hf_bytes){ 0 };
	if (hf_latest_records_decode(&last, &record) < 0)
		return (struct hf_bytes){ 0 };
	return record.type == HF_RECORD_CLIENT ? record.client.id : record.name;
}

/* A key for the fact that the record is about; 0: it is no record. */
static uint64_t key_of(const uint8_t *bytes, struct hf_bytes name)
{
	switch (hf_record_type(bytes)) {
	case HF_RECORD_LOCK:
	case HF_RECORD_RESERVATION:
	case HF_RECORD_LOCK_DELETE:
	case HF_RECORD_RESERVATION_DELETE:
	case HF_RECORD_WAITER:
	case HF_RECORD_WAITER_DELETE:
		return hf_record_id(bytes);
	case HF_RECORD_CLIENT:
	case HF_RECORD_CLIENT_DELETE:
		return name.len ? hf_checksum(name.data, name.len) | 1 : 0;
	case HF_RECORD_STATE:
		return UINT64_MAX; /* there is only one state */
	case HF_RECORD_VOID:
		break;
	}
	return 0;
}

/* A peer can choose a name whose key is that of another name, or of a lock. */
static struct hf_latest_record *find(const struct hf_latest_records *table, uint64_t key,
				     struct hf_bytes name)
{
	size_t mask = table->n_slots - 1;
	size_t i = key & mask;

	while (table->slots[i].key &&
	       (table->slots[i].key != key || !hf_bytes_equal(name_of(table->slots[i].record), name)))
		i = (i + 1) & mask;
	return &table->slots[i];
}

static int grow(struct hf_latest_records *table)
{
	struct hf_latest_records old = *table;
	size_t n_slots = old.n_slots ? old.n_slots * 2 : FIRST_SLOTS;
	struct hf_latest_record *slots = calloc(n_slots, sizeof(*slots));

	if (!slots)
		return hf_trace(-ENOMEM);
	table->slots = slots;
	table->n_slots = n_slots;
	for (size_t i = 0; i < old.n_slots; i++) {
		if (old.slots[i].key)
			*find(table, old.slots[i].key, name_of(old.slots[i].record)) = old.slots[i];
	}
	free(old.slots);
	return 0;
}

int hf_latest_records_collect(struct hf_latest_records *table, struct hf_bytes records)
{
	while (records.len) {
		const uint8_t *record = records.data;
		uint32_t length = records.len >= HF_RECORD_SHORTEST ? hf_record_length(record) : 0;
		struct hf_latest_record *last;
		struct hf_bytes name;
		uint64_t key;
		int r;

		if (length < HF_RECORD_SHORTEST || length > records.len)
			return hf_trace(-EBADMSG);
		name = name_of(record);
		key = key_of(record, name);
		if (!key)
			return hf_trace(-EBADMSG);
		if (table->n * 2 >= table->n_slots) {
			r = grow(table);
			if (r < 0)
				return r;
		}
		last = find(table, key, name);
		if (!last->key)
			table->n++;
		last->key = key;
		last->record = record;
		records = hf_bytes_of(record + length, records.len - length);
	}
	return 0;
}

int hf_latest_records_decode(const struct hf_latest_record *last, struct hf_record *record)
{
	uint32_t length = hf_record_length(last->record);

	return hf_record_decode(record, hf_record_type(last->record),
				hf_bytes_of(last->record + HF_RECORD_HEADER, length - HF_RECORD_HEADER));
}

void hf_latest_records_deinit(struct hf_latest_records *table)
{
	free(table->slots);
	*table = (struct hf_latest_records){ 0 };
}
