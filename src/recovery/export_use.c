/*
 * By which exports is anything locked, waited for, reserved or still to be reclaimed? The
 * keys of all that in the lock table contain the home of the export's file system, which
 * must not change meanwhile.
 *
 * This walks through all. It is asked only when a reload finds an export on another file
 * system, and until nothing of that is left.
 */
#include "recovery/internal.h"

struct show {
	void (*fn)(void *context, uint32_t export);
	void *context;
};

static void show_ghost(void *user, const struct hf_lock_view *ghost)
{
	const struct show *show = user;

	show->fn(show->context, ghost->who.export);
}

static void show_locks(const struct hf_locks *locks, const struct show *show)
{
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;

	while (hf_lock_next_lock(locks, NULL, &cursor, &view))
		show->fn(show->context, view.who.export);
}

static void show_waiters_of(const struct hf_locks *locks, const struct hf_client *client,
			    const struct show *show)
{
	const struct hf_lock_scope scope = { .client = &client->locking };
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;

	while (hf_lock_next_waiter(locks, &scope, &cursor, &view))
		show->fn(show->context, view.who.export);
}

/* By clients: the next waiter of a file takes a walk through its queue. */
static void show_waiters(const struct hf_recovery *recovery, const struct show *show)
{
	struct hf_client *client;
	uint64_t serial = 0;

	while ((client = hf_clients_next(recovery->clients, serial))) {
		serial = client->serial;
		show_waiters_of(recovery->locks, client, show);
		hf_client_unref(client);
	}
}

static void show_reservations(const struct hf_locks *locks, const struct show *show)
{
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_reservation_view view;

	while (hf_lock_next_reservation(locks, NULL, &cursor, &view))
		show->fn(show->context, view.export);
}

void hf_recovery_show_used_exports(struct hf_recovery *recovery, void (*fn)(void *context, uint32_t export),
				   void *context)
{
	struct show show = { fn, context };

	show_locks(recovery->locks, &show);
	hf_lock_show_ghosts(recovery->locks, show_ghost, &show);
	show_waiters(recovery, &show);
	show_reservations(recovery->locks, &show);
	hf_late_reclaim_show_exports(recovery, fn, context);
}
