/*
 * Three lanes on three threads. Built with -Db_sanitize=thread this is also the
 * proof that they share nothing they should not.
 */
#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rig.h"

#define HOME    "127.0.0.1"
#define N_LANES 3

static struct rig rig;

static void start(const struct hf_rpc_limits *limits)
{
	rig_start(&rig, limits, N_LANES, HOME);
}

/* Connections are dealt in turn: the next one to be accepted goes to lane @lane. */
static int connect_to_lane(int lane)
{
	int fd;

	for (;;) {
		uint8_t call[64], results[64];
		uint32_t before[N_LANES];

		for (int i = 0; i < N_LANES; i++)
			before[i] = atomic_load(&rig.n_on[i]);
		fd = rig_connect(HOME, rig.tcp, NULL);
		rig_send_record(fd, call, rig_call(call, 1, RIG_PROGRAM, RIG_VOID, NULL, 0));
		rig_expect_success(fd, 1, results, sizeof(results));
		if (atomic_load(&rig.n_on[lane]) != before[lane])
			return fd;
		close(fd);
	}
}

static uint8_t *append_echo(uint8_t *p, uint32_t xid, uint32_t program, uint32_t proc)
{
	char text[32];
	size_t len;

	snprintf(text, sizeof(text), "call %u of %x", xid, program);
	len = rig_call_opaque(p + 4, xid, program, proc, text, (uint32_t)strlen(text));
	rig_put(p, 0x80000000u | (uint32_t)len);
	return p + 4 + len;
}

static void expect_echo(int fd, uint32_t xid, uint32_t program)
{
	uint8_t results[128];
	char text[32];

	snprintf(text, sizeof(text), "call %u of %x", xid, program);
	rig_expect_success(fd, xid, results, sizeof(results));
	assert_int_equal(rig_get(results), strlen(text));
	assert_memory_equal(results + 4, text, strlen(text));
}

static void test_dealt(void **state)
{
	int fds[9];
	uint8_t call[64], results[64];

	start(&rig_limits);
	for (int i = 0; i < 9; i++) {
		fds[i] = rig_connect(HOME, rig.tcp, NULL);
		rig_send_record(fds[i], call, rig_call(call, 1, RIG_PROGRAM, RIG_VOID, NULL, 0));
		rig_expect_success(fds[i], 1, results, sizeof(results));
	}
	for (int i = 0; i < N_LANES; i++)
		assert_int_equal(atomic_load(&rig.n_on[i]), 3);
	for (int i = 0; i < 9; i++)
		close(fds[i]);
	rig_stop(&rig);
}

/* From each lane: anywhere, anywhere, home, anywhere, … in one batch; replies in order, and each call counts
 * once. After the first home call the connection stays at home. */
static void test_mixed(void **state)
{
	enum {
		N = 1000
	};
	uint8_t *batch = malloc(N * 128), *p;

	for (int lane = 0; lane < N_LANES; lane++) {
		uint64_t calls;
		uint32_t at_home;
		int fd;

		start(&rig_limits);
		fd = connect_to_lane(lane);
		calls = rig_counts(&rig).calls;
		at_home = atomic_load(&rig.n_on[0]);
		p = batch;
		for (uint32_t i = 0; i < N; i++)
			p = append_echo(p, i, i % 7 == 5 ? RIG_HOME : RIG_PROGRAM, RIG_ECHO);
		rig_send_all(fd, batch, (size_t)(p - batch));
		for (uint32_t i = 0; i < N; i++)
			expect_echo(fd, i, i % 7 == 5 ? RIG_HOME : RIG_PROGRAM);
		assert_int_equal(atomic_load(&rig.n_away), 0);
		assert_int_equal(atomic_load(&rig.n_on[0]) - at_home, lane ? N - 5 : N);
		assert_int_equal(rig_counts(&rig).calls - calls, N);
		close(fd);
		rig_stop(&rig);
	}
	free(batch);
}

/* Calls suspended before the one that sends home end first, on the old lane; nothing overtakes the move. */
static void test_suspended_before_a_move(void **state)
{
	uint8_t batch[4096], *p = batch;
	int fd;

	start(&rig_limits);
	fd = connect_to_lane(1);
	p = append_echo(p, 10, RIG_PROGRAM, RIG_SUSPEND);
	p = append_echo(p, 11, RIG_PROGRAM, RIG_SUSPEND);
	p = append_echo(p, 12, RIG_PROGRAM, RIG_ECHO);
	p = append_echo(p, 13, RIG_HOME, RIG_ECHO);
	p = append_echo(p, 14, RIG_PROGRAM, RIG_ECHO);
	p = append_echo(p, 15, RIG_HOME, RIG_SUSPEND);
	p = append_echo(p, 16, RIG_HOME, RIG_ECHO);
	rig_send_all(fd, batch, (size_t)(p - batch));
	expect_echo(fd, 12, RIG_PROGRAM);
	rig_wait_suspended(&rig, 2);
	rig_release(&rig, 1);
	expect_echo(fd, 10, RIG_PROGRAM);
	assert_int_equal(atomic_load(&rig.n_on[1]), 4);
	rig_release(&rig, 1);
	expect_echo(fd, 11, RIG_PROGRAM);
	expect_echo(fd, 13, RIG_HOME);
	expect_echo(fd, 14, RIG_PROGRAM);
	expect_echo(fd, 16, RIG_HOME);
	rig_wait_suspended(&rig, 1);
	rig_release(&rig, 1);
	expect_echo(fd, 15, RIG_HOME);
	assert_int_equal(atomic_load(&rig.n_away), 0);
	/* dropped calls let it go, too */
	close(fd);
	fd = connect_to_lane(2);
	p = append_echo(batch, 20, RIG_PROGRAM, RIG_SUSPEND);
	p = append_echo(p, 21, RIG_HOME, RIG_ECHO);
	rig_send_all(fd, batch, (size_t)(p - batch));
	rig_wait_suspended(&rig, 1);
	rig_drop(&rig, 1);
	expect_echo(fd, 21, RIG_HOME);
	close(fd);
	rig_stop(&rig);
}

/* A connection that waits to move breaks; or its lane, or home, is closed. */
static void test_gone_before_a_move(void **state)
{
	uint8_t batch[4096], *p = batch;
	int fd;

	start(&rig_limits);
	fd = connect_to_lane(1);
	p = append_echo(p, 10, RIG_PROGRAM, RIG_SUSPEND);
	p = append_echo(p, 11, RIG_HOME, RIG_ECHO);
	p = append_echo(p, 12, RIG_HOME, RIG_ECHO);
	rig_send_all(fd, batch, (size_t)(p - batch));
	rig_wait_suspended(&rig, 1);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger));
	close(fd);
	rig_release(&rig, 1);
	rig_wait_connections(&rig, 0);
	/* the same, and the server stops in the middle */
	fd = connect_to_lane(1);
	rig_send_all(fd, batch, (size_t)(p - batch));
	rig_wait_suspended(&rig, 1);
	rig_stop(&rig);
	close(fd);
}

static void test_stop_while_moving(void **state)
{
	for (int round = 0; round < 15; round++) {
		int fds[12];

		start(&rig_limits);
		for (int i = 0; i < 12; i++) {
			uint8_t batch[4096], *p = batch;

			fds[i] = rig_connect(HOME, rig.tcp, NULL);
			for (uint32_t k = 0; k < 20; k++)
				p = append_echo(p, k, k % 5 == 3 ? RIG_HOME : RIG_PROGRAM, RIG_ECHO);
			rig_send_all(fds[i], batch, (size_t)(p - batch));
		}
		rig_stop(&rig);
		for (int i = 0; i < 12; i++)
			close(fds[i]);
	}
}

/* A long record, longer than what was read at once, moves whole. */
static void test_long_record_moves(void **state)
{
	static uint8_t data[600 << 10], call[700 << 10], results[700 << 10];
	size_t len;
	int fd;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 17 + i / 255);
	for (int suspended = 0; suspended < 2; suspended++) {
		start(&rig_limits);
		fd = connect_to_lane(2);
		len = rig_call_opaque(call, 5, RIG_HOME, suspended ? RIG_SUSPEND : RIG_ECHO, data,
				      sizeof(data));
		rig_send_record(fd, call, len);
		len = rig_call_opaque(call, 6, RIG_PROGRAM, RIG_ECHO, data, sizeof(data));
		rig_send_record(fd, call, len);
		if (suspended) {
			rig_wait_suspended(&rig, 1);
			rig_expect_success(fd, 6, results, sizeof(results));
			rig_release(&rig, 1);
			rig_expect_success(fd, 5, results, sizeof(results));
		} else {
			rig_expect_success(fd, 5, results, sizeof(results));
			assert_memory_equal(results + 4, data, sizeof(data));
			rig_expect_success(fd, 6, results, sizeof(results));
		}
		assert_memory_equal(results + 4, data, sizeof(data));
		close(fd);
		rig_stop(&rig); /* checks that no lane believes to be gathering anything */
	}
}

/* Unread replies travel along: a peer that does not read, then asks for home, then reads. */
static void test_replies_travel(void **state)
{
	enum {
		N = 200,
		SIZE = 4000
	};
	uint8_t *batch = malloc(N * 64), *results = malloc(SIZE + 64), *p = batch;
	int fd;

	start(&rig_limits);
	for (int round = 0; round < 3; round++) {
		fd = connect_to_lane(1 + round % 2);
		p = batch;
		for (uint32_t i = 0; i < N; i++) {
			size_t len =
				rig_call_word(p + 4, i, i == N / 2 ? RIG_HOME : RIG_PROGRAM, RIG_BIG, SIZE);

			rig_put(p, 0x80000000u | (uint32_t)len);
			p += 4 + len;
		}
		rig_send_all(fd, batch, (size_t)(p - batch));
		for (uint32_t i = 0; i < N; i++) {
			assert_int_equal(rig_expect_success(fd, i, results, SIZE + 64), SIZE + 4);
			assert_int_equal(results[4 + SIZE - 1], (uint8_t)((SIZE - 1) * 7 + SIZE));
		}
		close(fd);
	}
	assert_int_equal(atomic_load(&rig.n_away), 0);
	free(batch);
	free(results);
	rig_stop(&rig);
}

/* A repeat on another lane while the first is under way on its own. */
static void test_replay_across_lanes(void **state)
{
	uint8_t call[64], results[64];
	int fds[N_LANES], udp;

	start(&rig_limits);
	for (int i = 0; i < N_LANES; i++)
		fds[i] = connect_to_lane(i);
	udp = rig_udp(HOME);
	for (uint32_t round = 1; round <= 50; round++) {
		uint32_t count = atomic_load(&rig.count);
		int first = (int)(round % N_LANES), second = (int)((round + 1) % N_LANES);

		rig_send_record(fds[first], call,
				rig_call(call, 100 + round, RIG_PROGRAM, RIG_COUNT_SUSPEND, NULL, 0));
		rig_wait_suspended(&rig, 1);
		rig_send_record(fds[second], call,
				rig_call(call, 100 + round, RIG_PROGRAM, RIG_COUNT_SUSPEND, NULL, 0));
		/* once it has answered this one, it has seen the repeat */
		rig_send_record(fds[second], call, rig_call(call, 5, RIG_PROGRAM, RIG_VOID, NULL, 0));
		rig_expect_success(fds[second], 5, results, sizeof(results));
		assert_int_equal(rig_suspended(&rig), 1);
		rig_release(&rig, 1);
		rig_expect_success(fds[first], 100 + round, results, sizeof(results));
		assert_int_equal(rig_get(results), count + 1);
		rig_expect_success(fds[second], 100 + round, results, sizeof(results));
		assert_int_equal(rig_get(results), count + 1);
		/* and later from each: done */
		for (int i = 0; i < N_LANES; i++) {
			rig_send_record(fds[i], call,
					rig_call(call, 100 + round, RIG_PROGRAM, RIG_COUNT_SUSPEND, NULL, 0));
			rig_expect_success(fds[i], 100 + round, results, sizeof(results));
			assert_int_equal(rig_get(results), count + 1);
		}
		rig_sendto(udp, HOME, rig.udp, call,
			   rig_call(call, 100 + round, RIG_PROGRAM, RIG_COUNT_SUSPEND, NULL, 0));
		rig_check_success(results, rig_recvfrom(udp, results, sizeof(results), NULL), 100 + round);
		assert_int_equal(rig_get(results + 24), count + 1);
	}
	for (int i = 0; i < N_LANES; i++)
		close(fds[i]);
	close(udp);
	rig_stop(&rig);
}

/* Many clients at once, each mixing both, half of them reconnecting. */
struct client {
	pthread_t thread;
	uint32_t seed;
	bool failed;
};

static void *run_client(void *arg)
{
	enum {
		ROUNDS = 12,
		DEPTH = 40
	};
	struct client *client = arg;
	uint8_t *batch = malloc(DEPTH * 128), *p, reply[256];
	uint32_t programs[DEPTH];
	int fd = -1;

	for (int round = 0; round < ROUNDS; round++) {
		if (fd < 0)
			fd = rig_connect(HOME, rig.tcp, NULL);
		p = batch;
		for (uint32_t i = 0; i < DEPTH; i++) {
			client->seed = client->seed * 1103515245 + 12345;
			programs[i] = (client->seed >> 16) % 16 == 0 ? RIG_HOME : RIG_PROGRAM;
			p = append_echo(p, i, programs[i], RIG_ECHO);
		}
		rig_send_all(fd, batch, (size_t)(p - batch));
		for (uint32_t i = 0; i < DEPTH; i++) {
			char text[32];
			ssize_t n = rig_recv_record(fd, reply, sizeof(reply));

			snprintf(text, sizeof(text), "call %u of %x", i, programs[i]);
			if (n < 28 || rig_get(reply) != i || memcmp(reply + 28, text, strlen(text)) != 0)
				client->failed = true;
		}
		if (client->seed & 0x10000) {
			close(fd);
			fd = -1;
		}
	}
	if (fd >= 0)
		close(fd);
	free(batch);
	return NULL;
}

static void test_crowd(void **state)
{
	enum {
		N_CLIENTS = 8
	};
	struct client clients[N_CLIENTS];

	start(&rig_limits);
	for (uint32_t i = 0; i < N_CLIENTS; i++) {
		clients[i] = (struct client){ .seed = i * 7919 + 1 };
		pthread_create(&clients[i].thread, NULL, run_client, &clients[i]);
	}
	for (uint32_t i = 0; i < N_CLIENTS; i++) {
		pthread_join(clients[i].thread, NULL);
		assert_false(clients[i].failed);
	}
	assert_int_equal(atomic_load(&rig.n_away), 0);
	assert_int_equal(rig_counts(&rig).calls, 8 * 12 * 40);
	rig_wait_connections(&rig, 0);
	rig_stop(&rig);
}

/* Full of idle connections: each new one takes the place of the least recently used, whatever its lane. */
static void test_full_of_idle_ones(void **state)
{
	struct hf_rpc_limits limits = rig_limits;
	uint8_t call[64], results[64];
	int fds[2 * N_LANES];

	limits.max_connections = N_LANES;
	start(&limits);
	for (int i = 0; i < 2 * N_LANES; i++) {
		if (i >= N_LANES)
			rig_wait_idle(&rig, HF_NS_PER_S);
		fds[i] = rig_connect(HOME, rig.tcp, NULL);
		rig_send_record(fds[i], call, rig_call(call, 1, RIG_PROGRAM, RIG_VOID, NULL, 0));
		rig_expect_success(fds[i], 1, results, sizeof(results));
	}
	assert_int_equal(rig_counts(&rig).refused, 0);
	for (int i = 0; i < 2 * N_LANES; i++)
		close(fds[i]);
	rig_stop(&rig);
}

/* Full of connections of one address, on all lanes: one of another address replaces one of them at once. */
static void test_newcomer_on_any_lane(void **state)
{
	struct hf_rpc_limits limits = rig_limits;
	uint8_t call[64], results[64];
	int fds[8 * N_LANES], late[2 * N_LANES];
	char from[16];

	limits.max_connections = 8 * N_LANES;
	start(&limits);
	for (int i = 0; i < 8 * N_LANES; i++) {
		fds[i] = rig_connect(HOME, rig.tcp, "127.0.0.2");
		rig_send_all(fds[i], "", 1);
	}
	rig_wait_connections(&rig, 8 * N_LANES);
	for (int i = 0; i < 2 * N_LANES; i++) {
		snprintf(from, sizeof(from), "127.0.0.%d", 3 + i);
		late[i] = rig_connect(HOME, rig.tcp, from);
		rig_send_record(late[i], call, rig_call(call, 1, RIG_PROGRAM, RIG_VOID, NULL, 0));
		rig_expect_success(late[i], 1, results, sizeof(results));
	}
	for (int i = 0; i < 2 * N_LANES; i++) {
		rig_send_record(late[i], call, rig_call(call, 2, RIG_HOME, RIG_VOID, NULL, 0));
		rig_expect_success(late[i], 2, results, sizeof(results));
		close(late[i]);
	}
	for (int i = 0; i < 8 * N_LANES; i++)
		close(fds[i]);
	rig_wait_connections(&rig, 0);
	rig_stop(&rig);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dealt),
		cmocka_unit_test(test_mixed),
		cmocka_unit_test(test_suspended_before_a_move),
		cmocka_unit_test(test_gone_before_a_move),
		cmocka_unit_test(test_stop_while_moving),
		cmocka_unit_test(test_long_record_moves),
		cmocka_unit_test(test_replies_travel),
		cmocka_unit_test(test_replay_across_lanes),
		cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_full_of_idle_ones),
		cmocka_unit_test(test_newcomer_on_any_lane),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
