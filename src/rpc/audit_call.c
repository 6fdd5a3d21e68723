#include "rpc/audit_call.h"

#include <string.h>

#include "base/addr.h"
#include "rpc/message.h"

void hf_audit_call_begin(struct hf_audit_line *line, const char *op, const struct hf_rpc_call *call)
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
