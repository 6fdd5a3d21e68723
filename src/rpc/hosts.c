/*
 * Hosts are in a hash table, and in one list for each number of open connections. So the host
 * with the most is found without a search. When a connection comes or goes, its host moves by
 * one list, and so does the highest list in use. A connection stops counting when its host is
 * chosen to give it up.
 */
#include "rpc/hosts.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hashtable.h"
#include "base/macros.h"
#include "rpc/contacts.h"

struct hf_host {
	struct hf_hash_node node; /* in hosts->by_addr */
	struct hf_link rank_link; /* in hosts->ranks[n_left()] */
	struct hf_addr addr;      /* its port is 0 */
	size_t n;                 /* connections, also closed ones with calls under way */
	size_t n_open;
	size_t n_chosen; /* connections of these that lanes must close, and have not closed yet */
	size_t n_refs;   /* connections and choices */
	size_t n_parts;
	struct hf_host_part parts[];
};

#define N_SENDERS 64 /* a power of two */

/* An address that sent a datagram lately. */
struct sender {
	struct hf_addr addr; /* its port is 0; its family is 0: there is none */
	uint64_t at;
};

struct hf_hosts {
	struct hf_siphash_key key; /* (c) */
	size_t max;                /* (c) connections of one host */
	pthread_mutex_t lock;
	struct hf_hashtable by_addr;      /* under lock */
	struct hf_contacts *contacts;     /* under lock; NULL: none are remembered */
	struct sender senders[N_SENDERS]; /* of home: a datagram of one of them takes no lock */
	size_t top;                       /* under lock: the highest rank with a host, or 0 */
	struct hf_list ranks[];           /* under lock: hosts by n_left(), the longest there first */
};

int hf_hosts_new(struct hf_hosts **hostsp, const struct hf_siphash_key *key, size_t max_per_host,
		 size_t max_contacts)
{
	struct hf_hosts *hosts = calloc(1, sizeof(*hosts) + (max_per_host + 1) * sizeof(hosts->ranks[0]));

	assert(max_per_host > 0);
	if (!hosts)
		return hf_trace(-ENOMEM);
	if (hf_hashtable_init(&hosts->by_addr) < 0) {
		free(hosts);
		return hf_trace(-ENOMEM);
	}
	if (max_contacts && hf_contacts_new(&hosts->contacts, key, max_contacts) < 0) {
		hf_hashtable_deinit(&hosts->by_addr);
		free(hosts);
		return hf_trace(-ENOMEM);
	}
	hosts->key = *key;
	hosts->max = max_per_host;
	for (size_t i = 0; i <= max_per_host; i++)
		hf_list_init(&hosts->ranks[i]);
	pthread_mutex_init(&hosts->lock, NULL);
	*hostsp = hosts;
	return 0;
}

struct hf_hosts *hf_hosts_free(struct hf_hosts *hosts)
{
	if (!hosts)
		return NULL;
	assert(hosts->by_addr.n == 0); /* every connection has left */
	hf_hashtable_deinit(&hosts->by_addr);
	hf_contacts_free(hosts->contacts);
	pthread_mutex_destroy(&hosts->lock);
	free(hosts);
	return NULL;
}

static struct hf_host *new_host(const struct hf_addr *addr, size_t n_parts)
{
	struct hf_host *host = calloc(1, sizeof(*host) + n_parts * sizeof(host->parts[0]));

	if (!host)
		return NULL;
	host->addr = *addr;
	host->n_parts = n_parts;
	hf_link_init(&host->rank_link);
	for (size_t i = 0; i < n_parts; i++) {
		struct hf_host_part *part = &host->parts[i];

		part->host = host;
		hf_list_init(&part->fresh);
		hf_list_init(&part->proven);
		hf_list_init(&part->tired);
		hf_list_init(&part->wanting);
		hf_list_init(&part->securing);
		hf_link_init(&part->tired_link);
		hf_link_init(&part->want_link);
		hf_link_init(&part->charged_link);
	}
	return host;
}

static struct hf_host *find(const struct hf_hosts *hosts, const struct hf_addr *addr, uint64_t hash)
{
	hf_hash_for_each(node, &hosts->by_addr, hash) {
		struct hf_host *host = hf_container_of(node, struct hf_host, node);

		if (hf_addr_equal(&host->addr, addr))
			return host;
	}
	return NULL;
}

/* Under the lock. */
static void unref(struct hf_hosts *hosts, struct hf_host *host)
{
	if (--host->n_refs)
		return;
	assert(!host->n && !host->n_open);
	hf_hashtable_remove(&hosts->by_addr, &host->node);
	hf_link_remove(&host->rank_link);
	free(host);
}

/* A client may close a chosen connection before the lane does. */
static size_t n_left(const struct hf_host *host)
{
	return host->n_open > host->n_chosen ? host->n_open - host->n_chosen : 0;
}

static void update_rank(struct hf_hosts *hosts, struct hf_host *host)
{
	size_t rank = n_left(host);

	hf_link_remove(&host->rank_link);
	hf_list_push_back(&hosts->ranks[rank], &host->rank_link);
	if (rank > hosts->top)
		hosts->top = rank;
	while (hosts->top && hf_list_is_empty(&hosts->ranks[hosts->top]))
		hosts->top--;
}

/* Connections */

struct hf_host *hf_hosts_enter(struct hf_hosts *hosts, const struct hf_addr *addr, size_t n_parts)
{
	struct hf_addr key = *addr;
	struct hf_host *host;
	uint64_t hash;

	key.port = 0;
	hash = hf_siphash(&hosts->key, &key, sizeof(key));
	pthread_mutex_lock(&hosts->lock);
	host = find(hosts, &key, hash);
	if (!host && (host = new_host(&key, n_parts)))
		hf_hashtable_insert(&hosts->by_addr, &host->node, hash);
	if (host && host->n < hosts->max) {
		host->n++;
		host->n_refs++;
		host->n_open++;
		update_rank(hosts, host);
	} else {
		host = NULL;
	}
	pthread_mutex_unlock(&hosts->lock);
	return host;
}

static uint64_t heard_of(const struct hf_host *host)
{
	uint64_t heard_at = 0;

	for (size_t i = 0; i < host->n_parts; i++) {
		uint64_t at = atomic_load_explicit(&host->parts[i].heard_at, memory_order_relaxed);

		heard_at = HF_MAX(heard_at, at);
	}
	return heard_at;
}

void hf_hosts_close(struct hf_hosts *hosts, struct hf_host *host, uint64_t now)
{
	pthread_mutex_lock(&hosts->lock);
	assert(host->n_open > 0);
	host->n_open--;
	update_rank(hosts, host);
	if (!host->n_open && hosts->contacts)
		hf_contacts_note(hosts->contacts, &host->addr, now, heard_of(host));
	pthread_mutex_unlock(&hosts->lock);
}

void hf_hosts_leave(struct hf_hosts *hosts, struct hf_host *host)
{
	pthread_mutex_lock(&hosts->lock);
	assert(host->n > 0);
	host->n--;
	unref(hosts, host);
	pthread_mutex_unlock(&hosts->lock);
}

size_t hf_hosts_most(struct hf_hosts *hosts, struct hf_addr *addrp)
{
	size_t most;

	*addrp = (struct hf_addr){ 0 };
	pthread_mutex_lock(&hosts->lock);
	most = hosts->top;
	if (most)
		*addrp = hf_list_entry(hf_list_first(&hosts->ranks[most]), struct hf_host, rank_link)->addr;
	pthread_mutex_unlock(&hosts->lock);
	return most;
}

/* Contacts */

/* Two addresses may have the same place: then the latest sender has it. */
static size_t place_of(const struct hf_addr *addr)
{
	uint64_t halves[2];

	memcpy(halves, addr->ip, sizeof(halves));
	return (size_t)(((halves[0] ^ halves[1]) * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (N_SENDERS - 1);
}

void hf_hosts_note(struct hf_hosts *hosts, const struct hf_addr *addr, uint64_t now)
{
	struct sender *sender = &hosts->senders[place_of(addr)];

	if (HF_UNLIKELY(!hf_addr_same_host(&sender->addr, addr))) {
		if (sender->addr.family) {
			pthread_mutex_lock(&hosts->lock);
			hf_contacts_note(hosts->contacts, &sender->addr, sender->at, sender->at);
			pthread_mutex_unlock(&hosts->lock);
		}
		sender->addr = *addr;
		sender->addr.port = 0;
	}
	sender->at = now;
}

static uint64_t sent_at(const struct hf_hosts *hosts, const struct hf_addr *addr)
{
	const struct sender *sender = &hosts->senders[place_of(addr)];

	return hf_addr_same_host(&sender->addr, addr) ? sender->at : 0;
}

uint64_t hf_hosts_last_contact(struct hf_hosts *hosts, const struct hf_addr *addr, uint64_t now)
{
	struct hf_addr key = *addr;
	const struct hf_host *host;
	uint64_t last;

	key.port = 0;
	pthread_mutex_lock(&hosts->lock);
	host = find(hosts, &key, hf_siphash(&hosts->key, &key, sizeof(key)));
	last = host && host->n_open ? now : hf_contacts_last(hosts->contacts, &key);
	pthread_mutex_unlock(&hosts->lock);
	return HF_MAX(last, sent_at(hosts, addr));
}

uint64_t hf_hosts_last_heard(struct hf_hosts *hosts, const struct hf_addr *addr)
{
	struct hf_addr key = *addr;
	const struct hf_host *host;
	uint64_t last;

	key.port = 0;
	pthread_mutex_lock(&hosts->lock);
	host = find(hosts, &key, hf_siphash(&hosts->key, &key, sizeof(key)));
	last = hf_contacts_heard(hosts->contacts, &key);
	if (host)
		last = HF_MAX(last, heard_of(host));
	pthread_mutex_unlock(&hosts->lock);
	return HF_MAX(last, sent_at(hosts, addr));
}

void hf_hosts_show_contacts(struct hf_hosts *hosts, struct hf_limit_use *use)
{
	pthread_mutex_lock(&hosts->lock);
	if (hosts->contacts)
		hf_contacts_show_limit(hosts->contacts, use);
	pthread_mutex_unlock(&hosts->lock);
}

struct hf_host_part *hf_host_part(struct hf_host *host, size_t lane)
{
	assert(lane < host->n_parts);
	return &host->parts[lane];
}

/* Choice */

static size_t choose_lane(const struct hf_host *host)
{
	size_t most_fresh = 0, most_open = 0, best = 0;

	for (size_t i = 0; i < host->n_parts; i++) {
		size_t n_fresh = atomic_load_explicit(&host->parts[i].n_fresh, memory_order_relaxed);
		size_t n_open = atomic_load_explicit(&host->parts[i].n_open, memory_order_relaxed);
		size_t n_chosen = host->parts[i].n_chosen;

		n_fresh -= HF_MIN(n_fresh, n_chosen);
		n_open -= HF_MIN(n_open, n_chosen);
		if (n_fresh > most_fresh || (n_fresh == most_fresh && n_open > most_open)) {
			most_fresh = n_fresh;
			most_open = n_open;
			best = i;
		}
	}
	return best;
}

bool hf_hosts_choose(struct hf_hosts *hosts, const struct hf_host *newcomer, struct hf_host_choice *choicep)
{
	struct hf_host *host = NULL;

	pthread_mutex_lock(&hosts->lock);
	if (hosts->top) {
		host = hf_list_entry(hf_list_first(&hosts->ranks[hosts->top]), struct hf_host, rank_link);
		*choicep = (struct hf_host_choice){
			.host = host,
			.lane = choose_lane(host),
			.has_more = newcomer && n_left(host) > n_left(newcomer),
		};
		host->n_refs++;
		host->n_chosen++;
		host->parts[choicep->lane].n_chosen++;
		update_rank(hosts, host);
	}
	pthread_mutex_unlock(&hosts->lock);
	return host != NULL;
}

void hf_hosts_end_choice(struct hf_hosts *hosts, struct hf_host *host, size_t lane)
{
	pthread_mutex_lock(&hosts->lock);
	host->n_chosen--;
	host->parts[lane].n_chosen--;
	update_rank(hosts, host);
	unref(hosts, host);
	pthread_mutex_unlock(&hosts->lock);
}
