#include "proto/nsm/nsm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "proto/nsm/internal.h"

#define MAX_REQUEST        8192 /* the longest SM_MON has 2.1 KiB, credentials and verifier 0.8 KiB */
#define DEFAULT_TIMEOUT_NS (5 * HF_NS_PER_S)

static void proc_null(void *service, struct hf_rpc_call *call)
{
	hf_rpc_reply_void(call);
}

/* Would the server monitor this host? It looks nothing up, so the answer costs nothing. */
static void proc_stat(void *service, struct hf_rpc_call *call)
{
	struct hf_nsm *nsm = service;
	struct hf_bytes name = hf_nsm_get_name(hf_rpc_call_args(call));
	/* A client may run on this host. The server's own state number is not the one that its statd would
	 * give. */
	bool is_good = hf_client_name_is_good(name) && !hf_rpc_client_is_own(nsm->options.client, call);

	if (hf_xdr_in_is_ok(hf_rpc_call_args(call)))
		hf_nsm_reply_stat_res(service, call, is_good ? HF_NSM_SUCC : HF_NSM_FAIL);
	else
		hf_rpc_reply_garbage(call);
}

static void proc_simu_crash(void *service, struct hf_rpc_call *call)
{
	struct hf_nsm *nsm = service;
	const struct hf_addr *peer = hf_rpc_call_peer(call);
	bool is_allowed = hf_nsm_is_superuser(nsm, call);
	char text[HF_ADDR_TEXT];

	if (!is_allowed) {
		hf_rpc_call_note(call, HF_NSM_REFUSED);
		hf_rpc_call_uncache(call);
	}
	if (is_allowed)
		hf_recovery_simulate_crash(nsm->options.recovery);
	else if (hf_nsm_is_stranger_new(nsm, peer))
		hf_log_warn("SM_SIMU_CRASH is ignored: it is for root on this host", "peer=%s",
			    hf_addr_format_with_port(peer, text, sizeof(text)));
	hf_rpc_reply_void(call);
}

static const struct hf_rpc_proc procs[] = {
	[HF_NSM_NULL] = { .name = "NULL", .handle = proc_null },
	[HF_NSM_STAT] = { .name = "STAT", .handle = proc_stat },
	[HF_NSM_MON] = { .name = "MON", .handle = hf_nsm_proc_mon, .replay = HF_RPC_REPLAY_UDP },
	[HF_NSM_UNMON] = { .name = "UNMON", .handle = hf_nsm_proc_unmon, .replay = HF_RPC_REPLAY_UDP },
	[HF_NSM_UNMON_ALL] = { .name = "UNMON_ALL",
			       .handle = hf_nsm_proc_unmon_all,
			       .replay = HF_RPC_REPLAY_UDP },
	/* Two calls are two restarts. */
	[HF_NSM_SIMU_CRASH] = { .name = "SIMU_CRASH",
				.handle = proc_simu_crash,
				.replay = HF_RPC_REPLAY_ALWAYS },
	[HF_NSM_NOTIFY] = { .name = "NOTIFY", .handle = hf_nsm_proc_notify },
};

static const struct hf_rpc_version versions[] = {
	{ .version = 1, .n_procs = HF_ARRAY_SIZE(procs), .procs = procs },
};

const struct hf_rpc_program hf_nsm_program = {
	.program = HF_NSM_PROGRAM,
	.name = "status",
	.n_versions = HF_ARRAY_SIZE(versions),
	.versions = versions,
	.max_request = MAX_REQUEST,
	.at_home = true,
};

/* SM_NOTIFY tells the clients of both protocols. */
static void set_teller(struct hf_recovery *recovery, const struct hf_recovery_teller *teller)
{
	hf_recovery_set_teller(recovery, "nlm", teller);
	hf_recovery_set_teller(recovery, "nsm", teller);
}

void hf_nsm_change(struct hf_nsm *nsm, const struct hf_nsm_options *options)
{
	nsm->options.allow_mon = options->allow_mon;
	nsm->options.secure = options->secure;
	nsm->options.timeout_ns = options->timeout_ns ? options->timeout_ns : DEFAULT_TIMEOUT_NS;
}

int hf_nsm_new(struct hf_nsm **nsmp, const struct hf_nsm_options *options)
{
	hf_cleanup(hf_nsm_freep) struct hf_nsm *nsm = calloc(1, sizeof(*nsm));
	struct hf_recovery_teller teller = hf_nsm_teller;
	struct hf_recovery_asker asker = hf_nsm_sign_of_life_asker;
	int r;

	if (!nsm)
		return hf_trace(-ENOMEM);
	nsm->options = *options;
	nsm->clients = hf_recovery_clients(options->recovery);
	hf_loop_random(options->loop, &nsm->key, sizeof(nsm->key));
	hf_loop_random(options->loop, &nsm->n_doubted, sizeof(nsm->n_doubted));
	nsm->delays.recovery = options->recovery;
	hf_list_init(&nsm->tellings);
	hf_list_init(&nsm->signs_of_life);
	hf_list_init(&nsm->lookups);
	hf_list_init(&nsm->callbacks);
	hf_list_init(&nsm->unasked);
	hf_list_init(&nsm->baselines);
	hf_list_init(&nsm->exchanges);
	hf_list_init(&nsm->doubts);
	hf_list_init(&nsm->visitors);
	hf_list_init(&nsm->meetings_by_age);
	hf_nsm_attempts_init(nsm);
	hf_nsm_unproven_init(nsm);
	hf_nsm_change(nsm, options);
	nsm->server_name = strdup(options->server_name);
	if (!nsm->server_name)
		return hf_trace(-ENOMEM);
	r = hf_nsm_watches_init(nsm);
	if (r == 0) {
		hf_nsm_restarts_init(nsm);
		r = hf_nsm_doubts_init(nsm);
	}
	if (r == 0)
		r = hf_nsm_meetings_init(nsm);
	if (r < 0)
		return hf_trace(r);
	teller.user = nsm;
	set_teller(options->recovery, &teller);
	asker.user = nsm;
	if (options->last_contact)
		hf_recovery_set_asker(options->recovery, &asker);
	*nsmp = nsm;
	nsm = NULL;
	return 0;
}

struct hf_nsm *hf_nsm_free(struct hf_nsm *nsm)
{
	if (!nsm)
		return NULL;
	nsm->is_ending = true;
	set_teller(nsm->options.recovery, NULL);
	hf_nsm_signs_of_life_deinit(nsm);
	hf_recovery_set_asker(nsm->options.recovery, NULL);
	hf_nsm_doubts_deinit(nsm);
	hf_nsm_unproven_deinit(nsm);
	hf_nsm_baselines_deinit(nsm);
	hf_nsm_visitors_deinit(nsm);
	hf_nsm_meetings_deinit(nsm);
	hf_nsm_attempts_deinit(nsm);
	hf_nsm_replies_deinit(nsm);
	hf_nsm_tellings_deinit(nsm);
	hf_nsm_lookups_deinit(nsm);
	hf_nsm_callbacks_deinit(nsm);
	hf_nsm_watches_deinit(nsm);
	hf_nsm_restarts_deinit(nsm);
	free(nsm->server_name);
	free(nsm);
	return NULL;
}

void hf_nsm_show_limits(const struct hf_nsm *nsm, struct hf_limit_use uses[HF_N_LIMITS])
{
	hf_nsm_meetings_show_limits(nsm, uses);
	hf_nsm_visitors_show_limits(nsm, uses);
	if (nsm->options.presence)
		hf_nsm_unproven_show_limit(nsm, &uses[HF_LIMIT_TLS_NOTICES]);
}
