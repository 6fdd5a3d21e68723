#include "proto/nlm/reply_route.h"

#include <stdlib.h>

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

struct hf_nlm_route hf_nlm_route_of(struct hf_nlm_locals *locals, const struct hf_rpc_call *call,
				    uint32_t export)
{
	const struct hf_rpc_header *header = hf_rpc_call_header(call);

	return (struct hf_nlm_route){
		.version = (uint8_t)header->version,
		.is_tcp = hf_rpc_call_transport(call) == HF_RPC_TCP,
		.is_msg = header->procedure == HF_NLM_LOCK_MSG,
		.local = find_or_add(locals, hf_rpc_call_local(call)),
		.export = (uint16_t)(export <= HF_NLM_MAX_EXPORTS ? export : 0),
	};
}

void *hf_nlm_route_pack(struct hf_nlm_route route)
{
	return (void *)((uintptr_t)route.export << 21 | (uintptr_t)route.local << 5 |
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
				      .export = bits >> 21 & HF_NLM_MAX_EXPORTS };
}

const struct hf_addr *hf_nlm_route_local(const struct hf_nlm_locals *locals, struct hf_nlm_route route)
{
	return route.local ? &locals->all[route.local - 1] : NULL;
}
