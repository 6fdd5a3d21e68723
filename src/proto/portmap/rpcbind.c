#include "proto/portmap/rpcbind.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "loop/loop.h"
#include "proto/portmap/rpcbind_procs.h"

#define REFUSED_NS     (3600 * HF_NS_PER_S) /* log a refused host once an hour */
#define RESERVED_PORTS 1024

/* Making and freeing */

void hf_rpcbind_init(struct hf_rpcbind *rpcbind)
{
	memset(rpcbind, 0, sizeof(*rpcbind));
	hf_mappings_init(&rpcbind->mappings);
}

void hf_rpcbind_deinit(struct hf_rpcbind *rpcbind)
{
	hf_mappings_deinit(&rpcbind->mappings);
}

static int offer_version(struct hf_rpcbind *rpcbind, uint32_t program, uint32_t version, unsigned int netids,
			 uint16_t port)
{
	for (int netid = 0; netid < HF_N_NETIDS; netid++) {
		struct hf_mapping mapping = {
			.program = program,
			.version = version,
			.netid = (enum hf_netid)netid,
			.owner = HF_OWNER_US,
			.addr = { .family = hf_netid_info((enum hf_netid)netid)->family, .port = port },
		};
		int r;

		if (!(netids & HF_NETID_BIT(netid)))
			continue;
		r = hf_mappings_set(&rpcbind->mappings, &mapping);
		if (r < 0)
			return hf_trace(r);
		assert(r == HF_MAPPINGS_OK); /* no other program could register before */
	}
	return 0;
}

int hf_rpcbind_offer(struct hf_rpcbind *rpcbind, const struct hf_rpc_program *program, unsigned int netids,
		     uint16_t port)
{
	for (uint32_t i = 0; i < program->n_versions; i++) {
		uint32_t version = program->versions[i].version;
		unsigned int offered = netids;
		int r;

		/* Version 2 of the port mapper knows only IPv4; over IPv6 it is not offered. */
		if (program->program == HF_PORTMAP_PROGRAM && version == 2)
			offered &= HF_NETIDS_IPV4;
		r = offer_version(rpcbind, program->program, version, offered, port);
		if (r < 0)
			return r;
	}
	return 0;
}

/* What the procedures share */

static struct hf_rpcbind_counts *counts_of(struct hf_rpcbind *rpcbind, const struct hf_rpc_call *call)
{
	uint32_t version = hf_rpc_call_header(call)->version;

	assert(version >= 2 && version <= 4);
	return &rpcbind->counts[version - 2];
}

void hf_rpcbind_count(struct hf_rpcbind *rpcbind, const struct hf_rpc_call *call)
{
	uint32_t procedure = hf_rpc_call_header(call)->procedure;

	assert(procedure < HF_N_RPCB4PROCS);
	counts_of(rpcbind, call)->calls[procedure]++;
}

bool hf_rpcbind_begin(struct hf_rpcbind *rpcbind, struct hf_rpc_call *call)
{
	hf_rpcbind_count(rpcbind, call);
	if (hf_xdr_in_is_ok(hf_rpc_call_args(call)))
		return true;
	hf_rpc_reply_garbage(call);
	return false;
}

/* Logs each host and reason once an hour, and at most HF_RPCBIND_N_REFUSED lines an hour: a peer that forges
 * source addresses cannot fill the log. */
static bool is_refusal_news(struct hf_rpcbind *rpcbind, const struct hf_addr *peer, const char *why,
			    uint64_t now)
{
	size_t vacant = HF_RPCBIND_N_REFUSED;

	for (size_t i = 0; i < HF_RPCBIND_N_REFUSED; i++) {
		if (rpcbind->refused[i].until <= now)
			vacant = i;
		else if (rpcbind->refused[i].why == why && hf_addr_same_host(&rpcbind->refused[i].host, peer))
			return false;
	}
	if (vacant == HF_RPCBIND_N_REFUSED)
		return false;
	rpcbind->refused[vacant].host = *peer;
	rpcbind->refused[vacant].why = why;
	rpcbind->refused[vacant].until = now + REFUSED_NS;
	return true;
}

/* @why is one of the texts below; texts are compared by address. */
static void refuse(struct hf_rpcbind *rpcbind, const struct hf_rpc_call *call, const char *why)
{
	const struct hf_addr *peer = hf_rpc_call_peer(call);
	char text[HF_ADDR_TEXT];

	rpcbind->n_refused++;
	if (is_refusal_news(rpcbind, peer, why, hf_loop_now(hf_rpc_call_loop(call))))
		hf_log_warn(why, "peer=%s", hf_addr_format_with_port(peer, text, sizeof(text)));
}

static const char wrong_host[] = "portmap SET or UNSET refused: only programs on this host may call it";

bool hf_rpcbind_may_change(struct hf_rpcbind *rpcbind, const struct hf_rpc_call *call)
{
	/* Check the called address, too: some container hosts pass packets with loopback sources in from
	 * outside. */
	if (hf_addr_is_loopback(hf_rpc_call_peer(call)) && hf_addr_is_loopback(hf_rpc_call_local(call)))
		return true;
	refuse(rpcbind, call, wrong_host);
	return false;
}

/* Logs a refusal that an unprivileged process of this host has caused. */
static bool is_done(struct hf_rpcbind *rpcbind, const struct hf_rpc_call *call, int answer)
{
	static const char *const texts[] = {
		[HF_MAPPINGS_E_NOT_YOURS] = "portmap UNSET refused: a privileged program set the mapping, "
					    "and the caller's port is unprivileged",
		[HF_MAPPINGS_E_RESERVED] =
			"portmap SET refused: only a caller on a reserved port may register a reserved port",
		[HF_MAPPINGS_E_LIMIT] = "portmap SET refused: the caller's part of the table is full",
	};

	if (answer > 0 && (size_t)answer < HF_ARRAY_SIZE(texts) && texts[answer])
		refuse(rpcbind, call, texts[answer]);
	return answer == HF_MAPPINGS_OK;
}

static enum hf_mapping_owner owner_of(const struct hf_rpc_call *call)
{
	return hf_rpc_call_peer(call)->port < RESERVED_PORTS ? HF_OWNER_SUPERUSER : HF_OWNER_UNKNOWN;
}

bool hf_rpcbind_set(struct hf_rpcbind *rpcbind, const struct hf_rpc_call *call, uint32_t program,
		    uint32_t version, enum hf_netid netid, const struct hf_addr *addr)
{
	struct hf_mapping mapping = {
		.program = program,
		.version = version,
		.netid = netid,
		.owner = owner_of(call),
		.addr = *addr,
	};

	if (netid == HF_N_NETIDS || addr->port == 0 ||
	    !is_done(rpcbind, call, hf_mappings_set(&rpcbind->mappings, &mapping)))
		return false;
	counts_of(rpcbind, call)->n_set++;
	return true;
}

bool hf_rpcbind_unset(struct hf_rpcbind *rpcbind, const struct hf_rpc_call *call, uint32_t program,
		      uint32_t version, unsigned int netids)
{
	int answer = hf_mappings_unset(&rpcbind->mappings, program, version, netids, owner_of(call));

	if (!is_done(rpcbind, call, answer))
		return false;
	counts_of(rpcbind, call)->n_unset++;
	return true;
}

void hf_rpcbind_reply_bool(struct hf_rpc_call *call, bool value)
{
	hf_xdr_put_bool(hf_rpc_reply_begin(call, 4), value);
	hf_rpc_reply_end(call);
}

size_t hf_rpcbind_list_room(const struct hf_rpc_call *call, size_t n, size_t element)
{
	size_t room = n * element + 4; /* plus the end of the list */

	return hf_rpc_call_transport(call) == HF_RPC_UDP ? HF_MIN(room, HF_RPCBIND_MAX_UDP) : room;
}
