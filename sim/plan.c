/* What a seed means: the server's configuration, the hosts, how bad network and disk are, and which faults
 * come when. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

#define STRIKES             8
#define MOST_DELAY_WITH_TLS (400 * MS)

static const char *const fault_names[FAULT_HALT] = {
	[FAULT_DAEMON] = "the daemon is killed",
	[FAULT_MACHINE] = "the machine crashes",
	[FAULT_RESTART] = "the daemon is restarted in order",
	[FAULT_CUT] = "partition",
	[FAULT_HOST] = "a client crashes",
	[FAULT_HOST_MOVES] = "a client crashes and comes back elsewhere",
	[FAULT_HOST_THEN] = "a client crashes, and the server when it knows",
	[FAULT_STORE] = "the store fails",
	[FAULT_SLOW] = "the store is slow",
	[FAULT_RESET] = "connections break",
	[FAULT_RENAME] = "a client gets another name",
	[FAULT_GRACE_END] = "an operator ends grace",
	[FAULT_NOTIFY] = "an operator has all clients told again",
	[FAULT_ROGUE] = "the rogue strikes",
};

/* How often each happens, relative to the others. */
static const uint8_t weights[FAULT_HALT] = {
	[FAULT_DAEMON] = 30, [FAULT_MACHINE] = 10,   [FAULT_RESTART] = 5,   [FAULT_CUT] = 18,
	[FAULT_HOST] = 18,   [FAULT_HOST_MOVES] = 2, [FAULT_HOST_THEN] = 6, [FAULT_STORE] = 5,
	[FAULT_SLOW] = 5,    [FAULT_RESET] = 6,      [FAULT_RENAME] = 2,    [FAULT_GRACE_END] = 2,
	[FAULT_NOTIFY] = 2,  [FAULT_ROGUE] = 14,
};

/* The same with --forgers. A number that a forger has made up counts for the rest of a run of the server, and
 * shows its effect when the client is restarted. */
static const uint8_t weights_of_forgers[FAULT_HALT] = {
	[FAULT_DAEMON] = 10, [FAULT_MACHINE] = 3,   [FAULT_RESTART] = 3,
	[FAULT_HOST] = 40,   [FAULT_HOST_THEN] = 6, [FAULT_STORE] = 3,
	[FAULT_SLOW] = 3,    [FAULT_RESET] = 8,     [FAULT_ROGUE] = 40,
};

/* Acts */

static void break_connections(struct world *world, struct host *host)
{
	hf_list_for_each_safe(link, &world->conns) {
		struct conn *conn = hf_list_entry(link, struct conn, link);

		if (conn->host == host && conn->is_open)
			stream_reset(conn);
	}
}

/* With --forgers they break while what the rogue says is checked. */
static void break_after_strike(struct fault *fault)
{
	struct world *world = fault->world;

	if (world->options.has_more_forgers && !fault->has_struck && !omits(world, OMIT_ROGUE)) {
		fault->has_struck = true;
		rogue_act(world, STRIKES);
		hf_timer_start(&fault->timer, fault->at % SECOND);
		return;
	}
	break_connections(world, &world->hosts[fault->host]);
}

static void end_grace(struct world *world, void *user)
{
	struct server *server = world->server;

	server->grace_by_hand = true;
	hf_recovery_end_grace(server->recovery);
	hf_loop_run_deferred(&server->loop->loop);
}

static void notify_again(struct world *world, void *user)
{
	hf_recovery_notify_again(world->server->recovery, NULL);
	hf_loop_run_deferred(&world->server->loop->loop);
}

static void crash(struct world *world, const struct fault *fault)
{
	enum crash_kind kind = fault->kind == FAULT_MACHINE ? CRASH_MACHINE : CRASH_DAEMON;

	if (fault->number && world->server->is_up)
		server_arm(world, kind, fault->number);
	else
		server_crash(world, kind);
}

void plan_restart(struct world *world)
{
	if (world->options.is_cluster)
		node_leave(world->server);
	else
		server_stop(world);
}

static void act(struct fault *fault)
{
	struct world *world = fault->world;
	struct host *host = &world->hosts[fault->host];
	bool is_serving = world->server->is_up && !world->server->is_stopping;

	switch (fault->kind) {
	case FAULT_DAEMON:
	case FAULT_MACHINE:
		crash(world, fault);
		break;
	case FAULT_RESTART:
		plan_restart(world);
		break;
	case FAULT_CUT:
		world->counts->partitions++;
		host_set_cut(host, fault->number != 1, fault->number != 2, fault->lasts);
		break;
	case FAULT_HOST:
	case FAULT_HOST_MOVES:
		host_die(host, fault->kind == FAULT_HOST_MOVES, fault->lasts);
		break;
	case FAULT_HOST_THEN:
		host_take_along(host, fault->number & 1 ? CRASH_DAEMON : CRASH_MACHINE,
				1 + fault->number / 2);
		host_die(host, false, fault->lasts);
		break;
	case FAULT_STORE:
		world->disk.fails_until = world->now + fault->lasts;
		break;
	case FAULT_SLOW:
		world->disk.slow_until = world->now + fault->lasts;
		break;
	case FAULT_RESET:
		break_after_strike(fault);
		break;
	case FAULT_RENAME:
		host_rename(host);
		break;
	case FAULT_GRACE_END:
		if (is_serving && world->server->grace_is_on)
			server_do(world, end_grace, NULL);
		break;
	case FAULT_NOTIFY:
		if (is_serving)
			server_do(world, notify_again, NULL);
		break;
	case FAULT_ROGUE:
		rogue_act(world, fault->number);
		break;
	default:
		failover_act(fault);
		break;
	}
	if (world->server->is_up && !world->server->node.is_deposed)
		check_turn(world);
}

static void on_fault(struct hf_timer *timer)
{
	struct fault *fault = hf_container_of(timer, struct fault, timer);

	SAY(fault->world, "FAULT %u: %s (host %u, %.1f s, %u)", fault->index,
	    fault->kind >= FAULT_HALT ? failover_name(fault->kind) : fault_names[fault->kind], fault->host,
	    (double)fault->lasts / 1e9, fault->number);
	world_note(fault->world, 4, fault->index);
	act(fault);
}

/* Making */

static enum fault_kind choose_kind(struct world *world)
{
	const uint8_t *often = world->options.has_more_forgers ? weights_of_forgers : weights;
	unsigned int sum = 0, n;

	for (int i = 0; i < FAULT_HALT; i++)
		sum += often[i];
	n = (unsigned int)rng_below(&world->plan_rng, sum);
	for (int i = 0; i < FAULT_HALT; i++) {
		if (n < often[i])
			return (enum fault_kind)i;
		n -= often[i];
	}
	return FAULT_DAEMON;
}

void plan_arm(struct fault *fault)
{
	struct world *world = fault->world;

	world_timer(world, &fault->timer, on_fault);
	if (!(world->options.omit_faults >> fault->index & 1) &&
	    !(fault->kind == FAULT_ROGUE && omits(world, OMIT_ROGUE)))
		hf_timer_start(&fault->timer, fault->at);
}

static void make_fault(struct world *world, struct fault *fault, uint32_t index)
{
	struct rng *rng = &world->plan_rng;

	fault->world = world;
	fault->index = index;
	fault->kind = choose_kind(world);
	if (fault->kind == FAULT_CUT && world->has_forger)
		fault->kind = FAULT_ROGUE;
	fault->at = rng_below(rng, world->knobs.trouble_ns);
	fault->host = (uint32_t)rng_below(rng, world->n_hosts);
	fault->lasts = rng_between(rng, 1 * SECOND, rng_chance(rng, 300) ? 60 * SECOND : 12 * SECOND);
	fault->number = (uint32_t)rng_below(rng, 80);
	switch (fault->kind) {
	case FAULT_CUT:
		fault->number = (uint32_t)rng_below(rng, 5); /* 1 and 2: one way only */
		if (fault->number == 2) /* so that the client's answers to all that it is told are lost */
			fault->lasts = rng_between(rng, 20 * SECOND, 70 * SECOND);
		break;
	case FAULT_HOST:
	case FAULT_HOST_MOVES:
		fault->lasts = rng_between(rng, 5 * SECOND, 20 * SECOND);
		break;
	case FAULT_HOST_THEN:
		fault->lasts = rng_between(rng, 5 * SECOND, 20 * SECOND);
		fault->number = (uint32_t)rng_below(rng, 8);
		break;
	case FAULT_ROGUE:
		fault->number = (uint32_t)rng_between(rng, 1, 8);
		break;
	default:
		break;
	}
	plan_arm(fault);
}

static void make_knobs(struct world *world)
{
	struct rng *rng = &world->plan_rng;
	struct knobs *knobs = &world->knobs;

	knobs->loss = rng_chance(rng, 600) ? (unsigned int)rng_below(rng, 150) : 0;
	knobs->doubles = rng_chance(rng, 500) ? (unsigned int)rng_below(rng, 150) : 0;
	knobs->slow = rng_chance(rng, 600) ? (unsigned int)rng_below(rng, 200) : 0;
	knobs->longest_ns = rng_between(rng, 10 * MS, 4 * SECOND);
	knobs->lazy = rng_chance(rng, 500) ? 300 : 0;
	knobs->fail = rng_chance(rng, 200) ? (unsigned int)rng_below(rng, 60) : 0;
	knobs->think_ns = rng_between(rng, 50 * MS, 5 * SECOND);
	knobs->trouble_ns = rng_between(rng, 15 * SECOND, 90 * SECOND);
}

static void configure(struct world *world)
{
	struct rng *rng = &world->plan_rng;
	struct server *server = world->server;
	uint64_t dice = rng_below(rng, 100);

	server->durability = dice < 50 ? HF_STORE_PROCESS : (dice < 88 ? HF_STORE_MACHINE : HF_STORE_NONE);
	if (world->options.has_more_forgers && dice % 2)
		server->durability = HF_STORE_NONE; /* only there does the rogue guess the next number */
	server->window_ns = rng_between(rng, 5, 25) * SECOND;
	server->notify_retry_ns = rng_between(rng, 20, 120) * SECOND;
	/* Some last longer than a client without locks stays registered. */
	if (server->notify_retry_ns % (10 * SECOND) == 0)
		server->notify_retry_ns *= 8;
	server->notify_parallel = rng_chance(rng, 500) ? 1024 : rng_between(rng, 1, 3);
	server->max_clients = rng_chance(rng, 120) ? rng_between(rng, 1, 3) : 100;
	server->early_end = rng_chance(rng, 850);
}

/* In some worlds a client without locks would be unregistered before it was told of a restart. */
static void shorten_idleness(struct world *world)
{
	bool is_short = world->server->notify_retry_ns / SECOND % 4 == 0;

	for (uint32_t i = 0; i < world->n_hosts; i++)
		is_short = is_short && !world->hosts[i].is_shared;
	world->server->idle_ns = (is_short ? 12 : 300) * SECOND;
}

void plan_make(struct world *world)
{
	struct rng *rng = &world->plan_rng;
	uint32_t n = (uint32_t)rng_between(rng, 2, 14);

	configure(world);
	make_knobs(world);
	world->has_forger = rogue_is_forger(world);
	if (world->has_forger)
		world->knobs.loss = world->knobs.slow = 0;
	if (world->options.has_tls) /* see replay() in rogue.c */
		world->knobs.longest_ns = HF_MIN(world->knobs.longest_ns, MOST_DELAY_WITH_TLS);
	world->n_files = (uint32_t)rng_between(rng, 1, MAX_FILES);
	world->n_hosts = (uint32_t)rng_between(rng, 2, MAX_HOSTS);
	for (uint32_t i = 0; i < world->n_hosts; i++)
		host_init(world, i);
	shorten_idleness(world);
	monitor_init(world);
	worker_init(world);
	fate_init(world);
	identity_init(world);
	slow_init(world);
	flood_init(world);
	world->n_faults = n;
	for (uint32_t i = 0; i < n; i++)
		make_fault(world, &world->faults[i], i);
	if (world->options.is_cluster) {
		database_init(world);
		node_init(world);
		failover_make(world);
	}
	SAY(world,
	    "plan    %u hosts, %u files, %u faults; durability %d, window %.0f s, retry %.0f s, "
	    "parallel %zu, max_clients %zu, early end %d",
	    world->n_hosts, world->n_files, n, world->server->durability,
	    (double)world->server->window_ns / 1e9, (double)world->server->notify_retry_ns / 1e9,
	    world->server->notify_parallel, world->server->max_clients, world->server->early_end);
	SAY(world, "plan    loss %u, doubles %u, slow %u up to %.3f s, lazy %u, failing writes %u (of 1000)",
	    world->knobs.loss, world->knobs.doubles, world->knobs.slow, (double)world->knobs.longest_ns / 1e9,
	    world->knobs.lazy, world->knobs.fail);
}

void plan_stop(struct world *world)
{
	world->is_calm = true;
	for (uint32_t i = 0; i < world->n_faults; i++)
		hf_timer_stop(&world->faults[i].timer);
	fate_stop(world);
	worker_hurry(world);
	if (world->tls.exists) {
		intruder_calm(world);
		session_calm(world);
	}
	world->server->crash_in = 0;
	if (world->options.is_cluster)
		failover_calm(world);
	world->disk.fails_until = world->disk.slow_until = 0;
	for (uint32_t i = 0; i < world->n_hosts; i++)
		host_set_cut(&world->hosts[i], false, false, 0);
}
