#include "../test.h"

#include <errno.h>
#include <string.h>

#include "base/pool.h"

enum {
	N = 5000,
};

static void test_objects_are_aligned_and_apart(void **state)
{
	struct hf_pool pool;
	static char *objects[N];

	hf_pool_init(&pool, 100, 64);
	assert_int_equal(pool.size, 128);
	for (int i = 0; i < N; i++) {
		assert_int_equal(hf_pool_reserve(&pool, 1), 0);
		objects[i] = hf_pool_take(&pool);
		assert_true((uintptr_t)objects[i] % 64 == 0);
		memset(objects[i], i % 251, 100);
	}
	for (int i = 0; i < N; i++)
		for (int b = 0; b < 100; b++)
			assert_int_equal((unsigned char)objects[i][b], i % 251);
	assert_true(pool.n_used == N);
	hf_pool_deinit(&pool);
}

static void test_empty_slabs_go_back(void **state)
{
	struct hf_pool pool;
	static void *objects[N];

	hf_pool_init(&pool, 128, 64);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < N; i++) {
			hf_pool_reserve(&pool, 1);
			objects[i] = hf_pool_take(&pool);
		}
		assert_true(pool.n_slabs == (N + pool.per_slab - 1) / pool.per_slab);
		for (int i = 0; i < N; i++)
			hf_pool_give(&pool, objects[(i * 7) % N]);
		assert_true(pool.n_used == 0);
		assert_true(pool.n_slabs == 1);
	}
	hf_pool_deinit(&pool);
}

static void test_spare_slab_saves_malloc(void **state)
{
	struct hf_pool pool;
	void *first, *again;

	hf_pool_init(&pool, 128, 64);
	hf_pool_reserve(&pool, 1);
	first = hf_pool_take(&pool);
	hf_pool_give(&pool, first);
	assert_true(pool.n_slabs == 1);
	again = hf_pool_take(&pool);
	assert_ptr_equal(first, again);
	hf_pool_deinit(&pool);
}

static void test_reservation_survives_giving_back(void **state)
{
	struct hf_pool pool;
	static void *objects[2 * N];
	size_t n = 0;

	hf_pool_init(&pool, 128, 64);
	hf_pool_reserve(&pool, 1);
	objects[n++] = hf_pool_take(&pool);
	assert_int_equal(hf_pool_reserve(&pool, N), 0);
	hf_pool_give(&pool, objects[--n]);
	while (n < N)
		objects[n++] = hf_pool_take(&pool);
	hf_pool_deinit(&pool);
}

static void test_huge_slabs(void **state)
{
	struct hf_pool pool;
	static void *objects[4 * N];

	hf_pool_init_huge(&pool, 128, 64);
	for (int i = 0; i < 4 * N; i++) {
		hf_pool_reserve(&pool, 1);
		objects[i] = hf_pool_take(&pool);
		memset(objects[i], i, 128);
	}
	assert_true(hf_pool_bytes(&pool) == 2 * HF_POOL_SLAB_HUGE);
	for (int i = 0; i < 4 * N; i++)
		hf_pool_give(&pool, objects[i]);
	assert_true(pool.n_used == 0 && pool.n_slabs == 1);
	hf_pool_deinit(&pool);
}

static void test_limit_is_enomem_and_takes_nothing(void **state)
{
	struct hf_pool pool;

	hf_pool_init(&pool, 128, 64);
	pool.n_slabs_max = 1;
	assert_int_equal(hf_pool_reserve(&pool, 10000), -ENOMEM);
	assert_int_equal(hf_pool_reserve(&pool, 1), 0);
	assert_true(pool.n_used == 0);
	hf_pool_deinit(&pool);
}

static void test_deinit_of_a_cleared_pool(void **state)
{
	struct hf_pool pool = { 0 };

	hf_pool_deinit(&pool);
	hf_pool_deinit(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_objects_are_aligned_and_apart),
		cmocka_unit_test(test_empty_slabs_go_back),
		cmocka_unit_test(test_spare_slab_saves_malloc),
		cmocka_unit_test(test_reservation_survives_giving_back),
		cmocka_unit_test(test_huge_slabs),
		cmocka_unit_test(test_limit_is_enomem_and_takes_nothing),
		cmocka_unit_test(test_deinit_of_a_cleared_pool),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
