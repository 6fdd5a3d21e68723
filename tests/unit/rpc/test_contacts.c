/* When an address was there, and was heard, last, with few places. */
#include "../test.h"

#include "rpc/contacts.h"

static struct hf_contacts *contacts;

static int begin(void **state)
{
	return hf_contacts_new(&contacts, &(struct hf_siphash_key){ 1, 2 }, 3);
}

static int end(void **state)
{
	contacts = hf_contacts_free(contacts);
	return 0;
}

static struct hf_addr addr_of(const char *text, uint16_t port)
{
	struct hf_addr addr;

	assert_true(hf_addr_parse(&addr, text));
	addr.port = port;
	return addr;
}

static void note_end(const char *text, uint64_t now, uint64_t heard_at)
{
	struct hf_addr addr = addr_of(text, 700);

	hf_contacts_note(contacts, &addr, now, heard_at);
}

static void note(const char *text, uint64_t now)
{
	note_end(text, now, now);
}

static uint64_t last(const char *text)
{
	struct hf_addr addr = addr_of(text, 0);

	return hf_contacts_last(contacts, &addr);
}

static uint64_t heard(const char *text)
{
	struct hf_addr addr = addr_of(text, 0);

	return hf_contacts_heard(contacts, &addr);
}

static void test_each_address_has_its_time(void **state)
{
	note("192.0.2.1", 10);
	note("2001:db8::1", 20);
	note("192.0.2.1", 30);
	assert_int_equal(last("192.0.2.1"), 30);
	assert_int_equal(last("2001:db8::1"), 20);
	assert_int_equal(last("192.0.2.2"), 0);
	note("192.0.2.1", 25); /* by the clock of another loop */
	assert_int_equal(last("192.0.2.1"), 30);
}

static void test_what_is_forgotten_counts_as_later(void **state)
{
	note("192.0.2.1", 10);
	note("192.0.2.2", 20);
	note("192.0.2.3", 30);
	note("192.0.2.1", 40);
	note("192.0.2.4", 50); /* in the place of the second */
	assert_int_equal(last("192.0.2.1"), 40);
	assert_int_equal(last("192.0.2.2"), 20);
	assert_int_equal(last("192.0.2.3"), 30);
	assert_int_equal(last("192.0.2.4"), 50);
	note("192.0.2.5", 60);
	note("192.0.2.6", 70);
	assert_int_equal(last("192.0.2.1"), 40);
	assert_int_equal(last("192.0.2.2"), 40); /* too late, never too early */
	assert_int_equal(last("192.0.2.9"), 40);
}

static void test_a_connection_that_ends_was_heard_before(void **state)
{
	note_end("192.0.2.1", 30, 10);
	assert_int_equal(last("192.0.2.1"), 30);
	assert_int_equal(heard("192.0.2.1"), 10);
	note_end("192.0.2.1", 40, 0); /* a connection without a call */
	assert_int_equal(last("192.0.2.1"), 40);
	assert_int_equal(heard("192.0.2.1"), 10);
	assert_int_equal(heard("192.0.2.2"), 0);
	note_end("192.0.2.2", 50, 45);
	note_end("192.0.2.3", 60, 5);
	note_end("192.0.2.4", 70, 70); /* in the place of the first */
	assert_int_equal(heard("192.0.2.1"), 10);
	assert_int_equal(heard("192.0.2.3"), 5);
	note_end("192.0.2.5", 80, 80); /* in the place of the second */
	note_end("192.0.2.6", 90,
		 90); /* in the place of the third: the latest of all forgotten ones counts */
	assert_int_equal(heard("192.0.2.3"), 45);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_each_address_has_its_time, begin, end),
		cmocka_unit_test_setup_teardown(test_what_is_forgotten_counts_as_later, begin, end),
		cmocka_unit_test_setup_teardown(test_a_connection_that_ends_was_heard_before, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
