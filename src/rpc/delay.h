/*
 * Replies that are ready and must not leave yet: the fact in them waits for something that
 * happens to all of them at once, as a rule the commit of this turn.
 *
 * A connection with a delay sends nothing from its queue until the delay is released. So a reply
 * is written once, where it will be sent from, and its call ends. Until the release the reply
 * may still be changed there. A connection has one delay at a time.
 *
 * A delay is for a moment, not for a wait: other replies of the connection stay behind the delayed
 * ones. So a connection with other calls under way gets no delay: a handler may rely on their
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

#define HF_RPC_DELAYED_KINDS 64
#define HF_RPC_DELAYED_MANY  32 /* from here on the time of the beginning does not make another kind */

/* Calls whose replies are delayed, of one procedure and result, that were begun together: see meter.c. */
struct hf_rpc_delayed {
	struct hf_call_meter *meter;
	const char *result;
	uint64_t begun;
	uint64_t n;
};

struct hf_rpc_delay {
	struct hf_list connections;
	struct hf_rpc_lane *lane;                            /* of the calls in @delayed */
	struct hf_rpc_delayed delayed[HF_RPC_DELAYED_KINDS]; /* they are counted when they are released */
	uint32_t n_delayed;
	/* Where the last call that was given to hf_rpc_delay_call() is counted; HF_RPC_DELAYED_KINDS: not
	 * here */
	uint32_t last;
	/* A connection broke, and its delayed replies are lost. */
	void (*on_gone)(struct hf_rpc_delay *delay, const struct hf_rpc_connection *connection);
};

void hf_rpc_delay_init(struct hf_rpc_delay *delay,
		       void (*on_gone)(struct hf_rpc_delay *delay,
				       const struct hf_rpc_connection *connection));
/* Before the reply to @call begins. NULL: it cannot be delayed (a datagram, a reply for the replay cache,
 * another delay, other calls under way, a broken connection). */
const struct hf_rpc_connection *hf_rpc_delay_call(struct hf_rpc_delay *delay, struct hf_rpc_call *call);
/* Would the reply to @call stay behind delayed ones? */
bool hf_rpc_delay_would_delay(const struct hf_rpc_call *call);
/* A delayed reply was changed: one of the calls that are counted at @where (delay->last) has @result. */
void hf_rpc_delay_change_result(struct hf_rpc_delay *delay, uint32_t where, const char *result);
void hf_rpc_delay_release(struct hf_rpc_delay *delay); /* the replies may leave */
void hf_rpc_delay_deinit(
	struct hf_rpc_delay *delay); /* the replies never leave: the connections are closed */
