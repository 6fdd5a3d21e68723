/* On the loop: the last reload of the configuration, and the operators who wait for one. */
#include <stdio.h>
#include <string.h>

#include "api/internal.h"
#include "base/log.h"

static void answer(struct hf_api_request *request)
{
	const struct hf_api_reload *last = &request->api->reload;
	char message[sizeof(last->why) + 64];

	if (last->is_loaded || request->code)
		return;
	snprintf(message, sizeof(message), "The configuration is not loaded, the old one stays: %s",
		 last->why);
	hf_api_fail(request, 409, "not_loaded", hf_api_copy(request, message, strlen(message)));
}

/* An operator waits until what the files were at its order is read: not for a reload that has begun before.
 */
void hf_api_tell_reload(struct hf_api *api, const struct hf_api_reload_outcome *outcome)
{
	struct hf_api_reload *reload = &api->reload;
	struct hf_link *link;

	reload->at = hf_loop_wall(api->options.loop);
	reload->is_loaded = outcome->is_loaded;
	snprintf(reload->fixed, sizeof(reload->fixed), "%s", outcome->fixed);
	snprintf(reload->why, sizeof(reload->why), "%s", outcome->is_loaded ? "" : outcome->why);
	if (!outcome->is_last)
		return;
	while ((link = hf_list_pop_front(&reload->orders))) {
		struct hf_api_request *request = hf_list_entry(link, struct hf_api_request, link);

		hf_api_query_last_reload(request);
		answer(request);
		hf_api_resume(request);
	}
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

/* The server may answer before it returns from reload(). */
int hf_api_query_reload(struct hf_api_request *request)
{
	struct hf_api *api = request->api;

	hf_log_info("an operator has the configuration loaded again", "peer=%s", request->peer);
	hf_list_push_back(&api->reload.orders, &request->link);
	api->options.reload.ask(api->options.reload.user);
	return HF_API_LATER;
}

/* The server ends, and the reload with it. */
void hf_api_end_reloads(struct hf_api *api)
{
	struct hf_link *link;

	while ((link = hf_list_pop_front(&api->reload.orders))) {
		struct hf_api_request *request = hf_list_entry(link, struct hf_api_request, link);

		hf_api_fail(
			request, 503, "stopping",
			"The server stops or changes its role, and may not have loaded the configuration. "
			"Reload again.");
		hf_api_resume(request);
	}
}
