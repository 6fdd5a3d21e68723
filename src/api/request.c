/* One request: its memory and its result. */
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
