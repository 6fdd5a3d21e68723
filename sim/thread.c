/*
 * Two threads of one program. To the server they are one owner: both have what either has, and both may wait
 * at once, for overlapping ranges, in different modes. The thread that asked last for a unit, and was told
 * that it has it, decides the mode in which the program has it.
 *
 * They do not do what no server could get right. No two calls about the same units are under way at once,
 * because their replies could arrive in another order than they were served in, except for LOCKs on one
 * connection (pipe.c). Neither unlocks what the other asks or waits for. Nor do both wait for exactly the
 * same: then the server has one wait, and tells one thread.
 */
#include "sim.h"

static bool overlaps(const struct span *a, const struct span *b)
{
	return a->file == b->file && a->first <= b->last && b->first <= a->last;
}

void thread_init(struct proc *proc, uint32_t number)
{
	struct host *host = proc->host;

	proc->own = &proc->owned;
	if (number == 1 && host->has_threads) {
		proc->own = &host->procs[0].owned;
		proc->svid = host->procs[0].svid;
	}
}

bool thread_is_second(const struct proc *proc)
{
	return proc->own != &proc->owned;
}

struct proc *thread_other(const struct proc *proc)
{
	struct host *host = proc->host;

	if (!host->has_threads || host->n_procs < 2 || proc > &host->procs[1])
		return NULL;
	return proc == &host->procs[0] ? &host->procs[1] : &host->procs[0];
}

static bool wants_something(const struct proc *proc)
{
	return proc->phase == LOCKING || proc->phase == WAITING || proc->phase == PAUSING ||
	       proc->phase == CANCELLING;
}

bool thread_wants_something(const struct proc *proc)
{
	const struct proc *other = thread_other(proc);

	return wants_something(proc) || (other && wants_something(other));
}

bool thread_asks_for_less(const struct host *host, uint32_t svid, const struct span *span, int unit)
{
	for (uint32_t i = 0; i < host->n_procs; i++) {
		const struct proc *proc = &host->procs[i];

		if (proc->svid != svid || !wants_something(proc) || proc->span.file != span->file ||
		    unit < proc->span.first || unit > proc->span.last)
			continue;
		if (proc->span.mode < span->mode || pipe_has_less(proc, span->mode, unit))
			return true;
	}
	return false;
}

/* A poll behind a LOCK of the other thread might find that its lock was granted and downgraded since. Then it
 * waits anew, and a client that was called back meanwhile does not notice. */
bool thread_may_go_on(const struct proc *proc)
{
	const struct proc *other = thread_other(proc);

	return !other || !other->call || !overlaps(&other->span, &proc->span);
}

bool thread_may_lock(const struct proc *proc)
{
	const struct proc *other = thread_other(proc);

	return thread_may_go_on(proc) || pipe_may_cross(other);
}

bool thread_may_unlock(const struct proc *proc, const struct span *span)
{
	const struct proc *other = thread_other(proc);

	return !other || !wants_something(other) || !overlaps(&other->span, span);
}

void thread_choose(const struct proc *proc, struct span *span)
{
	const struct proc *other = thread_other(proc);
	struct rng *rng = &proc->host->rng;

	if (!other || !wants_something(other))
		return;
	if (rng_chance(rng, 600)) {
		*span = other->span;
		if (rng_chance(rng, 500))
			span->first = (uint8_t)rng_below(rng, span->last + 1u);
		if (rng_chance(rng, 500))
			span->last = (uint8_t)rng_between(rng, span->first, N_UNITS - 1);
		span->mode = rng_chance(rng, 500) ? HF_LOCK_EXCLUSIVE : HF_LOCK_SHARED;
	}
	if (span->file == other->span.file && span->first == other->span.first &&
	    span->last == other->span.last)
		span->mode = other->span.mode == HF_LOCK_EXCLUSIVE ? HF_LOCK_SHARED : HF_LOCK_EXCLUSIVE;
}
