/*
 * Giving back what is stored.
 *
 * Locks lie in the order in which they came, so those of one file are far apart,
 * and a table that takes a million of them in that order waits for memory each
 * time. They are given file by file instead: sorted by a hash of the handle, and
 * within a file in their old order. Without memory for that they come as they lie.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/macros.h"
#include "store/checksum.h"
#include "store/lmdb/internal.h"

#define DIGIT_BITS 11
#define N_DIGITS   (1u << DIGIT_BITS)
#define KEY_BITS   32
#define AHEAD      8 /* records whose memory is asked for before they are needed */

typedef int (*load_fn)(void *user, const struct hf_record *record);

/* A record in LMDB's file, which stays where it is as long as the transaction. */
struct found {
	uint32_t key;
	uint32_t len;
	const uint8_t *data;
};

static const char *prefix_of(enum hf_record_type type)
{
	switch (type) {
	case HF_RECORD_LOCK:
		return "lock:";
	case HF_RECORD_SHARE:
		return "share:";
	default:
		return "nsm:client:";
	}
}

/* In the order of their keys. The checksums were looked at when the file was opened. */
static int for_each(MDB_cursor *cursor, enum hf_record_type type, load_fn fn, void *user)
{
	const char *prefix = prefix_of(type);
	size_t len = strlen(prefix);
	MDB_val k = { len, (void *)(uintptr_t)prefix }, v;
	struct hf_record record;
	int rc, r;

	rc = mdb_cursor_get(cursor, &k, &v, MDB_SET_RANGE);
	for (; rc == 0 && k.mv_size >= len && memcmp(k.mv_data, prefix, len) == 0;
	     rc = mdb_cursor_get(cursor, &k, &v, MDB_NEXT)) {
		if (v.mv_size < HF_LMDB_CHECKSUM)
			return hf_trace(-EBADMSG);
		r = hf_record_decode(&record, type,
				     hf_bytes_of(v.mv_data, (uint32_t)(v.mv_size - HF_LMDB_CHECKSUM)));
		if (r == 0)
			r = fn(user, &record);
		if (r)
			return r;
	}
	return rc == MDB_NOTFOUND ? 0 : hf_trace(hf_lmdb_error(rc));
}

/* Sorting */

struct sorting {
	struct found *found, *other; /* each with room for n_room */
	size_t n, n_room;
};

static int collect(void *user, const struct hf_record *record)
{
	struct sorting *sorting = user;
	struct hf_bytes handle = record->lock.handle;

	if (sorting->n == sorting->n_room)
		return hf_trace(-EBADMSG); /* more than LMDB said */
	sorting->found[sorting->n++] = (struct found){
		.key = (uint32_t)hf_checksum(handle.data, handle.len),
		.len = record->body.len,
		.data = record->body.data,
	};
	return 0;
}

static void sort_by_digit(struct sorting *sorting, unsigned int shift)
{
	size_t at[N_DIGITS] = { 0 }, sum = 0;
	struct found *from = sorting->found;

	for (size_t i = 0; i < sorting->n; i++)
		at[from[i].key >> shift & (N_DIGITS - 1)]++;
	for (size_t i = 0; i < N_DIGITS; i++) {
		size_t n = at[i];

		at[i] = sum;
		sum += n;
	}
	for (size_t i = 0; i < sorting->n; i++)
		sorting->other[at[from[i].key >> shift & (N_DIGITS - 1)]++] = from[i];
	sorting->found = sorting->other;
	sorting->other = from;
}

static int give_sorted(struct sorting *sorting, load_fn fn, void *user)
{
	struct hf_record record;
	int r = 0;

	for (size_t i = 0; r == 0 && i < sorting->n; i++) {
		const struct found *found = &sorting->found[i];

		if (i + AHEAD < sorting->n) {
			__builtin_prefetch(found[AHEAD].data);
			__builtin_prefetch(found[AHEAD].data + 64);
			__builtin_prefetch(found[AHEAD].data + found[AHEAD].len - 1);
		}
		r = hf_record_decode(&record, HF_RECORD_LOCK, hf_bytes_of(found->data, found->len));
		if (r == 0)
			r = fn(user, &record);
	}
	return r;
}

static int load_locks(MDB_txn *txn, MDB_dbi dbi, MDB_cursor *cursor, load_fn fn, void *user)
{
	hf_cleanup(hf_freep) struct found *one = NULL, *two = NULL;
	struct sorting sorting = { 0 };
	MDB_stat stat;
	int r;

	r = hf_lmdb_error(mdb_stat(txn, dbi, &stat));
	if (r < 0)
		return hf_trace(r);
	one = calloc(HF_MAX(stat.ms_entries, 1), sizeof(*one));
	two = calloc(HF_MAX(stat.ms_entries, 1), sizeof(*two));
	if (!one || !two)
		return for_each(cursor, HF_RECORD_LOCK, fn, user);
	sorting = (struct sorting){ .found = one, .other = two, .n_room = stat.ms_entries };
	r = for_each(cursor, HF_RECORD_LOCK, collect, &sorting);
	if (r < 0)
		return r;
	for (unsigned int shift = 0; shift < KEY_BITS; shift += DIGIT_BITS)
		sort_by_digit(&sorting, shift);
	return give_sorted(&sorting, fn, user);
}

int hf_lmdb_load(struct hf_store *store, enum hf_record_type type, load_fn fn, void *user)
{
	struct hf_lmdb *lmdb = hf_lmdb_of(store);
	MDB_dbi dbi = type == HF_RECORD_LOCK ? lmdb->locks_dbi : lmdb->dbi;
	MDB_cursor *cursor;
	MDB_txn *txn;
	int r;

	r = hf_lmdb_error(mdb_txn_begin(lmdb->env, NULL, MDB_RDONLY, &txn));
	if (r < 0)
		return hf_trace(r);
	r = hf_lmdb_error(mdb_cursor_open(txn, dbi, &cursor));
	if (r == 0) {
		r = type == HF_RECORD_LOCK ? load_locks(txn, dbi, cursor, fn, user)
					   : for_each(cursor, type, fn, user);
		mdb_cursor_close(cursor);
	}
	mdb_txn_abort(txn);
	return r;
}
