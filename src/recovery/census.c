/*
 * How many locks there are in each share, and of how many clients: counted as
 * they come and go, because nobody may walk a table of millions to know. An
 * entry is for a client in a share; the last one used is remembered, since the
 * next lock is most often its, too, and stays for a while when it is empty.
 */
#include <stdlib.h>

#include "base/error.h"
#include "recovery/internal.h"

struct entry {
	struct hf_hash_node node;
	struct hf_link link;
	struct hf_census_share *share;
	uint64_t client; /* the lock table's number */
	uint64_t n_locks;
};

struct hf_census_share {
	struct hf_link link;
	uint32_t number;
	uint64_t n_locks;
	uint64_t n_clients;
};

static uint64_t hash_of(uint32_t share, uint64_t client)
{
	uint64_t x = (client ^ (uint64_t)share << 32) * UINT64_C(0x9e3779b97f4a7c15);

	return x ^ x >> 29;
}

static struct hf_census_share *share_of(struct hf_census *census, uint32_t number)
{
	struct hf_census_share *share;

	hf_list_for_each(pos, &census->shares) {
		share = hf_list_entry(pos, struct hf_census_share, link);
		if (share->number == number)
			return share;
	}
	share = calloc(1, sizeof(*share));
	if (!share)
		return NULL;
	share->number = number;
	hf_list_push_back(&census->shares, &share->link);
	return share;
}

static void forget(struct hf_census *census, struct entry *entry)
{
	hf_hashtable_remove(&census->entries, &entry->node);
	hf_link_remove(&entry->link);
	free(entry);
}

static struct entry *set_last(struct hf_census *census, struct entry *entry)
{
	struct entry *before = census->last;

	census->last = entry;
	if (before && before->n_locks == 0)
		forget(census, before);
	return entry;
}

static struct entry *find(struct hf_census *census, uint32_t share, uint64_t client)
{
	struct entry *last = census->last;

	if (HF_LIKELY(last && last->client == client && last->share->number == share))
		return last;
	hf_hash_for_each(node, &census->entries, hash_of(share, client)) {
		struct entry *entry = hf_container_of(node, struct entry, node);

		if (entry->client == client && entry->share->number == share)
			return set_last(census, entry);
	}
	return NULL;
}

static struct entry *make(struct hf_census *census, uint32_t number, uint64_t client)
{
	struct hf_census_share *share = share_of(census, number);
	struct entry *entry = share ? calloc(1, sizeof(*entry)) : NULL;

	if (!entry)
		return NULL;
	entry->share = share;
	entry->client = client;
	hf_hashtable_insert(&census->entries, &entry->node, hash_of(number, client));
	hf_list_push_back(&census->all, &entry->link);
	return set_last(census, entry);
}

/* Without memory a lock is not counted, and its end is not either: numbers for people, no more. */
void hf_census_came(struct hf_recovery *recovery, uint32_t share, const struct hf_lock_client *client)
{
	struct hf_census *census = &recovery->census;
	struct entry *entry = find(census, share, client->id);

	if (!entry)
		entry = make(census, share, client->id);
	if (!entry)
		return;
	entry->share->n_clients += entry->n_locks == 0;
	entry->n_locks++;
	entry->share->n_locks++;
}

void hf_census_went(struct hf_recovery *recovery, uint32_t share, const struct hf_lock_client *client)
{
	struct entry *entry = find(&recovery->census, share, client->id);

	if (!entry || entry->n_locks == 0)
		return;
	entry->n_locks--;
	entry->share->n_locks--;
	entry->share->n_clients -= entry->n_locks == 0;
}

void hf_census_added(struct hf_recovery *recovery, const struct hf_lock_target *who)
{
	hf_census_came(recovery, who->share, who->client);
}

void hf_recovery_show_shares(struct hf_recovery *recovery,
			     void (*fn)(void *user, const struct hf_recovery_share *share), void *user)
{
	hf_list_for_each(pos, &recovery->census.shares) {
		const struct hf_census_share *share = hf_list_entry(pos, struct hf_census_share, link);

		fn(user, &(struct hf_recovery_share){ .number = share->number,
						      .name = hf_recovery_share_name(recovery, share->number),
						      .n_locks = share->n_locks,
						      .n_clients = share->n_clients });
	}
}

/* Life */

int hf_census_init(struct hf_recovery *recovery)
{
	hf_list_init(&recovery->census.shares);
	hf_list_init(&recovery->census.all);
	return hf_trace(hf_hashtable_init(&recovery->census.entries));
}

void hf_census_deinit(struct hf_recovery *recovery)
{
	struct hf_census *census = &recovery->census;
	struct hf_link *link;

	if (!census->shares.head.next)
		return; /* never begun */
	while ((link = hf_list_first(&census->all)))
		forget(census, hf_list_entry(link, struct entry, link));
	while ((link = hf_list_pop_front(&census->shares)))
		free(hf_list_entry(link, struct hf_census_share, link));
	hf_hashtable_deinit(&census->entries);
}
