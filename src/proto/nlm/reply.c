/* Replies: at once, or when the store has what they promise. */
#include "proto/nlm/internal.h"

static void put_results(struct hf_xdr_out *out, const struct hf_rpc_header *header, struct hf_bytes cookie,
			enum hf_nlm_stat stat)
{
	if (header->procedure == HF_NLM_SHARE || header->procedure == HF_NLM_UNSHARE)
		hf_nlm_put_share_res(out, header->version, cookie, stat);
	else if (header->procedure != HF_NLM_FREE_ALL &&
		 header->procedure != HF_NLM_SM_NOTIFY) /* no results */
		hf_nlm_put_res(out, header->version, cookie, stat);
}

void hf_nlm_reply(struct hf_nlm *nlm, struct hf_rpc_call *call, struct hf_bytes cookie, enum hf_nlm_stat stat)
{
	const struct hf_rpc_header *header = hf_rpc_call_header(call);
	uint8_t results[HF_NLM_MAX_RES];
	struct hf_xdr_out out;

	hf_rpc_call_note(call, hf_nlm_stat_name(stat));
	if (!hf_nlm_is_msg(call)) {
		put_results(hf_rpc_reply_begin(call, 16 + cookie.len), header, cookie, stat);
		hf_rpc_reply_end(call);
		return;
	}
	hf_xdr_out_init(&out, results, sizeof(results));
	put_results(&out, header, cookie, stat);
	hf_nlm_msg_answer(nlm, call, hf_bytes_of(results, (uint32_t)(out.p - results)));
}

void hf_nlm_reply_late(struct hf_nlm *nlm, struct hf_rpc_call *call, enum hf_nlm_stat stat)
{
	struct hf_bytes cookie;

	hf_rpc_call_rewind(call);
	cookie = hf_xdr_get_opaque(hf_rpc_call_args(call), HF_NLM_MAX_NETOBJ); /* first in all arguments */
	hf_nlm_reply(nlm, call, cookie, stat);
}

void hf_nlm_reply_test(struct hf_nlm_op *op, enum hf_nlm_stat stat, const struct hf_nlm_holder *holder)
{
	struct hf_rpc_call *call = op->call;
	uint8_t results[HF_NLM_MAX_RES];
	struct hf_xdr_out out;

	hf_rpc_call_note(call, hf_nlm_stat_name(stat));
	if (!hf_nlm_is_msg(call)) {
		hf_nlm_put_test_res(hf_rpc_reply_begin(call, HF_NLM_MAX_RES), op->version, op->args.cookie,
				    stat, holder);
		hf_rpc_reply_end(call);
		return;
	}
	hf_xdr_out_init(&out, results, sizeof(results));
	hf_nlm_put_test_res(&out, op->version, op->args.cookie, stat, holder);
	hf_nlm_msg_answer(op->nlm, call, hf_bytes_of(results, (uint32_t)(out.p - results)));
}

/* Replies that wait for the store */

/* In the room of the call. */
struct kept_reply {
	struct hf_promise promise;
	struct hf_nlm *nlm;
	struct hf_rpc_call *call;
	enum hf_nlm_stat stat;
	hf_nlm_end_fn end;
	struct hf_nlm_turn *turn; /* of the owner, while @end is to come; or NULL */
	bool is_release;          /* true whether it could be written or not */
	bool is_restart;          /* a client has told us of its own */
};
_Static_assert(sizeof(struct kept_reply) <= HF_RPC_CALL_ROOM, "a call has room for it");

static void on_promise(struct hf_promise *promise, bool kept)
{
	struct kept_reply *reply = hf_container_of(promise, struct kept_reply, promise);
	struct hf_nlm *nlm = reply->nlm;
	struct hf_nlm_turn *turn = reply->turn;

	if (!kept && reply->is_restart) {
		hf_rpc_call_drop(reply->call);
		return;
	}
	if (!kept && !reply->is_release)
		reply->stat = HF_NLM_DENIED_NOLOCKS;
	if (reply->end) {
		hf_rpc_call_rewind(reply->call);
		reply->end(nlm, reply->call, kept);
	}
	hf_nlm_reply_late(nlm, reply->call, reply->stat);
	/* The call is gone, and @reply with it. */
	hf_nlm_turn_end(nlm, turn);
}

static bool promise(struct kept_reply *reply, const struct hf_client *client)
{
	struct hf_recovery *recovery = reply->nlm->options.recovery;

	if (reply->is_restart)
		return hf_recovery_promise_restart(recovery, &reply->promise, on_promise);
	if (reply->is_release)
		return hf_recovery_promise_release(recovery, &reply->promise, client, on_promise);
	return hf_recovery_promise(recovery, &reply->promise, client, on_promise);
}

static void keep(struct hf_nlm_op *op, struct kept_reply how, const struct hf_client *client)
{
	struct kept_reply *reply;

	if (hf_nlm_call_keep(op->nlm, op->call) < 0) {
		hf_nlm_turn_end(op->nlm, how.turn);
		return; /* it has been answered SYSTEM_ERR; the client asks again */
	}
	reply = hf_rpc_call_room(op->call);
	*reply = how;
	reply->nlm = op->nlm;
	reply->call = op->call;
	if (promise(reply, client))
		on_promise(&reply->promise, true);
	else
		hf_recovery_hurry(op->nlm->options.recovery);
}

static enum hf_recovery_kept how_kept(const struct hf_nlm_op *op)
{
	return hf_recovery_how_kept(op->nlm->options.recovery, op->client);
}

void hf_nlm_reply_granted(struct hf_nlm_op *op, bool is_new, hf_nlm_end_fn end)
{
	enum hf_recovery_kept kept = how_kept(op);

	if (kept == HF_KEPT)
		hf_nlm_reply(op->nlm, op->call, op->args.cookie, HF_NLM_GRANTED_STAT);
	else if (kept == HF_KEPT_NOT || !hf_nlm_hold_granted(op, is_new))
		keep(op, (struct kept_reply){ .stat = HF_NLM_GRANTED_STAT, .end = end }, op->client);
}

void hf_nlm_reply_kept(struct hf_nlm_op *op, enum hf_nlm_stat stat, hf_nlm_end_fn end)
{
	if (how_kept(op) != HF_KEPT) {
		keep(op, (struct kept_reply){ .stat = stat, .end = end }, op->client);
		return;
	}
	if (end) {
		hf_rpc_call_rewind(op->call);
		end(op->nlm, op->call, true);
	}
	hf_nlm_reply(op->nlm, op->call, op->args.cookie, stat);
}

/* Without memory for his turn nothing is lowered: he has more than he knows of, until he unlocks. */
void hf_nlm_reply_lowered(struct hf_nlm_op *op, hf_nlm_end_fn lower)
{
	struct kept_reply how = { .stat = HF_NLM_GRANTED_STAT };

	if (how_kept(op) == HF_KEPT) {
		hf_nlm_reply_kept(op, how.stat, lower);
		return;
	}
	how.turn = hf_nlm_turn_new(op);
	how.end = how.turn ? lower : NULL;
	keep(op, how, op->client);
}

/* The client has let go, whatever comes: see hf_recovery_promise_release(). */
void hf_nlm_reply_released(struct hf_nlm_op *op, enum hf_nlm_stat stat)
{
	struct hf_recovery *recovery = op->nlm->options.recovery;

	if (hf_recovery_is_release_kept(recovery))
		hf_nlm_reply(op->nlm, op->call, op->args.cookie, stat);
	else if (hf_recovery_how_kept(recovery, NULL) != HF_KEPT_NEARLY || !hf_nlm_hold_released(op, stat))
		keep(op, (struct kept_reply){ .stat = stat, .is_release = true }, NULL);
}

/* While the store cannot write there is no answer: the client asks again. */
void hf_nlm_reply_restart(struct hf_nlm *nlm, struct hf_rpc_call *call)
{
	struct hf_nlm_op op;

	hf_nlm_op_init(&op, nlm, call);
	keep(&op, (struct kept_reply){ .stat = HF_NLM_GRANTED_STAT, .is_restart = true }, NULL);
	hf_nlm_op_deinit(&op);
}
