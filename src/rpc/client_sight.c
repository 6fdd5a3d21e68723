/* What other folders see of the client: which calls are its own, counters, and texts for the log. */
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

void hf_rpc_client_counts(const struct hf_rpc_client *client, struct hf_rpc_client_counts *countsp)
{
	*countsp = client->counts;
	countsp->connections = client->n_connections;
	countsp->ports = client->ports.n;
}

const char *hf_rpc_outcome_text(enum hf_rpc_outcome outcome)
{
	static const char *const texts[] = {
		[HF_RPC_OUTCOME_OK] = "answered",
		[HF_RPC_OUTCOME_TIMEOUT] = "no answer in time",
		[HF_RPC_OUTCOME_NOT_REGISTERED] = "program not registered with rpcbind",
		[HF_RPC_OUTCOME_REFUSED] = "connection refused",
		[HF_RPC_OUTCOME_UNREACHABLE] = "unreachable",
		[HF_RPC_OUTCOME_NO_ROOM] = "the server has no socket or memory for the call",
		[HF_RPC_OUTCOME_BROKEN] = "connection broken",
		[HF_RPC_OUTCOME_DENIED] = "credentials or RPC version denied",
		[HF_RPC_OUTCOME_NO_PROGRAM] = "program or version not available",
		[HF_RPC_OUTCOME_NO_PROCEDURE] = "procedure not available",
		[HF_RPC_OUTCOME_NO_SENSE] = "arguments not understood or system error",
		[HF_RPC_OUTCOME_GARBAGE] = "reply not understood",
	};

	return texts[outcome];
}

const char *hf_rpc_stage_text(enum hf_rpc_stage stage)
{
	static const char *const texts[] = {
		[HF_RPC_STAGE_LOOKUP] = "lookup",
		[HF_RPC_STAGE_CONNECT] = "connect",
		[HF_RPC_STAGE_SEND] = "send",
		[HF_RPC_STAGE_REPLY] = "reply",
	};

	return texts[stage];
}
