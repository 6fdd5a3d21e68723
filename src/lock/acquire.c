/*
 * May this owner have this range now?
 *
 * The request passes these checks in this order:
 *
 *   1. grace: only a reclaim is served;
 *   2. a reclaim must be backed by a restored lock, if the restored list is complete;
 *   3. a repeated request gets the same answer if it is queued, or its owner has the lock;
 *   4. a conflicting lock or waiter: the request is queued if it may wait and
 *      would not wait for itself; otherwise it is refused;
 *   5. no conflict: the owner takes the range.
 *
 * A waiter that a restart restores goes to the end of the queue, whatever is free
 * (must_wait): its client was told to wait for a call. Checks 3 to 5 are left out.
 * All memory is reserved before the first change.
 *
 * A queued waiter blocks a later request too, unless that waiter waits for the
 * requesting owner anyway, or the owner was promised the range before. Locks that the
 * owner already holds need no rule of their own: a waiter that conflicts with them
 * waits for the owner directly.
 */
#include "lock/internal.h"

#include "base/error.h"
#include "lock/serve.h"
#include "lock/steps.h"

enum {
	SHORT_QUEUE = 64,
};

/* A request under way. */
struct attempt {
	struct hf_locks *locks;
	const struct hf_lock_request *request;
	struct hf_found found;
	struct hf_aim aim;        /* the leaves of the file's sets that have the range */
	struct hf_spot own;       /* the owner's first lock that overlaps or touches the range */
	struct hf_lock *holder;   /* a conflicting lock of another owner */
	struct hf_waiter *after;  /* the last conflicting waiter that the request must not pass */
	struct hf_waiter *before; /* the first conflicting waiter that the request must pass */
	bool is_deadlock;         /* to queue the request would close a cycle */
	bool is_unclear;          /* the search was cut off: the request neither queues nor passes a waiter */
	bool stays_exclusive;     /* the owner holds some of the range exclusively, and the request must not
				     downgrade it */
};

static bool is_valid_target(const struct hf_lock_target *who)
{
	return who->client && who->client->id && who->handle.len <= HF_LOCK_HANDLE_MAX &&
	       who->oh.len <= HF_LOCK_OH_MAX;
}

static bool is_valid_mode(enum hf_lock_mode mode)
{
	return mode == HF_LOCK_SHARED || mode == HF_LOCK_EXCLUSIVE;
}

/* OWN LOCKS */

static void note_own_locks(struct attempt *try)
{
	const struct hf_lock_request *request = try->request;
	struct hf_spot spot = try->own;
	bool has_any;

	if (hf_spot_lock(&spot) && hf_spot_range(&spot).end < request->range.start)
		hf_spot_next(&spot); /* it only touches the range */
	has_any = hf_spot_lock(&spot) && hf_spot_range(&spot).start <= request->range.end;
	try->stays_exclusive = has_any && request->no_downgrade && request->mode == HF_LOCK_SHARED &&
			       hf_holding_conflicts(try->found.holding, request->range, HF_LOCK_SHARED);
	if (request->before)
		*request->before = (struct hf_lock_before){ .has_any = has_any,
							    .stays_exclusive = try->stays_exclusive };
}

/* CONFLICTS */

/* Sorts the conflicting waiters into those that the request stays behind and those that it passes. */
static void sort_queued_conflicts(struct attempt *try)
{
	const struct hf_lock_request *request = try->request;

	hf_list_for_each(pos, &try->found.file->queue) {
		struct hf_waiter *waiter = hf_list_entry(pos, struct hf_waiter, in_queue);

		if (waiter->holding == try->found.holding ||
		    !hf_modes_conflict((enum hf_lock_mode)waiter->mode, request->mode) ||
		    !hf_range_overlaps(hf_waiter_range(waiter), request->range))
			continue;
		if (!hf_deadlock_reached(try->locks, waiter)) {
			try->after = waiter;
			if (waiter->holding->owner->walk == try->locks->last_walk)
				try->is_deadlock = true;
		} else if (!try->before) {
			try->before = waiter;
		}
	}
}

/* The owner was promised the range before that waiter asked. Refused, it would go on with a lock that it does
 * not have. It closes no cycle as long as it waits for nothing itself. */
static bool comes_before_waiters(const struct attempt *try)
{
	const struct hf_owner *owner = try->found.owner;

	return (try->request->reclaim || try->request->is_due) && !(owner && owner->n_waiters);
}

static void find_conflicts(struct attempt *try)
{
	const struct hf_lock_request *request = try->request;
	struct hf_lock_file *file = try->found.file;
	struct hf_owner *marked;
	struct hf_waiter *queued = NULL;

	try->holder =
		hf_lock_file_conflict_at(file, &try->aim, try->found.holding, request->range, request->mode);
	if (try->holder && !request->wait)
		return;
	if (file->n_waiters && !comes_before_waiters(try))
		queued = hf_waiters_conflict(try->locks, file, try->found.holding, request->range,
					     request->mode, UINT64_MAX);
	if (!try->holder && !queued)
		return;
	marked = hf_deadlock_walk(try->locks, try->found.owner,
				  hf_steps_left(try->locks, request->who.client, request->stamp));
	try->is_unclear = hf_deadlock_is_unclear(try->locks);
	if (try->is_unclear) {
		try->after = queued;
		return;
	}
	if (queued)
		sort_queued_conflicts(try);
	if (try->holder && hf_deadlock_blocks(marked, file, request->range, request->mode))
		try->is_deadlock = true;
}

static void show_conflict(const struct attempt *try, struct hf_lock_view *conflictp)
{
	if (!conflictp)
		return;
	if (try->holder)
		hf_view_lock(try->holder, conflictp);
	else if (try->after)
		hf_view_waiter(try->after, conflictp);
}

/* A reclaim brings back what was held before, and a downgrade splits locks as an unlock does. Both may exceed
 * the limits, up to twice their value: see hf_room_to_split(). */
static bool has_room_to_take(const struct attempt *try, int growth)
{
	const struct hf_lock_request *request = try->request;

	return hf_room_for_locks(try->locks, try->found.file, &request->who, try->found.owner, growth,
				 request->reclaim || request->is_due);
}

/* TAKE THE RANGE NOW */

/* A reclaim also claims the part of its range that stays exclusive: the end of grace must not drop it. */
static void reclaim_stronger(struct attempt *try, struct hf_range part, const struct hf_lock *lock,
			     const struct hf_lock_attrs *attrs)
{
	struct hf_lock_attrs more = *attrs;

	more.mode = lock->mode;
	hf_holding_replace(try->locks, try->found.holding, part, &more);
}

/* Takes the range except the parts that must stay exclusive. */
static void take_unprotected(struct attempt *try, const struct hf_lock_attrs *attrs)
{
	struct hf_range range = try->request->range, part;
	struct hf_range guarded = hf_grant_guarded(try->found.holding, range, NULL);

	for (uint64_t pos = range.start; pos <= range.end; pos = part.end + 1) {
		struct hf_lock *lock;

		part = hf_holding_part(try->found.holding, pos, range.end, &lock);
		if (lock && lock->mode > attrs->mode && hf_grant_is_guarded(guarded, &part))
			hf_grant_set_prior(try->locks, lock, part, attrs);
		else if (!lock || lock->mode <= attrs->mode || !try->stays_exclusive)
			hf_holding_replace(try->locks, try->found.holding, part, attrs);
		else if (lock->flags & HF_LOCK_UNRECLAIMED)
			reclaim_stronger(try, part, lock, attrs);
	}
}

/* May the range contain a part that must stay exclusive? */
static bool has_protected(const struct attempt *try)
{
	const struct hf_holding *holding = try->found.holding;

	return try->stays_exclusive ||
	       (try->request->mode == HF_LOCK_SHARED && holding && !hf_list_is_empty(&holding->grants));
}

static size_t count_own(const struct attempt *try)
{
	struct hf_spot spot = try->own;
	size_t n = 0;

	for (; hf_spot_lock(&spot) && hf_spot_range(&spot).start <= try->request->range.end;
	     hf_spot_next(&spot))
		n++;
	return n;
}

static int take_now(struct attempt *try)
{
	const struct hf_lock_request *request = try->request;
	struct hf_locks *locks = try->locks;
	struct hf_lock_attrs attrs = {
		.mode = (uint8_t)request->mode,
		.state = request->client_state,
		.epoch = locks->epoch,
		.flags = request->is_volatile ? HF_LOCK_VOLATILE : 0,
	};
	int r, growth = hf_holding_growth(try->own, request->range, &attrs);
	bool has_protected_part = has_protected(try);

	if (!has_room_to_take(try, growth))
		return hf_room_refuse(locks, try->found.file, &request->who, HF_ROOM_TO_LOCK,
				      (uint64_t)growth);
	r = hf_target_reserve(locks, &request->who, &try->found);
	if (!r)
		r = hf_holding_reserve(locks, HF_REPLACE_RECORDS +
						      (has_protected_part ? 2 * count_own(try) + 4 : 0));
	if (r < 0)
		return hf_trace(r);
	r = hf_outside_take(locks, &request->who, request->range, request->mode);
	if (r)
		return r;
	hf_target_make(locks, &request->who, &try->found);
	if (has_protected_part)
		take_unprotected(try, &attrs);
	else
		hf_holding_replace_at(locks, try->found.holding, try->own, &try->aim, request->range, &attrs);
	if (request->mode ==
	    HF_LOCK_EXCLUSIVE) { /* a shared request leaves exclusive grants in flight as they are */
		hf_grant_note_change(try->found.holding, request->range, HF_LOCK_EXCLUSIVE);
		hf_grant_note_upgrade(try->found.holding, request->range);
	}
	hf_serve_waiters(locks);
	return HF_LOCK_OK;
}

/* QUEUE */

/* To enter and to leave a long queue takes many steps; a short queue costs no more than the request itself.
 */
static bool is_too_much_work(const struct attempt *try)
{
	const struct hf_lock_request *request = try->request;

	return try->found.file && try->found.file->n_waiters > SHORT_QUEUE &&
	       hf_steps_are_spent(try->locks, request->who.client, request->stamp);
}

static void tell_passed(struct hf_locks *locks, const struct hf_waiter *by)
{
	const struct hf_list *queue = &by->holding->file->queue;

	for (struct hf_link *pos = by->in_queue.next; pos != &queue->head; pos = pos->next)
		hf_emit_passed(locks, hf_list_entry(pos, struct hf_waiter, in_queue));
}

static int enqueue(struct attempt *try)
{
	const struct hf_lock_request *request = try->request;
	struct hf_locks *locks = try->locks;
	struct hf_waiter *waiter;
	int r;

	if (try->is_deadlock)
		return HF_LOCK_E_DEADLOCK;
	/* What a restart restores was within the limits, and waited for no owner that waited for it. */
	if (!request->must_wait && (try->is_unclear || is_too_much_work(try)))
		return hf_room_refuse(locks, try->found.file, &request->who, HF_ROOM_TO_SEARCH, 0);
	if (!request->must_wait && !hf_room_to_wait(locks, try->found.file, &request->who, try->found.owner))
		return hf_room_refuse(locks, try->found.file, &request->who, HF_ROOM_TO_WAIT, 1);
	r = hf_target_reserve(locks, &request->who, &try->found);
	if (!r)
		r = hf_pool_reserve(&locks->waiter_pool, 1);
	if (r < 0)
		return hf_trace(r);
	hf_target_make(locks, &request->who, &try->found);
	waiter = hf_pool_take(&locks->waiter_pool);
	*waiter = (struct hf_waiter){
		.start = request->range.start,
		.end = request->range.end,
		.holding = try->found.holding,
		.id = ++locks->last_waiter,
		.offset = request->offset,
		.len = request->len,
		.user = request->user,
		.tag = request->tag,
		.stamp = request->stamp,
		.state = request->client_state,
		.export = request->who.export,
		.mode = (uint8_t)request->mode,
		.is_volatile = request->is_volatile,
		.no_downgrade = request->no_downgrade && request->must_wait,
	};
	request->who.client->group->n_waiters++;
	hf_room_use(locks, request->who.client, HF_COST_WAITER);
	hf_waiters_insert(locks, waiter, try->after, try->before);
	hf_grant_note_wait(waiter);
	if (!waiter->tag)
		hf_emit_queued(locks, waiter);
	if (HF_UNLIKELY(try->before))
		tell_passed(locks, waiter);
	return HF_LOCK_E_QUEUED;
}

/* REPEATED REQUESTS */

/* Makes a part of @lock as firm as the request (see lock.h). False: it is so already. */
static bool refresh_part(const struct attempt *try, const struct hf_lock *lock, struct hf_lock_attrs *attrs)
{
	*attrs = (struct hf_lock_attrs){
		.mode = lock->mode,
		.state = try->request->client_state ? try->request->client_state : lock->state,
		.epoch = lock->flags & HF_LOCK_UNRECLAIMED ? try->locks->epoch : lock->epoch,
		.flags = try->request->is_volatile ? lock->flags & HF_LOCK_VOLATILE : 0,
	};
	return attrs->state != lock->state || attrs->flags != lock->flags;
}

/* The owner holds the whole range in the requested mode. Memory is reserved. */
static void refresh(struct attempt *try)
{
	struct hf_holding *holding = try->found.holding;
	struct hf_range range = try->request->range, part;
	struct hf_lock_attrs attrs;

	for (uint64_t pos = range.start; pos <= range.end; pos = part.end + 1) {
		struct hf_lock *lock;

		part = hf_holding_part(holding, pos, range.end, &lock);
		if (refresh_part(try, lock, &attrs))
			hf_holding_replace(try->locks, holding, part, &attrs);
	}
	hf_oh_renew(try->locks, try->request->who.client, &try->found.owner->oh, try->request->who.oh);
}

static int reserve_refresh(struct attempt *try)
{
	int r;

	r = hf_oh_reserve(try->locks, try->request->who.oh);
	if (!r)
		r = hf_holding_reserve(try->locks, 2 * count_own(try) + 2 * HF_REPLACE_RECORDS);
	return r;
}

static bool is_partly_unreclaimed(const struct attempt *try)
{
	struct hf_spot spot = try->own;

	for (; hf_spot_lock(&spot) && hf_spot_range(&spot).start <= try->request->range.end;
	     hf_spot_next(&spot))
		if (hf_spot_lock(&spot)->flags & HF_LOCK_UNRECLAIMED &&
		    hf_range_overlaps(hf_spot_range(&spot), try->request->range))
			return true;
	return false;
}

/* Answers a request for a range that the owner holds already, or that an unconfirmed grant has given it. */
static int answer_repetition(struct attempt *try, bool *is_answeredp)
{
	const struct hf_lock_request *request = try->request;
	struct hf_holding *holding = try->found.holding;
	struct hf_waiter *grant = hf_grant_find(holding, request->range, request->mode);
	int r;

	if (grant && !hf_grant_is_whole(grant))
		grant = NULL;
	*is_answeredp = grant || hf_holding_has_all(try->own, request->range, request->mode);
	if (!*is_answeredp)
		return HF_LOCK_OK;
	r = reserve_refresh(try);
	if (r < 0)
		return hf_trace(r);
	/* The kernel usually holds the range for the server already. It does not if it lost the lock in a
	 * restart: then another process may have it, and the reclaim is refused. It does not, either, if
	 * local_locks was turned on after the lock was granted. That lock stays the owner's, whatever the
	 * kernel says. */
	r = hf_outside_take(try->locks, &request->who, request->range, request->mode);
	if (r < 0 || (r && is_partly_unreclaimed(try)))
		return r;
	if (grant) {
		hf_grant_confirm(try->locks, grant, !try->stays_exclusive);
		hf_grant_end(try->locks, grant, HF_LOCK_END_CONFIRMED);
	}
	refresh(try);
	if (request->mode == HF_LOCK_EXCLUSIVE)
		hf_grant_note_upgrade(holding, request->range);
	hf_serve_waiters(try->locks);
	return HF_LOCK_OK;
}

/* The waiter becomes as the repeated request is. False: it was so already. */
static bool repeat_waiter(struct hf_waiter *waiter, const struct hf_lock_request *request)
{
	uint32_t state = request->client_state ? request->client_state : waiter->state;
	bool is_volatile = waiter->is_volatile && request->is_volatile;
	bool is_changed = waiter->user != request->user || waiter->offset != request->offset ||
			  waiter->len != request->len || waiter->state != state ||
			  waiter->export != request->who.export || waiter->is_volatile != is_volatile;

	waiter->user = request->user;
	waiter->export = request->who.export;
	waiter->offset = request->offset;
	waiter->len = request->len;
	waiter->state = state;
	waiter->is_volatile = is_volatile;
	return is_changed;
}

static int answer_queued(struct attempt *try, struct hf_waiter *waiter, struct hf_lock_view *conflictp)
{
	const struct hf_lock_request *request = try->request;
	int r;

	try->holder = hf_lock_file_conflict(try->found.file, waiter->holding, request->range, request->mode);
	try->after = hf_waiters_conflict(try->locks, try->found.file, waiter->holding, request->range,
					 request->mode, waiter->order);
	show_conflict(try, conflictp);
	r = hf_oh_reserve(try->locks, request->who.oh);
	if (r < 0)
		return hf_trace(r);
	hf_oh_renew(try->locks, request->who.client, &try->found.owner->oh, request->who.oh);
	if (repeat_waiter(waiter, request))
		hf_emit_queued(try->locks, waiter);
	return HF_LOCK_E_QUEUED;
}

/* PUBLIC */

static int acquire(struct hf_locks *locks, const struct hf_lock_request *request,
		   struct hf_lock_view *conflictp)
{
	struct attempt try = { .locks = locks, .request = request };
	struct hf_waiter *waiter;
	bool is_answered;
	int r;

	assert(!locks->in_event && is_valid_target(&request->who) && is_valid_mode(request->mode) &&
	       hf_range_is_valid(request->range));
	assert(!(request->wait && request->reclaim));
	if (locks->is_grace && !request->reclaim)
		return HF_LOCK_E_GRACE;
	hf_target_find(locks, &request->who, &try.found);
	if (request->reclaim && request->backed_only &&
	    !hf_reclaim_is_backed(try.found.holding, request->range, request->mode))
		return HF_LOCK_E_NOT_BACKED;
	if (try.found.holding)
		hf_tree_expect(&try.found.holding->own);
	if (try.found.file)
		hf_lock_file_aim(try.found.file, try.found.holding, request->range, &try.aim);
	try.own = hf_holding_around(try.found.holding, request->range);
	note_own_locks(&try);
	if (try.found.holding && !request->must_wait) {
		r = answer_repetition(&try, &is_answered);
		if (r < 0 || is_answered)
			return r;
		waiter = hf_waiters_find(&try.found.holding->waiters, request->range, request->mode);
		if (waiter && request->wait)
			return answer_queued(&try, waiter, conflictp);
	}
	if (try.found.file && !request->must_wait)
		find_conflicts(&try);
	if (!try.holder && !try.after && !request->must_wait) {
		r = take_now(&try);
		if (r != HF_LOCK_E_CONFLICT)
			return r;
		if (conflictp)
			hf_outside_test(locks, &request->who, request->range, request->mode, conflictp);
	} else {
		show_conflict(&try, conflictp);
	}
	return request->wait ? enqueue(&try) : HF_LOCK_E_CONFLICT;
}

int hf_lock_acquire(struct hf_locks *locks, const struct hf_lock_request *request,
		    struct hf_lock_view *conflictp)
{
	int r = acquire(locks, request, conflictp);

	hf_steps_charge(locks, request->who.client);
	return r;
}

int hf_lock_test(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		 enum hf_lock_mode mode, struct hf_lock_view *conflictp)
{
	struct hf_found found;
	struct hf_lock *lock;

	assert(is_valid_target(who) && is_valid_mode(mode) && hf_range_is_valid(range));
	if (locks->is_grace)
		return HF_LOCK_E_GRACE;
	hf_target_find(locks, who, &found);
	lock = found.file ? hf_lock_file_conflict(found.file, found.holding, range, mode) : NULL;
	if (!lock)
		return hf_outside_test(locks, who, range, mode, conflictp);
	if (conflictp)
		hf_view_lock(lock, conflictp);
	return HF_LOCK_E_CONFLICT;
}
