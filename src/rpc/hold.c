#include "rpc/hold.h"

#include "rpc/server_internal.h"

void hf_rpc_hold_init(struct hf_rpc_hold *hold,
		      void (*on_gone)(struct hf_rpc_hold *hold, const struct hf_rpc_connection *connection))
{
	hf_list_init(&hold->connections);
	hold->n_held = 0;
	hold->on_gone = on_gone;
}

/* Suspended calls may be answered before the hold is released. */
static bool has_others(const struct hf_rpc_connection *c, const struct hf_rpc_call *call)
{
	return c->n_kept > call->is_kept;
}

const struct hf_rpc_connection *hf_rpc_hold_call(struct hf_rpc_hold *hold, struct hf_rpc_call *call)
{
	struct hf_rpc_connection *c = call->connection;

	if (!c || !c->socket || call->replay || (c->hold ? c->hold != hold : has_others(c, call)))
		return NULL;
	if (!c->hold) {
		c->hold = hold;
		hf_list_push_back(&hold->connections, &c->hold_link);
	}
	return c;
}

static void let_go(struct hf_rpc_connection *c)
{
	c->hold = NULL;
	hf_link_remove(&c->hold_link);
}

void hf_rpc_hold_change_result(struct hf_rpc_hold *hold, const char *from, const char *to)
{
	for (uint32_t i = 0; i < hold->n_held; i++)
		if (hold->held[i].result == from)
			hold->held[i].result = to;
}

void hf_rpc_hold_release(struct hf_rpc_hold *hold)
{
	struct hf_link *link;

	hf_rpc_meters_settle_held(hold);
	while ((link = hf_list_first(&hold->connections))) {
		struct hf_rpc_connection *c = hf_list_entry(link, struct hf_rpc_connection, hold_link);

		let_go(c);
		hf_rpc_connection_replied(c);
	}
}

void hf_rpc_hold_deinit(struct hf_rpc_hold *hold)
{
	struct hf_link *link;

	while ((link = hf_list_first(&hold->connections)))
		hf_rpc_connection_close(hf_list_entry(link, struct hf_rpc_connection, hold_link));
}

void hf_rpc_hold_drop(struct hf_rpc_connection *c)
{
	struct hf_rpc_hold *hold = c->hold;

	if (!hold)
		return;
	let_go(c);
	hold->on_gone(hold, c);
}
