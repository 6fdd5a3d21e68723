/*
 * An exchange: one call message to one address, over one transport, and its reply. It has no
 * deadline: its owner stops it.
 *
 * The XID is random, so a host that does not see the call cannot answer it. It stays the same
 * over all retransmissions and reconnections, so that the peer's duplicate-request cache
 * recognises it.
 */
#include "rpc/client_internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "rpc/message.h"

void hf_exchange_init(struct hf_rpc_exchange *exchange, struct hf_rpc_client *client,
		      void (*fn)(struct hf_rpc_exchange *exchange, const struct hf_rpc_result *result))
{
	*exchange = (struct hf_rpc_exchange){ .client = client, .fn = fn };
	hf_link_init(&exchange->link);
}

static struct hf_rpc_exchange *find(const struct hf_rpc_client *client, uint32_t xid)
{
	struct hf_hash_node *node = hf_hash_match(*hf_hashtable_chain(&client->xids, xid), xid);

	return node ? hf_container_of(node, struct hf_rpc_exchange, node) : NULL;
}

static void take_xid(struct hf_rpc_exchange *exchange)
{
	uint32_t xid, wire;

	do {
		hf_loop_random(exchange->client->loop, &xid, sizeof(xid));
		xid = le32toh(xid); /* the same number on every machine, for the simulation */
	} while (find(exchange->client, xid));
	wire = htobe32(xid);
	memcpy(exchange->message + HF_EXCHANGE_MARK, &wire, 4);
	hf_hashtable_insert(&exchange->client->xids, &exchange->node, xid);
}

int hf_exchange_start(struct hf_rpc_exchange *exchange)
{
	int r;

	assert(!exchange->is_started && exchange->len >= 4);
	take_xid(exchange);
	exchange->send_error = 0;
	exchange->is_reconnecting = false;
	if (exchange->transport == HF_RPC_UDP)
		r = hf_rpc_client_udp_start(exchange);
	else
		r = hf_rpc_client_tcp_start(exchange);
	if (r < 0)
		hf_hashtable_remove(&exchange->client->xids, &exchange->node);
	else
		exchange->is_started = true;
	return r;
}

void hf_exchange_stop(struct hf_rpc_exchange *exchange, bool timed_out)
{
	if (!exchange->is_started)
		return;
	hf_hashtable_remove(&exchange->client->xids, &exchange->node);
	exchange->is_started = false;
	if (exchange->transport == HF_RPC_UDP)
		hf_rpc_client_udp_detach(exchange);
	else
		hf_rpc_client_tcp_detach(exchange, timed_out);
}

/* Verdicts */

enum hf_rpc_outcome hf_rpc_outcome_of_errno(int error)
{
	switch (error) {
	case -ECONNREFUSED:
		return HF_RPC_OUTCOME_REFUSED;
	case -EMFILE:
	case -ENFILE:
	case -ENOBUFS:
	case -ENOMEM:
		return HF_RPC_OUTCOME_NO_ROOM;
	default:
		return HF_RPC_OUTCOME_UNREACHABLE;
	}
}

static struct hf_rpc_result result_of(const struct hf_rpc_exchange *exchange, enum hf_rpc_outcome outcome,
				      int error)
{
	return (struct hf_rpc_result){
		.outcome = outcome,
		.stage = exchange->stage,
		.transport = exchange->transport,
		.error = error,
		.remote = exchange->remote,
	};
}

struct hf_rpc_result hf_exchange_verdict(const struct hf_rpc_exchange *exchange)
{
	if (exchange->send_error)
		return result_of(exchange, hf_rpc_outcome_of_errno(exchange->send_error),
				 exchange->send_error);
	return result_of(exchange, HF_RPC_OUTCOME_TIMEOUT, 0);
}

struct hf_rpc_result hf_exchange_not_started(const struct hf_rpc_exchange *exchange, int error)
{
	struct hf_rpc_result result = {
		.outcome = hf_rpc_outcome_of_errno(error),
		.stage = exchange->transport == HF_RPC_TCP ? HF_RPC_STAGE_CONNECT : HF_RPC_STAGE_SEND,
		.transport = exchange->transport,
		.error = error,
		.remote = exchange->remote,
	};

	return result;
}

/* Ends */

static void end(struct hf_rpc_exchange *exchange, const struct hf_rpc_result *result)
{
	hf_exchange_stop(exchange, false);
	exchange->fn(exchange, result);
	/* @exchange may be freed here */
}

void hf_exchange_fail(struct hf_rpc_exchange *exchange, enum hf_rpc_outcome outcome, int error)
{
	struct hf_rpc_result result = result_of(exchange, outcome, error);

	end(exchange, &result);
}

void hf_exchange_end_sent(struct hf_rpc_exchange *exchange)
{
	struct hf_rpc_result result = result_of(exchange, HF_RPC_OUTCOME_OK, 0);

	assert(exchange->one_way);
	end(exchange, &result);
}

static enum hf_rpc_outcome outcome_of(enum hf_rpc_reply reply)
{
	switch (reply) {
	case HF_RPC_REPLY_OK:
		return HF_RPC_OUTCOME_OK;
	case HF_RPC_REPLY_REFUSED:
		return HF_RPC_OUTCOME_DENIED;
	case HF_RPC_REPLY_NO_PROG:
		return HF_RPC_OUTCOME_NO_PROGRAM;
	case HF_RPC_REPLY_NO_PROC:
		return HF_RPC_OUTCOME_NO_PROCEDURE;
	case HF_RPC_REPLY_NO_SENSE:
		return HF_RPC_OUTCOME_NO_SENSE;
	case HF_RPC_REPLY_GARBAGE:
		break;
	}
	return HF_RPC_OUTCOME_GARBAGE;
}

void hf_exchange_take_reply(struct hf_rpc_exchange *exchange, struct hf_bytes message)
{
	struct hf_rpc_result result;
	struct hf_xdr_in in;

	hf_xdr_in_init(&in, message.data, message.len);
	result = result_of(exchange, outcome_of(hf_rpc_parse_reply(&in)), 0);
	result.stage = HF_RPC_STAGE_REPLY;
	if (result.outcome == HF_RPC_OUTCOME_OK)
		result.results = &in;
	end(exchange, &result);
}

struct hf_rpc_exchange *hf_exchange_find(struct hf_rpc_client *client, struct hf_bytes message)
{
	uint32_t xid;

	return hf_rpc_peek_reply_xid(&xid, message) ? find(client, xid) : NULL;
}
