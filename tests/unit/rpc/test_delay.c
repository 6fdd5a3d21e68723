/* Delayed replies: nothing leaves before the release, and what is delayed may be changed until then. */
#include "../test.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"
#include "rpc/delay.h"

#define HOME "127.0.0.1"

static struct rig rig;
static uint8_t buffer[4096];
static struct hf_rpc_delay delay, other;
static uint8_t *place; /* of the results of the reply that is delayed */
static int n_gone;

static void on_gone(struct hf_rpc_delay *gone_from, const struct hf_rpc_connection *connection)
{
	assert_ptr_equal(gone_from, &delay);
	assert_non_null(connection);
	n_gone++;
}

static void init_holds(struct rig *r, void *arg)
{
	hf_rpc_delay_init(&delay, on_gone);
	hf_rpc_delay_init(&other, on_gone);
}

static void deinit_holds(struct rig *r, void *arg)
{
	hf_rpc_delay_deinit(&delay);
	hf_rpc_delay_deinit(&other);
}

static int setup(void **state)
{
	n_gone = 0;
	rig_start(&rig, &rig_limits, 1, HOME);
	rig_run_on(&rig, 0, init_holds, NULL);
	return 0;
}

static int teardown(void **state)
{
	rig_run_on(&rig, 0, deinit_holds, NULL);
	rig_stop(&rig);
	return 0;
}

static void call(int fd, uint32_t xid, uint32_t proc)
{
	rig_send_record(fd, buffer, rig_call_opaque(buffer, xid, RIG_PROGRAM, proc, "abcd", 4));
}

static void expect(int fd, uint32_t xid, const char *text)
{
	uint8_t results[64];

	assert_int_equal(rig_expect_success(fd, xid, results, sizeof(results)), 8);
	assert_memory_equal(results + 4, text, 4);
}

/* On the lane: the oldest suspended call is answered, and the answer delayed. */
static void answer_held(struct rig *r, void *arg)
{
	struct hf_rpc_call *suspended = r->suspended[0];
	struct hf_xdr_out *out;

	assert_non_null(hf_rpc_delay_call(&delay, suspended));
	assert_null(hf_rpc_delay_call(&other, suspended)); /* one at a time */
	assert_non_null(hf_rpc_delay_call(&delay, suspended));
	out = hf_rpc_reply_begin(suspended, 8);
	hf_xdr_put_opaque(out, hf_bytes_of("delayed", 4));
	place = out->p - 4;
	hf_rpc_reply_end(suspended);
	r->n_suspended = 0;
}

static void delay_one(int fd, uint32_t xid)
{
	call(fd, xid, RIG_SUSPEND);
	rig_wait_suspended(&rig, 1);
	rig_run_on(&rig, 0, answer_held, NULL);
}

static void release(struct rig *r, void *arg)
{
	hf_rpc_delay_release(&delay);
}

static bool has_served(void *arg)
{
	return rig_counts(&rig).calls == *(uint64_t *)arg;
}

static void nothing(struct rig *r, void *arg)
{
}

/* The loop has had every occasion to send: it has served what came later, and more turns have passed. */
static void check_silence(int fd, uint64_t n_calls)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };

	rig_wait(has_served, &n_calls, "the call behind is served");
	for (int i = 0; i < 3; i++)
		rig_run_on(&rig, 0, nothing, NULL);
	assert_int_equal(poll(&ready, 1, 0), 0);
}

static void test_nothing_leaves_before_the_release(void **state)
{
	int delayed = rig_connect(HOME, rig.tcp, NULL), free_one = rig_connect(HOME, rig.tcp, NULL);

	delay_one(delayed, 1);
	call(delayed, 2, RIG_ECHO); /* stays behind */
	call(free_one, 3, RIG_ECHO);
	expect(free_one, 3, "abcd");
	check_silence(delayed, 3);
	rig_run_on(&rig, 0, release, NULL);
	expect(delayed, 1, "delayed");
	expect(delayed, 2, "abcd");
	call(delayed, 4, RIG_ECHO);
	expect(delayed, 4, "abcd");
	close(delayed);
	close(free_one);
}

static void change(struct rig *r, void *arg)
{
	memcpy(place, "else", 4);
	hf_rpc_delay_release(&delay);
}

static void test_what_is_held_may_be_changed(void **state)
{
	int fd = rig_connect(HOME, rig.tcp, NULL);

	delay_one(fd, 1);
	check_silence(fd, 1);
	rig_run_on(&rig, 0, change, NULL);
	expect(fd, 1, "else");
	close(fd);
}

static void test_a_broken_connection_is_told_of(void **state)
{
	int fd = rig_connect(HOME, rig.tcp, NULL), second = rig_connect(HOME, rig.tcp, NULL);

	delay_one(fd, 1);
	delay_one(second, 2);
	close(fd);
	rig_wait_connections(&rig, 1);
	assert_int_equal(n_gone, 1);
	rig_run_on(&rig, 0, release, NULL);
	expect(second, 2, "delayed");
	close(second);
	rig_wait_connections(&rig, 0);
	assert_int_equal(n_gone, 1); /* it was not delayed any more */
}

/* As many replies as may be unread stop the reading; the release goes on with it. */
static void test_reading_pauses_behind_what_is_held(void **state)
{
	const uint32_t n = 4 * (uint32_t)rig_limits.max_unread / 4096;
	int fd = rig_connect(HOME, rig.tcp, NULL);
	static uint8_t results[8192];

	delay_one(fd, 1);
	for (uint32_t i = 0; i < n; i++)
		rig_send_record(fd, buffer, rig_call_word(buffer, 10 + i, RIG_PROGRAM, RIG_BIG, 4096));
	for (int i = 0; i < 3; i++)
		rig_run_on(&rig, 0, nothing, NULL);
	assert_true(rig_counts(&rig).calls < n);
	rig_run_on(&rig, 0, release, NULL);
	expect(fd, 1, "delayed");
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(rig_expect_success(fd, 10 + i, results, sizeof(results)), 4 + 4096);
	close(fd);
}

static void test_the_end_closes_what_is_held(void **state)
{
	int fd = rig_connect(HOME, rig.tcp, NULL);

	delay_one(fd, 1);
	rig_run_on(&rig, 0, deinit_holds, NULL);
	assert_true(rig_is_closed(fd)); /* and nothing came */
	close(fd);
}

static void try_datagram(struct rig *r, void *arg)
{
	assert_null(hf_rpc_delay_call(&delay, r->suspended[0]));
}

static void test_a_datagram_is_not_held(void **state)
{
	int fd = rig_udp(HOME);

	rig_sendto(fd, HOME, rig.udp, buffer,
		   rig_call_opaque(buffer, 1, RIG_PROGRAM, RIG_SUSPEND, "abcd", 4));
	rig_wait_suspended(&rig, 1);
	rig_run_on(&rig, 0, try_datagram, NULL);
	rig_release(&rig, 1);
	assert_true(rig_recvfrom(fd, buffer, sizeof(buffer), NULL) > 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_nothing_leaves_before_the_release), T(test_what_is_held_may_be_changed),
		T(test_a_broken_connection_is_told_of),    T(test_reading_pauses_behind_what_is_held),
		T(test_the_end_closes_what_is_held),       T(test_a_datagram_is_not_held),
	};

	return cmocka_run_group_tests_name("delay", tests, NULL, NULL);
}
