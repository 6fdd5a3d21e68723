/*
 * Slab pool: objects of one size without a malloc header.
 *
 * Objects live in slabs of HF_POOL_SLAB bytes, aligned to that size, so that a
 * pointer leads to its slab. Use hf_pool_init_huge() for a pool of millions of
 * objects that are accessed in random order: its slabs from the second on are
 * huge pages, which saves most TLB misses, and a small pool costs no more than
 * otherwise. Objects start at a multiple of @align (a power of two); 64 gives
 * each its own cache lines. An empty slab returns to the system, except one
 * spare.
 *
 * hf_pool_reserve() makes room beforehand, so that a change that needs several
 * objects either succeeds or does not begin:
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
	struct hf_list full;        /* slabs without a free object */
	struct hf_pool_slab *spare; /* the one slab on @partial that is empty, or NULL */
	size_t slab_size;
	uint32_t size;  /* of an object, rounded up to @align */
	uint32_t first; /* offset of the first object in a slab */
	uint32_t per_slab;
	size_t n_used;
	size_t n_free;
	size_t n_reserved; /* by the last hf_pool_reserve(): these stay with the pool */
	size_t n_slabs;
	size_t n_slabs_max; /* 0: no limit; for tests of -ENOMEM */
};

void hf_pool_init(struct hf_pool *pool, size_t size, size_t align);
void hf_pool_init_huge(struct hf_pool *pool, size_t size, size_t align);
void hf_pool_deinit(struct hf_pool *pool); /* also frees objects that are still taken */

/* 0: the next @n calls of hf_pool_take() cannot fail, even if objects are given in between. -ENOMEM. */
HF_COLD int hf_pool_reserve_more(struct hf_pool *pool, size_t n);
static inline int hf_pool_reserve(struct hf_pool *pool, size_t n)
{
	if (HF_UNLIKELY(pool->n_free < n))
		return hf_pool_reserve_more(pool, n);
	pool->n_reserved = n;
	return 0;
}

/* The object is not cleared. It must have been reserved. */
void *hf_pool_take(struct hf_pool *pool);
void hf_pool_give(struct hf_pool *pool, void *object);

/* Memory that the pool has from the system, used or not. */
static inline size_t hf_pool_bytes(const struct hf_pool *pool)
{
	return pool->n_slabs * pool->slab_size;
}
