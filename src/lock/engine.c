/*
 * The engine as a whole: creation, limits, clients, counters.
 *
 * All memory is in the engine's pools. To free the engine frees every record,
 * also while owners hold locks.
 */
#include "lock/internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

static const struct hf_lock_events no_events;

static uint32_t limit(uint32_t given, uint32_t standard)
{
	return given ? given : standard;
}

static uint32_t half_of(uint32_t n)
{
	return n / 2 + n % 2;
}

static uint64_t limit64(uint64_t given, uint64_t standard)
{
	return given ? given : standard;
}

static void set_limits(struct hf_lock_limits *limits, const struct hf_lock_limits *given)
{
	*limits = (struct hf_lock_limits){
		.locks_per_client = limit(given->locks_per_client, 1 << 18),
		.locks_per_file = limit(given->locks_per_file, 1 << 20),
		.locks = limit(given->locks, 1 << 23),
		.waiters_per_file = limit(given->waiters_per_file, 1 << 11),
		.waiters_per_client = limit(given->waiters_per_client, 1 << 12),
		.reservations_per_client = limit(given->reservations_per_client, 1 << 16),
		.reservations_per_file = limit(given->reservations_per_file, 1 << 16),
		.reservations = limit(given->reservations, 1 << 20),
		.waiters = limit(given->waiters, 1 << 18),
		.oh_bytes = limit64(given->oh_bytes, UINT64_C(1) << 27),
	};
	limits->locks_per_group = limit(given->locks_per_group, half_of(limits->locks));
	limits->waiters_per_group = limit(given->waiters_per_group, half_of(limits->waiters));
	limits->reservations_per_group = limit(given->reservations_per_group, half_of(limits->reservations));
	limits->bytes = limit64(given->bytes, (uint64_t)limits->locks << 9);
	limits->bytes_per_group = limit64(given->bytes_per_group, limits->bytes / 2);
	limits->bytes_per_client = limit64(given->bytes_per_client, (uint64_t)limits->locks_per_client << 11);
}

static void init_pools(struct hf_locks *locks)
{
	hf_pool_init_huge(&locks->lock_pool, sizeof(struct hf_lock), 64);
	hf_tree_pools_init(&locks->trees);
	hf_pool_init(&locks->waiter_pool, sizeof(struct hf_waiter), 8);
	hf_pool_init_huge(&locks->holding_pool, sizeof(struct hf_holding), 8);
	hf_pool_init_huge(&locks->owner_pool, sizeof(struct hf_owner), 8);
	hf_pool_init_huge(&locks->file_pool, sizeof(struct hf_lock_file), 8);
	hf_pool_init(&locks->reservation_pool, sizeof(struct hf_lock_reservation), 8);
	hf_pool_init(&locks->oh_pool, HF_LOCK_OH_MAX, 8);
}

int hf_locks_new(struct hf_locks **locksp, const struct hf_locks_options *options)
{
	struct hf_locks *locks = calloc(1, sizeof(*locks));
	int r;

	if (!locks)
		return hf_trace(-ENOMEM);
	locks->recent = malloc(sizeof(*locks->recent));
	r = locks->recent ? 0 : -ENOMEM;
	if (!r)
		r = hf_hashtable_init(&locks->files);
	if (!r)
		r = hf_hashtable_init(&locks->owners);
	if (!r)
		r = hf_hashtable_init(&locks->reservations);
	if (r < 0) {
		hf_hashtable_deinit(&locks->files);
		hf_hashtable_deinit(&locks->owners);
		free(locks->recent);
		free(locks);
		return hf_trace(r);
	}
	hf_recent_init(locks->recent);
	hf_list_init(&locks->unreclaimed);
	hf_list_init(&locks->unreclaimed_reservations);
	hf_list_init(&locks->dirty);
	for (size_t i = 0; i < HF_N_CROWDS; i++)
		hf_list_init(&locks->crowds[i]);
	init_pools(locks);
	set_limits(&locks->limits, &options->limits);
	hf_room_init(locks);
	locks->key = options->key;
	locks->epoch = options->epoch;
	locks->events = options->events ? options->events : &no_events;
	locks->context = options->context;
	locks->outside = options->outside;
	locks->outside_context = options->outside_context;
	*locksp = locks;
	return 0;
}

void hf_locks_free(struct hf_locks *locks)
{
	if (!locks)
		return;
	assert(!locks->in_event);
	hf_pool_deinit(&locks->lock_pool);
	hf_tree_pools_deinit(&locks->trees);
	hf_pool_deinit(&locks->waiter_pool);
	hf_pool_deinit(&locks->holding_pool);
	hf_pool_deinit(&locks->owner_pool);
	hf_pool_deinit(&locks->file_pool);
	hf_pool_deinit(&locks->reservation_pool);
	hf_pool_deinit(&locks->oh_pool);
	hf_hashtable_deinit(&locks->files);
	hf_hashtable_deinit(&locks->owners);
	hf_hashtable_deinit(&locks->reservations);
	free(locks->recent);
	free(locks);
}

void hf_lock_client_init(struct hf_locks *locks, struct hf_lock_client *client)
{
	*client = (struct hf_lock_client){ .id = ++locks->last_client, .group = &locks->alone };
	hf_list_init(&client->reservations);
}

void hf_lock_client_join(struct hf_lock_client *client, struct hf_lock_group *group)
{
	assert(hf_lock_client_is_idle(client));
	client->group = group;
}

bool hf_lock_client_is_idle(const struct hf_lock_client *client)
{
	return hf_rb_is_empty(&client->owners) && hf_list_is_empty(&client->reservations);
}

void hf_lock_count(const struct hf_locks *locks, struct hf_lock_counters *countersp)
{
	*countersp = locks->n;
	countersp->bytes = hf_pool_bytes(&locks->lock_pool) + hf_pool_bytes(&locks->waiter_pool) +
			   hf_pool_bytes(&locks->holding_pool) + hf_pool_bytes(&locks->owner_pool) +
			   hf_pool_bytes(&locks->file_pool) + hf_pool_bytes(&locks->reservation_pool) +
			   hf_pool_bytes(&locks->oh_pool) + hf_tree_pools_bytes(&locks->trees);
}
