/* The heap against the plainest model there is: a search of all. */
#include "../test.h"

#include "loop/timer_heap.h"

#define N 300

static uint32_t seed = 1;

static uint32_t below(uint32_t n)
{
	seed = seed * 1664525 + 1013904223;
	return (uint32_t)(((uint64_t)(seed >> 4) * n) >> 28);
}

static struct hf_timer *earliest(struct hf_timer timers[N])
{
	struct hf_timer *best = NULL;

	for (int i = 0; i < N; i++) {
		struct hf_timer *t = &timers[i];

		if (t->position && (!best || t->deadline < best->deadline ||
				    (t->deadline == best->deadline && t->order < best->order)))
			best = t;
	}
	return best;
}

static void test_model(void **state)
{
	struct hf_timer timers[N] = { 0 };
	struct hf_timer_heap heap = { 0 };
	size_t n = 0;

	for (int step = 0; step < 20000; step++) {
		struct hf_timer *t = &timers[below(N)];
		uint32_t what = below(step % 2000 < 1000 ? 5 : 3); /* grows, shrinks */

		if (t->position) {
			if (what < 2) {
				hf_timer_heap_remove(&heap, t);
				assert_int_equal(t->position, 0);
				n--;
			}
		} else if (what >= 1) {
			t->deadline = below(100); /* many ties */
			assert_int_equal(hf_timer_heap_insert(&heap, t), 0);
			n++;
		}
		assert_int_equal(heap.n, n);
		assert_ptr_equal(hf_timer_heap_first(&heap), earliest(timers));
	}
	/* drained, they come in order, ties in the order of insertion */
	for (struct hf_timer *t, *last = NULL; (t = hf_timer_heap_first(&heap)); last = t) {
		hf_timer_heap_remove(&heap, t);
		if (last)
			assert_true(last->deadline < t->deadline ||
				    (last->deadline == t->deadline && last->order < t->order));
	}
	hf_timer_heap_deinit(&heap);
}

static void test_deinit_stops(void **state)
{
	struct hf_timer timers[3] = { 0 };
	struct hf_timer_heap heap = { 0 };

	for (int i = 0; i < 3; i++)
		assert_int_equal(hf_timer_heap_insert(&heap, &timers[i]), 0);
	hf_timer_heap_deinit(&heap);
	for (int i = 0; i < 3; i++)
		assert_false(hf_timer_is_running(&timers[i]));
	assert_null(hf_timer_heap_first(&heap));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_model),
					    cmocka_unit_test(test_deinit_stops) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
