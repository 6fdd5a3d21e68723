/*
 * recovery.release_silent_seconds: locks of a client that never comes back, such as a
 * deleted virtual machine, are released if another client waits for them.
 *
 * A client that has a lock and asks for no other is silent, too, and may live. So its
 * silence alone releases nothing: the server asks its host. A case stands for one client
 * that is in the way of a waiter, and that the server did not hear for half of the time:
 *
 *	asked -> unanswered -> asked -> ... -> ripe     three questions or more, over half of the time,
 *	  |                                     |       and no sign of life for all of it
 *	  v                                     v
 *	answered: the case ends,          released, if the next walk still finds
 *	and the time begins anew          the client in the way of the waiter
 *
 * A call of the client, an answer of its host, a datagram and an open connection from its
 * address are signs of life, a connection until it is closed. A datagram may be forged; then
 * locks only stay longer. They also stay because of each of these:
 *
 *	its host has never answered the server    a firewall may drop every question, so no
 *	                                          answer means nothing
 *	the waiter's host does not answer, and    the server may be cut off itself
 *	the waiter has not called
 *	this process stood still, or was without  it did not listen; the case ends
 *	its lease
 *	grace, or a store that cannot write       nothing is granted
 *
 * The server looks at all waiters once a second, a slice each turn. Of several clients in
 * the way of a waiter it finds one; it finds the next one when that one is gone.
 *
 * What operators see is the time since the client was heard, with or without this setting
 * (hf_recovery_silence_ns()). The server releases nothing by it, though an operator may (holdfast
 * release --silent-for). An open connection is no sign of
 * life there: a host that is gone may leave one behind.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "recovery/internal.h"

#define LOOK_NS     HF_NS_PER_S
#define SLICE       256 /* waiters, in one turn */
#define MAX_CASES   256
#define N_QUESTIONS 3
#define RIPE_NS     (3 * HF_NS_PER_S) /* a question that ended earlier was not asked right before the release */

struct hf_silent_case {
	struct hf_link link; /* of silents->cases */
	struct hf_recovery *recovery;
	struct hf_client *holder, *waiter; /* references */
	uint64_t round;                    /* the last walk that found the holder in the way */
	struct hf_loop_mark mark;          /* when the first question was asked */
	uint64_t first_asked, last_asked;  /* monotonic ns; 0: not yet */
	uint64_t ripe_at;                  /* 0: it is not ripe */
	unsigned int n_unanswered;
	unsigned int n_under_way; /* questions; the case stays until they have ended */
	bool has_waiter_answered; /* the last question */
	bool is_over;             /* it ends with the last question */
	bool is_explained;        /* the log has said why the locks stay */
};

static struct hf_silents *silents_of(struct hf_recovery *recovery)
{
	return &recovery->silents;
}

/* Cases */

static void case_free(struct hf_silent_case *c)
{
	struct hf_silents *silents = silents_of(c->recovery);

	if (c->holder->recovery->silent == c)
		c->holder->recovery->silent = NULL;
	hf_link_remove(&c->link);
	silents->n--;
	hf_client_unref(c->holder);
	hf_client_unref(c->waiter);
	free(c);
}

/* A question is under way; the case ends with it. */
static void case_end_later(struct hf_silent_case *c)
{
	c->is_over = true;
	c->holder->recovery->silent = NULL;
}

static void case_end(struct hf_silent_case *c)
{
	case_end_later(c);
	if (!c->n_under_way)
		case_free(c);
}

static struct hf_silent_case *case_new(struct hf_recovery *recovery, struct hf_client *holder,
				       struct hf_client *waiter)
{
	struct hf_silents *silents = silents_of(recovery);
	struct hf_silent_case *c = silents->n < MAX_CASES ? calloc(1, sizeof(*c)) : NULL;

	if (!c)
		return NULL; /* a later walk tries again */
	c->recovery = recovery;
	c->holder = hf_client_ref(holder);
	c->waiter = hf_client_ref(waiter);
	c->mark = hf_loop_mark(recovery->loop);
	holder->recovery->silent = c;
	hf_list_push_back(&silents->cases, &c->link);
	silents->n++;
	return c;
}

/* Signs of life */

/* By its calls about locks and by the answers of its host. */
static uint64_t last_heard(const struct hf_recovery *recovery, const struct hf_client *client)
{
	uint64_t heard = HF_MAX(client->seen_at, client->answered_at);

	return HF_MAX(heard, recovery->silents.began);
}

static uint64_t time_since(const struct hf_recovery *recovery, uint64_t sign)
{
	uint64_t now = hf_loop_now(recovery->loop);

	return now > sign ? now - sign : 0; /* the clocks of other loops may be a little ahead */
}

/* For a release: a connection is a sign of life for as long as it is open. */
static uint64_t silence_ns(const struct hf_recovery *recovery, const struct hf_client *client)
{
	const struct hf_recovery_asker *asker = &recovery->silents.asker;
	uint64_t contact = asker->last_contact(asker->user, client, hf_loop_now(recovery->loop));
	uint64_t sign = HF_MAX(last_heard(recovery, client), contact);

	return time_since(recovery, HF_MAX(sign, recovery->silents.turned_on_at));
}

uint64_t hf_recovery_silence_ns(const struct hf_recovery *recovery, const struct hf_client *client)
{
	const struct hf_recovery_asker *asker = &recovery->silents.asker;
	uint64_t heard = asker->last_heard ? asker->last_heard(asker->user, client) : 0;

	return time_since(recovery, HF_MAX(last_heard(recovery, client), heard));
}

/* Does an answer of the waiter's host, or a call of the waiter, show that the server's network works? */
static bool is_network_up(const struct hf_silent_case *c)
{
	if (hf_addr_is_loopback(&c->waiter->address) && !hf_addr_is_loopback(&c->holder->address))
		return false;
	return c->has_waiter_answered || c->waiter->seen_at >= c->last_asked;
}

static bool has_listened(struct hf_silent_case *c)
{
	struct hf_loop *loop = c->recovery->loop;

	return hf_loop_may_act(loop) && hf_loop_had_lease(loop, &c->mark) &&
	       !hf_loop_stood_still(loop, &c->mark);
}

/* Judging */

static void explain(struct hf_silent_case *c, const char *why)
{
	char quoted[256];

	if (c->is_explained)
		return;
	c->is_explained = true;
	hf_log_warn("another client waits for the locks of a silent client, and they stay",
		    "client=%s reason=\"%s\"",
		    hf_log_quote(quoted, sizeof(quoted), c->holder->id, strlen(c->holder->id)), why);
}

static bool is_due(const struct hf_silent_case *c)
{
	uint64_t now = hf_loop_now(c->recovery->loop), time = c->recovery->options.release_silent_ns;

	return c->n_unanswered >= N_QUESTIONS && now - c->first_asked >= time / 2 &&
	       silence_ns(c->recovery, c->holder) >= time;
}

/* The last question has ended without an answer. */
static void judge(struct hf_silent_case *c)
{
	if (!is_due(c))
		return;
	if (!c->holder->has_answered) {
		explain(c, "its host has never answered the server, so a firewall may be in the way");
	} else if (!is_network_up(c)) {
		explain(c, "the host of the waiter does not answer either");
	} else {
		c->ripe_at = hf_loop_now(c->recovery->loop);
		(void)hf_timer_start(&c->recovery->silents.timer, 0);
	}
}

/* Asking */

static void ended(struct hf_silent_case *c)
{
	if (--c->n_under_way)
		return;
	if (c->is_over)
		case_free(c);
	else if (!has_listened(c))
		case_end(c);
	else
		judge(c);
}

static void on_holder(void *context, bool has_answered)
{
	struct hf_silent_case *c = context;

	if (has_answered && !c->is_over) {
		hf_client_answered(c->holder);
		case_end_later(c);
	}
	c->n_unanswered += !has_answered;
	ended(c);
}

static void on_waiter(void *context, bool has_answered)
{
	struct hf_silent_case *c = context;

	c->has_waiter_answered = has_answered;
	ended(c);
}

static void ask(struct hf_silent_case *c)
{
	const struct hf_recovery_asker *asker = &c->recovery->silents.asker;
	uint64_t now = hf_loop_now(c->recovery->loop);

	c->ripe_at = 0;
	c->has_waiter_answered = false;
	if (asker->ask(asker->user, c->holder, on_holder, c) < 0)
		return; /* it was not asked, and that counts for nothing */
	c->n_under_way++;
	c->last_asked = now;
	if (!c->first_asked)
		c->first_asked = now;
	if (asker->ask(asker->user, c->waiter, on_waiter, c) == 0)
		c->n_under_way++;
}

/* Questions are spread over half of the time, and one more than are needed fits in. */
static uint64_t gap_ns(const struct hf_recovery *recovery)
{
	return HF_MAX(recovery->options.release_silent_ns / 2 / N_QUESTIONS, LOOK_NS / 2);
}

static bool is_ripe(const struct hf_silent_case *c)
{
	return c->ripe_at && hf_loop_now(c->recovery->loop) - c->ripe_at < RIPE_NS;
}

static void go_on(struct hf_silent_case *c)
{
	if (!c->n_under_way && !is_ripe(c) &&
	    hf_loop_now(c->recovery->loop) - c->last_asked >= gap_ns(c->recovery))
		ask(c);
}

/* Walking */

static bool may_release(struct hf_recovery *recovery)
{
	return recovery->silents.asker.ask && recovery->phase.now == HF_PHASE_SERVING &&
	       hf_recovery_can_promise(recovery) && hf_loop_may_act(recovery->loop);
}

static void release(struct hf_silent_case *c)
{
	struct hf_client *holder = hf_client_ref(c->holder);
	struct hf_recovery *recovery = c->recovery;
	uint64_t silent_ns = silence_ns(recovery, holder);
	bool is_sure = has_listened(c) && is_due(c);

	case_end(c);
	if (is_sure)
		hf_crash_release_silent(recovery, holder, silent_ns);
	hf_client_unref(holder);
}

/* A client with a connection is asked, too: when the connection ends, it matters whether its host has ever
 * answered. */
static bool is_candidate(struct hf_recovery *recovery, const struct hf_client *holder)
{
	return holder->recovery->protocol->rules.is_told && !holder->recovery->notice &&
	       hf_loop_now(recovery->loop) - last_heard(recovery, holder) >=
		       recovery->options.release_silent_ns / 2;
}

/* True: the case is ripe. */
static bool note(struct hf_recovery *recovery, struct hf_client *holder, struct hf_client *waiter)
{
	struct hf_silent_case *c = holder->recovery->silent;

	if (holder == waiter || !is_candidate(recovery, holder))
		return false;
	if (!c)
		c = case_new(recovery, holder, waiter);
	if (!c)
		return false;
	c->round = recovery->silents.round;
	if (!c->n_under_way && !is_ripe(c) && c->waiter != waiter) {
		hf_client_unref(c->waiter);
		c->waiter = hf_client_ref(waiter);
	}
	return is_ripe(c);
}

/* The client in the way of a waiter; NULL: none, or a process of this host. */
static struct hf_client *find_holder(const struct hf_recovery *recovery, const struct hf_lock_view *waiter)
{
	struct hf_lock_view lock;

	if (hf_lock_test(recovery->locks, &waiter->who, waiter->range, waiter->mode, &lock) !=
	    HF_LOCK_E_CONFLICT)
		return NULL;
	return lock.who.client ? hf_client_of(lock.who.client) : NULL;
}

/* True: the walk is over. A release grants locks to waiters, so it ends the slice: the cursor finds its
 * position again. */
static bool walk(struct hf_recovery *recovery)
{
	const struct hf_lock_scope all = { 0 };
	struct hf_lock_view waiter;

	for (size_t i = 0; i < SLICE; i++) {
		struct hf_client *holder;

		if (!hf_lock_next_waiter(recovery->locks, &all, &recovery->silents.at, &waiter))
			return true;
		holder = find_holder(recovery, &waiter);
		if (holder && note(recovery, holder, hf_client_of(waiter.who.client))) {
			release(holder->recovery->silent);
			break;
		}
	}
	return false;
}

static void end_cases(struct hf_recovery *recovery, bool only_unseen)
{
	hf_list_for_each_safe(pos, &recovery->silents.cases) {
		struct hf_silent_case *c = hf_list_entry(pos, struct hf_silent_case, link);

		if (!c->is_over && (!only_unseen || c->round != recovery->silents.round))
			case_end(c);
	}
}

static void end_walk(struct hf_recovery *recovery)
{
	end_cases(recovery, true);
	recovery->silents.at = (struct hf_lock_cursor){ 0 };
	recovery->silents.round++;
	hf_list_for_each_safe(pos, &recovery->silents.cases) {
		struct hf_silent_case *c = hf_list_entry(pos, struct hf_silent_case, link);

		if (!c->is_over)
			go_on(c);
	}
}

static void on_look(struct hf_timer *timer)
{
	struct hf_silents *silents = hf_container_of(timer, struct hf_silents, timer);
	struct hf_recovery *recovery = hf_container_of(silents, struct hf_recovery, silents);
	uint64_t next = 0;

	if (!may_release(recovery)) {
		end_cases(recovery, false);
		silents->at = (struct hf_lock_cursor){ 0 };
		next = LOOK_NS;
	} else if (walk(recovery)) {
		end_walk(recovery);
		next = LOOK_NS;
	}
	(void)hf_timer_start(timer, next);
}

/* Making and freeing */

void hf_recovery_set_asker(struct hf_recovery *recovery, const struct hf_recovery_asker *asker)
{
	struct hf_silents *silents = silents_of(recovery);
	struct hf_link *link;

	silents->asker = asker ? *asker : (struct hf_recovery_asker){ 0 };
	if (asker)
		return;
	while ((link = hf_list_first(&silents->cases))) /* the asker has dropped their questions */
		case_free(hf_list_entry(link, struct hf_silent_case, link));
}

void hf_silents_init(struct hf_recovery *recovery)
{
	hf_list_init(&recovery->silents.cases);
	recovery->silents.began = hf_loop_now(recovery->loop);
	hf_timer_init(&recovery->silents.timer, recovery->loop, on_look);
}

static int turn_on(struct hf_recovery *recovery)
{
	recovery->silents.turned_on_at = hf_loop_now(recovery->loop);
	return hf_timer_start(&recovery->silents.timer, LOOK_NS);
}

int hf_silents_start(struct hf_recovery *recovery)
{
	recovery->silents.began = hf_loop_now(recovery->loop);
	return recovery->options.release_silent_ns ? turn_on(recovery) : 0;
}

void hf_silents_change(struct hf_recovery *recovery, uint64_t release_silent_ns)
{
	bool was_on = recovery->options.release_silent_ns != 0;

	recovery->options.release_silent_ns = release_silent_ns;
	if (!release_silent_ns) {
		hf_timer_stop(&recovery->silents.timer);
		end_cases(recovery, false);
		recovery->silents.at = (struct hf_lock_cursor){ 0 };
	} else if (!was_on && turn_on(recovery) < 0) {
		recovery->options.release_silent_ns = 0;
		hf_log_error("silent clients are not released: there is no memory. Reload to try again", "%s",
			     "");
	}
}

void hf_silents_deinit(struct hf_recovery *recovery)
{
	hf_timer_stop(&recovery->silents.timer);
	hf_recovery_set_asker(recovery, NULL);
}
