#include "api/answer.h"

#include <stdlib.h>
#include <string.h>

#include "api/assets.h"
#include "api/internal.h"

#define JSON_TYPE "application/json"
/* Seconds have three decimals, which a double cannot represent exactly: write 1.033, not
 * 1.0329999999999999. */
#define JSON_FORM (JSON_COMPACT | JSON_REAL_PRECISION(15))

static void add_common(struct MHD_Response *response, const char *type, const char *csp)
{
	MHD_add_response_header(response, "Content-Type", type);
	MHD_add_response_header(response, "Cache-Control", "no-store");
	MHD_add_response_header(response, "Content-Security-Policy", csp);
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(response, "X-Frame-Options", "DENY");
	MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
	MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
}

static enum MHD_Result send_response(struct hf_api_request *request, unsigned int code,
				     struct MHD_Response *response, const char *type, const char *csp)
{
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	add_common(response, type, csp);
	if (code == 401)
		MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
	if (code == 405)
		MHD_add_response_header(response, "Allow", request->allow);
	result = MHD_queue_response(request->connection, code, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result send_text(struct hf_api_request *request, unsigned int code, char *text, size_t len,
				 const char *type)
{
	struct MHD_Response *response =
		text ? MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE) : NULL;

	if (response)
		hf_api_door_sends(request->api, request->connection, len);
	else
		free(text);
	return send_response(request, code, response, type, "default-src 'none'; frame-ancestors 'none'");
}

static enum MHD_Result send_json(struct hf_api_request *request, unsigned int code, json_t *json)
{
	char *text = json ? json_dumps(json, JSON_FORM) : NULL;

	json_decref(json);
	return send_text(request, code, text, text ? strlen(text) : 0, JSON_TYPE);
}

static enum MHD_Result send_asset(struct hf_api_request *request, const struct hf_api_asset *asset)
{
	struct MHD_Response *response =
		MHD_create_response_from_buffer(asset->len, (void *)(uintptr_t)asset->data,
						MHD_RESPMEM_PERSISTENT);

	hf_api_door_sends(request->api, request->connection, 0); /* all callers share the asset */
	return send_response(request, 200, response, asset->type, asset->csp);
}

static enum MHD_Result send_events(struct hf_api_request *request)
{
	const char *since = hf_api_target_param(&request->target, "since");
	const char *last = MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, "Last-Event-ID");
	struct MHD_Response *response;
	uint64_t from = UINT64_MAX;

	if (since && !hf_api_parse_number(since, 0, UINT64_MAX - 1, &from))
		return send_json(request, 400,
				 hf_api_render_error("bad_request", "since must be the number of an event."));
	if (!since && last && hf_api_parse_number(last, 0, UINT64_MAX - 2, &from))
		from++;
	response = hf_events_stream(&request->api->events, request->connection, from);
	if (!response)
		return send_json(request, 503,
				 hf_api_render_error("too_many_readers",
						     "There are too many readers of events now."));
	hf_api_door_streams(request);
	MHD_add_response_header(response, "X-Accel-Buffering", "no");
	return send_response(request, 200, response, "text/event-stream",
			     "default-src 'none'; frame-ancestors 'none'");
}

static enum MHD_Result send_metrics(struct hf_api_request *request)
{
	size_t len = 0;
	char *text;

	if (!request->api->options.measures)
		return send_json(request, 404,
				 hf_api_render_error("not_found",
						     "metrics.enabled is false on this server."));
	text = hf_api_metrics_text(request, &len);
	return send_text(request, 200, text, len, "text/plain; version=0.0.4; charset=utf-8");
}

static enum MHD_Result answer(struct hf_api_request *request)
{
	const struct hf_api_route *route = request->route;
	const char *pattern = route ? route->pattern : "";

	if (request->code)
		return send_json(request, request->code,
				 hf_api_render_error(request->error, request->message));
	if (strcmp(pattern, "/") == 0)
		return send_asset(request, &hf_api_dashboard);
	if (strcmp(pattern, "/api/v1/openapi.json") == 0)
		return send_asset(request, &hf_api_openapi);
	if (strcmp(pattern, "/api/v1/events") == 0)
		return send_events(request);
	if (strcmp(pattern, "/metrics") == 0)
		return send_metrics(request);
	if (request->not_ready)
		return send_json(request, 503, route->show(request));
	return send_json(request, route->status ? route->status : 200, route->show(request));
}

/* The caller may take its time to read the answer. Until then only the text stays in memory. */
enum MHD_Result hf_api_answer(struct hf_api_request *request)
{
	enum MHD_Result result = answer(request);

	hf_api_request_forget_rows(request);
	return result;
}
