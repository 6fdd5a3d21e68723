/*
 * The RPC server: programs, and the lanes that serve them. server_internal.h has a map of
 * the files.
 *
 * A server is a set of programs and limits. A lane is the server's part on one loop:
 * connections, buffers, calls under way. The first lane is home: programs marked at_home are
 * served only there. Home listens, and gives each lane a connection in turn. A connection on
 * another lane that asks for an at_home program moves home, with everything that it has sent,
 * and stays there. So the calls of one connection always begin in order and on one thread.
 * With one lane no connection ever moves. Datagrams are served at home.
 *
 * Set a server up before the loops of its lanes run, and free it after they have stopped.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/limit.h"
#include "rpc/program.h"

struct hf_call_meter;
struct hf_loop;
struct hf_rpc_presence;
struct hf_rpc_lane;
struct hf_rpc_server;
struct hf_tls;

struct hf_rpc_limits {
	size_t max_connections;          /* in all; a closed connection counts until its calls have ended */
	size_t max_connections_per_host; /* from one address */
	size_t max_gathering;            /* bytes of incomplete records, in all, per lane */
	size_t max_unread; /* memory of replies that a peer may leave unread before the server stops reading
			    * its calls */
	size_t max_suspended_per_connection; /* calls begun and not ended; for all datagrams together 16 times
					      * as many */
	size_t max_suspended_bytes; /* of a connection's calls under way and unread replies; for the calls of
				     * all datagrams together 8 times as much */
	size_t max_charged; /* the same and input not yet served, of all connections of a lane; an address may
			     * have half of it, or less while others have some (budget.c) */
	size_t max_reply;   /* of the longest reply: this much must be free before a call that may have it
			     * begins */
	int keepalive_s;    /* see struct hf_socket_bind; hf_rpc_server_set_keepalive() changes it */
	size_t max_contacts; /* addresses for hf_rpc_server_last_contact() and _last_heard(); 0: neither is
			      * called */
	uint64_t slow_ns;    /* calls that take so long are logged; 0: none */
	uint64_t idle_ns;    /* until a connection without work is closed */
	uint64_t stall_ns; /* until a connection is closed in the middle of a record, or with a reply that its
			    * peer does not read */
	size_t max_handshakes;          /* TLS handshakes under way, per lane */
	size_t max_handshakes_per_host; /* of one address, per lane */
	uint64_t handshake_ns;          /* until a handshake must be done */
	uint64_t stuck_ns;              /* the same while other connections wait for memory */
};

extern const struct hf_rpc_limits hf_rpc_default_limits;

int hf_rpc_server_new(struct hf_rpc_server **serverp, const struct hf_rpc_limits *limits);
struct hf_rpc_server *hf_rpc_server_free(struct hf_rpc_server *server);

HF_DEFINE_CLEANUP(struct hf_rpc_server *, hf_rpc_server_free)

/* @program and @service are borrowed. */
int hf_rpc_server_add_program(struct hf_rpc_server *server, const struct hf_rpc_program *program,
			      void *service);
/* The first lane is home. The server owns the lane. */
int hf_rpc_server_add_lane(struct hf_rpc_server *server, struct hf_loop *loop, struct hf_rpc_lane **lanep);

/* At home: calls that take so long are logged from now on; 0: none. */
void hf_rpc_server_set_slow(struct hf_rpc_server *server, uint64_t slow_ns);
/* At home: connections are asked for a sign of life after @keepalive_s from now on, those that are open, too;
 * as in struct hf_rpc_limits. */
void hf_rpc_server_set_keepalive(struct hf_rpc_server *server, int keepalive_s);
/* Before a loop runs: clients may ask for what @tls offers then. It is borrowed. */
void hf_rpc_server_set_tls(struct hf_rpc_server *server, struct hf_tls *tls);
/* The same: TLS connections are told to @presence. It is borrowed, and freed after the server. */
void hf_rpc_server_set_presence(struct hf_rpc_server *server, struct hf_rpc_presence *presence);

/* Listening, at home, before its loop runs or on its thread. *portp: in, the wanted port, 0 for any; out, the
 * actual one. */
int hf_rpc_server_listen_tcp(struct hf_rpc_server *server, const struct hf_addr *addr, uint16_t *portp);
int hf_rpc_server_listen_udp(struct hf_rpc_server *server, const struct hf_addr *addr, uint16_t *portp);

/* Sends a datagram from home, from the port that the server listens on. One that cannot be sent is lost. */
void hf_rpc_server_send(struct hf_rpc_server *server, const struct hf_addr *local, const struct hf_addr *to,
			struct hf_bytes message);

/* Stopping, on the lane's thread. First: no new connections and no datagrams. Then: all connections are
 * closed, and suspended calls lose theirs. */
void hf_rpc_lane_stop_listening(struct hf_rpc_lane *lane);
void hf_rpc_lane_close(struct hf_rpc_lane *lane);
/* Before that, while the loops run, at home: no call begins any more. @done is called at home when those
 * under way are answered, or after @timeout_ns. */
void hf_rpc_server_drain(struct hf_rpc_server *server, uint64_t timeout_ns, void (*done)(void *user),
			 void *user);
/* After the loops have stopped: calls under way may still end and be answered, but no further call begins. */
void hf_rpc_server_begin_no_more(struct hf_rpc_server *server);

/* When was a connection from this address open last, or when did a datagram come? @now, or earlier; too late
 * rather than too early. At home, with limits.max_contacts. */
uint64_t hf_rpc_server_last_contact(const struct hf_rpc_server *server, const struct hf_addr *peer,
				    uint64_t now);
/* The same of what the server heard: a call, a new connection, a datagram. That a connection is open, says
 * nothing: a host that is gone does not close it. 0: never. */
uint64_t hf_rpc_server_last_heard(const struct hf_rpc_server *server, const struct hf_addr *peer);

/* Counters */
struct hf_rpc_counts {
	size_t connections; /* in all */
	size_t tls;         /* of these, with TLS of a client without certificate */
	size_t mtls;        /* of these, with TLS of a client with one */
	size_t datagrams;   /* calls over UDP, begun and not ended */
	uint64_t refused;   /* connections beyond a limit, new ones and those with too much under way */
	uint64_t dropped;   /* datagrams that came while too many calls were under way */
	uint64_t calls;
	uint64_t replayed; /* calls answered from the replay cache */
};

/* The limits of this folder; from the loop of the first lane. */
void hf_rpc_server_show_limits(const struct hf_rpc_server *server, struct hf_limit_use uses[HF_N_LIMITS]);
void hf_rpc_server_counts(const struct hf_rpc_server *server, struct hf_rpc_counts *countsp);

/* Measures calls by procedure and result. Ask for it after the last lane was added and before a loop runs.
 * Without it no clock is read. Any thread may read the meters: there is one for each lane and procedure. */
int hf_rpc_server_measure(struct hf_rpc_server *server);
typedef void (*hf_rpc_meter_fn)(void *user, uint32_t program, uint32_t number, const char *procedure,
				const struct hf_call_meter *meter);
void hf_rpc_server_show_meters(const struct hf_rpc_server *server, hf_rpc_meter_fn fn, void *user);
void hf_rpc_server_count_data(const struct hf_rpc_server *server, uint64_t *n_readp, uint64_t *n_writtenp);
