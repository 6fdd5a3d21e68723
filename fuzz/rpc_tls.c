/*
 * The gate between clear text and TLS: the input is a script of what clients do there. Each has
 * OpenSSL's own client, so that handshakes succeed, and can hold back, change, repeat and cut what
 * that wants to send, or send clear text in its place. The server is the product's own, on a
 * world in memory.
 *
 * What must hold: clear text behind a question for TLS is never served, and a client that does all in order
 * is.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "../tests/unit/tls/made.h"
#include "loop/loop.h"
#include "rpc_script.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_CLIENTS 4
#define MAX_STEPS   200
#define AUTH_TLS    7

struct client {
	struct fake_peer *peer;
	SSL *ssl;
	BIO *in, *out;   /* the fuzzer fills in and empties out */
	bool has_asked;  /* a whole question went out, and nothing but whole calls before it */
	bool is_orderly; /* it has only done what a client does */
};

struct world {
	struct script script;
	struct client clients[MAX_CLIENTS];
	const uint8_t *data;
	size_t size;
	uint32_t xid; /* each call has its own: none is answered from the replay cache */
};

static struct hf_tls *tls;
static SSL_CTX *ctx;

/* Keys are made once. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char folder[] = "/tmp/hf-fuzz-tls-XXXXXX", certificate[64], key[64], problem[HF_TLS_PROBLEM_SIZE];
	struct made ca = make_certificate("ca", NULL, 3650, NULL);
	const struct hf_tls_files files = { certificate, key, certificate };
	struct hf_tls_keys *keys = NULL;

	if (!mkdtemp(folder))
		abort();
	snprintf(certificate, sizeof(certificate), "%s/ca.pem", folder);
	snprintf(key, sizeof(key), "%s/ca.key", folder);
	write_certificate(&ca, certificate);
	write_key(&ca, key);
	ctx = SSL_CTX_new(TLS_client_method());
	if (!ctx || hf_tls_new(&tls) < 0 || hf_tls_keys_load(&keys, &files, problem))
		abort();
	hf_tls_set_keys(tls, keys);
	unlink(certificate);
	unlink(key);
	rmdir(folder);
	made_free(&ca);
	return 0;
}

static uint8_t next(struct world *w)
{
	if (!w->size)
		return 0;
	w->size--;
	return *w->data++;
}

static void hang_up(struct client *client)
{
	fake_peer_free(client->peer);
	SSL_free(client->ssl);
	*client = (struct client){ 0 };
}

static void connect_client(struct world *w, struct client *client, uint8_t host)
{
	struct hf_addr from = script_addr((uint8_t)(10 + host % 2), 800), to = script_addr(1, SCRIPT_PORT);

	hang_up(client);
	client->peer = fake_peer_connect(w->script.world, &from, &to);
	client->ssl = SSL_new(ctx);
	client->in = BIO_new(BIO_s_mem());
	client->out = BIO_new(BIO_s_mem());
	client->is_orderly = true;
	if (!client->ssl || !client->in || !client->out)
		abort();
	SSL_set_bio(client->ssl, client->in, client->out);
	SSL_set_connect_state(client->ssl);
}

/* A record with a call, of AUTH_NONE or AUTH_TLS. */
static size_t make_record(struct world *w, uint8_t *out, uint32_t program, uint32_t proc, bool asks)
{
	size_t len = script_call(out + 4, ++w->xid, program, 3, proc, (const uint8_t[4]){ 0 }, asks ? 0 : 4);
	uint32_t mark = htobe32(HF_RECORD_LAST | (uint32_t)len), flavor = htobe32(AUTH_TLS);

	memcpy(out, &mark, 4);
	if (asks)
		memcpy(out + 4 + 24, &flavor, 4);
	return len + 4;
}

static bool send_all(struct client *client, const void *data, size_t len)
{
	return fake_peer_send(client->peer, data, len) == len;
}

static void ask(struct world *w, struct client *client)
{
	uint8_t record[256];
	size_t len = make_record(w, record, next(w) & 1 ? SCRIPT_HOME : SCRIPT_PROGRAM, 0, true);

	if (client->has_asked)
		client->is_orderly = false;
	if (send_all(client, record, len) && client->is_orderly)
		client->has_asked = true;
	else
		client->is_orderly = false;
}

/* SCRIPT_COUNT is called in no other place: behind a question it must have no effect, ever. */
static void send_clear(struct world *w, struct client *client)
{
	static const uint32_t procs[] = { SCRIPT_VOID, SCRIPT_ECHO, SCRIPT_SUSPEND, SCRIPT_BIG };
	uint8_t record[256];
	size_t len =
		make_record(w, record, SCRIPT_PROGRAM,
			    client->has_asked ? SCRIPT_COUNT : procs[next(w) % HF_ARRAY_SIZE(procs)], false);

	if (!send_all(client, record, len) || client->has_asked)
		client->is_orderly = false;
}

static void send_raw(struct world *w, struct client *client)
{
	size_t len = next(w);

	len = HF_MIN(len, w->size);
	client->is_orderly = false;
	send_all(client, w->data, len);
	w->data += len;
	w->size -= len;
}

/* What OpenSSL wants to send; @how: as it is, changed, cut, twice, or not at all. */
static void deliver(struct world *w, struct client *client, uint8_t how)
{
	static uint8_t out[20000];
	int len;

	while ((len = BIO_read(client->out, out, sizeof(out))) > 0) {
		size_t n = (size_t)len;

		client->is_orderly &= how % 8 < 4;
		switch (how % 8) {
		case 4:
			out[next(w) % n] ^= (uint8_t)(1 + next(w));
			break;
		case 5:
			n = next(w) % n;
			break;
		case 6:
			send_all(client, out, n);
			break;
		case 7:
			n = 0;
			break;
		default:
			break;
		}
		client->is_orderly &= send_all(client, out, n);
	}
}

static void receive(struct client *client)
{
	static uint8_t in[70000];
	size_t len = fake_peer_receive(client->peer, in, sizeof(in));

	if (len)
		BIO_write(client->in, in, (int)len);
}

/* The answer STARTTLS is not TLS. */
static void receive_answer(struct client *client)
{
	uint8_t in[4 + HF_RPC_STARTTLS_LEN];

	fake_peer_receive(client->peer, in, sizeof(in));
}

static void shake_hands(struct world *w, struct client *client, uint8_t how)
{
	receive(client);
	SSL_do_handshake(client->ssl);
	deliver(w, client, how);
}

static void encrypt(struct world *w, struct client *client, uint8_t how)
{
	uint8_t record[256];
	size_t len = make_record(w, record, how & 64 ? SCRIPT_HOME : SCRIPT_PROGRAM,
				 (how >> 3 & 7) % SCRIPT_COUNT, how & 128);

	if (SSL_is_init_finished(client->ssl))
		SSL_write(client->ssl, record, (int)len);
	deliver(w, client, how);
}

static void change_key(struct world *w, struct client *client, uint8_t how)
{
	if (SSL_is_init_finished(client->ssl) && SSL_key_update(client->ssl, how & 1))
		SSL_do_handshake(client->ssl);
	deliver(w, client, how);
}

/* A new client does all in order: its call is served, whatever the others have done. */
static void be_served(struct world *w, struct client *client)
{
	uint8_t record[256], got[256];
	int n;

	fake_world_advance(w->script.world, 15 * HF_NS_PER_S); /* half-open handshakes have ended */
	connect_client(w, client, 7);
	send_all(client, record, make_record(w, record, SCRIPT_PROGRAM, 0, true));
	fake_world_settle(w->script.world);
	receive_answer(client);
	for (int i = 0; i < 4 && !SSL_is_init_finished(client->ssl); i++) {
		shake_hands(w, client, 0);
		fake_world_settle(w->script.world);
	}
	assert(SSL_is_init_finished(client->ssl));
	SSL_write(client->ssl, record, (int)make_record(w, record, SCRIPT_PROGRAM, SCRIPT_VOID, false));
	deliver(w, client, 0);
	fake_world_settle(w->script.world);
	receive(client);
	n = SSL_read(client->ssl, got, sizeof(got));
	assert(n == 4 + HF_RPC_REPLY_LEN);
	client->has_asked = true;
}

static void step(struct world *w)
{
	uint8_t op = next(w);
	struct client *client = &w->clients[op % MAX_CLIENTS];

	if (!client->peer || fake_peer_is_closed(client->peer))
		connect_client(w, client, op);
	switch (op / MAX_CLIENTS % 16) {
	case 0:
		connect_client(w, client, op);
		break;
	case 1:
		ask(w, client);
		break;
	case 2:
		receive_answer(client);
		break;
	case 3:
	case 4:
		shake_hands(w, client, next(w));
		break;
	case 5:
	case 6:
		encrypt(w, client, next(w));
		break;
	case 7:
		send_clear(w, client);
		break;
	case 8:
		send_raw(w, client);
		break;
	case 9:
		change_key(w, client, next(w));
		break;
	case 10:
		fake_world_turn(w->script.world);
		break;
	case 11:
		fake_world_settle(w->script.world);
		script_check(&w->script);
		break;
	case 12:
		fake_world_advance(w->script.world, next(w) * (HF_NS_PER_S / 8));
		break;
	case 13:
		fake_peer_end(client->peer);
		break;
	case 14:
		script_release(&w->script, next(w), op & 1);
		break;
	default:
		be_served(w, client);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world *w = calloc(1, sizeof(*w));
	struct hf_rpc_limits limits = script_limits;

	/* What fails shall be the handshake: a connection is never refused. */
	limits.max_connections = limits.max_connections_per_host = 64;
	w->data = data;
	w->size = size;
	script_open(&w->script, &limits, false);
	hf_rpc_server_set_tls(w->script.server, tls);
	for (int i = 0; i < MAX_STEPS && w->size; i++)
		step(w);
	be_served(w, &w->clients[0]);
	assert(w->script.count == 0);
	script_check(&w->script);
	script_close(&w->script);
	for (int i = 0; i < MAX_CLIENTS; i++)
		hang_up(&w->clients[i]);
	free(w);
	return 0;
}
