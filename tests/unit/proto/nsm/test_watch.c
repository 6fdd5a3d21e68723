/* Lock managers of this host that watch peers. Calls to them are counted, not sent (ld --wrap). */
#include "../../recovery/world.h"

#include <stdio.h>

#include "proto/nsm/internal.h"

enum {
	MANY = 300, /* crash in one turn */
};

static struct world w;
static size_t n_called;

int __wrap_hf_rpc_client_call(struct hf_rpc_client *client, struct hf_rpc_pending **pendingp,
			      const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user);
int __wrap_hf_rpc_client_call(struct hf_rpc_client *client, struct hf_rpc_pending **pendingp,
			      const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user)
{
	assert_int_equal(request->program, 400000);
	n_called++;
	return 0;
}

static const char *address_of(int i)
{
	static char text[32];

	snprintf(text, sizeof(text), "10.0.%d.%d", 1 + i / 200, 1 + i % 200);
	return text;
}

/* A program of this host wants to know when that peer is restarted. */
static void watch(int i)
{
	struct hf_client *client;
	struct hf_addr address, local;

	assert_true(hf_addr_parse(&address, address_of(i)) && hf_addr_parse(&local, "127.0.0.1"));
	assert_int_equal(hf_clients_get(&client, hf_recovery_clients(w.recovery), HF_NSM_PROTOCOL, &address,
					hf_bytes_of_str("manager")),
			 0);
	assert_int_equal(hf_client_set_callback(client, hf_bytes_of_str("manager"), 400000, 1, 1), 0);
	assert_int_equal(hf_client_set_mon_name(client, hf_bytes_of_str(address_of(i))), 0);
	hf_client_seen(client, &local);
	assert_int_equal(hf_client_register(client), 0);
	hf_client_unref(client);
}

static void test_all_crashes_of_one_turn_are_told(void **state)
{
	struct hf_nsm_options options = { .server_name = "server" };
	struct hf_nsm *nsm;

	world_init(&w);
	world_up(&w);
	world_turn(&w);
	options.loop = w.loop;
	options.recovery = w.recovery;
	assert_int_equal(hf_nsm_new(&nsm, &options), 0);
	for (int i = 0; i < MANY; i++) {
		watch(i);
		world_client(&w, address_of(i), "peer")->sm_state = 3;
	}
	for (int i = 0; i < MANY; i++)
		hf_recovery_client_crashed(w.recovery, world_client(&w, address_of(i), "peer"), "test");
	world_turn(&w);
	assert_int_equal(n_called, MANY);
	hf_nsm_free(nsm);
	world_deinit(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_crashes_of_one_turn_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
