#include "../test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static char captured[8192];

/* Runs the writer with stderr sent to a pipe; what it wrote is in captured. */
static void capture(void (*writer)(void))
{
	int pipes[2], saved = dup(STDERR_FILENO);
	ssize_t n;

	assert_int_equal(pipe(pipes), 0);
	dup2(pipes[1], STDERR_FILENO);
	writer();
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(pipes[1]);
	n = read(pipes[0], captured, sizeof(captured) - 1);
	close(pipes[0]);
	captured[n > 0 ? n : 0] = '\0';
}

static void write_hostile(void)
{
	char quoted[64];
	static const char hostile[] = "evil\n2026 error: forged=1 \"x\" \xff";

	hf_log_info("client named itself", "name=%s",
		    hf_log_quote(quoted, sizeof(quoted), hostile, sizeof(hostile) - 1));
}

static void write_debug(void)
{
	hf_log_debug("quiet", "%s", "");
}

static void write_long(void)
{
	char text[4000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	hf_log_info("long", "value=%s", text);
}

static void test_peer_cannot_forge_a_line(void **state)
{
	hf_log_configure(HF_LOG_INFO, HF_LOG_TEXT);
	capture(write_hostile);
	assert_non_null(strstr(captured, "info: client named itself name=evil\\x0a2026\\x20error:"));
	assert_ptr_equal(strchr(captured, '\n'), captured + strlen(captured) - 1);
}

static void test_json_is_one_object_a_line(void **state)
{
	hf_log_configure(HF_LOG_INFO, HF_LOG_JSON);
	capture(write_hostile);
	assert_non_null(strstr(captured, "\"message\":\"client named itself\",\"name\":\"evil\\\\x0a"));
	assert_ptr_equal(strchr(captured, '\n'), captured + strlen(captured) - 1);
}

static void test_level_filters(void **state)
{
	hf_log_configure(HF_LOG_INFO, HF_LOG_TEXT);
	capture(write_debug);
	assert_string_equal(captured, "");
	hf_log_configure(HF_LOG_DEBUG, HF_LOG_TEXT);
	capture(write_debug);
	assert_non_null(strstr(captured, "debug: quiet"));
}

static void test_too_long_is_cut_not_overrun(void **state)
{
	hf_log_configure(HF_LOG_INFO, HF_LOG_TEXT);
	capture(write_long);
	assert_true(strlen(captured) < 2100);
	assert_int_equal(captured[strlen(captured) - 1], '\n');
}

static void test_quote_cuts(void **state)
{
	char out[12];

	assert_string_equal(hf_log_quote(out, sizeof(out), "abcdefghijklmnop", 16), "abcdefgh...");
	assert_string_equal(hf_log_quote(out, sizeof(out), "\1\2\3", 3), "\\x01\\x02...");
	assert_string_equal(hf_log_quote(out, sizeof(out), "abc", 3), "abc");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_peer_cannot_forge_a_line),
		cmocka_unit_test(test_json_is_one_object_a_line),
		cmocka_unit_test(test_level_filters),
		cmocka_unit_test(test_too_long_is_cut_not_overrun),
		cmocka_unit_test(test_quote_cuts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
