/*
 * The server as a whole: builds the objects in the order in which they lean on
 * each other, hands each its neighbours, and takes them down in reverse.
 */
#pragma once

struct hf_args;
struct hf_config;

/* Runs until told to stop. Takes over the configuration. Returns the exit status of the process; whatever
 * went wrong is in the log. */
int hf_daemon_run(struct hf_config *config, const struct hf_args *args);
