#include "../test.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "vfs/finder.h"
#include "vfs/volume.h"

static char base[64];
static struct hf_volume *volume;
static struct hf_finder *finder;

/* A tree so large that a walk takes as long as the test wants. */
static bool is_large;
static sem_t is_walking, may_end;

/* In the place of libc's: it is the walk that calls it. */
DIR *fdopendir(int fd)
{
	DIR *(*next)(int fd) = (DIR * (*)(int)) dlsym(RTLD_NEXT, "fdopendir");

	if (is_large) {
		is_large = false;
		sem_post(&is_walking);
		sem_wait(&may_end);
	}
	return next(fd);
}

static const char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", base, name);
	return path;
}

static int set_up(void **state)
{
	struct stat st;

	strcpy(base, "/tmp/hf-finder-XXXXXX");
	sem_init(&is_walking, 0, 0);
	sem_init(&may_end, 0, 0);
	is_large = false;
	if (!mkdtemp(base) || stat(base, &st) < 0 || hf_volume_new(&volume, base) < 0)
		return -1;
	return hf_finder_new(&finder, st.st_ino);
}

static int tear_down(void **state)
{
	char command[128];

	finder = hf_finder_free(finder);
	hf_volume_unref(volume);
	sem_destroy(&is_walking);
	sem_destroy(&may_end);
	snprintf(command, sizeof(command), "rm -r %s", base);
	return system(command);
}

static struct hf_file_id make_file(const char *name)
{
	hf_cleanup(hf_closep) int fd = openat(volume->mount, name, O_CREAT | O_WRONLY, 0600);
	struct hf_file_id id;
	struct stat st;

	assert_int_equal(hf_volume_identify(volume, fd, &id, &st), 0);
	return id;
}

static void expect_found(const struct hf_file_id *id)
{
	hf_cleanup(hf_closep) int fd = hf_finder_open(finder, volume, id);
	struct hf_file_id found;
	struct stat st;

	assert_true(fd >= 0);
	assert_int_equal(hf_volume_identify(volume, fd, &found, &st), 0);
	assert_true(hf_file_id_equal(&found, id));
}

static void test_found_by_walking(void **state)
{
	struct hf_file_id deep;

	mkdir(path_of("a"), 0700);
	mkdir(path_of("a/b"), 0700);
	deep = make_file("a/b/f");
	expect_found(&deep);
	assert_int_equal(renameat(volume->mount, "a/b/f", volume->mount, "g"), 0);
	assert_int_equal(hf_finder_open(finder, volume, &deep), -EAGAIN); /* the last walk was just now */
	hf_finder_learn(finder, volume->root_stat.st_ino, "g", deep.inode);
	expect_found(&deep);
}

static void test_gone(void **state)
{
	struct hf_file_id id = make_file("f");

	assert_int_equal(unlink(path_of("f")), 0);
	assert_int_equal(hf_finder_open(finder, volume, &id), -ESTALE);
	assert_int_equal(hf_finder_open(finder, volume, &id), -EAGAIN);
}

/* Another file of that number, under the old name, is not the one. */
static void test_not_the_same(void **state)
{
	struct hf_file_id id = make_file("f"), other = id;

	expect_found(&id);
	other.bytes[other.len - 1] ^= 1;
	assert_int_equal(hf_finder_open(finder, volume, &other), -EAGAIN);
}

static void test_never_outside(void **state)
{
	struct hf_file_id id;

	mkdir(path_of("inside"), 0700);
	id = make_file("f");
	hf_finder_learn(finder, volume->root_stat.st_ino, "inside/../../tmp", id.inode);
	expect_found(&id); /* by a walk */
	assert_int_equal(symlink("/", path_of("link")), 0);
	hf_finder_learn(finder, volume->root_stat.st_ino, "link", 12345);
	hf_finder_learn(finder, 12345, "etc", id.inode);
	assert_int_equal(hf_finder_open(finder, volume, &id), -EAGAIN);
}

struct search {
	pthread_t thread;
	struct hf_file_id id;
	int fd;
};

static void *run_search(void *user)
{
	struct search *search = user;

	search->fd = hf_finder_open(finder, volume, &search->id);
	return NULL;
}

static void begin_search(struct search *search)
{
	assert_int_equal(pthread_create(&search->thread, NULL, run_search, search), 0);
}

static int end_search(struct search *search)
{
	pthread_join(search->thread, NULL);
	return search->fd;
}

/* For a file that is not there, so that it walks. */
static void begin_walk(struct search *search)
{
	search->id = make_file("gone");
	unlink(path_of("gone"));
	is_large = true;
	begin_search(search);
	sem_wait(&is_walking);
}

/* One walk takes one thread, not all of them: the others have files to serve that need no walk. */
static void test_a_long_walk_keeps_nobody(void **state)
{
	struct hf_file_id there = make_file("there");
	struct search walker;

	begin_walk(&walker);
	alarm(20);
	assert_int_equal(hf_finder_open(finder, volume, &there), -EAGAIN);
	alarm(0);
	sem_post(&may_end);
	assert_int_equal(end_search(&walker), -ESTALE);
	expect_found(&there);
}

static void test_a_short_walk_is_waited_for(void **state)
{
	struct search walker, other = { .id = make_file("there") };

	begin_walk(&walker);
	begin_search(&other);
	sem_post(&may_end);
	assert_int_equal(end_search(&walker), -ESTALE);
	assert_true(end_search(&other) >= 0);
	close(other.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_found_by_walking, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_gone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_not_the_same, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_never_outside, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_long_walk_keeps_nobody, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_short_walk_is_waited_for, set_up, tear_down),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
