/* The files of the API's tokens: what a start reads, and what a reload may read again. */
#include "../test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/guard.h"
#include "base/log.h"
#include "loop/loop.h"

static struct hf_loop *loop;
static char base[64], own_path[80], view_path[80];
static struct hf_api_tokens tokens;

static int set_up(void **state)
{
	strcpy(base, "/tmp/hf-tokens-XXXXXX");
	if (!mkdtemp(base))
		return -1;
	snprintf(own_path, sizeof(own_path), "%s/api.token", base);
	snprintf(view_path, sizeof(view_path), "%s/view", base);
	return hf_loop_new(&loop);
}

static int tear_down(void **state)
{
	hf_loop_free(loop);
	unlink(own_path);
	unlink(view_path);
	return rmdir(base);
}

static int load(const char *view, bool is_again)
{
	const struct hf_api_token_files files = { .change = "", .view = view, .state_dir = base };

	memset(&tokens, 'x', sizeof(tokens));
	return hf_api_tokens_load(&tokens, &files, is_again, loop);
}

static void write_to(const char *path, const char *text)
{
	FILE *out = fopen(path, "w");

	assert_non_null(out);
	fputs(text, out);
	assert_int_equal(fclose(out), 0);
}

static void test_missing_files_are_created(void **state)
{
	char first[HF_API_TOKEN_MAX + 1];

	assert_int_equal(load("", false), 0);
	assert_int_equal(strlen(tokens.change), HF_API_TOKEN_HEX);
	assert_string_equal(tokens.view, "");
	strcpy(first, tokens.change);
	assert_int_equal(load(view_path, true), 0);
	assert_string_equal(tokens.change, first);
	assert_int_equal(strlen(tokens.view), HF_API_TOKEN_HEX);
	unlink(own_path);
	assert_int_equal(load(view_path, true), 0);
	assert_string_not_equal(tokens.change, first);
	assert_false(tokens.are_kept);
}

static void test_wrong_files(void **state)
{
	write_to(own_path, "short\n");
	assert_int_equal(load("", true), -EINVAL);
	write_to(own_path, "0123456789abcdef\n");
	write_to(view_path, "0123456789abcdef\n");
	assert_int_equal(load(view_path, true), -EINVAL);
	write_to(view_path, "0123456789abcdeg\n");
	assert_int_equal(load(view_path, true), 0);
	assert_int_equal(load("/nowhere/view", true), -ENOENT);
}

/* To open it would wait for a writer. */
static void test_a_pipe_is_not_read_again(void **state)
{
	write_to(own_path, "0123456789abcdef\n");
	assert_int_equal(mkfifo(view_path, 0600), 0);
	assert_int_equal(load(view_path, true), 0);
	assert_true(tokens.are_kept);
	assert_string_equal(tokens.change, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_missing_files_are_created, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_wrong_files, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_pipe_is_not_read_again, set_up, tear_down),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests_name("tokens", tests, NULL, NULL);
}
