#include "proto/portmap/wire.h"

#include <netinet/in.h>
#include <string.h>

#include "base/macros.h"

struct hf_pmap hf_pmap_get(struct hf_xdr_in *in)
{
	struct hf_pmap pmap;

	pmap.program = hf_xdr_get_u32(in);
	pmap.version = hf_xdr_get_u32(in);
	pmap.protocol = hf_xdr_get_u32(in);
	pmap.port = hf_xdr_get_u32(in);
	return pmap;
}

void hf_pmap_put(struct hf_xdr_out *out, const struct hf_pmap *pmap)
{
	hf_xdr_put_u32(out, pmap->program);
	hf_xdr_put_u32(out, pmap->version);
	hf_xdr_put_u32(out, pmap->protocol);
	hf_xdr_put_u32(out, pmap->port);
}

struct hf_rpcb hf_rpcb_get(struct hf_xdr_in *in)
{
	struct hf_rpcb rpcb;

	rpcb.program = hf_xdr_get_u32(in);
	rpcb.version = hf_xdr_get_u32(in);
	rpcb.netid = hf_xdr_get_string(in, HF_RPCB_MAX_NETID);
	rpcb.uaddr = hf_xdr_get_string(in, HF_RPCB_MAX_UADDR);
	rpcb.owner = hf_xdr_get_string(in, HF_RPCB_MAX_OWNER);
	return rpcb;
}

struct hf_rpcb hf_rpcb_get_any(struct hf_xdr_in *in)
{
	struct hf_rpcb rpcb;

	rpcb.program = hf_xdr_get_u32(in);
	rpcb.version = hf_xdr_get_u32(in);
	rpcb.netid = hf_xdr_get_opaque(in, UINT32_MAX);
	rpcb.uaddr = hf_xdr_get_opaque(in, UINT32_MAX);
	rpcb.owner = hf_xdr_get_opaque(in, UINT32_MAX);
	return rpcb;
}

void hf_rpcb_put(struct hf_xdr_out *out, const struct hf_rpcb *rpcb)
{
	hf_xdr_put_u32(out, rpcb->program);
	hf_xdr_put_u32(out, rpcb->version);
	hf_xdr_put_opaque(out, rpcb->netid);
	hf_xdr_put_opaque(out, rpcb->uaddr);
	hf_xdr_put_opaque(out, rpcb->owner);
}

struct hf_bytes hf_uaddr_get(struct hf_xdr_in *in)
{
	return hf_xdr_get_string(in, HF_RPCB_MAX_UADDR);
}

static size_t sockaddr_size(const struct sockaddr_storage *ss)
{
	switch (ss->ss_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	default:
		return SIZE_MAX;
	}
}

bool hf_netbuf_get(struct hf_addr *addr, struct hf_xdr_in *in)
{
	struct sockaddr_storage ss = { 0 };
	struct hf_bytes bytes;

	hf_xdr_get_u32(in); /* maxlen of the caller's buffer; not needed */
	bytes = hf_xdr_get_opaque(in, HF_RPCB_MAX_TADDR);
	memset(addr, 0, sizeof(*addr));
	if (!bytes.len)
		return false;
	memcpy(&ss, bytes.data, HF_MIN(bytes.len, sizeof(ss)));
	return bytes.len >= sockaddr_size(&ss) && hf_addr_from_sockaddr(addr, (struct sockaddr *)&ss);
}

void hf_netbuf_put(struct hf_xdr_out *out, const struct hf_addr *addr)
{
	struct sockaddr_storage ss;
	socklen_t len = addr->family ? hf_addr_to_sockaddr(addr, &ss) : 0;

	hf_xdr_put_u32(out, len);
	hf_xdr_put_opaque(out, hf_bytes_of(&ss, len));
}

void hf_entry_put(struct hf_xdr_out *out, const char *uaddr, enum hf_netid netid)
{
	const struct hf_netid_info *info = hf_netid_info(netid);

	hf_xdr_put_string(out, uaddr);
	hf_xdr_put_string(out, info->name);
	hf_xdr_put_u32(out, info->semantics);
	hf_xdr_put_string(out, info->family_name);
	hf_xdr_put_string(out, info->proto_name);
}
