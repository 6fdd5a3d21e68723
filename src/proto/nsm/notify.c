/*
 * SM_NOTIFY: a peer says that it was restarted. No one proves anything in this
 * protocol, so what counts is where it comes from; see nsm.h.
 */
#include <string.h>

#include "base/log.h"
#include "proto/nsm/internal.h"

/* Clients at one address beyond the one that is named exactly: hundreds of them behind one address is a
 * matter of address translation, and then the name has to fit. */
#define MAX_LOOKED_AT 256
#define MAX_PASSED    4096 /* of any kind */
#define EARLY_NS      (15 * 60 * HF_NS_PER_S)

struct notice {
	struct hf_nsm *nsm;
	const struct hf_addr *peer;
	bool is_superuser; /* of this host */
	struct hf_bytes name;
	int32_t state;
	struct hf_client *last; /* of those that it was about: a reference */
	size_t n_matched;
	size_t n_named; /* of those: by this name, and registered, so that they will be known */
	size_t n_new;
};

/* A notice may be sent twice, and the second come when its sender holds something. For as long as sm-notify
 * tries we remember whom we had nothing of, by that name, when the first came. Another name is another
 * notice; and on this host anybody can speak, so that what is ignored says nothing of what root says then. */

static uint64_t hash_name(const struct notice *notice)
{
	return hf_siphash(&notice->nsm->key, notice->name.data, notice->name.len);
}

/* The last one that came early from this host, by this name, and said @state (0: whatever it said). */
static const struct hf_nsm_early *find_early(const struct notice *notice, int32_t state)
{
	const struct hf_nsm *nsm = notice->nsm;
	uint64_t now = hf_loop_now(nsm->options.loop), name = hash_name(notice);

	for (size_t i = 1; i <= HF_MIN(nsm->n_early, (size_t)HF_NSM_N_EARLY); i++) {
		const struct hf_nsm_early *early = &nsm->early[(nsm->n_early - i) % HF_NSM_N_EARLY];

		if (early->until > now && (!state || early->state == state) && early->name == name &&
		    hf_addr_same_host(&early->host, notice->peer))
			return early;
	}
	return NULL;
}

static bool was_early(const struct notice *notice)
{
	return find_early(notice, notice->state) != NULL;
}

/* Of several that came early the last one says what the host is now; but a copy of an older one is not the
 * last. */
static bool is_last_early(const struct notice *notice)
{
	const struct hf_nsm_early *last = find_early(notice, 0);

	return last && last->state == notice->state;
}

static void note_early(const struct notice *notice)
{
	struct hf_nsm *nsm = notice->nsm;

	if (hf_addr_is_loopback(notice->peer) || was_early(notice))
		return;
	nsm->early[nsm->n_early++ % HF_NSM_N_EARLY] = (struct hf_nsm_early){
		.host = *notice->peer,
		.name = hash_name(notice),
		.state = notice->state,
		.until = hf_loop_now(nsm->options.loop) + EARLY_NS,
	};
}

static void believe(struct notice *notice, struct hf_client *client)
{
	struct hf_recovery *recovery = notice->nsm->options.recovery;

	notice->n_matched++;
	/* The first copy of this notice came when he held nothing: what he holds he has taken since, and
	 * perhaps after another restart. */
	if (was_early(notice)) {
		if (client->sm_state == 0 && is_last_early(notice))
			hf_recovery_client_state(recovery, client, notice->state);
	} else if (hf_recovery_client_rebooted(recovery, client, notice->state)) {
		notice->n_new++;
	}
	hf_client_unref(notice->last);
	notice->last = hf_client_ref(client);
}

/* A name that was registered with a port is the same host. */
static bool fits(const struct notice *notice, const struct hf_client *client)
{
	const char *colon = strrchr(client->name, ':');

	if (hf_nsm_names_match(hf_bytes_of_str(client->name), notice->name))
		return true;
	return colon && client->callback.host &&
	       hf_nsm_names_match(hf_bytes_of(client->name, (uint32_t)(colon - client->name)), notice->name);
}

/* All at the sender's address: those whose name fits, who watch that address, or who are there alone. */
static void match_address(struct notice *notice, const char *protocol)
{
	struct hf_nsm *nsm = notice->nsm;
	struct hf_client *client = NULL, *only = NULL;
	size_t n = 0, n_passed = 0, n_fitting = 0;
	struct hf_client *exact = hf_clients_find(nsm->clients, protocol, notice->peer, notice->name);

	if (exact && !hf_nsm_is_local_watch(nsm, exact)) {
		n_fitting++;
		notice->n_named += hf_client_is_registered(exact);
		believe(notice, exact);
	}
	while ((client = hf_clients_next_at(nsm->clients, notice->peer, client)) && n < MAX_LOOKED_AT &&
	       n_passed++ < MAX_PASSED) {
		if (strcmp(client->protocol, protocol) != 0 || client == exact ||
		    hf_nsm_is_local_watch(nsm, client))
			continue;
		n++;
		if (fits(notice, client)) {
			n_fitting++;
			notice->n_named += hf_client_is_registered(client);
			believe(notice, client);
		}
		hf_client_unref(only);
		only = hf_client_ref(client);
	}
	if (n == 1 && n_fitting == 0 && !client && !hf_client_had_neighbour(only))
		believe(notice, only);
	hf_client_unref(client);
	hf_client_unref(only);
	hf_client_unref(exact);
}

/* Somebody may hold on to a client after SM_UNMON. */
static bool is_watching(const struct hf_nsm *nsm, const struct hf_client *client)
{
	return hf_nsm_is_local_watch(nsm, client) && hf_client_is_registered(client);
}

void hf_nsm_tell_watchers(struct hf_nsm *nsm, const struct hf_addr *address, int32_t state)
{
	struct hf_client *client = NULL;
	size_t n = 0;

	while ((client = hf_clients_next_at(nsm->clients, address, client)) && n++ < MAX_LOOKED_AT)
		if (is_watching(nsm, client))
			hf_recovery_client_rebooted(nsm->options.recovery, client, state);
	hf_client_unref(client);
}

static void match_watchers(struct notice *notice)
{
	struct hf_nsm *nsm = notice->nsm;
	struct hf_client *client = NULL;
	size_t n = 0;

	while ((client = hf_clients_next_at(nsm->clients, notice->peer, client)) && n++ < MAX_LOOKED_AT)
		if (is_watching(nsm, client) && !hf_addr_is_loopback(&client->address))
			believe(notice, client);
	hf_client_unref(client);
	client = NULL;
	/* Nothing of ours is at stake: its lock manager asked to be told, by that name. */
	while ((client = hf_nsm_next_watch(nsm, notice->name, client)))
		believe(notice, client);
}

/* An operator's tool on this host (it can have any of our ports anyway) may speak for others. */
static void match_name(struct notice *notice)
{
	struct hf_client *client;
	uint64_t serial = 0;

	if (!notice->is_superuser)
		return;
	while ((client = hf_clients_next(notice->nsm->clients, serial))) {
		serial = client->serial;
		if (!hf_nsm_is_local_watch(notice->nsm, client) && fits(notice, client))
			believe(notice, client);
		hf_client_unref(client);
	}
}

static void log_ignored(struct notice *notice)
{
	char peer[HF_ADDR_TEXT], name[128];

	if (hf_nsm_is_stranger_new(notice->nsm, notice->peer))
		hf_log_warn(
			"a notice of a restart is ignored: nobody by that name and address holds anything",
			"peer=%s name=%s state=%d",
			hf_addr_format_with_port(notice->peer, peer, sizeof(peer)),
			hf_log_quote(name, sizeof(name), notice->name.data, notice->name.len), notice->state);
}

static void judge(struct notice *notice)
{
	struct hf_nsm_counts *counts = &notice->nsm->counts;

	match_address(notice, "nlm");
	match_address(notice, HF_NSM_PROTOCOL);
	match_watchers(notice);
	if (notice->n_matched == 0)
		match_name(notice);
	if (notice->n_named == 0)
		note_early(notice);
	if (notice->n_matched == 0) {
		counts->notices_ignored++;
		log_ignored(notice);
	} else if (notice->n_new) {
		counts->notices_believed++;
	} else {
		counts->notices_repeated++;
	}
}

void hf_nsm_proc_notify(void *service, struct hf_rpc_call *call)
{
	struct hf_nsm *nsm = service;
	struct hf_nsm_status status = hf_nsm_get_stat_chge(hf_rpc_call_args(call));
	struct notice notice = {
		.nsm = nsm,
		.peer = hf_rpc_call_peer(call),
		.is_superuser = hf_rpc_client_is_superuser(nsm->options.client, call),
		.name = status.mon_name,
		.state = status.state,
	};
	bool is_sense = hf_xdr_in_is_ok(hf_rpc_call_args(call));

	hf_nsm_count(nsm, HF_NSM_NOTIFY, !is_sense);
	if (!is_sense) {
		hf_rpc_reply_garbage(call);
		return;
	}
	judge(&notice);
	hf_nsm_reply_kept(nsm, call, notice.last, HF_NSM_ANSWER_VOID);
	hf_client_unref(notice.last);
}
