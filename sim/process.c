/*
 * A program that locks, waits, gives up, unlocks and locks again, and the part of its host's lockd that does
 * so for it. It relies on a lock from the moment when it learns of the grant until it begins to unlock.
 */
#include <string.h>

#include "proto/nlm/wire.h"
#include "sim.h"

#define GRACE_PAUSE  (5 * SECOND) /* as in Linux */
#define RETRY_PAUSE  (1 * SECOND)
#define THREAD_PAUSE (50 * MS)

static void on_timer(struct hf_timer *timer);

static void think(struct proc *proc, uint64_t most_ns)
{
	proc->phase = IDLE;
	hf_timer_start(&proc->timer, rng_between(&proc->host->rng, MS, HF_MAX(most_ns, 2 * MS)));
}

static void think_again(struct proc *proc)
{
	think(proc, proc->host->world->knobs.think_ns);
}

void proc_init(struct proc *proc, struct host *host, uint32_t number)
{
	memset(proc, 0, sizeof(*proc));
	proc->host = host;
	proc->svid = host->life * 100 + number;
	thread_init(proc, number);
	pipe_proc_init(proc);
	part_proc_init(proc);
	patience_proc_init(proc);
	world_timer(host->world, &proc->timer, on_timer);
	think_again(proc);
}

/* Acting */

static void choose_span(struct proc *proc, struct span *span)
{
	struct rng *rng = &proc->host->rng;

	span->file = (uint8_t)rng_below(rng, proc->host->world->n_files);
	span->first = (uint8_t)rng_below(rng, N_UNITS);
	span->last = span->first;
	if (rng_chance(rng, 500))
		span->last = (uint8_t)rng_between(rng, span->first, HF_MIN(span->first + 3, N_UNITS - 1));
	if (rng_chance(rng, 100)) {
		span->first = 0;
		span->last = N_UNITS - 1;
	}
	span->mode = rng_chance(rng, 600) ? HF_LOCK_EXCLUSIVE : HF_LOCK_SHARED;
}

static void send_lock(struct proc *proc)
{
	proc_downgrade(proc, &proc->span);
	proc->n_asked++;
	proc->phase = LOCKING;
	talk_call(proc->host, proc, CALL_LOCK, &proc->span, proc->blocks);
	pipe_lock_sent(proc);
	patience_lock_sent(proc);
}

void proc_lock(struct proc *proc, const struct span *span, bool blocks)
{
	proc->span = *span;
	if (!thread_may_lock(proc)) {
		think_again(proc);
		return;
	}
	proc->blocks = blocks;
	proc->files_touched |= (uint8_t)(1 << proc->span.file);
	memset(proc->downgraded, 0, sizeof(proc->downgraded));
	proc->n_asked = proc->n_put_off = 0;
	proc->waits_since = proc->host->world->now;
	proc->is_called_back = false;
	send_lock(proc);
}

static void lock(struct proc *proc)
{
	struct span span;

	proc->is_hurried = false;
	choose_span(proc, &span);
	thread_choose(proc, &span);
	proc_lock(proc, &span, rng_chance(&proc->host->rng, 650));
}

void proc_unlock(struct proc *proc, const struct span *span)
{
	if (!thread_may_unlock(proc, span)) {
		hf_timer_start(&proc->timer, THREAD_PAUSE);
		return;
	}
	proc->phase = UNLOCKING;
	proc->span = *span;
	proc_give_up(proc, span);
	talk_call(proc->host, proc, CALL_UNLOCK, span, false);
}

static void unlock_file(struct proc *proc, uint8_t file)
{
	proc_unlock(proc,
		    &(struct span){ .file = file, .first = 0, .last = N_UNITS - 1, .mode = HF_LOCK_SHARED });
}

void proc_cancel(struct proc *proc)
{
	if (proc->call)
		talk_drop(proc->call);
	proc->phase = CANCELLING;
	talk_call(proc->host, proc, CALL_CANCEL, &proc->span, true);
}

static void leave(struct proc *proc)
{
	if (nat_unlocks_all(proc->host))
		proc->files_touched = (uint8_t)((1 << proc->host->world->n_files) - 1);
	if (reservation_finish(proc))
		return;
	for (uint8_t file = 0; file < MAX_FILES; file++)
		if (proc->files_touched >> file & 1) {
			unlock_file(proc, file);
			return;
		}
	proc->wants_out = false;
	if (proc->host->world->is_ending)
		proc->phase = DONE;
	else
		think_again(proc);
}

static void act(struct proc *proc)
{
	struct rng *rng = &proc->host->rng;
	uint64_t dice = rng_below(rng, 100);
	struct span span;

	if (proc->host->world->is_ending || proc->wants_out) {
		leave(proc);
		return;
	}
	if (proc->host->world->options.n_acts)
		return; /* it does what the sequence says */
	if (proc->is_hurried) {
		lock(proc);
		return;
	}
	if (proc->host->uses_reservations && rng_chance(rng, 300) && reservation_act(proc))
		return;
	if (part_act(proc))
		return;
	choose_span(proc, &span);
	if (dice < 55 || !proc_has_anything(proc)) {
		lock(proc);
	} else if (dice < 80) {
		proc_unlock(proc, &span);
	} else if (dice < 90) {
		unlock_file(proc, span.file);
	} else if (dice < 95) {
		proc->span = span;
		proc->phase = TESTING;
		talk_call(proc->host, proc, CALL_TEST, &span, false);
	} else {
		proc->wants_out = true;
		leave(proc);
	}
}

static void on_timer(struct hf_timer *timer)
{
	struct proc *proc = hf_container_of(timer, struct proc, timer);

	const struct host *host = proc->host;

	/* All programs wait for the reclaims. A host whose LOCKs do not have its new number must send its
	 * notice first: its new locks could not be told from the old ones. */
	if (host->is_reclaiming || host->is_renaming || identity_must_wait(host) ||
	    ((host->hides_state || host->uses_reservations || host->awakening == BY_FREE_ALL ||
	      host->statd_state != host->state) &&
	     host->told_life != host->life)) {
		hf_timer_start(timer, 100 * MS);
		return;
	}
	if ((proc->phase == WAITING || proc->phase == PAUSING || proc->phase == CANCELLING) &&
	    !thread_may_go_on(proc)) {
		hf_timer_start(timer, THREAD_PAUSE);
		return;
	}
	switch (proc->phase) {
	case IDLE:
		act(proc);
		break;
	case WAITING: /* a poll, or a signal */
		if (proc->wants_out || (!host->world->is_ending && rng_chance(&proc->host->rng, 250)))
			proc_cancel(proc);
		else
			send_lock(proc);
		break;
	case PAUSING:
		if (!proc->wants_out) {
			send_lock(proc);
			break;
		}
		/* If it was put off only when it asked again, the first call may have been granted. */
		if (proc->n_asked == proc->n_put_off)
			proc_raise_again(proc);
		think_again(proc);
		break;
	case UNLOCKING: {
		struct span span = proc->span;

		proc_unlock(proc, &span);
		break;
	}
	case CANCELLING:
		proc_cancel(proc);
		break;
	case CLOSING:
		reservation_close_again(proc);
		break;
	default:
		break;
	}
}

void proc_nudge(struct proc *proc)
{
	if (proc->phase == IDLE || proc->phase == DONE || proc->phase == WAITING)
		hf_timer_start(&proc->timer, MS);
	if (proc->phase == DONE)
		proc->phase = IDLE;
}

bool proc_is_at_rest(const struct proc *proc)
{
	return proc->phase == DONE;
}

/* Answers */

void proc_go_on(struct proc *proc)
{
	think_again(proc);
}

void proc_pause(struct proc *proc, enum phase phase, uint64_t ns)
{
	proc->phase = phase;
	hf_timer_start(&proc->timer, ns);
}

static void on_lock_answer(struct proc *proc, struct call *call, uint32_t stat, uint64_t sent_at)
{
	struct host *host = proc->host;
	bool is_outdated = call->server_state != host->server_state;
	bool is_called_back = proc->is_called_back;

	proc->is_called_back = false;
	if (identity_refuses(call, stat) && identity_may_use(host, call->span.file)) {
		stat = HF_NLM_DENIED_GRACE_PERIOD;   /* it asks again, and connects meanwhile; */
		host->put_off_at = host->world->now; /* and does not expect to be called back */
	}
	/* The server has seen the host's state number. It does not look only if it can promise nothing, or
	 * does not export the file; or if a host with TLS has not connected since its last call, an UNLOCK
	 * perhaps, which has no number. */
	if (!host->hides_state && host->statd_state == host->state && !*host->old_name &&
	    stat != HF_NLM_DENIED_NOLOCKS && !fate_refuses(call, stat) &&
	    !(stat == HF_NLM_DENIED_GRACE_PERIOD && host->world->options.continues) && !host->tls.uses &&
	    sent_at >= host->world->server->started_at)
		host->told_life = host->life;

	switch (stat) {
	case HF_NLM_GRANTED_STAT:
		/* From an earlier epoch: the server does not know of it any more. Or it crosses a reclaim of
		 * the same program, and the order of the two is not known. */
		if (is_outdated || host->is_reclaiming) {
			memset(proc->downgraded, 0, sizeof(proc->downgraded)); /* granted, too */
			proc_had(proc, &proc->span, sent_at);
			proc_pause(proc, PAUSING, MS);
			break;
		}
		if (!is_called_back)
			order_check_called_back(proc);
		proc_take(proc, &proc->span, sent_at);
		pipe_settle(proc, call->sending.n);
		proc->host->world->counts->granted++;
		think_again(proc);
		break;
	case HF_NLM_BLOCKED:
		if (!proc->blocks)
			world_fail(host->world, "I8", "%u of host %u is BLOCKED and does not want to wait",
				   proc->svid, host->index);
		proc->n_put_off += call->sending.n == 1;
		/* This call was sent before the call-back; but not to the server of today if that has been
		 * restarted since. */
		if (is_called_back && proc->called_back_in == host->server_state)
			think_again(proc);
		else if (host->world->is_ending) /* it need not ask: it is called back */
			proc_pause(proc, WAITING, rng_between(&host->rng, 60, 120) * SECOND);
		else
			proc_pause(proc, WAITING, rng_between(&host->rng, 3, 30) * SECOND);
		break;
	case HF_NLM_DENIED_GRACE_PERIOD:
		proc->n_put_off += call->sending.n == 1;
		proc->is_called_back = is_called_back; /* Linux asks again all the same */
		proc_pause(proc, PAUSING, GRACE_PAUSE);
		break;
	default:
		/* If it has asked before without a reply, it may have been granted: then it has a lower mode
		 * now, and cannot know. */
		if (call->sending.n == 1 && proc->n_asked == proc->n_put_off + 1)
			proc_raise_again(proc);
		/* By UDP a late copy may follow. A LOCK that does not ask to wait ends no wait: a poll may
		 * have been sent again to a server that was restarted since its call-back. And a refusal is
		 * not held back until it is stored that the wait has ended: the next run may have it again.
		 */
		if (proc->host->flavour == LINUX_TCP && proc->blocks &&
		    call->server_life == proc->host->world->server->life)
			order_check_cancelled(proc, &proc->span);
		think_again(proc);
		break;
	}
}

/* It has no connection, and asks again; or it never has one that counts, and so has nothing there. */
static bool is_refused_for_good(const struct call *call, uint32_t stat)
{
	return identity_refuses(call, stat) && !identity_may_use(call->host, call->span.file);
}

static void on_unlock_answer(struct proc *proc, const struct call *call, uint32_t stat)
{
	if (is_refused_for_good(call, stat)) {
		stat = HF_NLM_GRANTED_STAT;
	} else if (identity_refuses(call, stat)) {
		proc_pause(proc, UNLOCKING, RETRY_PAUSE);
		return;
	}
	if (stat ==
	    HF_NLM_DENIED_NOLOCKS) { /* a part, which would make two locks of one: then it unlocks all */
		proc->span.first = 0;
		proc->span.last = N_UNITS - 1;
		proc_pause(proc, UNLOCKING, RETRY_PAUSE);
		return;
	}
	/* It could not be stored; or the host connects meanwhile. */
	if (stat == HF_NLM_DENIED_GRACE_PERIOD &&
	    (proc->host->world->options.continues || identity_may_refuse(call))) {
		proc_pause(proc, UNLOCKING, RETRY_PAUSE);
		return;
	}
	if (stat != HF_NLM_GRANTED_STAT)
		world_fail(proc->host->world, "I6", "an UNLOCK of host %u is answered %u", proc->host->index,
			   stat);
	if (proc->span.first == 0 && proc->span.last == N_UNITS - 1)
		proc->files_touched &= (uint8_t) ~(1 << proc->span.file);
	think_again(proc);
}

static void on_cancel_answer(struct proc *proc, uint32_t stat)
{
	switch (stat) {
	case HF_NLM_GRANTED_STAT:
		if (proc->host->flavour == LINUX_TCP) /* else a late copy of the LOCK may follow */
			order_check_cancelled(proc, &proc->span);
		proc_raise_again(proc);
		think_again(proc);
		break;
	case HF_NLM_DENIED: /* the grant was faster: it unlocks what it does not want */
		proc_pause(proc, UNLOCKING, MS);
		break;
	default:
		proc_pause(proc, CANCELLING, RETRY_PAUSE);
		break;
	}
}

void proc_answer(struct proc *proc, struct call *call, uint32_t stat, uint64_t sent_at)
{
	struct call copy = *call;

	proc->answered = call->sending;
	proc->blocked = (struct sending){ 0 };
	proc->is_unheard = false; /* that LOCK was before this one */
	SAY(call->host->world, "%s  xid %u is answered %u", call->host->name, call->sending.xid, stat);
	talk_drop(call);
	switch (copy.kind) {
	case CALL_LOCK:
		on_lock_answer(proc, &copy, stat, sent_at);
		break;
	case CALL_UNLOCK:
		on_unlock_answer(proc, &copy, stat);
		break;
	case CALL_CANCEL:
		on_cancel_answer(proc, is_refused_for_good(&copy, stat) ? HF_NLM_GRANTED_STAT : stat);
		break;
	case CALL_SHARE:
	case CALL_UNSHARE:
	case CALL_RESHARE:
		reservation_answer(proc, &copy, stat, sent_at);
		break;
	case CALL_RECLAIM:
		reclaim_answer(copy.host, &copy, stat, sent_at);
		break;
	default:
		think_again(proc);
		break;
	}
}

static bool wants(const struct proc *proc, uint32_t svid, const struct span *span)
{
	/* Linux does not look at the mode, and so takes a late copy of a shared grant for an exclusive one.
	 */
	return proc->svid == svid && proc->span.file == span->file && proc->span.first == span->first &&
	       proc->span.last == span->last && proc->span.mode == span->mode;
}

static bool awaits(const struct proc *proc, uint32_t svid, const struct span *span)
{
	return (proc->phase == WAITING || (proc->phase == LOCKING && proc->blocks)) &&
	       wants(proc, svid, span);
}

bool proc_awaits(const struct host *host, uint32_t svid, const struct span *span)
{
	for (uint32_t i = 0; i < host->n_procs && host->is_up; i++)
		if (awaits(&host->procs[i], svid, span))
			return true;
	return false;
}

/* As in Linux: a program that waits for this range gets it; if none does, the answer is DENIED. */
uint32_t proc_granted(struct host *host, uint32_t svid, const struct span *span, uint64_t sent_at)
{
	for (uint32_t i = 0; i < host->n_procs; i++) {
		struct proc *proc = &host->procs[i];

		if (proc->phase == PAUSING && wants(proc, svid, span))
			proc->denied_at = host->world->now;
		if (!awaits(proc, svid, span))
			continue;
		/* Linux could not tell: this call-back is about a wait that was given up. A client that
		 * repeats a LOCK for the same range while a call-back for the last one is under way has that
		 * risk with every server. */
		if (sent_at < proc->waits_since) {
			host->world->counts->stale_grants++;
			return HF_NLM_DENIED;
		}
		if (host->is_reclaiming)
			return HF_NLM_DENIED_GRACE_PERIOD; /* not now */
		host->world->counts->callbacks++;
		proc->blocked = proc->call ? (struct sending){ 0 } : proc->answered;
		proc->answered = (struct sending){ 0 };
		proc_take(proc, &proc->span, sent_at);
		pipe_settle(proc, 0);
		proc->host->world->counts->granted++;
		/* A poll under way is answered first. If it were forgotten, it could arrive after the
		 * program's next LOCK, and downgrade that. */
		if (proc->call) {
			proc->is_called_back = true;
			proc->called_back_in = host->server_state;
			return HF_NLM_GRANTED_STAT;
		}
		hf_timer_stop(&proc->timer);
		think_again(proc);
		return HF_NLM_GRANTED_STAT;
	}
	return HF_NLM_DENIED;
}
