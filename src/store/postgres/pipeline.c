/*
 * The connection in service. Batches go out as transactions in a pipeline, and
 * the loop receives their results in order. Any error closes the connection and
 * fails all batches in flight. A worker thread then makes a new connection,
 * since name lookup and connect may take long. If another run has used the
 * service meanwhile, the store does not reconnect.
 *
 * A fold of the journal that is under way ends first: it must not write old facts
 * over those of the resync.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "loop/socket.h"
#include "store/postgres/internal.h"

static void give_up(struct hf_pg *pg);

/* How long may it last from here on, if it has lasted since @since? */
static uint64_t time_left(uint64_t since, uint64_t now)
{
	return since + HF_PG_SILENCE > now ? since + HF_PG_SILENCE - now : 0;
}

/* A long fold delays commits, and is no failure. Meanwhile registrations come and go: only one that has no
 * answer for too long is a failure. */
static void on_silence(struct hf_timer *timer)
{
	struct hf_pg *pg = hf_container_of(timer, struct hf_pg, silence_timer);
	uint64_t now = hf_loop_now(pg->store.loop);
	uint64_t answer = pg->n_flying ? time_left(pg->heard_at, now) : HF_PG_SILENCE;
	uint64_t room = pg->delayed ? time_left(pg->delayed_at, now) : HF_PG_SILENCE;

	if (answer && (room || !pg->has_fold_failed)) {
		if (!room)
			pg->delayed_at = now;
		(void)hf_timer_start(timer, HF_MIN(answer, room ? room : HF_PG_SILENCE));
		return;
	}
	snprintf(pg->message, sizeof(pg->message), "%s",
		 answer ? "the journal is full" : "the database does not answer");
	give_up(pg);
}

/* A timer that runs already expires no later, and then looks how much time is left. */
static void watch_silence(struct hf_pg *pg)
{
	if (!hf_timer_is_running(&pg->silence_timer))
		(void)hf_timer_start(&pg->silence_timer, HF_PG_SILENCE);
}

static void on_ready(void *user, unsigned int events);

/* Sends what libpq has buffered, and watches the socket for what is needed next. */
static bool flush(struct hf_pg *pg)
{
	int left = PQflush(pg->conn);

	if (left < 0) {
		hf_pg_note_error(pg->conn, pg->message);
		return false;
	}
	return hf_socket_watch(pg->socket, left ? HF_SOCKET_READ | HF_SOCKET_WRITE : HF_SOCKET_READ, on_ready,
			       pg) == 0;
}

/* Results */

static bool finish_first(struct hf_pg *pg)
{
	struct hf_store_batch *batch = pg->flying[0];

	assert(pg->n_flying > 0);
	if (batch->kind == HF_STORE_LOCKS && hf_pg_journal_add(pg, hf_batch_bytes(batch)) < 0) {
		snprintf(pg->message, sizeof(pg->message), "no memory for the journal");
		return false;
	}
	if (batch->kind == HF_STORE_ALL)
		hf_pg_journal_reset(pg);
	pg->n_flying--;
	memmove(pg->flying, pg->flying + 1, pg->n_flying * sizeof(pg->flying[0]));
	if (pg->n_flying == 0 && !pg->delayed)
		hf_timer_stop(&pg->silence_timer);
	hf_store_batch_done(batch, 0);
	return true;
}

static bool is_good(struct hf_pg *pg, const PGresult *result)
{
	switch (PQresultStatus(result)) {
	case PGRES_COMMAND_OK:
	case PGRES_TUPLES_OK:
	case PGRES_PIPELINE_SYNC:
		return true;
	default:
		pg->is_taken |= hf_pg_says_taken(result);
		hf_pg_note(pg->message, PQresultErrorMessage(result));
		return false;
	}
}

/* Takes every result that has arrived. libpq returns a NULL between two statements and one more at the
 * end. */
static bool take_results(struct hf_pg *pg)
{
	int n_nothing = 0;

	while (pg->n_flying && n_nothing < 2 && !PQisBusy(pg->conn)) {
		hf_cleanup(hf_pg_clearp) PGresult *result = PQgetResult(pg->conn);

		n_nothing = result ? 0 : n_nothing + 1;
		if (!result)
			continue;
		if (!is_good(pg, result))
			return false;
		if (PQresultStatus(result) == PGRES_PIPELINE_SYNC && !finish_first(pg))
			return false;
	}
	return true;
}

static void on_ready(void *user, unsigned int events)
{
	struct hf_pg *pg = user;

	if (events & HF_SOCKET_READ && !PQconsumeInput(pg->conn)) {
		hf_pg_note_error(pg->conn, pg->message);
		give_up(pg);
		return;
	}
	pg->heard_at = hf_loop_now(pg->store.loop);
	if (!take_results(pg) || !flush(pg))
		give_up(pg);
}

/* Losing the connection */

void hf_pg_disconnect(struct hf_pg *pg)
{
	hf_timer_stop(&pg->silence_timer);
	hf_socket_close(pg->socket);
	pg->socket = NULL;
	PQfinish(pg->conn);
	pg->conn = NULL;
	pg->is_pipelined = false;
	pg->has_term = false;
}

static void give_up(struct hf_pg *pg)
{
	if (pg->store.health == HF_STORE_HEALTHY)
		hf_log_warn("closed the connection to the database", "reason=%s", pg->message);
	hf_pg_disconnect(pg);
	hf_pg_journal_reset(pg);
	if (pg->is_taken)
		hf_store_taken(&pg->store);
	if (pg->delayed) {
		struct hf_store_batch *batch = pg->delayed;

		pg->delayed = NULL;
		hf_store_batch_done(batch, -ENOTCONN);
	}
	while (pg->n_flying) {
		struct hf_store_batch *batch = pg->flying[--pg->n_flying];

		hf_store_batch_done(batch, -ENOTCONN);
	}
	/* Also with no batch in flight: the database may have lost commits that it had not synced. */
	hf_store_lost(&pg->store, -ENOTCONN);
}

/* Sending */

static int enter_pipeline(struct hf_pg *pg)
{
	if (pg->is_pipelined)
		return 0;
	if (!PQenterPipelineMode(pg->conn)) {
		hf_pg_note_error(pg->conn, pg->message);
		return hf_trace(-EIO);
	}
	pg->is_pipelined = true;
	return 0;
}

int hf_pg_leave_pipeline(struct hf_pg *pg)
{
	if (!pg->conn)
		return hf_trace(-ENOTCONN);
	if (!pg->is_pipelined)
		return 0;
	assert(pg->n_flying == 0);
	if (!PQexitPipelineMode(pg->conn)) {
		hf_pg_note_error(pg->conn, pg->message);
		return hf_trace(-EIO);
	}
	pg->is_pipelined = false;
	return 0;
}

void hf_pg_commit(struct hf_store *store, struct hf_store_batch *batch)
{
	struct hf_pg *pg = hf_pg_of(store);
	int r = -ENOTCONN;

	if (!pg->conn) {
		hf_store_batch_done(batch, r);
		return;
	}
	if (batch->kind == HF_STORE_LOCKS && hf_pg_journal_is_full(pg)) {
		assert(!pg->delayed);
		pg->delayed = batch;
		pg->delayed_at = hf_loop_now(store->loop);
		watch_silence(pg);
		return;
	}
	assert(pg->n_flying < HF_PG_MAX_FLYING);
	if (pg->n_flying == 0)
		pg->heard_at = hf_loop_now(store->loop);
	pg->flying[pg->n_flying++] = batch;
	r = enter_pipeline(pg);
	if (r == 0)
		r = hf_pg_send_batch(pg, pg->conn, batch);
	if (r < 0 && PQstatus(pg->conn) != CONNECTION_OK)
		hf_pg_note_error(pg->conn, pg->message);
	watch_silence(pg);
	if (r < 0 || !flush(pg))
		give_up(pg);
}

/* Coming back */

int hf_pg_adopt(struct hf_pg *pg, PGconn *conn)
{
	int r;

	hf_timer_init(&pg->silence_timer, pg->store.loop, on_silence);
	pg->conn = conn;
	memcpy(pg->store.state.medium, pg->medium, sizeof(pg->medium));
	r = hf_socket_observe(&pg->socket, pg->store.loop, PQsocket(conn));
	if (r == 0)
		r = hf_socket_watch(pg->socket, HF_SOCKET_READ, on_ready, pg);
	if (r < 0)
		hf_pg_disconnect(pg);
	return hf_trace(r);
}

static void run_connect(struct hf_work *work)
{
	struct hf_pg *pg = hf_container_of(work, struct hf_pg, connect_work);

	pg->connect_result = hf_pg_connect(pg, &pg->fresh);
}

/* Attempts follow each other by the second, so only a reason that is new is said. */
static void explain_absence(struct hf_pg *pg)
{
	if (strcmp(pg->message, pg->absence) == 0)
		return;
	hf_log_warn("the database cannot be used yet; it is tried again", "reason=%s", pg->message);
	memcpy(pg->absence, pg->message, sizeof(pg->absence));
}

static void on_connected(struct hf_work *work)
{
	struct hf_pg *pg = hf_container_of(work, struct hf_pg, connect_work);
	int r = pg->connect_result;

	if (r == -ESTALE) {
		hf_store_taken(&pg->store);
		return;
	}
	if (r == 0) {
		r = hf_pg_adopt(pg, pg->fresh);
		pg->fresh = NULL;
		pg->absence[0] = '\0';
	} else {
		explain_absence(pg);
	}
	hf_store_recover_done(&pg->store, r);
}

static void connect_again(struct hf_pg *pg)
{
	int r = hf_work_submit(pg->store.loop, &pg->connect_work, run_connect, on_connected);

	if (r < 0)
		hf_store_recover_done(&pg->store, r);
}

void hf_pg_recover(struct hf_store *store)
{
	struct hf_pg *pg = hf_pg_of(store);

	if (pg->conn)
		hf_pg_disconnect(pg);
	hf_pg_journal_reset(pg);
	pg->is_waiting = hf_work_is_running(&pg->fold_work);
	if (!pg->is_waiting)
		connect_again(pg);
}

void hf_pg_go_on(struct hf_pg *pg)
{
	struct hf_store_batch *batch = pg->delayed;

	if (pg->is_waiting) {
		pg->is_waiting = false;
		connect_again(pg);
	} else if (batch && !hf_pg_journal_is_full(pg)) {
		pg->delayed = NULL;
		hf_pg_commit(&pg->store, batch);
	}
}
