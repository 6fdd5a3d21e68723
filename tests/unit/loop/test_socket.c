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

/* One read an event: some users of a socket leave the rest for the next event. */
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
	assert_int_equal(hf_socket_observe(&end.socket, end.loop, fds[0]), 0);
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

static void on_first(void *user, unsigned int events)
{
	assert_int_equal(events, HF_SOCKET_READ);
	hf_loop_stop(user);
}

static void test_observed_descriptor_stays_open(void **state)
{
	struct hf_socket *socket;
	struct hf_loop *loop;
	int pair[2];
	char c;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(hf_loop_new(&loop), 0);
	assert_int_equal(hf_socket_observe(&socket, loop, pair[0]), 0);
	assert_int_equal(hf_socket_watch(socket, HF_SOCKET_READ, on_first, loop), 0);
	assert_int_equal(write(pair[1], "x", 1), 1);
	assert_int_equal(hf_loop_run(loop), 0);
	hf_socket_close(socket);
	assert_int_equal(read(pair[0], &c, 1), 1);
	close(pair[0]);
	close(pair[1]);
	hf_loop_free(loop);
}

/* As libpq does at an error. Then another thread may open something that gets the number. */
static void test_library_closes_what_is_observed(void **state)
{
	struct hf_socket *first, *second;
	struct hf_loop *loop;
	int pair[2], other[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(hf_loop_new(&loop), 0);
	assert_int_equal(hf_socket_observe(&first, loop, pair[0]), 0);
	assert_int_equal(hf_socket_watch(first, HF_SOCKET_READ, on_first, loop), 0);
	close(pair[0]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, other), 0);
	assert_int_equal(other[0], pair[0]); /* the lowest free number */
	assert_int_equal(hf_socket_observe(&second, loop, other[0]), 0);
	assert_int_equal(hf_socket_watch(second, HF_SOCKET_READ, on_first, loop), 0);
	hf_socket_close(first);
	assert_int_equal(write(other[1], "x", 1), 1);
	assert_int_equal(hf_loop_run(loop), 0);
	hf_socket_close(second);
	close(pair[1]);
	close(other[0]);
	close(other[1]);
	hf_loop_free(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_error_behind_data),
		cmocka_unit_test(test_observed_descriptor_stays_open),
		cmocka_unit_test(test_library_closes_what_is_observed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
