/*
 * What the daemon gives up when it starts, so that an attacker who runs code in
 * it does not have it either: capabilities that a file server does not need,
 * privilege by exec, and most system calls. docs/decisions/0024-hardening.md
 * gives the reasons.
 *
 * All of it belongs to threads, and new threads inherit it: call these while
 * there is only one thread.
 */
#pragma once

#include <stdbool.h>

/* Drops the capabilities that a file server does not need. Call it before changing the user.
 * @changes_addresses: CAP_NET_ADMIN stays permitted, to be raised for each change (cluster/address.c). */
void hf_sandbox_limit_caps(bool changes_addresses);

/* From here on no exec gives privilege. A system call that the server does not need fails with EPERM, or with
 * ENOSYS if libc can do without it. If the kernel has no such filter, logs a warning and continues. */
void hf_sandbox_enter(void);
