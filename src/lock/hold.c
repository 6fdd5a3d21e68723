/*
 * While the store cannot write the server promises nothing: no waiter is granted its
 * lock, and a grant that could not be promised becomes a waiter again, at the front
 * of the queue. Its client was told BLOCKED and may never ask again. If it did ask
 * again, and was refused for good, its program does not wait: the waiter ends.
 *
 * Waiters that are put back do not conflict with each other: they were granted together.
 */
#include "lock/internal.h"

void hf_grant_leave(struct hf_locks *locks, struct hf_waiter *grant)
{
	assert(grant->is_granted);
	hf_link_remove(&grant->in_holding);
	hf_rb_erase(&locks->grants, &grant->by_id, NULL);
	grant->holding->owner->client->n_grants--;
	locks->n.grants--;
}

int hf_lock_grant_put_back(struct hf_locks *locks, uint64_t id)
{
	struct hf_waiter *grant = hf_grant_by_id(locks, id);

	assert(!locks->in_event);
	if (!grant)
		return HF_LOCK_E_NOTHING;
	if (grant->is_left)
		return hf_lock_grant_refuse(locks, id);
	hf_grant_undo(locks, grant);
	hf_grant_leave(locks, grant);
	hf_emit_gone(locks, grant, HF_LOCK_END_PUT_BACK);
	grant->is_granted = grant->is_changed = false;
	grant->id = ++locks->last_waiter; /* sets are in the order of ids */
	hf_waiters_insert_first(locks, grant);
	hf_waiters_touch(locks, grant->holding->file, hf_waiter_range(grant));
	hf_waiters_serve(locks);
	hf_work_charge(locks, NULL);
	return HF_LOCK_OK;
}

void hf_lock_hold_waiters(struct hf_locks *locks, bool is_on)
{
	bool was_on = locks->holds_waiters;

	locks->holds_waiters = is_on;
	if (!was_on || is_on)
		return;
	assert(!locks->in_event);
	hf_waiters_touch_all(locks);
	hf_waiters_serve(locks);
	hf_work_charge(locks, NULL);
}
