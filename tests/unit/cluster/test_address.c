/* The addresses of the configuration. What the kernel makes of them: tests/net/test_cluster_host.py. */
#include "../test.h"

#include <string.h>

#include "base/macros.h"
#include "cluster/address.h"

static void test_addresses_are_read(void **state)
{
	static const struct {
		const char *text, *addr, *interface;
		int family, prefix;
	} rows[] = {
		{ "192.0.2.7/24%eth0", "192.0.2.7", "eth0", AF_INET, 24 },
		{ "192.0.2.7/32%bond0.7", "192.0.2.7", "bond0.7", AF_INET, 32 },
		{ "10.0.0.1/1%fifteen-letters", "10.0.0.1", "fifteen-letters", AF_INET, 1 },
		{ "2001:db8::7/64%eth0", "2001:db8::7", "eth0", AF_INET6, 64 },
		{ "fd00::1/128%e", "fd00::1", "e", AF_INET6, 128 },
	};

	for (size_t i = 0; i < HF_ARRAY_SIZE(rows); i++) {
		struct hf_service_address address;
		char text[HF_ADDR_TEXT];

		assert_int_equal(hf_service_address_parse(&address, rows[i].text), HF_SERVICE_ADDRESS_OK);
		assert_int_equal(address.addr.family, rows[i].family);
		assert_int_equal(address.prefix, rows[i].prefix);
		assert_string_equal(address.interface, rows[i].interface);
		assert_string_equal(hf_addr_format(&address.addr, text, sizeof(text)), rows[i].addr);
	}
}

static void test_mistakes_are_named(void **state)
{
	static const struct {
		const char *text;
		int answer;
	} rows[] = {
		{ "", HF_SERVICE_ADDRESS_E_FORM },
		{ "192.0.2.7", HF_SERVICE_ADDRESS_E_FORM },
		{ "192.0.2.7/24", HF_SERVICE_ADDRESS_E_FORM },
		{ "192.0.2.7%eth0", HF_SERVICE_ADDRESS_E_FORM },
		{ "192.0.2.7%eth0/24", HF_SERVICE_ADDRESS_E_FORM },
		{ "%/%", HF_SERVICE_ADDRESS_E_FORM },
		{ "/24%eth0", HF_SERVICE_ADDRESS_E_ADDRESS },
		{ "host/24%eth0", HF_SERVICE_ADDRESS_E_ADDRESS },
		{ "192.0.2/24%eth0", HF_SERVICE_ADDRESS_E_ADDRESS },
		{ "0.0.0.0/24%eth0", HF_SERVICE_ADDRESS_E_ADDRESS },
		{ "224.0.0.1/24%eth0", HF_SERVICE_ADDRESS_E_ADDRESS },
		{ "ff02::1/64%eth0", HF_SERVICE_ADDRESS_E_ADDRESS },
		{ "fe80::1/64%eth0", HF_SERVICE_ADDRESS_E_ADDRESS },
		{ "169.254.3.2/16%eth0", HF_SERVICE_ADDRESS_E_ADDRESS },
		{ "::ffff:192.0.2.7/24%eth0", HF_SERVICE_ADDRESS_E_ADDRESS },
		{ "192.0.2.7/%eth0", HF_SERVICE_ADDRESS_E_PREFIX },
		{ "192.0.2.7/0%eth0", HF_SERVICE_ADDRESS_E_PREFIX },
		{ "192.0.2.7/33%eth0", HF_SERVICE_ADDRESS_E_PREFIX },
		{ "192.0.2.7/+9%eth0", HF_SERVICE_ADDRESS_E_PREFIX },
		{ "192.0.2.7/0024%eth0", HF_SERVICE_ADDRESS_E_PREFIX },
		{ "2001:db8::7/129%eth0", HF_SERVICE_ADDRESS_E_PREFIX },
		{ "2001:db8::7/280%eth0", HF_SERVICE_ADDRESS_E_PREFIX },
		{ "192.0.2.7/24%", HF_SERVICE_ADDRESS_E_INTERFACE },
		{ "192.0.2.7/24%..", HF_SERVICE_ADDRESS_E_INTERFACE },
		{ "192.0.2.7/24%eth 0", HF_SERVICE_ADDRESS_E_INTERFACE },
		{ "192.0.2.7/24%a/b", HF_SERVICE_ADDRESS_E_INTERFACE },
		{ "192.0.2.7/24%eth0:1", HF_SERVICE_ADDRESS_E_INTERFACE },
		{ "192.0.2.7/24%sixteen-letters!", HF_SERVICE_ADDRESS_E_INTERFACE },
	};

	for (size_t i = 0; i < HF_ARRAY_SIZE(rows); i++) {
		struct hf_service_address address;

		if (hf_service_address_parse(&address, rows[i].text) != rows[i].answer)
			fail_msg("%s", rows[i].text);
		assert_true(strstr(hf_service_address_explain(rows[i].answer), "must "));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses_are_read),
		cmocka_unit_test(test_mistakes_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
