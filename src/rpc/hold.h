/*
 * Replies that are made and must not leave yet: what they say waits for something
 * that will happen to all of them at once.
 *
 * A held connection sends nothing, whatever is put into its queue, until its hold
 * is released. So a reply is written once, where it will be sent from, the call is
 * over, and until the release the reply may be changed where it is. A connection has
 * one hold at a time. For a moment, not for a wait: other replies stay behind those
 * that are held. So one that has calls under way is not held: nobody knows what follows
 * their replies elsewhere.
 */
#pragma once

#include <stdbool.h>

#include "base/list.h"

struct hf_rpc_call;
struct hf_rpc_connection;

struct hf_rpc_hold {
	struct hf_list connections;
	/* A connection broke, and what it had to send is gone. */
	void (*on_gone)(struct hf_rpc_hold *hold, const struct hf_rpc_connection *connection);
};

void hf_rpc_hold_init(struct hf_rpc_hold *hold,
		      void (*on_gone)(struct hf_rpc_hold *hold, const struct hf_rpc_connection *connection));
/* Before the reply of @call is begun. NULL: it cannot be held (a datagram, a reply that is kept for repeats,
 * another hold, other calls under way, a broken connection). */
const struct hf_rpc_connection *hf_rpc_hold_call(struct hf_rpc_hold *hold, struct hf_rpc_call *call);
void hf_rpc_hold_release(struct hf_rpc_hold *hold); /* they may leave */
void hf_rpc_hold_deinit(struct hf_rpc_hold *hold);  /* they never will: the connections are closed */
