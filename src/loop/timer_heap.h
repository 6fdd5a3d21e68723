/* The binary heap of a loop's running timers, earliest deadline first. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "loop/timer.h"

struct hf_timer_heap {
	struct hf_timer **slots; /* slots[1] is the earliest */
	size_t n;
	size_t capacity;
	uint64_t order;
};

int hf_timer_heap_insert(struct hf_timer_heap *heap, struct hf_timer *timer);
void hf_timer_heap_remove(struct hf_timer_heap *heap, struct hf_timer *timer);
void hf_timer_heap_deinit(struct hf_timer_heap *heap);

static inline struct hf_timer *hf_timer_heap_first(const struct hf_timer_heap *heap)
{
	return heap->n ? heap->slots[1] : NULL;
}
