#include "../test.h"

#include "base/siphash.h"

/* SipHash-1-3 of the bytes 00 01 … with the key 00 01 … 0f, as the reference implementation gives it. */
static void test_reference_values(void **state)
{
	const struct hf_siphash_key key = { UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908) };
	uint8_t data[64];

	for (unsigned int i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)i;
	assert_true(hf_siphash(&key, data, 0) == UINT64_C(0xabac0158050fc4dc));
	assert_true(hf_siphash(&key, data, 1) == UINT64_C(0xc9f49bf37d57ca93));
}

static void test_key_matters(void **state)
{
	const struct hf_siphash_key a = { 1, 2 }, b = { 1, 3 };

	assert_true(hf_siphash(&a, "holdfast", 8) != hf_siphash(&b, "holdfast", 8));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reference_values),
		cmocka_unit_test(test_key_matters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
