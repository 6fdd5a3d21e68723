/* The embedded store: LMDB with a journal in front. internal.h describes its files and keys. */
#include "store/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "store/lmdb/internal.h"

static void lmdb_free(struct hf_store *store)
{
	struct hf_lmdb *lmdb = hf_lmdb_of(store);

	hf_lmdb_stop_work(lmdb);
	hf_journal_close(&lmdb->journal);
	hf_lmdb_close_file(lmdb);
	hf_closep(&lmdb->lock_fd); /* last: from here on another holdfastd may open the folder */
	hf_closep(&lmdb->dir_fd);
	free(lmdb->path);
}

static int fold_all(struct hf_lmdb *lmdb)
{
	int segments[HF_LMDB_MAX_FOLD], r;
	unsigned int n;

	while ((n = hf_journal_oldest(&lmdb->journal, true, segments, HF_LMDB_MAX_FOLD)) > 0) {
		r = hf_lmdb_fold(lmdb, segments, n);
		if (r < 0)
			return hf_trace(r);
		for (unsigned int i = 0; i < n; i++)
			hf_journal_release(&lmdb->journal, segments[i]);
	}
	return 0;
}

/* State */

static int lmdb_load_state(struct hf_store *store, struct hf_store_state *statep)
{
	struct hf_lmdb *lmdb = hf_lmdb_of(store);
	struct hf_record record;
	struct hf_lmdb_key key;
	struct hf_bytes value;
	MDB_txn *txn;
	int r;

	r = hf_lmdb_error(mdb_txn_begin(lmdb->env, NULL, MDB_RDONLY, &txn));
	if (r < 0)
		return hf_trace(r);
	hf_lmdb_key_of_text(&key, "server:state");
	r = hf_lmdb_get(lmdb, txn, &key, &value);
	if (r > 0) {
		r = hf_record_decode(&record, HF_RECORD_STATE, value);
		if (r == 0) {
			*statep = record.state;
			r = hf_lmdb_get_u64(lmdb, txn, "server:key", &statep->handle_key);
			r = r < 0 ? r : 1;
		}
	}
	mdb_txn_abort(txn);
	return hf_trace(r);
}

struct saving {
	const struct hf_store_state *state;
	bool drop_locks;
	bool drop_clients;
};

static int write_state(struct hf_lmdb *lmdb, MDB_txn *txn, void *user)
{
	const struct saving *saving = user;
	struct hf_record record = { .type = HF_RECORD_STATE };
	uint8_t bytes[HF_RECORD_MAX];
	int length, rc = 0;

	if (saving->drop_clients)
		rc = hf_lmdb_drop_clients(lmdb, txn);
	if (rc == 0 && saving->drop_locks)
		rc = hf_lmdb_drop_locks(lmdb, txn);
	if (rc == 0 && saving->drop_locks)
		rc = hf_lmdb_put_u64(lmdb, txn, "server:folded", lmdb->journal.next_sequence - 1);
	if (rc || !saving->state)
		return rc;
	if (saving->state->handle_key)
		rc = hf_lmdb_put_u64(lmdb, txn, "server:key", saving->state->handle_key);
	if (rc)
		return rc;
	length = hf_record_encode_state(bytes, saving->state);
	record.body = hf_bytes_of(bytes + HF_RECORD_HEADER, (uint32_t)length - HF_RECORD_HEADER);
	return hf_lmdb_apply(lmdb, txn, &record);
}

static int save(struct hf_lmdb *lmdb, struct saving *saving)
{
	int r = 0;

	hf_lmdb_stop_work(lmdb); /* cancels at most a fold, which can be repeated */
	if (!saving->drop_locks)
		r = fold_all(lmdb);
	if (r == 0)
		r = hf_lmdb_transact(lmdb, write_state, saving);
	if (r == 0 && saving->drop_locks)
		hf_journal_reset(&lmdb->journal);
	return hf_trace(r);
}

static int lmdb_save_state(struct hf_store *store, const struct hf_store_state *state, bool drop_locks)
{
	struct saving saving = { .state = state, .drop_locks = drop_locks };

	return save(hf_lmdb_of(store), &saving);
}

static int lmdb_clear(struct hf_store *store)
{
	struct saving saving = { .drop_locks = true, .drop_clients = true };

	return save(hf_lmdb_of(store), &saving);
}

/* Making and freeing */

static const struct hf_store_ops lmdb_ops = {
	.name = "lmdb",
	.free = lmdb_free,
	.load_state = lmdb_load_state,
	.save_state = lmdb_save_state,
	.load = hf_lmdb_load,
	.clear = lmdb_clear,
	.commit = hf_lmdb_commit,
	.recover = hf_lmdb_recover,
};

static int read_folded(struct hf_lmdb *lmdb, uint64_t *foldedp)
{
	MDB_txn *txn;
	int r = hf_lmdb_error(mdb_txn_begin(lmdb->env, NULL, MDB_RDONLY, &txn));

	if (r < 0)
		return hf_trace(r);
	r = hf_lmdb_get_u64(lmdb, txn, "server:folded", foldedp);
	mdb_txn_abort(txn);
	return r;
}

/* @before: the state that the last run stored; NULL: none. */
static enum hf_journal_trust judge_journal(const struct hf_lmdb *lmdb, const struct hf_store_state *before)
{
	if (lmdb->gives_up)
		return HF_JOURNAL_GIVEN_UP;
	if (before && !hf_store_is_intact(before, &lmdb->store.state))
		return HF_JOURNAL_UNTRUSTED;
	/* A run creates all segments before it stores its state, and folds them all before it marks a clean
	 * end. */
	return before && !before->is_clean ? HF_JOURNAL_WHOLE : HF_JOURNAL_AT_REST;
}

static int open_journal(struct hf_lmdb *lmdb)
{
	struct hf_store_state before;
	const char *wrong = NULL;
	unsigned int segment = 0;
	uint64_t folded = 0;
	enum hf_journal_trust trust;
	int r;

	r = lmdb_load_state(&lmdb->store, &before);
	if (r < 0)
		return r;
	trust = judge_journal(lmdb, r ? &before : NULL);
	r = read_folded(lmdb, &folded);
	if (r < 0)
		return r;
	r = hf_journal_open(&lmdb->journal, lmdb->dir_fd, lmdb->instance, folded, trust, &wrong, &segment);
	if (r < 0)
		hf_log_error("the store's journal is refused and left unchanged; restore it, or start once "
			     "with --clear-store, which deletes all locks",
			     "path=%s/journal.%u reason=%s", lmdb->path, segment,
			     wrong ? wrong : strerror(-r));
	return r < 0 ? r : fold_all(lmdb);
}

static int open_all(struct hf_lmdb *lmdb)
{
	int r;

	r = hf_lmdb_lock_folder(lmdb);
	if (r == 0)
		r = hf_lmdb_open_file(lmdb);
	if (r < 0)
		return r; /* the callee has logged the reason */
	r = open_journal(lmdb);
	if (r < 0)
		hf_log_error("the store cannot be opened", "path=%s error=%s", lmdb->path, strerror(-r));
	return r;
}

int hf_store_open_lmdb(struct hf_store **storep, struct hf_loop *loop, const struct hf_store_options *options)
{
	struct hf_lmdb *lmdb = calloc(1, sizeof(*lmdb));
	int r;

	if (!lmdb)
		return hf_trace(-ENOMEM);
	lmdb->dir_fd = lmdb->lock_fd = -1;
	for (unsigned int i = 0; i < HF_JOURNAL_SEGMENTS; i++)
		lmdb->journal.segments[i].fd = -1;
	r = hf_store_init(&lmdb->store, loop, &lmdb_ops, options);
	if (r < 0) {
		free(lmdb);
		return hf_trace(r);
	}
	lmdb->gives_up = options->gives_up;
	lmdb->path = strdup(options->path);
	r = lmdb->path ? open_all(lmdb) : -ENOMEM;
	if (r < 0) {
		hf_store_free(&lmdb->store);
		return hf_trace(r);
	}
	*storep = &lmdb->store;
	return 0;
}
