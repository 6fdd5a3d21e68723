/* The owner's command: scripts of the test's own, run by the helper. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../until.h"
#include "base/macros.h"
#include "cluster/fence.h"

#define wait_until(condition)                                     \
	do {                                                      \
		struct until until = until_begin(UNTIL_PATIENCE); \
		while (!(condition))                              \
			assert_true(until_again(&until));         \
	} while (0)

#define LONG_MS 20000 /* for what ends soon, on any machine */

struct place {
	char folder[64];
	char script[96];
	char seen[96]; /* what the script was told */
};

static struct place place;

static void write_script(const char *text)
{
	FILE *file = fopen(place.script, "w");

	assert_non_null(file);
	fprintf(file, "#!/bin/sh\n%s\n", text);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(place.script, 0700), 0);
}

static int make_place(void **state)
{
	strcpy(place.folder, "/tmp/hf-fence-XXXXXX");
	if (!mkdtemp(place.folder))
		return -1;
	snprintf(place.script, sizeof(place.script), "%s/script", place.folder);
	snprintf(place.seen, sizeof(place.seen), "%s/seen", place.folder);
	return 0;
}

static int remove_place(void **state)
{
	unlink(place.script);
	unlink(place.seen);
	return rmdir(place.folder);
}

static struct hf_fence *new_fence(const char *arguments)
{
	struct hf_fence *fence;
	char command[512], error[256];

	snprintf(command, sizeof(command), "%s%s", place.script, arguments);
	assert_int_equal(hf_fence_check(command, error, sizeof(error)), 0);
	assert_int_equal(hf_fence_new(&fence, command), 0);
	return fence;
}

static int run_once(const char *text, const char *node, uint32_t timeout_ms, char *message)
{
	struct hf_fence *fence;
	int r;

	write_script(text);
	fence = new_fence("");
	r = hf_fence_run(fence, node, timeout_ms, message, HF_FENCE_MESSAGE);
	hf_fence_free(fence);
	return r;
}

static void read_seen(char *out, size_t size)
{
	FILE *file = fopen(place.seen, "r");
	size_t n;

	assert_non_null(file);
	n = fread(out, 1, size - 1, file);
	out[n] = '\0';
	fclose(file);
}

static void test_exit_status_decides(void **state)
{
	char message[HF_FENCE_MESSAGE];

	assert_int_equal(run_once("exit 0", "n1", LONG_MS, message), HF_FENCE_OK);
	assert_string_equal(message, "exit status 0");
	assert_int_equal(run_once("echo no such outlet; echo second; exit 3", "n1", LONG_MS, message),
			 HF_FENCE_E_FAILED);
	assert_string_equal(message, "exit status 3: no such outlet");
	assert_int_equal(run_once("kill -9 $$", "n1", LONG_MS, message), HF_FENCE_E_FAILED);
	assert_string_equal(message, "ended by signal 9");
	assert_int_equal(run_once("printf 'a\\001\\377b' >&2", "n1", LONG_MS, message), HF_FENCE_OK);
	assert_string_equal(message, "exit status 0: a??b");
}

/* More than a pipe holds, and than the message has room for. */
static void test_output_is_bounded(void **state)
{
	char message[HF_FENCE_MESSAGE];

	assert_int_equal(run_once("head -c 300000 /dev/zero | tr '\\0' x; exit 4", "n1", LONG_MS, message),
			 HF_FENCE_E_FAILED);
	assert_true(strncmp(message, "exit status 4: xxxx", 19) == 0);
	assert_true(strlen(message) < HF_FENCE_MESSAGE - 1);
}

static void test_arguments_and_environment(void **state)
{
	char text[512], message[HF_FENCE_MESSAGE], seen[512];
	struct hf_fence *fence;
	int pair[2];

	/* Not closed by an exec */
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	snprintf(text, sizeof(text),
		 "exec >%s; echo $#; printf '<%%s>' \"$@\"; env | grep -c SECRET\n"
		 "ls -l /proc/$$/fd | grep -c -e socket: -e anon_inode:\nexit 0",
		 place.seen);
	setenv("HF_SECRET", "x", 1);
	write_script(text);
	fence = new_fence("  --off \t now");
	assert_int_equal(hf_fence_run(fence, "old node; $(x)", LONG_MS, message, sizeof(message)),
			 HF_FENCE_OK);
	read_seen(seen, sizeof(seen));
	assert_string_equal(seen, "3\n<--off><now><old node; $(x)>0\n0\n");
	hf_fence_free(fence);
	close(pair[0]);
	close(pair[1]);
}

static void test_names_are_refused(void **state)
{
	static const char *const names[] = { "", "-f", "a\nb", "a\x1b[0m", "a\tb", "\x7f" };
	char message[HF_FENCE_MESSAGE], text[128], longest[300];
	struct hf_fence *fence;

	snprintf(text, sizeof(text), "echo ran >%s", place.seen);
	write_script(text);
	fence = new_fence("");
	memset(longest, 'n', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(hf_fence_run(fence, longest, LONG_MS, message, sizeof(message)), HF_FENCE_E_FAILED);
	for (size_t i = 0; i < HF_ARRAY_SIZE(names); i++)
		assert_int_equal(hf_fence_run(fence, names[i], LONG_MS, message, sizeof(message)),
				 HF_FENCE_E_FAILED);
	assert_int_equal(access(place.seen, F_OK), -1);
	longest[255] = '\0';
	assert_int_equal(hf_fence_run(fence, longest, LONG_MS, message, sizeof(message)), HF_FENCE_OK);
	hf_fence_free(fence);
}

/* The process whose number the script wrote. */
static pid_t seen_process(void)
{
	char text[64] = "";
	FILE *file = fopen(place.seen, "r");

	if (file) {
		if (!fgets(text, sizeof(text), file))
			text[0] = '\0';
		fclose(file);
	}
	return strchr(text, '\n') ? atoi(text) : 0;
}

static bool has_begun(void)
{
	return seen_process() > 0;
}

/* Also as long as its parent has not reaped it, it is gone for the test. */
static bool is_gone(pid_t pid)
{
	char path[64], line[256] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "r");
	if (!file)
		return true;
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	fclose(file);
	return strstr(line, ") Z") != NULL;
}

static void sleeping_script(void)
{
	char text[512];

	unlink(place.seen);
	/* In a process of its own, as a real command's parts are. It does not have the helper's pipe: tail
	 * ends with that. */
	snprintf(text, sizeof(text),
		 "sh -c 'echo $$ >%s.new; mv %s.new %s; exec tail -f /dev/null >/dev/null 2>&1'\n:",
		 place.seen, place.seen, place.seen);
	write_script(text);
}

static void test_a_hanging_command_is_killed(void **state)
{
	char message[HF_FENCE_MESSAGE];
	struct hf_fence *fence;
	pid_t child;
	int r;

	sleeping_script();
	fence = new_fence("");
	/* Again if it did not come so far within its time. */
	for (int i = 0; i < 20 && !has_begun(); i++) {
		r = hf_fence_run(fence, "n1", 500, message, sizeof(message));
		assert_int_equal(r, HF_FENCE_E_FAILED);
	}
	assert_string_equal(message, "killed after 500 ms without an end");
	child = seen_process();
	wait_until(is_gone(child));
	/* The helper serves on. */
	write_script("exit 0");
	assert_int_equal(hf_fence_run(fence, "n1", LONG_MS, message, sizeof(message)), HF_FENCE_OK);
	hf_fence_free(fence);
}

struct running {
	struct hf_fence *fence;
	int result;
	char message[HF_FENCE_MESSAGE];
};

static void *run_in_thread(void *arg)
{
	struct running *running = arg;

	running->result =
		hf_fence_run(running->fence, "n1", 600000, running->message, sizeof(running->message));
	return NULL;
}

static void test_cancel_ends_the_wait_and_the_command(void **state)
{
	struct running running = { 0 };
	char message[HF_FENCE_MESSAGE];
	pthread_t thread;
	pid_t child;

	sleeping_script();
	running.fence = new_fence("");
	assert_int_equal(pthread_create(&thread, NULL, run_in_thread, &running), 0);
	wait_until(has_begun());
	child = seen_process();
	hf_fence_cancel(running.fence);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(running.result, -ECANCELED);
	wait_until(is_gone(child));
	unlink(place.seen);
	assert_int_equal(hf_fence_run(running.fence, "n1", 600000, message, sizeof(message)), -ECANCELED);
	hf_fence_free(running.fence);
}

/* A server that is killed cannot say good-bye. */
static void test_command_and_helper_end_with_the_server(void **state)
{
	char message[HF_FENCE_MESSAGE];
	pid_t server, child;

	sleeping_script();
	server = fork();
	assert_true(server >= 0);
	if (server == 0) {
		struct hf_fence *fence = new_fence("");

		hf_fence_run(fence, "n1", 600000, message, sizeof(message));
		_exit(0);
	}
	wait_until(has_begun());
	child = seen_process();
	assert_int_equal(kill(server, SIGKILL), 0);
	wait_until(is_gone(child));
}

static void test_commands_are_checked(void **state)
{
	static const struct {
		const char *command, *what;
	} rows[] = {
		{ "", "must be a program" },
		{ "  ", "must be a program" },
		{ "fence_ipmilan -o off", "absolute path" },
		{ "/no/such/program", "cannot be found" },
		{ "/tmp", "cannot be executed" },
		{ "/etc/passwd", "cannot be executed" },
		{ "/bin/sh -c 'x'", "without a shell" },
		{ "/bin/true; /bin/false", "without a shell" },
		{ "/bin/echo\nx", "control" },
	};
	char error[256];

	for (size_t i = 0; i < HF_ARRAY_SIZE(rows); i++) {
		assert_int_equal(hf_fence_check(rows[i].command, error, sizeof(error)), -EINVAL);
		if (!strstr(error, rows[i].what))
			fail_msg("%s: %s", rows[i].command, error);
	}
	assert_int_equal(hf_fence_check("/bin/true --off", error, sizeof(error)), 0);
	write_script("exit 0");
	assert_int_equal(chmod(place.script, 0777), 0);
	assert_int_equal(hf_fence_check(place.script, error, sizeof(error)), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_exit_status_decides, make_place, remove_place),
		cmocka_unit_test_setup_teardown(test_output_is_bounded, make_place, remove_place),
		cmocka_unit_test_setup_teardown(test_arguments_and_environment, make_place, remove_place),
		cmocka_unit_test_setup_teardown(test_names_are_refused, make_place, remove_place),
		cmocka_unit_test_setup_teardown(test_a_hanging_command_is_killed, make_place, remove_place),
		cmocka_unit_test_setup_teardown(test_cancel_ends_the_wait_and_the_command, make_place,
						remove_place),
		cmocka_unit_test_setup_teardown(test_command_and_helper_end_with_the_server, make_place,
						remove_place),
		cmocka_unit_test_setup_teardown(test_commands_are_checked, make_place, remove_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
