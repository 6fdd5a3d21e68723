#include "daemon/state_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

#define LOCK_FILE     "lock"
#define LOCK_TRIES    100
#define LOCK_PAUSE_NS 10000000

struct hf_state_dir {
	int fd;
	int lock_fd;
};

/* mkdir -p; only the last part becomes private to the server's user. */
static int make_path(const char *path)
{
	char part[4096];
	size_t len = strlen(path);

	if (len >= sizeof(part))
		return -ENAMETOOLONG;
	for (size_t i = 1; i <= len; i++) {
		bool is_last = i == len;

		if (path[i] != '/' && !is_last)
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (mkdir(part, is_last ? 0700 : 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

static long read_pid(int fd)
{
	char text[32] = "";

	if (pread(fd, text, sizeof(text) - 1, 0) <= 0)
		return 0;
	return strtol(text, NULL, 10);
}

/* Another process has the lock, or the file system or the kernel has no such locks. */
static int say_why_not_locked(const struct hf_state_dir *dir, const char *path, char *error,
			      size_t error_size)
{
	int saved = errno;

	if (saved != EWOULDBLOCK) {
		snprintf(error, error_size,
			 "cannot lock the state directory %s: %s; choose another with --set "
			 "server.state_dir=DIR",
			 path, strerror(saved));
		return -saved;
	}
	snprintf(error, error_size,
		 "the state directory %s is in use by another holdfastd (pid %ld); stop it, or "
		 "choose another with --set server.state_dir=DIR",
		 path, read_pid(dir->lock_fd));
	return -EBUSY;
}

/* holdfast(1) takes the lock for a moment, to learn whether a server has it. */
static bool is_locked(int fd)
{
	const struct timespec pause = { .tv_nsec = LOCK_PAUSE_NS };

	for (int i = 1; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
		if (errno != EWOULDBLOCK || i == LOCK_TRIES)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

static int take_lock(struct hf_state_dir *dir, const char *path, char *error, size_t error_size)
{
	dir->lock_fd = openat(dir->fd, LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (dir->lock_fd < 0) {
		int saved = errno;

		snprintf(error, error_size,
			 "cannot write to the state directory %s: %s; choose another with --set "
			 "server.state_dir=DIR",
			 path, strerror(saved));
		return -saved;
	}
	if (!is_locked(dir->lock_fd))
		return say_why_not_locked(dir, path, error, error_size);
	if (ftruncate(dir->lock_fd, 0) < 0 || dprintf(dir->lock_fd, "%ld\n", (long)getpid()) < 0) {
		snprintf(error, error_size, "cannot write to the state directory %s: %s", path,
			 strerror(errno));
		return -EIO;
	}
	return 0;
}

int hf_state_dir_open(struct hf_state_dir **dirp, const char *path, char *error, size_t error_size)
{
	hf_cleanup(hf_state_dir_closep) struct hf_state_dir *dir = calloc(1, sizeof(*dir));
	int r;

	if (!dir)
		return hf_trace(-ENOMEM);
	dir->fd = dir->lock_fd = -1;
	r = make_path(path);
	if (r == 0) {
		dir->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = dir->fd < 0 ? -errno : 0;
	}
	if (r < 0) {
		snprintf(error, error_size,
			 "cannot open the state directory %s: %s; choose another with --set "
			 "server.state_dir=DIR",
			 path, strerror(-r));
		return r;
	}
	r = take_lock(dir, path, error, error_size);
	if (r < 0)
		return r;
	*dirp = dir;
	dir = NULL;
	return 0;
}

struct hf_state_dir *hf_state_dir_close(struct hf_state_dir *dir)
{
	if (!dir)
		return NULL;
	if (dir->lock_fd >= 0)
		close(dir->lock_fd);
	if (dir->fd >= 0)
		close(dir->fd);
	free(dir);
	return NULL;
}

static int write_all(int fd, const char *data, size_t len)
{
	while (len) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			data += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

static int replace(struct hf_state_dir *dir, const char *name, const void *data, size_t len, bool is_synced)
{
	char temporary[256];
	int fd, r;

	snprintf(temporary, sizeof(temporary), "%s.new", name);
	fd = openat(dir->fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return -errno;
	r = write_all(fd, data, len);
	if (r == 0 && is_synced && fsync(fd) < 0)
		r = -errno;
	if (close(fd) < 0 && r == 0)
		r = -errno;
	if (r == 0 && renameat(dir->fd, temporary, dir->fd, name) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dir->fd, temporary, 0);
	else if (is_synced && fsync(dir->fd) < 0)
		r = -errno;
	return r;
}

int hf_state_dir_write(struct hf_state_dir *dir, const char *name, const void *data, size_t len)
{
	return replace(dir, name, data, len, false);
}

int hf_state_dir_save(struct hf_state_dir *dir, const char *name, const void *data, size_t len)
{
	return replace(dir, name, data, len, true);
}

int hf_state_dir_read(struct hf_state_dir *dir, const char *name, char *out, size_t size)
{
	hf_cleanup(hf_closep) int fd = openat(dir->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, out, size - 1);
	if (n < 0)
		return -errno;
	out[n] = '\0';
	return 0;
}

int hf_state_dir_remove(struct hf_state_dir *dir, const char *name)
{
	return unlinkat(dir->fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

/* Gives away only a file of the server's user that has no other name: if the new user owned the directory
 * before, it may have made links here to the files of others. */
static int give_file(struct hf_state_dir *dir, const char *name, unsigned int uid, unsigned int gid)
{
	hf_cleanup(hf_closep) int fd = openat(dir->fd, name, O_PATH | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || st.st_uid != geteuid())
		return 0;
	return fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

int hf_state_dir_give(struct hf_state_dir *dir, unsigned int uid, unsigned int gid)
{
	int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	int r = 0;

	if (!list) {
		r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	while (r == 0 && (entry = readdir(list)))
		r = give_file(dir, entry->d_name, uid, gid);
	closedir(list);
	if (r == 0 && fchown(dir->fd, uid, gid) < 0)
		r = -errno;
	return r;
}
