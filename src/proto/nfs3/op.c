#include "proto/nfs3/op.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "loop/loop.h"
#include "proto/nfs3/record.h"

/* Serving */

/* The sync failed, so replace the procedure's reply by an error. */
static void reply_unsynced(struct hf_nfs3_op *op)
{
	struct hf_xdr_out *out;

	hf_rpc_reply_cancel(op->call);
	out = hf_nfs3_reply(op, hf_nfsstat3_of(op->sync.result), 4 * (size_t)op->proc->n_unknown);
	for (size_t i = 0; i < op->proc->n_unknown; i++)
		hf_xdr_put_bool(out, false);
}

/* On the loop, when the procedure is done. */
static void finish(struct hf_nfs3_op *op)
{
	struct hf_nfs3_recorder *recorder;
	struct hf_usage *usage;

	if (op->sync.result < 0)
		reply_unsynced(op);
	if (op->result == HF_NFS3_GARBAGE) {
		hf_rpc_reply_garbage(op->call);
		return;
	}
	if (HF_UNLIKELY(op->result == HF_NFS3_TOO_WEAK))
		op->stat = NFS3ERR_ACCES; /* for the counts: the reply has no status */
	usage = atomic_load_explicit(&op->nfs->usage, memory_order_acquire);
	if (HF_UNLIKELY(usage != NULL))
		hf_nfs3_count(op, usage);
	recorder = atomic_load_explicit(&op->nfs->recorder, memory_order_acquire);
	if (HF_UNLIKELY(recorder != NULL))
		hf_nfs3_record(recorder, op);
	if (HF_UNLIKELY(op->result == HF_NFS3_TOO_WEAK)) {
		hf_rpc_reply_auth_error(op->call, HF_RPC_AUTH_TOOWEAK);
		return;
	}
	assert(op->result == HF_NFS3_DONE);
	if (hf_rpc_call_is_measured(op->call)) {
		hf_rpc_call_note(op->call, hf_nfsstat3_name(op->stat));
		hf_rpc_call_note_data(op->call, op->n_read, op->n_written);
	}
	hf_rpc_reply_end(op->call);
}

static void on_synced(struct hf_sync *sync)
{
	struct hf_nfs3_op *op = hf_container_of(sync, struct hf_nfs3_op, sync);

	for (size_t i = 0; i < HF_SYNC_FILES; i++)
		hf_file_unref(sync->files[i]);
	hf_job_complete(&op->job);
}

void hf_nfs3_sync_before_reply(struct hf_nfs3_op *op, const struct hf_export *export, struct hf_file *file)
{
	size_t at = op->sync.files[0] ? 1 : 0;

	assert(op->may_block && !op->sync.files[at]);
	op->is_made = true;
	if (!export->settings.async)
		op->sync.files[at] = hf_file_ref(file);
}

/* All changes of a volume pass its syncer, also failed ones: other calls may have left their files for this
 * one to sync. */
static void run_apart(struct hf_job *job)
{
	struct hf_nfs3_op *op = hf_container_of(job, struct hf_nfs3_op, job);
	hf_cleanup(hf_volume_unrefp) struct hf_volume *volume = op->volume;
	struct hf_jobs *jobs = job->jobs;
	uint64_t key = job->key;
	struct hf_sync *sync = NULL;

	if (volume)
		hf_syncer_enter(&volume->syncer);
	op->result = op->proc->fn(op);
	hf_jobs_release(jobs, key);
	if (op->sync.files[0]) {
		sync = &op->sync;
		hf_link_init(&sync->link);
		sync->told = on_synced;
		if (!volume) { /* the export was added after the call came */
			volume = hf_volume_ref(sync->files[0]->volume);
			hf_syncer_enter(&volume->syncer);
		}
	} else {
		hf_job_complete(job);
	}
	/* @op may be gone here */
	if (volume)
		hf_syncer_leave(&volume->syncer, sync, jobs);
}

static void on_ran(struct hf_job *job)
{
	struct hf_nfs3_op *op = hf_container_of(job, struct hf_nfs3_op, job);

	finish(op);
	free(op);
}

/* Finds the volume that the call will change: its first argument is a handle there, mostly of a directory. */
static void find_place(struct hf_nfs3_op *op)
{
	uint64_t inode = 0;

	op->volume = hf_exports_volume_of(op->nfs->exports, hf_nfs3_get_fh(hf_nfs3_args(op)), &inode);
	hf_rpc_call_rewind(op->call);
	if (!op->volume)
		return;
	op->job.group = &op->volume->syncer;
	op->job.key = (uint64_t)(uintptr_t)op->volume ^ inode;
}

static void hand_over(const struct hf_nfs3_op *begun)
{
	struct hf_loop *loop = hf_rpc_call_loop(begun->call);
	struct hf_addr payer = hf_rpc_call_payer(begun->call);
	struct hf_nfs3_op *op;

	if (hf_rpc_call_suspend(begun->call) < 0)
		return;
	op = malloc(sizeof(*op));
	if (!op) {
		hf_rpc_reply_error(begun->call, HF_RPC_SYSTEM_ERR);
		return;
	}
	*op = *begun;
	op->may_block = true;
	hf_rpc_call_expect(op->call, sizeof(*op) + op->reply_len);
	op->volume = NULL;
	op->job.group = NULL;
	op->job.key = 0;
	if (op->proc->n_unknown)
		find_place(op);
	hf_jobs_submit_open(op->nfs->jobs, loop, &op->job, &payer, run_apart, on_ran);
}

void hf_nfs3_serve(struct hf_nfs3 *nfs, struct hf_rpc_call *call, const struct hf_nfs3_proc *proc)
{
	struct hf_nfs3_op op;

	op.nfs = nfs;
	op.call = call;
	op.proc = proc;
	op.may_block = false;
	op.is_made = false;
	op.stat = NFS3_OK;
	op.begun = hf_loop_now(hf_rpc_call_loop(call));
	op.export_id = 0;
	op.reply_len = 0;
	op.n_read = op.n_written = 0;
	op.sync = (struct hf_sync){ 0 };
	op.result = op.proc->on_loop ? op.proc->fn(&op) : -EAGAIN;
	if (op.result == -EAGAIN)
		hand_over(&op);
	else
		finish(&op);
}

/* Shared */

struct hf_xdr_out *hf_nfs3_reply(struct hf_nfs3_op *op, enum nfsstat3 stat, size_t max)
{
	struct hf_xdr_out *out = op->may_block ? hf_rpc_reply_begin_apart(op->call, 4 + max)
					       : hf_rpc_reply_begin(op->call, 4 + max);

	op->stat = stat;
	hf_xdr_put_u32(out, stat);
	return out;
}

bool hf_nfs3_is_too_long_here(const struct hf_nfs3_op *op)
{
	return !op->may_block && hf_rpc_call_is_late(op->call);
}

uint32_t hf_nfs3_max_io(const struct hf_nfs3_op *op)
{
	return hf_rpc_call_transport(op->call) == HF_RPC_UDP ? HF_NFS3_MAX_UDP : HF_NFS3_MAX_IO;
}

void hf_nfs3_object_clear(struct hf_nfs3_object *object)
{
	hf_file_unref(object->file);
	hf_export_unref(object->export);
	object->file = NULL;
	object->export = NULL;
}

static int identify(const struct hf_nfs3_op *op, const struct hf_export_rule *rule,
		    struct hf_identity *identityp)
{
	const struct hf_rpc_cred *cred = hf_rpc_call_cred(op->call);
	struct hf_identity given;

	if (cred->flavor != HF_RPC_AUTH_SYS)
		return hf_exports_identify(op->nfs->exports, rule, NULL, false, identityp);
	given.uid = cred->uid;
	given.gid = cred->gid;
	given.n_gids = HF_MIN(cred->n_gids, (uint32_t)HF_IDENTITY_MAX_GIDS);
	memcpy(given.gids, cred->gids, given.n_gids * sizeof(given.gids[0]));
	given.list_id = 0;
	given.list = NULL;
	return hf_exports_identify(op->nfs->exports, rule, &given, op->may_block, identityp);
}

/* Nothing was done: the reply takes no place in the cache, which any host could fill so. JUKEBOX stays there:
 * a late copy of the call must not be served after the client's next try. */
static int refuse(struct hf_nfs3_op *op, struct hf_nfs3_object *object, int refusal)
{
	if (refusal != HF_REFUSED_UNKNOWN)
		hf_exports_log_refusal(op->nfs->exports, object->export, hf_rpc_call_peer(op->call), refusal,
				       "nfs", op->begun);
	hf_nfs3_object_clear(object);
	if (refusal == HF_REFUSED_TRANSPORT)
		return HF_NFS3_TOO_WEAK;
	if (refusal == HF_REFUSED_UNKNOWN)
		return NFS3ERR_JUKEBOX;
	hf_rpc_call_uncache(op->call);
	return refusal == HF_REFUSED_PORT ? NFS3ERR_PERM : NFS3ERR_ACCES;
}

int hf_nfs3_find(struct hf_nfs3_op *op, struct hf_bytes handle, enum hf_nfs3_want want,
		 struct hf_nfs3_object *objectp)
{
	int r;

	if (!hf_xdr_in_is_ok(hf_nfs3_args(op)))
		return HF_NFS3_GARBAGE;
	r = hf_exports_resolve(op->nfs->exports, handle, !op->may_block, &objectp->export, &objectp->file);
	if (hf_nfs3_must_wait(op, r))
		return r;
	if (r == HF_HANDLE_BAD) {
		hf_rpc_call_uncache(op->call);
		return NFS3ERR_BADHANDLE;
	}
	if (r == HF_HANDLE_STALE)
		return NFS3ERR_STALE;
	if (r < 0)
		return hf_nfsstat3_of(r);
	op->export_id = objectp->export->id;
	r = hf_export_admit(objectp->export, hf_rpc_call_peer(op->call), &objectp->rule);
	if (HF_LIKELY(r == HF_ADMITTED))
		r = hf_export_admit_transport(objectp->export, hf_rpc_call_tls(op->call));
	if (r != HF_ADMITTED)
		return refuse(op, objectp, r);
	if (!op->may_block && !objectp->export->volume->is_local) {
		hf_nfs3_object_clear(objectp);
		return -EAGAIN;
	}
	/* The job may have waited long for its thread. */
	if (op->may_block && !hf_loop_may_act(op->job.loop)) {
		hf_nfs3_object_clear(objectp);
		return NFS3ERR_JUKEBOX;
	}
	r = identify(op, objectp->rule, &objectp->caller);
	if (HF_UNLIKELY(r < 0)) { /* the caller's groups are being looked up */
		hf_nfs3_object_clear(objectp);
		return op->may_block ? NFS3ERR_JUKEBOX : -EAGAIN;
	}
	return want == HF_NFS3_CHANGES && objectp->rule->read_only ? NFS3ERR_ROFS : NFS3_OK;
}

int hf_nfs3_find_only(struct hf_nfs3_op *op, struct hf_nfs3_object *objectp)
{
	return hf_nfs3_find(op, hf_nfs3_get_fh(hf_nfs3_args(op)), HF_NFS3_READS, objectp);
}

struct hf_xdr_out *hf_nfs3_reply_with_attr(struct hf_nfs3_op *op, enum nfsstat3 stat,
					   const struct hf_nfs3_object *object, size_t max)
{
	struct hf_xdr_out *out = hf_nfs3_reply(op, stat, HF_POST_OP_ATTR_LEN + max);
	struct stat st;

	hf_nfs3_put_post_op_attr(out, object->export, hf_nfs3_stat(object, &st));
	return out;
}

void hf_nfs3_put_wcc_of(struct hf_xdr_out *out, const struct hf_nfs3_object *object, struct hf_change *change)
{
	if (object->file && !change->has_after)
		hf_change_after(change, object->file);
	hf_nfs3_put_wcc(out, object->export, change);
}

const struct stat *hf_nfs3_stat(const struct hf_nfs3_object *object, struct stat *st)
{
	return object->file && hf_file_stat(object->file, st) == 0 ? st : NULL;
}

void hf_nfs3_put_file(struct hf_nfs3_op *op, struct hf_xdr_out *out, const struct hf_nfs3_object *dir,
		      struct hf_file *file)
{
	struct hf_handle handle;
	struct stat st;

	if (!file) {
		hf_xdr_put_bool(out, false);
		hf_xdr_put_bool(out, false);
		return;
	}
	hf_exports_make_handle(op->nfs->exports, dir->export, &file->id, &handle);
	hf_xdr_put_bool(out, true);
	hf_nfs3_put_fh(out, &handle);
	hf_nfs3_put_post_op_attr(out, dir->export, fstat(file->fd, &st) == 0 ? &st : NULL);
}
