/*
 * Does the host that tells of its restart have the client's key?
 *
 * A client that uses exports that demand TLS is bound to a certificate (client/binding.c). A
 * restart ends its connections, and it connects again. So its notice is believed only if a
 * connection with that certificate has begun since the last call of the client that was
 * served. A notice over such a connection is its own proof. All of this comes after the other
 * checks of a notice, and replaces none of them.
 *
 * The notice may come before the connection. Then it stays unanswered, so that its sender
 * repeats it. If the host's statd gives its number, the server remembers it as a claim, as
 * long as sm-notify repeats it. The connection makes the claim true.
 *
 * A client connects again for other reasons, too. So a forged notice must not wait for that:
 * the silence of the host makes no claim, and a call of the client's old life ends one.
 *
 * What the client takes while a claim waits may be of its new life, so it carries a tag, as
 * during a check (doubt.c).
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "proto/nsm/internal.h"
#include "rpc/presence.h"
#include "tls/tls.h"

#define MAX_CLAIMS     256
#define MAX_PER_CLIENT 4

struct claim {
	struct hf_link link;
	struct hf_client *client; /* a reference */
	int32_t state;
	int32_t tag;             /* of what the client takes meanwhile; 0: it has none of this claim */
	uint64_t made_at, until; /* monotonic ns */
};

/* Proof */

static bool has_connected_since(void *user, const struct hf_tls_peer *peer, uint64_t newest)
{
	const struct hf_client *client = user;

	return newest > client->vouched && hf_client_is_bound_to(client, peer);
}

static bool is_back(struct hf_nsm *nsm, struct hf_client *client)
{
	return hf_rpc_presence_find(nsm->options.presence, &client->address, has_connected_since, client);
}

static bool needs_proof(const struct hf_nsm *nsm, const struct hf_client *client)
{
	const struct hf_nsm_options *options = &nsm->options;

	return client->is_secured && options->presence && options->demands_tls &&
	       options->demands_tls(options->user) && !hf_client_has_nothing(client);
}

bool hf_nsm_awaits_proof(struct hf_nsm *nsm, struct hf_client *client)
{
	return needs_proof(nsm, client) && !is_back(nsm, client);
}

bool hf_nsm_has_proof(struct hf_nsm *nsm, struct hf_rpc_call *call, struct hf_client *client)
{
	const struct hf_tls_peer *peer;

	if (HF_LIKELY(!client->is_secured) || !needs_proof(nsm, client))
		return true;
	peer = hf_rpc_call_tls(call);
	return (peer && hf_client_is_bound_to(client, peer)) || is_back(nsm, client) ||
	       hf_nsm_is_superuser(nsm, call);
}

void hf_nsm_note_unproven(struct hf_nsm *nsm, struct hf_rpc_call *call, struct hf_client *client)
{
	const char *identity = client->identity ? client->identity : "-";
	char quoted[256], name[256], text[HF_ADDR_TEXT];

	hf_rpc_call_note(call, "TLS_REQUIRED");
	if (hf_client_note_refused(nsm->clients, client, HF_CLIENT_NO_PROOF))
		hf_log_warn("a notice of a restart waits: the client uses exports that demand TLS, and has "
			    "not connected again",
			    "client=%s peer=%s identity=%s",
			    hf_log_quote(quoted, sizeof(quoted), client->id, strlen(client->id)),
			    hf_addr_format_with_port(hf_rpc_call_peer(call), text, sizeof(text)),
			    hf_log_quote(name, sizeof(name), identity, strlen(identity)));
}

/* Claims */

static void claim_free(struct hf_nsm *nsm, struct claim *claim)
{
	struct hf_client *client = claim->client;

	if (claim->tag && client->doubt_tag == claim->tag)
		client->doubted_state = client->doubt_tag = 0;
	hf_link_remove(&claim->link);
	nsm->n_claims--;
	hf_client_unref(client);
	free(claim);
}

static struct claim *oldest(struct hf_nsm *nsm)
{
	struct hf_link *link = hf_list_first(&nsm->claims);

	return link ? hf_list_entry(link, struct claim, link) : NULL;
}

static void forget_old(struct hf_nsm *nsm)
{
	uint64_t now = hf_loop_now(nsm->options.loop);
	struct claim *claim;

	while ((claim = oldest(nsm)) && claim->until <= now)
		claim_free(nsm, claim);
	if (claim)
		hf_timer_start(&nsm->claims_timer, claim->until - now);
}

static void on_timer(struct hf_timer *timer)
{
	forget_old(hf_container_of(timer, struct hf_nsm, claims_timer));
}

/* After the notice a call of the client was served that was not of its new life. */
static bool is_refuted(const struct claim *claim)
{
	return claim->client->vouched_at > claim->made_at;
}

static struct claim *find_true(struct hf_nsm *nsm)
{
	hf_list_for_each(link, &nsm->claims) {
		struct claim *claim = hf_list_entry(link, struct claim, link);

		if (!is_refuted(claim) && is_back(nsm, claim->client))
			return claim;
	}
	return NULL;
}

/* Connections have begun. Releasing locks serves waiters, so the list is read anew after each claim. */
static void on_connections(void *user)
{
	struct hf_nsm *nsm = user;
	struct claim *claim;

	forget_old(nsm);
	while ((claim = find_true(nsm))) {
		struct hf_client *client = hf_client_ref(claim->client);
		int32_t state = claim->state;

		claim->tag = 0; /* what carries it stays */
		claim_free(nsm, claim);
		hf_recovery_client_rebooted(nsm->options.recovery, client, state);
		hf_client_unref(client);
	}
}

/* True: it is known already. The oldest makes room. */
static bool is_known(struct hf_nsm *nsm, const struct hf_client *client, int32_t state)
{
	struct claim *first = NULL;
	size_t n = 0;

	hf_list_for_each(link, &nsm->claims) {
		struct claim *claim = hf_list_entry(link, struct claim, link);

		if (claim->client != client)
			continue;
		if (claim->state == state && !is_refuted(claim))
			return true;
		if (claim->state == state) {
			claim_free(nsm, claim);
			return false;
		}
		if (n++ == 0)
			first = claim;
	}
	if (n >= MAX_PER_CLIENT)
		claim_free(nsm, first);
	else if (nsm->n_claims >= MAX_CLAIMS)
		claim_free(nsm, oldest(nsm));
	return false;
}

/* If the notice was just checked, the tag of that check goes on. */
static void tag(struct hf_nsm *nsm, struct claim *claim)
{
	struct hf_client *client = claim->client;

	if (client->doubted_state)
		return;
	if (!client->doubt_tag) {
		client->doubt_tag = hf_client_make_doubt_tag(claim->state, nsm->n_doubted++);
		client->doubted_at = hf_loop_now(nsm->options.loop);
	}
	client->doubted_state = claim->state;
	claim->tag = client->doubt_tag;
}

void hf_nsm_claim(struct hf_nsm *nsm, struct hf_client *client, int32_t state)
{
	struct claim *claim;

	if (is_known(nsm, client, state))
		return;
	claim = calloc(1, sizeof(*claim));
	if (!claim) {
		hf_trace(-ENOMEM); /* the sender repeats the notice */
		return;
	}
	claim->client = hf_client_ref(client);
	claim->state = state;
	claim->made_at = hf_loop_now(nsm->options.loop);
	claim->until = claim->made_at + HF_RECOVERY_NOTICE_NS;
	hf_list_push_back(&nsm->claims, &claim->link);
	nsm->n_claims++;
	tag(nsm, claim);
	forget_old(nsm);
}

void hf_nsm_claims_init(struct hf_nsm *nsm)
{
	hf_list_init(&nsm->claims);
	hf_timer_init(&nsm->claims_timer, nsm->options.loop, on_timer);
	if (nsm->options.presence)
		hf_rpc_presence_listen(nsm->options.presence, on_connections, nsm);
}

void hf_nsm_claims_deinit(struct hf_nsm *nsm)
{
	struct claim *claim;

	if (nsm->options.presence)
		hf_rpc_presence_listen(nsm->options.presence, NULL, NULL);
	hf_timer_stop(&nsm->claims_timer);
	while ((claim = oldest(nsm)))
		claim_free(nsm, claim);
}
