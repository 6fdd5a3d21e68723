/* What is known of a kind of file system, by its magic number (f_type of statfs(2)). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What the kernel has in memory of it, it gives without waiting for anybody. */
bool hf_fskind_is_local(uint64_t magic);

/* Is a file that was made safe when its directory was synced? So it is where both are in one transaction.
 * False where that is not so, or not known: an ext4 without a journal (and ext2) writes the directory, and
 * not the inode. @device is the file system's, st_dev. */
bool hf_fskind_syncs_made_with_dir(uint64_t magic, dev_t device);

/* Of an ext4 on @device, as the kernel tells in @sysfs ("/sys"). False where it does not. */
bool hf_fskind_has_journal(const char *sysfs, dev_t device);
