/* Does the peer of a connection still know it? */
#include "../test.h"

#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rig.h"
#include "rpc/probe.h"

#define HOME     "127.0.0.1"
#define LONG_NS  (60 * HF_NS_PER_S)
#define NO_PULSE 99

#define KEEPALIVE_S       50
#define KEEPALIVE_SHORT_S 2

static struct rig rig;
static uint8_t buffer[4096];
static struct hf_rpc_probe *probe;
static _Atomic int pulse;
static uint64_t numbers[2]; /* of the connections of the calls that are suspended */

static int setup_with(int keepalive_s)
{
	struct hf_rpc_limits limits = rig_limits;

	limits.keepalive_s = keepalive_s;
	pulse = NO_PULSE;
	probe = NULL;
	rig_start(&rig, &limits, 1, HOME);
	return 0;
}

static int setup(void **state)
{
	return setup_with(0);
}

static int setup_keepalive(void **state)
{
	return setup_with(KEEPALIVE_S);
}

static int setup_short_keepalive(void **state)
{
	return setup_with(KEEPALIVE_SHORT_S);
}

static int teardown(void **state)
{
	rig_stop(&rig);
	return 0;
}

static void call(int fd, uint32_t xid)
{
	rig_send_record(fd, buffer, rig_call_opaque(buffer, xid, RIG_HOME, RIG_SUSPEND, "abcd", 4));
}

static void on_pulse(void *user, enum hf_rpc_pulse felt)
{
	assert_ptr_equal(user, &rig);
	probe = NULL;
	pulse = (int)felt;
}

static bool has_pulse(void *arg)
{
	return pulse != NO_PULSE;
}

static void note_numbers(struct rig *r, void *arg)
{
	for (size_t i = 0; i < r->n_suspended && i < 2; i++) {
		numbers[i] = hf_rpc_call_link(r->suspended[i]);
		assert_int_equal(hf_rpc_call_link(r->suspended[i]), numbers[i]); /* it stays */
	}
}

/* The connection of the first call is asked about by the last one. */
static void start(struct rig *r, void *arg)
{
	const uint64_t *timeout = arg;

	probe = hf_rpc_probe_start(r->suspended[r->n_suspended - 1], numbers[0], *timeout, on_pulse, &rig);
}

static void start_for(uint64_t timeout_ns)
{
	rig_run_on(&rig, 0, start, &timeout_ns);
}

static void expect(enum hf_rpc_pulse expected)
{
	rig_wait(has_pulse, NULL, "a pulse");
	assert_int_equal(pulse, expected);
}

/* Two connections with a call each; that of the first is answered. */
static void connect_two(int fds[2])
{
	uint8_t results[64];

	for (uint32_t i = 0; i < 2; i++) {
		fds[i] = rig_connect(HOME, rig.tcp, NULL);
		call(fds[i], i + 1);
		rig_wait_suspended(&rig, i + 1);
	}
	rig_run_on(&rig, 0, note_numbers, NULL);
	assert_int_not_equal(numbers[0], 0);
	assert_int_not_equal(numbers[0], numbers[1]);
	rig_release(&rig, 1);
	rig_expect_success(fds[0], 1, results, sizeof(results));
}

static void end(int fds[2])
{
	rig_release(&rig, 1);
	close(fds[0]);
	close(fds[1]);
}

static void test_a_peer_that_lives_acknowledges(void **state)
{
	int fds[2];

	connect_two(fds);
	start_for(LONG_NS);
	assert_non_null(probe);
	expect(HF_RPC_PULSE_ALIVE);
	end(fds);
}

static void test_a_connection_that_is_closed_meanwhile_says_nothing(void **state)
{
	int fds[2];

	connect_two(fds);
	start_for(LONG_NS);
	close(fds[0]);
	expect(HF_RPC_PULSE_NONE);
	fds[0] = dup(fds[1]);
	end(fds);
}

/* A host that lives gives up its connection. It spoke less than a second ago, so it was not asked yet. */
static void test_a_reset_before_the_question_says_nothing(void **state)
{
	const struct linger at_once = { .l_onoff = 1 };
	int fds[2];

	connect_two(fds);
	start_for(LONG_NS);
	setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	close(fds[0]);
	expect(HF_RPC_PULSE_NONE);
	fds[0] = dup(fds[1]);
	end(fds);
}

/* The peer's kernel forgets the connection without a word, as a crash does. */
static void test_a_peer_that_does_not_know_it_resets(void **state)
{
	const int on = 1;
	int fds[2];

	connect_two(fds);
	if (setsockopt(fds[0], IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)) < 0) {
		end(fds);
		skip(); /* only root may do that */
	}
	close(fds[0]);
	start_for(LONG_NS);
	expect(HF_RPC_PULSE_DEAD);
	fds[0] = dup(fds[1]);
	end(fds);
}

static void test_no_answer_in_time(void **state)
{
	int fds[2];

	connect_two(fds);
	start_for(0);
	expect(HF_RPC_PULSE_SILENT);
	end(fds);
}

/* As if the wire were cut: the peer's kernel gets nothing, so it cannot answer. */
static void make_deaf(int fd)
{
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	const struct sock_fprog program = { .len = 1, .filter = &drop };

	assert_return_code(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), errno);
}

/* The server's end of a connection */
static int find_other_end(int fd)
{
	struct sockaddr_in here, peer;

	assert_return_code(getsockname(fd, (struct sockaddr *)&here, &(socklen_t){ sizeof(here) }), errno);
	for (int other = 0; other < 1024; other++)
		if (getpeername(other, (struct sockaddr *)&peer, &(socklen_t){ sizeof(peer) }) == 0 &&
		    peer.sin_family == AF_INET && peer.sin_port == here.sin_port)
			return other;
	fail_msg("the server has no such connection");
	return -1;
}

static int option(int fd, int name)
{
	int value = -1;

	assert_return_code(getsockopt(fd, IPPROTO_TCP, name, &value, &(socklen_t){ sizeof(value) }), errno);
	return value;
}

/* Three questions without an answer end a connection with keepalive_s. Those of a probe do not: a host must
 * not lose its connection because of a forged notice, nor its locks. */
static void test_silence_does_not_end_the_connection(void **state)
{
	int fds[2];

	connect_two(fds);
	make_deaf(fds[0]);
	start_for(6 * HF_NS_PER_S);
	expect(HF_RPC_PULSE_SILENT);
	rig_wait_connections(&rig, 2);
	end(fds);
}

static int n_asked(int fd)
{
	struct tcp_info info;

	assert_return_code(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &(socklen_t){ sizeof(info) }), errno);
	return info.tcpi_probes;
}

static bool is_asked_again(void *arg)
{
	const int *other_and_n = arg;

	return n_asked(other_and_n[0]) > other_and_n[1];
}

/* Nor do they after the probe: the kernel's own questions follow. */
static void test_the_questions_of_a_probe_do_not_count_after_it(void **state)
{
	int fds[2], other_and_n[2];

	connect_two(fds);
	other_and_n[0] = find_other_end(fds[0]);
	make_deaf(fds[0]);
	start_for(5 * HF_NS_PER_S + HF_NS_PER_S / 2);
	expect(HF_RPC_PULSE_SILENT);
	other_and_n[1] = n_asked(other_and_n[0]);
	assert_true(other_and_n[1] > 3);
	rig_wait(is_asked_again, other_and_n, "a further question");
	rig_wait_connections(&rig, 2);
	end(fds);
}

static void test_a_time_out_is_no_answer(void **state)
{
	const int ms = 1500;
	int fds[2];

	connect_two(fds);
	make_deaf(fds[0]);
	assert_return_code(setsockopt(find_other_end(fds[0]), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms)),
			   errno);
	start_for(LONG_NS);
	expect(HF_RPC_PULSE_NONE);
	rig_wait_connections(&rig, 1);
	end(fds);
}

static void test_keepalive_is_as_before_a_probe(void **state)
{
	int fds[2], other;

	connect_two(fds);
	other = find_other_end(fds[0]);
	start_for(LONG_NS);
	assert_int_equal(option(other, TCP_KEEPIDLE), 1);
	expect(HF_RPC_PULSE_ALIVE);
	assert_int_equal(option(other, TCP_KEEPIDLE), KEEPALIVE_S);
	assert_int_equal(option(other, TCP_KEEPINTVL), KEEPALIVE_S);
	assert_int_equal(option(other, TCP_KEEPCNT), 3);
	end(fds);
}

struct change {
	int seconds;
	int waiting; /* a connection that waits to be accepted meanwhile */
};

static void change_behind_one(struct rig *r, void *arg)
{
	struct change *change = arg;

	change->waiting = rig_connect(HOME, r->tcp, NULL);
	hf_rpc_server_set_keepalive(r->server, change->seconds);
}

/* The kernel gave it the values that its listener had. */
static void test_another_keepalive_while_one_waits(void **state)
{
	struct change change = { .seconds = KEEPALIVE_SHORT_S };

	rig_run_on(&rig, 0, change_behind_one, &change);
	rig_wait_connections(&rig, 1);
	assert_int_equal(option(find_other_end(change.waiting), TCP_KEEPIDLE), change.seconds);
	close(change.waiting);
	rig_wait_connections(&rig, 0);
}

static void change_keepalive(struct rig *r, void *arg)
{
	hf_rpc_server_set_keepalive(r->server, *(const int *)arg);
}

static bool has_keepalive(void *arg)
{
	const int *other_and_seconds = arg;

	return option(other_and_seconds[0], TCP_KEEPIDLE) == other_and_seconds[1];
}

/* Of what is open, also in the middle of a probe, which goes on, and of what comes. */
static void test_another_keepalive(void **state)
{
	int seconds = KEEPALIVE_SHORT_S, fds[2], later, other_and_seconds[2];

	connect_two(fds);
	make_deaf(fds[0]);
	start_for(3 * HF_NS_PER_S);
	rig_run_on(&rig, 0, change_keepalive, &seconds);
	later = rig_connect(HOME, rig.tcp, NULL);
	rig_wait_connections(&rig, 3);
	assert_int_equal(option(find_other_end(later), TCP_KEEPIDLE), seconds);
	other_and_seconds[0] = find_other_end(fds[1]);
	other_and_seconds[1] = seconds;
	rig_wait(has_keepalive, other_and_seconds, "the sweep");
	assert_int_equal(option(find_other_end(fds[0]), TCP_KEEPIDLE), 1);
	expect(HF_RPC_PULSE_SILENT);
	assert_int_equal(option(find_other_end(fds[0]), TCP_KEEPIDLE), seconds);
	close(later);
	end(fds);
}

static void test_a_connection_that_is_gone_cannot_be_asked(void **state)
{
	int fds[2];

	connect_two(fds);
	close(fds[0]);
	rig_wait_connections(&rig, 1);
	start_for(LONG_NS);
	assert_null(probe);
	numbers[0] = 0; /* that of a datagram */
	start_for(LONG_NS);
	assert_null(probe);
	fds[0] = dup(fds[1]);
	end(fds);
}

static void cancel(struct rig *r, void *arg)
{
	probe = hf_rpc_probe_cancel(probe);
	assert_null(hf_rpc_probe_cancel(NULL));
}

static void test_a_cancelled_probe_says_nothing(void **state)
{
	int fds[2];

	connect_two(fds);
	start_for(LONG_NS);
	assert_non_null(probe);
	rig_run_on(&rig, 0, cancel, NULL);
	start_for(LONG_NS); /* the next one is heard, and it alone */
	assert_non_null(probe);
	expect(HF_RPC_PULSE_ALIVE);
	end(fds);
}

static void test_the_end_of_the_server_with_a_probe(void **state)
{
	int fds[2];

	connect_two(fds);
	start_for(LONG_NS);
	rig_release(&rig, 1);
	close(fds[0]);
	close(fds[1]);
	rig_wait_connections(&rig, 0);
	expect(HF_RPC_PULSE_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_peer_that_lives_acknowledges, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_connection_that_is_closed_meanwhile_says_nothing,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_reset_before_the_question_says_nothing, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_peer_that_does_not_know_it_resets, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_answer_in_time, setup, teardown),
		cmocka_unit_test_setup_teardown(test_silence_does_not_end_the_connection, setup_keepalive,
						teardown),
		cmocka_unit_test_setup_teardown(test_the_questions_of_a_probe_do_not_count_after_it,
						setup_short_keepalive, teardown),
		cmocka_unit_test_setup_teardown(test_a_time_out_is_no_answer, setup_keepalive, teardown),
		cmocka_unit_test_setup_teardown(test_keepalive_is_as_before_a_probe, setup_keepalive,
						teardown),
		cmocka_unit_test_setup_teardown(test_another_keepalive, setup_keepalive, teardown),
		cmocka_unit_test_setup_teardown(test_another_keepalive_while_one_waits, setup_keepalive,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_connection_that_is_gone_cannot_be_asked, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_cancelled_probe_says_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_end_of_the_server_with_a_probe, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
