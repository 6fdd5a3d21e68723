/*
 * The operator's command that stops another node from writing: for instance, it
 * switches that node's power off, or takes its reservation of a disk away.
 *
 * The sandbox forbids the server to start programs. So a helper process is
 * forked before the sandbox, with the rights that the server has at its start.
 * It does nothing but run this one command. It has no descriptor of the server
 * but one socket, and ends when the server's end of that is closed, however
 * the server ends; a command that then still runs is killed.
 *
 * The command is an absolute path and arguments, separated by blanks. No shell
 * reads it. The name of the node follows as its last argument. Its environment
 * is PATH alone, its input is empty.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hf_fence;

#define HF_FENCE_TIMEOUT_MS 30000 /* for a command, if there is no reason for another time */
#define HF_FENCE_MESSAGE    256   /* room for any message of hf_fence_run() */

/* Can this be the command? 0, or -EINVAL and what is wrong in @error, to go on after "cluster.fence ". */
int hf_fence_check(const char *command, char *error, size_t error_size);

/* Forks the helper for a command that hf_fence_check() has passed. Call it before the sandbox, while there is
 * only one thread. */
int hf_fence_new(struct hf_fence **fencep, const char *command);
void hf_fence_free(struct hf_fence *fence);

enum {
	HF_FENCE_OK = 0,   /* exit status 0: the node cannot write any more */
	HF_FENCE_E_FAILED, /* another status, a signal, no end within the time, or a name that is refused */
};

/* Runs the command for @node and waits for its end, at most @timeout_ms; then the command and the processes
 * of its group are killed. One thread at a time. In both answers @message says what happened: the exit status
 * and the first line that the command wrote, in printable ASCII. Below 0: -ECANCELED, or the helper is gone.
 */
int hf_fence_run(struct hf_fence *fence, const char *node, uint32_t timeout_ms, char *message,
		 size_t message_size);
/* From any thread, for a stop: kills a command that runs, and lets hf_fence_run() return -ECANCELED, now and
 * from now on. */
void hf_fence_cancel(struct hf_fence *fence);
