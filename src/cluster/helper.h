/*
 * A helper process of the server: forked before the sandbox, while there is one thread, for
 * what the sandbox forbids or what must outlive the server. It has nothing of the server but
 * one socket. It ends when the server's end of that is closed, however the server ends, and
 * never by a signal to stop the service.
 */
#pragma once

#include <stdbool.h>

/* Forks the helper, which calls @run and never returns from it. *socketp is the server's end, of type
 * SOCK_SEQPACKET. @has_log: it shares the server's streams; otherwise it has /dev/null. */
int hf_helper_fork(const char *name, bool has_log, void (*run)(void *user, int socket), void *user,
		   int *socketp);
