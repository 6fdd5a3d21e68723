/*
 * Sockets that never block: TCP listeners, TCP connections, UDP sockets.
 *
 * They report readiness, as the kernel does. A watch calls back when there is something to
 * read or room to write, and again as long as that is so. Read and write then take what they
 * can, and answer -EAGAIN if that is nothing. Data is never copied or queued here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/addr.h"

struct hf_loop;
struct hf_socket;

#define HF_SOCKET_READ  1u
#define HF_SOCKET_WRITE 2u

/* @events: what is ready. A broken connection is ready for both; reading tells what happened. */
typedef void (*hf_socket_fn)(void *user, unsigned int events);

/* The socket's own end. */
struct hf_socket_bind {
	struct hf_addr addr; /* family 0: any address; port 0: any free port */
	bool reserved;       /* a port below 1024 if that is permitted, else any */
	bool may_be_absent;  /* on a loop with a lease, the address may come later */
	/* Listening: a connection that is quiet for so many seconds is asked for a sign of life, and ends
	 * after three times as many without one; 0: as the kernel likes. */
	int keepalive_s;
};

/* Opening */
int hf_tcp_listen(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind);
int hf_tcp_accept(struct hf_socket **socketp, struct hf_socket *listener, struct hf_addr *peerp);
/* It is ready for writing when it is connected or has failed: then ask hf_socket_error(). */
int hf_tcp_connect(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind,
		   const struct hf_addr *remote);
int hf_udp_open(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind);
/* Watches what a library has open at @fd. It can only be watched and closed, and closing leaves @fd open. The
 * library may close @fd before: what another thread then opens may get this number, and is not touched.
 * -ENOTSUP in a world without descriptors. */
int hf_socket_observe(struct hf_socket **socketp, struct hf_loop *loop, int fd);
void hf_socket_close(struct hf_socket *socket); /* no call-back after this; NULL does nothing */

/* Watching: @events 0 stops it. */
int hf_socket_watch(struct hf_socket *socket, unsigned int events, hf_socket_fn fn, void *user);

/* Takes the socket from its loop, unwatched, for use on @loop from now on. -ENOMEM: nothing has changed. */
int hf_socket_move(struct hf_socket **socketp, struct hf_loop *loop);

/* Connections */
ssize_t hf_socket_read(struct hf_socket *socket, void *data, size_t len); /* 0: the peer has closed */
ssize_t hf_socket_write(struct hf_socket *socket, const struct iovec *iov, int n_iov);
int hf_socket_error(struct hf_socket *socket); /* of connecting, or since: 0 or -errno */
/* Closing will reset the connection. Otherwise the kernel goes on sending what the peer has not got, for
 * minutes after the socket was closed. */
void hf_socket_drop_unsent(struct hf_socket *socket);
/* As keepalive_s in struct hf_socket_bind, from now on: of a connection, or of what a listener accepts. */
int hf_socket_set_keepalive(struct hf_socket *socket, int keepalive_s);
/* Makes the kernel ask the peer, each second, whether it still knows the connection. If it does not, it says
 * so, and reading fails with -ECONNRESET. A silent peer does not break the connection by this. */
int hf_socket_probe(struct hf_socket *socket, bool is_on);
struct hf_heard {
	uint64_t ago_ns;  /* when anything came from the peer, also an answer to such a question */
	uint32_t n_asked; /* how often the kernel has asked it without an answer, or sent data again */
};
/* What came from the peer, as far as the kernel knows; also after a reset. False: it is not known. */
bool hf_socket_heard(struct hf_socket *socket, struct hf_heard *heardp);

/* Datagrams, many in one system call. */
struct hf_datagram {
	void *data;
	size_t len;           /* receiving: in, the room; out, the received bytes */
	struct hf_addr peer;  /* the sender, or the receiver */
	struct hf_addr local; /* the address that it came to; sending: the address that it leaves from, family
			       * 0: any */
};

#define HF_DATAGRAM_BATCH 64

/* Both return how many were taken, at most HF_DATAGRAM_BATCH, or -errno if not even one was. A datagram
 * longer than its room comes with len 0. */
int hf_udp_receive(struct hf_socket *socket, struct hf_datagram *datagrams, int n);
int hf_udp_send(struct hf_socket *socket, const struct hf_datagram *datagrams, int n);

/* Questions */
void hf_socket_local(struct hf_socket *socket, struct hf_addr *localp);
/* For a library that reads and writes a connection by itself. It stays the socket's. -ENOTSUP in a world
 * without descriptors. */
int hf_socket_descriptor(struct hf_socket *socket);
