/*
 * One NFS call in progress, on the loop or on a file thread, and what the
 * procedures share.
 *
 * A procedure decodes its arguments, does the work and encodes the results. If
 * op->may_block is false and it would have to wait, it undoes everything and
 * returns -EAGAIN; it then runs again on a thread where it may wait.
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

enum { /* answers of a procedure, besides -EAGAIN */
	HF_NFS3_DONE = 0,
	HF_NFS3_GARBAGE = -EBADMSG, /* the arguments cannot be decoded */
	HF_NFS3_TOO_WEAK = -EPROTO, /* the export demands TLS, or a certificate */
};

typedef int (*hf_nfs3_fn)(struct hf_nfs3_op *op);

struct hf_nfs3_proc {
	const char *name;
	hf_nfs3_fn fn;
	bool on_loop;      /* try it on the loop first */
	uint8_t n_unknown; /* words in an error reply that carry no attributes: empty wcc_data, ... */
};

struct hf_nfs3_op {
	struct hf_job job;
	struct hf_nfs3 *nfs;
	struct hf_rpc_call *call;
	const struct hf_nfs3_proc *proc;
	bool may_block;
	bool is_made; /* a change was made, also if a later step or its sync failed */
	int result;   /* answer of the procedure */
	enum nfsstat3 stat;
	uint64_t begun;
	uint64_t export_id; /* of the last handle that was found; 0: none */
	size_t reply_len;   /* expected size of a large reply, charged to the client that causes it */
	size_t n_read;
	size_t n_written;
	struct hf_volume *volume; /* the volume that the call changes, if any */
	struct hf_sync sync;      /* files to sync before the reply */
};

/* Serves @call with this procedure. */
void hf_nfs3_serve(struct hf_nfs3 *nfs, struct hf_rpc_call *call, const struct hf_nfs3_proc *proc);

/* Counts a call that is done, on the loop. */
HF_NOINLINE void hf_nfs3_count(struct hf_nfs3_op *op, struct hf_usage *usage);

/* What a handle refers to: the file, its export, the rule there for the client, and the caller's identity
 * under that rule. */
struct hf_nfs3_object {
	struct hf_export *export;
	const struct hf_export_rule *rule; /* of export */
	struct hf_file *file;
	struct hf_identity caller;
};

void hf_nfs3_object_clear(struct hf_nfs3_object *object);

enum hf_nfs3_want {
	HF_NFS3_READS,
	HF_NFS3_CHANGES, /* answers ROFS to a client that may only read */
};

/* Call it after reading the arguments: returns GARBAGE if they were invalid. Otherwise a status (NFS3_OK
 * fills *objectp), TOO_WEAK or -EAGAIN. With any status other than NFS3_OK and NFS3ERR_ROFS there is no
 * export, so the reply has no attributes. */
int hf_nfs3_find(struct hf_nfs3_op *op, struct hf_bytes handle, enum hf_nfs3_want want,
		 struct hf_nfs3_object *objectp);

/* The same for a procedure that only reads and whose only argument is a handle. */
int hf_nfs3_find_only(struct hf_nfs3_op *op, struct hf_nfs3_object *objectp);

/* true: this thread must not wait; hand the call to a file thread. */
static inline bool hf_nfs3_must_wait(const struct hf_nfs3_op *op, int r)
{
	return r == -EAGAIN && !op->may_block;
}

/* For a long reply: is the loop already late? Then -EAGAIN lets a file thread make it. There, client
 * addresses take turns, and long replies of many connections do not add up on the loop. */
bool hf_nfs3_is_too_long_here(const struct hf_nfs3_op *op);

/* Call it for each file that the call changed, also if the call fails afterwards: notes the change, and
 * delays the reply until the file is on stable storage, unless the export is async. */
void hf_nfs3_sync_before_reply(struct hf_nfs3_op *op, const struct hf_export *export, struct hf_file *file);

static inline struct hf_xdr_in *hf_nfs3_args(struct hf_nfs3_op *op)
{
	return hf_rpc_call_args(op->call);
}
/* Room for results of at most @max bytes; writes the status. */
struct hf_xdr_out *hf_nfs3_reply(struct hf_nfs3_op *op, enum nfsstat3 stat, size_t max);
/* The most data or listing that the transport carries in a reply. */
uint32_t hf_nfs3_max_io(const struct hf_nfs3_op *op);
static inline uint32_t hf_nfs3_clip(const struct hf_nfs3_op *op, uint32_t asked)
{
	uint32_t max = hf_nfs3_max_io(op);

	return asked < max ? asked : max;
}
/* The same, with the attributes of @object after the status and room for @max more bytes. */
struct hf_xdr_out *hf_nfs3_reply_with_attr(struct hf_nfs3_op *op, enum nfsstat3 stat,
					   const struct hf_nfs3_object *object, size_t max);
/* Attributes for a reply; NULL if there are none. */
const struct stat *hf_nfs3_stat(const struct hf_nfs3_object *object, struct stat *st);
/* The wcc_data of a change, or, if none was tried, the present attributes. */
void hf_nfs3_put_wcc_of(struct hf_xdr_out *out, const struct hf_nfs3_object *object,
			struct hf_change *change);
/* The post_op_fh3 and post_op_attr of a new file; NULL: it could not be opened, and both are left out. */
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
