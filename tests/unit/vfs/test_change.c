#include "folder.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "vfs/attr.h"
#include "vfs/data.h"

static struct hf_file *file;
static struct hf_identity caller;

/* What another thread does while the disk works, once. */
static void (*meanwhile)(void);

static void *run_meanwhile(void *fn)
{
	(*(void (**)(void))fn)();
	return NULL;
}

static void let_others(void)
{
	void (*fn)(void) = meanwhile;
	pthread_t thread;

	meanwhile = NULL;
	if (!fn)
		return;
	assert_int_equal(pthread_create(&thread, NULL, run_meanwhile, &fn), 0);
	pthread_join(thread, NULL);
}

/* In the place of libc's. */
ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t offset, int flags)
{
	ssize_t written = syscall(SYS_pwritev2, fd, iov, n, offset, 0, flags);

	if (flags)
		let_others();
	return written;
}

int fsync(int fd)
{
	let_others();
	return (int)syscall(SYS_fsync, fd);
}

static int set_up(void **state)
{
	if (open_folder(100))
		return -1;
	caller = ourselves();
	file = open_file("f");
	return 0;
}

static int tear_down(void **state)
{
	hf_file_unref(file);
	return close_folder();
}

static struct hf_change others;

static struct hf_change write_as(enum hf_stability stability)
{
	struct hf_change change = { 0 };
	size_t n;

	assert_int_equal(hf_file_write(file, &caller, 0, "data", 4, stability, &change, &n), 0);
	assert_true(change.has_after);
	return change;
}

static void write_meanwhile(void)
{
	others = write_as(HF_UNSTABLE);
}

static void set_meanwhile(void)
{
	struct hf_setattr set = {
		.set_mode = true, .mode = 0600, .atime.tv_nsec = UTIME_OMIT, .mtime.tv_nsec = UTIME_OMIT
	};

	others = (struct hf_change){ 0 };
	assert_int_equal(hf_file_setattr(file, &caller, &set, NULL, &others), 0);
}

static struct hf_change commit(void)
{
	struct hf_change change = { 0 };

	assert_int_equal(hf_file_commit(file, &caller, &change), 0);
	assert_true(change.has_after);
	return change;
}

static void test_alone(void **state)
{
	struct hf_change first = write_as(HF_UNSTABLE), second = write_as(HF_FILE_SYNC);

	assert_true(first.has_before);
	assert_int_equal(first.before.st_size, 0);
	assert_int_equal(first.after.st_size, 4);
	assert_true(second.has_before);
	assert_true(commit().has_before);
	assert_true(write_as(HF_DATA_SYNC).has_before);
}

/* Both are between the other's attributes: neither may pass for the only one. */
static void change_while_another_waits(void (*const changes[2])(void))
{
	for (size_t i = 0; i < 2; i++) {
		meanwhile = changes[i];
		assert_false(write_as(i ? HF_DATA_SYNC : HF_FILE_SYNC).has_before);
		assert_false(others.has_before);
		assert_true(others.has_after);
		assert_true(write_as(HF_FILE_SYNC).has_before);
	}
}

static void test_a_change_while_another_waits(void **state)
{
	static void (*const changes[])(void) = { write_meanwhile, set_meanwhile };

	change_while_another_waits(changes);
}

static struct hf_file *same; /* the same file in another export */

static void swap_exports(void)
{
	struct hf_file *other = same;

	same = file;
	file = other;
}

static void write_elsewhere(void)
{
	swap_exports();
	write_meanwhile();
	swap_exports();
}

static void set_elsewhere(void)
{
	swap_exports();
	set_meanwhile();
	swap_exports();
}

static void test_a_change_through_another_export(void **state)
{
	static void (*const changes[])(void) = { write_elsewhere, set_elsewhere };
	struct hf_volume *exported = volume;

	assert_int_equal(hf_volume_new(&volume, base), 0);
	same = open_file("f");
	assert_ptr_not_equal(same, file);
	change_while_another_waits(changes);
	hf_file_unref(same);
	hf_files_forget_volume(files, volume);
	hf_volume_unref(volume);
	volume = exported;
}

/* Nothing is changed by it, so the others' attributes are true. */
static void test_a_change_while_commit_waits(void **state)
{
	meanwhile = write_meanwhile;
	assert_false(commit().has_before);
	assert_true(others.has_before);
	assert_true(commit().has_before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_alone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_change_while_another_waits, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_change_through_another_export, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_change_while_commit_waits, set_up, tear_down),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
