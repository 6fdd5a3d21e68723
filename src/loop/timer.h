/*
 * One-shot timers, embedded in their owner. Starting a running timer moves it; stopping a
 * stopped one does nothing. Timers with the same deadline fire in the order in which they were
 * started.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hf_loop;

struct hf_timer {
	struct hf_loop *loop;
	void (*fn)(struct hf_timer *timer);
	uint64_t deadline;
	uint64_t order;  /* of starting: breaks ties */
	size_t position; /* in the heap, from 1; 0: not running */
};

void hf_timer_init(struct hf_timer *timer, struct hf_loop *loop, void (*fn)(struct hf_timer *timer));
int hf_timer_start(struct hf_timer *timer, uint64_t delay_ns); /* -ENOMEM at worst */
int hf_timer_start_at(struct hf_timer *timer, uint64_t deadline_ns);
void hf_timer_stop(struct hf_timer *timer);

static inline bool hf_timer_is_running(const struct hf_timer *timer)
{
	return timer->position != 0;
}
