/* What only PostgreSQL can do or suffer. */
#include "kit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "../../until.h"
#include "../said.h"
#include "cluster.h"
#include "base/log.h"
#include "store/backend.h"
#include "store/postgres/internal.h"

static void expect_answer(struct kit *kit, const char *sql, const char *expected)
{
	char found[256];

	cluster_query(kit->path, sql, found, sizeof(found));
	assert_string_equal(found, expected);
}

static bool is_folded(struct kit *kit)
{
	char found[16];

	cluster_query(kit->options.postgres, "SELECT count(*) FROM holdfast_journal", found, sizeof(found));
	return strcmp(found, "0") == 0;
}

static void fill(struct kit *kit, unsigned int seed)
{
	for (unsigned int i = 0; i < 50; i++) {
		kit_put_client(kit, i, i + seed);
		kit_put_lock(kit, hf_store_new_id(kit->store), i + seed);
		kit_put_reservation(kit, hf_store_new_id(kit->store), i + seed);
	}
	kit_settle(kit);
}

static void test_two_servers_do_not_mix(void **state)
{
	struct kit one, two;

	kit_init(&one, &kit_postgres, HF_STORE_PROCESS);
	kit_init(&two, &kit_postgres, HF_STORE_PROCESS);
	two.options.postgres = one.path;
	two.options.server = "server-2";
	kit_open(&one);
	kit_open(&two);
	assert_true(two.start.is_first);
	fill(&one, 0);
	fill(&two, 100); /* the same client ids and lock ids */
	kit_delete_client(&one, 7);
	kit_settle(&one);
	kit_reopen(&one);
	kit_reopen(&two);
	kit_expect(&one);
	kit_expect(&two);
	assert_int_equal(one.start.epoch, 2);
	assert_int_equal(hf_store_clear(one.store), 0);
	kit_facts_drop(&one.facts, true, true);
	kit_reopen(&two);
	assert_int_equal(two.start.epoch, 3);
	kit_expect(&one);
	kit_expect(&two);
	kit_deinit(&two);
	kit_deinit(&one);
}

static void test_the_second_of_a_name_is_refused(void **state)
{
	struct hf_store *second = NULL;
	struct kit kit;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	assert_int_equal(hf_store_open_postgres(&second, kit.loop, &kit.options), -EBUSY);
	assert_null(second);
	fill(&kit, 0);
	kit_deinit(&kit);
}

static void test_no_database_is_an_error_not_a_hang(void **state)
{
	struct kit kit;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit.options.postgres = "host=/nowhere/at/all dbname=none";
	assert_true(hf_store_open_postgres(&kit.store, kit.loop, &kit.options) < 0);
	kit.options.postgres = "this is no connection string";
	assert_true(hf_store_open_postgres(&kit.store, kit.loop, &kit.options) < 0);
	kit_deinit(&kit);
}

static void test_tables_and_indexes(void **state)
{
	struct kit kit;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	expect_answer(&kit,
		      "SELECT string_agg(tablename, ' ' ORDER BY tablename) FROM pg_tables"
		      " WHERE schemaname = 'public'",
		      "holdfast_database holdfast_journal holdfast_leases holdfast_locks holdfast_migrations "
		      "holdfast_nodes"
		      " holdfast_server_state holdfast_services holdfast_shares holdfast_waiters"
		      " nsm_client_registrations");
	expect_answer(&kit,
		      "SELECT string_agg(indexname, ' ' ORDER BY indexname) FROM pg_indexes"
		      " WHERE tablename = 'nsm_client_registrations'",
		      "nsm_client_registrations_callback_host nsm_client_registrations_mon_name"
		      " nsm_client_registrations_pkey nsm_client_registrations_registered_at");
	kit_deinit(&kit);
}

static void migrate(struct kit *kit, int target, int expected)
{
	char message[HF_PG_MAX_MESSAGE];
	PGconn *conn = PQconnectdb(kit->path);

	assert_int_equal(PQstatus(conn), CONNECTION_OK);
	assert_int_equal(hf_pg_migrate(conn, target, message), expected);
	PQfinish(conn);
}

static int number_of(const char *name)
{
	int number = 1;

	while (strcmp(hf_pg_migrations[number - 1].name, name) != 0)
		assert_true(++number <= hf_pg_n_migrations);
	return number;
}

/* Leaves in the model what of fill() a database keeps on its way down to @version. */
static void forget_what_is_newer(struct kit *kit, int version)
{
	for (unsigned int i = 0; i < 50; i++) {
		struct hf_record record = { .type = HF_RECORD_CLIENT, .client = kit_client(i, i) };

		if (version < number_of("clients of exports that demand TLS")) {
			record.client.is_secured = false;
			record.client.identity = (struct hf_bytes){ 0 };
		}
		if (version < number_of("runs that go on where the last one ended"))
			record.client.told_state = 0;
		if (version < number_of("state numbers that only datagrams have said"))
			record.client.is_state_unproven = false;
		if (version < number_of("clients that lock from reserved ports"))
			record.client.is_privileged = false;
		kit_facts_set(&kit->facts, &record);
	}
	for (size_t i = kit->facts.n; i-- > 0 && version < number_of("share reservations");) {
		struct kit_fact fact = kit->facts.facts[i];

		if (fact.type == HF_RECORD_RESERVATION)
			kit_facts_delete(&kit->facts, fact.type, fact.key);
	}
	if (version == 0)
		kit_facts_drop(&kit->facts, true, true);
}

/* Without what only holdfastd can read, and with it. */
/* Synced: the way down removes the mark that says that the database has not crashed. */
static void test_migration_of_the_journal(void **state)
{
	int number = number_of("a journal of locks");
	struct kit kit;
	char journal[16];

	snprintf(journal, sizeof(journal), "%d", number);
	kit_init(&kit, &kit_postgres, HF_STORE_MACHINE);
	kit_open(&kit);
	fill(&kit, 0);
	kit_close(&kit);
	migrate(&kit, number - 1, -EIO);
	forget_what_is_newer(&kit, number);
	expect_answer(&kit, "SELECT max(version) FROM holdfast_migrations", journal);
	kit_open(&kit);
	kit_expect(&kit);
	kit_close(&kit);
	migrate(&kit, number - 1, 0);
	expect_answer(&kit, "SELECT count(*) FROM pg_views WHERE viewname LIKE 'holdfast%'", "0");
	kit_open(&kit); /* what was stored before there was a journal is taken along */
	kit_expect(&kit);
	fill(&kit, 60);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

/* All that migrations make, without the views of terms, which holdfast_services makes. */
static char *read_schema(const char *database)
{
	static char found[65536];

	cluster_query(
		database,
		"SELECT string_agg(line, E'\\n' ORDER BY line COLLATE \"C\") FROM ("
		" SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default)"
		"  AS line FROM information_schema.columns"
		"  WHERE table_schema = 'public' AND table_name NOT LIKE 'holdfast\\_term\\_%'"
		" UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'"
		" UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc"
		"  WHERE pronamespace = 'public'::regnamespace"
		" UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal) all_lines",
		found, sizeof(found));
	return strdup(found);
}

static void put_waiter(struct kit *kit)
{
	struct hf_store_waiter waiter = { .wants = kit_lock(hf_store_new_id(kit->store), 1),
					  .route = hf_bytes_of_str("route") };

	assert_int_equal(hf_store_put_waiter(kit->store, &waiter, &kit->last_ticket), 0);
}

static void expect_waiters(struct kit *kit, int n)
{
	char expected[16];

	snprintf(expected, sizeof(expected), "%d", n);
	expect_answer(kit, "SELECT count(*) FROM holdfast_waiters", expected);
}

/* From the newest tables with every kind of fact down to @version, which has the tables @schema, and up
 * again. */
static void go_down_and_up(struct kit *kit, int version, const char *schema)
{
	char number[16], *found;

	kit_open(kit);
	fill(kit, 0);
	put_waiter(kit);
	kit_settle(kit);
	kit_reopen(kit); /* folds the journal */
	kit_close(kit);
	expect_waiters(kit, 1);

	migrate(kit, version, 0);
	snprintf(number, sizeof(number), "%d", version);
	expect_answer(kit, "SELECT coalesce(max(version), 0) FROM holdfast_migrations", number);
	found = read_schema(kit->path);
	assert_string_equal(found, schema);
	free(found);
	forget_what_is_newer(kit, version);

	kit_open(kit); /* up again, by itself */
	assert_int_equal(kit->start.is_first, version == 0);
	kit_expect(kit);
	expect_waiters(kit, version >= number_of("runs that go on where the last one ended"));
	assert_int_equal(hf_store_clear(kit->store), 0);
	kit_facts_drop(&kit->facts, true, true);
	kit_close(kit);
}

/* Synced, as above. */
static void test_migrations_down_and_up(void **state)
{
	struct kit kit, fresh;
	char *schemas[32];

	kit_init(&fresh, &kit_postgres, HF_STORE_MACHINE);
	for (int i = 0; i < hf_pg_n_migrations; i++) {
		migrate(&fresh, i, 0);
		schemas[i] = read_schema(fresh.path);
	}
	kit_init(&kit, &kit_postgres, HF_STORE_MACHINE);
	for (int i = hf_pg_n_migrations - 1; i >= 0; i--) {
		go_down_and_up(&kit, i, schemas[i]);
		free(schemas[i]);
	}
	kit_deinit(&kit);
	kit_deinit(&fresh);
}

static void test_tables_of_a_newer_one(void **state)
{
	struct kit kit;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	kit_close(&kit);
	cluster_query(kit.path, "INSERT INTO holdfast_migrations (version) VALUES (99)", NULL, 0);
	assert_true(hf_store_open_postgres(&kit.store, kit.loop, &kit.options) < 0);
	migrate(&kit, -1, -EPROTO);
	kit_deinit(&kit);
}

static void test_downgrade(void **state)
{
	struct kit kit;
	struct until until;
	PGconn *standby;

	kit_init(&kit, &kit_postgres, HF_STORE_MACHINE);
	kit_open(&kit);
	fill(&kit, 0);
	assert_int_equal(hf_store_downgrade_postgres(kit.path, 1), -EBUSY);
	kit_reopen(&kit); /* folds the journal */
	kit_close(&kit);
	assert_int_equal(hf_store_downgrade_postgres(kit.path, hf_pg_n_migrations + 1), -EINVAL);
	standby = PQconnectdb(kit.path);
	PQclear(PQexec(standby, "SET application_name = 'holdfastd'"));
	assert_int_equal(hf_store_downgrade_postgres(kit.path, 1), -EBUSY);
	PQfinish(standby);
	until = until_begin(UNTIL_PATIENCE); /* the database sees the end of that session a little later */
	while (hf_store_downgrade_postgres(kit.path, 1) == -EBUSY)
		assert_true(until_again(&until));
	expect_answer(&kit, "SELECT max(version) FROM holdfast_migrations", "1");
	forget_what_is_newer(&kit, 1);
	kit_open(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

static bool has_failed_and_recovered(struct kit *kit)
{
	return kit->n_failed > 0 && kit->n_recovered > 0 && hf_store_is_idle(kit->store);
}

static void cut_connections(struct kit *kit)
{
	cluster_query(kit->path,
		      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
		      " WHERE application_name = 'holdfastd'",
		      NULL, 0);
}

/* The session lock goes with its connection, and must come back with the next. */
static void test_the_second_of_a_name_is_refused_after_a_reconnect(void **state)
{
	struct hf_store *second = NULL;
	struct kit kit;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	fill(&kit, 0);
	cut_connections(&kit);
	kit_run_until(&kit, has_failed_and_recovered);
	assert_int_equal(hf_store_open_postgres(&second, kit.loop, &kit.options), -EBUSY);
	assert_null(second);
	assert_int_equal(kit.n_taken, 0);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

static bool was_taken(struct kit *kit)
{
	return kit->n_taken > 0;
}

/* Another run in the database of @one. */
static void take_over(struct kit *two, struct kit *one)
{
	kit_init(two, &kit_postgres, HF_STORE_PROCESS);
	two->options.postgres = one->path;
	kit_open(two);
}

static void expect_end(struct kit *one, uint64_t lost)
{
	kit_run_until(one, was_taken);
	assert_false(hf_store_is_healthy(one->store));
	assert_true(hf_store_reached(one->store, HF_STORE_LOCKS) < lost);
	assert_true(one->first_lost <= lost);
	assert_int_equal(hf_store_put_lock(one->store, &(struct hf_store_lock){ .id = 1 }, NULL), -EROFS);
	assert_int_equal(hf_store_mark_clean(one->store), -EROFS);
	assert_int_equal(one->n_resync, 0);
	assert_int_equal(one->n_taken, 1);
}

/* The run that lost its connection comes back while the next one serves, and after that has ended. */
static void test_store_that_another_run_has_used(void **state)
{
	for (int has_ended = 0; has_ended < 2; has_ended++) {
		struct kit one, two;
		uint64_t lost;

		kit_init(&one, &kit_postgres, HF_STORE_PROCESS);
		kit_open(&one);
		fill(&one, 0);
		cut_connections(&one);
		take_over(&two, &one);
		kit_put_lock(&two, hf_store_new_id(two.store), 7);
		kit_settle(&two);
		kit_run_until(&two, is_folded);
		if (has_ended)
			kit_close(&two);
		lost = kit_put_lock(&one, hf_store_new_id(one.store), 9);
		expect_end(&one, lost);
		kit_close(&one);
		expect_answer(&one, "SELECT count(*) FROM holdfast_locks", "51");
		expect_answer(&one, "SELECT count(*) FROM holdfast_shares", "50");
		expect_answer(&one,
			      "SELECT format('%s %s %s', epoch, sm_state, (SELECT epoch FROM"
			      " holdfast_services)) FROM holdfast_server_state",
			      "2 5 2");
		kit_deinit(&two);
		kit_deinit(&one);
	}
}

static bool has_tried_often(struct kit *kit)
{
	return kit->store->recover_gap == HF_NS_PER_S;
}

/* A newer node has changed the tables while this one served. Its next connection is refused until an operator
 * acts, so the log must say why: once. */
static void test_tables_that_a_newer_one_changed_meanwhile(void **state)
{
	struct said said;
	struct kit kit;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	fill(&kit, 0);
	cluster_query(kit.path, "INSERT INTO holdfast_migrations (version) VALUES (99)", NULL, 0);
	said_begin(&said);
	cut_connections(&kit);
	kit_run_until(&kit, has_tried_often);
	said_end(&said);
	assert_int_equal(said_times(&said, "warn: the database cannot be used yet"), 1);
	assert_int_equal(said_times(&said, "a newer holdfastd made its tables (migration 99;"), 1);
	cluster_query(kit.path, "DELETE FROM holdfast_migrations WHERE version = 99", NULL, 0);
	kit_run_until(&kit, has_failed_and_recovered);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

/* A connection that still stands, for whatever reason: each transaction looks whose the service is. */
static void test_no_transaction_without_a_look_at_the_owner(void **state)
{
	struct kit kit;
	uint64_t lost;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	fill(&kit, 0);
	kit_run_until(&kit, is_folded);
	cluster_query(kit.path, "UPDATE holdfast_services SET epoch = 2, owner = 'another'", NULL, 0);
	lost = kit_put_lock(&kit, hf_store_new_id(kit.store), 9);
	expect_end(&kit, lost);
	expect_answer(&kit, "SELECT count(*) FROM holdfast_locks", "50");
	kit_deinit(&kit);

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	cluster_query(kit.path, "UPDATE holdfast_services SET owner = 'another'", NULL, 0);
	assert_int_equal(hf_store_mark_clean(kit.store), -ESTALE);
	assert_int_equal(kit.n_taken, 1);
	expect_answer(&kit, "SELECT is_clean FROM holdfast_server_state", "f");
	kit_deinit(&kit);
}

/* What no other run has used, and has lost everything: all of it is put there again. */
static void test_database_that_lost_its_rows(void **state)
{
	struct kit kit;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	fill(&kit, 0);
	cluster_query(kit.path,
		      "TRUNCATE holdfast_services, holdfast_server_state, holdfast_locks, holdfast_shares,"
		      " nsm_client_registrations",
		      NULL, 0);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 9);
	kit_run_until(&kit, has_failed_and_recovered);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

static void test_connection_cut_within_a_pipeline(void **state)
{
	struct kit kit;

	kit_init(&kit, &kit_postgres, HF_STORE_MACHINE);
	kit_open(&kit);
	fill(&kit, 0);
	for (int round = 0; round < 5; round++) {
		kit.n_failed = kit.n_recovered = 0;
		for (unsigned int i = 0; i < 2000; i++)
			kit_put_lock(&kit, hf_store_new_id(kit.store), i);
		kit_put_client(&kit, (unsigned int)round + 200, 1);
		if (round)
			kit_turn(&kit); /* some of it has left */
		cut_connections(&kit);
		kit_run_until(&kit, has_failed_and_recovered);
	}
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

static bool has_failed(struct kit *kit)
{
	return kit->n_failed > 0;
}

/* An error of the database itself, on a connection that is whole. */
static void test_refused_statement_is_a_failure(void **state)
{
	struct kit kit;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	fill(&kit, 0);
	cluster_query(kit.path,
		      "ALTER TABLE nsm_client_registrations ADD CONSTRAINT never CHECK (false) NOT VALID",
		      NULL, 0);
	kit_put_client(&kit, 77, 1);
	kit_run_until(&kit, has_failed);
	assert_true(kit.first_lost <= kit.last_ticket);
	assert_true(hf_store_reached(kit.store, HF_STORE_CLIENTS) < kit.last_ticket);
	cluster_query(kit.path, "ALTER TABLE nsm_client_registrations DROP CONSTRAINT never", NULL, 0);
	kit_run_until(&kit, has_failed_and_recovered);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

/* The journal */

/* Rows that put, change and delete the same locks, more than ten of them: the last one counts. */
static void write_rows(struct kit *kit)
{
	uint64_t ids[40];

	for (unsigned int i = 0; i < 40; i++) {
		ids[i] = hf_store_new_id(kit->store);
		kit_put_lock(kit, ids[i], i);
		kit_put_reservation(kit, hf_store_new_id(kit->store), i);
		kit_settle(kit);
		if (i % 3 == 0)
			kit_put_lock(kit, ids[i / 2], i + 1000);
		if (i % 4 == 0)
			kit_delete_lock(kit, ids[i - i / 4]);
		kit_settle(kit);
	}
}

static void test_run_that_left_rows_in_the_journal(void **state)
{
	struct kit kit;

	for (int durability = HF_STORE_PROCESS; durability <= HF_STORE_MACHINE; durability++) {
		kit_init(&kit, &kit_postgres, (enum hf_store_durability)durability);
		kit_open(&kit);
		write_rows(&kit);
		assert_false(is_folded(&kit));
		kit_reopen(&kit);
		assert_true(is_folded(&kit));
		kit_expect(&kit);
		/* What is stored in the tables meets the journal of the next run. */
		write_rows(&kit);
		kit_reopen(&kit);
		kit_expect(&kit);
		kit_deinit(&kit);
	}
}

/* A fold looks for no lock that came and went since the last one, but for those that the run has loaded. */
static void test_delete_of_what_the_last_run_stored(void **state)
{
	uint64_t ids[20], before = 0;
	struct kit kit;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	for (unsigned int i = 0; i < 20; i++)
		kit_put_lock(&kit, ids[i] = hf_store_new_id(kit.store), i);
	kit_settle(&kit);
	for (unsigned int round = 0; round < 5; round++) {
		uint64_t id;

		kit_reopen(&kit);
		kit_expect(&kit);
		for (unsigned int i = 0; i < 2; i++) { /* the first fold of a run, and the second */
			kit_delete_lock(&kit, ids[2 * round + i]);
			if (before)
				kit_delete_lock(&kit, before);
			before = hf_store_new_id(kit.store);
			kit_put_lock(&kit, before, i);
			kit_settle(&kit);
			id = hf_store_new_id(kit.store);
			kit_put_lock(&kit, id, i);
			kit_settle(&kit);
			kit_delete_lock(&kit, id);
			kit_settle(&kit);
			kit_run_until(&kit, is_folded);
		}
	}
	kit_reopen(&kit);
	kit_expect(&kit);
	assert_int_equal(kit.facts.n, 11);
	expect_answer(&kit, "SELECT count(*) FROM holdfast_locks", "11");
	kit_deinit(&kit);
}

/* The same at a start, where the greatest stored id tells them apart; and where ids are negative to the
 * database. */
static void test_delete_that_only_the_journal_has(void **state)
{
	const uint64_t first[] = { 0, UINT64_MAX - 1000 };

	for (int i = 0; i < 2; i++) {
		struct kit kit;
		uint64_t id;

		kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
		kit_open(&kit);
		id = first[i] ? first[i] : hf_store_new_id(kit.store);
		kit_put_lock(&kit, id, 1);
		kit_put_reservation(&kit, hf_store_new_id(kit.store), 2);
		kit_settle(&kit);
		kit_reopen(&kit);
		kit_delete_lock(&kit, id);
		kit_settle(&kit);
		id = hf_store_new_id(kit.store);
		kit_put_lock(&kit, id, 3);
		kit_settle(&kit);
		kit_delete_lock(&kit, id);
		kit_settle(&kit);
		kit_reopen(&kit);
		kit_expect(&kit);
		expect_answer(&kit, "SELECT count(*) FROM holdfast_locks", "0");
		kit_deinit(&kit);
	}
}

static void test_fold_in_service(void **state)
{
	char found[64];
	struct kit kit;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	for (int round = 0; round < 3; round++) {
		write_rows(&kit);
		kit_run_until(&kit, is_folded);
		cluster_query(kit.path,
			      "SELECT (SELECT count(*) FROM holdfast_locks) + (SELECT count(*) FROM"
			      " holdfast_shares)",
			      found, sizeof(found));
		assert_int_equal(strtoul(found, NULL, 10), kit.facts.n);
	}
	assert_int_equal(kit.n_failed, 0);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

/* Before the epoch begins, the front may look whether there are facts. That look changes nothing. */
static void test_look_at_facts_in_the_journal(void **state)
{
	struct kit kit;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit.options.handle_key = 7;
	kit_open(&kit);
	assert_int_equal(hf_store_name_key(kit.store, 7), 0);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 1);
	kit_settle(&kit);
	kit_close(&kit);
	kit.options.handle_key = 8;
	assert_int_equal(hf_store_open_postgres(&kit.store, kit.loop, &kit.options), 0);
	assert_int_equal(hf_store_begin_epoch(kit.store, &kit.start), -EKEYREJECTED);
	kit_close(&kit);
	assert_false(is_folded(&kit));
	kit.options.handle_key = 7;
	kit_open(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

static void execute(PGconn *conn, const char *sql)
{
	PGresult *result = PQexec(conn, sql);

	assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
	PQclear(result);
}

/* One change at random of up to 64 locks and reservations, which may be of earlier runs. */
static void change_one(struct kit *kit, uint64_t *ids, unsigned int number)
{
	unsigned int at = number % 64;
	bool is_lock = at % 4 != 0;

	if (ids[at] && number / 64 % 3 != 0) {
		if (is_lock)
			kit_delete_lock(kit, ids[at]);
		else
			kit_delete_reservation(kit, ids[at]);
		ids[at] = 0;
		return;
	}
	if (!ids[at])
		ids[at] = hf_store_new_id(kit->store);
	if (is_lock)
		kit_put_lock(kit, ids[at], number / 64);
	else
		kit_put_reservation(kit, ids[at], number / 64);
}

/* Folds at every moment, and the end of the run, or of its connections, at any. */
static void test_many_runs_and_folds(void **state)
{
	unsigned int seed = 7;
	uint64_t ids[64] = { 0 };
	struct kit kit;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	for (int run = 0; run < 30; run++) {
		hf_pg_of(kit.store)->fold_delay = (uint64_t)(rand_r(&seed) % 4) * HF_NS_PER_MS;
		for (int n = rand_r(&seed) % 100; n > 0; n--) {
			change_one(&kit, ids, (unsigned int)rand_r(&seed));
			if (rand_r(&seed) % 4 == 0)
				kit_settle(&kit);
		}
		kit_settle(&kit);
		if (run % 7 == 0) {
			kit.n_failed = kit.n_recovered = 0;
			cut_connections(&kit);
			kit_run_until(&kit, has_failed_and_recovered);
		}
		if (run % 3 == 0)
			kit_run_until(&kit, is_folded);
		kit_reopen(&kit);
		kit_expect(&kit);
	}
	kit_deinit(&kit);
}

static PGconn *block_folds(struct kit *kit)
{
	PGconn *conn = PQconnectdb(kit->path);

	execute(conn, "BEGIN; LOCK TABLE holdfast_locks IN ACCESS EXCLUSIVE MODE");
	return conn;
}

static bool is_fold_blocked(struct kit *kit)
{
	char found[16];

	cluster_query(kit->path, "SELECT count(*) FROM pg_locks WHERE NOT granted", found, sizeof(found));
	return strcmp(found, "0") != 0;
}

/* The connections end while a fold is in the middle: the daemon lives, or dies, too. */
static void test_fold_that_is_interrupted(void **state)
{
	for (int dies = 0; dies < 2; dies++) {
		PGconn *blocker;
		struct kit kit;

		kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
		kit_open(&kit);
		write_rows(&kit);
		blocker = block_folds(&kit);
		write_rows(&kit);
		kit_run_until(&kit, is_fold_blocked);
		kit_put_lock(&kit, hf_store_new_id(kit.store), 5); /* locks are stored meanwhile */
		kit_settle(&kit);
		assert_int_equal(kit.n_failed, 0);
		cut_connections(&kit);
		PQfinish(blocker);
		if (!dies)
			kit_run_until(&kit, has_failed_and_recovered);
		kit_reopen(&kit);
		kit_expect(&kit);
		kit_deinit(&kit);
	}
}

/* Only the connection of the folds ends: no client notices. */
static void test_fold_without_its_connection(void **state)
{
	struct kit kit;
	char sql[64];

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	write_rows(&kit);
	kit_run_until(&kit, is_folded);
	snprintf(sql, sizeof(sql), "SELECT pg_terminate_backend(%d)",
		 PQbackendPID(hf_pg_of(kit.store)->fold_conn));
	cluster_query(kit.path, sql, NULL, 0);
	write_rows(&kit);
	kit_run_until(&kit, is_folded);
	assert_int_equal(kit.n_failed, 0);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

static bool has_fold_failed(struct kit *kit)
{
	return hf_pg_of(kit->store)->has_fold_failed;
}

/* A fold that the tables refuse is tried again, and locks are stored meanwhile. */
static void test_fold_that_is_refused(void **state)
{
	struct kit kit;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	fill(&kit, 0);
	cluster_query(kit.path, "ALTER TABLE holdfast_locks ADD CONSTRAINT never CHECK (false) NOT VALID",
		      NULL, 0);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 5);
	kit_run_until(&kit, has_fold_failed);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 6);
	kit_settle(&kit);
	cluster_query(kit.path, "ALTER TABLE holdfast_locks DROP CONSTRAINT never", NULL, 0);
	kit_run_until(&kit, is_folded);
	assert_int_equal(kit.n_failed, 0);
	expect_answer(&kit, "SELECT count(*) FROM holdfast_locks", "52");
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

static bool is_client_stored(struct kit *kit)
{
	return hf_store_reached(kit->store, HF_STORE_CLIENTS) >= kit->last_ticket;
}

/* When folding falls behind, writes wait until the journal has room. */
static void test_journal_is_bounded(void **state)
{
	PGconn *blocker;
	struct kit kit;
	uint64_t ticket = 0;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	hf_pg_of(kit.store)->max_journal = 20000;
	blocker = block_folds(&kit);
	for (int i = 0; i < 10000 && !hf_pg_of(kit.store)->delayed; i++) {
		ticket = kit_put_lock(&kit, hf_store_new_id(kit.store), 3);
		kit_turn(&kit);
	}
	assert_non_null(hf_pg_of(kit.store)->delayed);
	assert_true(hf_store_reached(kit.store, HF_STORE_LOCKS) < ticket);
	kit_put_client(&kit, 5, 5); /* registrations do not wait */
	kit_run_until(&kit, is_client_stored);
	assert_true(hf_store_reached(kit.store, HF_STORE_LOCKS) < ticket);
	PQfinish(blocker);
	kit_settle(&kit);
	assert_true(hf_store_reached(kit.store, HF_STORE_LOCKS) >= ticket);
	assert_int_equal(kit.n_failed, 0);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

/* The timer that looks for silence expires now. */
static void look_for_silence(struct kit *kit)
{
	assert_int_equal(hf_timer_start(&hf_pg_of(kit->store)->silence_timer, 0), 0);
	kit_turn(kit);
	kit_turn(kit);
}

/* A fold takes long, so that locks wait, and a registration is in flight: *@clientsp delays it. */
static PGconn *delay_locks(struct kit *kit, PGconn **clientsp)
{
	PGconn *blocker;

	kit_init(kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(kit);
	hf_pg_of(kit->store)->max_journal = 20000;
	blocker = block_folds(kit);
	for (int i = 0; i < 10000 && !hf_pg_of(kit->store)->delayed; i++) {
		kit_put_lock(kit, hf_store_new_id(kit->store), 3);
		kit_turn(kit);
	}
	assert_non_null(hf_pg_of(kit->store)->delayed);
	*clientsp = PQconnectdb(kit->path);
	execute(*clientsp, "BEGIN; LOCK TABLE nsm_client_registrations IN ACCESS EXCLUSIVE MODE");
	kit_put_client(kit, 5, 5);
	kit_turn(kit);
	assert_int_equal(hf_pg_of(kit->store)->n_flying, 1);
	return blocker;
}

/* Neither the fold nor the registration is a failure before its time. */
static void test_long_fold_with_a_registration_in_flight(void **state)
{
	PGconn *clients, *blocker;
	struct kit kit;

	blocker = delay_locks(&kit, &clients);
	look_for_silence(&kit);
	assert_int_equal(kit.n_failed, 0);
	hf_pg_of(kit.store)->delayed_at -= HF_PG_SILENCE;
	look_for_silence(&kit);
	assert_int_equal(kit.n_failed, 0);
	assert_true(hf_timer_is_running(&hf_pg_of(kit.store)->silence_timer));
	PQfinish(clients);
	PQfinish(blocker);
	kit_settle(&kit);
	assert_int_equal(kit.n_failed, 0);
	assert_false(hf_timer_is_running(&hf_pg_of(kit.store)->silence_timer));
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

static void test_silence_while_locks_are_delayed(void **state)
{
	for (int fails = 0; fails < 2; fails++) {
		PGconn *clients, *blocker;
		struct kit kit;
		struct hf_pg *pg;

		blocker = delay_locks(&kit, &clients);
		pg = hf_pg_of(kit.store);
		if (fails) {
			pg->has_fold_failed = true;
			pg->delayed_at -= HF_PG_SILENCE;
		} else {
			pg->heard_at -= HF_PG_SILENCE;
		}
		look_for_silence(&kit);
		assert_int_equal(kit.n_failed, 1);
		PQfinish(clients);
		PQfinish(blocker);
		kit_run_until(&kit, has_failed_and_recovered);
		kit_reopen(&kit);
		kit_expect(&kit);
		kit_deinit(&kit);
	}
}

/* The rows of a run that has lost the service stay in the journal: only the next run folds them. */
static void test_fold_looks_at_the_owner(void **state)
{
	struct kit one, two;
	uint64_t lost;

	kit_init(&one, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&one);
	write_rows(&one);
	cluster_query(one.path, "UPDATE holdfast_services SET epoch = 2, owner = 'another'", NULL, 0);
	kit_run_until(&one, has_fold_failed);
	assert_false(is_folded(&one));
	expect_answer(&one, "SELECT count(*) FROM holdfast_locks", "0");
	lost = hf_store_new_id(one.store);
	assert_int_equal(hf_store_put_lock(one.store, &(struct hf_store_lock){ .id = lost }, &lost), 0);
	expect_end(&one, lost);
	take_over(&two, &one);
	two.facts = one.facts;
	kit_expect(&two);
	two.facts = (struct kit_facts){ 0 };
	kit_deinit(&two);
	kit_deinit(&one);
}

/* A process that was stopped within a transaction does not hold up the next run. */
static void test_transaction_that_a_stopped_run_left_open(void **state)
{
	char sql[160], term[HF_PG_MAX_TERM];
	struct kit one, two;
	PGresult *result;
	PGconn *left;

	kit_init(&one, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&one);
	fill(&one, 0);
	hf_pg_write_term(hf_pg_of(one.store), term);
	left = PQconnectdb(one.path);
	snprintf(sql, sizeof(sql), "PREPARE put AS INSERT INTO %s VALUES ('server-1', 999, '')", term);
	execute(left, sql);
	execute(left, "EXECUTE put");
	execute(left, "BEGIN");
	execute(left, "EXECUTE put"); /* with a plan that was made before this transaction */
	kit_close(&one);
	take_over(&two, &one);
	result = PQexec(left, "COMMIT");
	assert_int_not_equal(PQresultStatus(result), PGRES_COMMAND_OK);
	PQclear(result);
	PQfinish(left);
	expect_answer(&one, "SELECT count(*) FROM holdfast_locks", "50");
	kit_deinit(&two);
	kit_deinit(&one);
}

/* The database died and came back while the server lived: what it lost was written again, and it can be
 * trusted. */
static void test_database_killed_while_serving(void **state)
{
	uint64_t ticket;
	struct kit kit;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	assert_int_equal(hf_store_mark_complete(kit.store, &ticket), 0);
	kit.last_ticket = ticket;
	for (int round = 0; round < 3; round++) {
		fill(&kit, (unsigned int)round * 60);
		kit.n_failed = kit.n_recovered = 0;
		cluster_kill(cluster_get());
		cluster_start(cluster_get());
		kit_run_until(&kit, has_failed_and_recovered);
	}
	kit_reopen(&kit);
	assert_true(kit.start.has_all_locks);
	kit_expect(&kit);
	kit_deinit(&kit);
}

/* Both died: what the database had not synced may be missing. */
static void test_database_and_daemon_killed(void **state)
{
	uint64_t ticket;
	struct kit kit;

	for (int machine = 0; machine < 2; machine++) {
		kit_init(&kit, &kit_postgres, machine ? HF_STORE_MACHINE : HF_STORE_PROCESS);
		kit_open(&kit);
		assert_int_equal(hf_store_mark_complete(kit.store, &ticket), 0);
		kit.last_ticket = ticket;
		fill(&kit, 0);
		kit_close(&kit);
		cluster_kill(cluster_get());
		cluster_start(cluster_get());
		kit_open(&kit);
		assert_int_equal(kit.start.has_all_locks, machine);
		assert_int_equal(kit.start.dropped_locks, !machine);
		if (!machine)
			kit_facts_drop(&kit.facts, true, false);
		kit_expect(&kit);
		kit_deinit(&kit);
	}
}

/* No row may be refused for its contents: that would make the store fail for ever. */
static void test_any_bytes_as_names(void **state)
{
	uint8_t bytes[HF_STORE_MAX_ID];
	struct hf_record record = { .type = HF_RECORD_CLIENT };
	struct kit kit;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(255 - i % 251);
	record.client = (struct hf_store_client){
		.id = hf_bytes_of(bytes, HF_STORE_MAX_ID),
		.protocol = hf_bytes_of(bytes + 1, HF_STORE_MAX_PROTOCOL),
		.mon_name = hf_bytes_of(bytes + 2, HF_STORE_MAX_NAME),
		.callback_host = hf_bytes_of(bytes + 3, HF_STORE_MAX_NAME),
	};
	record.client.registered_at = record.client.last_seen = UINT64_C(1700000000000000000);
	assert_int_equal(hf_store_put_client(kit.store, &record.client, &kit.last_ticket), 0);
	kit_settle(&kit);
	assert_int_equal(kit.n_failed, 0);
	kit_facts_set(&kit.facts, &record);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

static void ignore_signal(int number)
{
}

/* A signal each @us, taken as libuv takes it; 0: no more of them. */
static void send_signals(long us)
{
	struct sigaction action = { .sa_handler = us ? ignore_signal : SIG_DFL, .sa_flags = SA_RESTART };
	struct itimerval timer = { .it_interval.tv_usec = us, .it_value.tv_usec = us };

	if (us)
		assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
	if (!us)
		assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
}

/* Has a listener that never answers. */
static int listen_silently(char conninfo[64])
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, size), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &size), 0);
	snprintf(conninfo, 64, "host=127.0.0.1 user=nobody port=%d", ntohs(addr.sin_port));
	return fd;
}

/* Signals neither end the wait for the database nor prolong it. */
static void test_signals_during_blocking_calls(void **state)
{
	char message[HF_PG_MAX_MESSAGE], silent[64];
	int fd = listen_silently(silent);
	PGresult *result;
	struct kit kit;
	PGconn *conn;
	uint64_t from;

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	send_signals(20000);
	kit_open(&kit);
	fill(&kit, 0);
	assert_int_equal(hf_store_mark_clean(kit.store), 0);
	kit_reopen(&kit);
	assert_true(kit.start.was_clean);

	assert_int_equal(hf_pg_open(kit.path, &conn, message), 0);
	result = hf_pg_query(conn, "SELECT pg_sleep(0.5)", 0, NULL, false, message);
	assert_non_null(result);
	PQclear(result);
	assert_null(
		hf_pg_query_within(conn, HF_NS_PER_S / 2, "SELECT pg_sleep(14)", 0, NULL, false, message));
	assert_string_equal(message, "the database does not answer");
	PQfinish(conn);

	from = hf_pg_deadline(0);
	assert_int_equal(hf_pg_dial(silent, HF_NS_PER_S / 2, &conn, message), -ETIMEDOUT);
	assert_true(hf_pg_deadline(0) - from >= HF_NS_PER_S / 2);
	send_signals(0);
	close(fd);
	kit_deinit(&kit);
}

#define LONG_NAME 700

/* Two ids that differ behind what their key takes over, and whose checksums are the same. */
static void name_twins(uint8_t ids[2][LONG_NAME])
{
	static const char start[] = "nlm:192.0.2.9:";

	for (int i = 0; i < 2; i++) {
		memset(ids[i], 'a', LONG_NAME);
		memcpy(ids[i], start, strlen(start));
	}
	memcpy(ids[1] + 512, "jJFJs,Iz", 8);
	memcpy(ids[1] + 544, "}?MUjf6z", 8);
}

static void put_twins(struct kit *kit, uint8_t ids[2][LONG_NAME])
{
	for (unsigned int i = 0; i < 2; i++) {
		struct hf_record record = { .type = HF_RECORD_CLIENT, .client = kit_client(1, i) };

		record.client.id = hf_bytes_of(ids[i], LONG_NAME);
		assert_int_equal(hf_store_put_client(kit->store, &record.client, &kit->last_ticket), 0);
		kit_facts_set(&kit->facts, &record);
	}
}

/* A peer that chooses its names so loses one of its registrations, and stops the store for no client. */
static void test_two_names_of_one_key(void **state)
{
	char keys[2][HF_PG_MAX_KEY];
	uint8_t ids[2][LONG_NAME];
	struct kit kit;

	name_twins(ids);
	for (int i = 0; i < 2; i++)
		hf_pg_client_key(keys[i], hf_bytes_of(ids[i], LONG_NAME));
	assert_memory_not_equal(ids[0], ids[1], LONG_NAME);
	assert_string_equal(keys[0], keys[1]);

	kit_init(&kit, &kit_postgres, HF_STORE_PROCESS);
	kit_open(&kit);
	put_twins(&kit, ids);
	kit_put_client(&kit, 5, 5);
	kit_settle(&kit);
	assert_int_equal(kit.n_failed, 0);
	expect_answer(&kit, "SELECT count(*) FROM nsm_client_registrations", "2");

	cut_connections(&kit);
	kit_run_until(&kit, has_failed_and_recovered);
	assert_int_equal(kit.n_resync, 1);
	kit_put_client(&kit, 6, 6);
	kit_settle(&kit);
	assert_int_equal(kit.n_failed, 1);
	expect_answer(&kit, "SELECT count(*) FROM nsm_client_registrations", "3");
	kit_deinit(&kit);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tables_and_indexes),
		cmocka_unit_test(test_two_servers_do_not_mix),
		cmocka_unit_test(test_the_second_of_a_name_is_refused),
		cmocka_unit_test(test_the_second_of_a_name_is_refused_after_a_reconnect),
		cmocka_unit_test(test_store_that_another_run_has_used),
		cmocka_unit_test(test_no_transaction_without_a_look_at_the_owner),
		cmocka_unit_test(test_database_that_lost_its_rows),
		cmocka_unit_test(test_no_database_is_an_error_not_a_hang),
		cmocka_unit_test(test_migrations_down_and_up),
		cmocka_unit_test(test_tables_of_a_newer_one),
		cmocka_unit_test(test_tables_that_a_newer_one_changed_meanwhile),
		cmocka_unit_test(test_downgrade),
		cmocka_unit_test(test_migration_of_the_journal),
		cmocka_unit_test(test_connection_cut_within_a_pipeline),
		cmocka_unit_test(test_refused_statement_is_a_failure),
		cmocka_unit_test(test_run_that_left_rows_in_the_journal),
		cmocka_unit_test(test_delete_of_what_the_last_run_stored),
		cmocka_unit_test(test_delete_that_only_the_journal_has),
		cmocka_unit_test(test_fold_in_service),
		cmocka_unit_test(test_many_runs_and_folds),
		cmocka_unit_test(test_look_at_facts_in_the_journal),
		cmocka_unit_test(test_fold_that_is_interrupted),
		cmocka_unit_test(test_fold_without_its_connection),
		cmocka_unit_test(test_fold_that_is_refused),
		cmocka_unit_test(test_journal_is_bounded),
		cmocka_unit_test(test_long_fold_with_a_registration_in_flight),
		cmocka_unit_test(test_silence_while_locks_are_delayed),
		cmocka_unit_test(test_fold_looks_at_the_owner),
		cmocka_unit_test(test_transaction_that_a_stopped_run_left_open),
		cmocka_unit_test(test_database_killed_while_serving),
		cmocka_unit_test(test_database_and_daemon_killed),
		cmocka_unit_test(test_any_bytes_as_names),
		cmocka_unit_test(test_two_names_of_one_key),
		cmocka_unit_test(test_signals_during_blocking_calls),
	};

	if (!cluster_is_possible())
		return 77; /* skipped */
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
