/*
 * Reads the configuration again (SIGHUP, or POST /api/v1/reload). The exports, the TLS
 * certificates, the tokens of the API and each option with is_live (options.c) change; other keys wait for
 * the next start. The process that serves and a standby reload by this code.
 *
 * Reading the file, opening the exported directories and looking up the user
 * may wait for a disk or a name service, so a worker thread does that while
 * locks continue. The home loop then takes the result in one step. One reload
 * runs at a time. A request during a reload starts another one afterwards,
 * because the file may have changed after it was read.
 */
#pragma once

#include <stdbool.h>

#include "base/cleanup.h"

struct hf_api_keys;
struct hf_api_reload_outcome;
struct hf_api_tokens;
struct hf_args;
struct hf_config;
struct hf_file_service;
struct hf_loop;
struct hf_reload;
struct hf_tls;

struct hf_reload_options {
	struct hf_loop *loop; /* the home loop */
	const struct hf_args *args;
	const struct hf_config *started; /* the configuration that the server runs with */
	struct hf_file_service *files;   /* NULL: no file is served, and no exported directory opened */
	struct hf_tls *tls;              /* NULL: no client is served */
	/* On the home loop. Each begins() is followed by one ended(), whether the configuration was loaded or
	 * not, unless hf_reload_stop() comes between. */
	void (*begins)(void *user);
	/* The exports of @config are served from now on. It may exchange them for others. Only without files
	 * may it fail, with -errno: then the old ones stay. NULL: not wanted. */
	int (*taken)(void *user, struct hf_config *config);
	/* All else is taken: these values that may change while the server runs, hf_config_take_live(). */
	void (*change)(void *user, struct hf_config *config);
	/* On the worker: the API will use @keys, unless the reload fails. NULL: not wanted. */
	void (*announce)(void *user, const struct hf_api_keys *keys);
	/* Takes the keys of the API; NULL: it has none. False: they wait for the next start. NULL: there is
	 * no API. */
	bool (*take_api)(void *user, struct hf_api_keys *keys);
	/* Takes the tokens of the API. NULL: there is no API. */
	void (*take_tokens)(void *user, const struct hf_api_tokens *tokens);
	void (*ended)(void *user, const struct hf_api_reload_outcome *outcome);
	void *user;
};

/* All that is in @options is borrowed. */
int hf_reload_new(struct hf_reload **reloadp, const struct hf_reload_options *options);
/* Waits for the current reload and discards its result. */
struct hf_reload *hf_reload_free(struct hf_reload *reload);

HF_DEFINE_CLEANUP(struct hf_reload *, hf_reload_free)

void hf_reload_ask(struct hf_reload *reload);
bool hf_reload_is_running(const struct hf_reload *reload);
/* The last request was not followed by ended(), and will not be if the reload is freed now. A process that
 * goes on in another role sends itself SIGHUP then. NULL is allowed: no. */
bool hf_reload_is_owed(const struct hf_reload *reload);
/* From now on nothing changes and no call-back is called. NULL is allowed. */
void hf_reload_stop(struct hf_reload *reload);
