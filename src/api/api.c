/* The life of the API, and the turns of a request on the loop. */
#include "api/api.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/internal.h"
#include "base/error.h"
#include "base/log.h"
#include "proto/nlm/nlm.h"

#define SWEEP_NS           HF_NS_PER_S
#define REFUSALS_WINDOW_S  60 /* of the log limit for refused calls */
#define REFUSALS_MAX_LINES 10

/* Requests, on the loop: each turn serves a slice of the first request, then puts it behind the others */

static struct hf_api_request *take(struct hf_api *api)
{
	struct hf_link *link;

	pthread_mutex_lock(&api->lock);
	link = hf_list_pop_front(&api->waiting);
	pthread_mutex_unlock(&api->lock);
	return link ? hf_list_entry(link, struct hf_api_request, link) : NULL;
}

static void put_back(struct hf_api *api, struct hf_api_request *request)
{
	bool is_more;

	pthread_mutex_lock(&api->lock);
	if (request)
		hf_list_push_back(&api->waiting, &request->link);
	is_more = api->is_posted = !hf_list_is_empty(&api->waiting);
	pthread_mutex_unlock(&api->lock);
	if (is_more)
		hf_loop_post(api->options.loop, &api->task);
}

static int look(struct hf_api_request *request)
{
	if (request->route->on_standby || !hf_api_is_standby(request->api))
		return request->route->look(request);
	hf_api_refuse_as_standby(request);
	return HF_API_DONE;
}

static void run(struct hf_task *task)
{
	struct hf_api *api = hf_container_of(task, struct hf_api, task);
	struct hf_api_request *request;

	if (atomic_load(&api->is_stopping))
		return;
	if (api->options.nlm)
		hf_nlm_forget_refused(api->options.nlm);
	request = take(api);
	switch (request ? look(request) : HF_API_LATER) {
	case HF_API_DONE:
		if (!hf_api_name_files(request))
			hf_api_resume(request);
		request = NULL;
		break;
	case HF_API_LATER:
		request = NULL;
		break;
	}
	put_back(api, request);
}

static void on_sweep(struct hf_timer *timer)
{
	struct hf_api *api = hf_container_of(timer, struct hf_api, sweep);

	hf_api_sweep_doors(api, hf_loop_clock(api->options.loop));
	hf_timer_start(timer, SWEEP_NS);
}

/* Making and freeing */

static int copy_texts(struct hf_api *api)
{
	struct hf_api_options *options = &api->options;
	bool has_path = options->path != NULL;

	options->cluster.addresses = strdup(options->cluster.addresses ? options->cluster.addresses : "");
	options->state_dir = strdup(options->state_dir);
	options->server_name = strdup(options->server_name);
	options->path = has_path ? strdup(options->path) : NULL;
	if (!options->state_dir || !options->server_name || (has_path && !options->path) ||
	    !options->cluster.addresses)
		return hf_trace(-ENOMEM);
	return 0;
}

static void take_tokens(struct hf_api_guard *guard, const struct hf_api_tokens *tokens)
{
	memcpy(guard->token, tokens->change, sizeof(guard->token));
	memcpy(guard->view_token, tokens->view, sizeof(guard->view_token));
}

static int load_tokens(struct hf_api *api, const struct hf_api_options *options)
{
	const struct hf_api_token_files files = {
		.change = options->token_file ? options->token_file : "",
		.view = options->view_token_file ? options->view_token_file : "",
		.state_dir = options->state_dir,
	};
	struct hf_api_tokens tokens;
	int r = hf_api_tokens_load(&tokens, &files, false, options->loop);

	if (r == 0)
		take_tokens(&api->guard, &tokens);
	return r;
}

void hf_api_set_tokens(struct hf_api *api, const struct hf_api_tokens *tokens)
{
	struct hf_api_guard *guard = &api->guard;
	bool is_same;

	pthread_mutex_lock(&api->lock);
	is_same = strcmp(guard->token, tokens->change) == 0 && strcmp(guard->view_token, tokens->view) == 0;
	if (!is_same) {
		take_tokens(guard, tokens);
		guard->n_replaced++;
		hf_api_shut_streams(api);
	}
	pthread_mutex_unlock(&api->lock);
	if (!is_same)
		hf_log_info("the API has other tokens now", "%s", "");
}

int hf_api_new(struct hf_api **apip, const struct hf_api_options *options)
{
	hf_cleanup(hf_api_freep) struct hf_api *api = calloc(1, sizeof(*api));
	int r;

	if (!api)
		return hf_trace(-ENOMEM);
	api->options = *options;
	api->options.keys = NULL; /* they change, as the next two do */
	api->options.token_file = api->options.view_token_file = NULL;
	api->keys = hf_api_keys_ref(options->keys);
	api->is_https = options->keys != NULL;
	api->fd = -1;
	api->refusals = (struct hf_log_limit)HF_LOG_LIMIT(REFUSALS_WINDOW_S);
	api->refusals.max_lines = REFUSALS_MAX_LINES;
	pthread_mutex_init(&api->lock, NULL);
	pthread_cond_init(&api->door_changed, NULL);
	hf_list_init(&api->waiting);
	api->delays.recovery = options->recovery;
	hf_list_init(&api->namings);
	hf_list_init(&api->reload.orders);
	hf_list_init(&api->reload.due);
	hf_list_init(&api->doors);
	hf_link_init(&api->observer.link);
	hf_task_init(&api->task, run);
	hf_timer_init(&api->sweep, options->loop, on_sweep);
	hf_events_init(&api->events, options->loop, &api->observer.wants_locks);
	api->started = hf_loop_now(options->loop);
	api->started_wall = hf_loop_wall(options->loop);
	r = copy_texts(api);
	if (r == 0)
		r = load_tokens(api, options);
	if (r == 0)
		r = hf_api_listen(api);
	if (r < 0)
		return r;
	api->guard.is_loopback = !options->path && hf_addr_is_loopback(&options->listen);
	api->guard.needs_token = !options->path && !api->guard.is_loopback;
	api->guard.is_https = api->is_https;
	if (api->guard.needs_token && !api->is_https)
		hf_log_warn("the API is reachable from other hosts without TLS: the network can read its "
			    "tokens. Set api.certificate and api.key",
			    "%s", "");
	*apip = api;
	api = NULL;
	return 0;
}

int hf_api_start(struct hf_api *api)
{
	int r;

	hf_api_watch(api);
	r = hf_api_http_start(api);
	if (r < 0) {
		hf_log_error("cannot serve the API", "error=%s", strerror(-r));
		return r;
	}
	hf_events_start(&api->events);
	return hf_trace(hf_timer_start(&api->sweep, SWEEP_NS));
}

void hf_api_stop(struct hf_api *api)
{
	if (!api || atomic_exchange(&api->is_stopping, true))
		return;
	hf_timer_stop(&api->sweep);
	hf_link_remove(&api->observer.link);
	hf_events_close(&api->events);
	hf_api_http_stop(api);
	if (api->options.path)
		unlink(api->options.path);
}

struct hf_api *hf_api_free(struct hf_api *api)
{
	if (!api)
		return NULL;
	assert(!api->http);
	if (api->fd >= 0)
		close(api->fd);
	hf_events_deinit(&api->events);
	pthread_cond_destroy(&api->door_changed);
	pthread_mutex_destroy(&api->lock);
	free((void *)(uintptr_t)api->options.cluster.addresses);
	free((void *)(uintptr_t)api->options.state_dir);
	free((void *)(uintptr_t)api->options.server_name);
	free((void *)(uintptr_t)api->options.path);
	hf_api_keys_unref(api->keys);
	free(api);
	return NULL;
}

uint16_t hf_api_port(const struct hf_api *api)
{
	return api->port;
}

void hf_api_set_usage(struct hf_api *api, struct hf_usage *usage)
{
	api->usage = usage;
}

void hf_api_set_ready(struct hf_api *api)
{
	atomic_store(&api->is_ready, true);
}
