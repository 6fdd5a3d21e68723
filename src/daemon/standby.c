#include "daemon/standby.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/api.h"
#include "api/keys.h"
#include "base/audit.h"
#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "cluster/cluster.h"
#include "daemon/certificates.h"
#include "daemon/config.h"
#include "daemon/manager.h"
#include "daemon/cluster_node.h"
#include "daemon/operator.h"
#include "daemon/ports_file.h"
#include "daemon/process.h"
#include "daemon/reload.h"
#include "loop/loop.h"
#include "loop/timer.h"
#include "loop/work.h"

#define EXAMINE_NS (2 * HF_NS_PER_S)

struct standby {
	const struct hf_standby_options *options;
	struct hf_cluster *cluster;
	struct hf_loop *loop;
	struct hf_api *api; /* NULL: off */
	struct hf_manager manager;
	int end;

	/* Examining the exports: a worker may wait for a disk */
	struct hf_timer examine_timer;
	struct hf_work examine_work;
	char missing[512]; /* why this node could not serve; empty: it could */

	struct hf_reload *reload;
	bool is_reload_wanted;  /* when the exports have been examined */
	bool is_reload_refused; /* the last one */
};

/* A signal to stop counts, though a claim comes in the same turn: the service is handed over then. */
static void end(struct standby *standby, int how)
{
	if (standby->end != HF_STANDBY_STOPPED)
		standby->end = how;
	hf_loop_stop(standby->loop);
}

/* Exports and the audit log: without one of them the service would not start here. */

static void run_examine(struct hf_work *work)
{
	struct standby *standby = hf_container_of(work, struct standby, examine_work);
	const struct hf_config_exports *exports = &standby->options->config->exports;
	const char *audit = standby->options->config->log.audit;
	hf_cleanup(hf_audit_file_closep) struct hf_audit_file *file = NULL;
	struct stat st;
	int r;

	standby->missing[0] = '\0';
	for (size_t i = 0; i < exports->n && !standby->missing[0]; i++) {
		const char *path = exports->items[i].path;
		char quoted[300];

		hf_log_quote(quoted, sizeof(quoted), path, strlen(path));
		if (stat(path, &st) < 0)
			snprintf(standby->missing, sizeof(standby->missing),
				 "the exported directory %s cannot be reached here (%s)", quoted,
				 strerror(errno));
		else if (!S_ISDIR(st.st_mode))
			snprintf(standby->missing, sizeof(standby->missing),
				 "the exported directory %s is no directory here", quoted);
	}
	r = *audit && !standby->missing[0] ? hf_audit_file_open(&file, audit) : 0;
	if (r < 0)
		snprintf(standby->missing, sizeof(standby->missing),
			 "the audit log cannot be opened here (%s)", strerror(-r));
}

static void ask_reload(void *user);

static void on_examined(struct hf_work *work)
{
	struct standby *standby = hf_container_of(work, struct standby, examine_work);

	hf_cluster_set_unfit(standby->cluster, standby->missing);
	if (standby->is_reload_wanted)
		ask_reload(standby);
}

/* A worker that waits for a disk since the last time: a service that was built here would wait, too. */
static void on_examine(struct hf_timer *timer)
{
	struct standby *standby = hf_container_of(timer, struct standby, examine_timer);

	(void)hf_timer_start(&standby->examine_timer, EXAMINE_NS);
	if (hf_work_is_running(&standby->examine_work))
		hf_cluster_set_unfit(standby->cluster, "an exported directory does not answer here");
	else if (!hf_reload_is_running(standby->reload))
		(void)hf_work_submit(standby->loop, &standby->examine_work, run_examine, on_examined);
}

/* Reload */

static void on_reload_begins(void *user)
{
	hf_manager_tell_reloading();
}

static int on_exports_taken(void *user, struct hf_config *reloaded)
{
	struct standby *standby = user;
	struct hf_config *config = standby->options->config;
	hf_cleanup(hf_freep) char *exports = hf_cluster_node_describe_exports(reloaded);
	struct hf_config_exports before = config->exports;
	int r = exports ? hf_cluster_set_exports(standby->cluster, exports) : -ENOMEM;

	if (r < 0)
		return hf_trace(r);
	config->exports = reloaded->exports;
	reloaded->exports = before;
	return 0;
}

static void on_api_keys_come(void *user, const struct hf_api_keys *keys)
{
	struct standby *standby = user;

	(void)hf_ports_file_announce(standby->options->state_dir, standby->options->ports,
				     hf_api_keys_pin(keys));
}

static bool on_api_keys(void *user, struct hf_api_keys *keys)
{
	struct standby *standby = user;
	bool is_taken = hf_certificates_take_api(standby->api, keys);

	if (standby->api)
		hf_api_pin(standby->api, standby->options->ports->api_pin);
	return is_taken;
}

static void on_tokens(void *user, const struct hf_api_tokens *tokens)
{
	struct standby *standby = user;

	if (standby->api)
		hf_api_set_tokens(standby->api, tokens);
}

/* For when this node serves, but for what decides whether it will. */
static void on_reload_changes(void *user, struct hf_config *reloaded)
{
	struct standby *standby = user;

	hf_config_take_live(standby->options->config, reloaded);
	hf_cluster_set_automatic(standby->cluster, standby->options->config->cluster.automatic);
}

static void on_reload_ended(void *user, const struct hf_api_reload_outcome *outcome)
{
	struct standby *standby = user;

	standby->is_reload_refused = !outcome->is_loaded;
	if (standby->api)
		hf_api_tell_reload(standby->api, outcome);
	hf_manager_tell_ready(&standby->manager);
}

static int make_reload(struct standby *standby)
{
	const struct hf_reload_options options = {
		.loop = standby->loop,
		.args = standby->options->args,
		.started = standby->options->config,
		.begins = on_reload_begins,
		.taken = on_exports_taken,
		.change = on_reload_changes,
		.announce = on_api_keys_come,
		.take_api = on_api_keys,
		.take_tokens = on_tokens,
		.ended = on_reload_ended,
		.user = standby,
	};

	return hf_reload_new(&standby->reload, &options);
}

/* A reload changes the list that the worker reads: one of them waits for the other. */
static void ask_reload(void *user)
{
	struct standby *standby = user;

	standby->is_reload_wanted = hf_work_is_running(&standby->examine_work);
	if (!standby->is_reload_wanted)
		hf_reload_ask(standby->reload);
}

/* Signals and events */

/* Until the process ends, a worker may wait for a disk for seconds, and the service become free. */
static void on_stop(void *user, int signum)
{
	struct standby *standby = user;

	hf_log_info("stopping", "signal=%s", sigabbrev_np(signum));
	hf_cluster_begin_to_leave(standby->cluster);
	end(standby, HF_STANDBY_STOPPED);
}

static void on_reload(void *user, int signum)
{
	ask_reload(user);
}

static void on_cluster_event(void *user, enum hf_cluster_event event)
{
	if (event == HF_CLUSTER_CLAIMED)
		end(user, HF_STANDBY_CLAIMED);
	else if (event == HF_CLUSTER_REFUSED)
		end(user, HF_STANDBY_REFUSED);
}

static int catch_signals(struct standby *standby)
{
	int r = hf_loop_on_signal(standby->loop, SIGTERM, on_stop, standby);

	if (r == 0)
		r = hf_loop_on_signal(standby->loop, SIGINT, on_stop, standby);
	if (r == 0)
		r = hf_loop_on_signal(standby->loop, SIGHUP, on_reload, standby);
	return hf_trace(r);
}

/* Making and freeing */

static void tell_status(void *user, char out[static HF_MANAGER_STATUS])
{
	const struct standby *standby = user;

	snprintf(out, HF_MANAGER_STATUS, "standby of %s%s", standby->options->config->cluster.service,
		 standby->is_reload_refused ? "; the last reload was refused: see the log" : "");
}

static int make_api(struct standby *standby)
{
	const struct hf_standby_options *options = standby->options;
	const struct hf_operator_parts parts = {
		.loop = standby->loop,
		.cluster = standby->cluster,
		.reload = { ask_reload, standby },
		.server_name = options->server_name,
		.port = options->ports->api,
	};
	int r = hf_operator_new(&standby->api, options->config, &parts);

	hf_operator_tell(standby->api, options->config, options->ports);
	if (r == 0 && standby->api)
		r = hf_api_start(standby->api);
	options->ports->rpc = options->ports->portmap = 0;
	return r;
}

static int start(struct standby *standby)
{
	int r = hf_loop_new(&standby->loop);

	if (r < 0)
		return hf_trace(r);
	hf_timer_init(&standby->examine_timer, standby->loop, on_examine);
	hf_manager_init(&standby->manager, standby->loop, tell_status, standby);
	r = catch_signals(standby);
	if (r == 0)
		r = make_reload(standby);
	if (r == 0)
		r = make_api(standby);
	if (r == 0)
		r = hf_ports_file_write_address(standby->options->state_dir, standby->options->ports);
	if (r == 0)
		r = hf_ports_file_write(standby->options->state_dir, standby->options->ports);
	if (r == 0)
		r = hf_timer_start(&standby->examine_timer, 0);
	if (r < 0)
		return hf_trace(r);
	hf_cluster_set_listener(standby->cluster, standby->loop, on_cluster_event, standby);
	return 0;
}

static void take_down(struct standby *standby)
{
	hf_cluster_set_listener(standby->cluster, NULL, NULL, NULL);
	hf_ports_file_remove(standby->options->state_dir); /* while the API still has its port */
	hf_api_stop(standby->api);
	hf_timer_stop(&standby->examine_timer);
	hf_manager_deinit(&standby->manager);
	hf_work_cancel(&standby->examine_work);
	if (standby->end == HF_STANDBY_CLAIMED &&
	    (standby->is_reload_wanted || hf_reload_is_owed(standby->reload)))
		raise(SIGHUP); /* the loop of the service takes it */
	hf_reload_free(standby->reload);
	hf_ports_file_remove(standby->options->state_dir); /* the last reload may have written it again */
	hf_loop_free(standby->loop);
	hf_api_free(standby->api);
}

int hf_standby_run(const struct hf_standby_options *options)
{
	struct standby standby = { .options = options, .cluster = hf_cluster_node_cluster(options->node) };
	struct hf_process_end *limit = NULL;
	int r = start(&standby);

	if (r < 0) {
		if (standby.loop)
			take_down(&standby);
		return hf_trace(r);
	}
	hf_log_info("standby: watches the service, and serves no client", "service=%s",
		    options->config->cluster.service);
	hf_manager_tell_ready(&standby.manager);
	hf_loop_run(standby.loop);
	/* The worker that examines the exports may wait for a disk for ever. A node that has claimed the
	 * service has another limit: hf_node_is_stuck(). */
	if (standby.end != HF_STANDBY_CLAIMED)
		limit = hf_process_end_soon(standby.end == HF_STANDBY_STOPPED ? EXIT_SUCCESS : EXIT_FAILURE);
	take_down(&standby);
	hf_process_end_not(limit);
	return standby.end;
}
