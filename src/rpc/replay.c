#include "rpc/replay.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hashtable.h"
#include "base/list.h"

#define MAX_AGE_NS UINT64_C(120000000000)
#define RESERVED   1 /* stands for all reserved ports */

struct hf_replay_entry {
	struct hf_hash_node node; /* in replay->entries; its hash is the checksum of the message */
	struct hf_link age;       /* in replay->done, oldest first; unlinked while under way */
	struct hf_addr peer;      /* its port is RESERVED or 0 */
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
};

int hf_replay_new(struct hf_replay **replayp, const struct hf_siphash_key *key, size_t max_entries)
{
	struct hf_replay *replay = calloc(1, sizeof(*replay));

	if (!replay)
		return hf_trace(-ENOMEM);
	replay->key = *key;
	replay->max_entries = max_entries;
	hf_list_init(&replay->done);
	pthread_mutex_init(&replay->lock, NULL);
	if (hf_hashtable_init(&replay->entries) < 0) {
		hf_replay_free(replay);
		return hf_trace(-ENOMEM);
	}
	*replayp = replay;
	return 0;
}

static void entry_free(struct hf_replay *replay, struct hf_replay_entry *entry)
{
	hf_hashtable_remove(&replay->entries, &entry->node);
	hf_link_remove(&entry->age);
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

static int insert(struct hf_replay *replay, const struct hf_replay_entry *like,
		  struct hf_replay_entry **entryp)
{
	struct hf_replay_entry *entry;

	if (replay->entries.n >= replay->max_entries && oldest(replay))
		entry_free(replay, oldest(replay));
	if (replay->entries.n >= replay->max_entries)
		return HF_REPLAY_FULL;
	entry = malloc(sizeof(*entry));
	if (!entry)
		return HF_REPLAY_FULL;
	*entry = *like;
	hf_link_init(&entry->age);
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

int hf_replay_begin(struct hf_replay *replay, uint64_t now, const struct hf_addr *peer, uint64_t channel,
		    struct hf_bytes message, void *follower, hf_replay_fn told,
		    uint8_t reply[HF_REPLAY_MAX_REPLY], uint32_t *lenp, struct hf_replay_entry **entryp)
{
	struct hf_replay_entry like = { .peer = *peer, .channel = channel, .since = now }, *entry;
	int r;

	assert(message.len >= 4);
	like.peer.port = hf_addr_has_reserved_port(peer) ? RESERVED : 0;
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
