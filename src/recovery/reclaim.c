/*
 * How is a reclaim to be served? In grace by what was loaded; after grace by what was
 * dropped at its end, or as the repetition of a reclaim that was granted.
 *
 * Locks are ranges: what the owner has already is granted again without harm.
 * Reservations are counted, so a repeated reclaim must not add one. Where the stored
 * list is not complete, the server cannot tell how many there were, and may add one
 * too many: that is the lesser evil, and lasts until the owner is gone.
 */
#include "recovery/internal.h"

enum hf_recovery_reclaim hf_recovery_reclaim(struct hf_recovery *recovery,
					     const struct hf_lock_request *request)
{
	switch (recovery->phase.now) {
	case HF_PHASE_OPEN_GRACE:
		return HF_RECLAIM_NORMAL;
	case HF_PHASE_LOADING:
	case HF_PHASE_CHECKED_GRACE:
	case HF_PHASE_WHOLE_GRACE:
		/* Dropped at the end of an earlier grace, before a simulated restart. */
		return hf_late_reclaim_allows(recovery, request) ? HF_RECLAIM_NORMAL : HF_RECLAIM_BACKED;
	case HF_PHASE_SERVING:
		/* A repeated request for what was reclaimed in time is answered as it was then. */
		if (!hf_late_reclaim_allows(recovery, request))
			return HF_RECLAIM_BACKED;
		recovery->counts.late_reclaims++;
		return HF_RECLAIM_LATE;
	case HF_PHASE_STOPPING:
	case HF_PHASE_TAKEN:
	case HF_PHASE_STOPPED:
		break;
	}
	return HF_RECLAIM_REFUSED;
}

void hf_recovery_unlocked(struct hf_recovery *recovery, const struct hf_lock_target *who,
			  struct hf_range range)
{
	if (HF_UNLIKELY(recovery->late_reclaims.n))
		hf_late_reclaim_unlocked(recovery, who, range);
}

static struct hf_lock_target target_of(const struct hf_lock_reservation_view *reservation)
{
	return (struct hf_lock_target){ .export = reservation->export,
					.handle = reservation->handle,
					.client = reservation->client,
					.oh = reservation->oh };
}

enum hf_recovery_reclaim hf_recovery_reclaim_reservation(struct hf_recovery *recovery,
							 const struct hf_lock_reservation_view *reservation)
{
	const struct hf_lock_target who = target_of(reservation);
	struct hf_lock_reservation_view has = { 0 };

	if (hf_phase_is_over(recovery))
		return HF_RECLAIM_REFUSED;
	hf_lock_find_reservation(recovery->locks, &who, reservation->access, reservation->deny, &has);
	if (recovery->phase.now == HF_PHASE_OPEN_GRACE || has.n_unreclaimed || has.n_unsure)
		return HF_RECLAIM_NORMAL;
	if (hf_late_reclaim_allows_reservation(recovery, reservation)) {
		if (recovery->phase.now != HF_PHASE_SERVING)
			return HF_RECLAIM_NORMAL;
		recovery->counts.late_reclaims++;
		return HF_RECLAIM_LATE;
	}
	return has.count ? HF_RECLAIM_BACKED : HF_RECLAIM_REFUSED;
}

void hf_recovery_unsure_reservation(struct hf_recovery *recovery,
				    const struct hf_lock_reservation_view *reservation)
{
	const struct hf_lock_target who = target_of(reservation);

	hf_lock_doubt_reservation(recovery->locks, &who, reservation->access, reservation->deny);
}

bool hf_recovery_unreserve(struct hf_recovery *recovery, const struct hf_lock_reservation_view *reservation)
{
	const struct hf_lock_target who = target_of(reservation);
	struct hf_lock_reservation_view has;

	if (hf_lock_find_reservation(recovery->locks, &who, reservation->access, reservation->deny, &has))
		return false;
	return hf_late_reclaim_take_reservation(recovery, reservation);
}
