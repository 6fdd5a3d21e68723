/* What the daemon asks of the operating system for its own process. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct hf_state_dir;

/* Raises the limit of open files to the hard limit. Returns the limit in force. */
size_t hf_process_raise_file_limit(void);

/* Changes permanently to @user, with no right but to ports below 1024, and gives it the state directory. With
 * @changes_addresses CAP_NET_ADMIN stays permitted, too. Rights belong to threads: call this while there is
 * only one. With an empty name nothing changes. On failure @error says what is wrong. */
int hf_process_become(const char *user, bool changes_addresses, struct hf_state_dir *dir, char *error,
		      size_t error_size);

/* The number of processors that this process may run on, at least 1. */
size_t hf_process_count_cores(void);

/* To stop, after everything is saved: ends the process in a few seconds even if a worker still waits for a
 * hung disk. */
struct hf_process_end;
struct hf_process_end *hf_process_end_soon(int status); /* NULL: no memory */
void hf_process_end_not(struct hf_process_end *end);    /* all workers were done in time */
