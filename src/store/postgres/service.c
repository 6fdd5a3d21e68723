/* The row of a service, and those of its nodes; see store/service.h. */
#include "store/service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hex.h"
#include "store/postgres/internal.h"

#define NUMBER 32 /* a number as text */

struct hf_service {
	char *conninfo;      /* (c) */
	char *name;          /* (c) as it is stored */
	uint64_t timeout_ns; /* (c) of one statement */
	PGconn *conn;        /* NULL: not connected */
	char message[HF_PG_MAX_MESSAGE];
};

int hf_service_new(struct hf_service **servicep, const char *conninfo, const char *name, uint64_t timeout_ns)
{
	struct hf_service *service = calloc(1, sizeof(*service));
	struct hf_bytes bytes = hf_bytes_of_str(name);

	if (!service)
		return hf_trace(-ENOMEM);
	service->timeout_ns = timeout_ns;
	service->conninfo = strdup(conninfo);
	service->name = malloc(HF_PG_MAX_TEXT(bytes.len));
	if (!service->conninfo || !service->name) {
		hf_service_free(service);
		return hf_trace(-ENOMEM);
	}
	hf_pg_escape(service->name, bytes);
	*servicep = service;
	return 0;
}

struct hf_service *hf_service_free(struct hf_service *service)
{
	if (!service)
		return NULL;
	PQfinish(service->conn);
	free(service->conninfo);
	free(service->name);
	free(service);
	return NULL;
}

const char *hf_service_message(const struct hf_service *service)
{
	return service->message;
}

void hf_service_row_deinit(struct hf_service_row *row)
{
	free(row->exports);
	row->exports = NULL;
}

/* Statements */

static PGresult *query(struct hf_service *service, const char *sql, int n_params, const char *const *params)
{
	return hf_pg_query_within(service->conn, service->timeout_ns, sql, n_params, params, false,
				  service->message);
}

static int run(struct hf_service *service, const char *sql, int n_params, const char *const *params)
{
	PGresult *result = query(service, sql, n_params, params);

	if (!result)
		return -EIO;
	PQclear(result);
	return 0;
}

/* How many rows did it change? Or -EIO. */
static int change(struct hf_service *service, const char *sql, int n_params, const char *const *params)
{
	hf_cleanup(hf_pg_clearp) PGresult *result = query(service, sql, n_params, params);

	return result ? (int)strtol(PQcmdTuples(result), NULL, 10) : -EIO;
}

/* The limits in the database are on top of the server's own: a statement that the server gave up must not
 * have an effect long after that. */
static int connect_database(struct hf_service *service)
{
	char sql[256];
	int ms = (int)(service->timeout_ns / HF_NS_PER_MS);
	int r;

	if (service->conn && PQstatus(service->conn) == CONNECTION_OK)
		return 0;
	PQfinish(service->conn);
	service->conn = NULL;
	r = hf_pg_dial(service->conninfo, service->timeout_ns, &service->conn, service->message);
	if (r < 0)
		return r;
	snprintf(sql, sizeof(sql),
		 "SET client_min_messages = error; SET lock_timeout = %d; SET statement_timeout = %d;"
		 "SET idle_in_transaction_session_timeout = %d; SET standard_conforming_strings = on",
		 ms, ms, ms);
	r = run(service, sql, 0, NULL);
	return r < 0 ? r : hf_pg_migrate(service->conn, -1, service->message);
}

/* A connection that failed may still have a transaction open. */
static int fail(struct hf_service *service, int r)
{
	PQfinish(service->conn);
	service->conn = NULL;
	return r;
}

static int begin(struct hf_service *service, bool is_synced)
{
	int r = connect_database(service);

	if (r == 0)
		r = run(service,
			is_synced ? "BEGIN; SET LOCAL synchronous_commit = on"
				  : "BEGIN; SET LOCAL synchronous_commit = off",
			0, NULL);
	return r;
}

/* Ends the transaction: @r decides how. -ESTALE and -EEXIST are answers, the rest are errors. */
static int end(struct hf_service *service, int r)
{
	char message[HF_PG_MAX_MESSAGE];

	if (r == 0)
		r = run(service, "COMMIT", 0, NULL);
	else if (r == -ESTALE || r == -EEXIST) {
		memcpy(message, service->message, sizeof(message));
		if (run(service, "ROLLBACK", 0, NULL) < 0)
			fail(service, r);
		memcpy(service->message, message, sizeof(message));
		return r;
	}
	return r < 0 ? fail(service, r) : 0;
}

/* Looking */

static void copy(char *out, size_t size, const PGresult *result, int row, int column)
{
	snprintf(out, size, "%s", PQgetvalue(result, row, column));
}

static uint64_t number(const PGresult *result, int row, int column)
{
	return strtoull(PQgetvalue(result, row, column), NULL, 10);
}

static bool is_true(const PGresult *result, int row, int column)
{
	return *PQgetvalue(result, row, column) == 't';
}

static void read_key(uint8_t key[static HF_SERVICE_KEY], const char *hex)
{
	for (size_t i = 0; i < HF_SERVICE_KEY && strlen(hex) == 2 * HF_SERVICE_KEY; i++) {
		char digits[3] = { hex[2 * i], hex[2 * i + 1], '\0' };

		key[i] = (uint8_t)strtoul(digits, NULL, 16);
	}
}

/* As in read_medium() of connect.c. */
#define HISTORY "left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)"

/* The session lock of a store on the name; see connect.c. */
#define SESSIONS                                                                           \
	"FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND"       \
	" database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND" \
	" (classid::bigint << 32 | objid::bigint) = hashtextextended('holdfast:' || $1, 0)"

/* What a client may rely on, as in has_facts() of store.c. A row of the journal may be one. */
#define HAS_FACTS                                                                      \
	"(EXISTS (SELECT 1 FROM nsm_client_registrations WHERE server = q.service) OR" \
	" EXISTS (SELECT 1 FROM holdfast_locks WHERE server = q.service) OR"           \
	" EXISTS (SELECT 1 FROM holdfast_shares WHERE server = q.service) OR"          \
	" EXISTS (SELECT 1 FROM holdfast_journal WHERE server = q.service))"

static int look_at_row(struct hf_service *service, struct hf_service_row *row)
{
	const char *params[] = { service->name };
	hf_cleanup(hf_pg_clearp) PGresult *result =
		query(service,
		      "SELECT s.service IS NOT NULL OR st.server IS NOT NULL, l.service IS NOT NULL,"
		      " EXISTS (SELECT 1 " SESSIONS "), coalesce(st.epoch, 0), coalesce(st.sm_state, 0),"
		      " coalesce(s.owner, ''), l.owner, l.node, l.instance, l.renewals, l.lease_ms, l.heir, "
		      "l.wanted,"
		      " encode(l.handle_key, 'hex'), l.exports,"
		      " coalesce((extract(epoch FROM l.takeover_at) * 1000000)::bigint, 0), l.takeover_from,"
		      " l.takeover_to, l.takeover_reason, l.takeover_continued, l.takeover_seconds, " HISTORY
		      ","
		      " l.history,"
		      " CASE WHEN l.service IS NULL AND s.handle_key <> 0 AND " HAS_FACTS
		      " THEN s.handle_key ELSE 0 END"
		      " FROM (SELECT $1::text AS service) AS q"
		      " LEFT JOIN holdfast_services s ON s.service = q.service"
		      " LEFT JOIN holdfast_server_state st ON st.server = q.service"
		      " LEFT JOIN holdfast_leases l ON l.service = q.service",
		      1, params);

	if (!result || PQntuples(result) != 1)
		return -EIO;
	row->exists = is_true(result, 0, 0);
	row->has_lease = is_true(result, 0, 1);
	row->is_locked = is_true(result, 0, 2);
	row->epoch = number(result, 0, 3);
	row->sm_state = (int32_t)number(result, 0, 4);
	copy(row->owner, sizeof(row->owner), result, 0, 5);
	copy(row->lease_owner, sizeof(row->lease_owner), result, 0, 6);
	copy(row->node, sizeof(row->node), result, 0, 7);
	copy(row->instance, sizeof(row->instance), result, 0, 8);
	row->renewals = number(result, 0, 9);
	row->lease_ns = number(result, 0, 10) * HF_NS_PER_MS;
	copy(row->heir, sizeof(row->heir), result, 0, 11);
	copy(row->wanted, sizeof(row->wanted), result, 0, 12);
	read_key(row->key, PQgetvalue(result, 0, 13));
	row->exports = strdup(PQgetvalue(result, 0, 14));
	row->takeover.at = number(result, 0, 15) * 1000;
	copy(row->takeover.from, sizeof(row->takeover.from), result, 0, 16);
	copy(row->takeover.to, sizeof(row->takeover.to), result, 0, 17);
	copy(row->takeover.reason, sizeof(row->takeover.reason), result, 0, 18);
	row->takeover.continued = is_true(result, 0, 19);
	row->takeover.seconds = strtod(PQgetvalue(result, 0, 20), NULL);
	copy(row->history, sizeof(row->history), result, 0, 21);
	copy(row->lease_history, sizeof(row->lease_history), result, 0, 22);
	row->key_print = number(result, 0, 23);
	return row->exports ? 0 : hf_trace(-ENOMEM);
}

static int look_at_nodes(struct hf_service *service, struct hf_service_row *row)
{
	const char *params[] = { service->name };
	hf_cleanup(hf_pg_clearp) PGresult *result =
		query(service,
		      "SELECT node, instance, role, reason, version,"
		      " (extract(epoch FROM seen_at) * 1000000)::bigint,"
		      " greatest((extract(epoch FROM clock_timestamp() - seen_at) * 1000000)::bigint, 0)"
		      " FROM holdfast_nodes WHERE service = $1 ORDER BY seen_at DESC, node LIMIT 16",
		      1, params);

	if (!result)
		return -EIO;
	for (int i = 0; i < PQntuples(result) && i < HF_SERVICE_MAX_NODES; i++) {
		struct hf_service_node *node = &row->nodes[row->n_nodes++];

		copy(node->name, sizeof(node->name), result, i, 0);
		copy(node->instance, sizeof(node->instance), result, i, 1);
		copy(node->role, sizeof(node->role), result, i, 2);
		copy(node->reason, sizeof(node->reason), result, i, 3);
		copy(node->version, sizeof(node->version), result, i, 4);
		node->seen_at = number(result, i, 5) * 1000;
		node->seen_ago_ns = number(result, i, 6) * 1000;
	}
	return 0;
}

static int look(struct hf_service *service, struct hf_service_row *row)
{
	int r;

	memset(row, 0, sizeof(*row));
	r = look_at_row(service, row);
	if (r == 0)
		r = look_at_nodes(service, row);
	if (r < 0)
		hf_service_row_deinit(row);
	return r;
}

/* -EEXIST: another instance has this name and was seen lately. */
static int say_here(struct hf_service *service, const struct hf_service_self *self)
{
	char gone_ms[NUMBER];
	const char *params[] = { service->name, self->node,    self->instance, self->role,
				 self->reason,  self->version, gone_ms };
	int n;

	snprintf(gone_ms, sizeof(gone_ms), "%llu", (unsigned long long)(self->gone_ns / HF_NS_PER_MS));
	n = change(service,
		   "INSERT INTO holdfast_nodes AS n (service, node, instance, role, reason, version, seen_at)"
		   " VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp()) ON CONFLICT (service, node) DO UPDATE"
		   " SET instance = excluded.instance, role = excluded.role, reason = excluded.reason,"
		   " version = excluded.version, seen_at = excluded.seen_at WHERE n.instance = $3"
		   " OR n.seen_at < clock_timestamp() - $7::bigint * interval '1 millisecond'",
		   7, params);
	if (n != 0)
		return n < 0 ? n : 0;
	snprintf(service->message, sizeof(service->message), "another node has the name %s", self->node);
	return -EEXIST;
}

/* The last part of a transaction, if it went well so far. */
static int look_and_end(struct hf_service *service, int r, const struct hf_service_self *self,
			struct hf_service_row *rowp)
{
	if (r == 0)
		r = say_here(service, self);
	if (r == 0)
		r = look(service, rowp);
	if (r < 0)
		return end(service, r);
	r = end(service, 0);
	if (r < 0)
		hf_service_row_deinit(rowp);
	return r;
}

int hf_service_look(struct hf_service *service, const struct hf_service_self *self,
		    struct hf_service_row *rowp)
{
	return look_and_end(service, begin(service, false), self, rowp);
}

/* Renewing */

static int add_renewal(struct hf_service *service, const char *owner, const char *exports,
		       const char *history)
{
	const char *params[] = { service->name, owner, exports, history };
	/* A promoted replica has all commits only if they waited for it. A commit that does waits for those
	 * before it, too. */
	int n = change(service,
		       "UPDATE holdfast_leases SET renewals = renewals + 1,"
		       " exports = coalesce($3, exports), history = $4,"
		       " is_unsynced = current_setting('synchronous_standby_names') = ''"
		       " WHERE service = $1 AND owner = $2",
		       4, params);

	return n == 0 ? -ESTALE : n < 0 ? n : 0;
}

int hf_service_renew(struct hf_service *service, const struct hf_service_self *self, const char *owner,
		     const char *exports, struct hf_service_row *rowp)
{
	bool is_stale;
	int r = begin(service, true);

	if (r == 0)
		r = add_renewal(service, owner, exports, self->history);
	is_stale = r == -ESTALE;
	r = look_and_end(service, is_stale ? 0 : r, self, rowp);
	return r == 0 && is_stale ? -ESTALE : r;
}

/* Changing the owner */

/* A transaction that the owner before has left open would lock the row of the service until its session ends.
 * A session of the same user may be ended. */
static int end_sessions(struct hf_service *service)
{
	const char *params[] = { service->name };

	return run(service, "SELECT pg_terminate_backend(pid) " SESSIONS, 1, params);
}

/* Rows that are not there yet cannot be locked: claims wait for each other, so that only one of them finds
 * none. */
static int await_claims(struct hf_service *service)
{
	const char *params[] = { service->name };

	return run(service, "SELECT pg_advisory_xact_lock(hashtextextended('holdfast claim:' || $1, 0))", 1,
		   params);
}

/* Are the rows as they were seen? @lock: from now on no other transaction changes them. */
static int compare(struct hf_service *service, const struct hf_service_row *seen, bool lock)
{
	const char *params[] = { service->name };
	hf_cleanup(hf_pg_clearp) PGresult *owner =
		query(service,
		      lock ? "SELECT owner FROM holdfast_services WHERE service = $1 FOR UPDATE"
			   : "SELECT owner FROM holdfast_services WHERE service = $1",
		      1, params);
	hf_cleanup(hf_pg_clearp) PGresult *lease = NULL, *history = NULL;
	bool is_same;

	if (!owner)
		return -EIO;
	lease = query(service,
		      lock ? "SELECT owner, renewals FROM holdfast_leases WHERE service = $1 FOR UPDATE"
			   : "SELECT owner, renewals FROM holdfast_leases WHERE service = $1",
		      1, params);
	if (lease)
		history = query(service, "SELECT " HISTORY, 0, NULL);
	if (!lease || !history)
		return -EIO;
	is_same = strcmp(PQgetvalue(history, 0, 0), seen->history) == 0 &&
		  strcmp(PQntuples(owner) ? PQgetvalue(owner, 0, 0) : "", seen->owner) == 0 &&
		  (PQntuples(lease) == 1) == seen->has_lease;
	if (is_same && seen->has_lease)
		is_same = strcmp(PQgetvalue(lease, 0, 0), seen->lease_owner) == 0 &&
			  number(lease, 0, 1) == seen->renewals;
	if (is_same)
		return 0;
	snprintf(service->message, sizeof(service->message), "another node was faster");
	return -ESTALE;
}

static int write_claim(struct hf_service *service, const struct hf_service_self *self,
		       const struct hf_service_claim *claim)
{
	char lease_ms[NUMBER], key[2 * HF_SERVICE_KEY + 1];
	const char *owner[] = { service->name, claim->owner };
	const char *lease[] = { service->name, claim->owner, self->node,    self->instance,
				lease_ms,      key,          claim->exports };
	int r;

	snprintf(lease_ms, sizeof(lease_ms), "%llu", (unsigned long long)(claim->lease_ns / HF_NS_PER_MS));
	*hf_hex_put(key, claim->key, HF_SERVICE_KEY) = '\0';
	r = run(service,
		"INSERT INTO holdfast_services (service, epoch, owner) VALUES ($1, 0, $2)"
		" ON CONFLICT (service) DO UPDATE SET owner = excluded.owner",
		2, owner);
	if (r < 0)
		return r;
	return run(
		service,
		"INSERT INTO holdfast_leases (service, owner, node, instance, lease_ms, handle_key, exports,"
		" history, is_unsynced) VALUES ($1, $2, $3, $4, $5, decode($6, 'hex'), $7, " HISTORY ","
		" current_setting('synchronous_standby_names') = '')"
		" ON CONFLICT (service) DO UPDATE SET owner = excluded.owner, node = excluded.node,"
		" instance = excluded.instance, renewals = holdfast_leases.renewals + 1,"
		" lease_ms = excluded.lease_ms, history = excluded.history, heir = '', wanted = '', exports "
		"= excluded.exports,"
		" was_unsynced = holdfast_leases.was_unsynced OR holdfast_leases.is_unsynced,"
		" is_unsynced = excluded.is_unsynced",
		7, lease);
}

/* A claim that comes too late must not end the sessions of the node that was faster: it looks before it ends
 * them. */
int hf_service_claim(struct hf_service *service, const struct hf_service_self *self,
		     const struct hf_service_row *seen, const struct hf_service_claim *claim)
{
	int r = begin(service, true);

	if (r == 0)
		r = await_claims(service);
	if (r == 0)
		r = compare(service, seen, false);
	if (r == 0)
		r = end_sessions(service);
	if (r == 0)
		r = compare(service, seen, true);
	if (r == 0)
		r = write_claim(service, self, claim);
	return end(service, r);
}

/* One statement as a transaction. -ESTALE: it found no row, the owner is another one. */
static int change_once(struct hf_service *service, bool is_synced, const char *sql, int n_params,
		       const char *const *params)
{
	int r = begin(service, is_synced);
	int n = r < 0 ? r : change(service, sql, n_params, params);

	return end(service, n == 0 ? -ESTALE : n < 0 ? n : 0);
}

int hf_service_hand_over(struct hf_service *service, const char *owner, const char *heir)
{
	const char *params[] = { service->name, owner, heir };

	return change_once(service, true,
			   "UPDATE holdfast_leases SET owner = '', heir = $3, wanted = '',"
			   " renewals = renewals + 1 WHERE service = $1 AND owner = $2",
			   3, params);
}

int hf_service_ask(struct hf_service *service, const char *node)
{
	const char *params[] = { service->name, node };

	return change_once(service, true, "UPDATE holdfast_leases SET wanted = $2 WHERE service = $1", 2,
			   params);
}

int hf_service_report(struct hf_service *service, const char *owner,
		      const struct hf_service_takeover *takeover)
{
	char seconds[NUMBER];
	const char *params[] = { service->name,    owner,
				 takeover->from,   takeover->to,
				 takeover->reason, takeover->continued ? "t" : "f",
				 seconds };

	if (!*takeover->from)
		return change_once(service, true,
				   "UPDATE holdfast_leases SET was_unsynced = false"
				   " WHERE service = $1 AND owner = $2",
				   2, params);
	snprintf(seconds, sizeof(seconds), "%.6f", takeover->seconds);
	return change_once(service, true,
			   "UPDATE holdfast_leases SET takeover_at = clock_timestamp(), takeover_from = $3,"
			   " takeover_to = $4, takeover_reason = $5, takeover_continued = $6,"
			   " takeover_seconds = $7, was_unsynced = false WHERE service = $1 AND owner = $2",
			   7, params);
}

/* Connections of clients */

static char *hex_of(struct hf_bytes bytes)
{
	char *hex = malloc(2 * (size_t)bytes.len + 1);

	if (hex)
		*hf_hex_put(hex, bytes.data, bytes.len) = '\0';
	return hex;
}

int hf_service_put_connections(struct hf_service *service, const char *owner, struct hf_bytes connections)
{
	hf_cleanup(hf_freep) char *hex = hex_of(connections);
	const char *params[] = { service->name, owner, hex };

	if (!hex)
		return hf_trace(-ENOMEM);
	return change_once(service, false,
			   "UPDATE holdfast_leases SET connections = decode($3, 'hex')"
			   " WHERE service = $1 AND owner = $2",
			   3, params);
}

int hf_service_get_connections(struct hf_service *service, uint8_t **connectionsp, size_t *lenp)
{
	const char *params[] = { service->name };
	hf_cleanup(hf_pg_clearp) PGresult *result = NULL;
	int r = connect_database(service);

	if (r < 0)
		return r;
	result = hf_pg_query_within(service->conn, service->timeout_ns,
				    "SELECT connections FROM holdfast_leases WHERE service = $1", 1, params,
				    true, service->message);
	if (!result)
		return fail(service, -EIO);
	*lenp = PQntuples(result) ? (size_t)PQgetlength(result, 0, 0) : 0;
	*connectionsp = malloc(*lenp + 1);
	if (!*connectionsp)
		return hf_trace(-ENOMEM);
	if (*lenp)
		memcpy(*connectionsp, PQgetvalue(result, 0, 0), *lenp);
	return 0;
}

int hf_service_forget(struct hf_service *service, const struct hf_service_self *self)
{
	const char *params[] = { service->name, self->node, self->instance };

	return change_once(service, true,
			   "DELETE FROM holdfast_nodes WHERE service = $1 AND node = $2 AND instance = $3", 3,
			   params);
}
