/*
 * A forger that takes all that it can get. It makes many names, many waiters, or LOCK and CANCEL in a row, by
 * datagrams from a few addresses without a host. No call-back, question or notice is answered there. The
 * limits of the server are small then, so that they are reached.
 *
 * The server cannot make these clients give up their locks. So the check is that they have no more than their
 * part.
 *
 * The forger gives back nothing, except everything at once. In the end an operator declares it dead. Other
 * clients are refused because there is no room, and lose nothing that they have.
 *
 * In three of ten of these schedules there are greedy hosts, too, each with a few names. Their rpcbind
 * answers, so that the server serves them as it serves any client, up to the limits.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "client/client.h"
#include "proto/nlm/wire.h"
#include "rpc/xdr.h"
#include "sim.h"

#define CHANCE      120 /* in a thousand schedules */
#define ADDRESS     201 /* the first */
#define N_ADDRESSES 4
#define MAX_NAMES   40
#define MOST        60 /* messages in one burst */
#define PART        8  /* of each limit: an eighth */
#define LEAST_UNMET 32 /* clients, but not more than half of all */

#define GREEDY         300 /* in a thousand schedules with a flood */
#define GREEDY_ADDRESS 205 /* the first */
#define GREEDY_HOSTS   4
#define GREEDY_NAMES   3
#define GREEDY_MOST    200
#define RPCBIND_PORT   111

enum burst {
	NAMES,
	WAITERS,
	CANCELS,
	ALL_FREE,
	N_BURSTS,
};

static void put_header(struct hf_xdr_out *out, struct world *world, uint32_t procedure)
{
	uint64_t cookie = htole64(rng_next(world->flood.dice));

	hf_xdr_put_u32(out, world->next_xid++);
	hf_xdr_put_u32(out, 0);
	hf_xdr_put_u32(out, 2);
	hf_xdr_put_u32(out, HF_NLM_PROGRAM);
	hf_xdr_put_u32(out, 4);
	hf_xdr_put_u32(out, procedure);
	for (int i = 0; i < 4; i++)
		hf_xdr_put_u32(out, 0);
	if (procedure != HF_NLM_FREE_ALL)
		hf_xdr_put_opaque(out, hf_bytes_of(&cookie, sizeof(cookie)));
}

static void put_lock(struct hf_xdr_out *out, const struct span *span, const char *name, uint32_t svid)
{
	uint8_t handle[HANDLE_LEN];

	talk_handle(handle, span->file);
	hf_xdr_put_string(out, name);
	hf_xdr_put_opaque(out, hf_bytes_of(handle, sizeof(handle)));
	hf_xdr_put_string(out, "flood");
	hf_xdr_put_u32(out, svid);
	hf_xdr_put_u64(out, span_offset(span));
	hf_xdr_put_u64(out, span_len(span));
}

static void send_out(struct world *world, const struct hf_xdr_out *out, const uint8_t *message)
{
	struct hf_addr from = { .family = AF_INET, .ip = { 10, 0, 0, world->flood.source }, .port = 600 };
	struct hf_addr to = world->server_addrs[0];

	to.port = SERVER_PORT;
	net_send(world, &from, &to, message, (size_t)(out->p - message));
}

static void lock(struct world *world, const struct span *span, const char *name, uint32_t svid, bool waits)
{
	uint8_t message[MAX_MESSAGE];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, message, sizeof(message));
	put_header(&out, world, HF_NLM_LOCK);
	hf_xdr_put_bool(&out, waits);
	hf_xdr_put_bool(&out, span->mode == HF_LOCK_EXCLUSIVE);
	put_lock(&out, span, name, svid);
	hf_xdr_put_bool(&out, false); /* to reclaim */
	hf_xdr_put_i32(&out, 1);
	send_out(world, &out, message);
}

static void cancel(struct world *world, const struct span *span, const char *name, uint32_t svid)
{
	uint8_t message[MAX_MESSAGE];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, message, sizeof(message));
	put_header(&out, world, HF_NLM_CANCEL);
	hf_xdr_put_bool(&out, true);
	hf_xdr_put_bool(&out, span->mode == HF_LOCK_EXCLUSIVE);
	put_lock(&out, span, name, svid);
	send_out(world, &out, message);
}

static void free_all(struct world *world, const char *name)
{
	uint8_t message[MAX_MESSAGE];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, message, sizeof(message));
	put_header(&out, world, HF_NLM_FREE_ALL);
	hf_xdr_put_string(&out, name);
	hf_xdr_put_i32(&out, 1);
	send_out(world, &out, message);
}

static struct span choose_span(struct world *world)
{
	struct rng *rng = world->flood.dice;
	struct span span = { .file = (uint8_t)rng_below(rng, world->n_files) };

	span.first = (uint8_t)rng_below(rng, N_UNITS);
	span.last = rng_chance(rng, 300) ? N_UNITS - 1 : span.first;
	span.mode = rng_chance(rng, 600) ? HF_LOCK_EXCLUSIVE : HF_LOCK_SHARED;
	return span;
}

static void choose_source(struct world *world)
{
	world->flood.source = (uint8_t)(ADDRESS + rng_below(&world->flood.rng, N_ADDRESSES));
}

static void burst(struct world *world)
{
	struct rng *rng = &world->flood.rng;
	enum burst kind = (enum burst)rng_below(rng, N_BURSTS);
	uint32_t n = (uint32_t)rng_between(rng, 1, MOST);
	struct span span = choose_span(world);
	char name[16] = "flood";

	SAY(world, "flood   %u of kind %u, file %u, %u-%u", n, kind, span.file, span.first, span.last);
	choose_source(world);
	for (uint32_t i = 0; i < n; i++) {
		world->counts->floods++;
		if (kind == NAMES)
			choose_source(world);
		if (kind != WAITERS)
			snprintf(name, sizeof(name), "flood%u", (unsigned int)rng_below(rng, MAX_NAMES));
		if (kind == NAMES)
			span = choose_span(world);
		if (kind == ALL_FREE)
			free_all(world, name);
		else
			lock(world, &span, name, 10000 + i, kind != NAMES);
		if (kind == CANCELS)
			cancel(world, &span, name, 10000 + i);
	}
}

static void on_timer(struct hf_timer *timer)
{
	struct world *world = hf_container_of(timer, struct world, flood.timer);

	if (world->is_calm)
		return;
	world->flood.dice = &world->flood.rng;
	burst(world);
	hf_timer_start(timer, rng_between(&world->flood.rng, 100 * MS, 10 * SECOND));
}

/* Greedy hosts */

static void take_greedily(struct world *world)
{
	struct rng *rng = world->flood.dice = &world->flood.greedy_rng;
	uint32_t n = (uint32_t)rng_between(rng, 1, GREEDY_MOST);
	bool waits = rng_chance(rng, 500);
	struct span span = choose_span(world);
	char name[16];

	span.file = 0;
	SAY(world, "greedy  %u LOCKs%s, %u-%u", n, waits ? " that wait" : "", span.first, span.last);
	for (uint32_t i = 0; i < n; i++) {
		world->counts->floods++;
		world->flood.source = (uint8_t)(GREEDY_ADDRESS + rng_below(rng, GREEDY_HOSTS));
		snprintf(name, sizeof(name), "greedy%u", (unsigned int)rng_below(rng, GREEDY_NAMES));
		span.mode = waits ? HF_LOCK_EXCLUSIVE : HF_LOCK_SHARED;
		lock(world, &span, name, 20000 + (uint32_t)rng_below(rng, GREEDY_MOST), waits);
	}
}

static void on_greed(struct hf_timer *timer)
{
	struct world *world = hf_container_of(timer, struct world, flood.greedy_timer);

	if (world->is_calm)
		return;
	take_greedily(world);
	hf_timer_start(timer, rng_between(&world->flood.greedy_rng, 100 * MS, 10 * SECOND));
}

bool flood_is_greedy(const struct world *world, const struct hf_addr *addr)
{
	return world->flood.is_greedy && addr->family == AF_INET && addr->ip[0] == 10 && addr->ip[2] == 0 &&
	       addr->ip[3] >= GREEDY_ADDRESS && addr->ip[3] < GREEDY_ADDRESS + GREEDY_HOSTS;
}

/* Its rpcbind knows of no program. */
void flood_message(struct world *world, const struct hf_addr *from, const struct hf_addr *to,
		   const uint8_t *data, size_t len)
{
	uint32_t words[6], reply[7] = { 0 };

	if (to->port != RPCBIND_PORT || len < sizeof(words))
		return;
	memcpy(words, data, sizeof(words));
	if (words[1])
		return; /* no call */
	reply[0] = words[0];
	reply[1] = htonl(1);
	net_send(world, to, from, reply, sizeof(reply) - (words[5] ? 0 : sizeof(reply[0])));
}

/* What the forger has */

static bool is_forged(const struct hf_client *client)
{
	return client->address.family == AF_INET && client->address.ip[2] == 0 &&
	       client->address.ip[3] >= ADDRESS && client->address.ip[3] < ADDRESS + N_ADDRESSES;
}

/* A lock may be split by another that was admitted; a grant is a lock, too. */
static void check_forged(struct world *world)
{
	const struct flood *flood = &world->flood;
	struct hf_clients *clients = hf_recovery_clients(world->server->recovery);
	uint64_t max_clients = world->server->max_clients, serial = 0, n_clients = 0, n_things = 0;
	uint64_t most = HF_MAX(max_clients / PART, HF_MIN((max_clients + 1) / 2, (uint64_t)LEAST_UNMET));
	struct hf_client *client;

	for (; (client = hf_clients_next(clients, serial)); hf_client_unref(client)) {
		serial = client->serial;
		if (!is_forged(client))
			continue;
		n_clients += hf_client_is_registered(client);
		n_things += client->locking.n_locks + client->locking.n_waiters;
	}
	if (n_clients > HF_MAX(most, flood->n_loaded))
		world_fail(world, "LIMIT", "%llu clients are registered that do not exist",
			   (unsigned long long)n_clients);
	if (n_things > 2 * (flood->limits.locks / PART) + 2)
		world_fail(world, "LIMIT", "clients that do not exist have %llu locks and waiters",
			   (unsigned long long)n_things);
}

/* A waiter is admitted only if there is room. Grants that could not be promised go back to the queue,
 * whatever has come in between. */
static void check_waiters(struct world *world)
{
	uint32_t n[MAX_FILES] = { 0 }, most = world->flood.limits.waiters_per_file + world->flood.most_grants;
	struct hf_lock_cursor cursor = { 0 };
	uint8_t handle[HANDLE_LEN];
	struct hf_lock_view view;

	while (hf_lock_next_waiter(hf_recovery_locks(world->server->recovery), NULL, &cursor, &view))
		for (uint8_t file = 0; file < MAX_FILES; file++) {
			talk_handle(handle, file);
			n[file] += hf_bytes_equal(view.who.handle, hf_bytes_of(handle, sizeof(handle)));
		}
	for (uint8_t file = 0; file < MAX_FILES; file++)
		if (n[file] > most)
			world_fail(world, "LIMIT", "%u wait for file %u, and %u may", n[file], file, most);
}

void flood_note_granted(struct world *world)
{
	struct hf_lock_counters counters;

	if (!world->flood.exists)
		return;
	hf_lock_count(hf_recovery_locks(world->server->recovery), &counters);
	world->flood.most_grants = HF_MAX(world->flood.most_grants, (uint32_t)counters.grants);
}

/* What others can be made to wait for, or to have no room for, is bounded. Unlocks split. */
void flood_check(struct world *world)
{
	const struct hf_lock_limits *limits = &world->flood.limits;
	struct hf_recovery *recovery = world->server->recovery;
	struct hf_lock_counters counters;

	if (!world->flood.exists)
		return;
	hf_lock_count(hf_recovery_locks(recovery), &counters);
	if (counters.waiters > limits->waiters_per_file)
		check_waiters(world);
	if (counters.locks > 2 * (uint64_t)limits->locks + 2 * counters.grants)
		world_fail(world, "LIMIT", "there are %llu locks", (unsigned long long)counters.locks);
	if (hf_clients_count_registered(hf_recovery_clients(recovery)) >
	    HF_MAX(world->server->max_clients, world->flood.n_loaded))
		world_fail(world, "LIMIT", "more clients are registered than may be");
	check_forged(world);
}

/* The server was killed after a lock was stored and before its client was refused: both are loaded. So are
 * the waiters of the run before, and the grants that were in flight. */
void flood_server_started(struct world *world)
{
	struct hf_lock_counters counters;

	hf_lock_count(hf_recovery_locks(world->server->recovery), &counters);
	world->flood.most_grants = (uint32_t)(counters.waiters + counters.grants);
	world->flood.n_loaded = hf_clients_count_registered(hf_recovery_clients(world->server->recovery));
}

void flood_limit(const struct world *world, struct hf_lock_limits *limits)
{
	if (world->flood.exists)
		*limits = world->flood.limits;
}

void flood_init(struct world *world)
{
	struct flood *flood = &world->flood;
	struct rng *rng = &flood->rng;

	rng_init(rng, world->options.seed, 8);
	flood->exists = rng_chance(rng, CHANCE) && !omits(world, OMIT_FLOOD) && !world->options.has_tls;
	if (!flood->exists)
		return;
	flood->limits = (struct hf_lock_limits){
		.locks_per_client = (uint32_t)rng_between(rng, 2, 20),
		.locks_per_file = (uint32_t)rng_between(rng, 20, 80),
		.locks = (uint32_t)rng_between(rng, 40, 120),
		.waiters_per_file = (uint32_t)rng_between(rng, 10, 60),
		.waiters_per_client = (uint32_t)rng_between(rng, 4, 60),
	};
	world->server->max_clients = rng_between(rng, 5, 60);
	world->server->notify_parallel = 1024; /* each host that does not answer takes a place for a moment */
	world_timer(world, &flood->timer, on_timer);
	hf_timer_start(&flood->timer, rng_below(rng, 10 * SECOND));
	rng_init(&flood->greedy_rng, world->options.seed, 9);
	flood->is_greedy = rng_chance(&flood->greedy_rng, GREEDY);
	world_timer(world, &flood->greedy_timer, on_greed);
	if (flood->is_greedy)
		hf_timer_start(&flood->greedy_timer, rng_below(&flood->greedy_rng, 10 * SECOND));
}
