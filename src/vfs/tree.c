/* Checks directories, and looks up names in them. */
#include "vfs/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "vfs/access.h"
#include "vfs/names.h"
#include "vfs/tree_internal.h"

int hf_name_get(struct hf_name *name, struct hf_bytes bytes)
{
	if (bytes.len > HF_NAME_MAX)
		return -ENAMETOOLONG;
	if (bytes.len == 0 || memchr(bytes.data, '\0', bytes.len))
		return -EINVAL;
	if (memchr(bytes.data, '/', bytes.len))
		return -EACCES;
	memcpy(name->text, bytes.data, bytes.len);
	name->text[bytes.len] = '\0';
	return 0;
}

bool hf_name_is_dots(const struct hf_name *name)
{
	return strcmp(name->text, ".") == 0 || strcmp(name->text, "..") == 0;
}

static int check_place(struct hf_file *dir)
{
	int r = hf_volume_check_place(dir->volume, dir->fd);

	if (r == -ESTALE)
		hf_file_forget(dir);
	return r;
}

int hf_dir_check(struct hf_file *dir, struct stat *stp)
{
	int r;

	if (!S_ISDIR(dir->type))
		return -ENOTDIR;
	r = hf_file_stat(dir, stp);
	return r < 0 ? r : check_place(dir);
}

/* A turn of a loop serves calls that came together. For those in one directory one question is enough: it is
 * one more system call for each otherwise. */
static int check_place_in(struct hf_file *dir, uint64_t turn)
{
	int r;

	if (turn && atomic_load_explicit(&dir->placed_in, memory_order_relaxed) == turn)
		return 0;
	r = check_place(dir);
	if (r == 0)
		atomic_store_explicit(&dir->placed_in, turn, memory_order_relaxed);
	return r;
}

int hf_file_check(struct hf_file *file, struct stat *stp)
{
	return S_ISDIR(file->type) ? hf_dir_check(file, stp) : hf_file_stat(file, stp);
}

int hf_dir_check_begun(struct hf_file *dir, const struct hf_change *change)
{
	struct stat st;

	if (!S_ISDIR(dir->type))
		return -ENOTDIR;
	if (!change->has_before || change->before.st_nlink == 0)
		return hf_dir_check(dir, &st); /* which returns the right error */
	return check_place(dir);
}

/* Finding */

static bool is_root(const struct hf_file *dir)
{
	return hf_file_id_equal(&dir->id, &dir->volume->root_id);
}

static int open_parent(struct hf_file *dir, int *fdp)
{
	hf_cleanup(hf_closep) int fd = openat(dir->fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return errno == ENOENT ? -ESTALE : -errno;
	r = hf_volume_check_place(dir->volume, fd);
	if (r < 0)
		return r;
	*fdp = fd;
	fd = -1;
	return 0;
}

static int open_entry(struct hf_file *dir, const struct hf_name *name, bool cached, int *fdp)
{
	if (strcmp(name->text, "..") == 0)
		return open_parent(dir, fdp);
	return hf_volume_step(dir->volume, dir->fd, name->text, cached, fdp);
}

int hf_dir_open_entry(struct hf_file *dir, const struct hf_name *name, bool cached, struct hf_file **filep,
		      struct stat *stp)
{
	int fd = -1, r;

	if (cached && hf_files_are_full(dir->files))
		return -EAGAIN;
	r = open_entry(dir, name, cached, &fd);
	if (r < 0)
		return r;
	r = hf_files_take(dir->files, dir->volume, fd, cached, filep, stp);
	if (r < 0)
		return r;
	if (strcmp(name->text, "..") != 0) {
		hf_volume_saw(dir->volume, dir->id.inode, name->text, (*filep)->id.inode);
		hf_names_saw(hf_files_names(dir->files), dir, name->text, (*filep)->id.inode);
	}
	return 0;
}

/* Asks the kernel whether the name leads to a file that is open. No other file has its inode number then. */
static bool leads_to_open_file(struct hf_file *dir, const struct hf_name *name, struct hf_file **filep,
			       struct stat *stp)
{
	hf_cleanup(hf_file_unrefp) struct hf_file *file = NULL;
	uint64_t inode;

	if (!dir->volume->has_unique_inodes || dir->volume->finder)
		return false;
	inode = hf_names_guess(hf_files_names(dir->files), dir, name->text);
	file = inode ? hf_files_find_inode(dir->files, dir->volume, inode) : NULL;
	if (!file || fstatat(dir->fd, name->text, stp, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0 ||
	    stp->st_ino != inode || stp->st_dev != file->dev)
		return false;
	*filep = file;
	file = NULL;
	return true;
}

/* With the server's own rights, once the kernel has said that the caller may search the directory. That
 * answer is mostly remembered, so the identity need not be switched. */
int hf_dir_lookup(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		  uint64_t turn, struct stat *dir_stp, struct hf_file **filep, struct stat *stp)
{
	int r = S_ISDIR(dir->type) ? hf_file_stat(dir, dir_stp) : -ENOTDIR;

	if (r == 0)
		r = check_place_in(dir, turn);
	if (r < 0)
		return r;
	r = hf_file_access(dir, caller, dir_stp);
	if (r < 0)
		return r;
	if (!(r & X_OK))
		return -EACCES;
	if (strcmp(name->text, ".") == 0 || (strcmp(name->text, "..") == 0 && is_root(dir))) {
		*filep = hf_file_ref(dir);
		*stp = *dir_stp;
		return 0;
	}
	if (leads_to_open_file(dir, name, filep, stp))
		return 0;
	return hf_dir_open_entry(dir, name, turn != 0, filep, stp);
}

int hf_file_readlink(struct hf_file *file, char *text, size_t *lenp)
{
	ssize_t n;

	if (!S_ISLNK(file->type))
		return -EINVAL;
	n = readlinkat(file->fd, "", text, *lenp);
	if (n < 0)
		return -errno;
	*lenp = (size_t)n;
	return 0;
}
