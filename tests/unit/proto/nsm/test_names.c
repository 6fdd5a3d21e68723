/* Which host does a name or an address mean? */
#include "test.h"

#include "proto/nsm/internal.h"

static bool match(const char *a, const char *b)
{
	bool one = hf_nsm_names_match(hf_bytes_of_str(a), hf_bytes_of_str(b));

	assert_int_equal(one, hf_nsm_names_match(hf_bytes_of_str(b), hf_bytes_of_str(a)));
	return one;
}

static void test_names(void **state)
{
	assert_true(match("a", "a"));
	assert_true(match("a", "A"));
	assert_true(match("client", "client.example.org"));
	assert_true(match("CLIENT", "client.Example.org"));
	assert_true(match("client.example.org", "CLIENT.EXAMPLE.ORG"));
	assert_false(match("client.example.org", "client.example.com"));
	assert_false(match("client", "clients"));
	assert_false(match("client", "client1.example.org"));
	assert_false(match("", "a"));
	assert_false(match("10", "10.0.0.1"));
	assert_true(match("10.0.0.1", "10.0.0.1"));
	assert_false(match("10.0.0.1", "10.0.0.2"));
}

static void test_ports_in_names(void **state)
{
	struct hf_addr four, six;

	assert_true(hf_addr_parse(&four, "10.0.0.1") && hf_addr_parse(&six, "fd00::1"));
	assert_int_equal(hf_nsm_port_in_name("10.0.0.1:77", &four), 77);
	assert_int_equal(hf_nsm_port_in_name("10.0.0.2:77", &four), 0);
	assert_int_equal(hf_nsm_port_in_name("10.0.0.1", &four), 0);
	assert_int_equal(hf_nsm_port_in_name("host:77", &four), 0);
	assert_int_equal(hf_nsm_port_in_name("[fd00::1]:77", &six), 77);
	assert_int_equal(hf_nsm_port_in_name("[fd00::1]:77", &four), 0);
	assert_int_equal(hf_nsm_port_in_name("", &four), 0);
}

static void test_us(void **state)
{
	struct hf_nsm nsm = { .server_name = (char[]){ "server.example.org" } };
	struct hf_addr local;

	assert_true(hf_addr_parse(&local, "127.0.0.1"));
	assert_true(hf_nsm_is_us(&nsm, hf_bytes_of_str("server"), &local));
	assert_true(hf_nsm_is_us(&nsm, hf_bytes_of_str("Server.example.org"), &local));
	assert_true(hf_nsm_is_us(&nsm, hf_bytes_of_str("localhost"), &local));
	assert_true(hf_nsm_is_us(&nsm, hf_bytes_of_str("127.0.0.1"), &local));
	assert_false(hf_nsm_is_us(&nsm, hf_bytes_of_str("127.0.0.2"), &local));
	assert_false(hf_nsm_is_us(&nsm, hf_bytes_of_str("10.0.0.1"), &local));
	assert_false(hf_nsm_is_us(&nsm, hf_bytes_of_str("other"), &local));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_ports_in_names),
		cmocka_unit_test(test_us),
	};

	return cmocka_run_group_tests_name("who", tests, NULL, NULL);
}
