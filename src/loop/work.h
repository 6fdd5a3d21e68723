/*
 * Work that blocks (a sync of a file, a look-up): run() is called on a thread
 * of the pool, then done() on the loop's own. In between nobody else touches
 * what run() uses. In a simulated world both happen when the world says so.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct hf_loop;

struct hf_work {
	struct hf_loop *loop;
	void (*run)(struct hf_work *work);  /* on a thread of the pool */
	void (*done)(struct hf_work *work); /* on the loop; @work may be submitted again or freed in here */
	void *request;                      /* the world's; NULL: not under way */
};

/* How many works can run at a time, of all loops of the real world together. To be said while there is one
 * thread, and before the first is submitted. */
void hf_work_set_threads(size_t n);
/* -ENOMEM at worst. A work that is under way must not be submitted again. */
int hf_work_submit(struct hf_loop *loop, struct hf_work *work, void (*run)(struct hf_work *work),
		   void (*done)(struct hf_work *work));
/* Blocks until run() is over, or prevents it; done() is not called any more. Idle works are left alone. */
void hf_work_cancel(struct hf_work *work);

static inline bool hf_work_is_running(const struct hf_work *work)
{
	return work->request != NULL;
}
