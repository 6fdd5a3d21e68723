/*
 * Programs that do not wait for the answer to a LOCK for as long as it takes: they
 * ask anew, cancel it, or unlock. It may be under way for long, where a disk does
 * not answer, and must not be served after what was said since.
 *
 * On a connection that is right behind it. By UDP the network could turn them round,
 * so that has to wait until no copy of the LOCK is on its way any more.
 */
#include "sim.h"

#define CHANCE  400 /* of a host, in a thousand */
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

	/* What it was called back for it has. */
	if (proc->phase != LOCKING || !proc->call || proc->is_called_back || host->is_reclaiming ||
	    host->is_renaming || host->world->is_ending)
		return;
	if (!proc->call->by_tcp)
		wait += STRAGGLER_NS;
	SAY(host->world, "%s  %u: does not wait any longer for the answer to xid %u", host->name, proc->svid,
	    proc->call->sending.xid);
	host->world->counts->given_up++;
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
