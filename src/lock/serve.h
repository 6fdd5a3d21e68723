/* Who gets its lock when something was given back */
#pragma once

#include "lock/internal.h"

/* Somebody may be able to run anywhere. */
void hf_serve_touch_all(struct hf_locks *locks);
/* Grants whatever can run in all touched files. Each operation that gave something back ends with it. */
HF_COLD void hf_serve_touched(struct hf_locks *locks);
static inline void hf_serve_waiters(struct hf_locks *locks)
{
	if (HF_UNLIKELY(!hf_list_is_empty(&locks->dirty)))
		hf_serve_touched(locks);
}
