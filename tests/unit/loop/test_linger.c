#include "../test.h"

#include <stdlib.h>

#include "loop/uv_linger.h"

#define SHORT (UV_LINGER_NS / 2)
#define LONG  (UV_LINGER_NS * 50)

struct fixture {
	uv_loop_t loop;
	struct uv_linger linger;
	uint64_t now;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	assert_int_equal(uv_loop_init(&f->loop), 0);
	uv_linger_init(&f->linger, &f->loop);
	f->linger.is_useful = true; /* wherever this test runs */
	f->now = UINT64_C(1000) * LONG;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	uv_close((uv_handle_t *)&f->linger.idle, NULL);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&f->loop), 0);
	free(f);
	return 0;
}

/* Something comes after @wait, and is done with in no time. */
static void serve(struct fixture *f, uint64_t wait)
{
	f->now += wait;
	uv_linger_judge(&f->linger, f->now);
	uv_linger_or_sleep(&f->linger, f->now);
}

static bool is_awake(const struct fixture *f)
{
	assert_int_equal(uv_is_active((const uv_handle_t *)&f->linger.idle), f->linger.is_on);
	return f->linger.is_on;
}

static void make_awake(struct fixture *f)
{
	for (int i = 0; i < 100; i++)
		serve(f, SHORT);
	assert_true(is_awake(f));
}

static void test_sleeps_until_waits_were_short_for_a_while(void **state)
{
	struct fixture *f = *state;

	uv_linger_or_sleep(&f->linger, f->now);
	assert_false(is_awake(f));
	for (int i = 0; i < 7; i++) {
		serve(f, SHORT);
		assert_false(is_awake(f));
	}
	make_awake(f);
}

/* Nothing comes any more: it is asked for for a moment, and then the loop sleeps. */
static void test_sleeps_when_nothing_comes(void **state)
{
	struct fixture *f = *state;

	make_awake(f);
	uv_linger_or_sleep(&f->linger, f->now + UV_LINGER_NS - 1);
	assert_true(is_awake(f));
	uv_linger_or_sleep(&f->linger, f->now + UV_LINGER_NS);
	assert_false(is_awake(f));
}

/* What is lost by waiting in vain is never more than a fifth of all waits. */
static void test_long_waits_end_it(void **state)
{
	struct fixture *f = *state;
	int n_awake = 0;

	make_awake(f);
	for (int i = 0; i < 4; i++)
		serve(f, LONG);
	assert_false(is_awake(f));
	for (int i = 0; i < 1000; i++) {
		serve(f, i % 4 ? SHORT : LONG); /* one in four is long */
		n_awake += is_awake(f);
	}
	assert_int_equal(n_awake, 0);
	for (int i = 0; i < 1000; i++) {
		serve(f, i % 10 ? SHORT : LONG);
		n_awake += is_awake(f);
	}
	assert_in_range(n_awake, 900, 1000);
}

/* On a single processor the process that is to send something could not run meanwhile. */
static void test_never_on_one_processor(void **state)
{
	struct fixture *f = *state;

	f->linger.is_useful = false;
	for (int i = 0; i < 100; i++)
		serve(f, SHORT);
	assert_false(is_awake(f));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_sleeps_until_waits_were_short_for_a_while, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_sleeps_when_nothing_comes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_waits_end_it, setup, teardown),
		cmocka_unit_test_setup_teardown(test_never_on_one_processor, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
