/*
 * Asks a host about itself: its statd for the state number, and its rpcbind for the ports of
 * statd and lock manager. As a rule both take another port at each start. All questions
 * together have options.timeout_ns. No cached answer is used.
 *
 * If statd has not answered soon, the server connects to rpcbind (rpcbind_connect.c): a host
 * without an rpcbind refuses the connection at once.
 */
#include <stdlib.h>

#include "base/error.h"
#include "proto/nsm/internal.h"

#define CONNECT_AFTER_NS (100 * HF_NS_PER_MS) /* a statd in the LAN has answered by then: no connection */

/* Both known statds look the name up. This one needs no name server. */
#define ANY_NAME "127.0.0.1"

struct hf_nsm_inquiry {
	struct hf_nsm *nsm;
	struct hf_addr host;
	struct hf_addr local;
	struct hf_rpc_pending *statd, *lockd; /* NULL: not under way */
	struct hf_nsm_attempt attempt;
	struct hf_nsm_facts facts;
	hf_nsm_facts_fn fn;
	void *user;
};

static void inquiry_free(struct hf_nsm_inquiry *inquiry)
{
	hf_rpc_pending_cancel(inquiry->statd);
	hf_rpc_pending_cancel(inquiry->lockd);
	hf_nsm_attempt_cancel(&inquiry->attempt);
	free(inquiry);
}

struct hf_nsm_inquiry *hf_nsm_ask_cancel(struct hf_nsm_inquiry *inquiry)
{
	if (inquiry)
		inquiry_free(inquiry);
	return NULL;
}

static void end(struct hf_nsm_inquiry *inquiry)
{
	struct hf_nsm_facts facts = inquiry->facts;
	hf_nsm_facts_fn fn = inquiry->fn;
	void *user = inquiry->user;

	inquiry_free(inquiry);
	fn(user, &facts);
}

/* Without a statd the lock manager's port decides nothing. */
static void end_if_all_is_said(struct hf_nsm_inquiry *inquiry)
{
	if (!inquiry->statd && (!inquiry->lockd || inquiry->facts.statd != HF_NSM_STATD_ANSWERS))
		end(inquiry);
}

static void take_number(struct hf_nsm_facts *facts, const struct hf_rpc_result *result)
{
	uint32_t res = hf_xdr_get_u32(result->results);
	int32_t state = hf_xdr_get_i32(result->results);

	if (!hf_xdr_in_is_ok(result->results) || res != HF_NSM_SUCC)
		return;
	facts->statd = HF_NSM_STATD_ANSWERS;
	facts->state = state;
	facts->statd_port = result->remote.port;
}

static void on_statd(void *user, const struct hf_rpc_result *result)
{
	struct hf_nsm_inquiry *inquiry = user;
	struct hf_nsm_facts *facts = &inquiry->facts;

	inquiry->statd = NULL;
	hf_nsm_attempt_cancel(&inquiry->attempt);
	facts->statd = hf_nsm_is_silence(result) ? HF_NSM_STATD_SILENT : HF_NSM_STATD_ABSENT;
	facts->is_unasked = result->outcome == HF_RPC_OUTCOME_NO_ROOM;
	facts->is_answered =
		result->outcome == HF_RPC_OUTCOME_OK || result->outcome == HF_RPC_OUTCOME_NOT_REGISTERED;
	if (result->outcome == HF_RPC_OUTCOME_OK)
		take_number(facts, result);
	end_if_all_is_said(inquiry);
}

static void on_lockd(void *user, const struct hf_rpc_result *result)
{
	struct hf_nsm_inquiry *inquiry = user;

	inquiry->lockd = NULL;
	inquiry->facts.is_lockd_known =
		result->outcome == HF_RPC_OUTCOME_OK || result->outcome == HF_RPC_OUTCOME_NOT_REGISTERED;
	inquiry->facts.lockd_port = result->outcome == HF_RPC_OUTCOME_OK ? result->remote.port : 0;
	end_if_all_is_said(inquiry);
}

static void on_attempt(struct hf_nsm_attempt *attempt, enum hf_nsm_attempt_answer answer)
{
	struct hf_nsm_inquiry *inquiry = hf_container_of(attempt, struct hf_nsm_inquiry, attempt);

	if (answer != HF_NSM_ATTEMPT_REFUSED)
		return;
	inquiry->facts.statd = HF_NSM_STATD_ABSENT;
	end(inquiry);
}

bool hf_nsm_ask_is_answered(const struct hf_nsm_inquiry *inquiry)
{
	return !inquiry->statd || !inquiry->lockd;
}

static int ask_statd(struct hf_nsm_inquiry *inquiry)
{
	struct hf_nsm *nsm = inquiry->nsm;
	uint8_t args[32];
	struct hf_rpc_request request = {
		.remote = inquiry->host,
		.local = inquiry->local,
		.program = HF_NSM_PROGRAM,
		.version = 1,
		.procedure = HF_NSM_STAT,
		.path = HF_RPC_UDP_THEN_TCP,
		.args = args,
		.timeout_ns = nsm->options.timeout_ns,
		.reserved_port = true,
		.fresh_port = true,
	};
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, args, sizeof(args));
	hf_xdr_put_string(&out, ANY_NAME);
	request.args_len = (size_t)(out.p - args);
	return hf_rpc_client_call(nsm->options.client, &inquiry->statd, &request, on_statd, inquiry);
}

static int ask_lockd(struct hf_nsm_inquiry *inquiry)
{
	struct hf_nsm *nsm = inquiry->nsm;
	struct hf_rpc_request request = {
		.remote = inquiry->host,
		.local = inquiry->local,
		.program = HF_NSM_LOCKD,
		.version = HF_NSM_LOCKD_VERSION,
		.path = HF_RPC_TCP_THEN_UDP,
		.timeout_ns = nsm->options.timeout_ns,
		.fresh_port = true,
		.only_port = true,
	};

	return hf_rpc_client_call(nsm->options.client, &inquiry->lockd, &request, on_lockd, inquiry);
}

struct hf_nsm_inquiry *hf_nsm_ask(struct hf_nsm *nsm, const struct hf_addr *host, const struct hf_addr *local,
				  hf_nsm_facts_fn fn, void *user)
{
	struct hf_nsm_inquiry *inquiry = calloc(1, sizeof(*inquiry));

	if (!inquiry)
		return NULL;
	inquiry->nsm = nsm;
	inquiry->host = *host;
	inquiry->host.port = 0;
	inquiry->local = *local;
	inquiry->local.port = 0;
	inquiry->fn = fn;
	inquiry->user = user;
	hf_nsm_attempt_init(&inquiry->attempt, nsm, on_attempt);
	if (ask_statd(inquiry) < 0 || ask_lockd(inquiry) < 0 ||
	    hf_nsm_attempt_start(&inquiry->attempt, &inquiry->host, &inquiry->local, CONNECT_AFTER_NS) < 0)
		inquiry = hf_nsm_ask_cancel(inquiry);
	return inquiry;
}
