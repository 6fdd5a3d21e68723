/* Should the loop wait awake? It depends on how long the last waits were. */
#include "loop/uv_linger.h"

#define MOST       16 /* short waits that are remembered */
#define ENOUGH     8
#define ONE_UNDOES 4 /* short waits that one long wait undoes */

static void on_idle(uv_idle_t *handle)
{
}

void uv_linger_init(struct uv_linger *linger, uv_loop_t *loop)
{
	*linger = (struct uv_linger){ .is_useful = uv_available_parallelism() > 1 };
	uv_idle_init(loop, &linger->idle);
}

void uv_linger_judge(struct uv_linger *linger, uint64_t now)
{
	linger->has_served = true;
	if (now - linger->quiet_since > UV_LINGER_NS)
		linger->score = linger->score > ONE_UNDOES ? linger->score - ONE_UNDOES : 0;
	else if (linger->score < MOST)
		linger->score++;
}

void uv_linger_or_sleep(struct uv_linger *linger, uint64_t now)
{
	bool is_on;

	if (linger->has_served)
		linger->quiet_since = now;
	linger->has_served = false;
	is_on = linger->is_useful && linger->score >= ENOUGH && now - linger->quiet_since < UV_LINGER_NS;
	if (is_on == linger->is_on)
		return;
	linger->is_on = is_on;
	if (is_on)
		uv_idle_start(&linger->idle, on_idle);
	else
		uv_idle_stop(&linger->idle);
}
