/* Whose the state directory is. Where it cannot be locked for another reason, flock() says so here. */
#include "../test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "daemon/state_dir.h"

static int flock_error; /* 0: it is the kernel's */
static int n_busy;      /* so many times another process has the lock */

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation)
{
	if (n_busy > 0) {
		n_busy--;
		errno = EWOULDBLOCK;
		return -1;
	}
	if (!flock_error)
		return __real_flock(fd, operation);
	errno = flock_error;
	return -1;
}

struct bed {
	char path[64];
	char error[512];
	struct hf_state_dir *dir;
};

static int set_up(void **state)
{
	struct bed *bed = calloc(1, sizeof(*bed));

	*state = bed;
	strcpy(bed->path, "/tmp/holdfast-state.XXXXXX");
	return mkdtemp(bed->path) ? 0 : -1;
}

static int tear_down(void **state)
{
	struct bed *bed = *state;
	char file[96];

	flock_error = n_busy = 0;
	hf_state_dir_close(bed->dir);
	snprintf(file, sizeof(file), "%s/lock", bed->path);
	unlink(file);
	rmdir(bed->path);
	free(bed);
	return 0;
}

static int open_dir(struct bed *bed, struct hf_state_dir **dirp)
{
	return hf_state_dir_open(dirp, bed->path, bed->error, sizeof(bed->error));
}

static void test_in_use(void **state)
{
	struct bed *bed = *state;
	struct hf_state_dir *second = NULL;
	char pid[64];

	assert_int_equal(open_dir(bed, &bed->dir), 0);
	assert_int_equal(open_dir(bed, &second), -EBUSY);
	snprintf(pid, sizeof(pid), "in use by another holdfastd (pid %ld)", (long)getpid());
	assert_non_null(strstr(bed->error, pid));
	bed->dir = hf_state_dir_close(bed->dir);
	assert_int_equal(open_dir(bed, &bed->dir), 0);
}

/* holdfast(1) has the lock for a moment when it looks whether a server has it. */
static void test_is_looked_at(void **state)
{
	struct bed *bed = *state;

	n_busy = 3;
	assert_int_equal(open_dir(bed, &bed->dir), 0);
	assert_int_equal(n_busy, 0);
}

/* As on NFS without a lock manager, or in a kernel without memory: no other holdfastd is to blame. */
static void test_cannot_be_locked(void **state)
{
	struct bed *bed = *state;

	flock_error = ENOLCK;
	assert_int_equal(open_dir(bed, &bed->dir), -ENOLCK);
	assert_non_null(strstr(bed->error, "cannot lock the state directory"));
	assert_non_null(strstr(bed->error, strerror(ENOLCK)));
	assert_null(strstr(bed->error, "in use"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_in_use, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_is_looked_at, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_cannot_be_locked, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("state_dir", tests, NULL, NULL);
}
