/* The files that local locks are held in: who closes them, what is left when the kernel keeps a lock, and
 * when a busy one is covered. */
#include "../test.h"
#include "../closing.h"
#include "../said.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "export/local.h"

#define SWEEPS_TO_IDLE 11
#define MAX_FILES      2
#define MANY_FILES     1000

static char base[64];
static struct hf_loop *loop;
static struct hf_exports *exports;
static struct hf_volume *volume;
static struct hf_files *files;
static struct hf_locks *locks;
static struct hf_local *local;

static _Atomic int n_kept; /* so many unlocks are refused */
static int n_granted;
static size_t n_asked; /* is a file known to the lock table? */

bool __real_hf_lock_knows_file(const struct hf_locks *table, struct hf_bytes handle);
bool __wrap_hf_lock_knows_file(const struct hf_locks *table, struct hf_bytes handle);
bool __wrap_hf_lock_knows_file(const struct hf_locks *table, struct hf_bytes handle)
{
	n_asked++;
	return __real_hf_lock_knows_file(table, handle);
}

/* In the place of libc's */
int fcntl(int fd, int cmd, ...)
{
	va_list args;
	void *arg;

	va_start(args, cmd);
	arg = va_arg(args, void *);
	va_end(args);
	if (cmd == F_OFD_SETLK && ((struct flock *)arg)->l_type == F_UNLCK && n_kept > 0) {
		n_kept--;
		errno = ENOLCK;
		return -1;
	}
	return (int)syscall(SYS_fcntl, fd, cmd, arg);
}

static enum hf_local_locks policy(void *user, uint32_t export)
{
	return HF_LOCAL_LOCKS_ON;
}

static struct hf_bytes handle_of(void *user, uint32_t export, struct hf_bytes key,
				 uint8_t room[HF_LOCK_HANDLE_MAX])
{
	return key;
}

static void on_granted(void *context, const struct hf_lock_view *waiter)
{
	n_granted++;
}

static const struct hf_lock_events events = { .granted = on_granted };

static int set_up_for(size_t max_files)
{
	struct hf_locks_options locks_options = { .events = &events, .outside = &hf_local_outside };
	struct hf_exports_options options = { .state_dir = base };
	struct hf_local_options local_options = { .policy = policy,
						  .handle = handle_of,
						  .max_files = max_files };

	strcpy(base, "/tmp/hf-local-XXXXXX");
	if (!mkdtemp(base) || hf_loop_new(&loop) < 0)
		return -1;
	options.loop = local_options.loop = loop;
	if (hf_exports_new(&exports, &options) < 0 || hf_volume_new(&volume, base) < 0 ||
	    hf_files_new(&files, 100) < 0)
		return -1;
	local_options.exports = exports;
	if (hf_local_new(&local, &local_options) < 0)
		return -1;
	locks_options.outside_context = local;
	if (hf_locks_new(&locks, &locks_options) < 0)
		return -1;
	hf_local_set_locks(local, locks);
	return 0;
}

static int set_up(void **state)
{
	return set_up_for(MAX_FILES);
}

static int set_up_for_many(void **state)
{
	return set_up_for(MANY_FILES);
}

static int tear_down(void **state)
{
	char command[128];

	hf_locks_free(locks);
	hf_local_free(local);
	hf_files_free(files);
	hf_volume_unref(volume);
	hf_exports_free(exports);
	hf_loop_free(loop);
	snprintf(command, sizeof(command), "rm -r %s", base);
	return system(command);
}

static struct hf_local_opened opened(const char *name)
{
	struct hf_local_opened opened;
	struct hf_file *file;
	struct stat st;

	close(openat(volume->root, name, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(hf_files_take(files, volume, openat(volume->root, name, O_PATH), false, &file, &st),
			 0);
	opened = hf_local_open(file);
	hf_file_unref(file);
	assert_int_equal(opened.error, 0);
	return opened;
}

static void adopt(const char *name, struct hf_local_opened opened)
{
	assert_int_equal(hf_local_adopt(local, hf_bytes_of_str(name), opened), 0);
}

static void test_one_that_makes_room(void **state)
{
	struct hf_local_opened first = opened("a");

	watch(first.fd);
	adopt("a", first);
	adopt("b", opened("b"));
	adopt("c", opened("c"));
	expect_closed_elsewhere(loop);
	assert_true(hf_local_needs(local, 0, hf_bytes_of_str("a")));
}

static void test_a_second_descriptor_is_closed(void **state)
{
	struct hf_local_opened second = opened("other");

	adopt("a", opened("a"));
	watch(second.fd);
	adopt("a", second);
	expect_closed_elsewhere(loop);
}

static void test_all_are_closed_at_the_end(void **state)
{
	size_t before = hf_files_count_fds(files);
	static const char *const names[] = { "a", "b", "c", "d", "e", "f", "g" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		adopt(names[i], opened(names[i]));
	hf_local_free(local);
	local = NULL;
	for (int i = 0; i < SWEEPS_TO_IDLE; i++)
		hf_files_sweep(files);
	hf_files_close_all(files);
	assert_int_equal(hf_files_count_fds(files), before);
}

static const struct hf_range piece = { 10, 19 };

static int take(const char *name)
{
	const struct hf_lock_target who = { .handle = hf_bytes_of_str(name) };

	return hf_local_outside.take(local, &who, piece, HF_LOCK_EXCLUSIVE);
}

static void let_go(const char *name)
{
	hf_local_outside.trim(local, hf_bytes_of_str(name), piece, 0);
}

/* Is it free for others, the kernel's word? */
static bool is_free(const char *name)
{
	struct flock flock = { .l_type = F_WRLCK };
	int fd = openat(volume->mount, name, O_RDWR), r = fcntl(fd, F_OFD_GETLK, &flock);

	close(fd);
	return r == 0 && flock.l_type == F_UNLCK;
}

/* The kernel keeps a lock that was to be given back: closing the file does it, and nothing of it is left. */
static void test_what_the_kernel_kept(void **state)
{
	struct hf_local_opened first = opened("a");

	adopt("a", first);
	assert_int_equal(take("a"), HF_LOCK_OK);
	assert_false(is_free("a"));
	watch(first.fd);
	n_kept = 1;
	let_go("a");
	expect_closed_elsewhere(loop);
	assert_true(is_free("a"));
	assert_int_equal(take("a"), HF_LOCK_E_LIMIT);
	adopt("a", opened("a"));
	assert_int_equal(take("a"), HF_LOCK_OK);
	assert_false(is_free("a"));
	let_go("a");
	assert_true(is_free("a"));
}

/* It is opened again before it was closed. */
static void test_what_the_kernel_kept_too_long(void **state)
{
	struct hf_local_opened second;

	adopt("a", opened("a"));
	assert_int_equal(take("a"), HF_LOCK_OK);
	second = opened("a");
	n_kept = 1;
	let_go("a");
	adopt("a", second);
	assert_true(is_free("a"));
}

/* CLEAN-UP after a dead client, of which the kernel refuses a part */

static int ask(const char *name, struct hf_lock_client *client, bool wait)
{
	const struct hf_lock_request request = {
		.who = { .handle = hf_bytes_of_str(name), .client = client },
		.range = piece,
		.mode = HF_LOCK_EXCLUSIVE,
		.wait = wait,
	};

	return hf_lock_acquire(locks, &request, NULL);
}

/* It keeps going: what was refused is logged and given back by closing, the rest is released as ever, and
 * the waiter for that is served. */
static void test_one_release_of_a_clean_up_fails(void **state)
{
	struct hf_local_opened first = opened("a");
	struct hf_lock_client dead, next;
	struct said said;

	n_granted = 0;
	hf_lock_client_init(locks, &dead);
	hf_lock_client_init(locks, &next);
	adopt("a", first);
	adopt("b", opened("b"));
	assert_int_equal(ask("a", &dead, false), HF_LOCK_OK);
	assert_int_equal(ask("b", &dead, false), HF_LOCK_OK);
	assert_int_equal(ask("b", &next, true), HF_LOCK_E_QUEUED);
	watch(first.fd);
	n_kept = 1;
	said_begin(&said);
	hf_log_configure(HF_LOG_WARN, HF_LOG_TEXT);
	hf_lock_client_purge(locks, &dead);
	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	said_end(&said);
	assert_int_equal(n_kept, 0);
	assert_int_equal(said_times(&said, "ENOLCK"), 1);
	assert_true(hf_lock_client_is_idle(&dead));
	assert_int_equal(n_granted, 1);
	expect_closed_elsewhere(loop);
	assert_true(is_free("a"));
	assert_false(is_free("b")); /* it is the waiter's */
	hf_lock_client_purge(locks, &next);
	assert_true(is_free("b"));
}

/* THE LIMIT */

/* The least of several: what else happens meanwhile does not count. */
static uint64_t least_ns_to_adopt(char kind)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 100; i++) {
		struct hf_local_opened file = opened("other");
		struct timespec from, to;
		char name[32];

		snprintf(name, sizeof(name), "%c%d", kind, i);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
		adopt(name, file);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
		least = HF_MIN(least, (uint64_t)(to.tv_sec - from.tv_sec) * HF_NS_PER_S +
					      (uint64_t)to.tv_nsec - (uint64_t)from.tv_nsec);
	}
	return least;
}

static void expect_use(uint64_t used, uint64_t refused)
{
	struct hf_limit_use use = { 0 };

	hf_local_show_limit(local, &use);
	assert_int_equal(use.used, used);
	assert_int_equal(use.max, MAX_FILES);
	assert_int_equal(use.refused, refused);
}

static void test_what_is_refused_is_counted(void **state)
{
	expect_use(0, 0);
	adopt("a", opened("a"));
	adopt("b", opened("b"));
	assert_int_equal(take("a"), HF_LOCK_OK);
	assert_int_equal(take("b"), HF_LOCK_OK);
	expect_use(2, 0);
	adopt("c", opened("c"));
	for (uint64_t i = 1; i <= 3; i++) {
		assert_int_equal(take("c"), HF_LOCK_E_LIMIT);
		expect_use(2, i);
	}
	adopt("d", (struct hf_local_opened){ .error = -EACCES });
	assert_int_equal(take("d"), HF_LOCK_E_LIMIT); /* for another reason */
	expect_use(2, 3);
}

/* All files that may be open are locked, and a client asks for ever other ones. */
static void test_what_is_refused_costs_no_more_with_time(void **state)
{
	uint64_t before;
	char name[32];

	adopt("a", opened("a"));
	adopt("b", opened("b"));
	assert_int_equal(take("a"), HF_LOCK_OK);
	assert_int_equal(take("b"), HF_LOCK_OK);
	before = least_ns_to_adopt('x');
	for (int i = 0; i < 50000; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		adopt(name, (struct hf_local_opened){ .error = -EMFILE });
	}
	assert_in_range(least_ns_to_adopt('y'), 0, 10 * before + 10000);
}

/* Clients wait for local processes in all files that may be open: none of them is closed for others, and each
 * call looks at a few only. */
static void test_many_files_with_waiters(void **state)
{
	struct flock whole = { .l_type = F_WRLCK };
	struct hf_lock_client client;
	char name[32];
	int fd;

	close(openat(volume->root, "same", O_CREAT | O_WRONLY, 0600));
	fd = openat(volume->mount, "same", O_RDWR);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &whole), 0);
	hf_lock_client_init(locks, &client);
	for (int i = 0; i < MANY_FILES - 1; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		adopt(name, opened("same"));
		assert_int_equal(ask(name, &client, true), HF_LOCK_E_QUEUED);
	}
	adopt("idle", opened("other"));
	n_asked = 0;
	for (int i = 0; i < MANY_FILES && !hf_local_needs(local, 0, hf_bytes_of_str("idle")); i++) {
		size_t asked = n_asked;

		snprintf(name, sizeof(name), "g%d", i);
		adopt(name, opened("other"));
		assert_in_range(n_asked - asked, 1, 100);
	}
	assert_true(hf_local_needs(local, 0, hf_bytes_of_str("idle"))); /* it made room */
	assert_false(hf_local_needs(local, 0, hf_bytes_of_str("f0")));
	hf_lock_client_purge(locks, &client);
	close(fd);
}

/* COVERS */

static void stop(struct hf_timer *timer)
{
	hf_loop_stop(loop);
}

/* Lets the loop run for so long. */
static void turn(uint64_t ns)
{
	struct hf_timer timer;

	hf_timer_init(&timer, loop, stop);
	hf_timer_start(&timer, ns);
	hf_loop_run(loop);
}

static void await_free(struct hf_timer *timer)
{
	if (is_free("a"))
		hf_loop_stop(loop);
	else
		hf_timer_start(timer, HF_NS_PER_MS);
}

static void expect_free_soon(void)
{
	struct hf_timer timer;

	hf_timer_init(&timer, loop, await_free);
	hf_timer_start(&timer, 0);
	hf_loop_run(loop);
	hf_timer_stop(&timer);
}

/* A client locks and unlocks until the server has the whole file. */
static void make_busy(struct hf_lock_client *client)
{
	const struct hf_lock_target who = { .handle = hf_bytes_of_str("a"), .client = client };

	for (int i = 0; i < 100000 && is_free("a"); i++) {
		assert_int_equal(ask("a", client, false), HF_LOCK_OK);
		assert_int_equal(hf_lock_release(locks, &who, piece), HF_LOCK_OK);
	}
	assert_false(is_free("a"));
}

static void test_a_cover_ends(void **state)
{
	struct hf_lock_client client;

	hf_lock_client_init(locks, &client);
	adopt("a", opened("a"));
	make_busy(&client);
	expect_free_soon();
	make_busy(&client);
	assert_int_equal(ask("a", &client, false), HF_LOCK_OK);
	hf_lock_client_purge(locks, &client);
	expect_free_soon();
}

/* What the server does not need stays in the kernel. Closing the file releases it. */
static void test_a_cover_that_the_kernel_keeps(void **state)
{
	struct hf_local_opened first = opened("a");
	struct hf_lock_client client;

	hf_lock_client_init(locks, &client);
	adopt("a", first);
	make_busy(&client);
	watch(first.fd);
	n_kept = 1;
	expect_closed_elsewhere(loop);
	assert_int_equal(n_kept, 0);
	assert_true(is_free("a"));
}

/* A client has a lock, so the file stays open. The server tries again. */
static void test_a_cover_that_the_kernel_keeps_for_a_while(void **state)
{
	struct hf_lock_client client;
	const struct hf_lock_target who = { .handle = hf_bytes_of_str("a"), .client = &client };
	struct flock far = { .l_type = F_WRLCK, .l_start = 1000, .l_len = 1 };
	int fd, r;

	hf_lock_client_init(locks, &client);
	adopt("a", opened("a"));
	make_busy(&client);
	assert_int_equal(ask("a", &client, false), HF_LOCK_OK);
	n_kept = 3;
	fd = openat(volume->mount, "a", O_RDWR);
	for (int i = 0; i < 10000 && (r = fcntl(fd, F_OFD_SETLK, &far)) < 0; i++)
		turn(2 * HF_NS_PER_MS);
	assert_int_equal(r, 0);
	assert_int_equal(n_kept, 0);
	assert_int_equal(hf_lock_release(locks, &who, piece), HF_LOCK_OK);
	close(fd);
	assert_true(is_free("a"));
}

/* The file is closed while it is covered: with the server, or since it is not used. */
static void test_closed_while_it_is_covered(void **state)
{
	struct hf_lock_client client;

	hf_lock_client_init(locks, &client);
	adopt("a", opened("a"));
	make_busy(&client);
	hf_local_free(local);
	local = NULL;
	for (int i = 0; i < SWEEPS_TO_IDLE; i++)
		hf_files_sweep(files);
	hf_files_close_all(files);
	assert_true(is_free("a"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one_that_makes_room, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_second_descriptor_is_closed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_what_the_kernel_kept, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_what_the_kernel_kept_too_long, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_one_release_of_a_clean_up_fails, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_all_are_closed_at_the_end, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_what_is_refused_is_counted, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_what_is_refused_costs_no_more_with_time, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_many_files_with_waiters, set_up_for_many, tear_down),
		cmocka_unit_test_setup_teardown(test_a_cover_ends, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_cover_that_the_kernel_keeps, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_cover_that_the_kernel_keeps_for_a_while, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_closed_while_it_is_covered, set_up, tear_down),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
