/* Properties of a type of file system, by its magic number (f_type of statfs(2)). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Does the kernel give cached data of it without waiting for another host or process? */
bool hf_fskind_is_local(uint64_t magic);

/* Do two files that exist at once, removed ones that are open included, have different inode numbers on one
 * device? false: no, or not for sure. tmpfs starts over after 2^32 files, unless told otherwise. */
bool hf_fskind_has_unique_inodes(uint64_t magic);

/* Is a created file safe once its directory is synced? Yes, if one transaction contains both. false: no, or
 * unknown. An ext4 without journal (and ext2) writes the directory but not the inode. @device: st_dev of the
 * file system. */
bool hf_fskind_syncs_made_with_dir(uint64_t magic, dev_t device);

/* Does the ext4 on @device have a journal, as the kernel tells in @sysfs ("/sys")? false: no, or unknown. */
bool hf_fskind_has_journal(const char *sysfs, dev_t device);
