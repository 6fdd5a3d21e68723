/* Which thread closes a descriptor: this replaces close(2) in the one file of a program that includes it. */
#pragma once

#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loop/loop.h"
#include "loop/timer.h"

static _Atomic int watched = -1;
static _Atomic long closed_by; /* the thread that closed @watched */

int close(int fd)
{
	if (fd >= 0 && fd == watched) {
		watched = -1;
		closed_by = syscall(SYS_gettid);
	}
	return (int)syscall(SYS_close, fd);
}

static void watch(int fd)
{
	closed_by = 0;
	watched = fd;
}

static void look(struct hf_timer *timer)
{
	if (closed_by)
		hf_loop_stop(timer->loop);
	else
		hf_timer_start(timer, HF_NS_PER_MS);
}

/* Closing may have to wait for a disk, and on the loop's thread everything else would wait with it. */
static void expect_closed_elsewhere(struct hf_loop *loop)
{
	struct hf_timer timer;

	hf_timer_init(&timer, loop, look);
	hf_timer_start(&timer, 0);
	hf_loop_run(loop);
	hf_timer_stop(&timer);
	assert_int_not_equal(closed_by, syscall(SYS_gettid));
}
