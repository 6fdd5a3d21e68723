/* A directory of the test's own, as a volume with its cache of open files. */
#pragma once

#include "../test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vfs/file.h"

static char base[64];
static struct hf_volume *volume;
static struct hf_files *files;

static inline int open_folder(size_t max_fds)
{
	strcpy(base, "/tmp/hf-vfs-XXXXXX");
	return !mkdtemp(base) || hf_volume_new(&volume, base) < 0 || hf_files_new(&files, max_fds) < 0;
}

static inline int close_folder(void)
{
	char command[128];

	hf_files_free(files);
	hf_volume_unref(volume);
	snprintf(command, sizeof(command), "rm -r %s", base);
	return system(command);
}

/* It is made if it is not there; the caller has a reference. */
static inline struct hf_file *open_file(const char *name)
{
	struct hf_file *file;
	struct stat st;
	int fd;

	close(openat(volume->mount, name, O_CREAT | O_WRONLY, 0644));
	fd = openat(volume->root, name, O_PATH | O_NOFOLLOW);
	assert_true(fd >= 0);
	assert_int_equal(hf_files_take(files, volume, fd, false, &file, &st), 0);
	return file;
}

static inline struct hf_identity ourselves(void)
{
	return (struct hf_identity){ .uid = (uint32_t)geteuid(), .gid = (uint32_t)getegid() };
}
