/*
 * The store backend: a disk that may be slow, fail, or lose what was not synced.
 *
 * There are two views (standin/disk_view.h). The page cache survives a crash of the process, and what is
 * synced survives a crash of the machine. A batch is there as a whole or not at all, as with the checksums of
 * the journal and the transactions of a database. A write that is under way at a crash may be there or not;
 * so may one that failed.
 *
 * The tests have another stand-in on such a view (standin/disk.h), which is slow or fails when the test says
 * so. Here the seed does, and each operation is a point at which the server may be killed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "sim.h"
#include "store/backend.h"

#define WRITEBACKS 50 /* in a thousand: the kernel syncs by itself */
#define FAILED_YET 300

struct sim_store {
	struct hf_store store; /* first */
	struct world *world;
};

static struct world *world_of(struct hf_store *store)
{
	return ((struct sim_store *)store)->world;
}

/* Syncing */

static void forget_unsynced(struct disk *disk)
{
	for (uint32_t i = 0; i < disk->n_unsynced; i++)
		sim_free(disk->unsynced[i]);
	disk->n_unsynced = 0;
}

static void sync_first(struct disk *disk, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		disk_view_apply(&disk->synced, hf_bytes_of(disk->unsynced[i], disk->unsynced_len[i]),
				HF_STORE_LOCKS);
}

static void sync_all(struct disk *disk)
{
	sync_first(disk, disk->n_unsynced);
	forget_unsynced(disk);
}

static void keep_unsynced(struct disk *disk, const uint8_t *bytes, uint32_t len)
{
	if (disk->n_unsynced == MAX_UNSYNCED)
		sync_all(disk);
	disk->unsynced[disk->n_unsynced] = sim_alloc(len);
	memcpy(disk->unsynced[disk->n_unsynced], bytes, len);
	disk->unsynced_len[disk->n_unsynced++] = len;
}

/* A cluster */

static uint64_t epoch_of(const struct server *server)
{
	return server->store && server->store->has_begun ? server->store->state.epoch : 0;
}

static bool is_fenced(const struct server *server, uint64_t epoch)
{
	const struct world *world = server->world;
	const struct db_row *row = &world->database.row;

	if (!world->options.is_cluster)
		return false;
	return strcmp(row->owner, server->node.owner) != 0 || (epoch && epoch != row->epoch);
}

bool disk_is_fenced(const struct server *server)
{
	return is_fenced(server, epoch_of(server));
}

/* T1 */
static void check_commit(const struct disk_write *write)
{
	struct world *world = write->server->world;

	if (!world->options.is_cluster)
		return;
	if (strcmp(write->server->node.owner, world->database.term) != 0)
		world_fail(world, "T1", "node %s changes the store in the term of another",
			   write->server->node.name);
	if (write->kind == HF_STORE_ALL)
		database_was_resynced(world);
}

void disk_end_session(struct server *server)
{
	for (size_t i = 0; i < HF_ARRAY_SIZE(server->writes); i++) {
		struct disk_write *write = &server->writes[i];

		if (!write->batch || write->is_over || write->is_applied)
			continue;
		write->result = -ECONNRESET;
		hf_timer_start(&write->timer, MS);
	}
	server->is_session_ended = server->store != NULL;
	server_wake(server);
}

void disk_lose_writes(struct server *server)
{
	for (size_t i = 0; i < HF_ARRAY_SIZE(server->writes); i++)
		server->writes[i].is_gone = true;
}

static void carry_out(struct disk_write *write)
{
	struct world *world = write->server->world;
	struct hf_bytes bytes = hf_bytes_of(write->bytes, write->len);
	struct disk *disk = &world->disk;

	if (write->is_applied)
		return;
	if (is_fenced(write->server, write->epoch)) {
		write->result = -ESTALE;
		return;
	}
	write->is_applied = true;
	check_commit(write);
	disk_view_apply(&disk->cached, bytes, write->kind);
	if (write->kind == HF_STORE_LOCKS && world->server->durability == HF_STORE_PROCESS) {
		keep_unsynced(disk, write->bytes, write->len);
		if (rng_chance(&world->disk_rng, WRITEBACKS))
			sync_all(disk);
		return;
	}
	if (write->kind == HF_STORE_ALL)
		forget_unsynced(disk);
	disk_view_apply(&disk->synced, bytes, write->kind);
}

/* Writing */

static bool fails(struct world *world)
{
	if (world->options.is_cluster && !database_is_reached(world->server))
		return true;
	return !world->is_calm &&
	       (world->disk.fails_until > world->now || rng_chance(&world->disk_rng, world->knobs.fail));
}

static uint64_t delay(struct world *world)
{
	struct rng *rng = &world->disk_rng;
	uint64_t seconds = slow_write(world);

	if (seconds)
		return seconds;
	if (omits(world, OMIT_SLOW_DISK) || rng_chance(rng, 300))
		return 0;
	if (!world->is_calm && world->disk.slow_until > world->now)
		return rng_between(rng, 100 * MS, 3 * SECOND);
	return rng_between(rng, MS / 10, 8 * MS);
}

static void on_written(struct hf_timer *timer)
{
	struct disk_write *write = hf_container_of(timer, struct disk_write, timer);
	struct world *world = write->server->world;

	/* The commit may have got there, and its answer does not come. */
	if (world->options.is_cluster && write->result == 0 && !database_is_reached(write->server))
		write->result = -EIO;
	if (write->result == 0)
		carry_out(write);
	write->is_over = true;
	server_wake(write->server);
}

static void finish(struct disk_write *write)
{
	struct hf_store_batch *batch = write->batch;

	write->batch = NULL;
	sim_free(write->bytes);
	write->bytes = NULL;
	if (write->result == -ESTALE)
		hf_store_taken(write->server->store);
	hf_store_batch_done(batch, write->result);
}

static void op_commit(struct hf_store *store, struct hf_store_batch *batch)
{
	struct world *world = world_of(store);
	struct disk_write *write = &world->server->writes[batch->kind];
	struct hf_bytes bytes = hf_batch_bytes(batch);
	struct rng *rng = &world->disk_rng;
	uint64_t takes;

	server_tick(world);
	node_point(world);
	*write = (struct disk_write){ .server = world->server,
				      .kind = batch->kind,
				      .sent_at = world->now + world->server->node.lag };
	write->bytes = sim_alloc(bytes.len);
	memcpy(write->bytes, bytes.data, bytes.len);
	write->len = (uint32_t)bytes.len;
	write->batch = batch;
	write->epoch = epoch_of(write->server);
	world_note_bytes(world, bytes.data, bytes.len);
	write->result = fails(world) ? (rng_chance(rng, 500) ? -EIO : -ENOSPC) : 0;
	takes = delay(world) + world->server->node.lag;
	if ((write->result == 0 ? rng_chance(rng, 300) : rng_chance(rng, FAILED_YET)) &&
	    !world->server->node.lag && (!world->options.is_cluster || database_is_reached(world->server)))
		carry_out(write);
	SAY(world, "disk    write of %s, %u bytes, takes %.3f ms%s",
	    batch->kind == HF_STORE_LOCKS ? "locks"
					  : (batch->kind == HF_STORE_ALL ? "everything" : "clients"),
	    (unsigned int)bytes.len, (double)takes / 1e6, write->result ? ", fails" : "");
	if (write->result)
		world->counts->store_failures++;
	if (takes) {
		world_timer(world, &write->timer, on_written);
		hf_timer_start(&write->timer, takes);
		return;
	}
	if (write->result == 0)
		carry_out(write);
	server_tick(world);
	finish(write);
}

static void on_recovered(struct hf_timer *timer)
{
	struct server *server = hf_container_of(timer, struct server, recover_timer);

	server->is_recovered = true;
	server_wake(server);
}

static void op_recover(struct hf_store *store)
{
	struct world *world = world_of(store);

	server_tick(world);
	world->server->recovering = store;
	world->server->is_recovered = false;
	world_timer(world, &world->server->recover_timer, on_recovered);
	hf_timer_start(&world->server->recover_timer, delay(world) + 1);
}

bool disk_has_completed(const struct world *world)
{
	for (size_t i = 0; i < HF_ARRAY_SIZE(world->server->writes); i++)
		if (world->server->writes[i].batch && world->server->writes[i].is_over)
			return true;
	return world->server->is_session_ended || (world->server->recovering && world->server->is_recovered);
}

void disk_complete(struct world *world)
{
	struct server *server = world->server;
	struct hf_store *store = server->recovering;

	for (size_t i = 0; i < HF_ARRAY_SIZE(server->writes); i++)
		if (server->writes[i].batch && server->writes[i].is_over)
			finish(&server->writes[i]);
	if (server->is_session_ended && server->store && server->store->has_begun)
		hf_store_lost(server->store, -ECONNRESET);
	server->is_session_ended = false;
	if (!store || !server->is_recovered)
		return;
	server->recovering = NULL;
	if (fails(world)) {
		hf_store_recover_done(store, -EIO);
	} else if (disk_is_fenced(server)) {
		hf_store_taken(store);
	} else {
		if (world->options.is_cluster)
			database_medium(world, store->state.medium, sizeof(store->state.medium));
		hf_store_recover_done(store, 0);
	}
}

/* Starting and stopping */

static int op_load_state(struct hf_store *store, struct hf_store_state *statep)
{
	struct world *world = world_of(store);

	server_tick(world);
	if (fails(world))
		return -EIO;
	if (disk_is_fenced(world->server))
		return -ESTALE;
	*statep = world->disk.cached.state;
	statep->is_replicated = world->options.is_cluster && !world->database.row.was_unsynced;
	return world->disk.cached.has_state;
}

static int op_save_state(struct hf_store *store, const struct hf_store_state *state, bool drop)
{
	struct world *world = world_of(store);

	server_tick(world);
	if (fails(world))
		return -EIO;
	if (disk_is_fenced(world->server))
		return -ESTALE;
	world->database.row.epoch = state->epoch;
	sync_all(&world->disk);
	disk_view_save_state(&world->disk.cached, state, drop);
	disk_view_save_state(&world->disk.synced, state, drop);
	server_tick(world);
	return 0;
}

static int op_load(struct hf_store *store, enum hf_record_type type,
		   int (*fn)(void *user, const struct hf_record *record), void *user)
{
	struct world *world = world_of(store);

	server_tick(world);
	return disk_view_load(&world->disk.cached, type, fn, user);
}

static int op_clear(struct hf_store *store)
{
	return -ENOTSUP; /* no code asks for it here */
}

static void op_free(struct hf_store *store)
{
	struct server *server = world_of(store)->server;

	server->store = NULL;
	/* A backend waits for the writes under way. */
	for (size_t i = 0; i < HF_ARRAY_SIZE(server->writes); i++) {
		struct disk_write *write = &server->writes[i];

		if (!write->batch)
			continue;
		hf_timer_stop(&write->timer);
		if (write->result == 0)
			carry_out(write);
		sim_free(write->bytes);
		*write = (struct disk_write){ 0 };
	}
	if (server->recovering)
		hf_timer_stop(&server->recover_timer);
	server->recovering = NULL;
}

static const struct hf_store_ops ops = {
	.name = "simulated",
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
	struct world *world = ((struct sim_loop *)loop)->world;
	struct sim_store *mine = calloc(1, sizeof(*mine));
	struct hf_store_options changed = *options;
	char boot[32];
	int r;

	snprintf(boot, sizeof(boot), "boot-%u", world->server->boot + 1000 * world->server->index);
	changed.boot_id = boot;
	mine->world = world;
	r = hf_store_init(&mine->store, loop, &ops, &changed);
	*storep = world->server->store = &mine->store;
	if (world->options.is_cluster)
		database_medium(world, mine->store.state.medium, sizeof(mine->store.state.medium));
	return r;
}

/* Crashes */

/* The process of a write that is not over has died. May the database still try to carry it out? Not if the
 * process was halted before it sent the write, nor if the database that it was sent to is gone. A session
 * that a claim ends may have one more commit under way, which the check of the owner has to refuse. */
static bool may_still_get_there(const struct disk_write *write)
{
	return !write->is_gone && write->sent_at <= write->server->world->now;
}

void disk_crash(struct world *world, bool is_machine)
{
	struct server *server = world->server;

	for (size_t i = 0; i < HF_ARRAY_SIZE(server->writes); i++) {
		struct disk_write *write = &server->writes[i];

		if (!write->batch)
			continue;
		hf_timer_stop(&write->timer);
		if (rng_chance(&world->disk_rng, 500) && may_still_get_there(write))
			carry_out(write);
		sim_free(write->bytes);
		*write = (struct disk_write){ 0 };
	}
	if (server->recovering)
		hf_timer_stop(&server->recover_timer);
	server->recovering = NULL;
	server->store = NULL;
	server->is_session_ended = false;
	if (is_machine)
		disk_lose(world, NULL);
}

void disk_lose(struct world *world, const struct disk_view *left)
{
	struct disk *disk = &world->disk;

	if (left) {
		forget_unsynced(disk);
		disk_view_copy(&disk->synced, left);
		disk_view_copy(&disk->cached, left);
		return;
	}
	sync_first(disk, (uint32_t)rng_below(&world->disk_rng, disk->n_unsynced + 1));
	forget_unsynced(disk);
	disk_view_copy(&disk->cached, &disk->synced);
}

void disk_init(struct world *world)
{
	struct disk *disk = &world->disk;

	disk_view_init(&disk->cached);
	disk_view_init(&disk->synced);
	disk_view_init(&disk->replica);
	memset(&disk->unsynced, 0, sizeof(*disk) - offsetof(struct disk, unsynced));
}
