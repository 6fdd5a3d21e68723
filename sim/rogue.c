/*
 * A forger of single messages. It has an address of its own, and sees what goes to the server. It may send a
 * message again as it was, with its sender, within the two minutes of the replay cache, and within one epoch
 * of the server.
 *
 * In some worlds it also forges notices and FREE_ALL in another host's name, by datagram, and LOCKs with
 * another state number: reclaims outside of grace, which take nothing. There no message is lost, and no host
 * is cut off: a host that is asked can deny. It also forges notices of a host that is down, which are
 * believed: that host has nothing left. In its own name it does all this in every world. It forges no other
 * LOCK or UNLOCK of another host, because a server that trusts addresses cannot resist that. There is one
 * exception: it acts as an ordinary user of a client's host. The host calls from a reserved port, and the
 * user does not.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "client/client.h"
#include "proto/nlm/wire.h"
#include "proto/nsm/internal.h"
#include "rpc/xdr.h"
#include "sim.h"

#define ADDRESS        200
#define PROGRAM_STATD  100024
#define FORGETS_NS     (100 * SECOND)
#define USER_PORT      40000
#define FORGERS        300 /* in a thousand schedules */
#define FORGERS_OF_TLS 600
#define FAR_OFF        2000
#define FORGED_LOW     1000
#define FORGED_HIGH    30000

static bool is_notice(const struct packet *packet)
{
	uint32_t words[6];

	if (packet->len < sizeof(words))
		return false;
	memcpy(words, packet->bytes, sizeof(words));
	return ntohl(words[3]) == PROGRAM_STATD || ntohl(words[5]) == HF_NLM_FREE_ALL;
}

void rogue_capture(struct world *world, const struct packet *packet)
{
	struct capture *capture = is_notice(packet) ? &world->notices[world->n_notices++ % N_NOTICES]
						    : &world->captures[world->n_captures++ % N_CAPTURES];
	const struct host *host = net_host(world, &packet->from);

	/* Not its own forgeries: their host may be down by then, and cannot deny them. */
	if (packet->len > sizeof(capture->bytes) || packet->from.port == FORGED_LOW ||
	    packet->from.port == FORGED_HIGH)
		return;
	capture->host_life = host ? host->life : 0;
	capture->from = packet->from;
	capture->to = packet->to;
	capture->server_life = packet->server_life;
	capture->at = world->now;
	capture->len = packet->len;
	memcpy(capture->bytes, packet->bytes, packet->len);
}

/* A node whose lease is over drops calls, so its replay cache does not have them. The server may not know the
 * host's number, and then cannot tell such a call of a host's last life from one of its present life. */
static bool can_replay(struct world *world, const struct capture *capture)
{
	const struct host *host = net_host(world, &capture->from);

	return capture->len && capture->server_life == world->server->life &&
	       world->now - capture->at < FORGETS_NS &&
	       (!world->options.is_cluster || (host && host->life == capture->host_life));
}

static void replay(struct world *world)
{
	bool is_of_notices = rng_chance(&world->rogue_rng, 500);
	const struct capture *all = is_of_notices ? world->notices : world->captures;
	uint32_t n = is_of_notices ? HF_MIN(world->n_notices, (uint32_t)N_NOTICES)
				   : HF_MIN(world->n_captures, (uint32_t)N_CAPTURES);
	const struct capture *capture;

	/* The server does not keep its answer to a call that it refuses for lack of TLS. So it cannot tell a
	 * copy of such a call from the next one. */
	if (!n || (world->tls.exists && !is_of_notices))
		return;
	capture = &all[rng_below(&world->rogue_rng, n)];
	if (can_replay(world, capture))
		net_send(world, &capture->from, &capture->to, capture->bytes, capture->len);
}

/* A host begins to count its calls at random, so that the rogue does not guess the next number. A call that
 * it makes up never has the number of the host's own call with the same content. */
#define MADE_UP 0x80000000u

uint32_t rogue_next_xid(const struct world *world)
{
	return world->next_xid | MADE_UP;
}

static void put_header(struct hf_xdr_out *out, struct world *world, uint32_t program, uint32_t version,
		       uint32_t procedure)
{
	hf_xdr_put_u32(out, rogue_next_xid(world));
	world->next_xid++;
	hf_xdr_put_u32(out, 0);
	hf_xdr_put_u32(out, 2);
	hf_xdr_put_u32(out, program);
	hf_xdr_put_u32(out, version);
	hf_xdr_put_u32(out, procedure);
	for (int i = 0; i < 4; i++)
		hf_xdr_put_u32(out, 0);
}

void rogue_put_header(struct hf_xdr_out *out, struct world *world, uint32_t procedure)
{
	put_header(out, world, HF_NLM_PROGRAM, 4, procedure);
}

/* All locks of the victim's program in a file, as if the program had asked for them. The handle of the owner
 * is what Linux makes it of. With another one a forged LOCK would keep a renamed host from being known again
 * (seed 160910863). */
void rogue_put_lock(struct hf_xdr_out *out, const struct host *victim, uint8_t file, uint32_t svid)
{
	uint8_t handle[HANDLE_LEN];
	char oh[64];

	talk_handle(handle, file);
	snprintf(oh, sizeof(oh), "%u@%s", svid, victim->name);
	hf_xdr_put_string(out, victim->name);
	hf_xdr_put_opaque(out, hf_bytes_of(handle, sizeof(handle)));
	hf_xdr_put_string(out, oh);
	hf_xdr_put_u32(out, svid);
	hf_xdr_put_u64(out, 0);
	hf_xdr_put_u64(out, 0);
}

static void put_lock(struct hf_xdr_out *out, struct world *world, const struct host *victim)
{
	struct rng *rng = &world->rogue_rng;
	uint8_t file = (uint8_t)rng_below(rng, world->n_files);

	rogue_put_lock(out, victim, file, victim->life * 100 + (uint32_t)rng_below(rng, MAX_PROCS));
}

static void forge(struct world *world, const struct host *victim)
{
	struct rng *rng = &world->rogue_rng;
	struct hf_addr from = { .family = AF_INET, .ip = { 10, 0, 0, ADDRESS }, .port = 600 };
	struct hf_addr to = world->server_addrs[rng_below(rng, 2)];
	uint64_t cookie = htole64(rng_next(rng));
	uint8_t message[MAX_MESSAGE];
	char text[HF_ADDR_TEXT];
	struct hf_xdr_out out;

	to.port = SERVER_PORT;
	hf_xdr_out_init(&out, message, sizeof(message));
	switch (rng_below(rng, 9)) {
	case 0:
		put_header(&out, world, PROGRAM_STATD, 1, 6);
		hf_xdr_put_string(&out, victim->name);
		hf_xdr_put_i32(&out, victim->state + 2);
		break;
	case 1:
		put_header(&out, world, HF_NLM_PROGRAM, 4, HF_NLM_UNLOCK);
		hf_xdr_put_opaque(&out, hf_bytes_of(&cookie, 8));
		put_lock(&out, world, victim);
		break;
	case 2:
		put_header(&out, world, HF_NLM_PROGRAM, 4, HF_NLM_CANCEL);
		hf_xdr_put_opaque(&out, hf_bytes_of(&cookie, 8));
		hf_xdr_put_bool(&out, true);
		hf_xdr_put_bool(&out, true);
		put_lock(&out, world, victim);
		break;
	case 3:
		put_header(&out, world, HF_NLM_PROGRAM, 4, HF_NLM_FREE_ALL);
		hf_xdr_put_string(&out, victim->name);
		hf_xdr_put_i32(&out, victim->state + 2);
		break;
	case 4:
		put_header(&out, world, HF_NLM_PROGRAM, 4, HF_NLM_GRANTED_RES);
		hf_xdr_put_opaque(&out, hf_bytes_of(&cookie, 8));
		hf_xdr_put_u32(&out, HF_NLM_DENIED);
		break;
	case 5:
		put_header(&out, world, HF_NLM_PROGRAM, 4, HF_NLM_SM_NOTIFY);
		hf_xdr_put_string(&out, victim->name);
		hf_xdr_put_i32(&out, victim->state + 2);
		hf_xdr_put_u64(&out, 0);
		hf_xdr_put_u64(&out, 0);
		break;
	case 7: /* SM_UNMON of what the server's own host watches */
		put_header(&out, world, PROGRAM_STATD, 1, 3);
		hf_addr_format(&victim->addr, text, sizeof(text));
		hf_xdr_put_string(&out, text);
		hf_xdr_put_string(&out, "127.0.0.1:60000");
		for (int i = 0; i < 3; i++)
			hf_xdr_put_u32(&out, 100021);
		break;
	case 6: /* SM_SIMU_CRASH */
		put_header(&out, world, PROGRAM_STATD, 1, 5);
		break;
	default:
		for (int i = 0; i < 24; i++)
			hf_xdr_put_u32(&out, (uint32_t)rng_next(rng));
		break;
	}
	net_send(world, &from, &to, message, (size_t)(out.p - message));
}

/* Does the server know that the host locks from a reserved port? It learns it again with its next lock. */
static bool is_port_known(struct world *world, const struct host *victim)
{
	struct hf_client *client = NULL;
	bool is_known = true;

	while (victim->is_port_lost && world->server->recovery && is_known &&
	       (client = hf_clients_next_at(hf_recovery_clients(world->server->recovery), &victim->addr,
					    client)))
		is_known = client->is_privileged;
	hf_client_unref(client);
	return is_known;
}

/* An ordinary user of the victim's host: it has no reserved port, but can give any name. The reply goes to no
 * socket of the host itself. */
static void forge_at_home(struct world *world, const struct host *victim)
{
	struct rng *rng = &world->rogue_rng;
	struct hf_addr from = victim->addr, to = world->server_addrs[rng_below(rng, 2)];
	uint64_t cookie = htole64(rng_next(rng));
	bool unlocks = rng_chance(rng, 500);
	uint8_t message[MAX_MESSAGE];
	struct hf_xdr_out out;

	if (victim->is_ordinary || !is_port_known(world, victim))
		return; /* from an ordinary port come its own calls, too, as far as the server knows */
	from.port = USER_PORT;
	to.port = SERVER_PORT;
	hf_xdr_out_init(&out, message, sizeof(message));
	put_header(&out, world, HF_NLM_PROGRAM, 4, unlocks ? HF_NLM_UNLOCK : HF_NLM_CANCEL);
	hf_xdr_put_opaque(&out, hf_bytes_of(&cookie, 8));
	if (!unlocks) {
		hf_xdr_put_bool(&out, true);
		hf_xdr_put_bool(&out, rng_chance(rng, 500));
	}
	put_lock(&out, world, victim);
	net_send(world, &from, &to, message, (size_t)(out.p - message));
}

bool rogue_is_forger(struct world *world)
{
	struct rng rng;

	rng_init(&rng, world->options.seed, 300);
	return rng_chance(&rng, world->options.has_tls ? FORGERS_OF_TLS : FORGERS) ||
	       world->options.has_more_forgers;
}

/* A number that the rogue has made up may have been stored. After its next start the server cannot tell it
 * from the host's own. */
bool rogue_is_false_number_stored(const struct host *host)
{
	return host->lied_about_in && host->lied_about_in < host->world->server->life;
}

/* A host with two names may be two hosts behind one address, and only a connection shows which. A host whose
 * locks are not monitored is not checked, and one whose statd gives no number cannot deny. And a watcher on
 * the server's host is told of it, too. */
static bool is_plain(const struct world *world, const struct host *victim)
{
	return world->has_forger && !rogue_is_false_number_stored(victim) && !victim->is_shared &&
	       !victim->is_secretive && !*victim->old_name && !victim->is_renaming &&
	       !victim->is_unmonitored && !world->monitor.exists;
}

/* A node whose lease has just begun does not ask the host of a LOCK, which may have waited for as long as no
 * node served. Later the connection of that LOCK tells, and nothing else: if the host has opened another one
 * since, it looks as after a restart. */
static bool is_known(const struct world *world, const struct host *victim)
{
	struct hf_client *client = NULL;
	bool is_seen = !world->options.is_cluster || !world->server->is_up || !world->server->recovery;

	while (!is_seen && (client = hf_clients_next_at(hf_recovery_clients(world->server->recovery),
							&victim->addr, client)))
		is_seen = hf_nsm_baseline_facts(client) != NULL;
	hf_client_unref(client);
	return is_seen;
}

/* A node that stands still asks the host only when it goes on. If the host is down then, it denies nothing,
 * and the number that was forged hides that of its next life. */
static bool asks_at_once(const struct world *world)
{
	return !node_is_halted(world->server);
}

bool rogue_can_be_denied(const struct world *world, const struct host *victim)
{
	/* Until the host has taken a lock since the server's start, the server has not asked it. */
	return is_plain(world, victim) && asks_at_once(world) && victim->promised_in == world->server->life &&
	       victim->is_up && victim->told_life == victim->life && is_known(world, victim);
}

/*
 * The rogue guesses the next numbers of a host. A lock that the host takes while such a notice is checked is
 * stored with a tag. The next epoch does not know how the check ended, and treats the lock as taken after
 * that restart, until grace ends. So the rogue guesses right only if locks are not stored.
 */
static int32_t guess(struct world *world)
{
	int32_t next = 2 * (int32_t)rng_between(&world->rogue_rng, 1, 3);

	return world->server->durability == HF_STORE_NONE ? next : next + FAR_OFF;
}

/* A node may stand still, or serve nothing, or have served for a moment only, when a host that it does not
 * know takes its first lock. It asks the host late then, or not at all: the number of the host's next life
 * must not be known as a copy. A host that is down has its next life before it takes a lock. */
static int32_t guess_for(struct world *world, const struct host *victim)
{
	int32_t number = guess(world);

	if (!world->options.is_cluster || number >= FAR_OFF || (victim->is_up && is_known(world, victim)))
		return number;
	return victim->is_up ? number + FAR_OFF : 2;
}

/* A datagram from a reserved port makes a client privileged that has not called over TCP in this run. A run
 * that goes on does not know that it was a datagram, and refuses the calls of a host that has ordinary ports.
 */
static uint16_t choose_port(struct world *world, const struct host *victim)
{
	bool is_low = rng_chance(&world->rogue_rng, 500);

	return is_low && !(victim->is_ordinary && world->options.continues) ? FORGED_LOW : FORGED_HIGH;
}

void rogue_forge_restart(struct world *world, const struct host *victim, uint16_t port, bool is_notice,
			 const char *name, int32_t state)
{
	struct hf_addr from = victim->addr;
	uint8_t message[MAX_MESSAGE];
	struct hf_xdr_out out;

	from.port = port ? port : FORGED_LOW;
	hf_xdr_out_init(&out, message, sizeof(message));
	if (is_notice)
		put_header(&out, world, PROGRAM_STATD, 1, 6);
	else
		put_header(&out, world, HF_NLM_PROGRAM, 4, HF_NLM_FREE_ALL);
	hf_xdr_put_string(&out, name);
	hf_xdr_put_i32(&out, state);
	SAY(world, "rogue   forges %s of %s", is_notice ? "a notice" : "FREE_ALL", victim->name);
	net_send(world, &from, &victim->server, message, (size_t)(out.p - message));
}

static void forge_sender(struct world *world, struct host *victim)
{
	struct rng *rng = &world->rogue_rng;
	bool is_notice = rng_chance(rng, 600);
	const char *name;
	uint16_t port;
	int32_t number;

	if (!rogue_can_be_denied(world, victim) && !(is_plain(world, victim) && !victim->is_up))
		return;
	port = choose_port(world, victim);
	name = is_notice && rng_chance(rng, 300) ? "another" : victim->name;
	number = guess_for(world, victim);
	if (!victim->is_up)
		victim->lied_about_in = world->server->life;
	rogue_forge_restart(world, victim, port, is_notice, name, victim->state + number);
}

void rogue_forge_number(struct world *world, struct host *victim, uint16_t port, uint64_t number,
			int32_t state)
{
	uint64_t cookie = htole64(number);
	struct hf_addr from = victim->addr;
	uint8_t message[MAX_MESSAGE];
	struct hf_xdr_out out;

	from.port = port ? port : FORGED_LOW;
	hf_xdr_out_init(&out, message, sizeof(message));
	put_header(&out, world, HF_NLM_PROGRAM, 4, HF_NLM_LOCK);
	hf_xdr_put_opaque(&out, hf_bytes_of(&cookie, 8));
	hf_xdr_put_bool(&out, false);
	hf_xdr_put_bool(&out, true);
	put_lock(&out, world, victim);
	hf_xdr_put_bool(&out, true);
	hf_xdr_put_i32(&out, state);
	if (!victim->promised_in) /* the server accepts the number, because the host has no locks to lose */
		victim->lied_about_in = world->server->life;
	victim->has_forged_lock = true;
	SAY(world, "rogue   forges a LOCK of %s with the number %d", victim->name, state);
	net_send(world, &from, &victim->server, message, (size_t)(out.p - message));
}

/* Even before the host has reclaimed anything in this epoch: the stored number denies it. */
static void forge_number(struct world *world, struct host *victim)
{
	uint64_t number = rng_next(&world->rogue_rng);
	int32_t state = victim->state + guess_for(world, victim);

	if (is_plain(world, victim) && victim->is_up && victim->told_life == victim->life &&
	    world->server->is_up && asks_at_once(world) && !world->server->grace_is_on)
		rogue_forge_number(world, victim, choose_port(world, victim), number, state);
}

void rogue_act(struct world *world, uint32_t n)
{
	struct rng *rng = &world->rogue_rng;

	while (n--) {
		world->counts->forgeries++;
		if (world->has_forger && rng_chance(rng, 300))
			forge_number(world, &world->hosts[rng_below(rng, world->n_hosts)]);
		else if (world->has_forger && rng_chance(rng, 500))
			forge_sender(world, &world->hosts[rng_below(rng, world->n_hosts)]);
		else if (rng_chance(rng, 500))
			replay(world);
		else if (rng_chance(rng, 300))
			forge_at_home(world, &world->hosts[rng_below(rng, world->n_hosts)]);
		else
			forge(world, &world->hosts[rng_below(rng, world->n_hosts)]);
	}
}
