/*
 * The loop: time, randomness, timers and work at the end of a turn.
 *
 * Everything above this folder gets its clock, its random numbers and its
 * sockets (loop/socket.h) from here and from nowhere else, so that a simulated
 * world can stand beneath the very code of the product: a world is a table of
 * operations (loop/backend.h); hf_loop_new() makes the real one, on libuv.
 *
 * A loop belongs to the thread that runs it. Only hf_loop_post() and
 * hf_loop_stop() may be called from another thread.
 *
 * A turn: the sockets that are ready are served, then timers that are due, then
 * the deferred tasks, until none is left; then the loop sleeps. So a task
 * deferred in a turn sees all that happened in it: that is where commits and
 * writes are batched.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/list.h"

struct hf_loop;

#define HF_NS_PER_MS UINT64_C(1000000)
#define HF_NS_PER_S  UINT64_C(1000000000)

/* Life */
int hf_loop_new(struct hf_loop **loopp);
struct hf_loop *hf_loop_free(struct hf_loop *loop);
int hf_loop_run(struct hf_loop *loop); /* until hf_loop_stop() */
void hf_loop_stop(struct hf_loop *loop);
/* For the end, when it does not run any more: what was posted and deferred is still done. True: there was
 * something. */
bool hf_loop_drain(struct hf_loop *loop);

HF_DEFINE_CLEANUP(struct hf_loop *, hf_loop_free)

/* World */
uint64_t hf_loop_now(struct hf_loop *loop);   /* monotonic ns; the same value within a turn */
uint64_t hf_loop_clock(struct hf_loop *loop); /* the same clock, read afresh; from any thread */
uint64_t hf_loop_wall(struct hf_loop *loop);  /* ns since 1970, for people and records only */
void hf_loop_random(struct hf_loop *loop, void *out, size_t len);

/* The number of the present turn, for an owner that counts what it does in one. */
uint64_t hf_loop_turn(const struct hf_loop *loop);

/* Tasks: embedded in whoever has work to do; a task is queued at most once at a time. */
struct hf_task {
	struct hf_link link;
	void (*run)(struct hf_task *task);
};

void hf_task_init(struct hf_task *task, void (*run)(struct hf_task *task));
void hf_loop_defer(struct hf_loop *loop, struct hf_task *task); /* at the end of this turn; again is no-op */
/* The same, and a task that is deferred already moves behind all that were deferred since. */
void hf_loop_defer_last(struct hf_loop *loop, struct hf_task *task);
void hf_task_cancel(struct hf_task *task); /* deferred tasks only */
/* From any thread; the task runs on the loop's own, in the order of the posts, and belongs to the loop
 * until it runs. */
void hf_loop_post(struct hf_loop *loop, struct hf_task *task);

/* Signals: the real world only; -ENOTSUP elsewhere. */
int hf_loop_on_signal(struct hf_loop *loop, int signum, void (*fn)(void *user, int signum), void *user);
