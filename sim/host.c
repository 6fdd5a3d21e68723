/*
 * A client host: its rpcbind, statd and lockd as others see them. Its crashes are in life.c, its programs in
 * process.c, the calls of its lockd in talk.c.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <string.h>

#include "proto/nlm/wire.h"
#include "rpc/xdr.h"
#include "sim.h"

#define RPCBIND_PORT 111

#define PROGRAM_RPCBIND 100000
#define PROGRAM_STATD   100024

enum {
	ACCEPT_OK = 0,
	ACCEPT_NO_PROGRAM = 1,
	ACCEPT_OTHER_VERSION = 2,
	ACCEPT_NO_PROCEDURE = 3,
};

/* Where a message came from, to answer it. */
struct question {
	struct host *host;
	struct hf_addr from;
	uint16_t port;
	struct conn *conn;
	uint32_t xid, program, version, procedure;
	uint64_t sent_at;
};

bool host_listens(const struct host *host, uint16_t port, bool by_tcp)
{
	if (port == host->addr.port && !by_tcp)
		return true;
	if (host->gateway)
		return false;
	if (port == RPCBIND_PORT || port == host->statd_port)
		return true;
	return port == host->lockd_port && (by_tcp ? host->has_tcp : host->has_udp);
}

/* Answers */

static void put_reply(struct hf_xdr_out *out, const struct question *question, uint32_t accept)
{
	hf_xdr_put_u32(out, question->xid);
	hf_xdr_put_u32(out, 1);
	hf_xdr_put_u32(out, 0);
	hf_xdr_put_u32(out, 0);
	hf_xdr_put_u32(out, 0);
	hf_xdr_put_u32(out, accept);
	if (accept == ACCEPT_OTHER_VERSION) {
		hf_xdr_put_u32(out, 2);
		hf_xdr_put_u32(out, 2);
	}
}

static void send_reply(const struct question *question, uint8_t *message, size_t len)
{
	struct host *host = question->host;
	struct hf_addr from = host->addr;
	uint8_t record[MAX_MESSAGE + 4];
	uint32_t mark = htonl(0x80000000u | (uint32_t)len);

	if (!question->conn) {
		from.port = question->port;
		net_send(host->world, &from, &question->from, message, len);
		return;
	}
	memcpy(record, &mark, 4);
	memcpy(record + 4, message, len);
	if (question->conn->has_client)
		stream_send(question->conn, true, record, len + 4);
}

static void answer_plainly(const struct question *question, uint32_t accept)
{
	uint8_t message[64];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, message, sizeof(message));
	put_reply(&out, question, accept);
	send_reply(question, message, (size_t)(out.p - message));
}

static void answer_u32(const struct question *question, uint32_t value)
{
	uint8_t message[64];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, message, sizeof(message));
	put_reply(&out, question, ACCEPT_OK);
	hf_xdr_put_u32(&out, value);
	send_reply(question, message, (size_t)(out.p - message));
}

static void answer_stat(const struct question *question, bool fails, int32_t state)
{
	uint8_t message[64];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, message, sizeof(message));
	put_reply(&out, question, ACCEPT_OK);
	hf_xdr_put_u32(&out, fails);
	hf_xdr_put_i32(&out, fails ? -1 : state);
	send_reply(question, message, (size_t)(out.p - message));
}

static void answer_res(const struct question *question, struct hf_bytes cookie, uint32_t stat)
{
	uint8_t message[MAX_MESSAGE];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, message, sizeof(message));
	put_reply(&out, question, ACCEPT_OK);
	hf_xdr_put_opaque(&out, cookie);
	hf_xdr_put_u32(&out, stat);
	send_reply(question, message, (size_t)(out.p - message));
}

/* rpcbind */

static uint16_t find_port(const struct host *host, uint32_t program, uint32_t transport)
{
	if (program == PROGRAM_STATD)
		return host->statd_port;
	if (program != HF_NLM_PROGRAM)
		return 0;
	return host_listens(host, host->lockd_port, transport == IPPROTO_TCP) ? host->lockd_port : 0;
}

static void serve_rpcbind(const struct question *question, struct hf_xdr_in *in)
{
	uint32_t program, transport;

	if (question->version != 2) {
		answer_plainly(question, ACCEPT_OTHER_VERSION);
		return;
	}
	program = hf_xdr_get_u32(in);
	hf_xdr_get_u32(in);
	transport = hf_xdr_get_u32(in);
	answer_u32(question, find_port(question->host, program, transport));
}

/* statd */

static void serve_statd(const struct question *question, struct hf_xdr_in *in)
{
	struct host *host = question->host;
	struct world *world = host->world;
	int32_t state;

	if (question->procedure == 1 && host->is_silent)
		return;
	if (question->procedure == 1) {
		answer_stat(question, host->is_secretive, host->statd_state);
		return;
	}
	if (question->procedure != 6) {
		answer_plainly(question, ACCEPT_NO_PROCEDURE);
		return;
	}
	hf_xdr_get_string(in, 1024);
	state = hf_xdr_get_i32(in);
	answer_plainly(question, ACCEPT_OK);
	if (host->promised_in && host->promised_in < world->server->life && !*host->old_name &&
	    !host->is_shared && !world->monitor.exists && !hf_addr_same_host(&question->from, &host->server))
		world_fail(world, "I9", "host %u is notified from an address that it does not know",
			   host->index);
	if (state % 2 != 1 || state > world->server->state)
		world_fail(world, "I7", "host %u is notified of state %d", host->index, state);
	SAY(world, "%s  statd hears of state %d", host->name, state);
	if (state == host->server_state)
		return;
	host->server_state = state;
	host->newest_heard = HF_MAX(host->newest_heard, state);
	reclaim_begin(host, state);
}

/* lockd */

static void serve_granted(const struct question *question, struct hf_xdr_in *in)
{
	struct host *host = question->host;
	struct hf_bytes cookie = hf_xdr_get_opaque(in, 1024), handle, oh;
	struct span span = { 0 };
	struct hf_range range;
	uint64_t offset, len;
	uint32_t svid, stat;
	bool is_ours;

	span.mode = hf_xdr_get_bool(in) ? HF_LOCK_EXCLUSIVE : HF_LOCK_SHARED;
	hf_xdr_get_opaque(in, 1024);
	handle = hf_xdr_get_opaque(in, 64);
	oh = hf_xdr_get_opaque(in, 1024);
	svid = hf_xdr_get_u32(in);
	offset = question->version == 4 ? hf_xdr_get_u64(in) : hf_xdr_get_u32(in);
	len = question->version == 4 ? hf_xdr_get_u64(in) : hf_xdr_get_u32(in);
	if (!hf_xdr_in_is_ok(in) || hf_range_from_offset_len(&range, offset, len) ||
	    !span_of_range(&span, range) || (question->version != host->version && !host->is_shared)) {
		world_fail(host->world, "I8", "host %u gets a GRANTED that makes no sense", host->index);
		return;
	}
	span.file = handle.data[0];
	/* A call-back for the host behind it has that owner's handle. Linux does not look at it. */
	is_ours = !host->is_shared || nat_has_oh(host, svid, oh);
	if (is_ours && !hf_addr_same_host(&question->from, &host->server))
		world_fail(host->world, "I8", "host %u gets GRANTED from an address that it does not know",
			   host->index);
	if (host->world->now < host->grace_until)
		stat = HF_NLM_DENIED_GRACE_PERIOD;
	else
		stat = is_ours ? proc_granted(host, svid, &span, question->sent_at) : HF_NLM_DENIED;
	if (stat == HF_NLM_DENIED_GRACE_PERIOD)
		host->put_off_at = host->world->now;
	SAY(host->world, "%s  lockd gets GRANTED%s for %u, file %u, %u-%u, and says %u", host->name,
	    question->procedure == HF_NLM_GRANTED_MSG ? "_MSG" : "", svid, span.file, span.first, span.last,
	    stat);
	if (question->procedure == HF_NLM_GRANTED) {
		answer_res(question, cookie, stat);
		return;
	}
	answer_plainly(question, ACCEPT_OK);
	talk_granted_res(host, cookie.data, cookie.len, stat);
}

static void serve_res(const struct question *question, struct hf_xdr_in *in)
{
	struct hf_bytes cookie = hf_xdr_get_opaque(in, 1024);
	struct call *call = NULL;
	uint64_t number;

	if (cookie.len == sizeof(number)) {
		memcpy(&number, cookie.data, sizeof(number));
		call = talk_find_cookie(question->host, le64toh(number));
	}
	answer_plainly(question, ACCEPT_OK);
	if (call && !call->by_tcp) {
		uint32_t stat = hf_xdr_get_u32(in);

		if (hf_xdr_in_is_ok(in))
			proc_answer(call->proc, call, stat, question->sent_at);
	}
}

static bool knows(const struct host *host, uint32_t procedure)
{
	return procedure == HF_NLM_GRANTED       ? host->knows_granted
	       : procedure == HF_NLM_GRANTED_MSG ? host->knows_granted_msg
						 : true;
}

static void serve_lockd(const struct question *question, struct hf_xdr_in *in)
{
	if (!knows(question->host, question->procedure)) {
		answer_plainly(question, ACCEPT_NO_PROCEDURE);
		return;
	}
	switch (question->procedure) {
	case HF_NLM_GRANTED:
	case HF_NLM_GRANTED_MSG:
		serve_granted(question, in);
		break;
	case HF_NLM_TEST_RES:
	case HF_NLM_LOCK_RES:
	case HF_NLM_CANCEL_RES:
	case HF_NLM_UNLOCK_RES:
		serve_res(question, in);
		break;
	default:
		answer_plainly(question, ACCEPT_NO_PROCEDURE);
	}
}

/* Messages */

static void serve_call(struct question *question, struct hf_xdr_in *in)
{
	hf_xdr_get_u32(in);
	question->program = hf_xdr_get_u32(in);
	question->version = hf_xdr_get_u32(in);
	question->procedure = hf_xdr_get_u32(in);
	for (int i = 0; i < 2; i++) { /* credentials, verifier */
		hf_xdr_get_u32(in);
		hf_xdr_get_opaque(in, 400);
	}
	if (!hf_xdr_in_is_ok(in))
		return;
	if (question->port == RPCBIND_PORT && question->program == PROGRAM_RPCBIND)
		serve_rpcbind(question, in);
	else if (question->port == question->host->statd_port && question->program == PROGRAM_STATD)
		serve_statd(question, in);
	else if (question->port == question->host->lockd_port && question->program == HF_NLM_PROGRAM)
		serve_lockd(question, in);
	else
		answer_plainly(question, ACCEPT_NO_PROGRAM);
}

static void acknowledged(struct host *host, struct call *call)
{
	talk_drop(call);
	if (host->n_evidence && --host->n_evidence == 0) {
		host->told_life = host->life;
		monitor_expect(host);
		SAY(host->world, "%s  the server knows of its life %u", host->name, host->life);
	}
}

static void take_result(struct host *host, struct call *call, struct hf_xdr_in *in, uint64_t sent_at)
{
	uint32_t stat;

	if (call->kind == CALL_NOTIFY || call->kind == CALL_FREE_ALL) {
		/* From an earlier epoch of the server: a copy to the next one may be under way. */
		if (sent_at < host->world->server->started_at)
			return;
		acknowledged(host, call);
		return;
	}
	if (call->kind == CALL_RES) {
		talk_drop(call);
		return;
	}
	if (!call->by_tcp && host->flavour == BSD && call->kind <= CALL_TEST)
		return; /* the empty reply to a _MSG */
	hf_xdr_get_opaque(in, 1024);
	stat = hf_xdr_get_u32(in);
	if (hf_xdr_in_is_ok(in))
		proc_answer(call->proc, call, stat, sent_at);
}

static void take_reply(struct host *host, uint32_t xid, struct hf_xdr_in *in, uint64_t sent_at)
{
	struct call *call = talk_find_xid(host, xid);
	uint32_t accept;

	if (!call)
		return;
	hf_xdr_get_u32(in); /* accepted */
	hf_xdr_get_u32(in);
	hf_xdr_get_opaque(in, 400);
	accept = hf_xdr_get_u32(in);
	if (!hf_xdr_in_is_ok(in) || accept != ACCEPT_OK) {
		world_fail(host->world, "RPC", "host %u is refused a call, %u", host->index, accept);
		return;
	}
	take_result(host, call, in, sent_at);
}

void host_message(struct host *host, const struct hf_addr *from, uint16_t port, struct conn *conn,
		  const uint8_t *data, size_t len, uint64_t sent_at)
{
	struct question question = {
		.host = host, .from = *from, .port = port, .conn = conn, .sent_at = sent_at
	};
	struct hf_xdr_in in;

	hf_xdr_in_init(&in, data, len);
	question.xid = hf_xdr_get_u32(&in);
	if (hf_xdr_get_u32(&in) == 1)
		take_reply(host, question.xid, &in, sent_at);
	else
		serve_call(&question, &in);
}
