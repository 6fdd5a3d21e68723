/* I8: waiters are served once each, and in order; and what the server has of a program that it refuses. */
#include "lock/lock.h"
#include "proto/nlm/reply_route.h"
#include "sim.h"

#define CALL_BACK_NS (30 * SECOND)

void order_note_granted(struct world *world, const struct hf_lock_view *waiter)
{
	struct server *server = world->server;
	uint32_t first = server->n_grants > MAX_SEEN ? server->n_grants - MAX_SEEN : 0;

	for (uint32_t i = first; i < server->n_grants; i++)
		if (server->grants[i % MAX_SEEN].id == waiter->id)
			world_fail(world, "I8", "%u is granted what it waited for twice",
				   (unsigned int)waiter->who.owner_id);
	if (!hf_nlm_route_unpack(waiter->user).was_told) /* else the run before had granted it */
		fate_check_granted(world, check_host_of(world, waiter->who.client),
				   (uint32_t)waiter->who.owner_id, waiter->who.handle.data[0]);
	server->grants[server->n_grants++ % MAX_SEEN] = (struct grant_seen){
		.id = waiter->id,
		.client = waiter->who.client,
		.host = check_host_of(world, waiter->who.client),
		.owner = waiter->who.owner_id,
		.range = waiter->range,
		.at = world->now,
		.file = waiter->who.handle.data[0],
		.mode = (uint8_t)waiter->mode,
	};
}

static bool is_in_the_way(const struct grant_seen *grant, const struct hf_lock_view *waiter)
{
	bool is_other = waiter->who.client != grant->client || waiter->who.owner_id != grant->owner;

	return is_other && waiter->who.handle.data[0] == grant->file &&
	       hf_range_overlaps(waiter->range, grant->range) &&
	       (waiter->mode == HF_LOCK_EXCLUSIVE || grant->mode == HF_LOCK_EXCLUSIVE);
}

/* If the owner had a lock, or waited for another, when it began to wait, it may have been let past others:
 * otherwise there would have been a deadlock. */
void order_note_waiters(struct world *world)
{
	struct server *server = world->server;
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view waiter;

	while (hf_lock_next_waiter(hf_recovery_locks(server->recovery), NULL, &cursor, &waiter)) {
		struct waiter_seen *seen = &server->waiters[waiter.id % MAX_SEEN];

		if (seen->id != waiter.id)
			*seen = (struct waiter_seen){ waiter.id, waiter.who.client->n_locks == 0 &&
									 waiter.who.client->n_waiters == 1 };
	}
}

/* Nothing is known of what they had when they began to wait. */
void order_note_restored(struct world *world)
{
	struct server *server = world->server;
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view waiter;

	while (hf_lock_next_waiter(hf_recovery_locks(server->recovery), NULL, &cursor, &waiter))
		server->waiters[waiter.id % MAX_SEEN] = (struct waiter_seen){ waiter.id, false };
}

static bool may_pass(const struct server *server, const struct grant_seen *grant)
{
	const struct waiter_seen *seen = &server->waiters[grant->id % MAX_SEEN];

	return seen->id != grant->id || !seen->had_nothing;
}

void order_check(struct world *world)
{
	struct server *server = world->server;
	struct hf_locks *locks = hf_recovery_locks(server->recovery);

	for (; server->n_grants_checked < server->n_grants; server->n_grants_checked++) {
		const struct grant_seen *grant = &server->grants[server->n_grants_checked % MAX_SEEN];
		struct hf_lock_cursor cursor = { 0 };
		struct hf_lock_view waiter;

		if (may_pass(server, grant))
			continue;
		while (hf_lock_next_waiter(locks, NULL, &cursor, &waiter))
			if (waiter.id < grant->id && is_in_the_way(grant, &waiter))
				world_fail(world, "I8", "%u passes %u, which has waited for longer",
					   (unsigned int)grant->owner, (unsigned int)waiter.who.owner_id);
	}
}

/* In the calm a host that waits is called back, by the kind of call-back that it knows. A host behind another
 * cannot be called. A program that was put off because of grace is called back once, and refuses: it may ask
 * again late, when its host has reclaimed. Nor is a thread called, if another thread of its program has
 * changed a part of the range since: to the server it is one process, which has gone on, so the server calls
 * the grant off. */
void order_check_called_back(struct proc *proc)
{
	struct host *host = proc->host;
	struct world *world = host->world;
	struct server *server = world->server;
	uint32_t first = server->n_grants > MAX_SEEN ? server->n_grants - MAX_SEEN : 0;
	struct span its;

	if (host->is_shared || thread_other(proc) || !world->is_ending || !server->recovery)
		return;
	for (uint32_t i = first; i < server->n_grants; i++) {
		const struct grant_seen *grant = &server->grants[i % MAX_SEEN];

		if (grant->host == host && grant->owner == proc->svid && grant->file == proc->span.file &&
		    grant->mode == proc->span.mode && span_of_range(&its, grant->range) &&
		    its.first == proc->span.first && its.last == proc->span.last &&
		    grant->at >
			    HF_MAX(HF_MAX(proc->waits_since, host->healed_at),
				   HF_MAX(host->grace_until, HF_MAX(proc->denied_at, world->ending_since))) &&
		    world->now - HF_MAX(grant->at, host->put_off_at) > CALL_BACK_NS)
			world_fail(world, "I8", "%u of host %u has what it waits for, and is not called back",
				   proc->svid, host->index);
	}
}

static bool has_any(struct world *world, const struct proc *proc, const struct span *span)
{
	uint8_t has[MAX_FILES][N_UNITS];

	check_read_table(world, proc->host, proc->svid, has);
	for (int unit = span->first; unit <= span->last; unit++)
		if (has[span->file][unit])
			return true;
	return false;
}

static bool is_wait_of(struct world *world, const struct hf_lock_view *waiter, const struct proc *proc,
		       uint8_t file, struct span *itsp)
{
	return check_host_of(world, waiter->who.client) == proc->host && waiter->who.owner_id == proc->svid &&
	       waiter->who.handle.data[0] == file && span_of_range(itsp, waiter->range);
}

/* Does it wait for anything within that range? */
static bool waits_within(struct world *world, const struct proc *proc, const struct span *span)
{
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view waiter;
	struct span its;

	while (hf_lock_next_waiter(hf_recovery_locks(world->server->recovery), NULL, &cursor, &waiter))
		if (is_wait_of(world, &waiter, proc, span->file, &its) && its.first >= span->first &&
		    its.last <= span->last)
			return true;
	return false;
}

void order_check_stored(const struct call *call)
{
	struct world *world = call->host->world;
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view waiter;
	struct span its;

	if (!world->server->continues || world->server->durability == HF_STORE_NONE ||
	    !world->server->recovery || database_is_behind(world))
		return;
	while (hf_lock_next_waiter(hf_recovery_locks(world->server->recovery), NULL, &cursor, &waiter))
		if (is_wait_of(world, &waiter, call->proc, call->span.file, &its) &&
		    waiter.mode == call->span.mode && its.first == call->span.first &&
		    its.last == call->span.last && !disk_has_waiter(disk_promised(world), &waiter))
			world_fail(world, "I8", "%u of host %u is told that it waits, which is not stored",
				   call->proc->svid, call->host->index);
}

/* I8: the next run would grant a wait that is stored, and the program has received the error. Where TLS is
 * demanded, a poll that is refused may be forged, and ends no wait. */
void order_check_refused(const struct call *call)
{
	struct world *world = call->host->world;
	const struct server *server = world->server;

	if (!server->continues || server->durability == HF_STORE_NONE || !server->recovery ||
	    database_is_behind(world) || world->tls.exists || !call->by_tcp || call->sending.n != 1 ||
	    call->host->is_shared || *call->host->old_name || thread_other(call->proc))
		return;
	if (disk_has_wait_of(disk_promised(world), call->proc, &call->span))
		world_fail(world, "I8", "%u of host %u is refused what it waits for, and its wait is stored",
			   call->proc->svid, call->host->index);
}

/* Is the call's own wait in the queue? True if that is not known. */
bool order_waits(const struct call *call)
{
	struct world *world = call->host->world;

	return !world->server->recovery || waits_within(world, call->proc, &call->span);
}

/* Does it have, or wait for, anything of that? True if that is not known. */
bool order_is_involved(struct world *world, const struct proc *proc, const struct span *span)
{
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view waiter;
	struct span its;

	if (!world->server->is_up || !world->server->recovery)
		return true;
	if (has_any(world, proc, span))
		return true;
	while (hf_lock_next_waiter(hf_recovery_locks(world->server->recovery), NULL, &cursor, &waiter))
		if (is_wait_of(world, &waiter, proc, span->file, &its) && its.first <= span->last &&
		    span->first <= its.last)
			return true;
	return false;
}

/* The program unlocks for good: a LOCK before this UNLOCK was served first. But a poll may have been sent
 * again, by UDP or on the next connection, to a server that was restarted after its call-back for the same
 * wait. The program does not know of the new wait, and may unlock a part of its range: an UNLOCK ends no wait
 * that exceeds its range. By UDP that poll may also arrive after the UNLOCK. And an UNLOCK releases nothing
 * in a file that is not exported: if the file comes back in grace, the lock may still be reclaimed. */
void order_check_unlocked(const struct call *call)
{
	const struct proc *proc = call->proc;
	const struct span *span = &call->span;
	struct world *world = proc->host->world;

	if (proc->host->is_shared || *proc->host->old_name || !world->server->recovery ||
	    call->sending.n != 1 || reload_is_back_since(world, span->file, call->made_at))
		return;
	if (has_any(world, proc, span) || (call->by_tcp && waits_within(world, proc, span)))
		world_fail(world, "I5", "%u of host %u is told that file %u, %u-%u is unlocked, and is not",
			   proc->svid, proc->host->index, span->file, span->first, span->last);
}

/* @proc: NULL: a forger's */
void order_note_locked(struct world *world, struct proc *proc, const struct hf_lock_view *lock)
{
	if (proc && lock->mode == HF_LOCK_SHARED &&
	    hf_lock_is_guarded(hf_recovery_locks(world->server->recovery), &lock->who, lock->range))
		proc->kept_at = world->now;
}

/* I8: a program that has asked for a lower mode, and is told that it has it, does not exclude others any
 * more; except from the range of an exclusive grant that was on its way to it when the LOCK was served. The
 * client's answer to that grant may arrive before the reply to the LOCK leaves. */
void order_check_downgraded(const struct call *call)
{
	struct world *world = call->host->world;
	const struct span *span = &call->span;
	uint8_t has[MAX_FILES][N_UNITS];
	struct hf_lock_counters counters;

	if (!call->by_tcp || call->sending.n != 1 || thread_other(call->proc) || !world->server->recovery ||
	    call->host->is_shared || *call->host->old_name || call->proc->kept_at >= call->made_at)
		return;
	hf_lock_count(hf_recovery_locks(world->server->recovery), &counters);
	if (counters.grants)
		return;
	check_read_table(world, call->host, call->proc->svid, has);
	for (int unit = span->first; unit <= span->last; unit++)
		if (has[span->file][unit] > span->mode)
			world_fail(world, "I8",
				   "%u of host %u has downgraded file %u, %u-%u, and still has it all",
				   call->proc->svid, call->host->index, span->file, span->first, span->last);
}

void order_check_cancelled(const struct proc *proc, const struct span *span)
{
	struct world *world = proc->host->world;
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view waiter;

	if (!world->server->is_up || !world->server->recovery)
		return;
	while (hf_lock_next_waiter(hf_recovery_locks(world->server->recovery), NULL, &cursor, &waiter))
		if (check_host_of(world, waiter.who.client) == proc->host &&
		    waiter.who.owner_id == proc->svid && waiter.who.handle.data[0] == span->file &&
		    waiter.range.start == span_offset(span) && waiter.mode == span->mode &&
		    hf_range_len(waiter.range) == span_len(span))
			world_fail(world, "I8", "%u of host %u waits no more, and is queued", proc->svid,
				   proc->host->index);
}
