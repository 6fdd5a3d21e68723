/*
 * Slab pool: objects of one size without a malloc header.
 *
 * Objects live in slabs of HF_POOL_SLAB bytes, aligned to that size, so that a
 * pointer leads to its slab. A pool that may hold millions, found by pointers in
 * no order, is better begun with hf_pool_init_huge(): its slabs are huge pages
 * (from the second on; a small pool costs no more than otherwise), which saves
 * most misses of the address translation. Objects start at a multiple of @align (a power of
 * two), 64 for those that want to own their cache lines. A slab that becomes
 * empty goes back to the system, one spare excepted.
 *
 * hf_pool_reserve() makes room beforehand, so that a change that takes several
 * objects either can be done or is not begun:
 *
 *	r = hf_pool_reserve(&pool, 3);
 *	if (r < 0)
 *		return hf_trace(r);
 *	a = hf_pool_take(&pool);        (cannot fail three times)
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/macros.h"

#define HF_POOL_SLAB      ((size_t)64 * 1024)
#define HF_POOL_SLAB_HUGE ((size_t)2048 * 1024)

struct hf_pool_slab;

struct hf_pool {
	struct hf_list partial;     /* slabs with at least one free object */
	struct hf_list full;        /* slabs without */
	struct hf_pool_slab *spare; /* the one slab on @partial that is empty, or NULL */
	size_t slab_size;
	uint32_t size;  /* of an object, rounded up to @align */
	uint32_t first; /* offset of the first object in a slab */
	uint32_t per_slab;
	size_t n_used;
	size_t n_free;
	size_t n_reserved; /* by the last hf_pool_reserve(): not given back to the system */
	size_t n_slabs;
	size_t n_slabs_max; /* 0: no limit; for tests of -ENOMEM */
};

void hf_pool_init(struct hf_pool *pool, size_t size, size_t align);
void hf_pool_init_huge(struct hf_pool *pool, size_t size, size_t align);
void hf_pool_deinit(struct hf_pool *pool); /* frees what is still taken, too */

/* 0 or -ENOMEM: the next @n calls of hf_pool_take() cannot fail, whatever is given back in between. */
HF_COLD int hf_pool_reserve_more(struct hf_pool *pool, size_t n);
static inline int hf_pool_reserve(struct hf_pool *pool, size_t n)
{
	if (HF_UNLIKELY(pool->n_free < n))
		return hf_pool_reserve_more(pool, n);
	pool->n_reserved = n;
	return 0;
}

/* Not cleared. Must have been reserved. */
void *hf_pool_take(struct hf_pool *pool);
void hf_pool_give(struct hf_pool *pool, void *object);

/* What the pool has from the system, whether used or not. */
static inline size_t hf_pool_bytes(const struct hf_pool *pool)
{
	return pool->n_slabs * pool->slab_size;
}
