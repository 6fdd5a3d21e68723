/* The PostgreSQL store; internal.h describes how it works. */
#include "store/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "store/postgres/internal.h"

static void pg_free(struct hf_store *store)
{
	struct hf_pg *pg = hf_pg_of(store);

	hf_work_cancel(&pg->connect_work);
	hf_pg_journal_deinit(pg);
	PQfinish(pg->fresh);
	if (pg->conn)
		hf_pg_disconnect(pg);
	free(pg->conninfo);
	free(pg->server);
}

static const struct hf_store_ops pg_ops = {
	.name = "postgres",
	.free = pg_free,
	.load_state = hf_pg_load_state,
	.save_state = hf_pg_save_state,
	.load = hf_pg_load,
	.clear = hf_pg_clear,
	.commit = hf_pg_commit,
	.recover = hf_pg_recover,
};

static int copy_options(struct hf_pg *pg, const struct hf_store_options *options)
{
	struct hf_bytes server = hf_bytes_of_str(options->server ? options->server : "");

	if (server.len > HF_STORE_MAX_SERVER)
		return hf_trace(-EINVAL);
	pg->conninfo = strdup(options->postgres);
	pg->server = malloc(HF_PG_MAX_TEXT(server.len));
	if (!pg->conninfo || !pg->server)
		return hf_trace(-ENOMEM);
	hf_pg_escape(pg->server, server);
	if (options->owner)
		snprintf(pg->owner, sizeof(pg->owner), "%s", options->owner);
	else
		hf_pg_make_owner(pg);
	return 0;
}

static int open_connection(struct hf_pg *pg)
{
	PGconn *conn = NULL;
	int r = hf_pg_connect(pg, &conn);

	if (r == 0)
		return hf_pg_adopt(pg, conn);
	hf_log_error("the database cannot be used", "server=%s reason=%s", pg->server, pg->message);
	return r;
}

int hf_store_open_postgres(struct hf_store **storep, struct hf_loop *loop,
			   const struct hf_store_options *options)
{
	struct hf_pg *pg = calloc(1, sizeof(*pg));
	int r;

	if (!pg)
		return hf_trace(-ENOMEM);
	r = hf_store_init(&pg->store, loop, &pg_ops, options);
	if (r < 0) {
		free(pg);
		return hf_trace(r);
	}
	hf_pg_journal_init(pg);
	r = copy_options(pg, options);
	if (r == 0)
		r = open_connection(pg);
	if (r < 0) {
		hf_store_free(&pg->store);
		return hf_trace(r);
	}
	*storep = &pg->store;
	return 0;
}
