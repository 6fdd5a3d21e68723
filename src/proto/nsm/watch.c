/*
 * Which local registrations watch a peer by its name? They have no address of the peer. A
 * notice finds them by the name in it. One program may watch thousands of peers, and thousands
 * may watch one.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "client/host_name.h"
#include "proto/nsm/internal.h"

struct watch {
	struct hf_rb_node node;   /* of nsm->watches: by name, then by the serial of the client */
	uint64_t name;            /* the hash of the peer's name, see client/host_name.h */
	struct hf_client *client; /* a reference */
};

static struct watch *watch_of(struct hf_rb_node *node)
{
	return hf_rb_entry(node, struct watch, node);
}

static uint64_t hash_of(const struct hf_nsm *nsm, const char *name)
{
	return hf_host_name_hash(&nsm->key, hf_bytes_of_str(name));
}

/* Then the registration has the address of the program that made it, or of a peer with a loopback address. */
static bool is_by_name(const struct hf_nsm *nsm, const struct hf_client *client)
{
	return hf_nsm_is_local_watch(nsm, client) && hf_addr_is_loopback(&client->address);
}

static bool is_before(const struct watch *watch, uint64_t name, uint64_t serial)
{
	return watch->name != name ? watch->name < name : watch->client->serial < serial;
}

/* The first watch of that name whose client has that serial, or a higher one. */
static struct watch *first_from(const struct hf_nsm *nsm, uint64_t name, uint64_t serial)
{
	struct hf_rb_node *node = nsm->watches.root;
	struct watch *best = NULL;

	while (node) {
		if (is_before(watch_of(node), name, serial)) {
			node = node->right;
		} else {
			best = watch_of(node);
			node = node->left;
		}
	}
	return best && best->name == name ? best : NULL;
}

static struct watch *find(const struct hf_nsm *nsm, const struct hf_client *client)
{
	struct watch *watch = first_from(nsm, hash_of(nsm, client->mon_name), client->serial);

	return watch && watch->client == client ? watch : NULL;
}

static void insert(struct hf_nsm *nsm, struct watch *watch)
{
	struct hf_rb_node *parent = NULL, **link = &nsm->watches.root;

	while (*link) {
		parent = *link;
		link = is_before(watch_of(parent), watch->name, watch->client->serial) ? &parent->right
										       : &parent->left;
	}
	hf_rb_insert(&nsm->watches, &watch->node, parent, link, NULL);
}

int hf_nsm_watch(struct hf_nsm *nsm, struct hf_client *client)
{
	struct watch *watch;

	if (!is_by_name(nsm, client) || find(nsm, client))
		return 0;
	watch = calloc(1, sizeof(*watch));
	if (!watch)
		return hf_trace(-ENOMEM);
	watch->name = hash_of(nsm, client->mon_name);
	watch->client = hf_client_ref(client);
	insert(nsm, watch);
	return 0;
}

static void forget(struct hf_nsm *nsm, struct watch *watch)
{
	hf_rb_erase(&nsm->watches, &watch->node, NULL);
	hf_client_unref(watch->client);
	free(watch);
}

struct hf_client *hf_nsm_next_watch(struct hf_nsm *nsm, struct hf_bytes name, struct hf_client *after)
{
	uint64_t hash = hf_host_name_hash(&nsm->key, name);
	uint64_t serial = after ? after->serial + 1 : 0;
	struct watch *watch;

	hf_client_unref(after);
	while ((watch = first_from(nsm, hash, serial))) {
		if (hf_nsm_names_match(hf_bytes_of_str(watch->client->mon_name), name))
			return hf_client_ref(watch->client);
		serial = watch->client->serial + 1;
	}
	return NULL;
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
		watch = find(nsm, client);
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
	int r = watch_restored(nsm);

	if (r < 0)
		return hf_trace(r);
	nsm->observer.fn = on_event;
	hf_recovery_observe(nsm->options.recovery, &nsm->observer);
	hf_task_init(&nsm->witness_task, on_witness);
	return 0;
}

void hf_nsm_watches_deinit(struct hf_nsm *nsm)
{
	while (nsm->watches.root)
		forget(nsm, watch_of(nsm->watches.root));
	if (!nsm->observer.fn)
		return;
	hf_link_remove(&nsm->observer.link);
	hf_task_cancel(&nsm->witness_task);
	free(nsm->witnessed);
}
