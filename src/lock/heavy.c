/*
 * A grant over very many locks of its own owner.
 *
 * A grant in flight changes every lock that its owner has in the range, and a
 * refusal all of them back (grant.c): with a few messages whoever has hundreds of
 * thousands could have us do that again and again. So where they are many the
 * owner gets what a request would have given him: few locks in the place of all
 * those. That is as much work as it was to take them, and can be had once.
 *
 * What they were is forgotten by that. If the client does not want the lock, he
 * still must not have less than before, and so has more, until he unlocks: the
 * whole range shared, where he had nothing exclusive in it; else what was granted.
 */
#include "lock/internal.h"

enum {
	MANY = 4096,
};

bool hf_grant_is_heavy(const struct hf_waiter *waiter)
{
	struct hf_spot spot = hf_own_from(waiter->holding, waiter->start);
	unsigned int n = 0;

	if (waiter->holding->own.n <= MANY)
		return false;
	for (; hf_spot_lock(&spot) && hf_spot_range(&spot).start <= waiter->end && n <= MANY;
	     hf_spot_next(&spot))
		n++;
	return n > MANY;
}

static struct hf_lock *first_exclusive(const struct hf_holding *holding, struct hf_range range)
{
	struct hf_spot spot = hf_tree_exclusive(&holding->own, range);

	return hf_spot_lock(&spot);
}

/* One lock for all of them. */
static void lay_exclusive(struct hf_locks *locks, struct hf_waiter *grant, struct hf_lock_attrs attrs)
{
	if (!first_exclusive(grant->holding, hf_waiter_range(grant))) {
		attrs.prior_mode = HF_LOCK_SHARED;
		attrs.prior_state = attrs.state;
		attrs.prior_epoch = attrs.epoch;
		attrs.prior_flags = attrs.flags;
		attrs.flags |= HF_LOCK_PROVISIONAL;
		attrs.grant = grant;
	}
	hf_own_replace(locks, grant->holding, hf_waiter_range(grant), &attrs);
}

/* One lock for all between two exclusive ones, which are more than that and stay. */
static void lay_shared(struct hf_locks *locks, struct hf_waiter *grant, const struct hf_lock_attrs *attrs)
{
	struct hf_range range = hf_waiter_range(grant);

	while (range.start <= range.end) {
		struct hf_lock *lock = first_exclusive(grant->holding, range);
		struct hf_range part = { range.start, lock ? lock->start - 1 : range.end };

		range.start = lock ? lock->end + 1 : range.end + 1;
		if (!lock || lock->start > part.start)
			hf_own_replace(locks, grant->holding, part, attrs);
	}
}

void hf_grant_lay_heavy(struct hf_locks *locks, struct hf_waiter *grant)
{
	const struct hf_lock_attrs attrs = {
		.mode = grant->mode,
		.state = grant->state,
		.epoch = locks->epoch,
		.flags = grant->is_volatile ? HF_LOCK_VOLATILE : 0,
	};

	if (grant->mode == HF_LOCK_EXCLUSIVE)
		lay_exclusive(locks, grant, attrs);
	else
		lay_shared(locks, grant, &attrs);
}
