#include "daemon/loop_threads.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/error.h"
#include "loop/loop.h"

struct member {
	struct hf_loop *loop;
	pthread_t thread;
};

struct hf_loop_threads {
	size_t n;
	size_t n_running;
	struct member members[];
};

int hf_loop_threads_new(struct hf_loop_threads **crewp, size_t n)
{
	hf_cleanup(hf_loop_threads_freep) struct hf_loop_threads *crew =
		calloc(1, sizeof(*crew) + n * sizeof(crew->members[0]));
	int r;

	if (!crew)
		return hf_trace(-ENOMEM);
	for (; crew->n < n; crew->n++) {
		r = hf_loop_new(&crew->members[crew->n].loop);
		if (r < 0)
			return hf_trace(r);
	}
	*crewp = crew;
	crew = NULL;
	return 0;
}

struct hf_loop_threads *hf_loop_threads_free(struct hf_loop_threads *crew)
{
	if (!crew)
		return NULL;
	hf_loop_threads_stop(crew);
	for (size_t i = 0; i < crew->n; i++)
		hf_loop_free(crew->members[i].loop);
	free(crew);
	return NULL;
}

size_t hf_loop_threads_size(const struct hf_loop_threads *crew)
{
	return crew->n;
}

struct hf_loop *hf_loop_threads_loop(const struct hf_loop_threads *crew, size_t i)
{
	return crew->members[i].loop;
}

static void *run(void *user)
{
	struct member *member = user;

	hf_loop_run(member->loop);
	return NULL;
}

int hf_loop_threads_start(struct hf_loop_threads *crew)
{
	sigset_t all, before;
	int r = 0;

	/* Only the home loop receives signals. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (crew->n_running < crew->n && r == 0) {
		struct member *member = &crew->members[crew->n_running];

		r = -pthread_create(&member->thread, NULL, run, member);
		if (r == 0)
			crew->n_running++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return hf_trace(r);
}

void hf_loop_threads_stop(struct hf_loop_threads *crew)
{
	for (size_t i = 0; i < crew->n_running; i++)
		hf_loop_stop(crew->members[i].loop);
	for (size_t i = 0; i < crew->n_running; i++)
		pthread_join(crew->members[i].thread, NULL);
	crew->n_running = 0;
}

void hf_loop_threads_drain(struct hf_loop_threads *crew, struct hf_loop *home)
{
	bool is_more;

	do {
		is_more = hf_loop_drain(home);
		for (size_t i = 0; i < crew->n; i++)
			is_more |= hf_loop_drain(crew->members[i].loop);
	} while (is_more);
}
