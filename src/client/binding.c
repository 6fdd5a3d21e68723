/*
 * A client that locks in an export that demands TLS is secured. If the export demands a
 * certificate, the client is bound to the identity that uses its name first. While the client
 * has anything, no other identity may speak for it at its address.
 *
 * A binding is a text with the names of certificates. As a rule it is one name. If several
 * hosts share the address, and no name of a certificate fits the name of the client, it has a
 * name of each.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/clients.h"
#include "tls/tls.h"

const char *const hf_client_refusal_names[HF_CLIENT_N_REFUSALS] = {
	[HF_CLIENT_NO_CONNECTION] = "no_connection", [HF_CLIENT_NOT_NAMED] = "identity",
	[HF_CLIENT_NAME_TAKEN] = "name_taken",       [HF_CLIENT_DATAGRAM] = "datagram",
	[HF_CLIENT_NO_PROOF] = "no_proof",
};

static int set(struct hf_client *client, bool is_secured, const char *identity, size_t len)
{
	char *copy = len ? strndup(identity, len) : NULL;
	char *before = client->identity;
	bool was_secured = client->is_secured;
	int r;

	if (len && !copy)
		return hf_trace(-ENOMEM);
	client->identity = copy;
	client->is_secured = is_secured;
	r = hf_client_is_registered(client) ? hf_client_register(client) : HF_CLIENT_OK;
	if (r < 0) {
		client->identity = before;
		client->is_secured = was_secured;
		free(copy);
		return r;
	}
	free(before);
	return 0;
}

int hf_client_bind(struct hf_client *client, const char *identity)
{
	const char *known = client->identity ? client->identity : "";

	if (!identity)
		identity = "";
	if (client->is_secured && strcmp(known, identity) == 0)
		return 0;
	return set(client, true, identity, strlen(identity));
}

int hf_client_unbind(struct hf_client *client)
{
	client->refusals_logged = 0;
	return client->is_secured ? set(client, false, NULL, 0) : 0;
}

int hf_client_restore_binding(struct hf_client *client, struct hf_bytes identity)
{
	return set(client, true, (const char *)identity.data, identity.len);
}

bool hf_client_is_bound_to(const struct hf_client *client, const struct hf_tls_peer *peer)
{
	const char *name = client->identity;
	char one[HF_TLS_MAX_NAME + 1];

	if (!name)
		return true;
	while (peer->is_authenticated && *name) {
		size_t len = strcspn(name, " ");

		if (len < sizeof(one)) {
			memcpy(one, name, len);
			one[len] = '\0';
			if (hf_tls_peer_has_name(peer, one))
				return true;
		}
		name += len + (name[len] == ' ');
	}
	return false;
}

const char *hf_client_transport(const struct hf_client *client)
{
	if (!client->is_secured)
		return "clear";
	return client->identity ? "mtls" : "tls";
}

bool hf_client_note_refused(struct hf_clients *clients, struct hf_client *client,
			    enum hf_client_refusal refusal)
{
	uint8_t bit = (uint8_t)(1u << refusal);
	bool is_first = client && !(client->refusals_logged & bit);

	clients->refused_for_tls[refusal]++;
	if (client) {
		client->n_refused++;
		client->refusals_logged |= bit;
	}
	return is_first;
}

uint64_t hf_clients_count_refused(const struct hf_clients *clients, enum hf_client_refusal refusal)
{
	return clients->refused_for_tls[refusal];
}
