/* LOCK and NM_LOCK, synchronous and _MSG. */
#include "proto/nlm/internal.h"

/*
 * What cannot be made durable is not granted. A wait is cancelled. A grant that only gave its owner something
 * new is released; one that repeated or replaced what he held is left, or he would lose what he was promised
 * before: he may have more than he knows of then, until he unlocks. So is a reclaim: he had it, will ask
 * again, and grace may be over by then. For the same reason an exclusive lock becomes a shared one only when
 * that can be said: he must never have less. In each case the program that asked has its error and does not
 * wait: a wait for the same, which may be in the queue or granted by now, is left.
 */
enum ending {
	END_LOCK,
	END_WAIT,
	END_LOWERING,
	END_LEAVING,
};

static enum hf_lock_mode mode_of(const struct hf_nlm_args *args)
{
	return args->exclusive ? HF_LOCK_EXCLUSIVE : HF_LOCK_SHARED;
}

static uint32_t state_of(const struct hf_nlm_op *op)
{
	return (uint32_t)hf_client_state_for(op->client, op->args.state, hf_rpc_call_age(op->call));
}

static void lower(struct hf_nlm_op *op)
{
	struct hf_lock_request lock = {
		.who = op->target,
		.range = op->range,
		.mode = HF_LOCK_SHARED,
		.client_state = state_of(op),
		.reclaim = op->args.reclaim && hf_lock_in_grace(op->nlm->locks),
		.is_due = true,
		.is_volatile = hf_rpc_call_header(op->call)->procedure == HF_NLM_NM_LOCK,
	};

	hf_lock_acquire(op->nlm->locks, &lock, NULL);
	hf_nlm_call_off_changed(op->nlm, &op->target);
}

static void end_served(struct hf_nlm_op *op, enum ending what)
{
	struct hf_locks *locks = op->nlm->locks;
	enum hf_lock_mode mode = mode_of(&op->args);

	switch (what) {
	case END_LOCK:
		hf_lock_take_back(locks, &op->target, op->range);
		break;
	case END_WAIT:
		hf_lock_cancel(locks, &op->target, op->range, mode);
		break;
	case END_LEAVING:
		if (op->args.block)
			hf_lock_leave_queue(locks, &op->target, op->range, mode);
		break;
	case END_LOWERING:
		if (hf_lock_is_involved(locks, &op->target)) /* or its client has died since */
			lower(op);
		break;
	}
}

static void end(struct hf_nlm *nlm, struct hf_rpc_call *call, enum ending what)
{
	struct hf_nlm_op op;

	hf_nlm_op_init(&op, nlm, call);
	hf_nlm_get_lock(&op.args, op.version, hf_rpc_call_args(call));
	hf_nlm_find_file(&op);
	hf_nlm_find_served(&op);
	if (op.target.client)
		end_served(&op, what);
	hf_nlm_op_deinit(&op);
}

static void undo_lock(struct hf_nlm *nlm, struct hf_rpc_call *call, bool kept)
{
	if (!kept)
		end(nlm, call, END_LOCK);
}

static void undo_wait(struct hf_nlm *nlm, struct hf_rpc_call *call, bool kept)
{
	if (!kept)
		end(nlm, call, END_WAIT);
}

static void leave_wait(struct hf_nlm *nlm, struct hf_rpc_call *call, bool kept)
{
	if (!kept)
		end(nlm, call, END_LEAVING);
}

static void lower_if_kept(struct hf_nlm *nlm, struct hf_rpc_call *call, bool kept)
{
	end(nlm, call, kept ? END_LOWERING : END_LEAVING);
}

/* An owner that waits and asks again, and is refused for good, does not wait any more: its program has its
 * error. A grant on its way to it is not taken back: the client may have heard of it before. */
static void refuse(struct hf_nlm_op *op, enum hf_nlm_stat stat)
{
	if (op->args.block && stat != HF_NLM_DENIED_GRACE_PERIOD && stat != HF_NLM_FBIG) {
		if (!op->client)
			hf_nlm_find_served(op);
		if (op->target.client && hf_nlm_may_change(op))
			hf_lock_leave_queue(op->nlm->locks, &op->target, op->range, mode_of(&op->args));
	}
	if (!op->args.reclaim)
		hf_nlm_note_act(op);
	hf_nlm_reply(op->nlm, op->call, op->args.cookie, stat);
}

void hf_nlm_refuse_kept(void *service, struct hf_rpc_call *call)
{
	struct hf_nlm_op op;

	if (!hf_nlm_is_lock(call)) {
		hf_nlm_reply_late(service, call, HF_NLM_DENIED_NOLOCKS);
		return;
	}
	hf_nlm_op_init(&op, service, call);
	hf_nlm_get_lock(&op.args, op.version, hf_rpc_call_args(call));
	hf_nlm_find_file(&op);
	refuse(&op, HF_NLM_DENIED_NOLOCKS);
	hf_nlm_op_deinit(&op);
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

static void serve(struct hf_nlm_op *op, bool is_monitored)
{
	struct hf_nlm *nlm = op->nlm;
	const struct hf_nlm_args *args = &op->args;
	struct hf_recovery *recovery = nlm->options.recovery;
	struct hf_lock_before before = { 0 };
	struct hf_lock_request lock = {
		.who = op->target,
		.range = op->range,
		.before = &before,
		.offset = args->offset,
		.len = args->len,
		.mode = mode_of(args),
		.client_state = state_of(op),
		.wait = args->block && is_monitored && !args->reclaim,
		.reclaim = args->reclaim,
		.is_volatile = !is_monitored,
		.no_downgrade = !args->exclusive,
		.user = hf_nlm_way_pack(hf_nlm_way_of(&nlm->locals, op->call, op->target.share)),
		.stamp = hf_loop_now(nlm->options.loop),
	};
	bool is_first = hf_lock_client_is_idle(&op->client->holds);
	enum hf_nlm_stat stat;
	bool is_new;
	int answer;

	if (lock.reclaim && !apply_reclaim(recovery, &lock)) {
		hf_nlm_reply(nlm, op->call, args->cookie, HF_NLM_DENIED_GRACE_PERIOD);
		return;
	}
	answer = hf_lock_acquire(nlm->locks, &lock, NULL);
	stat = hf_nlm_stat_from_lock(answer);
	if (stat != HF_NLM_GRANTED_STAT && stat != HF_NLM_BLOCKED) {
		if (answer == HF_LOCK_E_LIMIT)
			hf_nlm_say_full(op, false);
		refuse(op, stat);
		return;
	}
	if ((is_monitored ? hf_nlm_register(op) : hf_nlm_note_port(op)) != HF_NLM_GRANTED_STAT) {
		if (stat == HF_NLM_BLOCKED)
			hf_lock_cancel(nlm->locks, &op->target, op->range, lock.mode);
		else if (!before.has_any)
			hf_lock_take_back(nlm->locks, &op->target, op->range);
		hf_nlm_reply(nlm, op->call, args->cookie, HF_NLM_DENIED_NOLOCKS);
		return;
	}
	hf_nlm_note_begin(op, is_first);
	is_new = !before.has_any && !args->reclaim;
	hf_nlm_tell(op, stat == HF_NLM_BLOCKED ? HF_EVENT_BLOCKED : HF_EVENT_LOCK);
	hf_nlm_call_off_changed(nlm, &op->target);
	if (stat == HF_NLM_BLOCKED) {
		hf_nlm_note_act(op);
		hf_nlm_reply_kept(op, stat, undo_wait);
	} else if (before.stays_exclusive) {
		hf_nlm_reply_lowered(op, lower_if_kept);
	} else {
		hf_nlm_reply_granted(op, is_new, is_new ? undo_lock : leave_wait);
	}
}

static void handle_lock(void *service, struct hf_rpc_call *call);

/* The same after it has waited for the answer to a grant, and there was none. */
static void handle_lock_now(void *service, struct hf_rpc_call *call);

/* Called again where the file, or the host of the client, had to be asked first. */
static void handle(struct hf_nlm *nlm, struct hf_rpc_call *call, bool is_patient)
{
	struct hf_xdr_in *in = hf_rpc_call_args(call);
	hf_rpc_handler_fn again = is_patient ? handle_lock : handle_lock_now;
	struct hf_nlm_op op;
	enum hf_nlm_stat stat;

	hf_nlm_op_init(&op, nlm, call);
	hf_nlm_get_lock(&op.args, op.version, in);
	if (!hf_xdr_in_is_ok(in)) {
		hf_nlm_msg_garbage(op.nlm, call);
		return;
	}
	stat = hf_nlm_check_file(&op, op.args.exclusive, again);
	if (stat == HF_NLM_LATER)
		return;
	if (stat == HF_NLM_GRANTED_STAT && !hf_recovery_can_promise(op.nlm->options.recovery))
		stat = HF_NLM_DENIED_NOLOCKS;
	if (stat == HF_NLM_GRANTED_STAT)
		stat = op.args.reclaim ? hf_nlm_get_reclaimer(&op, again) : hf_nlm_get_client(&op, again);
	if (stat == HF_NLM_LATER) {
		hf_nlm_op_deinit(&op);
		return;
	}
	if (stat != HF_NLM_GRANTED_STAT)
		refuse(&op, stat);
	else if (!hf_nlm_await_host(&op, again) && (op.args.exclusive || !is_patient ||
						    !hf_nlm_await_answer(&op, handle_lock, handle_lock_now)))
		serve(&op, hf_rpc_call_header(call)->procedure != HF_NLM_NM_LOCK);
	hf_nlm_op_deinit(&op);
}

static void handle_lock(void *service, struct hf_rpc_call *call)
{
	handle(service, call, true);
}

static void handle_lock_now(void *service, struct hf_rpc_call *call)
{
	handle(service, call, false);
}

void hf_nlm_proc_lock(void *service, struct hf_rpc_call *call)
{
	if (!hf_nlm_msg_is_repeat(service, call))
		handle_lock(service, call);
}
