/* How much does the server do in one turn of its loop, if many addresses ask for much? */
#include "../test.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_work_of_handlers_counts),
		cmocka_unit_test(test_empty_fragments_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
