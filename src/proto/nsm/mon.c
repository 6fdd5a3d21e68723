/* SM_MON, SM_UNMON and SM_UNMON_ALL: programs that want to be told of restarts. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "proto/nsm/internal.h"

/* No program is called back under these numbers. A forged SM_MON must not make the server call them. */
static const uint32_t never_called[] = { 100000, 100003, 100005, 100227 };

static bool is_allowed(const struct hf_nsm *nsm, const struct hf_addr *peer)
{
	if (hf_addr_is_loopback(peer) || nsm->options.allow_mon == HF_NSM_ALLOW_ANY)
		return true;
	return nsm->options.allow_mon == HF_NSM_ALLOW_EXPORTS && nsm->options.is_export_client &&
	       nsm->options.is_export_client(nsm->options.user, peer);
}

static bool is_sensible(const struct hf_nsm_mon *mon)
{
	for (size_t i = 0; i < HF_ARRAY_SIZE(never_called); i++)
		if (mon->my_id.program == never_called[i])
			return false;
	return hf_client_name_is_good(mon->mon_name) && hf_client_name_is_good(mon->my_id.my_name);
}

static void log_refusal(struct hf_nsm *nsm, struct hf_rpc_call *call, const char *sentence)
{
	char peer[HF_ADDR_TEXT];

	if (hf_nsm_is_stranger_new(nsm, hf_rpc_call_peer(call)))
		hf_log_warn(sentence, "peer=%s",
			    hf_addr_format_with_port(hf_rpc_call_peer(call), peer, sizeof(peer)));
}

/* For the metrics; the answer to SM_UNMON has no word for it. SM_MON counts as what it is answered with. */
static void note_refused(struct hf_rpc_call *call)
{
	hf_rpc_call_note(call, HF_NSM_REFUSED);
}

static bool may_register(struct hf_nsm *nsm, struct hf_rpc_call *call)
{
	if (is_allowed(nsm, hf_rpc_call_peer(call)))
		return true;
	note_refused(call);
	log_refusal(nsm, call, "a call of SM_MON or SM_UNMON is refused: nsm.allow_mon does not allow it");
	return false;
}

/* A datagram whose address has not answered; see visit.c. */
static bool is_refused_unanswered(struct hf_nsm *nsm, struct hf_rpc_call *call, bool has_answered)
{
	if (!has_answered) {
		note_refused(call);
		log_refusal(
			nsm, call,
			"a call of SM_MON or SM_UNMON over UDP is refused: its host has not shown a port for "
			"the call-back; a call over TCP needs none");
	}
	return !has_answered;
}

/* The key */

/* The client of a registration is (nsm, address, name). The name is that of the program to call back. The
 * address is that of the caller. For a lock manager of this host it is the address of the watched peer, so
 * that a notice from there finds the registration. */
struct key {
	struct hf_addr address;
	struct hf_bytes name;
	char both[2 * HF_NSM_MAX_NAME + 2];
};

static void set_key(const struct hf_nsm *nsm, struct hf_rpc_call *call, const struct hf_nsm_mon *mon,
		    struct key *key)
{
	char text[HF_ADDR_TEXT];
	struct hf_addr peer;

	key->address = *hf_rpc_call_peer(call);
	key->name = mon->my_id.my_name;
	if (!hf_addr_is_loopback(&key->address) ||
	    hf_nsm_is_us(nsm, mon->mon_name, hf_rpc_call_local(call)) || mon->mon_name.len >= sizeof(text))
		return;
	memcpy(text, mon->mon_name.data, mon->mon_name.len);
	text[mon->mon_name.len] = '\0';
	if (hf_addr_parse(&peer, text))
		key->address = peer;
}

static bool watches(const struct hf_client *client, struct hf_bytes mon_name)
{
	return hf_bytes_equal(hf_bytes_of_str(client->mon_name ? client->mon_name : client->name), mon_name);
}

static bool is_of_this_host(const struct hf_client *client)
{
	return hf_addr_is_loopback(&client->local);
}

/* Did the program that calls from @peer under this name make the registration? */
static bool is_registrar(const struct hf_client *client, const struct hf_addr *peer, struct hf_bytes my_name)
{
	if (strcmp(client->protocol, HF_NSM_PROTOCOL) != 0 || !client->callback.host ||
	    !hf_bytes_equal(hf_bytes_of_str(client->callback.host), my_name))
		return false;
	return hf_addr_is_loopback(peer)
		       ? is_of_this_host(client)
		       : hf_addr_same_host(&client->address, peer) && !is_of_this_host(client);
}

/* A lock manager that watches several peers by name would have the same key for all of them. From the second
 * on, the peer's name is added to the key. The same is done if a lock manager of this host and its watched
 * peer have one name ("localhost"): these are two registrations. The registration with the short key may end
 * before the others, so both keys are looked up. */
static struct hf_client *find(const struct hf_nsm *nsm, struct hf_rpc_call *call, struct key *key,
			      struct hf_bytes mon_name)
{
	const struct hf_addr *peer = hf_rpc_call_peer(call);
	hf_cleanup(hf_client_unrefp) struct hf_client *first =
		hf_clients_find(nsm->clients, HF_NSM_PROTOCOL, &key->address, key->name);
	/* both of this host, or both of the network */
	bool is_same_side = first && is_of_this_host(first) == hf_addr_is_loopback(peer);
	struct hf_client *client;
	struct hf_bytes both;
	int n;

	if (is_same_side && (watches(first, mon_name) || !hf_addr_is_loopback(&key->address)))
		return hf_client_ref(first);
	n = snprintf(key->both, sizeof(key->both), "%.*s@%.*s", (int)key->name.len,
		     (const char *)key->name.data, (int)mon_name.len, (const char *)mon_name.data);
	both = hf_bytes_of(key->both, (uint32_t)n);
	client = hf_clients_find(nsm->clients, HF_NSM_PROTOCOL, &key->address, both);
	if (!first && client && !is_registrar(client, peer, key->name))
		client = hf_client_unref(client); /* of a program with an "@" in its name */
	if (first || client)
		key->name = both;
	return client;
}

/* SM_MON */

static int set_details(struct hf_client *client, struct hf_rpc_call *call, const struct hf_nsm_mon *mon)
{
	const struct hf_nsm_my_id *my_id = &mon->my_id;
	int r = hf_client_set_callback(client, my_id->my_name, my_id->program, my_id->version,
				       my_id->procedure);

	if (r == 0)
		r = hf_client_set_mon_name(client, mon->mon_name);
	memcpy(client->priv, mon->priv, sizeof(client->priv));
	hf_client_seen(client, hf_rpc_call_local(call));
	return r;
}

static int do_mon(struct hf_nsm *nsm, struct hf_rpc_call *call, const struct hf_nsm_mon *mon,
		  struct hf_client **clientp)
{
	struct key key;
	int r = 0;

	set_key(nsm, call, mon, &key);
	*clientp = find(nsm, call, &key, mon->mon_name);
	if (!*clientp)
		r = hf_clients_get(clientp, nsm->clients, HF_NSM_PROTOCOL, &key.address, key.name);
	if (r < 0)
		return r;
	r = set_details(*clientp, call, mon);
	if (r == 0)
		r = hf_client_register(*clientp);
	if (r == 0)
		r = hf_nsm_watch(nsm, *clientp);
	/* A datagram confirms nothing, even if its address has answered: every host has a lock manager. */
	if (r == 0 &&
	    (hf_rpc_call_transport(call) == HF_RPC_TCP || hf_addr_is_loopback(hf_rpc_call_peer(call))))
		hf_client_confirm(*clientp);
	if (r == 0 && hf_nsm_is_local_watch(nsm, *clientp) && !hf_addr_is_loopback(&key.address))
		hf_nsm_take_baseline(nsm, *clientp, 0);
	return r;
}

static void serve_mon(struct hf_nsm *nsm, struct hf_rpc_call *call, bool has_answered)
{
	struct hf_nsm_mon mon = hf_nsm_get_mon(hf_rpc_call_args(call));
	hf_cleanup(hf_client_unrefp) struct hf_client *client = NULL;

	if (!is_refused_unanswered(nsm, call, has_answered) && do_mon(nsm, call, &mon, &client) == 0)
		hf_nsm_reply_when_durable(nsm, call, client, HF_NSM_ANSWER_STAT_RES);
	else
		hf_nsm_reply_stat_res(nsm, call, HF_NSM_FAIL);
}

/* Serves a datagram from another host only after that address has answered. */
static void serve_when_met(struct hf_nsm *nsm, struct hf_rpc_call *call, const struct hf_nsm_my_id *my_id,
			   void (*serve)(struct hf_nsm *nsm, struct hf_rpc_call *call, bool has_answered))
{
	if (hf_nsm_is_foreign_datagram(call)) {
		hf_nsm_visit(nsm, call, my_id, serve);
	} else {
		hf_rpc_call_rewind(call);
		serve(nsm, call, true);
	}
}

void hf_nsm_proc_mon(void *service, struct hf_rpc_call *call)
{
	struct hf_nsm *nsm = service;
	struct hf_nsm_mon mon = hf_nsm_get_mon(hf_rpc_call_args(call));

	if (!hf_xdr_in_is_ok(hf_rpc_call_args(call))) {
		hf_rpc_reply_garbage(call);
		return;
	}
	if (!is_sensible(&mon)) {
		log_refusal(nsm, call,
			    "a registration by SM_MON is refused: it names no valid host or program");
		hf_nsm_reply_stat_res(nsm, call, HF_NSM_FAIL);
		return;
	}
	if (!may_register(nsm, call))
		hf_nsm_reply_stat_res(nsm, call, HF_NSM_FAIL);
	else
		serve_when_met(nsm, call, &mon.my_id, serve_mon);
}

/* SM_UNMON, SM_UNMON_ALL */

static void serve_unmon(struct hf_nsm *nsm, struct hf_rpc_call *call, bool has_answered)
{
	struct hf_nsm_mon mon = hf_nsm_get_mon_id(hf_rpc_call_args(call));
	hf_cleanup(hf_client_unrefp) struct hf_client *client = NULL;
	struct key key;

	if (!is_refused_unanswered(nsm, call, has_answered)) {
		set_key(nsm, call, &mon, &key);
		client = find(nsm, call, &key, mon.mon_name);
		if (client && watches(client, mon.mon_name))
			hf_client_unregister(client);
	}
	hf_nsm_reply_when_durable(nsm, call, client, HF_NSM_ANSWER_STATE);
}

void hf_nsm_proc_unmon(void *service, struct hf_rpc_call *call)
{
	struct hf_nsm *nsm = service;
	struct hf_nsm_mon mon = hf_nsm_get_mon_id(hf_rpc_call_args(call));

	if (!hf_xdr_in_is_ok(hf_rpc_call_args(call))) {
		hf_rpc_reply_garbage(call);
		return;
	}
	if (may_register(nsm, call))
		serve_when_met(nsm, call, &mon.my_id, serve_unmon);
	else
		hf_nsm_reply_when_durable(nsm, call, NULL, HF_NSM_ANSWER_STATE);
}

/* The next registration that the program at @peer may have made; takes over the reference to @after. */
static struct hf_client *next_of(struct hf_nsm *nsm, const struct hf_addr *peer, struct hf_client *after)
{
	uint64_t serial = after ? after->serial : 0;

	if (!hf_addr_is_loopback(peer))
		return hf_clients_next_at(nsm->clients, peer, after);
	hf_client_unref(after);
	return hf_clients_next(nsm->clients, serial);
}

/* Returns the last client that it unregistered, a reference; or NULL. */
static struct hf_client *unmon_all(struct hf_nsm *nsm, const struct hf_addr *peer, struct hf_bytes my_name)
{
	struct hf_client *client = NULL, *last = NULL;

	while ((client = next_of(nsm, peer, client))) {
		if (!is_registrar(client, peer, my_name))
			continue;
		hf_client_unregister(client);
		hf_client_unref(last);
		last = hf_client_ref(client);
	}
	return last;
}

static void serve_unmon_all(struct hf_nsm *nsm, struct hf_rpc_call *call, bool has_answered)
{
	struct hf_nsm_my_id my_id = hf_nsm_get_my_id(hf_rpc_call_args(call));
	hf_cleanup(hf_client_unrefp) struct hf_client *last = NULL;

	if (!is_refused_unanswered(nsm, call, has_answered))
		last = unmon_all(nsm, hf_rpc_call_peer(call), my_id.my_name);
	hf_nsm_reply_when_durable(nsm, call, last, HF_NSM_ANSWER_STATE);
}

void hf_nsm_proc_unmon_all(void *service, struct hf_rpc_call *call)
{
	struct hf_nsm *nsm = service;
	struct hf_nsm_my_id my_id = hf_nsm_get_my_id(hf_rpc_call_args(call));

	if (!hf_xdr_in_is_ok(hf_rpc_call_args(call))) {
		hf_rpc_reply_garbage(call);
		return;
	}
	if (may_register(nsm, call))
		serve_when_met(nsm, call, &my_id, serve_unmon_all);
	else
		hf_nsm_reply_when_durable(nsm, call, NULL, HF_NSM_ANSWER_STATE);
}
