/*
 * One NFS call being served, on the loop or on a files' thread, and what the
 * procedures share.
 *
 * A procedure decodes its arguments, does the work and encodes the results,
 * with nothing of it left behind if it cannot go on without waiting: then it
 * answers -EAGAIN (only where op->may_block is false), and is called again on a
 * thread where it may.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "export/export.h"
#include "proto/nfs3/nfs3.h"
#include "proto/nfs3/wire.h"
#include "rpc/call.h"
#include "vfs/jobs.h"
#include "vfs/syncer.h"

struct hf_nfs3_op;

enum { /* answers of a procedure; or -EAGAIN */
	HF_NFS3_DONE = 0,
	HF_NFS3_GARBAGE = -EBADMSG, /* the arguments make no sense */
};

typedef int (*hf_nfs3_fn)(struct hf_nfs3_op *op);

struct hf_nfs3_proc {
	const char *name;
	hf_nfs3_fn fn;
	bool on_loop;      /* worth a try there */
	uint8_t n_unknown; /* words of a refusal that say nothing of the files: wcc_data without attributes,
			      ... */
};

struct hf_nfs3_op {
	struct hf_job job;
	struct hf_nfs3 *nfs;
	struct hf_rpc_call *call;
	const struct hf_nfs3_proc *proc;
	bool may_block;
	int result; /* of the procedure */
	enum nfsstat3 stat;
	uint64_t begun;
	size_t reply_len; /* where that is much, for the account of who makes us hold it */
	size_t n_read;
	size_t n_written;
	struct hf_volume *volume; /* that it changes, if it does */
	struct hf_sync sync;      /* what must be on stable storage before the client hears of it */
};

/* Serves @call by the procedure of this number. */
void hf_nfs3_serve(struct hf_nfs3 *nfs, struct hf_rpc_call *call, enum nfsproc3 number);

/* What a handle is for: the file, the export, and who the caller is there. */
struct hf_nfs3_object {
	struct hf_export *export;
	struct hf_file *file;
	struct hf_identity caller;
};

void hf_nfs3_object_clear(struct hf_nfs3_object *object);

enum hf_nfs3_want {
	HF_NFS3_READS,
	HF_NFS3_CHANGES, /* ROFS on an export that is read only */
};

/* To be called when the arguments have been read: GARBAGE if they could not be. Else a status (of which
 * NFS3_OK fills *objectp) or -EAGAIN. With any other status than NFS3_OK and NFS3ERR_ROFS
 * there is no export to speak of, so no attributes can be given. */
int hf_nfs3_find(struct hf_nfs3_op *op, struct hf_bytes handle, enum hf_nfs3_want want,
		 struct hf_nfs3_object *objectp);

/* The same for who only reads, of the one handle that is all of the arguments. */
int hf_nfs3_find_only(struct hf_nfs3_op *op, struct hf_nfs3_object *objectp);

/* True: not here, give it to a thread. */
static inline bool hf_nfs3_must_wait(const struct hf_nfs3_op *op, int r)
{
	return r == -EAGAIN && !op->may_block;
}

/* For a long reply: the loop is late already, and those of many connections would add up. -EAGAIN has it made
 * by a thread, where addresses take turns. */
bool hf_nfs3_is_too_long_here(const struct hf_nfs3_op *op);

/* The answer must wait until this is on stable storage, unless the export is told not to. */
void hf_nfs3_sync_before_reply(struct hf_nfs3_op *op, const struct hf_export *export, struct hf_file *file);

struct hf_xdr_in *hf_nfs3_args(struct hf_nfs3_op *op);
/* Room for results of at most @max bytes, and the status in it. */
struct hf_xdr_out *hf_nfs3_reply(struct hf_nfs3_op *op, enum nfsstat3 stat, size_t max);
/* How much data or listing the transport takes in a reply. */
uint32_t hf_nfs3_max_io(const struct hf_nfs3_op *op);
static inline uint32_t hf_nfs3_clip(const struct hf_nfs3_op *op, uint32_t asked)
{
	uint32_t max = hf_nfs3_max_io(op);

	return asked < max ? asked : max;
}
/* The same, with the attributes of @object behind the status, and room for @max more. */
struct hf_xdr_out *hf_nfs3_reply_with_attr(struct hf_nfs3_op *op, enum nfsstat3 stat,
					   const struct hf_nfs3_object *object, size_t max);
/* Attributes for a reply; NULL where there are none. */
const struct stat *hf_nfs3_stat(const struct hf_nfs3_object *object, struct stat *st);
/* The wcc_data of a change, or of one that was not even tried: the attributes as they are. */
void hf_nfs3_put_wcc_of(struct hf_xdr_out *out, const struct hf_nfs3_object *object,
			struct hf_change *change);
void hf_nfs3_put_file(struct hf_nfs3_op *op, struct hf_xdr_out *out, const struct hf_nfs3_object *dir,
		      struct hf_file *file);

/* The procedures */
int hf_nfs3_proc_getattr(struct hf_nfs3_op *op);
int hf_nfs3_proc_setattr(struct hf_nfs3_op *op);
int hf_nfs3_proc_access(struct hf_nfs3_op *op);
int hf_nfs3_proc_lookup(struct hf_nfs3_op *op);
int hf_nfs3_proc_readlink(struct hf_nfs3_op *op);
int hf_nfs3_proc_read(struct hf_nfs3_op *op);
int hf_nfs3_proc_write(struct hf_nfs3_op *op);
int hf_nfs3_proc_commit(struct hf_nfs3_op *op);
int hf_nfs3_proc_create(struct hf_nfs3_op *op);
int hf_nfs3_proc_mkdir(struct hf_nfs3_op *op);
int hf_nfs3_proc_symlink(struct hf_nfs3_op *op);
int hf_nfs3_proc_mknod(struct hf_nfs3_op *op);
int hf_nfs3_proc_remove(struct hf_nfs3_op *op);
int hf_nfs3_proc_rmdir(struct hf_nfs3_op *op);
int hf_nfs3_proc_rename(struct hf_nfs3_op *op);
int hf_nfs3_proc_link(struct hf_nfs3_op *op);
int hf_nfs3_proc_readdir(struct hf_nfs3_op *op);
int hf_nfs3_proc_readdirplus(struct hf_nfs3_op *op);
int hf_nfs3_proc_fsstat(struct hf_nfs3_op *op);
int hf_nfs3_proc_fsinfo(struct hf_nfs3_op *op);
int hf_nfs3_proc_pathconf(struct hf_nfs3_op *op);
