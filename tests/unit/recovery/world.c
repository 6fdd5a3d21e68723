#include "world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../turn.h"
#include "lock/lock.h"

/* The teller */

struct telling {
	struct hf_link link;
	struct world *world;
	struct hf_timer timer;
	enum peer peer;
	bool is_short; /* there is no socket for it */
	int32_t state;
	void (*done)(void *context, bool was_told, const char *why_not);
	void *context;
};

static void on_told(struct hf_timer *timer)
{
	struct telling *telling = hf_container_of(timer, struct telling, timer);
	struct world *world = telling->world;
	bool fine = telling->peer == PEER_FINE && !telling->is_short, is_short = telling->is_short;
	void (*done)(void *, bool, const char *) = telling->done;
	void *context = telling->context;

	world->n_in_flight--;
	if (fine) {
		world->n_told++;
		world->told_at = hf_loop_now(world->loop);
		world->told_state = telling->state;
	} else if (!is_short) {
		world->n_failed++;
	}
	hf_link_remove(&telling->link);
	free(telling);
	done(context, fine, fine || is_short ? NULL : "no reply in time");
}

static int tell(void *user, struct hf_client *client, int32_t our_state, uint64_t timeout_ns,
		void (*done)(void *context, bool was_told, const char *why_not), void *context)
{
	struct world *world = user;
	struct telling *telling;
	enum peer peer = client->name[0] == 'b' ? PEER_BLACK_HOLE : PEER_FINE;

	assert_int_equal(our_state, hf_recovery_state(world->recovery));
	if (world->n_busy) {
		world->n_busy--;
		return -EBUSY;
	}
	if (world->all_deaf || client->name[0] == 'r')
		return -ENETUNREACH;
	if (client->name[0] == 's' && client->status == HF_CLIENT_ACTIVE)
		peer = PEER_BLACK_HOLE;
	if (client->name[0] == 'l' && !world->n_told && !world->n_failed)
		peer = PEER_LATE;
	telling = calloc(1, sizeof(*telling));
	*telling = (struct telling){
		.world = world, .peer = peer, .state = our_state, .done = done, .context = context
	};
	if (world->n_short) {
		world->n_short--;
		telling->is_short = true;
	}
	hf_list_push_back(&world->tellings, &telling->link);
	hf_timer_init(&telling->timer, world->loop, on_told);
	if (telling->is_short)
		hf_timer_start(&telling->timer, 0);
	else if (peer != PEER_LATE)
		hf_timer_start(&telling->timer, peer == PEER_FINE ? 2 * MS : timeout_ns);
	world->n_in_flight++;
	world->max_in_flight =
		world->n_in_flight > world->max_in_flight ? world->n_in_flight : world->max_in_flight;
	return 0;
}

void world_end_telling(struct world *world, bool was_told)
{
	struct telling *telling = hf_list_entry(hf_list_first(&world->tellings), struct telling, link);

	telling->peer = was_told ? PEER_FINE : PEER_BLACK_HOLE;
	hf_timer_start(&telling->timer, 0);
}

static void drop_tellings(struct world *world)
{
	struct hf_link *link;

	while ((link = hf_list_pop_front(&world->tellings))) {
		struct telling *telling = hf_list_entry(link, struct telling, link);

		hf_timer_stop(&telling->timer);
		free(telling);
	}
	world->n_in_flight = 0;
}

/* What happens */

static bool restore(void *user, struct hf_bytes route, bool was_granted, struct hf_recovery_route *routep)
{
	*routep = (struct hf_recovery_route){ 0 };
	return true;
}

static void on_granted(void *user, const struct hf_lock_view *waiter)
{
	struct world *world = user;

	world->n_granted++;
	world->last_granted = waiter->id;
}

static void on_gone(void *user, const struct hf_lock_view *waiter, enum hf_lock_end why)
{
	((struct world *)user)->n_gone++;
}

static void on_event(struct hf_recovery_observer *observer, const struct hf_recovery_event *event)
{
	struct world *world = hf_container_of(observer, struct world, observer);

	world->n_events[event->kind]++;
	world->last[event->kind] = *event;
}

/* Making and freeing */

void world_init(struct world *world)
{
	*world = (struct world){
		.options = {
			.open_store = disk_open,
			.durability = HF_STORE_PROCESS,
			.server_name = "server",
			.window_ns = 60 * HF_NS_PER_S,
			.protocols = { [WORLD_NLM] = { "nlm", .is_told = true, UINT64_MAX },
				       [WORLD_NSM] = { "nsm", .is_told = true, UINT64_MAX },
				       [WORLD_SMB] = { "smb", .is_told = false, UINT64_MAX } },
			.n_protocols = 3,
			.early_end = true,
			.notify_timeout_ns = 300 * MS,
			.notify_parallel = 64,
			.notify_retry_ns = 900 * HF_NS_PER_S,
			.max_clients = 20000,
		},
	};
	hf_list_init(&world->tellings);
	assert_int_equal(hf_loop_new(&world->loop), 0);
}

void world_up(struct world *world)
{
	static const struct hf_recovery_waiter_events events = { .restore = restore,
								 .granted = on_granted,
								 .waiter_gone = on_gone };
	struct hf_recovery_teller teller = { tell, world };

	disk_in_use = &world->disk;
	world->options.loop = world->loop;
	assert_int_equal(hf_recovery_new(&world->recovery, &world->options), 0);
	hf_recovery_set_waiter_events(world->recovery, &events, world);
	hf_recovery_set_teller(world->recovery, "nlm", &teller);
	world->observer.fn = on_event;
	hf_recovery_observe(world->recovery, &world->observer);
	memset(world->n_events, 0, sizeof(world->n_events));
}

void world_kill(struct world *world)
{
	drop_tellings(world);
	world->recovery = hf_recovery_free(world->recovery);
	world->n_told = world->n_failed = world->n_granted = world->n_gone = 0;
}

static void on_stopped(void *user)
{
	*(bool *)user = true;
}

void world_stop(struct world *world)
{
	bool is_done = false;

	hf_recovery_stop(world->recovery, on_stopped, &is_done);
	world_until(world, is_done);
	world_kill(world);
}

void world_restart(struct world *world)
{
	world_kill(world);
	world_up(world);
	assert_int_equal(hf_recovery_start(world->recovery), 0);
}

void world_deinit(struct world *world)
{
	world_kill(world);
	hf_loop_free(world->loop);
	disk_wipe(&world->disk);
}

void world_turn(struct world *world)
{
	turn_for(world->loop, MS);
}

/* Clients and locks */

struct hf_client *world_client(struct world *world, const char *address, const char *name)
{
	struct hf_client *client;
	struct hf_addr addr, local;

	assert_true(hf_addr_parse(&addr, address) && hf_addr_parse(&local, "10.0.0.1"));
	assert_int_equal(hf_clients_get(&client, hf_recovery_clients(world->recovery), "nlm", &addr,
					hf_bytes_of_str(name)),
			 0);
	if (!hf_client_is_registered(client)) {
		hf_client_seen(client, &local);
		hf_client_confirm(client); /* it calls over TCP */
		assert_int_equal(hf_client_register(client), 0);
	}
	hf_client_unref(client); /* being registered it stays */
	return client;
}

struct hf_lock_request world_request(struct hf_client *client, uint64_t owner, const char *file,
				     uint64_t start, uint64_t end)
{
	return (struct hf_lock_request){
		.who = { .export = 7,
			 .handle = hf_bytes_of_str(file),
			 .client = &client->locking,
			 .owner_id = owner,
			 .oh = hf_bytes_of_str("oh") },
		.range = { start, end },
		.mode = HF_LOCK_EXCLUSIVE,
		.client_state = (uint32_t)client->sm_state,
	};
}

int world_lock(struct world *world, struct hf_client *client, uint64_t owner, const char *file,
	       uint64_t start, uint64_t end)
{
	struct hf_lock_request request = world_request(client, owner, file, start, end);

	return hf_lock_acquire(hf_recovery_locks(world->recovery), &request, NULL);
}

int world_reclaim(struct world *world, struct hf_client *client, uint64_t owner, const char *file,
		  uint64_t start, uint64_t end)
{
	struct hf_lock_request request = world_request(client, owner, file, start, end);

	request.reclaim = true;
	switch (hf_recovery_reclaim(world->recovery, &request)) {
	case HF_RECLAIM_BACKED:
		request.backed_only = true;
		break;
	case HF_RECLAIM_LATE:
		request.reclaim = false;
		break;
	case HF_RECLAIM_REFUSED:
		return HF_LOCK_E_GRACE;
	case HF_RECLAIM_NORMAL:
		break;
	}
	return hf_lock_acquire(hf_recovery_locks(world->recovery), &request, NULL);
}

void world_unlock(struct world *world, struct hf_client *client, uint64_t owner, const char *file,
		  uint64_t start, uint64_t end)
{
	struct hf_lock_request request = world_request(client, owner, file, start, end);

	assert_int_equal(hf_lock_release(hf_recovery_locks(world->recovery), &request.who, request.range), 0);
}

uint64_t world_unreclaimed(struct world *world)
{
	struct hf_grace_info info;

	hf_recovery_grace_info(world->recovery, &info);
	return info.n_unreclaimed;
}

bool world_in_grace(struct world *world)
{
	struct hf_grace_info info;

	hf_recovery_grace_info(world->recovery, &info);
	assert_int_equal(info.is_active, hf_lock_in_grace(hf_recovery_locks(world->recovery)));
	return info.is_active;
}
