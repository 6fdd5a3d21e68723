/* Questions that are asked on other threads, and how long their answers count. */
#include "../test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "export/lookups.h"

#define SECOND UINT64_C(1000000000)
#define LONG   (60 * SECOND)

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	char answer[64];
	int error;
	bool is_held; /* questions wait */
	_Atomic unsigned int n_asked, most_at_once;
	unsigned int n_at_once;
	char initials[8]; /* of the keys, in the order in which they were asked */
	_Atomic uint64_t now;
	_Atomic unsigned int n_reports;
	struct hf_lookups *lookups;
} bed = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static int ask(void *user, struct hf_bytes key, uint8_t *answer, size_t *lenp)
{
	int r;

	pthread_mutex_lock(&bed.lock);
	bed.initials[bed.n_asked++ % sizeof(bed.initials)] = (char)key.data[0];
	bed.n_at_once++;
	bed.most_at_once = HF_MAX(bed.most_at_once, bed.n_at_once);
	pthread_cond_broadcast(&bed.changed);
	while (bed.is_held)
		pthread_cond_wait(&bed.changed, &bed.lock);
	bed.n_at_once--;
	*lenp = strlen(bed.answer);
	memcpy(answer, bed.answer, *lenp);
	r = bed.error;
	pthread_mutex_unlock(&bed.lock);
	return r;
}

static void report(void *user, struct hf_bytes key, int error)
{
	bed.n_reports++;
}

static uint64_t now(void *user)
{
	return bed.now;
}

static void set_answer(const char *answer, int error, bool is_held)
{
	pthread_mutex_lock(&bed.lock);
	snprintf(bed.answer, sizeof(bed.answer), "%s", answer);
	bed.error = error;
	bed.is_held = is_held;
	pthread_cond_broadcast(&bed.changed);
	pthread_mutex_unlock(&bed.lock);
}

static void await_asked(unsigned int n)
{
	pthread_mutex_lock(&bed.lock);
	while (bed.n_asked < n)
		pthread_cond_wait(&bed.changed, &bed.lock);
	pthread_mutex_unlock(&bed.lock);
}

static int set_up_with(size_t max_threads)
{
	const struct hf_lookups_options options = {
		.ask = ask,
		.report = report,
		.what = "words",
		.now = now,
		.max_entries = 4,
		.max_waiting = 3,
		.max_threads = max_threads,
		.max_answer = sizeof(bed.answer),
		.fresh_ns = 60 * SECOND,
		.fresh_empty_ns = 10 * SECOND,
		.stale_ns = 600 * SECOND,
		.retry_ns = 5 * SECOND,
	};

	set_answer("yes", 0, false);
	bed.n_asked = bed.most_at_once = 0;
	bed.n_reports = 0;
	bed.now = 1000 * SECOND;
	return hf_lookups_new(&bed.lookups, &options);
}

static int set_up(void **state)
{
	return set_up_with(2);
}

static int set_up_one_thread(void **state)
{
	return set_up_with(1);
}

static int tear_down(void **state)
{
	hf_lookups_free(bed.lookups);
	return 0;
}

static bool copy(void *user, struct hf_bytes answer)
{
	memcpy(user, answer.data, answer.len);
	((char *)user)[answer.len] = '\0';
	return strcmp(user, "found") == 0;
}

static enum hf_lookup look(const char *key, char answer[64])
{
	return hf_lookups_get(bed.lookups, hf_bytes_of_str(key), copy, answer);
}

/* What is known now; NULL: nothing. */
static const char *get(const char *key)
{
	static char answer[64];

	return look(key, answer) == HF_LOOKUP_KNOWN ? answer : NULL;
}

static bool await(const char *key)
{
	return hf_lookups_wait(bed.lookups, hf_bytes_of_str(key), LONG);
}

static void test_nothing_waits(void **state)
{
	char answer[64];

	set_answer("yes", 0, true);
	assert_int_equal(look("a", answer), HF_LOOKUP_UNKNOWN);
	await_asked(1);
	assert_null(get("a")); /* and is not asked twice */
	assert_false(hf_lookups_wait(bed.lookups, hf_bytes_of_str("a"), 1));
	assert_int_equal(bed.n_asked, 1);
	set_answer("yes", 0, false);
	assert_true(await("a"));
	assert_string_equal(get("a"), "yes");
	assert_int_equal(bed.n_asked, 1);
}

static void test_an_answer_is_asked_anew(void **state)
{
	assert_true(await("a"));
	bed.now += 59 * SECOND;
	assert_string_equal(get("a"), "yes");
	assert_int_equal(bed.n_asked, 1);
	set_answer("no", 0, true);
	bed.now += 2 * SECOND;
	assert_string_equal(get("a"), "yes"); /* it counts until the new answer is there */
	await_asked(2);
	set_answer("no", 0, false);
	while (strcmp(get("a"), "no") != 0)
		sched_yield();
	assert_int_equal(bed.n_asked, 2);
}

/* Until it is stale, the last answer counts; then there is none. Each failure is tried again, not at once. */
static void test_failures(void **state)
{
	char answer[64];

	assert_true(await("a"));
	set_answer("", -EAGAIN, false);
	bed.now += 61 * SECOND;
	assert_string_equal(get("a"), "yes");
	await_asked(2);
	while (bed.n_reports == 0)
		sched_yield();
	assert_true(await("a"));
	for (int i = 0; i < 10; i++)
		assert_string_equal(get("a"), "yes");
	assert_int_equal(bed.n_asked, 2);
	bed.now += 6 * SECOND;
	assert_string_equal(get("a"), "yes");
	await_asked(3);
	bed.now += 600 * SECOND;
	assert_false(await("a"));
	assert_int_equal(look("a", answer), HF_LOOKUP_FAILED);
	assert_int_equal(bed.n_reports, 1);
	set_answer("back", 0, false);
	bed.now += 6 * SECOND;
	assert_true(await("a"));
	assert_string_equal(get("a"), "back");
}

static void test_an_empty_answer_is_one(void **state)
{
	set_answer("", 0, false);
	assert_true(await("a"));
	assert_string_equal(get("a"), "");
	while (bed.n_reports == 0)
		sched_yield();
	set_answer("born", 0, false);
	bed.now += 11 * SECOND;
	assert_string_equal(get("a"), "");
	while (strcmp(get("a"), "born") != 0)
		sched_yield();
}

static void test_bounds(void **state)
{
	char key[HF_LOOKUPS_MAX_KEY + 2];

	set_answer("yes", 0, true);
	for (char c = 'a'; c <= 'j'; c++)
		assert_null(get((char[]){ c, '\0' }));
	await_asked(2);
	set_answer("yes", 0, false);
	assert_true(await("a"));
	assert_true(await("b"));
	assert_int_equal(bed.most_at_once, 2);
	for (char c = 'k'; c <= 'z'; c++) /* they make room */
		assert_true(await((char[]){ c, '\0' }));
	assert_string_equal(get("z"), "yes");
	assert_string_equal(get("w"), "yes");
	assert_null(get("k"));
	memset(key, 'x', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	assert_null(get(key));
	assert_false(await(key));
}

static void test_what_is_refused_is_counted(void **state)
{
	struct hf_limit_use use = { 0 };

	set_answer("yes", 0, true);
	assert_null(get("a"));
	await_asked(1);
	for (char c = 'b'; c <= 'd'; c++)
		assert_null(get((char[]){ c, '\0' })); /* they wait */
	hf_lookups_show_limit(bed.lookups, &use);
	assert_int_equal(use.used, 3);
	assert_int_equal(use.max, 3);
	assert_int_equal(use.refused, 0);
	assert_null(get("e"));
	assert_null(get("f"));
	assert_null(get("b"));                                   /* it waits already */
	use = (struct hf_limit_use){ .used = 5, .refused = 10 }; /* of another queue */
	hf_lookups_show_limit(bed.lookups, &use);
	assert_int_equal(use.used, 5);
	assert_int_equal(use.refused, 12);
	hf_lookups_show_remembered(bed.lookups, &use);
	assert_int_equal(use.used, 4);
	assert_int_equal(use.max, 4);
	assert_int_equal(use.refused, 0);
	set_answer("yes", 0, false);
	assert_true(await("d"));
	assert_true(await("e")); /* makes room for itself */
	hf_lookups_show_remembered(bed.lookups, &use);
	assert_int_equal(use.used, 4);
	assert_int_equal(use.refused, 1);
}

/* A flood of other questions takes neither the place of an answer that was wanted nor its turn. */
static void test_what_is_wanted_stays(void **state)
{
	set_answer("found", 0, false);
	assert_true(await("wanted"));
	assert_string_equal(get("wanted"), "found");
	set_answer("yes", 0, false);
	for (char c = 'a'; c <= 'z'; c++)
		assert_true(await((char[]){ c, '\0' }));
	assert_string_equal(get("wanted"), "found");
}

static void test_what_is_wanted_is_asked_first(void **state)
{
	set_answer("found", 0, false);
	assert_true(await("wanted"));
	assert_string_equal(get("wanted"), "found");
	bed.now += 61 * SECOND; /* it is to be asked anew */
	set_answer("yes", 0, true);
	bed.n_asked = 0;
	assert_null(get("a"));
	await_asked(1);
	assert_null(get("b"));
	assert_null(get("c"));
	assert_string_equal(get("wanted"), "found");
	set_answer("yes", 0, false);
	await_asked(4);
	assert_memory_equal(bed.initials, "awbc", 4);
}

static void test_reports_are_few(void **state)
{
	set_answer("", -EIO, false);
	for (int i = 0; i < 100; i++) {
		char key[8];

		snprintf(key, sizeof(key), "%d", i);
		assert_false(await(key));
	}
	assert_true(bed.n_reports <= 10);
	bed.now += 61 * SECOND;
	assert_false(await("other"));
	assert_int_equal(bed.n_reports, 11);
}

/* The threads end with their questions. */
static void test_free_while_a_question_is_asked(void **state)
{
	set_answer("yes", 0, true);
	assert_null(get("a"));
	assert_null(get("b"));
	assert_null(get("c"));
	await_asked(2);
	hf_lookups_free(bed.lookups);
	bed.lookups = NULL;
	set_answer("yes", 0, false);
}

/* The old answer counts until the new one is there. A question from before does not count as asked anew. */
static void test_asked_anew_when_that_is_wanted(void **state)
{
	assert_true(await("a"));
	set_answer("no", 0, true);
	hf_lookups_renew(bed.lookups);
	assert_string_equal(get("a"), "yes");
	await_asked(2);
	hf_lookups_renew(bed.lookups);
	set_answer("no", 0, false);
	while (strcmp(get("a"), "yes") == 0)
		sched_yield();
	assert_string_equal(get("a"), "no");
	await_asked(3);
	assert_true(await("a"));
	assert_string_equal(get("a"), "no");
	assert_int_equal(bed.n_asked, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing_waits, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_an_answer_is_asked_anew, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_failures, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_an_empty_answer_is_one, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_bounds, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_what_is_refused_is_counted, set_up_one_thread,
						tear_down),
		cmocka_unit_test_setup_teardown(test_what_is_wanted_stays, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_what_is_wanted_is_asked_first, set_up_one_thread,
						tear_down),
		cmocka_unit_test_setup_teardown(test_asked_anew_when_that_is_wanted, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_reports_are_few, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_free_while_a_question_is_asked, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
