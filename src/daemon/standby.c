#include "daemon/standby.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/api.h"
#include "api/keys.h"
#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "cluster/cluster.h"
#include "daemon/certificates.h"
#include "daemon/config.h"
#include "daemon/manager.h"
#include "daemon/member.h"
#include "daemon/operator.h"
#include "daemon/ports_file.h"
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

	/* Reloading */
	struct hf_work reload_work;
	bool is_reload_wanted;
	struct hf_config *reloaded;
	struct hf_api_keys *reloaded_keys; /* of the API */
	int reload_result;
	char reload_error[HF_CONFIG_ERROR_SIZE];
};

static void end(struct standby *standby, int how)
{
	standby->end = how;
	hf_loop_stop(standby->loop);
}

/* Exports */

static void run_examine(struct hf_work *work)
{
	struct standby *standby = hf_container_of(work, struct standby, examine_work);
	const struct hf_config_exports *exports = &standby->options->config->exports;
	struct stat st;

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
}

static void begin_reload(struct standby *standby);

static void on_examined(struct hf_work *work)
{
	struct standby *standby = hf_container_of(work, struct standby, examine_work);

	hf_cluster_set_unfit(standby->cluster, standby->missing);
	if (standby->is_reload_wanted)
		begin_reload(standby);
}

/* A reload changes the list that the worker reads. A worker that waits for a disk since the last time: a
 * service that was built here would wait, too. */
static void on_examine(struct hf_timer *timer)
{
	struct standby *standby = hf_container_of(timer, struct standby, examine_timer);

	(void)hf_timer_start(&standby->examine_timer, EXAMINE_NS);
	if (hf_work_is_running(&standby->examine_work))
		hf_cluster_set_unfit(standby->cluster, "an exported directory does not answer here");
	else if (!hf_work_is_running(&standby->reload_work))
		(void)hf_work_submit(standby->loop, &standby->examine_work, run_examine, on_examined);
}

/* Reload */

static void run_reload(struct hf_work *work)
{
	struct standby *standby = hf_container_of(work, struct standby, reload_work);

	standby->reload_result = hf_config_load(&standby->reloaded, standby->options->args,
						standby->reload_error, sizeof(standby->reload_error));
	if (standby->reload_result == 0)
		standby->reload_result = hf_certificates_load_api(&standby->reloaded_keys, standby->reloaded);
	if (standby->reload_result == 0 && standby->reloaded_keys)
		(void)hf_ports_file_announce(standby->options->state_dir, standby->options->ports,
					     hf_api_keys_pin(standby->reloaded_keys));
}

static void take_api_keys(struct standby *standby)
{
	struct hf_api_keys *keys = standby->reloaded_keys;

	standby->reloaded_keys = NULL;
	if (!hf_certificates_take_api(standby->api, keys))
		hf_log_warn("the API changes between HTTP and HTTPS only at the next start",
			    "keys=api.certificate");
	if (standby->api)
		hf_api_pin(standby->api, standby->options->ports->api_pin);
}

static void take_reloaded(struct standby *standby)
{
	struct hf_config *config = standby->options->config;
	hf_cleanup(hf_freep) char *exports = hf_member_describe_exports(standby->reloaded);
	struct hf_config_exports before = config->exports;
	char fixed[512];

	if (hf_config_list_fixed_changes(fixed, sizeof(fixed), config, standby->reloaded))
		hf_log_warn("these keys take effect only at the next start", "keys=%s", fixed);
	hf_log_configure(standby->reloaded->log.level, config->log.format);
	if (!exports || hf_cluster_set_exports(standby->cluster, exports) < 0) {
		hf_log_error("the new exports could not be taken; the old exports stay. Reload again",
			     "error=%s", strerror(ENOMEM));
		return;
	}
	config->exports = standby->reloaded->exports;
	standby->reloaded->exports = before;
	hf_config_exchange_certificates(config, standby->reloaded);
	take_api_keys(standby);
	config->metrics.per_client = standby->reloaded->metrics.per_client;
	hf_log_info("configuration loaded again", "exports=%zu", config->exports.n);
}

static void clear_reloaded(struct standby *standby)
{
	standby->reloaded_keys = hf_api_keys_unref(standby->reloaded_keys);
	hf_config_free(standby->reloaded);
	standby->reloaded = NULL;
}

static void on_reloaded(struct hf_work *work)
{
	struct standby *standby = hf_container_of(work, struct standby, reload_work);

	if (standby->reload_result == 0)
		take_reloaded(standby);
	else
		hf_log_error("configuration not loaded, the old one stays", "error=%s",
			     standby->reload_result < 0 ? strerror(-standby->reload_result)
							: standby->reload_error);
	clear_reloaded(standby);
	hf_manager_tell_ready(&standby->manager);
	if (standby->is_reload_wanted)
		begin_reload(standby);
}

static void begin_reload(struct standby *standby)
{
	standby->is_reload_wanted =
		hf_work_is_running(&standby->examine_work) || hf_work_is_running(&standby->reload_work);
	if (standby->is_reload_wanted)
		return;
	hf_manager_tell_reloading();
	if (hf_work_submit(standby->loop, &standby->reload_work, run_reload, on_reloaded) < 0)
		hf_manager_tell_ready(&standby->manager);
}

/* Signals and news */

static void on_stop(void *user, int signum)
{
	hf_log_info("stopping", "signal=%s", sigabbrev_np(signum));
	end(user, HF_STANDBY_STOPPED);
}

static void on_reload(void *user, int signum)
{
	begin_reload(user);
}

static void on_news(void *user, enum hf_cluster_news news)
{
	if (news == HF_CLUSTER_CLAIMED)
		end(user, HF_STANDBY_CLAIMED);
	else if (news == HF_CLUSTER_REFUSED)
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

/* Life */

static void tell_status(void *user, char out[static HF_MANAGER_STATUS])
{
	const struct standby *standby = user;

	snprintf(out, HF_MANAGER_STATUS, "standby of %s", standby->options->config->cluster.service);
}

static int make_api(struct standby *standby)
{
	const struct hf_standby_options *options = standby->options;
	const struct hf_operator_parts parts = {
		.loop = standby->loop,
		.cluster = standby->cluster,
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
		r = make_api(standby);
	if (r == 0)
		r = hf_ports_file_write(standby->options->state_dir, standby->options->ports);
	if (r == 0)
		r = hf_timer_start(&standby->examine_timer, 0);
	if (r < 0)
		return hf_trace(r);
	hf_cluster_set_listener(standby->cluster, standby->loop, on_news, standby);
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
	hf_work_cancel(&standby->reload_work);
	hf_ports_file_remove(standby->options->state_dir); /* the last reload may have written it again */
	clear_reloaded(standby);
	hf_loop_free(standby->loop);
	hf_api_free(standby->api);
}

int hf_standby_run(const struct hf_standby_options *options)
{
	struct standby standby = { .options = options, .cluster = hf_member_cluster(options->member) };
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
	take_down(&standby);
	return standby.end;
}
