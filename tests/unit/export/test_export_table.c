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

/* HOMES. One export for each letter, all used ones in @used. */

#define N_EXPORTS 4

static const char *used;
static struct hf_export_table homes;
static struct hf_export_list all;

static void show_used(void *user, void (*fn)(void *context, uint32_t number), void *context)
{
	for (const char *c = used; *c; c++)
		fn(context, (uint32_t)(*c - 'a') + 1);
}

static int set_up_homes(void **state)
{
	struct hf_export_settings settings[N_EXPORTS];
	static char names[N_EXPORTS][3];
	size_t n_failed;
	int r = open_exports();

	for (size_t i = 0; i < N_EXPORTS; i++) {
		snprintf(names[i], sizeof(names[i]), "/%c", (char)('a' + i));
		settings[i] = (struct hf_export_settings){
			.path = base, .name = names[i], .rules = &for_all, .n_rules = 1
		};
	}
	all = (struct hf_export_list){ 0 };
	homes = (struct hf_export_table){ .exports = exports, .show_used = show_used };
	assert_int_equal(hf_exports_prepare(exports, settings, N_EXPORTS, &all, &n_failed), 0);
	for (size_t i = 0; i < N_EXPORTS; i++)
		assert_int_equal(hf_export_table_add(&homes, all.items[i]), 0);
	return r;
}

static int tear_down_homes(void **state)
{
	hf_export_list_clear(&all);
	hf_export_table_deinit(&homes);
	return close_exports(state);
}

/* A reload that finds each export on the file system of its digit. */
static void load(const char *devices, const char *uses)
{
	used = uses;
	for (size_t i = 0; i < N_EXPORTS; i++)
		all.items[i]->volume->root_stat.st_dev = (dev_t)devices[i];
	hf_export_table_note(&homes, &all);
}

static bool share(char one, char other)
{
	return hf_export_table_home(&homes, (uint32_t)(one - 'a') + 1) ==
	       hf_export_table_home(&homes, (uint32_t)(other - 'a') + 1);
}

static void test_a_file_system_has_one_home(void **state)
{
	load("1122", "");
	assert_true(share('a', 'b') && share('c', 'd') && !share('b', 'c'));
}

/* It finds what it has locked under its keys, and no file of one is taken for a file of the other. */
static void test_what_moves_leaves_its_home(void **state)
{
	load("1112", "");
	load("2112", "");
	assert_true(share('a', 'd') && share('b', 'c') && !share('a', 'b'));
	load("2312", "");
	assert_false(share('b', 'c') || share('b', 'a'));
}

static void test_first_one_that_moves_leaves_its_home_to_the_others(void **state)
{
	uint64_t before;

	load("1122", "");
	before = hf_export_table_home(&homes, 2);
	load("3122", "b");
	assert_int_equal(hf_export_table_home(&homes, 2), before);
	assert_false(share('a', 'b'));
}

static void test_others_take_over_the_home_of_a_used_one(void **state)
{
	uint64_t before;

	load("1122", "");
	before = hf_export_table_home(&homes, 2);
	load("1222", "b");
	assert_int_equal(hf_export_table_home(&homes, 2), before);
	assert_true(share('b', 'c') && share('b', 'd'));
	load("1222", "ac");
	assert_int_equal(hf_export_table_home(&homes, 3), before);
	assert_true(share('b', 'c') && share('b', 'd'));
	load("1222", "a");
	assert_true(share('b', 'c') && share('b', 'd') && !share('a', 'b'));
}

/* C has locks, so D stays with it, whatever B brings. */
static void test_a_home_in_use_is_not_divided(void **state)
{
	load("1122", "");
	load("1222", "bc");
	assert_true(share('c', 'd') && !share('b', 'c'));
	load("1222", "b");
	assert_true(share('b', 'c') && share('b', 'd'));
	load("1222", "");
	assert_true(share('b', 'c') && share('b', 'd') && !share('a', 'b'));
}

static void test_one_that_has_nothing_left_joins_the_others(void **state)
{
	load("1122", "");
	load("1222", "bd");
	assert_true(share('c', 'd') && !share('b', 'c'));
	load("1222", "d");
	assert_true(share('b', 'c') && share('c', 'd'));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_export_that_was_only_added_is_not_found, set_up,
						close_exports),
#define T(test) cmocka_unit_test_setup_teardown(test, set_up_homes, tear_down_homes)
		T(test_a_file_system_has_one_home),
		T(test_what_moves_leaves_its_home),
		T(test_first_one_that_moves_leaves_its_home_to_the_others),
		T(test_others_take_over_the_home_of_a_used_one),
		T(test_a_home_in_use_is_not_divided),
		T(test_one_that_has_nothing_left_joins_the_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
