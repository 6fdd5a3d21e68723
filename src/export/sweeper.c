#include "export/sweeper.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/macros.h"
#include "export/export.h"
#include "loop/loop.h"
#include "loop/timer.h"
#include "loop/work.h"
#include "vfs/disk_queue.h"

#define SHARED_THREADS 4 /* beside one for each disk: for disks that a reload added */

struct hf_sweeper {
	struct hf_loop *loop;
	struct hf_exports *exports;
	struct hf_task task; /* closes at once: the cache is full */
	_Atomic bool is_posted;
	_Atomic bool is_stopped;
	struct hf_timer timer;
	struct hf_work work;
	struct hf_disk_queue *disk_queue;
};

struct closing {
	struct hf_question question;
	struct hf_files *files;
	struct hf_volume *volume;
};

static void run_closing(struct hf_question *question)
{
	struct closing *closing = hf_container_of(question, struct closing, question);

	hf_files_close(closing->files, closing->volume);
	closing->volume = hf_volume_unref(closing->volume); /* here, because it may close something, too */
}

static void on_closed(struct hf_question *question)
{
	free(hf_container_of(question, struct closing, question));
}

/* Takes @volume, unless it fails. */
static int start(struct hf_sweeper *sweeper, struct hf_files *files, struct hf_volume *volume)
{
	struct closing *closing = calloc(1, sizeof(*closing));
	int r;

	if (!closing)
		return hf_trace(-ENOMEM);
	closing->files = files;
	closing->volume = volume;
	r = hf_disk_queue_ask(sweeper->disk_queue, volume->root_stat.st_dev, &closing->question, NULL,
			      run_closing, on_closed);
	if (r < 0)
		free(closing);
	return r;
}

static void start_all(struct hf_sweeper *sweeper)
{
	struct hf_files *files = hf_exports_files(sweeper->exports);
	struct hf_volume *volume;

	while ((volume = hf_files_next_to_close(files))) {
		if (start(sweeper, files, volume) < 0) { /* no memory: after the next sweep */
			hf_files_put_off(files, volume);
			hf_volume_unref(volume);
			return;
		}
	}
}

static void run_task(struct hf_task *task)
{
	struct hf_sweeper *sweeper = hf_container_of(task, struct hf_sweeper, task);

	atomic_store(&sweeper->is_posted, false); /* before it looks: a file that comes now is posted again */
	if (!sweeper->is_stopped)
		start_all(sweeper);
}

static void on_full(void *user)
{
	struct hf_sweeper *sweeper = user;

	if (!sweeper->is_stopped && !atomic_exchange(&sweeper->is_posted, true))
		hf_loop_post(sweeper->loop, &sweeper->task);
}

static void run_sweep(struct hf_work *work)
{
	hf_exports_sweep(hf_container_of(work, struct hf_sweeper, work)->exports);
}

static void on_swept(struct hf_work *work)
{
	struct hf_sweeper *sweeper = hf_container_of(work, struct hf_sweeper, work);

	start_all(sweeper);
	hf_timer_start(&sweeper->timer, HF_NS_PER_S);
}

/* On a thread, since a cache of many idle files takes a while; not on a file worker, since hung disks may
 * occupy all of them. */
static void on_time(struct hf_timer *timer)
{
	struct hf_sweeper *sweeper = hf_container_of(timer, struct hf_sweeper, timer);

	if (hf_work_submit(timer->loop, &sweeper->work, run_sweep, on_swept) < 0)
		hf_timer_start(timer, HF_NS_PER_S);
}

size_t hf_sweeper_threads(size_t n_disks)
{
	return n_disks + SHARED_THREADS + 1;
}

int hf_sweeper_new(struct hf_sweeper **sweeperp, struct hf_loop *loop, struct hf_exports *exports,
		   size_t n_disks)
{
	hf_cleanup(hf_sweeper_freep) struct hf_sweeper *sweeper = calloc(1, sizeof(*sweeper));
	int r;

	if (!sweeper)
		return hf_trace(-ENOMEM);
	sweeper->loop = loop;
	sweeper->exports = exports;
	hf_task_init(&sweeper->task, run_task);
	hf_timer_init(&sweeper->timer, loop, on_time);
	r = hf_disk_queue_new(&sweeper->disk_queue, loop, n_disks, SHARED_THREADS);
	if (r == 0)
		r = hf_timer_start(&sweeper->timer, HF_NS_PER_S);
	if (r < 0)
		return hf_trace(r);
	hf_files_set_on_full(hf_exports_files(exports), on_full, sweeper);
	*sweeperp = sweeper;
	sweeper = NULL;
	return 0;
}

static void stop(struct hf_sweeper *sweeper)
{
	sweeper->is_stopped = true;
	hf_timer_stop(&sweeper->timer);
	hf_work_cancel(&sweeper->work);
}

void hf_sweeper_wait(struct hf_sweeper *sweeper)
{
	stop(sweeper);
	hf_disk_queue_wait(sweeper->disk_queue);
}

struct hf_sweeper *hf_sweeper_free(struct hf_sweeper *sweeper)
{
	if (!sweeper)
		return NULL;
	stop(sweeper);
	hf_disk_queue_free(sweeper->disk_queue);
	/* Until here its own threads drop files, and so call on_full(). */
	hf_files_set_on_full(hf_exports_files(sweeper->exports), NULL, NULL);
	free(sweeper);
	return NULL;
}
