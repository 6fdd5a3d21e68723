/* Blocking work, handed to the threads of the world. */
#include "loop/work.h"

#include <assert.h>

#include "loop/backend.h"

int hf_work_submit(struct hf_loop *loop, struct hf_work *work, void (*run)(struct hf_work *work),
		   void (*done)(struct hf_work *work))
{
	assert(!work->request);
	work->loop = loop;
	work->run = run;
	work->done = done;
	return loop->ops->work_submit(loop, work);
}

void hf_work_cancel(struct hf_work *work)
{
	if (work->request)
		work->loop->ops->work_cancel(work);
}
