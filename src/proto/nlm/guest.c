/*
 * A call by UDP that takes something, and whose sender may be forged.
 *
 * As a rule it is served at once: a lock must not wait for the rpcbind of its
 * client. But what forged datagrams take is never given back. So it is bounded: the
 * clients that nothing confirms have a part of the places (client/places.c), and
 * they may add to the lock table while less than an eighth of each limit is used. Where
 * that is exceeded, the call waits until its host has answered (proto/nsm/meet.c). If
 * the host does not, the call is dropped: a client that exists sends it again.
 *
 * What a client reclaims is not bounded: the server has promised that.
 *
 * No call waits behind it. Another call of the same owner about the same file ends
 * the waiting, and the first call is dropped, so one owner has one call here.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/nlm/internal.h"
#include "proto/nsm/nsm.h"

struct hf_nlm_guest {
	struct hf_nlm_turn turn;
	struct hf_nsm_guest met;
	struct hf_nlm *nlm;
	struct hf_client *client; /* a reference */
	struct hf_rpc_call *call;
	hf_rpc_handler_fn again;
};

static bool must_meet(const struct hf_nlm_op *op)
{
	const struct hf_nlm *nlm = op->nlm;
	struct hf_client *client = op->client;
	bool is_promised = op->args.reclaim && hf_client_is_registered(client);

	return nlm->monitor && hf_nsm_is_visitor(op->call) && !is_promised &&
	       (!hf_client_may_be_unmet(client) || hf_lock_is_scarce(nlm->locks, &op->target));
}

static void end(struct hf_nlm_guest *guest)
{
	hf_nlm_turn_pass(guest->nlm, &guest->turn);
	hf_client_unref(guest->client);
	free(guest);
}

static void drop(struct hf_nlm_guest *guest)
{
	hf_nlm_turn_leave(guest->nlm, &guest->turn);
	hf_nlm_call_drop(guest->nlm, guest->call);
	end(guest);
}

/* To the operator: the client hears nothing. */
static void say_dropped(const struct hf_nlm_guest *guest)
{
	struct hf_nlm *nlm = guest->nlm;
	uint64_t n_suppressed;
	char quoted[256];

	if (!hf_log_limit_allow(&nlm->unmet, hf_loop_now(nlm->options.loop), &n_suppressed))
		return;
	hf_log_warn("a call over UDP is dropped: clients whose hosts do not answer have all that they may "
		    "have, and "
		    "this host does not answer; over TCP it is served",
		    "client=%s unconfirmed=%zu more=%llu",
		    hf_log_quote(quoted, sizeof(quoted), guest->client->id, strlen(guest->client->id)),
		    hf_clients_count_unmet(nlm->clients), (unsigned long long)n_suppressed);
}

static void on_met(struct hf_nsm_guest *met, bool has_answered)
{
	struct hf_nlm_guest *guest = hf_container_of(met, struct hf_nlm_guest, met);

	if (!has_answered) {
		say_dropped(guest);
		drop(guest);
		return;
	}
	hf_client_answered(guest->client);
	hf_nlm_turn_leave(guest->nlm, &guest->turn);
	/* Where the host has answered for too many names, its answer does not count for this one. */
	hf_nlm_turn_serve(guest->nlm, &guest->turn, guest->call,
			  guest->client->is_confirmed ? guest->again : hf_nlm_refuse_kept);
	end(guest);
}

static void on_hurry(struct hf_nlm_turn *turn)
{
	struct hf_nlm_guest *guest = hf_container_of(turn, struct hf_nlm_guest, turn);

	hf_nsm_guest_leave(&guest->met);
	drop(guest);
}

bool hf_nlm_await_host_slowly(struct hf_nlm_op *op, hf_rpc_handler_fn again)
{
	struct hf_nlm *nlm = op->nlm;
	struct hf_nlm_guest *guest;

	if (!must_meet(op))
		return false;
	guest = calloc(1, sizeof(*guest));
	if (!guest) {
		hf_nlm_call_drop(nlm, op->call);
		return true;
	}
	*guest = (struct hf_nlm_guest){ .nlm = nlm, .call = op->call, .again = again };
	guest->client = hf_client_ref(op->client);
	guest->met.fn = on_met;
	hf_nlm_turn_take(&guest->turn, op);
	guest->turn.hurry = on_hurry;
	if (hf_nlm_call_keep(nlm, op->call) < 0) {
		hf_nlm_turn_leave(nlm, &guest->turn);
		end(guest); /* the call has been answered: SYSTEM_ERR */
	} else if (hf_nsm_meet(nlm->monitor, op->call, &guest->met) < 0) {
		drop(guest);
	}
	return true;
}
