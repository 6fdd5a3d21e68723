/* LOCK and NM_LOCK, synchronous and _MSG. */
#include "proto/nlm/durable_reply.h"
#include "proto/nlm/internal.h"

/* Even a refusal waits for the store if the request ended something: the locks of the client's previous life,
 * or a stored wait that the next run would restore. That wait may have ended with an earlier reply, which
 * told the client to ask again. */
static bool ends_something(const struct hf_nlm_op *op)
{
	if (op->client && HF_UNLIKELY(hf_recovery_is_state_unstored(op->client)))
		return true;
	return op->args.block && !op->args.reclaim && hf_recovery_is_continuable(op->nlm->options.recovery);
}

/* A waiter whose repeated LOCK is refused leaves the queue: its program has received the error. A grant that
 * is on its way to it stays: the client may have heard of it before. */
static void refuse(struct hf_nlm_op *op, enum hf_nlm_stat stat)
{
	if (op->args.block && stat != HF_NLM_DENIED_GRACE_PERIOD && stat != HF_NLM_FBIG) {
		if (!op->client)
			hf_nlm_find_served(op);
		if (op->target.client && hf_nlm_may_change(op))
			hf_lock_leave_queue(op->nlm->locks, &op->target, op->range, hf_nlm_mode(op));
	}
	if (!op->args.reclaim)
		hf_nlm_note_act(op);
	if (ends_something(op))
		hf_nlm_reply_released(op, stat);
	else
		hf_nlm_reply(op, stat);
}

static bool apply_reclaim(struct hf_recovery *recovery, struct hf_lock_request *lock)
{
	switch (hf_recovery_reclaim(recovery, lock)) {
	case HF_RECLAIM_NORMAL:
		return true;
	case HF_RECLAIM_BACKED:
		lock->backed_only = true;
		return true;
	case HF_RECLAIM_LATE:
		lock->reclaim = false;
		lock->is_due = true;
		return true;
	default:
		return false;
	}
}

static void serve(struct hf_nlm_op *op)
{
	struct hf_nlm *nlm = op->nlm;
	const struct hf_nlm_args *args = &op->args;
	struct hf_recovery *recovery = nlm->options.recovery;
	bool is_monitored = !op->kind->is_unwatched;
	struct hf_lock_before before = { 0 };
	struct hf_lock_request lock = {
		.who = op->target,
		.range = op->range,
		.before = &before,
		.offset = args->offset,
		.len = args->len,
		.mode = hf_nlm_mode(op),
		.client_state = hf_nlm_state_of(op),
		.wait = args->block && is_monitored && !args->reclaim,
		.reclaim = args->reclaim,
		.is_volatile = !is_monitored,
		.no_downgrade = !args->exclusive,
		.user = hf_nlm_route_pack(hf_nlm_route_of(&nlm->locals, op->call)),
		.stamp = hf_loop_now(nlm->options.loop),
	};
	bool is_first = hf_lock_client_is_idle(&op->client->locking);
	enum hf_nlm_stat stat;
	bool is_new;
	int answer;

	if (lock.reclaim && !apply_reclaim(recovery, &lock)) {
		hf_nlm_reply(op, HF_NLM_DENIED_GRACE_PERIOD);
		return;
	}
	answer = hf_lock_acquire(nlm->locks, &lock, NULL);
	hf_nlm_op_spend(op);
	stat = hf_nlm_stat_from_lock(answer);
	if (stat != HF_NLM_GRANTED_STAT && stat != HF_NLM_BLOCKED) {
		if (answer == HF_LOCK_E_LIMIT)
			hf_nlm_say_full(op, false);
		refuse(op, stat);
		return;
	}
	if ((is_monitored ? hf_nlm_register(op) : hf_nlm_note_port(op)) != HF_NLM_GRANTED_STAT) {
		if (stat == HF_NLM_BLOCKED)
			hf_nlm_undo(op, HF_NLM_FINISH_WAIT);
		else if (!before.has_any)
			hf_nlm_undo(op, HF_NLM_FINISH_NEW_LOCK);
		hf_nlm_reply(op, HF_NLM_DENIED_NOLOCKS);
		return;
	}
	hf_nlm_note_begin(op, is_first);
	is_new = !before.has_any && !args->reclaim;
	hf_nlm_tell(op, stat == HF_NLM_BLOCKED ? HF_EVENT_BLOCKED : HF_EVENT_LOCK);
	hf_nlm_call_off_changed(nlm, &op->target);
	if (stat == HF_NLM_BLOCKED) {
		hf_nlm_note_act(op);
		hf_nlm_reply_durable(op, stat, HF_NLM_FINISH_WAIT);
	} else if (before.stays_exclusive) {
		hf_nlm_reply_durable(op, stat, HF_NLM_FINISH_DOWNGRADE);
	} else {
		hf_nlm_reply_granted(op, is_new);
	}
}

/* Something must not be taken that could neither be promised nor undone. */
static bool can_grant(struct hf_nlm_op *op)
{
	return hf_recovery_can_promise(op->nlm->options.recovery) && hf_nlm_op_can_suspend(op);
}

void hf_nlm_run_lock(struct hf_nlm_op *op)
{
	enum hf_nlm_stat stat = hf_nlm_check_file(op, op->args.exclusive);

	if (stat == HF_NLM_LATER)
		return;
	if (stat == HF_NLM_GRANTED_STAT && !can_grant(op))
		stat = hf_nlm_not_stored(op);
	if (stat == HF_NLM_GRANTED_STAT)
		stat = op->args.reclaim ? hf_nlm_get_reclaimer(op) : hf_nlm_get_client(op);
	if (stat == HF_NLM_GRANTED_STAT && HF_UNLIKELY(!op->client->is_confirmed))
		stat = hf_nlm_meet_host(op);
	if (stat == HF_NLM_LATER)
		return;
	if (stat != HF_NLM_GRANTED_STAT)
		refuse(op, stat);
	else if (!hf_nlm_await_grant_reply(op))
		serve(op);
}
