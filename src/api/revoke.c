/*
 * On the loop: an operator releases one lock of a client, or all that the client
 * has in a file.
 *
 * The client's locks are walked twice, a slice each turn. The first walk finds the
 * locks that are meant, and comes again if it has changed some. The second one
 * releases them, and no lock that is newer: a release may grant the file to another
 * program of the same client.
 */
#include <string.h>

#include "api/internal.h"
#include "base/hex.h"
#include "base/log.h"
#include "client/client.h"

/* Parameters */

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_handle(struct hf_api_revoke *revoke, const char *text)
{
	size_t len = strlen(text);

	if (len == 0 || len % 2 || len / 2 > sizeof(revoke->handle))
		return false;
	revoke->handle_len = (uint32_t)(len / 2);
	for (size_t i = 0; i < len / 2; i++) {
		int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		revoke->handle[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

static bool read_range(struct hf_api_revoke *revoke, const char *offset, const char *length)
{
	uint64_t start, len;

	revoke->has_range = true;
	return offset && length && hf_api_parse_number(offset, 0, UINT64_MAX, &start) &&
	       hf_api_parse_number(length, 0, UINT64_MAX, &len) &&
	       hf_range_from_offset_len(&revoke->range, start, len) == 0;
}

static const char *read_params(struct hf_api_request *request)
{
	const char *handle = hf_api_target_param(&request->target, "handle");
	const char *offset = hf_api_target_param(&request->target, "offset");
	const char *length = hf_api_target_param(&request->target, "length");

	request->revoke.owner = hf_api_target_param(&request->target, "owner");
	if (!handle || !hf_api_target_param(&request->target, "client"))
		return "client and handle are needed; offset and length name one lock.";
	if (!read_handle(&request->revoke, handle))
		return "handle must be as in the list of locks: pairs of the digits 0 to 9 and a to f.";
	if ((offset || length) && !read_range(&request->revoke, offset, length))
		return "offset and length come together, as in the list of locks.";
	return NULL;
}

/* Walks */

static bool is_meant(const struct hf_api_request *request, const struct hf_lock_view *lock)
{
	const struct hf_api_revoke *revoke = &request->revoke;
	uint8_t room[HF_LOCK_HANDLE_MAX];
	char owner[HF_API_OWNER_TEXT];
	struct hf_bytes handle;

	if (revoke->has_range && !hf_range_equal(revoke->range, lock->range))
		return false;
	handle = hf_recovery_handle_of(request->api->options.recovery, lock->who.export, lock->who.handle,
				       room);
	if (!hf_bytes_equal(handle, hf_bytes_of(revoke->handle, revoke->handle_len)))
		return false;
	return !revoke->owner || strcmp(hf_api_owner_text(lock, owner, sizeof(owner)), revoke->owner) == 0;
}

/*
 * A release ends the owner's grants in flight, and what is left of their locks gets new ids: the release of a
 * whole file would leave it. So such grants end before the locks are chosen.
 */
static bool end_grants(const struct hf_api_request *request, const struct hf_lock_view *lock)
{
	static const struct hf_range whole = { 0, HF_RANGE_EOF };
	struct hf_locks *locks = hf_recovery_locks(request->api->options.recovery);
	const struct hf_lock_target who = lock->who;

	return !request->revoke.has_range && hf_lock_has_grant(locks, &who, whole) &&
	       hf_lock_assume_grants(locks, &who) >= 0;
}

static void visit(struct hf_api_request *request, const struct hf_lock_view *lock)
{
	struct hf_api_revoke *revoke = &request->revoke;

	if (!revoke->has_chosen) {
		revoke->last_id = HF_MAX(revoke->last_id, lock->id);
		revoke->has_ended_grants |= end_grants(request, lock);
	} else if (lock->id <= revoke->last_id) {
		request->n_released += hf_recovery_revoke(request->api->options.recovery, lock) == HF_LOCK_OK;
	}
}

/* True: the walk is over. */
static bool walk(struct hf_api_request *request, struct hf_client *client)
{
	struct hf_lock_scope scope = { .client = &client->locking };
	struct hf_lock_view lock;

	for (size_t i = 0; i < HF_API_SLICE; i++) {
		if (!hf_lock_next_lock(hf_recovery_locks(request->api->options.recovery), &scope,
				       &request->at, &lock))
			return true;
		if (is_meant(request, &lock))
			visit(request, &lock);
	}
	return false;
}

static int finish(struct hf_api_request *request, const struct hf_client *client)
{
	const char *id = hf_api_target_param(&request->target, "client");
	char quoted[256], handle[2 * HF_LOCK_HANDLE_MAX + 1];

	*hf_hex_put(handle, request->revoke.handle, request->revoke.handle_len) = '\0';
	hf_log_info("an operator releases locks of a client in a file",
		    "peer=%s client=%s handle=%s range=%s locks=%zu", request->peer,
		    hf_log_quote(quoted, sizeof(quoted), id, strlen(id)), handle,
		    request->revoke.has_range ? "one" : "all", request->n_released);
	return hf_api_await_release(request, client);
}

int hf_api_query_revoke(struct hf_api_request *request)
{
	hf_cleanup(hf_client_unrefp) struct hf_client *client = NULL;
	const char *wrong = request->has_begun ? NULL : read_params(request);

	if (wrong) {
		hf_api_fail(request, 400, "bad_request", wrong);
		return HF_API_DONE;
	}
	request->has_begun = true;
	client = hf_clients_find_id(hf_recovery_clients(request->api->options.recovery),
				    hf_bytes_of_str(hf_api_target_param(&request->target, "client")));
	if (client && !walk(request, client))
		return HF_API_MORE;
	if (request->n_released || (client && request->revoke.has_chosen))
		return finish(request, client);
	if (!client || !request->revoke.last_id) {
		hf_api_fail(request, 404, client ? "no_such_lock" : "not_found",
			    client ? "The client has no such lock. It may have changed since it was listed."
				   : "There is no client with this id.");
		return HF_API_DONE;
	}
	request->revoke.has_chosen = !request->revoke.has_ended_grants;
	request->revoke.has_ended_grants = false;
	request->at = (struct hf_lock_cursor){ 0 };
	return HF_API_MORE;
}
