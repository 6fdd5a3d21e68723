/*
 * Questions to several disks, on threads of their own, so that a disk that does not answer
 * delays no question to another.
 *
 * Each disk has one thread of its own. So any number of dead disks leaves a thread to each
 * working one. Besides, there are shared threads: a disk may have half of those that the others
 * leave. A question to a disk that has its part waits. When a thread comes back, it takes a
 * handful of the waiting questions; addresses alternate there (vfs/client_queue.h). If there are
 * more disks than was said at the start, each further one takes its own thread from the shared
 * ones, while there are any. All of this belongs to the thread of its loop.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "vfs/client_queue.h"

struct hf_disk_queue;
struct hf_loop;

struct hf_question {
	struct hf_client_queue_entry entry;
	struct hf_link link;                        /* while it is asked */
	void (*run)(struct hf_question *question);  /* on one of the threads */
	void (*done)(struct hf_question *question); /* on the loop; may free it */
};

/* @n_disks: disks that may be asked. @n_shared: threads beside one for each disk, at least 1. */
int hf_disk_queue_new(struct hf_disk_queue **fairp, struct hf_loop *loop, size_t n_disks, size_t n_shared);
/* To stop, as with hf_jobs_wait(). */
void hf_disk_queue_wait(struct hf_disk_queue *queue);
struct hf_disk_queue *hf_disk_queue_free(struct hf_disk_queue *queue);

HF_DEFINE_CLEANUP(struct hf_disk_queue *, hf_disk_queue_free)

/* @disk: any number that names it. @from: the address to charge, as in vfs/client_queue.h. run() and done()
 * are called, in this order. -ENOMEM: neither is. */
int hf_disk_queue_ask(struct hf_disk_queue *queue, uint64_t disk, struct hf_question *question,
		      const struct hf_addr *from, void (*run)(struct hf_question *question),
		      void (*done)(struct hf_question *question));
