/*
 * Creates files of all types, and links.
 *
 * An exclusive request stores its verifier in the file's times, where its
 * retransmission finds it, even after a restart; the client then sets the real
 * times. The file is created without a name and linked when it is complete, so
 * it never exists under its name without the verifier.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "vfs/access.h"
#include "vfs/tree_internal.h"

#define EXCLUSIVE_MODE 0600 /* until the client sets the mode */
#define OPEN_FLAGS     (O_WRONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC)

/* The name was created, but opening the file failed with @error. 0: the client hears that it exists. A client
 * that is told to try again finds its own object and fails. It can do without the handle, but not without
 * attributes that only an open file can be given. */
static int made_unopened(int error, const struct hf_setattr *set, const struct hf_identity *caller,
			 mode_t type)
{
	return hf_volume_is_want(error) && hf_setattr_is_done_by_making(set, caller, type) ? 0 : error;
}

/* For a name that is to be created */
static int check_name(struct hf_file *dir, const struct hf_change *change, const struct hf_name *name)
{
	return hf_name_is_dots(name) ? -EEXIST : hf_dir_check_begun(dir, change);
}

/* linkat() with a descriptor is only for the superuser, so go through /proc. */
static int link_fd(int fd, int dir, const char *name)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, path, dir, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static mode_t mode_of(const struct hf_setattr *set, mode_t otherwise)
{
	return set->set_mode ? set->mode & 07777 : otherwise;
}

/* Regular files */

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
		r = link_fd(fd, dir->fd, name);
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
	int fd, r = check_name(dir, change, name);

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
		return made_unopened(r, set, caller, S_IFREG);
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

/* Other objects, and links */

/* After a name was created: returns the file, and sets the rest of its attributes. */
static int finish_making(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
			 const struct hf_setattr *set, mode_t type, struct hf_file **filep)
{
	struct stat st;
	int r = hf_dir_open_entry(dir, name, false, filep, &st);

	if (r < 0)
		return made_unopened(r, set, caller, type);
	return hf_file_setattr_new(*filep, caller, set);
}

static int mkdir_as(struct hf_file *dir, const struct hf_identity *caller, const char *name, mode_t mode)
{
	HF_AS(as, caller);

	if (as.result < 0)
		return as.result;
	return mkdirat(dir->fd, name, mode) < 0 ? -errno : 0;
}

int hf_dir_mkdir(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		 const struct hf_setattr *set, struct hf_change *change, struct hf_file **filep)
{
	int r;

	HF_WITH_CHANGE(change, dir)
	{
		r = check_name(dir, change, name);
		if (r == 0)
			r = hf_change_step(change, mkdir_as(dir, caller, name->text, mode_of(set, 0777)));
		if (r == 0)
			r = finish_making(dir, caller, name, set, S_IFDIR, filep);
	}
	return r;
}

static int symlink_as(struct hf_file *dir, const struct hf_identity *caller, const char *name,
		      const char *target)
{
	HF_AS(as, caller);

	if (as.result < 0)
		return as.result;
	return symlinkat(target, dir->fd, name) < 0 ? -errno : 0;
}

int hf_dir_symlink(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		   const char *target, const struct hf_setattr *set, struct hf_change *change,
		   struct hf_file **filep)
{
	int r;

	HF_WITH_CHANGE(change, dir)
	{
		r = check_name(dir, change, name);
		if (r == 0)
			r = hf_change_step(change, symlink_as(dir, caller, name->text, target));
		if (r == 0)
			r = finish_making(dir, caller, name, set, S_IFLNK, filep);
	}
	return r;
}

static int mknod_as(struct hf_file *dir, const struct hf_identity *caller, const char *name, mode_t mode,
		    dev_t device)
{
	HF_AS(as, caller);

	if (as.result < 0)
		return as.result;
	return mknodat(dir->fd, name, mode, device) < 0 ? -errno : 0;
}

int hf_dir_mknod(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		 mode_t type, dev_t device, const struct hf_setattr *set, struct hf_change *change,
		 struct hf_file **filep)
{
	int r;

	HF_WITH_CHANGE(change, dir)
	{
		r = check_name(dir, change, name);
		if (r == 0)
			r = hf_change_step(change, mknod_as(dir, caller, name->text,
							    type | mode_of(set, 0666), device));
		if (r == 0)
			r = finish_making(dir, caller, name, set, type, filep);
	}
	return r;
}

static int link_as(struct hf_file *dir, const struct hf_identity *caller, const char *name,
		   struct hf_file *file)
{
	HF_AS(as, caller);

	return as.result < 0 ? as.result : link_fd(file->fd, dir->fd, name);
}

int hf_dir_link(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		struct hf_file *file, struct hf_change *change)
{
	struct stat st;
	int r;

	HF_WITH_CHANGE(change, dir)
	{
		r = check_name(dir, change, name);
		if (r == 0 && S_ISDIR(file->type))
			r = -EISDIR;
		if (r == 0 && file->volume != dir->volume)
			r = -EXDEV;
		if (r == 0)
			r = hf_file_stat(file, &st); /* for a removed file the kernel would return -ENOENT */
		if (r == 0)
			r = link_as(dir, caller, name->text, file);
	}
	if (r < 0)
		return r;
	hf_file_changed(file);
	hf_volume_saw(dir->volume, dir->id.inode, name->text, file->id.inode);
	return 0;
}
