/*
 * Connections: bytes in order, or an end. A partition only delays them, because the kernels send again. If
 * one end is lost, with its host or its process, the other end notices that when it sends something. Until
 * then it is half open.
 */
#include <errno.h>
#include <string.h>

#include "arena.h"
#include "sim.h"

#define AGAIN_NS  (1 * SECOND) /* until bytes that did not get through are sent again */
#define MAX_TRIES 40

static void on_way(struct hf_timer *timer);
static void on_opening(struct hf_timer *timer);
static void on_probe(struct hf_timer *timer);

static void way_init(struct way *way, struct conn *conn)
{
	way->conn = conn;
	hf_list_init(&way->chunks);
	world_timer(conn->world, &way->timer, on_way);
}

static void way_clear(struct way *way)
{
	struct hf_link *link;

	hf_timer_stop(&way->timer);
	while ((link = hf_list_pop_front(&way->chunks)))
		sim_free(hf_list_entry(link, struct chunk, link));
	way->has_end = false;
}

/* Freed when neither end is there. */
static void release(struct conn *conn)
{
	if (conn->sock || conn->has_client)
		return;
	way_clear(&conn->up);
	way_clear(&conn->down);
	hf_timer_stop(&conn->timer);
	hf_timer_stop(&conn->probe_timer);
	hf_link_remove(&conn->link);
	sim_free(conn);
}

/* The ends are told */

static void server_learns(struct conn *conn, int error)
{
	conn->error = error;
	way_clear(&conn->down);
	server_wake(conn->server);
}

static void client_learns(struct conn *conn)
{
	struct host *host = conn->host;

	if (!conn->has_client)
		return;
	conn->has_client = false;
	way_clear(&conn->up);
	host_disconnected(host, conn);
}

void stream_reset(struct conn *conn)
{
	if (conn->sock)
		server_learns(conn, -ECONNRESET);
	client_learns(conn);
	release(conn);
}

/* Opening */

struct conn *stream_connect(struct world *world, struct host *host, struct sock *sock,
			    const struct hf_addr *server_end, const struct hf_addr *client_end)
{
	struct conn *conn = sim_alloc_head(sizeof(*conn), offsetof(struct conn, in));

	conn->world = world;
	conn->host = host;
	conn->host_life = host ? host->life : 0;
	conn->server = world->server;
	conn->machine = conn->server->boot;
	conn->server_end = *server_end;
	conn->client_end = *client_end;
	conn->sock = sock;
	conn->has_client = !sock;
	way_init(&conn->up, conn);
	way_init(&conn->down, conn);
	hf_list_push_back(&world->conns, &conn->link);
	world_timer(world, &conn->timer, on_opening);
	world_timer(world, &conn->probe_timer, on_probe);
	hf_timer_start(&conn->timer, net_delay(world));
	return conn;
}

static bool is_cut(const struct conn *conn)
{
	return !conn->host || conn->host->cut_in || conn->host->cut_out || conn->server->node.has_no_clients;
}

static void open_by_server(struct conn *conn)
{
	struct host *host = conn->host;

	if (is_cut(conn) || !host->is_up || node_holder(conn->world) != conn->server) {
		if (++conn->tries < MAX_TRIES)
			hf_timer_start(&conn->timer, AGAIN_NS);
		else
			server_learns(conn, -ETIMEDOUT);
		return;
	}
	conn->host_life = host->life;
	if (!host_listens(host, conn->client_end.port, true)) {
		server_learns(conn, -ECONNREFUSED);
		return;
	}
	conn->is_open = conn->has_client = true;
	server_wake(conn->server);
}

static void open_by_client(struct conn *conn)
{
	struct world *world = conn->world;
	struct server *holder = node_holder(world);
	struct sock *listener;

	if (holder)
		conn->server = holder;
	if (is_cut(conn) || !holder) {
		if (++conn->tries < MAX_TRIES) {
			hf_timer_start(&conn->timer, AGAIN_NS);
			return;
		}
		client_learns(conn);
		release(conn);
		return;
	}
	listener = holder->is_up ? sock_find(holder, SOCK_LISTENER, &conn->server_end) : NULL;
	if (!listener) {
		client_learns(conn);
		release(conn);
		return;
	}
	conn->machine = holder->boot;
	conn->sock = sock_new(conn->server, SOCK_BYTES, &conn->server_end);
	conn->sock->conn = conn;
	conn->is_open = true;
	conn->heard_at = world->now;
	hf_list_push_back(&listener->queue, &conn->sock->waiting);
	server_wake(conn->server);
	host_connected(conn->host);
}

static void on_opening(struct hf_timer *timer)
{
	struct conn *conn = hf_container_of(timer, struct conn, timer);

	if (conn->sock)
		open_by_server(conn);
	else
		open_by_client(conn);
}

/* Bytes */

static void queue_chunk(struct way *way, const void *data, size_t len)
{
	struct chunk *chunk = sim_alloc_head(sizeof(*chunk) + len, sizeof(*chunk));

	chunk->sent_at = way->conn->world->now;
	chunk->len = (uint32_t)len;
	memcpy(chunk->bytes, data, len);
	hf_list_push_back(&way->chunks, &chunk->link);
	if (!hf_timer_is_running(&way->timer))
		hf_timer_start(&way->timer,
			       net_delay(way->conn->world) +
				       (way == &way->conn->down ? way->conn->server->node.lag : 0));
}

/* In one segment with bytes that have yet to leave. */
static bool join_last(struct way *way, const void *data, size_t len)
{
	struct hf_link *link = way->chunks.head.prev;
	struct chunk *last, *both;

	if (hf_list_is_empty(&way->chunks))
		return false;
	last = hf_list_entry(link, struct chunk, link);
	both = sim_alloc(sizeof(*both) + last->len + len);
	both->sent_at = last->sent_at;
	both->len = (uint32_t)(last->len + len);
	memcpy(both->bytes, last->bytes, last->len);
	memcpy(both->bytes + last->len, data, len);
	hf_link_remove(&last->link);
	sim_free(last);
	hf_list_push_back(&way->chunks, &both->link);
	return true;
}

void stream_send(struct conn *conn, bool to_server, const void *data, size_t len)
{
	if (to_server && pipe_joins_segment(conn->host) && join_last(&conn->up, data, len))
		return;
	queue_chunk(to_server ? &conn->up : &conn->down, data, len);
}

static void take_at_server(struct conn *conn, const struct chunk *chunk)
{
	conn->heard_at = conn->world->now;
	if (conn->in_len + chunk->len > sizeof(conn->in))
		return; /* far more than any client here has under way */
	memcpy(conn->in + conn->in_len, chunk->bytes, chunk->len);
	conn->in_len += chunk->len;
	world_note_bytes(conn->world, chunk->bytes, chunk->len);
	server_wake(conn->server);
}

/* Complete records, of one fragment each, as the server makes them. */
static void take_at_client(struct conn *conn, const struct chunk *chunk)
{
	uint32_t len;

	if (conn->record_len + chunk->len > sizeof(conn->record))
		return;
	memcpy(conn->record + conn->record_len, chunk->bytes, chunk->len);
	conn->record_len += chunk->len;
	world_note_bytes(conn->world, chunk->bytes, chunk->len);
	while (conn->has_client && conn->record_len >= 4) {
		uint8_t record[STREAM_ROOM];

		len = (uint32_t)(conn->record[0] & 0x7f) << 24 | (uint32_t)conn->record[1] << 16 |
		      (uint32_t)conn->record[2] << 8 | conn->record[3];
		if (conn->record_len < 4 + len)
			break;
		memcpy(record, conn->record + 4, len);
		conn->record_len -= 4 + len;
		memmove(conn->record, conn->record + 4 + len, conn->record_len);
		host_message(conn->host, &conn->server_end, conn->client_end.port, conn, record, len,
			     chunk->sent_at);
	}
}

static bool is_other_end_there(const struct way *way)
{
	const struct conn *conn = way->conn;

	if (way == &conn->up) /* the kernel of another node knows nothing of it */
		return conn->sock != NULL && node_holder(conn->world) == conn->server;
	return conn->has_client && conn->host->is_up && conn->host->life == conn->host_life;
}

/* A kernel asks when nothing came for a second, and then each second. The answer takes no time. */
void stream_probe(struct conn *conn)
{
	uint64_t silence = conn->world->now - conn->heard_at;

	if (!hf_timer_is_running(&conn->probe_timer))
		hf_timer_start(&conn->probe_timer, SECOND - HF_MIN(silence, SECOND));
}

static void on_probe(struct hf_timer *timer)
{
	struct conn *conn = hf_container_of(timer, struct conn, probe_timer);
	struct host *host = conn->host;

	if (!conn->sock || conn->error)
		return;
	conn->n_asked++;
	if (is_cut(conn) || !host->is_up || node_holder(conn->world) != conn->server) {
		hf_timer_start(timer, SECOND);
		return;
	}
	if (conn->has_client && host->life == conn->host_life) {
		conn->heard_at = conn->world->now;
		conn->n_asked--;
		return;
	}
	conn->has_client = false;
	server_learns(conn, -ECONNRESET);
}

/* There is no other end, and its kernel, if there is one, says so. */
static void refuse(struct way *way)
{
	struct conn *conn = way->conn;

	if (way == &conn->up) {
		client_learns(conn);
	} else {
		conn->has_client = false;
		conn->n_asked++;
		server_learns(conn, -ECONNRESET);
	}
	release(conn);
}

static void end_way(struct way *way)
{
	struct conn *conn = way->conn;

	if (way == &conn->up) {
		conn->is_ended = true;
		server_wake(conn->server);
	} else {
		client_learns(conn);
		release(conn);
	}
}

static bool is_blocked(const struct way *way)
{
	const struct conn *conn = way->conn;

	const struct server *holder = node_holder(conn->world);

	if (way == &conn->up)
		return conn->host->cut_in || !holder || holder->node.has_no_clients;
	return conn->host->cut_out || !conn->host->is_up ||
	       (conn->world->options.is_cluster &&
		(holder != conn->server || conn->server->node.has_no_clients));
}

static void on_way(struct hf_timer *timer)
{
	struct way *way = hf_container_of(timer, struct way, timer);
	struct conn *conn = way->conn;
	struct hf_link *link;
	struct chunk *chunk;

	if (is_blocked(way)) {
		if (++way->tries < MAX_TRIES)
			hf_timer_start(timer, AGAIN_NS);
		else
			stream_reset(conn);
		return;
	}
	way->tries = 0;
	if (!is_other_end_there(way)) {
		refuse(way);
		return;
	}
	link = hf_list_pop_front(&way->chunks);
	if (!link) {
		if (way->has_end)
			end_way(way);
		return;
	}
	if (!hf_list_is_empty(&way->chunks) || way->has_end)
		hf_timer_start(timer, net_delay(conn->world));
	chunk = hf_list_entry(link, struct chunk, link);
	if (way == &conn->up)
		take_at_server(conn, chunk);
	else
		take_at_client(conn, chunk);
	sim_free(chunk);
	/* @conn may be freed here */
}

/* Ends */

void stream_close(struct conn *conn, bool by_server)
{
	struct way *way = by_server ? &conn->down : &conn->up;
	bool is_other_there = by_server ? conn->has_client : conn->sock != NULL;

	if (by_server) {
		conn->sock = NULL;
		hf_timer_stop(&conn->timer);
		if (conn->drops_unsent)
			way_clear(&conn->down);
	} else {
		/* It will be opened again from the same port, as in Linux: bytes under way on this one do not
		 * arrive after that. */
		conn->has_client = false;
		way_clear(&conn->up);
	}
	if (is_other_there && conn->is_open) {
		way->has_end = true;
		if (!hf_timer_is_running(&way->timer))
			hf_timer_start(&way->timer, net_delay(conn->world));
	} else {
		release(conn);
	}
}

void stream_host_died(struct host *host)
{
	hf_list_for_each_safe(link, &host->world->conns) {
		struct conn *conn = hf_list_entry(link, struct conn, link);

		if (conn->host != host)
			continue; /* one that it has closed may still have something to send */
		conn->has_client = false;
		way_clear(&conn->up);
		release(conn);
	}
	host->conn = NULL;
}

/* A kernel closes the connections of a process that dies. A machine that dies says nothing. */
void stream_server_died(struct world *world, bool is_machine)
{
	hf_list_for_each_safe(link, &world->conns) {
		struct conn *conn = hf_list_entry(link, struct conn, link);

		if (!conn->sock || conn->server != world->server)
			continue;
		conn->sock = NULL;
		hf_timer_stop(&conn->timer);
		if (is_machine || !conn->is_open) {
			way_clear(&conn->down);
			release(conn);
			continue;
		}
		conn->down.has_end = true;
		if (!hf_timer_is_running(&conn->down.timer))
			hf_timer_start(&conn->down.timer, net_delay(world));
	}
}
