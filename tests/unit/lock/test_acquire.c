/* May this owner have this range: conflicts, upgrades, limits, want of memory. */
#include "bed.h"

#include <errno.h>
#include <stdlib.h>

#include "lock/internal.h"

static void test_shared_beside_shared(void **state)
{
	assert_int_equal(bed_lock(*state, 1, S, 0, 9), HF_LOCK_OK);
	assert_int_equal(bed_lock(*state, 11, S, 5, 14), HF_LOCK_OK);
}

static void test_exclusive_against_shared(void **state)
{
	bed_lock(*state, 1, S, 0, 9);
	assert_int_equal(bed_lock(*state, 11, E, 9, 9), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed_lock(*state, 11, E, 10, 10), HF_LOCK_OK);
}

static void test_shared_against_exclusive(void **state)
{
	bed_lock(*state, 1, E, 5, TO_EOF);
	assert_int_equal(bed_lock(*state, 11, S, 0, 5), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed_lock(*state, 11, S, TO_EOF, TO_EOF), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed_lock(*state, 11, S, 0, 4), HF_LOCK_OK);
}

static void test_owners_of_one_client_conflict(void **state)
{
	bed_lock(*state, 1, E, 0, 9);
	assert_int_equal(bed_lock(*state, 2, E, 0, 9), HF_LOCK_E_CONFLICT);
}

static void test_conflict_shows_the_holder(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 3, TO_EOF);
	bed_lock(bed, 11, E, 0, 9);
	assert_int_equal(bed->conflict.who.owner_id, 1);
	assert_true(bed->conflict.range.start == 3 && bed->conflict.range.end == TO_EOF);
	assert_int_equal(bed->conflict.mode, E);
	assert_int_equal(bed->conflict.epoch, 7);
	assert_int_equal(bed->conflict.client_state, 1);
	assert_false(bed->conflict.waits);
}

static void test_upgrade_by_the_only_reader(void **state)
{
	bed_lock(*state, 1, S, 0, 9);
	assert_int_equal(bed_lock(*state, 1, E, 0, 9), HF_LOCK_OK);
	assert_locked(*state, 1, "E[0,9]");
}

static void test_refused_upgrade_keeps_the_shared_lock(void **state)
{
	bed_lock(*state, 1, S, 0, 9);
	bed_lock(*state, 11, S, 5, 5);
	assert_int_equal(bed_lock(*state, 1, E, 0, 9), HF_LOCK_E_CONFLICT);
	assert_locked(*state, 1, "S[0,9]");
}

static void test_foreign_lock_among_many_own_ones(void **state)
{
	for (uint64_t i = 0; i < 1000; i++) {
		bed_lock(*state, 1, S, 2 * i, 2 * i);
		bed_told(*state);
	}
	bed_lock(*state, 11, S, 1001, 1001);
	assert_int_equal(bed_test(*state, 1, E, 0, 1000), HF_LOCK_OK);
	assert_int_equal(bed_test(*state, 1, E, 0, 1001), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed_test(*state, 1, E, 1001, TO_EOF), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed_test(*state, 1, E, 1002, TO_EOF), HF_LOCK_OK);
	((struct bed *)*state)->is_silent = true; /* the purge of them all */
}

static void test_test_shows_and_changes_nothing(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, S, 0, 9);
	bed_told(bed);
	assert_int_equal(bed_test(bed, 11, S, 0, 9), HF_LOCK_OK);
	assert_int_equal(bed_test(bed, 1, E, 0, 9), HF_LOCK_OK);
	assert_int_equal(bed_test(bed, 11, E, 9, 20), HF_LOCK_E_CONFLICT);
	assert_int_equal(bed->conflict.who.owner_id, 1);
	bed->file = 1;
	assert_int_equal(bed_test(bed, 11, E, 9, 20), HF_LOCK_OK);
	assert_int_equal(bed_count(bed).files, 1);
	assert_told(bed, "");
}

static void test_involved_says_who_has_anything_in_a_file(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_target holder = bed_target(bed, 1), waiter = bed_target(bed, 11);

	struct hf_bytes oh;

	assert_false(hf_lock_is_involved(bed->locks, &holder));
	assert_false(hf_lock_find_oh(bed->locks, &holder, &oh));
	bed_lock(bed, 1, E, 0, 9);
	bed_wait(bed, 11, E, 0, 9);
	assert_true(hf_lock_find_oh(bed->locks, &holder, &oh));
	assert_true(hf_bytes_equal(oh, holder.oh));
	assert_true(hf_lock_is_involved(bed->locks, &holder));
	assert_true(hf_lock_is_involved(bed->locks, &waiter));
	bed_cancel(bed, 11, E, 0, 9);
	assert_false(hf_lock_is_involved(bed->locks, &waiter));
}

static void test_touches_says_the_same_of_a_range(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_target holder = bed_target(bed, 1), waiter = bed_target(bed, 11);
	const struct hf_range before = { 0, 9 }, part = { 5, 10 }, inside = { 12, 13 }, behind = { 20, 29 };

	assert_false(hf_lock_touches(bed->locks, &holder, inside));
	bed_lock(bed, 1, S, 10, 19);
	bed_wait(bed, 11, E, 10, 19);
	for (int i = 0; i < 2; i++) {
		const struct hf_lock_target *who = i ? &waiter : &holder;

		assert_false(hf_lock_touches(bed->locks, who, before));
		assert_true(hf_lock_touches(bed->locks, who, part));
		assert_true(hf_lock_touches(bed->locks, who, inside));
		assert_false(hf_lock_touches(bed->locks, who, behind));
	}
	bed_unlock(bed, 1, 10, 19);
	assert_false(hf_lock_touches(bed->locks, &holder, inside));
	assert_true(hf_lock_touches(bed->locks, &waiter, inside)); /* a grant in flight */
}

/* LIMITS */

static void test_limit_of_a_client(void **state)
{
	struct bed bed;

	bed_open_with(&bed, &(struct hf_lock_limits){ .locks_per_client = 3 });
	bed_lock(&bed, 1, E, 0, 0);
	bed_lock(&bed, 2, E, 2, 2);
	bed_lock(&bed, 3, E, 4, 4);
	assert_int_equal(bed_lock(&bed, 1, E, 6, 6), HF_LOCK_E_LIMIT);
	assert_int_equal(bed_lock(&bed, 1, E, 1, 1), HF_LOCK_OK); /* merges */
	assert_int_equal(bed_lock(&bed, 11, E, 6, 6), HF_LOCK_OK);
	bed_unlock(&bed, 1, 0, 9);
	assert_int_equal(bed_lock(&bed, 1, E, 8, 8), HF_LOCK_OK);
	bed_close(&bed);
}

static void test_limit_of_a_file(void **state)
{
	struct bed bed;

	bed_open_with(&bed, &(struct hf_lock_limits){ .locks_per_file = 2 });
	bed_lock(&bed, 1, E, 0, 0);
	bed_lock(&bed, 11, E, 2, 2);
	assert_int_equal(bed_lock(&bed, 21, E, 4, 4), HF_LOCK_E_LIMIT);
	bed.file = 1;
	assert_int_equal(bed_lock(&bed, 21, E, 4, 4), HF_LOCK_OK);
	bed_close(&bed);
}

static void test_limit_in_all(void **state)
{
	struct bed bed;

	bed_open_with(&bed, &(struct hf_lock_limits){ .locks = 2 });
	bed_lock(&bed, 1, E, 0, 0);
	bed.file = 1;
	bed_lock(&bed, 11, E, 0, 0);
	bed.file = 2;
	assert_int_equal(bed_lock(&bed, 21, E, 0, 0), HF_LOCK_E_LIMIT);
	bed_close(&bed);
}

static void test_split_counts_against_the_limit_but_unlock_does_not(void **state)
{
	struct bed bed;

	bed_open_with(&bed, &(struct hf_lock_limits){ .locks_per_client = 2 });
	bed_lock(&bed, 1, E, 0, 9);
	assert_int_equal(bed_lock(&bed, 1, S, 3, 3), HF_LOCK_E_LIMIT); /* would be three */
	assert_locked(&bed, 1, "E[0,9]");
	bed_unlock(&bed, 1, 3, 3);
	bed_unlock(&bed, 1, 6, 6);
	assert_locked(&bed, 1, "E[0,2] E[4,5] E[7,9]");
	bed_close(&bed);
}

/* An unlock that splits a lock adds one. Without a limit, one lock and many unlocks would take all memory. */
static void test_unlock_counts_against_twice_the_limit(void **state)
{
	static const struct hf_lock_limits limits[] = { { .locks_per_client = 2 },
							{ .locks_per_file = 2 },
							{ .locks = 2 } };

	for (size_t i = 0; i < HF_ARRAY_SIZE(limits); i++) {
		struct hf_lock_target who;
		struct bed bed;

		bed_open_with(&bed, &limits[i]);
		bed_lock(&bed, 1, E, 0, 9);
		for (uint64_t at = 1; at < 7; at += 2)
			bed_unlock(&bed, 1, at, at);
		bed_told(&bed);
		who = bed_target(&bed, 1);
		assert_int_equal(hf_lock_release(bed.locks, &who, (struct hf_range){ 8, 8 }),
				 HF_LOCK_E_LIMIT);
		assert_told(&bed, "");
		bed_unlock(&bed, 1, 9, 9); /* what does not split is given back, and then there is room */
		bed_unlock(&bed, 1, 0, 5);
		bed_unlock(&bed, 1, 7, 7);
		assert_locked(&bed, 1, "E[6,6] E[8,8]");
		bed_close(&bed);
	}
}

/* Before the restart the client's unlocks may have split its locks. Where the server has stored nothing, the
 * client reclaims each part as a new lock. */
static void test_reclaim_counts_against_twice_the_limit(void **state)
{
	static const struct hf_lock_limits limits[] = { { .locks_per_client = 2 },
							{ .locks_per_file = 2 },
							{ .locks = 2 } };

	for (size_t i = 0; i < HF_ARRAY_SIZE(limits); i++) {
		struct bed bed;

		bed_open_with(&bed, &limits[i]);
		hf_lock_set_grace(bed.locks, true);
		for (uint64_t at = 0; at < 8; at += 2)
			assert_int_equal(bed_reclaim(&bed, 1, E, at, at, false), HF_LOCK_OK);
		assert_int_equal(bed_reclaim(&bed, 1, E, 8, 8, false), HF_LOCK_E_LIMIT);
		hf_lock_set_grace(bed.locks, false);
		assert_locked(&bed, 1, "E[0,0] E[2,2] E[4,4] E[6,6]");
		assert_int_equal(bed_lock(&bed, 1, E, 8, 8), HF_LOCK_E_LIMIT);
		bed_close(&bed);
	}
}

/* A reclaim that comes late, or a downgrade. */
static void test_what_is_due_counts_against_twice_the_limit(void **state)
{
	struct hf_lock_request due = { .mode = S, .is_due = true };
	struct bed bed;

	bed_open_with(&bed, &(struct hf_lock_limits){ .locks_per_client = 2 });
	bed_lock(&bed, 1, E, 0, 9);
	due.who = bed_target(&bed, 1);
	due.range = (struct hf_range){ 3, 3 };
	assert_int_equal(hf_lock_acquire(bed.locks, &due, NULL), HF_LOCK_OK);
	assert_locked(&bed, 1, "E[0,2] S[3,3] E[4,9]");
	due.range = (struct hf_range){ 6, 6 };
	assert_int_equal(hf_lock_acquire(bed.locks, &due, NULL), HF_LOCK_E_LIMIT); /* five */
	bed_close(&bed);
}

static int acquire_due(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end)
{
	const struct hf_lock_request due = {
		.who = bed_target(bed, owner), .range = { start, end }, .mode = mode, .is_due = true
	};

	return hf_lock_acquire(bed->locks, &due, NULL);
}

/* A reclaim that comes late: no other owner had the range, and a waiter has nothing. */
static void test_what_is_due_comes_before_a_waiter(void **state)
{
	bed_lock(*state, 11, S, 0, 9);
	bed_wait(*state, 21, E, 0, 9);
	assert_int_equal(bed_lock(*state, 1, S, 0, 9), HF_LOCK_E_CONFLICT);
	assert_int_equal(acquire_due(*state, 1, S, 0, 9), HF_LOCK_OK);
	assert_int_equal(acquire_due(*state, 1, E, 0, 9), HF_LOCK_E_CONFLICT);
	bed_unlock(*state, 11, 0, 9);
	assert_locked(*state, 21, "");
	bed_unlock(*state, 1, 0, 9);
	assert_locked(*state, 21, "E[0,9]?");
}

/* In grace, after a restart that keeps its waiters. */
static void test_a_reclaim_comes_before_a_waiter(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 11, S, 0, 9);
	bed_wait(bed, 21, E, 0, 9);
	hf_lock_set_grace(bed->locks, true);
	assert_int_equal(bed_reclaim(bed, 1, S, 0, 9, false), HF_LOCK_OK);
	hf_lock_set_grace(bed->locks, false);
	assert_locked(bed, 1, "S[0,9]");
	assert_int_equal(bed_waiters(bed), 1);
}

/* 1 waits for 21, which would wait for 1. */
static void test_what_is_due_closes_no_cycle(void **state)
{
	bed_lock(*state, 11, S, 0, 9);
	bed_lock(*state, 21, E, 20, 29);
	bed_wait(*state, 21, E, 0, 9);
	bed_wait(*state, 1, E, 20, 29);
	assert_int_equal(acquire_due(*state, 1, S, 0, 9), HF_LOCK_E_CONFLICT);
	assert_locked(*state, 1, "");
}

static void test_limit_of_waiters(void **state)
{
	struct bed bed;

	bed_open_with(&bed, &(struct hf_lock_limits){ .waiters_per_file = 2, .waiters_per_client = 1 });
	bed_lock(&bed, 1, E, 0, 9);
	assert_int_equal(bed_wait(&bed, 11, E, 0, 9), HF_LOCK_E_QUEUED);
	assert_int_equal(bed_wait(&bed, 12, E, 0, 9), HF_LOCK_E_LIMIT);  /* of the client */
	assert_int_equal(bed_wait(&bed, 11, E, 0, 9), HF_LOCK_E_QUEUED); /* a repetition */
	assert_int_equal(bed_wait(&bed, 21, E, 0, 9), HF_LOCK_E_QUEUED);
	assert_int_equal(bed_wait(&bed, 2, E, 0, 9), HF_LOCK_E_LIMIT); /* of the file */
	bed_close(&bed);
}

/* A client that never answers makes the server repeat its grants: their number is limited. */
static void test_limit_of_waiters_counts_grants_in_flight(void **state)
{
	struct bed bed;

	bed_open_with(&bed, &(struct hf_lock_limits){ .waiters_per_client = 2 });
	bed_lock(&bed, 1, E, 0, 9);
	assert_int_equal(bed_wait(&bed, 11, S, 0, 9), HF_LOCK_E_QUEUED);
	assert_int_equal(bed_wait(&bed, 11, S, 0, 8), HF_LOCK_E_QUEUED);
	bed_unlock(&bed, 1, 0, 9);
	assert_locked(&bed, 11, "S[0,9]?");
	bed.file = 1;
	bed_lock(&bed, 1, E, 0, 9);
	assert_int_equal(bed_wait(&bed, 11, E, 0, 9), HF_LOCK_E_LIMIT);
	assert_int_equal(bed_wait(&bed, 21, E, 0, 9), HF_LOCK_E_QUEUED);
	assert_int_equal(hf_lock_grant_confirm(bed.locks, bed.last_grant), HF_LOCK_OK);
	assert_int_equal(bed_wait(&bed, 11, E, 0, 9), HF_LOCK_E_QUEUED);
	bed_close(&bed);
}

static void test_waiter_counts_as_the_lock_it_will_become(void **state)
{
	struct bed bed;

	bed_open_with(&bed, &(struct hf_lock_limits){ .locks_per_client = 1 });
	bed_lock(&bed, 1, E, 0, 9);
	assert_int_equal(bed_wait(&bed, 11, E, 0, 9), HF_LOCK_E_QUEUED);
	assert_int_equal(bed_lock(&bed, 12, E, 20, 29), HF_LOCK_E_LIMIT);
	bed_close(&bed);
}

/* MEMORY: no slab may be added any more. */

static void starve(struct hf_pool *pool)
{
	assert_int_equal(hf_pool_reserve(pool, 1), 0); /* at least one slab: no limit is 0 */
	while (pool->n_free)
		hf_pool_take(pool);
	pool->n_slabs_max = pool->n_slabs;
}

static void test_want_of_memory_changes_nothing(void **state)
{
	struct bed bed;
	struct hf_lock_counters before, after;
	static char oh[100];

	for (int pool = 0; pool < 9; pool++) {
		struct hf_lock_request request = { .range = { 0, 9 }, .mode = E };

		bed_open(&bed);
		for (uint64_t i = 0; i <= 20; i++) /* more than few */
			bed_lock(&bed, 1, E, 10 * i, 10 * i);
		bed_told(&bed);
		before = bed_count(&bed);
		request.who = bed_target(&bed, 11);
		request.who.oh = hf_bytes_of(oh, sizeof(oh));
		request.wait = pool == 1;
		if (pool != 1)
			request.who.handle = hf_bytes_of_str("another file");
		struct hf_pool *const pools[] = { &bed.locks->lock_pool,    &bed.locks->waiter_pool,
						  &bed.locks->owner_pool,   &bed.locks->holding_pool,
						  &bed.locks->file_pool,    &bed.locks->oh_pool,
						  &bed.locks->trees.few[0], &bed.locks->trees.few[1],
						  &bed.locks->trees.nodes };

		starve(pools[pool]);
		assert_int_equal(hf_lock_acquire(bed.locks, &request, NULL), -ENOMEM);
		after = bed_count(&bed);
		after.bytes = before.bytes;
		assert_memory_equal(&before, &after, sizeof(before));
		assert_told(&bed, "");
		hf_locks_free(bed.locks);
	}
}

static void test_unlock_without_memory_for_the_split(void **state)
{
	struct bed bed;
	struct hf_lock_target who;

	bed_open(&bed);
	bed_lock(&bed, 1, E, 0, 9);
	starve(&bed.locks->lock_pool);
	who = bed_target(&bed, 1);
	assert_int_equal(hf_lock_release(bed.locks, &who, (struct hf_range){ 3, 5 }), -ENOMEM);
	assert_locked(&bed, 1, "E[0,9]");
	hf_locks_free(bed.locks);
}

/* The grant must end with the lock, or the lock stays. */
static void test_revoke_without_memory_to_end_a_grant(void **state)
{
	struct bed bed;

	bed_open(&bed);
	bed_lock(&bed, 11, S, 0, 9);
	bed_lock(&bed, 1, E, 10, 19);
	bed_wait(&bed, 11, S, 0, 19);
	bed_unlock(&bed, 1, 10, 19);
	starve(&bed.locks->lock_pool);
	assert_int_equal(bed_revoke(&bed, 11, 10, 19), -ENOMEM);
	assert_locked(&bed, 11, "S[0,9] S[10,19]?");
	hf_locks_free(bed.locks);
}

/* What is free beyond what was reserved goes, and no slab may be added. */
static void keep_reserved_only(struct hf_pool *pool)
{
	while (pool->n_free > pool->n_reserved)
		hf_pool_take(pool);
	pool->n_slabs_max = pool->n_slabs;
}

/* A grant that replaced many locks, each in a place of its own, can be undone without memory. */
static void check_undo(void (*undo)(struct bed *bed))
{
	enum {
		N = 4000
	};
	struct bed bed;
	struct hf_locks *locks;

	bed_open(&bed);
	bed.is_silent = true;
	locks = bed.locks;
	for (uint64_t i = 0; i < N; i++)
		bed_lock(&bed, 1, S, 4 * i, 4 * i);
	for (uint64_t i = 0; i < 3 * N;
	     i++) /* others beside them, so that the shared ones have full leaves */
		bed_lock(&bed, 21 + (int)(i % 3), S, 5 * N + 2 * i, 5 * N + 2 * i);
	bed_lock(&bed, 11, S, 0, 0);
	assert_int_equal(bed_wait(&bed, 1, E, 0, 4 * N), HF_LOCK_E_QUEUED);
	bed_unlock(&bed, 11, 0, 0);
	assert_int_equal(bed_count(&bed).grants, 1);
	assert_int_equal(locks->n_owed, N);
	bed_unlock(&bed, 21, 0, 0); /* reserves for itself, and leaves what is set aside */
	assert_true(locks->trees.nodes.n_reserved > N / 2);
	keep_reserved_only(&locks->lock_pool);
	keep_reserved_only(&locks->trees.nodes);
	keep_reserved_only(&locks->trees.few[0]);
	keep_reserved_only(&locks->trees.few[1]);
	undo(&bed);
	assert_int_equal(bed_count(&bed).grants, 0);
	assert_int_equal(bed_count(&bed).locks, 4 * N);
	assert_int_equal(locks->n_owed, 0);
	for (uint64_t i = 0; i < N; i++)
		assert_int_equal(bed_test(&bed, 2, E, 4 * i, 4 * i + 1), HF_LOCK_E_CONFLICT);
	hf_locks_free(locks);
}

static void refuse(struct bed *bed)
{
	assert_int_equal(hf_lock_grant_refuse(bed->locks, bed->last_grant), HF_LOCK_OK);
}

static void cancel(struct bed *bed)
{
	assert_int_equal(bed_cancel(bed, 1, E, 0, 16000), HF_LOCK_OK);
}

static void test_grant_is_undone_without_memory(void **state)
{
	check_undo(refuse);
	check_undo(cancel);
}

/* The release itself succeeds; the grant follows as soon as there is memory. */
static void test_grant_without_memory_comes_later(void **state)
{
	struct bed bed;

	bed_open(&bed);
	bed_lock(&bed, 1, E, 0, 9);
	bed_lock(&bed, 2, E, 20, 20);
	bed_wait(&bed, 11, E, 0, 9);
	bed_told(&bed);
	starve(&bed.locks->lock_pool);
	hf_lock_client_purge_older(bed.locks, &bed.clients[0], 3);
	assert_told(&bed, "-o1 E[0,9], -o2 E[20,20]");
	assert_int_equal(bed_count(&bed).waiters, 1);
	bed.locks->lock_pool.n_slabs_max = 0;
	bed_unlock(&bed, 21, 0, 0); /* any operation */
	assert_told(&bed, "+o11 E[0,9]?, grant o11");
	hf_locks_free(bed.locks);
}

/* Exclusive parts stay exclusive and missing parts are taken: the protocol downgrades later. */
static void test_keeping_request_downgrades_nothing(void **state)
{
	struct bed *bed = *state;

	bed_lock(bed, 1, E, 2, 4);
	bed_lock(bed, 1, S, 6, 6);
	bed->no_downgrade = true;
	assert_int_equal(bed_lock(bed, 1, S, 0, 9), HF_LOCK_OK);
	assert_locked(bed, 1, "S[0,1] E[2,4] S[5,9]");
	assert_int_equal(bed_lock(bed, 11, S, 3, 3), HF_LOCK_E_CONFLICT);
	bed->no_downgrade = false;
	assert_int_equal(bed_lock(bed, 1, S, 0, 9), HF_LOCK_OK);
	assert_locked(bed, 1, "S[0,9]");
}

static struct hf_lock_before before(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start,
				    uint64_t end)
{
	struct hf_lock_before had = { .has_any = true, .stays_exclusive = true };
	struct hf_lock_request request = { .who = bed_target(bed, owner),
					   .range = { start, end },
					   .before = &had,
					   .mode = mode,
					   .no_downgrade = true };

	assert_int_equal(hf_lock_acquire(bed->locks, &request, NULL), HF_LOCK_OK);
	return had;
}

static void test_says_what_was_held_before(void **state)
{
	struct bed *bed = *state;

	assert_false(before(bed, 1, E, 10, 19).has_any);
	assert_false(before(bed, 1, S, 20, 29).has_any); /* it touches only */
	assert_false(before(bed, 1, S, 0, 9).has_any);
	assert_false(before(bed, 2, S, 20, 29).has_any); /* another's */
	assert_true(before(bed, 1, S, 29, 40).has_any);
	assert_false(before(bed, 1, S, 40, 50).stays_exclusive);
	assert_true(before(bed, 1, S, 19, 20).stays_exclusive);
	assert_true(before(bed, 1, S, 0, 60).stays_exclusive);
	assert_locked(bed, 1, "S[0,9] E[10,19] S[20,60]");
	assert_true(before(bed, 1, E, 15, 16).has_any);
	assert_false(before(bed, 1, E, 15, 16).stays_exclusive); /* an exclusive request downgrades nothing */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		bed_test_of(test_shared_beside_shared),
		bed_test_of(test_exclusive_against_shared),
		bed_test_of(test_shared_against_exclusive),
		bed_test_of(test_owners_of_one_client_conflict),
		bed_test_of(test_conflict_shows_the_holder),
		bed_test_of(test_upgrade_by_the_only_reader),
		bed_test_of(test_refused_upgrade_keeps_the_shared_lock),
		bed_test_of(test_foreign_lock_among_many_own_ones),
		bed_test_of(test_test_shows_and_changes_nothing),
		bed_test_of(test_involved_says_who_has_anything_in_a_file),
		bed_test_of(test_touches_says_the_same_of_a_range),
		bed_test_of(test_keeping_request_downgrades_nothing),
		bed_test_of(test_says_what_was_held_before),
		cmocka_unit_test(test_limit_of_a_client),
		cmocka_unit_test(test_limit_of_a_file),
		cmocka_unit_test(test_limit_in_all),
		cmocka_unit_test(test_split_counts_against_the_limit_but_unlock_does_not),
		cmocka_unit_test(test_unlock_counts_against_twice_the_limit),
		cmocka_unit_test(test_reclaim_counts_against_twice_the_limit),
		cmocka_unit_test(test_what_is_due_counts_against_twice_the_limit),
		bed_test_of(test_what_is_due_comes_before_a_waiter),
		bed_test_of(test_a_reclaim_comes_before_a_waiter),
		bed_test_of(test_what_is_due_closes_no_cycle),
		cmocka_unit_test(test_limit_of_waiters),
		cmocka_unit_test(test_limit_of_waiters_counts_grants_in_flight),
		cmocka_unit_test(test_waiter_counts_as_the_lock_it_will_become),
		cmocka_unit_test(test_want_of_memory_changes_nothing),
		cmocka_unit_test(test_unlock_without_memory_for_the_split),
		cmocka_unit_test(test_revoke_without_memory_to_end_a_grant),
		cmocka_unit_test(test_grant_without_memory_comes_later),
		cmocka_unit_test(test_grant_is_undone_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
