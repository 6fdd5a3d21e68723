/*
 * Evidence that a client crashed, and the clean-up: everything of the client goes, in
 * all exports, at once. The lock table finds what a client holds by client, so the
 * clean-up costs what the client holds. Then the lock table serves the waiters of
 * every file that was touched.
 *
 * The registration stays. A client that was restarted will be back, and the state
 * number in the registration tells its second notice (sm-notify sends two, and
 * repeats them) from the next crash. src/client unregisters a client that holds
 * nothing after a while. A client that registered itself by SM_MON stays until it or
 * an operator unregisters it, or its place is needed (client/places.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "recovery/internal.h"

#define LOG_WINDOW_S  10
#define LOG_MAX_LINES 100

/* What a client has, before and after */
struct holdings {
	size_t n_locks, n_waiters, n_reservations;
};

static struct holdings holdings_of(const struct hf_client *client)
{
	return (struct holdings){
		.n_locks = client->locking.n_locks + client->locking.n_ghosts,
		.n_waiters = client->locking.n_waiters,
		.n_reservations = client->locking.n_reservations,
	};
}

static void report_gone(struct hf_recovery *recovery, struct hf_client *client, const struct holdings *gone,
			size_t n_staying, const char *reason)
{
	struct hf_recovery_event event = {
		.kind = HF_EVENT_CLEANUP,
		.client = client,
		.reason = reason,
		.state = client->sm_state,
		.n_locks = gone->n_locks,
		.n_waiters = gone->n_waiters,
		.n_reservations = gone->n_reservations,
	};
	uint64_t n_suppressed;
	char quoted[256];

	recovery->counts.cleanups++;
	recovery->counts.locks_cleaned += gone->n_locks;
	if (hf_log_limit_allow(&recovery->crash_log, hf_loop_now(recovery->loop), &n_suppressed))
		hf_log_info("client crashed, locks released",
			    "client=%s reason=\"%s\" state=%d locks=%zu waiters=%zu reservations=%zu "
			    "locks_left=%zu more=%llu",
			    hf_log_quote(quoted, sizeof(quoted), client->id, strlen(client->id)), reason,
			    client->sm_state, gone->n_locks, gone->n_waiters, gone->n_reservations, n_staying,
			    (unsigned long long)n_suppressed);
	hf_observe_tell(recovery, &event);
}

static void report(struct hf_recovery *recovery, struct hf_client *client, const struct holdings *before,
		   const char *reason)
{
	struct holdings after = holdings_of(client), gone = {
		.n_locks = before->n_locks - HF_MIN(after.n_locks, before->n_locks),
		.n_waiters = before->n_waiters - HF_MIN(after.n_waiters, before->n_waiters),
		.n_reservations =
			before->n_reservations - HF_MIN(after.n_reservations, before->n_reservations),
	};

	report_gone(recovery, client, &gone, after.n_locks, reason);
}

static void tell_crash(struct hf_recovery *recovery, struct hf_client *client, int32_t state,
		       const char *reason)
{
	recovery->counts.crashes++;
	hf_observe_tell(recovery,
			&(struct hf_recovery_event){
				.kind = HF_EVENT_CRASH, .client = client, .reason = reason, .state = state });
}

static void note_crash(struct hf_client *client)
{
	client->recovery->n_crashes++;
	client->recovery->crash_state = client->sm_state;
}

/* What it had in exports that are gone, in the runs before */

struct forgetting {
	struct hf_recovery *recovery;
	const struct hf_client *client;
	const uint32_t *living; /* numbers of the life that goes on */
	size_t n_living;
};

/* A tag in the record is of a notice that an earlier run checked: another one of this run may have the same.
 */
static bool is_of_this_life(const struct forgetting *forgetting, int32_t state)
{
	for (size_t i = 0; i < forgetting->n_living; i++)
		if (forgetting->living[i] == (uint32_t)hf_client_stored_number(state))
			return true;
	return false;
}

static int forget(const struct forgetting *forgetting, struct hf_bytes client, int32_t state,
		  struct hf_persist_record record)
{
	if (!hf_bytes_equal(client, hf_bytes_of_str(forgetting->client->id)) ||
	    is_of_this_life(forgetting, state))
		return -ENOENT; /* it stays */
	return hf_persist_delete(forgetting->recovery, record);
}

static int forget_lock(void *user, const struct hf_store_lock *fact)
{
	return forget(user, fact->client, fact->client_state,
		      (struct hf_persist_record){ fact->id, HF_PERSIST_LOCK });
}

static int forget_reservation(void *user, const struct hf_store_reservation *reservation)
{
	struct hf_reservation fact = { 0 };

	hf_reservation_decode(&fact, reservation->blob);
	return forget(user, fact.client, fact.state,
		      (struct hf_persist_record){ reservation->id, HF_PERSIST_RESERVATION });
}

static void forget_not_exported(struct hf_recovery *recovery, struct hf_client *client,
				const uint32_t *living, size_t n_living)
{
	struct forgetting forgetting = { recovery, client, living, n_living };

	if (!client->recovery->n_not_exported)
		return;
	hf_not_exported_take_locks(recovery, forget_lock, &forgetting);
	hf_not_exported_take_reservations(recovery, forget_reservation, &forgetting);
	hf_phase_settle(recovery);
}

/* Everything goes */

static void release_all(struct hf_recovery *recovery, struct hf_client *client, int32_t state,
			const char *reason)
{
	struct holdings before = holdings_of(client);

	note_crash(client);
	tell_crash(recovery, client, state, reason);
	hf_late_reclaim_forget(recovery, client);
	forget_not_exported(recovery, client, NULL, 0);
	hf_lock_client_purge(recovery->locks, &client->locking);
	report(recovery, client, &before, reason);
}

void hf_crash_clean_up(struct hf_recovery *recovery, struct hf_client *client, const char *reason)
{
	release_all(recovery, client, client->sm_state, reason);
	hf_phase_look(recovery);
}

size_t hf_recovery_client_crashed(struct hf_recovery *recovery, struct hf_client *client, const char *reason)
{
	uint64_t before = recovery->counts.locks_cleaned;

	hf_client_ref(client);
	hf_client_set_status(client, HF_CLIENT_CRASHED);
	hf_crash_clean_up(recovery, client, reason);
	if (client->callback.host)
		hf_client_unregister(client);
	hf_client_unref(client);
	return (size_t)(recovery->counts.locks_cleaned - before);
}

/* As far as the server knows, the client was not restarted, so the event has no state number. */
void hf_crash_release_silent(struct hf_recovery *recovery, struct hf_client *client, uint64_t silent_ns)
{
	char quoted[256];

	hf_log_warn("a client is silent: its locks are released, because others wait for them",
		    "client=%s silent_seconds=%llu locks=%zu",
		    hf_log_quote(quoted, sizeof(quoted), client->id, strlen(client->id)),
		    (unsigned long long)(silent_ns / HF_NS_PER_S), holdings_of(client).n_locks);
	recovery->counts.silent_released++;
	hf_client_set_status(client, HF_CLIENT_CRASHED);
	release_all(recovery, client, 0, "it is silent, and others wait for its locks");
}

/* A client that could not be told of the server's restart. As far as the server knows, it was not restarted
 * itself, so the event has no state number, and the hosts that monitor the client are not told. A client that
 * loses no lock is only unreachable: nothing was cleaned up, and nothing says that it crashed. */
void hf_crash_release_reclaimable(struct hf_recovery *recovery, struct hf_client *client)
{
	const char *reason = "it could not be told of the server's restart";
	struct holdings gone = { .n_locks = client->locking.n_locks };

	hf_lock_client_release_reclaimable(recovery->locks, &client->locking);
	gone.n_locks -= HF_MIN(client->locking.n_locks, gone.n_locks);
	hf_client_set_status(client, gone.n_locks ? HF_CLIENT_CRASHED : HF_CLIENT_UNREACHABLE);
	if (!gone.n_locks)
		return;
	tell_crash(recovery, client, 0, reason);
	report_gone(recovery, client, &gone, client->locking.n_locks, reason);
}

/* State numbers */

static const struct hf_client_past *find_past(struct hf_recovery *recovery, const struct hf_client *client,
					      int32_t state)
{
	uint64_t now = hf_loop_now(recovery->loop);

	for (size_t i = 0; i < HF_CLIENT_PAST; i++)
		if (client->past[i].state == state && client->past[i].until > now)
			return &client->past[i];
	return NULL;
}

static bool is_straggler(struct hf_recovery *recovery, const struct hf_client *client, int32_t state)
{
	return find_past(recovery, client, state) != NULL;
}

/* Is @state newer than the number that the server knows? One that is not proven may be anything. */
static bool supersedes(const struct hf_client *client, int32_t state)
{
	int32_t known = hf_client_proven_state(client);

	return known == 0 || hf_client_is_newer(state, known);
}

static void note_past(struct hf_recovery *recovery, struct hf_client *client, int32_t state, bool is_proven)
{
	memmove(&client->past[1], &client->past[0], sizeof(client->past) - sizeof(client->past[0]));
	client->past[0] = (struct hf_client_past){
		.state = state,
		.is_proven = is_proven,
		.until = hf_loop_now(recovery->loop) + HF_RECOVERY_NOTICE_NS,
	};
}

void hf_recovery_note_unbelieved(struct hf_client *client, int32_t state)
{
	client->recovery->unbelieved_state = state;
}

/* The notice was true, and of a life between the last one and this one; or it was forged. */
static void note_unbelieved_past(struct hf_recovery *recovery, struct hf_client *client, int32_t state)
{
	int32_t unbelieved = client->recovery->unbelieved_state;

	if (!unbelieved || hf_client_is_newer(unbelieved, state))
		return;
	client->recovery->unbelieved_state = 0;
	if (unbelieved != state && unbelieved != client->sm_state && !find_past(recovery, client, unbelieved))
		note_past(recovery, client, unbelieved, false);
}

static void set_state(struct hf_recovery *recovery, struct hf_client *client, int32_t state)
{
	if (client->sm_state && client->sm_state != state)
		note_past(recovery, client, client->sm_state, client->is_state_proven);
	note_unbelieved_past(recovery, client, state);
	if (!client->recovery->n_state_waits) {
		client->recovery->stored_state = client->sm_state;
		client->recovery->is_stored_state_proven = client->is_state_proven;
	}
	client->sm_state = state;
	client->is_state_proven = true;
	client->is_restart_shown = false;
}

static void become(struct hf_recovery *recovery, struct hf_client *client, int32_t state)
{
	set_state(recovery, client, state);
	if (client->lock_state != state) /* else it has taken locks in this life */
		client->lock_state = 0;
}

/*
 * The new state number is stored, so that a repeated notice does not count as a new restart after the
 * server's next start. It is stored only after the old locks are gone from the store. If the server were
 * killed in between, the notice would come again, since the server has not answered it, and would have to
 * count as a new restart: no other message says that those locks are dead.
 */
struct clean_up {
	struct hf_link link;
	struct hf_promise promise;
	struct hf_recovery *recovery;
	struct hf_client *client; /* a reference */
	int32_t state;
};

static void clean_up_free(struct clean_up *clean_up)
{
	hf_link_remove(&clean_up->link);
	clean_up->client->recovery->n_state_waits--;
	hf_client_unref(clean_up->client);
	free(clean_up);
}

static void write_registration(struct hf_client *client)
{
	if (hf_client_is_registered(client) && hf_client_register(client) < 0)
		hf_log_debug("a client's new state number could not be stored", "client=%s", client->id);
}

static void store_state(struct hf_client *client)
{
	if (!client->recovery->n_state_waits)
		write_registration(client);
}

/* The client was restarted again meanwhile, and has a newer number, which is stored later. The reply to the
 * notice of this one is about to leave. */
static void store_former(struct hf_recovery *recovery, struct hf_client *client, int32_t state)
{
	struct hf_recovery_client *mine = client->recovery;
	const struct hf_client_past *past = find_past(recovery, client, state);

	mine->stored_state = state;
	mine->is_stored_state_proven =
		state == client->sm_state ? client->is_state_proven : past && past->is_proven;
	write_registration(client);
}

void hf_recovery_client_proves(struct hf_client *client, bool is_proven)
{
	if (client->is_state_proven == is_proven)
		return;
	client->is_state_proven = is_proven;
	store_state(client);
}

void hf_recovery_delay_state(struct hf_client *client)
{
	client->recovery->n_state_waits++;
	client->recovery->n_delayed++;
}

bool hf_recovery_is_state_unstored(const struct hf_client *client)
{
	return client->recovery->n_state_waits != 0;
}

uint64_t hf_recovery_count_crashes(const struct hf_client *client)
{
	return client->recovery->n_crashes;
}

int32_t hf_recovery_crash_state(const struct hf_client *client)
{
	return client->recovery->crash_state;
}

void hf_recovery_release_state(struct hf_client *client, bool is_done)
{
	client->recovery->n_state_waits--;
	client->recovery->n_delayed--;
	if (is_done)
		store_state(client);
}

static void on_clean_up_stored(struct hf_promise *promise, bool is_durable)
{
	struct clean_up *clean_up = hf_container_of(promise, struct clean_up, promise);
	struct hf_recovery *recovery = clean_up->recovery;
	struct hf_client *client = hf_client_ref(clean_up->client);
	int32_t state = clean_up->state;

	clean_up_free(clean_up);
	if (is_durable && client->recovery->n_state_waits && !client->recovery->n_delayed)
		store_former(recovery, client, state);
	else if (is_durable) /* otherwise the store will ask for everything */
		store_state(client);
	hf_client_unref(client);
}

static void store_state_after_clean_up(struct hf_recovery *recovery, struct hf_client *client)
{
	struct clean_up *clean_up = calloc(1, sizeof(*clean_up));

	if (!clean_up)
		return; /* the old number stays stored: a repeated notice will count as a new restart */
	clean_up->recovery = recovery;
	clean_up->client = hf_client_ref(client);
	clean_up->state = client->sm_state;
	client->recovery->n_state_waits++;
	hf_list_push_back(&recovery->clean_ups, &clean_up->link);
	if (hf_promises_await(recovery, &clean_up->promise, recovery->persist.ticket, 0, on_clean_up_stored))
		on_clean_up_stored(&clean_up->promise, true);
}

void hf_crash_init(struct hf_recovery *recovery)
{
	hf_list_init(&recovery->clean_ups);
	recovery->crash_log = (struct hf_log_limit)HF_LOG_LIMIT(LOG_WINDOW_S);
	recovery->crash_log.max_lines = LOG_MAX_LINES;
}

void hf_crash_deinit(struct hf_recovery *recovery)
{
	struct hf_link *link;

	while ((link = hf_list_first(&recovery->clean_ups)))
		clean_up_free(hf_list_entry(link, struct clean_up, link));
}

/* A forger guessed the number: since then the client had a much lower one for sure. A statd that was started
 * too early gives a number that is lower by one restart. */
static bool was_guessed(const struct hf_client *client, const struct hf_client_past *past)
{
	if (past->is_proven)
		return false;
	if (client->is_state_proven && hf_client_is_far_above(past->state, client->sm_state))
		return true;
	for (const struct hf_client_past *later = client->past; later < past; later++)
		if (later->is_proven && hf_client_is_far_above(past->state, later->state))
			return true;
	return false;
}

bool hf_recovery_is_new_restart(struct hf_recovery *recovery, const struct hf_client *client, int32_t state)
{
	const struct hf_client_past *past = find_past(recovery, client, state);

	int32_t known = client->is_restart_shown ? client->sm_state : hf_client_proven_state(client);

	if (state == 0 || state == known)
		return false;
	/* A number that was not proven says nothing, unless the client has a later one for sure. */
	return !past || (!past->is_proven && supersedes(client, state));
}

bool hf_recovery_may_be_copy(struct hf_recovery *recovery, const struct hf_client *client, int32_t state)
{
	const struct hf_client_past *past = find_past(recovery, client, state);

	/* The last run stored a lock with that number, and was killed before it stored the number itself. */
	if (!client->sm_state && state == client->lock_state)
		return true;
	return state == client->sm_state || (past && !was_guessed(client, past));
}

static bool is_new_restart(struct hf_recovery *recovery, const struct hf_client *client, int32_t state)
{
	bool is_new = hf_recovery_is_new_restart(recovery, client, state);

	if (!is_new && state != 0 && state != client->sm_state)
		recovery->counts.stragglers++;
	return is_new;
}

/* The number is stored in any case: if it is the last one, it was not proven until now. */
static void purge_older(struct hf_recovery *recovery, struct hf_client *client, int32_t state,
			const char *reason)
{
	struct holdings before = holdings_of(client);
	uint32_t living[HF_CLIENT_LIFE_NUMBERS];
	size_t n_living = hf_client_life_numbers(client, state, living);

	note_crash(client);
	tell_crash(recovery, client, client->sm_state, reason);
	hf_late_reclaim_forget(recovery, client);
	forget_not_exported(recovery, client, living, n_living);
	hf_lock_client_purge_but(recovery->locks, &client->locking, living, n_living);
	/* A notice that is being checked does not end this life by the silence of the host any more. What the
	 * client takes from now on has the number of this life. */
	client->doubted_state = client->doubt_tag = 0;
	store_state_after_clean_up(recovery, client);
	report(recovery, client, &before, reason);
	hf_phase_look(recovery);
}

/* The client does not say which number it has now. What it takes next must not have that of the life that is
 * over: its next LOCK would look like a restart. */
static void forget_state(struct hf_recovery *recovery, struct hf_client *client)
{
	if (!client->sm_state)
		return;
	set_state(recovery, client, 0);
	client->is_state_proven = false;
	client->lock_state = 0;
	store_state(client);
}

void hf_recovery_client_freed(struct hf_recovery *recovery, struct hf_client *client, int32_t state)
{
	bool is_newer = supersedes(client, state);
	bool is_known = is_newer && is_new_restart(recovery, client, state);

	/* It is of an earlier restart and late, or a copy. */
	if (!is_newer && is_straggler(recovery, client, state)) {
		recovery->counts.stragglers++;
		return;
	}
	hf_client_ref(client);
	if (is_known)
		become(recovery, client, state);
	hf_recovery_client_crashed(recovery, client, "free_all");
	if (is_known)
		store_state_after_clean_up(recovery, client);
	else if (state == 0)
		forget_state(recovery, client);
	hf_client_unref(client);
}

void hf_recovery_client_was_freed(struct hf_recovery *recovery, struct hf_client *client, int32_t state)
{
	bool is_newer = supersedes(client, state);

	if (state == 0 || client->callback.host) {
		hf_recovery_client_freed(recovery, client, state);
		return;
	}
	if (!is_newer && is_straggler(recovery, client, state)) {
		recovery->counts.stragglers++;
		return;
	}
	hf_client_ref(client);
	if (is_newer && is_new_restart(recovery, client, state))
		become(recovery, client, state);
	hf_client_set_status(client, HF_CLIENT_CRASHED);
	purge_older(recovery, client, state, "free_all");
	hf_client_unref(client);
}

/* What the client holds stays: it took that in the life that goes on. All of it goes at the client's next
 * restart, whatever number it carries. */
static void correct(struct hf_recovery *recovery, struct hf_client *client, int32_t state)
{
	/* The statd was started too early, and gives the number before. */
	if (client->is_restart_shown && hf_client_is_next(client->sm_state, state))
		return;
	set_state(recovery, client, state);
	store_state(client);
}

/* A forger may have said the number before the client does. Then it is the last number, and not proven, while
 * the client's LOCKs had an older one: the client was restarted all the same. */
void hf_recovery_client_state(struct hf_recovery *recovery, struct hf_client *client, int32_t state)
{
	int32_t known = hf_client_life_state(client);
	bool is_new = is_new_restart(recovery, client, state);

	if (!is_new || (known && !hf_client_is_newer(state, known))) {
		if (state == client->sm_state && state != 0)
			hf_recovery_client_proves(client, true);
		else if (is_new && !client->is_state_proven)
			correct(recovery, client, state);
		return;
	}
	hf_client_ref(client);
	become(recovery, client, state);
	/* This number needed no check, while that of a notice is still being checked. */
	if (client->doubted_state)
		hf_client_end_older_tag(client, state);
	if (known)
		purge_older(recovery, client, state, "a lock request with a new state number");
	else
		store_state(client);
	hf_client_unref(client);
}

void hf_recovery_client_began(struct hf_recovery *recovery, struct hf_client *client, int32_t state)
{
	if (client->sm_state == 0 || client->is_state_proven)
		hf_recovery_client_state(recovery, client, state);
	else
		correct(recovery, client, state);
}

bool hf_recovery_client_rebooted(struct hf_recovery *recovery, struct hf_client *client, int32_t state)
{
	if (!is_new_restart(recovery, client, state))
		return false;
	hf_client_ref(client);
	become(recovery, client, state);
	purge_older(recovery, client, state, "it told the server of its restart");
	hf_client_unref(client);
	return true;
}
