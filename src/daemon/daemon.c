#include "daemon/daemon.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/keys.h"
#include "base/error.h"
#include "base/log.h"
#include "client/client.h"
#include "cluster/cluster.h"
#include "daemon/args.h"
#include "daemon/certificates.h"
#include "daemon/config.h"
#include "daemon/loop_threads.h"
#include "daemon/files.h"
#include "daemon/listen.h"
#include "daemon/manager.h"
#include "daemon/cluster_node.h"
#include "daemon/operator.h"
#include "daemon/ports_file.h"
#include "daemon/process.h"
#include "daemon/reload.h"
#include "daemon/sandbox.h"
#include "daemon/setup.h"
#include "daemon/standby.h"
#include "daemon/state_dir.h"
#include "export/export.h"
#include "export/export_table.h"
#include "export/local.h"
#include "export/seal.h"
#include "export/usage.h"
#include "lock/lock.h"
#include "loop/loop.h"
#include "loop/work.h"
#include "proto/nlm/nlm.h"
#include "proto/nsm/nsm.h"
#include "proto/portmap/portmap.h"
#include "recovery/recovery.h"
#include "rpc/client.h"
#include "rpc/presence.h"
#include "rpc/server.h"
#include "tls/tls.h"

#define MAX_LOOPS    16
#define MAX_PROGRAMS 8
#define OTHER_FILES  256   /* descriptors that are not connections */
#define MAX_CONTACTS 65536 /* addresses; 80 bytes and a part of a hash table each */
/* Threads that are not for NFS: two of the store, its connection, two name lookups, closing, a reload. */
#define OTHER_WORKS 7
#define ERROR_SIZE  512
#define DRAIN_NS    HF_NS_PER_S /* for calls under way when the server stops */

static_assert(HF_CONFIG_MAX_ITEMS <= HF_PORTMAP_MAX_LISTEN,
	      "the port mapper has all addresses of the server");

struct daemon {
	struct hf_config *config; /* as at the start */
	const struct hf_args *args;
	struct hf_state_dir *state_dir;
	struct hf_cluster_node *node; /* NULL: no cluster */
	struct hf_cluster *cluster;   /* its own; NULL: no cluster */
	struct hf_loop *loop;         /* the home loop */
	struct hf_loop_threads *loop_threads;
	char name[HF_SETUP_NAME]; /* the name that peers know the server by */
	struct hf_rpc_client *client;
	struct hf_file_service *files;
	struct hf_reload *reload;
	struct hf_recovery *recovery;
	struct hf_nlm *nlm;
	struct hf_nsm *nsm;
	struct hf_usage *usage; /* NULL: calls were never counted by client */
	struct hf_tls *tls;
	struct hf_rpc_presence *presence;
	struct hf_rpc_server *rpc;
	struct hf_rpc_lane *home;
	struct hf_portmap *portmap;
	struct hf_api *api; /* NULL: off */
	struct hf_manager manager;
	/* The programs to register with the port mapper. */
	const struct hf_rpc_program *programs[MAX_PROGRAMS];
	size_t n_programs;
	struct hf_ports ports;
	unsigned int netids; /* the transports that the server listens on */
	int result;
	bool is_serving;
	bool is_reload_refused; /* the last one */
	bool is_stopping;
	bool is_told_to_stop; /* by a signal */
	bool has_failed;      /* the store could not be opened; another node may be able to */
	bool stands_by;       /* the service ends here, and the process goes on as a standby */
};

/* The service, and with it everything above, is built anew in each term of a cluster. These stay. */
static void forget_service(struct daemon *d)
{
	struct daemon fresh = {
		.config = d->config,
		.args = d->args,
		.state_dir = d->state_dir,
		.node = d->node,
		.cluster = d->cluster,
		.ports = d->ports,
	};

	memcpy(fresh.name, d->name, sizeof(fresh.name));
	*d = fresh;
}

/* Stopping: stop the API, finish the calls under way, and in a cluster give up the addresses; then withdraw
 * from the port mapper, and end the loop */

static void on_saved(void *user)
{
	struct daemon *d = user;

	hf_loop_stop(d->loop);
}

static void on_withdrawn(void *user)
{
	struct daemon *d = user;

	hf_rpc_lane_close(d->home);
	hf_recovery_stop(d->recovery, on_saved, d);
}

static void on_drained(void *user)
{
	struct daemon *d = user;

	if (d->cluster)
		hf_cluster_withdraw(d->cluster);
	else
		hf_portmap_stop(d->portmap, on_withdrawn, d);
}

static void begin_stop(struct daemon *d)
{
	if (d->is_stopping) {
		hf_loop_stop(d->loop); /* a second signal stops at once */
		return;
	}
	d->is_stopping = true;
	hf_reload_stop(d->reload);
	/* A node that hands over lives on as a standby. The manager would kill it after the time for a stop.
	 */
	if (!d->stands_by)
		hf_manager_tell_stopping();
	hf_api_stop(d->api);
	hf_rpc_server_drain(d->rpc, DRAIN_NS, on_drained, d);
}

/* Afterwards. A signal to stop counts, whatever ends the service then. */
static void stand_by(struct daemon *d)
{
	d->stands_by = d->cluster && !d->is_told_to_stop;
}

/* Stop at once, as if killed: the locks belong to the other run now. */
static void on_store_taken(void *user)
{
	struct daemon *d = user;

	stand_by(d);
	d->result = d->cluster ? 0 : -ESTALE;
	hf_loop_stop(d->loop);
}

/* What the service manager and the log say */

static size_t count_exports(struct daemon *d)
{
	struct hf_export_list list = { 0 };
	size_t n = 0;

	if (d->config->exports.n && hf_exports_list(hf_file_service_nlm(d->files).exports, &list) == 0)
		n = list.n;
	hf_export_list_clear(&list);
	return n;
}

static void tell_status(void *user, char out[static HF_MANAGER_STATUS])
{
	struct daemon *d = user;
	size_t n_exports = count_exports(d), len;
	struct hf_portmap_counts mappings;
	struct hf_lock_counters locks;
	struct hf_grace_info grace;

	hf_lock_count(hf_recovery_locks(d->recovery), &locks);
	hf_recovery_grace_info(d->recovery, &grace);
	if (n_exports)
		snprintf(out, HF_MANAGER_STATUS, "serving %zu export%s", n_exports,
			 n_exports == 1 ? "" : "s");
	else
		snprintf(out, HF_MANAGER_STATUS, "no export is configured: clients can mount nothing");
	len = strlen(out);
	len += (size_t)snprintf(out + len, HF_MANAGER_STATUS - len,
				"; port %u, %zu clients, %" PRIu64 " locks", d->ports.rpc,
				hf_clients_count(hf_recovery_clients(d->recovery)), locks.locks);
	hf_portmap_counts(d->portmap, &mappings);
	if (hf_portmap_role(d->portmap) == HF_PORTMAP_REGISTERS && mappings.registered < mappings.wanted)
		len += (size_t)snprintf(out + len, HF_MANAGER_STATUS - len,
					"; %zu of %zu registrations are missing at rpcbind: see the log",
					mappings.wanted - mappings.registered, mappings.wanted);
	if (d->is_reload_refused)
		len += (size_t)snprintf(out + len, HF_MANAGER_STATUS - len,
					"; the last reload was refused: see the log");
	if (grace.is_active)
		snprintf(out + len, HF_MANAGER_STATUS - len,
			 "; grace for %" PRIu64 " s more, %" PRIu64 " locks unreclaimed",
			 grace.ends_in_ns / HF_NS_PER_S, grace.n_unreclaimed);
}

static void warn_without_exports(const struct daemon *d)
{
	if (!d->config->exports.n)
		hf_log_warn("no export is configured: clients can mount nothing, and the server is the lock "
			    "service of "
			    "another NFS server on this host. To export a directory, add it to \"exports\" "
			    "in the "
			    "configuration, and restart",
			    "config=%s", d->args->config_file ? d->args->config_file : "-");
}

/* The clients hear of a restart, and everything is served. */
static void begin_to_serve(struct daemon *d)
{
	d->result = hf_recovery_start(d->recovery);
	if (d->result < 0) {
		hf_log_error("cannot tell the clients of the restart", "error=%s", strerror(-d->result));
		begin_stop(d);
		return;
	}
	if (d->api)
		hf_api_set_ready(d->api);
	hf_log_info("serving", "version=%s port=%u exports=%zu", HF_VERSION, d->ports.rpc,
		    d->config->exports.n);
	warn_without_exports(d);
	d->is_serving = true;
	hf_manager_tell_ready(&d->manager);
}

/* The cluster */

static void on_cluster_event(void *user, enum hf_cluster_event event)
{
	struct daemon *d = user;

	switch (event) {
	case HF_CLUSTER_DEPOSED:
		stand_by(d);
		hf_loop_stop(d->loop);
		break;
	case HF_CLUSTER_HANDS_OVER:
		if (!d->is_stopping) {
			hf_log_info("hands the service over", "service=%s", d->config->cluster.service);
			stand_by(d);
			begin_stop(d);
		}
		break;
	case HF_CLUSTER_REFUSED:
		d->result = -EPERM;
		hf_loop_stop(d->loop);
		break;
	case HF_CLUSTER_PRESENT:
		if (!d->is_stopping)
			begin_to_serve(d);
		break;
	case HF_CLUSTER_REPORTED:
		if (d->api && !d->is_stopping)
			hf_api_tell_takeover(d->api);
		break;
	case HF_CLUSTER_WITHDRAWN:
		if (d->is_stopping)
			hf_portmap_stop(d->portmap, on_withdrawn, d);
		break;
	case HF_CLUSTER_CLAIMED:
		break;
	}
}

static void tell_cluster(struct daemon *d)
{
	const struct hf_cluster_term term = {
		.epoch = hf_recovery_epoch(d->recovery),
		.state = hf_recovery_state(d->recovery),
		.continues = hf_recovery_continues(d->recovery),
		.port = d->ports.rpc,
	};

	if (d->cluster)
		hf_cluster_serves(d->cluster, &term);
}

/* Counting by client. The table stays when it is turned off: a call on another loop may still use it, and
 * what was counted is shown again when it is turned on. */

static void set_usage(struct daemon *d, struct hf_usage *usage)
{
	hf_file_service_set_usage(d->files, usage);
	hf_nlm_set_usage(d->nlm, usage);
	if (d->api)
		hf_api_set_usage(d->api, usage);
}

static void count_per_client(struct daemon *d)
{
	bool is_on = d->config->metrics.per_client && d->config->metrics.enabled;
	int r = 0;

	if (is_on && !d->usage)
		r = hf_usage_new(&d->usage, 1 + hf_loop_threads_size(d->loop_threads), HF_USAGE_MAX_PAIRS,
				 d->loop);
	if (r < 0)
		hf_log_error("calls are not counted by client. Reload to try again", "error=%s",
			     strerror(-r));
	set_usage(d, is_on ? d->usage : NULL);
}

static uint64_t tls_grace(const struct daemon *d)
{
	return (uint64_t)d->config->tls.grace_seconds * HF_NS_PER_S;
}

static uint64_t slow_ns(const struct daemon *d)
{
	return (uint64_t)d->config->log.slow_ms * HF_NS_PER_MS;
}

/* Signals */

static void on_stop(void *user, int signum)
{
	struct daemon *d = user;

	hf_log_info("stopping", "signal=%s", sigabbrev_np(signum));
	d->is_told_to_stop = true;
	/* A hand-over is under way, and is not cut off: the first signal only ends the process after it. */
	if (d->is_stopping && d->stands_by) {
		d->stands_by = false;
		hf_manager_tell_stopping();
		return;
	}
	d->stands_by = false;
	begin_stop(d);
}

static void reload(void *user)
{
	struct daemon *d = user;

	hf_reload_ask(d->reload);
}

static void on_reload(void *user, int signum)
{
	reload(user);
}

static void on_reload_begins(void *user)
{
	struct daemon *d = user;

	if (d->is_serving)
		hf_manager_tell_reloading();
}

/* The next term of a cluster has these values, too. */
static void on_reload_changes(void *user, struct hf_config *config)
{
	struct daemon *d = user;
	struct hf_recovery_options recovery;
	struct hf_nsm_options nsm = { 0 };

	hf_config_take_live(d->config, config);
	hf_setup_recovery(&recovery, d->config, d->args, d->loop, d->name, d->config->server.state_dir);
	hf_rpc_server_set_keepalive(d->rpc, hf_setup_keepalive(d->config));
	hf_recovery_change(d->recovery, &recovery);
	hf_setup_nsm(&nsm, d->config);
	hf_nsm_change(d->nsm, &nsm);
	hf_rpc_presence_set_grace(d->presence, tls_grace(d));
	hf_rpc_server_set_slow(d->rpc, slow_ns(d));
	count_per_client(d);
	if (d->cluster)
		hf_cluster_set_automatic(d->cluster, d->config->cluster.automatic);
}

static void on_reload_ended(void *user, const struct hf_api_reload_outcome *outcome)
{
	struct daemon *d = user;

	d->is_reload_refused = !outcome->is_loaded;
	if (d->api)
		hf_api_tell_reload(d->api, outcome);
	hf_portmap_check(d->portmap);
	hf_recovery_exports_changed(d->recovery);
	hf_nlm_exports_changed(d->nlm);
	if (d->is_serving)
		hf_manager_tell_ready(&d->manager);
}

/* In a cluster: the other nodes compare their exports with these, and the next term of this node serves
 * them. */
static int on_exports_taken(void *user, struct hf_config *config)
{
	struct daemon *d = user;
	struct hf_config_exports before = d->config->exports;
	hf_cleanup(hf_freep) char *exports = hf_cluster_node_describe_exports(config);

	if (!exports || hf_cluster_set_exports(d->cluster, exports) < 0) {
		hf_log_error("the other nodes cannot be told of the new exports. Reload again", "error=%s",
			     strerror(ENOMEM));
		return 0;
	}
	d->config->exports = config->exports;
	config->exports = before;
	return 0;
}

/* holdfast(1) on this host believes only the certificates in api.address. */
static void on_api_keys_come(void *user, const struct hf_api_keys *keys)
{
	struct daemon *d = user;
	int r = hf_ports_file_announce(d->state_dir, &d->ports, hf_api_keys_pin(keys));

	if (r < 0)
		hf_log_warn("cannot write api.address: holdfast(1) will not know the API's new certificate. "
			    "Reload again",
			    "state_dir=%s error=%s", d->config->server.state_dir, strerror(-r));
}

static bool on_api_keys(void *user, struct hf_api_keys *keys)
{
	struct daemon *d = user;

	if (!hf_certificates_take_api(d->api, keys))
		return false;
	if (d->api)
		hf_api_pin(d->api, d->ports.api_pin);
	return true;
}

static void on_tokens(void *user, const struct hf_api_tokens *tokens)
{
	struct daemon *d = user;

	if (d->api)
		hf_api_set_tokens(d->api, tokens);
}

static int make_reload(struct daemon *d)
{
	const struct hf_reload_options options = {
		.loop = d->loop,
		.args = d->args,
		.started = d->config,
		.files = d->files,
		.tls = d->tls,
		.begins = on_reload_begins,
		.taken = d->cluster ? on_exports_taken : NULL,
		.change = on_reload_changes,
		.announce = on_api_keys_come,
		.take_api = on_api_keys,
		.take_tokens = on_tokens,
		.ended = on_reload_ended,
		.user = d,
	};

	return hf_reload_new(&d->reload, &options);
}

/* A reload waits until the loop runs. Without a cluster, a signal to stop before that ends the process, as a
 * crash would. */
static int catch_signals(struct daemon *d)
{
	signal(SIGPIPE, SIG_IGN);
	/* Exceeding a file size limit becomes a write error and does not kill the process. */
	signal(SIGXFSZ, SIG_IGN);
	/* A stop waits for workers that look up a name: bound that time. */
	setenv("RES_OPTIONS", "timeout:2 attempts:1", 0);
	return hf_trace(hf_loop_on_signal(d->loop, SIGHUP, on_reload, d));
}

static int catch_stop(struct daemon *d)
{
	int r = hf_loop_on_signal(d->loop, SIGTERM, on_stop, d);

	if (r == 0)
		r = hf_loop_on_signal(d->loop, SIGINT, on_stop, d);
	return hf_trace(r);
}

/* Loops and the RPC server on them */

static void set_lease(struct daemon *d, const struct hf_lease *lease)
{
	hf_loop_set_lease(d->loop, lease);
	for (size_t i = 0; i < hf_loop_threads_size(d->loop_threads); i++)
		hf_loop_set_lease(hf_loop_threads_loop(d->loop_threads, i), lease);
}

static int make_loops(struct daemon *d)
{
	size_t n = HF_MIN(hf_process_count_cores(), (size_t)MAX_LOOPS);
	int r;

	r = hf_loop_new(&d->loop);
	if (r < 0)
		return hf_trace(r);
	hf_manager_init(&d->manager, d->loop, tell_status, d);
	r = hf_loop_threads_new(&d->loop_threads, n - 1);
	if (r < 0)
		return hf_trace(r);
	if (d->cluster)
		set_lease(d, hf_cluster_lease(d->cluster));
	return hf_trace(hf_rpc_client_new(&d->client, d->loop, NULL));
}

/* Locks and recovery: before the first call, the store is loaded and the state number durable */

static void send_datagram(void *user, const struct hf_addr *local, const struct hf_addr *to,
			  struct hf_bytes message)
{
	struct daemon *d = user;

	hf_rpc_server_send(d->rpc, local, to, message);
}

static uint64_t last_contact(void *user, const struct hf_addr *peer, uint64_t now)
{
	struct daemon *d = user;

	return hf_rpc_server_last_contact(d->rpc, peer, now);
}

static uint64_t last_heard(void *user, const struct hf_addr *peer)
{
	struct daemon *d = user;

	return hf_rpc_server_last_heard(d->rpc, peer);
}

static void show_used_exports(void *user, void (*fn)(void *context, uint32_t number), void *context)
{
	struct daemon *d = user;

	hf_recovery_show_used_exports(d->recovery, fn, context);
	if (d->nlm)
		hf_nlm_show_used_exports(d->nlm, fn, context);
}

static int make_locks(struct daemon *d)
{
	struct hf_recovery_options options;
	struct hf_recovery_exports exports = hf_file_service_exports(d->files);
	struct hf_nlm_files files = hf_file_service_nlm(d->files);
	struct hf_nlm_options nlm = { .loop = d->loop, .client = d->client, .server_name = d->name };
	struct hf_nsm_options nsm = { .loop = d->loop, .client = d->client, .server_name = d->name };
	char owner[HF_NODE_ID];
	int r;

	hf_setup_recovery(&options, d->config, d->args, d->loop, d->name, d->config->server.state_dir);
	if (d->cluster) {
		hf_cluster_owner(d->cluster, owner);
		hf_cluster_known(d->cluster, &options.known_epoch, &options.known_state);
		options.owner = owner;
		options.server_name = d->config->cluster.service;
		nlm.store_comes_back = true;
	}
	options.store_taken = on_store_taken;
	options.store_taken_user = d;
	nlm.secret = hf_file_service_key_print(d->files);
	/* Without exports the handles belong to another NFS server, and this server is its lock and status
	 * service. */
	if (d->config->exports.n) {
		options.exports = &exports;
		options.handle_key = hf_file_service_key_print(d->files);
		options.outside = &hf_local_outside;
		options.outside_context = hf_file_service_local(d->files);
		nlm.files = &files;
	}
	r = hf_recovery_new(&d->recovery, &options);
	if (r < 0)
		return r;
	hf_file_service_set_locks(d->files, hf_recovery_locks(d->recovery));
	hf_file_service_table(d->files)->show_used = show_used_exports;
	hf_file_service_table(d->files)->show_used_user = d;
	nlm.recovery = nsm.recovery = d->recovery;
	nlm.presence = nsm.presence = d->presence;
	nlm.send = send_datagram;
	nlm.send_user = d;
	hf_setup_nsm(&nsm, d->config);
	nsm.is_export_client = hf_export_table_has_client;
	nsm.demands_tls = hf_export_table_demands_tls;
	nsm.user = hf_file_service_table(d->files);
	nsm.last_contact = last_contact;
	nsm.last_heard = last_heard;
	nsm.contact_user = d;
	r = hf_nlm_new(&d->nlm, &nlm);
	if (r == 0)
		r = hf_nsm_new(&d->nsm, &nsm);
	if (r == 0)
		hf_nlm_set_monitor(d->nlm, d->nsm);
	return hf_trace(r);
}

static int serve(void *user, const struct hf_rpc_program *program, void *service)
{
	struct daemon *d = user;

	d->programs[d->n_programs++] = program;
	return hf_rpc_server_add_program(d->rpc, program, service);
}

/* Without exports another server provides NFS and MOUNT, and its registration at the port mapper stays. */
static int serve_unnamed(void *user, const struct hf_rpc_program *program, void *service)
{
	struct daemon *d = user;

	return hf_rpc_server_add_program(d->rpc, program, service);
}

static int make_tls(struct daemon *d)
{
	struct hf_tls_keys *keys = NULL;
	int r = hf_tls_new(&d->tls);

	if (r == 0)
		r = hf_certificates_load(&keys, d->config);
	if (r == 0)
		hf_certificates_take(d->tls, keys);
	if (r == 0)
		r = hf_rpc_presence_new(&d->presence, d->loop, tls_grace(d));
	return hf_trace(r);
}

static int make_rpc(struct daemon *d)
{
	struct hf_rpc_limits limits = hf_rpc_default_limits;
	size_t files = hf_process_raise_file_limit();
	struct hf_rpc_lane *lane;
	int r;

	limits.max_connections =
		HF_MIN(limits.max_connections, files > 2 * OTHER_FILES ? files - OTHER_FILES : files / 2);
	limits.max_contacts = MAX_CONTACTS;
	limits.keepalive_s = hf_setup_keepalive(d->config);
	limits.slow_ns = slow_ns(d);
	r = hf_rpc_server_new(&d->rpc, &limits);
	if (r == 0)
		hf_rpc_server_set_tls(d->rpc, d->tls);
	if (r == 0)
		hf_rpc_server_set_presence(d->rpc, d->presence);
	if (r == 0)
		r = hf_file_service_serve(d->files, d->config->exports.n ? serve : serve_unnamed, d);
	if (r == 0)
		r = serve(d, &hf_nlm_program, d->nlm);
	if (r == 0)
		r = serve(d, &hf_nsm_program, d->nsm);
	if (r == 0)
		r = hf_rpc_server_add_lane(d->rpc, d->loop, &d->home);
	for (size_t i = 0; i < hf_loop_threads_size(d->loop_threads) && r == 0; i++)
		r = hf_rpc_server_add_lane(d->rpc, hf_loop_threads_loop(d->loop_threads, i), &lane);
	return hf_trace(r);
}

/* The operator's interface */

static void show_limits(void *user, struct hf_limit_use uses[HF_N_LIMITS])
{
	struct daemon *d = user;

	hf_rpc_server_show_limits(d->rpc, uses);
	hf_nsm_show_limits(d->nsm, uses);
	hf_nlm_show_limits(d->nlm, uses);
	if (d->config->exports.n)
		hf_file_service_show_limits(d->files, uses);
	if (d->portmap)
		hf_portmap_show_limits(d->portmap, uses);
	if (d->usage)
		hf_usage_show_limit(d->usage, &uses[HF_LIMIT_USAGE_PAIRS]);
}

static int make_api(struct daemon *d)
{
	struct hf_operator_parts parts = {
		.loop = d->loop,
		.recovery = d->recovery,
		.nlm = d->nlm,
		.rpc = d->rpc,
		.tls = d->tls,
		.presence = d->presence,
		.exports = d->config->exports.n ? hf_file_service_nlm(d->files).exports : NULL,
		.jobs = d->config->exports.n ? hf_file_service_jobs(d->files) : NULL,
		.limits = { show_limits, d },
		.reload = { reload, d },
		.server_name = d->name,
		.cluster = d->cluster,
		.port = d->ports.api,
	};
	int r = d->config->metrics.enabled ? hf_rpc_server_measure(d->rpc) : 0;

	if (r == 0)
		r = hf_operator_new(&d->api, d->config, &parts);
	if (r == 0)
		count_per_client(d);
	hf_operator_tell(d->api, d->config, &d->ports);
	return r;
}

static int announce_api(struct daemon *d)
{
	int r = hf_ports_file_write_address(d->state_dir, &d->ports);

	if (r < 0)
		hf_log_error("cannot write api.address", "state_dir=%s error=%s", d->config->server.state_dir,
			     strerror(-r));
	return r;
}

/* The port mapper */

static int make_portmap(struct daemon *d)
{
	static const enum hf_portmap_mode modes[] = {
		[HF_CONFIG_PORTMAP_AUTO] = HF_PORTMAP_AUTO,
		[HF_CONFIG_PORTMAP_EMBEDDED] = HF_PORTMAP_EMBEDDED,
		[HF_CONFIG_PORTMAP_SYSTEM] = HF_PORTMAP_SYSTEM,
		[HF_CONFIG_PORTMAP_OFF] = HF_PORTMAP_OFF,
	};
	const struct hf_config_addresses *addresses = &d->config->server.listen;
	struct hf_portmap_offer offers[MAX_PROGRAMS];
	struct hf_addr listen[HF_CONFIG_MAX_ITEMS];
	size_t n_listen = 0;

	for (size_t i = 0; i < d->n_programs; i++)
		offers[i] = (struct hf_portmap_offer){ d->programs[i], d->ports.rpc, d->netids };
	for (size_t i = 0; i < addresses->n; i++)
		if (d->netids & hf_netids_of(addresses->items[i].addr.family))
			listen[n_listen++] = addresses->items[i].addr;
	const struct hf_portmap_config config = {
		.mode = modes[d->config->server.portmap],
		.port = (uint16_t)d->config->server.portmap_port,
		.listen = listen,
		.n_listen = n_listen,
		.offers = offers,
		.n_offers = d->n_programs,
	};
	return hf_portmap_new(&d->portmap, d->loop, d->client, &config);
}

/* Making and freeing */

static void on_found(void *user)
{
	struct daemon *d = user;

	if (d->is_stopping)
		return;
	d->ports.portmap = hf_portmap_role(d->portmap) == HF_PORTMAP_SERVES ? hf_portmap_port(d->portmap) : 0;
	d->result = hf_ports_file_write(d->state_dir, &d->ports);
	if (d->result < 0) {
		hf_log_error("cannot write ports.json", "state_dir=%s error=%s", d->config->server.state_dir,
			     strerror(-d->result));
		begin_stop(d);
		return;
	}
	if (d->cluster)
		tell_cluster(d); /* and serves when the addresses are here: notices leave from them */
	else
		begin_to_serve(d);
}

static int open_state_dir(struct daemon *d)
{
	char error[ERROR_SIZE];
	int r = hf_state_dir_open(&d->state_dir, d->config->server.state_dir, error, sizeof(error));

	if (r < 0)
		hf_log_error(error, "%s", "");
	return r;
}

static int drop_privileges(struct daemon *d)
{
	char error[ERROR_SIZE];
	int r = hf_process_become(d->config->server.user, d->config->cluster.addresses.n > 0, d->state_dir,
				  error, sizeof(error));

	if (r < 0)
		hf_log_error(error, "%s", "");
	return r;
}

/* What belongs to the process, once: its directory, rights and limits. */
static int prepare(struct daemon *d)
{
	int r = open_state_dir(d);

	/* A run that was killed left them. holdfast(1) would take another program for this server. */
	if (r == 0)
		hf_ports_file_remove(d->state_dir);
	hf_setup_server_name(d->config, d->name);
	hf_process_raise_file_limit(); /* before other parts plan with the limit */
	/* Before rights are dropped. */
	if (r == 0 && hf_config_has_cluster(d->config))
		r = hf_cluster_node_new(&d->node, d->config);
	hf_sandbox_limit_caps(d->config->cluster.addresses.n > 0);
	/* Before anything is opened: later parts ask only once which rights they have and which user owns the
	 * server's files. */
	if (r == 0)
		r = drop_privileges(d);
	if (r == 0 && d->node)
		r = hf_cluster_node_fork_witness(d->node, d->config);
	/* While there is only one thread: new threads inherit the filter. */
	if (r == 0)
		hf_sandbox_enter();
	/* Files on a hung disk may occupy their threads for ever; the store needs threads of its own. */
	hf_work_set_threads(hf_file_service_threads(d->config) + OTHER_WORKS);
	if (r == 0 && d->node) {
		r = hf_cluster_node_start(d->node, d->config, d->state_dir);
		d->cluster = hf_cluster_node_cluster(d->node);
	}
	return hf_trace(r);
}

static int make_files(struct daemon *d)
{
	struct hf_seal_key key;

	if (d->cluster)
		hf_cluster_key(d->cluster, key.bytes);
	return hf_file_service_new(&d->files, d->loop, d->config, d->cluster ? &key : NULL);
}

/* Before the first call. The configuration may be another one than that of the run before. */
static void restore_waiters(struct daemon *d)
{
	hf_recovery_restore_waiters(d->recovery);
	hf_nlm_exports_changed(d->nlm);
}

static int start(struct daemon *d)
{
	int r = make_loops(d);

	if (r == 0)
		r = catch_signals(d);
	/* A node that has claimed the service hands it over, even if it stops before it serves. */
	if (r == 0 && d->cluster)
		r = catch_stop(d);
	if (r == 0)
		r = make_files(d);
	if (r == 0)
		r = make_tls(d);
	if (r == 0)
		r = make_reload(d);
	if (r == 0)
		r = make_locks(d);
	if (r == 0)
		r = make_rpc(d);
	if (r == 0)
		restore_waiters(d);
	if (r == 0)
		r = hf_listen_all(d->rpc, d->home, d->config, &d->ports.rpc, &d->netids);
	if (r == 0)
		r = make_api(d);
	if (r == 0)
		r = announce_api(d);
	if (r == 0)
		r = make_portmap(d);
	if (r == 0)
		r = hf_portmap_start(d->portmap, on_found, d);
	if (r == 0 && !d->cluster)
		r = catch_stop(d);
	if (r == 0)
		r = hf_loop_threads_start(d->loop_threads);
	if (r == 0 && d->api)
		r = hf_api_start(d->api);
	if (r == 0 && d->cluster)
		hf_cluster_set_listener(d->cluster, d->loop, on_cluster_event, d);
	return hf_trace(r);
}

/* The loops have ended, but file threads may still work for their calls. A call that ends wakes its
 * retransmission, which may wait on another loop. A connection that waited for it must not begin its next
 * call, because no thread would serve that. */
static void finish_calls(struct daemon *d)
{
	if (d->rpc)
		hf_rpc_server_begin_no_more(d->rpc);
	if (d->files)
		hf_file_service_wait(d->files);
	if (d->loop_threads)
		hf_loop_threads_drain(d->loop_threads, d->loop);
}

static void take_down(struct daemon *d)
{
	if (d->cluster)
		hf_cluster_set_listener(d->cluster, NULL, NULL, NULL);
	hf_ports_file_remove(d->state_dir); /* while the API still has its port */
	hf_manager_deinit(&d->manager);
	hf_api_stop(d->api);
	if (d->loop_threads)
		hf_loop_threads_stop(d->loop_threads);
	hf_portmap_free(d->portmap);
	if (d->stands_by && hf_reload_is_owed(d->reload))
		raise(SIGHUP); /* the loop of the standby takes it */
	hf_reload_free(d->reload);
	hf_ports_file_remove(d->state_dir); /* the last reload may have written it again */
	finish_calls(d);
	hf_nsm_free(d->nsm); /* the RPC server owns the calls that they have suspended */
	hf_nlm_free(d->nlm);
	hf_recovery_free(d->recovery); /* promises that are still open are members of calls */
	hf_rpc_server_free(d->rpc);
	hf_tls_free(d->tls);
	hf_file_service_free(d->files);
	hf_rpc_client_free(d->client);
	hf_loop_threads_free(d->loop_threads);
	hf_loop_free(d->loop);
	hf_rpc_presence_free(d->presence);
	hf_api_free(d->api);
	hf_usage_free(d->usage);
}

/* Errors that may be over soon, or that another node does not have; the log has the reason. */
static bool is_of_database(int r)
{
	return r == -ESTALE || r == -EIO || r == -ENOTCONN || r == -ETIMEDOUT || r == -EBUSY;
}

/* Serves until told to stop, or until the service is another node's. */
static int run_service(struct daemon *d)
{
	struct hf_process_end *end;
	int r;

	d->result = start(d);
	if (d->result == 0) {
		hf_loop_run(d->loop);
		hf_log_info("stopped", "%s", "");
	} else if (d->cluster && is_of_database(d->result)) {
		d->has_failed = d->result != -ESTALE; /* else another node was faster */
		d->stands_by = true;
		d->result = 0;
	} else {
		hf_log_error("could not start", "error=%s", strerror(-d->result));
	}
	r = d->result;
	end = hf_process_end_soon(r < 0 || d->stands_by ? EXIT_FAILURE : EXIT_SUCCESS);
	take_down(d);
	hf_process_end_not(end);
	return r;
}

/* One term after the other, and a standby in between. */
static int run_in_cluster(struct daemon *d)
{
	const struct hf_standby_options options = {
		.config = d->config,
		.args = d->args,
		.node = d->node,
		.state_dir = d->state_dir,
		.ports = &d->ports,
		.server_name = d->name,
	};
	bool stands_by = true;
	int r = 0;

	while (r == 0 && stands_by) {
		r = hf_standby_run(&options);
		if (r == HF_STANDBY_REFUSED)
			r = -EPERM;
		if (r != HF_STANDBY_CLAIMED)
			break;
		forget_service(d);
		r = run_service(d);
		stands_by = d->stands_by;
		if (stands_by)
			hf_cluster_released(d->cluster, d->has_failed);
	}
	hf_cluster_leave(d->cluster);
	return r < 0 ? r : 0;
}

int hf_daemon_run(struct hf_config *config, const struct hf_args *args)
{
	struct daemon d = { .config = config, .args = args };
	int r = prepare(&d);

	if (r < 0)
		hf_log_error("could not start", "error=%s", strerror(-r));
	else if (d.cluster)
		r = run_in_cluster(&d);
	else
		r = run_service(&d);
	hf_cluster_node_free(d.node);
	hf_state_dir_close(d.state_dir);
	hf_config_free(d.config);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
