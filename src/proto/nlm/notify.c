/*
 * FREE_ALL, by which a client says that it has started anew and holds nothing;
 * and the private procedure 16, by which a statd on this host says that of
 * another. Only a client's own address, or this host, is believed; and where such
 * a call may be forged, only when that host does not deny it (proto/nsm/doubt.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nlm/internal.h"
#include "proto/nsm/nsm.h"
#include "rpc/client.h"

#define PROTOCOL "nlm"

static bool is_named(const struct hf_client *client, struct hf_bytes name)
{
	return strcmp(client->protocol, PROTOCOL) == 0 && hf_bytes_equal(hf_bytes_of_str(client->name), name);
}

/* A call of which it is being found out whether its host made it. */
struct suspect {
	struct hf_nsm_asker asker;
	struct hf_nlm *nlm;
	struct hf_rpc_call *call;
	bool is_news; /* and the client takes something meanwhile: that is of its new life */
};

static void on_verdict(struct hf_nsm_asker *asker, struct hf_client *client, enum hf_nsm_verdict verdict)
{
	struct suspect suspect = *hf_container_of(asker, struct suspect, asker);
	struct hf_recovery *recovery = suspect.nlm->options.recovery;
	struct hf_nlm_notify notify;

	free(hf_container_of(asker, struct suspect, asker));
	hf_rpc_call_rewind(suspect.call);
	hf_nlm_get_notify(&notify, hf_rpc_call_args(suspect.call));
	if (verdict != HF_NSM_BELIEVED)
		hf_nsm_note_denied(suspect.nlm->monitor, suspect.call, notify.name, notify.state,
				   verdict == HF_NSM_DENIED);
	if (verdict == HF_NSM_UNSURE) {
		hf_rpc_call_drop(suspect.call); /* its client says it again */
		return;
	}
	if (verdict == HF_NSM_BELIEVED && suspect.is_news)
		hf_recovery_client_was_freed(recovery, client, notify.state);
	else if (verdict == HF_NSM_BELIEVED)
		hf_recovery_client_freed(recovery, client, notify.state);
	/* One that is denied may be a copy of one that was believed, and is not stored yet. */
	if (verdict == HF_NSM_DENIED && !client->n_settling && hf_recovery_can_promise(recovery))
		hf_rpc_reply_void(suspect.call);
	else
		hf_nlm_reply_restart(suspect.nlm, suspect.call);
}

static void check(struct hf_nlm *nlm, struct hf_rpc_call *call, struct hf_client *client, int32_t state)
{
	struct suspect *suspect = calloc(1, sizeof(*suspect));

	if (!suspect) {
		hf_rpc_call_drop(call);
		return;
	}
	suspect->asker.fn = on_verdict;
	hf_link_init(&suspect->asker.link);
	suspect->nlm = nlm;
	suspect->call = call;
	suspect->is_news = hf_recovery_is_news(nlm->options.recovery, client, state);
	if (hf_rpc_call_keep(call) < 0) {
		free(suspect);
	} else if (hf_nsm_doubt(nlm->monitor, call, client, state, &suspect->asker) < 0) {
		on_verdict(&suspect->asker, client, HF_NSM_UNSURE);
	}
}

/* What a client says is about itself. What root of this host says is about every client of that name. */
static void free_named(struct hf_nlm *nlm, const struct hf_nlm_notify *notify)
{
	struct hf_client *client;

	for (uint64_t serial = 0; (client = hf_clients_next(nlm->clients, serial)); hf_client_unref(client)) {
		serial = client->serial;
		if (is_named(client, notify->name))
			hf_recovery_client_freed(nlm->options.recovery, client, notify->state);
	}
}

void hf_nlm_proc_free_all(void *service, struct hf_rpc_call *call)
{
	struct hf_nlm *nlm = service;
	hf_cleanup(hf_client_unrefp) struct hf_client *client = NULL;
	struct hf_nlm_notify notify;

	hf_nlm_get_notify(&notify, hf_rpc_call_args(call));
	if (!hf_xdr_in_is_ok(hf_rpc_call_args(call))) {
		hf_rpc_reply_garbage(call);
		return;
	}
	client = hf_clients_find(nlm->clients, PROTOCOL, hf_rpc_call_peer(call), notify.name);
	if (client && nlm->monitor && !hf_nsm_is_trusted(nlm->monitor, call, client)) {
		check(nlm, call, client, notify.state);
		return;
	}
	if (client)
		hf_recovery_client_freed(nlm->options.recovery, client, notify.state);
	if (hf_rpc_client_is_superuser(nlm->options.client, call))
		free_named(nlm, &notify);
	hf_nlm_reply_restart(nlm, call);
}

/* The name is what the statd was asked to watch: an address, or a caller_name. */
static void note_reboot(struct hf_nlm *nlm, const struct hf_nlm_notify *notify)
{
	struct hf_client *client;
	struct hf_addr address;
	char text[HF_ADDR_TEXT];
	bool is_address = false;

	if (notify->name.len < sizeof(text)) {
		memcpy(text, notify->name.data, notify->name.len);
		text[notify->name.len] = '\0';
		is_address = hf_addr_parse(&address, text);
	}
	for (uint64_t serial = 0; (client = hf_clients_next(nlm->clients, serial)); hf_client_unref(client)) {
		serial = client->serial;
		if (is_named(client, notify->name) ||
		    (is_address && strcmp(client->protocol, PROTOCOL) == 0 &&
		     hf_addr_same_host(&client->address, &address)))
			hf_recovery_client_rebooted(nlm->options.recovery, client, notify->state);
	}
}

void hf_nlm_proc_sm_notify(void *service, struct hf_rpc_call *call)
{
	struct hf_nlm *nlm = service;
	struct hf_nlm_notify notify;

	hf_nlm_get_sm_notify(&notify, hf_rpc_call_args(call));
	if (!hf_xdr_in_is_ok(hf_rpc_call_args(call))) {
		hf_rpc_reply_garbage(call);
		return;
	}
	if (!hf_rpc_client_is_superuser(nlm->options.client, call)) {
		hf_rpc_reply_auth_error(call, HF_RPC_AUTH_TOOWEAK);
		return;
	}
	note_reboot(nlm, &notify);
	hf_nlm_reply_restart(nlm, call);
}
