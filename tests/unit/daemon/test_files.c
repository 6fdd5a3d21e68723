/* The service's own rounds; what it serves is for the tests of the protocols. */
#include "../test.h"
#include "../closing.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "config_fixture.h"
#include "daemon/files.h"
#include "export/export.h"

#define SWEEPS_TO_IDLE 10

/* A service with one export */
struct bed {
	char base[32];
	struct hf_loop *loop;
	struct hf_config *config;
	struct hf_file_service *service;
};

static int set_up(void **state)
{
	static struct bed bed;
	char text[256];

	strcpy(bed.base, "/tmp/hf-daemon-files-XXXXXX");
	if (!mkdtemp(bed.base))
		return -1;
	snprintf(text, sizeof(text),
		 "server: {state_dir: %s, threads: 1}\nexports: [{path: %s, clients: [any]}]\n", bed.base,
		 bed.base);
	bed.config = load_good(text);
	*state = &bed;
	return hf_loop_new(&bed.loop) < 0 ||
	       hf_file_service_new(&bed.service, bed.loop, bed.config, NULL) < 0;
}

static int tear_down(void **state)
{
	struct bed *bed = *state;
	char command[128];

	hf_file_service_wait(bed->service);
	while (hf_loop_drain(bed->loop))
		;
	bed->service = hf_file_service_free(bed->service);
	hf_loop_free(bed->loop);
	hf_config_free(bed->config);
	snprintf(command, sizeof(command), "rm -r %s", bed->base);
	return system(command);
}

/* A descriptor that the cache has of a file of the export; no call uses it. */
static int open_file(struct hf_exports *exports)
{
	struct hf_export_list list;
	struct hf_volume *volume;
	struct hf_file *file;
	struct stat st;
	int fd;

	assert_int_equal(hf_exports_list(exports, &list), 0);
	volume = list.items[0]->volume;
	close(openat(volume->mount, "f", O_CREAT | O_WRONLY, 0600));
	fd = openat(volume->root, "f", O_PATH);
	assert_int_equal(hf_files_take(hf_exports_files(exports), volume, fd, false, &file, &st), 0);
	hf_file_unref(file);
	hf_export_list_clear(&list);
	return fd;
}

static void test_idle_files_are_closed_elsewhere(void **state)
{
	struct bed *bed = *state;
	struct hf_exports *exports = hf_file_service_nlm(bed->service).exports;

	watch(open_file(exports));
	for (int i = 0; i < SWEEPS_TO_IDLE - 1; i++)
		hf_exports_sweep(exports);
	expect_closed_elsewhere(bed->loop);
}

static void test_unshared_files_are_closed_elsewhere(void **state)
{
	struct bed *bed = *state;
	struct hf_export_list none = { 0 };
	struct hf_config *other;
	size_t n_failed;
	char text[128];

	watch(open_file(hf_file_service_nlm(bed->service).exports));
	snprintf(text, sizeof(text), "server: {state_dir: %s, threads: 1}\nexports: []\n", bed->base);
	other = load_good(text);
	assert_int_equal(hf_file_service_prepare(bed->service, other, &none, &n_failed), 0);
	assert_int_equal(n_failed, 0);
	assert_int_equal(hf_file_service_take(bed->service, &none), 0);
	hf_config_free(other);
	expect_closed_elsewhere(bed->loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_idle_files_are_closed_elsewhere, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_unshared_files_are_closed_elsewhere, set_up, tear_down),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
