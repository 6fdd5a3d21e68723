/*
 * How many steps of searches may one address cause?
 *
 * A request that must wait causes a search of the graph of waiters (deadlock.c), and
 * a release causes a search for waiters that can run (serve.c). A peer can arrange
 * that one message costs thousands of steps, and repeat it. So the engine counts
 * steps and charges them to the client's group and to all groups together. The
 * charge decays: a group has RATE steps a second and CAP at once, all groups
 * together twice as much. A step takes 10 to 50 ns. So all groups together have at
 * most a tenth of one core, and one turn of the loop, in which the clock does not
 * advance, costs at most about 20 ms.
 *
 * A search that is cut off says so, and the request is refused: no request waits
 * unless it is known not to wait for itself. Each request has FREE steps, whatever
 * was charged before: about what the request costs anyway. So a short queue works
 * also while other clients have used up everything.
 */
#include "lock/steps.h"

#define RATE        (UINT64_C(1) << 20) /* a second */
#define CAP         HF_STEPS_OF_A_GROUP
#define N_PARTS     2 /* all groups together have the steps of so many */
#define FREE        256
#define NS_PER_STEP (UINT64_C(1000000000) / RATE)

static uint64_t left_of(struct hf_lock_steps *steps, uint64_t now, unsigned int n_parts)
{
	uint64_t forgotten = now > steps->at ? (now - steps->at) / NS_PER_STEP * n_parts : 0;

	if (now == 0 || forgotten >= steps->spent) {
		steps->spent = 0;
		steps->at = now;
	} else if (forgotten) {
		steps->spent -= forgotten;
		steps->at = now;
	}
	return steps->spent < n_parts * CAP ? n_parts * CAP - steps->spent : 0;
}

static uint64_t left(struct hf_locks *locks, struct hf_lock_client *client, uint64_t now)
{
	uint64_t of_all = left_of(&locks->steps, now, N_PARTS);

	return client->group == &locks->alone ? of_all
					      : HF_MIN(of_all, left_of(&client->group->steps, now, 1));
}

uint64_t hf_steps_left(struct hf_locks *locks, struct hf_lock_client *client, uint64_t now)
{
	return HF_MAX(left(locks, client, now), (uint64_t)FREE);
}

bool hf_steps_are_spent(struct hf_locks *locks, struct hf_lock_client *client, uint64_t now)
{
	return left(locks, client, now) < FREE;
}

uint64_t hf_steps_spent(const struct hf_lock_group *group, uint64_t now)
{
	struct hf_lock_steps steps = group->steps;

	(void)left_of(&steps, now, 1);
	return steps.spent;
}

uint64_t hf_lock_take_steps(struct hf_locks *locks)
{
	uint64_t n = locks->n_charged;

	locks->n_charged = 0;
	return n;
}

void hf_steps_charge_some(struct hf_locks *locks, struct hf_lock_client *client)
{
	if (client) {
		client->group->steps.spent += locks->n_steps;
		locks->steps.spent += locks->n_steps;
		locks->n_charged += locks->n_steps;
	}
	locks->n_steps = 0;
}
