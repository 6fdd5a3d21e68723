/*
 * The set of clients. It has three hash tables: by (protocol, address, name), by id, and by
 * address. All have a secret key, because peers choose the names. Thousands of clients may
 * share an address, so a list connects those of one address. Only a function that needs all of
 * them walks it. Thousands may share a name, too, so the index by name is a
 * tree: a client leaves it in a time that does not grow with the clients of its name.
 *
 * A link-local address belongs to an interface. The kernel gives an interface another number when
 * it is made again; the name stays. So the id has the name, the hashes leave the number out, and
 * an address with an unknown number is searched for by the name. A stored client whose interface
 * is not there has a number that no interface has, until the interface is back.
 */
#include "client/clients.h"

#include <assert.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/host_name.h"
#include "loop/loop.h"

#define SWEEP_NS (10 * HF_NS_PER_S)
#define QUIET_S  60

#define ABSENT (UINT32_C(1) << 31) /* the kernel's numbers of interfaces are positive ints */

static struct hf_client *client_of(struct hf_rb_node *node)
{
	return hf_rb_entry(node, struct hf_client, by_serial);
}

/* Windows */

int hf_clients_set_window(struct hf_clients *clients, const char *protocol, uint64_t window_ns)
{
	for (size_t i = 0; i < clients->n_windows; i++)
		if (strcmp(clients->windows[i].protocol, protocol) == 0) {
			clients->windows[i].window_ns = window_ns;
			return 0;
		}
	if (clients->n_windows == HF_CLIENTS_MAX_WINDOWS)
		return hf_trace(-ENOSPC);
	clients->windows[clients->n_windows++] = (struct hf_clients_window_rule){ protocol, window_ns };
	return 0;
}

uint64_t hf_clients_window(const struct hf_clients *clients, const char *protocol)
{
	for (size_t i = 0; i < clients->n_windows; i++)
		if (strcmp(clients->windows[i].protocol, protocol) == 0)
			return clients->windows[i].window_ns;
	return clients->options.window_ns;
}

/* Keys */

static uint64_t hash_id(const struct hf_clients *clients, struct hf_bytes id)
{
	return hf_siphash(&clients->options.key, id.data, id.len);
}

static struct hf_addr host_of(const struct hf_addr *address)
{
	struct hf_addr host = *address;

	host.port = 0;
	return host;
}

static uint64_t hash_address(const struct hf_clients *clients, const struct hf_addr *host)
{
	return hf_siphash(&clients->options.key, host->ip, sizeof(host->ip));
}

static uint64_t hash_key(const struct hf_clients *clients, const struct hf_addr *host, struct hf_bytes name)
{
	uint64_t parts[2] = { hash_address(clients, host),
			      hf_siphash(&clients->options.key, name.data, name.len) };

	return hf_siphash(&clients->options.key, parts, sizeof(parts));
}

static char *make_id(const char *protocol, const struct hf_addr *address, struct hf_bytes name)
{
	char text[HF_ADDR_TEXT], *id;

	hf_addr_format(address, text, sizeof(text));
	if (asprintf(&id, "%s:%s:%.*s", protocol, text, (int)name.len, (const char *)name.data) < 0)
		return NULL;
	return id;
}

/* The name in @id, which is "protocol:address:name"; NULL: @id is not of this address. Sets @interface if the
 * address has one; interfaces have no colon in their names. */
static const char *split_id(const char *protocol, const struct hf_addr *address, const char *id,
			    char interface[IF_NAMESIZE])
{
	char prefix[HF_ADDR_TEXT + 40], text[HF_ADDR_TEXT];
	struct hf_addr bare = host_of(address);
	int n;

	bare.scope = 0;
	n = snprintf(prefix, sizeof(prefix), "%s:%s", protocol, hf_addr_format(&bare, text, sizeof(text)));
	if (n < 0 || strncmp(id, prefix, (size_t)n) != 0)
		return NULL;
	id += n;
	if (*id == '%') {
		size_t len = strcspn(++id, ":");

		if (len == 0 || len >= IF_NAMESIZE)
			return NULL;
		snprintf(interface, IF_NAMESIZE, "%.*s", (int)len, id);
		id += len;
	}
	return *id == ':' ? id + 1 : NULL;
}

/* Finding */

struct hf_client *hf_clients_find_id(struct hf_clients *clients, struct hf_bytes id)
{
	hf_hash_for_each(node, &clients->by_id, hash_id(clients, id)) {
		struct hf_client *client = hf_container_of(node, struct hf_client, by_id);

		if (hf_bytes_equal(hf_bytes_of_str(client->id), id))
			return hf_client_ref(client);
	}
	return NULL;
}

static uint32_t number_of(const struct hf_clients *clients, const char *interface)
{
	uint32_t number = if_nametoindex(interface);

	return number ? number
		      : ABSENT | (uint32_t)hf_siphash(&clients->options.key, interface, strlen(interface));
}

static void set_number(struct hf_clients_host *host, uint32_t number)
{
	if (host->address.scope == number)
		return;
	host->address.scope = number;
	hf_list_for_each(pos, &host->clients) {
		struct hf_client *client = hf_list_entry(pos, struct hf_client, host_link);

		client->address.scope = number;
		if (client->local.scope)
			client->local.scope = number;
	}
}

/* The interface of @address had another number when the host was met. */
static struct hf_clients_host *renumbered_host(const struct hf_clients *clients,
					       const struct hf_addr *address)
{
	struct hf_addr same = *address;
	char name[IF_NAMESIZE];

	if (!address->scope || !if_indextoname(address->scope, name))
		return NULL;
	hf_hash_for_each(node, &clients->hosts, hash_address(clients, address)) {
		struct hf_clients_host *host = hf_container_of(node, struct hf_clients_host, node);

		same.scope = host->address.scope;
		if (!hf_addr_equal(&host->address, &same) || strcmp(host->interface, name) != 0)
			continue;
		set_number(host, address->scope);
		return host;
	}
	return NULL;
}

static struct hf_clients_host *find_host(const struct hf_clients *clients, const struct hf_addr *address)
{
	hf_hash_for_each(node, &clients->hosts, hash_address(clients, address)) {
		struct hf_clients_host *host = hf_container_of(node, struct hf_clients_host, node);

		if (hf_addr_equal(&host->address, address))
			return host;
	}
	return renumbered_host(clients, address);
}

static struct hf_client *find_key(struct hf_clients *clients, const char *protocol,
				  const struct hf_addr *host, struct hf_bytes name)
{
	hf_hash_for_each(node, &clients->by_key, hash_key(clients, host, name)) {
		struct hf_client *client = hf_container_of(node, struct hf_client, by_key);

		if (strcmp(client->protocol, protocol) == 0 && hf_addr_equal(&client->address, host) &&
		    hf_bytes_equal(hf_client_name(client), name))
			return hf_client_ref(client);
	}
	return NULL;
}

struct hf_client *hf_clients_find(struct hf_clients *clients, const char *protocol,
				  const struct hf_addr *address, struct hf_bytes name)
{
	struct hf_addr host = host_of(address);
	struct hf_client *client = find_key(clients, protocol, &host, name);

	if (!client && renumbered_host(clients, &host))
		client = find_key(clients, protocol, &host, name);
	return client;
}

void hf_client_renumber(struct hf_client *client)
{
	struct hf_clients_host *host = client->host;

	if (host->interface[0])
		set_number(host, number_of(client->clients, host->interface));
}

bool hf_client_is_alone(const struct hf_client *client)
{
	const struct hf_list *at_host = &client->host->clients;

	return at_host->head.next == at_host->head.prev;
}

bool hf_client_is_neighbour(const struct hf_client *client, const struct hf_client *other)
{
	return other != client && strcmp(other->protocol, client->protocol) == 0 && other->has_connected &&
	       (other->is_privileged || !client->is_privileged);
}

bool hf_client_had_neighbour(const struct hf_client *client)
{
	return client->host->has_lost_one;
}

struct hf_client *hf_clients_next_at(struct hf_clients *clients, const struct hf_addr *address,
				     struct hf_client *after)
{
	struct hf_addr wanted = host_of(address);
	struct hf_clients_host *host = after ? after->host : find_host(clients, &wanted);
	struct hf_client *found = NULL;
	struct hf_link *next;

	if (host) {
		next = after ? after->host_link.next : host->clients.head.next;
		if (next != &host->clients.head)
			found = hf_client_ref(hf_list_entry(next, struct hf_client, host_link));
	}
	hf_client_unref(after);
	return found;
}

static struct hf_client *named(struct hf_rb_node *node)
{
	return hf_rb_entry(node, struct hf_client, by_name);
}

static struct hf_rb_node *first_named(const struct hf_clients *clients, uint64_t hash)
{
	struct hf_rb_node *node = clients->by_name.root, *best = NULL;

	while (node) {
		if (named(node)->name_hash >= hash) {
			best = node;
			node = node->left;
		} else {
			node = node->right;
		}
	}
	return best;
}

struct hf_client *hf_clients_next_named(struct hf_clients *clients, struct hf_bytes name,
					struct hf_client *after)
{
	uint64_t hash = hf_host_name_hash(&clients->options.key, name);
	struct hf_rb_node *node = after ? hf_rb_next(&after->by_name) : first_named(clients, hash);
	struct hf_client *found = node && named(node)->name_hash == hash ? hf_client_ref(named(node)) : NULL;

	hf_client_unref(after);
	return found;
}

struct hf_client *hf_clients_next(struct hf_clients *clients, uint64_t serial)
{
	struct hf_rb_node *node = clients->all.root, *best = NULL;

	while (node) {
		if (client_of(node)->serial > serial) {
			best = node;
			node = node->left;
		} else {
			node = node->right;
		}
	}
	return best ? hf_client_ref(client_of(best)) : NULL;
}

/* Making and freeing */

static void client_free(struct hf_client *client)
{
	free(client->callback.host);
	free(client->mon_name);
	free(client->other_locals);
	free(client->identity);
	free(client->id);
	free(client->name);
	free(client);
}

static void on_window_end(struct hf_timer *timer)
{
	struct hf_client *client = hf_container_of(timer, struct hf_client, window);
	const struct hf_clients_options *options = &client->clients->options;

	if (client->is_disconnected)
		hf_client_crash(client);
	else if (options->events->window_over)
		options->events->window_over(options->user, client);
	/* the client may be freed here */
}

static struct hf_clients_host *get_host(struct hf_clients *clients, const struct hf_addr *address)
{
	struct hf_clients_host *host = find_host(clients, address);

	if (host)
		return host;
	host = calloc(1, sizeof(*host));
	if (!host)
		return NULL;
	host->address = *address;
	hf_list_init(&host->clients);
	hf_places_init_host(host);
	hf_hashtable_insert(&clients->hosts, &host->node, hash_address(clients, address));
	return host;
}

static void put_host(struct hf_clients *clients, struct hf_clients_host *host)
{
	if (!hf_list_is_empty(&host->clients))
		return;
	hf_hashtable_remove(&clients->hosts, &host->node);
	free(host);
}

/* Behind those of the same name: its serial is the highest. */
static void insert_by_name(struct hf_clients *clients, struct hf_client *client)
{
	struct hf_rb_node *parent = NULL, **link = &clients->by_name.root;

	while (*link) {
		parent = *link;
		link = client->name_hash < named(parent)->name_hash ? &parent->left : &parent->right;
	}
	hf_rb_insert(&clients->by_name, &client->by_name, parent, link, NULL);
}

/* @id: of a stored client. */
static struct hf_client *client_new(struct hf_clients *clients, const char *protocol,
				    const struct hf_addr *address, struct hf_bytes name, const char *id)
{
	const struct hf_clients_options *options = &clients->options;
	struct hf_client *client = calloc(1, sizeof(*client) + options->recovery_size);

	if (!client)
		return NULL;
	client->clients = clients;
	client->protocol = protocol;
	client->address = host_of(address);
	client->name = strndup((const char *)name.data, name.len);
	client->name_len = name.len;
	client->id = id ? strdup(id) : make_id(protocol, &client->address, name);
	client->host = get_host(clients, &client->address);
	if (!client->name || !client->id || !client->host) {
		if (client->host)
			put_host(clients, client->host);
		client_free(client);
		return NULL;
	}
	(void)split_id(protocol, &client->address, client->id, client->host->interface);
	client->serial = ++clients->serial;
	client->met_at = hf_loop_now(clients->options.loop);
	client->recovery = (struct hf_recovery_client *)(client + 1);
	hf_link_init(&client->idle_link);
	hf_link_init(&client->idle_at_host);
	client->idle_rank = HF_CLIENTS_STAYS;
	hf_timer_init(&client->window, clients->options.loop, on_window_end);
	hf_lock_client_init(clients->options.locks, &client->locking);
	hf_lock_client_join(&client->locking, &client->host->group);
	hf_hashtable_insert(&clients->by_id, &client->by_id, hash_id(clients, hf_bytes_of_str(client->id)));
	hf_hashtable_insert(&clients->by_key, &client->by_key, hash_key(clients, &client->address, name));
	hf_list_push_back(&client->host->clients, &client->host_link);
	hf_rb_append(&clients->all, &client->by_serial); /* serials only rise */
	client->name_hash = hf_host_name_hash(&options->key, name);
	insert_by_name(clients, client);
	clients->n++;
	if (options->events->made)
		options->events->made(options->user, client);
	return client;
}

int hf_clients_get(struct hf_client **clientp, struct hf_clients *clients, const char *protocol,
		   const struct hf_addr *address, struct hf_bytes name)
{
	struct hf_client *client;

	if (!hf_client_name_is_good(name))
		return -EINVAL;
	client = hf_clients_find(clients, protocol, address, name);
	if (!client) {
		client = client_new(clients, protocol, address, name, NULL);
		if (!client)
			return hf_trace(-ENOMEM);
		hf_client_ref(client);
	}
	*clientp = client;
	return 0;
}

int hf_clients_get_stored(struct hf_client **clientp, struct hf_clients *clients, const char *protocol,
			  const struct hf_addr *address, const char *id)
{
	struct hf_addr host = host_of(address);
	char interface[IF_NAMESIZE] = "";
	const char *name = split_id(protocol, address, id, interface);
	struct hf_client *client;

	if (!name || !hf_client_name_is_good(hf_bytes_of_str(name)))
		return -EINVAL;
	if (interface[0])
		host.scope = number_of(clients, interface);
	client = find_key(clients, protocol, &host, hf_bytes_of_str(name));
	if (!client) {
		client = client_new(clients, protocol, &host, hf_bytes_of_str(name), id);
		if (!client)
			return hf_trace(-ENOMEM);
		hf_client_ref(client);
	}
	*clientp = client;
	return 0;
}

void hf_clients_forget(struct hf_client *client)
{
	struct hf_clients *clients = client->clients;

	hf_timer_stop(&client->window);
	if (hf_client_is_registered(client)) { /* the set of clients is being freed */
		client->registered_at = 0;
		hf_places_count(client, false);
	}
	hf_places_leave(client);
	hf_link_remove(&client->host_link);
	put_host(clients, client->host);
	hf_rb_erase(&clients->all, &client->by_serial, NULL);
	hf_rb_erase(&clients->by_name, &client->by_name, NULL);
	hf_hashtable_remove(&clients->by_id, &client->by_id);
	hf_hashtable_remove(&clients->by_key, &client->by_key);
	clients->n--;
	client_free(client);
}

/* Clients without locks are unregistered after a while, by a timer, not while a lock is served. */
static void on_sweep(struct hf_timer *timer)
{
	struct hf_clients *clients = hf_container_of(timer, struct hf_clients, sweep);
	uint64_t now = hf_loop_now(clients->options.loop);

	if (now >= clients->options.idle_ns)
		hf_places_sweep(clients, now - clients->options.idle_ns);
	hf_timer_start(timer, SWEEP_NS);
}

void hf_clients_set_max(struct hf_clients *clients, size_t max_registered, size_t max_per_address)
{
	clients->options.max_registered = max_registered;
	clients->options.max_per_address = max_per_address ? max_per_address : (max_registered + 1) / 2;
	clients->max_unmet = hf_places_max_unmet(max_registered);
}

int hf_clients_new(struct hf_clients **clientsp, const struct hf_clients_options *options)
{
	struct hf_clients *clients = calloc(1, sizeof(*clients));
	int r;

	if (!clients)
		return hf_trace(-ENOMEM);
	clients->options = *options;
	for (unsigned int i = 0; i < HF_CLIENTS_N_RANKS; i++)
		hf_list_init(&clients->idle[i]);
	clients->refusals = clients->evictions = clients->drops = (struct hf_log_limit)HF_LOG_LIMIT(QUIET_S);
	hf_clients_set_max(clients, options->max_registered, options->max_per_address);
	hf_timer_init(&clients->sweep, options->loop, on_sweep);
	r = hf_hashtable_init(&clients->by_id);
	if (r == 0)
		r = hf_hashtable_init(&clients->by_key);
	if (r == 0)
		r = hf_hashtable_init(&clients->hosts);
	if (r == 0 && options->idle_ns)
		r = hf_timer_start(&clients->sweep, SWEEP_NS);
	if (r < 0) {
		hf_clients_free(clients);
		return hf_trace(r);
	}
	*clientsp = clients;
	return 0;
}

struct hf_clients *hf_clients_free(struct hf_clients *clients)
{
	if (!clients)
		return NULL;
	hf_timer_stop(&clients->sweep);
	while (clients->all.root) {
		assert(client_of(clients->all.root)->n_refs == 0);
		hf_clients_forget(client_of(clients->all.root));
	}
	hf_hashtable_deinit(&clients->by_id);
	hf_hashtable_deinit(&clients->by_key);
	hf_hashtable_deinit(&clients->hosts);
	free(clients);
	return NULL;
}

size_t hf_clients_count(const struct hf_clients *clients)
{
	return clients->n;
}

size_t hf_clients_count_registered(const struct hf_clients *clients)
{
	return clients->n_registered;
}

size_t hf_clients_count_unmet(const struct hf_clients *clients)
{
	return clients->n_unmet;
}

uint64_t hf_clients_count_evicted(const struct hf_clients *clients)
{
	return clients->n_evicted;
}
