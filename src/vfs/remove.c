/* Removes and renames names. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "vfs/tree_internal.h"

/* A file without a name must not stay open here: its disk space would stay occupied. */
static void let_go(struct hf_file *file)
{
	struct stat st;

	if (file && fstat(file->fd, &st) == 0 && st.st_nlink == 0)
		hf_file_forget(file);
}

/* The file of a name that is about to be removed, if it exists and is open here. */
static struct hf_file *find_victim(struct hf_file *dir, const struct hf_name *name)
{
	struct hf_file *file = NULL;
	struct hf_file_id id;
	struct stat st;
	int r = hf_volume_identify_entry(dir->volume, dir->fd, name->text, &id, &st);

	if (r == 0)
		return hf_files_find(dir->files, dir->volume, &id);
	return r == -EAGAIN && hf_dir_open_entry(dir, name, false, &file, &st) == 0 ? file : NULL;
}

static int unlink_as(struct hf_file *dir, const struct hf_identity *caller, const char *name, int flags)
{
	HF_AS(as, caller);

	if (as.result < 0)
		return as.result;
	return unlinkat(dir->fd, name, flags) < 0 ? -errno : 0;
}

int hf_dir_remove(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		  struct hf_change *change)
{
	hf_cleanup(hf_file_closep) struct hf_file *victim = NULL;
	int r;

	HF_WITH_CHANGE(change, dir)
	{
		r = hf_name_is_dots(name) ? -EISDIR : hf_dir_check_begun(dir, change);
		if (r == 0) {
			victim = find_victim(dir, name);
			r = unlink_as(dir, caller, name->text, 0);
		}
	}
	if (r < 0)
		return r;
	let_go(victim);
	return 0;
}

int hf_dir_rmdir(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
		 struct hf_change *change)
{
	hf_cleanup(hf_file_closep) struct hf_file *victim = NULL;
	int r;

	HF_WITH_CHANGE(change, dir)
	{
		r = hf_dir_check_begun(dir, change);
		if (r == 0 && hf_name_is_dots(name)) /* RFC 1813, 3.3.13 */
			r = name->text[1] ? -EEXIST : -EINVAL;
		if (r == 0) {
			victim = find_victim(dir, name);
			r = unlink_as(dir, caller, name->text, AT_REMOVEDIR);
		}
	}
	if (r < 0)
		return r;
	let_go(victim);
	return 0;
}

/* Renaming */

static int rename_as(struct hf_file *from_dir, const char *from, struct hf_file *to_dir, const char *to,
		     const struct hf_identity *caller)
{
	HF_AS(as, caller);

	if (as.result < 0)
		return as.result;
	return renameat(from_dir->fd, from, to_dir->fd, to) < 0 ? -errno : 0;
}

/* Locks both directories in the common order. */
static void begin_both(struct hf_file *a, struct hf_change *a_change, struct hf_file *b,
		       struct hf_change *b_change)
{
	if (a == b) {
		hf_change_begin(a_change, a);
		*b_change = *a_change;
	} else if (a < b) {
		hf_change_begin(a_change, a);
		hf_change_begin(b_change, b);
	} else {
		hf_change_begin(b_change, b);
		hf_change_begin(a_change, a);
	}
}

static void end_both(struct hf_file *a, struct hf_change *a_change, struct hf_file *b,
		     struct hf_change *b_change)
{
	hf_change_end(a_change, a);
	if (a == b)
		*b_change = *a_change;
	else
		hf_change_end(b_change, b);
}

static int check_rename(struct hf_file *from_dir, const struct hf_name *from, struct hf_file *to_dir,
			const struct hf_name *to)
{
	struct stat st;
	int r = hf_dir_check(from_dir, &st);

	if (r == 0)
		r = hf_dir_check(to_dir, &st);
	if (r == 0 && (hf_name_is_dots(from) || hf_name_is_dots(to)))
		r = -EINVAL;
	if (r == 0 && from_dir->volume != to_dir->volume)
		r = -EXDEV;
	return r;
}

int hf_dir_rename(struct hf_file *from_dir, const struct hf_name *from, struct hf_file *to_dir,
		  const struct hf_name *to, const struct hf_identity *caller, struct hf_change *from_change,
		  struct hf_change *to_change)
{
	hf_cleanup(hf_file_closep) struct hf_file *victim = NULL;
	hf_cleanup(hf_file_unrefp) struct hf_file *moved = NULL;
	int r;

	begin_both(from_dir, from_change, to_dir, to_change);
	r = check_rename(from_dir, from, to_dir, to);
	if (r == 0) {
		victim = find_victim(to_dir, to);
		if (from_dir->volume->finder) /* only the finder needs this */
			moved = find_victim(from_dir, from);
		r = rename_as(from_dir, from->text, to_dir, to->text, caller);
	}
	end_both(from_dir, from_change, to_dir, to_change);
	if (r < 0)
		return r;
	if (moved)
		hf_volume_saw(to_dir->volume, to_dir->id.inode, to->text, moved->id.inode);
	let_go(victim);
	return 0;
}
