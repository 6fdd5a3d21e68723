/*
 * Whole sessions: the input is a script of what peers do to a server, bytes and
 * well-formed calls in any pieces, reading or not, breaking off, time passing,
 * suspended calls ending. The server is the product's own, on a world in memory.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "loop/loop.h"
#include "rpc_script.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_PEERS 8
#define MAX_STEPS 400

struct session {
	struct script script;
	struct fake_peer *peers[MAX_PEERS];
	const uint8_t *data;
	size_t size;
};

static uint8_t next(struct session *s)
{
	if (!s->size)
		return 0;
	s->size--;
	return *s->data++;
}

static void connect_peer(struct session *s, uint8_t which)
{
	struct hf_addr from = script_addr((uint8_t)(10 + which % 3), 800), to = script_addr(1, SCRIPT_PORT);

	fake_peer_free(s->peers[which]);
	s->peers[which] = fake_peer_connect(s->script.world, &from, &to);
}

static size_t make_call(struct session *s, uint8_t *out)
{
	uint8_t what = next(s), args[260] = { 0 };
	size_t len = next(s);

	for (size_t i = 0; i < len + 4; i++)
		args[i] = (uint8_t)(what + i);
	args[0] = args[1] = 0;
	args[2] = what & 0x80 ? 0xf0 : 0;
	args[3] = (uint8_t)len;
	return script_call(out, what & 7, what & 0x40 ? SCRIPT_HOME : SCRIPT_PROGRAM, 3,
			   (what >> 3) % SCRIPT_N_PROCS, args, 4 + ((len + 3) & ~(size_t)3));
}

static void send_call(struct session *s, struct fake_peer *peer, uint8_t piece)
{
	uint8_t record[512];
	size_t len = make_call(s, record + 4), cut = piece % (len + 4);
	uint32_t mark = htobe32(HF_RECORD_LAST | (uint32_t)len);

	memcpy(record, &mark, 4);
	if (!peer)
		return;
	fake_peer_send(peer, record, cut);
	if (piece & 1)
		fake_world_turn(s->script.world);
	fake_peer_send(peer, record + cut, len + 4 - cut);
}

static void send_raw(struct session *s, struct fake_peer *peer, size_t len)
{
	len = HF_MIN(len, s->size);
	if (peer)
		fake_peer_send(peer, s->data, len);
	s->data += len;
	s->size -= len;
}

static void send_datagram(struct session *s)
{
	struct hf_addr from = script_addr((uint8_t)(10 + next(s) % 3), 900), to = script_addr(1, SCRIPT_PORT);
	uint8_t call[512];
	size_t len = make_call(s, call);

	fake_datagram_send(s->script.world, &from, &to, call, len);
}

static void flood(struct session *s, struct fake_peer *peer, uint8_t n)
{
	uint8_t record[512];
	size_t len = make_call(s, record + 4);
	uint32_t mark = htobe32(HF_RECORD_LAST | (uint32_t)len);

	memcpy(record, &mark, 4);
	while (peer && n--)
		fake_peer_send(peer, record, len + 4);
}

/* Everything that came back is records, one fragment each, that hold replies. */
static void receive(struct fake_peer *peer, size_t room)
{
	static uint8_t sink[70000];

	if (peer)
		fake_peer_receive(peer, sink, room);
}

static void step(struct session *s)
{
	uint8_t op = next(s), which = op & 7, arg;
	struct fake_peer **peer = &s->peers[which];

	if (!*peer || fake_peer_is_closed(*peer))
		connect_peer(s, which);
	switch (op >> 3 & 15) {
	case 0:
		fake_peer_free(*peer);
		*peer = NULL;
		break;
	case 1:
		fake_peer_end(*peer);
		break;
	case 2:
		fake_peer_reset(*peer);
		break;
	case 3:
		send_raw(s, *peer, next(s));
		break;
	case 4:
	case 5:
		send_call(s, *peer, next(s));
		break;
	case 6:
		flood(s, *peer, next(s));
		break;
	case 7:
		receive(*peer, (size_t)next(s) * 256);
		break;
	case 8:
		fake_world_turn(s->script.world);
		break;
	case 9:
		fake_world_settle(s->script.world);
		script_check(&s->script);
		break;
	case 10:
		fake_world_advance(s->script.world, next(s) * (HF_NS_PER_S / 4));
		script_check(&s->script);
		break;
	case 11:
		arg = next(s);
		script_release(&s->script, arg >> 1, arg & 1);
		break;
	case 12:
		send_datagram(s);
		break;
	case 13: {
		static uint8_t reply[70000];
		struct hf_addr from, to;

		fake_datagram_receive(s->script.world, &from, &to, reply, sizeof(reply));
		break;
	}
	case 14:
		fake_world_set_pipe(s->script.world, 1 + (size_t)next(s) * 300);
		break;
	default:
		connect_peer(s, which);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct session *s = calloc(1, sizeof(*s));

	s->data = data;
	s->size = size;
	script_open(&s->script, &script_limits, next(s) & 1);
	for (int i = 0; i < MAX_STEPS && s->size; i++)
		step(s);
	fake_world_settle(s->script.world);
	script_check(&s->script);
	script_close(&s->script);
	for (int i = 0; i < MAX_PEERS; i++)
		fake_peer_free(s->peers[i]);
	free(s);
	return 0;
}
