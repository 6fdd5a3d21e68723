/*
 * A client has crashed: which of its locks, waiters and reservations go?
 *
 * All of them, or all that do not carry the state number of its new life. The cost
 * is that of what the client has. The waiters of each touched file are served
 * once, after everything is removed.
 *
 * A purge always finishes, also without memory. If a grant in flight of the new life
 * lies over a lock of the old life, the purge removes the lock and applies the grant
 * again, since the client may know of the grant. That step alone needs memory, and
 * is left out if there is none.
 */
#include "lock/internal.h"

#include "lock/serve.h"
#include "lock/steps.h"

static void purge_grants(const struct hf_purge *purge, struct hf_holding *holding)
{
	hf_list_for_each_safe(pos, &holding->grants) {
		struct hf_waiter *grant = hf_list_entry(pos, struct hf_waiter, in_holding);

		if (!hf_purge_is_dead(purge, grant->state))
			continue;
		/* A restored lock stays or goes by its own state number: purge_locks() decides. */
		if (!purge->all)
			hf_grant_undo(purge->locks, grant);
		hf_grant_end(purge->locks, grant, HF_LOCK_END_PURGED);
	}
}

static void purge_waiters(const struct hf_purge *purge, struct hf_holding *holding)
{
	hf_list_for_each_safe(pos, &holding->waiters) {
		struct hf_waiter *waiter = hf_list_entry(pos, struct hf_waiter, in_holding);

		if (hf_purge_is_dead(purge, waiter->state))
			hf_waiters_end(purge->locks, waiter, HF_LOCK_END_PURGED);
	}
}

/* A refusal of this live grant must not restore a lock of the old life. */
static void forget_prior(const struct hf_purge *purge, struct hf_lock *lock)
{
	struct hf_lock_attrs attrs;

	hf_attrs_of(lock, &attrs);
	attrs.prior_mode = HF_LOCK_NONE;
	attrs.prior_state = attrs.prior_epoch = 0;
	attrs.prior_flags = 0;
	hf_holding_replace(purge->locks, lock->holding, hf_lock_range(lock), &attrs);
}

static void purge_locks(const struct hf_purge *purge, struct hf_holding *holding)
{
	struct hf_spot spot = hf_tree_begin(&holding->own);
	struct hf_lock *lock;
	uint64_t end;

	for (; (lock = hf_spot_lock(&spot)); spot = hf_holding_from(holding, end + 1)) {
		end = lock->end;
		if (hf_purge_is_dead(purge, lock->state)) {
			struct hf_range dead = hf_lock_range(lock);

			hf_holding_remove(purge->locks, lock, HF_LOCK_CAUSE_CRASH);
			hf_grant_apply_again(purge->locks, holding, dead);
		} else if (lock->flags & HF_LOCK_PROVISIONAL && lock->prior_mode &&
			   hf_purge_is_dead(purge, lock->prior_state)) {
			forget_prior(purge, lock);
		}
	}
}

static void purge_owner(const struct hf_purge *purge, struct hf_owner *owner)
{
	struct hf_rb_node *node = hf_rb_first(&owner->holdings);

	while (node) {
		struct hf_holding *holding = hf_rb_entry(node, struct hf_holding, in_owner);

		node = hf_rb_next(node);
		purge_grants(purge, holding);
		purge_waiters(purge, holding);
		purge_locks(purge, holding);
		hf_holding_free_if_empty(purge->locks, holding); /* may free @owner with its last holding */
	}
}

static void purge_client(const struct hf_purge *purge, struct hf_lock_client *client)
{
	struct hf_rb_node *node = hf_rb_first(&client->owners);

	assert(!purge->locks->in_event);
	while (node) {
		struct hf_owner *owner = hf_rb_entry(node, struct hf_owner, in_client);

		node = hf_rb_next(node);
		purge_owner(purge, owner);
	}
	hf_reservations_purge(purge, client);
	hf_serve_waiters(purge->locks);
	hf_steps_charge(purge->locks, client);
}

void hf_lock_client_purge(struct hf_locks *locks, struct hf_lock_client *client)
{
	const struct hf_purge purge = { .locks = locks, .all = true };

	purge_client(&purge, client);
}

void hf_lock_client_purge_older(struct hf_locks *locks, struct hf_lock_client *client, uint32_t state)
{
	hf_lock_client_purge_but(locks, client, &state, 1);
}

void hf_lock_client_purge_but(struct hf_locks *locks, struct hf_lock_client *client, const uint32_t *living,
			      size_t n)
{
	const struct hf_purge purge = { .locks = locks, .living = living, .n_living = n };

	purge_client(&purge, client);
}
