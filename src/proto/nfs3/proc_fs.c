/* FSSTAT, FSINFO, PATHCONF: properties of the file system under an export. */
#include <errno.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "proto/nfs3/op.h"

#define PREFERRED_DIR (64 * 1024) /* preferred bytes of a READDIR */

int hf_nfs3_proc_fsstat(struct hf_nfs3_op *op)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object object = { 0 };
	struct hf_xdr_out *out;
	struct statvfs fs;
	int stat;

	stat = hf_nfs3_find_only(op, &object);
	if (stat < 0)
		return stat;
	if (stat == NFS3_OK)
		stat = hf_nfsstat3_of(fstatvfs(object.file->fd, &fs) < 0 ? -errno : 0);
	out = hf_nfs3_reply_with_attr(op, stat, &object, 52);
	if (stat != NFS3_OK)
		return HF_NFS3_DONE;
	hf_xdr_put_u64(out, (uint64_t)fs.f_blocks * fs.f_frsize);
	hf_xdr_put_u64(out, (uint64_t)fs.f_bfree * fs.f_frsize);
	hf_xdr_put_u64(out, (uint64_t)fs.f_bavail * fs.f_frsize);
	hf_xdr_put_u64(out, fs.f_files);
	hf_xdr_put_u64(out, fs.f_ffree);
	hf_xdr_put_u64(out, fs.f_favail);
	hf_xdr_put_u32(out, 0); /* invarsec: 0, since local programs use the space, too */
	return HF_NFS3_DONE;
}

/* Names only what the file system can do. */
static uint32_t properties(const struct hf_volume *volume)
{
	uint32_t bits = FSF3_HOMOGENEOUS | FSF3_CANSETTIME;

	if (fpathconf(volume->mount, _PC_LINK_MAX) > 1)
		bits |= FSF3_LINK;
	if (fpathconf(volume->mount, _PC_2_SYMLINKS) != 0)
		bits |= FSF3_SYMLINK;
	return bits;
}

int hf_nfs3_proc_fsinfo(struct hf_nfs3_op *op)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object object = { 0 };
	uint32_t max = hf_nfs3_max_io(op);
	struct hf_xdr_out *out;
	int stat;

	stat = hf_nfs3_find_only(op, &object);
	if (stat < 0)
		return stat;
	out = hf_nfs3_reply_with_attr(op, stat, &object, 48);
	if (stat != NFS3_OK)
		return HF_NFS3_DONE;
	hf_xdr_put_u32(out, max); /* READ: largest, preferred and multiple */
	hf_xdr_put_u32(out, max);
	hf_xdr_put_u32(out, 4096);
	hf_xdr_put_u32(out, max); /* WRITE: the same three */
	hf_xdr_put_u32(out, max);
	hf_xdr_put_u32(out, 4096);
	hf_xdr_put_u32(out, max < PREFERRED_DIR ? max : PREFERRED_DIR);
	hf_xdr_put_u64(out, INT64_MAX); /* no limit but the file system's own, which returns FBIG */
	hf_xdr_put_u32(out, 0);         /* time_delta: nanoseconds */
	hf_xdr_put_u32(out, 1);
	hf_xdr_put_u32(out, properties(object.export->volume));
	return HF_NFS3_DONE;
}

/* PATHCONF */

struct pathconf {
	uint32_t link_max;
	uint32_t name_max;
	bool ignores_case;
};

/* A directory of ext4 or f2fs may be case-insensitive; for other file systems the kernel does not tell. */
static bool ignores_case(const struct hf_file *file)
{
	hf_cleanup(hf_closep) int fd = -1;
	int flags = 0;

	if (!S_ISDIR(file->type))
		return false;
	fd = openat(file->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd >= 0 && ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && (flags & FS_CASEFOLD_FL);
}

static int pathconf_of(const struct hf_nfs3_object *object, struct pathconf *conf)
{
	int64_t links = fpathconf(object->export->volume->mount, _PC_LINK_MAX);
	struct statvfs fs;

	if (fstatvfs(object->file->fd, &fs) < 0)
		return -errno;
	conf->link_max = links > 0 && links < UINT32_MAX ? (uint32_t)links : UINT32_MAX;
	conf->name_max = fs.f_namemax < 255 ? (uint32_t)fs.f_namemax : 255;
	conf->ignores_case = ignores_case(object->file);
	return 0;
}

int hf_nfs3_proc_pathconf(struct hf_nfs3_op *op)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object object = { 0 };
	struct pathconf conf = { 0 };
	struct hf_xdr_out *out;
	int stat;

	stat = hf_nfs3_find_only(op, &object);
	if (stat < 0)
		return stat;
	if (stat == NFS3_OK)
		stat = hf_nfsstat3_of(pathconf_of(&object, &conf));
	out = hf_nfs3_reply_with_attr(op, stat, &object, 24);
	if (stat != NFS3_OK)
		return HF_NFS3_DONE;
	hf_xdr_put_u32(out, conf.link_max);
	hf_xdr_put_u32(out, conf.name_max);
	hf_xdr_put_bool(out, true); /* no_trunc: longer names are refused, not cut */
	hf_xdr_put_bool(out, true); /* chown_restricted: only the superuser may give files away */
	hf_xdr_put_bool(out, conf.ignores_case);
	hf_xdr_put_bool(out, true); /* case_preserving */
	return HF_NFS3_DONE;
}
