/*
 * The RPC server: programs, and the lanes that serve them.
 *
 * A server is a set of programs and limits. A lane is its presence on one
 * loop: connections, buffers, calls under way. The first lane is home: programs
 * marked at_home are served there alone. Home listens, and deals connections out
 * to the lanes in turn. A connection on another lane that asks for an at_home
 * program moves home, with everything it has sent, and stays; so calls of one
 * connection are always begun in order and by one thread, and with one lane
 * nothing of this happens. Datagrams are served at home.
 *
 * A server is set up before its lanes' loops run, and freed after they stopped.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "rpc/program.h"

struct hf_call_meter;
struct hf_loop;
struct hf_rpc_lane;
struct hf_rpc_server;

struct hf_rpc_limits {
	size_t max_connections;          /* in all; also those that broke, until their calls have ended */
	size_t max_connections_per_host; /* from one address */
	size_t max_gathering;            /* bytes of incomplete records, in all, per lane */
	size_t max_unread; /* memory of replies a peer may leave unread before we stop reading his calls */
	size_t max_kept_per_connection; /* calls begun and not ended; also for all datagrams together, times
					   16 */
	size_t max_kept_bytes; /* of a connection's calls under way and unread replies; also for the calls of
				  all datagrams together, times 8 */
	size_t max_held;       /* the same and input not yet served, of all connections of a lane; an address
				  may have half of it, or less while others have some (share.c) */
	size_t max_reply;      /* the longest one: so much must be free before a call that may have it */
	uint64_t idle_ns;      /* a connection with nothing to do */
	uint64_t stall_ns;     /* a record that does not end, a reply that is not taken */
	uint64_t stuck_ns;     /* the same while others wait for memory */
};

extern const struct hf_rpc_limits hf_rpc_default_limits;

/* Life */
int hf_rpc_server_new(struct hf_rpc_server **serverp, const struct hf_rpc_limits *limits);
struct hf_rpc_server *hf_rpc_server_free(struct hf_rpc_server *server);

HF_DEFINE_CLEANUP(struct hf_rpc_server *, hf_rpc_server_free)

/* Both are borrowed. */
int hf_rpc_server_add_program(struct hf_rpc_server *server, const struct hf_rpc_program *program,
			      void *service);
/* The first one is home. The lane is the server's. */
int hf_rpc_server_add_lane(struct hf_rpc_server *server, struct hf_loop *loop, struct hf_rpc_lane **lanep);

/* Listening, at home, before its loop runs or on its thread. *portp: in, the port wanted, 0 for any; out, the
 * port got. */
int hf_rpc_server_listen_tcp(struct hf_rpc_server *server, const struct hf_addr *addr, uint16_t *portp);
int hf_rpc_server_listen_udp(struct hf_rpc_server *server, const struct hf_addr *addr, uint16_t *portp);

/* A datagram of ours, at home, from the very port that we listen on; one that cannot be sent is lost. */
void hf_rpc_server_send(struct hf_rpc_server *server, const struct hf_addr *local, const struct hf_addr *to,
			struct hf_bytes message);

/* Stopping, on the lane's thread: no new connections and no datagrams; then all is closed, and kept calls
 * lose their connection. */
void hf_rpc_lane_stop_listening(struct hf_rpc_lane *lane);
void hf_rpc_lane_close(struct hf_rpc_lane *lane);
/* When the loops run no more: calls under way may still end and be answered, but no further call is begun. */
void hf_rpc_server_begin_no_more(struct hf_rpc_server *server);

/* Sight */
struct hf_rpc_counts {
	size_t connections;
	size_t datagrams; /* calls over UDP, begun and not ended */
	uint64_t accepted;
	uint64_t refused; /* connections over a limit, new ones and those that had begun too much */
	uint64_t dropped; /* datagrams, while too many calls were under way */
	uint64_t calls;
	uint64_t replayed; /* answered from the replay cache */
};

void hf_rpc_server_counts(const struct hf_rpc_server *server, struct hf_rpc_counts *countsp);

/* Measuring calls, by procedure and result. To be asked for after the last lane was added, before a loop
 * runs; else no clock is read. What is shown may be read by any thread: for each lane and procedure one
 * meter. */
int hf_rpc_server_measure(struct hf_rpc_server *server);
typedef void (*hf_rpc_meter_fn)(void *user, uint32_t program, uint32_t number, const char *procedure,
				const struct hf_call_meter *meter);
void hf_rpc_server_show_meters(const struct hf_rpc_server *server, hf_rpc_meter_fn fn, void *user);
void hf_rpc_server_count_data(const struct hf_rpc_server *server, uint64_t *n_readp, uint64_t *n_writtenp);
