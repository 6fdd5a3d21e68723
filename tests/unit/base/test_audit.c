/* Lines of the audit log: valid JSON, whatever names clients give. */
#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/audit.h"

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

static void test_texts(void **state)
{
	put("a", "x\"\\\n\xff", 5);
	assert_non_null(strstr(
		text(),
		"\"op\":\"op\",\"a\":\"x\\\"\\\\\\u000a\\ufffd\",\"a_hex\":\"78225c0aff\",\"n\":7}\n"));
}

/* The line ends as a line, and says that it is cut. */
static void test_long_texts_are_cut(void **state)
{
	static char bytes[2 * HF_AUDIT_LINE];
	const char *found;

	memset(bytes, 'y', sizeof(bytes));
	put("long", bytes, sizeof(bytes));
	memset(bytes, 1, sizeof(bytes));
	put("long", bytes, sizeof(bytes));
	found = strstr(text(), "y\",\"n\":7,\"cut\":true}\n");
	assert_non_null(found);
	assert_non_null(strstr(found, "\\u0001\",\"n\":7,\"cut\":true}\n"));
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

static void test_no_such_directory(void **state)
{
	struct hf_audit *none;

	assert_true(hf_audit_open(&none, "/no/such/directory/audit.log") < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_texts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_texts_are_cut, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full_line, setup, teardown),
		cmocka_unit_test(test_no_such_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
