/*
 * SM_NOTIFY: a peer says that it was restarted. The protocol carries no proof. The server
 * judges a notice by its source, by the name in it, and by what the host at that address
 * says when it is asked; see nsm.h and doubt.c.
 *
 *	judge()     finds the clients that the notice is about; believes it at once,
 *	            or puts the client among the suspects
 *	check()     suspends the call and asks about each suspect (doubt.c)
 *	must_wait() a client of an export that demands TLS: has its host shown its key? (proof.c)
 *	finish()    counts, logs and answers, when all suspects are decided
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "client/host_name.h"
#include "proto/nsm/internal.h"

#define MAX_PASSED 4096 /* clients of any kind, also those that do not count for HF_NSM_MAX_LOOKED_AT */

struct notice {
	struct hf_nsm *nsm;
	struct hf_rpc_call *call;
	const struct hf_addr *peer;
	bool is_superuser; /* the sender is the superuser of this host */
	struct hf_bytes name;
	int32_t state;
	struct hf_client *last; /* the last client that the notice is about; a reference */
	size_t n_matched;
	size_t n_named;          /* of those: registered, and with the name in the notice */
	struct hf_list suspects; /* clients whose hosts must be asked first */
	size_t n_open;           /* suspects that are not decided yet */
	size_t n_denied;         /* suspects whose host was certainly not restarted */
	size_t n_unproven;       /* clients whose host has not shown its key; the notice waits */
	size_t n_unsure;         /* suspects whose host said too little, or could not be asked */
	bool has_one_left;       /* a suspect was unregistered while its host was asked */
};

struct suspect {
	struct hf_link link; /* of notice->suspects */
	struct hf_nsm_asker asker;
	struct notice *notice;
	struct hf_client *client; /* a reference */
};

/* Copies (copies.c) */

static bool was_early(const struct notice *notice)
{
	return hf_nsm_was_early(notice->nsm, notice->peer, notice->name, notice->state);
}

static void note_early(const struct notice *notice)
{
	hf_nsm_note_early(notice->nsm, notice->peer, notice->name, notice->state);
}

/* The client has, or had, this number already, as far as even datagrams tell. */
static bool is_copy(const struct notice *notice, const struct hf_client *client)
{
	return hf_recovery_may_be_copy(notice->nsm->options.recovery, client, notice->state);
}

/* Believing */

static void believe(struct notice *notice, struct hf_client *client)
{
	(void)hf_recovery_client_rebooted(notice->nsm->options.recovery, client, notice->state);
}

/* The notice would release something, and the client's host must show its key first. @is_said: the host's
 * statd gives the number. Else the sender's next copy counts, and not this one. */
static bool must_wait(struct notice *notice, struct hf_client *client, bool is_said)
{
	struct hf_nsm *nsm = notice->nsm;

	if (hf_nsm_has_proof(nsm, notice->call, client) ||
	    !hf_recovery_is_new_restart(nsm->options.recovery, client, notice->state))
		return false;
	hf_nsm_note_unproven(nsm, notice->call, client);
	if (is_said)
		hf_nsm_remember_unproven(nsm, client, notice->state);
	notice->n_unproven++;
	return true;
}

static void suspect(struct notice *notice, struct hf_client *client, bool is_named)
{
	struct suspect *suspect = calloc(1, sizeof(*suspect));

	if (!suspect) {
		notice->n_unsure++;
		return;
	}
	suspect->client = hf_client_ref(client);
	/* The name is not the client's. It may be that of another host behind the same address. */
	suspect->asker.wants_confirmation = !is_named;
	suspect->asker.is_copy = was_early(notice) || is_copy(notice, client);
	suspect->asker.is_sure = is_named && hf_nsm_is_trusted(notice->nsm, notice->call, client);
	suspect->asker.is_unproven = !hf_nsm_has_proof(notice->nsm, notice->call, client);
	hf_list_push_back(&notice->suspects, &suspect->link);
}

/* A notice with an old number releases nothing, so it needs no check. A client without locks is checked all
 * the same: a forged number would make its next true notice look like a repetition. If the LOCKs of the
 * client said the number already, and nothing proves it, the notice is a copy, or a forger guessed the
 * number: no connection tells which. Nor does one tell if the statd gave the number when the client took its
 * first lock. What the client took by calls without a number is at stake. */
static bool is_to_be_checked(struct notice *notice, struct hf_client *client, bool is_named)
{
	struct hf_nsm *nsm = notice->nsm;

	if (!hf_recovery_is_new_restart(nsm->options.recovery, client, notice->state) || notice->is_superuser)
		return false;
	return !is_named || is_copy(notice, client) || hf_nsm_baseline_says(client, notice->state) ||
	       !hf_nsm_is_trusted(nsm, notice->call, client) || !hf_nsm_has_proof(nsm, notice->call, client);
}

/* The host's statd gave another number when the client took its first lock. If the host has the number of the
 * notice since then, a forger sent the first copy. */
static bool has_begun_before(const struct notice *notice, const struct hf_client *client)
{
	const struct hf_nsm_facts *facts = hf_nsm_baseline_facts(client);

	return facts && facts->state != notice->state;
}

/* The notice is about this client: it has the client's name, or no other client is at the address. */
static void take(struct notice *notice, struct hf_client *client, bool is_named)
{
	notice->n_matched++;
	hf_client_unref(notice->last);
	notice->last = hf_client_ref(client);
	if (hf_nsm_is_number_of_departed(notice->nsm, client, notice->state))
		return;
	/* The first copy of this notice came when the client had no locks. It took its present locks since
	 * then, perhaps after another restart, so this copy must not release them. But the first copy may
	 * have been forged to make the server ignore this one. So this one is checked, even if it would be
	 * trusted as a first copy. */
	if (was_early(notice) && client->sm_state == 0 &&
	    hf_nsm_is_last_early(notice->nsm, notice->peer, notice->name, notice->state) &&
	    !has_begun_before(notice, client) && !is_to_be_checked(notice, client, is_named)) {
		hf_recovery_client_state(notice->nsm->options.recovery, client, notice->state);
	} else if (is_to_be_checked(notice, client, is_named && !was_early(notice))) {
		suspect(notice, client, is_named);
	} else {
		believe(notice, client);
	}
}

/* A client may be registered as "host:port". The notice names the host only. */
static bool fits(const struct notice *notice, const struct hf_client *client)
{
	const char *colon = strrchr(client->name, ':');
	bool has_port = colon && client->callback.host && !hf_host_name_is_address(hf_client_name(client));

	if (hf_nsm_names_match(hf_bytes_of_str(client->name), notice->name))
		return true;
	return has_port &&
	       hf_nsm_names_match(hf_bytes_of(client->name, (uint32_t)(colon - client->name)), notice->name);
}

/* A name that only datagrams have given may be forged, and a user of the host can connect from an ordinary
 * port under any name. Such a name does not count beside a better one. */
static unsigned int weight_of(const struct hf_client *client)
{
	return !client->has_connected ? 0 : client->is_privileged ? 2 : 1;
}

/* Finds the clients at the sender's address: each whose name matches, or else the only client there. */
static void match_address(struct notice *notice, const char *protocol)
{
	struct hf_nsm *nsm = notice->nsm;
	struct hf_client *client = NULL, *only = NULL;
	size_t n = 0, n_passed = 0, n_fitting = 0;
	unsigned int best = 0;
	struct hf_client *exact = hf_clients_find(nsm->clients, protocol, notice->peer, notice->name);

	if (exact && !hf_nsm_is_local_watch(nsm, exact)) {
		n_fitting++;
		notice->n_named += hf_client_is_registered(exact);
		take(notice, exact, true);
	}
	while ((client = hf_clients_next_at(nsm->clients, notice->peer, client)) &&
	       (n < HF_NSM_MAX_LOOKED_AT || best == 0) && n_passed++ < MAX_PASSED) {
		if (strcmp(client->protocol, protocol) != 0 || client == exact ||
		    hf_nsm_is_local_watch(nsm, client))
			continue;
		if (fits(notice, client)) {
			n_fitting++;
			notice->n_named += hf_client_is_registered(client);
			take(notice, client, true);
		}
		if (weight_of(client) > best) {
			best = weight_of(client);
			n = 0;
		}
		if (weight_of(client) == best && n++ == 0) {
			hf_client_unref(only);
			only = hf_client_ref(client);
		}
	}
	if (n == 1 && n_fitting == 0 && !client && !hf_client_had_neighbour(only))
		take(notice, only, false);
	hf_client_unref(client);
	hf_client_unref(only);
	hf_client_unref(exact);
}

static void match_watchers(struct notice *notice)
{
	struct hf_nsm *nsm = notice->nsm;
	struct hf_client *client = NULL;
	size_t n = 0;

	while ((client = hf_clients_next_at(nsm->clients, notice->peer, client)) &&
	       n++ < HF_NSM_MAX_LOOKED_AT)
		if (hf_nsm_is_watching(nsm, client) && !hf_addr_is_loopback(&client->address))
			take(notice, client, true);
	hf_client_unref(client);
	client = NULL;
	/* The lock manager asked to be told about this name, from whatever address the notice comes. Nothing
	 * of this server depends on it. */
	while ((client = hf_nsm_next_watch(nsm, notice->name, client))) {
		notice->n_matched++;
		believe(notice, client);
	}
}

/* The superuser of this host may send a notice for another host: it could take over the server's ports
 * anyway. The loop stands still meanwhile, so the notice is about the first MAX_PASSED clients of that name.
 */
static void match_name(struct notice *notice)
{
	struct hf_clients *clients = notice->nsm->clients;
	struct hf_client *client = NULL;
	size_t n_passed = 0;

	if (!notice->is_superuser)
		return;
	while ((client = hf_clients_next_named(clients, notice->name, client)) && n_passed++ < MAX_PASSED)
		if (!hf_nsm_is_local_watch(notice->nsm, client) && fits(notice, client))
			take(notice, client, true);
	hf_client_unref(client);
}

static void log_ignored(struct notice *notice)
{
	char peer[HF_ADDR_TEXT], name[128];

	if (hf_nsm_is_stranger_new(notice->nsm, notice->peer))
		hf_log_warn("a notice of a restart is ignored: no client has this name and address",
			    "peer=%s name=%s state=%d",
			    hf_addr_format_with_port(notice->peer, peer, sizeof(peer)),
			    hf_log_quote(name, sizeof(name), notice->name.data, notice->name.len),
			    notice->state);
}

void hf_nsm_note_denied(struct hf_nsm *nsm, struct hf_rpc_call *call, struct hf_bytes name, int32_t state,
			bool is_sure)
{
	const struct hf_addr *peer = hf_rpc_call_peer(call);
	char text[HF_ADDR_TEXT], quoted[128];

	hf_rpc_call_note(call, "DENIED");
	hf_addr_format_with_port(peer, text, sizeof(text));
	hf_log_quote(quoted, sizeof(quoted), name.data, name.len);
	hf_log_debug("a notice of a restart is denied", "peer=%s name=%s state=%d sure=%s", text, quoted,
		     state, is_sure ? "yes" : "no");
	if (!hf_nsm_is_stranger_new(nsm, peer))
		return;
	if (is_sure)
		hf_log_warn("a notice of a restart is ignored: the host that it names has not been restarted",
			    "peer=%s name=%s state=%d", text, quoted, state);
	else
		hf_log_warn(
			"a notice of a restart is not believed yet: the host that it names has not confirmed "
			"it, and its sender repeats it; if that host was restarted, delete the client",
			"peer=%s name=%s state=%d", text, quoted, state);
}

/* Finds the clients. Believes the notice where no check is needed. */
static void judge(struct notice *notice)
{
	match_address(notice, "nlm");
	match_address(notice, HF_NSM_PROTOCOL);
	match_watchers(notice);
	if (notice->n_matched == 0)
		match_name(notice);
}

/* The answer */

/* A client that leaves while the notice is checked takes the number along, and nothing else remembers it. */
static bool is_known(const struct notice *notice)
{
	return notice->n_named > 0 && !notice->has_one_left && hf_client_is_registered(notice->last);
}

static void finish(struct notice *notice)
{
	struct hf_nsm *nsm = notice->nsm;

	if (notice->n_matched == 0) {
		hf_rpc_call_note(notice->call, "IGNORED");
		log_ignored(notice);
	}
	if (!is_known(notice) && !notice->n_denied && !notice->n_unsure && !notice->n_unproven)
		note_early(notice);
	if (notice->n_denied || notice->n_unsure) {
		hf_nsm_note_denied(nsm, notice->call, notice->name, notice->state, !notice->n_unsure);
	}
	if (notice->n_unsure || notice->n_unproven) {
		hf_rpc_call_drop(notice->call);
	} else {
		hf_nsm_reply_when_durable(nsm, notice->call, notice->last, HF_NSM_ANSWER_VOID);
	}
	hf_client_unref(notice->last);
}

static void suspect_free(struct suspect *suspect)
{
	hf_link_remove(&suspect->link);
	hf_client_unref(suspect->client);
	free(suspect);
}

static void finish_if_all_is_decided(struct notice *notice)
{
	if (notice->n_open)
		return;
	finish(notice);
	free(notice);
}

static void on_verdict(struct hf_nsm_asker *asker, struct hf_client *client, enum hf_nsm_verdict verdict)
{
	struct suspect *suspect = hf_container_of(asker, struct suspect, asker);
	struct notice *notice = suspect->notice;

	/* The watch may have ended during the check. And the client may have taken its first lock under TLS:
	 * then the notice was perhaps believed by the silence of its host. */
	if (verdict == HF_NSM_BELIEVED &&
	    (!hf_nsm_is_local_watch(notice->nsm, client) || hf_nsm_is_watching(notice->nsm, client)) &&
	    !must_wait(notice, client, asker->is_unproven))
		believe(notice, client);
	notice->has_one_left |= !hf_client_is_registered(client);
	/* A copy that is not believed is only a copy: the server answers it, and does not log its sender. */
	notice->n_denied += verdict == HF_NSM_DENIED && !is_copy(notice, client);
	if (verdict == HF_NSM_UNSURE && asker->is_unproven) {
		hf_nsm_note_unproven(notice->nsm, notice->call, client);
		notice->n_unproven++;
	} else {
		notice->n_unsure += verdict == HF_NSM_UNSURE;
	}
	suspect_free(suspect);
	notice->n_open--;
	finish_if_all_is_decided(notice);
}

static void drop_suspects(struct notice *notice)
{
	struct hf_link *link;

	while ((link = hf_list_first(&notice->suspects)))
		suspect_free(hf_list_entry(link, struct suspect, link));
}

/* Suspending the call moves its bytes, so the name is decoded again. */
static struct notice *suspend(const struct notice *seen)
{
	struct notice *notice = malloc(sizeof(*notice));
	struct hf_nsm_status status;

	if (!notice) {
		hf_rpc_call_drop(seen->call);
		return NULL;
	}
	if (hf_rpc_call_suspend(seen->call) < 0) {
		free(notice);
		return NULL;
	}
	*notice = *seen;
	status = hf_nsm_get_stat_chge(hf_rpc_call_args(seen->call));
	notice->name = status.mon_name;
	notice->peer = hf_rpc_call_peer(seen->call);
	hf_list_init(&notice->suspects);
	return notice;
}

static void check(struct notice *seen)
{
	struct notice *notice = suspend(seen);
	struct hf_link *link;

	if (!notice) {
		drop_suspects(seen);
		hf_client_unref(seen->last);
		return;
	}
	notice->n_open = 1; /* stays above 0 until every suspect has been asked about */
	while ((link = hf_list_pop_front(&seen->suspects))) {
		struct suspect *suspect = hf_list_entry(link, struct suspect, link);

		suspect->notice = notice;
		suspect->asker.fn = on_verdict;
		hf_link_init(&suspect->asker.link);
		if (hf_nsm_doubt(notice->nsm, notice->call, suspect->client, notice->state,
				 &suspect->asker) == 0) {
			notice->n_open++;
		} else {
			notice->n_unsure++;
			suspect_free(suspect);
		}
	}
	notice->n_open--;
	finish_if_all_is_decided(notice);
}

void hf_nsm_proc_notify(void *service, struct hf_rpc_call *call)
{
	struct hf_nsm *nsm = service;
	struct hf_nsm_status status = hf_nsm_get_stat_chge(hf_rpc_call_args(call));
	struct notice notice = {
		.nsm = nsm,
		.call = call,
		.peer = hf_rpc_call_peer(call),
		.is_superuser = hf_nsm_is_superuser(nsm, call),
		.name = status.mon_name,
		.state = status.state,
	};
	bool is_sense = hf_xdr_in_is_ok(hf_rpc_call_args(call));

	if (!is_sense) {
		hf_rpc_reply_garbage(call);
		return;
	}
	if (hf_nsm_refuses_port(nsm, call))
		return;
	hf_list_init(&notice.suspects);
	judge(&notice);
	if (hf_list_is_empty(&notice.suspects))
		finish(&notice);
	else
		check(&notice);
}
