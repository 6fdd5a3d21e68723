/* Counters by client and export: sums, the bound, and which pair makes room. */
#include "../test.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/macros.h"
#include "export/usage.h"
#include "loop/loop.h"

#define N_LOOPS 4
#define N_PAIRS 64 /* eight for each loop, and 32 for all */

static struct hf_loop *loop;
static struct hf_usage *usage;
static struct hf_usage_row *rows;
static struct hf_usage_counts others;
static size_t n_rows;

static int open_usage(void **state)
{
	return hf_loop_new(&loop) < 0 ? -1 : hf_usage_new(&usage, N_LOOPS, N_PAIRS, loop);
}

static int close_usage(void **state)
{
	free(rows);
	rows = NULL;
	usage = hf_usage_free(usage);
	hf_loop_free(loop);
	return 0;
}

static struct hf_addr address(unsigned int number)
{
	struct hf_addr addr = { .ip = { 10, 0, (uint8_t)(number >> 8), (uint8_t)number },
				.port = (uint16_t)(700 + number),
				.family = AF_INET };

	return addr;
}

static void call(size_t of_loop, unsigned int client, uint64_t export_id, enum hf_usage_counter kind)
{
	static uint64_t now;
	struct hf_addr addr = address(client);
	const struct hf_usage_call one = {
		.export_id = export_id,
		.kind = kind,
		.n_read = kind == HF_USAGE_READS ? 100 : 0,
		.n_written = kind == HF_USAGE_WRITES ? 10 : 0,
		.has_failed = kind == HF_USAGE_METADATA,
		.now = ++now,
	};

	hf_usage_count(usage, of_loop, &addr, &one);
}

static void list(void)
{
	free(rows);
	rows = NULL;
	assert_int_equal(hf_usage_list(usage, &rows, &n_rows, &others), 0);
}

static const struct hf_usage_row *row_of(unsigned int client, uint64_t export_id)
{
	struct hf_addr addr = address(client);

	for (size_t i = 0; i < n_rows; i++)
		if (rows[i].export_id == export_id && hf_addr_same_host(&rows[i].client, &addr))
			return &rows[i];
	return NULL;
}

static uint64_t sum(enum hf_usage_counter counter)
{
	uint64_t n = others.n[counter];

	for (size_t i = 0; i < n_rows; i++)
		n += rows[i].counts.n[counter];
	return n;
}

static void test_each_pair_has_its_counters(void **state)
{
	list();
	assert_int_equal(n_rows, 0);
	for (size_t i = 0; i < N_LOOPS; i++) {
		call(i, 1, 7, HF_USAGE_READS);
		call(i, 1, 7, HF_USAGE_LOCKS);
		call(i, 1, 8, HF_USAGE_WRITES);
		call(i, 2, 7, HF_USAGE_METADATA);
	}
	list();
	assert_int_equal(n_rows, 3);
	assert_int_equal(row_of(1, 7)->counts.n[HF_USAGE_READS], N_LOOPS);
	assert_int_equal(row_of(1, 7)->counts.n[HF_USAGE_LOCKS], N_LOOPS);
	assert_int_equal(row_of(1, 7)->counts.n[HF_USAGE_BYTES_READ], 100 * N_LOOPS);
	assert_int_equal(row_of(1, 7)->counts.n[HF_USAGE_ERRORS], 0);
	assert_int_equal(hf_usage_calls(&row_of(1, 7)->counts), 2 * N_LOOPS);
	assert_int_equal(row_of(1, 8)->counts.n[HF_USAGE_BYTES_WRITTEN], 10 * N_LOOPS);
	assert_int_equal(row_of(2, 7)->counts.n[HF_USAGE_ERRORS], N_LOOPS);
	assert_true(row_of(2, 7)->counts.last_used > row_of(1, 8)->counts.last_used);
	assert_int_equal(row_of(1, 7)->client.port, 0);
	assert_int_equal(hf_usage_calls(&others), 0);
	for (size_t i = 1; i < n_rows; i++) /* by address, then by export */
		assert_true(memcmp(&rows[i - 1].client, &rows[i].client, sizeof(rows[i].client)) < 0 ||
			    rows[i - 1].export_id < rows[i].export_id);
}

static void test_calls_without_export(void **state)
{
	call(0, 1, 0, HF_USAGE_METADATA);
	call(3, 2, 0, HF_USAGE_METADATA);
	list();
	assert_int_equal(n_rows, 0);
	assert_int_equal(others.n[HF_USAGE_METADATA], 2);
	assert_int_equal(others.n[HF_USAGE_ERRORS], 2);
}

static void test_error_after_success(void **state)
{
	struct hf_addr addr = address(1);

	call(0, 1, 7, HF_USAGE_LOCKS);
	call(0, 2, 7, HF_USAGE_LOCKS);
	hf_usage_count_error(usage, 0, &addr, 7);
	hf_usage_count_error(usage, 0, &addr, 0);
	list();
	assert_int_equal(n_rows, 2);
	assert_int_equal(row_of(1, 7)->counts.n[HF_USAGE_ERRORS], 1);
	assert_int_equal(row_of(2, 7)->counts.n[HF_USAGE_ERRORS], 0);
	assert_int_equal(others.n[HF_USAGE_ERRORS], 1);
	assert_int_equal(sum(HF_USAGE_LOCKS), 2);
}

/* The first loop takes all shared places. The others still have their own. */
static void test_the_bound(void **state)
{
	for (unsigned int i = 0; i < 1000; i++) {
		call(0, i, 7, HF_USAGE_READS);
		call(0, 0, 7, HF_USAGE_LOCKS); /* stays in use */
	}
	list();
	assert_int_equal(n_rows, N_PAIRS / 2 + N_PAIRS / 2 / N_LOOPS);
	assert_int_equal(sum(HF_USAGE_READS), 1000);
	assert_int_equal(sum(HF_USAGE_BYTES_READ), 100000);
	assert_int_equal(others.n[HF_USAGE_READS], 1000 - n_rows);
	assert_int_equal(row_of(0, 7)->counts.n[HF_USAGE_LOCKS], 1000);
	assert_int_equal(row_of(0, 7)->counts.n[HF_USAGE_READS], 1);
	assert_non_null(row_of(999, 7));
	assert_non_null(row_of(999 - ((unsigned int)n_rows - 2), 7));
	assert_null(row_of(999 - ((unsigned int)n_rows - 1), 7));

	for (unsigned int i = 0; i < 1000; i++)
		for (size_t l = 1; l < N_LOOPS; l++)
			call(l, 5000 + 1000 * (unsigned int)l + i, 7, HF_USAGE_WRITES);
	list();
	assert_int_equal(n_rows, N_PAIRS);
	assert_int_equal(sum(HF_USAGE_WRITES), 1000 * (N_LOOPS - 1));
	for (size_t l = 1; l < N_LOOPS; l++)
		assert_non_null(row_of(5000 + 1000 * (unsigned int)l + 999, 7));

	/* A pair that comes back begins anew, and the sum stays. */
	call(0, 500, 7, HF_USAGE_READS);
	list();
	assert_int_equal(row_of(500, 7)->counts.n[HF_USAGE_READS], 1);
	assert_int_equal(sum(HF_USAGE_READS), 1001);
}

#define N_CALLS 200000

static void *count_many(void *arg)
{
	size_t of_loop = (size_t)(uintptr_t)arg;
	const struct hf_usage_call one = { .export_id = 7, .kind = HF_USAGE_READS, .n_read = 1, .now = 1 };

	for (unsigned int i = 0; i < N_CALLS; i++) {
		struct hf_addr addr = address(i % 100);

		hf_usage_count(usage, of_loop, &addr, &one);
	}
	return NULL;
}

/* Loops count, and lose pairs, while another thread reads: sums never fall, and none is lost. */
static void test_reading_while_loops_count(void **state)
{
	pthread_t threads[N_LOOPS];
	uint64_t before = 0;

	for (size_t i = 0; i < N_LOOPS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count_many, (void *)(uintptr_t)i), 0);
	while (before < N_CALLS) {
		uint64_t n;

		list();
		n = sum(HF_USAGE_READS);
		assert_true(n >= before && n <= N_LOOPS * (uint64_t)N_CALLS && n_rows <= N_PAIRS);
		before = n;
	}
	for (size_t i = 0; i < N_LOOPS; i++)
		pthread_join(threads[i], NULL);
	list();
	assert_int_equal(sum(HF_USAGE_READS), N_LOOPS * (uint64_t)N_CALLS);
	assert_int_equal(sum(HF_USAGE_BYTES_READ), N_LOOPS * (uint64_t)N_CALLS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_each_pair_has_its_counters, open_usage, close_usage),
		cmocka_unit_test_setup_teardown(test_calls_without_export, open_usage, close_usage),
		cmocka_unit_test_setup_teardown(test_error_after_success, open_usage, close_usage),
		cmocka_unit_test_setup_teardown(test_the_bound, open_usage, close_usage),
		cmocka_unit_test_setup_teardown(test_reading_while_loops_count, open_usage, close_usage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
