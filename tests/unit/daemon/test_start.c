/* A server that cannot tell its clients of the restart must not serve (ld --wrap). */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/args.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "recovery/recovery.h"

#define PATIENCE_S 60

int __wrap_hf_recovery_start(struct hf_recovery *recovery);
int __wrap_hf_recovery_start(struct hf_recovery *recovery)
{
	return -ENOMEM;
}

/* In a process of its own: it takes signals, and gives up rights. */
static void serve(const char *folder, const char *log)
{
	char state_dir[96], error[HF_CONFIG_ERROR_SIZE];
	const char *sets[] = { state_dir, "api.listen=", "server.port=0", "server.portmap=off" };
	const struct hf_args args = {
		.sets = sets, .n_sets = HF_ARRAY_SIZE(sets), .exports = &folder, .n_exports = 1
	};
	int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	struct hf_config *config;

	alarm(PATIENCE_S);
	snprintf(state_dir, sizeof(state_dir), "server.state_dir=%s/state", folder);
	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0 || hf_config_load(&config, &args, error, sizeof(error)))
		_exit(EXIT_SUCCESS);
	_exit(hf_daemon_run(config, &args));
}

static bool said(const char *log, const char *text)
{
	char line[1024];
	FILE *file = fopen(log, "r");
	bool is_found = false;

	assert_non_null(file);
	while (!is_found && fgets(line, sizeof(line), file))
		is_found = strstr(line, text) != NULL;
	fclose(file);
	return is_found;
}

static void test_a_restart_that_no_client_hears_of(void **state)
{
	char folder[] = "/tmp/hf-start-XXXXXX", log[64], command[64];
	pid_t child;
	int status;

	assert_non_null(mkdtemp(folder));
	snprintf(log, sizeof(log), "%s/log", folder);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		serve(folder, log);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(said(log, "cannot tell the clients of the restart"));
	assert_false(said(log, "serving"));
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), EXIT_FAILURE);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_a_restart_that_no_client_hears_of) };

	return cmocka_run_group_tests_name("start", tests, NULL, NULL);
}
