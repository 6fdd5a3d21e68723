/* A connection of the client, for client_tcp.c and client_tcp_write.c. */
#pragma once

#include "rpc/client_internal.h"
#include "rpc/record.h"

struct connection_key {
	struct hf_addr remote;
	struct hf_addr local; /* port 0 */
	uint32_t reserved;    /* a word, so that there is no padding to hash */
};

struct hf_rpc_client_connection {
	struct hf_rpc_client *client;
	struct connection_key key;
	struct hf_link link;      /* of client->all_connections */
	struct hf_link idle_link; /* of client->idle, while idle */
	struct hf_hash_node node; /* in client->connections, while shared */
	struct hf_socket *socket;
	bool is_shared;
	bool is_open;         /* else connecting */
	bool is_busy;         /* its events are being served */
	struct hf_list queue; /* to be written */
	struct hf_list sent;  /* waiting for their replies */
	struct hf_task flush;
	struct hf_timer timer; /* while idle */
	struct hf_record_reader reader;
	uint8_t *rest; /* of a call that is written in part; NULL: none */
	size_t rest_len;
	size_t rest_done;
	struct hf_rpc_exchange *rest_owner; /* NULL: it was stopped meanwhile */
};

static inline bool hf_rpc_client_connection_has_output(const struct hf_rpc_client_connection *connection)
{
	return connection->rest || !hf_list_is_empty(&connection->queue);
}

/* Writes what can be written now. -errno: the connection cannot be used any more. */
int hf_rpc_client_connection_write(struct hf_rpc_client_connection *connection);
