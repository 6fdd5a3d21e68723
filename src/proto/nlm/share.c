/* SHARE and UNSHARE: the open modes of DOS and Windows clients. They do not touch byte-range locks. */
#include "proto/nlm/internal.h"

static bool decode(struct hf_nlm_op *op, void *service, struct hf_rpc_call *call)
{
	struct hf_xdr_in *in = hf_rpc_call_args(call);

	hf_nlm_op_init(op, service, call);
	hf_nlm_get_share(&op->args, in);
	if (!hf_xdr_in_is_ok(in)) {
		hf_rpc_reply_garbage(call);
		return false;
	}
	return true;
}

static void give_back(struct hf_nlm_op *op)
{
	hf_lock_unshare(op->nlm->locks, &op->target, (uint8_t)op->args.share_access,
			(uint8_t)op->args.share_mode);
}

/* The client whose reservations a call is about, if he has ever had any. */
static bool find_client(struct hf_nlm_op *op)
{
	op->client = hf_clients_find(op->nlm->clients, "nlm", hf_rpc_call_peer(op->call), op->args.caller);
	if (!op->client)
		return false;
	op->target.client = &op->client->holds;
	return true;
}

static struct hf_lock_share_view view_of(const struct hf_nlm_op *op)
{
	return (struct hf_lock_share_view){
		.share = op->target.share,
		.handle = op->target.handle,
		.client = op->target.client,
		.oh = op->target.oh,
		.access = (uint8_t)op->args.share_access,
		.deny = (uint8_t)op->args.share_mode,
	};
}

/* He is told that he has it not, and would never give it back. They are counted, so one more and one less
 * leave what he had before. A reclaim he had: it stays, and is not added again. */
static void undo(struct hf_nlm_op *op)
{
	struct hf_lock_share_view view = view_of(op);

	if (op->args.reclaim)
		hf_recovery_unsure_share(op->nlm->options.recovery, &view);
	else
		give_back(op);
}

static void undo_share(struct hf_nlm *nlm, struct hf_rpc_call *call, bool kept)
{
	struct hf_nlm_op op;

	if (kept)
		return;
	hf_nlm_op_init(&op, nlm, call);
	hf_nlm_get_share(&op.args, hf_rpc_call_args(call));
	hf_nlm_find_file(&op);
	if (find_client(&op))
		undo(&op);
	hf_nlm_op_deinit(&op);
}

static enum hf_nlm_stat take(struct hf_nlm_op *op)
{
	const struct hf_nlm_args *args = &op->args;
	struct hf_lock_share_view view = view_of(op);
	int answer;

	switch (args->reclaim ? hf_recovery_reclaim_share(op->nlm->options.recovery, &view)
			      : HF_RECLAIM_NORMAL) {
	case HF_RECLAIM_REFUSED:
		return HF_NLM_DENIED_GRACE_PERIOD;
	case HF_RECLAIM_BACKED:
		return HF_NLM_GRANTED_STAT;
	default:
		answer =
			hf_lock_share(op->nlm->locks, &op->target, view.access, view.deny,
				      (uint32_t)hf_client_state_for(op->client, 0, hf_rpc_call_age(op->call)),
				      args->reclaim);
		if (answer == HF_LOCK_E_LIMIT)
			hf_nlm_say_full(op, true);
		return hf_nlm_stat_from_lock(answer);
	}
}

static enum hf_nlm_stat share(struct hf_nlm_op *op)
{
	enum hf_nlm_stat stat;
	bool is_first;

	if (!hf_recovery_can_promise(op->nlm->options.recovery))
		return HF_NLM_DENIED_NOLOCKS;
	stat = hf_nlm_get_client(op, NULL);
	if (stat != HF_NLM_GRANTED_STAT)
		return stat;
	if (hf_nlm_await_host(op, hf_nlm_proc_share))
		return HF_NLM_LATER;
	is_first = hf_lock_client_is_idle(&op->client->holds);
	stat = take(op);
	if (stat == HF_NLM_GRANTED_STAT && hf_nlm_register(op) != HF_NLM_GRANTED_STAT) {
		undo(op);
		stat = HF_NLM_DENIED_NOLOCKS;
	}
	if (stat == HF_NLM_GRANTED_STAT)
		hf_nlm_note_begin(op, is_first);
	return stat;
}

void hf_nlm_proc_share(void *service, struct hf_rpc_call *call)
{
	struct hf_nlm_op op;
	enum hf_nlm_stat stat;

	if (!decode(&op, service, call))
		return;
	stat = hf_nlm_check_file(&op, (op.args.share_access & 2) != 0, hf_nlm_proc_share);
	if (stat == HF_NLM_LATER)
		return;
	if (stat == HF_NLM_GRANTED_STAT)
		stat = share(&op);
	if (stat == HF_NLM_GRANTED_STAT)
		hf_nlm_reply_kept(&op, stat, undo_share);
	else if (stat != HF_NLM_LATER)
		hf_nlm_reply(op.nlm, call, op.args.cookie, stat);
	hf_nlm_op_deinit(&op);
}

static bool has_it(const struct hf_nlm_op *op)
{
	return op->client && hf_lock_count_shares(op->nlm->locks, &op->target, (uint8_t)op->args.share_access,
						  (uint8_t)op->args.share_mode) > 0;
}

/* May the port that the call came from change what the client has? Where an export is `secure` by now, a
 * client that is not privileged reserved before it was. */
static bool is_allowed(const struct hf_nlm_op *op)
{
	if (!hf_nlm_may_change(op)) {
		hf_nlm_say_port(op);
		return false;
	}
	return !hf_nlm_files_bar_port(op) || has_it(op);
}

void hf_nlm_proc_unshare(void *service, struct hf_rpc_call *call)
{
	struct hf_nlm_op op;
	enum hf_nlm_stat stat = HF_NLM_GRANTED_STAT;

	if (!decode(&op, service, call))
		return;
	hf_nlm_find_file(&op);
	if (hf_nlm_turn_follow(&op, hf_nlm_proc_unshare))
		return;
	find_client(&op);
	if (!is_allowed(&op)) {
		stat = HF_NLM_FAILED;
	} else if (op.client) {
		struct hf_lock_share_view view = view_of(&op);

		if (!hf_recovery_unshare(op.nlm->options.recovery, &view))
			give_back(&op);
	}
	hf_nlm_reply_released(&op, stat);
	hf_nlm_op_deinit(&op);
}
