/* The inside of src/recovery: one object, and a part of it for each file of this folder. */
#pragma once

#include "base/hashtable.h"
#include "base/log.h"
#include "base/metric.h"
#include "base/siphash.h"
#include "loop/loop.h"
#include "loop/timer.h"
#include "recovery/recovery.h"
#include "store/store.h"

/* persist.c: the lock table in the store. */
struct hf_undeleted {
	uint64_t id;
	bool is_share;
};

struct hf_persist {
	bool keeps;       /* (c) locks are to be stored at all */
	uint64_t ticket;  /* of the last write */
	bool has_unsaved; /* something true is not in the store: nothing is promised until it is */
	struct hf_timer save_timer;
	struct hf_undeleted
		*undeleted; /* what should be gone from the store and is not, for want of memory */
	size_t n_undeleted;
};

/* reservations.c: share reservations in the store. */
struct hf_reservations {
	struct hf_hashtable table;
	struct hf_list all;
	struct hf_list unreclaimed; /* loaded, and not all of it has come back */
	size_t n_unreclaimed;
};

/* share_counts.c */
struct hf_share_counts {
	struct hf_hashtable entries; /* by share and client */
	struct hf_list all;
	struct hf_list shares;
	void *last; /* the entry used last */
};

/* not_exported.c */
struct hf_not_exported {
	struct hf_list locks;
	struct hf_list shares; /* reservations */
};

/* promise.c */
struct hf_promises {
	struct hf_list by_client; /* the registration is not there yet */
	struct hf_list by_lock;   /* only the lock is not there yet; by ticket */
	struct hf_list broken;    /* to be told so at the end of the turn */
	struct hf_task break_task;
};

/* grace.c */
struct hf_grace {
	bool is_active;
	bool is_complete; /* what was loaded is all that was held: reclaims are checked against it */
	bool may_end_early;
	uint64_t ends_at;
	uint64_t window_ns;
	const char *reason;
	struct hf_timer timer;
	struct hf_task check_task;
};

/* late_reclaim.c */
struct hf_late_reclaims {
	bool is_dropping; /* unreclaimed locks and reservations that are removed now are to be remembered */
	struct hf_hashtable files;
	struct hf_list by_age; /* records */
	struct hf_timer timer;
	size_t n;
};

/* notifier.c */
enum hf_notice_place {
	HF_NOTICE_QUEUE, /* to be begun */
	HF_NOTICE_YOUNG, /* begun a short time ago: these are what notify_parallel bounds */
	HF_NOTICE_OLD,   /* begun, and without an answer for a while: they cost nothing but memory */
	HF_NOTICE_RESTS, /* failed, to be tried again */
	HF_N_NOTICE_PLACES,
};

struct hf_notifier {
	struct hf_list notices[HF_N_NOTICE_PLACES];
	size_t n[HF_N_NOTICE_PLACES];
	struct hf_timer age_timer;
	struct hf_task pump_task;
	size_t n_wave_left, n_wave_told, n_wave_failed;
	uint64_t wave_began;
	uint64_t wave_wall; /* the same by the calendar */
};

struct hf_recovery {
	struct hf_recovery_options options; /* its strings and tables are copies, or gone */
	struct hf_recovery_shares shares;
	char share_text[16]; /* where shares have no names */
	struct hf_loop *loop;
	struct hf_store *store;
	struct hf_locks *locks;
	struct hf_clients *clients;
	struct hf_siphash_key key;
	struct hf_store_start start;
	int32_t sm_state;
	struct hf_recovery_waiter_events waiter_events;
	void *waiter_user;
	struct hf_recovery_teller teller;
	struct hf_list observers;
	struct hf_recovery_counts counts;

	struct hf_persist persist;
	struct hf_share_counts share_counts;
	struct hf_histogram commits; /* where options.measures */
	struct hf_reservations reservations;
	struct hf_not_exported not_exported;
	struct hf_promises promises;
	struct hf_grace grace;
	struct hf_late_reclaims late_reclaims;
	struct hf_notifier notifier;

	struct hf_list settlings;      /* of crash.c */
	struct hf_log_limit crash_log; /* a client can say that it was restarted as often as it likes */
	struct hf_promise raised;      /* of a simulated restart */
	int32_t raised_state;
	struct hf_timer stop_timer;
	bool is_stopping;
	uint64_t stop_by;
	void (*stop_done)(void *user);
	void *stop_user;
};

static inline struct hf_client *hf_client_of(struct hf_lock_client *holds)
{
	return hf_container_of(holds, struct hf_client, holds);
}

/* LIFE (recovery.c) */
void hf_recovery_tell(struct hf_recovery *recovery, const struct hf_recovery_event *event);
struct hf_bytes hf_recovery_share_name(struct hf_recovery *recovery, uint32_t share);
struct hf_bytes hf_recovery_key_of(struct hf_recovery *recovery, uint32_t share, struct hf_bytes handle,
				   uint8_t room[HF_LOCK_HANDLE_MAX]);

/* Was that made of a handle that is not of this server's making? */
static inline bool hf_recovery_is_foreign(const struct hf_recovery *recovery, struct hf_bytes key)
{
	return recovery->shares.key && key.len == 0;
}

/* PERSIST */
extern const struct hf_lock_events hf_persist_lock_events;
extern const struct hf_client_events hf_persist_client_events;
void hf_persist_init(struct hf_recovery *recovery);
void hf_persist_deinit(struct hf_recovery *recovery);
void hf_persist_resync(struct hf_recovery *recovery);
int hf_persist_delete(struct hf_recovery *recovery, uint64_t store_id, bool is_share);

/* SHARE COUNTS */
int hf_share_counts_init(struct hf_recovery *recovery);
void hf_share_counts_deinit(struct hf_recovery *recovery);
void hf_share_counts_added(struct hf_recovery *recovery, const struct hf_lock_target *who);
void hf_share_counts_came(struct hf_recovery *recovery, uint32_t share, const struct hf_lock_client *client);
void hf_share_counts_went(struct hf_recovery *recovery, uint32_t share, const struct hf_lock_client *client);

/* RESERVATIONS */
int hf_reservations_init(struct hf_recovery *recovery);
void hf_reservations_deinit(struct hf_recovery *recovery);
enum {                                /* answers of hf_reservations_load() */
	HF_RESERVATION_ELSEWHERE = 1, /* of a share that is not exported now: it stays stored */
	HF_RESERVATION_WRONG,         /* nobody can claim it any more */
	HF_RESERVATION_FOREIGN,       /* its handle is not of this server's making */
};
int hf_reservations_load(struct hf_recovery *recovery, const struct hf_store_share *share);
void hf_reservations_added(struct hf_recovery *recovery, const struct hf_lock_share_view *view);
void hf_reservations_removed(struct hf_recovery *recovery, const struct hf_lock_share_view *view);
/* What has not come back goes: of @client, but for those with @state, or, where NULL, all. */
void hf_reservations_drop(struct hf_recovery *recovery, struct hf_client *client, int32_t state);
void hf_reservations_resync(struct hf_recovery *recovery);
int hf_reservations_save(struct hf_recovery *recovery); /* what is not stored yet */

/* NOT EXPORTED */
void hf_not_exported_init(struct hf_recovery *recovery);
void hf_not_exported_deinit(struct hf_recovery *recovery);
int hf_not_exported_keep_lock(struct hf_recovery *recovery, const struct hf_store_lock *fact);
int hf_not_exported_keep_share(struct hf_recovery *recovery, const struct hf_store_share *fact);
void hf_not_exported_resync(struct hf_recovery *recovery);

/* PROMISES */
void hf_promises_init(struct hf_recovery *recovery);
void hf_promises_deinit(struct hf_recovery *recovery);
/* Whether anything can be promised may have changed: who waits for a lock is granted one only then. */
void hf_promises_look(struct hf_recovery *recovery);
/* As hf_recovery_promise(), for these tickets. */
bool hf_promises_await(struct hf_recovery *recovery, struct hf_promise *promise, uint64_t lock_ticket,
		       uint64_t client_ticket, void (*fn)(struct hf_promise *promise, bool kept));
void hf_promises_reached(struct hf_recovery *recovery);
void hf_promises_break(struct hf_recovery *recovery); /* all of them */

/* RESTART: from what is stored to the tables; blocks. */
int hf_restart_load(struct hf_recovery *recovery);

/* GRACE */
void hf_grace_init(struct hf_recovery *recovery);
void hf_grace_deinit(struct hf_recovery *recovery);
int hf_grace_decide(struct hf_recovery *recovery);
int hf_grace_restart_clock(struct hf_recovery *recovery); /* now that everything is served */
int hf_grace_begin(struct hf_recovery *recovery, const char *reason, bool may_end_early);
/* Something that was loaded has been accounted for, or a client was told: may grace end now? */
void hf_grace_look(struct hf_recovery *recovery);
/* Does a client that was told of our restart stay registered until grace ends, though it holds nothing? Where
 * the stored list is not complete it may yet reclaim what the store does not know of. */
bool hf_grace_pins(const struct hf_recovery *recovery);

/* LATE RECLAIMS */
int hf_late_reclaim_init(struct hf_recovery *recovery);
void hf_late_reclaim_deinit(struct hf_recovery *recovery);
void hf_late_reclaim_remember(struct hf_recovery *recovery, const struct hf_lock_view *lock);
void hf_late_reclaim_granted(struct hf_recovery *recovery,
			     const struct hf_lock_view *lock); /* only while n > 0 */
bool hf_late_reclaim_allows(struct hf_recovery *recovery, const struct hf_lock_request *request);
/* The same for share reservations, which are counted. */
void hf_late_reclaim_remember_shares(struct hf_recovery *recovery, const struct hf_lock_share_view *shares);
void hf_late_reclaim_share_granted(struct hf_recovery *recovery, const struct hf_lock_share_view *share);
bool hf_late_reclaim_allows_share(struct hf_recovery *recovery, const struct hf_lock_share_view *share);
/* One has come back, or was given up. False: there was none. */
bool hf_late_reclaim_share_settled(struct hf_recovery *recovery, const struct hf_lock_share_view *share);
void hf_late_reclaim_forget(struct hf_recovery *recovery, struct hf_client *client);

/* NOTIFIER */
void hf_notifier_init(struct hf_recovery *recovery);
void hf_notifier_stop(struct hf_recovery *recovery);
void hf_notifier_deinit(struct hf_recovery *recovery);
int hf_notifier_start(struct hf_recovery *recovery); /* all who are registered */
void hf_notifier_forget(struct hf_recovery *recovery, struct hf_client *client);

/* CRASH */
void hf_crash_init(struct hf_recovery *recovery);
void hf_crash_deinit(struct hf_recovery *recovery);
void hf_crash_clean_up(struct hf_recovery *recovery, struct hf_client *client, const char *reason);
void hf_crash_release_reclaimable(struct hf_recovery *recovery, struct hf_client *client);
