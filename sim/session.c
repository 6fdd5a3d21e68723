/*
 * TLS connections of hosts, beside which their NLM and NSM go in the clear, as Linux has it. Only the
 * server's list of them (rpc/presence.c) is real: it is told that one begins, and that one ends, with the
 * names of a certificate. Records and keys are not simulated.
 *
 * A connection ends in order; or it breaks, and both ends know; or only the host knows, and the server has it
 * for up to a minute more, perhaps beside the next one. A host that crashes says nothing. A host that has
 * lost its connection connects again at once, or later than the server's grace.
 */
#include <stdio.h>

#include "arena.h"
#include "rpc/presence.h"
#include "sim.h"
#include "tls/tls.h"

#define LONGEST     (40 * SECOND) /* that a connection lasts */
#define LINGERS     (60 * SECOND) /* that the server has one whose host is gone */
#define AGAIN_NS    (200 * MS)
#define SOON_NS     (1 * SECOND)
#define SILENT      300 /* in a thousand: only the host knows */
#define LATE        400 /* in a thousand gaps are longer */
#define RENEWALS    300 /* in a thousand restarts of a host */
#define N_NAMES     2
#define AFTER_START (3 * SECOND)

const char *session_name(uint8_t identity, uint32_t number)
{
	static const char *const names[N_IDENTITIES][N_NAMES + 1] = {
		{ "alpha.example.org", "first.example.org", "renewed-0" },
		{ "key-1", "second.example.org", "renewed-1" },
		{ "gamma", "third.example.org", "renewed-2" },
		{ "key-3", "fourth.example.org", "renewed-3" },
		{ "omega.example.org", "fifth.example.org", "renewed-4" },
		{ "intruder", NULL, NULL },
		{ NULL, NULL, NULL },
	};

	return number <= N_NAMES ? names[identity][number] : NULL;
}

/* As the server has them */

struct beginning {
	struct session *session;
	bool is_renewed;
};

static void begin(struct world *world, void *user)
{
	const struct beginning *beginning = user;
	struct session *session = beginning->session;
	struct hf_addr address = { .family = AF_INET,
				   .ip = { 10, 0, 0, (uint8_t)session->slot },
				   .port = 800 };
	struct hf_tls_peer peer = { .is_authenticated = session->identity != NO_CERTIFICATE };
	char names[N_NAMES + 1][32];
	uint32_t n = beginning->is_renewed ? N_NAMES + 1 : N_NAMES;

	for (uint32_t i = 0; i < n && session_name(session->identity, i); i++) {
		snprintf(names[i], sizeof(names[i]), "%s", session_name(session->identity, i));
		peer.names[peer.n_names++] = names[i];
	}
	session->link = hf_rpc_presence_begin(world->server->presence, &address, &peer);
}

static void begin_as(struct world *world, uint32_t slot, uint8_t identity, bool is_renewed,
		     struct session **sessionp)
{
	struct session *session = world->tls.sessions;
	struct presence *presence = &world->tls.presences[slot][identity];

	*sessionp = NULL;
	while (session < world->tls.sessions + MAX_SESSIONS && session->link)
		session++;
	if (session == world->tls.sessions + MAX_SESSIONS)
		return;
	session->slot = slot;
	session->identity = identity;
	server_do(world, begin, &(struct beginning){ session, is_renewed });
	presence->n++;
	presence->begun_at = world->now;
	world->counts->sessions++;
	world_note(world, 7, slot << 8 | identity);
	SAY(world, "tls     10.0.0.%u connects as %s", slot,
	    identity == NO_CERTIFICATE ? "any client" : session_name(identity, 0));
	*sessionp = session;
}

void session_begin(struct world *world, uint32_t slot, uint8_t identity, struct session **sessionp)
{
	begin_as(world, slot, identity, false, sessionp);
}

static void end(struct world *world, void *user)
{
	struct session *session = user;

	hf_rpc_presence_end(session->link);
}

static void forget(struct session *session)
{
	struct presence *presence = &session->world->tls.presences[session->slot][session->identity];

	hf_timer_stop(&session->timer);
	session->link = NULL;
	presence->n--;
	presence->ended_at = session->world->now;
}

void session_end(struct session *session)
{
	struct world *world = session->world;

	SAY(world, "tls     a connection of 10.0.0.%u ends, of %s", session->slot,
	    session->identity == NO_CERTIFICATE ? "any client" : session_name(session->identity, 0));
	server_do(world, end, session);
	forget(session);
}

static void on_learnt(struct hf_timer *timer)
{
	session_end(hf_container_of(timer, struct session, timer));
}

static void linger(struct session *session)
{
	hf_timer_start(&session->timer, rng_below(&session->world->tls.rng, LINGERS));
}

/* As hosts have them */

static void connect_later(struct host *host, uint64_t least, uint64_t most)
{
	if (host->tls.uses)
		hf_timer_start(&host->tls.timer, rng_between(&host->world->tls.rng, least, most));
}

static bool can_connect(const struct host *host)
{
	const struct world *world = host->world;

	return host->is_up && !host->cut_in && !host->cut_out && world->server->is_up &&
	       !world->server->is_stopping && world->now >= host->tls.kept_until && world->tls.victim != host;
}

static void try_to_connect(struct host *host)
{
	struct world *world = host->world;

	if (!can_connect(host)) {
		connect_later(host, AGAIN_NS, 2 * AGAIN_NS);
		return;
	}
	begin_as(world, host->slot, host->tls.identity, host->tls.is_renewed, &host->tls.session);
	if (!host->tls.session) {
		connect_later(host, SOON_NS, 2 * SOON_NS);
		return;
	}
	host->tls.since = world->now;
	host->tls.life = host->life;
	if (!world->is_calm)
		connect_later(host, AGAIN_NS, LONGEST);
}

static void lose(struct host *host)
{
	host->tls.session = NULL;
	host->tls.since = 0;
}

static void disconnect(struct host *host)
{
	struct world *world = host->world;
	struct session *session = host->tls.session;
	bool is_late = rng_chance(&world->tls.rng, LATE);

	lose(host);
	if (rng_chance(&world->tls.rng, SILENT))
		linger(session);
	else
		session_end(session);
	connect_later(host, MS, is_late ? 2 * world->tls.grace_ns + 5 * SECOND : SOON_NS);
}

static void on_timer(struct hf_timer *timer)
{
	struct host *host = hf_container_of(timer, struct host, tls.timer);

	if (!host->tls.session)
		try_to_connect(host);
	else
		disconnect(host);
}

void session_host_died(struct host *host)
{
	if (host->tls.session)
		linger(host->tls.session);
	lose(host);
	hf_timer_stop(&host->tls.timer);
}

void session_host_booted(struct host *host)
{
	if (!host->tls.uses)
		return;
	host->tls.is_renewed |= rng_chance(&host->world->tls.rng, RENEWALS);
	connect_later(host, MS, SOON_NS);
}

/* The server */

void session_end_all(struct world *world)
{
	for (uint32_t i = 0; i < MAX_SESSIONS; i++)
		if (world->tls.sessions[i].link) {
			hf_rpc_presence_end(world->tls.sessions[i].link);
			forget(&world->tls.sessions[i]);
		}
}

void session_server_died(struct world *world)
{
	for (uint32_t i = 0; i < MAX_SESSIONS; i++)
		if (world->tls.sessions[i].link)
			forget(&world->tls.sessions[i]);
	for (uint32_t slot = 0; slot < N_SLOTS; slot++)
		for (int identity = 0; identity < N_IDENTITIES; identity++)
			world->tls.presences[slot][identity] = (struct presence){ 0 };
	for (uint32_t i = 0; i < world->n_hosts; i++) {
		lose(&world->hosts[i]);
		if (world->hosts[i].is_up)
			connect_later(&world->hosts[i], MS, AFTER_START);
	}
}

void session_calm(struct world *world)
{
	for (uint32_t i = 0; i < world->n_hosts; i++) {
		struct host *host = &world->hosts[i];

		if (host->tls.session)
			hf_timer_stop(&host->tls.timer);
		else if (host->is_up)
			connect_later(host, MS, SOON_NS);
	}
}

void session_renew(struct host *host)
{
	struct session *session = host->tls.session;

	if (!session)
		return;
	lose(host);
	session_end(session);
	connect_later(host, MS, SOON_NS);
}

void session_init(struct world *world)
{
	for (uint32_t i = 0; i < MAX_SESSIONS; i++) {
		world->tls.sessions[i].world = world;
		world_timer(world, &world->tls.sessions[i].timer, on_learnt);
	}
	for (uint32_t i = 0; i < world->n_hosts; i++) {
		world_timer(world, &world->hosts[i].tls.timer, on_timer);
		connect_later(&world->hosts[i], MS, SOON_NS);
	}
}
