/*
 * How much memory and time may a connection and its address have on a lane?
 *
 * Memory. The server counts the calls under way with their future replies, the replies that
 * are not sent yet, and the input that is not served yet. The counts of a connection are part
 * of those of its address and of the lane. An address has room for one more long reply if it
 * then uses no more than what is left free. So one address alone gets half, each of n gets
 * 1/(n+1), and a newcomer always finds as much. Without room the connection waits:
 *
 * - a call that may have a long reply does not begin (dispatch.c),
 * - a connection that uses more than HF_RPC_FEW_BYTES gets no further call served.
 *
 * A connection that uses less gets its short calls served even then. So locks do not wait
 * for clients that leave data unread. While connections wait, the sweep closes those that use
 * the most and have made no progress for a while.
 *
 * Time. Work is counted in units: one for a call, one for each page of data that is moved, and one for 128
 * fragments, about a microsecond each; a handler may add what its call costs besides. The clock would also
 * count what other programs do, and costs more to read than some calls.
 *
 * - A connection has a budget of CONNECTION_UNITS. Then it is tired, and the next connection is
 *   served.
 * - In a turn of the loop, new input of one address is served for HOST_UNITS. Further
 *   connections of that address are tired from the start.
 * - Tired connections are served once in a turn of the loop, one of each address after the
 *   other, for SERVICE_UNITS.
 * - After HF_RPC_LOOP_UNITS for all, the turn of the loop is late: a connection has LATE_UNITS,
 *   the server reads and sends only a little on it, and workers make long replies.
 *
 * So a client's waiting time grows with the number of addresses that ask, not with their
 * connections and calls. A turn with thousands of busy connections takes tens of milliseconds.
 */
#include <assert.h>

#include "base/heap.h"
#include "rpc/server_internal.h"

/* More than all that is read in a turn, if it is calls of 64 KiB: the rest would have to be copied. */
#define CONNECTION_UNITS 384
#define LATE_UNITS       64 /* so many short calls are worth a system call to read and one to send */
#define HOST_UNITS       1024
#define SERVICE_UNITS    1024
#define LOOKS            16 /* connections to look at, for one to evict */
#define PARTS_A_TURN     64 /* parts that wait for memory, to look at */
#define CLOSED_AT_ONCE   64
#define GIVEN_BACK       ((size_t)HF_HEAP_RETAIN / 2)

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

void hf_rpc_budget_join(struct hf_rpc_connection *c)
{
	c->part = hf_host_part(c->host, c->lane->index);
	hf_list_push_back(c->is_proven ? &c->part->proven : &c->part->fresh, &c->part_link);
	count(&c->part->n_open, 1);
	if (!c->is_proven)
		count(&c->part->n_fresh, 1);
	hf_rpc_budget_count(c);
}

void hf_rpc_budget_quit(struct hf_rpc_connection *c)
{
	hf_rpc_budget_stop_waiting(c);
	hf_link_remove(&c->part_link);
	count(&c->part->n_open, (size_t)-1);
	if (!c->is_proven)
		count(&c->part->n_fresh, (size_t)-1);
}

static void note_use(struct hf_rpc_connection *c)
{
	c->useful = hf_loop_now(c->lane->loop);
	hf_host_part_hear(c->part, c->useful);
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

void hf_rpc_budget_charge(struct hf_rpc_connection *c, size_t charged)
{
	struct hf_host_part *part = c->part;
	struct hf_rpc_lane *lane = c->lane;
	size_t before = c->charged;

	c->charged = charged;
	part->charged += charged - before;
	lane->charged += charged - before;
	if (part->charged == 0)
		hf_link_remove(&part->charged_link);
	else if (!hf_link_is_linked(&part->charged_link))
		hf_list_push_back(&lane->charged_parts, &part->charged_link);
	if (charged > before)
		lane->charged_lately = HF_MAX(lane->charged_lately, lane->charged + lane->n_gathering);
	else if (!hf_list_is_empty(&lane->wanting))
		serve_soon(lane);
}

/* Time */

void hf_rpc_budget_begin(struct hf_rpc_connection *c, bool is_queued)
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
	c->budget = !is_queued && part->spent >= HOST_UNITS ? 0
		    : hf_rpc_budget_is_late(lane)           ? LATE_UNITS
							    : CONNECTION_UNITS;
	c->allowance = c->budget;
}

/* Serving a connection costs a unit in itself. */
void hf_rpc_budget_end(struct hf_rpc_connection *c)
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

void hf_rpc_budget_wait(struct hf_rpc_connection *c)
{
	if (hf_link_is_linked(&c->wait_link))
		return;
	if (c->budget <= 0)
		tire(c);
	else
		want_room(c);
}

void hf_rpc_budget_stop_waiting(struct hf_rpc_connection *c)
{
	hf_link_remove(&c->wait_link);
	if (hf_list_is_empty(&c->part->tired))
		hf_link_remove(&c->part->tired_link);
	if (hf_list_is_empty(&c->part->wanting))
		hf_link_remove(&c->part->want_link);
}

/* @waiting is one of the first part's lists. The part moves behind the others. */
static void serve_first(struct hf_list *parts, struct hf_link *link, struct hf_list *waiting)
{
	struct hf_rpc_connection *c =
		hf_list_entry(hf_list_first(waiting), struct hf_rpc_connection, wait_link);

	hf_link_remove(link);
	hf_list_push_back(parts, link);
	hf_rpc_budget_stop_waiting(c);
	hf_rpc_connection_serve(c);
	/* @c and its part may be freed here */
}

/* Once in a turn, after the replies and commits that the turn has brought so far. */
void hf_rpc_budget_call_service(struct hf_timer *timer)
{
	struct hf_rpc_lane *lane = hf_container_of(timer, struct hf_rpc_lane, next_service);

	hf_loop_defer(lane->loop, &lane->service);
}

/* In this turn of the loop. */
static uint64_t spent_now(const struct hf_rpc_lane *lane)
{
	return lane->turn == hf_loop_turn(lane->loop) ? lane->spent : 0;
}

void hf_rpc_budget_serve(struct hf_task *task)
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
		if (hf_rpc_budget_has_room(lane, part)) {
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

/* Relief, while connections wait for memory */

struct search {
	struct hf_rpc_connection *worst; /* the connection that uses the most, of those without progress */
	bool is_any_served;              /* some connection has calls under way or replies to send */
};

static void find_worst(struct hf_list *list, bool has_unread, struct search *search)
{
	hf_list_for_each(link, list) {
		struct hf_rpc_connection *c = hf_list_entry(link, struct hf_rpc_connection, part_link);
		uint64_t still_ns = hf_loop_now(c->lane->loop) - c->since;

		search->is_any_served |= c->out.n_bytes || c->n_suspended;
		if (c->delay || !c->out.n_bytes == has_unread || still_ns < c->lane->server->limits.stuck_ns)
			continue;
		if (c->charged && (!search->worst || c->charged > search->worst->charged))
			search->worst = c;
	}
}

/* A connection that leaves replies unread. If all the memory is input, none of it will ever be served: then
 * one with much input. */
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

	hf_list_for_each(link, &lane->charged_parts) {
		struct hf_host_part *part = hf_list_entry(link, struct hf_host_part, charged_link);

		if (!largest || part->charged > largest->charged)
			largest = part;
	}
	return largest;
}

/* Closes connections of the address that uses the most: those that use the most and make no progress. */
static void relieve(struct hf_rpc_lane *lane)
{
	for (int i = 0; i < CLOSED_AT_ONCE && !hf_list_is_empty(&lane->wanting); i++) {
		struct hf_host_part *largest = find_largest(lane);
		struct hf_rpc_connection *worst;

		if (!largest || hf_rpc_budget_has_room(lane, largest))
			return;
		worst = choose_worst(largest);
		if (!worst)
			return;
		hf_rpc_note_refusal(lane, HF_LIMIT_CALL_BYTES, &worst->peer,
				    "connection closed: it leaves replies unread",
				    "memory-for-replies-is-short");
		hf_rpc_connection_close(worst);
	}
}

/* Memory back to the system */

static void trim(struct hf_work *work)
{
	hf_heap_trim();
}

static void on_trimmed(struct hf_work *work)
{
}

/* Two sweeps must see less use: a load that comes and goes within a second does not free and allocate its
 * memory again and again. */
static void give_back(struct hf_rpc_lane *lane)
{
	size_t lately = HF_MAX(lane->charged_lately, lane->charged_before);

	lane->charged_before = lane->charged_lately;
	lane->charged_lately = lane->charged + lane->n_gathering;
	lane->charged_peak = HF_MAX(lane->charged_peak, lately);
	if (lane->charged_peak - lately < GIVEN_BACK || hf_work_is_running(&lane->trimming))
		return;
	if (hf_work_submit(lane->loop, &lane->trimming, trim, on_trimmed) == 0)
		lane->charged_peak = lately;
}

void hf_rpc_budget_sweep(struct hf_rpc_lane *lane)
{
	atomic_store_explicit(&lane->used_gathering, lane->n_gathering, memory_order_relaxed);
	atomic_store_explicit(&lane->used_charged, lane->charged, memory_order_relaxed);
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
		if (!c->n_suspended && !c->delay)
			return c;
	}
	return NULL;
}

bool hf_rpc_budget_evict(struct hf_rpc_lane *lane, struct hf_host_part *part, uint64_t unused_ns)
{
	struct hf_rpc_connection *c = find_unused(lane, &part->fresh, unused_ns);

	if (!c)
		c = find_unused(lane, &part->proven, unused_ns);
	if (!c && !unused_ns)
		c = part_first(hf_list_is_empty(&part->fresh) ? &part->proven : &part->fresh);
	if (!c)
		return false;
	if (!unused_ns)
		hf_rpc_note_refusal(lane, HF_LIMIT_CONNECTIONS, &c->peer,
				    "connection closed to make room for another", "its-address-has-the-most");
	hf_rpc_connection_close(c);
	return true;
}
