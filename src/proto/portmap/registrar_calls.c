/* The registrar's calls to rpcbind, and how it reads the answers. */
#include <netinet/in.h>

#include "base/log.h"
#include "proto/portmap/registrar_internal.h"

#define CALL_NS (2 * HF_NS_PER_S)
#define PING_NS (HF_NS_PER_S / 2)

#define MAX_ARGS 256 /* the registrar's arguments are short */

/* Calling */

static void begin(struct hf_registrar *registrar, const struct hf_rpc_request *request)
{
	int r = hf_rpc_client_call(registrar->client, &registrar->pending, request, registrar->answered,
				   registrar);

	if (r < 0) {
		registrar->pending = NULL;
		hf_loop_defer(registrar->loop, &registrar->failure);
	}
}

void hf_registrar_call_failed(struct hf_task *task)
{
	struct hf_registrar *registrar = hf_container_of(task, struct hf_registrar, failure);
	struct hf_rpc_result result = { .outcome = HF_RPC_OUTCOME_UNREACHABLE, .stage = HF_RPC_STAGE_SEND };

	registrar->answered(registrar, &result);
}

static void call_rpcbind(struct hf_registrar *registrar, uint32_t procedure, const void *args, size_t len)
{
	begin(registrar, &(struct hf_rpc_request){
				 .remote = registrar->rpcbind,
				 .program = HF_PORTMAP_PROGRAM,
				 .version = registrar->version,
				 .procedure = procedure,
				 .path = HF_RPC_TCP_ONLY,
				 .args = args,
				 .args_len = len,
				 .timeout_ns = CALL_NS,
				 .reserved_port = true,
			 });
}

/* The procedures that the registrar uses have the same numbers in both versions. */
void hf_registrar_call_dump(struct hf_registrar *registrar)
{
	call_rpcbind(registrar, HF_RPCBPROC_DUMP, NULL, 0);
}

static size_t encode(uint8_t *args, size_t size, uint32_t rpcb_version, const struct registrar_item *item)
{
	const struct hf_netid_info *info = hf_netid_info(item->netid);
	struct hf_addr any = { .family = info->family, .port = item->port };
	char uaddr[HF_UADDR_TEXT];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, args, size);
	if (rpcb_version == 2)
		hf_pmap_put(&out,
			    &(struct hf_pmap){ item->program, item->version, info->protocol, item->port });
	else
		hf_rpcb_put(&out,
			    &(struct hf_rpcb){
				    .program = item->program,
				    .version = item->version,
				    .netid = hf_bytes_of_str(info->name),
				    .uaddr = hf_bytes_of_str(hf_uaddr_format(&any, uaddr, sizeof(uaddr))),
				    .owner = hf_bytes_of_str("holdfast"),
			    });
	return size - hf_xdr_out_left(&out);
}

void hf_registrar_call_set(struct hf_registrar *registrar, const struct registrar_item *item)
{
	uint8_t args[MAX_ARGS];

	call_rpcbind(registrar, HF_RPCBPROC_SET, args, encode(args, sizeof(args), registrar->version, item));
}

void hf_registrar_call_unset(struct hf_registrar *registrar, const struct registrar_item *item)
{
	uint8_t args[MAX_ARGS];

	call_rpcbind(registrar, HF_RPCBPROC_UNSET, args,
		     encode(args, sizeof(args), registrar->version, item));
}

void hf_registrar_call_holder(struct hf_registrar *registrar, const struct registrar_item *item)
{
	bool is_udp = hf_netid_info(item->netid)->protocol == IPPROTO_UDP;
	struct hf_addr remote = item->holder;

	if (hf_addr_is_any(&remote)) {
		hf_addr_parse(&remote, item->holder.family == AF_INET6 ? "::1" : "127.0.0.1");
		remote.port = item->holder.port;
	}
	begin(registrar, &(struct hf_rpc_request){
				 .remote = remote,
				 .program = item->program,
				 .version = item->version,
				 .path = is_udp ? HF_RPC_UDP_ONLY : HF_RPC_TCP_ONLY,
				 .timeout_ns = PING_NS,
				 .fresh_connection = true,
			 });
}

/* Reading */

static struct registrar_item *find(struct hf_registrar *registrar, uint32_t program, uint32_t version,
				   enum hf_netid netid)
{
	for (size_t i = 0; i < registrar->n_items; i++) {
		struct registrar_item *item = &registrar->items[i];

		if (item->program == program && item->version == version && item->netid == netid)
			return item;
	}
	return NULL;
}

/* A mapping to the server's port counts as the server's, at whichever address it was registered. */
static void note(struct registrar_item *item, const struct hf_addr *addr, struct hf_bytes owner)
{
	item->state = addr->port == item->port ? ITEM_PRESENT : ITEM_TAKEN;
	item->holder = *addr;
	hf_log_quote(item->holder_owner, sizeof(item->holder_owner), owner.data, owner.len);
}

static void read_pmap(struct hf_registrar *registrar, struct hf_xdr_in *in)
{
	struct hf_pmap pmap = hf_pmap_get(in);
	struct hf_addr addr = { .family = AF_INET, .port = (uint16_t)pmap.port };
	enum hf_netid netid =
		pmap.protocol <= UINT8_MAX ? hf_netid_of(AF_INET, (int)pmap.protocol) : HF_N_NETIDS;
	struct registrar_item *item = find(registrar, pmap.program, pmap.version, netid);

	if (hf_xdr_in_is_ok(in) && item)
		note(item, &addr, hf_bytes_of_str("unknown"));
}

/* An address that cannot be parsed becomes port 0. No program answers there: the registrar may replace it. */
static void read_rpcb(struct hf_registrar *registrar, struct hf_xdr_in *in)
{
	struct hf_rpcb rpcb = hf_rpcb_get_any(in);
	enum hf_netid netid = hf_netid_parse(rpcb.netid);
	struct registrar_item *item = find(registrar, rpcb.program, rpcb.version, netid);
	struct hf_addr addr;

	if (!hf_xdr_in_is_ok(in) || !item)
		return;
	if (!hf_netid_parse_uaddr(&addr, netid, rpcb.uaddr))
		addr = (struct hf_addr){ .family = hf_netid_info(netid)->family };
	note(item, &addr, rpcb.owner);
}

bool hf_registrar_read_dump(struct hf_registrar *registrar, struct hf_xdr_in *in)
{
	while (hf_xdr_get_bool(in)) {
		if (registrar->version == 2)
			read_pmap(registrar, in);
		else
			read_rpcb(registrar, in);
	}
	return hf_xdr_in_is_ok(in);
}
