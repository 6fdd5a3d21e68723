/*
 * Calls of the lock manager that come from nowhere (there is no server), and
 * whose replies go there. What they say is taken from what the meters are told,
 * and a call back to a client is counted, not sent (ld --wrap).
 */
#pragma once

#include "../../recovery/world.h"

#include "proto/nlm/internal.h"
#include "rpc/client.h"
#include "rpc/server_internal.h"

#define CALLS_HOST "10.0.0.9" /* where they come from, as a rule */

struct calls {
	struct world world;
	struct hf_rpc_lane lane;
	struct hf_host_part part;
	struct hf_nlm *nlm;
	uint32_t n;
	const char *said[64]; /* by number of the call; NULL: nothing yet */
	struct hf_rpc_connection connection;
	size_t n_left; /* bytes by that, in all */
	unsigned int n_granted;
	hf_rpc_done_fn done; /* of the last of those, unless it was called off */
	void *user;
	bool (*is_wanting)(void); /* memory, where a stand-in of the test is asked for some; or NULL */
	bool is_ours;             /* what is allocated now is the test's own */
};

extern struct calls calls;

/* @locks_per_client: 0: as many as otherwise. @continues: the next run may go on where this one ends. */
int calls_setup(uint32_t locks_per_client, bool continues);
int calls_teardown(void **state);

/* A LOCK or an UNLOCK by process 7, or a SHARE or an UNSHARE that reads and denies writing. */
struct ask {
	enum hf_nlm_proc procedure;
	const char *host;  /* NULL: CALLS_HOST */
	const char *local; /* the server's address; NULL: 10.0.0.1 */
	const char *name;
	const char *file; /* NULL: "f" */
	uint64_t offset;
	uint64_t len; /* 0: 10 */
	bool is_shared;
	bool block;
	bool is_reclaim; /* a LOCK or a SHARE */
	bool by_tcp;     /* else a datagram */
	uint16_t port;   /* of the host; 0 is a reserved one */
};

uint32_t call_up(struct ask ask);                    /* its number */
void calls_answer(enum hf_nlm_stat stat);            /* of the client, to the last GRANTED */
void calls_kill(const char *host, const char *name); /* by FREE_ALL */
