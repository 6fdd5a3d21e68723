#include "vfs/attr.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vfs/access.h"
#include "vfs/tree_internal.h"

/* Under the caller's identity the kernel checks each step. The size comes first: it fails most often, and a
 * new mode could forbid it. The mode comes after the owner: changing the owner clears set-user-id. */

/* To chown(2) this number means "leave it", so it would be answered with OK and change nothing. */
static bool names_no_owner(const struct hf_setattr *set)
{
	return (set->set_uid && set->uid == (uid_t)-1) || (set->set_gid && set->gid == (gid_t)-1);
}

static int set_owner(struct hf_file *file, const struct hf_setattr *set)
{
	uid_t uid = set->set_uid ? set->uid : (uid_t)-1;
	gid_t gid = set->set_gid ? set->gid : (gid_t)-1;

	return fchownat(file->fd, "", uid, gid, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

static int set_mode(struct hf_file *file, const struct hf_setattr *set)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
	return chmod(path, set->mode & 07777) < 0 ? -errno : 0;
}

static int set_times(struct hf_file *file, const struct hf_setattr *set)
{
	struct timespec times[2] = { set->atime, set->mtime };

	if (set->atime.tv_nsec == UTIME_OMIT && set->mtime.tv_nsec == UTIME_OMIT)
		return 0;
	return utimensat(file->fd, "", times, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

/* One time becomes "now" and the other stays: clients send this with every truncation. A caller that may
 * write may do so, as it may set both to "now"; utimensat(2) allows one alone only to the owner. */
static bool is_half_touch(const struct hf_setattr *set)
{
	return (set->atime.tv_nsec == UTIME_NOW && set->mtime.tv_nsec == UTIME_OMIT) ||
	       (set->atime.tv_nsec == UTIME_OMIT && set->mtime.tv_nsec == UTIME_NOW);
}

static int set_size(int fd, uint64_t size)
{
	if (size > INT64_MAX)
		return -EFBIG;
	return ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
}

static int set_all(struct hf_file *file, const struct hf_identity *caller, const struct hf_setattr *set,
		   int write_fd, struct hf_change *change)
{
	int r = 0;
	HF_AS(as, caller);

	if (as.result < 0)
		return as.result;
	if (set->set_size)
		r = hf_change_step(change, set_size(write_fd, set->size));
	if (r == 0 && (set->set_uid || set->set_gid))
		r = hf_change_step(change, set_owner(file, set));
	if (r == 0 && set->set_mode && !S_ISLNK(file->type)) /* a symbolic link has no mode of its own */
		r = hf_change_step(change, set_mode(file, set));
	if (r == 0)
		r = set_times(file, set);
	hf_file_forget_access(file);
	hf_file_changed(file);
	return r;
}

/* Opens a descriptor for truncating before the identity is on: the owner may truncate under any mode. */
static int prepare_size(struct hf_file *file, const struct hf_identity *caller, const struct stat *st,
			int *write_fdp)
{
	int r;

	if (!S_ISREG(file->type))
		return S_ISDIR(file->type) ? -EISDIR : -EINVAL;
	r = hf_file_may(file, caller, st, W_OK);
	if (r < 0)
		return r;
	*write_fdp = hf_file_write_fd(file, false);
	return *write_fdp < 0 ? *write_fdp : 0;
}

/* Sets the times with the server's own rights, because the caller's do not suffice. */
static int set_all_and_touch(struct hf_file *file, const struct hf_identity *caller,
			     const struct hf_setattr *set, int write_fd, struct hf_change *change)
{
	struct hf_setattr rest = *set;
	int r;

	rest.atime.tv_nsec = rest.mtime.tv_nsec = UTIME_OMIT;
	r = set_all(file, caller, &rest, write_fd, change);
	if (r == 0)
		r = set_times(file, set);
	hf_file_changed(file);
	return r;
}

static int setattr_checked(struct hf_file *file, const struct hf_identity *caller,
			   const struct hf_setattr *set, const struct timespec *guard,
			   struct hf_change *change)
{
	int write_fd = -1, r;

	if (!change->has_before || change->before.st_nlink == 0)
		return -ESTALE;
	if (names_no_owner(set)) /* before the size is set */
		return -EINVAL;
	r = S_ISDIR(file->type) ? hf_dir_check_begun(file, change) : 0;
	if (r < 0)
		return r;
	if (guard && (guard->tv_sec != change->before.st_ctim.tv_sec ||
		      guard->tv_nsec != change->before.st_ctim.tv_nsec))
		return HF_SETATTR_E_NOT_SYNC;
	if (set->set_size) {
		r = prepare_size(file, caller, &change->before, &write_fd);
		if (r < 0)
			return r;
	}
	if (!is_half_touch(set))
		return set_all(file, caller, set, write_fd, change);
	r = hf_file_may(file, caller, &change->before, W_OK);
	return r < 0 ? r : set_all_and_touch(file, caller, set, write_fd, change);
}

int hf_file_setattr(struct hf_file *file, const struct hf_identity *caller, const struct hf_setattr *set,
		    const struct timespec *guard, struct hf_change *change)
{
	int r = 0;

	HF_WITH_CHANGE(change, file)
	r = setattr_checked(file, caller, set, guard, change);
	return r;
}

/* What creating leaves to be set. */
static struct hf_setattr rest_of(const struct hf_setattr *set, const struct hf_identity *caller, mode_t type)
{
	struct hf_setattr rest = *set;

	if (!hf_identity_is_superuser(caller))
		rest.set_uid = rest.set_gid = false;
	if (!S_ISREG(type) || rest.size == 0) /* a new file is empty */
		rest.set_size = false;
	/* Creating applies the permission bits but drops some of the others. */
	if (!rest.set_uid && !rest.set_gid && !(rest.mode & 07000))
		rest.set_mode = false;
	return rest;
}

bool hf_setattr_is_done_by_making(const struct hf_setattr *set, const struct hf_identity *caller, mode_t type)
{
	struct hf_setattr rest = rest_of(set, caller, type);

	return !rest.set_uid && !rest.set_gid && !rest.set_size && !rest.set_mode &&
	       rest.atime.tv_nsec == UTIME_OMIT && rest.mtime.tv_nsec == UTIME_OMIT;
}

/* Adds what creating dropped. The rest stays as the kernel made it: a directory inherits set-group-id, and a
 * default access list narrows the permission bits, which are its mask then. */
static void complete_mode(struct hf_setattr *rest, const struct stat *st)
{
	rest->mode = (st->st_mode & 07777) | (rest->mode & 07000);
	if (!rest->set_uid && !rest->set_gid && rest->mode == (st->st_mode & 07777))
		rest->set_mode = false;
}

int hf_file_setattr_new(struct hf_file *file, const struct hf_identity *caller, const struct hf_setattr *set)
{
	struct hf_setattr rest = rest_of(set, caller, file->type);
	int write_fd = -1;
	struct stat st;
	int r;

	if ((rest.set_mode || rest.set_size) && fstat(file->fd, &st) < 0)
		return -errno;
	if (rest.set_mode)
		complete_mode(&rest, &st);
	if (rest.set_size) {
		r = prepare_size(file, caller, &st, &write_fd);
		if (r < 0)
			return r;
	}
	return set_all(file, caller, &rest, write_fd, &(struct hf_change){ 0 });
}
