/* Which option of the configuration becomes which option of the recovery. */
#include "config_fixture.h"

#include "daemon/setup.h"
#include "loop/loop.h"
#include "recovery/recovery.h"

#define SHARED UINT64_MAX /* the window of all protocols */

static void expect_windows(const char *text, uint64_t nlm, uint64_t nsm, uint64_t smb)
{
	const struct {
		const char *name;
		bool is_told;
		uint64_t window_ns;
	} wanted[] = { { "nlm", true, nlm }, { "nsm", true, nsm }, { "smb", false, smb } };
	struct hf_config *config = load_good(text);
	const struct hf_args args = { 0 };
	struct hf_recovery_options options;

	hf_setup_recovery(&options, config, &args, NULL, "name", "/path");
	assert_int_equal(options.n_protocols, HF_ARRAY_SIZE(wanted));
	for (size_t i = 0; i < HF_ARRAY_SIZE(wanted); i++) {
		assert_string_equal(options.protocols[i].name, wanted[i].name);
		assert_int_equal(options.protocols[i].is_told, wanted[i].is_told);
		assert_int_equal(options.protocols[i].window_ns, wanted[i].window_ns);
	}
	hf_config_free(config);
}

static void test_windows_of_the_protocols(void **state)
{
	expect_windows("recovery: {window_seconds: 90}\n", SHARED, SHARED, SHARED);
	expect_windows("recovery: {nlm_grace_seconds: 20}\n", 20 * HF_NS_PER_S, 20 * HF_NS_PER_S, SHARED);
	expect_windows("recovery: {smb_durable_seconds: 30}\n", SHARED, SHARED, 30 * HF_NS_PER_S);
	expect_windows("recovery: {smb_durable_seconds: 0}\n", SHARED, SHARED, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_windows_of_the_protocols),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
