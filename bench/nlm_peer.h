/*
 * nfs-ganesha as the measure for locks: with rpcbind and rpc.statd, which it
 * needs for them, in network and mount namespaces of this process, so that
 * nothing of the machine is touched and nothing is left behind.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PEER_HANDLE 64

struct peer_handle {
	uint8_t data[PEER_HANDLE];
	uint32_t len;
};

/* Network and mount namespaces of the bench, with loopback up; needs root. Once, before everything else. */
int peer_enter_namespaces(void);

struct peer;
/* Starts it over a directory with @n_files files and finds their handles. -ENOENT: it is not installed. */
int peer_start(struct peer **peerp, size_t n_files, struct peer_handle *handles, uint16_t *nlm_portp);
void peer_stop(struct peer *peer);
pid_t peer_pid(const struct peer *peer); /* ganesha's */

/* Files with the names "0", "1" and so on in @data, which may exist; and their handles, of any server of
 * NFSv3 that exports them as @data. */
int peer_make_files(const char *data, size_t n_files);
int peer_find_handles(uint16_t mount_port, uint16_t nfs_port, const char *data, size_t n_files,
		      struct peer_handle *handles);

/* One call over a TCP connection of its own; gives the results, without the reply's header. */
int peer_call(uint16_t port, const uint8_t *call, size_t len, uint8_t *results, size_t size,
	      size_t *results_lenp);
