/* Blocking statements with a time limit: for the start, the stop, and the thread that reconnects. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "store/postgres/internal.h"

/* Copies the first line as a value for the log, without characters that could forge another line. */
void hf_pg_note(char message[HF_PG_MAX_MESSAGE], const char *text)
{
	size_t i;

	for (i = 0; i < HF_PG_MAX_MESSAGE - 1 && text[i] && text[i] != '\n'; i++)
		message[i] = text[i] >= ' ' && text[i] <= '~' && text[i] != '=' ? text[i] : '?';
	message[i] = '\0';
}

void hf_pg_note_error(PGconn *conn, char message[HF_PG_MAX_MESSAGE])
{
	hf_pg_note(message, conn ? PQerrorMessage(conn) : "no memory");
}

static uint64_t read_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * HF_NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t hf_pg_deadline(uint64_t timeout_ns)
{
	return read_clock() + timeout_ns;
}

/* The server's signals come while the main thread waits here at a start or a stop. They say nothing about the
 * database. */
bool hf_pg_wait(const PGconn *conn, short events, uint64_t deadline)
{
	struct pollfd pfd = { .fd = PQsocket(conn), .events = events };
	uint64_t at;
	int n = 0;

	while (n == 0 && (at = read_clock()) < deadline) {
		n = poll(&pfd, 1, (int)((deadline - at) / HF_NS_PER_MS) + 1);
		if (n < 0 && errno == EINTR)
			n = 0;
	}
	return n > 0;
}

/* Waits for the whole result. The limit is on silence; the database limits the statement itself. */
static bool await_result(PGconn *conn, uint64_t timeout_ns, char message[HF_PG_MAX_MESSAGE])
{
	int flushed;

	while ((flushed = PQflush(conn)) > 0 || PQisBusy(conn)) {
		if (flushed < 0 ||
		    !hf_pg_wait(conn, flushed > 0 ? POLLIN | POLLOUT : POLLIN, hf_pg_deadline(timeout_ns))) {
			snprintf(message, HF_PG_MAX_MESSAGE, "the database does not answer");
			return false;
		}
		if (!PQconsumeInput(conn)) {
			hf_pg_note_error(conn, message);
			return false;
		}
	}
	return true;
}

/* Returns the last result, or a failed one before it. */
static PGresult *take_results(PGconn *conn, uint64_t timeout_ns, char message[HF_PG_MAX_MESSAGE])
{
	PGresult *result = NULL, *next;

	while (await_result(conn, timeout_ns, message) && (next = PQgetResult(conn))) {
		if (result && PQresultStatus(result) == PGRES_FATAL_ERROR) {
			PQclear(next);
			continue;
		}
		PQclear(result);
		result = next;
	}
	return result;
}

PGresult *hf_pg_query(PGconn *conn, const char *sql, int n_params, const char *const *params, bool is_binary,
		      char message[HF_PG_MAX_MESSAGE])
{
	return hf_pg_query_within(conn, HF_PG_TIMEOUT, sql, n_params, params, is_binary, message);
}

PGresult *hf_pg_query_within(PGconn *conn, uint64_t timeout_ns, const char *sql, int n_params,
			     const char *const *params, bool is_binary, char message[HF_PG_MAX_MESSAGE])
{
	PGresult *result;
	int sent;

	message[0] = '\0';
	/* Only a query without parameters can contain several statements. */
	sent = n_params || is_binary
		       ? PQsendQueryParams(conn, sql, n_params, NULL, params, NULL, NULL, is_binary)
		       : PQsendQuery(conn, sql);
	if (!sent) {
		hf_pg_note_error(conn, message);
		return NULL;
	}
	result = take_results(conn, timeout_ns, message);
	if (result && PQresultStatus(result) != PGRES_TUPLES_OK &&
	    PQresultStatus(result) != PGRES_COMMAND_OK) {
		hf_pg_note(message, PQresultErrorMessage(result));
		PQclear(result);
		return NULL;
	}
	if (!result && !message[0])
		hf_pg_note_error(conn, message);
	return result;
}

int hf_pg_run(PGconn *conn, const char *sql, char message[HF_PG_MAX_MESSAGE])
{
	PGresult *result = hf_pg_query(conn, sql, 0, NULL, false, message);

	if (!result)
		return hf_trace(-EIO);
	PQclear(result);
	return 0;
}

int hf_pg_await_sync(PGconn *conn, char message[HF_PG_MAX_MESSAGE])
{
	bool is_over = false;
	int r = 0;

	message[0] = '\0';
	while (!is_over && await_result(conn, HF_PG_TIMEOUT, message)) {
		hf_cleanup(hf_pg_clearp) PGresult *result = PQgetResult(conn);
		ExecStatusType status = result ? PQresultStatus(result) : PGRES_COMMAND_OK;

		is_over = status == PGRES_PIPELINE_SYNC;
		if (is_over || status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
			continue;
		r = -EIO;
		if (!message[0])
			hf_pg_note(message, PQresultErrorMessage(result));
		if (PQstatus(conn) != CONNECTION_OK)
			break;
	}
	if (!is_over || !PQexitPipelineMode(conn))
		r = -EIO;
	return hf_trace(r);
}
