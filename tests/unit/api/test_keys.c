/* Certificate and key of the API: what is loaded, and what is said of wrong files. */
#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../tls/made.h"
#include "api/keys.h"

#define DAY 86400

static char folder[] = "/tmp/hf-keys-XXXXXX";
static char certificate[64], key[64], other_key[64], wrong[64];
static struct made ca, server, other;

static int set_up(void **state)
{
	assert_non_null(mkdtemp(folder));
	snprintf(certificate, sizeof(certificate), "%s/server.pem", folder);
	snprintf(key, sizeof(key), "%s/server.key", folder);
	snprintf(other_key, sizeof(other_key), "%s/other.key", folder);
	snprintf(wrong, sizeof(wrong), "%s/wrong", folder);
	ca = make_certificate("ca", NULL, 5, NULL);
	server = make_certificate("server", "DNS:server", 10, &ca);
	other = make_certificate("other", "DNS:other", 10, &ca);
	write_certificate(&server, certificate);
	write_key(&server, key);
	write_key(&other, other_key);
	return 0;
}

static int tear_down(void **state)
{
	char command[64];

	made_free(&ca);
	made_free(&server);
	made_free(&other);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

static void write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void expect(int answer, const char *certificate_path, const char *key_path, const char *said)
{
	hf_cleanup(hf_api_keys_unrefp) struct hf_api_keys *keys = NULL;
	char problem[HF_API_PROBLEM_SIZE] = "";

	assert_int_equal(hf_api_keys_load(&keys, certificate_path, key_path, problem), answer);
	assert_null(keys);
	if (!strstr(problem, said))
		fail_msg("it says: %s; not: %s", problem, said);
}

static void test_good(void **state)
{
	hf_cleanup(hf_api_keys_unrefp) struct hf_api_keys *keys = NULL;
	char problem[HF_API_PROBLEM_SIZE];
	int64_t days;

	assert_int_equal(hf_api_keys_load(&keys, certificate, key, problem), 0);
	days = (hf_api_keys_expire(keys) - time(NULL) + DAY / 2) / DAY;
	assert_int_equal(days, 10);
	assert_int_equal(strlen(hf_api_keys_pin(keys)), HF_API_PIN_TEXT - 1);
	assert_ptr_equal(hf_api_keys_ref(keys), keys);
	assert_null(hf_api_keys_unref(keys));
}

/* A chain ends with the first of its certificates that does. */
static void test_chain(void **state)
{
	hf_cleanup(hf_api_keys_unrefp) struct hf_api_keys *keys = NULL;
	char problem[HF_API_PROBLEM_SIZE], command[256], authority[64];

	snprintf(authority, sizeof(authority), "%s/ca.pem", folder);
	write_certificate(&ca, authority);
	snprintf(command, sizeof(command), "cat %s %s > %s", certificate, authority, wrong);
	assert_int_equal(system(command), 0);
	assert_int_equal(hf_api_keys_load(&keys, wrong, key, problem), 0);
	assert_int_equal((hf_api_keys_expire(keys) - time(NULL) + DAY / 2) / DAY, 5);
}

static void test_wrong_files(void **state)
{
	expect(HF_API_E_CERTIFICATE, "/nowhere", key,
	       "cannot be read (No such file or directory); give a PEM");
	expect(HF_API_E_CERTIFICATE, folder, key, "is not a file");
	expect(HF_API_E_CERTIFICATE, key, key, "has no usable certificate");
	expect(HF_API_E_KEY, certificate, "/nowhere",
	       "cannot be read (No such file or directory); give a PEM");
	expect(HF_API_E_KEY, certificate, certificate, "has no key that can be read without a passphrase");
	expect(HF_API_E_KEY, certificate, other_key, "is not the key of api.certificate");
	write_text(wrong, "");
	expect(HF_API_E_CERTIFICATE, wrong, key, "has no usable certificate");
	expect(HF_API_E_KEY, certificate, wrong, "has no key that can be read without a passphrase");
	write_text(wrong, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
	expect(HF_API_E_CERTIFICATE, wrong, key, "has no usable certificate");
	assert_int_equal(truncate(wrong, (1 << 20) + 1), 0);
	expect(HF_API_E_CERTIFICATE, wrong, key, "cannot be read (File too large)");
}

/* It does not wait for a writer. */
static void test_pipe(void **state)
{
	unlink(wrong);
	assert_int_equal(mkfifo(wrong, 0600), 0);
	expect(HF_API_E_CERTIFICATE, wrong, key, "is not a file");
	unlink(wrong);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_chain),
		cmocka_unit_test(test_wrong_files),
		cmocka_unit_test(test_pipe),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
