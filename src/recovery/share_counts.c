/*
 * How many locks there are in each share, and of how many clients. They are counted as
 * they come and go, because a walk through a table of millions would take too long.
 *
 * An entry is for a client in a share. The entry used last is remembered, since the
 * next lock is most often of the same client; it stays for a while when it is empty.
 */
#include <stdlib.h>

#include "base/error.h"
#include "recovery/internal.h"

struct entry {
	struct hf_hash_node node;
	struct hf_link link;
	struct hf_share_count *share;
	uint64_t client; /* the lock table's number */
	uint64_t n_locks;
};

struct hf_share_count {
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

static struct hf_share_count *share_of(struct hf_share_counts *share_counts, uint32_t number)
{
	struct hf_share_count *share;

	hf_list_for_each(pos, &share_counts->shares) {
		share = hf_list_entry(pos, struct hf_share_count, link);
		if (share->number == number)
			return share;
	}
	share = calloc(1, sizeof(*share));
	if (!share)
		return NULL;
	share->number = number;
	hf_list_push_back(&share_counts->shares, &share->link);
	return share;
}

static void forget(struct hf_share_counts *share_counts, struct entry *entry)
{
	hf_hashtable_remove(&share_counts->entries, &entry->node);
	hf_link_remove(&entry->link);
	free(entry);
}

static struct entry *set_last(struct hf_share_counts *share_counts, struct entry *entry)
{
	struct entry *before = share_counts->last;

	share_counts->last = entry;
	if (before && before->n_locks == 0)
		forget(share_counts, before);
	return entry;
}

static struct entry *find(struct hf_share_counts *share_counts, uint32_t share, uint64_t client)
{
	struct entry *last = share_counts->last;

	if (HF_LIKELY(last && last->client == client && last->share->number == share))
		return last;
	hf_hash_for_each(node, &share_counts->entries, hash_of(share, client)) {
		struct entry *entry = hf_container_of(node, struct entry, node);

		if (entry->client == client && entry->share->number == share)
			return set_last(share_counts, entry);
	}
	return NULL;
}

static struct entry *make(struct hf_share_counts *share_counts, uint32_t number, uint64_t client)
{
	struct hf_share_count *share = share_of(share_counts, number);
	struct entry *entry = share ? calloc(1, sizeof(*entry)) : NULL;

	if (!entry)
		return NULL;
	entry->share = share;
	entry->client = client;
	hf_hashtable_insert(&share_counts->entries, &entry->node, hash_of(number, client));
	hf_list_push_back(&share_counts->all, &entry->link);
	return set_last(share_counts, entry);
}

/* Without memory neither the lock nor its end is counted: the numbers are for people only. */
void hf_share_counts_add(struct hf_recovery *recovery, uint32_t share, const struct hf_lock_client *client)
{
	struct hf_share_counts *share_counts = &recovery->share_counts;
	struct entry *entry = find(share_counts, share, client->id);

	if (!entry)
		entry = make(share_counts, share, client->id);
	if (!entry)
		return;
	entry->share->n_clients += entry->n_locks == 0;
	entry->n_locks++;
	entry->share->n_locks++;
}

void hf_share_counts_remove(struct hf_recovery *recovery, uint32_t share, const struct hf_lock_client *client)
{
	struct entry *entry = find(&recovery->share_counts, share, client->id);

	if (!entry || entry->n_locks == 0)
		return;
	entry->n_locks--;
	entry->share->n_locks--;
	entry->share->n_clients -= entry->n_locks == 0;
}

void hf_recovery_show_shares(struct hf_recovery *recovery,
			     void (*fn)(void *user, const struct hf_recovery_share *share), void *user)
{
	hf_list_for_each(pos, &recovery->share_counts.shares) {
		const struct hf_share_count *share = hf_list_entry(pos, struct hf_share_count, link);

		fn(user, &(struct hf_recovery_share){ .number = share->number,
						      .name = hf_recovery_share_name(recovery, share->number),
						      .n_locks = share->n_locks,
						      .n_clients = share->n_clients });
	}
}

/* Life */

int hf_share_counts_init(struct hf_recovery *recovery)
{
	hf_list_init(&recovery->share_counts.shares);
	hf_list_init(&recovery->share_counts.all);
	return hf_trace(hf_hashtable_init(&recovery->share_counts.entries));
}

void hf_share_counts_deinit(struct hf_recovery *recovery)
{
	struct hf_share_counts *share_counts = &recovery->share_counts;
	struct hf_link *link;

	if (!share_counts->shares.head.next)
		return; /* hf_share_counts_init() was not called */
	while ((link = hf_list_first(&share_counts->all)))
		forget(share_counts, hf_list_entry(link, struct entry, link));
	while ((link = hf_list_pop_front(&share_counts->shares)))
		free(hf_list_entry(link, struct hf_share_count, link));
	hf_hashtable_deinit(&share_counts->entries);
}
