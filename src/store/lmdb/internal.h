/*
 * The private parts of the embedded store.
 *
 *	lmdb.c      life, start and stop, and the table of what the front calls
 *	work.c      commits in service: which thread writes what
 *	fold.c      segments of the journal -> LMDB
 *	load.c      gives the stored facts back, file by file
 *	downgrade.c the way back to an older holdfastd
 *	apply.c     facts -> a transaction of LMDB, and back
 *	key.c       the key of a fact
 *	error.c     codes of LMDB -> -errno
 *	file.c      opens the file of LMDB or refuses it; transactions that grow the map
 *	check.c     is a file one of LMDB, and is it whole?
 *	journal.c   the journal: appending, syncing, reading back
 *
 *	STATE_DIR/store.lock     locked by flock() while the server runs
 *	STATE_DIR/store.mdb      LMDB: everything but the latest locks
 *	STATE_DIR/journal.N      the latest locks (lmdb/journal.h)
 *
 * Keys in LMDB's main database; the checksum of key and value follows each
 * value:
 *
 *	server:format            "holdfast store N": HF_LMDB_FORMAT
 *	server:instance          u64: ties the journal to this file
 *	server:folded            u64: the last sequence number of the journal that is folded in
 *	server:state             body of a state record
 *	server:key               u64: identifies the key of the file handles
 *	nsm:client:{id}          body of a client record
 *	nsm:monname:{name}:{id}  empty: an index
 *	lock:{8 bytes of id}     body of a lock record; the id is big-endian, so keys sort by it; in the
 *	                         database "locks", where new locks go to the end and fill their pages
 *	share:{8 bytes of id}    body of a reservation's record
 *	waiter:{8 bytes of id}   body of a waiter's record
 *
 * A key longer than LMDB's limit is cut and ends in a checksum of itself.
 *
 * Every transaction is synced and runs on a worker thread: once service has
 * begun, only db_work touches LMDB. Locks go to the journal, on the loop's
 * thread.
 */
#pragma once

#include <lmdb.h>

#include "loop/work.h"
#include "store/backend.h"
#include "store/lmdb/journal.h"

/* The newest format that this program reads. A file begins with 1, and has a later one from the first record
 * on that programs of the earlier one do not know: then these say that the file is newer, not that it is
 * damaged. 2: a client with is_secured. A further flag of a record needs a further format, and a way
 * back in downgrade.c. */
#define HF_LMDB_FORMAT      2
#define HF_LMDB_FORMAT_TEXT "holdfast store " /* its number follows */
#define HF_LMDB_FILE        "store.mdb"
#define HF_LMDB_MAX_KEY     511
#define HF_LMDB_CHECKSUM    8
#define HF_LMDB_MAX_FOLD    4 /* segments folded in one transaction, which needs one sync */

enum hf_lmdb_task {
	HF_LMDB_RECOVER,
	HF_LMDB_RESYNC,
	HF_LMDB_CLIENTS,
	HF_LMDB_FOLD,
};

struct hf_lmdb {
	struct hf_store store;
	char *path;    /* of the folder */
	int dir_fd;    /* of the folder */
	int lock_fd;   /* of store.lock */
	bool gives_up; /* (c) the journal's contents will be cleared */
	MDB_env *env;
	MDB_dbi dbi; /* the main database */
	MDB_dbi locks_dbi;
	uint64_t instance;
	struct hf_journal journal;

	/* LMDB's next task. One runs at a time, on a worker thread. */
	struct hf_work db_work;
	enum hf_lmdb_task db_task; /* chosen when db_work was submitted */
	int db_result;
	struct hf_store_batch *clients; /* queued, or being written */
	struct hf_store_batch *resync;
	struct hf_store_batch *locks; /* waits for a free segment, or for its sync */
	bool needs_segment;           /* locks waits for a free segment */
	bool is_recovering;
	int folding[HF_LMDB_MAX_FOLD]; /* the segments being folded */
	unsigned int n_folding;

	struct hf_work sync_work; /* syncs the journal */
	int sync_fd;
	int sync_result;
};

static inline struct hf_lmdb *hf_lmdb_of(struct hf_store *store)
{
	return (struct hf_lmdb *)store; /* struct hf_store is the first member */
}

/* error.c */
int hf_lmdb_error(int rc); /* translates LMDB's codes to -errno */

/* file.c: LMDB itself */
int hf_lmdb_lock_folder(struct hf_lmdb *lmdb);
/* Checks the file and opens it, or creates it; logs what is wrong. */
int hf_lmdb_open_file(struct hf_lmdb *lmdb);
void hf_lmdb_close_file(struct hf_lmdb *lmdb);
int hf_lmdb_reopen_file(struct hf_lmdb *lmdb);

/* Runs @fn in a transaction and commits it, synced. If the map is full, grows it and starts over: @fn must be
 * able to run several times. */
typedef int (*hf_lmdb_txn_fn)(struct hf_lmdb *lmdb, MDB_txn *txn, void *user);
int hf_lmdb_transact(struct hf_lmdb *lmdb, hf_lmdb_txn_fn fn, void *user);

/* key.c */
struct hf_lmdb_key {
	uint8_t data[HF_LMDB_MAX_KEY];
	size_t len;
	bool is_lock; /* it stands in the database "locks" */
};

void hf_lmdb_key_of_text(struct hf_lmdb_key *key, const char *text);
void hf_lmdb_key_of_lock(struct hf_lmdb_key *key, uint64_t id);
void hf_lmdb_key_of_waiter(struct hf_lmdb_key *key, uint64_t id);
void hf_lmdb_key_of_reservation(struct hf_lmdb_key *key, uint64_t id);
void hf_lmdb_key_of_client(struct hf_lmdb_key *key, struct hf_bytes id);
void hf_lmdb_key_of_monname(struct hf_lmdb_key *key, struct hf_bytes name, struct hf_bytes id);

/* apply.c: facts in a transaction */
int hf_lmdb_put(struct hf_lmdb *lmdb, MDB_txn *txn, const struct hf_lmdb_key *key, struct hf_bytes value);
int hf_lmdb_put_u64(struct hf_lmdb *lmdb, MDB_txn *txn, const char *key, uint64_t value);
int hf_lmdb_put_format(struct hf_lmdb *lmdb, MDB_txn *txn, int format);
int hf_lmdb_get_format(struct hf_lmdb *lmdb, MDB_txn *txn, unsigned long *formatp);
unsigned long hf_lmdb_format_of(struct hf_bytes value); /* of the format entry; 0: it is none */
/* 1: found; *valuep is checked and without its checksum. 0: not found. -EBADMSG. */
int hf_lmdb_get(struct hf_lmdb *lmdb, MDB_txn *txn, const struct hf_lmdb_key *key, struct hf_bytes *valuep);
int hf_lmdb_get_u64(struct hf_lmdb *lmdb, MDB_txn *txn, const char *key, uint64_t *valuep);
int hf_lmdb_apply(struct hf_lmdb *lmdb, MDB_txn *txn, const struct hf_record *record);
int hf_lmdb_drop_locks(struct hf_lmdb *lmdb, MDB_txn *txn); /* and reservations */
int hf_lmdb_drop_clients(struct hf_lmdb *lmdb, MDB_txn *txn);
const char *hf_lmdb_check_entry(struct hf_bytes key, struct hf_bytes value); /* NULL: valid */

/* load.c */
typedef int (*hf_lmdb_record_fn)(void *user, const struct hf_record *record);
/* Visits records in the order of their keys, until @fn returns something else than 0. @fn may put the record
 * that it visits. */
int hf_lmdb_for_each(MDB_cursor *cursor, enum hf_record_type type, hf_lmdb_record_fn fn, void *user);
int hf_lmdb_load(struct hf_store *store, enum hf_record_type type, hf_lmdb_record_fn fn, void *user);

/* fold.c */
/* Blocks. The loop releases the segments afterwards. */
int hf_lmdb_fold(struct hf_lmdb *lmdb, const int *segments, unsigned int n);

/* work.c: work while the store is in service */
void hf_lmdb_commit(struct hf_store *store, struct hf_store_batch *batch);
void hf_lmdb_recover(struct hf_store *store);
void hf_lmdb_stop_work(struct hf_lmdb *lmdb);
