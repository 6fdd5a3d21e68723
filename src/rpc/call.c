#include "rpc/call.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "rpc/server_internal.h"

#define MAX_FREE_CALLS 1024
#define COPY_MAX       8192

/* Pool */

struct hf_rpc_call *hf_rpc_call_new(struct hf_rpc_lane *lane, struct hf_bytes message)
{
	struct hf_rpc_call *call = lane->free_calls;

	if (call) {
		lane->free_calls = call->next_free;
		lane->n_free_calls--;
	} else {
		call = malloc(sizeof(*call));
		if (!call)
			return NULL;
	}
	call->message = message;
	call->is_suspended = call->is_replying = false;
	call->lane = lane;
	call->connection = NULL;
	call->port = NULL;
	call->own = call->reply = call->scratch = NULL;
	call->apart = NULL;
	call->replay = NULL;
	call->is_uncached = false;
	call->told = (struct hf_bytes){ 0 };
	call->begun = 0;
	return call;
}

static void put_back(struct hf_rpc_call *call)
{
	struct hf_rpc_lane *lane = call->lane;

	if (lane->n_free_calls >= MAX_FREE_CALLS) {
		free(call);
		return;
	}
	call->next_free = lane->free_calls;
	lane->free_calls = call;
	lane->n_free_calls++;
}

void hf_rpc_calls_deinit(struct hf_rpc_lane *lane)
{
	struct hf_rpc_call *call;
	struct hf_link *link;

	/* Calls that will never be ended: the store was too slow when the server stopped. */
	while ((link = hf_list_first(&lane->suspended)))
		hf_rpc_call_free(hf_list_entry(link, struct hf_rpc_call, in_suspended));
	while ((call = lane->free_calls)) {
		lane->free_calls = call->next_free;
		free(call);
	}
}

/* A suspended call: what it counts for is free again. */
static void end_suspension(struct hf_rpc_call *call)
{
	hf_link_remove(&call->in_suspended);
	if (call->connection)
		hf_rpc_connection_release(call->connection, call->charged);
	if (call->port)
		hf_rpc_port_release(call->port, call->charged);
}

static HF_NOINLINE void free_memory(struct hf_rpc_call *call)
{
	free(call->own);
	free(call->scratch);
	hf_segment_free(call->apart);
}

/* It is counted, and its replay entry has ended. */
static void free_ended(struct hf_rpc_call *call, bool is_answered)
{
	if (call->is_suspended) {
		if (HF_UNLIKELY(hf_rpc_slow_ns(call->lane) && is_answered))
			hf_rpc_look_at_time(call);
		end_suspension(call);
	}
	/* One look at all three, because most calls have none of them. */
	if (HF_UNLIKELY((uintptr_t)call->own | (uintptr_t)call->scratch | (uintptr_t)call->apart))
		free_memory(call);
	put_back(call);
}

void hf_rpc_call_free(struct hf_rpc_call *call)
{
	if (call->begun)
		hf_rpc_meter_end(call, "DROPPED");
	if (call->replay)
		hf_replay_forget(call->lane->server->replay, call->replay);
	free_ended(call, false);
}

void hf_rpc_call_uncache(struct hf_rpc_call *call)
{
	call->is_uncached = true;
}

const struct hf_rpc_header *hf_rpc_call_header(const struct hf_rpc_call *call)
{
	return &call->header;
}

struct hf_bytes hf_rpc_call_message(const struct hf_rpc_call *call)
{
	return call->message;
}

bool hf_rpc_call_is_late(const struct hf_rpc_call *call)
{
	return hf_rpc_budget_is_late(call->lane);
}

struct hf_loop *hf_rpc_call_loop(const struct hf_rpc_call *call)
{
	return call->lane->loop;
}

size_t hf_rpc_call_lane(const struct hf_rpc_call *call)
{
	return call->lane->index;
}

struct hf_xdr_in *hf_rpc_call_args(struct hf_rpc_call *call)
{
	return &call->args;
}

void hf_rpc_call_rewind(struct hf_rpc_call *call)
{
	hf_xdr_in_init(&call->args, call->message.data + call->args_at, call->message.len - call->args_at);
}

/* Suspending */

/* The machine name points into the message, which is about to move. */
static void rebase(struct hf_rpc_call *call, const uint8_t *from)
{
	struct hf_bytes *machine = &call->header.cred.machine;

	if (machine->data)
		machine->data = call->message.data + (machine->data - from);
	hf_rpc_call_rewind(call);
}

/* A short message is copied into the call itself: most suspended calls are short, and many are suspended only
 * briefly. */
static uint8_t *copy_message(struct hf_rpc_call *call)
{
	uint8_t *copy = call->small;

	if (call->message.len > sizeof(call->small))
		copy = call->own = malloc(call->message.len);
	if (copy)
		memcpy(copy, call->message.data, call->message.len);
	return copy;
}

int hf_rpc_call_suspend(struct hf_rpc_call *call)
{
	const uint8_t *from = call->message.data;

	if (call->is_suspended)
		return 0;
	if (call->connection)
		call->own = hf_record_take_buffer(&call->connection->reader);
	if (!call->own) {
		uint8_t *copy = copy_message(call);

		if (!copy) {
			hf_rpc_reply_error(call, HF_RPC_SYSTEM_ERR);
			return hf_trace(-ENOMEM);
		}
		call->message.data = copy;
	} else {
		call->message.data = call->own;
	}
	rebase(call, from);
	call->is_suspended = true;
	call->suspended_at = hf_loop_now(call->lane->loop);
	hf_link_init(&call->in_suspended);
	hf_list_push_back(&call->lane->suspended, &call->in_suspended);
	call->charged = sizeof(*call) + call->message.len;
	if (call->connection) {
		call->connection->n_suspended++;
		call->connection->suspended_bytes += call->charged;
		hf_rpc_budget_spend(call->connection, HF_RPC_SUSPEND_UNITS);
	} else {
		hf_rpc_port_note_suspended(call->port, call->charged);
	}
	return 0;
}

void *hf_rpc_call_room(struct hf_rpc_call *call)
{
	assert(call->is_suspended);
	return call->room;
}

void hf_rpc_call_expect(struct hf_rpc_call *call, size_t reply_len)
{
	assert(call->is_suspended);
	call->charged += reply_len;
	if (call->connection) {
		call->connection->suspended_bytes += reply_len;
	} else {
		hf_rpc_port_expect(call->port, reply_len);
	}
}

void hf_rpc_call_spend(struct hf_rpc_call *call, uint32_t n_units)
{
	if (call->connection)
		hf_rpc_budget_spend(call->connection, (int32_t)HF_MIN(n_units, (uint32_t)HF_RPC_LOOP_UNITS));
}

/* Replies: reserve, encode in place, commit */

static size_t prefix_of(const struct hf_rpc_call *call)
{
	return call->connection ? HF_RECORD_MARK : 0;
}

/* Room for the reply in the queue that sends it; or elsewhere, if there is no connection any more. */
static uint8_t *reserve(struct hf_rpc_call *call, size_t len)
{
	struct hf_rpc_connection *connection = call->connection;

	if (HF_UNLIKELY(call->scratch)) {
		free(call->scratch);
		call->scratch = NULL;
	}
	if (connection && connection->socket)
		return hf_outqueue_reserve(&connection->out, &call->lane->segments, len);
	if (call->port && hf_rpc_port_is_open(call->port))
		return hf_rpc_port_reserve(call->port, len);
	call->scratch = malloc(len);
	return call->scratch;
}

/* A long reply is sent from where it is. A short one is cheaper to copy than to queue as a segment. */
static void commit_apart(struct hf_rpc_call *call, size_t len)
{
	struct hf_rpc_connection *connection = call->connection;
	struct hf_segment *segment = call->apart;
	uint8_t *room;

	if (connection && !connection->socket)
		return;
	if (connection && len > COPY_MAX) {
		call->apart = NULL;
		hf_outqueue_append(&connection->out, segment, len);
		hf_rpc_connection_replied(connection);
		return;
	}
	room = reserve(call, len);
	if (!room || call->scratch)
		return; /* as if it were lost on the way */
	memcpy(room, hf_segment_data(segment), len);
	if (call->port) {
		hf_rpc_port_commit(call->port, call, len);
	} else {
		hf_outqueue_commit(&connection->out, len);
		hf_rpc_connection_replied(connection);
	}
}

static void commit(struct hf_rpc_call *call, size_t len)
{
	struct hf_rpc_connection *connection = call->connection;
	uint32_t mark = htobe32(HF_RECORD_LAST | (uint32_t)(len - HF_RECORD_MARK));

	if (call->scratch)
		return;
	if (connection)
		memcpy(call->reply - HF_RECORD_MARK, &mark, HF_RECORD_MARK);
	if (call->apart) {
		commit_apart(call, len);
		return;
	}
	if (!connection) {
		hf_rpc_port_commit(call->port, call, len);
		return;
	}
	hf_outqueue_commit(&connection->out, len);
	hf_rpc_budget_spend_bytes(connection, len);
	hf_rpc_connection_replied(connection);
}

static bool begin_at(struct hf_rpc_call *call, uint8_t *room, size_t prefix, size_t max)
{
	assert(!call->is_replying);
	if (!room)
		return false;
	call->reply = room + prefix;
	call->is_replying = true;
	hf_xdr_out_init(&call->out, call->reply, max);
	return true;
}

static bool begin(struct hf_rpc_call *call, size_t max)
{
	size_t prefix = prefix_of(call);

	if (HF_UNLIKELY(call->apart)) {
		hf_segment_free(call->apart);
		call->apart = NULL;
	}
	return begin_at(call, reserve(call, prefix + max), prefix, max);
}

static void finish_replay(struct hf_rpc_call *call, struct hf_bytes reply)
{
	struct hf_replay *replay = call->lane->server->replay;

	if (call->is_uncached)
		hf_replay_finish_once(replay, call->replay, reply);
	else
		hf_replay_finish(replay, call->replay, reply);
}

/* @call is freed here. */
static void end(struct hf_rpc_call *call)
{
	size_t len = (size_t)(call->out.p - call->reply);

	commit(call, prefix_of(call) + len);
	if (call->begun)
		hf_rpc_meter_end(call, call->result);
	call->is_replying = false;
	if (call->replay)
		finish_replay(call, hf_bytes_of(call->reply, (uint32_t)len));
	free_ended(call, true);
}

/* An encoder for results without any memory: everything put into it is refused. */
struct hf_xdr_out *hf_rpc_reply_begin(struct hf_rpc_call *call, size_t max)
{
	if (begin(call, HF_RPC_REPLY_LEN + max))
		hf_rpc_put_success(&call->out, call->header.xid);
	else
		call->out = (struct hf_xdr_out){ 0 };
	return &call->out;
}

struct hf_xdr_out *hf_rpc_reply_begin_apart(struct hf_rpc_call *call, size_t max)
{
	size_t prefix = prefix_of(call);

	assert(call->is_suspended);
	hf_segment_free(call->apart);
	call->apart = hf_segment_new(prefix + HF_RPC_REPLY_LEN + max);
	if (begin_at(call, call->apart ? hf_segment_data(call->apart) : NULL, prefix, HF_RPC_REPLY_LEN + max))
		hf_rpc_put_success(&call->out, call->header.xid);
	else
		call->out = (struct hf_xdr_out){ 0 };
	return &call->out;
}

void hf_rpc_reply_cancel(struct hf_rpc_call *call)
{
	call->is_replying = false;
	/* An empty queue uses no memory. */
	if (!call->apart && call->connection && call->connection->out.n_bytes == 0)
		hf_outqueue_clear(&call->connection->out, &call->lane->segments);
}

void hf_rpc_reply_end(struct hf_rpc_call *call)
{
	if (HF_UNLIKELY(!hf_xdr_out_is_ok(&call->out))) {
		call->is_replying = false;
		hf_rpc_reply_error(call, HF_RPC_SYSTEM_ERR);
		return;
	}
	end(call);
}

void hf_rpc_reply_void(struct hf_rpc_call *call)
{
	hf_rpc_reply_begin(call, 0);
	hf_rpc_reply_end(call);
}

void hf_rpc_reply_error(struct hf_rpc_call *call, enum hf_rpc_accept stat)
{
	if (!begin(call, HF_RPC_REPLY_LEN)) {
		hf_rpc_call_free(call);
		return;
	}
	hf_rpc_put_accept_error(&call->out, call->header.xid, stat);
	call->result = stat == HF_RPC_GARBAGE_ARGS ? "GARBAGE_ARGS" : "RPC_ERROR";
	end(call);
}

/* Nothing was done, and a copy gets the same answer without the cache. */
void hf_rpc_reply_garbage(struct hf_rpc_call *call)
{
	hf_rpc_call_uncache(call);
	hf_rpc_reply_error(call, HF_RPC_GARBAGE_ARGS);
}

/* The same call may be served when it comes again: over TLS, or after a reload. The reply is not cached. */
void hf_rpc_reply_auth_error(struct hf_rpc_call *call, enum hf_rpc_auth_stat stat)
{
	if (!begin(call, HF_RPC_REPLY_LEN)) {
		hf_rpc_call_free(call);
		return;
	}
	hf_rpc_put_auth_error(&call->out, call->header.xid, stat);
	call->result = "AUTH_ERROR";
	hf_rpc_call_uncache(call);
	end(call);
}

void hf_rpc_reply_bytes(struct hf_rpc_call *call, struct hf_bytes reply)
{
	if (!begin(call, reply.len)) {
		hf_rpc_call_free(call);
		return;
	}
	memcpy(hf_xdr_reserve(&call->out, reply.len), reply.data, reply.len);
	end(call);
}

void hf_rpc_call_drop(struct hf_rpc_call *call)
{
	hf_rpc_call_free(call);
}
