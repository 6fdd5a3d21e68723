#include "vfs/syncer.h"

#include <errno.h>
#include <time.h>

#include "base/macros.h"
#include "vfs/file.h"
#include "vfs/jobs.h"

#define MAX_DISTINCT    64 /* synced files that one round remembers; others are synced again, which is cheap */
#define MAX_PASSED      128 /* after that many, sync even if more changes are expected */
#define PATIENCE_NS     300000
#define MAX_PATIENCE_NS 2000000
#define NS_PER_S        UINT64_C(1000000000)

struct round {
	size_t n;
	struct {
		const struct hf_file *file;
		int result;
	} done[MAX_DISTINCT];
};

static int sync_once(struct round *round, struct hf_file *file)
{
	int r;

	for (size_t i = 0; i < round->n; i++)
		if (round->done[i].file == file)
			return round->done[i].result;
	r = hf_file_sync(file);
	if (round->n < MAX_DISTINCT) {
		round->done[round->n].file = file;
		round->done[round->n++].result = r;
	}
	return r;
}

/* Syncs for all changes that left before the round began; returns their number. By their references the
 * files stay open. */
static size_t run_round(struct hf_list *batch)
{
	struct round round = { 0 };
	struct hf_link *link;
	size_t n = 0;

	hf_list_for_each(each, batch) {
		struct hf_sync *sync = hf_list_entry(each, struct hf_sync, link);

		sync->result = 0;
		for (size_t i = 0; i < HF_SYNC_FILES && sync->result == 0; i++)
			if (sync->files[i])
				sync->result = sync_once(&round, sync->files[i]);
	}
	while ((link = hf_list_pop_front(batch))) {
		struct hf_sync *sync = hf_list_entry(link, struct hf_sync, link);

		sync->told(sync);
		/* @sync may be gone here */
		n++;
	}
	return n;
}

/* All under the lock */

/* Looks at the queue under the syncer's lock: a queued job enters later, so it will see what waits. */
static bool is_time(struct hf_syncer *syncer, struct hf_jobs *jobs)
{
	if (hf_list_is_empty(&syncer->waiting) || syncer->is_busy)
		return false;
	return syncer->n_passed >= MAX_PASSED || !hf_jobs_next_is(jobs, syncer);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	/* Measures the disk and the waiting threads only, so a simulated clock cannot replace it. */
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* A change that takes longer, such as removing a huge file, does not delay the others. */
static void wait_for_others(struct hf_syncer *syncer)
{
	uint64_t end = now_ns() + HF_MIN(PATIENCE_NS + syncer->last_took / 4, MAX_PATIENCE_NS);
	struct timespec until = { .tv_sec = (time_t)(end / NS_PER_S), .tv_nsec = (long)(end % NS_PER_S) };
	int r = 0;

	while ((syncer->n_inside || syncer->n_due) && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&syncer->has_left, &syncer->lock, &until);
	syncer->n_due = 0;
}

static void sync_waiting(struct hf_syncer *syncer)
{
	struct hf_list batch = HF_LIST_INIT(batch);
	uint64_t begun;
	size_t n;

	syncer->is_busy = true;
	if (syncer->n_inside || syncer->n_due)
		wait_for_others(syncer);
	hf_list_splice(&batch, &syncer->waiting);
	pthread_mutex_unlock(&syncer->lock);
	begun = now_ns();
	n = run_round(&batch);
	pthread_mutex_lock(&syncer->lock);
	syncer->last_took = now_ns() - begun;
	syncer->n_due = hf_list_is_empty(&syncer->waiting) ? 0 : n;
	syncer->is_busy = false;
}

void hf_syncer_enter(struct hf_syncer *syncer)
{
	pthread_mutex_lock(&syncer->lock);
	syncer->n_inside++;
	if (syncer->n_due)
		syncer->n_due--;
	pthread_mutex_unlock(&syncer->lock);
}

void hf_syncer_leave(struct hf_syncer *syncer, struct hf_sync *sync, struct hf_jobs *jobs)
{
	pthread_mutex_lock(&syncer->lock);
	syncer->n_passed = hf_list_is_empty(&syncer->waiting) ? 0 : syncer->n_passed + 1;
	if (sync)
		hf_list_push_back(&syncer->waiting, &sync->link);
	if (--syncer->n_inside == 0 && syncer->n_due == 0)
		pthread_cond_signal(&syncer->has_left);
	while (is_time(syncer, jobs))
		sync_waiting(syncer);
	pthread_mutex_unlock(&syncer->lock);
}
