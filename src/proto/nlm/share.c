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

static enum hf_nlm_stat share(struct hf_nlm_request *request)
{
	struct hf_nlm *nlm = request->nlm;
	const struct hf_nlm_args *args = &request->args;
	struct hf_recovery *recovery = nlm->options.recovery;
	enum hf_nlm_stat stat;

	if (!hf_recovery_can_promise(recovery))
		return HF_NLM_DENIED_NOLOCKS;
	stat = hf_nlm_get_client(request);
	if (stat != HF_NLM_GRANTED_STAT)
		return stat;
	stat = hf_nlm_stat_from_lock(hf_lock_share(nlm->locks, &request->target, (uint8_t)args->share_access,
						   (uint8_t)args->share_mode,
						   (uint32_t)request->client->sm_state, args->reclaim));
	if (stat == HF_NLM_GRANTED_STAT && hf_nlm_register(request) != HF_NLM_GRANTED_STAT) {
		hf_lock_unshare(nlm->locks, &request->target, (uint8_t)args->share_access,
				(uint8_t)args->share_mode);
		stat = HF_NLM_DENIED_NOLOCKS;
	}
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
		hf_nlm_reply_kept(&request, stat, NULL);
	else
		hf_nlm_reply(request.nlm, call, request.args.cookie, stat);
	hf_nlm_request_deinit(&request);
}

void hf_nlm_proc_unshare(void *service, struct hf_rpc_call *call)
{
	struct hf_nlm_request request;
	struct hf_client *client;

	if (!decode(&request, service, call))
		return;
	hf_nlm_find_file(&request);
	client = hf_clients_find(request.nlm->clients, "nlm", hf_rpc_call_peer(call), request.args.caller);
	if (client) {
		request.client = client;
		request.target.client = &client->holds;
		hf_lock_unshare(request.nlm->locks, &request.target, (uint8_t)request.args.share_access,
				(uint8_t)request.args.share_mode);
	}
	hf_nlm_reply_released(&request, HF_NLM_GRANTED_STAT);
	hf_nlm_request_deinit(&request);
}
