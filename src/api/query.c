/* On the loop: the state as a whole, and an operator's orders. */
#include <errno.h>
#include <string.h>

#include "api/internal.h"
#include "base/log.h"
#include "client/client.h"
#include "export/export.h"
#include "proto/nlm/nlm.h"
#include "store/store.h"

/* Status */

static void look_at_store(struct hf_api_status *status, struct hf_store *store)
{
	static const char *const durabilities[] = {
		[HF_STORE_NONE] = "none",
		[HF_STORE_PROCESS] = "process",
		[HF_STORE_MACHINE] = "machine",
	};
	struct hf_store_counts counts;

	hf_store_counts(store, &counts);
	status->backend = hf_store_name(store);
	status->durability = durabilities[hf_store_durability(store)];
	status->store_is_healthy = hf_store_is_healthy(store);
	status->store_failures = counts.n_failures;
}

static void look_at_grants(struct hf_api_status *status, const struct hf_nlm *nlm)
{
	struct hf_nlm_counts counts;

	hf_nlm_counts(nlm, &counts);
	status->grants_told = counts.grants_told;
	status->grants_refused = counts.grants_refused;
	status->grants_abandoned = counts.grants_abandoned;
	status->grants_kept = counts.grants_kept;
	status->grants_retried = counts.grants_retried;
}

static void add_export(void *user, const struct hf_recovery_export *export)
{
	struct hf_api_request *request = user;
	struct hf_api_export_row *row = hf_api_add_row(request, sizeof(*row));

	if (!row)
		return;
	row->name = hf_api_copy(request, export->name.data, export->name.len);
	row->n_locks = export->n_locks;
	row->n_clients = export->n_clients;
}

/* Runs on the loop, so a blocked loop does not answer. A server whose store cannot write is alive but
 * unhealthy. */
int hf_api_query_health(struct hf_api_request *request)
{
	if (!hf_api_is_standby(request->api) && !hf_recovery_can_promise(request->api->options.recovery))
		hf_api_fail(request, 503, "store_failed",
			    "The store cannot write, so no lock is granted; the log says why.");
	return HF_API_DONE;
}

/* Tells a load balancer when clients would be refused. http.c recognises the route by this function and
 * answers it itself until the server is ready. */
int hf_api_query_ready(struct hf_api_request *request)
{
	if (request->api->options.cluster.cluster)
		hf_api_query_ready_in_cluster(request);
	return request->code || request->not_ready ? HF_API_DONE : hf_api_query_health(request);
}

static size_t count_exports(struct hf_exports *exports)
{
	struct hf_export_list list = { 0 };
	size_t n = exports && hf_exports_list(exports, &list) == 0 ? list.n : 0;

	hf_export_list_clear(&list);
	return n;
}

int hf_api_query_status(struct hf_api_request *request)
{
	const struct hf_api_options *options = &request->api->options;
	struct hf_recovery *recovery = options->recovery;
	struct hf_clients *clients;
	struct hf_api_status *status = &request->status;
	const char *reason;

	status->role = hf_api_role(request->api);
	status->uptime_ns = hf_loop_now(options->loop) - request->api->started;
	hf_api_query_last_reload(request);
	if (hf_api_is_standby(request->api)) {
		hf_api_query_standby_status(request);
		return HF_API_DONE;
	}
	status->n_exports = count_exports(options->exports);
	request->usage = request->api->usage;
	hf_recovery_grace_info(recovery, &status->grace);
	/* Copy the reason: the HTTP thread reads it later, and it may not be a constant for ever. */
	reason = status->grace.reason ? status->grace.reason : "";
	status->grace.reason = hf_api_copy(request, reason, strlen(reason));
	clients = hf_recovery_clients(recovery);
	hf_lock_count(hf_recovery_locks(recovery), &status->locks);
	hf_recovery_counts(recovery, &status->recovery);
	status->epoch = hf_recovery_epoch(recovery);
	status->sm_state = hf_recovery_state(recovery);
	status->n_clients = hf_clients_count(clients);
	status->n_registered = hf_clients_count_registered(clients);
	for (int i = 0; i < HF_CLIENT_N_REFUSALS; i++)
		status->tls_refused[i] = hf_clients_count_refused(clients, (enum hf_client_refusal)i);
	look_at_store(status, hf_recovery_store(recovery));
	if (options->nlm)
		look_at_grants(status, options->nlm);
	hf_recovery_show_exports(recovery, add_export, request);
	return HF_API_DONE;
}

/* Exports: few, and already counted. Only waiters are walked, up to a bound. */

static struct hf_api_export_row *export_named(struct hf_api_request *request, struct hf_bytes name)
{
	struct hf_api_export_row *rows = request->rows;

	for (size_t i = 0; i < request->n_rows; i++)
		if (hf_bytes_equal(hf_bytes_of_str(rows[i].name), name))
			return &rows[i];
	return NULL;
}

int hf_api_query_exports(struct hf_api_request *request)
{
	struct hf_recovery *recovery = request->api->options.recovery;
	struct hf_lock_view view;

	if (!request->has_begun) {
		hf_recovery_show_exports(recovery, add_export, request);
		request->has_begun = true;
	}
	for (size_t i = 0; i < HF_API_SLICE && !request->code; i++) {
		struct hf_api_export_row *row;

		if (request->n_scanned++ == HF_API_MAX_SCAN ||
		    !hf_lock_next_waiter(hf_recovery_locks(recovery), NULL, &request->at, &view))
			return HF_API_DONE;
		row = export_named(request, hf_recovery_export_name(recovery, view.who.export));
		if (row)
			row->n_waiters++;
	}
	return request->code ? HF_API_DONE : HF_API_MORE;
}

/* Orders; the log names the operator's address */

static const char *outcome(int r)
{
	if (r == -ENOENT)
		return "nothing to do";
	return r < 0 ? strerror(-r) : "done";
}

int hf_api_query_end_grace(struct hf_api_request *request)
{
	int r = hf_recovery_end_grace(request->api->options.recovery);

	hf_log_info("an operator ends grace", "peer=%s answer=%s", request->peer, outcome(r));
	if (r == -ENOENT)
		hf_api_fail(request, 409, "not_in_grace", "There is no grace period now.");
	else if (r < 0)
		hf_api_fail(request, 500, "failed", "Grace could not be ended; the log says why.");
	return hf_api_query_status(request);
}

static struct hf_client *find_client(struct hf_api_request *request, const char *id)
{
	struct hf_clients *clients = hf_recovery_clients(request->api->options.recovery);
	struct hf_client *client = hf_clients_find_id(clients, hf_bytes_of_str(id));

	if (!client)
		hf_api_fail(request, 404, "not_found", "There is no client with this id.");
	return client;
}

int hf_api_query_notify(struct hf_api_request *request)
{
	hf_cleanup(hf_client_unrefp) struct hf_client *client = NULL;
	const char *id = hf_api_target_param(&request->target, "client");
	char quoted[256];
	int r;

	if (id) {
		client = find_client(request, id);
		if (!client)
			return HF_API_DONE;
	}
	r = hf_recovery_notify_again(request->api->options.recovery, client);
	hf_log_info("an operator has SM_NOTIFY sent again", "peer=%s client=%s answer=%s", request->peer,
		    id ? hf_log_quote(quoted, sizeof(quoted), id, strlen(id)) : "all", outcome(r));
	if (r == -ENOENT)
		hf_api_fail(request, 409, "not_registered",
			    "This client is not registered, so SM_NOTIFY is not sent to it.");
	else if (r < 0)
		hf_api_fail(request, 503, "failed", "SM_NOTIFY could not be sent; the log says why.");
	return HF_API_DONE;
}

static void resume(struct hf_promise *promise)
{
	hf_api_resume(hf_container_of(promise, struct hf_api_request, promise));
}

/* The locks are released even if the store could not write that: see HF_SAYS_RELEASED. But a run that goes on
 * from what is stored would have them again. */
static void on_promise(struct hf_promise *promise, bool is_durable)
{
	struct hf_api_request *request = hf_container_of(promise, struct hf_api_request, promise);

	if (!is_durable && hf_recovery_is_continuable(request->api->options.recovery))
		hf_api_fail(
			request, 503, "not_stored",
			"The locks are released, but the store cannot write that: if the server dies now, "
			"the next run has them again. Release them again when the store can write.");
	resume(promise);
}

/* The orders have been carried out; the stop writes them to the store. */
void hf_api_end_delays(struct hf_api *api)
{
	if (!hf_api_is_standby(api))
		hf_delays_end(&api->delays, resume);
}

int hf_api_await_release(struct hf_api_request *request, const struct hf_client *client)
{
	return hf_delays_add(&request->api->delays, &request->promise, HF_SAYS_RELEASED, client, on_promise)
		       ? HF_API_DONE
		       : HF_API_LATER;
}

int hf_api_query_release(struct hf_api_request *request)
{
	hf_cleanup(hf_client_unrefp) struct hf_client *client = find_client(request, request->id);
	char quoted[256];

	if (!client)
		return HF_API_DONE;
	hf_log_info("an operator declares a client crashed", "peer=%s client=%s locks=%u waiters=%u",
		    request->peer, hf_log_quote(quoted, sizeof(quoted), client->id, strlen(client->id)),
		    client->locking.n_locks, client->locking.n_waiters);
	request->n_released = hf_recovery_client_crashed(request->api->options.recovery, client,
							 "an operator declared it crashed");
	return hf_api_await_release(request, client);
}
