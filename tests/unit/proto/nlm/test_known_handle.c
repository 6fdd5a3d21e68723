/* What handles were found to be: only the same bytes under the same list of exports are known. */
#include "../../test.h"

#include <string.h>

#include "proto/nlm/known_handle.h"

enum {
	LEN = 40,
	N_EXPORTS = 7,
};

static struct hf_nlm_known_handles known;
static uint8_t bytes[HF_HANDLE_MAX];

static int set_up(void **state)
{
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 37);
	return hf_nlm_known_handles_init(&known);
}

static int tear_down(void **state)
{
	hf_nlm_known_handles_deinit(&known);
	return 0;
}

static const struct hf_nlm_known_handle *find(size_t len, uint64_t n_exports)
{
	return hf_nlm_find_known_handle(&known, hf_bytes_of(bytes, (uint32_t)len), n_exports);
}

static void test_known(void **state)
{
	const struct hf_bytes none = { 0 };

	assert_null(find(LEN, N_EXPORTS));
	hf_nlm_know_handle(&known, hf_bytes_of(bytes, LEN), N_EXPORTS, 3, none);
	assert_non_null(find(LEN, N_EXPORTS));
	assert_int_equal(find(LEN, N_EXPORTS)->export, 3);
	assert_int_equal(find(LEN, N_EXPORTS)->key_len, 0);
	assert_null(find(LEN, N_EXPORTS + 1));
	assert_null(find(LEN - 1, N_EXPORTS));
	assert_null(find(LEN + 1, N_EXPORTS));
	for (size_t i = 0; i < LEN; i++) {
		bytes[i] ^= 0x80;
		assert_null(find(LEN, N_EXPORTS));
		bytes[i] ^= 0x80;
	}
	assert_non_null(find(LEN, N_EXPORTS));
}

static void test_a_key_of_its_own(void **state)
{
	uint8_t key[HF_HANDLE_MAX];

	memset(key, 9, sizeof(key));
	hf_nlm_know_handle(&known, hf_bytes_of(bytes, HF_HANDLE_MAX), N_EXPORTS, 3,
			   hf_bytes_of(key, sizeof(key)));
	assert_int_equal(find(HF_HANDLE_MAX, N_EXPORTS)->key_len, sizeof(key));
	assert_memory_equal(find(HF_HANDLE_MAX, N_EXPORTS)->key, key, sizeof(key));
}

/* Whatever a peer sends as a handle can be looked for. */
static void test_any_length(void **state)
{
	for (size_t len = 0; len <= sizeof(bytes); len++)
		assert_null(find(len, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_known, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_key_of_its_own, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_any_length, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
