/*
 * Exchanges over TCP: on shared connections, or on one of their own.
 *
 * A shared connection is found by (remote address and port, local address, reserved or not).
 * After a call got no reply in time, its connection takes no new calls: the peer may have
 * rebooted, and no packet will ever tell. When it is closed, the call must not reach the peer any more: a
 * GRANTED that arrives a minute late would tell of a lock that its owner has changed since.
 *
 * Only idle_or_free() and lost() free a connection, and never while its own events are being served.
 */
#include "rpc/client_tcp.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

#define READ_SIZE      65536
#define RESERVED_TRIES 4

static void on_event(void *user, unsigned int events);
static void on_flush(struct hf_task *task);
static void on_idle(struct hf_timer *timer);

static struct connection_key key_of(const struct hf_rpc_exchange *exchange)
{
	return (struct connection_key){ exchange->remote, exchange->local, exchange->reserved };
}

static void withdraw(struct hf_rpc_client_connection *connection)
{
	if (connection->is_shared)
		hf_hashtable_remove(&connection->client->connections, &connection->node);
	connection->is_shared = false;
}

static void connection_free(struct hf_rpc_client_connection *connection)
{
	assert(!connection->is_busy);
	withdraw(connection);
	hf_link_remove(&connection->link);
	hf_link_remove(&connection->idle_link);
	hf_task_cancel(&connection->flush);
	hf_timer_stop(&connection->timer);
	hf_socket_close(connection->socket);
	hf_record_reader_deinit(&connection->reader);
	free(connection->rest);
	connection->client->n_connections--;
	free(connection);
}

static bool close_longest_idle(struct hf_rpc_client *client)
{
	struct hf_link *link = hf_list_first(&client->idle);

	if (link)
		connection_free(hf_list_entry(link, struct hf_rpc_client_connection, idle_link));
	return link != NULL;
}

static bool is_full(const struct hf_rpc_client *client, bool is_modest)
{
	return client->n_connections >= client->limits.max_connections / (is_modest ? 2 : 1);
}

static int open_socket(struct hf_rpc_client_connection *connection)
{
	const struct connection_key *key = &connection->key;
	struct hf_socket_bind bind = { .addr = key->local, .reserved = key->reserved };
	int r;

	/* An old connection to this peer may still have this reserved port: try another. */
	for (int i = 0; i < RESERVED_TRIES; i++) {
		r = hf_tcp_connect(&connection->socket, connection->client->loop, &bind, &key->remote);
		if (r == -EMFILE && close_longest_idle(connection->client))
			continue;
		if (r != -EADDRNOTAVAIL || !key->reserved)
			break;
	}
	if (r < 0)
		return r;
	return hf_socket_watch(connection->socket, HF_SOCKET_WRITE, on_event, connection);
}

static void connection_init(struct hf_rpc_client_connection *connection, struct hf_rpc_client *client)
{
	connection->client = client;
	hf_link_init(&connection->idle_link);
	hf_list_init(&connection->queue);
	hf_list_init(&connection->sent);
	hf_task_init(&connection->flush, on_flush);
	hf_timer_init(&connection->timer, client->loop, on_idle);
	hf_record_reader_init(&connection->reader, client->limits.max_reply);
	hf_list_push_back(&client->all_connections, &connection->link);
	client->n_connections++;
}

static uint64_t hash_of(const struct hf_rpc_client *client, const struct connection_key *key)
{
	return hf_siphash(&client->key, key, sizeof(*key));
}

static void offer(struct hf_rpc_client_connection *connection)
{
	struct hf_rpc_client *client = connection->client;

	hf_hashtable_insert(&client->connections, &connection->node, hash_of(client, &connection->key));
	connection->is_shared = true;
}

static int connection_new(struct hf_rpc_client_connection **connectionp,
			  const struct hf_rpc_exchange *exchange)
{
	struct hf_rpc_client *client = exchange->client;
	struct hf_rpc_client_connection *connection;
	int r;

	if (is_full(client, exchange->is_modest) && !close_longest_idle(client))
		return -EMFILE;
	if (!client->input)
		client->input = malloc(READ_SIZE);
	connection = client->input ? calloc(1, sizeof(*connection)) : NULL;
	if (!connection)
		return -ENOMEM;
	connection_init(connection, client);
	connection->key = key_of(exchange);
	r = open_socket(connection);
	if (r < 0) {
		connection_free(connection);
		return r;
	}
	if (!exchange->fresh)
		offer(connection);
	*connectionp = connection;
	return 0;
}

static struct hf_rpc_client_connection *find_shared(const struct hf_rpc_exchange *exchange)
{
	struct hf_rpc_client *client = exchange->client;
	struct connection_key key = key_of(exchange);

	hf_hash_for_each(node, &client->connections, hash_of(client, &key)) {
		struct hf_rpc_client_connection *connection =
			hf_container_of(node, struct hf_rpc_client_connection, node);

		if (memcmp(&connection->key, &key, sizeof(key)) == 0)
			return connection;
	}
	return NULL;
}

/* Decides what becomes of a connection that may be unused. It may be freed here. */
static void idle_or_free(struct hf_rpc_client_connection *connection)
{
	if (connection->is_busy || !hf_list_is_empty(&connection->queue) ||
	    !hf_list_is_empty(&connection->sent))
		return;
	if (!connection->is_open || !connection->is_shared) {
		connection_free(connection);
		return;
	}
	if (hf_link_is_linked(&connection->idle_link))
		return;
	hf_list_push_back(&connection->client->idle, &connection->idle_link);
	if (hf_timer_start(&connection->timer, connection->client->limits.idle_ns) < 0)
		connection_free(connection);
}

static void on_idle(struct hf_timer *timer)
{
	connection_free(hf_container_of(timer, struct hf_rpc_client_connection, timer));
}

/* Breaking */

static enum hf_rpc_outcome outcome_of_loss(bool was_open, int error)
{
	if (!was_open)
		return hf_rpc_outcome_of_errno(error);
	return error == -EMSGSIZE ? HF_RPC_OUTCOME_GARBAGE : HF_RPC_OUTCOME_BROKEN;
}

static void reconnect(struct hf_rpc_exchange *exchange)
{
	int r;

	exchange->is_reconnecting = true;
	exchange->client->counts.reconnected++;
	r = hf_rpc_client_tcp_start(exchange);
	if (r < 0)
		hf_exchange_fail(exchange, hf_rpc_outcome_of_errno(r), r);
}

/* Frees the connection. Then its calls move to another one, or end. */
static void lost(struct hf_rpc_client_connection *connection, int error)
{
	struct hf_list orphans = HF_LIST_INIT(orphans);
	bool was_open = connection->is_open;
	struct hf_link *link;

	hf_list_splice(&orphans, &connection->sent);
	hf_list_splice(&orphans, &connection->queue);
	hf_list_for_each(pos, &orphans)
		hf_list_entry(pos, struct hf_rpc_exchange, link)->connection = NULL;
	connection_free(connection);
	while ((link = hf_list_pop_front(&orphans))) {
		struct hf_rpc_exchange *exchange = hf_list_entry(link, struct hf_rpc_exchange, link);

		if (was_open && !exchange->is_reconnecting)
			reconnect(exchange);
		else
			hf_exchange_fail(exchange, outcome_of_loss(was_open, error), error);
	}
}

/* Reading */

static void take(struct hf_rpc_client_connection *connection, struct hf_bytes record)
{
	struct hf_rpc_exchange *exchange = hf_exchange_find(connection->client, record);

	if (!exchange || exchange->transport != HF_RPC_TCP || exchange->connection != connection ||
	    exchange->stage != HF_RPC_STAGE_REPLY)
		connection->client->counts.ignored++;
	else
		hf_exchange_take_reply(exchange, record);
}

static int read_some(struct hf_rpc_client_connection *connection)
{
	ssize_t n = hf_socket_read(connection->socket, connection->client->input, READ_SIZE);
	struct hf_bytes input, record;
	int r;

	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n <= 0)
		return n < 0 ? (int)n : -ECONNRESET;
	input = hf_bytes_of(connection->client->input, (uint32_t)n);
	while ((r = hf_record_read(&connection->reader, &input, &record)) == HF_RECORD_READY)
		take(connection, record);
	return r;
}

/* Events */

static int finish_connecting(struct hf_rpc_client_connection *connection)
{
	int r = hf_socket_error(connection->socket);

	if (r < 0)
		return r;
	connection->is_open = true;
	hf_list_for_each(link, &connection->queue)
		hf_list_entry(link, struct hf_rpc_exchange, link)->stage = HF_RPC_STAGE_SEND;
	return 0;
}

static int serve(struct hf_rpc_client_connection *connection, unsigned int events)
{
	int r = 0;

	if (!connection->is_open)
		r = finish_connecting(connection);
	else if (events & HF_SOCKET_READ)
		r = read_some(connection);
	if (r < 0)
		return r;
	r = hf_rpc_client_connection_write(connection);
	if (r < 0) {
		(void)read_some(connection); /* what the peer sent before it left may still be there */
		return r;
	}
	return hf_socket_watch(connection->socket,
			       HF_SOCKET_READ |
				       (hf_rpc_client_connection_has_output(connection) ? HF_SOCKET_WRITE
											: 0),
			       on_event, connection);
}

static void on_event(void *user, unsigned int events)
{
	struct hf_rpc_client_connection *connection = user;
	int r;

	connection->is_busy = true;
	r = serve(connection, events);
	connection->is_busy = false;
	if (r < 0)
		lost(connection, r);
	else
		idle_or_free(connection);
	/* @connection may be freed here */
}

static void on_flush(struct hf_task *task)
{
	on_event(hf_container_of(task, struct hf_rpc_client_connection, flush), 0);
}

/* For exchanges */

int hf_rpc_client_tcp_start(struct hf_rpc_exchange *exchange)
{
	struct hf_rpc_client_connection *connection = exchange->fresh ? NULL : find_shared(exchange);
	int r;

	if (!connection) {
		r = connection_new(&connection, exchange);
		if (r < 0)
			return r;
	}
	exchange->connection = connection;
	exchange->stage = connection->is_open ? HF_RPC_STAGE_SEND : HF_RPC_STAGE_CONNECT;
	hf_list_push_back(&connection->queue, &exchange->link);
	hf_link_remove(&connection->idle_link);
	hf_timer_stop(&connection->timer);
	if (connection->is_open) /* after the replies of this turn: BLOCKED leaves before GRANTED */
		hf_loop_defer_last(exchange->client->loop, &connection->flush);
	return 0;
}

void hf_rpc_client_tcp_detach(struct hf_rpc_exchange *exchange, bool timed_out)
{
	struct hf_rpc_client_connection *connection = exchange->connection;

	hf_link_remove(&exchange->link);
	exchange->connection = NULL;
	if (!connection)
		return;
	if (connection->rest_owner == exchange)
		connection->rest_owner = NULL;
	if (timed_out) {
		withdraw(connection);
		hf_socket_drop_unsent(connection->socket);
	}
	idle_or_free(connection);
	/* @connection may be freed here */
}

void hf_rpc_client_tcp_deinit(struct hf_rpc_client *client)
{
	struct hf_link *link;

	while ((link = hf_list_first(&client->all_connections)))
		connection_free(hf_list_entry(link, struct hf_rpc_client_connection, link));
	hf_hashtable_deinit(&client->connections);
	free(client->input);
}

bool hf_rpc_client_tcp_sends_from(struct hf_rpc_client *client, const struct hf_addr *source)
{
	struct hf_addr local;

	hf_list_for_each(link, &client->all_connections) {
		hf_socket_local(hf_list_entry(link, struct hf_rpc_client_connection, link)->socket, &local);
		if (hf_addr_equal(&local, source))
			return true;
	}
	return false;
}
