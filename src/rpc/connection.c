/*
 * One TCP connection: records in, replies out.
 *
 * Reading stops (is_paused) while the peer leaves too many replies unread, has
 * too many calls under way, or is about to move to another lane; what was read
 * already waits in the backlog. So a peer that sends and never reads costs us
 * one read buffer, the limit of unread replies, and one reply. A connection that
 * is held (hold.h) sends nothing; its replies count like those that are not read.
 * In a turn of the loop that is late each connection is served a little only, so
 * that many busy ones do not add up before the last has its turn.
 *
 * Lists: a connection is in lane->busy while it has an incomplete record,
 * unsent replies or a backlog, else in lane->idle. Both are in the order of
 * `since`, so the sweeper looks only at those whose time has come.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "rpc/server_internal.h"

#define READ_BUFFER  (256 * 1024)
#define READS_A_TURN 4           /* then the others have their turn */
#define LATE_READ    1024        /* in a turn that is late: a few calls, */
#define LATE_PIECE   (64 * 1024) /* or a piece of a long one, or of a long reply */
#define CALL_NS      1500        /* about what a short call takes */
#define BYTES_A_NS   4           /* of calls; of replies half as many, which have been made as well */
#define SWEEP_NS     (1 * HF_NS_PER_S)
#define LANE_SHARES  64 /* connections that may have all that one may; more than so many have less */

static void on_ready(void *user, unsigned int events);

/* Life */

void hf_rpc_connection_start(struct hf_rpc_lane *lane, struct hf_socket *socket, const struct hf_addr *peer)
{
	struct hf_rpc_connection *c = lane->is_closed ? NULL : calloc(1, sizeof(*c));

	if (!c) {
		hf_socket_close(socket);
		hf_hosts_leave(lane->server->hosts, peer);
		atomic_fetch_sub_explicit(&lane->server->n_connections, 1, memory_order_relaxed);
		return;
	}
	hf_rpc_count(&lane->n_accepted);
	hf_link_init(&c->flush_link);
	hf_link_init(&c->hold_link);
	c->lane = lane;
	c->socket = socket;
	c->peer = *peer;
	c->since = hf_loop_now(lane->loop);
	hf_socket_local(socket, &c->local);
	hf_record_reader_init(&c->reader, lane->server->max_record);
	hf_outqueue_init(&c->out);
	hf_list_init(&c->probes);
	hf_list_push_back(&lane->idle, &c->link);
	if (hf_socket_watch(socket, HF_SOCKET_READ, on_ready, c) < 0)
		hf_rpc_connection_close(c);
}

static void clear_backlog(struct hf_rpc_connection *c)
{
	free(c->backlog);
	c->backlog = NULL;
	c->backlog_len = 0;
}

void hf_rpc_connection_close(struct hf_rpc_connection *c)
{
	struct hf_rpc_lane *lane = c->lane;

	if (c->socket) {
		hf_socket_close(c->socket);
		c->socket = NULL;
		hf_link_remove(&c->link);
		hf_link_remove(&c->flush_link);
		hf_rpc_hold_drop(c);
		hf_rpc_probes_end(c, c->is_broken);
		lane->n_gathering -= c->reader.capacity;
		hf_record_reader_deinit(&c->reader);
		hf_outqueue_clear(&c->out, &lane->segments);
		clear_backlog(c);
		free(c->traveller);
		c->traveller = NULL;
		atomic_fetch_add_explicit(&lane->server->n_shells, 1, memory_order_relaxed);
		atomic_fetch_sub_explicit(&lane->server->n_connections, 1, memory_order_relaxed);
	}
	if (c->n_kept || c->is_reading)
		return;
	/* Not before: else who hangs up and comes again has as many calls under way as he likes. */
	hf_hosts_leave(lane->server->hosts, &c->peer);
	atomic_fetch_sub_explicit(&lane->server->n_shells, 1, memory_order_relaxed);
	free(c);
}

void hf_rpc_connection_release(struct hf_rpc_connection *c, size_t len)
{
	assert(c->n_kept > 0 && c->kept_bytes >= len);
	c->n_kept--;
	c->kept_bytes -= len;
	c->lane->kept_bytes -= len;
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

static void update_watch(struct hf_rpc_connection *c)
{
	unsigned int events = 0;

	if (!c->is_paused)
		events |= HF_SOCKET_READ;
	if (c->out.n_bytes && !c->hold)
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

	if (c->hold || (before > LATE_PIECE && hf_loop_is_late(c->lane->loop)))
		return true;
	hf_rpc_meters_settle(c->lane);
	r = hf_outqueue_write(&c->out, &c->lane->segments, c->socket);

	hf_loop_spend(c->lane->loop, 2 * (before - c->out.n_bytes) / BYTES_A_NS);
	*progressp |= c->out.n_bytes < before;
	c->is_broken = r == -ECONNRESET;
	return r == 0 || r == -EAGAIN;
}

void hf_rpc_connection_replied(struct hf_rpc_connection *c)
{
	if (c->is_reading || c->hold || hf_link_is_linked(&c->flush_link))
		return;
	hf_list_push_back(&c->lane->flushable, &c->flush_link);
	hf_loop_defer(c->lane->loop, &c->lane->flush);
}

/* In */

static bool has_too_many_calls(const struct hf_rpc_connection *c)
{
	const struct hf_rpc_limits *limits = &c->lane->server->limits;

	return c->n_kept >= limits->max_kept_per_connection || c->kept_bytes >= limits->max_kept_bytes ||
	       (c->n_kept && c->lane->kept_bytes >= LANE_SHARES * limits->max_kept_bytes);
}

static bool must_pause(const struct hf_rpc_connection *c)
{
	return c->is_moving || c->out.n_held > c->lane->server->limits.max_unread || has_too_many_calls(c);
}

/* False: hang up. */
static bool serve_record(struct hf_rpc_connection *c, struct hf_bytes record)
{
	struct hf_rpc_call *call = hf_rpc_call_new(c->lane, record);
	enum hf_rpc_dispatched dispatched;

	if (!call)
		return false;
	call->connection = c;
	hf_loop_spend(c->lane->loop, CALL_NS + record.len / BYTES_A_NS);
	dispatched = hf_rpc_dispatch(call);
	if (dispatched == HF_RPC_GOES_HOME)
		hf_rpc_connection_move_home(c, record);
	hf_record_release(&c->reader);
	return dispatched != HF_RPC_NONSENSE;
}

/* The oldest incomplete record goes when all of them together are too much: one that is really being sent is
 * never old. */
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
		hf_rpc_note_refusal(lane, &victim->peer, "connection closed in the middle of a record",
				    "incomplete-records-of-all-are-too-long");
		hf_rpc_connection_close(victim);
	}
}

/* Takes records from @input until it is used up or we must pause; *input is then the rest. */
static bool serve_input(struct hf_rpc_connection *c, struct hf_bytes *input, bool *progressp)
{
	struct hf_bytes record;
	int r = HF_RECORD_MORE;

	while (!c->is_paused && (r = hf_record_read(&c->reader, input, &record)) == HF_RECORD_READY) {
		*progressp = true;
		if (!serve_record(c, record))
			return false;
		if (HF_UNLIKELY(must_pause(c))) {
			if (!flush(c, progressp))
				return false;
			c->is_paused = must_pause(c);
		}
	}
	return r >= 0;
}

static bool save_backlog(struct hf_rpc_connection *c, struct hf_bytes rest)
{
	uint8_t *copy;

	if (!rest.len)
		return true;
	copy = malloc(rest.len);
	if (!copy)
		return false;
	memcpy(copy, rest.data, rest.len);
	c->backlog = copy;
	c->backlog_len = rest.len;
	return true;
}

static bool serve_backlog(struct hf_rpc_connection *c, bool *progressp)
{
	uint8_t *data = c->backlog;
	struct hf_bytes input = hf_bytes_of(data, (uint32_t)c->backlog_len);
	bool ok;

	if (!data)
		return true;
	c->backlog = NULL;
	c->backlog_len = 0;
	ok = serve_input(c, &input, progressp) && save_backlog(c, input);
	free(data);
	return ok;
}

/* 1: read some; 0: nothing more for now; < 0: over. */
static int read_once(struct hf_rpc_connection *c, bool *progressp)
{
	uint8_t *space = NULL;
	size_t room = hf_record_space(&c->reader, &space);
	bool is_direct = room > 0;
	struct hf_bytes input, record;
	ssize_t n;

	if (!is_direct) {
		space = c->lane->read_buffer;
		room = READ_BUFFER;
	}
	if (hf_loop_is_late(c->lane->loop))
		room = HF_MIN(room, (size_t)(is_direct ? LATE_PIECE : LATE_READ));
	n = hf_socket_read(c->socket, space, room);
	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n <= 0) {
		c->is_broken = n < 0;
		return -ECONNRESET;
	}
	if (is_direct) {
		if (hf_record_filled(&c->reader, (size_t)n, &record) == HF_RECORD_READY) {
			*progressp = true;
			if (!serve_record(c, record))
				return -EPROTO;
			c->is_paused = must_pause(c);
		}
	} else {
		input = hf_bytes_of(space, (uint32_t)n);
		if (!serve_input(c, &input, progressp) || !save_backlog(c, input))
			return -EPROTO;
	}
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

/* Goes on where it had paused, if it may. */
static bool resume(struct hf_rpc_connection *c, bool *progressp)
{
	size_t before = c->reader.capacity;
	bool ok;

	if (!c->is_paused || c->is_moving || c->out.n_held > c->lane->server->limits.max_unread / 2 ||
	    has_too_many_calls(c))
		return true;
	c->is_paused = false;
	ok = serve_backlog(c, progressp);
	c->lane->n_gathering += c->reader.capacity - before;
	return ok;
}

/* One turn of a connection: write, go on, read, write. */
static void turn(struct hf_rpc_connection *c, bool can_read)
{
	bool progress = false;
	bool ok = true;

	hf_rpc_meters_settle(c->lane); /* a group has the time of one turn */
	c->is_reading = true;
	if (c->out.n_bytes)
		ok = flush(c, &progress);
	ok = ok && resume(c, &progress);
	if (ok && can_read && !c->is_paused)
		ok = read_some(c, &progress);
	if (ok && c->out.n_bytes)
		ok = flush(c, &progress);
	if (ok && c->is_paused)
		ok = resume(c, &progress);
	c->is_reading = false;
	if (!ok) {
		hf_rpc_connection_close(c);
		return;
	}
	if (c->is_moving && hf_rpc_connection_try_move(c))
		return;
	enlist(c, progress);
	limit_gathering(c->lane, c);
	update_watch(c);
}

static void on_ready(void *user, unsigned int events)
{
	turn(user, (events & HF_SOCKET_READ) != 0);
}

void hf_rpc_flush_connections(struct hf_task *task)
{
	struct hf_rpc_lane *lane = hf_container_of(task, struct hf_rpc_lane, flush);
	struct hf_link *link;

	while ((link = hf_list_pop_front(&lane->flushable)))
		turn(hf_list_entry(link, struct hf_rpc_connection, flush_link), false);
}

/* Time */

static void close_older(struct hf_rpc_lane *lane, struct hf_list *list, uint64_t limit)
{
	uint64_t now = hf_loop_now(lane->loop);
	struct hf_link *link;

	while ((link = hf_list_first(list))) {
		struct hf_rpc_connection *c = hf_list_entry(link, struct hf_rpc_connection, link);

		if (now - c->since < limit)
			return;
		if (c->n_kept || c->hold) {
			enlist(c, true); /* it waits for us, not we for it */
			continue;
		}
		hf_log_debug("connection closed: nothing came for too long", "peer_port=%u", c->peer.port);
		hf_rpc_connection_close(c);
	}
}

void hf_rpc_sweep_connections(struct hf_timer *timer)
{
	struct hf_rpc_lane *lane = hf_container_of(timer, struct hf_rpc_lane, sweep);
	const struct hf_rpc_limits *limits = &lane->server->limits;

	close_older(lane, &lane->busy, limits->stall_ns);
	close_older(lane, &lane->idle, limits->idle_ns);
	hf_timer_start(timer, HF_MIN(SWEEP_NS, HF_MIN(limits->idle_ns, limits->stall_ns)));
}
