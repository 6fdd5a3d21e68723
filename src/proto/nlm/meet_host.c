/*
 * A call by UDP that takes something, and whose sender may be forged.
 *
 * As a rule it is served at once: a lock must not wait for the rpcbind of its client. But what forged
 * datagrams take is never given back, so it is bounded. The clients that nothing confirms have a part of the
 * places (client/places.c), and add to the lock table only while less than an eighth of each limit is used.
 * Beyond that the operation is suspended until its host has answered (MEETING, proto/nsm/meet.c). If the host
 * does not answer, the call is dropped: a client that exists sends it again.
 *
 * What a client reclaims is not bounded: the server has promised that.
 *
 * Another call of the same owner about the same file ends the wait, and the first call is dropped. So one
 * owner has at most one call here.
 */
#include <string.h>

#include "proto/nlm/internal.h"
#include "proto/nlm/op.h"
#include "proto/nsm/nsm.h"

static bool must_meet(struct hf_nlm_op *op)
{
	const struct hf_nlm *nlm = op->nlm;
	struct hf_client *client = op->client;
	bool is_promised = op->args.reclaim && hf_client_is_registered(client);

	if (!nlm->monitor || !hf_nsm_is_foreign_datagram(op->call) || is_promised)
		return false;
	op->lacks_place = !hf_client_may_be_unmet(client);
	return op->lacks_place || hf_lock_is_scarce(nlm->locks, &op->target);
}

/* To the operator: the client hears nothing. */
static void say_dropped(const struct hf_nlm_op *op)
{
	struct hf_nlm *nlm = op->nlm;
	uint64_t n_suppressed;
	char quoted[256];

	if (!hf_log_limit_allow(&nlm->unmet, hf_loop_now(nlm->options.loop), &n_suppressed))
		return;
	hf_log_warn("a call over UDP is dropped: clients whose hosts do not answer have all that they may "
		    "have, and this host does not answer; over TCP it is served",
		    "client=%s unconfirmed=%zu more=%llu",
		    hf_log_quote(quoted, sizeof(quoted), op->client->id, strlen(op->client->id)),
		    hf_clients_count_unmet(nlm->clients), (unsigned long long)n_suppressed);
}

static void on_met(struct hf_nsm_guest *guest, bool has_answered)
{
	struct hf_nlm_op *op = hf_container_of(guest, struct hf_nlm_op, meeting);

	if (!has_answered) {
		if (op->lacks_place)
			hf_clients_count_refused_unmet(op->nlm->clients);
		say_dropped(op);
		op->next = hf_nlm_op_drop;
	} else {
		hf_client_answered(op->client);
		op->has_met_host = true;
	}
	hf_nlm_op_resume(op);
}

enum hf_nlm_stat hf_nlm_meet_host(struct hf_nlm_op *op)
{
	if (op->has_met_host) /* the host has answered for too many names: that does not count for this one */
		return HF_NLM_DENIED_NOLOCKS;
	if (!must_meet(op))
		return HF_NLM_GRANTED_STAT;
	if (!hf_nlm_op_can_suspend(op)) {
		hf_nlm_op_drop(op);
		return HF_NLM_LATER;
	}
	op = hf_nlm_op_suspend(op, HF_NLM_MEETING, op->kind->run);
	if (!op)
		return HF_NLM_LATER;
	op->meeting = (struct hf_nsm_guest){ .fn = on_met };
	if (hf_nsm_meet(op->nlm->monitor, op->call, &op->meeting) < 0) {
		op->next = hf_nlm_op_drop;
		hf_nlm_op_resume(op);
	}
	return HF_NLM_LATER;
}
