/*
 * A forger at the address of a host that uses files which demand TLS. It has no key of that host. In half of
 * the cases it has one of its own, which the server accepts, and a connection of its own at that address. It
 * sends UNLOCK, CANCEL, UNSHARE, and LOCKs with and without reclaim, under the host's name.
 *
 * It comes when the host has something there, and the host's last connection, with its grace, is over: before
 * that a server cannot tell its calls from the host's. The host does not connect meanwhile. It also sends
 * such calls to free what a connected host has, by datagram, if that host calls over TCP.
 *
 * Each of its calls but those by datagram beside a connection must be refused; what they change, all other
 * checks see. Forged notices are the rogue's.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <string.h>

#include "proto/nlm/wire.h"
#include "rpc/xdr.h"
#include "sim.h"

#define LOW_PORT    1000 /* as the rogue's, which does not replay these calls */
#define HIGH_PORT   30000
#define SLACK       (500 * MS) /* until a datagram is served */
#define LONGEST_GAP (4 * SECOND)
#define BRINGS_KEY  500
#define BY_DATAGRAM 400
#define N_CALLS     4

static const uint8_t procedures[] = { HF_NLM_UNLOCK, HF_NLM_UNLOCK, HF_NLM_CANCEL, HF_NLM_LOCK, HF_NLM_LOCK };

static uint8_t choose_file(struct world *world, bool by_name)
{
	uint8_t first = (uint8_t)rng_below(&world->tls.intruder_rng, world->n_files);

	for (uint32_t i = 0; i < world->n_files; i++) {
		uint8_t file = (uint8_t)((first + i) % world->n_files);
		enum hf_transport demand = identity_demand(world, file);

		if (demand == HF_TRANSPORT_MTLS || (demand == HF_TRANSPORT_TLS && !by_name))
			return file;
	}
	return first; /* demands nothing; a host that holds something makes sure that there is another one */
}

static void put_call(struct hf_xdr_out *out, struct world *world, const struct host *host, uint8_t procedure,
		     uint8_t file)
{
	struct rng *rng = &world->tls.intruder_rng;
	uint32_t life = host->is_up ? host->life : host->life - 1;
	uint64_t cookie = htole64(rng_next(rng));

	rogue_put_header(out, world, procedure);
	hf_xdr_put_opaque(out, hf_bytes_of(&cookie, sizeof(cookie)));
	if (procedure != HF_NLM_UNLOCK) {
		hf_xdr_put_bool(out, procedure == HF_NLM_CANCEL || rng_chance(rng, 300));
		hf_xdr_put_bool(out, rng_chance(rng, 700));
	}
	rogue_put_lock(out, host, file, life * 100 + (uint32_t)rng_below(rng, MAX_PROCS));
	if (procedure == HF_NLM_LOCK) {
		hf_xdr_put_bool(out, rng_chance(rng, 500));
		hf_xdr_put_i32(out, host->state);
	}
}

static void send_call(struct world *world, struct host *host, uint8_t procedure, bool must_be_refused)
{
	struct tls *tls = &world->tls;
	uint8_t file = choose_file(world, tls->victim != NULL);
	struct hf_addr from = host->addr;
	uint8_t message[MAX_MESSAGE];
	struct hf_xdr_out out;

	if (must_be_refused)
		tls->intrusions[tls->n_intrusions++ % N_INTRUSIONS] =
			(struct intrusion){ rogue_next_xid(world), host->index };
	from.port = rng_chance(&tls->intruder_rng, 700) ? LOW_PORT : HIGH_PORT;
	hf_xdr_out_init(&out, message, sizeof(message));
	put_call(&out, world, host, procedure, file);
	world->counts->intrusions++;
	SAY(world, "intruder sends procedure %u of %s about file %u%s", procedure, host->name, file,
	    must_be_refused ? "" : ", beside its connection");
	net_send(world, &from, &host->server, message, (size_t)(out.p - message));
}

/* GRANTED, DENIED and BLOCKED are answers of a server that has served a call. */
void intruder_tap(struct world *world, const uint8_t *data, size_t len)
{
	struct hf_xdr_in in;
	uint32_t xid, stat;

	hf_xdr_in_init(&in, data, len);
	xid = hf_xdr_get_u32(&in);
	if (hf_xdr_get_u32(&in) != 1)
		return;
	for (int i = 0; i < 3; i++)
		hf_xdr_get_u32(&in);
	hf_xdr_get_u32(&in);
	hf_xdr_get_opaque(&in, 1024);
	stat = hf_xdr_get_u32(&in);
	for (uint32_t i = 0; i < N_INTRUSIONS && hf_xdr_in_is_ok(&in); i++)
		if (world->tls.intrusions[i].xid == xid &&
		    (stat == HF_NLM_GRANTED_STAT || stat == HF_NLM_DENIED || stat == HF_NLM_BLOCKED))
			world_fail(world, "TLS",
				   "a call in the name of host %u, without its key, is answered %u",
				   world->tls.intrusions[i].host, stat);
}

/* The host's connections, and the server's memory of them, are over. */
static bool is_away(const struct host *host)
{
	const struct world *world = host->world;
	const struct presence *presence = &world->tls.presences[host->slot][host->tls.identity];
	uint64_t since = world->now - HF_MIN(SLACK, world->now);

	if (host->tls.session || presence->n || !host->tls.holds || *host->old_name || host->is_renaming)
		return false;
	for (uint8_t file = 0; file < world->n_files; file++)
		if (identity_demand(world, file) != HF_TRANSPORT_ANY &&
		    identity_could_be_served(host, file, since))
			return false;
	return world->now > world->server->started_at + world->tls.grace_ns + SLACK;
}

static void leave(struct world *world, struct session *session)
{
	struct host *host = world->tls.victim;

	world->tls.victim = NULL;
	if (session)
		session_end(session);
	/* Its certificate must not be taken for one of the host's. */
	host->tls.kept_until = world->now + world->tls.grace_ns + SLACK;
}

static struct session *find_session(struct world *world)
{
	for (uint32_t i = 0; i < MAX_SESSIONS; i++)
		if (world->tls.sessions[i].link && world->tls.sessions[i].identity == INTRUDER)
			return &world->tls.sessions[i];
	return NULL;
}

static void strike(struct world *world, struct host *host)
{
	struct rng *rng = &world->tls.intruder_rng;

	host->tls.kept_until = HF_MAX(host->tls.kept_until, world->now + world->knobs.longest_ns + SLACK);
	for (uint64_t n = rng_between(rng, 1, N_CALLS); n; n--)
		send_call(world, host, procedures[rng_below(rng, sizeof(procedures))], true);
}

/* Does a program know that it has something there? */
static bool is_told(const struct world *world, const struct host *host)
{
	for (uint32_t i = 0; i < host->n_procs; i++)
		for (uint8_t file = 0; file < world->n_files; file++)
			for (int unit = 0; unit < N_UNITS; unit++)
				if (identity_demand(world, file) == HF_TRANSPORT_MTLS &&
				    host->procs[i].own->has[file][unit] &&
				    host->procs[i].own->firm[file][unit])
					return true;
	return false;
}

/* A host that is up, and loses what it has, would be bound to the intruder's certificate by its next call. It
 * does so in the server's grace, or when it declines a grant. */
static bool brings_key(struct world *world, const struct host *host)
{
	return host->tls.holds_by_name && !world->server->grace_is_on &&
	       (!host->is_up || is_told(world, host)) && rng_chance(&world->tls.intruder_rng, BRINGS_KEY);
}

static void come(struct world *world)
{
	struct rng *rng = &world->tls.intruder_rng;
	struct host *host = &world->hosts[rng_below(rng, world->n_hosts)];
	struct session *session;

	if (is_away(host)) {
		if (brings_key(world, host)) {
			session_begin(world, host->slot, INTRUDER, &session);
			world->tls.victim = session ? host : NULL;
		}
		strike(world, host);
	} else if (host->is_up && host->tls.uses && host->tls.holds && rng_chance(rng, BY_DATAGRAM)) {
		send_call(world, host, HF_NLM_UNLOCK, false);
	}
}

static void on_timer(struct hf_timer *timer)
{
	struct world *world = hf_container_of(timer, struct world, tls.intruder_timer);
	struct rng *rng = &world->tls.intruder_rng;

	if (world->is_calm || omits(world, OMIT_ROGUE))
		return;
	hf_timer_start(timer, rng_between(rng, 100 * MS, LONGEST_GAP));
	if (!world->server->is_up || world->server->is_stopping)
		return;
	if (!world->tls.victim)
		come(world);
	else if (is_away(world->tls.victim) && rng_chance(rng, 500))
		strike(world, world->tls.victim);
	else
		leave(world, find_session(world));
}

void intruder_server_died(struct world *world)
{
	world->tls.victim = NULL;
	memset(world->tls.intrusions, 0, sizeof(world->tls.intrusions));
}

void intruder_calm(struct world *world)
{
	hf_timer_stop(&world->tls.intruder_timer);
	if (world->tls.victim)
		leave(world, find_session(world));
}

void intruder_init(struct world *world)
{
	rng_init(&world->tls.intruder_rng, world->options.seed, 10);
	world_timer(world, &world->tls.intruder_timer, on_timer);
	hf_timer_start(&world->tls.intruder_timer, LONGEST_GAP);
}
