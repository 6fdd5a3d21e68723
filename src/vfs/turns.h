/*
 * Whose turn it is, of all that wait for the same few workers.
 *
 * What waits belongs to an address, and there to a connection. The next turn
 * goes to the address that occupies the fewest workers, and of several to the
 * one that has used the least, in whatever unit the caller charges; within an
 * address its connections take turns. So an address that asks for much, or for
 * something that takes long, waits for itself alone. An address that comes back
 * begins where the others are: it saves nothing up while it is away.
 *
 * The source of a datagram proves nothing, so all datagrams together are one
 * address, and each source in them counts as a connection.
 *
 * Connections that want nothing for now are remembered, up to a bound, so that a
 * call at an empty queue allocates nothing. There is no lock in here: the caller
 * has one, or has only one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/list.h"
#include "base/rbtree.h"

struct hf_flow; /* what one connection wants */

/* In whatever waits. */
struct hf_turn {
	struct hf_link link;
	struct hf_flow *flow;
};

/* An address. */
struct hf_payer {
	struct hf_rb_node known;   /* in hf_turns.payers */
	struct hf_rb_node waiting; /* in hf_turns.waiting, while any of its flows is in the ring */
	struct hf_addr addr;
	struct hf_list ring; /* of flows in which something waits, the next first */
	size_t n_flows;
	size_t n_running;
	uint64_t used;
};

struct hf_flow {
	struct hf_rb_node known; /* in hf_turns.flows */
	struct hf_link link;     /* in its payer's ring or among the idle ones, if in any */
	struct hf_addr addr;
	struct hf_payer *payer;
	struct hf_list waiting;
	size_t n; /* pushed, and not over */
};

struct hf_turns {
	struct hf_rb_tree flows;   /* by their addresses */
	struct hf_rb_tree payers;  /* by theirs */
	struct hf_rb_tree waiting; /* payers, the next first */
	struct hf_list idle;       /* flows, the longest idle first */
	size_t n_idle;
	uint64_t level; /* what the last one to begin had used */
	struct hf_payer own;
	struct hf_flow own_flow; /* of the server itself, and of all for whom there is no memory */
};

void hf_turns_init(struct hf_turns *turns);
void hf_turns_deinit(struct hf_turns *turns); /* when all is over */

/* @turn waits behind what the same connection pushed before. @from: port 0 for a datagram; NULL: the server.
 */
void hf_turns_push(struct hf_turns *turns, struct hf_turn *turn, const struct hf_addr *from);
/* Of those that wait; NULL: none. */
struct hf_turn *hf_turns_first(const struct hf_turns *turns);
/* Takes the first out: it does not wait any more. Then it begins, or goes back to the front. */
void hf_turns_take(struct hf_turns *turns, struct hf_turn *turn);
void hf_turns_put_back(struct hf_turns *turns, struct hf_turn *turn);
/* One that was taken occupies a worker from now on, */
void hf_turns_begin(struct hf_turns *turns, struct hf_turn *turn);
/* and does not any more; @turn itself may be gone by then. */
void hf_turns_end(struct hf_turns *turns, struct hf_flow *flow, uint64_t cost);

/* Does its address occupy any worker? */
bool hf_turns_is_at_work(const struct hf_turn *turn);
/* Does anything wait that is of another address? */
bool hf_turns_others_wait(const struct hf_turns *turns, const struct hf_flow *flow);
