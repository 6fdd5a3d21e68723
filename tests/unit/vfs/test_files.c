#include "folder.h"
#include "no_fds.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macros.h"
#include "vfs/file.h"

static int n_made; /* so many times the number of what is asked for is being given to another file */

/* In the place of libc's */
int open_by_handle_at(int mount, struct file_handle *handle, int flags)
{
	int (*next)(int, struct file_handle *, int) =
		(int (*)(int, struct file_handle *, int))dlsym(RTLD_NEXT, "open_by_handle_at");

	if (n_made > 0) {
		n_made--;
		errno = ENOMEM; /* as ext4 says */
		return -1;
	}
	return next(mount, handle, flags);
}

static const char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", base, name);
	return path;
}

static int set_up(void **state)
{
	return open_folder(100);
}

static int tear_down(void **state)
{
	return close_folder();
}

static void sweep(void)
{
	hf_files_sweep(files);
	hf_files_close_all(files);
}

static size_t count_own_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void test_one_object_a_file(void **state)
{
	struct hf_file *a = open_file("f"), *b = open_file("f"), *c = NULL;

	assert_ptr_equal(a, b);
	assert_int_equal(hf_files_get(files, volume, &a->id, true, &c), 0);
	assert_ptr_equal(a, c);
	hf_file_unref(a);
	hf_file_unref(b);
	hf_file_unref(c);
}

/* One descriptor serves all users of the file, and is counted and closed once. The first hf_file stays. */
static void test_made_is_open_for_writing(void **state)
{
	size_t before = count_own_fds();
	int fd = openat(volume->root, "made", O_CREAT | O_WRONLY, 0644);
	struct hf_file *made, *again;

	assert_int_equal(hf_files_take_made(files, volume, fd, &made), 0);
	assert_int_equal(hf_file_write_fd(made, true), fd);
	assert_int_equal(hf_files_count_fds(files), 1);
	assert_true(hf_file_read_fd(made, false) >= 0);
	assert_int_equal(hf_files_take_made(files, volume, openat(volume->root, "made", O_WRONLY), &again),
			 0);
	assert_ptr_equal(again, made);
	unlink(path_of("made"));
	hf_file_forget(made);
	hf_file_unref(made);
	hf_file_close(again);
	assert_int_equal(hf_files_count_fds(files), 0);
	assert_int_equal(count_own_fds(), before);
}

static void test_descriptors_keep_to_the_limit(void **state)
{
	size_t before = count_own_fds();
	struct hf_file *held = open_file("held");
	char name[16];

	for (int i = 0; i < 1000; i++) {
		struct hf_file *file;

		snprintf(name, sizeof(name), "f%d", i);
		file = open_file(name);
		assert_true(hf_file_read_fd(file, false) >= 0);
		assert_true(hf_file_write_fd(file, false) >= 0);
		hf_file_unref(file);
		assert_true(hf_files_count_fds(files) <
			    200); /* each shard gives its own, so not to the one */
		assert_true(count_own_fds() < before + 210);
	}
	assert_true(fcntl(held->fd, F_GETFD) >= 0);
	hf_file_unref(held);
}

/* Found before they are used, as a client does that lists a directory and then reads what is in it. */
static void test_using_what_is_open_keeps_to_the_limit(void **state)
{
	struct hf_file_id ids[90];
	struct hf_file *file;
	char name[16];

	for (size_t i = 0; i < HF_ARRAY_SIZE(ids); i++) {
		snprintf(name, sizeof(name), "f%zu", i);
		file = open_file(name);
		ids[i] = file->id;
		hf_file_unref(file);
	}
	for (size_t i = 0; i < HF_ARRAY_SIZE(ids); i++) {
		assert_int_equal(hf_files_get(files, volume, &ids[i], false, &file), 0);
		assert_true(hf_file_read_fd(file, false) >= 0);
		assert_true(hf_files_count_fds(files) < 110);
		assert_true(hf_file_write_fd(file, false) >= 0);
		assert_true(hf_files_count_fds(files) < 120); /* each shard gives its own */
		hf_file_unref(file);
	}
}

/* What was done cannot be taken back: a name that was made must not be answered with "try again". */
static void test_synced_without_a_descriptor(void **state)
{
	struct hf_file *file = open_file("f");
	struct rlimit limit = take_all_fds();
	int r = hf_file_sync(file);

	setrlimit(RLIMIT_NOFILE, &limit);
	assert_int_equal(r, 0);
	hf_file_unref(file);
}

static void test_sweep_closes_the_idle(void **state)
{
	struct hf_file *used = open_file("used"), *idle = open_file("idle"), *again = NULL;
	struct hf_file_id idle_id = idle->id;

	hf_file_unref(idle);
	for (int i = 0; i < 12; i++) {
		sweep();
		assert_int_equal(hf_files_get(files, volume, &used->id, true, &again), 0);
		hf_file_unref(again);
	}
	assert_int_equal(hf_files_get(files, volume, &idle_id, true, &again), -EAGAIN);
	hf_file_unref(used);
	for (int i = 0; i < 12; i++)
		sweep();
	assert_int_equal(hf_files_count_fds(files), 0);
}

/* More than the limit allows are in use: they stay, the others still go, and the search for room ends. */
static void test_many_in_use(void **state)
{
	struct hf_file *pinned[200];
	char name[16];
	int fd;

	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "p%d", i);
		pinned[i] = open_file(name);
		assert_int_equal(hf_file_pin(pinned[i], &fd), 0);
		hf_file_unref(pinned[i]);
	}
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		hf_file_unref(open_file(name));
		assert_true(hf_files_count_fds(files) <= 2 * 200 + 32);
	}
	for (int i = 0; i < 12; i++)
		sweep();
	assert_int_equal(hf_files_count_fds(files), 2 * 200);
	for (int i = 0; i < 200; i++)
		hf_file_unpin(pinned[i]);
	for (int i = 0; i < 22; i++) /* in use counts as used, until the next look */
		sweep();
	assert_int_equal(hf_files_count_fds(files), 0);
}

static void test_removed_is_forgotten(void **state)
{
	struct hf_file *file = open_file("f"), *again;
	struct hf_file_id id = file->id;
	struct stat st;

	unlink(path_of("f"));
	assert_int_equal(hf_file_stat(file, &st), -ESTALE);
	assert_int_equal(hf_files_get(files, volume, &id, true, &again), -EAGAIN);
	hf_file_unref(file);
	/* Closing frees its space, which takes time that a call should not spend. */
	assert_int_equal(hf_files_count_fds(files), 1);
	sweep();
	assert_int_equal(hf_files_count_fds(files), 0);
	assert_int_equal(hf_files_get(files, volume, &id, false, &again), -ESTALE);
}

/* Another process that makes a file of that number at this moment is not in the way; missing memory is. */
static void test_asked_while_its_number_is_given_away(void **state)
{
	struct hf_file *file = open_file("f");
	struct hf_file_id id = file->id;
	bool has_ids = volume->has_ids;
	struct stat st;

	unlink(path_of("f"));
	assert_int_equal(hf_file_stat(file, &st), -ESTALE);
	hf_file_unref(file);
	sweep();
	if (!has_ids)
		skip();
	n_made = 5;
	assert_int_equal(hf_files_get(files, volume, &id, false, &file), -ESTALE);
	n_made = 1000;
	assert_int_equal(hf_files_get(files, volume, &id, false, &file), -ENOMEM);
	assert_true(n_made > 900);
	n_made = 0;
}

static void test_pins_hold_the_lock_description(void **state)
{
	struct hf_file *file = open_file("f");
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct flock probe = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int first, second, other;

	assert_int_equal(hf_file_pin(file, &first), 0);
	assert_int_equal(hf_file_pin(file, &second), 0);
	assert_int_equal(first, second);
	assert_int_equal(fcntl(first, F_OFD_SETLK, &lock), 0);
	hf_file_read_fd(file, false);
	hf_file_unref(file);
	for (int i = 0; i < 30; i++)
		sweep();
	hf_file_unpin(file);
	for (int i = 0; i < 30; i++)
		sweep();
	other = open(path_of("f"), O_RDWR);
	assert_int_equal(fcntl(other, F_OFD_GETLK, &probe), 0);
	assert_int_equal(probe.l_type, F_WRLCK); /* still held */
	hf_file_unpin(file);
	probe = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET };
	assert_int_equal(fcntl(other, F_OFD_GETLK, &probe), 0);
	assert_int_equal(probe.l_type, F_UNLCK);
	close(other);
}

/* Whatever else is opened: another object would be another description, and its locks would be strangers. */
static void test_pinned_stays_the_one_object(void **state)
{
	struct hf_file *file = open_file("pinned"), *again;
	struct hf_file_id id = file->id;
	char name[16];
	int fd;

	assert_int_equal(hf_file_pin(file, &fd), 0);
	hf_file_unref(file);
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		hf_file_unref(open_file(name));
	}
	assert_int_equal(hf_files_get(files, volume, &id, true, &again), 0);
	assert_ptr_equal(again, file);
	hf_file_unref(again);
	hf_file_unpin(file);
}

static void test_only_regular_files_are_opened(void **state)
{
	struct hf_file *file;
	struct stat st;
	int fd;

	mkfifo(path_of("p"), 0666);
	fd = openat(volume->root, "p", O_PATH | O_NOFOLLOW);
	assert_int_equal(hf_files_take(files, volume, fd, false, &file, &st), 0);
	assert_int_equal(hf_file_read_fd(file, false), -EINVAL);
	assert_int_equal(hf_file_write_fd(file, false), -EINVAL);
	assert_int_equal(hf_file_pin(file, &fd), -EINVAL);
	hf_file_unref(file);
}

static void test_a_volume_goes_with_its_files(void **state)
{
	struct hf_file *file = open_file("f");

	hf_file_unref(file);
	assert_int_equal(hf_files_count_fds(files), 1);
	hf_files_forget_volume(files, volume);
	hf_files_close_all(files);
	assert_int_equal(hf_files_count_fds(files), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one_object_a_file, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_made_is_open_for_writing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_descriptors_keep_to_the_limit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_using_what_is_open_keeps_to_the_limit, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_synced_without_a_descriptor, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_sweep_closes_the_idle, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_many_in_use, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_removed_is_forgotten, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_asked_while_its_number_is_given_away, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_pins_hold_the_lock_description, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_pinned_stays_the_one_object, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_only_regular_files_are_opened, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_volume_goes_with_its_files, set_up, tear_down),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
