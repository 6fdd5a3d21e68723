/*
 * Replies that are sent when what they promise is durable, and what becomes of an operation that the store
 * cannot write.
 *
 * There are three ways. What is durable already is replied to at once. Where all that is missing is the
 * turn's write to the page cache (lock_durability process), the reply is batched, see below. Otherwise the
 * operation is suspended until the store has answered.
 *
 * What cannot be made durable is not granted. A wait is cancelled. A lock that only gave its owner something
 * new is released. A lock that repeated or replaced what the owner held stays, or the owner would lose what
 * it was promised before: it may then have more than it knows of, until it unlocks. For the same reason an
 * exclusive lock becomes a shared one only when that is stored: the owner must never have less than it was
 * promised. In each case the program that asked gets an error and does not wait: a wait for the same lock,
 * which may be in the queue or granted by now, is left.
 *
 * A reclaim gets no reply then. Its lock stays: the owner had it, and grace may be over when the client sends
 * the call again. Any refusal would be final. A client does not repeat a reclaim that is refused: it goes on
 * with a lock that the server does not have. A client does repeat a call that is not answered.
 */
#include "proto/nlm/durable_reply.h"

#include <stdlib.h>
#include <string.h>

#include "proto/nlm/internal.h"

static enum hf_recovery_durability durability_of(const struct hf_nlm_op *op)
{
	return hf_recovery_durability(op->nlm->options.recovery, op->client);
}

/* Doing and undoing */

struct lock_of {
	struct hf_lock_target who;
	struct hf_range range;
	enum hf_lock_mode mode;
	bool waits; /* it would have waited */
};

static void undo_lock(struct hf_locks *locks, const struct lock_of *lock, enum hf_nlm_finish finish)
{
	switch (finish) {
	case HF_NLM_FINISH_NEW_LOCK:
		hf_lock_take_back(locks, &lock->who, lock->range);
		break;
	case HF_NLM_FINISH_WAIT:
		hf_lock_cancel(locks, &lock->who, lock->range, lock->mode);
		break;
	case HF_NLM_FINISH_REPEAT:
	case HF_NLM_FINISH_DOWNGRADE:
		if (lock->waits)
			hf_lock_leave_queue(locks, &lock->who, lock->range, lock->mode);
		break;
	default:
		break;
	}
}

/* The client is told that it does not have the reservation, and would never give it back. Reservations are
 * counted, so one more and one less leave what it had before. One that was reclaimed it had: it stays, and is
 * not added again. */
static void undo_reservation(struct hf_nlm_op *op)
{
	struct hf_lock_reservation_view view = hf_nlm_reservation_view(op);

	if (op->args.reclaim)
		hf_recovery_unsure_reservation(op->nlm->options.recovery, &view);
	else
		hf_lock_unreserve(op->nlm->locks, &op->target, view.access, view.deny);
}

static struct lock_of describe(const struct hf_nlm_op *op)
{
	return (struct lock_of){ op->target, op->range, hf_nlm_mode(op),
				 op->args.block && !op->args.reclaim };
}

void hf_nlm_undo(struct hf_nlm_op *op, enum hf_nlm_finish finish)
{
	struct lock_of lock = describe(op);

	if (finish == HF_NLM_FINISH_RESERVATION)
		undo_reservation(op);
	else
		undo_lock(op->nlm->locks, &lock, finish);
}

/* Unless its client has died since. Grace may have begun since, too (SM_SIMU_CRASH): what was served before
 * it is done as a reclaim is. */
static void downgrade(struct hf_nlm_op *op)
{
	struct hf_locks *locks = op->nlm->locks;
	struct hf_lock_request lock = {
		.who = op->target,
		.range = op->range,
		.mode = HF_LOCK_SHARED,
		.client_state = hf_nlm_state_of(op),
		.reclaim = hf_lock_in_grace(locks),
		.is_due = true,
		.is_volatile = op->kind->is_unwatched,
	};

	if (!hf_lock_is_involved(locks, &op->target))
		return;
	hf_lock_acquire(locks, &lock, NULL);
	hf_nlm_call_off_changed(op->nlm, &op->target);
}

/* The client takes a while to send the reclaim again, and must find grace then. */
static void put_off_reclaim(struct hf_nlm_op *op)
{
	hf_recovery_put_off_reclaim(op->nlm->options.recovery);
	hf_nlm_op_drop(op);
}

/* A LOCK may have downgraded it before, and its reply may be lost. Then the client sends the same LOCK again,
 * and a refusal would tell it that its lock is still exclusive. So it is told to ask again. */
static bool may_be_downgraded(const struct hf_locks *locks, const struct lock_of *lock)
{
	return lock->mode == HF_LOCK_SHARED && lock->who.client &&
	       hf_lock_has_shared(locks, &lock->who, lock->range);
}

static bool asks_for_downgraded(struct hf_nlm_op *op)
{
	struct lock_of lock;

	if (op->kind->results == HF_NLM_SHARE_RES)
		return false;
	hf_nlm_find_served(op);
	lock = describe(op);
	return may_be_downgraded(op->nlm->locks, &lock);
}

/*
 * A wait may be stored, and its end cannot be: a run that goes on would grant it to a program that was
 * refused. So the client asks again, and the wait keeps its place.
 */
enum hf_nlm_stat hf_nlm_not_stored(struct hf_nlm_op *op)
{
	const struct hf_nlm_options *options = &op->nlm->options;
	bool may_be_stored = op->args.block && hf_recovery_is_continuable(options->recovery);

	if (op->args.reclaim) {
		put_off_reclaim(op);
		return HF_NLM_LATER;
	}
	return options->store_comes_back || may_be_stored || asks_for_downgraded(op)
		       ? HF_NLM_DENIED_GRACE_PERIOD
		       : HF_NLM_DENIED_NOLOCKS;
}

/*
 * What becomes of a lock or a wait that could not be made durable. The store may have it all the same: its
 * answer can be lost. A run that goes on from there, or another node, would hold what the client was refused.
 * So the client is told to ask again, and the next answer is a certain one. A reservation is counted, and
 * would be counted twice. The run of a grace period is not continued.
 */
static enum hf_nlm_stat refusal(const struct hf_nlm *nlm, enum hf_nlm_finish finish)
{
	struct hf_recovery *recovery = nlm->options.recovery;

	if (finish != HF_NLM_FINISH_RESERVATION && hf_recovery_is_continuable(recovery) &&
	    hf_recovery_phase(recovery) == HF_PHASE_SERVING)
		return HF_NLM_DENIED_GRACE_PERIOD;
	return HF_NLM_DENIED_NOLOCKS;
}

static enum hf_nlm_stat refusal_of(const struct hf_nlm *nlm, const struct lock_of *lock,
				   enum hf_nlm_finish finish)
{
	if (finish == HF_NLM_FINISH_REPEAT && may_be_downgraded(nlm->locks, lock))
		return HF_NLM_DENIED_GRACE_PERIOD;
	return refusal(nlm, finish);
}

/* Suspending until the store has answered */

/*
 * What the client gave up is gone, but a run that goes on from what is stored would have it again. The client
 * gives it up again. Reservations are counted: the client has this one again until then, in whatever run.
 */
static void refuse_release(struct hf_nlm_op *op)
{
	struct hf_lock_reservation_view view = hf_nlm_reservation_view(op);

	if (!hf_recovery_is_continuable(op->nlm->options.recovery))
		return;
	if (op->kind->results == HF_NLM_SHARE_RES && op->stat == HF_NLM_GRANTED_STAT && op->client)
		hf_lock_undo_unreserve(op->nlm->locks, &op->target, view.access, view.deny);
	op->stat = HF_NLM_DENIED_GRACE_PERIOD;
}

static void reply_downgraded(struct hf_nlm_op *op, enum hf_nlm_stat stat);

static void refuse_promise(struct hf_nlm_op *op)
{
	struct lock_of lock = describe(op);

	hf_nlm_undo(op, op->finish);
	if (op->args.reclaim)
		put_off_reclaim(op);
	else
		hf_nlm_reply(op, refusal_of(op->nlm, &lock, op->finish));
}

static void finish_without_store(struct hf_nlm_op *op)
{
	switch (op->finish) {
	case HF_NLM_FINISH_RESTART:
		hf_nlm_op_drop(op);
		break;
	case HF_NLM_FINISH_RELEASE:
		refuse_release(op);
		hf_nlm_reply(op, op->stat);
		break;
	case HF_NLM_FINISH_DOWNGRADED:
		hf_nlm_reply(op, op->stat);
		break;
	default:
		refuse_promise(op);
		break;
	}
}

static void finish(struct hf_nlm_op *op)
{
	if (!op->storing.is_durable)
		finish_without_store(op);
	else if (op->finish == HF_NLM_FINISH_DOWNGRADE)
		reply_downgraded(op, op->stat);
	else
		hf_nlm_reply(op, op->stat);
}

static void on_promise(struct hf_promise *promise, bool is_durable)
{
	struct hf_nlm_op *op = hf_container_of(promise, struct hf_nlm_op, storing.promise);

	op->storing.is_durable = is_durable;
	hf_nlm_op_resume(op);
}

static enum hf_reply_says says(const struct hf_nlm_op *op)
{
	switch (op->finish) {
	case HF_NLM_FINISH_RESTART:
		return HF_SAYS_RESTARTED;
	case HF_NLM_FINISH_RELEASE:
	case HF_NLM_FINISH_DOWNGRADED:
		return HF_SAYS_RELEASED;
	default:
		return HF_SAYS_GRANTED;
	}
}

static void store(struct hf_nlm_op *op, enum hf_nlm_stat stat, enum hf_nlm_finish how)
{
	struct hf_recovery *recovery = op->nlm->options.recovery;

	op->stat = stat;
	op->finish = how;
	op = hf_nlm_op_suspend(op, HF_NLM_STORING, finish);
	if (!op)
		return; /* answered SYSTEM_ERR; the client asks again */
	if (how == HF_NLM_FINISH_RELEASE && op->kind->results != HF_NLM_SHARE_RES)
		op->client = hf_client_unref(op->client); /* nothing is undone: it may be reaped */
	if (hf_delays_add(&op->nlm->delays, &op->storing.promise, says(op), op->client, on_promise))
		on_promise(&op->storing.promise, true);
	else
		hf_recovery_hurry(recovery);
}

/*
 * Batches
 *
 * With lock_durability process a lock is as durable as promised as soon as its record is in the page cache, a
 * moment after it was granted. To suspend an operation for that moment, and to resume it, costs a sixth of
 * its whole work (decision 9). So the reply is made at once, into the queue of its connection, and the
 * connection sends nothing until the store has written (rpc/delay.h): one promise for all replies of a turn.
 * If the store cannot write, the locks are released again, and the replies are changed where they are before
 * they leave. The reply to a reclaim, which must not leave then, is not batched.
 *
 * There are two batches, since more may come while the medium is slow: one fills, as long as the store has
 * not begun with its records, and one waits. A reply that fits in neither suspends its operation.
 */

#define MAX_UNDOS   1024
#define FIRST_UNDOS 64

/* What is left of an operation whose reply is batched: how to undo it. */
struct hf_nlm_undo {
	struct hf_client *client;                   /* a reference; NULL: a release */
	const struct hf_rpc_connection *connection; /* whose reply it is */
	uint8_t *stat;                              /* in the reply; NULL: the reply is gone */
	struct hf_range range;
	uint64_t owner_id;
	uint32_t export;
	bool is_release; /* nothing is undone, but the client is to ask again */
	bool is_new;
	bool waits;
	bool is_success; /* counted as one, for @peer and @export */
	uint8_t mode;
	uint8_t counted; /* where the delay counts it, for the metrics */
	uint8_t handle_len;
	uint8_t handle[HF_LOCK_HANDLE_MAX];
	struct hf_addr peer; /* if it is_success */
};

/* The answer that is sent instead. */
static enum hf_nlm_stat undo_batched(struct hf_nlm *nlm, const struct hf_nlm_undo *undo)
{
	const struct lock_of lock = {
		.who = { .export = undo->export,
			 .handle = hf_bytes_of(undo->handle, undo->handle_len),
			 .client = undo->client ? &undo->client->locking : NULL,
			 .owner_id = undo->owner_id },
		.range = undo->range,
		.mode = (enum hf_lock_mode)undo->mode,
		.waits = undo->waits,
	};
	enum hf_nlm_finish finish = undo->is_new ? HF_NLM_FINISH_NEW_LOCK : HF_NLM_FINISH_REPEAT;

	if (undo->is_release)
		return HF_NLM_DENIED_GRACE_PERIOD;
	undo_lock(nlm->locks, &lock, finish);
	return refusal_of(nlm, &lock, finish);
}

static void refuse_batched(struct hf_nlm_batch *batch, const struct hf_nlm_undo *undo)
{
	enum hf_nlm_stat stat = undo_batched(batch->nlm, undo);

	if (undo->stat)
		hf_xdr_set_word(undo->stat, stat);
	hf_rpc_delay_change_result(&batch->delay, undo->counted, hf_nlm_stat_name(stat));
	if (undo->is_success && batch->nlm->usage)
		hf_nlm_count_error(batch->nlm, &undo->peer, undo->export);
}

static void forget_undos(struct hf_nlm_batch *batch)
{
	for (size_t i = 0; i < batch->n_undos; i++)
		hf_client_unref(batch->undos[i].client);
	batch->n_undos = 0;
}

static void on_batch_promise(struct hf_promise *promise, bool is_durable)
{
	struct hf_nlm_batch *batch = hf_container_of(promise, struct hf_nlm_batch, promise);

	batch->is_waiting = false;
	for (size_t i = 0; !is_durable && i < batch->n_undos; i++)
		refuse_batched(batch, &batch->undos[i]);
	forget_undos(batch);
	hf_rpc_delay_release(&batch->delay);
}

static void on_gone(struct hf_rpc_delay *delay, const struct hf_rpc_connection *connection)
{
	struct hf_nlm_batch *batch = hf_container_of(delay, struct hf_nlm_batch, delay);

	for (size_t i = 0; i < batch->n_undos; i++)
		if (batch->undos[i].connection == connection)
			batch->undos[i].stat = NULL;
}

/* The batch that takes more; NULL: both wait for the medium. The promise is made when the reply is. The
 * result of a _MSG is a call of the server, which no connection delays. */
static struct hf_nlm_batch *choose_batch(const struct hf_nlm_op *op)
{
	struct hf_nlm *nlm = op->nlm;
	struct hf_nlm_batch *batch = &nlm->batches[nlm->filling];

	if (op->kind->is_msg)
		return NULL;
	if (!batch->is_waiting || hf_recovery_promise_more(nlm->options.recovery, &batch->promise))
		return batch;
	batch = &nlm->batches[nlm->filling ^ 1];
	if (batch->is_waiting)
		return NULL;
	nlm->filling ^= 1;
	return batch;
}

static void promise_batch(struct hf_nlm_batch *batch)
{
	struct hf_recovery *recovery = batch->nlm->options.recovery;

	if (!batch->is_waiting) {
		batch->is_waiting = true;
		if (hf_delays_add(&batch->nlm->delays, &batch->promise, HF_SAYS_GRANTED, NULL,
				  on_batch_promise)) {
			on_batch_promise(&batch->promise, true);
			return;
		}
	}
	hf_recovery_hurry(recovery);
}

static bool has_room(struct hf_nlm_batch *batch)
{
	size_t capacity = batch->capacity ? batch->capacity * 2 : FIRST_UNDOS;
	struct hf_nlm_undo *undos;

	if (batch->n_undos < batch->capacity)
		return true;
	if (capacity > MAX_UNDOS)
		return false;
	undos = realloc(batch->undos, capacity * sizeof(*undos));
	if (!undos)
		return false;
	batch->undos = undos;
	batch->capacity = capacity;
	return true;
}

/* The status is the last word of the reply. The call is gone afterwards. */
static void put_status(struct hf_nlm_op *op, enum hf_nlm_stat stat, const struct hf_nlm_batch *batch,
		       struct hf_nlm_undo *undo)
{
	struct hf_bytes cookie = op->args.cookie;
	struct hf_xdr_out *out = hf_rpc_reply_begin(op->call, 16 + cookie.len);

	hf_rpc_call_note(op->call, hf_nlm_stat_name(stat));
	undo->is_success = HF_UNLIKELY(op->nlm->usage) && hf_nlm_count_usage(op, stat);
	if (HF_UNLIKELY(undo->is_success))
		undo->peer = *hf_rpc_call_peer(op->call);
	hf_nlm_put_res(out, op->version, cookie, stat);
	undo->stat = hf_xdr_out_is_ok(out) ? out->p - 4 : NULL;
	hf_rpc_reply_end(op->call);
	/* Without room for the reply the client gets an error of RPC, which does not change. */
	undo->counted = undo->stat ? (uint8_t)batch->delay.last : HF_RPC_DELAYED_KINDS;
}

/* Each answers false where the reply cannot be batched, and nothing was done. */

static bool batch_granted(struct hf_nlm_op *op, bool is_new)
{
	const struct hf_lock_target *who = &op->target;
	const struct hf_rpc_connection *connection;
	struct hf_nlm_batch *batch = op->args.reclaim ? NULL : choose_batch(op);
	struct hf_nlm_undo *undo;

	if (!batch || !has_room(batch) || !(connection = hf_rpc_delay_call(&batch->delay, op->call)))
		return false;
	undo = &batch->undos[batch->n_undos++];
	undo->client = op->client;
	op->client = NULL;
	undo->connection = connection;
	undo->range = op->range;
	undo->owner_id = who->owner_id;
	undo->export = who->export;
	undo->is_release = false;
	undo->is_new = is_new;
	undo->waits = op->args.block;
	undo->mode = hf_nlm_mode(op);
	undo->handle_len = (uint8_t)who->handle.len;
	memmove(undo->handle, who->handle.data,
		who->handle.len); /* a memcpy would be slower: see hf_oh_set() */
	put_status(op, HF_NLM_GRANTED_STAT, batch, undo);
	hf_nlm_op_end(op);
	promise_batch(batch);
	return true;
}

/* The same where the reply may have to be changed. */
static bool batch_continuable_release(struct hf_nlm_op *op, enum hf_nlm_stat stat)
{
	const struct hf_rpc_connection *connection;
	struct hf_nlm_batch *batch = choose_batch(op);
	struct hf_nlm_undo *undo;

	if (!batch || op->kind->results != HF_NLM_RES || !has_room(batch) ||
	    !(connection = hf_rpc_delay_call(&batch->delay, op->call)))
		return false;
	undo = &batch->undos[batch->n_undos++];
	*undo = (struct hf_nlm_undo){ .connection = connection,
				      .export = op->target.export,
				      .is_release = true };
	put_status(op, stat, batch, undo);
	hf_nlm_op_end(op);
	promise_batch(batch);
	return true;
}

/* The same where the reply stays as it is, even if the store fails. */
static bool batch_unchanged(struct hf_nlm_op *op, enum hf_nlm_stat stat)
{
	struct hf_nlm_batch *batch = choose_batch(op);

	if (!batch || !hf_rpc_delay_call(&batch->delay, op->call))
		return false;
	hf_nlm_reply(op, stat);
	promise_batch(batch);
	return true;
}

static bool batch_released(struct hf_nlm_op *op, enum hf_nlm_stat stat)
{
	if (HF_UNLIKELY(hf_recovery_is_continuable(op->nlm->options.recovery)))
		return batch_continuable_release(op, stat);
	return batch_unchanged(op, stat);
}

/* Which way */

void hf_nlm_reply_granted(struct hf_nlm_op *op, bool is_new)
{
	enum hf_recovery_durability durability = durability_of(op);

	if (durability == HF_DURABLE)
		hf_nlm_reply(op, HF_NLM_GRANTED_STAT);
	else if (durability == HF_DURABLE_NOT || !batch_granted(op, is_new))
		store(op, HF_NLM_GRANTED_STAT, is_new ? HF_NLM_FINISH_NEW_LOCK : HF_NLM_FINISH_REPEAT);
}

/*
 * A run that goes on from what is stored would have the exclusive lock again, and keep others out. So the
 * reply waits for the store once more. If the store fails, the reply is the same. A client that is refused
 * has what it had before, but others may share the range by now.
 */
static void reply_downgraded(struct hf_nlm_op *op, enum hf_nlm_stat stat)
{
	struct hf_recovery *recovery = op->nlm->options.recovery;

	downgrade(op);
	if (!hf_recovery_is_continuable(recovery) || hf_recovery_is_release_durable(recovery))
		hf_nlm_reply(op, stat);
	else if (hf_recovery_durability(recovery, NULL) != HF_DURABLE_SOON || !batch_unchanged(op, stat))
		store(op, stat, HF_NLM_FINISH_DOWNGRADED);
}

void hf_nlm_reply_durable(struct hf_nlm_op *op, enum hf_nlm_stat stat, enum hf_nlm_finish how)
{
	if (durability_of(op) != HF_DURABLE) {
		store(op, stat, how);
		return;
	}
	if (how == HF_NLM_FINISH_DOWNGRADE)
		reply_downgraded(op, stat);
	else
		hf_nlm_reply(op, stat);
}

/* The client has let go of it even if the store fails: see HF_SAYS_RELEASED. */
void hf_nlm_reply_released(struct hf_nlm_op *op, enum hf_nlm_stat stat)
{
	struct hf_recovery *recovery = op->nlm->options.recovery;

	if (hf_recovery_is_release_durable(recovery))
		hf_nlm_reply(op, stat);
	else if (hf_recovery_durability(recovery, NULL) != HF_DURABLE_SOON || !batch_released(op, stat))
		store(op, stat, HF_NLM_FINISH_RELEASE);
}

void hf_nlm_reply_restart(struct hf_nlm_op *op)
{
	store(op, HF_NLM_GRANTED_STAT, HF_NLM_FINISH_RESTART);
}

/* Making and freeing */

void hf_nlm_batches_init(struct hf_nlm *nlm)
{
	for (size_t i = 0; i < HF_ARRAY_SIZE(nlm->batches); i++) {
		nlm->batches[i].nlm = nlm;
		hf_rpc_delay_init(&nlm->batches[i].delay, on_gone);
	}
}

/* The replies never leave, as if the server had been killed. */
void hf_nlm_batches_deinit(struct hf_nlm *nlm)
{
	for (size_t i = 0; i < HF_ARRAY_SIZE(nlm->batches); i++) {
		struct hf_nlm_batch *batch = &nlm->batches[i];

		hf_rpc_delay_deinit(&batch->delay);
		forget_undos(batch);
		free(batch->undos);
	}
}
