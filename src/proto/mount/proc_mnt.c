/*
 * MNT: from a path to a handle.
 *
 * A path starts with an export's name or directory. The rest leads to a
 * directory below it, never out of the export.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/audit.h"
#include "base/log.h"
#include "base/macros.h"
#include "proto/mount/mounted.h"
#include "proto/mount/procs.h"
#include "rpc/call.h"

#define MAX_TRIES 1000 /* each takes a few microseconds */

struct mnt {
	struct hf_job job;
	struct hf_mount *mount;
	struct hf_rpc_call *call;
	uint64_t begun;
	enum mountstat3 stat;
	struct hf_export *export; /* NULL: none has the path */
	struct hf_handle handle;
	char path[MNTPATHLEN + 1];
};

static enum mountstat3 stat_of(int r)
{
	switch (-r) {
	case 0:
		return MNT3_OK;
	case EPERM:
		return MNT3ERR_PERM;
	case ENOENT:
	case ESTALE:
		return MNT3ERR_NOENT;
	case EACCES:
	case EXDEV: /* the path leads out of the export */
	case ELOOP:
		return MNT3ERR_ACCES;
	case ENOTDIR:
		return MNT3ERR_NOTDIR;
	case EINVAL:
		return MNT3ERR_INVAL;
	case ENAMETOOLONG:
		return MNT3ERR_NAMETOOLONG;
	case EIO:
		return MNT3ERR_IO;
	default:
		return MNT3ERR_SERVERFAULT;
	}
}

static int open_dir(const struct hf_volume *volume, const char *path, int *fdp)
{
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
	};
	int fd = -1;

	/* EAGAIN: a rename somewhere interfered while the kernel resolved "..". */
	for (int i = 0; i < MAX_TRIES && fd < 0 && (i == 0 || errno == EAGAIN); i++)
		fd = (int)syscall(SYS_openat2, volume->root, *path ? path : ".", &how, sizeof(how));
	if (fd < 0)
		return -errno;
	*fdp = fd;
	return 0;
}

/* With the server's own rights: the client's machine mounts before any of its users acts. Each later call
 * checks what they may do with the directory. */
static int find_dir(struct mnt *mnt, const struct hf_export *export, const char *rest)
{
	hf_cleanup(hf_file_unrefp) struct hf_file *file = NULL;
	struct hf_volume *volume = export->volume;
	struct stat st;
	int fd = -1, r;

	r = open_dir(volume, rest, &fd);
	if (r < 0)
		return r;
	r = hf_files_take(hf_exports_files(mnt->mount->exports), volume, fd, false, &file, &st);
	if (r < 0)
		return r;
	r = hf_volume_check_place(volume, file->fd);
	if (r < 0)
		return r == -ESTALE ? -EXDEV : r;
	hf_exports_make_handle(mnt->mount->exports, export, &file->id, &mnt->handle);
	return 0;
}

static enum mountstat3 refuse(struct mnt *mnt, const struct hf_export *export, int refusal)
{
	hf_exports_log_refusal(mnt->mount->exports, export, hf_rpc_call_peer(mnt->call), refusal, "mount",
			       mnt->begun);
	return refusal == HF_REFUSED_PORT ? MNT3ERR_PERM : MNT3ERR_ACCES;
}

static enum mountstat3 serve(struct mnt *mnt)
{
	struct hf_export *export;
	const char *rest;
	int refusal;

	hf_mount_tidy(mnt->path);
	mnt->export = export = hf_exports_find(mnt->mount->exports, mnt->path, &rest);
	if (!export)
		return MNT3ERR_NOENT;
	refusal = hf_exports_admit_patiently(mnt->mount->exports, export, hf_rpc_call_peer(mnt->call));
	if (refusal != HF_ADMITTED)
		return refuse(mnt, export, refusal);
	return stat_of(find_dir(mnt, export, rest));
}

static void run(struct hf_job *job)
{
	struct mnt *mnt = hf_container_of(job, struct mnt, job);

	mnt->stat = serve(mnt);
}

static void reply(struct mnt *mnt)
{
	bool is_old = hf_rpc_call_header(mnt->call)->version < 3;
	struct hf_xdr_out *out = hf_rpc_reply_begin(mnt->call, 4 + 4 + HF_HANDLE_MAX + 8);

	if (is_old && mnt->stat == MNT3_OK && mnt->handle.len > FHSIZE)
		mnt->stat = MNT3ERR_ACCES; /* the nearest status that the old versions have */
	hf_xdr_put_u32(out, mnt->stat);
	if (mnt->stat == MNT3_OK && is_old) {
		memset(mnt->handle.bytes + mnt->handle.len, 0, sizeof(mnt->handle.bytes) - mnt->handle.len);
		hf_xdr_put_fixed(out, mnt->handle.bytes, FHSIZE);
	} else if (mnt->stat == MNT3_OK) {
		hf_xdr_put_opaque(out, hf_bytes_of(mnt->handle.bytes, mnt->handle.len));
		hf_xdr_put_u32(out, 1); /* one authentication flavour */
		hf_xdr_put_u32(out, HF_RPC_AUTH_SYS);
	}
	hf_rpc_reply_end(mnt->call);
}

static bool may_audit(const struct mnt *mnt, struct hf_audit *audit)
{
	if (mnt->stat != MNT3_OK)
		return hf_audit_allow(audit, HF_AUDIT_REFUSED_MOUNTS);
	return hf_rpc_call_transport(mnt->call) != HF_RPC_UDP || hf_audit_allow(audit, HF_AUDIT_UDP_MOUNTS);
}

static void write_audit(const struct mnt *mnt, struct hf_audit *audit)
{
	bool is_refusal = mnt->stat == MNT3ERR_ACCES || mnt->stat == MNT3ERR_PERM;
	const char *result = mnt->stat == MNT3_OK ? "OK" : is_refusal ? "ACCES" : NULL;
	struct hf_audit_line line;

	if (!result || !may_audit(mnt, audit))
		return;
	hf_rpc_call_audit(&line, "mount", mnt->call);
	hf_audit_put_text(&line, "result", result, strlen(result));
	if (mnt->export)
		hf_audit_put_text(&line, "export", mnt->export->settings.name,
				  strlen(mnt->export->settings.name));
	hf_audit_put_text(&line, "path", mnt->path, strlen(mnt->path));
	hf_audit_end(audit, &line);
}

static void on_ran(struct hf_job *job)
{
	struct mnt *mnt = hf_container_of(job, struct mnt, job);
	struct hf_audit *audit = atomic_load_explicit(&mnt->mount->audit, memory_order_acquire);
	const struct hf_addr *peer = hf_rpc_call_peer(mnt->call);
	char path[256], host[HF_ADDR_TEXT];

	hf_log_debug("mount requested", "peer=%s path=%s answer=%d", hf_addr_format(peer, host, sizeof(host)),
		     hf_log_quote(path, sizeof(path), mnt->path, strlen(mnt->path)), (int)mnt->stat);
	if (mnt->stat == MNT3_OK)
		hf_mounted_add(mnt->mount, peer, mnt->path);
	if (audit)
		write_audit(mnt, audit);
	reply(mnt);
	hf_export_unref(mnt->export);
	free(mnt);
}

void hf_mount_proc_mnt(void *service, struct hf_rpc_call *call)
{
	struct hf_bytes path = hf_xdr_get_string(hf_rpc_call_args(call), MNTPATHLEN);
	struct hf_addr payer = hf_rpc_call_payer(call);
	struct mnt *mnt;

	if (!hf_xdr_in_is_ok(hf_rpc_call_args(call))) {
		hf_rpc_reply_garbage(call);
		return;
	}
	mnt = calloc(1, sizeof(*mnt));
	if (!mnt) {
		hf_rpc_reply_error(call, HF_RPC_SYSTEM_ERR);
		return;
	}
	if (path.len)
		memcpy(mnt->path, path.data, path.len);
	mnt->mount = service;
	mnt->call = call;
	mnt->begun = hf_loop_now(hf_rpc_call_loop(call));
	if (hf_rpc_call_suspend(call) < 0) {
		free(mnt);
		return;
	}
	hf_jobs_submit_for(mnt->mount->jobs, hf_rpc_call_loop(call), &mnt->job, &payer, run, on_ran);
}
