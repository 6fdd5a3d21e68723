/* Who may: Host, Origin and token. */
#include "../test.h"

#include <string.h>
#include <time.h>

#include "api/guard.h"
#include "base/macros.h"

static const struct hf_api_guard here = { .is_loopback = true, .token = "0123456789abcdef" };
static const struct hf_api_guard everywhere = { .needs_token = true, .token = "0123456789abcdef" };
static const struct hf_api_guard with_view = { .is_loopback = true,
					       .token = "0123456789abcdef",
					       .view_token = "fedcba9876543210" };

#define HERE "localhost:8049"

struct question {
	struct hf_api_caller caller;
	enum hf_api_verdict verdict;
};

static const char *shown(const char *text)
{
	return text ? text : "(none)";
}

static void check(const struct hf_api_guard *guard, const struct question *questions, size_t n,
		  enum hf_api_access needed)
{
	for (size_t i = 0; i < n; i++) {
		const struct hf_api_caller *caller = &questions[i].caller;
		enum hf_api_verdict verdict = hf_api_guard_ask(guard, caller, needed);

		if (verdict != questions[i].verdict)
			fail_msg("host %s, origin %s, site %s, authorization %s: %d, not %d",
				 shown(caller->host), shown(caller->origin), shown(caller->fetch_site),
				 shown(caller->authorization), verdict, questions[i].verdict);
	}
}

static void test_hosts(void **state)
{
	static const struct question questions[] = {
		{ { .host = "localhost" }, HF_API_MAY },
		{ { .host = "LocalHost:8049" }, HF_API_MAY },
		{ { .host = "127.0.0.1:8049" }, HF_API_MAY },
		{ { .host = "127.8.9.1" }, HF_API_MAY },
		{ { .host = "[::1]" }, HF_API_MAY },
		{ { .host = "[::1]:80" }, HF_API_MAY },
		{ { .host = NULL }, HF_API_BAD_HOST },
		{ { .host = "" }, HF_API_BAD_HOST },
		{ { .host = "evil.example" }, HF_API_BAD_HOST },
		{ { .host = "127.0.0.1.evil.example" }, HF_API_BAD_HOST },
		{ { .host = "localhost.evil.example" }, HF_API_BAD_HOST },
		{ { .host = "192.0.2.1" }, HF_API_BAD_HOST },
		{ { .host = "[::1" }, HF_API_BAD_HOST },
		{ { .host = "[::1]evil" }, HF_API_BAD_HOST },
	};

	check(&here, questions, HF_ARRAY_SIZE(questions), HF_API_ACCESS_NONE);
	/* Where everything needs the token, a foreign name is of no use to an attacker. */
	assert_int_equal(hf_api_guard_ask(&everywhere, &(struct hf_api_caller){ .host = "nas.example" },
					  HF_API_ACCESS_NONE),
			 HF_API_MAY);
}

static void test_origins(void **state)
{
	static const struct question questions[] = {
		{ { .host = HERE }, HF_API_MAY },
		{ { .host = HERE, .origin = "http://localhost:8049", .fetch_site = "same-origin" },
		  HF_API_MAY },
		{ { .host = HERE, .fetch_site = "none" }, HF_API_MAY },
		{ { .host = HERE, .origin = "http://localhost:8049", .fetch_site = "cross-site" },
		  HF_API_BAD_ORIGIN },
		{ { .host = HERE, .fetch_site = "same-site" }, HF_API_BAD_ORIGIN },
		{ { .host = HERE, .fetch_site = "cross-site", .is_visitor = true }, HF_API_MAY },
		{ { .host = HERE, .origin = "http://evil.example", .is_visitor = true }, HF_API_BAD_ORIGIN },
		{ { .host = "evil.example", .is_visitor = true }, HF_API_BAD_HOST },
		{ { .host = HERE, .origin = "null" }, HF_API_BAD_ORIGIN },
		{ { .host = HERE, .origin = "" }, HF_API_BAD_ORIGIN },
		{ { .host = HERE, .origin = "http://localhost" }, HF_API_BAD_ORIGIN },
		{ { .host = HERE, .origin = "https://localhost:8049" }, HF_API_BAD_ORIGIN },
		{ { .host = HERE, .origin = "http://localhost:8049.evil.example" }, HF_API_BAD_ORIGIN },
	};

	check(&here, questions, HF_ARRAY_SIZE(questions), HF_API_ACCESS_NONE);
}

static void test_origins_of_https(void **state)
{
	static const struct hf_api_guard https = { .is_loopback = true, .is_https = true, .token = "x" };
	static const struct question questions[] = {
		{ { .host = HERE, .origin = "https://localhost:8049", .fetch_site = "same-origin" },
		  HF_API_MAY },
		{ { .host = HERE, .origin = "http://localhost:8049", .fetch_site = "same-origin" },
		  HF_API_BAD_ORIGIN },
		{ { .host = HERE, .origin = "https://evil.example" }, HF_API_BAD_ORIGIN },
	};

	check(&https, questions, HF_ARRAY_SIZE(questions), HF_API_ACCESS_NONE);
}

static void test_tokens(void **state)
{
	static const struct question questions[] = {
		{ { .host = HERE, .authorization = "Bearer 0123456789abcdef" }, HF_API_MAY },
		{ { .host = HERE, .authorization = "bearer  0123456789abcdef" }, HF_API_MAY },
		{ { .host = HERE }, HF_API_NO_TOKEN },
		{ { .host = HERE, .authorization = "" }, HF_API_NO_TOKEN },
		{ { .host = HERE, .authorization = "Basic 0123456789abcdef" }, HF_API_NO_TOKEN },
		{ { .host = HERE, .authorization = "0123456789abcdef" }, HF_API_NO_TOKEN },
		{ { .host = HERE, .authorization = "Bearer " }, HF_API_BAD_TOKEN },
		{ { .host = HERE, .authorization = "Bearer 0123456789abcde" }, HF_API_BAD_TOKEN },
		{ { .host = HERE, .authorization = "Bearer 0123456789abcdefa" }, HF_API_BAD_TOKEN },
		{ { .host = HERE, .authorization = "Bearer 0123456789abcdeF" }, HF_API_BAD_TOKEN },
		{ { .host = HERE, .authorization = "Bearer 0123456789abcdef0123456789abcdef" },
		  HF_API_BAD_TOKEN },
	};

	check(&here, questions, HF_ARRAY_SIZE(questions), HF_API_ACCESS_CHANGE);
	assert_false(hf_api_token_equal("", ""));
}

static void test_roles(void **state)
{
	static const struct question changes[] = {
		{ { .host = HERE, .authorization = "Bearer 0123456789abcdef" }, HF_API_MAY },
		{ { .host = HERE, .authorization = "Bearer fedcba9876543210" }, HF_API_VIEW_ONLY },
		{ { .host = HERE, .authorization = "Bearer fedcba987654321" }, HF_API_BAD_TOKEN },
		{ { .host = HERE, .authorization = "Bearer " }, HF_API_BAD_TOKEN },
		{ { .host = HERE }, HF_API_NO_TOKEN },
		/* The other checks come first. */
		{ { .host = "evil.example", .authorization = "Bearer fedcba9876543210" }, HF_API_BAD_HOST },
	};
	static const struct question looks[] = {
		{ { .host = HERE, .authorization = "Bearer 0123456789abcdef" }, HF_API_MAY },
		{ { .host = HERE, .authorization = "Bearer fedcba9876543210" }, HF_API_MAY },
		{ { .host = HERE, .authorization = "Bearer fedcba9876543211" }, HF_API_BAD_TOKEN },
		{ { .host = HERE }, HF_API_NO_TOKEN },
	};
	const struct hf_api_caller empty = { .host = HERE, .authorization = "Bearer " };

	check(&with_view, changes, HF_ARRAY_SIZE(changes), HF_API_ACCESS_CHANGE);
	check(&with_view, looks, HF_ARRAY_SIZE(looks), HF_API_ACCESS_VIEW);
	assert_int_equal(hf_api_guard_access(&with_view, &changes[0].caller), HF_API_ACCESS_CHANGE);
	assert_int_equal(hf_api_guard_access(&with_view, &changes[1].caller), HF_API_ACCESS_VIEW);
	assert_int_equal(hf_api_guard_access(&with_view, &changes[2].caller), HF_API_ACCESS_NONE);
	/* Without a second token, the empty text is none. */
	assert_int_equal(hf_api_guard_access(&here, &empty), HF_API_ACCESS_NONE);
}

/* CPU time of comparing */
static uint64_t time_of(const char *ours, const char *theirs)
{
	struct timespec from, to;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
	for (int i = 0; i < 20; i++)
		assert_false(hf_api_token_equal(ours, theirs));
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
	return (uint64_t)(to.tv_sec - from.tv_sec) * 1000000000u + (uint64_t)to.tv_nsec -
	       (uint64_t)from.tv_nsec;
}

/* Where they differ does not show in the time. So long that a fast memcmp() is seen, too, beside the rest.
 * What else a processor does shows in any one try, but not in the best of many, of both in turn. */
static void test_time_tells_nothing(void **state)
{
	static char ours[65536], first[sizeof(ours)], last[sizeof(ours)];
	uint64_t early = UINT64_MAX, late = UINT64_MAX, percent = 0;

	memset(ours, 'a', sizeof(ours) - 1);
	memcpy(first, ours, sizeof(ours));
	memcpy(last, ours, sizeof(ours));
	first[0] = last[sizeof(ours) - 2] = 'b';
	for (int try = 0; try < 15 || (try < 300 && (percent < 80 || percent > 125)); try++) {
		uint64_t a = time_of(ours, first), b = time_of(ours, last);

		early = HF_MIN(early, a);
		late = HF_MIN(late, b);
		percent = 100 * late / early;
	}
	assert_in_range(percent, 80, 125);
}

static void test_sent_twice(void **state)
{
	struct hf_api_caller caller = { .host = "localhost",
					.authorization = "Bearer 0123456789abcdef",
					.is_sent_twice = true };

	assert_int_equal(hf_api_guard_ask(&here, &caller, HF_API_ACCESS_CHANGE), HF_API_SENT_TWICE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hosts),      cmocka_unit_test(test_origins),
		cmocka_unit_test(test_tokens),     cmocka_unit_test(test_time_tells_nothing),
		cmocka_unit_test(test_sent_twice), cmocka_unit_test(test_origins_of_https),
		cmocka_unit_test(test_roles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
