/*
 * The server as a whole: builds the objects in the order of their dependencies,
 * gives each the ones it needs, and frees them in reverse.
 */
#pragma once

struct hf_args;
struct hf_config;

/* Runs until told to stop. Takes over the configuration. Returns the exit status of the process; errors are
 * in the log. */
int hf_daemon_run(struct hf_config *config, const struct hf_args *args);
