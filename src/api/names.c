/*
 * The paths of the files in a list.
 *
 * To find one a disk may have to be asked, and a disk may be dead. So a thread
 * for files looks, one for the whole API at a time; the request waits for it, but
 * not for long, and is then shown with what was found by then. Neither the loop
 * nor the HTTP thread waits for anything.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "api/files.h"
#include "api/internal.h"
#include "vfs/jobs.h"

#define PATIENCE_NS HF_NS_PER_S
/* Fewer than src/vfs/jobs.c passes over to find one that need not wait. */
#define MAX_NAMINGS 32

struct named {
	_Atomic(char *) path; /* NULL: not found, or not yet */
	uint32_t handle_len;
	uint8_t handle[HF_LOCK_HANDLE_MAX];
};

/* (l) the loop's thread alone, (c) constant once it is submitted */
struct naming {
	struct hf_job job;
	struct hf_link link;            /* (l) in api->namings, while its request waits */
	struct hf_api *api;             /* (c) */
	struct hf_api_request *request; /* (l) NULL: it went on */
	struct hf_timer timer;          /* (l) */
	_Atomic bool is_late;           /* nobody wants the rest */
	size_t n;                       /* (c) */
	struct named files[];
};

/* On a thread for files */

static bool is_same(const struct named *a, const struct named *b)
{
	return hf_bytes_equal(hf_bytes_of(a->handle, a->handle_len), hf_bytes_of(b->handle, b->handle_len));
}

static void run(struct hf_job *job)
{
	struct naming *naming = hf_container_of(job, struct naming, job);
	char path[HF_API_MAX_PATH];
	bool is_known = false;

	for (size_t i = 0; i < naming->n && !atomic_load(&naming->is_late); i++) {
		struct named *file = &naming->files[i];

		/* A list has the locks of an owner in a file one after another. */
		if (i == 0 || !is_same(file, file - 1))
			is_known = hf_api_file_path(naming->api->options.exports,
						    hf_bytes_of(file->handle, file->handle_len), path,
						    sizeof(path));
		if (is_known)
			atomic_store(&file->path, strdup(path));
	}
	hf_jobs_release(job->jobs, job->key);
	hf_job_complete(job);
	/* @naming may be gone here */
}

/* On the loop */

static void go_on(struct naming *naming)
{
	struct hf_api_request *request = naming->request;
	struct hf_api_lock_row *rows = request->rows;

	for (size_t i = 0; i < naming->n && hf_api_has_room(request); i++) {
		const char *path = atomic_load(&naming->files[i].path);

		if (path)
			rows[i].file = hf_api_keep(request, path, strlen(path));
	}
	atomic_store(&naming->is_late, true);
	hf_timer_stop(&naming->timer);
	hf_link_remove(&naming->link);
	naming->request = NULL;
	hf_api_resume(request);
}

static void on_late(struct hf_timer *timer)
{
	go_on(hf_container_of(timer, struct naming, timer));
}

static void done(struct hf_job *job)
{
	struct naming *naming = hf_container_of(job, struct naming, job);

	if (naming->request)
		go_on(naming);
	naming->api->n_namings--;
	for (size_t i = 0; i < naming->n; i++)
		free(atomic_load(&naming->files[i].path));
	free(naming);
}

bool hf_api_name_files(struct hf_api_request *request)
{
	struct hf_api *api = request->api;
	const struct hf_api_lock_row *rows = request->rows;
	struct naming *naming;

	if (!request->route->shows_files || request->code || !request->n_rows || !api->options.jobs ||
	    api->n_namings >= MAX_NAMINGS)
		return false;
	naming = calloc(1, sizeof(*naming) + request->n_rows * sizeof(naming->files[0]));
	if (!naming)
		return false;
	naming->api = api;
	naming->request = request;
	naming->n = request->n_rows;
	for (size_t i = 0; i < naming->n; i++) {
		naming->files[i].handle_len = rows[i].handle_len;
		memcpy(naming->files[i].handle, rows[i].handle, rows[i].handle_len);
	}
	hf_timer_init(&naming->timer, api->options.loop, on_late);
	if (hf_timer_start(&naming->timer, PATIENCE_NS) < 0) {
		free(naming);
		return false;
	}
	hf_list_push_back(&api->namings, &naming->link);
	api->n_namings++;
	naming->job.key = (uintptr_t)api;
	hf_jobs_submit_open(api->options.jobs, api->options.loop, &naming->job, NULL, run, done);
	return true;
}

void hf_api_names_stop(struct hf_api *api)
{
	struct hf_link *link;

	while ((link = hf_list_first(&api->namings)))
		go_on(hf_list_entry(link, struct naming, link));
}
