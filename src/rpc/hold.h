/*
 * Replies that are ready and must not leave yet: the fact in them waits for something that
 * happens to all of them at once, as a rule the commit of this turn.
 *
 * A connection with a hold sends nothing from its queue until the hold is released. So a reply
 * is written once, where it will be sent from, and its call ends. Until the release the reply
 * may still be changed there. A connection has one hold at a time.
 *
 * A hold is for a moment, not for a wait: other replies of the connection stay behind the delayed
 * ones. So a connection with other calls under way gets no hold: a handler may rely on their
 * replies leaving at once.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct hf_rpc_call;
struct hf_rpc_connection;

struct hf_call_meter;
struct hf_rpc_lane;

#define HF_RPC_HELD_KINDS 64
#define HF_RPC_HELD_MANY  32 /* from here on the time of the beginning does not make another kind */

/* Calls whose replies are held, of one procedure and result, that were begun together: see meter.c. */
struct hf_rpc_held {
	struct hf_call_meter *meter;
	const char *result;
	uint64_t begun;
	uint64_t n;
};

struct hf_rpc_hold {
	struct hf_list connections;
	struct hf_rpc_lane *lane;                   /* of the calls in @held */
	struct hf_rpc_held held[HF_RPC_HELD_KINDS]; /* they are counted when they are released */
	uint32_t n_held;
	/* A connection broke, and its delayed replies are lost. */
	void (*on_gone)(struct hf_rpc_hold *hold, const struct hf_rpc_connection *connection);
};

void hf_rpc_hold_init(struct hf_rpc_hold *hold,
		      void (*on_gone)(struct hf_rpc_hold *hold, const struct hf_rpc_connection *connection));
/* Before the reply to @call begins. NULL: it cannot be delayed (a datagram, a reply for the replay cache,
 * another hold, other calls under way, a broken connection). */
const struct hf_rpc_connection *hf_rpc_hold_call(struct hf_rpc_hold *hold, struct hf_rpc_call *call);
/* The held replies with the result @from are counted with the result @to. */
void hf_rpc_hold_change_result(struct hf_rpc_hold *hold, const char *from, const char *to);
void hf_rpc_hold_release(struct hf_rpc_hold *hold); /* the replies may leave */
void hf_rpc_hold_deinit(struct hf_rpc_hold *hold);  /* the replies never leave: the connections are closed */
