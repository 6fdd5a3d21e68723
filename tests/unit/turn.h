/* A loop that runs for as long as a test wants. */
#pragma once

#include "test.h"

#include "loop/loop.h"
#include "loop/timer.h"

static inline void turn_is_over(struct hf_timer *timer)
{
	hf_loop_stop(timer->loop);
}

/* With all that is due until then. */
static inline void turn_for(struct hf_loop *loop, uint64_t ns)
{
	struct hf_timer timer;

	hf_timer_init(&timer, loop, turn_is_over);
	hf_timer_start(&timer, ns);
	hf_loop_run(loop);
	hf_timer_stop(&timer);
}

#define turn_until(loop, condition)                   \
	do {                                          \
		int i_ = 0;                           \
                                                      \
		while (!(condition)) {                \
			assert_true(i_++ < 60000);    \
			turn_for(loop, HF_NS_PER_MS); \
		}                                     \
	} while (0)
