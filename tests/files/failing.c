/*
 * A disk that fails, for the tests: in the place of libc's functions of these
 * names. What is to happen is said by files in the directory HF_TEST_FAILING:
 *
 *	fsync	while it is there, fsync(2) fails with EIO
 *	full	while it is there, nothing more can be written: ENOSPC
 *	write	whoever writes after it came makes the file "written" when it is done, and goes on when
 *"write" is gone
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *path_of(const char *name, char path[256])
{
	const char *dir = getenv("HF_TEST_FAILING");

	snprintf(path, 256, "%s/%s", dir ? dir : "/nonexistent", name);
	return path;
}

static bool is_asked_for(const char *name)
{
	char path[256];

	return access(path_of(name, path), F_OK) == 0;
}

/* Until the file is not there any more. */
static void wait_for_end(const char *name)
{
	char path[256], events[4096];
	int watch = inotify_init1(IN_CLOEXEC);

	inotify_add_watch(watch, path_of("", path), IN_DELETE);
	while (is_asked_for(name) && read(watch, events, sizeof(events)) > 0)
		;
	close(watch);
}

int fsync(int fd)
{
	if (is_asked_for("fsync")) {
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_fsync, fd);
}

ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t offset, int flags)
{
	ssize_t written;
	char path[256];

	if (is_asked_for("full")) {
		errno = ENOSPC;
		return -1;
	}
	written = syscall(SYS_pwritev2, fd, iov, n, offset, 0, flags);
	if (!is_asked_for("write"))
		return written;
	close(open(path_of("written", path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	wait_for_end("write");
	return written;
}
