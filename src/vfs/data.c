#include "vfs/data.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "vfs/access.h"

#define MAX_OFFSET ((uint64_t)INT64_MAX)

/* Accepts only regular files; otherwise the fitting error. */
static int check_type(const struct hf_file *file)
{
	if (S_ISREG(file->type))
		return 0;
	return S_ISDIR(file->type) ? -EISDIR : -EINVAL;
}

/* Reading */

static ssize_t read_all(int fd, char *data, size_t len, uint64_t offset, int flags)
{
	size_t done = 0;

	while (done < len) {
		struct iovec iov = { data + done, len - done };
		ssize_t n = preadv2(fd, &iov, 1, (off_t)(offset + done), flags);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return done ? (ssize_t)done : -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static int read_from(int fd, uint64_t offset, void *data, size_t len, bool cached, size_t *np)
{
	ssize_t n;

	if (offset > MAX_OFFSET) { /* beyond the end of any file */
		*np = 0;
		return 0;
	}
	len = HF_MIN(len, MAX_OFFSET - offset);
	n = read_all(fd, data, len, offset, cached ? RWF_NOWAIT : 0);
	/* A file system that does not support the flag could block. */
	if (n < 0)
		return cached && n == -EOPNOTSUPP ? -EAGAIN : (int)n;
	*np = (size_t)n;
	return 0;
}

int hf_file_read(struct hf_file *file, const struct hf_identity *caller, uint64_t offset, void *data,
		 size_t len, bool cached, size_t *np, struct stat *stp)
{
	int r = check_type(file), fd;

	if (r < 0)
		return r;
	r = hf_file_stat(file, stp);
	if (r < 0)
		return r;
	r = hf_file_may(file, caller, stp, R_OK);
	if (r < 0)
		return r;
	fd = hf_file_read_fd(file, cached);
	if (fd < 0)
		return fd;
	r = read_from(fd, offset, data, len, cached, np);
	if (r < 0)
		return r;
	r = hf_file_stat(file, stp);
	if (r < 0)
		return r;
	if (cached && *np < len && offset + *np < (uint64_t)stp->st_size)
		return -EAGAIN; /* the rest is on disk */
	return 0;
}

/* Writing */

/* *donep bytes were written. Returns 0, or why not all of them were. */
static int write_all(int fd, const char *data, size_t len, uint64_t offset, int flags, size_t *donep)
{
	*donep = 0;
	while (*donep < len) {
		struct iovec iov = { (char *)(uintptr_t)data + *donep, len - *donep };
		ssize_t n = pwritev2(fd, &iov, 1, (off_t)(offset + *donep), flags);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		*donep += (size_t)n;
	}
	return 0;
}

static int flags_of(enum hf_stability stability)
{
	switch (stability) {
	case HF_UNSTABLE:
		return 0;
	case HF_DATA_SYNC:
		return RWF_DSYNC;
	case HF_FILE_SYNC:
		break;
	}
	return RWF_SYNC;
}

/* The descriptor of a write, opened before the identity is on: the owner may write a file of mode 0444. */
struct way {
	int fd;
	int own; /* the same descriptor if only this write uses it; otherwise -1 */
	int flags;
	bool is_stable;
	bool syncs;      /* sync after the write, together with other calls */
	uint64_t failed; /* number of failed syncs before the write */
};

static void way_clear(struct way *way)
{
	hf_closep(&way->own);
}

/* Without root, the server cannot reopen a file whose mode forbids it, although its descriptor from the
 * creation is still open. */
static void find_way(struct hf_file *file, enum hf_stability stability, struct way *way)
{
	*way = (struct way){ .own = -1, .is_stable = stability != HF_UNSTABLE };
	way->fd = hf_file_write_fd(file, false);
	if (way->fd < 0 || !way->is_stable)
		return;
	way->own = hf_file_open_to_write(file);
	if (way->own >= 0) {
		way->fd = way->own;
		way->flags = flags_of(stability);
	} else {
		way->syncs = true;
		way->failed = file->syncs_failed;
	}
}

static int write_along(struct hf_file *file, const struct way *way, uint64_t offset, const void *data,
		       size_t len, size_t *np)
{
	int r = write_all(way->fd, data, len, offset, way->flags, np), synced;

	if (!way->is_stable)
		file->is_unsynced = true;
	hf_file_changed(file);
	if (!way->syncs || *np == 0)
		return r;
	synced = hf_file_sync(file);
	/* Another sync reported a loss since this write began: the lost data may be of this write. */
	if (synced == 0 && file->syncs_failed != way->failed)
		synced = -EIO;
	if (synced == 0)
		return r;
	*np = 0;
	return synced;
}

/* A stable write failed: were earlier writes lost, too? With ENOSPC or EDQUOT mostly the write itself failed;
 * then nothing is lost and no client needs to send anything again. If the sync failed instead, the shared
 * descriptor reports it, too, because it has been open longer. */
static void note_loss_if_any(struct hf_file *file, int error)
{
	if (error == -ENOSPC || error == -EDQUOT)
		hf_file_sync(file);
	else if (error == -EIO)
		hf_files_note_loss(file->files, error);
}

static int write_as(struct hf_file *file, const struct hf_identity *caller, uint64_t offset, const void *data,
		    size_t len, enum hf_stability stability, size_t *np)
{
	hf_cleanup(way_clear) struct way way;
	int r;

	find_way(file, stability, &way);
	HF_AS(as, caller);
	if (way.fd < 0)
		return way.fd;
	if (as.result < 0)
		return as.result;
	r = write_along(file, &way, offset, data, len, np);
	if (way.is_stable)
		note_loss_if_any(file, r);
	/* A failing disk may have lost the first part, too. */
	if (*np && !(way.is_stable && r == -EIO))
		return 0;
	*np = 0;
	return r;
}

static int write_checked(struct hf_file *file, const struct hf_identity *caller, uint64_t offset,
			 const void *data, size_t len, enum hf_stability stability, struct hf_change *change,
			 size_t *np)
{
	int r = check_type(file);

	*np = 0;
	if (r < 0)
		return r;
	if (!change->has_before || change->before.st_nlink == 0)
		return -ESTALE;
	r = hf_file_may(file, caller, &change->before, W_OK);
	if (r < 0)
		return r;
	if (offset > MAX_OFFSET || len > MAX_OFFSET - offset)
		return -EFBIG;
	return len ? write_as(file, caller, offset, data, len, stability, np) : 0;
}

int hf_file_write(struct hf_file *file, const struct hf_identity *caller, uint64_t offset, const void *data,
		  size_t len, enum hf_stability stability, struct hf_change *change, size_t *np)
{
	int r = 0;

	if (stability == HF_UNSTABLE) {
		HF_WITH_CHANGE(change, file)
		r = write_checked(file, caller, offset, data, len, stability, change, np);
		return r;
	}
	/* Waiting for the disk must not block other calls on the file. */
	hf_change_begin_open(change, file);
	r = write_checked(file, caller, offset, data, len, stability, change, np);
	hf_change_end_open(change, file);
	return r;
}

int hf_file_commit(struct hf_file *file, const struct hf_identity *caller, struct hf_change *change)
{
	int r = check_type(file);

	hf_change_watch(change, file);
	if (r == 0 && !change->has_before)
		r = -ESTALE;
	if (r == 0)
		r = hf_file_may(file, caller, &change->before, W_OK);
	if (r == 0)
		r = hf_file_sync(file);
	hf_change_end_watch(change, file);
	return r;
}
