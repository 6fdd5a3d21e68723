/*
 * The state number of a LOCK. A newer one than the last tells that the client was restarted, and what it held
 * before goes. An older one is a straggler from before that, and 0 is what Linux says when it reclaims or
 * does not know yet.
 *
 * What comes over a connection is from the client's address. The source of a datagram can be forged. So a
 * number in a datagram that would release something, or take the place of a number that we know, is checked
 * as a notice is (proto/nsm/doubt.c). The LOCK waits for the verdict, and what its owner asks about that file
 * waits behind it (turn.c). Where the number is not believed the LOCK is served all the same, and its number
 * is not noted; for a while the same number is not asked about again. Where the client took what it holds
 * over a connection, the number in a datagram is not looked at.
 */
#include <stdlib.h>

#include "proto/nlm/internal.h"
#include "proto/nsm/nsm.h"

/* Longer than a disk takes to answer whether the client may lock, as a rule: that is asked again after the
 * check. */
#define REFUSED_NS (60 * HF_NS_PER_S)

/* A LOCK whose number is being checked. */
struct hf_nlm_suspicion {
	struct hf_nsm_asker asker;
	struct hf_nlm_turn turn;
	struct hf_nlm *nlm;
	struct hf_rpc_call *call;
	hf_rpc_handler_fn again;
	int32_t state;
	enum hf_nsm_verdict verdict;
};

/* Verdicts */

static void refuse_number(const struct hf_nlm_suspicion *suspicion, struct hf_client *client)
{
	client->refused_state = suspicion->state;
	client->refused_until = hf_loop_now(suspicion->nlm->options.loop) + REFUSED_NS;
	hf_log_debug("the state number of a lock request is not believed", "client=%s state=%d sure=%s",
		     client->id, suspicion->state, suspicion->verdict == HF_NSM_DENIED ? "yes" : "no");
}

static void on_verdict(struct hf_nsm_asker *asker, struct hf_client *client, enum hf_nsm_verdict verdict)
{
	struct hf_nlm_suspicion *suspicion = hf_container_of(asker, struct hf_nlm_suspicion, asker);
	struct hf_nlm *nlm = suspicion->nlm;
	const struct hf_nlm_suspicion *outer = nlm->judged;

	suspicion->verdict = verdict;
	if (verdict == HF_NSM_BELIEVED)
		hf_recovery_client_state(nlm->options.recovery, client, suspicion->state);
	else
		refuse_number(suspicion, client);
	hf_nlm_turn_leave(nlm, &suspicion->turn);
	nlm->judged = suspicion;
	hf_nlm_turn_serve(nlm, &suspicion->turn, suspicion->call, suspicion->again);
	nlm->judged = outer;
	hf_nlm_turn_pass(nlm, &suspicion->turn);
	free(suspicion);
}

static enum hf_nlm_stat check(struct hf_nlm_op *op, hf_rpc_handler_fn again)
{
	struct hf_nlm *nlm = op->nlm;
	struct hf_nlm_suspicion *suspicion = calloc(1, sizeof(*suspicion));

	if (!suspicion)
		return HF_NLM_DENIED_NOLOCKS;
	suspicion->asker.fn = on_verdict;
	hf_link_init(&suspicion->asker.link);
	suspicion->nlm = nlm;
	suspicion->call = op->call;
	suspicion->again = again;
	suspicion->state = op->args.state;
	hf_nlm_turn_take(&suspicion->turn, op);
	if (hf_nlm_call_keep(nlm, op->call) == 0) {
		if (hf_nsm_doubt(nlm->monitor, op->call, op->client, suspicion->state, &suspicion->asker) ==
		    0)
			return HF_NLM_LATER;
		hf_nlm_call_drop(nlm, op->call); /* its client asks again */
	}
	hf_nlm_turn_leave(nlm, &suspicion->turn);
	hf_nlm_turn_pass(nlm, &suspicion->turn);
	free(suspicion);
	return HF_NLM_LATER;
}

/* Datagrams */

static bool is_newer(int32_t state, int32_t than)
{
	return (int32_t)((uint32_t)state - (uint32_t)than) > 0;
}

/* A LOCK that is served after the check. What it takes does not carry a number that the client's host denies:
 * it would outlive the restart that brings that number. */
static bool was_checked(struct hf_nlm_op *op)
{
	const struct hf_nlm_suspicion *judged = op->nlm->judged;

	if (!judged || judged->call != op->call)
		return false;
	if (judged->verdict == HF_NSM_DENIED)
		op->args.state = 0;
	return true;
}

static bool was_refused(const struct hf_nlm_op *op)
{
	const struct hf_client *client = op->client;

	return client->refused_state == op->args.state &&
	       hf_loop_now(op->nlm->options.loop) < client->refused_until;
}

/* Nothing is released, and no number that is known for sure is replaced. */
static bool is_harmless(const struct hf_client *client)
{
	return hf_client_has_nothing(client) && !hf_client_proven_state(client);
}

/* A datagram of its client's, or so it says. */
static HF_NOINLINE enum hf_nlm_stat note_datagram(struct hf_nlm_op *op, hf_rpc_handler_fn again)
{
	struct hf_recovery *recovery = op->nlm->options.recovery;
	struct hf_nsm *monitor = op->nlm->monitor;
	struct hf_client *client = op->client;
	int32_t state = op->args.state;

	if (client->link || was_checked(op))
		return HF_NLM_GRANTED_STAT;
	if (state == client->sm_state) {
		client->lock_state = state;
	} else if (!monitor || hf_nsm_is_trusted(monitor, op->call, client)) {
		hf_recovery_client_state(recovery, client, state);
		client->lock_state = state;
	} else if (hf_nsm_sight_says(client, state)) {
		hf_recovery_client_began(recovery, client, state);
		client->lock_state = state;
	} else if ((client->sm_state && !is_newer(state, client->sm_state)) ||
		   !hf_recovery_is_news(recovery, client, state)) {
		client->lock_state = state;
	} else if (is_harmless(client)) {
		hf_recovery_client_state(recovery, client, state);
		hf_recovery_client_proves(client, false);
		client->lock_state = state;
	} else if (!was_refused(op)) {
		return check(op, again);
	}
	return HF_NLM_GRANTED_STAT;
}

enum hf_nlm_stat hf_nlm_note_number(struct hf_nlm_op *op, hf_rpc_handler_fn again)
{
	struct hf_client *client = op->client;
	int32_t state = op->args.state;

	if (state == 0)
		return HF_NLM_GRANTED_STAT;
	if (HF_UNLIKELY(hf_rpc_call_transport(op->call) == HF_RPC_UDP))
		return note_datagram(op, again);
	if (HF_UNLIKELY(state != hf_client_proven_state(client)))
		hf_recovery_client_state(op->nlm->options.recovery, client, state);
	client->lock_state = state;
	return HF_NLM_GRANTED_STAT;
}
