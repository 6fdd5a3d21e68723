/* TEST, UNLOCK and CANCEL, synchronous and _MSG. They take nothing, so no client is registered. */
#include "proto/nlm/durable_reply.h"
#include "proto/nlm/internal.h"

/* An export may have become `secure` since the client locked there. The client may still give that up: it
 * locked from an ordinary port, or it would be privileged. */
static bool is_barred(const struct hf_nlm_op *op)
{
	return hf_nlm_bars_port(op) && !(op->client && hf_lock_is_involved(op->nlm->locks, &op->target));
}

/* The client that has something of this owner in this file, by its name or under another; op->client is NULL
 * where none has. FAILED: the port that the call came from may not change what that client holds. LATER: the
 * operation is over. */
static enum hf_nlm_stat find_holder(struct hf_nlm_op *op)
{
	hf_nlm_find_named(op);
	if (hf_nlm_find_renamed(op) && hf_nlm_bars_renamed(op))
		return HF_NLM_LATER;
	if (HF_UNLIKELY(!hf_nlm_may_change(op))) {
		hf_nlm_say_port(op);
		return HF_NLM_FAILED;
	}
	if (HF_UNLIKELY(is_barred(op)))
		return HF_NLM_FAILED;
	if (HF_UNLIKELY(op->nlm->has_demands))
		hf_nlm_note_life(op);
	return HF_NLM_GRANTED_STAT;
}

/* UNLOCK: granted, whatever it covers, and whether or not the file is still there; unless it would make too
 * many locks of one, or comes from a port that may not change what the client holds. */
void hf_nlm_run_unlock(struct hf_nlm_op *op)
{
	enum hf_nlm_stat stat = hf_nlm_find_file(op);
	int answer;

	if (hf_nlm_bars_way(op, true) || hf_nlm_op_queue(op))
		return;
	if (stat != HF_NLM_FBIG)
		stat = find_holder(op);
	if (HF_UNLIKELY(stat == HF_NLM_LATER))
		return;
	if (HF_UNLIKELY(op->nlm->counts.grants_in_flight) && stat == HF_NLM_GRANTED_STAT &&
	    op->target.client && hf_nlm_is_called_again(op) && hf_nlm_await_answer(op))
		return;
	if (stat == HF_NLM_GRANTED_STAT && op->target.client) {
		/* Before the release, which serves waiters: an observer never sees two owners of one range.
		 */
		hf_nlm_tell(op, HF_EVENT_UNLOCK);
		answer = hf_lock_release(op->nlm->locks, &op->target, op->range);
		hf_nlm_op_spend(op);
		if (HF_LIKELY(answer == HF_LOCK_OK))
			hf_recovery_unlocked(op->nlm->options.recovery, &op->target, op->range);
		stat = hf_nlm_stat_from_lock(answer); /* a lock may be one too many, when it splits */
		if (answer == HF_LOCK_E_LIMIT)
			hf_nlm_say_full(op, false);
		hf_nlm_call_off_changed(op->nlm, &op->target);
	}
	hf_nlm_reply_released(op, stat);
}

/* CANCEL: by owner, file, range and mode; a grant that is on its way is taken back. Where the owner has the
 * lock by now, firmly, it is denied, and the client unlocks it. */
void hf_nlm_run_cancel(struct hf_nlm_op *op)
{
	enum hf_nlm_stat stat = hf_nlm_find_file(op);

	if (hf_nlm_bars_way(op, true) || hf_nlm_op_queue(op))
		return;
	if (stat != HF_NLM_FBIG)
		stat = find_holder(op);
	if (HF_UNLIKELY(stat == HF_NLM_LATER))
		return;
	if (stat == HF_NLM_GRANTED_STAT && op->target.client) {
		if (hf_lock_cancel(op->nlm->locks, &op->target, op->range, hf_nlm_mode(op)) ==
		    HF_LOCK_E_LOCKED)
			stat = HF_NLM_DENIED;
		hf_nlm_op_spend(op);
	}
	hf_nlm_reply_released(op, stat);
}

static struct hf_nlm_holder holder_of(const struct hf_lock_view *lock)
{
	return (struct hf_nlm_holder){
		.exclusive = lock->mode == HF_LOCK_EXCLUSIVE,
		.svid = (int32_t)lock->who.owner_id,
		.oh = lock->who.oh,
		.offset = lock->range.start,
		.len = hf_range_len(lock->range),
	};
}

static enum hf_nlm_stat look(struct hf_nlm_op *op, struct hf_lock_view *conflictp)
{
	if (!op->target.client)
		op->target.client = &op->nlm->stranger;
	return hf_nlm_stat_from_lock(
		hf_lock_test(op->nlm->locks, &op->target, op->range, hf_nlm_mode(op), conflictp));
}

/* TEST: shows one lock that is in the way, to clients that could lock there. It registers no client. */
void hf_nlm_run_test(struct hf_nlm_op *op)
{
	struct hf_nlm_holder holder = { 0 };
	struct hf_lock_view conflict;
	enum hf_nlm_stat stat = hf_nlm_find_file(op);

	if (hf_nlm_bars_way(op, false))
		return;
	if (stat == HF_NLM_GRANTED_STAT)
		stat = hf_nlm_admit(op);
	if (stat == HF_NLM_GRANTED_STAT)
		stat = hf_nlm_open_file(op);
	if (stat == HF_NLM_LATER)
		return;
	if (stat == HF_NLM_GRANTED_STAT) {
		hf_nlm_find_named(op);
		stat = look(op, &conflict);
		/* What is in the way may be the caller's own, by another name. */
		if (stat == HF_NLM_DENIED && hf_nlm_find_renamed(op))
			stat = look(op, &conflict);
		if (stat == HF_NLM_DENIED)
			holder = holder_of(&conflict);
	}
	hf_nlm_reply_test(op, stat, &holder);
}
