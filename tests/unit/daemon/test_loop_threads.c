#include "../test.h"

#include "base/macros.h"
#include "daemon/loop_threads.h"
#include "loop/loop.h"

/* A task that goes from loop to loop. */
struct traveller {
	struct hf_task task;
	struct hf_loop *const *next;
	size_t n_left;
};

static void travel(struct hf_task *task)
{
	struct traveller *traveller = hf_container_of(task, struct traveller, task);

	if (traveller->n_left-- > 1)
		hf_loop_post(*++traveller->next, task);
}

/* A call that ends tells its repetition on another loop, whichever was drained before. */
static void test_drain_follows_posts(void **state)
{
	struct hf_loop_threads *threads;
	struct hf_loop *home;

	assert_int_equal(hf_loop_new(&home), 0);
	assert_int_equal(hf_loop_threads_new(&threads, 2), 0);
	struct hf_loop *const way[] = {
		home, hf_loop_threads_loop(threads, 1), hf_loop_threads_loop(threads, 0),
		home, hf_loop_threads_loop(threads, 0), hf_loop_threads_loop(threads, 1)
	};
	struct traveller traveller = { .next = way, .n_left = HF_ARRAY_SIZE(way) };

	hf_task_init(&traveller.task, travel);
	hf_loop_post(home, &traveller.task);
	hf_loop_threads_drain(threads, home);
	assert_int_equal(traveller.n_left, 0);
	hf_loop_threads_free(threads);
	hf_loop_free(home);
}

static void test_drain_of_nothing(void **state)
{
	struct hf_loop_threads *threads;
	struct hf_loop *home;

	assert_int_equal(hf_loop_new(&home), 0);
	assert_int_equal(hf_loop_threads_new(&threads, 0), 0);
	hf_loop_threads_drain(threads, home);
	hf_loop_threads_free(threads);
	hf_loop_free(home);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_drain_follows_posts),
		cmocka_unit_test(test_drain_of_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
