/* The RPC client over TCP: kept, fresh, broken, slow and full connections. */
#include "../test.h"
#include "peers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS HF_NS_PER_MS

static void run_until(struct world *world, const unsigned int *counter, unsigned int wanted)
{
	for (int i = 0; *counter < wanted; i++) {
		assert_true(i < 4000);
		world_run_for(world, 5 * MS);
	}
	assert_int_equal(*counter, wanted);
}

static void test_suspended(void **state)
{
	struct hf_rpc_client_limits limits = hf_rpc_client_default_limits;
	struct outcome a, b, c;
	struct scene s;

	limits.idle_ns = 100 * MS;
	scene_open(&s, &limits, true, script_echo);
	a = scene_call(&s, 1);
	b = scene_call(&s, 2);
	assert_outcome(a, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_outcome(b, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(b.word, 2);
	assert_int_equal(s.peer.n_accepted, 1);
	assert_int_equal(world_counts(&s.world).connections, 1);
	run_until(&s.world, &s.peer.n_closed, 1); /* idle */
	assert_int_equal(world_counts(&s.world).connections, 0);
	c = scene_call(&s, 3);
	assert_outcome(c, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(s.peer.n_accepted, 2);
	scene_close(&s);
}

static void test_fresh(void **state)
{
	struct outcome a, b;
	struct scene s;

	scene_open(&s, NULL, true, script_echo);
	a = scene_call(&s, 1); /* a kept one is there to be not used */
	assert_outcome(a, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	s.request.fresh_connection = true;
	b = scene_call(&s, 2);
	assert_outcome(b, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(s.peer.n_accepted, 2);
	assert_int_equal(world_counts(&s.world).connections, 1);
	run_until(&s.world, &s.peer.n_closed, 1);
	scene_close(&s);
}

#define MANY 100

/* Answers when all are there, the last first. */
static void script_reverse(const struct heard *heard)
{
	struct heard *kept = heard->peer->user;

	kept[heard->n - 1] = *heard;
	if (heard->n < MANY)
		return;
	for (int i = MANY - 1; i >= 0; i--)
		reply_word(&kept[i], kept[i].header.xid);
}

static void test_multiplexed(void **state)
{
	static struct heard kept[MANY];
	static struct outcome o[MANY];
	struct scene s;

	memset(o, 0, sizeof(o));
	scene_open(&s, NULL, true, script_reverse);
	s.peer.user = kept;
	for (int i = 0; i < MANY; i++)
		call(&s.world, &o[i], &s.request, (uint32_t)i);
	o[0].is_last = true;
	world_run(&s.world);
	for (int i = 0; i < MANY; i++) {
		assert_outcome(o[i], HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
		assert_int_equal(o[i].word, kept[i].header.xid);
	}
	assert_int_equal(s.peer.n_accepted, 1);
	scene_close(&s);
}

/* Breaking */

static void script_hang_up_first(const struct heard *heard)
{
	uint32_t *xid = heard->peer->user;

	if (heard->n > 1) {
		assert_int_equal(heard->header.xid, *xid); /* known again by a duplicate-request cache */
		script_echo(heard);
		return;
	}
	*xid = heard->header.xid;
	line_close(heard->line);
}

static void test_broken_is_tried_again(void **state)
{
	for (int fresh = 0; fresh < 2; fresh++) {
		struct outcome o;
		struct scene s;
		uint32_t xid;

		scene_open(&s, NULL, true, script_hang_up_first);
		s.peer.user = &xid;
		s.request.fresh_connection = fresh;
		o = scene_call(&s, 7);
		assert_outcome(o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
		assert_int_equal(o.word, 7);
		assert_int_equal(s.peer.n_accepted, 2);
		assert_int_equal(world_counts(&s.world).reconnected, 1);
		scene_close(&s);
	}
}

static void script_hang_up(const struct heard *heard)
{
	line_close(heard->line);
}

static void test_broken_twice(void **state)
{
	struct outcome o[3] = { { 0 } };
	struct scene s;

	scene_open(&s, NULL, true, script_hang_up);
	for (int i = 0; i < 3; i++)
		call(&s.world, &o[i], &s.request, 1);
	o[2].is_last = true;
	world_run(&s.world);
	for (int i = 0; i < 3; i++) {
		assert_outcome(o[i], HF_RPC_OUTCOME_BROKEN, HF_RPC_STAGE_REPLY);
		assert_true(o[i].result.error < 0);
	}
	assert_int_equal(s.peer.n_accepted, 2);
	assert_int_equal(world_counts(&s.world).connections, 0);
	scene_close(&s);
}

/* In the middle of a reply: five bytes of it, then the end. */
static void script_half_a_reply(const struct heard *heard)
{
	uint32_t mark = htobe32(HF_RECORD_LAST | 28);
	struct iovec iov[2] = { { &mark, 4 }, { &mark, 1 } };

	if (heard->n > 1) {
		script_echo(heard);
		return;
	}
	assert_int_equal(hf_socket_write(heard->line->socket, iov, 2), 5);
	line_close(heard->line);
}

static void test_broken_in_a_reply(void **state)
{
	struct outcome o;
	struct scene s;

	scene_open(&s, NULL, true, script_half_a_reply);
	o = scene_call(&s, 7);
	assert_outcome(o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(s.peer.n_accepted, 2);
	scene_close(&s);
}

/* The peer closes a kept connection while it is idle: the next call does not notice. */
static void test_closed_while_idle(void **state)
{
	struct outcome a, b;
	struct scene s;

	scene_open(&s, NULL, true, script_echo);
	a = scene_call(&s, 1);
	assert_outcome(a, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	line_close(hf_list_entry(hf_list_first(&s.peer.lines), struct line, link));
	b = scene_call(&s, 2);
	assert_outcome(b, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(s.peer.n_accepted, 2);
	scene_close(&s);
}

/* A connection on which a call got no reply is not used for the next one. It is reset, so that the kernel
 * does not deliver the call after all, when the network is whole again. */
static void test_silent_connection_is_left(void **state)
{
	struct outcome a, b;
	struct scene s;

	scene_open(&s, NULL, true, script_silent);
	s.request.timeout_ns = 50 * MS;
	a = scene_call(&s, 1);
	assert_outcome(a, HF_RPC_OUTCOME_TIMEOUT, HF_RPC_STAGE_REPLY);
	s.request.timeout_ns = 10000 * MS;
	s.peer.script = script_echo;
	b = scene_call(&s, 2);
	assert_outcome(b, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(s.peer.n_accepted, 2);
	assert_int_equal(world_counts(&s.world).connections, 1);
	run_until(&s.world, &s.peer.n_reset, 1);
	scene_close(&s);
}

/* Odd replies */

/* Every byte a fragment of its own, written on its own. */
static void script_crumbs(const struct heard *heard)
{
	uint8_t reply[28];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, reply, sizeof(reply));
	hf_rpc_put_success(&out, heard->header.xid);
	hf_xdr_put_u32(&out, 99);
	for (int i = 0; i < 28; i++) {
		uint32_t mark = htobe32((i == 27 ? HF_RECORD_LAST : 0) | 1);
		struct iovec iov[2] = { { &mark, 4 }, { &reply[i], 1 } };

		assert_int_equal(hf_socket_write(heard->line->socket, iov, 2), 5);
	}
}

struct dripping {
	struct hf_timer timer;
	struct line *line;
	uint8_t bytes[32];
	size_t done;
};

static void on_drip(struct hf_timer *timer)
{
	struct dripping *drip = hf_container_of(timer, struct dripping, timer);
	struct iovec iov = { &drip->bytes[drip->done++], 1 };

	assert_int_equal(hf_socket_write(drip->line->socket, &iov, 1), 1);
	if (drip->done < sizeof(drip->bytes))
		assert_int_equal(hf_timer_start(timer, MS / 10), 0);
}

/* One byte a turn. */
static void script_drip(const struct heard *heard)
{
	struct dripping *drip = heard->peer->user;
	struct hf_xdr_out out;

	drip->line = heard->line;
	hf_xdr_out_init(&out, drip->bytes, sizeof(drip->bytes));
	hf_xdr_put_u32(&out, HF_RECORD_LAST | 28);
	hf_rpc_put_success(&out, heard->header.xid);
	hf_xdr_put_u32(&out, 99);
	hf_timer_init(&drip->timer, heard->peer->loop, on_drip);
	on_drip(&drip->timer);
}

static void test_reply_in_crumbs(void **state)
{
	struct dripping drip = { .done = 0 };
	struct outcome a, b;
	struct scene s;

	scene_open(&s, NULL, true, script_crumbs);
	s.peer.user = &drip;
	a = scene_call(&s, 7);
	s.peer.script = script_drip;
	b = scene_call(&s, 7);
	assert_outcome(a, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(a.word, 99);
	assert_outcome(b, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(b.word, 99);
	assert_int_equal(s.peer.n_accepted, 1);
	scene_close(&s);
}

/* @user: how many bytes in all. */
static void script_long(const struct heard *heard)
{
	static uint8_t reply[8192];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, reply, sizeof(reply));
	hf_rpc_put_success(&out, heard->header.xid);
	hf_xdr_put_u32(&out, 99);
	reply_bytes(heard, reply, *(size_t *)heard->peer->user);
}

static void test_reply_too_long(void **state)
{
	struct hf_rpc_client_limits limits = hf_rpc_client_default_limits;
	struct outcome a, b;
	struct scene s;
	size_t len = 4096;

	limits.max_reply = 4096;
	scene_open(&s, &limits, true, script_long);
	s.peer.user = &len;
	a = scene_call(&s, 7);
	assert_outcome(a, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	len = 4097;
	b = scene_call(&s, 7);
	assert_outcome(b, HF_RPC_OUTCOME_GARBAGE, HF_RPC_STAGE_REPLY);
	assert_int_equal(world_counts(&s.world).connections, 0);
	scene_close(&s);
}

static void script_wrong_xids_first(const struct heard *heard)
{
	struct heard other = *heard;

	other.header.xid++;
	reply_word(&other, 666);
	reply_bytes(heard, "abc", 3);
	reply_bytes(heard, "", 0);
	script_echo(heard);
	reply_word(heard, 667);
}

static void test_unasked_replies_ignored(void **state)
{
	struct outcome a, b;
	struct scene s;

	scene_open(&s, NULL, true, script_wrong_xids_first);
	a = scene_call(&s, 7);
	b = scene_call(&s, 8);
	assert_outcome(a, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_outcome(b, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(a.word, 7);
	assert_int_equal(b.word, 8);
	assert_in_range(world_counts(&s.world).ignored, 7, 8);
	assert_int_equal(s.peer.n_accepted, 1);
	scene_close(&s);
}

/* An answer on another connection is not taken. */
static void script_on_other_line(const struct heard *heard)
{
	struct heard other = *heard;

	hf_list_for_each(pos, &heard->peer->lines) {
		other.line = hf_list_entry(pos, struct line, link);
		if (other.line != heard->line)
			reply_word(&other, 666);
	}
	script_echo(heard);
}

static void test_reply_on_other_connection_ignored(void **state)
{
	struct outcome a, b;
	struct scene s;

	scene_open(&s, NULL, true, script_on_other_line);
	a = scene_call(&s, 7);
	assert_outcome(a, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	s.request.local = address("127.0.0.7", 0);
	b = scene_call(&s, 8);
	assert_int_equal(b.word, 8);
	assert_int_equal(s.peer.n_accepted, 2);
	scene_close(&s);
}

/* Connecting */

static void test_refused(void **state)
{
	struct outcome a, b;
	struct scene s;

	scene_open(&s, NULL, false, script_echo); /* that port, but by UDP alone */
	s.request.path = HF_RPC_TCP_ONLY;
	a = scene_call(&s, 1);
	assert_outcome(a, HF_RPC_OUTCOME_REFUSED, HF_RPC_STAGE_CONNECT);
	assert_int_equal(a.result.error, -ECONNREFUSED);
	assert_in_range(a.done_at, 0, 1000 * MS);
	s.request.path = HF_RPC_TCP_THEN_UDP;
	b = scene_call(&s, 2);
	assert_outcome(b, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(b.result.transport, HF_RPC_UDP);
	scene_close(&s);
}

/* A listener whose queue is full: SYNs are dropped, as by a host that is gone. */
struct black_hole {
	int listener;
	int fillers[4];
	struct hf_addr addr;
};

static void black_hole_open(struct black_hole *hole)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	socklen_t len = sizeof(in);

	inet_pton(AF_INET, "127.0.0.3", &in.sin_addr);
	hole->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(hole->listener, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_int_equal(listen(hole->listener, 0), 0);
	assert_int_equal(getsockname(hole->listener, (struct sockaddr *)&in, &len), 0);
	for (int i = 0; i < 4; i++) {
		hole->fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void)connect(hole->fillers[i], (struct sockaddr *)&in, sizeof(in));
	}
	hole->addr = address("127.0.0.3", ntohs(in.sin_port));
}

static void black_hole_close(struct black_hole *hole)
{
	for (int i = 0; i < 4; i++)
		close(hole->fillers[i]);
	close(hole->listener);
}

static void test_connect_times_out(void **state)
{
	struct black_hole hole;
	struct outcome o = { 0 };
	struct hf_rpc_request request;
	struct world world;

	world_open(&world, NULL);
	black_hole_open(&hole);
	request = request_to(&hole.addr, HF_RPC_TCP_ONLY);
	request.timeout_ns = 300 * MS;
	call_and_run(&world, &o, &request, 1);
	assert_outcome(o, HF_RPC_OUTCOME_TIMEOUT, HF_RPC_STAGE_CONNECT);
	assert_in_range(o.done_at, 300 * MS, 1300 * MS);
	assert_int_equal(world_counts(&world).connections, 0);
	black_hole_close(&hole);
	world_close(&world);
}

struct slow_rpcbind {
	struct hf_timer timer;
	struct heard heard;
	uint16_t port;
};

static void on_answer_due(struct hf_timer *timer)
{
	struct slow_rpcbind *rpcbind = hf_container_of(timer, struct slow_rpcbind, timer);

	reply_word(&rpcbind->heard, rpcbind->port);
}

static void script_slow_rpcbind(const struct heard *heard)
{
	struct slow_rpcbind *rpcbind = heard->peer->user;

	if (heard->n > 1)
		return;
	rpcbind->heard = *heard;
	assert_int_equal(hf_timer_start(&rpcbind->timer, 500 * MS), 0);
}

/* Look-up answered after 0.5 s, the port it names swallows the connect: 0.8 s are for both. */
static void test_one_deadline_for_lookup_and_connect(void **state)
{
	struct slow_rpcbind slow;
	struct black_hole hole;
	struct outcome o = { 0 };
	struct hf_rpc_request request;
	struct world world;
	struct peer rpcbind;

	world_open(&world, NULL);
	black_hole_open(&hole);
	peer_open(&rpcbind, world.loop, false, "127.0.0.3", 0, script_slow_rpcbind);
	rpcbind.user = &slow;
	hf_timer_init(&slow.timer, world.loop, on_answer_due);
	slow.port = hole.addr.port;
	hf_rpc_client_set_rpcbind_port(world.client, rpcbind.addr.port);
	request = request_to(&hole.addr, HF_RPC_TCP_ONLY);
	request.remote.port = 0;
	request.timeout_ns = 800 * MS;
	call_and_run(&world, &o, &request, 1);
	assert_outcome(o, HF_RPC_OUTCOME_TIMEOUT, HF_RPC_STAGE_CONNECT);
	assert_in_range(o.done_at, 800 * MS, 1200 * MS); /* 0.5 + 0.8 would be 1.3 */
	assert_int_equal(world_counts(&world).ports, 0); /* that port is not believed any more */
	black_hole_close(&hole);
	peer_close(&rpcbind);
	world_close(&world);
}

/* Writing */

#define BIG_CALLS 200
#define BIG_ARGS  60000

static void script_check_big(const struct heard *heard)
{
	struct hf_xdr_in args = heard->args;
	uint32_t word = hf_xdr_get_u32(&args);

	assert_int_equal(hf_xdr_in_left(&args), BIG_ARGS - 4);
	while (hf_xdr_in_left(&args))
		assert_int_equal(hf_xdr_get_u32(&args), word);
	reply_word(heard, word);
}

/* 12 MB to a peer that does not read: the socket fills up in the middle of a call. Every third call is
 * cancelled then, the one partly written perhaps among them, and the peer begins to read. */
static void test_partial_writes_and_cancel(void **state)
{
	static uint32_t args[BIG_ARGS / 4];
	static struct outcome o[BIG_CALLS];
	struct scene s;

	for (int offset = 0; offset < 3; offset++) {
		memset(o, 0, sizeof(o));
		scene_open(&s, NULL, true, script_check_big);
		s.peer.is_deaf = true;
		s.request.args = args;
		s.request.args_len = sizeof(args);
		for (uint32_t i = 0; i < BIG_CALLS; i++) {
			for (size_t j = 0; j < BIG_ARGS / 4; j++)
				args[j] = htobe32(i);
			o[i].user = &o[i];
			call(&s.world, &o[i], &s.request, i);
		}
		world_run_for(&s.world, 50 * MS);
		for (int i = offset; i < BIG_CALLS; i += 3)
			o[i].pending = hf_rpc_pending_cancel(o[i].pending);
		peer_listen_again(&s.peer);
		for (int i = BIG_CALLS - 1;; i--) {
			if (!o[i].pending)
				continue;
			o[i].is_last = true;
			break;
		}
		world_run(&s.world);
		for (int i = 0; i < BIG_CALLS; i++) {
			assert_int_equal(o[i].n_done, i % 3 == offset ? 0 : 1);
			if (i % 3 != offset)
				assert_int_equal(o[i].word, i);
		}
		assert_int_equal(s.peer.n_accepted, 1);
		scene_close(&s);
	}
}

/* Limits */

static void test_too_many_connections(void **state)
{
	struct hf_rpc_client_limits limits = hf_rpc_client_default_limits;
	struct outcome o[5] = { { 0 } };
	struct hf_rpc_request request;
	struct world world;
	struct peer peers[3];

	limits.max_connections = 2;
	world_open(&world, &limits);
	peer_open(&peers[0], world.loop, true, "127.0.0.2", 0, script_echo);
	peer_open(&peers[1], world.loop, true, "127.0.0.3", 0, script_echo);
	peer_open(&peers[2], world.loop, true, "127.0.0.4", 0, script_echo);
	for (int i = 0; i < 3; i++) { /* the third takes the place of the longest idle */
		request = request_to(&peers[i].addr, HF_RPC_TCP_ONLY);
		call_and_run(&world, &o[i], &request, 1);
		assert_outcome(o[i], HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	}
	assert_int_equal(world_counts(&world).connections, 2);
	run_until(&world, &peers[0].n_closed, 1);
	peers[1].script = peers[2].script = script_silent;
	request = request_to(&peers[1].addr, HF_RPC_TCP_ONLY);
	call(&world, &o[3], &request, 1);
	request = request_to(&peers[2].addr, HF_RPC_TCP_ONLY);
	call(&world, &o[4], &request, 1);
	memset(&o[0], 0, sizeof(o[0]));
	request = request_to(&peers[0].addr, HF_RPC_TCP_ONLY);
	call_and_run(&world, &o[0], &request, 1);
	assert_outcome(o[0], HF_RPC_OUTCOME_NO_ROOM, HF_RPC_STAGE_CONNECT);
	assert_int_equal(o[0].result.error, -EMFILE);
	for (int i = 0; i < 3; i++)
		peer_close(&peers[i]);
	world_close(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_suspended),
		cmocka_unit_test(test_fresh),
		cmocka_unit_test(test_multiplexed),
		cmocka_unit_test(test_broken_is_tried_again),
		cmocka_unit_test(test_broken_twice),
		cmocka_unit_test(test_broken_in_a_reply),
		cmocka_unit_test(test_closed_while_idle),
		cmocka_unit_test(test_silent_connection_is_left),
		cmocka_unit_test(test_reply_in_crumbs),
		cmocka_unit_test(test_reply_too_long),
		cmocka_unit_test(test_unasked_replies_ignored),
		cmocka_unit_test(test_reply_on_other_connection_ignored),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_connect_times_out),
		cmocka_unit_test(test_one_deadline_for_lookup_and_connect),
		cmocka_unit_test(test_partial_writes_and_cancel),
		cmocka_unit_test(test_too_many_connections),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
