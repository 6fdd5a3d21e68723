/*
 * The lock engine: may this owner have this range now, and if not, when?
 *
 * It knows byte-range locks, those who wait for them, and share reservations.
 * It knows no protocol, no clock, no socket and no store; it has no threads and
 * no globals. The same calls in the same order always give the same answers.
 *
 * HOW TO READ THE CODE. A *file* is the bytes of a file handle; by
 * which share its owner came to it is only for those who look.
 * An *owner* is a client and an id with a kind (NLM: the svid). A *holding* is
 * what one owner has in one file: its locks, its waiters, its grants in flight.
 *
 *	range.c    offset and length -> inclusive range
 *	file.c    file records              owner.c   owners and holdings
 *	tree.h     sets of locks by place: who else holds this range, in O(log n)
 *	holding.c      the locks of one holding     replace.c  merge, split
 *	engine.c     the engine itself
 *	acquire.c  release.c  purge.c  reclaim.c  share.c
 *	waiters.c  the order of those who wait, and whose turn it is
 *	grant.c    a waiter gets its lock, provisionally until it is told
 *	deadlock.c who waits, directly or not, for whom
 *	steps.c     how much of that one address may cause
 *	room.c     may there be more, in number and in bytes
 *	outside.c  the table beside ours
 *	cursor.c     lists for people          check.c    every invariant
 *
 * LOCKS. For each owner and file the held locks are disjoint ranges with a
 * mode. A request replaces what the owner has there: same mode merges with what
 * overlaps or touches, other mode splits. A lock also carries the client's
 * state number, the epoch of the grant, and flags. Ranges that differ in what
 * matters after a crash (state number, unreclaimed, volatile, provisional) do
 * not merge; those that differ in the epoch only do, and have the newer one.
 * Unreclaimed ranges never merge, so that they stay what the store has.
 *
 * Re-requesting what is held in that mode changes nothing, with three
 * exceptions that make the lock firmer: it is no longer provisional, it takes
 * the request's state number if that is known (not 0), and it is no longer
 * volatile if the request is not.
 *
 * WAITERS stand in one queue for each file. A request never passes an earlier
 * queued one that it conflicts with, except where that one waits, directly or
 * through others, for the requesting owner: then it goes before it, because to
 * stand behind would be a deadlock. The owner-level graph of who waits for whom
 * never has a cycle: a request that would close one is answered DEADLOCK.
 *
 * GRANTS. A waiter that can run gets its lock at once, in the table first,
 * marked provisional, and then the granted event. The protocol tells the client
 * and confirms or refuses; refusing gives back exactly what the owner had
 * before. A provisional grant only ever adds to what the owner holds: where it
 * asks for less than that (shared where exclusive is held), the stronger lock
 * stays until the grant is confirmed. In grace nobody is granted anything;
 * at its end the waiters are served.
 *
 * EVENTS. added and removed describe the lock table as a sequence of records
 * with the key (file, owner, start): a record is always removed before another
 * one that overlaps it in the same holding is added. So a store that applies
 * them one by one has the table after each call. Each waiter ends with exactly
 * one waiter_gone, be it granted in between or not; its user data belong to the
 * protocol again then. A call-back must not call the engine (asserted), and
 * views are valid for its time only.
 *
 * OUTSIDE. The same files may be locked in a table that is not ours: the
 * kernel's, by local processes. A range is granted here only if it could be
 * taken there, too, where we are one holder with the union of what is held
 * here. A waiter that is blocked outside alone is served when whoever stands
 * there says so. Nobody looks for deadlocks that lead through the outside.
 *
 * ANSWERS. 0 or an answer of enum hf_lock_answer; < 0 is -errno. -ENOMEM leaves
 * everything as it was, but for hf_lock_client_purge*(), which always finish.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/cleanup.h"
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
	HF_LOCK_E_CONFLICT,   /* somebody else holds part of the range, or is queued for it before */
	HF_LOCK_E_QUEUED,     /* parked; the granted event follows */
	HF_LOCK_E_GRACE,      /* only reclaims are served now */
	HF_LOCK_E_DEADLOCK,   /* to wait would be to wait for oneself */
	HF_LOCK_E_LIMIT,      /* too many; see struct hf_lock_limits */
	HF_LOCK_E_NOT_BACKED, /* a reclaim of what was not held */
	HF_LOCK_E_HELD,       /* cancel: not waiting, but holds it by now */
	HF_LOCK_E_NOTHING,    /* cancel: neither waiting nor holding; confirm, refuse: no such grant */
};

enum hf_lock_mode {
	HF_LOCK_NONE = 0,
	HF_LOCK_SHARED = 1,
	HF_LOCK_EXCLUSIVE = 2,
};

enum hf_lock_flag {
	HF_LOCK_PROVISIONAL = 1 << 0, /* granted to a waiter who has not acknowledged it yet */
	HF_LOCK_UNRECLAIMED = 1 << 1, /* restored, not yet reclaimed; conflicts as any other */
	HF_LOCK_VOLATILE = 1 << 2,    /* not to be restored after a restart (NM_LOCK) */
	HF_LOCK_GHOST = 1 << 3,       /* unreclaimed and no longer listed; see release_reclaimable */
};

/* Why a waiter is no more. */
enum hf_lock_end {
	HF_LOCK_END_CANCELLED,
	HF_LOCK_END_RELEASED,  /* the owner unlocked the range */
	HF_LOCK_END_PURGED,    /* with its client */
	HF_LOCK_END_CONFIRMED, /* by grant_confirm, or by a repeated request that found the lock */
	HF_LOCK_END_REFUSED,
	HF_LOCK_END_PUT_BACK, /* it waits again, under another id */
};

/* Work that was done for a group of clients: steps of searches, forgotten as time goes by. */
struct hf_lock_steps {
	uint64_t at; /* of the last request, see struct hf_lock_request */
	uint64_t spent;
};

/*
 * Clients of one address: none of them has more than a part, whatever names it gives itself. The client
 * tracker keeps it as long as it keeps one of them; begins as { 0 }.
 */
struct hf_lock_group {
	struct hf_lock_steps steps;
	uint32_t n_locks;   /* without ghosts */
	uint32_t n_waiters; /* with grants in flight */
	uint32_t n_shares;
	uint64_t bytes; /* of all but locks, see room.c */
	uint64_t oh_bytes;
};

/*
 * What the engine knows of a client. The client tracker embeds it, and must keep it as long as
 * hf_lock_client_is_idle() is false.
 */
struct hf_lock_client {
	uint64_t id; /* order of creation, part of the owners' keys */
	struct hf_lock_group *group;
	struct hf_rb_tree owners;  /* by their order of creation */
	struct hf_rb_tree waiters; /* those queued, by id */
	struct hf_list shares;
	uint32_t n_locks; /* records, without ghosts */
	uint32_t n_waiters;
	uint32_t n_grants; /* in flight */
	uint32_t n_shares;
	uint32_t n_unreclaimed; /* of n_locks */
	uint32_t n_ghosts;
	uint64_t bytes;    /* of all but locks, see room.c */
	uint64_t oh_bytes; /* of long owner handles */
};

/* Whose locks in which file. */
struct hf_lock_target {
	uint32_t share; /* shown as it was in the owner's first request for this file; not part of the key */
	struct hf_bytes handle; /* the file: at most HF_LOCK_HANDLE_MAX bytes */
	struct hf_lock_client *client;
	uint64_t owner_id;
	uint8_t owner_kind;
	struct hf_bytes oh; /* for echo only; kept as last seen. Not read by release, cancel and test */
};

/* What the owner held when the request came, if anything of the range. */
struct hf_lock_before {
	bool has_any;
	bool stays_exclusive; /* exclusive ones among it stay, because of request.no_downgrade */
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
	bool reclaim;          /* was held before our restart */
	bool backed_only;      /* reclaim: the restored list is complete, nothing else was held */
	bool is_due;           /* the owner was promised it before: there is as much room as for an unlock */
	bool is_volatile;
	bool no_downgrade; /* what the owner holds exclusively stays so if the request is shared */
	void *user;        /* of the waiter, for the protocol; a repeated request replaces it */
	/* When it was made, in ns of any clock that does not go back; 0: it is not known, and no work is
	 * counted. Of the waiter, for people: that of the first request stays. */
	uint64_t stamp;
};

/* A lock, waiter or grant in flight as shown to others. Its pointers are borrowed. */
struct hf_lock_view {
	uint64_t id;  /* waiter: for confirm and refuse; lock: unique, but new after each change */
	uint64_t tag; /* lock: what the added event answered, or a load was given */
	struct hf_lock_target who;
	struct hf_range range;
	enum hf_lock_mode mode;
	uint32_t client_state;
	uint32_t epoch;
	uint32_t flags; /* enum hf_lock_flag */
	bool waits;     /* a waiter; the rest is of waiters only */
	uint64_t offset;
	uint64_t len;
	void *user;
	uint64_t stamp;
};

struct hf_lock_share_view {
	uint32_t share;
	struct hf_bytes handle;
	struct hf_lock_client *client;
	struct hf_bytes oh;
	uint32_t client_state;
	uint8_t access;
	uint8_t deny;
	uint32_t count;  /* how often this owner has this (access, deny) after the change */
	bool is_reclaim; /* added: as one from before our restart */
};

/* A lock that came or goes: as much as everybody wants to know, each as in a view. */
struct hf_lock_change {
	uint64_t tag;
	struct hf_lock_client *client;
	uint32_t share;
	uint32_t flags;
	const struct hf_lock *lock; /* for hf_lock_show() */
};

struct hf_lock_events {
	/* A tag for its views from now on. */
	uint64_t (*added)(void *context, const struct hf_lock_change *lock);
	void (*removed)(void *context, const struct hf_lock_change *lock);
	void (*hidden)(void *context, const struct hf_lock_change *lock); /* it is a ghost now */
	void (*granted)(void *context, const struct hf_lock_view *waiter);
	void (*waiter_gone)(void *context, const struct hf_lock_view *waiter, enum hf_lock_end why);
	void (*share_added)(void *context, const struct hf_lock_share_view *share);
	void (*share_removed)(void *context, const struct hf_lock_share_view *share);
};

/*
 * The table beside ours. Its functions are called in the midst of changes, and must not change anything here;
 * they may ask hf_lock_next_held() and hf_lock_knows_file().
 */
struct hf_lock_outside {
	/* Takes what is not held there already: OK, CONFLICT, LIMIT or < 0, and then nothing has changed. */
	int (*take)(void *context, const struct hf_lock_target *who, struct hf_range range,
		    enum hf_lock_mode mode);
	/* OK, or CONFLICT and who it is: range, mode and owner_id; his client is NULL. */
	int (*test)(void *context, const struct hf_lock_target *who, struct hf_range range,
		    enum hf_lock_mode mode, struct hf_lock_view *conflictp);
	/* Less than before may be held in @range: what is not any more is to be given back. @n_locks: how
	 * many there are in the whole file now. */
	void (*settle)(void *context, struct hf_bytes handle, struct hf_range range, size_t n_locks);
};

/*
 * 0 stands for the default. A waiter counts as the lock that it will become. Only what adds records is
 * refused; an unlock may split locks beyond the limit, until they are twice as many, a reclaim may bring them
 * back, and a grant may need several records. A waiter whose owner has more than 4,096 locks in its range has
 * what it waited for even if its grant is refused, or at least the range as shared (grant.c).
 */
struct hf_lock_limits {
	uint32_t locks_per_client;   /* 262,144 */
	uint32_t locks_per_file;     /* 1,048,576 */
	uint32_t locks;              /* 8,388,608 */
	uint32_t locks_per_group;    /* half of locks */
	uint32_t waiters_per_file;   /* 2,048; half of them of one group */
	uint32_t waiters_per_client; /* 4,096; with grants in flight, of which it has to be told */
	uint32_t waiters;            /* 262,144, likewise */
	uint32_t waiters_per_group;  /* half of waiters */
	uint32_t shares_per_client;  /* 65,536 */
	uint32_t shares_per_file;    /* 65,536 */
	uint32_t shares;             /* 1,048,576 */
	uint32_t shares_per_group;   /* half of shares */
	/* Of everything, as it is counted in room.c. */
	uint64_t bytes;            /* 512 for each of locks: 4 GiB */
	uint64_t bytes_per_group;  /* half of bytes */
	uint64_t bytes_per_client; /* 2,048 for each of locks_per_client: 512 MiB */
	/* Of owner handles of more than 70 bytes, which no known client has; half of them for a group, an
	 * eighth for a client. */
	uint64_t oh_bytes; /* 128 MiB */
};

struct hf_lock_counters {
	uint64_t locks; /* without ghosts */
	uint64_t waiters;
	uint64_t grants; /* in flight */
	uint64_t shares;
	uint64_t unreclaimed; /* of locks */
	uint64_t ghosts;
	uint64_t files;
	uint64_t owners;
	uint64_t bytes; /* of memory in the pools */
};

struct hf_locks_options {
	struct hf_siphash_key key;
	struct hf_lock_limits limits;
	const struct hf_lock_events *events; /* borrowed; any member and the whole may be NULL */
	void *context;
	const struct hf_lock_outside *outside; /* borrowed; NULL: there is none */
	void *outside_context;
	uint32_t epoch;
};

/* The rest of it, for those who need it; within the event only. */
void hf_lock_show(const struct hf_lock_change *change, struct hf_lock_view *viewp);

/* LIFE */
int hf_locks_new(struct hf_locks **locksp, const struct hf_locks_options *options);
void hf_locks_free(struct hf_locks *locks); /* silent: no events; clients must not be used any more */
void hf_lock_client_init(struct hf_locks *locks, struct hf_lock_client *client);
/* Before it has anything. A client without a group is bounded by its own limits and those of all. */
void hf_lock_client_join(struct hf_lock_client *client, struct hf_lock_group *group);
bool hf_lock_client_is_idle(const struct hf_lock_client *client);

/*
 * LOCK. OK, CONFLICT, QUEUED, GRACE, DEADLOCK, LIMIT or NOT_BACKED. On CONFLICT, QUEUED and DEADLOCK
 * @conflictp, if not NULL, shows one of those in the way; with ->waits set it is queued itself. Its
 * pointers are valid until the next call.
 */
int hf_lock_acquire(struct hf_locks *locks, const struct hf_lock_request *request,
		    struct hf_lock_view *conflictp);
/* OK, CONFLICT or GRACE; looks at holders only, those outside last: *conflictp has no client then. */
int hf_lock_test(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		 enum hf_lock_mode mode, struct hf_lock_view *conflictp);
/* Is an eighth of a limit used, of those for all clients or for this file? Then what adds to it should be of
 * a client that exists. */
bool hf_lock_is_scarce(const struct hf_locks *locks, const struct hf_lock_target *who);
/* Has this owner anything in this file: a lock, a wait, a grant in flight? */
bool hf_lock_is_involved(const struct hf_locks *locks, const struct hf_lock_target *who);
/* The same; then *ohp is the oh that the owner sent last, valid until the next call. */
bool hf_lock_find_oh(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_bytes *ohp);
/* Is any of @range granted exclusively to this owner, in flight, so that a shared request would lower
 * nothing? */
bool hf_lock_is_guarded(const struct hf_locks *locks, const struct hf_lock_target *who,
			struct hf_range range);
/* OK; also ends the owner's waiters and grants in flight that lie within @range. LIMIT: it would split a
 * lock. */
int hf_lock_release(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range);
/* The same by us, before the owner has heard of what was granted: whatever else he waits for there he waits
 * for still. */
int hf_lock_take_back(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range);
/* OK (found: no longer waiting, or grant in flight undone), HELD (all of it, some in more than @mode perhaps,
 * but not all) or NOTHING. */
int hf_lock_cancel(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		   enum hf_lock_mode mode);
/* OK (no longer waiting) or NOTHING. A grant in flight stays: the client may have heard of it. If it turns
 * out that the client has not (hf_lock_grant_put_back()), the waiter does not return to the queue. */
int hf_lock_leave_queue(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
			enum hf_lock_mode mode);

/* GRANT: @id of the granted event. OK or NOTHING. */
int hf_lock_grant_confirm(struct hf_locks *locks, uint64_t id);
int hf_lock_grant_refuse(struct hf_locks *locks, uint64_t id);
/* It could not be promised, so the client has not heard of it. The waiter returns to the front of the queue;
 * or it is gone, where its program was refused meanwhile. */
int hf_lock_grant_put_back(struct hf_locks *locks, uint64_t id);
/* While nothing can be promised nobody who waits is granted anything; the end of that serves them. */
void hf_lock_pause_grants(struct hf_locks *locks, bool is_on);
/* The client may know of it or not: it has the lock, and where it had more than that it keeps it. */
int hf_lock_grant_assume(struct hf_locks *locks, uint64_t id);
/* The same for those of this owner in this file that are no longer what was granted, because of its own
 * requests since. OK, or -ENOMEM: some are left for the next time. */
int hf_lock_assume_changed(struct hf_locks *locks, const struct hf_lock_target *who);

/* CRASH: of a client. Everything of it, or what does not carry @state; state number 0 never matches. */
void hf_lock_client_purge(struct hf_locks *locks, struct hf_lock_client *client);
void hf_lock_client_purge_older(struct hf_locks *locks, struct hf_lock_client *client, uint32_t state);
/* The same, and what was taken with the number @also stays, too. */
void hf_lock_client_purge_but(struct hf_locks *locks, struct hf_lock_client *client, uint32_t state,
			      uint32_t also);

/*
 * RESTART. A load restores locks as unreclaimed, without events: the store has them. Between its beginning
 * and its end nobody else may change anything, or look: some locks are in the table only then. Quick if the
 * locks of a file come one after another, and in order.
 *
 * Volatile records are skipped. CONFLICT where another owner's record, or the owner's own, is in the way: the
 * store lies; or where somebody is queued for it: restore before you serve. A provisional record is restored
 * as any other: its client may have been told.
 */
struct hf_lock_load;
int hf_lock_load_new(struct hf_lock_load **loadp, struct hf_locks *locks);
int hf_lock_load_add(struct hf_lock_load *load, const struct hf_lock_view *lock);
struct hf_lock_load *hf_lock_load_free(struct hf_lock_load *load);
HF_DEFINE_CLEANUP(struct hf_lock_load *, hf_lock_load_free)

/*
 * Ending grace drops what is unreclaimed, with ghosts, in time proportional to that, and serves the waiters.
 */
void hf_lock_set_grace(struct hf_locks *locks, bool is_on);
bool hf_lock_in_grace(const struct hf_locks *locks);
/*
 * A client that could not be told of our restart: its unreclaimed locks become ghosts, neither listed nor
 * counted, but still reclaimable and in the way of others until grace ends. The store is told of their
 * removal only then, so that they survive a second restart. Outside grace they go at once.
 */
void hf_lock_client_release_reclaimable(struct hf_locks *locks, struct hf_lock_client *client);
void hf_lock_show_ghosts(const struct hf_locks *locks,
			 void (*fn)(void *context, const struct hf_lock_view *ghost), void *context);
/* Each lock, ghosts included, gets the tag that @fn answers. For whoever writes the whole table to a store.
 */
void hf_lock_tag_all(struct hf_locks *locks, uint64_t (*fn)(void *context, const struct hf_lock_view *lock),
		     void *context);

/*
 * SHARE. The owner is @who's client and oh; owner_id and owner_kind are ignored. access and deny are 0-3. OK,
 * CONFLICT, GRACE or LIMIT; unshare without a match is OK.
 */
int hf_lock_share(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access, uint8_t deny,
		  uint32_t client_state, bool reclaim);
int hf_lock_unshare(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access, uint8_t deny);
/* How often has this owner this very (access, deny)? */
uint32_t hf_lock_count_shares(const struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access,
			      uint8_t deny);

/* OUTSIDE: for whoever stands there. */
/* The first piece from @pos on that anybody holds, and the most that is held of it. False: there is none. */
bool hf_lock_next_held(const struct hf_locks *locks, struct hf_bytes handle, uint64_t pos,
		       struct hf_range *rangep, enum hf_lock_mode *modep);
/* Does anybody hold anything in this file, or wait for it? */
bool hf_lock_knows_file(const struct hf_locks *locks, struct hf_bytes handle);
/* Somebody outside may have let go: those who wait for this file have their chance. */
void hf_lock_serve_file(struct hf_locks *locks, struct hf_bytes handle);

/*
 * WALK. One element a call; false at the end. A cursor begins as { 0 } and may be kept and copied over any
 * changes: what exists unchanged from begin to end of a walk is seen exactly once. With @client the
 * locks of that client, with @file of that file, with neither all. Ghosts are not seen. The pointers in the
 * view are valid until the next call that changes something.
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
};

bool hf_lock_next_lock(const struct hf_locks *locks, const struct hf_lock_scope *scope,
		       struct hf_lock_cursor *cursor, struct hf_lock_view *viewp);
bool hf_lock_next_waiter(const struct hf_locks *locks, const struct hf_lock_scope *scope,
			 struct hf_lock_cursor *cursor, struct hf_lock_view *viewp);

/* COUNT */
void hf_lock_count(const struct hf_locks *locks, struct hf_lock_counters *countersp);

/* CHECK: every invariant of every structure. NULL, or what is broken. For tests; costs O(everything). */
const char *hf_locks_check(const struct hf_locks *locks);
