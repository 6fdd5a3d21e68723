/*
 * A shared LOCK over what was granted exclusively, while GRANTED is not answered.
 *
 * A process that lowers its lock as soon as it has it may be quicker than the
 * answer of its client to GRANTED, which takes another way. Served at once, the
 * lock would have to stay exclusive until it is unlocked (lock/grant_pending.c): if the owner
 * has threads, one of them may hear of the grant after another one was told that he
 * has less. Once GRANTED is answered it has been heard, and what is told now is told
 * later. So the call waits for that answer, for a moment; then it is served as things
 * are.
 *
 * Nothing waits behind it: whatever else its owner asks about the file ends the
 * waiting.
 */
#include <stdlib.h>

#include "proto/nlm/internal.h"

#define PATIENCE_NS (2 * HF_NS_PER_S)

struct patience {
	struct hf_nlm_turn turn;
	struct hf_link link;  /* in nlm->patient */
	struct hf_link heard; /* in nlm->heard, when the answer has come */
	struct hf_timer timer;
	struct hf_nlm *nlm;
	struct hf_rpc_call *call;
	hf_rpc_handler_fn again; /* when there is an answer */
	hf_rpc_handler_fn now;   /* when there is none */
};

static void leave(struct patience *patience)
{
	hf_nlm_turn_leave(patience->nlm, &patience->turn);
	hf_link_remove(&patience->link);
	hf_link_remove(&patience->heard);
	hf_timer_stop(&patience->timer);
}

static void end(struct patience *patience, hf_rpc_handler_fn handler)
{
	struct hf_nlm *nlm = patience->nlm;

	leave(patience);
	hf_nlm_turn_serve(nlm, &patience->turn, patience->call, handler);
	hf_nlm_turn_pass(nlm, &patience->turn);
	free(patience);
}

static void on_hurry(struct hf_nlm_turn *turn)
{
	struct patience *patience = hf_container_of(turn, struct patience, turn);

	end(patience, patience->now);
}

static void on_timer(struct hf_timer *timer)
{
	struct patience *patience = hf_container_of(timer, struct patience, timer);

	end(patience, patience->now);
}

static void on_heard(struct hf_task *task)
{
	struct hf_nlm *nlm = hf_container_of(task, struct hf_nlm, heard_task);
	struct hf_link *link;

	while ((link = hf_list_pop_front(&nlm->heard))) {
		struct patience *patience = hf_list_entry(link, struct patience, heard);

		end(patience, patience->again);
	}
}

bool hf_nlm_await_answer(struct hf_nlm_op *op, hf_rpc_handler_fn again, hf_rpc_handler_fn now)
{
	struct hf_nlm *nlm = op->nlm;
	struct patience *patience;

	if (HF_LIKELY(!nlm->counts.grants_in_flight) ||
	    !hf_lock_is_guarded(nlm->locks, &op->target, op->range))
		return false;
	patience = malloc(sizeof(*patience));
	if (!patience)
		return false;
	*patience = (struct patience){ .nlm = nlm, .call = op->call, .again = again, .now = now };
	hf_timer_init(&patience->timer, nlm->options.loop, on_timer);
	hf_link_init(&patience->heard);
	hf_list_push_back(&nlm->patient, &patience->link);
	hf_nlm_turn_take(&patience->turn, op);
	patience->turn.hurry = on_hurry;
	if (hf_nlm_call_keep(nlm, op->call) < 0) {
		leave(patience);
		hf_nlm_turn_pass(nlm, &patience->turn);
		free(patience);
		return true; /* it has been answered: SYSTEM_ERR */
	}
	if (hf_timer_start(&patience->timer, PATIENCE_NS) < 0)
		end(patience, now);
	return true;
}

/* From inside the lock table: nothing is served here. */
void hf_nlm_note_answer(struct hf_nlm *nlm, const struct hf_lock_target *owner)
{
	struct hf_nlm_turn *turn;
	struct patience *patience;

	if (HF_LIKELY(hf_list_is_empty(&nlm->patient)))
		return;
	turn = hf_nlm_turn_find(nlm, owner);
	if (!turn || turn->hurry != on_hurry)
		return;
	patience = hf_container_of(turn, struct patience, turn);
	if (hf_link_is_linked(&patience->heard))
		return;
	hf_list_push_back(&nlm->heard, &patience->heard);
	hf_loop_defer(nlm->options.loop, &nlm->heard_task);
}

/* Life */

void hf_nlm_patience_init(struct hf_nlm *nlm)
{
	hf_list_init(&nlm->patient);
	hf_list_init(&nlm->heard);
	hf_task_init(&nlm->heard_task, on_heard);
}

/* The calls are the server's. */
void hf_nlm_patience_deinit(struct hf_nlm *nlm)
{
	struct hf_link *link;

	hf_task_cancel(&nlm->heard_task);
	while ((link = hf_list_first(&nlm->patient))) {
		struct patience *patience = hf_list_entry(link, struct patience, link);

		leave(patience);
		hf_nlm_turn_pass(nlm, &patience->turn);
		free(patience);
	}
}
