/*
 * Which files demand TLS, which hosts have a certificate, and what must be true of the calls that come in the
 * clear beside their connections (rule TLS):
 *
 *	- A call about such a file is served only to an address that had a connection which the file accepts,
 *	  at some time since the call was made, or within the server's grace before that. If the file
 *	  demands a certificate, it must be the host's own: no other one counts for a name that holds
 *	  something. After its start the server counts what is stored of a host as a connection that has
 *	  just ended.
 *	- What a host is told to have there is stored with the host's identity.
 *	- What a host has there is released as that of a dead client only if the host has connected since
 *	  its last call that was served, with its own certificate.
 *	- A host with a connection is not refused (rule FILE, see fate.c).
 */
#include <stdio.h>
#include <string.h>

#include "client/client.h"
#include "proto/nlm/wire.h"
#include "sim.h"

#define SLACK     (100 * MS) /* until the server has read that a connection has ended */
#define KEYS      800        /* in a thousand hosts have a certificate, */
#define NO_KEYS   100        /* only TLS; the others have neither */
#define TLS_FILES 300        /* in a thousand demand TLS, */
#define KEY_FILES 450        /* a certificate */
#define LISTS     300        /* in a thousand of these: of some hosts */
#define LISTED    800
#define NO_GRACE  100           /* in a thousand schedules */
#define CHECK_NS  (10 * SECOND) /* that the server takes to check a number, at most */

enum hf_transport identity_demand(const struct world *world, uint8_t file)
{
	return world->tls.exists ? world->tls.exports[file].settings.transport : HF_TRANSPORT_ANY;
}

bool identity_demands_any(void *user)
{
	return ((const struct world *)user)->tls.exists;
}

struct hf_export *identity_export(struct world *world, uint8_t file)
{
	struct hf_export *export = &world->tls.exports[file];

	if (fate_is_withdrawn(world, file))
		return NULL;
	export->n_refs++;
	return export;
}

static bool is_listed(const struct hf_export_settings *settings, uint8_t identity)
{
	for (size_t i = 0; i < settings->n_identities; i++)
		for (uint32_t j = 0; session_name(identity, j); j++)
			if (strcmp(settings->identities[i], session_name(identity, j)) == 0)
				return true;
	return settings->n_identities == 0;
}

static bool is_accepted(const struct world *world, uint8_t file, uint8_t identity)
{
	const struct hf_export_settings *settings = &world->tls.exports[file].settings;

	return settings->transport != HF_TRANSPORT_MTLS ||
	       (identity != NO_CERTIFICATE && is_listed(settings, identity));
}

bool identity_may_use(const struct host *host, uint8_t file)
{
	return identity_demand(host->world, file) == HF_TRANSPORT_ANY ||
	       (host->tls.uses && is_accepted(host->world, file, host->tls.identity));
}

/* What is true of a host's connections */

bool identity_is_steady(const struct host *host, uint64_t since)
{
	return host->tls.session && host->tls.since <= since;
}

static bool was_present(const struct world *world, uint32_t slot, uint8_t identity, uint64_t since)
{
	const struct presence *presence = &world->tls.presences[slot][identity];

	return presence->n ||
	       (presence->ended_at && presence->ended_at + world->tls.grace_ns + SLACK >= since);
}

static bool is_young(const struct host *host, uint64_t since)
{
	const struct world *world = host->world;

	return host->tls.was_bound && world->server->started_at + world->tls.grace_ns + SLACK >= since;
}

bool identity_could_be_served(const struct host *host, uint8_t file, uint64_t since)
{
	const struct world *world = host->world;

	if (identity_demand(world, file) == HF_TRANSPORT_TLS)
		for (uint8_t identity = 0; identity < N_IDENTITIES; identity++)
			if (was_present(world, host->slot, identity, since))
				return true;
	return identity_may_use(host, file) &&
	       (was_present(world, host->slot, host->tls.identity, since) || is_young(host, since));
}

/* Does the file know the host by the name that is stored? */
static bool is_known_by_stored_name(const struct host *host, uint8_t file)
{
	const struct hf_export_settings *settings = &host->world->tls.exports[file].settings;

	for (size_t i = 0; i < settings->n_identities; i++)
		if (strcmp(settings->identities[i], host->tls.bound_to) == 0)
			return true;
	return settings->n_identities == 0 &&
	       (settings->transport == HF_TRANSPORT_TLS || *host->tls.bound_to);
}

/* A client that is known from the server's last run reclaims before it has connected. */
static bool reclaims_in_time(const struct call *call)
{
	const struct host *host = call->host;
	const struct world *world = host->world;
	const struct server *server = world->server;

	return call->kind == CALL_RECLAIM && host->tls.was_bound && host->tls.holds &&
	       is_known_by_stored_name(host, call->span.file) && !*host->old_name && server->is_complete &&
	       call->made_at >= server->started_at &&
	       world->now + SLACK < server->started_at + world->tls.grace_ns;
}

bool identity_may_refuse(const struct call *call)
{
	const struct host *host = call->host;

	if (identity_demand(host->world, call->span.file) == HF_TRANSPORT_ANY)
		return false;
	return !identity_may_use(host, call->span.file) ||
	       (!identity_is_steady(host, call->made_at) && !reclaims_in_time(call));
}

bool identity_refuses(const struct call *call, uint32_t stat)
{
	/* The old versions have no such status. */
	return (stat == HF_NLM_FAILED || (stat == HF_NLM_DENIED_NOLOCKS && call->host->version != 4)) &&
	       identity_may_refuse(call);
}

bool identity_must_wait(const struct host *host)
{
	return host->tls.uses && host->tls.life != host->life;
}

/* Checks */

/* @name: NULL, or where the name goes to which the host is bound. */
static bool is_stored(const struct world *world, const struct host *host, bool needs_name, char name[64])
{
	for (uint32_t i = 0; i < world->disk.synced.n; i++) {
		struct hf_record record;

		if (!disk_record_read(&world->disk.synced.records[i], HF_RECORD_CLIENT, &record) ||
		    !hf_addr_same_host(&record.client.address, &host->addr) ||
		    !hf_bytes_equal(record.client.protocol, hf_bytes_of_str("nlm")) ||
		    !record.client.is_secured)
			continue;
		if (name)
			snprintf(name, 64, "%.*s", (int)record.client.identity.len,
				 (const char *)record.client.identity.data);
		if (!needs_name || record.client.identity.len)
			return true;
	}
	return false;
}

static void check_served(struct world *world, const struct call *call, uint32_t stat)
{
	if (!identity_could_be_served(call->host, call->span.file, call->made_at))
		world_fail(world, "TLS",
			   "%u of host %u is answered %u for file %u, and had no connection for it",
			   call->proc->svid, call->host->index, stat, call->span.file);
}

static void vouch(struct host *host, uint64_t made_at)
{
	struct user_of_tls *tls = &host->tls;

	tls->vouched_at = HF_MAX(tls->vouched_at, made_at);
	tls->vouched[tls->n_vouched % N_VOUCHED].made_at = made_at;
	tls->vouched[tls->n_vouched++ % N_VOUCHED].seen_at = host->world->now;
}

/* The same before the calls that were answered since a LOCK came whose number the server has just checked: it
 * asks the host meanwhile, and goes on to serve its other calls. */
static uint64_t vouched_before_check(const struct host *host)
{
	const struct user_of_tls *tls = &host->tls;
	uint64_t latest = 0;

	for (uint32_t i = 0; i < HF_MIN(tls->n_vouched, (uint32_t)N_VOUCHED); i++)
		if (tls->vouched[i].seen_at + CHECK_NS <= host->world->now)
			latest = HF_MAX(latest, tls->vouched[i].made_at);
	return latest;
}

/* I10: a program that is refused takes that for the end of its LOCK. If the host may have been served in the
 * meantime, the call may be refused for another reason; or it was sent again, and a copy of it was served. */
static void check_refused(const struct call *call)
{
	struct world *world = call->host->world;

	if (call->kind == CALL_LOCK && world->server->is_up && world->server->recovery &&
	    !identity_could_be_served(call->host, call->span.file, call->made_at) &&
	    order_is_involved(world, call->proc, &call->span))
		world_fail(world, "I10",
			   "%u of host %u is refused file %u, %u-%u, for want of a connection, and has it, "
			   "or waits for it",
			   call->proc->svid, call->host->index, call->span.file, call->span.first,
			   call->span.last);
}

void identity_look_at_answer(const struct call *call, uint32_t stat)
{
	struct host *host = call->host;
	struct world *world = host->world;
	enum hf_transport demand = identity_demand(world, call->span.file);
	bool is_lock = call->kind == CALL_LOCK || call->kind == CALL_RECLAIM;
	bool takes = is_lock || call->kind == CALL_SHARE || call->kind == CALL_RESHARE;

	if (demand == HF_TRANSPORT_ANY || *host->old_name)
		return;
	if (identity_refuses(call, stat)) {
		world->counts->tls_refused++;
		check_refused(call);
	}
	if (stat != HF_NLM_GRANTED_STAT && !(takes && stat == HF_NLM_BLOCKED))
		return;
	/* A host that holds nothing may unlock by any way; and the list of hosts does not count while the
	 * file is not exported. */
	if (takes || (host->tls.holds && identity_may_use(host, call->span.file)))
		check_served(world, call, stat);
	if (call->kind != CALL_TEST) /* that changes nothing */
		vouch(host, call->made_at);
	host->tls.has_taken |= takes && stat == HF_NLM_GRANTED_STAT;
	host->tls.is_named |= takes && demand == HF_TRANSPORT_MTLS && stat == HF_NLM_GRANTED_STAT;
	if (is_lock && stat == HF_NLM_GRANTED_STAT && !host->is_unmonitored &&
	    call->server_state == host->server_state &&
	    !is_stored(world, host, demand == HF_TRANSPORT_MTLS, NULL))
		world_fail(world, "TLS",
			   "host %u is told GRANTED for file %u, and its identity is not stored", host->index,
			   call->span.file);
}

void identity_look_at_table(struct world *world)
{
	struct hf_locks *locks = hf_recovery_locks(world->server->recovery);
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;

	if (!world->tls.exists)
		return;
	for (uint32_t i = 0; i < world->n_hosts; i++)
		world->hosts[i].tls.holds = world->hosts[i].tls.holds_by_name = false;
	while (hf_lock_next_lock(locks, NULL, &cursor, &view)) {
		enum hf_transport demand = identity_demand(world, view.who.handle.data[0]);
		const struct hf_client *client = hf_container_of(view.who.client, struct hf_client, locking);
		struct host *host = check_host_of(world, view.who.client);

		/* A lock that was stored before its client is known after a crash, and the client's identity
		 * is not. No program was told of it. */
		if (!host || demand == HF_TRANSPORT_ANY || strcmp(client->name, host->name) != 0 ||
		    !(host->tls.was_bound || host->tls.has_taken))
			continue;
		host->tls.holds = true;
		host->tls.holds_by_name |=
			demand == HF_TRANSPORT_MTLS && (*host->tls.bound_to || host->tls.is_named);
	}
}

/* It has connected since its last call that was served; as far as that is known outside of the server. */
static bool is_back(const struct world *world, const struct host *host, uint64_t vouched_at)
{
	for (uint8_t identity = 0; identity < N_IDENTITIES; identity++) {
		const struct presence *presence = &world->tls.presences[host->slot][identity];

		if ((identity == host->tls.identity || !host->tls.holds_by_name) && presence->begun_at &&
		    presence->begun_at >= vouched_at)
			return true;
	}
	return false;
}

/* Not: the operator, and what the server finds out by itself. */
static bool is_notice(const char *reason)
{
	return strcmp(reason, "operator") != 0 && strcmp(reason, "its recovery window is over") != 0 &&
	       strcmp(reason, "it could not be told of the server's restart") != 0;
}

void identity_check_cleanup(struct world *world, const struct hf_recovery_event *event)
{
	const struct hf_client *client = event->client;
	const struct host *host = nat_owner(world, &client->address, client->name);
	bool is_number = strcmp(event->reason, "a lock request with a new state number") == 0;

	if (!world->tls.exists || !host || !host->tls.holds || !event->n_locks || *host->old_name ||
	    strcmp(client->name, host->name) != 0 || !is_notice(event->reason) ||
	    is_back(world, host, is_number ? vouched_before_check(host) : host->tls.vouched_at))
		return;
	world_fail(world, "TLS", "host %u counts as dead, and has not connected again: %s", host->index,
		   event->reason);
}

/* Beginning */

void identity_server_starts(struct world *world)
{
	for (uint32_t i = 0; i < world->n_hosts && world->tls.exists; i++) {
		struct host *host = &world->hosts[i];

		host->tls.bound_to[0] = '\0';
		host->tls.was_bound = is_stored(world, host, false, host->tls.bound_to);
		host->tls.holds = host->tls.holds_by_name = false;
		host->tls.vouched_at = host->tls.n_vouched = 0;
		host->tls.has_taken = host->tls.is_named = false;
	}
}

static void list_hosts(struct world *world, uint8_t file)
{
	struct hf_export_settings *settings = &world->tls.exports[file].settings;

	for (uint8_t i = 0; i < world->n_hosts; i++)
		if (rng_chance(&world->tls.rng, LISTED))
			world->tls.named[file][settings->n_identities++] =
				session_name(i, (uint32_t)rng_below(&world->tls.rng, 2));
	settings->identities = world->tls.named[file];
}

static void make_file(struct world *world, uint8_t file)
{
	struct hf_export *export = &world->tls.exports[file];
	uint64_t dice = rng_below(&world->tls.rng, 1000);

	export->n_refs = 1;
	export->id = file + 1u;
	export->settings.transport = dice < TLS_FILES               ? HF_TRANSPORT_TLS
				     : dice < TLS_FILES + KEY_FILES ? HF_TRANSPORT_MTLS
								    : HF_TRANSPORT_ANY;
	if (file == 0 && export->settings.transport == HF_TRANSPORT_ANY)
		export->settings.transport = HF_TRANSPORT_MTLS;
	if (export->settings.transport == HF_TRANSPORT_MTLS && rng_chance(&world->tls.rng, LISTS))
		list_hosts(world, file);
	SAY(world, "plan    file %u demands %s, of %zu hosts", file,
	    export->settings.transport == HF_TRANSPORT_ANY   ? "nothing"
	    : export->settings.transport == HF_TRANSPORT_TLS ? "TLS"
							     : "a certificate",
	    export->settings.n_identities);
}

void identity_init(struct world *world)
{
	struct tls *tls = &world->tls;

	if (!world->options.has_tls || !world->worker.is_asked)
		return;
	tls->exists = true;
	rng_init(&tls->rng, world->options.seed, 9);
	tls->grace_ns = rng_chance(&tls->rng, NO_GRACE) ? 0 : rng_between(&tls->rng, 1, 15) * SECOND;
	for (uint8_t file = 0; file < world->n_files; file++)
		make_file(world, file);
	for (uint32_t i = 0; i < world->n_hosts; i++) {
		uint64_t dice = rng_below(&tls->rng, 1000);
		struct host *host = &world->hosts[i];

		/* NFS over TLS is TCP, and a lock manager uses the transport of its mount. */
		if (host->flavour != LINUX_TCP)
			dice = 1000;
		host->tls.uses = dice < KEYS + NO_KEYS;
		host->tls.identity = (uint8_t)(dice < KEYS ? i : NO_CERTIFICATE);
		SAY(world, "plan    %s has %s", host->name,
		    dice < KEYS             ? session_name((uint8_t)i, 0)
		    : dice < KEYS + NO_KEYS ? "TLS"
					    : "no TLS");
	}
	SAY(world, "plan    a connection counts for %.0f s after its end", (double)tls->grace_ns / 1e9);
	session_init(world);
	intruder_init(world);
}
