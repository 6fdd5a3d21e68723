/* A lock or waiter went away: which waiters get their lock now? */
#pragma once

#include "lock/internal.h"

/* Touches all files with waiters. */
void hf_serve_touch_all(struct hf_locks *locks);
/* Grants the waiters of touched files that can run. Each operation that removes something ends with it. */
HF_COLD void hf_serve_touched(struct hf_locks *locks);
static inline void hf_serve_waiters(struct hf_locks *locks)
{
	if (HF_UNLIKELY(!hf_list_is_empty(&locks->dirty)))
		hf_serve_touched(locks);
}
