/*
 * The private parts of the PostgreSQL store.
 *
 *	postgres.c     life, and the table of what the front calls
 *	pipeline.c     the connection in service: batches out, results in
 *	journal.c      locks, reservations and waiters on their way to the tables
 *	fold.c         rows of the journal -> the tables
 *	statements.c   the statements that change the tables and the journal; array.c: their arguments
 *	load.c         loads facts; the writes of start and stop
 *	owner.c        which run does the service belong to?
 *	service.c      the rows of a service and of its nodes
 *	migrate.c      makes or changes the tables; migrations.c: the steps
 *	downgrade.c    the way back to an older holdfastd
 *	connect.c      makes a connection that is ready for use
 *	query.c        blocking statements with a time limit
 *	text.c         bytes from peers as text that any database accepts
 *
 * There is one connection. At the start it is used by blocking calls with a
 * time limit. In service it is in libpq's pipeline mode, and the loop watches
 * it. A batch is one transaction. A batch of locks is one row of a journal
 * (journal.c), which a worker thread folds into the tables over a connection of
 * its own (fold.c). Every other batch is a few prepared statements, each of which
 * takes all rows of its sort as arrays (statements.c). Several batches may be in
 * flight.
 *
 * Every row carries the name of its server. Two things bar a second holdfastd
 * of the same name. While the connection lasts, a session lock on the name
 * does. Afterwards the row of the service does: it names the run that used the
 * store last, by its epoch and a random number (owner). No transaction commits
 * if that row has changed (owner.c, statements.c).
 *
 * Text from peers is stored as printable ASCII, with every other byte as \xNN
 * (text.c), so the database accepts every name.
 */
#pragma once

#include <libpq-fe.h>

#include "loop/work.h"
#include "store/backend.h"
#include "store/latest_records.h"

#define HF_PG_TIMEOUT (10 * HF_NS_PER_S) /* time limit of blocking calls */
/* A database that owes an answer for this long is treated as gone. */
#define HF_PG_SILENCE     (20 * HF_NS_PER_S)
#define HF_PG_MAX_FLYING  4
#define HF_PG_MAX_MESSAGE 256
#define HF_PG_OWNER       32 /* length, in digits */

struct hf_socket;

/* Ids of locks, reservations and waiters that no table can have. */
struct hf_pg_ids {
	uint64_t first;
	uint64_t n;
};

/* Rows of the journal that this run has committed, and the records in them. */
struct hf_pg_rows {
	uint8_t *data;
	size_t len;
	size_t capacity;
	uint64_t n;           /* rows */
	uint64_t last_number; /* of the last row */
	struct hf_pg_ids unknown;
};

struct hf_pg {
	struct hf_store store;
	char *conninfo;
	char *server;                /* escaped, as it is stored */
	char owner[HF_PG_OWNER + 1]; /* (c) names this run in the row of the service */
	PGconn *conn;                /* NULL: not connected */
	struct hf_socket *socket;
	bool is_pipelined;
	bool is_taken; /* a result said that another run has used the service */
	struct hf_timer silence_timer;
	struct hf_store_batch *flying[HF_PG_MAX_FLYING]; /* in the order in which they were sent */
	unsigned int n_flying;
	uint64_t heard_at; /* with batches in flight: nothing has come from the database since */

	/* The journal. */
	uint64_t next_number;           /* of a row */
	size_t max_journal;             /* bytes; more only if a single batch is larger */
	uint64_t fold_delay;            /* after the first row that is not folded, and after a failure */
	bool has_term;                  /* the connection can write in the journal */
	struct hf_store_batch *delayed; /* waits until the journal has room */
	uint64_t delayed_at;
	struct hf_pg_rows unfolded;
	struct hf_pg_rows folding; /* the worker's while fold_work runs */
	struct hf_work fold_work;
	struct hf_timer fold_timer;
	PGconn *fold_conn; /* the worker's */
	int fold_result;   /* the worker's */
	size_t n_vacuum;   /* the worker's: bytes that were folded since the last VACUUM */
	char fold_message[HF_PG_MAX_MESSAGE];
	bool has_fold_failed; /* and the log says so */
	bool is_waiting;      /* to come back, for the end of a fold */

	struct hf_work connect_work;
	PGconn *fresh; /* the connection that the worker made */
	int connect_result;
	char medium[HF_STORE_MAX_BOOT_ID + 1]; /* of the latest connection */
	char message[HF_PG_MAX_MESSAGE];       /* the latest error */
	char absence[HF_PG_MAX_MESSAGE]; /* why there is no connection, as the log has it; empty: there is */
};

static inline struct hf_pg *hf_pg_of(struct hf_store *store)
{
	return (struct hf_pg *)store; /* struct hf_store is the first member */
}

/* connect.c */
/* Makes a bare connection, with non-blocking sockets. Blocks; runs on any thread. */
int hf_pg_dial(const char *conninfo, uint64_t timeout_ns, PGconn **connp, char message[HF_PG_MAX_MESSAGE]);
/* Makes a connection that is ready for use. Blocks; runs on any thread. */
int hf_pg_connect(struct hf_pg *pg, PGconn **connp);
/* Without tables, session lock and statements. */
int hf_pg_open(const char *conninfo, PGconn **connp, char message[HF_PG_MAX_MESSAGE]);

/* query.c: blocking statements with a time limit. NULL: failed, see @message. */

PGresult *hf_pg_query(PGconn *conn, const char *sql, int n_params, const char *const *params, bool is_binary,
		      char message[HF_PG_MAX_MESSAGE]);
/* The same with another limit on the database's silence. */
PGresult *hf_pg_query_within(PGconn *conn, uint64_t timeout_ns, const char *sql, int n_params,
			     const char *const *params, bool is_binary, char message[HF_PG_MAX_MESSAGE]);
int hf_pg_run(PGconn *conn, const char *sql, char message[HF_PG_MAX_MESSAGE]); /* 0 or -EIO */
/* Waits for the results of a pipeline up to its sync, and leaves the pipeline. 0 or -EIO. */
int hf_pg_await_sync(PGconn *conn, char message[HF_PG_MAX_MESSAGE]);
/* Waits until the connection has one of the poll(2) @events; false: it had none by @deadline. */
bool hf_pg_wait(const PGconn *conn, short events, uint64_t deadline);
uint64_t hf_pg_deadline(uint64_t timeout_ns); /* from now on */
void hf_pg_note(char message[HF_PG_MAX_MESSAGE], const char *text);
void hf_pg_note_error(PGconn *conn, char message[HF_PG_MAX_MESSAGE]);

static inline void hf_pg_clearp(PGresult **result)
{
	PQclear(*result);
}

/* migrate.c: brings the tables to version @target (-1: the newest), up or down. */
int hf_pg_migrate(PGconn *conn, int target, char message[HF_PG_MAX_MESSAGE]);

struct hf_pg_migration {
	const char *name;
	const char *up;
	const char *down;
};

extern const struct hf_pg_migration hf_pg_migrations[]; /* starts with number 1 */
extern const int hf_pg_n_migrations;

/* text.c */
#define HF_PG_MAX_TEXT(n) (4 * (n) + 1)
/* @out has room for HF_PG_MAX_TEXT(bytes.len); returns the length. */
size_t hf_pg_escape(char *out, struct hf_bytes bytes);
/* The result is never longer than @len; -EBADMSG. */
int hf_pg_unescape(uint8_t *out, const char *text, size_t len);
size_t hf_pg_client_key(char *out, struct hf_bytes id); /* @out has room for HF_PG_MAX_KEY */
#define HF_PG_MAX_KEY 512
/* An address as bytes: family, ip[16], port and scope big-endian. */
#define HF_PG_ADDR 23
void hf_pg_addr_write(uint8_t out[HF_PG_ADDR], const struct hf_addr *addr);
bool hf_pg_addr_read(struct hf_addr *addr, struct hf_bytes bytes);

/* owner.c: which run does the service belong to? */
void hf_pg_make_owner(struct hf_pg *pg);
/* Makes the service this run's, and stores @state in its row. Runs in a transaction under the session lock;
 * after the start, only after hf_pg_check_owner(). */
int hf_pg_own(struct hf_pg *pg, PGconn *conn, const struct hf_store_state *state);
/* Does the service still belong to this run, once it was claimed or the epoch has begun? 0: yes. -ESTALE:
 * another run has used it. In a transaction, the row is locked until its end. With @is_missing_fine a missing
 * row is no error: the database is a new one. Blocks. */
int hf_pg_check_owner(const struct hf_pg *pg, PGconn *conn, bool is_missing_fine,
		      char message[HF_PG_MAX_MESSAGE]);
/* Inserts the row again after hf_pg_check_owner() found it missing. */
int hf_pg_restore_owner(const struct hf_pg *pg, PGconn *conn, char message[HF_PG_MAX_MESSAGE]);
/* The same check as a statement of the pipeline, the first in a transaction. Its error ends the transaction;
 * hf_pg_says_taken() recognises it. The statement also says whether the commit waits for the disk. */
int hf_pg_prepare_check(PGconn *conn, char message[HF_PG_MAX_MESSAGE]);
int hf_pg_send_check(const struct hf_pg *pg, PGconn *conn, bool needs_sync);
bool hf_pg_says_taken(const PGresult *result);

/* statements.c */
int hf_pg_prepare(PGconn *conn, char message[HF_PG_MAX_MESSAGE]);
int hf_pg_prepare_tables(PGconn *conn, char message[HF_PG_MAX_MESSAGE]); /* for hf_pg_send_records() */
/* Sends the statements that bring the tables to the state at the end of @records. Deletes of @unknown ids are
 * left out. */
int hf_pg_send_records(PGconn *conn, const char *server, struct hf_bytes records, struct hf_pg_ids unknown);
/* Sends a batch as one transaction; -errno: it was not sent completely. */
int hf_pg_send_batch(struct hf_pg *pg, PGconn *conn, struct hf_store_batch *batch);
#define HF_PG_MAX_TERM 64
/* The view by which this term writes in the journal. */
void hf_pg_write_term(const struct hf_pg *pg, char name[HF_PG_MAX_TERM]);

/* load.c */
int hf_pg_load_state(struct hf_store *store, struct hf_store_state *statep);
int hf_pg_save_state(struct hf_store *store, const struct hf_store_state *state, bool drop_locks);
int hf_pg_load(struct hf_store *store, enum hf_record_type type,
	       int (*fn)(void *user, const struct hf_record *record), void *user);
int hf_pg_clear(struct hf_store *store);

/* journal.c */
void hf_pg_journal_init(struct hf_pg *pg);
void hf_pg_journal_deinit(struct hf_pg *pg);
void hf_pg_journal_reset(struct hf_pg *pg);                       /* the rows are gone, or of no use */
int hf_pg_journal_add(struct hf_pg *pg, struct hf_bytes records); /* a row of them is committed; -ENOMEM */
bool hf_pg_journal_is_full(const struct hf_pg *pg);
void hf_pg_journal_stop(struct hf_pg *pg); /* blocks until no fold is under way, and forgets the rows */

/* fold.c: both block. */
/* Folds @rows into the tables in one transaction, over a connection of its own. Runs on a worker. */
int hf_pg_fold(struct hf_pg *pg, const struct hf_pg_rows *rows);
/* Folds all rows of the service that the journal has, of any run, within the transaction of @conn. */
int hf_pg_fold_rest(struct hf_pg *pg, PGconn *conn);

/* pipeline.c */
void hf_pg_go_on(struct hf_pg *pg);         /* a fold has ended */
int hf_pg_leave_pipeline(struct hf_pg *pg); /* for blocking statements */
void hf_pg_commit(struct hf_store *store, struct hf_store_batch *batch);
void hf_pg_recover(struct hf_store *store);
int hf_pg_adopt(struct hf_pg *pg, PGconn *conn); /* takes @conn, also on failure */
void hf_pg_disconnect(struct hf_pg *pg);
