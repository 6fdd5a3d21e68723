/*
 * The table of operations that carries a loop. The real world (loop/uv_*.c) and the simulated
 * one implement it. All other code uses loop.h, timer.h, socket.h and work.h.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "loop/socket.h"
#include "loop/timer_heap.h"
#include "loop/work.h"

struct hf_loop_ops {
	void (*free)(struct hf_loop *loop);
	int (*run)(struct hf_loop *loop);
	void (*wake)(struct hf_loop *loop); /* from any thread: there are posts, or the loop must stop */
	uint64_t (*clock)(struct hf_loop *loop);
	uint64_t (*boottime)(struct hf_loop *loop);
	uint64_t (*wall)(struct hf_loop *loop);
	void (*random)(struct hf_loop *loop, void *out, size_t len);
	int (*on_signal)(struct hf_loop *loop, int signum, void (*fn)(void *user, int signum), void *user);

	int (*tcp_listen)(struct hf_socket **socketp, struct hf_loop *loop,
			  const struct hf_socket_bind *bind);
	int (*tcp_accept)(struct hf_socket **socketp, struct hf_socket *listener, struct hf_addr *peerp);
	int (*tcp_connect)(struct hf_socket **socketp, struct hf_loop *loop,
			   const struct hf_socket_bind *bind, const struct hf_addr *remote);
	int (*udp_open)(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind);
	int (*observe)(struct hf_socket **socketp, struct hf_loop *loop, int fd);
	void (*close)(struct hf_socket *socket);
	int (*watch)(struct hf_socket *socket, unsigned int events);
	int (*move)(struct hf_socket **socketp, struct hf_loop *loop);
	ssize_t (*read)(struct hf_socket *socket, void *data, size_t len);
	ssize_t (*write)(struct hf_socket *socket, const struct iovec *iov, int n_iov);
	int (*error)(struct hf_socket *socket);
	void (*drop_unsent)(struct hf_socket *socket);
	int (*set_keepalive)(struct hf_socket *socket, int keepalive_s);
	int (*probe)(struct hf_socket *socket, bool is_on);
	bool (*heard)(struct hf_socket *socket, struct hf_heard *heardp);
	int (*receive)(struct hf_socket *socket, struct hf_datagram *datagrams, int n);
	int (*send)(struct hf_socket *socket, const struct hf_datagram *datagrams, int n);
	void (*local)(struct hf_socket *socket, struct hf_addr *localp);
	int (*descriptor)(struct hf_socket *socket); /* NULL: this world has none */

	int (*work_submit)(struct hf_loop *loop, struct hf_work *work);
	void (*work_cancel)(struct hf_work *work);
};

/* The common part of every loop; a backend embeds it. */
struct hf_loop {
	const struct hf_loop_ops *ops; /* (c) */
	uint64_t now;                  /* 0: not read yet in this turn */
	uint64_t n_turns;
	const struct hf_lease *lease; /* NULL: none */
	uint64_t n_standstills;
	uint64_t stood_still_at; /* monotonic ns, when the last of them was noticed */
	uint64_t compared_at;    /* monotonic ns; 0: boottime_ahead is not known yet */
	int64_t boottime_ahead;  /* of the monotonic clock: how long the machine has slept, and more */
	struct hf_timer_heap timers;
	struct hf_list deferred;
	_Atomic bool is_stopping;
	pthread_mutex_t posts_lock;
	struct hf_list posts; /* under posts_lock */
};

/* The common part of every socket; a backend embeds it. */
struct hf_socket {
	struct hf_loop *loop;
	hf_socket_fn fn;
	void *user;
	unsigned int events; /* watched for */
};

void hf_loop_init(struct hf_loop *loop, const struct hf_loop_ops *ops);
void hf_loop_deinit(struct hf_loop *loop);

/* The parts of a turn, for the backend to call. */
void hf_loop_new_turn(struct hf_loop *loop); /* the clock moves on */
void hf_loop_run_posts(struct hf_loop *loop);
void hf_loop_run_timers(struct hf_loop *loop);
void hf_loop_run_deferred(struct hf_loop *loop);
