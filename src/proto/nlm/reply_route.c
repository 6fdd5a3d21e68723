#include "proto/nlm/reply_route.h"

#include <stdlib.h>
#include <string.h>

#include "base/le.h"
#include "proto/nlm/wire.h"
#include "rpc/call.h"

void hf_nlm_locals_deinit(struct hf_nlm_locals *locals)
{
	free(locals->all);
	*locals = (struct hf_nlm_locals){ 0 };
}

static uint16_t find_or_add(struct hf_nlm_locals *locals, const struct hf_addr *local)
{
	struct hf_addr *all;

	for (size_t i = 0; i < locals->n; i++)
		if (hf_addr_same_host(&locals->all[i], local))
			return (uint16_t)(i + 1);
	if (locals->n == HF_NLM_MAX_LOCALS)
		return 0;
	all = realloc(locals->all, (locals->n + 1) * sizeof(*all));
	if (!all)
		return 0;
	locals->all = all;
	all[locals->n] = *local;
	all[locals->n].port = 0;
	return (uint16_t)++locals->n;
}

struct hf_nlm_route hf_nlm_route_of(struct hf_nlm_locals *locals, const struct hf_rpc_call *call)
{
	const struct hf_rpc_header *header = hf_rpc_call_header(call);

	return (struct hf_nlm_route){
		.version = (uint8_t)header->version,
		.is_tcp = hf_rpc_call_transport(call) == HF_RPC_TCP,
		.is_msg = header->procedure == HF_NLM_LOCK_MSG,
		.local = find_or_add(locals, hf_rpc_call_local(call)),
	};
}

void *hf_nlm_route_pack(struct hf_nlm_route route)
{
	return (void *)((uintptr_t)route.was_told << 32 | (uintptr_t)route.local << 5 |
			(uintptr_t)route.version << 2 | (uintptr_t)route.is_tcp << 1 |
			(uintptr_t)route.is_msg);
}

struct hf_nlm_route hf_nlm_route_unpack(const void *user)
{
	uintptr_t bits = (uintptr_t)user;

	return (struct hf_nlm_route){ .version = bits >> 2 & 7,
				      .is_tcp = bits >> 1 & 1,
				      .is_msg = bits & 1,
				      .local = (uint16_t)(bits >> 5),
				      .was_told = bits >> 32 & 1 };
}

/* u8 version   u8 flags: 1 TCP, 2 _MSG   u64 offset len   u8 family ip[16]   u32 scope */
enum {
	IS_TCP = 1,
	IS_MSG = 2,
};

size_t hf_nlm_route_encode(const struct hf_nlm_locals *locals, struct hf_nlm_route route, uint64_t offset,
			   uint64_t len, uint8_t out[HF_NLM_STORED_ROUTE])
{
	const struct hf_addr *local = hf_nlm_route_local(locals, route);
	static const struct hf_addr none;
	uint8_t *p = out;

	local = local ? local : &none;
	p = hf_le_put8(p, route.version);
	p = hf_le_put8(p, (uint8_t)((route.is_tcp ? IS_TCP : 0) | (route.is_msg ? IS_MSG : 0)));
	p = hf_le_put64(p, offset);
	p = hf_le_put64(p, len);
	p = hf_le_put8(p, local->family);
	p = hf_le_put_bytes(p, hf_bytes_of(local->ip, sizeof(local->ip)));
	p = hf_le_put32(p, local->scope);
	return (size_t)(p - out);
}

bool hf_nlm_route_decode(struct hf_nlm_locals *locals, struct hf_bytes bytes, struct hf_nlm_route *routep,
			 uint64_t *offsetp, uint64_t *lenp)
{
	struct hf_addr local = { 0 };
	const uint8_t *p = bytes.data;

	if (bytes.len != HF_NLM_STORED_ROUTE || p[0] == 0 || p[0] > 4 || p[1] & ~(IS_TCP | IS_MSG))
		return false;
	*routep = (struct hf_nlm_route){ .version = p[0], .is_tcp = p[1] & IS_TCP, .is_msg = p[1] & IS_MSG };
	*offsetp = hf_le_get64(p + 2);
	*lenp = hf_le_get64(p + 10);
	local.family = p[18];
	memcpy(local.ip, p + 19, sizeof(local.ip));
	local.scope = hf_le_get32(p + 35);
	if (local.family == AF_INET || local.family == AF_INET6)
		routep->local = find_or_add(locals, &local);
	return true;
}

const struct hf_addr *hf_nlm_route_local(const struct hf_nlm_locals *locals, struct hf_nlm_route route)
{
	return route.local ? &locals->all[route.local - 1] : NULL;
}
