/*
 * Which local registrations watch a peer by its name? They have no address of the peer. A
 * notice finds them by the name in it. One program may watch thousands of peers, and thousands
 * may watch one.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
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

void hf_nsm_unwatch(struct hf_nsm *nsm, struct hf_client *client)
{
	struct watch *watch = find(nsm, client);

	if (watch)
		forget(nsm, watch);
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
	return hf_trace(watch_restored(nsm));
}

void hf_nsm_watches_deinit(struct hf_nsm *nsm)
{
	while (nsm->watches.root)
		forget(nsm, watch_of(nsm->watches.root));
}
