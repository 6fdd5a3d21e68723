/*
 * The server's life: the product's objects, put together as src/daemon does, without files, port mapper and
 * HTTP. And its death: its stack is left, its memory is forgotten, its sockets are closed by the kernel or,
 * if the machine dies, not at all; the disk has what it has.
 */
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "proto/nlm/nlm.h"
#include "proto/nsm/nsm.h"
#include "rpc/client.h"
#include "rpc/presence.h"
#include "rpc/server.h"
#include "sim.h"
#include "vfs/disk_queue.h"

#define NAME        "holdfast"
#define SECRET      UINT64_C(0x5ec7e7)
#define TRY_AGAIN   (2 * SECOND)
#define LATE_TURN   (60 * MS)
#define PROMPT_NS   (200 * UINT64_C(1000))
#define STARTS_OVER 200 /* of a thousand starts */

/* Operations and crashes */

void server_tick(struct world *world)
{
	struct server *server = world->server;

	if (server->is_running && server->crash_in && --server->crash_in == 0) {
		world->counts->amid_crashes++;
		longjmp(server->death, 1);
	}
}

void server_wake(struct server *server)
{
	struct world *world = server->world;
	struct rng *rng = &world->server_rng;
	uint64_t at = world->now;

	if (!server->is_up || server->turn_at <= at)
		return;
	if (!omits(world, OMIT_LATENCY)) {
		bool is_late = !world->is_calm && rng_chance(rng, world->knobs.lazy);

		at += rng_below(rng, is_late ? LATE_TURN : PROMPT_NS);
	}
	server->turn_at = HF_MIN(server->turn_at, at);
}

uint64_t server_next(struct server *server)
{
	struct world *world = server->world;
	const struct hf_timer *first;
	uint64_t at = server->turn_at;

	if (!server->is_up)
		return UINT64_MAX;
	first = hf_timer_heap_first(&server->loop->loop.timers);
	if (first)
		at = HF_MIN(at, HF_MAX(first->deadline + server->node.slept_ns, world->now));
	return HF_MAX(at, server->node.halted_until);
}

bool server_is_message_old(const struct server *server, uint64_t sent_at)
{
	return sent_at < server->lost_before || (sent_at < server->told_since && !server->grace_is_on);
}

/* The server died in the turn in which grace ended. It is open whether the end is stored, and the unreclaimed
 * locks are lost. A lock that was reclaimed in time, and could not be promised, is open, too; and one in a
 * file that is not exported, if the store may lack it. */
static void forfeit(struct world *world, struct proc *proc)
{
	bool may_lack = reload_may_lack(world);

	for (uint8_t file = 0; file < MAX_FILES; file++)
		for (int unit = 0; unit < N_UNITS; unit++) {
			if (proc->own->firm[file][unit] || !proc->own->has[file][unit] ||
			    (!may_lack && reload_is_absent(world->server, file)))
				continue;
			proc->own->phantom[file][unit] = proc->own->has[file][unit];
			proc->own->has[file][unit] = 0;
			proc->own->lost_at[file][unit] = world->now;
		}
}

/* The server's death takes nothing from programs with locks yet; but the server has to tell them anew. */
void server_loosen(struct world *world)
{
	struct server *server = world->server;
	bool was_over = server->grace_ran_out ||
			(server->grace_over && (server->grace_by_hand || server->has_lost ||
						world->now >= server->started_at + server->window_ns));

	if (was_over)
		server->lost_before = server->started_at;
	for (uint32_t i = 0; i < world->n_hosts; i++)
		for (uint32_t j = 0; j < world->hosts[i].n_procs; j++) {
			struct proc *proc = &world->hosts[i].procs[j];

			if (was_over)
				forfeit(world, proc);
			if (world->hosts[i].is_unmonitored)
				proc_lose(proc);
			memset(proc->own->firm, 0, sizeof(proc->own->firm));
			memset(proc->own->freed, 0, sizeof(proc->own->freed)); /* it may come back */
			reservation_loosen(proc, was_over);
		}
}

static void close_sockets(struct world *world)
{
	struct hf_link *link;

	while ((link = hf_list_first(&world->server->socks)))
		sock_free(hf_list_entry(link, struct sock, link));
}

/* The server may know that all locks are reclaimed, and not have stored it. */
void server_forget_list(struct world *world)
{
	const struct disk_view *disk = &world->disk.cached;
	struct server *server = world->server;

	if (server->durability == HF_STORE_NONE || !disk->has_state || !disk->state.is_complete)
		server->is_complete = false;
}

void server_vanish(struct world *world, bool is_machine)
{
	struct server *server = world->server;

	server->is_running = server->is_up = server->is_stopping = false;
	server->crash_in = 0;
	server->turn_at = UINT64_MAX;
	server->has_machine = !is_machine;
	worker_crash(world);
	if (world->tls.exists) {
		session_server_died(world);
		intruder_server_died(world);
	}
	sim_arena_kill(server->index);
	stream_server_died(world, is_machine);
	close_sockets(world);
	if (!server->node.is_deposed) {
		server_loosen(world);
		if (world->options.is_cluster)
			server_forget_list(world);
	}
	server->node.is_deposed = false;
}

static void start_later(struct world *world, uint64_t delay_ns)
{
	hf_timer_start(&world->server->start_timer, delay_ns);
}

void server_crash(struct world *world, enum crash_kind kind)
{
	struct server *server = world->server;
	bool is_machine = kind == CRASH_MACHINE;
	struct rng *rng = &world->server_rng;

	if (world->options.is_cluster) {
		node_crash(server, kind);
		return;
	}
	if (!server->is_up) {
		if (!is_machine || !server->has_machine)
			return;
		hf_timer_stop(&server->start_timer);
	}
	SAY(world, "server  %s%s", is_machine ? "THE MACHINE CRASHES" : "THE DAEMON IS KILLED",
	    server->is_running ? ", in the middle of a turn" : "");
	world_note(world, 1000 + (uint64_t)kind, server->life);
	if (is_machine)
		world->counts->machine_crashes++;
	else
		world->counts->daemon_crashes++;
	server_vanish(world, is_machine);
	disk_crash(world, is_machine);
	if (is_machine) {
		monitor_died(world);
		server->boot++;
		if (server->durability != HF_STORE_MACHINE)
			server->is_complete = false;
	}
	server_forget_list(world);
	start_later(world, is_machine ? rng_between(rng, 3 * SECOND, 30 * SECOND)
				      : rng_between(rng, 100 * MS, 5 * SECOND));
}

void server_arm(struct world *world, enum crash_kind kind, uint32_t n_operations)
{
	world->server->kind = kind;
	world->server->crash_in = n_operations;
}

/* Running its code */

void server_do(struct world *world, void (*fn)(struct world *world, void *user), void *user)
{
	struct server *server = world->server;

	if (!server->is_up)
		return;
	if (setjmp(server->death)) {
		server_crash(world, server->kind);
		return;
	}
	server->is_running = true;
	sim_arena_enter(server->index);
	fn(world, user);
	sim_arena_leave();
	server->is_running = false;
	server->node.lag = 0;
}

static void turn(struct world *world, void *user)
{
	if (world->server->must_reload)
		reload_act(world);
	sim_loop_turn(world);
}

static void look_again(struct world *world)
{
	struct server *server = world->server;

	server->turn_at = UINT64_MAX;
	if (server->is_up &&
	    (sim_loop_has_work(world) || disk_has_completed(world) || worker_has_answers(world)))
		server_wake(server);
}

static void finish_stop(struct world *world);

static uint64_t count_calls(const struct server *server)
{
	struct hf_rpc_counts counts = { 0 };

	if (server->is_up && server->rpc)
		hf_rpc_server_counts(server->rpc, &counts);
	return counts.calls;
}

/* T1: the effect of an operation may be outside of the database, where nothing checks the owner. */
static void turn_without_lease(struct world *world)
{
	struct server *server = world->server;
	uint64_t before = count_calls(server);

	server_do(world, turn, NULL);
	if (count_calls(server) > before)
		world_fail(world, "T1", "node %s begins an operation, and its lease is over",
			   server->node.name);
}

void server_turn(struct world *world)
{
	struct server *server = world->server;

	world->counts->turns++;
	world_note(world, 1, server->life);
	server->could_promise = server->recovery && hf_recovery_can_promise(server->recovery);
	if (world->options.is_cluster && !node_may_act(server))
		turn_without_lease(world);
	else
		server_do(world, turn, NULL);
	if (server->is_up && server->is_stopping && !server->recovery)
		finish_stop(world);
	look_again(world);
	if (server->is_up && !server->node.is_deposed)
		check_turn(world);
}

/* Birth */

static void send_datagram(void *user, const struct hf_addr *local, const struct hf_addr *to,
			  struct hf_bytes message)
{
	struct world *world = user;

	hf_rpc_server_send(world->server->rpc, local, to, message);
}

static bool is_export_client(void *user, const struct hf_addr *peer)
{
	return true;
}

static void on_store_taken(void *user)
{
	node_store_taken(user);
}

static int make_locks(struct world *world)
{
	struct server *server = world->server;
	struct hf_loop *loop = &server->loop->loop;
	struct hf_recovery_options options = {
		.loop = loop,
		.open_store = disk_open,
		.durability = server->durability,
		.server_name = NAME,
		.window_ns = server->window_ns,
		.grace = HF_RECOVERY_GRACE_AUTO,
		.early_end = server->early_end,
		.continues = server->continues,
		.handle_key = world->options.continues ? SECRET : 0, /* another write of the start */
		.owner = world->options.is_cluster ? server->node.owner : NULL,
		.known_epoch = server->node.known_epoch,
		.known_state = server->node.known_state,
		.store_taken = on_store_taken,
		.store_taken_user = server,
		.notify_timeout_ns = 5 * SECOND,
		.notify_parallel = server->notify_parallel,
		.notify_retry_ns = server->notify_retry_ns,
		.max_clients = server->max_clients,
		.idle_ns = server->idle_ns,
	};
	struct hf_nlm_options nlm = { .loop = loop,
				      .server_name = NAME,
				      .secret = SECRET,
				      .store_comes_back = world->options.is_cluster };
	struct hf_recovery_exports exports;
	struct hf_nlm_files files;
	struct hf_nsm_options nsm = { .loop = loop, .server_name = NAME };
	int r = hf_rpc_client_new(&server->client, loop, NULL);

	flood_limit(world, &options.lock_limits);
	if (reload_get_exports(world, &exports))
		options.exports = &exports;
	if (r == 0)
		r = hf_recovery_new(&server->recovery, &options);
	if (r < 0)
		return r;
	nlm.recovery = nsm.recovery = server->recovery;
	nlm.client = nsm.client = server->client;
	nlm.send = send_datagram;
	nlm.send_user = world;
	if (world->tls.exists)
		r = hf_rpc_presence_new(&server->presence, loop, world->tls.grace_ns);
	if (r == 0 && world->worker.is_asked)
		r = worker_start(world, &files, &nlm.files);
	if (r < 0)
		return r;
	nsm.allow_mon = HF_NSM_ALLOW_EXPORTS;
	nsm.is_export_client = is_export_client;
	nlm.presence = nsm.presence = server->presence;
	nsm.demands_tls = identity_demands_any;
	nsm.user = world;
	r = hf_nlm_new(&server->nlm, &nlm);
	if (r == 0)
		r = hf_nsm_new(&server->nsm, &nsm);
	if (r == 0)
		hf_nlm_set_monitor(server->nlm, server->nsm);
	return r;
}

static int make_rpc(struct world *world)
{
	struct server *server = world->server;
	struct hf_addr any = { .family = AF_INET };
	uint16_t port = SERVER_PORT;
	int r = hf_rpc_server_new(&server->rpc, &hf_rpc_default_limits);

	if (r == 0)
		r = hf_rpc_server_add_program(server->rpc, &hf_nlm_program, server->nlm);
	if (r == 0)
		r = hf_rpc_server_add_program(server->rpc, &hf_nsm_program, server->nsm);
	if (r == 0)
		r = hf_rpc_server_add_lane(server->rpc, &server->loop->loop, &server->lane);
	if (r == 0)
		r = hf_rpc_server_listen_tcp(server->rpc, &any, &port);
	if (r == 0)
		r = hf_rpc_server_listen_udp(server->rpc, &any, &port);
	return r;
}

static void observe(struct server *server)
{
	memset(&server->observer, 0, sizeof(server->observer));
	server->observer.fn = check_event;
	server->observer.wants_locks = true;
	hf_recovery_observe(server->recovery, &server->observer);
}

static void begin(struct world *world, void *user)
{
	struct server *server = world->server;
	int *r = user;

	server->loop = sim_loop_new(world);
	*r = make_locks(world);
	if (*r == 0)
		*r = make_rpc(world);
	if (*r < 0)
		return;
	observe(server);
	hf_recovery_restore_waiters(server->recovery);
	hf_nlm_exports_changed(server->nlm);
	*r = hf_recovery_start(server->recovery);
	hf_loop_run_deferred(&server->loop->loop);
}

/* With --continue most runs may go on. For the others an operator has set recovery.after_crash: reclaim, so
 * that there are runs that start over with a complete list, and die before its clients have reclaimed. */
static bool may_go_on(const struct world *world)
{
	struct rng rng;

	rng_init(&rng, world->options.seed, 700 + world->server->life);
	return world->options.continues && !rng_chance(&rng, STARTS_OVER);
}

/* A node that knows of a later term than the database has starts over: what that term granted may be lost.
 * After that term another node may have begun on an older replica, with lower numbers, and have a complete
 * list by now. The node cannot know that. */
static void forget_list_of_lower_epoch(struct world *world)
{
	if (world->server->node.known_epoch > world->disk.cached.state.epoch)
		world->server->is_complete = false;
}

void server_start(struct world *world)
{
	struct server *server = world->server;
	uint32_t life = ++server->life;
	int r = 0;

	forget_list_of_lower_epoch(world);
	server->continues = may_go_on(world);
	reload_server_starts(world);
	server->has_machine = server->is_up = true;
	server->turn_at = UINT64_MAX;
	server->started_at = world->now;
	server->is_feigning = false;
	server->feigned_at = 0;
	server->recovery = NULL;
	server->disk_queue = NULL;
	server->presence = NULL;
	server->grace_over = server->grace_by_hand = server->grace_ran_out = false;
	server->n_grants = server->n_grants_checked = 0;
	memset(server->waiters, 0, sizeof(server->waiters));
	server->n_waiting = disk_count_promised_waiters(world);
	SAY(world, "server  starts, epoch %u", life);
	world_note(world, 2, life);
	for (uint32_t i = 0; i < world->n_hosts; i++) {
		world->hosts[i].was_stored = disk_has_client_of(&world->hosts[i]);
		if (world->hosts[i].is_up)
			reclaim_server_starts(&world->hosts[i]);
	}
	identity_server_starts(world);
	server_do(world, begin, &r);
	if (!server->is_up || server->life != life)
		return; /* it died soon */
	if (r < 0) {
		SAY(world, "server  cannot start: %s", strerror(-r));
		server_vanish(world, false);
		disk_crash(world, false);
		if (world->options.is_cluster)
			return; /* node.c decides */
		start_later(world, TRY_AGAIN);
		return;
	}
	check_started(world);
	look_again(world);
	check_turn(world);
}

static void on_start(struct hf_timer *timer)
{
	struct server *server = hf_container_of(timer, struct server, start_timer);

	if (server->world->options.is_cluster)
		node_start(server);
	else
		server_start(server->world);
}

/* What is known of the service, whatever node serves it. */
void server_inherit(struct server *server, const struct server *from)
{
	server->life = from->life;
	server->told_since = from->told_since;
	server->state = from->state;
	server->lost_before = from->lost_before;
	server->is_complete = from->is_complete;
	memcpy(server->told_in, from->told_in, sizeof(server->told_in));
	server->durability = from->durability;
	server->window_ns = from->window_ns;
	server->notify_retry_ns = from->notify_retry_ns;
	server->notify_parallel = from->notify_parallel;
	server->max_clients = from->max_clients;
	server->idle_ns = from->idle_ns;
	server->early_end = from->early_end;
}

void server_init(struct world *world)
{
	for (uint32_t i = 0; i < MAX_NODES; i++) {
		struct server *server = &world->nodes[i];

		server->world = world;
		server->index = i;
		server->turn_at = UINT64_MAX;
		server->has_machine = true;
		server->is_complete = true;
		hf_list_init(&server->socks);
		world_timer(world, &server->start_timer, on_start);
	}
	world->server = world->acting = &world->nodes[0];
}

/* An end in order */

static void take_down(struct world *world, void *user)
{
	struct server *server = world->server;

	hf_link_remove(&server->observer.link);
	if (server->disk_queue) {
		worker_finish(world);
		hf_disk_queue_wait(server->disk_queue);
	}
	hf_loop_drain(&server->loop->loop);
	hf_nsm_free(server->nsm);
	hf_nlm_free(server->nlm);
	hf_recovery_free(user);
	hf_rpc_server_free(server->rpc);
	hf_disk_queue_free(server->disk_queue);
	hf_rpc_client_free(server->client);
	session_end_all(world);
	hf_loop_free(&server->loop->loop);
	hf_rpc_presence_free(server->presence);
}

/* Meanwhile @recovery is not in its place. */
static void on_stopped(void *user)
{
	struct world *world = user;

	world->server->recovery = NULL;
}

static void begin_stop(struct world *world, void *user)
{
	struct server *server = world->server;

	hf_rpc_lane_close(server->lane);
	hf_recovery_stop(server->recovery, on_stopped, world);
}

static void finish_stop(struct world *world)
{
	struct server *server = world->server;
	struct rng *rng = &world->server_rng;
	uint32_t n_stored = world->disk.cached.n;

	SAY(world, "server  stopped in order");
	world->counts->clean_stops++;
	server_do(world, take_down, server->stopping);
	if (!server->is_up)
		return; /* killed at the last moment */
	if (world->disk.cached.state.is_clean && world->disk.cached.n != n_stored)
		world_fail(world, "I10", "something is stored after the stop was marked as clean");
	server_vanish(world, false);
	disk_crash(world, false);
	server_forget_list(world);
	if (world->options.is_cluster)
		node_stopped(server);
	else
		start_later(world, rng_between(rng, 100 * MS, 5 * SECOND));
}

void server_stop(struct world *world)
{
	struct server *server = world->server;

	if (!server->is_up || server->is_stopping)
		return;
	SAY(world, "server  is told to stop");
	world_note(world, 3, server->life);
	server->is_stopping = true;
	server->stopping = server->recovery;
	server_do(world, begin_stop, NULL);
	look_again(world);
}
