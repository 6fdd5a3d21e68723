/* rpcbind, versions 3 and 4: universal addresses of any transport. */
#include <netinet/in.h>
#include <string.h>

#include "loop/loop.h"
#include "proto/portmap/rpcbind_procs.h"

/* The transport of the call, which is also the one that it asks about. */
static enum hf_netid netid_of_call(const struct hf_rpc_call *call)
{
	bool is_udp = hf_rpc_call_transport(call) == HF_RPC_UDP;

	return hf_netid_of(hf_rpc_call_peer(call)->family, is_udp ? IPPROTO_UDP : IPPROTO_TCP);
}

/* The address at which the caller reaches the program. A program on all addresses is also on the one that the
 * caller has called. */
static const char *merge(char *out, size_t size, const struct hf_mapping *mapping,
			 const struct hf_addr *local)
{
	struct hf_addr addr = mapping->addr;

	if (hf_addr_is_any(&addr) && local->family == addr.family) {
		addr = *local;
		addr.port = mapping->addr.port;
	}
	return hf_uaddr_format(&addr, out, size);
}

static void reply_string(struct hf_rpc_call *call, const char *text)
{
	struct hf_xdr_out *out = hf_rpc_reply_begin(call, 4 + HF_UADDR_TEXT);

	hf_xdr_put_string(out, text);
	hf_rpc_reply_end(call);
}

void hf_rpcb_proc_set(void *service, struct hf_rpc_call *call)
{
	struct hf_rpcb rpcb = hf_rpcb_get(hf_rpc_call_args(call));
	struct hf_addr addr;
	enum hf_netid netid;
	bool ok;

	if (!hf_rpcbind_begin(service, call))
		return;
	netid = hf_netid_parse(rpcb.netid);
	ok = hf_rpcbind_may_change(service, call) && netid != HF_N_NETIDS &&
	     hf_netid_parse_uaddr(&addr, netid, rpcb.uaddr) &&
	     hf_rpcbind_set(service, call, rpcb.program, rpcb.version, netid, &addr);
	hf_rpcbind_reply_bool(call, ok);
}

/* Without a network identifier all mappings are removed. */
void hf_rpcb_proc_unset(void *service, struct hf_rpc_call *call)
{
	struct hf_rpcb rpcb = hf_rpcb_get(hf_rpc_call_args(call));
	enum hf_netid netid;
	unsigned int netids;
	bool ok;

	if (!hf_rpcbind_begin(service, call))
		return;
	netid = hf_netid_parse(rpcb.netid);
	netids = !rpcb.netid.len ? HF_NETIDS_ALL : netid == HF_N_NETIDS ? 0 : HF_NETID_BIT(netid);
	ok = hf_rpcbind_may_change(service, call) &&
	     hf_rpcbind_unset(service, call, rpcb.program, rpcb.version, netids);
	hf_rpcbind_reply_bool(call, ok);
}

typedef const struct hf_mapping *(*find_fn)(const struct hf_mappings *mappings, uint32_t program,
					    uint32_t version, enum hf_netid netid);

static void get_address(struct hf_rpcbind *rpcbind, struct hf_rpc_call *call, find_fn find)
{
	struct hf_rpcb rpcb = hf_rpcb_get(hf_rpc_call_args(call));
	const struct hf_mapping *found;
	char uaddr[HF_UADDR_TEXT];

	if (!hf_rpcbind_begin(rpcbind, call))
		return;
	found = find(&rpcbind->mappings, rpcb.program, rpcb.version, netid_of_call(call));
	reply_string(call, found ? merge(uaddr, sizeof(uaddr), found, hf_rpc_call_local(call)) : "");
}

void hf_rpcb_proc_getaddr(void *service, struct hf_rpc_call *call)
{
	get_address(service, call, hf_mappings_find_any_version);
}

void hf_rpcb_proc_getversaddr(void *service, struct hf_rpc_call *call)
{
	get_address(service, call, hf_mappings_find);
}

void hf_rpcb_proc_dump(void *service, struct hf_rpc_call *call)
{
	struct hf_rpcbind *rpcbind = service;
	const struct hf_mappings *mappings = &rpcbind->mappings;
	char uaddr[HF_UADDR_TEXT];
	struct hf_xdr_out *out;

	hf_rpcbind_count(rpcbind, call);
	out = hf_rpc_reply_begin(call, hf_rpcbind_list_room(call, mappings->n, HF_RPCB_ELEMENT));
	for (size_t i = 0; i < mappings->n && hf_xdr_out_left(out) >= HF_RPCB_ELEMENT + 4; i++) {
		const struct hf_mapping *mapping = &mappings->all[i];

		hf_xdr_put_bool(out, true);
		hf_uaddr_format(&mapping->addr, uaddr, sizeof(uaddr));
		hf_rpcb_put(out, &(struct hf_rpcb){
					 .program = mapping->program,
					 .version = mapping->version,
					 .netid = hf_bytes_of_str(hf_netid_name(mapping->netid)),
					 .uaddr = hf_bytes_of_str(uaddr),
					 .owner = hf_bytes_of_str(hf_mapping_owner_name(mapping->owner)),
				 });
	}
	hf_xdr_put_bool(out, false);
	hf_rpc_reply_end(call);
}

void hf_rpcb_proc_gettime(void *service, struct hf_rpc_call *call)
{
	uint64_t seconds = hf_loop_wall(hf_rpc_call_loop(call)) / HF_NS_PER_S;

	hf_rpcbind_count(service, call);
	hf_xdr_put_u32(hf_rpc_reply_begin(call, 4), (uint32_t)seconds);
	hf_rpc_reply_end(call);
}

/* Text that is no address of the caller's transport yields an empty one. */
void hf_rpcb_proc_uaddr2taddr(void *service, struct hf_rpc_call *call)
{
	struct hf_bytes uaddr = hf_uaddr_get(hf_rpc_call_args(call));
	struct hf_addr addr;

	if (!hf_rpcbind_begin(service, call))
		return;
	if (!hf_netid_parse_uaddr(&addr, netid_of_call(call), uaddr))
		memset(&addr, 0, sizeof(addr));
	hf_netbuf_put(hf_rpc_reply_begin(call, 8 + HF_RPCB_MAX_TADDR), &addr);
	hf_rpc_reply_end(call);
}

void hf_rpcb_proc_taddr2uaddr(void *service, struct hf_rpc_call *call)
{
	struct hf_addr addr;
	char uaddr[HF_UADDR_TEXT];
	bool ok = hf_netbuf_get(&addr, hf_rpc_call_args(call));

	if (!hf_rpcbind_begin(service, call))
		return;
	reply_string(call, ok ? hf_uaddr_format(&addr, uaddr, sizeof(uaddr)) : "");
}

/* All transports of the caller's address family that serve this version. */
void hf_rpcb_proc_getaddrlist(void *service, struct hf_rpc_call *call)
{
	struct hf_rpcbind *rpcbind = service;
	struct hf_rpcb rpcb = hf_rpcb_get(hf_rpc_call_args(call));
	int family = hf_rpc_call_peer(call)->family;
	char uaddr[HF_UADDR_TEXT];
	struct hf_xdr_out *out;

	if (!hf_rpcbind_begin(rpcbind, call))
		return;
	out = hf_rpc_reply_begin(call, HF_N_NETIDS * HF_ENTRY_ELEMENT + 4);
	for (int netid = 0; netid < HF_N_NETIDS; netid++) {
		const struct hf_mapping *found = hf_mappings_find(&rpcbind->mappings, rpcb.program,
								  rpcb.version, (enum hf_netid)netid);

		if (!found || hf_netid_info(found->netid)->family != family)
			continue;
		hf_xdr_put_bool(out, true);
		hf_entry_put(out, merge(uaddr, sizeof(uaddr), found, hf_rpc_call_local(call)), found->netid);
	}
	hf_xdr_put_bool(out, false);
	hf_rpc_reply_end(call);
}

/* How often each procedure was called. The addresses that were asked for are not recorded: a peer could make
 * that list as long as it likes. */
void hf_rpcb_proc_getstat(void *service, struct hf_rpc_call *call)
{
	struct hf_rpcbind *rpcbind = service;
	struct hf_xdr_out *out;

	hf_rpcbind_count(rpcbind, call);
	out = hf_rpc_reply_begin(call, 3 * (HF_N_RPCB4PROCS + 4) * 4);
	for (size_t v = 0; v < 3; v++) {
		const struct hf_rpcbind_counts *counts = &rpcbind->counts[v];

		for (size_t i = 0; i < HF_N_RPCB4PROCS; i++)
			hf_xdr_put_u32(out, counts->calls[i]);
		hf_xdr_put_u32(out, counts->n_set);
		hf_xdr_put_u32(out, counts->n_unset);
		hf_xdr_put_bool(out, false); /* addresses that were asked for: none */
		hf_xdr_put_bool(out, false); /* forwarded calls: none */
	}
	hf_rpc_reply_end(call);
}
