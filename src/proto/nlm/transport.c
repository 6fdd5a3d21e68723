/*
 * May a call about an export that demands TLS come this way?
 *
 * Linux sends NLM in the clear, beside the TLS connection of its NFS calls. So a call in the clear is served
 * if its address has a TLS connection that the export would accept, or had one within tls.grace_seconds
 * (rpc/presence.h). A call inside TLS is judged by its own connection.
 *
 * The first lock binds the name of the client to the certificate (client/binding.c). From then on a
 * connection of another identity does not count for this name, until the client has nothing left.
 *
 * After a restart of the server its clients have no connections yet, and reclaim. What is stored of a client
 * counts as a connection that ended at the start.
 *
 * Any host can send a datagram with the address of a client. So a client that calls over TCP is not changed
 * by datagrams. (A GRANTED_RES may be one: it has the server's cookie, which is a secret.)
 *
 * A client that took what it has before the export demanded TLS may give it up in the clear.
 *
 * A refused call changes nothing, and is answered as a call without the right to the file. The replay cache
 * does not have the answer: the client may send the same call when it has its connection. A LOCK, UNLOCK or
 * CANCEL of what its owner may have, or wait for, is put off: the client is told to ask again.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "proto/nlm/internal.h"
#include "proto/nlm/op.h"
#include "proto/nsm/nsm.h"
#include "rpc/presence.h"
#include "tls/tls.h"

#define RESULT    "TLS_REQUIRED"
#define MAX_NAMES 4 /* of the certificates at one address, that a client is bound to */

struct question {
	const struct hf_nlm *nlm;
	uint32_t export;
	enum hf_transport demand;
	const struct hf_client *client; /* NULL: it is not known */
	enum hf_client_refusal refusal; /* of the certificate that comes closest */
};

static enum hf_transport demand_of(const struct hf_nlm *nlm, uint32_t export)
{
	return nlm->files.transport_of(nlm->files.user, export);
}

static void refuse_for(struct question *question, enum hf_client_refusal refusal)
{
	question->refusal = HF_MAX(question->refusal, refusal);
}

/* Would the export take NFS calls over such a connection? If it is gone, what it demanded last counts. */
static bool takes_nfs(struct question *question, const struct hf_tls_peer *peer,
		      char name[static HF_TLS_MAX_NAME + 1])
{
	const struct hf_nlm_files *files = &question->nlm->files;

	switch (hf_exports_admit_transport(files->exports, files->export_id_of(files->user, question->export),
					   peer, name)) {
	case HF_ADMITTED:
		return true;
	case HF_REFUSED_EXPORT:
		return peer->is_authenticated || question->demand != HF_TRANSPORT_MTLS;
	case HF_REFUSED_IDENTITY:
		refuse_for(question, HF_CLIENT_NOT_NAMED);
		return false;
	default:
		return false;
	}
}

/* What is locked under mtls belongs to a name. A certificate without one proves no owner. */
static bool is_admitted(struct question *question, const struct hf_tls_peer *peer,
			char name[static HF_TLS_MAX_NAME + 1])
{
	if (!takes_nfs(question, peer, name))
		return false;
	if (question->demand != HF_TRANSPORT_MTLS || peer->n_names)
		return true;
	refuse_for(question, HF_CLIENT_NOT_NAMED);
	return false;
}

static bool is_enough(void *user, const struct hf_tls_peer *peer, uint64_t newest)
{
	struct question *question = user;
	char name[HF_TLS_MAX_NAME + 1];

	if (!is_admitted(question, peer, name))
		return false;
	if (!question->client || hf_client_is_bound_to(question->client, peer))
		return true;
	refuse_for(question, HF_CLIENT_NAME_TAKEN);
	return false;
}

/* The names to which the client was bound in the last run, as a certificate would have them. */
static bool was_enough(struct question *question)
{
	const struct hf_client *client = question->client;
	struct hf_tls_peer peer = { 0 };
	char names[HF_CLIENT_MAX_IDENTITY + 1], *next = names;

	if (!client || !client->is_secured || client->met_at ||
	    !hf_rpc_presence_is_young(question->nlm->options.presence))
		return false;
	snprintf(names, sizeof(names), "%s", client->identity ? client->identity : "");
	while (peer.n_names < HF_TLS_MAX_NAMES && (peer.names[peer.n_names] = strsep(&next, " ")) &&
	       *peer.names[peer.n_names])
		peer.n_names++;
	peer.is_authenticated = peer.n_names > 0;
	return is_enough(question, &peer, 0);
}

static bool is_served(struct question *question, const struct hf_rpc_call *call)
{
	const struct hf_tls_peer *peer = hf_rpc_call_tls(call);
	struct hf_rpc_presence *presence = question->nlm->options.presence;

	question->refusal = HF_CLIENT_NO_CONNECTION;
	if (peer)
		return is_enough(question, peer, 0);
	return presence && (hf_rpc_presence_find(presence, hf_rpc_call_peer(call), is_enough, question) ||
			    was_enough(question));
}

/* Refusing */

static void say(struct hf_nlm *nlm, const struct hf_rpc_call *call, uint32_t export, struct hf_client *client,
		enum hf_client_refusal refusal)
{
	static const char *const sentences[] = {
		[HF_CLIENT_NO_CONNECTION] = "call refused: the export demands TLS, and the client's address "
					    "has no such connection",
		[HF_CLIENT_NOT_NAMED] = "call refused: no certificate of the client's address has a name "
					"that the export accepts",
		[HF_CLIENT_NAME_TAKEN] = "call refused: the client's name belongs to another certificate",
		[HF_CLIENT_DATAGRAM] = "call refused: it came over UDP, and the client calls over TCP",
	};
	const struct hf_nlm_files *files = &nlm->files;
	const struct hf_addr *peer = hf_rpc_call_peer(call);
	bool is_first = hf_client_note_refused(nlm->clients, client, refusal);
	const char *identity = client && client->identity ? client->identity : "-";
	char quoted[256], name[256], text[HF_ADDR_TEXT];

	if (is_first)
		hf_log_warn(sentences[refusal], "client=%s peer=%s procedure=%u identity=%s",
			    hf_log_quote(quoted, sizeof(quoted), client->id, strlen(client->id)),
			    hf_addr_format_with_port(peer, text, sizeof(text)),
			    hf_rpc_call_header(call)->procedure,
			    hf_log_quote(name, sizeof(name), identity, strlen(identity)));
	else if (!client)
		hf_exports_log_refusal_in(files->exports, files->export_id_of(files->user, export), peer,
					  refusal == HF_CLIENT_NOT_NAMED ? HF_REFUSED_IDENTITY
									 : HF_REFUSED_TRANSPORT,
					  "nlm", hf_loop_now(nlm->options.loop));
}

/* How a client of the last run locked is not stored. NFS over TLS is TCP, and lock managers use the transport
 * of their mount, so it did so over TCP. */
static bool may_be_forged(const struct hf_nlm_op *op, const struct hf_client *client)
{
	return client && client->is_secured && (client->has_connected || !client->met_at) &&
	       hf_rpc_call_transport(op->call) == HF_RPC_UDP;
}

/* The name is another certificate's, but its client has nothing left: the call may take the name over. */
static bool takes_name(const struct hf_nlm_op *op, struct hf_client *client, enum hf_client_refusal refusal)
{
	return refusal == HF_CLIENT_NAME_TAKEN && op->kind->takes && !op->args.reclaim &&
	       hf_client_has_nothing(client) && hf_client_unbind(client) == 0;
}

/* A client takes any refusal for the end of its LOCK, UNLOCK or CANCEL, except that it is to ask again. If
 * the server has a lock or a wait of the owner there, that would be wrong: an earlier LOCK may be under way,
 * or its reply may be lost; and a lock whose UNLOCK was refused would stay until the client is restarted. The
 * same holds for the refusal of a LOCK that stays behind replies which the store delays: a copy of the LOCK
 * may be served before the client hears it. */
static bool may_be_served(const struct hf_nlm_op *op, struct hf_client *client)
{
	struct hf_lock_target who = op->target;

	if ((!op->kind->takes && !op->kind->gives_up) || op->kind->results == HF_NLM_SHARE_RES)
		return false;
	if (op->kind->takes && hf_rpc_delay_would_delay(op->call))
		return true;
	if (!client)
		return false;
	who.client = &client->locking;
	return hf_nlm_op_find(op->nlm, &who) || hf_lock_touches(op->nlm->locks, &who, op->range);
}

/* The client asks again, and is served when it has its connection. A client does not repeat a reclaim that is
 * refused, but it does repeat one that is not answered. */
static void put_off(struct hf_nlm_op *op)
{
	if (op->args.reclaim)
		hf_nlm_op_drop(op);
	else
		hf_nlm_op_refuse(op, HF_NLM_DENIED_GRACE_PERIOD, RESULT);
}

/* True: the call is refused, and the operation is over. */
static bool refuses(struct hf_nlm_op *op, struct hf_client *client, enum hf_transport demand)
{
	struct question question = { op->nlm, op->target.export, demand, client, HF_CLIENT_NO_CONNECTION };

	if (may_be_forged(op, client))
		question.refusal = HF_CLIENT_DATAGRAM;
	else if (is_served(&question, op->call) || takes_name(op, client, question.refusal))
		return false;
	say(op->nlm, op->call, op->target.export, client, question.refusal);
	if (may_be_served(op, client))
		put_off(op);
	else
		hf_nlm_op_refuse(op, HF_NLM_FAILED, RESULT);
	return true;
}

/* The client has nothing left, and takes something that needs no TLS: its next notice needs none either. If
 * the store fails, the client stays bound, which is safe. */
static void forget_binding(struct hf_client *client)
{
	if (client && client->is_secured && hf_client_has_nothing(client))
		hf_client_unbind(client);
}

/* The call is served: the client lives, and it is in the life that it had, unless the call has a new number.
 */
static void vouch(const struct hf_nlm_op *op, struct hf_client *client)
{
	struct hf_rpc_presence *presence = op->nlm->options.presence;

	if (!presence)
		return;
	client->vouched = hf_rpc_presence_count(presence);
	if (!client->doubted_state || op->args.state != client->doubted_state)
		client->vouched_at = hf_loop_now(op->nlm->options.loop);
}

void hf_nlm_note_life(const struct hf_nlm_op *op)
{
	hf_cleanup(hf_client_unrefp) struct hf_client *client = NULL;

	if (demand_of(op->nlm, op->target.export) == HF_TRANSPORT_ANY)
		return;
	client = hf_nlm_find_client(op->nlm, hf_rpc_call_peer(op->call), op->args.caller);
	if (client && client->is_secured && hf_client_may_be_changed_from(client, hf_rpc_call_peer(op->call)))
		vouch(op, client);
}

bool hf_nlm_refuses_transport(struct hf_nlm_op *op, bool gives_up)
{
	enum hf_transport demand = demand_of(op->nlm, op->target.export);
	hf_cleanup(hf_client_unrefp) struct hf_client *client = NULL;

	if (demand == HF_TRANSPORT_ANY && !op->kind->takes)
		return false;
	client = hf_nlm_find_client(op->nlm, hf_rpc_call_peer(op->call), op->args.caller);
	if (demand == HF_TRANSPORT_ANY) {
		forget_binding(client);
		return false;
	}
	if (gives_up && client && !client->is_secured)
		return false;
	return refuses(op, client, demand);
}

bool hf_nlm_refuses_renamed(struct hf_nlm_op *op)
{
	enum hf_transport demand = demand_of(op->nlm, op->target.export);

	return op->client->is_secured && demand != HF_TRANSPORT_ANY && refuses(op, op->client, demand);
}

bool hf_nlm_refuses_answer(struct hf_nlm *nlm, struct hf_rpc_call *call, uint32_t export,
			   struct hf_client *client)
{
	struct question question = { nlm, export, demand_of(nlm, export), client, HF_CLIENT_NO_CONNECTION };

	if (question.demand == HF_TRANSPORT_ANY || !client->is_secured || is_served(&question, call))
		return false;
	say(nlm, call, export, client, question.refusal);
	hf_rpc_call_note(call, RESULT);
	return true;
}

/* Binding */

struct names {
	struct question question;
	struct hf_bytes caller;
	size_t n;
	char text[HF_CLIENT_MAX_IDENTITY + 1];
};

/* A name that fits the name of the client is the only one. */
static bool add_name(void *user, const struct hf_tls_peer *peer, uint64_t newest)
{
	struct names *names = user;
	size_t len = strlen(names->text);
	char name[HF_TLS_MAX_NAME + 1];

	if (!is_admitted(&names->question, peer, name) || !*name)
		return false;
	if (hf_nsm_names_match(hf_bytes_of_str(name), names->caller)) {
		snprintf(names->text, sizeof(names->text), "%s", name);
		return true;
	}
	if (names->n == MAX_NAMES)
		return false;
	snprintf(names->text + len, sizeof(names->text) - len, "%s%s", names->n++ ? " " : "", name);
	return false;
}

enum hf_nlm_stat hf_nlm_bind_identity(struct hf_nlm_op *op)
{
	struct hf_rpc_presence *presence = op->nlm->options.presence;
	const struct hf_tls_peer *peer = hf_rpc_call_tls(op->call);
	struct hf_client *client = op->client;
	struct names names = {
		.question = { op->nlm, op->target.export, demand_of(op->nlm, op->target.export), NULL, 0 },
		.caller = op->args.caller,
	};

	if (names.question.demand == HF_TRANSPORT_ANY)
		return HF_NLM_GRANTED_STAT;
	vouch(op, client);
	if (client->identity)
		return HF_NLM_GRANTED_STAT;
	if (peer)
		add_name(&names, peer, 0);
	else if (presence)
		hf_rpc_presence_find(presence, hf_rpc_call_peer(op->call), add_name, &names);
	return hf_client_bind(client, names.text) < 0 ? HF_NLM_DENIED_NOLOCKS : HF_NLM_GRANTED_STAT;
}

/* Ended connections */

/* Does a client at this address hold something for which such a connection speaks? */
static bool is_needed(void *user, const struct hf_addr *address, const struct hf_tls_peer *peer)
{
	struct hf_nlm *nlm = user;
	struct hf_client *client = NULL;

	while ((client = hf_clients_next_at(nlm->clients, address, client)))
		if (client->is_secured && !hf_client_has_nothing(client) &&
		    hf_client_is_bound_to(client, peer)) {
			hf_client_unref(client);
			return true;
		}
	return false;
}

void hf_nlm_transport_init(struct hf_nlm *nlm)
{
	if (nlm->options.presence)
		hf_rpc_presence_set_judge(nlm->options.presence, is_needed, nlm);
}

void hf_nlm_transport_deinit(struct hf_nlm *nlm)
{
	if (nlm->options.presence)
		hf_rpc_presence_set_judge(nlm->options.presence, NULL, NULL);
}

void hf_nlm_look_at_demands(struct hf_nlm *nlm)
{
	const struct hf_nlm_files *files = &nlm->files;

	nlm->has_demands = files->exports && files->demands_tls && files->demands_tls(files->user);
}
