#include "fake_rpcbind.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loop/timer.h"

struct hf_rpc_pending {
	struct hf_timer timer;
	struct hf_rpc_client *client;
	struct hf_rpc_request request;
	uint8_t args[512];
	hf_rpc_done_fn done;
	void *user;
};

void fake_rpcbind_init(struct hf_rpc_client *client, struct hf_loop *loop)
{
	memset(client, 0, sizeof(*client));
	client->loop = loop;
	client->on_ipv4 = client->on_ipv6 = true;
	client->newest = 4;
	client->from = "127.0.0.1:700";
	hf_rpcbind_init(&client->rpcbind);
}

void fake_rpcbind_forget(struct hf_rpc_client *client)
{
	hf_rpcbind_deinit(&client->rpcbind);
	hf_rpcbind_init(&client->rpcbind);
}

void fake_rpcbind_deinit(struct hf_rpc_client *client)
{
	assert(client->n_in_flight == 0);
	hf_rpcbind_deinit(&client->rpcbind);
}

static enum hf_rpc_outcome answer_rpcbind(struct hf_rpc_client *client, const struct hf_rpc_request *request,
					  struct fake_reply *reply)
{
	struct fake_caller caller = { &client->loop, client->from, "127.0.0.1:111", HF_RPC_TCP };

	if (!(request->remote.family == AF_INET6 ? client->on_ipv6 : client->on_ipv4) ||
	    client->n_calls == client->fails_at)
		return HF_RPC_OUTCOME_REFUSED;
	if (request->version > client->newest)
		return HF_RPC_OUTCOME_NO_PROGRAM;
	client->n_sets += request->procedure == HF_RPCBPROC_SET;
	client->n_unsets += request->procedure == HF_RPCBPROC_UNSET;
	client->n_dumps += request->procedure == HF_RPCBPROC_DUMP;
	if (client->is_dump_too_long && request->procedure == HF_RPCBPROC_DUMP)
		return HF_RPC_OUTCOME_GARBAGE;
	fake_call(reply, &hf_rpcbind_program, &client->rpcbind, &caller, request->version, request->procedure,
		  request->args, request->args_len);
	assert(reply->stat == HF_RPC_SUCCESS);
	return HF_RPC_OUTCOME_OK;
}

static void answer(struct hf_timer *timer)
{
	struct hf_rpc_pending *pending = hf_container_of(timer, struct hf_rpc_pending, timer);
	struct hf_rpc_client *client = pending->client;
	struct hf_rpc_result result = { .outcome = HF_RPC_OUTCOME_TIMEOUT };
	static struct fake_reply reply;
	struct hf_xdr_in in;

	reply.len = 0;
	if (pending->request.program != HF_PORTMAP_PROGRAM) {
		assert(!hf_addr_is_any(&pending->request.remote));
		client->n_pings++;
		if (pending->request.remote.port == client->alive)
			result.outcome = HF_RPC_OUTCOME_OK;
	} else if (!client->is_silent) {
		result.outcome = answer_rpcbind(client, &pending->request, &reply);
	}
	hf_xdr_in_init(&in, reply.data, reply.len);
	if (result.outcome == HF_RPC_OUTCOME_OK)
		result.results = &in;
	client->n_in_flight--;
	pending->done(pending->user, &result);
	free(pending);
}

int hf_rpc_client_call(struct hf_rpc_client *client, struct hf_rpc_pending **pendingp,
		       const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user)
{
	struct hf_rpc_pending *pending;
	bool is_rpcbind = request->program == HF_PORTMAP_PROGRAM;

	if (client->cannot_begin)
		return -ENOMEM;
	pending = calloc(1, sizeof(*pending));
	assert(request->args_len <= sizeof(pending->args));
	pending->client = client;
	pending->request = *request;
	if (request->args_len)
		memcpy(pending->args, request->args, request->args_len);
	pending->request.args = pending->args;
	pending->done = done;
	pending->user = user;
	client->n_calls += is_rpcbind;
	client->n_in_flight++;
	assert(!is_rpcbind || (request->reserved_port && hf_addr_is_loopback(&request->remote)));
	hf_timer_init(&pending->timer, client->loop, answer);
	hf_timer_start(&pending->timer, client->is_silent ? request->timeout_ns : client->delay);
	*pendingp = pending;
	return 0;
}

struct hf_rpc_pending *hf_rpc_pending_cancel(struct hf_rpc_pending *pending)
{
	if (!pending)
		return NULL;
	pending->client->n_in_flight--;
	hf_timer_stop(&pending->timer);
	free(pending);
	return NULL;
}
