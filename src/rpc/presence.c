/*
 * An identity at an address has one record, in a hash table by address. A record without
 * connections is in a list, the one that ended first in front, until its grace is over. Such
 * records are bounded. Any host can complete handshakes, from as many addresses as its network
 * gives it, so the records of strangers make room first: those without a certificate, then
 * those with one. A record whose client holds locks stays; the server asks that when the
 * record is the next to make room.
 *
 * A connection has a link. Its loop puts it into the queue when it begins and when it ends; the
 * home loop takes it out. Both may be in the queue together: then only the time of the end is noted.
 */
#include "rpc/presence.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/hashtable.h"
#include "base/list.h"
#include "base/siphash.h"
#include "loop/loop.h"
#include "tls/tls.h"

#define MAX_ENDED 16384 /* records without connections */

enum worth { /* the least makes room first */
	NAMELESS,
	NAMED, /* it has a certificate */
	NEEDED,
	N_WORTHS,
};

struct record {
	struct hf_hash_node node; /* in presence->records */
	struct hf_link link;      /* in one of presence->ended, while n is 0 */
	struct hf_addr address;   /* port 0 */
	struct hf_tls_peer peer;
	size_t n;          /* connections */
	uint64_t newest;   /* number of the latest */
	uint64_t ended_at; /* monotonic ns; while n is 0 */
};

struct hf_rpc_presence_link {
	struct hf_rpc_presence *presence;
	struct hf_link link; /* in presence->queue; under the lock */
	bool is_ended;       /* under the lock */
	struct hf_addr address;
	struct hf_tls_peer peer; /* until home has read it */
	struct record *record;   /* of home; NULL: it has not read it, or had no memory */
	bool is_read;            /* of home */
};

struct hf_rpc_presence {
	struct hf_loop *home; /* (c) */
	uint64_t grace_ns;
	bool is_grown;       /* it was not young any more when @grace_ns changed */
	uint64_t started_at; /* (c) */
	struct hf_siphash_key key;
	pthread_mutex_t lock;
	struct hf_list queue; /* under lock */
	bool is_posted;       /* under lock: @task is on its way to home */
	struct hf_task task;
	_Atomic bool has_queue; /* something is in the queue */
	struct hf_hashtable records;
	struct hf_list ended[N_WORTHS]; /* the needed ones in the order in which they were asked about */
	size_t n_ended;
	uint64_t n_forgotten; /* before their grace was over */
	uint64_t n_begun;
	uint64_t n_told; /* n_begun when the listener was called last */
	void (*listener)(void *user);
	void *listener_user;
	hf_rpc_presence_judge_fn judge;
	void *judge_user;
};

/* Records */

static uint64_t hash_address(const struct hf_rpc_presence *presence, const struct hf_addr *address)
{
	struct hf_addr key = *address;

	key.port = 0;
	return hf_siphash(&presence->key, &key, sizeof(key));
}

static void record_free(struct hf_rpc_presence *presence, struct record *record)
{
	if (!record->n)
		presence->n_ended--;
	hf_link_remove(&record->link);
	hf_hashtable_remove(&presence->records, &record->node);
	hf_tls_peer_clear(&record->peer);
	free(record);
}

static bool is_over(const struct hf_rpc_presence *presence, const struct record *record)
{
	return !record->n && hf_loop_now(presence->home) - record->ended_at >= presence->grace_ns;
}

static void add_ended(struct hf_rpc_presence *presence, struct record *record, enum worth worth)
{
	hf_list_push_back(&presence->ended[worth], &record->link);
	presence->n_ended++;
}

static void remove_ended(struct hf_rpc_presence *presence, struct record *record)
{
	hf_link_remove(&record->link);
	presence->n_ended--;
}

static struct record *first_ended(struct hf_rpc_presence *presence, enum worth worth)
{
	struct hf_link *link = hf_list_first(&presence->ended[worth]);

	return link ? hf_list_entry(link, struct record, link) : NULL;
}

static bool is_needed(const struct hf_rpc_presence *presence, const struct record *record)
{
	return presence->judge && presence->judge(presence->judge_user, &record->address, &record->peer);
}

static void make_room(struct hf_rpc_presence *presence, enum worth worth)
{
	struct record *record;

	while (presence->n_ended > MAX_ENDED && (record = first_ended(presence, worth))) {
		if (worth != NEEDED && is_needed(presence, record)) {
			remove_ended(presence, record);
			add_ended(presence, record, NEEDED);
		} else {
			record_free(presence, record);
			presence->n_forgotten++;
		}
	}
}

static void forget_ended(struct hf_rpc_presence *presence)
{
	struct record *record;

	for (enum worth worth = 0; worth < N_WORTHS; worth++)
		while ((record = first_ended(presence, worth)) && is_over(presence, record))
			record_free(presence, record);
	for (enum worth worth = 0; worth < N_WORTHS; worth++)
		make_room(presence, worth);
}

static struct record *find(const struct hf_rpc_presence *presence, const struct hf_rpc_presence_link *link,
			   uint64_t hash)
{
	hf_hash_for_each(node, &presence->records, hash) {
		struct record *record = hf_container_of(node, struct record, node);

		if (hf_addr_same_host(&record->address, &link->address) &&
		    hf_tls_peer_equal(&record->peer, &link->peer))
			return record;
	}
	return NULL;
}

/* Takes the names of the link. */
static struct record *record_new(struct hf_rpc_presence *presence, struct hf_rpc_presence_link *link,
				 uint64_t hash)
{
	struct record *record = calloc(1, sizeof(*record));

	if (!record) {
		hf_trace(-ENOMEM);
		return NULL;
	}
	record->address = link->address;
	record->address.port = 0;
	record->peer = link->peer;
	link->peer = (struct hf_tls_peer){ 0 };
	add_ended(presence, record, NAMELESS); /* until its first connection counts */
	hf_hashtable_insert(&presence->records, &record->node, hash);
	return record;
}

/* Without memory the connection does not count, and its client's calls in the clear are refused. */
static void enter(struct hf_rpc_presence *presence, struct hf_rpc_presence_link *link)
{
	uint64_t hash = hash_address(presence, &link->address);
	struct record *record = find(presence, link, hash);

	link->is_read = true;
	if (!record)
		record = record_new(presence, link, hash);
	hf_tls_peer_clear(&link->peer);
	if (!record)
		return;
	if (!record->n++)
		remove_ended(presence, record);
	record->newest = ++presence->n_begun;
	link->record = record;
}

static void leave(struct hf_rpc_presence *presence, struct record *record)
{
	if (--record->n)
		return;
	record->ended_at = hf_loop_now(presence->home);
	add_ended(presence, record, record->peer.is_authenticated ? NAMED : NAMELESS);
}

/* The queue */

static void read_link(struct hf_rpc_presence *presence, struct hf_rpc_presence_link *link)
{
	if (!link->is_read)
		enter(presence, link);
	if (!link->is_ended)
		return;
	if (link->record)
		leave(presence, link->record);
	free(link);
}

static HF_NOINLINE void read_queue(struct hf_rpc_presence *presence)
{
	struct hf_link *link;

	pthread_mutex_lock(&presence->lock);
	while ((link = hf_list_pop_front(&presence->queue)))
		read_link(presence, hf_list_entry(link, struct hf_rpc_presence_link, link));
	atomic_store_explicit(&presence->has_queue, false, memory_order_relaxed);
	pthread_mutex_unlock(&presence->lock);
	forget_ended(presence);
}

static void look(struct hf_rpc_presence *presence)
{
	if (HF_UNLIKELY(atomic_load_explicit(&presence->has_queue, memory_order_acquire)))
		read_queue(presence);
}

static void on_posted(struct hf_task *task)
{
	struct hf_rpc_presence *presence = hf_container_of(task, struct hf_rpc_presence, task);

	pthread_mutex_lock(&presence->lock);
	presence->is_posted = false;
	pthread_mutex_unlock(&presence->lock);
	look(presence);
	if (presence->n_told == presence->n_begun)
		return;
	presence->n_told = presence->n_begun;
	if (presence->listener)
		presence->listener(presence->listener_user);
}

/* The post follows even if home reads the queue before: the listener is called from the loop alone. */
static void queue(struct hf_rpc_presence *presence, struct hf_rpc_presence_link *link, bool is_ended)
{
	bool posts;

	pthread_mutex_lock(&presence->lock);
	link->is_ended = is_ended;
	if (!hf_link_is_linked(&link->link))
		hf_list_push_back(&presence->queue, &link->link);
	atomic_store_explicit(&presence->has_queue, true, memory_order_release);
	posts = !presence->is_posted;
	presence->is_posted = true;
	pthread_mutex_unlock(&presence->lock);
	if (posts)
		hf_loop_post(presence->home, &presence->task);
}

struct hf_rpc_presence_link *hf_rpc_presence_begin(struct hf_rpc_presence *presence,
						   const struct hf_addr *address,
						   const struct hf_tls_peer *peer)
{
	struct hf_rpc_presence_link *link = calloc(1, sizeof(*link));

	if (!link || hf_tls_peer_copy(&link->peer, peer) < 0) {
		free(link);
		return NULL;
	}
	link->presence = presence;
	link->address = *address;
	hf_link_init(&link->link);
	queue(presence, link, false);
	return link;
}

void hf_rpc_presence_end(struct hf_rpc_presence_link *link)
{
	queue(link->presence, link, true);
}

/* Asking */

static inline bool find_at(struct hf_rpc_presence *presence, const struct hf_addr *address, bool is_connected,
			   hf_rpc_presence_fn fn, void *user)
{
	look(presence);
	hf_hash_for_each(node, &presence->records, hash_address(presence, address)) {
		const struct record *record = hf_container_of(node, struct record, node);

		if (hf_addr_same_host(&record->address, address) &&
		    (is_connected ? record->n > 0 : !is_over(presence, record)) &&
		    fn(user, &record->peer, record->newest))
			return true;
	}
	return false;
}

bool hf_rpc_presence_find(struct hf_rpc_presence *presence, const struct hf_addr *address,
			  hf_rpc_presence_fn fn, void *user)
{
	return find_at(presence, address, false, fn, user);
}

bool hf_rpc_presence_find_connected(struct hf_rpc_presence *presence, const struct hf_addr *address,
				    hf_rpc_presence_fn fn, void *user)
{
	return find_at(presence, address, true, fn, user);
}

void hf_rpc_presence_show_limit(struct hf_rpc_presence *presence, struct hf_limit_use *use)
{
	look(presence);
	forget_ended(presence);
	*use = (struct hf_limit_use){ .used = presence->n_ended,
				      .max = MAX_ENDED,
				      .refused = presence->n_forgotten };
}

uint64_t hf_rpc_presence_count(struct hf_rpc_presence *presence)
{
	look(presence);
	return presence->n_begun;
}

bool hf_rpc_presence_is_young(const struct hf_rpc_presence *presence)
{
	return !presence->is_grown && hf_loop_now(presence->home) - presence->started_at < presence->grace_ns;
}

void hf_rpc_presence_listen(struct hf_rpc_presence *presence, void (*fn)(void *user), void *user)
{
	presence->listener = fn;
	presence->listener_user = user;
}

void hf_rpc_presence_set_judge(struct hf_rpc_presence *presence, hf_rpc_presence_judge_fn fn, void *user)
{
	presence->judge = fn;
	presence->judge_user = user;
}

void hf_rpc_presence_set_grace(struct hf_rpc_presence *presence, uint64_t grace_ns)
{
	/* What is over does not begin again. */
	presence->is_grown |= !hf_rpc_presence_is_young(presence);
	forget_ended(presence);
	presence->grace_ns = grace_ns;
}

/* Making and freeing */

int hf_rpc_presence_new(struct hf_rpc_presence **presencep, struct hf_loop *home, uint64_t grace_ns)
{
	struct hf_rpc_presence *presence = calloc(1, sizeof(*presence));

	if (!presence || hf_hashtable_init(&presence->records) < 0) {
		free(presence);
		return hf_trace(-ENOMEM);
	}
	presence->home = home;
	presence->grace_ns = grace_ns;
	presence->started_at = hf_loop_now(home);
	hf_loop_random(home, &presence->key, sizeof(presence->key));
	pthread_mutex_init(&presence->lock, NULL);
	hf_list_init(&presence->queue);
	for (enum worth worth = 0; worth < N_WORTHS; worth++)
		hf_list_init(&presence->ended[worth]);
	hf_task_init(&presence->task, on_posted);
	*presencep = presence;
	return 0;
}

/* The home loop is gone, so its clock is not asked. */
struct hf_rpc_presence *hf_rpc_presence_free(struct hf_rpc_presence *presence)
{
	struct record *record;

	if (!presence)
		return NULL;
	assert(hf_list_is_empty(&presence->queue));
	for (enum worth worth = 0; worth < N_WORTHS; worth++)
		while ((record = first_ended(presence, worth)))
			record_free(presence, record);
	hf_hashtable_deinit(&presence->records);
	pthread_mutex_destroy(&presence->lock);
	free(presence);
	return NULL;
}
