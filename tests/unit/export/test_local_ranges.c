/* Ranges against the same as an array of bytes. */
#include "../test.h"

#include <stdlib.h>

#include "base/macros.h"
#include "export/local_ranges.h"

#define BYTES 48

static void check(const struct hf_local_ranges *ranges, const enum hf_lock_mode *bytes, uint64_t base)
{
	uint64_t end;

	for (size_t i = 0; i < ranges->n; i++) {
		assert_true(ranges->items[i].range.start <= ranges->items[i].range.end);
		assert_true(ranges->items[i].mode != HF_LOCK_NONE);
		if (i == 0 || ranges->items[i - 1].range.end + 1 < ranges->items[i].range.start)
			continue;
		assert_int_equal(ranges->items[i - 1].range.end + 1, ranges->items[i].range.start);
		assert_int_not_equal(ranges->items[i - 1].mode, ranges->items[i].mode);
	}
	for (uint64_t i = 0; i < BYTES; i++) {
		assert_int_equal(hf_local_ranges_at(ranges, base + i, &end), bytes[i]);
		assert_true(end >= base + i);
		for (uint64_t j = i; j < BYTES && j <= end - base; j++)
			assert_int_equal(bytes[j], bytes[i]);
	}
}

static void play(uint64_t base)
{
	struct hf_local_ranges ranges = { 0 };
	enum hf_lock_mode bytes[BYTES] = { 0 };

	srand(1);
	for (int step = 0; step < 20000; step++) {
		uint64_t from = (uint64_t)rand() % BYTES, to = from + (uint64_t)rand() % 12;
		enum hf_lock_mode mode = (enum hf_lock_mode)(rand() % 3), least = HF_LOCK_EXCLUSIVE;

		to = HF_MIN(to, BYTES - 1);
		assert_int_equal(hf_local_ranges_reserve(&ranges, 1), 0);
		hf_local_ranges_set(&ranges, (struct hf_range){ base + from, base + to }, mode);
		for (uint64_t i = from; i <= to; i++)
			bytes[i] = mode;
		check(&ranges, bytes, base);
		from = (uint64_t)rand() % BYTES;
		for (uint64_t i = from; i < BYTES; i++) {
			least = HF_MIN(least, bytes[i]);
			assert_int_equal(hf_local_ranges_cover(&ranges,
							       (struct hf_range){ base + from, base + i },
							       HF_LOCK_SHARED),
					 least >= HF_LOCK_SHARED);
			assert_int_equal(hf_local_ranges_cover(&ranges,
							       (struct hf_range){ base + from, base + i },
							       HF_LOCK_EXCLUSIVE),
					 least >= HF_LOCK_EXCLUSIVE);
		}
	}
	hf_local_ranges_deinit(&ranges);
}

static void test_from_the_first_byte(void **state)
{
	play(0);
}

static void test_to_the_last_byte(void **state)
{
	play(HF_RANGE_EOF - BYTES + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_from_the_first_byte),
		cmocka_unit_test(test_to_the_last_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
