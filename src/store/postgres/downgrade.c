/* The way back to an older holdfastd: an operator's order, while no server uses the database. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "store/postgres/internal.h"

/* Reads one value; it is empty if there is no row. */
static int ask(PGconn *conn, const char *sql, char *out, size_t size, char message[HF_PG_MAX_MESSAGE])
{
	hf_cleanup(hf_pg_clearp) PGresult *result = hf_pg_query(conn, sql, 0, NULL, false, message);

	if (!result)
		return hf_trace(-EIO);
	snprintf(out, size, "%s", PQntuples(result) ? PQgetvalue(result, 0, 0) : "");
	return 0;
}

static int check_version(PGconn *conn, int version, char message[HF_PG_MAX_MESSAGE])
{
	char present[16];
	int r = ask(conn, "SELECT coalesce(max(version), 0) FROM holdfast_migrations", present,
		    sizeof(present), message);

	if (r < 0 || strtol(present, NULL, 10) >= version)
		return r;
	snprintf(message, HF_PG_MAX_MESSAGE, "its tables are of migration %s", present);
	return -EINVAL;
}

/* A server that serves has the session lock of its name. This session takes the locks of all names, to its
 * end. A standby has no such lock, but its session has a name. */
static int check_users(PGconn *conn, char message[HF_PG_MAX_MESSAGE])
{
	char user[128];
	int r = ask(conn,
		    "SELECT server FROM holdfast_server_state"
		    " WHERE NOT pg_try_advisory_lock(hashtextextended('holdfast:' || server, 0)) LIMIT 1",
		    user, sizeof(user), message);

	if (r == 0 && !*user)
		r = ask(conn,
			"SELECT 'at ' || coalesce(host(client_addr), 'the host of the database')"
			" FROM pg_stat_activity WHERE datname = current_database()"
			" AND application_name = 'holdfastd' AND pid <> pg_backend_pid() LIMIT 1",
			user, sizeof(user), message);
	if (r < 0 || !*user)
		return r;
	snprintf(message, HF_PG_MAX_MESSAGE, "holdfastd %s uses it: stop all servers of this database", user);
	return -EBUSY;
}

int hf_store_downgrade_postgres(const char *conninfo, int version)
{
	char message[HF_PG_MAX_MESSAGE] = "";
	PGconn *conn = NULL;
	int r = hf_pg_open(conninfo, &conn, message);

	if (r == 0)
		r = check_version(conn, version, message);
	if (r == 0)
		r = check_users(conn, message);
	if (r == 0)
		r = hf_pg_migrate(conn, version, message);
	PQfinish(conn);
	if (r < 0)
		hf_log_error("the database is not migrated back", "reason=%s", message);
	return r;
}
