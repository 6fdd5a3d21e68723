#include "rpc/delay.h"

#include "rpc/server_internal.h"

void hf_rpc_delay_init(struct hf_rpc_delay *delay,
		       void (*on_gone)(struct hf_rpc_delay *delay,
				       const struct hf_rpc_connection *connection))
{
	hf_list_init(&delay->connections);
	delay->n_delayed = 0;
	delay->on_gone = on_gone;
}

/* Suspended calls may be answered before the delay is released. */
static bool has_others(const struct hf_rpc_connection *c, const struct hf_rpc_call *call)
{
	return c->n_suspended > call->is_suspended;
}

const struct hf_rpc_connection *hf_rpc_delay_call(struct hf_rpc_delay *delay, struct hf_rpc_call *call)
{
	struct hf_rpc_connection *c = call->connection;

	if (!c || !c->socket || call->replay || (c->delay ? c->delay != delay : has_others(c, call)))
		return NULL;
	delay->last = HF_RPC_DELAYED_KINDS;
	if (!c->delay) {
		c->delay = delay;
		hf_list_push_back(&delay->connections, &c->delay_link);
		c->delayed_at = HF_UNLIKELY(hf_rpc_slow_ns(c->lane)) ? hf_loop_now(c->lane->loop) : 0;
	}
	return c;
}

bool hf_rpc_delay_would_delay(const struct hf_rpc_call *call)
{
	return call->connection && call->connection->delay;
}

void hf_rpc_delay_release(struct hf_rpc_delay *delay)
{
	struct hf_link *link;

	hf_rpc_meters_add_up_delayed(delay);
	while ((link = hf_list_first(&delay->connections))) {
		struct hf_rpc_connection *c = hf_list_entry(link, struct hf_rpc_connection, delay_link);

		if (HF_UNLIKELY(hf_rpc_slow_ns(c->lane)))
			hf_rpc_look_at_delay(c);
		hf_rpc_delay_let_go(c);
		hf_rpc_connection_replied(c);
	}
}

void hf_rpc_delay_deinit(struct hf_rpc_delay *delay)
{
	struct hf_link *link;

	while ((link = hf_list_first(&delay->connections)))
		hf_rpc_connection_close(hf_list_entry(link, struct hf_rpc_connection, delay_link));
}
