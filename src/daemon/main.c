/* holdfastd: command line and configuration, then the daemon. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/heap.h"
#include "daemon/args.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/port_check.h"

static int fail(const char *error)
{
	fprintf(stderr, "holdfastd: %s\n", error);
	return HF_ARGS_EXIT_WRONG;
}

/* If a standard stream is closed, the next file that is opened would get its number, and the log would go
 * there. */
static void fill_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* The exit status after printing to stdout. */
static int printed(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return EXIT_SUCCESS;
	fprintf(stderr, "holdfastd: cannot write: %s\n", strerror(errno));
	return EXIT_FAILURE;
}

static int run(const struct hf_args *args)
{
	char error[HF_CONFIG_ERROR_SIZE];
	struct hf_config *config = NULL;
	int r = hf_config_load(&config, args, error, sizeof(error));

	if (r < 0) {
		fprintf(stderr, "holdfastd: %s\n", error);
		return EXIT_FAILURE;
	}
	if (r)
		return fail(error);
	if (args->clear_store && hf_config_has_cluster(config)) {
		hf_config_free(config);
		return fail(
			"--clear-store cannot be used in a cluster, where another node may serve: stop all "
			"nodes, "
			"and start one of them once with --clear-store, without cluster.service and with the "
			"name of the service as server.name");
	}
	if (args->check || args->print_config) {
		if (args->print_config)
			hf_config_print(config, stdout);
		hf_config_free(config);
		return printed();
	}
	if (args->check_ports) {
		r = hf_port_check(config, error, sizeof(error));
		hf_config_free(config);
		if (r == HF_PORTS_FREE)
			return EXIT_SUCCESS;
		fprintf(stderr, "holdfastd: %s\n", error);
		return EXIT_FAILURE;
	}
	hf_log_configure(config->log.level, config->log.format);
	return hf_daemon_run(config, args);
}

int main(int argc, char *argv[])
{
	char error[HF_CONFIG_ERROR_SIZE];
	struct hf_args args;
	int status;

	fill_streams();
	hf_heap_prepare();
	if (hf_args_init(&args, argc, argv, error, sizeof(error))) {
		status = fail(error);
	} else if (args.help) {
		hf_args_print_help(stdout);
		status = printed();
	} else if (args.version) {
		hf_args_print_version(stdout);
		status = printed();
	} else {
		status = run(&args);
	}
	hf_args_deinit(&args);
	return status;
}
