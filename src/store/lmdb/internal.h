/*
 * The embedded store's private parts.
 *
 *	STATE_DIR/store.lock     held (flock) as long as we run
 *	STATE_DIR/store.mdb      LMDB: everything but the latest locks
 *	STATE_DIR/journal.N      the latest locks (lmdb/journal.h)
 *
 * Keys in LMDB's main database, each value followed by the checksum of key and value:
 *
 *	server:format            "holdfast store 1"
 *	server:instance          u64: ties the journal to this file
 *	server:folded            u64: the last sequence of the journal that is in here
 *	server:state             body of a state record
 *	server:key               u64: tells the key of the file handles from any other
 *	nsm:client:{id}          body of a client record
 *	nsm:monname:{name}:{id}  nothing: an index
 *	lock:{8 bytes of id}     body of a lock record; big-endian, so that they lie in order; in the
 *	                         database "locks", where new ones go to the end and so fill their pages
 *	share:{8 bytes of id}    body of a share record
 *
 * Keys longer than LMDB takes end in a checksum of themselves.
 *
 * Every transaction is synced, and made on a worker thread: only db_work touches
 * LMDB once service has begun. Locks go to the journal, on the loop's thread.
 */
#pragma once

#include <lmdb.h>

#include "loop/work.h"
#include "store/backend.h"
#include "store/lmdb/journal.h"

#define HF_LMDB_FORMAT   1
#define HF_LMDB_FILE     "store.mdb"
#define HF_LMDB_MAX_KEY  511
#define HF_LMDB_CHECKSUM 8
#define HF_LMDB_MAX_FOLD 4 /* segments in one transaction: they share its sync */

enum hf_lmdb_task {
	HF_LMDB_RECOVER,
	HF_LMDB_RESYNC,
	HF_LMDB_CLIENTS,
	HF_LMDB_FOLD,
};

struct hf_lmdb {
	struct hf_store store;
	char *path;    /* of the folder */
	int dir_fd;    /* of the same */
	int lock_fd;   /* store.lock */
	bool gives_up; /* (c) what is in the journal will be cleared */
	MDB_env *env;
	MDB_dbi dbi; /* the main database */
	MDB_dbi locks_dbi;
	uint64_t instance;
	struct hf_journal journal;

	/* What LMDB has to do next: one at a time, on a worker thread. */
	struct hf_work db_work;
	enum hf_lmdb_task db_task; /* what it does, chosen when it was submitted */
	int db_result;
	struct hf_store_batch *clients; /* waits, or is being written */
	struct hf_store_batch *resync;
	struct hf_store_batch *locks; /* waits for a free segment, or for its sync */
	bool needs_segment;           /* it is the former */
	bool is_recovering;
	int folding[HF_LMDB_MAX_FOLD]; /* the segments being folded */
	unsigned int n_folding;

	struct hf_work sync_work; /* of the journal */
	int sync_fd;
	int sync_result;
};

static inline struct hf_lmdb *hf_lmdb_of(struct hf_store *store)
{
	return (struct hf_lmdb *)store; /* its first member */
}

/* file.c: LMDB itself */
int hf_lmdb_error(int rc); /* LMDB's codes as -errno */
int hf_lmdb_lock_folder(struct hf_lmdb *lmdb);
int hf_lmdb_open_file(struct hf_lmdb *lmdb); /* checks, opens or makes it; logs what is wrong */
void hf_lmdb_close_file(struct hf_lmdb *lmdb);
int hf_lmdb_reopen_file(struct hf_lmdb *lmdb);

/* Runs @fn in a transaction and commits it, synced; grows the map and starts over as often as needed, so
 * @fn must be able to run again. */
typedef int (*hf_lmdb_txn_fn)(struct hf_lmdb *lmdb, MDB_txn *txn, void *user);
int hf_lmdb_transact(struct hf_lmdb *lmdb, hf_lmdb_txn_fn fn, void *user);

/* key.c */
struct hf_lmdb_key {
	uint8_t data[HF_LMDB_MAX_KEY];
	size_t len;
	bool is_lock; /* and so in the other database */
};

void hf_lmdb_key_of_text(struct hf_lmdb_key *key, const char *text);
void hf_lmdb_key_of_lock(struct hf_lmdb_key *key, uint64_t id);
void hf_lmdb_key_of_share(struct hf_lmdb_key *key, uint64_t id);
void hf_lmdb_key_of_client(struct hf_lmdb_key *key, struct hf_bytes id);
void hf_lmdb_key_of_monname(struct hf_lmdb_key *key, struct hf_bytes name, struct hf_bytes id);

/* apply.c: facts into a transaction */
int hf_lmdb_put(struct hf_lmdb *lmdb, MDB_txn *txn, const struct hf_lmdb_key *key, struct hf_bytes value);
int hf_lmdb_put_u64(struct hf_lmdb *lmdb, MDB_txn *txn, const char *key, uint64_t value);
/* 1: found, checked, without its checksum; 0: not there; -EBADMSG */
int hf_lmdb_get(struct hf_lmdb *lmdb, MDB_txn *txn, const struct hf_lmdb_key *key, struct hf_bytes *valuep);
int hf_lmdb_get_u64(struct hf_lmdb *lmdb, MDB_txn *txn, const char *key, uint64_t *valuep);
int hf_lmdb_apply(struct hf_lmdb *lmdb, MDB_txn *txn, const struct hf_record *record);
int hf_lmdb_drop_locks(struct hf_lmdb *lmdb, MDB_txn *txn); /* and shares */
int hf_lmdb_drop_clients(struct hf_lmdb *lmdb, MDB_txn *txn);
const char *hf_lmdb_check_entry(struct hf_bytes key, struct hf_bytes value); /* NULL: sound */

/* load.c */
int hf_lmdb_load(struct hf_store *store, enum hf_record_type type,
		 int (*fn)(void *user, const struct hf_record *record), void *user);

/* fold.c */
/* Blocks; the segments stay for the loop to release. */
int hf_lmdb_fold(struct hf_lmdb *lmdb, const int *segments, unsigned int n);

/* work.c: what runs while the store is in service */
void hf_lmdb_commit(struct hf_store *store, struct hf_store_batch *batch);
void hf_lmdb_recover(struct hf_store *store);
void hf_lmdb_stop_work(struct hf_lmdb *lmdb);
