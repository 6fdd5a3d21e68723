/* Path, query, numbers and cursors: what is plain is understood, the rest refused. */
#include "../test.h"

#include <stdlib.h>
#include <string.h>

#include "api/target.h"

static struct hf_api_target target;

static void assert_wrong(const char *uri)
{
	assert_non_null(hf_api_target_parse(&target, uri));
}

static void assert_parses(const char *uri)
{
	const char *wrong = hf_api_target_parse(&target, uri);

	if (wrong)
		fail_msg("%s: %s", uri, wrong);
}

static void test_paths(void **state)
{
	const char *id;

	assert_parses("/");
	assert_int_equal(target.n_segments, 0);
	assert_true(hf_api_target_matches(&target, "/", &id));
	assert_false(hf_api_target_matches(&target, "/healthz", &id));
	assert_parses("/api/v1/clients/nlm%3A10.0.0.1%3Aa%2Fb");
	assert_true(hf_api_target_matches(&target, "/api/v1/clients/{id}", &id));
	assert_string_equal(id, "nlm:10.0.0.1:a/b");
	assert_false(hf_api_target_matches(&target, "/api/v1/clients", &id));
	assert_false(hf_api_target_matches(&target, "/api/v1/clients/{id}/x", &id));
	assert_parses("/api/v1/client");
	assert_false(hf_api_target_matches(&target, "/api/v1/clients", &id));
	assert_parses("/a+b");
	assert_string_equal(target.segments[0], "a+b");
}

static void test_queries(void **state)
{
	assert_parses("/x?a=1&b=two+words&c&&d=%C3%A4");
	assert_string_equal(hf_api_target_param(&target, "a"), "1");
	assert_string_equal(hf_api_target_param(&target, "b"), "two words");
	assert_string_equal(hf_api_target_param(&target, "c"), "");
	assert_string_equal(hf_api_target_param(&target, "d"), "\xc3\xa4");
	assert_null(hf_api_target_param(&target, "e"));
	assert_parses("/x?");
	assert_int_equal(target.n_params, 0);
}

static void test_nonsense(void **state)
{
	char *longest = malloc(HF_API_MAX_TARGET + 1);

	assert_wrong("");
	assert_wrong("x");
	assert_wrong("//");
	assert_wrong("/a//b");
	assert_wrong("/a/");
	assert_wrong("/%");
	assert_wrong("/%1");
	assert_wrong("/%zz");
	assert_wrong("/%00");
	assert_wrong("/a%0Ab");
	assert_wrong("/%ff");
	assert_wrong("/%c0%80");
	assert_wrong("/1/2/3/4/5/6/7/8/9");
	assert_wrong("/x?a=1&a=2");
	assert_wrong("/x?a=%");
	assert_wrong("/x?%ff");
	assert_wrong("/x?a&b&c&d&e&f&g&h&i");
	memset(longest, 'x', HF_API_MAX_TARGET);
	longest[0] = '/';
	longest[HF_API_MAX_TARGET] = '\0';
	assert_wrong(longest);
	longest[HF_API_MAX_TARGET - 1] = '\0';
	assert_parses(longest);
	free(longest);
}

static void test_numbers(void **state)
{
	uint64_t value;

	assert_true(hf_api_parse_number("17", 1, 1000, &value) && value == 17);
	assert_true(hf_api_parse_number("1001", 1, 1000, &value) && value == 1000);
	assert_true(hf_api_parse_number("99999999999999999999999", 1, 1000, &value) && value == 1000);
	assert_true(hf_api_parse_number("18446744073709551614", 0, UINT64_MAX - 1, &value));
	assert_true(value == UINT64_MAX - 1);
	assert_true(hf_api_parse_number("18446744073709551616", 0, UINT64_MAX - 1, &value));
	assert_true(value == UINT64_MAX - 1);
	assert_true(hf_api_parse_number("99999999999999999999", 0, UINT64_MAX - 1, &value));
	assert_true(value == UINT64_MAX - 1);
	assert_int_equal(value, UINT64_MAX - 1);
	assert_false(hf_api_parse_number("0", 1, 1000, &value));
	assert_false(hf_api_parse_number("", 0, 1000, &value));
	assert_false(hf_api_parse_number("-1", 0, 1000, &value));
	assert_false(hf_api_parse_number("1 ", 0, 1000, &value));
	assert_false(hf_api_parse_number("0x1", 0, 1000, &value));
}

static void test_cursors(void **state)
{
	uint64_t words[HF_API_CURSOR_WORDS] = { 0, UINT64_MAX, 1, 0xabcdef, 255, UINT64_MAX };
	uint64_t back[HF_API_CURSOR_WORDS];
	char text[HF_API_CURSOR_TEXT];

	hf_api_cursor_format(words, HF_API_CURSOR_WORDS, text);
	assert_true(hf_api_cursor_parse(text, back, HF_API_CURSOR_WORDS));
	assert_memory_equal(words, back, sizeof(words));
	assert_false(hf_api_cursor_parse("", back, HF_API_CURSOR_WORDS));
	assert_false(hf_api_cursor_parse("1.2.3.4.5", back, HF_API_CURSOR_WORDS));
	assert_false(hf_api_cursor_parse("1.2.3.4.5.6.7", back, HF_API_CURSOR_WORDS));
	assert_false(hf_api_cursor_parse("1.2.3.4.5.6x", back, HF_API_CURSOR_WORDS));
	assert_false(hf_api_cursor_parse("1.2.3..5.6", back, HF_API_CURSOR_WORDS));
	assert_false(hf_api_cursor_parse("11112222333344445.2.3.4.5.6", back, HF_API_CURSOR_WORDS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths),    cmocka_unit_test(test_queries),
		cmocka_unit_test(test_nonsense), cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_cursors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
