/*
 * A file system with names of more than 255 bytes, as ZFS may have, for the
 * tests: in the place of libc's functions of these names. A file "long-NNNN" is
 * listed, and found, under that name filled up to NNNN bytes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PREFIX    "long-"
#define SHORT_LEN 9 /* of "long-NNNN" */

static size_t shown_len(const char *name)
{
	size_t len = strlen(name);

	return len == SHORT_LEN && strncmp(name, PREFIX, 5) == 0 ? (size_t)atoi(name + 5) : len;
}

/* false: the room is too small. */
static bool show(const struct dirent64 *entry, char *out, size_t room, size_t *lenp)
{
	size_t len = shown_len(entry->d_name), kept = strlen(entry->d_name);
	size_t size = (offsetof(struct dirent64, d_name) + len + 1 + 7) & ~(size_t)7;
	char *name = out + offsetof(struct dirent64, d_name);
	unsigned short reclen = (unsigned short)size;

	if (size > room)
		return false;
	memset(out, 0, size);
	memcpy(out, entry, offsetof(struct dirent64, d_name));
	memcpy(out + offsetof(struct dirent64, d_reclen), &reclen, sizeof(reclen));
	memset(name, 'x', len);
	memcpy(name, entry->d_name, kept);
	*lenp = size;
	return true;
}

ssize_t getdents64(int fd, void *buffer, size_t room)
{
	_Alignas(8) char own[4096];
	off_t at = lseek(fd, 0, SEEK_CUR);
	ssize_t n = syscall(SYS_getdents64, fd, own, sizeof(own));
	size_t filled = 0, len;

	for (ssize_t i = 0; i < n;) {
		const struct dirent64 *entry = (const struct dirent64 *)(const void *)(own + i);

		if (!show(entry, (char *)buffer + filled, room - filled, &len)) {
			lseek(fd, at, SEEK_SET);
			errno = EINVAL;
			return filled ? (ssize_t)filled : -1;
		}
		filled += len;
		at = entry->d_off;
		i += entry->d_reclen;
	}
	return n < 0 ? n : (ssize_t)filled;
}

/* The name on the disk. */
static const char *stored(const char *name, char room[SHORT_LEN + 1])
{
	if (strlen(name) <= SHORT_LEN || strncmp(name, PREFIX, 5) != 0)
		return name;
	memcpy(room, name, SHORT_LEN);
	room[SHORT_LEN] = '\0';
	return room;
}

int fstatat(int dir, const char *restrict name, struct stat *restrict st, int flags)
{
	char room[SHORT_LEN + 1];

	return (int)syscall(SYS_newfstatat, dir, stored(name, room), st, flags);
}

int name_to_handle_at(int dir, const char *name, struct file_handle *handle, int *mount_id, int flags)
{
	char room[SHORT_LEN + 1];

	return (int)syscall(SYS_name_to_handle_at, dir, stored(name, room), handle, mount_id, flags);
}
