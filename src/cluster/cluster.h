/*
 * The cluster: which node serves the service, and until when may it?
 *
 * A service is what clients mount: a name, addresses, exports, a store. One node serves it at
 * a time (active); the others wait (standby). The row of the service in the database says which
 * one: the node that claimed it owns it for one term, and renews its lease there. A standby
 * watches the row, and claims the service when the lease was not renewed for long enough, or
 * when the owner hands it over.
 *
 *	cluster.c    the thread that keeps the lease; orders to it, and events from it
 *	node.c       what should this node do next? Decides, and does nothing itself
 *	presence.c   the service's addresses are here while this node serves
 *	connections.c   which connections do clients have, as bytes for the next node?
 *	witness.c    a process that hands the service over when this one is killed
 *	fence.c      the operator's command that stops another node for good
 *
 *	address.c    addresses on this node's interfaces
 *	neighbour.c  packets that wait for a neighbour
 *	announce.c   tells the neighbours that an address is here now
 *	nudge.c      makes the clients of the node before find out that their connections are gone
 *	link.c       does an interface have its link?
 *	helper.c     how a helper process is forked
 *	host.c       the sockets for all that; interface.c, netlink.c, inet.c: how to ask the kernel
 *
 * The thread has a connection to the database of its own, so that neither a long commit nor a
 * long turn of the home loop costs the lease. It never touches the service itself: it tells
 * the home loop what happened (hf_cluster_event), and the daemon builds or ends the service.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "cluster/node.h"

struct hf_cluster;
struct hf_fence;
struct hf_lease;
struct hf_loop;
struct hf_presence;
struct hf_witness;

#define HF_CLUSTER_KEY HF_SERVICE_KEY /* bytes of the key of the file handles */

struct hf_cluster_options {
	const char *postgres;
	struct hf_node_options node;
	struct hf_fence *fence;       /* NULL: there is none */
	struct hf_witness *witness;   /* NULL: there is none */
	struct hf_presence *presence; /* NULL: another program moves the addresses */
	/* The last epoch and state number of the service that this node saw, in an earlier process, too. */
	uint64_t known_epoch;
	int32_t known_state;
	/* Makes them durable; on the cluster's thread. 0 or -errno: it is called again. */
	int (*remember)(void *user, uint64_t epoch, int32_t state);
	void *user;
};

/* What the home loop is told. */
enum hf_cluster_event {
	HF_CLUSTER_CLAIMED,    /* the service is this node's: build it, then say hf_cluster_serves() */
	HF_CLUSTER_DEPOSED,    /* it is another node's: end it at once, as if killed */
	HF_CLUSTER_HANDS_OVER, /* end it in order, then say hf_cluster_released() */
	HF_CLUSTER_REFUSED,    /* this node cannot take part: end with an error; the log has the reason */
	HF_CLUSTER_PRESENT,    /* the addresses of the service are here; after hf_cluster_serves() */
	HF_CLUSTER_REPORTED,   /* the database has how the service came to this node */
	HF_CLUSTER_WITHDRAWN,  /* the addresses are gone from here: connections may be closed */
};

typedef void (*hf_cluster_event_fn)(void *user, enum hf_cluster_event event);

/* Making and freeing. start() begins the thread. It needs no loop: events wait until there is one. */
int hf_cluster_new(struct hf_cluster **clusterp, const struct hf_cluster_options *options);
struct hf_cluster *hf_cluster_free(struct hf_cluster *cluster); /* ends the thread */
int hf_cluster_start(struct hf_cluster *cluster);

HF_DEFINE_CLEANUP(struct hf_cluster *, hf_cluster_free)

/* The loop that hears of events from now on, on its own thread; NULL: none. Events that no loop has heard of
 * are told to the next one. On the thread of the loop. */
void hf_cluster_set_listener(struct hf_cluster *cluster, struct hf_loop *loop, hf_cluster_event_fn fn,
			     void *user);

/* For the service of this term, after HF_CLUSTER_CLAIMED */
const struct hf_lease *hf_cluster_lease(struct hf_cluster *cluster);
void hf_cluster_owner(struct hf_cluster *cluster, char owner[static HF_NODE_ID]); /* for the store */
void hf_cluster_key(struct hf_cluster *cluster, uint8_t key[static HF_CLUSTER_KEY]);
void hf_cluster_known(struct hf_cluster *cluster, uint64_t *epochp, int32_t *statep);

/* What the daemon tells it. */
struct hf_cluster_term {
	uint64_t epoch;
	int32_t state;  /* number */
	bool continues; /* the locks are held; false: clients reclaim them */
	uint16_t port;  /* that clients connect to */
};

/* It listens: the addresses may come. */
void hf_cluster_serves(struct hf_cluster *cluster, const struct hf_cluster_term *term);
/* Removes the addresses, and tells HF_CLUSTER_WITHDRAWN. Connections are closed only then: a client that
 * finds its connection closed connects again at once. If this host still has the address, it refuses the
 * client, whose next try comes seconds later. */
void hf_cluster_withdraw(struct hf_cluster *cluster);
/* The service has ended: the next node may have it. @has_failed: this node could not build it, and leaves it
 * to the others for a while. */
void hf_cluster_released(struct hf_cluster *cluster, bool has_failed);
int hf_cluster_set_exports(struct hf_cluster *cluster, const char *exports); /* after a reload, as the next */
void hf_cluster_set_automatic(struct hf_cluster *cluster, bool is_automatic);
/* This node could not serve now; empty: it could. A copy. */
void hf_cluster_set_unfit(struct hf_cluster *cluster, const char *why);
/* An orderly end of the process, when the service has ended. begin_to_leave() does not block: the node claims
 * nothing more, and hands over what it has just claimed. leave() takes the node out as well, and blocks for a
 * lease at most. */
void hf_cluster_begin_to_leave(struct hf_cluster *cluster);
void hf_cluster_leave(struct hf_cluster *cluster);

/* Orders of an operator. 0: accepted. Otherwise -EBUSY, and @why says in one sentence why not. */
int hf_cluster_move(struct hf_cluster *cluster, const char *to, char *why, size_t size); /* to: NULL: any */
int hf_cluster_take(struct hf_cluster *cluster, char *why, size_t size);

/* What is shown; a copy. Any thread may ask. */
#define HF_CLUSTER_MAX_NODES HF_SERVICE_MAX_NODES

struct hf_cluster_node_view {
	char name[HF_NODE_NAME];
	enum hf_node_role role;
	char version[HF_NODE_VERSION];
	uint64_t last_seen;          /* wall clock of the database, ns */
	char reason[HF_NODE_REASON]; /* of its role; empty: no more to say */
};

struct hf_cluster_takeover {
	uint64_t at; /* wall clock of the database, ns; 0: there was none */
	char from[HF_NODE_NAME];
	char to[HF_NODE_NAME];
	char reason[HF_NODE_REASON];
	bool continued; /* false: clients reclaim */
	double seconds; /* without service */
};

struct hf_cluster_view {
	char service[HF_NODE_NAME];
	char node[HF_NODE_NAME];
	enum hf_node_role role;
	char reason[HF_NODE_REASON]; /* why it is mismatched, or does not serve; empty: no reason */
	uint64_t epoch;
	char holder[HF_NODE_NAME]; /* of the lease; empty: none */
	uint64_t renewed_ago_ns;
	uint64_t lease_ns;      /* its length */
	bool is_automatic;      /* cluster.automatic */
	uint64_t lease_left_ns; /* for the active node: until it must stop */
	size_t n_nodes;
	struct hf_cluster_node_view nodes[HF_CLUSTER_MAX_NODES];
	struct hf_cluster_takeover last_takeover;
	uint64_t n_continued; /* takeovers by this process, by result */
	uint64_t n_reclaimed;
};

void hf_cluster_view(struct hf_cluster *cluster, struct hf_cluster_view *viewp);
