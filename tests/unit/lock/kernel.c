#include "kernel.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool kernel_open(struct kernel *kernel, int n_owners)
{
	char name[] = "/tmp/hf-oracle-XXXXXX";
	int fd = mkstemp(name);

	assert(n_owners <= KERNEL_OWNERS);
	*kernel = (struct kernel){ .n = 0 };
	if (fd < 0)
		return false;
	while (kernel->n < n_owners && (kernel->fds[kernel->n] = open(name, O_RDWR | O_CLOEXEC)) >= 0)
		kernel->n++;
	close(fd);
	unlink(name);
	return kernel->n == n_owners;
}

void kernel_close(struct kernel *kernel)
{
	while (kernel->n)
		close(kernel->fds[--kernel->n]);
}

static struct flock flock_of(enum hf_lock_mode mode, struct hf_range range)
{
	return (struct flock){
		.l_type = mode == HF_LOCK_EXCLUSIVE ? F_WRLCK
			  : mode == HF_LOCK_SHARED  ? F_RDLCK
						    : F_UNLCK,
		.l_whence = SEEK_SET,
		.l_start = (off_t)range.start,
		.l_len = (off_t)hf_range_len(range),
	};
}

static void fail(void)
{
	perror("fcntl");
	exit(1);
}

bool kernel_set(const struct kernel *kernel, int owner, enum hf_lock_mode mode, struct hf_range range)
{
	struct flock lock = flock_of(mode, range);

	if (fcntl(kernel->fds[owner], F_OFD_SETLK, &lock) == 0)
		return true;
	if (errno != EAGAIN && errno != EACCES)
		fail();
	return false;
}

bool kernel_is_free(const struct kernel *kernel, int owner, enum hf_lock_mode mode, struct hf_range range)
{
	struct flock lock = flock_of(mode, range);

	if (fcntl(kernel->fds[owner], F_OFD_GETLK, &lock) != 0)
		fail();
	return lock.l_type == F_UNLCK;
}
