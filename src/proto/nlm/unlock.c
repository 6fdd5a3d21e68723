/* TEST, UNLOCK and CANCEL, synchronous and _MSG: what takes nothing, and needs no registration. */
#include "proto/nlm/internal.h"

/* Each is called again where it had to let an earlier call of its owner go first. */

static void handle_unlock(void *service, struct hf_rpc_call *call)
{
	struct hf_nlm_op op;
	enum hf_nlm_stat stat;
	int answer;

	if (!hf_nlm_op_begin(&op, service, call, hf_nlm_get_unlock))
		return;
	stat = hf_nlm_find_file(&op);
	if (hf_nlm_turn_follow(&op, handle_unlock))
		return;
	if (stat != HF_NLM_FBIG) {
		stat = hf_nlm_find_holder(&op);
		if (stat == HF_NLM_GRANTED_STAT && op.target.client) {
			/* Before those whom it serves: an observer never sees two hold what one can. */
			hf_nlm_tell(&op, HF_EVENT_UNLOCK);
			answer = hf_lock_release(op.nlm->locks, &op.target, op.range);
			stat = hf_nlm_stat_from_lock(answer); /* a lock may be one too many, when it splits */
			if (answer == HF_LOCK_E_LIMIT)
				hf_nlm_say_full(&op, false);
			hf_nlm_call_off_changed(op.nlm, &op.target);
		}
	}
	hf_nlm_reply_released(&op, stat);
	hf_nlm_op_deinit(&op);
}

/* UNLOCK: granted, whatever it covers, and whether or not the file is still there; unless it would make too
 * many locks of one, or comes from a port that may not change what the client holds. */
void hf_nlm_proc_unlock(void *service, struct hf_rpc_call *call)
{
	if (!hf_nlm_msg_is_repeat(service, call))
		handle_unlock(service, call);
}

static void handle_cancel(void *service, struct hf_rpc_call *call)
{
	struct hf_nlm_op op;
	enum hf_nlm_stat stat;

	if (!hf_nlm_op_begin(&op, service, call, hf_nlm_get_cancel))
		return;
	stat = hf_nlm_find_file(&op);
	if (hf_nlm_turn_follow(&op, handle_cancel))
		return;
	if (stat != HF_NLM_FBIG) {
		enum hf_lock_mode mode = op.args.exclusive ? HF_LOCK_EXCLUSIVE : HF_LOCK_SHARED;

		stat = hf_nlm_find_holder(&op);
		/* The owner has it by now, firmly: denied, and the client unlocks it. */
		if (stat == HF_NLM_GRANTED_STAT && op.target.client &&
		    hf_lock_cancel(op.nlm->locks, &op.target, op.range, mode) == HF_LOCK_E_HELD)
			stat = HF_NLM_DENIED;
	}
	hf_nlm_reply_released(&op, stat);
	hf_nlm_op_deinit(&op);
}

/* CANCEL: by owner, file, range and mode; a grant that is on its way is taken back. */
void hf_nlm_proc_cancel(void *service, struct hf_rpc_call *call)
{
	if (!hf_nlm_msg_is_repeat(service, call))
		handle_cancel(service, call);
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
	enum hf_lock_mode mode = op->args.exclusive ? HF_LOCK_EXCLUSIVE : HF_LOCK_SHARED;

	if (!op->target.client)
		op->target.client = &op->nlm->stranger;
	return hf_nlm_stat_from_lock(hf_lock_test(op->nlm->locks, &op->target, op->range, mode, conflictp));
}

static void handle_test(void *service, struct hf_rpc_call *call)
{
	struct hf_nlm_holder holder = { 0 };
	struct hf_nlm_op op;
	struct hf_lock_view conflict;
	enum hf_nlm_stat stat;

	hf_nlm_op_init(&op, service, call);
	hf_nlm_get_test(&op.args, op.version, hf_rpc_call_args(call));
	if (!hf_xdr_in_is_ok(hf_rpc_call_args(call))) {
		hf_nlm_msg_garbage(op.nlm, call);
		return;
	}
	stat = hf_nlm_find_file(&op);
	if (stat == HF_NLM_GRANTED_STAT)
		stat = hf_nlm_files_admit(&op);
	if (stat == HF_NLM_GRANTED_STAT)
		stat = hf_nlm_files_open(&op, handle_test);
	if (stat == HF_NLM_LATER)
		return;
	if (stat == HF_NLM_GRANTED_STAT) {
		hf_nlm_find_named(&op);
		stat = look(&op, &conflict);
		/* What is in the way may be the caller's own, by another name. */
		if (stat == HF_NLM_DENIED && hf_nlm_find_renamed(&op))
			stat = look(&op, &conflict);
		if (stat == HF_NLM_DENIED)
			holder = holder_of(&conflict);
	}
	hf_nlm_reply_test(&op, stat, &holder);
	hf_nlm_op_deinit(&op);
}

/* TEST: shows one of those in the way, to those who could lock there. A client that only asks is not
 * registered. */
void hf_nlm_proc_test(void *service, struct hf_rpc_call *call)
{
	if (!hf_nlm_msg_is_repeat(service, call))
		handle_test(service, call);
}
