#include "calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct calls calls;

static bool is_wanting(void)
{
	return calls.is_wanting && calls.is_wanting();
}

void __wrap_hf_rpc_call_note(struct hf_rpc_call *call, const char *result);
void __wrap_hf_rpc_call_note(struct hf_rpc_call *call, const char *result)
{
	calls.said[call->header.xid] = result;
}

int __wrap_hf_rpc_call_suspend(struct hf_rpc_call *call);
int __wrap_hf_rpc_call_suspend(struct hf_rpc_call *call)
{
	if (call->is_suspended)
		return 0;
	if (is_wanting()) {
		hf_rpc_reply_error(call, HF_RPC_SYSTEM_ERR);
		return -ENOMEM;
	}
	call->is_suspended = true; /* its message is its own */
	call->charged = 0;
	hf_list_push_back(&calls.lane.suspended, &call->in_suspended);
	if (call->connection)
		call->connection->n_suspended++;
	return 0;
}

int __wrap_hf_rpc_client_call(struct hf_rpc_client *client, struct hf_rpc_pending **pendingp,
			      const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user);
int __wrap_hf_rpc_client_call(struct hf_rpc_client *client, struct hf_rpc_pending **pendingp,
			      const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user)
{
	if (is_wanting())
		return -ENOMEM;
	calls.n_granted++;
	calls.done = done;
	calls.user = user;
	if (pendingp)
		*pendingp = (struct hf_rpc_pending *)&calls;
	return 0;
}

void __wrap_hf_rpc_pending_cancel(struct hf_rpc_pending *pending);
void __wrap_hf_rpc_pending_cancel(struct hf_rpc_pending *pending)
{
	if (pending)
		calls.done = NULL;
}

static void flush(struct hf_task *task)
{
	while (hf_list_pop_front(&calls.lane.flushable)) {
		assert_null(calls.connection.delay);
		calls.n_left += calls.connection.out.n_bytes;
		hf_outqueue_clear(&calls.connection.out, &calls.lane.segments);
	}
}

static void make_connection(void)
{
	struct hf_rpc_connection *c = &calls.connection;

	hf_list_init(&calls.lane.flushable);
	hf_segment_pool_init(&calls.lane.segments);
	hf_task_init(&calls.lane.flush, flush);
	c->lane = &calls.lane;
	c->socket = (struct hf_socket *)&calls; /* it is not used */
	hf_list_init(&calls.lane.wanting);
	hf_list_init(&calls.lane.charged_parts);
	hf_link_init(&calls.part.charged_link);
	c->part = &calls.part;
	hf_link_init(&c->flush_link);
	hf_link_init(&c->delay_link);
	hf_outqueue_init(&c->out);
	assert_true(hf_addr_parse(&c->peer, CALLS_HOST) && hf_addr_parse(&c->local, "10.0.0.1"));
}

int calls_setup(uint32_t locks_per_client, bool continues)
{
	struct hf_nlm_options options = { .server_name = "server" };

	memset(&calls, 0, sizeof(calls));
	world_init(&calls.world);
	calls.world.options.lock_limits.locks_per_client = locks_per_client;
	calls.world.options.continues = continues;
	world_up(&calls.world);
	world_turn(&calls.world);
	calls.lane.loop = options.loop = calls.world.loop;
	hf_list_init(&calls.lane.suspended);
	make_connection();
	options.recovery = calls.world.recovery;
	assert_int_equal(hf_nlm_new(&calls.nlm, &options), 0);
	return 0;
}

int calls_teardown(void **state)
{
	calls.nlm = hf_nlm_free(calls.nlm);
	world_deinit(&calls.world);
	hf_rpc_calls_deinit(&calls.lane);
	hf_outqueue_clear(&calls.connection.out, &calls.lane.segments);
	hf_segment_pool_deinit(&calls.lane.segments);
	return 0;
}

static void put_share_args(struct hf_xdr_out *out, const struct ask *ask)
{
	hf_xdr_put_opaque(out, hf_bytes_of_str("cookie"));
	hf_xdr_put_opaque(out, hf_bytes_of_str(ask->name));
	hf_xdr_put_opaque(out, hf_bytes_of_str(ask->file ? ask->file : "f"));
	hf_xdr_put_opaque(out, hf_bytes_of_str("oh"));
	hf_xdr_put_u32(out, 2); /* denied to others: write */
	hf_xdr_put_u32(out, 1); /* access: read */
	hf_xdr_put_bool(out, ask->is_reclaim);
}

static void put_args(struct hf_xdr_out *out, const struct ask *ask)
{
	if (ask->procedure == HF_NLM_SHARE || ask->procedure == HF_NLM_UNSHARE) {
		put_share_args(out, ask);
		return;
	}
	hf_xdr_put_opaque(out, hf_bytes_of_str("cookie"));
	if (ask->procedure == HF_NLM_LOCK)
		hf_xdr_put_bool(out, ask->block);
	if (ask->procedure == HF_NLM_LOCK)
		hf_xdr_put_bool(out, !ask->is_shared);
	hf_xdr_put_opaque(out, hf_bytes_of_str(ask->name));
	hf_xdr_put_opaque(out, hf_bytes_of_str(ask->file ? ask->file : "f"));
	hf_xdr_put_opaque(out, hf_bytes_of_str("oh"));
	hf_xdr_put_i32(out, 7);
	hf_xdr_put_u64(out, ask->offset);
	hf_xdr_put_u64(out, ask->len ? ask->len : 10);
	if (ask->procedure == HF_NLM_LOCK) {
		hf_xdr_put_bool(out, ask->is_reclaim);
		hf_xdr_put_i32(out, 3); /* state */
	}
}

uint32_t call_up(struct ask ask)
{
	struct hf_xdr_out out;
	struct hf_rpc_call *call;
	uint8_t *message;

	calls.is_ours = true;
	message = malloc(256);
	if (!message)
		abort();
	hf_xdr_out_init(&out, message, 256);
	put_args(&out, &ask);
	assert_true(hf_xdr_out_is_ok(&out));
	call = hf_rpc_call_new(&calls.lane, hf_bytes_of(message, (uint32_t)(out.p - message)));
	calls.is_ours = false;
	call->own = message;
	call->header = (struct hf_rpc_header){
		.program = HF_NLM_PROGRAM, .version = 4, .procedure = ask.procedure, .xid = calls.n
	};
	call->args_at = 0;
	call->connection = ask.by_tcp ? &calls.connection : NULL;
	assert_true(hf_addr_parse(&call->peer, ask.host ? ask.host : CALLS_HOST));
	call->peer.port = calls.connection.peer.port = ask.port;
	assert_true(hf_addr_parse(&call->local, ask.local ? ask.local : "10.0.0.1"));
	hf_rpc_call_rewind(call);
	hf_nlm_serve(calls.nlm, call);
	assert_true(calls.n < HF_ARRAY_SIZE(calls.said));
	return calls.n++;
}

void calls_answer(enum hf_nlm_stat stat)
{
	hf_rpc_done_fn done = calls.done;
	uint8_t bytes[64];
	struct hf_xdr_out out;
	struct hf_xdr_in in;

	if (!done)
		return;
	calls.done = NULL;
	hf_xdr_out_init(&out, bytes, sizeof(bytes));
	hf_nlm_put_res(&out, 4, (struct hf_bytes){ 0 }, stat);
	hf_xdr_in_init(&in, bytes, (size_t)(out.p - bytes));
	done(calls.user,
	     &(struct hf_rpc_result){ .outcome = HF_RPC_OUTCOME_OK, .n_sent = 1, .results = &in });
}

void calls_kill(const char *host, const char *name)
{
	struct hf_client *client;

	calls.is_ours = true;
	client = world_client(&calls.world, host, name);
	calls.is_ours = false;
	hf_recovery_client_freed(calls.world.recovery, client, 0);
}
