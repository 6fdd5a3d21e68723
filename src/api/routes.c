/* The table of all calls, and which of them a request is. openapi.json describes the same calls; a test
 * compares the two. */
#include <stdio.h>
#include <string.h>

#include "api/internal.h"

static const struct hf_api_route routes[] = {
	{ .method = "GET", .pattern = "/", .is_open = true },
	{ .method = "GET",
	  .pattern = "/healthz",
	  .is_open = true, /* for probes, which have no token */
	  .on_standby = true,
	  .look = hf_api_query_health,
	  .show = hf_api_render_health },
	{ .method = "GET",
	  .pattern = "/readyz",
	  .is_open = true, /* for probes, which have no token */
	  .on_standby = true,
	  .look = hf_api_query_ready,
	  .show = hf_api_render_ready },
	{ .method = "GET", .pattern = "/metrics", .on_standby = true, .look = hf_api_query_metrics },
	{ .method = "GET", .pattern = "/api/v1/openapi.json" },
	{ .method = "GET", .pattern = "/api/v1/events", .params = { "since" } },
	{ .method = "GET",
	  .pattern = "/api/v1/status",
	  .on_standby = true,
	  .look = hf_api_query_status,
	  .show = hf_api_render_status },
	{ .method = "GET",
	  .pattern = "/api/v1/clients",
	  .params = { "protocol", "status", "limit", "cursor" },
	  .look = hf_api_query_clients,
	  .show = hf_api_render_clients },
	{ .method = "GET",
	  .pattern = "/api/v1/clients/{id}",
	  .shows_files = true,
	  .look = hf_api_query_client,
	  .show = hf_api_render_client },
	{ .method = "DELETE",
	  .pattern = "/api/v1/clients/{id}",
	  .changes = true,
	  .look = hf_api_query_release,
	  .show = hf_api_render_released },
	{ .method = "GET",
	  .pattern = "/api/v1/locks",
	  .params = { "client", "share", "limit", "cursor" },
	  .shows_files = true,
	  .look = hf_api_query_locks,
	  .show = hf_api_render_locks },
	{ .method = "DELETE",
	  .pattern = "/api/v1/locks",
	  .params = { "client", "handle", "offset", "length", "owner" },
	  .changes = true,
	  .look = hf_api_query_revoke,
	  .show = hf_api_render_released },
	{ .method = "GET",
	  .pattern = "/api/v1/waiters",
	  .params = { "client", "share", "limit", "cursor" },
	  .shows_files = true,
	  .look = hf_api_query_waiters,
	  .show = hf_api_render_waiters },
	{ .method = "GET",
	  .pattern = "/api/v1/reservations",
	  .params = { "client", "share", "limit", "cursor" },
	  .shows_files = true,
	  .look = hf_api_query_reservations,
	  .show = hf_api_render_reservations },
	{ .method = "GET",
	  .pattern = "/api/v1/shares",
	  .params = { "limit", "cursor" },
	  .look = hf_api_query_exports,
	  .show = hf_api_render_exports },
	{ .method = "GET",
	  .pattern = "/api/v1/limits",
	  .look = hf_api_query_limits,
	  .show = hf_api_render_limits },
	{ .method = "GET",
	  .pattern = "/api/v1/usage",
	  .params = { "address", "share", "sort", "limit", "cursor" },
	  .look = hf_api_query_usage,
	  .show = hf_api_render_usage },
	{ .method = "GET",
	  .pattern = "/api/v1/grace",
	  .look = hf_api_query_status,
	  .show = hf_api_render_grace },
	{ .method = "POST",
	  .pattern = "/api/v1/grace/end",
	  .changes = true,
	  .look = hf_api_query_end_grace,
	  .show = hf_api_render_grace },
	{ .method = "POST",
	  .pattern = "/api/v1/notify",
	  .params = { "client" },
	  .changes = true,
	  .status = 202,
	  .look = hf_api_query_notify,
	  .show = hf_api_render_accepted },
	{ .method = "POST",
	  .pattern = "/api/v1/reload",
	  .changes = true,
	  .on_standby = true,
	  .look = hf_api_query_reload,
	  .show = hf_api_render_reload },
	{ .method = "GET",
	  .pattern = "/api/v1/cluster",
	  .on_standby = true,
	  .look = hf_api_query_cluster,
	  .show = hf_api_render_cluster },
	{ .method = "POST",
	  .pattern = "/api/v1/cluster/move",
	  .params = { "to" },
	  .changes = true,
	  .on_standby = true,
	  .status = 202,
	  .look = hf_api_query_move,
	  .show = hf_api_render_accepted },
	{ .method = "POST",
	  .pattern = "/api/v1/cluster/take",
	  .changes = true,
	  .on_standby = true,
	  .status = 202,
	  .look = hf_api_query_take,
	  .show = hf_api_render_accepted },
};

/* Parameters */

static bool knows(const struct hf_api_route *route, const char *name)
{
	for (size_t i = 0; i < HF_ARRAY_SIZE(route->params) && route->params[i]; i++)
		if (strcmp(route->params[i], name) == 0)
			return true;
	return false;
}

static int parse_status(const char *text)
{
	for (int status = HF_CLIENT_ACTIVE; status <= HF_CLIENT_CRASHED; status++)
		if (strcmp(text, hf_client_status_name((enum hf_client_status)status)) == 0)
			return status;
	return -1;
}

static const char *read_params(struct hf_api_request *request)
{
	const struct hf_api_target *target = &request->target;
	const char *limit = hf_api_target_param(target, "limit");
	const char *cursor = hf_api_target_param(target, "cursor");
	const char *status = hf_api_target_param(target, "status");
	uint64_t value = HF_API_DEFAULT_LIMIT;

	for (size_t i = 0; i < target->n_params; i++)
		if (!knows(request->route, target->params[i].name))
			return "The query has an unknown parameter; see /api/v1/openapi.json.";
	if (limit && !hf_api_parse_number(limit, 1, HF_API_MAX_LIMIT, &value))
		return "limit must be a whole number from 1 to 1000.";
	request->limit = (size_t)value;
	if (cursor && !hf_api_cursor_parse(cursor, request->cursor, HF_API_CURSOR_WORDS))
		return "cursor must be the value of next on the previous page.";
	request->has_cursor = cursor != NULL;
	request->status_filter = status ? parse_status(status) : -1;
	if (status && request->status_filter < 0)
		return "status must be active, notified, unreachable or crashed.";
	return NULL;
}

/* The call of a request */

static void allow(struct hf_api_request *request, const char *method)
{
	size_t len = strlen(request->allow);

	snprintf(request->allow + len, sizeof(request->allow) - len, "%s%s%s", len ? ", " : "", method,
		 strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

void hf_api_request_route(struct hf_api_request *request, const char *method)
{
	const char *wrong = request->wrong;
	bool is_path = false;

	/* A HEAD is a GET whose answer has no body. */
	if (strcmp(method, "HEAD") == 0)
		method = "GET";
	for (size_t i = 0; i < HF_ARRAY_SIZE(routes) && !wrong && !request->route; i++) {
		const struct hf_api_route *route = &routes[i];

		if (!hf_api_target_matches(&request->target, route->pattern, &request->id))
			continue;
		is_path = true;
		allow(request, route->method);
		if (strcmp(route->method, method) == 0)
			request->route = route;
	}
	if (wrong)
		hf_api_fail(request, 400, "bad_request", wrong);
	else if (!is_path)
		hf_api_fail(request, 404, "not_found", "This path does not exist; see /api/v1/openapi.json.");
	else if (!request->route)
		hf_api_fail(request, 405, "method_not_allowed", "This path does not have this method.");
	else if ((wrong = read_params(request)))
		hf_api_fail(request, 400, "bad_request", wrong);
}
