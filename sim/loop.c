/*
 * The loop backend: the server's clock, random numbers, sockets and workers, in the world. Everything that
 * the server's code does to the outside passes here. So a crash before each of these operations covers every
 * point that the outside can distinguish.
 *
 * This is another thing than the loop of tests and fuzz targets (standin/fake_world.h). There, bytes arrive
 * at once and nothing is lost. Here, the seed decides when a packet comes, how much of a write is taken, and
 * at which operation the process ends, which leaves its memory to the arena. The loop is all that they share
 * (loop/loop.c).
 */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "arena.h"
#include "sim.h"

#define EPOCH_NS     (UINT64_C(1700000000) * SECOND)
#define MAX_UNREAD   256
#define WRITE_ROOM   8192
#define SHORT_WRITES 30 /* in a thousand */

static const struct hf_addr loopback = { .family = AF_INET, .ip = { 127, 0, 0, 1 } };

static struct world *world_of(struct hf_loop *loop)
{
	return ((struct sim_loop *)loop)->world;
}

static struct sock *sock_of(struct hf_socket *socket)
{
	return (struct sock *)socket;
}

/* Sockets, as the kernel has them */

struct sock *sock_new(struct server *server, enum sock_kind kind, const struct hf_addr *local)
{
	struct world *world = server->world;
	struct sock *sock = sim_alloc(sizeof(*sock));

	sock->socket.loop = &server->loop->loop;
	sock->world = world;
	sock->server = server;
	sock->kind = kind;
	sock->local = *local;
	if (!sock->local.port)
		sock->local.port = world->next_port++;
	hf_link_init(&sock->waiting);
	hf_list_init(&sock->queue);
	hf_list_push_back(&server->socks, &sock->link);
	return sock;
}

struct sock *sock_find(struct server *server, enum sock_kind kind, const struct hf_addr *to)
{
	hf_list_for_each(link, &server->socks) {
		struct sock *sock = hf_list_entry(link, struct sock, link);

		if (sock->kind == kind && !sock->is_closed && sock->local.port == to->port &&
		    (hf_addr_is_any(&sock->local) || hf_addr_same_host(&sock->local, to)))
			return sock;
	}
	return NULL;
}

void sock_free(struct sock *sock)
{
	struct hf_link *link;

	while ((link = hf_list_pop_front(&sock->queue))) {
		if (sock->kind == SOCK_DATAGRAMS)
			sim_free(hf_list_entry(link, struct packet, link));
	}
	hf_link_remove(&sock->waiting);
	hf_link_remove(&sock->link);
	sim_free(sock);
}

static void bury(struct world *world)
{
	hf_list_for_each_safe(link, &world->server->socks) {
		struct sock *sock = hf_list_entry(link, struct sock, link);

		if (sock->is_closed)
			sock_free(sock);
	}
}

/* Operations: opening */

static int bind_sock(struct hf_socket **socketp, struct hf_loop *loop, enum sock_kind kind,
		     const struct hf_socket_bind *bind)
{
	struct world *world = world_of(loop);
	struct hf_addr local = bind->addr;

	server_tick(world);
	if (!local.family)
		local.family = AF_INET;
	if (local.port && sock_find(world->server, kind, &local))
		return -EADDRINUSE;
	*socketp = &sock_new(world->server, kind, &local)->socket;
	return 0;
}

static int op_tcp_listen(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind)
{
	return bind_sock(socketp, loop, SOCK_LISTENER, bind);
}

static int op_udp_open(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind)
{
	return bind_sock(socketp, loop, SOCK_DATAGRAMS, bind);
}

static int op_tcp_accept(struct hf_socket **socketp, struct hf_socket *listener, struct hf_addr *peerp)
{
	struct hf_link *link = hf_list_pop_front(&sock_of(listener)->queue);
	struct sock *sock;

	if (!link)
		return -EAGAIN;
	server_tick(world_of(listener->loop));
	node_point(world_of(listener->loop));
	sock = hf_list_entry(link, struct sock, waiting);
	*peerp = sock->conn->client_end;
	*socketp = &sock->socket;
	return 0;
}

static int op_tcp_connect(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind,
			  const struct hf_addr *remote)
{
	struct world *world = world_of(loop);
	struct hf_addr local = bind->addr;
	struct sock *sock;

	server_tick(world);
	if (!local.family)
		local = world->server_addrs[0];
	local.port = 0;
	sock = sock_new(world->server, SOCK_BYTES, &local);
	sock->conn = stream_connect(world, net_host(world, remote), sock, &sock->local, remote);
	*socketp = &sock->socket;
	return 0;
}

static void op_close(struct hf_socket *socket)
{
	struct sock *sock = sock_of(socket);
	struct hf_link *link;

	assert(!sock->is_closed);
	sock->is_closed = true;
	sock->socket.events = 0;
	if (sock->conn)
		stream_close(sock->conn, true);
	sock->conn = NULL;
	if (sock->kind == SOCK_LISTENER)
		while ((link = hf_list_pop_front(&sock->queue)))
			op_close(&hf_list_entry(link, struct sock, waiting)->socket);
}

static int op_watch(struct hf_socket *socket, unsigned int events)
{
	server_wake(sock_of(socket)->server); /* it may be ready already */
	return 0;
}

static int op_move(struct hf_socket **socketp, struct hf_loop *loop)
{
	return 0; /* there is one loop */
}

/* Operations: streams */

static ssize_t op_read(struct hf_socket *socket, void *data, size_t len)
{
	struct conn *conn = sock_of(socket)->conn;
	size_t n = HF_MIN(len, (size_t)conn->in_len);

	server_tick(conn->world);
	node_point(conn->world);
	if (n) {
		memcpy(data, conn->in, n);
		memmove(conn->in, conn->in + n, conn->in_len - n);
		conn->in_len -= (uint32_t)n;
		return (ssize_t)n;
	}
	if (conn->error)
		return conn->error;
	return conn->is_ended ? 0 : -EAGAIN;
}

static size_t unsent(const struct conn *conn)
{
	size_t n = 0;

	for (const struct hf_link *link = conn->down.chunks.head.next; link != &conn->down.chunks.head;
	     link = link->next)
		n++;
	return n;
}

static ssize_t op_write(struct hf_socket *socket, const struct iovec *iov, int n_iov)
{
	struct conn *conn = sock_of(socket)->conn;
	struct world *world = conn->world;
	uint8_t all[WRITE_ROOM];
	size_t len = 0, whole;

	server_tick(world);
	if (conn->error)
		return conn->error;
	node_sends(conn->server);
	if (!conn->is_open || unsent(conn) > 32)
		return -EAGAIN;
	for (int i = 0; i < n_iov; i++) {
		size_t n = HF_MIN(iov[i].iov_len, sizeof(all) - len);

		memcpy(all + len, iov[i].iov_base, n);
		len += n;
	}
	tap_stream(conn, all, len);
	whole = len;
	if (len > 1 && !omits(world, OMIT_DELAYS) && rng_chance(&world->net_rng, SHORT_WRITES))
		len = rng_between(&world->net_rng, 1, len - 1);
	conn->tap_ahead = (uint32_t)(whole - len);
	stream_send(conn, false, all, len);
	return (ssize_t)len;
}

static int op_error(struct hf_socket *socket)
{
	return sock_of(socket)->conn->error;
}

/* The kernel asks the peer's kernel: stream.c decides the answer. */
static void op_drop_unsent(struct hf_socket *socket)
{
	if (sock_of(socket)->conn)
		sock_of(socket)->conn->drops_unsent = true;
}

/* No peer of this world is gone without a word that a question would hear of. */
static int op_set_keepalive(struct hf_socket *socket, int keepalive_s)
{
	return 0;
}

static int op_probe(struct hf_socket *socket, bool is_on)
{
	if (is_on)
		stream_probe(sock_of(socket)->conn);
	return 0;
}

static bool op_heard(struct hf_socket *socket, struct hf_heard *heardp)
{
	const struct conn *conn = sock_of(socket)->conn;

	*heardp = (struct hf_heard){ conn->world->now - conn->heard_at, conn->n_asked };
	return true;
}

static void op_local(struct hf_socket *socket, struct hf_addr *localp)
{
	*localp = sock_of(socket)->local;
}

/* Operations: datagrams */

static int op_receive(struct hf_socket *socket, struct hf_datagram *datagrams, int n)
{
	struct sock *sock = sock_of(socket);
	int got = 0;

	while (got < n && got < HF_DATAGRAM_BATCH) {
		struct hf_link *link = hf_list_pop_front(&sock->queue);
		struct packet *packet;

		if (!link)
			break;
		packet = hf_list_entry(link, struct packet, link);
		datagrams[got].peer = packet->from;
		datagrams[got].local = packet->to;
		datagrams[got].local.port = 0;
		datagrams[got].len = HF_MIN((size_t)packet->len, datagrams[got].len);
		memcpy(datagrams[got].data, packet->bytes, datagrams[got].len);
		sim_free(packet);
		got++;
	}
	server_tick(sock->world);
	node_point(sock->world);
	return got ? got : -EAGAIN;
}

static int op_send(struct hf_socket *socket, const struct hf_datagram *datagrams, int n)
{
	struct sock *sock = sock_of(socket);
	struct world *world = sock->world;

	n = HF_MIN(n, HF_DATAGRAM_BATCH);
	for (int i = 0; i < n; i++) {
		struct hf_addr from = datagrams[i].local.family ? datagrams[i].local : sock->local;

		server_tick(world); /* it may be killed after some of them */
		node_sends(sock->server);
		if (hf_addr_is_any(&from))
			from = datagrams[i].peer.ip[0] == 127 ? loopback : world->server_addrs[0];
		from.port = sock->local.port;
		tap_datagram(world, &datagrams[i].peer, datagrams[i].data, datagrams[i].len);
		net_send(world, &from, &datagrams[i].peer, datagrams[i].data, datagrams[i].len);
	}
	return n;
}

/* Operations: the rest */

/* It stands still while the machine sleeps. */
static uint64_t op_clock(struct hf_loop *loop)
{
	const struct node *node = &((struct sim_loop *)loop)->server->node;

	return world_of(loop)->now - node->slept_ns;
}

static uint64_t op_boottime(struct hf_loop *loop)
{
	return node_clock(((struct sim_loop *)loop)->server);
}

static uint64_t op_wall(struct hf_loop *loop)
{
	return world_of(loop)->now + EPOCH_NS;
}

static void op_random(struct hf_loop *loop, void *out, size_t len)
{
	struct world *world = world_of(loop);
	uint8_t *p = out;

	while (len--)
		*p++ = (uint8_t)(rng_next(&world->server_rng) >> 32);
}

static void op_wake(struct hf_loop *loop)
{
	server_wake(((struct sim_loop *)loop)->server);
}

static void op_free(struct hf_loop *loop)
{
	hf_loop_drain(loop);
	hf_loop_deinit(loop);
}

static int op_work_submit(struct hf_loop *loop, struct hf_work *work)
{
	return -ENOTSUP; /* no code that runs here uses it */
}

static const struct hf_loop_ops ops = {
	.free = op_free,
	.wake = op_wake,
	.clock = op_clock,
	.boottime = op_boottime,
	.wall = op_wall,
	.random = op_random,
	.tcp_listen = op_tcp_listen,
	.tcp_accept = op_tcp_accept,
	.tcp_connect = op_tcp_connect,
	.udp_open = op_udp_open,
	.close = op_close,
	.watch = op_watch,
	.move = op_move,
	.read = op_read,
	.write = op_write,
	.error = op_error,
	.drop_unsent = op_drop_unsent,
	.set_keepalive = op_set_keepalive,
	.probe = op_probe,
	.heard = op_heard,
	.receive = op_receive,
	.send = op_send,
	.local = op_local,
	.work_submit = op_work_submit,
};

struct sim_loop *sim_loop_new(struct world *world)
{
	struct sim_loop *loop = sim_alloc(sizeof(*loop));

	hf_loop_init(&loop->loop, &ops);
	loop->world = world;
	loop->server = world->server;
	if (world->options.is_cluster)
		hf_loop_set_lease(&loop->loop, &world->server->node.lease);
	return loop;
}

/* Turns */

static unsigned int ready_for(const struct sock *sock)
{
	const struct conn *conn = sock->conn;

	if (sock->kind != SOCK_BYTES)
		return (hf_list_is_empty(&sock->queue) ? 0 : HF_SOCKET_READ) |
		       (sock->kind == SOCK_DATAGRAMS ? HF_SOCKET_WRITE : 0);
	if (conn->error)
		return HF_SOCKET_READ | HF_SOCKET_WRITE;
	if (!conn->is_open)
		return 0;
	return (conn->in_len || conn->is_ended ? HF_SOCKET_READ : 0) |
	       (unsent(conn) <= 32 ? HF_SOCKET_WRITE : 0);
}

bool sim_loop_has_work(struct world *world)
{
	struct hf_loop *loop = &world->server->loop->loop;

	if (!hf_list_is_empty(&loop->posts) || !hf_list_is_empty(&loop->deferred))
		return true;
	hf_list_for_each(link, &world->server->socks) {
		struct sock *sock = hf_list_entry(link, struct sock, link);

		if (!sock->is_closed && sock->socket.events & ready_for(sock))
			return true;
	}
	return false;
}

static void serve_sockets(struct world *world)
{
	struct hf_link *last = world->server->socks.head.prev;

	for (struct hf_link *link = world->server->socks.head.next; link != &world->server->socks.head;
	     link = link->next) {
		struct sock *sock = hf_list_entry(link, struct sock, link);
		unsigned int events = sock->is_closed ? 0 : sock->socket.events & ready_for(sock);

		if (events)
			sock->socket.fn(sock->socket.user, events);
		if (link == last)
			break;
	}
}

void sim_loop_turn(struct world *world)
{
	struct hf_loop *loop = &world->server->loop->loop;

	hf_loop_new_turn(loop);
	hf_loop_run_posts(loop);
	disk_complete(world);
	worker_complete(world);
	serve_sockets(world);
	hf_loop_run_timers(loop);
	hf_loop_run_deferred(loop);
	bury(world);
}
