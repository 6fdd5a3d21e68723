/* Did the server itself, or the superuser of its host, make this call? */
#include "rpc/client_internal.h"

#define RESERVED_PORTS 1024

bool hf_rpc_client_is_own(struct hf_rpc_client *client, const struct hf_rpc_call *call)
{
	const struct hf_addr *peer = hf_rpc_call_peer(call);

	return hf_rpc_call_transport(call) == HF_RPC_UDP ? hf_rpc_client_udp_sends_from(client, peer)
							 : hf_rpc_client_tcp_sends_from(client, peer);
}

bool hf_rpc_client_is_superuser(struct hf_rpc_client *client, const struct hf_rpc_call *call)
{
	const struct hf_addr *peer = hf_rpc_call_peer(call);

	return hf_addr_is_loopback(peer) && peer->port < RESERVED_PORTS &&
	       !hf_rpc_client_is_own(client, call);
}
