/* Faults of a cluster: of its nodes, of the ways between them, the database and the clients, and of the
 * database. They come on top of those of plan.c. */
#include "sim.h"

#define MAX_MORE 12
#define STRIKES  8
#define CHANCE   250 /* in a thousand: a fault whose moments depend on what the nodes do */
#define GLANCE   (5 * MS)

static const struct {
	const char *name;
	uint8_t weight;
} kinds[N_FAULT_KINDS] = {
	[FAULT_HALT] = { "the process is halted", 24 },
	[FAULT_SLEEP] = { "the machine sleeps", 6 },
	[FAULT_NODE] = { "the standby is killed", 8 },
	[FAULT_BOTH] = { "both nodes are killed", 5 },
	[FAULT_NO_DATABASE] = { "a node is cut off from the database", 18 },
	[FAULT_NO_CLIENTS] = { "a node is cut off from all clients", 8 },
	[FAULT_NO_LINK] = { "a node loses its link to the clients", 6 },
	[FAULT_DATABASE] = { "the database does not answer", 8 },
	[FAULT_DATABASE_CRASH] = { "the database crashes", 6 },
	[FAULT_PROMOTION] = { "the replica takes the database's place", 10 },
	[FAULT_MOVE] = { "an operator moves the service", 10 },
	[FAULT_TAKE] = { "an operator has the standby take the service", 8 },
	[FAULT_LAPSE] = { "the lease ends while a forged notice is checked", 0 },
	[FAULT_RETURN] = { "a node is back when its successor has left", 0 },
};

const char *failover_name(enum fault_kind kind)
{
	return kinds[kind].name;
}

/* How each ends */
static void on_end(struct hf_timer *timer)
{
	struct node *node = hf_container_of(timer, struct node, halt_timer);

	node->has_no_database = node->has_no_clients = node->has_no_link = false;
}

static bool is_cut_from_clients(const struct fault *fault)
{
	return fault->kind == FAULT_NO_CLIENTS ||
	       (fault->kind == FAULT_NO_DATABASE && fault->number % 3 == 0);
}

static void cut(struct server *server, struct fault *fault)
{
	server->world->counts->node_cuts++;
	if (fault->kind == FAULT_NO_DATABASE)
		server->node.has_no_database = true;
	if (fault->kind == FAULT_NO_LINK)
		node_set_link(server, false);
	if (is_cut_from_clients(fault))
		server->node.has_no_clients = true;
	if (!hf_timer_is_running(&server->node.halt_timer))
		world_timer(server->world, &server->node.halt_timer, on_end);
	hf_timer_start(&server->node.halt_timer, fault->lasts);
}

/* Faults whose moments depend on what the nodes do */

/* The database does not answer any more. The node asks hosts about what the rogue says, and its lease ends
 * before they have answered. The node may have its lease back later. */
static void lapse(struct fault *fault)
{
	struct world *world = fault->world;
	uint64_t ends = node_lease_end(world->acting), early = fault->number * MS / 4;

	if (fault->has_struck) {
		rogue_act(world, STRIKES);
		return;
	}
	if (ends <= world->now + early)
		return;
	fault->has_struck = true;
	database_go_away(world, ends - world->now + fault->lasts);
	hf_timer_start_at(&fault->timer, ends - early);
}

static void on_glance(struct hf_timer *timer)
{
	struct fault *fault = hf_container_of(timer, struct fault, sequel);
	struct world *world = fault->world;
	struct server *first = fault->server;

	if (!first->node.machine || !*world->database.row.lease_owner || world->now > fault->until ||
	    world->is_calm) {
		if (world->acting == first)
			first->node.event_ns = 0;
		node_reconnect(first);
		return;
	}
	if (world->acting != first && !fault->has_struck && node_is_serving(world->acting)) {
		fault->has_struck = true;
		node_leave(world->acting);
	}
	hf_timer_start(timer, GLANCE);
}

/* A node is cut off from the database. The other one takes over, and hands the service over to any node. Now
 * the first node sees the database again. It learns that its term is over, and that it may claim the service,
 * at nearly the same time. Its home loop is slow, and has not ended the service of the old term. */
static void come_back(struct fault *fault)
{
	struct world *world = fault->world;
	struct server *first = world->acting;

	if (!node_is_serving(first))
		return;
	world->counts->node_cuts++;
	fault->server = first;
	fault->until = world->now + 4 * world->lease_ns;
	first->node.has_no_database = true;
	first->node.event_ns = fault->lasts;
	world_timer(world, &fault->sequel, on_glance);
	hf_timer_start(&fault->sequel, GLANCE);
}

bool failover_act(struct fault *fault)
{
	struct world *world = fault->world;
	struct server *server = fault->host ? node_standby(world) : world->acting;

	switch (fault->kind) {
	case FAULT_HALT:
		if (fault->number && server->is_up)
			node_arm_halt(server, fault->lasts, fault->number);
		else
			node_halt(server, fault->lasts, false);
		return true;
	case FAULT_SLEEP:
		node_halt(server, fault->lasts, true);
		return true;
	case FAULT_NODE:
		node_crash(node_standby(world), fault->number % 4 ? CRASH_DAEMON : CRASH_MACHINE);
		return true;
	case FAULT_BOTH:
		for (uint32_t i = 0; i < MAX_NODES; i++)
			node_crash(&world->nodes[i], fault->number % 4 ? CRASH_DAEMON : CRASH_MACHINE);
		return true;
	case FAULT_NO_DATABASE:
	case FAULT_NO_CLIENTS:
	case FAULT_NO_LINK:
		cut(server, fault);
		return true;
	case FAULT_DATABASE:
		database_go_away(world, fault->lasts);
		return true;
	case FAULT_DATABASE_CRASH:
		database_crash(world, fault->lasts);
		return true;
	case FAULT_PROMOTION:
		database_promote(world, fault->lasts);
		return true;
	case FAULT_MOVE:
		node_move(world);
		return true;
	case FAULT_TAKE:
		node_take(world);
		return true;
	case FAULT_LAPSE:
		lapse(fault);
		return true;
	case FAULT_RETURN:
		come_back(fault);
		return true;
	default:
		return false;
	}
}

static enum fault_kind choose_kind(struct rng *rng)
{
	unsigned int sum = 0, n;

	for (int i = 0; i < N_FAULT_KINDS; i++)
		sum += kinds[i].weight;
	n = (unsigned int)rng_below(rng, sum);
	for (int i = 0; i < N_FAULT_KINDS; i++) {
		if (n < kinds[i].weight)
			return (enum fault_kind)i;
		n -= kinds[i].weight;
	}
	return FAULT_HALT;
}

/* Where messages are forged, a host that is asked can deny: no node is cut off from the clients. */
static void keep_clients(struct fault *fault)
{
	if (fault->kind == FAULT_NO_CLIENTS || fault->kind == FAULT_NO_LINK)
		fault->kind = FAULT_NO_DATABASE;
	if (is_cut_from_clients(fault))
		fault->number++;
}

/* Some last for less than a lease, most for longer. */
static void make_one(struct world *world, struct fault *fault)
{
	struct rng *rng = &world->database.rng;

	fault->kind = choose_kind(rng);
	fault->at = rng_below(rng, world->knobs.trouble_ns);
	fault->host = rng_chance(rng, 250);
	fault->lasts =
		rng_between(rng, 10 * MS, rng_chance(rng, 300) ? world->lease_ns : 4 * world->lease_ns);
	fault->number = rng_chance(rng, 600) ? (uint32_t)rng_between(rng, 1, 40) : 0;
	if (fault->kind >= FAULT_DATABASE && fault->kind <= FAULT_PROMOTION)
		fault->lasts /= 2;
	if (world->has_forger)
		keep_clients(fault);
}

static struct fault *new_fault(struct world *world)
{
	struct fault *fault = &world->faults[world->n_faults];

	fault->world = world;
	fault->index = world->n_faults++;
	return fault;
}

/* It has random numbers of its own. */
static void make_timed(struct world *world)
{
	struct fault *fault;
	struct rng rng;

	rng_init(&rng, world->options.seed, 22);
	if (!rng_chance(&rng, CHANCE) || world->n_faults >= MAX_FAULTS)
		return;
	fault = new_fault(world);
	fault->kind = world->has_forger && rng_chance(&rng, 600) ? FAULT_LAPSE : FAULT_RETURN;
	fault->at = rng_below(&rng, world->knobs.trouble_ns);
	fault->lasts = rng_between(&rng, 10 * MS, world->lease_ns);
	fault->number = (uint32_t)rng_between(&rng, 1, 40);
	plan_arm(fault);
}

void failover_make(struct world *world)
{
	uint32_t n = (uint32_t)rng_between(&world->database.rng, 1, MAX_MORE);

	for (uint32_t i = 0; i < n && world->n_faults < MAX_FAULTS; i++) {
		struct fault *fault = new_fault(world);

		make_one(world, fault);
		plan_arm(fault);
	}
	make_timed(world);
}

void failover_calm(struct world *world)
{
	node_calm(world);
	database_calm(world);
}
