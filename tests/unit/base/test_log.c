#include "../test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/log.h"

static char captured[8192];

/* Runs the writer with stderr sent to @to; what it wrote is read from @from into captured. Closes both. */
static void capture_through(int from, int to, void (*writer)(void))
{
	int saved = dup(STDERR_FILENO);
	size_t len = 0;
	ssize_t n;

	dup2(to, STDERR_FILENO);
	writer();
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(to); /* so that there is an end to read */
	while ((n = read(from, captured + len, sizeof(captured) - 1 - len)) > 0)
		len += (size_t)n;
	captured[len] = '\0';
	close(from);
}

static void capture(void (*writer)(void))
{
	int pipes[2];

	assert_int_equal(pipe(pipes), 0);
	capture_through(pipes[0], pipes[1], writer);
}

/* The same with a terminal for stderr */
static void capture_terminal(void (*writer)(void))
{
	int master = posix_openpt(O_RDWR | O_NOCTTY), terminal;
	struct termios raw;

	assert_true(master >= 0);
	assert_int_equal(grantpt(master) | unlockpt(master), 0);
	terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
	assert_true(terminal >= 0);
	tcgetattr(terminal, &raw);
	cfmakeraw(&raw);
	tcsetattr(terminal, TCSANOW, &raw);
	capture_through(master, terminal, writer);
}

/* A line starts with a time: 2026-01-02T03:04:05.678Z and a blank. */
static const char *after_time(const char *line)
{
	static const char shape[] = "dddd-dd-ddTdd:dd:dd.dddZ ";

	for (size_t i = 0; i < sizeof(shape) - 1; i++)
		assert_true(shape[i] == 'd' ? line[i] >= '0' && line[i] <= '9' : line[i] == shape[i]);
	return line + sizeof(shape) - 1;
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

static void write_all_levels(void)
{
	hf_log_error("e", "%s", "");
	hf_log_warn("w", "n=%d", 1);
	hf_log_info("i", "%s", "");
	hf_log_debug("d", "%s", "");
}

static void write_auto(void)
{
	hf_log_configure(HF_LOG_DEBUG, HF_LOG_AUTO);
	write_all_levels();
}

static void write_text(void)
{
	hf_log_configure(HF_LOG_DEBUG, HF_LOG_TEXT);
	write_all_levels();
}

static void write_json(void)
{
	hf_log_configure(HF_LOG_INFO, HF_LOG_JSON);
	hf_log_warn("one \"two\"\n", "n=%d error=%s path=%s", 5, "No such file", "/a\xff\xc3\xa9");
}

/* Says that the journal is what stderr is at this moment. */
static void claim_journal(int inode_delta)
{
	char stream[64];
	struct stat st;

	assert_int_equal(fstat(STDERR_FILENO, &st), 0);
	snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev,
		 (uintmax_t)st.st_ino + (uintmax_t)inode_delta);
	setenv("JOURNAL_STREAM", stream, 1);
}

static void write_to_journal(void)
{
	claim_journal(0);
	write_auto();
}

static void write_text_to_journal(void)
{
	claim_journal(0);
	write_text();
}

static void write_beside_journal(void)
{
	claim_journal(1);
	write_auto();
}

static int clean_environment(void **state)
{
	unsetenv("JOURNAL_STREAM");
	unsetenv("NO_COLOR");
	return 0;
}

static void test_auto_is_text(void **state)
{
	const char *line;

	capture(write_auto);
	line = after_time(captured);
	assert_int_equal(strncmp(line, "error: e\n", 9), 0);
	line = after_time(line + 9);
	assert_int_equal(strncmp(line, "warn: w n=1\n", 12), 0);
}

static void test_journal_gets_priorities(void **state)
{
	capture(write_to_journal);
	assert_string_equal(captured, "<3>error: e\n<4>warn: w n=1\n<6>info: i\n<7>debug: d\n");
}

static void test_text_is_text_in_the_journal_too(void **state)
{
	capture(write_text_to_journal);
	assert_int_equal(strncmp(after_time(captured), "error: e\n", 9), 0);
}

static void test_inherited_journal_variable_is_not_believed(void **state)
{
	capture(write_beside_journal);
	assert_int_equal(strncmp(after_time(captured), "error: e\n", 9), 0);
	setenv("JOURNAL_STREAM", "nonsense", 1);
	capture(write_auto);
	after_time(captured);
}

static void test_terminal_has_colours(void **state)
{
	capture_terminal(write_auto);
	assert_int_equal(strncmp(after_time(captured), "\033[1;31merror\033[0m: e\n", 19), 0);
	assert_non_null(strstr(captured, "\033[33mwarn\033[0m: w n=1\n"));
	capture_terminal(write_text);
	assert_non_null(strstr(captured, "\033[32minfo\033[0m: i\n"));
	capture_terminal(write_json);
	assert_null(strchr(captured, '\033'));
	setenv("NO_COLOR", "", 1); /* empty counts as unset */
	capture_terminal(write_auto);
	assert_non_null(strchr(captured, '\033'));
	setenv("NO_COLOR", "1", 1);
	capture_terminal(write_auto);
	assert_null(strchr(captured, '\033'));
}

static void test_json_is_right(void **state)
{
	capture(write_json);
	assert_int_equal(strncmp(captured, "{\"time\":\"", 9), 0);
	assert_string_equal(captured + 9 + 24, "\",\"level\":\"warn\",\"message\":\"one \\\"two\\\"\\u000a\","
					       "\"n\":\"5\",\"error\":\"No such file\","
					       "\"path\":\"/a\\ufffd\xc3\xa9\"}\n");
}

static void write_json_quoted(void)
{
	hf_log_configure(HF_LOG_INFO, HF_LOG_JSON);
	hf_log_info("why", "reason=\"the window is over\" empty=\"\" one=\" n=%d", 5);
}

static void test_json_has_its_own_quotes(void **state)
{
	capture(write_json_quoted);
	assert_non_null(strstr(captured, ",\"reason\":\"the window is over\",\"empty\":\"\",\"one\":\"\\\"\","
					 "\"n\":\"5\"}\n"));
}

static void write_json_too_long(void)
{
	char text[1400];

	memset(text, '\001', sizeof(text) - 1); /* six characters each in JSON */
	text[sizeof(text) - 1] = '\0';
	hf_log_configure(HF_LOG_INFO, HF_LOG_JSON);
	hf_log_info("long", "a=1 b=%s c=2", text);
}

static void test_json_too_long_stays_json(void **state)
{
	capture(write_json_too_long);
	assert_non_null(strstr(captured, "\"message\":\"long\",\"a\":\"1\",\"cut\":\"true\"}\n"));
}

#define SECOND UINT64_C(1000000000)

static void test_limit(void **state)
{
	struct hf_log_limit limit = HF_LOG_LIMIT(10);
	uint64_t n = 99;

	assert_true(hf_log_limit_allow(&limit, 0,
				       &n)); /* the first is always written, also at the start of time */
	assert_int_equal(n, 0);
	n = 99;
	assert_false(hf_log_limit_allow(&limit, 0, &n));
	assert_false(hf_log_limit_allow(&limit, 5 * SECOND, &n));
	assert_false(hf_log_limit_allow(&limit, 10 * SECOND - 1, &n));
	assert_int_equal(n, 99); /* untouched where nothing is written */
	assert_true(hf_log_limit_allow(&limit, 10 * SECOND, &n));
	assert_int_equal(n, 3);
	assert_false(hf_log_limit_allow(&limit, 19 * SECOND, &n));
	assert_true(hf_log_limit_allow(&limit, 100 * SECOND, &n));
	assert_int_equal(n, 1);
	assert_true(hf_log_limit_allow(&limit, 200 * SECOND, &n));
	assert_int_equal(n, 0);
}

static void test_limit_of_several(void **state)
{
	struct hf_log_limit limit = HF_LOG_LIMIT(10);
	uint64_t n;

	limit.max_lines = 3;
	for (int i = 0; i < 3; i++) {
		assert_true(hf_log_limit_allow(&limit, (uint64_t)i * SECOND, &n));
		assert_int_equal(n, 0);
	}
	assert_false(hf_log_limit_allow(&limit, 3 * SECOND, &n));
	assert_false(hf_log_limit_allow(&limit, 10 * SECOND - 1, &n));
	assert_true(hf_log_limit_allow(&limit, 10 * SECOND, &n));
	assert_int_equal(n, 2);
	assert_true(hf_log_limit_allow(&limit, 19 * SECOND, &n));
	assert_int_equal(n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_peer_cannot_forge_a_line),
		cmocka_unit_test(test_json_is_one_object_a_line),
		cmocka_unit_test(test_level_filters),
		cmocka_unit_test(test_too_long_is_cut_not_overrun),
		cmocka_unit_test(test_quote_cuts),
		cmocka_unit_test_setup(test_auto_is_text, clean_environment),
		cmocka_unit_test_setup(test_journal_gets_priorities, clean_environment),
		cmocka_unit_test_setup(test_text_is_text_in_the_journal_too, clean_environment),
		cmocka_unit_test_setup(test_inherited_journal_variable_is_not_believed, clean_environment),
		cmocka_unit_test_setup(test_terminal_has_colours, clean_environment),
		cmocka_unit_test(test_json_is_right),
		cmocka_unit_test(test_json_has_its_own_quotes),
		cmocka_unit_test(test_json_too_long_stays_json),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_limit_of_several),
	};

	setenv("NO_COLOR", "1", 1); /* also where the tests run on a terminal */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
