/*
 * What becomes of restored locks in grace and at its end?
 *
 * A lock or a reservation restored from the store is unreclaimed until its owner
 * requests it again. It conflicts as any other does. All unreclaimed ones are on two
 * lists, so the end of grace costs what is left of them.
 *
 * A ghost is an unreclaimed lock of a client that could not be told of the restart.
 * It is neither listed nor counted. Its client may still reclaim it, and until grace
 * ends it blocks the reclaims of other owners.
 */
#include "lock/internal.h"

#include "lock/serve.h"
#include "lock/steps.h"

bool hf_reclaim_is_backed(const struct hf_holding *holding, struct hf_range range, enum hf_lock_mode mode)
{
	struct hf_stretch stretch = { .pos = range.start };
	struct hf_lock *lock;

	if (!holding)
		return false;
	stretch.spot = hf_holding_from(holding, range.start);
	/* An exclusive lock backs a shared reclaim: no other owner can have held the range. */
	while (stretch.pos <= range.end && (lock = hf_stretch_lock(&stretch)) && lock->mode >= mode)
		hf_stretch_next(&stretch);
	return stretch.pos > range.end;
}

void hf_lock_show_ghosts(const struct hf_locks *locks,
			 void (*fn)(void *context, const struct hf_lock_view *ghost), void *context)
{
	struct hf_lock_view view;

	hf_list_for_each(pos, &locks->unreclaimed) {
		struct hf_lock *lock = hf_list_entry(pos, struct hf_lock, unreclaimed);

		if (!(lock->flags & HF_LOCK_GHOST))
			continue;
		hf_view_lock(lock, &view);
		fn(context, &view);
	}
}

static void drop_lock(struct hf_locks *locks, struct hf_lock *lock)
{
	struct hf_holding *holding = lock->holding;

	hf_holding_remove(locks, lock, HF_LOCK_CAUSE_EXPIRY);
	hf_holding_free_if_empty(locks, holding);
}

static void drop_unreclaimed(struct hf_locks *locks)
{
	hf_list_for_each_safe(pos, &locks->unreclaimed) {
		struct hf_lock *lock = hf_list_entry(pos, struct hf_lock, unreclaimed);

		if (!lock->holding->owner->client->outlives_grace)
			drop_lock(locks, lock);
	}
	hf_reservations_drop_unreclaimed(locks, NULL);
}

void hf_lock_set_grace(struct hf_locks *locks, bool is_on)
{
	bool was_on = locks->is_grace;

	assert(!locks->in_event);
	locks->is_grace = is_on;
	if (!was_on || is_on)
		return;
	drop_unreclaimed(locks);
	hf_serve_touch_all(locks);
	hf_serve_waiters(locks);
	hf_steps_charge(locks, NULL);
}

bool hf_lock_in_grace(const struct hf_locks *locks)
{
	return locks->is_grace;
}

/* A client that lives by its connection has lost it, and reclaims as after any restart. */
void hf_lock_accept_restored(struct hf_locks *locks)
{
	assert(!locks->in_event);
	hf_list_for_each_safe(pos, &locks->unreclaimed) {
		struct hf_lock *lock = hf_list_entry(pos, struct hf_lock, unreclaimed);

		if (!lock->holding->owner->client->outlives_grace)
			hf_holding_accept(locks, lock);
	}
	hf_reservations_accept_restored(locks);
}

/* Unreclaimed locks of one holding become ghosts, or go. */
static void give_up_holding(struct hf_locks *locks, struct hf_holding *holding, bool as_ghosts)
{
	struct hf_spot spot = hf_tree_begin(&holding->own);
	struct hf_lock *lock;

	while ((lock = hf_spot_lock(&spot))) {
		uint64_t end = lock->end;

		if (!(lock->flags & HF_LOCK_UNRECLAIMED) || (as_ghosts && lock->flags & HF_LOCK_GHOST)) {
			hf_spot_next(&spot);
		} else if (as_ghosts) {
			hf_holding_hide(locks, lock);
			hf_spot_next(&spot);
		} else {
			hf_holding_remove(locks, lock, HF_LOCK_CAUSE_EXPIRY);
			spot = hf_holding_from(holding, end + 1);
		}
	}
	hf_holding_free_if_empty(locks, holding);
}

static void give_up(struct hf_locks *locks, struct hf_lock_client *client, bool as_ghosts)
{
	struct hf_rb_node *node = hf_rb_first(&client->owners);

	assert(!locks->in_event);
	while (node) {
		struct hf_owner *owner = hf_rb_entry(node, struct hf_owner, in_client);
		struct hf_rb_node *at = hf_rb_first(&owner->holdings);

		node = hf_rb_next(node);
		while (at) {
			struct hf_holding *holding = hf_rb_entry(at, struct hf_holding, in_owner);

			at = hf_rb_next(at);
			give_up_holding(locks, holding,
					as_ghosts); /* may free @owner with its last holding */
		}
	}
}

void hf_lock_client_release_reclaimable(struct hf_locks *locks, struct hf_lock_client *client)
{
	give_up(locks, client, locks->is_grace);
	hf_serve_waiters(locks);
	hf_steps_charge(locks, NULL);
}

void hf_lock_client_drop_unreclaimed(struct hf_locks *locks, struct hf_lock_client *client)
{
	give_up(locks, client, false);
	hf_reservations_drop_unreclaimed(locks, client);
	hf_serve_waiters(locks);
	hf_steps_charge(locks, NULL);
}
