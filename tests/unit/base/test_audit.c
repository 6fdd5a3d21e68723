/* Lines of the audit log: valid JSON, whatever names clients give. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../until.h"
#include "base/audit.h"
#include "base/macros.h"

static char path[64];
static struct hf_audit *audit;

static int setup(void **state)
{
	int fd;

	snprintf(path, sizeof(path), "/tmp/hf-audit-XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(hf_audit_open(&audit, path), 0);
	return 0;
}

static int teardown(void **state)
{
	audit = hf_audit_close(audit);
	unlink(path);
	return 0;
}

/* All that is in the file, when everything is written. */
static char *text(void)
{
	static char all[3 * HF_AUDIT_LINE];
	FILE *in;

	audit = hf_audit_close(audit);
	in = fopen(path, "r");
	assert_non_null(in);
	all[fread(all, 1, sizeof(all) - 1, in)] = '\0';
	fclose(in);
	return all;
}

static void put(const char *key, const void *bytes, size_t len)
{
	struct hf_audit_line line;

	hf_audit_begin(&line, "op");
	hf_audit_put_text(&line, key, bytes, len);
	hf_audit_put_number(&line, "n", 7);
	hf_audit_end(audit, &line);
}

/* What comes before is in the old file, what comes after in the new one, and what comes in between in none.
 */
static void test_another_file(void **state)
{
	struct hf_audit_file *file;
	char other[80], line[HF_AUDIT_LINE], *all;
	FILE *in;

	snprintf(other, sizeof(other), "%s.other", path);
	put("a", "old", 3);
	assert_int_equal(hf_audit_file_open(&file, "/no/such/folder"), -ENOENT);
	assert_int_equal(hf_audit_file_open(&file, other), 0);
	assert_int_equal(hf_audit_file_start(file, audit), 0);
	hf_audit_turn_to(audit, file);
	put("a", "new", 3);
	hf_audit_turn_to(audit, NULL);
	put("a", "none", 4);
	hf_audit_reopen(audit);
	assert_int_equal(hf_audit_file_open(&file, path), 0);
	assert_int_equal(hf_audit_file_start(file, audit), 0);
	assert_null(hf_audit_file_close(file)); /* it was not needed */
	all = text();
	assert_null(strstr(all, "none"));
	assert_non_null(strstr(all, "\"a\":\"old\""));
	in = fopen(other, "r");
	assert_non_null(in);
	assert_non_null(fgets(line, sizeof(line), in));
	assert_non_null(strstr(line, "\"a\":\"new\""));
	assert_null(fgets(line, sizeof(line), in));
	fclose(in);
	unlink(other);
}

static void test_texts(void **state)
{
	put("a", "x\"\\\n\xff", 5);
	assert_non_null(strstr(
		text(),
		"\"op\":\"op\",\"a\":\"x\\\"\\\\\\u000a\\ufffd\",\"a_hex\":\"78225c0aff\",\"n\":7}\n"));
}

/* Line ends and changes of direction that are UTF-8 */
static void test_deceptive_characters(void **state)
{
	static const char deceptive[] = "a\xc2\x85\xe2\x80\xa8\xe2\x80\xae\xe2\x81\xa6\x7f\xc3\xa4";

	put("a", deceptive, sizeof(deceptive) - 1);
	assert_non_null(strstr(text(), ",\"a\":\"a\\u0085\\u2028\\u202e\\u2066\\u007f\xc3\xa4\",\"n\":7}\n"));
}

/* The line ends as a line, and says which text is cut. */
static void test_long_texts_are_cut(void **state)
{
	static char bytes[2 * HF_AUDIT_LINE];
	const char *found;

	memset(bytes, 'y', sizeof(bytes));
	put("long", bytes, sizeof(bytes));
	memset(bytes, 1, sizeof(bytes));
	put("long", bytes, sizeof(bytes));
	memset(bytes, 0xff, sizeof(bytes));
	put("long", bytes, 255);
	put("long", bytes, 2000);
	found = strstr(text(), "y\",\"long_cut\":true,\"n\":7}\n");
	assert_non_null(found);
	found = strstr(found, "\\u0001\",\"long_cut\":true,\"n\":7}\n");
	assert_non_null(found);
	found = strstr(found, "\\ufffd\",\"long_hex\":\"ffff");
	assert_non_null(found);
	found = strstr(found, "ff\",\"n\":7}\n");
	assert_non_null(found);
	assert_non_null(strstr(found, "ff\",\"long_cut\":true,\"n\":7}\n"));
}

/* A line has room for the texts of a call, however long they are: none is left out. */
static void test_all_long_texts_have_room(void **state)
{
	static const char *const keys[] = { "export", "path", "name", "to_path", "to_name" };
	static char bytes[4096];
	struct hf_audit_line line;
	const char *all;

	hf_audit_begin(&line, "op");
	memset(bytes, '"', sizeof(bytes));
	for (size_t i = 0; i < HF_ARRAY_SIZE(keys); i++) {
		hf_audit_put_text(&line, keys[i], bytes, sizeof(bytes));
		memset(bytes, 0xfe, sizeof(bytes));
	}
	hf_audit_put_number(&line, "n", UINT64_MAX);
	hf_audit_end(audit, &line);
	all = text();
	for (size_t i = 0; i < HF_ARRAY_SIZE(keys); i++) {
		char mark[32];

		snprintf(mark, sizeof(mark), "\"%s_cut\":true,\"", keys[i]);
		assert_non_null(strstr(all, mark));
	}
	assert_non_null(strstr(all, "true,\"n\":18446744073709551615}\n"));
}

/* However many fields there are. */
static void test_full_line(void **state)
{
	static char bytes[2900];
	struct hf_audit_line line;
	const char *all;

	memset(bytes, 'z', sizeof(bytes));
	hf_audit_begin(&line, "op");
	for (int i = 0; i < 20; i++) {
		hf_audit_put_text(&line, "k", bytes, sizeof(bytes));
		hf_audit_put_number(&line, "n", UINT64_MAX);
	}
	hf_audit_end(audit, &line);
	all = text();
	assert_true(strlen(all) <= HF_AUDIT_LINE);
	assert_string_equal(all + strlen(all) - strlen(",\"cut\":true}\n"), ",\"cut\":true}\n");
}

/* Each kind has its own bound. At the latest when the file is closed, a line says what was left out. */
static void test_bounds(void **state)
{
	char *all;

	for (int i = 0; i < 150; i++)
		assert_int_equal(hf_audit_allow(audit, HF_AUDIT_REFUSED_MOUNTS), i < 100);
	for (int i = 0; i < 1001; i++)
		assert_int_equal(hf_audit_allow(audit, HF_AUDIT_REFUSED_CALLS), i < 1000);
	assert_true(hf_audit_allow(audit, HF_AUDIT_UDP_MOUNTS));
	put("a", "b", 1);
	all = text();
	assert_non_null(strstr(all, "\"op\":\"left_out\",\"of\":\"refused mounts\",\"lines\":50}\n"));
	assert_non_null(strstr(all, "\"op\":\"left_out\",\"of\":\"refused calls\",\"lines\":1}\n"));
	assert_null(strstr(all, "UDP"));
}

/* A full disk: a file has room for 15 lines of numbers, and for the line about lost ones. */
#define FULL (10 * 52 + 5 * 53 + 30)

static void limit_files(rlim_t n_bytes)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = HF_MIN(n_bytes, limit.rlim_max);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The lines have the numbers from @first on. */
static void put_numbers(int first, int n)
{
	for (int i = first; i < first + n; i++) {
		struct hf_audit_line line;

		hf_audit_begin(&line, "op");
		hf_audit_put_number(&line, "n", (uint64_t)i);
		hf_audit_end(audit, &line);
	}
}

static char seen[8192];

static void wait_for(int fd, const char *said)
{
	struct until until = until_begin(UNTIL_PATIENCE);
	ssize_t n;

	do {
		n = pread(fd, seen, sizeof(seen) - 1, 0);
		seen[n > 0 ? n : 0] = '\0';
	} while (!strstr(seen, said) && until_again(&until));
	assert_non_null(strstr(seen, said));
}

/* What was left out until then is missing in the old file, which says so. */
static void test_left_out_before_another_file(void **state)
{
	for (int i = 0; i < 130; i++)
		if (hf_audit_allow(audit, HF_AUDIT_REFUSED_MOUNTS))
			put("a", "x", 1);
	hf_audit_turn_to(audit, NULL);
	assert_non_null(strstr(text(), "\"of\":\"refused mounts\",\"lines\":30}"));
}

/* A pipe that is full holds up what is in it, and no file that comes after it. */
static void test_a_disk_that_hangs(void **state)
{
	char pipe_path[80], big[1000];
	struct hf_audit_file *file;
	int reader, own;

	snprintf(pipe_path, sizeof(pipe_path), "%s.pipe", path);
	memset(big, 'x', sizeof(big));
	assert_int_equal(mkfifo(pipe_path, 0600), 0);
	assert_int_equal(hf_audit_file_open(&file, pipe_path), -ENXIO); /* no process reads it */
	reader = open(pipe_path, O_RDONLY | O_NONBLOCK);
	assert_int_equal(hf_audit_file_open(&file, pipe_path), 0);
	assert_int_equal(hf_audit_file_start(file, audit), 0);
	hf_audit_turn_to(audit, file);
	for (int i = 0; i < 200; i++)
		put("a", big, sizeof(big));
	assert_int_equal(hf_audit_file_open(&file, path), 0);
	assert_int_equal(hf_audit_file_start(file, audit), 0);
	hf_audit_turn_to(audit, file);
	put("a", "later", 5);
	own = open(path, O_RDONLY);
	assert_true(own >= 0);
	wait_for(own, "\"a\":\"later\"");
	close(own);
	signal(SIGPIPE, SIG_IGN);
	close(reader); /* the writes fail now */
	audit = hf_audit_close(audit);
	unlink(pipe_path);
}

/* A file that is moved away right behind the turn to it: the writer may not have begun yet. */
static void test_file_that_is_moved_away(void **state)
{
	struct hf_audit_file *file;
	char other[80], moved[90];
	int fd;

	snprintf(other, sizeof(other), "%s.other", path);
	snprintf(moved, sizeof(moved), "%s.1", other);
	assert_int_equal(hf_audit_file_open(&file, other), 0);
	assert_int_equal(rename(other, moved), 0);
	assert_int_equal(hf_audit_file_start(file, audit), 0);
	hf_audit_turn_to(audit, file);
	hf_audit_reopen(audit);
	for (struct until until = until_begin(UNTIL_PATIENCE);
	     access(other, F_OK) < 0 && until_again(&until);)
		;
	put("a", "after", 5);
	fd = open(other, O_RDONLY);
	assert_true(fd >= 0);
	wait_for(fd, "\"a\":\"after\"");
	close(fd);
	unlink(other);
	unlink(moved);
}

/* Lines are lost while the disk is full, and others follow when there is room. @is_mended: no part of a line
 * stays, so that there is room for the line about lost ones. */
static void fill_the_disk(bool is_mended)
{
	char name[] = "/tmp/hf-audit-log-XXXXXX";
	int log = mkstemp(name), errors = dup(STDERR_FILENO), file = open(path, O_RDONLY);

	assert_true(log >= 0 && errors >= 0 && file >= 0);
	unlink(name);
	signal(SIGXFSZ, SIG_IGN);
	limit_files(FULL);
	dup2(log, STDERR_FILENO);
	put_numbers(0, 30);
	wait_for(log, "cannot write the audit log");
	put_numbers(30, 5);
	if (is_mended)
		wait_for(file, "\"lost\"");
	put_numbers(35, 1);
	limit_files(RLIM_INFINITY);
	put_numbers(36, 4);
	wait_for(log, "lines of the audit log are lost");
	dup2(errors, STDERR_FILENO);
	assert_null(strstr(strstr(seen, "cannot write") + 1, "cannot write")); /* it says so once */
	close(errors);
	close(file);
	close(log);
}

/* Each line follows the one before, or the number of lines that are lost stands between them. Returns how
 * many lines are not whole. */
static int check_numbers(char *all)
{
	unsigned long long n, expected = 0;
	int n_torn = 0;

	for (char *line = strtok(all, "\n"); line; line = strtok(NULL, "\n")) {
		const char *number = strstr(line, "\"n\":");

		if (sscanf(line, "{\"op\":\"lost\",\"lines\":%llu}", &n) == 1) {
			assert_true(n > 0);
			expected += n;
		} else if (line[strlen(line) - 1] != '}') {
			n_torn++;
		} else {
			assert_non_null(number);
			assert_int_equal(strtoull(number + 4, NULL, 10), expected);
			expected++;
		}
		if (line[strlen(line) - 1] == '}')
			assert_null(strchr(line + 1, '{'));
	}
	assert_int_equal(expected, 40);
	return n_torn;
}

static void test_full_disk(void **state)
{
	char *all;

	fill_the_disk(true);
	all = text();
	assert_non_null(strstr(all, "\"lost\""));
	assert_int_equal(check_numbers(all), 0);
}

/* The torn line stays, on a line of its own. */
static void test_full_disk_with_a_file_that_keeps_all(void **state)
{
	int fd = memfd_create("audit", MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_int_equal(hf_audit_open(&audit, path), 0);
	fill_the_disk(false);
	assert_int_equal(check_numbers(text()), 1);
	close(fd);
}

static void test_no_such_directory(void **state)
{
	struct hf_audit *none;

	assert_true(hf_audit_open(&none, "/no/such/directory/audit.log") < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_texts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_another_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_left_out_before_another_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_disk_that_hangs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_file_that_is_moved_away, setup, teardown),
		cmocka_unit_test_setup_teardown(test_deceptive_characters, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_texts_are_cut, setup, teardown),
		cmocka_unit_test_setup_teardown(test_all_long_texts_have_room, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full_line, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bounds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
		cmocka_unit_test(test_full_disk_with_a_file_that_keeps_all),
		cmocka_unit_test(test_no_such_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
