/*
 * The questions to rpcbind (program 100000) and its answers, RFC 1833:
 *
 *	version 2, GETPORT:     prog vers prot port    -> port, 0: not registered
 *	version 3, 4, GETADDR:  prog vers netid addr owner (strings) -> universal address, "": not registered
 */
#include "rpc/lookup.h"

#include <assert.h>
#include <netinet/in.h>

#include "rpc/message.h"
#include "rpc/uaddr.h"

enum {
	RPCBIND_PROGRAM = 100000,
	GETPORT = 3, /* of version 2; GETADDR of 3 and 4 has the same number */
};

static const char *netid_of(const struct hf_lookup_key *key)
{
	if (key->transport == HF_RPC_UDP)
		return key->remote.family == AF_INET ? "udp" : "udp6";
	return key->remote.family == AF_INET ? "tcp" : "tcp6";
}

static void put_mapping(struct hf_xdr_out *out, const struct hf_lookup_key *key)
{
	hf_xdr_put_u32(out, key->transport == HF_RPC_UDP ? IPPROTO_UDP : IPPROTO_TCP);
	hf_xdr_put_u32(out, 0);
}

static void put_rpcb(struct hf_xdr_out *out, const struct hf_lookup_key *key, uint16_t rpcbind_port)
{
	struct hf_addr asked = key->remote;
	char text[HF_UADDR_TEXT];

	asked.port = rpcbind_port; /* the address that the question goes to: rpcbind's answer depends on it */
	hf_xdr_put_string(out, netid_of(key));
	hf_xdr_put_string(out, hf_uaddr_format(&asked, text, sizeof(text)));
	hf_xdr_put_string(out, "");
}

uint32_t hf_lookup_put_question(uint8_t message[static HF_LOOKUP_MAX_MESSAGE], uint32_t version,
				const struct hf_lookup_key *key, uint16_t rpcbind_port)
{
	struct hf_rpc_outgoing call = { .program = RPCBIND_PROGRAM,
					.version = version,
					.procedure = GETPORT };
	uint8_t *begin = message + HF_EXCHANGE_MARK;
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, begin, HF_LOOKUP_MAX_MESSAGE - HF_EXCHANGE_MARK);
	hf_rpc_put_call(&out, &call);
	hf_xdr_put_u32(&out, key->program);
	hf_xdr_put_u32(&out, key->version);
	if (version == HF_LOOKUP_PMAP)
		put_mapping(&out, key);
	else
		put_rpcb(&out, key, rpcbind_port);
	assert(hf_xdr_out_is_ok(&out));
	return (uint32_t)(out.p - begin);
}

static bool get_port(struct hf_xdr_in *in, uint16_t *portp)
{
	uint32_t port = hf_xdr_get_u32(in);

	*portp = (uint16_t)port;
	return hf_xdr_in_is_ok(in) && port <= UINT16_MAX;
}

static bool get_uaddr(struct hf_xdr_in *in, uint16_t *portp)
{
	struct hf_bytes text = hf_xdr_get_string(in, HF_UADDR_TEXT - 1);
	struct hf_addr addr;

	*portp = 0;
	if (!hf_xdr_in_is_ok(in))
		return false;
	if (text.len == 0)
		return true;
	if (!hf_uaddr_parse(&addr, text))
		return false;
	*portp = addr.port;
	return true;
}

bool hf_lookup_get_answer(struct hf_xdr_in *in, uint32_t version, uint16_t *portp)
{
	return version == HF_LOOKUP_PMAP ? get_port(in, portp) : get_uaddr(in, portp);
}
