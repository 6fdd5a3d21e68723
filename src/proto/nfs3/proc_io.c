/* READ, WRITE, COMMIT. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "proto/nfs3/op.h"
#include "vfs/data.h"

#define READ_HEAD (HF_POST_OP_ATTR_LEN + 12)

static size_t padded(size_t len)
{
	return (len + 3) & ~(size_t)3;
}

/* READ */

struct read_args {
	struct hf_bytes handle;
	uint64_t offset;
	uint32_t count;
};

/* The kernel reads the data directly into the send buffer; the rest of the reply is written around it. */
static int read_and_reply(struct hf_nfs3_op *op, const struct hf_nfs3_object *object,
			  const struct read_args *args)
{
	struct hf_xdr_out *out = hf_nfs3_reply(op, NFS3_OK, READ_HEAD + padded(args->count));
	uint8_t *head = hf_xdr_reserve(out, READ_HEAD + padded(args->count));
	uint8_t *data = head + READ_HEAD;
	struct stat st;
	size_t n = 0;
	int r;

	if (!head)
		return HF_NFS3_DONE; /* no memory; ending the reply reports it */
	r = hf_file_read(object->file, &object->caller, args->offset, data, args->count, !op->may_block, &n,
			 &st);
	if (hf_nfs3_must_wait(op, r)) {
		hf_rpc_reply_cancel(op->call);
		return r;
	}
	op->stat = hf_nfsstat3_of(r);
	op->n_read = n;
	out->p = head - 4; /* overwrites the status */
	hf_xdr_put_u32(out, op->stat);
	hf_nfs3_put_post_op_attr(out, object->export, r == 0 ? &st : hf_nfs3_stat(object, &st));
	if (r < 0)
		return HF_NFS3_DONE;
	hf_xdr_put_u32(out, (uint32_t)n);
	hf_xdr_put_bool(out, args->offset + n >= (uint64_t)st.st_size);
	hf_xdr_put_u32(out, (uint32_t)n);
	memset(data + n, 0, padded(n) - n);
	out->p = data + padded(n);
	return HF_NFS3_DONE;
}

int hf_nfs3_proc_read(struct hf_nfs3_op *op)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object object = { 0 };
	struct hf_xdr_in *in = hf_nfs3_args(op);
	struct read_args args;
	int stat;

	args.handle = hf_nfs3_get_fh(in);
	args.offset = hf_xdr_get_u64(in);
	args.count = hf_nfs3_clip(op, hf_xdr_get_u32(in));
	op->reply_len = args.count;
	if (hf_nfs3_is_too_long_here(op))
		return -EAGAIN;
	stat = hf_nfs3_find(op, args.handle, HF_NFS3_READS, &object);
	if (stat < 0)
		return stat;
	if (stat == NFS3_OK)
		return read_and_reply(op, &object, &args);
	hf_nfs3_put_post_op_attr(hf_nfs3_reply(op, stat, HF_POST_OP_ATTR_LEN), object.export, NULL);
	return HF_NFS3_DONE;
}

/* WRITE */

/* A new verifier makes clients send their uncommitted writes again: after a restart and after a lost
 * write. */
static uint64_t current_verifier(const struct hf_nfs3 *nfs)
{
	return nfs->first_verifier + hf_files_count_losses(hf_exports_files(nfs->exports));
}

struct write_args {
	struct hf_bytes handle;
	uint64_t offset;
	uint32_t count;
	uint32_t stable;
	struct hf_bytes data;
};

static int write_data(struct hf_nfs3_op *op, const struct hf_nfs3_object *object,
		      const struct write_args *args, struct hf_change *change)
{
	return hf_nfsstat3_of(hf_file_write(object->file, &object->caller, args->offset, args->data.data,
					    args->data.len, (enum hf_stability)args->stable, change,
					    &op->n_written));
}

int hf_nfs3_proc_write(struct hf_nfs3_op *op)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object object = { 0 };
	struct hf_xdr_in *in = hf_nfs3_args(op);
	struct hf_change change = { 0 };
	/* Taken before the write, so that a loss from then on changes the verifier that the client sees
	 * next. */
	uint64_t verifier = current_verifier(op->nfs);
	struct write_args args;
	struct hf_xdr_out *out;
	int stat;

	args.handle = hf_nfs3_get_fh(in);
	args.offset = hf_xdr_get_u64(in);
	args.count = hf_xdr_get_u32(in);
	args.stable = hf_xdr_get_u32(in);
	args.data = hf_xdr_get_opaque(in, HF_NFS3_MAX_IO);
	if (!hf_xdr_in_is_ok(in) || args.stable > FILE_SYNC)
		return HF_NFS3_GARBAGE;
	stat = hf_nfs3_find(op, args.handle, HF_NFS3_CHANGES, &object);
	if (stat < 0)
		return stat;
	if (stat == NFS3_OK && args.count > args.data.len)
		stat = NFS3ERR_INVAL;
	args.data.len = HF_MIN(args.data.len, args.count);
	if (stat == NFS3_OK)
		stat = write_data(op, &object, &args, &change);
	out = hf_nfs3_reply(op, stat, HF_WCC_DATA_LEN + 8 + NFS3_WRITEVERFSIZE);
	hf_nfs3_put_wcc_of(out, &object, &change);
	if (stat == NFS3_OK) {
		hf_xdr_put_u32(out, (uint32_t)op->n_written);
		hf_xdr_put_u32(out, args.stable);
		hf_xdr_put_u64(out, verifier);
	}
	return HF_NFS3_DONE;
}

/* COMMIT syncs the whole file, whichever part was asked for. */

int hf_nfs3_proc_commit(struct hf_nfs3_op *op)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object object = { 0 };
	struct hf_xdr_in *in = hf_nfs3_args(op);
	struct hf_bytes handle = hf_nfs3_get_fh(in);
	struct hf_change change = { 0 };
	struct hf_xdr_out *out;
	int stat;

	hf_xdr_get_u64(in); /* offset */
	hf_xdr_get_u32(in); /* count */
	stat = hf_nfs3_find(op, handle, HF_NFS3_CHANGES, &object);
	if (stat < 0)
		return stat;
	if (stat == NFS3_OK)
		stat = hf_nfsstat3_of(hf_file_commit(object.file, &object.caller, &change));
	out = hf_nfs3_reply(op, stat, HF_WCC_DATA_LEN + NFS3_WRITEVERFSIZE);
	hf_nfs3_put_wcc_of(out, &object, &change);
	if (stat == NFS3_OK) /* taken after the sync */
		hf_xdr_put_u64(out, current_verifier(op->nfs));
	return HF_NFS3_DONE;
}
