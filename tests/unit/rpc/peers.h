/*
 * Fake peers for the client's tests: on the same loop as the client, over real
 * loopback sockets, each with a script of what to do when a call comes. Distinct
 * addresses in 127.0.0.0/8 are distinct hosts.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop/loop.h"
#include "loop/socket.h"
#include "loop/timer.h"
#include "rpc/client.h"
#include "rpc/message.h"
#include "rpc/record.h"

/* A call as a peer sees it. */
struct heard {
	struct peer *peer;
	struct line *line; /* TCP: the connection; NULL: a datagram */
	struct hf_addr from;
	struct hf_addr to; /* UDP: the address it came to */
	struct hf_rpc_header header;
	struct hf_xdr_in args;
	unsigned int n; /* of this peer's calls, from 1 */
};

typedef void (*script_fn)(const struct heard *heard);

/* A connection to a peer. */
struct line {
	struct hf_link link;
	struct peer *peer;
	struct hf_socket *socket;
	struct hf_addr from;
	struct hf_record_reader reader;
};

struct peer {
	struct hf_loop *loop;
	struct hf_socket *socket;
	struct hf_addr addr;
	bool is_tcp;
	bool is_deaf; /* TCP: does not read */
	script_fn script;
	void *user;
	struct hf_list lines;
	unsigned int n_heard;
	unsigned int n_accepted;
	unsigned int n_closed; /* by the other side */
	unsigned int n_reset;  /* of those: without sending what was left */
	uint32_t last_xid;
	struct hf_addr last_from;
	uint64_t heard_at[16];
};

void peer_open(struct peer *peer, struct hf_loop *loop, bool is_tcp, const char *address, uint16_t port,
	       script_fn script);
void peer_close(struct peer *peer);
void peer_listen_again(struct peer *peer); /* reads what it did not want to */
void line_close(struct line *line);

/* Things to do in a script */
void reply_bytes(const struct heard *heard, const void *data, size_t len);
void reply_word(const struct heard *heard, uint32_t word);
void reply_error(const struct heard *heard, enum hf_rpc_accept stat);

/* Scripts */
void script_echo(const struct heard *heard); /* the first word of the arguments */
void script_silent(const struct heard *heard);

/* A test's world: a loop, a client, a watchdog. */
struct world {
	struct hf_loop *loop;
	struct hf_rpc_client *client;
	struct hf_timer watchdog;
};

void world_open(struct world *world, const struct hf_rpc_client_limits *limits);
void world_close(struct world *world);
void world_run(struct world *world);                  /* until the loop is stopped; 50 s at most */
void world_run_for(struct world *world, uint64_t ns); /* for time-outs, never to hope for something */
struct hf_rpc_client_counts world_counts(struct world *world);

/* A call and what became of it. */
struct outcome {
	struct world *world;
	struct hf_rpc_pending *pending;
	unsigned int n_done;
	bool is_last; /* stops the loop */
	struct hf_rpc_result result;
	uint32_t word;    /* of the results */
	uint64_t done_at; /* after the start */
	uint64_t started_at;
	void (*then)(struct outcome *outcome); /* inside done */
	void *user;
};

struct hf_addr address(const char *text, uint16_t port);
struct hf_rpc_request request_to(const struct hf_addr *remote, enum hf_rpc_path path);
/* One word of arguments. */
void call(struct world *world, struct outcome *outcome, const struct hf_rpc_request *request, uint32_t word);
/* ... and waits for it. */
void call_and_run(struct world *world, struct outcome *outcome, const struct hf_rpc_request *request,
		  uint32_t word);
void outcome_done(void *user, const struct hf_rpc_result *result);

/* What most tests begin with: a world, one peer at 127.0.0.2, and a request to it by its own transport. */
struct scene {
	struct world world;
	struct peer peer;
	struct hf_rpc_request request;
};

void scene_open(struct scene *scene, const struct hf_rpc_client_limits *limits, bool is_tcp,
		script_fn script);
void scene_close(struct scene *scene);
struct outcome scene_call(struct scene *scene, uint32_t word); /* and waits for it */

#define TEST_PROGRAM   0x20000005u
#define TEST_VERSION   1u
#define TEST_PROCEDURE 7u

#define assert_outcome(o, wanted, where)                                                                   \
	do {                                                                                               \
		assert_int_equal((o).n_done, 1);                                                           \
		assert_string_equal(hf_rpc_outcome_text((o).result.outcome), hf_rpc_outcome_text(wanted)); \
		assert_string_equal(hf_rpc_stage_text((o).result.stage), hf_rpc_stage_text(where));        \
	} while (0)
