/*
 * On the loop: clients, locks, waiters and reservations, a slice each turn. A position in a
 * list is a number that only rises. So an entry that exists from the first page
 * to the last appears once, while others come and go.
 */
#include <stdio.h>
#include <string.h>

#include "api/internal.h"
#include "base/hex.h"
#include "client/client.h"
#include "tls/tls.h"

/* Texts */

const char *hf_api_owner_text(const struct hf_lock_view *view, char *out, size_t size)
{
	const struct hf_client *client = hf_container_of(view->who.client, struct hf_client, locking);
	size_t len = (size_t)snprintf(out, size, "%s:%s:%d:", client->protocol, client->name,
				      (int32_t)view->who.owner_id);

	len = HF_MIN(len, size - 1);
	*hf_hex_put(out + len, view->who.oh.data, HF_MIN(view->who.oh.len, (size - 1 - len) / 2)) = '\0';
	return out;
}

static const char *copy_owner(struct hf_api_request *request, const struct hf_lock_view *view)
{
	char text[HF_API_OWNER_TEXT];

	hf_api_owner_text(view, text, sizeof(text));
	return hf_api_copy(request, text, strlen(text));
}

static const char *copy_text(struct hf_api_request *request, const char *text)
{
	return text ? hf_api_copy(request, text, strlen(text)) : NULL;
}

/* Clients */

static uint64_t silence_of(const struct hf_api_request *request, const struct hf_client *client)
{
	return hf_recovery_silence_ns(request->api->options.recovery, client);
}

/* The TLS connections from the client's address that may speak for the client. */
struct connected {
	const struct hf_client *client;
	const char *best;
	size_t len;
	char names[HF_CLIENT_MAX_IDENTITY + 1]; /* with blanks between them; as many as fit */
};

static bool add_peer(void *context, const struct hf_tls_peer *peer, uint64_t newest)
{
	struct connected *connected = context;

	if (!hf_client_is_bound_to(connected->client, peer))
		return false;
	if (peer->is_authenticated)
		connected->best = "mtls";
	else if (!connected->best)
		connected->best = "tls";
	for (size_t i = 0; i < peer->n_names; i++) {
		size_t room = sizeof(connected->names) - connected->len;
		int n = snprintf(connected->names + connected->len, room, "%s%s", connected->len ? " " : "",
				 peer->names[i]);

		if (n >= 0 && (size_t)n < room)
			connected->len += (size_t)n;
	}
	connected->names[connected->len] = '\0';
	return false;
}

/* What the client is bound to says nothing of its connections: it may have ended them, or show a certificate
 * where none is demanded. */
static void copy_connected(struct hf_api_request *request, struct hf_api_client_row *row,
			   const struct hf_client *client)
{
	const struct hf_api_presence *presence = &request->api->options.presence;
	struct connected connected = { .client = client };

	if (presence->find)
		presence->find(presence->user, &client->address, add_peer, &connected);
	row->tls_connection = connected.best ? connected.best : "none";
	row->authenticated_as = connected.len ? copy_text(request, connected.names) : NULL;
}

static void copy_client(struct hf_api_request *request, struct hf_api_client_row *row,
			const struct hf_client *client)
{
	*row = (struct hf_api_client_row){
		.id = copy_text(request, client->id),
		.protocol = client->protocol,
		.mon_name = copy_text(request, client->mon_name ? client->mon_name : client->name),
		.callback_host = copy_text(request, client->callback.host),
		.address = client->address,
		.program = client->callback.program,
		.version = client->callback.version,
		.procedure = client->callback.procedure,
		.sm_state = client->sm_state,
		.status = client->status,
		.n_locks = client->locking.n_locks,
		.n_waiters = client->locking.n_waiters,
		.n_reservations = client->locking.n_reservations,
		.registered_at = client->registered_at,
		.last_seen = client->last_seen,
		.silent_ns = silence_of(request, client),
		.transport = hf_client_transport(client),
		.identity = copy_text(request, client->identity),
		.n_refused = client->n_refused,
	};
	copy_connected(request, row, client);
}

static bool is_client_wanted(const struct hf_api_request *request, const struct hf_client *client)
{
	const char *protocol = hf_api_target_param(&request->target, "protocol");

	if (protocol && strcmp(protocol, client->protocol) != 0)
		return false;
	return request->status_filter < 0 || client->status == (enum hf_client_status)request->status_filter;
}

/* true: the page is full; the next page continues after the last row. */
static bool is_page_full(struct hf_api_request *request)
{
	request->has_next = request->n_rows == request->limit || request->n_scanned >= HF_API_MAX_SCAN ||
			    !hf_api_has_room_for_row(request);
	return request->has_next;
}

int hf_api_query_clients(struct hf_api_request *request)
{
	struct hf_clients *clients = hf_recovery_clients(request->api->options.recovery);

	for (size_t i = 0; i < HF_API_SLICE && !request->code; i++) {
		hf_cleanup(hf_client_unrefp) struct hf_client *client =
			hf_clients_next(clients, request->cursor[0]);
		struct hf_api_client_row *row;

		if (!client)
			return HF_API_DONE;
		if (is_client_wanted(request, client)) {
			if (is_page_full(request)) {
				request->next[0] = request->cursor[0];
				return HF_API_DONE;
			}
			row = hf_api_add_row(request, sizeof(*row));
			if (row)
				copy_client(request, row, client);
		}
		request->cursor[0] = client->serial;
		request->n_scanned++;
	}
	return request->code ? HF_API_DONE : HF_API_MORE;
}

/* Locks and waiters */

static void begin_walk(struct hf_api_request *request)
{
	const uint64_t *words = request->cursor;

	request->has_begun = true;
	if (request->has_cursor)
		request->at = (struct hf_lock_cursor){ .owner = words[0],
						       .file = words[1],
						       .start = words[2],
						       .id = words[3],
						       .mode = (uint8_t)words[4],
						       .begun = words[5] != 0 };
}

static void end_page(struct hf_api_request *request, const struct hf_lock_cursor *before)
{
	const uint64_t words[HF_API_CURSOR_WORDS] = { before->owner, before->file, before->start,
						      before->id,    before->mode, before->begun };

	memcpy(request->next, words, sizeof(words));
}

static bool is_export_wanted(const struct hf_api_request *request, uint32_t export)
{
	const char *wanted = hf_api_target_param(&request->target, "share");

	return !wanted || hf_bytes_equal(hf_bytes_of_str(wanted),
					 hf_recovery_export_name(request->api->options.recovery, export));
}

/* The holders that block a waiter. The lock table names one at once; the others are looked for among the
 * first locks of the file, which for most files are all of them. To begin at the waiter's range could pass
 * over any number of locks in one step. */

typedef void (*blocker_fn)(void *context, const struct hf_lock_view *lock);

static bool is_in_the_way(const struct hf_lock_view *lock, const struct hf_lock_view *waiter)
{
	bool is_own = lock->who.client == waiter->who.client && lock->who.owner_id == waiter->who.owner_id;

	return !is_own && hf_range_overlaps(lock->range, waiter->range) &&
	       (lock->mode == HF_LOCK_EXCLUSIVE || waiter->mode == HF_LOCK_EXCLUSIVE);
}

/* A holder may come more than once. Returns how many locks it examined. */
static size_t find_blockers(const struct hf_api_request *request, const struct hf_lock_view *waiter,
			    blocker_fn fn, void *context)
{
	struct hf_locks *locks = hf_recovery_locks(request->api->options.recovery);
	struct hf_lock_scope scope = { .file = &waiter->who };
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view lock;
	size_t n = 0;

	if (hf_lock_test(locks, &waiter->who, waiter->range, waiter->mode, &lock) != HF_LOCK_E_CONFLICT)
		return 0;
	fn(context, &lock);
	while (n < HF_API_SLICE && hf_lock_next_lock(locks, &scope, &cursor, &lock)) {
		if (is_in_the_way(&lock, waiter))
			fn(context, &lock);
		n++;
	}
	return n;
}

static void add_blocker(struct hf_api_request *request, struct hf_api_lock_row *row, const char *owner,
			const char *client)
{
	for (size_t i = 0; i < row->n_blockers; i++)
		if (strcmp(row->blockers[i], owner) == 0 && strcmp(row->blocking_clients[i], client) == 0)
			return;
	row->blockers[row->n_blockers] = copy_text(request, owner);
	row->blocking_clients[row->n_blockers] = copy_text(request, client);
	row->n_blockers += !request->code;
}

struct blocked {
	struct hf_api_request *request;
	struct hf_api_lock_row *row;
};

static void add_holder(void *context, const struct hf_lock_view *holder)
{
	const struct blocked *blocked = context;
	struct hf_api_request *request = blocked->request;
	struct hf_api_lock_row *row = blocked->row;
	char owner[HF_API_OWNER_TEXT];

	if (row->n_blockers == HF_API_MAX_BLOCKERS)
		return;
	if (holder->who.client) {
		add_blocker(request, row, hf_api_owner_text(holder, owner, sizeof(owner)),
			    hf_container_of(holder->who.client, struct hf_client, locking)->id);
	} else {
		snprintf(owner, sizeof(owner), "local:%lld", (long long)holder->who.owner_id);
		add_blocker(request, row, owner, owner);
	}
}

/* Adds a row with the file and the client. NULL: no memory is left. */
static struct hf_api_lock_row *add_file_row(struct hf_api_request *request, uint32_t export,
					    struct hf_bytes key, struct hf_lock_client *client)
{
	struct hf_recovery *recovery = request->api->options.recovery;
	struct hf_api_lock_row *row = hf_api_add_row(request, sizeof(*row));
	struct hf_bytes name = hf_recovery_export_name(recovery, export);
	uint8_t room[HF_LOCK_HANDLE_MAX];
	struct hf_bytes handle;

	if (!row)
		return NULL;
	row->export = hf_api_copy(request, name.data, name.len);
	row->client = copy_text(request, hf_container_of(client, struct hf_client, locking)->id);
	handle = hf_recovery_handle_of(recovery, export, key, room);
	row->handle_len = handle.len;
	memcpy(row->handle, handle.data, handle.len);
	return row;
}

/* Returns how many locks it examined beside this one. */
static size_t copy_lock(struct hf_api_request *request, const struct hf_lock_view *view)
{
	struct hf_api_lock_row *row =
		add_file_row(request, view->who.export, view->who.handle, view->who.client);
	uint64_t now = hf_loop_now(request->api->options.loop);

	if (!row)
		return 0;
	row->owner = copy_owner(request, view);
	row->range = view->range;
	row->mode = view->mode;
	row->flags = view->flags;
	if (!view->waits)
		return 0;
	row->waits_ns = view->stamp && now > view->stamp ? now - view->stamp : 0;
	return find_blockers(request, view, add_holder, &(struct blocked){ request, row });
}

/* Counts a record that was examined. False: the list does not show it. The record at which the scan ends is
 * due in any case: the next page begins with it. */
static bool is_row_due(struct hf_api_request *request, uint32_t export)
{
	request->n_scanned++;
	return is_export_wanted(request, export) || request->n_scanned >= HF_API_MAX_SCAN;
}

typedef bool (*next_fn)(const struct hf_locks *locks, const struct hf_lock_scope *scope,
			struct hf_lock_cursor *cursor, struct hf_lock_view *viewp);

static int walk(struct hf_api_request *request, const struct hf_client *client, next_fn next)
{
	struct hf_locks *locks = hf_recovery_locks(request->api->options.recovery);
	struct hf_lock_scope scope = { .client = client ? &client->locking : NULL };
	struct hf_lock_view view;

	if (!request->has_begun)
		begin_walk(request);
	for (size_t i = 0; i < HF_API_SLICE && !request->code; i++) {
		struct hf_lock_cursor before = request->at;

		if (!next(locks, &scope, &request->at, &view))
			return HF_API_DONE;
		if (!is_row_due(request, view.who.export))
			continue;
		if (is_page_full(request)) {
			end_page(request, &before);
			return HF_API_DONE;
		}
		i += copy_lock(request, &view);
	}
	return request->code ? HF_API_DONE : HF_API_MORE;
}

/* The client that the list is limited to. False: it does not exist, so it holds nothing. */
static bool find_scope(struct hf_api_request *request, const char *id, struct hf_client **clientp)
{
	if (!id)
		return true;
	*clientp =
		hf_clients_find_id(hf_recovery_clients(request->api->options.recovery), hf_bytes_of_str(id));
	return *clientp;
}

static int walk_of(struct hf_api_request *request, const char *id, next_fn next)
{
	hf_cleanup(hf_client_unrefp) struct hf_client *client = NULL;

	return find_scope(request, id, &client) ? walk(request, client, next) : HF_API_DONE;
}

int hf_api_query_locks(struct hf_api_request *request)
{
	return walk_of(request, hf_api_target_param(&request->target, "client"), hf_lock_next_lock);
}

int hf_api_query_waiters(struct hf_api_request *request)
{
	return walk_of(request, hf_api_target_param(&request->target, "client"), hf_lock_next_waiter);
}

int hf_api_query_client(struct hf_api_request *request)
{
	if (!request->has_begun) {
		hf_cleanup(hf_client_unrefp) struct hf_client *client =
			hf_clients_find_id(hf_recovery_clients(request->api->options.recovery),
					   hf_bytes_of_str(request->id));

		if (!client) {
			hf_api_fail(request, 404, "not_found", "There is no client with this id.");
			return HF_API_DONE;
		}
		copy_client(request, &request->client, client);
		request->limit = HF_API_MAX_LIMIT;
	}
	return walk_of(request, request->id, hf_lock_next_lock);
}

/* Reservations. Their owner is a client and an owner handle, and no process. */

static const char *copy_reservation_owner(struct hf_api_request *request,
					  const struct hf_lock_reservation_view *view)
{
	const struct hf_client *client = hf_container_of(view->client, struct hf_client, locking);
	char text[HF_API_OWNER_TEXT];
	size_t len = (size_t)snprintf(text, sizeof(text), "%s:%s:", client->protocol, client->name);

	len = HF_MIN(len, sizeof(text) - 1);
	*hf_hex_put(text + len, view->oh.data, HF_MIN(view->oh.len, (sizeof(text) - 1 - len) / 2)) = '\0';
	return hf_api_copy(request, text, strlen(text));
}

static void copy_reservation(struct hf_api_request *request, const struct hf_lock_reservation_view *view)
{
	struct hf_api_lock_row *row = add_file_row(request, view->export, view->handle, view->client);

	if (!row)
		return;
	row->owner = copy_reservation_owner(request, view);
	row->access = view->access;
	row->deny = view->deny;
	row->n_reserved = view->count + view->n_unreclaimed;
	row->n_unreclaimed = view->n_unreclaimed;
}

int hf_api_query_reservations(struct hf_api_request *request)
{
	struct hf_locks *locks = hf_recovery_locks(request->api->options.recovery);
	hf_cleanup(hf_client_unrefp) struct hf_client *client = NULL;
	struct hf_lock_reservation_view view;

	if (!find_scope(request, hf_api_target_param(&request->target, "client"), &client))
		return HF_API_DONE;
	if (!request->has_begun)
		begin_walk(request);
	for (size_t i = 0; i < HF_API_SLICE && !request->code; i++) {
		struct hf_lock_cursor before = request->at;

		if (!hf_lock_next_reservation(locks, client ? &client->locking : NULL, &request->at, &view))
			return HF_API_DONE;
		if (!is_row_due(request, view.export))
			continue;
		if (is_page_full(request)) {
			end_page(request, &before);
			return HF_API_DONE;
		}
		copy_reservation(request, &view);
	}
	return request->code ? HF_API_DONE : HF_API_MORE;
}

/* For /metrics: the limits, and how long clients that hold locks are silent; then only those of them that
 * other clients wait for. */

/* True: all clients were looked at. */
static bool look_at_clients(struct hf_api_request *request)
{
	struct hf_clients *clients = hf_recovery_clients(request->api->options.recovery);
	struct hf_api_status *status = &request->status;

	for (size_t i = 0; i < HF_API_SLICE && !request->code; i++) {
		hf_cleanup(hf_client_unrefp) struct hf_client *client =
			hf_clients_next(clients, request->cursor[0]);

		if (!client)
			return true;
		if (client->locking.n_locks)
			status->silence_ns = HF_MAX(status->silence_ns, silence_of(request, client));
		hf_api_note_limits(request, client);
		request->cursor[0] = client->serial;
	}
	return false;
}

struct wait {
	struct hf_api_request *request;
	const struct hf_lock_view *waiter;
};

static void note_holder(void *context, const struct hf_lock_view *holder)
{
	const struct wait *wait = context;
	struct hf_api_status *status = &wait->request->status;
	uint64_t silence_ns;

	if (!holder->who.client || holder->who.client == wait->waiter->who.client)
		return;
	silence_ns =
		silence_of(wait->request, hf_container_of(holder->who.client, struct hf_client, locking));
	status->blocking_silence_ns = HF_MAX(status->blocking_silence_ns, silence_ns);
}

/* True: all waiters were looked at, or as many as may be. */
static bool look_at_waiters(struct hf_api_request *request)
{
	struct hf_locks *locks = hf_recovery_locks(request->api->options.recovery);
	const struct hf_lock_scope all = { 0 };
	struct hf_lock_view waiter;
	struct wait wait = { request, &waiter };

	for (size_t i = 0; i < HF_API_SLICE; i++) {
		size_t n;

		if (request->n_scanned >= HF_API_MAX_SCAN ||
		    !hf_lock_next_waiter(locks, &all, &request->at, &waiter))
			return true;
		n = find_blockers(request, &waiter, note_holder, &wait);
		request->n_scanned += 1 + n;
		i += n;
	}
	return false;
}

int hf_api_query_metrics(struct hf_api_request *request)
{
	if (!request->has_begun)
		hf_api_query_status(request);
	request->has_begun = true;
	if (hf_api_is_standby(request->api))
		return HF_API_DONE;
	if (!request->limits[HF_LIMIT_LOCKS].max)
		hf_api_begin_limits(request);
	return request->code || (look_at_clients(request) && look_at_waiters(request)) ? HF_API_DONE
										       : HF_API_MORE;
}
