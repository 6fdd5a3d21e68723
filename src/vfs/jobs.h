/*
 * Jobs for the file workers: a queue, and a bounded number of works of the loop's pool
 * (loop/work.h) that empty it.
 *
 * A running work takes job after job, so a busy server hands jobs over without waking a thread.
 * At most the given number of the pool's threads are used at a time. So other users of the pool,
 * above all the store, wait for one job at most. Loops may share one hf_jobs.
 *
 * Addresses alternate (vfs/client_queue.h). Each is charged for the time that its jobs take from the
 * threads. A job whose length a peer decides asks now and then whether it should yield, and
 * then ends with what it has.
 *
 * A job that is seconds long in the kernel cannot yield. When every thread has been at one job
 * for 100 ms, spare threads run the jobs of addresses that occupy no thread, one at a time for
 * each such address. So an address that has taken all threads, or waits for a dead disk with
 * all of them, delays other addresses by no more than that, as long as there are spare threads.
 *
 * Jobs with the same key would only wait for each other's locks. So they run one after the
 * other, as a rule on one thread, while other threads run the rest.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "loop/loop.h"
#include "vfs/client_queue.h"

struct hf_jobs;
struct hf_runner;

struct hf_job {
	struct hf_client_queue_entry entry;
	struct hf_link link;   /* while it waits for its key */
	struct hf_list behind; /* and then the other jobs of its address */
	struct hf_runner *runner;
	uint64_t number; /* of this job among those of its runner */
	struct hf_loop *loop;
	struct hf_task task;
	struct hf_jobs *jobs;
	const void *group;
	uint64_t key;
	bool completes_itself;
	void (*run)(struct hf_job *job);  /* on a thread of the pool */
	void (*done)(struct hf_job *job); /* on the loop that submitted it; may free it */
};

/* @n_spare: spare threads beside @n_at_once. */
int hf_jobs_new(struct hf_jobs **jobsp, size_t n_at_once, size_t n_spare);
/* For the end, when nothing is submitted any more: waits until all jobs are complete. The loops must still
 * run until they have made all done() calls. Free it after that, before the loops. */
void hf_jobs_wait(struct hf_jobs *jobs);
struct hf_jobs *hf_jobs_free(struct hf_jobs *jobs);

HF_DEFINE_CLEANUP(struct hf_jobs *, hf_jobs_free)

/* On @loop's thread. run() and done() are always called, in this order. @from: the address to charge, as in
 * vfs/client_queue.h; hf_jobs_submit() charges the server itself. */
void hf_jobs_submit(struct hf_jobs *jobs, struct hf_loop *loop, struct hf_job *job,
		    void (*run)(struct hf_job *job), void (*done)(struct hf_job *job));
void hf_jobs_submit_for(struct hf_jobs *jobs, struct hf_loop *loop, struct hf_job *job,
			const struct hf_addr *from, void (*run)(struct hf_job *job),
			void (*done)(struct hf_job *job));
/* The same for a job that has not ended when run() returns: done() is called after hf_job_complete(), which
 * any thread may call. The caller has set @job->group, which is only compared, NULL for none; and @job->key,
 * 0 for none. */
void hf_jobs_submit_open(struct hf_jobs *jobs, struct hf_loop *loop, struct hf_job *job,
			 const struct hf_addr *from, void (*run)(struct hf_job *job),
			 void (*done)(struct hf_job *job));
void hf_job_complete(struct hf_job *job);
/* From run() of a job with a key: other jobs with this key need not wait any longer. */
void hf_jobs_release(struct hf_jobs *jobs, uint64_t key);

/* Will the next job run soon, and is it of this group? A job that waits for its key is not the next: the job
 * that has the key may take long. For a caller that would otherwise begin something long before it. */
bool hf_jobs_next_is(struct hf_jobs *jobs, const void *group);

/* From run(): has the job had its slice of time, and does another address wait? */
bool hf_job_should_yield(const struct hf_job *job);
