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

int hf_loop_threads_new(struct hf_loop_threads **threadsp, size_t n)
{
	hf_cleanup(hf_loop_threads_freep) struct hf_loop_threads *threads =
		calloc(1, sizeof(*threads) + n * sizeof(threads->members[0]));
	int r;

	if (!threads)
		return hf_trace(-ENOMEM);
	for (; threads->n < n; threads->n++) {
		r = hf_loop_new(&threads->members[threads->n].loop);
		if (r < 0)
			return hf_trace(r);
	}
	*threadsp = threads;
	threads = NULL;
	return 0;
}

struct hf_loop_threads *hf_loop_threads_free(struct hf_loop_threads *threads)
{
	if (!threads)
		return NULL;
	hf_loop_threads_stop(threads);
	for (size_t i = 0; i < threads->n; i++)
		hf_loop_free(threads->members[i].loop);
	free(threads);
	return NULL;
}

size_t hf_loop_threads_size(const struct hf_loop_threads *threads)
{
	return threads->n;
}

struct hf_loop *hf_loop_threads_loop(const struct hf_loop_threads *threads, size_t i)
{
	return threads->members[i].loop;
}

static void *run(void *user)
{
	struct member *member = user;

	hf_loop_run(member->loop);
	return NULL;
}

int hf_loop_threads_start(struct hf_loop_threads *threads)
{
	sigset_t all, before;
	int r = 0;

	/* Only the home loop receives signals. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (threads->n_running < threads->n && r == 0) {
		struct member *member = &threads->members[threads->n_running];

		r = -pthread_create(&member->thread, NULL, run, member);
		if (r == 0)
			threads->n_running++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return hf_trace(r);
}

void hf_loop_threads_stop(struct hf_loop_threads *threads)
{
	for (size_t i = 0; i < threads->n_running; i++)
		hf_loop_stop(threads->members[i].loop);
	for (size_t i = 0; i < threads->n_running; i++)
		pthread_join(threads->members[i].thread, NULL);
	threads->n_running = 0;
}

void hf_loop_threads_drain(struct hf_loop_threads *threads, struct hf_loop *home)
{
	bool is_more;

	do {
		is_more = hf_loop_drain(home);
		for (size_t i = 0; i < threads->n; i++)
			is_more |= hf_loop_drain(threads->members[i].loop);
	} while (is_more);
}
