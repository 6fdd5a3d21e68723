#include "../test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "rpc/record.h"

#define MAX_RECORD 200000

static uint32_t seed;

static uint32_t below(uint32_t n)
{
	seed = seed * 1664525 + 1013904223;
	return (uint32_t)(((uint64_t)(seed >> 4) * n) >> 28);
}

static uint8_t *put_mark(uint8_t *p, uint32_t len, bool is_last)
{
	uint32_t word = htobe32(len | (is_last ? HF_RECORD_LAST : 0));

	memcpy(p, &word, 4);
	return p + 4;
}

/* One record as a reader should see it */
struct sent {
	uint8_t *data;
	uint32_t len;
};

#define N_RECORDS 40

/* Lengths that sit on every edge, and some that do not. */
static uint32_t some_length(void)
{
	static const uint32_t edges[] = { 0, 1, 3, 4, 5, 1023, 1024, 1025, 16383, 16384, 16385, MAX_RECORD };

	switch (below(4)) {
	case 0:
		return edges[below(HF_ARRAY_SIZE(edges))];
	case 1:
		return below(MAX_RECORD);
	default:
		return below(300);
	}
}

static uint8_t *fragment(uint8_t *p, const struct sent *sent)
{
	uint32_t at = 0, style = below(4);

	for (;;) {
		uint32_t left = sent->len - at;
		uint32_t few = below(9);
		uint32_t n = style == 0 ? left : style == 1 ? HF_MIN(left, few) : below(left + 1);
		bool is_last = at + n == sent->len && below(3) > 0;

		p = put_mark(p, n, is_last);
		memcpy(p, sent->data + at, n);
		p += n;
		at += n;
		if (is_last)
			return p;
	}
}

static void check(const struct sent *sent, struct hf_bytes got)
{
	assert_int_equal(got.len, sent->len);
	assert_memory_equal(got.data, sent->data, sent->len);
}

/* Gives the reader @n bytes of the stream as a connection would: directly where it has room, else as input.
 */
static void feed(struct hf_record_reader *reader, const uint8_t *stream, size_t n, const struct sent *sent,
		 int *gotp)
{
	while (n) {
		uint8_t *space;
		size_t room = hf_record_space(reader, &space);
		struct hf_bytes record;

		if (room && below(4)) {
			size_t part = HF_MIN(room, n);

			memcpy(space, stream, part);
			stream += part;
			n -= part;
			if (hf_record_filled(reader, part, &record) == HF_RECORD_READY)
				check(&sent[(*gotp)++], record);
		} else {
			/* in a block of its own size, that is gone afterwards */
			uint8_t *copy = malloc(n);
			struct hf_bytes input = hf_bytes_of(copy, (uint32_t)n);

			memcpy(copy, stream, n);
			while (hf_record_read(reader, &input, &record) == HF_RECORD_READY) {
				check(&sent[(*gotp)++], record);
				switch (below(4)) {
				case 0:
					hf_record_release(reader);
					break;
				case 1: {
					uint8_t *own = hf_record_take_buffer(reader);

					if (own)
						assert_memory_equal(own, sent[*gotp - 1].data,
								    sent[*gotp - 1].len);
					free(own);
				}
				}
			}
			assert_int_equal(input.len, 0);
			free(copy);
			n = 0;
		}
		/* memory for what has come, not for what was promised */
		assert_true(reader->capacity <= 4 * reader->len + (64 << 10));
		assert_true(reader->capacity <= MAX_RECORD);
	}
}

static void test_random(void **state)
{
	uint8_t *stream = malloc(N_RECORDS * (size_t)MAX_RECORD * 3);

	for (seed = 1; seed < 0x7fffffff; seed += 0x7fffffff / 60) {
		struct sent sent[N_RECORDS];
		struct hf_record_reader reader;
		uint8_t *p = stream;
		int got = 0;

		for (int i = 0; i < N_RECORDS; i++) {
			sent[i].len = some_length();
			sent[i].data = malloc(sent[i].len + 1);
			for (uint32_t k = 0; k < sent[i].len; k++)
				sent[i].data[k] = (uint8_t)(k * 11 + (unsigned int)i + k / 256);
			p = fragment(p, &sent[i]);
		}
		hf_record_reader_init(&reader, MAX_RECORD);
		for (size_t at = 0, len = (size_t)(p - stream), style = below(3); at < len;) {
			size_t n = style == 0   ? 1 + below(20000)
				   : style == 1 ? 1 + below(7)
						: 1 + below(400000);

			n = HF_MIN(n, len - at);
			feed(&reader, stream + at, n, sent, &got);
			at += n;
		}
		assert_int_equal(got, N_RECORDS);
		assert_false(hf_record_is_partial(&reader));
		for (int i = 0; i < N_RECORDS; i++)
			free(sent[i].data);
		hf_record_reader_deinit(&reader);
	}
	free(stream);
}

static int read_all(struct hf_record_reader *reader, const void *data, uint32_t len, struct hf_bytes *recordp)
{
	struct hf_bytes input = hf_bytes_of(data, len);

	return hf_record_read(reader, &input, recordp);
}

static void test_in_place(void **state)
{
	struct hf_record_reader reader;
	struct hf_bytes record, input = hf_bytes_of("\x80\0\0\3abc\x80\0\0\1z\x80", 13);

	hf_record_reader_init(&reader, 100);
	assert_int_equal(hf_record_read(&reader, &input, &record), HF_RECORD_READY);
	assert_memory_equal(record.data, "abc", 3);
	assert_ptr_equal(record.data + 3, input.data); /* not a copy */
	assert_null(hf_record_take_buffer(&reader));
	assert_int_equal(hf_record_read(&reader, &input, &record), HF_RECORD_READY);
	assert_int_equal(record.len, 1);
	assert_int_equal(hf_record_read(&reader, &input, &record), HF_RECORD_MORE);
	assert_true(hf_record_is_partial(&reader));
	assert_int_equal(reader.capacity, 0);
	hf_record_reader_deinit(&reader);
}

static void test_too_long(void **state)
{
	struct hf_record_reader reader;
	struct hf_bytes record;

	hf_record_reader_init(&reader, 100);
	assert_int_equal(read_all(&reader, "\x80\0\0\x65", 4, &record), -EMSGSIZE);
	hf_record_reader_deinit(&reader);
	assert_int_equal(read_all(&reader, "\x80\0\0\x64", 4, &record), HF_RECORD_MORE);
	hf_record_reader_deinit(&reader);
	assert_int_equal(read_all(&reader, "\x7f\xff\xff\xff", 4, &record), -EMSGSIZE);
	hf_record_reader_deinit(&reader);
	/* all fragments together count */
	assert_int_equal(read_all(&reader, "\0\0\0\3abc\0\0\0\3def\x80\0\0\x5e", 18, &record),
			 HF_RECORD_MORE);
	hf_record_reader_deinit(&reader);
	assert_int_equal(read_all(&reader, "\0\0\0\3abc\0\0\0\3def\x80\0\0\x5f", 18, &record), -EMSGSIZE);
	hf_record_reader_deinit(&reader);
	/* a record of full length may come in fragments, and so may the next one */
	hf_record_reader_init(&reader, 3);
	assert_int_equal(read_all(&reader, "\0\0\0\1a\x80\0\0\2bc", 11, &record), HF_RECORD_READY);
	assert_memory_equal(record.data, "abc", 3);
	assert_int_equal(read_all(&reader, "\0\0\0\2ab\x80\0\0\1c", 11, &record), HF_RECORD_READY);
	assert_memory_equal(record.data, "abc", 3);
	hf_record_reader_deinit(&reader);
}

static void test_empty_fragments(void **state)
{
	struct hf_record_reader reader;
	struct hf_bytes record;

	hf_record_reader_init(&reader, 100);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(read_all(&reader, "\0\0\0\0", 4, &record), HF_RECORD_MORE);
	assert_true(hf_record_is_partial(&reader));
	assert_int_equal(reader.capacity, 0);
	assert_int_equal(read_all(&reader, "\0\0\0\2hi\0\0\0\0\x80\0\0\0", 14, &record), HF_RECORD_READY);
	assert_int_equal(record.len, 2);
	assert_memory_equal(record.data, "hi", 2);
	assert_false(hf_record_is_partial(&reader));
	assert_int_equal(read_all(&reader, "\x80\0\0\0", 4, &record), HF_RECORD_READY);
	assert_int_equal(record.len, 0);
	assert_non_null(record.data); /* a view that a decoder can begin at */
	hf_record_reader_deinit(&reader);
}

/* Partial from the first byte of its mark to the last of its body, also between fragments. */
static void test_partial(void **state)
{
	static const char bytes[] = "\0\0\0\1a\x80\0\0\2bc";
	struct hf_record_reader reader;
	struct hf_bytes record;

	hf_record_reader_init(&reader, 100);
	assert_false(hf_record_is_partial(&reader));
	for (int i = 0; i < 10; i++) {
		assert_int_equal(read_all(&reader, bytes + i, 1, &record), HF_RECORD_MORE);
		assert_true(hf_record_is_partial(&reader));
	}
	assert_int_equal(read_all(&reader, bytes + 10, 1, &record), HF_RECORD_READY);
	assert_false(hf_record_is_partial(&reader));
	hf_record_release(&reader);
	assert_int_equal(reader.capacity, 0);
	hf_record_release(&reader);
	hf_record_reader_deinit(&reader);
	hf_record_reader_deinit(&reader);
}

/* Direct reading is offered only for a long rest of a fragment that has begun, and never more than it. */
static void test_space(void **state)
{
	struct hf_record_reader reader;
	struct hf_bytes record;
	uint8_t *space;
	size_t room, total = 1;

	hf_record_reader_init(&reader, 1 << 20);
	assert_int_equal(hf_record_space(&reader, &space), 0);
	assert_int_equal(read_all(&reader, "\x80\x10\0\0", 4, &record), HF_RECORD_MORE);
	assert_int_equal(hf_record_space(&reader, &space), 0); /* a promise, and nothing else */
	assert_int_equal(reader.capacity, 0);
	assert_int_equal(read_all(&reader, "x", 1, &record), HF_RECORD_MORE);
	while ((room = hf_record_space(&reader, &space))) {
		/* as much again as has come, until that is enough to believe the rest */
		assert_true(room <= (total < 65536 ? HF_MAX((size_t)65536, 2 * total) : 1 << 20));
		memset(space, (int)('a' + total % 26), room);
		total += room;
		if (hf_record_filled(&reader, room, &record) == HF_RECORD_READY)
			break;
	}
	if (total < 1 << 20) { /* the rest is too short to be read apart */
		uint8_t *rest = calloc(1, (1 << 20) - total);

		assert_int_equal(read_all(&reader, rest, (uint32_t)((1 << 20) - total), &record),
				 HF_RECORD_READY);
		free(rest);
	}
	assert_int_equal(record.len, 1 << 20);
	assert_int_equal(record.data[0], 'x');
	assert_int_equal(hf_record_space(&reader, &space), 0);
	hf_record_reader_deinit(&reader);
}

/* What is charged for input that makes no record */
static void test_work(void **state)
{
	struct hf_record_reader reader;
	struct hf_bytes record;
	uint8_t *piece = calloc(1, 4096);

	hf_record_reader_init(&reader, 1 << 20);
	assert_int_equal(read_all(&reader, "\x80\0\0\x01x", 5, &record), HF_RECORD_READY);
	assert_int_equal(hf_record_take_work(&reader), 0);                         /* whole, in place */
	assert_int_equal(read_all(&reader, piece, 4096, &record), HF_RECORD_MORE); /* empty fragments */
	assert_int_equal(hf_record_take_work(&reader), 4096 / 4 * 32);
	assert_int_equal(hf_record_take_work(&reader), 0);
	put_mark(piece, 3000, true);
	assert_int_equal(read_all(&reader, piece, 2000, &record), HF_RECORD_MORE);
	assert_int_equal(hf_record_take_work(&reader), 32 + 1996);
	assert_int_equal(read_all(&reader, piece, 1004, &record), HF_RECORD_READY);
	assert_int_equal(record.len, 3000);
	assert_int_equal(reader.n_told, 1996);
	hf_record_release(&reader);
	assert_int_equal(hf_record_take_work(&reader), 0); /* the rest is charged with the record */
	assert_int_equal(reader.n_told, 0);
	hf_record_reader_deinit(&reader);
	free(piece);
}

/* Bytes that were read straight into the record are charged once: as they come, not with the record again. */
static void test_work_of_direct_reads(void **state)
{
	struct hf_record_reader reader;
	struct hf_bytes record;
	uint8_t piece[4 + 100] = { 0 };
	uint8_t *rest = calloc(1, 40000 - 10100);
	uint8_t *space;

	hf_record_reader_init(&reader, 1 << 20);
	put_mark(piece, 40000, true);
	assert_int_equal(read_all(&reader, piece, sizeof(piece), &record), HF_RECORD_MORE);
	assert_int_equal(hf_record_take_work(&reader), 32 + 100);
	assert_true(hf_record_space(&reader, &space) >= 10000);
	memset(space, 0, 10000);
	assert_int_equal(hf_record_filled(&reader, 10000, &record), HF_RECORD_MORE);
	assert_int_equal(hf_record_take_work(&reader), 10000);
	assert_int_equal(read_all(&reader, rest, 40000 - 10100, &record), HF_RECORD_READY);
	assert_int_equal(record.len, 40000);
	assert_int_equal(reader.n_told, 10100); /* the rest is charged with the record */
	hf_record_reader_deinit(&reader);
	free(rest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_place),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_empty_fragments),
		cmocka_unit_test(test_partial),
		cmocka_unit_test(test_space),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_work),
		cmocka_unit_test(test_work_of_direct_reads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
