/* Reservations and locks whose client cannot be registered: that fails when told to (ld --wrap). Reservations
 * while a notice is being checked. */
#include "calls.h"

#include <errno.h>

static bool register_fails;

int __real_hf_client_register(struct hf_client *client);
int __wrap_hf_client_register(struct hf_client *client);
int __wrap_hf_client_register(struct hf_client *client)
{
	return register_fails ? -ENOMEM : __real_hf_client_register(client);
}

/* It registers the client again. That call stays within its file, where the linker wraps nothing. */
int __real_hf_client_set_privileged(struct hf_client *client, bool is_privileged);
int __wrap_hf_client_set_privileged(struct hf_client *client, bool is_privileged);
int __wrap_hf_client_set_privileged(struct hf_client *client, bool is_privileged)
{
	return register_fails ? -ENOMEM : __real_hf_client_set_privileged(client, is_privileged);
}

static void ask_for(enum hf_nlm_proc procedure, struct ask ask, const char *result)
{
	uint32_t n;

	ask.procedure = procedure;
	ask.name = "x";
	n = call_up(ask);
	world_until(&calls.world, calls.said[n]);
	assert_string_equal(calls.said[n], result);
}

static void reserve(struct ask ask, const char *result)
{
	ask_for(HF_NLM_SHARE, ask, result);
}

static uint32_t n_reservations(void)
{
	struct hf_addr address;
	struct hf_client *client;
	uint32_t n;

	assert_true(hf_addr_parse(&address, CALLS_HOST));
	client = hf_clients_find(calls.nlm->clients, "nlm", &address, hf_bytes_of_str("x"));
	n = client ? client->locking.n_reservations : 0;
	hf_client_unref(client);
	return n;
}

static void test_a_new_one_goes(void **state)
{
	register_fails = true;
	reserve((struct ask){ .file = "g" }, "DENIED_NOLOCKS");
	assert_int_equal(n_reservations(), 0);
}

static void test_another_one_goes(void **state)
{
	reserve((struct ask){ 0 }, "GRANTED");
	register_fails = true;
	reserve((struct ask){ .local = "10.0.0.2" }, "DENIED_NOLOCKS");
	assert_int_equal(n_reservations(), 1);
}

/* The client has it already. A reply was lost, so it asks again, and at another address of the server. */
static void test_what_the_client_has_stays(void **state)
{
	reserve((struct ask){ 0 }, "GRANTED");
	register_fails = true;
	reserve((struct ask){ .local = "10.0.0.2", .is_reclaim = true }, "DENIED_NOLOCKS");
	assert_int_equal(n_reservations(), 1);
	register_fails = false;
	reserve((struct ask){ .local = "10.0.0.2", .is_reclaim = true }, "GRANTED");
	assert_int_equal(n_reservations(), 1);
}

/* A connection counts for more than the datagrams that made the client privileged. That it is not so any more
 * must be registered; if there is no memory for that, the reclaim is refused. */
static void test_a_reclaim_from_another_port(void **state)
{
	const struct ask again = { .is_reclaim = true, .by_tcp = true, .port = 40000 };

	ask_for(HF_NLM_LOCK, (struct ask){ 0 }, "GRANTED");
	register_fails = true;
	ask_for(HF_NLM_LOCK, again, "DENIED_NOLOCKS");
	register_fails = false;
	ask_for(HF_NLM_LOCK, again, "GRANTED");
}

/* The host was restarted, or not: a SHARE has no number that tells. */
static void test_one_while_a_notice_is_checked(void **state)
{
	struct hf_client *client = world_client(&calls.world, CALLS_HOST, "x");
	uint32_t dropped;

	reserve((struct ask){ 0 }, "GRANTED");
	client->doubted_state = 5;
	client->doubt_tag = hf_client_make_doubt_tag(5, 1);
	reserve((struct ask){ 0 }, "DENIED_GRACE_PERIOD");
	dropped = call_up((struct ask){ HF_NLM_SHARE, .name = "x", .is_reclaim = true });
	reserve((struct ask){ .file = "g" }, "GRANTED");
	reserve((struct ask){ .file = "g" }, "GRANTED"); /* both were taken during the check */
	assert_int_equal(n_reservations(), 3);
	assert_null(calls.said[dropped]); /* the client sends a reclaim again that is not answered */
	assert_true(hf_recovery_client_rebooted(calls.world.recovery, client, 5));
	assert_int_equal(n_reservations(), 2); /* those of "g" */
	reserve((struct ask){ 0 }, "GRANTED");
	assert_int_equal(n_reservations(), 3);
}

/* The next run may go on from here: the client gives it up again, and has one less then. */
static void test_a_release_that_is_not_stored(void **state)
{
	reserve((struct ask){ 0 }, "GRANTED");
	reserve((struct ask){ 0 }, "GRANTED");
	world_turn(&calls.world);
	calls.world.disk.is_broken = true;
	ask_for(HF_NLM_UNSHARE, (struct ask){ 0 }, "DENIED_GRACE_PERIOD");
	assert_int_equal(n_reservations(), 2);
	calls.world.disk.is_broken = false;
	world_until(&calls.world, hf_recovery_can_promise(calls.world.recovery));
	ask_for(HF_NLM_UNSHARE, (struct ask){ 0 }, "GRANTED");
	assert_int_equal(n_reservations(), 1);
}

static int setup_to_go_on(void **state)
{
	register_fails = false;
	return calls_setup(0, true);
}

static int setup(void **state)
{
	register_fails = false;
	return calls_setup(0, false);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, calls_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_a_new_one_goes),
		T(test_another_one_goes),
		T(test_what_the_client_has_stays),
		T(test_a_reclaim_from_another_port),
		T(test_one_while_a_notice_is_checked),
		cmocka_unit_test_setup_teardown(test_a_release_that_is_not_stored, setup_to_go_on,
						calls_teardown),
	};

	return cmocka_run_group_tests_name("reservation", tests, NULL, NULL);
}
