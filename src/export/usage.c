#include "export/usage.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/hashtable.h"
#include "base/list.h"
#include "base/metric.h"
#include "base/siphash.h"
#include "loop/loop.h"

struct key { /* without gaps, to be hashed */
	struct hf_addr client;
	uint64_t export_id;
};

/* Its loop writes it, any thread reads it. */
struct counters {
	_Atomic uint64_t n[HF_N_USAGE_COUNTERS];
	_Atomic uint64_t last_used;
};

struct pair {
	struct hf_hash_node node;
	struct hf_link link; /* in table->recent */
	struct key key;
	struct counters counters;
};

struct table {
	pthread_mutex_t lock; /* while pairs get or lose their places; a reader has it for its whole walk */
	struct hf_hashtable by_key;
	struct hf_list recent; /* the most recently used first */
	struct pair *pairs; /* room for as many as the loop may ever have; untouched memory costs nothing */
	size_t n;
	struct counters others;
	bool has_lock;
};

struct hf_usage {
	struct hf_siphash_key hash_key; /* (c) */
	size_t n_own;                   /* (c) places of each loop */
	size_t n_shared;                /* (c) places for the loops that need them first */
	_Atomic size_t n_taken;         /* of these */
	_Atomic uint64_t n_forgotten;   /* pairs that made room */
	size_t n_tables;                /* (c) */
	struct table *tables[];
};

/* Making and freeing */

static void table_free(struct table *table)
{
	if (!table)
		return;
	if (table->has_lock)
		pthread_mutex_destroy(&table->lock);
	hf_hashtable_deinit(&table->by_key);
	free(table->pairs);
	free(table);
}

static int table_new(struct table **tablep, size_t max_pairs)
{
	struct table *table = calloc(1, sizeof(*table));

	*tablep = table;
	if (!table)
		return hf_trace(-ENOMEM);
	table->has_lock = pthread_mutex_init(&table->lock, NULL) == 0;
	hf_list_init(&table->recent);
	table->pairs = calloc(max_pairs, sizeof(*table->pairs));
	if (!table->pairs || !table->has_lock)
		return hf_trace(-ENOMEM);
	return hf_trace(hf_hashtable_init(&table->by_key));
}

int hf_usage_new(struct hf_usage **usagep, size_t n_loops, size_t max_pairs, struct hf_loop *loop)
{
	hf_cleanup(hf_usage_freep) struct hf_usage *usage =
		calloc(1, sizeof(*usage) + n_loops * sizeof(usage->tables[0]));
	int r = 0;

	assert(n_loops && max_pairs >= 2 * n_loops);
	if (!usage)
		return hf_trace(-ENOMEM);
	hf_loop_random(loop, &usage->hash_key, sizeof(usage->hash_key));
	usage->n_own = max_pairs / 2 / n_loops;
	usage->n_shared = max_pairs - usage->n_own * n_loops;
	while (usage->n_tables < n_loops && r == 0)
		r = table_new(&usage->tables[usage->n_tables++], usage->n_own + usage->n_shared);
	if (r < 0)
		return r;
	*usagep = usage;
	usage = NULL;
	return 0;
}

struct hf_usage *hf_usage_free(struct hf_usage *usage)
{
	for (size_t i = 0; usage && i < usage->n_tables; i++)
		table_free(usage->tables[i]);
	free(usage);
	return NULL;
}

/* Counting */

static void count(struct counters *counters, const struct hf_usage_call *call)
{
	hf_metric_add(&counters->n[call->kind], 1);
	if (call->n_read)
		hf_metric_add(&counters->n[HF_USAGE_BYTES_READ], call->n_read);
	if (call->n_written)
		hf_metric_add(&counters->n[HF_USAGE_BYTES_WRITTEN], call->n_written);
	if (call->has_failed)
		hf_metric_add(&counters->n[HF_USAGE_ERRORS], 1);
	atomic_store_explicit(&counters->last_used, call->now, memory_order_relaxed);
}

static bool is_of(const struct pair *pair, const struct hf_addr *client, uint64_t export_id)
{
	return pair->key.export_id == export_id && hf_addr_same_host(&pair->key.client, client);
}

/* NULL: the loop has used up its own places and all shared ones. */
static struct pair *take_place(struct hf_usage *usage, struct table *table)
{
	if (table->n >= usage->n_own) {
		size_t n = atomic_load_explicit(&usage->n_taken, memory_order_relaxed);

		do {
			if (n == usage->n_shared)
				return NULL;
		} while (!atomic_compare_exchange_weak_explicit(&usage->n_taken, &n, n + 1,
								memory_order_relaxed, memory_order_relaxed));
	}
	return &table->pairs[table->n++];
}

static void move_counters(struct counters *to, struct counters *from)
{
	uint64_t last_used = hf_metric_read(&from->last_used);

	for (size_t i = 0; i < HF_N_USAGE_COUNTERS; i++)
		hf_metric_add(&to->n[i], hf_metric_read(&from->n[i]));
	if (last_used > hf_metric_read(&to->last_used))
		atomic_store_explicit(&to->last_used, last_used, memory_order_relaxed);
	*from = (struct counters){ 0 };
}

static struct pair *take_oldest(struct table *table)
{
	struct pair *pair = hf_list_entry(hf_list_last(&table->recent), struct pair, link);

	move_counters(&table->others, &pair->counters);
	hf_hashtable_remove(&table->by_key, &pair->node);
	hf_link_remove(&pair->link);
	return pair;
}

static struct pair *add(struct hf_usage *usage, struct table *table, const struct key *key, uint64_t hash)
{
	struct pair *pair;

	pthread_mutex_lock(&table->lock);
	pair = take_place(usage, table);
	if (!pair) {
		pair = take_oldest(table);
		atomic_fetch_add_explicit(&usage->n_forgotten, 1, memory_order_relaxed);
	}
	pair->key = *key;
	hf_hashtable_insert(&table->by_key, &pair->node, hash);
	hf_list_push_front(&table->recent, &pair->link);
	pthread_mutex_unlock(&table->lock);
	return pair;
}

static struct pair *find_or_add(struct hf_usage *usage, struct table *table, const struct hf_addr *client,
				uint64_t export_id)
{
	struct key key = { .client = *client, .export_id = export_id };
	uint64_t hash;

	key.client.port = 0;
	hash = hf_siphash(&usage->hash_key, &key, sizeof(key));
	hf_hash_for_each(node, &table->by_key, hash) {
		struct pair *pair = hf_container_of(node, struct pair, node);

		if (!is_of(pair, client, export_id))
			continue;
		hf_link_remove(&pair->link);
		hf_list_push_front(&table->recent, &pair->link);
		return pair;
	}
	return add(usage, table, &key, hash);
}

static struct counters *counters_of(struct hf_usage *usage, size_t loop, const struct hf_addr *client,
				    uint64_t export_id)
{
	struct table *table = usage->tables[loop];
	struct hf_link *first = hf_list_first(&table->recent);
	struct pair *pair = first ? hf_list_entry(first, struct pair, link) : NULL;

	if (!export_id)
		return &table->others;
	/* Most calls are of the same pair as the call before. */
	if (!pair || !is_of(pair, client, export_id))
		pair = find_or_add(usage, table, client, export_id);
	return &pair->counters;
}

void hf_usage_count(struct hf_usage *usage, size_t loop, const struct hf_addr *client,
		    const struct hf_usage_call *call)
{
	assert(call->kind < HF_USAGE_N_KINDS);
	count(counters_of(usage, loop, client, call->export_id), call);
}

void hf_usage_count_error(struct hf_usage *usage, size_t loop, const struct hf_addr *client,
			  uint64_t export_id)
{
	hf_metric_add(&counters_of(usage, loop, client, export_id)->n[HF_USAGE_ERRORS], 1);
}

/* Reading */

static void add_counters(struct hf_usage_counts *to, const struct counters *from)
{
	for (size_t i = 0; i < HF_N_USAGE_COUNTERS; i++)
		to->n[i] += hf_metric_read(&from->n[i]);
	to->last_used = HF_MAX(to->last_used, hf_metric_read(&from->last_used));
}

static void add_row(struct hf_usage_row *to, const struct hf_usage_row *from)
{
	for (size_t i = 0; i < HF_N_USAGE_COUNTERS; i++)
		to->counts.n[i] += from->counts.n[i];
	to->counts.last_used = HF_MAX(to->counts.last_used, from->counts.last_used);
}

static size_t copy_table(struct table *table, struct hf_usage_row *rows, struct hf_usage_counts *othersp)
{
	size_t n;

	pthread_mutex_lock(&table->lock);
	n = table->n;
	for (size_t i = 0; i < n; i++) {
		rows[i].client = table->pairs[i].key.client;
		rows[i].export_id = table->pairs[i].key.export_id;
		rows[i].counts = (struct hf_usage_counts){ 0 };
		add_counters(&rows[i].counts, &table->pairs[i].counters);
	}
	add_counters(othersp, &table->others);
	pthread_mutex_unlock(&table->lock);
	return n;
}

void hf_usage_show_limit(struct hf_usage *usage, struct hf_limit_use *use)
{
	*use = (struct hf_limit_use){ .max = usage->n_own * usage->n_tables + usage->n_shared,
				      .refused = atomic_load_explicit(&usage->n_forgotten,
								      memory_order_relaxed) };
	for (size_t i = 0; i < usage->n_tables; i++) {
		pthread_mutex_lock(&usage->tables[i]->lock);
		use->used += usage->tables[i]->n;
		pthread_mutex_unlock(&usage->tables[i]->lock);
	}
}

static int by_key(const void *a, const void *b)
{
	const struct hf_usage_row *x = a, *y = b;
	int order = (x->client.family > y->client.family) - (x->client.family < y->client.family);

	if (order == 0)
		order = memcmp(&x->client, &y->client, sizeof(x->client));
	return order ? order : (x->export_id > y->export_id) - (x->export_id < y->export_id);
}

int hf_usage_list(struct hf_usage *usage, struct hf_usage_row **rowsp, size_t *np,
		  struct hf_usage_counts *othersp)
{
	struct hf_usage_row *rows =
		calloc(usage->n_own * usage->n_tables + usage->n_shared, sizeof(struct hf_usage_row));
	size_t n = 0, n_merged = 0;

	if (!rows)
		return hf_trace(-ENOMEM);
	*othersp = (struct hf_usage_counts){ 0 };
	for (size_t i = 0; i < usage->n_tables; i++)
		n += copy_table(usage->tables[i], rows + n, othersp);
	qsort(rows, n, sizeof(*rows), by_key);
	for (size_t i = 0; i < n; i++) {
		if (n_merged && by_key(&rows[n_merged - 1], &rows[i]) == 0)
			add_row(&rows[n_merged - 1], &rows[i]);
		else
			rows[n_merged++] = rows[i];
	}
	*rowsp = rows;
	*np = n_merged;
	return 0;
}
