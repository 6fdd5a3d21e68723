#include "disk.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct disk *disk_in_use;

struct disk_store {
	struct hf_store base;
	struct disk *disk;
};

static struct disk *disk_of(struct hf_store *store)
{
	return ((struct disk_store *)store)->disk;
}

/* Records */

static void drop(struct disk *disk, size_t i)
{
	free(disk->records[i].name);
	free(disk->records[i].bytes);
	disk->records[i] = disk->records[--disk->n];
}

static void delete_record(struct disk *disk, enum hf_record_type type, uint64_t id, struct hf_bytes name)
{
	for (size_t i = 0; i < disk->n; i++) {
		struct disk_record *it = &disk->records[i];

		if (it->type == type && it->id == id &&
		    (!it->name || hf_bytes_equal(hf_bytes_of_str(it->name), name))) {
			drop(disk, i);
			return;
		}
	}
}

static void put_record(struct disk *disk, const struct hf_record *record, const uint8_t *bytes, size_t len)
{
	struct disk_record it = { .type = record->type, .len = len };
	struct hf_bytes name = { 0 };

	if (record->type == HF_RECORD_CLIENT) {
		name = record->client.id;
		it.name = strndup((const char *)name.data, name.len);
	} else {
		it.id = record->type == HF_RECORD_LOCK ? record->lock.id : record->reservation.id;
	}
	delete_record(disk, it.type, it.id, name);
	it.bytes = malloc(len);
	memcpy(it.bytes, bytes, len);
	if (disk->n == disk->room) {
		disk->room = disk->room ? 2 * disk->room : 64;
		disk->records = realloc(disk->records, disk->room * sizeof(*disk->records));
	}
	disk->records[disk->n++] = it;
}

static void apply(struct disk *disk, struct hf_store_batch *batch)
{
	struct hf_bytes bytes = hf_batch_bytes(batch);
	struct hf_record record;

	if (batch->kind == HF_STORE_ALL)
		while (disk->n)
			drop(disk, 0);
	while (bytes.len) {
		const uint8_t *at = bytes.data;

		assert(hf_record_next(&record, &bytes) == 1);
		switch (record.type) {
		case HF_RECORD_LOCK_DELETE:
			delete_record(disk, HF_RECORD_LOCK, record.id, (struct hf_bytes){ 0 });
			break;
		case HF_RECORD_RESERVATION_DELETE:
			delete_record(disk, HF_RECORD_RESERVATION, record.id, (struct hf_bytes){ 0 });
			break;
		case HF_RECORD_CLIENT_DELETE:
			delete_record(disk, HF_RECORD_CLIENT, 0, record.name);
			break;
		case HF_RECORD_STATE:
			disk->state = record.state;
			break;
		default:
			put_record(disk, &record, at, (size_t)(bytes.data - at));
			break;
		}
	}
}

/* Operations */

static void op_free(struct hf_store *store)
{
	disk_of(store)->n_held = 0;
}

static int op_load_state(struct hf_store *store, struct hf_store_state *statep)
{
	*statep = disk_of(store)->state;
	return disk_of(store)->has_state;
}

static int op_save_state(struct hf_store *store, const struct hf_store_state *state, bool drop_locks)
{
	struct disk *disk = disk_of(store);

	if (disk->is_broken)
		return -EIO;
	disk->state = *state;
	disk->has_state = true;
	for (size_t i = disk->n; drop_locks && i-- > 0;)
		if (disk->records[i].type != HF_RECORD_CLIENT)
			drop(disk, i);
	return 0;
}

static int op_load(struct hf_store *store, enum hf_record_type type,
		   int (*fn)(void *user, const struct hf_record *record), void *user)
{
	struct disk *disk = disk_of(store);
	struct hf_record record;
	int r = 0;

	for (size_t i = 0; i < disk->n && r == 0; i++) {
		struct hf_bytes bytes = hf_bytes_of(disk->records[i].bytes, (uint32_t)disk->records[i].len);

		if (disk->records[i].type != type)
			continue;
		assert(hf_record_next(&record, &bytes) == 1);
		r = fn(user, &record);
	}
	return r;
}

static int op_clear(struct hf_store *store)
{
	while (disk_of(store)->n)
		drop(disk_of(store), 0);
	return 0;
}

static void write_batch(struct disk *disk, struct hf_store_batch *batch)
{
	if (!disk->is_broken) {
		apply(disk, batch);
		disk->n_commits++;
	}
	hf_store_batch_done(batch, disk->is_broken ? -EIO : 0);
}

static void op_commit(struct hf_store *store, struct hf_store_batch *batch)
{
	struct disk *disk = disk_of(store);

	if (disk->is_slow)
		disk->held[disk->n_held++] = batch;
	else
		write_batch(disk, batch);
}

static void op_recover(struct hf_store *store)
{
	hf_store_recover_done(store, disk_of(store)->is_broken ? -EIO : 0);
}

static const struct hf_store_ops ops = {
	.name = "disk",
	.free = op_free,
	.load_state = op_load_state,
	.save_state = op_save_state,
	.load = op_load,
	.clear = op_clear,
	.commit = op_commit,
	.recover = op_recover,
};

int disk_open(struct hf_store **storep, struct hf_loop *loop, const struct hf_store_options *options)
{
	struct disk_store *store = calloc(1, sizeof(*store));
	struct hf_store_options mine = *options;
	int r;

	store->disk = disk_in_use;
	mine.boot_id = disk_in_use->boot_id ? disk_in_use->boot_id : "boot-1";
	r = hf_store_init(&store->base, loop, &ops, &mine);
	if (r < 0) {
		free(store);
		return r;
	}
	*storep = &store->base;
	return 0;
}

void disk_let_go_of(struct disk *disk, enum hf_store_kind kind)
{
	for (size_t i = 0; i < disk->n_held; i++) {
		struct hf_store_batch *batch = disk->held[i];

		if (kind != HF_STORE_ALL && batch->kind != kind)
			continue;
		disk->held[i--] = disk->held[--disk->n_held];
		write_batch(disk, batch);
	}
}

void disk_let_go(struct disk *disk)
{
	disk_let_go_of(disk, HF_STORE_ALL);
}

size_t disk_count(const struct disk *disk, enum hf_record_type type)
{
	size_t n = 0;

	for (size_t i = 0; i < disk->n; i++)
		n += disk->records[i].type == type;
	return n;
}

void disk_wipe(struct disk *disk)
{
	while (disk->n)
		drop(disk, 0);
	free(disk->records);
	*disk = (struct disk){ 0 };
}
