#include "vfs/file_id.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>

#include "vfs/volume.h"

#define MAX_ASKED 20 /* attempts to open a file after ENOMEM */

union kernel_handle {
	struct file_handle h;
	uint8_t room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
};

bool hf_file_id_equal(const struct hf_file_id *a, const struct hf_file_id *b)
{
	return a->inode == b->inode && a->kind == b->kind && a->type == b->type && a->len == b->len &&
	       memcmp(a->bytes, b->bytes, a->len) == 0;
}

/* The birth time, if the file system has it, tells a file from a later one with the same inode number. */
int hf_file_id_by_inode(int fd, struct hf_file_id *id)
{
	struct statx stx;

	if (statx(fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT, STATX_INO | STATX_BTIME, &stx) < 0)
		return -errno;
	id->kind = HF_FILE_ID_INODE;
	id->inode = stx.stx_ino;
	if (stx.stx_mask & STATX_BTIME) {
		memcpy(id->bytes, &stx.stx_btime.tv_sec, 8);
		memcpy(id->bytes + 8, &stx.stx_btime.tv_nsec, 4);
		id->len = 12;
	}
	return 0;
}

int hf_file_id_by_kernel(int fd, const char *name, struct hf_file_id *id, uint64_t *mount_idp)
{
	union kernel_handle handle = { .h.handle_bytes = HF_FILE_ID_MAX };
	int mount_id;

	if (name_to_handle_at(fd, name, &handle.h, &mount_id, *name ? 0 : AT_EMPTY_PATH) < 0)
		return -errno;
	if (handle.h.handle_type < 0 || handle.h.handle_type > UINT8_MAX)
		return -EOPNOTSUPP;
	id->kind = HF_FILE_ID_KERNEL;
	id->type = (uint8_t)handle.h.handle_type;
	id->len = (uint8_t)handle.h.handle_bytes;
	memcpy(id->bytes, handle.h.f_handle, id->len);
	*mount_idp = (uint64_t)mount_id;
	return 0;
}

/* Linux also returns ENOMEM for a removed file while its inode number is being reused. That state is short:
 * retry. */
int hf_file_id_open(int mount, const struct hf_file_id *id)
{
	union kernel_handle handle = { .h.handle_bytes = id->len, .h.handle_type = id->type };
	int fd, n_asked = 0;

	memcpy(handle.h.f_handle, id->bytes, id->len);
	while ((fd = open_by_handle_at(mount, &handle.h, O_PATH | O_NOFOLLOW | O_CLOEXEC)) < 0 &&
	       errno == ENOMEM && ++n_asked < MAX_ASKED)
		sched_yield();
	return fd < 0 ? -errno : fd;
}

int hf_volume_identify(const struct hf_volume *volume, int fd, struct hf_file_id *idp, struct stat *stp)
{
	uint64_t mount_id = volume->mount_id;
	int r;

	memset(idp, 0, sizeof(*idp));
	if (fstat(fd, stp) < 0)
		return -errno;
	if (volume->root_id.kind == HF_FILE_ID_INODE)
		return hf_file_id_by_inode(fd, idp);
	r = hf_file_id_by_kernel(fd, "", idp, &mount_id);
	idp->inode = stp->st_ino;
	if (r == 0 && mount_id != volume->mount_id)
		return -EXDEV;
	return r;
}

int hf_volume_identify_entry(const struct hf_volume *volume, int dir, const char *name,
			     struct hf_file_id *idp, struct stat *stp)
{
	uint64_t mount_id;
	int r;

	if (volume->root_id.kind != HF_FILE_ID_KERNEL || volume->finder)
		return -EAGAIN;
	memset(idp, 0, sizeof(*idp));
	r = hf_file_id_by_kernel(dir, name, idp, &mount_id);
	if (r < 0)
		return r;
	if (mount_id != volume->mount_id)
		return -EXDEV;
	if (fstatat(dir, name, stp, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
		return -errno;
	idp->inode = stp->st_ino;
	return 0;
}
