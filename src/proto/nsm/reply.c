/* When does a reply leave? At once, or when the store has what it says. */
#include <stdlib.h>

#include "proto/nsm/internal.h"

struct reply {
	struct hf_promise promise;
	struct hf_nsm *nsm;
	struct hf_rpc_call *call;
	enum hf_nsm_answer answer;
};

void hf_nsm_reply_stat_res(struct hf_nsm *nsm, struct hf_rpc_call *call, enum hf_nsm_res res)
{
	int32_t state = res == HF_NSM_SUCC ? hf_recovery_state(nsm->options.recovery) : -1;

	if (res != HF_NSM_SUCC)
		hf_rpc_call_note(call, "FAIL");
	hf_nsm_put_stat_res(hf_rpc_reply_begin(call, 8), res, state);
	hf_rpc_reply_end(call);
}

static void reply_state(struct hf_nsm *nsm, struct hf_rpc_call *call)
{
	hf_xdr_put_i32(hf_rpc_reply_begin(call, 4), hf_recovery_state(nsm->options.recovery));
	hf_rpc_reply_end(call);
}

static void finish(struct hf_nsm *nsm, struct hf_rpc_call *call, enum hf_nsm_answer answer, bool is_durable)
{
	if (answer == HF_NSM_ANSWER_STAT_RES)
		hf_nsm_reply_stat_res(nsm, call, is_durable ? HF_NSM_SUCC : HF_NSM_FAIL);
	else if (answer == HF_NSM_ANSWER_STATE)
		reply_state(nsm, call);
	else if (is_durable)
		hf_rpc_reply_void(call);
	else
		hf_rpc_call_drop(call);
}

static void on_promise(struct hf_promise *promise, bool is_durable)
{
	struct reply *reply = hf_container_of(promise, struct reply, promise);

	finish(reply->nsm, reply->call, reply->answer, is_durable);
	free(reply);
}

void hf_nsm_reply_when_durable(struct hf_nsm *nsm, struct hf_rpc_call *call, const struct hf_client *client,
			       enum hf_nsm_answer answer)
{
	/* A reply without results is the reply to a notice. */
	enum hf_reply_says says = answer == HF_NSM_ANSWER_VOID ? HF_SAYS_RESTARTED : HF_SAYS_GRANTED;
	struct reply *reply = malloc(sizeof(*reply));

	if (!reply) {
		finish(nsm, call, answer, false);
		return;
	}
	*reply = (struct reply){ .nsm = nsm, .call = call, .answer = answer };
	if (hf_delays_add(&nsm->delays, &reply->promise, says, client, on_promise)) {
		on_promise(&reply->promise, true);
	} else if (hf_rpc_call_suspend(call) < 0) { /* a failed suspension has ended the call */
		hf_promise_cancel(&reply->promise);
		free(reply);
	}
}

static void drop(struct hf_promise *promise)
{
	struct reply *reply = hf_container_of(promise, struct reply, promise);

	hf_rpc_call_drop(reply->call);
	free(reply);
}

void hf_nsm_replies_deinit(struct hf_nsm *nsm)
{
	hf_delays_end(&nsm->delays, drop);
}
