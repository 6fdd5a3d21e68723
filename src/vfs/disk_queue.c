#include "vfs/disk_queue.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/macros.h"
#include "vfs/jobs.h"

#define HANDFUL 16 /* questions to wake a thread for; the first waits for the last answer */

/* Never freed before the end: there are as many as file systems were ever exported. */
struct disk {
	struct hf_link link;    /* in queue->disks */
	struct hf_link wanting; /* in queue->wanting, while anything waits */
	uint64_t number;
	struct hf_client_queue waiting; /* questions */
	size_t n_busy;                  /* threads */
};

struct handful {
	struct hf_job job;
	struct hf_link link; /* in queue->idle */
	struct hf_disk_queue *queue;
	struct disk *disk;
	struct hf_list questions;
};

struct hf_disk_queue {
	struct hf_loop *loop;
	struct hf_jobs *jobs;
	struct hf_list disks;
	size_t n_disks;     /* that are known */
	size_t n_announced; /* disks that may be asked, as said at the start */
	size_t n_threads;
	size_t n_extra; /* busy threads that disks have beside their own */
	struct hf_list wanting;
	struct hf_list idle; /* handfuls, as many as threads */
	size_t n_idle;
	struct handful handfuls[];
};

static struct disk *get_disk(struct hf_disk_queue *queue, uint64_t number)
{
	struct disk *disk;

	hf_list_for_each(link, &queue->disks) {
		disk = hf_list_entry(link, struct disk, link);
		if (disk->number == number)
			return disk;
	}
	disk = calloc(1, sizeof(*disk));
	if (!disk)
		return NULL;
	disk->number = number;
	hf_client_queue_init(&disk->waiting);
	hf_link_init(&disk->wanting);
	hf_list_push_back(&queue->disks, &disk->link);
	queue->n_disks++;
	return disk;
}

/* The shared threads that no disk uses. */
static size_t count_left(const struct hf_disk_queue *queue)
{
	size_t n_taken = HF_MAX(queue->n_disks, queue->n_announced) + queue->n_extra;

	return queue->n_threads - HF_MIN(n_taken, queue->n_threads);
}

static bool may_have_another(const struct hf_disk_queue *queue, const struct disk *disk)
{
	if (!queue->n_idle || !disk->n_busy)
		return queue->n_idle;
	return disk->n_busy - 1 < (count_left(queue) + disk->n_busy - 1) / 2;
}

/* Waiting */

static bool has_questions(const struct disk *disk)
{
	return hf_client_queue_first(&disk->waiting) != NULL;
}

static struct hf_question *take_question(struct disk *disk)
{
	struct hf_client_queue_entry *entry = hf_client_queue_first(&disk->waiting);

	if (!entry)
		return NULL;
	hf_client_queue_take(&disk->waiting, entry);
	hf_client_queue_begin(&disk->waiting, entry);
	return hf_container_of(entry, struct hf_question, entry);
}

/* Questions cost about the same, so an address is charged for their number. */
static void end_question(struct disk *disk, const struct hf_question *question)
{
	hf_client_queue_end(&disk->waiting, question->entry.flow, 1);
}

/* Asking */

static void run_handful(struct hf_job *job)
{
	struct handful *handful = hf_container_of(job, struct handful, job);

	hf_list_for_each(link, &handful->questions) {
		struct hf_question *question = hf_list_entry(link, struct hf_question, link);

		question->run(question);
	}
}

static void on_handful_done(struct hf_job *job);

static void start(struct hf_disk_queue *queue, struct disk *disk)
{
	struct handful *handful = hf_list_entry(hf_list_pop_front(&queue->idle), struct handful, link);
	struct hf_question *question;

	queue->n_idle--;
	queue->n_extra += disk->n_busy++ > 0;
	handful->disk = disk;
	for (int i = 0; i < HANDFUL && (question = take_question(disk)); i++)
		hf_list_push_back(&handful->questions, &question->link);
	hf_jobs_submit(queue->jobs, queue->loop, &handful->job, run_handful, on_handful_done);
}

static void start_what_may(struct hf_disk_queue *queue)
{
	hf_list_for_each_safe(link, &queue->wanting) {
		struct disk *disk = hf_list_entry(link, struct disk, wanting);

		while (has_questions(disk) && may_have_another(queue, disk))
			start(queue, disk);
		if (!has_questions(disk))
			hf_link_remove(&disk->wanting);
	}
}

static void on_handful_done(struct hf_job *job)
{
	struct handful *handful = hf_container_of(job, struct handful, job);
	struct hf_disk_queue *queue = handful->queue;
	struct disk *disk = handful->disk;
	struct hf_list questions;
	struct hf_link *link;

	hf_list_init(&questions);
	hf_list_splice(&questions, &handful->questions);
	queue->n_extra -= --disk->n_busy > 0;
	hf_list_push_back(&queue->idle, &handful->link);
	queue->n_idle++;
	hf_list_for_each(each, &questions)
		end_question(disk, hf_list_entry(each, struct hf_question, link));
	start_what_may(queue); /* first, so that the threads work meanwhile */
	while ((link = hf_list_pop_front(&questions))) {
		struct hf_question *question = hf_list_entry(link, struct hf_question, link);

		question->done(question);
		/* @question may be freed here */
	}
}

int hf_disk_queue_ask(struct hf_disk_queue *queue, uint64_t number, struct hf_question *question,
		      const struct hf_addr *from, void (*run)(struct hf_question *question),
		      void (*done)(struct hf_question *question))
{
	struct disk *disk = get_disk(queue, number);

	if (!disk)
		return hf_trace(-ENOMEM);
	question->run = run;
	question->done = done;
	hf_link_init(&question->link);
	if (!has_questions(disk))
		hf_list_push_back(&queue->wanting, &disk->wanting);
	hf_client_queue_push(&disk->waiting, &question->entry, from);
	start_what_may(queue);
	return 0;
}

/* The thread that waits here also runs what is waiting: there may be no other thread. */
void hf_disk_queue_wait(struct hf_disk_queue *queue)
{
	struct hf_question *question;
	struct hf_link *at;

	while ((at = hf_list_pop_front(&queue->wanting))) {
		struct disk *disk = hf_list_entry(at, struct disk, wanting);

		while ((question = take_question(disk))) {
			question->run(question);
			end_question(disk, question);
			question->done(question);
		}
	}
	hf_jobs_wait(queue->jobs);
}

int hf_disk_queue_new(struct hf_disk_queue **fairp, struct hf_loop *loop, size_t n_disks, size_t n_shared)
{
	size_t n_threads = n_disks + n_shared;
	hf_cleanup(hf_disk_queue_freep) struct hf_disk_queue *queue =
		calloc(1, sizeof(*queue) + n_threads * sizeof(queue->handfuls[0]));
	int r;

	if (!queue)
		return hf_trace(-ENOMEM);
	queue->loop = loop;
	queue->n_announced = n_disks;
	queue->n_threads = n_threads;
	hf_list_init(&queue->disks);
	hf_list_init(&queue->wanting);
	hf_list_init(&queue->idle);
	for (; queue->n_idle < n_threads; queue->n_idle++) {
		struct handful *handful = &queue->handfuls[queue->n_idle];

		handful->queue = queue;
		hf_list_init(&handful->questions);
		hf_list_push_back(&queue->idle, &handful->link);
	}
	r = hf_jobs_new(&queue->jobs, n_threads, 0);
	if (r < 0)
		return hf_trace(r);
	*fairp = queue;
	queue = NULL;
	return 0;
}

struct hf_disk_queue *hf_disk_queue_free(struct hf_disk_queue *queue)
{
	struct hf_link *link;

	if (!queue)
		return NULL;
	assert(hf_list_is_empty(&queue->wanting));
	hf_jobs_free(queue->jobs);
	while ((link = hf_list_pop_front(&queue->disks))) {
		struct disk *disk = hf_list_entry(link, struct disk, link);

		hf_client_queue_deinit(&disk->waiting);
		free(disk);
	}
	free(queue);
	return NULL;
}
