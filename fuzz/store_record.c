/* Any bytes as records, as a segment of the journal, or as an LMDB file: refused or read, never believed.
 * What is read as a record encodes to the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "store/lmdb/check.h"
#include "store/lmdb/journal.h"
#include "store/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool truth)
{
	if (!truth)
		abort();
}

static int encode(uint8_t *out, const struct hf_record *record)
{
	switch (record->type) {
	case HF_RECORD_LOCK:
		return hf_record_encode_lock(out, &record->lock);
	case HF_RECORD_RESERVATION:
		return hf_record_encode_reservation(out, &record->reservation);
	case HF_RECORD_WAITER:
		return hf_record_encode_waiter(out, &record->waiter);
	case HF_RECORD_CLIENT:
		return hf_record_encode_client(out, &record->client);
	case HF_RECORD_STATE:
		return hf_record_encode_state(out, &record->state);
	case HF_RECORD_CLIENT_DELETE:
		return hf_record_encode_client_delete(out, record->name);
	case HF_RECORD_LOCK_DELETE:
	case HF_RECORD_RESERVATION_DELETE:
	case HF_RECORD_WAITER_DELETE:
	case HF_RECORD_VOID:
		break;
	}
	return hf_record_encode_delete(out, record->type, record->id);
}

static void read_records(struct hf_bytes bytes)
{
	static uint8_t again[HF_RECORD_MAX];
	struct hf_record record;
	struct hf_bytes at = bytes;
	int length;

	while (hf_record_next(&record, &bytes) > 0) {
		length = encode(again, &record);
		must(length > 0 && (uint32_t)length == at.len - bytes.len);
		must(memcmp(again, at.data, (size_t)length) == 0);
		at = bytes;
	}
}

static void read_journal(const uint8_t *data, size_t size)
{
	struct hf_journal_frames frames = { .size = size, .instance = 1 };
	struct hf_bytes records;

	frames.data = malloc(size + 1);
	must(frames.data != NULL);
	memcpy(frames.data, data, size);
	while (hf_journal_next(&frames, &records) > 0)
		read_records(records);
	(void)hf_journal_has_more(&frames, 0);
	hf_journal_read_end(&frames);
}

static const char *read_entry(void *user, struct hf_bytes key, struct hf_bytes value)
{
	uint8_t sum = 0;

	for (uint32_t i = 0; i < key.len; i++)
		sum ^= key.data[i];
	for (uint32_t i = 0; i < value.len; i++)
		sum ^= value.data[i];
	*(uint8_t *)user ^= sum;
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t sum = 0;

	if (size == 0)
		return 0;
	if (data[0] % 3 == 0)
		read_records(hf_bytes_of(data + 1, (uint32_t)size - 1));
	else if (data[0] % 3 == 1)
		read_journal(data + 1, size - 1);
	else
		(void)hf_lmdb_check(data + 1, size - 1, read_entry, &sum);
	return 0;
}
