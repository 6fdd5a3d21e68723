#include "daemon/reload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/guard.h"
#include "api/keys.h"
#include "base/error.h"
#include "base/log.h"
#include "daemon/call_log.h"
#include "daemon/certificates.h"
#include "daemon/config.h"
#include "daemon/files.h"
#include "daemon/options.h"
#include "export/export.h"
#include "loop/work.h"
#include "tls/tls.h"

#define FIXED_SIZE 2048 /* room for the names of all keys */

struct hf_reload {
	struct hf_reload_options options;
	struct hf_work work;
	bool had_exports; /* when the service was built: taken() may change the configuration */
	bool is_wanted;   /* another reload is due after this one */
	bool is_owed;     /* see hf_reload_is_owed() */
	bool is_stopped;
	/* The current reload; the worker owns these until it is done */
	struct hf_config *config;
	struct hf_export_list exports;
	struct hf_call_log_change call_log;
	struct hf_tls_keys *keys;
	struct hf_api_keys *api_keys;
	struct hf_api_tokens tokens;
	int result;                       /* of reading, as from hf_config_load() */
	int exports_result;               /* of opening the directories */
	int call_log_result;              /* of opening the audit log */
	int keys_result;                  /* of loading the certificates */
	int tokens_result;                /* of reading the tokens of the API */
	size_t n_failed;                  /* number of directories that cannot be exported */
	char error[HF_CONFIG_ERROR_SIZE]; /* not loaded: why */
	char fixed[FIXED_SIZE];           /* see struct hf_api_reload_outcome */
};

/* Started without exports, the lock service does not interpret handles; that cannot change in a reload. */
static bool needs_start(const struct hf_reload *reload)
{
	return reload->options.files && !reload->had_exports && reload->config->exports.n;
}

/* NULL: this process serves no calls yet. Then a reload only tries whether the audit log can be opened. */
static struct hf_call_log *call_log_of(const struct hf_reload *reload)
{
	return reload->options.files ? hf_file_service_call_log(reload->options.files) : NULL;
}

/* A reload turns the API neither on nor off. */
static bool has_api(const struct hf_reload *reload)
{
	return reload->options.take_tokens && *reload->options.started->api.listen;
}

/* A missing file is created, so this comes when all else is right. */
static int load_tokens(struct hf_reload *reload)
{
	const struct hf_api_token_files files = {
		.change = reload->config->api.token_file,
		.view = reload->config->api.view_token_file,
		.state_dir = reload->options.started->server.state_dir,
	};

	if (!has_api(reload) || reload->exports_result || reload->n_failed || reload->call_log_result ||
	    reload->keys_result)
		return 0;
	return hf_api_tokens_load(&reload->tokens, &files, true, reload->options.loop);
}

/* On a worker thread */
static void run(struct hf_work *work)
{
	struct hf_reload *reload = hf_container_of(work, struct hf_reload, work);

	reload->result =
		hf_config_load(&reload->config, reload->options.args, reload->error, sizeof(reload->error));
	if (reload->result == 0 && reload->options.files && !needs_start(reload))
		reload->exports_result = hf_file_service_prepare(reload->options.files, reload->config,
								 &reload->exports, &reload->n_failed);
	if (reload->result == 0)
		reload->call_log_result =
			hf_call_log_open(call_log_of(reload), reload->config, &reload->call_log);
	if (reload->result == 0 && reload->options.tls)
		reload->keys_result = hf_certificates_load(&reload->keys, reload->config);
	if (reload->result == 0 && reload->keys_result == 0)
		reload->keys_result = hf_certificates_load_api(&reload->api_keys, reload->config);
	if (reload->result == 0)
		reload->tokens_result = load_tokens(reload);
	if (reload->api_keys && reload->tokens_result == 0 && reload->options.announce)
		reload->options.announce(reload->options.user, reload->api_keys);
}

/* One line in the log, and the answer to the operator. False. */
static bool refuse(struct hf_reload *reload, const char *why, int r)
{
	if (r < 0) {
		hf_log_error(why, "error=%s", strerror(-r));
		snprintf(reload->error, sizeof(reload->error), "%s (%s)", why, strerror(-r));
	} else {
		hf_log_error(why, "directories=%zu", reload->n_failed);
		snprintf(reload->error, sizeof(reload->error), "%s; the log says which", why);
	}
	return false;
}

/* Takes all exports or none, so that the operator who misses one finds the reason in the log. */
static bool take_exports(struct hf_reload *reload)
{
	int r = reload->exports_result;

	if (reload->n_failed)
		return refuse(reload,
			      "some of the new exports cannot be opened; the old exports stay. Reload again",
			      0);
	if (r == 0 && reload->options.files)
		r = hf_file_service_take(reload->options.files, &reload->exports);
	if (r == 0 && reload->options.taken)
		r = reload->options.taken(reload->options.user, reload->config);
	return r == 0 ||
	       refuse(reload, "the new exports could not be taken; the old exports stay. Reload again", r);
}

static bool has_call_log(struct hf_reload *reload)
{
	int r = reload->call_log_result;

	if (r == 0 && call_log_of(reload))
		r = hf_call_log_start(call_log_of(reload), &reload->call_log);
	return r == 0 || refuse(reload,
				"the new audit log cannot be opened; the old one and the old exports stay. "
				"Reload again",
				r);
}

static void take_call_log(struct hf_reload *reload)
{
	if (!call_log_of(reload))
		return;
	hf_call_log_take(call_log_of(reload), &reload->call_log);
	hf_file_service_log_calls(reload->options.files, reload->config);
}

/* Keys that are not fixed, but wait for the next start in this case. */
static void add_to_fixed(struct hf_reload *reload, const char *key)
{
	size_t len = strlen(reload->fixed);

	snprintf(reload->fixed + len, sizeof(reload->fixed) - len, "%s%s", len ? "," : "", key);
}

/* The configuration was checked with its certificates. Here they changed since, or memory is short. */
static bool has_certificates(struct hf_reload *reload)
{
	return reload->keys_result == 0 ||
	       refuse(reload,
		      "the new TLS certificates could not be loaded; the old ones and the old exports stay. "
		      "Reload again",
		      reload->keys_result);
}

static void take_certificates(struct hf_reload *reload)
{
	struct hf_api_keys *api_keys = reload->api_keys;

	if (reload->options.tls)
		hf_certificates_take(reload->options.tls, reload->keys);
	reload->keys = NULL;
	if (!reload->options.take_api)
		return;
	reload->api_keys = NULL;
	if (reload->options.take_api(reload->options.user, api_keys))
		return;
	hf_log_warn("the API changes between HTTP and HTTPS only at the next start", "keys=api.certificate");
	add_to_fixed(reload, "api.certificate");
}

static bool has_tokens(struct hf_reload *reload)
{
	return reload->tokens_result == 0 ||
	       refuse(reload,
		      "the tokens of the API could not be read; the old ones and the old exports stay. "
		      "Reload again",
		      reload->tokens_result);
}

static void take_tokens(struct hf_reload *reload)
{
	if (!has_api(reload))
		return;
	if (!reload->tokens.are_kept) {
		reload->options.take_tokens(reload->options.user, &reload->tokens);
		return;
	}
	hf_log_warn("a token of the API comes from a file that can be read only once: the tokens change only "
		    "at the next start",
		    "%s", "");
	add_to_fixed(reload, "api.token_file");
}

/* True: the configuration is taken, but for what waits for the next start. */
static bool apply(struct hf_reload *reload)
{
	const struct hf_config *started = reload->options.started;
	struct hf_config *config = reload->config;
	size_t n_exports = config->exports.n;

	if (hf_config_list_fixed_changes(reload->fixed, sizeof(reload->fixed), started, config))
		hf_log_warn("these keys take effect only at the next start", "keys=%s", reload->fixed);
	hf_log_configure(config->log.level, started->log.format);
	if (!has_certificates(reload) || !has_tokens(reload) || !has_call_log(reload))
		return false;
	if (needs_start(reload)) {
		hf_log_warn("started without exports, as the lock service of another server: new exports "
			    "take effect only at the next start",
			    "exports=%zu", config->exports.n);
		add_to_fixed(reload, HF_OPTION_LIST); /* exports where there were none */
	} else if (!take_exports(reload)) {
		return false;
	}
	take_certificates(reload);
	take_tokens(reload);
	take_call_log(reload);
	hf_log_configure(config->log.level, config->log.format);
	reload->options.change(reload->options.user, config);
	hf_log_info("configuration loaded again", "exports=%zu", n_exports);
	return true;
}

/* Also frees a configuration that was not taken. */
static void clear(struct hf_reload *reload)
{
	hf_export_list_clear(&reload->exports);
	reload->keys = hf_tls_keys_free(reload->keys);
	reload->api_keys = hf_api_keys_unref(reload->api_keys);
	hf_call_log_drop(&reload->call_log);
	hf_config_free(reload->config);
	reload->config = NULL;
	reload->exports_result = reload->call_log_result = reload->keys_result = reload->tokens_result = 0;
	reload->tokens = (struct hf_api_tokens){ 0 };
	reload->n_failed = 0;
}

static void begin(struct hf_reload *reload);

static void end(struct hf_reload *reload)
{
	struct hf_api_reload_outcome outcome = { .why = reload->error, .fixed = reload->fixed };

	reload->fixed[0] = '\0';
	reload->is_owed = reload->is_wanted;
	outcome.is_last = !reload->is_wanted;
	if (reload->result < 0)
		snprintf(reload->error, sizeof(reload->error), "%s", strerror(-reload->result));
	if (reload->result == 0)
		outcome.is_loaded = apply(reload);
	else
		hf_log_error("configuration not loaded, the old one stays", "error=%s", reload->error);
	/* Also after a refused reload: a program that rotates logs asks for one. Last, since the file of this
	 * reload may have been moved away after it was opened. */
	if (call_log_of(reload))
		hf_call_log_reopen(call_log_of(reload));
	reload->options.ended(reload->options.user, &outcome);
}

static void on_done(struct hf_work *work)
{
	struct hf_reload *reload = hf_container_of(work, struct hf_reload, work);

	if (!reload->is_stopped)
		end(reload);
	clear(reload);
	if (reload->is_wanted && !reload->is_stopped)
		begin(reload);
}

static void begin(struct hf_reload *reload)
{
	int r;

	reload->is_wanted = false;
	reload->options.begins(reload->options.user);
	r = hf_work_submit(reload->options.loop, &reload->work, run, on_done);
	if (r == 0)
		return;
	reload->result = r;
	end(reload);
}

void hf_reload_ask(struct hf_reload *reload)
{
	reload->is_owed = true;
	if (reload->is_stopped)
		return;
	if (hf_work_is_running(&reload->work))
		reload->is_wanted = true;
	else
		begin(reload);
}

bool hf_reload_is_running(const struct hf_reload *reload)
{
	return hf_work_is_running(&reload->work);
}

bool hf_reload_is_owed(const struct hf_reload *reload)
{
	return reload && reload->is_owed;
}

void hf_reload_stop(struct hf_reload *reload)
{
	if (reload)
		reload->is_stopped = true;
}

int hf_reload_new(struct hf_reload **reloadp, const struct hf_reload_options *options)
{
	struct hf_reload *reload = calloc(1, sizeof(*reload));

	if (!reload)
		return hf_trace(-ENOMEM);
	reload->options = *options;
	reload->had_exports = options->started->exports.n > 0;
	*reloadp = reload;
	return 0;
}

struct hf_reload *hf_reload_free(struct hf_reload *reload)
{
	if (!reload)
		return NULL;
	hf_work_cancel(&reload->work);
	clear(reload);
	free(reload);
	return NULL;
}
