/*
 * Gives the stored facts back.
 *
 * LMDB stores locks in the order of their ids, so the locks of one file are far
 * apart. A lock table that takes a million of them in that order waits for
 * memory at each one. Locks are therefore loaded file by file: files in the
 * order in which they appear, and locks of a file in the order of their ids.
 * The next lock is then mostly near the one before it in memory.
 *
 * A small table tells files apart by a hash of their handle. Files with the
 * same hash are loaded together, and a file that finds no slot is loaded in
 * pieces: this affects speed alone. Without memory for the table, locks are
 * loaded in the order of their ids.
 *
 * The table has values of eight bytes, not the nodes of base/hashtable: with those, the lookups for a million
 * locks take about twice as long, because a chain costs one more wait for memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/macros.h"
#include "store/checksum.h"
#include "store/lmdb/internal.h"

#define PROBES      16 /* peers choose handles, so a search must stay short */
#define FIRST_FILES ((size_t)512)
#define AHEAD       8 /* records to prefetch */

/* A record in LMDB's map, which stays valid until the transaction ends. */
struct found {
	uint32_t file; /* number of the file */
	uint32_t len;
	const uint8_t *data;
};

static const char *prefix_of(enum hf_record_type type)
{
	switch (type) {
	case HF_RECORD_LOCK:
		return "lock:";
	case HF_RECORD_RESERVATION:
		return "share:";
	case HF_RECORD_WAITER:
		return "waiter:";
	default:
		return "nsm:client:";
	}
}

/* Opening the file has checked the checksums. */
int hf_lmdb_for_each(MDB_cursor *cursor, enum hf_record_type type, hf_lmdb_record_fn fn, void *user)
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

/*
 * Sorting. The table of files is not a base/hashtable: that needs a node with its links for each file, while
 * this one is thrown away after the load, may lose a file that finds no slot, and has 8 bytes a slot where
 * millions of locks are sorted in memory that the tables need soon.
 */

struct slot {
	uint32_t hash;
	uint32_t number; /* number of the file, from 1; 0: the slot is free */
};

struct sorting {
	struct found *found, *sorted; /* each has room for n_room */
	size_t n, n_room;
	struct slot *slots;
	size_t n_slots; /* a power of two */
	size_t *n_of;   /* first the number of locks of each file, then where they go */
	size_t n_files, n_files_room;
};

/* The slot of @hash, or a free one for it. NULL: too many others occupy its place; its locks are then loaded
 * in pieces. */
static struct slot *slot_of(const struct sorting *sorting, uint32_t hash)
{
	for (size_t i = 0; i < PROBES; i++) {
		struct slot *slot = &sorting->slots[(hash + i) & (sorting->n_slots - 1)];

		if (!slot->number || slot->hash == hash)
			return slot;
	}
	return NULL;
}

static int grow_files(struct sorting *sorting)
{
	size_t room = HF_MAX(2 * sorting->n_files_room, FIRST_FILES), n_before = sorting->n_slots;
	size_t *n_of = realloc(sorting->n_of, room * sizeof(*n_of));
	struct slot *slots = calloc(2 * room, sizeof(*slots)), *before = sorting->slots;

	if (n_of)
		sorting->n_of = n_of;
	if (!n_of || !slots) {
		free(slots);
		return hf_trace(-ENOMEM);
	}
	sorting->slots = slots;
	sorting->n_slots = 2 * room;
	sorting->n_files_room = room;
	for (size_t i = 0; i < n_before; i++) {
		struct slot *slot = before[i].number ? slot_of(sorting, before[i].hash) : NULL;

		if (slot)
			*slot = before[i];
	}
	free(before);
	return 0;
}

/* Files are numbered in the order of their appearance: locks that were stored at the same time stay close
 * together. */
static int number_file(struct sorting *sorting, uint32_t hash, uint32_t *numberp)
{
	struct slot *slot;
	int r;

	if (sorting->n_files == sorting->n_files_room) {
		r = grow_files(sorting);
		if (r < 0)
			return r;
	}
	slot = slot_of(sorting, hash);
	if (slot && slot->number) {
		*numberp = slot->number - 1;
		return 0;
	}
	*numberp = (uint32_t)sorting->n_files;
	sorting->n_of[sorting->n_files++] = 0;
	if (slot)
		*slot = (struct slot){ .hash = hash, .number = (uint32_t)sorting->n_files };
	return 0;
}

static int collect(void *user, const struct hf_record *record)
{
	struct sorting *sorting = user;
	struct hf_bytes handle = record->lock.handle;
	uint32_t number;
	int r;

	if (sorting->n == sorting->n_room)
		return hf_trace(-EBADMSG); /* there are more than LMDB's statistics say */
	r = number_file(sorting, (uint32_t)hf_checksum(handle.data, handle.len), &number);
	if (r < 0)
		return r;
	sorting->n_of[number]++;
	sorting->found[sorting->n++] = (struct found){
		.file = number,
		.len = record->body.len,
		.data = record->body.data,
	};
	return 0;
}

static void sort(struct sorting *sorting)
{
	size_t sum = 0;

	for (size_t i = 0; i < sorting->n_files; i++) {
		size_t n = sorting->n_of[i];

		sorting->n_of[i] = sum;
		sum += n;
	}
	for (size_t i = 0; i < sorting->n; i++)
		sorting->sorted[sorting->n_of[sorting->found[i].file]++] = sorting->found[i];
}

static void sorting_deinit(struct sorting *sorting)
{
	free(sorting->found);
	free(sorting->sorted);
	free(sorting->slots);
	free(sorting->n_of);
}

static int give_sorted(struct sorting *sorting, hf_lmdb_record_fn fn, void *user)
{
	struct hf_record record;
	int r = 0;

	for (size_t i = 0; r == 0 && i < sorting->n; i++) {
		const struct found *found = &sorting->sorted[i];

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

static int load_locks(MDB_txn *txn, MDB_dbi dbi, MDB_cursor *cursor, hf_lmdb_record_fn fn, void *user)
{
	hf_cleanup(sorting_deinit) struct sorting sorting = { 0 };
	MDB_stat stat;
	int r;

	r = hf_lmdb_error(mdb_stat(txn, dbi, &stat));
	if (r < 0)
		return hf_trace(r);
	sorting.n_room = stat.ms_entries;
	sorting.found = calloc(HF_MAX(sorting.n_room, 1), sizeof(*sorting.found));
	sorting.sorted = calloc(HF_MAX(sorting.n_room, 1), sizeof(*sorting.sorted));
	r = sorting.found && sorting.sorted ? hf_lmdb_for_each(cursor, HF_RECORD_LOCK, collect, &sorting)
					    : -ENOMEM;
	if (r == -ENOMEM)
		return hf_lmdb_for_each(cursor, HF_RECORD_LOCK, fn, user);
	if (r < 0)
		return r;
	sort(&sorting);
	return give_sorted(&sorting, fn, user);
}

int hf_lmdb_load(struct hf_store *store, enum hf_record_type type, hf_lmdb_record_fn fn, void *user)
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
					   : hf_lmdb_for_each(cursor, type, fn, user);
		mdb_cursor_close(cursor);
	}
	mdb_txn_abort(txn);
	return r;
}
