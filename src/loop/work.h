/*
 * Work that blocks (a sync of a file, a look-up). run() is called on a thread of the pool, then
 * done() on the loop's own thread. In between no other code touches what run() uses. In a
 * simulated world both run when the world decides.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct hf_loop;

struct hf_work {
	struct hf_loop *loop;
	void (*run)(struct hf_work *work);  /* on a thread of the pool */
	void (*done)(struct hf_work *work); /* on the loop; may submit @work again or free it */
	void *request;                      /* the world's; NULL: not under way */
};

/* How many works can run at a time, for all loops of the real world together. Call it while there is one
 * thread, and before the first work is submitted. */
void hf_work_set_threads(size_t n);
/* The only error is -ENOMEM. Do not submit a work that is under way. */
int hf_work_submit(struct hf_loop *loop, struct hf_work *work, void (*run)(struct hf_work *work),
		   void (*done)(struct hf_work *work));
/* Blocks until run() has ended, or prevents it; done() is not called afterwards. Does nothing for an idle
 * work. */
void hf_work_cancel(struct hf_work *work);

static inline bool hf_work_is_running(const struct hf_work *work)
{
	return work->request != NULL;
}
