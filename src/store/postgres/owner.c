/*
 * Which run does the service belong to?
 *
 * The row of a service in holdfast_services names the run that used the store
 * last: its epoch, and an owner of random bytes that each run makes. A run
 * takes the row in the transaction that begins its epoch, under the session
 * lock. In a cluster a claim has taken it before that (service.c). Every later transaction of the run begins
 * by checking the row and locks it (shared) until the transaction ends.
 *
 * A run that has lost its session lock without knowing it can therefore not
 * write beside or after its successor. Either the successor waits for the
 * transaction in flight and then loads what that wrote, or the transaction
 * finds the successor's name and is refused.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "store/postgres/internal.h"

#define TAKEN "HF001" /* SQLSTATE that holdfast_refuse() in migrations.c raises */

#define NUMBER 24 /* digits, as text */

void hf_pg_make_owner(struct hf_pg *pg)
{
	uint64_t number[2];

	_Static_assert(2 * sizeof(number) == HF_PG_OWNER, "two digits a byte");
	hf_loop_random(pg->store.loop, number, sizeof(number));
	snprintf(pg->owner, sizeof(pg->owner), "%016llx%016llx", (unsigned long long)number[0],
		 (unsigned long long)number[1]);
}

static void write_number(char text[NUMBER], uint64_t number)
{
	snprintf(text, NUMBER, "%lld", (long long)number);
}

static int put_owner(const struct hf_pg *pg, PGconn *conn, const struct hf_store_state *state,
		     const char *otherwise, char message[HF_PG_MAX_MESSAGE])
{
	char epoch[NUMBER], key[NUMBER], sql[256];
	const char *params[] = { pg->server, epoch, pg->owner, key };
	PGresult *result;

	write_number(epoch, state->epoch);
	write_number(key, state->handle_key);
	snprintf(sql, sizeof(sql),
		 "INSERT INTO holdfast_services (service, epoch, owner, handle_key) VALUES ($1, $2, $3, $4)"
		 " ON CONFLICT (service) DO %s",
		 otherwise);
	result = hf_pg_query(conn, sql, 4, params, false, message);
	if (!result)
		return hf_trace(-EIO);
	PQclear(result);
	return 0;
}

/* A run without a claim renews no lease, which would say whether its commits wait for the replica. */
static int doubt_replica(struct hf_pg *pg, PGconn *conn)
{
	const char *params[] = { pg->server };
	PGresult *result = hf_pg_query(conn,
				       "UPDATE holdfast_leases SET was_unsynced = true"
				       " WHERE service = $1 AND NOT was_unsynced",
				       1, params, false, pg->message);

	if (!result)
		return hf_trace(-EIO);
	PQclear(result);
	return 0;
}

int hf_pg_own(struct hf_pg *pg, PGconn *conn, const struct hf_store_state *state)
{
	int r = put_owner(
		pg, conn, state,
		"UPDATE SET epoch = excluded.epoch, owner = excluded.owner, handle_key = excluded.handle_key",
		pg->message);

	return r < 0 || pg->store.is_claimed ? r : doubt_replica(pg, conn);
}

int hf_pg_restore_owner(const struct hf_pg *pg, PGconn *conn, char message[HF_PG_MAX_MESSAGE])
{
	return put_owner(pg, conn, &pg->store.state, "NOTHING", message);
}

int hf_pg_check_owner(const struct hf_pg *pg, PGconn *conn, bool is_missing_fine,
		      char message[HF_PG_MAX_MESSAGE])
{
	const char *params[] = { pg->server };
	hf_cleanup(hf_pg_clearp) PGresult *result =
		hf_pg_query(conn, "SELECT epoch, owner FROM holdfast_services WHERE service = $1 FOR SHARE",
			    1, params, false, message);
	char epoch[NUMBER];

	if (!result)
		return hf_trace(-EIO);
	if (PQntuples(result) == 0) {
		if (is_missing_fine)
			return 0;
		snprintf(message, HF_PG_MAX_MESSAGE, "the row of this service is gone");
		return hf_trace(-EIO);
	}
	write_number(epoch, pg->store.state.epoch);
	if (strcmp(PQgetvalue(result, 0, 1), pg->owner) == 0 &&
	    (!pg->store.has_begun || strcmp(PQgetvalue(result, 0, 0), epoch) == 0))
		return 0;
	snprintf(message, HF_PG_MAX_MESSAGE, "another holdfastd has used it since");
	return -ESTALE;
}

/* The function runs only on a mismatch: to call it in each transaction would cost more than the check
 * itself. */
int hf_pg_prepare_check(PGconn *conn, char message[HF_PG_MAX_MESSAGE])
{
	return hf_pg_run(conn,
			 "PREPARE begin_batch (text, bigint, text, text) AS SELECT CASE"
			 " WHEN (SELECT count(*) FROM (SELECT 1 FROM holdfast_services WHERE service = $1"
			 " AND epoch = $2 AND owner = $3 FOR SHARE) AS mine) = 1"
			 " THEN set_config('synchronous_commit', $4, true) ELSE holdfast_refuse($1) END",
			 message);
}

int hf_pg_send_check(const struct hf_pg *pg, PGconn *conn, bool needs_sync)
{
	char epoch[NUMBER];
	const char *params[] = { pg->server, epoch, pg->owner, needs_sync ? "on" : "off" };

	write_number(epoch, pg->store.state.epoch);
	return PQsendQueryPrepared(conn, "begin_batch", 4, params, NULL, NULL, 0) ? 0 : hf_trace(-EIO);
}

bool hf_pg_says_taken(const PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	return state && strcmp(state, TAKEN) == 0;
}
