#include "../test.h"

#include "lock/range.h"

static struct hf_range from(uint64_t offset, uint64_t len)
{
	struct hf_range range = { 1, 0 };

	assert_int_equal(hf_range_from_offset_len(&range, offset, len), 0);
	return range;
}

#define assert_range(range, s, e)                   \
	do {                                        \
		struct hf_range r_ = (range);       \
                                                    \
		assert_true(r_.start == (s));       \
		assert_true(r_.end == (e));         \
		assert_true(hf_range_is_valid(r_)); \
	} while (0)

static void test_plain(void **state)
{
	assert_range(from(0, 1), 0, 0);
	assert_range(from(10, 5), 10, 14);
}

static void test_length_0_is_to_eof(void **state)
{
	assert_range(from(10, 0), 10, HF_RANGE_EOF);
}

static void test_length_all_ones_is_to_eof(void **state)
{
	assert_range(from(0, UINT64_MAX), 0, HF_RANGE_EOF);
	assert_range(from(10, UINT64_MAX), 10, HF_RANGE_EOF);
}

static void test_overflow_is_to_eof(void **state)
{
	assert_range(from(HF_RANGE_EOF, 2), HF_RANGE_EOF, HF_RANGE_EOF);
	assert_range(from(100, HF_RANGE_EOF), 100, HF_RANGE_EOF);
	assert_range(from(1, UINT64_MAX - 1), 1, HF_RANGE_EOF);
}

static void test_last_byte(void **state)
{
	assert_range(from(HF_RANGE_EOF, 1), HF_RANGE_EOF, HF_RANGE_EOF);
	assert_range(from(HF_RANGE_EOF - 1, 1), HF_RANGE_EOF - 1, HF_RANGE_EOF - 1);
}

static void test_offset_beyond_is_fbig(void **state)
{
	struct hf_range range;

	assert_int_equal(hf_range_from_offset_len(&range, HF_RANGE_EOF + 1, 1), HF_RANGE_E_FBIG);
	assert_int_equal(hf_range_from_offset_len(&range, UINT64_MAX, 0), HF_RANGE_E_FBIG);
}

static void test_len_of_to_eof_is_0(void **state)
{
	assert_true(hf_range_len(from(10, 5)) == 5);
	assert_true(hf_range_len(from(10, 0)) == 0);
	assert_true(hf_range_len(from(0, UINT64_MAX)) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_length_0_is_to_eof),
		cmocka_unit_test(test_length_all_ones_is_to_eof),
		cmocka_unit_test(test_overflow_is_to_eof),
		cmocka_unit_test(test_last_byte),
		cmocka_unit_test(test_offset_beyond_is_fbig),
		cmocka_unit_test(test_len_of_to_eof_is_0),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
