#include "vfs/fskind.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"

/* Magic numbers that <linux/magic.h> of Debian 12 lacks */
#define HF_MAGIC_ZFS 0x2fc12fc1

static bool is_among(const uint64_t *kinds, size_t n, uint64_t magic)
{
	for (size_t i = 0; i < n; i++)
		if (kinds[i] == magic)
			return true;
	return false;
}

bool hf_fskind_is_local(uint64_t magic)
{
	static const uint64_t local[] = { EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,  BTRFS_SUPER_MAGIC,
					  TMPFS_MAGIC,      F2FS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC,
					  RAMFS_MAGIC,      HF_MAGIC_ZFS };

	return is_among(local, HF_ARRAY_SIZE(local), magic);
}

bool hf_fskind_has_unique_inodes(uint64_t magic)
{
	static const uint64_t kinds[] = { EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,
					  F2FS_SUPER_MAGIC };

	return is_among(kinds, HF_ARRAY_SIZE(kinds), magic);
}

/* The kernel shows for each ext4, by device name, which process writes its journal; "<none>" without a
 * journal. ext2 has the same magic number and is not listed there. */
bool hf_fskind_has_journal(const char *sysfs, dev_t device)
{
	hf_cleanup(hf_closep) int fd = -1;
	char path[PATH_MAX], target[PATH_MAX];
	const char *name;
	char first = '<';
	ssize_t n;

	snprintf(path, sizeof(path), "%s/dev/block/%u:%u", sysfs, major(device), minor(device));
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return false;
	target[n] = '\0';
	name = strrchr(target, '/');
	snprintf(path, sizeof(path), "%s/fs/ext4/%.255s/journal_task", sysfs, name ? name + 1 : target);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && read(fd, &first, 1) == 1 && first != '<';
}

bool hf_fskind_syncs_made_with_dir(uint64_t magic, dev_t device)
{
	static const uint64_t kinds[] = { XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC, RAMFS_MAGIC,
					  HF_MAGIC_ZFS };

	return magic == EXT4_SUPER_MAGIC ? hf_fskind_has_journal("/sys", device)
					 : is_among(kinds, HF_ARRAY_SIZE(kinds), magic);
}
