#include "vfs/jobs.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "loop/timer.h"
#include "loop/work.h"

#define JOBS_A_RUN 64 /* then other users of the pool get a thread */
#define SLICE_NS   (2 * HF_NS_PER_MS)
#define STUCK_NS   (100 * HF_NS_PER_MS) /* at one job: then another address does not wait for its end */
#define LOOK_NS    (STUCK_NS / 2)       /* between two checks for that */
#define N_KEYS     256 /* keys known as taken; a job whose place is occupied runs without one */

struct hf_runner {
	struct hf_work work;
	struct hf_jobs *jobs;
	struct hf_link link;  /* in jobs->idle or jobs->spare */
	struct hf_flow *flow; /* under lock: the flow that it works for; NULL: none */
	uint64_t begun;       /* when it took its job, or last found none */
	uint64_t n_taken;     /* jobs; the last one is the number of its present job */
	bool is_spare;        /* (c) */
};

/* A key of jobs that run now, or wait for one that runs. Two jobs with one key do no harm at once: they only
 * wait for each other. */
struct taken {
	uint64_t key;
	size_t n;
	struct hf_list waiting; /* the first job of each address, and behind it the others of that address */
};

struct hf_jobs {
	pthread_mutex_t lock;
	struct hf_client_queue queue; /* under lock */
	struct hf_list idle;          /* under lock: runners */
	struct hf_list spare;         /* under lock: idle runners that are spare */
	struct taken taken[N_KEYS];   /* under lock */
	size_t n_jobs;                /* under lock: submitted, and not yet on their way back */
	bool is_stuck;                /* under lock: only spare runners have come back lately */
	bool is_watched;              /* under lock: the timer runs; it belongs to the loop that started it */
	struct hf_timer watch;
	pthread_cond_t none_left;
	size_t n_regular; /* (c) */
	size_t n_runners; /* (c) regular, then spare */
	struct hf_runner runners[];
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

static struct hf_job *job_at(struct hf_link *link)
{
	return hf_list_entry(link, struct hf_job, link);
}

static void put_aside(struct taken *place, struct hf_job *job)
{
	hf_list_for_each(link, &place->waiting) {
		struct hf_job *first = job_at(link);

		if (first->entry.flow->payer == job->entry.flow->payer) {
			hf_list_push_back(&first->behind, &job->link);
			return;
		}
	}
	hf_list_init(&job->behind);
	hf_list_push_back(&place->waiting, &job->link);
}

/* Addresses alternate: the other jobs of this one wait behind those of the others. */
static struct hf_job *take_from_aside(struct taken *place)
{
	struct hf_link *link = hf_list_pop_front(&place->waiting), *next;

	if (!link)
		return NULL;
	next = hf_list_pop_front(&job_at(link)->behind);
	if (next) {
		hf_list_init(&job_at(next)->behind);
		hf_list_splice(&job_at(next)->behind, &job_at(link)->behind);
		hf_list_push_back(&place->waiting, next);
	}
	return job_at(link);
}

void hf_jobs_release(struct hf_jobs *jobs, uint64_t key)
{
	struct taken *place = place_of(jobs, key);
	struct hf_job *job = NULL;

	if (!key)
		return;
	pthread_mutex_lock(&jobs->lock);
	if (place->n && place->key == key && --place->n == 0)
		job = take_from_aside(place);
	if (job)
		hf_client_queue_put_back(&jobs->queue, &job->entry);
	pthread_mutex_unlock(&jobs->lock);
}

/* The queue; all under the lock */

static struct hf_job *first_job(const struct hf_jobs *jobs)
{
	struct hf_client_queue_entry *entry = hf_client_queue_first(&jobs->queue);

	return entry ? hf_container_of(entry, struct hf_job, entry) : NULL;
}

/* The first job that need not wait for a running one. Jobs before it are put aside, so that they are passed
 * over only once. There may be none while some are aside: then the runner of the job that they wait for comes
 * back for them. */
static struct hf_job *find_job(struct hf_jobs *jobs)
{
	struct hf_job *job;

	while ((job = first_job(jobs)) && !is_free(jobs, job->key)) {
		hf_client_queue_take(&jobs->queue, &job->entry);
		put_aside(place_of(jobs, job->key), job);
	}
	return job;
}

static bool may_take(const struct hf_runner *runner, const struct hf_job *job)
{
	return !runner->is_spare || (runner->jobs->is_stuck && !hf_client_queue_is_at_work(&job->entry));
}

static struct hf_job *find_job_for(struct hf_runner *runner)
{
	struct hf_job *job = find_job(runner->jobs);

	return job && may_take(runner, job) ? job : NULL;
}

/* An address occupies a worker until its job is complete or the worker has left it, whichever is first. A
 * worker that then syncs for others is not charged to this address. */
static void leave_flow(struct hf_runner *runner, uint64_t now)
{
	if (!runner->flow)
		return;
	hf_client_queue_end(&runner->jobs->queue, runner->flow, now - HF_MIN(runner->begun, now));
	runner->flow = NULL;
}

/* Leaves the last job, and takes the next one if it may. */
static struct hf_job *take_job(struct hf_runner *runner, bool may_have_any)
{
	struct hf_jobs *jobs = runner->jobs;
	uint64_t now = hf_loop_clock(runner->work.loop);
	struct hf_job *job;

	pthread_mutex_lock(&jobs->lock);
	leave_flow(runner, now);
	runner->begun = now;
	if (!runner->is_spare)
		jobs->is_stuck = false;
	job = may_have_any ? find_job_for(runner) : NULL;
	if (job) {
		hf_client_queue_take(&jobs->queue, &job->entry);
		hf_client_queue_begin(&jobs->queue, &job->entry);
		take_key(jobs, job->key);
		job->runner = runner;
		job->number = ++runner->n_taken;
		runner->flow = job->entry.flow;
	}
	pthread_mutex_unlock(&jobs->lock);
	return job;
}

static struct hf_job *take_any_job(struct hf_jobs *jobs)
{
	struct hf_job *job;

	pthread_mutex_lock(&jobs->lock);
	job = first_job(jobs);
	if (job)
		hf_client_queue_take(&jobs->queue, &job->entry);
	for (int i = 0; !job && i < N_KEYS; i++)
		job = take_from_aside(&jobs->taken[i]);
	if (job) {
		hf_client_queue_begin(&jobs->queue, &job->entry);
		hf_client_queue_end(&jobs->queue, job->entry.flow, 0);
		take_key(jobs, job->key);
	}
	pthread_mutex_unlock(&jobs->lock);
	return job;
}

static void on_job_done(struct hf_task *task)
{
	struct hf_job *job = hf_container_of(task, struct hf_job, task);

	job->done(job);
	/* @job may be freed here */
}

void hf_job_complete(struct hf_job *job)
{
	struct hf_runner *runner = job->runner;
	uint64_t now = hf_loop_clock(job->loop), number = job->number;
	struct hf_jobs *jobs = job->jobs;

	hf_loop_post(job->loop, &job->task);
	/* @job may be freed here */
	pthread_mutex_lock(&jobs->lock);
	if (runner && runner->n_taken == number)
		leave_flow(runner, now);
	if (--jobs->n_jobs == 0)
		pthread_cond_broadcast(&jobs->none_left);
	pthread_mutex_unlock(&jobs->lock);
}

bool hf_jobs_next_is(struct hf_jobs *jobs, const void *group)
{
	const struct hf_job *job;
	bool is;

	pthread_mutex_lock(&jobs->lock);
	job = jobs->is_stuck ? NULL : find_job(jobs);
	is = job && job->group == group;
	pthread_mutex_unlock(&jobs->lock);
	return is;
}

bool hf_job_should_yield(const struct hf_job *job)
{
	struct hf_jobs *jobs = job->jobs;
	bool is_wanted;

	if (!job->runner || hf_loop_clock(job->loop) - job->runner->begun < SLICE_NS)
		return false;
	pthread_mutex_lock(&jobs->lock);
	is_wanted = hf_client_queue_others_wait(&jobs->queue, job->entry.flow);
	pthread_mutex_unlock(&jobs->lock);
	return is_wanted;
}

static void run_job(struct hf_job *job)
{
	bool is_open = job->completes_itself;

	job->run(job);
	/* @job may be freed here if it is open */
	if (!is_open)
		hf_job_complete(job);
}

static void run_jobs(struct hf_work *work)
{
	struct hf_runner *runner = hf_container_of(work, struct hf_runner, work);
	struct hf_job *job;

	for (int i = 0; (job = take_job(runner, i < JOBS_A_RUN)); i++)
		run_job(job);
}

static void on_run_over(struct hf_work *work);

static void start(struct hf_runner *runner, struct hf_loop *loop)
{
	if (hf_work_submit(loop, &runner->work, run_jobs, on_run_over) < 0) {
		runner->work.loop = loop; /* no memory: the loop runs it itself */
		run_jobs(&runner->work);
		on_run_over(&runner->work);
	}
}

/* A job that came after the last look into the queue finds no idle runner, so this runner must look again. */
static void on_run_over(struct hf_work *work)
{
	struct hf_runner *runner = hf_container_of(work, struct hf_runner, work);
	struct hf_jobs *jobs = runner->jobs;
	bool is_needed;

	pthread_mutex_lock(&jobs->lock);
	is_needed = find_job_for(runner) != NULL;
	if (!is_needed)
		hf_list_push_back(runner->is_spare ? &jobs->spare : &jobs->idle, &runner->link);
	pthread_mutex_unlock(&jobs->lock);
	if (is_needed)
		start(runner, work->loop);
}

/* Spare runners; all under the lock */

static bool are_all_stuck(const struct hf_jobs *jobs, uint64_t now)
{
	if (!hf_list_is_empty(&jobs->idle))
		return false;
	for (size_t i = 0; i < jobs->n_regular; i++)
		if (now - HF_MIN(jobs->runners[i].begun, now) < STUCK_NS)
			return false;
	return true;
}

/* One spare runner for each check: as long as it is not stuck itself, it serves all that wait. */
static struct hf_runner *take_spare(struct hf_jobs *jobs)
{
	struct hf_link *link = hf_list_first(&jobs->spare);
	struct hf_runner *runner = link ? hf_list_entry(link, struct hf_runner, link) : NULL;

	if (!runner || !find_job_for(runner))
		return NULL;
	hf_link_remove(link);
	return runner;
}

static struct hf_runner *take_idle(struct hf_jobs *jobs, uint64_t now)
{
	struct hf_link *link = hf_list_pop_front(&jobs->idle);
	struct hf_runner *runner = link ? hf_list_entry(link, struct hf_runner, link) : NULL;

	if (!runner)
		return jobs->is_stuck ? take_spare(jobs) : NULL;
	runner->begun = now;
	return runner;
}

static void start_watch(struct hf_jobs *jobs)
{
	if (hf_timer_start(&jobs->watch, LOOK_NS) < 0)
		jobs->is_watched = false; /* no memory: the next job that waits starts it */
}

static void on_look(struct hf_timer *timer)
{
	struct hf_jobs *jobs = hf_container_of(timer, struct hf_jobs, watch);
	struct hf_loop *loop = timer->loop; /* another loop may start the timer after the lock is released */
	struct hf_runner *runner;

	pthread_mutex_lock(&jobs->lock);
	jobs->is_stuck = are_all_stuck(jobs, hf_loop_now(loop));
	runner = jobs->is_stuck ? take_spare(jobs) : NULL;
	jobs->is_watched = first_job(jobs) != NULL;
	if (jobs->is_watched)
		start_watch(jobs);
	pthread_mutex_unlock(&jobs->lock);
	if (runner)
		start(runner, loop);
}

static void watch(struct hf_jobs *jobs, struct hf_loop *loop)
{
	if (jobs->is_watched || jobs->n_runners == jobs->n_regular)
		return;
	jobs->is_watched = true;
	hf_timer_init(&jobs->watch, loop, on_look);
	start_watch(jobs);
}

static void submit(struct hf_jobs *jobs, struct hf_loop *loop, struct hf_job *job, const struct hf_addr *from,
		   void (*run)(struct hf_job *job), void (*done)(struct hf_job *job))
{
	struct hf_runner *runner = NULL;

	hf_link_init(&job->link);
	hf_link_init(&job->entry.link);
	hf_task_init(&job->task, on_job_done);
	job->loop = loop;
	job->jobs = jobs;
	job->runner = NULL;
	job->number = 0;
	job->run = run;
	job->done = done;
	pthread_mutex_lock(&jobs->lock);
	jobs->n_jobs++;
	hf_client_queue_push(&jobs->queue, &job->entry, from);
	if (is_free(jobs, job->key))
		runner = take_idle(jobs, hf_loop_now(loop));
	if (!runner)
		watch(jobs, loop);
	pthread_mutex_unlock(&jobs->lock);
	if (runner)
		start(runner, loop);
}

void hf_jobs_submit_for(struct hf_jobs *jobs, struct hf_loop *loop, struct hf_job *job,
			const struct hf_addr *from, void (*run)(struct hf_job *job),
			void (*done)(struct hf_job *job))
{
	job->completes_itself = false;
	job->group = NULL;
	job->key = 0;
	submit(jobs, loop, job, from, run, done);
}

void hf_jobs_submit(struct hf_jobs *jobs, struct hf_loop *loop, struct hf_job *job,
		    void (*run)(struct hf_job *job), void (*done)(struct hf_job *job))
{
	hf_jobs_submit_for(jobs, loop, job, NULL, run, done);
}

void hf_jobs_submit_open(struct hf_jobs *jobs, struct hf_loop *loop, struct hf_job *job,
			 const struct hf_addr *from, void (*run)(struct hf_job *job),
			 void (*done)(struct hf_job *job))
{
	job->completes_itself = true;
	submit(jobs, loop, job, from, run, done);
}

/* The thread that waits here also runs work that the pool has not begun: there may be no other thread. */
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

int hf_jobs_new(struct hf_jobs **jobsp, size_t n_at_once, size_t n_spare)
{
	size_t n = n_at_once + n_spare;
	struct hf_jobs *jobs = calloc(1, sizeof(*jobs) + n * sizeof(jobs->runners[0]));

	assert(n_at_once > 0);
	if (!jobs)
		return hf_trace(-ENOMEM);
	pthread_mutex_init(&jobs->lock, NULL);
	pthread_cond_init(&jobs->none_left, NULL);
	hf_client_queue_init(&jobs->queue);
	hf_list_init(&jobs->idle);
	hf_list_init(&jobs->spare);
	for (int i = 0; i < N_KEYS; i++)
		hf_list_init(&jobs->taken[i].waiting);
	jobs->n_regular = n_at_once;
	jobs->n_runners = n;
	for (size_t i = 0; i < n; i++) {
		jobs->runners[i].jobs = jobs;
		jobs->runners[i].is_spare = i >= n_at_once;
		hf_list_push_back(i < n_at_once ? &jobs->idle : &jobs->spare, &jobs->runners[i].link);
	}
	*jobsp = jobs;
	return 0;
}

struct hf_jobs *hf_jobs_free(struct hf_jobs *jobs)
{
	if (!jobs)
		return NULL;
	if (jobs->is_watched)
		hf_timer_stop(&jobs->watch);
	/* A run that found nothing more may still be on its way back. */
	for (size_t i = 0; i < jobs->n_runners; i++)
		hf_work_cancel(&jobs->runners[i].work);
	hf_client_queue_deinit(&jobs->queue);
	pthread_cond_destroy(&jobs->none_left);
	pthread_mutex_destroy(&jobs->lock);
	free(jobs);
	return NULL;
}
