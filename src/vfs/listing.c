#include "vfs/listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"

/* Larger than any single entry: a name is shorter than PATH_MAX, though some file systems allow more than 255
 * bytes. */
#define LEAST_ROOM (PATH_MAX + 32)

int hf_listing_open(struct hf_listing *listing, const struct hf_file *dir, uint64_t cookie, size_t hint)
{
	char path[40];

	/* Opening "." would also need the right to search. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", dir->fd);
	listing->at = listing->len = 0;
	listing->room = HF_MIN(HF_MAX(hint, (size_t)LEAST_ROOM), sizeof(listing->buffer));
	listing->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (listing->fd < 0)
		return -errno;
	if (cookie && (cookie > INT64_MAX || lseek(listing->fd, (off_t)cookie, SEEK_SET) < 0)) {
		hf_listing_close(listing);
		return HF_LISTING_BAD_COOKIE;
	}
	return 0;
}

void hf_listing_close(struct hf_listing *listing)
{
	hf_closep(&listing->fd);
	listing->fd = -1;
}

int hf_listing_next(struct hf_listing *listing, struct hf_entry *entryp)
{
	const struct dirent64 *entry;

	if (listing->at == listing->len) {
		ssize_t n = getdents64(listing->fd, listing->buffer, listing->room);

		if (n < 0)
			return errno == EINVAL ? HF_LISTING_BAD_COOKIE : -errno;
		if (n == 0)
			return HF_LISTING_END;
		listing->at = 0;
		listing->len = (size_t)n;
	}
	entry = (const struct dirent64 *)(const void *)(listing->buffer + listing->at);
	listing->at += entry->d_reclen;
	*entryp = (struct hf_entry){ .inode = entry->d_ino,
				     .cookie = (uint64_t)entry->d_off,
				     .name = entry->d_name };
	return 0;
}
