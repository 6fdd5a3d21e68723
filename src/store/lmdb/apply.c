/* Puts facts into an LMDB transaction, and reads them from it. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "store/checksum.h"
#include "store/lmdb/internal.h"

/* Covers the key, too: this detects a value that stands under another key. */
static uint64_t entry_checksum(struct hf_bytes key, struct hf_bytes value)
{
	uint64_t seed = key.len, word;
	uint32_t i;

	for (i = 0; i + 8 <= key.len; i += 8) {
		memcpy(&word, key.data + i, 8);
		seed = (seed ^ word) * UINT64_C(0x9e3779b97f4a7c15);
	}
	for (; i < key.len; i++)
		seed = (seed ^ key.data[i]) * UINT64_C(0x100000001b3);
	return hf_checksum_with(value.data, value.len, seed);
}

static MDB_val val_of(const struct hf_lmdb_key *key)
{
	return (MDB_val){ key->len, (void *)(uintptr_t)key->data };
}

static MDB_dbi dbi_of(const struct hf_lmdb *lmdb, const struct hf_lmdb_key *key)
{
	return key->is_lock ? lmdb->locks_dbi : lmdb->dbi;
}

int hf_lmdb_put(struct hf_lmdb *lmdb, MDB_txn *txn, const struct hf_lmdb_key *key, struct hf_bytes value)
{
	MDB_val k = val_of(key), v = { value.len + HF_LMDB_CHECKSUM, NULL };
	uint64_t checksum = htole64(entry_checksum(hf_bytes_of(key->data, (uint32_t)key->len), value));
	int rc = MDB_KEYEXIST;

	/* Ids rise: a new lock goes to the end, where LMDB fills its pages instead of splitting them. */
	if (key->is_lock)
		rc = mdb_put(txn, lmdb->locks_dbi, &k, &v, MDB_RESERVE | MDB_APPEND);
	if (rc == MDB_KEYEXIST) {
		v.mv_size = value.len + HF_LMDB_CHECKSUM;
		rc = mdb_put(txn, dbi_of(lmdb, key), &k, &v, MDB_RESERVE);
	}
	if (rc)
		return rc;
	if (value.len)
		memcpy(v.mv_data, value.data, value.len);
	memcpy((uint8_t *)v.mv_data + value.len, &checksum, sizeof(checksum));
	return 0;
}

int hf_lmdb_put_u64(struct hf_lmdb *lmdb, MDB_txn *txn, const char *name, uint64_t value)
{
	struct hf_lmdb_key key;
	uint64_t le = htole64(value);

	hf_lmdb_key_of_text(&key, name);
	return hf_lmdb_put(lmdb, txn, &key, hf_bytes_of(&le, sizeof(le)));
}

static bool strip(struct hf_bytes key, struct hf_bytes *value)
{
	uint64_t checksum;

	if (value->len < HF_LMDB_CHECKSUM)
		return false;
	value->len -= HF_LMDB_CHECKSUM;
	memcpy(&checksum, value->data + value->len, sizeof(checksum));
	return le64toh(checksum) == entry_checksum(key, *value);
}

int hf_lmdb_get(struct hf_lmdb *lmdb, MDB_txn *txn, const struct hf_lmdb_key *key, struct hf_bytes *valuep)
{
	MDB_val k = val_of(key), v;
	int rc = mdb_get(txn, dbi_of(lmdb, key), &k, &v);

	if (rc == MDB_NOTFOUND)
		return 0;
	if (rc)
		return hf_trace(hf_lmdb_error(rc));
	*valuep = hf_bytes_of(v.mv_data, (uint32_t)v.mv_size);
	return strip(hf_bytes_of(key->data, (uint32_t)key->len), valuep) ? 1 : hf_trace(-EBADMSG);
}

int hf_lmdb_get_u64(struct hf_lmdb *lmdb, MDB_txn *txn, const char *name, uint64_t *valuep)
{
	struct hf_lmdb_key key;
	struct hf_bytes value;
	uint64_t le;
	int r;

	hf_lmdb_key_of_text(&key, name);
	r = hf_lmdb_get(lmdb, txn, &key, &value);
	if (r <= 0)
		return r;
	if (value.len != sizeof(le))
		return hf_trace(-EBADMSG);
	memcpy(&le, value.data, sizeof(le));
	*valuep = le64toh(le);
	return 1;
}

static int delete_key(struct hf_lmdb *lmdb, MDB_txn *txn, const struct hf_lmdb_key *key)
{
	MDB_val k = val_of(key);
	int rc = mdb_del(txn, dbi_of(lmdb, key), &k, NULL);

	return rc == MDB_NOTFOUND ? 0 : rc;
}

/* A put may change a client's name, so delete the index entry of the old one. */
static int delete_index(struct hf_lmdb *lmdb, MDB_txn *txn, const struct hf_lmdb_key *client)
{
	struct hf_record record;
	struct hf_lmdb_key key;
	struct hf_bytes value;

	if (hf_lmdb_get(lmdb, txn, client, &value) != 1 ||
	    hf_record_decode(&record, HF_RECORD_CLIENT, value) < 0)
		return 0;
	hf_lmdb_key_of_monname(&key, record.client.mon_name, record.client.id);
	return delete_key(lmdb, txn, &key);
}

int hf_lmdb_put_format(struct hf_lmdb *lmdb, MDB_txn *txn, int format)
{
	struct hf_lmdb_key key;
	char text[32];

	snprintf(text, sizeof(text), HF_LMDB_FORMAT_TEXT "%d", format);
	hf_lmdb_key_of_text(&key, "server:format");
	return hf_lmdb_put(lmdb, txn, &key, hf_bytes_of_str(text));
}

unsigned long hf_lmdb_format_of(struct hf_bytes value)
{
	struct hf_bytes prefix = hf_bytes_of_str(HF_LMDB_FORMAT_TEXT);
	char number[16] = "";

	if (value.len > prefix.len && memcmp(value.data, prefix.data, prefix.len) == 0)
		memcpy(number, value.data + prefix.len, HF_MIN(value.len - prefix.len, sizeof(number) - 1));
	return strtoul(number, NULL, 10);
}

int hf_lmdb_get_format(struct hf_lmdb *lmdb, MDB_txn *txn, unsigned long *formatp)
{
	struct hf_bytes value;
	struct hf_lmdb_key key;
	int r;

	hf_lmdb_key_of_text(&key, "server:format");
	r = hf_lmdb_get(lmdb, txn, &key, &value);
	if (r == 1)
		*formatp = hf_lmdb_format_of(value);
	return r == 1 ? 0 : r ? r : hf_trace(-EBADMSG);
}

static int put_client(struct hf_lmdb *lmdb, MDB_txn *txn, const struct hf_record *record)
{
	struct hf_lmdb_key key, index;
	int rc;

	hf_lmdb_key_of_client(&key, record->client.id);
	hf_lmdb_key_of_monname(&index, record->client.mon_name, record->client.id);
	rc = delete_index(lmdb, txn, &key);
	if (rc == 0)
		rc = hf_lmdb_put(lmdb, txn, &key, record->body);
	if (rc == 0)
		rc = hf_lmdb_put(lmdb, txn, &index, hf_bytes_of(NULL, 0));
	if (rc == 0 && record->client.is_secured)
		rc = hf_lmdb_put_format(lmdb, txn, 2);
	return rc;
}

static int delete_client(struct hf_lmdb *lmdb, MDB_txn *txn, struct hf_bytes id)
{
	struct hf_lmdb_key key;
	int rc;

	hf_lmdb_key_of_client(&key, id);
	rc = delete_index(lmdb, txn, &key);
	return rc ? rc : delete_key(lmdb, txn, &key);
}

int hf_lmdb_apply(struct hf_lmdb *lmdb, MDB_txn *txn, const struct hf_record *record)
{
	struct hf_lmdb_key key;

	switch (record->type) {
	case HF_RECORD_LOCK:
		hf_lmdb_key_of_lock(&key, record->lock.id);
		return hf_lmdb_put(lmdb, txn, &key, record->body);
	case HF_RECORD_LOCK_DELETE:
		hf_lmdb_key_of_lock(&key, record->id);
		return delete_key(lmdb, txn, &key);
	case HF_RECORD_RESERVATION:
		hf_lmdb_key_of_reservation(&key, record->reservation.id);
		return hf_lmdb_put(lmdb, txn, &key, record->body);
	case HF_RECORD_RESERVATION_DELETE:
		hf_lmdb_key_of_reservation(&key, record->id);
		return delete_key(lmdb, txn, &key);
	case HF_RECORD_WAITER:
		hf_lmdb_key_of_waiter(&key, record->waiter.wants.id);
		return hf_lmdb_put(lmdb, txn, &key, record->body);
	case HF_RECORD_WAITER_DELETE:
		hf_lmdb_key_of_waiter(&key, record->id);
		return delete_key(lmdb, txn, &key);
	case HF_RECORD_CLIENT:
		return put_client(lmdb, txn, record);
	case HF_RECORD_CLIENT_DELETE:
		return delete_client(lmdb, txn, record->name);
	case HF_RECORD_STATE:
		hf_lmdb_key_of_text(&key, "server:state");
		return hf_lmdb_put(lmdb, txn, &key, record->body);
	case HF_RECORD_VOID:
		break;
	}
	return 0;
}

/* Deletes all keys of the main database that begin with @prefix. */
static int drop_prefix(struct hf_lmdb *lmdb, MDB_txn *txn, const char *prefix)
{
	MDB_val k = { strlen(prefix), (void *)(uintptr_t)prefix }, v;
	size_t len = k.mv_size;
	MDB_cursor *cursor;
	int rc;

	rc = mdb_cursor_open(txn, lmdb->dbi, &cursor);
	if (rc)
		return rc;
	rc = mdb_cursor_get(cursor, &k, &v, MDB_SET_RANGE);
	while (rc == 0 && k.mv_size >= len && memcmp(k.mv_data, prefix, len) == 0) {
		rc = mdb_cursor_del(cursor, 0);
		/* After a delete the cursor stands on the following entry, and the next MDB_NEXT returns that
		 * one. */
		if (rc == 0)
			rc = mdb_cursor_get(cursor, &k, &v, MDB_NEXT);
	}
	mdb_cursor_close(cursor);
	return rc == MDB_NOTFOUND ? 0 : rc;
}

int hf_lmdb_drop_locks(struct hf_lmdb *lmdb, MDB_txn *txn)
{
	int rc = mdb_drop(txn, lmdb->locks_dbi, 0);

	if (rc == 0)
		rc = drop_prefix(lmdb, txn, "share:");
	return rc ? rc : drop_prefix(lmdb, txn, "waiter:");
}

int hf_lmdb_drop_clients(struct hf_lmdb *lmdb, MDB_txn *txn)
{
	return drop_prefix(lmdb, txn, "nsm:");
}

static bool has_prefix(struct hf_bytes key, const char *prefix, uint32_t len)
{
	return key.len >= len && memcmp(key.data, prefix, len) == 0;
}

const char *hf_lmdb_check_entry(struct hf_bytes key, struct hf_bytes value)
{
	if (!has_prefix(key, "lock:", 5) && !has_prefix(key, "nsm:", 4) && !has_prefix(key, "server:", 7) &&
	    !has_prefix(key, "share:", 6) && !has_prefix(key, "waiter:", 7))
		return "it contains an entry that holdfastd did not write";
	/* A correct checksum proves that this server wrote the record; loading decodes it. */
	return strip(key, &value) ? NULL : "a record is damaged";
}
