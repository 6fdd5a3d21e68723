/*
 * What the embedded store does in service. The loop's thread writes the
 * journal. Everything that waits for a disk runs in one of two works: db_work
 * for LMDB, one task at a time (resync, registrations, folding), and sync_work
 * for the sync of the journal when locks must survive the machine.
 */
#include <assert.h>
#include <errno.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "store/lmdb/internal.h"

static void start_db_work(struct hf_lmdb *lmdb);

/* Registrations and resync, on the worker thread */

static int write_batch(struct hf_lmdb *lmdb, MDB_txn *txn, void *user)
{
	struct hf_store_batch *batch = user;
	struct hf_bytes bytes = hf_bytes_of(batch->data, (uint32_t)batch->len);
	struct hf_record record;
	int r, rc;

	while ((r = hf_record_next(&record, &bytes)) > 0) {
		rc = hf_lmdb_apply(lmdb, txn, &record);
		if (rc)
			return rc;
	}
	return r < 0 ? MDB_CORRUPTED : 0;
}

/* Writes everything anew and invalidates the journal's frames. */
static int write_resync(struct hf_lmdb *lmdb, MDB_txn *txn, void *user)
{
	int rc = hf_lmdb_drop_locks(lmdb, txn);

	if (rc == 0)
		rc = hf_lmdb_drop_clients(lmdb, txn);
	if (rc == 0)
		rc = hf_lmdb_put_u64(lmdb, txn, "server:folded", lmdb->journal.next_sequence - 1);
	return rc ? rc : write_batch(lmdb, txn, user);
}

static int write_probe(struct hf_lmdb *lmdb, MDB_txn *txn, void *user)
{
	return hf_lmdb_put_u64(lmdb, txn, "server:probe", *(uint64_t *)user);
}

/* After a failed commit LMDB may refuse everything until it is reopened. */
static int run_recover(struct hf_lmdb *lmdb)
{
	uint64_t probe = lmdb->store.counts.n_failures;
	int r = hf_lmdb_reopen_file(lmdb);

	return r < 0 ? r : hf_lmdb_transact(lmdb, write_probe, &probe);
}

static void run_db(struct hf_work *work)
{
	struct hf_lmdb *lmdb = hf_container_of(work, struct hf_lmdb, db_work);

	switch (lmdb->db_task) {
	case HF_LMDB_RECOVER:
		lmdb->db_result = run_recover(lmdb);
		break;
	case HF_LMDB_RESYNC:
		lmdb->db_result = hf_lmdb_transact(lmdb, write_resync, lmdb->resync);
		break;
	case HF_LMDB_CLIENTS:
		lmdb->db_result = hf_lmdb_transact(lmdb, write_batch, lmdb->clients);
		break;
	case HF_LMDB_FOLD:
		lmdb->db_result = hf_lmdb_fold(lmdb, lmdb->folding, lmdb->n_folding);
		break;
	}
}

/* Locks, on the loop's thread */

static void finish_locks(struct hf_lmdb *lmdb, int r)
{
	struct hf_store_batch *batch = lmdb->locks;

	lmdb->locks = NULL;
	hf_store_batch_done(batch, r);
}

static void run_sync(struct hf_work *work)
{
	struct hf_lmdb *lmdb = hf_container_of(work, struct hf_lmdb, sync_work);

	lmdb->sync_result = fdatasync(lmdb->sync_fd) < 0 ? -errno : 0;
}

static void on_synced(struct hf_work *work)
{
	struct hf_lmdb *lmdb = hf_container_of(work, struct hf_lmdb, sync_work);

	finish_locks(lmdb, lmdb->sync_result);
}

static void append_locks(struct hf_lmdb *lmdb)
{
	int r = hf_journal_append(&lmdb->journal, hf_batch_bytes(lmdb->locks));

	lmdb->needs_segment = r == -EAGAIN;
	start_db_work(lmdb); /* the write may have filled a segment */
	if (r == -EAGAIN)
		return; /* until a segment is folded */
	if (r < 0 || lmdb->store.state.durability == HF_STORE_PROCESS) {
		finish_locks(lmdb, r);
		return;
	}
	lmdb->sync_fd = hf_journal_current_fd(&lmdb->journal);
	r = hf_work_submit(lmdb->store.loop, &lmdb->sync_work, run_sync, on_synced);
	if (r < 0)
		finish_locks(lmdb, r);
}

/* One task after the other */

static void finish_recover(struct hf_lmdb *lmdb, int r)
{
	lmdb->is_recovering = false;
	hf_store_recover_done(&lmdb->store, r);
}

static void finish_batch(struct hf_store_batch **batchp, int r)
{
	struct hf_store_batch *batch = *batchp;

	*batchp = NULL;
	hf_store_batch_done(batch, r);
}

static void finish_fold(struct hf_lmdb *lmdb, int r)
{
	for (unsigned int i = 0; r == 0 && i < lmdb->n_folding; i++)
		hf_journal_release(&lmdb->journal, lmdb->folding[i]);
	if (lmdb->needs_segment) {
		lmdb->needs_segment = false; /* the fold either freed one or failed */
		if (r == 0)
			append_locks(lmdb);
		else
			finish_locks(lmdb, r);
	}
	if (r < 0)
		hf_store_lost(&lmdb->store, r);
}

static void finish_db(struct hf_lmdb *lmdb, int r)
{
	switch (lmdb->db_task) {
	case HF_LMDB_RECOVER:
		finish_recover(lmdb, r);
		break;
	case HF_LMDB_RESYNC:
		if (r == 0)
			hf_journal_reset(&lmdb->journal);
		finish_batch(&lmdb->resync, r);
		break;
	case HF_LMDB_CLIENTS:
		finish_batch(&lmdb->clients, r);
		break;
	case HF_LMDB_FOLD:
		finish_fold(lmdb, r);
		break;
	}
}

static void on_db_done(struct hf_work *work)
{
	struct hf_lmdb *lmdb = hf_container_of(work, struct hf_lmdb, db_work);

	finish_db(lmdb, lmdb->db_result);
	/* After a failure nothing is folded, so no fold gives the locks the segment that they wait for. */
	if (lmdb->needs_segment && lmdb->store.health != HF_STORE_HEALTHY) {
		lmdb->needs_segment = false;
		finish_locks(lmdb, -EIO);
	}
	start_db_work(lmdb);
}

/* Registrations come before folding, because clients wait for them. After a failure nothing is folded: the
 * resync invalidates the journal. */
static bool choose_task(struct hf_lmdb *lmdb)
{
	if (lmdb->is_recovering) {
		lmdb->db_task = HF_LMDB_RECOVER;
	} else if (lmdb->resync) {
		lmdb->db_task = HF_LMDB_RESYNC;
	} else if (lmdb->clients) {
		lmdb->db_task = HF_LMDB_CLIENTS;
	} else {
		lmdb->n_folding = hf_journal_oldest(&lmdb->journal, false, lmdb->folding, HF_LMDB_MAX_FOLD);
		lmdb->db_task = HF_LMDB_FOLD;
		return lmdb->n_folding > 0 && lmdb->store.health == HF_STORE_HEALTHY;
	}
	return true;
}

static void start_db_work(struct hf_lmdb *lmdb)
{
	int r;

	if (hf_work_is_running(&lmdb->db_work) || !choose_task(lmdb))
		return;
	r = hf_work_submit(lmdb->store.loop, &lmdb->db_work, run_db, on_db_done);
	if (r < 0)
		finish_db(lmdb, r);
}

void hf_lmdb_commit(struct hf_store *store, struct hf_store_batch *batch)
{
	struct hf_lmdb *lmdb = hf_lmdb_of(store);

	switch (batch->kind) {
	case HF_STORE_LOCKS:
		assert(!lmdb->locks);
		lmdb->locks = batch;
		append_locks(lmdb);
		return;
	case HF_STORE_CLIENTS:
		assert(!lmdb->clients);
		hf_batch_bytes(batch);
		lmdb->clients = batch;
		break;
	case HF_STORE_ALL:
		assert(!lmdb->resync);
		lmdb->resync = batch;
		break;
	}
	start_db_work(lmdb);
}

void hf_lmdb_recover(struct hf_store *store)
{
	struct hf_lmdb *lmdb = hf_lmdb_of(store);

	assert(!lmdb->clients && !lmdb->resync && !lmdb->locks);
	lmdb->is_recovering = true;
	start_db_work(lmdb);
}

void hf_lmdb_stop_work(struct hf_lmdb *lmdb)
{
	hf_work_cancel(&lmdb->sync_work);
	hf_work_cancel(&lmdb->db_work);
}
