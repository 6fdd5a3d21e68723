/* SHARE and UNSHARE: reservations, the open modes of DOS and Windows clients. They do not touch byte-range
 * locks. */
#include "proto/nlm/durable_reply.h"
#include "proto/nlm/internal.h"

/* Reservations are counted. A run that goes on after a crash knows by this that it has counted a call whose
 * reply was lost: the client sends it again with the same number. */
static uint64_t mark_of(const struct hf_nlm_op *op)
{
	return UINT64_C(1) << 32 | hf_rpc_call_header(op->call)->xid;
}

static enum hf_nlm_stat take(struct hf_nlm_op *op)
{
	const struct hf_nlm_args *args = &op->args;
	struct hf_lock_reservation_view view = hf_nlm_reservation_view(op);
	int answer;

	switch (args->reclaim ? hf_recovery_reclaim_reservation(op->nlm->options.recovery, &view)
			      : HF_RECLAIM_NORMAL) {
	case HF_RECLAIM_REFUSED:
		return HF_NLM_DENIED_GRACE_PERIOD;
	case HF_RECLAIM_BACKED:
		return HF_NLM_GRANTED_STAT;
	default:
		answer = hf_lock_reserve_once(op->nlm->locks, &op->target, view.access, view.deny,
					      hf_nlm_state_of(op), args->reclaim, mark_of(op));
		if (answer == HF_LOCK_E_LIMIT)
			hf_nlm_say_full(op, true);
		return hf_nlm_stat_from_lock(answer);
	}
}

/*
 * All reservations of an owner in a file have one state number. While a notice of its client's restart is
 * being checked, a SHARE, which has no number itself, may be of the life before or after it: what the owner
 * has in the file would get the tag of the check, and outlive the restart. The check takes seconds.
 */
static bool may_mix_lives(const struct hf_nlm_op *op)
{
	const struct hf_client *client = op->client;

	return HF_UNLIKELY(hf_client_is_tagged(client, op->args.state, hf_rpc_call_age(op->call))) &&
	       hf_lock_has_reservations_but(op->nlm->locks, &op->target, (uint32_t)client->doubt_tag);
}

static enum hf_nlm_stat reserve(struct hf_nlm_op *op)
{
	enum hf_nlm_stat stat;
	bool is_first;

	if (!hf_recovery_can_promise(op->nlm->options.recovery) || !hf_nlm_op_can_suspend(op))
		return hf_nlm_not_stored(op);
	stat = hf_nlm_get_client(op);
	if (stat == HF_NLM_GRANTED_STAT && HF_UNLIKELY(!op->client->is_confirmed))
		stat = hf_nlm_meet_host(op);
	if (stat != HF_NLM_GRANTED_STAT)
		return stat;
	if (may_mix_lives(op)) {
		hf_nlm_op_put_off(op);
		return HF_NLM_LATER;
	}
	is_first = hf_lock_client_is_idle(&op->client->locking);
	stat = take(op);
	if (stat == HF_NLM_GRANTED_STAT && hf_nlm_register(op) != HF_NLM_GRANTED_STAT) {
		hf_nlm_undo(op, HF_NLM_FINISH_RESERVATION);
		stat = HF_NLM_DENIED_NOLOCKS;
	}
	if (stat == HF_NLM_GRANTED_STAT)
		hf_nlm_note_begin(op, is_first);
	return stat;
}

void hf_nlm_run_share(struct hf_nlm_op *op)
{
	enum hf_nlm_stat stat = hf_nlm_check_file(op, (op->args.access & 2) != 0);

	if (stat == HF_NLM_LATER)
		return;
	if (stat == HF_NLM_GRANTED_STAT)
		stat = reserve(op);
	if (stat == HF_NLM_GRANTED_STAT)
		hf_nlm_reply_durable(op, stat, HF_NLM_FINISH_RESERVATION);
	else if (stat != HF_NLM_LATER)
		hf_nlm_reply(op, stat);
}

static bool has_it(const struct hf_nlm_op *op)
{
	return op->client && hf_lock_count_reservations(op->nlm->locks, &op->target, (uint8_t)op->args.access,
							(uint8_t)op->args.deny) > 0;
}

/* May the port that the call came from change what the client has? In an export that has become `secure`, a
 * client that is not privileged may give up what it reserved before. */
static bool is_allowed(const struct hf_nlm_op *op)
{
	if (!hf_nlm_may_change(op)) {
		hf_nlm_say_port(op);
		return false;
	}
	return !hf_nlm_bars_port(op) || has_it(op);
}

void hf_nlm_run_unshare(struct hf_nlm_op *op)
{
	enum hf_nlm_stat stat = HF_NLM_GRANTED_STAT;
	struct hf_client *client;

	hf_nlm_find_file(op);
	if (hf_nlm_bars_way(op, true) || hf_nlm_op_queue(op))
		return;
	client = hf_nlm_find_caller(op);
	if (client)
		hf_nlm_use_client(op, client);
	if (!is_allowed(op)) {
		stat = HF_NLM_FAILED;
	} else if (client) {
		struct hf_lock_reservation_view view = hf_nlm_reservation_view(op);

		if (HF_UNLIKELY(op->nlm->has_demands))
			hf_nlm_note_life(op);
		if (!hf_recovery_unreserve(op->nlm->options.recovery, &view))
			hf_lock_unreserve_once(op->nlm->locks, &op->target, view.access, view.deny,
					       mark_of(op));
	}
	hf_nlm_reply_released(op, stat);
}
