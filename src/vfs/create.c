/*
 * Creates regular files.
 *
 * An exclusive request stores its verifier in the file's times, where its
 * retransmission finds it, even after a restart; the client then sets the real
 * times. The file is created without a name and linked when it is complete, so
 * it never exists under its name without the verifier.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "vfs/access.h"
#include "vfs/tree_internal.h"

#define EXCLUSIVE_MODE 0600 /* until the client sets the mode */
#define OPEN_FLAGS     (O_WRONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC)

/* The verifier as times: 31 bits in each half, which every file system can store. */
struct mark {
	struct timespec atime;
	struct timespec mtime;
};

static struct mark mark_of(const uint8_t verifier[8])
{
	uint32_t words[2];

	memcpy(words, verifier, sizeof(words));
	return (struct mark){ { .tv_sec = words[0] & INT32_MAX }, { .tv_sec = words[1] & INT32_MAX } };
}

static bool has_mark(const struct stat *st, const struct mark *mark)
{
	return S_ISREG(st->st_mode) && st->st_size == 0 && st->st_atim.tv_sec == mark->atime.tv_sec &&
	       st->st_mtim.tv_sec == mark->mtime.tv_sec;
}

static int set_mark(int fd, const struct mark *mark)
{
	struct timespec times[2] = { mark->atime, mark->mtime };

	return futimens(fd, times) < 0 ? -errno : 0;
}

/* These run under the caller's identity and return the new file, open for writing. */

static int make_plain(struct hf_file *dir, const char *name, mode_t mode)
{
	int fd = openat(dir->fd, name, OPEN_FLAGS | O_CREAT | O_EXCL, mode);

	return fd < 0 ? -errno : fd;
}

/* For file systems without nameless files. A crash in between leaves a file without a verifier. */
static int make_named_marked(struct hf_file *dir, const char *name, const struct mark *mark)
{
	hf_cleanup(hf_closep) int fd = make_plain(dir, name, EXCLUSIVE_MODE);
	int r;

	if (fd < 0)
		return fd;
	r = set_mark(fd, mark);
	if (r < 0) {
		unlinkat(dir->fd, name, 0);
		return r;
	}
	r = fd;
	fd = -1;
	return r;
}

static int make_marked(struct hf_file *dir, const char *name, const struct mark *mark)
{
	hf_cleanup(hf_closep) int fd = openat(dir->fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, EXCLUSIVE_MODE);
	int r;

	if (fd < 0)
		return errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL
			       ? make_named_marked(dir, name, mark)
			       : -errno;
	r = set_mark(fd, mark);
	if (r == 0)
		r = hf_link_fd(fd, dir->fd, name);
	if (r < 0)
		return r;
	r = fd;
	fd = -1;
	return r;
}

static int make_as(struct hf_file *dir, const struct hf_identity *caller, const char *name,
		   enum hf_create_how how, const struct hf_setattr *set, const struct mark *mark)
{
	HF_AS(as, caller);

	if (as.result < 0)
		return as.result;
	if (how == HF_CREATE_EXCLUSIVE)
		return make_marked(dir, name, mark);
	return make_plain(dir, name, set->set_mode ? set->mode & 07777 : 0666);
}

/* The name already exists. */
static int use_existing(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
			enum hf_create_how how, const struct hf_setattr *set, const struct mark *mark,
			struct hf_file **filep)
{
	struct hf_setattr size = { .set_size = set->set_size,
				   .size = set->size,
				   .atime.tv_nsec = UTIME_OMIT,
				   .mtime.tv_nsec = UTIME_OMIT };
	struct stat dir_st, st;
	int r;

	if (how == HF_CREATE_GUARDED)
		return -EEXIST;
	r = hf_dir_lookup(dir, caller, name, 0, &dir_st, filep, &st);
	if (r < 0)
		return r;
	if (how == HF_CREATE_EXCLUSIVE)
		return has_mark(&st, mark) ? 0 : -EEXIST;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EEXIST;
	if (!set->set_size)
		return 0;
	return hf_file_setattr(*filep, caller, &size, NULL, &(struct hf_change){ 0 });
}

static int create(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		  enum hf_create_how how, const struct hf_setattr *set, const struct mark *mark,
		  struct hf_change *change, struct hf_file **filep)
{
	int fd, r = hf_dir_check_name(dir, change, name);

	if (r < 0)
		return r;
	fd = make_as(dir, caller, name->text, how, set, mark);
	if (fd == -EEXIST)
		return use_existing(dir, caller, name, how, set, mark, filep);
	if (fd < 0)
		return fd;
	change->is_made = true;
	r = hf_files_take_made(dir->files, dir->volume, fd, filep);
	if (r < 0)
		return hf_dir_made_unopened(r, set, caller, S_IFREG);
	hf_volume_saw(dir->volume, dir->id.inode, name->text, (*filep)->id.inode);
	return how == HF_CREATE_EXCLUSIVE ? 0 : hf_file_setattr_new(*filep, caller, set);
}

int hf_dir_create(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		  enum hf_create_how how, const struct hf_setattr *set, const uint8_t verifier[8],
		  struct hf_change *change, struct hf_file **filep)
{
	struct mark mark = { 0 };
	int r = 0;

	if (how == HF_CREATE_EXCLUSIVE)
		mark = mark_of(verifier);
	HF_WITH_CHANGE(change, dir)
	r = create(dir, caller, name, how, set, &mark, change, filep);
	return r;
}
