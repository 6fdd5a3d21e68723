/*
 * What a connection may take of its lane: memory and time.
 *
 * Memory. Counted are the calls under way with the replies that they will have,
 * the replies that are not sent yet, and the input that is not served yet. The
 * counts of a connection go into those of its address and of the lane. An
 * address has room for one more long reply if it then holds no more than what is
 * left free: so one address alone gets half, each of n gets 1/(n+1), and a
 * newcomer always finds as much. Where there is no room,
 *
 * - a call that may have a long reply is not begun (dispatch.c),
 * - a connection that holds more than HF_RPC_FEW_BYTES gets no further call served,
 *
 * and the connection waits. A connection that holds little is served its short
 * calls even then, so locks do not wait for those that leave data unread. If
 * connections have to wait, the sweep closes those that hold the most and have
 * made no progress for a while.
 *
 * Time. Work is counted in units: one for a call and one for each page of data that
 * is moved, about a microsecond each. The clock would count what other programs
 * do, too, and costs more to read than some calls.
 *
 * - A turn of a connection is TURN_UNITS; then it is tired, and the next connection
 *   is served.
 * - In a turn of the loop, what arrives from one address is served for HOST_UNITS;
 *   the connections of that address after that are tired from the start.
 * - Tired connections have a service of their own once a turn of the loop, one of
 *   each address after the other, for SERVICE_UNITS.
 * - After HF_RPC_LOOP_UNITS for all, the turn of the loop is late: each connection
 *   is read and sent a little, and long replies are made by workers.
 *
 * So what a client waits for grows with the number of addresses that ask, not with
 * their connections and calls, and a turn with thousands of busy connections takes
 * tens of milliseconds.
 */
#include <assert.h>

#include "base/heap.h"
#include "rpc/server_internal.h"

/* More than all that is read in a turn, if it is calls of 64 KiB: the rest would have to be copied. */
#define TURN_UNITS     384
#define HOST_UNITS     1024
#define SERVICE_UNITS  1024
#define LOOKS          16 /* at connections, for one to evict */
#define PARTS_A_TURN   64 /* that wait for memory, to be looked at */
#define CLOSED_AT_ONCE 64
#define GIVEN_BACK     ((size_t)HF_HEAP_KEEP / 2)

static struct hf_rpc_connection *part_first(struct hf_list *list)
{
	struct hf_link *link = hf_list_first(list);

	return link ? hf_list_entry(link, struct hf_rpc_connection, part_link) : NULL;
}

static void count(_Atomic size_t *counter, size_t by)
{
	/* Only the lane's thread writes. */
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by,
			      memory_order_relaxed);
}

/* Belonging */

void hf_rpc_share_join(struct hf_rpc_connection *c)
{
	c->part = hf_host_part(c->host, c->lane->index);
	hf_list_push_back(c->is_proven ? &c->part->proven : &c->part->fresh, &c->part_link);
	count(&c->part->n_open, 1);
	if (!c->is_proven)
		count(&c->part->n_fresh, 1);
	hf_rpc_share_settle(c);
}

void hf_rpc_share_quit(struct hf_rpc_connection *c)
{
	hf_rpc_share_stop_waiting(c);
	hf_link_remove(&c->part_link);
	count(&c->part->n_open, (size_t)-1);
	if (!c->is_proven)
		count(&c->part->n_fresh, (size_t)-1);
}

static void note_use(struct hf_rpc_connection *c)
{
	c->useful = hf_loop_now(c->lane->loop);
	if (!c->is_proven)
		count(&c->part->n_fresh, (size_t)-1);
	c->is_proven = true;
	hf_link_remove(&c->part_link);
	hf_list_push_back(&c->part->proven, &c->part_link);
}

/* Memory */

static void serve_soon(struct hf_rpc_lane *lane)
{
	if (!hf_timer_is_running(&lane->next_service) && !lane->is_closed)
		hf_timer_start(&lane->next_service, 0); /* without memory the sweep does it */
}

void hf_rpc_share_charge(struct hf_rpc_connection *c, size_t held)
{
	struct hf_host_part *part = c->part;
	struct hf_rpc_lane *lane = c->lane;
	size_t before = c->charged;

	c->charged = held;
	part->held += held - before;
	lane->held += held - before;
	if (part->held == 0)
		hf_link_remove(&part->holder_link);
	else if (!hf_link_is_linked(&part->holder_link))
		hf_list_push_back(&lane->holders, &part->holder_link);
	if (held > before)
		lane->held_lately = HF_MAX(lane->held_lately, lane->held + lane->n_gathering);
	else if (!hf_list_is_empty(&lane->wanting))
		serve_soon(lane);
}

/* Time */

void hf_rpc_share_begin_turn(struct hf_rpc_connection *c, bool is_queued)
{
	struct hf_host_part *part = c->part;
	struct hf_rpc_lane *lane = c->lane;
	uint64_t turn = hf_loop_turn(lane->loop);

	if (lane->turn != turn) {
		lane->turn = turn;
		lane->spent = 0;
	}
	if (part->turn != turn) {
		part->turn = turn;
		part->spent = 0;
	}
	c->budget = is_queued || part->spent < HOST_UNITS ? TURN_UNITS : 0;
	c->allowance = c->budget;
}

/* The turn itself costs a unit. */
void hf_rpc_share_end_turn(struct hf_rpc_connection *c)
{
	uint64_t spent = 1 + (uint64_t)(c->allowance - c->budget);

	c->part->spent += spent;
	c->lane->spent += spent;
	if (c->was_useful && c->socket)
		note_use(c);
	c->was_useful = false;
}

/* Waiting */

static void want_room(struct hf_rpc_connection *c)
{
	hf_list_push_back(&c->part->wanting, &c->wait_link);
	if (!hf_link_is_linked(&c->part->want_link))
		hf_list_push_back(&c->lane->wanting, &c->part->want_link);
}

static void tire(struct hf_rpc_connection *c)
{
	c->is_ahead = true;
	hf_list_push_back(&c->part->tired, &c->wait_link);
	if (!hf_link_is_linked(&c->part->tired_link))
		hf_list_push_back(&c->lane->tired, &c->part->tired_link);
	serve_soon(c->lane);
}

void hf_rpc_share_wait(struct hf_rpc_connection *c)
{
	if (hf_link_is_linked(&c->wait_link))
		return;
	if (c->budget <= 0)
		tire(c);
	else
		want_room(c);
}

void hf_rpc_share_stop_waiting(struct hf_rpc_connection *c)
{
	hf_link_remove(&c->wait_link);
	if (hf_list_is_empty(&c->part->tired))
		hf_link_remove(&c->part->tired_link);
	if (hf_list_is_empty(&c->part->wanting))
		hf_link_remove(&c->part->want_link);
}

/* @waiting is one of the first part's lists; the part goes behind the others. */
static void serve_first(struct hf_list *parts, struct hf_link *link, struct hf_list *waiting)
{
	struct hf_rpc_connection *c =
		hf_list_entry(hf_list_first(waiting), struct hf_rpc_connection, wait_link);

	hf_link_remove(link);
	hf_list_push_back(parts, link);
	hf_rpc_share_stop_waiting(c);
	hf_rpc_connection_serve(c);
	/* @c and its part may be gone here */
}

/* Once a turn, after the replies and commits that the turn has brought so far. */
void hf_rpc_share_call_service(struct hf_timer *timer)
{
	struct hf_rpc_lane *lane = hf_container_of(timer, struct hf_rpc_lane, next_service);

	hf_loop_defer(lane->loop, &lane->service);
}

/* In this turn of the loop. */
static uint64_t spent_now(const struct hf_rpc_lane *lane)
{
	return lane->turn == hf_loop_turn(lane->loop) ? lane->spent : 0;
}

void hf_rpc_share_serve(struct hf_task *task)
{
	struct hf_rpc_lane *lane = hf_container_of(task, struct hf_rpc_lane, service);
	uint64_t begun_at = spent_now(lane);
	struct hf_link *link;

	while ((link = hf_list_first(&lane->tired)) && spent_now(lane) - begun_at < SERVICE_UNITS)
		serve_first(&lane->tired, link, &hf_list_entry(link, struct hf_host_part, tired_link)->tired);
	for (int i = 0; i < PARTS_A_TURN && spent_now(lane) - begun_at < 2 * SERVICE_UNITS; i++) {
		struct hf_host_part *part;

		link = hf_list_first(&lane->wanting);
		if (!link)
			break;
		part = hf_list_entry(link, struct hf_host_part, want_link);
		if (hf_rpc_share_has_room(lane, part)) {
			serve_first(&lane->wanting, link, &part->wanting);
			serve_soon(lane);
		} else {
			hf_link_remove(link);
			hf_list_push_back(&lane->wanting, link);
		}
	}
	if (!hf_list_is_empty(&lane->tired))
		serve_soon(lane);
}

/* Relief */

struct search {
	struct hf_rpc_connection *worst; /* the one that holds the most, of those that move nothing */
	bool is_any_served;              /* some connection has calls under way or replies to send */
};

static void find_worst(struct hf_list *list, bool has_unread, struct search *search)
{
	hf_list_for_each(link, list) {
		struct hf_rpc_connection *c = hf_list_entry(link, struct hf_rpc_connection, part_link);
		uint64_t still_ns = hf_loop_now(c->lane->loop) - c->since;

		search->is_any_served |= c->out.n_bytes || c->n_kept;
		if (c->hold || !c->out.n_bytes == has_unread || still_ns < c->lane->server->limits.stuck_ns)
			continue;
		if (c->charged && (!search->worst || c->charged > search->worst->charged))
			search->worst = c;
	}
}

/* One that leaves replies unread. Where all that is held is input, none of it will ever be served: then one
 * with much of that. */
static struct hf_rpc_connection *choose_worst(struct hf_host_part *part)
{
	struct search search = { 0 };

	find_worst(&part->proven, true, &search);
	find_worst(&part->fresh, true, &search);
	if (!search.worst && !search.is_any_served) {
		find_worst(&part->proven, false, &search);
		find_worst(&part->fresh, false, &search);
	}
	return search.worst;
}

static struct hf_host_part *find_largest(struct hf_rpc_lane *lane)
{
	struct hf_host_part *largest = NULL;

	hf_list_for_each(link, &lane->holders) {
		struct hf_host_part *part = hf_list_entry(link, struct hf_host_part, holder_link);

		if (!largest || part->held > largest->held)
			largest = part;
	}
	return largest;
}

/* While connections wait for memory: of the address that holds the most, those that hold the most and move
 * nothing. */
static void relieve(struct hf_rpc_lane *lane)
{
	for (int i = 0; i < CLOSED_AT_ONCE && !hf_list_is_empty(&lane->wanting); i++) {
		struct hf_host_part *largest = find_largest(lane);
		struct hf_rpc_connection *worst;

		if (!largest || hf_rpc_share_has_room(lane, largest))
			return;
		worst = choose_worst(largest);
		if (!worst)
			return;
		hf_rpc_note_refusal(lane, &worst->peer, "connection closed: it leaves replies unread",
				    "memory-for-replies-is-short");
		hf_rpc_connection_close(worst);
	}
}

/* Giving back */

static void trim(struct hf_work *work)
{
	hf_heap_trim();
}

static void on_trimmed(struct hf_work *work)
{
}

/* Two sweeps without it: a load that comes and goes within a second keeps its memory. */
static void give_back(struct hf_rpc_lane *lane)
{
	size_t lately = HF_MAX(lane->held_lately, lane->held_before);

	lane->held_before = lane->held_lately;
	lane->held_lately = lane->held + lane->n_gathering;
	lane->held_peak = HF_MAX(lane->held_peak, lately);
	if (lane->held_peak - lately < GIVEN_BACK || hf_work_is_running(&lane->trimming))
		return;
	if (hf_work_submit(lane->loop, &lane->trimming, trim, on_trimmed) == 0)
		lane->held_peak = lately;
}

void hf_rpc_share_sweep(struct hf_rpc_lane *lane)
{
	relieve(lane);
	give_back(lane);
	if (!hf_list_is_empty(&lane->tired) || !hf_list_is_empty(&lane->wanting))
		serve_soon(lane);
}

/* Eviction */

static struct hf_rpc_connection *find_unused(struct hf_rpc_lane *lane, struct hf_list *list,
					     uint64_t unused_ns)
{
	int n_looks = 0;

	hf_list_for_each(link, list) {
		struct hf_rpc_connection *c = hf_list_entry(link, struct hf_rpc_connection, part_link);

		if (hf_loop_now(lane->loop) - c->useful < unused_ns || n_looks++ == LOOKS)
			return NULL;
		if (!c->n_kept && !c->hold)
			return c;
	}
	return NULL;
}

bool hf_rpc_share_evict(struct hf_rpc_lane *lane, struct hf_host_part *part, uint64_t unused_ns)
{
	struct hf_rpc_connection *c = find_unused(lane, &part->fresh, unused_ns);

	if (!c)
		c = find_unused(lane, &part->proven, unused_ns);
	if (!c && !unused_ns)
		c = part_first(hf_list_is_empty(&part->fresh) ? &part->proven : &part->fresh);
	if (!c)
		return false;
	if (!unused_ns)
		hf_rpc_note_refusal(lane, &c->peer, "connection closed to make room for another",
				    "its-address-has-the-most");
	hf_rpc_connection_close(c);
	return true;
}
