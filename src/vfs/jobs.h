/*
 * Jobs for the files' threads: a queue, and a bounded number of works of the
 * loop's pool (loop/work.h) that empty it.
 *
 * A work that is running takes job after job, so that a busy server hands work
 * over without waking a thread; and no more than the given number of the pool's
 * threads are taken at a time, so that other users of the pool, the store
 * above all, wait for one job at most. Loops may share one hf_jobs.
 *
 * Addresses take turns (vfs/turns.h), charged for the time that their jobs take
 * from the threads. A job whose length a peer decides asks now and then whether
 * it should yield, and ends with what it has.
 *
 * A job that the kernel takes seconds for cannot yield. When every thread has been
 * at one job for 100 ms, the jobs of addresses that occupy no thread are run by
 * spare threads, one at a time for each such address. So an address that has taken
 * all threads, or waits for a dead disk with all of them, holds up its own jobs and
 * no other address's for longer than that, as long as there are spare threads.
 *
 * Jobs with the same key would only wait for each other's locks, so they are
 * run one after the other, by one thread as a rule, while others run the rest.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "loop/loop.h"
#include "vfs/turns.h"

struct hf_jobs;
struct hf_runner;

struct hf_job {
	struct hf_turn turn;
	struct hf_link link;   /* while it waits for its key */
	struct hf_list behind; /* then also: more of its address */
	struct hf_runner *runner;
	uint64_t number; /* of the job among that runner's */
	struct hf_loop *loop;
	struct hf_task task;
	struct hf_jobs *jobs;
	const void *group;
	uint64_t key;
	bool completes_itself;
	void (*run)(struct hf_job *job);  /* on a thread of the pool */
	void (*done)(struct hf_job *job); /* on the loop that submitted it; may free it */
};

/* @n_spare: threads beside @n_at_once, as above. */
int hf_jobs_new(struct hf_jobs **jobsp, size_t n_at_once, size_t n_spare);
/* To stop: when nothing is submitted any more, waits until all are complete. Their done() calls are then with
 * the loops, which must go on until they are made. Then it can be freed, before the loops. */
void hf_jobs_wait(struct hf_jobs *jobs);
struct hf_jobs *hf_jobs_free(struct hf_jobs *jobs);

HF_DEFINE_CLEANUP(struct hf_jobs *, hf_jobs_free)

/* On @loop's thread. run() and done() are always called, in this order. @from: for whom it is, as in
 * vfs/turns.h; else it is for the server itself. */
void hf_jobs_submit(struct hf_jobs *jobs, struct hf_loop *loop, struct hf_job *job,
		    void (*run)(struct hf_job *job), void (*done)(struct hf_job *job));
void hf_jobs_submit_for(struct hf_jobs *jobs, struct hf_loop *loop, struct hf_job *job,
			const struct hf_addr *from, void (*run)(struct hf_job *job),
			void (*done)(struct hf_job *job));
/* The same for one that is not over when run() returns: done() is called after hf_job_complete(), which may
 * come from any thread. The caller has set @job->group, which is compared and nothing else, NULL for none;
 * and @job->key, 0 for none. */
void hf_jobs_submit_open(struct hf_jobs *jobs, struct hf_loop *loop, struct hf_job *job,
			 const struct hf_addr *from, void (*run)(struct hf_job *job),
			 void (*done)(struct hf_job *job));
void hf_job_complete(struct hf_job *job);
/* From run() of a job with a key: what others with this key would wait for is over. */
void hf_jobs_release(struct hf_jobs *jobs, uint64_t key);

/* Will the next job be run soon, and is it of this group? For a caller that would rather not begin something
 * long before it. */
bool hf_jobs_next_is(struct hf_jobs *jobs, const void *group);

/* From run(): has the job had its slice of time, and does another address wait? */
bool hf_job_should_yield(const struct hf_job *job);
