/*
 * The row of a service in the database, and those of its nodes.
 *
 * A cluster (cluster/) decides by them which node serves. The owner in the row is a random
 * text that a node makes for one term. The claim writes it into both tables, holdfast_services
 * and holdfast_leases, in one transaction. The first is what every transaction of the store
 * checks (postgres/owner.c); the second is what the owner renews and the others watch.
 *
 * All functions block, each statement for at most the time limit, and return 0 or -errno; then
 * hf_service_message() says what happened. After an error of the connection the next call makes a
 * new one. An object belongs to one thread at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/cleanup.h"

struct hf_service;

#define HF_SERVICE_NAME      256
#define HF_SERVICE_OWNER     33
#define HF_SERVICE_KEY       16
#define HF_SERVICE_REASON    1024
#define HF_SERVICE_HISTORY   64
#define HF_SERVICE_MAX_NODES 16

/* This node, as the others see it. */
struct hf_service_self {
	const char *node;
	const char *instance;
	const char *role;
	const char *reason;
	const char *version;
	uint64_t gone_ns; /* another instance of this name that was not seen for that long is gone */
	/* For a renewal: the history of the database that the lease is sure of, see hf_node_history(). */
	const char *history;
};

struct hf_service_node {
	char name[HF_SERVICE_NAME];
	char instance[HF_SERVICE_OWNER];
	char role[32];
	char reason[HF_SERVICE_REASON];
	char version[64];
	uint64_t seen_at;     /* wall clock of the database, ns */
	uint64_t seen_ago_ns; /* by the clock of the database */
};

struct hf_service_takeover {
	uint64_t at; /* wall clock of the database, ns; 0: there was none */
	char from[HF_SERVICE_NAME];
	char to[HF_SERVICE_NAME];
	char reason[HF_SERVICE_REASON];
	bool continued;
	double seconds;
};

/* What one look saw. */
struct hf_service_row {
	bool exists;                        /* the store was used before */
	bool has_lease;                     /* by a node of a cluster */
	bool is_locked;                     /* a session of a store has the service */
	uint64_t epoch;                     /* of the last term; 0: none */
	int32_t sm_state;                   /* of the last term; 0: none */
	char owner[HF_SERVICE_OWNER];       /* that the store checks; empty: none */
	char lease_owner[HF_SERVICE_OWNER]; /* of the lease; empty: it was handed over */
	char node[HF_SERVICE_NAME];         /* the last one that served */
	char instance[HF_SERVICE_OWNER];
	uint64_t renewals;
	uint64_t lease_ns;
	/* The line of the database's history. A replica that takes its place begins another one, and may lack
	 * the last changes of the row. */
	char history[HF_SERVICE_HISTORY];       /* now */
	char lease_history[HF_SERVICE_HISTORY]; /* in which the owner was last sure of its lease */
	char heir[HF_SERVICE_NAME];             /* the node that it was handed to; empty: any */
	char wanted[HF_SERVICE_NAME];           /* the node that asked for it; empty: none */
	uint8_t key[HF_SERVICE_KEY];            /* of the file handles */
	/* Without a lease: identifies the key of the handles that a server outside of a cluster has stored;
	 * 0: any key fits. */
	uint64_t key_print;
	char *exports; /* of the active node; never NULL with has_lease */
	struct hf_service_takeover takeover;
	size_t n_nodes;
	struct hf_service_node nodes[HF_SERVICE_MAX_NODES];
};

void hf_service_row_deinit(struct hf_service_row *row);

struct hf_service_claim {
	const char *owner; /* of the new term */
	uint64_t lease_ns;
	const uint8_t *key; /* used if the service has none */
	const char *exports;
};

int hf_service_new(struct hf_service **servicep, const char *conninfo, const char *name, uint64_t timeout_ns);
struct hf_service *hf_service_free(struct hf_service *service);

HF_DEFINE_CLEANUP(struct hf_service *, hf_service_free)

const char *hf_service_message(const struct hf_service *service);

/* Says that this node is here, and looks. -EEXIST: another instance with this node's name lives. On success
 * the caller deinits *rowp. */
int hf_service_look(struct hf_service *service, const struct hf_service_self *self,
		    struct hf_service_row *rowp);
/* The same for the owner of the lease, which it renews. -ESTALE: it is not the owner any more; *rowp is what
 * was seen. @exports: NULL: as they are. */
int hf_service_renew(struct hf_service *service, const struct hf_service_self *self, const char *owner,
		     const char *exports, struct hf_service_row *rowp);
/* Makes the service this node's, if it is still as @seen. -ESTALE: it is not. Ends the sessions of the owner
 * before. */
int hf_service_claim(struct hf_service *service, const struct hf_service_self *self,
		     const struct hf_service_row *seen, const struct hf_service_claim *claim);
/* Gives the service up: any node may claim it at once, or @heir alone, unless it is empty. */
int hf_service_hand_over(struct hf_service *service, const char *owner, const char *heir);
/* Asks the active node to hand over to @node. */
int hf_service_ask(struct hf_service *service, const char *node);
/* This node has begun to serve: whether commits before its term were synced does not matter any more. Writes
 * down how the service came to it, if it was another run's before (@takeover->from). */
int hf_service_report(struct hf_service *service, const char *owner,
		      const struct hf_service_takeover *takeover);
/* The clients' connections, for the next node; encoded by the caller. */
int hf_service_put_connections(struct hf_service *service, const char *owner, struct hf_bytes connections);
/* *connectionsp is to be freed. */
int hf_service_get_connections(struct hf_service *service, uint8_t **connectionsp, size_t *lenp);
/* This node leaves. */
int hf_service_forget(struct hf_service *service, const struct hf_service_self *self);
