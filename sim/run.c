/* One schedule, from its seed to its verdict. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "sim.h"

#define MAX_TIMERS 16384
#define MAX_STEPS  400000 /* a schedule has a few thousand */

static void op_free(struct hf_loop *loop)
{
}

static const struct hf_loop_ops outside_ops = { .free = op_free };

/* An assertion of the product that fails ends the schedule, not the program. */
static sigjmp_buf broken;
static volatile sig_atomic_t broken_by;

static void on_broken(int signum)
{
	broken_by = signum;
	siglongjmp(broken, 1);
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_broken, .sa_flags = SA_NODEFER };

	sigaction(SIGABRT, &action, NULL);
#ifndef __SANITIZE_ADDRESS__
	sigaction(SIGSEGV, &action, NULL);
#endif
}

static void world_init(struct world *world, const struct sim_options *options, struct sim_counts *counts)
{
	uint64_t seed = options->seed;

	node_free(world);
	/* The records of the disk are not touched before they are used. */
	memset(world, 0, offsetof(struct world, disk));
	disk_init(world);
	memset((char *)world + offsetof(struct world, disk) + sizeof(world->disk), 0,
	       sizeof(*world) - offsetof(struct world, disk) - sizeof(world->disk));
	world->options = *options;
	world->counts = counts;
	rng_init(&world->plan_rng, seed, 1);
	rng_init(&world->net_rng, seed, 2);
	rng_init(&world->disk_rng, seed, 3);
	rng_init(&world->server_rng, seed, 4);
	rng_init(&world->rogue_rng, seed, 5);
	hf_loop_init(&world->outside, &outside_ops);
	world->outside.timers.slots = sim_alloc_head((MAX_TIMERS + 1) * sizeof(struct hf_timer *), 0);
	world->outside.timers.capacity = MAX_TIMERS;
	world->now = world->outside.now = 1000 * SECOND;
	hf_list_init(&world->conns);
	world->n_slots = 10;
	world->next_xid = 1000;
	world->next_port = 700;
	for (uint8_t i = 0; i < 2; i++)
		world->server_addrs[i] =
			(struct hf_addr){ .family = AF_INET, .ip = { 10, 0, 1, (uint8_t)(i + 1) } };
	server_init(world);
	if (options->n_acts)
		sequence_make(world);
	else
		plan_make(world);
}

static bool is_over(const struct world *world)
{
	return world->has_failed || world->n_steps >= MAX_STEPS ||
	       (world->options.n_steps && world->n_steps >= world->options.n_steps);
}

static void play_schedule(struct world *world)
{
	uint64_t until = world->now + world->knobs.trouble_ns;

	if (world->options.is_cluster)
		node_begin(world);
	else
		server_start(world);
	while (!is_over(world) && world->now < until)
		world_step(world);
}

/* False: it means nothing. */
static bool play(struct world *world)
{
	if (!world->options.n_acts)
		play_schedule(world);
	else if (!sequence_play(world))
		return false;
	world->n_trouble = world->n_steps;
	if (!world->has_failed)
		rest_run(world);
	if (!world->has_failed && world->n_steps >= MAX_STEPS)
		world_fail(world, "REST", "there is no end");
	return true;
}

void sim_run(const struct sim_options *options, struct sim_result *result)
{
	static struct world *world; /* too large for the stack, and the same for all */
	static bool is_ready;

	if (!is_ready) {
		world = calloc(1, sizeof(*world));
		catch_signals();
		is_ready = true;
	}
	*result = (struct sim_result){ 0 };
	for (uint32_t i = 0; i < MAX_NODES; i++)
		sim_arena_kill(i);
	sim_outside_reset();
	if (sigsetjmp(broken, 0) == 0) {
		world_init(world, options, &result->counts);
		result->is_void = !play(world);
	} else {
		sim_arena_leave();
		world_fail(world, "CRASH", "the server was ended by signal %d", (int)broken_by);
	}
	result->counts.schedules = 1;
	result->counts.virtual_ns = world->now - 1000 * SECOND;
	result->counts.violations = world->has_failed;
	result->digest = world->digest;
	result->has_failed = world->has_failed;
	memcpy(result->rule, world->rule, sizeof(result->rule));
	memcpy(result->what, world->what, sizeof(result->what));
	result->n_faults = world->n_faults;
	result->n_hosts = world->n_hosts;
	result->n_steps = world->n_trouble;
}
