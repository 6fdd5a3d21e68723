/* Does the server accept a connection, and which lane gets it? */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "rpc/server_internal.h"

#define ACCEPTS_A_TURN  64
#define EVICT_AFTER_NS  (1 * HF_NS_PER_S)
#define RETRY_ACCEPT_NS (50 * HF_NS_PER_MS)
#define MAX_ARRIVING    256 /* connections on their way to another lane, to replace one there */
#define CLOSED_AT_ONCE  8

struct listener {
	struct hf_link link;
	struct hf_rpc_lane *lane;
	struct hf_socket *socket;
	struct hf_timer retry;
};

static void on_connection(void *user, unsigned int events);

/* Arrivals */

/* A connection on its way to its lane. Without a socket: an order to that lane to close a connection. */
struct arrival {
	struct hf_task task;
	struct hf_rpc_lane *lane;
	struct hf_socket *socket; /* NULL: none */
	struct hf_addr peer;
	struct hf_host *host;
	struct hf_host *victim; /* the address that must make room; NULL: there is room */
	size_t chosen;          /* the lane where it must */
	uint64_t unused_ns;     /* close a connection that completed no call for this long */
};

static bool is_over(const struct hf_rpc_server *server, size_t more)
{
	return atomic_load_explicit(&server->n_connections, memory_order_relaxed) +
		       atomic_load_explicit(&server->n_shells, memory_order_relaxed) + more >
	       server->limits.max_connections;
}

static void refuse(struct hf_rpc_lane *lane, struct hf_socket *socket, enum hf_limit limit,
		   const struct hf_addr *peer, const char *why)
{
	hf_rpc_note_refusal(lane, limit, peer, "connection refused", why);
	hf_socket_close(socket);
}

/* False: no connection could be closed. */
static bool make_room(const struct arrival *arrival)
{
	struct hf_rpc_server *server = arrival->lane->server;
	bool has_evicted =
		!arrival->lane->is_closed &&
		hf_rpc_budget_evict(arrival->lane, hf_host_part(arrival->victim, arrival->lane->index),
				    arrival->unused_ns);

	hf_hosts_end_choice(server->hosts, arrival->victim, arrival->chosen);
	atomic_fetch_sub_explicit(&server->n_arriving, 1, memory_order_relaxed);
	return has_evicted;
}

/* Runs on the lane's thread. */
static void arrive(const struct arrival *arrival)
{
	struct hf_rpc_server *server = arrival->lane->server;
	bool has_room = !arrival->victim || make_room(arrival);

	if (!arrival->socket)
		return;
	if (has_room || !is_over(server, 0)) {
		hf_rpc_connection_start(arrival->lane, arrival->socket, &arrival->peer, arrival->host);
		return;
	}
	refuse(arrival->lane, arrival->socket, HF_LIMIT_CONNECTIONS, &arrival->peer, "too-many-connections");
	atomic_fetch_sub_explicit(&server->n_connections, 1, memory_order_relaxed);
	hf_hosts_close(server->hosts, arrival->host, hf_loop_now(arrival->lane->loop));
	hf_hosts_leave(server->hosts, arrival->host);
}

static void on_arrival(struct hf_task *task)
{
	struct arrival *arrival = hf_container_of(task, struct arrival, task);

	arrive(arrival);
	free(arrival);
}

static void send_to_lane(struct hf_rpc_lane *home, struct arrival *arrival)
{
	struct arrival *sent = arrival->lane != home ? malloc(sizeof(*sent)) : NULL;

	if (!sent) {
		/* No memory: home takes it, and cannot close a connection of another lane. */
		arrival->lane = home;
		arrive(arrival);
		return;
	}
	if (arrival->socket)
		hf_socket_move(&arrival->socket, arrival->lane->loop);
	*sent = *arrival;
	hf_task_init(&sent->task, on_arrival);
	hf_loop_post(sent->lane->loop, &sent->task);
}

/* Too many connections: the address with the most gives one up, if it then still has as many as the
 * newcomer's address. Otherwise all addresses have their part, and only a connection without recent use is
 * closed. Only the thread of its lane can close it, so the newcomer goes to that lane. */
static bool choose_victim(struct hf_rpc_server *server, struct arrival *arrival)
{
	struct hf_host_choice choice;

	if (atomic_load_explicit(&server->n_arriving, memory_order_relaxed) >= MAX_ARRIVING ||
	    !hf_hosts_choose(server->hosts, arrival->host, &choice))
		return false;
	atomic_fetch_add_explicit(&server->n_arriving, 1, memory_order_relaxed);
	arrival->victim = choice.host;
	arrival->chosen = choice.lane;
	arrival->lane = server->lanes[choice.lane];
	arrival->unused_ns = choice.has_more ? 0 : EVICT_AFTER_NS;
	return true;
}

static void admit(struct hf_rpc_lane *home, struct hf_socket *socket, const struct hf_addr *peer)
{
	struct hf_rpc_server *server = home->server;
	struct arrival arrival = { .socket = socket, .peer = *peer };

	arrival.host = hf_hosts_enter(server->hosts, peer, server->n_lanes);
	if (!arrival.host) {
		refuse(home, socket, HF_LIMIT_CONNECTIONS_PER_ADDRESS, peer,
		       "too-many-connections-from-this-address");
		return;
	}
	if (!is_over(server, 1)) {
		arrival.lane = server->lanes[server->n_dealt++ % server->n_lanes];
	} else if (!choose_victim(server, &arrival)) {
		refuse(home, socket, HF_LIMIT_CONNECTIONS, peer, "too-many-connections");
		hf_hosts_close(server->hosts, arrival.host, hf_loop_now(home->loop));
		hf_hosts_leave(server->hosts, arrival.host);
		return;
	}
	atomic_fetch_add_explicit(&server->n_connections, 1, memory_order_relaxed);
	send_to_lane(home, &arrival);
}

/* No descriptors are left. */
static void close_unused(struct hf_rpc_lane *home)
{
	for (int i = 0; i < CLOSED_AT_ONCE; i++) {
		struct arrival arrival = { 0 };

		if (!choose_victim(home->server, &arrival))
			return;
		send_to_lane(home, &arrival);
	}
}

/* Listening */

static void on_retry(struct hf_timer *timer)
{
	struct listener *listener = hf_container_of(timer, struct listener, retry);

	hf_socket_watch(listener->socket, HF_SOCKET_READ, on_connection, listener);
}

/* No descriptors or memory: the connection stays in the kernel's queue. Asking again at once would only take
 * time from the open connections. */
static void pause_accepting(struct listener *listener, int error)
{
	uint64_t n_suppressed;

	if (hf_log_limit_allow(&listener->lane->refusals, hf_loop_now(listener->lane->loop), &n_suppressed))
		hf_log_error("cannot accept connections for now; raise the limit of open files",
			     "error=%s more=%llu", strerrorname_np(-error), (unsigned long long)n_suppressed);
	if (error == -EMFILE || error == -ENFILE)
		close_unused(listener->lane);
	/* Without a timer the loop asks again at once, which is better than never. */
	if (hf_timer_start(&listener->retry, RETRY_ACCEPT_NS) == 0)
		hf_socket_watch(listener->socket, 0, on_connection, listener);
}

static void on_connection(void *user, unsigned int events)
{
	struct listener *listener = user;

	for (int i = 0; i < ACCEPTS_A_TURN; i++) {
		struct hf_socket *socket;
		struct hf_addr peer;
		int r = hf_tcp_accept(&socket, listener->socket, &peer);

		if (r == 0)
			admit(listener->lane, socket, &peer);
		else if (r == -EAGAIN)
			return;
		else if (r == -EMFILE || r == -ENFILE || r == -ENOBUFS || r == -ENOMEM) {
			pause_accepting(listener, r);
			return;
		}
		/* Any other error belongs to a connection that has ended already. */
	}
}

static void listener_free(struct listener *listener)
{
	hf_timer_stop(&listener->retry);
	hf_socket_close(listener->socket);
	hf_link_remove(&listener->link);
	free(listener);
}

void hf_rpc_listeners_set_keepalive(struct hf_rpc_lane *lane, int keepalive_s)
{
	hf_list_for_each(pos, &lane->listeners)
		(void)hf_socket_set_keepalive(hf_list_entry(pos, struct listener, link)->socket, keepalive_s);
}

int hf_rpc_server_listen_tcp(struct hf_rpc_server *server, const struct hf_addr *addr, uint16_t *portp)
{
	struct hf_rpc_lane *lane = server->lanes[0];
	struct hf_socket_bind bind = { .addr = *addr,
				       .may_be_absent = true,
				       .keepalive_s = server->limits.keepalive_s };
	struct listener *listener = calloc(1, sizeof(*listener));
	struct hf_addr local;
	int r;

	if (!listener)
		return hf_trace(-ENOMEM);
	bind.addr.port = *portp;
	listener->lane = lane;
	hf_list_push_back(&lane->listeners, &listener->link);
	hf_timer_init(&listener->retry, lane->loop, on_retry);
	r = hf_tcp_listen(&listener->socket, lane->loop, &bind);
	if (r == 0)
		r = hf_socket_watch(listener->socket, HF_SOCKET_READ, on_connection, listener);
	if (r < 0) {
		listener_free(listener);
		return r; /* the caller logs the address and what to do */
	}
	hf_socket_local(listener->socket, &local);
	*portp = local.port;
	return 0;
}

void hf_rpc_listeners_close(struct hf_rpc_lane *lane)
{
	hf_list_for_each_safe(link, &lane->listeners)
		listener_free(hf_list_entry(link, struct listener, link));
}
