#include "loop/timer_heap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static bool is_before(const struct hf_timer *a, const struct hf_timer *b)
{
	return a->deadline < b->deadline || (a->deadline == b->deadline && a->order < b->order);
}

static void place(struct hf_timer_heap *heap, size_t position, struct hf_timer *timer)
{
	heap->slots[position] = timer;
	timer->position = position;
}

static void sift_up(struct hf_timer_heap *heap, size_t position, struct hf_timer *timer)
{
	while (position > 1 && is_before(timer, heap->slots[position / 2])) {
		place(heap, position, heap->slots[position / 2]);
		position /= 2;
	}
	place(heap, position, timer);
}

static void sift_down(struct hf_timer_heap *heap, size_t position, struct hf_timer *timer)
{
	size_t child;

	while ((child = 2 * position) <= heap->n) {
		if (child < heap->n && is_before(heap->slots[child + 1], heap->slots[child]))
			child++;
		if (!is_before(heap->slots[child], timer))
			break;
		place(heap, position, heap->slots[child]);
		position = child;
	}
	place(heap, position, timer);
}

int hf_timer_heap_insert(struct hf_timer_heap *heap, struct hf_timer *timer)
{
	assert(timer->position == 0);
	if (heap->n + 1 >= heap->capacity) {
		size_t capacity = heap->capacity ? 2 * heap->capacity : 64;
		struct hf_timer **slots = realloc(heap->slots, capacity * sizeof(*slots));

		if (!slots)
			return -ENOMEM;
		heap->slots = slots;
		heap->capacity = capacity;
	}
	timer->order = ++heap->order;
	sift_up(heap, ++heap->n, timer);
	return 0;
}

void hf_timer_heap_remove(struct hf_timer_heap *heap, struct hf_timer *timer)
{
	size_t position = timer->position;
	struct hf_timer *last;

	assert(position >= 1 && position <= heap->n && heap->slots[position] == timer);
	last = heap->slots[heap->n--];
	timer->position = 0;
	if (last == timer)
		return;
	if (position > 1 && is_before(last, heap->slots[position / 2]))
		sift_up(heap, position, last);
	else
		sift_down(heap, position, last);
}

void hf_timer_heap_deinit(struct hf_timer_heap *heap)
{
	for (size_t i = 1; i <= heap->n; i++)
		heap->slots[i]->position = 0;
	free(heap->slots);
	*heap = (struct hf_timer_heap){ 0 };
}
