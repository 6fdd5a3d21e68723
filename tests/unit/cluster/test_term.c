/* What a term of a node reports, with a real database. */
#include "../test.h"

#include <errno.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../store/cluster.h"
#include "cluster/cluster.h"
#include "loop/loop.h"

#define LEASE    (3 * HF_NS_PER_S)
#define PATIENCE 60 /* seconds */

static const struct hf_service_self other = {
	.node = "b",
	.instance = "id-b",
	.role = "active",
	.reason = "",
	.version = "1",
	.gone_ns = LEASE,
	.history = "",
};

static int remember(void *user, uint64_t epoch, int32_t state)
{
	return 0;
}

/* The other node has served, and has handed the service over. Its commits may be lost with the database. */
static char *begin_service(void)
{
	static const uint8_t key[HF_SERVICE_KEY] = { 1 };
	const struct hf_service_claim wanted = {
		.owner = "owner-b", .lease_ns = LEASE, .key = key, .exports = ""
	};
	char *conninfo = cluster_new_database(cluster_get()), ignored[8];
	struct hf_service *service;
	struct hf_service_row row;

	assert_int_equal(hf_service_new(&service, conninfo, "nfs", 20 * HF_NS_PER_S), 0);
	assert_int_equal(hf_service_look(service, &other, &row), 0);
	assert_int_equal(hf_service_claim(service, &other, &row, &wanted), 0);
	hf_service_row_deinit(&row);
	assert_int_equal(hf_service_hand_over(service, "owner-b", "elsewhere"), 0);
	hf_service_free(service);
	cluster_query(conninfo, "UPDATE holdfast_leases SET was_unsynced = true RETURNING 1", ignored,
		      sizeof(ignored));
	return conninfo;
}

static struct hf_cluster *make(const char *conninfo)
{
	const struct hf_cluster_options options = {
		.postgres = conninfo,
		.node = {
			.service = "nfs",
			.node = "a",
			.instance = "id-a",
			.version = "1",
			.exports = "",
			.lease_ns = LEASE,
		},
		.remember = remember,
	};
	struct hf_cluster *cluster;

	assert_int_equal(hf_cluster_new(&cluster, &options), 0);
	return cluster;
}

/* Until the thread has looked once more. What was due before that look is done after the next one. */
static void await_look(const char *conninfo)
{
	static const char seen[] =
		"SELECT extract(epoch FROM max(seen_at)) FROM holdfast_nodes WHERE node = 'a'";
	time_t deadline = time(NULL) + PATIENCE;
	char before[64], now[64];

	cluster_query(conninfo, seen, before, sizeof(before));
	do {
		assert_true(time(NULL) < deadline);
		cluster_query(conninfo, seen, now, sizeof(now));
	} while (strcmp(before, now) == 0);
}

/* Deposed while it built the service: it has no owner, and neither has the row. The next node must still know
 * that commits may be missing. */
static void test_service_of_a_term_that_has_ended_reports_nothing(void **state)
{
	const struct hf_cluster_term term = { .epoch = 7, .state = 9, .continues = true };
	char *conninfo = begin_service(), was_unsynced[8];
	struct hf_cluster *cluster = make(conninfo);
	int32_t known_state;
	uint64_t known_epoch;

	assert_int_equal(hf_cluster_start(cluster), 0);
	await_look(conninfo);
	hf_cluster_serves(cluster, &term);
	await_look(conninfo);
	await_look(conninfo);
	cluster_query(conninfo, "SELECT was_unsynced FROM holdfast_leases", was_unsynced,
		      sizeof(was_unsynced));
	assert_string_equal(was_unsynced, "t");
	hf_cluster_known(cluster, &known_epoch, &known_state);
	assert_int_equal(known_epoch, 7);
	assert_int_equal(known_state, 9);
	hf_cluster_leave(cluster);
	hf_cluster_free(cluster);
	free(conninfo);
}

/* A transaction that has the row of the service locked, until the connection ends. */
static PGconn *hold_row(const char *conninfo)
{
	PGconn *conn = PQconnectdb(conninfo);

	PQclear(PQexec(conn, "BEGIN; SELECT 1 FROM holdfast_leases FOR UPDATE"));
	assert_int_equal(PQtransactionStatus(conn), PQTRANS_INTRANS);
	return conn;
}

static void *leave(void *user)
{
	hf_cluster_leave(user);
	return NULL;
}

static void await(const char *conninfo, const char *sql, const char *wanted)
{
	time_t deadline = time(NULL) + PATIENCE;
	char now[64];

	do {
		assert_true(time(NULL) < deadline);
		cluster_query(conninfo, sql, now, sizeof(now));
	} while (strcmp(now, wanted) != 0);
}

/* A process that is told to end while the database answers its claim: no other node waits for this lease. */
static void test_claim_of_a_process_that_ends_is_handed_over(void **state)
{
	char *conninfo = begin_service(), ignored[8], owner[64];
	struct hf_cluster *cluster = make(conninfo);
	pthread_t thread;
	PGconn *conn;

	cluster_query(conninfo, "UPDATE holdfast_leases SET heir = 'a' RETURNING 1", ignored, sizeof(ignored));
	conn = hold_row(conninfo);
	assert_int_equal(hf_cluster_start(cluster), 0);
	await(conninfo, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'", "1");
	assert_int_equal(pthread_create(&thread, NULL, leave, cluster), 0);
	assert_int_equal(pthread_tryjoin_np(thread, NULL), EBUSY);
	PQfinish(conn);
	assert_int_equal(pthread_join(thread, NULL), 0);
	cluster_query(conninfo, "SELECT owner FROM holdfast_leases", owner, sizeof(owner));
	assert_string_equal(owner, "");
	cluster_query(conninfo, "SELECT node FROM holdfast_leases", owner, sizeof(owner));
	assert_string_equal(owner, "a"); /* it had it */
	hf_cluster_free(cluster);
	free(conninfo);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_service_of_a_term_that_has_ended_reports_nothing),
		cmocka_unit_test(test_claim_of_a_process_that_ends_is_handed_over),
	};

	if (!cluster_is_possible())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
