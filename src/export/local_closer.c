#include "export/local_closer.h"

#include <stdlib.h>

#include "base/macros.h"
#include "vfs/file.h"

#define LEAST_ROOM 16

static void unpin_all(struct hf_file **files, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hf_file_unpin(files[i]);
	free(files);
}

static void run(struct hf_work *work)
{
	struct hf_local_closer *closer = hf_container_of(work, struct hf_local_closer, work);

	unpin_all(closer->taken, closer->n_taken);
	closer->taken = NULL;
}

static void on_done(struct hf_work *work);

/* Closes together what was handed over while the last work ran. */
static void go_on(struct hf_local_closer *closer)
{
	closer->taken = closer->waiting;
	closer->n_taken = closer->n_waiting;
	closer->waiting = NULL;
	closer->n_waiting = closer->room = 0;
	if (hf_work_submit(closer->loop, &closer->work, run, on_done) < 0) {
		run(&closer->work); /* no memory for the work: close on this thread */
		closer->n -= closer->n_taken;
	}
}

static void on_done(struct hf_work *work)
{
	struct hf_local_closer *closer = hf_container_of(work, struct hf_local_closer, work);

	closer->n -= closer->n_taken;
	if (closer->n_waiting)
		go_on(closer);
}

void hf_local_closer_unpin(struct hf_local_closer *closer, struct hf_file *file)
{
	if (closer->n_waiting == closer->room) {
		size_t room = HF_MAX((size_t)LEAST_ROOM, 2 * closer->room);
		struct hf_file **waiting = realloc(closer->waiting, room * sizeof(struct hf_file *));

		if (!waiting) {
			hf_file_unpin(file);
			return;
		}
		closer->waiting = waiting;
		closer->room = room;
	}
	closer->waiting[closer->n_waiting++] = file;
	closer->n++;
	if (!hf_work_is_running(&closer->work))
		go_on(closer);
}

void hf_local_closer_init(struct hf_local_closer *closer, struct hf_loop *loop)
{
	*closer = (struct hf_local_closer){ .loop = loop };
}

void hf_local_closer_deinit(struct hf_local_closer *closer)
{
	hf_work_cancel(&closer->work);
	if (closer->taken)
		unpin_all(closer->taken, closer->n_taken);
	unpin_all(closer->waiting, closer->n_waiting);
	hf_local_closer_init(closer, closer->loop);
}
