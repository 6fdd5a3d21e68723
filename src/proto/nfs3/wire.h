/*
 * The wire format of program 100003 version 3 (RFC 1813, with its names), and
 * nothing else. A decoder's caller checks hf_xdr_in_is_ok() at the end.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "export/export.h"
#include "rpc/xdr.h"
#include "vfs/attr.h"
#include "vfs/change.h"

#define HF_NFS_PROGRAM 100003

#define NFS3_FHSIZE         64
#define NFS3_COOKIEVERFSIZE 8
#define NFS3_CREATEVERFSIZE 8
#define NFS3_WRITEVERFSIZE  8

/* Bounds that this server sets; the RFC has none. Longer names get NAMETOOLONG. */
#define HF_NFS3_MAX_NAME 4096
#define HF_NFS3_MAX_PATH 4095 /* of a symbolic link's text */
#define HF_NFS3_MAX_IO   (1 << 20)

enum nfsproc3 {
	NFSPROC3_NULL,
	NFSPROC3_GETATTR,
	NFSPROC3_SETATTR,
	NFSPROC3_LOOKUP,
	NFSPROC3_ACCESS,
	NFSPROC3_READLINK,
	NFSPROC3_READ,
	NFSPROC3_WRITE,
	NFSPROC3_CREATE,
	NFSPROC3_MKDIR,
	NFSPROC3_SYMLINK,
	NFSPROC3_MKNOD,
	NFSPROC3_REMOVE,
	NFSPROC3_RMDIR,
	NFSPROC3_RENAME,
	NFSPROC3_LINK,
	NFSPROC3_READDIR,
	NFSPROC3_READDIRPLUS,
	NFSPROC3_FSSTAT,
	NFSPROC3_FSINFO,
	NFSPROC3_PATHCONF,
	NFSPROC3_COMMIT,
	HF_N_NFSPROC3,
};

enum nfsstat3 {
	NFS3_OK = 0,
	NFS3ERR_PERM = 1,
	NFS3ERR_NOENT = 2,
	NFS3ERR_IO = 5,
	NFS3ERR_NXIO = 6,
	NFS3ERR_ACCES = 13,
	NFS3ERR_EXIST = 17,
	NFS3ERR_XDEV = 18,
	NFS3ERR_NODEV = 19,
	NFS3ERR_NOTDIR = 20,
	NFS3ERR_ISDIR = 21,
	NFS3ERR_INVAL = 22,
	NFS3ERR_FBIG = 27,
	NFS3ERR_NOSPC = 28,
	NFS3ERR_ROFS = 30,
	NFS3ERR_MLINK = 31,
	NFS3ERR_NAMETOOLONG = 63,
	NFS3ERR_NOTEMPTY = 66,
	NFS3ERR_DQUOT = 69,
	NFS3ERR_STALE = 70,
	NFS3ERR_REMOTE = 71,
	NFS3ERR_BADHANDLE = 10001,
	NFS3ERR_NOT_SYNC = 10002,
	NFS3ERR_BAD_COOKIE = 10003,
	NFS3ERR_NOTSUPP = 10004,
	NFS3ERR_TOOSMALL = 10005,
	NFS3ERR_SERVERFAULT = 10006,
	NFS3ERR_BADTYPE = 10007,
	NFS3ERR_JUKEBOX = 10008,
};

enum ftype3 {
	NF3REG = 1,
	NF3DIR = 2,
	NF3BLK = 3,
	NF3CHR = 4,
	NF3LNK = 5,
	NF3SOCK = 6,
	NF3FIFO = 7,
};

enum {
	ACCESS3_READ = 0x01,
	ACCESS3_LOOKUP = 0x02,
	ACCESS3_MODIFY = 0x04,
	ACCESS3_EXTEND = 0x08,
	ACCESS3_DELETE = 0x10,
	ACCESS3_EXECUTE = 0x20,
};

enum createmode3 {
	UNCHECKED = 0,
	GUARDED = 1,
	EXCLUSIVE = 2,
};

enum stable_how {
	UNSTABLE = 0,
	DATA_SYNC = 1,
	FILE_SYNC = 2,
};

enum {
	FSF3_LINK = 0x01,
	FSF3_SYMLINK = 0x02,
	FSF3_HOMOGENEOUS = 0x08,
	FSF3_CANSETTIME = 0x10,
};

/* Encoded sizes at most */
#define HF_FATTR3_LEN       84
#define HF_POST_OP_ATTR_LEN (4 + HF_FATTR3_LEN)
#define HF_WCC_DATA_LEN     (4 + 24 + HF_POST_OP_ATTR_LEN)
#define HF_FH3_LEN          (4 + NFS3_FHSIZE)
#define HF_POST_OP_FH3_LEN  (4 + HF_FH3_LEN)

/* Translates 0 or -errno into a status. This is the only place that does so. */
enum nfsstat3 hf_nfsstat3_of(int r);
const char *hf_nfsstat3_name(enum nfsstat3 stat);

/* Encoding. The fsid is the export's: to its clients one export is one file system. */
void hf_nfs3_put_fattr(struct hf_xdr_out *out, const struct hf_export *export, const struct stat *st);
/* NULL: none */
void hf_nfs3_put_post_op_attr(struct hf_xdr_out *out, const struct hf_export *export, const struct stat *st);
void hf_nfs3_put_wcc(struct hf_xdr_out *out, const struct hf_export *export, const struct hf_change *change);
void hf_nfs3_put_fh(struct hf_xdr_out *out, const struct hf_handle *handle);

/* Decoding */
struct hf_bytes hf_nfs3_get_fh(struct hf_xdr_in *in);
/* false: an enumeration has an invalid value. */
bool hf_nfs3_get_sattr(struct hf_xdr_in *in, struct hf_setattr *set);
