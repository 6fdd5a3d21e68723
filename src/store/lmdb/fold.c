/*
 * Folds segments of the journal into LMDB: for each lock, only the state at
 * their end is written. On a busy server most locks come and go within the
 * segments and never reach LMDB.
 *
 * Folding a segment twice has the same result, so a crash in between needs no
 * special care.
 */
#include <errno.h>

#include "base/error.h"
#include "store/latest_records.h"
#include "store/lmdb/internal.h"

struct fold {
	struct hf_journal_frames frames[HF_LMDB_MAX_FOLD]; /* the table points into their memory */
	struct hf_latest_records table;
	uint64_t sequence;  /* of the last frame that was read */
	uint64_t last_lock; /* the greatest lock id in LMDB */
};

/* Lock ids rise. A lock with an id beyond the greatest stored one was never stored, so its delete needs no
 * search. */
static int find_last_lock(struct hf_lmdb *lmdb, MDB_txn *txn, uint64_t *idp)
{
	MDB_cursor *cursor;
	MDB_val k, v;
	int rc;

	*idp = 0;
	rc = mdb_cursor_open(txn, lmdb->locks_dbi, &cursor);
	if (rc)
		return rc;
	rc = mdb_cursor_get(cursor, &k, &v, MDB_LAST);
	if (rc == 0 && k.mv_size == 13) {
		for (size_t i = 5; i < 13; i++)
			*idp = *idp << 8 | ((const uint8_t *)k.mv_data)[i];
	}
	mdb_cursor_close(cursor);
	return rc == MDB_NOTFOUND ? 0 : rc;
}

static int write_fold(struct hf_lmdb *lmdb, MDB_txn *txn, void *user)
{
	struct fold *fold = user;
	int rc = find_last_lock(lmdb, txn, &fold->last_lock);

	for (size_t i = 0; rc == 0 && i < fold->table.n_slots; i++) {
		const struct hf_latest_record *last = &fold->table.slots[i];
		struct hf_record record;

		if (!last->key ||
		    (hf_record_type(last->record) == HF_RECORD_LOCK_DELETE && last->key > fold->last_lock))
			continue;
		rc = hf_latest_records_decode(last, &record) < 0 ? MDB_CORRUPTED
								 : hf_lmdb_apply(lmdb, txn, &record);
	}
	return rc ? rc : hf_lmdb_put_u64(lmdb, txn, "server:folded", fold->sequence);
}

static int collect_segment(struct hf_lmdb *lmdb, struct fold *fold, struct hf_journal_frames *frames,
			   int number)
{
	const struct hf_journal_segment *segment = &lmdb->journal.segments[number];
	struct hf_bytes records;
	int r;

	r = hf_journal_read(frames, &lmdb->journal, number, segment->end);
	if (r < 0)
		return hf_trace(r);
	while ((r = hf_journal_next(frames, &records)) > 0) {
		if (frames->sequence >= segment->first_sequence)
			r = hf_latest_records_collect(&fold->table, records);
		if (r < 0)
			return hf_trace(r);
	}
	fold->sequence = frames->sequence;
	/* This run wrote the frames, so the last one must be there. */
	return frames->sequence == segment->last_sequence ? 0 : hf_trace(-EBADMSG);
}

int hf_lmdb_fold(struct hf_lmdb *lmdb, const int *segments, unsigned int n)
{
	struct fold fold = { 0 };
	int r = 0;

	for (unsigned int i = 0; r == 0 && i < n; i++)
		r = collect_segment(lmdb, &fold, &fold.frames[i], segments[i]);
	if (r == 0)
		r = hf_lmdb_transact(lmdb, write_fold, &fold);
	for (unsigned int i = 0; r == 0 && i < n; i++)
		hf_journal_shrink(&lmdb->journal, segments[i]);
	hf_latest_records_deinit(&fold.table);
	for (unsigned int i = 0; i < n; i++)
		hf_journal_read_end(&fold.frames[i]);
	return hf_trace(r);
}
