#include "store/batch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "store/record.h"

#define RETAIN_BYTES ((size_t)4 << 20) /* a larger buffer is freed after its batch */
#define MAX_BYTES    ((size_t)UINT32_MAX - HF_RECORD_MAX)
/* Ids beyond this are not tracked: their put and delete are both written. */
#define MAX_PLACES  ((size_t)1 << 22)
#define FIRST_BYTES ((size_t)64 << 10)

void hf_batch_init(struct hf_store_batch *batch, struct hf_store *store, enum hf_store_kind kind)
{
	*batch = (struct hf_store_batch){ .store = store, .kind = kind };
}

void hf_batch_deinit(struct hf_store_batch *batch)
{
	free(batch->data);
	free(batch->places);
	batch->data = NULL;
	batch->places = NULL;
}

void hf_batch_reset(struct hf_store_batch *batch, uint64_t first_id)
{
	if (batch->capacity > RETAIN_BYTES) {
		free(batch->data);
		batch->data = NULL;
		batch->capacity = 0;
	}
	if (batch->n_places)
		memset(batch->places, 0, batch->n_places * sizeof(*batch->places));
	batch->n_places = 0;
	batch->first_id = first_id;
	batch->len = 0;
	batch->n_records = 0;
	batch->n_void = 0;
	batch->is_lost = false;
}

uint8_t *hf_batch_reserve(struct hf_store_batch *batch)
{
	if (batch->capacity - batch->len < HF_RECORD_MAX) {
		size_t capacity = HF_MAX(batch->capacity * 2, FIRST_BYTES);
		uint8_t *data;

		if (batch->len > MAX_BYTES)
			return NULL;
		data = realloc(batch->data, capacity);
		if (!data)
			return NULL;
		batch->data = data;
		batch->capacity = capacity;
	}
	return batch->data + batch->len;
}

void hf_batch_add(struct hf_store_batch *batch, int length)
{
	assert(length > 0 && length % 8 == 0);
	batch->len += (size_t)length;
	batch->n_records++;
}

/* Where the batch notes the record of @id; the note is created on first use. NULL: @id is older than this
 * batch, its distance from first_id is too large, or memory ran out. */
static uint32_t *place_of(struct hf_store_batch *batch, uint64_t id)
{
	uint64_t index = id - batch->first_id;

	if (id < batch->first_id || index >= MAX_PLACES)
		return NULL;
	if (index >= batch->places_capacity) {
		size_t capacity = HF_MAX(batch->places_capacity * 2, (size_t)256);
		uint32_t *places;

		while (capacity <= index)
			capacity *= 2;
		places = realloc(batch->places, capacity * sizeof(*places));
		if (!places)
			return NULL;
		memset(places + batch->places_capacity, 0,
		       (capacity - batch->places_capacity) * sizeof(*places));
		batch->places = places;
		batch->places_capacity = capacity;
	}
	batch->n_places = HF_MAX(batch->n_places, (size_t)index + 1);
	return &batch->places[index];
}

void hf_batch_add_new(struct hf_store_batch *batch, int length, uint64_t id)
{
	uint32_t *place = place_of(batch, id);

	if (place) {
		hf_batch_cancel(batch, id);
		*place = (uint32_t)(batch->len / 8 + 1);
	}
	hf_batch_add(batch, length);
}

bool hf_batch_cancel(struct hf_store_batch *batch, uint64_t id)
{
	uint64_t index = id - batch->first_id;

	if (id < batch->first_id || index >= batch->n_places || !batch->places[index])
		return false;
	hf_record_void(batch->data + (size_t)(batch->places[index] - 1) * 8);
	batch->places[index] = 0;
	batch->n_records--;
	batch->n_void++;
	return true;
}

struct hf_bytes hf_batch_bytes(struct hf_store_batch *batch)
{
	size_t from, to = 0, length;

	if (batch->n_void) {
		for (from = 0; from < batch->len; from += length) {
			length = hf_record_length(batch->data + from);
			if (hf_record_type(batch->data + from) == HF_RECORD_VOID)
				continue;
			memmove(batch->data + to, batch->data + from, length);
			to += length;
		}
		batch->len = to;
		batch->n_void = 0;
		/* The compaction above moved the records, so the noted places are wrong. They are not needed
		 * any more: a batch that is being written takes no new records. */
		memset(batch->places, 0, batch->n_places * sizeof(*batch->places));
		batch->n_places = 0;
	}
	return hf_bytes_of(batch->data, (uint32_t)batch->len);
}
