/*
 * Slab pool. A slab starts with struct hf_pool_slab; its free objects form a
 * list through their first word. Objects that were never used are not on that
 * list but counted by @n_fresh, so a new slab is not touched before it is
 * needed.
 *
 * Invariants: pool->n_free is the sum of free objects over all slabs. A slab is
 * on @partial exactly if it has a free object. @spare is empty. Other slabs are
 * empty only while a reservation needs them.
 *
 * Under AddressSanitizer free objects are poisoned.
 */
#include "base/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/macros.h"

#if defined(__SANITIZE_ADDRESS__)
#define POOL_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POOL_ASAN 1
#endif
#endif
#ifdef POOL_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

struct hf_pool_slab {
	struct hf_link link;
	void *free; /* returned objects, linked through their first word */
	uint32_t n_used;
	uint32_t n_fresh; /* never used: the last ones of the slab */
};

static void init(struct hf_pool *pool, size_t size, size_t align, size_t slab_size)
{
	assert(align >= sizeof(void *) && (align & (align - 1)) == 0 && size > 0);
	*pool = (struct hf_pool){ 0 };
	hf_list_init(&pool->partial);
	hf_list_init(&pool->full);
	pool->size = (uint32_t)((size + align - 1) & ~(align - 1));
	pool->first = (uint32_t)((sizeof(struct hf_pool_slab) + align - 1) & ~(align - 1));
	pool->slab_size = slab_size;
	pool->per_slab = (uint32_t)((slab_size - pool->first) / pool->size);
	assert(pool->per_slab > 0);
}

void hf_pool_init(struct hf_pool *pool, size_t size, size_t align)
{
	init(pool, size, align, HF_POOL_SLAB);
}

void hf_pool_init_huge(struct hf_pool *pool, size_t size, size_t align)
{
	init(pool, size, align, HF_POOL_SLAB_HUGE);
}

static void free_slab(struct hf_pool *pool, struct hf_pool_slab *slab)
{
	hf_link_remove(&slab->link);
	pool->n_free -= pool->per_slab - slab->n_used;
	pool->n_slabs--;
	UNPOISON(slab, pool->slab_size);
	free(slab);
}

static void free_slabs(struct hf_pool *pool, struct hf_list *list)
{
	hf_list_for_each_safe(pos, list)
		free_slab(pool, hf_list_entry(pos, struct hf_pool_slab, link));
}

void hf_pool_deinit(struct hf_pool *pool)
{
	if (!pool->size)
		return;
	free_slabs(pool, &pool->partial);
	free_slabs(pool, &pool->full);
	*pool = (struct hf_pool){ 0 };
}

static int add_slab(struct hf_pool *pool)
{
	struct hf_pool_slab *slab;

	if (pool->n_slabs_max && pool->n_slabs >= pool->n_slabs_max)
		return -ENOMEM;
	slab = aligned_alloc(pool->slab_size, pool->slab_size);
	if (!slab)
		return -ENOMEM;
	if (pool->slab_size == HF_POOL_SLAB_HUGE && pool->n_slabs > 0)
		madvise(slab, pool->slab_size, MADV_HUGEPAGE); /* only a hint; small pages work, too */
	slab->free = NULL;
	slab->n_used = 0;
	slab->n_fresh = pool->per_slab;
	POISON((char *)slab + pool->first, pool->slab_size - pool->first);
	hf_list_push_back(&pool->partial, &slab->link);
	pool->n_free += pool->per_slab;
	pool->n_slabs++;
	if (!pool->spare)
		pool->spare = slab;
	return 0;
}

int hf_pool_reserve_more(struct hf_pool *pool, size_t n)
{
	while (pool->n_free < n) {
		int r = add_slab(pool);

		if (r < 0)
			return hf_trace(r);
	}
	pool->n_reserved = n;
	return 0;
}

void *hf_pool_take(struct hf_pool *pool)
{
	struct hf_pool_slab *slab;
	char *object;

	assert(pool->n_free > 0);
	slab = hf_list_entry(pool->partial.head.next, struct hf_pool_slab, link);
	if (slab->free) {
		object = slab->free;
		UNPOISON(object, pool->size);
		slab->free = *(void **)object;
	} else {
		object = (char *)slab + pool->first + (size_t)(pool->per_slab - slab->n_fresh) * pool->size;
		slab->n_fresh--;
		UNPOISON(object, pool->size);
	}
	if (slab == pool->spare)
		pool->spare = NULL;
	slab->n_used++;
	pool->n_used++;
	pool->n_free--;
	if (HF_UNLIKELY(slab->n_used == pool->per_slab)) {
		hf_link_remove(&slab->link);
		hf_list_push_back(&pool->full, &slab->link);
	}
	return object;
}

void hf_pool_give(struct hf_pool *pool, void *object)
{
	struct hf_pool_slab *slab = (struct hf_pool_slab *)((uintptr_t)object & ~(pool->slab_size - 1));

	if (HF_UNLIKELY(slab->n_used == pool->per_slab)) {
		hf_link_remove(&slab->link);
		hf_list_push_front(&pool->partial, &slab->link);
	}
	*(void **)object = slab->free;
	slab->free = object;
	POISON(object, pool->size);
	slab->n_used--;
	pool->n_used--;
	pool->n_free++;
	if (HF_LIKELY(slab->n_used > 0))
		return;
	if (!pool->spare)
		pool->spare = slab;
	else if (pool->spare != slab && pool->n_free - pool->per_slab >= pool->n_reserved)
		free_slab(pool, slab);
}
