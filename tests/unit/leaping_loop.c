/*
 * A loop for tests in which nothing but time passes: no sockets, no threads.
 *
 * Its clock stands still while there is something to do, and then leaps to the next timer. So nothing is ever
 * late, however busy the machine is, and a minute is over at once. Whoever links this has no other loop.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "loop/backend.h"
#include "loop/loop.h"

#define BEGIN_NS      (UINT64_C(1000) * HF_NS_PER_S)
#define BEGIN_WALL_NS (UINT64_C(1700000000) * HF_NS_PER_S)

struct leaping_loop {
	struct hf_loop loop;
	uint64_t clock;
	uint64_t n_random;
};

static struct leaping_loop *leaping_of(struct hf_loop *loop)
{
	return hf_container_of(loop, struct leaping_loop, loop);
}

static uint64_t leaping_clock(struct hf_loop *loop)
{
	return leaping_of(loop)->clock;
}

static uint64_t leaping_wall(struct hf_loop *loop)
{
	return leaping_of(loop)->clock - BEGIN_NS + BEGIN_WALL_NS;
}

/* No two alike, and the same in every run. */
static void leaping_random(struct hf_loop *loop, void *out, size_t len)
{
	uint64_t n = ++leaping_of(loop)->n_random * UINT64_C(0x9e3779b97f4a7c15);

	for (uint8_t *p = out, *end = p + len; p < end; p++, n = n << 8 | n >> 56)
		*p = (uint8_t)n;
}

static int leaping_run(struct hf_loop *loop)
{
	struct leaping_loop *leaping = leaping_of(loop);

	for (;;) {
		struct hf_timer *first;

		hf_loop_run_posts(loop);
		hf_loop_run_timers(loop);
		hf_loop_run_deferred(loop);
		if (atomic_exchange(&loop->is_stopping, false))
			return 0;
		first = hf_timer_heap_first(&loop->timers);
		if (!first)
			abort(); /* nothing will ever happen */
		leaping->clock = HF_MAX(leaping->clock, first->deadline);
		hf_loop_new_turn(loop);
	}
}

static void leaping_wake(struct hf_loop *loop)
{
}

static void leaping_free(struct hf_loop *loop)
{
	hf_loop_drain(loop);
	hf_loop_deinit(loop);
	free(leaping_of(loop));
}

static const struct hf_loop_ops leaping_ops = {
	.free = leaping_free,
	.run = leaping_run,
	.wake = leaping_wake,
	.clock = leaping_clock,
	.wall = leaping_wall,
	.random = leaping_random,
};

int hf_loop_new(struct hf_loop **loopp)
{
	struct leaping_loop *leaping = calloc(1, sizeof(*leaping));

	if (!leaping)
		return hf_trace(-ENOMEM);
	leaping->clock = BEGIN_NS;
	hf_loop_init(&leaping->loop, &leaping_ops);
	*loopp = &leaping->loop;
	return 0;
}
