/* The loop of the real world: the order of a turn, timers, posts from other threads. */
#include "../test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "loop/backend.h"
#include "loop/loop.h"
#include "loop/timer.h"

static struct hf_loop *loop;
static char trail[256];

static void leave(char mark)
{
	size_t len = strlen(trail);

	assert_true(len + 1 < sizeof(trail));
	trail[len] = mark;
	trail[len + 1] = '\0';
}

static int set_up(void **state)
{
	trail[0] = '\0';
	return hf_loop_new(&loop);
}

static int tear_down(void **state)
{
	loop = hf_loop_free(loop);
	assert_null(hf_loop_free(NULL));
	return 0;
}

struct marked {
	struct hf_task task;
	struct hf_timer timer;
	char mark;
	struct marked *next; /* deferred by this one */
	bool stops;
};

static void on_task(struct hf_task *task)
{
	struct marked *m = hf_container_of(task, struct marked, task);

	leave(m->mark);
	if (m->next)
		hf_loop_defer(loop, &m->next->task);
	if (m->stops)
		hf_loop_stop(loop);
}

static void on_timer(struct hf_timer *timer)
{
	struct marked *m = hf_container_of(timer, struct marked, timer);

	assert_false(hf_timer_is_running(timer));
	assert_true(hf_loop_now(loop) >= timer->deadline);
	leave(m->mark);
	if (m->next)
		hf_loop_defer(loop, &m->next->task);
	if (m->stops)
		hf_loop_stop(loop);
}

static struct marked marked(char mark)
{
	struct marked m = { .mark = mark };

	return m;
}

static void init(struct marked *m)
{
	hf_task_init(&m->task, on_task);
	hf_timer_init(&m->timer, loop, on_timer);
}

static void test_defer_order(void **state)
{
	struct marked a = marked('a'), b = marked('b'), c = marked('c'), d = marked('d');

	init(&a);
	init(&b);
	init(&c);
	init(&d);
	a.next = &d; /* deferred while they run: at the end of the same turn */
	hf_loop_defer(loop, &a.task);
	hf_loop_defer(loop, &b.task);
	hf_loop_defer(loop, &a.task); /* again is nothing */
	hf_loop_defer(loop, &c.task);
	hf_task_cancel(&b.task);
	hf_task_cancel(&b.task);
	d.stops = true;
	hf_loop_run(loop);
	assert_string_equal(trail, "acd");
}

static void test_defer_last(void **state)
{
	struct marked a = marked('a'), b = marked('b'), c = marked('c');

	init(&a);
	init(&b);
	init(&c);
	hf_loop_defer(loop, &a.task);
	hf_loop_defer(loop, &b.task);
	hf_loop_defer_last(loop, &a.task); /* moves */
	hf_loop_defer_last(loop, &c.task); /* was not deferred */
	c.stops = true;
	hf_loop_run(loop);
	assert_string_equal(trail, "bac");
}

static void test_timer_order(void **state)
{
	struct marked m[5];

	for (int i = 0; i < 5; i++) {
		m[i] = marked((char)('0' + i));
		init(&m[i]);
	}
	hf_timer_start(&m[0].timer, 30 * HF_NS_PER_MS);
	hf_timer_start(&m[1].timer, 10 * HF_NS_PER_MS);
	hf_timer_start(&m[2].timer, 20 * HF_NS_PER_MS);
	hf_timer_start(&m[3].timer, 5 * HF_NS_PER_MS);
	hf_timer_start(&m[4].timer, 1 * HF_NS_PER_MS);
	hf_timer_start(&m[4].timer, 40 * HF_NS_PER_MS); /* moved */
	hf_timer_stop(&m[2].timer);
	hf_timer_stop(&m[2].timer);
	m[4].stops = true;
	hf_loop_run(loop);
	assert_string_equal(trail, "3104");
}

/* How late one timer is, which is never too early. */
static uint64_t lateness_of(uint64_t delay)
{
	struct marked m = marked('x');
	uint64_t began;

	init(&m);
	m.stops = true;
	began = hf_loop_now(loop);
	hf_timer_start(&m.timer, delay);
	hf_loop_run(loop);
	assert_true(hf_loop_now(loop) - began >= delay);
	return hf_loop_now(loop) - began - delay;
}

static void test_timer_punctual(void **state)
{
	static const uint64_t delays[] = { 0, 1, 999999, 1000000, 1500000, 20000001 };

	for (size_t i = 0; i < HF_ARRAY_SIZE(delays); i++) {
		uint64_t late = UINT64_MAX;

		/* The machine may be late itself, but not each time. */
		for (int try = 0; try < 20 && late > 100 * HF_NS_PER_MS; try++)
			late = lateness_of(delays[i]);
		assert_in_range(late, 0, 100 * HF_NS_PER_MS);
		trail[0] = '\0';
	}
}

/* A deadline of zero is as good as any that has passed, also when nothing else wakes the loop. */
static void start_at_zero(struct hf_task *task)
{
	struct marked *m = hf_container_of(task, struct marked, task);

	hf_timer_start_at(&m->timer, 0);
}

static void test_deadline_zero(void **state)
{
	struct marked m = marked('z'), guard = marked('!');

	init(&m);
	init(&guard);
	hf_task_init(&m.task, start_at_zero);
	m.stops = guard.stops = true;
	hf_timer_start(&guard.timer, 5 * HF_NS_PER_S);
	hf_timer_stop(&guard.timer);
	hf_loop_defer(loop, &m.task);
	alarm(20); /* in vain is for ever */
	hf_loop_run(loop);
	alarm(0);
	assert_string_equal(trail, "z");
}

/* One that starts itself anew without delay does not keep others, or the loop, from their turn. */
struct spinner {
	struct hf_timer timer;
	int n;
};

static void on_spin(struct hf_timer *timer)
{
	struct spinner *s = hf_container_of(timer, struct spinner, timer);

	s->n++;
	hf_timer_start(timer, 0);
}

static void test_spinning_timer(void **state)
{
	struct spinner s = { 0 };
	struct marked m = marked('m');

	init(&m);
	m.stops = true;
	hf_timer_init(&s.timer, loop, on_spin);
	hf_timer_start(&s.timer, 0);
	hf_timer_start(&m.timer, 10 * HF_NS_PER_MS);
	hf_loop_run(loop);
	assert_true(s.n > 1);
	hf_timer_stop(&s.timer);
}

/* Timers first, then what they deferred, in one turn. */
static void test_timers_then_deferred(void **state)
{
	struct marked a = marked('a'), b = marked('b'), d = marked('d');

	init(&a);
	init(&b);
	init(&d);
	hf_timer_start(&a.timer, 0);
	hf_timer_start(&b.timer, 0);
	a.next = &d;
	d.stops = true;
	hf_loop_run(loop);
	assert_string_equal(trail, "abd");
}

/* Time stands still within a turn. */
static uint64_t seen[2];

static uint64_t real_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * HF_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void look_at_clock(struct hf_timer *timer)
{
	struct marked *m = hf_container_of(timer, struct marked, timer);
	uint64_t began = real_now();

	seen[m->mark == 'b'] = hf_loop_now(loop);
	while (real_now() < began + HF_NS_PER_MS)
		;
	if (m->stops)
		hf_loop_stop(loop);
}

static void test_clock(void **state)
{
	struct marked a = marked('a'), b = marked('b');
	uint64_t before = hf_loop_now(loop);

	init(&a);
	init(&b);
	a.timer.fn = b.timer.fn = look_at_clock;
	b.stops = true;
	hf_timer_start_at(&a.timer, before + HF_NS_PER_MS);
	hf_timer_start_at(&b.timer, before + HF_NS_PER_MS);
	hf_loop_run(loop);
	assert_true(seen[0] > before);
	assert_true(seen[0] == seen[1]);
	assert_true(hf_loop_now(loop) >= seen[1] + 2 * HF_NS_PER_MS); /* and goes on after */
	assert_true(hf_loop_wall(loop) > UINT64_C(1600000000) * HF_NS_PER_S);
}

/* Posts */

#define N_THREADS 4
#define N_POSTS   2000

struct post {
	struct hf_task task;
	int thread;
	int number;
};

static struct post posts[N_THREADS][N_POSTS];
static int n_ran[N_THREADS];
static int n_all;
static pthread_t loop_thread;

static void on_post(struct hf_task *task)
{
	struct post *post = hf_container_of(task, struct post, task);

	assert_true(pthread_equal(pthread_self(), loop_thread));
	assert_int_equal(post->number, n_ran[post->thread]++); /* in the order of each poster */
	if (++n_all == N_THREADS * N_POSTS)
		hf_loop_stop(loop);
}

static void *post_all(void *arg)
{
	int thread = *(int *)arg;

	for (int i = 0; i < N_POSTS; i++) {
		posts[thread][i] = (struct post){ .thread = thread, .number = i };
		hf_task_init(&posts[thread][i].task, on_post);
		hf_loop_post(loop, &posts[thread][i].task);
	}
	return NULL;
}

static void test_posts(void **state)
{
	pthread_t threads[N_THREADS];
	int numbers[N_THREADS];

	n_all = 0;
	loop_thread = pthread_self();
	for (int i = 0; i < N_THREADS; i++) {
		numbers[i] = i;
		n_ran[i] = 0;
		pthread_create(&threads[i], NULL, post_all, &numbers[i]);
	}
	hf_loop_run(loop);
	for (int i = 0; i < N_THREADS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(n_ran[i], N_POSTS);
	}
}

/* What was posted before the loop ends runs, at the latest when it is freed; also what those post. */
static void repost(struct hf_task *task)
{
	struct marked *m = hf_container_of(task, struct marked, task);

	leave(m->mark);
	if (m->next) {
		struct marked *next = m->next;

		m->next = NULL;
		hf_loop_post(loop, &next->task);
	}
}

static void on_late(struct hf_timer *timer)
{
	assert_true(hf_loop_stood_still_lately(loop, HF_NS_PER_S));
	leave('l');
	hf_loop_stop(loop);
}

/* The time of a timer has passed while the process did nothing. */
static void test_standstill(void **state)
{
	struct hf_timer timer;

	hf_timer_init(&timer, loop, on_late);
	assert_false(hf_loop_stood_still_lately(loop, HF_NS_PER_S));
	assert_int_equal(hf_timer_start_at(&timer, hf_loop_now(loop) - HF_LOOP_STANDSTILL_NS - 1), 0);
	assert_true(hf_loop_stood_still_lately(loop, HF_NS_PER_S)); /* before any timer has run */
	assert_int_equal(hf_loop_run(loop), 0);
	assert_string_equal(trail, "l");
	assert_false(hf_loop_stood_still_lately(loop, 0));
}

static uint64_t slept_ns;

static uint64_t boottime_of_a_sleeper(struct hf_loop *sleeper)
{
	return hf_loop_clock(sleeper) + slept_ns;
}

/* No timer is late: their clock stood still, too. */
static void test_sleep_of_the_machine(void **state)
{
	const struct hf_loop_ops *real = loop->ops;
	struct hf_loop_ops ops = *real;
	struct hf_loop_mark mark;

	ops.boottime = boottime_of_a_sleeper;
	loop->ops = &ops;
	slept_ns = 0;
	assert_false(hf_loop_stood_still_lately(loop, HF_NS_PER_S));
	mark = hf_loop_mark(loop);
	slept_ns = HF_LOOP_STANDSTILL_NS / 2; /* as if the turn took that long */
	assert_false(hf_loop_stood_still_lately(loop, HF_NS_PER_S));
	slept_ns += 5 * HF_NS_PER_S;
	assert_true(hf_loop_stood_still_lately(loop, HF_NS_PER_S));
	assert_true(hf_loop_stood_still(loop, &mark));
	mark = hf_loop_mark(loop);
	assert_false(hf_loop_stood_still_lately(loop, 0));
	assert_false(hf_loop_stood_still(loop, &mark));
	slept_ns += 5 * HF_NS_PER_S;
	assert_true(hf_loop_stood_still(loop, &mark)); /* before anything else has compared the clocks */
	loop->ops = real;
}

static void test_standstill_without_the_lease(void **state)
{
	uint64_t now = hf_loop_boottime(loop);
	struct hf_lease lease = { 0 };

	hf_lease_set(&lease, now + HF_NS_PER_S, now - HF_NS_PER_S); /* since a second */
	hf_loop_set_lease(loop, &lease);
	assert_false(hf_loop_stood_still_lately(loop, HF_NS_PER_S));
	assert_true(hf_loop_stood_still_lately(loop, 3600 * HF_NS_PER_S));
	hf_loop_set_lease(loop, NULL);
}

static void test_posts_before_the_end(void **state)
{
	struct marked a = marked('a'), b = marked('b'), c = marked('c');

	init(&a);
	init(&b);
	init(&c);
	a.task.run = b.task.run = repost;
	a.next = &b;
	b.next = &c;
	hf_loop_post(loop, &a.task);
	loop = hf_loop_free(loop);
	assert_string_equal(trail, "abc");
	assert_int_equal(hf_loop_new(&loop), 0);
}

static void *stop_soon(void *arg)
{
	hf_loop_stop(loop);
	return NULL;
}

static void test_stop(void **state)
{
	pthread_t thread;

	hf_loop_stop(loop); /* before it runs: it ends at once */
	hf_loop_run(loop);
	pthread_create(&thread, NULL, stop_soon, NULL);
	hf_loop_run(loop);
	pthread_join(thread, NULL);
}

static void test_random(void **state)
{
	uint8_t a[64] = { 0 }, b[64] = { 0 };

	hf_loop_random(loop, a, sizeof(a));
	hf_loop_random(loop, b, sizeof(b));
	assert_memory_not_equal(a, b, sizeof(a));
}

static uint64_t first_now;

static void note_now(struct hf_task *task)
{
	first_now = hf_loop_now(loop);
	hf_loop_stop(loop);
}

/* What was set up before, for however long, is no part of the first turn: time-outs would begin in the past.
 */
static void test_first_turn_has_its_own_time(void **state)
{
	struct hf_task task;
	uint64_t asked = hf_loop_now(loop), began;

	do
		began = hf_loop_clock(loop);
	while (began < asked + HF_NS_PER_MS);
	hf_task_init(&task, note_now);
	hf_loop_defer(loop, &task);
	hf_loop_run(loop);
	assert_true(first_now >= began);
}

static void on_signal(void *user, int signum)
{
	leave(*(const char *)user);
	hf_loop_stop(loop);
}

static void catch_signal(int signum, const char *mark)
{
	assert_int_equal(hf_loop_on_signal(loop, signum, on_signal, (void *)(uintptr_t)mark), 0);
}

static void test_signals(void **state)
{
	catch_signal(SIGTERM, "t");
	catch_signal(SIGHUP, "h");
	raise(SIGTERM);
	raise(SIGTERM);
	hf_loop_run(loop);
	assert_string_equal(trail, "t");
	raise(SIGHUP);
	hf_loop_run(loop);
	assert_string_equal(trail, "th");
}

/* One loop follows another in a node of a cluster. */
static void test_a_signal_that_came_too_late_for_its_loop(void **state)
{
	catch_signal(SIGTERM, "1");
	raise(SIGTERM);
	hf_loop_free(loop);
	assert_int_equal(hf_loop_new(&loop), 0);
	catch_signal(SIGTERM, "2");
	hf_loop_run(loop);
	assert_string_equal(trail, "2");
}

static void test_a_signal_between_two_loops(void **state)
{
	catch_signal(SIGTERM, "1");
	hf_loop_free(loop);
	raise(SIGTERM);
	assert_int_equal(hf_loop_new(&loop), 0);
	catch_signal(SIGHUP, "h");
	catch_signal(SIGTERM, "2");
	hf_loop_run(loop);
	assert_string_equal(trail, "2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(test_defer_order),
		TEST(test_defer_last),
		TEST(test_timer_order),
		TEST(test_timer_punctual),
		TEST(test_deadline_zero),
		TEST(test_spinning_timer),
		TEST(test_timers_then_deferred),
		TEST(test_clock),
		TEST(test_first_turn_has_its_own_time),
		TEST(test_posts),
		TEST(test_standstill),
		TEST(test_sleep_of_the_machine),
		TEST(test_standstill_without_the_lease),
		TEST(test_posts_before_the_end),
		TEST(test_stop),
		TEST(test_random),
		TEST(test_signals),
		TEST(test_a_signal_that_came_too_late_for_its_loop),
		TEST(test_a_signal_between_two_loops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
