/*
 * Which of the waiting jobs runs next, if all wait for the same few workers?
 *
 * A job belongs to an address, and there to a connection. The next job is that of the address
 * that occupies the fewest workers. Among several it is the address that has used the least, in
 * the unit that the caller charges. Within an address its connections alternate. So an
 * address with many jobs, or with slow ones, makes only itself wait. An address that comes back
 * begins where the others are: it saves up nothing while it is away.
 *
 * The source of a datagram proves nothing. So all datagrams together are one address, and each
 * source among them counts as a connection.
 *
 * Idle connections are remembered, up to a bound, so that a job for an empty queue allocates
 * nothing. There is no lock here: the caller has one, or has only one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/list.h"
#include "base/rbtree.h"

struct hf_flow; /* the jobs of one connection */

/* Embedded in each job that waits. */
struct hf_client_queue_entry {
	struct hf_link link;
	struct hf_flow *flow;
};

/* An address. */
struct hf_payer {
	struct hf_rb_node known;   /* in hf_client_queue.payers */
	struct hf_rb_node waiting; /* in hf_client_queue.waiting, while one of its flows is in the ring */
	struct hf_addr addr;
	struct hf_list ring; /* of flows with waiting jobs, the next first */
	size_t n_flows;
	size_t n_running;
	uint64_t used;
};

struct hf_flow {
	struct hf_rb_node known; /* in hf_client_queue.flows */
	struct hf_link link;     /* in its payer's ring, or in the list of idle flows, or in none */
	struct hf_addr addr;
	struct hf_payer *payer;
	struct hf_list waiting;
	size_t n; /* pushed, and not ended */
};

struct hf_client_queue {
	struct hf_rb_tree flows;   /* by their addresses */
	struct hf_rb_tree payers;  /* by address */
	struct hf_rb_tree waiting; /* payers, the next first */
	struct hf_list idle;       /* flows, the longest idle first */
	size_t n_idle;
	uint64_t level; /* what the payer of the last job to begin had used */
	struct hf_payer own;
	struct hf_flow own_flow; /* for the server itself, and for all addresses without memory for a flow */
};

void hf_client_queue_init(struct hf_client_queue *queue);
void hf_client_queue_deinit(struct hf_client_queue *queue); /* when all jobs have ended */

/* @entry waits behind earlier ones of the same connection. @from: port 0 for a datagram; NULL: the server. */
void hf_client_queue_push(struct hf_client_queue *queue, struct hf_client_queue_entry *entry,
			  const struct hf_addr *from);
/* The first of those that wait; NULL: none. */
struct hf_client_queue_entry *hf_client_queue_first(const struct hf_client_queue *queue);
/* Takes the first one out: it no longer waits. Then it begins, or goes back to the front. */
void hf_client_queue_take(struct hf_client_queue *queue, struct hf_client_queue_entry *entry);
void hf_client_queue_put_back(struct hf_client_queue *queue, struct hf_client_queue_entry *entry);
/* An @entry that was taken occupies a worker from now on */
void hf_client_queue_begin(struct hf_client_queue *queue, struct hf_client_queue_entry *entry);
/* and no longer does; @entry itself may be freed by then. */
void hf_client_queue_end(struct hf_client_queue *queue, struct hf_flow *flow, uint64_t cost);

/* Does its address occupy any worker? */
bool hf_client_queue_is_at_work(const struct hf_client_queue_entry *entry);
/* Does a job of another address wait? */
bool hf_client_queue_others_wait(const struct hf_client_queue *queue, const struct hf_flow *flow);
