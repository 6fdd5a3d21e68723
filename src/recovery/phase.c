/*
 * The phases of a run, and grace, which is three of them.
 *
 *	            .--> open grace ------.
 *	            |                     v
 *	loading ----+--> checked grace --> serving --> stopping --> stopped
 *	            |         v           ^ ^   v
 *	            +--> whole grace -----' |   |
 *	            |         ^-------------|---'    a simulated restart
 *	            '-----------------------'        no grace is needed
 *
 * A simulated restart also leads from open and from whole grace to the same again. An
 * orderly stop also leads from loading and from each grace to stopping. Every phase may
 * lead to stopped, as if the server was killed, and every phase before stopped to taken:
 * another run uses the store.
 *
 *	loading        The store is read; no client is served. A run that starts over since
 *	               exports are gone (restart.c) loads until its state number is stored:
 *	               no client gets, reclaims or gives up anything.
 *	open grace     The stored list may lack locks that were granted: every reclaim
 *	               without a conflict is granted.
 *	checked grace  The stored list is complete: only what is in it can be reclaimed.
 *	               Ends early, as soon as each loaded lock and reservation was
 *	               reclaimed, released or purged, and no client is unreachable; but
 *	               not while recovery.early_end is off, which may change meanwhile.
 *	whole grace    The same, but it does not end early: nothing was loaded to wait
 *	               for.
 *	serving        Everything is granted that does not conflict.
 *	stopping       Nothing is granted or given up. The marker of a clean stop is
 *	               being written.
 *
 * While loading and in grace the lock table grants reclaims only. Entering serving
 * drops what is unreclaimed, but for what outlives grace (protocol.c); stopping leaves
 * it to the next run. Every grace ends at its deadline, and by hand.
 *
 * The window of grace is time in which clients can reclaim. A node without its lease
 * drops every call, and its clients take a while until they call again: when the lease is
 * back, the whole window begins anew. A process that stood still finds their calls in its
 * sockets: the window is longer by that time. Many short standstills take as much time from
 * the clients as a long one, so that each counts. While the store cannot write, reclaims are
 * not answered, and each of them begins the window anew.
 *
 * Three things go on beside the phases.
 *
 *	no promises    A store that cannot write (store/health.c) does not change the phase:
 *	               nothing is promised meanwhile (hf_recovery_can_promise()).
 *	telling        The clients are told of the restart (notifier.c) in grace and while
 *	               serving; neither waits for that.
 *	raising        A simulated restart (recovery.c) has raised the state number, and the
 *	               store does not have it yet: raised_state is not sm_state, and the promise
 *	               raised waits for the store. Until then no client hears of the number, the
 *	               phase stays, and hf_phase_settle() does nothing: no later run may go on
 *	               from here. It ends when the number is stored: sm_state takes it, whole (or
 *	               open) grace begins, and the clients are told. If the store fails, raised
 *	               ends and raising does not: a store that is back has the number
 *	               (finish_raise()). If the run ends first, nothing follows.
 *
 * starts_over: this run could go on, but exports with stored locks are gone (restart.c). It
 * stays in loading, simulates a restart, and leaves loading when the new number is stored.
 */
#include <errno.h>

#include "base/error.h"
#include "recovery/internal.h"

#define IN(phase) (1U << (phase))

/* A standstill is noticed by a look at the clock of grace that is late. What passes between two looks counts
 * as time in which clients could reclaim. */
#define LOOK_NS (100 * HF_NS_PER_MS)
#define LATE_NS (50 * HF_NS_PER_MS)

static const struct {
	const char *name;
	unsigned int followers;
} phases[] = {
	[HF_PHASE_LOADING] = { "loading", IN(HF_PHASE_OPEN_GRACE) | IN(HF_PHASE_CHECKED_GRACE) |
						  IN(HF_PHASE_WHOLE_GRACE) | IN(HF_PHASE_SERVING) |
						  IN(HF_PHASE_STOPPING) | IN(HF_PHASE_TAKEN) |
						  IN(HF_PHASE_STOPPED) },
	[HF_PHASE_OPEN_GRACE] = { "open grace", IN(HF_PHASE_OPEN_GRACE) | IN(HF_PHASE_SERVING) |
							IN(HF_PHASE_STOPPING) | IN(HF_PHASE_TAKEN) |
							IN(HF_PHASE_STOPPED) },
	[HF_PHASE_CHECKED_GRACE] = { "checked grace", IN(HF_PHASE_WHOLE_GRACE) | IN(HF_PHASE_SERVING) |
							      IN(HF_PHASE_STOPPING) | IN(HF_PHASE_TAKEN) |
							      IN(HF_PHASE_STOPPED) },
	[HF_PHASE_WHOLE_GRACE] = { "whole grace", IN(HF_PHASE_WHOLE_GRACE) | IN(HF_PHASE_SERVING) |
							  IN(HF_PHASE_STOPPING) | IN(HF_PHASE_TAKEN) |
							  IN(HF_PHASE_STOPPED) },
	[HF_PHASE_SERVING] = { "serving", IN(HF_PHASE_WHOLE_GRACE) | IN(HF_PHASE_STOPPING) |
						  IN(HF_PHASE_TAKEN) | IN(HF_PHASE_STOPPED) },
	[HF_PHASE_STOPPING] = { "stopping", IN(HF_PHASE_TAKEN) | IN(HF_PHASE_STOPPED) },
	[HF_PHASE_TAKEN] = { "taken", IN(HF_PHASE_STOPPED) },
	[HF_PHASE_STOPPED] = { "stopped", 0 },
};

enum hf_recovery_phase hf_recovery_phase(const struct hf_recovery *recovery)
{
	return recovery->phase.now;
}

static bool is_grace(enum hf_recovery_phase phase)
{
	return phase == HF_PHASE_OPEN_GRACE || phase == HF_PHASE_CHECKED_GRACE ||
	       phase == HF_PHASE_WHOLE_GRACE;
}

bool hf_phase_pins(const struct hf_recovery *recovery)
{
	return recovery->phase.now == HF_PHASE_OPEN_GRACE;
}

bool hf_phase_is_over(const struct hf_recovery *recovery)
{
	return recovery->phase.now >= HF_PHASE_STOPPING;
}

bool hf_phase_is_raising(const struct hf_recovery *recovery)
{
	return recovery->raised_state && recovery->raised_state != recovery->sm_state;
}

bool hf_recovery_is_stopping(const struct hf_recovery *recovery)
{
	return hf_phase_is_over(recovery);
}

static uint64_t count_unreclaimed(const struct hf_recovery *recovery)
{
	struct hf_lock_counters counters;

	hf_lock_count(recovery->locks, &counters);
	return counters.unreclaimed + counters.ghosts + counters.unreclaimed_reservations;
}

/* Of them, those that grace waits for: what outlives grace is in the way of others after it, too. */
static uint64_t count_awaited(const struct hf_recovery *recovery)
{
	struct hf_lock_counters counters;

	hf_lock_count(recovery->locks, &counters);
	return count_unreclaimed(recovery) - counters.outliving;
}

/* Entering a phase */

/* hf_client_unref() reaps clients that hold nothing: touch each one once. */
static void look_at_clients(struct hf_recovery *recovery)
{
	struct hf_client *client;
	uint64_t serial = 0;

	while ((client = hf_clients_next(recovery->clients, serial))) {
		serial = client->serial;
		if (!client->recovery->notice)
			hf_client_pin(client, false);
		hf_client_unref(client);
	}
}

static void end_grace_timers(struct hf_phase *phase)
{
	hf_timer_stop(&phase->grace_timer);
	hf_task_cancel(&phase->check_task);
}

/* What is stored of exports that are gone is in no table: an UNLOCK changes nothing there. */
static bool may_settle(const struct hf_recovery *recovery)
{
	return recovery->persist.stores_waiters && recovery->phase.now == HF_PHASE_SERVING &&
	       !hf_phase_is_raising(recovery) && hf_list_is_empty(&recovery->not_exported.records);
}

static void on_settled(struct hf_promise *promise, bool is_durable)
{
	struct hf_recovery *recovery = hf_container_of(promise, struct hf_recovery, phase.settled);

	if (is_durable && may_settle(recovery)) /* a restart may have been simulated meanwhile */
		hf_store_mark_settled(recovery->store, NULL);
}

/* Registrations and locks are written separately: without this the store could say that a run may go on, and
 * still have what the end of grace has dropped. */
void hf_phase_settle(struct hf_recovery *recovery)
{
	struct hf_promise *promise = &recovery->phase.settled;

	if (!may_settle(recovery))
		return;
	hf_promise_cancel(promise);
	if (hf_promises_await(recovery, promise, recovery->persist.ticket, 0, on_settled))
		on_settled(promise, true);
}

static void act(struct hf_recovery *recovery)
{
	struct hf_phase *phase = &recovery->phase;

	if (is_grace(phase->now)) {
		hf_lock_set_grace(recovery->locks, true);
		return;
	}
	end_grace_timers(phase);
	if (phase->now != HF_PHASE_SERVING)
		return;
	phase->has_served = true;
	hf_lock_set_grace(recovery->locks, false);
	look_at_clients(recovery);
	hf_store_mark_complete(recovery->store, NULL);
	hf_phase_settle(recovery);
}

static void say_grace_began(struct hf_recovery *recovery)
{
	const struct hf_phase *phase = &recovery->phase;

	hf_log_info("grace began, only reclaims are granted",
		    "reason=\"%s\" seconds=%llu unreclaimed=%llu complete=%s", phase->reason,
		    (unsigned long long)(phase->grace_window_ns / HF_NS_PER_S),
		    (unsigned long long)count_unreclaimed(recovery),
		    phase->now == HF_PHASE_OPEN_GRACE ? "no" : "yes");
	hf_observe_tell(recovery, &(struct hf_recovery_event){ .kind = HF_EVENT_GRACE_STARTED,
							       .reason = phase->reason });
}

static void say_grace_ended(struct hf_recovery *recovery, uint64_t n_dropped)
{
	const char *reason = recovery->phase.reason;

	hf_log_info("grace ended", "reason=\"%s\" dropped=%llu", reason, (unsigned long long)n_dropped);
	hf_observe_tell(recovery, &(struct hf_recovery_event){ .kind = HF_EVENT_GRACE_ENDED,
							       .reason = reason,
							       .n_locks = (size_t)n_dropped });
}

static void say(struct hf_recovery *recovery, enum hf_recovery_phase before, uint64_t n_dropped)
{
	const struct hf_phase *phase = &recovery->phase;

	hf_log_debug("the server enters another phase", "from=\"%s\" to=\"%s\" reason=\"%s\"",
		     phases[before].name, phases[phase->now].name, phase->reason);
	if (is_grace(phase->now))
		say_grace_began(recovery);
	else if (phase->now == HF_PHASE_SERVING && is_grace(before))
		say_grace_ended(recovery, n_dropped);
	else if (phase->now == HF_PHASE_SERVING)
		hf_log_info("granting new locks at once", "reason=\"%s\" dropped=%llu", phase->reason,
			    (unsigned long long)n_dropped);
}

static bool may_enter(const struct hf_recovery *recovery, enum hf_recovery_phase phase)
{
	return phases[recovery->phase.now].followers & IN(phase);
}

bool hf_phase_enter(struct hf_recovery *recovery, enum hf_recovery_phase phase, const char *reason)
{
	enum hf_recovery_phase before = recovery->phase.now;
	uint64_t n_dropped;

	if (!may_enter(recovery, phase))
		return false;
	n_dropped = phase == HF_PHASE_SERVING ? count_awaited(recovery) : 0;
	recovery->phase.now = phase;
	recovery->phase.since = hf_loop_now(recovery->loop);
	recovery->phase.reason = reason;
	act(recovery);
	say(recovery, before, n_dropped);
	return true;
}

/* Grace begins */

static int look_later(struct hf_recovery *recovery)
{
	struct hf_phase *phase = &recovery->phase;
	uint64_t next = hf_loop_now(recovery->loop) + LOOK_NS;

	return hf_timer_start_at(&phase->grace_timer, HF_MIN(next, phase->grace_ends_at));
}

static int start_clock(struct hf_recovery *recovery)
{
	struct hf_phase *phase = &recovery->phase;

	phase->grace_mark = hf_loop_mark(recovery->loop);
	phase->grace_ends_at = hf_loop_now(recovery->loop) + phase->grace_window_ns;
	return hf_trace(look_later(recovery));
}

static int begin_grace(struct hf_recovery *recovery, enum hf_recovery_phase phase, const char *reason)
{
	int r;

	if (!may_enter(recovery, phase))
		return -EINVAL;
	recovery->phase.grace_window_ns = hf_protocols_grace_ns(recovery, phase == HF_PHASE_OPEN_GRACE);
	r = start_clock(recovery);
	if (r < 0)
		return r;
	hf_phase_enter(recovery, phase, reason);
	return 0;
}

int hf_phase_begin_whole_grace(struct hf_recovery *recovery, const char *reason)
{
	bool is_open = recovery->phase.now == HF_PHASE_OPEN_GRACE;

	return begin_grace(recovery, is_open ? HF_PHASE_OPEN_GRACE : HF_PHASE_WHOLE_GRACE, reason);
}

static int decide_on(struct hf_recovery *recovery, bool could_reclaim, const char *reason)
{
	if (!recovery->start.has_all_locks)
		return begin_grace(recovery, HF_PHASE_OPEN_GRACE, reason);
	if (could_reclaim)
		return begin_grace(recovery, HF_PHASE_CHECKED_GRACE, reason);
	return begin_grace(recovery, HF_PHASE_WHOLE_GRACE, reason);
}

/* If the stored list is complete, grace is needed when it is not empty; otherwise when any client is
 * registered, for every client that was told GRANTED is. */
int hf_phase_decide(struct hf_recovery *recovery)
{
	const struct hf_store_start *start = &recovery->start;
	uint64_t n_loaded = count_awaited(recovery);
	bool could_reclaim =
		start->has_all_locks ? n_loaded > 0 : hf_clients_count_registered(recovery->clients) > 0;
	const char *reason = start->was_clean ? "restart after a clean stop" : "restart after a crash";

	if (start->continues) {
		hf_phase_enter(recovery, HF_PHASE_SERVING, "going on where the last run ended");
		return 0;
	}
	if (recovery->starts_over)
		return 0; /* grace begins when clients are told */
	switch (recovery->options.grace) {
	case HF_RECOVERY_GRACE_NEVER:
		if (n_loaded || could_reclaim) {
			hf_phase_enter(recovery, HF_PHASE_SERVING, "recovery.grace is never");
			return 0;
		}
		break;
	case HF_RECOVERY_GRACE_ALWAYS:
		return decide_on(recovery, could_reclaim,
				 could_reclaim ? reason : "recovery.grace is always");
	case HF_RECOVERY_GRACE_AUTO:
		if (could_reclaim)
			return decide_on(recovery, could_reclaim, reason);
		break;
	}
	hf_phase_enter(recovery, HF_PHASE_SERVING, "no grace period needed");
	return 0;
}

int hf_phase_restart_clock(struct hf_recovery *recovery)
{
	return is_grace(recovery->phase.now) ? start_clock(recovery) : 0;
}

void hf_recovery_put_off_reclaim(struct hf_recovery *recovery)
{
	(void)hf_phase_restart_clock(recovery);
}

/* Grace ends */

/* While the lease is away, each look begins the window anew, and so does the first one after its return. */
static void begin_anew(struct hf_recovery *recovery)
{
	if (hf_loop_may_act(recovery->loop))
		hf_log_info("grace begins anew: without its lease this node could not serve reclaims",
			    "seconds=%llu",
			    (unsigned long long)(recovery->phase.grace_window_ns / HF_NS_PER_S));
	(void)start_clock(recovery);
}

static void on_look(struct hf_timer *timer)
{
	struct hf_recovery *recovery = hf_container_of(timer, struct hf_recovery, phase.grace_timer);
	struct hf_phase *phase = &recovery->phase;
	uint64_t now = hf_loop_now(recovery->loop), late = now - timer->deadline;

	if (!hf_loop_had_lease(recovery->loop, &phase->grace_mark)) {
		begin_anew(recovery);
		return;
	}
	if (late > LATE_NS)
		phase->grace_ends_at += late;
	if (now >= phase->grace_ends_at)
		hf_phase_enter(recovery, HF_PHASE_SERVING, "its time is over");
	else
		(void)look_later(recovery);
}

int hf_recovery_end_grace(struct hf_recovery *recovery)
{
	if (!is_grace(recovery->phase.now))
		return -ENOENT;
	hf_phase_enter(recovery, HF_PHASE_SERVING, "ended by hand");
	return 0;
}

static void on_check(struct hf_task *task)
{
	struct hf_recovery *recovery = hf_container_of(task, struct hf_recovery, phase.check_task);

	if (recovery->phase.now == HF_PHASE_CHECKED_GRACE && recovery->options.early_end &&
	    count_awaited(recovery) == 0 && recovery->counts.unreachable == 0)
		hf_phase_enter(recovery, HF_PHASE_SERVING, "everything that was held is accounted for");
}

/* At the end of the turn: in the midst of a change the waiters cannot be served. */
void hf_phase_look(struct hf_recovery *recovery)
{
	if (recovery->phase.now == HF_PHASE_CHECKED_GRACE)
		hf_loop_defer(recovery->loop, &recovery->phase.check_task);
}

void hf_recovery_grace_info(struct hf_recovery *recovery, struct hf_grace_info *infop)
{
	const struct hf_phase *phase = &recovery->phase;
	uint64_t now = hf_loop_now(recovery->loop);
	bool has_clock = is_grace(phase->now) && phase->grace_ends_at > now;

	*infop = (struct hf_grace_info){
		.is_active = hf_lock_in_grace(recovery->locks),
		.ends_in_ns = has_clock ? phase->grace_ends_at - now : 0,
		.reason = phase->reason,
		.n_unreclaimed = count_unreclaimed(recovery),
	};
}

/* Making and freeing */

void hf_phase_init(struct hf_recovery *recovery)
{
	struct hf_phase *phase = &recovery->phase;

	phase->now = HF_PHASE_LOADING;
	hf_timer_init(&phase->grace_timer, recovery->loop, on_look);
	hf_task_init(&phase->check_task, on_check);
}

void hf_phase_deinit(struct hf_recovery *recovery)
{
	end_grace_timers(&recovery->phase);
	hf_promise_cancel(&recovery->phase.settled);
}
