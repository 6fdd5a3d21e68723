/* The inside of src/recovery: one object, with a part for each file of this folder. */
#pragma once

#include "base/hashtable.h"
#include "base/log.h"
#include "base/metric.h"
#include "base/siphash.h"
#include "loop/loop.h"
#include "loop/timer.h"
#include "recovery/recovery.h"
#include "recovery/reservation.h"
#include "store/store.h"

/* persist.c: the lock table in the store. */
enum hf_persist_kind {
	HF_PERSIST_LOCK,
	HF_PERSIST_RESERVATION,
	HF_PERSIST_WAITER,
};

/* The flags of a stored lock that its client may still refuse: this bit, and the mode that the owner has
 * then, from PRIOR_SHIFT on. */
#define HF_PERSIST_OF_GRANT    1U
#define HF_PERSIST_PRIOR_SHIFT 8

struct hf_persist_record {
	uint64_t id; /* of the store */
	enum hf_persist_kind kind;
};

struct hf_persist {
	bool stores_locks;   /* (c) locks and reservations are stored at all */
	bool stores_waiters; /* (c) the same for waiters */
	uint64_t ticket;     /* of the last write */
	bool has_unsaved;    /* the store lacks something that is true: nothing is promised until it has it */
	struct hf_timer save_timer;
	struct hf_persist_record *undeleted; /* to be deleted from the store again, which had no memory */
	size_t n_undeleted;
};

/* export_counts.c */
struct hf_export_counts {
	struct hf_hashtable entries; /* by export and client */
	struct hf_list all;
	struct hf_list exports;
	void *last; /* the entry used last */
};

/* not_exported.c */
struct hf_not_exported {
	struct hf_list records;
};

/* waiting.c */
struct hf_waiting {
	struct hf_list loaded;      /* until hf_recovery_start() */
	struct hf_hashtable grants; /* of those: by client, owner and file; without chains until the load */
};

/* promise.c */
struct hf_promises {
	struct hf_list by_client; /* the registration is not there yet */
	struct hf_list by_lock;   /* only the lock is not there yet; by ticket */
	struct hf_list broken;    /* to be told so at the end of the turn */
	struct hf_task break_task;
};

/* phase.c */
struct hf_phase {
	enum hf_recovery_phase now;
	uint64_t since;  /* monotonic ns */
	bool has_served; /* since the start */
	const char *reason;
	uint64_t grace_ends_at;
	uint64_t grace_window_ns;       /* of this grace */
	struct hf_loop_mark grace_mark; /* when its window began */
	struct hf_timer grace_timer;
	struct hf_task check_task; /* may grace end early? */
	struct hf_promise settled; /* what the end of grace has dropped is gone from the store */
};

/* late_reclaim.c */
struct hf_late_reclaims {
	struct hf_hashtable files;
	struct hf_list by_age; /* records */
	struct hf_timer timer;
	size_t n;
};

/* notifier.c */
enum hf_notice_stage {
	HF_NOTICE_QUEUE, /* to be begun */
	HF_NOTICE_YOUNG, /* begun a short time ago: notify_parallel bounds these */
	HF_NOTICE_OLD,   /* begun, and without an answer for a while: it costs memory only */
	HF_NOTICE_RESTS, /* failed, to be tried again */
	HF_N_NOTICE_STAGES,
};

struct hf_notifier {
	struct hf_list notices[HF_N_NOTICE_STAGES];
	size_t n[HF_N_NOTICE_STAGES];
	struct hf_timer age_timer;
	struct hf_task pump_task;
	size_t n_wave_left, n_wave_told, n_wave_failed;
	uint64_t wave_began;
	uint64_t wave_wall; /* the same by the calendar */
};

/* silent.c */
struct hf_silents {
	struct hf_recovery_asker asker; /* ask is NULL while there is none */
	struct hf_timer timer;
	struct hf_lock_cursor at; /* of the walk */
	uint64_t round;           /* the number of the walk */
	uint64_t began;           /* monotonic ns, when the server began to listen */
	uint64_t turned_on_at;    /* the same, when the setting was turned on: no silence of before counts */
	struct hf_list cases;
	size_t n;
};

/* protocol.c */
struct hf_protocol {
	struct hf_recovery_protocol rules; /* with its own window */
	struct hf_recovery_teller teller;  /* where rules.is_told; tell is NULL while there is none */
};

struct hf_recovery {
	struct hf_recovery_options options; /* its strings and tables are copies, or gone */
	struct hf_recovery_exports exports;
	char export_text[16]; /* where exports have no names */
	struct hf_loop *loop;
	struct hf_store *store;
	struct hf_locks *locks;
	struct hf_clients *clients;
	struct hf_siphash_key key;
	struct hf_store_start start;
	/* It could go on, but lacks locks: the start raises the state number, and clients reclaim (phase.c).
	 */
	bool starts_over;
	int32_t sm_state;
	struct hf_recovery_waiter_events waiter_events;
	void *waiter_user;
	struct hf_protocol protocols[HF_RECOVERY_MAX_PROTOCOLS];
	size_t n_protocols;
	struct hf_list observers;
	struct hf_recovery_counts counts;

	struct hf_phase phase;
	struct hf_persist persist;
	struct hf_export_counts export_counts;
	struct hf_histogram commits; /* where options.measures */
	struct hf_not_exported not_exported;
	struct hf_waiting waiting;
	struct hf_promises promises;
	struct hf_late_reclaims late_reclaims;
	struct hf_notifier notifier;
	struct hf_silents silents;

	struct hf_list clean_ups;      /* of crash.c */
	struct hf_log_limit crash_log; /* a client can say that it was restarted as often as it likes */
	struct hf_promise raised;      /* the state number of a simulated restart waits for the store */
	int32_t raised_state;          /* that number; 0: none was raised. See phase.c: raising */
	struct hf_timer stop_timer;
	void (*stop_done)(void *user);
	void *stop_user;
};

/* What this folder knows of a client: src/client makes it, cleared, and frees it with the client. */
struct hf_recovery_client {
	struct hf_protocol *protocol;
	struct hf_notice *notice;      /* the client is being told of the server's restart */
	struct hf_list late;           /* what it may still reclaim after grace */
	size_t n_not_exported;         /* records of it in not_exported.c */
	uint64_t n_crashes;            /* how often what it had was released since it crashed */
	int32_t crash_state;           /* the state number that it had at the last of them */
	uint32_t n_state_waits;        /* reasons for its new state number not to be stored yet */
	uint32_t n_delayed;            /* of these: by hf_recovery_delay_state() */
	int32_t stored_state;          /* what the stored registration says, while n_state_waits */
	bool is_stored_state_proven;   /* likewise */
	int32_t told_state;            /* the server's last state number that it knows */
	int32_t unbelieved_state;      /* of the last notice about it that was not believed */
	struct hf_silent_case *silent; /* it may never come back */
};

static inline struct hf_client *hf_client_of(struct hf_lock_client *locking)
{
	return hf_container_of(locking, struct hf_client, locking);
}

/* OBSERVE */
void hf_observe_tell(struct hf_recovery *recovery, const struct hf_recovery_event *event);

/* EXPORT NAMES */
void hf_export_names_init(struct hf_recovery *recovery);
struct hf_bytes hf_export_names_key_of(struct hf_recovery *recovery, uint32_t export, struct hf_bytes handle,
				       uint8_t room[HF_LOCK_HANDLE_MAX]);

/* EXPORT COUNTS */
int hf_export_counts_init(struct hf_recovery *recovery);
void hf_export_counts_deinit(struct hf_recovery *recovery);
void hf_export_counts_add(struct hf_recovery *recovery, uint32_t export, const struct hf_lock_client *client);
void hf_export_counts_remove(struct hf_recovery *recovery, uint32_t export,
			     const struct hf_lock_client *client);

/* NOT EXPORTED */
void hf_not_exported_init(struct hf_recovery *recovery);
void hf_not_exported_deinit(struct hf_recovery *recovery);
int hf_not_exported_add_lock(struct hf_recovery *recovery, const struct hf_store_lock *fact);
int hf_not_exported_add_reservation(struct hf_recovery *recovery, const struct hf_store_reservation *fact);
void hf_not_exported_resync(struct hf_recovery *recovery);
/* Hands over the records. The function may add its record again; one for which it fails stays. */
void hf_not_exported_take_locks(struct hf_recovery *recovery,
				int (*fn)(void *user, const struct hf_store_lock *fact), void *user);
void hf_not_exported_take_reservations(struct hf_recovery *recovery,
				       int (*fn)(void *user, const struct hf_store_reservation *fact),
				       void *user);

/* PROMISES */
void hf_promises_init(struct hf_recovery *recovery);
void hf_promises_deinit(struct hf_recovery *recovery);
/* Whether anything can be promised may have changed: waiters are granted locks only while it can. */
void hf_promises_look(struct hf_recovery *recovery);
/* As hf_delays_add(), for these tickets, and for recovery itself. */
bool hf_promises_await(struct hf_recovery *recovery, struct hf_promise *promise, uint64_t lock_ticket,
		       uint64_t client_ticket, hf_delay_fn fn);
void hf_promises_reached(struct hf_recovery *recovery);
void hf_promises_break(struct hf_recovery *recovery); /* all of them */

/* PERSIST. The lock table's tags are the store's ids; each function answers the tag of a record. */
void hf_persist_init(struct hf_recovery *recovery);
void hf_persist_deinit(struct hf_recovery *recovery);
uint64_t hf_persist_add_lock(struct hf_recovery *recovery, const struct hf_lock_view *view);
void hf_persist_remove_lock(struct hf_recovery *recovery, const struct hf_lock_change *lock);
/* One more or less: written, or deleted where none is left. */
uint64_t hf_persist_reservation(struct hf_recovery *recovery, const struct hf_lock_reservation_view *view);
/* A waiter, or a grant that its client has not answered. */
uint64_t hf_persist_waiter(struct hf_recovery *recovery, const struct hf_lock_view *view);
void hf_persist_remove_waiter(struct hf_recovery *recovery, const struct hf_lock_view *view);
int hf_persist_client(struct hf_recovery *recovery, struct hf_client *client, uint64_t *ticketp);
int hf_persist_delete(struct hf_recovery *recovery, struct hf_persist_record record);
void hf_persist_resync(struct hf_recovery *recovery); /* the store wants everything that is true */

/* LATE RECLAIMS */
int hf_late_reclaim_init(struct hf_recovery *recovery);
void hf_late_reclaim_deinit(struct hf_recovery *recovery);
void hf_late_reclaim_remember(struct hf_recovery *recovery, const struct hf_lock_view *lock);
void hf_late_reclaim_granted(struct hf_recovery *recovery,
			     const struct hf_lock_view *lock); /* only while n > 0 */
void hf_late_reclaim_unlocked(struct hf_recovery *recovery, const struct hf_lock_target *who,
			      struct hf_range range); /* only while n > 0 */
bool hf_late_reclaim_allows(struct hf_recovery *recovery, const struct hf_lock_request *request);
/* The same for reservations, which are counted. */
void hf_late_reclaim_remember_reservations(struct hf_recovery *recovery,
					   const struct hf_lock_reservation_view *reservations, uint32_t n);
void hf_late_reclaim_reservation_granted(struct hf_recovery *recovery,
					 const struct hf_lock_reservation_view *reservation);
bool hf_late_reclaim_allows_reservation(struct hf_recovery *recovery,
					const struct hf_lock_reservation_view *reservation);
/* One was reclaimed, or was given up. False: there was none. */
bool hf_late_reclaim_take_reservation(struct hf_recovery *recovery,
				      const struct hf_lock_reservation_view *reservation);
void hf_late_reclaim_forget(struct hf_recovery *recovery, struct hf_client *client);
void hf_late_reclaim_show_exports(const struct hf_recovery *recovery,
				  void (*fn)(void *context, uint32_t export), void *context);

/* PROTOCOLS */
void hf_protocols_init(struct hf_recovery *recovery);
/* Takes the windows of @options; a window or a grace that is open keeps its own. */
void hf_protocols_change(struct hf_recovery *recovery, const struct hf_recovery_options *options);
int hf_protocols_set_windows(struct hf_recovery *recovery); /* at src/client, once there is one */
struct hf_protocol *hf_protocols_find(struct hf_recovery *recovery, struct hf_bytes name);
void hf_protocols_join(struct hf_recovery *recovery, struct hf_client *client); /* which was made just now */
/* How long is grace? In open grace the clients that reconnect need it, too. */
uint64_t hf_protocols_grace_ns(struct hf_recovery *recovery, bool is_open);
/* The windows begin of the clients that are to reconnect. */
void hf_protocols_start(struct hf_recovery *recovery, bool is_open);

/* PHASE */
void hf_phase_init(struct hf_recovery *recovery);
void hf_phase_deinit(struct hf_recovery *recovery);
/* The only way to change the phase. False: that phase cannot follow, and nothing has changed. */
bool hf_phase_enter(struct hf_recovery *recovery, enum hf_recovery_phase phase, const char *reason);
/* At the end of loading: grace, or none. */
int hf_phase_decide(struct hf_recovery *recovery);
/* A grace period, now or anew, as after a restart that lost nothing. -EINVAL: the server is stopping. */
int hf_phase_begin_whole_grace(struct hf_recovery *recovery, const char *reason);
int hf_phase_restart_clock(struct hf_recovery *recovery); /* of grace, now that everything is served */
/* Something that was loaded is accounted for, or a client was told: may grace end now? */
void hf_phase_look(struct hf_recovery *recovery);
/* Serving: as soon as the store is up to date, the next run may go on from here. */
void hf_phase_settle(struct hf_recovery *recovery);
/* Does a client that was told of the server's restart stay registered until grace ends, though it holds
 * nothing? In open grace it may yet reclaim what the store does not know of. */
bool hf_phase_pins(const struct hf_recovery *recovery);
bool hf_phase_is_over(const struct hf_recovery *recovery); /* nothing is served any more */
/* A simulated restart waits for the store: then clients are told, and grace begins. */
bool hf_phase_is_raising(const struct hf_recovery *recovery);

/* CRASH */
void hf_crash_init(struct hf_recovery *recovery);
void hf_crash_deinit(struct hf_recovery *recovery);
void hf_crash_clean_up(struct hf_recovery *recovery, struct hf_client *client, const char *reason);
/* It gave no sign of life for @silent_ns, and others wait for its locks. */
void hf_crash_release_silent(struct hf_recovery *recovery, struct hf_client *client, uint64_t silent_ns);
void hf_crash_release_reclaimable(struct hf_recovery *recovery, struct hf_client *client);

/* SILENT */
void hf_silents_init(struct hf_recovery *recovery);
int hf_silents_start(struct hf_recovery *recovery);
void hf_silents_change(struct hf_recovery *recovery, uint64_t release_silent_ns); /* 0: never */
void hf_silents_deinit(struct hf_recovery *recovery);

/* NOTIFIER */
void hf_notifier_init(struct hf_recovery *recovery);
void hf_notifier_stop(struct hf_recovery *recovery);
void hf_notifier_deinit(struct hf_recovery *recovery);
/* Begins to tell all registered clients that do not know the server's number. */
int hf_notifier_start(struct hf_recovery *recovery);
void hf_notifier_forget(struct hf_recovery *recovery, struct hf_client *client);

/* WAITING: a stored waiter returns to its queue when its protocol is there. */
void hf_waiting_init(struct hf_recovery *recovery);
void hf_waiting_deinit(struct hf_recovery *recovery);
int hf_waiting_load(struct hf_recovery *recovery);
void hf_waiting_forget(struct hf_recovery *recovery); /* this run starts over */
/* What each loaded waiter wants. Ends with the first result that is not 0, and returns it. */
int hf_waiting_visit(struct hf_recovery *recovery, int (*fn)(void *user, const struct hf_store_lock *wants),
		     void *user);
/* Was a grant of this owner in this file loaded that covers the range, and can it be restored? */
bool hf_waiting_has_grant(const struct hf_recovery *recovery, const struct hf_lock_target *who,
			  struct hf_range range);
void hf_waiting_restore(struct hf_recovery *recovery);

/* RESTART: from what is stored to the tables; blocks. */
int hf_restart_load(struct hf_recovery *recovery);
