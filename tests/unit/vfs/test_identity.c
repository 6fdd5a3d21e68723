#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/caps.h"
#include "base/log.h"
#include "vfs/identity.h"

static bool is_contained;

/* In the place of libc's: containers forbid it. */
int unshare(int flags)
{
	if (!is_contained)
		return (int)syscall(SYS_unshare, flags);
	errno = EPERM;
	return -1;
}

static int set_up(void **state)
{
	umask(077); /* must not show in what clients make */
	return 0;
}

/* Ids of 32 bits: there are calls that take 16 of them and say nothing. */
static void test_files_belong_to_the_caller(void **state)
{
	struct hf_identity who = { .uid = 3000001234, .gid = 3000004321, .n_gids = 2, .gids = { 5, 70006 } };
	char dir[] = "/tmp/hf-identity-XXXXXX", path[64];
	gid_t groups[3];
	struct stat st;

	if (!hf_identity_can_switch())
		skip();
	assert_non_null(mkdtemp(dir));
	chmod(dir, 0777);
	snprintf(path, sizeof(path), "%s/f", dir);
	assert_int_equal(hf_identity_enter(&who), 0);
	close(open(path, O_CREAT | O_EXCL | O_WRONLY, 0666));
	assert_int_equal(getgroups(3, groups), 2);
	hf_identity_leave();
	assert_int_equal(groups[0], 5);
	assert_int_equal(groups[1], 70006);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 3000001234);
	assert_int_equal(st.st_gid, 3000004321);
	assert_int_equal(st.st_mode & 0777, 0666);
	unlink(path);
	close(open(path, O_CREAT | O_EXCL | O_WRONLY, 0666));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 0);
	assert_int_equal(st.st_gid, 0);
	unlink(path);
	rmdir(dir);
}

static void test_a_list_of_groups(void **state)
{
	static struct hf_group_list list = { .id = 7, .n = 100 },
				    other = { .id = 9, .n = 3, .gids = { 1, 2, 3 } };
	struct hf_identity few = { .uid = 1234, .gid = 5, .n_gids = 2, .gids = { 6, 7 } }, many = few;
	gid_t groups[HF_IDENTITY_MAX_LISTED];

	if (!hf_identity_can_switch())
		skip();
	for (uint32_t i = 0; i < list.n; i++)
		list.gids[i] = 3000 + i;
	for (int i = 0; i < 2; i++) {
		many.list = i ? &other : &list;
		many.list_id = many.list->id;
		assert_int_equal(hf_identity_enter(&few), 0);
		assert_int_equal(getgroups(HF_IDENTITY_MAX_LISTED, groups), 2);
		hf_identity_leave();
		for (int again = 0; again < 2; again++) {
			assert_int_equal(hf_identity_enter(&many), 0);
			assert_int_equal(getgroups(HF_IDENTITY_MAX_LISTED, groups), many.list->n);
			assert_memory_equal(groups, many.list->gids, many.list->n * sizeof(groups[0]));
			hf_identity_leave();
		}
	}
}

static void *make_file(void *path)
{
	struct hf_identity who = { .uid = (uint32_t)geteuid(), .gid = (uint32_t)getegid() };

	if (hf_identity_enter(&who) < 0)
		return NULL;
	close(open(path, O_CREAT | O_EXCL | O_WRONLY, 0666));
	hf_identity_leave();
	return NULL;
}

static void test_no_umask_in_a_container(void **state)
{
	char path[] = "/tmp/hf-identity-XXXXXX";
	mode_t before = umask(077);
	pthread_t thread;
	struct stat st;

	close(mkstemp(path));
	unlink(path);
	is_contained = true;
	assert_int_equal(pthread_create(&thread, NULL, make_file, path), 0);
	pthread_join(thread, NULL);
	is_contained = false;
	umask(before);
	assert_int_equal(stat(path, &st), 0);
	unlink(path);
	assert_int_equal(st.st_mode & 0777, 0666);
}

static bool can_read(const char *path, uint32_t gid, uint32_t other_gid)
{
	struct hf_identity who = { .uid = 1234, .gid = gid, .n_gids = 1, .gids = { other_gid } };
	int fd;

	assert_int_equal(hf_identity_enter(&who), 0);
	fd = open(path, O_RDONLY);
	hf_identity_leave();
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void test_groups_are_those_of_this_call(void **state)
{
	char path[] = "/tmp/hf-identity-XXXXXX";
	int fd;

	if (!hf_identity_can_switch())
		skip();
	fd = mkstemp(path);
	fchown(fd, 0, 70777);
	fchmod(fd, 0640);
	assert_true(can_read(path, 70777, 5));
	assert_true(can_read(path, 5, 70777));
	assert_false(can_read(path, 5, 6)); /* the groups before are gone */
	assert_true(can_read(path, 5, 70777));
	assert_false(can_read(path, 5, 6));
	close(fd);
	unlink(path);
}

/* setfsuid() of what is no user changes nothing and says nothing: no call may go on as the superuser. */
static void test_an_invalid_id_is_refused(void **state)
{
	struct hf_identity who = { .uid = UINT32_MAX, .gid = 5 };

	if (!hf_identity_can_switch())
		skip();
	assert_int_equal(hf_identity_enter(&who), -EPERM);
	who = (struct hf_identity){ .uid = 5, .gid = UINT32_MAX };
	assert_int_equal(hf_identity_enter(&who), -EPERM);
	assert_int_equal(syscall(SYS_setfsuid, UINT32_MAX), 0);
	assert_int_equal(syscall(SYS_setfsgid, UINT32_MAX), 0);
}

static void test_quotas_are_not_overlooked(void **state)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	hf_identity_can_switch();
	assert_int_equal(syscall(SYS_capget, &header, data), 0);
	assert_int_equal(data[0].effective & (1u << CAP_SYS_RESOURCE), 0);
}

/* Runs @fn in a process of its own, and returns what it returns. */
static int in_a_process(int (*fn)(const char *path), const char *path)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(fn(path));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

struct
try {
	const char *path;
	bool can_switch;
	bool is_open_to_other, is_open_to_root, is_open_after;
};

static bool can_open(const char *path, uint32_t uid)
{
	struct hf_identity who = { .uid = uid, .gid = uid };
	int fd = -1;

	if (hf_identity_enter(&who) == 0) {
		fd = open(path, O_RDONLY);
		hf_identity_leave();
	}
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void *try_in_thread(void *user)
{
	struct try *try = user;
	int fd;

	try->can_switch = hf_identity_can_switch();
	try->is_open_to_other = can_open(try->path, 1234);
	try->is_open_to_root = can_open(try->path, 0);
	fd = open(try->path, O_RDONLY);
	try->is_open_after = fd >= 0;
	return NULL;
}

static struct try try_in_new_thread(const char *path)
{
	struct try try = { .path = path };
	pthread_t thread;

	if (pthread_create(&thread, NULL, try_in_thread, &try) == 0)
		pthread_join(thread, NULL);
	return try;
}

/* As a service manager starts it with a user and capabilities. */
static int serve_as_own_user(const char *path)
{
	const uint64_t caps = HF_CAP(CAP_SETUID) | HF_CAP(CAP_SETGID) | HF_CAP(CAP_DAC_OVERRIDE);
	struct try try;

	if (prctl(PR_SET_KEEPCAPS, 1) < 0 || setresgid(65534, 65534, 65534) < 0 ||
	    setresuid(65534, 65534, 65534) < 0 ||
	    hf_caps_limit((struct hf_caps){ .permitted = caps, .effective = caps }) < 0)
		return 1;
	try = try_in_new_thread(path);
	return try.can_switch && !try.is_open_to_other && try.is_open_to_root && try.is_open_after ? 0 : 2;
}

static void test_a_user_of_its_own_with_capabilities(void **state)
{
	char path[] = "/tmp/hf-identity-XXXXXX";

	if (!hf_identity_can_switch())
		skip();
	close(mkstemp(path)); /* the superuser's, 0600 */
	assert_int_equal(in_a_process(serve_as_own_user, path), 0);
	unlink(path);
}

/* All capabilities, but no other user and no groups: each file operation runs as the one user that is there.
 */
static int serve_in_user_namespace(const char *path)
{
	char map[32];
	int setgroups, uids;
	struct try try;

	snprintf(map, sizeof(map), "0 %u 1", (unsigned int)geteuid());
	if (syscall(SYS_unshare, CLONE_NEWUSER) < 0)
		return 77;
	setgroups = open("/proc/self/setgroups", O_WRONLY);
	uids = open("/proc/self/uid_map", O_WRONLY);
	if (write(setgroups, "deny", 4) != 4 || write(uids, map, strlen(map)) != (ssize_t)strlen(map))
		return 77;
	try = try_in_new_thread(path);
	return !try.can_switch && try.is_open_to_other && try.is_open_to_root && try.is_open_after ? 0 : 2;
}

static void test_a_namespace_with_one_user(void **state)
{
	char path[] = "/tmp/hf-identity-XXXXXX";
	int result;

	close(mkstemp(path));
	result = in_a_process(serve_in_user_namespace, path);
	unlink(path);
	if (result == 77)
		skip();
	assert_int_equal(result, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files_belong_to_the_caller),
		cmocka_unit_test(test_a_list_of_groups),
		cmocka_unit_test(test_no_umask_in_a_container),
		cmocka_unit_test(test_groups_are_those_of_this_call),
		cmocka_unit_test(test_an_invalid_id_is_refused),
		cmocka_unit_test(test_quotas_are_not_overlooked),
		cmocka_unit_test(test_a_user_of_its_own_with_capabilities),
		cmocka_unit_test(test_a_namespace_with_one_user),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, set_up, NULL);
}
