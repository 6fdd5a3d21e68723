/*
 * READDIR, READDIRPLUS.
 *
 * Cookies are the kernel's positions and hold while the directory changes
 * (vfs/listing.h). So the verifier stands for the kind of cookie only, and
 * changes when an export's file system is replaced by one of another type.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "proto/nfs3/op.h"
#include "vfs/access.h"
#include "vfs/listing.h"
#include "vfs/tree.h"

#define HEAD        (HF_POST_OP_ATTR_LEN + NFS3_COOKIEVERFSIZE)
#define TAIL        8  /* the end of the list, and whether that was all */
#define ENTRY       24 /* and the name */
#define ENTRY_PLUS  (ENTRY + HF_POST_OP_ATTR_LEN + HF_POST_OP_FH3_LEN)
#define RESULT_STAT 4

struct readdir_args {
	struct hf_bytes handle;
	uint64_t cookie;
	uint64_t verifier;
	uint32_t names; /* bytes of names that are wanted, about */
	uint32_t max;   /* bytes of results, the status included */
	bool plus;
	bool quick; /* see identify() */
};

static uint64_t verifier_of(const struct hf_volume *volume)
{
	return UINT64_C(0x486f6c6466617374) ^ volume->magic << 8 ^ 1;
}

static size_t padded(size_t len)
{
	return (len + 3) & ~(size_t)3;
}

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Attributes and id of an entry. @quick: by its name, twice; else by opening it, which is slower, but nobody
 * can put another file in its place between. */
static int identify(const struct hf_nfs3_object *dir, const struct hf_entry *entry, bool quick,
		    struct hf_file_id *id, struct stat *st)
{
	hf_cleanup(hf_closep) int fd = -1;
	struct hf_volume *volume = dir->export->volume;
	int r;

	if (quick)
		return hf_volume_identify_entry(volume, dir->file->fd, entry->name, id, st);
	r = hf_volume_step(volume, dir->file->fd, entry->name, false, &fd);
	if (r == 0)
		r = hf_volume_identify(volume, fd, id, st);
	if (r == 0)
		hf_volume_saw(volume, dir->file->id.inode, entry->name, id->inode);
	return r;
}

/* Both are optional, and what cannot be had is left out. */
static void put_plus(struct hf_nfs3_op *op, struct hf_xdr_out *out, const struct hf_nfs3_object *dir,
		     const struct hf_entry *entry, bool quick)
{
	struct hf_handle handle;
	struct hf_file_id id;
	struct stat st;

	if (is_dots(entry->name) || identify(dir, entry, quick, &id, &st) < 0) {
		hf_xdr_put_bool(out, false);
		hf_xdr_put_bool(out, false);
		return;
	}
	hf_exports_make_handle(op->nfs->exports, dir->export, &id, &handle);
	hf_nfs3_put_post_op_attr(out, dir->export, &st);
	hf_xdr_put_bool(out, true);
	hf_nfs3_put_fh(out, &handle);
}

static void put_entry(struct hf_nfs3_op *op, struct hf_xdr_out *out, const struct hf_nfs3_object *dir,
		      const struct hf_entry *entry, const struct readdir_args *args)
{
	bool is_above_root = strcmp(entry->name, "..") == 0 &&
			     hf_file_id_equal(&dir->file->id, &dir->export->volume->root_id);

	hf_xdr_put_bool(out, true);
	/* What is above the root is nobody's business. */
	hf_xdr_put_u64(out, is_above_root ? dir->file->id.inode : entry->inode);
	hf_xdr_put_string(out, entry->name);
	hf_xdr_put_u64(out, entry->cookie);
	if (args->plus)
		put_plus(op, out, dir, entry, args->quick);
}

/* Entries until the room, the names or the directory are used up. A status. */
static int put_entries(struct hf_nfs3_op *op, struct hf_xdr_out *out, const struct hf_nfs3_object *dir,
		       const struct readdir_args *args, struct hf_listing *listing)
{
	size_t n_names = 0, n_entries = 0;
	struct hf_entry entry;
	int r;

	while ((r = hf_listing_next(listing, &entry)) == 0) {
		size_t name_len = padded(strlen(entry.name));
		size_t len = (args->plus ? ENTRY_PLUS : ENTRY) + name_len;

		n_names += ENTRY + name_len;
		if (hf_xdr_out_left(out) < len + TAIL || (n_entries && n_names > args->names)) {
			hf_xdr_put_bool(out, false);
			hf_xdr_put_bool(out, false);
			return n_entries ? NFS3_OK : NFS3ERR_TOOSMALL;
		}
		put_entry(op, out, dir, &entry, args);
		n_entries++;
	}
	if (r == HF_LISTING_BAD_COOKIE)
		return NFS3ERR_BAD_COOKIE;
	if (r < 0)
		return hf_nfsstat3_of(r);
	hf_xdr_put_bool(out, false);
	hf_xdr_put_bool(out, true);
	return NFS3_OK;
}

static int list(struct hf_nfs3_op *op, struct hf_xdr_out *out, const struct hf_nfs3_object *dir,
		const struct readdir_args *args)
{
	struct hf_listing listing;
	int r;
	HF_AS(as, &dir->caller);

	if (as.result < 0)
		return hf_nfsstat3_of(as.result);
	r = hf_listing_open(&listing, dir->file, args->cookie, args->names);
	if (r == HF_LISTING_BAD_COOKIE)
		return NFS3ERR_BAD_COOKIE;
	if (r < 0)
		return hf_nfsstat3_of(r);
	r = put_entries(op, out, dir, args, &listing);
	hf_listing_close(&listing);
	return r;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* The quick way first: if the directory is the same afterwards, no name was changed, and all is well. */
static int list_plus(struct hf_nfs3_op *op, struct hf_xdr_out *out, const struct hf_nfs3_object *dir,
		     struct readdir_args *args)
{
	const struct hf_volume *volume = dir->export->volume;
	uint8_t *begin = out->p;
	struct stat before, after;
	int stat;

	args->quick = !volume->finder && fstat(dir->file->fd, &before) == 0 && hf_stat_is_settled(&before);
	stat = list(op, out, dir, args);
	if (!args->quick || (fstat(dir->file->fd, &after) == 0 && is_same(&before, &after)))
		return stat;
	args->quick = false;
	if (begin)
		out->p = begin;
	return list(op, out, dir, args);
}

static int check(const struct hf_nfs3_object *dir, const struct readdir_args *args)
{
	struct stat st;
	int r = hf_dir_check(dir->file, &st);

	if (r < 0)
		return hf_nfsstat3_of(r);
	/* Some clients send no verifier at all. */
	if (args->cookie && args->verifier && args->verifier != verifier_of(dir->export->volume))
		return NFS3ERR_BAD_COOKIE;
	return args->max < RESULT_STAT + HEAD + TAIL ? NFS3ERR_TOOSMALL : NFS3_OK;
}

static int readdir_and_reply(struct hf_nfs3_op *op, struct readdir_args *args)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object dir = { 0 };
	struct hf_xdr_out *out;
	struct stat st;
	uint8_t *begin;
	int stat;

	if (!op->may_block) { /* only to see how much it will be */
		op->reply_len = args->max;
		return -EAGAIN;
	}
	stat = hf_nfs3_find(op, args->handle, HF_NFS3_READS, &dir);
	if (stat < 0)
		return stat;
	if (stat == NFS3_OK)
		stat = check(&dir, args);
	out = hf_nfs3_reply(op, stat, stat == NFS3_OK ? args->max - RESULT_STAT : HF_POST_OP_ATTR_LEN);
	begin = out->p;
	hf_nfs3_put_post_op_attr(out, dir.export, hf_nfs3_stat(&dir, &st));
	if (stat != NFS3_OK)
		return HF_NFS3_DONE;
	hf_xdr_put_u64(out, verifier_of(dir.export->volume));
	stat = args->plus ? list_plus(op, out, &dir, args) : list(op, out, &dir, args);
	if (stat == NFS3_OK || !begin)
		return HF_NFS3_DONE;
	op->stat = (enum nfsstat3)stat;
	out->p = begin - RESULT_STAT; /* over what was written */
	hf_xdr_put_u32(out, op->stat);
	hf_nfs3_put_post_op_attr(out, dir.export, hf_nfs3_stat(&dir, &st));
	return HF_NFS3_DONE;
}

int hf_nfs3_proc_readdir(struct hf_nfs3_op *op)
{
	struct readdir_args args = { .plus = false };
	struct hf_xdr_in *in = hf_nfs3_args(op);

	args.handle = hf_nfs3_get_fh(in);
	args.cookie = hf_xdr_get_u64(in);
	args.verifier = hf_xdr_get_u64(in);
	args.max = hf_nfs3_clip(op, hf_xdr_get_u32(in));
	args.names = args.max;
	return hf_xdr_in_is_ok(in) ? readdir_and_reply(op, &args) : HF_NFS3_GARBAGE;
}

int hf_nfs3_proc_readdirplus(struct hf_nfs3_op *op)
{
	struct readdir_args args = { .plus = true };
	struct hf_xdr_in *in = hf_nfs3_args(op);

	args.handle = hf_nfs3_get_fh(in);
	args.cookie = hf_xdr_get_u64(in);
	args.verifier = hf_xdr_get_u64(in);
	args.names = hf_xdr_get_u32(in);
	args.max = hf_nfs3_clip(op, hf_xdr_get_u32(in));
	return hf_xdr_in_is_ok(in) ? readdir_and_reply(op, &args) : HF_NFS3_GARBAGE;
}
