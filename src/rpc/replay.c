/*
 * The addresses share a fixed number of parts, by a keyed hash: a call needs no memory and no search to find
 * the part that it counts for. Two addresses in one part are rare, and a peer cannot choose them. The parts
 * are in one list for each number of answered calls, so the one with the most is found without a search.
 */
#include "rpc/replay.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/hashtable.h"
#include "base/list.h"

#define MAX_AGE_NS UINT64_C(120000000000)
#define RESERVED   1 /* stands for all reserved ports */
#define N_PARTS    1024

struct part {
	struct hf_link rank; /* in replay->ranks[n_done] */
	struct hf_list done; /* its entries, oldest first */
	size_t n_done;
	size_t n_busy;
};

struct hf_replay_entry {
	struct hf_hash_node node; /* in replay->entries; its hash is the checksum of the message */
	struct hf_link age;       /* in replay->done, oldest first; unlinked while under way */
	struct hf_link in_part;   /* in part->done; the same */
	struct part *part;
	struct hf_addr peer; /* its port is RESERVED or 0 */
	uint64_t channel;
	uint64_t since;
	uint32_t xid;
	uint32_t len;
	uint8_t *reply; /* NULL: under way */
	void *follower;
	hf_replay_fn told;
};

struct hf_replay {
	struct hf_siphash_key key; /* (c) */
	size_t max_entries;        /* (c) */
	pthread_mutex_t lock;
	struct hf_hashtable entries; /* under lock, as all below */
	struct hf_list done;
	size_t n_busy;
	uint64_t n_forgotten;           /* to make room */
	size_t top;                     /* the highest rank with a part, or 0 */
	struct part parts[N_PARTS + 1]; /* the last: of calls whose source is not proven */
	struct hf_list ranks[];         /* parts by n_done, from 0 to max_entries */
};

int hf_replay_new(struct hf_replay **replayp, const struct hf_siphash_key *key, size_t max_entries)
{
	struct hf_replay *replay = calloc(1, sizeof(*replay) + (max_entries + 1) * sizeof(replay->ranks[0]));

	if (!replay)
		return hf_trace(-ENOMEM);
	replay->key = *key;
	replay->max_entries = max_entries;
	hf_list_init(&replay->done);
	for (size_t i = 0; i <= max_entries; i++)
		hf_list_init(&replay->ranks[i]);
	for (size_t i = 0; i <= N_PARTS; i++) {
		hf_list_init(&replay->parts[i].done);
		hf_list_push_back(&replay->ranks[0], &replay->parts[i].rank);
	}
	pthread_mutex_init(&replay->lock, NULL);
	if (hf_hashtable_init(&replay->entries) < 0) {
		hf_replay_free(replay);
		return hf_trace(-ENOMEM);
	}
	*replayp = replay;
	return 0;
}

static void update_rank(struct hf_replay *replay, struct part *part)
{
	hf_link_remove(&part->rank);
	hf_list_push_back(&replay->ranks[part->n_done], &part->rank);
	if (part->n_done > replay->top)
		replay->top = part->n_done;
	while (replay->top && hf_list_is_empty(&replay->ranks[replay->top]))
		replay->top--;
}

static void stop_being_busy(struct hf_replay *replay, struct part *part)
{
	replay->n_busy--;
	part->n_busy--;
}

static void entry_free(struct hf_replay *replay, struct hf_replay_entry *entry)
{
	hf_hashtable_remove(&replay->entries, &entry->node);
	if (entry->reply) {
		hf_link_remove(&entry->age);
		hf_link_remove(&entry->in_part);
		entry->part->n_done--;
		update_rank(replay, entry->part);
	} else {
		stop_being_busy(replay, entry->part);
	}
	free(entry->reply);
	free(entry);
}

struct hf_replay *hf_replay_free(struct hf_replay *replay)
{
	struct hf_link *link;

	if (!replay)
		return NULL;
	while ((link = hf_list_first(&replay->done)))
		entry_free(replay, hf_list_entry(link, struct hf_replay_entry, age));
	assert(replay->entries.n == 0); /* nothing is under way any more */
	pthread_mutex_destroy(&replay->lock);
	hf_hashtable_deinit(&replay->entries);
	free(replay);
	return NULL;
}

static struct hf_replay_entry *find(struct hf_replay *replay, const struct hf_replay_entry *like)
{
	hf_hash_for_each(node, &replay->entries, like->node.hash) {
		struct hf_replay_entry *entry = hf_container_of(node, struct hf_replay_entry, node);

		if (entry->xid == like->xid && entry->channel == like->channel &&
		    hf_addr_equal(&entry->peer, &like->peer))
			return entry;
	}
	return NULL;
}

static struct hf_replay_entry *oldest(struct hf_replay *replay)
{
	struct hf_link *link = hf_list_first(&replay->done);

	return link ? hf_list_entry(link, struct hf_replay_entry, age) : NULL;
}

/* Lanes have different ideas of now: an entry may be a little newer than @now. */
static void expire(struct hf_replay *replay, uint64_t now)
{
	struct hf_replay_entry *entry;

	while ((entry = oldest(replay)) && now > entry->since + MAX_AGE_NS)
		entry_free(replay, entry);
}

/* The oldest of the part with the most. Not all entries are under way. */
static struct hf_replay_entry *first_to_go(struct hf_replay *replay)
{
	struct part *part;

	assert(replay->top);
	part = hf_list_entry(hf_list_first(&replay->ranks[replay->top]), struct part, rank);
	return hf_list_entry(hf_list_first(&part->done), struct hf_replay_entry, in_part);
}

static struct part *find_part(struct hf_replay *replay, const struct hf_replay_call *call)
{
	struct hf_addr host = *call->peer;

	host.port = 0;
	if (host.family == AF_INET6) /* a host may have all addresses of its /64 */
		memset(host.ip + 8, 0, 8);
	if (call->is_forgeable)
		return &replay->parts[N_PARTS];
	return &replay->parts[hf_siphash(&replay->key, &host, sizeof(host)) % N_PARTS];
}

static int insert(struct hf_replay *replay, const struct hf_replay_entry *like,
		  struct hf_replay_entry **entryp)
{
	struct hf_replay_entry *entry;

	if (replay->n_busy + like->part->n_busy >= replay->max_entries)
		return HF_REPLAY_FULL;
	if (replay->entries.n >= replay->max_entries) {
		entry_free(replay, first_to_go(replay));
		replay->n_forgotten++;
	}
	entry = malloc(sizeof(*entry));
	if (!entry)
		return HF_REPLAY_FULL;
	*entry = *like;
	hf_link_init(&entry->age);
	hf_link_init(&entry->in_part);
	replay->n_busy++;
	entry->part->n_busy++;
	hf_hashtable_insert(&replay->entries, &entry->node, like->node.hash);
	*entryp = entry;
	return HF_REPLAY_NEW;
}

/* A later follower replaces an earlier one. */
static void follow(struct hf_replay_entry *entry, void *follower, hf_replay_fn told)
{
	void *before = entry->follower;
	hf_replay_fn before_told = entry->told;

	entry->follower = follower;
	entry->told = told;
	if (before)
		before_told(before, (struct hf_bytes){ 0 });
}

int hf_replay_begin(struct hf_replay *replay, uint64_t now, const struct hf_replay_call *call, void *follower,
		    hf_replay_fn told, uint8_t reply[HF_REPLAY_MAX_REPLY], uint32_t *lenp,
		    struct hf_replay_entry **entryp)
{
	struct hf_replay_entry like = { .peer = *call->peer, .channel = call->channel, .since = now }, *entry;
	struct hf_bytes message = call->message;
	int r;

	assert(message.len >= 4);
	like.peer.port = hf_addr_has_reserved_port(call->peer) ? RESERVED : 0;
	like.part = find_part(replay, call);
	memcpy(&like.xid, message.data, 4);
	like.node.hash = hf_siphash(&replay->key, message.data, message.len);

	pthread_mutex_lock(&replay->lock);
	expire(replay, now);
	entry = find(replay, &like);
	if (!entry) {
		r = insert(replay, &like, entryp);
	} else if (entry->reply) {
		memcpy(reply, entry->reply, entry->len);
		*lenp = entry->len;
		r = HF_REPLAY_DONE;
	} else {
		if (follower)
			follow(entry, follower, told);
		r = HF_REPLAY_BUSY;
	}
	pthread_mutex_unlock(&replay->lock);
	return r;
}

void hf_replay_finish(struct hf_replay *replay, struct hf_replay_entry *entry, struct hf_bytes reply)
{
	uint8_t *copy = reply.len <= HF_REPLAY_MAX_REPLY ? malloc(reply.len ? reply.len : 1) : NULL;

	pthread_mutex_lock(&replay->lock);
	if (entry->follower)
		entry->told(entry->follower, reply);
	entry->follower = NULL;
	if (copy) {
		if (reply.len)
			memcpy(copy, reply.data, reply.len);
		entry->reply = copy;
		entry->len = reply.len;
		hf_list_push_back(&replay->done, &entry->age);
		stop_being_busy(replay, entry->part);
		hf_list_push_back(&entry->part->done, &entry->in_part);
		entry->part->n_done++;
		update_rank(replay, entry->part);
	} else {
		entry_free(replay, entry);
	}
	pthread_mutex_unlock(&replay->lock);
}

void hf_replay_finish_once(struct hf_replay *replay, struct hf_replay_entry *entry, struct hf_bytes reply)
{
	pthread_mutex_lock(&replay->lock);
	if (entry->follower)
		entry->told(entry->follower, reply);
	entry_free(replay, entry);
	pthread_mutex_unlock(&replay->lock);
}

void hf_replay_forget(struct hf_replay *replay, struct hf_replay_entry *entry)
{
	hf_replay_finish_once(replay, entry, (struct hf_bytes){ 0 });
}

void hf_replay_show_limit(struct hf_replay *replay, struct hf_limit_use *use)
{
	pthread_mutex_lock(&replay->lock);
	*use = (struct hf_limit_use){ .used = replay->entries.n,
				      .max = replay->max_entries,
				      .refused = replay->n_forgotten };
	pthread_mutex_unlock(&replay->lock);
}
