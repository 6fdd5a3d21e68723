/* What the daemon asks of the operating system for itself. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct hf_state_dir;

/* As many open files as the hard limit allows. Returns the limit in force. */
size_t hf_process_raise_file_limit(void);

/* Becomes @user, for good, with no right but to ports below 1024; the state directory becomes his. Rights are
 * a thread's own: call it while there is one. An empty name stays who we are. On failure @error says what is
 * wrong. */
int hf_process_become(const char *user, struct hf_state_dir *dir, char *error, size_t error_size);

/* The number of processors we may run on, at least 1. */
size_t hf_process_count_cores(void);

/* To stop, when all that must be kept is: if we are not gone in a few seconds, since a worker waits for a
 * disk that is dead, we are without it. */
void hf_process_end_soon(int status);

/* The service manager, where there is one (sd_notify(3)). */
void hf_process_tell_ready(const char *status);
void hf_process_tell_reloading(void);
void hf_process_tell_stopping(void);
