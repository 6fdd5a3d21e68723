/*
 * How many locks there are in each export, and of how many clients. They are counted as
 * they come and go, because a walk through a table of millions would take too long.
 *
 * An entry is for a client in an export. The entry used last is remembered, since the
 * next lock is most often of the same client; it stays for a while when it is empty.
 */
#include <stdlib.h>

#include "base/error.h"
#include "recovery/internal.h"

struct entry {
	struct hf_hash_node node;
	struct hf_link link;
	struct hf_export_count *export;
	uint64_t client; /* the lock table's number */
	uint64_t n_locks;
};

struct hf_export_count {
	struct hf_link link;
	uint32_t number;
	uint64_t n_locks;
	uint64_t n_clients;
};

static uint64_t hash_of(uint32_t number, uint64_t client)
{
	uint64_t x = (client ^ (uint64_t)number << 32) * UINT64_C(0x9e3779b97f4a7c15);

	return x ^ x >> 29;
}

static struct hf_export_count *export_of(struct hf_export_counts *export_counts, uint32_t number)
{
	struct hf_export_count *export;

	hf_list_for_each(pos, &export_counts->exports) {
		export = hf_list_entry(pos, struct hf_export_count, link);
		if (export->number == number)
			return export;
	}
	export = calloc(1, sizeof(*export));
	if (!export)
		return NULL;
	export->number = number;
	hf_list_push_back(&export_counts->exports, &export->link);
	return export;
}

static void forget(struct hf_export_counts *export_counts, struct entry *entry)
{
	hf_hashtable_remove(&export_counts->entries, &entry->node);
	hf_link_remove(&entry->link);
	free(entry);
}

static struct entry *set_last(struct hf_export_counts *export_counts, struct entry *entry)
{
	struct entry *before = export_counts->last;

	export_counts->last = entry;
	if (before && before->n_locks == 0)
		forget(export_counts, before);
	return entry;
}

static struct entry *find(struct hf_export_counts *export_counts, uint32_t export, uint64_t client)
{
	struct entry *last = export_counts->last;

	if (HF_LIKELY(last && last->client == client && last->export->number == export))
		return last;
	hf_hash_for_each(node, &export_counts->entries, hash_of(export, client)) {
		struct entry *entry = hf_container_of(node, struct entry, node);

		if (entry->client == client && entry->export->number == export)
			return set_last(export_counts, entry);
	}
	return NULL;
}

static struct entry *make(struct hf_export_counts *export_counts, uint32_t number, uint64_t client)
{
	struct hf_export_count *export = export_of(export_counts, number);
	struct entry *entry = export ? calloc(1, sizeof(*entry)) : NULL;

	if (!entry)
		return NULL;
	entry->export = export;
	entry->client = client;
	hf_hashtable_insert(&export_counts->entries, &entry->node, hash_of(number, client));
	hf_list_push_back(&export_counts->all, &entry->link);
	return set_last(export_counts, entry);
}

/* Without memory neither the lock nor its end is counted: the numbers are for people only. */
void hf_export_counts_add(struct hf_recovery *recovery, uint32_t export, const struct hf_lock_client *client)
{
	struct hf_export_counts *export_counts = &recovery->export_counts;
	struct entry *entry = find(export_counts, export, client->id);

	if (!entry)
		entry = make(export_counts, export, client->id);
	if (!entry)
		return;
	entry->export->n_clients += entry->n_locks == 0;
	entry->n_locks++;
	entry->export->n_locks++;
}

void hf_export_counts_remove(struct hf_recovery *recovery, uint32_t export,
			     const struct hf_lock_client *client)
{
	struct entry *entry = find(&recovery->export_counts, export, client->id);

	if (!entry || entry->n_locks == 0)
		return;
	entry->n_locks--;
	entry->export->n_locks--;
	entry->export->n_clients -= entry->n_locks == 0;
}

void hf_recovery_show_exports(struct hf_recovery *recovery,
			      void (*fn)(void *user, const struct hf_recovery_export *export), void *user)
{
	hf_list_for_each(pos, &recovery->export_counts.exports) {
		const struct hf_export_count *export = hf_list_entry(pos, struct hf_export_count, link);

		fn(user,
		   &(struct hf_recovery_export){ .number = export->number,
						 .name = hf_recovery_export_name(recovery, export->number),
						 .n_locks = export->n_locks,
						 .n_clients = export->n_clients });
	}
}

/* Making and freeing */

int hf_export_counts_init(struct hf_recovery *recovery)
{
	hf_list_init(&recovery->export_counts.exports);
	hf_list_init(&recovery->export_counts.all);
	return hf_trace(hf_hashtable_init(&recovery->export_counts.entries));
}

void hf_export_counts_deinit(struct hf_recovery *recovery)
{
	struct hf_export_counts *export_counts = &recovery->export_counts;
	struct hf_link *link;

	if (!export_counts->exports.head.next)
		return; /* hf_export_counts_init() was not called */
	while ((link = hf_list_first(&export_counts->all)))
		forget(export_counts, hf_list_entry(link, struct entry, link));
	while ((link = hf_list_pop_front(&export_counts->exports)))
		free(hf_list_entry(link, struct hf_export_count, link));
	hf_hashtable_deinit(&export_counts->entries);
}
