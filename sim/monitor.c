/*
 * A lock manager of the server's own host, which has the server watch peers for it: SM_MON, and a call-back
 * when a peer says that it was restarted, until SM_UNMON. It runs as long as the machine, and over loopback
 * no message is lost.
 *
 * MON, the checks: a watch is stored when SM_MON is answered. A call-back is true (peer, state number,
 * private bytes). It comes after a peer's notice was acknowledged, unless the server dies meanwhile, as with
 * statd. None tells of a restart after SM_UNMON.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "proto/nlm/wire.h"
#include "rpc/xdr.h"
#include "sim.h"

#define CHANCE       250 /* in a thousand schedules */
#define STATD        100024
#define AGAIN_NS     (1 * SECOND)
#define PATIENCE_NS  (40 * SECOND) /* five tries, five seconds apart, and a server that is late */
#define PRIV_LEN     16
#define NAME         "127.0.0.1:60000"
#define MONITOR_PORT 60000

enum {
	PROC_MON = 2,
	PROC_UNMON = 3,
	PROC_UNMON_ALL = 4,
};

static const struct hf_addr loopback = { .family = AF_INET, .ip = { 127, 0, 0, 1 } };

bool monitor_is(const struct hf_addr *addr)
{
	return hf_addr_same_host(addr, &loopback) && addr->port == MONITOR_PORT;
}

/* Calls */

static void put_header(struct hf_xdr_out *out, uint32_t xid, uint32_t procedure)
{
	const uint32_t words[] = { xid, 0, 2, STATD, 1, procedure, 0, 0, 0, 0 };

	for (size_t i = 0; i < HF_ARRAY_SIZE(words); i++)
		hf_xdr_put_u32(out, words[i]);
}

static void put_my_id(struct hf_xdr_out *out)
{
	hf_xdr_put_string(out, NAME);
	hf_xdr_put_u32(out, HF_NLM_PROGRAM);
	hf_xdr_put_u32(out, 4);
	hf_xdr_put_u32(out, HF_NLM_SM_NOTIFY);
}

static void send_call(struct world *world)
{
	struct monitor *monitor = &world->monitor;
	struct hf_addr from = loopback, to = loopback;

	from.port = MONITOR_PORT;
	to.port = SERVER_PORT;
	net_send(world, &from, &to, monitor->call, monitor->call_len);
	hf_timer_start(&monitor->timer, AGAIN_NS);
}

static void call(struct world *world, uint32_t procedure, struct watch *watch)
{
	struct monitor *monitor = &world->monitor;
	struct hf_xdr_out out;

	monitor->xid = world->next_xid++;
	monitor->procedure = procedure;
	monitor->about = watch;
	hf_xdr_out_init(&out, monitor->call, sizeof(monitor->call));
	put_header(&out, monitor->xid, procedure);
	if (watch)
		hf_xdr_put_string(&out, watch->name);
	put_my_id(&out);
	if (procedure == PROC_MON)
		hf_xdr_put_fixed(&out, watch->priv, PRIV_LEN);
	monitor->call_len = (uint16_t)(out.p - monitor->call);
	SAY(world, "monitor procedure %u for %s (xid %u)", procedure, watch ? watch->name : "all",
	    monitor->xid);
	send_call(world);
}

static void rest(struct world *world)
{
	world->monitor.xid = 0;
	hf_timer_start(&world->monitor.timer,
		       rng_between(&world->monitor.rng, 100 * MS, world->is_calm ? SECOND : 8 * SECOND));
}

static void choose(struct world *world)
{
	struct monitor *monitor = &world->monitor;
	uint32_t index = (uint32_t)rng_below(&monitor->rng, world->n_hosts);
	struct watch *watch = &monitor->watches[index];
	const struct host *host = &world->hosts[index];

	if (world->is_calm || host->is_shared) {
		rest(world);
		return;
	}
	if (watch->is_on) {
		if (!rng_chance(&monitor->rng, 300)) {
			rest(world);
			return;
		}
		call(world, PROC_UNMON, watch);
		return;
	}
	hf_addr_format(&host->addr, watch->name, sizeof(watch->name));
	for (int i = 0; i < PRIV_LEN; i++)
		watch->priv[i] = (uint8_t)rng_next(&monitor->rng);
	watch->is_known = true;
	watch->off_life =
		UINT32_MAX; /* if it is refused because the store failed, a call-back may still come */
	watch->state_before = host->state;
	call(world, PROC_MON, watch);
}

static void on_timer(struct hf_timer *timer)
{
	struct world *world = hf_container_of(timer, struct world, monitor.timer);

	if (world->monitor.xid)
		send_call(world);
	else
		choose(world);
}

/* Answers */

static bool is_stored(const struct world *world, const struct watch *watch)
{
	char id[96];

	snprintf(id, sizeof(id), "nsm:%s:%s", watch->name, NAME);
	return disk_has_client(world, id);
}

static void take_reply(struct world *world, uint32_t xid, struct hf_xdr_in *in)
{
	struct monitor *monitor = &world->monitor;
	struct watch *watch = monitor->about;
	uint32_t accept;

	if (xid != monitor->xid)
		return;
	hf_xdr_get_u32(in);
	hf_xdr_get_u32(in);
	hf_xdr_get_opaque(in, 400);
	accept = hf_xdr_get_u32(in);
	if (!hf_xdr_in_is_ok(in) || accept)
		world_fail(world, "RPC", "the monitor is refused a call, %u", accept);
	SAY(world, "monitor xid %u is answered", xid);
	if (monitor->procedure == PROC_MON && hf_xdr_get_u32(in) == 0) {
		watch->is_on =
			watch->is_known; /* the peer has moved meanwhile: the watch is for its old address */
		watch->state_before =
			world->hosts[watch - monitor->watches].state; /* it is watched from now on */
	}
	if (monitor->procedure == PROC_UNMON) {
		watch->is_on = false;
		/* If the store cannot write, the watch may be back after a restart: one too many at worst. */
		if (!is_stored(world, watch))
			watch->off_life = world->hosts[watch - monitor->watches].life;
	}
	hf_timer_stop(&monitor->timer);
	rest(world);
}

static struct watch *find(struct world *world, struct hf_bytes name)
{
	for (uint32_t i = 0; i < world->n_hosts; i++)
		if (hf_bytes_equal(hf_bytes_of_str(world->monitor.watches[i].name), name))
			return &world->monitor.watches[i];
	return NULL;
}

/* The call-back */
static void hear(struct world *world, struct hf_xdr_in *in)
{
	struct watch *watch = find(world, hf_xdr_get_string(in, 1024));
	int32_t state = hf_xdr_get_i32(in);
	struct hf_bytes priv = hf_xdr_get_fixed(in, PRIV_LEN);
	const struct host *host = watch ? &world->hosts[watch - world->monitor.watches] : NULL;

	if (!watch || !watch->is_known || !hf_xdr_in_is_ok(in))
		return; /* of a peer that has moved, or that it watched before the machine crashed */
	SAY(world, "monitor hears that %s was restarted, state %d", watch->name, state);
	if (memcmp(priv.data, watch->priv, PRIV_LEN) != 0 && watch->is_on)
		world_fail(world, "MON", "the call-back for host %u has other private bytes", host->index);
	if (state > host->state || state % 2 != 1)
		world_fail(world, "MON", "host %u has never had the state number %d", host->index, state);
	if (!watch->is_on && watch != world->monitor.about && host->life > watch->off_life &&
	    state == host->state)
		world_fail(world, "MON", "host %u is not watched any more, and its restart is told",
			   host->index);
	watch->heard = HF_MAX(watch->heard, state);
}

static void serve_call(struct world *world, const struct hf_addr *from, uint32_t xid, struct hf_xdr_in *in)
{
	struct hf_addr me = loopback;
	struct hf_xdr_out out;
	uint32_t program, procedure;
	uint8_t reply[24];

	hf_xdr_get_u32(in);
	program = hf_xdr_get_u32(in);
	hf_xdr_get_u32(in);
	procedure = hf_xdr_get_u32(in);
	for (int i = 0; i < 2; i++) {
		hf_xdr_get_u32(in);
		hf_xdr_get_opaque(in, 400);
	}
	if (program == HF_NLM_PROGRAM && procedure == HF_NLM_SM_NOTIFY)
		hear(world, in);
	me.port = MONITOR_PORT;
	hf_xdr_out_init(&out, reply, sizeof(reply));
	hf_xdr_put_u32(&out, xid);
	hf_xdr_put_u32(&out, 1);
	for (int i = 0; i < 4; i++)
		hf_xdr_put_u32(&out, 0);
	net_send(world, &me, from, reply, sizeof(reply));
}

void monitor_message(struct world *world, const struct hf_addr *from, const uint8_t *data, size_t len)
{
	struct hf_xdr_in in;
	uint32_t xid;

	hf_xdr_in_init(&in, data, len);
	xid = hf_xdr_get_u32(&in);
	if (hf_xdr_get_u32(&in) == 1)
		take_reply(world, xid, &in);
	else
		serve_call(world, from, xid, &in);
}

/* Checks */

static bool is_all_written(const struct world *world)
{
	const struct hf_store *store = hf_recovery_store(world->server->recovery);

	return hf_store_is_healthy(store) && hf_store_is_idle(store);
}

/* I2, and what SM_UNMON says, as the reply leaves. */
void monitor_tap(struct world *world, const uint8_t *data, size_t len)
{
	const struct monitor *monitor = &world->monitor;
	uint32_t words[7];

	if (len < sizeof(words) || (monitor->procedure != PROC_MON && monitor->procedure != PROC_UNMON))
		return;
	memcpy(words, data, sizeof(words));
	if (ntohl(words[0]) != monitor->xid || ntohl(words[1]) != 1)
		return;
	if (monitor->procedure == PROC_MON && words[6] == 0 && !is_stored(world, monitor->about))
		world_fail(world, "I2", "%s is said to be watched, and that is not stored",
			   monitor->about->name);
	if (monitor->procedure == PROC_UNMON && is_all_written(world) && is_stored(world, monitor->about))
		world_fail(world, "MON", "%s is said to be watched no more, and that is still stored",
			   monitor->about->name);
}

/* The host's notice was acknowledged. */
void monitor_expect(const struct host *host)
{
	struct world *world = host->world;
	struct watch *watch = &world->monitor.watches[host->index];

	if (!watch->is_on || watch == world->monitor.about || watch->state_before == host->state ||
	    host->awakening != BY_NOTIFY)
		return;
	watch->expected = host->state;
	watch->expected_in = world->server->life;
	watch->expected_by = world->now + PATIENCE_NS;
}

void monitor_check(struct world *world)
{
	for (uint32_t i = 0; i < world->n_hosts; i++) {
		struct watch *watch = &world->monitor.watches[i];

		if (!watch->expected || world->now < watch->expected_by)
			continue;
		if (watch->is_on && watch->heard < watch->expected &&
		    world->server->life == watch->expected_in && !world->server->is_stopping)
			world_fail(world, "MON",
				   "the restart of host %u is known, and its watcher is not told", i);
		watch->expected = 0;
	}
}

/* Making and freeing */

/* It dies with its machine. The server has its watches stored. */
void monitor_died(struct world *world)
{
	struct monitor *monitor = &world->monitor;

	if (!monitor->exists)
		return;
	memset(monitor->watches, 0, sizeof(monitor->watches));
	hf_timer_stop(&monitor->timer);
	call(world, PROC_UNMON_ALL, NULL);
}

void monitor_moved(const struct host *host)
{
	struct watch *watch = &host->world->monitor.watches[host->index];

	if (host->world->monitor.about != watch || !host->world->monitor.xid)
		memset(watch, 0, sizeof(*watch));
	watch->is_known = watch->is_on = false;
}

void monitor_init(struct world *world)
{
	struct monitor *monitor = &world->monitor;

	rng_init(&monitor->rng, world->options.seed, 200);
	world_timer(world, &monitor->timer, on_timer);
	/* In a cluster it does not move. And where it exists, the rogue forges no notice. */
	monitor->exists = rng_chance(&monitor->rng, CHANCE) && !world->options.is_cluster &&
			  !world->options.has_more_forgers;
	if (monitor->exists)
		rest(world);
}
