/* On the HTTP thread: makes JSON of what the loop has copied. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/files.h"
#include "api/internal.h"
#include "base/hex.h"

json_t *hf_api_render_text(const char *text)
{
	return text ? json_string(text) : json_null();
}

json_t *hf_api_render_time(uint64_t wall_ns)
{
	time_t seconds = (time_t)(wall_ns / HF_NS_PER_S);
	char text[64];
	struct tm tm;
	size_t len;

	if (!wall_ns || !gmtime_r(&seconds, &tm))
		return json_null();
	len = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text + len, sizeof(text) - len, ".%03uZ",
		 (unsigned int)(wall_ns % HF_NS_PER_S / HF_NS_PER_MS));
	return json_string(text);
}

json_t *hf_api_render_seconds(uint64_t ns)
{
	return json_real((double)(ns / HF_NS_PER_MS) / 1000.0);
}

json_t *hf_api_render_error(const char *error, const char *message)
{
	return json_pack("{s:{s:s,s:s}}", "error", "code", error, "message", message);
}

json_t *hf_api_render_health(struct hf_api_request *request)
{
	return json_pack("{s:s}", "status", "ok");
}

json_t *hf_api_render_ready(struct hf_api_request *request)
{
	return json_pack("{s:s}", "status", request->not_ready ? request->not_ready : "ok");
}

/* State */

json_t *hf_api_render_grace(struct hf_api_request *request)
{
	const struct hf_grace_info *grace = &request->status.grace;

	return json_pack("{s:b,s:o,s:s,s:I}", "active", grace->is_active, "ends_in_seconds",
			 hf_api_render_seconds(grace->is_active ? grace->ends_in_ns : 0), "reason",
			 grace->reason, "unreclaimed", (json_int_t)grace->n_unreclaimed);
}

/* "server.port,server.user" -> an array */
static json_t *keys_of(const char *text)
{
	json_t *keys = json_array();

	while (*text) {
		size_t len = strcspn(text, ",");

		json_array_append_new(keys, json_stringn(text, len));
		text += len + (text[len] == ',');
	}
	return keys;
}

/* The texts are NULL if there was no memory for them. */
json_t *hf_api_render_reload(struct hf_api_request *request)
{
	const struct hf_api_status *status = &request->status;

	if (!status->reloaded_at || !status->fixed || !status->not_loaded)
		return json_null();
	return json_pack("{s:o,s:b,s:o,s:o}", "at", hf_api_render_time(status->reloaded_at), "loaded",
			 status->is_loaded, "at_next_start", keys_of(status->fixed), "reason",
			 status->is_loaded ? json_null() : hf_api_render_text(status->not_loaded));
}

/* What the caller's token is worth; NULL: it sent none, or a wrong one. */
static const char *access_of(const struct hf_api_request *request)
{
	static const char *const names[] = {
		[HF_API_ACCESS_VIEW] = "view", [HF_API_ACCESS_CHANGE] = "change"
	};

	return names[request->access];
}

json_t *hf_api_render_status(struct hf_api_request *request)
{
	const struct hf_api_status *status = &request->status;
	const struct hf_recovery_counts *counts = &status->recovery;
	bool is_standby = hf_api_is_standby(request->api);
	json_t *json;

	/* A standby does not know the state number, nor whether the active node's store can write. */
	json = json_pack("{s:s,s:s,s:o,s:I,s:o,s:{s:s,s:s?,s:o},s:o,s:I,s:I,s:I,s:{s:I,s:I,s:I}}", "name",
			 request->api->options.server_name, "version", HF_VERSION, "uptime_seconds",
			 hf_api_render_seconds(status->uptime_ns), "epoch", (json_int_t)status->epoch,
			 "sm_state", is_standby ? json_null() : json_integer(status->sm_state), "store",
			 "backend", status->backend, "lock_durability", status->durability, "healthy",
			 is_standby ? json_null() : json_boolean(status->store_is_healthy), "grace",
			 hf_api_render_grace(request), "clients", (json_int_t)status->n_clients, "locks",
			 (json_int_t)status->locks.locks, "waiters", (json_int_t)status->locks.waiters,
			 "notifications", "waiting", (json_int_t)counts->notices_waiting, "in_flight",
			 (json_int_t)counts->notices_in_flight, "unreachable",
			 (json_int_t)counts->unreachable);
	if (!is_standby)
		json_object_set_new(json, "reservations",
				    json_integer((json_int_t)status->locks.reservations));
	json_object_set_new(json, "reload", hf_api_render_reload(request));
	if (!is_standby)
		json_object_set_new(json, "exports", json_integer((json_int_t)status->n_exports));
	if (!is_standby)
		json_object_set_new(json, "per_client", json_boolean(request->usage != NULL));
	if (status->role)
		json_object_set_new(json, "role", json_string(status->role));
	json_object_set_new(json, "access", hf_api_render_text(access_of(request)));
	return json;
}

/* Lists */

json_t *hf_api_render_page(const char *name, json_t *items, const struct hf_api_request *request)
{
	char text[HF_API_CURSOR_TEXT];
	json_t *next = json_null();

	if (request->has_next) {
		hf_api_cursor_format(request->next, HF_API_CURSOR_WORDS, text);
		next = json_string(text);
	}
	return json_pack("{s:o,s:o}", name, items, "next", next);
}

static json_t *client_of(const struct hf_api_client_row *row)
{
	char address[HF_ADDR_TEXT];
	json_t *callback = json_null();

	if (row->callback_host)
		callback = json_pack("{s:s,s:I,s:I,s:I}", "host", row->callback_host, "program",
				     (json_int_t)row->program, "version", (json_int_t)row->version,
				     "procedure", (json_int_t)row->procedure);
	return json_pack("{s:s,s:s,s:o,s:s,s:o,s:i,s:s,s:I,s:I,s:I,s:o,s:o,s:o,s:s,s:o,s:s,s:o,s:I}", "id",
			 row->id, "protocol", row->protocol, "mon_name", hf_api_render_text(row->mon_name),
			 "address", hf_addr_format(&row->address, address, sizeof(address)), "callback",
			 callback, "sm_state", row->sm_state, "status", hf_client_status_name(row->status),
			 "locks", (json_int_t)row->n_locks, "waiters", (json_int_t)row->n_waiters,
			 "reservations", (json_int_t)row->n_reservations, "registered_at",
			 hf_api_render_time(row->registered_at), "last_seen",
			 hf_api_render_time(row->last_seen), "silent_seconds",
			 hf_api_render_seconds(row->silent_ns), "transport", row->transport, "identity",
			 hf_api_render_text(row->identity), "tls_connection", row->tls_connection,
			 "authenticated_as", hf_api_render_text(row->authenticated_as), "refused_calls",
			 (json_int_t)row->n_refused);
}

json_t *hf_api_render_clients(struct hf_api_request *request)
{
	const struct hf_api_client_row *rows = request->rows;
	json_t *items = json_array();

	for (size_t i = 0; i < request->n_rows; i++)
		json_array_append_new(items, client_of(&rows[i]));
	return hf_api_render_page("clients", items, request);
}

static json_t *handle_of(const struct hf_api_lock_row *row)
{
	char text[2 * HF_LOCK_HANDLE_MAX + 1];

	*hf_hex_put(text, row->handle, row->handle_len) = '\0';
	return json_string(text);
}

/* The fields that locks and waiters share */
static json_t *range_of(const struct hf_api_lock_row *row)
{
	return json_pack("{s:s,s:o,s:o,s:s,s:s,s:I,s:I,s:s}", "share", row->export, "file",
			 hf_api_render_text(row->file), "handle", handle_of(row), "client", row->client,
			 "owner", row->owner, "offset", (json_int_t)row->range.start, "length",
			 (json_int_t)hf_range_len(row->range), "mode",
			 row->mode == HF_LOCK_EXCLUSIVE ? "exclusive" : "shared");
}

static json_t *locks_of(struct hf_api_request *request)
{
	const struct hf_api_lock_row *rows = request->rows;
	json_t *items = json_array();

	for (size_t i = 0; i < request->n_rows; i++) {
		json_t *lock = range_of(&rows[i]);

		json_object_set_new(lock, "state",
				    json_string(rows[i].flags & HF_LOCK_UNRECLAIMED ? "unreclaimed"
										    : "held"));
		json_array_append_new(items, lock);
	}
	return items;
}

json_t *hf_api_render_locks(struct hf_api_request *request)
{
	return hf_api_render_page("locks", locks_of(request), request);
}

json_t *hf_api_render_client(struct hf_api_request *request)
{
	json_t *client = client_of(&request->client);

	json_object_set_new(client, "lock_count", json_integer(request->client.n_locks));
	json_object_set_new(client, "locks", locks_of(request)); /* replaces their number */
	json_object_set_new(client, "has_more_locks", json_boolean(request->has_next));
	return client;
}

json_t *hf_api_render_waiters(struct hf_api_request *request)
{
	const struct hf_api_lock_row *rows = request->rows;
	json_t *items = json_array();

	for (size_t i = 0; i < request->n_rows; i++) {
		json_t *waiter = range_of(&rows[i]);
		json_t *owners = json_array(), *clients = json_array();

		for (size_t j = 0; j < rows[i].n_blockers; j++) {
			json_array_append_new(owners, json_string(rows[i].blockers[j]));
			json_array_append_new(clients, json_string(rows[i].blocking_clients[j]));
		}
		json_object_set_new(waiter, "waiting_seconds", hf_api_render_seconds(rows[i].waits_ns));
		json_object_set_new(waiter, "blocked_by", owners);
		json_object_set_new(waiter, "blocked_by_clients", clients);
		json_array_append_new(items, waiter);
	}
	return hf_api_render_page("waiters", items, request);
}

static const char *access_name(uint8_t access)
{
	static const char *const names[] = { "none", "read", "write", "read_write" };

	return names[access & 3];
}

static const char *deny_name(uint8_t deny)
{
	static const char *const names[] = { "deny_none", "deny_read", "deny_write", "deny_read_write" };

	return names[deny & 3];
}

json_t *hf_api_render_reservations(struct hf_api_request *request)
{
	const struct hf_api_lock_row *rows = request->rows;
	json_t *items = json_array();

	for (size_t i = 0; i < request->n_rows; i++)
		json_array_append_new(items,
				      json_pack("{s:s,s:o,s:o,s:s,s:s,s:s,s:s,s:I,s:I}", "share",
						rows[i].export, "file", hf_api_render_text(rows[i].file),
						"handle", handle_of(&rows[i]), "client", rows[i].client,
						"owner", rows[i].owner, "mode", deny_name(rows[i].deny),
						"access", access_name(rows[i].access), "count",
						(json_int_t)rows[i].n_reserved, "unreclaimed",
						(json_int_t)rows[i].n_unreclaimed));
	return hf_api_render_page("reservations", items, request);
}

json_t *hf_api_render_exports(struct hf_api_request *request)
{
	const struct hf_api_export_row *rows = request->rows;
	json_t *items = hf_api_exports_of(request->api->options.exports, rows, request->n_rows);
	size_t n = json_array_size(items), from = HF_MIN((size_t)request->cursor[0], n);
	json_t *page = json_array();

	for (size_t i = from; i < n && i < from + request->limit; i++)
		json_array_append(page, json_array_get(items, i));
	request->has_next = from + request->limit < n;
	request->next[0] = from + request->limit;
	json_decref(items);
	return hf_api_render_page("shares", page, request);
}

/* Orders */

json_t *hf_api_render_released(struct hf_api_request *request)
{
	return json_pack("{s:I}", "locks_released", (json_int_t)request->n_released);
}

json_t *hf_api_render_accepted(struct hf_api_request *request)
{
	return json_pack("{s:s}", "status", "accepted");
}
