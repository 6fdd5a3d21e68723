/* The server over loopback sockets: what a peer sees, byte for byte, and what hostile ones cost. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rig.h"

#define HOME     "127.0.0.1"
#define MEGABYTE (1u << 20)

static struct rig rig;
static uint8_t buffer[2 * MEGABYTE];
static uint8_t results[2 * MEGABYTE];

static void start(const struct hf_rpc_limits *limits)
{
	rig_start(&rig, limits, 1, HOME);
}

static void call_echo(int fd, uint32_t xid, const void *data, uint32_t len)
{
	rig_send_record(fd, buffer, rig_call_opaque(buffer, xid, RIG_PROGRAM, RIG_ECHO, data, len));
}

static void expect_echo(int fd, uint32_t xid, const void *data, uint32_t len)
{
	size_t got = rig_expect_success(fd, xid, results, sizeof(results));

	assert_int_equal(got, 4 + ((len + 3) & ~3u));
	assert_int_equal(rig_get(results), len);
	assert_memory_equal(results + 4, data, len);
}

static void check_served(int fd, uint32_t xid)
{
	call_echo(fd, xid, "served?", 7);
	expect_echo(fd, xid, "served?", 7);
}

/* Looking inside, on the loop's thread */

struct look {
	struct hf_rpc_connection copy; /* of the only connection, or the first busy one */
	size_t n_idle;
	size_t n_busy;
	size_t n_gathering;
	size_t lane_charged; /* by all connections */
	size_t allocated;    /* memory of its replies */
	bool is_paused;      /* for its own sake, not for its turn */
};

static void look_inside(struct rig *r, void *arg)
{
	struct look *look = arg;
	struct hf_rpc_lane *lane = r->lanes[0];
	struct hf_link *link;

	memset(look, 0, sizeof(*look));
	hf_list_for_each(l, &lane->idle)
		look->n_idle++;
	hf_list_for_each(l, &lane->busy)
		look->n_busy++;
	look->n_gathering = lane->n_gathering;
	look->lane_charged = lane->charged;
	link = hf_list_first(&lane->busy);
	if (!link)
		link = hf_list_first(&lane->idle);
	if (!link)
		return;
	look->copy = *hf_list_entry(link, struct hf_rpc_connection, link);
	look->allocated = look->copy.out.n_allocated;
	look->is_paused = look->copy.is_paused &&
			  !hf_link_is_linked(&hf_list_entry(link, struct hf_rpc_connection, link)->wait_link);
}

static struct look look(void)
{
	struct look l;

	rig_run_on(&rig, 0, look_inside, &l);
	return l;
}

/* Errors, byte for byte */

#define XID  0x01020304u
#define PAIR 2

struct error_case {
	const char *name;
	uint32_t call[40];
	size_t n_call;
	uint32_t reply[10];
	size_t n_reply;
};

#define CALL(...)  { XID, 0, __VA_ARGS__ }, sizeof((uint32_t[]){ XID, 0, __VA_ARGS__ }) / 4
#define REPLY(...) { XID, 1, __VA_ARGS__ }, sizeof((uint32_t[]){ XID, 1, __VA_ARGS__ }) / 4

static const struct error_case errors[] = {
	{ "void", CALL(2, RIG_PROGRAM, 4, RIG_VOID, 0, 0, 0, 0), REPLY(0, 0, 0, 0) },
	{ "void, lowest version", CALL(2, RIG_PROGRAM, 2, RIG_VOID, 0, 0, 0, 0), REPLY(0, 0, 0, 0) },
	{ "prog_unavail", CALL(2, 100003, 4, 0, 0, 0, 0, 0), REPLY(0, 0, 0, 1) },
	{ "prog_mismatch below", CALL(2, RIG_PROGRAM, 1, 0, 0, 0, 0, 0), REPLY(0, 0, 0, 2, 2, 4) },
	{ "prog_mismatch between", CALL(2, RIG_PROGRAM, 3, 0, 0, 0, 0, 0), REPLY(0, 0, 0, 2, 2, 4) },
	{ "prog_mismatch above", CALL(2, RIG_PROGRAM, 0xffffffff, 0, 0, 0, 0, 0), REPLY(0, 0, 0, 2, 2, 4) },
	{ "proc_unavail, a hole", CALL(2, RIG_PROGRAM, 4, RIG_HOLE, 0, 0, 0, 0), REPLY(0, 0, 0, 3) },
	{ "proc_unavail, one beyond", CALL(2, RIG_PROGRAM, 4, RIG_N_PROCS, 0, 0, 0, 0), REPLY(0, 0, 0, 3) },
	{ "proc_unavail, far beyond", CALL(2, RIG_PROGRAM, 4, 0xffffffff, 0, 0, 0, 0), REPLY(0, 0, 0, 3) },
	{ "proc_unavail, low version", CALL(2, RIG_PROGRAM, 2, 1, 0, 0, 0, 0), REPLY(0, 0, 0, 3) },
	{ "garbage: no arguments", CALL(2, RIG_PROGRAM, 4, RIG_ECHO, 0, 0, 0, 0), REPLY(0, 0, 0, 4) },
	{ "garbage: short", CALL(2, RIG_PROGRAM, 4, RIG_ECHO, 0, 0, 0, 0, 5, 0), REPLY(0, 0, 0, 4) },
	{ "garbage: too much", CALL(2, RIG_PROGRAM, 4, RIG_ECHO, 0, 0, 0, 0, 4, 0, 0), REPLY(0, 0, 0, 4) },
	{ "garbage: over the program's limit",
	  CALL(2, RIG_SMALL, 4, RIG_VOID, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
	       17, 18, 19, 20, 21, 22, 23),
	  REPLY(0, 0, 0, 4) },
	{ "at the program's limit",
	  CALL(2, RIG_SMALL, 4, RIG_VOID, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
	       17, 18, 19, 20, 21, 22),
	  REPLY(0, 0, 0, 0) },
	{ "rpc_mismatch 1", CALL(1, RIG_PROGRAM, 4, 0, 0, 0, 0, 0), REPLY(1, 0, 2, 2) },
	{ "rpc_mismatch 3", CALL(3, 0, 0, 0), REPLY(1, 0, 2, 2) },
	{ "auth: gss", CALL(2, RIG_PROGRAM, 4, 0, 6, 4, 1, 0, 0), REPLY(1, 1, 2) },
	{ "auth: short", CALL(2, RIG_PROGRAM, 4, 0, 2, 0, 0, 0), REPLY(1, 1, 2) },
	{ "auth: unknown", CALL(2, RIG_PROGRAM, 4, 0, 0xdeadbeef, 0, 0, 0), REPLY(1, 1, 2) },
	{ "auth: sys, empty", CALL(2, RIG_PROGRAM, 4, 0, 1, 0, 0, 0), REPLY(1, 1, 1) },
	{ "auth: sys, 17 gids",
	  CALL(2, RIG_PROGRAM, 4, 0, 1, 4 * 22, 0, 0, 0, 0, 17, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
	       15, 16, 17, 0, 0),
	  REPLY(1, 1, 1) },
	{ "sys, 16 gids",
	  CALL(2, RIG_PROGRAM, 4, 0, 1, 4 * 21, 0, 0, 0, 0, 16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
	       15, 16, 0, 0),
	  REPLY(0, 0, 0, 0) },
	{ "the handler's own refusal", CALL(2, RIG_PROGRAM, 4, RIG_REFUSE, 0, 0, 0, 0), REPLY(1, 1, 5) },
	{ "system_err: a handler that overran", CALL(2, RIG_PROGRAM, 4, RIG_OVERRUN, 0, 0, 0, 0),
	  REPLY(0, 0, 0, 5) },
	{ "a verifier is ignored", CALL(2, RIG_PROGRAM, 4, 0, 0, 0, 6, 8, 1, 2), REPLY(0, 0, 0, 0) },
};

static size_t encode(const struct error_case *e)
{
	for (size_t i = 0; i < e->n_call; i++)
		rig_put(buffer + 4 * i, e->call[i]);
	return 4 * e->n_call;
}

static void test_errors(void **state)
{
	int tcp, udp;

	start(&rig_limits);
	tcp = rig_connect(HOME, rig.tcp, NULL);
	udp = rig_udp(HOME);
	for (size_t i = 0; i < HF_ARRAY_SIZE(errors); i++) {
		const struct error_case *e = &errors[i];
		size_t len = encode(e);

		print_message("  %s\n", e->name);
		rig_send_record(tcp, buffer, len);
		rig_expect_words(tcp, e->reply, e->n_reply);
		rig_sendto(udp, HOME, rig.udp, buffer, len);
		rig_expect_words(udp, e->reply, e->n_reply);
	}
	/* All of them at once: answered all, and in order. */
	{
		uint8_t batch[16384], *p = batch;

		for (size_t i = 0; i < HF_ARRAY_SIZE(errors); i++) {
			size_t len = encode(&errors[i]);

			p = rig_put(p, 0x80000000u | (uint32_t)len);
			memcpy(p, buffer, len);
			p += len;
		}
		rig_send_all(tcp, batch, (size_t)(p - batch));
		for (size_t i = 0; i < HF_ARRAY_SIZE(errors); i++)
			rig_expect_words(tcp, errors[i].reply, errors[i].n_reply);
	}
	close(tcp);
	close(udp);
	rig_stop(&rig);
}

/* Messages without a possible answer: the server closes their connection alone, and drops a datagram. */
static void test_nonsense(void **state)
{
	static const struct {
		uint32_t words[12];
		size_t n;
	} cases[] = {
		{ { 0 }, 0 },
		{ { XID }, 1 },
		{ { XID, 1, 0, 0, 0, 0 }, 6 },              /* a reply */
		{ { XID, 2, 2, RIG_PROGRAM, 4, 0, 0 }, 7 }, /* neither */
		{ { XID, 0 }, 2 },                          /* ends early */
		{ { XID, 0, 2, RIG_PROGRAM, 4, 0 }, 6 },
		{ { XID, 0, 2, RIG_PROGRAM, 4, 0, 0, 401, 0, 0 }, 10 },
		{ { XID, 0, 2, RIG_PROGRAM, 4, 0, 0, 0, 0, 401 }, 10 },
		{ { XID, 0, 2, RIG_PROGRAM, 4, 0, 0, 0xffffffff, 0, 0 }, 10 },
		{ { XID, 0, 2, RIG_PROGRAM, 4, 0, 0, 0, 0, 0xfffffffc }, 10 },
	};
	int other, udp;

	start(&rig_limits);
	other = rig_connect(HOME, rig.tcp, NULL);
	udp = rig_udp(HOME);
	check_served(other, 1);
	for (size_t i = 0; i < HF_ARRAY_SIZE(cases); i++) {
		int fd = rig_connect(HOME, rig.tcp, NULL);
		uint8_t bytes[64];

		check_served(fd, 2);
		for (size_t k = 0; k < cases[i].n; k++)
			rig_put(bytes + 4 * k, cases[i].words[k]);
		rig_send_record(fd, bytes, 4 * cases[i].n);
		assert_true(rig_is_closed(fd));
		rig_sendto(udp, HOME, rig.udp, bytes, 4 * cases[i].n);
		close(fd);
	}
	/* The first answer to come is the one to this, so none of the others had one. */
	rig_sendto(udp, HOME, rig.udp, buffer, rig_call(buffer, 77, RIG_PROGRAM, RIG_VOID, NULL, 0));
	rig_expect_words(udp, (uint32_t[]){ 77, 1, 0, 0, 0, 0 }, 6);
	check_served(other, 3);
	close(other);
	close(udp);
	rig_stop(&rig);
}

static void test_who(void **state)
{
	uint8_t cred[256], *p = cred, *at;
	struct sockaddr_in mine;
	socklen_t mine_len = sizeof(mine);
	size_t len;
	int fd;

	start(&rig_limits);
	fd = rig_connect("127.0.0.1", rig.tcp, "127.0.0.9");
	getsockname(fd, (struct sockaddr *)&mine, &mine_len);
	/* AUTH_SYS by hand: stamp, "client1", uid, gid, two gids */
	at = buffer;
	for (size_t i = 0; i < 6; i++)
		at = rig_put(at, (uint32_t[]){ 9, 0, 2, RIG_PROGRAM, 4, RIG_WHO }[i]);
	p = rig_put(p, 123);
	p = rig_put(p, 7);
	memcpy(p, "client1", 8);
	p += 8;
	for (size_t i = 0; i < 5; i++)
		p = rig_put(p, (uint32_t[]){ 1000, 100, 2, 4, 27 }[i]);
	at = rig_put(at, 1);
	at = rig_put(at, (uint32_t)(p - cred));
	memcpy(at, cred, (size_t)(p - cred));
	at += p - cred;
	at = rig_put(rig_put(at, 0), 0);
	rig_send_record(fd, buffer, (size_t)(at - buffer));
	len = rig_expect_success(fd, 9, results, sizeof(results));
	assert_int_equal(len, 16 + 4 + 16 + 5 * 4 + 2 * 4 + 4 + 8);
	assert_memory_equal(results, ((uint8_t[]){ 127, 0, 0, 9, 0, 0 }), 6);
	assert_int_equal(rig_get(results + 16), ntohs(mine.sin_port));
	assert_memory_equal(results + 20, ((uint8_t[]){ 127, 0, 0, 1, 0, 0 }), 6);
	assert_int_equal(rig_get(results + 36), HF_RPC_TCP);
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(rig_get(results + 40 + 4 * i), ((uint32_t[]){ 1, 1000, 100, 2, 4, 27 }[i]));
	assert_memory_equal(results + 68, "client1", 8);
	close(fd);
	rig_stop(&rig);
}

/* Ways to send */

static void test_pipelined(void **state)
{
	enum {
		N = 5000
	};
	uint8_t *batch = malloc(N * 128), *p = batch;
	int fd;

	start(&rig_limits);
	fd = rig_connect(HOME, rig.tcp, NULL);
	for (uint32_t i = 0; i < N; i++) {
		char text[16];
		size_t len;

		snprintf(text, sizeof(text), "call %u", i);
		len = rig_call_opaque(p + 4, i, RIG_PROGRAM, RIG_ECHO, text, (uint32_t)strlen(text));
		rig_put(p, 0x80000000u | (uint32_t)len);
		p += 4 + len;
	}
	rig_send_all(fd, batch, (size_t)(p - batch));
	for (uint32_t i = 0; i < N; i++) {
		char text[16];

		snprintf(text, sizeof(text), "call %u", i);
		expect_echo(fd, i, text, (uint32_t)strlen(text));
	}
	free(batch);
	close(fd);
	rig_stop(&rig);
}

static void test_byte_by_byte(void **state)
{
	uint8_t record[256];
	size_t len;
	int slow, other;

	start(&rig_limits);
	slow = rig_connect(HOME, rig.tcp, NULL);
	other = rig_connect(HOME, rig.tcp, NULL);
	len = rig_call_opaque(record + 4, 5, RIG_PROGRAM, RIG_ECHO, "slow but sure", 13);
	rig_put(record, 0x80000000u | (uint32_t)len);
	for (size_t i = 0; i < 4 + len; i++) {
		rig_send_all(slow, record + i, 1);
		check_served(other, (uint32_t)i); /* so it has been read, alone, too */
	}
	expect_echo(slow, 5, "slow but sure", 13);
	assert_int_equal(look().n_busy, 0);
	close(slow);
	close(other);
	rig_stop(&rig);
}

/* One record in many fragments, some of them empty, its last one empty. */
static void test_fragments(void **state)
{
	uint8_t call[1024], stream[8192], *p = stream;
	size_t len, at = 0;
	int fd;

	start(&rig_limits);
	fd = rig_connect(HOME, rig.tcp, NULL);
	len = rig_call_opaque(call, 5, RIG_PROGRAM, RIG_ECHO, "in pieces, please", 17);
	for (size_t n = 0; at < len; n = (n + 1) % 6) {
		size_t piece = HF_MIN(n, len - at);

		p = rig_put(p, (uint32_t)piece);
		memcpy(p, call + at, piece);
		p += piece;
		at += piece;
	}
	p = rig_put(p, 0x80000000u);
	rig_send_all(fd, stream, (size_t)(p - stream));
	expect_echo(fd, 5, "in pieces, please", 17);
	check_served(fd, 6);
	close(fd);
	rig_stop(&rig);
}

/* The longest record there may be goes through; nothing of its buffer stays with the idle connection. */
static void test_largest(void **state)
{
	static uint8_t data[RIG_MAX_REQUEST];
	uint32_t len = RIG_MAX_REQUEST - 44;
	struct look l;
	int fd;

	start(&rig_limits);
	for (uint32_t i = 0; i < len; i++)
		data[i] = (uint8_t)(i * 31 + i / 251);
	fd = rig_connect(HOME, rig.tcp, NULL);
	for (uint32_t i = 0; i < 3; i++) {
		call_echo(fd, i, data, len);
		expect_echo(fd, i, data, len);
		l = look();
		assert_int_equal(l.n_idle, 1);
		assert_int_equal(l.copy.reader.capacity, 0);
		assert_int_equal(l.n_gathering, 0);
	}
	/* In pieces of all sizes, so that they are gathered. */
	rig_put(buffer,
		0x80000000u | (uint32_t)rig_call_opaque(buffer + 4, 9, RIG_PROGRAM, RIG_ECHO, data, len));
	for (size_t at = 0, piece = 1; at < RIG_MAX_REQUEST + 4; at += piece, piece = piece * 2 + 1) {
		rig_send_all(fd, buffer + at, HF_MIN(piece, RIG_MAX_REQUEST + 4 - at));
		look(); /* lets it be read */
	}
	expect_echo(fd, 9, data, len);
	l = look();
	assert_int_equal(l.copy.reader.capacity, 0);
	assert_int_equal(l.n_gathering, 0);
	close(fd);
	rig_stop(&rig);
}

static void test_too_long(void **state)
{
	uint8_t marks[2][4];
	int other;

	start(&rig_limits);
	other = rig_connect(HOME, rig.tcp, NULL);
	rig_put(marks[0], 0x80000000u | (RIG_MAX_REQUEST + 1));
	rig_put(marks[1], 0x7fffffffu);
	for (int i = 0; i < PAIR; i++) {
		int fd = rig_connect(HOME, rig.tcp, NULL);

		rig_send_all(fd, marks[i], 4);
		assert_true(rig_is_closed(fd));
		close(fd);
		check_served(other, 3);
	}
	rig_wait_connections(&rig, 1);
	close(other);
	rig_stop(&rig);
}

/* Bytes promised cost nothing; bytes that came cost about themselves. */
static void test_promises_are_free(void **state)
{
	uint8_t mark[4];
	int fd;

	start(&rig_limits);
	fd = rig_connect(HOME, rig.tcp, NULL);
	rig_put(mark, 0x80000000u | RIG_MAX_REQUEST);
	rig_send_all(fd, mark, 4);
	for (int i = 0; i < 200; i++) {
		struct look l;

		rig_send_all(fd, buffer, 1);
		l = look();
		assert_true(l.copy.reader.capacity <= 64 << 10);
	}
	close(fd);
	rig_wait_connections(&rig, 0);
	assert_int_equal(look().n_gathering, 0);
	rig_stop(&rig);
}

/* Addresses */

static void check_udp_from(const char *to, const char *from)
{
	struct sockaddr_storage ss;
	char text[HF_ADDR_TEXT];
	uint8_t reply[256];
	struct hf_addr addr;
	ssize_t n;
	int fd = rig_udp(from);

	rig_sendto(fd, to, rig.udp, buffer, rig_call(buffer, 11, RIG_PROGRAM, RIG_VOID, NULL, 0));
	n = rig_recvfrom(fd, reply, sizeof(reply), &ss);
	rig_check_success(reply, n, 11);
	assert_true(hf_addr_from_sockaddr(&addr, (struct sockaddr *)&ss));
	assert_string_equal(hf_addr_format(&addr, text, sizeof(text)), to);
	assert_int_equal(addr.port, rig.udp);
	/* A suspended one as well */
	rig_sendto(fd, to, rig.udp, buffer, rig_call_opaque(buffer, 12, RIG_PROGRAM, RIG_SUSPEND, "x", 1));
	rig_wait_suspended(&rig, 1);
	rig_release(&rig, 1);
	n = rig_recvfrom(fd, reply, sizeof(reply), &ss);
	rig_check_success(reply, n, 12);
	assert_true(hf_addr_from_sockaddr(&addr, (struct sockaddr *)&ss));
	assert_string_equal(hf_addr_format(&addr, text, sizeof(text)), to);
	close(fd);
}

static void test_reply_from_called_address(void **state)
{
	rig_start(&rig, &rig_limits, 1, "0.0.0.0");
	check_udp_from("127.0.0.1", "127.0.0.1");
	check_udp_from("127.0.0.2", "127.0.0.1");
	check_udp_from("127.77.0.3", "127.0.0.5");
	rig_stop(&rig);
}

static void test_ipv6(void **state)
{
	int fd;

	rig_start(&rig, &rig_limits, 1, "::");
	check_udp_from("::1", "::1");
	fd = rig_connect("::1", rig.tcp, NULL);
	check_served(fd, 4);
	rig_send_record(fd, buffer, rig_call(buffer, 5, RIG_PROGRAM, RIG_WHO, NULL, 0));
	rig_expect_success(fd, 5, results, sizeof(results));
	assert_int_equal(results[15], 1);
	assert_int_equal(results[20 + 15], 1);
	assert_int_equal(rig_get(results + 44), UINT32_MAX); /* AUTH_NONE is no user */
	close(fd);
	rig_stop(&rig);
}

/* A client that is gone makes the kernel complain to the server; the port goes on. */
static void test_unreachable_client(void **state)
{
	int udp, gone;

	start(&rig_limits);
	for (int i = 0; i < 20; i++) {
		gone = rig_udp(HOME);
		rig_sendto(gone, HOME, rig.udp, buffer,
			   rig_call_opaque(buffer, 1, RIG_PROGRAM, RIG_SUSPEND, "x", 1));
		rig_wait_suspended(&rig, 1);
		close(gone);
		rig_release(&rig, 1);
		udp = rig_udp(HOME);
		rig_sendto(udp, HOME, rig.udp, buffer, rig_call(buffer, 7, RIG_PROGRAM, RIG_VOID, NULL, 0));
		rig_expect_words(udp, (uint32_t[]){ 7, 1, 0, 0, 0, 0 }, 6);
		close(udp);
	}
	rig_stop(&rig);
}

static void test_datagram_sizes(void **state)
{
	static uint8_t data[65507];
	uint8_t *reply = malloc(65536);
	int udp;
	ssize_t n;

	start(&rig_limits);
	udp = rig_udp(HOME);
	/* as long as a datagram can be, both ways: the reply's header is shorter */
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 13);
	rig_sendto(udp, HOME, rig.udp, buffer,
		   rig_call_opaque(buffer, 1, RIG_PROGRAM, RIG_ECHO, data, 65507 - 44 - 3));
	n = rig_recvfrom(udp, reply, 65536, NULL);
	rig_check_success(reply, n, 1);
	assert_int_equal(n, 24 + 4 + 65460);
	assert_memory_equal(reply + 28, data, 65460);
	/* too long to be one: an error, not silence */
	rig_sendto(udp, HOME, rig.udp, buffer, rig_call_word(buffer, 2, RIG_PROGRAM, RIG_BIG, 70000));
	rig_expect_words(udp, (uint32_t[]){ 2, 1, 0, 0, 0, 5 }, 6);
	/* an empty one, then one that is served */
	rig_sendto(udp, HOME, rig.udp, buffer, 0);
	rig_sendto(udp, HOME, rig.udp, buffer, rig_call(buffer, 3, RIG_PROGRAM, RIG_VOID, NULL, 0));
	rig_expect_words(udp, (uint32_t[]){ 3, 1, 0, 0, 0, 0 }, 6);
	free(reply);
	close(udp);
	rig_stop(&rig);
}

static void test_many_datagrams(void **state)
{
	enum {
		N = 2000,
		AHEAD = 150
	};
	bool seen[N] = { false };
	uint8_t reply[256];
	uint32_t sent = 0;
	int udp;

	start(&rig_limits);
	udp = rig_udp(HOME);
	for (uint32_t i = 0; i < N; i++) {
		ssize_t n;
		uint32_t xid;

		for (; sent < N && sent < i + AHEAD; sent++)
			rig_sendto(udp, HOME, rig.udp, buffer,
				   rig_call_word(buffer, sent, RIG_PROGRAM, RIG_BIG, sent % 64));
		n = rig_recvfrom(udp, reply, sizeof(reply), NULL);
		assert_true(n >= 28);
		xid = rig_get(reply);
		assert_true(xid < N && !seen[xid]);
		seen[xid] = true;
		rig_check_success(reply, n, xid);
		assert_int_equal(rig_get(reply + 24), xid % 64);
	}
	close(udp);
	rig_stop(&rig);
}

/* Kept calls */

static void test_suspended(void **state)
{
	int fd;

	start(&rig_limits);
	fd = rig_connect(HOME, rig.tcp, NULL);
	rig_send_record(fd, buffer, rig_call_opaque(buffer, 1, RIG_PROGRAM, RIG_SUSPEND, "first", 5));
	rig_send_record(fd, buffer, rig_call_opaque(buffer, 2, RIG_PROGRAM, RIG_SUSPEND, "second", 6));
	check_served(fd, 3); /* overtakes them */
	rig_wait_suspended(&rig, 2);
	rig_release(&rig, 2);
	expect_echo(fd, 1, "first", 5);
	expect_echo(fd, 2, "second", 6);
	/* one that is gathered: its buffer goes over to the call */
	memset(results, 'k', 40000);
	rig_call_opaque(buffer + 4, 4, RIG_PROGRAM, RIG_SUSPEND, results, 40000);
	rig_put(buffer, 0x80000000u | 40044);
	for (size_t at = 0; at < 40048; at += 10012) {
		rig_send_all(fd, buffer + at, 10012);
		look();
	}
	rig_wait_suspended(&rig, 1);
	check_served(fd, 5);
	assert_int_equal(look().n_gathering, 0);
	rig_release(&rig, 1);
	memset(buffer, 'k', 40000);
	expect_echo(fd, 4, buffer, 40000);
	close(fd);
	rig_stop(&rig);
}

static void test_suspended_then_gone(void **state)
{
	int fd;

	start(&rig_limits);
	fd = rig_connect(HOME, rig.tcp, NULL);
	for (uint32_t i = 0; i < 3; i++)
		rig_send_record(fd, buffer, rig_call_opaque(buffer, i, RIG_PROGRAM, RIG_SUSPEND, "x", 1));
	rig_wait_suspended(&rig, 3);
	close(fd);
	rig_wait_connections(&rig, 0);
	rig_release(&rig, 2);
	rig_drop(&rig, 1);
	assert_int_equal(rig_suspended(&rig), 0);
	rig_stop(&rig);
}

static void close_lane(struct rig *r, void *arg)
{
	hf_rpc_lane_close(r->lanes[0]);
}

/* Replies to calls that outlived the whole lane go nowhere, quietly. */
static void test_suspended_beyond_the_lane(void **state)
{
	int fd, udp;

	start(&rig_limits);
	fd = rig_connect(HOME, rig.tcp, NULL);
	udp = rig_udp(HOME);
	rig_send_record(fd, buffer, rig_call_opaque(buffer, 1, RIG_PROGRAM, RIG_SUSPEND, "x", 1));
	for (uint32_t i = 0; i < 200; i++)
		rig_sendto(udp, HOME, rig.udp, buffer,
			   rig_call_opaque(buffer, i, RIG_PROGRAM, i % 2 ? RIG_SUSPEND : RIG_COUNT_SUSPEND,
					   "x", 1));
	rig_wait_suspended(&rig, 201);
	rig_run_on(&rig, 0, close_lane, NULL);
	rig_release(&rig, 190);
	rig_drop(&rig, 10);
	rig_release(&rig, 1);
	assert_true(rig_is_closed(fd));
	close(fd);
	close(udp);
	rig_stop(&rig);
}

/* A connection may have so many calls under way; then it is not read until some have ended. */
static void test_suspended_limit(void **state)
{
	struct hf_rpc_limits limits = rig_limits;
	uint8_t *batch = malloc(MEGABYTE), *p = batch;
	int fd;

	limits.max_suspended_per_connection = 4;
	start(&limits);
	fd = rig_connect(HOME, rig.tcp, NULL);
	for (uint32_t i = 0; i < 100; i++) {
		size_t len = rig_call_opaque(p + 4, i, RIG_PROGRAM, RIG_SUSPEND, &i, 4);

		rig_put(p, 0x80000000u | (uint32_t)len);
		p += 4 + len;
	}
	rig_send_all(fd, batch, (size_t)(p - batch));
	for (uint32_t i = 0; i < 100; i++) {
		struct look l;

		rig_wait_suspended(&rig, HF_MIN(4u, 100 - i));
		l = look();
		assert_int_equal(l.copy.n_suspended, HF_MIN(4u, 100 - i));
		assert_int_equal(rig_suspended(&rig), l.copy.n_suspended);
		rig_release(&rig, 1);
		expect_echo(fd, i, &i, 4);
	}
	/* dropped ones make room, too */
	rig_send_all(fd, batch, (size_t)(p - batch));
	for (uint32_t i = 0; i < 100; i++) {
		rig_wait_suspended(&rig, 1);
		rig_drop(&rig, 1);
	}
	check_served(fd, 1000);
	free(batch);
	close(fd);
	rig_stop(&rig);
}

/* Few calls may be large ones: their bytes count, too. */
static void test_suspended_bytes_limit(void **state)
{
	struct hf_rpc_limits limits = rig_limits;
	uint8_t *batch = malloc(MEGABYTE), *p = batch;
	static const uint8_t payload[20000];
	int fd;

	limits.max_suspended_bytes = 30000; /* the second one goes over it */
	start(&limits);
	fd = rig_connect(HOME, rig.tcp, NULL);
	for (uint32_t i = 0; i < 20; i++) {
		size_t len = rig_call_opaque(p + 4, i, RIG_PROGRAM, RIG_SUSPEND, payload, sizeof(payload));

		rig_put(p, 0x80000000u | (uint32_t)len);
		p += 4 + len;
	}
	rig_send_all(fd, batch, (size_t)(p - batch));
	for (uint32_t i = 0; i < 20; i++) {
		rig_wait_suspended(&rig, HF_MIN(2u, 20 - i));
		assert_int_equal(look().copy.n_suspended, HF_MIN(2u, 20 - i));
		rig_release(&rig, 1);
		expect_echo(fd, i, payload, sizeof(payload));
	}
	free(batch);
	close(fd);
	rig_stop(&rig);
}

/* Where the calls of all connections hold too much, a connection that holds some waits with its next one
 * until others have ended; its first one is served. */
static void test_suspended_bytes_limit_of_all(void **state)
{
	struct hf_rpc_limits limits = rig_limits;
	static const uint8_t payload[10000];
	uint8_t *p = buffer;
	int many[8], fd;

	limits.max_charged = 100000;
	limits.max_reply = 1000;
	start(&limits);
	for (uint32_t i = 0; i < HF_ARRAY_SIZE(many); i++) {
		many[i] = rig_connect(HOME, rig.tcp, NULL);
		rig_send_record(many[i], buffer,
				rig_call_opaque(buffer, i, RIG_PROGRAM, RIG_SUSPEND, payload,
						sizeof(payload)));
		rig_wait_suspended(&rig, i + 1);
	}
	fd = rig_connect(HOME, rig.tcp, NULL);
	for (uint32_t i = 0; i < 3; i++) { /* in one piece, so that all are there when the first is begun */
		size_t len = rig_call_opaque(p + 4, i, RIG_PROGRAM, RIG_SUSPEND, payload, sizeof(payload));

		rig_put(p, 0x80000000u | (uint32_t)len);
		p += 4 + len;
	}
	rig_send_all(fd, buffer, (size_t)(p - buffer));
	rig_wait_suspended(&rig, 9);
	look(); /* at the end of that turn */
	assert_int_equal(rig_suspended(&rig), 9);
	rig_release(&rig, 8); /* those of the others */
	rig_wait_suspended(&rig, 3);
	rig_release(&rig, 3);
	for (uint32_t i = 0; i < 3; i++)
		expect_echo(fd, i, payload, sizeof(payload));
	for (uint32_t i = 0; i < HF_ARRAY_SIZE(many); i++) {
		expect_echo(many[i], i, payload, sizeof(payload));
		close(many[i]);
	}
	close(fd);
	rig_wait_connections(&rig, 0);
	assert_int_equal(look().lane_charged, 0);
	rig_stop(&rig);
}

static bool has_dropped(void *arg)
{
	return rig_counts(&rig).dropped == 1;
}

/* Datagrams together may keep 16 times as many; what comes then is lost, and served when it comes again. */
static void test_suspended_limit_udp(void **state)
{
	struct hf_rpc_limits limits = rig_limits;
	uint8_t reply[256];
	int udp;

	limits.max_suspended_per_connection = 2;
	start(&limits);
	udp = rig_udp(HOME);
	for (uint32_t i = 0; i < 32; i++)
		rig_sendto(udp, HOME, rig.udp, buffer,
			   rig_call_opaque(buffer, i, RIG_PROGRAM, RIG_SUSPEND, &i, 4));
	rig_wait_suspended(&rig, 32);
	assert_int_equal(rig_counts(&rig).datagrams, 32);
	rig_sendto(udp, HOME, rig.udp, buffer, rig_call(buffer, 100, RIG_PROGRAM, RIG_VOID, NULL, 0));
	rig_wait(has_dropped, NULL, "the one over the limit is dropped");
	rig_release(&rig, 32);
	for (uint32_t i = 0; i < 32; i++)
		rig_check_success(reply, rig_recvfrom(udp, reply, sizeof(reply), NULL), i);
	rig_sendto(udp, HOME, rig.udp, buffer, rig_call(buffer, 101, RIG_PROGRAM, RIG_VOID, NULL, 0));
	rig_expect_words(udp, (uint32_t[]){ 101, 1, 0, 0, 0, 0 }, 6);
	assert_int_equal(rig_counts(&rig).datagrams, 0);
	close(udp);
	rig_stop(&rig);
}

/* Back-pressure */

struct flood {
	int fd;
	uint8_t *stream;
	size_t len;
	size_t sent;
};

/* Calls of @size bytes, which may be more than they need, so that a few fill the kernel's buffers. */
static void make_flood(struct flood *flood, uint32_t n, uint32_t size, uint32_t proc, uint32_t word)
{
	uint8_t *p = flood->stream = calloc(n, size + 4);

	for (uint32_t i = 0; i < n; i++) {
		rig_call_word(p + 4, i, RIG_PROGRAM, proc, word);
		rig_put(p, 0x80000000u | size);
		p += 4 + size;
	}
	flood->len = (size_t)(p - flood->stream);
	flood->sent = 0;
}

/* Sends until the server takes no more: it has paused the connection, and what is between the two is full. A
 * server that has not come to it yet is no such case, however long it takes. */
static void send_until_stuck(struct flood *flood)
{
	uint64_t began = rig_ms();
	bool is_stuck = false;

	while (!is_stuck) {
		ssize_t n = send(flood->fd, flood->stream + flood->sent, flood->len - flood->sent,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0) {
			flood->sent += (size_t)n;
			assert_true(flood->sent < flood->len); /* it did push back */
		} else {
			assert_int_equal(errno, EAGAIN);
			assert_true(rig_ms() - began < 60000);
			is_stuck = poll(&(struct pollfd){ .fd = flood->fd, .events = POLLOUT }, 1, 20) == 0 &&
				   look().is_paused;
		}
	}
}

static void test_never_reads(void **state)
{
	enum {
		N = 2500,
		SIZE = 800
	};
	struct flood flood;
	struct look l;
	uint32_t at_pause;
	int other;

	start(&rig_limits);
	rig_narrow(rig.tcp);
	other = rig_connect(HOME, rig.tcp, NULL);
	flood.fd = rig_connect_small(HOME, rig.tcp, 32768);
	make_flood(&flood, N, 2000, RIG_BIG, SIZE);
	send_until_stuck(&flood);
	l = look();
	assert_true(l.copy.out.n_bytes <= rig_limits.max_unread + SIZE + 64);
	assert_true(l.allocated <= rig_limits.max_unread + (96u << 10));
	assert_true(l.copy.backlog_len <= 256 << 10);
	assert_int_equal(l.copy.reader.capacity, 0);
	at_pause = atomic_load(&rig.n_served);
	check_served(other, 1);
	assert_int_equal(atomic_load(&rig.n_served), at_pause + 1); /* none for the first client */
	/* At last the client reads: everything comes, in order. */
	for (uint32_t i = 0; i < N; i++) {
		size_t len;

		while (flood.sent < flood.len) {
			ssize_t n = send(flood.fd, flood.stream + flood.sent, flood.len - flood.sent,
					 MSG_DONTWAIT | MSG_NOSIGNAL);

			if (n <= 0)
				break;
			flood.sent += (size_t)n;
		}
		len = rig_expect_success(flood.fd, i, results, sizeof(results));
		assert_int_equal(len, 4 + SIZE);
		assert_int_equal(results[4 + SIZE - 1], (uint8_t)((SIZE - 1) * 7 + SIZE));
	}
	assert_int_equal(look().copy.out.n_bytes, 0);
	free(flood.stream);
	close(flood.fd);
	close(other);
	rig_stop(&rig);
}

/* Handlers that reserve much and use little must not make the queue of unread replies cost much. */
static void test_never_reads_reserved(void **state)
{
	enum {
		SIZE = 1200
	};
	static const uint32_t reserves[] = { 20000, 40000 };

	for (size_t k = 0; k < HF_ARRAY_SIZE(reserves); k++) {
		struct flood flood;
		struct look l;
		uint32_t n;

		start(&rig_limits);
		rig_narrow(rig.tcp);
		flood.fd = rig_connect_small(HOME, rig.tcp, 32768);
		make_flood(&flood, 4000, SIZE, RIG_RESERVE, reserves[k]);
		send_until_stuck(&flood);
		l = look();
		print_message("  reserve %u: %zu bytes queued hold %zu\n", reserves[k], l.copy.out.n_bytes,
			      l.allocated);
		assert_true(l.allocated <= rig_limits.max_unread + 2 * (size_t)reserves[k] + (96u << 10));
		/* and goes on: more than were served before the pause */
		n = (uint32_t)(flood.sent / (4 + SIZE));
		assert_true(n > atomic_load(&rig.n_served));
		for (uint32_t i = 0; i < n; i++)
			assert_int_equal(rig_expect_success(flood.fd, i, results, sizeof(results)),
					 RIG_RESERVE_USED);
		free(flood.stream);
		close(flood.fd);
		rig_stop(&rig);
	}
}

/* One reply that is much longer than all that may be unread. */
static void test_big_replies(void **state)
{
	int fd;

	start(&rig_limits);
	fd = rig_connect_small(HOME, rig.tcp, 32768);
	for (uint32_t i = 0; i < 20; i++)
		rig_send_record(fd, buffer, rig_call_word(buffer, i, RIG_PROGRAM, RIG_BIG, MEGABYTE));
	assert_true(look().allocated <= 2 * MEGABYTE);
	for (uint32_t i = 0; i < 20; i++) {
		assert_int_equal(rig_expect_success(fd, i, results, sizeof(results)), 4 + MEGABYTE);
		assert_int_equal(results[4 + MEGABYTE - 1], (uint8_t)((MEGABYTE - 1) * 7 + MEGABYTE));
	}
	check_served(fd, 100);
	close(fd);
	rig_stop(&rig);
}

static bool is_at_rest(void *arg)
{
	size_t *before = arg, now = look().lane_charged, was = *before;

	*before = now;
	return now > 2 * MEGABYTE && now == was;
}

/* Every byte that waits to be read counts for its address, which has half of the memory; another address gets
 * its long replies beside it, and calls for short ones are served even where no memory is left. */
static void test_unread_of_one_address(void **state)
{
	struct hf_rpc_limits limits = rig_limits;
	enum {
		N_CALLS = 8 /* of a megabyte: more than the kernel's buffers take */
	};
	size_t held = 0;
	int many[20], fd;

	limits.max_charged = 8 * MEGABYTE;
	limits.max_reply = MEGABYTE + 4096;
	start(&limits);
	for (uint32_t i = 0; i < HF_ARRAY_SIZE(many); i++) {
		many[i] = rig_connect(HOME, rig.tcp, "127.0.0.2");
		setsockopt(many[i], SOL_SOCKET, SO_RCVBUF, &(int){ 32768 }, sizeof(int));
		for (uint32_t k = 0; k < N_CALLS; k++)
			rig_send_record(many[i], buffer,
					rig_call_word(buffer, k, RIG_PROGRAM, RIG_BIG, MEGABYTE));
	}
	fd = rig_connect(HOME, rig.tcp, "127.0.0.2");
	check_served(fd, 1);
	rig_wait(is_at_rest, &held, "it holds as much as it will");
	assert_true(held <= 4 * MEGABYTE + (128 << 10)); /* half, and calls that are not begun */
	check_served(fd, 2);
	close(fd);
	fd = rig_connect(HOME, rig.tcp, "127.0.0.3");
	for (uint32_t i = 0; i < 5; i++) {
		rig_send_record(fd, buffer, rig_call_word(buffer, i, RIG_PROGRAM, RIG_BIG, MEGABYTE));
		assert_int_equal(rig_expect_success(fd, i, results, sizeof(results)), 4 + MEGABYTE);
	}
	close(fd);
	/* Whatever had to wait comes as soon as there is room: here when the others hang up. Which of them
	 * hold the memory is a matter of chance, so that to read one after the other would wait for those. */
	for (uint32_t i = 1; i < HF_ARRAY_SIZE(many); i++)
		close(many[i]);
	for (uint32_t k = 0; k < N_CALLS; k++)
		assert_int_equal(rig_expect_success(many[0], k, results, sizeof(results)), 4 + MEGABYTE);
	close(many[0]);
	rig_wait_connections(&rig, 0);
	assert_int_equal(look().lane_charged, 0);
	rig_stop(&rig);
}

/* A connection waits for memory that others of its address hold, and leave unread: they are closed. */
static void test_unread_is_closed(void **state)
{
	struct hf_rpc_limits limits = rig_limits;
	int many[5], fd;

	limits.max_charged = 4 * MEGABYTE;
	limits.max_reply = MEGABYTE + 4096;
	limits.stuck_ns = HF_NS_PER_S;
	start(&limits);
	for (uint32_t i = 0; i < HF_ARRAY_SIZE(many); i++) {
		many[i] = rig_connect(HOME, rig.tcp, "127.0.0.2");
		setsockopt(many[i], SOL_SOCKET, SO_RCVBUF, &(int){ 32768 }, sizeof(int));
		for (uint32_t k = 0; k < 16; k++)
			rig_send_record(many[i], buffer,
					rig_call_word(buffer, k, RIG_PROGRAM, RIG_BIG, MEGABYTE));
	}
	fd = rig_connect(HOME, rig.tcp, "127.0.0.2");
	for (uint32_t i = 0; i < 20; i++) {
		rig_send_record(fd, buffer, rig_call_word(buffer, i, RIG_PROGRAM, RIG_BIG, MEGABYTE));
		assert_int_equal(rig_expect_success(fd, i, results, sizeof(results)), 4 + MEGABYTE);
	}
	assert_true(rig_counts(&rig).refused > 0);
	for (uint32_t i = 0; i < HF_ARRAY_SIZE(many); i++)
		close(many[i]);
	close(fd);
	rig_wait_connections(&rig, 0);
	assert_int_equal(look().lane_charged, 0);
	rig_stop(&rig);
}

/* Limits */

/* All places are taken: one that comes then is hung up on. False: it took so long that one of them may have
 * been idle for a second, and had to make room. */
static bool fill_up(int fds[5])
{
	uint64_t began = rig_ms();
	bool is_closed;
	int late;

	for (int i = 0; i < 5; i++) {
		fds[i] = rig_connect(HOME, rig.tcp, NULL);
		check_served(fds[i], (uint32_t)i);
	}
	late = rig_connect(HOME, rig.tcp, NULL);
	is_closed = rig_is_closed(late);
	close(late);
	if (rig_ms() - began >= 1000)
		return false;
	assert_true(is_closed);
	return true;
}

static void test_limit_in_all(void **state)
{
	struct hf_rpc_limits limits = rig_limits;
	int fds[5], late;

	limits.max_connections = 5;
	for (start(&limits); !fill_up(fds); start(&limits)) {
		for (int i = 0; i < 5; i++)
			close(fds[i]);
		rig_stop(&rig);
	}
	assert_int_equal(rig_counts(&rig).refused, 1);
	for (int i = 0; i < 5; i++)
		check_served(fds[i], 7);
	close(fds[2]);
	rig_wait_connections(&rig, 4);
	fds[2] = rig_connect(HOME, rig.tcp, NULL);
	check_served(fds[2], 8);
	/* Once it has been idle for a second, the one idle longest makes room: 0 has spoken since, 1 has not.
	 */
	check_served(fds[0], 9);
	rig_wait_idle(&rig, HF_NS_PER_S);
	late = rig_connect(HOME, rig.tcp, NULL);
	check_served(late, 10);
	assert_true(rig_is_closed(fds[1]));
	check_served(fds[0], 11);
	check_served(fds[2], 11);
	check_served(fds[3], 11);
	check_served(fds[4], 11);
	for (int i = 0; i < 5; i++)
		close(fds[i]);
	close(late);
	rig_stop(&rig);
}

static bool is_past(void *arg)
{
	return rig_ms() >= *(const uint64_t *)arg;
}

/* Until it is so late by the clock: for what is about time. */
static void wait_until_ms(uint64_t when)
{
	rig_wait(is_past, &when, "time passes");
}

/* A host with too many connections takes no other host's place, however long the others were idle. */
static void test_limit_per_host_comes_first(void **state)
{
	struct hf_rpc_limits limits = rig_limits;
	int fds[3], late;

	limits.max_connections = 3;
	limits.max_connections_per_host = 2;
	start(&limits);
	for (int i = 0; i < 3; i++) {
		fds[i] = rig_connect(HOME, rig.tcp, i ? "127.0.0.1" : "127.0.0.2");
		check_served(fds[i], 1);
	}
	wait_until_ms(rig_ms() + 1100); /* now their places could be given away */
	late = rig_connect(HOME, rig.tcp, "127.0.0.1");
	assert_true(rig_is_closed(late));
	close(late);
	for (int i = 0; i < 3; i++) {
		check_served(fds[i], 2);
		close(fds[i]);
	}
	rig_wait_connections(&rig, 0);
	rig_stop(&rig);
}

/* Full, and nothing is idle for long: a newcomer takes the place of the least useful connection of the
 * address that has the most. */
static void test_newcomer_replaces_one_of_the_most(void **state)
{
	struct hf_rpc_limits limits = rig_limits;
	int fds[6], few, late[2];

	limits.max_connections = 7;
	start(&limits);
	few = rig_connect(HOME, rig.tcp, "127.0.0.3");
	check_served(few, 1);
	for (int i = 0; i < 6; i++) {
		fds[i] = rig_connect(HOME, rig.tcp, "127.0.0.2");
		if (i == 3) /* an incomplete record, and no call before */
			rig_send_all(fds[i], "", 1);
		else
			check_served(fds[i], 1);
	}
	check_served(fds[0], 2);
	for (int i = 0; i < 2; i++) {
		late[i] = rig_connect(HOME, rig.tcp, i ? "127.0.0.5" : "127.0.0.4");
		check_served(late[i], 3);
	}
	assert_true(rig_is_closed(fds[3]));
	assert_true(rig_is_closed(fds[1]));
	check_served(few, 4);
	for (int i = 0; i < 6; i++) {
		if (i != 1 && i != 3)
			check_served(fds[i], 5);
		close(fds[i]);
	}
	close(few);
	close(late[0]);
	close(late[1]);
	rig_wait_connections(&rig, 0);
	rig_stop(&rig);
}

static void test_limit_per_host(void **state)
{
	struct hf_rpc_limits limits = rig_limits;
	int fds[3], other, late;

	limits.max_connections_per_host = 3;
	start(&limits);
	for (int i = 0; i < 3; i++) {
		fds[i] = rig_connect(HOME, rig.tcp, "127.0.0.2");
		check_served(fds[i], 1);
	}
	late = rig_connect(HOME, rig.tcp, "127.0.0.2");
	assert_true(rig_is_closed(late));
	close(late);
	other = rig_connect(HOME, rig.tcp, "127.0.0.3");
	check_served(other, 2);
	close(fds[0]);
	rig_wait_connections(&rig, 3);
	fds[0] = rig_connect(HOME, rig.tcp, "127.0.0.2");
	check_served(fds[0], 3);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	close(other);
	rig_stop(&rig);
}

/* A client that hangs up and connects again has not ended the calls that it began. */
static void hang_up_with_calls(struct hf_rpc_limits limits)
{
	int fd;

	start(&limits);
	for (uint32_t i = 0; i < 3; i++) {
		fd = rig_connect(HOME, rig.tcp, "127.0.0.2");
		rig_send_record(fd, buffer, rig_call_opaque(buffer, i, RIG_PROGRAM, RIG_SUSPEND, "x", 1));
		rig_wait_suspended(&rig, i + 1);
		close(fd);
		rig_wait_connections(&rig, 0);
	}
	fd = rig_connect(HOME, rig.tcp, "127.0.0.2");
	assert_true(rig_is_closed(fd));
	close(fd);
	rig_release(&rig, 1);
	fd = rig_connect(HOME, rig.tcp, "127.0.0.2");
	check_served(fd, 5);
	close(fd);
	rig_release(&rig, 2);
	rig_stop(&rig);
}

static void test_limit_per_host_of_broken_ones(void **state)
{
	struct hf_rpc_limits limits = rig_limits;

	limits.max_connections_per_host = 3;
	hang_up_with_calls(limits);
}

static void test_limit_in_all_of_broken_ones(void **state)
{
	struct hf_rpc_limits limits = rig_limits;

	limits.max_connections = 3;
	hang_up_with_calls(limits);
}

static void test_idle_timeout(void **state)
{
	struct hf_rpc_limits limits = rig_limits;
	uint64_t end, spoke;
	int idle, suspended;

	limits.idle_ns = 1500 * HF_NS_PER_MS; /* in which the test gets round to speaking */
	start(&limits);
	suspended = rig_connect(HOME, rig.tcp, NULL);
	rig_send_record(suspended, buffer, rig_call_opaque(buffer, 1, RIG_PROGRAM, RIG_SUSPEND, "x", 1));
	rig_wait_suspended(&rig, 1);
	idle = rig_connect(HOME, rig.tcp, NULL);
	end = rig_ms() + 2500;
	for (uint32_t i = 0; (spoke = rig_ms()) < end; i++) { /* one that speaks now and then is not idle */
		check_served(idle, i);
		assert_int_equal(poll(&(struct pollfd){ .fd = idle, .events = POLLIN }, 1, 20), 0);
	}
	assert_true(rig_is_closed(idle));
	assert_true(rig_ms() - spoke >= 1000);
	/* the one that waits for the server has not been closed */
	rig_release(&rig, 1);
	expect_echo(suspended, 1, "x", 1);
	assert_true(rig_is_closed(suspended)); /* but now it is idle */
	close(idle);
	close(suspended);
	rig_stop(&rig);
}

static void test_stall_timeout(void **state)
{
	struct hf_rpc_limits limits = rig_limits;
	struct flood flood;
	uint64_t began;
	static const uint8_t nothing[1 << 20];
	int partial, dripping, empty, idle;

	limits.stall_ns = 400 * HF_NS_PER_MS;
	start(&limits);
	idle = rig_connect(HOME, rig.tcp, NULL);
	partial = rig_connect(HOME, rig.tcp, NULL);
	began = rig_ms();
	rig_send_all(partial, "\x80\0", 2); /* half a record mark */
	assert_true(rig_is_closed(partial));
	assert_true(rig_ms() - began >= 350);
	/* bytes that drip in do not make a record that does not end any better */
	dripping = rig_connect(HOME, rig.tcp, NULL);
	rig_send_all(dripping, "\x80\0\x10\0", 4);
	began = rig_ms();
	for (;;) {
		struct pollfd p = { .fd = dripping, .events = POLLIN };

		if (poll(&p, 1, 20))
			break;
		if (send(dripping, "x", 1, MSG_NOSIGNAL) < 0)
			break;
		assert_true(rig_ms() - began < 20000);
	}
	/* nor do fragments without bytes, however many: it is tired, and waits for the server all the time */
	empty = rig_connect(HOME, rig.tcp, NULL);
	while (send(empty, nothing, sizeof(nothing), MSG_NOSIGNAL) > 0)
		assert_true(rig_ms() - began < 60000);
	/* one that never takes its replies */
	flood.fd = rig_connect_small(HOME, rig.tcp, 32768);
	make_flood(&flood, 25000, 2000, RIG_BIG, 800);
	while (flood.sent < flood.len) {
		ssize_t n = send(flood.fd, flood.stream + flood.sent, flood.len - flood.sent, MSG_NOSIGNAL);

		if (n <= 0)
			break;
		flood.sent += (size_t)n;
	}
	assert_true(flood.sent < flood.len);
	rig_wait_connections(&rig, 1);
	check_served(idle, 1);
	free(flood.stream);
	close(flood.fd);
	close(partial);
	close(dripping);
	close(empty);
	close(idle);
	rig_stop(&rig);
}

/* A slow reader that does read is not stalled, however long it takes. */
static void test_slow_reader(void **state)
{
	struct hf_rpc_limits limits = rig_limits;
	uint64_t began;
	int fd, n_reads = 0;

	limits.stall_ns = 3 * HF_NS_PER_S;
	start(&limits);
	fd = rig_connect_small(HOME, rig.tcp, 65536);
	rig_send_record(fd, buffer, rig_call_word(buffer, 1, RIG_PROGRAM, RIG_BIG, 4 * MEGABYTE));
	began = rig_ms();
	for (size_t got = 0; got < 4 + 24 + 4 + 4 * MEGABYTE;) {
		ssize_t n = recv(fd, results, 256 << 10, 0);

		assert_true(n > 0);
		got += (size_t)n;
		wait_until_ms(began + 200 * (uint64_t)++n_reads); /* longer than the limit in all */
	}
	check_served(fd, 2);
	close(fd);
	rig_stop(&rig);
}

/* Of incomplete records that are too much together, the oldest goes. */
static void test_gathering_limit(void **state)
{
	struct hf_rpc_limits limits = rig_limits;
	uint8_t *part = calloc(1, 200 << 10);
	int fds[4], idle;

	limits.max_gathering = 1 << 20;
	start(&limits);
	idle = rig_connect(HOME, rig.tcp, NULL);
	check_served(idle, 1);
	rig_put(part, 0x80000000u | (900 << 10));
	for (int i = 0; i < 4; i++) {
		/* 0 is older, but has little; it has to go first all the same */
		size_t len = i ? 300 << 10 : 100;

		fds[i] = rig_connect(HOME, rig.tcp, NULL);
		for (size_t at = 0; at < len;) {
			size_t n = HF_MIN((size_t)(100 << 10), len - at);

			rig_send_all(fds[i], at ? part + 4 : part, n);
			at += n;
			while (look().n_busy < (size_t)HF_MIN(i + 1, 2) && at >= len)
				break;
		}
		look();
	}
	assert_true(rig_is_closed(fds[0]));
	assert_true(look().n_gathering <= 1 << 20);
	assert_true(rig_counts(&rig).refused >= 1);
	/* the newest lives: it completes its record and is answered */
	for (size_t at = 300 << 10; at < (900 << 10) + 4;) {
		size_t n = HF_MIN((size_t)(100 << 10), (900 << 10) + 4 - at);

		rig_send_all(fds[3], part + 4, n);
		at += n;
	}
	rig_expect_words(fds[3], (uint32_t[]){ 0, 1, 1, 0, 2, 2 }, 6); /* zeros are a call of version 0 */
	check_served(idle, 2);
	for (int i = 0; i < 4; i++)
		close(fds[i]);
	close(idle);
	free(part);
	rig_wait_connections(&rig, 0);
	assert_int_equal(look().n_gathering, 0);
	rig_stop(&rig);
}

/* A peer that sends and shuts down its side at once still gets what was answered at once. */
static void test_half_closed(void **state)
{
	int fd;

	start(&rig_limits);
	fd = rig_connect(HOME, rig.tcp, NULL);
	call_echo(fd, 1, "last words", 10);
	shutdown(fd, SHUT_WR);
	expect_echo(fd, 1, "last words", 10);
	assert_true(rig_is_closed(fd));
	close(fd);
	/* and one that resets */
	fd = rig_connect(HOME, rig.tcp, NULL);
	check_served(fd, 2);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger));
	close(fd);
	rig_wait_connections(&rig, 0);
	rig_stop(&rig);
}

/* Replay */

static uint32_t count_word(int fd, uint32_t xid)
{
	assert_int_equal(rig_expect_success(fd, xid, results, sizeof(results)), 4);
	return rig_get(results);
}

static uint32_t count_datagram(int fd, uint32_t xid)
{
	uint8_t reply[64];
	ssize_t n = rig_recvfrom(fd, reply, sizeof(reply), NULL);

	rig_check_success(reply, n, xid);
	assert_int_equal(n, 28);
	return rig_get(reply + 24);
}

static void send_count(int fd, uint32_t xid, uint32_t proc)
{
	rig_send_record(fd, buffer, rig_call(buffer, xid, RIG_PROGRAM, proc, NULL, 0));
}

static void sendto_count(int fd, uint32_t xid, uint32_t proc)
{
	rig_sendto(fd, HOME, rig.udp, buffer, rig_call(buffer, xid, RIG_PROGRAM, proc, NULL, 0));
}

static void test_replay(void **state)
{
	int udp[2], tcp[2];

	start(&rig_limits);
	udp[0] = rig_udp(HOME);
	udp[1] = rig_udp("127.0.0.2");
	tcp[0] = rig_connect(HOME, rig.tcp, NULL);
	/* over UDP, done once, answered each time, whatever port it comes from */
	for (int i = 0; i < 3; i++) {
		sendto_count(udp[0], 5, RIG_COUNT);
		assert_int_equal(count_datagram(udp[0], 5), 1);
	}
	close(udp[0]);
	udp[0] = rig_udp(HOME);
	sendto_count(udp[0], 5, RIG_COUNT);
	assert_int_equal(count_datagram(udp[0], 5), 1);
	/* another host with the same xid is another call */
	sendto_count(udp[1], 5, RIG_COUNT);
	assert_int_equal(count_datagram(udp[1], 5), 2);
	/* so is another xid */
	sendto_count(udp[0], 6, RIG_COUNT);
	assert_int_equal(count_datagram(udp[0], 6), 3);
	/* over TCP, and again over a new connection */
	send_count(tcp[0], 7, RIG_COUNT);
	assert_int_equal(count_word(tcp[0], 7), 4);
	tcp[1] = rig_connect(HOME, rig.tcp, NULL);
	send_count(tcp[1], 7, RIG_COUNT);
	assert_int_equal(count_word(tcp[1], 7), 4);
	assert_int_equal(rig_counts(&rig).replayed, 4);
	/* one for datagrams only */
	sendto_count(udp[0], 8, RIG_COUNT_UDP);
	assert_int_equal(count_datagram(udp[0], 8), 5);
	sendto_count(udp[0], 8, RIG_COUNT_UDP);
	assert_int_equal(count_datagram(udp[0], 8), 5);
	send_count(tcp[0], 9, RIG_COUNT_UDP);
	assert_int_equal(count_word(tcp[0], 9), 6);
	send_count(tcp[0], 9, RIG_COUNT_UDP);
	assert_int_equal(count_word(tcp[0], 9), 7);
	for (int i = 0; i < 2; i++) {
		close(udp[i]);
		close(tcp[i]);
	}
	rig_stop(&rig);
}

/* As where the store is too slow for the server to stop: the leak checker sees what stays. */
static void test_end_with_calls_that_do_not_end(void **state)
{
	int udp, tcp[2];

	start(&rig_limits);
	udp = rig_udp(HOME);
	sendto_count(udp, 5, RIG_COUNT_SUSPEND);
	tcp[0] = rig_connect(HOME, rig.tcp, NULL);
	send_count(tcp[0], 7, RIG_COUNT_SUSPEND);
	rig_wait_suspended(&rig, 2);
	tcp[1] = rig_connect(HOME, rig.tcp, NULL);
	send_count(tcp[1], 7, RIG_COUNT_SUSPEND); /* follows the other */
	check_served(tcp[1], 8);
	rig.n_suspended = 0;
	rig_stop(&rig);
	close(udp);
	close(tcp[0]);
	close(tcp[1]);
}

static void test_replay_under_way(void **state)
{
	int udp, tcp[4];

	start(&rig_limits);
	udp = rig_udp(HOME);
	/* UDP: repeats while it is under way are dropped, one reply for all */
	for (int i = 0; i < 3; i++)
		sendto_count(udp, 5, RIG_COUNT_SUSPEND);
	rig_wait_suspended(&rig, 1);
	sendto_count(udp, 6, RIG_COUNT); /* this comes through first: the others have been seen */
	assert_int_equal(count_datagram(udp, 6), 1);
	assert_int_equal(rig_suspended(&rig), 1);
	rig_release(&rig, 1);
	assert_int_equal(count_datagram(udp, 5), 2);
	sendto_count(udp, 5, RIG_COUNT_SUSPEND);
	assert_int_equal(count_datagram(udp, 5), 2);
	/* TCP: the client comes back on a new connection while the first call is under way */
	tcp[0] = rig_connect(HOME, rig.tcp, NULL);
	send_count(tcp[0], 7, RIG_COUNT_SUSPEND);
	rig_wait_suspended(&rig, 1);
	close(tcp[0]);
	rig_wait_connections(&rig, 0);
	tcp[1] = rig_connect(HOME, rig.tcp, NULL);
	send_count(tcp[1], 7, RIG_COUNT_SUSPEND);
	check_served(tcp[1], 8);
	assert_int_equal(rig_suspended(&rig), 1);
	rig_release(&rig, 1);
	assert_int_equal(count_word(tcp[1], 7), 3);
	/* both connections live: both are answered */
	tcp[2] = rig_connect(HOME, rig.tcp, NULL);
	send_count(tcp[1], 9, RIG_COUNT_SUSPEND);
	rig_wait_suspended(&rig, 1);
	send_count(tcp[2], 9, RIG_COUNT_SUSPEND);
	check_served(tcp[2], 10);
	rig_release(&rig, 1);
	assert_int_equal(count_word(tcp[1], 9), 4);
	assert_int_equal(count_word(tcp[2], 9), 4);
	/* a third repeat takes the place of the second; and the one that follows may go away */
	send_count(tcp[1], 11, RIG_COUNT_SUSPEND);
	rig_wait_suspended(&rig, 1);
	send_count(tcp[2], 11, RIG_COUNT_SUSPEND);
	check_served(tcp[2], 12);
	tcp[3] = rig_connect(HOME, rig.tcp, NULL);
	send_count(tcp[3], 11, RIG_COUNT_SUSPEND);
	check_served(tcp[3], 13);
	rig_release(&rig, 1);
	assert_int_equal(count_word(tcp[1], 11), 5);
	assert_int_equal(count_word(tcp[3], 11), 5);
	check_served(tcp[2], 14); /* nothing else came on it */
	/* the call is dropped, and so is the repeat that waits for it; the next repeat is served anew */
	send_count(tcp[1], 15, RIG_COUNT_SUSPEND);
	rig_wait_suspended(&rig, 1);
	send_count(tcp[2], 15, RIG_COUNT_SUSPEND);
	check_served(tcp[2], 16);
	rig_drop(&rig, 1);
	check_served(tcp[2], 17);
	send_count(tcp[2], 15, RIG_COUNT_SUSPEND);
	rig_wait_suspended(&rig, 1);
	rig_release(&rig, 1);
	assert_int_equal(count_word(tcp[2], 15), 6);
	/* the connection of the repeat breaks before the call ends */
	send_count(tcp[1], 18, RIG_COUNT_SUSPEND);
	rig_wait_suspended(&rig, 1);
	send_count(tcp[2], 18, RIG_COUNT_SUSPEND);
	check_served(tcp[2], 19);
	close(tcp[2]);
	rig_wait_connections(&rig, 2);
	rig_release(&rig, 1);
	assert_int_equal(count_word(tcp[1], 18), 7);
	close(tcp[1]);
	close(tcp[3]);
	close(udp);
	rig_stop(&rig);
}

static void test_counts(void **state)
{
	struct hf_rpc_counts counts;
	int fd;

	start(&rig_limits);
	fd = rig_connect(HOME, rig.tcp, NULL);
	for (uint32_t i = 0; i < 10; i++)
		check_served(fd, i);
	counts = rig_counts(&rig);
	assert_int_equal(counts.calls, 10);
	assert_int_equal(counts.connections, 1);
	assert_int_equal(counts.refused, 0);
	close(fd);
	rig_wait_connections(&rig, 0);
	rig_stop(&rig);
}

static void stop_listening(struct rig *r, void *arg)
{
	hf_rpc_lane_stop_listening(r->lanes[0]);
}

static void test_stop_listening(void **state)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd, late;

	start(&rig_limits);
	fd = rig_connect(HOME, rig.tcp, NULL);
	check_served(fd, 1);
	rig_run_on(&rig, 0, stop_listening, NULL);
	check_served(fd, 2);
	late = socket(AF_INET, SOCK_STREAM, 0);
	in.sin_port = htons(rig.tcp);
	assert_int_equal(connect(late, (struct sockaddr *)&in, sizeof(in)), -1);
	assert_int_equal(errno, ECONNREFUSED);
	close(late);
	rig_run_on(&rig, 0, close_lane, NULL);
	assert_true(rig_is_closed(fd));
	close(fd);
	rig_stop(&rig);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_who),
		cmocka_unit_test(test_pipelined),
		cmocka_unit_test(test_byte_by_byte),
		cmocka_unit_test(test_fragments),
		cmocka_unit_test(test_largest),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_promises_are_free),
		cmocka_unit_test(test_reply_from_called_address),
		cmocka_unit_test(test_ipv6),
		cmocka_unit_test(test_unreachable_client),
		cmocka_unit_test(test_datagram_sizes),
		cmocka_unit_test(test_many_datagrams),
		cmocka_unit_test(test_suspended),
		cmocka_unit_test(test_suspended_then_gone),
		cmocka_unit_test(test_suspended_beyond_the_lane),
		cmocka_unit_test(test_suspended_limit),
		cmocka_unit_test(test_suspended_bytes_limit),
		cmocka_unit_test(test_suspended_bytes_limit_of_all),
		cmocka_unit_test(test_unread_of_one_address),
		cmocka_unit_test(test_unread_is_closed),
		cmocka_unit_test(test_suspended_limit_udp),
		cmocka_unit_test(test_never_reads),
		cmocka_unit_test(test_never_reads_reserved),
		cmocka_unit_test(test_big_replies),
		cmocka_unit_test(test_limit_in_all),
		cmocka_unit_test(test_limit_per_host_comes_first),
		cmocka_unit_test(test_newcomer_replaces_one_of_the_most),
		cmocka_unit_test(test_limit_per_host),
		cmocka_unit_test(test_limit_per_host_of_broken_ones),
		cmocka_unit_test(test_limit_in_all_of_broken_ones),
		cmocka_unit_test(test_idle_timeout),
		cmocka_unit_test(test_stall_timeout),
		cmocka_unit_test(test_slow_reader),
		cmocka_unit_test(test_gathering_limit),
		cmocka_unit_test(test_half_closed),
		cmocka_unit_test(test_replay),
		cmocka_unit_test(test_replay_under_way),
		cmocka_unit_test(test_end_with_calls_that_do_not_end),
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_stop_listening),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
