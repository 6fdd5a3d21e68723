/* Which handler serves a message? If none does, which error is the reply? */
#include <assert.h>
#include <stdlib.h>

#include "rpc/server_internal.h"

#define LISTS_AT_ONCE 100
#define LIST_GAP_NS   (50 * HF_NS_PER_MS)

static const struct hf_rpc_entry *find_program(struct hf_rpc_lane *lane, uint32_t program)
{
	const struct hf_rpc_server *server = lane->server;

	if (HF_LIKELY(lane->last_entry && lane->last_entry->program->program == program))
		return lane->last_entry;
	for (size_t i = 0; i < server->n_entries; i++)
		if (server->entries[i].program->program == program) {
			lane->last_version = NULL;
			return lane->last_entry = &server->entries[i];
		}
	return NULL;
}

/* Among the versions of the last program found. */
static const struct hf_rpc_version *find_version(struct hf_rpc_lane *lane, uint32_t version)
{
	const struct hf_rpc_program *program = lane->last_entry->program;

	if (HF_LIKELY(lane->last_version && lane->last_version->version == version))
		return lane->last_version;
	for (uint32_t i = 0; i < program->n_versions; i++)
		if (program->versions[i].version == version)
			return lane->last_version = &program->versions[i];
	return NULL;
}

/* Rare replies, with buffers that a served call does not pay for */

static HF_NOINLINE void reply_mismatch(struct hf_rpc_call *call, const struct hf_rpc_program *program)
{
	uint8_t reply[HF_RPC_REPLY_LEN + 8];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, reply, sizeof(reply));
	hf_rpc_put_prog_mismatch(&out, call->header.xid, program->versions[0].version,
				 program->versions[program->n_versions - 1].version);
	hf_rpc_reply_bytes(call, hf_bytes_of(reply, (uint32_t)(out.p - reply)));
}

static HF_NOINLINE void reply_rpc_mismatch(struct hf_rpc_call *call)
{
	uint8_t reply[HF_RPC_REPLY_LEN];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, reply, sizeof(reply));
	hf_rpc_put_rpc_mismatch(&out, call->header.xid);
	hf_rpc_reply_bytes(call, hf_bytes_of(reply, (uint32_t)(out.p - reply)));
}

/* Repeats */

static void tell_follower(struct hf_task *task)
{
	struct hf_rpc_call *call = hf_container_of(task, struct hf_rpc_call, telling);
	struct hf_bytes told = call->told;

	if (told.len)
		hf_rpc_reply_bytes(call, told);
	else
		hf_rpc_call_drop(call);
	free((void *)(uintptr_t)told.data);
}

/* Runs on the thread of the call that was served. The follower may belong to another thread. */
static void on_told(void *user, struct hf_bytes reply)
{
	struct hf_rpc_call *follower = user;
	uint8_t *copy;

	if (follower->lane->server->is_freeing)
		return; /* the follower is freed with the other suspended calls */
	copy = reply.len ? malloc(reply.len) : NULL;
	if (copy) {
		memcpy(copy, reply.data, reply.len);
		follower->told = hf_bytes_of(copy, reply.len);
	}
	hf_task_init(&follower->telling, tell_follower);
	hf_loop_post(follower->lane->loop, &follower->telling);
}

static bool wants_replay(const struct hf_rpc_call *call, const struct hf_rpc_proc *proc)
{
	return proc->replay == HF_RPC_REPLAY_ALWAYS || (proc->replay == HF_RPC_REPLAY_UDP && call->port);
}

static int begin_replay(struct hf_rpc_call *call, struct hf_rpc_call *follower, uint8_t *reply,
			uint32_t *lenp)
{
	struct hf_replay_call known = {
		.peer = hf_rpc_call_peer(call),
		.channel = hf_rpc_call_channel(call),
		.message = call->message,
		.is_forgeable = !call->connection,
	};

	return hf_replay_begin(call->lane->server->replay, hf_loop_now(call->lane->loop), &known, follower,
			       on_told, reply, lenp, &call->replay);
}

/* True: the call has ended or follows another one. */
static bool answer_repeat(struct hf_rpc_call *call)
{
	struct hf_rpc_lane *lane = call->lane;
	uint8_t reply[HF_REPLAY_MAX_REPLY];
	bool follows = false;
	uint32_t len;
	int r = begin_replay(call, NULL, reply, &len);

	/* The first copy may have come over a connection that is broken by now. So this copy gets the reply,
	 * too. */
	if (r == HF_REPLAY_BUSY && call->connection) {
		if (hf_rpc_call_suspend(call) < 0)
			return true;
		follows = true;
		r = begin_replay(call, call, reply, &len);
	}
	switch (r) {
	case HF_REPLAY_DONE:
		hf_rpc_count(&lane->n_replayed);
		hf_rpc_call_note(call, "REPLAYED");
		hf_rpc_reply_bytes(call, hf_bytes_of(reply, len));
		return true;
	case HF_REPLAY_BUSY:
		hf_rpc_count(&lane->n_replayed);
		if (!follows)
			hf_rpc_call_drop(call);
		return true;
	default:
		return false;
	}
}

/* Lists over UDP: LISTS_AT_ONCE in a burst, and one more every LIST_GAP_NS. */

static bool may_list(struct hf_rpc_call *call)
{
	struct hf_rpc_lane *lane = call->lane;
	uint64_t now = hf_loop_now(lane->loop);

	if (!call->port || hf_addr_is_loopback(&call->peer))
		return true;
	if (lane->lists_until > now + (LISTS_AT_ONCE - 1) * LIST_GAP_NS)
		return false;
	lane->lists_until = HF_MAX(lane->lists_until, now) + LIST_GAP_NS;
	return true;
}

void hf_rpc_lane_show_lists(const struct hf_rpc_lane *lane, struct hf_limit_use *use)
{
	uint64_t now = hf_loop_now(lane->loop);

	use->used = (HF_MAX(lane->lists_until, now) - now + LIST_GAP_NS - 1) / LIST_GAP_NS;
	use->max = LISTS_AT_ONCE;
}

/* Long replies */

/* A call for a long reply waits while no memory is left for that. A long call cannot wait: it would itself
 * take the memory that is short. */
static bool must_wait(const struct hf_rpc_call *call)
{
	return call->connection && call->message.len <= HF_RPC_LONGEST_ASKER &&
	       !hf_rpc_budget_has_room(call->lane, call->connection->part);
}

static enum hf_rpc_dispatched serve(struct hf_rpc_call *call)
{
	const struct hf_rpc_entry *entry = find_program(call->lane, call->header.program);
	const struct hf_rpc_version *version;
	const struct hf_rpc_proc *proc;
	size_t max_request;

	if (entry && entry->program->at_home && !hf_rpc_lane_is_home(call->lane)) {
		hf_rpc_call_free(call);
		return HF_RPC_GOES_HOME;
	}
	if (!entry) {
		hf_rpc_count(&call->lane->n_calls);
		hf_rpc_reply_error(call, HF_RPC_PROG_UNAVAIL);
		return HF_RPC_DISPATCHED;
	}
	version = find_version(call->lane, call->header.version);
	if (!version) {
		hf_rpc_count(&call->lane->n_calls);
		reply_mismatch(call, entry->program);
		return HF_RPC_DISPATCHED;
	}
	proc = call->header.procedure < version->n_procs ? &version->procs[call->header.procedure] : NULL;
	if (!proc || !proc->name) {
		hf_rpc_count(&call->lane->n_calls);
		hf_rpc_reply_error(call, HF_RPC_PROC_UNAVAIL);
		return HF_RPC_DISPATCHED;
	}
	max_request = entry->program->max_request;
	if (proc->has_long_reply) {
		if (HF_UNLIKELY(must_wait(call))) {
			hf_rpc_call_free(call);
			return HF_RPC_MUST_WAIT;
		}
		max_request = HF_MIN(max_request, (size_t)HF_RPC_LONGEST_ASKER);
	}
	hf_rpc_count(&call->lane->n_calls);
	if (call->lane->meters)
		hf_rpc_meter_begin(call, entry);
	if (call->message.len > max_request) {
		hf_rpc_reply_garbage(call);
		return HF_RPC_DISPATCHED;
	}
	if (proc->is_list && !may_list(call)) {
		hf_rpc_count(&call->lane->refused[HF_LIMIT_UDP_LISTS]);
		hf_rpc_call_drop(call);
		return HF_RPC_DISPATCHED;
	}
	if (wants_replay(call, proc) && answer_repeat(call))
		return HF_RPC_DISPATCHED;
	proc->handle(entry->service, call);
	/* @call may be freed here */
	return HF_RPC_DISPATCHED;
}

/* Asking for TLS */

static HF_NOINLINE void reply_starttls(struct hf_rpc_call *call)
{
	uint8_t reply[HF_RPC_STARTTLS_LEN];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, reply, sizeof(reply));
	hf_rpc_put_starttls(&out, call->header.xid);
	hf_rpc_reply_bytes(call, hf_bytes_of(reply, (uint32_t)(out.p - reply)));
}

static bool offers_tls(const struct hf_rpc_call *call)
{
	const struct hf_tls *tls = call->lane->server->tls;

	return tls && call->connection && hf_tls_is_on(tls);
}

/* RFC 9289, section 4.1. Any lane answers, whatever the program: no connection moves for it. */
static HF_NOINLINE enum hf_rpc_dispatched serve_question(struct hf_rpc_call *call)
{
	struct hf_rpc_connection *c = call->connection;
	const struct hf_rpc_entry *entry;

	hf_rpc_count(&call->lane->n_calls);
	if (c && c->secure) {
		hf_rpc_reply_auth_error(call, HF_RPC_AUTH_BADCRED);
		return HF_RPC_IS_LAST;
	}
	entry = find_program(call->lane, call->header.program);
	if (!offers_tls(call))
		hf_rpc_reply_auth_error(call, HF_RPC_AUTH_REJECTEDCRED);
	else if (call->header.procedure != 0)
		hf_rpc_reply_auth_error(call, HF_RPC_AUTH_BADCRED);
	else if (!entry)
		hf_rpc_reply_error(call, HF_RPC_PROG_UNAVAIL);
	else if (!find_version(call->lane, call->header.version))
		reply_mismatch(call, entry->program);
	else if (call->args_at != call->message.len)
		hf_rpc_reply_garbage(call);
	else if (hf_rpc_secure_ask(c)) {
		reply_starttls(call);
		return HF_RPC_STARTS_TLS;
	} else {
		hf_rpc_call_free(call);
		return HF_RPC_NONSENSE;
	}
	return HF_RPC_DISPATCHED;
}

enum hf_rpc_dispatched hf_rpc_dispatch(struct hf_rpc_call *call)
{
	enum hf_rpc_auth_stat stat;

	if (HF_UNLIKELY(call->lane->is_ending || !hf_loop_may_act(call->lane->loop))) {
		hf_rpc_call_free(call);
		return HF_RPC_MAY_NOT;
	}
	hf_xdr_in_init(&call->args, call->message.data, call->message.len);
	switch (hf_rpc_parse_call(&call->header, &stat, &call->args)) {
	case HF_RPC_CALL:
		call->args_at = (uint32_t)(call->args.p - call->message.data);
		return serve(call);
	case HF_RPC_ASKS_TLS:
		call->args_at = (uint32_t)(call->args.p - call->message.data);
		return serve_question(call);
	case HF_RPC_BAD_VERSION:
		reply_rpc_mismatch(call);
		return HF_RPC_DISPATCHED;
	case HF_RPC_BAD_AUTH:
		hf_rpc_reply_auth_error(call, stat);
		return HF_RPC_DISPATCHED;
	case HF_RPC_NOT_A_CALL:
	case HF_RPC_BAD_HEADER:
		break;
	}
	hf_rpc_call_free(call);
	return HF_RPC_NONSENSE;
}
