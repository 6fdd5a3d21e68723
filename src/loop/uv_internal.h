/* The inside of the real world, for its uv_*.c. */
#pragma once

#include <uv.h>

#include "loop/backend.h"
#include "loop/loop.h"
#include "loop/uv_linger.h"

#define UV_MAX_SIGNALS 8

struct uv_signal_slot {
	int signum;
	void (*fn)(void *user, int signum);
	void *user;
};

struct uv_world {
	struct hf_loop loop;
	uv_loop_t uv;
	uv_prepare_t prepare;
	uv_check_t check;
	uv_timer_t timer;     /* armed for the earliest timer of the loop */
	uint64_t armed_until; /* its deadline; 0: not armed */
	uv_async_t async;
	struct uv_linger linger;
	uv_poll_t wake; /* if there are signals: see uv_signal.c */
	struct uv_signal_slot signals[UV_MAX_SIGNALS];
	size_t n_signals;
};

static inline struct uv_world *uv_world_of(struct hf_loop *loop)
{
	return (struct uv_world *)loop; /* its first member */
}

/* An event came that the loop waited for. */
static inline void uv_world_serves(struct uv_world *world)
{
	if (!world->linger.has_served)
		uv_linger_judge(&world->linger, hf_loop_now(&world->loop));
}

int uv_tcp_listen_on(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind);
int uv_tcp_accept_from(struct hf_socket **socketp, struct hf_socket *listener, struct hf_addr *peerp);
int uv_tcp_connect_to(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind,
		      const struct hf_addr *remote);
int uv_udp_open_on(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind);
int uv_socket_observe(struct hf_socket **socketp, struct hf_loop *loop, int fd);
void uv_socket_close(struct hf_socket *socket);
int uv_socket_watch(struct hf_socket *socket, unsigned int events);
int uv_socket_move(struct hf_socket **socketp, struct hf_loop *loop);
ssize_t uv_socket_read(struct hf_socket *socket, void *data, size_t len);
ssize_t uv_socket_write(struct hf_socket *socket, const struct iovec *iov, int n_iov);
int uv_socket_error(struct hf_socket *socket);
void uv_socket_drop_unsent(struct hf_socket *socket);
int uv_socket_set_keepalive(struct hf_socket *socket, int keepalive_s);
int uv_socket_probe(struct hf_socket *socket, bool is_on);
bool uv_socket_heard(struct hf_socket *socket, struct hf_heard *heardp);
int uv_udp_receive_batch(struct hf_socket *socket, struct hf_datagram *datagrams, int n);
int uv_udp_send_batch(struct hf_socket *socket, const struct hf_datagram *datagrams, int n);
void uv_socket_local(struct hf_socket *socket, struct hf_addr *localp);
int uv_socket_descriptor(struct hf_socket *socket);

int uv_signal_catch(struct hf_loop *loop, int signum, void (*fn)(void *user, int signum), void *user);

int uv_work_submit_to(struct hf_loop *loop, struct hf_work *work);
void uv_work_cancel_of(struct hf_work *work);
