/*
 * Inside the lock engine: its records, and the functions that its files offer each other.
 *
 *	client --owners--> owner --holdings--> holding --> file
 *	                                        | own: its locks, disjoint, by start
 *	                                        | waiters, grants
 *	file: trees[mode]    all locks of a mode, of all owners (tree.h)
 *	      waiting[mode]  all waiters of a mode, by range; queue: in order
 *
 * A holding exists while it has a lock, a waiter or a grant; an owner while it has a
 * holding; a file while it has a holding or a reservation. A function that removes one
 * of these calls hf_holding_free_if_empty(), which frees the records that are empty.
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

/* Everything of a lock except its file, owner and range. */
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
	uint64_t max_end; /* the largest end + 1 in the subtree of in_file */
	struct hf_holding *holding;
	struct hf_rb_node in_file; /* waiting[mode], by (start, id); while queued */
	struct hf_rb_node by_id;   /* queued: in its client; granted: in locks->grants */
	struct hf_link in_queue;   /* while queued */
	struct hf_link in_holding; /* ->waiters while queued, then ->grants */
	uint64_t id;
	uint64_t order;              /* rises along the queue */
	uint64_t walk;               /* deadlock.c: the last walk that reached it */
	struct hf_waiter *scan_next; /* serve.c: the next candidate */
	uint64_t offset;
	uint64_t len;
	void *user;
	uint64_t tag; /* see struct hf_lock_view */
	uint64_t stamp;
	uint32_t state;
	uint32_t export; /* of the last request for it, which may not be that of the holding */
	uint8_t mode;
	bool is_volatile;
	bool is_granted;
	bool is_changed;   /* granted: the owner has changed the lock since, see hf_grant_note_change() */
	bool is_left;      /* granted: its program was refused since, see hf_lock_leave_queue() */
	bool no_downgrade; /* its grant downgrades nothing, see hf_grant_note_upgrade() */
};

struct hf_holding {
	struct hf_owner *owner;
	struct hf_lock_file *file;
	struct hf_tree own; /* its locks, including ghosts */
	uint32_t n_exclusive;
	uint32_t export;            /* the export by which the owner first came to the file */
	struct hf_rb_node in_owner; /* by the file's id */
	struct hf_list waiters;
	struct hf_list grants;
};

/* The owner handle: opaque bytes of an owner. A short one, as every known client sends, needs no extra
 * memory. */
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
	struct hf_holding
		*newest;      /* the last of them, behind which the next one usually goes; NULL: not known */
	uint64_t newest_file; /* its file's id */
	struct hf_rb_node in_client; /* by seq */
	uint64_t walk;               /* deadlock.c: the last walk that reached it */
	struct hf_owner *walk_next;
	/* Most owners are in one file, and a search for the owner reads its holding next. So the first
	 * holding is embedded here. Its file is NULL while it is not in use. */
	struct hf_holding first;
	struct hf_oh oh;
};

struct hf_lock_file {
	struct hf_hash_node node;
	uint64_t id; /* order of creation */
	struct hf_tree trees[2];
	struct hf_rb_tree waiting[2];
	struct hf_list queue;
	uint32_t n_locks; /* without ghosts */
	uint32_t n_ghosts;
	uint32_t n_waiters;
	uint32_t n_holdings;
	uint32_t n_reservation_records;
	uint32_t n_reservations;
	uint32_t n_access[2]; /* of n_reservations: those that read, those that write */
	uint32_t n_deny[2];   /* of n_reservations: those that deny reading, those that deny writing */
	struct hf_list reservations;
	struct hf_rb_node by_id;      /* in locks->by_id */
	struct hf_rb_node in_waiting; /* in locks->waiting; if n_waiters */
	struct hf_link in_dirty;      /* in locks->dirty: a waiter may be able to run in dirty_range */
	struct hf_range dirty_range;
	uint64_t walk; /* deadlock.c: the walk that n_walked belongs to */
	uint32_t n_walked;
	struct hf_link in_crowd; /* in one of locks->crowds, if it has many locks, waiters or reservations */
	uint8_t crowd;           /* which; 0: none */
	uint8_t handle_len;
	uint8_t handle[HF_LOCK_HANDLE_MAX];
};

struct hf_lock_reservation {
	struct hf_hash_node node; /* in locks->reservations, by file, client and oh */
	struct hf_lock_file *file;
	struct hf_lock_client *client;
	struct hf_link in_file;
	struct hf_link in_client;
	struct hf_rb_node in_order; /* in locks->reservation_order */
	uint64_t seq;               /* order of creation */
	struct hf_link unreclaimed; /* in locks->unreclaimed_reservations, while n_unreclaimed */
	uint64_t tag;
	uint32_t export;
	uint32_t state;
	uint32_t count;         /* that the owner holds */
	uint32_t n_unreclaimed; /* restored, and not reclaimed yet */
	uint32_t n_unsure;      /* of count: the owner was told to ask again */
	uint64_t mark;          /* of the last request; 0: it had none */
	bool is_restored;       /* and no other request came since */
	uint8_t access;
	uint8_t deny;
	struct hf_oh oh;
};

/*
 * The file, owner and holding of the last call. The next call is often about the same ones (a lock and its
 * unlock), and to compare costs less than to hash. A pointer is NULL if there is no such record.
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
	struct hf_holding *holding; /* of any file and owner; NULL: unknown */
};

/* deadlock.c: the walk has marked all waiters that this piece of a holding blocks. */
struct hf_walk_memo {
	uint64_t walk;
	struct hf_holding *holding;
	struct hf_range range;
	uint64_t order;
	enum hf_lock_mode mode;
};

/* A file with so many locks, waiters and reservations together is in a crowd. The last crowd is beyond the
 * sum of three numbers of 32 bits. */
#define HF_CROWD    8
#define HF_N_CROWDS 32

struct hf_locks {
	struct hf_hashtable files;
	struct hf_hashtable owners;
	struct hf_hashtable reservations;
	struct hf_rb_tree reservation_order; /* by client, then by seq; for lists */
	struct hf_rb_tree by_id;             /* all files */
	struct hf_rb_tree waiting;           /* files with waiters, by id */
	size_t n_waiting;
	struct hf_rb_tree grants;   /* in flight, by id */
	struct hf_list unreclaimed; /* locks, including ghosts */
	struct hf_list unreclaimed_reservations;
	struct hf_list dirty;
	struct hf_list crowds[HF_N_CROWDS]; /* files by their size, see crowd.c */
	struct hf_pool lock_pool;
	struct hf_tree_pools trees;
	size_t n_owed; /* locks that another one replaces without a reservation, see hf_holding_reserve() */
	struct hf_pool waiter_pool;
	struct hf_pool holding_pool;
	struct hf_pool owner_pool;
	struct hf_pool file_pool;
	struct hf_pool reservation_pool;
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
	uint64_t last_reservation;
	uint64_t last_walk;
	struct hf_walk_memo memos[8];
	uint32_t last_memo;
	struct hf_lock_group alone;    /* the group of clients that have joined none */
	struct hf_lock_steps steps;    /* charged to all groups together */
	uint64_t refused[HF_N_LIMITS]; /* requests, by the limit that was reached */
	uint64_t bytes;                /* of all records except locks, see room.c */
	uint64_t oh_bytes;
	uint64_t least_locks; /* the least of the limits of locks */
	uint64_t least_bytes; /* the least of the limits of bytes */
	uint64_t n_steps;     /* of the call under way */
	uint64_t n_charged;   /* since hf_lock_take_steps() */
	uint64_t max_steps;   /* where the walk under way ends */
	uint32_t epoch;
	bool is_grace;
	bool is_paused; /* see hf_lock_pause_grants() */
	bool in_event;  /* a call-back runs: it must not call the engine */
};

static inline struct hf_range hf_waiter_range(const struct hf_waiter *waiter)
{
	return (struct hf_range){ waiter->start, waiter->end };
}

/* room.c: may the lock table grow? HF_COST_* is the most that a record costs, with its part of hash tables.
 */

enum {
	HF_COST_LOCK = 256, /* for each lock in the counters: in two trees of which little is filled */
	HF_COST_OWNER = sizeof(struct hf_owner) + 32,
	HF_COST_HOLDING =
		sizeof(struct hf_holding) + sizeof(struct hf_lock_file) + 32, /* each pays for its file */
	HF_COST_WAITER = sizeof(struct hf_waiter),
	HF_COST_RESERVATION = sizeof(struct hf_lock_reservation) + sizeof(struct hf_lock_file) + 64,
};
void hf_room_init(struct hf_locks *locks); /* when the limits are set */
static inline void hf_room_use(struct hf_locks *locks, struct hf_lock_client *client, int64_t bytes)
{
	client->bytes += (uint64_t)bytes;
	client->group->bytes += (uint64_t)bytes;
	locks->bytes += (uint64_t)bytes;
}
/* May @who have @growth more locks? @owner: its record, NULL if it has none. @is_doubled: the limits count
 * twice their value. */
bool hf_room_for_locks(const struct hf_locks *locks, const struct hf_lock_file *file,
		       const struct hf_lock_target *who, const struct hf_owner *owner, int growth,
		       bool is_doubled);
bool hf_room_to_wait(struct hf_locks *locks, const struct hf_lock_file *file,
		     const struct hf_lock_target *who, const struct hf_owner *owner);
/* @is_new: no record of the same reservation is there. A reclaim may use twice the limits of memory: it may
 * come in another order than the reservations were made in. */
bool hf_room_for_reservation(const struct hf_locks *locks, const struct hf_lock_file *file,
			     const struct hf_lock_target *who, bool is_new, bool is_reclaim);
/* A request was refused: counts it for the limit that is reached. Returns HF_LOCK_E_LIMIT. */
enum hf_room_request {
	HF_ROOM_TO_LOCK,
	HF_ROOM_TO_WAIT,
	HF_ROOM_TO_RESERVE,
	HF_ROOM_TO_SEARCH, /* it would take too many steps */
};
HF_NOINLINE int hf_room_refuse(struct hf_locks *locks, const struct hf_lock_file *file,
			       const struct hf_lock_target *who, enum hf_room_request what, uint64_t n);
bool hf_room_for_oh(const struct hf_locks *locks, const struct hf_lock_client *client, struct hf_bytes oh);
/* May an unlock split a lock in two? Up to twice the limits of locks. */
bool hf_room_to_split(const struct hf_locks *locks, const struct hf_lock_file *file,
		      const struct hf_lock_client *client);
/* hf_lock_is_scarce(); @file is NULL if there is no record of it. */
bool hf_room_is_scarce(const struct hf_locks *locks, const struct hf_lock_file *file, struct hf_bytes oh);

/* owner.c: the record of an owner, and its owner handle. */

static inline bool hf_oh_is_long(struct hf_bytes bytes)
{
	return bytes.len > sizeof(((struct hf_oh *)NULL)->room);
}
int hf_oh_reserve(struct hf_locks *locks, struct hf_bytes bytes);
void hf_oh_set(struct hf_locks *locks, struct hf_lock_client *client, struct hf_oh *oh,
	       struct hf_bytes bytes);
/* The same, but if the new oh is long and there is no room for it, the old one stays. */
void hf_oh_renew(struct hf_locks *locks, struct hf_lock_client *client, struct hf_oh *oh,
		 struct hf_bytes bytes);
void hf_oh_deinit(struct hf_locks *locks, struct hf_lock_client *client, struct hf_oh *oh);
static inline struct hf_bytes hf_oh_bytes(const struct hf_oh *oh)
{
	return hf_bytes_of(oh->big ? oh->big : oh->room, oh->len);
}
uint64_t hf_owner_hash(const struct hf_locks *locks, const struct hf_lock_target *who);
struct hf_owner *hf_owner_find(const struct hf_locks *locks, uint64_t hash, const struct hf_lock_target *who);
struct hf_owner *hf_owner_make(struct hf_locks *locks, uint64_t hash, const struct hf_lock_target *who);
/* Frees @owner if it has no holding. */
void hf_owner_free_if_empty(struct hf_locks *locks, struct hf_owner *owner);

/* callback.c: every call that leaves the engine. The outside functions answer OK if there is no outside. */

void hf_view_target(const struct hf_holding *holding, struct hf_lock_target *who);
void hf_view_lock(const struct hf_lock *lock, struct hf_lock_view *viewp);
void hf_view_waiter(const struct hf_waiter *waiter, struct hf_lock_view *viewp);
void hf_emit_added(struct hf_locks *locks, struct hf_lock *lock); /* notes the tag that the event returns */
void hf_emit_removed(struct hf_locks *locks, const struct hf_lock *lock, enum hf_lock_cause cause);
void hf_emit_hidden(struct hf_locks *locks, const struct hf_lock *lock);
void hf_emit_granted(struct hf_locks *locks, const struct hf_waiter *waiter);
void hf_emit_passed(struct hf_locks *locks, struct hf_waiter *waiter);
void hf_emit_queued(struct hf_locks *locks, struct hf_waiter *waiter);
void hf_emit_gone(struct hf_locks *locks, const struct hf_waiter *waiter, enum hf_lock_end why);
void hf_view_reservation(const struct hf_lock_reservation *reservation,
			 struct hf_lock_reservation_view *viewp);
/* Each notes the tag that the event returns. */
void hf_emit_reservation_added(struct hf_locks *locks, struct hf_lock_reservation *reservation,
			       bool is_reclaim);
void hf_emit_reservation_removed(struct hf_locks *locks, struct hf_lock_reservation *reservation, uint32_t n,
				 enum hf_lock_cause cause);
int hf_outside_take(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		    enum hf_lock_mode mode);
int hf_outside_test(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		    enum hf_lock_mode mode, struct hf_lock_view *conflictp);
void hf_outside_trim(struct hf_locks *locks, const struct hf_lock_file *file, struct hf_range range);

/* file.c: the record of a file, and which lock in it is in the way. */

uint64_t hf_lock_file_hash(const struct hf_locks *locks, struct hf_bytes handle);
struct hf_lock_file *hf_lock_file_find(const struct hf_locks *locks, uint64_t hash, struct hf_bytes handle);
struct hf_lock_file *hf_lock_file_of(const struct hf_locks *locks, struct hf_bytes handle);
struct hf_lock_file *hf_lock_file_make(struct hf_locks *locks, uint64_t hash, struct hf_bytes handle);
/* Frees @file if no holding and no reservation refers to it. */
void hf_lock_file_free_if_unused(struct hf_locks *locks, struct hf_lock_file *file);
/* Prefetches what hf_lock_file_conflict_at() reads, while the caller does something else. */
struct hf_aim {
	struct hf_tree_leaf *leaf[2];
};
void hf_lock_file_aim(const struct hf_lock_file *file, const struct hf_holding *me, struct hf_range range,
		      struct hf_aim *aimp);
struct hf_lock *hf_lock_file_conflict_at(const struct hf_lock_file *file, const struct hf_aim *aim,
					 const struct hf_holding *me, struct hf_range range,
					 enum hf_lock_mode mode);
/* A conflicting lock of @file that is not of @me (which may be NULL), or NULL. O(log n). */
struct hf_lock *hf_lock_file_conflict(const struct hf_lock_file *file, const struct hf_holding *me,
				      struct hf_range range, enum hf_lock_mode mode);

/* crowd.c: which file has the most? */

void hf_crowd_move(struct hf_locks *locks, struct hf_lock_file *file);
/* The file has one lock, waiter or reservation more or less, or several. */
static inline void hf_crowd_note(struct hf_locks *locks, struct hf_lock_file *file)
{
	if (HF_UNLIKELY(file->crowd ||
			(uint64_t)file->n_locks + file->n_waiters + file->n_reservations >= HF_CROWD))
		hf_crowd_move(locks, file);
}
bool hf_crowd_is_right(const struct hf_lock_file *file); /* for hf_locks_check() */

/* waiters.c: the queue of a file. */

struct hf_waiter *hf_waiters_find(const struct hf_list *list, struct hf_range range, enum hf_lock_mode mode);
/* The waiters of a tree that overlap @range, by start. */
struct hf_waiter *hf_waiters_first_in(const struct hf_rb_tree *tree, struct hf_range range);
struct hf_waiter *hf_waiters_next_in(const struct hf_waiter *waiter, struct hf_range range);
/* A conflicting waiter before @order that is not of @me, or NULL. */
struct hf_waiter *hf_waiters_conflict(struct hf_locks *locks, const struct hf_lock_file *file,
				      const struct hf_holding *me, struct hf_range range,
				      enum hf_lock_mode mode, uint64_t order);
/*
 * Queues @waiter at the end. With @before: before @before and every other waiter that the last deadlock walk
 * has reached, but behind @after (if not NULL), which it must not pass.
 */
void hf_waiters_insert(struct hf_locks *locks, struct hf_waiter *waiter, struct hf_waiter *after,
		       struct hf_waiter *before);
/* Queues @waiter before all other waiters of the file. */
void hf_waiters_insert_first(struct hf_locks *locks, struct hf_waiter *waiter);
/* Removes @waiter from the queue. The caller owns it then. */
void hf_waiters_remove(struct hf_locks *locks, struct hf_waiter *waiter);
/* Removes @waiter from the queue, sends waiter_gone and frees it. */
void hf_waiters_end(struct hf_locks *locks, struct hf_waiter *waiter, enum hf_lock_end why);
/* A waiter may be able to run in @range of @file: hf_serve_waiters() will look. */
void hf_waiters_touch(struct hf_locks *locks, struct hf_lock_file *file, struct hf_range range);
bool hf_waiters_update(struct hf_rb_node *node);

/* holding.c: the record of a holding, and its locks. */

struct hf_holding *hf_holding_find(const struct hf_owner *owner, const struct hf_lock_file *file);
struct hf_holding *hf_holding_make(struct hf_locks *locks, struct hf_owner *owner, struct hf_lock_file *file,
				   uint32_t export);
/* Frees @holding if it is empty, and then its owner and its file if nothing refers to them. */
void hf_holding_free_if_empty(struct hf_locks *locks, struct hf_holding *holding);
/* The first lock that ends at @pos or behind. */
struct hf_spot hf_holding_from(const struct hf_holding *holding, uint64_t pos);
/* The first lock that overlaps or touches @range, or lies behind it. @holding may be NULL. */
struct hf_spot hf_holding_around(const struct hf_holding *holding, struct hf_range range);
/* Is @range exactly the range of the lock at @spot? Most unlocks are, and they need no memory. */
static inline bool hf_holding_is_whole(const struct hf_spot *spot, struct hf_range range)
{
	return spot->at < spot->n && hf_range_equal(hf_spot_range(spot), range);
}
/*
 * A caller follows the owner's locks from a position to the first gap. It begins with hf_holding_from() or
 * hf_holding_around(), and ends where hf_stretch_lock() is NULL, or where it has seen enough. @pos is the
 * first byte behind the locks that it has passed.
 */
struct hf_stretch {
	struct hf_spot spot;
	uint64_t pos;
};
static inline struct hf_lock *hf_stretch_lock(struct hf_stretch *stretch)
{
	if (hf_spot_lock(&stretch->spot) && hf_spot_range(&stretch->spot).end < stretch->pos)
		hf_spot_next(&stretch->spot); /* it only touches */
	return hf_spot_lock(&stretch->spot) && hf_spot_range(&stretch->spot).start <= stretch->pos
		       ? hf_spot_lock(&stretch->spot)
		       : NULL;
}
static inline void hf_stretch_next(struct hf_stretch *stretch)
{
	stretch->pos = hf_spot_range(&stretch->spot).end + 1;
	hf_spot_next(&stretch->spot);
}
/* The part of [@pos, @end] that begins at @pos: within the lock *@lockp, or a gap, and *@lockp is NULL. */
struct hf_range hf_holding_part(const struct hf_holding *holding, uint64_t pos, uint64_t end,
				struct hf_lock **lockp);
/* Is the whole range held in exactly this mode? @from: hf_holding_from() of its start, or
 * hf_holding_around(). */
bool hf_holding_has_all(struct hf_spot from, struct hf_range range, enum hf_lock_mode mode);
/* Does a lock of @holding conflict with a foreign request? */
bool hf_holding_conflicts(const struct hf_holding *holding, struct hf_range range, enum hf_lock_mode mode);
void hf_attrs_of(const struct hf_lock *lock, struct hf_lock_attrs *attrsp);
bool hf_attrs_can_merge(const struct hf_lock_attrs *a, const struct hf_lock_attrs *b);
/*
 * Reserves memory for @n more locks: 0 or -ENOMEM. A refusal and the purge of a client always finish: they
 * put back what a grant in flight has replaced without a reservation, so memory for that is always reserved
 * too.
 */
int hf_holding_reserve(struct hf_locks *locks, size_t n);
/* The leaves of its two sets where a lock may belong. Valid until the sets change. */
struct hf_hint {
	struct hf_tree_leaf *own;
	struct hf_aim file;
};
/* Adds a lock where the owner has none, without merging and without an event. */
struct hf_lock *hf_holding_put(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range,
			       const struct hf_lock_attrs *attrs, const struct hf_hint *hint);
/* The same, but the caller inserts the lock into the set of the file later. */
struct hf_lock *hf_holding_put_aside(struct hf_locks *locks, struct hf_holding *holding,
				     struct hf_range range, const struct hf_lock_attrs *attrs,
				     struct hf_tree_leaf *hint);
/* A restored lock is its owner's, without a reclaim. */
void hf_holding_accept(struct hf_locks *locks, struct hf_lock *lock);
/* Removes a lock and frees it. The caller calls hf_waiters_touch(). */
void hf_holding_take_out(struct hf_locks *locks, struct hf_lock *lock, const struct hf_hint *hint,
			 enum hf_lock_cause cause);
/* Removes a lock, frees it, and touches its range. */
void hf_holding_remove(struct hf_locks *locks, struct hf_lock *lock, enum hf_lock_cause cause);
/* Turns a lock into a ghost: it stays in the table, but not in lists and counts. */
void hf_holding_hide(struct hf_locks *locks, struct hf_lock *lock);

/* target.c: which records does a target have? Those that do not exist are NULL. */

struct hf_found {
	uint64_t file_hash;
	uint64_t owner_hash;
	struct hf_lock_file *file;
	struct hf_owner *owner;
	struct hf_holding *holding;
};
void hf_recent_init(struct hf_recent *recent);
void hf_target_find(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_found *foundp);
/* Reserves memory for hf_target_make(), which cannot fail then. */
int hf_target_reserve(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_found *found);
/* Creates the missing records and notes the oh. */
void hf_target_make(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_found *found);

/* replace.c: a request replaces what its owner holds. */

/* How many locks a replacement of @range by @attrs would add (< 0: remove). @around: hf_holding_around(). */
int hf_holding_growth(struct hf_spot around, struct hf_range range, const struct hf_lock_attrs *attrs);
/* Replaces what the owner holds in @range by a lock with @attrs (NULL: by nothing), and merges at its edges.
 * Needs so many reserved locks. */
enum {
	HF_REPLACE_RECORDS = 3,
};
void hf_holding_replace(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range,
			const struct hf_lock_attrs *attrs);
/* The same for a caller that has searched already. Without @attrs, @around may be hf_holding_from(). */
void hf_holding_replace_at(struct hf_locks *locks, struct hf_holding *holding, struct hf_spot around,
			   const struct hf_aim *aim, struct hf_range range,
			   const struct hf_lock_attrs *attrs);

/* deadlock.c: which owners wait for an owner? */

/* Marks every owner and waiter that waits, directly or through others, for @owner. Returns the list of these
 * owners. */
struct hf_owner *hf_deadlock_walk(struct hf_locks *locks, struct hf_owner *owner, uint64_t max_steps);
bool hf_deadlock_is_unclear(const struct hf_locks *locks); /* the last walk was cut off */
static inline bool hf_deadlock_reached(const struct hf_locks *locks, const struct hf_waiter *waiter)
{
	return waiter->walk == locks->last_walk;
}
/* Would a request in @file for @range wait for one of the marked owners? */
bool hf_deadlock_blocks(const struct hf_owner *marked, const struct hf_lock_file *file, struct hf_range range,
			enum hf_lock_mode mode);

/* grant.c: what does a grant in flight change, and how is that undone? */

/* Grants @waiter its lock. OK, or an answer of hf_outside_take(), or -ENOMEM: nothing has changed. */
int hf_grant_waiter(struct hf_locks *locks, struct hf_waiter *waiter);
struct hf_waiter *hf_grant_find(const struct hf_holding *holding, struct hf_range range,
				enum hf_lock_mode mode);
struct hf_waiter *hf_grant_by_id(const struct hf_locks *locks, uint64_t id);
/* Does the owner still hold all that was granted? Visits all pieces. */
bool hf_grant_is_whole(const struct hf_waiter *grant);
/* The smallest range that contains all exclusive grants in flight, other than @but, that overlap @range. It
 * must not be downgraded. Empty if start > end. */
struct hf_range hf_grant_guarded(const struct hf_holding *holding, struct hf_range range,
				 const struct hf_waiter *but);
/* Is the start of @part guarded? Shortens @part to where that changes. */
bool hf_grant_is_guarded(struct hf_range guarded, struct hf_range *part);
/* If @lock is a piece of a grant in flight, undoing the grant leaves the weaker lock @less in @part. */
void hf_grant_set_prior(struct hf_locks *locks, const struct hf_lock *lock, struct hf_range part,
			const struct hf_lock_attrs *less);
/*
 * The owner has @mode (NONE: nothing) in @range now, by a request of its own. Marks its grants in flight of
 * another mode there as changed. The cost is that of the number of grants, not of their pieces.
 */
void hf_grant_note_change(struct hf_holding *holding, struct hf_range range, enum hf_lock_mode mode);
/* The owner has taken @range exclusively, by a request of its own. An earlier shared request of it that still
 * waits there will not downgrade that: the client may learn of that grant first. */
void hf_grant_note_upgrade(const struct hf_holding *holding, struct hf_range range);
/*
 * The owner waits for exactly the range of a grant in flight, in another mode. Marks that grant as changed.
 * Clients identify a grant by owner and range alone: a client that is told again of the old grant would take
 * it for the new one.
 */
void hf_grant_note_wait(const struct hf_waiter *waiter);
/* Turns the pieces into ordinary locks. Needs HF_REPLACE_RECORDS + 2 reserved locks. */
void hf_grant_confirm(struct hf_locks *locks, struct hf_waiter *grant, bool downgrades);
/* Ends the holding's grants in flight: all, or those that have changed. The owner has what is left of their
 * locks, and its exclusive locks stay exclusive. -ENOMEM: some grants are left. */
int hf_grant_assume(struct hf_locks *locks, struct hf_holding *holding, bool all);
/* Gives back what the owner had before. Needs no memory: each piece leaves its record to what it replaced.
 * Other grants in flight that overlap may need some: see reserve_to_apply(). */
void hf_grant_undo(struct hf_locks *locks, struct hf_waiter *grant);
/* A purge has removed the owner's lock in @range. Applies its grants in flight there again. Without memory,
 * or if there are many, marks them as changed instead. */
void hf_grant_apply_again(struct hf_locks *locks, struct hf_holding *holding, struct hf_range range);
/* Removes @grant from the grants in flight. The caller owns it then. */
void hf_grant_unlink(struct hf_locks *locks, struct hf_waiter *grant);
/* Removes @grant, sends waiter_gone and frees it. Its pieces must be confirmed, undone or removed before. */
void hf_grant_end(struct hf_locks *locks, struct hf_waiter *grant, enum hf_lock_end why);

/* reclaim.c: locks from before a restart. */

/* Does the owner hold every byte of the range in that mode or a stronger one, reclaimed or not? */
bool hf_reclaim_is_backed(const struct hf_holding *holding, struct hf_range range, enum hf_lock_mode mode);

/* reservation.c: reservations. */

struct hf_purge {
	struct hf_locks *locks;
	bool all;
	const uint32_t *living; /* the state numbers of the new life */
	size_t n_living;
};

/* Does the purge remove what carries this state number? */
static inline bool hf_purge_is_dead(const struct hf_purge *purge, uint32_t state)
{
	for (size_t i = 0; i < purge->n_living && state != 0; i++)
		if (purge->living[i] == state)
			return false;
	return true;
}
/* Removes the reservations of @client that are dead. */
void hf_reservations_purge(const struct hf_purge *purge, struct hf_lock_client *client);
/* What was restored is its owner's, without a reclaim; but not of clients that outlive grace. */
void hf_reservations_accept_restored(struct hf_locks *locks);
/* Drops what is unreclaimed of @client, or, if NULL, of all that do not outlive grace. */
void hf_reservations_drop_unreclaimed(struct hf_locks *locks, struct hf_lock_client *client);
