/* The RPC client over UDP, and the life of its calls. */
#include "../test.h"
#include "peers.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS HF_NS_PER_MS

static void test_reply(void **state)
{
	struct scene s;
	struct outcome o;

	scene_open(&s, NULL, false, script_echo);
	o = scene_call(&s, 4711);
	assert_outcome(o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(o.word, 4711);
	assert_int_equal(o.result.transport, HF_RPC_UDP);
	assert_true(hf_addr_equal(&o.result.remote, &s.peer.addr));
	assert_int_equal(s.peer.n_heard, 1);
	assert_int_equal(world_counts(&s.world).calls, 0);
	scene_close(&s);
}

/* Retransmission */

static void script_second_time(const struct heard *heard)
{
	uint32_t *first_xid = heard->peer->user;

	if (heard->n == 1) {
		*first_xid = heard->header.xid;
		return;
	}
	assert_int_equal(heard->header.xid, *first_xid);
	script_echo(heard);
}

static void test_lost_first_packet(void **state)
{
	struct scene s;
	struct outcome o;
	uint32_t xid;

	scene_open(&s, NULL, false, script_second_time);
	s.peer.user = &xid;
	o = scene_call(&s, 1);
	assert_outcome(o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(s.peer.n_heard, 2);
	assert_in_range(s.peer.heard_at[1] - s.peer.heard_at[0], 290 * MS, 2000 * MS);
	assert_int_equal(world_counts(&s.world).retransmitted, 1);
	scene_close(&s);
}

static void test_gaps_grow_until_deadline(void **state)
{
	struct scene s;
	struct outcome o;

	scene_open(&s, NULL, false, script_silent);
	s.request.first_gap_ns = 40 * MS;
	s.request.timeout_ns = 800 * MS; /* at 0, 40, 120, 280, 600 */
	o = scene_call(&s, 1);
	assert_outcome(o, HF_RPC_OUTCOME_TIMEOUT, HF_RPC_STAGE_REPLY);
	assert_in_range(o.done_at, 800 * MS, 1800 * MS);
	assert_in_range(s.peer.n_heard, 3, 5);
	for (unsigned int i = 2; i < s.peer.n_heard; i++)
		assert_true(s.peer.heard_at[i] - s.peer.heard_at[i - 1] + 10 * MS >= (40 * MS << (i - 1)));
	scene_close(&s);
}

/* A node without its lease sends nothing: silence says nothing of the peer. */

struct late_lease {
	struct hf_lease lease;
	struct hf_timer timer;
	struct hf_loop *loop;
};

static void on_late_lease(struct hf_timer *timer)
{
	struct late_lease *late = hf_container_of(timer, struct late_lease, timer);

	hf_lease_set(&late->lease, UINT64_MAX, hf_loop_boottime(late->loop));
}

static void test_no_timeout_without_the_lease(void **state)
{
	struct late_lease late = { 0 };
	struct scene s;
	struct outcome o;

	scene_open(&s, NULL, false, script_echo);
	late.loop = s.world.loop;
	hf_timer_init(&late.timer, late.loop, on_late_lease);
	assert_int_equal(hf_timer_start(&late.timer, 500 * MS), 0);
	hf_loop_set_lease(late.loop, &late.lease);
	s.request.timeout_ns = 200 * MS;
	o = scene_call(&s, 4711);
	assert_outcome(o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(o.word, 4711);
	assert_true(o.done_at >= 490 * MS);
	hf_loop_set_lease(late.loop, NULL);
	scene_close(&s);
}

/* Replies that are none */

static void put_success(uint8_t data[28], uint32_t xid, uint32_t word)
{
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, data, 28);
	hf_rpc_put_success(&out, xid);
	hf_xdr_put_u32(&out, word);
}

static void send_from(struct peer *impostor, const struct hf_addr *to, uint32_t xid)
{
	uint8_t data[28];
	struct hf_datagram datagram = { .data = data, .len = sizeof(data), .peer = *to };

	put_success(data, xid, 666);
	assert_int_equal(hf_udp_send(impostor->socket, &datagram, 1), 1);
}

/* The first time only the impostors answer, with the right XID. */
static void script_with_impostors(const struct heard *heard)
{
	struct peer *impostors = heard->peer->user;

	if (heard->n > 1) {
		script_echo(heard);
		return;
	}
	send_from(&impostors[0], &heard->from, heard->header.xid);
	send_from(&impostors[1], &heard->from, heard->header.xid);
}

static void test_wrong_sender_ignored(void **state)
{
	struct world world;
	struct peer peer, impostors[2];
	struct outcome o = { 0 };
	struct hf_rpc_request request;

	world_open(&world, NULL);
	peer_open(&peer, world.loop, false, "127.0.0.2", 0, script_with_impostors);
	peer_open(&impostors[0], world.loop, false, "127.0.0.2", 0, script_silent); /* another port */
	peer_open(&impostors[1], world.loop, false, "127.0.0.3", peer.addr.port, script_silent);
	peer.user = impostors;
	request = request_to(&peer.addr, HF_RPC_UDP_ONLY);
	request.first_gap_ns = 50 * MS;
	call_and_run(&world, &o, &request, 5);
	assert_outcome(o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(o.word, 5);
	assert_int_equal(world_counts(&world).ignored, 2);
	peer_close(&peer);
	peer_close(&impostors[0]);
	peer_close(&impostors[1]);
	world_close(&world);
}

static void script_wrong_xids_first(const struct heard *heard)
{
	uint8_t data[28];
	uint32_t type = 0;

	put_success(data, heard->header.xid + 1, 666);
	reply_bytes(heard, data, sizeof(data));
	put_success(data, heard->header.xid, 666);
	memcpy(data + 4, &type, 4); /* a call, not a reply */
	reply_bytes(heard, data, sizeof(data));
	reply_bytes(heard, data, 3);
	reply_bytes(heard, data, 0);
	script_echo(heard);
}

static void test_wrong_xid_ignored(void **state)
{
	struct scene s;
	struct outcome o;

	scene_open(&s, NULL, false, script_wrong_xids_first);
	o = scene_call(&s, 6);
	assert_outcome(o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(o.word, 6);
	assert_int_equal(world_counts(&s.world).ignored, 4);
	scene_close(&s);
}

/* The first call is never answered in time; with the second, its reply and two doubles come. */
static void script_late_and_double(const struct heard *heard)
{
	uint32_t *late = heard->peer->user;
	uint8_t data[28];

	if (heard->n == 1) {
		*late = heard->header.xid;
		return;
	}
	put_success(data, *late, 666);
	reply_bytes(heard, data, sizeof(data));
	script_echo(heard);
	script_echo(heard);
}

static void test_late_and_duplicate_ignored(void **state)
{
	struct scene s;
	struct outcome first, second, third;
	uint32_t late;

	scene_open(&s, NULL, false, script_late_and_double);
	s.peer.user = &late;
	s.request.timeout_ns = 50 * MS;
	first = scene_call(&s, 1);
	assert_outcome(first, HF_RPC_OUTCOME_TIMEOUT, HF_RPC_STAGE_REPLY);
	s.request.timeout_ns = 10000 * MS;
	second = scene_call(&s, 2);
	s.peer.script = script_echo;
	/* By the time this one is answered all that was before it has been read. */
	third = scene_call(&s, 3);
	assert_int_equal(first.n_done, 1);
	assert_outcome(second, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(second.word, 2);
	assert_outcome(third, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(world_counts(&s.world).ignored, 2);
	scene_close(&s);
}

/* Each way in which a peer can say no */

static void script_say_no(const struct heard *heard)
{
	struct hf_xdr_in args = heard->args;
	uint8_t data[64];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, data, sizeof(data));
	switch (hf_xdr_get_u32(&args)) {
	case 0:
		hf_rpc_put_auth_error(&out, heard->header.xid, HF_RPC_AUTH_TOOWEAK);
		break;
	case 1:
		hf_rpc_put_accept_error(&out, heard->header.xid, HF_RPC_PROG_UNAVAIL);
		break;
	case 2:
		hf_rpc_put_prog_mismatch(&out, heard->header.xid, 1, 3);
		break;
	case 3:
		hf_rpc_put_accept_error(&out, heard->header.xid, HF_RPC_PROC_UNAVAIL);
		break;
	case 4:
		hf_rpc_put_accept_error(&out, heard->header.xid, HF_RPC_GARBAGE_ARGS);
		break;
	case 5:
		hf_rpc_put_accept_error(&out, heard->header.xid, HF_RPC_SYSTEM_ERR);
		break;
	default: /* ends in the verifier */
		hf_rpc_put_success(&out, heard->header.xid);
		out.p -= 8;
	}
	reply_bytes(heard, data, (size_t)(out.p - data));
}

static void test_outcomes(void **state)
{
	static const enum hf_rpc_outcome wanted[] = {
		HF_RPC_OUTCOME_DENIED,       HF_RPC_OUTCOME_NO_PROGRAM, HF_RPC_OUTCOME_NO_PROGRAM,
		HF_RPC_OUTCOME_NO_PROCEDURE, HF_RPC_OUTCOME_NO_SENSE,   HF_RPC_OUTCOME_NO_SENSE,
		HF_RPC_OUTCOME_GARBAGE,
	};
	struct world world;
	struct peer peers[2];
	struct hf_rpc_request request;

	world_open(&world, NULL);
	peer_open(&peers[0], world.loop, false, "127.0.0.2", 0, script_say_no);
	peer_open(&peers[1], world.loop, true, "127.0.0.2", 0, script_say_no);
	for (uint32_t i = 0; i < 2 * HF_ARRAY_SIZE(wanted); i++) {
		struct outcome o = { 0 };

		request = request_to(&peers[i % 2].addr, i % 2 ? HF_RPC_TCP_ONLY : HF_RPC_UDP_ONLY);
		call_and_run(&world, &o, &request, i / 2);
		assert_outcome(o, wanted[i / 2], HF_RPC_STAGE_REPLY);
		/* A peer that does not know the call has not executed it. One that cannot read its arguments
		 * may have. */
		assert_int_equal(o.result.n_sent, wanted[i / 2] < HF_RPC_OUTCOME_NO_SENSE ? 0 : 1);
	}
	peer_close(&peers[0]);
	peer_close(&peers[1]);
	world_close(&world);
}

/* Sending */

/* One datagram that cannot be sent between others that can. */
static void test_failing_datagram_holds_up_no_other(void **state)
{
	static uint8_t much[65536];
	struct world world;
	struct peer peer;
	struct outcome o[5] = { { 0 } };
	struct hf_rpc_request request, bad;

	world_open(&world, NULL);
	peer_open(&peer, world.loop, false, "127.0.0.2", 0, script_echo);
	request = request_to(&peer.addr, HF_RPC_UDP_ONLY);
	request.first_gap_ns = request.timeout_ns; /* however slow this machine is now */
	bad = request;
	bad.args = much; /* EMSGSIZE */
	bad.args_len = sizeof(much);
	call(&world, &o[0], &request, 0);
	call(&world, &o[1], &bad, 0);
	call(&world, &o[2], &request, 2);
	call(&world, &o[3], &bad, 0);
	call_and_run(&world, &o[4], &request, 4);
	for (int i = 0; i < 5; i += 2)
		assert_outcome(o[i], HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	for (int i = 1; i < 5; i += 2) {
		assert_outcome(o[i], HF_RPC_OUTCOME_UNREACHABLE, HF_RPC_STAGE_SEND);
		assert_int_equal(o[i].result.error, -EMSGSIZE);
	}
	assert_int_equal(world_counts(&world).retransmitted, 0);
	peer_close(&peer);
	world_close(&world);
}

static void test_local_address_and_reserved_port(void **state)
{
	struct world world;
	struct peer peers[2];
	struct hf_rpc_request request;

	world_open(&world, NULL);
	peer_open(&peers[0], world.loop, false, "127.0.0.2", 0, script_echo);
	peer_open(&peers[1], world.loop, true, "127.0.0.2", 0, script_echo);
	for (int i = 0; i < 4; i++) {
		struct peer *peer = &peers[i % 2];
		struct hf_addr local = address(i < 2 ? "127.0.0.5" : "127.0.0.6", 0);
		struct outcome o = { 0 };

		request = request_to(&peer->addr, i % 2 ? HF_RPC_TCP_ONLY : HF_RPC_UDP_ONLY);
		request.local = local;
		request.local.port = 9; /* does not count */
		request.reserved_port = i >= 2;
		call_and_run(&world, &o, &request, 1);
		assert_outcome(o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
		assert_true(hf_addr_same_host(&peer->last_from, &local));
		if (geteuid() == 0 && request.reserved_port)
			assert_in_range(peer->last_from.port, 1, 1023);
		else
			assert_in_range(peer->last_from.port, 1024, 65535);
	}
	peer_close(&peers[0]);
	peer_close(&peers[1]);
	world_close(&world);
}

/* More than there are sockets kept: those not in use make room; where all are in use, it is said. */
static void test_many_local_addresses(void **state)
{
	struct outcome o[80] = { { 0 } };
	struct scene s;
	char text[32];

	scene_open(&s, NULL, false, script_echo);
	for (int i = 0; i < 80; i++) {
		struct outcome alone;

		snprintf(text, sizeof(text), "127.0.2.%d", i + 1);
		s.request.local = address(text, 0);
		alone = scene_call(&s, 1);
		assert_outcome(alone, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
		assert_true(hf_addr_same_host(&s.peer.last_from, &s.request.local));
	}
	s.peer.script = script_silent;
	s.request.timeout_ns = 100 * MS;
	for (int i = 0; i < 80; i++) {
		snprintf(text, sizeof(text), "127.0.3.%d", i + 1);
		s.request.local = address(text, 0);
		call(&s.world, &o[i], &s.request, 1);
	}
	world_run_for(&s.world, 300 * MS);
	assert_outcome(o[63], HF_RPC_OUTCOME_TIMEOUT, HF_RPC_STAGE_REPLY);
	assert_outcome(o[64], HF_RPC_OUTCOME_NO_ROOM, HF_RPC_STAGE_SEND);
	assert_int_equal(o[64].result.error, -EMFILE);
	scene_close(&s);
}

static void test_local_address_not_ours(void **state)
{
	struct world world;
	struct hf_addr remote = address("127.0.0.2", 9);
	struct hf_rpc_request request = request_to(&remote, HF_RPC_UDP_ONLY);
	struct outcome o = { 0 }, tcp = { 0 };

	world_open(&world, NULL);
	request.local = address("192.0.2.77", 0);
	call_and_run(&world, &o, &request, 1);
	assert_outcome(o, HF_RPC_OUTCOME_UNREACHABLE, HF_RPC_STAGE_SEND);
	assert_int_equal(o.result.error, -EADDRNOTAVAIL);
	request.path = HF_RPC_TCP_ONLY;
	call_and_run(&world, &tcp, &request, 1);
	assert_outcome(tcp, HF_RPC_OUTCOME_UNREACHABLE, HF_RPC_STAGE_CONNECT);
	assert_int_equal(tcp.result.error, -EADDRNOTAVAIL);
	world_close(&world);
}

static void script_check_machine(const struct heard *heard)
{
	assert_int_equal(heard->header.cred.flavor, HF_RPC_AUTH_SYS);
	assert_int_equal(heard->header.cred.uid, 0);
	assert_true(hf_bytes_equal(heard->header.cred.machine, hf_bytes_of_str(heard->peer->user)));
	script_echo(heard);
}

static void test_auth_sys(void **state)
{
	struct scene s;
	struct outcome o;
	char name[257];

	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	scene_open(&s, NULL, false, script_check_machine);
	s.peer.user = name;
	s.request.machine = name;
	o = scene_call(&s, 1);
	assert_outcome(o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	name[255] = 'n';
	name[256] = '\0';
	assert_int_equal(hf_rpc_client_call(s.world.client, NULL, &s.request, outcome_done, &o), -EINVAL);
	scene_close(&s);
}

static void test_one_way(void **state)
{
	struct world world;
	struct peer peers[2];
	struct hf_rpc_request request;

	world_open(&world, NULL);
	peer_open(&peers[0], world.loop, false, "127.0.0.2", 0, script_silent);
	peer_open(&peers[1], world.loop, true, "127.0.0.2", 0, script_silent);
	for (int i = 0; i < 2; i++) {
		struct outcome o[3] = { { 0 } };

		request = request_to(&peers[i].addr, i ? HF_RPC_TCP_ONLY : HF_RPC_UDP_ONLY);
		request.one_way = true;
		request.first_gap_ns = 5 * MS;
		call(&world, &o[0], &request, 1);
		call(&world, &o[1], &request, 1);
		call_and_run(&world, &o[2], &request, 1);
		for (int j = 0; j < 3; j++)
			assert_outcome(o[j], HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	}
	world_run_for(&world, 50 * MS);
	assert_int_equal(peers[0].n_heard, 3); /* and not sent again */
	assert_int_equal(peers[1].n_heard, 3);
	peer_close(&peers[0]);
	peer_close(&peers[1]);
	world_close(&world);
}

/* In a network namespace of the test's own, without any route. */
static void test_no_route(void **state)
{
	int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	struct hf_addr remote = address("192.0.2.1", 9);
	struct hf_rpc_request request = request_to(&remote, HF_RPC_UDP_ONLY);
	struct outcome udp = { 0 }, tcp = { 0 }, lookup = { 0 };
	struct world world;

	if (home < 0 || unshare(CLONE_NEWNET) < 0)
		skip();
	world_open(&world, NULL);
	request.timeout_ns = 200 * MS;
	request.first_gap_ns = 20 * MS;
	call_and_run(&world, &udp, &request, 1);
	assert_outcome(udp, HF_RPC_OUTCOME_UNREACHABLE, HF_RPC_STAGE_SEND);
	assert_int_equal(udp.result.error, -ENETUNREACH);
	assert_in_range(udp.done_at, 200 * MS, 2000 * MS); /* a route may come: it was tried to the end */
	assert_true(world_counts(&world).retransmitted >= 2);
	request.path = HF_RPC_TCP_ONLY;
	call_and_run(&world, &tcp, &request, 1);
	assert_outcome(tcp, HF_RPC_OUTCOME_UNREACHABLE, HF_RPC_STAGE_CONNECT);
	assert_int_equal(tcp.result.error, -ENETUNREACH);
	request.remote.port = 0;
	call_and_run(&world, &lookup, &request, 1);
	assert_outcome(lookup, HF_RPC_OUTCOME_UNREACHABLE, HF_RPC_STAGE_LOOKUP);
	assert_int_equal(lookup.result.error, -ENETUNREACH);
	world_close(&world);
	assert_int_equal(setns(home, CLONE_NEWNET), 0);
	close(home);
}

/* Refusals */

static void test_refused_requests(void **state)
{
	static const char *const forbidden[] = { "0.0.0.0",         "224.0.0.1", "255.255.255.255",
						 "169.254.169.254", "::",        "ff02::1" };
	struct hf_rpc_client_limits limits = hf_rpc_client_default_limits;
	struct hf_addr remote = address("127.0.0.2", 9);
	struct hf_rpc_request request = request_to(&remote, HF_RPC_UDP_ONLY);
	struct outcome o[3] = { { 0 } };
	struct world world;

	limits.max_calls = 2;
	limits.max_args = 64;
	world_open(&world, &limits);
	for (size_t i = 0; i < HF_ARRAY_SIZE(forbidden); i++) {
		request.remote = address(forbidden[i], 9);
		assert_int_equal(hf_rpc_client_call(world.client, NULL, &request, outcome_done, o),
				 -EADDRNOTAVAIL);
	}
	request.remote = remote;
	request.local = address("::1", 0);
	assert_int_equal(hf_rpc_client_call(world.client, NULL, &request, outcome_done, o), -EAFNOSUPPORT);
	request.local.family = 0;
	request.args = "12345678";
	request.args_len = 68;
	assert_int_equal(hf_rpc_client_call(world.client, NULL, &request, outcome_done, o), -EMSGSIZE);
	request.args_len = 5;
	assert_int_equal(hf_rpc_client_call(world.client, NULL, &request, outcome_done, o), -EINVAL);
	request.args_len = 4;
	request.timeout_ns = 0;
	assert_int_equal(hf_rpc_client_call(world.client, NULL, &request, outcome_done, o), -EINVAL);
	request.timeout_ns = MS;
	call(&world, &o[0], &request, 0);
	call(&world, &o[1], &request, 0);
	assert_int_equal(hf_rpc_client_call(world.client, NULL, &request, outcome_done, &o[2]), -EBUSY);
	o[1].is_last = true;
	world_run(&world);
	assert_int_equal(hf_rpc_client_call(world.client, NULL, &request, outcome_done, &o[2]), 0);
	assert_int_equal(o[2].n_done, 0);
	world_close(&world);
}

/* Cancelling and freeing */

static void cancel_neighbours(struct outcome *o)
{
	struct outcome *all = o->user;

	for (int i = 0; i < 4; i++)
		all[i].pending = hf_rpc_pending_cancel(all[i].pending); /* itself included */
}

static void call_once_more(struct outcome *o)
{
	struct hf_rpc_request request = request_to(&o->result.remote, HF_RPC_UDP_ONLY);
	struct outcome *next = o->user;

	next->is_last = true;
	call(o->world, next, &request, 8);
}

/* Four replies come in one batch; the first cancels the others. */
static void test_cancel_inside_done(void **state)
{
	struct scene s;
	struct outcome o[4] = { { 0 } }, next = { 0 }, last = { 0 };
	unsigned int n_done = 0;

	scene_open(&s, NULL, false, script_echo);
	for (int i = 0; i < 4; i++) {
		o[i].then = cancel_neighbours;
		o[i].user = o;
		o[i].is_last = true;
		call(&s.world, &o[i], &s.request, 1);
	}
	world_run(&s.world);
	last.then = call_once_more;
	last.user = &next;
	call(&s.world, &last, &s.request, 2);
	world_run(&s.world);
	for (int i = 0; i < 4; i++)
		n_done += o[i].n_done;
	assert_int_equal(n_done, 1);
	assert_outcome(last, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_outcome(next, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(next.word, 8);
	assert_int_equal(world_counts(&s.world).calls, 0);
	scene_close(&s);
}

static void stop_then(const struct heard *heard)
{
	hf_loop_stop(heard->peer->loop);
}

/* At each stage: just made, look-up under way, connecting, sent by UDP, sent by TCP. */
static void cancel_or_free(bool do_free)
{
	struct hf_rpc_client_limits limits = hf_rpc_client_default_limits;
	struct peer rpcbind, udp, tcp;
	struct world world;

	for (int stage = 0; stage < 5; stage++) {
		struct hf_rpc_request request;
		struct outcome o[3] = { { 0 } };

		world_open(&world, &limits);
		peer_open(&rpcbind, world.loop, false, "127.0.0.2", 0, stop_then);
		peer_open(&udp, world.loop, false, "127.0.0.2", 0, stop_then);
		peer_open(&tcp, world.loop, true, "127.0.0.2", 0, stop_then);
		hf_rpc_client_set_rpcbind_port(world.client, rpcbind.addr.port);
		request = request_to(stage <= 2   ? &tcp.addr
				     : stage == 3 ? &udp.addr
						  : &tcp.addr,
				     stage == 3 ? HF_RPC_UDP_ONLY : HF_RPC_TCP_ONLY);
		if (stage == 1)
			request.remote.port = 0;
		for (int i = 0; i < 3; i++)
			call(&world, &o[i], &request, 1);
		if (stage == 2)
			hf_loop_stop(world.loop); /* after one turn: connecting */
		if (stage > 0)
			world_run(&world);
		if (!do_free) {
			for (int i = 0; i < 3; i++)
				hf_rpc_pending_cancel(o[i].pending);
			assert_int_equal(world_counts(&world).calls, 0);
			world_run_for(&world, 20 * MS);
		}
		hf_rpc_client_free(world.client);
		world.client = NULL;
		for (int i = 0; i < 3; i++)
			assert_int_equal(o[i].n_done, 0);
		peer_close(&rpcbind);
		peer_close(&udp);
		peer_close(&tcp);
		world_close(&world);
	}
}

static void test_cancel_at_each_stage(void **state)
{
	cancel_or_free(false);
}

static void test_free_with_pending(void **state)
{
	cancel_or_free(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reply),
		cmocka_unit_test(test_lost_first_packet),
		cmocka_unit_test(test_gaps_grow_until_deadline),
		cmocka_unit_test(test_no_timeout_without_the_lease),
		cmocka_unit_test(test_wrong_sender_ignored),
		cmocka_unit_test(test_wrong_xid_ignored),
		cmocka_unit_test(test_late_and_duplicate_ignored),
		cmocka_unit_test(test_outcomes),
		cmocka_unit_test(test_failing_datagram_holds_up_no_other),
		cmocka_unit_test(test_local_address_and_reserved_port),
		cmocka_unit_test(test_many_local_addresses),
		cmocka_unit_test(test_local_address_not_ours),
		cmocka_unit_test(test_auth_sys),
		cmocka_unit_test(test_one_way),
		cmocka_unit_test(test_no_route),
		cmocka_unit_test(test_refused_requests),
		cmocka_unit_test(test_cancel_inside_done),
		cmocka_unit_test(test_cancel_at_each_stage),
		cmocka_unit_test(test_free_with_pending),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
