/*
 * Programs that do not wait for the reply to a LOCK for as long as it takes: they ask again, cancel it, or
 * unlock. If a disk does not answer, the LOCK may be under way for long. It must not be served after a later
 * call.
 *
 * On a connection the later call follows at once. By UDP the network could swap the two, so the program waits
 * until no copy of the LOCK is under way.
 */
#include "sim.h"

#define CHANCE  400 /* in a thousand hosts */
#define GIVE_UP 250 /* of LOCKs */
#define SOONEST (20 * MS)
#define LATEST  (20 * SECOND)

static enum phase choose_phase(struct proc *proc)
{
	switch (rng_below(&proc->host->patience_rng, proc->blocks ? 3 : 2)) {
	case 0:
		return UNLOCKING;
	case 1:
		return PAUSING; /* and ask again */
	default:
		return CANCELLING;
	}
}

static void on_patience(struct hf_timer *timer)
{
	struct proc *proc = hf_container_of(timer, struct proc, patience_timer);
	struct host *host = proc->host;
	uint64_t wait = MS;

	/* It has the lock for which it was called back. */
	if (proc->phase != LOCKING || !proc->call || proc->is_called_back || host->is_reclaiming ||
	    host->is_renaming || host->world->is_ending)
		return;
	if (!proc->call->by_tcp)
		wait += STRAGGLER_NS;
	SAY(host->world, "%s  %u: does not wait any longer for the answer to xid %u", host->name, proc->svid,
	    proc->call->sending.xid);
	host->world->counts->given_up++;
	proc_had(proc, &proc->span, UINT64_MAX); /* it may be granted at any time (seed 230299428) */
	talk_drop(proc->call);
	proc->is_unheard = true;
	proc_pause(proc, choose_phase(proc), wait);
}

void patience_lock_sent(struct proc *proc)
{
	struct host *host = proc->host;
	struct rng *rng = &host->patience_rng;

	if (!host->is_impatient || thread_other(proc) || host->world->is_ending || !rng_chance(rng, GIVE_UP))
		return;
	hf_timer_start(&proc->patience_timer,
		       rng_between(rng, SOONEST, rng_chance(rng, 500) ? SECOND : LATEST));
}

bool patience_is_unheard(const struct host *host)
{
	for (uint32_t i = 0; i < host->n_procs; i++)
		if (host->procs[i].is_unheard)
			return true;
	return false;
}

void patience_stop(struct proc *proc)
{
	hf_timer_stop(&proc->patience_timer);
}

void patience_proc_init(struct proc *proc)
{
	world_timer(proc->host->world, &proc->patience_timer, on_patience);
}

void patience_init(struct host *host)
{
	rng_init(&host->patience_rng, host->world->options.seed, 500 + host->index);
	host->is_impatient = rng_chance(&host->patience_rng, CHANCE) && !omits(host->world, OMIT_PATIENCE);
}
