/* The header of a call, its credentials, and what the dispatcher makes of it: at most one reply, to that xid.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "rpc_script.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool lies_within(struct hf_bytes view, const uint8_t *data, size_t size)
{
	return view.len == 0 || (view.data >= data && view.data + view.len <= data + size);
}

static enum hf_rpc_parse parse(const uint8_t *data, size_t size)
{
	struct hf_rpc_header header;
	enum hf_rpc_auth_stat stat = HF_RPC_AUTH_OK;
	struct hf_xdr_in in;
	enum hf_rpc_parse r;

	hf_xdr_in_init(&in, data, size);
	r = hf_rpc_parse_call(&header, &stat, &in);
	switch (r) {
	case HF_RPC_CALL:
		assert(hf_xdr_in_is_ok(&in) && in.p >= data + 40 && in.p <= data + size);
		assert(header.cred.flavor <= HF_RPC_AUTH_SYS);
		assert(header.cred.n_gids <= HF_RPC_MAX_GIDS);
		assert(header.cred.machine.len <= HF_RPC_MAX_NAME);
		assert(lies_within(header.cred.machine, data, size));
		break;
	case HF_RPC_BAD_AUTH:
		assert(stat != HF_RPC_AUTH_OK);
		break;
	default:
		break;
	}
	return r;
}

/* As a datagram to a server that has nothing else to do. */
static void dispatch(const uint8_t *data, size_t size, enum hf_rpc_parse parsed)
{
	static uint8_t reply[100000];
	struct hf_addr me = script_addr(9, 700), server = script_addr(1, SCRIPT_PORT), from, to;
	static struct script script; /* for all inputs: making one takes longer than a call */
	ssize_t len;

	if (!script.server)
		script_open(&script, &hf_rpc_default_limits, true);
	fake_datagram_send(script.world, &me, &server, data, size);
	fake_world_settle(script.world);
	while (script.n_suspended)
		script_release(&script, 0, true);
	fake_world_settle(script.world);
	len = fake_datagram_receive(script.world, &from, &to, reply, sizeof(reply));
	if (parsed == HF_RPC_NOT_A_CALL || parsed == HF_RPC_BAD_HEADER) {
		assert(len < 0);
	} else if (len >= 0) {
		struct hf_xdr_in in;

		assert(len >= 20 && memcmp(reply, data, 4) == 0);
		assert(hf_addr_equal(&to, &me) && hf_addr_equal(&from, &server));
		hf_xdr_in_init(&in, reply, (size_t)len);
		assert(hf_rpc_parse_reply(&in) != HF_RPC_REPLY_GARBAGE);
		len = fake_datagram_receive(script.world, &from, &to, reply, sizeof(reply));
		assert(len < 0);
	}
	script_check(&script);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy;

	if (!size || size > 65536)
		return 0;
	copy = malloc(size);
	memcpy(copy, data, size);
	dispatch(copy, size, parse(copy, size));
	free(copy);
	return 0;
}
