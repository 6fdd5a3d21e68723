/* What is told of files that are watched: before the call that changes them returns. */
#include "folder.h"

#include "vfs/watch.h"

#define MORE_THAN_ARE_KEPT 2100

static struct hf_watch *watch;

static int setup(void **state)
{
	return open_folder(64) || hf_watch_new(&watch) < 0;
}

static int teardown(void **state)
{
	watch = hf_watch_free(watch);
	return close_folder();
}

static const char *path_of(const char *name)
{
	static char path[2][128];
	static unsigned int n;
	char *room = path[n++ % 2];

	snprintf(room, sizeof(path[0]), "%s/%s", base, name);
	return room;
}

/* Has nothing been told of it since the last question? */
static bool is_unchanged(int number, uint64_t since)
{
	hf_watch_read(watch);
	return hf_watch_is_unchanged(watch, number, since);
}

enum change {
	CHMOD,
	UNLINK,
	RENAME_OVER,
	LINK,
};

static void change(enum change what)
{
	switch (what) {
	case CHMOD:
		assert_int_equal(chmod(path_of("file"), 0600), 0);
		break;
	case UNLINK:
		assert_int_equal(unlink(path_of("file")), 0);
		break;
	case RENAME_OVER:
		hf_file_unref(open_file("other"));
		assert_int_equal(rename(path_of("other"), path_of("file")), 0);
		break;
	case LINK:
		assert_int_equal(link(path_of("file"), path_of("second")), 0);
		break;
	}
}

static void test_changes_are_told_at_once(void **state)
{
	for (enum change what = CHMOD; what <= LINK; what++) {
		struct hf_file *file = open_file("file");
		uint64_t since = hf_watch_count(watch);
		int number = hf_watch_add(watch, file);

		assert_true(number > 0);
		assert_true(is_unchanged(number, since));
		change(what);
		assert_false(is_unchanged(number, since));
		hf_file_unref(file);
	}
}

static void test_data_are_no_change(void **state)
{
	struct hf_file *file = open_file("file");
	int number = hf_watch_add(watch, file), fd = open(path_of("file"), O_WRONLY);

	assert_int_equal(write(fd, "data", 4), 4);
	close(fd);
	assert_true(is_unchanged(number, 0));
	hf_file_unref(file);
}

static void test_a_watch_is_over_after_a_change(void **state)
{
	struct hf_file *file = open_file("file");
	int first = hf_watch_add(watch, file), second;
	uint64_t since;

	assert_int_equal(hf_watch_add(watch, file), first);
	change(CHMOD);
	since = hf_watch_count(watch); /* not read yet */
	second = hf_watch_add(watch, file);
	assert_int_not_equal(second, first);
	assert_true(is_unchanged(second, since));
	assert_false(hf_watch_is_unchanged(watch, first, 0));
	hf_file_unref(file);
}

static void test_the_oldest_makes_room(void **state)
{
	struct hf_file *first = open_file("first");
	int number = hf_watch_add(watch, first), last = 0;
	char name[32];

	for (int i = 0; i < MORE_THAN_ARE_KEPT; i++) {
		struct hf_file *file;

		snprintf(name, sizeof(name), "file%d", i);
		file = open_file(name);
		last = hf_watch_add(watch, file);
		hf_file_unref(file);
	}
	if (last) { /* else the kernel has no more for this user */
		hf_watch_read(watch);
		assert_true(hf_watch_is_unchanged(watch, last, hf_watch_count(watch)));
		assert_false(hf_watch_is_unchanged(watch, number, 0));
	}
	hf_file_unref(first);
}

static void test_what_others_change_is_not_watched(void **state)
{
	struct hf_file *file = open_file("file");

	volume->is_local = false;
	assert_int_equal(hf_watch_add(watch, file), 0);
	assert_false(hf_watch_is_unchanged(watch, 0, UINT64_MAX));
	hf_file_unref(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_changes_are_told_at_once),          T(test_data_are_no_change),
		T(test_a_watch_is_over_after_a_change),    T(test_the_oldest_makes_room),
		T(test_what_others_change_is_not_watched),
	};

	return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
