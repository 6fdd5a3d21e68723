/* What an operator sees of the client: numbers, and words for the log. */
#include "rpc/client_internal.h"

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
