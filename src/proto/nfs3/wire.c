#include "proto/nfs3/wire.h"

#include <errno.h>
#include <sys/sysmacros.h>

#include "base/macros.h"

/* Status */

enum nfsstat3 hf_nfsstat3_of(int r)
{
	static const struct {
		int error;
		enum nfsstat3 stat;
	} map[] = {
		{ 0, NFS3_OK },
		{ EPERM, NFS3ERR_PERM },
		{ ENOENT, NFS3ERR_NOENT },
		{ EIO, NFS3ERR_IO },
		{ ENXIO, NFS3ERR_NXIO },
		{ EACCES, NFS3ERR_ACCES },
		{ EBUSY, NFS3ERR_ACCES },   /* for example a local mount point: waiting does not help */
		{ ETXTBSY, NFS3ERR_ACCES }, /* the file is being executed on this host */
		{ EEXIST, NFS3ERR_EXIST },
		{ EXDEV, NFS3ERR_XDEV },
		{ ENODEV, NFS3ERR_NODEV },
		{ ENOTDIR, NFS3ERR_NOTDIR },
		{ EISDIR, NFS3ERR_ISDIR },
		{ EINVAL, NFS3ERR_INVAL },
		{ ELOOP, NFS3ERR_INVAL }, /* a symbolic link where none is followed */
		{ EFBIG, NFS3ERR_FBIG },
		{ EOVERFLOW, NFS3ERR_FBIG },
		{ ENOSPC, NFS3ERR_NOSPC },
		{ EROFS, NFS3ERR_ROFS },
		{ EMLINK, NFS3ERR_MLINK },
		{ ENAMETOOLONG, NFS3ERR_NAMETOOLONG },
		{ ENOTEMPTY, NFS3ERR_NOTEMPTY },
		{ EDQUOT, NFS3ERR_DQUOT },
		{ ESTALE, NFS3ERR_STALE },
		{ EOPNOTSUPP, NFS3ERR_NOTSUPP },
		{ ENOSYS, NFS3ERR_NOTSUPP },
		/* Temporary errors: the client tries again. */
		{ EAGAIN, NFS3ERR_JUKEBOX },
		{ ENOMEM, NFS3ERR_JUKEBOX },
		{ EMFILE, NFS3ERR_JUKEBOX },
		{ ENFILE, NFS3ERR_JUKEBOX },
		{ ETIMEDOUT, NFS3ERR_JUKEBOX },
	};

	for (size_t i = 0; i < HF_ARRAY_SIZE(map); i++)
		if (map[i].error == -r)
			return map[i].stat;
	return r < 0 ? NFS3ERR_IO : NFS3ERR_SERVERFAULT;
}

const char *hf_nfsstat3_name(enum nfsstat3 stat)
{
	switch (stat) {
	case NFS3_OK:
		return "OK";
	case NFS3ERR_PERM:
		return "PERM";
	case NFS3ERR_NOENT:
		return "NOENT";
	case NFS3ERR_IO:
		return "IO";
	case NFS3ERR_NXIO:
		return "NXIO";
	case NFS3ERR_ACCES:
		return "ACCES";
	case NFS3ERR_EXIST:
		return "EXIST";
	case NFS3ERR_XDEV:
		return "XDEV";
	case NFS3ERR_NODEV:
		return "NODEV";
	case NFS3ERR_NOTDIR:
		return "NOTDIR";
	case NFS3ERR_ISDIR:
		return "ISDIR";
	case NFS3ERR_INVAL:
		return "INVAL";
	case NFS3ERR_FBIG:
		return "FBIG";
	case NFS3ERR_NOSPC:
		return "NOSPC";
	case NFS3ERR_ROFS:
		return "ROFS";
	case NFS3ERR_MLINK:
		return "MLINK";
	case NFS3ERR_NAMETOOLONG:
		return "NAMETOOLONG";
	case NFS3ERR_NOTEMPTY:
		return "NOTEMPTY";
	case NFS3ERR_DQUOT:
		return "DQUOT";
	case NFS3ERR_STALE:
		return "STALE";
	case NFS3ERR_REMOTE:
		return "REMOTE";
	case NFS3ERR_BADHANDLE:
		return "BADHANDLE";
	case NFS3ERR_NOT_SYNC:
		return "NOT_SYNC";
	case NFS3ERR_BAD_COOKIE:
		return "BAD_COOKIE";
	case NFS3ERR_NOTSUPP:
		return "NOTSUPP";
	case NFS3ERR_TOOSMALL:
		return "TOOSMALL";
	case NFS3ERR_SERVERFAULT:
		return "SERVERFAULT";
	case NFS3ERR_BADTYPE:
		return "BADTYPE";
	case NFS3ERR_JUKEBOX:
		return "JUKEBOX";
	}
	return "unknown";
}

/* Out */

static uint32_t type_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return NF3DIR;
	case S_IFBLK:
		return NF3BLK;
	case S_IFCHR:
		return NF3CHR;
	case S_IFLNK:
		return NF3LNK;
	case S_IFSOCK:
		return NF3SOCK;
	case S_IFIFO:
		return NF3FIFO;
	default:
		return NF3REG;
	}
}

/* NFSv3 times are unsigned 32-bit seconds: 1970 to 2106. */
static void put_time(struct hf_xdr_out *out, const struct timespec *time)
{
	int64_t seconds = HF_MIN(HF_MAX((int64_t)time->tv_sec, INT64_C(0)), (int64_t)UINT32_MAX);

	hf_xdr_put_u32(out, (uint32_t)seconds);
	hf_xdr_put_u32(out, (uint32_t)time->tv_nsec);
}

void hf_nfs3_put_fattr(struct hf_xdr_out *out, const struct hf_export *export, const struct stat *st)
{
	uint64_t fsid = export->id;

	if (st->st_dev != export->volume->root_stat.st_dev)
		fsid ^= (uint64_t)st->st_dev *
			UINT64_C(0x9e3779b97f4a7c15); /* a subvolume has inode numbers of its own */
	hf_xdr_put_u32(out, type_of(st->st_mode));
	hf_xdr_put_u32(out, st->st_mode & 07777);
	hf_xdr_put_u32(out, (uint32_t)st->st_nlink);
	hf_xdr_put_u32(out, st->st_uid);
	hf_xdr_put_u32(out, st->st_gid);
	hf_xdr_put_u64(out, (uint64_t)st->st_size);
	hf_xdr_put_u64(out, (uint64_t)st->st_blocks * 512);
	hf_xdr_put_u32(out, major(st->st_rdev));
	hf_xdr_put_u32(out, minor(st->st_rdev));
	hf_xdr_put_u64(out, fsid);
	hf_xdr_put_u64(out, st->st_ino);
	put_time(out, &st->st_atim);
	put_time(out, &st->st_mtim);
	put_time(out, &st->st_ctim);
}

void hf_nfs3_put_post_op_attr(struct hf_xdr_out *out, const struct hf_export *export, const struct stat *st)
{
	hf_xdr_put_bool(out, st != NULL);
	if (st)
		hf_nfs3_put_fattr(out, export, st);
}

void hf_nfs3_put_wcc(struct hf_xdr_out *out, const struct hf_export *export, const struct hf_change *change)
{
	hf_xdr_put_bool(out, change->has_before);
	if (change->has_before) {
		hf_xdr_put_u64(out, (uint64_t)change->before.st_size);
		put_time(out, &change->before.st_mtim);
		put_time(out, &change->before.st_ctim);
	}
	hf_nfs3_put_post_op_attr(out, export, change->has_after ? &change->after : NULL);
}

void hf_nfs3_put_fh(struct hf_xdr_out *out, const struct hf_handle *handle)
{
	hf_xdr_put_opaque(out, hf_bytes_of(handle->bytes, handle->len));
}

/* In */

struct hf_bytes hf_nfs3_get_fh(struct hf_xdr_in *in)
{
	return hf_xdr_get_opaque(in, NFS3_FHSIZE);
}

static uint32_t get_optional(struct hf_xdr_in *in, bool *is_setp)
{
	*is_setp = hf_xdr_get_bool(in);
	return *is_setp ? hf_xdr_get_u32(in) : 0;
}

/* time_how: 0 leave, 1 the server's, 2 the client's */
static bool get_time(struct hf_xdr_in *in, struct timespec *time)
{
	uint32_t how = hf_xdr_get_u32(in);

	*time = (struct timespec){ .tv_nsec = UTIME_OMIT };
	if (how == 1)
		time->tv_nsec = UTIME_NOW;
	if (how == 2) {
		time->tv_sec = hf_xdr_get_u32(in);
		time->tv_nsec = hf_xdr_get_u32(in);
	}
	return how <= 2 && (how != 2 || time->tv_nsec < 1000000000);
}

bool hf_nfs3_get_sattr(struct hf_xdr_in *in, struct hf_setattr *set)
{
	bool ok;

	set->mode = get_optional(in, &set->set_mode);
	set->uid = get_optional(in, &set->set_uid);
	set->gid = get_optional(in, &set->set_gid);
	set->set_size = hf_xdr_get_bool(in);
	set->size = set->set_size ? hf_xdr_get_u64(in) : 0;
	ok = get_time(in, &set->atime);
	return get_time(in, &set->mtime) && ok;
}
