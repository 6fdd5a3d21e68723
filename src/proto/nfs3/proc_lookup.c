/* LOOKUP, READLINK. */
#include <errno.h>

#include "base/cleanup.h"
#include "proto/nfs3/op.h"
#include "vfs/access.h"
#include "vfs/tree.h"

static int lookup(struct hf_nfs3_op *op, const struct hf_nfs3_object *dir, struct hf_bytes bytes,
		  struct stat *dir_stp, struct hf_file **filep, struct stat *stp)
{
	struct hf_name name;
	int r = hf_name_get(&name, bytes);

	/* A lookup in a file returns NOTDIR before the name is checked. */
	if (!S_ISDIR(dir->file->type))
		return -ENOTDIR;
	return r < 0 ? r
		     : hf_dir_lookup(dir->file, &dir->caller, &name, op->may_block ? 0 : op->begun, dir_stp,
				     filep, stp);
}

int hf_nfs3_proc_lookup(struct hf_nfs3_op *op)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object dir = { 0 };
	hf_cleanup(hf_file_unrefp) struct hf_file *file = NULL;
	struct hf_xdr_in *in = hf_nfs3_args(op);
	struct hf_bytes handle = hf_nfs3_get_fh(in);
	struct hf_bytes name = hf_xdr_get_opaque(in, HF_NFS3_MAX_NAME);
	struct hf_handle found;
	struct hf_xdr_out *out;
	struct stat dir_st, st;
	int stat, r;

	stat = hf_nfs3_find(op, handle, HF_NFS3_READS, &dir);
	if (stat < 0)
		return stat;
	if (stat == NFS3_OK) {
		r = lookup(op, &dir, name, &dir_st, &file, &st);
		if (hf_nfs3_must_wait(op, r))
			return r;
		stat = hf_nfsstat3_of(r);
	}
	out = hf_nfs3_reply(op, stat, HF_FH3_LEN + 2 * HF_POST_OP_ATTR_LEN);
	if (stat == NFS3_OK) {
		hf_exports_make_handle(op->nfs->exports, dir.export, &file->id, &found);
		hf_nfs3_put_fh(out, &found);
		hf_nfs3_put_post_op_attr(out, dir.export, &st);
	}
	/* A LOOKUP changes nothing: what was read to check the directory is as good as another question. */
	hf_nfs3_put_post_op_attr(out, dir.export, stat == NFS3_OK ? &dir_st : hf_nfs3_stat(&dir, &dir_st));
	return HF_NFS3_DONE;
}

int hf_nfs3_proc_readlink(struct hf_nfs3_op *op)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object object = { 0 };
	char text[HF_NFS3_MAX_PATH + 1];
	size_t len = sizeof(text);
	struct hf_xdr_out *out;
	int stat;

	stat = hf_nfs3_find_only(op, &object);
	if (stat < 0)
		return stat;
	if (stat == NFS3_OK)
		stat = hf_nfsstat3_of(hf_file_readlink(object.file, text, &len));
	out = hf_nfs3_reply_with_attr(op, stat, &object, 4 + sizeof(text));
	if (stat == NFS3_OK)
		hf_xdr_put_opaque(out, hf_bytes_of(text, (uint32_t)len));
	return HF_NFS3_DONE;
}
