/* The RPC client asks a peer's rpcbind for the port. */
#include "../test.h"
#include "peers.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rpc/uaddr.h"

#define MS HF_NS_PER_MS

/* A host: rpcbind by UDP and TCP, and the program by UDP and TCP. */
struct host {
	struct peer rpcbind[2]; /* by enum hf_rpc_transport, as all here */
	struct peer program[2];
	uint32_t ports[2];       /* what rpcbind says */
	bool is_silent[2];       /* rpcbind, by that transport */
	bool serves[5];          /* rpcbind's versions */
	const char *uaddr;       /* in place of the true one */
	unsigned int n_asked[5]; /* by version */
};

static void answer_uaddr(const struct heard *heard, struct host *host)
{
	bool is_tcp = heard->line != NULL;
	struct hf_addr where = heard->peer->addr;
	char text[HF_UADDR_TEXT];
	uint8_t data[128];
	struct hf_xdr_out out;

	/* As the real ones do: by the transport of the question, whatever netid is in it. */
	where.port = (uint16_t)host->ports[is_tcp];
	hf_uaddr_format(&where, text, sizeof(text));
	hf_xdr_out_init(&out, data, sizeof(data));
	hf_rpc_put_success(&out, heard->header.xid);
	hf_xdr_put_string(&out, host->uaddr ? host->uaddr : where.port ? text : "");
	reply_bytes(heard, data, (size_t)(out.p - data));
}

static void check_rpcb(struct hf_xdr_in *args, const struct heard *heard)
{
	bool is_v6 = heard->peer->addr.family == AF_INET6;
	const char *netid = heard->line ? (is_v6 ? "tcp6" : "tcp") : (is_v6 ? "udp6" : "udp");
	struct hf_addr hint;

	assert_true(hf_bytes_equal(hf_xdr_get_opaque(args, 8), hf_bytes_of_str(netid)));
	assert_true(hf_uaddr_parse(&hint, hf_xdr_get_opaque(args, 60)));
	assert_true(hf_addr_equal(&hint, &heard->peer->addr));
	assert_int_equal(hf_xdr_get_opaque(args, 8).len, 0);
	assert_true(hf_xdr_in_is_ok(args) && hf_xdr_in_left(args) == 0);
}

static void script_rpcbind(const struct heard *heard)
{
	struct host *host = heard->peer->user;
	struct hf_xdr_in args = heard->args;
	uint32_t prot;

	assert_int_equal(heard->header.program, 100000);
	assert_int_equal(heard->header.procedure, 3);
	assert_in_range(heard->header.version, 2, 4);
	host->n_asked[heard->header.version]++;
	if (host->is_silent[heard->line != NULL])
		return;
	if (!host->serves[heard->header.version]) {
		reply_error(heard, HF_RPC_PROG_MISMATCH);
		return;
	}
	assert_int_equal(hf_xdr_get_u32(&args), TEST_PROGRAM);
	assert_int_equal(hf_xdr_get_u32(&args), TEST_VERSION);
	if (heard->header.version > 2) {
		check_rpcb(&args, heard);
		answer_uaddr(heard, host);
		return;
	}
	prot = hf_xdr_get_u32(&args);
	assert_true(prot == IPPROTO_UDP || prot == IPPROTO_TCP);
	reply_word(heard, host->ports[prot == IPPROTO_TCP]);
}

/* One port number that is free for UDP and for TCP. */
static void open_pair(struct peer pair[2], struct hf_loop *loop, const char *text, uint16_t port,
		      script_fn script)
{
	struct hf_socket_bind bind;
	struct hf_socket *probe;

	for (;;) {
		peer_open(&pair[0], loop, false, text, port, script);
		bind = (struct hf_socket_bind){ .addr = pair[0].addr };
		if (hf_tcp_listen(&probe, loop, &bind) == 0)
			break;
		assert_int_equal(port, 0);
		peer_close(&pair[0]);
	}
	hf_socket_close(probe);
	peer_open(&pair[1], loop, true, text, pair[0].addr.port, script);
}

static void host_open(struct host *host, struct world *world, const char *text, uint16_t rpcbind_port)
{
	memset(host, 0, sizeof(*host));
	open_pair(host->rpcbind, world->loop, text, rpcbind_port, script_rpcbind);
	peer_open(&host->program[0], world->loop, false, text, 0, script_echo);
	peer_open(&host->program[1], world->loop, true, text, 0, script_echo);
	host->rpcbind[0].user = host->rpcbind[1].user = host;
	host->ports[0] = host->program[0].addr.port;
	host->ports[1] = host->program[1].addr.port;
	host->serves[2] = host->serves[3] = host->serves[4] = true;
	hf_rpc_client_set_rpcbind_port(world->client, host->rpcbind[0].addr.port);
}

static void host_close(struct host *host)
{
	for (int i = 0; i < 2; i++) {
		peer_close(&host->rpcbind[i]);
		peer_close(&host->program[i]);
	}
}

static struct hf_rpc_request request_host(const struct host *host, enum hf_rpc_path path)
{
	struct hf_rpc_request request = request_to(&host->rpcbind[0].addr, path);

	request.remote.port = 0;
	return request;
}

/* What most tests begin with: a world with one host in it, and a request to that. */
struct place {
	struct world world;
	struct host host;
	struct hf_rpc_request request;
};

static void place_open(struct place *place, const struct hf_rpc_client_limits *limits, const char *text,
		       enum hf_rpc_path path)
{
	world_open(&place->world, limits);
	host_open(&place->host, &place->world, text, 0);
	place->request = request_host(&place->host, path);
}

static void place_close(struct place *place)
{
	host_close(&place->host);
	world_close(&place->world);
}

static struct outcome place_call(struct place *place, uint32_t word)
{
	struct outcome outcome = { 0 };

	call_and_run(&place->world, &outcome, &place->request, word);
	return outcome;
}

static void test_version_2(void **state)
{
	struct world world;
	struct host host;

	world_open(&world, NULL);
	host_open(&host, &world, "127.0.0.2", 0);
	for (int i = 0; i < 4; i++) { /* twice each: the second time it is known */
		struct hf_rpc_request request =
			request_host(&host, i % 2 ? HF_RPC_TCP_ONLY : HF_RPC_UDP_ONLY);
		struct outcome o = { 0 };

		request.local = address("127.0.0.5", 0);
		call_and_run(&world, &o, &request, 1);
		assert_outcome(o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
		assert_true(hf_addr_equal(&o.result.remote, &host.program[i % 2].addr));
		assert_true(hf_addr_same_host(&host.rpcbind[0].last_from, &request.local));
		assert_true(hf_addr_same_host(&host.program[i % 2].last_from, &request.local));
	}
	assert_int_equal(host.n_asked[2], 2);
	assert_int_equal(host.rpcbind[0].n_heard, 2); /* UDP did it all */
	assert_int_equal(world_counts(&world).lookups, 2);
	assert_int_equal(world_counts(&world).ports, 2);
	host_close(&host);
	world_close(&world);
}

static void test_not_registered(void **state)
{
	struct hf_rpc_client_limits limits = hf_rpc_client_default_limits;
	struct world world;
	struct host host;

	limits.max_ports = 0; /* each time anew */
	world_open(&world, &limits);
	host_open(&host, &world, "127.0.0.2", 0);
	for (enum hf_rpc_path path = HF_RPC_UDP_ONLY; path <= HF_RPC_TCP_THEN_UDP; path++) {
		struct hf_rpc_request request = request_host(&host, path);
		struct outcome o = { 0 };
		bool starts_with_udp = path == HF_RPC_UDP_ONLY || path == HF_RPC_UDP_THEN_TCP;
		bool has_second = path >= HF_RPC_UDP_THEN_TCP;

		host.ports[0] = starts_with_udp ? 0 : host.program[0].addr.port;
		host.ports[1] = starts_with_udp ? host.program[1].addr.port : 0;
		call_and_run(&world, &o, &request, 9);
		if (has_second) {
			assert_outcome(o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
			assert_int_equal(o.result.transport, starts_with_udp ? HF_RPC_TCP : HF_RPC_UDP);
		} else {
			assert_outcome(o, HF_RPC_OUTCOME_NOT_REGISTERED, HF_RPC_STAGE_LOOKUP);
		}
	}
	host_close(&host);
	world_close(&world);
}

static void test_registered_nowhere(void **state)
{
	struct place p;
	struct outcome o, again;

	place_open(&p, NULL, "127.0.0.2", HF_RPC_UDP_THEN_TCP);
	p.host.ports[0] = p.host.ports[1] = 0;
	o = place_call(&p, 9);
	assert_outcome(o, HF_RPC_OUTCOME_NOT_REGISTERED, HF_RPC_STAGE_LOOKUP);
	assert_true(hf_addr_equal(&o.result.remote, &p.host.rpcbind[0].addr));
	p.host.ports[1] = p.host.program[1].addr.port; /* registered a moment later: seen at once */
	again = place_call(&p, 9);
	assert_outcome(again, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	place_close(&p);
}

/* Refused by one transport and not registered for the other: the refusal is the news. */
static void test_refused_then_not_registered(void **state)
{
	struct place p;
	struct outcome o;

	place_open(&p, NULL, "127.0.0.2", HF_RPC_TCP_THEN_UDP);
	peer_close(&p.host.program[1]);
	p.host.ports[0] = 0;
	o = place_call(&p, 9);
	assert_outcome(o, HF_RPC_OUTCOME_REFUSED, HF_RPC_STAGE_CONNECT);
	assert_int_equal(o.result.transport, HF_RPC_TCP);
	place_close(&p);
}

/* rpcbind does not answer by UDP: TCP is asked as well after a quarter of the time. */
static void test_second_leg(void **state)
{
	struct place p;
	struct outcome o;

	place_open(&p, NULL, "127.0.0.2", HF_RPC_UDP_ONLY);
	p.host.is_silent[0] = true;
	p.request.timeout_ns = 2000 * MS;
	o = place_call(&p, 9);
	assert_outcome(o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_in_range(o.done_at, 490 * MS, 1500 * MS);
	assert_int_equal(p.host.rpcbind[1].n_heard, 1);
	place_close(&p);
}

/* Versions */

static void check_versions(const char *text, bool v2, bool v4, bool v3, enum hf_rpc_path path,
			   const unsigned int asked[5])
{
	struct place p;
	struct outcome o;

	place_open(&p, NULL, text, path);
	p.host.serves[2] = v2;
	p.host.serves[3] = v3;
	p.host.serves[4] = v4;
	o = place_call(&p, 9);
	if (v2 || v3 || v4)
		assert_outcome(o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	else
		assert_outcome(o, HF_RPC_OUTCOME_NO_PROGRAM, HF_RPC_STAGE_LOOKUP);
	for (int i = 2; i <= 4; i++)
		assert_int_equal(p.host.n_asked[i], asked[i]);
	assert_in_range(o.done_at, 0, 400 * MS); /* a refusal is an answer: nothing waits for a time-out */
	place_close(&p);
}

static void test_versions(void **state)
{
	check_versions("127.0.0.2", false, true, true, HF_RPC_UDP_ONLY, (unsigned int[5]){ 0, 0, 1, 0, 1 });
	check_versions("127.0.0.2", false, false, true, HF_RPC_UDP_ONLY, (unsigned int[5]){ 0, 0, 1, 1, 1 });
	/* GETADDR for TCP has to be asked by TCP; version 2 is asked by both. */
	check_versions("127.0.0.2", false, true, true, HF_RPC_TCP_ONLY, (unsigned int[5]){ 0, 0, 2, 0, 1 });
	check_versions("127.0.0.2", false, false, false, HF_RPC_TCP_ONLY, (unsigned int[5]){ 0, 0, 2, 1, 1 });
	check_versions("::1", false, true, true, HF_RPC_UDP_ONLY, (unsigned int[5]){ 0, 0, 0, 0, 1 });
	check_versions("::1", true, true, true, HF_RPC_TCP_ONLY, (unsigned int[5]){ 0, 0, 0, 0, 1 });
	check_versions("::1", true, false, true, HF_RPC_UDP_ONLY, (unsigned int[5]){ 0, 0, 0, 1, 1 });
	check_versions("::1", true, false, true, HF_RPC_TCP_ONLY, (unsigned int[5]){ 0, 0, 0, 1, 1 });
	check_versions("::1", false, false, false, HF_RPC_TCP_ONLY, (unsigned int[5]){ 0, 0, 0, 1, 1 });
}

static void test_not_registered_v6(void **state)
{
	struct place p;
	struct outcome o;

	place_open(&p, NULL, "::1", HF_RPC_UDP_THEN_TCP);
	p.host.ports[0] = 0;
	o = place_call(&p, 9);
	assert_outcome(o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(o.result.transport, HF_RPC_TCP);
	place_close(&p);
}

/* Answers that are none */

static void test_bad_answers(void **state)
{
	static const char *const bad[] = { "127.0.0.2", "127.0.0.2.256.1", "127.0.0.2.1.",    "localhost.3.4",
					   "...",       "127.0.0.2.-1.5",  "127.0.0.2.0001.1" };
	struct place p;

	place_open(&p, NULL, "127.0.0.2", HF_RPC_UDP_THEN_TCP);
	for (size_t i = 0; i <= HF_ARRAY_SIZE(bad); i++) {
		struct outcome o;

		p.host.serves[2] = i == HF_ARRAY_SIZE(bad);
		p.host.ports[0] = 65536 + p.host.program[0].addr.port;
		p.host.uaddr = i < HF_ARRAY_SIZE(bad) ? bad[i] : NULL;
		o = place_call(&p, 9);
		/* The other leg, by TCP, refuses version 2; it failed last. */
		if (p.host.serves[2])
			assert_outcome(o, HF_RPC_OUTCOME_GARBAGE, HF_RPC_STAGE_LOOKUP);
		else
			assert_outcome(o, HF_RPC_OUTCOME_NO_PROGRAM, HF_RPC_STAGE_LOOKUP);
	}
	assert_int_equal(p.host.program[0].n_heard, 0);
	place_close(&p);
}

/* Nonsense by UDP, nothing by TCP: the nonsense is what is reported at the end. (Found by fuzz/rpc_reply: the
 * results of that answer were kept with it.) */
static void test_bad_answer_then_silence(void **state)
{
	struct place p;
	struct outcome o;

	place_open(&p, NULL, "127.0.0.2", HF_RPC_UDP_ONLY);
	p.host.ports[0] = 70000;
	p.host.is_silent[1] = true;
	p.request.timeout_ns = 300 * MS;
	o = place_call(&p, 9);
	assert_outcome(o, HF_RPC_OUTCOME_GARBAGE, HF_RPC_STAGE_LOOKUP);
	assert_int_equal(o.result.transport, HF_RPC_UDP);
	place_close(&p);
}

/* Another host in the answer: its port is used, the host is not. */
static void test_only_the_port_counts(void **state)
{
	struct place p;
	struct outcome o;
	char text[HF_UADDR_TEXT];
	struct hf_addr elsewhere;

	place_open(&p, NULL, "127.0.0.2", HF_RPC_UDP_ONLY);
	elsewhere = address("192.0.2.1", p.host.program[0].addr.port);
	p.host.serves[2] = false;
	p.host.uaddr = hf_uaddr_format(&elsewhere, text, sizeof(text));
	o = place_call(&p, 9);
	assert_outcome(o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(p.host.program[0].n_heard, 1);
	place_close(&p);
}

/* Memory */

static void test_stale_port_is_asked_again(void **state)
{
	struct place p;
	struct outcome a, b, c;
	struct peer moved;

	place_open(&p, NULL, "127.0.0.2", HF_RPC_TCP_ONLY);
	p.request.fresh_connection = true;
	a = place_call(&p, 1);
	assert_outcome(a, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	/* The peer reboots; its lock manager is at another port then. */
	peer_close(&p.host.program[1]);
	peer_open(&moved, p.world.loop, true, "127.0.0.2", 0, script_echo);
	p.host.ports[1] = moved.addr.port;
	b = place_call(&p, 2);
	assert_outcome(b, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(b.word, 2);
	assert_int_equal(p.host.n_asked[2], 2);
	/* Gone for good: asked once more, refused once more, and that is that. */
	peer_close(&moved);
	c = place_call(&p, 3);
	assert_outcome(c, HF_RPC_OUTCOME_REFUSED, HF_RPC_STAGE_CONNECT);
	assert_int_equal(p.host.n_asked[2], 3);
	assert_int_equal(world_counts(&p.world).ports, 0);
	place_close(&p);
}

static void test_silent_port_is_forgotten(void **state)
{
	struct place p;
	struct outcome a, b;

	place_open(&p, NULL, "127.0.0.2", HF_RPC_UDP_ONLY);
	p.host.program[0].script = script_silent;
	p.request.timeout_ns = 100 * MS;
	a = place_call(&p, 1);
	assert_outcome(a, HF_RPC_OUTCOME_TIMEOUT, HF_RPC_STAGE_REPLY);
	assert_int_equal(world_counts(&p.world).ports, 0);
	b = place_call(&p, 1);
	assert_outcome(b, HF_RPC_OUTCOME_TIMEOUT, HF_RPC_STAGE_REPLY);
	assert_int_equal(p.host.n_asked[2], 2);
	place_close(&p);
}

static void test_ports_grow_old(void **state)
{
	struct hf_rpc_client_limits limits = hf_rpc_client_default_limits;
	struct place p;
	struct outcome o[3] = { { 0 } };

	limits.port_age_ns = 200 * MS;
	place_open(&p, &limits, "127.0.0.2", HF_RPC_UDP_ONLY);
	call_and_run(&p.world, &o[0], &p.request, 1);
	call_and_run(&p.world, &o[1], &p.request, 1);
	assert_int_equal(p.host.n_asked[2], 1);
	world_run_for(&p.world, 210 * MS);
	call_and_run(&p.world, &o[2], &p.request, 1);
	assert_int_equal(p.host.n_asked[2], 2);
	place_close(&p);
}

static void test_memory_is_bounded(void **state)
{
	struct hf_rpc_client_limits limits = hf_rpc_client_default_limits;
	struct world world;
	struct host hosts[6];
	char text[32];

	limits.max_ports = 4;
	world_open(&world, &limits);
	host_open(&hosts[0], &world, "127.0.1.0", 0);
	for (int i = 1; i < 6; i++) {
		snprintf(text, sizeof(text), "127.0.1.%d", i);
		host_open(&hosts[i], &world, text, hosts[0].rpcbind[0].addr.port);
	}
	for (int i = 0; i < 7; i++) { /* the last one was dropped by then */
		struct hf_rpc_request request = request_host(&hosts[i % 6], HF_RPC_UDP_ONLY);
		struct outcome o = { 0 };

		call_and_run(&world, &o, &request, 1);
		assert_outcome(o, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	}
	assert_int_equal(world_counts(&world).ports, 4);
	assert_int_equal(hosts[0].n_asked[2], 2);
	for (int i = 0; i < 6; i++)
		host_close(&hosts[i]);
	world_close(&world);
}

static void test_one_question_for_many(void **state)
{
	struct place p;
	struct outcome o[50] = { { 0 } };

	place_open(&p, NULL, "127.0.0.2", HF_RPC_TCP_ONLY);
	for (uint32_t i = 0; i < 50; i++)
		call(&p.world, &o[i], &p.request, i);
	hf_rpc_pending_cancel(o[0].pending);
	o[49].is_last = true;
	world_run(&p.world);
	for (uint32_t i = 1; i < 50; i++) {
		assert_outcome(o[i], HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
		assert_int_equal(o[i].word, i);
	}
	assert_int_equal(p.host.n_asked[2], 1);
	assert_int_equal(p.host.program[1].n_accepted, 1);
	place_close(&p);
}

/* No program at the port */

/* A call with a fresh port leaves no trace for the others, unless what they remember is out of date. */
static void test_fresh_port_is_for_one_call(void **state)
{
	struct outcome fresh = { 0 }, plain = { 0 };
	struct place p;

	place_open(&p, NULL, "127.0.0.2", HF_RPC_UDP_ONLY);
	p.request.fresh_port = true;
	call(&p.world, &fresh, &p.request, 1);
	p.request.fresh_port = false;
	call_and_run(&p.world, &plain, &p.request, 2);
	world_run_for(&p.world, 20 * MS);
	assert_outcome(fresh, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_outcome(plain, HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	assert_int_equal(p.host.n_asked[2], 2); /* a question each */
	p.request.fresh_port = true;
	p.host.is_silent[0] = p.host.is_silent[1] = true;
	p.request.timeout_ns = 20 * MS;
	assert_outcome(place_call(&p, 3), HF_RPC_OUTCOME_TIMEOUT, HF_RPC_STAGE_LOOKUP);
	p.request.fresh_port = false; /* it is still known */
	assert_outcome(place_call(&p, 4), HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY);
	p.host.is_silent[0] = p.host.is_silent[1] = false;
	p.host.ports[0] = 0;
	p.request.fresh_port = true;
	assert_outcome(place_call(&p, 5), HF_RPC_OUTCOME_NOT_REGISTERED, HF_RPC_STAGE_LOOKUP);
	assert_int_equal(world_counts(&p.world).ports, 0);
	place_close(&p);
}

static void test_lookup_times_out(void **state)
{
	struct place p;
	struct outcome o;

	place_open(&p, NULL, "127.0.0.2", HF_RPC_UDP_THEN_TCP);
	p.host.is_silent[0] = p.host.is_silent[1] = true;
	p.request.timeout_ns = 400 * MS;
	o = place_call(&p, 9);
	assert_outcome(o, HF_RPC_OUTCOME_TIMEOUT, HF_RPC_STAGE_LOOKUP);
	assert_in_range(o.done_at, 400 * MS, 1400 * MS);
	assert_int_equal(p.host.rpcbind[1].n_heard, 1);
	place_close(&p);
}

static void test_no_rpcbind(void **state)
{
	struct place p;
	struct outcome o;

	place_open(&p, NULL, "127.0.0.2", HF_RPC_UDP_THEN_TCP);
	host_close(&p.host);
	p.request.timeout_ns = 400 * MS;
	o = place_call(&p, 9);
	assert_outcome(o, HF_RPC_OUTCOME_REFUSED, HF_RPC_STAGE_LOOKUP);
	assert_int_equal(o.result.error, -ECONNREFUSED);
	assert_int_equal(o.result.remote.port, p.host.rpcbind[0].addr.port);
	world_close(&p.world);
}

/* Universal addresses */

static void test_uaddr(void **state)
{
	static const struct {
		const char *text, *host;
		uint16_t port;
	} good[] = {
		{ "192.0.2.1.8.1", "192.0.2.1", 2049 },          { "0.0.0.0.0.111", "0.0.0.0", 111 },
		{ "2001:db8::1.255.255", "2001:db8::1", 65535 }, { "::.0.0", "::", 0 },
		{ "fe80::1%em0.8.1", "fe80::1", 2049 },          { "::ffff:192.0.2.1.3.4", "192.0.2.1", 772 },
	};
	static const char *const bad[] = {
		"",      ".",     "..",        "1.2",        "1.2.3.4", "1.2.3.4.5", "1.2.3.4.5.6.7",
		"a.1.1", "::1.1", "::1.300.1", "::1.1.1000", "::1.+1.1"
	};
	struct hf_addr addr, wanted;
	char text[HF_UADDR_TEXT];

	for (size_t i = 0; i < HF_ARRAY_SIZE(good); i++) {
		assert_true(hf_uaddr_parse(&addr, hf_bytes_of_str(good[i].text)));
		wanted = address(good[i].host, good[i].port);
		assert_true(hf_addr_equal(&addr, &wanted));
		hf_uaddr_format(&addr, text, sizeof(text));
		assert_true(hf_uaddr_parse(&addr, hf_bytes_of_str(text)));
		assert_true(hf_addr_equal(&addr, &wanted));
	}
	for (size_t i = 0; i < HF_ARRAY_SIZE(bad); i++)
		assert_false(hf_uaddr_parse(&addr, hf_bytes_of_str(bad[i])));
	assert_false(hf_uaddr_parse(&addr, hf_bytes_of("1.2.3.4\0.5.6", 12)));
	memset(text, '1', sizeof(text));
	text[60] = text[62] = '.';
	assert_false(hf_uaddr_parse(&addr, hf_bytes_of(text, sizeof(text))));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_version_2),
		cmocka_unit_test(test_not_registered),
		cmocka_unit_test(test_registered_nowhere),
		cmocka_unit_test(test_refused_then_not_registered),
		cmocka_unit_test(test_second_leg),
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_not_registered_v6),
		cmocka_unit_test(test_bad_answers),
		cmocka_unit_test(test_bad_answer_then_silence),
		cmocka_unit_test(test_only_the_port_counts),
		cmocka_unit_test(test_stale_port_is_asked_again),
		cmocka_unit_test(test_silent_port_is_forgotten),
		cmocka_unit_test(test_ports_grow_old),
		cmocka_unit_test(test_memory_is_bounded),
		cmocka_unit_test(test_one_question_for_many),
		cmocka_unit_test(test_fresh_port_is_for_one_call),
		cmocka_unit_test(test_lookup_times_out),
		cmocka_unit_test(test_no_rpcbind),
		cmocka_unit_test(test_uaddr),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
