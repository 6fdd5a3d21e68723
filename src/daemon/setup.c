#include "daemon/setup.h"

#include <stdio.h>
#include <unistd.h>

#include "base/macros.h"
#include "daemon/args.h"
#include "daemon/config.h"
#include "loop/loop.h"
#include "proto/nsm/nsm.h"
#include "recovery/recovery.h"
#include "store/store.h"

static void host_name(char out[static HF_SETUP_NAME])
{
	if (gethostname(out, HF_SETUP_NAME) < 0 || !*out)
		snprintf(out, HF_SETUP_NAME, "holdfast");
	out[HF_SETUP_NAME - 1] = '\0';
}

const char *hf_setup_server_name(const struct hf_config *config, char out[static HF_SETUP_NAME])
{
	if (*config->server.name)
		snprintf(out, HF_SETUP_NAME, "%s", config->server.name);
	else if (hf_config_has_cluster(config))
		snprintf(out, HF_SETUP_NAME, "%s", config->cluster.service);
	else
		host_name(out);
	return out;
}

const char *hf_setup_node_name(const struct hf_config *config, char out[static HF_SETUP_NAME])
{
	if (*config->cluster.node)
		snprintf(out, HF_SETUP_NAME, "%s", config->cluster.node);
	else
		host_name(out);
	return out;
}

/* -1 means the shared default. */
static uint64_t window_of(int64_t seconds)
{
	return seconds < 0 ? UINT64_MAX : (uint64_t)seconds * HF_NS_PER_S;
}

/* A connection of a host that is gone ends within half of the time that silent clients have. */
int hf_setup_keepalive(const struct hf_config *config)
{
	int64_t seconds = config->recovery.release_silent_seconds;

	return seconds ? (int)HF_MAX(HF_MIN(seconds / 8, 60), 1) : 0;
}

void hf_setup_nsm(struct hf_nsm_options *options, const struct hf_config *config)
{
	static const enum hf_nsm_allow allows[] = {
		[HF_CONFIG_ALLOW_MON_LOCAL] = HF_NSM_ALLOW_LOCAL,
		[HF_CONFIG_ALLOW_MON_EXPORTS] = HF_NSM_ALLOW_EXPORTS,
		[HF_CONFIG_ALLOW_MON_ANY] = HF_NSM_ALLOW_ANY,
	};

	options->allow_mon = allows[config->nsm.allow_mon];
	options->secure = config->nsm.secure;
	options->timeout_ns = (uint64_t)config->recovery.notify_timeout_ms * HF_NS_PER_MS;
}

void hf_setup_recovery(struct hf_recovery_options *options, const struct hf_config *config,
		       const struct hf_args *args, struct hf_loop *loop, const char *name,
		       const char *store_path)
{
	static const enum hf_store_backend backends[] = {
		[HF_CONFIG_BACKEND_MEMORY] = HF_STORE_BACKEND_MEMORY,
		[HF_CONFIG_BACKEND_LMDB] = HF_STORE_BACKEND_LMDB,
		[HF_CONFIG_BACKEND_POSTGRES] = HF_STORE_BACKEND_POSTGRES,
	};
	static const enum hf_store_durability durabilities[] = {
		[HF_CONFIG_DURABILITY_NONE] = HF_STORE_NONE,
		[HF_CONFIG_DURABILITY_PROCESS] = HF_STORE_PROCESS,
		[HF_CONFIG_DURABILITY_MACHINE] = HF_STORE_MACHINE,
	};
	static const enum hf_recovery_grace_rule graces[] = {
		[HF_CONFIG_GRACE_AUTO] = HF_RECOVERY_GRACE_AUTO,
		[HF_CONFIG_GRACE_ALWAYS] = HF_RECOVERY_GRACE_ALWAYS,
		[HF_CONFIG_GRACE_NEVER] = HF_RECOVERY_GRACE_NEVER,
	};

	*options = (struct hf_recovery_options){
		.loop = loop,
		.backend = backends[config->store.backend],
		.durability = durabilities[config->store.lock_durability],
		.store_path = store_path,
		.postgres = config->store.postgres,
		.server_name = name,
		.window_ns = window_of(config->recovery.window_seconds),
		.protocols = {
			{ "nlm", .is_told = true, window_of(config->recovery.nlm_grace_seconds) },
			{ "nsm", .is_told = true, window_of(config->recovery.nlm_grace_seconds) },
			{ "smb", .is_told = false, window_of(config->recovery.smb_durable_seconds) },
		},
		.n_protocols = 3,
		.grace = graces[config->recovery.grace],
		.early_end = config->recovery.early_end,
		.notify_timeout_ns = (uint64_t)config->recovery.notify_timeout_ms * HF_NS_PER_MS,
		.notify_parallel = (size_t)config->recovery.notify_parallel,
		.notify_retry_ns = (uint64_t)config->recovery.notify_retry_seconds * HF_NS_PER_S,
		.max_clients = (size_t)config->recovery.max_clients,
		.max_clients_per_address = (size_t)config->recovery.max_clients_per_address,
		.release_silent_ns = (uint64_t)config->recovery.release_silent_seconds * HF_NS_PER_S,
		.continues = config->recovery.after_crash == HF_CONFIG_AFTER_CRASH_CONTINUE,
		.clear_store = args->clear_store,
		.measures = config->metrics.enabled,
	};
}
