#include "rpc/record.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

#define FIRST_CAPACITY 1024

/* Shorter parts come together with other input: reading them separately would cost a system call. */
#define DIRECT_MINIMUM 16384

#define EARNEST 65536

#define MARK_WORK 32 /* bytes are copied in the time that one mark takes */

void hf_record_reader_init(struct hf_record_reader *reader, size_t max)
{
	*reader = (struct hf_record_reader){ .max = max };
}

void hf_record_reader_deinit(struct hf_record_reader *reader)
{
	free(reader->data);
	*reader = (struct hf_record_reader){ .max = reader->max };
}

bool hf_record_is_partial(const struct hf_record_reader *reader)
{
	return reader->n_header > 0 || reader->in_record;
}

uint8_t *hf_record_take_buffer(struct hf_record_reader *reader)
{
	uint8_t *data = reader->is_given ? reader->data : NULL;

	if (reader->is_given) {
		reader->data = NULL;
		reader->len = reader->capacity = reader->n_told = 0;
		reader->is_given = false;
	}
	return data;
}

void hf_record_release(struct hf_record_reader *reader)
{
	if (reader->is_given)
		free(hf_record_take_buffer(reader));
}

static int grow(struct hf_record_reader *reader, size_t needed)
{
	size_t capacity = HF_MAX(needed, HF_MAX((size_t)FIRST_CAPACITY, 2 * reader->capacity));
	uint8_t *data;

	if (needed <= reader->capacity)
		return 0;
	capacity = HF_MIN(capacity, HF_MAX(reader->max, needed));
	data = realloc(reader->data, capacity);
	if (!data)
		return -ENOMEM;
	reader->data = data;
	reader->capacity = capacity;
	return 0;
}

static int begin_fragment(struct hf_record_reader *reader)
{
	uint32_t word;

	memcpy(&word, reader->header, 4);
	word = be32toh(word);
	reader->n_header = 0;
	reader->n_marks++;
	reader->expected = word & ~HF_RECORD_LAST;
	reader->is_last = (word & HF_RECORD_LAST) != 0;
	reader->in_fragment = reader->in_record = true;
	return reader->expected > reader->max - reader->len ? -EMSGSIZE : 0;
}

static void skip(struct hf_bytes *input, size_t len)
{
	input->data += len;
	input->len -= len;
}

/* Collects the four bytes of a header; true when they are complete. */
static bool read_header(struct hf_record_reader *reader, struct hf_bytes *input)
{
	size_t n = HF_MIN((size_t)(4 - reader->n_header), (size_t)input->len);

	memcpy(reader->header + reader->n_header, input->data, n);
	reader->n_header = (uint8_t)(reader->n_header + n);
	skip(input, n);
	return reader->n_header == 4;
}

static int append(struct hf_record_reader *reader, struct hf_bytes *input)
{
	size_t n = HF_MIN(reader->expected, input->len);
	int r;

	if (!n)
		return 0;
	r = grow(reader, reader->len + n);
	if (r < 0)
		return r;
	memcpy(reader->data + reader->len, input->data, n);
	reader->len += n;
	reader->expected -= (uint32_t)n;
	skip(input, n);
	return 0;
}

/* The current fragment is complete: is the record? */
static int end_fragment(struct hf_record_reader *reader, struct hf_bytes *recordp)
{
	reader->in_fragment = false;
	if (!reader->is_last)
		return HF_RECORD_MORE;
	reader->in_record = false;
	reader->is_given = true;
	*recordp = hf_bytes_of(reader->data, (uint32_t)reader->len);
	return HF_RECORD_READY;
}

/* The common case: no record has begun, and this one is complete, in one fragment. */
static bool take_whole(struct hf_record_reader *reader, struct hf_bytes *input, struct hf_bytes *recordp)
{
	uint32_t word, len;

	if (hf_record_is_partial(reader) || input->len < 4)
		return false;
	memcpy(&word, input->data, 4);
	word = be32toh(word);
	len = word & ~HF_RECORD_LAST;
	if (!(word & HF_RECORD_LAST) || len > input->len - 4 || len > reader->max)
		return false;
	*recordp = hf_bytes_of(input->data + 4, len);
	skip(input, 4 + (size_t)len);
	return true;
}

int hf_record_read(struct hf_record_reader *reader, struct hf_bytes *input, struct hf_bytes *recordp)
{
	int r;

	hf_record_release(reader);
	if (HF_LIKELY(take_whole(reader, input, recordp)))
		return HF_RECORD_READY;
	while (input->len) {
		if (!reader->in_fragment) {
			if (!read_header(reader, input))
				return HF_RECORD_MORE;
			r = begin_fragment(reader);
			if (r < 0)
				return r;
		}
		if (reader->len == 0 && reader->is_last && reader->expected <= input->len) {
			*recordp = hf_bytes_of(input->data, reader->expected);
			skip(input, reader->expected);
			reader->in_fragment = reader->in_record = false;
			return HF_RECORD_READY;
		}
		r = append(reader, input);
		if (r < 0)
			return r;
		if (reader->expected == 0 && end_fragment(reader, recordp) == HF_RECORD_READY)
			return HF_RECORD_READY;
	}
	return HF_RECORD_MORE;
}

size_t hf_record_space(struct hf_record_reader *reader, uint8_t **spacep)
{
	size_t more;

	if (!reader->in_fragment || reader->is_given || reader->len == 0 || reader->expected < DIRECT_MINIMUM)
		return 0;
	/* First as much again as has arrived, so that a promise alone costs nothing. When enough has come to
	 * show that the record is real, all of it, because each step copies what is there. */
	more = reader->len < EARNEST ? HF_MAX(reader->len, (size_t)DIRECT_MINIMUM) : reader->expected;
	if (grow(reader, reader->len + HF_MIN(reader->expected, more)) < 0)
		return 0;
	*spacep = reader->data + reader->len;
	return HF_MIN(reader->capacity - reader->len, reader->expected);
}

int hf_record_filled(struct hf_record_reader *reader, size_t len, struct hf_bytes *recordp)
{
	assert(len <= reader->expected && reader->len + len <= reader->capacity);
	reader->len += len;
	reader->expected -= (uint32_t)len;
	return reader->expected == 0 ? end_fragment(reader, recordp) : HF_RECORD_MORE;
}

size_t hf_record_take_work(struct hf_record_reader *reader)
{
	size_t work = reader->n_marks * MARK_WORK + reader->len - reader->n_told;

	reader->n_marks = 0;
	reader->n_told = reader->len;
	return work;
}
