/*
 * The RPC client: calls that the server makes, thousands at a time, on one loop.
 * client_internal.h has a map of the files.
 *
 * A call has one deadline for everything: asking the peer's rpcbind for the port (rpc/lookup.h),
 * connecting, sending, waiting for the reply. It ends with exactly one call of its done
 * function, never from inside hf_rpc_client_call(). If the call is cancelled or the client is
 * freed first, done is never called.
 *
 * UDP calls share one socket for each (family, local address, reserved port or not). The XID
 * tells them apart. They are sent again with growing gaps. A reply counts only if it comes
 * from the address and port that were called. The sockets are not connected, so the client does
 * not see an ICMP "port unreachable": a dead UDP port is a time-out. A send that fails (no
 * route, a firewall) is tried again like a lost datagram, because routes appear. At the
 * deadline its error is reported.
 *
 * TCP calls to one peer share a connection, which is closed when it is idle for a while, or
 * have one of their own. If a connection breaks, its unanswered calls are sent once more on a
 * new one, with the same XID. So the peer may execute a call twice, over UDP and over TCP.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "rpc/call.h"
#include "rpc/xdr.h"

struct hf_loop;
struct hf_rpc_client;
struct hf_rpc_pending;

/* How a call ended. Together with the stage it tells an operator what to look for. */
enum hf_rpc_outcome {
	HF_RPC_OUTCOME_OK = 0,
	HF_RPC_OUTCOME_TIMEOUT,
	HF_RPC_OUTCOME_NOT_REGISTERED, /* rpcbind knows no port, for any allowed transport */
	HF_RPC_OUTCOME_REFUSED,        /* no program listens at the port */
	HF_RPC_OUTCOME_UNREACHABLE,    /* it could not be sent: see the error */
	HF_RPC_OUTCOME_NO_ROOM,        /* no socket or memory to send it: says nothing of the peer */
	HF_RPC_OUTCOME_BROKEN,         /* the connection was closed before the reply, twice */
	HF_RPC_OUTCOME_DENIED,         /* RPC version or credentials rejected */
	HF_RPC_OUTCOME_NO_PROGRAM,     /* PROG_UNAVAIL, PROG_MISMATCH */
	HF_RPC_OUTCOME_NO_PROCEDURE,
	HF_RPC_OUTCOME_NO_SENSE, /* GARBAGE_ARGS, SYSTEM_ERR */
	HF_RPC_OUTCOME_GARBAGE,  /* the reply is not valid, or too long */
};

enum hf_rpc_stage {
	HF_RPC_STAGE_LOOKUP,
	HF_RPC_STAGE_CONNECT,
	HF_RPC_STAGE_SEND,
	HF_RPC_STAGE_REPLY,
};

/* The result, for the done function. */
struct hf_rpc_result {
	enum hf_rpc_outcome outcome;
	enum hf_rpc_stage stage;         /* where it ended; REPLY if it was OK */
	enum hf_rpc_transport transport; /* the last one tried; in stage LOOKUP, the one to rpcbind */
	int error;                       /* UNREACHABLE, NO_ROOM, REFUSED, BROKEN: -errno; else 0 */
	/* How often the call was sent, without a copy that the peer did not know. 0: the peer has not
	 * executed it. More than 1: the reply may be that to a repetition, and another may have come before.
	 */
	unsigned int n_sent;
	struct hf_addr remote;     /* the last address called; in stage LOOKUP, that of its rpcbind */
	struct hf_xdr_in *results; /* OK: valid until done returns. Otherwise, and for one-way calls, NULL */
};

typedef void (*hf_rpc_done_fn)(void *user, const struct hf_rpc_result *result);

/* The second transport is tried if the program is not registered for the first, or the first is refused. */
enum hf_rpc_path {
	HF_RPC_UDP_ONLY,
	HF_RPC_TCP_ONLY,
	HF_RPC_UDP_THEN_TCP,
	HF_RPC_TCP_THEN_UDP,
};

typedef void (*hf_rpc_send_fn)(void *user, const struct hf_addr *local, const struct hf_addr *to,
			       struct hf_bytes message);

struct hf_rpc_request {
	struct hf_addr remote; /* port 0: the port that its rpcbind gives */
	struct hf_addr local;  /* the address to call from; family 0: any. Its port does not count */
	uint32_t program;
	uint32_t version;
	uint32_t procedure;
	enum hf_rpc_path path;
	const void *args; /* XDR; copied */
	size_t args_len;
	const char *machine;   /* AUTH_SYS as uid 0 of this machine; NULL: AUTH_NONE. Copied */
	uint64_t timeout_ns;   /* for the whole call */
	uint64_t first_gap_ns; /* UDP: the time until it is first sent again, doubled each time; 0: 300 ms */
	bool reserved_port;    /* from a port below 1024, if that is permitted */
	bool fresh_connection; /* TCP: on a connection of its own, closed after the reply */
	bool one_way;          /* no reply is expected: OK when it is sent */
	bool fresh_port;       /* asks rpcbind even if the port is cached; for this call alone */
	bool only_port;        /* sends nothing: OK when rpcbind has given the port, see remote */
	/* One-way over UDP: this function gets the datagram, to send it from a port other than the client's
	 * own. */
	hf_rpc_send_fn send;
	void *send_user;
};

struct hf_rpc_client_limits {
	size_t max_calls;       /* in flight */
	size_t max_connections; /* look-ups may take half of them */
	size_t max_args;        /* bytes of arguments */
	size_t max_reply;       /* bytes of a reply over TCP; over UDP it is HF_RPC_CLIENT_DATAGRAM */
	size_t max_ports;       /* ports from rpcbind that are cached */
	uint64_t port_age_ns;   /* how long they are cached */
	uint64_t idle_ns;       /* until a connection with nothing to do is closed */
	uint16_t rpcbind_port;
};

#define HF_RPC_CLIENT_DATAGRAM 9000 /* a longer reply over UDP is ignored */

extern const struct hf_rpc_client_limits hf_rpc_client_default_limits;

/* @limits may be NULL. Do not free the client from inside a done function. */
int hf_rpc_client_new(struct hf_rpc_client **clientp, struct hf_loop *loop,
		      const struct hf_rpc_client_limits *limits);
struct hf_rpc_client *hf_rpc_client_free(struct hf_rpc_client *client);
void hf_rpc_client_set_rpcbind_port(struct hf_rpc_client *client, uint16_t port);
uint16_t hf_rpc_client_rpcbind_port(const struct hf_rpc_client *client);

HF_DEFINE_CLEANUP(struct hf_rpc_client *, hf_rpc_client_free)

/*
 * Calls. @pendingp may be NULL; else it is valid until done is called or the call is
 * cancelled. -EADDRNOTAVAIL: this address may not be called; -EAFNOSUPPORT: @local is of
 * another family; -EMSGSIZE: too many arguments; -EBUSY: too many calls in flight; -EINVAL: no
 * time, an argument length that is not XDR's, a machine name that is too long; -ENOMEM. After
 * an error done is not called.
 */
int hf_rpc_client_call(struct hf_rpc_client *client, struct hf_rpc_pending **pendingp,
		       const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user);
/* Does nothing for NULL, or for a call whose done function runs. Returns NULL. */
struct hf_rpc_pending *hf_rpc_pending_cancel(struct hf_rpc_pending *pending);

/* Did the superuser of this host make this call? It came over loopback from a reserved port, and it is not
 * one of the server's own: those come from such ports, too, and an SM_MON can make the server send one. */
bool hf_rpc_client_is_superuser(struct hf_rpc_client *client, const struct hf_rpc_call *call);
/* Did the server itself make this call? If a peer's address is one of the server's, it may ask itself. */
bool hf_rpc_client_is_own(struct hf_rpc_client *client, const struct hf_rpc_call *call);

/* Counters */
struct hf_rpc_client_counts {
	size_t calls; /* in flight */
	size_t connections;
	size_t ports;           /* cached */
	uint64_t retransmitted; /* datagrams; for tests */
	uint64_t ignored;       /* replies that no call waits for, or from the wrong peer; for tests */
	uint64_t lookups;       /* questions to rpcbind */
	uint64_t reconnected;   /* calls sent again because a connection broke; for tests */
};

void hf_rpc_client_counts(const struct hf_rpc_client *client, struct hf_rpc_client_counts *countsp);
const char *hf_rpc_outcome_text(enum hf_rpc_outcome outcome); /* "no reply in time" */
const char *hf_rpc_stage_text(enum hf_rpc_stage stage);       /* "lookup", "connect", "send", "reply" */
