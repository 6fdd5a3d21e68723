/* Who may: Host, Origin and token. */
#include "../test.h"

#include <string.h>
#include <time.h>

#include "api/guard.h"

static const struct hf_api_guard here = { .is_loopback = true, .token = "0123456789abcdef" };
static const struct hf_api_guard everywhere = { .needs_token = true, .token = "0123456789abcdef" };

static enum hf_api_verdict ask_host(const char *host)
{
	return hf_api_guard_ask(&here, &(struct hf_api_caller){ .host = host }, false);
}

static void test_hosts(void **state)
{
	assert_int_equal(ask_host("localhost"), HF_API_MAY);
	assert_int_equal(ask_host("LocalHost:8049"), HF_API_MAY);
	assert_int_equal(ask_host("127.0.0.1:8049"), HF_API_MAY);
	assert_int_equal(ask_host("127.8.9.1"), HF_API_MAY);
	assert_int_equal(ask_host("[::1]"), HF_API_MAY);
	assert_int_equal(ask_host("[::1]:80"), HF_API_MAY);
	assert_int_equal(ask_host(NULL), HF_API_BAD_HOST);
	assert_int_equal(ask_host(""), HF_API_BAD_HOST);
	assert_int_equal(ask_host("evil.example"), HF_API_BAD_HOST);
	assert_int_equal(ask_host("127.0.0.1.evil.example"), HF_API_BAD_HOST);
	assert_int_equal(ask_host("localhost.evil.example"), HF_API_BAD_HOST);
	assert_int_equal(ask_host("192.0.2.1"), HF_API_BAD_HOST);
	assert_int_equal(ask_host("[::1"), HF_API_BAD_HOST);
	assert_int_equal(ask_host("[::1]evil"), HF_API_BAD_HOST);
	/* Where everything needs the token a foreign name is of no use to anybody. */
	assert_int_equal(hf_api_guard_ask(&everywhere, &(struct hf_api_caller){ .host = "nas.example" },
					  false),
			 HF_API_MAY);
}

static enum hf_api_verdict ask_origin(const char *origin, const char *site)
{
	return hf_api_guard_ask(&here,
				&(struct hf_api_caller){
					.host = "localhost:8049", .origin = origin, .fetch_site = site },
				false);
}

static void test_origins(void **state)
{
	assert_int_equal(ask_origin(NULL, NULL), HF_API_MAY);
	assert_int_equal(ask_origin("http://localhost:8049", "same-origin"), HF_API_MAY);
	assert_int_equal(ask_origin(NULL, "none"), HF_API_MAY);
	assert_int_equal(ask_origin("http://localhost:8049", "cross-site"), HF_API_BAD_ORIGIN);
	assert_int_equal(ask_origin(NULL, "same-site"), HF_API_BAD_ORIGIN);
	assert_int_equal(ask_origin("null", NULL), HF_API_BAD_ORIGIN);
	assert_int_equal(ask_origin("", NULL), HF_API_BAD_ORIGIN);
	assert_int_equal(ask_origin("http://localhost", NULL), HF_API_BAD_ORIGIN);
	assert_int_equal(ask_origin("https://localhost:8049", NULL), HF_API_BAD_ORIGIN);
	assert_int_equal(ask_origin("http://localhost:8049.evil.example", NULL), HF_API_BAD_ORIGIN);
}

static enum hf_api_verdict ask_token(const char *authorization)
{
	return hf_api_guard_ask(
		&here, &(struct hf_api_caller){ .host = "localhost", .authorization = authorization }, true);
}

static void test_tokens(void **state)
{
	assert_int_equal(ask_token("Bearer 0123456789abcdef"), HF_API_MAY);
	assert_int_equal(ask_token("bearer  0123456789abcdef"), HF_API_MAY);
	assert_int_equal(ask_token(NULL), HF_API_NO_TOKEN);
	assert_int_equal(ask_token(""), HF_API_NO_TOKEN);
	assert_int_equal(ask_token("Basic 0123456789abcdef"), HF_API_NO_TOKEN);
	assert_int_equal(ask_token("0123456789abcdef"), HF_API_NO_TOKEN);
	assert_int_equal(ask_token("Bearer "), HF_API_BAD_TOKEN);
	assert_int_equal(ask_token("Bearer 0123456789abcde"), HF_API_BAD_TOKEN);
	assert_int_equal(ask_token("Bearer 0123456789abcdefa"), HF_API_BAD_TOKEN);
	assert_int_equal(ask_token("Bearer 0123456789abcdeF"), HF_API_BAD_TOKEN);
	assert_int_equal(ask_token("Bearer 0123456789abcdef0123456789abcdef"), HF_API_BAD_TOKEN);
	assert_false(hf_api_token_equal("", ""));
}

/* CPU time of comparing, the best of several tries */
static uint64_t time_of(const char *ours, const char *theirs)
{
	uint64_t best = UINT64_MAX;

	for (int try = 0; try < 15; try++) {
		struct timespec from, to;
		uint64_t took;

		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
		for (int i = 0; i < 20; i++)
			assert_false(hf_api_token_equal(ours, theirs));
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
		took = (uint64_t)(to.tv_sec - from.tv_sec) * 1000000000u + (uint64_t)to.tv_nsec -
		       (uint64_t)from.tv_nsec;
		best = took < best ? took : best;
	}
	return best;
}

/* Where they differ does not show in the time. So long that a fast memcmp() is seen, too, beside the rest. */
static void test_time_tells_nothing(void **state)
{
	static char ours[65536], first[sizeof(ours)], last[sizeof(ours)];
	uint64_t early, late;

	memset(ours, 'a', sizeof(ours) - 1);
	memcpy(first, ours, sizeof(ours));
	memcpy(last, ours, sizeof(ours));
	first[0] = last[sizeof(ours) - 2] = 'b';
	early = time_of(ours, first);
	late = time_of(ours, last);
	assert_in_range(100 * late / early, 77, 130);
}

static void test_sent_twice(void **state)
{
	struct hf_api_caller caller = { .host = "localhost",
					.authorization = "Bearer 0123456789abcdef",
					.is_sent_twice = true };

	assert_int_not_equal(hf_api_guard_ask(&here, &caller, true), HF_API_MAY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hosts),      cmocka_unit_test(test_origins),
		cmocka_unit_test(test_tokens),     cmocka_unit_test(test_time_tells_nothing),
		cmocka_unit_test(test_sent_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
