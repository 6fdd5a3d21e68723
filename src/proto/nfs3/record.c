#include "proto/nfs3/record.h"

#include <string.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/hex.h"
#include "loop/loop.h"
#include "proto/nfs3/op.h"
#include "vfs/file.h"

#define SLOW_WINDOW_S  10
#define SLOW_MAX_LINES 50

/* What the arguments of a call name: the file of its first handle, and a name in it if it is a directory. */
struct place {
	struct hf_bytes handle;
	struct hf_bytes name;          /* empty: none */
	char path[HF_EXPORT_MAX_PATH]; /* of the handle's file; empty: unknown */
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
		    (unsigned long long)(ns / HF_NS_PER_MS), hf_nfsstat3_name(op->stat),
		    hf_log_quote(path, sizeof(path), place.path, strlen(place.path)),
		    hf_log_quote(name, sizeof(name), place.name.data, place.name.len), handle,
		    (unsigned long long)n_suppressed);
}

static void look_at_time(struct hf_nfs3_op *op)
{
	struct hf_nfs3_recorder *recorder = op->nfs->recorder;
	uint64_t now = hf_loop_clock(hf_rpc_call_loop(op->call)), n_suppressed;

	if (now - op->begun >= recorder->slow_ns && may_log_slow(recorder, now, &n_suppressed))
		log_slow(op, now - op->begun, n_suppressed);
}

void hf_nfs3_record(struct hf_nfs3_op *op)
{
	if (op->nfs->recorder->slow_ns)
		look_at_time(op);
}

/* Life */

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
