/* Port mapper, version 2: ports of IPv4. */
#include <netinet/in.h>

#include "proto/portmap/rpcbind_procs.h"

void hf_pmap_proc_null(void *service, struct hf_rpc_call *call)
{
	hf_rpcbind_count(service, call);
	hf_rpc_reply_void(call);
}

void hf_pmap_proc_set(void *service, struct hf_rpc_call *call)
{
	struct hf_pmap pmap = hf_pmap_get(hf_rpc_call_args(call));
	struct hf_addr addr = { .family = AF_INET, .port = (uint16_t)pmap.port };
	enum hf_netid netid;
	bool ok;

	if (!hf_rpcbind_begin(service, call))
		return;
	netid = pmap.protocol <= UINT8_MAX ? hf_netid_of(AF_INET, (int)pmap.protocol) : HF_N_NETIDS;
	ok = hf_rpcbind_may_change(service, call) && pmap.port <= UINT16_MAX &&
	     hf_rpcbind_set(service, call, pmap.program, pmap.version, netid, &addr);
	hf_rpcbind_reply_bool(call, ok);
}

/* Removes the mappings of both protocols, whichever it names. */
void hf_pmap_proc_unset(void *service, struct hf_rpc_call *call)
{
	struct hf_pmap pmap = hf_pmap_get(hf_rpc_call_args(call));
	bool ok;

	if (!hf_rpcbind_begin(service, call))
		return;
	ok = hf_rpcbind_may_change(service, call) &&
	     hf_rpcbind_unset(service, call, pmap.program, pmap.version, HF_NETIDS_IPV4);
	hf_rpcbind_reply_bool(call, ok);
}

void hf_pmap_proc_getport(void *service, struct hf_rpc_call *call)
{
	struct hf_rpcbind *rpcbind = service;
	struct hf_pmap pmap = hf_pmap_get(hf_rpc_call_args(call));
	const struct hf_mapping *found = NULL;
	enum hf_netid netid;

	if (!hf_rpcbind_begin(rpcbind, call))
		return;
	netid = pmap.protocol <= UINT8_MAX ? hf_netid_of(AF_INET, (int)pmap.protocol) : HF_N_NETIDS;
	if (netid != HF_N_NETIDS)
		found = hf_mappings_find_any_version(&rpcbind->mappings, pmap.program, pmap.version, netid);
	hf_xdr_put_u32(hf_rpc_reply_begin(call, 4), found ? found->addr.port : 0);
	hf_rpc_reply_end(call);
}

void hf_pmap_proc_dump(void *service, struct hf_rpc_call *call)
{
	struct hf_rpcbind *rpcbind = service;
	const struct hf_mappings *mappings = &rpcbind->mappings;
	struct hf_xdr_out *out;

	hf_rpcbind_count(rpcbind, call);
	out = hf_rpc_reply_begin(call, hf_rpcbind_list_room(call, mappings->n, HF_PMAP_ELEMENT));
	for (size_t i = 0; i < mappings->n && hf_xdr_out_left(out) >= HF_PMAP_ELEMENT + 4; i++) {
		const struct hf_mapping *mapping = &mappings->all[i];

		if (!(HF_NETIDS_IPV4 & HF_NETID_BIT(mapping->netid)))
			continue;
		hf_xdr_put_bool(out, true);
		hf_pmap_put(out,
			    &(struct hf_pmap){ mapping->program, mapping->version,
					       hf_netid_info(mapping->netid)->protocol, mapping->addr.port });
	}
	hf_xdr_put_bool(out, false);
	hf_rpc_reply_end(call);
}
