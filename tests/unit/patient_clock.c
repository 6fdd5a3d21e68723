/*
 * The monotonic clock of a test that talks to itself over loopback sockets, all on one loop.
 *
 * It stands still while the loop has anything to do, and moves on by as much as the loop wanted to sleep when
 * that was in vain: so what the machine takes for itself is no part of any time-out, and a wait in which
 * nothing comes is over soon. A program that links this has it instead of libc's, libuv included.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <time.h>

#include "base/macros.h"

#define NS_PER_S  1000000000l
#define NS_PER_MS 1000000l
/* Nothing of the test's own comes later, not even by TCP, which waits now and then for an acknowledgement. */
#define IN_VAIN_MS 250
#define LOOK_NS    10000 /* what a look takes of a loop that waits awake */

/* One thread has a loop; others, of a sanitizer perhaps, may look at the clock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct timespec now; /* under lock */

typedef int (*clock_fn)(clockid_t id, struct timespec *ts);
typedef int (*poll_fn)(int fd, struct epoll_event *events, int n, int timeout_ms, const sigset_t *mask);

int clock_gettime(clockid_t id, struct timespec *ts)
{
	static clock_fn next;

	pthread_mutex_lock(&lock);
	if (!next)
		next = (clock_fn)dlsym(RTLD_NEXT, "clock_gettime");
	if (!now.tv_sec)
		next(CLOCK_MONOTONIC, &now);
	*ts = now;
	pthread_mutex_unlock(&lock);
	return id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE ? 0 : next(id, ts);
}

static void pass(int seconds, long ns)
{
	pthread_mutex_lock(&lock);
	now.tv_nsec += ns;
	now.tv_sec += seconds + now.tv_nsec / NS_PER_S;
	now.tv_nsec %= NS_PER_S;
	pthread_mutex_unlock(&lock);
}

int epoll_pwait(int fd, struct epoll_event *events, int n, int timeout_ms, const sigset_t *mask)
{
	static poll_fn next;
	int r;

	if (!next)
		next = (poll_fn)dlsym(RTLD_NEXT, "epoll_pwait");
	r = next(fd, events, n, HF_MIN(timeout_ms, IN_VAIN_MS), mask);
	if (r == 0)
		pass(timeout_ms / 1000, timeout_ms ? timeout_ms % 1000 * NS_PER_MS : LOOK_NS);
	return r;
}

int epoll_wait(int fd, struct epoll_event *events, int n, int timeout_ms)
{
	return epoll_pwait(fd, events, n, timeout_ms, NULL);
}
