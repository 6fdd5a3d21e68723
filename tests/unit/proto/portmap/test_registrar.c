/* The registrar against the server's own rpcbind, which is killed, made old, filled and silenced. Time is the
 * test's. */
#include "test.h"

#include <netinet/in.h>
#include <string.h>

#include "proto/portmap/registrar.h"

#include "fake_rpcbind.h"
#include "loop/loop.h"
#include "standin/fake_world.h"

#define SECOND UINT64_C(1000000000)

static struct fake_world *world;
static struct hf_loop *loop;
static struct hf_rpc_client client;
static struct hf_registrar *registrar;
static struct hf_registrar_report last;
static unsigned int n_rounds;
static bool is_stopped;

static void on_checked(void *user, const struct hf_registrar_report *report)
{
	last = *report;
	n_rounds++;
}

static void on_stopped(void *user)
{
	is_stopped = true;
}

/* NLM 4 and NSM 1 on four transports each */
static int setup(void **state)
{
	world = fake_world_new(1);
	assert_int_equal(fake_loop_new(&loop, world), 0);
	fake_rpcbind_init(&client, loop);
	n_rounds = 0;
	is_stopped = false;
	memset(&last, 0, sizeof(last));
	assert_int_equal(hf_registrar_new(&registrar, loop, &client, 111, on_checked, NULL), 0);
	for (int i = 0; i < HF_N_NETIDS; i++) {
		hf_registrar_add(registrar, 100021, 4, (enum hf_netid)i, 12049);
		hf_registrar_add(registrar, 100024, 1, (enum hf_netid)i, 12049);
	}
	assert_int_equal(hf_registrar_start(registrar), 0);
	return 0;
}

static int teardown(void **state)
{
	registrar = hf_registrar_free(registrar);
	fake_rpcbind_deinit(&client);
	loop = hf_loop_free(loop);
	fake_world_free(world);
	return 0;
}

static uint16_t port_of(uint32_t program, uint32_t version, enum hf_netid netid)
{
	const struct hf_mapping *found = hf_mappings_find(&client.rpcbind.mappings, program, version, netid);

	return found ? found->addr.port : 0;
}

static void plant(uint32_t program, uint32_t version, enum hf_netid netid, uint16_t port)
{
	struct hf_mapping mapping = {
		.program = program,
		.version = version,
		.netid = netid,
		.owner = HF_OWNER_SUPERUSER,
		.addr = { .family = hf_netid_info(netid)->family, .port = port },
	};

	assert_int_equal(hf_mappings_set(&client.rpcbind.mappings, &mapping), HF_MAPPINGS_OK);
}

static void stop(void)
{
	hf_registrar_stop(registrar, on_stopped, NULL);
	assert_false(is_stopped); /* never from inside */
}

static void test_registers(void **state)
{
	assert_int_equal(client.n_calls, 0);
	fake_world_advance(world, SECOND);
	assert_int_equal(n_rounds, 1);
	assert_true(last.is_found);
	assert_int_equal(last.version, 4);
	assert_int_equal(last.n_present, 8);
	assert_int_equal(last.n_renewed, 8);
	assert_int_equal(client.n_dumps, 1);
	assert_int_equal(client.n_sets, 8);
	assert_int_equal(client.n_unsets, 0);
	for (int i = 0; i < HF_N_NETIDS; i++)
		assert_int_equal(port_of(100021, 4, (enum hf_netid)i), 12049);
}

/* Once every 30 s, with one call where all is well. */
static void test_checks_and_renews(void **state)
{
	fake_world_advance(world, 29 * SECOND);
	assert_int_equal(n_rounds, 1);
	fake_world_advance(world, 2 * SECOND);
	assert_int_equal(n_rounds, 2);
	assert_int_equal(client.n_calls, 10);
	assert_int_equal(last.n_renewed, 0);
	assert_int_equal(last.n_present, 8);

	fake_rpcbind_forget(&client);
	fake_world_advance(world, 30 * SECOND);
	assert_int_equal(last.n_renewed, 8);
	assert_int_equal(port_of(100024, 1, HF_NETID_UDP6), 12049);

	hf_mappings_unset(&client.rpcbind.mappings, 100021, 4, HF_NETIDS_IPV6, HF_OWNER_SUPERUSER);
	fake_world_advance(world, 30 * SECOND);
	assert_int_equal(last.n_renewed, 2);
	assert_int_equal(last.n_present, 8);
}

static void test_checks_on_demand(void **state)
{
	hf_registrar_check(registrar);
	fake_world_advance(world, SECOND);
	assert_int_equal(n_rounds, 1);
	fake_rpcbind_forget(&client);
	hf_registrar_check(registrar);
	fake_world_advance(world, SECOND);
	assert_int_equal(n_rounds, 2);
	assert_int_equal(last.n_renewed, 8);
	/* while a round is under way: another one follows */
	client.is_silent = true;
	hf_registrar_check(registrar);
	fake_world_advance(world, SECOND);
	assert_int_equal(n_rounds, 2);
	hf_registrar_check(registrar);
	client.is_silent = false;
	fake_world_advance(world, 10 * SECOND);
	assert_int_equal(n_rounds, 4);
	assert_true(last.is_found);
}

static void test_comes_late(void **state)
{
	client.on_ipv4 = client.on_ipv6 = false;
	fake_world_advance(world, SECOND);
	assert_int_equal(n_rounds, 1);
	assert_false(last.is_found);
	assert_int_equal(last.n_present, 0);
	assert_int_equal(client.n_calls, 2); /* both addresses */
	client.on_ipv6 = true;
	fake_world_advance(world, 31 * SECOND);
	assert_true(last.is_found);
	assert_int_equal(last.n_present, 8);
}

static void test_dies_in_a_round(void **state)
{
	for (unsigned int n = 2; n <= 9; n++) {
		fake_rpcbind_forget(&client);
		client.fails_at = client.n_calls + n;
		hf_registrar_check(registrar);
		fake_world_advance(world, SECOND);
		assert_false(last.is_found);
		hf_registrar_check(registrar);
		fake_world_advance(world, SECOND);
		assert_true(last.is_found);
		assert_int_equal(last.n_present, 8);
	}
}

static void test_no_memory(void **state)
{
	client.cannot_begin = true;
	fake_world_advance(world, SECOND);
	assert_int_equal(n_rounds, 1);
	assert_false(last.is_found);
	client.cannot_begin = false;
	fake_world_advance(world, 30 * SECOND);
	assert_int_equal(last.n_present, 8);
}

static void test_version_2(void **state)
{
	client.newest = 2;
	fake_world_advance(world, SECOND);
	assert_true(last.is_found);
	assert_int_equal(last.version, 2);
	assert_int_equal(last.n_present, 4);
	assert_int_equal(last.n_unfitting, 4);
	assert_int_equal(port_of(100021, 4, HF_NETID_UDP), 12049);
	assert_int_equal(port_of(100021, 4, HF_NETID_UDP6), 0);
	fake_world_advance(world, 30 * SECOND);
	assert_int_equal(last.n_renewed, 0);
	stop();
	fake_world_advance(world, SECOND);
	assert_true(is_stopped);
	assert_int_equal(client.rpcbind.mappings.n, 0);
}

/* Version 2 removes TCP and UDP together: both are there in the end. */
static void test_version_2_conflict(void **state)
{
	client.newest = 2;
	plant(100024, 1, HF_NETID_UDP, 12049);
	plant(100024, 1, HF_NETID_TCP, 700);
	fake_world_advance(world, SECOND);
	assert_int_equal(client.n_pings, 1);
	assert_int_equal(client.n_unsets, 1);
	assert_int_equal(last.n_present, 4);
	assert_int_equal(port_of(100024, 1, HF_NETID_TCP), 12049);
	assert_int_equal(port_of(100024, 1, HF_NETID_UDP), 12049);
}

/* What a dead process left is replaced, that netid alone. */
static void test_stale(void **state)
{
	plant(100024, 1, HF_NETID_TCP, 700);
	plant(100024, 1, HF_NETID_UDP6, 12049);
	fake_world_advance(world, SECOND);
	assert_int_equal(client.n_pings, 1);
	assert_int_equal(client.n_unsets, 1);
	assert_int_equal(last.n_refused, 0);
	assert_int_equal(last.n_present, 8);
	assert_int_equal(last.n_renewed, 7);
	assert_int_equal(port_of(100024, 1, HF_NETID_TCP), 12049);
}

/* A living one is left alone, and looked at again. */
static void test_living(void **state)
{
	client.alive = 700;
	plant(100024, 1, HF_NETID_TCP, 700);
	fake_world_advance(world, SECOND);
	assert_int_equal(client.n_pings, 1);
	assert_int_equal(client.n_unsets, 0);
	assert_int_equal(last.n_refused, 1);
	assert_int_equal(last.n_present, 7);
	assert_int_equal(port_of(100024, 1, HF_NETID_TCP), 700);
	/* rpcbind is not asked to remove it either when the registrar stops */
	client.alive = 0;
	fake_world_advance(world, 30 * SECOND);
	assert_int_equal(last.n_present, 8);
	client.alive = 700;
	hf_mappings_unset(&client.rpcbind.mappings, 100024, 1, HF_NETIDS_ALL, HF_OWNER_SUPERUSER);
	plant(100024, 1, HF_NETID_TCP, 700);
	fake_world_advance(world, 30 * SECOND);
	assert_int_equal(last.n_present, 7);
	stop();
	fake_world_advance(world, SECOND);
	assert_int_equal(port_of(100024, 1, HF_NETID_TCP), 700);
	assert_int_equal(client.rpcbind.mappings.n, 1);
}

/* Without a DUMP everything is SET, and what is in the way removed. */
static void test_dump_too_long(void **state)
{
	client.is_dump_too_long = true;
	plant(100024, 1, HF_NETID_TCP, 700);
	plant(100024, 1, HF_NETID_UDP, 12049);
	fake_world_advance(world, SECOND);
	assert_true(last.is_found);
	assert_int_equal(client.n_sets, 9);
	assert_int_equal(client.n_unsets, 1);
	assert_int_equal(last.n_present, 8);
	assert_int_equal(port_of(100024, 1, HF_NETID_TCP), 12049);
}

/* The registrar may not remove it, since it is not privileged: said, and tried again later. */
static void test_refused(void **state)
{
	struct hf_mapping mapping = {
		.program = 100024,
		.version = 1,
		.netid = HF_NETID_UDP,
		.owner = HF_OWNER_SUPERUSER,
		.addr = { .family = AF_INET, .port = 700 },
	};

	client.from = "127.0.0.1:40000";
	hf_mappings_set(&client.rpcbind.mappings, &mapping);
	fake_world_advance(world, SECOND);
	assert_int_equal(client.n_unsets, 1);
	assert_int_equal(last.n_refused, 1);
	assert_int_equal(last.n_present, 7);
	assert_int_equal(port_of(100024, 1, HF_NETID_UDP), 700);
}

static void test_stop_removes(void **state)
{
	plant(7, 1, HF_NETID_UDP, 700);
	fake_world_advance(world, SECOND);
	stop();
	fake_world_advance(world, SECOND);
	assert_true(is_stopped);
	assert_int_equal(client.n_unsets, 8);
	assert_int_equal(client.rpcbind.mappings.n, 1);
	is_stopped = false;
	hf_registrar_stop(registrar, on_stopped, NULL); /* again is no-op */
	hf_registrar_check(registrar);
	fake_world_advance(world, SECOND);
	assert_false(is_stopped);
	fake_world_advance(world, 100 * SECOND);
	assert_int_equal(n_rounds, 1);
}

/* Privilege was given up meanwhile: they stay, and that is said. */
static void test_stop_without_privilege(void **state)
{
	fake_world_advance(world, SECOND);
	client.from = "127.0.0.1:40000";
	stop();
	fake_world_advance(world, SECOND);
	assert_true(is_stopped);
	assert_int_equal(client.rpcbind.mappings.n, 8);
}

static void test_stop_with_nothing(void **state)
{
	stop();
	fake_world_advance(world, 0);
	assert_true(is_stopped);
	assert_int_equal(client.n_calls, 0);
}

/* While it waits for an answer it still knows what it has set. */
static void test_stop_in_a_round(void **state)
{
	fake_world_advance(world, SECOND);
	client.is_silent = true;
	hf_registrar_check(registrar);
	fake_world_advance(world, SECOND / 2);
	client.is_silent = false;
	stop();
	fake_world_advance(world, SECOND);
	assert_true(is_stopped);
	assert_int_equal(client.rpcbind.mappings.n, 0);
}

static void test_stop_is_bounded(void **state)
{
	fake_world_advance(world, SECOND);
	client.is_silent = true;
	stop();
	fake_world_advance(world, 2 * SECOND - 1);
	assert_false(is_stopped);
	fake_world_advance(world, 1);
	assert_true(is_stopped);
	assert_int_equal(client.n_in_flight, 0);
}

/* Nor does it help to answer slowly. */
static void test_stop_is_bounded_in_all(void **state)
{
	fake_world_advance(world, SECOND);
	client.delay = 7 * SECOND / 10;
	stop();
	fake_world_advance(world, 2 * SECOND - 1);
	assert_false(is_stopped);
	fake_world_advance(world, 1);
	assert_true(is_stopped);
	assert_int_equal(client.n_unsets, 2);
	assert_int_equal(client.n_in_flight, 0);
}

static void test_free_in_flight(void **state)
{
	client.is_silent = true;
	fake_world_advance(world, SECOND);
	assert_int_equal(client.n_in_flight, 1);
	registrar = hf_registrar_free(registrar);
	assert_int_equal(client.n_in_flight, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_registers),
		TEST(test_checks_and_renews),
		TEST(test_checks_on_demand),
		TEST(test_comes_late),
		TEST(test_dies_in_a_round),
		TEST(test_no_memory),
		TEST(test_version_2),
		TEST(test_version_2_conflict),
		TEST(test_stale),
		TEST(test_living),
		TEST(test_dump_too_long),
		TEST(test_refused),
		TEST(test_stop_removes),
		TEST(test_stop_without_privilege),
		TEST(test_stop_with_nothing),
		TEST(test_stop_in_a_round),
		TEST(test_stop_is_bounded),
		TEST(test_stop_is_bounded_in_all),
		TEST(test_free_in_flight),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
