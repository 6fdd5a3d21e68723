/*
 * A UDP port: batches of datagrams in, batches of replies out, each reply from the address
 * that its call was sent to.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "rpc/server_internal.h"

#define MAX_DATAGRAM   65536
#define SMALL_REPLY    1024
#define BATCHES_A_TURN 4

struct hf_rpc_port {
	struct hf_link link;
	struct hf_rpc_lane *lane;
	struct hf_socket *socket;
	struct hf_task flush;
	size_t n_suspended;
	size_t suspended_bytes;
	bool is_reading;
	uint8_t *in; /* HF_DATAGRAM_BATCH times MAX_DATAGRAM; unused pages cost nothing */
	int n_out;
	struct hf_datagram out[HF_DATAGRAM_BATCH];
	size_t room[HF_DATAGRAM_BATCH]; /* of out[].data */
};

/* Out */

/* What the kernel does not take now is lost, as datagrams are: the client repeats its call. */
static void send_all(struct hf_rpc_port *port)
{
	int sent = 0;

	hf_rpc_meters_add_up(port->lane);
	while (sent < port->n_out) {
		int r = hf_udp_send(port->socket, port->out + sent, port->n_out - sent);

		if (r == -EAGAIN || r == -ENOBUFS)
			break;
		sent += r > 0 ? r : 1; /* a reply that cannot be sent must not stop the others */
	}
	port->n_out = 0;
}

static void on_flush(struct hf_task *task)
{
	send_all(hf_container_of(task, struct hf_rpc_port, flush));
}

bool hf_rpc_port_is_open(const struct hf_rpc_port *port)
{
	return port->socket != NULL;
}

uint8_t *hf_rpc_port_reserve(struct hf_rpc_port *port, size_t len)
{
	int i;

	if (len > MAX_DATAGRAM)
		return NULL;
	if (port->n_out == HF_DATAGRAM_BATCH)
		send_all(port);
	i = port->n_out;
	if (port->room[i] < len) {
		size_t room = len <= SMALL_REPLY ? SMALL_REPLY : MAX_DATAGRAM;
		void *data = realloc(port->out[i].data, room);

		if (!data)
			return NULL;
		port->out[i].data = data;
		port->room[i] = room;
	}
	return port->out[i].data;
}

static void commit(struct hf_rpc_port *port, const struct hf_addr *local, const struct hf_addr *to,
		   size_t len)
{
	struct hf_datagram *datagram = &port->out[port->n_out++];

	datagram->len = len;
	datagram->peer = *to;
	datagram->local = *local;
	if (!port->is_reading)
		hf_loop_defer(port->lane->loop, &port->flush);
}

void hf_rpc_port_commit(struct hf_rpc_port *port, struct hf_rpc_call *call, size_t len)
{
	commit(port, &call->local, &call->peer, len);
}

void hf_rpc_server_send(struct hf_rpc_server *server, const struct hf_addr *local, const struct hf_addr *to,
			struct hf_bytes message)
{
	hf_list_for_each(link, &server->lanes[0]->ports) {
		struct hf_rpc_port *port = hf_list_entry(link, struct hf_rpc_port, link);
		struct hf_addr bound;
		uint8_t *room;

		hf_socket_local(port->socket, &bound);
		if (bound.family != to->family ||
		    (!hf_addr_is_any(&bound) && !hf_addr_same_host(&bound, local)))
			continue;
		room = hf_rpc_port_reserve(port, message.len);
		if (!room)
			return;
		memcpy(room, message.data, message.len);
		commit(port, local, to, message.len);
		return;
	}
}

/* Suspended calls */

void hf_rpc_port_note_suspended(struct hf_rpc_port *port, size_t len)
{
	port->n_suspended++;
	port->suspended_bytes += len;
	atomic_fetch_add_explicit(&port->lane->server->n_datagrams, 1, memory_order_relaxed);
}

void hf_rpc_port_expect(struct hf_rpc_port *port, size_t len)
{
	port->suspended_bytes += len;
}

bool hf_rpc_port_may_suspend(struct hf_rpc_port *port)
{
	const struct hf_rpc_limits *limits = &port->lane->server->limits;

	return port->n_suspended < 16 * limits->max_suspended_per_connection &&
	       port->suspended_bytes < 8 * limits->max_suspended_bytes;
}

static void port_free(struct hf_rpc_port *port)
{
	for (int i = 0; i < HF_DATAGRAM_BATCH; i++)
		free(port->out[i].data);
	free(port->in);
	free(port);
}

void hf_rpc_port_release(struct hf_rpc_port *port, size_t len)
{
	assert(port->n_suspended > 0);
	port->n_suspended--;
	atomic_fetch_sub_explicit(&port->lane->server->n_datagrams, 1, memory_order_relaxed);
	port->suspended_bytes -= len;
	if (!port->socket && port->n_suspended == 0)
		port_free(port);
}

/* In */

/* Too many calls are under way. They go first; the client repeats this one. */
static void drop(struct hf_rpc_port *port)
{
	struct hf_rpc_lane *lane = port->lane;
	uint64_t n_suppressed;

	hf_rpc_count(&lane->n_dropped);
	if (hf_log_limit_allow(&lane->drops, hf_loop_now(lane->loop), &n_suppressed))
		hf_log_warn("a call over UDP was dropped: too many are under way", "under_way=%zu more=%llu",
			    port->n_suspended, (unsigned long long)n_suppressed);
}

static void serve_datagram(struct hf_rpc_port *port, const struct hf_datagram *datagram)
{
	struct hf_rpc_server *server = port->lane->server;
	struct hf_rpc_call *call;

	if (!datagram->len || port->lane->is_ending)
		return;
	if (server->limits.max_contacts)
		hf_hosts_note(server->hosts, &datagram->peer, hf_loop_now(port->lane->loop));
	if (!hf_rpc_port_may_suspend(port)) {
		drop(port);
		return;
	}
	call = hf_rpc_call_new(port->lane, hf_bytes_of(datagram->data, (uint32_t)datagram->len));
	if (!call)
		return;
	call->port = port;
	call->peer = datagram->peer;
	call->local = datagram->local;
	hf_rpc_dispatch(call);
}

static void on_datagrams(void *user, unsigned int events)
{
	struct hf_rpc_port *port = user;
	struct hf_datagram in[HF_DATAGRAM_BATCH];

	hf_rpc_meters_add_up(port->lane);
	port->is_reading = true;
	for (int batch = 0; batch < BATCHES_A_TURN; batch++) {
		int n;

		for (int i = 0; i < HF_DATAGRAM_BATCH; i++) {
			in[i].data = port->in + (size_t)i * MAX_DATAGRAM;
			in[i].len = MAX_DATAGRAM;
		}
		n = hf_udp_receive(port->socket, in, HF_DATAGRAM_BATCH);
		for (int i = 0; i < n; i++)
			serve_datagram(port, &in[i]);
		send_all(port);
		if (n < HF_DATAGRAM_BATCH)
			break;
	}
	port->is_reading = false;
}

int hf_rpc_server_listen_udp(struct hf_rpc_server *server, const struct hf_addr *addr, uint16_t *portp)
{
	struct hf_rpc_lane *lane = server->lanes[0];
	struct hf_socket_bind bind = { .addr = *addr, .may_be_absent = true };
	struct hf_rpc_port *port = calloc(1, sizeof(*port));
	struct hf_addr local;
	int r;

	if (!port)
		return hf_trace(-ENOMEM);
	bind.addr.port = *portp;
	port->lane = lane;
	hf_task_init(&port->flush, on_flush);
	port->in = malloc((size_t)HF_DATAGRAM_BATCH * MAX_DATAGRAM);
	r = port->in ? hf_udp_open(&port->socket, lane->loop, &bind) : -ENOMEM;
	if (r == 0)
		r = hf_socket_watch(port->socket, HF_SOCKET_READ, on_datagrams, port);
	if (r < 0) {
		hf_socket_close(port->socket);
		port_free(port);
		return r; /* the caller logs the address and what to do */
	}
	hf_list_push_back(&lane->ports, &port->link);
	hf_socket_local(port->socket, &local);
	*portp = local.port;
	return 0;
}

void hf_rpc_ports_close(struct hf_rpc_lane *lane)
{
	hf_list_for_each_safe(link, &lane->ports) {
		struct hf_rpc_port *port = hf_list_entry(link, struct hf_rpc_port, link);

		send_all(port);
		hf_task_cancel(&port->flush);
		hf_link_remove(&port->link);
		hf_socket_close(port->socket);
		port->socket = NULL;
		if (port->n_suspended == 0)
			port_free(port);
	}
}
