/* One operation: suspended, resumed and ended. The stages are drawn in op.h; program.c begins it. */
#include "proto/nlm/op.h"

#include <string.h>

#include "base/error.h"
#include "proto/nlm/internal.h"

#define STEPS_PER_UNIT 16 /* about a microsecond: as much as a short call */

/* Lives */

static struct hf_nlm_life life_begin(const struct hf_nlm_op *op)
{
	const struct hf_addr *peer = hf_rpc_call_peer(op->call);
	struct hf_client *client =
		op->kind->takes ? hf_nlm_meet_client(op->nlm, peer, op->args.caller, false) : NULL;

	if (!client)
		return (struct hf_nlm_life){ 0 };
	return (struct hf_nlm_life){
		.client = client,
		.n_crashes = hf_recovery_count_crashes(client),
		.known_state = client->sm_state,
		.had_nothing = hf_client_has_nothing(client),
		.state = op->args.state,
		.says_another = op->args.state && op->args.state != hf_client_life_state(client),
	};
}

/* A forger had guessed the number of the client's next life before the call came. So that number was the
 * known one already when the client said it, and no restart was counted. But the client had nothing then, and
 * has something now, by LOCKs with a newer number than that of the call. */
static bool is_overtaken(const struct hf_nlm_life *life)
{
	const struct hf_client *client = life->client;

	return life->had_nothing && life->state && client->lock_state &&
	       hf_client_is_newer(client->lock_state, life->state) && !hf_client_has_nothing(client);
}

/* Where no crash was counted, because the client had nothing, a newer state number tells of one. A call that
 * says a newer number itself was sent after that restart. */
static bool has_crashed(const struct hf_nlm_life *life)
{
	const struct hf_client *client = life->client;

	if (!client)
		return false;
	if (hf_recovery_count_crashes(client) != life->n_crashes)
		return !life->says_another || !hf_recovery_crash_state(client) ||
		       hf_client_is_newer(hf_recovery_crash_state(client), life->state);
	if (life->state && client->sm_state != life->known_state &&
	    hf_client_is_newer(client->sm_state, life->state))
		return true;
	return is_overtaken(life);
}

/* Owner queues */

struct owner_key { /* without gaps, to be hashed; the file is the lock table's key for it */
	struct hf_addr host;
	int32_t svid;
	uint32_t handle_len;
	uint8_t handle[HF_NLM_MAX_HANDLE];
};

static uint64_t hash_owner(const struct hf_nlm *nlm, const struct hf_addr *host, int32_t svid,
			   struct hf_bytes handle)
{
	struct owner_key key;

	memset(&key, 0, sizeof(key));
	key.host = *host;
	key.host.port = 0;
	key.svid = svid;
	key.handle_len = handle.len;
	memcpy(key.handle, handle.data, handle.len);
	return hf_siphash(&nlm->key, &key, sizeof(key));
}

static uint64_t hash_owner_of(const struct hf_nlm_op *op)
{
	return hash_owner(op->nlm, hf_rpc_call_peer(op->call), op->args.svid, op->target.handle);
}

static struct hf_nlm_op *find_owner(const struct hf_nlm *nlm, const struct hf_addr *host, int32_t svid,
				    struct hf_bytes handle)
{
	hf_hash_for_each(node, &nlm->owners, hash_owner(nlm, host, svid, handle)) {
		struct hf_nlm_op *op = hf_container_of(node, struct hf_nlm_op, owner);

		if (op->args.svid == svid && hf_addr_same_host(hf_rpc_call_peer(op->call), host) &&
		    hf_bytes_equal(op->target.handle, handle))
			return op;
	}
	return NULL;
}

struct hf_nlm_op *hf_nlm_op_find(const struct hf_nlm *nlm, const struct hf_lock_target *owner)
{
	const struct hf_client *client = hf_container_of(owner->client, struct hf_client, locking);

	return find_owner(nlm, &client->address, (int32_t)owner->owner_id, owner->handle);
}

static bool occupies_queue(const struct hf_nlm_op *op)
{
	switch (op->stage) {
	case HF_NLM_ASKING:
	case HF_NLM_MEETING:
	case HF_NLM_AWAITING_GRANT:
		return true;
	case HF_NLM_CHECKING:
		return op->kind->takes;
	case HF_NLM_STORING:
		return op->finish == HF_NLM_FINISH_DOWNGRADE;
	default:
		return false;
	}
}

static void enter_queue(struct hf_nlm_op *op)
{
	hf_list_init(&op->queue);
	hf_link_init(&op->queue_link);
	op->is_queue_head = occupies_queue(op);
	if (op->is_queue_head)
		hf_hashtable_insert(&op->nlm->owners, &op->owner, hash_owner_of(op));
}

static void leave_queue(struct hf_nlm_op *op, struct hf_list *behindp)
{
	hf_list_init(behindp);
	hf_list_splice(behindp, &op->queue);
	if (op->is_queue_head)
		hf_hashtable_remove(&op->nlm->owners, &op->owner);
}

static struct hf_nlm_op *find_ahead(const struct hf_nlm_op *op)
{
	return find_owner(op->nlm, hf_rpc_call_peer(op->call), op->args.svid, op->target.handle);
}

/* Nothing queues behind an operation in these stages: the next call of the owner ends its wait. */
static bool is_queued_behind(const struct hf_nlm_op *op)
{
	return op->stage != HF_NLM_MEETING && op->stage != HF_NLM_AWAITING_GRANT;
}

static void end_wait(struct hf_nlm_op *op)
{
	if (op->stage == HF_NLM_MEETING)
		op->next = hf_nlm_op_drop;
	else
		op->is_impatient = true;
	hf_nlm_op_resume(op);
}

bool hf_nlm_op_queue_busy(struct hf_nlm_op *op)
{
	struct hf_nlm_op *ahead;

	/* An operation whose wait was ended may be suspended anew, and then be queued behind. */
	while ((ahead = find_ahead(op)) && !is_queued_behind(ahead))
		end_wait(ahead);
	if (!ahead)
		return false;
	op = hf_nlm_op_suspend(op, HF_NLM_QUEUED, op->kind->run);
	if (op)
		hf_list_push_back(&ahead->queue, &op->queue_link);
	return true;
}

/* Suspending */

bool hf_nlm_op_can_suspend(struct hf_nlm_op *op)
{
	return op->is_on_heap || hf_pool_reserve(&op->nlm->ops, 1) == 0;
}

static void forget_repeat(struct hf_nlm_op *op)
{
	if (op->repeat)
		hf_replay_forget(op->nlm->repeats, op->repeat);
}

static void move_bytes(struct hf_bytes *bytes, struct hf_bytes from, const uint8_t *to)
{
	uintptr_t at = (uintptr_t)bytes->data - (uintptr_t)from.data;

	if (at <= from.len)
		bytes->data = to + at;
}

/* The message moves when its call stays, and the views into it move along. */
static void follow_message(struct hf_nlm_op *op, struct hf_bytes from)
{
	const uint8_t *to = hf_rpc_call_message(op->call).data;

	move_bytes(&op->args.cookie, from, to);
	move_bytes(&op->args.caller, from, to);
	move_bytes(&op->args.handle, from, to);
	move_bytes(&op->args.oh, from, to);
	move_bytes(&op->target.handle, from, to);
	move_bytes(&op->target.oh, from, to);
}

static int suspend_call(struct hf_nlm_op *op)
{
	struct hf_bytes from = hf_rpc_call_message(op->call);
	int r;

	if (!hf_nlm_op_can_suspend(op)) {
		hf_rpc_reply_error(op->call, HF_RPC_SYSTEM_ERR);
		return -ENOMEM;
	}
	r = hf_rpc_call_suspend(op->call);
	if (r == 0)
		follow_message(op, from);
	return r;
}

static struct hf_nlm_op *move_to_heap(const struct hf_nlm_op *from)
{
	struct hf_nlm_op *op = hf_pool_take(&from->nlm->ops);

	memcpy(op, from, offsetof(struct hf_nlm_op, link));
	op->is_on_heap = true;
	if (op->target.handle.data == from->key.bytes)
		op->target.handle.data = op->key.bytes;
	hf_list_push_back(&op->nlm->suspended, &op->link);
	return op;
}

struct hf_nlm_op *hf_nlm_op_suspend(struct hf_nlm_op *op, enum hf_nlm_stage stage,
				    void (*next)(struct hf_nlm_op *op))
{
	if (suspend_call(op) < 0) {
		forget_repeat(op);
		hf_nlm_op_end(op);
		return NULL;
	}
	if (!op->is_on_heap)
		op = move_to_heap(op);
	op->stage = stage;
	op->next = next;
	op->life = stage == HF_NLM_STORING ? (struct hf_nlm_life){ 0 } : life_begin(op);
	enter_queue(op);
	return op;
}

/* Resuming */

static void leave_stage(struct hf_nlm_op *op)
{
	if (op->stage == HF_NLM_AWAITING_GRANT) {
		hf_timer_stop(&op->awaiting.timer);
		hf_link_remove(&op->awaiting.answered);
	} else if (op->stage == HF_NLM_MEETING) {
		hf_nsm_guest_leave(&op->meeting);
	}
}

/*
 * Looks the caller up again. Two kinds of call are dropped, so that the client repeats them: any call while
 * the server stops; and a reclaim after a crash of the client, which may be of either life (a SHARE has no
 * number). A client does not repeat a reclaim that is refused.
 */
static void run_on(struct hf_nlm_op *op, const struct hf_nlm_life *life)
{
	bool is_of_old_life = has_crashed(life);

	if (hf_recovery_is_stopping(op->nlm->options.recovery) || (op->args.reclaim && is_of_old_life)) {
		hf_nlm_op_drop(op);
	} else if (is_of_old_life) {
		hf_nlm_reply(op, HF_NLM_DENIED_GRACE_PERIOD);
	} else {
		op->client = hf_client_unref(op->client);
		op->next(op);
	}
}

/* The operations go on in order until one of them occupies the queue. The rest moves behind that one in one
 * step: if each of a long queue ran to queue again, for each that asks the disk, the queue would cost its
 * length squared. */
static void resume_behind(struct hf_list *behind)
{
	struct hf_link *link;

	while ((link = hf_list_first(behind))) {
		struct hf_nlm_op *op = hf_list_entry(link, struct hf_nlm_op, queue_link);
		struct hf_nlm_op *ahead = find_ahead(op);

		if (ahead && is_queued_behind(ahead)) {
			hf_list_splice(&ahead->queue, behind);
			break;
		}
		hf_link_remove(link);
		hf_nlm_op_resume(op);
	}
}

void hf_nlm_op_resume(struct hf_nlm_op *op)
{
	struct hf_nlm_life life = op->life;
	struct hf_list behind;

	leave_stage(op);
	leave_queue(op, &behind);
	op->life.client = NULL;
	if (op->stage == HF_NLM_STORING)
		op->next(op);
	else
		run_on(op, &life);
	resume_behind(&behind); /* @op may be gone here, or suspended anew */
	hf_client_unref(life.client);
}

/* Ending */

void hf_nlm_op_end(struct hf_nlm_op *op)
{
	hf_client_unref(op->client);
	if (HF_UNLIKELY(op->is_on_heap)) {
		hf_link_remove(&op->link);
		hf_pool_give(&op->nlm->ops, op);
	}
}

void hf_nlm_op_spend(struct hf_nlm_op *op)
{
	uint64_t n_units = hf_lock_take_steps(op->nlm->locks) / STEPS_PER_UNIT;

	if (HF_UNLIKELY(n_units))
		hf_rpc_call_spend(op->call, (uint32_t)HF_MIN(n_units, (uint64_t)UINT32_MAX));
}

void hf_nlm_op_drop(struct hf_nlm_op *op)
{
	forget_repeat(op);
	hf_rpc_call_drop(op->call);
	hf_nlm_op_end(op);
}

void hf_nlm_op_reply_garbage(struct hf_nlm_op *op)
{
	forget_repeat(op);
	hf_rpc_reply_garbage(op->call);
}

static void put_results(struct hf_xdr_out *out, const struct hf_nlm_op *op, enum hf_nlm_stat stat)
{
	switch (op->kind->results) {
	case HF_NLM_RES:
		hf_nlm_put_res(out, op->version, op->args.cookie, stat);
		break;
	case HF_NLM_SHARE_RES:
		hf_nlm_put_share_res(out, op->version, op->args.cookie, stat);
		break;
	case HF_NLM_NO_RES:
		break;
	}
}

/* The server sends the results of a _MSG as a call. Not inline: a synchronous call needs no such buffer on
 * its stack. @holder: of a TEST; else NULL. */
static HF_NOINLINE void answer_msg(struct hf_nlm_op *op, enum hf_nlm_stat stat,
				   const struct hf_nlm_holder *holder)
{
	uint8_t results[HF_NLM_MAX_RES];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, results, sizeof(results));
	if (holder)
		hf_nlm_put_test_res(&out, op->version, op->args.cookie, stat, holder);
	else
		put_results(&out, op, stat);
	hf_nlm_msg_answer(op->nlm, op->call, op->repeat, hf_bytes_of(results, (uint32_t)(out.p - results)));
}

static void reply_as(struct hf_nlm_op *op, enum hf_nlm_stat stat, const char *result)
{
	hf_rpc_call_note(op->call, result);
	hf_nlm_count(op, stat);
	if (HF_LIKELY(!op->kind->is_msg)) {
		put_results(hf_rpc_reply_begin(op->call, 16 + op->args.cookie.len), op, stat);
		hf_rpc_reply_end(op->call);
	} else {
		answer_msg(op, stat, NULL);
	}
	hf_nlm_op_end(op);
}

void hf_nlm_reply(struct hf_nlm_op *op, enum hf_nlm_stat stat)
{
	reply_as(op, stat, hf_nlm_stat_name(stat));
}

void hf_nlm_op_put_off(struct hf_nlm_op *op)
{
	if (op->args.reclaim)
		hf_nlm_op_drop(op);
	else
		hf_nlm_reply(op, HF_NLM_DENIED_GRACE_PERIOD);
}

void hf_nlm_op_refuse(struct hf_nlm_op *op, enum hf_nlm_stat stat, const char *result)
{
	forget_repeat(op);
	op->repeat = NULL;
	hf_rpc_call_uncache(op->call);
	reply_as(op, stat, result);
}

void hf_nlm_reply_test(struct hf_nlm_op *op, enum hf_nlm_stat stat, const struct hf_nlm_holder *holder)
{
	hf_rpc_call_note(op->call, hf_nlm_stat_name(stat));
	hf_nlm_count(op, stat);
	if (!op->kind->is_msg) {
		hf_nlm_put_test_res(hf_rpc_reply_begin(op->call, HF_NLM_MAX_RES), op->version,
				    op->args.cookie, stat, holder);
		hf_rpc_reply_end(op->call);
	} else {
		answer_msg(op, stat, holder);
	}
	hf_nlm_op_end(op);
}

/* The keys of their files stay, or the UNLOCK that comes behind a LOCK would not find it. */
void hf_nlm_show_used_exports(const struct hf_nlm *nlm, void (*fn)(void *context, uint32_t export),
			      void *context)
{
	hf_list_for_each(link, &nlm->suspended)
		fn(context, hf_list_entry(link, const struct hf_nlm_op, link)->target.export);
}

/* Making and freeing */

void hf_nlm_ops_init(struct hf_nlm *nlm)
{
	hf_list_init(&nlm->suspended);
	hf_pool_init(&nlm->ops, sizeof(struct hf_nlm_op), _Alignof(struct hf_nlm_op));
}

/* The calls belong to the RPC server. */
void hf_nlm_ops_deinit(struct hf_nlm *nlm)
{
	hf_list_for_each(link, &nlm->suspended) {
		struct hf_nlm_op *op = hf_list_entry(link, struct hf_nlm_op, link);

		leave_stage(op);
		forget_repeat(op);
		hf_client_unref(op->client);
		hf_client_unref(op->life.client);
	}
	hf_hashtable_deinit(&nlm->owners);
	hf_pool_deinit(&nlm->ops);
}
