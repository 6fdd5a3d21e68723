/* What hosts say when their clients take their first locks. */
#include "on_paper.h"

#include <stdio.h>

enum {
	AT_ONCE = 32, /* hosts */
	MORE = 8,     /* hosts that wait meanwhile */
};

static struct hf_client *client_at(int i)
{
	char address[32];

	snprintf(address, sizeof(address), "10.0.0.%d", 1 + i);
	return world_client(&w, address, "client");
}

static int teardown(void **state)
{
	hf_nsm_free(nsm);
	world_deinit(&w);
	return 0;
}

static void take_all(void)
{
	for (int i = 0; i < AT_ONCE + MORE; i++)
		hf_nsm_take_baseline(nsm, client_at(i), 0);
	assert_int_equal(n_asked, AT_ONCE);
}

static void test_hosts_that_wait_are_asked_when_others_were_restarted(void **state)
{
	take_all();
	for (int i = 0; i < AT_ONCE; i++)
		hf_recovery_client_crashed(w.recovery, client_at(i), "test");
	assert_int_equal(n_asked, AT_ONCE + MORE);
}

static void test_hosts_that_wait_are_asked_when_others_are_not_registered_any_more(void **state)
{
	take_all();
	for (int i = 0; i < AT_ONCE; i++)
		hf_client_unregister(client_at(i));
	world_turn(&w);
	assert_int_equal(n_asked, AT_ONCE + MORE);
}

static void test_the_end_of_the_monitor_asks_no_more(void **state)
{
	take_all();
	nsm = hf_nsm_free(nsm);
	assert_int_equal(n_asked, AT_ONCE);
}

#define T(f) cmocka_unit_test_setup_teardown(f, on_paper_setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_hosts_that_wait_are_asked_when_others_were_restarted),
		T(test_hosts_that_wait_are_asked_when_others_are_not_registered_any_more),
		T(test_the_end_of_the_monitor_asks_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
