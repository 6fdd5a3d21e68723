/*
 * Every call that leaves the engine: events, and questions to the lock table
 * outside (the kernel's). Views show a record to the callee.
 *
 * The outside table is asked last, when nothing else prevents a grant and all
 * memory is reserved: a lock taken there never has to be given back because of
 * a failure here. It learns of releases at the end of an operation, after the
 * waiters are served: a range that passes from one owner to the next stays
 * locked outside.
 */
#include "lock/internal.h"

/* VIEW */

void hf_view_target(const struct hf_holding *holding, struct hf_lock_target *who)
{
	const struct hf_lock_file *file = holding->file;
	const struct hf_owner *owner = holding->owner;

	*who = (struct hf_lock_target){
		.export = holding->export,
		.handle = hf_bytes_of(file->handle, file->handle_len),
		.client = owner->client,
		.owner_id = owner->id,
		.owner_kind = owner->kind,
		.oh = hf_oh_bytes(&owner->oh),
	};
}

static enum hf_lock_mode prior_of(const struct hf_lock *lock)
{
	if (lock->flags & HF_LOCK_DOWNGRADING)
		return (enum hf_lock_mode)lock->mode;
	return lock->flags & HF_LOCK_PROVISIONAL ? (enum hf_lock_mode)lock->prior_mode : HF_LOCK_NONE;
}

void hf_view_lock(const struct hf_lock *lock, struct hf_lock_view *viewp)
{
	*viewp = (struct hf_lock_view){
		.id = lock->id,
		.tag = lock->tag,
		.range = hf_lock_range(lock),
		.mode = (enum hf_lock_mode)lock->mode,
		.client_state = lock->state,
		.epoch = lock->epoch,
		.flags = lock->flags & HF_LOCK_PUBLIC_FLAGS,
		.is_of_grant = lock->flags & (HF_LOCK_PROVISIONAL | HF_LOCK_DOWNGRADING),
		.prior = prior_of(lock),
	};
	hf_view_target(lock->holding, &viewp->who);
}

void hf_view_waiter(const struct hf_waiter *waiter, struct hf_lock_view *viewp)
{
	*viewp = (struct hf_lock_view){
		.id = waiter->id,
		.tag = waiter->tag,
		.range = hf_waiter_range(waiter),
		.mode = (enum hf_lock_mode)waiter->mode,
		.client_state = waiter->state,
		.flags = (waiter->is_volatile ? HF_LOCK_VOLATILE : 0u) |
			 (waiter->is_granted ? HF_LOCK_PROVISIONAL : 0u),
		.waits = true,
		.offset = waiter->offset,
		.len = waiter->len,
		.user = waiter->user,
		.stamp = waiter->stamp,
	};
	hf_view_target(waiter->holding, &viewp->who);
	viewp->who.export = waiter->export;
}

void hf_view_reservation(const struct hf_lock_reservation *reservation,
			 struct hf_lock_reservation_view *viewp)
{
	*viewp = (struct hf_lock_reservation_view){
		.tag = reservation->tag,
		.export = reservation->export,
		.handle = hf_bytes_of(reservation->file->handle, reservation->file->handle_len),
		.client = reservation->client,
		.oh = hf_oh_bytes(&reservation->oh),
		.client_state = reservation->state,
		.access = reservation->access,
		.deny = reservation->deny,
		.count = reservation->count,
		.n_unreclaimed = reservation->n_unreclaimed,
		.n_unsure = reservation->n_unsure,
		.mark = reservation->mark,
	};
}

/* EVENTS */

void hf_lock_show(const struct hf_lock_change *change, struct hf_lock_view *viewp)
{
	hf_view_lock(change->lock, viewp);
}

static struct hf_lock_change change_of(const struct hf_lock *lock)
{
	return (struct hf_lock_change){
		.tag = lock->tag,
		.client = lock->holding->owner->client,
		.export = lock->holding->export,
		.flags = lock->flags & HF_LOCK_PUBLIC_FLAGS,
		.lock = lock,
	};
}

void hf_emit_added(struct hf_locks *locks, struct hf_lock *lock)
{
	struct hf_lock_change change;

	if (!locks->events->added)
		return;
	change = change_of(lock);
	locks->in_event = true;
	lock->tag = locks->events->added(locks->context, &change);
	locks->in_event = false;
}

static void emit(struct hf_locks *locks, const struct hf_lock *lock, enum hf_lock_cause cause,
		 void (*event)(void *context, const struct hf_lock_change *lock))
{
	struct hf_lock_change change;

	if (!event)
		return;
	change = change_of(lock);
	change.cause = cause;
	locks->in_event = true;
	event(locks->context, &change);
	locks->in_event = false;
}

void hf_emit_removed(struct hf_locks *locks, const struct hf_lock *lock, enum hf_lock_cause cause)
{
	emit(locks, lock, cause, locks->events->removed);
}

void hf_emit_hidden(struct hf_locks *locks, const struct hf_lock *lock)
{
	emit(locks, lock, HF_LOCK_CAUSE_REQUEST, locks->events->hidden);
}

void hf_emit_granted(struct hf_locks *locks, const struct hf_waiter *waiter)
{
	struct hf_lock_view view;

	if (!locks->events->granted)
		return;
	hf_view_waiter(waiter, &view);
	locks->in_event = true;
	locks->events->granted(locks->context, &view);
	locks->in_event = false;
}

static void tag_waiter(struct hf_locks *locks, struct hf_waiter *waiter,
		       uint64_t (*event)(void *context, const struct hf_lock_view *waiter))
{
	struct hf_lock_view view;

	if (!event)
		return;
	hf_view_waiter(waiter, &view);
	locks->in_event = true;
	waiter->tag = event(locks->context, &view);
	locks->in_event = false;
}

void hf_emit_queued(struct hf_locks *locks, struct hf_waiter *waiter)
{
	tag_waiter(locks, waiter, locks->events->queued);
}

void hf_emit_passed(struct hf_locks *locks, struct hf_waiter *waiter)
{
	tag_waiter(locks, waiter, locks->events->passed);
}

void hf_emit_gone(struct hf_locks *locks, const struct hf_waiter *waiter, enum hf_lock_end why)
{
	struct hf_lock_view view;

	if (!locks->events->waiter_gone)
		return;
	hf_view_waiter(waiter, &view);
	locks->in_event = true;
	locks->events->waiter_gone(locks->context, &view, why);
	locks->in_event = false;
}

void hf_emit_reservation_added(struct hf_locks *locks, struct hf_lock_reservation *reservation,
			       bool is_reclaim)
{
	struct hf_lock_reservation_view view;

	if (!locks->events->reservation_added)
		return;
	hf_view_reservation(reservation, &view);
	view.is_reclaim = is_reclaim;
	locks->in_event = true;
	reservation->tag = locks->events->reservation_added(locks->context, &view);
	locks->in_event = false;
}

void hf_emit_reservation_removed(struct hf_locks *locks, struct hf_lock_reservation *reservation, uint32_t n,
				 enum hf_lock_cause cause)
{
	struct hf_lock_reservation_view view;

	if (!locks->events->reservation_removed)
		return;
	hf_view_reservation(reservation, &view);
	locks->in_event = true;
	reservation->tag = locks->events->reservation_removed(locks->context, &view, n, cause);
	locks->in_event = false;
}

/* OUTSIDE */

int hf_outside_take(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		    enum hf_lock_mode mode)
{
	int r;

	if (!locks->outside)
		return HF_LOCK_OK;
	locks->in_event = true;
	r = locks->outside->take(locks->outside_context, who, range, mode);
	locks->in_event = false;
	return r;
}

int hf_outside_test(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		    enum hf_lock_mode mode, struct hf_lock_view *conflictp)
{
	struct hf_lock_view unwanted;

	if (!locks->outside)
		return HF_LOCK_OK;
	return locks->outside->test(locks->outside_context, who, range, mode,
				    conflictp ? conflictp : &unwanted);
}

void hf_outside_trim(struct hf_locks *locks, const struct hf_lock_file *file, struct hf_range range)
{
	if (!locks->outside)
		return;
	locks->in_event = true;
	locks->outside->trim(locks->outside_context, hf_bytes_of(file->handle, file->handle_len), range,
			     (size_t)file->n_locks + file->n_ghosts);
	locks->in_event = false;
}
