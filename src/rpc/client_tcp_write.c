/*
 * Writing calls to a connection.
 *
 * A call that is stopped after a part of it was written must still be written to its end, or
 * the stream loses its place. So the connection gets a copy of the rest, and the exchange can
 * end at any time.
 */
#include "rpc/client_tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WRITE_BATCH 32

static int collect(struct hf_rpc_client_connection *connection, struct iovec *iov)
{
	int n = 0;

	if (connection->rest)
		iov[n++] = (struct iovec){ connection->rest + connection->rest_done,
					   connection->rest_len - connection->rest_done };
	hf_list_for_each(link, &connection->queue) {
		struct hf_rpc_exchange *exchange = hf_list_entry(link, struct hf_rpc_exchange, link);
		uint32_t mark = htobe32(HF_RECORD_LAST | exchange->len);

		if (n == WRITE_BATCH)
			break;
		memcpy(exchange->message, &mark, HF_EXCHANGE_MARK);
		iov[n++] = (struct iovec){ exchange->message, HF_EXCHANGE_MARK + exchange->len };
	}
	return n;
}

static size_t note_rest_written(struct hf_rpc_client_connection *connection, size_t n,
				struct hf_list *one_way)
{
	size_t left = connection->rest_len - connection->rest_done;

	if (n < left) {
		connection->rest_done += n;
		return 0;
	}
	if (connection->rest_owner && connection->rest_owner->one_way) {
		hf_link_remove(&connection->rest_owner->link);
		hf_list_push_back(one_way, &connection->rest_owner->link);
	}
	free(connection->rest);
	connection->rest = NULL;
	connection->rest_owner = NULL;
	return n - left;
}

static int copy_rest(struct hf_rpc_client_connection *connection, struct hf_rpc_exchange *exchange, size_t n)
{
	connection->rest_len = HF_EXCHANGE_MARK + exchange->len - n;
	connection->rest_done = 0;
	connection->rest = malloc(connection->rest_len);
	if (!connection->rest)
		return -ENOMEM;
	memcpy(connection->rest, exchange->message + n, connection->rest_len);
	connection->rest_owner = exchange;
	return 0;
}

/* @n bytes are written: updates the exchanges; makes no call-backs yet. */
static int note_written(struct hf_rpc_client_connection *connection, size_t n, struct hf_list *one_way)
{
	if (connection->rest)
		n = note_rest_written(connection, n, one_way);
	while (n > 0) {
		struct hf_rpc_exchange *exchange =
			hf_list_entry(hf_list_pop_front(&connection->queue), struct hf_rpc_exchange, link);
		size_t size = HF_EXCHANGE_MARK + exchange->len;

		exchange->stage = HF_RPC_STAGE_REPLY;
		exchange->n_sent++;
		if (n < size) {
			hf_list_push_back(&connection->sent, &exchange->link);
			return copy_rest(connection, exchange, n);
		}
		hf_list_push_back(exchange->one_way ? one_way : &connection->sent, &exchange->link);
		n -= size;
	}
	return 0;
}

int hf_rpc_client_connection_write(struct hf_rpc_client_connection *connection)
{
	struct hf_list one_way = HF_LIST_INIT(one_way);
	struct iovec iov[WRITE_BATCH];
	struct hf_link *link;
	int r = 0;

	while (r == 0 && hf_rpc_client_connection_has_output(connection)) {
		ssize_t n = hf_socket_write(connection->socket, iov, collect(connection, iov));

		if (n == -EAGAIN || n == -EINTR)
			break;
		r = n < 0 ? (int)n : note_written(connection, (size_t)n, &one_way);
	}
	while ((link = hf_list_first(&one_way)))
		hf_exchange_end_sent(hf_list_entry(link, struct hf_rpc_exchange, link));
	return r;
}
