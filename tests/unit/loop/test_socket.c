/* Sockets of the real world: what libuv leaves to src/loop. */
#include "../test.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macros.h"
#include "loop/loop.h"
#include "loop/socket.h"
#include "loop/timer.h"

struct end {
	struct hf_loop *loop;
	struct hf_socket *socket;
	struct hf_timer patience;
	size_t n_bytes;
	ssize_t last; /* of reading */
};

static void on_patience(struct hf_timer *timer)
{
	hf_loop_stop(hf_container_of(timer, struct end, patience)->loop);
}

/* One read an event, as some do who wait for more. */
static void on_ready(void *user, unsigned int events)
{
	struct end *end = user;
	char byte;

	assert_int_equal(events, HF_SOCKET_READ);
	end->last = hf_socket_read(end->socket, &byte, 1);
	if (end->last > 0)
		end->n_bytes++;
	else if (end->last != -EAGAIN)
		hf_loop_stop(end->loop);
}

/* A peer that is killed leaves what it said, and behind that an error. libuv tells of the error once. */
static void test_error_behind_data(void **state)
{
	struct end end = { .last = 1 };
	int fds[2];

	assert_int_equal(hf_loop_new(&end.loop), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	assert_int_equal(write(fds[1], "said", 4), 4);
	assert_int_equal(write(fds[0], "unheard", 7), 7); /* hence the error */
	close(fds[1]);
	assert_int_equal(hf_socket_adopt(&end.socket, end.loop, fds[0]), 0);
	assert_int_equal(hf_socket_watch(end.socket, HF_SOCKET_READ, on_ready, &end), 0);
	hf_timer_init(&end.patience, end.loop, on_patience);
	assert_int_equal(hf_timer_start(&end.patience, 20 * HF_NS_PER_S), 0);
	assert_int_equal(hf_loop_run(end.loop), 0);
	assert_int_equal(end.n_bytes, 4);
	assert_true(end.last == 0 || end.last == -ECONNRESET); /* over, however the kernel tells it */
	hf_timer_stop(&end.patience);
	hf_socket_close(end.socket);
	hf_loop_free(end.loop);
	close(fds[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_error_behind_data),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
