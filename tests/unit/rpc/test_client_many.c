/*
 * Many calls at once: 10,000 in flight to 2,000 hosts, a fifth of which never
 * answer. The others must not notice: all of them are answered before any of those is
 * given up, on a machine however slow.
 */
#include "../test.h"
#include "peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define N_HOSTS 2000
#define N_CALLS 10000

#define LONG_NS  (600 * HF_NS_PER_S) /* no host is given up */
#define SHORT_NS (4 * HF_NS_PER_S)   /* of which a look-up waits one until it tries otherwise */

struct fleet {
	struct world world;
	struct peer rpcbind; /* on every address; answers from the one that was asked */
	struct peer *peers;
	struct outcome *outcomes;
	bool look_up;
	unsigned int n_healthy_done;
	unsigned int n_silent_done;
	unsigned int n_silent_asked; /* hosts that have heard a call, and say nothing */
	uint64_t healthy_done_at;
};

static bool is_silent(unsigned int host)
{
	return host % 5 == 0;
}

/* Half of the silent ones do not even say where they are. */
static bool is_hidden(const struct fleet *fleet, unsigned int host)
{
	return fleet->look_up && host % 10 == 0;
}

static void script_rpcbind(const struct heard *heard)
{
	struct fleet *fleet = heard->peer->user;
	unsigned int host = (unsigned int)heard->to.ip[2] * 250 + heard->to.ip[3] - 1;

	if (!is_hidden(fleet, host))
		reply_word(heard, fleet->peers[host].addr.port);
}

/* Every host that answers has been heard, and every silent one has been asked. */
static void stop_if_over(struct fleet *fleet)
{
	if (fleet->n_healthy_done == N_CALLS / 5 * 4 &&
	    fleet->n_silent_asked == N_HOSTS / (fleet->look_up ? 10 : 5))
		hf_loop_stop(fleet->world.loop);
}

static void script_ignore(const struct heard *heard)
{
	struct fleet *fleet = heard->peer->user;

	if (heard->n > 1)
		return;
	fleet->n_silent_asked++;
	stop_if_over(fleet);
}

static unsigned int host_of(const struct fleet *fleet, const struct outcome *outcome)
{
	return (unsigned int)(outcome - fleet->outcomes) % N_HOSTS;
}

static void on_done(struct outcome *outcome)
{
	struct fleet *fleet = outcome->user;

	if (is_silent(host_of(fleet, outcome))) {
		if (++fleet->n_silent_done == N_CALLS / 5)
			hf_loop_stop(fleet->world.loop);
		return;
	}
	fleet->n_healthy_done++;
	fleet->healthy_done_at = outcome->done_at;
	stop_if_over(fleet);
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
	for (unsigned int i = 0; i < N_HOSTS; i++) {
		peer_open(&fleet->peers[i], fleet->world.loop, false, host_text(text, i), 0,
			  is_silent(i) ? script_ignore : script_echo);
		fleet->peers[i].user = fleet;
	}
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

static void call_one(struct fleet *fleet, uint32_t i, uint64_t timeout)
{
	struct hf_rpc_request request = request_to(&fleet->peers[i % N_HOSTS].addr, HF_RPC_UDP_ONLY);

	if (fleet->look_up)
		request.remote.port = 0;
	request.timeout_ns = timeout;
	fleet->outcomes[i] = (struct outcome){ .then = on_done, .user = fleet };
	call(&fleet->world, &fleet->outcomes[i], &request, i);
}

static void expect_healthy_answered(struct fleet *fleet)
{
	for (uint32_t i = 0; i < N_CALLS; i++)
		call_one(fleet, i, LONG_NS);
	assert_int_equal(world_counts(&fleet->world).calls, N_CALLS);
	world_run(&fleet->world);
	assert_int_equal(fleet->n_silent_done, 0);
	assert_int_equal(world_counts(&fleet->world).calls, N_CALLS / 5);
	print_message("%s: %u healthy calls answered after %.0f ms, %llu datagrams sent again\n",
		      fleet->look_up ? "with look-up" : "port given", fleet->n_healthy_done,
		      (double)fleet->healthy_done_at / 1e6,
		      (unsigned long long)world_counts(&fleet->world).retransmitted);
	for (uint32_t i = 0; i < N_CALLS; i++) {
		struct outcome *o = &fleet->outcomes[i];

		if (is_silent(host_of(fleet, o))) {
			o->pending = hf_rpc_pending_cancel(o->pending);
			continue;
		}
		assert_outcome(*o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
		assert_int_equal(o->word, i);
	}
	assert_int_equal(world_counts(&fleet->world).calls, 0);
}

static void expect_silent_given_up(struct fleet *fleet)
{
	for (uint32_t i = 0; i < N_CALLS; i++)
		if (is_silent(i % N_HOSTS))
			call_one(fleet, i, SHORT_NS);
	world_run(&fleet->world);
	for (uint32_t i = 0; i < N_CALLS; i++) {
		struct outcome *o = &fleet->outcomes[i];
		unsigned int host = host_of(fleet, o);

		if (!is_silent(host))
			continue;
		/* No program listens at rpcbind's TCP port: the outcome is that refusal. */
		if (is_hidden(fleet, host))
			assert_outcome(*o, HF_RPC_OUTCOME_REFUSED, HF_RPC_STAGE_LOOKUP);
		else
			assert_outcome(*o, HF_RPC_OUTCOME_TIMEOUT, HF_RPC_STAGE_REPLY);
		assert_true(o->done_at >= SHORT_NS);
	}
	assert_int_equal(world_counts(&fleet->world).calls, 0);
}

static void run(bool look_up)
{
	struct fleet fleet = { .look_up = look_up };

	fleet_open(&fleet);
	expect_healthy_answered(&fleet);
	expect_silent_given_up(&fleet);
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
