/*
 * Which client calls, and from which port.
 *
 * A client that took something from a reserved port is privileged: what it holds can be changed from reserved
 * ports only. A client that got something is registered, so that it is told of the server's restart.
 */
#include "proto/nlm/internal.h"
#include "proto/nlm/op.h"
#include "proto/nsm/nsm.h"

struct hf_client *hf_nlm_find_caller(const struct hf_nlm_op *op)
{
	return hf_nlm_find_client(op->nlm, hf_rpc_call_peer(op->call), op->args.caller);
}

static void note_port_of(const struct hf_nlm_op *op, struct hf_client *client)
{
	enum hf_rpc_transport transport = hf_rpc_call_transport(op->call);

	hf_client_came_by(client, transport, hf_rpc_call_peer(op->call)->port);
	if (transport == HF_RPC_TCP)
		client->has_connected = true;
}

static void note_call(const struct hf_nlm_op *op, struct hf_client *client)
{
	hf_client_called(client, hf_rpc_call_local(op->call));
	note_port_of(op, client);
}

/* Ports */

bool hf_nlm_may_change(const struct hf_nlm_op *op)
{
	return !op->client || hf_client_may_be_changed_from(op->client, hf_rpc_call_peer(op->call));
}

/* Only datagrams, which can be forged, made the client privileged. A connection counts for more. */
static bool is_privileged_by_datagrams(const struct hf_nlm_op *op)
{
	const struct hf_client *client = op->client;

	return hf_rpc_call_transport(op->call) == HF_RPC_TCP && !client->has_connected &&
	       client->is_privileged_by_datagram;
}

/* A client that has nothing left may go on from an ordinary port: its host may have mounted anew with another
 * option. Its next LOCK from a reserved port makes it privileged again. */
static enum hf_nlm_stat check_port(struct hf_nlm_op *op)
{
	if (HF_LIKELY(hf_nlm_may_change(op)))
		return HF_NLM_GRANTED_STAT;
	if (is_privileged_by_datagrams(op) || (!op->args.reclaim && hf_client_has_nothing(op->client)))
		return hf_client_set_privileged(op->client, false) < 0 ? HF_NLM_DENIED_NOLOCKS
								       : HF_NLM_GRANTED_STAT;
	hf_nlm_say_port(op);
	return HF_NLM_FAILED;
}

/* Who */

uint32_t hf_nlm_state_of(const struct hf_nlm_op *op)
{
	return (uint32_t)hf_client_state_for(op->client, op->args.state, hf_rpc_call_age(op->call));
}

/* What the call says of the client, its port and its state number, is noted for the client of that name
 * alone. The server may take a neighbour behind the same address for a renamed host here. As long as the
 * reclaim is not granted, that must change nothing for the other name. */
enum hf_nlm_stat hf_nlm_get_reclaimer(struct hf_nlm_op *op)
{
	enum hf_nlm_stat stat;

	hf_nlm_find_named(op);
	if (hf_nlm_find_renamed(op) && hf_nlm_bars_renamed(op))
		return HF_NLM_LATER;
	if (!op->client)
		return hf_nlm_get_client(op);
	stat = check_port(op);
	if (stat != HF_NLM_GRANTED_STAT)
		return stat;
	hf_client_seen(op->client, hf_rpc_call_local(op->call));
	return hf_nlm_note_number(op);
}

enum hf_nlm_stat hf_nlm_get_client(struct hf_nlm_op *op)
{
	struct hf_client *client =
		hf_nlm_meet_client(op->nlm, hf_rpc_call_peer(op->call), op->args.caller, true);
	enum hf_nlm_stat stat;

	if (!client)
		return HF_NLM_DENIED_NOLOCKS;
	hf_nlm_use_client(op, client);
	stat = check_port(op);
	if (stat != HF_NLM_GRANTED_STAT)
		return stat;
	note_call(op, client);
	return hf_nlm_note_number(op);
}

void hf_nlm_find_named(struct hf_nlm_op *op)
{
	struct hf_client *client = hf_nlm_find_caller(op);

	if (!client)
		return;
	hf_nlm_use_client(op, client);
	if (hf_nlm_may_change(op))
		note_call(op, client);
}

void hf_nlm_find_served(struct hf_nlm_op *op)
{
	struct hf_client *client;

	if (op->args.reclaim) {
		hf_nlm_find_named(op);
		hf_nlm_find_renamed(op);
		return;
	}
	client = hf_nlm_find_caller(op);
	if (client)
		hf_nlm_use_client(op, client);
}

/* The first call from a reserved port. */
static HF_NOINLINE enum hf_nlm_stat note_reserved_port(struct hf_nlm_op *op)
{
	bool is_datagram = hf_rpc_call_transport(op->call) == HF_RPC_UDP;

	/* A forged datagram would bar the ports from which the client calls. */
	if (op->client->has_connected && is_datagram)
		return HF_NLM_GRANTED_STAT;
	if (hf_client_set_privileged(op->client, true) < 0)
		return HF_NLM_DENIED_NOLOCKS;
	op->client->is_privileged_by_datagram = is_datagram;
	/* The connection from before may be a user's, which must not decide whether the host lives. */
	if (op->nlm->monitor)
		op->client->link = hf_rpc_call_link(op->call);
	return HF_NLM_GRANTED_STAT;
}

enum hf_nlm_stat hf_nlm_note_port(struct hf_nlm_op *op)
{
	if (HF_UNLIKELY(op->nlm->has_demands) && hf_nlm_bind_identity(op) != HF_NLM_GRANTED_STAT)
		return HF_NLM_DENIED_NOLOCKS;
	if (op->client->is_privileged || !hf_addr_has_reserved_port(hf_rpc_call_peer(op->call)))
		return HF_NLM_GRANTED_STAT;
	return note_reserved_port(op);
}

/* The first time, or at another of the server's addresses. */
static HF_NOINLINE enum hf_nlm_stat note_local(struct hf_nlm_op *op)
{
	struct hf_client *client = op->client;
	const struct hf_addr *local = hf_rpc_call_local(op->call);
	/* A forged datagram must not choose the address that the notices to another host leave from. A client
	 * of an earlier run counts as one that calls over UDP until it connects: a forged call may have been
	 * its first, and only a call of its own can put that right. */
	bool is_certain = !client->has_connected || !hf_nsm_is_foreign_datagram(op->call);

	if (hf_client_has_used(client, local))
		return HF_NLM_GRANTED_STAT;
	if (hf_client_use(client, local, is_certain) < 0)
		return HF_NLM_DENIED_NOLOCKS;
	return hf_client_register(client) == HF_CLIENT_OK ? HF_NLM_GRANTED_STAT : HF_NLM_DENIED_NOLOCKS;
}

enum hf_nlm_stat hf_nlm_register(struct hf_nlm_op *op)
{
	struct hf_client *client = op->client;

	if (hf_nlm_note_port(op) != HF_NLM_GRANTED_STAT)
		return HF_NLM_DENIED_NOLOCKS;
	if (HF_UNLIKELY(!client->is_certain) && !hf_nsm_is_foreign_datagram(op->call))
		hf_client_confirm(client);
	if (HF_LIKELY(client->is_local_stored &&
		      hf_addr_same_host(&client->local, hf_rpc_call_local(op->call))))
		return HF_NLM_GRANTED_STAT;
	return note_local(op);
}

void hf_nlm_note_begin(struct hf_nlm_op *op, bool is_first)
{
	struct hf_client *client = op->client;
	struct hf_nsm *monitor = op->nlm->monitor;

	if (op->args.reclaim)
		note_port_of(op, client);
	/* After a known crash, all that the client has belongs to the life that calls. A first datagram may
	 * be forged, so that the first connection counts as well, of a client that this run has met. */
	if (monitor &&
	    (is_first || op->args.reclaim || (!client->baseline && hf_recovery_count_crashes(client)) ||
	     (HF_UNLIKELY(!client->link) && client->met_at && hf_rpc_call_transport(op->call) == HF_RPC_TCP)))
		hf_nsm_client_begins(monitor, client, op->call, op->args.state, is_first);
}
