#include "../test.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macros.h"
#include "vfs/fskind.h"

static char base[64]; /* a /sys of the test's own */

static int set_up(void **state)
{
	char command[256];

	strcpy(base, "/tmp/hf-fskind-XXXXXX");
	if (!mkdtemp(base))
		return -1;
	snprintf(command, sizeof(command), "mkdir -p %s/dev/block %s/fs/ext4", base, base);
	return system(command);
}

static int tear_down(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", base);
	return system(command);
}

/* A disk of that number at the end of @target, and what the kernel says about the journal of its ext4, if
 * anything. */
static void add_disk(unsigned int minor_number, const char *target, const char *journal_task)
{
	const char *name = strrchr(target, '/') + 1;
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/dev/block/8:%u", base, minor_number);
	assert_int_equal(symlink(target, path), 0);
	if (!journal_task)
		return;
	snprintf(path, sizeof(path), "%s/fs/ext4/%s", base, name);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/fs/ext4/%s/journal_task", base, name);
	fd = open(path, O_WRONLY | O_CREAT, 0644);
	assert_int_equal(write(fd, journal_task, strlen(journal_task)), strlen(journal_task));
	close(fd);
}

static void test_journal(void **state)
{
	char deep[600];

	add_disk(1, "../../devices/pci0000:00/block/sda/sda1", "412\n");
	add_disk(2, "../../devices/pci0000:00/block/sda/sda2", "<none>\n");
	add_disk(3, "../../devices/pci0000:00/block/sda/sda3", NULL); /* ext2, or not mounted */
	add_disk(4, "../../devices/pci0000:00/block/sda/sda4", "");
	/* A disk behind many bridges */
	snprintf(deep, sizeof(deep), "../../devices");
	while (strlen(deep) < 500)
		strcat(deep, "/0000:00:00.0");
	strcat(deep, "/sda5");
	add_disk(5, deep, "413\n");
	assert_true(hf_fskind_has_journal(base, makedev(8, 1)));
	assert_false(hf_fskind_has_journal(base, makedev(8, 2)));
	assert_false(hf_fskind_has_journal(base, makedev(8, 3)));
	assert_false(hf_fskind_has_journal(base, makedev(8, 4)));
	assert_true(hf_fskind_has_journal(base, makedev(8, 5)));
	assert_false(hf_fskind_has_journal(base, makedev(8, 6))); /* the kernel knows none */
}

/* What is promised of none that is not known for it: a new name is then synced with its file. */
static void test_made_with_dir(void **state)
{
	static const uint64_t apart[] = { F2FS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, NFS_SUPER_MAGIC,
					  MSDOS_SUPER_MAGIC, 0 };
	static const uint64_t together[] = { XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC, 0x2fc12fc1 };

	for (size_t i = 0; i < HF_ARRAY_SIZE(apart); i++)
		assert_false(hf_fskind_syncs_made_with_dir(apart[i], makedev(8, 1)));
	for (size_t i = 0; i < HF_ARRAY_SIZE(together); i++)
		assert_true(hf_fskind_syncs_made_with_dir(together[i], makedev(8, 1)));
	/* A device that is not there has no journal. */
	assert_false(hf_fskind_syncs_made_with_dir(EXT4_SUPER_MAGIC, makedev(4095, 1048575)));
}

static void test_local(void **state)
{
	static const uint64_t local[] = { EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC };
	static const uint64_t remote[] = { NFS_SUPER_MAGIC, FUSE_SUPER_MAGIC, CEPH_SUPER_MAGIC, 0 };

	for (size_t i = 0; i < HF_ARRAY_SIZE(local); i++)
		assert_true(hf_fskind_is_local(local[i]));
	for (size_t i = 0; i < HF_ARRAY_SIZE(remote); i++)
		assert_false(hf_fskind_is_local(remote[i]));
}

static void test_unique_inodes(void **state)
{
	assert_true(hf_fskind_has_unique_inodes(EXT4_SUPER_MAGIC));
	assert_true(hf_fskind_has_unique_inodes(XFS_SUPER_MAGIC));
	assert_false(hf_fskind_has_unique_inodes(TMPFS_MAGIC));
	assert_false(hf_fskind_has_unique_inodes(FUSE_SUPER_MAGIC));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_journal, set_up, tear_down),
		cmocka_unit_test(test_made_with_dir),
		cmocka_unit_test(test_local),
		cmocka_unit_test(test_unique_inodes),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
