/*
 * Questions to several disks, on threads of their own, so that a disk that does
 * not answer holds up no question to another.
 *
 * Each disk has a thread of its own, so that any number of dead ones leave one to
 * each that lives. Beside those there are some for all: a disk may have half of what
 * the others leave of them. What comes for a disk that has its share waits, and is
 * taken up in handfuls when a thread comes back; addresses take turns there
 * (vfs/turns.h). Of disks that are more than was said at the start, each takes its
 * own from those for all, while there are any. Belongs to the thread of its loop.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "vfs/turns.h"

struct hf_fair;
struct hf_loop;

struct hf_question {
	struct hf_turn turn;
	struct hf_link link;                        /* while it is asked */
	void (*run)(struct hf_question *question);  /* on one of the threads */
	void (*done)(struct hf_question *question); /* on the loop; may free it */
};

/* @n_disks: that may be asked, @n_shared: threads beside one for each of them, at least 1. */
int hf_fair_new(struct hf_fair **fairp, struct hf_loop *loop, size_t n_disks, size_t n_shared);
/* To stop, as with hf_jobs_wait(). */
void hf_fair_wait(struct hf_fair *fair);
struct hf_fair *hf_fair_free(struct hf_fair *fair);

HF_DEFINE_CLEANUP(struct hf_fair *, hf_fair_free)

/* @disk: which, by any number. @from: for whom, as in vfs/turns.h. run() and done() are called, in this
 * order. -ENOMEM: neither is. */
int hf_fair_ask(struct hf_fair *fair, uint64_t disk, struct hf_question *question, const struct hf_addr *from,
		void (*run)(struct hf_question *question), void (*done)(struct hf_question *question));
