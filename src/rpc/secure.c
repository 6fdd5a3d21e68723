/*
 * How does a connection change from clear text to TLS (RFC 9289)?
 *
 * The client asks with a NULL call whose credential is AUTH_TLS. The server answers STARTTLS in
 * the clear, and the handshake follows on the same connection. After the question nothing is
 * read in the clear any more: an attacker could have put it there. So the question must be the
 * last thing that came, and no other call may be under way.
 *
 * A connection is *securing* from its question until the handshake is done. On a lane it is then
 * in lane->securing and in the list of its address, the oldest first. Both lists are bounded.
 * The oldest of the address with the most makes room for a newer one: an honest client has few,
 * and is done within milliseconds. So an attacker that opens handshakes and does not finish
 * them loses its own.
 *
 * A handshake costs as much time as hundreds of calls, and a record about as much as a call.
 * Both are charged to the budget of the connection, its address and the loop (budget.c).
 *
 * OpenSSL writes to the socket itself, past hf_socket_write(). So here each use of a session that may send
 * something asks for the lease (loop.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "rpc/server_internal.h"

/* About half a millisecond for one of its two steps: a signature, or the check of a client's certificates. */
#define STEP_UNITS 512

struct hf_rpc_secure {
	struct hf_rpc_connection *connection;
	struct hf_tls_session *session; /* NULL: the answer STARTTLS is not sent yet */
	struct hf_link link;            /* in lane->securing */
	struct hf_link part_link;       /* in part->securing */
	uint64_t since;
	uint64_t channel;                      /* see hf_rpc_call_channel(); 0: the handshake is not done */
	bool is_open;                          /* the handshake is done */
	size_t n_keys;                         /* for which n_keyed of the server counts it */
	struct hf_rpc_presence_link *presence; /* while it is open; NULL: the server has no such list */
};

static bool may_send(const struct hf_rpc_connection *c)
{
	return hf_loop_may_act(c->lane->loop);
}

/* For the home loop, which shows how much of the limits is used. */
static void show_handshakes(const struct hf_rpc_connection *c)
{
	struct hf_rpc_lane *lane = c->lane;

	atomic_store_explicit(&lane->used_securing, lane->n_securing, memory_order_relaxed);
	if (c->part->n_securing > atomic_load_explicit(&lane->used_securing_of_host, memory_order_relaxed))
		atomic_store_explicit(&lane->used_securing_of_host, c->part->n_securing,
				      memory_order_relaxed);
}

static void leave(struct hf_rpc_connection *c)
{
	if (!hf_link_is_linked(&c->secure->link))
		return;
	hf_link_remove(&c->secure->link);
	hf_link_remove(&c->secure->part_link);
	c->lane->n_securing--;
	c->part->n_securing--;
	show_handshakes(c);
}

static void note_end(struct hf_rpc_connection *c, enum hf_tls_result result, const char *why)
{
	char text[HF_ADDR_TEXT];

	hf_log_debug("TLS handshake ended", "peer=%s result=%s reason=%s",
		     hf_addr_format_with_port(&c->peer, text, sizeof(text)), hf_tls_result_names[result],
		     why);
	hf_tls_count(c->lane->server->tls, result);
}

/* Ends a connection whose handshake is not done. */
static void give_up(struct hf_rpc_connection *c, enum hf_tls_result result, const char *why)
{
	note_end(c, result, why);
	if (result != HF_TLS_GONE)
		hf_rpc_log_closed(c->lane, &c->peer, "connection closed: no TLS session began", why);
	hf_rpc_connection_close(c);
}

static void crowd_out(struct hf_rpc_connection *c, enum hf_limit limit, const char *why)
{
	note_end(c, HF_TLS_CROWDED, why);
	hf_rpc_note_refusal(c->lane, limit, &c->peer, "connection closed: no TLS session began", why);
	hf_rpc_connection_close(c);
}

/* Asking */

static struct hf_rpc_connection *oldest_of(struct hf_host_part *part)
{
	return hf_list_entry(hf_list_first(&part->securing), struct hf_rpc_secure, part_link)->connection;
}

/* The address with the most handshakes, the newcomer's counted. Of several, the one whose handshake is the
 * oldest. The walk is bounded by the limit, and costs little beside a handshake. */
static struct hf_host_part *find_crowd(struct hf_rpc_connection *newcomer)
{
	struct hf_host_part *crowd = newcomer->part;
	size_t most = crowd->n_securing ? crowd->n_securing + 1 : 0;

	hf_list_for_each(link, &newcomer->lane->securing) {
		struct hf_host_part *part = hf_list_entry(link, struct hf_rpc_secure, link)->connection->part;

		if (part->n_securing > most) {
			crowd = part;
			most = part->n_securing;
		}
	}
	return crowd;
}

static void make_room(struct hf_rpc_connection *c)
{
	const struct hf_rpc_limits *limits = &c->lane->server->limits;

	if (c->part->n_securing >= limits->max_handshakes_per_host)
		crowd_out(oldest_of(c->part), HF_LIMIT_HANDSHAKES_PER_ADDRESS,
			  "too-many-handshakes-of-this-address");
	else if (c->lane->n_securing >= limits->max_handshakes)
		crowd_out(oldest_of(find_crowd(c)), HF_LIMIT_HANDSHAKES, "too-many-handshakes");
}

bool hf_rpc_secure_ask(struct hf_rpc_connection *c)
{
	struct hf_rpc_secure *secure;

	if (c->n_suspended || c->out.n_bytes || c->delay || hf_record_is_partial(&c->reader))
		return false;
	secure = calloc(1, sizeof(*secure));
	if (!secure)
		return false;
	make_room(c);
	hf_link_init(&secure->link);
	hf_link_init(&secure->part_link);
	secure->connection = c;
	secure->since = hf_loop_now(c->lane->loop);
	c->secure = secure;
	hf_list_push_back(&c->lane->securing, &secure->link);
	hf_list_push_back(&c->part->securing, &secure->part_link);
	c->lane->n_securing++;
	c->part->n_securing++;
	show_handshakes(c);
	return true;
}

/* Handshake */

bool hf_rpc_secure_is_open(const struct hf_rpc_secure *secure)
{
	return secure->is_open;
}

/* hf_rpc_server_counts() tells connections that are authenticated from others. */
static void count(struct hf_rpc_connection *c, size_t by)
{
	struct hf_rpc_server *server = c->lane->server;
	bool is_authenticated = hf_tls_session_peer(c->secure->session)->is_authenticated;

	atomic_fetch_add_explicit(is_authenticated ? &server->n_mtls : &server->n_tls, by,
				  memory_order_relaxed);
}

/* Two connections of one client have the same names, in the same order: those of its certificate. */
static uint64_t channel_of(const struct hf_rpc_server *server, const struct hf_tls_peer *peer)
{
	uint64_t channel = 1 + peer->is_authenticated;

	for (size_t i = 0; i < peer->n_names; i++)
		channel = channel * 31 +
			  hf_siphash(&server->channel_key, peer->names[i], strlen(peer->names[i]));
	return channel ? channel : 1;
}

/* False: no memory. */
static bool open_session(struct hf_rpc_connection *c)
{
	const struct hf_tls_peer *peer = hf_tls_session_peer(c->secure->session);
	struct hf_rpc_presence *presence = c->lane->server->presence;
	char text[HF_ADDR_TEXT];

	if (presence) {
		c->secure->presence = hf_rpc_presence_begin(presence, &c->peer, peer);
		if (!c->secure->presence)
			return false;
	}
	leave(c);
	c->secure->is_open = true;
	c->secure->channel = channel_of(c->lane->server, peer);
	count(c, 1);
	hf_tls_count(c->lane->server->tls, HF_TLS_DONE);
	/* The names of a certificate have only visible characters. */
	hf_log_debug("TLS session begins", "peer=%s name=%s",
		     hf_addr_format_with_port(&c->peer, text, sizeof(text)),
		     peer->n_names ? peer->names[0] : "-");
	return true;
}

static int begin_session(struct hf_rpc_connection *c)
{
	int fd = hf_socket_descriptor(c->socket);

	if (fd < 0)
		return fd;
	return hf_tls_session_new(&c->secure->session, c->lane->server->tls, fd);
}

static void wait_for_budget(struct hf_rpc_connection *c)
{
	c->budget = 0;
	hf_rpc_budget_wait(c);
}

/* -EAGAIN: it waits, for the peer or for budget; *eventsp is what to watch for. */
static int step(struct hf_rpc_connection *c, bool is_queued, unsigned int *eventsp)
{
	int r;

	if (c->budget <= 0 || (!is_queued && hf_rpc_budget_is_late(c->lane))) {
		wait_for_budget(c);
		*eventsp = 0;
		return -EAGAIN;
	}
	hf_rpc_budget_spend(c, STEP_UNITS);
	r = hf_tls_session_handshake(c->secure->session);
	*eventsp = hf_tls_session_wants_write(c->secure->session) ? HF_SOCKET_WRITE : HF_SOCKET_READ;
	return r;
}

enum hf_rpc_secured hf_rpc_secure_serve(struct hf_rpc_connection *c, bool is_queued, unsigned int *eventsp)
{
	int r;

	if (!may_send(c)) {
		hf_rpc_connection_close(c);
		return HF_RPC_GAVE_UP;
	}
	if (!c->secure->session) {
		r = begin_session(c);
		*eventsp = HF_SOCKET_READ;
		if (r == 0)
			return HF_RPC_SECURING; /* the client has not seen the answer yet */
	} else {
		hf_rpc_budget_begin(c, is_queued);
		r = step(c, is_queued, eventsp);
		hf_rpc_budget_end(c);
	}
	if (r == -EAGAIN)
		return HF_RPC_SECURING;
	if (r == HF_TLS_DONE && open_session(c))
		return HF_RPC_SECURED;
	give_up(c, r <= 0 ? HF_TLS_BROKEN : (enum hf_tls_result)r,
		r != HF_TLS_DONE && c->secure->session ? hf_tls_session_problem(c->secure->session)
						       : "no-memory");
	return HF_RPC_GAVE_UP;
}

/* Data */

/* New keys are rare, so the counts of all loops may be the server's. */
static void count_keys(struct hf_rpc_secure *secure, size_t n)
{
	struct hf_rpc_server *server = secure->connection->lane->server;

	if (HF_LIKELY(n == secure->n_keys))
		return;
	if (secure->n_keys)
		atomic_fetch_sub_explicit(&server->n_keyed[secure->n_keys], 1, memory_order_relaxed);
	if (n)
		atomic_fetch_add_explicit(&server->n_keyed[n], 1, memory_order_relaxed);
	secure->n_keys = n;
}

/* Reading sends, too: the rest of an answer to a new key, or an alert. */
ssize_t hf_rpc_secure_read(struct hf_rpc_secure *secure, void *data, size_t len)
{
	uint64_t n_before = hf_tls_session_count_records(secure->session);
	ssize_t n;

	if (!may_send(secure->connection))
		return -ESTALE;
	n = hf_tls_session_read(secure->session, data, len);
	hf_rpc_budget_spend(secure->connection,
			    (int32_t)(hf_tls_session_count_records(secure->session) - n_before));
	count_keys(secure, hf_tls_session_count_keys(secure->session));
	if (HF_UNLIKELY(n < 0 && hf_tls_session_is_flooded(secure->session)))
		hf_rpc_note_refusal(secure->connection->lane, HF_LIMIT_TLS_KEYS, &secure->connection->peer,
				    "connection closed: it changes its TLS key too often",
				    "too-many-new-keys");
	return n;
}

int hf_rpc_secure_write(struct hf_rpc_secure *secure, struct hf_outqueue *queue,
			struct hf_segment_pool *segments)
{
	return may_send(secure->connection) ? hf_outqueue_write_tls(queue, segments, secure->session)
					    : -ESTALE;
}

bool hf_rpc_secure_reads_by_writing(const struct hf_rpc_secure *secure)
{
	return secure->is_open && hf_tls_session_wants_write(secure->session);
}

/* The kernel does not tell of input that OpenSSL has read already. */
void hf_rpc_secure_serve_again(struct hf_rpc_connection *c)
{
	if (c->is_paused || !c->secure->is_open || !hf_tls_session_has_input(c->secure->session))
		return;
	c->is_paused = true;
	wait_for_budget(c);
}

const struct hf_tls_peer *hf_rpc_call_tls(const struct hf_rpc_call *call)
{
	struct hf_rpc_secure *secure = call->connection ? call->connection->secure : NULL;

	return secure && secure->is_open ? hf_tls_session_peer(secure->session) : NULL;
}

uint64_t hf_rpc_call_channel(const struct hf_rpc_call *call)
{
	struct hf_rpc_secure *secure = call->connection ? call->connection->secure : NULL;

	return secure ? secure->channel : 0;
}

/* End */

void hf_rpc_secure_close(struct hf_rpc_connection *c)
{
	if (!c->secure)
		return;
	leave(c);
	count_keys(c->secure, 0);
	if (c->secure->is_open)
		count(c, (size_t)-1);
	if (c->secure->presence)
		hf_rpc_presence_end(c->secure->presence);
	c->secure->presence = NULL;
	if (c->secure->session)
		hf_tls_session_end(c->secure->session, may_send(c));
}

void hf_rpc_secure_free(struct hf_rpc_connection *c)
{
	if (!c->secure)
		return;
	hf_tls_session_free(c->secure->session);
	free(c->secure);
	c->secure = NULL;
}

static size_t find_most_of_host(const struct hf_rpc_lane *lane)
{
	size_t most = 0;

	hf_list_for_each(link, &lane->securing)
		most = HF_MAX(most,
			      hf_list_entry(link, struct hf_rpc_secure, link)->connection->part->n_securing);
	return most;
}

void hf_rpc_secure_sweep(struct hf_rpc_lane *lane)
{
	uint64_t now = hf_loop_now(lane->loop);
	struct hf_link *link;

	atomic_store_explicit(&lane->used_securing_of_host, find_most_of_host(lane), memory_order_relaxed);

	while ((link = hf_list_first(&lane->securing))) {
		struct hf_rpc_secure *secure = hf_list_entry(link, struct hf_rpc_secure, link);

		if (now - secure->since < lane->server->limits.handshake_ns)
			return;
		give_up(secure->connection, HF_TLS_LATE, "the-client-did-not-finish-in-time");
	}
}
