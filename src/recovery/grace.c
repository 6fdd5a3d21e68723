/*
 * Grace: after our restart only what was held before is granted.
 *
 * It is needed where something could be reclaimed. If the stored locks are all
 * that were held, that is: if there are any. If they are not, it is: if anybody
 * is registered, for whoever was told GRANTED is (I2).
 *
 * It ends at its deadline or by hand; and early where the list of loaded locks
 * and reservations is known to be complete, every one of them has been reclaimed,
 * unlocked or purged by evidence, and every client could be told so far.
 */
#include <errno.h>

#include "base/error.h"
#include "base/log.h"
#include "recovery/internal.h"

static uint64_t count_unreclaimed(const struct hf_recovery *recovery)
{
	struct hf_lock_counters counters;

	hf_lock_count(recovery->locks, &counters);
	return counters.unreclaimed + counters.ghosts + recovery->reservations.n_unreclaimed;
}

bool hf_grace_pins(const struct hf_recovery *recovery)
{
	return recovery->grace.is_active && !recovery->grace.is_complete;
}

/* hf_client_unref() reaps clients that hold nothing: touch each one once. */
static void look_at_clients(struct hf_recovery *recovery)
{
	struct hf_client *client;
	uint64_t serial = 0;

	while ((client = hf_clients_next(recovery->clients, serial))) {
		serial = client->serial;
		if (!client->notice)
			hf_client_pin(client, false);
		hf_client_unref(client);
	}
}

static void end(struct hf_recovery *recovery, const char *reason)
{
	struct hf_grace *grace = &recovery->grace;
	uint64_t n = count_unreclaimed(recovery);

	grace->is_active = false;
	grace->is_complete = true;
	grace->reason = reason;
	hf_timer_stop(&grace->timer);
	recovery->late_reclaims.is_dropping = true;
	hf_lock_set_grace(recovery->locks, false);
	hf_reservations_drop(recovery, NULL, 0);
	recovery->late_reclaims.is_dropping = false;
	look_at_clients(recovery);
	hf_store_mark_complete(recovery->store, NULL);
	hf_log_info("grace ended", "reason=\"%s\" dropped=%llu", reason, (unsigned long long)n);
	hf_recovery_tell(recovery, &(struct hf_recovery_event){ .kind = HF_EVENT_GRACE_ENDED,
								.reason = reason,
								.n_locks = (size_t)n });
}

static void on_deadline(struct hf_timer *timer)
{
	end(hf_container_of(timer, struct hf_recovery, grace.timer), "its time is over");
}

/* Early */

static bool is_accounted_for(const struct hf_recovery *recovery)
{
	return recovery->grace.is_complete && count_unreclaimed(recovery) == 0 &&
	       recovery->counts.unreachable == 0;
}

static void on_check(struct hf_task *task)
{
	struct hf_recovery *recovery = hf_container_of(task, struct hf_recovery, grace.check_task);

	if (recovery->grace.is_active && is_accounted_for(recovery))
		end(recovery, "everything that was held is accounted for");
}

/* At the end of the turn: what happens in the midst of a change is not the time to serve the waiters. */
void hf_grace_look(struct hf_recovery *recovery)
{
	if (recovery->grace.is_active && recovery->grace.may_end_early)
		hf_loop_defer(recovery->loop, &recovery->grace.check_task);
}

/* Beginning */

int hf_grace_begin(struct hf_recovery *recovery, const char *reason, bool may_end_early)
{
	struct hf_grace *grace = &recovery->grace;
	int r = hf_timer_start(&grace->timer, grace->window_ns);

	if (r < 0)
		return hf_trace(r);
	grace->is_active = true;
	grace->may_end_early = may_end_early && recovery->options.early_end;
	grace->ends_at = hf_loop_now(recovery->loop) + grace->window_ns;
	grace->reason = reason;
	hf_lock_set_grace(recovery->locks, true);
	hf_log_info("grace began: only what was held before is granted",
		    "reason=\"%s\" seconds=%llu unreclaimed=%llu complete=%s", reason,
		    (unsigned long long)(grace->window_ns / HF_NS_PER_S),
		    (unsigned long long)count_unreclaimed(recovery), grace->is_complete ? "yes" : "no");
	hf_recovery_tell(recovery,
			 &(struct hf_recovery_event){ .kind = HF_EVENT_GRACE_STARTED, .reason = reason });
	return 0;
}

/* No grace: what was loaded is dropped at once, and may come back late. */
static void skip(struct hf_recovery *recovery, const char *reason)
{
	hf_lock_set_grace(recovery->locks, true);
	end(recovery, reason);
}

int hf_grace_decide(struct hf_recovery *recovery)
{
	const struct hf_store_start *start = &recovery->start;
	uint64_t n_loaded = count_unreclaimed(recovery);
	bool could_reclaim =
		start->has_all_locks ? n_loaded > 0 : hf_clients_count_registered(recovery->clients) > 0;
	const char *reason = start->was_clean ? "restart after a clean stop" : "restart after a crash";

	recovery->grace.is_complete = start->has_all_locks;
	recovery->grace.reason = "nothing could be reclaimed";
	switch (recovery->options.grace) {
	case HF_RECOVERY_GRACE_NEVER:
		if (n_loaded || could_reclaim)
			skip(recovery, "recovery.grace is never");
		break;
	case HF_RECOVERY_GRACE_ALWAYS:
		/* Where there is nothing to account for, that is no reason to end at once what was asked for.
		 */
		return hf_grace_begin(recovery, could_reclaim ? reason : "recovery.grace is always",
				      could_reclaim);
	case HF_RECOVERY_GRACE_AUTO:
		if (could_reclaim)
			return hf_grace_begin(recovery, reason, true);
		break;
	}
	if (!recovery->grace.is_active) {
		recovery->grace.is_complete = true;
		hf_store_mark_complete(recovery->store, NULL);
	}
	return 0;
}

int hf_grace_restart_clock(struct hf_recovery *recovery)
{
	struct hf_grace *grace = &recovery->grace;

	if (!grace->is_active)
		return 0;
	grace->ends_at = hf_loop_now(recovery->loop) + grace->window_ns;
	return hf_trace(hf_timer_start_at(&grace->timer, grace->ends_at));
}

/* Face */

void hf_recovery_grace_info(struct hf_recovery *recovery, struct hf_grace_info *infop)
{
	const struct hf_grace *grace = &recovery->grace;
	uint64_t now = hf_loop_now(recovery->loop);

	*infop = (struct hf_grace_info){
		.is_active = grace->is_active,
		.ends_in_ns = grace->is_active && grace->ends_at > now ? grace->ends_at - now : 0,
		.reason = grace->reason,
		.n_unreclaimed = count_unreclaimed(recovery),
	};
}

int hf_recovery_end_grace(struct hf_recovery *recovery)
{
	if (!recovery->grace.is_active)
		return -ENOENT;
	end(recovery, "ended by hand");
	return 0;
}

/* A restart that is none: nobody may hear of the new state number before it is stored. */
static void on_raised(struct hf_promise *promise, bool kept)
{
	struct hf_recovery *recovery = hf_container_of(promise, struct hf_recovery, raised);

	if (!kept)
		return;
	recovery->sm_state = recovery->raised_state;
	hf_log_info("a restart is simulated", "state=%d", recovery->sm_state);
	if (hf_grace_begin(recovery, "a simulated restart", false) < 0 || hf_notifier_start(recovery) < 0)
		hf_log_error("no memory to simulate a restart", "%s", "");
}

int hf_recovery_simulate_crash(struct hf_recovery *recovery)
{
	uint64_t ticket;
	int r = hf_store_raise_state(recovery->store, &recovery->raised_state, &ticket);

	if (r < 0)
		return hf_trace(r);
	hf_promise_cancel(&recovery->raised);
	if (hf_promises_await(recovery, &recovery->raised, 0, ticket, on_raised))
		on_raised(&recovery->raised, true);
	return 0;
}

enum hf_recovery_reclaim hf_recovery_reclaim(struct hf_recovery *recovery,
					     const struct hf_lock_request *request)
{
	if (recovery->grace.is_active)
		return recovery->grace.is_complete ? HF_RECLAIM_BACKED : HF_RECLAIM_NORMAL;
	/* A repeated request for what was reclaimed in time is answered as it was then. */
	if (!hf_late_reclaim_allows(recovery, request))
		return HF_RECLAIM_BACKED;
	recovery->counts.late_reclaims++;
	return HF_RECLAIM_LATE;
}

/* Life */

void hf_grace_init(struct hf_recovery *recovery)
{
	struct hf_grace *grace = &recovery->grace;
	uint64_t own = recovery->options.nlm_grace_ns;

	grace->window_ns = own == UINT64_MAX ? recovery->options.window_ns : own;
	hf_timer_init(&grace->timer, recovery->loop, on_deadline);
	hf_task_init(&grace->check_task, on_check);
}

void hf_grace_deinit(struct hf_recovery *recovery)
{
	hf_timer_stop(&recovery->grace.timer);
	hf_task_cancel(&recovery->grace.check_task);
}
