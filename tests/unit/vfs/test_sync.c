/*
 * Which clients hear of data that the disk did not take? The test replaces fsync(2) and its
 * relatives, which behave as the kernel's: a loss is told once to each open file
 * description, of those that were open when it happened.
 */
#include "folder.h"

#include "../../until.h"
#include "asleep.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "vfs/data.h"

#define MAX_FDS   1024
#define MAX_CALLS 4

static struct hf_file *file;
static struct hf_identity caller;

/* The disk */

static _Atomic int n_losses, seen[MAX_FDS];
static _Atomic int n_halves; /* this many, less one, are done by half; then one fails */
static _Atomic int n_inside; /* calls that sync */
static _Atomic int n_whole;  /* of them: the whole file system */
static int n_may_leave = MAX_CALLS, n_left;
static pthread_mutex_t exit_lock = PTHREAD_MUTEX_INITIALIZER; /* of these two */
static pthread_cond_t exit_moved = PTHREAD_COND_INITIALIZER;

static bool is_refused; /* to open it again: by its mode, to an ordinary user */

static void (*on_written)(void); /* once, when data is there */

int open(const char *path, int flags, ...)
{
	va_list args;
	int fd, mode;

	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, int) : 0;
	va_end(args);
	if (is_refused && strncmp(path, "/proc/self/fd/", 14) == 0) {
		errno = EACCES;
		return -1;
	}
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	if (fd >= 0 && fd < MAX_FDS)
		seen[fd] = n_losses;
	return fd;
}

/* The calls leave in the order in which they came. */
static int wait_for_disk(int fd)
{
	int turn = n_inside++;
	bool is_told;

	pthread_mutex_lock(&exit_lock);
	while (turn >= n_may_leave || turn > n_left)
		pthread_cond_wait(&exit_moved, &exit_lock);
	is_told = atomic_exchange(&seen[fd], n_losses) != n_losses;
	n_left++;
	pthread_cond_broadcast(&exit_moved);
	pthread_mutex_unlock(&exit_lock);
	errno = EIO;
	return is_told ? -1 : 0;
}

static void let_leave(int n)
{
	pthread_mutex_lock(&exit_lock);
	n_may_leave = n;
	pthread_cond_broadcast(&exit_moved);
	pthread_mutex_unlock(&exit_lock);
}

int fsync(int fd)
{
	return wait_for_disk(fd);
}

int syncfs(int fd)
{
	n_whole++;
	return wait_for_disk(fd);
}

ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t offset, int flags)
{
	size_t len = iov->iov_len;
	void (*then)(void);
	ssize_t written;

	if (n_halves == 1) {
		n_halves = 0;
		errno = EIO;
		return -1;
	}
	if (n_halves > 1) {
		n_halves--;
		len /= 2;
	}
	written = flags && wait_for_disk(fd) < 0 ? -1 : pwrite(fd, iov->iov_base, len, offset);
	then = on_written;
	on_written = NULL;
	if (then)
		then();
	return written;
}

static int set_up(void **state)
{
	n_losses = n_inside = n_halves = n_whole = 0;
	for (size_t i = 0; i < MAX_FDS; i++)
		seen[i] = 0; /* the volume is not opened by the test's open() */
	n_left = 0;
	let_leave(MAX_CALLS);
	is_refused = false;
	caller = ourselves();
	if (open_folder(100))
		return -1;
	file = open_file("f");
	return hf_file_write_fd(file, false) < 0;
}

static int tear_down(void **state)
{
	hf_file_unref(file);
	return close_folder();
}

/* Calls, each on a thread of its own */

struct call {
	pthread_t thread;
	_Atomic pid_t tid;
	int (*fn)(void);
	int result;
	uint64_t n_losses; /* known when it was over */
};

static int commit(void)
{
	return hf_file_commit(file, &caller, &(struct hf_change){ 0 });
}

static int write_as_asked(enum hf_stability stability)
{
	size_t n = 0;
	int r = hf_file_write(file, &caller, 0, "data", 4, stability, &(struct hf_change){ 0 }, &n);

	return r < 0 ? r : (int)n;
}

static int write_stable(void)
{
	return write_as_asked(HF_FILE_SYNC);
}

static void *run_call(void *arg)
{
	struct call *call = arg;

	call->tid = gettid();
	call->result = call->fn();
	call->n_losses = hf_files_count_losses(files);
	return NULL;
}

/* Until the call is at the disk, or sleeps until the one that is there has ended. */
static void begin(struct call *call, int (*fn)(void))
{
	struct until until = until_begin(UNTIL_PATIENCE);
	int before = n_inside;

	*call = (struct call){ .fn = fn };
	assert_int_equal(pthread_create(&call->thread, NULL, run_call, call), 0);
	while (n_inside == before && !(call->tid && is_asleep(call->tid)))
		assert_true(until_again(&until));
}

static void end(struct call *call)
{
	pthread_join(call->thread, NULL);
}

/* Two at once, and what the first has written is lost. */
static void lose_beneath(struct call *first, int (*first_fn)(void), struct call *second,
			 int (*second_fn)(void))
{
	let_leave(0);
	begin(first, first_fn);
	begin(second, second_fn);
	n_losses++;
	let_leave(MAX_CALLS);
	end(first);
	end(second);
}

static void test_who_waited_hears_of_it(void **state)
{
	struct call first, second;

	lose_beneath(&first, commit, &second, commit);
	assert_int_equal(first.result, -EIO);
	assert_int_equal(second.result, -EIO);
	assert_true(second.n_losses > 0);
	assert_int_equal(commit(), 0);
}

static void test_stable_writes_hear_of_it(void **state)
{
	struct call first, second;

	lose_beneath(&first, write_stable, &second, write_stable);
	assert_int_equal(first.result, -EIO);
	assert_int_equal(second.result, -EIO);
	assert_int_equal(write_stable(), 4);
}

static void test_commit_beside_a_stable_write(void **state)
{
	struct call first, second;

	lose_beneath(&first, commit, &second, write_stable);
	assert_int_equal(first.result, -EIO);
	assert_int_equal(second.result, -EIO);
}

static void test_stable_write_beside_a_commit(void **state)
{
	struct call first, second;

	lose_beneath(&first, write_stable, &second, commit);
	assert_int_equal(first.result, -EIO);
	assert_int_equal(second.result, -EIO);
}

/* One sync that began after they came does for all of them. */
static void test_who_waits_shares(void **state)
{
	struct call calls[MAX_CALLS];

	let_leave(0);
	for (size_t i = 0; i < MAX_CALLS; i++)
		begin(&calls[i], commit);
	let_leave(MAX_CALLS);
	for (size_t i = 0; i < MAX_CALLS; i++) {
		end(&calls[i]);
		assert_int_equal(calls[i].result, 0);
	}
	assert_int_equal(n_inside, 2);
}

static void test_later_ones_sync_again(void **state)
{
	assert_int_equal(commit(), 0);
	assert_int_equal(commit(), 0);
	assert_int_equal(n_inside, 2);
}

/* What was promised to be stable is so as a whole, or it is an error, and others' data may be gone, too. */
static void test_half_a_stable_write(void **state)
{
	n_halves = 2;
	assert_int_equal(write_stable(), -EIO);
	assert_int_equal(hf_files_count_losses(files), 1);
	assert_int_equal(write_stable(), 4);
}

static void test_half_an_unstable_write(void **state)
{
	n_halves = 2;
	assert_int_equal(write_as_asked(HF_UNSTABLE), 2);
	assert_int_equal(hf_files_count_losses(files), 0);
}

/* Then all share what was opened when it was made. */
static void test_a_file_that_cannot_be_opened_again(void **state)
{
	struct call first, second;

	is_refused = true;
	assert_int_equal(write_stable(), 4);
	assert_int_equal(n_inside, 1);
	lose_beneath(&first, commit, &second, write_stable);
	assert_int_equal(first.result, -EIO);
	assert_int_equal(second.result, -EIO);
	assert_int_equal(write_stable(), 4);
}

/* A change of a file that its own mode closes to the server is done: it is not answered with "no access". */
static void sync_what_cannot_be_opened(const char *name)
{
	struct hf_file *closed = open_file(name);

	is_refused = true;
	assert_int_equal(hf_file_sync(closed), 0);
	assert_int_equal(n_whole, 1);
	n_losses++;
	assert_int_equal(hf_file_sync(closed), -EIO);
	assert_int_equal(hf_files_count_losses(files), 1);
	hf_file_unref(closed);
}

static void test_a_file_that_cannot_be_opened_at_all(void **state)
{
	sync_what_cannot_be_opened("closed");
}

static void test_a_directory_that_cannot_be_opened(void **state)
{
	assert_int_equal(mkdirat(volume->mount, "dir", 0700), 0);
	sync_what_cannot_be_opened("dir");
}

static void lose_and_commit(void)
{
	n_losses++;
	assert_int_equal(commit(), -EIO);
}

/* And the loss that another heard of before they could sync may be theirs. */
static void test_lost_between_writing_and_syncing(void **state)
{
	is_refused = true;
	on_written = lose_and_commit;
	assert_int_equal(write_stable(), -EIO);
	assert_int_equal(write_stable(), 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_who_waited_hears_of_it, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_stable_writes_hear_of_it, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_commit_beside_a_stable_write, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_stable_write_beside_a_commit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_who_waits_shares, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_later_ones_sync_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_file_that_cannot_be_opened_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_file_that_cannot_be_opened_at_all, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_directory_that_cannot_be_opened, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lost_between_writing_and_syncing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_half_a_stable_write, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_half_an_unstable_write, set_up, tear_down),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
