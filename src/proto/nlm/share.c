/* SHARE and UNSHARE: the open modes of DOS and Windows clients. They do not touch byte-range locks. */
#include "proto/nlm/internal.h"

static bool decode(struct hf_nlm_request *request, void *service, struct hf_rpc_call *call)
{
	struct hf_xdr_in *in = hf_rpc_call_args(call);

	hf_nlm_request_init(request, service, call);
	hf_nlm_get_share(&request->args, in);
	if (!hf_xdr_in_is_ok(in)) {
		hf_rpc_reply_garbage(call);
		return false;
	}
	return true;
}

static void give_back(struct hf_nlm_request *request)
{
	hf_lock_unshare(request->nlm->locks, &request->target, (uint8_t)request->args.share_access,
			(uint8_t)request->args.share_mode);
}

/* The client whose reservations a call is about, if he has ever had any. */
static bool find_client(struct hf_nlm_request *request)
{
	request->client = hf_clients_find(request->nlm->clients, "nlm", hf_rpc_call_peer(request->call),
					  request->args.caller);
	if (!request->client)
		return false;
	request->target.client = &request->client->holds;
	return true;
}

static struct hf_lock_share_view view_of(const struct hf_nlm_request *request)
{
	return (struct hf_lock_share_view){
		.share = request->target.share,
		.handle = request->target.handle,
		.client = request->target.client,
		.oh = request->target.oh,
		.access = (uint8_t)request->args.share_access,
		.deny = (uint8_t)request->args.share_mode,
	};
}

/* He is told that he has it not, and would never give it back. They are counted, so one more and one less
 * leave what he had before. A reclaim he had: it stays, and is not added again. */
static void undo(struct hf_nlm_request *request)
{
	struct hf_lock_share_view view = view_of(request);

	if (request->args.reclaim)
		hf_recovery_unsure_share(request->nlm->options.recovery, &view);
	else
		give_back(request);
}

static void undo_share(struct hf_nlm *nlm, struct hf_rpc_call *call, bool kept)
{
	struct hf_nlm_request request;

	if (kept)
		return;
	hf_nlm_request_init(&request, nlm, call);
	hf_nlm_get_share(&request.args, hf_rpc_call_args(call));
	hf_nlm_find_file(&request);
	if (find_client(&request))
		undo(&request);
	hf_nlm_request_deinit(&request);
}

static enum hf_nlm_stat take(struct hf_nlm_request *request)
{
	const struct hf_nlm_args *args = &request->args;
	struct hf_lock_share_view view = view_of(request);
	int answer;

	switch (args->reclaim ? hf_recovery_reclaim_share(request->nlm->options.recovery, &view)
			      : HF_RECLAIM_NORMAL) {
	case HF_RECLAIM_REFUSED:
		return HF_NLM_DENIED_GRACE_PERIOD;
	case HF_RECLAIM_BACKED:
		return HF_NLM_GRANTED_STAT;
	default:
		answer = hf_lock_share(request->nlm->locks, &request->target, view.access, view.deny,
				       (uint32_t)hf_client_state_for(request->client, 0,
								     hf_rpc_call_age(request->call)),
				       args->reclaim);
		if (answer == HF_LOCK_E_LIMIT)
			hf_nlm_say_full(request, true);
		return hf_nlm_stat_from_lock(answer);
	}
}

static enum hf_nlm_stat share(struct hf_nlm_request *request)
{
	enum hf_nlm_stat stat;
	bool is_first;

	if (!hf_recovery_can_promise(request->nlm->options.recovery))
		return HF_NLM_DENIED_NOLOCKS;
	stat = hf_nlm_get_client(request, NULL);
	if (stat != HF_NLM_GRANTED_STAT)
		return stat;
	if (hf_nlm_await_host(request, hf_nlm_proc_share))
		return HF_NLM_LATER;
	is_first = hf_lock_client_is_idle(&request->client->holds);
	stat = take(request);
	if (stat == HF_NLM_GRANTED_STAT && hf_nlm_register(request) != HF_NLM_GRANTED_STAT) {
		undo(request);
		stat = HF_NLM_DENIED_NOLOCKS;
	}
	if (stat == HF_NLM_GRANTED_STAT)
		hf_nlm_note_begin(request, is_first);
	return stat;
}

void hf_nlm_proc_share(void *service, struct hf_rpc_call *call)
{
	struct hf_nlm_request request;
	enum hf_nlm_stat stat;

	if (!decode(&request, service, call))
		return;
	stat = hf_nlm_check_file(&request, (request.args.share_access & 2) != 0, hf_nlm_proc_share);
	if (stat == HF_NLM_LATER)
		return;
	if (stat == HF_NLM_GRANTED_STAT)
		stat = share(&request);
	if (stat == HF_NLM_GRANTED_STAT)
		hf_nlm_reply_kept(&request, stat, undo_share);
	else if (stat != HF_NLM_LATER)
		hf_nlm_reply(request.nlm, call, request.args.cookie, stat);
	hf_nlm_request_deinit(&request);
}

static bool has_it(const struct hf_nlm_request *request)
{
	return request->client && hf_lock_count_shares(request->nlm->locks, &request->target,
						       (uint8_t)request->args.share_access,
						       (uint8_t)request->args.share_mode) > 0;
}

/* May the port that the call came from change what the client has? Where an export is `secure` by now, a
 * client that is not privileged reserved before it was. */
static bool is_allowed(const struct hf_nlm_request *request)
{
	if (!hf_nlm_may_change(request)) {
		hf_nlm_say_port(request);
		return false;
	}
	return !hf_nlm_files_bar_port(request) || has_it(request);
}

void hf_nlm_proc_unshare(void *service, struct hf_rpc_call *call)
{
	struct hf_nlm_request request;
	enum hf_nlm_stat stat = HF_NLM_GRANTED_STAT;

	if (!decode(&request, service, call))
		return;
	hf_nlm_find_file(&request);
	if (hf_nlm_turn_follow(&request, hf_nlm_proc_unshare))
		return;
	find_client(&request);
	if (!is_allowed(&request)) {
		stat = HF_NLM_FAILED;
	} else if (request.client) {
		struct hf_lock_share_view view = view_of(&request);

		if (!hf_recovery_unshare(request.nlm->options.recovery, &view))
			give_back(&request);
	}
	hf_nlm_reply_released(&request, stat);
	hf_nlm_request_deinit(&request);
}
