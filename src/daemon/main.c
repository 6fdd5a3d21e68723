/* holdfastd: command line and configuration, then the daemon. */
#include <stdio.h>
#include <stdlib.h>

#include "base/heap.h"
#include "daemon/args.h"
#include "daemon/config.h"
#include "daemon/daemon.h"

static int fail(const char *error)
{
	fprintf(stderr, "holdfastd: %s\n", error);
	return HF_ARGS_EXIT_WRONG;
}

static int run(const struct hf_args *args)
{
	char error[HF_CONFIG_ERROR_SIZE];
	struct hf_config *config = NULL;
	int r = hf_config_load(&config, args, error, sizeof(error));

	if (r < 0) {
		fprintf(stderr, "holdfastd: out of memory\n");
		return EXIT_FAILURE;
	}
	if (r)
		return fail(error);
	if (args->check || args->print_config) {
		if (args->print_config)
			hf_config_print(config, stdout);
		hf_config_free(config);
		return EXIT_SUCCESS;
	}
	hf_log_configure(config->log.level, config->log.format);
	return hf_daemon_run(config, args);
}

int main(int argc, char *argv[])
{
	char error[HF_CONFIG_ERROR_SIZE];
	struct hf_args args;
	int status;

	hf_heap_prepare();
	if (hf_args_init(&args, argc, argv, error, sizeof(error))) {
		status = fail(error);
	} else if (args.help) {
		hf_args_print_help(stdout);
		status = EXIT_SUCCESS;
	} else if (args.version) {
		hf_args_print_version(stdout);
		status = EXIT_SUCCESS;
	} else {
		status = run(&args);
	}
	hf_args_deinit(&args);
	return status;
}
