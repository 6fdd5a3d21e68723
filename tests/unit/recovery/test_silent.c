/* A client that gives no sign of life, while another one waits for its lock. */
#include "one.h"

#include <stdlib.h>

#include "../turn.h"

#define TIME (60 * HF_NS_PER_S)
#define LONG (5 * TIME)

static struct hf_list questions;
static size_t n_asked;         /* questions to alpha */
static bool is_alpha_alive;    /* its host answers */
static bool is_carol_alive;    /* the waiter's */
static bool is_connected;      /* alpha has a connection */
static uint64_t contact_at;    /* when its last one was closed */
static uint64_t heard_at;      /* when a call came on one */
static bool is_asker_too_busy; /* no question can be asked */

struct question {
	struct hf_link link;
	struct hf_timer timer;
	bool answers;
	void (*done)(void *context, bool has_answered);
	void *context;
};

static void question_free(struct question *question)
{
	hf_link_remove(&question->link);
	hf_timer_stop(&question->timer);
	free(question);
}

static void on_answer(struct hf_timer *timer)
{
	struct question *question = hf_container_of(timer, struct question, timer);
	void (*done)(void *context, bool has_answered) = question->done;
	void *context = question->context;
	bool answers = question->answers;

	question_free(question);
	done(context, answers);
}

static int ask(void *user, struct hf_client *client, void (*done)(void *context, bool has_answered),
	       void *context)
{
	bool is_alpha = client == a();
	struct question *question;

	if (is_asker_too_busy)
		return -1;
	n_asked += is_alpha;
	question = calloc(1, sizeof(*question));
	*question = (struct question){ .answers = is_alpha ? is_alpha_alive : is_carol_alive,
				       .done = done,
				       .context = context };
	hf_list_push_back(&questions, &question->link);
	hf_timer_init(&question->timer, w.loop, on_answer);
	hf_timer_start(&question->timer, question->answers ? MS : 5 * HF_NS_PER_S);
	return 0;
}

static uint64_t last_contact(void *user, const struct hf_client *client, uint64_t now)
{
	if (client != a())
		return 0;
	return is_connected ? now : contact_at;
}

static uint64_t last_heard(void *user, const struct hf_client *client)
{
	return client == a() ? heard_at : 0;
}

static void join(void)
{
	static const struct hf_recovery_asker asker = { .ask = ask,
							.last_contact = last_contact,
							.last_heard = last_heard };

	hf_recovery_set_asker(w.recovery, &asker);
	assert_int_equal(hf_recovery_start(w.recovery), 0);
}

static int begin(void **state)
{
	hf_list_init(&questions);
	n_asked = contact_at = heard_at = 0;
	is_alpha_alive = is_connected = is_asker_too_busy = false;
	is_carol_alive = true;
	world_init(&w);
	w.options.release_silent_ns = TIME;
	w.options.grace = HF_RECOVERY_GRACE_NEVER;
	world_up(&w);
	join();
	return 0;
}

static int end(void **state)
{
	struct hf_link *link;

	while ((link = hf_list_first(&questions)))
		question_free(hf_list_entry(link, struct question, link));
	hf_recovery_set_asker(w.recovery, NULL);
	world_deinit(&w);
	return 0;
}

static void wait_for(struct hf_client *client, uint64_t owner)
{
	struct hf_lock_request request = world_request(client, owner, "f", 0, 9);

	request.wait = true;
	assert_int_equal(hf_lock_acquire(hf_recovery_locks(w.recovery), &request, NULL), HF_LOCK_E_QUEUED);
}

static void hold_and_wait(void)
{
	hf_client_answered(a());
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_lock(&w, a(), 1, "g", 0, 9), HF_LOCK_OK);
	wait_for(c(), 1);
}

static uint64_t count_released(void)
{
	struct hf_recovery_counts counts;

	hf_recovery_counts(w.recovery, &counts);
	return counts.silent_released;
}

static void expect_kept(void)
{
	turn_for(w.loop, LONG);
	assert_int_equal(count_released(), 0);
	assert_int_equal(a()->locking.n_locks, 2);
	assert_int_equal(w.n_granted, 0);
}

static void test_silent_client_gives_way(void **state)
{
	hold_and_wait();
	turn_for(w.loop, TIME - HF_NS_PER_S);
	assert_int_equal(count_released(), 0);
	assert_true(n_asked >= 3);
	turn_for(w.loop, TIME / 2);
	assert_int_equal(count_released(), 1);
	assert_int_equal(a()->locking.n_locks, 0);
	assert_int_equal(a()->status, HF_CLIENT_CRASHED);
	assert_int_equal(w.n_granted, 1);
	assert_int_equal(w.last[HF_EVENT_CLEANUP].n_locks, 2);
	assert_int_equal(w.last[HF_EVENT_CRASH].state, 0); /* no watcher is told of a restart */
}

static void test_client_that_answers_keeps_its_locks(void **state)
{
	hold_and_wait();
	is_alpha_alive = true;
	expect_kept();
	assert_in_range(n_asked, 5, 11); /* each answer begins the time anew */
	is_alpha_alive = false;
	turn_for(w.loop, 2 * TIME);
	assert_int_equal(count_released(), 1);
}

static void test_client_that_calls_keeps_its_locks(void **state)
{
	hold_and_wait();
	for (uint64_t past = 0; past < LONG; past += TIME * 3 / 4) {
		turn_for(w.loop, TIME * 3 / 4);
		hf_client_seen(a(), &a()->local);
	}
	assert_int_equal(count_released(), 0);
}

static void test_connection_is_a_sign_of_life(void **state)
{
	hold_and_wait();
	is_connected = true;
	expect_kept();
	assert_true(n_asked > 0);
	is_connected = false;
	contact_at = hf_loop_now(w.loop);
	turn_for(w.loop, TIME - HF_NS_PER_S);
	assert_int_equal(count_released(), 0); /* the whole time passes after its end */
	turn_for(w.loop, TIME / 2);
	assert_int_equal(count_released(), 1);
}

/* Each connection is over before the server looks. */
static void test_short_connections_are_signs_of_life(void **state)
{
	hold_and_wait();
	for (uint64_t past = 0; past < LONG; past += TIME * 3 / 4) {
		turn_for(w.loop, TIME * 3 / 4);
		contact_at = hf_loop_now(w.loop);
	}
	assert_int_equal(count_released(), 0);
	turn_for(w.loop, 2 * TIME);
	assert_int_equal(count_released(), 1);
}

static void test_host_that_never_answered_is_not_judged(void **state)
{
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_lock(&w, a(), 1, "g", 0, 9), HF_LOCK_OK);
	wait_for(c(), 1);
	expect_kept();
	assert_true(n_asked >= 3);
}

static void test_server_that_is_cut_off_releases_nothing(void **state)
{
	hold_and_wait();
	is_carol_alive = false;
	expect_kept();
	hf_client_seen(c(), &c()->local);
	is_carol_alive = true;
	turn_for(w.loop, TIME);
	assert_int_equal(count_released(), 1);
}

static void test_question_that_was_not_asked_counts_for_nothing(void **state)
{
	hold_and_wait();
	is_asker_too_busy = true;
	expect_kept();
	assert_int_equal(n_asked, 0);
}

static void test_only_others_count_as_waiters(void **state)
{
	hf_client_answered(a());
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_lock(&w, a(), 1, "g", 0, 9), HF_LOCK_OK);
	wait_for(a(), 2);
	expect_kept();
	assert_int_equal(n_asked, 0);
}

static void expect_silence(uint64_t ns)
{
	assert_int_equal(hf_recovery_silence_ns(w.recovery, a()), ns);
}

/* As operators see it. */
static void test_silence_begins_with_the_last_sign_of_life(void **state)
{
	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	turn_for(w.loop, TIME);
	hf_client_seen(a(), &a()->local);
	expect_silence(0);
	turn_for(w.loop, TIME);
	is_connected = true; /* and nothing comes */
	expect_silence(TIME);
	heard_at = hf_loop_now(w.loop);
	expect_silence(0);
	turn_for(w.loop, TIME);
	is_connected = false;
	contact_at = hf_loop_now(w.loop);
	expect_silence(TIME);
	hf_client_answered(a());
	expect_silence(0);
	turn_for(w.loop, TIME);
	heard_at = hf_loop_now(w.loop) + MS; /* by the clock of another loop */
	expect_silence(0);
}

/* Another run may have heard the client since the time that the store has. */
static void test_silence_begins_anew_with_the_server(void **state)
{
	uint64_t began = hf_loop_now(w.loop);

	assert_int_equal(world_lock(&w, a(), 1, "f", 0, 9), HF_LOCK_OK);
	a()->seen_at = 0; /* not in this run */
	turn_for(w.loop, TIME);
	expect_silence(hf_loop_now(w.loop) - began);
}

/* A node that sends nothing hears nothing. */
static void test_nothing_without_the_lease(void **state)
{
	struct hf_lease lease = { 0 };

	hf_lease_set(&lease, UINT64_MAX, hf_loop_boottime(w.loop));
	hf_loop_set_lease(w.loop, &lease);
	hold_and_wait();
	turn_for(w.loop, TIME * 3 / 4);
	assert_true(n_asked > 0);
	hf_lease_set(&lease, 1, hf_loop_boottime(w.loop)); /* it is over */
	expect_kept();
	hf_lease_set(&lease, UINT64_MAX, hf_loop_boottime(w.loop));
	n_asked = 0;
	turn_for(w.loop, TIME / 2 - HF_NS_PER_S);
	assert_int_equal(count_released(), 0); /* what was asked before counts for nothing */
	turn_for(w.loop, TIME);
	assert_int_equal(count_released(), 1);
	assert_true(n_asked >= 3);
	hf_loop_set_lease(w.loop, NULL);
}

/* A simulated restart: its clients have all of grace, and the waiter stays in its queue. */
static void test_nothing_in_grace(void **state)
{
	w.options.window_ns = LONG;
	w.options.early_end = false;
	world_kill(&w);
	world_up(&w);
	join();
	hold_and_wait();
	assert_int_equal(hf_recovery_simulate_crash(w.recovery), 0);
	world_until(&w, world_in_grace(&w));
	turn_for(w.loop, LONG - 5 * HF_NS_PER_S);
	assert_true(world_in_grace(&w));
	assert_int_equal(count_released(), 0);
	assert_int_equal(n_asked, 0);
}

static void test_off(void **state)
{
	w.options.release_silent_ns = 0;
	world_kill(&w);
	world_up(&w);
	join();
	hold_and_wait();
	expect_kept();
	assert_int_equal(n_asked, 0);
}

static void change(uint64_t time)
{
	struct hf_recovery_options options = w.options;

	options.release_silent_ns = time;
	hf_recovery_change(w.recovery, &options);
}

/* Its silence of before does not count: nothing was listened for. */
static void test_turned_on_while_it_runs(void **state)
{
	w.options.release_silent_ns = 0;
	world_kill(&w);
	world_up(&w);
	join();
	hold_and_wait();
	expect_kept();
	change(TIME);
	turn_for(w.loop, TIME - HF_NS_PER_S);
	assert_int_equal(count_released(), 0);
	turn_for(w.loop, TIME / 2);
	assert_int_equal(count_released(), 1);
}

static void test_turned_off_with_a_question_under_way(void **state)
{
	hold_and_wait();
	while (n_asked < 3)
		turn_for(w.loop, MS);
	change(0);
	n_asked = 0;
	expect_kept();
	assert_int_equal(n_asked, 0);
	change(TIME);
	turn_for(w.loop, 2 * TIME);
	assert_int_equal(count_released(), 1);
}

static void test_another_time(void **state)
{
	hold_and_wait();
	change(3 * TIME);
	turn_for(w.loop, 2 * TIME);
	assert_int_equal(count_released(), 0);
	change(TIME);
	turn_for(w.loop, TIME / 2);
	assert_int_equal(count_released(), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_silent_client_gives_way, begin, end),
		cmocka_unit_test_setup_teardown(test_client_that_answers_keeps_its_locks, begin, end),
		cmocka_unit_test_setup_teardown(test_client_that_calls_keeps_its_locks, begin, end),
		cmocka_unit_test_setup_teardown(test_connection_is_a_sign_of_life, begin, end),
		cmocka_unit_test_setup_teardown(test_short_connections_are_signs_of_life, begin, end),
		cmocka_unit_test_setup_teardown(test_host_that_never_answered_is_not_judged, begin, end),
		cmocka_unit_test_setup_teardown(test_server_that_is_cut_off_releases_nothing, begin, end),
		cmocka_unit_test_setup_teardown(test_question_that_was_not_asked_counts_for_nothing, begin,
						end),
		cmocka_unit_test_setup_teardown(test_only_others_count_as_waiters, begin, end),
		cmocka_unit_test_setup_teardown(test_silence_begins_with_the_last_sign_of_life, begin, end),
		cmocka_unit_test_setup_teardown(test_silence_begins_anew_with_the_server, begin, end),
		cmocka_unit_test_setup_teardown(test_nothing_without_the_lease, begin, end),
		cmocka_unit_test_setup_teardown(test_nothing_in_grace, begin, end),
		cmocka_unit_test_setup_teardown(test_off, begin, end),
		cmocka_unit_test_setup_teardown(test_turned_on_while_it_runs, begin, end),
		cmocka_unit_test_setup_teardown(test_turned_off_with_a_question_under_way, begin, end),
		cmocka_unit_test_setup_teardown(test_another_time, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
