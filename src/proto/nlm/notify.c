/*
 * FREE_ALL, by which a client says that it has started anew and holds nothing;
 * and the private procedure 16, by which a statd on this host says that of
 * another. Only a client's own address, or this host, is believed.
 */
#include <string.h>

#include "proto/nlm/internal.h"
#include "rpc/client.h"

#define PROTOCOL "nlm"

static bool is_named(const struct hf_client *client, struct hf_bytes name)
{
	return strcmp(client->protocol, PROTOCOL) == 0 && hf_bytes_equal(hf_bytes_of_str(client->name), name);
}

/* What a client says is about himself. What root of this host says is about everybody of that name. */
static void free_all(struct hf_nlm *nlm, const struct hf_nlm_notify *notify, const struct hf_addr *peer,
		     bool is_superuser)
{
	struct hf_client *client = hf_clients_find(nlm->clients, PROTOCOL, peer, notify->name);

	if (client)
		hf_recovery_client_freed(nlm->options.recovery, client, notify->state);
	hf_client_unref(client);
	for (uint64_t serial = 0; is_superuser && (client = hf_clients_next(nlm->clients, serial));
	     hf_client_unref(client)) {
		serial = client->serial;
		if (is_named(client, notify->name))
			hf_recovery_client_freed(nlm->options.recovery, client, notify->state);
	}
}

void hf_nlm_proc_free_all(void *service, struct hf_rpc_call *call)
{
	struct hf_nlm *nlm = service;
	struct hf_nlm_notify notify;

	hf_nlm_get_notify(&notify, hf_rpc_call_args(call));
	if (!hf_xdr_in_is_ok(hf_rpc_call_args(call))) {
		hf_rpc_reply_garbage(call);
		return;
	}
	free_all(nlm, &notify, hf_rpc_call_peer(call), hf_rpc_client_is_superuser(nlm->options.client, call));
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
