/*
 * Sockets of the real world: own file descriptors, watched by libuv's uv_poll. libuv's
 * streams and UDP handles cannot tell the address that a datagram came to, cannot move to
 * another loop, and choose themselves when to allocate.
 */
#include "loop/socket.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/macros.h"
#include "loop/loop.h"
#include "loop/uv_internal.h"

#define LISTEN_BACKLOG 4096

/* Seconds until the kernel asks a quiet peer whether it is there, seconds between such questions, and how
 * many without an answer end the connection. */
struct keepalive {
	int idle_s;
	int interval_s;
	int n;
};

static const struct keepalive keepalive_of_linux = { .idle_s = 7200, .interval_s = 75, .n = 9 };
#define KEEPALIVE_MAX 127 /* the most that the kernel takes */
/* Its questions are for an answer. They never end the connection. */
static const struct keepalive keepalive_of_probe = { .idle_s = 1, .interval_s = 1, .n = KEEPALIVE_MAX };
#define KEEPALIVE_N       3    /* if bind->keepalive_s */
#define KEEPALIVE_UNKNOWN (-1) /* it waited to be accepted while its listener's changed */

/* Well-known services are below 512; rpc.statd and similar programs choose from here, too. */
#define RESERVED_FIRST 600
#define RESERVED_LAST  1023

struct uv_socket {
	struct hf_socket socket;
	uv_poll_t *poll; /* NULL until first watched; libuv frees it later */
	int fd;
	int family;
	int keepalive_s; /* of the listener, also in what it accepted; 0: as Linux has it; KEEPALIVE_UNKNOWN
			  */
	bool has_other_keepalive; /* a listener: what waits to be accepted may have the one of before */
	bool is_probed;
};

static struct uv_socket *uv_socket_of(struct hf_socket *socket)
{
	return (struct uv_socket *)socket; /* its first member */
}

static void set_option(int fd, int level, int name, int value)
{
	/* None of these is essential: a socket without it still works. */
	(void)setsockopt(fd, level, name, &value, sizeof(value));
}

/* Opening */

static int wrap(struct hf_socket **socketp, struct hf_loop *loop, int family, int *fdp)
{
	struct uv_socket *s = calloc(1, sizeof(*s));

	if (!s)
		return hf_trace(-ENOMEM);
	s->socket.loop = loop;
	s->family = family;
	s->fd = *fdp;
	*fdp = -1;
	*socketp = &s->socket;
	return 0;
}

static int bind_to(int fd, int family, const struct hf_addr *addr)
{
	struct sockaddr_storage ss;
	socklen_t len;

	if (addr->family && addr->family != family)
		return -EAFNOSUPPORT;
	len = hf_addr_to_sockaddr_on(addr, family, &ss);
	return bind(fd, (struct sockaddr *)&ss, len) < 0 ? -errno : 0;
}

/* Starts at a random place, so that two servers on a host do not race for the same ports. */
static int bind_reserved(struct hf_loop *loop, int fd, int family, const struct hf_addr *addr)
{
	const unsigned int n = RESERVED_LAST - RESERVED_FIRST + 1;
	struct hf_addr try = *addr;
	unsigned int start;
	int r = -EADDRINUSE;

	hf_loop_random(loop, &start, sizeof(start));
	for (unsigned int i = 0; i < n; i++) {
		try.port = (uint16_t)(RESERVED_FIRST + (start + i) % n);
		r = bind_to(fd, family, &try);
		if (r != -EADDRINUSE)
			break;
	}
	return r;
}

static int bind_socket(struct hf_loop *loop, int fd, int family, const struct hf_socket_bind *bind)
{
	if (family == AF_INET6)
		set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	if (bind->reserved && bind->addr.port == 0) {
		int r = bind_reserved(loop, fd, family, &bind->addr);

		if (r != -EACCES && r != -EADDRINUSE)
			return r;
	}
	return bind_to(fd, family, &bind->addr);
}

static int open_bound(struct hf_loop *loop, int type, int family, const struct hf_socket_bind *bind)
{
	hf_cleanup(hf_closep) int fd = socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int open, r;

	if (fd < 0)
		return -errno;
	if (type == SOCK_STREAM)
		set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (bind->may_be_absent && loop->lease)
		set_option(fd, IPPROTO_IP, IP_FREEBIND, 1); /* for IPv6 sockets, too */
	r = bind_socket(loop, fd, family, bind);
	if (r < 0)
		return r;
	open = fd;
	fd = -1;
	return open;
}

/*
 * The address of a service moves from node to node, and clients connect again from the same port. A
 * connection that this host still tries to end in order would be in the way when the address comes back: the
 * host answers for it, and the client waits for minutes. And a call of this node that its client has not got
 * would be heard after one of the next node. So a connection ends at once, with a reset, also when the
 * process is killed. Accepted sockets inherit it.
 */
static void end_at_once(int fd)
{
	const struct linger none = { .l_onoff = 1, .l_linger = 0 };

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

static struct keepalive keepalive_of(int keepalive_s)
{
	if (keepalive_s <= 0)
		return keepalive_of_linux;
	return (struct keepalive){ .idle_s = keepalive_s, .interval_s = keepalive_s, .n = KEEPALIVE_N };
}

static int set_keepalive(int fd, struct keepalive keepalive)
{
	/* The idle time comes last: it makes the kernel set its timer, which is due at once if nothing came
	 * for longer. */
	if (setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &keepalive.n, sizeof(keepalive.n)) < 0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &keepalive.interval_s, sizeof(keepalive.interval_s)) <
		    0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &keepalive.idle_s, sizeof(keepalive.idle_s)) < 0)
		return -errno;
	return 0;
}

int uv_tcp_listen_on(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind)
{
	hf_cleanup(hf_closep) int fd = open_bound(loop, SOCK_STREAM, bind->addr.family, bind);
	int r;

	if (fd < 0)
		return fd;
	/* Accepted sockets inherit these. */
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	if (bind->keepalive_s)
		(void)set_keepalive(fd, keepalive_of(bind->keepalive_s));
	if (loop->lease)
		end_at_once(fd);
	if (listen(fd, LISTEN_BACKLOG) < 0)
		return -errno;
	r = wrap(socketp, loop, bind->addr.family, &fd);
	if (r == 0)
		uv_socket_of(*socketp)->keepalive_s = bind->keepalive_s;
	return r;
}

int uv_tcp_accept_from(struct hf_socket **socketp, struct hf_socket *listener, struct hf_addr *peerp)
{
	struct uv_socket *s = uv_socket_of(listener);
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	hf_cleanup(hf_closep) int fd =
		accept4(s->fd, (struct sockaddr *)&ss, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	if (!hf_addr_from_sockaddr(peerp, (struct sockaddr *)&ss))
		return -EAFNOSUPPORT;
	r = wrap(socketp, listener->loop, s->family, &fd);
	if (r == 0)
		uv_socket_of(*socketp)->keepalive_s =
			s->has_other_keepalive ? KEEPALIVE_UNKNOWN : s->keepalive_s;
	return r;
}

int uv_tcp_connect_to(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind,
		      const struct hf_addr *remote)
{
	hf_cleanup(hf_closep) int fd = open_bound(loop, SOCK_STREAM, remote->family, bind);
	struct sockaddr_storage ss;
	socklen_t len;

	if (fd < 0)
		return fd;
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	if (loop->lease)
		end_at_once(fd);
	len = hf_addr_to_sockaddr(remote, &ss);
	if (connect(fd, (struct sockaddr *)&ss, len) < 0 && errno != EINPROGRESS)
		return -errno;
	return wrap(socketp, loop, remote->family, &fd);
}

int uv_udp_open_on(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind)
{
	hf_cleanup(hf_closep) int fd = open_bound(loop, SOCK_DGRAM, bind->addr.family, bind);

	if (fd < 0)
		return fd;
	if (bind->addr.family == AF_INET)
		set_option(fd, IPPROTO_IP, IP_PKTINFO, 1);
	else
		set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
	set_option(fd, SOL_SOCKET, SO_RCVBUF, 4 << 20);
	set_option(fd, SOL_SOCKET, SO_SNDBUF, 4 << 20);
	return wrap(socketp, loop, bind->addr.family, &fd);
}

int uv_socket_observe(struct hf_socket **socketp, struct hf_loop *loop, int fd)
{
	hf_cleanup(hf_closep) int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	return own < 0 ? -errno : wrap(socketp, loop, AF_UNSPEC, &own);
}

/* Closing and watching */

static void free_poll(uv_handle_t *handle)
{
	free(handle);
}

static void drop_poll(struct uv_socket *s)
{
	if (!s->poll)
		return;
	s->poll->data = NULL;
	uv_poll_stop(s->poll);
	uv_close((uv_handle_t *)s->poll, free_poll);
	s->poll = NULL;
}

void uv_socket_close(struct hf_socket *socket)
{
	struct uv_socket *s = uv_socket_of(socket);

	drop_poll(s);
	close(s->fd);
	free(s);
}

static void on_poll(uv_poll_t *handle, int status, int uv_events);

static int start_poll(struct uv_socket *s, unsigned int events)
{
	int uv_events = 0;

	if (events & HF_SOCKET_READ)
		uv_events |= UV_READABLE;
	if (events & HF_SOCKET_WRITE)
		uv_events |= UV_WRITABLE;
	return uv_events ? uv_poll_start(s->poll, uv_events, on_poll) : uv_poll_stop(s->poll);
}

static void on_poll(uv_poll_t *handle, int status, int uv_events)
{
	struct uv_socket *s = handle->data;
	unsigned int events = 0;

	if (!s)
		return;
	uv_world_serves(uv_world_of(s->socket.loop));
	if (uv_events & UV_READABLE)
		events |= HF_SOCKET_READ;
	if (uv_events & UV_WRITABLE)
		events |= HF_SOCKET_WRITE;
	if (status < 0) {
		/* Reading or writing tells the error. If there is data before the error, it may do so only
		 * later, and libuv no longer looks. */
		events = s->socket.events;
		(void)start_poll(s, events);
	}
	s->socket.fn(s->socket.user, events & s->socket.events);
	/* @s may be freed here */
}

static int make_poll(struct uv_socket *s)
{
	int r;

	s->poll = malloc(sizeof(*s->poll));
	if (!s->poll)
		return hf_trace(-ENOMEM);
	r = uv_poll_init(&uv_world_of(s->socket.loop)->uv, s->poll, s->fd);
	if (r < 0) {
		free(s->poll);
		s->poll = NULL;
		return hf_trace(r);
	}
	s->poll->data = s;
	return 0;
}

int uv_socket_watch(struct hf_socket *socket, unsigned int events)
{
	struct uv_socket *s = uv_socket_of(socket);
	int r = s->poll ? 0 : make_poll(s);

	return r < 0 ? r : start_poll(s, events);
}

int uv_socket_move(struct hf_socket **socketp, struct hf_loop *loop)
{
	struct uv_socket *s = uv_socket_of(*socketp);

	/* Watching begins again, on the other loop's thread. */
	drop_poll(s);
	s->socket.loop = loop;
	s->socket.events = 0;
	return 0;
}

/* Connections */

ssize_t uv_socket_read(struct hf_socket *socket, void *data, size_t len)
{
	ssize_t n = recv(uv_socket_of(socket)->fd, data, len, 0);

	return n < 0 ? -errno : n;
}

ssize_t uv_socket_write(struct hf_socket *socket, const struct iovec *iov, int n_iov)
{
	struct msghdr message = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n_iov };
	ssize_t n = sendmsg(uv_socket_of(socket)->fd, &message, MSG_NOSIGNAL);

	return n < 0 ? -errno : n;
}

int uv_socket_error(struct hf_socket *socket)
{
	int error = 0;
	socklen_t len = sizeof(error);

	if (getsockopt(uv_socket_of(socket)->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		return -errno;
	return -error;
}

void uv_socket_drop_unsent(struct hf_socket *socket)
{
	const struct linger none = { .l_onoff = 1, .l_linger = 0 };

	setsockopt(uv_socket_of(socket)->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

/* The kernel goes on counting after a probe. The probe's questions without an answer must not end the
 * connection then, so as many more are allowed. */
static struct keepalive keepalive_after_probe(const struct uv_socket *s)
{
	struct keepalive keepalive = keepalive_of(s->keepalive_s);
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	if (getsockopt(s->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0)
		keepalive.n = HF_MIN(keepalive.n + info.tcpi_probes, KEEPALIVE_MAX);
	return keepalive;
}

/* A probe has times of its own, and uses these when it ends. */
int uv_socket_set_keepalive(struct hf_socket *socket, int keepalive_s)
{
	struct uv_socket *s = uv_socket_of(socket);

	if (s->keepalive_s == keepalive_s)
		return 0;
	s->keepalive_s = keepalive_s;
	s->has_other_keepalive = true;
	return s->is_probed ? 0 : set_keepalive(s->fd, keepalive_after_probe(s));
}

int uv_socket_probe(struct hf_socket *socket, bool is_on)
{
	struct uv_socket *s = uv_socket_of(socket);
	int on = 1;

	s->is_probed = is_on;
	if (setsockopt(s->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) < 0)
		return -errno;
	return set_keepalive(s->fd, is_on ? keepalive_of_probe : keepalive_after_probe(s));
}

bool uv_socket_heard(struct hf_socket *socket, struct hf_heard *heardp)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	if (getsockopt(uv_socket_of(socket)->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ||
	    len < offsetof(struct tcp_info, tcpi_total_retrans) + sizeof(info.tcpi_total_retrans))
		return false;
	heardp->ago_ns = HF_MIN(info.tcpi_last_ack_recv, info.tcpi_last_data_recv) * HF_NS_PER_MS;
	heardp->n_asked = info.tcpi_probes + info.tcpi_total_retrans;
	return true;
}

void uv_socket_local(struct hf_socket *socket, struct hf_addr *localp)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);

	if (getsockname(uv_socket_of(socket)->fd, (struct sockaddr *)&ss, &len) < 0 ||
	    !hf_addr_from_sockaddr(localp, (struct sockaddr *)&ss))
		memset(localp, 0, sizeof(*localp));
}

int uv_socket_descriptor(struct hf_socket *socket)
{
	return uv_socket_of(socket)->fd;
}

/* Datagrams */

union control {
	char room[CMSG_SPACE(sizeof(struct in6_pktinfo))];
	struct cmsghdr align;
};

struct batch {
	struct mmsghdr messages[HF_DATAGRAM_BATCH];
	struct iovec iov[HF_DATAGRAM_BATCH];
	struct sockaddr_storage peers[HF_DATAGRAM_BATCH];
	union control controls[HF_DATAGRAM_BATCH];
};

static void point_at(struct batch *batch, int i, const struct hf_datagram *datagram)
{
	batch->iov[i] = (struct iovec){ datagram->data, datagram->len };
	batch->messages[i].msg_hdr = (struct msghdr){
		.msg_name = &batch->peers[i],
		.msg_namelen = sizeof(batch->peers[i]),
		.msg_iov = &batch->iov[i],
		.msg_iovlen = 1,
		.msg_control = &batch->controls[i],
		.msg_controllen = sizeof(batch->controls[i]),
	};
}

static void read_local(struct hf_addr *local, struct msghdr *message)
{
	memset(local, 0, sizeof(*local));
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo info;

			memcpy(&info, CMSG_DATA(c), sizeof(info));
			local->family = AF_INET;
			memcpy(local->ip, &info.ipi_spec_dst, 4);
		} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo info;

			memcpy(&info, CMSG_DATA(c), sizeof(info));
			local->family = AF_INET6;
			memcpy(local->ip, &info.ipi6_addr, 16);
			if (IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr))
				local->scope = info.ipi6_ifindex;
		}
	}
}

int uv_udp_receive_batch(struct hf_socket *socket, struct hf_datagram *datagrams, int n)
{
	struct batch batch;
	int got;

	n = HF_MIN(n, HF_DATAGRAM_BATCH);
	for (int i = 0; i < n; i++)
		point_at(&batch, i, &datagrams[i]);
	got = recvmmsg(uv_socket_of(socket)->fd, batch.messages, (unsigned int)n, 0, NULL);
	if (got < 0)
		return -errno;
	for (int i = 0; i < got; i++) {
		struct msghdr *message = &batch.messages[i].msg_hdr;
		bool is_whole = !(message->msg_flags & MSG_TRUNC);

		if (!hf_addr_from_sockaddr(&datagrams[i].peer, (struct sockaddr *)&batch.peers[i]))
			is_whole = false;
		datagrams[i].len = is_whole ? batch.messages[i].msg_len : 0;
		read_local(&datagrams[i].local, message);
	}
	return got;
}

static void write_local(struct msghdr *message, const struct hf_addr *local)
{
	struct cmsghdr *c;

	if (!local->family) {
		message->msg_control = NULL;
		message->msg_controllen = 0;
		return;
	}
	memset(message->msg_control, 0, message->msg_controllen);
	c = CMSG_FIRSTHDR(message);
	if (local->family == AF_INET) {
		struct in_pktinfo info = { 0 };

		memcpy(&info.ipi_spec_dst, local->ip, 4);
		c->cmsg_level = IPPROTO_IP;
		c->cmsg_type = IP_PKTINFO;
		c->cmsg_len = CMSG_LEN(sizeof(info));
		memcpy(CMSG_DATA(c), &info, sizeof(info));
		message->msg_controllen = CMSG_SPACE(sizeof(info));
	} else {
		struct in6_pktinfo info = { .ipi6_ifindex = local->scope };

		memcpy(&info.ipi6_addr, local->ip, 16);
		c->cmsg_level = IPPROTO_IPV6;
		c->cmsg_type = IPV6_PKTINFO;
		c->cmsg_len = CMSG_LEN(sizeof(info));
		memcpy(CMSG_DATA(c), &info, sizeof(info));
		message->msg_controllen = CMSG_SPACE(sizeof(info));
	}
}

int uv_udp_send_batch(struct hf_socket *socket, const struct hf_datagram *datagrams, int n)
{
	struct uv_socket *s = uv_socket_of(socket);
	struct batch batch;
	int sent;

	n = HF_MIN(n, HF_DATAGRAM_BATCH);
	for (int i = 0; i < n; i++) {
		point_at(&batch, i, &datagrams[i]);
		batch.messages[i].msg_hdr.msg_namelen =
			hf_addr_to_sockaddr_on(&datagrams[i].peer, s->family, &batch.peers[i]);
		write_local(&batch.messages[i].msg_hdr, &datagrams[i].local);
	}
	sent = sendmmsg(s->fd, batch.messages, (unsigned int)n, MSG_NOSIGNAL);
	return sent < 0 ? -errno : sent;
}
