/*
 * Which local registrations watch a peer by its name? They have no address of the peer. A
 * notice finds them by the name in it.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "proto/nsm/internal.h"

struct watch {
	struct hf_hash_node node;
	struct hf_client *client; /* a reference */
};

/* Then the registration has the address of the program that made it. */
static bool is_by_name(const struct hf_nsm *nsm, const struct hf_client *client)
{
	return hf_nsm_is_local_watch(nsm, client) && hf_addr_is_loopback(&client->address);
}

static struct watch *find(struct hf_nsm *nsm, const struct hf_client *client, uint64_t hash)
{
	hf_hash_for_each(node, &nsm->watches, hash) {
		struct watch *watch = hf_container_of(node, struct watch, node);

		if (watch->client == client)
			return watch;
	}
	return NULL;
}

int hf_nsm_watch(struct hf_nsm *nsm, struct hf_client *client)
{
	struct watch *watch;
	uint64_t hash;

	if (!is_by_name(nsm, client))
		return 0;
	hash = hf_nsm_hash_name(nsm, hf_bytes_of_str(client->mon_name));
	if (find(nsm, client, hash))
		return 0;
	watch = calloc(1, sizeof(*watch));
	if (!watch)
		return hf_trace(-ENOMEM);
	watch->client = hf_client_ref(client);
	hf_hashtable_insert(&nsm->watches, &watch->node, hash);
	return 0;
}

static void forget(struct hf_nsm *nsm, struct watch *watch)
{
	hf_hashtable_remove(&nsm->watches, &watch->node);
	hf_client_unref(watch->client);
	free(watch);
}

struct hf_client *hf_nsm_next_watch(struct hf_nsm *nsm, struct hf_bytes name, struct hf_client *after)
{
	bool is_past = !after;
	struct hf_client *found = NULL;

	hf_hash_for_each(node, &nsm->watches, hf_nsm_hash_name(nsm, name)) {
		struct hf_client *client = hf_container_of(node, struct watch, node)->client;

		if (is_past && hf_nsm_names_match(hf_bytes_of_str(client->mon_name), name)) {
			found = hf_client_ref(client);
			break;
		}
		is_past |= client == after;
	}
	hf_client_unref(after);
	return found;
}

/* Following the registrations */

/* The watchers are told at the end of the turn, when the crash is complete. They hear of every restarted
 * host, however many crashes one turn brings. */
static void witness(struct hf_nsm *nsm, const struct hf_addr *host, int32_t state)
{
	if (nsm->n_witnessed == nsm->witnessed_room) {
		size_t room = nsm->witnessed_room ? 2 * nsm->witnessed_room : 64;
		struct hf_nsm_witnessed *more = realloc(nsm->witnessed, room * sizeof(*more));

		if (!more) {
			nsm->counts.callbacks_failed++;
			hf_log_error(
				"no memory to tell a lock manager of this host that a peer was restarted",
				"%s", "");
			return;
		}
		nsm->witnessed = more;
		nsm->witnessed_room = room;
	}
	nsm->witnessed[nsm->n_witnessed++] = (struct hf_nsm_witnessed){ *host, state };
	hf_loop_defer(nsm->options.loop, &nsm->witness_task);
}

static void on_event(struct hf_recovery_observer *observer, const struct hf_recovery_event *event)
{
	struct hf_nsm *nsm = hf_container_of(observer, struct hf_nsm, observer);
	struct hf_client *client = event->client;
	struct watch *watch;

	switch (event->kind) {
	case HF_EVENT_UNREGISTERED:
		hf_nsm_sight_forget(client);
		hf_nsm_note_departed(nsm, client);
		if (!client->mon_name)
			break;
		hf_nsm_callbacks_forget(nsm, client);
		watch = find(nsm, client, hf_nsm_hash_name(nsm, hf_bytes_of_str(client->mon_name)));
		if (watch)
			forget(nsm, watch);
		break;
	case HF_EVENT_CRASH:
		hf_nsm_sight_forget(client);
		client->link = 0;
		if (hf_nsm_is_local_watch(nsm, client))
			hf_nsm_call_back(nsm, client, event->state);
		else if (event->state)
			witness(nsm, &client->address, event->state);
		break;
	default:
		break;
	}
}

/* A restart may be known without an SM_NOTIFY. The watchers of that host are told of it, too. */
static void on_witness(struct hf_task *task)
{
	struct hf_nsm *nsm = hf_container_of(task, struct hf_nsm, witness_task);
	struct hf_nsm_witnessed *witnessed = nsm->witnessed;
	size_t n = nsm->n_witnessed;

	nsm->witnessed = NULL;
	nsm->n_witnessed = nsm->witnessed_room = 0;
	for (size_t i = 0; i < n; i++)
		hf_nsm_tell_watchers(nsm, &witnessed[i].host, witnessed[i].state);
	free(witnessed);
}

static int watch_restored(struct hf_nsm *nsm)
{
	struct hf_client *client;
	uint64_t serial = 0;
	int r = 0;

	while (r == 0 && (client = hf_clients_next(nsm->clients, serial))) {
		serial = client->serial;
		r = hf_nsm_watch(nsm, client);
		hf_client_unref(client);
	}
	return r;
}

int hf_nsm_watches_init(struct hf_nsm *nsm)
{
	int r = hf_hashtable_init(&nsm->watches);

	if (r == 0)
		r = watch_restored(nsm);
	if (r < 0)
		return hf_trace(r);
	nsm->observer.fn = on_event;
	hf_recovery_observe(nsm->options.recovery, &nsm->observer);
	hf_task_init(&nsm->witness_task, on_witness);
	return 0;
}

void hf_nsm_watches_deinit(struct hf_nsm *nsm)
{
	struct hf_client *client;
	uint64_t serial = 0;

	if (!nsm->observer.fn)
		return;
	hf_link_remove(&nsm->observer.link);
	hf_task_cancel(&nsm->witness_task);
	free(nsm->witnessed);
	while (nsm->watches.n && (client = hf_clients_next(nsm->clients, serial))) {
		uint64_t hash =
			client->mon_name ? hf_nsm_hash_name(nsm, hf_bytes_of_str(client->mon_name)) : 0;
		struct watch *watch = client->mon_name ? find(nsm, client, hash) : NULL;

		serial = client->serial;
		if (watch)
			forget(nsm, watch);
		hf_client_unref(client);
	}
	hf_hashtable_deinit(&nsm->watches);
}
