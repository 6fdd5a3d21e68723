/*
 * A disk that fails, for the tests: in the place of libc's functions of these
 * names. What is to happen is said by files in the directory HF_TEST_FAILING:
 *
 *	fsync	while it is there, fsync(2) and syncfs(2) fail with EIO
 *	nth	has a number n: of their calls since it came the n-th fails with EIO; each adds a byte to
 *		the file
 *	full	while it is there, nothing more can be written: ENOSPC
 *	write	a write after it came makes the file "written" when it is done, and goes on when "write"
 *		is gone
 *	close	while it is there, close(2) of a file that is open for writing and whose name begins with
 *		"hung" makes the file "closing", and waits until "close" is gone
 *	flush	while it is there, close(2) of a file of such a name makes the file "flushed", and fails
 *		with EIO, as on NFS
 *	open	opening a file by its handle makes the file "opening", and goes on when "open" is gone
 *	want	while it is there, no file can be identified: ENOMEM
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
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

/* The switches are files, too. */
static int close_plainly(int fd)
{
	return (int)syscall(SYS_close, fd);
}

/* Until the file is not there any more. */
static void wait_for_end(const char *name)
{
	char path[256], events[4096];
	int watch = inotify_init1(IN_CLOEXEC);

	inotify_add_watch(watch, path_of("", path), IN_DELETE);
	while (is_asked_for(name) && read(watch, events, sizeof(events)) > 0)
		;
	close_plainly(watch);
}

/* The file has four digits, then a byte for each call; appending is atomic, and tells which it was. */
static bool is_nth(void)
{
	char path[256], digits[5] = "";
	int file = open(path_of("nth", path), O_RDWR | O_APPEND | O_CLOEXEC);
	bool is = false;

	if (file < 0)
		return false;
	if (pread(file, digits, 4, 0) == 4 && write(file, ".", 1) == 1)
		is = lseek(file, 0, SEEK_CUR) == 4 + atoi(digits);
	close_plainly(file);
	return is;
}

static int sync_by(long number, int fd)
{
	if (is_asked_for("fsync") || is_nth()) {
		errno = EIO;
		return -1;
	}
	return (int)syscall(number, fd);
}

int fsync(int fd)
{
	return sync_by(SYS_fsync, fd);
}

int syncfs(int fd)
{
	return sync_by(SYS_syncfs, fd);
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
	close_plainly(open(path_of("written", path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	wait_for_end("write");
	return written;
}

static bool is_on_hung_disk(int fd)
{
	char link[40], path[4096];
	int flags = fcntl(fd, F_GETFL);
	const char *name;
	ssize_t n;

	if (flags < 0 || flags & O_PATH || (flags & O_ACCMODE) == O_RDONLY)
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return false;
	path[n] = '\0';
	name = strrchr(path, '/');
	return name && strncmp(name, "/hung", 5) == 0;
}

int close(int fd)
{
	char path[256];

	if (is_asked_for("close") && is_on_hung_disk(fd)) {
		close_plainly(open(path_of("closing", path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
		wait_for_end("close");
	}
	if (is_asked_for("flush") && is_on_hung_disk(fd)) {
		close_plainly(fd);
		close_plainly(open(path_of("flushed", path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
		errno = EIO;
		return -1;
	}
	return close_plainly(fd);
}

int name_to_handle_at(int dir, const char *name, struct file_handle *handle, int *mount_id, int flags)
{
	if (is_asked_for("want")) {
		errno = ENOMEM;
		return -1;
	}
	return (int)syscall(SYS_name_to_handle_at, dir, name, handle, mount_id, flags);
}

/* On file systems without handles */
int statx(int dir, const char *restrict name, int flags, unsigned int mask, struct statx *restrict stx)
{
	if (is_asked_for("want")) {
		errno = ENOMEM;
		return -1;
	}
	return (int)syscall(SYS_statx, dir, name, flags, mask, stx);
}

int open_by_handle_at(int mount, struct file_handle *handle, int flags)
{
	char path[256];

	if (is_asked_for("open")) {
		close_plainly(open(path_of("opening", path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
		wait_for_end("open");
	}
	return (int)syscall(SYS_open_by_handle_at, mount, handle, flags);
}
