/*
 * One TCP connection: records in, replies out.
 *
 * Reading stops (is_paused) while the peer leaves too many replies unread, has too many calls
 * under way, is about to move to another lane, shakes hands for TLS (secure.c), or must wait for budget or
 * for memory that all connections share (budget.c). Input that was already read waits in the backlog. A
 * connection whose replies are delayed (delay.h) sends nothing; they count like unread ones. In a late turn
 * of the loop each connection is served only a little. So even with many busy connections the
 * last one is served soon.
 *
 * A connection is in lane->busy while it has an incomplete record, unsent replies or a
 * backlog, else in lane->idle. Both lists are in the order of `since`, so the sweep looks only
 * at connections whose time is over.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "rpc/server_internal.h"

#define READ_BUFFER  (256 * 1024)
#define READ_LITTLE  (16 * 1024) /* when more input would have to be stored */
#define READS_A_TURN 4           /* then other connections are served */
#define LATE_READ    1024        /* in a late turn: a few calls */
#define LATE_PIECE   (64 * 1024) /* or a part of a long call or a long reply */
#define MAX_WAKES    16 /* of a tired connection, in vain: they cost as much as to stop watching it */
#define SWEEP_NS     (1 * HF_NS_PER_S)

static void on_ready(void *user, unsigned int events);

void hf_rpc_connection_start(struct hf_rpc_lane *lane, struct hf_socket *socket, const struct hf_addr *peer,
			     struct hf_host *host)
{
	struct hf_rpc_connection *c = lane->is_closed ? NULL : calloc(1, sizeof(*c));

	if (!c) {
		hf_socket_close(socket);
		hf_hosts_close(lane->server->hosts, host, hf_loop_now(lane->loop));
		hf_hosts_leave(lane->server->hosts, host);
		atomic_fetch_sub_explicit(&lane->server->n_connections, 1, memory_order_relaxed);
		return;
	}
	hf_link_init(&c->flush_link);
	hf_link_init(&c->delay_link);
	hf_link_init(&c->part_link);
	hf_link_init(&c->wait_link);
	c->lane = lane;
	c->socket = socket;
	c->peer = *peer;
	c->since = c->useful = hf_loop_now(lane->loop);
	c->host = host;
	hf_socket_local(socket, &c->local);
	(void)hf_socket_set_keepalive(socket, hf_rpc_keepalive(lane));
	hf_record_reader_init(&c->reader, lane->server->max_record);
	hf_outqueue_init(&c->out);
	hf_list_init(&c->probes);
	hf_list_push_back(&lane->idle, &c->link);
	hf_rpc_budget_join(c);
	hf_host_part_hear(c->part, c->useful);
	if (hf_socket_watch(socket, HF_SOCKET_READ, on_ready, c) < 0)
		hf_rpc_connection_close(c);
}

static void clear_backlog(struct hf_rpc_connection *c)
{
	free(c->backlog);
	c->backlog = NULL;
	c->backlog_at = c->backlog_len = c->backlog_size = 0;
}

static void leave_delay(struct hf_rpc_connection *c)
{
	struct hf_rpc_delay *delay = c->delay;

	if (!delay)
		return;
	hf_rpc_delay_let_go(c);
	delay->on_gone(delay, c);
}

void hf_rpc_connection_close(struct hf_rpc_connection *c)
{
	struct hf_rpc_lane *lane = c->lane;

	if (c->socket) {
		hf_rpc_probes_end(c, c->was_reset);
		hf_rpc_secure_close(c);
		hf_socket_close(c->socket);
		c->socket = NULL;
		hf_link_remove(&c->link);
		hf_link_remove(&c->flush_link);
		leave_delay(c);
		lane->n_gathering -= c->reader.capacity;
		hf_record_reader_deinit(&c->reader);
		hf_outqueue_clear(&c->out, &lane->segments);
		clear_backlog(c);
		free(c->traveller);
		c->traveller = NULL;
		c->traveller_len = 0;
		hf_rpc_budget_count(c);
		hf_rpc_budget_quit(c);
		hf_hosts_close(lane->server->hosts, c->host, hf_loop_now(lane->loop));
		atomic_fetch_add_explicit(&lane->server->n_shells, 1, memory_order_relaxed);
		atomic_fetch_sub_explicit(&lane->server->n_connections, 1, memory_order_relaxed);
	}
	if (c->n_suspended || c->is_reading)
		return;
	/* Only now does it leave its address. Otherwise a client could reconnect again and again, and have
	 * any number of calls under way. */
	assert(!c->charged);
	hf_hosts_leave(lane->server->hosts, c->host);
	atomic_fetch_sub_explicit(&lane->server->n_shells, 1, memory_order_relaxed);
	hf_rpc_secure_free(c);
	free(c);
}

void hf_rpc_connection_release(struct hf_rpc_connection *c, size_t len)
{
	assert(c->n_suspended > 0 && c->suspended_bytes >= len);
	c->n_suspended--;
	c->suspended_bytes -= len;
	hf_rpc_budget_count(c);
	if (!c->socket)
		hf_rpc_connection_close(c);
	else if (c->is_paused)
		hf_rpc_connection_replied(c); /* there may be room for more calls now */
}

/* Lists */

static void enlist(struct hf_rpc_connection *c, bool has_progressed)
{
	struct hf_rpc_lane *lane = c->lane;
	bool is_busy = c->out.n_bytes || c->backlog_len || hf_record_is_partial(&c->reader);

	if (is_busy && c->is_busy && !has_progressed)
		return;
	c->is_busy = is_busy;
	c->since = hf_loop_now(lane->loop);
	hf_link_remove(&c->link);
	hf_list_push_back(is_busy ? &lane->busy : &lane->idle, &c->link);
}

/* The event after which a read goes on. While TLS must write first, input would only wake the loop again and
 * again. */
static unsigned int event_of_input(const struct hf_rpc_connection *c)
{
	return HF_UNLIKELY(c->secure != NULL) && hf_rpc_secure_reads_by_writing(c->secure) ? HF_SOCKET_WRITE
											   : HF_SOCKET_READ;
}

static void update_watch(struct hf_rpc_connection *c)
{
	unsigned int events = 0;

	if (!c->is_paused)
		events |= event_of_input(c);
	if (c->out.n_bytes && !c->delay)
		events |= HF_SOCKET_WRITE;
	if (hf_socket_watch(c->socket, events, on_ready, c) < 0)
		hf_rpc_connection_close(c);
}

/* Out */

/* False: the connection broke. */
static bool flush(struct hf_rpc_connection *c, bool *progressp)
{
	size_t before = c->out.n_bytes;
	int r;

	if (c->delay || (before > LATE_PIECE && hf_rpc_budget_is_late(c->lane)))
		return true;
	hf_rpc_meters_add_up(c->lane);
	/* The answer STARTTLS leaves in the clear. */
	if (HF_UNLIKELY(c->secure != NULL) && hf_rpc_secure_is_open(c->secure))
		r = hf_rpc_secure_write(c->secure, &c->out, &c->lane->segments);
	else
		r = hf_outqueue_write(&c->out, &c->lane->segments, c->socket);
	hf_rpc_budget_note_sent(c, before - c->out.n_bytes);
	*progressp |= c->out.n_bytes < before;
	c->was_reset = r == -ECONNRESET;
	return r == 0 || r == -EAGAIN;
}

void hf_rpc_connection_replied(struct hf_rpc_connection *c)
{
	if (c->is_reading || c->delay || hf_link_is_linked(&c->flush_link))
		return;
	hf_list_push_back(&c->lane->flushable, &c->flush_link);
	hf_loop_defer(c->lane->loop, &c->lane->flush);
}

/* In */

static bool has_too_many_calls(const struct hf_rpc_connection *c)
{
	const struct hf_rpc_limits *limits = &c->lane->server->limits;

	return c->n_suspended >= limits->max_suspended_per_connection ||
	       c->suspended_bytes + c->out.n_allocated >= limits->max_suspended_bytes;
}

static bool must_pause(const struct hf_rpc_connection *c)
{
	return c->is_moving || c->lane->is_ending || hf_rpc_is_securing(c) ||
	       c->out.n_allocated > c->lane->server->limits.max_unread || has_too_many_calls(c);
}

static enum hf_rpc_dispatched serve_record(struct hf_rpc_connection *c, struct hf_bytes record)
{
	struct hf_rpc_call *call = hf_rpc_call_new(c->lane, record);
	size_t n_charged = c->reader.n_told; /* bytes that were charged when they came */
	enum hf_rpc_dispatched dispatched;

	if (!call)
		return HF_RPC_NONSENSE;
	call->connection = c;
	dispatched = hf_rpc_dispatch(call);
	if (HF_LIKELY(dispatched == HF_RPC_DISPATCHED))
		c->was_useful = true;
	else if (dispatched == HF_RPC_MUST_WAIT || dispatched == HF_RPC_MAY_NOT)
		return dispatched;
	else if (dispatched == HF_RPC_GOES_HOME)
		hf_rpc_connection_move_home(c, record);
	hf_rpc_budget_spend(c, 1);
	hf_rpc_budget_spend_bytes(c, record.len - n_charged);
	return dispatched;
}

/* Before the next call. False: the connection broke. */
static bool pause_if_it_must(struct hf_rpc_connection *c, bool *progressp)
{
	hf_record_release(&c->reader); /* the last call needs its record no more */
	hf_rpc_budget_count(c);
	if (HF_LIKELY(!must_pause(c) && !hf_rpc_budget_must_wait(c)))
		return true;
	if (!flush(c, progressp))
		return false;
	hf_rpc_budget_count(c);
	c->is_paused = must_pause(c);
	if (!c->is_paused && hf_rpc_budget_must_wait(c)) {
		c->is_paused = true;
		hf_rpc_budget_wait(c);
	}
	return true;
}

/* If all incomplete records together are too long, the oldest one is dropped. A record that is really being
 * sent is never old. */
static void limit_gathering(struct hf_rpc_lane *lane, struct hf_rpc_connection *but)
{
	while (lane->n_gathering > lane->server->limits.max_gathering) {
		struct hf_rpc_connection *victim = NULL;

		hf_list_for_each(link, &lane->busy) {
			struct hf_rpc_connection *c = hf_list_entry(link, struct hf_rpc_connection, link);

			if (c->reader.capacity && c != but) {
				victim = c;
				break;
			}
		}
		if (!victim)
			return;
		hf_rpc_note_refusal(lane, HF_LIMIT_RECORD_BYTES, &victim->peer,
				    "connection closed in the middle of a record",
				    "incomplete-records-of-all-are-too-long");
		hf_rpc_connection_close(victim);
	}
}

static bool save_backlog(struct hf_rpc_connection *c, struct hf_bytes before, struct hf_bytes rest)
{
	size_t len = (size_t)before.len + rest.len;
	uint8_t *copy;

	if (!len)
		return true;
	copy = malloc(len);
	if (!copy)
		return false;
	memcpy(copy, before.data, before.len);
	memcpy(copy + before.len, rest.data, rest.len);
	c->backlog = copy;
	c->backlog_at = 0;
	c->backlog_len = c->backlog_size = len;
	return true;
}

/* A record was taken from @input, which began at @begin. Puts it back, to be taken again later. */
static bool put_back(struct hf_rpc_connection *c, struct hf_bytes *input, const uint8_t *begin,
		     struct hf_bytes record)
{
	struct hf_bytes rest = *input;
	uint8_t again[HF_RECORD_MARK + HF_RPC_LONGEST_ASKER];
	uint32_t mark = htobe32(HF_RECORD_LAST | record.len);

	c->is_paused = true;
	hf_rpc_budget_wait(c);
	if (!c->reader.is_given && record.data - begin >= HF_RECORD_MARK) {
		input->data = record.data - HF_RECORD_MARK;
		input->len += record.len + HF_RECORD_MARK;
		return true;
	}
	/* Its mark or some of its bytes came earlier. */
	memcpy(again, &mark, HF_RECORD_MARK);
	memcpy(again + HF_RECORD_MARK, record.data, record.len);
	hf_record_release(&c->reader);
	input->len = 0;
	return save_backlog(c, hf_bytes_of(again, HF_RECORD_MARK + record.len), rest);
}

/* The client asked for TLS. It sends nothing more until it has the answer: what came behind its question may
 * be an attacker's. */
static bool ends_clear_text(struct hf_rpc_connection *c, const struct hf_bytes *input)
{
	c->is_paused = true;
	if (!input->len)
		return true;
	hf_rpc_log_closed(c->lane, &c->peer, "connection closed: clear text follows the question for TLS",
			  "starttls-injection");
	return false;
}

/* Takes records from @input until none is left or reading must pause. *input is then the rest. */
static bool serve_input(struct hf_rpc_connection *c, struct hf_bytes *input, bool *progressp)
{
	size_t n_allocated = SIZE_MAX, n_suspended = 0; /* as they were at the last check whether to pause */
	struct hf_bytes record;
	int r = HF_RECORD_MORE;

	while (!c->is_paused) {
		const uint8_t *begin = input->data;
		enum hf_rpc_dispatched dispatched;

		r = hf_record_read(&c->reader, input, &record);
		if (r != HF_RECORD_READY)
			break;
		dispatched = serve_record(c, record);
		if (HF_UNLIKELY(dispatched != HF_RPC_DISPATCHED)) {
			if (dispatched == HF_RPC_MUST_WAIT)
				return put_back(c, input, begin, record);
			if (dispatched == HF_RPC_IS_LAST)
				(void)flush(c, progressp);
			if (dispatched != HF_RPC_GOES_HOME &&
			    (dispatched != HF_RPC_STARTS_TLS || !ends_clear_text(c, input)))
				return false;
		}
		*progressp = true;
		if (HF_LIKELY(c->out.n_allocated == n_allocated && c->n_suspended == n_suspended &&
			      c->budget > 0))
			continue;
		if (!pause_if_it_must(c, progressp))
			return false;
		n_allocated = c->out.n_allocated;
		n_suspended = c->n_suspended;
	}
	hf_record_release(&c->reader);
	if (r < 0)
		return false;
	/* What makes no call costs time, too: part of a record, fragments without bytes. */
	hf_rpc_budget_spend_bytes(c, hf_record_take_work(&c->reader));
	return HF_LIKELY(c->is_paused || c->budget > 0) || pause_if_it_must(c, progressp);
}

static bool serve_backlog(struct hf_rpc_connection *c, bool *progressp)
{
	uint8_t *data = c->backlog;
	struct hf_bytes input;
	bool ok;

	if (!data)
		return true;
	input = hf_bytes_of(data + c->backlog_at, (uint32_t)c->backlog_len);
	ok = serve_input(c, &input, progressp);
	if (c->backlog != data) {
		free(data); /* a record was put back, with the rest of the input */
	} else if (!input.len) {
		clear_backlog(c);
	} else {
		c->backlog_at = (size_t)(input.data - data);
		c->backlog_len = input.len;
	}
	return ok;
}

/* 1: read some; 0: nothing more for now; < 0: the connection has ended. */
static int read_once(struct hf_rpc_connection *c, bool *progressp)
{
	uint8_t *space = NULL;
	size_t room = hf_record_space(&c->reader, &space);
	bool is_direct = room > 0;
	struct hf_bytes input, record;
	ssize_t n;

	if (!is_direct) {
		space = c->lane->read_buffer;
		room = HF_LIKELY(!c->is_ahead && hf_rpc_budget_has_room(c->lane, c->part)) ? READ_BUFFER
											   : READ_LITTLE;
	}
	if (hf_rpc_budget_is_late(c->lane))
		room = HF_MIN(room, (size_t)(is_direct ? LATE_PIECE : LATE_READ));
	if (HF_UNLIKELY(c->secure != NULL))
		n = hf_rpc_secure_read(c->secure, space, room);
	else
		n = hf_socket_read(c->socket, space, room);
	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n <= 0) {
		/* Every other end, also by silence, leaves open whether the peer knows the connection. */
		c->was_reset = n == -ECONNRESET;
		return -ECONNRESET;
	}
	if (is_direct) {
		if (hf_record_filled(&c->reader, (size_t)n, &record) == HF_RECORD_READY) {
			*progressp = true;
			enum hf_rpc_dispatched dispatched = serve_record(c, record);

			if (dispatched == HF_RPC_IS_LAST)
				(void)flush(c, progressp);
			/* A record that is read in this way is too long to start TLS. */
			if (dispatched == HF_RPC_NONSENSE || dispatched == HF_RPC_MAY_NOT ||
			    dispatched == HF_RPC_IS_LAST)
				return -EPROTO;
		} else {
			hf_rpc_budget_spend(c, 1);
			hf_rpc_budget_spend_bytes(c, hf_record_take_work(&c->reader));
		}
		if (!pause_if_it_must(c, progressp))
			return -EPIPE;
	} else {
		input = hf_bytes_of(space, (uint32_t)n);
		if (!serve_input(c, &input, progressp) || !save_backlog(c, hf_bytes_of("", 0), input))
			return -EPROTO;
	}
	c->is_ahead &= c->is_paused;
	return (size_t)n == room && !c->is_paused;
}

static bool read_some(struct hf_rpc_connection *c, bool *progressp)
{
	size_t before = c->reader.capacity;
	int r = 1;

	for (int i = 0; i < READS_A_TURN && r > 0; i++)
		r = read_once(c, progressp);
	c->lane->n_gathering += c->reader.capacity - before;
	return r >= 0;
}

/* Continues after a pause, if it may. */
static bool resume(struct hf_rpc_connection *c, bool *progressp)
{
	size_t before = c->reader.capacity;
	bool ok;

	if (!c->is_paused || c->is_moving || c->lane->is_ending || hf_rpc_is_securing(c) ||
	    c->out.n_allocated > c->lane->server->limits.max_unread / 2 || has_too_many_calls(c))
		return true;
	hf_rpc_budget_count(c);
	if (hf_rpc_budget_must_wait(c)) {
		hf_rpc_budget_wait(c);
		return true;
	}
	hf_rpc_budget_stop_waiting(c);
	c->is_paused = false;
	ok = serve_backlog(c, progressp);
	c->lane->n_gathering += c->reader.capacity - before;
	return ok;
}

static bool is_waiting(const struct hf_rpc_connection *c)
{
	return hf_link_is_linked(&c->wait_link);
}

/* From the question for TLS to the end of the handshake: sends the answer, then shakes hands. True: calls may
 * come. */
static HF_NOINLINE bool serve_securing(struct hf_rpc_connection *c, bool is_queued)
{
	unsigned int events = HF_SOCKET_WRITE;
	bool progress = false;

	if (c->lane->is_ending || !flush(c, &progress)) {
		hf_rpc_connection_close(c);
		return false;
	}
	if (!c->out.n_bytes) {
		switch (hf_rpc_secure_serve(c, is_queued, &events)) {
		case HF_RPC_SECURED:
			c->is_paused = false;
			return true;
		case HF_RPC_GAVE_UP:
			return false;
		case HF_RPC_SECURING:
			break;
		}
	}
	if (hf_socket_watch(c->socket, events, on_ready, c) < 0)
		hf_rpc_connection_close(c);
	return false;
}

/* Serves a connection once: write, continue, read, write. */
static void serve_events(struct hf_rpc_connection *c, bool can_read, bool is_queued)
{
	bool progress = false;
	bool ok = true;

	if (hf_rpc_is_securing(c) && !serve_securing(c, is_queued))
		return;
	hf_rpc_meters_add_up(c->lane); /* a group of the meters has the time of one turn */
	hf_rpc_budget_begin(c, is_queued);
	c->is_reading = true;
	if (c->out.n_bytes)
		ok = flush(c, &progress);
	ok = ok && resume(c, &progress);
	if (ok && can_read && !c->is_paused)
		ok = pause_if_it_must(c, &progress);
	if (ok && can_read && !c->is_paused)
		ok = read_some(c, &progress);
	if (ok && c->out.n_bytes)
		ok = flush(c, &progress);
	if (ok && c->is_paused)
		ok = resume(c, &progress);
	c->is_reading = false;
	hf_rpc_budget_end(c);
	if (!ok) {
		hf_rpc_connection_close(c);
		return;
	}
	hf_rpc_budget_count(c);
	if (c->is_moving && hf_rpc_connection_try_move(c))
		return;
	enlist(c, progress);
	limit_gathering(c->lane, c);
	if (HF_UNLIKELY(c->secure != NULL)) {
		if (hf_rpc_is_securing(c)) { /* it has just asked; it takes no calls before the handshake */
			(void)serve_securing(c, false);
			return;
		}
		hf_rpc_secure_serve_again(c);
	}
	/* As a rule a tired connection is served again soon. So its socket stays watched for input until that
	 * proves wrong: each change costs up to two system calls. */
	if (!is_waiting(c)) {
		c->n_wakes = 0;
		update_watch(c);
	} else if (c->out.n_bytes) {
		update_watch(c);
	}
}

static void on_ready(void *user, unsigned int events)
{
	struct hf_rpc_connection *c = user;

	if (!is_waiting(c) || events & HF_SOCKET_WRITE)
		serve_events(c, (events & event_of_input(c)) != 0, false);
	else if (c->budget > 0 || ++c->n_wakes == MAX_WAKES)
		update_watch(c); /* it waits for memory, or for long */
}

/* While the connection waited, its socket was not watched. A client that hung up and left replies unread
 * shows by the error, and no work is done for it. */
void hf_rpc_connection_serve(struct hf_rpc_connection *c)
{
	if (hf_socket_error(c->socket) < 0)
		hf_rpc_connection_close(c);
	else
		serve_events(c, true, true);
}

void hf_rpc_flush_connections(struct hf_task *task)
{
	struct hf_rpc_lane *lane = hf_container_of(task, struct hf_rpc_lane, flush);
	struct hf_link *link;

	while ((link = hf_list_pop_front(&lane->flushable)))
		serve_events(hf_list_entry(link, struct hf_rpc_connection, flush_link), false, false);
}

/* Time */

/* It sends a record in so many pieces that it is tired again and again. All that was read is served. */
static bool is_tired_of_pieces(const struct hf_rpc_connection *c)
{
	return c->budget <= 0 && !c->backlog_len && hf_record_is_partial(&c->reader);
}

/* Does the connection wait for the server, or the server for it? */
static bool waits_for_server(const struct hf_rpc_connection *c)
{
	return c->n_suspended || c->delay || (is_waiting(c) && !is_tired_of_pieces(c));
}

static void close_older(struct hf_rpc_lane *lane, struct hf_list *list, uint64_t limit)
{
	uint64_t now = hf_loop_now(lane->loop);
	struct hf_link *link;

	while ((link = hf_list_first(list))) {
		struct hf_rpc_connection *c = hf_list_entry(link, struct hf_rpc_connection, link);

		if (now - c->since < limit)
			return;
		if (waits_for_server(c)) {
			enlist(c, true);
			continue;
		}
		hf_log_debug("connection closed: nothing came for too long", "peer_port=%u", c->peer.port);
		hf_rpc_connection_close(c);
	}
}

static void set_keepalive(struct hf_list *list, int keepalive_s)
{
	hf_list_for_each(pos, list)
		(void)hf_socket_set_keepalive(hf_list_entry(pos, struct hf_rpc_connection, link)->socket,
					      keepalive_s);
}

/* One that came from another lane, or was accepted, before that had changed is told when it arrives. */
static void tell_keepalive(struct hf_rpc_lane *lane)
{
	int keepalive_s = hf_rpc_keepalive(lane);

	if (lane->known_keepalive_s == keepalive_s)
		return;
	lane->known_keepalive_s = keepalive_s;
	set_keepalive(&lane->busy, keepalive_s);
	set_keepalive(&lane->idle, keepalive_s);
}

void hf_rpc_sweep_connections(struct hf_timer *timer)
{
	struct hf_rpc_lane *lane = hf_container_of(timer, struct hf_rpc_lane, sweep);
	const struct hf_rpc_limits *limits = &lane->server->limits;

	close_older(lane, &lane->busy, limits->stall_ns);
	close_older(lane, &lane->idle, limits->idle_ns);
	tell_keepalive(lane);
	hf_rpc_secure_sweep(lane);
	hf_rpc_budget_sweep(lane);
	hf_timer_start(timer, HF_MIN(SWEEP_NS, HF_MIN(limits->idle_ns, limits->stall_ns)));
}
