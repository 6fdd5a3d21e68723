/*
 * The paths of the files in a list.
 *
 * Finding a path may need a disk, and a disk may hang. So a file thread looks,
 * one at a time for the whole API. The request waits a limited time and is then
 * shown with the paths found so far. Neither the loop nor the HTTP thread
 * waits.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "api/files.h"
#include "api/internal.h"
#include "vfs/jobs.h"

#define PATIENCE_NS HF_NS_PER_S
/* Bounds the memory of lookups that a hung disk holds up. Beyond it a list comes without paths. */
#define MAX_NAMINGS 32

struct named {
	_Atomic(char *) path; /* NULL: not found, or not looked up yet */
	uint32_t handle_len;
	uint8_t handle[HF_LOCK_HANDLE_MAX];
};

/* (l) the loop's thread alone, (c) constant once it is submitted */
struct naming {
	struct hf_job job;
	struct hf_link link;            /* (l) in api->namings, while its request waits */
	struct hf_api *api;             /* (c) */
	struct hf_api_request *request; /* (l) NULL: the request no longer waits */
	struct hf_timer timer;          /* (l) */
	_Atomic bool is_late;           /* the request no longer waits: skip the rest */
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

		/* The locks of an owner in one file follow each other in a list. */
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
			rows[i].file = hf_api_copy(request, path, strlen(path));
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
