/*
 * Replies that wait for the turn's write, all together.
 *
 * With lock_durability process a lock is as durable as promised as soon as its
 * record is in the page cache, a moment after it was granted. To keep a call for
 * that moment, and to take it up again, costs nearly as much as to serve it. So
 * the reply is made at once, into the queue of its connection, and the
 * connection is held until the store has written (rpc/hold.h): one promise for all
 * replies of a turn. If the store cannot, the locks are released again and the
 * replies changed where they are, before anybody sees them.
 *
 * There are two sets, since more may come while the medium is slow: one fills, as
 * long as the store has not begun with its records, and one waits. Whatever fits in
 * neither is kept as a call (reply.c).
 */
#include <stdlib.h>
#include <string.h>

#include "proto/nlm/internal.h"

#define MAX_GRANTS   1024
#define FIRST_GRANTS 64

/* What is to be done if it cannot be kept. */
struct hf_nlm_held_grant {
	struct hf_client *client;                   /* a reference */
	const struct hf_rpc_connection *connection; /* whose reply it is */
	uint8_t *stat;                              /* in the reply; NULL: it is gone */
	struct hf_range range;
	uint64_t owner_id;
	uint32_t share;
	bool is_new;
	bool waits; /* it would have waited */
	uint8_t mode;
	uint8_t handle_len;
	uint8_t handle[HF_LOCK_HANDLE_MAX];
};

/* The end of a set */

static void undo(struct hf_nlm *nlm, const struct hf_nlm_held_grant *grant)
{
	const struct hf_lock_target who = {
		.share = grant->share,
		.handle = hf_bytes_of(grant->handle, grant->handle_len),
		.client = &grant->client->holds,
		.owner_id = grant->owner_id,
	};

	if (grant->is_new)
		hf_lock_take_back(nlm->locks, &who, grant->range);
	else if (grant->waits)
		hf_lock_leave_queue(nlm->locks, &who, grant->range, (enum hf_lock_mode)grant->mode);
	if (grant->stat)
		hf_xdr_set_word(grant->stat, HF_NLM_DENIED_NOLOCKS);
}

static void forget_grants(struct hf_nlm_held *held)
{
	for (size_t i = 0; i < held->n_grants; i++)
		hf_client_unref(held->grants[i].client);
	held->n_grants = 0;
}

static void on_promise(struct hf_promise *promise, bool kept)
{
	struct hf_nlm_held *held = hf_container_of(promise, struct hf_nlm_held, promise);

	held->is_waiting = false;
	for (size_t i = 0; !kept && i < held->n_grants; i++)
		undo(held->nlm, &held->grants[i]);
	forget_grants(held);
	hf_rpc_hold_release(&held->hold);
}

static void on_gone(struct hf_rpc_hold *hold, const struct hf_rpc_connection *connection)
{
	struct hf_nlm_held *held = hf_container_of(hold, struct hf_nlm_held, hold);

	for (size_t i = 0; i < held->n_grants; i++)
		if (held->grants[i].connection == connection)
			held->grants[i].stat = NULL;
}

/* Joining one */

/* The one that takes more; NULL: both wait for the medium. The promise is made when the reply is. The result
 * of a _MSG is a call of ours, and nothing holds that. */
static struct hf_nlm_held *choose(const struct hf_nlm_op *op)
{
	struct hf_nlm *nlm = op->nlm;
	struct hf_nlm_held *held = &nlm->held[nlm->filling];

	if (hf_nlm_is_msg(op->call))
		return NULL;
	if (!held->is_waiting || hf_recovery_promise_more(nlm->options.recovery, &held->promise))
		return held;
	held = &nlm->held[nlm->filling ^ 1];
	if (held->is_waiting)
		return NULL;
	nlm->filling ^= 1;
	return held;
}

static void promise(struct hf_nlm_held *held)
{
	struct hf_recovery *recovery = held->nlm->options.recovery;

	if (!held->is_waiting) {
		held->is_waiting = true;
		if (hf_recovery_promise(recovery, &held->promise, NULL, on_promise)) {
			on_promise(&held->promise, true);
			return;
		}
	}
	hf_recovery_hurry(recovery);
}

static bool has_room(struct hf_nlm_held *held)
{
	size_t capacity = held->capacity ? held->capacity * 2 : FIRST_GRANTS;
	struct hf_nlm_held_grant *grants;

	if (held->n_grants < held->capacity)
		return true;
	if (capacity > MAX_GRANTS)
		return false;
	grants = realloc(held->grants, capacity * sizeof(*grants));
	if (!grants)
		return false;
	held->grants = grants;
	held->capacity = capacity;
	return true;
}

/* The status is the last word of the reply. @op's call is gone afterwards. */
static uint8_t *reply(struct hf_nlm_op *op, enum hf_nlm_stat stat)
{
	struct hf_rpc_call *call = op->call;
	struct hf_bytes cookie = op->args.cookie;
	struct hf_xdr_out *out = hf_rpc_reply_begin(call, 16 + cookie.len);
	uint8_t *at;

	hf_rpc_call_note(call, hf_nlm_stat_name(stat));
	hf_nlm_put_res(out, op->version, cookie, stat);
	at = hf_xdr_out_is_ok(out) ? out->p - 4 : NULL;
	hf_rpc_reply_end(call);
	return at;
}

bool hf_nlm_hold_granted(struct hf_nlm_op *op, bool is_new)
{
	const struct hf_lock_target *who = &op->target;
	const struct hf_rpc_connection *connection;
	struct hf_nlm_held *held = choose(op);
	struct hf_nlm_held_grant *grant;

	if (!held || !has_room(held) || !(connection = hf_rpc_hold_call(&held->hold, op->call)))
		return false;
	grant = &held->grants[held->n_grants++];
	grant->client = op->client;
	op->client = NULL;
	grant->connection = connection;
	grant->range = op->range;
	grant->owner_id = who->owner_id;
	grant->share = who->share;
	grant->is_new = is_new;
	grant->waits = op->args.block;
	grant->mode = op->args.exclusive ? HF_LOCK_EXCLUSIVE : HF_LOCK_SHARED;
	grant->handle_len = (uint8_t)who->handle.len;
	memmove(grant->handle, who->handle.data,
		who->handle.len); /* a memcpy would be slower: see hf_oh_set() */
	grant->stat = reply(op, HF_NLM_GRANTED_STAT);
	promise(held);
	return true;
}

bool hf_nlm_hold_released(struct hf_nlm_op *op, enum hf_nlm_stat stat)
{
	struct hf_nlm_held *held = choose(op);

	if (!held || !hf_rpc_hold_call(&held->hold, op->call))
		return false;
	hf_nlm_reply(op->nlm, op->call, op->args.cookie, stat);
	promise(held);
	return true;
}

/* Life */

void hf_nlm_held_init(struct hf_nlm *nlm)
{
	for (size_t i = 0; i < HF_ARRAY_SIZE(nlm->held); i++) {
		nlm->held[i].nlm = nlm;
		hf_rpc_hold_init(&nlm->held[i].hold, on_gone);
	}
}

/* Nobody is told any more, as if we had been killed. */
void hf_nlm_held_deinit(struct hf_nlm *nlm)
{
	for (size_t i = 0; i < HF_ARRAY_SIZE(nlm->held); i++) {
		struct hf_nlm_held *held = &nlm->held[i];

		hf_promise_cancel(&held->promise);
		hf_rpc_hold_deinit(&held->hold);
		forget_grants(held);
		free(held->grants);
	}
}
