#include "folder.h"

#include <time.h>

#include "vfs/access.h"
#include "vfs/attr.h"

#define NS_PER_S  INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)

static struct timespec now = { .tv_sec = 1000 };

/* In the place of libc's. Other clocks are not read here. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
	*time = now;
	return 0;
}

static int set_up(void **state)
{
	return open_folder(100);
}

static int tear_down(void **state)
{
	return close_folder();
}

static struct stat changed_at(int64_t ns)
{
	return (struct stat){ .st_ctim = { .tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S } };
}

static bool is_settled_after(int64_t changed, int64_t ns)
{
	struct stat st = changed_at(changed);

	now = (struct timespec){ .tv_sec = (changed + ns) / NS_PER_S, .tv_nsec = (changed + ns) % NS_PER_S };
	return hf_stat_shows_changes(&st);
}

static void test_a_tick_settles_a_fine_ctime(void **state)
{
	int64_t changed = 1000 * NS_PER_S + 4 * NS_PER_MS;

	assert_false(is_settled_after(changed, 0));
	assert_false(is_settled_after(changed, 20 * NS_PER_MS));
	assert_true(is_settled_after(changed, 21 * NS_PER_MS));
	assert_false(is_settled_after(changed, -NS_PER_S)); /* the clock was set back */
}

/* ext4 with small inodes stores whole seconds, FAT every other second. */
static void test_whole_seconds_settle_after_two(void **state)
{
	int64_t changed = 1000 * NS_PER_S;

	assert_false(is_settled_after(changed, 999 * NS_PER_MS));
	assert_false(is_settled_after(changed, 2 * NS_PER_S));
	assert_true(is_settled_after(changed, 2 * NS_PER_S + 21 * NS_PER_MS));
}

/* A FUSE file system may have no ctime that shows a change of the mode. */
static void test_our_own_change_forgets_the_rights(void **state)
{
	hf_cleanup(hf_file_unrefp) struct hf_file *file = open_file("f");
	struct hf_identity other = { .uid = 12345, .gid = 12345 }, owner = ourselves();
	struct hf_setattr closed = { .set_mode = true,
				     .atime.tv_nsec = UTIME_OMIT,
				     .mtime.tv_nsec = UTIME_OMIT };
	struct hf_change change = { 0 };
	struct stat st = changed_at(7 * NS_PER_S);

	if (!hf_identity_can_switch())
		skip();
	assert_int_equal(hf_file_access(file, &other, &st), R_OK);
	assert_int_equal(hf_file_setattr(file, &owner, &closed, NULL, &change), 0);
	assert_int_equal(hf_file_access(file, &other, &st), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_tick_settles_a_fine_ctime),
		cmocka_unit_test(test_whole_seconds_settle_after_two),
		cmocka_unit_test(test_our_own_change_forgets_the_rights),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
