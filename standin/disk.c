#include "disk.h"

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

/* Operations */

static void op_free(struct hf_store *store)
{
	disk_of(store)->n_held = 0;
}

static int op_load_state(struct hf_store *store, struct hf_store_state *statep)
{
	*statep = disk_of(store)->view.state;
	return disk_of(store)->view.has_state;
}

static int op_save_state(struct hf_store *store, const struct hf_store_state *state, bool drop_locks)
{
	if (disk_of(store)->is_broken)
		return -EIO;
	disk_view_save_state(&disk_of(store)->view, state, drop_locks);
	return 0;
}

static int op_load(struct hf_store *store, enum hf_record_type type,
		   int (*fn)(void *user, const struct hf_record *record), void *user)
{
	return disk_view_load(&disk_of(store)->view, type, fn, user);
}

static int op_clear(struct hf_store *store)
{
	disk_of(store)->view.n = 0;
	return 0;
}

static void write_batch(struct disk *disk, struct hf_store_batch *batch)
{
	int r = disk->is_broken ? -EIO : disk->is_full ? -ENOSPC : 0;

	disk->n_resyncs += batch->kind == HF_STORE_ALL;
	if (r == 0) {
		disk_view_apply(&disk->view, hf_batch_bytes(batch), batch->kind);
		disk->n_commits++;
	}
	hf_store_batch_done(batch, r);
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
	disk_of(store)->n_tries++;
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

void disk_let_go_of_first(struct disk *disk)
{
	struct hf_store_batch *batch = disk->held[0];

	disk->held[0] = disk->held[--disk->n_held];
	write_batch(disk, batch);
}

void disk_let_go(struct disk *disk)
{
	disk_let_go_of(disk, HF_STORE_ALL);
}

size_t disk_count(const struct disk *disk, enum hf_record_type type)
{
	size_t n = 0;

	for (uint32_t i = 0; i < disk->view.n; i++)
		n += disk->view.records[i].type == type;
	return n;
}

void disk_wipe(struct disk *disk)
{
	disk_view_init(&disk->view);
	memset((char *)disk + sizeof(disk->view), 0, sizeof(*disk) - sizeof(disk->view));
}
