/*
 * The engine itself: creation, the clients' side of it, views and events. All
 * memory is in its pools, so that freeing the engine frees everything, whoever
 * still holds locks.
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
		.shares_per_client = limit(given->shares_per_client, 1 << 16),
		.shares_per_file = limit(given->shares_per_file, 1 << 16),
		.shares = limit(given->shares, 1 << 20),
		.waiters = limit(given->waiters, 1 << 18),
		.oh_bytes = limit64(given->oh_bytes, UINT64_C(1) << 27),
	};
	limits->locks_per_group = limit(given->locks_per_group, half_of(limits->locks));
	limits->waiters_per_group = limit(given->waiters_per_group, half_of(limits->waiters));
	limits->shares_per_group = limit(given->shares_per_group, half_of(limits->shares));
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
	hf_pool_init_huge(&locks->file_pool, sizeof(struct hf_file), 8);
	hf_pool_init(&locks->share_pool, sizeof(struct hf_share), 8);
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
		r = hf_hashtable_init(&locks->shares);
	if (r < 0) {
		hf_hashtable_deinit(&locks->files);
		hf_hashtable_deinit(&locks->owners);
		free(locks->recent);
		free(locks);
		return hf_trace(r);
	}
	hf_recent_init(locks->recent);
	hf_list_init(&locks->unreclaimed);
	hf_list_init(&locks->dirty);
	init_pools(locks);
	set_limits(&locks->limits, &options->limits);
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
	hf_pool_deinit(&locks->share_pool);
	hf_pool_deinit(&locks->oh_pool);
	hf_hashtable_deinit(&locks->files);
	hf_hashtable_deinit(&locks->owners);
	hf_hashtable_deinit(&locks->shares);
	free(locks->recent);
	free(locks);
}

void hf_lock_client_init(struct hf_locks *locks, struct hf_lock_client *client)
{
	*client = (struct hf_lock_client){ .id = ++locks->last_client, .group = &locks->alone };
	hf_list_init(&client->shares);
}

void hf_lock_client_join(struct hf_lock_client *client, struct hf_lock_group *group)
{
	assert(hf_lock_client_is_idle(client));
	client->group = group;
}

bool hf_lock_client_is_idle(const struct hf_lock_client *client)
{
	return hf_rb_is_empty(&client->owners) && hf_list_is_empty(&client->shares);
}

void hf_lock_count(const struct hf_locks *locks, struct hf_lock_counters *countersp)
{
	*countersp = locks->n;
	countersp->bytes = hf_pool_bytes(&locks->lock_pool) + hf_pool_bytes(&locks->waiter_pool) +
			   hf_pool_bytes(&locks->holding_pool) + hf_pool_bytes(&locks->owner_pool) +
			   hf_pool_bytes(&locks->file_pool) + hf_pool_bytes(&locks->share_pool) +
			   hf_pool_bytes(&locks->oh_pool) + hf_tree_pools_bytes(&locks->trees);
}

/* VIEW */

void hf_view_target(const struct hf_holding *holding, struct hf_lock_target *who)
{
	const struct hf_file *file = holding->file;
	const struct hf_owner *owner = holding->owner;

	*who = (struct hf_lock_target){
		.share = holding->share,
		.handle = hf_bytes_of(file->handle, file->handle_len),
		.client = owner->client,
		.owner_id = owner->id,
		.owner_kind = owner->kind,
		.oh = hf_oh_bytes(&owner->oh),
	};
}

void hf_view_lock(const struct hf_lock *lock, struct hf_lock_view *viewp)
{
	*viewp = (struct hf_lock_view){
		.id = lock->id,
		.tag = lock->tag,
		.range = hf_lock_range(lock),
		.mode = (enum hf_lock_mode)lock->mode,
		.client_state = lock->state,
		.epoch = lock->epoch,
		.flags = lock->flags & HF_LOCK_PUBLIC_FLAGS,
	};
	hf_view_target(lock->holding, &viewp->who);
}

void hf_view_waiter(const struct hf_waiter *waiter, struct hf_lock_view *viewp)
{
	*viewp = (struct hf_lock_view){
		.id = waiter->id,
		.range = hf_waiter_range(waiter),
		.mode = (enum hf_lock_mode)waiter->mode,
		.client_state = waiter->state,
		.flags = (waiter->is_volatile ? HF_LOCK_VOLATILE : 0u) |
			 (waiter->is_granted ? HF_LOCK_PROVISIONAL : 0u),
		.waits = true,
		.offset = waiter->offset,
		.len = waiter->len,
		.user = waiter->user,
		.stamp = waiter->stamp,
	};
	hf_view_target(waiter->holding, &viewp->who);
}

/* EVENTS */

void hf_lock_show(const struct hf_lock_change *change, struct hf_lock_view *viewp)
{
	hf_view_lock(change->lock, viewp);
}

static struct hf_lock_change change_of(const struct hf_lock *lock)
{
	return (struct hf_lock_change){
		.tag = lock->tag,
		.client = lock->holding->owner->client,
		.share = lock->holding->share,
		.flags = lock->flags & HF_LOCK_PUBLIC_FLAGS,
		.lock = lock,
	};
}

void hf_emit_added(struct hf_locks *locks, struct hf_lock *lock)
{
	struct hf_lock_change change;

	if (!locks->events->added)
		return;
	change = change_of(lock);
	locks->in_event = true;
	lock->tag = locks->events->added(locks->context, &change);
	locks->in_event = false;
}

static void emit(struct hf_locks *locks, const struct hf_lock *lock,
		 void (*event)(void *context, const struct hf_lock_change *lock))
{
	struct hf_lock_change change;

	if (!event)
		return;
	change = change_of(lock);
	locks->in_event = true;
	event(locks->context, &change);
	locks->in_event = false;
}

void hf_emit_removed(struct hf_locks *locks, const struct hf_lock *lock)
{
	emit(locks, lock, locks->events->removed);
}

void hf_emit_hidden(struct hf_locks *locks, const struct hf_lock *lock)
{
	emit(locks, lock, locks->events->hidden);
}

void hf_emit_granted(struct hf_locks *locks, const struct hf_waiter *waiter)
{
	struct hf_lock_view view;

	if (!locks->events->granted)
		return;
	hf_view_waiter(waiter, &view);
	locks->in_event = true;
	locks->events->granted(locks->context, &view);
	locks->in_event = false;
}

void hf_emit_gone(struct hf_locks *locks, const struct hf_waiter *waiter, enum hf_lock_end why)
{
	struct hf_lock_view view;

	if (!locks->events->waiter_gone)
		return;
	hf_view_waiter(waiter, &view);
	locks->in_event = true;
	locks->events->waiter_gone(locks->context, &view, why);
	locks->in_event = false;
}
