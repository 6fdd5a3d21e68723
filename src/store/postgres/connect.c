/* Makes a connection that is ready for use. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "store/postgres/internal.h"

/* Drops notices such as "table exists already". */
static void ignore_notice(void *user, const PGresult *result)
{
}

static int await_connection(PGconn *conn, uint64_t timeout_ns, char message[HF_PG_MAX_MESSAGE])
{
	uint64_t deadline = hf_pg_deadline(timeout_ns);
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;

	if (PQstatus(conn) == CONNECTION_BAD)
		status = PGRES_POLLING_FAILED;
	while (status == PGRES_POLLING_READING || status == PGRES_POLLING_WRITING) {
		if (!hf_pg_wait(conn, status == PGRES_POLLING_READING ? POLLIN : POLLOUT, deadline)) {
			snprintf(message, HF_PG_MAX_MESSAGE, "no connection within %.3g s",
				 (double)timeout_ns / (double)HF_NS_PER_S);
			return -ETIMEDOUT;
		}
		status = PQconnectPoll(conn);
	}
	if (status == PGRES_POLLING_OK)
		return 0;
	hf_pg_note_error(conn, message);
	return -ENOTCONN;
}

/* Takes the session lock on the server's name. Waits a little: the session of a killed run may not have ended
 * yet. */
static int lock_server(PGconn *conn, const char *server, char message[HF_PG_MAX_MESSAGE])
{
	const char *params[] = { server };
	PGresult *result =
		hf_pg_query(conn, "SELECT pg_advisory_lock(hashtextextended('holdfast:' || $1, 0))", 1,
			    params, false, message);

	if (result) {
		PQclear(result);
		return 0;
	}
	if (strstr(message, "lock timeout"))
		snprintf(message, HF_PG_MAX_MESSAGE, "another holdfastd with the same server.name uses it");
	return -EBUSY;
}

/* The database from one crash to the next, which loses unsynced data: a mark that a crash removes. The time
 * when it was started does not tell: it goes on after the crash of one of its processes. And its timeline: a
 * replica that is promoted begins a new one. */
static int read_medium(PGconn *conn, char medium[HF_STORE_MAX_BOOT_ID + 1], char message[HF_PG_MAX_MESSAGE])
{
	hf_cleanup(hf_pg_clearp) PGresult *result = NULL;

	if (hf_pg_run(conn,
		      "INSERT INTO holdfast_database (mark) SELECT md5(random()::text || "
		      "clock_timestamp()::text)"
		      " ON CONFLICT DO NOTHING",
		      message) == 0)
		result = hf_pg_query(
			conn,
			"SELECT mark || '/' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)"
			" FROM holdfast_database",
			0, NULL, false, message);
	if (!result || PQntuples(result) != 1)
		return hf_trace(-EIO);
	snprintf(medium, HF_STORE_MAX_BOOT_ID + 1, "%s", PQgetvalue(result, 0, 0));
	return 0;
}

/* Confirms that the service is still as this run left it. The first look comes before the session lock: if
 * another run holds that lock and has begun its epoch, waiting for the lock is useless. */
static int come_back(struct hf_pg *pg, PGconn *conn)
{
	int r = hf_pg_check_owner(pg, conn, !pg->store.is_claimed, pg->message);

	if (r == 0)
		r = lock_server(conn, pg->server, pg->message);
	if (r == 0 && !pg->store.is_claimed)
		r = hf_pg_restore_owner(pg, conn, pg->message);
	if (r == 0)
		r = hf_pg_check_owner(pg, conn, false, pg->message);
	return r;
}

static int make_ready(struct hf_pg *pg, PGconn *conn)
{
	int r;

	r = hf_pg_migrate(conn, -1, pg->message);
	if (r == 0)
		r = pg->store.has_begun ? come_back(pg, conn) : lock_server(conn, pg->server, pg->message);
	if (r == 0)
		r = read_medium(conn, pg->medium, pg->message);
	if (r == 0)
		r = hf_pg_prepare(conn, pg->message);
	return r;
}

/* One host; NULL: as @conninfo has it. */
struct place {
	char *host;
	char *hostaddr;
	char *port;
};

static int dial_one(const char *conninfo, const struct place *place, uint64_t timeout_ns, PGconn **connp,
		    char message[HF_PG_MAX_MESSAGE])
{
	static const char *const keywords[] = { "dbname",
						"fallback_application_name",
						"client_encoding",
						"tcp_user_timeout",
						"host",
						"hostaddr",
						"port",
						NULL };
	const char *const values[] = { conninfo,    "holdfastd",     "UTF8",      "15000",
				       place->host, place->hostaddr, place->port, NULL };
	PGconn *conn = PQconnectStartParams(keywords, values, 1);
	int r;

	if (!conn)
		return hf_trace(-ENOMEM);
	PQsetNoticeReceiver(conn, ignore_notice, NULL);
	r = await_connection(conn, timeout_ns, message);
	if (r == 0 && PQsetnonblocking(conn, 1) < 0)
		r = -EIO;
	if (r < 0) {
		PQfinish(conn);
		return r;
	}
	*connp = conn;
	return 0;
}

/* The list that the connection string has for a keyword; NULL: none. */
static const char *list_of(const PQconninfoOption *options, const char *keyword)
{
	for (; options && options->keyword; options++)
		if (strcmp(options->keyword, keyword) == 0)
			return options->val;
	return NULL;
}

static size_t count(const char *list)
{
	size_t n = list && *list;

	for (; list && *list; list++)
		n += *list == ',';
	return n;
}

/* The entry of this number; a list of one entry is for all. To be freed; NULL: there is none. */
static char *entry_of(const char *list, size_t number)
{
	if (count(list) == 0)
		return NULL;
	for (size_t i = 0; i < number && count(list) > 1; i++)
		list += strcspn(list, ",") + 1;
	return strndup(list, strcspn(list, ","));
}

/* Of several hosts each gets its part of the time. libpq would wait for a silent one until the whole time is
 * over, and never come to the next. */
int hf_pg_dial(const char *conninfo, uint64_t timeout_ns, PGconn **connp, char message[HF_PG_MAX_MESSAGE])
{
	PQconninfoOption *options = PQconninfoParse(conninfo, NULL);
	const char *hosts = list_of(options, "host"), *addresses = list_of(options, "hostaddr"),
		   *ports = list_of(options, "port");
	size_t n = HF_MAX(HF_MAX(count(hosts), count(addresses)), (size_t)1);
	int r = -ENOTCONN;

	for (size_t i = 0; i < n && r < 0; i++) {
		struct place place = { 0 };

		if (n > 1)
			place = (struct place){ entry_of(hosts, i), entry_of(addresses, i),
						entry_of(ports, i) };
		r = dial_one(conninfo, &place, timeout_ns / n, connp, message);
		free(place.host);
		free(place.hostaddr);
		free(place.port);
	}
	PQconninfoFree(options);
	return hf_trace(r);
}

int hf_pg_open(const char *conninfo, PGconn **connp, char message[HF_PG_MAX_MESSAGE])
{
	PGconn *conn;
	int r = hf_pg_dial(conninfo, HF_PG_TIMEOUT, &conn, message);

	if (r < 0)
		return r;
	r = hf_pg_run(conn,
		      "SET client_min_messages = error; SET lock_timeout = '5s';"
		      "SET statement_timeout = '15s'; SET idle_in_transaction_session_timeout = 0;"
		      "SET standard_conforming_strings = on",
		      message);
	if (r < 0) {
		PQfinish(conn);
		return hf_trace(r);
	}
	*connp = conn;
	return 0;
}

int hf_pg_connect(struct hf_pg *pg, PGconn **connp)
{
	PGconn *conn;
	int r = hf_pg_open(pg->conninfo, &conn, pg->message);

	if (r < 0)
		return r;
	r = make_ready(pg, conn);
	if (r < 0) {
		PQfinish(conn);
		return hf_trace(r);
	}
	*connp = conn;
	return 0;
}

/* libpq takes text that is no URI and has no '=' as the name of a database. */
static bool is_database_name(const char *text)
{
	return !strchr(text, '=') && strncmp(text, "postgres://", 11) != 0 &&
	       strncmp(text, "postgresql://", 13) != 0;
}

bool hf_store_reads_postgres(const char *text, char unknown[static HF_STORE_OPTION])
{
	char *message = NULL;
	PQconninfoOption *read = is_database_name(text) ? NULL : PQconninfoParse(text, &message);
	bool is_read = read || is_database_name(text);

	*unknown = '\0';
	if (message && sscanf(message, "invalid connection option \"%63[^\"]\"", unknown) != 1)
		*unknown = '\0';
	PQconninfoFree(read);
	PQfreemem(message);
	return is_read;
}
