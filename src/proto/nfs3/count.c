/* Counts calls by client and export, if the operator wants it. */
#include "export/usage.h"
#include "loop/loop.h"
#include "proto/nfs3/op.h"

static enum hf_usage_counter kind_of(uint32_t procedure)
{
	switch (procedure) {
	case NFSPROC3_READ:
		return HF_USAGE_READS;
	case NFSPROC3_WRITE:
	case NFSPROC3_COMMIT:
		return HF_USAGE_WRITES;
	default:
		return HF_USAGE_METADATA;
	}
}

/* The procedure found no file, or its export is gone. A handle of this server still names an export. */
static uint64_t export_of_handle(struct hf_nfs3_op *op)
{
	uint64_t export_id = 0;
	struct hf_bytes handle;

	hf_rpc_call_rewind(op->call);
	handle = hf_nfs3_get_fh(hf_nfs3_args(op));
	return hf_exports_read_handle(op->nfs->exports, handle, &export_id) ? export_id : 0;
}

void hf_nfs3_count(struct hf_nfs3_op *op, struct hf_usage *usage)
{
	const struct hf_usage_call call = {
		.export_id = op->export_id ? op->export_id : export_of_handle(op),
		.kind = kind_of(hf_rpc_call_header(op->call)->procedure),
		.n_read = op->n_read,
		.n_written = op->n_written,
		.has_failed = op->stat != NFS3_OK,
		.now = hf_loop_now(hf_rpc_call_loop(op->call)),
	};

	hf_usage_count(usage, hf_rpc_call_lane(op->call), hf_rpc_call_peer(op->call), &call);
}
