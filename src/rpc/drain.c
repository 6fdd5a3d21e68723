/*
 * The end of a server in order: no call begins any more, and those under way are answered
 * before their connections are closed. A client whose call was carried out but not answered
 * would send it again, and the next server would carry it out twice.
 *
 * Each lane drains on its own thread, and tells home when it is quiet or its time is over.
 */
#include <assert.h>

#include "rpc/server_internal.h"

#define LOOK_NS (1 * HF_NS_PER_MS)

static bool has_replies(const struct hf_list *connections)
{
	hf_list_for_each(link, connections)
		if (hf_list_entry(link, struct hf_rpc_connection, link)->out.n_bytes)
			return true;
	return false;
}

static bool is_quiet(const struct hf_rpc_lane *lane)
{
	return hf_list_is_empty(&lane->suspended) && !has_replies(&lane->busy);
}

/* At home */
static void on_quiet(struct hf_task *task)
{
	struct hf_rpc_lane *lane = hf_container_of(task, struct hf_rpc_lane, quiet);
	struct hf_rpc_server *server = lane->server;

	assert(server->n_draining > 0);
	if (--server->n_draining == 0)
		server->drained(server->drained_user);
}

static void look(struct hf_timer *timer)
{
	struct hf_rpc_lane *lane = hf_container_of(timer, struct hf_rpc_lane, drain_timer);

	if (!is_quiet(lane) && hf_loop_now(lane->loop) < lane->drain_until &&
	    hf_timer_start(timer, LOOK_NS) == 0)
		return;
	hf_loop_post(lane->server->lanes[0]->loop, &lane->quiet);
}

/* On the lane's thread. The server still listens: a client that is refused waits for seconds before it tries
 * again, and its address may be another node's by then. */
static void begin(struct hf_task *task)
{
	struct hf_rpc_lane *lane = hf_container_of(task, struct hf_rpc_lane, drain);

	lane->is_ending = true;
	lane->drain_until = hf_loop_now(lane->loop) + lane->server->drain_ns;
	look(&lane->drain_timer);
}

void hf_rpc_drain_init(struct hf_rpc_lane *lane)
{
	hf_task_init(&lane->drain, begin);
	hf_task_init(&lane->quiet, on_quiet);
	hf_timer_init(&lane->drain_timer, lane->loop, look);
}

void hf_rpc_server_drain(struct hf_rpc_server *server, uint64_t timeout_ns, void (*done)(void *user),
			 void *user)
{
	assert(!server->n_draining);
	server->drain_ns = timeout_ns;
	server->drained = done;
	server->drained_user = user;
	server->n_draining = server->n_lanes;
	for (size_t i = 0; i < server->n_lanes; i++)
		hf_loop_post(server->lanes[i]->loop, &server->lanes[i]->drain);
}
