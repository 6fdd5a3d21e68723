/* REMOVE, RMDIR, RENAME, LINK. */
#include <errno.h>

#include "base/cleanup.h"
#include "proto/nfs3/op.h"
#include "vfs/tree.h"

/* REMOVE, RMDIR */

typedef int (*remove_fn)(struct hf_file *dir, const struct hf_identity *caller, const struct hf_name *name,
			 struct hf_change *change);

static int remove_and_reply(struct hf_nfs3_op *op, remove_fn fn)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object dir = { 0 };
	struct hf_xdr_in *in = hf_nfs3_args(op);
	struct hf_bytes handle = hf_nfs3_get_fh(in);
	struct hf_bytes bytes = hf_xdr_get_opaque(in, HF_NFS3_MAX_NAME);
	struct hf_change change = { 0 };
	struct hf_name name;
	int stat, r;

	stat = hf_nfs3_find(op, handle, HF_NFS3_CHANGES, &dir);
	if (stat < 0)
		return stat;
	if (stat == NFS3_OK) {
		r = hf_name_get(&name, bytes);
		stat = hf_nfsstat3_of(r < 0 ? r : fn(dir.file, &dir.caller, &name, &change));
		if (stat == NFS3_OK)
			hf_nfs3_sync_before_reply(op, dir.export, dir.file);
	}
	hf_nfs3_put_wcc_of(hf_nfs3_reply(op, stat, HF_WCC_DATA_LEN), &dir, &change);
	return HF_NFS3_DONE;
}

int hf_nfs3_proc_remove(struct hf_nfs3_op *op)
{
	return remove_and_reply(op, hf_dir_remove);
}

int hf_nfs3_proc_rmdir(struct hf_nfs3_op *op)
{
	return remove_and_reply(op, hf_dir_rmdir);
}

/* RENAME */

struct side {
	struct hf_bytes handle;
	struct hf_bytes bytes;
	struct hf_name name;
	struct hf_nfs3_object dir;
	struct hf_change change;
};

static void side_clear(struct side *side)
{
	hf_nfs3_object_clear(&side->dir);
}

static void get_side(struct hf_xdr_in *in, struct side *side)
{
	side->handle = hf_nfs3_get_fh(in);
	side->bytes = hf_xdr_get_opaque(in, HF_NFS3_MAX_NAME);
}

/* Finds both directories, also if the first fails: the reply contains attributes of both. */
static int find_both(struct hf_nfs3_op *op, struct hf_bytes handle, struct hf_nfs3_object *object,
		     struct side *to)
{
	int stat = hf_nfs3_find(op, handle, HF_NFS3_CHANGES, object), to_stat;

	if (stat < 0)
		return stat;
	to_stat = hf_nfs3_find(op, to->handle, HF_NFS3_CHANGES, &to->dir);
	return to_stat < 0 || stat == NFS3_OK ? to_stat : stat;
}

/* A reload between the two searches leaves two objects for one export. */
static bool are_in_one_export(const struct hf_nfs3_object *a, const struct hf_nfs3_object *b)
{
	return a->export->id == b->export->id;
}

static int rename_sides(struct side *from, struct side *to)
{
	int r = hf_name_get(&from->name, from->bytes);

	if (r == 0)
		r = hf_name_get(&to->name, to->bytes);
	if (r == 0 && !are_in_one_export(&from->dir, &to->dir))
		r = -EXDEV;
	if (r == 0)
		r = hf_dir_rename(from->dir.file, &from->name, to->dir.file, &to->name, &from->dir.caller,
				  &from->change, &to->change);
	return r;
}

static enum nfsstat3 rename_and_sync(struct hf_nfs3_op *op, struct side *from, struct side *to)
{
	int r = rename_sides(from, to);

	if (r < 0)
		return hf_nfsstat3_of(r);
	hf_nfs3_sync_before_reply(op, to->dir.export, to->dir.file);
	if (from->dir.file != to->dir.file)
		hf_nfs3_sync_before_reply(op, from->dir.export, from->dir.file);
	return NFS3_OK;
}

int hf_nfs3_proc_rename(struct hf_nfs3_op *op)
{
	hf_cleanup(side_clear) struct side from = { 0 };
	hf_cleanup(side_clear) struct side to = { 0 };
	struct hf_xdr_in *in = hf_nfs3_args(op);
	struct hf_xdr_out *out;
	int stat;

	get_side(in, &from);
	get_side(in, &to);
	stat = find_both(op, from.handle, &from.dir, &to);
	if (stat < 0)
		return stat;
	if (stat == NFS3_OK)
		stat = rename_and_sync(op, &from, &to);
	out = hf_nfs3_reply(op, stat, 2 * HF_WCC_DATA_LEN);
	hf_nfs3_put_wcc_of(out, &from.dir, &from.change);
	hf_nfs3_put_wcc_of(out, &to.dir, &to.change);
	return HF_NFS3_DONE;
}

/* LINK */

/* The directory holds the new name, the file its number of links: both need a sync. */
static void sync_linked(struct hf_nfs3_op *op, const struct hf_nfs3_object *dir, struct hf_file *file)
{
	hf_nfs3_sync_before_reply(op, dir->export, dir->file);
	if (!dir->export->volume->syncs_made_with_dir)
		hf_nfs3_sync_before_reply(op, dir->export, file);
}

int hf_nfs3_proc_link(struct hf_nfs3_op *op)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object object = { 0 };
	hf_cleanup(side_clear) struct side to = { 0 };
	struct hf_xdr_in *in = hf_nfs3_args(op);
	struct hf_bytes handle = hf_nfs3_get_fh(in);
	struct hf_xdr_out *out;
	int stat, r;

	get_side(in, &to);
	stat = find_both(op, handle, &object, &to);
	if (stat < 0)
		return stat;
	if (stat == NFS3_OK) {
		r = hf_name_get(&to.name, to.bytes);
		if (r == 0 && !are_in_one_export(&object, &to.dir))
			r = -EXDEV;
		if (r == 0)
			r = hf_dir_link(to.dir.file, &to.dir.caller, &to.name, object.file, &to.change);
		if (r == 0)
			sync_linked(op, &to.dir, object.file);
		stat = hf_nfsstat3_of(r);
	}
	out = hf_nfs3_reply_with_attr(op, stat, &object, HF_WCC_DATA_LEN);
	hf_nfs3_put_wcc_of(out, &to.dir, &to.change);
	return HF_NFS3_DONE;
}
