/*
 * The journal: locks, reservations and waiters on their way to the tables.
 *
 * A batch of locks is committed as one row of holdfast_journal that has the
 * batch's records as bytes: one statement, one round trip, no index. The rows are
 * folded into the tables later, by a worker thread with a connection of its own
 * (fold.c). Most locks come and go between two folds and never reach a table. The
 * records of a run's rows stay in memory until they are folded, so that a
 * fold reads nothing. A start folds what the last run has left.
 *
 * The journal is bounded. When folding falls behind, batches wait for it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "store/postgres/internal.h"

#define FOLD_DELAY  HF_NS_PER_S
#define FOLD_BYTES  ((size_t)4 << 20) /* are folded without delay */
#define MAX_BYTES   ((size_t)16 << 20)
#define SPARE_BYTES (2 * FOLD_BYTES) /* a larger buffer is freed after its fold */
#define FIRST_BYTES ((size_t)64 << 10)

static void plan(struct hf_pg *pg);

/* Rows */

static void begin_rows(struct hf_pg_rows *rows)
{
	if (rows->capacity > SPARE_BYTES) {
		free(rows->data);
		rows->data = NULL;
		rows->capacity = 0;
	}
	rows->len = 0;
	rows->n = 0;
	rows->unknown = (struct hf_pg_ids){ 0 };
}

int hf_pg_journal_add(struct hf_pg *pg, struct hf_bytes records)
{
	struct hf_pg_rows *rows = &pg->unfolded;

	if (rows->capacity - rows->len < records.len) {
		size_t capacity = HF_MAX(rows->capacity * 2, rows->len + records.len + FIRST_BYTES);
		uint8_t *data = realloc(rows->data, capacity);

		if (!data)
			return hf_trace(-ENOMEM);
		rows->data = data;
		rows->capacity = capacity;
	}
	memcpy(rows->data + rows->len, records.data, records.len);
	rows->len += records.len;
	rows->n++;
	rows->last_number = pg->next_number - 1; /* one batch of locks at most is in flight */
	plan(pg);
	return 0;
}

bool hf_pg_journal_is_full(const struct hf_pg *pg)
{
	return pg->unfolded.len + pg->folding.len > pg->max_journal;
}

/* Folding */

static void run_fold(struct hf_work *work)
{
	struct hf_pg *pg = hf_container_of(work, struct hf_pg, fold_work);

	pg->fold_result = hf_pg_fold(pg, &pg->folding);
}

static void on_folded(struct hf_work *work)
{
	struct hf_pg *pg = hf_container_of(work, struct hf_pg, fold_work);

	if (pg->fold_result == 0) {
		begin_rows(&pg->folding);
		pg->has_fold_failed = false;
	} else if (pg->store.health == HF_STORE_HEALTHY && !pg->has_fold_failed) {
		hf_log_warn(
			"the journal in the database could not be folded into its tables; it is tried again",
			"reason=%s", pg->fold_message);
		pg->has_fold_failed = true;
	}
	if (pg->store.health != HF_STORE_HEALTHY)
		begin_rows(&pg->folding); /* a resync replaces them */
	plan(pg);
	hf_pg_go_on(pg);
}

/* Hands the rows to the worker. Ids that are given from here on cannot be in a table before the next rows are
 * folded. The first rows of a run have no such ids: the tables have those that the run has loaded. */
static void turn_over(struct hf_pg *pg)
{
	struct hf_pg_rows rows = pg->folding;

	pg->folding = pg->unfolded;
	if (pg->folding.unknown.first)
		pg->folding.unknown.n = pg->store.next_id - pg->folding.unknown.first;
	pg->unfolded = rows;
	begin_rows(&pg->unfolded);
	pg->unfolded.unknown.first = pg->store.next_id;
}

/* Rows whose fold failed come before newer ones. */
static void fold(struct hf_pg *pg)
{
	if (pg->folding.n == 0)
		turn_over(pg);
	hf_timer_stop(&pg->fold_timer);
	if (hf_work_submit(pg->store.loop, &pg->fold_work, run_fold, on_folded) < 0)
		(void)hf_timer_start(&pg->fold_timer, pg->fold_delay);
}

static void on_fold_timer(struct hf_timer *timer)
{
	fold(hf_container_of(timer, struct hf_pg, fold_timer));
}

/* When is the next fold? */
static void plan(struct hf_pg *pg)
{
	if (hf_work_is_running(&pg->fold_work) || (pg->folding.n == 0 && pg->unfolded.n == 0))
		return;
	if (pg->folding.n == 0 && pg->unfolded.len >= FOLD_BYTES)
		fold(pg);
	else if (!hf_timer_is_running(&pg->fold_timer))
		(void)hf_timer_start(&pg->fold_timer,
				     FOLD_DELAY); /* without memory, the next row tries again */
}

/* Making and freeing */

void hf_pg_journal_init(struct hf_pg *pg)
{
	pg->next_number = 1;
	pg->max_journal = MAX_BYTES;
	pg->fold_delay = FOLD_DELAY;
	hf_timer_init(&pg->fold_timer, pg->store.loop, on_fold_timer);
}

void hf_pg_journal_reset(struct hf_pg *pg)
{
	hf_timer_stop(&pg->fold_timer);
	begin_rows(&pg->unfolded);
	if (!hf_work_is_running(&pg->fold_work))
		begin_rows(&pg->folding);
}

void hf_pg_journal_stop(struct hf_pg *pg)
{
	hf_work_cancel(&pg->fold_work);
	hf_pg_journal_reset(pg);
}

void hf_pg_journal_deinit(struct hf_pg *pg)
{
	hf_pg_journal_stop(pg);
	PQfinish(pg->fold_conn);
	free(pg->unfolded.data);
	free(pg->folding.data);
}
