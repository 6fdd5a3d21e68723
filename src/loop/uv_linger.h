/*
 * To wait awake, for a moment. A loop that sleeps has to be woken, which takes
 * longer than to serve most calls. Where waits are short, because a client sends
 * its next call as soon as it has its answer, the loop asks for events again and
 * again for UV_LINGER_NS before it sleeps.
 *
 * What that costs is bounded by what it brings: it begins after several short
 * waits, and ends where more than one in five is a long one. A loop that is
 * called less than some 30,000 times a second sleeps as ever.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define UV_LINGER_NS UINT64_C(20000)

struct uv_linger {
	uv_idle_t idle; /* while it is active, libuv asks for events and does not wait */
	bool is_useful; /* whoever we wait for has a processor to run on */
	bool is_on;
	bool has_served;      /* in this turn */
	unsigned int score;   /* how short the last waits were */
	uint64_t quiet_since; /* the end of the last turn in which anything came */
};

void uv_linger_init(struct uv_linger *linger, uv_loop_t *loop);
/* The first thing of a turn came that was waited for. */
void uv_linger_judge(struct uv_linger *linger, uint64_t now);
/* Before libuv waits; @now is read after all work of this turn. */
void uv_linger_or_sleep(struct uv_linger *linger, uint64_t now);
