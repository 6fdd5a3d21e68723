/*
 * Who made a call? Some calls need no check with the host that they are about: those of the
 * superuser of this host, and those that only the client's own system can have made. With nsm.secure
 * some ports may make none. And was a refusal of the same caller logged lately?
 */
#include "base/log.h"
#include "proto/nsm/internal.h"

#define STRANGER_NS (600 * HF_NS_PER_S) /* at most 64 lines in 10 minutes */

bool hf_nsm_is_superuser(struct hf_nsm *nsm, struct hf_rpc_call *call)
{
	return hf_rpc_client_is_superuser(nsm->options.client, call);
}

bool hf_nsm_is_from_lock_manager(const struct hf_rpc_call *call)
{
	return hf_rpc_call_transport(call) == HF_RPC_TCP && hf_addr_has_reserved_port(hf_rpc_call_peer(call));
}

bool hf_nsm_is_trusted(struct hf_nsm *nsm, struct hf_rpc_call *call, const struct hf_client *client)
{
	const struct hf_addr *peer = hf_rpc_call_peer(call);

	if (hf_nsm_is_superuser(nsm, call))
		return true;
	return hf_rpc_call_transport(call) == HF_RPC_TCP && hf_client_may_be_changed_from(client, peer);
}

bool hf_nsm_is_foreign_datagram(const struct hf_rpc_call *call)
{
	return hf_rpc_call_transport(call) == HF_RPC_UDP && !hf_addr_is_loopback(hf_rpc_call_peer(call));
}

/* A denial does not end the notice: sm-notify repeats it, and other senders show an error. An answer would
 * hide from the client that its locks stay. */
bool hf_nsm_refuses_port(struct hf_nsm *nsm, struct hf_rpc_call *call)
{
	const struct hf_addr *peer = hf_rpc_call_peer(call);
	char text[HF_ADDR_TEXT];

	if (!nsm->options.secure || hf_addr_has_reserved_port(peer))
		return false;
	if (hf_nsm_is_stranger_new(nsm, peer))
		hf_log_warn("a notice of a restart is refused: nsm.secure demands a port below 1024",
			    "peer=%s", hf_addr_format_with_port(peer, text, sizeof(text)));
	hf_rpc_reply_auth_error(call, HF_RPC_AUTH_TOOWEAK);
	return true;
}

/* A stranger is a source whose call was refused or ignored: one log line for each in a while. Only an expired
 * place is used again, so a forger of many addresses cannot fill the log. */
bool hf_nsm_is_stranger_new(struct hf_nsm *nsm, const struct hf_addr *peer)
{
	uint64_t now = hf_loop_now(nsm->options.loop);
	struct hf_nsm_stranger *vacant = NULL;

	for (size_t i = 0; i < HF_NSM_N_STRANGERS; i++) {
		struct hf_nsm_stranger *known = &nsm->strangers[i];

		if (known->until <= now)
			vacant = known;
		else if (hf_addr_same_host(&known->host, peer))
			return false;
	}
	if (vacant)
		*vacant = (struct hf_nsm_stranger){ *peer, now + STRANGER_NS };
	return vacant != NULL;
}
