/*
 * The loop: time, random numbers, timers, and tasks at the end of a turn.
 *
 *	loop.c         what all worlds share: tasks, timers, turns
 *	timer_heap.c   which timer is next?
 *	work.c         blocking work, handed to the threads of the world
 *	resolve.c      what is the address of a host name? (for a worker)
 *	backend.h      the operations that a world implements
 *	uv_loop.c      the real world, on libuv
 *	uv_socket.c    its sockets
 *	uv_work.c      its threads
 *	uv_signal.c    how does a signal reach the loop?
 *	uv_linger.c    should the loop sleep, or ask for events again for a moment?
 *
 * All code above this folder gets its clock, its random numbers and its sockets
 * (loop/socket.h) only from here. So a simulated world can run the code of the product. A
 * world is a table of operations (loop/backend.h). hf_loop_new() makes the real one, on libuv.
 *
 * A loop belongs to the thread that runs it. Only hf_loop_post() and hf_loop_stop() may be
 * called from another thread.
 *
 * In a turn the loop serves the sockets that are ready, then the timers that are due, then the
 * deferred tasks, until none is left. Then it sleeps. So a deferred task sees everything that
 * happened in its turn: there, commits and writes are batched.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/list.h"

struct hf_loop;

#define HF_NS_PER_MS UINT64_C(1000000)
#define HF_NS_PER_S  UINT64_C(1000000000)

int hf_loop_new(struct hf_loop **loopp);
struct hf_loop *hf_loop_free(struct hf_loop *loop);
int hf_loop_run(struct hf_loop *loop); /* until hf_loop_stop() */
void hf_loop_stop(struct hf_loop *loop);
/* For the end, when the loop does not run any more: runs what was posted and deferred. True: there was
 * something. */
bool hf_loop_drain(struct hf_loop *loop);

HF_DEFINE_CLEANUP(struct hf_loop *, hf_loop_free)

/* Time and random numbers */
uint64_t hf_loop_now(struct hf_loop *loop);   /* monotonic ns; the same value within a turn */
uint64_t hf_loop_clock(struct hf_loop *loop); /* the same clock, read afresh; from any thread */
uint64_t hf_loop_wall(struct hf_loop *loop);  /* ns since 1970, only for people and records */
/* ns since the boot; the clock goes on while the machine sleeps; read afresh, from any thread */
uint64_t hf_loop_boottime(struct hf_loop *loop);
void hf_loop_random(struct hf_loop *loop, void *out, size_t len);

/*
 * The lease: until when may this process act for its clients?
 *
 * In a cluster another node takes over when this one was not heard of for a while. A process that was
 * stopped, or whose machine slept, must notice that before it begins an operation or sends anything. So a
 * loop with a lease sends nothing when the lease is over: a write fails with -ESTALE, and a datagram is lost.
 * Code that lets another library write to a socket's descriptor asks hf_loop_may_act() before each such use.
 * And an operation begins only if hf_loop_may_act(), which any thread may ask. Without a cluster there is no
 * lease.
 */
struct hf_lease {
	_Atomic uint64_t ends_at; /* by hf_loop_boottime() */
	_Atomic uint64_t since;   /* it has been renewed in time since then */
};

void hf_lease_set(struct hf_lease *lease, uint64_t ends_at, uint64_t now); /* one thread alone calls it */

void hf_loop_set_lease(struct hf_loop *loop,
		       const struct hf_lease *lease); /* before the loop runs; NULL: none */
bool hf_loop_may_act(struct hf_loop *loop);

/*
 * Has this process listened since a mark was made? If not, the silence of a peer means nothing. Without its
 * lease the process sent nothing. If it stood still, replies wait in its sockets: a timer runs late then, or
 * the machine has slept.
 */
struct hf_loop_mark {
	uint64_t lease_at;
	uint64_t n_standstills;
};
#define HF_LOOP_STANDSTILL_NS HF_NS_PER_S

struct hf_loop_mark hf_loop_mark(struct hf_loop *loop);
bool hf_loop_had_lease(struct hf_loop *loop, const struct hf_loop_mark *since); /* true without a lease */
bool hf_loop_stood_still(struct hf_loop *loop, const struct hf_loop_mark *since);
/* Within the last @ns the process went on after a standstill, or got its lease after it had none. What it
 * reads now may be old. */
bool hf_loop_stood_still_lately(struct hf_loop *loop, uint64_t ns);

/* The number of this turn, for counts within one turn. */
uint64_t hf_loop_turn(const struct hf_loop *loop);

/* Tasks: embedded in their owner. A task is queued at most once at a time. */
struct hf_task {
	struct hf_link link;
	void (*run)(struct hf_task *task);
};

void hf_task_init(struct hf_task *task, void (*run)(struct hf_task *task));
void hf_loop_defer(struct hf_loop *loop, struct hf_task *task); /* at the end of this turn; once */
/* The same; a task that is deferred already moves behind all that were deferred since. */
void hf_loop_defer_last(struct hf_loop *loop, struct hf_task *task);
void hf_task_cancel(struct hf_task *task); /* deferred tasks only */
/* From any thread. The task runs on the loop's own thread, in the order of the posts. It belongs to the loop
 * until it runs. */
void hf_loop_post(struct hf_loop *loop, struct hf_task *task);

/* Signals: only in the real world; elsewhere -ENOTSUP. A signal that comes when its loop has ended is given
 * to the next loop that asks for it. */
int hf_loop_on_signal(struct hf_loop *loop, int signum, void (*fn)(void *user, int signum), void *user);
