/*
 * The end of a schedule: there are no more faults, and everything must come to rest. Every host that can be
 * reached is told of a last restart at once, although one host cannot be reached; that one is told when it
 * can. Every program gets the lock that it waits for, and unlocks. An operator declares dead every client
 * that died silently. Then no client has anything left.
 */
#include <string.h>

#include "client/client.h"
#include "sim.h"
#include "store/backend.h"
#include "store/store.h"

#define GIVES_UP_NS (60 * SECOND)
#define PATIENCE    (900 * SECOND)
#define HEARING_NS  (6 * SECOND)
#define RENEWS_NS   (20 * SECOND)
#define FEIGNED     300 /* in a thousand */

static bool is_serving(struct world *world)
{
	if (world->options.is_cluster)
		return node_is_serving(world->server) && node_holder(world) == world->server;
	return world->server->is_up && !world->server->is_stopping;
}

static void run_until_serving(struct world *world)
{
	uint64_t until = world->now + PATIENCE;

	while (!world->has_failed && world->now < until && !is_serving(world))
		world_step(world);
	if (!world->has_failed && !is_serving(world))
		world_fail(world, "REST", "the server does not start");
}

/* I9 */

static bool is_registered(struct world *world, const struct host *host, bool by_itself)
{
	for (uint32_t i = 0; i < world->disk.synced.n; i++) {
		struct hf_record record;

		if (disk_record_read(&world->disk.synced.records[i], HF_RECORD_CLIENT, &record) &&
		    hf_addr_same_host(&record.client.address, &host->addr) &&
		    !((world->monitor.xid || by_itself) &&
		      hf_bytes_equal(record.client.protocol, hf_bytes_of_str("nsm"))))
			return true; /* but not one that is being given up, or may be */
	}
	return false;
}

static bool can_hear(const struct host *host)
{
	return host->is_up && !host->gateway;
}

static bool has_heard(const struct host *host)
{
	return host->newest_heard == host->world->server->state;
}

static void feign(struct world *world, void *user)
{
	hf_recovery_simulate_crash(world->server->recovery);
	hf_loop_run_deferred(&world->server->loop->loop);
}

/* Sometimes the server's number rises while hosts are being told of the one before (SM_SIMU_CRASH). */
static void feign_restart(struct world *world)
{
	struct server *server = world->server;
	uint64_t until;

	if (!rng_chance(&world->plan_rng, FEIGNED))
		return;
	world_run_until(world, world->now + rng_below(&world->plan_rng, 5 * MS));
	if (!is_serving(world))
		return;
	SAY(world, "rest    a restart is feigned");
	server->is_feigning = true;
	server_do(world, feign, NULL);
	/* A store that is not back yet refuses it. */
	until = world->now + 2 * SECOND;
	while (!world->has_failed && server->is_feigning && world->now < until)
		world_step(world);
	server->is_feigning = false;
}

static uint64_t numbered_at(const struct world *world)
{
	const struct server *server = world->server;

	return server->feigned_at ? server->feigned_at : server->started_at;
}

/* It had no locks, and gave way to another client before a second restart was feigned. It had nothing to be
 * told by then: it knew of the first restart, or the run went on. check_unregistered() sees to that. */
static bool has_left(struct world *world, const struct host *host, bool by_itself)
{
	return world->server->feigned_at && !is_registered(world, host, by_itself);
}

/* The host that cannot be reached; NULL: it need not be told. */
static struct host *check_hearing(struct world *world)
{
	struct host *deaf = &world->hosts[rng_below(&world->plan_rng, world->n_hosts)];
	bool must_hear[MAX_HOSTS];
	uint32_t life;

	host_set_cut(deaf, true, true, UINT64_MAX / 4);
	server_crash(world, CRASH_DAEMON);
	for (uint32_t i = 0; i < world->n_hosts; i++)
		must_hear[i] = can_hear(&world->hosts[i]) &&
			       is_registered(world, &world->hosts[i], &world->hosts[i] == deaf);
	run_until_serving(world);
	life = world->server->life;
	if (!world->has_failed)
		feign_restart(world);
	world_run_until(world, numbered_at(world) + HEARING_NS);
	/* No host has anything to hear; or a node that was away for too long was fenced, and all begins anew.
	 */
	if (world->server->has_continued || world->server->life != life || !is_serving(world))
		memset(must_hear, 0, sizeof(must_hear));
	for (uint32_t i = 0; i < world->n_hosts && !world->has_failed; i++)
		if (must_hear[i] && &world->hosts[i] != deaf && !has_heard(&world->hosts[i]) &&
		    !has_left(world, &world->hosts[i], false))
			world_fail(world, "I9", "host %u has not heard of the restart", i);
	if (has_left(world, deaf, true))
		must_hear[deaf->index] = false;
	if (!must_hear[deaf->index])
		host_set_cut(deaf, false, false, 0);
	return must_hear[deaf->index] ? deaf : NULL;
}

/* Some partitions end soon, some late. */
static uint64_t choose_healing(struct world *world)
{
	const struct server *server = world->server;

	if (rng_chance(&world->plan_rng, 500))
		return world->now;
	return numbered_at(world) +
	       rng_between(&world->plan_rng, HEARING_NS, server->notify_retry_ns - SECOND);
}

/* The last try has as long as any other. */
static void check_healed(struct world *world, struct host *deaf)
{
	uint64_t until = numbered_at(world) + world->server->notify_retry_ns + HEARING_NS;
	uint32_t life = world->server->life;

	world_run_until(world, choose_healing(world));
	SAY(world, "%s  is connected again", deaf->name);
	host_set_cut(deaf, false, false, 0);
	while (!world->has_failed && world->now < until && !has_heard(deaf))
		world_step(world);
	if (!world->has_failed && !has_heard(deaf) && world->server->life == life)
		world_fail(world, "I9", "host %u can be reached again, and has not heard of the restart",
			   deaf->index);
}

/* Hosts that do not exist any more, and never said so */

/* Its statd gives the old number, and the server has no other evidence: sm-notify gives up, and the operator
 * does what the log says. */
static bool is_disbelieved(const struct host *host)
{
	return host && host->is_up && host->statd_state != host->state && host->told_life != host->life &&
	       host->world->now > host->grace_until - host->grace_ns + GIVES_UP_NS;
}

static void declare_dead(struct world *world, void *user)
{
	struct hf_clients *clients = hf_recovery_clients(world->server->recovery);
	struct hf_client *client;
	struct host *host;
	uint64_t serial = 0;

	while ((client = hf_clients_next(clients, serial))) {
		serial = client->serial;
		host = net_host(world, &client->address);
		if (!host || (is_disbelieved(host) && strcmp(client->protocol, "nlm") == 0))
			hf_recovery_client_crashed(world->server->recovery, client, "operator");
		hf_client_unref(client);
	}
	for (uint32_t i = 0; i < world->n_hosts; i++)
		if (is_disbelieved(&world->hosts[i]))
			world->hosts[i].told_life = world->hosts[i].life;
	hf_loop_run_deferred(&world->server->loop->loop);
}

static bool all_at_rest(struct world *world)
{
	for (uint32_t i = 0; i < world->n_hosts; i++) {
		const struct host *host = &world->hosts[i];

		if (!host->is_up || host->is_reclaiming || host->told_life != host->life)
			return false;
		for (uint32_t j = 0; j < host->n_procs; j++)
			if (!proc_is_at_rest(&host->procs[j]))
				return false;
	}
	return !world->server->grace_is_on;
}

static void announce_all(struct world *world)
{
	for (uint32_t i = 0; i < world->n_hosts; i++) {
		struct host *host = &world->hosts[i];

		if (host->is_up && host->told_life != host->life && !host->n_evidence) {
			host->awakening = BY_NOTIFY;
			host_announce(host);
		}
		/* Its notice counts only if it has connected since its last call. */
		if (host->told_life != host->life && identity_is_steady(host, world->now - RENEWS_NS))
			session_renew(host);
	}
}

static void nudge_all(struct world *world, bool unlocks_all)
{
	for (uint32_t i = 0; i < world->n_hosts; i++)
		for (uint32_t j = 0; j < world->hosts[i].n_procs; j++) {
			struct proc *proc = &world->hosts[i].procs[j];

			if (unlocks_all)
				proc->files_touched = (uint8_t)((1 << world->n_files) - 1);
			if (world->hosts[i].is_up)
				proc_nudge(proc);
		}
}

static void come_to_rest(struct world *world)
{
	uint64_t until = world->now + PATIENCE, look_at = 0;

	while (!world->has_failed && world->now < until) {
		if (world->now >= look_at) {
			look_at = world->now + 5 * SECOND;
			announce_all(world);
			server_do(world, declare_dead, NULL);
			if (all_at_rest(world))
				return;
		}
		world_step(world);
	}
	for (uint32_t i = 0; i < world->n_hosts && !world->has_failed; i++)
		for (uint32_t j = 0; j < world->hosts[i].n_procs; j++)
			if (!proc_is_at_rest(&world->hosts[i].procs[j]))
				world_fail(world, "REST", "%u of host %u is still in phase %d",
					   world->hosts[i].procs[j].svid, i,
					   (int)world->hosts[i].procs[j].phase);
	if (!world->has_failed)
		world_fail(world, "REST", "grace does not end, or a host is not heard");
}

/* The sweep may just have begun to unregister a client that has had no locks for long. */
static void let_store_finish(struct world *world)
{
	struct hf_store *store = hf_recovery_store(world->server->recovery);
	uint64_t until = world->now + 10 * SECOND;

	while (!world->has_failed && world->now < until && !hf_store_is_idle(store))
		world_step(world);
}

static void check_nothing_left(struct world *world)
{
	struct hf_store *store = hf_recovery_store(world->server->recovery);
	struct hf_lock_counters counters;
	uint32_t n_stored = 0;

	hf_lock_count(hf_recovery_locks(world->server->recovery), &counters);
	if (counters.locks || counters.waiters || counters.grants || counters.ghosts ||
	    counters.reservations || counters.unreclaimed)
		world_fail(world, "REST",
			   "%llu locks, %llu waiters, %llu grants, %llu ghosts, %llu reservations are left",
			   (unsigned long long)counters.locks, (unsigned long long)counters.waiters,
			   (unsigned long long)counters.grants, (unsigned long long)counters.ghosts,
			   (unsigned long long)counters.reservations);
	if (!hf_store_is_healthy(store) || !hf_store_is_idle(store))
		world_fail(world, "REST", "the store is not at rest");
	for (uint32_t i = 0; i < world->disk.cached.n; i++)
		n_stored += world->disk.cached.records[i].type != HF_RECORD_CLIENT;
	if (n_stored)
		world_fail(world, "REST", "%u locks are stored, and no program has any", n_stored);
}

void rest_run(struct world *world)
{
	struct host *deaf = NULL;

	SAY(world, "rest    nothing goes wrong any more");
	plan_stop(world);
	run_until_serving(world);
	world_run_until(world, world->now + 2 * SECOND);
	run_until_serving(world);
	if (!world->has_failed)
		deaf = check_hearing(world);
	SAY(world, "rest    all programs finish");
	world->is_ending = true;
	world->ending_since = world->now;
	nudge_all(world, false);
	if (deaf && !world->has_failed)
		check_healed(world, deaf);
	come_to_rest(world);
	world_run_until(world, world->now + STRAGGLER_NS);
	nudge_all(world, true); /* late copies of LOCKs that were given up may have arrived meanwhile */
	come_to_rest(world);
	world_run_until(world, world->now + 2 * SECOND);
	if (!world->has_failed)
		let_store_finish(world);
	if (!world->has_failed)
		check_nothing_left(world);
}
