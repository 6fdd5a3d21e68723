/*
 * READDIR, READDIRPLUS.
 *
 * Cookies are the kernel's positions and stay valid while the directory changes
 * (vfs/listing.h). The verifier therefore only stands for the kind of cookie.
 * It changes when a file system of another type replaces the export's.
 *
 * A page of READDIRPLUS that was made before and is still valid (vfs/pages.h)
 * is sent again, mostly from the loop.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "proto/nfs3/op.h"
#include "vfs/access.h"
#include "vfs/listing.h"
#include "vfs/pages.h"
#include "vfs/tree.h"

#define HEAD        (HF_POST_OP_ATTR_LEN + NFS3_COOKIEVERFSIZE)
#define TAIL        8  /* end of the list, and the flag for the end of the directory */
#define ENTRY       24 /* plus the name */
#define ENTRY_PLUS  (ENTRY + HF_POST_OP_ATTR_LEN + HF_POST_OP_FH3_LEN)
#define RESULT_STAT 4
#define COOKIE      8
#define A_FEW       64 /* entries between two checks whether to yield */

/* A page under construction. */
struct making {
	struct hf_page_part *parts; /* NULL: the page is not cached */
	size_t n;
	size_t room;
	const uint8_t *begin; /* its first entry */
	bool is_spoiled;      /* part of the page could not be determined */
};

struct readdir_args {
	struct hf_bytes handle;
	uint64_t cookie;
	uint64_t verifier;
	uint32_t names; /* wanted bytes of names, approximately */
	uint32_t max;   /* most bytes of results, including the status */
	bool plus;
	bool quick; /* see identify() */
	struct making making;
};

static uint64_t verifier_of(const struct hf_volume *volume)
{
	return UINT64_C(0x486f6c6466617374) ^ volume->magic << 8 ^ 1;
}

static size_t padded(size_t len)
{
	return (len + 3) & ~(size_t)3;
}

static struct hf_pages *pages_of(const struct hf_nfs3_object *dir)
{
	return hf_files_pages(dir->file->files);
}

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Finds attributes and id of an entry. @quick: by its name, in two calls. Otherwise by opening the entry,
 * which is slower but cannot mix two files if the name changes in between. */
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

static void note_part(struct making *making, const struct hf_entry *entry, uint32_t stamp,
		      const struct stat *st, const uint8_t *attr)
{
	size_t name_len = strlen(entry->name);

	if (!making->parts)
		return;
	/* put_page() has no room for a longer name, which no client can look up anyway. */
	if (!st || st->st_ino != entry->inode || name_len > HF_NAME_MAX || making->n == making->room) {
		making->is_spoiled = true;
		return;
	}
	making->parts[making->n++] = (struct hf_page_part){
		.inode = entry->inode,
		.stamp = stamp,
		.name_at = (uint32_t)(attr - making->begin - COOKIE - padded(name_len)),
		.attr_at = (uint32_t)(attr - making->begin),
		.name_len = (uint16_t)name_len,
		.is_fluid = S_ISDIR(st->st_mode) || st->st_nlink > 1,
	};
}

/* Both parts are optional; a part that is not available is left out. */
static void put_plus(struct hf_nfs3_op *op, struct hf_xdr_out *out, const struct hf_nfs3_object *dir,
		     const struct hf_entry *entry, struct readdir_args *args)
{
	bool is_known = false, has_dots = is_dots(entry->name);
	uint32_t stamp = hf_pages_stamp(pages_of(dir), entry->inode);
	struct hf_handle handle;
	struct hf_file_id id;
	struct stat st;

	if (!has_dots)
		is_known = identify(dir, entry, args->quick, &id, &st) == 0;
	if (!has_dots)
		note_part(&args->making, entry, stamp, is_known ? &st : NULL, out->p);
	if (!is_known) {
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
		      const struct hf_entry *entry, struct readdir_args *args)
{
	bool is_above_root = strcmp(entry->name, "..") == 0 &&
			     hf_file_id_equal(&dir->file->id, &dir->export->volume->root_id);

	hf_xdr_put_bool(out, true);
	/* Hides the inode number of what is above the export's root. */
	hf_xdr_put_u64(out, is_above_root ? dir->file->id.inode : entry->inode);
	hf_xdr_put_string(out, entry->name);
	hf_xdr_put_u64(out, entry->cookie);
	if (args->plus)
		put_plus(op, out, dir, entry, args);
}

/* A client continues at the cookie of the last entry, so a reply may end after any entry. */
static bool should_yield(const struct hf_nfs3_op *op, size_t n_entries)
{
	return n_entries && n_entries % A_FEW == 0 && hf_job_should_yield(&op->job);
}

/* Adds entries until the room, the wanted bytes, the time slice or the directory ends. Returns a status. */
static int put_entries(struct hf_nfs3_op *op, struct hf_xdr_out *out, const struct hf_nfs3_object *dir,
		       struct readdir_args *args, struct hf_listing *listing)
{
	size_t n_names = 0, n_entries = 0;
	struct hf_entry entry;
	int r;

	while ((r = hf_listing_next(listing, &entry)) == 0) {
		size_t name_len = padded(strlen(entry.name));
		size_t len = (args->plus ? ENTRY_PLUS : ENTRY) + name_len;

		n_names += ENTRY + name_len;
		if (hf_xdr_out_left(out) < len + TAIL || (n_entries && n_names > args->names) ||
		    should_yield(op, n_entries)) {
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

/* Pages */

/* A listing needs the right to open the directory and to search it. */
static bool may_list(const struct hf_nfs3_object *dir, const struct stat *st)
{
	int allowed = hf_file_access(dir->file, &dir->caller, st);

	return allowed >= 0 && (allowed & (R_OK | X_OK)) == (R_OK | X_OK);
}

static struct hf_page_key key_of(const struct hf_nfs3_object *dir, const struct readdir_args *args)
{
	return (struct hf_page_key){
		.export = dir->export->id, .cookie = args->cookie, .names = args->names, .max = args->max
	};
}

static void begin_page(struct making *making, const uint8_t *begin, uint32_t max)
{
	making->room = max / (ENTRY + HF_POST_OP_ATTR_LEN) + 1;
	making->parts = malloc(making->room * sizeof(*making->parts));
	making->begin = begin;
}

static void cache_page(const struct hf_nfs3_object *dir, const struct readdir_args *args,
		       struct hf_page_watch watch, const struct stat *st, const uint8_t *end)
{
	const struct making *making = &args->making;
	struct hf_page_key key = key_of(dir, args);
	struct hf_page page = { .n_parts = making->n, .parts = making->parts, .bytes = making->begin };

	if (!making->parts || making->is_spoiled || !may_list(dir, st))
		return;
	page.len = (size_t)(end - making->begin);
	for (size_t i = 0; i < page.n_parts; i++)
		page.n_fluid += page.parts[i].is_fluid;
	hf_pages_put(pages_of(dir), dir->file, &key, watch, st, &page);
}

/* Listing */

static int list(struct hf_nfs3_op *op, struct hf_xdr_out *out, const struct hf_nfs3_object *dir,
		struct readdir_args *args)
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

/* Tries the quick way first: if the directory is unchanged afterwards, no name changed and the page is
 * correct. */
static int list_plus(struct hf_nfs3_op *op, struct hf_xdr_out *out, const struct hf_nfs3_object *dir,
		     struct readdir_args *args)
{
	const struct hf_volume *volume = dir->export->volume;
	struct hf_page_watch watch = { .slot = -1 };
	uint8_t *begin = out->p;
	struct stat before, after;
	int stat;

	if (begin && volume->is_local && !volume->finder)
		watch = hf_pages_watch(pages_of(dir), dir->file);
	args->quick = !volume->finder && fstat(dir->file->fd, &before) == 0 && hf_stat_shows_changes(&before);
	if (args->quick && watch.slot >= 0)
		begin_page(&args->making, begin, args->max);
	stat = list(op, out, dir, args);
	if (!args->quick)
		return stat;
	if (fstat(dir->file->fd, &after) == 0 && is_same(&before, &after)) {
		if (stat == NFS3_OK)
			cache_page(dir, args, watch, &before, out->p);
		return stat;
	}
	args->quick = false;
	args->making.is_spoiled = true;
	if (begin)
		out->p = begin;
	return list(op, out, dir, args);
}

/* Sends the bytes of a cached page that is still valid, with its volatile attributes read again. Returns a
 * status; -EAGAIN if those changed too much. */
static int put_page(struct hf_xdr_out *out, const struct hf_nfs3_object *dir, const struct hf_page *page)
{
	uint8_t *bytes = hf_xdr_reserve(out, page->len);
	char name[HF_NAME_MAX + 1];
	struct hf_xdr_out at;
	struct stat st;

	if (!bytes)
		return NFS3_OK; /* no memory; ending the reply reports it */
	memcpy(bytes, page->bytes, page->len);
	for (size_t i = 0; page->n_fluid && i < page->n_parts; i++) {
		const struct hf_page_part *part = &page->parts[i];

		if (!part->is_fluid)
			continue;
		memcpy(name, page->bytes + part->name_at, part->name_len);
		name[part->name_len] = '\0';
		if (fstatat(dir->file->fd, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0 ||
		    st.st_ino != part->inode)
			return -EAGAIN;
		hf_xdr_out_init(&at, bytes + part->attr_at, HF_POST_OP_ATTR_LEN);
		hf_nfs3_put_post_op_attr(&at, dir->export, &st);
	}
	return NFS3_OK;
}

static struct hf_page *find_page(const struct hf_nfs3_op *op, const struct hf_nfs3_object *dir,
				 const struct readdir_args *args, const struct stat *st)
{
	struct hf_page_key key = key_of(dir, args);
	struct hf_page *page;

	if (!args->plus || !may_list(dir, st))
		return NULL;
	page = hf_pages_find(pages_of(dir), dir->file, &key, st);
	/* Reading attributes may need the disk. */
	return page && page->n_fluid && !op->may_block ? hf_page_unref(page) : page;
}

static int check(const struct hf_nfs3_object *dir, const struct readdir_args *args, struct stat *stp)
{
	int r = hf_dir_check(dir->file, stp);

	if (r < 0)
		return hf_nfsstat3_of(r);
	/* Some clients send no verifier. */
	if (args->cookie && args->verifier && args->verifier != verifier_of(dir->export->volume))
		return NFS3ERR_BAD_COOKIE;
	return args->max < RESULT_STAT + HEAD + TAIL ? NFS3ERR_TOOSMALL : NFS3_OK;
}

static int readdir_and_reply(struct hf_nfs3_op *op, struct readdir_args *args)
{
	hf_cleanup(hf_nfs3_object_clear) struct hf_nfs3_object dir = { 0 };
	hf_cleanup(hf_page_unrefp) struct hf_page *page = NULL;
	struct hf_xdr_out *out;
	struct stat st;
	uint8_t *begin, *entries;
	int stat;

	op->reply_len = args->max;
	if ((!op->may_block && !args->plus) || hf_nfs3_is_too_long_here(op))
		return -EAGAIN;
	stat = hf_nfs3_find(op, args->handle, HF_NFS3_READS, &dir);
	if (stat < 0)
		return stat;
	if (stat == NFS3_OK)
		stat = check(&dir, args, &st);
	if (stat == NFS3_OK)
		page = find_page(op, &dir, args, &st);
	if (!page && !op->may_block)
		return -EAGAIN;
	out = hf_nfs3_reply(op, stat, stat == NFS3_OK ? args->max - RESULT_STAT : HF_POST_OP_ATTR_LEN);
	begin = out->p;
	hf_nfs3_put_post_op_attr(out, dir.export, hf_nfs3_stat(&dir, &st));
	if (stat != NFS3_OK)
		return HF_NFS3_DONE;
	hf_xdr_put_u64(out, verifier_of(dir.export->volume));
	entries = out->p;
	if (page && put_page(out, &dir, page) == NFS3_OK)
		return HF_NFS3_DONE;
	out->p = entries; /* overwrites the entries */
	stat = args->plus ? list_plus(op, out, &dir, args) : list(op, out, &dir, args);
	free(args->making.parts);
	if (stat == NFS3_OK || !begin)
		return HF_NFS3_DONE;
	op->stat = (enum nfsstat3)stat;
	out->p = begin - RESULT_STAT; /* overwrites the result from its status on */
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
	return readdir_and_reply(op, &args);
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
	return readdir_and_reply(op, &args);
}
