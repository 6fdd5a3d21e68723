/* The paths that are shown of files: those by which the host knows them. */
#include "../exports.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/files.h"
#include "base/log.h"

static int set_up(void **state)
{
	return open_exports();
}

/* The file @path, as a client of the export of @folder has it, is shown as such. */
static void expect_shown(const char *folder, const char *path)
{
	struct hf_export_settings settings = { .path = folder, .name = "/data" };
	struct hf_export_list list = { 0 };
	struct hf_handle handle;
	struct hf_file_id id;
	struct stat st;
	char shown[HF_API_MAX_PATH] = "";
	size_t n_failed;
	int fd;

	assert_int_equal(hf_exports_load(exports, &settings, 1, &n_failed), 0);
	assert_int_equal(hf_exports_list(exports, &list), 0);
	assert_int_equal(list.n, 1);
	fd = openat(list.items[0]->volume->root, path + (strcmp(folder, "/") ? strlen(folder) + 1 : 1),
		    O_PATH | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(hf_volume_identify(list.items[0]->volume, fd, &id, &st), 0);
	close(fd);
	hf_exports_make_handle(exports, list.items[0], &id, &handle);
	hf_export_list_clear(&list);
	assert_true(hf_api_file_path(exports, hf_bytes_of(handle.bytes, handle.len), shown, sizeof(shown)));
	assert_string_equal(shown, path);
}

static void make(const char *path, bool is_folder)
{
	if (is_folder)
		assert_int_equal(mkdir(path, 0755), 0);
	else
		close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

static void test_a_file(void **state)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/f", base);
	make(path, false);
	expect_shown(base, path);
}

/* The path of the export, once more within it. */
static void test_a_folder_like_the_path_of_its_export(void **state)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/tmp", base);
	make(path, true);
	snprintf(path, sizeof(path), "%s%s", base, base);
	make(path, true);
	snprintf(path, sizeof(path), "%s%s/f", base, base);
	make(path, false);
	expect_shown(base, path);
}

/* Some file of the root's own file system. */
static void test_the_root_of_the_host(void **state)
{
	static const char *const some[] = { "/etc/passwd", "/etc/group", "/bin/sh" };
	struct stat root, st;

	assert_int_equal(stat("/", &root), 0);
	for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++)
		if (stat(some[i], &st) == 0 && st.st_dev == root.st_dev && lstat("/etc", &st) == 0 &&
		    st.st_dev == root.st_dev) {
			expect_shown("/", some[i]);
			return;
		}
	skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_file, set_up, close_exports),
		cmocka_unit_test_setup_teardown(test_a_folder_like_the_path_of_its_export, set_up,
						close_exports),
		cmocka_unit_test_setup_teardown(test_the_root_of_the_host, set_up, close_exports),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
