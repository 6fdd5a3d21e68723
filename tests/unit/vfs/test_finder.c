#include "../test.h"

#include "../../until.h"
#include "asleep.h"
#include "no_fds.h"

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
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "vfs/finder.h"
#include "vfs/volume.h"

static char base[64];
static struct hf_volume *volume;
static struct hf_finder *finder;

/* A tree so large that a walk takes as long as the test wants. */
static bool is_large, is_cut_short;
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
	if (is_cut_short) {
		errno = ENOMEM;
		return NULL;
	}
	return next(fd);
}

/* So is this: no time passes for the finder but what the test wants. */
static struct timespec now;

int clock_gettime(clockid_t id, struct timespec *ts)
{
	*ts = now;
	return 0;
}

static void read_clock(void)
{
	int (*next)(clockid_t, struct timespec *) =
		(int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");

	assert_int_equal(next(CLOCK_MONOTONIC, &now), 0);
}

static void next_walk_is_due(void)
{
	now.tv_sec += HF_FINDER_PAUSE_S + 1;
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
	is_large = is_cut_short = false;
	read_clock();
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

static void move(const char *from, const char *to)
{
	char old[128], new[128];

	snprintf(old, sizeof(old), "%s/%s", base, from);
	snprintf(new, sizeof(new), "%s/%s", base, to);
	assert_int_equal(rename(old, new), 0);
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
	move("a/b/f", "g");
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

/* A walk that has answered a caller which was told to come later does not answer that caller again. */
static void test_looked_for_anew_after_each_answer(void **state)
{
	char outside[sizeof(base) + 8];
	struct hf_file_id id = make_file("f");

	snprintf(outside, sizeof(outside), "..%s.out", strrchr(base, '/'));
	expect_found(&id);
	move("f", "g");
	assert_int_equal(hf_finder_open(finder, volume, &id), -EAGAIN);
	next_walk_is_due();
	expect_found(&id);
	move("g", outside);
	assert_int_equal(hf_finder_open(finder, volume, &id), -EAGAIN);
	next_walk_is_due();
	assert_int_equal(hf_finder_open(finder, volume, &id), -ESTALE);
	move(outside, "h");
	next_walk_is_due();
	expect_found(&id);
}

/* The same for a caller that found the file because another call had seen it meanwhile. */
static void test_looked_for_anew_after_it_was_seen(void **state)
{
	struct hf_file_id id = make_file("f"), gone = make_file("gone");

	expect_found(&id);
	move("f", "g");
	assert_int_equal(hf_finder_open(finder, volume, &id), -EAGAIN);
	hf_finder_learn(finder, volume->root_stat.st_ino, "g", id.inode);
	expect_found(&id);
	unlink(path_of("gone"));
	next_walk_is_due();
	assert_int_equal(hf_finder_open(finder, volume, &gone), -ESTALE);
	move("g", "h");
	next_walk_is_due();
	expect_found(&id);
}

/* One walk answers all callers that were told to come later. */
static void test_one_walk_for_all(void **state)
{
	struct hf_file_id first = make_file("first"), a = make_file("a"), b;
	char name[16];
	int i = 0;

	do { /* what is noted of both has a place of its own */
		snprintf(name, sizeof(name), "%d", i++);
		b = make_file(name);
	} while (b.inode % 2 == a.inode % 2);
	for (const char **gone = (const char *[]){ "first", "a", name, NULL }; *gone; gone++)
		assert_int_equal(unlink(path_of(*gone)), 0);
	assert_int_equal(hf_finder_open(finder, volume, &first), -ESTALE);
	assert_int_equal(hf_finder_open(finder, volume, &a), -EAGAIN);
	assert_int_equal(hf_finder_open(finder, volume, &b), -EAGAIN);
	next_walk_is_due();
	assert_int_equal(hf_finder_open(finder, volume, &a), -ESTALE);
	assert_int_equal(hf_finder_open(finder, volume, &b), -ESTALE);
	assert_int_equal(hf_finder_open(finder, volume, &b), -EAGAIN);
}

/* A finder that cannot look must not say that the file is gone: the client would give it up. */
static void test_not_gone_for_want_of_descriptors(void **state)
{
	struct hf_file_id seen = make_file("seen"), unseen = make_file("unseen");
	struct rlimit limit;

	hf_finder_learn(finder, volume->root_stat.st_ino, "seen", seen.inode);
	limit = take_all_fds();
	assert_int_equal(hf_finder_open(finder, volume, &seen), -EMFILE);
	assert_int_equal(hf_finder_open(finder, volume, &unseen), -EMFILE);
	setrlimit(RLIMIT_NOFILE, &limit);
	expect_found(&seen);
	/* The walk that could not be made answers no call. */
	assert_int_equal(hf_finder_open(finder, volume, &unseen), -EAGAIN);
	next_walk_is_due();
	expect_found(&unseen);
}

static void test_a_walk_up_needs_no_descriptors(void **state)
{
	hf_cleanup(hf_closep) int below = -1;
	struct rlimit limit;

	mkdir(path_of("a"), 0700);
	mkdir(path_of("a/b"), 0700);
	below = openat(volume->root, "a/b", O_PATH);
	volume->is_clone = false; /* as for an ordinary user: the way up is walked */
	assert_int_equal(hf_volume_check_place(volume, below), 0);
	limit = take_all_fds();
	assert_int_equal(hf_volume_check_place(volume, below), 0);
	setrlimit(RLIMIT_NOFILE, &limit);
	assert_int_equal(rename(path_of("a/b"), "/tmp/hf-finder-moved"), 0);
	assert_int_equal(hf_volume_check_place(volume, below), -ESTALE);
	assert_int_equal(rmdir("/tmp/hf-finder-moved"), 0);
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
	_Atomic pid_t tid;
	struct hf_file_id id;
	int fd;
};

static void *run_search(void *user)
{
	struct search *search = user;

	search->tid = gettid();
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
static void test_a_long_walk_keeps_no_other_call(void **state)
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

	now.tv_sec += 3600; /* so long until the other has waited for too long */
	begin_walk(&walker);
	begin_search(&other);
	sem_post(&may_end);
	assert_int_equal(end_search(&walker), -ESTALE);
	assert_true(end_search(&other) >= 0);
	close(other.fd);
}

static void test_a_walk_that_fails_answers_no_call(void **state)
{
	struct search walker, other = { .id = make_file("there") };
	struct until until = until_begin(UNTIL_PATIENCE);

	begin_walk(&walker);
	begin_search(&other);
	while (!other.tid || !is_asleep(other.tid)) /* it waits for the walk */
		assert_true(until_again(&until));
	is_cut_short = true;
	sem_post(&may_end);
	assert_int_equal(end_search(&walker), -ENOMEM);
	assert_int_equal(end_search(&other), -EAGAIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_found_by_walking, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_gone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_looked_for_anew_after_each_answer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_looked_for_anew_after_it_was_seen, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_one_walk_for_all, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_not_gone_for_want_of_descriptors, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_walk_up_needs_no_descriptors, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_not_the_same, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_never_outside, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_long_walk_keeps_no_other_call, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_short_walk_is_waited_for, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_walk_that_fails_answers_no_call, set_up, tear_down),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
