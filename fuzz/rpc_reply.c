/*
 * The client against any peer: bytes choose what it calls, what sockets do, what
 * comes back and how time passes. Its sockets do what the bytes say, so that
 * every turn that calls, look-ups and connections can take is within reach; what
 * is cancelled inside a done function, too. Plain decoders get the bytes as well.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "loop/backend.h"
#include "rpc/lookup.h"
#include "rpc/message.h"
#include "rpc/record.h"
#include "rpc/uaddr.h"
#include "standin/fake_world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_SOCKETS 32
#define MAX_CALLS   24

struct fake_socket {
	struct hf_socket socket;
	bool is_used;
	bool is_tcp;
};

struct slot {
	struct hf_rpc_pending *pending;
	bool is_running;
};

static struct {
	struct fake_world *world;
	struct hf_loop *loop;
	struct hf_rpc_client *client;
	const uint8_t *p, *end; /* the input */
	struct fake_socket sockets[MAX_SOCKETS];
	struct slot slots[MAX_CALLS];
	uint8_t last_call[64]; /* the last one sent: its XID, and to whom */
	struct hf_addr last_peer;
	bool has_bytes; /* a read that gives something: one each time */
} w;

static uint8_t next(void)
{
	return w.p < w.end ? *w.p++ : 0;
}

/* The world */

static int open_fake(struct hf_socket **socketp, bool is_tcp)
{
	for (int i = 0; i < MAX_SOCKETS; i++) {
		struct fake_socket *s = &w.sockets[i];

		if (s->is_used)
			continue;
		*s = (struct fake_socket){ .socket.loop = w.loop, .is_used = true, .is_tcp = is_tcp };
		*socketp = &s->socket;
		return 0;
	}
	return -EMFILE;
}

static int fake_connect(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind,
			const struct hf_addr *remote)
{
	w.last_peer = *remote;
	return next() % 16 == 15 ? -ENETUNREACH : open_fake(socketp, true);
}

static int fake_udp_open(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind)
{
	return next() % 16 == 15 ? -EADDRNOTAVAIL : open_fake(socketp, false);
}

static void fake_close(struct hf_socket *socket)
{
	struct fake_socket *s = (struct fake_socket *)socket;

	assert(s->is_used);
	s->is_used = false;
}

static int fake_watch(struct hf_socket *socket, unsigned int events)
{
	return 0;
}

/* Bytes for the client: those of the input as they are, or a reply to the last call around them: its XID,
 * then perhaps a proper header, then perhaps what rpcbind would say. */
static size_t make_input(uint8_t *data, size_t room, bool is_tcp)
{
	uint8_t how = next();
	size_t n = next();
	struct hf_xdr_out out;
	uint8_t *mark = NULL;

	hf_xdr_out_init(&out, data, room);
	if (is_tcp && (how & 7))
		mark = hf_xdr_reserve(&out, 4);
	if (how & 1)
		hf_xdr_put_fixed(&out, w.last_call, 4);
	if (how & 2) {
		hf_xdr_put_u32(&out, 1);               /* a reply */
		hf_xdr_put_u32(&out, next() % 8 == 7); /* accepted or denied */
		hf_xdr_put_u64(&out, 0);
		hf_xdr_put_u32(&out, how & 64 ? next() % 8 : 0);
	}
	if (how & 4)
		hf_xdr_put_u32(&out, how & 8 ? 0 : 111);
	else if (how & 16)
		hf_xdr_put_string(&out, how & 8 ? "::1.8.1" : "");
	n = HF_MIN(n, HF_MIN(hf_xdr_out_left(&out), (size_t)(w.end - w.p)));
	if (n && !(how & 32))
		memcpy(hf_xdr_reserve(&out, n), w.p, n);
	w.p += n;
	if (mark) {
		uint32_t word = htobe32(HF_RECORD_LAST | (uint32_t)(out.p - mark - 4));

		memcpy(mark, &word, 4);
	}
	return (size_t)(out.p - data);
}

static ssize_t fake_read(struct hf_socket *socket, void *data, size_t len)
{
	if (!w.has_bytes)
		return next() % 4 ? -EAGAIN : -ECONNRESET;
	w.has_bytes = false;
	return (ssize_t)make_input(data, len, true); /* 0: the end */
}

static void note_call(const uint8_t *message, size_t len)
{
	memset(w.last_call, 0, sizeof(w.last_call));
	memcpy(w.last_call, message, HF_MIN(len, sizeof(w.last_call)));
}

static ssize_t fake_write(struct hf_socket *socket, const struct iovec *iov, int n_iov)
{
	uint8_t how = next();
	ssize_t total = 0;

	if (how % 8 == 7)
		return -EAGAIN;
	if (how % 8 == 6)
		return -EPIPE;
	if (iov[n_iov - 1].iov_len > 8)
		note_call((const uint8_t *)iov[n_iov - 1].iov_base + 4, iov[n_iov - 1].iov_len - 4);
	if (how % 8 == 5)
		return 1 + how % (ssize_t)iov[0].iov_len;
	for (int i = 0; i < n_iov; i++)
		total += (ssize_t)iov[i].iov_len;
	return total;
}

static int fake_error(struct hf_socket *socket)
{
	uint8_t how = next() % 8;

	return how == 7 ? -ECONNREFUSED : how == 6 ? -ETIMEDOUT : 0;
}

static int fake_receive(struct hf_socket *socket, struct hf_datagram *datagrams, int n)
{
	if (!w.has_bytes)
		return -EAGAIN;
	w.has_bytes = false;
	datagrams[0].len = make_input(datagrams[0].data, datagrams[0].len, false);
	datagrams[0].peer = w.last_peer;
	return 1;
}

static int fake_send(struct hf_socket *socket, const struct hf_datagram *datagrams, int n)
{
	static const int errors[] = { -EAGAIN, -EMSGSIZE, -ENETUNREACH, -EINVAL };
	uint8_t how = next();

	if (how >= 240)
		return errors[how % 4];
	n = how >= 200 ? 1 : n;
	note_call(datagrams[n - 1].data, datagrams[n - 1].len);
	w.last_peer = datagrams[n - 1].peer;
	return n;
}

static void fake_local(struct hf_socket *socket, struct hf_addr *localp)
{
	memset(localp, 0, sizeof(*localp));
}

/* The loop of a fake world, with sockets of this file. */
static void open_loop(struct hf_loop_ops *ops)
{
	w.world = fake_world_new(1);
	if (!w.world || fake_loop_new(&w.loop, w.world) < 0)
		abort();
	*ops = *w.loop->ops;
	ops->tcp_connect = fake_connect;
	ops->udp_open = fake_udp_open;
	ops->close = fake_close;
	ops->watch = fake_watch;
	ops->read = fake_read;
	ops->write = fake_write;
	ops->error = fake_error;
	ops->receive = fake_receive;
	ops->send = fake_send;
	ops->local = fake_local;
	w.loop->ops = ops;
}

/* The caller */

static void start_call(void);

static void cancel_call(unsigned int i)
{
	struct slot *slot = &w.slots[i % MAX_CALLS];

	if (slot->is_running)
		slot->pending = hf_rpc_pending_cancel(slot->pending);
	slot->is_running = false;
}

static void on_done(void *user, const struct hf_rpc_result *result)
{
	struct slot *slot = user;
	uint8_t how = next();

	assert(slot->is_running);
	assert((result->outcome == HF_RPC_OUTCOME_OK) || !result->results);
	assert(hf_rpc_outcome_text(result->outcome) && hf_rpc_stage_text(result->stage));
	while (result->results && hf_xdr_in_left(result->results))
		hf_xdr_get_opaque(result->results, 100);
	if (how & 1)
		hf_rpc_pending_cancel(slot->pending); /* itself: harmless */
	slot->is_running = false;
	for (unsigned int i = 0; i < (how >> 4); i++)
		cancel_call(next());
	if (how & 2)
		start_call();
}

static void start_call(void)
{
	static const uint8_t args[256];
	uint8_t how = next(), who = next();
	struct hf_rpc_request request = {
		.remote = { .ip = { 127, 0, 0, (uint8_t)(1 + who % 3) }, .family = AF_INET },
		.program = 100021,
		.version = 4,
		.procedure = 5,
		.path = (enum hf_rpc_path)(how & 3),
		.args = args,
		.args_len = (who >> 4) * 16u,
		.timeout_ns = (1 + how % 7) * HF_NS_PER_S,
		.fresh_connection = how & 4,
		.one_way = how & 8,
		.reserved_port = how & 16,
		.machine = how & 32 ? "machine" : NULL,
	};

	if (how & 64)
		request.remote.port = 2049;
	if (how & 128)
		request.remote = (struct hf_addr){ .ip = { [15] = 1 },
						   .port = request.remote.port,
						   .family = AF_INET6 };
	for (int i = 0; i < MAX_CALLS; i++) {
		struct slot *slot = &w.slots[i];

		if (slot->is_running)
			continue;
		slot->is_running = hf_rpc_client_call(w.client, &slot->pending, &request, on_done, slot) == 0;
		return;
	}
}

static void poke_socket(void)
{
	uint8_t which = next();
	struct fake_socket *s = &w.sockets[which % MAX_SOCKETS];
	unsigned int events = s->socket.events & (which & 128 ? HF_SOCKET_READ : 3u);

	w.has_bytes = true;
	if (s->is_used && events)
		s->socket.fn(s->socket.user, events);
}

static void turn(void)
{
	switch (next() % 8) {
	case 0:
	case 1:
		start_call();
		break;
	case 2:
		cancel_call(next());
		break;
	case 3:
		fake_world_advance(w.world, next() * 20 * HF_NS_PER_MS);
		break;
	default:
		poke_socket();
	}
	fake_world_turn(w.world);
}

static void play(const uint8_t *data, size_t size)
{
	struct hf_rpc_client_limits limits = hf_rpc_client_default_limits;
	struct hf_loop_ops ops;

	memset(&w, 0, sizeof(w));
	w.p = data;
	w.end = data + size;
	limits.max_connections = 6;
	limits.max_ports = 2;
	limits.max_reply = 200;
	limits.idle_ns = 2 * HF_NS_PER_S;
	limits.port_age_ns = 3 * HF_NS_PER_S;
	open_loop(&ops);
	if (hf_rpc_client_new(&w.client, w.loop, &limits) < 0)
		abort();
	while (w.p < w.end)
		turn();
	hf_rpc_client_free(w.client);
	for (int i = 0; i < MAX_SOCKETS; i++)
		assert(!w.sockets[i].is_used);
	assert(w.loop->timers.n == 0 && hf_list_is_empty(&w.loop->deferred));
	hf_loop_free(w.loop);
	fake_world_free(w.world);
}

static void decode(const uint8_t *data, size_t size)
{
	struct hf_bytes bytes = hf_bytes_of(data, (uint32_t)size);
	char text[HF_UADDR_TEXT];
	struct hf_addr addr, again;
	struct hf_xdr_in in;
	uint32_t xid;
	uint16_t port;

	for (uint32_t version = 2; version <= 4; version++) {
		hf_xdr_in_init(&in, data, size);
		(void)hf_lookup_get_answer(&in, version, &port);
		hf_xdr_in_init(&in, data, size);
		if (hf_rpc_parse_reply(&in) == HF_RPC_REPLY_OK)
			(void)hf_lookup_get_answer(&in, version, &port);
	}
	(void)hf_rpc_peek_reply_xid(&xid, bytes);
	if (!hf_uaddr_parse(&addr, bytes))
		return;
	hf_uaddr_format(&addr, text, sizeof(text));
	if (!hf_uaddr_parse(&again, hf_bytes_of_str(text)) || !hf_addr_equal(&addr, &again))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	decode(data, size);
	play(data, size);
	return 0;
}
