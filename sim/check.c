/*
 * What must be true after every step, from both sides: what clients were told against what
 * the server has, and what the server has against the disk.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "client/client.h"
#include "lock/internal.h"
#include "lock/lock.h"
#include "recovery/internal.h"
#include "sim.h"
#include "store/backend.h"

/* The locks in the store, read again only when its records have changed, and which of them are in the table,
 * too. */
struct matching {
	uint64_t version; /* of the disk's view */
	uint32_t n;
	uint32_t n_missing;
	bool is_used[DISK_RECORDS];
	struct hf_record stored[DISK_RECORDS];
};

static bool is_record_of(const struct hf_record *record, const struct hf_lock_view *view)
{
	const struct hf_client *client = hf_container_of(view->who.client, struct hf_client, locking);

	return record->lock.owner == view->who.owner_id && record->lock.start == view->range.start &&
	       record->lock.end == view->range.end && record->lock.mode == view->mode &&
	       hf_bytes_equal(record->lock.handle, view->who.handle) &&
	       hf_bytes_equal(record->lock.client, hf_bytes_of_str(client->id));
}

static void read_stored(struct matching *matching, const struct disk_view *view)
{
	matching->version = view->version;
	matching->n = 0;
	for (uint32_t i = 0; i < view->n; i++) {
		if (disk_record_read(&view->records[i], HF_RECORD_LOCK, &matching->stored[matching->n]))
			matching->n++;
	}
}

static struct matching *begin_matching(struct world *world)
{
	struct matching *matching = world->matching;

	if (!matching) {
		matching = world->matching =
			sim_alloc_head(sizeof(*matching), offsetof(struct matching, is_used));
		matching->version = UINT64_MAX;
	}
	if (matching->version != world->disk.cached.version)
		read_stored(matching, &world->disk.cached);
	memset(matching->is_used, 0, matching->n);
	matching->n_missing = 0;
	return matching;
}

static void match(struct matching *matching, const struct hf_lock_view *view)
{
	if (view->flags & HF_LOCK_VOLATILE)
		return;
	for (uint32_t i = 0; i < matching->n; i++)
		if (!matching->is_used[i] && is_record_of(&matching->stored[i], view)) {
			matching->is_used[i] = true;
			return;
		}
	matching->n_missing++;
}

/* The lock table, as all programs see it. */
struct table {
	struct world *world;
	uint8_t has[MAX_HOSTS][MAX_PROCS][MAX_FILES][N_UNITS];
	uint32_t n, n_ghosts;
	struct matching *matching; /* with the store; NULL: not now */
};

/* The units of a file side by side, one byte each: equal or empty ones are found at once. */
_Static_assert(N_UNITS == sizeof(uint64_t), "a file's units are one word");
#define EACH UINT64_C(0x0101010101010101)

static uint64_t word_of(const uint8_t units[N_UNITS])
{
	uint64_t word;

	memcpy(&word, units, sizeof(word));
	return word;
}

struct host *check_host_of(struct world *world, struct hf_lock_client *locking)
{
	const struct hf_client *client = hf_container_of(locking, struct hf_client, locking);

	return nat_owner(world, &client->address, client->name);
}

static struct proc *owner_of(struct world *world, const struct hf_lock_view *view)
{
	struct host *host = check_host_of(world, view->who.client);

	for (uint32_t i = 0; host && i < host->n_procs; i++)
		if (host->procs[i].svid == view->who.owner_id)
			return &host->procs[i];
	return NULL;
}

/* I5: the server has nothing of a life of a host that it knows to be over. */
static void check_dead(struct world *world, const struct hf_lock_view *view, const char *what)
{
	struct host *host = check_host_of(world, view->who.client);

	if (host && view->who.owner_id / 100 < host->told_life)
		world_fail(world, "I5", "host %u was restarted and said so, and %u still has a %s",
			   host->index, (unsigned int)view->who.owner_id, what);
}

static void see(void *user, const struct hf_lock_view *view)
{
	struct table *table = user;
	struct proc *proc = owner_of(table->world, view);
	uint8_t file = view->who.handle.data[0];
	struct span span;

	if (!span_of_range(&span, view->range)) {
		world_fail(table->world, "I1", "no program asked for the range %llu-%llu",
			   (unsigned long long)view->range.start, (unsigned long long)view->range.end);
		return;
	}
	if (view->flags & HF_LOCK_GHOST)
		table->n_ghosts++;
	else
		table->n++;
	if (table->matching)
		match(table->matching, view);
	if (!(view->flags & (HF_LOCK_GHOST | HF_LOCK_UNRECLAIMED)))
		check_dead(table->world, view, "lock");
	if (proc && proc->host->is_unmonitored && !(view->flags & HF_LOCK_VOLATILE))
		world_fail(table->world, "I3",
			   "a lock of %u stays stored, and its host %u would not be told of a restart",
			   proc->svid, proc->host->index);
	if (proc)
		for (int unit = span.first; unit <= span.last; unit++)
			table->has[proc->host->index][proc - proc->host->procs][file][unit] =
				(uint8_t)view->mode;
}

static void read_table(struct table *table, struct world *world, struct matching *matching)
{
	struct hf_locks *locks = hf_recovery_locks(world->server->recovery);
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;

	memset(table, 0, sizeof(*table));
	table->world = world;
	table->matching = matching;
	while (hf_lock_next_lock(locks, NULL, &cursor, &view))
		see(table, &view);
	hf_lock_show_ghosts(locks, see, table);
	cursor = (struct hf_lock_cursor){ 0 };
	while (hf_lock_next_waiter(locks, NULL, &cursor, &view))
		check_dead(world, &view, "wait");
}

void check_read_table(struct world *world, const struct host *host, uint32_t svid,
		      uint8_t has[MAX_FILES][N_UNITS])
{
	struct table table;

	read_table(&table, world, NULL);
	memset(has, 0, MAX_FILES * N_UNITS);
	for (uint32_t i = 0; i < host->n_procs; i++)
		if (host->procs[i].svid == svid && !thread_is_second(&host->procs[i]))
			memcpy(has, table.has[host->index][i], MAX_FILES * N_UNITS);
}

/* I3, I6: a client has what it was told that it has. */

static void check_unit(struct world *world, struct proc *proc, int file, int unit, uint8_t in_table,
		       bool may_forfeit)
{
	struct server *server = world->server;
	uint8_t has = proc->own->has[file][unit];

	if (has <= in_table)
		return;
	if (!proc->own->firm[file][unit]) {
		if (server->grace_is_on && !server->is_complete)
			return; /* it must be reclaimed, and is not in the table before that */
		if (may_forfeit) {
			proc->own->phantom[file][unit] = has;
			proc->own->lost_at[file][unit] = world->now;
			proc->own->has[file][unit] = 0;
			world->counts->forfeits++;
			return;
		}
	}
	world_fail(world, proc->own->firm[file][unit] ? "I6" : "I3",
		   "%u of host %u was told that it has file %u unit %d in mode %u, the server has %u%s",
		   proc->svid, proc->host->index, (unsigned int)file, unit, has, in_table,
		   server->grace_is_on ? ", in grace" : (server->grace_over ? ", grace is over" : ""));
}

static void check_proc(struct world *world, struct proc *proc, const uint8_t in_table[MAX_FILES][N_UNITS],
		       bool may_forfeit)
{
	for (uint8_t file = 0; file < MAX_FILES; file++) {
		uint64_t has = word_of(proc->own->has[file]);

		if (has == 0 || has == word_of(in_table[file]))
			continue;
		if (reload_is_absent(world->server, file)) {
			reload_check_locks(world, proc, file);
			continue;
		}
		for (int unit = 0; unit < N_UNITS; unit++)
			check_unit(world, proc, file, unit, in_table[file][unit], may_forfeit);
	}
}

static void check_told(struct world *world, const struct table *table)
{
	struct server *server = world->server;
	bool may_forfeit = server->grace_over && (server->grace_by_hand || server->has_lost ||
						  world->now >= server->started_at + server->window_ns);

	server->grace_ran_out |= may_forfeit;
	if (may_forfeit)
		server->lost_before = server->started_at;

	for (uint32_t i = 0; i < world->n_hosts; i++) {
		struct host *host = &world->hosts[i];

		for (uint32_t j = 0; j < host->n_procs && host->is_up; j++)
			if (!thread_is_second(&host->procs[j]))
				check_proc(world, &host->procs[j], table->has[i][j], may_forfeit);
	}
	reservation_check(world, may_forfeit);
	if (server->grace_over) {
		server->grace_over = false;
		server->is_complete = true;
	}
}

/* I1: no two of them conflict. */

static void check_pair(struct world *world, const struct proc *a, const struct proc *b)
{
	for (int file = 0; file < MAX_FILES; file++)
		for (int unit = 0; unit < N_UNITS; unit++)
			if (a->own->has[file][unit] + b->own->has[file][unit] > 2 &&
			    a->own->has[file][unit] && b->own->has[file][unit])
				world_fail(world, "I1",
					   "%u of host %u and %u of host %u both have file %d unit %d",
					   a->svid, a->host->index, b->svid, b->host->index, file, unit);
}

_Static_assert(HF_LOCK_SHARED == 1 && HF_LOCK_EXCLUSIVE == 2, "a mode is one bit of a byte");

/* Is there an exclusive lock beside others? This is cheaper than finding the pair, and is asked after every
 * turn. */
static bool is_any_conflict(struct proc *const *all, uint32_t n)
{
	uint64_t conflicts = 0;

	for (int file = 0; file < MAX_FILES; file++) {
		uint64_t one = 0, several = 0, exclusive = 0; /* programs that have it: bit 0 of each byte */

		for (uint32_t i = 0; i < n; i++) {
			uint64_t has = word_of(all[i]->own->has[file]), any = (has | has >> 1) & EACH;

			several |= one & any;
			one |= any;
			exclusive |= has >> 1 & EACH;
		}
		conflicts |= several & exclusive;
	}
	return conflicts != 0;
}

static void check_conflicts(struct world *world)
{
	struct proc *all[MAX_HOSTS * MAX_PROCS];
	uint32_t n = 0;

	for (uint32_t i = 0; i < world->n_hosts; i++)
		for (uint32_t j = 0; j < world->hosts[i].n_procs && world->hosts[i].is_up; j++)
			if (!thread_is_second(&world->hosts[i].procs[j]))
				all[n++] = &world->hosts[i].procs[j];
	if (!is_any_conflict(all, n))
		return;
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = i + 1; j < n; j++)
			check_pair(world, all[i], all[j]);
}

/* I10: the store has what the table has, whenever nothing is under way. */

static void check_locks_stored(struct world *world, const struct matching *matching)
{
	uint32_t n_more = 0;

	for (uint32_t i = 0; i < matching->n; i++)
		n_more += !matching->is_used[i] &&
			  !reload_is_absent(world->server, matching->stored[i].lock.handle.data[0]);
	if (matching->n_missing || n_more)
		world_fail(world, "I10", "the store lacks %u locks and has %u that are none",
			   matching->n_missing, n_more);
}

static void check_clients_stored(struct world *world)
{
	struct hf_clients *clients = hf_recovery_clients(world->server->recovery);
	struct hf_client *client;
	uint64_t serial = 0;
	uint32_t n = 0;

	while ((client = hf_clients_next(clients, serial))) {
		serial = client->serial;
		if (hf_client_is_registered(client) && !disk_has_client(world, client->id))
			world_fail(world, "I2", "%s is registered and not in the store", client->id);
		n += hf_client_is_registered(client);
		hf_client_unref(client);
	}
	for (uint32_t i = 0; i < world->disk.synced.n; i++)
		n -= world->disk.synced.records[i].type == HF_RECORD_CLIENT;
	if (n)
		world_fail(world, "I10", "the store has other registrations than the server");
}

static void check_waiters_stored(struct world *world)
{
	uint32_t n = disk_count_waiters(world), n_volatile = 0;
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_counters counters;
	struct hf_lock_view view;

	/* A run that starts over leaves them as they are until that is stored. */
	if (!world->server->continues || world->server->is_feigning)
		return;
	hf_lock_count(hf_recovery_locks(world->server->recovery), &counters);
	while (hf_lock_next_waiter(hf_recovery_locks(world->server->recovery), NULL, &cursor, &view))
		n_volatile += view.flags & HF_LOCK_VOLATILE ? 1 : 0;
	if (counters.waiters + counters.grants != n + n_volatile)
		world_fail(world, "I10",
			   "there are %llu waiters and %llu grants in flight, and %u are stored",
			   (unsigned long long)counters.waiters, (unsigned long long)counters.grants, n);
}

static bool is_at_rest(const struct world *world)
{
	struct hf_store *store = hf_recovery_store(world->server->recovery);

	return hf_store_is_healthy(store) && hf_store_is_idle(store) &&
	       hf_recovery_can_promise(world->server->recovery);
}

/* @matching: NULL if locks are not stored */
static void check_store(struct world *world, const struct matching *matching)
{
	if (matching) {
		check_locks_stored(world, matching);
		check_waiters_stored(world);
		reservation_check_stored(world);
	}
	check_clients_stored(world);
}

static void check_freed_of(struct world *world, struct proc *proc, const uint8_t has[MAX_FILES][N_UNITS])
{
	uint8_t stored[MAX_FILES][N_UNITS];

	disk_read_locks(world, disk_promised(world), proc->host, proc->svid, stored);
	for (uint8_t file = 0; file < MAX_FILES; file++)
		for (int unit = 0; unit < N_UNITS; unit++)
			if (proc->own->freed[file][unit] && stored[file][unit] && !has[file][unit] &&
			    !reload_is_absent(world->server, file))
				world_fail(world, "I10",
					   "%u of host %u was told that file %d unit %d is unlocked; "
					   "the store is back and has it",
					   proc->svid, proc->host->index, file, unit);
	memset(proc->own->freed, 0, sizeof(proc->own->freed));
}

/* A lock that a program was told it has unlocked, while the store was away, is not in the store when it is
 * back. */
static void check_freed(struct world *world, const struct table *table)
{
	if (!world->has_freed || !hf_recovery_can_promise(world->server->recovery) ||
	    database_is_behind(world))
		return;
	world->has_freed = false;
	for (uint32_t i = 0; i < world->n_hosts; i++)
		for (uint32_t j = 0; j < world->hosts[i].n_procs && world->hosts[i].is_up; j++)
			if (!thread_is_second(&world->hosts[i].procs[j]))
				check_freed_of(world, &world->hosts[i].procs[j], table->has[i][j]);
}

static void check_counts(struct world *world, const struct table *table)
{
	struct hf_lock_counters counters;

	hf_lock_count(hf_recovery_locks(world->server->recovery), &counters);
	if (counters.locks != table->n || counters.ghosts != table->n_ghosts)
		world_fail(world, "I10", "there are %u locks and %u ghosts, and %llu and %llu are counted",
			   table->n, table->n_ghosts, (unsigned long long)counters.locks,
			   (unsigned long long)counters.ghosts);
}

void check_turn(struct world *world)
{
	struct server *server = world->server;
	struct table table;
	struct matching *matching = NULL;
	const char *broken;
	bool is_stored;

	if (!server->recovery || world->has_failed)
		return;
	is_stored = is_at_rest(world) && !database_is_behind(world);
	broken = hf_locks_check(hf_recovery_locks(server->recovery));
	if (broken)
		world_fail(world, "I1", "the lock table is broken: %s", broken);
	/* Only a lack of memory, which does not exist here, may delay a waiter that could be served. */
	if (!hf_list_is_empty(&hf_recovery_locks(server->recovery)->dirty))
		world_fail(world, "I8", "a range was released, and its waiters were not looked at");
	if (is_stored && server->durability != HF_STORE_NONE)
		matching = begin_matching(world);
	read_table(&table, world, matching);
	check_told(world, &table);
	check_conflicts(world);
	order_check(world);
	check_counts(world, &table);
	monitor_check(world);
	flood_check(world);
	check_freed(world, &table);
	identity_look_at_table(world);
	if (is_stored)
		check_store(world, matching);
}

/* Starts: I7 */

static void check_number(struct world *world)
{
	struct server *server = world->server;
	int32_t state = hf_recovery_state(server->recovery);
	bool may_be_same = server->has_continued || server->is_feigning;

	if (state % 2 != 1 || state < server->state || (state == server->state) != may_be_same)
		world_fail(world, "I7", "the state number is %d after %d", state, server->state);
	server->state = state;
	/* A database may have gone back since it stored the number, and before a halted node heard of that.
	 * Or a successor has stored a later one meanwhile. */
	if (world->disk.synced.state.sm_state != state + (server->is_feigning ? 2 : 0) &&
	    world->disk.synced.state.sm_state != state && !database_is_behind(world) &&
	    !server->node.is_deposed)
		world_fail(world, "I7", "the state number %d is not stored", state);
}

static void note_feigned(struct world *world)
{
	world->server->is_feigning = false;
	world->server->feigned_at = world->now;
	world->server->has_continued = false;
	check_number(world);
	SAY(world, "server  has state %d now", world->server->state);
}

/* What programs were told before holds as if nothing had happened. */
static void go_on(struct world *world)
{
	struct server *server = world->server;
	struct hf_lock_counters counters;

	world->counts->continued++;
	for (uint32_t i = 0; i < world->n_hosts; i++)
		for (uint32_t j = 0; j < world->hosts[i].n_procs; j++) {
			struct owned *own = world->hosts[i].procs[j].own;

			for (uint8_t file = 0; file < MAX_FILES; file++)
				for (int unit = 0; unit < N_UNITS; unit++)
					own->firm[file][unit] =
						own->has[file][unit] != 0 && !reload_is_absent(server, file);
		}
	hf_lock_count(hf_recovery_locks(server->recovery), &counters);
	if (counters.waiters + counters.grants < server->n_waiting && !world->worker.is_asked)
		world_fail(world, "I8", "%u waiters and grants were stored, %llu and %llu are there",
			   server->n_waiting, (unsigned long long)counters.waiters,
			   (unsigned long long)counters.grants);
	order_note_restored(world);
}

/* The server registers the client of a stored lock that lacks a registration. Such a lock does not say from
 * which port it came. */
static void note_lost_ports(struct world *world)
{
	struct hf_clients *clients = hf_recovery_clients(world->server->recovery);
	struct hf_client *client;
	struct host *host;
	uint64_t serial = 0;

	for (; (client = hf_clients_next(clients, serial)); hf_client_unref(client)) {
		serial = client->serial;
		host = nat_owner(world, &client->address, client->name);
		if (host && !client->is_privileged && !host->was_stored)
			host->is_port_lost = true;
	}
}

void check_started(struct world *world)
{
	struct server *server = world->server;
	struct hf_grace_info grace;

	server->has_continued = hf_recovery_continues(server->recovery);
	if (server->has_continued)
		go_on(world);
	else
		server->told_since = server->started_at;
	/* It lacks files, and its number rises as soon as the store has that. Nothing is granted before. */
	server->is_feigning = reload_lacks_files(server) && hf_phase_is_raising(server->recovery);
	check_number(world);
	note_lost_ports(world);
	flood_server_started(world);
	hf_recovery_grace_info(server->recovery, &grace);
	server->grace_is_on = grace.is_active || server->is_feigning;
	server->grace_over = !server->grace_is_on;
	server->grace_ended_at = 0;
	SAY(world, "server  serves, state %d, %s", server->state, grace.is_active ? "in grace" : "no grace");
}

/* What the server's own events tell */

static uint32_t slot_of(const struct hf_addr *addr)
{
	return addr->ip[0] == 10 && addr->ip[2] == 0 && addr->ip[3] < N_SLOTS ? addr->ip[3] : 0;
}

/* I9: a client from an earlier epoch stays registered until it was told of this one, or all tries are over.
 * The gaps between tries grow, but the last one is not longer than all before it. */
static void check_unregistered(struct world *world, const struct hf_client *client)
{
	const struct server *server = world->server;
	struct host *host = net_host(world, &client->address);

	if (!server->has_continued && !server->is_feigning && !client->callback.host && client->met_at == 0 &&
	    slot_of(&client->address) && server->told_in[slot_of(&client->address)] != server->life &&
	    world->now < server->started_at + server->notify_retry_ns / 2)
		world_fail(world, "I9", "%s is unregistered, and was not told of the restart", client->id);
	if (host)
		host->promised_in = 0; /* it has no locks any more, and a client without locks is not told */
}

static void note_number(struct world *world, const struct hf_recovery_event *event)
{
	struct host *host = nat_owner(world, &event->client->address, event->client->name);

	if (host && strcmp(event->reason, "a lock request with a new state number") == 0)
		host->numbered_at = world->now;
}

void check_event(struct hf_recovery_observer *observer, const struct hf_recovery_event *event)
{
	struct server *server = hf_container_of(observer, struct server, observer);
	struct world *world = server->world;

	switch (event->kind) {
	case HF_EVENT_GRACE_STARTED:
		server->grace_is_on = true;
		if (server->is_feigning)
			note_feigned(world);
		break;
	case HF_EVENT_GRACE_ENDED:
		SAY(world, "server  grace ends: %s", event->reason);
		server->grace_is_on = false;
		server->grace_over = true;
		server->grace_ended_at = world->now;
		node_check_grace_end(server, event->reason);
		break;
	case HF_EVENT_LOCK:
		order_note_locked(world, owner_of(world, event->lock), event->lock);
		break;
	case HF_EVENT_GRANTED:
		order_note_granted(world, event->lock);
		flood_note_granted(world);
		break;
	case HF_EVENT_BLOCKED: /* now: by the end of the turn the program may have unlocked */
		order_note_waiters(world);
		break;
	case HF_EVENT_NOTIFY:
		if (event->was_told)
			server->told_in[slot_of(&event->client->address)] = server->life;
		break;
	case HF_EVENT_UNREGISTERED:
		check_unregistered(world, event->client);
		break;
	case HF_EVENT_CLEANUP:
		SAY(world, "server  cleans up after %s: %s, %zu locks", event->client->id, event->reason,
		    event->n_locks);
		note_number(world, event);
		identity_check_cleanup(world, event);
		break;
	default:
		break;
	}
}
