/*
 * Is anything in memory that was locked in this export? Its key in the lock table contains
 * the home of the export's file system, which must not change meanwhile.
 *
 * This walks through all. It is asked only when a reload finds an export on another file system.
 */
#include "recovery/internal.h"

struct search {
	uint32_t export;
	bool is_found;
};

static void look_at_ghost(void *user, const struct hf_lock_view *ghost)
{
	struct search *search = user;

	search->is_found |= ghost->who.export == search->export;
}

static bool has_ghost(const struct hf_locks *locks, uint32_t export)
{
	struct search search = { .export = export };

	hf_lock_show_ghosts(locks, look_at_ghost, &search);
	return search.is_found;
}

static bool has_lock(const struct hf_locks *locks, uint32_t export)
{
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;

	while (hf_lock_next_lock(locks, NULL, &cursor, &view))
		if (view.who.export == export)
			return true;
	return false;
}

static bool has_waiter(const struct hf_locks *locks, uint32_t export)
{
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;

	while (hf_lock_next_waiter(locks, NULL, &cursor, &view))
		if (view.who.export == export)
			return true;
	return false;
}

static bool has_reservation(const struct hf_locks *locks, uint32_t export)
{
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_reservation_view view;

	while (hf_lock_next_reservation(locks, NULL, &cursor, &view))
		if (view.export == export)
			return true;
	return false;
}

bool hf_recovery_uses_export(struct hf_recovery *recovery, uint32_t export)
{
	const struct hf_locks *locks = recovery->locks;

	return has_lock(locks, export) || has_ghost(locks, export) || has_waiter(locks, export) ||
	       has_reservation(locks, export) || hf_late_reclaim_is_in(recovery, export);
}
