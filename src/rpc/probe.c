#include "rpc/probe.h"

#include <stdlib.h>

#include "rpc/server_internal.h"

#define LOOK_NS  (10 * HF_NS_PER_MS) /* between two looks at what has come */
#define SLACK_NS (50 * HF_NS_PER_MS) /* the kernel counts in ticks: a smaller difference may mean nothing */

struct hf_rpc_probe {
	struct hf_link link;                  /* of connection->probes */
	struct hf_rpc_connection *connection; /* NULL: it is closed, and @pulse is the result */
	enum hf_rpc_pulse pulse;
	struct hf_timer timer;
	uint64_t heard_at; /* when anything had come last, at the start */
	uint32_t n_asked;  /* by then */
	uint64_t deadline;
	hf_rpc_pulse_fn fn;
	void *user;
};

uint64_t hf_rpc_call_link(struct hf_rpc_call *call)
{
	struct hf_rpc_connection *c = call->connection;

	if (!c || !hf_rpc_lane_is_home(call->lane))
		return 0;
	if (!c->number)
		c->number = ++call->lane->server->n_numbered;
	return c->number;
}

static struct hf_rpc_connection *find_in(struct hf_list *list, uint64_t number)
{
	hf_list_for_each(link, list) {
		struct hf_rpc_connection *c = hf_list_entry(link, struct hf_rpc_connection, link);

		if (c->number == number)
			return c;
	}
	return NULL;
}

static struct hf_rpc_connection *find(const struct hf_rpc_call *call, uint64_t number)
{
	struct hf_rpc_lane *home = call->lane->server->lanes[0];
	struct hf_rpc_connection *c;

	if (!number || call->lane != home)
		return NULL;
	c = find_in(&home->idle, number);
	return c ? c : find_in(&home->busy, number);
}

static void probe_free(struct hf_rpc_probe *probe)
{
	struct hf_rpc_connection *c = probe->connection;

	hf_timer_stop(&probe->timer);
	hf_link_remove(&probe->link);
	if (c && hf_list_is_empty(&c->probes))
		(void)hf_socket_probe(c->socket, false);
	free(probe);
}

struct hf_rpc_probe *hf_rpc_probe_cancel(struct hf_rpc_probe *probe)
{
	if (probe)
		probe_free(probe);
	return NULL;
}

static void end(struct hf_rpc_probe *probe, enum hf_rpc_pulse pulse)
{
	hf_rpc_pulse_fn fn = probe->fn;
	void *user = probe->user;

	probe_free(probe);
	fn(user, pulse);
}

static bool when_heard(struct hf_rpc_connection *c, uint64_t *atp, uint32_t *n_askedp)
{
	uint64_t now = hf_loop_clock(c->lane->loop);
	struct hf_heard heard;

	if (!hf_socket_heard(c->socket, &heard))
		return false;
	*atp = now - HF_MIN(heard.ago_ns, now);
	*n_askedp = heard.n_asked;
	return true;
}

static bool is_acknowledged(const struct hf_rpc_probe *probe, uint64_t heard_at)
{
	return heard_at > probe->heard_at + SLACK_NS;
}

/* Before the kernel has asked, or sent data again, a reset is no answer: a host that lives may give up a
 * connection at any time. */
static enum hf_rpc_pulse last_pulse(const struct hf_rpc_probe *probe, bool was_reset)
{
	uint64_t heard_at;
	uint32_t n_asked;

	if (!was_reset || !when_heard(probe->connection, &heard_at, &n_asked))
		return HF_RPC_PULSE_NONE;
	if (is_acknowledged(probe, heard_at))
		return HF_RPC_PULSE_ALIVE;
	return n_asked > probe->n_asked ? HF_RPC_PULSE_DEAD : HF_RPC_PULSE_NONE;
}

void hf_rpc_probes_end(struct hf_rpc_connection *connection, bool was_reset)
{
	struct hf_link *link;

	while ((link = hf_list_pop_front(&connection->probes))) {
		struct hf_rpc_probe *probe = hf_list_entry(link, struct hf_rpc_probe, link);

		probe->pulse = last_pulse(probe, was_reset);
		probe->connection = NULL;
		/* The timer runs already, so restarting it cannot fail. */
		(void)hf_timer_start(&probe->timer, 0);
	}
}

static void on_look(struct hf_timer *timer)
{
	struct hf_rpc_probe *probe = hf_container_of(timer, struct hf_rpc_probe, timer);
	uint64_t heard_at;
	uint32_t n_asked;

	if (!probe->connection)
		end(probe, probe->pulse);
	else if (when_heard(probe->connection, &heard_at, &n_asked) && is_acknowledged(probe, heard_at))
		end(probe, HF_RPC_PULSE_ALIVE);
	else if (hf_loop_now(timer->loop) >= probe->deadline || hf_timer_start(timer, LOOK_NS) < 0)
		end(probe, HF_RPC_PULSE_SILENT);
}

struct hf_rpc_probe *hf_rpc_probe_start(const struct hf_rpc_call *call, uint64_t number, uint64_t timeout_ns,
					hf_rpc_pulse_fn fn, void *user)
{
	struct hf_rpc_connection *c = find(call, number);
	struct hf_rpc_probe *probe = c ? calloc(1, sizeof(*probe)) : NULL;
	struct hf_loop *loop = call->lane->loop;

	if (!probe)
		return NULL;
	hf_timer_init(&probe->timer, loop, on_look);
	if (!when_heard(c, &probe->heard_at, &probe->n_asked) || hf_socket_probe(c->socket, true) < 0 ||
	    hf_timer_start(&probe->timer, LOOK_NS) < 0) {
		free(probe);
		return NULL;
	}
	probe->connection = c;
	probe->deadline = hf_loop_now(loop) + timeout_ns;
	probe->fn = fn;
	probe->user = user;
	hf_list_push_back(&c->probes, &probe->link);
	return probe;
}
