#include "vfs/syncer.h"

#include <assert.h>

#include "vfs/file.h"

#define MAX_DISTINCT \
	64 /* files of one round that are remembered as done; more are synced again, which is cheap */

struct round {
	size_t n;
	struct {
		const struct hf_file *file;
		int result;
	} done[MAX_DISTINCT];
};

void hf_syncer_init(struct hf_syncer *syncer)
{
	pthread_mutex_init(&syncer->lock, NULL);
	hf_list_init(&syncer->waiting);
	syncer->is_busy = false;
}

void hf_syncer_deinit(struct hf_syncer *syncer)
{
	assert(hf_list_is_empty(&syncer->waiting) && !syncer->is_busy);
	pthread_mutex_destroy(&syncer->lock);
}

static int sync_once(struct round *round, struct hf_file *file)
{
	int r;

	for (size_t i = 0; i < round->n; i++)
		if (round->done[i].file == file)
			return round->done[i].result;
	r = hf_file_sync(file);
	if (round->n < MAX_DISTINCT) {
		round->done[round->n].file = file;
		round->done[round->n++].result = r;
	}
	return r;
}

/* All who came before the round began; the files are held by their references. */
static void run_round(struct hf_list *batch)
{
	struct round round = { 0 };
	struct hf_link *link;

	hf_list_for_each(each, batch) {
		struct hf_sync *sync = hf_list_entry(each, struct hf_sync, link);

		sync->result = 0;
		for (size_t i = 0; i < HF_SYNC_FILES && sync->result == 0; i++)
			if (sync->files[i])
				sync->result = sync_once(&round, sync->files[i]);
	}
	while ((link = hf_list_pop_front(batch))) {
		struct hf_sync *sync = hf_list_entry(link, struct hf_sync, link);

		sync->told(sync);
		/* @sync may be gone here */
	}
}

void hf_syncer_submit(struct hf_syncer *syncer, struct hf_sync *sync)
{
	struct hf_list batch = HF_LIST_INIT(batch);
	bool must_go;

	pthread_mutex_lock(&syncer->lock);
	hf_list_push_back(&syncer->waiting, &sync->link);
	must_go = !syncer->is_busy;
	syncer->is_busy = true;
	while (must_go && !hf_list_is_empty(&syncer->waiting)) {
		hf_list_splice(&batch, &syncer->waiting);
		pthread_mutex_unlock(&syncer->lock);
		run_round(&batch);
		pthread_mutex_lock(&syncer->lock);
	}
	if (must_go)
		syncer->is_busy = false;
	pthread_mutex_unlock(&syncer->lock);
}
