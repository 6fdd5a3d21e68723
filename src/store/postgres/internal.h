/*
 * The PostgreSQL store's private parts.
 *
 * One connection. At the start it is used as anybody would, blocking but bounded;
 * in service it is in libpq's pipeline mode and watched by the loop: a batch is a
 * transaction of a few prepared statements, each of which takes all rows of its
 * sort as arrays, and several batches may be on their way.
 *
 * Every row carries the name of its server. Two things keep a second holdfastd of
 * the same name away. A session lock on the name does while the connection is there.
 * The row of the service does afterwards: it names the run that used the store last,
 * by its epoch and a random number (owner), and each transaction begins with a look
 * at it (owner.c).
 *
 * Text that comes from peers is stored as printable ASCII, everything else in it
 * as \xNN (text.c): whatever a peer calls itself, no row is ever refused.
 */
#pragma once

#include <libpq-fe.h>

#include "loop/work.h"
#include "store/backend.h"
#include "store/last.h"

#define HF_PG_TIMEOUT     (10 * HF_NS_PER_S) /* for what blocks */
#define HF_PG_SILENCE     (20 * HF_NS_PER_S) /* a database that owes an answer for so long is gone */
#define HF_PG_MAX_FLYING  4
#define HF_PG_MAX_MESSAGE 256
#define HF_PG_OWNER       32 /* digits */

struct hf_socket;

struct hf_pg {
	struct hf_store store;
	char *conninfo;
	char *server;                /* as stored */
	char owner[HF_PG_OWNER + 1]; /* (c) this run in the row of the service */
	PGconn *conn;                /* NULL: lost */
	struct hf_socket *socket;
	bool is_pipelined;
	bool is_taken; /* a result has said that the service is another run's */
	struct hf_timer silence_timer;
	struct hf_store_batch *flying[HF_PG_MAX_FLYING]; /* in the order in which they were sent */
	unsigned int n_flying;

	struct hf_work connect_work;
	PGconn *fresh; /* what it made */
	int connect_result;
	char medium[HF_STORE_MAX_BOOT_ID + 1]; /* of the connection made last */
	char message[HF_PG_MAX_MESSAGE];       /* what was wrong last */
};

static inline struct hf_pg *hf_pg_of(struct hf_store *store)
{
	return (struct hf_pg *)store; /* its first member */
}

/* connect.c: from nothing to a connection ready for use. Blocks; on any thread. */
int hf_pg_connect(struct hf_pg *pg, PGconn **connp);

/* query.c: statements that block, bounded. NULL: failed, see @message. */

PGresult *hf_pg_query(PGconn *conn, const char *sql, int n_params, const char *const *params, bool is_binary,
		      char message[HF_PG_MAX_MESSAGE]);
int hf_pg_run(PGconn *conn, const char *sql, char message[HF_PG_MAX_MESSAGE]); /* 0 or -EIO */
void hf_pg_note(char message[HF_PG_MAX_MESSAGE], const char *text);
void hf_pg_note_error(PGconn *conn, char message[HF_PG_MAX_MESSAGE]);

static inline void hf_pg_clearp(PGresult **result)
{
	PQclear(*result);
}

/* migrate.c: brings the tables to @target (-1: the newest); down, too. */
int hf_pg_migrate(PGconn *conn, int target, char message[HF_PG_MAX_MESSAGE]);

struct hf_pg_migration {
	const char *name;
	const char *up;
	const char *down;
};

extern const struct hf_pg_migration hf_pg_migrations[]; /* number 1 first */
extern const int hf_pg_n_migrations;

/* text.c */
#define HF_PG_MAX_TEXT(n) (4 * (n) + 1)
size_t hf_pg_escape(char *out, struct hf_bytes bytes); /* room for HF_PG_MAX_TEXT(bytes.len); the length */
int hf_pg_unescape(uint8_t *out, const char *text, size_t len); /* never longer; -EBADMSG */
size_t hf_pg_client_key(char *out, struct hf_bytes id);         /* room for HF_PG_MAX_KEY */
#define HF_PG_MAX_KEY 512
/* An address as bytes: family, ip[16], port and scope big-endian. */
#define HF_PG_ADDR 23
void hf_pg_addr_write(uint8_t out[HF_PG_ADDR], const struct hf_addr *addr);
bool hf_pg_addr_read(struct hf_addr *addr, struct hf_bytes bytes);

/* owner.c: whose is the service? */
void hf_pg_make_owner(struct hf_pg *pg);
/* From now on the service is this run's, with what the row says of @state. In a transaction, under the
 * session lock; after the start, after a look at the owner. */
int hf_pg_own(struct hf_pg *pg, PGconn *conn, const struct hf_store_state *state);
/* Whether it still is, once the epoch has begun: 0; -ESTALE: another run has used it. In a transaction the
 * row stays as it is until the end. @is_missing_fine: where the row is gone, the database is a new one.
 * Blocks. */
int hf_pg_check_owner(const struct hf_pg *pg, PGconn *conn, bool is_missing_fine,
		      char message[HF_PG_MAX_MESSAGE]);
/* After that, where the row was gone. */
int hf_pg_restore_owner(const struct hf_pg *pg, PGconn *conn, char message[HF_PG_MAX_MESSAGE]);
/* The same question as a statement of the pipeline, the first in a transaction: its error ends that, and
 * hf_pg_says_taken() tells it from others. The statement also says whether the commit waits for the disk. */
int hf_pg_prepare_check(PGconn *conn, char message[HF_PG_MAX_MESSAGE]);
int hf_pg_send_check(const struct hf_pg *pg, PGconn *conn, bool needs_sync);
bool hf_pg_says_taken(const PGresult *result);

/* statements.c */
int hf_pg_prepare(PGconn *conn, char message[HF_PG_MAX_MESSAGE]);
/* Sends all of a batch as one transaction; -errno: could not be sent whole. */
int hf_pg_send_batch(struct hf_pg *pg, PGconn *conn, struct hf_store_batch *batch);

/* load.c */
int hf_pg_load_state(struct hf_store *store, struct hf_store_state *statep);
int hf_pg_save_state(struct hf_store *store, const struct hf_store_state *state, bool drop_locks);
int hf_pg_load(struct hf_store *store, enum hf_record_type type,
	       int (*fn)(void *user, const struct hf_record *record), void *user);
int hf_pg_clear(struct hf_store *store);

/* pipeline.c */
int hf_pg_leave_pipeline(struct hf_pg *pg); /* for what blocks */
void hf_pg_commit(struct hf_store *store, struct hf_store_batch *batch);
void hf_pg_recover(struct hf_store *store);
int hf_pg_adopt(struct hf_pg *pg, PGconn *conn); /* takes @conn, on failure, too */
void hf_pg_disconnect(struct hf_pg *pg);
