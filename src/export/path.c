/* The path of a handle's file on this host, as the kernel knows it. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "export/export.h"
#include "vfs/file.h"

/* The kernel's path of a file starts at the root of the volume if the volume is a mount tree of its own,
 * otherwise at the host's root. */
static const char *where_paths_begin(const struct hf_export *export)
{
	return export->volume->is_clone && strcmp(export->settings.path, "/") != 0 ? export->settings.path
										   : "";
}

/* For a file that the kernel knows only by its handle, or that has no name any more, the path does not lead
 * back to the file. */
static bool leads_back(const struct hf_file *file, const char *path)
{
	struct stat is, named;

	return fstat(file->fd, &is) == 0 && lstat(path, &named) == 0 && is.st_ino == named.st_ino &&
	       is.st_dev == named.st_dev;
}

bool hf_export_path_of(const struct hf_export *export, const struct hf_file *file, bool may_wait, char *out,
		       size_t size)
{
	char link[64], found[HF_EXPORT_MAX_PATH];
	ssize_t n;

	/* The kernel knows the names of all directories above an open directory. */
	if (!may_wait && !S_ISDIR(file->type) && !export->volume->is_local)
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", file->fd);
	n = readlink(link, found, sizeof(found) - 1);
	if (n <= 0)
		return false;
	found[n] = '\0';
	if (*where_paths_begin(export) && strcmp(found, "/") == 0)
		found[0] = '\0'; /* the exported directory itself */
	if ((size_t)snprintf(out, size, "%s%s", where_paths_begin(export), found) >= size)
		return false;
	return (!may_wait && S_ISDIR(file->type)) || leads_back(file, out);
}
