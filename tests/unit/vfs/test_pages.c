#include "folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vfs/file.h"
#include "vfs/pages.h"

static struct hf_pages *pages;

static int set_up(void **state)
{
	if (open_folder(1000))
		return -1;
	pages = hf_files_pages(files);
	return 0;
}

static int tear_down(void **state)
{
	return close_folder();
}

static void run(const char *what)
{
	char command[256];

	snprintf(command, sizeof(command), "cd %s && %s", base, what);
	assert_int_equal(system(command), 0);
}

static struct hf_file *open_dir(const char *name)
{
	struct hf_file *dir;
	struct stat st;
	int fd;

	if (mkdirat(volume->mount, name, 0755) < 0)
		assert_string_equal(name, ".");
	fd = openat(volume->mount, name, O_PATH | O_DIRECTORY);
	assert_true(fd >= 0);
	assert_int_equal(hf_files_take(files, volume, fd, false, &dir, &st), 0);
	return dir;
}

static const struct hf_page_key key = { .export = 1, .cookie = 2, .names = 3, .max = 4 };

static void put(struct hf_file *dir, const struct hf_page_key *as, uint64_t inode, size_t len)
{
	struct hf_page_watch watch = hf_pages_watch(pages, dir);
	struct hf_page_part part = { .inode = inode, .stamp = hf_pages_stamp(pages, inode) };
	uint8_t *bytes = calloc(1, len);
	struct stat st;

	assert_true(watch.slot >= 0);
	assert_int_equal(fstat(dir->fd, &st), 0);
	hf_pages_put(pages, dir, as, watch, &st,
		     &(struct hf_page){ .n_parts = 1, .parts = &part, .bytes = bytes, .len = len });
	free(bytes);
}

static bool has(struct hf_file *dir, const struct hf_page_key *as)
{
	hf_cleanup(hf_page_unrefp) struct hf_page *page = NULL;
	struct stat st;

	assert_int_equal(fstat(dir->fd, &st), 0);
	page = hf_pages_find(pages, dir, as, &st);
	return page != NULL;
}

static void test_found_again(void **state)
{
	hf_cleanup(hf_file_unrefp) struct hf_file *dir = open_dir("d"), *other = open_dir("e");
	struct hf_page_key another = key;

	assert_false(has(dir, &key));
	put(dir, &key, 7, 100);
	assert_true(has(dir, &key));
	assert_true(has(dir, &key));
	assert_false(has(other, &key));
	another.cookie++;
	assert_false(has(dir, &another));
}

static void test_not_after_a_change(void **state)
{
	static const char *const changes[] = { "echo x >> d/f", "chmod 600 d/f", "touch d/g",  "rm d/g",
					       "mv d/f d/h",    "mv d/h d/f",    "chmod 700 d" };
	hf_cleanup(hf_file_unrefp) struct hf_file *dir = open_dir("d");

	run("touch d/f");
	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		put(dir, &key, 7, 100);
		assert_true(has(dir, &key));
		run(changes[i]);
		assert_false(has(dir, &key));
	}
}

/* What happens between the watch and the put spoils the page. */
static void test_a_change_while_it_is_made(void **state)
{
	hf_cleanup(hf_file_unrefp) struct hf_file *dir = open_dir("d");
	struct hf_page_watch watch;
	struct stat st;

	run("touch d/f");
	watch = hf_pages_watch(pages, dir);
	assert_int_equal(fstat(dir->fd, &st), 0);
	run("echo x >> d/f");
	hf_pages_put(pages, dir, &key, watch, &st, &(struct hf_page){ 0 });
	assert_false(has(dir, &key));
}

static void test_not_after_a_mark(void **state)
{
	hf_cleanup(hf_file_unrefp) struct hf_file *dir = open_dir("d");

	put(dir, &key, 7, 100);
	hf_pages_mark(pages, 8);
	assert_true(has(dir, &key));
	hf_pages_mark(pages, 7);
	assert_false(has(dir, &key));
}

static void test_not_for_long(void **state)
{
	hf_cleanup(hf_file_unrefp) struct hf_file *dir = open_dir("d");

	put(dir, &key, 7, 100);
	hf_files_sweep(files);
	assert_true(has(dir, &key));
	hf_files_sweep(files);
	assert_false(has(dir, &key));
}

static void test_one_that_is_used_outlives_its_place(void **state)
{
	hf_cleanup(hf_file_unrefp) struct hf_file *dir = open_dir("d");
	hf_cleanup(hf_page_unrefp) struct hf_page *page = NULL;
	struct stat st;

	put(dir, &key, 7, 100);
	assert_int_equal(fstat(dir->fd, &st), 0);
	page = hf_pages_find(pages, dir, &key, &st);
	assert_non_null(page);
	hf_pages_clear(pages);
	assert_false(has(dir, &key));
	assert_int_equal(page->len, 100);
	assert_int_equal(page->bytes[99], 0);
}

static void test_no_more_bytes_than_allowed(void **state)
{
	hf_cleanup(hf_file_unrefp) struct hf_file *dir = open_dir("d");
	struct hf_page_key each = key;
	size_t n = 0;

	for (each.cookie = 0; each.cookie < 40; each.cookie++)
		put(dir, &each, 7, (size_t)1 << 20);
	for (each.cookie = 0; each.cookie < 40; each.cookie++)
		n += has(dir, &each);
	assert_true(n >= 30 && n <= 32);
}

static void test_no_more_directories_than_allowed(void **state)
{
	struct hf_file *dirs[HF_PAGES_MAX_DIRS + 3];
	char name[16];

	for (int i = 0; i < HF_PAGES_MAX_DIRS + 3; i++) {
		snprintf(name, sizeof(name), "many%d", i);
		dirs[i] = open_dir(name);
		put(dirs[i], &key, 7, 100);
		assert_true(has(dirs[0], &key)); /* used all the time */
	}
	assert_false(has(dirs[1], &key));
	assert_true(has(dirs[HF_PAGES_MAX_DIRS + 2], &key));
	for (int i = 0; i < HF_PAGES_MAX_DIRS + 3; i++)
		hf_file_unref(dirs[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_found_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_not_after_a_change, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_change_while_it_is_made, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_not_after_a_mark, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_not_for_long, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_one_that_is_used_outlives_its_place, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_more_bytes_than_allowed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_more_directories_than_allowed, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
