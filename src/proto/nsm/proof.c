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
 * repeats it. If the host's statd gives its number, the server remembers it as unproven, as
 * long as sm-notify repeats it. The connection proves it.
 *
 * A client connects again for other reasons, too. So a forged notice must not wait for that:
 * the server remembers none if the host is silent, and a call of the client's old life ends one.
 *
 * What the client takes while an unproven notice waits may be of its new life, so it carries a tag, as
 * during a check (doubt.c).
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "proto/nsm/internal.h"
#include "rpc/presence.h"
#include "tls/tls.h"

#define MAX_UNPROVEN   256
#define MAX_PER_CLIENT 4

struct unproven {
	struct hf_link link;
	struct hf_client *client; /* a reference */
	int32_t state;
	int32_t tag;             /* of what the client takes meanwhile; 0: it has none of this notice */
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

/* Unproven notices */

static void unproven_free(struct hf_nsm *nsm, struct unproven *unproven)
{
	struct hf_client *client = unproven->client;

	if (unproven->tag && client->doubt_tag == unproven->tag)
		client->doubted_state = client->doubt_tag = 0;
	hf_link_remove(&unproven->link);
	nsm->n_unproven--;
	hf_client_unref(client);
	free(unproven);
}

static struct unproven *oldest(struct hf_nsm *nsm)
{
	struct hf_link *link = hf_list_first(&nsm->unproven);

	return link ? hf_list_entry(link, struct unproven, link) : NULL;
}

static void forget_old(struct hf_nsm *nsm)
{
	uint64_t now = hf_loop_now(nsm->options.loop);
	struct unproven *unproven;

	while ((unproven = oldest(nsm)) && unproven->until <= now)
		unproven_free(nsm, unproven);
	if (unproven)
		hf_timer_start(&nsm->unproven_timer, unproven->until - now);
}

static void on_timer(struct hf_timer *timer)
{
	forget_old(hf_container_of(timer, struct hf_nsm, unproven_timer));
}

/* After the notice a call of the client was served that was not of its new life. */
static bool is_refuted(const struct unproven *unproven)
{
	return unproven->client->vouched_at > unproven->made_at;
}

static struct unproven *find_true(struct hf_nsm *nsm)
{
	hf_list_for_each(link, &nsm->unproven) {
		struct unproven *unproven = hf_list_entry(link, struct unproven, link);

		if (!is_refuted(unproven) && is_back(nsm, unproven->client))
			return unproven;
	}
	return NULL;
}

/* Connections have begun. Releasing locks serves waiters, so the list is read anew after each notice. */
static void on_connections(void *user)
{
	struct hf_nsm *nsm = user;
	struct unproven *unproven;

	forget_old(nsm);
	while ((unproven = find_true(nsm))) {
		struct hf_client *client = hf_client_ref(unproven->client);
		int32_t state = unproven->state;

		unproven->tag = 0; /* what carries it stays */
		unproven_free(nsm, unproven);
		hf_recovery_client_rebooted(nsm->options.recovery, client, state);
		hf_client_unref(client);
	}
}

/* True: it is known already. The oldest makes room. */
static bool is_known(struct hf_nsm *nsm, const struct hf_client *client, int32_t state)
{
	struct unproven *first = NULL;
	size_t n = 0;

	hf_list_for_each(link, &nsm->unproven) {
		struct unproven *unproven = hf_list_entry(link, struct unproven, link);

		if (unproven->client != client)
			continue;
		if (unproven->state == state && !is_refuted(unproven))
			return true;
		if (unproven->state == state) {
			unproven_free(nsm, unproven);
			return false;
		}
		if (n++ == 0)
			first = unproven;
	}
	nsm->n_unproven_forgotten += n >= MAX_PER_CLIENT || nsm->n_unproven >= MAX_UNPROVEN;
	if (n >= MAX_PER_CLIENT)
		unproven_free(nsm, first);
	else if (nsm->n_unproven >= MAX_UNPROVEN)
		unproven_free(nsm, oldest(nsm));
	return false;
}

/* If the notice was just checked, the tag of that check goes on. */
static void tag(struct hf_nsm *nsm, struct unproven *unproven)
{
	struct hf_client *client = unproven->client;

	if (client->doubted_state)
		return;
	if (!client->doubt_tag) {
		client->doubt_tag = hf_client_make_doubt_tag(unproven->state, nsm->n_doubted++);
		client->doubted_at = hf_loop_now(nsm->options.loop);
	}
	client->doubted_state = unproven->state;
	unproven->tag = client->doubt_tag;
}

void hf_nsm_remember_unproven(struct hf_nsm *nsm, struct hf_client *client, int32_t state)
{
	struct unproven *unproven;

	if (is_known(nsm, client, state))
		return;
	unproven = calloc(1, sizeof(*unproven));
	if (!unproven) {
		hf_trace(-ENOMEM); /* the sender repeats the notice */
		return;
	}
	unproven->client = hf_client_ref(client);
	unproven->state = state;
	unproven->made_at = hf_loop_now(nsm->options.loop);
	unproven->until = unproven->made_at + HF_RECOVERY_NOTICE_NS;
	hf_list_push_back(&nsm->unproven, &unproven->link);
	nsm->n_unproven++;
	tag(nsm, unproven);
	forget_old(nsm);
}

void hf_nsm_unproven_show_limit(const struct hf_nsm *nsm, struct hf_limit_use *use)
{
	*use = (struct hf_limit_use){ .used = nsm->n_unproven,
				      .max = MAX_UNPROVEN,
				      .refused = nsm->n_unproven_forgotten };
}

void hf_nsm_unproven_init(struct hf_nsm *nsm)
{
	hf_list_init(&nsm->unproven);
	hf_timer_init(&nsm->unproven_timer, nsm->options.loop, on_timer);
	if (nsm->options.presence)
		hf_rpc_presence_listen(nsm->options.presence, on_connections, nsm);
}

void hf_nsm_unproven_deinit(struct hf_nsm *nsm)
{
	struct unproven *unproven;

	if (nsm->options.presence)
		hf_rpc_presence_listen(nsm->options.presence, NULL, NULL);
	hf_timer_stop(&nsm->unproven_timer);
	while ((unproven = oldest(nsm)))
		unproven_free(nsm, unproven);
}
