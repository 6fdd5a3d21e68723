/*
 * Who made a call? Some calls need no check with the host that they are about: those of the
 * superuser of this host, and those that only the client's own system can have made.
 */
#include "proto/nsm/internal.h"

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
	return hf_rpc_call_transport(call) == HF_RPC_TCP &&
	       (!client->is_privileged || hf_addr_has_reserved_port(peer));
}

bool hf_nsm_is_foreign_datagram(const struct hf_rpc_call *call)
{
	return hf_rpc_call_transport(call) == HF_RPC_UDP && !hf_addr_is_loopback(hf_rpc_call_peer(call));
}
