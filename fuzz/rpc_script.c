#include "rpc_script.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "loop/loop.h"

const struct hf_rpc_limits script_limits = {
	.max_connections = 6,
	.max_connections_per_host = 3,
	.max_gathering = 100000,
	.max_unread = 5000,
	.max_suspended_per_connection = 4,
	.max_suspended_bytes = 1 << 20,
	.max_charged = 32 << 20,
	.max_reply = 256 << 10,
	.idle_ns = 60 * HF_NS_PER_S,
	.stall_ns = 20 * HF_NS_PER_S,
	.stuck_ns = 20 * HF_NS_PER_S,
	.max_handshakes = 3,
	.max_handshakes_per_host = 2,
	.handshake_ns = 10 * HF_NS_PER_S,
};

static void serve_void(void *service, struct hf_rpc_call *call)
{
	hf_rpc_reply_void(call);
}

static void echo(struct hf_rpc_call *call)
{
	struct hf_bytes data = hf_xdr_get_opaque(hf_rpc_call_args(call), SCRIPT_RECORD);

	if (!hf_xdr_in_is_ok(hf_rpc_call_args(call))) {
		hf_rpc_reply_garbage(call);
		return;
	}
	hf_xdr_put_opaque(hf_rpc_reply_begin(call, 8 + (size_t)data.len), data);
	hf_rpc_reply_end(call);
}

static void serve_echo(void *service, struct hf_rpc_call *call)
{
	echo(call);
}

static void serve_suspend(void *service, struct hf_rpc_call *call)
{
	struct script *script = service;

	if (script->n_suspended == HF_ARRAY_SIZE(script->suspended))
		hf_rpc_call_drop(call);
	else if (hf_rpc_call_suspend(call) == 0)
		script->suspended[script->n_suspended++] = call;
}

static void serve_drop(void *service, struct hf_rpc_call *call)
{
	hf_rpc_call_drop(call);
}

static void serve_big(void *service, struct hf_rpc_call *call)
{
	uint32_t n = hf_xdr_get_u32(hf_rpc_call_args(call)) % 100000;
	struct hf_xdr_out *out = hf_rpc_reply_begin(call, (size_t)n + 4);
	uint8_t *p = hf_xdr_reserve(out, n & ~3u);

	if (p)
		memset(p, 'b', n & ~3u);
	hf_rpc_reply_end(call);
}

static void serve_count(void *service, struct hf_rpc_call *call)
{
	struct script *script = service;

	hf_xdr_put_u32(hf_rpc_reply_begin(call, 4), ++script->count);
	hf_rpc_reply_end(call);
}

/* Sometimes it asks for too little, and is answered SYSTEM_ERR. */
static void serve_reserve(void *service, struct hf_rpc_call *call)
{
	uint32_t n = hf_xdr_get_u32(hf_rpc_call_args(call)) % 100000;

	hf_xdr_put_u64(hf_rpc_reply_begin(call, n), n);
	hf_rpc_reply_end(call);
}

static const struct hf_rpc_proc procs[SCRIPT_N_PROCS] = {
	[SCRIPT_VOID] = { "VOID", serve_void },
	[SCRIPT_ECHO] = { "ECHO", serve_echo },
	[SCRIPT_SUSPEND] = { "SUSPEND", serve_suspend },
	[SCRIPT_DROP] = { "DROP", serve_drop },
	[SCRIPT_BIG] = { "BIG", serve_big },
	[SCRIPT_COUNT] = { "COUNT", serve_count, HF_RPC_REPLAY_ALWAYS },
	[SCRIPT_COUNT_SUSPEND] = { "COUNT_SUSPEND", serve_suspend, HF_RPC_REPLAY_ALWAYS },
	[SCRIPT_RESERVE] = { "RESERVE", serve_reserve },
};

static const struct hf_rpc_version versions[] = { { 1, 1, procs }, { 3, SCRIPT_N_PROCS, procs } };

static const struct hf_rpc_program programs[] = {
	{ SCRIPT_PROGRAM, "anywhere", 2, versions, SCRIPT_RECORD, false },
	{ SCRIPT_HOME, "home", 2, versions, 30000, true },
};

struct hf_addr script_addr(uint8_t host, uint16_t port)
{
	return (struct hf_addr){ .ip = { 10, 0, 0, host }, .family = AF_INET, .port = port };
}

void script_open(struct script *script, const struct hf_rpc_limits *limits, bool has_udp)
{
	struct hf_addr any = { .family = AF_INET };
	uint16_t port = SCRIPT_PORT;

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	memset(script, 0, sizeof(*script));
	script->world = fake_world_new(1);
	if (hf_rpc_server_new(&script->server, limits) < 0)
		abort();
	for (size_t i = 0; i < HF_ARRAY_SIZE(programs); i++)
		hf_rpc_server_add_program(script->server, &programs[i], script);
	for (int i = 0; i < SCRIPT_LANES; i++)
		if (fake_loop_new(&script->loops[i], script->world) < 0 ||
		    hf_rpc_server_add_lane(script->server, script->loops[i], &script->lanes[i]) < 0)
			abort();
	if (hf_rpc_server_listen_tcp(script->server, &any, &port) < 0 ||
	    (has_udp && hf_rpc_server_listen_udp(script->server, &any, &port) < 0))
		abort();
}

void script_release(struct script *script, size_t which, bool answer)
{
	struct hf_rpc_call *call;

	if (!script->n_suspended)
		return;
	which %= script->n_suspended;
	call = script->suspended[which];
	script->suspended[which] = script->suspended[--script->n_suspended];
	if (!answer)
		hf_rpc_call_drop(call);
	else if (hf_rpc_call_header(call)->procedure == SCRIPT_COUNT_SUSPEND)
		serve_count(script, call);
	else
		echo(call);
}

static void check_connection(const struct hf_rpc_connection *c, const struct hf_rpc_limits *limits)
{
	assert(c->socket);
	assert(c->out.n_allocated <= limits->max_unread + 200000);
	assert(c->out.n_bytes <= c->out.n_allocated);
	assert(c->n_suspended <= limits->max_suspended_per_connection);
	assert(c->backlog_len <= (256 << 10) + HF_RPC_LONGEST_ASKER);
	assert(c->reader.capacity <= 4 * c->reader.len + (64 << 10));
	assert(!c->backlog_len || c->is_paused);
}

void script_check(struct script *script)
{
	const struct hf_rpc_limits *limits = &script->server->limits;

	for (int i = 0; i < SCRIPT_LANES; i++) {
		struct hf_rpc_lane *lane = script->lanes[i];
		size_t gathering = 0;

		hf_list_for_each(link, &lane->idle) {
			struct hf_rpc_connection *c = hf_list_entry(link, struct hf_rpc_connection, link);

			check_connection(c, limits);
			assert(!c->reader.capacity && !c->out.n_bytes);
		}
		hf_list_for_each(link, &lane->busy) {
			struct hf_rpc_connection *c = hf_list_entry(link, struct hf_rpc_connection, link);

			check_connection(c, limits);
			gathering += c->reader.capacity;
		}
		assert(gathering == lane->n_gathering);
	}
}

void script_close(struct script *script)
{
	for (int i = SCRIPT_LANES - 1; i >= 0; i--)
		hf_rpc_lane_close(script->lanes[i]);
	while (script->n_suspended)
		script_release(script, script->n_suspended / 2, script->n_suspended % 2);
	fake_world_settle(script->world);
	for (int i = 0; i < SCRIPT_LANES; i++) {
		assert(!script->lanes[i]->n_gathering);
		hf_loop_free(script->loops[i]);
	}
	assert(!script->server->n_connections);
	hf_rpc_server_free(script->server);
	fake_world_free(script->world);
}

static uint8_t *put(uint8_t *p, uint32_t word)
{
	word = htobe32(word);
	memcpy(p, &word, 4);
	return p + 4;
}

size_t script_call(uint8_t *out, uint32_t xid, uint32_t program, uint32_t version, uint32_t proc,
		   const uint8_t *args, size_t len)
{
	const uint32_t words[] = { xid, 0, 2, program, version, proc, 0, 0, 0, 0 };
	uint8_t *p = out;

	for (size_t i = 0; i < HF_ARRAY_SIZE(words); i++)
		p = put(p, words[i]);
	if (len)
		memcpy(p, args, len);
	return (size_t)(p - out) + len;
}
