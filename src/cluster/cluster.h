/*
 * The cluster: which node serves the service, and until when may it?
 *
 * A service is what clients mount: a name, addresses, exports, a store. One node serves it at
 * a time (active); the others wait (standby). The row of the service in the database says which
 * one: the node that claimed it owns it for one term, and renews its lease there. A standby
 * watches the row, and claims the service when the lease was not renewed for long enough, or
 * when the owner hands it over.
 *
 *	cluster.c    the thread that keeps the lease; orders to it, and news from it
 *	node.c       what should this node do next? Decides, and does nothing itself
 *	address.c    the addresses of the service on this node's interfaces
 *	announce.c   tells the neighbours that an address is here now
 *	nudge.c      makes the clients of the node before find out that their connections are gone
 *	link.c       does an interface have its link?
 *	fence.c      the operator's command that stops another node for good
 *
 * The thread has a connection to the database of its own, so that neither a long commit nor a
 * long turn of the home loop costs the lease. It never touches the service itself: it tells
 * the home loop what happened (hf_cluster_news), and the daemon builds or ends the service.
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

#define HF_CLUSTER_KEY 16 /* bytes of the key of the file handles */

struct hf_cluster_options {
	const char *postgres;
	struct hf_node_options node;
	struct hf_fence *fence; /* NULL: there is none */
	/* The key of the handles that this node has of its own; the service uses it where it has none yet.
	 * NULL: a new one, if needed. */
	const uint8_t *key;
	const char *state_dir; /* remembers the highest state number of the service that this node saw */
};

/* What the home loop is told. */
enum hf_cluster_news {
	HF_CLUSTER_CLAIMED,    /* the service is this node's: build it, then say hf_cluster_serves() */
	HF_CLUSTER_DEPOSED,    /* it is another node's: end it at once, as if killed */
	HF_CLUSTER_HANDS_OVER, /* end it in order, then say hf_cluster_released() */
	HF_CLUSTER_REFUSED,    /* this node cannot take part: end with an error; the reason is in the log */
	HF_CLUSTER_CHANGED,    /* something that is shown has changed */
};

typedef void (*hf_cluster_news_fn)(void *user, enum hf_cluster_news news);

/* Life. start() begins the thread. It needs no loop: news wait until there is one. */
int hf_cluster_new(struct hf_cluster **clusterp, const struct hf_cluster_options *options);
struct hf_cluster *hf_cluster_free(struct hf_cluster *cluster); /* ends the thread */
int hf_cluster_start(struct hf_cluster *cluster);

HF_DEFINE_CLEANUP(struct hf_cluster *, hf_cluster_free)

/* The loop that hears news from now on, on its own thread; NULL: none. What is true already is told at once.
 */
void hf_cluster_set_listener(struct hf_cluster *cluster, struct hf_loop *loop, hf_cluster_news_fn fn,
			     void *user);

/* For the service of this term */
const struct hf_lease *hf_cluster_lease(struct hf_cluster *cluster);
const char *hf_cluster_owner(struct hf_cluster *cluster); /* as the store must find it in the row */
void hf_cluster_key(struct hf_cluster *cluster, uint8_t key[static HF_CLUSTER_KEY]);
/* The state number of this term must be above this one; 0: any. */
int32_t hf_cluster_known_state(struct hf_cluster *cluster);

/* What the daemon tells it. */
void hf_cluster_serves(struct hf_cluster *cluster, uint64_t epoch, int32_t state, bool continues);
void hf_cluster_released(
	struct hf_cluster *cluster); /* the service has ended in order: the next node may have it */
void hf_cluster_failed(struct hf_cluster *cluster); /* the service could not be built */
void hf_cluster_set_exports(struct hf_cluster *cluster, const char *exports); /* after a reload */
/* An orderly end of the process: hands the service over if it is ours. Blocks briefly. */
void hf_cluster_leave(struct hf_cluster *cluster);

/* Orders of an operator. 0: accepted. Otherwise -EBUSY or -EINVAL, and @why says in one sentence why not. */
int hf_cluster_move(struct hf_cluster *cluster, const char *to, char *why, size_t size); /* to: NULL: any */
int hf_cluster_take(struct hf_cluster *cluster, char *why, size_t size);

/* What is shown; a copy. Any thread may ask. */
#define HF_CLUSTER_MAX_NODES 16

struct hf_cluster_node_view {
	char name[HF_NODE_NAME];
	enum hf_node_role role;
	char version[HF_NODE_VERSION];
	uint64_t last_seen; /* wall clock of the database, ns */
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
	uint64_t lease_left_ns; /* for the active node: until it must stop */
	size_t n_nodes;
	struct hf_cluster_node_view nodes[HF_CLUSTER_MAX_NODES];
	struct hf_cluster_takeover last_takeover;
	uint64_t n_continued; /* takeovers by this process, by result */
	uint64_t n_reclaimed;
};

void hf_cluster_view(struct hf_cluster *cluster, struct hf_cluster_view *viewp);
