/* Where connections come in, where those over a limit are turned away, and the others dealt out to the lanes.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "rpc/server_internal.h"

#define ACCEPTS_A_TURN  64
#define EVICT_AFTER_NS  (1 * HF_NS_PER_S)
#define RETRY_ACCEPT_NS (100 * HF_NS_PER_MS)

struct listener {
	struct hf_link link;
	struct hf_rpc_lane *lane;
	struct hf_socket *socket;
	struct hf_timer retry;
};

static void on_connection(void *user, unsigned int events);

void hf_rpc_note_refusal(struct hf_rpc_lane *lane, const struct hf_addr *peer, const char *what,
			 const char *why)
{
	char text[HF_ADDR_TEXT];
	uint64_t n_suppressed;

	hf_rpc_count(&lane->n_refused);
	if (hf_log_limit_allow(&lane->refusals, hf_loop_now(lane->loop), &n_suppressed))
		hf_log_warn(what, "peer=%s reason=%s more=%llu", hf_addr_format(peer, text, sizeof(text)),
			    why, (unsigned long long)n_suppressed);
}

/* A connection with nothing to do makes room for one that has: its client comes back when it needs to. We see
 * those of our own lane alone, so the new one has to stay here (*is_swappedp): if it were dealt to another,
 * soon all would be there, and nobody would make room any more. */
static bool make_room(struct hf_rpc_lane *lane, bool *is_swappedp)
{
	struct hf_rpc_server *server = lane->server;
	struct hf_link *link = hf_list_first(&lane->idle);
	struct hf_rpc_connection *oldest;

	*is_swappedp = false;
	if (atomic_load_explicit(&server->n_connections, memory_order_relaxed) +
		    atomic_load_explicit(&server->n_shells, memory_order_relaxed) <
	    server->limits.max_connections)
		return true;
	if (!link)
		return false;
	oldest = hf_list_entry(link, struct hf_rpc_connection, link);
	if (oldest->n_kept || hf_loop_now(lane->loop) - oldest->since < EVICT_AFTER_NS)
		return false;
	hf_rpc_connection_close(oldest);
	*is_swappedp = true;
	return true;
}

/* A connection on its way to the lane it was dealt to. */
struct arrival {
	struct hf_task task;
	struct hf_rpc_lane *lane;
	struct hf_socket *socket;
	struct hf_addr peer;
};

static void arrive(struct hf_task *task)
{
	struct arrival *arrival = hf_container_of(task, struct arrival, task);

	hf_rpc_connection_start(arrival->lane, arrival->socket, &arrival->peer);
	free(arrival);
}

static void deal(struct hf_rpc_lane *home, struct hf_socket *socket, const struct hf_addr *peer, bool stays)
{
	struct hf_rpc_server *server = home->server;
	struct hf_rpc_lane *lane = stays ? home : server->lanes[server->n_dealt++ % server->n_lanes];
	struct arrival *arrival = lane != home ? malloc(sizeof(*arrival)) : NULL;

	atomic_fetch_add_explicit(&server->n_connections, 1, memory_order_relaxed);
	if (!arrival) {
		hf_rpc_connection_start(home, socket, peer);
		return;
	}
	hf_socket_move(&socket, lane->loop);
	*arrival = (struct arrival){ .lane = lane, .socket = socket, .peer = *peer };
	hf_task_init(&arrival->task, arrive);
	hf_loop_post(lane->loop, &arrival->task);
}

static void admit(struct hf_rpc_lane *lane, struct hf_socket *socket, const struct hf_addr *peer)
{
	struct hf_rpc_server *server = lane->server;
	const char *why = NULL;
	bool is_swapped;

	/* His own limit first: who is over it must not cost others their connections. */
	if (!hf_hosts_enter(server->hosts, peer, server->limits.max_connections_per_host)) {
		why = "too-many-connections-from-this-address";
	} else if (!make_room(lane, &is_swapped)) {
		hf_hosts_leave(server->hosts, peer);
		why = "too-many-connections";
	}
	if (why) {
		hf_rpc_note_refusal(lane, peer, "connection refused", why);
		hf_socket_close(socket);
	} else {
		deal(lane, socket, peer, is_swapped);
	}
}

static void on_retry(struct hf_timer *timer)
{
	struct listener *listener = hf_container_of(timer, struct listener, retry);

	hf_socket_watch(listener->socket, HF_SOCKET_READ, on_connection, listener);
}

/* Out of descriptors or memory: the connection stays in the kernel's queue, and asking again at once would
 * only keep us from those we have. */
static void pause_accepting(struct listener *listener, int error)
{
	uint64_t n_suppressed;

	if (hf_log_limit_allow(&listener->lane->refusals, hf_loop_now(listener->lane->loop), &n_suppressed))
		hf_log_error("cannot accept connections for now; raise the limit of open files",
			     "error=%s more=%llu", strerrorname_np(-error), (unsigned long long)n_suppressed);
	/* Without a timer we are asked again at once, which is better than never. */
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
		/* Whatever else it was befell a connection that is gone by now. */
	}
}

static void listener_free(struct listener *listener)
{
	hf_timer_stop(&listener->retry);
	hf_socket_close(listener->socket);
	hf_link_remove(&listener->link);
	free(listener);
}

int hf_rpc_server_listen_tcp(struct hf_rpc_server *server, const struct hf_addr *addr, uint16_t *portp)
{
	struct hf_rpc_lane *lane = server->lanes[0];
	struct hf_socket_bind bind = { .addr = *addr };
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
		return r; /* the caller says where it could not listen, and what to do */
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
