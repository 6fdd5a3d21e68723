/*
 * Recovery: what was granted holds through crashes, of the server and of the clients.
 *
 * This folder owns the lock table and the clients, and stands between them and the
 * store. It alone writes the story of a restart (state number, grace, notices, end of
 * grace), and cleans up when a client has crashed.
 *
 *	recovery.c       making and freeing; an operator's orders; events of store, lock table and
 *	                 clients, which go from here to the rest
 *	restart.c        stored records -> locks and reservations, unreclaimed or held
 *	waiting.c        stored waiters -> waiters
 *	notifier.c       tells the registered clients of the server's restart, if their protocol does that
 *	silent.c         which clients never come back, while others wait for their locks?
 *	crash.c          evidence that a client crashed -> everything of it goes
 *	reclaim.c        how is a reclaim to be served?
 *	phase.c          the phases of the server: loading, grace, serving, stopping
 *	protocol.c       how the clients of a protocol come back, and when their state may go
 *	export_use.c     by which exports is anything locked, or still to be reclaimed?
 *	late_reclaim.c   what was dropped at the end of grace, for reclaims that come later
 *	persist.c        changes of lock table and registrations -> store
 *	promise.c        delays a reply until the store has reached what it says
 *	not_exported.c   stored records of exports that are gone
 *	reservation.c    a reservation as bytes
 *	export_counts.c  how many locks there are in each export
 *	export_names.c   an export and a file in the lock table and in the store
 *	observe.c        tells the observers
 *
 * A file calls only files below it in this list.
 *
 * A protocol asks: may this reply leave now (hf_delays_add), how is a reclaim to be
 * served (hf_recovery_reclaim); and brings evidence (hf_recovery_client_*). All of this
 * belongs to the home loop's thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "client/client.h"
#include "lock/lock.h"

struct hf_histogram;
struct hf_loop;
struct hf_recovery;
struct hf_store;
struct hf_store_options;

enum hf_recovery_grace_rule {
	HF_RECOVERY_GRACE_AUTO, /* where something could be reclaimed */
	HF_RECOVERY_GRACE_ALWAYS,
	HF_RECOVERY_GRACE_NEVER,
};

enum hf_store_backend {
	HF_STORE_BACKEND_MEMORY,
	HF_STORE_BACKEND_LMDB,
	HF_STORE_BACKEND_POSTGRES,
};

#define HF_RECOVERY_MAX_PROTOCOLS 8
#define HF_RECOVERY_MAX_ROUTE     64

/* A message that was sent before the last restart of a client may still arrive for so long: sm-notify repeats
 * a notice for 15 minutes. */
#define HF_RECOVERY_NOTICE_NS (15 * 60 * HF_NS_PER_S)

/* A protocol says how its clients come back after a restart, and when their state may go; see protocol.c. */
struct hf_recovery_protocol {
	const char *name; /* a constant */
	/* True: each client is told of the restart, and reclaims in grace. False: nothing is sent, and what
	 * was loaded of the client stays for the window. */
	bool is_told;
	uint64_t window_ns; /* of a client without its connection; of grace where is_told. UINT64_MAX: the
			     * shared default */
};

/* Tells a client of the server's restart, as its protocol does that. done comes later, exactly once. A client
 * that was not told, and no @why_not: the server had no socket or memory for the try, which says nothing of
 * the client and is made again soon. */
struct hf_recovery_teller {
	int (*tell)(void *user, struct hf_client *client, int32_t our_state, uint64_t timeout_ns,
		    void (*done)(void *context, bool was_told, const char *why_not), void *context);
	void *user;
};

/* Looks for a sign of life of a client (silent.c). */
struct hf_recovery_asker {
	/* Asks its host for any answer. done comes later, exactly once, unless this asker ends before. An
	 * error: the host was not asked. */
	int (*ask)(void *user, struct hf_client *client, void (*done)(void *context, bool has_answered),
		   void *context);
	/* When a connection from its address was open last, or a datagram came from there: @now, or earlier
	 * (monotonic ns). */
	uint64_t (*last_contact)(void *user, const struct hf_client *client, uint64_t now);
	/* When a call, a new connection or a datagram came from its address last (monotonic ns); 0: never. */
	uint64_t (*last_heard)(void *user, const struct hf_client *client);
	void *user;
};

/* How a protocol tells the client of a waiter that it has its lock. */
struct hf_recovery_route {
	uint64_t offset; /* as the client wrote them */
	uint64_t len;
	const struct hf_addr *local; /* the server's address that the client called; NULL: unknown */
	void *user;                  /* the protocol's data of the waiter */
};

/* The events of the lock table that a protocol wants, and what it knows of waiters. */
struct hf_recovery_waiter_events {
	/* Where waiters are stored: the route of a waiter as bytes, at most HF_RECOVERY_MAX_ROUTE; and back.
	 * False: these bytes are no route. was_granted: the client may have been told already. */
	size_t (*describe)(void *user, const struct hf_lock_view *waiter, uint8_t *route);
	bool (*restore)(void *user, struct hf_bytes route, bool was_granted,
			struct hf_recovery_route *routep);
	void (*granted)(void *user, const struct hf_lock_view *waiter);
	void (*waiter_gone)(void *user, const struct hf_lock_view *waiter, enum hf_lock_end why);
};

/* Exports have a number in the lock table and a name in the store; both ways. */
struct hf_recovery_exports {
	/* Its name in the store; empty: it is gone. Borrowed until the next call. */
	struct hf_bytes (*name)(void *user, uint32_t export);
	bool (*find)(void *user, struct hf_bytes name, uint32_t *exportp);
	/* The lock table's key of the file of a handle, and the handle of such a file in this export; in
	 * @room where they are not the same. Empty: this server did not make that handle. NULL: they are
	 * always the same. */
	struct hf_bytes (*key)(void *user, uint32_t export, struct hf_bytes handle,
			       uint8_t room[HF_LOCK_HANDLE_MAX]);
	struct hf_bytes (*handle)(void *user, uint32_t export, struct hf_bytes key,
				  uint8_t room[HF_LOCK_HANDLE_MAX]);
	/* A stored lock in this file is loaded after the start: a reload exports its directory again. Called
	 * in the middle of a load (lock/lock.h), so it must not ask the lock table. May be NULL. */
	void (*take_up)(void *take_up_user, uint32_t export, struct hf_bytes key);
	void *user;
	void *take_up_user;
};

struct hf_recovery_options {
	struct hf_loop *loop;
	enum hf_store_backend backend;
	/* Instead of the backend, a store of the caller; NULL as a rule. */
	int (*open_store)(struct hf_store **storep, struct hf_loop *loop,
			  const struct hf_store_options *options);
	const struct hf_recovery_exports *exports; /* copied; NULL: the number as text */
	int durability;                            /* enum hf_store_durability */
	const char *store_path;                    /* lmdb */
	const char *postgres;                      /* postgres */
	const char *server_name; /* in the store: the name of the server or of its service */
	/* In a cluster; see store/store.h. NULL: no cluster. */
	const char *owner;
	uint64_t known_epoch;
	int32_t known_state;
	/* Tells the key that this server seals handles with from any other; 0: another server makes them. */
	uint64_t handle_key;
	uint64_t window_ns; /* recovery.window_seconds */
	struct hf_recovery_protocol protocols[HF_RECOVERY_MAX_PROTOCOLS];
	size_t n_protocols; /* 0: NLM and NSM, with window_ns */
	enum hf_recovery_grace_rule grace;
	bool early_end;
	uint64_t notify_timeout_ns;
	size_t notify_parallel;
	uint64_t notify_retry_ns;
	size_t max_clients;
	size_t max_clients_per_address; /* 0: half of max_clients */
	uint64_t release_silent_ns;     /* 0: never; see silent.c */
	uint64_t idle_ns;               /* until a client that holds nothing is unregistered; 0: 300 s */
	struct hf_lock_limits lock_limits;
	const struct hf_lock_outside *outside; /* of the lock table; NULL: there is none */
	void *outside_context;
	bool continues;   /* recovery.after_crash: go on where the last run ended, if its list is complete */
	bool clear_store; /* wipe registrations and locks first */
	/* Another run uses the store now: nothing can be promised or written, and the server must end. */
	void (*store_taken)(void *user);
	void *store_taken_user;
	bool measures; /* the time of commits is counted */
};

/* Making and freeing. new opens the store, raises and syncs epoch and state number, and loads everything; it
 * blocks, and has logged what went wrong if it fails. start begins the notices, when everything is served and
 * registered; where it fails, clients may never hear of the restart, and the server must end. stop, in an
 * orderly end, writes what is left and the clean-stop marker. */
int hf_recovery_new(struct hf_recovery **recoveryp, const struct hf_recovery_options *options);
struct hf_recovery *hf_recovery_free(struct hf_recovery *recovery);
void hf_recovery_set_waiter_events(struct hf_recovery *recovery,
				   const struct hf_recovery_waiter_events *events, void *user);
/* For a protocol whose clients are told; NULL: for now there is no teller, and the notices wait. */
void hf_recovery_set_teller(struct hf_recovery *recovery, const char *protocol,
			    const struct hf_recovery_teller *teller);
/* NULL: it ends, and has dropped its questions. */
void hf_recovery_set_asker(struct hf_recovery *recovery, const struct hf_recovery_asker *asker);
/* When the protocol of the waiters is there, before the first call is served: stored waiters are queued
 * again. Where it is not called, start does that. */
void hf_recovery_restore_waiters(struct hf_recovery *recovery);
int hf_recovery_start(struct hf_recovery *recovery);
void hf_recovery_stop(struct hf_recovery *recovery, void (*done)(void *user), void *user);
/* No reply can be sent any more, so nothing should be granted or given up. */
bool hf_recovery_is_stopping(const struct hf_recovery *recovery);

/* Takes those options that may change while the server runs: the windows, early_end, notify_timeout_ns,
 * notify_parallel, notify_retry_ns, max_clients, max_clients_per_address and release_silent_ns. The protocols
 * are the same. A notice that is under way goes on with the time that it has, and so does an open grace, but
 * for early_end. Where clients were not released before, their silence begins now. */
void hf_recovery_change(struct hf_recovery *recovery, const struct hf_recovery_options *options);
/* The options' exports have changed, and no client has been served since: what is stored of those that are
 * back is taken up. */
void hf_recovery_exports_changed(struct hf_recovery *recovery);

/* See phase.c. */
enum hf_recovery_phase {
	HF_PHASE_LOADING,
	HF_PHASE_OPEN_GRACE,
	HF_PHASE_CHECKED_GRACE,
	HF_PHASE_WHOLE_GRACE,
	HF_PHASE_SERVING,
	HF_PHASE_STOPPING,
	HF_PHASE_TAKEN,
	HF_PHASE_STOPPED,
};

enum hf_recovery_phase hf_recovery_phase(const struct hf_recovery *recovery);

HF_DEFINE_CLEANUP(struct hf_recovery *, hf_recovery_free)

/* What it owns */
struct hf_locks *hf_recovery_locks(struct hf_recovery *recovery);
struct hf_clients *hf_recovery_clients(struct hf_recovery *recovery);
int32_t hf_recovery_state(const struct hf_recovery *recovery); /* the server's state number: odd */
uint64_t hf_recovery_epoch(const struct hf_recovery *recovery);
/* May the next run go on where this one ends? Then nothing that was released comes back: a client is told so
 * only when that is durable. */
bool hf_recovery_is_continuable(const struct hf_recovery *recovery);
/* Does this run go on where the last one ended, so that no client hears of the restart? */
bool hf_recovery_continues(const struct hf_recovery *recovery);
struct hf_store *hf_recovery_store(struct hf_recovery *recovery); /* for questions only */

/*
 * Delayed replies. A service (NLM, NSM, the API) delays a reply after it has changed the lock table or a
 * registration. The reply covers every write up to now. True: all is durable already, and the service replies
 * at once. False: @fn is called later, once: with true when all is durable, or with false when the store
 * failed. Then the service undoes what it granted, and replies with an error.
 *
 * A service has one hf_delays for all its replies. hf_delays_end() ends their delays: no @fn is called any
 * more. A connection that breaks does not end a delay: its call goes on without a receiver.
 */
struct hf_delays {
	struct hf_recovery *recovery; /* (c) outlives the service */
};

/* What a reply says, and so what must be durable before it leaves. */
enum hf_reply_says {
	/* Every lock that was taken, and the registration of the client. */
	HF_SAYS_GRANTED,
	/* The same. It does not wait for a store that cannot write: that store writes everything anew before
	 * the server grants anything, and leaves out what is released. While the store writes everything, a
	 * release comes behind that, and has to wait. If the next run may go on where this one ends, a
	 * release fails with the store, as a grant does. */
	HF_SAYS_RELEASED,
	/* What clients held before their restart is gone from the store, and their new state numbers are in
	 * it. A client that got its reply does not tell the server again. If the server were killed without
	 * the number, it would take the number in the client's next LOCK for another restart. */
	HF_SAYS_RESTARTED,
};

struct hf_promise;
typedef void (*hf_delay_fn)(struct hf_promise *promise, bool is_durable);

struct hf_promise {
	struct hf_link link;            /* in a queue of recovery */
	const struct hf_delays *delays; /* of its service; NULL: it is recovery's own */
	uint64_t lock_ticket;
	uint64_t client_ticket;
	hf_delay_fn fn;
	bool is_of_restart; /* and has not come to the state number yet */
};

/* The service ends. @drop gets each promise, to end what it belongs to; NULL: the service ends that itself.
 * Those whose delay is over are not among them. */
void hf_delays_end(const struct hf_delays *delays, void (*drop)(struct hf_promise *promise));
/* @client: NULL: the locks alone. */
bool hf_delays_add(const struct hf_delays *delays, struct hf_promise *promise, enum hf_reply_says says,
		   const struct hf_client *client, hf_delay_fn fn);
/* The same question without a promise, about the locks alone. */
bool hf_recovery_is_release_durable(const struct hf_recovery *recovery);
/* Lets a promise that waits cover what was written since, too. False: too late, its part is on its way to the
 * medium. */
bool hf_recovery_promise_more(struct hf_recovery *recovery, struct hf_promise *promise);
/* After the last promise of a batch: where many wait, they need not wait for the end of the turn. */
void hf_recovery_hurry(struct hf_recovery *recovery);
/* The same question without a promise: is everything durable that this client was granted? NULL: the locks
 * alone. */
enum hf_recovery_durability {
	HF_DURABLE_NOT,  /* or nothing can be promised at all */
	HF_DURABLE_SOON, /* all that is missing is the turn's write to the page cache */
	HF_DURABLE,
};
enum hf_recovery_durability hf_recovery_durability(const struct hf_recovery *recovery,
						   const struct hf_client *client);
void hf_promise_cancel(struct hf_promise *promise); /* one that does not wait, or is all zeros, is fine */
/* Is the store able to promise at all? If not, nothing new is granted. */
bool hf_recovery_can_promise(const struct hf_recovery *recovery);

/* Reclaims: how is this one to be served? */
enum hf_recovery_reclaim {
	HF_RECLAIM_NORMAL, /* in grace: request.reclaim, as it is */
	/* In grace where what is stored is complete, or after it: request.reclaim and backed_only, so that
	 * only what this owner has is granted again. */
	HF_RECLAIM_BACKED,
	HF_RECLAIM_LATE, /* after grace, held before, and no other owner had it since: as a new lock */
	HF_RECLAIM_REFUSED,
};

enum hf_recovery_reclaim hf_recovery_reclaim(struct hf_recovery *recovery,
					     const struct hf_lock_request *request);

/* A reclaim was not answered, because the store cannot write: the window of grace begins anew. */
void hf_recovery_put_off_reclaim(struct hf_recovery *recovery);
/* The owner has unlocked the range: it does not reclaim any of it after grace. */
void hf_recovery_unlocked(struct hf_recovery *recovery, const struct hf_lock_target *who,
			  struct hf_range range);
/* The same for a reservation. NORMAL and LATE: hf_lock_reserve() with reclaim. BACKED: the owner has it
 * again already, by an earlier copy of this call. REFUSED: the owner did not have it, or another owner may
 * have had it since. */
enum hf_recovery_reclaim hf_recovery_reclaim_reservation(struct hf_recovery *recovery,
							 const struct hf_lock_reservation_view *reservation);
/* A reclaimed one could not be promised: the owner has it, and was told to ask again. */
void hf_recovery_unsure_reservation(struct hf_recovery *recovery,
				    const struct hf_lock_reservation_view *reservation);
/* The owner gives up one that was dropped at the end of grace. False: hf_lock_unreserve() is to be called. */
bool hf_recovery_unreserve(struct hf_recovery *recovery, const struct hf_lock_reservation_view *reservation);

/* Grace */
struct hf_grace_info {
	bool is_active;
	uint64_t ends_in_ns;
	const char *reason; /* why it is, or why it ended */
	uint64_t n_unreclaimed;
};

void hf_recovery_grace_info(struct hf_recovery *recovery, struct hf_grace_info *infop);
int hf_recovery_end_grace(struct hf_recovery *recovery); /* by hand; -ENOENT: there is none */

/* Evidence, each acted on at once */
/* A LOCK came with this state number. If it is newer than that of the client's life (hf_client_life_state()),
 * locks with another number go. 0 and the current number say nothing. For a while nor do the numbers before
 * it: they are stragglers. The first number is no evidence. The number is proven from now on
 * (is_state_proven) until the caller says otherwise. An older number takes the place of one that was not
 * proven, and releases nothing. */
void hf_recovery_client_state(struct hf_recovery *recovery, struct hf_client *client, int32_t state);
/* The same where the host's statd gave @state when the client took its first lock: all that the client holds
 * is of that life. A number that is not proven does not count. */
void hf_recovery_client_began(struct hf_recovery *recovery, struct hf_client *client, int32_t state);
/* The client's host has, or has not, said its present number in a way that no forger can; that is stored with
 * the number. */
void hf_recovery_client_proves(struct hf_client *client, bool is_proven);
/* The client says that it was restarted, and has this state number now (SM_NOTIFY). As above, but the first
 * number is evidence, too. False: it said nothing new. */
bool hf_recovery_client_rebooted(struct hf_recovery *recovery, struct hf_client *client, int32_t state);
/* Would it tell of a restart that the server does not know of? A number that is not proven, now or in the
 * past, makes none of them old. Nothing changes. */
bool hf_recovery_is_new_restart(struct hf_recovery *recovery, const struct hf_client *client, int32_t state);
/* The client has, or had, that number, proven or not: a message with it may be a copy of the first one. */
bool hf_recovery_may_be_copy(struct hf_recovery *recovery, const struct hf_client *client, int32_t state);
/* A notice with that number was not believed. When the client has a newer number, a copy of that notice tells
 * of no restart. */
void hf_recovery_note_unbelieved(struct hf_client *client, int32_t state);
/* A protocol has something to do after a reboot of the client: between the two calls the new state number is
 * not stored, so that the notice counts as a new restart if it comes again after a crash of the server. */
void hf_recovery_delay_state(struct hf_client *client);
void hf_recovery_release_state(struct hf_client *client, bool is_done);
bool hf_recovery_is_state_unstored(
	const struct hf_client *client); /* its new state number is not stored yet */
/* How often what the client had was released because it crashed. */
uint64_t hf_recovery_count_crashes(const struct hf_client *client);
/* The state number that it had at the last of them; its statd may have given it an older one since. */
int32_t hf_recovery_crash_state(const struct hf_client *client);
/* It is gone with all it has: FREE_ALL, an operator, the end of its window. Returns the locks released. */
size_t hf_recovery_client_crashed(struct hf_recovery *recovery, struct hf_client *client, const char *reason);
/* The same by FREE_ALL, which carries the client's new state number: without it the first lock with that
 * number would release what the client has taken since. 0: FREE_ALL has none. */
void hf_recovery_client_freed(struct hf_recovery *recovery, struct hf_client *client, int32_t state);
/* The same after that call was checked: what the client has taken since the call came, with that number,
 * stays. */
void hf_recovery_client_was_freed(struct hf_recovery *recovery, struct hf_client *client, int32_t state);
/* An operator releases @lock, which a list has just shown: OK, NOTHING: it is gone, or -ENOMEM: it stays.
 * Waiters are served at once. The client stays, and believes that it holds the lock. */
int hf_recovery_revoke(struct hf_recovery *recovery, const struct hf_lock_view *lock);
/* SM_SIMU_CRASH, as if the server had been restarted: a new state number, a grace period, and every client is
 * told. What is held stays so. A store that cannot write delays it. -EINVAL: the server is stopping. */
int hf_recovery_simulate_crash(struct hf_recovery *recovery);
/* Tells all registered clients again, or one; -ENOENT: it is not registered, or its protocol tells nothing.
 */
int hf_recovery_notify_again(struct hf_recovery *recovery, struct hf_client *client);

/* Observing */
enum hf_recovery_event_kind {
	HF_EVENT_REGISTERED,
	HF_EVENT_UNREGISTERED,
	HF_EVENT_CRASH,   /* evidence that a client crashed, or was restarted: state */
	HF_EVENT_CLEANUP, /* what it held is gone: n_locks, n_waiters, n_reservations */
	HF_EVENT_NOTIFY,  /* one try to tell a client of the server's restart has ended: was_told, took_ns */
	HF_EVENT_GRACE_STARTED,
	HF_EVENT_GRACE_ENDED, /* n_locks: dropped as unreclaimed */
	/* Single locks, each with lock, for observers that want them */
	HF_EVENT_LOCK,
	HF_EVENT_UNLOCK,  /* the range that was asked for, whatever was held of it */
	HF_EVENT_BLOCKED, /* a request waits */
	HF_EVENT_GRANTED, /* and has its lock now; the client is still to be told */
};

struct hf_recovery_event {
	enum hf_recovery_event_kind kind;
	struct hf_client *client;        /* NULL with the grace events */
	const struct hf_lock_view *lock; /* of the lock events, or NULL */
	const char *reason;              /* or NULL */
	int32_t state;
	bool was_told;
	uint64_t took_ns;
	size_t n_locks;
	size_t n_waiters;
	size_t n_reservations;
};

struct hf_recovery_observer {
	struct hf_link link;
	_Atomic bool wants_locks; /* the lock events, too; may be changed by any thread */
	void (*fn)(struct hf_recovery_observer *observer, const struct hf_recovery_event *event);
};

/* An observer must not change what it sees from within, and may take itself away at any other time. */
void hf_recovery_observe(struct hf_recovery *recovery, struct hf_recovery_observer *observer);
/* For protocols: does an observer want lock events? */
bool hf_recovery_wants_locks(const struct hf_recovery *recovery);
void hf_recovery_tell_lock(struct hf_recovery *recovery, enum hf_recovery_event_kind kind,
			   const struct hf_lock_view *lock);

/* Counting */
struct hf_recovery_counts {
	uint64_t notifications_started;
	uint64_t notifications_told;
	uint64_t notifications_failed;
	uint64_t crashes;    /* evidence */
	uint64_t stragglers; /* state numbers from before the last reboot; for tests */
	uint64_t cleanups;   /* after a crash, also of a client that held nothing */
	uint64_t locks_cleaned;
	uint64_t locks_revoked;   /* by an operator, one by one */
	uint64_t silent_released; /* clients that lost their locks by silent.c */
	uint64_t late_reclaims;   /* granted after grace */
	size_t notices_waiting;   /* clients that are still to be told */
	size_t notices_in_flight;
	size_t unreachable;  /* could not be told so far */
	size_t late_records; /* remembered for reclaims after grace; for tests */
};

void hf_recovery_counts(const struct hf_recovery *recovery, struct hf_recovery_counts *countsp);
/* The time since the last sign of life of a client: a call about locks, an answer of its host to a call of
 * the server, and any call, new connection or datagram from its address. That a connection is open is none.
 * The time begins anew with the server. */
uint64_t hf_recovery_silence_ns(const struct hf_recovery *recovery, const struct hf_client *client);
const struct hf_histogram *hf_recovery_commits(const struct hf_recovery *recovery); /* for any thread */

/* Exports: those in which there ever was a lock. */
struct hf_recovery_export {
	uint32_t number;
	struct hf_bytes name; /* in the store; borrowed for the call */
	uint64_t n_locks;
	uint64_t n_clients; /* that hold any of them */
};

void hf_recovery_show_exports(struct hf_recovery *recovery,
			      void (*fn)(void *user, const struct hf_recovery_export *export), void *user);
struct hf_bytes hf_recovery_export_name(struct hf_recovery *recovery, uint32_t export);
/* Calls @fn with each export by which something is locked, waited for, reserved or still to be reclaimed: its
 * keys in the lock table must stay. It may come more than once. Walks through all of that. */
void hf_recovery_show_used_exports(struct hf_recovery *recovery, void (*fn)(void *context, uint32_t export),
				   void *context);
/* The handle that clients of this export have for a file of the lock table's; in @room, or @key itself. */
struct hf_bytes hf_recovery_handle_of(struct hf_recovery *recovery, uint32_t export, struct hf_bytes key,
				      uint8_t room[HF_LOCK_HANDLE_MAX]);
