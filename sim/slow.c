/*
 * Writes of the store that take seconds, while everything else goes on: more calls come, clients connect and
 * ask again, or die and say so, and the server is restarted.
 */
#include "sim.h"

#define CHANCE  300 /* in a thousand schedules */
#define LONGEST (45 * SECOND)

/* How long this write takes; 0: no longer than others. */
uint64_t slow_write(struct world *world)
{
	struct slow *slow = &world->slow;
	bool is_slow = slow->is_next;

	if (world->is_calm || omits(world, OMIT_SLOW_DISK))
		return 0;
	slow->is_next = false;
	if (!is_slow && !(slow->n_of_1000 && rng_chance(&slow->rng, slow->n_of_1000)))
		return 0;
	world->counts->stalls++;
	return rng_between(&slow->rng, 1 * SECOND, LONGEST);
}

void slow_init(struct world *world)
{
	struct slow *slow = &world->slow;

	rng_init(&slow->rng, world->options.seed, 7);
	if (rng_chance(&slow->rng, CHANCE))
		slow->n_of_1000 = (unsigned int)rng_between(&slow->rng, 10, 150);
}
