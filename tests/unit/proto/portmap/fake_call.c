#include "fake_call.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct hf_rpc_call {
	struct hf_rpc_header header;
	struct hf_loop *loop;
	struct hf_addr peer;
	struct hf_addr local;
	enum hf_rpc_transport transport;
	struct hf_xdr_in args;
	struct hf_xdr_out out;
	struct fake_reply *reply;
	int n_ended;
};

const struct hf_rpc_header *hf_rpc_call_header(const struct hf_rpc_call *call)
{
	return &call->header;
}

const struct hf_addr *hf_rpc_call_peer(const struct hf_rpc_call *call)
{
	return &call->peer;
}

const struct hf_addr *hf_rpc_call_local(const struct hf_rpc_call *call)
{
	return &call->local;
}

enum hf_rpc_transport hf_rpc_call_transport(const struct hf_rpc_call *call)
{
	return call->transport;
}

struct hf_loop *hf_rpc_call_loop(const struct hf_rpc_call *call)
{
	return call->loop;
}

struct hf_xdr_in *hf_rpc_call_args(struct hf_rpc_call *call)
{
	return &call->args;
}

struct hf_xdr_out *hf_rpc_reply_begin(struct hf_rpc_call *call, size_t max)
{
	assert(call->n_ended == 0 && max <= sizeof(call->reply->data));
	hf_xdr_out_init(&call->out, call->reply->data, max);
	return &call->out;
}

void hf_rpc_reply_end(struct hf_rpc_call *call)
{
	assert(hf_xdr_out_is_ok(&call->out)); /* more than was asked for is a bug */
	call->n_ended++;
	call->reply->stat = HF_RPC_SUCCESS;
	call->reply->len = (size_t)(call->out.p - call->reply->data);
}

void hf_rpc_reply_void(struct hf_rpc_call *call)
{
	hf_rpc_reply_begin(call, 0);
	hf_rpc_reply_end(call);
}

void hf_rpc_reply_error(struct hf_rpc_call *call, enum hf_rpc_accept stat)
{
	call->n_ended++;
	call->reply->stat = stat;
	call->reply->len = 0;
}

void hf_rpc_reply_garbage(struct hf_rpc_call *call)
{
	hf_rpc_reply_error(call, HF_RPC_GARBAGE_ARGS);
}

static const struct hf_rpc_proc *find_proc(const struct hf_rpc_program *program, uint32_t version,
					   uint32_t procedure)
{
	for (uint32_t i = 0; i < program->n_versions; i++) {
		const struct hf_rpc_version *v = &program->versions[i];

		if (v->version == version)
			return procedure < v->n_procs && v->procs[procedure].name ? &v->procs[procedure]
										  : NULL;
	}
	return NULL;
}

void fake_call(struct fake_reply *reply, const struct hf_rpc_program *program, void *service,
	       const struct fake_caller *caller, uint32_t version, uint32_t procedure, const void *args,
	       size_t args_len)
{
	const struct hf_rpc_proc *proc = find_proc(program, version, procedure);
	struct hf_rpc_call call = {
		.header = { .program = program->program, .version = version, .procedure = procedure },
		.loop = *caller->loop,
		.transport = caller->transport,
		.reply = reply,
	};
	uint8_t *exact = malloc(args_len ? args_len : 1); /* so that a sanitizer sees a step too far */
	bool ok = hf_addr_parse_with_port(&call.peer, caller->peer) &&
		  hf_addr_parse_with_port(&call.local, caller->local);

	assert(ok && exact);
	(void)ok;
	if (args_len)
		memcpy(exact, args, args_len);
	hf_xdr_in_init(&call.args, exact, args_len);
	if (proc)
		proc->handle(service, &call);
	else
		hf_rpc_reply_error(&call, HF_RPC_PROC_UNAVAIL);
	assert(call.n_ended == 1);
	free(exact);
}
