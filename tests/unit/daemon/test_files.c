/* The service's own rounds; what it serves is for the tests of the protocols. */
#include "../test.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "config_fixture.h"
#include "daemon/files.h"
#include "export/export.h"
#include "loop/loop.h"
#include "loop/timer.h"

#define SWEEPS_TO_IDLE 10

static _Atomic int watched = -1;
static _Atomic long closed_by; /* the thread that closed @watched */

/* In the place of libc's. */
int close(int fd)
{
	if (fd >= 0 && fd == watched) {
		watched = -1;
		closed_by = syscall(SYS_gettid);
	}
	return (int)syscall(SYS_close, fd);
}

static void look(struct hf_timer *timer)
{
	if (closed_by)
		hf_loop_stop(timer->loop);
	else
		hf_timer_start(timer, HF_NS_PER_MS);
}

/* A file of the service's only export that is open and not used for nearly long enough. */
static int open_idle(struct hf_file_service *service)
{
	struct hf_exports *exports = hf_file_service_nlm(service).exports;
	struct hf_export_list list;
	struct hf_volume *volume;
	struct hf_file *file;
	struct stat st;
	int fd;

	assert_int_equal(hf_exports_list(exports, &list), 0);
	volume = list.items[0]->volume;
	close(openat(volume->mount, "f", O_CREAT | O_WRONLY, 0600));
	fd = openat(volume->root, "f", O_PATH);
	assert_int_equal(hf_files_take(hf_exports_files(exports), volume, fd, &file, &st), 0);
	hf_file_unref(file);
	hf_export_list_clear(&list);
	for (int i = 0; i < SWEEPS_TO_IDLE - 1; i++)
		hf_exports_sweep(exports);
	return fd;
}

/* The last one to close a file that was removed frees its space, which takes as long as there is of it. */
static void test_idle_files_are_closed_elsewhere(void **state)
{
	char base[] = "/tmp/hf-daemon-files-XXXXXX", text[256], command[128];
	struct hf_file_service *service = NULL;
	struct hf_config *config;
	struct hf_loop *loop = NULL;
	struct hf_timer timer;

	assert_non_null(mkdtemp(base));
	snprintf(text, sizeof(text),
		 "server: {state_dir: %s, threads: 1}\nexports: [{path: %s, clients: [any]}]\n", base, base);
	config = load_good(text);
	assert_int_equal(hf_loop_new(&loop), 0);
	assert_int_equal(hf_file_service_new(&service, loop, config), 0);
	watched = open_idle(service);
	hf_timer_init(&timer, loop, look);
	hf_timer_start(&timer, 0);
	hf_loop_run(loop);
	assert_int_not_equal(closed_by, syscall(SYS_gettid));
	hf_timer_stop(&timer);
	hf_file_service_wait(service);
	while (hf_loop_drain(loop))
		;
	hf_file_service_free(service);
	hf_loop_free(loop);
	hf_config_free(config);
	snprintf(command, sizeof(command), "rm -r %s", base);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_idle_files_are_closed_elsewhere),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
