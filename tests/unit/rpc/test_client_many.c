/*
 * Many calls at once: 10,000 in flight to 2,000 hosts, a fifth of which never
 * answer. The others must not notice.
 */
#include "../test.h"
#include "peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define MS      HF_NS_PER_MS
#define N_HOSTS 2000
#define N_CALLS 10000

struct fleet {
	struct world world;
	struct peer rpcbind; /* on every address; answers from the one that was asked */
	struct peer *peers;
	struct outcome *outcomes;
	uint16_t port;
	unsigned int n_healthy_done;
	unsigned int n_done;
	uint64_t healthy_done_at;
};

static bool is_silent(unsigned int host)
{
	return host % 5 == 0;
}

static void script_rpcbind(const struct heard *heard)
{
	struct fleet *fleet = heard->peer->user;
	unsigned int host = (unsigned int)heard->to.ip[2] * 250 + heard->to.ip[3] - 1;

	if (host % 10 == 0)
		return; /* half of the silent ones do not even say where they are */
	reply_word(heard, fleet->peers[host].addr.port);
}

static void count(struct outcome *outcome)
{
	struct fleet *fleet = outcome->user;
	unsigned int host = (unsigned int)(outcome - fleet->outcomes) % N_HOSTS;

	if (!is_silent(host)) {
		fleet->n_healthy_done++;
		fleet->healthy_done_at = outcome->done_at;
	}
	if (++fleet->n_done == N_CALLS)
		hf_loop_stop(fleet->world.loop);
}

static const char *host_text(char out[32], unsigned int host)
{
	snprintf(out, 32, "127.9.%u.%u", host / 250, host % 250 + 1);
	return out;
}

static void fleet_open(struct fleet *fleet)
{
	char text[32];

	world_open(&fleet->world, NULL);
	fleet->peers = calloc(N_HOSTS, sizeof(*fleet->peers));
	fleet->outcomes = calloc(N_CALLS, sizeof(*fleet->outcomes));
	for (unsigned int i = 0; i < N_HOSTS; i++)
		peer_open(&fleet->peers[i], fleet->world.loop, false, host_text(text, i), 0,
			  is_silent(i) ? script_silent : script_echo);
	peer_open(&fleet->rpcbind, fleet->world.loop, false, "0.0.0.0", 0, script_rpcbind);
	fleet->rpcbind.user = fleet;
	hf_rpc_client_set_rpcbind_port(fleet->world.client, fleet->rpcbind.addr.port);
}

static void fleet_close(struct fleet *fleet)
{
	for (unsigned int i = 0; i < N_HOSTS; i++)
		peer_close(&fleet->peers[i]);
	peer_close(&fleet->rpcbind);
	world_close(&fleet->world);
	free(fleet->peers);
	free(fleet->outcomes);
}

static void call_all(struct fleet *fleet, bool look_up, uint64_t timeout)
{
	for (uint32_t i = 0; i < N_CALLS; i++) {
		struct hf_rpc_request request = request_to(&fleet->peers[i % N_HOSTS].addr, HF_RPC_UDP_ONLY);

		if (look_up)
			request.remote.port = 0;
		request.timeout_ns = timeout;
		fleet->outcomes[i].then = count;
		fleet->outcomes[i].user = fleet;
		call(&fleet->world, &fleet->outcomes[i], &request, i);
	}
	assert_int_equal(world_counts(&fleet->world).calls, N_CALLS);
	world_run(&fleet->world);
}

static void check_all(struct fleet *fleet, bool look_up, uint64_t timeout)
{
	struct hf_rpc_client_counts counts = world_counts(&fleet->world);

	for (unsigned int i = 0; i < N_CALLS; i++) {
		struct outcome *o = &fleet->outcomes[i];
		unsigned int host = i % N_HOSTS;

		if (!is_silent(host)) {
			assert_outcome(*o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
			assert_int_equal(o->word, i);
			continue;
		}
		/* With nobody at the TCP port of rpcbind, that refusal is what is known at the end. */
		if (look_up && host % 10 == 0)
			assert_outcome(*o, HF_RPC_OUTCOME_REFUSED, HF_RPC_STAGE_LOOKUP);
		else
			assert_outcome(*o, HF_RPC_OUTCOME_TIMEOUT, HF_RPC_STAGE_REPLY);
		assert_true(o->done_at >= timeout);
	}
	print_message("%s: %u healthy calls answered after %.0f ms, %llu datagrams sent again\n",
		      look_up ? "with look-up" : "port given", fleet->n_healthy_done,
		      (double)fleet->healthy_done_at / 1e6, (unsigned long long)counts.retransmitted);
	assert_int_equal(fleet->n_healthy_done, N_CALLS / 5 * 4);
	/* Far from the deadline of the silent ones, on a loaded machine and with sanitizers, too. */
	assert_true(fleet->healthy_done_at < timeout / 2);
	assert_int_equal(counts.calls, 0);
}

static void run(bool look_up)
{
	struct fleet fleet = { .n_done = 0 };
	uint64_t timeout = 5 * HF_NS_PER_S;

	fleet_open(&fleet);
	call_all(&fleet, look_up, timeout);
	check_all(&fleet, look_up, timeout);
	fleet_close(&fleet);
}

static void test_many_ports_given(void **state)
{
	run(false);
}

static void test_many_with_lookup(void **state)
{
	run(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_ports_given),
		cmocka_unit_test(test_many_with_lookup),
	};
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 2 * N_HOSTS) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
		if (limit.rlim_max < 2 * N_HOSTS) {
			print_message("too few file descriptors\n");
			return 77;
		}
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
