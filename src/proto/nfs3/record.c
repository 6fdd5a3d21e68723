#include "proto/nfs3/record.h"

#include <stdio.h>
#include <string.h>

#include "base/addr.h"
#include "base/audit.h"
#include "base/cleanup.h"
#include "base/hex.h"
#include "loop/loop.h"
#include "proto/nfs3/op.h"
#include "rpc/call.h"
#include "vfs/file.h"

#define SLOW_WINDOW_S  10
#define SLOW_MAX_LINES 50

/* What the arguments of a call name: the file of its first handle, and a name in it if it is a directory. */
struct place {
	struct hf_bytes handle;
	struct hf_bytes name;          /* empty: none */
	char path[HF_EXPORT_MAX_PATH]; /* of the handle's file; empty: unknown */
	const char *export;            /* its name; NULL: unknown */
	struct hf_export *export_ref;
};

static void place_clear(struct place *place)
{
	hf_export_unref(place->export_ref);
}

/* Does not wait: only an open file is found. */
static void find_path(struct hf_nfs3_op *op, struct place *place)
{
	hf_cleanup(hf_file_unrefp) struct hf_file *file = NULL;

	place->path[0] = '\0';
	if (hf_exports_resolve(op->nfs->exports, place->handle, true, &place->export_ref, &file) != 0)
		return;
	place->export = place->export_ref->settings.name;
	if (!hf_export_path_of(place->export_ref, file, false, place->path, sizeof(place->path)))
		place->path[0] = '\0';
}

static bool has_name(enum nfsproc3 number)
{
	return number == NFSPROC3_LOOKUP || (number >= NFSPROC3_CREATE && number <= NFSPROC3_RENAME);
}

static enum nfsproc3 number_of(const struct hf_nfs3_op *op)
{
	return (enum nfsproc3)hf_rpc_call_header(op->call)->procedure;
}

/* Reads the arguments once more. */
static void find_place(struct hf_nfs3_op *op, struct place *place)
{
	struct hf_xdr_in *in;

	*place = (struct place){ 0 };
	hf_rpc_call_rewind(op->call);
	in = hf_nfs3_args(op);
	place->handle = hf_nfs3_get_fh(in);
	if (has_name(number_of(op)))
		place->name = hf_xdr_get_opaque(in, HF_NFS3_MAX_NAME);
	if (hf_xdr_in_is_ok(in))
		find_path(op, place);
}

/* As the log calls it */
static const char *result_of(const struct hf_nfs3_op *op)
{
	return op->result == HF_NFS3_TOO_WEAK ? "TLS_REQUIRED" : hf_nfsstat3_name(op->stat);
}

/* Slow calls */

static bool may_log_slow(struct hf_nfs3_recorder *recorder, uint64_t now, uint64_t *n_suppressedp)
{
	bool may;

	pthread_mutex_lock(&recorder->lock);
	may = hf_log_limit_allow(&recorder->slow_log, now, n_suppressedp);
	pthread_mutex_unlock(&recorder->lock);
	return may;
}

static void log_slow(struct hf_nfs3_op *op, uint64_t ns, uint64_t n_suppressed)
{
	hf_cleanup(place_clear) struct place place;
	char peer[HF_ADDR_TEXT], handle[2 * HF_HANDLE_MAX + 1], path[HF_EXPORT_MAX_PATH], name[1024];

	find_place(op, &place);
	*hf_hex_put(handle, place.handle.data, HF_MIN(place.handle.len, (size_t)HF_HANDLE_MAX)) = '\0';
	hf_log_warn("a slow NFS call",
		    "peer=%s procedure=%s ms=%llu result=%s path=%s name=%s handle=%s more=%llu",
		    hf_addr_format(hf_rpc_call_peer(op->call), peer, sizeof(peer)), op->proc->name,
		    (unsigned long long)(ns / HF_NS_PER_MS), result_of(op),
		    hf_log_quote(path, sizeof(path), place.path, strlen(place.path)),
		    hf_log_quote(name, sizeof(name), place.name.data, place.name.len), handle,
		    (unsigned long long)n_suppressed);
}

static void look_at_time(struct hf_nfs3_recorder *recorder, struct hf_nfs3_op *op, uint64_t slow_ns)
{
	uint64_t now = hf_loop_clock(hf_rpc_call_loop(op->call)), n_suppressed;

	if (now - op->begun >= slow_ns && may_log_slow(recorder, now, &n_suppressed))
		log_slow(op, now - op->begun, n_suppressed);
}

/* The audit log */

static const char *const changes[HF_N_NFSPROC3] = {
	[NFSPROC3_SETATTR] = "setattr", [NFSPROC3_CREATE] = "create", [NFSPROC3_MKDIR] = "mkdir",
	[NFSPROC3_SYMLINK] = "symlink", [NFSPROC3_MKNOD] = "mknod",   [NFSPROC3_REMOVE] = "remove",
	[NFSPROC3_RMDIR] = "rmdir",     [NFSPROC3_RENAME] = "rename", [NFSPROC3_LINK] = "link",
};

/* Was a change made, whatever the reply says? */
static bool is_made(const struct hf_nfs3_op *op)
{
	return changes[number_of(op)] && (op->stat == NFS3_OK || op->is_made);
}

/* A later step of the change failed; its sync did not. */
static bool is_partly_made(const struct hf_nfs3_op *op)
{
	return is_made(op) && op->stat != NFS3_OK && op->sync.result == 0;
}

static bool is_refusal(enum nfsstat3 stat)
{
	return stat == NFS3ERR_ACCES || stat == NFS3ERR_PERM || stat == NFS3ERR_ROFS;
}

static void put_handle(struct hf_audit_line *line, const char *key, struct hf_bytes handle)
{
	char hex[2 * HF_HANDLE_MAX];
	size_t len = HF_MIN(handle.len, (size_t)HF_HANDLE_MAX);

	hf_hex_put(hex, handle.data, len);
	hf_audit_put_text(line, key, hex, 2 * len);
}

static void put_place(struct hf_audit_line *line, const struct place *place, const char *path_key,
		      const char *name_key)
{
	if (*place->path)
		hf_audit_put_text(line, path_key, place->path, strlen(place->path));
	if (place->name.len)
		hf_audit_put_text(line, name_key, place->name.data, place->name.len);
}

/* The second place of RENAME and LINK: a handle and a name. */
static void put_target(struct hf_nfs3_op *op, struct hf_audit_line *line)
{
	hf_cleanup(place_clear) struct place to = { 0 };
	struct hf_xdr_in *in;

	hf_rpc_call_rewind(op->call);
	in = hf_nfs3_args(op);
	hf_nfs3_get_fh(in);
	if (number_of(op) == NFSPROC3_RENAME)
		hf_xdr_get_opaque(in, HF_NFS3_MAX_NAME);
	to.handle = hf_nfs3_get_fh(in);
	to.name = hf_xdr_get_opaque(in, HF_NFS3_MAX_NAME);
	if (!hf_xdr_in_is_ok(in))
		return;
	find_path(op, &to);
	put_place(line, &to, "to_path", "to_name");
}

/* What SETATTR sets. False: nothing but times. */
static bool get_attributes(struct hf_nfs3_op *op, struct hf_setattr *set)
{
	struct hf_xdr_in *in;

	hf_rpc_call_rewind(op->call);
	in = hf_nfs3_args(op);
	hf_nfs3_get_fh(in);
	return hf_nfs3_get_sattr(in, set) && hf_xdr_in_is_ok(in) &&
	       (set->set_mode || set->set_uid || set->set_gid || set->set_size);
}

/* The size that CREATE gives to a file, also to one that exists */
static void get_size(struct hf_nfs3_op *op, struct hf_setattr *set)
{
	struct hf_setattr all = { 0 };
	struct hf_xdr_in *in;

	hf_rpc_call_rewind(op->call);
	in = hf_nfs3_args(op);
	hf_nfs3_get_fh(in);
	hf_xdr_get_opaque(in, HF_NFS3_MAX_NAME);
	if (hf_xdr_get_u32(in) == EXCLUSIVE || !hf_nfs3_get_sattr(in, &all) || !hf_xdr_in_is_ok(in))
		return;
	set->set_size = all.set_size;
	set->size = all.size;
}

static void put_attributes(struct hf_audit_line *line, const struct hf_setattr *set)
{
	char mode[16];

	if (set->set_mode)
		hf_audit_put_text(line, "mode", mode,
				  (size_t)snprintf(mode, sizeof(mode), "%04o", set->mode & 07777));
	if (set->set_uid)
		hf_audit_put_number(line, "owner", set->uid);
	if (set->set_gid)
		hf_audit_put_number(line, "group", set->gid);
	if (set->set_size)
		hf_audit_put_number(line, "size", set->size);
}

static const char *lower(const char *name, char out[32])
{
	size_t i;

	for (i = 0; name[i] && i < 31; i++)
		out[i] = (char)(name[i] | 0x20);
	out[i] = '\0';
	return out;
}

static void write_audit(struct hf_audit *audit, struct hf_nfs3_op *op, const struct hf_setattr *set)
{
	hf_cleanup(place_clear) struct place place;
	enum nfsproc3 number = number_of(op);
	struct hf_audit_line line;
	char name[32];

	hf_rpc_call_audit(&line, changes[number] ? changes[number] : lower(op->proc->name, name), op->call);
	hf_audit_put_text(&line, "result", result_of(op), strlen(result_of(op)));
	if (is_partly_made(op))
		hf_audit_put_text(&line, "made", "partly", 6);
	put_attributes(&line, set);
	find_place(op, &place);
	if (place.export)
		hf_audit_put_text(&line, "export", place.export, strlen(place.export));
	put_place(&line, &place, "path", "name");
	if (!*place.path)
		put_handle(&line, "handle", place.handle);
	if (number == NFSPROC3_RENAME || number == NFSPROC3_LINK)
		put_target(op, &line);
	hf_audit_end(audit, &line);
}

static void look_at_change(struct hf_audit *audit, struct hf_nfs3_op *op)
{
	struct hf_setattr set = { 0 };
	bool is_setattr = number_of(op) == NFSPROC3_SETATTR;

	if (is_setattr && !get_attributes(op, &set) && is_made(op))
		return;
	if (number_of(op) == NFSPROC3_CREATE)
		get_size(op, &set);
	if (is_made(op) || hf_audit_allow(audit, HF_AUDIT_REFUSED_CALLS))
		write_audit(audit, op, &set);
}

void hf_nfs3_record(struct hf_nfs3_recorder *recorder, struct hf_nfs3_op *op)
{
	struct hf_audit *audit = atomic_load_explicit(&recorder->audit, memory_order_acquire);
	uint64_t slow_ns = atomic_load_explicit(&recorder->slow_ns, memory_order_relaxed);

	if (audit && (is_made(op) || is_refusal(op->stat)))
		look_at_change(audit, op);
	if (slow_ns)
		look_at_time(recorder, op, slow_ns);
}

/* Making and freeing */

void hf_nfs3_recorder_init(struct hf_nfs3_recorder *recorder)
{
	pthread_mutex_init(&recorder->lock, NULL);
	recorder->slow_log = (struct hf_log_limit)HF_LOG_LIMIT(SLOW_WINDOW_S);
	recorder->slow_log.max_lines = SLOW_MAX_LINES;
}

void hf_nfs3_recorder_deinit(struct hf_nfs3_recorder *recorder)
{
	pthread_mutex_destroy(&recorder->lock);
}
