#include "proto/nlm/nlm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "proto/nlm/durable_reply.h"
#include "proto/nlm/internal.h"

#define MAX_REQUEST  8192
#define FULL_QUIET_S 60 /* between two lines about locks that are too many */

/* The tables */

static void proc_null(void *service, struct hf_rpc_call *call)
{
	hf_rpc_reply_void(call);
}

/* The server calls no TEST_MSG, LOCK_MSG, CANCEL_MSG or UNLOCK_MSG, and awaits none of their results.
 * granted.c has GRANTED_RES. */
static void proc_ignore(void *service, struct hf_rpc_call *call)
{
	hf_rpc_reply_void(call);
}

/* This server waits for no lock: a peer that grants it one is mistaken, and must take the lock back. */
static void run_granted(struct hf_nlm_op *op)
{
	hf_nlm_reply(op, HF_NLM_DENIED);
}

static void get_share(struct hf_nlm_args *args, uint32_t version, struct hf_xdr_in *in)
{
	hf_nlm_get_share(args, in);
}

static void take_notify(struct hf_nlm_args *args, const struct hf_nlm_notify *notify)
{
	*args = (struct hf_nlm_args){ .caller = notify->name, .state = notify->state };
}

static void get_notify(struct hf_nlm_args *args, uint32_t version, struct hf_xdr_in *in)
{
	struct hf_nlm_notify notify;

	hf_nlm_get_notify(&notify, in);
	take_notify(args, &notify);
}

static void get_sm_notify(struct hf_nlm_args *args, uint32_t version, struct hf_xdr_in *in)
{
	struct hf_nlm_notify notify;

	hf_nlm_get_sm_notify(&notify, in);
	take_notify(args, &notify);
}

static const struct hf_nlm_kind kinds[] = {
	[HF_NLM_TEST] = { hf_nlm_get_test, hf_nlm_run_test },
	[HF_NLM_LOCK] = { hf_nlm_get_lock, hf_nlm_run_lock, .takes = true },
	[HF_NLM_CANCEL] = { hf_nlm_get_cancel, hf_nlm_run_cancel, .gives_up = true },
	[HF_NLM_UNLOCK] = { hf_nlm_get_unlock, hf_nlm_run_unlock, .gives_up = true },
	[HF_NLM_GRANTED] = { hf_nlm_get_test, run_granted },
	[HF_NLM_TEST_MSG] = { hf_nlm_get_test, hf_nlm_run_test, .is_msg = true },
	[HF_NLM_LOCK_MSG] = { hf_nlm_get_lock, hf_nlm_run_lock, .takes = true, .is_msg = true },
	[HF_NLM_CANCEL_MSG] = { hf_nlm_get_cancel, hf_nlm_run_cancel, .gives_up = true, .is_msg = true },
	[HF_NLM_UNLOCK_MSG] = { hf_nlm_get_unlock, hf_nlm_run_unlock, .gives_up = true, .is_msg = true },
	[HF_NLM_GRANTED_MSG] = { hf_nlm_get_test, run_granted, .is_msg = true },
	[HF_NLM_SM_NOTIFY] = { get_sm_notify, hf_nlm_run_sm_notify, HF_NLM_NO_RES },
	[HF_NLM_SHARE] = { get_share, hf_nlm_run_share, HF_NLM_SHARE_RES, .takes = true },
	[HF_NLM_UNSHARE] = { get_share, hf_nlm_run_unshare, HF_NLM_SHARE_RES, .gives_up = true },
	[HF_NLM_NM_LOCK] = { hf_nlm_get_lock, hf_nlm_run_lock, .takes = true, .is_unwatched = true },
	[HF_NLM_FREE_ALL] = { get_notify, hf_nlm_run_free_all, HF_NLM_NO_RES },
};

/* A run that starts over, because exports are gone, and has not stored that: if it is killed, the next one
 * may go on with all that is stored. No client may believe that it has given something up by then, or that it
 * was refused for good. */
static bool starts_over(const struct hf_nlm_op *op)
{
	return HF_UNLIKELY(hf_recovery_phase(op->nlm->options.recovery) == HF_PHASE_LOADING) &&
	       (op->kind->takes || op->kind->gives_up);
}

/* Decodes the call, and runs the operation. */
static HF_ALWAYS_INLINE void serve(struct hf_nlm *nlm, struct hf_rpc_call *call,
				   const struct hf_nlm_kind *kind)
{
	struct hf_xdr_in *in = hf_rpc_call_args(call);
	struct hf_nlm_op op; /* most of it is set when it is known */

	op.nlm = nlm;
	op.call = call;
	op.kind = kind;
	op.repeat = NULL;
	op.version = hf_rpc_call_header(call)->version;
	op.stage = HF_NLM_DECODED;
	op.is_on_heap = op.is_impatient = op.is_number_checked = op.has_met_host = false;
	op.client = NULL;
	op.target.handle = op.target.oh = (struct hf_bytes){ 0 };
	if (HF_UNLIKELY(kind->is_msg) && hf_nlm_msg_is_repeat(nlm, call, &op.repeat))
		return;
	kind->decode(&op.args, op.version, in);
	if (HF_UNLIKELY(!hf_xdr_in_is_ok(in)))
		hf_nlm_op_reply_garbage(&op);
	else if (starts_over(&op))
		hf_nlm_op_put_off(&op);
	else
		kind->run(&op);
}

void hf_nlm_serve(void *service, struct hf_rpc_call *call)
{
	serve(service, call, &kinds[hf_rpc_call_header(call)->procedure]);
}

/* The most frequent procedures have functions of their own: the compiler knows the kind there, and need not
 * call what the kind has through pointers. */

static void serve_lock(void *service, struct hf_rpc_call *call)
{
	serve(service, call, &kinds[HF_NLM_LOCK]);
}

static void serve_unlock(void *service, struct hf_rpc_call *call)
{
	serve(service, call, &kinds[HF_NLM_UNLOCK]);
}

/* A LOCK that was delayed on its way must not lock again after the UNLOCK. Over TCP there is no such delay.
 */
#define COMMON_PROCS                                                                                 \
	[HF_NLM_NULL] = { .name = "NULL", .handle = proc_null },                                     \
	[HF_NLM_TEST] = { .name = "TEST", .handle = hf_nlm_serve },                                  \
	[HF_NLM_LOCK] = { .name = "LOCK", .handle = serve_lock, .replay = HF_RPC_REPLAY_UDP },       \
	[HF_NLM_CANCEL] = { .name = "CANCEL", .handle = hf_nlm_serve, .replay = HF_RPC_REPLAY_UDP }, \
	[HF_NLM_UNLOCK] = { .name = "UNLOCK", .handle = serve_unlock, .replay = HF_RPC_REPLAY_UDP }, \
	[HF_NLM_GRANTED] = { .name = "GRANTED", .handle = hf_nlm_serve },                            \
	[HF_NLM_TEST_MSG] = { .name = "TEST_MSG", .handle = hf_nlm_serve },                          \
	[HF_NLM_LOCK_MSG] = { .name = "LOCK_MSG", .handle = hf_nlm_serve },                          \
	[HF_NLM_CANCEL_MSG] = { .name = "CANCEL_MSG", .handle = hf_nlm_serve },                      \
	[HF_NLM_UNLOCK_MSG] = { .name = "UNLOCK_MSG", .handle = hf_nlm_serve },                      \
	[HF_NLM_GRANTED_MSG] = { .name = "GRANTED_MSG", .handle = hf_nlm_serve },                    \
	[HF_NLM_TEST_RES] = { .name = "TEST_RES", .handle = proc_ignore },                           \
	[HF_NLM_LOCK_RES] = { .name = "LOCK_RES", .handle = proc_ignore },                           \
	[HF_NLM_CANCEL_RES] = { .name = "CANCEL_RES", .handle = proc_ignore },                       \
	[HF_NLM_UNLOCK_RES] = { .name = "UNLOCK_RES", .handle = proc_ignore },                       \
	[HF_NLM_GRANTED_RES] = { .name = "GRANTED_RES", .handle = hf_nlm_proc_granted_res },         \
	[HF_NLM_SM_NOTIFY] = { .name = "SM_NOTIFY", .handle = hf_nlm_serve }

static const struct hf_rpc_proc old_procs[] = {
	COMMON_PROCS,
};

static const struct hf_rpc_proc procs[] = {
	COMMON_PROCS,
	[HF_NLM_SHARE] = { .name = "SHARE", .handle = hf_nlm_serve, .replay = HF_RPC_REPLAY_ALWAYS },
	[HF_NLM_UNSHARE] = { .name = "UNSHARE", .handle = hf_nlm_serve, .replay = HF_RPC_REPLAY_ALWAYS },
	[HF_NLM_NM_LOCK] = { .name = "NM_LOCK", .handle = hf_nlm_serve, .replay = HF_RPC_REPLAY_UDP },
	/* A copy that comes late must not free what was taken since. */
	[HF_NLM_FREE_ALL] = { .name = "FREE_ALL", .handle = hf_nlm_serve, .replay = HF_RPC_REPLAY_UDP },
};

static const struct hf_rpc_version versions[] = {
	{ .version = 1, .n_procs = HF_ARRAY_SIZE(old_procs), .procs = old_procs },
	{ .version = 3, .n_procs = HF_ARRAY_SIZE(procs), .procs = procs },
	{ .version = 4, .n_procs = HF_ARRAY_SIZE(procs), .procs = procs },
};

const struct hf_rpc_program hf_nlm_program = {
	.program = HF_NLM_PROGRAM,
	.name = "nlockmgr",
	.n_versions = HF_ARRAY_SIZE(versions),
	.versions = versions,
	.max_request = MAX_REQUEST,
	.at_home = true,
};

/* Making and freeing */

static int allocate(struct hf_nlm *nlm)
{
	int r = hf_nlm_files_init(nlm, nlm->options.files);

	if (r == 0)
		r = hf_nlm_renames_init(nlm);
	if (r == 0)
		r = hf_nlm_msgs_init(nlm);
	if (r == 0)
		r = hf_hashtable_init(&nlm->owners);
	if (r == 0)
		r = hf_hashtable_init(&nlm->grants_by_id);
	if (r == 0)
		r = hf_hashtable_init(&nlm->grants_by_cookie);
	return r;
}

int hf_nlm_new(struct hf_nlm **nlmp, const struct hf_nlm_options *options)
{
	hf_cleanup(hf_nlm_freep) struct hf_nlm *nlm = calloc(1, sizeof(*nlm));
	int r;

	if (!nlm)
		return hf_trace(-ENOMEM);
	nlm->options = *options;
	nlm->full[0] = nlm->full[1] = (struct hf_log_limit)HF_LOG_LIMIT(FULL_QUIET_S);
	nlm->locks = hf_recovery_locks(options->recovery);
	nlm->clients = hf_recovery_clients(options->recovery);
	nlm->server_name = strdup(options->server_name);
	nlm->unmet = (struct hf_log_limit)HF_LOG_LIMIT(FULL_QUIET_S);
	nlm->ports = (struct hf_log_limit)HF_LOG_LIMIT(FULL_QUIET_S);
	nlm->delays.recovery = options->recovery;
	/* What cannot fail comes first: hf_nlm_free() ends all of it, however little was allocated. */
	hf_nlm_await_init(nlm);
	hf_nlm_batches_init(nlm);
	hf_nlm_ops_init(nlm);
	hf_nlm_grants_init(nlm);
	hf_nlm_transport_init(nlm);
	hf_loop_random(options->loop, &nlm->key, sizeof(nlm->key));
	hf_lock_client_init(nlm->locks, &nlm->stranger);
	r = nlm->server_name ? allocate(nlm) : -ENOMEM;
	if (r < 0)
		return hf_trace(r);
	hf_nlm_look_at_demands(nlm);
	*nlmp = nlm;
	nlm = NULL;
	return 0;
}

void hf_nlm_set_monitor(struct hf_nlm *nlm, struct hf_nsm *monitor)
{
	nlm->monitor = monitor;
}

void hf_nlm_set_usage(struct hf_nlm *nlm, struct hf_usage *usage)
{
	nlm->usage = usage;
}

struct hf_nlm *hf_nlm_free(struct hf_nlm *nlm)
{
	if (!nlm)
		return NULL;
	hf_nlm_transport_deinit(nlm);
	hf_delays_end(&nlm->delays, NULL); /* the RPC server owns the calls */
	hf_nlm_batches_deinit(nlm);
	hf_nlm_grants_deinit(nlm);
	hf_nlm_await_deinit(nlm);
	hf_nlm_ops_deinit(nlm);
	hf_nlm_msgs_deinit(nlm);
	hf_nlm_locals_deinit(&nlm->locals);
	hf_nlm_files_deinit(nlm);
	hf_nlm_renames_deinit(nlm);
	hf_client_unref(nlm->recent);
	free(nlm->server_name);
	free(nlm);
	return NULL;
}
