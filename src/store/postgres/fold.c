/*
 * Folds rows of the journal into the tables: for each lock, reservation and
 * waiter, only the state at their end is written. The rows are deleted in the
 * same transaction, so a fold that is interrupted has changed nothing.
 *
 * A fold that finds rows missing writes nothing: another run, or a resync, has
 * folded or replaced them, and the tables are newer than the fold.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "store/postgres/array.h"
#include "store/postgres/internal.h"

#define VACUUM_BYTES ((size_t)8 << 20) /* of folded rows, for one VACUUM of the journal */

static int send_records(PGconn *conn, const char *server, struct hf_bytes records, struct hf_pg_ids unknown,
			char message[HF_PG_MAX_MESSAGE])
{
	char ignored[HF_PG_MAX_MESSAGE];
	int r = PQenterPipelineMode(conn) ? 0 : -EIO;

	if (r == 0)
		r = hf_pg_send_records(conn, server, records, unknown);
	if (r == 0 && !PQpipelineSync(conn))
		r = -EIO;
	if (r == 0)
		return hf_pg_await_sync(conn, message);
	hf_pg_note_error(conn, message);
	if (PQpipelineSync(conn))
		(void)hf_pg_await_sync(conn, ignored);
	return hf_trace(r);
}

/* What this run has written */

static int open_connection(struct hf_pg *pg)
{
	int r;

	if (pg->fold_conn)
		return 0;
	r = hf_pg_open(pg->conninfo, &pg->fold_conn, pg->fold_message);
	return r < 0 ? r : hf_pg_prepare_tables(pg->fold_conn, pg->fold_message);
}

/* Through the view of the term, so that a run that has lost the service deletes nothing. 1: the rows are
 * deleted; 0: there are none, an earlier attempt has folded them. */
static int delete_rows(struct hf_pg *pg, const struct hf_pg_rows *rows)
{
	char term[HF_PG_MAX_TERM], sql[160], number[24];
	const char *params[] = { pg->server, number };
	PGresult *result;
	uint64_t n;

	hf_pg_write_term(pg, term);
	snprintf(sql, sizeof(sql), "DELETE FROM %s WHERE server = $1 AND number <= $2", term);
	snprintf(number, sizeof(number), "%llu", (unsigned long long)rows->last_number);
	result = hf_pg_query(pg->fold_conn, sql, 2, params, false, pg->fold_message);
	if (!result)
		return hf_trace(-EIO);
	n = strtoull(PQcmdTuples(result), NULL, 10);
	PQclear(result);
	if (n == 0 || n == rows->n)
		return n != 0;
	snprintf(pg->fold_message, HF_PG_MAX_MESSAGE, "the journal has %llu rows, not %llu",
		 (unsigned long long)n, (unsigned long long)rows->n);
	return hf_trace(-EIO);
}

static int fold_rows(struct hf_pg *pg, const struct hf_pg_rows *rows)
{
	int r = hf_pg_run(pg->fold_conn, "BEGIN; SET LOCAL synchronous_commit = off", pg->fold_message);

	if (r == 0)
		r = delete_rows(pg, rows);
	if (r > 0)
		r = send_records(pg->fold_conn, pg->server, hf_bytes_of(rows->data, (uint32_t)rows->len),
				 rows->unknown, pg->fold_message);
	return r < 0 ? r : hf_pg_run(pg->fold_conn, "COMMIT", pg->fold_message);
}

/* The deleted rows take room until a VACUUM. Its failure changes nothing: the database's own will come. */
static void vacuum(struct hf_pg *pg, size_t folded)
{
	char ignored[HF_PG_MAX_MESSAGE];

	pg->n_vacuum += folded;
	if (pg->n_vacuum < VACUUM_BYTES)
		return;
	hf_pg_run(pg->fold_conn, "VACUUM (SKIP_LOCKED, TRUNCATE false) holdfast_journal", ignored);
	pg->n_vacuum = 0;
}

int hf_pg_fold(struct hf_pg *pg, const struct hf_pg_rows *rows)
{
	int r = open_connection(pg);

	if (r == 0)
		r = fold_rows(pg, rows);
	if (r == 0) {
		vacuum(pg, rows->len + 64 * rows->n);
		return 0;
	}
	PQfinish(pg->fold_conn);
	pg->fold_conn = NULL;
	return hf_trace(r);
}

/* What any run has left */

struct row {
	uint64_t number;
	struct hf_bytes records;
};

static int compare(const void *a, const void *b)
{
	const struct row *one = a, *two = b;

	return (one->number > two->number) - (one->number < two->number);
}

static struct row read_row(const PGresult *result, int i)
{
	uint64_t number = 0;

	if (PQgetlength(result, i, 0) == sizeof(number))
		memcpy(&number, PQgetvalue(result, i, 0), sizeof(number));
	return (struct row){ .number = be64toh(number),
			     .records = hf_bytes_of(PQgetvalue(result, i, 1),
						    (uint32_t)PQgetlength(result, i, 1)) };
}

static bool is_whole(struct hf_bytes records)
{
	struct hf_record record;
	int r;

	do {
		r = hf_record_next(&record, &records);
	} while (r > 0);
	return r == 0;
}

/* The records of all rows, in the order of the rows. */
static int join(const PGresult *result, uint8_t **datap, size_t *lenp)
{
	int n = PQntuples(result);
	hf_cleanup(hf_freep) struct row *rows = calloc((size_t)n, sizeof(*rows));
	size_t len = 0;

	if (!rows)
		return hf_trace(-ENOMEM);
	for (int i = 0; i < n; i++) {
		rows[i] = read_row(result, i);
		if (!is_whole(rows[i].records))
			return hf_trace(-EBADMSG);
		len += rows[i].records.len;
	}
	qsort(rows, (size_t)n, sizeof(*rows), compare);
	*datap = malloc(len + 1);
	if (!*datap)
		return hf_trace(-ENOMEM);
	*lenp = 0;
	for (int i = 0; i < n; i++) {
		if (rows[i].records.len)
			memcpy(*datap + *lenp, rows[i].records.data, rows[i].records.len);
		*lenp += rows[i].records.len;
	}
	return len > UINT32_MAX ? hf_trace(-EFBIG) : 0;
}

/* Ids rise, so no table has an id beyond the greatest that is stored. If the tables have ids that are
 * negative to the database, nothing is concluded. */
static int find_unknown(struct hf_pg *pg, PGconn *conn, struct hf_pg_ids *unknown)
{
	const char *params[] = { pg->server };
	hf_cleanup(hf_pg_clearp) PGresult *result =
		hf_pg_query(conn,
			    "SELECT greatest(0, (SELECT max(lock_id) FROM holdfast_locks WHERE server = $1),"
			    " (SELECT max(share_id) FROM holdfast_shares WHERE server = $1),"
			    " (SELECT max(waiter_id) FROM holdfast_waiters WHERE server = $1)),"
			    " least(0, (SELECT min(lock_id) FROM holdfast_locks WHERE server = $1),"
			    " (SELECT min(share_id) FROM holdfast_shares WHERE server = $1),"
			    " (SELECT min(waiter_id) FROM holdfast_waiters WHERE server = $1))",
			    1, params, false, pg->message);
	uint64_t greatest;

	if (!result)
		return hf_trace(-EIO);
	*unknown = (struct hf_pg_ids){ 0 };
	if (*PQgetvalue(result, 0, 1) == '-')
		return 0;
	greatest = strtoull(PQgetvalue(result, 0, 0), NULL, 10);
	*unknown = (struct hf_pg_ids){ .first = greatest + 1, .n = UINT64_MAX - greatest };
	return 0;
}

int hf_pg_fold_rest(struct hf_pg *pg, PGconn *conn)
{
	const char *params[] = { pg->server };
	hf_cleanup(hf_pg_clearp) PGresult *result =
		hf_pg_query(conn, "DELETE FROM holdfast_journal WHERE server = $1 RETURNING number, records",
			    1, params, true, pg->message);
	hf_cleanup(hf_freep) uint8_t *data = NULL;
	struct hf_pg_ids unknown;
	size_t len = 0;
	int r;

	if (!result)
		return hf_trace(-EIO);
	if (PQntuples(result) == 0)
		return 0;
	r = join(result, &data, &len);
	if (r < 0) {
		snprintf(pg->message, sizeof(pg->message), "%s",
			 r == -EBADMSG ? "a row of holdfast_journal is damaged" : strerror(-r));
		return r;
	}
	r = find_unknown(pg, conn, &unknown);
	return r < 0 ? r
		     : send_records(conn, pg->server, hf_bytes_of(data, (uint32_t)len), unknown, pg->message);
}
