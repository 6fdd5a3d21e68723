/*
 * Programs that change a part of a lock: they downgrade or unlock it. The server must store a downgrade
 * before it answers. So just then the store is slow or fails, the whole host dies, or the program goes on
 * without the reply.
 */
#include "sim.h"

#define CHANCE       500 /* in a thousand hosts */
#define ACTS         350 /* of the acts of its programs */
#define STALLS       250 /* of these: the next write is slow, */
#define FAILURES     60  /* or the store fails, */
#define DEATHS       30  /* or the host dies soon */
#define LATEST_DEATH (2 * SECOND)
#define SOONEST_BOOT (5 * SECOND) /* when no datagram from before the crash is under way any more */
#define LATEST_BOOT  (9 * SECOND)

/* The n-th run of units that it has in one mode. */
static bool find_run(const struct proc *proc, uint64_t n, struct span *span)
{
	for (uint8_t file = 0; file < MAX_FILES; file++)
		for (uint8_t unit = 0; unit < N_UNITS; unit++) {
			const uint8_t *has = proc->own->has[file];

			if (!has[unit] || (unit && has[unit - 1] == has[unit]) || n--)
				continue;
			*span = (struct span){ .file = file, .first = unit, .last = unit, .mode = has[unit] };
			while (span->last + 1 < N_UNITS && has[span->last + 1] == has[unit])
				span->last++;
			return true;
		}
	return false;
}

void part_narrow(struct rng *rng, struct span *span)
{
	span->first = (uint8_t)rng_between(rng, span->first, span->last);
	span->last = (uint8_t)rng_between(rng, span->first, span->last);
}

static void make_trouble(struct proc *proc)
{
	struct host *host = proc->host;
	struct world *world = host->world;
	struct rng *rng = &host->part_rng;

	if (world->is_calm)
		return;
	if (rng_chance(rng, STALLS))
		world->slow.is_next = true;
	if (rng_chance(rng, FAILURES))
		world->disk.fails_until =
			HF_MAX(world->disk.fails_until, world->now + rng_between(rng, MS, 2 * SECOND));
	if (rng_chance(rng, DEATHS))
		hf_timer_start(&proc->death_timer, rng_below(rng, LATEST_DEATH));
}

static void on_death(struct hf_timer *timer)
{
	struct proc *proc = hf_container_of(timer, struct proc, death_timer);

	if (!proc->host->world->is_calm)
		host_die(proc->host, false, rng_between(&proc->host->part_rng, SOONEST_BOOT, LATEST_BOOT));
}

bool part_act(struct proc *proc)
{
	struct host *host = proc->host;
	struct rng *rng = &host->part_rng;
	struct span span;

	if (!host->changes_parts || !rng_chance(rng, ACTS) || !find_run(proc, rng_below(rng, 4), &span))
		return false;
	part_narrow(rng, &span);
	if (span.mode == HF_LOCK_EXCLUSIVE && rng_chance(rng, 650)) {
		span.mode = HF_LOCK_SHARED;
		make_trouble(proc);
		proc_lock(proc, &span, rng_chance(rng, 300));
		return true;
	}
	make_trouble(proc);
	proc_unlock(proc, &span);
	return true;
}

void part_init(struct host *host)
{
	rng_init(&host->part_rng, host->world->options.seed, 300 + host->index);
	host->changes_parts = rng_chance(&host->part_rng, CHANCE) && !omits(host->world, OMIT_PARTS);
}

void part_proc_init(struct proc *proc)
{
	world_timer(proc->host->world, &proc->death_timer, on_death);
}
