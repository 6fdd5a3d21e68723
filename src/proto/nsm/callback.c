/*
 * A peer was restarted: the lock manager of this host that watches it gets its call-back,
 * status{mon_name, state, priv}. As rpc.statd does, the server tries five times, five seconds
 * apart. If the server is killed before the lock manager answers, it forgets the call-back.
 * The peer repeats a notice that was not answered, and the server believes it again.
 *
 * The peer may restart again meanwhile. Then the lock manager is told the newest state number
 * only. So a peer has one call-back under way, however many notices it sends.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "proto/nsm/internal.h"

#define MAX_TRIES 5
#define GAP_NS    (5 * HF_NS_PER_S)
#define TRY_NS    (5 * HF_NS_PER_S)

struct callback {
	struct hf_link link;
	struct hf_nsm *nsm;
	struct hf_client *client; /* a reference */
	struct hf_rpc_pending *pending;
	struct hf_timer timer;
	int32_t state;
	int n_tries;
};

static void callback_free(struct callback *callback, bool is_done)
{
	hf_recovery_release_state(callback->client, is_done);
	hf_rpc_pending_cancel(callback->pending);
	hf_timer_stop(&callback->timer);
	hf_link_remove(&callback->link);
	hf_client_unref(callback->client);
	free(callback);
}

static void again_or_not(struct callback *callback, const char *why_not)
{
	char quoted[256];

	if (callback->n_tries < MAX_TRIES && hf_timer_start(&callback->timer, GAP_NS) == 0)
		return;
	hf_log_warn("a lock manager of this host could not be told that a peer was restarted",
		    "registration=%s why=\"%s\"",
		    hf_log_quote(quoted, sizeof(quoted), callback->client->id, strlen(callback->client->id)),
		    why_not);
	callback_free(callback, true);
}

static void on_reply(void *user, const struct hf_rpc_result *result)
{
	struct callback *callback = user;

	callback->pending = NULL;
	if (result->outcome == HF_RPC_OUTCOME_OK)
		callback_free(callback, true);
	else
		again_or_not(callback, hf_rpc_outcome_text(result->outcome));
}

/* The registration came over loopback, to the server's address in client->local. */
static void try(struct callback *callback)
{
	const struct hf_client *client = callback->client;
	uint8_t args[HF_NSM_MAX_STATUS];
	struct hf_rpc_request request = {
		.remote = client->local,
		.program = client->callback.program,
		.version = client->callback.version,
		.procedure = client->callback.procedure,
		.path = HF_RPC_UDP_THEN_TCP,
		.args = args,
		.timeout_ns = TRY_NS,
		.reserved_port = true,
	};
	struct hf_xdr_out out;

	request.remote.port = hf_nsm_port_in_name(client->callback.host, &client->local);
	hf_xdr_out_init(&out, args, sizeof(args));
	hf_nsm_put_status(&out, hf_bytes_of_str(client->mon_name), callback->state, client->priv);
	request.args_len = (size_t)(out.p - args);
	callback->n_tries++;
	if (hf_rpc_client_call(callback->nsm->options.client, &callback->pending, &request, on_reply,
			       callback) < 0)
		again_or_not(callback, "it cannot be called");
}

static void on_timer(struct hf_timer *timer)
{
	try(hf_container_of(timer, struct callback, timer));
}

static struct callback *find(struct hf_nsm *nsm, const struct hf_client *client)
{
	if (!hf_recovery_is_state_unstored(client)) /* then it has no call-back under way */
		return NULL;
	hf_list_for_each(pos, &nsm->callbacks) {
		struct callback *callback = hf_list_entry(pos, struct callback, link);

		if (callback->client == client)
			return callback;
	}
	return NULL;
}

static void begin_again(struct callback *callback, int32_t state)
{
	callback->pending = hf_rpc_pending_cancel(callback->pending);
	hf_timer_stop(&callback->timer);
	callback->state = state;
	callback->n_tries = 0;
	try(callback);
}

void hf_nsm_call_back(struct hf_nsm *nsm, struct hf_client *client, int32_t state)
{
	struct callback *callback = find(nsm, client);

	if (callback) {
		begin_again(callback, state);
		return;
	}
	callback = calloc(1, sizeof(*callback));
	if (!callback) {
		hf_log_error("no memory to tell a lock manager of this host that a peer was restarted", "%s",
			     "");
		return;
	}
	callback->nsm = nsm;
	callback->client = hf_client_ref(client);
	hf_recovery_delay_state(client);
	callback->state = state;
	hf_timer_init(&callback->timer, nsm->options.loop, on_timer);
	hf_list_push_back(&nsm->callbacks, &callback->link);
	try(callback);
	/* @callback may be freed here */
}

void hf_nsm_callbacks_forget(struct hf_nsm *nsm, struct hf_client *client)
{
	struct callback *callback = find(nsm, client);

	if (callback)
		callback_free(callback, false);
}

void hf_nsm_callbacks_deinit(struct hf_nsm *nsm)
{
	struct hf_link *link;

	while ((link = hf_list_first(&nsm->callbacks)))
		callback_free(hf_list_entry(link, struct callback, link), false);
}
