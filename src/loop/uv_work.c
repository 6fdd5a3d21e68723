/*
 * Blocking work on libuv's thread pool. The request of a cancelled work outlives it: libuv
 * returns it later.
 */
#include "loop/work.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "loop/uv_internal.h"

#define MOST_THREADS 1024 /* libuv's own limit */

struct uv_request {
	uv_work_t uv;
	struct hf_work *work; /* (l) NULL: cancelled */
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool has_run; /* under lock */
};

static void on_run(uv_work_t *uv)
{
	struct uv_request *request = uv->data;

	request->work->run(request->work);
	pthread_mutex_lock(&request->lock);
	request->has_run = true;
	pthread_cond_signal(&request->ended);
	pthread_mutex_unlock(&request->lock);
}

static void on_done(uv_work_t *uv, int status)
{
	struct uv_request *request = uv->data;
	struct hf_work *work = request->work;

	uv_world_serves(uv->loop->data);
	pthread_cond_destroy(&request->ended);
	pthread_mutex_destroy(&request->lock);
	free(request);
	if (!work)
		return;
	work->request = NULL;
	work->done(work);
	/* @work may be freed here */
}

/* libuv takes the number from the environment, and four if it is not there. */
void hf_work_set_threads(size_t n)
{
	char text[32];

	snprintf(text, sizeof(text), "%zu", HF_MIN(n, (size_t)MOST_THREADS));
	setenv("UV_THREADPOOL_SIZE", text, 1);
}

int uv_work_submit_to(struct hf_loop *loop, struct hf_work *work)
{
	struct uv_request *request = calloc(1, sizeof(*request));
	int r;

	if (!request)
		return hf_trace(-ENOMEM);
	request->uv.data = request;
	request->work = work;
	pthread_mutex_init(&request->lock, NULL);
	pthread_cond_init(&request->ended, NULL);
	work->request = request;
	r = uv_queue_work(&uv_world_of(loop)->uv, &request->uv, on_run, on_done);
	if (r < 0) {
		work->request = NULL;
		free(request);
		return hf_trace(r);
	}
	return 0;
}

void uv_work_cancel_of(struct hf_work *work)
{
	struct uv_request *request = work->request;

	if (uv_cancel((uv_req_t *)&request->uv) < 0) {
		pthread_mutex_lock(&request->lock);
		while (!request->has_run)
			pthread_cond_wait(&request->ended, &request->lock);
		pthread_mutex_unlock(&request->lock);
	}
	request->work = NULL;
	work->request = NULL;
}
