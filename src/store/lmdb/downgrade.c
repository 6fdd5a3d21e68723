/* The way back to an older holdfastd: an operator's order, while no server uses the store. */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "store/lmdb/internal.h"

struct downgrade {
	int format;
	unsigned long present; /* the format that the file has */
	size_t n_clients;      /* clients of which something is deleted */
	struct hf_lmdb *lmdb;
	MDB_txn *txn;
};

/* Deletes what programs of format 1 do not know. Returns 0, a code of LMDB, or -errno. */
static int strip_client(void *user, const struct hf_record *record)
{
	struct downgrade *downgrade = user;
	struct hf_store_client client = record->client;
	uint8_t bytes[HF_RECORD_MAX];
	struct hf_lmdb_key key;
	int length;

	if (!client.is_secured)
		return 0;
	client.is_secured = false;
	client.identity = hf_bytes_of(NULL, 0);
	length = hf_record_encode_client(bytes, &client);
	if (length < 0)
		return hf_trace(length);
	downgrade->n_clients++;
	hf_lmdb_key_of_client(&key, client.id);
	return hf_lmdb_put(downgrade->lmdb, downgrade->txn, &key,
			   hf_bytes_of(bytes + HF_RECORD_HEADER, (uint32_t)length - HF_RECORD_HEADER));
}

static int strip_clients(struct downgrade *downgrade)
{
	MDB_cursor *cursor;
	int rc = mdb_cursor_open(downgrade->txn, downgrade->lmdb->dbi, &cursor);

	if (rc)
		return rc;
	rc = hf_lmdb_for_each(cursor, HF_RECORD_CLIENT, strip_client, downgrade);
	mdb_cursor_close(cursor);
	return rc;
}

static int go_back(struct hf_lmdb *lmdb, MDB_txn *txn, void *user)
{
	struct downgrade *downgrade = user;
	int rc = hf_lmdb_get_format(lmdb, txn, &downgrade->present);

	if (rc || downgrade->present <= (unsigned long)downgrade->format)
		return rc;
	downgrade->lmdb = lmdb;
	downgrade->txn = txn;
	downgrade->n_clients = 0;
	rc = strip_clients(downgrade);
	return rc ? rc : hf_lmdb_put_format(lmdb, txn, downgrade->format);
}

int hf_store_downgrade_lmdb(struct hf_store *store, int format)
{
	struct hf_lmdb *lmdb = hf_lmdb_of(store);
	struct downgrade downgrade = { .format = format };
	int r;

	hf_lmdb_stop_work(lmdb);
	r = hf_lmdb_transact(lmdb, go_back, &downgrade);
	if (r == 0 && downgrade.present < (unsigned long)format)
		r = -EINVAL;
	if (r < 0)
		hf_log_error("the store has not got the older format", "path=%s format=%lu error=%s",
			     lmdb->path, downgrade.present, strerror(-r));
	else
		hf_log_info("the store has the older format", "path=%s format=%d clients_changed=%zu",
			    lmdb->path, format, downgrade.n_clients);
	return r;
}
