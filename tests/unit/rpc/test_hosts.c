/* When was an address there, and when was it heard: of connections and of datagrams. */
#include "../test.h"

#include "rpc/hosts.h"

#define N_LANES 3
#define MANY    1000 /* more than may send without a lock */

static struct hf_hosts *hosts;

static int begin(void **state)
{
	return hf_hosts_new(&hosts, &(struct hf_siphash_key){ 1, 2 }, 8, 2 * MANY);
}

static int end(void **state)
{
	hosts = hf_hosts_free(hosts);
	return 0;
}

static struct hf_addr numbered(size_t i)
{
	return (struct hf_addr){ .family = AF_INET,
				 .port = 700,
				 .ip = { 10, 0, (uint8_t)(i >> 8), (uint8_t)i } };
}

static void expect(size_t i, uint64_t contact, uint64_t heard)
{
	struct hf_addr addr = numbered(i);

	assert_int_equal(hf_hosts_last_contact(hosts, &addr, 1000000), contact);
	assert_int_equal(hf_hosts_last_heard(hosts, &addr), heard);
}

static void test_an_open_connection_is_a_contact_and_not_heard(void **state)
{
	struct hf_addr addr = numbered(1);
	struct hf_host *host = hf_hosts_enter(hosts, &addr, N_LANES), *other;

	expect(1, 1000000, 0);
	hf_host_part_hear(hf_host_part(host, 2), 30);
	hf_host_part_hear(hf_host_part(host, 0), 20);
	expect(1, 1000000, 30);
	other = hf_hosts_enter(hosts, &addr, N_LANES);
	assert_ptr_equal(other, host);
	hf_hosts_close(hosts, host, 50);
	hf_hosts_leave(hosts, host);
	expect(1, 1000000, 30);
	hf_hosts_close(hosts, host, 60);
	expect(1, 60, 30); /* a call of the last one is under way */
	hf_hosts_leave(hosts, host);
	expect(1, 60, 30);
	expect(2, 0, 0);
	host = hf_hosts_enter(hosts, &addr, N_LANES);
	expect(1, 1000000, 30);
	hf_hosts_close(hosts, host, 70);
	hf_hosts_leave(hosts, host);
	expect(1, 70, 30);
}

static void test_each_sender_of_datagrams_is_heard(void **state)
{
	struct hf_addr addr = numbered(1);

	for (size_t round = 1; round <= 2; round++) {
		for (size_t i = 0; i < MANY; i++) {
			struct hf_addr sender = numbered(i);

			hf_hosts_note(hosts, &sender, round * MANY + i);
		}
		for (size_t i = 0; i < MANY; i++)
			expect(i, round * MANY + i, round * MANY + i);
	}
	addr.port = 800;
	hf_hosts_note(hosts, &addr, 5 * MANY);
	expect(1, 5 * MANY, 5 * MANY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_an_open_connection_is_a_contact_and_not_heard, begin,
						end),
		cmocka_unit_test_setup_teardown(test_each_sender_of_datagrams_is_heard, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
