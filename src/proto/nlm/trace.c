/* What observers, the log and the counters are told; and the status by which a client is told an answer of
 * the lock table. */
#include <string.h>

#include "export/usage.h"
#include "proto/nlm/internal.h"
#include "proto/nlm/op.h"

#define HOME_LANE 0 /* the one that serves NLM */

enum hf_nlm_stat hf_nlm_stat_from_lock(int answer)
{
	switch (answer) {
	case HF_LOCK_OK:
		return HF_NLM_GRANTED_STAT;
	case HF_LOCK_E_CONFLICT:
		return HF_NLM_DENIED;
	case HF_LOCK_E_QUEUED:
		return HF_NLM_BLOCKED;
	case HF_LOCK_E_GRACE:
	case HF_LOCK_E_NOT_BACKED:
		return HF_NLM_DENIED_GRACE_PERIOD;
	case HF_LOCK_E_DEADLOCK:
		return HF_NLM_DEADLCK;
	default:
		return HF_NLM_DENIED_NOLOCKS; /* limits, memory, a store that cannot write */
	}
}

static HF_NOINLINE void tell(const struct hf_nlm_op *op, enum hf_recovery_event_kind kind)
{
	struct hf_lock_view view = {
		.who = op->target,
		.range = op->range,
		.mode = hf_nlm_mode(op),
	};

	hf_recovery_tell_lock(op->nlm->options.recovery, kind, &view);
}

void hf_nlm_tell(const struct hf_nlm_op *op, enum hf_recovery_event_kind kind)
{
	if (HF_UNLIKELY(hf_recovery_wants_locks(op->nlm->options.recovery)))
		tell(op, kind);
}

void hf_nlm_say_port(const struct hf_nlm_op *op)
{
	struct hf_nlm *nlm = op->nlm;
	const struct hf_client *client = op->client;
	char quoted[256], peer[HF_ADDR_TEXT];
	uint64_t n_suppressed;

	if (!hf_log_limit_allow(&nlm->ports, hf_loop_now(nlm->options.loop), &n_suppressed))
		return;
	hf_log_warn(
		"call refused: its client locks from ports below 1024, and this call came from another port",
		"client=%s peer=%s procedure=%u more=%llu",
		hf_log_quote(quoted, sizeof(quoted), client->id, strlen(client->id)),
		hf_addr_format_with_port(hf_rpc_call_peer(op->call), peer, sizeof(peer)),
		hf_rpc_call_header(op->call)->procedure, (unsigned long long)n_suppressed);
}

void hf_nlm_say_full(const struct hf_nlm_op *op, bool of_reservations)
{
	struct hf_nlm *nlm = op->nlm;
	const struct hf_client *client = op->client;
	uint64_t n_suppressed;
	char quoted[256];

	if (!hf_log_limit_allow(&nlm->full[of_reservations], hf_loop_now(nlm->options.loop), &n_suppressed))
		return;
	hf_log_quote(quoted, sizeof(quoted), client->id, strlen(client->id));
	if (of_reservations)
		hf_log_warn("reservation refused: its client, its address, its file or the server is at its "
			    "limit",
			    "client=%s reservations=%u more=%llu", quoted, client->locking.n_reservations,
			    (unsigned long long)n_suppressed);
	else
		hf_log_warn("lock refused: its client, its address, its file or the server is at its limit",
			    "client=%s locks=%u waiters=%u more=%llu", quoted, client->locking.n_locks,
			    client->locking.n_waiters, (unsigned long long)n_suppressed);
}

static bool is_error(enum hf_nlm_stat stat)
{
	return stat != HF_NLM_GRANTED_STAT && stat != HF_NLM_BLOCKED && stat != HF_NLM_DENIED;
}

static uint64_t export_id_of(const struct hf_nlm *nlm, uint32_t export)
{
	const struct hf_nlm_files *files = &nlm->files;

	return files->exports ? files->export_id_of(files->user, export) : HF_USAGE_ANOTHER_SERVER;
}

/* An operation without a handle is about a client, not about a file. */
bool hf_nlm_count_usage(const struct hf_nlm_op *op, enum hf_nlm_stat stat)
{
	struct hf_usage_call call = {
		.kind = HF_USAGE_LOCKS,
		.has_failed = is_error(stat),
		.now = hf_loop_now(op->nlm->options.loop),
	};

	if (!op->target.handle.len)
		return false;
	call.export_id = export_id_of(op->nlm, op->target.export);
	hf_usage_count(op->nlm->usage, HOME_LANE, hf_rpc_call_peer(op->call), &call);
	return !call.has_failed;
}

void hf_nlm_count_error(struct hf_nlm *nlm, const struct hf_addr *peer, uint32_t export)
{
	hf_usage_count_error(nlm->usage, HOME_LANE, peer, export_id_of(nlm, export));
}

void hf_nlm_counts(const struct hf_nlm *nlm, struct hf_nlm_counts *countsp)
{
	*countsp = nlm->counts;
}
