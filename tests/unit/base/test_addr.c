#include "../test.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/addr.h"
#include "base/macros.h"

static struct hf_addr parsed(const char *text)
{
	struct hf_addr addr;

	assert_true(hf_addr_parse(&addr, text));
	return addr;
}

static void test_mapped_addresses_are_ipv4(void **state)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(700) };
	struct hf_addr mapped, plain = parsed("192.0.2.7");
	char text[HF_ADDR_TEXT];

	inet_pton(AF_INET6, "::ffff:192.0.2.7", &in6.sin6_addr);
	assert_true(hf_addr_from_sockaddr(&mapped, (struct sockaddr *)&in6));
	assert_int_equal(mapped.family, AF_INET);
	assert_true(hf_addr_same_host(&mapped, &plain));
	assert_false(hf_addr_equal(&mapped, &plain));
	assert_string_equal(hf_addr_format_with_port(&mapped, text, sizeof(text)), "192.0.2.7:700");

	plain = parsed("::ffff:192.0.2.7");
	assert_true(hf_addr_same_host(&mapped, &plain));
}

static void test_ipv4_goes_out_of_an_ipv6_socket(void **state)
{
	struct hf_addr addr = parsed("192.0.2.7"), back;
	struct sockaddr_storage ss;

	addr.port = 111;
	assert_int_equal(hf_addr_to_sockaddr_on(&addr, AF_INET6, &ss), sizeof(struct sockaddr_in6));
	assert_int_equal(ss.ss_family, AF_INET6);
	assert_true(hf_addr_from_sockaddr(&back, (struct sockaddr *)&ss));
	assert_true(hf_addr_equal(&addr, &back));
}

static void test_host_and_port(void **state)
{
	static const char *const bad[] = {
		"",      "127.0.0.1", "127.0.0.1:",  "127.0.0.1:-1", "::1:80", "[::1]:65536",
		"[::1]", "host:80",   "1.2.3.4: 80", ":80"
	};
	struct hf_addr addr;
	char text[HF_ADDR_TEXT];

	assert_true(hf_addr_parse_with_port(&addr, "[2001:db8::1]:2049"));
	assert_string_equal(hf_addr_format_with_port(&addr, text, sizeof(text)), "[2001:db8::1]:2049");
	assert_true(hf_addr_parse_with_port(&addr, "127.0.0.1:0"));
	assert_int_equal(addr.port, 0);
	for (size_t i = 0; i < HF_ARRAY_SIZE(bad); i++)
		assert_false(hf_addr_parse_with_port(&addr, bad[i]));
}

static void test_words(void **state)
{
	static const struct {
		const char *text;
		bool loopback, private, callable;
	} rows[] = {
		{ "127.0.0.1", true, true, true },
		{ "127.8.9.1", true, true, true },
		{ "::1", true, true, true },
		{ "10.255.0.1", false, true, true },
		{ "172.16.0.1", false, true, true },
		{ "172.31.255.255", false, true, true },
		{ "172.32.0.1", false, false, true },
		{ "192.168.0.1", false, true, true },
		{ "192.169.0.1", false, false, true },
		{ "fd00::1", false, true, true },
		{ "fe80::1", false, false, true },
		{ "2001:db8::1", false, false, true },
		{ "169.254.3.2", false, false, true },
		{ "169.254.169.253", false, false, true },
		{ "169.254.169.254", false, false, false },
		{ "0.0.0.0", false, false, false },
		{ "::", false, false, false },
		{ "224.0.0.1", false, false, false },
		{ "255.255.255.255", false, false, false },
		{ "ff02::1", false, false, false },
	};

	for (size_t i = 0; i < HF_ARRAY_SIZE(rows); i++) {
		struct hf_addr addr = parsed(rows[i].text);

		assert_int_equal(hf_addr_is_loopback(&addr), rows[i].loopback);
		assert_int_equal(hf_addr_is_private(&addr), rows[i].private);
		assert_int_equal(hf_addr_is_callable(&addr), rows[i].callable);
	}
}

static void test_networks(void **state)
{
	static const struct {
		const char *network, *addr;
		bool inside;
	} rows[] = {
		{ "10.0.0.0/8", "10.9.8.7", true },
		{ "10.0.0.0/8", "11.0.0.0", false },
		{ "192.168.4.0/22", "192.168.7.255", true },
		{ "192.168.4.0/22", "192.168.8.0", false },
		{ "0.0.0.0/0", "203.0.113.1", true },
		{ "0.0.0.0/0", "::1", false },
		{ "::/0", "2001:db8::1", true },
		{ "2001:db8::/33", "2001:db8:7fff::", true },
		{ "2001:db8::/33", "2001:db8:8000::", false },
		{ "10.1.2.3", "10.1.2.3", true },
		{ "10.1.2.3", "10.1.2.4", false },
	};
	static const char *const bad[] = { "10.0.0.0/33", "10.0.0.0/", "10.0.0/8",
					   "::/129",      "x/8",       "10.0.0.0/-1" };
	struct hf_network network;

	for (size_t i = 0; i < HF_ARRAY_SIZE(rows); i++) {
		struct hf_addr addr = parsed(rows[i].addr);

		assert_true(hf_network_parse(&network, rows[i].network));
		assert_int_equal(hf_network_contains(&network, &addr), rows[i].inside);
	}
	for (size_t i = 0; i < HF_ARRAY_SIZE(bad); i++)
		assert_false(hf_network_parse(&network, bad[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mapped_addresses_are_ipv4),
		cmocka_unit_test(test_ipv4_goes_out_of_an_ipv6_socket),
		cmocka_unit_test(test_host_and_port),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_networks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
