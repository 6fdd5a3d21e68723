/*
 * The inside of the RPC server: what belongs to what, and which file answers which question.
 *
 * server ── lanes ── connections ── calls
 *               └─── datagram ports ── calls
 *
 * A call belongs to the pool of its lane. While it is under way, it points to the connection
 * or port that it came from. A connection that breaks stays as a shell, without socket, until
 * its last call has ended.
 *
 *	server.c       the server and its lanes: life, counts
 *	listener.c     does the server accept a connection, and which lane gets it?
 *	connection.c   records in, replies out, on one connection
 *	secure.c       how does a connection change from clear text to TLS?
 *	presence.c     which clients have TLS connections now, or had one lately?
 *	move.c         how does a connection move to the home lane?
 *	budget.c       how much memory and time may a connection and its address have?
 *	hosts.c        how many connections has each address?
 *	contacts.c     when was an address last in contact, and when was it heard?
 *	port.c         datagrams in, replies out, on one UDP port
 *	dispatch.c     which handler serves a message?
 *	call.c         a call under way: arguments, suspending, replying
 *	caller.c       who made a call? also as the beginning of a line of the audit log
 *	replay.c       was this call answered before?
 *	delay.c        replies that are delayed until their facts are durable
 *	drain.c        are all calls under way answered, before the server ends?
 *	probe.c        does the peer of an old connection still know it?
 *	log.c          which connections were refused or closed, and which calls took long?
 *	meter.c        how many calls ended in which way, and how long did they take?
 *	message.c      RPC headers <-> structs
 *	record.c       a stream of bytes -> records
 *	outqueue.c     replies -> a stream of bytes
 *	uaddr.c        universal addresses <-> addresses
 *
 * client.h and client_internal.h have those of the RPC client.
 */
#pragma once

#include <stdatomic.h>

#include "base/limit.h"
#include "base/list.h"
#include "base/log.h"
#include "base/metric.h"
#include "loop/loop.h"
#include "loop/socket.h"
#include "loop/timer.h"
#include "loop/work.h"
#include "rpc/call.h"
#include "rpc/delay.h"
#include "rpc/hosts.h"
#include "rpc/outqueue.h"
#include "rpc/presence.h"
#include "rpc/program.h"
#include "rpc/record.h"
#include "rpc/replay.h"
#include "rpc/server.h"
#include "tls/tls.h"

#define HF_RPC_MAX_PROGRAMS 16
#define HF_RPC_MAX_LANES    64

/* The longest call that asks for a long reply: handles, positions and credentials are short. */
#define HF_RPC_LONGEST_ASKER 4096

#define HF_RPC_SMALL_MESSAGE 384 /* a LOCK with a long name and sixteen groups */

struct hf_rpc_entry {
	const struct hf_rpc_program *program;
	void *service;
	uint32_t n_procs; /* procedures that are measured, of all versions */
	uint32_t index;   /* in server->entries */
};

struct hf_rpc_server {
	struct hf_rpc_limits limits;                      /* (c) but for slow_ns and keepalive_s: home's */
	struct hf_rpc_entry entries[HF_RPC_MAX_PROGRAMS]; /* (c) */
	size_t n_entries;                                 /* (c) */
	size_t max_record;                                /* (c) the longest call of any program */
	struct hf_rpc_lane *lanes[HF_RPC_MAX_LANES];      /* (c) lanes[0] is home */
	size_t n_lanes;                                   /* (c) */
	size_t n_dealt;                                   /* connections given to lanes, by home's thread */
	uint64_t n_numbered;                              /* connections with a number, by home's thread */
	struct hf_hosts *hosts;
	struct hf_replay *replay;
	struct hf_tls *tls;                /* (c) NULL: none */
	struct hf_rpc_presence *presence;  /* (c) NULL: none */
	struct hf_siphash_key channel_key; /* (c) */
	bool is_freeing;
	uint64_t drain_ns; /* (c) once it drains */
	size_t n_draining; /* lanes, by home's thread */
	void (*drained)(void *user);
	void *drained_user;
	_Atomic size_t n_connections;
	_Atomic size_t n_shells;    /* connections that broke while calls of theirs were under way */
	_Atomic size_t n_datagrams; /* calls over UDP, begun and not ended */
	_Atomic size_t n_tls;       /* connections with a TLS session of a client without certificate */
	_Atomic size_t n_mtls;      /* the same with one */
	_Atomic size_t n_keyed[HF_TLS_FREE_KEYS + 1]; /* TLS sessions that have used up so many of their new
							 keys; [0] is not used */
	_Atomic size_t n_arriving; /* connections on their way to a lane that must make room for them */
};

struct hf_rpc_lane {
	struct hf_rpc_server *server; /* (c) */
	struct hf_loop *loop;         /* (c) */
	size_t index;                 /* (c) in server->lanes */
	struct hf_list listeners;
	struct hf_list ports; /* for datagrams */
	struct hf_list idle;  /* connections with nothing under way, the longest idle first */
	struct hf_list
		busy; /* connections with an incomplete record or unsent replies, the longest stalled first */
	struct hf_list flushable;     /* connections with replies that were made outside their own reading */
	struct hf_list suspended;     /* suspended calls */
	struct hf_list tired;         /* host parts with connections that have used up their budget */
	struct hf_list wanting;       /* host parts with connections that wait for memory */
	struct hf_list charged_parts; /* host parts with memory in use */
	struct hf_list securing;      /* connections whose TLS handshake is not done, the oldest first */
	size_t n_securing;
	struct hf_task service; /* serves the tired and the wanting */
	struct hf_timer next_service;
	struct hf_task flush;
	struct hf_timer sweep;
	struct hf_segment_pool segments;
	struct hf_rpc_call *free_calls;
	size_t n_free_calls;
	uint8_t *read_buffer;
	size_t n_gathering; /* bytes of incomplete records */
	size_t charged;     /* bytes of its connections: calls under way, unsent replies, input not served */
	uint64_t turn;      /* the turn of the loop in which @spent was spent */
	uint64_t spent;     /* units of work, for all connections */
	size_t charged_lately; /* the most that was in use since the last sweep, with incomplete records */
	size_t charged_before; /* the same between the two sweeps before */
	size_t charged_peak;   /* the most since free memory was last given back to the system */
	struct hf_work trimming;
	bool is_closed;
	bool is_ending;       /* no call begins any more */
	struct hf_task drain; /* posted to the lane */
	struct hf_task quiet; /* posted to home */
	struct hf_timer drain_timer;
	uint64_t drain_until; /* monotonic ns */
	struct hf_log_limit refusals;
	struct hf_log_limit drops; /* of datagrams */
	_Atomic(uint64_t) slow_ns; /* calls that take so long are logged; 0: none. Home sets it */
	_Atomic int keepalive_s;   /* of its connections. Home sets it */
	int known_keepalive_s;     /* what the connections have that were there at the last sweep */
	struct hf_log_limit slow_calls;
	uint64_t lists_until;         /* monotonic ns: lists sent over UDP fill the rate until then */
	struct hf_rpc_meters *meters; /* NULL: calls are not measured */
	struct hf_task add_up;        /* adds up the meters */
	/* Most calls are for the same program and version as the call before. */
	const struct hf_rpc_entry *last_entry;
	const struct hf_rpc_version *last_version;
	/* Only this lane writes the counts. Any thread may read them. */
	_Atomic uint64_t n_refused;
	_Atomic uint64_t refused[HF_LIMIT_UDP_LISTS + 1]; /* by limit; of UDP_CALLS: n_dropped */
	_Atomic size_t used_gathering; /* n_gathering and charged, as the last sweep saw them */
	_Atomic size_t used_charged;
	_Atomic size_t used_securing;         /* n_securing */
	_Atomic size_t used_securing_of_host; /* of the address with the most; may be too much until the next
						 sweep */
	_Atomic uint64_t n_dropped;
	_Atomic uint64_t n_calls;
	_Atomic uint64_t n_replayed;
};

static inline bool hf_rpc_lane_is_home(const struct hf_rpc_lane *lane)
{
	return lane == lane->server->lanes[0];
}

static inline void hf_rpc_count(_Atomic uint64_t *counter)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

struct hf_rpc_connection {
	struct hf_link link; /* in lane->idle or lane->busy */
	struct hf_link flush_link;
	struct hf_rpc_delay *delay; /* its replies are delayed by this; NULL: they may leave */
	struct hf_link delay_link;
	uint64_t delayed_at; /* monotonic ns; 0: slow calls were not logged then */
	struct hf_host *host;
	struct hf_host_part *part; /* of @host, on this lane */
	struct hf_link part_link;  /* in part->fresh or part->proven */
	struct hf_link wait_link;  /* in part->tired or part->wanting */
	struct hf_task arrival;    /* runs when it arrives at another lane */
	struct hf_rpc_lane *lane;
	struct hf_socket *socket;     /* NULL: broken */
	struct hf_rpc_secure *secure; /* NULL: clear text */
	struct hf_addr peer;
	struct hf_addr local;
	struct hf_record_reader reader;
	struct hf_outqueue out;
	uint8_t *backlog;    /* input that is not served yet, while reading is paused */
	size_t backlog_at;   /* bytes before this are served */
	size_t backlog_len;  /* bytes from there on */
	size_t backlog_size; /* bytes allocated */
	uint8_t *traveller;  /* the call that makes it move home, without its record mark */
	uint32_t traveller_len;
	uint64_t number;        /* hf_rpc_call_link(); 0: it has no number yet */
	struct hf_list probes;  /* of probe.c */
	uint64_t since;         /* last activity if idle, last progress if busy */
	uint64_t useful;        /* when its last complete call came, or the connection itself */
	size_t n_suspended;     /* calls begun and not ended */
	size_t suspended_bytes; /* bytes of these calls and of the replies that they will have */
	size_t charged;         /* bytes that lane and host part count for it */
	int32_t budget;         /* units of work that it has left in this turn */
	int32_t allowance;      /* the budget at the start of the turn, and what was sent in it */
	bool is_busy;
	bool is_reading; /* below on_readable(): a reply need not flush */
	bool is_paused;
	bool is_moving;
	bool was_reset;  /* the peer's kernel said that it does not know it */
	bool is_ahead;   /* it sent more than its budget could serve */
	uint8_t n_wakes; /* by input that came while it was tired */
	bool is_proven;  /* it has completed a call */
	bool was_useful; /* it completed a call in this turn */
};

struct hf_rpc_port;

struct hf_rpc_call {
	struct hf_rpc_header header;
	struct hf_xdr_in args;
	struct hf_bytes message; /* as it came, with its header */
	uint32_t args_at;        /* where the arguments begin */
	bool is_suspended;
	struct hf_link in_suspended; /* of lane->suspended, while it is suspended */
	uint64_t suspended_at;       /* monotonic ns, when it was suspended */
	bool is_replying;            /* between hf_rpc_reply_begin() and its end */
	struct hf_rpc_lane *lane;
	struct hf_rpc_connection *connection; /* NULL: it came as a datagram */
	struct hf_rpc_port *port;             /* NULL: it came over a connection */
	struct hf_addr peer;
	struct hf_addr local;
	uint8_t *own;   /* the call's copy of the message, if it does not fit into @small; to be freed */
	size_t charged; /* bytes that a suspended call counts for */
	struct hf_xdr_out out;
	uint8_t *reply;           /* the start of the reply, while it is made */
	uint8_t *scratch;         /* the reply's bytes, if the connection has no room for them */
	struct hf_segment *apart; /* the reply's bytes, if it is made apart from the connection */
	struct hf_replay_entry *replay;
	bool is_uncached;     /* a repeat of the call is served anew */
	struct hf_bytes told; /* the reply to the same call in another copy; to be freed */
	struct hf_task telling;
	struct hf_rpc_call *next_free;
	uint64_t begun;              /* by the clock; 0: this call is not measured */
	struct hf_call_meter *meter; /* of its procedure, if it is measured */
	const char *result;
	_Alignas(16) uint8_t room[HF_RPC_CALL_ROOM]; /* for its handler */
	uint8_t small[HF_RPC_SMALL_MESSAGE];
};

/* call.c */
struct hf_rpc_call *hf_rpc_call_new(struct hf_rpc_lane *lane, struct hf_bytes message);
void hf_rpc_call_free(struct hf_rpc_call *call);                          /* ends it without a reply */
void hf_rpc_reply_bytes(struct hf_rpc_call *call, struct hf_bytes reply); /* a complete reply */
void hf_rpc_calls_deinit(struct hf_rpc_lane *lane);

/* dispatch.c */
enum hf_rpc_dispatched {
	HF_RPC_DISPATCHED = 0, /* the call has ended or is suspended */
	HF_RPC_GOES_HOME,      /* not begun: this lane may not serve it; the call is freed */
	HF_RPC_MUST_WAIT,      /* not begun: no memory is left for its reply; the call is freed */
	HF_RPC_MAY_NOT,    /* not begun: this server ends, or another node may serve it; close the connection;
			      the call is freed */
	HF_RPC_STARTS_TLS, /* the answer is queued; nothing more may be read in the clear */
	HF_RPC_IS_LAST,    /* the reply is queued: send it, and close the connection */
	HF_RPC_NONSENSE,   /* no call, or a broken header: close the connection; the call is freed */
};

enum hf_rpc_dispatched hf_rpc_dispatch(struct hf_rpc_call *call);
void hf_rpc_lane_show_lists(const struct hf_rpc_lane *lane, struct hf_limit_use *use); /* over UDP */

/* log.c */
/* Logs at a limited rate; @what happened to a connection of @peer. */
void hf_rpc_log_closed(struct hf_rpc_lane *lane, const struct hf_addr *peer, const char *what,
		       const char *why);
/* The same, and counts a refusal: a limit is reached. */
void hf_rpc_note_refusal(struct hf_rpc_lane *lane, enum hf_limit limit, const struct hf_addr *peer,
			 const char *what, const char *why);

static inline int hf_rpc_keepalive(const struct hf_rpc_lane *lane)
{
	return atomic_load_explicit(&lane->keepalive_s, memory_order_relaxed);
}

static inline uint64_t hf_rpc_slow_ns(const struct hf_rpc_lane *lane)
{
	return atomic_load_explicit(&lane->slow_ns, memory_order_relaxed);
}

void hf_rpc_look_at_time(struct hf_rpc_call *call);              /* of a suspended call that is answered */
void hf_rpc_look_at_delay(struct hf_rpc_connection *connection); /* its delayed replies leave */

/* meter.c */
uint32_t hf_rpc_meter_procs(const struct hf_rpc_program *program);
void hf_rpc_meters_free(struct hf_rpc_lane *lane);
void hf_rpc_meter_begin(struct hf_rpc_call *call, const struct hf_rpc_entry *entry); /* if lane->meters */
void hf_rpc_meter_end(struct hf_rpc_call *call, const char *result); /* if call->begun, which it clears */
void hf_rpc_meters_add_up(struct hf_rpc_lane *lane);                 /* before replies leave */
void hf_rpc_meters_add_up_delayed(struct hf_rpc_delay *delay);       /* before its replies leave */

/* connection.c */
/* Takes over @socket, and @host, which it has entered. */
void hf_rpc_connection_start(struct hf_rpc_lane *lane, struct hf_socket *socket, const struct hf_addr *peer,
			     struct hf_host *host);
void hf_rpc_connection_close(struct hf_rpc_connection *connection); /* @connection may be freed here */
/* One of its suspended calls, of @len bytes, has ended. */
void hf_rpc_connection_release(struct hf_rpc_connection *connection, size_t len);
void hf_rpc_connection_replied(struct hf_rpc_connection *connection); /* there are bytes to send */
void hf_rpc_connection_serve(struct hf_rpc_connection *connection);   /* it waited, and may go on now */
void hf_rpc_flush_connections(struct hf_task *task);
void hf_rpc_sweep_connections(struct hf_timer *timer);

/* secure.c */
/* The client asks for TLS: from now on nothing is read in the clear. False: it may not, close the
 * connection. */
bool hf_rpc_secure_ask(struct hf_rpc_connection *connection);
bool hf_rpc_secure_is_open(const struct hf_rpc_secure *secure); /* the handshake is done */

enum hf_rpc_secured {
	HF_RPC_SECURING = 0, /* the handshake goes on when one of *eventsp happens, or in its turn */
	HF_RPC_SECURED,      /* calls may come */
	HF_RPC_GAVE_UP,      /* the connection is closed, and may be freed */
};

/* When the answer STARTTLS is sent, and whenever the socket is ready until the handshake is done. */
enum hf_rpc_secured hf_rpc_secure_serve(struct hf_rpc_connection *connection, bool is_queued,
					unsigned int *eventsp);
/* Both answer -ESTALE without the lease. Reading charges the records that it reads to the budget. */
ssize_t hf_rpc_secure_read(struct hf_rpc_secure *secure, void *data, size_t len);
int hf_rpc_secure_write(struct hf_rpc_secure *secure, struct hf_outqueue *queue,
			struct hf_segment_pool *segments);
/* Must the socket take something before the session reads on? */
bool hf_rpc_secure_reads_by_writing(const struct hf_rpc_secure *secure);
/* After the connection was served: it is served again if the session has input that the kernel does not tell
 * of. */
void hf_rpc_secure_serve_again(struct hf_rpc_connection *connection);
void hf_rpc_secure_close(struct hf_rpc_connection *connection); /* its calls still know their peer */
void hf_rpc_secure_free(struct hf_rpc_connection *connection);
void hf_rpc_secure_sweep(struct hf_rpc_lane *lane);

/* Between the question for TLS and the end of the handshake? */
static inline bool hf_rpc_is_securing(const struct hf_rpc_connection *c)
{
	return HF_UNLIKELY(c->secure != NULL) && !hf_rpc_secure_is_open(c->secure);
}

/* budget.c */
#define HF_RPC_FEW_BYTES     8192 /* of memory, that a connection may use while memory is short */
#define HF_RPC_UNIT_BYTES    4096 /* that cost as much to move as a short call */
#define HF_RPC_SUSPEND_UNITS 4    /* additional cost of a call that another thread serves */
#define HF_RPC_LOOP_UNITS    8192 /* work in a turn of the loop until it is late: about 10 ms */

void hf_rpc_budget_join(struct hf_rpc_connection *connection); /* the connection joins its lane */
void hf_rpc_budget_quit(
	struct hf_rpc_connection *connection); /* it is closed, or moves; calls stay counted */
void hf_rpc_budget_charge(struct hf_rpc_connection *connection, size_t charged);
void hf_rpc_budget_begin(struct hf_rpc_connection *connection, bool is_queued);
void hf_rpc_budget_end(struct hf_rpc_connection *connection);
void hf_rpc_budget_wait(struct hf_rpc_connection *connection);
void hf_rpc_budget_stop_waiting(struct hf_rpc_connection *connection);
void hf_rpc_budget_serve(struct hf_task *task);
void hf_rpc_budget_call_service(struct hf_timer *timer);
void hf_rpc_budget_sweep(struct hf_rpc_lane *lane);
/* Closes the least useful connection of @part, but none that completed a call within @unused_ns. False: there
 * is none. With 0 it closes even a connection with calls under way, if there is no other. */
bool hf_rpc_budget_evict(struct hf_rpc_lane *lane, struct hf_host_part *part, uint64_t unused_ns);

/* Has the address memory for one more long reply? */
static inline bool hf_rpc_budget_has_room(const struct hf_rpc_lane *lane, const struct hf_host_part *part)
{
	const struct hf_rpc_limits *limits = &lane->server->limits;

	return lane->charged + part->charged + 2 * limits->max_reply <= limits->max_charged;
}

/* Charges work for the connection to its budget. */
static inline void hf_rpc_budget_spend(struct hf_rpc_connection *c, int32_t n_units)
{
	c->budget -= n_units;
}

static inline void hf_rpc_budget_spend_bytes(struct hf_rpc_connection *c, size_t n)
{
	c->budget -= (int32_t)(n / HF_RPC_UNIT_BYTES);
}

/* Sending is charged to the address and the loop, but uses up no budget. */
static inline void hf_rpc_budget_note_sent(struct hf_rpc_connection *c, size_t n)
{
	c->allowance += (int32_t)(n / HF_RPC_UNIT_BYTES);
}

/* Has this turn of the loop served so much that each connection gets only a little more? */
static inline bool hf_rpc_budget_is_late(const struct hf_rpc_lane *lane)
{
	return HF_UNLIKELY(lane->spent > HF_RPC_LOOP_UNITS) && lane->turn == hf_loop_turn(lane->loop);
}

/* Counts the memory that the connection uses now. */
static inline void hf_rpc_budget_count(struct hf_rpc_connection *c)
{
	size_t charged = c->suspended_bytes + c->out.n_allocated + c->backlog_size + c->traveller_len;

	if (charged != c->charged)
		hf_rpc_budget_charge(c, charged);
}

/* Must the connection wait, for budget or memory, before its next call? */
static inline bool hf_rpc_budget_must_wait(const struct hf_rpc_connection *c)
{
	return c->budget <= 0 ||
	       (c->suspended_bytes + c->out.n_bytes + c->reader.capacity > HF_RPC_FEW_BYTES &&
		!hf_rpc_budget_has_room(c->lane, c->part));
}

/* delay.c: the replies of the connection are delayed no more */
static inline void hf_rpc_delay_let_go(struct hf_rpc_connection *c)
{
	c->delay = NULL;
	hf_link_remove(&c->delay_link);
}

/* probe.c */
/* The connection is being closed. Its probes end later, from the loop. */
void hf_rpc_probes_end(struct hf_rpc_connection *connection, bool was_reset);

/* move.c */
void hf_rpc_connection_move_home(struct hf_rpc_connection *connection, struct hf_bytes record);
bool hf_rpc_connection_try_move(struct hf_rpc_connection *connection); /* true: another lane owns it now */

/* listener.c */
void hf_rpc_listeners_close(struct hf_rpc_lane *lane);
void hf_rpc_listeners_set_keepalive(struct hf_rpc_lane *lane, int keepalive_s);

/* drain.c */
void hf_rpc_drain_init(struct hf_rpc_lane *lane);

/* port.c */
bool hf_rpc_port_is_open(const struct hf_rpc_port *port);
uint8_t *hf_rpc_port_reserve(struct hf_rpc_port *port, size_t len);
void hf_rpc_port_commit(struct hf_rpc_port *port, struct hf_rpc_call *call, size_t len);
bool hf_rpc_port_may_suspend(struct hf_rpc_port *port);
void hf_rpc_port_note_suspended(struct hf_rpc_port *port, size_t len);
void hf_rpc_port_expect(struct hf_rpc_port *port, size_t len);
void hf_rpc_port_release(struct hf_rpc_port *port, size_t len);
void hf_rpc_ports_close(struct hf_rpc_lane *lane);
