/*
 * The store: makes facts durable and gives them back after a crash.
 *
 * It knows no protocol. The facts are the server's own state, the registrations
 * of clients, locks and share reservations; whoever grants something writes the
 * fact and gets a ticket, a rising number, and speaks to the client only when
 * the store has reached that ticket, that is, when the fact is as durable as was
 * promised:
 *
 *	registrations  synced, always
 *	locks, shares  by lock_durability: none, at once; process, when the death
 *	               of the daemon loses nothing; machine, when synced
 *
 * One commit is made for all that happened in a turn of the loop. What is put
 * and deleted again within one turn is not written at all.
 *
 * When a write cannot be made durable the store turns unhealthy: on_failed tells
 * which tickets will never be reached, so that grants are undone before anybody
 * hears of them; writes are refused with -EROFS; and the store tries to come
 * back, with growing gaps. Then on_resync asks for everything that is true now;
 * that replaces, in one piece, whatever is stored.
 *
 * Everything here belongs to the loop's thread. Call-backs come from the loop,
 * never from within a put or a delete.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/bytes.h"
#include "base/cleanup.h"

struct hf_loop;
struct hf_store;
struct hf_store_ops;

/* Bounds: what is longer is refused with -EINVAL. */
#define HF_STORE_MAX_ID       1280 /* client id: protocol, address and a name of 1024 bytes */
#define HF_STORE_MAX_NAME     1024
#define HF_STORE_MAX_PROTOCOL 32
#define HF_STORE_MAX_SHARE    1024
#define HF_STORE_MAX_HANDLE   64
#define HF_STORE_MAX_OH       1024
#define HF_STORE_MAX_BLOB     4096
#define HF_STORE_MAX_BOOT_ID  64
#define HF_STORE_MAX_SERVER   255

enum hf_store_durability {
	HF_STORE_NONE,
	HF_STORE_PROCESS,
	HF_STORE_MACHINE,
};

enum hf_store_kind {
	HF_STORE_CLIENTS, /* registrations */
	HF_STORE_LOCKS,   /* locks and share reservations */
	HF_STORE_ALL,     /* both */
};

/* Facts. Bytes are borrowed: by a put for the call, by a load for the call-back. */

struct hf_store_client {
	struct hf_bytes id;       /* the key */
	struct hf_bytes protocol; /* "nlm", "nsm" */
	struct hf_bytes mon_name;
	struct hf_addr address; /* where it called from */
	struct hf_addr local;   /* our address it used */
	bool has_callback;
	bool is_privileged; /* it locked from a reserved port */
	struct hf_bytes callback_host;
	uint32_t callback_program;
	uint32_t callback_version;
	uint32_t callback_procedure;
	uint8_t priv[16];
	int32_t sm_state;
	bool is_state_unproven; /* only datagrams said sm_state, which may be forged */
	uint64_t registered_at; /* wall ns, kept to the microsecond */
	uint64_t last_seen;     /* likewise */
};

struct hf_store_lock {
	uint64_t id; /* from hf_store_new_id() */
	struct hf_bytes share;
	struct hf_bytes handle;
	struct hf_bytes client; /* its id */
	struct hf_bytes oh;
	uint64_t owner;
	uint64_t start;
	uint64_t end;
	uint64_t epoch; /* in which it was granted */
	int32_t client_state;
	uint32_t flags;
	uint8_t kind;
	uint8_t mode;
};

struct hf_store_share {
	uint64_t id; /* from hf_store_new_id() */
	struct hf_bytes blob;
};

/* Events: all but on_taken and on_commit must be there. */
struct hf_store_events {
	/* hf_store_reached(kind) has moved to @ticket. */
	void (*on_reached)(void *user, enum hf_store_kind kind, uint64_t ticket);
	/* The store is unhealthy. Tickets from @first_lost that are not reached now never will be, although
	 * later tickets of the same kind may be: forget whoever waits for them. */
	void (*on_failed)(void *user, uint64_t first_lost);
	/* The store can write again: call hf_store_resync_*() in here for everything that is true now. */
	void (*on_resync)(void *user);
	/* What on_resync wrote is durable: healthy again. */
	void (*on_recovered)(void *user);
	/* Another run has used the store since this one wrote last: on_failed has come before, and the store
	 * never comes back. Nothing of this run may be put there, and nothing may be promised: the server
	 * must end. */
	void (*on_taken)(void *user);
	/* A commit took @ns; for metrics; may be NULL, then no clock is read. */
	void (*on_commit)(void *user, enum hf_store_kind kind, uint64_t ns);
};

struct hf_store_options {
	enum hf_store_durability durability;
	const char *boot_id;  /* of this machine; NULL: ask the kernel */
	const char *path;     /* lmdb: the folder for its files, which exists */
	const char *postgres; /* postgres: libpq's connection string */
	const char *server;   /* postgres: whose rows these are */
	bool gives_up; /* hf_store_clear() follows: a journal that cannot be read is no reason to refuse */
	uint64_t handle_key; /* tells the key of the handles in the facts from any other; 0: any will do */
	const struct hf_store_events *events;
	void *user;
};

/* Life. An open that fails has logged why, in words for the operator. */
int hf_store_open_memory(struct hf_store **storep, struct hf_loop *loop,
			 const struct hf_store_options *options);
int hf_store_open_lmdb(struct hf_store **storep, struct hf_loop *loop,
		       const struct hf_store_options *options);
int hf_store_open_postgres(struct hf_store **storep, struct hf_loop *loop,
			   const struct hf_store_options *options);
/* Can libpq read this connection string? Where it can not, @unknown is the option that it does not know, or
 * empty; its own words may hold a part of a password. */
#define HF_STORE_OPTION 64
bool hf_store_reads_postgres(const char *text, char unknown[static HF_STORE_OPTION]);
/* What is not reached yet is lost, as if we had been killed. */
struct hf_store *hf_store_free(struct hf_store *store);

HF_DEFINE_CLEANUP(struct hf_store *, hf_store_free)

/* Start: in this order, before anything else. These block. */

struct hf_store_start {
	uint64_t epoch;      /* of this run */
	int32_t sm_state;    /* of this run: odd, positive */
	bool is_first;       /* nothing was stored before */
	bool was_clean;      /* the run before ended with hf_store_mark_clean() */
	bool has_other_boot; /* the machine was started anew since */
	bool has_all_locks;  /* the stored locks are all that were granted; see hf_store_mark_complete() */
	bool dropped_locks;  /* what was stored of locks could not be trusted and is gone */
};

/* Raises epoch and state number and clears the clean marker: synced when it returns 0. -EKEYREJECTED: there
 * are facts, and they were written with another handle_key; nothing was changed. */
int hf_store_begin_epoch(struct hf_store *store, struct hf_store_start *startp);

/* Each answers 0, or what the call-back returned, if that was not 0, or -errno. No order is promised. Whoever
 * writes locks has loaded locks and shares before. */
int hf_store_load_clients(struct hf_store *store, int (*fn)(void *user, const struct hf_store_client *client),
			  void *user);
int hf_store_load_locks(struct hf_store *store, int (*fn)(void *user, const struct hf_store_lock *lock),
			void *user);
int hf_store_load_shares(struct hf_store *store, int (*fn)(void *user, const struct hf_store_share *share),
			 void *user);
/* Wipes registrations, locks and shares together; epoch and state number stay. Blocks. */
int hf_store_clear(struct hf_store *store);
/* All handles in the facts, those that were loaded and those to come, are of this key; synced. Blocks. */
int hf_store_name_key(struct hf_store *store, uint64_t handle_key);

/* Writing. Each gives a ticket in *ticketp (NULL: not wanted), or answers -EROFS while the store is
 * unhealthy, -EINVAL beyond a bound, -ENOBUFS when too much waits for a slow medium, -ENOMEM. */
uint64_t
hf_store_new_id(struct hf_store *store); /* for a lock or a share; none that is stored has it. Rises */
int hf_store_put_client(struct hf_store *store, const struct hf_store_client *client, uint64_t *ticketp);
int hf_store_delete_client(struct hf_store *store, struct hf_bytes id, uint64_t *ticketp);
int hf_store_put_lock(struct hf_store *store, const struct hf_store_lock *lock, uint64_t *ticketp);
int hf_store_delete_lock(struct hf_store *store, uint64_t id, uint64_t *ticketp);
int hf_store_put_share(struct hf_store *store, const struct hf_store_share *share, uint64_t *ticketp);
int hf_store_delete_share(struct hf_store *store, uint64_t id, uint64_t *ticketp);
/* From now on the stored locks are all there are (grace is over), even if they were not at the start. */
int hf_store_mark_complete(struct hf_store *store, uint64_t *ticketp);
/* The next state number, as a restart would have it; reached with HF_STORE_CLIENTS. */
int hf_store_raise_state(struct hf_store *store, int32_t *statep, uint64_t *ticketp);

/* Commits before the end of the turn if many writes wait and that takes a moment only, so that those who wait
 * for them are still in the cache. on_reached or on_failed may be called from here. */
void hf_store_hurry(struct hf_store *store);
/* Every write of @kind up to this ticket is as durable as promised. */
uint64_t hf_store_reached(const struct hf_store *store, enum hf_store_kind kind);
/* Has nothing been done yet about this lock or share? Then it and all that is written until then are reached
 * or lost together. */
bool hf_store_is_gathering(const struct hf_store *store, uint64_t ticket);
uint64_t hf_store_last_ticket(const struct hf_store *store); /* that was given */
bool hf_store_is_healthy(const struct hf_store *store);
/* Does it give tickets? If not, on_resync follows, and what is true by then replaces all that is stored. It
 * does while that is being written, too: what is written meanwhile comes behind it. */
bool hf_store_takes_writes(const struct hf_store *store);
bool hf_store_is_idle(const struct hf_store *store); /* nothing waits for being written */

/* Resync: only inside on_resync. What is not put here is not stored any more. -ENOMEM at worst; then the
 * store stays unhealthy and asks again. */
int hf_store_resync_client(struct hf_store *store, const struct hf_store_client *client);
int hf_store_resync_lock(struct hf_store *store, const struct hf_store_lock *lock);
int hf_store_resync_share(struct hf_store *store, const struct hf_store_share *share);

/* Stop: the last write of an orderly stop; synced when it returns 0. -EBUSY: not idle yet. Blocks. */
int hf_store_mark_clean(struct hf_store *store);

/* Questions */
const char *hf_store_name(const struct hf_store *store); /* "memory", "lmdb", "postgres" */
enum hf_store_durability hf_store_durability(const struct hf_store *store);

struct hf_store_counts {
	uint64_t n_commits;   /* batches that were written */
	uint64_t n_records;   /* records in them */
	uint64_t n_cancelled; /* records that were put and deleted in one turn */
	uint64_t n_failures;
};

void hf_store_counts(const struct hf_store *store, struct hf_store_counts *countsp);
