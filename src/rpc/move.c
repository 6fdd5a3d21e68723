/*
 * How does a connection move to the home lane?
 *
 * It asked for a program that only the home lane serves. It stops reading, and waits until the
 * calls that it has begun here have ended. Then it moves, with the call that caused it, the
 * input after that, and the replies that are not sent yet.
 */
#include <stdlib.h>

#include "rpc/server_internal.h"

void hf_rpc_connection_move_home(struct hf_rpc_connection *c, struct hf_bytes record)
{
	c->traveller = malloc(record.len);
	if (!c->traveller) {
		/* It must move; without memory it is closed there, and the client connects again. */
		c->is_moving = c->is_paused = true;
		return;
	}
	memcpy(c->traveller, record.data, record.len);
	c->traveller_len = record.len;
	c->is_moving = c->is_paused = true;
}

static bool serve_traveller(struct hf_rpc_connection *c)
{
	uint8_t *data = c->traveller;
	struct hf_rpc_call *call =
		data ? hf_rpc_call_new(c->lane, hf_bytes_of(data, c->traveller_len)) : NULL;
	enum hf_rpc_dispatched dispatched = HF_RPC_NONSENSE;

	c->traveller = NULL;
	c->traveller_len = 0;
	if (call) {
		call->connection = c;
		dispatched = hf_rpc_dispatch(call);
	}
	free(data);
	return dispatched == HF_RPC_DISPATCHED;
}

/* Runs on the home lane's thread. */
static void arrive(struct hf_task *task)
{
	struct hf_rpc_connection *c = hf_container_of(task, struct hf_rpc_connection, arrival);
	struct hf_rpc_lane *lane = c->lane;

	lane->n_gathering += c->reader.capacity;
	hf_rpc_budget_join(c);
	hf_list_push_back(&lane->busy, &c->link);
	c->is_busy = true;
	c->since = hf_loop_now(lane->loop);
	c->is_moving = false;
	(void)hf_socket_set_keepalive(c->socket, hf_rpc_keepalive(lane));
	hf_rpc_meters_add_up(lane);
	hf_rpc_budget_begin(c, true);
	c->is_reading = true;
	if (lane->is_closed || !serve_traveller(c)) {
		c->is_reading = false;
		hf_rpc_connection_close(c);
		return;
	}
	c->is_reading = false;
	hf_rpc_connection_replied(c); /* still paused: the flush goes on with the backlog */
}

bool hf_rpc_connection_try_move(struct hf_rpc_connection *c)
{
	struct hf_rpc_lane *home = c->lane->server->lanes[0];

	if (c->n_suspended)
		return false;
	hf_link_remove(&c->link);
	hf_link_remove(&c->flush_link);
	c->lane->n_gathering -= c->reader.capacity;
	hf_rpc_budget_quit(c);
	hf_rpc_budget_charge(c, 0); /* home will count it */
	hf_socket_move(&c->socket, home->loop);
	c->lane = home;
	hf_task_init(&c->arrival, arrive);
	hf_loop_post(home->loop, &c->arrival);
	return true;
}
