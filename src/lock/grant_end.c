/*
 * How does a grant in flight end?
 *
 *	confirmed  the client has acknowledged it;
 *	refused    the client does not want the lock: the owner gets back what it had;
 *	assumed    the client may or may not know of the grant: it has the lock, and
 *	           nothing that it held exclusively is downgraded;
 *	put back   the store could not write the grant, so the client was not told:
 *	           the waiter returns to the front of the queue. The client was told
 *	           BLOCKED and may never repeat its request. If it did and was refused
 *	           for good, its program does not wait, and the grant is refused.
 *
 * Waiters that are put back do not conflict with each other: they were granted together.
 */
#include "lock/internal.h"

#include "base/error.h"
#include "lock/serve.h"
#include "lock/steps.h"

/* Ends grant @id as confirmed. Without @downgrades exclusive locks stay exclusive. */
static int confirm(struct hf_locks *locks, uint64_t id, bool downgrades)
{
	struct hf_waiter *grant = hf_grant_by_id(locks, id);
	struct hf_lock_client *client;
	struct hf_holding *holding;
	int r;

	assert(!locks->in_event);
	if (!grant)
		return HF_LOCK_E_NOTHING;
	r = hf_holding_reserve(locks, HF_REPLACE_RECORDS + 2);
	if (r < 0)
		return hf_trace(r);
	holding = grant->holding;
	client = holding->owner->client;
	hf_grant_confirm(locks, grant, downgrades);
	hf_grant_end(locks, grant, HF_LOCK_END_CONFIRMED);
	hf_holding_free_if_empty(locks, holding);
	hf_serve_waiters(locks);
	hf_steps_charge(locks, client);
	return HF_LOCK_OK;
}

int hf_lock_grant_confirm(struct hf_locks *locks, uint64_t id)
{
	return confirm(locks, id, true);
}

int hf_lock_grant_assume(struct hf_locks *locks, uint64_t id)
{
	return confirm(locks, id, false);
}

int hf_grant_assume(struct hf_locks *locks, struct hf_holding *holding, bool all)
{
	int r;

	hf_list_for_each_safe(pos, &holding->grants) {
		struct hf_waiter *grant = hf_list_entry(pos, struct hf_waiter, in_holding);

		if (!all && !grant->is_changed)
			continue;
		r = hf_holding_reserve(locks, HF_REPLACE_RECORDS + 2);
		if (r < 0)
			return hf_trace(r);
		hf_grant_confirm(locks, grant, false);
		hf_grant_end(locks, grant, HF_LOCK_END_CONFIRMED);
	}
	return 0;
}

static int assume_of(struct hf_locks *locks, const struct hf_lock_target *who, bool all)
{
	struct hf_found found;
	int r;

	assert(!locks->in_event);
	if (HF_LIKELY(!locks->n.grants))
		return HF_LOCK_OK;
	hf_target_find(locks, who, &found);
	if (!found.holding)
		return HF_LOCK_OK;
	r = hf_grant_assume(locks, found.holding, all);
	hf_holding_free_if_empty(locks, found.holding);
	hf_serve_waiters(locks);
	hf_steps_charge(locks, who->client);
	return r < 0 ? hf_trace(r) : HF_LOCK_OK;
}

int hf_lock_assume_changed(struct hf_locks *locks, const struct hf_lock_target *who)
{
	return assume_of(locks, who, false);
}

int hf_lock_assume_grants(struct hf_locks *locks, const struct hf_lock_target *who)
{
	return assume_of(locks, who, true);
}

int hf_lock_grant_refuse(struct hf_locks *locks, uint64_t id)
{
	struct hf_waiter *grant = hf_grant_by_id(locks, id);
	struct hf_lock_client *client;
	struct hf_holding *holding;

	assert(!locks->in_event);
	if (!grant)
		return HF_LOCK_E_NOTHING;
	holding = grant->holding;
	client = holding->owner->client;
	hf_grant_undo(locks, grant);
	hf_grant_end(locks, grant, HF_LOCK_END_REFUSED);
	hf_holding_free_if_empty(locks, holding);
	hf_serve_waiters(locks);
	hf_steps_charge(locks, client);
	return HF_LOCK_OK;
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
	hf_grant_unlink(locks, grant);
	hf_emit_gone(locks, grant, HF_LOCK_END_PUT_BACK);
	grant->is_granted = grant->is_changed = false;
	grant->id = ++locks->last_waiter; /* the client's waiters are in the order of ids */
	hf_waiters_insert_first(locks, grant);
	hf_emit_queued(locks, grant);
	hf_waiters_touch(locks, grant->holding->file, hf_waiter_range(grant));
	hf_serve_waiters(locks);
	hf_steps_charge(locks, NULL);
	return HF_LOCK_OK;
}
