/*
 * Migrations, each in a transaction of its own and all under one lock. If
 * several servers start at once, one creates the tables and the others find
 * them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "store/postgres/internal.h"

#define MIGRATION_LOCK "7526411890431127399" /* an arbitrary constant */

static int read_version(PGconn *conn, int *versionp, char message[HF_PG_MAX_MESSAGE])
{
	hf_cleanup(hf_pg_clearp) PGresult *result =
		hf_pg_query(conn, "SELECT coalesce(max(version), 0) FROM holdfast_migrations", 0, NULL, false,
			    message);

	if (!result)
		return hf_trace(-EIO);
	*versionp = (int)strtol(PQgetvalue(result, 0, 0), NULL, 10);
	return 0;
}

/* Migrates one step up or down from @version. */
static int step(PGconn *conn, int version, bool up, char message[HF_PG_MAX_MESSAGE])
{
	int number = up ? version + 1 : version;
	const struct hf_pg_migration *migration = &hf_pg_migrations[number - 1];
	char note[128];
	int r;

	if (up)
		snprintf(note, sizeof(note), "INSERT INTO holdfast_migrations (version) VALUES (%d)", number);
	else
		snprintf(note, sizeof(note), "DELETE FROM holdfast_migrations WHERE version = %d", number);
	r = hf_pg_run(conn, "BEGIN", message);
	if (r == 0)
		r = hf_pg_run(conn, up ? migration->up : migration->down, message);
	if (r == 0)
		r = hf_pg_run(conn, note, message);
	if (r == 0)
		r = hf_pg_run(conn, "COMMIT", message);
	if (r < 0) {
		char ignored[HF_PG_MAX_MESSAGE];

		hf_pg_run(conn, "ROLLBACK", ignored);
		return hf_trace(r);
	}
	hf_log_info(up ? "database migrated" : "database migrated back", "number=%d name=%s", number,
		    migration->name);
	return 0;
}

static int migrate_locked(PGconn *conn, int target, char message[HF_PG_MAX_MESSAGE])
{
	int version = 0, r;

	r = hf_pg_run(conn,
		      "CREATE TABLE IF NOT EXISTS holdfast_migrations ("
		      " version integer PRIMARY KEY,"
		      " applied_at timestamptz NOT NULL DEFAULT now())",
		      message);
	if (r == 0)
		r = read_version(conn, &version, message);
	if (r < 0)
		return r;
	if (version > hf_pg_n_migrations) {
		snprintf(message, HF_PG_MAX_MESSAGE,
			 "a newer holdfastd made its tables (migration %d; this one knows up to %d)", version,
			 hf_pg_n_migrations);
		return -EPROTO;
	}
	for (; r == 0 && version < target; version++)
		r = step(conn, version, true, message);
	for (; r == 0 && version > target; version--)
		r = step(conn, version, false, message);
	return r;
}

int hf_pg_migrate(PGconn *conn, int target, char message[HF_PG_MAX_MESSAGE])
{
	char ignored[HF_PG_MAX_MESSAGE];
	int r;

	r = hf_pg_run(conn, "SELECT pg_advisory_lock(" MIGRATION_LOCK ")", message);
	if (r < 0)
		return hf_trace(r);
	r = migrate_locked(conn, target < 0 ? hf_pg_n_migrations : target, message);
	hf_pg_run(conn, "SELECT pg_advisory_unlock(" MIGRATION_LOCK ")", ignored);
	return hf_trace(r);
}
