/*
 * The inside of the RPC client: client*.c and lookup*.c.
 *
 *	client.c             calls: deadline, transport, port, result; their counters
 *	lookup.c             which port has a program? asks rpcbind
 *	lookup_cache.c       the ports that rpcbind gave a short while ago
 *	lookup_wire.c        the messages to and from rpcbind
 *	client_exchange.c    one message to one address, and its reply; client.c and lookup.c
 *	                     use it
 *	client_udp.c         how does an exchange travel over UDP?
 *	client_tcp.c         how does it travel over TCP?
 *	client_tcp_write.c   writing calls to a connection
 *	client_own.c         which calls to the server are its own, or the superuser's?
 *
 * Rule: a _start function reports a failure by its result, never by the call-back. Call-backs
 * come only from the loop. A function that walks a list which call-backs may change takes
 * entries from its front.
 */
#pragma once

#include "base/hashtable.h"
#include "base/list.h"
#include "base/siphash.h"
#include "loop/loop.h"
#include "loop/socket.h"
#include "loop/timer.h"
#include "rpc/client.h"

#define HF_EXCHANGE_MARK      4 /* bytes before each message, for the record mark */
#define HF_EXCHANGE_FIRST_GAP (300 * HF_NS_PER_MS)

struct hf_rpc_channel;
struct hf_rpc_client_connection;

struct hf_rpc_client {
	struct hf_loop *loop;               /* (c) */
	struct hf_rpc_client_limits limits; /* (c) except rpcbind_port */
	struct hf_siphash_key key;          /* (c) of the tables by address */
	struct hf_list starting;            /* calls made in this turn of the loop */
	struct hf_list running;
	struct hf_task start;
	unsigned int n_telling; /* done functions on the stack */
	struct hf_hashtable xids;

	struct hf_list channels; /* client_udp.c */
	size_t n_channels;
	uint8_t *datagrams; /* receive buffers */

	struct hf_hashtable connections; /* client_tcp.c: connections that can be shared */
	struct hf_list all_connections;
	struct hf_list idle; /* those that are idle, the longest idle first */
	size_t n_connections;
	uint8_t *input; /* read buffer */

	struct hf_hashtable lookups; /* lookup.c: under way */
	struct hf_hashtable ports;   /* lookup_cache.c */
	struct hf_list ports_by_age;

	struct hf_rpc_client_counts counts;
};

/* Exchanges */

/* Embedded in its owner, which sets the first part and then starts it. */
struct hf_rpc_exchange {
	struct hf_rpc_client *client;
	/* The exchange has ended. This may start it again or free it. */
	void (*fn)(struct hf_rpc_exchange *exchange, const struct hf_rpc_result *result);
	struct hf_addr remote;
	struct hf_addr local;
	uint8_t *message; /* the owner's: room for the mark, then the call */
	uint32_t len;     /* of the call */
	enum hf_rpc_transport transport;
	bool reserved;
	bool fresh;
	bool one_way;
	bool is_modest;        /* leaves half of the connections to others */
	uint64_t first_gap_ns; /* 0: the default */

	bool is_started;
	enum hf_rpc_stage stage;  /* REPLY: it was sent */
	struct hf_hash_node node; /* in client->xids; its hash is the XID */
	struct hf_link link;      /* of the queue that it waits in */
	union {
		struct hf_rpc_channel *channel;
		struct hf_rpc_client_connection *connection;
	};
	struct hf_timer timer; /* UDP: when to send it again */
	uint64_t gap_ns;
	int send_error;       /* UDP: the error of the last try */
	bool is_reconnecting; /* TCP: its connection broke before */
	unsigned int n_sent;  /* since it was initialised, over all starts */
};

void hf_exchange_init(struct hf_rpc_exchange *exchange, struct hf_rpc_client *client,
		      void (*fn)(struct hf_rpc_exchange *exchange, const struct hf_rpc_result *result));
int hf_exchange_start(struct hf_rpc_exchange *exchange); /* -errno: nothing has changed */
/* The call-back will not come. With @timed_out the connection counts as dead. */
void hf_exchange_stop(struct hf_rpc_exchange *exchange, bool timed_out);
/* The result, at this moment, of an exchange that is given up. */
struct hf_rpc_result hf_exchange_verdict(const struct hf_rpc_exchange *exchange);
/* The result of an exchange that could not start. */
struct hf_rpc_result hf_exchange_not_started(const struct hf_rpc_exchange *exchange, int error);

/* For the transports. Each of these may free the exchange. */
struct hf_rpc_exchange *hf_exchange_find(struct hf_rpc_client *client, struct hf_bytes message);
void hf_exchange_take_reply(struct hf_rpc_exchange *exchange, struct hf_bytes message);
void hf_exchange_end_sent(struct hf_rpc_exchange *exchange); /* one-way */
void hf_exchange_fail(struct hf_rpc_exchange *exchange, enum hf_rpc_outcome outcome, int error);

enum hf_rpc_outcome hf_rpc_outcome_of_errno(int error);

/* Transports */
int hf_rpc_client_udp_start(struct hf_rpc_exchange *exchange);
void hf_rpc_client_udp_detach(struct hf_rpc_exchange *exchange);
void hf_rpc_client_udp_deinit(struct hf_rpc_client *client);
bool hf_rpc_client_udp_sends_from(struct hf_rpc_client *client, const struct hf_addr *source);

int hf_rpc_client_tcp_start(struct hf_rpc_exchange *exchange);
void hf_rpc_client_tcp_detach(struct hf_rpc_exchange *exchange, bool timed_out);
void hf_rpc_client_tcp_deinit(struct hf_rpc_client *client);
bool hf_rpc_client_tcp_sends_from(struct hf_rpc_client *client, const struct hf_addr *source);
