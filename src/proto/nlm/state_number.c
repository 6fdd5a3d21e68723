/*
 * The state number of a LOCK.
 *
 * A newer number than that of the client's life (client/client.h) tells that the client was restarted: what
 * it held before is released. An older number is from before that restart. Linux says 0 when it reclaims, or
 * when it does not know its number.
 *
 * A connection from a reserved port proves that the client's lock manager says the number. The source of a
 * datagram can be forged, and every user of a host can connect from an ordinary port. A number that comes so,
 * and would release something or replace a number that is known, is checked as a notice is
 * (proto/nsm/doubt.c). The LOCK is suspended meanwhile (CHECKING). If the number is not believed, the LOCK is
 * served all the same, and its number is not noted; for a second the same number is not checked again. If the
 * client took what it holds over a connection, the number in a datagram is not looked at, and the lock does
 * not carry it.
 *
 * A number in the name of a client of an export that demands TLS counts only with the proof that a notice
 * needs (proto/nsm/proof.c).
 */
#include <string.h>

#include "proto/nlm/internal.h"
#include "proto/nlm/op.h"
#include "proto/nsm/nsm.h"

/* A client is asked about once in this time. Not longer: a forger may have guessed its next number. */
#define REFUSED_NS (1 * HF_NS_PER_S)

/* Verdicts */

static void refuse_number(const struct hf_nlm_op *op, struct hf_client *client)
{
	client->refused_state = op->args.state;
	client->refused_until = hf_loop_now(op->nlm->options.loop) + REFUSED_NS;
	client->is_refusal_sure = op->checking.verdict == HF_NSM_DENIED;
	hf_log_debug("the state number of a lock request is not believed", "client=%s state=%d sure=%s",
		     client->id, op->args.state, op->checking.verdict == HF_NSM_DENIED ? "yes" : "no");
}

/* What the LOCK takes must not carry a number that the client's host denies: it would outlive the restart
 * that brings that number. */
static void drop_number(struct hf_nlm_op *op)
{
	op->args.state = 0;
}

static void on_verdict(struct hf_nsm_asker *asker, struct hf_client *client, enum hf_nsm_verdict verdict)
{
	struct hf_nlm_op *op = hf_container_of(asker, struct hf_nlm_op, checking.asker);

	op->checking.verdict = verdict;
	op->is_number_checked = true;
	if (verdict == HF_NSM_BELIEVED) {
		hf_recovery_client_state(op->nlm->options.recovery, client, op->args.state);
	} else if (asker->is_said) {
		/* No older number was known, so it is that of all that the client has. */
		hf_recovery_client_began(op->nlm->options.recovery, client, op->args.state);
	} else {
		refuse_number(op, client);
		if (verdict == HF_NSM_DENIED)
			drop_number(op);
	}
	hf_nlm_op_resume(op);
}

static enum hf_nlm_stat check(struct hf_nlm_op *op)
{
	if (!hf_nlm_op_can_suspend(op))
		return HF_NLM_DENIED_NOLOCKS;
	op = hf_nlm_op_suspend(op, HF_NLM_CHECKING, op->kind->run);
	if (!op)
		return HF_NLM_LATER;
	memset(&op->checking, 0, sizeof(op->checking));
	op->checking.asker.fn = on_verdict;
	op->checking.asker.is_lock = true;
	hf_link_init(&op->checking.asker.link);
	if (hf_nsm_doubt(op->nlm->monitor, op->call, op->client, op->args.state, &op->checking.asker) < 0) {
		op->next = hf_nlm_op_drop; /* the client asks again */
		hf_nlm_op_resume(op);
	}
	return HF_NLM_LATER;
}

/* Numbers that may be false */

static bool was_refused(const struct hf_nlm_op *op)
{
	const struct hf_client *client = op->client;

	return client->refused_state == op->args.state &&
	       hf_loop_now(op->nlm->options.loop) < client->refused_until;
}

/* The number would release nothing, and replace no number that is proven. */
static bool is_harmless(const struct hf_client *client)
{
	return hf_client_has_nothing(client) && !hf_client_proven_state(client);
}

/* The call says that it is from the client's lock manager. */
static HF_NOINLINE enum hf_nlm_stat note_unsure(struct hf_nlm_op *op)
{
	struct hf_recovery *recovery = op->nlm->options.recovery;
	struct hf_nsm *monitor = op->nlm->monitor;
	struct hf_client *client = op->client;
	int32_t state = op->args.state, known = hf_client_life_state(client);

	if (op->is_number_checked)
		return HF_NLM_GRANTED_STAT;
	if (client->link && hf_rpc_call_transport(op->call) == HF_RPC_UDP) {
		if (state != known)
			drop_number(op);
		return HF_NLM_GRANTED_STAT;
	}
	if (state == client->sm_state && state == known) {
		hf_client_note_lock_state(client, state);
	} else if (!monitor || hf_nsm_is_superuser(monitor, op->call)) {
		hf_recovery_client_state(recovery, client, state);
		client->lock_state = state;
	} else if (hf_nsm_baseline_says(client, state)) {
		hf_recovery_client_began(recovery, client, state);
		client->lock_state = state;
	} else if ((known && !hf_client_is_newer(state, known)) ||
		   !hf_recovery_is_new_restart(recovery, client, state)) {
		hf_client_note_lock_state(client, state);
	} else if (is_harmless(client)) {
		hf_recovery_client_state(recovery, client, state);
		hf_recovery_client_proves(client, false);
		client->lock_state = state;
	} else if (!was_refused(op)) {
		return check(op);
	} else if (client->is_refusal_sure) {
		drop_number(op);
	}
	return HF_NLM_GRANTED_STAT;
}

enum hf_nlm_stat hf_nlm_note_number(struct hf_nlm_op *op)
{
	struct hf_client *client = op->client;
	int32_t state = op->args.state;

	if (state == 0)
		return HF_NLM_GRANTED_STAT;
	/* The lock carries the number, so that the notice with the same number does not release it. */
	if (HF_UNLIKELY(client->is_secured) && state != hf_client_life_state(client) && op->nlm->monitor &&
	    !hf_nsm_has_proof(op->nlm->monitor, op->call, client))
		return HF_NLM_GRANTED_STAT;
	if (!hf_nsm_is_from_lock_manager(op->call)) {
		/* Most often the number is the known one, and is noted already. */
		if (HF_LIKELY(state == client->sm_state && state == client->lock_state))
			return HF_NLM_GRANTED_STAT;
		return note_unsure(op);
	}
	if (HF_UNLIKELY(state != hf_client_proven_state(client)))
		hf_recovery_client_state(op->nlm->options.recovery, client, state);
	client->lock_state = state;
	return HF_NLM_GRANTED_STAT;
}
