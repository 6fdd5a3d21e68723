/*
 * How does a signal reach the loop?
 *
 * A handler notes the signal and wakes an eventfd that the loop polls. Notes and eventfd belong to the
 * process, not to a loop: in a cluster one loop follows another with each role, and a signal that comes
 * when a loop ends, or between two, is the next loop's. uv_signal_t would lose it with the loop: a node told
 * to stop at that moment would serve on.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "loop/uv_internal.h"

static atomic_bool has_come[NSIG]; /* any thread may run the handler */
static int wake_fd = -1;

static void wake(void)
{
	const uint64_t one = 1;

	(void)!write(wake_fd, &one, sizeof(one)); /* it fails only if enough wake-ups are there */
}

static void note(int signum)
{
	int before = errno;

	atomic_store(&has_come[signum], true);
	wake();
	errno = before;
}

static void on_wake(uv_poll_t *handle, int status, int events)
{
	struct uv_world *world = handle->data;
	uint64_t n;

	(void)!read(wake_fd, &n, sizeof(n)); /* another loop may have read it */
	for (size_t i = 0; i < world->n_signals; i++) {
		const struct uv_signal_slot *slot = &world->signals[i];

		if (atomic_exchange(&has_come[slot->signum], false))
			slot->fn(slot->user, slot->signum);
	}
}

static int begin_polling(struct uv_world *world)
{
	int r;

	if (wake_fd < 0)
		wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake_fd < 0)
		return hf_trace(-errno);
	r = uv_poll_init(&world->uv, &world->wake, wake_fd);
	if (r < 0)
		return hf_trace(r);
	world->wake.data = world;
	return hf_trace(uv_poll_start(&world->wake, UV_READABLE, on_wake));
}

int uv_signal_catch(struct hf_loop *loop, int signum, void (*fn)(void *user, int signum), void *user)
{
	struct uv_world *world = uv_world_of(loop);
	struct sigaction action = { .sa_handler = note, .sa_flags = SA_RESTART };
	int r = world->n_signals ? 0 : begin_polling(world);

	assert(world->n_signals < UV_MAX_SIGNALS && signum < NSIG);
	if (r < 0)
		return r;
	sigfillset(&action.sa_mask);
	if (sigaction(signum, &action, NULL) < 0)
		return hf_trace(-errno);
	world->signals[world->n_signals++] = (struct uv_signal_slot){ signum, fn, user };
	if (atomic_load(&has_come[signum]))
		wake();
	return 0;
}
