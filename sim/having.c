/* The locks that a program was told it has: from the moment when it learns of the grant until it begins to
 * unlock, or asks for a lower mode. */
#include <string.h>

#include "sim.h"

/* A program that asks for a lower mode must be content with that from now on, until it is refused; even if it
 * has reclaimed the lock since it first asked. */
void proc_downgrade(struct proc *proc, const struct span *span)
{
	for (int unit = span->first; unit <= span->last; unit++) {
		uint8_t *has = &proc->own->has[span->file][unit];

		if (*has <= span->mode)
			continue;
		proc->downgraded[unit] = *has;
		*has = span->mode;
	}
}

/* If an earlier epoch of the server told it, the program has a lock that it must reclaim; or, too late, none.
 */
void proc_take(struct proc *proc, const struct span *span, uint64_t sent_at)
{
	struct world *world = proc->host->world;
	struct proc *other = thread_other(proc);
	const struct server *server = world->server;
	bool is_firm = server->is_up && sent_at >= server->told_since;
	bool is_late = server_is_message_old(server, sent_at);

	for (int unit = span->first; unit <= span->last; unit++) {
		proc->own->has[span->file][unit] = is_late ? 0 : pipe_mode(proc, span, unit);
		proc->own->by[span->file][unit] = proc->answered;
		proc->own->firm[span->file][unit] = is_firm;
		proc->own->phantom[span->file][unit] = is_late ? span->mode : 0;
		proc->own->lost_at[span->file][unit] = sent_at; /* at the latest */
		world->taken[span->file][unit][span->mode - 1] = (struct taken){ proc->own, sent_at };
		if (span->file == proc->span.file)
			proc->downgraded[unit] = 0;
		if (other && span->file == other->span.file)
			other->downgraded[unit] = 0;
		if (proc->host->is_unmonitored && (!is_firm || sent_at < server->started_at))
			proc->own->has[span->file][unit] = 0;
	}
	pipe_taken(proc, span);
	SAY(world, "%s  %u: has file %u, %u-%u %s", proc->host->name, proc->svid, span->file, span->first,
	    span->last, span->mode == HF_LOCK_EXCLUSIVE ? "exclusive" : "shared");
}

/* The server granted it anew, and the program did not take that for an answer. If the program reclaims it,
 * what others had before that grant does not count. */
void proc_had(struct proc *proc, const struct span *span, uint64_t sent_at)
{
	for (int unit = span->first; unit <= span->last; unit++) {
		uint64_t *lost_at = &proc->own->lost_at[span->file][unit];

		*lost_at = HF_MAX(*lost_at, sent_at);
	}
}

void proc_lose(struct proc *proc)
{
	memset(proc->own->has, 0, sizeof(proc->own->has));
	memset(proc->own->phantom, 0, sizeof(proc->own->phantom));
}

void proc_give_up(struct proc *proc, const struct span *span)
{
	for (int unit = span->first; unit <= span->last; unit++)
		proc->own->has[span->file][unit] = proc->own->firm[span->file][unit] =
			proc->own->phantom[span->file][unit] = 0;
}

/* I10: when the store is back, it must not have that lock any more. */
void proc_set_freed(struct proc *proc, const struct span *span, bool is_freed)
{
	for (int unit = span->first; unit <= span->last; unit++)
		proc->own->freed[span->file][unit] = is_freed;
	proc->host->world->has_freed |= is_freed;
}

/* It has reclaimed the lock that it was about to downgrade. */
void proc_be_content(struct proc *proc)
{
	if (proc->phase == LOCKING || proc->phase == WAITING || proc->phase == PAUSING)
		proc_downgrade(proc, &proc->span);
}

/* What it asked for less of was not granted. A server that was restarted since cannot know that. */
void proc_raise_again(struct proc *proc)
{
	const struct span *span = &proc->span;
	bool is_sure = proc->waits_since >= proc->host->world->server->started_at;

	for (int unit = span->first; is_sure && unit <= span->last; unit++)
		if (proc->downgraded[unit] && proc->own->has[span->file][unit] &&
		    thread_may_unlock(proc, span))
			proc->own->has[span->file][unit] = proc->downgraded[unit];
	memset(proc->downgraded, 0, sizeof(proc->downgraded));
}

bool proc_has_anything(const struct proc *proc)
{
	for (int file = 0; file < MAX_FILES; file++)
		for (int unit = 0; unit < N_UNITS; unit++)
			if (proc->own->has[file][unit] || proc->own->phantom[file][unit])
				return true;
	return false;
}

/* It asked for the unit anew, was granted that before its CANCEL, and has not unlocked it yet. */
static bool has_unwanted(const struct proc *proc, const struct span *span, int unit)
{
	return proc->phase == UNLOCKING && proc->span.file == span->file && unit >= proc->span.first &&
	       unit <= proc->span.last;
}

/* I3: it may have a lost lock back as long as no other program had it in between. But if it also asks for it
 * anew, that may have been granted. */
void proc_reclaims(const struct proc *proc, const struct span *span, uint64_t sent_at)
{
	struct world *world = proc->host->world;

	if (thread_wants_something(proc))
		return;
	for (int unit = span->first; unit <= span->last; unit++)
		for (int mode = HF_LOCK_SHARED; mode <= HF_LOCK_EXCLUSIVE; mode++) {
			const struct taken *taken = &world->taken[span->file][unit][mode - 1];

			if (!proc->own->has[span->file][unit] && mode + span->mode > 2 &&
			    taken->who != proc->own && taken->at > proc->own->lost_at[span->file][unit] &&
			    taken->at < sent_at && !has_unwanted(proc, span, unit))
				world_fail(world, "I3",
					   "%u of host %u has file %u unit %d back, which another had since",
					   proc->svid, proc->host->index, span->file, unit);
		}
}
