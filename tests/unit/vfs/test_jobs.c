#include "../test.h"

#include "../../until.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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
	struct hf_files *files;
	struct hf_file *file;
	_Atomic bool is_told;
	_Atomic bool may_end; /* the slow change */
	pthread_mutex_t gate; /* held: jobs wait before it */
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

static int set_up_for(void **state, size_t n_at_once, size_t n_spare)
{
	struct crowd *crowd = calloc(1, sizeof(*crowd));

	*state = crowd;
	pthread_mutex_init(&crowd->gate, NULL);
	for (int i = 0; i < N_JOBS; i++)
		crowd->all[i].crowd = crowd;
	return hf_loop_new(&crowd->loop) < 0 || hf_jobs_new(&crowd->jobs, n_at_once, n_spare) < 0;
}

static int set_up(void **state)
{
	return set_up_for(state, 2, 0);
}

static int set_up_spare(void **state)
{
	return set_up_for(state, 2, 2);
}

static int set_up_one_runner(void **state)
{
	return set_up_for(state, 1, 0);
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

/* Keys */

static void end_keyed(struct hf_job *job)
{
	hf_jobs_release(job->jobs, job->key);
	hf_container_of(job, struct counted, job)->has_run = true;
	hf_job_complete(job);
}

static void run_keyed(struct hf_job *job)
{
	struct crowd *crowd = hf_container_of(job, struct counted, job)->crowd;

	note_running(crowd);
	sched_yield();
	atomic_fetch_sub(&crowd->n_running, 1);
	end_keyed(job);
}

static void run_keyed_last(struct hf_job *job)
{
	struct crowd *crowd = hf_container_of(job, struct counted, job)->crowd;

	while (!crowd->is_told)
		sched_yield();
	end_keyed(job);
}

static void run_keyed_telling(struct hf_job *job)
{
	hf_container_of(job, struct counted, job)->crowd->is_told = true;
	end_keyed(job);
}

static void run_through_gate(struct hf_job *job)
{
	struct crowd *crowd = hf_container_of(job, struct counted, job)->crowd;

	pthread_mutex_lock(&crowd->gate);
	pthread_mutex_unlock(&crowd->gate);
	end_keyed(job);
}

static void submit_keyed(struct crowd *crowd, int i, uint64_t key, void (*run_it)(struct hf_job *job))
{
	crowd->all[i].job.group = NULL;
	crowd->all[i].job.key = key;
	hf_jobs_submit_open(crowd->jobs, crowd->loop, &crowd->all[i].job, NULL, run_it, done);
}

static void test_jobs_of_one_key_run_one_at_a_time(void **state)
{
	struct crowd *crowd = *state;

	for (int i = 0; i < N_JOBS; i++)
		submit_keyed(crowd, i, 7, run_keyed);
	hf_loop_run(crowd->loop);
	assert_int_equal(crowd->n_done, N_JOBS);
	assert_int_equal(crowd->most, 1);
}

static void test_a_key_holds_no_other_up(void **state)
{
	struct crowd *crowd = *state;

	submit_keyed(crowd, 0, 7, run_keyed_last);
	submit_keyed(crowd, 1, 7, run_keyed);
	submit_keyed(crowd, 2, 8, run_keyed_telling);
	crowd->n_done = N_JOBS - 3;
	hf_loop_run(crowd->loop);
	assert_true(crowd->all[1].is_done);
}

/* However many wait for it: 255 calls of one connection, and there are many connections. */
static void test_many_of_a_key_hold_no_other_up(void **state)
{
	struct crowd *crowd = *state;

	submit_keyed(crowd, 0, 7, run_keyed_last);
	for (int i = 1; i < N_JOBS - 1; i++)
		submit_keyed(crowd, i, 7, run_keyed);
	submit_keyed(crowd, N_JOBS - 1, 8, run_keyed_telling);
	hf_loop_run(crowd->loop);
	assert_int_equal(crowd->n_done, N_JOBS);
	assert_int_equal(crowd->most, 1);
}

/* Addresses */

static struct hf_addr address(uint8_t number)
{
	return (struct hf_addr){ .ip = { 10, 0, 0, number }, .family = AF_INET, .port = 1000 };
}

static void submit_for(struct crowd *crowd, int i, uint8_t number, uint64_t key,
		       void (*run_it)(struct hf_job *job))
{
	struct hf_addr from = address(number);

	crowd->all[i].job.group = NULL;
	crowd->all[i].job.key = key;
	hf_jobs_submit_open(crowd->jobs, crowd->loop, &crowd->all[i].job, &from, run_it, done);
}

/* Until the other address has had its job, the jobs that it came after are not all done. */
static void run_watching(struct hf_job *job)
{
	struct crowd *crowd = hf_container_of(job, struct counted, job)->crowd;

	if (!crowd->is_told)
		atomic_fetch_add(&crowd->n_running, 1);
	end_keyed(job);
}

/* What is to be run is kept back until all have been submitted. Then one is run at a time, by the only runner
 * or because of the key: else a runner could take a job and sleep, while the other one runs the rest. */
static void let_another_come_last(struct crowd *crowd, uint64_t key)
{
	pthread_mutex_lock(&crowd->gate);
	for (int i = 0; i < N_JOBS - 1; i++)
		submit_for(crowd, i, 1, key, i < 2 ? run_through_gate : run_watching);
	submit_for(crowd, N_JOBS - 1, 2, key, run_keyed_telling);
	pthread_mutex_unlock(&crowd->gate);
	hf_loop_run(crowd->loop);
	assert_int_equal(crowd->n_done, N_JOBS);
	assert_in_range(crowd->n_running, 0, 4);
}

static void test_many_of_an_address_hold_no_other_up(void **state)
{
	let_another_come_last(*state, 0);
}

static void test_many_of_an_address_and_a_key_hold_no_other_up(void **state)
{
	let_another_come_last(*state, 7);
}

/* Spare threads */

/* The first address's jobs have both runners and wait for the last address's. The rest of the first address's
 * jobs would spoil the count if a spare runner took them. */
static void test_slow_jobs_of_an_address_hold_no_other_up(void **state)
{
	struct crowd *crowd = *state;

	for (int i = 0; i < N_JOBS - 1; i++)
		submit_for(crowd, i, 1, 0, i < 4 ? run_keyed_last : run_watching);
	submit_for(crowd, N_JOBS - 1, 2, 0, run_keyed_telling);
	hf_loop_run(crowd->loop);
	assert_int_equal(crowd->n_done, N_JOBS);
	assert_int_equal(crowd->n_running, 0);
}

static void test_nor_do_slow_jobs_of_two_addresses(void **state)
{
	struct crowd *crowd = *state;

	for (int i = 0; i < 8; i++)
		submit_for(crowd, i, i % 2 ? 3 : 1, 0, run_keyed_last);
	for (int i = 8; i < N_JOBS - 1; i++)
		submit_for(crowd, i, 1, 0, run_watching);
	submit_for(crowd, N_JOBS - 1, 2, 0, run_keyed_telling);
	hf_loop_run(crowd->loop);
	assert_int_equal(crowd->n_done, N_JOBS);
	assert_int_equal(crowd->n_running, 0);
}

/* The second address's slow job takes a spare runner; the third address's takes the other. */
static void test_nor_does_one_that_has_a_spare_thread(void **state)
{
	struct crowd *crowd = *state;

	submit_for(crowd, 0, 1, 0, run_keyed_last);
	submit_for(crowd, 1, 1, 0, run_keyed_last);
	submit_for(crowd, 2, 2, 0, run_keyed_last);
	submit_for(crowd, 3, 2, 0, run_keyed_last);
	submit_for(crowd, 4, 3, 0, run_keyed_telling);
	crowd->n_done = N_JOBS - 5;
	hf_loop_run(crowd->loop);
	assert_true(crowd->all[4].is_done);
}

/* Yielding */

static void run_until_it_should_yield(struct hf_job *job)
{
	struct crowd *crowd = hf_container_of(job, struct counted, job)->crowd;

	atomic_fetch_add(&crowd->n_running, 1);
	while (!hf_job_should_yield(job))
		sched_yield();
	end_keyed(job);
}

/* One runner waits until it is told, by the job of the third address on the other runner. */
static void test_a_long_job_yields_to_another_address(void **state)
{
	struct crowd *crowd = *state;

	submit_for(crowd, 0, 1, 0, run_keyed_last);
	submit_for(crowd, 1, 2, 0, run_until_it_should_yield);
	while (!crowd->n_running)
		sched_yield();
	submit_for(crowd, 2, 3, 0, run_keyed_telling);
	crowd->n_done = N_JOBS - 3;
	hf_loop_run(crowd->loop);
	assert_true(crowd->all[1].is_done);
}

/* As when the server stops in the middle of it: no runner comes back for jobs that were passed over. */
static void test_waiting_does_what_was_passed_over(void **state)
{
	struct crowd *crowd = *state;

	for (int i = 0; i < N_JOBS; i++)
		submit_keyed(crowd, i, 7, run_keyed);
	hf_jobs_wait(crowd->jobs);
	for (int i = 0; i < N_JOBS; i++)
		assert_true(crowd->all[i].has_run);
	hf_loop_run(crowd->loop);
}

/* The syncer, with jobs that end when it says so */

static _Atomic int n_fsyncs;

/* In place of the C library's, for all of this program. */
int fsync(int fd)
{
	(void)fd;
	atomic_fetch_add(&n_fsyncs, 1);
	return 0;
}

static void on_synced(struct hf_sync *sync)
{
	struct counted *counted = hf_container_of(sync, struct counted, sync);

	counted->result = sync->result;
	counted->has_run = true;
	hf_job_complete(&counted->job);
}

static void leave_changed(struct counted *counted)
{
	struct crowd *crowd = counted->crowd;

	hf_link_init(&counted->sync.link);
	counted->sync.told = on_synced;
	counted->sync.files[0] = crowd->file;
	hf_syncer_leave(&crowd->volume->syncer, &counted->sync, crowd->jobs);
}

static void run_open(struct hf_job *job)
{
	struct counted *counted = hf_container_of(job, struct counted, job);

	hf_syncer_enter(&counted->crowd->volume->syncer);
	leave_changed(counted);
}

/* Comes to nothing, as if the name was there already. */
static void run_in_vain(struct hf_job *job)
{
	struct counted *counted = hf_container_of(job, struct counted, job);
	struct crowd *crowd = counted->crowd;

	hf_syncer_enter(&crowd->volume->syncer);
	counted->has_run = true;
	hf_job_complete(job);
	hf_syncer_leave(&crowd->volume->syncer, NULL, crowd->jobs);
}

/* Takes until another was told. */
static void run_long(struct hf_job *job)
{
	struct counted *counted = hf_container_of(job, struct counted, job);
	struct crowd *crowd = counted->crowd;

	hf_syncer_enter(&crowd->volume->syncer);
	atomic_fetch_add(&crowd->n_running, 1);
	while (!crowd->is_told)
		sched_yield();
	leave_changed(counted);
}

static void note_told(struct hf_sync *sync)
{
	struct counted *counted = hf_container_of(sync, struct counted, sync);

	counted->crowd->is_told = true;
	on_synced(sync);
}

/* Begins when the long one is under way. */
static void run_beside(struct hf_job *job)
{
	struct counted *counted = hf_container_of(job, struct counted, job);
	struct crowd *crowd = counted->crowd;

	while (!crowd->n_running)
		sched_yield();
	hf_syncer_enter(&crowd->volume->syncer);
	hf_link_init(&counted->sync.link);
	counted->sync.told = note_told;
	counted->sync.files[0] = crowd->file;
	hf_syncer_leave(&crowd->volume->syncer, &counted->sync, crowd->jobs);
}

static int set_up_volume_for(void **state, size_t n_at_once)
{
	char base[] = "/tmp/hf-jobs-XXXXXX";
	struct crowd *crowd;
	struct stat st;

	assert_int_equal(set_up_for(state, n_at_once, 0), 0);
	crowd = *state;
	assert_non_null(mkdtemp(base));
	assert_int_equal(hf_volume_new(&crowd->volume, base), 0);
	assert_int_equal(hf_files_new(&crowd->files, 100), 0);
	assert_int_equal(hf_files_take(crowd->files, crowd->volume, openat(crowd->volume->root, ".", O_PATH),
				       false, &crowd->file, &st),
			 0);
	rmdir(base);
	n_fsyncs = 0;
	return 0;
}

static int set_up_volume(void **state)
{
	return set_up_volume_for(state, 2);
}

static int set_up_volume_one_runner(void **state)
{
	return set_up_volume_for(state, 1);
}

static int tear_down_volume(void **state)
{
	struct crowd *crowd = *state;

	hf_jobs_wait(crowd->jobs);
	/* A thread whose job is complete may still be in the syncer, for which a server has a reference. */
	crowd->jobs = hf_jobs_free(crowd->jobs);
	hf_file_unref(crowd->file);
	hf_files_free(crowd->files);
	hf_volume_unref(crowd->volume);
	return tear_down(state);
}

static void submit_change(struct crowd *crowd, int i, uint64_t key, void (*run_it)(struct hf_job *job))
{
	crowd->all[i].job.group = &crowd->volume->syncer;
	crowd->all[i].job.key = key;
	hf_jobs_submit_open(crowd->jobs, crowd->loop, &crowd->all[i].job, NULL, run_it, done);
}

static void submit(struct crowd *crowd, int i, void (*run_it)(struct hf_job *job))
{
	submit_change(crowd, i, 0, run_it);
}

static void test_each_job_is_told_of_its_sync(void **state)
{
	struct crowd *crowd = *state;

	for (int i = 0; i < N_JOBS; i++)
		submit(crowd, i, run_open);
	hf_loop_run(crowd->loop);
	for (int i = 0; i < N_JOBS; i++)
		assert_int_equal(crowd->all[i].result, 0);
}

/* Those in the queue are followed by another, so they go together; but not all of them wait for the last. The
 * only runner is kept until all are there. */
static void test_changes_gather(void **state)
{
	struct crowd *crowd = *state;

	pthread_mutex_lock(&crowd->gate);
	for (int i = 0; i < N_JOBS; i++)
		submit(crowd, i, i == 0 ? run_through_gate : run_open);
	pthread_mutex_unlock(&crowd->gate);
	hf_loop_run(crowd->loop);
	assert_in_range(n_fsyncs, N_JOBS / 200, N_JOBS / 20);
}

static void test_who_has_nothing_to_sync_does_it_for_others(void **state)
{
	struct crowd *crowd = *state;

	for (int i = 0; i < N_JOBS; i++)
		submit(crowd, i, i % 2 ? run_in_vain : run_open);
	hf_loop_run(crowd->loop);
	assert_int_equal(crowd->n_done, N_JOBS);
}

static void test_a_long_change_holds_no_other_up(void **state)
{
	struct crowd *crowd = *state;

	submit(crowd, 0, run_long);
	submit(crowd, 1, run_beside);
	crowd->n_done = N_JOBS - 2;
	hf_loop_run(crowd->loop);
	assert_true(crowd->is_told);
}

/* Holds its key until the test lets it end. */
static void run_slow(struct hf_job *job)
{
	struct counted *counted = hf_container_of(job, struct counted, job);
	struct crowd *crowd = counted->crowd;

	hf_syncer_enter(&crowd->volume->syncer);
	atomic_fetch_add(&crowd->n_running, 1);
	while (!crowd->may_end)
		sched_yield();
	hf_jobs_release(job->jobs, job->key);
	leave_changed(counted);
}

static void run_open_keyed(struct hf_job *job)
{
	hf_jobs_release(job->jobs, job->key);
	run_open(job);
}

/* Ends its change when the gate is open. */
static void run_beside_through_gate(struct hf_job *job)
{
	struct crowd *crowd = hf_container_of(job, struct counted, job)->crowd;

	atomic_fetch_add(&crowd->n_running, 1);
	pthread_mutex_lock(&crowd->gate);
	pthread_mutex_unlock(&crowd->gate);
	hf_jobs_release(job->jobs, job->key);
	run_beside(job);
}

static void wait_for_running(struct crowd *crowd, int n)
{
	struct until until = until_begin(UNTIL_PATIENCE);

	while (crowd->n_running < n)
		assert_true(until_again(&until));
}

/* A change in the same directory as the slow one is first in the queue, but cannot run yet: a change in
 * another directory must not wait for it with its sync. */
static void test_what_waits_for_a_long_change_holds_no_other_up(void **state)
{
	struct until until = until_begin(UNTIL_PATIENCE);
	struct crowd *crowd = *state;
	bool was_told;

	pthread_mutex_lock(&crowd->gate);
	submit_change(crowd, 0, 7, run_slow);
	submit_change(crowd, 1, 8, run_beside_through_gate);
	wait_for_running(crowd, 2);
	submit_change(crowd, 2, 7, run_open_keyed);
	pthread_mutex_unlock(&crowd->gate);
	while (!crowd->is_told && until_again(&until))
		;
	was_told = crowd->is_told;
	crowd->may_end = true;
	crowd->n_done = N_JOBS - 3;
	hf_loop_run(crowd->loop);
	assert_true(was_told);
	assert_true(crowd->all[2].is_done);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_all_run_once_and_few_at_a_time, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_waiting_does_what_is_left, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_jobs_of_one_key_run_one_at_a_time, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_key_holds_no_other_up, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_many_of_a_key_hold_no_other_up, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_waiting_does_what_was_passed_over, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_many_of_an_address_hold_no_other_up, set_up_one_runner,
						tear_down),
		cmocka_unit_test_setup_teardown(test_many_of_an_address_and_a_key_hold_no_other_up, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_slow_jobs_of_an_address_hold_no_other_up, set_up_spare,
						tear_down),
		cmocka_unit_test_setup_teardown(test_nor_do_slow_jobs_of_two_addresses, set_up_spare,
						tear_down),
		cmocka_unit_test_setup_teardown(test_nor_does_one_that_has_a_spare_thread, set_up_spare,
						tear_down),
		cmocka_unit_test_setup_teardown(test_a_long_job_yields_to_another_address, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_each_job_is_told_of_its_sync, set_up_volume,
						tear_down_volume),
		cmocka_unit_test_setup_teardown(test_changes_gather, set_up_volume_one_runner,
						tear_down_volume),
		cmocka_unit_test_setup_teardown(test_who_has_nothing_to_sync_does_it_for_others,
						set_up_volume, tear_down_volume),
		cmocka_unit_test_setup_teardown(test_a_long_change_holds_no_other_up, set_up_volume,
						tear_down_volume),
		cmocka_unit_test_setup_teardown(test_what_waits_for_a_long_change_holds_no_other_up,
						set_up_volume, tear_down_volume),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
