/*
 * The database of a cluster: the row of the service, as store/postgres/service.c changes it, and the life of
 * the database itself. What the store writes is in disk.c, which asks here whether the service is still the
 * writer's.
 *
 * A transaction is one moment here. The row is compared and changed, or a commit checks it and is there, with
 * nothing in between: that is what the locks on the row are for. A session that the claim ends has committed
 * before, or it never does.
 *
 * A crash leaves what was synced. A replica that is promoted has all synced commits, if they waited for it;
 * otherwise it is some seconds old, and what it has of the row is as old.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define EXPORTS "/export rw\n"

static const uint8_t key[HF_SERVICE_KEY] = { 1, 2, 3 };

bool database_is_reached(const struct server *server)
{
	return !server->world->database.is_away && !server->node.has_no_database;
}

uint64_t database_delay(struct world *world)
{
	struct rng *rng = &world->database.rng;

	if (!world->is_calm && world->disk.slow_until > world->now)
		return rng_between(rng, 10 * MS, 1 * SECOND);
	return rng_between(rng, MS / 10, 5 * MS);
}

void database_medium(const struct world *world, char *medium, size_t size)
{
	snprintf(medium, size, "db-%u/%08X", world->database.boot, world->database.timeline);
}

/* Looking */

static void look_at_nodes(struct world *world, struct hf_service_row *row)
{
	struct database *db = &world->database;

	for (uint32_t i = 0; i < MAX_NODES; i++) {
		struct hf_service_node *node = &row->nodes[row->n_nodes];

		if (!db->seen_at[i])
			continue;
		row->n_nodes++;
		snprintf(node->name, sizeof(node->name), "%s", world->nodes[i].node.name);
		snprintf(node->instance, sizeof(node->instance), "%s", world->nodes[i].node.instance);
		snprintf(node->role, sizeof(node->role), "%s", db->roles[i]);
		node->seen_ago_ns = world->now - db->seen_at[i];
	}
}

static void write_history(char history[HF_SERVICE_HISTORY], uint32_t timeline)
{
	snprintf(history, HF_SERVICE_HISTORY, "%08X", timeline);
}

static void look(struct server *server, struct hf_service_row *row)
{
	struct world *world = server->world;
	struct database *db = &world->database;
	const struct disk_view *view = &world->disk.cached;

	memset(row, 0, offsetof(struct hf_service_row, nodes));
	row->exists = db->row.owner[0] != '\0' || view->has_state;
	row->has_lease = db->row.has_lease;
	row->epoch = view->has_state ? view->state.epoch : 0;
	row->sm_state = view->has_state ? view->state.sm_state : 0;
	memcpy(row->owner, db->row.owner, sizeof(row->owner));
	memcpy(row->lease_owner, db->row.lease_owner, sizeof(row->lease_owner));
	snprintf(row->heir, sizeof(row->heir), "%s", db->row.heir);
	snprintf(row->wanted, sizeof(row->wanted), "%s", db->row.wanted);
	row->renewals = db->row.renewals;
	write_history(row->history, db->timeline);
	write_history(row->lease_history, db->row.history);
	row->lease_ns = world->lease_ns;
	memcpy(row->key, key, sizeof(key));
	if (row->has_lease) {
		snprintf(row->node, sizeof(row->node), "%s", world->nodes[db->row.node].node.name);
		snprintf(row->instance, sizeof(row->instance), "%s",
			 world->nodes[db->row.node].node.instance);
	}
	row->exports = strdup(EXPORTS);
	look_at_nodes(world, row);
}

static void say_here(struct server *server)
{
	struct database *db = &server->world->database;

	db->seen_at[server->index] = server->world->now;
	if (server->node.machine)
		db->roles[server->index] = hf_node_role_name(hf_node_role(server->node.machine));
}

/* Changing */

static int renew(struct database *db, const struct request *request)
{
	if (strcmp(db->row.lease_owner, request->owner) != 0)
		return -ESTALE;
	db->row.renewals++;
	db->is_fenced[request->server->index] = false;
	db->row.history = request->timeline;
	db->row.is_unsynced = !db->has_synced_replica;
	return 0;
}

static bool is_as_seen(const struct db_row *row, const struct db_row *seen)
{
	return strcmp(row->owner, seen->owner) == 0 && row->has_lease == seen->has_lease &&
	       strcmp(row->lease_owner, seen->lease_owner) == 0 && row->renewals == seen->renewals;
}

/* Without the consent of the owner its writes to files must be impossible, where there is a command for that.
 */
static void check_fence(struct world *world, const struct server *server)
{
	struct database *db = &world->database;

	if (world->has_fence && *db->row.lease_owner && db->row.node != server->index &&
	    !db->is_fenced[db->row.node])
		world_fail(world, "FENCE", "node %s takes over, and the other one may still write",
			   server->node.name);
	db->is_fenced[server->index] = false;
}

static int claim(struct server *server, const struct request *request)
{
	struct world *world = server->world;
	struct database *db = &world->database;

	for (uint32_t i = 0; i < MAX_NODES; i++)
		disk_end_session(&world->nodes[i]);
	if (!is_as_seen(&db->row, &request->seen) || db->timeline != request->timeline)
		return -ESTALE;
	check_fence(world, server);
	memcpy(db->row.owner, request->owner, sizeof(db->row.owner));
	memcpy(db->row.lease_owner, request->owner, sizeof(db->row.lease_owner));
	db->row.was_unsynced |= db->row.has_lease && db->row.is_unsynced;
	db->row.is_unsynced = !db->has_synced_replica;
	db->row.has_lease = true;
	db->row.history = db->timeline;
	db->row.node = server->index;
	db->row.renewals++;
	db->row.heir[0] = db->row.wanted[0] = '\0';
	memcpy(db->term, request->owner, sizeof(db->term));
	return 0;
}

static int hand_over(struct database *db, const struct request *request)
{
	if (strcmp(db->row.lease_owner, request->owner) != 0)
		return -ESTALE;
	db->row.lease_owner[0] = db->row.wanted[0] = '\0';
	memcpy(db->row.heir, request->heir, sizeof(db->row.heir));
	db->row.renewals++;
	return 0;
}

static int report(struct database *db, const struct request *request)
{
	if (strcmp(db->row.lease_owner, request->owner) != 0)
		return -ESTALE;
	db->row.was_unsynced = false;
	return 0;
}

void database_serve(struct request *request)
{
	struct server *server = request->server;
	struct database *db = &server->world->database;

	request->result = 0;
	if (request->is_report) {
		request->result = report(db, request);
		return;
	}
	switch (request->step) {
	case HF_NODE_RENEW:
		request->result = renew(db, request);
		__attribute__((fallthrough));
	case HF_NODE_LOOK:
		say_here(server);
		look(server, &request->answer);
		break;
	case HF_NODE_CLAIM:
		request->result = claim(server, request);
		break;
	case HF_NODE_HAND_OVER:
		request->result = hand_over(db, request);
		break;
	case HF_NODE_ASK:
		snprintf(db->row.wanted, sizeof(db->row.wanted), "%s", server->node.name);
		break;
	case HF_NODE_FENCE:
	case HF_NODE_NOTHING:
		break;
	}
}

/* Failing */

static void on_back(struct hf_timer *timer)
{
	struct database *db = hf_container_of(timer, struct database, timer);

	db->is_away = false;
	hf_container_of(db, struct world, database)->disturbed_at = db->timer.loop->now;
	SAY(hf_container_of(db, struct world, database), "db      answers again");
}

void database_go_away(struct world *world, uint64_t lasts)
{
	struct database *db = &world->database;

	SAY(world, "db      does not answer for %.1f s", (double)lasts / 1e9);
	world_note(world, 20, lasts);
	db->is_away = true;
	hf_timer_start(&db->timer, lasts);
}

static void end_sessions(struct world *world)
{
	for (uint32_t i = 0; i < MAX_NODES; i++) {
		disk_end_session(&world->nodes[i]);
		disk_lose_writes(&world->nodes[i]);
	}
}

void database_crash(struct world *world, uint64_t lasts)
{
	struct database *db = &world->database;

	end_sessions(world);
	db->boot++;
	disk_lose(world, NULL);
	if (world->server->durability != HF_STORE_MACHINE)
		db->has_lost = true;
	world->counts->db_crashes++;
	SAY(world, "db      CRASHES");
	database_go_away(world, lasts);
}

/* A synchronous replica has what was synced. The row is synced, always. */
void database_promote(struct world *world, uint64_t lasts)
{
	struct database *db = &world->database;

	if (!db->has_synced_replica && !world->disk.replica.has_state)
		return; /* it is not there yet */
	end_sessions(world);
	db->boot++;
	db->timeline++;
	world->counts->promotions++;
	SAY(world, "db      a%s replica is PROMOTED", db->has_synced_replica ? " synchronous" : "n older");
	if (db->has_synced_replica) {
		disk_lose(world, NULL);
		if (world->server->durability != HF_STORE_MACHINE)
			db->has_lost = true;
	} else {
		db->row = db->replica_row;
		disk_lose(world, &world->disk.replica);
		db->has_lost = true;
	}
	db->replica_row = db->row;
	disk_view_copy(&world->disk.replica, &world->disk.synced);
	database_go_away(world, lasts);
}

bool database_is_behind(const struct world *world)
{
	return world->database.has_lost || world->acting->is_session_ended;
}

void database_was_resynced(struct world *world)
{
	world->database.has_lost = false;
}

static void on_replica(struct hf_timer *timer)
{
	struct database *db = hf_container_of(timer, struct database, replica_timer);
	struct world *world = hf_container_of(db, struct world, database);

	if (!db->is_away && world->disk.synced.has_state) {
		db->replica_row = db->row;
		disk_view_copy(&world->disk.replica, &world->disk.synced);
	}
	if (!world->is_calm)
		hf_timer_start(timer, rng_between(&db->rng, 100 * MS, 6 * SECOND));
}

void database_calm(struct world *world)
{
	if (world->database.is_away)
		hf_timer_start(&world->database.timer, SECOND);
}

void database_init(struct world *world)
{
	struct database *db = &world->database;

	rng_init(&db->rng, world->options.seed, 21);
	db->boot = db->timeline = 1;
	db->has_synced_replica = rng_chance(&db->rng, 500);
	world_timer(world, &db->timer, on_back);
	world_timer(world, &db->replica_timer, on_replica);
	disk_view_init(&world->disk.replica);
	if (!db->has_synced_replica)
		hf_timer_start(&db->replica_timer, SECOND);
}
