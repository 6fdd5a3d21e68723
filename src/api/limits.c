/* What uses up which limit: on the loop, a slice of the clients each turn. */
#include <string.h>

#include "api/internal.h"
#include "client/client.h"

/* Limits for each client; the others that clients use up are for each address. */
static bool is_by_client(enum hf_limit limit)
{
	return limit == HF_LIMIT_WAITERS_PER_CLIENT || limit == HF_LIMIT_LOCKS_PER_CLIENT ||
	       limit == HF_LIMIT_LOCK_BYTES_PER_CLIENT || limit == HF_LIMIT_OWNER_BYTES_PER_CLIENT ||
	       limit == HF_LIMIT_RESERVATIONS_PER_CLIENT;
}

void hf_api_begin_limits(struct hf_api_request *request)
{
	struct hf_api *api = request->api;
	const struct hf_api_options *options = &api->options;

	if (options->limits.show)
		options->limits.show(options->limits.user, request->limits);
	hf_lock_show_limits(hf_recovery_locks(options->recovery), request->limits);
	hf_lock_show_file_limits(hf_recovery_locks(options->recovery), request->limits);
	hf_clients_show_limits(hf_recovery_clients(options->recovery), request->limits);
	hf_api_render_door_limits(api, request->limits);
	hf_events_show_limit(&api->events, request->limits);
}

void hf_api_note_limits(struct hf_api_request *request, const struct hf_client *client)
{
	const struct hf_api_options *options = &request->api->options;
	struct hf_limit_use uses[HF_N_LIMITS] = { 0 };

	hf_lock_show_client_limits(hf_recovery_locks(options->recovery), &client->locking,
				   hf_loop_now(options->loop), uses);
	for (size_t i = HF_LIMIT_WAITERS_PER_CLIENT; i <= HF_LIMIT_LOCK_SEARCHES; i++)
		if (uses[i].used > request->limits[i].used) {
			request->limits[i].used = uses[i].used;
			request->limit_users[i] = client->serial;
		}
}

static void set_by(struct hf_api_request *request, enum hf_limit limit, const char *text)
{
	request->limit_by[limit] = hf_api_copy(request, text, strlen(text));
}

static void name_user(struct hf_api_request *request, enum hf_limit limit)
{
	hf_cleanup(hf_client_unrefp) struct hf_client *client = NULL;
	const struct hf_addr *by = &request->limits[limit].by;
	char address[HF_ADDR_TEXT];

	if (by->family)
		set_by(request, limit, hf_addr_format(by, address, sizeof(address)));
	if (!request->limit_users[limit])
		return;
	client = hf_clients_next(hf_recovery_clients(request->api->options.recovery),
				 request->limit_users[limit] - 1);
	if (!client || client->serial != request->limit_users[limit])
		return; /* it is gone meanwhile */
	set_by(request, limit,
	       is_by_client(limit) ? client->id : hf_addr_format(&client->address, address, sizeof(address)));
}

int hf_api_query_limits(struct hf_api_request *request)
{
	struct hf_clients *clients = hf_recovery_clients(request->api->options.recovery);

	if (!request->has_begun)
		hf_api_begin_limits(request);
	request->has_begun = true;
	for (size_t i = 0; i < HF_API_SLICE && !request->code; i++) {
		hf_cleanup(hf_client_unrefp) struct hf_client *client =
			hf_clients_next(clients, request->cursor[0]);

		if (!client) {
			for (enum hf_limit limit = 0; limit < HF_N_LIMITS; limit++)
				name_user(request, limit);
			return HF_API_DONE;
		}
		hf_api_note_limits(request, client);
		request->cursor[0] = client->serial;
	}
	return request->code ? HF_API_DONE : HF_API_MORE;
}

json_t *hf_api_render_limits(struct hf_api_request *request)
{
	json_t *all = json_array();

	for (size_t i = 0; i < HF_N_LIMITS; i++) {
		const struct hf_limit_use *use = &request->limits[i];

		if (!use->max)
			continue;
		json_array_append_new(all,
				      json_pack("{s:s,s:s,s:I,s:I,s:I,s:b,s:o}", "name", hf_limits[i].name,
						"what", hf_limits[i].help, "used", (json_int_t)use->used,
						"max", (json_int_t)use->max, "refused",
						(json_int_t)use->refused, "is_cache", hf_limits[i].is_cache,
						"by", hf_api_render_text(request->limit_by[i])));
	}
	return json_pack("{s:o}", "limits", all);
}
