/* One open file: its descriptors and its attributes. files.c has the cache. */
#include "vfs/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "vfs/files_internal.h"

/* Making and freeing */

int hf_file_new(struct hf_file **filep, struct hf_files *files, struct hf_volume *volume,
		const struct hf_file_id *id, int fd, const struct stat *st)
{
	struct hf_file *file = calloc(1, sizeof(*file));

	if (!file)
		return hf_trace(-ENOMEM);
	hf_link_init(&file->lru);
	hf_link_init(&file->closing);
	file->files = files;
	file->volume = hf_volume_ref(volume);
	file->id = *id;
	file->fd = fd;
	file->dev = st->st_dev;
	file->type = st->st_mode & S_IFMT;
	file->n_refs = 1;
	file->read_fd = file->write_fd = file->lock_fd = -1;
	pthread_mutex_init(&file->change_lock, NULL);
	pthread_mutex_init(&file->sync_lock, NULL);
	pthread_mutex_init(&file->lock, NULL);
	hf_files_count(files, 1);
	*filep = file;
	return 0;
}

static void close_counted(struct hf_files *files, int fd)
{
	if (fd < 0)
		return;
	if (close(fd) < 0) /* NFS and FUSE write data back here */
		hf_files_note_loss(files, -errno);
	hf_files_count(files, -1);
}

int hf_file_count_fds(const struct hf_file *file)
{
	return (file->fd != file->write_fd) + (file->read_fd >= 0) + (file->write_fd >= 0) +
	       (file->lock_fd >= 0);
}

void hf_file_free(struct hf_file *file)
{
	struct stat st;

	assert(file->n_pins == 0);
	if (file->is_unsynced && fstat(file->fd, &st) == 0 && st.st_nlink > 0) /* its export is gone */
		hf_file_sync(file);
	if (file->fd != file->write_fd)
		close_counted(file->files, file->fd);
	close_counted(file->files, file->read_fd);
	close_counted(file->files, file->write_fd);
	close_counted(file->files, file->lock_fd);
	pthread_mutex_destroy(&file->change_lock);
	pthread_mutex_destroy(&file->sync_lock);
	pthread_mutex_destroy(&file->lock);
	hf_volume_unref(file->volume);
	free(file);
}

struct hf_file *hf_file_ref(struct hf_file *file)
{
	atomic_fetch_add_explicit(&file->n_refs, 1, memory_order_relaxed);
	return file;
}

static bool drop(struct hf_file *file)
{
	return file && atomic_fetch_sub_explicit(&file->n_refs, 1, memory_order_acq_rel) == 1;
}

struct hf_file *hf_file_unref(struct hf_file *file)
{
	if (drop(file))
		hf_files_close_later(file);
	return NULL;
}

struct hf_file *hf_file_close(struct hf_file *file)
{
	if (drop(file))
		hf_file_free(file);
	return NULL;
}

/* Descriptors */

/* Through /proc it is the same file, whatever happened to its name. */
static int reopen(int fd, int flags)
{
	char path[40];
	int opened;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	opened = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return opened < 0 ? -errno : opened;
}

/* Under file->lock */
static int open_slot(struct hf_file *file, _Atomic int *slot, int flags)
{
	int fd = *slot;

	if (fd >= 0)
		return fd;
	fd = reopen(file->fd, flags);
	if (fd < 0)
		return fd;
	hf_files_count(file->files, 1);
	atomic_store_explicit(slot, fd, memory_order_release);
	return fd;
}

static int open_once(struct hf_file *file, _Atomic int *slot, int flags, bool cached)
{
	int fd = atomic_load_explicit(slot, memory_order_acquire);

	if (fd >= 0)
		return fd;
	if (!S_ISREG(file->type)) /* opening any other type has side effects */
		return S_ISDIR(file->type) ? -EISDIR : -EINVAL;
	if (cached)
		return -EAGAIN;
	pthread_mutex_lock(&file->lock);
	fd = open_slot(file, slot, flags);
	pthread_mutex_unlock(&file->lock);
	hf_files_make_room_for(file, true);
	return fd;
}

int hf_file_read_fd(struct hf_file *file, bool cached)
{
	return open_once(file, &file->read_fd, O_RDONLY, cached);
}

int hf_file_write_fd(struct hf_file *file, bool cached)
{
	return open_once(file, &file->write_fd, O_WRONLY, cached);
}

int hf_file_open_to_write(struct hf_file *file)
{
	return S_ISREG(file->type) ? reopen(file->fd, O_WRONLY) : -EINVAL;
}

/* Syncing */

static int synced(struct hf_file *file, int result)
{
	int r = result < 0 ? -errno : 0;

	if (r < 0) /* before another call can report success */
		hf_files_note_loss(file->files, r);
	return r;
}

static int sync_now(struct hf_file *file)
{
	int fd = -1;

	if (S_ISREG(file->type) || S_ISDIR(file->type)) {
		pthread_mutex_lock(&file->lock);
		fd = file->write_fd >= 0 ? file->write_fd : open_slot(file, &file->read_fd, O_RDONLY);
		pthread_mutex_unlock(&file->lock);
		hf_files_make_room_for(file, false);
		if (fd < 0 && fd != -EACCES && fd != -EPERM && !hf_volume_is_want(fd))
			return fd;
	}
	/* Symbolic links and devices cannot be opened, no file can without a free descriptor, and a server
	 * without root cannot open what its mode closes: then sync the whole file system. The change is
	 * already made, so the reply must not say that it was refused. */
	return synced(file, fd >= 0 ? fsync(fd) : syncfs(file->volume->mount));
}

int hf_file_sync_around(struct hf_file *dir)
{
	return synced(dir, syncfs(dir->volume->mount));
}

/* Under sync_lock. @begun, @failed: the counts when the caller came. */
static int sync_unless_done(struct hf_file *file, uint64_t begun, uint64_t failed)
{
	int r;

	if (file->syncs_failed != failed)
		return file->sync_error;
	if (file->syncs_begun != begun)
		return 0;
	file->syncs_begun++;
	file->is_unsynced = false;
	r = sync_now(file);
	if (r < 0) {
		file->sync_error = r;
		file->syncs_failed++;
	}
	return r;
}

int hf_file_sync(struct hf_file *file)
{
	uint64_t failed = file->syncs_failed, begun = file->syncs_begun;
	int r;

	pthread_mutex_lock(&file->sync_lock);
	r = sync_unless_done(file, begun, failed);
	pthread_mutex_unlock(&file->sync_lock);
	return r;
}

/* Locks */

int hf_file_pin(struct hf_file *file, int *lock_fdp)
{
	int fd;

	if (!S_ISREG(file->type))
		return -EINVAL;
	pthread_mutex_lock(&file->lock);
	fd = open_slot(file, &file->lock_fd, O_RDWR);
	if (fd == -EACCES || fd == -EROFS || fd == -EPERM || fd == -ETXTBSY)
		fd = open_slot(file, &file->lock_fd, O_RDONLY);
	if (fd >= 0) {
		hf_file_ref(file);
		file->n_pins++;
	}
	pthread_mutex_unlock(&file->lock);
	if (fd < 0)
		return hf_trace(fd);
	*lock_fdp = fd;
	return 0;
}

void hf_file_unpin(struct hf_file *file)
{
	int fd = -1;

	pthread_mutex_lock(&file->lock);
	assert(file->n_pins > 0);
	if (--file->n_pins == 0)
		fd = atomic_exchange(&file->lock_fd, -1);
	pthread_mutex_unlock(&file->lock);
	close_counted(file->files, fd);
	hf_file_unref(file);
}

/* Attributes */

int hf_file_stat(struct hf_file *file, struct stat *stp)
{
	if (fstat(file->fd, stp) < 0)
		return -errno;
	if (stp->st_nlink == 0) {
		hf_file_forget(file);
		return -ESTALE;
	}
	return 0;
}
