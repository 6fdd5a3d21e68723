/* Counting: each in its bucket, each result under its name, and the table complete. */
#include "../test.h"

#include <stdio.h>
#include <string.h>

#include "base/metric.h"

static void test_buckets(void **state)
{
	struct hf_histogram histogram = { 0 }, sum = { 0 };

	for (size_t i = 0; i < HF_METRIC_N_BOUNDS; i++) {
		hf_histogram_add(&histogram, hf_metric_bounds_ns[i], 1);     /* the bound itself is within */
		hf_histogram_add(&histogram, hf_metric_bounds_ns[i] + 1, 1); /* above it is in the next */
	}
	assert_int_equal(histogram.counts[0], 1);
	for (size_t i = 1; i < HF_METRIC_N_BOUNDS; i++)
		assert_int_equal(histogram.counts[i], 2);
	assert_int_equal(histogram.counts[HF_METRIC_N_BOUNDS], 1);
	hf_histogram_merge(&sum, &histogram);
	hf_histogram_merge(&sum, &histogram);
	assert_int_equal(sum.counts[1], 4);
	assert_int_equal(sum.sum_ns, 2 * histogram.sum_ns);
	for (size_t i = 1; i < HF_METRIC_N_BOUNDS; i++)
		assert_true(hf_metric_bounds_ns[i] > hf_metric_bounds_ns[i - 1]);
}

static void test_results(void **state)
{
	static char names[HF_METER_N_RESULTS + 8][16];
	static struct hf_call_meter meter;

	hf_call_meter_add(&meter, "OK", 5, 1);
	hf_call_meter_add(&meter, "OK", 5, 1);
	assert_int_equal(meter.results[0].n, 2);
	assert_null(meter.results[1].name);
	for (size_t i = 0; i < HF_METER_N_RESULTS + 8; i++) {
		snprintf(names[i], sizeof(names[i]), "%zu", i);
		hf_call_meter_add(&meter, names[i], 5, 1);
	}
	assert_string_equal(meter.results[HF_METER_N_RESULTS - 1].name, "other");
	assert_int_equal(meter.results[HF_METER_N_RESULTS - 1].n, 10);
	assert_int_equal(meter.duration.counts[0], HF_METER_N_RESULTS + 10);
}

static void test_the_table_is_complete(void **state)
{
	for (size_t i = 0; i < HF_N_METRICS; i++) {
		const struct hf_metric_row *row = &hf_metrics[i];
		size_t len;

		assert_non_null(row->name);
		assert_non_null(row->labels);
		assert_non_null(row->help);
		assert_int_equal(row->help[strlen(row->help) - 1], '.');
		len = strlen(row->name);
		assert_int_equal(row->kind == HF_METRIC_COUNTER,
				 len > 6 && strcmp(row->name + len - 6, "_total") == 0);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(row->name, hf_metrics[j].name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_results),
		cmocka_unit_test(test_the_table_is_complete),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
