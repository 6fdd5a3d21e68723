/*
 * The real world, on libuv.
 *
 * The order of libuv's turn is: timers, prepare, poll, check. The end of a turn runs in
 * prepare, just before libuv would sleep: first posts and due timers, then the deferred tasks.
 * Then libuv's one timer is armed for the earliest timer of the loop. check starts a new turn.
 */
#include "loop/loop.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "base/error.h"
#include "loop/uv_internal.h"

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * HF_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static uint64_t world_clock(struct hf_loop *loop)
{
	return read_clock(CLOCK_MONOTONIC);
}

static uint64_t world_boottime(struct hf_loop *loop)
{
	return read_clock(CLOCK_BOOTTIME);
}

static uint64_t world_wall(struct hf_loop *loop)
{
	return read_clock(CLOCK_REALTIME);
}

static void world_random(struct hf_loop *loop, void *out, size_t len)
{
	uint8_t *p = out;

	while (len) {
		ssize_t n = getrandom(p, len, 0);

		if (n < 0) {
			assert(errno ==
			       EINTR); /* no other error is possible on a kernel that has getrandom */
			continue;
		}
		p += n;
		len -= (size_t)n;
	}
}

static void on_timer(uv_timer_t *handle)
{
	struct uv_world *world = handle->data;

	world->armed_until = 0; /* prepare does the work */
}

static void arm_timer(struct uv_world *world)
{
	struct hf_timer *first = hf_timer_heap_first(&world->loop.timers);
	uint64_t now, delay;

	if (!first) {
		if (world->armed_until)
			uv_timer_stop(&world->timer);
		world->armed_until = 0;
		return;
	}
	if (world->armed_until && first->deadline == world->armed_until)
		return;
	now = world_clock(&world->loop);
	delay = first->deadline > now ? first->deadline - now : 0;
	uv_update_time(&world->uv);
	uv_timer_start(&world->timer, on_timer, (delay + HF_NS_PER_MS - 1) / HF_NS_PER_MS, 0);
	world->armed_until = first->deadline;
}

static void on_prepare(uv_prepare_t *handle)
{
	struct uv_world *world = handle->data;
	struct hf_loop *loop = &world->loop;

	if (hf_timer_heap_first(&loop->timers))
		hf_loop_run_timers(loop);
	hf_loop_run_deferred(loop);
	if (atomic_load_explicit(&loop->is_stopping, memory_order_relaxed))
		uv_stop(&world->uv);
	arm_timer(world);
	uv_linger_or_sleep(&world->linger, world_clock(loop));
	hf_loop_new_turn(loop);
}

static void on_check(uv_check_t *handle)
{
	struct uv_world *world = handle->data;

	hf_loop_new_turn(&world->loop);
}

static void on_async(uv_async_t *handle)
{
	struct uv_world *world = handle->data;

	uv_world_serves(world);
	hf_loop_run_posts(&world->loop);
}

static void world_wake(struct hf_loop *loop)
{
	uv_async_send(&uv_world_of(loop)->async);
}

static int world_run(struct hf_loop *loop)
{
	uv_run(&uv_world_of(loop)->uv, UV_RUN_DEFAULT);
	atomic_store(&loop->is_stopping, false);
	return 0;
}

static void close_handle(uv_handle_t *handle, void *unused)
{
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

static void world_free(struct hf_loop *loop)
{
	struct uv_world *world = uv_world_of(loop);

	hf_loop_drain(loop);
	uv_walk(&world->uv, close_handle, NULL);
	uv_run(&world->uv, UV_RUN_DEFAULT);
	uv_loop_close(&world->uv);
	hf_loop_deinit(loop);
	free(world);
}

static const struct hf_loop_ops world_ops = {
	.free = world_free,
	.run = world_run,
	.wake = world_wake,
	.clock = world_clock,
	.boottime = world_boottime,
	.wall = world_wall,
	.random = world_random,
	.on_signal = uv_signal_catch,
	.tcp_listen = uv_tcp_listen_on,
	.tcp_accept = uv_tcp_accept_from,
	.tcp_connect = uv_tcp_connect_to,
	.udp_open = uv_udp_open_on,
	.observe = uv_socket_observe,
	.close = uv_socket_close,
	.watch = uv_socket_watch,
	.move = uv_socket_move,
	.read = uv_socket_read,
	.write = uv_socket_write,
	.error = uv_socket_error,
	.drop_unsent = uv_socket_drop_unsent,
	.set_keepalive = uv_socket_set_keepalive,
	.probe = uv_socket_probe,
	.heard = uv_socket_heard,
	.receive = uv_udp_receive_batch,
	.send = uv_udp_send_batch,
	.local = uv_socket_local,
	.descriptor = uv_socket_descriptor,
	.work_submit = uv_work_submit_to,
	.work_cancel = uv_work_cancel_of,
};

int hf_loop_new(struct hf_loop **loopp)
{
	struct uv_world *world = calloc(1, sizeof(*world));
	int r;

	if (!world)
		return hf_trace(-ENOMEM);
	r = uv_loop_init(&world->uv);
	if (r < 0) {
		free(world);
		return hf_trace(r);
	}
	hf_loop_init(&world->loop, &world_ops);
	world->uv.data = world;
	world->prepare.data = world->check.data = world->timer.data = world->async.data = world;
	uv_prepare_init(&world->uv, &world->prepare);
	uv_prepare_start(&world->prepare, on_prepare);
	uv_linger_init(&world->linger, &world->uv);
	uv_check_init(&world->uv, &world->check);
	uv_check_start(&world->check, on_check);
	uv_timer_init(&world->uv, &world->timer);
	r = uv_async_init(&world->uv, &world->async, on_async);
	if (r < 0) {
		world_free(&world->loop);
		return hf_trace(r);
	}
	*loopp = &world->loop;
	return 0;
}
