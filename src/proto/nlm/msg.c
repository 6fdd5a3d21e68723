/*
 * The _MSG procedures: the call gets an empty reply, and the server sends its result as a call, the _RES, to
 * the lock manager of the host that asked.
 *
 * By UDP a _MSG may be doubled or delayed. Its _RES is remembered for a while: a copy gets the same _RES, and
 * is not served again.
 */
#include <stdlib.h>

#include "base/error.h"
#include "proto/nlm/internal.h"
#include "rpc/client.h"
#include "rpc/message.h"

#define RES_TIMEOUT_NS (5 * HF_NS_PER_S)
#define MAX_REPEATS    4096

/* The reply of SHARE, the longest of those that must not be done again: cookie, status, sequence. */
_Static_assert(HF_RPC_REPLY_LEN + 4 + HF_NLM_MAX_NETOBJ + 4 + 4 <= HF_REPLAY_MAX_REPLY,
	       "it fits in the memory of replies");

static bool is_udp(const struct hf_rpc_call *call)
{
	return hf_rpc_call_transport(call) == HF_RPC_UDP;
}

static void on_res_sent(void *user, const struct hf_rpc_result *result)
{
	/* If it did not arrive, the client sends its _MSG again. */
}

static void send_res(struct hf_nlm *nlm, struct hf_rpc_call *call, struct hf_bytes results)
{
	const struct hf_rpc_header *header = hf_rpc_call_header(call);
	struct hf_rpc_request request = {
		.remote = *hf_rpc_call_peer(call),
		.local = *hf_rpc_call_local(call),
		.program = HF_NLM_PROGRAM,
		.version = header->version,
		.procedure = header->procedure + (HF_NLM_TEST_RES - HF_NLM_TEST_MSG),
		.path = is_udp(call) ? HF_RPC_UDP_THEN_TCP : HF_RPC_TCP_THEN_UDP,
		.args = results.data,
		.args_len = results.len,
		.timeout_ns = RES_TIMEOUT_NS,
		.reserved_port = true,
		.one_way = true,
		.send = nlm->options.send,
		.send_user = nlm->options.send_user,
	};
	int r;

	request.remote.port = 0;
	r = hf_rpc_client_call(nlm->options.client, NULL, &request, on_res_sent, NULL);
	if (r < 0)
		hf_trace(r);
}

int hf_nlm_msgs_init(struct hf_nlm *nlm)
{
	return hf_trace(hf_replay_new(&nlm->repeats, &nlm->key, MAX_REPEATS));
}

void hf_nlm_msgs_deinit(struct hf_nlm *nlm)
{
	nlm->repeats = hf_replay_free(nlm->repeats);
}

void hf_nlm_show_limits(struct hf_nlm *nlm, struct hf_limit_use uses[HF_N_LIMITS])
{
	hf_replay_show_limit(nlm->repeats, &uses[HF_LIMIT_CACHED_MSG_REPLIES]);
}

bool hf_nlm_msg_is_repeat(struct hf_nlm *nlm, struct hf_rpc_call *call, struct hf_replay_entry **repeatp)
{
	struct hf_replay_call known;
	uint8_t results[HF_REPLAY_MAX_REPLY];
	uint32_t len;

	if (!is_udp(call))
		return false;
	/* All entries here are of datagrams. So they are divided by address, though it may be forged. */
	known = (struct hf_replay_call){
		.peer = hf_rpc_call_peer(call),
		.channel = hf_rpc_call_channel(call),
		.message = hf_rpc_call_message(call),
	};
	switch (hf_replay_begin(nlm->repeats, hf_loop_now(nlm->options.loop), &known, NULL, NULL, results,
				&len, repeatp)) {
	case HF_REPLAY_DONE:
		send_res(nlm, call, hf_bytes_of(results, len));
		hf_rpc_reply_void(call);
		return true;
	case HF_REPLAY_BUSY:
		hf_rpc_reply_void(call);
		return true;
	default:
		return false;
	}
}

void hf_nlm_msg_answer(struct hf_nlm *nlm, struct hf_rpc_call *call, struct hf_replay_entry *repeat,
		       struct hf_bytes results)
{
	if (repeat)
		hf_replay_finish(nlm->repeats, repeat, results);
	send_res(nlm, call, results);
	hf_rpc_reply_void(call);
}
