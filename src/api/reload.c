/* On the loop: the last reload of the configuration, and the operators who wait for one. */
#include <stdio.h>
#include <string.h>

#include "api/internal.h"
#include "base/log.h"

#define MAX_ORDERS 64 /* that wait: more would leave no connection for other calls */

static void answer(struct hf_api_request *request)
{
	const struct hf_api_reload *last = &request->api->reload;
	char message[sizeof(last->why) + 64];
	const char *copy;

	hf_api_query_last_reload(request);
	if (!last->is_loaded) {
		snprintf(message, sizeof(message), "The configuration is not loaded, the old one stays: %s",
			 last->why);
		copy = hf_api_copy(request, message, strlen(message));
		if (copy) /* else the request has failed for want of memory */
			hf_api_fail(request, 409, "not_loaded", copy);
	}
	hf_api_resume(request);
}

static struct hf_api_request *pop_due(struct hf_api_reload *reload)
{
	struct hf_link *link = hf_list_pop_front(&reload->due);

	if (!link)
		return NULL;
	reload->n_orders--;
	return hf_list_entry(link, struct hf_api_request, link);
}

/* The next reload begins now, and reads what the files are after these orders. */
static void wait_for_next(struct hf_api_reload *reload)
{
	struct hf_link *link;

	while ((link = hf_list_pop_front(&reload->orders)))
		hf_list_push_back(&reload->due, link);
}

/* An operator waits until what the files were at its order is read: not for a reload that had begun before,
 * and for no reload after that. */
void hf_api_tell_reload(struct hf_api *api, const struct hf_api_reload_outcome *outcome)
{
	struct hf_api_reload *reload = &api->reload;
	struct hf_api_request *request;

	reload->at = hf_loop_wall(api->options.loop);
	reload->is_loaded = outcome->is_loaded;
	snprintf(reload->fixed, sizeof(reload->fixed), "%s", outcome->is_loaded ? outcome->fixed : "");
	snprintf(reload->why, sizeof(reload->why), "%s", outcome->is_loaded ? "" : outcome->why);
	if (outcome->is_last)
		wait_for_next(reload);
	while ((request = pop_due(reload)))
		answer(request);
	if (!outcome->is_last)
		wait_for_next(reload);
}

/* The HTTP thread reads it later, when there may be another one. */
void hf_api_query_last_reload(struct hf_api_request *request)
{
	const struct hf_api_reload *reload = &request->api->reload;
	struct hf_api_status *status = &request->status;

	status->reloaded_at = reload->at;
	status->is_loaded = reload->is_loaded;
	status->fixed = hf_api_copy(request, reload->fixed, strlen(reload->fixed));
	status->not_loaded = hf_api_copy(request, reload->why, strlen(reload->why));
}

/* The server may answer before it returns from ask(). */
int hf_api_query_reload(struct hf_api_request *request)
{
	struct hf_api *api = request->api;

	if (api->reload.n_orders == MAX_ORDERS) {
		hf_api_fail(request, 503, "busy",
			    "Many callers wait for a reload already. Look at the status until it has ended.");
		return HF_API_DONE;
	}
	hf_log_info("an operator has the configuration loaded again", "peer=%s", request->peer);
	hf_list_push_back(&api->reload.orders, &request->link);
	api->reload.n_orders++;
	api->options.reload.ask(api->options.reload.user);
	return HF_API_LATER;
}

/* The server ends, and the reload with it. */
void hf_api_end_reloads(struct hf_api *api)
{
	struct hf_api_request *request;

	wait_for_next(&api->reload);
	while ((request = pop_due(&api->reload))) {
		hf_api_fail(
			request, 503, "stopping",
			"The server stops or changes its role, and may not have loaded the configuration. "
			"Reload again.");
		hf_api_resume(request);
	}
}
