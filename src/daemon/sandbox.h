/*
 * What the daemon gives up when it starts, so that an attacker who makes it run
 * code of the attacker's own does not have it either: capabilities that a file
 * server does not need, privilege by exec, and most system calls. The reasons are
 * in docs/decisions/0024-hardening.md.
 *
 * All of it belongs to threads and is inherited by new ones: call these while
 * there is one thread.
 */
#pragma once

/* Keeps the capabilities of a file server, of those that we have; before another user is become. */
void hf_sandbox_limit_caps(void);

/* From here on no exec gives privilege, and a system call that the server has no use for fails with EPERM, or
 * with ENOSYS where libc then does without it. Goes on with a warning where the kernel has no such filter. */
void hf_sandbox_enter(void);
