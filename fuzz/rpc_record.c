/* Record marking: any bytes, in any pieces, against a decoder that has them all at once. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "rpc/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_RECORD 40000

/* The straightforward one: the next record of @data into @record; its length, -1: not complete, -2: too long.
 */
static long next_record(const uint8_t *data, size_t size, size_t *atp, uint8_t record[MAX_RECORD])
{
	size_t at = *atp, len = 0;

	for (;;) {
		uint32_t word, n;

		if (size - at < 4)
			return -1;
		memcpy(&word, data + at, 4);
		word = be32toh(word);
		n = word & ~HF_RECORD_LAST;
		at += 4;
		if (n > MAX_RECORD - len)
			return -2;
		if (size - at < n)
			return -1;
		memcpy(record + len, data + at, n);
		len += n;
		at += n;
		if (word & HF_RECORD_LAST)
			break;
	}
	*atp = at;
	return (long)len;
}

struct check {
	const uint8_t *data;
	size_t size;
	size_t at;
};

static void check_record(struct check *check, struct hf_bytes got)
{
	static uint8_t expected[MAX_RECORD];
	long len = next_record(check->data, check->size, &check->at, expected);

	assert(len == (long)got.len);
	assert(len == 0 || memcmp(expected, got.data, got.len) == 0);
}

/* @seed chooses the pieces and who reads them. */
static void run(const uint8_t *data, size_t size, uint32_t seed)
{
	struct check check = { data, size, 0 };
	struct hf_record_reader reader;
	static uint8_t rest[MAX_RECORD];
	size_t fed = 0;
	int r = 0;

	hf_record_reader_init(&reader, MAX_RECORD);
	while (fed < size && r >= 0) {
		struct hf_bytes record;
		uint8_t *space;
		size_t n, room = hf_record_space(&reader, &space);

		seed = seed * 1664525 + 1013904223;
		n = 1 + (seed >> 8) % (seed & 1 ? 7 : 70000);
		n = HF_MIN(n, size - fed);
		if (room && (seed & 2)) {
			n = HF_MIN(n, room);
			memcpy(space, data + fed, n);
			r = hf_record_filled(&reader, n, &record);
			if (r == HF_RECORD_READY)
				check_record(&check, record);
		} else {
			uint8_t *copy = malloc(n);
			struct hf_bytes input = hf_bytes_of(copy, (uint32_t)n);

			memcpy(copy, data + fed, n);
			while ((r = hf_record_read(&reader, &input, &record)) == HF_RECORD_READY) {
				check_record(&check, record);
				if (seed & 4)
					free(hf_record_take_buffer(&reader));
				if (seed & 8)
					hf_record_release(&reader);
			}
			assert(r < 0 || input.len == 0);
			free(copy);
		}
		fed += n;
		assert(reader.len >= 64 << 10 || reader.capacity <= 4 * reader.len + (64 << 10));
	}
	/* both see the same end */
	if (r < 0)
		assert(r == -EMSGSIZE && next_record(data, size, &check.at, rest) == -2);
	else
		assert(next_record(data, size, &check.at, rest) == -1);
	hf_record_reader_deinit(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t seed;

	if (size < 4)
		return 0;
	memcpy(&seed, data, 4);
	run(data + 4, size - 4, seed);
	return 0;
}
