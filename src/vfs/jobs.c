#include "vfs/jobs.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "loop/work.h"

#define JOBS_A_RUN 64  /* then others who use the pool have their turn */
#define N_KEYS     256 /* that are known as taken; one that finds its place occupied goes without */

struct runner {
	struct hf_work work;
	struct hf_jobs *jobs;
	struct hf_link link; /* in jobs->idle */
};

/* A key of jobs that run now, or wait for one that does. Two at once with the same do no harm, they only
 * wait.
 */
struct taken {
	uint64_t key;
	size_t n;
	struct hf_list waiting; /* jobs that were next, and are again one by one */
};

struct hf_jobs {
	pthread_mutex_t lock;
	struct hf_list queue;       /* under lock */
	struct hf_list idle;        /* under lock: runners */
	struct taken taken[N_KEYS]; /* under lock */
	size_t n_jobs;              /* under lock: submitted, and not yet on their way back */
	pthread_cond_t none_left;
	size_t n_runners; /* (c) */
	struct runner runners[];
};

/* Keys; all under the lock */

static struct taken *place_of(struct hf_jobs *jobs, uint64_t key)
{
	return &jobs->taken[(key * UINT64_C(0x9e3779b97f4a7c15)) >> 56];
}

static bool is_free(struct hf_jobs *jobs, uint64_t key)
{
	const struct taken *place = place_of(jobs, key);

	return key == 0 || place->n == 0 || place->key != key;
}

static void take_key(struct hf_jobs *jobs, uint64_t key)
{
	struct taken *place = place_of(jobs, key);

	if (key == 0 || (place->key != key && (place->n || !hf_list_is_empty(&place->waiting))))
		return;
	place->key = key;
	place->n++;
}

void hf_jobs_release(struct hf_jobs *jobs, uint64_t key)
{
	struct taken *place = place_of(jobs, key);
	struct hf_link *link = NULL;

	pthread_mutex_lock(&jobs->lock);
	if (key && place->n && place->key == key && --place->n == 0)
		link = hf_list_pop_front(&place->waiting);
	if (link)
		hf_list_push_front(&jobs->queue, link);
	pthread_mutex_unlock(&jobs->lock);
}

/* The first job that would not wait for one that runs; those before it are put aside, so that they are passed
 * over once. There may be none while some are aside: then who runs what they wait for comes back for them. */
static struct hf_job *find_job(struct hf_jobs *jobs)
{
	struct hf_link *link;

	while ((link = hf_list_first(&jobs->queue))) {
		struct hf_job *job = hf_list_entry(link, struct hf_job, link);

		if (is_free(jobs, job->key))
			return job;
		hf_link_remove(link);
		hf_list_push_back(&place_of(jobs, job->key)->waiting, link);
	}
	return NULL;
}

static struct hf_job *take_job(struct hf_jobs *jobs)
{
	struct hf_job *job;

	pthread_mutex_lock(&jobs->lock);
	job = find_job(jobs);
	if (job) {
		hf_link_remove(&job->link);
		take_key(jobs, job->key);
	}
	pthread_mutex_unlock(&jobs->lock);
	return job;
}

static struct hf_job *take_any_job(struct hf_jobs *jobs)
{
	struct hf_link *link;

	pthread_mutex_lock(&jobs->lock);
	link = hf_list_pop_front(&jobs->queue);
	for (int i = 0; !link && i < N_KEYS; i++)
		link = hf_list_pop_front(&jobs->taken[i].waiting);
	if (link)
		take_key(jobs, hf_list_entry(link, struct hf_job, link)->key);
	pthread_mutex_unlock(&jobs->lock);
	return link ? hf_list_entry(link, struct hf_job, link) : NULL;
}

static void on_job_done(struct hf_task *task)
{
	struct hf_job *job = hf_container_of(task, struct hf_job, task);

	job->done(job);
	/* @job may be gone here */
}

void hf_job_complete(struct hf_job *job)
{
	struct hf_jobs *jobs = job->jobs;

	hf_loop_post(job->loop, &job->task);
	/* @job may be gone here */
	pthread_mutex_lock(&jobs->lock);
	if (--jobs->n_jobs == 0)
		pthread_cond_broadcast(&jobs->none_left);
	pthread_mutex_unlock(&jobs->lock);
}

bool hf_jobs_next_is(struct hf_jobs *jobs, const void *group)
{
	struct hf_link *link;
	bool is;

	pthread_mutex_lock(&jobs->lock);
	link = hf_list_first(&jobs->queue);
	is = link && hf_list_entry(link, struct hf_job, link)->group == group;
	pthread_mutex_unlock(&jobs->lock);
	return is;
}

static void run_job(struct hf_job *job)
{
	bool is_open = job->completes_itself;

	job->run(job);
	/* @job may be gone here if it is open */
	if (!is_open)
		hf_job_complete(job);
}

static void run_jobs(struct hf_work *work)
{
	struct runner *runner = hf_container_of(work, struct runner, work);
	struct hf_jobs *jobs = runner->jobs;
	struct hf_job *job;

	for (int i = 0; i < JOBS_A_RUN && (job = take_job(jobs)); i++)
		run_job(job);
}

/* A job that came after the last look into the queue finds no idle runner, so this one must look again. */
static void on_run_over(struct hf_work *work)
{
	struct runner *runner = hf_container_of(work, struct runner, work);
	struct hf_jobs *jobs = runner->jobs;
	bool is_needed;

	pthread_mutex_lock(&jobs->lock);
	is_needed = find_job(jobs) != NULL;
	if (!is_needed)
		hf_list_push_back(&jobs->idle, &runner->link);
	pthread_mutex_unlock(&jobs->lock);
	if (is_needed && hf_work_submit(work->loop, work, run_jobs, on_run_over) < 0) {
		run_jobs(work); /* no memory: the loop has to do it itself */
		on_run_over(work);
	}
}

static void submit(struct hf_jobs *jobs, struct hf_loop *loop, struct hf_job *job,
		   void (*run)(struct hf_job *job), void (*done)(struct hf_job *job))
{
	struct runner *runner;
	struct hf_link *link;

	hf_link_init(&job->link);
	hf_task_init(&job->task, on_job_done);
	job->loop = loop;
	job->jobs = jobs;
	job->run = run;
	job->done = done;
	pthread_mutex_lock(&jobs->lock);
	jobs->n_jobs++;
	hf_list_push_back(&jobs->queue, &job->link);
	link = is_free(jobs, job->key) ? hf_list_pop_front(&jobs->idle) : NULL;
	pthread_mutex_unlock(&jobs->lock);
	if (!link)
		return;
	runner = hf_list_entry(link, struct runner, link);
	if (hf_work_submit(loop, &runner->work, run_jobs, on_run_over) < 0) {
		runner->work.loop = loop;
		run_jobs(&runner->work);
		on_run_over(&runner->work);
	}
}

void hf_jobs_submit(struct hf_jobs *jobs, struct hf_loop *loop, struct hf_job *job,
		    void (*run)(struct hf_job *job), void (*done)(struct hf_job *job))
{
	job->completes_itself = false;
	job->group = NULL;
	job->key = 0;
	submit(jobs, loop, job, run, done);
}

void hf_jobs_submit_open(struct hf_jobs *jobs, struct hf_loop *loop, struct hf_job *job,
			 void (*run)(struct hf_job *job), void (*done)(struct hf_job *job))
{
	job->completes_itself = true;
	submit(jobs, loop, job, run, done);
}

/* Work that the pool has not begun yet is done here, by the one who waits; nobody else may be there to do it.
 */
void hf_jobs_wait(struct hf_jobs *jobs)
{
	struct hf_job *job;

	while ((job = take_any_job(jobs)))
		run_job(job);
	pthread_mutex_lock(&jobs->lock);
	while (jobs->n_jobs)
		pthread_cond_wait(&jobs->none_left, &jobs->lock);
	pthread_mutex_unlock(&jobs->lock);
}

int hf_jobs_new(struct hf_jobs **jobsp, size_t n_at_once)
{
	struct hf_jobs *jobs = calloc(1, sizeof(*jobs) + n_at_once * sizeof(jobs->runners[0]));

	assert(n_at_once > 0);
	if (!jobs)
		return hf_trace(-ENOMEM);
	pthread_mutex_init(&jobs->lock, NULL);
	pthread_cond_init(&jobs->none_left, NULL);
	hf_list_init(&jobs->queue);
	hf_list_init(&jobs->idle);
	for (int i = 0; i < N_KEYS; i++)
		hf_list_init(&jobs->taken[i].waiting);
	jobs->n_runners = n_at_once;
	for (size_t i = 0; i < n_at_once; i++) {
		jobs->runners[i].jobs = jobs;
		hf_list_push_back(&jobs->idle, &jobs->runners[i].link);
	}
	*jobsp = jobs;
	return 0;
}

struct hf_jobs *hf_jobs_free(struct hf_jobs *jobs)
{
	if (!jobs)
		return NULL;
	assert(hf_list_is_empty(&jobs->queue));
	/* A run that found nothing more may still be on its way back. */
	for (size_t i = 0; i < jobs->n_runners; i++)
		hf_work_cancel(&jobs->runners[i].work);
	pthread_cond_destroy(&jobs->none_left);
	pthread_mutex_destroy(&jobs->lock);
	free(jobs);
	return NULL;
}
