/*
 * Waiting awake, for a moment. Waking a sleeping loop takes longer than serving most calls. If
 * waits are short, because a client sends its next call as soon as it has its reply, the loop
 * asks for events again and again for UV_LINGER_NS before it sleeps.
 *
 * The cost is bounded by the benefit. It begins after several short waits, and ends when more
 * than one wait in five is long. A loop with less than about 30,000 calls a second always
 * sleeps.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define UV_LINGER_NS UINT64_C(20000)

struct uv_linger {
	uv_idle_t idle; /* while it is active, libuv asks for events and does not wait */
	bool is_useful; /* there is a processor for the program that the loop waits for */
	bool is_on;
	bool has_served;      /* in this turn */
	unsigned int score;   /* how short the last waits were */
	uint64_t quiet_since; /* the end of the last turn in which anything came */
};

void uv_linger_init(struct uv_linger *linger, uv_loop_t *loop);
/* The first event of a turn came that the loop waited for. */
void uv_linger_judge(struct uv_linger *linger, uint64_t now);
/* Before libuv waits; @now is read after all work of this turn. */
void uv_linger_or_sleep(struct uv_linger *linger, uint64_t now);
