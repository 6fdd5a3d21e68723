/* Who made a call, and how does a line of the audit log say so? */
#include <string.h>

#include "base/audit.h"
#include "rpc/server_internal.h"

const struct hf_rpc_cred *hf_rpc_call_cred(const struct hf_rpc_call *call)
{
	return &call->header.cred;
}

const struct hf_addr *hf_rpc_call_peer(const struct hf_rpc_call *call)
{
	return call->connection ? &call->connection->peer : &call->peer;
}

struct hf_addr hf_rpc_call_payer(const struct hf_rpc_call *call)
{
	struct hf_addr payer = *hf_rpc_call_peer(call);

	if (!call->connection)
		payer.port = 0;
	return payer;
}

const struct hf_addr *hf_rpc_call_local(const struct hf_rpc_call *call)
{
	return call->connection ? &call->connection->local : &call->local;
}

enum hf_rpc_transport hf_rpc_call_transport(const struct hf_rpc_call *call)
{
	return call->connection ? HF_RPC_TCP : HF_RPC_UDP;
}

void hf_rpc_call_audit(struct hf_audit_line *line, const char *op, const struct hf_rpc_call *call)
{
	const struct hf_rpc_cred *cred = hf_rpc_call_cred(call);
	char peer[HF_ADDR_TEXT];

	hf_audit_begin(line, op);
	hf_addr_format(hf_rpc_call_peer(call), peer, sizeof(peer));
	hf_audit_put_text(line, "client", peer, strlen(peer));
	if (cred->flavor != HF_RPC_AUTH_SYS)
		return;
	hf_audit_put_number(line, "uid", cred->uid);
	hf_audit_put_number(line, "gid", cred->gid);
}
