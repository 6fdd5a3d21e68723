#include "../test.h"

#include <stdlib.h>
#include <string.h>

#include "rpc/xdr.h"

/* A copy in a heap block of just this size, so that a byte too far is seen by the sanitizer. */
static uint8_t *exact(const void *data, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	if (len)
		memcpy(copy, data, len);
	return copy;
}

static void test_primitives(void **state)
{
	static const uint8_t bytes[] = { 0x12, 0x34, 0x56, 0x78, 0xff, 0xff, 0xff, 0xfe, 1,   2,
					 3,    4,    5,    6,    7,    8,    0,    0,    0,   0,
					 0,    0,    0,    1,    0,    0,    0,    2,    'a', 'b',
					 'c',  0,    0,    0,    0,    3,    'x',  'y',  'z', 9 };
	struct hf_xdr_in in;
	struct hf_bytes b;

	hf_xdr_in_init(&in, bytes, sizeof(bytes));
	assert_int_equal(hf_xdr_get_u32(&in), 0x12345678);
	assert_int_equal(hf_xdr_get_i32(&in), -2);
	assert_true(hf_xdr_get_u64(&in) == UINT64_C(0x0102030405060708));
	assert_false(hf_xdr_get_bool(&in));
	assert_true(hf_xdr_get_bool(&in));
	assert_true(hf_xdr_get_bool(&in)); /* 2 is true as well */
	b = hf_xdr_get_fixed(&in, 3);
	assert_int_equal(b.len, 3);
	assert_memory_equal(b.data, "abc", 3);
	b = hf_xdr_get_opaque(&in, 3);
	assert_int_equal(b.len, 3);
	assert_memory_equal(b.data, "xyz", 3); /* whatever the padding is */
	assert_true(hf_xdr_in_is_ok(&in));
	assert_int_equal(hf_xdr_in_left(&in), 0);
	assert_int_equal(hf_xdr_get_fixed(&in, 0).len, 0);
	assert_true(hf_xdr_in_is_ok(&in));
}

enum kind {
	U32,
	I32,
	U64,
	BOOL,
	FIXED,
	OPAQUE,
	STRING,
	N_KINDS,
};

static void get(struct hf_xdr_in *in, enum kind kind)
{
	switch (kind) {
	case U32:
		assert_true(hf_xdr_get_u32(in) == 0 || hf_xdr_in_is_ok(in));
		break;
	case I32:
		assert_true(hf_xdr_get_i32(in) == 0 || hf_xdr_in_is_ok(in));
		break;
	case U64:
		assert_true(hf_xdr_get_u64(in) == 0 || hf_xdr_in_is_ok(in));
		break;
	case BOOL:
		assert_true(!hf_xdr_get_bool(in) || hf_xdr_in_is_ok(in));
		break;
	default: {
		struct hf_bytes b = kind == FIXED    ? hf_xdr_get_fixed(in, 5)
				    : kind == OPAQUE ? hf_xdr_get_opaque(in, 100)
						     : hf_xdr_get_string(in, 100);

		if (!hf_xdr_in_is_ok(in))
			assert_int_equal(b.len, 0);
	}
	}
}

/* Every primitive at every length: it works from just its own size on, and below leaves a failure that no
 * other primitive gets over. */
static void test_truncations(void **state)
{
	static const uint8_t bytes[12] = { 0, 0, 0, 5, 'h', 'e', 'l', 'l', 'o', 0, 0, 0 };
	static const size_t sizes[N_KINDS] = { 4, 4, 8, 4, 8, 12, 12 };

	for (int kind = 0; kind < N_KINDS; kind++) {
		for (size_t len = 0; len <= sizeof(bytes); len++) {
			uint8_t *copy = exact(bytes, len);
			struct hf_xdr_in in;

			hf_xdr_in_init(&in, copy, len);
			get(&in, kind);
			assert_int_equal(hf_xdr_in_is_ok(&in), len >= sizes[kind]);
			assert_int_equal(hf_xdr_in_left(&in), len >= sizes[kind] ? len - sizes[kind] : 0);
			if (len < sizes[kind]) {
				for (int other = 0; other < N_KINDS; other++) {
					get(&in, other);
					assert_false(hf_xdr_in_is_ok(&in));
				}
				assert_null(hf_xdr_take(&in, 1));
			}
			free(copy);
		}
	}
}

static void test_lengths(void **state)
{
	static const struct {
		uint8_t bytes[8];
		uint32_t max;
		bool ok;
	} cases[] = {
		{ { 0, 0, 0, 4, 1, 2, 3, 4 }, 4, true },
		{ { 0, 0, 0, 4, 1, 2, 3, 4 }, 3, false },
		{ { 0, 0, 0, 0 }, 0, true },
		{ { 0, 0, 0, 1 }, 0, false },
		{ { 0xff, 0xff, 0xff, 0xff }, UINT32_MAX, false }, /* rounding up must not wrap */
		{ { 0xff, 0xff, 0xff, 0xfd }, UINT32_MAX, false },
		{ { 0x80, 0, 0, 0 }, UINT32_MAX, false },
		{ { 0, 0, 0, 5, 1, 2, 3, 4 }, 100, false },
	};

	for (size_t i = 0; i < HF_ARRAY_SIZE(cases); i++) {
		struct hf_xdr_in in;

		hf_xdr_in_init(&in, cases[i].bytes, 8);
		hf_xdr_get_opaque(&in, cases[i].max);
		assert_int_equal(hf_xdr_in_is_ok(&in), cases[i].ok);
	}
}

static void test_strings(void **state)
{
	struct hf_xdr_in in;

	hf_xdr_in_init(&in, "\0\0\0\3ab\0", 8);
	assert_null(hf_xdr_get_string(&in, 3).data);
	assert_false(hf_xdr_in_is_ok(&in));
	hf_xdr_in_init(&in, "\0\0\0\3ab\0", 8);
	assert_int_equal(hf_xdr_get_opaque(&in, 3).len, 3);
	assert_true(hf_xdr_in_is_ok(&in));
	hf_xdr_in_init(&in, "\0\0\0\2ab\0", 8); /* in the padding it is fine */
	assert_int_equal(hf_xdr_get_string(&in, 3).len, 2);
	assert_true(hf_xdr_in_is_ok(&in));
	hf_xdr_in_init(&in, "\0\0\0", 4);
	assert_int_equal(hf_xdr_get_string(&in, 3).len, 0);
	assert_true(hf_xdr_in_is_ok(&in));
}

static void put(struct hf_xdr_out *out, int kind)
{
	switch (kind) {
	case U32:
		hf_xdr_put_u32(out, 0x01020304);
		break;
	case I32:
		hf_xdr_put_i32(out, -1);
		break;
	case U64:
		hf_xdr_put_u64(out, UINT64_C(0x1122334455667788));
		break;
	case BOOL:
		hf_xdr_put_bool(out, true);
		break;
	case FIXED:
		hf_xdr_put_fixed(out, "abcde", 5);
		break;
	case OPAQUE:
		hf_xdr_put_opaque(out, hf_bytes_of("abcde", 5));
		break;
	default:
		hf_xdr_put_string(out, "abcde");
	}
}

/* An encoder never writes past its end, and pads with zeros. */
static void test_encoding(void **state)
{
	static const char *const expected[N_KINDS] = {
		"\1\2\3\4",
		"\xff\xff\xff\xff",
		"\x11\x22\x33\x44\x55\x66\x77\x88",
		"\0\0\0\1",
		"abcde\0\0\0",
		"\0\0\0\5abcde\0\0\0",
		"\0\0\0\5abcde\0\0\0",
	};
	static const size_t sizes[N_KINDS] = { 4, 4, 8, 4, 8, 12, 12 };

	for (int kind = 0; kind < N_KINDS; kind++) {
		for (size_t room = 0; room <= 16; room++) {
			uint8_t *data = malloc(room ? room : 1);
			struct hf_xdr_out out;

			memset(data, 0xee, room ? room : 1);
			hf_xdr_out_init(&out, data, room);
			put(&out, kind);
			assert_int_equal(hf_xdr_out_is_ok(&out), room >= sizes[kind]);
			if (room >= sizes[kind]) {
				assert_memory_equal(data, expected[kind], sizes[kind]);
				assert_int_equal(out.p - data, sizes[kind]);
				for (size_t i = sizes[kind]; i < room; i++)
					assert_int_equal(data[i], 0xee);
			} else {
				assert_int_equal(hf_xdr_out_left(&out), 0);
				put(&out, U32);
				put(&out, FIXED);
				hf_xdr_put_fixed(&out, "", 0);
				assert_false(hf_xdr_out_is_ok(&out));
			}
			free(data);
		}
	}
}

/* What one puts, the other gets, at every length. */
static void test_round_trip(void **state)
{
	uint8_t data[64], text[40], room[64];

	for (uint32_t len = 0; len <= sizeof(text); len++) {
		struct hf_xdr_out out;
		struct hf_xdr_in in;
		struct hf_bytes got;

		memset(room, 0xee, sizeof(room));
		memset(text, (int)('a' + len % 26), sizeof(text));
		hf_xdr_out_init(&out, data, sizeof(data));
		hf_xdr_put_opaque(&out, hf_bytes_of(text, len));
		hf_xdr_put_u32(&out, 77);
		assert_true(hf_xdr_out_is_ok(&out));
		hf_xdr_in_init(&in, data, (size_t)(out.p - data));
		got = hf_xdr_get_opaque(&in, len);
		assert_true(hf_bytes_equal(got, hf_bytes_of(text, len)));
		for (const uint8_t *p = got.data + len; p < in.p; p++)
			assert_int_equal(*p, 0);
		assert_int_equal(hf_xdr_get_u32(&in), 77);
		assert_true(hf_xdr_in_is_ok(&in) && hf_xdr_in_left(&in) == 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_primitives), cmocka_unit_test(test_truncations),
		cmocka_unit_test(test_lengths),    cmocka_unit_test(test_strings),
		cmocka_unit_test(test_encoding),   cmocka_unit_test(test_round_trip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
