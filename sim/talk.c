/* The calls of a host's lockd and sm-notify to the server, repeated until they are answered. */
#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "arena.h"
#include "proto/nlm/wire.h"
#include "rpc/xdr.h"
#include "sim.h"

#define STATD_PROGRAM 100024
#define FIRST_GAP     (1 * SECOND)
#define LONGEST_GAP   (8 * SECOND)
#define TCP_PATIENCE  (15 * SECOND)
#define RECONNECT_NS  (500 * MS)

/* Spans */

uint64_t span_offset(const struct span *span)
{
	return (uint64_t)span->first * UNIT_BYTES;
}

uint64_t span_len(const struct span *span)
{
	return span->last == N_UNITS - 1 ? 0 : (uint64_t)(span->last - span->first + 1) * UNIT_BYTES;
}

bool span_of_range(struct span *span, struct hf_range range)
{
	if (range.start % UNIT_BYTES || range.start / UNIT_BYTES >= N_UNITS)
		return false;
	span->first = (uint8_t)(range.start / UNIT_BYTES);
	if (range.end == HF_RANGE_EOF) {
		span->last = N_UNITS - 1;
		return true;
	}
	if ((range.end + 1) % UNIT_BYTES || range.end / UNIT_BYTES >= N_UNITS - 1)
		return false;
	span->last = (uint8_t)(range.end / UNIT_BYTES);
	return true;
}

void talk_handle(uint8_t handle[HANDLE_LEN], uint8_t file)
{
	memset(handle, 'h', HANDLE_LEN);
	handle[0] = file;
}

/* Encoding */

static void put_header(struct hf_xdr_out *out, const struct call *call, uint32_t program, uint32_t version,
		       uint32_t procedure)
{
	hf_xdr_put_u32(out, call->sending.xid);
	hf_xdr_put_u32(out, 0);
	hf_xdr_put_u32(out, 2);
	hf_xdr_put_u32(out, program);
	hf_xdr_put_u32(out, version);
	hf_xdr_put_u32(out, procedure);
	for (int i = 0; i < 4; i++) /* AUTH_NONE, twice */
		hf_xdr_put_u32(out, 0);
}

static void put_cookie(struct hf_xdr_out *out, const struct call *call)
{
	uint64_t number = htole64(call->cookie);

	hf_xdr_put_opaque(out, hf_bytes_of(&number, sizeof(number)));
}

static void put_lock(struct hf_xdr_out *out, const struct call *call)
{
	const struct host *host = call->host;
	uint8_t handle[HANDLE_LEN];
	char oh[40];

	talk_handle(handle, call->span.file);
	snprintf(oh, sizeof(oh), "%u@%s", call->proc->svid, host->name);
	hf_xdr_put_string(out, host->name);
	hf_xdr_put_opaque(out, hf_bytes_of(handle, sizeof(handle)));
	hf_xdr_put_opaque(out, hf_bytes_of_str(oh));
	hf_xdr_put_u32(out, call->proc->svid);
	if (host->version == 4) {
		hf_xdr_put_u64(out, span_offset(&call->span));
		hf_xdr_put_u64(out, span_len(&call->span));
	} else {
		hf_xdr_put_u32(out, (uint32_t)span_offset(&call->span));
		hf_xdr_put_u32(out, (uint32_t)span_len(&call->span));
	}
}

static void put_share(struct hf_xdr_out *out, const struct call *call)
{
	const struct reservation *reservation = &call->proc->reservations[call->span.file];
	uint8_t handle[HANDLE_LEN];
	char oh[40];

	talk_handle(handle, call->span.file);
	snprintf(oh, sizeof(oh), "%u@%s", call->proc->svid, call->host->name);
	hf_xdr_put_string(out, call->host->name);
	hf_xdr_put_opaque(out, hf_bytes_of(handle, sizeof(handle)));
	hf_xdr_put_opaque(out, hf_bytes_of_str(oh));
	hf_xdr_put_u32(out, reservation->deny);
	hf_xdr_put_u32(out, reservation->access);
	hf_xdr_put_bool(out, call->kind == CALL_RESHARE);
}

static uint32_t procedure_of(const struct call *call)
{
	static const uint8_t procedures[] = {
		[CALL_LOCK] = HF_NLM_LOCK,       [CALL_UNLOCK] = HF_NLM_UNLOCK,
		[CALL_CANCEL] = HF_NLM_CANCEL,   [CALL_TEST] = HF_NLM_TEST,
		[CALL_RECLAIM] = HF_NLM_LOCK,    [CALL_SHARE] = HF_NLM_SHARE,
		[CALL_UNSHARE] = HF_NLM_UNSHARE, [CALL_FREE_ALL] = HF_NLM_FREE_ALL,
		[CALL_RES] = HF_NLM_GRANTED_RES, [CALL_RESHARE] = HF_NLM_SHARE,
	};
	bool is_msg = call->host->flavour == BSD && call->kind <= CALL_TEST;

	if (call->kind == CALL_LOCK && call->host->is_unmonitored)
		return HF_NLM_NM_LOCK;
	return procedures[call->kind] + (is_msg ? HF_NLM_TEST_MSG - HF_NLM_TEST : 0u);
}

static void put_notice_name(struct hf_xdr_out *out, const struct host *host)
{
	char name[2 * sizeof(host->name)];
	bool is_long = host->notice_name == NAMED_LONG && host->n_evidence;

	snprintf(name, sizeof(name), "%s%s%s", host->notice_name == NAMED_OTHER ? "not-" : "", host->name,
		 is_long ? ".example" : "");
	hf_xdr_put_string(out, name);
}

static void encode(struct call *call)
{
	const struct host *host = call->host;
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, call->bytes, sizeof(call->bytes));
	if (call->kind == CALL_NOTIFY)
		put_header(&out, call, STATD_PROGRAM, 1, 6);
	else
		put_header(&out, call, HF_NLM_PROGRAM, host->version, procedure_of(call));
	switch (call->kind) {
	case CALL_NOTIFY:
		put_notice_name(&out, host);
		hf_xdr_put_i32(&out, host->state);
		break;
	case CALL_FREE_ALL:
		hf_xdr_put_string(&out, host->name);
		hf_xdr_put_i32(&out, host->frees_without_number ? 0 : host->state);
		break;
	case CALL_LOCK:
	case CALL_RECLAIM:
		put_cookie(&out, call);
		hf_xdr_put_bool(&out, call->blocks);
		hf_xdr_put_bool(&out, call->span.mode == HF_LOCK_EXCLUSIVE);
		put_lock(&out, call);
		hf_xdr_put_bool(&out, call->kind == CALL_RECLAIM);
		hf_xdr_put_i32(&out, host->hides_state ? 0 : host->statd_state);
		break;
	case CALL_CANCEL:
		put_cookie(&out, call);
		hf_xdr_put_bool(&out, true);
		hf_xdr_put_bool(&out, call->span.mode == HF_LOCK_EXCLUSIVE);
		put_lock(&out, call);
		break;
	case CALL_TEST:
		put_cookie(&out, call);
		hf_xdr_put_bool(&out, call->span.mode == HF_LOCK_EXCLUSIVE);
		put_lock(&out, call);
		break;
	case CALL_UNLOCK:
		put_cookie(&out, call);
		put_lock(&out, call);
		break;
	case CALL_SHARE:
	case CALL_UNSHARE:
	case CALL_RESHARE:
		put_cookie(&out, call);
		put_share(&out, call);
		break;
	default:
		break;
	}
	call->len = (uint16_t)(out.p - call->bytes);
}

/* Sending */

static void on_connect_timer(struct hf_timer *timer)
{
	struct host *host = hf_container_of(timer, struct host, connect_timer);

	if (host->conn || !host->is_up || hf_list_is_empty(&host->calls))
		return;
	host->n_connections++;
	host->conn = stream_connect(host->world, host, NULL, &host->server, &host->addr);
}

static void connect_soon(struct host *host, uint64_t delay_ns)
{
	if (host->conn || hf_timer_is_running(&host->connect_timer))
		return;
	world_timer(host->world, &host->connect_timer, on_connect_timer);
	hf_timer_start(&host->connect_timer, delay_ns);
}

static void send_by_tcp(struct call *call)
{
	struct host *host = call->host;
	uint8_t record[MAX_MESSAGE + 4];
	uint32_t mark = htonl(0x80000000u | call->len);

	hf_timer_start(&call->timer, TCP_PATIENCE);
	if (!host->conn || !host->conn->is_open) {
		connect_soon(host, MS);
		return;
	}
	if (call->is_sent)
		return;
	call->is_sent = true;
	if (call->sending.n++)
		pipe_sent_again(call);
	call->sending.connection = host->n_connections;
	memcpy(record, &mark, 4);
	memcpy(record + 4, call->bytes, call->len);
	stream_send(host->conn, true, record, call->len + 4u);
}

static void send_by_udp(struct call *call)
{
	call->sending.n++;
	net_send(call->host->world, &call->host->addr, &call->host->server, call->bytes, call->len);
	hf_timer_start(&call->timer, call->gap);
	call->gap = HF_MIN(2 * call->gap, LONGEST_GAP);
}

static void send_call(struct call *call)
{
	if (call->by_tcp)
		send_by_tcp(call);
	else
		send_by_udp(call);
}

/* The server knows of the restart, and need not answer. */
static bool is_repeated(const struct call *call)
{
	return call->kind == CALL_NOTIFY && !call->host->n_evidence;
}

/* The server may have forgotten the host since it was sent first: see ordinary.c. */
static bool must_give_up(const struct call *call)
{
	return is_repeated(call) && !host_is_number_stored(call->host);
}

void talk_resend_all(struct host *host)
{
	hf_list_for_each(link, &host->calls) {
		struct call *call = hf_list_entry(link, struct call, link);

		if (call->by_tcp && !call->is_sent && !must_give_up(call))
			send_by_tcp(call);
	}
}

void host_connected(struct host *host)
{
	talk_resend_all(host);
}

static void note_unsent(struct host *host)
{
	host->conn = NULL;
	hf_list_for_each(link, &host->calls) {
		struct call *call = hf_list_entry(link, struct call, link);

		call->is_sent = false;
	}
	connect_soon(host, rng_between(&host->rng, RECONNECT_NS, 4 * RECONNECT_NS));
}

void host_disconnected(struct host *host, struct conn *conn)
{
	if (host->conn == conn)
		note_unsent(host);
}

/* UDP: send again. TCP: the other end may be lost without a word; a new connection tells. */
static void on_timer(struct hf_timer *timer)
{
	struct call *call = hf_container_of(timer, struct call, timer);
	struct host *host = call->host;
	struct conn *conn = host->conn;

	call->tries++;
	if (((call->kind == CALL_RES || is_repeated(call)) && call->tries > 3) || must_give_up(call)) {
		talk_drop(call);
		return;
	}
	if (call->by_tcp && conn && call->is_sent) {
		note_unsent(host);
		stream_close(conn, false);
	}
	send_call(call);
}

static struct call *call_new(struct host *host, struct proc *proc, enum call_kind kind)
{
	struct call *call = sim_alloc_head(sizeof(*call), offsetof(struct call, bytes));
	struct world *world = host->world;

	world->counts->calls++;
	call->host = host;
	call->proc = proc;
	call->kind = kind;
	call->sending.xid = host->next_xid++;
	call->cookie = (uint64_t)call->sending.xid << 24 | 0xc00c1e;
	call->gap = FIRST_GAP;
	call->made_at = world->now;
	call->server_state = host->server_state;
	call->server_life = world->server->life;
	/* sm-notify of Linux knows UDP only. */
	call->by_tcp = host->flavour == LINUX_TCP && (kind != CALL_NOTIFY || host->is_ordinary);
	world_timer(world, &call->timer, on_timer);
	hf_list_push_back(&host->calls, &call->link);
	if (proc && kind != CALL_RECLAIM && kind != CALL_RESHARE) /* those belong to the host */
		proc->call = call;
	return call;
}

struct call *talk_call(struct host *host, struct proc *proc, enum call_kind kind, const struct span *span,
		       bool blocks)
{
	static const char *const names[] = { "LOCK",
					     "UNLOCK",
					     "CANCEL",
					     "TEST",
					     "LOCK, to reclaim,",
					     "SHARE",
					     "UNSHARE",
					     "SHARE, to reclaim,",
					     "SM_NOTIFY",
					     "FREE_ALL",
					     "GRANTED_RES" };
	struct call *call = call_new(host, proc, kind);

	if (span)
		call->span = *span;
	if (kind == CALL_LOCK || kind == CALL_RECLAIM)
		proc_set_freed(proc, span, false);
	call->blocks = blocks;
	/* Only on a connection nothing else of it can be under way. */
	call->is_fresh = kind == CALL_LOCK && call->by_tcp && !thread_other(proc) && !proc->is_unheard &&
			 !order_is_involved(host->world, proc, span);
	encode(call);
	if (span)
		SAY(host->world, "%s  %u: %s%s file %u, %u-%u %s (xid %u)", host->name, proc->svid,
		    names[kind], blocks ? " and wait," : "", span->file, span->first, span->last,
		    span->mode == HF_LOCK_EXCLUSIVE ? "exclusive" : "shared", call->sending.xid);
	else
		SAY(host->world, "%s  %s (xid %u)", host->name, names[kind], call->sending.xid);
	send_call(call);
	return call;
}

void talk_granted_res(struct host *host, const uint8_t *cookie, uint32_t cookie_len, uint32_t stat)
{
	struct call *call = call_new(host, NULL, CALL_RES);
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, call->bytes, sizeof(call->bytes));
	put_header(&out, call, HF_NLM_PROGRAM, host->version, HF_NLM_GRANTED_RES);
	hf_xdr_put_opaque(&out, hf_bytes_of(cookie, cookie_len));
	hf_xdr_put_u32(&out, stat);
	call->len = (uint16_t)(out.p - call->bytes);
	send_call(call);
}

void talk_drop(struct call *call)
{
	if (call->proc && call->proc->call == call)
		call->proc->call = NULL;
	hf_timer_stop(&call->timer);
	hf_link_remove(&call->link);
	sim_free(call);
}

struct call *talk_find_xid(struct host *host, uint32_t xid)
{
	hf_list_for_each(link, &host->calls) {
		struct call *call = hf_list_entry(link, struct call, link);

		if (call->sending.xid == xid)
			return call;
	}
	return NULL;
}

struct call *talk_find_cookie(struct host *host, uint64_t cookie)
{
	hf_list_for_each(link, &host->calls) {
		struct call *call = hf_list_entry(link, struct call, link);

		if (call->cookie == cookie)
			return call;
	}
	return NULL;
}
