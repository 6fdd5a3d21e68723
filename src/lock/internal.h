/*
 * Inside the lock engine: the records and what the files of this folder offer
 * one another. The picture:
 *
 *	client --owners--> owner --holdings--> holding <---- file (by its locks)
 *	                                        | own: its locks, disjoint, by start
 *	                                        | waiters, grants
 *	file: held[mode]     all locks of a mode, whoever holds them (tree.h)
 *	      waiting[mode]  all waiters of a mode, by range; queue: in order
 *
 * A holding lives while it has a lock, a waiter or a grant; an owner while it
 * has a holding; a file while it has a holding or a share record. Whoever takes
 * something away calls hf_holding_settle(), which lets go of all three.
 */
#pragma once

#include <assert.h>

#include "base/hashtable.h"
#include "base/pool.h"
#include "lock/lock.h"
#include "lock/tree.h"

/* Index of a mode in the trees of a file. */
static inline unsigned int hf_mode_index(enum hf_lock_mode mode)
{
	return mode - 1;
}

static inline bool hf_modes_conflict(enum hf_lock_mode a, enum hf_lock_mode b)
{
	return a == HF_LOCK_EXCLUSIVE || b == HF_LOCK_EXCLUSIVE;
}

/* Everything of a lock but its place. */
struct hf_lock_attrs {
	struct hf_waiter *grant;
	uint32_t state;
	uint32_t epoch;
	uint32_t prior_state;
	uint32_t prior_epoch;
	uint8_t mode;
	uint8_t flags;
	uint8_t prior_mode;
	uint8_t prior_flags;
};

struct hf_waiter {
	uint64_t start;
	uint64_t end;
	uint64_t max_end; /* in the subtree of in_file, + 1 */
	struct hf_holding *holding;
	struct hf_rb_node in_file; /* waiting[mode], by (start, id); while queued */
	struct hf_rb_node by_id;   /* queued: in its client; granted: in locks->grants */
	struct hf_link in_queue;   /* while queued */
	struct hf_link in_holding; /* ->waiters while queued, then ->grants */
	uint64_t id;
	uint64_t order;              /* rises along the queue */
	uint64_t walk;               /* deadlock.c: reached in this walk */
	struct hf_waiter *scan_next; /* waiters.c: candidates of one scan */
	uint64_t offset;
	uint64_t len;
	void *user;
	uint64_t stamp;
	uint32_t state;
	uint8_t mode;
	bool is_volatile;
	bool is_granted;
	bool is_changed;   /* granted: no longer what was granted, see hf_grant_note_change() */
	bool is_left;      /* granted: its program was refused since, see hf_lock_leave_queue() */
	bool no_downgrade; /* lowers nothing, see hf_grant_note_upgrade() */
};

struct hf_holding {
	struct hf_owner *owner;
	struct hf_lock_file *file;
	struct hf_tree own; /* with ghosts */
	uint32_t n_exclusive;
	uint32_t share;             /* by which the owner came to the file first */
	struct hf_rb_node in_owner; /* by the file's id */
	struct hf_list waiters;
	struct hf_list grants;
};

/* Opaque bytes of an owner: short ones (all that we have seen) need no memory of their own. */
struct hf_oh {
	uint8_t *big; /* from oh_pool, if longer than @room */
	uint16_t len;
	uint8_t room[70];
};

struct hf_owner {
	struct hf_hash_node node;
	struct hf_lock_client *client;
	uint64_t id;
	uint64_t seq; /* order of creation */
	uint8_t kind;
	uint32_t n_holdings;
	uint32_t n_waiters; /* queued, in all files */
	struct hf_rb_tree holdings;
	struct hf_holding *newest;   /* the last of them, where the next one mostly goes; NULL: not known */
	uint64_t newest_file;        /* its file's id */
	struct hf_rb_node in_client; /* by seq */
	uint64_t walk;               /* deadlock.c */
	struct hf_owner *walk_next;
	/* Most owners are in one file, and whoever comes to the owner wants to see his holding next: the
	 * first one has its place here. Its file is NULL while it is not in use. */
	struct hf_holding first;
	struct hf_oh oh;
};

struct hf_lock_file {
	struct hf_hash_node node;
	uint64_t id; /* order of creation */
	struct hf_tree held[2];
	struct hf_rb_tree waiting[2];
	struct hf_list queue;
	uint32_t n_locks; /* without ghosts */
	uint32_t n_ghosts;
	uint32_t n_waiters;
	uint32_t n_holdings;
	uint32_t n_share_records;
	uint32_t n_shares;
	uint32_t n_access[2]; /* of them: those that read, those that write */
	uint32_t n_deny[2];   /* those that deny others the one or the other */
	struct hf_list shares;
	struct hf_rb_node by_id;      /* in locks->by_id */
	struct hf_rb_node in_waiting; /* in locks->waiting; if n_waiters */
	struct hf_link in_dirty;      /* in locks->dirty: somebody may run in dirty_range */
	struct hf_range dirty_range;
	uint64_t walk; /* deadlock.c: n_walked is of this walk */
	uint32_t n_walked;
	uint8_t handle_len;
	uint8_t handle[HF_LOCK_HANDLE_MAX];
};

struct hf_share {
	struct hf_hash_node node; /* in locks->shares, by file, client and oh */
	struct hf_lock_file *file;
	struct hf_lock_client *client;
	struct hf_link in_file;
	struct hf_link in_client;
	uint32_t share;
	uint32_t state;
	uint32_t n;           /* sum of count */
	uint32_t count[4][4]; /* by access, deny */
	struct hf_oh oh;
};

/*
 * Whom the call before was about. The next one is often about the same file, the same owner or both (a lock
 * and its unlock), and to compare costs less than to hash. A pointer is NULL if there is no such record.
 */
struct hf_recent {
	uint64_t file_hash;
	struct hf_lock_file *file;
	uint16_t handle_len;
	uint8_t handle[HF_LOCK_HANDLE_MAX];
	uint64_t owner_hash;
	struct hf_owner *owner;
	uint64_t client_id;
	uint64_t owner_id;
	uint8_t owner_kind;
	struct hf_holding *holding; /* of some file and owner; NULL: unknown */
};

/* deadlock.c: who waits for this piece of a holding has been marked. */
struct hf_walk_memo {
	uint64_t walk;
	struct hf_holding *holding;
	struct hf_range range;
	uint64_t order;
	enum hf_lock_mode mode;
};

struct hf_locks {
	struct hf_hashtable files;
	struct hf_hashtable owners;
	struct hf_hashtable shares;
	struct hf_rb_tree by_id;   /* all files */
	struct hf_rb_tree waiting; /* files with waiters, by id */
	size_t n_waiting;
	struct hf_rb_tree grants;   /* in flight, by id */
	struct hf_list unreclaimed; /* locks, with ghosts */
	struct hf_list dirty;
	struct hf_pool lock_pool;
	struct hf_tree_pools trees;
	size_t n_owed; /* locks that will be replaced by another without a reservation: see
			* hf_holding_reserve()
			*/
	struct hf_pool waiter_pool;
	struct hf_pool holding_pool;
	struct hf_pool owner_pool;
	struct hf_pool file_pool;
	struct hf_pool share_pool;
	struct hf_pool oh_pool;
	struct hf_recent *recent;
	const struct hf_lock_events *events;
	void *context;
	const struct hf_lock_outside *outside;
	void *outside_context;
	struct hf_siphash_key key;
	struct hf_lock_limits limits;
	struct hf_lock_counters n;
	uint64_t last_file;
	uint64_t last_owner;
	uint64_t last_client;
	uint64_t last_lock;
	uint64_t last_waiter;
	uint64_t last_walk;
	struct hf_walk_memo memos[8];
	uint32_t last_memo;
	struct hf_lock_group alone; /* of clients that have joined none */
	struct hf_lock_steps steps; /* of all groups */
	uint64_t bytes;             /* of all of them, see room.c */
	uint64_t oh_bytes;
	uint64_t n_steps;   /* of the call under way */
	uint64_t max_steps; /* of the walk under way */
	uint32_t epoch;
	bool is_grace;
	bool is_paused; /* see hf_lock_pause_grants() */
	bool in_event;  /* a call-back runs: nobody may call us */
};

static inline struct hf_range hf_waiter_range(const struct hf_waiter *waiter)
{
	return (struct hf_range){ waiter->start, waiter->end };
}

/* room.c: may the lock table grow? What each record counts for, with its part of hash tables and trees */

enum {
	HF_COST_LOCK = 256, /* by the counters of locks; what there is for a lock in two trees that are hardly
			       filled */
	HF_COST_OWNER = sizeof(struct hf_owner) + 32,
	HF_COST_HOLDING =
		sizeof(struct hf_holding) + sizeof(struct hf_lock_file) + 32, /* each pays for its file */
	HF_COST_WAITER = sizeof(struct hf_waiter),
	HF_COST_SHARE = sizeof(struct hf_share) + sizeof(struct hf_lock_file) + 64,
};
static inline void hf_room_use(struct hf_locks *locks, struct hf_lock_client *client, int64_t bytes)
{
	client->bytes += (uint64_t)bytes;
	client->group->bytes += (uint64_t)bytes;
	locks->bytes += (uint64_t)bytes;
}
/* For @growth more locks of @who? @owner: who asks, if it has something already. */
/* @times: how often the limits count. */
bool hf_room_for_locks(const struct hf_locks *locks, const struct hf_lock_file *file,
		       const struct hf_lock_target *who, const struct hf_owner *owner, int growth,
		       uint64_t times);
bool hf_room_to_wait(struct hf_locks *locks, const struct hf_lock_file *file,
		     const struct hf_lock_target *who, const struct hf_owner *owner);
bool hf_room_for_share(const struct hf_locks *locks, const struct hf_lock_file *file,
		       const struct hf_lock_target *who, bool is_new);
bool hf_room_for_oh(const struct hf_locks *locks, const struct hf_lock_client *client, struct hf_bytes oh);
/* To leave two locks of one, beyond all other limits. */
bool hf_room_to_split(const struct hf_locks *locks, const struct hf_lock_file *file,
		      const struct hf_lock_client *client);

/* owner.c: the record of an owner */

static inline bool hf_oh_is_long(struct hf_bytes bytes)
{
	return bytes.len > sizeof(((struct hf_oh *)NULL)->room);
}
int hf_oh_reserve(struct hf_locks *locks, struct hf_bytes bytes);
void hf_oh_set(struct hf_locks *locks, struct hf_lock_client *client, struct hf_oh *oh,
	       struct hf_bytes bytes);
/* The same where there is room for a long one; otherwise it stays what it was. */
void hf_oh_renew(struct hf_locks *locks, struct hf_lock_client *client, struct hf_oh *oh,
		 struct hf_bytes bytes);
void hf_oh_deinit(struct hf_locks *locks, struct hf_lock_client *client, struct hf_oh *oh);
struct hf_bytes hf_oh_bytes(const struct hf_oh *oh);
uint64_t hf_owner_hash(const struct hf_locks *locks, const struct hf_lock_target *who);
struct hf_owner *hf_owner_find(const struct hf_locks *locks, uint64_t hash, const struct hf_lock_target *who);
struct hf_owner *hf_owner_make(struct hf_locks *locks, uint64_t hash, const struct hf_lock_target *who);
/* Frees @owner if it has no holding. */
void hf_owner_settle(struct hf_locks *locks, struct hf_owner *owner);

/* callback.c: what leaves the engine */

void hf_view_target(const struct hf_holding *holding, struct hf_lock_target *who);
void hf_view_lock(const struct hf_lock *lock, struct hf_lock_view *viewp);
void hf_view_waiter(const struct hf_waiter *waiter, struct hf_lock_view *viewp);
void hf_emit_added(struct hf_locks *locks, struct hf_lock *lock); /* and notes its tag */
void hf_emit_removed(struct hf_locks *locks, const struct hf_lock *lock);
void hf_emit_hidden(struct hf_locks *locks, const struct hf_lock *lock);
void hf_emit_granted(struct hf_locks *locks, const struct hf_waiter *waiter);
void hf_emit_gone(struct hf_locks *locks, const struct hf_waiter *waiter, enum hf_lock_end why);
void hf_emit_share(struct hf_locks *locks, const struct hf_share *share, uint8_t access, uint8_t deny,
		   bool is_reclaim, void (*event)(void *context, const struct hf_lock_share_view *share));
int hf_outside_take(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		    enum hf_lock_mode mode);
int hf_outside_test(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		    enum hf_lock_mode mode, struct hf_lock_view *conflictp);
void hf_outside_settle(struct hf_locks *locks, const struct hf_lock_file *file, struct hf_range range);

/* file.c: the record of a file, and whose locks are in it */

uint64_t hf_lock_file_hash(const struct hf_locks *locks, struct hf_bytes handle);
struct hf_lock_file *hf_lock_file_find(const struct hf_locks *locks, uint64_t hash, struct hf_bytes handle);
struct hf_lock_file *hf_lock_file_of(const struct hf_locks *locks, struct hf_bytes handle);
struct hf_lock_file *hf_lock_file_make(struct hf_locks *locks, uint64_t hash, struct hf_bytes handle);
void hf_lock_file_settle(struct hf_locks *locks, struct hf_lock_file *file);
/* The first lock of @file that ends at @pos or behind, whosoever, or NULL. */
struct hf_lock *hf_lock_file_from(const struct hf_lock_file *file, uint64_t pos, enum hf_lock_mode mode);
/* Lets what hf_lock_file_conflict_at() will read come, while the caller looks at something else. */
struct hf_aim {
	struct hf_tree_leaf *leaf[2];
};
void hf_lock_file_aim(const struct hf_lock_file *file, const struct hf_holding *me, struct hf_range range,
		      struct hf_aim *aimp);
struct hf_lock *hf_lock_file_conflict_at(const struct hf_lock_file *file, const struct hf_aim *aim,
					 const struct hf_holding *me, struct hf_range range,
					 enum hf_lock_mode mode);
/* A lock of @file that is not of @me (which may be NULL) and conflicts, or NULL. O(log n). */
struct hf_lock *hf_lock_file_conflict(const struct hf_lock_file *file, const struct hf_holding *me,
				      struct hf_range range, enum hf_lock_mode mode);

/* waiters.c: the queue of a file */

struct hf_waiter *hf_waiters_find(const struct hf_list *list, struct hf_range range, enum hf_lock_mode mode);
/* Those of a tree of waiters that overlap @range, by start. */
struct hf_waiter *hf_waiters_first_in(const struct hf_rb_tree *tree, struct hf_range range);
struct hf_waiter *hf_waiters_next_in(const struct hf_waiter *waiter, struct hf_range range);
/* A waiter queued before @order, not of @me, that conflicts, or NULL. */
struct hf_waiter *hf_waiters_conflict(struct hf_locks *locks, const struct hf_lock_file *file,
				      const struct hf_holding *me, struct hf_range range,
				      enum hf_lock_mode mode, uint64_t order);
/*
 * Queues @waiter at the end or, with @before, before that one and every other that this deadlock walk has
 * reached, but behind @after (if not NULL), which it must not pass.
 */
void hf_waiters_insert(struct hf_locks *locks, struct hf_waiter *waiter, struct hf_waiter *after,
		       struct hf_waiter *before);
/* The same before everybody else. */
void hf_waiters_insert_first(struct hf_locks *locks, struct hf_waiter *waiter);
/* Out of the queue; @waiter still belongs to its holding and to the caller. */
void hf_waiters_remove(struct hf_locks *locks, struct hf_waiter *waiter);
/* Removes, tells and frees; @waiter is gone. */
void hf_waiters_end(struct hf_locks *locks, struct hf_waiter *waiter, enum hf_lock_end why);
/* Somebody may be able to run in @range of @file. */
void hf_waiters_touch(struct hf_locks *locks, struct hf_lock_file *file, struct hf_range range);
bool hf_waiters_update(struct hf_rb_node *node);

/* holding.c: the record of a holding, and its locks */

struct hf_holding *hf_holding_find(const struct hf_owner *owner, const struct hf_lock_file *file);
struct hf_holding *hf_holding_make(struct hf_locks *locks, struct hf_owner *owner, struct hf_lock_file *file,
				   uint32_t share);
/* Frees @holding if it is empty, and then owner and file likewise. */
void hf_holding_settle(struct hf_locks *locks, struct hf_holding *holding);
/* The first that ends at @pos or behind. */
struct hf_spot hf_holding_from(const struct hf_holding *holding, uint64_t pos);
/* The first that overlaps or touches @range: where a request for @range begins. @holding may be NULL. */
struct hf_spot hf_holding_around(const struct hf_holding *holding, struct hf_range range);
/* Is @range, no more and no less, the lock at @spot? Mostly what is given back is what was taken, and to take
 * that out needs no memory. */
static inline bool hf_holding_is_whole(const struct hf_spot *spot, struct hf_range range)
{
	return spot->at < spot->n && hf_range_equal(hf_spot_range(spot), range);
}
/* @from: hf_holding_from() of the range's start, or hf_holding_around(). */
bool hf_holding_covers(struct hf_spot from, struct hf_range range, enum hf_lock_mode mode);
bool hf_holding_conflicts(const struct hf_holding *holding, struct hf_range range, enum hf_lock_mode mode);
void hf_attrs_of(const struct hf_lock *lock, struct hf_lock_attrs *attrsp);
bool hf_attrs_can_merge(const struct hf_lock_attrs *a, const struct hf_lock_attrs *b);
/*
 * 0 or -ENOMEM: @n more records can be put. What a grant in flight has replaced can be put back at any time
 * without a reservation (a client's death and a refusal always finish), so there is always memory for that.
 */
int hf_holding_reserve(struct hf_locks *locks, size_t n);
/* Where a lock may belong in its two sets, as found since they last changed. */
struct hf_hint {
	struct hf_tree_leaf *own;
	struct hf_aim file;
};
/* Puts a lock where the owner has none, without merging and without an event. */
struct hf_lock *hf_holding_put(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range,
			       const struct hf_lock_attrs *attrs, const struct hf_hint *hint);
/* The same, but the caller will put it in the set of the file. */
struct hf_lock *hf_holding_put_aside(struct hf_locks *locks, struct hf_holding *holding,
				     struct hf_range range, const struct hf_lock_attrs *attrs,
				     struct hf_tree_leaf *hint);
/* The same, for those who say themselves whom that lets run. */
void hf_holding_take_out(struct hf_locks *locks, struct hf_lock *lock, const struct hf_hint *hint);
/* Takes away one whole lock. */
void hf_holding_remove(struct hf_locks *locks, struct hf_lock *lock);
/* A lock becomes a ghost: in the table as before, but out of lists and counts. */
void hf_holding_hide(struct hf_locks *locks, struct hf_lock *lock);

/* place.c: the records of a target, as far as they exist */

struct hf_place {
	uint64_t file_hash;
	uint64_t owner_hash;
	struct hf_lock_file *file;
	struct hf_owner *owner;
	struct hf_holding *holding;
};
void hf_recent_init(struct hf_recent *recent);
void hf_place_find(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_place *placep);
/* Makes sure that hf_place_make() has memory; it cannot fail then. */
int hf_place_reserve(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_place *place);
/* Creates what is missing and notes the oh. */
void hf_place_make(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_place *place);

/* replace.c: a request replaces what its owner holds */

/*
 * What a replacement of @range by @attrs would add to the number of records. @around is where
 * hf_holding_around() was.
 */
int hf_holding_growth(struct hf_spot around, struct hf_range range, const struct hf_lock_attrs *attrs);
/* Replaces what the owner holds in @range, merging at its edges. Needs HF_REPLACE_RECORDS free records. */
enum {
	HF_REPLACE_RECORDS = 3,
};
void hf_holding_replace(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range,
			const struct hf_lock_attrs *attrs);
/* Likewise, by somebody who has been there; without @attrs @around may be hf_holding_from(). */
void hf_holding_replace_at(struct hf_locks *locks, struct hf_holding *holding, struct hf_spot around,
			   const struct hf_aim *aim, struct hf_range range,
			   const struct hf_lock_attrs *attrs);

/* deadlock.c: who waits for whom */

/* Marks every owner and waiter that waits, directly or not, for @owner, and returns the list of owners. */
struct hf_owner *hf_deadlock_walk(struct hf_locks *locks, struct hf_owner *owner, uint64_t max_steps);
bool hf_deadlock_is_unclear(const struct hf_locks *locks); /* the last walk was cut off */
static inline bool hf_deadlock_reached(const struct hf_locks *locks, const struct hf_waiter *waiter)
{
	return waiter->walk == locks->last_walk;
}
/* Would a request in @file for @range wait for one of the marked owners? */
bool hf_deadlock_holds(const struct hf_owner *marked, const struct hf_lock_file *file, struct hf_range range,
		       enum hf_lock_mode mode);

/* grant.c: what a grant in flight changes */

int hf_grant_waiter(struct hf_locks *locks,
		    struct hf_waiter *waiter); /* OK, or as outside, or -ENOMEM: nothing happened */
struct hf_waiter *hf_grant_find(const struct hf_holding *holding, struct hf_range range,
				enum hf_lock_mode mode);
struct hf_waiter *hf_grant_by_id(const struct hf_locks *locks, uint64_t id);
/* Is all that was granted still held? Goes through all of its pieces. */
bool hf_grant_is_whole(const struct hf_waiter *grant);
/* From the first to the last of what must not be lowered in @range, because of exclusive grants in flight
 * other than @but; empty if start > end. */
struct hf_range hf_grant_guarded(const struct hf_holding *holding, struct hf_range range,
				 const struct hf_waiter *but);
/* Is the beginning of @part? Shortens it to what is as its beginning is. */
bool hf_grant_is_guarded(struct hf_range guarded, struct hf_range *part);
/* The owner has @part of @lock, which is more than that, and has @less of it if the grant is undone. */
void hf_grant_set_prior(struct hf_locks *locks, const struct hf_lock *lock, struct hf_range part,
			const struct hf_lock_attrs *less);
/*
 * The owner has @mode (NONE: nothing) in @range from now on, by a request of its own: its grants in flight of
 * another mode are not what they were. Costs by the number of grants, not by what they consist of.
 */
void hf_grant_note_change(struct hf_holding *holding, struct hf_range range, enum hf_lock_mode mode);
/* The owner has @range exclusively, by a request of its own, and waits for some of it shared since earlier:
 * that wait lowers nothing, for the client may hear of it first. */
void hf_grant_note_upgrade(const struct hf_holding *holding, struct hf_range range);
/*
 * The owner waits for the very range of a grant in flight, in another mode. Clients know a grant by owner and
 * range alone: told once more of the old one, they would take it for the new one.
 */
void hf_grant_note_wait(const struct hf_waiter *waiter);
/* Needs HF_REPLACE_RECORDS + 2 free records. */
void hf_grant_confirm(struct hf_locks *locks, struct hf_waiter *grant, bool downgrades);
/* Needs no memory: each piece makes room for what it was before; but see grant.c for others in flight. */
void hf_grant_undo(struct hf_locks *locks, struct hf_waiter *grant);
/* The owner has nothing in @range any more, for no reason of its own: what is granted of it, in flight, is
 * granted still. Where that cannot be, those grants are not what they were. */
void hf_grant_apply_again(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range);
/* It is no grant in flight any more, and the caller's. */
void hf_grant_unlink(struct hf_locks *locks, struct hf_waiter *grant);
/* Tells and frees; the pieces must have been settled. @grant is gone. */
void hf_grant_end(struct hf_locks *locks, struct hf_waiter *grant, enum hf_lock_end why);

/* reclaim.c: locks from before a restart */

/* Is every byte of the range held in that mode or more, reclaimed or not? */
bool hf_reclaim_is_backed(const struct hf_holding *holding, struct hf_range range, enum hf_lock_mode mode);

/* share.c: reservations */

void hf_share_purge(struct hf_locks *locks, struct hf_lock_client *client, bool all, uint32_t state,
		    uint32_t also);
