/*
 * Which client may be registered when places are few?
 *
 * recovery.max_clients bounds the registered clients, max_clients_per_address those of one
 * address. A host can give itself any number of names, and the source of a datagram can be
 * forged. So a place must not stay taken for nothing: if none is left for a new client, a
 * registered client without locks is unregistered. It loses nothing: its next lock registers
 * it again.
 *
 * Clients go in this order (enum hf_clients_rank):
 *
 *	1. registered by SM_MON, and the source may be forged
 *	2. others whose source may be forged
 *	3. other clients without a call-back
 *	4. registered by SM_MON, and the host answers
 *
 * Within a rank, the address with the most registered clients loses the client that is
 * idle longest. If a new client's address has its full part already, the new client takes
 * the place of another client at that address.
 *
 * A client stays while any of these is true:
 * - it has or may reclaim a lock;
 * - it must still be told of the server's restart (is_pinned);
 * - it has lost its connection, and the time in which it may come back runs (SMB);
 * - it has a call-back and called over TCP or from this host: it stays until it unregisters;
 * - the store does not have its registration yet, or still has its locks: after a crash of the
 *   server, locks without their client would be there.
 *
 * A client with locks cannot be unregistered, and forged datagrams can make any number of
 * such clients. So the clients that are not confirmed, the unmet, share an eighth of the
 * places, with or without locks. Beyond that a client is registered when its host has answered
 * (proto/nsm/meet.c). But a host answers whatever name a datagram gives, and a forger may name
 * a host that exists. So a host's answers confirm only a few names of its address. Further
 * names there stay unmet until they call over TCP.
 */
#include "client/clients.h"

#include <string.h>

#include "base/macros.h"
#include "loop/loop.h"

enum {
	LOOKED_AT = 16, /* of the largest addresses; maybe none of them has a client that can leave */
	UNMET_PART = 8,
	UNMET_LEAST = 32, /* but never more than half of the places */
	MAX_BY_ANSWER = 8,
};

static struct hf_clients_host *host_of(struct hf_rb_node *node)
{
	return hf_rb_entry(node, struct hf_clients_host, by_size);
}

/* Ranks */

static enum hf_clients_rank rank_of(const struct hf_client *client)
{
	if (!hf_client_is_registered(client) || !hf_client_has_nothing(client) || client->is_pinned ||
	    client->is_disconnected)
		return HF_CLIENTS_STAYS;
	if (client->callback.host)
		return client->is_certain     ? HF_CLIENTS_STAYS
		       : client->is_confirmed ? HF_CLIENTS_ANSWERED
					      : HF_CLIENTS_UNHEARD;
	return client->is_confirmed ? HF_CLIENTS_IDLE : HF_CLIENTS_UNCONFIRMED;
}

/* The unmet */

size_t hf_places_max_unmet(size_t max_registered)
{
	size_t half = (max_registered + 1) / 2;

	return HF_MAX(max_registered / UNMET_PART, HF_MIN(half, (size_t)UNMET_LEAST));
}

static enum hf_clients_standing standing_of(const struct hf_client *client)
{
	if (!hf_client_is_registered(client) || client->callback.host || client->is_certain)
		return HF_CLIENTS_UNCOUNTED;
	return client->is_confirmed ? HF_CLIENTS_BY_ANSWER : HF_CLIENTS_UNMET;
}

static void count_standing(struct hf_client *client)
{
	enum hf_clients_standing now = standing_of(client);

	if (now == (enum hf_clients_standing)client->standing)
		return;
	client->clients->n_unmet -= client->standing == HF_CLIENTS_UNMET;
	client->host->n_by_answer -= client->standing == HF_CLIENTS_BY_ANSWER;
	client->clients->n_unmet += now == HF_CLIENTS_UNMET;
	client->host->n_by_answer += now == HF_CLIENTS_BY_ANSWER;
	client->standing = (uint8_t)now;
}

/* A client with a call-back is bounded by the ranks instead. */
bool hf_places_may_confirm(const struct hf_client *client)
{
	return client->callback.host || client->host->n_by_answer < MAX_BY_ANSWER;
}

/* Leaving */

void hf_places_leave(struct hf_client *client)
{
	hf_link_remove(&client->idle_link);
	hf_link_remove(&client->idle_at_host);
	client->idle_rank = HF_CLIENTS_STAYS;
}

void hf_places_note(struct hf_client *client)
{
	struct hf_clients *clients = client->clients;
	enum hf_clients_rank rank = rank_of(client);

	count_standing(client);
	if (rank == (enum hf_clients_rank)client->idle_rank)
		return;
	hf_places_leave(client);
	if (rank == HF_CLIENTS_STAYS)
		return;
	client->idle_rank = (uint8_t)rank;
	client->idle_since = hf_loop_now(clients->options.loop);
	client->idle_mark =
		clients->options.events->mark ? clients->options.events->mark(clients->options.user) : 0;
	hf_list_push_back(&clients->idle[rank], &client->idle_link);
	hf_list_push_back(&client->host->idle[rank], &client->idle_at_host);
}

/* Addresses by size */

static bool is_smaller(const struct hf_clients_host *a, const struct hf_clients_host *b)
{
	if (a->n_registered != b->n_registered)
		return a->n_registered < b->n_registered;
	return memcmp(&a->address, &b->address, sizeof(a->address)) < 0;
}

static void insert_by_size(struct hf_clients *clients, struct hf_clients_host *host)
{
	struct hf_rb_node **link = &clients->by_size.root, *parent = NULL;

	while (*link) {
		parent = *link;
		link = is_smaller(host, host_of(parent)) ? &parent->left : &parent->right;
	}
	hf_rb_insert(&clients->by_size, &host->by_size, parent, link, NULL);
}

void hf_places_init_host(struct hf_clients_host *host)
{
	for (unsigned int i = 0; i < HF_CLIENTS_N_RANKS; i++)
		hf_list_init(&host->idle[i]);
}

void hf_places_count(struct hf_client *client, bool is_more)
{
	struct hf_clients *clients = client->clients;
	struct hf_clients_host *host = client->host;

	if (host->n_registered)
		hf_rb_erase(&clients->by_size, &host->by_size, NULL);
	host->n_registered += is_more ? 1 : (size_t)-1;
	clients->n_registered += is_more ? 1 : (size_t)-1;
	if (host->n_registered)
		insert_by_size(clients, host);
	count_standing(client);
}

/* The client that leaves. The lists are also in the order of idle_mark: if the first client cannot leave yet,
 * no other can. */

static struct hf_client *if_may_leave(struct hf_clients *clients, struct hf_client *client)
{
	const struct hf_clients_options *options = &clients->options;

	if (!options->events->may_leave || options->events->may_leave(options->user, client))
		return client;
	return NULL;
}

static struct hf_client *first_at(struct hf_clients *clients, struct hf_clients_host *host, unsigned int rank)
{
	struct hf_link *link = hf_list_first(&host->idle[rank]);

	return link ? if_may_leave(clients, hf_list_entry(link, struct hf_client, idle_at_host)) : NULL;
}

static struct hf_client *first_of_all(struct hf_clients *clients, unsigned int rank)
{
	struct hf_link *link = hf_list_first(&clients->idle[rank]);

	return link ? if_may_leave(clients, hf_list_entry(link, struct hf_client, idle_link)) : NULL;
}

/* Looks at the largest addresses first, then at all. */
static struct hf_client *first_of_largest(struct hf_clients *clients, unsigned int rank)
{
	struct hf_rb_node *node = hf_rb_last(&clients->by_size);

	for (unsigned int n = 0; node && n < LOOKED_AT; n++, node = hf_rb_prev(node)) {
		struct hf_client *client = first_at(clients, host_of(node), rank);

		if (client)
			return client;
	}
	return first_of_all(clients, rank);
}

/* A list may be out of date. A client in the wrong list is moved, and the search goes on. */
static struct hf_client *find_of_rank(struct hf_clients *clients, struct hf_clients_host *host,
				      unsigned int rank)
{
	struct hf_client *client;

	while ((client = host ? first_at(clients, host, rank) : first_of_largest(clients, rank))) {
		hf_places_note(client);
		if (client->idle_rank == rank)
			return client;
	}
	return NULL;
}

static struct hf_client *find_leaving(struct hf_clients *clients, struct hf_clients_host *host)
{
	struct hf_client *client = NULL;

	for (unsigned int rank = 0; !client && rank < HF_CLIENTS_N_RANKS; rank++)
		client = find_of_rank(clients, host, rank);
	return client;
}

static void say_evicted(struct hf_clients *clients, const struct hf_client *client)
{
	uint64_t n_suppressed;
	char quoted[256];

	if (!hf_log_limit_allow(&clients->evictions, hf_loop_now(clients->options.loop), &n_suppressed))
		return;
	hf_log_info("a registered client without locks makes room for a new one",
		    "client=%s is_confirmed=%s registered=%zu at_its_address=%zu more=%llu",
		    hf_log_quote(quoted, sizeof(quoted), client->id, strlen(client->id)),
		    client->is_confirmed ? "true" : "false", clients->n_registered,
		    client->host->n_registered, (unsigned long long)n_suppressed);
}

/* Why there is no place. */
enum shortage {
	OF_UNMET,
	AT_ADDRESS,
	OF_ALL,
};

/* The refused client is only told that there are no locks. The log tells the operator why. */
static void say_refused(struct hf_clients *clients, const struct hf_client *client, enum shortage what)
{
	static const char *const sentences[] = {
		[OF_UNMET] = "a client over UDP is refused: too many clients are registered whose hosts have "
			     "not answered; over TCP it is served",
		[AT_ADDRESS] = "a client is refused: recovery.max_clients_per_address clients at its address "
			       "are registered, and each has locks",
		[OF_ALL] = "a client is refused: recovery.max_clients clients are registered, and each has "
			   "locks",
	};
	static const enum hf_limit limits[] = {
		[OF_UNMET] = HF_LIMIT_CLIENTS_UNCONFIRMED,
		[AT_ADDRESS] = HF_LIMIT_CLIENTS_PER_ADDRESS,
		[OF_ALL] = HF_LIMIT_CLIENTS,
	};
	uint64_t n_suppressed;
	char quoted[256];

	clients->refused[limits[what]]++;
	if (!hf_log_limit_allow(&clients->refusals, hf_loop_now(clients->options.loop), &n_suppressed))
		return;
	hf_log_quote(quoted, sizeof(quoted), client->id, strlen(client->id));
	hf_log_warn(sentences[what],
		    "client=%s registered=%zu max_clients=%zu at_its_address=%zu max_clients_per_address=%zu "
		    "unconfirmed=%zu more=%llu",
		    quoted, clients->n_registered, clients->options.max_registered,
		    client->host->n_registered, clients->options.max_per_address, clients->n_unmet,
		    (unsigned long long)n_suppressed);
}

/* A loaded client is not refused: its locks are promised. */
static bool is_one_unmet_too_many(const struct hf_client *client)
{
	return !client->is_confirmed && !client->callback.host && !client->locking.n_unreclaimed &&
	       client->clients->n_unmet >= client->clients->max_unmet;
}

/* A client whose locks are not monitored is never registered, but it needs memory, too. */
static bool are_unregistered_too_many(const struct hf_clients *clients)
{
	return clients->n - clients->n_registered > clients->max_unmet;
}

bool hf_client_may_be_unmet(struct hf_client *client)
{
	struct hf_clients *clients = client->clients;

	if (client->is_confirmed || hf_client_is_registered(client))
		return true;
	return !are_unregistered_too_many(clients) &&
	       (!is_one_unmet_too_many(client) || find_of_rank(clients, NULL, HF_CLIENTS_UNCONFIRMED));
}

void hf_clients_count_refused_unmet(struct hf_clients *clients)
{
	clients->refused[HF_LIMIT_CLIENTS_UNCONFIRMED]++;
}

static bool make_leave(struct hf_clients *clients, struct hf_client *leaving)
{
	if (!leaving)
		return false;
	say_evicted(clients, leaving);
	clients->n_evicted++;
	hf_client_unregister(leaving);
	return true;
}

bool hf_places_make_room(struct hf_client *client)
{
	struct hf_clients *clients = client->clients;
	bool is_part;

	if (is_one_unmet_too_many(client) &&
	    !make_leave(clients, find_of_rank(clients, NULL, HF_CLIENTS_UNCONFIRMED))) {
		say_refused(clients, client, OF_UNMET);
		return false;
	}
	is_part = client->host->n_registered >= clients->options.max_per_address;
	if (!is_part && clients->n_registered < clients->options.max_registered)
		return true;
	if (make_leave(clients, find_leaving(clients, is_part ? client->host : NULL)))
		return true;
	say_refused(clients, client, is_part ? AT_ADDRESS : OF_ALL);
	return false;
}

/* A registration with a call-back stays until its place is needed: its program makes it only once. */
void hf_places_sweep(struct hf_clients *clients, uint64_t limit)
{
	for (unsigned int rank = HF_CLIENTS_UNCONFIRMED; rank <= HF_CLIENTS_IDLE; rank++) {
		struct hf_client *client;

		while ((client = first_of_all(clients, rank)) && client->idle_since <= limit) {
			hf_places_note(client);
			if (client->idle_rank == rank)
				hf_client_unregister(client);
		}
	}
}

void hf_clients_show_limits(const struct hf_clients *clients, struct hf_limit_use uses[HF_N_LIMITS])
{
	struct hf_rb_node *largest = hf_rb_last(&clients->by_size); /* NULL: no address has any client */
	const struct hf_clients_host *host = largest ? host_of(largest) : NULL;

	uses[HF_LIMIT_CLIENTS] = (struct hf_limit_use){ .used = clients->n_registered,
							.max = clients->options.max_registered };
	uses[HF_LIMIT_CLIENTS_PER_ADDRESS] = (struct hf_limit_use){ .max = clients->options.max_per_address };
	if (host) {
		uses[HF_LIMIT_CLIENTS_PER_ADDRESS].used = host->n_registered;
		uses[HF_LIMIT_CLIENTS_PER_ADDRESS].by = host->address;
	}
	uses[HF_LIMIT_CLIENTS_UNCONFIRMED] =
		(struct hf_limit_use){ .used = clients->n_unmet, .max = clients->max_unmet };
	for (size_t i = HF_LIMIT_CLIENTS; i <= HF_LIMIT_CLIENTS_UNCONFIRMED; i++)
		uses[i].refused = clients->refused[i];
}
