/*
 * The lock engine: may this owner have this range now, and if not, when?
 *
 * The engine knows byte-range locks, the waiters for them, and reservations.
 * It knows no protocol, no clock, no socket and no store. It has no threads and no
 * globals. The same calls in the same order always give the same answers.
 *
 * TERMS. A *file* is the bytes of a file handle. An *owner* is a client and an id
 * with a kind (NLM: the svid). A *holding* is what one owner has in one file: its
 * locks, its waiters, its grants in flight. The *lock table* is all of that. A
 * *grant in flight* is a lock that a waiter has received while its client has not
 * acknowledged it yet. *export* is the number of the export by which an owner came to a file; it
 * is shown, but is not part of any key.
 *
 * FILES. Each file answers one question.
 *
 *	engine.c     the engine as a whole: creation, limits, clients, counters
 *	load.c       how does a restart restore a million locks quickly?
 *	cursor.c     which lock or waiter is the next one of a list?
 *	check.c      does every invariant hold? (for tests)
 *	-------------------------------------------------------- operations
 *	acquire.c    may this owner have this range now?
 *	release.c    unlock and cancel
 *	grant_end.c  how does a grant in flight end?
 *	purge.c      a client has crashed: what goes?
 *	reclaim.c    what becomes of restored locks in grace and at its end?
 *	reservation.c  reservations
 *	-------------------------------------------------------- waiters
 *	serve.c      a lock or waiter went away: which waiters get their lock now?
 *	grant.c      what does a grant in flight change, and how is that undone?
 *	deadlock.c   which owners wait, directly or through others, for an owner?
 *	-------------------------------------------------------- records
 *	replace.c    merge and split: a request replaces what its owner holds
 *	target.c     which records does a target have?
 *	holding.c    what does one owner have in one file?
 *	waiters.c    the queue of a file
 *	file.c       the record of a file
 *	callback.c   every call that leaves the engine
 *	owner.c      the record of an owner
 *	-------------------------------------------------------- ground
 *	room.c       may the lock table grow?
 *	steps.c      how many steps of searches may one address cause?
 *	crowd.c      which file has the most locks, waiters or reservations?
 *	tree_check.c  does every invariant of a set hold? (for tests)
 *	tree_build.c  a set from locks that are in order
 *	tree.c       sets of locks by range: which lock overlaps this range, in O(log n)
 *	tree_node.c  insertion and erasure in a large set
 *	tree_sum.c   what does an inner node know of its children?
 *	record.h     the record of a lock
 *	range.h      offset and length -> inclusive range
 *
 * A file calls only files below it in this list.
 *
 * A LOCK request: acquire.c finds the records of its target, conflicts in file.c and waiters.c, cycles
 * in deadlock.c; then replace.c takes the range, or waiters.c queues the request. An
 * UNLOCK: release.c gives the range to replace.c; serve.c grants waiters by grant.c,
 * which uses replace.c again. internal.h has the records and lists the functions of
 * each file, in the order of this picture from below.
 *
 * LOCKS. The locks of an owner in a file are disjoint ranges with a mode. A request
 * replaces what the owner holds in its range: a lock of the same mode that overlaps
 * or touches merges, a lock of the other mode is split. A lock also carries the
 * client's state number, the epoch of its grant, and flags. Locks that differ in what
 * matters after a crash (state number, unreclaimed, volatile, provisional) do not
 * merge. Locks that differ only in the epoch merge, and carry the newer one.
 * Unreclaimed locks never merge, so that they stay as the store has them. Where a
 * run goes on, the locks of the run before merge only with those of the new one.
 *
 * A request for a range that the owner holds in that mode changes nothing, with
 * three exceptions that make the lock firmer: it is no longer provisional, it takes
 * the request's state number if that is known (not 0), and it is no longer volatile
 * if the request is not.
 *
 * WAITERS. Each file has one queue. A request never passes an earlier waiter that it
 * conflicts with, unless that waiter waits, directly or through others, for the
 * requesting owner: then the request goes first, because to queue behind the waiter
 * would be a deadlock. The graph of owners that wait for owners never has a cycle: a
 * request that would close one is answered DEADLOCK.
 *
 * GRANTS. A waiter that can run gets its lock at once. The lock enters the table,
 * marked provisional, and then the granted event is sent. The protocol tells the
 * client and confirms or refuses the grant. A refusal gives back exactly what the
 * owner had before. A provisional grant only adds to what the owner holds: where it
 * is weaker (shared where the owner holds exclusive), the stronger lock stays until
 * the grant is confirmed. In grace no waiter is granted a lock; the end of grace
 * serves the waiters.
 *
 * EVENTS. added and removed describe the lock table as a sequence of records with the
 * key (file, owner, start). A record is always removed before a record that overlaps
 * it in the same holding is added. So a store that applies the events one by one has
 * the table after each call. Each waiter ends with exactly one waiter_gone, whether
 * it was granted in between or not; its user data then belong to the protocol again.
 * A call-back must not call the engine (asserted), and views are valid only during it.
 *
 * OUTSIDE. Local processes may lock the same files in another table, the kernel's. A
 * range is granted here only if it can be locked there too, where the server is one
 * holder with the union of all locks here. A waiter that only an outside lock blocks
 * is served when hf_lock_serve_file() is called. The engine does not detect deadlocks
 * that lead through the outside table.
 *
 * ANSWERS. 0 or an answer of enum hf_lock_answer; < 0 is -errno. -ENOMEM leaves
 * everything as it was, except in hf_lock_client_purge*(), which always finish.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/limit.h"
#include "base/list.h"
#include "base/rbtree.h"
#include "base/siphash.h"
#include "lock/range.h"

#define HF_LOCK_HANDLE_MAX 64
#define HF_LOCK_OH_MAX     1024

struct hf_lock;
struct hf_locks;

enum hf_lock_answer {
	HF_LOCK_OK = 0,
	HF_LOCK_E_CONFLICT,   /* another owner holds part of the range, or is queued for it before */
	HF_LOCK_E_QUEUED,     /* the request waits; the granted event follows */
	HF_LOCK_E_GRACE,      /* only reclaims are served now */
	HF_LOCK_E_DEADLOCK,   /* the owner would wait for itself */
	HF_LOCK_E_LIMIT,      /* too many; see struct hf_lock_limits */
	HF_LOCK_E_NOT_BACKED, /* a reclaim of a range that the owner did not hold */
	HF_LOCK_E_LOCKED,     /* cancel: the owner does not wait, but holds the range now */
	HF_LOCK_E_NOTHING,    /* cancel: the owner neither waits nor holds; confirm, refuse: no such grant */
};

enum hf_lock_mode {
	HF_LOCK_NONE = 0,
	HF_LOCK_SHARED = 1,
	HF_LOCK_EXCLUSIVE = 2,
};

enum hf_lock_flag {
	HF_LOCK_PROVISIONAL = 1 << 0, /* granted to a waiter whose client has not acknowledged it yet */
	HF_LOCK_UNRECLAIMED = 1 << 1, /* restored, not yet reclaimed; conflicts as any other lock */
	HF_LOCK_VOLATILE = 1 << 2,    /* not to be restored after a restart (NM_LOCK) */
	HF_LOCK_GHOST = 1 << 3,       /* unreclaimed and not listed: hf_lock_client_release_reclaimable() */
};

/* Why a waiter ended. */
enum hf_lock_end {
	HF_LOCK_END_CANCELLED,
	HF_LOCK_END_RELEASED,  /* the owner unlocked the range */
	HF_LOCK_END_PURGED,    /* its client crashed */
	HF_LOCK_END_CONFIRMED, /* by hf_lock_grant_confirm(), or by a repeated request that found the lock */
	HF_LOCK_END_REFUSED,
	HF_LOCK_END_PUT_BACK, /* it waits again, under another id; the queued event follows */
};

/* Steps of searches that were charged to a group of clients. The charge decays with time (steps.c). */
struct hf_lock_steps {
	uint64_t at; /* the stamp of the last request */
	uint64_t spent;
};

/*
 * All clients of one address share these limits, whatever names they use. src/client owns the group
 * and frees it after the last of its clients. It begins as { 0 }.
 */
struct hf_lock_group {
	struct hf_lock_steps steps;
	uint32_t n_locks;   /* without ghosts */
	uint32_t n_waiters; /* including grants in flight */
	uint32_t n_reservations;
	uint64_t bytes; /* of all but locks, see room.c */
	uint64_t oh_bytes;
};

/*
 * What the engine knows of a client. src/client embeds it, and must not free it before
 * hf_lock_client_is_idle() is true.
 */
struct hf_lock_client {
	uint64_t id; /* order of creation, part of the owners' keys */
	struct hf_lock_group *group;
	struct hf_rb_tree owners;  /* by their order of creation */
	struct hf_rb_tree waiters; /* the queued ones, by id */
	struct hf_list reservations;
	uint32_t n_locks; /* records, without ghosts */
	uint32_t n_waiters;
	uint32_t n_grants; /* in flight */
	uint32_t n_reservations;
	uint32_t n_unreclaimed; /* of n_locks */
	uint32_t n_ghosts;
	bool outlives_grace; /* what is unreclaimed of it does not go when grace ends; set before it has any
			      */
	uint64_t bytes;      /* of all but locks, see room.c */
	uint64_t oh_bytes;   /* of long owner handles */
};

/* An owner and a file. */
struct hf_lock_target {
	uint32_t export; /* not part of the key. A view of a lock has that of the owner's first request for
			    this file, a view of a waiter that of the last request for it. */
	struct hf_bytes handle; /* the file: at most HF_LOCK_HANDLE_MAX bytes */
	struct hf_lock_client *client;
	uint64_t owner_id;
	uint8_t owner_kind;
	struct hf_bytes oh; /* the owner handle, for the echo only: the last one counts. release, cancel and
			       test ignore it */
};

/* What the owner held of the range when the request came. */
struct hf_lock_before {
	bool has_any;
	bool stays_exclusive; /* its exclusive locks stay exclusive, because of request.no_downgrade */
};

struct hf_lock_request {
	struct hf_lock_target who;
	struct hf_range range;
	struct hf_lock_before *before; /* filled in unless NULL */
	uint64_t offset;               /* as the client wrote it, for the echo */
	uint64_t len;
	enum hf_lock_mode mode;
	uint32_t client_state; /* the client's state number, 0 if unknown */
	bool wait;             /* queue on conflict */
	bool must_wait;        /* a restart restores it: it goes to the end of the queue, whatever is free */
	bool reclaim;          /* was held before the server's restart */
	bool backed_only;      /* reclaim: the restored list is complete, nothing else was held */
	bool is_due;           /* the owner was promised it before: limits count as for an unlock, and waiters
				  are not in its way, as for a reclaim */
	bool is_volatile;
	bool no_downgrade; /* a shared request leaves exclusive locks of the owner exclusive */
	void *user;        /* the protocol's data of the waiter; a repeated request replaces it */
	uint64_t tag;      /* of a waiter that the store has already, with must_wait; 0: it has not */
	/* The time of the request in ns, of any clock that does not go back; 0: unknown, and no steps are
	 * charged. A waiter shows the stamp of its first request. */
	uint64_t stamp;
};

/* A lock, waiter or grant in flight, as callers see it. Its pointers are borrowed. */
struct hf_lock_view {
	uint64_t id;  /* waiter: for confirm and refuse; lock: unique, but new after each change */
	uint64_t tag; /* what the added or queued event returned, or what the load was given */
	struct hf_lock_target who;
	struct hf_range range;
	enum hf_lock_mode mode;
	uint32_t client_state;
	uint32_t epoch;
	uint32_t flags;          /* enum hf_lock_flag */
	bool is_of_grant;        /* lock: a piece of a grant in flight */
	enum hf_lock_mode prior; /* of such a piece: what the owner has there if the grant is refused */
	bool waits;              /* this is a waiter; the fields below are for waiters only */
	uint64_t offset;
	uint64_t len;
	void *user;
	uint64_t stamp;
};

/* All reservations of an owner with the same access and deny. */
struct hf_lock_reservation_view {
	uint64_t tag; /* what the last event returned, or a load was given */
	uint32_t export;
	struct hf_bytes handle;
	struct hf_lock_client *client;
	struct hf_bytes oh;
	uint32_t client_state;
	uint8_t access;
	uint8_t deny;
	uint32_t count; /* that the owner holds; in an event: after the change */
	uint32_t n_unreclaimed;
	uint32_t n_unsure; /* of count, see hf_lock_doubt_reservation() */
	uint64_t mark;     /* of the last request; 0: it had none */
	bool is_reclaim;   /* added: it was held before the server's restart */
};

/* Why a lock or a reservation is removed. */
enum hf_lock_cause {
	HF_LOCK_CAUSE_REQUEST, /* its owner released it, or has something else there now */
	HF_LOCK_CAUSE_CRASH,   /* purged with its client */
	HF_LOCK_CAUSE_EXPIRY,  /* unreclaimed, and the time to reclaim it is over */
	HF_LOCK_CAUSE_ORDER,   /* an operator released it; its client does not know */
};

/* A lock that was added or is removed: what every callee needs, each field as in a view. */
struct hf_lock_change {
	uint64_t tag;
	struct hf_lock_client *client;
	uint32_t export;
	uint32_t flags;
	enum hf_lock_cause cause;   /* of its removal */
	const struct hf_lock *lock; /* for hf_lock_show() */
};

struct hf_lock_events {
	/* Returns the tag that views of the lock carry from now on. */
	uint64_t (*added)(void *context, const struct hf_lock_change *lock);
	void (*removed)(void *context, const struct hf_lock_change *lock);
	void (*hidden)(void *context, const struct hf_lock_change *lock); /* it has become a ghost */
	/* A request waits now, or again, or a repetition has changed it. Returns a tag, as above. */
	uint64_t (*queued)(void *context, const struct hf_lock_view *waiter);
	/* A later request was queued before this waiter, to avoid a deadlock: its new tag must rise above
	 * that one's. Comes in the order of the queue, for each waiter behind the request. */
	uint64_t (*passed)(void *context, const struct hf_lock_view *waiter);
	void (*granted)(void *context, const struct hf_lock_view *waiter);
	void (*waiter_gone)(void *context, const struct hf_lock_view *waiter, enum hf_lock_end why);
	/* One more is held, or @n less are held or unreclaimed. Each returns a tag, as above. */
	uint64_t (*reservation_added)(void *context, const struct hf_lock_reservation_view *reservation);
	uint64_t (*reservation_removed)(void *context, const struct hf_lock_reservation_view *reservation,
					uint32_t n, enum hf_lock_cause cause);
};

/*
 * The lock table outside. The engine calls these functions in the middle of changes. They must not change the
 * engine; they may call hf_lock_next_locked() and hf_lock_knows_file().
 */
struct hf_lock_outside {
	/* Locks what is not locked there already. OK, or CONFLICT, LIMIT or < 0: nothing has changed. */
	int (*take)(void *context, const struct hf_lock_target *who, struct hf_range range,
		    enum hf_lock_mode mode);
	/* OK, or CONFLICT with the range, mode and owner_id of the holder; its client is NULL. */
	int (*test)(void *context, const struct hf_lock_target *who, struct hf_range range,
		    enum hf_lock_mode mode, struct hf_lock_view *conflictp);
	/* Locks in @range may have gone: unlock there what is not held here any more. @n_locks: how many
	 * locks the whole file has now. */
	void (*trim)(void *context, struct hf_bytes handle, struct hf_range range, size_t n_locks);
};

/*
 * 0 stands for the default. A waiter counts as the lock that it will become. Only requests that add records
 * are refused. Three things may exceed a limit: an unlock that splits locks and a reclaim, up to twice the
 * limit, and a grant that needs several records. If the owner of a waiter has more than 4,096 locks in its
 * range, it has the lock even if its grant is refused, or at least the range as shared (grant.c).
 */
struct hf_lock_limits {
	uint32_t locks_per_client;        /* 262,144 */
	uint32_t locks_per_file;          /* 1,048,576 */
	uint32_t locks;                   /* 8,388,608 */
	uint32_t locks_per_group;         /* half of locks */
	uint32_t waiters_per_file;        /* 2,048; half of them of one group */
	uint32_t waiters_per_client;      /* 4,096; including grants in flight */
	uint32_t waiters;                 /* 262,144, likewise */
	uint32_t waiters_per_group;       /* half of waiters */
	uint32_t reservations_per_client; /* 65,536 */
	uint32_t reservations_per_file;   /* 65,536 */
	uint32_t reservations;            /* 1,048,576 */
	uint32_t reservations_per_group;  /* half of reservations */
	/* Memory of all records, as room.c counts it. */
	uint64_t bytes;            /* 512 for each of locks: 4 GiB */
	uint64_t bytes_per_group;  /* half of bytes */
	uint64_t bytes_per_client; /* 2,048 for each of locks_per_client: 512 MiB */
	/* Memory of owner handles of more than 70 bytes, which no known client sends. A group may have half
	 * of it, a client an eighth. */
	uint64_t oh_bytes; /* 128 MiB */
};

struct hf_lock_counters {
	uint64_t locks; /* without ghosts */
	uint64_t waiters;
	uint64_t grants; /* in flight */
	uint64_t reservations;
	uint64_t unreclaimed; /* of locks */
	uint64_t ghosts;
	uint64_t unreclaimed_reservations; /* records; reservations does not count them */
	uint64_t outliving;                /* of the three: of clients that outlive grace */
	uint64_t files;
	uint64_t owners;
	uint64_t bytes; /* of memory in the pools */
};

struct hf_locks_options {
	struct hf_siphash_key key;
	struct hf_lock_limits limits;
	const struct hf_lock_events *events; /* borrowed; NULL, as any member: no call-back */
	void *context;
	const struct hf_lock_outside *outside; /* borrowed; NULL: there is none */
	void *outside_context;
	uint32_t epoch;
};

/* The whole view of a changed lock. Only within the event. */
void hf_lock_show(const struct hf_lock_change *change, struct hf_lock_view *viewp);

/* MAKING AND FREEING */
int hf_locks_new(struct hf_locks **locksp, const struct hf_locks_options *options);
void hf_locks_free(struct hf_locks *locks); /* sends no events; clients must not be used afterwards */
void hf_lock_client_init(struct hf_locks *locks, struct hf_lock_client *client);
/* While the client is idle. A client without a group has its own limits and those of the whole table. */
void hf_lock_client_join(struct hf_lock_client *client, struct hf_lock_group *group);
bool hf_lock_client_is_idle(const struct hf_lock_client *client);

/*
 * LOCK. OK, CONFLICT, QUEUED, GRACE, DEADLOCK, LIMIT or NOT_BACKED. On CONFLICT, QUEUED and DEADLOCK
 * @conflictp, if not NULL, shows one conflicting lock, or one conflicting waiter if ->waits is set. Its
 * pointers are valid until the next call.
 */
int hf_lock_acquire(struct hf_locks *locks, const struct hf_lock_request *request,
		    struct hf_lock_view *conflictp);
/* OK, CONFLICT or GRACE. Looks at locks only, at those outside last: *conflictp has no client then. */
int hf_lock_test(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		 enum hf_lock_mode mode, struct hf_lock_view *conflictp);
/* Is an eighth of a limit used, of those for all clients or for this file? Then what adds to it should be of
 * a client that exists. */
bool hf_lock_is_scarce(const struct hf_locks *locks, const struct hf_lock_target *who);
/* Does this owner have anything in this file: a lock, a waiter, a grant in flight? */
bool hf_lock_is_involved(const struct hf_locks *locks, const struct hf_lock_target *who);
/* The same, of @range or a part of it. */
bool hf_lock_touches(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range);
/* The same in the whole file. If so, *ohp is the oh that the owner sent last, valid until the next call. */
bool hf_lock_find_oh(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_bytes *ohp);
/* Does this owner have all of @range, and as a shared lock? */
bool hf_lock_has_shared(const struct hf_locks *locks, const struct hf_lock_target *who,
			struct hf_range range);
/* Does an exclusive grant in flight of this owner overlap @range? A shared request would not downgrade that
 * part. */
bool hf_lock_is_guarded(const struct hf_locks *locks, const struct hf_lock_target *who,
			struct hf_range range);
/* Does any grant in flight of this owner overlap @range? */
bool hf_lock_has_grant(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range);
/* The same of those of which @is_meant is true; NULL: of all. */
bool hf_lock_any_grant(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		       bool (*is_meant)(void *user, uint64_t id), void *user);
/* OK; also ends the owner's waiters and grants in flight that lie within @range. LIMIT: it would split a lock
 * where the table is full. */
int hf_lock_release(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range);
/* The same by the server, before the client has heard of the lock. The owner's waiters stay. */
int hf_lock_take_back(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range);
/* By order of an operator: OK, or NOTHING: the owner has no lock with exactly this range. Also ends the
 * owner's grants in flight that overlap @range; what is left of their locks stays. Its waiters
 * stay. Needs memory only for such grants. */
int hf_lock_revoke(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range);
/* OK: the waiter is gone, or its grant in flight is undone. LOCKED: the owner has the whole range in
 * @mode, or partly in a stronger mode. NOTHING: neither. */
int hf_lock_cancel(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		   enum hf_lock_mode mode);
/* OK (the waiter is gone) or NOTHING. A grant in flight stays: the client may have heard of it. If the grant
 * is put back later (hf_lock_grant_put_back()), the waiter does not return to the queue. */
int hf_lock_leave_queue(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
			enum hf_lock_mode mode);
/* All waiters leave the queue that @may_wait does not let stay, in time proportional to the number of all
 * waiters; returns how many. @may_wait must not change the engine. Grants in flight stay. If one of them is
 * put back later, its waiter does not return to the queue. */
size_t hf_lock_sift_waiters(struct hf_locks *locks,
			    bool (*may_wait)(void *context, const struct hf_lock_view *waiter),
			    void *context);

/* GRANT: ends the grant in flight with the @id of its granted event. OK or NOTHING. */
int hf_lock_grant_confirm(struct hf_locks *locks, uint64_t id);
int hf_lock_grant_refuse(struct hf_locks *locks, uint64_t id);
/* The grant could not be stored, so the client has not heard of it. The waiter returns to the front of the
 * queue; or it ends, if hf_lock_leave_queue() was called meanwhile. */
int hf_lock_grant_put_back(struct hf_locks *locks, uint64_t id);
/* While the store cannot write, no waiter is granted a lock. The end of the pause serves the waiters. */
void hf_lock_pause_grants(struct hf_locks *locks, bool is_on);
/* The client may or may not know of the grant: the owner has the lock, and its exclusive locks stay
 * exclusive. */
int hf_lock_grant_assume(struct hf_locks *locks, uint64_t id);
/* The same for each grant of this owner in this file that the owner's own requests have changed since. OK, or
 * -ENOMEM: some grants are left for the next call. */
int hf_lock_assume_changed(struct hf_locks *locks, const struct hf_lock_target *who);
/* The same for every grant in flight of this owner in this file. */
int hf_lock_assume_grants(struct hf_locks *locks, const struct hf_lock_target *who);

/* CRASH of a client. Removes everything of it. */
void hf_lock_client_purge(struct hf_locks *locks, struct hf_lock_client *client);
/* The same, but what carries any of the @n state numbers @living stays. State number 0 never matches. */
void hf_lock_client_purge_but(struct hf_locks *locks, struct hf_lock_client *client, const uint32_t *living,
			      size_t n);
/* But what carries @state. For tests. */
void hf_lock_client_purge_older(struct hf_locks *locks, struct hf_lock_client *client, uint32_t state);

/*
 * RESTART. A load restores locks as unreclaimed, without events: the store has them. Between
 * hf_lock_load_new() and hf_lock_load_free() the caller must call nothing else: some locks are not in the
 * table yet. The load is quick if the locks of a file come one after another and in order.
 *
 * Volatile records are skipped. CONFLICT: the record overlaps another record, which is an error of the store,
 * or a waiter, which is an error of the caller. A provisional record is restored as any other: its client may
 * have been told.
 */
struct hf_lock_load;
int hf_lock_load_new(struct hf_lock_load **loadp, struct hf_locks *locks);
int hf_lock_load_add(struct hf_lock_load *load, const struct hf_lock_view *lock);
struct hf_lock_load *hf_lock_load_free(struct hf_lock_load *load);
HF_DEFINE_CLEANUP(struct hf_lock_load *, hf_lock_load_free)

/* The same for reservations: @reservation->count of them wait to be reclaimed. CONFLICT: the store lies. */
int hf_lock_restore_reservation(struct hf_locks *locks, const struct hf_lock_reservation_view *reservation);
/* Removes restored records that conflict with @later, or are of the same, and have lower tags, so that it can
 * be restored. Those that their owners have reclaimed stay. Returns how many records have gone. */
size_t hf_lock_drop_older_reservations(struct hf_locks *locks, const struct hf_lock_reservation_view *later);

/*
 * The end of grace drops unreclaimed locks, ghosts and reservations, in time proportional to their number,
 * and serves the waiters. What is unreclaimed of clients that outlive grace stays.
 */
void hf_lock_set_grace(struct hf_locks *locks, bool is_on);
bool hf_lock_in_grace(const struct hf_locks *locks);
/*
 * A client could not be told of the server's restart. Its unreclaimed locks become ghosts: neither listed nor
 * counted, but still reclaimable, and conflicting until grace ends. The removed event comes only then, so
 * that ghosts survive a second restart. Outside grace they go at once.
 */
void hf_lock_client_release_reclaimable(struct hf_locks *locks, struct hf_lock_client *client);
/* No client need reclaim: everything that was restored is held. No events: the store has it. */
void hf_lock_accept_restored(struct hf_locks *locks);
/* The time of this client to reclaim is over, whatever is with grace. */
void hf_lock_client_drop_unreclaimed(struct hf_locks *locks, struct hf_lock_client *client);
/* All of them, in time proportional to the unreclaimed locks. */
void hf_lock_show_ghosts(const struct hf_locks *locks,
			 void (*fn)(void *context, const struct hf_lock_view *ghost), void *context);
/* Each lock, ghosts included, or each record of reservations gets the tag that @fn returns. To write the
 * whole table to a store. */
void hf_lock_tag_all(struct hf_locks *locks, uint64_t (*fn)(void *context, const struct hf_lock_view *lock),
		     void *context);

/* Grants in flight come first; the waiters of a file come in the order of its queue. */
void hf_lock_tag_all_waiters(struct hf_locks *locks,
			     uint64_t (*fn)(void *context, const struct hf_lock_view *waiter), void *context);

void hf_lock_tag_all_reservations(struct hf_locks *locks,
				  uint64_t (*fn)(void *context,
						 const struct hf_lock_reservation_view *reservation),
				  void *context);

/*
 * RESERVE. The owner is @who's client and oh; owner_id and owner_kind are ignored. access and deny are 0-3.
 * OK, CONFLICT, GRACE or LIMIT; hf_lock_unreserve() without a match is OK. A reclaim turns an unreclaimed
 * reservation into a held one, or adds one if there is none. hf_lock_unreserve() gives up a held one first.
 */
int hf_lock_reserve(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access, uint8_t deny,
		    uint32_t client_state, bool reclaim);
int hf_lock_unreserve(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access, uint8_t deny);
/* The same for a request with this mark, not 0. If the last request for a restored reservation had this mark,
 * an earlier run has counted it: it is not counted again. */
int hf_lock_reserve_once(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access,
			 uint8_t deny, uint32_t client_state, bool reclaim, uint64_t mark);
int hf_lock_unreserve_once(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access,
			   uint8_t deny, uint64_t mark);
/* The store could not write the owner's last hf_lock_unreserve(). The client will repeat it. Until then the
 * reservation is held again, unless its record is gone. */
void hf_lock_undo_unreserve(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access,
			    uint8_t deny);
/* The owner holds a reservation, but was told to ask again. Its next reclaim stands for that one, and adds
 * none. */
void hf_lock_doubt_reservation(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access,
			       uint8_t deny);
/* What the owner has with this access and deny. False: nothing. */
bool hf_lock_find_reservation(const struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access,
			      uint8_t deny, struct hf_lock_reservation_view *viewp);
/* Does the owner have reservations in the file that have another state number? */
bool hf_lock_has_reservations_but(const struct hf_locks *locks, const struct hf_lock_target *who,
				  uint32_t client_state);
/* How many reservations of exactly this (access, deny) does the owner hold? */
uint32_t hf_lock_count_reservations(const struct hf_locks *locks, const struct hf_lock_target *who,
				    uint8_t access, uint8_t deny);

/* OUTSIDE: what the table outside may ask and tell. */
/* The first range from @pos on that any owner holds, and its strongest mode. False: there is none. */
bool hf_lock_next_locked(const struct hf_locks *locks, struct hf_bytes handle, uint64_t pos,
			 struct hf_range *rangep, enum hf_lock_mode *modep);
/* Does any owner hold or reserve anything in this file, or wait for it? */
bool hf_lock_knows_file(const struct hf_locks *locks, struct hf_bytes handle);
/* A lock outside may have gone: serves the waiters of this file. */
void hf_lock_serve_file(struct hf_locks *locks, struct hf_bytes handle);

/*
 * LIST. One element a call; false at the end. A cursor begins as { 0 }. It may be stored and copied, and the
 * table may change between calls: an element that exists unchanged from the first to the last call is seen
 * exactly once. @client: the locks of that client; @file: of that file; neither: all. Ghosts are not listed.
 * The pointers in the view are valid until the next call that changes something.
 */
struct hf_lock_cursor {
	uint64_t owner;
	uint64_t file;
	uint64_t start;
	uint64_t id;
	uint8_t mode;
	bool begun;
};

struct hf_lock_scope {
	const struct hf_lock_client *client;
	const struct hf_lock_target *file; /* its handle */
	const struct hf_range *range;      /* of @file, only those that overlap it; NULL: all */
	bool with_ghosts;                  /* of @file; no list of a client or of all locks has them */
};

bool hf_lock_next_lock(const struct hf_locks *locks, const struct hf_lock_scope *scope,
		       struct hf_lock_cursor *cursor, struct hf_lock_view *viewp);
bool hf_lock_next_waiter(const struct hf_locks *locks, const struct hf_lock_scope *scope,
			 struct hf_lock_cursor *cursor, struct hf_lock_view *viewp);
/* The same for reservations; @client NULL: of all clients. Those of a client come one after another. */
bool hf_lock_next_reservation(const struct hf_locks *locks, const struct hf_lock_client *client,
			      struct hf_lock_cursor *cursor, struct hf_lock_reservation_view *viewp);

/* COUNT */
/* The limits of this folder: what the whole table uses, and the refusals. */
void hf_lock_show_limits(const struct hf_locks *locks, struct hf_limit_use uses[HF_N_LIMITS]);
/* What one client and its address use. @now: as the stamps of requests. */
void hf_lock_show_client_limits(const struct hf_locks *locks, const struct hf_lock_client *client,
				uint64_t now, struct hf_limit_use uses[HF_N_LIMITS]);
/* The most that any file uses. Visits a few thousand files at most, the largest first (crowd.c). */
void hf_lock_show_file_limits(const struct hf_locks *locks, struct hf_limit_use uses[HF_N_LIMITS]);
void hf_lock_count(const struct hf_locks *locks, struct hf_lock_counters *countersp);
/* How many steps of searches were charged to clients since the last call of this function. A step takes 10 to
 * 50 ns. */
uint64_t hf_lock_take_steps(struct hf_locks *locks);

/* CHECK: every invariant of every structure. NULL, or what is broken. For tests: visits all records. */
const char *hf_locks_check(const struct hf_locks *locks);
