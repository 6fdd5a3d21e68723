/* One request: its memory, its route and its parameters. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"

#define BLOCK_SIZE 16384
#define MAX_MEMORY (8 << 20)
#define MAX_ROWS   (MAX_MEMORY / 4) /* for the texts of a page's rows: a client chooses how long they are */
#define MAX_USED   (MAX_MEMORY / 16 * 15) /* then each of 1,000 rows can have the longest path */

struct hf_api_block {
	struct hf_api_block *next;
	size_t used, size;
	size_t total; /* of this block and all before it */
	char data[];
};

/* Memory */

struct hf_api_request *hf_api_request_new(struct hf_api *api)
{
	struct hf_api_request *request = calloc(1, sizeof(*request));

	if (!request)
		return NULL;
	request->api = api;
	hf_link_init(&request->link);
	return request;
}

void hf_api_request_forget_rows(struct hf_api_request *request)
{
	while (request->memory) {
		struct hf_api_block *block = request->memory;

		request->memory = block->next;
		free(block);
	}
	free(request->rows);
	request->rows = NULL;
	request->n_rows = request->rows_size = 0;
}

void hf_api_request_free(struct hf_api_request *request)
{
	if (!request)
		return;
	hf_api_request_forget_rows(request);
	free(request);
}

void hf_api_resume(struct hf_api_request *request)
{
	request->stage = HF_API_LOOKED;
	MHD_resume_connection(request->connection);
	/* @request may be gone here */
}

void hf_api_fail(struct hf_api_request *request, unsigned int code, const char *error, const char *message)
{
	request->code = code;
	request->error = error;
	request->message = message;
}

static void fail_memory(struct hf_api_request *request)
{
	hf_api_fail(request, 503, "no_memory", "There is not enough memory for this answer now.");
}

char *hf_api_copy(struct hf_api_request *request, const void *data, size_t len)
{
	struct hf_api_block *block = request->memory;
	char *copy;

	if (!block || block->size - block->used < len + 1) {
		size_t size = HF_MAX((size_t)BLOCK_SIZE, len + 1);
		size_t total = size + (block ? block->total : 0);

		block = total <= MAX_MEMORY ? malloc(sizeof(*block) + size) : NULL;
		if (!block) {
			fail_memory(request);
			return NULL;
		}
		*block = (struct hf_api_block){ .next = request->memory, .size = size, .total = total };
		request->memory = block;
	}
	copy = block->data + block->used;
	if (len)
		memcpy(copy, data, len);
	copy[len] = '\0';
	block->used += len + 1;
	return copy;
}

void *hf_api_add_row(struct hf_api_request *request, size_t size)
{
	size_t wanted = (request->n_rows + 1) * size;
	char *row;

	if (wanted > request->rows_size) {
		size_t room = HF_MAX(wanted, 2 * request->rows_size);
		void *rows = realloc(request->rows, room);

		if (!rows) {
			fail_memory(request);
			return NULL;
		}
		request->rows = rows;
		request->rows_size = room;
	}
	row = (char *)request->rows + request->n_rows++ * size;
	memset(row, 0, size);
	return row;
}

bool hf_api_has_room_for_row(const struct hf_api_request *request)
{
	return !request->n_rows || !request->memory || request->memory->total < MAX_ROWS;
}

bool hf_api_has_room(const struct hf_api_request *request)
{
	return !request->memory || request->memory->total < MAX_USED;
}

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

/* Route */

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
	for (size_t i = 0; i < hf_api_n_routes && !wrong && !request->route; i++) {
		const struct hf_api_route *route = &hf_api_routes[i];

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
