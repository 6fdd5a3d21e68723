/*
 * Does a host give any sign of life? The server calls its rpcbind over UDP and over TCP, its
 * status monitor and its lock manager. Any reply is an answer, and so is a connection that the
 * host accepts or refuses. All calls together have options.timeout_ns.
 *
 * The calls leave from whatever address the kernel chooses: the address that the client called
 * may be gone since.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "proto/nsm/internal.h"

#define N_CALLS 4

struct sign_of_life {
	struct hf_link link; /* of nsm->signs_of_life */
	struct hf_nsm *nsm;
	struct sign_call {
		struct sign_of_life *sign;
		struct hf_rpc_pending *pending; /* NULL: not under way */
	} calls[N_CALLS];
	unsigned int n_under_way;
	void (*done)(void *context, bool has_answered);
	void *context;
};

static void sign_free(struct sign_of_life *sign)
{
	hf_link_remove(&sign->link);
	for (size_t i = 0; i < N_CALLS; i++)
		hf_rpc_pending_cancel(sign->calls[i].pending);
	free(sign);
}

/* A call for which the server had no socket or memory counts as answered: a host that was not asked is not
 * silent. */
static bool is_answer(const struct hf_rpc_result *result)
{
	if (!hf_nsm_is_silence(result) || result->outcome == HF_RPC_OUTCOME_NO_ROOM)
		return true;
	return result->transport == HF_RPC_TCP && result->stage == HF_RPC_STAGE_REPLY; /* it connected */
}

static void on_result(void *user, const struct hf_rpc_result *result)
{
	struct sign_call *call = user;
	struct sign_of_life *sign = call->sign;
	void (*done)(void *context, bool has_answered) = sign->done;
	void *context = sign->context;
	bool has_answered = is_answer(result);

	call->pending = NULL;
	if (--sign->n_under_way && !has_answered)
		return;
	sign_free(sign);
	done(context, has_answered);
}

static int call(struct sign_of_life *sign, size_t i, const struct hf_addr *host)
{
	static const struct {
		uint32_t program, version;
		enum hf_rpc_path path;
	} calls[N_CALLS] = {
		{ HF_NSM_RPCBIND, HF_NSM_RPCBIND_VERSION, HF_RPC_UDP_ONLY },
		{ HF_NSM_RPCBIND, HF_NSM_RPCBIND_VERSION, HF_RPC_TCP_ONLY },
		{ HF_NSM_PROGRAM, 1, HF_RPC_UDP_THEN_TCP },
		{ HF_NSM_LOCKD, HF_NSM_LOCKD_VERSION, HF_RPC_UDP_THEN_TCP },
	};
	struct hf_rpc_client *client = sign->nsm->options.client;
	struct hf_rpc_request request = {
		.remote = *host,
		.program = calls[i].program,
		.version = calls[i].version,
		.path = calls[i].path,
		.timeout_ns = sign->nsm->options.timeout_ns,
		.fresh_connection = true,
	};
	int r;

	request.remote.port = calls[i].program == HF_NSM_RPCBIND ? hf_rpc_client_rpcbind_port(client) : 0;
	sign->calls[i].sign = sign;
	r = hf_rpc_client_call(client, &sign->calls[i].pending, &request, on_result, &sign->calls[i]);
	if (r < 0)
		sign->calls[i].pending = NULL;
	else
		sign->n_under_way++;
	return r;
}

static int ask(void *user, struct hf_client *client, void (*done)(void *context, bool has_answered),
	       void *context)
{
	struct hf_nsm *nsm = user;
	struct sign_of_life *sign = calloc(1, sizeof(*sign));
	int r = 0;

	if (!sign)
		return hf_trace(-ENOMEM);
	sign->nsm = nsm;
	sign->done = done;
	sign->context = context;
	hf_list_push_back(&nsm->signs_of_life, &sign->link);
	for (size_t i = 0; i < N_CALLS && r == 0; i++)
		r = call(sign, i, &client->address);
	if (r < 0)
		sign_free(sign);
	return r;
}

static uint64_t last_contact(void *user, const struct hf_client *client, uint64_t now)
{
	const struct hf_nsm_options *options = &((const struct hf_nsm *)user)->options;

	return options->last_contact(options->contact_user, &client->address, now);
}

static uint64_t last_heard(void *user, const struct hf_client *client)
{
	const struct hf_nsm_options *options = &((const struct hf_nsm *)user)->options;

	return options->last_heard(options->contact_user, &client->address);
}

const struct hf_recovery_asker hf_nsm_sign_of_life_asker = {
	.ask = ask,
	.last_contact = last_contact,
	.last_heard = last_heard,
};

void hf_nsm_signs_of_life_deinit(struct hf_nsm *nsm)
{
	struct hf_link *link;

	while ((link = hf_list_first(&nsm->signs_of_life)))
		sign_free(hf_list_entry(link, struct sign_of_life, link));
}
