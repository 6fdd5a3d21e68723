#include "../test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macros.h"
#include "loop/loop.h"
#include "vfs/file.h"
#include "vfs/jobs.h"
#include "vfs/syncer.h"

#define N_JOBS 1000

struct counted {
	struct hf_job job;
	struct hf_sync sync;
	struct crowd *crowd;
	int result;
	bool has_run;
	bool is_done;
};

struct crowd {
	struct hf_loop *loop;
	struct hf_jobs *jobs;
	_Atomic int n_running;
	_Atomic int most;
	int n_done;
	struct hf_volume *volume;
	struct hf_file *file;
	struct counted all[N_JOBS];
};

static void note_running(struct crowd *crowd)
{
	int now = atomic_fetch_add(&crowd->n_running, 1) + 1, most = crowd->most;

	while (most < now && !atomic_compare_exchange_weak(&crowd->most, &most, now))
		;
}

static void run(struct hf_job *job)
{
	struct counted *counted = hf_container_of(job, struct counted, job);

	note_running(counted->crowd);
	assert_false(counted->has_run);
	counted->has_run = true;
	atomic_fetch_sub(&counted->crowd->n_running, 1);
}

static void done(struct hf_job *job)
{
	struct counted *counted = hf_container_of(job, struct counted, job);

	assert_true(counted->has_run && !counted->is_done);
	counted->is_done = true;
	if (++counted->crowd->n_done == N_JOBS)
		hf_loop_stop(counted->crowd->loop);
}

static int set_up(void **state)
{
	struct crowd *crowd = calloc(1, sizeof(*crowd));

	*state = crowd;
	for (int i = 0; i < N_JOBS; i++)
		crowd->all[i].crowd = crowd;
	return hf_loop_new(&crowd->loop) < 0 || hf_jobs_new(&crowd->jobs, 2) < 0;
}

static int tear_down(void **state)
{
	struct crowd *crowd = *state;

	hf_jobs_free(crowd->jobs);
	hf_loop_free(crowd->loop);
	free(crowd);
	return 0;
}

static void test_all_run_once_and_few_at_a_time(void **state)
{
	struct crowd *crowd = *state;

	for (int i = 0; i < N_JOBS; i++)
		hf_jobs_submit(crowd->jobs, crowd->loop, &crowd->all[i].job, run, done);
	hf_loop_run(crowd->loop);
	assert_int_equal(crowd->n_done, N_JOBS);
	assert_in_range(crowd->most, 1, 2);
	hf_jobs_wait(crowd->jobs);
}

static void test_waiting_does_what_is_left(void **state)
{
	struct crowd *crowd = *state;

	for (int i = 0; i < N_JOBS; i++)
		hf_jobs_submit(crowd->jobs, crowd->loop, &crowd->all[i].job, run, done);
	hf_jobs_wait(crowd->jobs); /* the loop does not run */
	for (int i = 0; i < N_JOBS; i++)
		assert_true(crowd->all[i].has_run);
	hf_loop_run(crowd->loop);
	assert_int_equal(crowd->n_done, N_JOBS);
}

/* The syncer, with jobs that end when it says so */

static void on_synced(struct hf_sync *sync)
{
	struct counted *counted = hf_container_of(sync, struct counted, sync);

	counted->result = sync->result;
	counted->has_run = true;
	hf_job_complete(&counted->job);
}

static void run_open(struct hf_job *job)
{
	struct counted *counted = hf_container_of(job, struct counted, job);

	hf_link_init(&counted->sync.link);
	counted->sync.told = on_synced;
	counted->sync.files[0] = counted->crowd->file;
	hf_syncer_submit(&counted->crowd->volume->syncer, &counted->sync);
}

static void test_everybody_is_told_of_his_sync(void **state)
{
	struct crowd *crowd = *state;
	char base[] = "/tmp/hf-jobs-XXXXXX";
	struct hf_files *files;
	struct stat st;

	assert_non_null(mkdtemp(base));
	assert_int_equal(hf_volume_new(&crowd->volume, base), 0);
	assert_int_equal(hf_files_new(&files, 100), 0);
	assert_int_equal(hf_files_take(files, crowd->volume, openat(crowd->volume->root, ".", O_PATH),
				       &crowd->file, &st),
			 0);
	for (int i = 0; i < N_JOBS; i++)
		hf_jobs_submit_open(crowd->jobs, crowd->loop, &crowd->all[i].job, run_open, done);
	hf_loop_run(crowd->loop);
	for (int i = 0; i < N_JOBS; i++)
		assert_int_equal(crowd->all[i].result, 0);
	hf_jobs_wait(crowd->jobs);
	hf_file_unref(crowd->file);
	hf_files_free(files);
	hf_volume_unref(crowd->volume);
	rmdir(base);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_all_run_once_and_few_at_a_time, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_waiting_does_what_is_left, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_everybody_is_told_of_his_sync, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
