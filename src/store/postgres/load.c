/* Loads facts, and makes the few writes of start and stop. All of this blocks. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "store/postgres/array.h"
#include "store/postgres/internal.h"

#define FETCH_ROWS "10000"

/* One row of a binary result. Escaped text is decoded into scratch, which has room for a whole row. */
struct row {
	PGresult *result;
	int number;
	int column;
	uint8_t *scratch;
	bool is_bad;
};

static struct hf_bytes get_raw(struct row *row)
{
	int column = row->column++;

	return hf_bytes_of(PQgetvalue(row->result, row->number, column),
			   (uint32_t)PQgetlength(row->result, row->number, column));
}

static int64_t get_int(struct row *row)
{
	struct hf_bytes raw = get_raw(row);
	int64_t value = 0;

	if (raw.len == 0 || raw.len > 8) {
		row->is_bad = true;
		return 0;
	}
	value = (int8_t)raw.data[0]; /* sign-extends it */
	for (uint32_t i = 1; i < raw.len; i++)
		value = (int64_t)((uint64_t)value << 8 | raw.data[i]);
	return value;
}

static struct hf_bytes get_bytes(struct row *row, uint32_t max)
{
	struct hf_bytes raw = get_raw(row);

	row->is_bad |= raw.len > max;
	return raw;
}

static struct hf_bytes get_text(struct row *row, uint32_t max)
{
	struct hf_bytes raw = get_raw(row);
	int len = -1;

	if (raw.len <= HF_PG_MAX_TEXT(max))
		len = hf_pg_unescape(row->scratch, (const char *)raw.data, raw.len);
	if (len < 0 || (uint32_t)len > max) {
		row->is_bad = true;
		return (struct hf_bytes){ 0 };
	}
	raw = hf_bytes_of(row->scratch, (uint32_t)len);
	row->scratch += len;
	return raw;
}

/* Room for all texts of a row; each takes at most HF_PG_MAX_TEXT of its bound while it is decoded. */
#define SCRATCH HF_PG_MAX_TEXT(2 * HF_STORE_MAX_ID + 4 * HF_STORE_MAX_NAME)

static void read_lock(struct row *row, struct hf_store_lock *lock)
{
	lock->id = (uint64_t)get_int(row);
	lock->export = get_text(row, HF_STORE_MAX_EXPORT);
	lock->handle = get_bytes(row, HF_STORE_MAX_HANDLE);
	lock->client = get_text(row, HF_STORE_MAX_ID);
	lock->oh = get_bytes(row, HF_STORE_MAX_OH);
	lock->owner = (uint64_t)get_int(row);
	lock->start = (uint64_t)get_int(row);
	lock->end = (uint64_t)get_int(row);
	lock->epoch = (uint64_t)get_int(row);
	lock->client_state = (int32_t)get_int(row);
	lock->flags = (uint32_t)get_int(row);
	lock->kind = (uint8_t)get_int(row);
	lock->mode = (uint8_t)get_int(row);
}

static void read_waiter(struct row *row, struct hf_store_waiter *waiter)
{
	read_lock(row, &waiter->wants);
	waiter->is_granted = get_int(row) != 0;
	waiter->route = get_bytes(row, HF_STORE_MAX_ROUTE);
}

static void read_client(struct row *row, struct hf_store_client *client)
{
	struct hf_bytes priv;

	client->id = get_text(row, HF_STORE_MAX_ID);
	client->protocol = get_text(row, HF_STORE_MAX_PROTOCOL);
	client->mon_name = get_text(row, HF_STORE_MAX_NAME);
	row->is_bad |= !hf_pg_addr_read(&client->address, get_raw(row));
	row->is_bad |= !hf_pg_addr_read(&client->local, get_raw(row));
	client->has_callback = get_int(row) != 0;
	client->is_privileged = get_int(row) != 0;
	client->is_secured = get_int(row) != 0;
	client->identity = get_text(row, HF_STORE_MAX_IDENTITY);
	client->callback_host = get_text(row, HF_STORE_MAX_NAME);
	client->callback_program = (uint32_t)get_int(row);
	client->callback_version = (uint32_t)get_int(row);
	client->callback_procedure = (uint32_t)get_int(row);
	priv = get_raw(row);
	if (priv.len == sizeof(client->priv))
		memcpy(client->priv, priv.data, priv.len);
	else
		row->is_bad = true;
	client->sm_state = (int32_t)get_int(row);
	client->is_state_unproven = get_int(row) != 0;
	client->told_state = (int32_t)get_int(row);
	client->registered_at = hf_pg_time_to_wall(get_int(row));
	client->last_seen = hf_pg_time_to_wall(get_int(row));
	row->is_bad |= client->id.len == 0;
}

#define LOCK_COLUMNS                                                                                      \
	"share, handle, client_id, oh, owner, range_start, range_end, epoch, client_state, flags, kind, " \
	"mode"

static const char *query_of(enum hf_record_type type)
{
	switch (type) {
	case HF_RECORD_LOCK:
		return "SELECT lock_id, " LOCK_COLUMNS " FROM holdfast_locks WHERE server = $1";
	case HF_RECORD_RESERVATION:
		return "SELECT share_id, reservation FROM holdfast_shares WHERE server = $1";
	case HF_RECORD_WAITER:
		return "SELECT waiter_id, " LOCK_COLUMNS ", is_granted, route FROM holdfast_waiters"
		       " WHERE server = $1 ORDER BY waiter_id";
	default:
		return "SELECT client_id, protocol, mon_name, address, local_address, has_callback,"
		       " is_privileged, is_secured, identity, callback_host, callback_program, "
		       "callback_version, "
		       "callback_procedure, priv,"
		       " sm_state, is_state_unproven, told_state, registered_at, last_seen"
		       " FROM nsm_client_registrations WHERE server = $1";
	}
}

static int load_rows(PGresult *result, enum hf_record_type type, uint8_t *scratch,
		     int (*fn)(void *user, const struct hf_record *record), void *user)
{
	int n = PQntuples(result), r = 0;

	for (int i = 0; r == 0 && i < n; i++) {
		struct row row = { .result = result, .number = i, .scratch = scratch };
		struct hf_record record = { .type = type };

		if (type == HF_RECORD_LOCK) {
			read_lock(&row, &record.lock);
		} else if (type == HF_RECORD_RESERVATION) {
			record.reservation.id = (uint64_t)get_int(&row);
			record.reservation.blob = get_bytes(&row, HF_STORE_MAX_BLOB);
		} else if (type == HF_RECORD_WAITER) {
			read_waiter(&row, &record.waiter);
		} else {
			read_client(&row, &record.client);
		}
		r = row.is_bad ? hf_trace(-EBADMSG) : fn(user, &record);
	}
	return r;
}

/* Logs the failure in words, since the caller gets only a number. */
static int explain(struct hf_pg *pg, const char *what)
{
	hf_log_error(what, "reason=%s", pg->message);
	return -EIO;
}

static int load_cursor(struct hf_pg *pg, enum hf_record_type type, uint8_t *scratch,
		       int (*fn)(void *user, const struct hf_record *record), void *user)
{
	int n, r;

	do {
		hf_cleanup(hf_pg_clearp) PGresult *result =
			hf_pg_query(pg->conn, "FETCH " FETCH_ROWS " FROM loading", 0, NULL, true,
				    pg->message);

		if (!result)
			return explain(pg, "the database could not be read");
		n = PQntuples(result);
		r = load_rows(result, type, scratch, fn, user);
	} while (r == 0 && n);
	return r;
}

int hf_pg_load(struct hf_store *store, enum hf_record_type type,
	       int (*fn)(void *user, const struct hf_record *record), void *user)
{
	struct hf_pg *pg = hf_pg_of(store);
	hf_cleanup(hf_freep) uint8_t *scratch = malloc(SCRATCH);
	hf_cleanup(hf_pg_clearp) PGresult *declared = NULL;
	const char *params[] = { pg->server };
	char sql[1024], ignored[HF_PG_MAX_MESSAGE];
	int r;

	if (!scratch)
		return hf_trace(-ENOMEM);
	r = hf_pg_leave_pipeline(pg);
	if (r < 0)
		return r;
	snprintf(sql, sizeof(sql), "DECLARE loading NO SCROLL CURSOR FOR %s", query_of(type));
	if (hf_pg_run(pg->conn, "BEGIN", pg->message) < 0)
		return explain(pg, "the database could not be read");
	/* Before the epoch begins, the journal is folded only for this look: the rollback undoes it. */
	if (store->has_begun || hf_pg_fold_rest(pg, pg->conn) == 0)
		declared = hf_pg_query(pg->conn, sql, 1, params, false, pg->message);
	r = declared ? load_cursor(pg, type, scratch, fn, user)
		     : explain(pg, "the database could not be read");
	hf_pg_run(pg->conn, "ROLLBACK", ignored);
	return r;
}

/* State */

static int read_state(struct hf_pg *pg, PGresult *result, struct hf_store_state *statep)
{
	uint8_t scratch[HF_PG_MAX_TEXT(2 * HF_STORE_MAX_BOOT_ID)];
	struct row row = { .result = result, .scratch = scratch };
	struct hf_store_state state = { 0 };
	struct hf_bytes boot_id, medium;
	int64_t durability;

	state.epoch = (uint64_t)get_int(&row);
	state.sm_state = (int32_t)get_int(&row);
	state.is_clean = get_int(&row) != 0;
	state.is_complete = get_int(&row) != 0;
	state.is_settled = get_int(&row) != 0;
	durability = get_int(&row);
	boot_id = get_text(&row, HF_STORE_MAX_BOOT_ID);
	medium = get_text(&row, HF_STORE_MAX_BOOT_ID);
	if (row.is_bad || durability < HF_STORE_NONE || durability > HF_STORE_MACHINE) {
		snprintf(pg->message, sizeof(pg->message), "the row in holdfast_server_state is damaged");
		explain(pg, "the database is refused");
		return -EBADMSG;
	}
	state.durability = (enum hf_store_durability)durability;
	memcpy(state.boot_id, boot_id.data, boot_id.len);
	memcpy(state.medium, medium.data, medium.len);
	*statep = state;
	return 1;
}

/* 1, as when a state was found. Tables of an older holdfastd have no such row. A claim has added what the
 * last term says of its commits (is_unsynced) to what it knew of those before it (was_unsynced). Without a
 * claim, the two are still apart. */
static int load_key(struct hf_pg *pg, struct hf_store_state *state)
{
	const char *params[] = { pg->server, pg->store.is_claimed ? "f" : "t" };
	hf_cleanup(hf_pg_clearp) PGresult *result =
		hf_pg_query(pg->conn,
			    "SELECT s.handle_key,"
			    " coalesce(NOT (l.was_unsynced OR ($2 AND l.is_unsynced)), false)::integer"
			    " FROM holdfast_services s LEFT JOIN holdfast_leases l USING (service)"
			    " WHERE service = $1",
			    2, params, true, pg->message);
	struct row row = { .result = result };

	if (!result)
		return explain(pg, "the database could not be read");
	if (PQntuples(result)) {
		state->handle_key = (uint64_t)get_int(&row);
		state->is_replicated = get_int(&row);
	}
	return 1;
}

int hf_pg_load_state(struct hf_store *store, struct hf_store_state *statep)
{
	struct hf_pg *pg = hf_pg_of(store);
	const char *params[] = { pg->server };
	int r;
	hf_cleanup(hf_pg_clearp) PGresult *result = hf_pg_query(
		pg->conn,
		"SELECT epoch, sm_state, is_clean, is_complete, is_settled, lock_durability, boot_id,"
		" medium"
		" FROM holdfast_server_state WHERE server = $1",
		1, params, true, pg->message);

	if (!result)
		return explain(pg, "the database could not be read");
	if (PQntuples(result) == 0)
		return 0;
	r = read_state(pg, result, statep);
	return r < 0 ? r : load_key(pg, statep);
}

static int run_with_server(struct hf_pg *pg, const char *sql)
{
	const char *params[] = { pg->server };
	PGresult *result = hf_pg_query(pg->conn, sql, 1, params, false, pg->message);

	if (!result)
		return -EIO;
	PQclear(result);
	return 0;
}

static int write_state(struct hf_pg *pg, const struct hf_store_state *state)
{
	char text[6][32], boot_id[HF_PG_MAX_TEXT(HF_STORE_MAX_BOOT_ID)],
		medium[HF_PG_MAX_TEXT(HF_STORE_MAX_BOOT_ID)];
	const char *params[] = { pg->server, text[0], text[1], text[2], text[3],
				 text[4],    text[5], boot_id, medium };
	PGresult *result;

	snprintf(text[0], sizeof(text[0]), "%lld", (long long)state->epoch);
	snprintf(text[1], sizeof(text[1]), "%d", state->sm_state);
	snprintf(text[2], sizeof(text[2]), "%d", state->is_clean);
	snprintf(text[3], sizeof(text[3]), "%d", state->is_complete);
	snprintf(text[4], sizeof(text[4]), "%d", state->is_settled);
	snprintf(text[5], sizeof(text[5]), "%d", (int)state->durability);
	hf_pg_escape(boot_id, hf_bytes_of_str(state->boot_id));
	hf_pg_escape(medium, hf_bytes_of_str(state->medium));
	result = hf_pg_query(pg->conn,
			     "INSERT INTO holdfast_server_state (server, epoch, sm_state, is_clean,"
			     " is_complete, is_settled, lock_durability, boot_id, medium)"
			     " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (server) DO UPDATE SET"
			     " epoch = excluded.epoch, sm_state = excluded.sm_state,"
			     " is_clean = excluded.is_clean, is_complete = excluded.is_complete,"
			     " is_settled = excluded.is_settled,"
			     " lock_durability = excluded.lock_durability, boot_id = excluded.boot_id,"
			     " medium = excluded.medium",
			     9, params, false, pg->message);
	if (!result)
		return -EIO;
	PQclear(result);
	return 0;
}

static int drop_locks(struct hf_pg *pg)
{
	int r = run_with_server(pg, "DELETE FROM holdfast_journal WHERE server = $1");

	if (r == 0)
		r = run_with_server(pg, "DELETE FROM holdfast_locks WHERE server = $1");
	if (r == 0)
		r = run_with_server(pg, "DELETE FROM holdfast_shares WHERE server = $1");
	return r < 0 ? r : run_with_server(pg, "DELETE FROM holdfast_waiters WHERE server = $1");
}

/* From the start of its epoch the service belongs to this run. */
static int look_at_owner(struct hf_pg *pg, const struct hf_store_state *state)
{
	int r;

	if (pg->store.has_begun || pg->store.is_claimed) {
		r = hf_pg_check_owner(pg, pg->conn, false, pg->message);
		pg->is_taken |= r == -ESTALE;
		if (r < 0)
			return r;
	}
	return state ? hf_pg_own(pg, pg->conn, state) : 0;
}

/* Makes all changes in one synced transaction. The journal is empty afterwards. */
static int change(struct hf_pg *pg, const struct hf_store_state *state, bool locks, bool clients)
{
	char ignored[HF_PG_MAX_MESSAGE];
	int r;

	r = hf_pg_leave_pipeline(pg);
	if (r < 0)
		return r;
	hf_pg_journal_stop(pg);
	r = hf_pg_run(pg->conn, "BEGIN; SET LOCAL synchronous_commit = on", pg->message);
	if (r == 0)
		r = look_at_owner(pg, state);
	if (r == 0)
		r = locks ? drop_locks(pg) : hf_pg_fold_rest(pg, pg->conn);
	if (r == 0 && clients)
		r = run_with_server(pg, "DELETE FROM nsm_client_registrations WHERE server = $1");
	if (r == 0 && state)
		r = write_state(pg, state);
	if (r == 0)
		r = hf_pg_run(pg->conn, "COMMIT", pg->message);
	if (r < 0) {
		explain(pg, "the database could not be written");
		hf_pg_run(pg->conn, "ROLLBACK", ignored);
	}
	if (pg->is_taken)
		hf_store_taken(&pg->store);
	return hf_trace(r);
}

int hf_pg_save_state(struct hf_store *store, const struct hf_store_state *state, bool drop)
{
	return change(hf_pg_of(store), state, drop, false);
}

int hf_pg_clear(struct hf_store *store)
{
	return change(hf_pg_of(store), NULL, true, true);
}
