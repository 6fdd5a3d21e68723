#include "vfs/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "base/caps.h"
#include "base/error.h"
#include "base/macros.h"
#include "vfs/finder.h"
#include "vfs/fskind.h"

#define MAX_DEPTH 1360 /* directories of a walk up; the path must be shorter than PATH_MAX */

/* Ids */

int hf_volume_open_id(struct hf_volume *volume, const struct hf_file_id *id, int *fdp, struct stat *stp)
{
	hf_cleanup(hf_closep) int fd = -1;
	int r;

	if (id->kind != volume->root_id.kind)
		return -ESTALE;
	fd = volume->has_ids ? hf_file_id_open(volume->mount, id)
			     : hf_finder_open(volume->finder, volume, id);
	if (fd < 0) /* a handle that the file system cannot decode belongs to an earlier file system here */
		return fd == -EINVAL || fd == -ENOENT ? -ESTALE : fd;
	if (fstat(fd, stp) < 0)
		return -errno;
	if (stp->st_ino != id->inode || stp->st_nlink == 0)
		return -ESTALE;
	r = S_ISDIR(stp->st_mode) ? hf_volume_check_place(volume, fd) : 0;
	if (r < 0)
		return r;
	*fdp = fd;
	fd = -1;
	return 0;
}

void hf_volume_saw(struct hf_volume *volume, uint64_t dir_inode, const char *name, uint64_t inode)
{
	if (volume->finder)
		hf_finder_learn(volume->finder, dir_inode, name, inode);
}

/* The tree */

static bool is_root(const struct hf_volume *volume, const struct stat *st)
{
	return st->st_ino == volume->root_stat.st_ino && st->st_dev == volume->root_stat.st_dev;
}

/* The result for a failed step up. */
static int misplaced(int error)
{
	return hf_volume_is_want(error) ? error : -ESTALE;
}

/* Walks up to the root of the volume or of the host, with one stat() of the whole path for each level. */
static int walk_up(const struct hf_volume *volume, int from)
{
	char way[3 * MAX_DEPTH + 1]; /* used from the second level on */
	struct stat st, below = { 0 };

	for (size_t depth = 0; depth < MAX_DEPTH; depth++) {
		int r = depth ? fstatat(from, way, &st, AT_NO_AUTOMOUNT) : fstat(from, &st);

		if (r < 0)
			return misplaced(-errno);
		if (is_root(volume, &st))
			return 0;
		if (depth && below.st_ino == st.st_ino && below.st_dev == st.st_dev)
			return -ESTALE; /* reached the host's root */
		below = st;
		memcpy(way + 3 * depth, "../", 4);
	}
	return -ESTALE;
}

int hf_volume_check_place(const struct hf_volume *volume, int fd)
{
	struct stat st;

	if (!volume->is_clone && !volume->is_mount_root)
		return walk_up(volume, fd);
	return fstatat(fd, "..", &st, AT_NO_AUTOMOUNT) < 0 ? misplaced(-errno) : 0;
}

int hf_volume_step(const struct hf_volume *volume, int dir, const char *name, bool cached, int *fdp)
{
	struct open_how how = {
		.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};
	int fd;

	if (cached)
		how.resolve |= RESOLVE_CACHED;
	fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
	if (fd < 0)
		return errno == EXDEV ? -EACCES : -errno;
	*fdp = fd;
	return 0;
}

/* Making and freeing */

/* Clones the mount of this directory alone. The daemon makes the needed capability effective only here. */
static int clone_tree(int anchor)
{
	bool is_raised = hf_caps_raise(CAP_SYS_ADMIN);
	int fd = (int)syscall(SYS_open_tree, anchor, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	int saved = errno;

	if (is_raised)
		hf_caps_lower(CAP_SYS_ADMIN);
	errno = saved;
	return fd;
}

/* What is learned here stays valid while the directory is exported. If memory or descriptors run out, fail
 * instead of learning something wrong. */
static int open_root(struct hf_volume *volume, const char *path)
{
	volume->anchor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (volume->anchor < 0)
		return -errno;
	volume->root = clone_tree(volume->anchor);
	volume->is_clone = volume->root >= 0;
	if (!volume->is_clone && hf_volume_is_want(-errno))
		return -errno;
	if (!volume->is_clone)
		volume->root = openat(volume->anchor, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (volume->root < 0)
		return -errno;
	volume->mount = openat(volume->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return volume->mount < 0 ? -errno : 0;
}

static int learn_about_root(struct hf_volume *volume)
{
	struct statfs fs;
	struct statx more;
	int fd = -1, r;

	if (fstat(volume->root, &volume->root_stat) < 0 || fstatfs(volume->root, &fs) < 0)
		return -errno;
	volume->is_mount_root = !volume->is_clone &&
				statx(volume->root, "", AT_EMPTY_PATH, STATX_TYPE, &more) == 0 &&
				(more.stx_attributes & STATX_ATTR_MOUNT_ROOT);
	volume->magic = (uint64_t)(uint32_t)fs.f_type;
	volume->is_local = hf_fskind_is_local(volume->magic);
	volume->has_unique_inodes = hf_fskind_has_unique_inodes(volume->magic);
	volume->syncs_made_with_dir = hf_fskind_syncs_made_with_dir(volume->magic, volume->root_stat.st_dev);
	r = hf_file_id_by_kernel(volume->root, "", &volume->root_id, &volume->mount_id);
	volume->root_id.inode = volume->root_stat.st_ino;
	if (hf_volume_is_want(r))
		return r;
	if (r < 0)
		return hf_file_id_by_inode(volume->root, &volume->root_id);
	fd = hf_file_id_open(volume->mount, &volume->root_id);
	if (hf_volume_is_want(fd))
		return fd;
	volume->has_ids = fd >= 0;
	hf_closep(&fd);
	return 0;
}

int hf_volume_new(struct hf_volume **volumep, const char *path)
{
	hf_cleanup(hf_volume_unrefp) struct hf_volume *volume = calloc(1, sizeof(*volume));
	int r;

	if (!volume)
		return hf_trace(-ENOMEM);
	volume->n_refs = 1;
	hf_syncer_init(&volume->syncer);
	hf_list_init(&volume->unused);
	hf_list_init(&volume->unsynced);
	hf_link_init(&volume->to_close);
	volume->root = volume->mount = volume->anchor = -1;
	r = open_root(volume, path);
	if (r == 0)
		r = learn_about_root(volume);
	if (r == 0 && !volume->has_ids)
		r = hf_finder_new(&volume->finder, volume->root_stat.st_ino);
	if (r < 0)
		return r; /* the caller logs which export it was */
	*volumep = volume;
	volume = NULL;
	return 0;
}

struct hf_volume *hf_volume_ref(struct hf_volume *volume)
{
	atomic_fetch_add_explicit(&volume->n_refs, 1, memory_order_relaxed);
	return volume;
}

struct hf_volume *hf_volume_unref(struct hf_volume *volume)
{
	if (!volume || atomic_fetch_sub_explicit(&volume->n_refs, 1, memory_order_acq_rel) > 1)
		return NULL;
	hf_syncer_deinit(&volume->syncer);
	hf_finder_free(volume->finder);
	hf_closep(&volume->mount);
	hf_closep(&volume->root);
	hf_closep(&volume->anchor);
	free(volume);
	return NULL;
}

bool hf_volume_is_at(const struct hf_volume *volume, const char *path)
{
	struct stat st, own;

	return stat(path, &st) == 0 && fstat(volume->root, &own) == 0 && own.st_nlink > 0 &&
	       is_root(volume, &st);
}
