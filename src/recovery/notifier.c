/*
 * Tells every registered client of the server's restart, where its protocol does that (protocol.c).
 * A client that knows the server's state number already is not told: a run that goes on where the
 * last one ended has the same number.
 *
 * A notice stands for one client that is yet to be told:
 *
 *	queue -> young -> old         answered: the client was told, and the notice ends
 *	  ^        v       v
 *	  '------ rests <--'          failed: tried again after a growing gap, until notify_retry_seconds
 *
 * A young notice was given to the teller a moment ago. notify_parallel bounds the
 * young ones, and so what is sent at once. A client that has not answered after that
 * moment is most likely unreachable: its notice becomes old, and is not counted any
 * more. So 2,000 unreachable clients delay no other; they cost memory only.
 *
 * A client that could not be told in time and has unreclaimed locks is marked crashed:
 * they are released, but stay reclaimable until grace ends. A client that
 * has none is marked unreachable, until it is told or calls. Both stay registered while
 * they are tried again. A client that was told under some of the server's addresses, and not under all
 * (hf_client_is_reached()), is tried again, too, and loses nothing by that.
 *
 * The server's state number may rise while a notice is under way (SM_SIMU_CRASH). The result of
 * that try says nothing about the new number: the client is told again, at once, and
 * until then it was neither told nor unreachable. Nor is it after a try for which the server
 * had no socket or memory: the notice goes back to the queue.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "recovery/internal.h"

#define YOUNG_NS     (200 * HF_NS_PER_MS)
#define FIRST_GAP_NS (2 * HF_NS_PER_S)
#define MAX_GAP_NS   (60 * HF_NS_PER_S)
#define MAX_OLD      32768 /* without an answer; below what the RPC client can have in flight */

struct hf_notice {
	struct hf_recovery *recovery;
	struct hf_client *client; /* a reference; NULL: given up while the teller still has it */
	struct hf_link link;
	enum hf_notice_stage stage;
	struct hf_timer timer; /* resting */
	uint64_t began;        /* this try */
	uint64_t give_up;      /* no try after this */
	uint64_t gap;
	int32_t state;   /* of the server, in the last try */
	bool by_hand;    /* a failure is no evidence of anything */
	bool is_in_wave; /* counts for the first wave */
	bool has_failed;
};

/* Stages */

static void take_out(struct hf_notice *notice)
{
	hf_link_remove(&notice->link);
	notice->recovery->notifier.n[notice->stage]--;
}

static void put_in(struct hf_notice *notice, enum hf_notice_stage stage)
{
	notice->stage = stage;
	hf_list_push_back(&notice->recovery->notifier.notices[stage], &notice->link);
	notice->recovery->notifier.n[stage]++;
}

static void move(struct hf_notice *notice, enum hf_notice_stage stage)
{
	take_out(notice);
	put_in(notice, stage);
}

static bool is_with_teller(const struct hf_notice *notice)
{
	return notice->stage == HF_NOTICE_YOUNG || notice->stage == HF_NOTICE_OLD;
}

static void pump_later(struct hf_recovery *recovery)
{
	hf_loop_defer(recovery->loop, &recovery->notifier.pump_task);
}

/* Counting the wave */

static void leave_wave(struct hf_notice *notice, bool was_told)
{
	struct hf_notifier *notifier = &notice->recovery->notifier;

	if (!notice->is_in_wave)
		return;
	notice->is_in_wave = false;
	notifier->n_wave_told += was_told;
	notifier->n_wave_failed += !was_told;
	if (--notifier->n_wave_left || hf_phase_is_over(notice->recovery))
		return; /* no report of a wave that was cut off */
	hf_log_at(notifier->n_wave_failed ? HF_LOG_WARN : HF_LOG_INFO,
		  notifier->n_wave_failed ? "clients told of the server's restart; the unreachable ones lose "
					    "their locks and are tried again"
					  : "clients told of the server's restart",
		  "told=%zu failed=%zu ms=%llu state=%d", notifier->n_wave_told, notifier->n_wave_failed,
		  (unsigned long long)((hf_loop_now(notice->recovery->loop) - notifier->wave_began) /
				       HF_NS_PER_MS),
		  notice->recovery->sm_state);
}

/* Grace does not end early while a client is unreachable. */
static void note_failed(struct hf_notice *notice, bool has_failed)
{
	if (notice->has_failed == has_failed)
		return;
	notice->has_failed = has_failed;
	if (has_failed)
		notice->recovery->counts.unreachable++;
	else if (--notice->recovery->counts.unreachable == 0)
		hf_phase_look(notice->recovery);
}

/* Ends */

static void detach(struct hf_notice *notice)
{
	struct hf_client *client = notice->client;

	notice->client = NULL;
	client->recovery->notice = NULL;
	hf_client_pin(client, hf_phase_pins(notice->recovery));
	hf_client_unref(client);
}

static void notice_free(struct hf_notice *notice)
{
	leave_wave(notice, false);
	note_failed(notice, false);
	hf_timer_stop(&notice->timer);
	take_out(notice);
	if (notice->client)
		detach(notice);
	free(notice);
}

/* The last try is at the very end, however wide the gaps have become: so a client that can be reached again
 * by then hears of the restart. */
static void rest(struct hf_notice *notice)
{
	uint64_t now = hf_loop_now(notice->recovery->loop);

	if (now >= notice->give_up ||
	    hf_timer_start(&notice->timer, HF_MIN(notice->gap, notice->give_up - now)) < 0) {
		hf_log_debug("client not told of the server's restart: giving up", "client=%s",
			     notice->client->id);
		notice_free(notice);
		return;
	}
	notice->gap = HF_MIN(notice->gap * 2, MAX_GAP_NS);
	move(notice, HF_NOTICE_RESTS);
}

/* A client that has called since the server's restart is alive, whatever became of the notice. */
static bool was_seen(const struct hf_recovery *recovery, const struct hf_client *client)
{
	return client->last_seen > recovery->notifier.wave_wall;
}

static void not_told(struct hf_notice *notice, const char *why_not)
{
	struct hf_recovery *recovery = notice->recovery;
	struct hf_client *client = notice->client;
	bool is_reached = hf_client_is_reached(client, notice->state);

	hf_log_debug("client could not be told of the server's restart", "client=%s why=\"%s\"", client->id,
		     why_not ? why_not : "");
	note_failed(notice, true);
	if (!was_seen(recovery, client) && client->status != HF_CLIENT_CRASHED) {
		if (notice->by_hand || is_reached)
			hf_client_set_status(client, HF_CLIENT_UNREACHABLE);
		else
			hf_crash_release_reclaimable(recovery, client);
	}
	leave_wave(notice, is_reached);
	rest(notice);
	/* @notice may be gone here */
}

/* Only a run that goes on where this one ends asks for it. */
static void note_told(struct hf_notice *notice)
{
	struct hf_client *client = notice->client;

	client->recovery->told_state = notice->state;
	if (notice->recovery->options.continues && hf_client_is_registered(client))
		hf_persist_client(notice->recovery, client, NULL);
}

static void told(struct hf_notice *notice)
{
	struct hf_recovery *recovery = notice->recovery;

	hf_client_answered(notice->client);
	note_told(notice);
	if (notice->client->status != HF_CLIENT_ACTIVE || !was_seen(recovery, notice->client))
		hf_client_set_status(notice->client, HF_CLIENT_NOTIFIED);
	leave_wave(notice, true);
	notice_free(notice);
	hf_phase_look(recovery);
}

/* No event tells when room or memory is back. */
static void pump_soon(struct hf_notifier *notifier)
{
	if (!hf_timer_is_running(&notifier->age_timer))
		hf_timer_start(&notifier->age_timer, YOUNG_NS);
}

static void not_tried(struct hf_notice *notice)
{
	struct hf_recovery *recovery = notice->recovery;

	recovery->counts.notifications_started--;
	pump_soon(&recovery->notifier);
	if (hf_loop_now(recovery->loop) < notice->give_up)
		move(notice, HF_NOTICE_QUEUE);
	else
		rest(notice);
	/* @notice may be gone here */
}

static void on_done(void *context, bool was_told, const char *why_not)
{
	struct hf_notice *notice = context;
	struct hf_recovery *recovery = notice->recovery;

	assert(is_with_teller(notice));
	if (notice->client && !was_told && !why_not) {
		not_tried(notice);
		return;
	}
	pump_later(recovery);
	if (!notice->client) {
		notice_free(notice);
		return;
	}
	hf_observe_tell(recovery, &(struct hf_recovery_event){
					  .kind = HF_EVENT_NOTIFY,
					  .client = notice->client,
					  .reason = why_not,
					  .state = notice->state,
					  .was_told = was_told,
					  .took_ns = hf_loop_now(recovery->loop) - notice->began,
				  });
	if (was_told)
		recovery->counts.notifications_told++;
	else
		recovery->counts.notifications_failed++;
	if (notice->state != recovery->sm_state)
		move(notice, HF_NOTICE_QUEUE);
	else if (was_told)
		told(notice);
	else
		not_told(notice, why_not);
}

/* Beginnings */

/* False: no client can be told now. */
static bool begin(struct hf_notice *notice)
{
	struct hf_recovery *recovery = notice->recovery;
	const struct hf_recovery_teller *teller = &notice->client->recovery->protocol->teller;
	int r;

	notice->state = recovery->sm_state;
	notice->began = hf_loop_now(recovery->loop);
	move(notice, HF_NOTICE_YOUNG);
	recovery->counts.notifications_started++;
	r = teller->tell(teller->user, notice->client, notice->state, recovery->options.notify_timeout_ns,
			 on_done, notice);
	if (r == -EBUSY || r == -ENOMEM) {
		recovery->counts.notifications_started--;
		move(notice, HF_NOTICE_QUEUE);
		return false;
	}
	if (r < 0)
		on_done(notice, false, strerror(-r));
	return true;
}

static void watch_age(struct hf_notifier *notifier)
{
	struct hf_link *link = hf_list_first(&notifier->notices[HF_NOTICE_YOUNG]);

	if (link && !hf_timer_is_running(&notifier->age_timer))
		hf_timer_start_at(&notifier->age_timer,
				  hf_list_entry(link, struct hf_notice, link)->began + YOUNG_NS);
}

/* The next one to begin, if another young one may be and there is a teller. */
static struct hf_notice *next_in_queue(struct hf_recovery *recovery)
{
	struct hf_notifier *notifier = &recovery->notifier;
	struct hf_link *link = hf_list_first(&notifier->notices[HF_NOTICE_QUEUE]);
	struct hf_notice *notice = link ? hf_list_entry(link, struct hf_notice, link) : NULL;

	if (!notice || notifier->n[HF_NOTICE_YOUNG] >= recovery->options.notify_parallel ||
	    notifier->n[HF_NOTICE_OLD] >= MAX_OLD)
		return NULL;
	return notice->client->recovery->protocol->teller.tell ? notice : NULL;
}

static void pump(struct hf_recovery *recovery)
{
	struct hf_notifier *notifier = &recovery->notifier;
	struct hf_notice *notice;

	while ((notice = next_in_queue(recovery)))
		if (!begin(notice)) { /* too many calls are under way, or there is no memory */
			pump_soon(notifier);
			return;
		}
	watch_age(notifier);
}

static void on_pump(struct hf_task *task)
{
	pump(hf_container_of(task, struct hf_recovery, notifier.pump_task));
}

static void on_age(struct hf_timer *timer)
{
	struct hf_recovery *recovery = hf_container_of(timer, struct hf_recovery, notifier.age_timer);
	struct hf_notifier *notifier = &recovery->notifier;
	uint64_t now = hf_loop_now(recovery->loop);
	struct hf_link *link;

	while ((link = hf_list_first(&notifier->notices[HF_NOTICE_YOUNG]))) {
		struct hf_notice *notice = hf_list_entry(link, struct hf_notice, link);

		if (notice->began + YOUNG_NS > now)
			break;
		move(notice, HF_NOTICE_OLD);
	}
	pump(recovery);
}

static void on_rested(struct hf_timer *timer)
{
	struct hf_notice *notice = hf_container_of(timer, struct hf_notice, timer);

	move(notice, HF_NOTICE_QUEUE);
	pump_later(notice->recovery);
}

static int add(struct hf_recovery *recovery, struct hf_client *client, bool by_hand)
{
	struct hf_notice *notice = client->recovery->notice;

	if (notice) {
		notice->give_up = hf_loop_now(recovery->loop) + recovery->options.notify_retry_ns;
		notice->gap = FIRST_GAP_NS;
		notice->by_hand = notice->by_hand && by_hand;
		if (notice->stage == HF_NOTICE_RESTS) {
			hf_timer_stop(&notice->timer);
			move(notice, HF_NOTICE_QUEUE);
		}
		pump_later(recovery);
		return 0;
	}
	notice = calloc(1, sizeof(*notice));
	if (!notice)
		return hf_trace(-ENOMEM);
	notice->recovery = recovery;
	notice->client = hf_client_ref(client);
	notice->give_up = hf_loop_now(recovery->loop) + recovery->options.notify_retry_ns;
	notice->gap = FIRST_GAP_NS;
	notice->by_hand = by_hand;
	hf_timer_init(&notice->timer, recovery->loop, on_rested);
	put_in(notice, HF_NOTICE_QUEUE);
	client->recovery->notice = notice;
	hf_client_pin(client, true);
	pump_later(recovery);
	return 0;
}

static bool is_to_be_told(const struct hf_client *client)
{
	return hf_client_is_registered(client) && client->recovery->protocol->rules.is_told;
}

static bool knows_state(const struct hf_recovery *recovery, const struct hf_client *client)
{
	return recovery->options.continues && client->recovery->told_state == recovery->sm_state;
}

static int add_all(struct hf_recovery *recovery, bool by_hand)
{
	struct hf_notifier *notifier = &recovery->notifier;
	struct hf_client *client;
	uint64_t serial = 0;
	int r = 0;

	while ((client = hf_clients_next(recovery->clients, serial))) {
		serial = client->serial;
		if (is_to_be_told(client) && (by_hand || !knows_state(recovery, client)))
			r = add(recovery, client, by_hand);
		if (client->recovery->notice && !by_hand && !client->recovery->notice->is_in_wave) {
			client->recovery->notice->is_in_wave = true;
			notifier->n_wave_left++;
		}
		hf_client_unref(client);
		if (r < 0)
			return r;
	}
	return 0;
}

int hf_notifier_start(struct hf_recovery *recovery)
{
	struct hf_notifier *notifier = &recovery->notifier;

	notifier->wave_began = hf_loop_now(recovery->loop);
	notifier->wave_wall = hf_loop_wall(recovery->loop);
	notifier->n_wave_told = notifier->n_wave_failed = 0;
	return hf_trace(add_all(recovery, false));
}

int hf_recovery_notify_again(struct hf_recovery *recovery, struct hf_client *client)
{
	if (!client)
		return hf_trace(add_all(recovery, true));
	return is_to_be_told(client) ? hf_trace(add(recovery, client, true)) : -ENOENT;
}

/* The client is not registered any more, and need not be told. */
void hf_notifier_forget(struct hf_recovery *recovery, struct hf_client *client)
{
	struct hf_notice *notice = client->recovery->notice;

	if (!notice)
		return;
	if (!is_with_teller(notice)) {
		notice_free(notice);
		return;
	}
	leave_wave(notice, false);
	note_failed(notice, false);
	detach(notice); /* it goes when the teller is done with it */
}

/* Making and freeing */

void hf_notifier_init(struct hf_recovery *recovery)
{
	struct hf_notifier *notifier = &recovery->notifier;

	for (size_t i = 0; i < HF_N_NOTICE_STAGES; i++)
		hf_list_init(&notifier->notices[i]);
	hf_timer_init(&notifier->age_timer, recovery->loop, on_age);
	hf_task_init(&notifier->pump_task, on_pump);
}

static void free_all(struct hf_notifier *notifier, enum hf_notice_stage stage)
{
	struct hf_link *link;

	while ((link = hf_list_first(&notifier->notices[stage])))
		notice_free(hf_list_entry(link, struct hf_notice, link));
}

static void detach_all(struct hf_notifier *notifier, enum hf_notice_stage stage)
{
	hf_list_for_each(pos, &notifier->notices[stage]) {
		struct hf_notice *notice = hf_list_entry(pos, struct hf_notice, link);

		if (notice->client)
			detach(notice);
	}
}

/* No client is told any more; the teller gives back the notices that it has. */
void hf_notifier_stop(struct hf_recovery *recovery)
{
	struct hf_notifier *notifier = &recovery->notifier;

	free_all(notifier, HF_NOTICE_QUEUE);
	free_all(notifier, HF_NOTICE_RESTS);
	detach_all(notifier, HF_NOTICE_YOUNG);
	detach_all(notifier, HF_NOTICE_OLD);
	hf_task_cancel(&notifier->pump_task);
}

/* The tellers are gone by now. */
void hf_notifier_deinit(struct hf_recovery *recovery)
{
	struct hf_notifier *notifier = &recovery->notifier;

	hf_notifier_stop(recovery);
	free_all(notifier, HF_NOTICE_YOUNG);
	free_all(notifier, HF_NOTICE_OLD);
	hf_timer_stop(&notifier->age_timer);
	hf_task_cancel(&notifier->pump_task);
}
