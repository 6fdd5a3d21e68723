#include "../test.h"
#include "peers.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define WATCHDOG_NS (50 * HF_NS_PER_S)

/* Peers */

static void hear(struct peer *peer, struct line *line, const struct hf_addr *from, const struct hf_addr *to,
		 struct hf_bytes message)
{
	struct heard heard = { .peer = peer, .line = line, .from = *from, .to = *to };
	enum hf_rpc_auth_stat stat;

	hf_xdr_in_init(&heard.args, message.data, message.len);
	assert_int_equal(hf_rpc_parse_call(&heard.header, &stat, &heard.args), HF_RPC_CALL);
	if (peer->n_heard < 16)
		peer->heard_at[peer->n_heard] = hf_loop_now(peer->loop);
	heard.n = ++peer->n_heard;
	peer->last_xid = heard.header.xid;
	peer->last_from = *from;
	peer->script(&heard);
}

static void on_datagrams(void *user, unsigned int events)
{
	static uint8_t room[65536];
	struct peer *peer = user;
	struct hf_datagram datagram = { .data = room, .len = sizeof(room) };

	while (peer->socket && hf_udp_receive(peer->socket, &datagram, 1) == 1) {
		hear(peer, NULL, &datagram.peer, &datagram.local, hf_bytes_of(room, (uint32_t)datagram.len));
		datagram.len = sizeof(room);
	}
}

void line_close(struct line *line)
{
	hf_link_remove(&line->link);
	hf_socket_close(line->socket);
	hf_record_reader_deinit(&line->reader);
	free(line);
}

static bool is_still_open(const struct peer *peer, const struct line *line)
{
	for (const struct hf_link *pos = peer->lines.head.next; pos != &peer->lines.head; pos = pos->next)
		if (pos == &line->link)
			return true;
	return false;
}

static void on_line(void *user, unsigned int events)
{
	static uint8_t room[65536];
	struct line *line = user;
	struct peer *peer = line->peer;
	struct hf_bytes input, record;
	ssize_t n = hf_socket_read(line->socket, room, sizeof(room));

	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		peer->n_closed++;
		peer->n_reset += n == -ECONNRESET;
		line_close(line);
		return;
	}
	input = hf_bytes_of(room, (uint32_t)n);
	while (is_still_open(peer, line) && hf_record_read(&line->reader, &input, &record) == HF_RECORD_READY)
		hear(peer, line, &line->from, &peer->addr, record);
}

static void on_listener(void *user, unsigned int events)
{
	struct peer *peer = user;
	struct line *line = calloc(1, sizeof(*line));

	if (hf_tcp_accept(&line->socket, peer->socket, &line->from) < 0) {
		free(line);
		return;
	}
	peer->n_accepted++;
	line->peer = peer;
	hf_record_reader_init(&line->reader, 1 << 20);
	hf_list_push_back(&peer->lines, &line->link);
	if (!peer->is_deaf)
		assert_int_equal(hf_socket_watch(line->socket, HF_SOCKET_READ, on_line, line), 0);
}

void peer_listen_again(struct peer *peer)
{
	peer->is_deaf = false;
	hf_list_for_each(pos, &peer->lines) {
		struct line *line = hf_list_entry(pos, struct line, link);

		assert_int_equal(hf_socket_watch(line->socket, HF_SOCKET_READ, on_line, line), 0);
	}
}

void peer_open(struct peer *peer, struct hf_loop *loop, bool is_tcp, const char *text, uint16_t port,
	       script_fn script)
{
	struct hf_socket_bind bind = { .addr = address(text, port) };
	int r;

	memset(peer, 0, sizeof(*peer));
	hf_list_init(&peer->lines);
	peer->loop = loop;
	peer->is_tcp = is_tcp;
	peer->script = script;
	if (is_tcp)
		r = hf_tcp_listen(&peer->socket, loop, &bind);
	else
		r = hf_udp_open(&peer->socket, loop, &bind);
	assert_int_equal(r, 0);
	hf_socket_local(peer->socket, &peer->addr);
	r = hf_socket_watch(peer->socket, HF_SOCKET_READ, is_tcp ? on_listener : on_datagrams, peer);
	assert_int_equal(r, 0);
}

void peer_close(struct peer *peer)
{
	struct hf_link *link;

	while ((link = hf_list_first(&peer->lines)))
		line_close(hf_list_entry(link, struct line, link));
	hf_socket_close(peer->socket);
	peer->socket = NULL;
}

/* Replies */

void reply_bytes(const struct heard *heard, const void *data, size_t len)
{
	uint32_t mark = htobe32(HF_RECORD_LAST | (uint32_t)len);
	void *bytes = (void *)(uintptr_t)data;
	struct iovec iov[2] = { { &mark, 4 }, { bytes, len } };
	struct hf_datagram datagram = { .data = bytes, .len = len, .peer = heard->from, .local = heard->to };

	if (heard->line)
		assert_int_equal(hf_socket_write(heard->line->socket, iov, 2), 4 + len);
	else
		assert_int_equal(hf_udp_send(heard->peer->socket, &datagram, 1), 1);
}

void reply_word(const struct heard *heard, uint32_t word)
{
	uint8_t data[64];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, data, sizeof(data));
	hf_rpc_put_success(&out, heard->header.xid);
	hf_xdr_put_u32(&out, word);
	reply_bytes(heard, data, (size_t)(out.p - data));
}

void reply_error(const struct heard *heard, enum hf_rpc_accept stat)
{
	uint8_t data[64];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, data, sizeof(data));
	if (stat == HF_RPC_PROG_MISMATCH)
		hf_rpc_put_prog_mismatch(&out, heard->header.xid, 2, 3);
	else
		hf_rpc_put_accept_error(&out, heard->header.xid, stat);
	reply_bytes(heard, data, (size_t)(out.p - data));
}

void script_echo(const struct heard *heard)
{
	struct hf_xdr_in args = heard->args;

	assert_int_equal(heard->header.program, TEST_PROGRAM);
	assert_int_equal(heard->header.version, TEST_VERSION);
	assert_int_equal(heard->header.procedure, TEST_PROCEDURE);
	reply_word(heard, hf_xdr_get_u32(&args));
}

void script_silent(const struct heard *heard)
{
}

/* The world */

static void on_watchdog(struct hf_timer *timer)
{
	fprintf(stderr, "the test waits for something that does not come\n");
	abort();
}

void world_open(struct world *world, const struct hf_rpc_client_limits *limits)
{
	assert_int_equal(hf_loop_new(&world->loop), 0);
	assert_int_equal(hf_rpc_client_new(&world->client, world->loop, limits), 0);
	hf_timer_init(&world->watchdog, world->loop, on_watchdog);
}

void world_close(struct world *world)
{
	hf_timer_stop(&world->watchdog);
	hf_rpc_client_free(world->client);
	hf_loop_free(world->loop);
}

void world_run(struct world *world)
{
	assert_int_equal(hf_timer_start(&world->watchdog, WATCHDOG_NS), 0);
	hf_loop_run(world->loop);
	hf_timer_stop(&world->watchdog);
}

static struct hf_loop *timed_loop;

static void on_time_over(struct hf_timer *timer)
{
	hf_loop_stop(timed_loop);
}

void world_run_for(struct world *world, uint64_t ns)
{
	struct hf_timer timer;

	timed_loop = world->loop;
	hf_timer_init(&timer, world->loop, on_time_over);
	assert_int_equal(hf_timer_start(&timer, ns), 0);
	world_run(world);
	hf_timer_stop(&timer);
}

struct hf_rpc_client_counts world_counts(struct world *world)
{
	struct hf_rpc_client_counts counts;

	hf_rpc_client_counts(world->client, &counts);
	return counts;
}

/* Calls */

struct hf_addr address(const char *text, uint16_t port)
{
	struct hf_addr addr;

	assert_true(hf_addr_parse(&addr, text));
	addr.port = port;
	return addr;
}

struct hf_rpc_request request_to(const struct hf_addr *remote, enum hf_rpc_path path)
{
	return (struct hf_rpc_request){
		.remote = *remote,
		.program = TEST_PROGRAM,
		.version = TEST_VERSION,
		.procedure = TEST_PROCEDURE,
		.path = path,
		.timeout_ns = 10 * HF_NS_PER_S,
	};
}

void outcome_done(void *user, const struct hf_rpc_result *result)
{
	struct outcome *outcome = user;

	outcome->n_done++;
	outcome->result = *result;
	outcome->done_at = hf_loop_now(outcome->world->loop) - outcome->started_at;
	if (result->outcome != HF_RPC_OUTCOME_OK)
		assert_null(result->results);
	if (result->results) {
		outcome->word = hf_xdr_get_u32(result->results);
		outcome->result.results = NULL;
	}
	if (outcome->then)
		outcome->then(outcome);
	outcome->pending = NULL;
	if (outcome->is_last)
		hf_loop_stop(outcome->world->loop);
}

void call(struct world *world, struct outcome *outcome, const struct hf_rpc_request *request, uint32_t word)
{
	struct hf_rpc_request with_args = *request;
	uint32_t wire = htobe32(word);

	if (!with_args.args) {
		with_args.args = &wire;
		with_args.args_len = 4;
	}
	outcome->world = world;
	outcome->started_at = hf_loop_now(world->loop);
	assert_int_equal(hf_rpc_client_call(world->client, &outcome->pending, &with_args, outcome_done,
					    outcome),
			 0);
	assert_int_equal(outcome->n_done, 0);
}

void call_and_run(struct world *world, struct outcome *outcome, const struct hf_rpc_request *request,
		  uint32_t word)
{
	outcome->is_last = true;
	call(world, outcome, request, word);
	world_run(world);
}

/* A scene */

void scene_open(struct scene *scene, const struct hf_rpc_client_limits *limits, bool is_tcp, script_fn script)
{
	world_open(&scene->world, limits);
	peer_open(&scene->peer, scene->world.loop, is_tcp, "127.0.0.2", 0, script);
	scene->request = request_to(&scene->peer.addr, is_tcp ? HF_RPC_TCP_ONLY : HF_RPC_UDP_ONLY);
}

void scene_close(struct scene *scene)
{
	peer_close(&scene->peer);
	world_close(&scene->world);
}

struct outcome scene_call(struct scene *scene, uint32_t word)
{
	struct outcome outcome = { 0 };

	call_and_run(&scene->world, &outcome, &scene->request, word);
	return outcome;
}
