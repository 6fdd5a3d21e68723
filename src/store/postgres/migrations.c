/*
 * The tables, step by step. A released step never changes; a new step is added
 * below. Each "down" undoes its "up".
 *
 * The indexes on names are hash indexes: queries compare names only for
 * equality, and a hash index takes names of any length.
 */
#include "base/macros.h"
#include "store/postgres/internal.h"

const struct hf_pg_migration hf_pg_migrations[] = {
	{
		.name = "server state, registrations and locks",
		.up = "CREATE TABLE holdfast_server_state ("
		      " server text PRIMARY KEY,"
		      " epoch bigint NOT NULL,"
		      " sm_state integer NOT NULL,"
		      " is_clean boolean NOT NULL,"
		      " is_complete boolean NOT NULL,"
		      " lock_durability smallint NOT NULL,"
		      " boot_id text NOT NULL,"
		      " medium text NOT NULL);"
		      "CREATE TABLE nsm_client_registrations ("
		      " server text NOT NULL,"
		      " client_key text NOT NULL,"
		      " client_id text NOT NULL,"
		      " protocol text NOT NULL,"
		      " mon_name text NOT NULL,"
		      " address bytea NOT NULL,"
		      " local_address bytea NOT NULL,"
		      " address_text text NOT NULL,"
		      " has_callback boolean NOT NULL,"
		      " callback_host text NOT NULL,"
		      " callback_program bigint NOT NULL,"
		      " callback_version bigint NOT NULL,"
		      " callback_procedure bigint NOT NULL,"
		      " priv bytea NOT NULL,"
		      " sm_state integer NOT NULL,"
		      " registered_at timestamptz NOT NULL,"
		      " last_seen timestamptz NOT NULL,"
		      " PRIMARY KEY (server, client_key));"
		      "CREATE INDEX nsm_client_registrations_callback_host"
		      " ON nsm_client_registrations USING hash (callback_host);"
		      "CREATE INDEX nsm_client_registrations_registered_at"
		      " ON nsm_client_registrations (registered_at);"
		      "CREATE INDEX nsm_client_registrations_mon_name"
		      " ON nsm_client_registrations USING hash (mon_name);"
		      "CREATE TABLE holdfast_locks ("
		      " server text NOT NULL,"
		      " lock_id bigint NOT NULL,"
		      " share text NOT NULL,"
		      " handle bytea NOT NULL,"
		      " client_id text NOT NULL,"
		      " oh bytea NOT NULL,"
		      " owner bigint NOT NULL,"
		      " range_start bigint NOT NULL,"
		      " range_end bigint NOT NULL,"
		      " epoch bigint NOT NULL,"
		      " client_state integer NOT NULL,"
		      " flags integer NOT NULL,"
		      " kind smallint NOT NULL,"
		      " mode smallint NOT NULL,"
		      " PRIMARY KEY (server, lock_id))",
		.down = "DROP TABLE holdfast_locks;"
			"DROP TABLE nsm_client_registrations;"
			"DROP TABLE holdfast_server_state",
	},
	{
		.name = "share reservations",
		.up = "CREATE TABLE holdfast_shares ("
		      " server text NOT NULL,"
		      " share_id bigint NOT NULL,"
		      " reservation bytea NOT NULL,"
		      " PRIMARY KEY (server, share_id))",
		.down = "DROP TABLE holdfast_shares",
	},
	{
		.name = "clients that lock from reserved ports",
		.up = "ALTER TABLE nsm_client_registrations"
		      " ADD COLUMN is_privileged boolean NOT NULL DEFAULT false",
		.down = "ALTER TABLE nsm_client_registrations DROP COLUMN is_privileged",
	},
	{
		.name = "who uses a service",
		.up = "CREATE TABLE holdfast_services ("
		      " service text PRIMARY KEY,"
		      " epoch bigint NOT NULL,"
		      " owner text NOT NULL,"
		      " handle_key bigint NOT NULL DEFAULT 0);"
		      /* Called when the row is not as expected: raises the error that says why and ends the
		       * transaction. */
		      "CREATE FUNCTION holdfast_refuse(wanted_service text) RETURNS text"
		      " LANGUAGE plpgsql AS $body$"
		      " BEGIN"
		      "  PERFORM 1 FROM holdfast_services WHERE service = wanted_service;"
		      "  IF NOT FOUND THEN"
		      "   RAISE EXCEPTION 'the row of this service is gone';"
		      "  END IF;"
		      "  RAISE EXCEPTION 'another holdfastd has used it since' USING ERRCODE = 'HF001';"
		      " END $body$",
		.down = "DROP FUNCTION holdfast_refuse(text);"
			"DROP TABLE holdfast_services",
	},
	{
		.name = "state numbers that only datagrams have said",
		.up = "ALTER TABLE nsm_client_registrations"
		      " ADD COLUMN is_state_unproven boolean NOT NULL DEFAULT false",
		.down = "ALTER TABLE nsm_client_registrations DROP COLUMN is_state_unproven",
	},
	{
		.name = "runs that go on where the last one ended",
		.up = "ALTER TABLE holdfast_server_state"
		      " ADD COLUMN is_settled boolean NOT NULL DEFAULT false;"
		      "ALTER TABLE nsm_client_registrations"
		      " ADD COLUMN told_state integer NOT NULL DEFAULT 0;"
		      "CREATE TABLE holdfast_waiters ("
		      " server text NOT NULL,"
		      " waiter_id bigint NOT NULL,"
		      " share text NOT NULL,"
		      " handle bytea NOT NULL,"
		      " client_id text NOT NULL,"
		      " oh bytea NOT NULL,"
		      " owner bigint NOT NULL,"
		      " range_start bigint NOT NULL,"
		      " range_end bigint NOT NULL,"
		      " epoch bigint NOT NULL,"
		      " client_state integer NOT NULL,"
		      " flags integer NOT NULL,"
		      " kind smallint NOT NULL,"
		      " mode smallint NOT NULL,"
		      " is_granted boolean NOT NULL,"
		      " route bytea NOT NULL,"
		      " PRIMARY KEY (server, waiter_id))",
		.down = "DROP TABLE holdfast_waiters;"
			"ALTER TABLE nsm_client_registrations DROP COLUMN told_state;"
			"ALTER TABLE holdfast_server_state DROP COLUMN is_settled",
	},
	{
		.name = "nodes of a service and its lease",
		/* Renewals are apart from holdfast_services: the row that each transaction locks does not
		 * change while one node serves. */
		.up = "CREATE TABLE holdfast_leases ("
		      " service text PRIMARY KEY,"
		      " owner text NOT NULL,"
		      " node text NOT NULL,"
		      " instance text NOT NULL,"
		      " renewals bigint NOT NULL DEFAULT 0,"
		      " lease_ms bigint NOT NULL,"
		      " history text NOT NULL DEFAULT '',"
		      " heir text NOT NULL DEFAULT '',"
		      " wanted text NOT NULL DEFAULT '',"
		      " is_unsynced boolean NOT NULL DEFAULT true,"
		      " was_unsynced boolean NOT NULL DEFAULT true,"
		      " handle_key bytea NOT NULL,"
		      " exports text NOT NULL,"
		      " connections bytea NOT NULL DEFAULT '',"
		      " takeover_at timestamptz,"
		      " takeover_from text NOT NULL DEFAULT '',"
		      " takeover_to text NOT NULL DEFAULT '',"
		      " takeover_reason text NOT NULL DEFAULT '',"
		      " takeover_continued boolean NOT NULL DEFAULT false,"
		      " takeover_seconds double precision NOT NULL DEFAULT 0);"
		      "CREATE TABLE holdfast_nodes ("
		      " service text NOT NULL,"
		      " node text NOT NULL,"
		      " instance text NOT NULL,"
		      " role text NOT NULL,"
		      " reason text NOT NULL,"
		      " version text NOT NULL,"
		      " seen_at timestamptz NOT NULL,"
		      " PRIMARY KEY (service, node))",
		.down = "DROP TABLE holdfast_nodes;"
			"DROP TABLE holdfast_leases",
	},
	{
		/* journal.c explains the journal, and statements.c the view of a term, which is the right to
		 * write in it. */
		.name = "a journal of locks",
		.up = "CREATE TABLE holdfast_journal ("
		      " server text NOT NULL,"
		      " number bigint NOT NULL,"
		      " records bytea NOT NULL)"
		      " WITH (toast_tuple_target = 8160);"
		      "ALTER TABLE holdfast_journal ALTER records SET STORAGE EXTERNAL;"
		      "CREATE FUNCTION holdfast_term(term_epoch bigint, term_owner text) RETURNS text"
		      " LANGUAGE sql AS $body$"
		      " SELECT 'holdfast_term_' || to_hex(term_epoch) || '_' || coalesce(term_owner, '')"
		      " $body$;"
		      /* A transaction of that term under way is ended: a process that was stopped within one
		       * must not hold up the next term. */
		      "CREATE FUNCTION holdfast_end_term(term text) RETURNS void"
		      " LANGUAGE plpgsql AS $body$"
		      " BEGIN"
		      "  PERFORM pg_terminate_backend(pid) FROM pg_locks"
		      "   WHERE relation = to_regclass(quote_ident(term)) AND pid <> pg_backend_pid()"
		      "   AND database = (SELECT oid FROM pg_database WHERE datname = current_database());"
		      "  EXECUTE format('DROP VIEW IF EXISTS %I', term);"
		      " END $body$;"
		      "CREATE FUNCTION holdfast_change_term() RETURNS trigger"
		      " LANGUAGE plpgsql AS $body$"
		      " BEGIN"
		      "  IF TG_OP = 'TRUNCATE' THEN"
		      "   PERFORM holdfast_end_term(viewname) FROM pg_views"
		      "    WHERE schemaname = TG_TABLE_SCHEMA AND viewname LIKE 'holdfast\\_term\\_%';"
		      "   RETURN NULL;"
		      "  END IF;"
		      "  IF TG_OP <> 'INSERT' THEN"
		      "   PERFORM holdfast_end_term(holdfast_term(OLD.epoch, OLD.owner));"
		      "  END IF;"
		      "  IF TG_OP <> 'DELETE' THEN"
		      "   EXECUTE format('CREATE OR REPLACE VIEW %I AS"
		      "    SELECT server, number, records FROM holdfast_journal',"
		      "    holdfast_term(NEW.epoch, NEW.owner));"
		      "  END IF;"
		      "  RETURN NULL;"
		      " END $body$;"
		      "CREATE TRIGGER holdfast_term AFTER INSERT OR DELETE ON holdfast_services"
		      " FOR EACH ROW EXECUTE FUNCTION holdfast_change_term();"
		      "CREATE TRIGGER holdfast_next_term AFTER UPDATE ON holdfast_services"
		      " FOR EACH ROW WHEN ((OLD.epoch, OLD.owner) IS DISTINCT FROM (NEW.epoch, NEW.owner))"
		      " EXECUTE FUNCTION holdfast_change_term();"
		      "CREATE TRIGGER holdfast_no_term AFTER TRUNCATE ON holdfast_services"
		      " FOR EACH STATEMENT EXECUTE FUNCTION holdfast_change_term()",
		/* Only holdfastd can read the records. An orderly stop leaves none. */
		.down = "DO $body$"
			" DECLARE term text;"
			" BEGIN"
			"  IF EXISTS (SELECT 1 FROM holdfast_journal) THEN"
			"   RAISE EXCEPTION 'the journal still has locks: start holdfastd and stop it again';"
			"  END IF;"
			"  FOR term IN SELECT viewname FROM pg_views WHERE viewname LIKE "
			"'holdfast\\_term\\_%'"
			"   AND schemaname = current_schema() LOOP"
			"   EXECUTE format('DROP VIEW %I', term);"
			"  END LOOP;"
			" END $body$;"
			"DROP TRIGGER holdfast_no_term ON holdfast_services;"
			"DROP TRIGGER holdfast_next_term ON holdfast_services;"
			"DROP TRIGGER holdfast_term ON holdfast_services;"
			"DROP FUNCTION holdfast_change_term();"
			"DROP FUNCTION holdfast_end_term(text);"
			"DROP FUNCTION holdfast_term(bigint, text);"
			"DROP TABLE holdfast_journal",
	},
	{
		/* The database empties an unlogged table after a crash of any of its processes, and a replica
		 * has none of its rows: a mark that is still there says that no commit was lost. */
		.name = "a mark that a crash of the database removes",
		.up = "CREATE UNLOGGED TABLE holdfast_database ("
		      " is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),"
		      " mark text NOT NULL)",
		.down = "DROP TABLE holdfast_database",
	},
	{
		.name = "clients of exports that demand TLS",
		.up = "ALTER TABLE nsm_client_registrations"
		      " ADD COLUMN is_secured boolean NOT NULL DEFAULT false,"
		      " ADD COLUMN identity text NOT NULL DEFAULT ''",
		.down = "ALTER TABLE nsm_client_registrations DROP COLUMN identity, DROP COLUMN is_secured",
	},
};

const int hf_pg_n_migrations = HF_ARRAY_SIZE(hf_pg_migrations);
