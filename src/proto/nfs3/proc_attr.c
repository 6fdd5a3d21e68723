/* GETATTR, SETATTR, ACCESS. */
#include <errno.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "proto/nfs3/op.h"
#include "vfs/access.h"
#include "vfs/tree.h"

int hf_nfs3_proc_getattr(struct hf_nfs3_op *op)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object object = { 0 };
	struct hf_xdr_out *out;
	struct stat st;
	int stat;

	stat = hf_nfs3_find_only(op, &object);
	if (stat < 0)
		return stat;
	if (stat == NFS3_OK)
		stat = hf_nfsstat3_of(hf_file_check(object.file, &st));
	out = hf_nfs3_reply(op, stat, HF_FATTR3_LEN);
	if (stat == NFS3_OK)
		hf_nfs3_put_fattr(out, object.export, &st);
	return HF_NFS3_DONE;
}

static enum nfsstat3 setattr_stat(int r)
{
	return r == HF_SETATTR_E_NOT_SYNC ? NFS3ERR_NOT_SYNC : hf_nfsstat3_of(r);
}

int hf_nfs3_proc_setattr(struct hf_nfs3_op *op)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object object = { 0 };
	struct hf_xdr_in *in = hf_nfs3_args(op);
	struct hf_bytes handle = hf_nfs3_get_fh(in);
	struct hf_change change = { 0 };
	struct timespec guard = { 0 };
	struct hf_setattr set;
	bool makes_sense = hf_nfs3_get_sattr(in, &set);
	bool has_guard = hf_xdr_get_bool(in);
	int stat;

	if (has_guard) {
		guard.tv_sec = hf_xdr_get_u32(in);
		guard.tv_nsec = hf_xdr_get_u32(in);
	}
	if (!hf_xdr_in_is_ok(in) || !makes_sense)
		return HF_NFS3_GARBAGE;
	stat = hf_nfs3_find(op, handle, HF_NFS3_CHANGES, &object);
	if (stat < 0)
		return stat;
	if (stat == NFS3_OK)
		stat = setattr_stat(hf_file_setattr(object.file, &object.caller, &set,
						    has_guard ? &guard : NULL, &change));
	if (stat == NFS3_OK || change.is_made)
		hf_nfs3_sync_before_reply(op, object.export, object.file);
	hf_nfs3_put_wcc_of(hf_nfs3_reply(op, stat, HF_WCC_DATA_LEN), &object, &change);
	return HF_NFS3_DONE;
}

/* Translates the kernel's permissions into NFS access bits; omits bits that do not apply to the file's
 * type. */
static uint32_t granted(const struct hf_nfs3_object *object, int allowed)
{
	bool is_dir = S_ISDIR(object->file->type);
	uint32_t bits = 0;

	if (object->rule->read_only)
		allowed &= ~W_OK;
	if (allowed & R_OK)
		bits |= ACCESS3_READ;
	if (allowed & X_OK)
		bits |= is_dir ? ACCESS3_LOOKUP : ACCESS3_EXECUTE;
	if (is_dir && (allowed & (W_OK | X_OK)) == (W_OK | X_OK))
		bits |= ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_DELETE;
	if (!is_dir && (allowed & W_OK))
		bits |= ACCESS3_MODIFY | ACCESS3_EXTEND;
	return bits;
}

int hf_nfs3_proc_access(struct hf_nfs3_op *op)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object object = { 0 };
	struct hf_xdr_in *in = hf_nfs3_args(op);
	struct hf_bytes handle = hf_nfs3_get_fh(in);
	uint32_t asked = hf_xdr_get_u32(in);
	struct hf_xdr_out *out;
	struct stat st;
	int stat, allowed = 0;

	stat = hf_nfs3_find(op, handle, HF_NFS3_READS, &object);
	if (stat < 0)
		return stat;
	if (stat == NFS3_OK)
		stat = hf_nfsstat3_of(hf_file_check(object.file, &st));
	if (stat == NFS3_OK)
		allowed = hf_file_access(object.file, &object.caller, &st);
	if (allowed < 0) /* an identity that does not exist here has no rights */
		allowed = 0;
	out = hf_nfs3_reply(op, stat, HF_POST_OP_ATTR_LEN + 4);
	hf_nfs3_put_post_op_attr(out, object.export, stat == NFS3_OK ? &st : NULL);
	if (stat == NFS3_OK)
		hf_xdr_put_u32(out, asked & granted(&object, allowed));
	return HF_NFS3_DONE;
}
