/*
 * The store: makes facts durable and gives them back after a crash.
 *
 * It knows no protocol. The facts are the server's own state, the registrations
 * of clients, locks, reservations and waiters. The caller that grants something writes
 * the fact and gets a ticket, a rising number. It replies to the client only
 * when the store has reached that ticket, that is, when the fact is as durable
 * as promised:
 *
 *	registrations  synced, always
 *	the rest       by lock_durability: none, at once; process, when the death
 *	               of the daemon loses nothing; machine, when synced
 *
 * There is one commit for each turn of the loop. A fact that is put and deleted
 * within one turn is not written at all.
 *
 * When a write cannot be made durable, the store becomes unhealthy. on_failed
 * says which tickets will never be reached, so that the caller undoes those
 * grants before it replies. Writes are refused with -EROFS, and the store tries
 * to come back, with growing gaps. Then on_resync asks for everything that is
 * true now; that replaces everything stored, in one step.
 *
 * All functions belong to the loop's thread. Call-backs come from the loop,
 * never from within a put or a delete.
 *
 *	store.c           the front: life, start, stop and loading
 *	write.c           the front: writes, batches, tickets
 *	health.c          the front: failure and recovery of the medium
 *	state.c           what a start may trust of the last run
 *	record.c          facts as bytes; batch.c: the records of one commit
 *	latest_records.c  the latest record of each fact; checksum.c: XXH64
 *	offline.c         a store without a server: looking and copying
 *	backend.h         what a medium implements: memory.c, lmdb/, postgres/
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

/* Bounds: anything longer is refused with -EINVAL. */
#define HF_STORE_MAX_ID       1280 /* client id: protocol, address and a name of 1024 bytes */
#define HF_STORE_MAX_NAME     1024
#define HF_STORE_MAX_PROTOCOL 32
#define HF_STORE_MAX_IDENTITY 1024
#define HF_STORE_MAX_EXPORT   1024
#define HF_STORE_MAX_HANDLE   64
#define HF_STORE_MAX_OH       1024
#define HF_STORE_MAX_BLOB     4096
#define HF_STORE_MAX_ROUTE    64
#define HF_STORE_MAX_BOOT_ID  64
#define HF_STORE_MAX_SERVER   255

enum hf_store_durability {
	HF_STORE_NONE,
	HF_STORE_PROCESS,
	HF_STORE_MACHINE,
};

enum hf_store_kind {
	HF_STORE_CLIENTS, /* registrations */
	HF_STORE_LOCKS,   /* locks, reservations and waiters */
	HF_STORE_ALL,     /* both */
};

/* Facts. Their bytes are borrowed: a put borrows them for the call, a load lends them for the call-back. */

struct hf_store_client {
	struct hf_bytes id;       /* the key */
	struct hf_bytes protocol; /* "nlm", "nsm" */
	struct hf_bytes mon_name;
	struct hf_addr address; /* where its calls come from */
	struct hf_addr local;   /* the server's address that notices to it leave from */
	bool has_callback;
	bool is_privileged;            /* it sent a LOCK from a reserved port */
	bool is_secured;               /* it uses exports that demand TLS */
	struct hf_bytes identity;      /* if so: names in its certificates, with blanks between; or empty */
	struct hf_bytes callback_host; /* without a call-back: the server's other addresses that it used, with
					* blanks between; or empty */
	uint32_t callback_program;
	uint32_t callback_version;
	uint32_t callback_procedure;
	uint8_t priv[16];
	int32_t sm_state;
	bool is_state_unproven; /* only datagrams said sm_state, which may be forged */
	int32_t told_state;     /* the server's last state number that the client knows; 0: none */
	uint64_t registered_at; /* wall clock in ns, stored in microseconds */
	uint64_t last_seen;     /* the same */
};

struct hf_store_lock {
	uint64_t id; /* from hf_store_new_id() */
	struct hf_bytes export;
	struct hf_bytes handle;
	struct hf_bytes client; /* the client's id */
	struct hf_bytes oh;
	uint64_t owner;
	uint64_t start;
	uint64_t end;
	uint64_t epoch; /* the epoch that granted it */
	int32_t client_state;
	uint32_t flags;
	uint8_t kind;
	uint8_t mode;
};

/* A request that waits for a lock, or has it while its client has not answered the grant. */
struct hf_store_waiter {
	struct hf_store_lock wants; /* its id is the waiter's own: waiters with smaller ids came earlier */
	bool is_granted;
	struct hf_bytes route; /* how the protocol tells the client of the grant */
};

struct hf_store_reservation {
	uint64_t id; /* from hf_store_new_id() */
	struct hf_bytes blob;
};

/* Events. Only on_taken and on_commit may be NULL. */
struct hf_store_events {
	/* hf_store_reached(kind) has risen to @ticket. */
	void (*on_reached)(void *user, enum hf_store_kind kind, uint64_t ticket);
	/* The store is unhealthy. Tickets from @first_lost on that are not reached now will never be,
	 * although later tickets of the same kind may be. Drop the replies that wait for them. */
	void (*on_failed)(void *user, uint64_t first_lost);
	/* The store can write again. Call hf_store_resync_*() in here for everything that is true now. */
	void (*on_resync)(void *user);
	/* The resync is durable; the store is healthy again. */
	void (*on_recovered)(void *user);
	/* Another run has used the store since this one wrote last. on_failed came before, and the store
	 * never comes back. This run can neither store nor promise anything more: the server must end. */
	void (*on_taken)(void *user);
	/* A commit took @ns, for metrics. If NULL, the store reads no clock. */
	void (*on_commit)(void *user, enum hf_store_kind kind, uint64_t ns);
};

struct hf_store_options {
	enum hf_store_durability durability;
	const char *boot_id;  /* of this machine; NULL: ask the kernel */
	const char *path;     /* lmdb: an existing folder for its files */
	const char *postgres; /* postgres: libpq's connection string */
	const char *server;   /* postgres: the server name in the rows */
	bool gives_up;        /* hf_store_clear() follows: accept a journal that cannot be read */
	bool continues;       /* waiters are stored, and the next run may go on where this one ended */
	/* In a cluster: the owner that the claim wrote into the row of the service (store/service.h), and the
	 * last epoch and state number that this node saw there. NULL: no cluster. */
	const char *owner;
	uint64_t known_epoch;
	int32_t known_state;
	uint64_t handle_key; /* identifies the key of the handles in the facts; 0: accept any */
	const struct hf_store_events *events;
	void *user;
};

/* Making and freeing. An open that fails has logged the reason for the operator. */
int hf_store_open_memory(struct hf_store **storep, struct hf_loop *loop,
			 const struct hf_store_options *options);
int hf_store_open_lmdb(struct hf_store **storep, struct hf_loop *loop,
		       const struct hf_store_options *options);
int hf_store_open_postgres(struct hf_store **storep, struct hf_loop *loop,
			   const struct hf_store_options *options);
/* Can libpq parse this connection string? If not, @unknown is the option that libpq does not know, or empty.
 * libpq's own message is not used: it may quote part of a password. */
#define HF_STORE_OPTION 64
bool hf_store_reads_postgres(const char *text, char unknown[static HF_STORE_OPTION]);
/* Migrates the tables of a database back to migration @version, for an older holdfastd; what that one does
 * not know is deleted. -EBUSY: a server uses the database. Logs the steps, and the reason of a failure.
 * Blocks. */
int hf_store_downgrade_postgres(const char *conninfo, int version);
/* The same for a store that hf_store_open_lmdb() has opened, which locks it, and for the format @format of
 * its file. -EINVAL: the file has an earlier one. */
int hf_store_downgrade_lmdb(struct hf_store *store, int format);
/* Tickets that are not reached yet are lost, as if the process had been killed. */
struct hf_store *hf_store_free(struct hf_store *store);

HF_DEFINE_CLEANUP(struct hf_store *, hf_store_free)

/* Start: call these in this order, before anything else. They block. */

struct hf_store_start {
	uint64_t epoch;      /* of this run */
	int32_t sm_state;    /* of this run: odd, positive */
	bool is_first;       /* nothing was stored before */
	bool was_clean;      /* the last run ended with hf_store_mark_clean() */
	bool has_other_boot; /* the machine has been booted since; for tests */
	bool continues;      /* the run goes on where the last one ended: sm_state is the same */
	bool has_all_locks;  /* the stored list of locks is complete; see hf_store_mark_complete() */
	bool dropped_locks;  /* the stored locks could not be trusted and are deleted */
};

/* Raises the epoch and the state number and clears the clean marker; synced when it returns 0. -EKEYREJECTED:
 * there are facts, and another handle_key made their handles; nothing was changed. */
int hf_store_begin_epoch(struct hf_store *store, struct hf_store_start *startp);

/* Each returns 0, or the first answer of the call-back that is not 0, or -errno. The order is not defined.
 * Load locks, reservations and waiters before writing any. */
int hf_store_load_clients(struct hf_store *store, int (*fn)(void *user, const struct hf_store_client *client),
			  void *user);
int hf_store_load_locks(struct hf_store *store, int (*fn)(void *user, const struct hf_store_lock *lock),
			void *user);
int hf_store_load_reservations(struct hf_store *store,
			       int (*fn)(void *user, const struct hf_store_reservation *reservation),
			       void *user);
/* In the order of their ids. */
int hf_store_load_waiters(struct hf_store *store, int (*fn)(void *user, const struct hf_store_waiter *waiter),
			  void *user);
/* Deletes all registrations, locks, reservations and waiters; epoch and state number stay. Blocks. */
int hf_store_clear(struct hf_store *store);
/* Records that this key made all handles in the facts, loaded and future; synced. Blocks. */
int hf_store_name_key(struct hf_store *store, uint64_t handle_key);

/* Writing. Each gives a ticket in *ticketp (NULL: not wanted), or returns -EROFS while the store is
 * unhealthy, -EINVAL beyond a bound, -ENOBUFS when too much is queued for a slow medium, -ENOMEM. */
uint64_t
hf_store_new_id(struct hf_store *store); /* for a lock, reservation or waiter; unused in the store; rises */
int hf_store_put_client(struct hf_store *store, const struct hf_store_client *client, uint64_t *ticketp);
int hf_store_delete_client(struct hf_store *store, struct hf_bytes id, uint64_t *ticketp);
int hf_store_put_lock(struct hf_store *store, const struct hf_store_lock *lock, uint64_t *ticketp);
int hf_store_delete_lock(struct hf_store *store, uint64_t id, uint64_t *ticketp);
int hf_store_put_reservation(struct hf_store *store, const struct hf_store_reservation *reservation,
			     uint64_t *ticketp);
int hf_store_delete_reservation(struct hf_store *store, uint64_t id, uint64_t *ticketp);
int hf_store_put_waiter(struct hf_store *store, const struct hf_store_waiter *waiter, uint64_t *ticketp);
int hf_store_delete_waiter(struct hf_store *store, uint64_t id, uint64_t *ticketp);
/* From now on the stored list of locks is complete (grace is over), even if it was not at the start. */
int hf_store_mark_complete(struct hf_store *store, uint64_t *ticketp);
/* The same, and with options.continues the next run may go on from here: everything is reached that the end
 * of grace has written. */
int hf_store_mark_settled(struct hf_store *store, uint64_t *ticketp);
/* The next state number, as after a restart; reached with HF_STORE_CLIENTS. */
int hf_store_raise_state(struct hf_store *store, int32_t *statep, uint64_t *ticketp);

/* If many writes are queued and a commit is quick, commits before the end of the turn, while the replies that
 * wait are still in the CPU's cache. May call on_reached or on_failed. */
void hf_store_hurry(struct hf_store *store);
/* Every write of @kind up to this ticket is as durable as promised. */
uint64_t hf_store_reached(const struct hf_store *store, enum hf_store_kind kind);
/* Is the batch of this lock or reservation still filling? Then it and all later writes of this batch are
 * reached or lost together. */
bool hf_store_is_gathering(const struct hf_store *store, uint64_t ticket);
uint64_t hf_store_last_ticket(const struct hf_store *store); /* the last one that was given */
bool hf_store_is_healthy(const struct hf_store *store);
/* Does the store give tickets? If not, on_resync will follow, and what is true then replaces everything
 * stored. The store also gives tickets while it writes a resync: those writes follow it. */
bool hf_store_takes_writes(const struct hf_store *store);
bool hf_store_is_idle(const struct hf_store *store); /* no write is queued or in flight */

/* Resync: call these only inside on_resync. Facts that are not put here are not stored any more. On -ENOMEM
 * the store stays unhealthy and asks again. */
int hf_store_resync_client(struct hf_store *store, const struct hf_store_client *client);
int hf_store_resync_lock(struct hf_store *store, const struct hf_store_lock *lock);
int hf_store_resync_reservation(struct hf_store *store, const struct hf_store_reservation *reservation);
int hf_store_resync_waiter(struct hf_store *store, const struct hf_store_waiter *waiter);

/* Stop: the last write of an orderly stop; synced when it returns 0. -EBUSY: writes are still in flight.
 * Blocks. */
int hf_store_mark_clean(struct hf_store *store);

/* Questions */
const char *hf_store_name(const struct hf_store *store); /* "memory", "lmdb", "postgres" */
enum hf_store_durability hf_store_durability(const struct hf_store *store);

struct hf_store_counts {
	uint64_t n_commits; /* batches that were committed; for tests */
	uint64_t n_records; /* records in them */
	uint64_t n_failures;
};

void hf_store_counts(const struct hf_store *store, struct hf_store_counts *countsp);
