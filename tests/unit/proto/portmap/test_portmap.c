/* The choice, over real sockets of this host's loopback and any free port. */
#include "test.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/log.h"
#include "loop/loop.h"
#include "loop/timer.h"
#include "proto/portmap/portmap.h"
#include "proto/portmap/wire.h"
#include "rpc/client.h"

static const struct hf_rpc_version nlm_versions[] = { { .version = 1 }, { .version = 4 } };
static const struct hf_rpc_program nlm = {
	.program = 100021, .name = "nlm", .n_versions = 2, .versions = nlm_versions
};

static struct hf_loop *loop;
static struct hf_rpc_client *client;
static struct hf_timer patience;

static void on_patience(struct hf_timer *timer)
{
	fail_msg("nothing happened in time");
}

static int setup(void **state)
{
	assert_int_equal(hf_loop_new(&loop), 0);
	assert_int_equal(hf_rpc_client_new(&client, loop, NULL), 0);
	hf_timer_init(&patience, loop, on_patience);
	hf_timer_start(&patience, 20 * HF_NS_PER_S);
	return 0;
}

static int teardown(void **state)
{
	hf_timer_stop(&patience);
	client = hf_rpc_client_free(client);
	loop = hf_loop_free(loop);
	return 0;
}

/* Ready, done: the loop goes on with the test. */
static void stop_loop(void *user)
{
	hf_loop_stop(loop);
}

static struct hf_portmap *make(enum hf_portmap_mode mode, uint16_t port, unsigned int netids)
{
	struct hf_addr listen = { 0 };
	struct hf_portmap_offer offer = { &nlm, 2049, netids };
	struct hf_portmap *portmap = NULL;

	assert_true(hf_addr_parse(&listen, "127.0.0.1"));
	assert_int_equal(hf_portmap_new(&portmap, loop, client,
					&(struct hf_portmap_config){ mode, port, &listen, 1, &offer, 1 }),
			 0);
	return portmap;
}

static void run(void)
{
	assert_int_equal(hf_loop_run(loop), 0);
}

static void stop(struct hf_portmap *portmap)
{
	hf_portmap_stop(portmap, stop_loop, NULL);
	hf_portmap_stop(portmap, NULL, NULL); /* no-op */
	run();
}

static uint32_t port_found;

static void on_port(void *user, const struct hf_rpc_result *result)
{
	assert_int_equal(result->outcome, HF_RPC_OUTCOME_OK);
	port_found = hf_xdr_get_u32(result->results);
	hf_loop_stop(loop);
}

static uint32_t getport(uint16_t rpcbind_port, enum hf_rpc_path path)
{
	uint8_t args[16];
	struct hf_xdr_out out;
	struct hf_rpc_request request = {
		.program = HF_PORTMAP_PROGRAM,
		.version = 2,
		.procedure = HF_PMAPPROC_GETPORT,
		.path = path,
		.args = args,
		.args_len = sizeof(args),
		.timeout_ns = 5 * HF_NS_PER_S,
	};

	hf_addr_parse(&request.remote, "127.0.0.1");
	request.remote.port = rpcbind_port;
	hf_xdr_out_init(&out, args, sizeof(args));
	hf_pmap_put(&out, &(struct hf_pmap){ 100021, 4, IPPROTO_TCP, 0 });
	assert_int_equal(hf_rpc_client_call(client, NULL, &request, on_port, NULL), 0);
	run();
	return port_found;
}

static void test_off(void **state)
{
	struct hf_portmap *portmap = make(HF_PORTMAP_OFF, 111, HF_NETIDS_IPV4);

	assert_int_equal(hf_portmap_start(portmap, stop_loop, NULL), 0);
	run();
	assert_int_equal(hf_portmap_role(portmap), HF_PORTMAP_NONE);
	assert_int_equal(hf_portmap_port(portmap), 0);
	stop(portmap);
	hf_portmap_free(portmap);
}

static void test_embedded(void **state)
{
	struct hf_portmap *portmap = make(HF_PORTMAP_EMBEDDED, 0, HF_NETIDS_IPV4);
	struct hf_portmap *second;
	struct hf_portmap_counts counts;
	uint16_t port;

	assert_int_equal(hf_portmap_start(portmap, stop_loop, NULL), 0);
	run();
	port = hf_portmap_port(portmap);
	assert_int_not_equal(port, 0);
	assert_int_equal(hf_portmap_role(portmap), HF_PORTMAP_SERVES);
	assert_int_equal(getport(port, HF_RPC_TCP_ONLY), 2049);
	assert_int_equal(getport(port, HF_RPC_UDP_ONLY), 2049);
	hf_portmap_counts(portmap, &counts);
	assert_int_equal(counts.wanted, 4);
	assert_int_equal(counts.registered, 4);

	second = make(HF_PORTMAP_EMBEDDED, port, HF_NETIDS_IPV4);
	assert_int_equal(hf_portmap_start(second, stop_loop, NULL), -EADDRINUSE);
	hf_portmap_free(second);

	stop(portmap);
	second = make(HF_PORTMAP_EMBEDDED, port, HF_NETIDS_IPV4);
	assert_int_equal(hf_portmap_start(second, stop_loop, NULL), 0);
	run();
	hf_portmap_free(second); /* without stopping is fine, too */
	hf_portmap_free(portmap);
}

/* A host's rpcbind, which is an hf_portmap itself, without programs of its own. */
static struct hf_portmap *make_system(uint16_t *portp)
{
	struct hf_addr listen;
	struct hf_portmap *portmap = NULL;

	hf_addr_parse(&listen, "127.0.0.1");
	assert_int_equal(hf_portmap_new(&portmap, loop, client,
					&(struct hf_portmap_config){ HF_PORTMAP_EMBEDDED, *portp, &listen,
								     1 }),
			 0);
	assert_int_equal(hf_portmap_start(portmap, stop_loop, NULL), 0);
	run();
	*portp = hf_portmap_port(portmap);
	return portmap;
}

static void test_registers(enum hf_portmap_mode mode)
{
	uint16_t port = 0;
	struct hf_portmap *system = make_system(&port);
	struct hf_portmap *portmap = make(mode, port, HF_NETIDS_ALL);
	struct hf_portmap_counts counts;

	assert_int_equal(hf_portmap_start(portmap, stop_loop, NULL), 0);
	run();
	assert_int_equal(hf_portmap_role(portmap), HF_PORTMAP_REGISTERS);
	assert_int_equal(hf_portmap_port(portmap), port);
	hf_portmap_counts(portmap, &counts);
	assert_int_equal(counts.wanted, 8);
	assert_int_equal(counts.registered, 8);
	hf_portmap_counts(system, &counts);
	assert_int_equal(counts.foreign, 8);
	assert_int_equal(getport(port, HF_RPC_TCP_ONLY), 2049);

	stop(portmap);
	hf_portmap_free(portmap);
	hf_portmap_counts(system, &counts);
	assert_int_equal(counts.foreign, 0);
	assert_int_equal(getport(port, HF_RPC_TCP_ONLY), 0);
	hf_portmap_free(system);
}

static void test_auto_registers(void **state)
{
	test_registers(HF_PORTMAP_AUTO);
}

static void test_system_registers(void **state)
{
	test_registers(HF_PORTMAP_SYSTEM);
}

/* rpcbind is started again: it is told by SIGHUP's way. */
static void poll_port(struct hf_timer *timer)
{
	hf_loop_stop(loop);
}

static void test_renews(void **state)
{
	uint16_t port = 0;
	struct hf_portmap *system = make_system(&port);
	struct hf_portmap *portmap = make(HF_PORTMAP_AUTO, port, HF_NETIDS_IPV4);
	struct hf_timer timer;
	uint32_t found = 0;

	assert_int_equal(hf_portmap_start(portmap, stop_loop, NULL), 0);
	run();
	hf_portmap_free(system);
	system = make_system(&port);
	assert_int_equal(getport(port, HF_RPC_UDP_ONLY), 0);
	hf_portmap_check(portmap);
	hf_timer_init(&timer, loop, poll_port);
	for (int i = 0; i < 500 && found != 2049; i++) {
		hf_timer_start(&timer, 10 * HF_NS_PER_MS);
		run();
		found = getport(port, HF_RPC_UDP_ONLY);
	}
	assert_int_equal(found, 2049);
	stop(portmap);
	hf_portmap_free(portmap);
	hf_portmap_free(system);
}

static void test_system_without_rpcbind(void **state)
{
	uint16_t port = 0;
	struct hf_portmap *system = make_system(&port);
	struct hf_portmap *portmap = make(HF_PORTMAP_SYSTEM, port, HF_NETIDS_IPV4);
	struct hf_portmap_counts counts;

	hf_portmap_free(system); /* the port was free, and is free again */
	assert_int_equal(hf_portmap_start(portmap, stop_loop, NULL), 0);
	run(); /* ready all the same */
	hf_portmap_counts(portmap, &counts);
	assert_int_equal(counts.registered, 0);
	assert_int_equal(hf_portmap_role(portmap), HF_PORTMAP_REGISTERS);
	stop(portmap);
	hf_portmap_free(portmap);
}

static void test_auto_serves_a_free_port(void **state)
{
	struct hf_portmap *portmap = make(HF_PORTMAP_AUTO, 0, HF_NETIDS_IPV4);

	assert_int_equal(hf_portmap_start(portmap, NULL, NULL), 0);
	assert_int_equal(hf_portmap_role(portmap), HF_PORTMAP_SERVES);
	assert_int_equal(getport(hf_portmap_port(portmap), HF_RPC_TCP_ONLY), 2049);
	hf_portmap_free(portmap);
}

static void test_system_needs_a_port(void **state)
{
	struct hf_portmap *portmap = make(HF_PORTMAP_SYSTEM, 0, HF_NETIDS_IPV4);

	assert_int_equal(hf_portmap_start(portmap, stop_loop, NULL), -EINVAL);
	hf_portmap_free(portmap);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_off),
		TEST(test_embedded),
		TEST(test_auto_registers),
		TEST(test_system_registers),
		TEST(test_renews),
		TEST(test_system_without_rpcbind),
		TEST(test_auto_serves_a_free_port),
		TEST(test_system_needs_a_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
