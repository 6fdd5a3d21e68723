/* What a report says about the files of a certificate. */
#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "made.h"
#include "tls/tls.h"

#define DAY 86400

static char folder[] = "/tmp/hf-inspect-XXXXXX";
static char file[64], part[64];
static struct made ca, server;

static int set_up(void **state)
{
	assert_non_null(mkdtemp(folder));
	snprintf(file, sizeof(file), "%s/file.pem", folder);
	snprintf(part, sizeof(part), "%s/part.pem", folder);
	ca = make_certificate("ca", NULL, 100, NULL);
	server = make_certificate("server", "DNS:server", 50, &ca);
	return 0;
}

static int tear_down(void **state)
{
	char command[64];

	made_free(&ca);
	made_free(&server);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

static void write_both(const struct made *first, const struct made *second)
{
	char command[160];

	write_certificate(first, file);
	if (!second)
		return;
	write_certificate(second, part);
	snprintf(command, sizeof(command), "cat %s >> %s", part, file);
	assert_int_equal(system(command), 0);
}

static bool says(const struct hf_tls_report *report, bool is_bad, const char *what)
{
	for (size_t i = 0; i < report->n_faults; i++)
		if (report->faults[i].is_bad == is_bad && strstr(report->faults[i].what, what))
			return true;
	return false;
}

static void test_good(void **state)
{
	struct hf_tls_report report;
	int64_t now = time(NULL);

	write_both(&server, &ca);
	hf_tls_inspect_certificate(&report, file, now);
	assert_int_equal(report.n_faults, 0);
	assert_int_equal((report.expires - now + DAY / 2) / DAY, 50);
	assert_int_equal(strlen(report.pin), HF_TLS_PIN_TEXT - 1);
	write_both(&ca, NULL);
	hf_tls_inspect_client_ca(&report, file, now);
	assert_int_equal(report.n_faults, 0);
}

static void test_dates(void **state)
{
	struct hf_tls_report report;
	int64_t now = time(NULL);

	write_both(&server, &ca);
	hf_tls_inspect_certificate(&report, file, now + 51 * DAY);
	assert_int_equal(report.n_faults, 1);
	assert_true(says(&report, true, "/CN=server has expired, 1 days ago"));
	hf_tls_inspect_certificate(&report, file, now + 101 * DAY);
	assert_true(says(&report, true, "/CN=ca has expired"));
	hf_tls_inspect_certificate(&report, file, now - 2000 * DAY);
	assert_true(says(&report, true, "/CN=server is not valid yet, for 1000 more days"));
	write_both(&ca, NULL);
	hf_tls_inspect_client_ca(&report, file, now + 101 * DAY);
	assert_true(says(&report, true, "/CN=ca has expired"));
}

static void test_faults(void **state)
{
	struct made stranger = make_certificate("stranger", NULL, 100, NULL);
	struct hf_tls_report report;
	int64_t now = time(NULL);

	write_both(&server, &stranger);
	hf_tls_inspect_certificate(&report, file, now);
	assert_true(says(&report, true, "/CN=server is not signed by the one behind it, /CN=stranger"));
	write_both(&stranger, NULL);
	hf_tls_inspect_certificate(&report, file, now);
	assert_true(says(&report, false, "is signed by itself"));
	assert_true(says(&report, false, "has no subjectAltName"));
	write_both(&server, NULL);
	hf_tls_inspect_client_ca(&report, file, now);
	assert_true(says(&report, true, "/CN=server is not a CA's"));
	hf_tls_inspect_certificate(&report, "/nowhere", now);
	assert_true(says(&report, true, "no certificate can be read"));
	assert_string_equal(report.pin, "");
	hf_tls_inspect_client_ca(&report, "/nowhere", now);
	assert_true(says(&report, true, "no CA can be read"));
	made_free(&stranger);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_dates),
		cmocka_unit_test(test_faults),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
