/*
 * The statements that change the tables. Each takes the server's name and one
 * array for each column, so any number of records needs a handful of statements.
 * And the one that puts a row into the journal.
 *
 * The right to write in the journal is a view of it whose name has the epoch and
 * the owner of the term. A trigger on the row of the service makes the view of
 * the new term and drops that of the old one, in the transaction that changes the
 * row. An INSERT through the view locks the view until its transaction ends. So
 * the change of the row comes after every commit of the old term, and an INSERT
 * of the old term that comes later finds no view and fails. To check and lock
 * the row itself in each transaction says the same, and costs as much as a third
 * of a commit.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "store/postgres/array.h"
#include "store/postgres/internal.h"

#define MAX_COLUMNS 21
#define MAX_ROWS    8192 /* in one statement */

enum statement {
	PUT_LOCKS,
	PUT_RESERVATIONS,
	PUT_WAITERS,
	PUT_CLIENTS,
	PUT_STATE,
	DELETE_LOCKS,
	DELETE_RESERVATIONS,
	DELETE_WAITERS,
	DELETE_CLIENTS,
	N_STATEMENTS,
};

struct column {
	const char *name;
	enum hf_pg_type type;
};

struct table {
	const char *statement;
	const char *table;
	const char *key; /* besides the server */
	bool deletes;
	struct column columns[MAX_COLUMNS + 1];
};

/* Of a lock, and of what a waiter wants, behind the id. */
#define LOCK_COLUMNS                                                                                  \
	{ "share", HF_PG_TEXT }, { "handle", HF_PG_BYTEA }, { "client_id", HF_PG_TEXT },              \
		{ "oh", HF_PG_BYTEA }, { "owner", HF_PG_INT8 }, { "range_start", HF_PG_INT8 },        \
		{ "range_end", HF_PG_INT8 }, { "epoch", HF_PG_INT8 }, { "client_state", HF_PG_INT4 }, \
		{ "flags", HF_PG_INT4 }, { "kind", HF_PG_INT2 },                                      \
	{                                                                                             \
		"mode", HF_PG_INT2                                                                    \
	}

static const struct table tables[N_STATEMENTS] = {
	[PUT_LOCKS] = { "put_locks",
			"holdfast_locks",
			"lock_id",
			false,
			{ { "lock_id", HF_PG_INT8 }, LOCK_COLUMNS } },
	[PUT_RESERVATIONS] = { "put_shares",
			       "holdfast_shares",
			       "share_id",
			       false,
			       { { "share_id", HF_PG_INT8 }, { "reservation", HF_PG_BYTEA } } },
	[PUT_WAITERS] = { "put_waiters",
			  "holdfast_waiters",
			  "waiter_id",
			  false,
			  { { "waiter_id", HF_PG_INT8 },
			    LOCK_COLUMNS,
			    { "is_granted", HF_PG_BOOL },
			    { "route", HF_PG_BYTEA } } },
	[PUT_CLIENTS] = { "put_clients",
			  "nsm_client_registrations",
			  "client_key",
			  false,
			  { { "client_key", HF_PG_TEXT },         { "client_id", HF_PG_TEXT },
			    { "protocol", HF_PG_TEXT },           { "mon_name", HF_PG_TEXT },
			    { "address", HF_PG_BYTEA },           { "local_address", HF_PG_BYTEA },
			    { "address_text", HF_PG_TEXT },       { "has_callback", HF_PG_BOOL },
			    { "is_privileged", HF_PG_BOOL },      { "is_secured", HF_PG_BOOL },
			    { "identity", HF_PG_TEXT },           { "callback_host", HF_PG_TEXT },
			    { "callback_program", HF_PG_INT8 },   { "callback_version", HF_PG_INT8 },
			    { "callback_procedure", HF_PG_INT8 }, { "priv", HF_PG_BYTEA },
			    { "sm_state", HF_PG_INT4 },           { "is_state_unproven", HF_PG_BOOL },
			    { "told_state", HF_PG_INT4 },         { "registered_at", HF_PG_TIME },
			    { "last_seen", HF_PG_TIME } } },
	[PUT_STATE] = { "put_state",
			"holdfast_server_state",
			NULL,
			false,
			{ { "epoch", HF_PG_INT8 },
			  { "sm_state", HF_PG_INT4 },
			  { "is_clean", HF_PG_BOOL },
			  { "is_complete", HF_PG_BOOL },
			  { "is_settled", HF_PG_BOOL },
			  { "lock_durability", HF_PG_INT2 },
			  { "boot_id", HF_PG_TEXT },
			  { "medium", HF_PG_TEXT } } },
	[DELETE_LOCKS] = { "delete_locks", "holdfast_locks", "lock_id", true, { { "lock_id", HF_PG_INT8 } } },
	[DELETE_RESERVATIONS] = { "delete_shares",
				  "holdfast_shares",
				  "share_id",
				  true,
				  { { "share_id", HF_PG_INT8 } } },
	[DELETE_WAITERS] = { "delete_waiters",
			     "holdfast_waiters",
			     "waiter_id",
			     true,
			     { { "waiter_id", HF_PG_INT8 } } },
	[DELETE_CLIENTS] = { "delete_clients",
			     "nsm_client_registrations",
			     "client_key",
			     true,
			     { { "client_key", HF_PG_TEXT } } },
};

/* Preparing */

static const char *type_name(enum hf_pg_type type)
{
	switch (type) {
	case HF_PG_BOOL:
		return "bool";
	case HF_PG_BYTEA:
		return "bytea";
	case HF_PG_INT8:
		return "int8";
	case HF_PG_INT2:
		return "int2";
	case HF_PG_INT4:
		return "int4";
	case HF_PG_TIME:
		return "timestamptz";
	case HF_PG_TEXT:
		break;
	}
	return "text";
}

/* One statement must not put two rows of one key: the database would refuse it, and each resync after that.
 * Ids differ. Two long names may have one key (text.c), and a peer can choose such names, so one of their
 * rows is taken. The key is the first column. */
static void write_put(FILE *out, const struct table *table)
{
	bool may_repeat = table->columns[0].type == HF_PG_TEXT;

	fprintf(out, "INSERT INTO %s (server", table->table);
	for (const struct column *c = table->columns; c->name; c++)
		fprintf(out, ", %s", c->name);
	fprintf(out, ") SELECT");
	if (may_repeat)
		fprintf(out, " DISTINCT ON (%s)", table->key);
	fprintf(out, " $1::text, * FROM unnest(");
	for (const struct column *c = table->columns; c->name; c++)
		fprintf(out, "%s$%d::%s[]", c == table->columns ? "" : ", ", (int)(c - table->columns) + 2,
			type_name(c->type));
	fprintf(out, ") AS rows (%s) ON CONFLICT (server%s%s) DO UPDATE SET ", table->columns[0].name,
		table->key ? ", " : "", table->key ? table->key : "");
	for (const struct column *c = table->columns; c->name; c++)
		fprintf(out, "%s%s = excluded.%s", c == table->columns ? "" : ", ", c->name, c->name);
}

static int prepare(PGconn *conn, const struct table *table, char message[HF_PG_MAX_MESSAGE])
{
	char sql[4096];
	FILE *out = fmemopen(sql, sizeof(sql), "w");

	if (!out)
		return hf_trace(-errno);
	fprintf(out, "PREPARE %s AS ", table->statement);
	if (table->deletes)
		fprintf(out, "DELETE FROM %s WHERE server = $1::text AND %s = ANY ($2::%s[])", table->table,
			table->key, type_name(table->columns[0].type));
	else
		write_put(out, table);
	if (fclose(out) != 0)
		return hf_trace(-errno);
	return hf_pg_run(conn, sql, message);
}

int hf_pg_prepare_tables(PGconn *conn, char message[HF_PG_MAX_MESSAGE])
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < N_STATEMENTS; i++)
		r = prepare(conn, &tables[i], message);
	return r;
}

int hf_pg_prepare(PGconn *conn, char message[HF_PG_MAX_MESSAGE])
{
	int r = hf_pg_prepare_check(conn, message);

	return r < 0 ? r : hf_pg_prepare_tables(conn, message);
}

/* Rows */

/* Returns the column behind those of the lock. */
static struct hf_pg_array *add_lock(struct hf_pg_array *columns, const struct hf_store_lock *lock)
{
	struct hf_pg_array *c = columns;

	hf_pg_array_add_int(c++, (int64_t)lock->id);
	hf_pg_array_add_escaped(c++, lock->export);
	hf_pg_array_add(c++, lock->handle.data, lock->handle.len);
	hf_pg_array_add_escaped(c++, lock->client);
	hf_pg_array_add(c++, lock->oh.data, lock->oh.len);
	hf_pg_array_add_int(c++, (int64_t)lock->owner);
	hf_pg_array_add_int(c++, (int64_t)lock->start);
	hf_pg_array_add_int(c++, (int64_t)lock->end);
	hf_pg_array_add_int(c++, (int64_t)lock->epoch);
	hf_pg_array_add_int(c++, lock->client_state);
	hf_pg_array_add_int(c++, lock->flags);
	hf_pg_array_add_int(c++, lock->kind);
	hf_pg_array_add_int(c++, lock->mode);
	return c;
}

static void add_waiter(struct hf_pg_array *columns, const struct hf_store_waiter *waiter)
{
	struct hf_pg_array *c = add_lock(columns, &waiter->wants);

	hf_pg_array_add_int(c++, waiter->is_granted);
	hf_pg_array_add(c, waiter->route.data, waiter->route.len);
}

static void add_client(struct hf_pg_array *columns, const struct hf_store_client *client)
{
	char key[HF_PG_MAX_KEY], text[HF_ADDR_TEXT];
	size_t key_len = hf_pg_client_key(key, client->id);
	struct hf_pg_array *c = columns;
	uint8_t addr[HF_PG_ADDR];

	hf_pg_array_add(c++, key, key_len);
	hf_pg_array_add_escaped(c++, client->id);
	hf_pg_array_add_escaped(c++, client->protocol);
	hf_pg_array_add_escaped(c++, client->mon_name);
	hf_pg_addr_write(addr, &client->address);
	hf_pg_array_add(c++, addr, sizeof(addr));
	hf_pg_addr_write(addr, &client->local);
	hf_pg_array_add(c++, addr, sizeof(addr));
	if (client->address.family)
		hf_addr_format(&client->address, text, sizeof(text));
	else
		text[0] = '\0';
	hf_pg_array_add_escaped(c++, hf_bytes_of_str(text));
	hf_pg_array_add_int(c++, client->has_callback);
	hf_pg_array_add_int(c++, client->is_privileged);
	hf_pg_array_add_int(c++, client->is_secured);
	hf_pg_array_add_escaped(c++, client->identity);
	hf_pg_array_add_escaped(c++, client->callback_host);
	hf_pg_array_add_int(c++, client->callback_program);
	hf_pg_array_add_int(c++, client->callback_version);
	hf_pg_array_add_int(c++, client->callback_procedure);
	hf_pg_array_add(c++, client->priv, sizeof(client->priv));
	hf_pg_array_add_int(c++, client->sm_state);
	hf_pg_array_add_int(c++, client->is_state_unproven);
	hf_pg_array_add_int(c++, client->told_state);
	hf_pg_array_add_time(c++, client->registered_at);
	hf_pg_array_add_time(c++, client->last_seen);
}

static void add_state(struct hf_pg_array *columns, const struct hf_store_state *state)
{
	struct hf_pg_array *c = columns;

	hf_pg_array_add_int(c++, (int64_t)state->epoch);
	hf_pg_array_add_int(c++, state->sm_state);
	hf_pg_array_add_int(c++, state->is_clean);
	hf_pg_array_add_int(c++, state->is_complete);
	hf_pg_array_add_int(c++, state->is_settled);
	hf_pg_array_add_int(c++, state->durability);
	hf_pg_array_add_escaped(c++, hf_bytes_of_str(state->boot_id));
	hf_pg_array_add_escaped(c++, hf_bytes_of_str(state->medium));
}

/* Adds the row if @statement is the one for it, and if it changes anything. */
static bool add_row(struct hf_pg_array *columns, enum statement statement,
		    const struct hf_latest_record *last, const struct hf_pg_ids *unknown)
{
	static const enum hf_record_type types[N_STATEMENTS] = {
		[PUT_LOCKS] = HF_RECORD_LOCK,
		[PUT_RESERVATIONS] = HF_RECORD_RESERVATION,
		[PUT_WAITERS] = HF_RECORD_WAITER,
		[PUT_CLIENTS] = HF_RECORD_CLIENT,
		[PUT_STATE] = HF_RECORD_STATE,
		[DELETE_LOCKS] = HF_RECORD_LOCK_DELETE,
		[DELETE_RESERVATIONS] = HF_RECORD_RESERVATION_DELETE,
		[DELETE_WAITERS] = HF_RECORD_WAITER_DELETE,
		[DELETE_CLIENTS] = HF_RECORD_CLIENT_DELETE,
	};
	struct hf_record decoded, *record = &decoded;
	char key[HF_PG_MAX_KEY];

	if (hf_record_type(last->record) != types[statement] || hf_latest_records_decode(last, record) < 0)
		return false;
	switch (statement) {
	case PUT_LOCKS:
		add_lock(columns, &record->lock);
		break;
	case PUT_RESERVATIONS:
		hf_pg_array_add_int(&columns[0], (int64_t)record->reservation.id);
		hf_pg_array_add(&columns[1], record->reservation.blob.data, record->reservation.blob.len);
		break;
	case PUT_WAITERS:
		add_waiter(columns, &record->waiter);
		break;
	case PUT_CLIENTS:
		add_client(columns, &record->client);
		break;
	case PUT_STATE:
		add_state(columns, &record->state);
		break;
	case DELETE_LOCKS:
	case DELETE_RESERVATIONS:
	case DELETE_WAITERS:
		if (record->id - unknown->first < unknown->n)
			return false;
		hf_pg_array_add_int(columns, (int64_t)record->id);
		break;
	case DELETE_CLIENTS:
		hf_pg_array_add(columns, key, hf_pg_client_key(key, record->name));
		break;
	case N_STATEMENTS:
		break;
	}
	return true;
}

/* Sending */

static int send_columns(PGconn *conn, const char *server, const struct table *table,
			struct hf_pg_array *columns, uint32_t n_rows)
{
	const char *values[MAX_COLUMNS + 1] = { server };
	int lengths[MAX_COLUMNS + 1] = { (int)strlen(server) };
	int formats[MAX_COLUMNS + 1] = { 1 };
	int n = 1;

	for (const struct column *c = table->columns; c->name; c++, n++) {
		struct hf_pg_array *array = &columns[n - 1];

		hf_pg_array_end(array, n_rows);
		if (array->is_broken)
			return hf_trace(-ENOMEM);
		values[n] = (const char *)array->data;
		lengths[n] = (int)array->len;
		formats[n] = 1;
		/* The bytes must stay valid until libpq copies them below. */
		hf_pg_array_begin(array, c->type);
	}
	if (!PQsendQueryPrepared(conn, table->statement, n, values, lengths, formats, 0))
		return hf_trace(-EIO);
	return 0;
}

static int send_statement(PGconn *conn, const char *server, enum statement statement,
			  const struct hf_latest_records *last, const struct hf_pg_ids *unknown)
{
	const struct table *table = &tables[statement];
	struct hf_pg_array columns[MAX_COLUMNS] = { 0 };
	uint32_t n_rows = 0;
	int r = 0;

	for (size_t i = 0; table->columns[i].name; i++)
		hf_pg_array_begin(&columns[i], table->columns[i].type);
	for (size_t i = 0; r == 0 && i < last->n_slots; i++) {
		if (!last->slots[i].key || !add_row(columns, statement, &last->slots[i], unknown))
			continue;
		if (++n_rows == MAX_ROWS) {
			r = send_columns(conn, server, table, columns, n_rows);
			n_rows = 0;
		}
	}
	if (r == 0 && n_rows)
		r = send_columns(conn, server, table, columns, n_rows);
	for (size_t i = 0; i < MAX_COLUMNS; i++)
		hf_pg_array_deinit(&columns[i]);
	return r;
}

int hf_pg_send_records(PGconn *conn, const char *server, struct hf_bytes records, struct hf_pg_ids unknown)
{
	struct hf_latest_records last = { 0 };
	int r = hf_latest_records_collect(&last, records);

	for (int i = 0; r == 0 && i < N_STATEMENTS; i++)
		r = send_statement(conn, server, (enum statement)i, &last, &unknown);
	hf_latest_records_deinit(&last);
	return r;
}

/* Batches */

void hf_pg_write_term(const struct hf_pg *pg, char name[HF_PG_MAX_TERM])
{
	snprintf(name, HF_PG_MAX_TERM, "holdfast_term_%llx_%s", (unsigned long long)pg->store.state.epoch,
		 pg->owner);
}

/* With the first row of a connection: the view of the term exists only once the epoch has begun. */
static int prepare_row(const struct hf_pg *pg, PGconn *conn)
{
	/* If the loss of the database's machine may lose locks, their commits need not wait for the disk. */
	bool needs_sync = pg->store.state.durability == HF_STORE_MACHINE;
	char term[HF_PG_MAX_TERM], sql[160];

	hf_pg_write_term(pg, term);
	snprintf(sql, sizeof(sql), "INSERT INTO %s (server, number, records) VALUES ($1, $2, $3)", term);
	if (!PQsendQueryParams(conn,
			       needs_sync ? "SET synchronous_commit = on" : "SET synchronous_commit = off", 0,
			       NULL, NULL, NULL, NULL, 0) ||
	    !PQsendPrepare(conn, "put_row", sql, 0, NULL))
		return hf_trace(-EIO);
	return 0;
}

static int send_row(struct hf_pg *pg, PGconn *conn, struct hf_bytes records)
{
	uint64_t number = htobe64(pg->next_number);
	const char *values[] = { pg->server, (const char *)&number, (const char *)records.data };
	const int lengths[] = { (int)strlen(pg->server), sizeof(number), (int)records.len };
	const int formats[] = { 1, 1, 1 };
	int r = pg->has_term ? 0 : prepare_row(pg, conn);

	if (r < 0)
		return r;
	pg->has_term = true;
	pg->next_number++;
	return PQsendQueryPrepared(conn, "put_row", 3, values, lengths, formats, 0) ? 0 : hf_trace(-EIO);
}

static int send_wipes(PGconn *conn, const char *server)
{
	/* The journal comes first: if a fold of it is still under way in the database, this waits for its
	 * end, and the statements behind see what the fold wrote. */
	static const char *const wipes[] = {
		"DELETE FROM holdfast_journal WHERE server = $1",
		"DELETE FROM holdfast_locks WHERE server = $1",
		"DELETE FROM holdfast_shares WHERE server = $1",
		"DELETE FROM holdfast_waiters WHERE server = $1",
		"DELETE FROM nsm_client_registrations WHERE server = $1",
	};
	const char *values[] = { server };

	for (size_t i = 0; i < HF_ARRAY_SIZE(wipes); i++) {
		if (!PQsendQueryParams(conn, wipes[i], 1, NULL, values, NULL, NULL, 0))
			return hf_trace(-EIO);
	}
	return 0;
}

/* No BEGIN, no COMMIT: up to the sync of the pipeline, all statements are one transaction. */
int hf_pg_send_batch(struct hf_pg *pg, PGconn *conn, struct hf_store_batch *batch)
{
	int r;

	if (batch->kind == HF_STORE_LOCKS) {
		r = send_row(pg, conn, hf_batch_bytes(batch));
	} else {
		r = hf_pg_send_check(pg, conn, true);
		if (r == 0 && batch->kind == HF_STORE_ALL)
			r = send_wipes(conn, pg->server);
		if (r == 0)
			r = hf_pg_send_records(conn, pg->server, hf_batch_bytes(batch),
					       (struct hf_pg_ids){ 0 });
	}
	if (r == 0 && !PQpipelineSync(conn))
		r = hf_trace(-EIO);
	return r;
}
