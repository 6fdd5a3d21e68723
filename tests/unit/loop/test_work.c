#include "../test.h"

#include <pthread.h>
#include <unistd.h>

#include "base/macros.h"
#include "loop/loop.h"
#include "loop/work.h"

struct job {
	struct hf_work work;
	pthread_t thread;
	int n_run;
	int n_done;
	int gate[2]; /* run() waits until the test writes here; -1: it does not */
};

static void run(struct hf_work *work)
{
	struct job *job = hf_container_of(work, struct job, work);
	char c;

	job->thread = pthread_self();
	if (job->gate[0] >= 0)
		assert_int_equal(read(job->gate[0], &c, 1), 1);
	job->n_run++;
}

static void done(struct hf_work *work)
{
	struct job *job = hf_container_of(work, struct job, work);

	assert_false(hf_work_is_running(work));
	assert_int_equal(job->n_run, job->n_done + 1);
	job->n_done++;
	if (job->n_done < 3)
		assert_int_equal(hf_work_submit(work->loop, work, run, done), 0); /* again, from here */
	else
		hf_loop_stop(work->loop);
}

static void test_runs_elsewhere_and_ends_here(void **state)
{
	struct job job = { .gate = { -1, -1 } };
	struct hf_loop *loop;

	assert_int_equal(hf_loop_new(&loop), 0);
	assert_int_equal(hf_work_submit(loop, &job.work, run, done), 0);
	assert_true(hf_work_is_running(&job.work));
	assert_int_equal(hf_loop_run(loop), 0);
	assert_int_equal(job.n_done, 3);
	assert_false(pthread_equal(job.thread, pthread_self()));
	hf_loop_free(loop);
}

/* Cancelled while it runs: cancel waits for it. Those still in the queue never run. */
static void test_cancel(void **state)
{
	struct job jobs[32] = { 0 };
	struct hf_loop *loop;
	int n_run = 0;

	assert_int_equal(hf_loop_new(&loop), 0);
	for (size_t i = 0; i < HF_ARRAY_SIZE(jobs); i++) {
		assert_int_equal(pipe(jobs[i].gate), 0);
		assert_int_equal(hf_work_submit(loop, &jobs[i].work, run, done), 0);
	}
	for (size_t i = HF_ARRAY_SIZE(jobs); i-- > 0;) {
		assert_int_equal(write(jobs[i].gate[1], "x", 1), 1);
		hf_work_cancel(&jobs[i].work);
		assert_false(hf_work_is_running(&jobs[i].work));
		n_run += jobs[i].n_run;
	}
	hf_work_cancel(&jobs[0].work); /* idle: nothing happens */
	hf_loop_free(loop);
	assert_true(n_run < (int)HF_ARRAY_SIZE(jobs)); /* the pool has fewer threads */
	for (size_t i = 0; i < HF_ARRAY_SIZE(jobs); i++) {
		assert_int_equal(jobs[i].n_done, 0);
		close(jobs[i].gate[0]);
		close(jobs[i].gate[1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_runs_elsewhere_and_ends_here),
		cmocka_unit_test(test_cancel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
