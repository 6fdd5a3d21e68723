/* How much does the server do in one turn of its loop, if many addresses ask for much? And what does waiting
 * cost? */
#include "../test.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "loop/backend.h"
#include "rig.h"

enum {
	N_ADDRESSES = 60,
	N_CALLS = 200, /* of each */
	COST = 16,     /* units of a call */
	/* The turn is late after 8,192 units. After that each connection has 64, and those that have spent
	 * everything have 1,024 together. A connection may exceed its part by a call. */
	MOST = (8192 + 384 + N_ADDRESSES * (64 + COST) + 1024 + 64) / COST,
};

enum {
	N_CONNECTIONS = 100, /* of one address */
	N_EMPTY = 8192,      /* fragments before the call of each: 64 units */
	/* One address has 1,024 units, and again as a tired one. It may exceed both by a connection. */
	MOST_BEHIND_EMPTY = 2 * (1024 / 64 + 1),
};

static struct rig rig;
static int fds[HF_MAX((int)N_ADDRESSES, (int)N_CONNECTIONS)];

/* On the loop's thread: the loop sees all calls at once. */
static void send_all(struct rig *r, void *arg)
{
	uint32_t units = htonl(COST - 1);
	uint8_t call[128];

	for (int i = 0; i < N_ADDRESSES; i++)
		for (uint32_t xid = 1; xid <= N_CALLS; xid++)
			rig_send_record(fds[i], call,
					rig_call(call, xid, RIG_PROGRAM, RIG_WORK, &units, sizeof(units)));
}

static void test_work_of_handlers_counts(void **state)
{
	uint8_t results[64];

	rig_start(&rig, &rig_limits, 1, "127.0.0.1");
	for (int i = 0; i < N_ADDRESSES; i++) {
		char from[32];

		snprintf(from, sizeof(from), "127.0.1.%d", i + 1);
		fds[i] = rig_connect("127.0.0.1", rig.tcp, from);
	}
	rig_wait_connections(&rig, N_ADDRESSES);
	rig_run_on(&rig, 0, send_all, NULL);
	for (int i = 0; i < N_ADDRESSES; i++)
		for (uint32_t xid = 1; xid <= N_CALLS; xid++)
			rig_expect_success(fds[i], xid, results, sizeof(results));
	print_message("%u calls in one turn, at most %d\n", atomic_load(&rig.most_in_turn), MOST);
	assert_in_range(atomic_load(&rig.most_in_turn), 1, MOST);
	for (int i = 0; i < N_ADDRESSES; i++)
		close(fds[i]);
	rig_stop(&rig);
}

static void send_empty_fragments(struct rig *r, void *arg)
{
	static const uint8_t marks[4 * N_EMPTY];
	uint32_t units = 0;
	uint8_t call[128];
	size_t len = rig_call(call, 1, RIG_PROGRAM, RIG_WORK, &units, sizeof(units));

	for (int i = 0; i < N_CONNECTIONS; i++) {
		rig_send_all(fds[i], marks, sizeof(marks));
		rig_send_record(fds[i], call, len);
	}
}

/* Fragments are work, although they are no calls. */
static void test_empty_fragments_count(void **state)
{
	uint8_t results[64];

	rig_start(&rig, &rig_limits, 1, "127.0.0.1");
	for (int i = 0; i < N_CONNECTIONS; i++)
		fds[i] = rig_connect("127.0.0.1", rig.tcp, NULL);
	rig_wait_connections(&rig, N_CONNECTIONS);
	rig_run_on(&rig, 0, send_empty_fragments, NULL);
	for (int i = 0; i < N_CONNECTIONS; i++)
		rig_expect_success(fds[i], 1, results, sizeof(results));
	print_message("%u calls in one turn, at most %d\n", atomic_load(&rig.most_in_turn),
		      MOST_BEHIND_EMPTY);
	assert_in_range(atomic_load(&rig.most_in_turn), 1, MOST_BEHIND_EMPTY);
	for (int i = 0; i < N_CONNECTIONS; i++)
		close(fds[i]);
	rig_stop(&rig);
}

static struct hf_loop_ops counting_ops;
static const struct hf_loop_ops *real_ops;
static atomic_uint n_changes; /* of what the loop watches sockets for */

static int count_change(struct hf_socket *socket, unsigned int events)
{
	atomic_fetch_add(&n_changes, 1);
	return real_ops->watch(socket, events);
}

static void send_a_call_each(struct rig *r, void *arg)
{
	const uint32_t *cost = arg;
	uint32_t units = htonl(*cost - 1);
	uint8_t call[128];
	size_t len = rig_call(call, 1, RIG_PROGRAM, RIG_WORK, &units, sizeof(units));

	real_ops = r->loops[0]->ops;
	counting_ops = *real_ops;
	counting_ops.watch = count_change;
	r->loops[0]->ops = &counting_ops;
	for (int i = 0; i < N_CONNECTIONS; i++)
		rig_send_record(fds[i], call, len);
}

static void stop_counting(struct rig *r, void *arg)
{
	r->loops[0]->ops = real_ops;
}

static unsigned int count_changes(uint32_t cost)
{
	uint8_t results[64];

	rig_start(&rig, &rig_limits, 1, "127.0.0.1");
	for (int i = 0; i < N_CONNECTIONS; i++)
		fds[i] = rig_connect("127.0.0.1", rig.tcp, NULL);
	rig_wait_connections(&rig, N_CONNECTIONS);
	atomic_store(&n_changes, 0);
	rig_run_on(&rig, 0, send_a_call_each, &cost);
	for (int i = 0; i < N_CONNECTIONS; i++)
		rig_expect_success(fds[i], 1, results, sizeof(results));
	rig_run_on(&rig, 0, stop_counting, NULL);
	for (int i = 0; i < N_CONNECTIONS; i++)
		close(fds[i]);
	rig_stop(&rig);
	print_message("%u changes with calls of %u units\n", atomic_load(&n_changes), cost);
	return atomic_load(&n_changes);
}

/* The address is tired after 16 connections in a turn, and again after 16. So the last one waits for some
 * turns, and its input wakes the loop in vain in each of them. That costs less than to stop watching. */
static void test_a_short_wait_changes_no_watch(void **state)
{
	assert_int_equal(count_changes(64), 0);
}

/* Two connections are served in a turn. */
static void test_a_long_wait_does(void **state)
{
	assert_true(count_changes(1024) >= N_CONNECTIONS / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_work_of_handlers_counts),
		cmocka_unit_test(test_empty_fragments_count),
		cmocka_unit_test(test_a_short_wait_changes_no_watch),
		cmocka_unit_test(test_a_long_wait_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
