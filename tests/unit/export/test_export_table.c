/* Exports by number: which of them has files. */
#include "../exports.h"

#include "export/export_table.h"

static const struct hf_client_rule any = { .text = "*", .kind = HF_CLIENT_ANY };
static const struct hf_export_rule for_all = {
	.clients = &any, .n_clients = 1, .anon_uid = 65534, .anon_gid = 65533
};

static int set_up(void **state)
{
	return open_exports();
}

/* A reload gives all exports of its list a number, and may fail then: the old list stays. */
static void test_export_that_was_only_added_is_not_found(void **state)
{
	const struct hf_export_settings settings = {
		.path = base, .name = "/data", .rules = &for_all, .n_rules = 1
	};
	struct hf_export_table table = { .exports = exports };
	struct hf_export_list list = { 0 };
	uint32_t number;
	size_t n_failed;

	assert_int_equal(hf_exports_prepare(exports, &settings, 1, &list, &n_failed), 0);
	assert_int_equal(hf_export_table_add(&table, list.items[0]), 0);
	assert_false(hf_export_table_find(&table, hf_bytes_of_str("/data"), &number));
	hf_export_table_note(&table, &list);
	assert_true(hf_export_table_find(&table, hf_bytes_of_str("/data"), &number));
	assert_int_equal(number, 1);
	hf_export_list_clear(&list);
	hf_export_table_deinit(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_export_that_was_only_added_is_not_found, set_up,
						close_exports),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
