/*
 * How does an owner give up a range or a wait: unlock and cancel. And how does an
 * operator take a lock from it?
 *
 * An unlock also ends the owner's waiters and grants in flight within the range.
 * The client's answer to the grant may have been lost, and the client, which knows
 * nothing of the lock, cleans up with an unlock. A waiter that reaches beyond the
 * range stays. So does a grant, with what is left of its lock.
 */
#include "lock/internal.h"

#include "base/error.h"
#include "lock/serve.h"
#include "lock/steps.h"

static void end_waiters(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range)
{
	hf_list_for_each_safe(pos, &holding->waiters) {
		struct hf_waiter *waiter = hf_list_entry(pos, struct hf_waiter, in_holding);

		if (hf_range_contains(range, hf_waiter_range(waiter)))
			hf_waiters_end(locks, waiter, HF_LOCK_END_RELEASED);
	}
}

static void end_grants(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range)
{
	hf_list_for_each_safe(pos, &holding->grants) {
		struct hf_waiter *grant = hf_list_entry(pos, struct hf_waiter, in_holding);

		if (hf_range_contains(range, hf_waiter_range(grant)))
			hf_grant_end(locks, grant, HF_LOCK_END_RELEASED);
	}
	hf_grant_note_change(holding, range, HF_LOCK_NONE);
}

/* Would the unlock split one lock in two beyond the limit? Without a limit, one lock and a million unlocks
 * would make a million locks. */
static bool splits_too_many(const struct hf_locks *locks, const struct hf_found *found,
			    const struct hf_spot *own, struct hf_range range)
{
	return hf_spot_lock(own) && hf_spot_range(own).start < range.start &&
	       hf_spot_range(own).end > range.end &&
	       !hf_room_to_split(locks, found->file, found->owner->client);
}

static int release(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		   bool ends_waits)
{
	struct hf_found found;
	struct hf_aim aim;
	struct hf_spot own;
	int r = 0;

	assert(!locks->in_event && hf_range_is_valid(range));
	hf_target_find(locks, who, &found);
	if (found.holding) {
		hf_tree_expect(&found.holding->own);
		hf_lock_file_aim(found.file, NULL, range, &aim);
		own = hf_holding_from(found.holding, range.start);
		if (!hf_holding_is_whole(&own, range)) {
			if (splits_too_many(locks, &found, &own, range))
				return hf_room_refuse(locks, found.file, who, HF_ROOM_TO_LOCK, 1);
			r = hf_holding_reserve(locks, HF_REPLACE_RECORDS);
		}
		if (r < 0)
			return hf_trace(r);
		hf_holding_replace_at(locks, found.holding, own, &aim, range, NULL);
		end_grants(locks, found.holding, range);
		if (ends_waits)
			end_waiters(locks, found.holding, range);
		hf_holding_free_if_empty(locks, found.holding);
	}
	hf_serve_waiters(locks);
	hf_steps_charge(locks, who->client);
	return HF_LOCK_OK;
}

int hf_lock_release(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range)
{
	return release(locks, who, range, true);
}

int hf_lock_take_back(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range)
{
	return release(locks, who, range, false);
}

/* Memory for hf_grant_assume() after the lock at @range is gone. */
static int reserve_to_assume(struct hf_locks *locks, const struct hf_holding *holding, struct hf_range range)
{
	size_t n = 0;

	hf_list_for_each(pos, &holding->grants) {
		const struct hf_waiter *grant = hf_list_entry(pos, struct hf_waiter, in_holding);

		n += grant->is_changed || hf_range_overlaps(hf_waiter_range(grant), range);
	}
	return n ? hf_holding_reserve(locks, n * (HF_REPLACE_RECORDS + 2)) : 0;
}

/*
 * A grant in flight of which this lock is a part ends, too: GRANTED names the whole range, and must not come
 * when another owner has this part. The client may have heard it before: the rest stays. Nothing
 * may fail once the lock is gone.
 */
int hf_lock_revoke(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range)
{
	struct hf_found found;
	struct hf_spot own;
	int r;

	assert(!locks->in_event && hf_range_is_valid(range));
	hf_target_find(locks, who, &found);
	if (!found.holding)
		return HF_LOCK_E_NOTHING;
	own = hf_holding_from(found.holding, range.start);
	if (!hf_holding_is_whole(&own, range))
		return HF_LOCK_E_NOTHING;
	r = reserve_to_assume(locks, found.holding, range);
	if (r < 0)
		return hf_trace(r);
	hf_holding_remove(locks, hf_spot_lock(&own), HF_LOCK_CAUSE_ORDER);
	end_grants(locks, found.holding, range);
	hf_grant_assume(locks, found.holding, false);
	hf_holding_free_if_empty(locks, found.holding);
	hf_serve_waiters(locks);
	hf_steps_charge(locks, who->client);
	return HF_LOCK_OK;
}

static bool cancel_waiter(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range,
			  enum hf_lock_mode mode)
{
	struct hf_waiter *waiter = hf_waiters_find(&holding->waiters, range, mode);

	if (waiter)
		hf_waiters_end(locks, waiter, HF_LOCK_END_CANCELLED);
	return waiter != NULL;
}

int hf_lock_leave_queue(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
			enum hf_lock_mode mode)
{
	struct hf_found found;
	struct hf_waiter *grant;

	assert(!locks->in_event && hf_range_is_valid(range));
	hf_target_find(locks, who, &found);
	if (!found.holding)
		return HF_LOCK_E_NOTHING;
	if (!cancel_waiter(locks, found.holding, range, mode)) {
		grant = hf_grant_find(found.holding, range, mode);
		if (grant)
			grant->is_left = true;
		return HF_LOCK_E_NOTHING;
	}
	hf_holding_free_if_empty(locks, found.holding);
	hf_serve_waiters(locks);
	hf_steps_charge(locks, who->client);
	return HF_LOCK_OK;
}

static bool may_stay(struct hf_locks *locks, const struct hf_waiter *waiter,
		     bool (*may_wait)(void *context, const struct hf_lock_view *waiter), void *context)
{
	struct hf_lock_view view;
	bool answer;

	locks->n_steps++;
	hf_view_waiter(waiter, &view);
	locks->in_event = true;
	answer = may_wait(context, &view);
	locks->in_event = false;
	return answer;
}

static size_t sift_file(struct hf_locks *locks, struct hf_lock_file *file,
			bool (*may_wait)(void *context, const struct hf_lock_view *waiter), void *context)
{
	struct hf_link *next = hf_list_first(&file->queue);
	size_t n = 0;

	for (size_t n_left = file->n_waiters; n_left > 0; n_left--) { /* the file may go with the last one */
		struct hf_waiter *waiter = hf_list_entry(next, struct hf_waiter, in_queue);
		struct hf_holding *holding = waiter->holding;

		next = next->next;
		if (may_stay(locks, waiter, may_wait, context))
			continue;
		hf_waiters_end(locks, waiter, HF_LOCK_END_CANCELLED);
		hf_holding_free_if_empty(locks, holding);
		n++;
	}
	return n;
}

/* A grant that cannot be stored would go back to its queue, and the client has not heard of it. */
static void sift_grants(struct hf_locks *locks,
			bool (*may_wait)(void *context, const struct hf_lock_view *waiter), void *context)
{
	for (struct hf_rb_node *node = hf_rb_first(&locks->grants); node; node = hf_rb_next(node)) {
		struct hf_waiter *grant = hf_rb_entry(node, struct hf_waiter, by_id);

		if (!may_stay(locks, grant, may_wait, context))
			grant->is_left = true;
	}
}

/* The waiters that stay are served once, and not for each that leaves: that would walk their queue each time.
 */
size_t hf_lock_sift_waiters(struct hf_locks *locks,
			    bool (*may_wait)(void *context, const struct hf_lock_view *waiter), void *context)
{
	struct hf_rb_node *node = hf_rb_first(&locks->waiting), *next;
	size_t n = 0;

	assert(!locks->in_event);
	for (; node; node = next) {
		next = hf_rb_next(node);
		n += sift_file(locks, hf_rb_entry(node, struct hf_lock_file, in_waiting), may_wait, context);
	}
	sift_grants(locks, may_wait, context);
	hf_serve_waiters(locks);
	hf_steps_charge(locks, NULL);
	return n;
}

/*
 * Does the holding look as a granted request for @range in @mode leaves it: all of the range in that mode,
 * except guarded parts, which are stronger? Without a lock in exactly this mode, the request was never
 * served, or changed nothing.
 */
static bool may_be_a_repetition(const struct hf_holding *holding, struct hf_range range,
				enum hf_lock_mode mode)
{
	struct hf_stretch stretch = { .spot = hf_holding_from(holding, range.start), .pos = range.start };
	struct hf_lock *lock;
	bool has_mode = false;

	for (; stretch.pos <= range.end && (lock = hf_stretch_lock(&stretch)) && lock->mode >= mode;
	     hf_stretch_next(&stretch))
		has_mode |= lock->mode == mode;
	return has_mode && stretch.pos > range.end;
}

int hf_lock_cancel(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		   enum hf_lock_mode mode)
{
	struct hf_found found;
	struct hf_waiter *waiter;

	assert(!locks->in_event && hf_range_is_valid(range));
	hf_target_find(locks, who, &found);
	if (!found.holding)
		return HF_LOCK_E_NOTHING;
	if (!cancel_waiter(locks, found.holding, range, mode)) {
		waiter = hf_grant_find(found.holding, range, mode);
		if (!waiter)
			return may_be_a_repetition(found.holding, range, mode) ? HF_LOCK_E_LOCKED
									       : HF_LOCK_E_NOTHING;
		hf_grant_undo(locks, waiter);
		hf_grant_end(locks, waiter, HF_LOCK_END_CANCELLED);
	}
	hf_holding_free_if_empty(locks, found.holding);
	hf_serve_waiters(locks);
	hf_steps_charge(locks, who->client);
	return HF_LOCK_OK;
}
