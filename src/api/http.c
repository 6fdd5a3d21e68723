/*
 * libmicrohttpd: one thread of its own serves all connections, and suspends
 * those that wait for the loop. A request is created when its first line has
 * arrived, checked after its headers, and served after its body. No call needs
 * a body, so a few bytes are allowed and ignored.
 */
#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "api/answer.h"
#include "api/internal.h"
#include "base/error.h"
#include "base/log.h"

/* At this limit the library stops accepting. Connections above HF_API_MAX_DOORS are about to be closed. */
#define MAX_CONNECTIONS (HF_API_MAX_DOORS + 64)
#define MAX_HEADERS     32768 /* includes the target; the library answers 431 beyond */
#define MAX_BODY        4096
#define SILENCE_SECONDS 30u

/* Requests */

static void *on_target(void *user, const char *uri, struct MHD_Connection *connection)
{
	struct hf_api_request *request = hf_api_request_new(user);

	if (request)
		request->wrong = hf_api_target_parse(&request->target, uri);
	return request;
}

static void on_completed(void *user, struct MHD_Connection *connection, void **contextp,
			 enum MHD_RequestTerminationCode code)
{
	struct hf_api *api = user;

	hf_api_request_free(*contextp);
	*contextp = NULL;
	hf_api_set_door(api, connection, HF_API_DOOR_WAITS);
}

/* Over a Unix socket the kernel names the peer. */
static void name_local_peer(struct hf_api_request *request)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct ucred who;
	socklen_t len = sizeof(who);

	if (info && getsockopt(info->connect_fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0)
		snprintf(request->peer, sizeof(request->peer), "unix,uid=%u,pid=%d", who.uid, who.pid);
	else
		snprintf(request->peer, sizeof(request->peer), "unix");
}

static void name_peer(struct hf_api_request *request)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	struct hf_addr addr;

	if (info && info->client_addr && hf_addr_from_sockaddr(&addr, info->client_addr))
		hf_addr_format_with_port(&addr, request->peer, sizeof(request->peer));
	else
		name_local_peer(request);
}

struct header_search {
	struct hf_api_caller *caller;
	size_t n[4];
};

static enum MHD_Result on_header(void *user, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct header_search *search = user;
	struct hf_api_caller *caller = search->caller;
	static const char *const names[] = { "Host", "Origin", "Sec-Fetch-Site", "Authorization" };
	const char **const fields[] = { &caller->host, &caller->origin, &caller->fetch_site,
					&caller->authorization };

	for (size_t i = 0; i < HF_ARRAY_SIZE(names); i++) {
		if (strcasecmp(name, names[i]) != 0)
			continue;
		caller->is_sent_twice |= search->n[i]++ > 0;
		*fields[i] = value ? value : "";
	}
	return MHD_YES;
}

static void log_refusal(struct hf_api_request *request)
{
	struct hf_api *api = request->api;
	uint64_t n_suppressed;

	if (hf_log_limit_allow(&api->refusals, hf_loop_clock(api->options.loop), &n_suppressed))
		hf_log_warn("refused an API call that changes something",
			    "peer=%s method=%s path=%s reason=%s more=%llu", request->peer,
			    request->route->method, request->route->pattern, request->error,
			    (unsigned long long)n_suppressed);
}

static enum hf_api_access needs(const struct hf_api_guard *guard, const struct hf_api_route *route)
{
	if (route && route->changes)
		return HF_API_ACCESS_CHANGE;
	return guard->needs_token && !(route && route->is_open) ? HF_API_ACCESS_VIEW : HF_API_ACCESS_NONE;
}

/* A reload may replace the tokens meanwhile. */
static struct hf_api_guard guard_of(struct hf_api *api)
{
	struct hf_api_guard guard;

	pthread_mutex_lock(&api->lock);
	guard = api->guard;
	pthread_mutex_unlock(&api->lock);
	return guard;
}

static void ask_guard(struct hf_api_request *request)
{
	const struct hf_api_guard guard = guard_of(request->api);
	const struct hf_api_route *route = request->route;
	enum hf_api_access needed = needs(&guard, route);
	struct hf_api_caller caller = { .is_visitor = route && route->is_open };
	struct header_search search = { .caller = &caller };

	MHD_get_connection_values(request->connection, MHD_HEADER_KIND, on_header, &search);
	request->n_replaced = guard.n_replaced;
	request->access = hf_api_guard_access(&guard, &caller);
	switch (hf_api_guard_ask(&guard, &caller, needed)) {
	case HF_API_SENT_TWICE:
		hf_api_fail(request, 400, "bad_request",
			    "Host, Origin, Sec-Fetch-Site or Authorization is sent twice; send each once.");
		break;
	case HF_API_BAD_HOST:
		hf_api_fail(request, 421, "wrong_host",
			    "The Host header is wrong; call the server by a loopback address.");
		break;
	case HF_API_BAD_ORIGIN:
		hf_api_fail(request, 403, "wrong_origin", "Pages of other sites may not call this server.");
		break;
	case HF_API_NO_TOKEN:
		hf_api_fail(request, 401, "no_token",
			    "This call needs the header Authorization: Bearer TOKEN, with the token from the "
			    "server's token file.");
		break;
	case HF_API_BAD_TOKEN:
		hf_api_fail(request, 401, "wrong_token", "The token is wrong.");
		break;
	case HF_API_VIEW_ONLY:
		hf_api_fail(request, 403, "view_only",
			    "This token may only look; a change needs the token of api.token_file.");
		break;
	case HF_API_MAY:
		return;
	}
	if (route && route->changes)
		log_refusal(request);
}

static bool is_body_too_long(struct MHD_Connection *connection)
{
	const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
	uint64_t value;

	return length && (!hf_api_parse_number(length, 0, UINT32_MAX, &value) || value > MAX_BODY);
}

/* The headers are complete. Answer a body that is too long before the caller sends it. */
static enum MHD_Result accept_request(struct hf_api_request *request, const char *method)
{
	name_peer(request);
	hf_api_request_route(request, method);
	request->stage = HF_API_ACCEPTED;
	if (request->code != 400 && request->code != 431)
		ask_guard(request);
	if (is_body_too_long(request->connection)) {
		hf_api_fail(request, 413, "too_large", "The request body is too long.");
		request->is_answered = true;
		return hf_api_answer(request);
	}
	return MHD_YES;
}

/* The connection is suspended. The queue is as long as there are connections. */
static void wait_for_loop(struct hf_api_request *request)
{
	struct hf_api *api = request->api;
	bool is_first;

	pthread_mutex_lock(&api->lock);
	/* Whatever waits when the API stops has been resumed; what comes after that would wait for ever. */
	if (atomic_load(&api->is_stopping)) {
		pthread_mutex_unlock(&api->lock);
		hf_api_fail(request, 503, "stopping", "The server is stopping.");
		hf_api_resume(request);
		return;
	}
	hf_list_push_back(&api->waiting, &request->link);
	is_first = !api->is_posted;
	api->is_posted = true;
	pthread_mutex_unlock(&api->lock);
	if (is_first)
		hf_loop_post(api->options.loop, &api->task);
}

/* Its token was replaced while the caller sent the body. */
static bool is_guard_new(struct hf_api_request *request)
{
	struct hf_api *api = request->api;
	bool is_new;

	pthread_mutex_lock(&api->lock);
	is_new = request->n_replaced != api->guard.n_replaced;
	pthread_mutex_unlock(&api->lock);
	return is_new;
}

static enum MHD_Result serve(struct hf_api_request *request)
{
	struct hf_api *api = request->api;

	hf_api_set_door(api, request->connection, HF_API_DOOR_SERVES);
	if (!request->code && is_guard_new(request))
		ask_guard(request);
	if (atomic_load(&api->is_stopping))
		hf_api_fail(request, 503, "stopping", "The server is stopping.");
	/* Answer without the loop, which may not run yet. */
	else if (!request->code && request->route->look == hf_api_query_ready &&
		 !atomic_load(&api->is_ready) && !hf_api_is_standby(api))
		hf_api_fail(request, 503, "not_ready", "The server is starting.");
	if (request->code || !request->route->look) {
		request->stage = HF_API_LOOKED;
		return hf_api_answer(request);
	}
	request->stage = HF_API_WAITS;
	MHD_suspend_connection(request->connection);
	wait_for_loop(request);
	return MHD_YES;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_len, void **contextp)
{
	struct hf_api_request *request = *contextp;

	if (!request)
		return MHD_NO; /* no memory: close the connection */
	switch (request->stage) {
	case HF_API_FRESH:
		request->connection = connection;
		return accept_request(request, method);
	case HF_API_ACCEPTED:
		if (*upload_len) {
			request->n_body += *upload_len;
			*upload_len = 0;
			/* The caller announced no length, so count the bytes. */
			return request->n_body > MAX_BODY ? MHD_NO : MHD_YES;
		}
		return request->is_answered ? MHD_YES : serve(request);
	case HF_API_WAITS:
		return MHD_YES;
	case HF_API_LOOKED:
		break;
	}
	return hf_api_answer(request);
}

/* Making and freeing */

static size_t leave_escaped(void *user, struct MHD_Connection *connection, char *text)
{
	return strlen(text);
}

static void log_nothing(void *user, const char *format, va_list args)
{
	/* Drop the library's messages about peers: peers could forge lines with them. */
}

int hf_api_http_start(struct hf_api *api)
{
	const struct MHD_OptionItem plain[] = { { MHD_OPTION_END, 0, NULL } };
	const struct MHD_OptionItem https[] = {
		{ MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)hf_api_tls_priorities },
		{ MHD_OPTION_HTTPS_CERT_CALLBACK, 0, hf_api_no_certificate() },
		{ MHD_OPTION_END, 0, NULL },
	};

	api->http =
		MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME |
					 MHD_USE_ERROR_LOG | (api->is_https ? (unsigned int)MHD_USE_TLS : 0),
				 0, NULL, NULL, on_request, api, MHD_OPTION_EXTERNAL_LOGGER, log_nothing,
				 NULL, MHD_OPTION_LISTEN_SOCKET, api->fd, MHD_OPTION_URI_LOG_CALLBACK,
				 on_target, api, MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, NULL,
				 MHD_OPTION_NOTIFY_COMPLETED, on_completed, api, MHD_OPTION_NOTIFY_CONNECTION,
				 hf_api_on_connection, api, MHD_OPTION_CONNECTION_LIMIT,
				 (unsigned int)MAX_CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
				 (size_t)MAX_HEADERS, MHD_OPTION_CONNECTION_TIMEOUT, SILENCE_SECONDS,
				 MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY,
				 api->is_https ? https : plain, MHD_OPTION_END);
	if (!api->http)
		return hf_trace(-EIO);
	return 0;
}

void hf_api_http_stop(struct hf_api *api)
{
	struct hf_link *link;

	if (!api->http)
		return;
	/* The loop will not serve these requests any more. Suspended connections must resume before the
	 * end. */
	pthread_mutex_lock(&api->lock);
	while ((link = hf_list_pop_front(&api->waiting))) {
		struct hf_api_request *request = hf_list_entry(link, struct hf_api_request, link);

		hf_api_fail(request, 503, "stopping", "The server is stopping.");
		hf_api_resume(request);
	}
	pthread_mutex_unlock(&api->lock);
	hf_api_end_delays(api);
	hf_api_end_reloads(api);
	hf_api_names_stop(api);
	/* The call that ends the server, as an order to hand its service over, wants its answer, too. */
	hf_api_await_answers(api);
	MHD_stop_daemon(api->http); /* also closes the listening socket */
	api->fd = -1;
	api->http = NULL;
}
