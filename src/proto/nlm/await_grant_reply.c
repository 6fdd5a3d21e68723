/*
 * A LOCK or UNLOCK over what was granted, while the client has not answered GRANTED.
 *
 * A shared LOCK over an exclusive grant. A process that downgrades its lock as soon as it has it may be
 * quicker than its client's answer to GRANTED, which takes another path. Served at once, the lock would have
 * to stay exclusive until it is unlocked (lock/grant.c): if the owner has threads, one of them may hear of
 * the grant after another one was told that the owner has less. The answer to GRANTED shows that the client
 * has heard of it.
 *
 * A reclaim. The client may have accepted the grant, and reclaims it. Or it reclaims a lock that it lost,
 * which other owners have had since, and does not wait for this grant. Its answer to GRANTED tells.
 *
 * An UNLOCK, while the client is called again. It had the lock from an earlier call, and the present one is
 * on its way. If the process unlocks and asks for the same lock again, the call comes while it waits for the
 * next one, and the client cannot tell: Linux compares owner and range, and takes the lock that another owner
 * has by then. A server that goes on after a crash, or on another node, calls again at its start, just when
 * its clients can unlock again. An answer shows that the client has the call behind it.
 *
 * So the operation waits for that answer, for a moment; then it is served as things are.
 *
 * No operation queues behind it: any other call of its owner about the file ends the wait.
 */
#include "proto/nlm/internal.h"
#include "proto/nlm/op.h"

#define PATIENCE_NS (2 * HF_NS_PER_S)

static void on_timer(struct hf_timer *timer)
{
	struct hf_nlm_op *op = hf_container_of(timer, struct hf_nlm_op, awaiting.timer);

	op->is_impatient = true;
	hf_nlm_op_resume(op);
}

static void on_answered(struct hf_task *task)
{
	struct hf_nlm *nlm = hf_container_of(task, struct hf_nlm, resume_answered);
	struct hf_link *link;

	while ((link = hf_list_first(&nlm->answered)))
		hf_nlm_op_resume(hf_list_entry(link, struct hf_nlm_op, awaiting.answered));
}

static bool must_await(const struct hf_nlm_op *op)
{
	const struct hf_locks *locks = op->nlm->locks;

	if (op->args.reclaim)
		return hf_lock_has_grant(locks, &op->target, op->range);
	return !op->args.exclusive && hf_lock_is_guarded(locks, &op->target, op->range);
}

bool hf_nlm_await_grant_reply(struct hf_nlm_op *op)
{
	return HF_UNLIKELY(op->nlm->counts.grants_in_flight) && must_await(op) && hf_nlm_await_answer(op);
}

bool hf_nlm_await_answer(struct hf_nlm_op *op)
{
	struct hf_nlm *nlm = op->nlm;

	if (op->is_impatient || !hf_nlm_op_can_suspend(op))
		return false;
	op = hf_nlm_op_suspend(op, HF_NLM_AWAITING_GRANT, op->kind->run);
	if (!op)
		return true;
	hf_timer_init(&op->awaiting.timer, nlm->options.loop, on_timer);
	hf_link_init(&op->awaiting.answered);
	if (hf_timer_start(&op->awaiting.timer, PATIENCE_NS) < 0)
		on_timer(&op->awaiting.timer);
	return true;
}

/* Called from inside the lock table, which must not be called back here: the operation is resumed when this
 * turn of the loop ends. */
void hf_nlm_note_grant_reply(struct hf_nlm *nlm, const struct hf_lock_target *owner)
{
	struct hf_nlm_op *op;

	if (HF_LIKELY(!nlm->owners.n))
		return;
	op = hf_nlm_op_find(nlm, owner);
	if (!op || op->stage != HF_NLM_AWAITING_GRANT || hf_link_is_linked(&op->awaiting.answered))
		return;
	hf_list_push_back(&nlm->answered, &op->awaiting.answered);
	hf_loop_defer(nlm->options.loop, &nlm->resume_answered);
}

void hf_nlm_await_init(struct hf_nlm *nlm)
{
	hf_list_init(&nlm->answered);
	hf_task_init(&nlm->resume_answered, on_answered);
}

void hf_nlm_await_deinit(struct hf_nlm *nlm)
{
	hf_task_cancel(&nlm->resume_answered);
}
