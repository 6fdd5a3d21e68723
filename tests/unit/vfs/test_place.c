/* Is a directory still in the tree? Found without CAP_SYS_ADMIN, in a mount namespace of this program's own.
 */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/caps.h"
#include "base/cleanup.h"
#include "vfs/volume.h"

static char base[] = "/tmp/hf-place-XXXXXX";
static bool has_mounts;

static const char *path_of(const char *name)
{
	static char paths[2][256];
	static unsigned int n;
	char *path = paths[n++ % 2];

	snprintf(path, sizeof(paths[0]), "%s/%s", base, name);
	return path;
}

/* tree: a directory; bound: the same as the root of a mount; both in base, which is the root of a file
 * system. */
static int set_up(void **state)
{
	struct hf_caps caps;

	has_mounts = unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		     mount("tmpfs", base, "tmpfs", 0, NULL) == 0;
	if (!has_mounts)
		return 0;
	mkdir(path_of("tree"), 0755);
	mkdir(path_of("bound"), 0755);
	mkdir(path_of("outside"), 0755);
	has_mounts = mount(path_of("tree"), path_of("bound"), NULL, MS_BIND, NULL) == 0;
	caps = hf_caps_get();
	caps.permitted &= ~HF_CAP(CAP_SYS_ADMIN);
	caps.effective = caps.permitted;
	return hf_caps_limit(caps);
}

static struct hf_volume *open_volume(const char *name)
{
	struct hf_volume *volume = NULL;

	if (!has_mounts)
		skip();
	mkdir(path_of("tree/a"), 0755);
	mkdir(path_of("tree/a/b"), 0755);
	assert_int_equal(hf_volume_new(&volume, path_of(name)), 0);
	assert_false(volume->is_clone);
	return volume;
}

static void check_that_moved_is_out(struct hf_volume *volume)
{
	hf_cleanup(hf_closep) int fd = openat(volume->root, "a/b", O_PATH);

	assert_true(fd >= 0);
	assert_int_equal(hf_volume_check_place(volume, volume->root), 0);
	assert_int_equal(hf_volume_check_place(volume, fd), 0);
	assert_int_equal(rename(path_of("tree/a"), path_of("outside/a")), 0);
	assert_int_equal(hf_volume_check_place(volume, fd), -ESTALE);
	assert_int_equal(rename(path_of("outside/a"), path_of("tree/a")), 0);
	assert_int_equal(hf_volume_check_place(volume, fd), 0);
}

static void test_by_walking_up(void **state)
{
	hf_cleanup(hf_volume_unrefp) struct hf_volume *volume = open_volume("tree");

	assert_false(volume->is_mount_root);
	check_that_moved_is_out(volume);
}

/* One look up, which the kernel denies to what is not below the root of the mount. */
static void test_at_the_root_of_a_mount(void **state)
{
	hf_cleanup(hf_volume_unrefp) struct hf_volume *volume = open_volume("bound");

	assert_true(volume->is_mount_root);
	check_that_moved_is_out(volume);
}

/* The handle of a directory that is outside opens it by the mount of the tree, too. */
static void test_a_handle_from_outside(void **state)
{
	hf_cleanup(hf_volume_unrefp) struct hf_volume *volume = open_volume("bound");
	hf_cleanup(hf_closep) int dir = openat(volume->root, "a/b", O_PATH), fd = -1;
	struct hf_file_id id;
	struct stat st;

	if (!volume->has_ids)
		skip();
	assert_int_equal(hf_volume_identify(volume, dir, &id, &st), 0);
	assert_int_equal(hf_volume_open_id(volume, &id, &fd, &st), 0);
	hf_closep(&fd);
	assert_int_equal(rename(path_of("tree/a"), path_of("outside/a")), 0);
	assert_int_equal(hf_volume_open_id(volume, &id, &fd, &st), -ESTALE);
	assert_int_equal(rename(path_of("outside/a"), path_of("tree/a")), 0);
}

/* A process of its own, with which its mounts end: then the directory can be removed. */
int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_walking_up),
		cmocka_unit_test(test_at_the_root_of_a_mount),
		cmocka_unit_test(test_a_handle_from_outside),
	};
	int status = -1;
	pid_t child;

	if (!mkdtemp(base))
		return EXIT_FAILURE;
	child = fork();
	if (child == 0)
		return cmocka_run_group_tests(tests, set_up, NULL);
	if (child > 0)
		waitpid(child, &status, 0);
	rmdir(base);
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}
