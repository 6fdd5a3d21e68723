/*
 * Calls that do not wait for the reply to the call before, on one connection.
 *
 * A process is killed while its LOCK is under way. Its lockd forgets that call, never repeats it, and sends
 * UNLOCK or CANCEL right behind it; on the next connection, if this one breaks in between. Or a program has
 * two threads that ask at once, for overlapping ranges, in any mode.
 *
 * Calls that were sent once, on one connection, are served in the order in which they were sent. The last one
 * for a unit decides the mode in which the program has it. If either was sent again, the order is not known,
 * and the program relies on the lower mode.
 */
#include <string.h>

#include "sim.h"

#define CHANCE        500 /* in a thousand hosts that use connections */
#define KILLS         150 /* of LOCKs */
#define PAIRS         400 /* of LOCKs of one thread, if the other is idle */
#define BREAKS        200 /* of kills: the connection breaks in between */
#define ONE_SEGMENT   500
#define HURRY_NS      (50 * UINT64_C(1000))
#define MS_LATER      (60 * MS)
#define SECONDS_LATER (8 * SECOND)

static bool is_asking(const struct proc *proc)
{
	return proc->phase == LOCKING && proc->call && proc->call->kind == CALL_LOCK;
}

/* Killed */

/* Two threads die together. What either waits for ends with its file. */
static bool kill_other(struct proc *other, uint8_t file)
{
	bool waits = other->phase == WAITING || other->phase == PAUSING;

	if (!is_asking(other) && !waits)
		return other->phase == IDLE;
	if (other->span.file != file)
		return false;
	if (other->call)
		talk_drop(other->call);
	hf_timer_stop(&other->timer);
	hf_timer_stop(&other->kill_timer);
	other->is_called_back = false;
	proc_go_on(other);
	return true;
}

/* In the rest of the range it has what it had, or the lower mode that it asked for. What it would have got it
 * never learns. */
static void unlock_part_behind(struct proc *proc)
{
	struct span span = proc->span;

	memset(proc->downgraded, 0, sizeof(proc->downgraded));
	part_narrow(&proc->host->pipe_rng, &span);
	proc_unlock(proc, &span);
}

static void unlock_behind(struct proc *proc, bool whole_file)
{
	struct span span = proc->span;

	if (whole_file) {
		span.first = 0;
		span.last = N_UNITS - 1;
	}
	proc_unlock(proc, &span);
}

/* A LOCK of what a call-back has just given looks like the one that waited: its CANCEL would give that back,
 * too. */
static bool has_some(const struct proc *proc)
{
	for (uint32_t unit = proc->span.first; unit <= proc->span.last; unit++)
		if (proc->own->has[proc->span.file][unit] >= proc->span.mode)
			return true;
	return false;
}

static void on_kill(struct hf_timer *timer)
{
	struct proc *proc = hf_container_of(timer, struct proc, kill_timer);
	struct proc *other = thread_other(proc);
	struct host *host = proc->host;
	struct rng *rng = &host->pipe_rng;
	bool cancels =
		proc->blocks && !proc->is_called_back && !other && !has_some(proc) && rng_chance(rng, 500);

	if (!is_asking(proc) || host->is_reclaiming || host->is_renaming || host->world->is_ending)
		return;
	if (other && !kill_other(other, proc->span.file))
		return;
	SAY(host->world, "%s  %u: is killed while it asks", host->name, proc->svid);
	host->world->counts->kills++;
	talk_drop(proc->call);
	proc->is_called_back = false;
	if (host->conn && host->conn->is_open && rng_chance(rng, BREAKS))
		stream_reset(host->conn);
	if (cancels)
		proc_cancel(proc);
	else if (!proc->blocks && !other && host->changes_parts)
		unlock_part_behind(proc);
	else
		unlock_behind(proc, other || rng_chance(rng, 300));
}

void pipe_stop(struct proc *proc)
{
	hf_timer_stop(&proc->kill_timer);
	hf_timer_stop(&proc->death_timer);
}

static uint64_t when(struct rng *rng)
{
	uint64_t dice = rng_below(rng, 10);

	return dice < 5 ? 0 : rng_below(rng, dice < 8 ? MS_LATER : SECONDS_LATER);
}

/* Two threads */

void pipe_lock_sent(struct proc *proc)
{
	struct proc *other = thread_other(proc);
	struct host *host = proc->host;

	memset(proc->newer, 0, sizeof(proc->newer));
	memset(proc->crossed, 0, sizeof(proc->crossed));
	if (!host->pipelines || host->world->is_ending)
		return;
	if (rng_chance(&host->pipe_rng, KILLS))
		hf_timer_start(&proc->kill_timer, when(&host->pipe_rng));
	if (other && other->phase == IDLE && !other->wants_out && rng_chance(&host->pipe_rng, PAIRS)) {
		other->is_hurried = true;
		hf_timer_start(&other->timer, rng_below(&host->pipe_rng, HURRY_NS));
	}
}

bool pipe_may_cross(const struct proc *other)
{
	return other->host->pipelines && is_asking(other);
}

static bool is_before(const struct sending *a, const struct sending *b)
{
	return a->n == 1 && b->n == 1 && a->connection == b->connection && a->xid < b->xid;
}

/* It was called back. What the other thread asked for since it waits, and got at once, is not downgraded by
 * that. */
static bool is_asked_since(const struct proc *proc, const struct sending *other)
{
	return !proc->answered.n && is_before(&proc->blocked, other);
}

/* It is told that it has @span: in which mode does it have @unit? */
uint8_t pipe_mode(const struct proc *proc, const struct span *span, int unit)
{
	const struct owned *own = proc->own;
	uint8_t has = own->has[span->file][unit];

	return has > span->mode && is_asked_since(proc, &own->by[span->file][unit]) ? has : span->mode;
}

/* It is told that it has @span: what does that mean for a call of the other thread that is under way? */
void pipe_taken(struct proc *proc, const struct span *span)
{
	struct proc *other = thread_other(proc);
	bool is_newer;

	if (!other || other->phase != LOCKING)
		return;
	if (other->call && other->span.mode > span->mode && other->n_asked == 1 &&
	    is_asked_since(proc, &other->call->sending))
		return;
	is_newer = other->call && is_before(&other->call->sending, &proc->answered);
	for (int unit = span->first; unit <= span->last && span->file == other->span.file; unit++) {
		uint8_t *mode = is_newer ? &other->newer[unit] : &other->crossed[unit];

		*mode = *mode ? HF_MIN(*mode, span->mode) : span->mode;
	}
	if (!is_newer) /* the other thread's call may be served already */
		proc_downgrade(other, &other->span);
}

/* It has just taken what it asked for, and the other thread took a part of that while the reply was under
 * way. */
void pipe_settle(struct proc *proc, uint32_t n_sent)
{
	const struct span *span = &proc->span;

	for (int unit = span->first; unit <= span->last; unit++) {
		uint8_t *has = &proc->own->has[span->file][unit];
		uint8_t newer = proc->newer[unit], crossed = proc->crossed[unit];

		if (!*has)
			continue;
		if (newer)
			*has = n_sent == 1 ? newer : HF_MIN(*has, newer);
		if (crossed)
			*has = HF_MIN(*has, crossed);
	}
}

/* The other thread asked for a lower mode, after this one, and was answered first. */
bool pipe_has_less(const struct proc *proc, uint8_t mode, int unit)
{
	return (proc->newer[unit] && proc->newer[unit] < mode) ||
	       (proc->crossed[unit] && proc->crossed[unit] < mode);
}

/* Repeated on a new connection: it may arrive after later calls that were answered. */
void pipe_sent_again(struct call *call)
{
	if (call->kind == CALL_LOCK && call->proc->call == call)
		proc_downgrade(call->proc, &call->span);
}

bool pipe_joins_segment(struct host *host)
{
	return host && host->pipelines && rng_chance(&host->pipe_rng, ONE_SEGMENT);
}

void pipe_init(struct host *host)
{
	rng_init(&host->pipe_rng, host->world->options.seed, 200 + host->index);
	host->pipelines = host->flavour == LINUX_TCP && rng_chance(&host->pipe_rng, CHANCE) &&
			  !omits(host->world, OMIT_PIPES);
}

void pipe_proc_init(struct proc *proc)
{
	world_timer(proc->host->world, &proc->kill_timer, on_kill);
}
