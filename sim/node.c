/*
 * A node of a cluster: a process that decides, by the product's own code (cluster/node.h), whether it serves,
 * and a service in it while it does. What is here does what src/cluster/cluster.c and the daemon do: it
 * carries out one step after the other in the database, each of which takes time, keeps the lease where the
 * loop of the service finds it, and builds or ends the service some time after the decision.
 *
 * Each node has a clock of its own, which runs up to a tenth too fast or too slow. Its process may be killed,
 * or halted and go on later, also in the middle of a turn; its machine may sleep. It may be cut off from the
 * database, from all clients, or from both.
 *
 * The world checks that a process sends something only while it has the lease and the newest term, and that
 * two nodes never have the lease, or the address, at the same time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"
#include "store/backend.h"

#define START_NS   (1000 * SECOND)
#define MILLION    INT64_C(1000000)
#define EXPORTS    "/export rw\n"
#define WATCH_NS   (200 * MS)
#define BACK_NS    (2 * SECOND) /* beyond the lease and its margin, a service is back */
#define LATE_EVENT 250          /* in a thousand: the home loop is busy */
#define LOST       500          /* in a thousand: an answer, if the way back is cut */
#define FENCE_GOES 850          /* in a thousand: the command succeeds */

static void drive(struct server *server);
static void end_process(struct server *server);

/* Clocks */

uint64_t node_clock(const struct server *server)
{
	uint64_t now = server->world->now + server->node.lag;

	return now + (uint64_t)((int64_t)(now - START_NS) * server->node.drift / MILLION);
}

/* When is it @at by its clock? */
static uint64_t world_time(const struct server *server, uint64_t at)
{
	uint64_t rate = (uint64_t)(MILLION + server->node.drift), span = at - START_NS;

	if (at <= START_NS)
		return START_NS;
	return START_NS + span / rate * MILLION + span % rate * MILLION / rate + 2;
}

bool node_may_act(const struct server *server)
{
	return node_clock(server) < server->node.lease.ends_at;
}

uint64_t node_lease_end(const struct server *server)
{
	return world_time(server, server->node.lease.ends_at);
}

bool node_is_halted(const struct server *server)
{
	return server->world->now < server->node.halted_until;
}

void node_with(struct server *server, void (*fn)(struct world *world, void *user), void *user)
{
	struct world *world = server->world;
	struct server *before = world->server;

	world->server = server;
	fn(world, user);
	world->server = before == server ? server : world->acting;
}

/* The address */

static bool has_address(const struct server *server)
{
	return server->has_machine && server->node.has_address &&
	       node_clock(server) < server->node.address_until;
}

struct server *node_holder(struct world *world)
{
	if (!world->options.is_cluster)
		return world->server->has_machine ? world->server : NULL;
	if (world->announced && has_address(world->announced))
		return world->announced;
	for (uint32_t i = 0; i < MAX_NODES; i++)
		if (has_address(&world->nodes[i]))
			return &world->nodes[i];
	return NULL;
}

/* It lasts as long as the lease, whatever becomes of the process. */
static void hold_address(struct server *server)
{
	struct world *world = server->world;
	struct node *node = &server->node;

	node->has_address = true;
	node->address_until = node->lease.ends_at;
	for (uint32_t i = 0; i < MAX_NODES; i++)
		if (&world->nodes[i] != server && has_address(&world->nodes[i]) && has_address(server))
			world_fail(world, "T1", "both nodes have the address of the service");
}

/* What leaves */

/* T1 */
bool node_sends(struct server *server)
{
	struct world *world = server->world;

	if (!world->options.is_cluster)
		return true;
	if (!node_may_act(server))
		world_fail(world, "T1", "node %s sends something, and its lease is over", server->node.name);
	else if (!server->node.lag && strcmp(server->node.owner, world->database.term) != 0)
		world_fail(world, "T1", "node %s sends something in the term of another", server->node.name);
	return node_holder(world) == server;
}

/* I3: a node without its lease drops reclaims. Its clock may run a tenth too slow. */
void node_check_grace_end(struct server *server, const char *reason)
{
	struct world *world = server->world;

	if (world->options.is_cluster && strcmp(reason, "its time is over") == 0 &&
	    node_clock(server) - server->node.lease.since < server->window_ns / 10 * 8)
		world_fail(world, "I3", "grace runs out, and for a part of it node %s had no lease",
			   server->node.name);
}

/* Halting */

static void halt(struct server *server, uint64_t ns)
{
	server->node.halted_until = HF_MAX(server->node.halted_until, server->world->now + ns);
	server->world->counts->halts++;
	world_note(server->world, 21, ns);
	SAY(server->world, "node %s is halted for %.1f s", server->node.name, (double)ns / 1e9);
}

void node_halt(struct server *server, uint64_t ns, bool is_sleep)
{
	if (node_is_halted(server))
		return;
	halt(server, ns);
	if (is_sleep)
		server->node.slept_ns += ns;
}

void node_arm_halt(struct server *server, uint64_t ns, uint32_t n_operations)
{
	server->node.halt_in = n_operations;
	server->node.halt_ns = ns;
}

void node_point(struct world *world)
{
	struct node *node = &world->server->node;

	if (!node->halt_in || --node->halt_in)
		return;
	halt(world->server, node->halt_ns);
	node->lag = node->halt_ns;
}

/* The service */

static void end_service(struct world *world, void *user)
{
	struct server *server = world->server;

	if (server->is_up) {
		SAY(world, "node %s ends the service as if it were killed", server->node.name);
		server_vanish(world, false);
		disk_crash(world, false);
	}
	server->node.has_address = false;
}

static void let_go(struct world *world, void *user)
{
	server_loosen(world);
	server_forget_list(world);
	world->server->node.is_deposed = true;
}

/* T5 */
static void check_loss(struct world *world, bool has_lost)
{
	if (has_lost && world->server->has_continued)
		world_fail(world, "T5", "the database has lost locks, and the node goes on with the rest");
	world->database.has_lost = false;
}

/* Registrations may be lost, too. */
static void forget_promises(struct world *world)
{
	world->server->is_complete = false;
	for (uint32_t i = 0; i < world->n_hosts; i++) {
		world->hosts[i].lacks_number = true;
		world->hosts[i].promised_in = 0;
	}
}

static void take_place(struct world *world, struct server *server)
{
	struct server *before = world->acting;

	if (before == server)
		return;
	world->counts->takeovers++;
	if (before->is_up)
		node_with(before, let_go, NULL);
	server_inherit(server, before);
	world->acting = server;
}

/* Hands the service over, then ends the process. */
static void leave(struct server *server)
{
	server->node.leave_by = server->world->now + server->world->lease_ns;
	hf_node_released(server->node.machine, false, node_clock(server));
}

static void begin_service(struct server *server)
{
	struct world *world = server->world;
	struct node *node = &server->node;
	bool has_lost = world->database.has_lost;

	node_with(server, end_service, NULL);
	snprintf(node->owner, sizeof(node->owner), "%s", hf_node_owner(node->machine));
	if (strcmp(node->owner, world->database.term) != 0) {
		if (!disk_is_fenced(server)) /* the database lost the claim of the other node */
			world->disturbed_at = world->now;
		hf_node_released(node->machine, false, node_clock(server));
		return;
	}
	take_place(world, server);
	world->server = server;
	server->has_lost = has_lost;
	if (has_lost)
		forget_promises(world);
	SAY(world, "node %s begins the service: %s", node->name, hf_node_claim_reason(node->machine));
	server_start(world);
	if (!node->machine)
		return; /* it was killed soon */
	if (!server->is_up) {
		world->disturbed_at = world->now;
		leave(server);
		return;
	}
	check_loss(world, has_lost);
	node->known_epoch = HF_MAX(node->known_epoch, server->store->state.epoch);
	node->known_state = HF_MAX(node->known_state, server->state);
	hf_node_serves(node->machine);
	world->served_at = world->now; /* the watch may come too late to see it */
	node->must_report = true;
	hold_address(server);
	world->announced = server;
}

static void stop(struct world *world, void *user)
{
	server_stop(world);
}

static void stop_service(struct server *server)
{
	if (server->is_stopping)
		return;
	if (server->is_up)
		node_with(server, stop, NULL);
	else
		hf_node_released(server->node.machine, false, node_clock(server));
}

void node_stopped(struct server *server)
{
	server->node.has_address = false;
	if (server->node.machine)
		hf_node_released(server->node.machine, false, node_clock(server));
	drive(server);
}

/* News for the home loop */

static void tell(struct server *server, unsigned int events)
{
	struct node *node = &server->node;
	struct rng *rng = &server->world->database.rng;

	if (events & NODE_DEPOSED) /* what was to be told of that term has no meaning any more */
		node->events = 0;
	node->events |= events;
	if (!hf_timer_is_running(&node->event_timer))
		hf_timer_start(&node->event_timer,
			       rng_below(rng, rng_chance(rng, LATE_EVENT) ? 300 * MS : MS) +
				       (events & NODE_DEPOSED ? node->event_ns : 0));
}

void node_store_taken(struct server *server)
{
	tell(server, NODE_TAKEN);
}

static void on_events(struct hf_timer *timer)
{
	struct server *server = hf_container_of(timer, struct server, node.event_timer);
	struct node *node = &server->node;
	unsigned int events = node->events;

	if (!node->machine)
		return;
	if (node_is_halted(server)) {
		hf_timer_start_at(timer, node->halted_until);
		return;
	}
	node->events = 0;
	node->event_ns = 0;
	if (events & (NODE_DEPOSED | NODE_TAKEN)) {
		node_with(server, end_service, NULL);
		hf_node_released(node->machine, false, node_clock(server));
	}
	if (events & NODE_CLAIMED && hf_node_role(node->machine) == HF_NODE_TAKING)
		begin_service(server);
	else if (events & NODE_HANDS_OVER && hf_node_role(node->machine) == HF_NODE_STOPPING)
		stop_service(server);
	drive(server);
}

/* What follows from a decision */

/* T1 */
static void check_leases(struct world *world)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MAX_NODES; i++)
		n += world->nodes[i].node.machine && node_may_act(&world->nodes[i]);
	if (n > 1)
		world_fail(world, "T1", "both nodes have the lease");
}

static void decided(struct server *server, enum hf_node_role before)
{
	struct node *node = &server->node;
	enum hf_node_role role = hf_node_role(node->machine);

	hf_lease_set(&node->lease, hf_node_lease_ends(node->machine), node_clock(server));
	check_leases(server->world);
	if (node->has_address && role == HF_NODE_ACTIVE)
		hold_address(server);
	if (role == before)
		return;
	SAY(server->world, "node %s is %s now", node->name, hf_node_role_name(role));
	world_note(server->world, 22, role);
	if (role == HF_NODE_TAKING)
		tell(server, NODE_CLAIMED);
	if (role == HF_NODE_STOPPING)
		tell(server, NODE_HANDS_OVER);
}

/* Steps */

static void learn(struct node *node, const struct hf_service_row *row)
{
	node->known_epoch = HF_MAX(node->known_epoch, row->epoch);
	node->known_state = HF_MAX(node->known_state, row->sm_state);
}

static void hear_look(struct server *server, struct request *request)
{
	struct node *node = &server->node;
	uint64_t heard = node_clock(server);

	if (request->result == 0 || request->result == -ESTALE)
		learn(node, &request->answer);
	if (request->result == 0) {
		hf_node_saw(node->machine, request->step, &request->answer, request->sent, heard);
		hf_node_set_unfit(node->machine, node->has_no_link ? "no link" : "", heard);
		if (request->step == HF_NODE_RENEW && !*hf_node_owner(node->machine))
			tell(server, NODE_DEPOSED); /* it is not sure any more that the service is its own */
	} else if (request->result == -ESTALE) {
		hf_node_deposed(node->machine, heard);
		tell(server, NODE_DEPOSED);
	} else {
		hf_node_failed(node->machine, heard);
	}
}

static void hear_claim(struct server *server, const struct request *request)
{
	struct node *node = &server->node;

	if (request->result == 0) {
		server->world->counts->moved += *hf_node_seen(node->machine)->lease_owner == '\0';
		hf_node_claimed(node->machine, request->owner, request->sent);
	} else if (request->result == -ESTALE) {
		hf_node_not_claimed(node->machine, node_clock(server));
	} else {
		hf_node_failed(node->machine, node_clock(server));
	}
}

static void hear_hand_over(struct server *server, const struct request *request)
{
	struct node *node = &server->node;

	if (request->result == 0)
		hf_node_handed_over(node->machine, node_clock(server));
	else if (request->result == -ESTALE)
		hf_node_deposed(node->machine, node_clock(server));
	else
		hf_node_failed(node->machine, node_clock(server));
}

static void hear(struct server *server, struct request *request)
{
	struct node *node = &server->node;
	uint64_t now = node_clock(server);

	if (request->is_report) {
		node->must_report = request->result != 0 && request->result != -ESTALE;
		return;
	}
	switch (request->step) {
	case HF_NODE_LOOK:
	case HF_NODE_RENEW:
		hear_look(server, request);
		break;
	case HF_NODE_ASK:
		if (request->result == 0)
			hf_node_asked(node->machine, now);
		else
			hf_node_failed(node->machine, now);
		break;
	case HF_NODE_FENCE:
		hf_node_fenced(node->machine, request->result == 0, now);
		break;
	case HF_NODE_CLAIM:
		hear_claim(server, request);
		break;
	case HF_NODE_HAND_OVER:
		hear_hand_over(server, request);
		break;
	case HF_NODE_NOTHING:
		break;
	}
}

static void release(struct request *request)
{
	hf_service_row_deinit(&request->answer);
	request->is_used = false;
	if (request->server->node.request == request)
		request->server->node.request = NULL;
}

/* The command of the operator cuts the power of the other node. */
static void fence(struct request *request)
{
	struct world *world = request->server->world;
	struct server *other = &world->nodes[!request->server->index];

	request->result = rng_chance(&world->database.rng, FENCE_GOES) || world->is_calm ? 0 : -EIO;
	if (request->result < 0)
		world->disturbed_at = world->now;
	if (request->result == 0)
		world->database.is_fenced[other->index] = true;
	if (request->result == 0 && other->has_machine)
		node_crash(other, CRASH_MACHINE);
}

static void reach(struct request *request)
{
	struct server *server = request->server;
	struct world *world = server->world;
	struct rng *rng = &world->database.rng;

	request->is_answered = true;
	if (request->step == HF_NODE_FENCE && !request->is_report) {
		fence(request);
	} else if (database_is_reached(server)) {
		database_serve(request);
	} else {
		request->result = -EIO;
		hf_timer_start(&request->timer,
			       rng_chance(rng, LOST) ? rng_below(rng, 5 * MS) : world->lease_ns);
		return;
	}
	hf_timer_start(&request->timer, database_delay(world));
}

static void on_request(struct hf_timer *timer)
{
	struct request *request = hf_container_of(timer, struct request, timer);
	struct server *server = request->server;
	struct world *world = server->world;
	enum hf_node_role before;

	if (!request->is_answered) {
		request->is_held = node_is_halted(server) && !request->is_abandoned &&
				   rng_chance(&world->database.rng, LOST);
		if (request->is_held)
			hf_timer_start_at(timer, server->node.halted_until);
		else
			reach(request);
		return;
	}
	if (request->is_abandoned) {
		release(request);
		return;
	}
	if (node_is_halted(server)) {
		hf_timer_start_at(timer, server->node.halted_until);
		return;
	}
	if (!database_is_reached(server) && request->result != -EIO &&
	    rng_chance(&world->database.rng, LOST)) {
		request->result = -EIO;
		hf_timer_start(timer, world->lease_ns);
		return;
	}
	before = hf_node_role(server->node.machine);
	hear(server, request);
	decided(server, before);
	release(request);
	if (server->node.leave_by &&
	    (hf_node_role(server->node.machine) == HF_NODE_STANDBY || world->now >= server->node.leave_by))
		end_process(server);
	drive(server);
}

static struct request *new_request(struct server *server)
{
	struct node *node = &server->node;
	struct request *request = &node->requests[node->requests[0].is_used ? 1 : 0];

	if (request->is_used) {
		hf_timer_stop(&request->timer);
		release(request);
	}
	request->is_used = true;
	request->is_held = request->is_answered = request->is_abandoned = request->is_report = false;
	request->server = server;
	request->sent = node_clock(server);
	memset(&request->answer, 0, sizeof(request->answer));
	world_timer(server->world, &request->timer, on_request);
	node->request = request;
	return request;
}

static void ask_database(struct server *server, enum hf_node_step step, bool is_report)
{
	struct world *world = server->world;
	struct node *node = &server->node;
	const struct hf_service_row *seen = hf_node_seen(node->machine);
	struct request *request = new_request(server);

	request->step = step;
	request->is_report = is_report;
	snprintf(request->owner, sizeof(request->owner), "%s", hf_node_owner(node->machine));
	snprintf(request->heir, sizeof(request->heir), "%s", hf_node_heir(node->machine));
	if (step == HF_NODE_CLAIM && !is_report)
		snprintf(request->owner, sizeof(request->owner), "%s-%llu", node->name,
			 (unsigned long long)rng_next(&world->database.rng));
	request->timeline =
		(uint32_t)strtoul(step == HF_NODE_CLAIM ? seen->history : hf_node_history(node->machine),
				  NULL, 16);
	request->seen.has_lease = seen->has_lease;
	memcpy(request->seen.owner, seen->owner, sizeof(request->seen.owner));
	memcpy(request->seen.lease_owner, seen->lease_owner, sizeof(request->seen.lease_owner));
	request->seen.renewals = seen->renewals;
	hf_timer_start(&request->timer, step == HF_NODE_FENCE && !is_report
						? rng_between(&world->database.rng, 10 * MS, 2 * SECOND)
						: database_delay(world));
}

static void drive(struct server *server)
{
	struct node *node = &server->node;
	struct world *world = server->world;
	enum hf_node_step step;
	uint64_t at;

	hf_timer_stop(&node->step_timer);
	if (!node->machine || node->request)
		return;
	hf_lease_set(&node->lease, hf_node_lease_ends(node->machine), node_clock(server));
	step = hf_node_next(node->machine, &at);
	if (step == HF_NODE_NOTHING)
		return;
	at = HF_MAX(world_time(server, at), node->halted_until);
	if (at <= world->now)
		ask_database(server, step, false);
	else if (node->must_report && hf_node_role(node->machine) == HF_NODE_ACTIVE &&
		 !node_is_halted(server))
		ask_database(server, step, true);
	else
		hf_timer_start_at(&node->step_timer, at);
}

static void on_step(struct hf_timer *timer)
{
	drive(hf_container_of(timer, struct server, node.step_timer));
}

/* The process */

void node_start(struct server *server)
{
	struct node *node = &server->node;
	struct hf_node_options options = {
		.service = "service",
		.node = node->name,
		.instance = node->instance,
		.version = "1",
		.exports = EXPORTS,
		.lease_ns = server->world->lease_ns,
		.automatic = true,
		.has_fence = server->world->has_fence,
	};

	server->has_machine = node->has_process = true;
	SAY(server->world, "node %s starts", node->name);
	world_note(server->world, 23, server->index);
	if (hf_node_new(&node->machine, &options, node_clock(server)) < 0)
		abort();
	drive(server);
}

/* The database may still carry out the step that the process has sent, and no step that has not left. */
static void abandon_step(struct node *node)
{
	struct request *request = node->request;

	if (!request)
		return;
	node->request = NULL;
	request->is_abandoned = true;
	if (request->is_held) {
		hf_timer_stop(&request->timer);
		release(request);
	}
}

static void forget_process(struct server *server)
{
	struct node *node = &server->node;

	node->has_process = false;
	node->machine = hf_node_free(node->machine);
	node->lease.ends_at = 0;
	node->lag = node->halted_until = 0;
	node->halt_in = 0;
	node->events = 0;
	node->event_ns = 0;
	node->must_report = false;
	node->leave_by = 0;
	hf_timer_stop(&node->step_timer);
	hf_timer_stop(&node->event_timer);
	abandon_step(node);
}

static void lose_service(struct world *world, void *user)
{
	const bool *is_machine = user;

	if (!world->server->is_up)
		return;
	server_vanish(world, *is_machine);
	disk_crash(world, false);
}

void node_crash(struct server *server, enum crash_kind kind)
{
	struct world *world = server->world;
	bool is_machine = kind == CRASH_MACHINE;
	struct rng *rng = &world->server_rng;

	if (!server->node.has_process && (!is_machine || !server->has_machine))
		return;
	SAY(world, "node %s %s%s", server->node.name,
	    is_machine ? "THE MACHINE CRASHES" : "THE PROCESS IS KILLED",
	    server->is_running ? ", in the middle of a turn" : "");
	world_note(world, 1000 + (uint64_t)kind, server->index);
	if (is_machine)
		world->counts->machine_crashes++;
	else
		world->counts->daemon_crashes++;
	world->disturbed_at = world->now;
	node_with(server, lose_service, &is_machine);
	forget_process(server);
	if (is_machine) {
		server->boot++;
		server->has_machine = server->node.has_address = false;
	}
	hf_timer_start(&server->start_timer, is_machine ? rng_between(rng, 3 * SECOND, 30 * SECOND)
							: rng_between(rng, 100 * MS, 8 * SECOND));
}

static void end_process(struct server *server)
{
	bool is_machine = false;

	SAY(server->world, "node %s has ended by itself", server->node.name);
	node_with(server, lose_service, &is_machine);
	forget_process(server);
	hf_timer_start(&server->start_timer, rng_between(&server->world->server_rng, 100 * MS, 8 * SECOND));
}

void node_leave(struct server *server)
{
	struct node *node = &server->node;

	if (!node->machine || node_is_halted(server))
		return;
	if (hf_node_role(node->machine) != HF_NODE_ACTIVE) {
		node_crash(server, CRASH_DAEMON);
		return;
	}
	SAY(server->world, "node %s is told to stop", node->name);
	node->leave_by = server->world->now + 20 * SECOND;
	hf_node_leave(node->machine, node_clock(server));
	decided(server, HF_NODE_ACTIVE);
	drive(server);
}

/* Orders */

struct server *node_standby(struct world *world)
{
	return &world->nodes[!world->acting->index];
}

void node_move(struct world *world)
{
	struct server *server = world->acting;
	char why[HF_NODE_REASON] = "";

	if (!server->node.machine || node_is_halted(server) ||
	    hf_node_move(server->node.machine, "", node_clock(server), why, sizeof(why)) < 0) {
		SAY(world, "node %s does not move: %s", server->node.name, why);
		return;
	}
	decided(server, HF_NODE_ACTIVE);
	drive(server);
}

void node_take(struct world *world)
{
	struct server *server = node_standby(world);
	char why[HF_NODE_REASON];

	if (!server->node.machine || node_is_halted(server))
		return;
	hf_node_take(server->node.machine, node_clock(server), why, sizeof(why));
	drive(server);
}

/* A step that waits for an answer in vain is told so. */
void node_reconnect(struct server *server)
{
	struct request *request = server->node.request;

	server->node.has_no_database = false;
	if (request && request->is_answered && request->result == -EIO)
		hf_timer_start(&request->timer, MS);
}

void node_set_link(struct server *server, bool has_link)
{
	server->node.has_no_link = !has_link;
	server->node.has_no_clients = !has_link;
}

/* T7 */

bool node_is_serving(const struct server *server)
{
	return server->is_up && !server->is_stopping && !server->node.is_deposed && server->node.machine &&
	       hf_node_role(server->node.machine) == HF_NODE_ACTIVE && node_may_act(server);
}

/* Could this node serve? Not while a step waits for an answer that does not come. */
static bool is_fit(const struct server *server)
{
	const struct request *request = server->node.request;
	bool is_stuck = request && request->is_answered && request->result == -EIO;

	return server->node.machine && !node_is_halted(server) && database_is_reached(server) && !is_stuck &&
	       !server->node.has_no_clients;
}

/* A node that is cut off from its clients, and cannot see that, serves until it is moved. So does one that
 * is halted for less than its lease, also before it hears that its claim succeeded. And the operator's
 * command takes its time. */
static bool is_serving_in_vain(const struct server *server)
{
	const struct request *request = server->node.request;
	bool is_fencing = request && request->step == HF_NODE_FENCE && !request->is_report;
	bool is_claiming = request && request->step == HF_NODE_CLAIM && !request->is_report;

	return is_fencing || (server->node.machine && (is_claiming || *hf_node_owner(server->node.machine)) &&
			      !is_fit(server));
}

/* An orderly end waits for the commits that are under way, and some seconds for a store that has failed. */
static bool is_stopping_slowly(const struct server *server)
{
	return server->is_stopping && server->store &&
	       (!hf_store_is_healthy(server->store) || !hf_store_is_idle(server->store));
}

static void on_watch(struct hf_timer *timer)
{
	struct world *world = hf_container_of(timer, struct world, watch_timer);
	uint64_t bound = world->lease_ns + world->lease_ns / 3;
	bool is_hindered = world->disk.slow_until > world->now || world->disk.fails_until > world->now;
	uint64_t since;

	bound += bound / 8 + BACK_NS; /* by the slowest clock */
	for (uint32_t i = 0; i < MAX_NODES; i++) {
		struct server *server = &world->nodes[i];

		is_hindered |=
			is_serving_in_vain(server) || is_stopping_slowly(server) || server->node.event_ns;
		if (node_is_serving(server) && node_holder(world) == server)
			world->served_at = world->now;
		if (!is_fit(server))
			server->node.unfit_at = world->now;
	}
	if (is_hindered)
		world->disturbed_at = world->now;
	since = HF_MAX(world->served_at, world->disturbed_at);
	for (uint32_t i = 0; i < MAX_NODES; i++)
		if (world->now > HF_MAX(since, world->nodes[i].node.unfit_at) + bound)
			world_fail(world, "T7", "node %s could serve for %.1f s, and none does",
				   world->nodes[i].node.name,
				   (double)(world->now - HF_MAX(since, world->nodes[i].node.unfit_at)) / 1e9);
	hf_timer_start(timer, WATCH_NS);
}

/* Making and freeing */

void node_calm(struct world *world)
{
	for (uint32_t i = 0; i < MAX_NODES; i++) {
		struct node *node = &world->nodes[i].node;

		node->has_no_database = node->has_no_clients = node->has_no_link = false;
		node->halt_in = 0;
		node->event_ns = 0;
		world->nodes[i].crash_in = 0;
	}
}

void node_begin(struct world *world)
{
	for (uint32_t i = 0; i < MAX_NODES; i++)
		node_start(&world->nodes[i]);
	hf_timer_start(&world->watch_timer, WATCH_NS);
}

void node_init(struct world *world)
{
	static const uint64_t leases[] = { 1, 2, 3, 3, 3, 5, 10 };
	struct rng *rng = &world->database.rng;

	world->lease_ns = leases[rng_below(rng, HF_ARRAY_SIZE(leases))] * SECOND;
	world->has_fence = rng_chance(rng, 250);
	world->served_at = world->disturbed_at = world->now;
	world_timer(world, &world->watch_timer, on_watch);
	for (uint32_t i = 0; i < MAX_NODES; i++) {
		struct node *node = &world->nodes[i].node;

		snprintf(node->name, sizeof(node->name), "%c", "AB"[i]);
		snprintf(node->instance, sizeof(node->instance), "id-%c", "AB"[i]);
		node->drift = rng_chance(rng, 300) ? 0 : (int64_t)rng_below(rng, 200001) - 100000;
		world_timer(world, &node->step_timer, on_step);
		world_timer(world, &node->event_timer, on_events);
	}
	SAY(world, "plan    lease %.0f s, %s replica, %s fence, clocks %+lld and %+lld ppm",
	    (double)world->lease_ns / 1e9, world->database.has_synced_replica ? "synchronous" : "older",
	    world->has_fence ? "a" : "no", (long long)world->nodes[0].node.drift,
	    (long long)world->nodes[1].node.drift);
}

void node_free(struct world *world)
{
	for (uint32_t i = 0; i < MAX_NODES; i++) {
		struct node *node = &world->nodes[i].node;

		node->machine = hf_node_free(node->machine);
		for (size_t j = 0; j < HF_ARRAY_SIZE(node->requests); j++)
			hf_service_row_deinit(&node->requests[j].answer);
	}
}
