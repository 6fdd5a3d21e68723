/* The end of a server: calls under way are answered, and no call begins. And its lease is over. */
#include "../test.h"

#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"

#define HOME "127.0.0.1"

static struct rig rig;
static uint8_t buffer[4096];
static _Atomic bool is_drained;
static struct hf_lease lease;

static int setup(void **state)
{
	atomic_store(&is_drained, false);
	rig_start(&rig, &rig_limits, 1, HOME);
	return 0;
}

static int teardown(void **state)
{
	rig_stop(&rig);
	return 0;
}

static void call(int fd, uint32_t xid, uint32_t proc)
{
	rig_send_record(fd, buffer, rig_call_opaque(buffer, xid, RIG_PROGRAM, proc, "abcd", 4));
}

static void on_drained(void *user)
{
	atomic_store(&is_drained, true);
}

static void drain(struct rig *r, void *arg)
{
	hf_rpc_server_drain(r->server, *(uint64_t *)arg, on_drained, NULL);
}

static bool has_drained(void *arg)
{
	return atomic_load(&is_drained);
}

static void answer(struct rig *r, void *arg)
{
	struct hf_rpc_call *suspended = r->suspended[0];
	struct hf_xdr_out *out = hf_rpc_reply_begin(suspended, 8);

	hf_xdr_put_opaque(out, hf_bytes_of("late", 4));
	hf_rpc_reply_end(suspended);
	r->n_suspended = 0;
}

static void nothing(struct rig *r, void *arg)
{
}

static void test_calls_under_way_are_answered(void **state)
{
	int fd = rig_connect(HOME, rig.tcp, NULL);
	uint64_t timeout = 60 * HF_NS_PER_S;
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	uint8_t results[64];

	call(fd, 1, RIG_SUSPEND);
	rig_wait_suspended(&rig, 1);
	rig_run_on(&rig, 0, drain, &timeout);
	call(fd, 2, RIG_ECHO);                   /* comes too late */
	close(rig_connect(HOME, rig.tcp, NULL)); /* is not refused */
	for (int i = 0; i < 3; i++)
		rig_run_on(&rig, 0, nothing, NULL);
	assert_false(has_drained(NULL));
	rig_run_on(&rig, 0, answer, NULL);
	rig_wait(has_drained, NULL, "the server is drained");
	assert_int_equal(rig_expect_success(fd, 1, results, sizeof(results)), 8);
	assert_memory_equal(results + 4, "late", 4);
	assert_int_equal(poll(&ready, 1, 50), 0); /* the other call was not begun */
	close(fd);
}

static void test_a_drain_has_an_end(void **state)
{
	int fd = rig_connect(HOME, rig.tcp, NULL);
	uint64_t timeout = 20 * HF_NS_PER_MS;

	call(fd, 1, RIG_SUSPEND);
	rig_wait_suspended(&rig, 1);
	rig_run_on(&rig, 0, drain, &timeout);
	rig_wait(has_drained, NULL, "the server gives up");
	close(fd);
}

static void set_lease(struct rig *r, void *arg)
{
	hf_loop_set_lease(r->loops[0], &lease);
}

/* No call is begun and no reply leaves; the connection breaks, so that the client asks another server. */
static void test_nothing_happens_when_the_lease_is_over(void **state)
{
	int fd = rig_connect(HOME, rig.tcp, NULL), late = rig_connect(HOME, rig.tcp, NULL);
	uint8_t results[64], byte;

	atomic_store(&lease.ends_at, UINT64_MAX);
	rig_run_on(&rig, 0, set_lease, NULL);
	call(fd, 1, RIG_ECHO);
	assert_int_equal(rig_expect_success(fd, 1, results, sizeof(results)), 8);
	call(fd, 2, RIG_SUSPEND);
	rig_wait_suspended(&rig, 1);
	atomic_store(&lease.ends_at, 1);
	rig_run_on(&rig, 0, answer, NULL);
	assert_true(read(fd, &byte, 1) <= 0);
	call(late, 3, RIG_SUSPEND);
	assert_true(read(late, &byte, 1) <= 0);
	assert_int_equal(rig.n_suspended, 0);
	close(fd);
	close(late);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_calls_under_way_are_answered, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_drain_has_an_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nothing_happens_when_the_lease_is_over, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
