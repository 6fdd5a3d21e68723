/* Questions to disks, of which some do not answer: theirs wait for a lock that the test holds. */
#include "../turn.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/macros.h"
#include "loop/work.h"
#include "vfs/disk_queue.h"

#define N_SHARED    8
#define N_QUESTIONS 500
#define N_DISKS     12

struct disk {
	pthread_mutex_t lock; /* held: it is dead */
	_Atomic int n_running, n_done;
};

struct asked {
	struct hf_question question;
	struct disk *disk;
	bool has_run, is_done;
	int place; /* among those of its disk that were answered */
};

struct bed {
	struct hf_loop *loop;
	struct hf_disk_queue *disk_queue;
	struct disk disks[N_DISKS];
	struct asked *all[2 * N_DISKS * N_QUESTIONS];
	size_t n;
};

static void run(struct hf_question *question)
{
	struct asked *asked = hf_container_of(question, struct asked, question);

	assert_false(asked->has_run);
	atomic_fetch_add(&asked->disk->n_running, 1);
	pthread_mutex_lock(&asked->disk->lock);
	pthread_mutex_unlock(&asked->disk->lock);
	atomic_fetch_sub(&asked->disk->n_running, 1);
	asked->has_run = true;
}

static void done(struct hf_question *question)
{
	struct asked *asked = hf_container_of(question, struct asked, question);

	assert_true(asked->has_run && !asked->is_done);
	asked->is_done = true;
	asked->place = ++asked->disk->n_done;
}

static void ask_from(struct bed *bed, int disk, const struct hf_addr *from)
{
	struct asked *asked = bed->all[bed->n++] = calloc(1, sizeof(*asked));

	asked->disk = &bed->disks[disk];
	assert_int_equal(hf_disk_queue_ask(bed->disk_queue, (uint64_t)disk, &asked->question, from, run,
					   done),
			 0);
}

static void ask(struct bed *bed, int disk)
{
	ask_from(bed, disk, NULL);
}

static void ask_often(struct bed *bed, int disk)
{
	for (int i = 0; i < N_QUESTIONS; i++)
		ask(bed, disk);
}

static int set_up_for(void **state, size_t n_disks)
{
	struct bed *bed = calloc(1, sizeof(*bed));

	*state = bed;
	for (int i = 0; i < N_DISKS; i++)
		pthread_mutex_init(&bed->disks[i].lock, NULL);
	return hf_loop_new(&bed->loop) < 0 ||
	       hf_disk_queue_new(&bed->disk_queue, bed->loop, n_disks, N_SHARED) < 0;
}

static int set_up(void **state)
{
	return set_up_for(state, N_DISKS);
}

static int set_up_unknown(void **state)
{
	return set_up_for(state, 0);
}

static int tear_down(void **state)
{
	struct bed *bed = *state;

	hf_disk_queue_wait(bed->disk_queue);
	while (hf_loop_drain(bed->loop))
		;
	for (size_t i = 0; i < bed->n; i++) {
		assert_true(bed->all[i]->is_done);
		free(bed->all[i]);
	}
	hf_disk_queue_free(bed->disk_queue);
	hf_loop_free(bed->loop);
	free(bed);
	return 0;
}

static void test_all_are_answered(void **state)
{
	struct bed *bed = *state;

	for (int i = 0; i < 3; i++)
		ask_often(bed, i);
	for (int i = 0; i < 3; i++)
		turn_until(bed->loop, bed->disks[i].n_done == N_QUESTIONS);
}

/* Kills one disk after the other, and looks how many threads each holds, while the last lives. */
static void kill_some(struct bed *bed, const int *held, int n)
{
	for (int i = 0; i < n; i++) {
		pthread_mutex_lock(&bed->disks[i].lock);
		ask_often(bed, i);
		turn_until(bed->loop, bed->disks[i].n_running == held[i]);
		ask_often(bed, N_DISKS - 1);
		turn_until(bed->loop, bed->disks[N_DISKS - 1].n_done == (i + 1) * N_QUESTIONS);
		assert_int_equal(bed->disks[i].n_running, held[i]);
	}
	for (int i = 0; i < n; i++)
		pthread_mutex_unlock(&bed->disks[i].lock);
	for (int i = 0; i < n; i++)
		turn_until(bed->loop, bed->disks[i].n_done == N_QUESTIONS);
}

/* Each dead disk holds its own thread and half of the shared ones left. A living disk goes on. */
static void test_dead_disks_hold_up_no_other(void **state)
{
	static const int held[N_DISKS - 1] = { 5, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1 };

	kill_some(*state, held, N_DISKS - 1);
}

/* Twice: what the dead ones had is there again for all. */
static void test_dead_disks_come_back(void **state)
{
	struct bed *bed = *state;

	for (int round = 1; round <= 2; round++) {
		for (int i = 0; i < 2; i++)
			pthread_mutex_lock(&bed->disks[i].lock);
		ask_often(bed, 0);
		turn_until(bed->loop, bed->disks[0].n_running == 5);
		ask_often(bed, 1);
		turn_until(bed->loop, bed->disks[1].n_running == 3);
		for (int i = 0; i < 2; i++)
			pthread_mutex_unlock(&bed->disks[i].lock);
		for (int i = 0; i < 2; i++)
			turn_until(bed->loop, bed->disks[i].n_done == round * N_QUESTIONS);
	}
}

/* Disks that were not announced to the pool, so that they have no thread of their own. */
static void test_dead_disks_that_are_new(void **state)
{
	static const int held[] = { 4, 2, 1 };

	kill_some(*state, held, 3);
}

static void test_more_dead_disks_than_threads(void **state)
{
	struct bed *bed = *state;

	for (int i = 0; i < 4; i++) {
		pthread_mutex_lock(&bed->disks[i].lock);
		ask_often(bed, i);
	}
	ask_often(bed, 4);
	ask_often(bed, 5);
	pthread_mutex_unlock(&bed->disks[3].lock); /* one thread is enough for the rest */
	for (int i = 3; i < 6; i++)
		turn_until(bed->loop, bed->disks[i].n_done == N_QUESTIONS);
	for (int i = 0; i < 3; i++)
		pthread_mutex_unlock(&bed->disks[i].lock);
}

/* However many questions an address has: the other one's is in the next handful of a thread. */
static void test_many_of_an_address_hold_no_other_up(void **state)
{
	const struct hf_addr busy = { .ip = { 10, 0, 0, 1 }, .family = AF_INET, .port = 1000 };
	const struct hf_addr other = { .ip = { 10, 0, 0, 2 }, .family = AF_INET, .port = 1000 };
	struct bed *bed = *state;

	pthread_mutex_lock(&bed->disks[0].lock);
	for (int i = 0; i < N_QUESTIONS; i++)
		ask_from(bed, 0, &busy);
	ask_from(bed, 0, &other);
	turn_until(bed->loop, bed->disks[0].n_running == 5);
	pthread_mutex_unlock(&bed->disks[0].lock);
	turn_until(bed->loop, bed->all[bed->n - 1]->is_done);
	assert_in_range(bed->all[bed->n - 1]->place, 1, N_QUESTIONS / 2);
}

/* The loop does not run any more: teardown finds all questions answered. */
static void test_stop_with_questions(void **state)
{
	ask_often(*state, 0);
	ask_often(*state, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name, begin) cmocka_unit_test_setup_teardown(name, begin, tear_down)
		T(test_all_are_answered, set_up),
		T(test_all_are_answered, set_up_unknown),
		T(test_dead_disks_hold_up_no_other, set_up),
		T(test_dead_disks_come_back, set_up),
		T(test_dead_disks_that_are_new, set_up_unknown),
		T(test_more_dead_disks_than_threads, set_up_unknown),
		T(test_many_of_an_address_hold_no_other_up, set_up),
		T(test_stop_with_questions, set_up),
	};

	hf_work_set_threads(N_DISKS + N_SHARED);
	return cmocka_run_group_tests_name("fair", tests, NULL, NULL);
}
