/*
 * A client host: its rpcbind, statd and lockd as others see them, and its life.
 * What its programs want is in process.c, what its lockd asks of the server in
 * talk.c.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "proto/nlm/wire.h"
#include "rpc/xdr.h"
#include "sim.h"

#define RPCBIND_PORT 111
#define LOCKD_PORT   4000
#define STATD_PORT   5000
#define CALL_PORT    900 /* that our calls come from */

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

	if (question->procedure != 6) {
		answer_plainly(question, ACCEPT_NO_PROCEDURE);
		return;
	}
	hf_xdr_get_string(in, 1024);
	state = hf_xdr_get_i32(in);
	answer_plainly(question, ACCEPT_OK);
	if (host->promised_in && host->promised_in < world->server.life && !*host->old_name &&
	    !host->is_shared && !world->monitor.exists && !hf_addr_same_host(&question->from, &host->server))
		world_fail(world, "I9", "host %u is notified from an address that it does not know",
			   host->index);
	if (state % 2 != 1 || state > world->server.state)
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
	/* What is meant for the one behind it has its owner's handle, and Linux would not look at that. */
	is_ours = !host->is_shared || nat_has_oh(host, svid, oh);
	if (is_ours && !hf_addr_same_host(&question->from, &host->server))
		world_fail(host->world, "I8", "host %u gets GRANTED from an address that it does not know",
			   host->index);
	stat = is_ours ? proc_granted(host, svid, &span, question->sent_at) : HF_NLM_DENIED;
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
		call = talk_find_cookie(question->host, number);
	}
	answer_plainly(question, ACCEPT_OK);
	if (call && !call->by_tcp) {
		uint32_t stat = hf_xdr_get_u32(in);

		if (hf_xdr_in_is_ok(in))
			proc_answer(call->proc, call, stat, question->sent_at);
	}
}

static void serve_lockd(const struct question *question, struct hf_xdr_in *in)
{
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
		SAY(host->world, "%s  the server knows of our life %u", host->name, host->life);
	}
}

static void take_result(struct host *host, struct call *call, struct hf_xdr_in *in, uint64_t sent_at)
{
	uint32_t stat;

	if (call->kind == CALL_NOTIFY || call->kind == CALL_FREE_ALL) {
		acknowledged(host, call);
		return;
	}
	if (call->kind == CALL_RES) {
		talk_drop(call);
		return;
	}
	if (!call->by_tcp && host->flavour == BSD && call->kind <= CALL_TEST)
		return; /* the empty answer to a _MSG */
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

/* Life */

static void settle_in(struct host *host)
{
	host->lockd_port = (uint16_t)(LOCKD_PORT + host->life);
	host->statd_port = (uint16_t)(STATD_PORT + host->life);
	host->server_state = host->newest_heard = 0;
	host->is_reclaiming = false;
	for (uint32_t i = 0; i < host->n_procs; i++)
		proc_init(&host->procs[i], host, i);
}

static void move_to(struct host *host, uint32_t slot)
{
	struct world *world = host->world;

	world->by_slot[host->slot] = NULL;
	monitor_moved(host);
	host->slot = slot;
	host->promised_in = 0;
	world->by_slot[slot] = host;
	host->addr =
		(struct hf_addr){ .family = AF_INET, .port = CALL_PORT, .ip = { 10, 0, 0, (uint8_t)slot } };
}

bool host_is_known(const struct host *host)
{
	char id[96], text[HF_ADDR_TEXT];

	hf_addr_format(&host->addr, text, sizeof(text));
	snprintf(id, sizeof(id), "nlm:%s:%s", text, host->name);
	return disk_has_client(host->world, id);
}

void host_announce(struct host *host)
{
	enum call_kind kind;
	char name[sizeof(host->name)];

	/* A notice of a name that nobody knows, from where one host is known, is taken for that host's. */
	if (host->is_shared && !host_is_known(host))
		host->awakening = BY_FREE_ALL;
	kind = host->awakening == BY_FREE_ALL ? CALL_FREE_ALL : CALL_NOTIFY;
	host->n_evidence = 1;
	talk_call(host, NULL, kind, NULL, false);
	if (!*host->old_name)
		return;
	host->n_evidence++;
	memcpy(name, host->name, sizeof(name));
	memcpy(host->name, host->old_name, sizeof(name));
	talk_call(host, NULL, kind, NULL, false);
	memcpy(host->name, name, sizeof(name));
}

static void on_boot(struct hf_timer *timer)
{
	struct host *host = hf_container_of(timer, struct host, boot_timer);

	host->is_up = true;
	host->state += 2;
	host->awakening =
		(enum awakening)(rng_below(&host->rng, 10) < 7 ? BY_NOTIFY : 1 + rng_below(&host->rng, 2));
	if ((host->version == 1 && host->awakening == BY_FREE_ALL) ||
	    ((host->hides_state || host->is_shared || host->uses_shares) && host->awakening == BY_STATE))
		host->awakening = BY_NOTIFY;
	if (host->is_unmonitored)
		host->awakening = BY_FREE_ALL;
	SAY(host->world, "%s  boots, life %u, state %d", host->name, host->life, host->state);
	settle_in(host);
	if (host->awakening != BY_STATE)
		host_announce(host);
}

void host_die(struct host *host, bool moves, uint64_t downtime_ns)
{
	struct world *world = host->world;
	struct hf_link *link;

	if (!host->is_up)
		return;
	world->counts->host_crashes++;
	SAY(world, "%s  CRASHES", host->name);
	host->is_up = false;
	host->life++;
	host->n_evidence = 0;
	while ((link = hf_list_first(&host->calls)))
		talk_drop(hf_list_entry(link, struct call, link));
	hf_timer_stop(&host->connect_timer);
	hf_timer_stop(&host->reclaim_timer);
	stream_host_died(host);
	for (uint32_t i = 0; i < host->n_procs; i++) {
		hf_timer_stop(&host->procs[i].timer);
		memset(host->procs[i].has, 0, sizeof(host->procs[i].has));
		share_forget(&host->procs[i]);
	}
	hf_timer_stop(&host->rename_timer);
	host->is_renaming = false;
	if (moves && world->n_slots < N_SLOTS && !host->is_shared)
		move_to(host, world->n_slots++);
	hf_timer_start(&host->boot_timer, downtime_ns);
}

/* Until a program has nothing left of what it took under the old name it takes nothing new. */
static void rename_now(struct host *host)
{
	host->is_renaming = false;
	memcpy(host->old_name, host->name, sizeof(host->name));
	snprintf(host->name, sizeof(host->name), "new%u", host->index);
	SAY(host->world, "%s  was %s", host->name, host->old_name);
	for (uint32_t i = 0; i < host->n_procs; i++)
		host->procs[i].wants_out = true;
}

/* Linux takes its name when it begins to talk to a server, and keeps it as long as anything is under way.
 * What comes late under an old name, when the new one has something already, looks like another host's. */
static void on_rename(struct hf_timer *timer)
{
	struct host *host = hf_container_of(timer, struct host, rename_timer);
	uint64_t now = host->world->now;

	if (!hf_list_is_empty(&host->calls))
		host->quiet_since = now;
	if (now - host->quiet_since > STRAGGLER_NS)
		rename_now(host);
	else
		hf_timer_start(timer, 200 * MS);
}

void host_rename(struct host *host)
{
	if (!host->is_up || *host->old_name || host->is_renaming || host->is_shared || host->uses_shares)
		return;
	host->is_renaming = true;
	host->quiet_since = host->world->now;
	hf_timer_start(&host->rename_timer, MS);
}

static void on_healed(struct hf_timer *timer)
{
	struct host *host = hf_container_of(timer, struct host, cut_timer);

	SAY(host->world, "%s  is connected again", host->name);
	host->cut_in = host->cut_out = false;
}

void host_set_cut(struct host *host, bool in, bool out, uint64_t lasts_ns)
{
	host->cut_in = in;
	host->cut_out = out;
	hf_timer_stop(&host->cut_timer);
	if (in || out)
		hf_timer_start(&host->cut_timer, lasts_ns);
}

void host_init(struct world *world, uint32_t index)
{
	static const char *const names[MAX_HOSTS] = { "alpha", "beta", "gamma", "delta", "omega" };
	struct host *host = &world->hosts[index];
	struct rng *rng = &host->rng;
	uint64_t dice;

	rng_init(rng, world->options.seed, 100 + index);
	host->world = world;
	host->index = index;
	hf_list_init(&host->calls);
	world_timer(world, &host->boot_timer, on_boot);
	world_timer(world, &host->cut_timer, on_healed);
	world_timer(world, &host->rename_timer, on_rename);
	reclaim_init(host);
	snprintf(host->name, sizeof(host->name), "%s", rng_chance(rng, 150) ? "localhost" : names[index]);
	host->flavour = (enum flavour)rng_below(rng, 3);
	dice = rng_below(rng, 10);
	host->version = dice < 7 ? 4 : (dice < 9 ? 3 : 1);
	host->server = world->server_addrs[rng_below(rng, 2)];
	host->server.port = SERVER_PORT;
	host->state = 1 + 2 * (int32_t)rng_between(rng, 1, 20);
	host->hides_state = rng_chance(rng, 150);
	host->has_udp = host->flavour != LINUX_TCP || rng_chance(rng, 500);
	host->has_tcp = host->flavour == LINUX_TCP || rng_chance(rng, 500);
	host->life = host->told_life = 1;
	host->is_up = true;
	host->n_procs =
		omits(world, (uint32_t)OMIT_HOST_0 << index) ? 0 : (uint32_t)rng_between(rng, 1, MAX_PROCS);
	host->is_unmonitored = host->version != 1 && host->flavour != BSD && rng_chance(rng, 80);
	host->uses_shares = host->version != 1 && !host->is_unmonitored && rng_chance(rng, 250);
	world->has_shares |= host->uses_shares;
	if (!nat_join(host))
		move_to(host, world->n_slots++);
	settle_in(host);
}
