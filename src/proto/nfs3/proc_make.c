/* CREATE, MKDIR, SYMLINK, MKNOD: make a name in a directory. */
#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"
#include "proto/nfs3/op.h"
#include "vfs/tree.h"

struct make {
	struct hf_bytes handle; /* of the directory */
	struct hf_bytes name_bytes;
	struct hf_name name;
	struct hf_setattr set;
	uint32_t how;
	uint8_t verifier[NFS3_CREATEVERFSIZE];
	uint32_t type;
	dev_t device;
	char target[HF_NFS3_MAX_PATH + 1];
	size_t target_len;
	bool makes_sense;
};

/* Makes the object; one function for each procedure. */
typedef int (*make_fn)(const struct hf_nfs3_object *dir, const struct make *make, struct hf_change *change,
		       struct hf_file **filep);

static void get_where(struct hf_xdr_in *in, struct make *make)
{
	memset(&make->set, 0, sizeof(make->set));
	make->set.atime.tv_nsec = make->set.mtime.tv_nsec = UTIME_OMIT;
	make->makes_sense = true;
	make->handle = hf_nfs3_get_fh(in);
	make->name_bytes = hf_xdr_get_opaque(in, HF_NFS3_MAX_NAME);
}

static int check_and_make(struct hf_nfs3_object *dir, struct make *make, make_fn fn, struct hf_change *change,
			  struct hf_file **filep)
{
	int r = hf_name_get(&make->name, make->name_bytes);

	if (!S_ISDIR(dir->file->type))
		r = -ENOTDIR;
	return r < 0 ? r : fn(dir, make, change, filep);
}

/* On a file system that commits a new file with its directory, syncing the directory is enough. Attributes
 * that were set afterwards are a separate change. */
static void sync_made(struct hf_nfs3_op *op, const struct hf_nfs3_object *dir, struct hf_file *file,
		      const struct hf_setattr *set)
{
	hf_nfs3_sync_before_reply(op, dir->export, dir->file);
	if (!dir->export->volume->syncs_made_with_dir || set->set_uid || set->set_gid || set->set_size ||
	    (set->set_mode && set->mode & 07000) || set->atime.tv_nsec != UTIME_OMIT ||
	    set->mtime.tv_nsec != UTIME_OMIT)
		hf_nfs3_sync_before_reply(op, dir->export, file);
}

/* An object that was made, but could not be opened */
static void sync_unopened(struct hf_nfs3_op *op, const struct hf_nfs3_object *dir)
{
	op->is_made = true;
	if (dir->export->volume->syncs_made_with_dir)
		hf_nfs3_sync_before_reply(op, dir->export, dir->file);
	else if (!dir->export->settings.async)
		op->sync.result = hf_file_sync_around(dir->file);
}

static int make_and_reply(struct hf_nfs3_op *op, struct make *make, make_fn fn)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object dir = { 0 };
	hf_cleanup(hf_file_unrefp) struct hf_file *file = NULL;
	struct hf_change change = { 0 };
	struct hf_xdr_out *out;
	int stat;

	if (!hf_xdr_in_is_ok(hf_nfs3_args(op)) || !make->makes_sense)
		return HF_NFS3_GARBAGE;
	stat = hf_nfs3_find(op, make->handle, HF_NFS3_CHANGES, &dir);
	if (stat < 0)
		return stat;
	if (stat == NFS3_OK)
		stat = hf_nfsstat3_of(check_and_make(&dir, make, fn, &change, &file));
	if ((stat == NFS3_OK || change.is_made) && file)
		sync_made(op, &dir, file, &make->set);
	else if (stat == NFS3_OK || change.is_made)
		sync_unopened(op, &dir);
	out = hf_nfs3_reply(op, stat, HF_POST_OP_FH3_LEN + HF_POST_OP_ATTR_LEN + HF_WCC_DATA_LEN);
	if (stat == NFS3_OK)
		hf_nfs3_put_file(op, out, &dir, file);
	hf_nfs3_put_wcc_of(out, &dir, &change);
	return HF_NFS3_DONE;
}

/* CREATE */

static int create(const struct hf_nfs3_object *dir, const struct make *make, struct hf_change *change,
		  struct hf_file **filep)
{
	static const enum hf_create_how hows[] = {
		[UNCHECKED] = HF_CREATE_UNCHECKED,
		[GUARDED] = HF_CREATE_GUARDED,
		[EXCLUSIVE] = HF_CREATE_EXCLUSIVE,
	};

	return hf_dir_create(dir->file, &dir->caller, &make->name, hows[make->how], &make->set,
			     make->verifier, change, filep);
}

int hf_nfs3_proc_create(struct hf_nfs3_op *op)
{
	struct hf_xdr_in *in = hf_nfs3_args(op);
	struct hf_bytes verifier;
	struct make make;

	get_where(in, &make);
	make.how = hf_xdr_get_u32(in);
	if (make.how == EXCLUSIVE) {
		verifier = hf_xdr_get_fixed(in, NFS3_CREATEVERFSIZE);
		if (verifier.data)
			memcpy(make.verifier, verifier.data, sizeof(make.verifier));
	} else {
		make.makes_sense = make.how <= EXCLUSIVE && hf_nfs3_get_sattr(in, &make.set);
	}
	return make_and_reply(op, &make, create);
}

/* MKDIR */

static int make_dir(const struct hf_nfs3_object *dir, const struct make *make, struct hf_change *change,
		    struct hf_file **filep)
{
	return hf_dir_mkdir(dir->file, &dir->caller, &make->name, &make->set, change, filep);
}

int hf_nfs3_proc_mkdir(struct hf_nfs3_op *op)
{
	struct hf_xdr_in *in = hf_nfs3_args(op);
	struct make make;

	get_where(in, &make);
	make.makes_sense = hf_nfs3_get_sattr(in, &make.set);
	return make_and_reply(op, &make, make_dir);
}

/* SYMLINK */

static int make_symlink(const struct hf_nfs3_object *dir, const struct make *make, struct hf_change *change,
			struct hf_file **filep)
{
	/* The kernel would return other errors for these. */
	if (make->target_len == 0 || strlen(make->target) != make->target_len)
		return -EINVAL;
	return hf_dir_symlink(dir->file, &dir->caller, &make->name, make->target, &make->set, change, filep);
}

int hf_nfs3_proc_symlink(struct hf_nfs3_op *op)
{
	struct hf_xdr_in *in = hf_nfs3_args(op);
	struct hf_bytes target;
	struct make make;

	get_where(in, &make);
	make.makes_sense = hf_nfs3_get_sattr(in, &make.set);
	target = hf_xdr_get_opaque(in, HF_NFS3_MAX_PATH);
	if (target.len)
		memcpy(make.target, target.data, target.len);
	make.target[target.len] = '\0';
	make.target_len = target.len;
	return make_and_reply(op, &make, make_symlink);
}

/* MKNOD */

static mode_t mode_of_type(uint32_t type)
{
	switch (type) {
	case NF3CHR:
		return S_IFCHR;
	case NF3BLK:
		return S_IFBLK;
	case NF3SOCK:
		return S_IFSOCK;
	case NF3FIFO:
		return S_IFIFO;
	default:
		return 0;
	}
}

static int make_node(const struct hf_nfs3_object *dir, const struct make *make, struct hf_change *change,
		     struct hf_file **filep)
{
	return hf_dir_mknod(dir->file, &dir->caller, &make->name, mode_of_type(make->type), make->device,
			    &make->set, change, filep);
}

static int reply_bad_type(struct hf_nfs3_op *op, const struct make *make)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object dir = { 0 };
	struct hf_change change = { 0 };
	int stat;

	stat = hf_nfs3_find(op, make->handle, HF_NFS3_CHANGES, &dir);
	if (stat < 0)
		return stat;
	hf_nfs3_put_wcc_of(hf_nfs3_reply(op, stat == NFS3_OK ? NFS3ERR_BADTYPE : stat, HF_WCC_DATA_LEN), &dir,
			   &change);
	return HF_NFS3_DONE;
}

int hf_nfs3_proc_mknod(struct hf_nfs3_op *op)
{
	struct hf_xdr_in *in = hf_nfs3_args(op);
	struct make make;
	uint32_t major_number, minor_number;

	get_where(in, &make);
	make.type = hf_xdr_get_u32(in);
	make.device = 0;
	if (!mode_of_type(make.type))
		return reply_bad_type(op, &make);
	make.makes_sense = hf_nfs3_get_sattr(in, &make.set);
	if (make.type == NF3CHR || make.type == NF3BLK) {
		major_number = hf_xdr_get_u32(in);
		minor_number = hf_xdr_get_u32(in);
		make.device = makedev(major_number, minor_number);
	}
	return make_and_reply(op, &make, make_node);
}
