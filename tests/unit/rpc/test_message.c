/* Message headers: byte for byte, and against libtirpc, which is what the other side runs. */
#include "../test.h"

#include <stdlib.h>
#include <string.h>

#include "rpc/message.h"
#include "tirpc.h"

static uint8_t *put(uint8_t *p, uint32_t word)
{
	word = htobe32(word);
	memcpy(p, &word, 4);
	return p + 4;
}

#define WORDS(...) (const uint32_t[]){ __VA_ARGS__ }, sizeof((uint32_t[]){ __VA_ARGS__ }) / 4

static void expect(const uint8_t *data, const struct hf_xdr_out *out, const uint32_t *words, size_t n)
{
	uint8_t expected[128];

	for (size_t i = 0; i < n; i++)
		put(expected + 4 * i, words[i]);
	assert_true(hf_xdr_out_is_ok(out));
	assert_int_equal(out->p - data, 4 * n);
	assert_memory_equal(data, expected, 4 * n);
}

static void test_replies(void **state)
{
	uint8_t data[64];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, data, sizeof(data));
	hf_rpc_put_success(&out, 0xa1b2c3d4);
	expect(data, &out, WORDS(0xa1b2c3d4, 1, 0, 0, 0, 0));
	assert_int_equal(out.p - data, HF_RPC_REPLY_LEN);
	for (uint32_t stat = 1; stat <= 5; stat++) {
		hf_xdr_out_init(&out, data, sizeof(data));
		hf_rpc_put_accept_error(&out, 7, stat);
		expect(data, &out, WORDS(7, 1, 0, 0, 0, stat));
	}
	hf_xdr_out_init(&out, data, sizeof(data));
	hf_rpc_put_prog_mismatch(&out, 7, 2, 4);
	expect(data, &out, WORDS(7, 1, 0, 0, 0, 2, 2, 4));
	hf_xdr_out_init(&out, data, sizeof(data));
	hf_rpc_put_rpc_mismatch(&out, 7);
	expect(data, &out, WORDS(7, 1, 1, 0, 2, 2));
	hf_xdr_out_init(&out, data, sizeof(data));
	hf_rpc_put_auth_error(&out, 7, HF_RPC_AUTH_TOOWEAK);
	expect(data, &out, WORDS(7, 1, 1, 1, 5));
}

static void test_calls_out(void **state)
{
	uint8_t data[128];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, data, sizeof(data));
	hf_rpc_put_call(&out, &(struct hf_rpc_outgoing){ 9, 100024, 1, 6 });
	expect(data, &out, WORDS(9, 0, 2, 100024, 1, 6, 0, 0, 0, 0));
}

/* A call by hand; returns its length. */
static size_t make_call(uint8_t *data, uint32_t flavor, const uint8_t *body, uint32_t len)
{
	uint8_t *p = data;

	for (size_t i = 0; i < 6; i++)
		p = put(p, (uint32_t[]){ 0x11223344, 0, 2, 100003, 3, 7 }[i]);
	p = put(put(p, flavor), len);
	memset(p, 0, (len + 3) & ~3u);
	memcpy(p, body, len);
	p += (len + 3) & ~3u;
	p = put(put(p, 0), 0);
	return (size_t)(put(p, 0xcafe) - data); /* an argument */
}

static size_t make_sys(uint8_t *body, uint32_t name_len, uint32_t n_gids)
{
	uint8_t *p = put(put(body, 99), name_len);

	memset(p, 0, (name_len + 3) & ~3u);
	memset(p, 'n', name_len);
	p += (name_len + 3) & ~3u;
	p = put(put(put(p, 1000), 100), n_gids);
	for (uint32_t i = 0; i < n_gids; i++)
		p = put(p, 5000 + i);
	return (size_t)(p - body);
}

static enum hf_rpc_parse parse(struct hf_rpc_header *header, enum hf_rpc_auth_stat *statp,
			       const uint8_t *data, size_t len, size_t *leftp)
{
	uint8_t *copy = malloc(len ? len : 1);
	struct hf_xdr_in in;
	enum hf_rpc_parse r;

	if (len)
		memcpy(copy, data, len);
	hf_xdr_in_init(&in, copy, len);
	r = hf_rpc_parse_call(header, statp, &in);
	*leftp = hf_xdr_in_left(&in);
	free(copy);
	return r;
}

static void test_auth_sys_limits(void **state)
{
	static const struct {
		uint32_t name_len;
		uint32_t n_gids;
		enum hf_rpc_parse result;
	} cases[] = {
		{ 0, 0, HF_RPC_CALL },       { 1, 1, HF_RPC_CALL },        { 255, 0, HF_RPC_CALL },
		{ 256, 0, HF_RPC_BAD_AUTH }, { 0, 16, HF_RPC_CALL },       { 0, 17, HF_RPC_BAD_AUTH },
		{ 255, 16, HF_RPC_CALL },    { 255, 17, HF_RPC_BAD_AUTH },
	};
	uint8_t body[1024], data[2048];

	for (size_t i = 0; i < HF_ARRAY_SIZE(cases); i++) {
		struct hf_rpc_header header;
		enum hf_rpc_auth_stat stat = 99;
		size_t len = make_sys(body, cases[i].name_len, cases[i].n_gids), left;

		len = make_call(data, 1, body, (uint32_t)len);
		assert_int_equal(parse(&header, &stat, data, len, &left), cases[i].result);
		assert_int_equal(header.xid, 0x11223344);
		if (cases[i].result == HF_RPC_BAD_AUTH) {
			assert_int_equal(stat, HF_RPC_AUTH_BADCRED);
			continue;
		}
		assert_int_equal(left, 4);
		assert_int_equal(header.program, 100003);
		assert_int_equal(header.version, 3);
		assert_int_equal(header.procedure, 7);
		assert_int_equal(header.cred.flavor, HF_RPC_AUTH_SYS);
		assert_int_equal(header.cred.machine.len, cases[i].name_len);
		assert_int_equal(header.cred.uid, 1000);
		assert_int_equal(header.cred.gid, 100);
		assert_int_equal(header.cred.n_gids, cases[i].n_gids);
		for (uint32_t k = 0; k < cases[i].n_gids; k++)
			assert_int_equal(header.cred.gids[k], 5000 + k);
	}
	/* a body that ends early, at each place */
	for (size_t len = make_sys(body, 7, 3), cut = 0; cut < len; cut++) {
		struct hf_rpc_header header;
		enum hf_rpc_auth_stat stat = 99;
		size_t left;

		assert_int_equal(parse(&header, &stat, data, make_call(data, 1, body, (uint32_t)cut), &left),
				 HF_RPC_BAD_AUTH);
		assert_int_equal(stat, HF_RPC_AUTH_BADCRED);
	}
}

static void test_flavours(void **state)
{
	uint8_t body[512] = { 0 }, data[1024];
	struct hf_rpc_header header;
	enum hf_rpc_auth_stat stat;
	size_t left;

	for (uint32_t len = 0; len <= 400; len += 100) {
		assert_int_equal(parse(&header, &stat, data, make_call(data, 0, body, len), &left),
				 HF_RPC_CALL);
		assert_int_equal(left, 4);
		assert_int_equal(header.cred.flavor, HF_RPC_AUTH_NONE);
		assert_int_equal(header.cred.uid, UINT32_MAX);
		assert_int_equal(header.cred.gid, UINT32_MAX);
		assert_int_equal(header.cred.n_gids, 0);
		assert_int_equal(header.cred.machine.len, 0);
	}
	for (uint32_t flavor = 0; flavor < 8; flavor++)
		assert_int_equal(parse(&header, &stat, data, make_call(data, flavor, body, 401), &left),
				 HF_RPC_BAD_HEADER);
	for (uint32_t flavor = 2; flavor < 10; flavor++) {
		assert_int_equal(parse(&header, &stat, data, make_call(data, flavor, body, 12), &left),
				 HF_RPC_BAD_AUTH);
		assert_int_equal(stat,
				 flavor == HF_RPC_AUTH_TLS ? HF_RPC_AUTH_BADCRED : HF_RPC_AUTH_REJECTEDCRED);
	}
}

static void test_starttls(void **state)
{
	static const uint8_t reply[HF_RPC_STARTTLS_LEN] = "\0\0\0\x05"
							  "\0\0\0\x01"
							  "\0\0\0\0"
							  "\0\0\0\0"
							  "\0\0\0\x08"
							  "STARTTLS"
							  "\0\0\0";
	uint8_t data[1024] = { 0 }, made[HF_RPC_STARTTLS_LEN];
	struct hf_rpc_header header;
	enum hf_rpc_auth_stat stat;
	struct hf_xdr_out out;
	size_t left;

	assert_int_equal(parse(&header, &stat, data, make_call(data, HF_RPC_AUTH_TLS, data, 0), &left),
			 HF_RPC_ASKS_TLS);
	assert_int_equal(header.cred.uid, UINT32_MAX);
	hf_xdr_out_init(&out, made, sizeof(made));
	hf_rpc_put_starttls(&out, 5);
	assert_true(hf_xdr_out_is_ok(&out));
	assert_int_equal(out.p - made, sizeof(reply));
	assert_memory_equal(made, reply, sizeof(reply));
}

/* Cut short anywhere in the header, it is never taken for a whole one. */
static void test_header_truncations(void **state)
{
	uint8_t body[512], data[1024];
	struct hf_rpc_header header;
	enum hf_rpc_auth_stat stat;
	size_t len = make_call(data, 1, body, (uint32_t)make_sys(body, 9, 5)), left;

	for (size_t cut = 0; cut < len - 4; cut++)
		assert_int_equal(parse(&header, &stat, data, cut, &left),
				 cut < 8 ? HF_RPC_NOT_A_CALL : HF_RPC_BAD_HEADER);
	for (size_t cut = len - 4; cut <= len; cut++)
		assert_int_equal(parse(&header, &stat, data, cut, &left), HF_RPC_CALL);
	put(data + 4, 1);
	assert_int_equal(parse(&header, &stat, data, len, &left), HF_RPC_NOT_A_CALL);
	put(data + 4, 0);
	put(data + 8, 3);
	assert_int_equal(parse(&header, &stat, data, len, &left), HF_RPC_BAD_VERSION);
	assert_int_equal(header.xid, 0x11223344);
}

/* Against libtirpc */

static uint32_t next(uint32_t *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 8;
}

/* What libtirpc encodes, the server reads alike. */
static void test_tirpc_calls_in(void **state)
{
	uint32_t seed = 1;

	for (int round = 0; round < 2000; round++) {
		struct tirpc_call call = { .xid = next(&seed) * 257,
					   .program = next(&seed) * 255,
					   .version = next(&seed),
					   .procedure = next(&seed),
					   .is_sys = round % 2,
					   .uid = next(&seed) * 256,
					   .gid = next(&seed),
					   .n_gids = next(&seed) % 17 };
		struct hf_rpc_header header;
		enum hf_rpc_auth_stat stat;
		struct hf_xdr_in in;
		uint8_t data[1024];
		size_t len;

		memset(call.name, 'x', next(&seed) % 256);
		for (size_t i = 0; i < 16; i++)
			call.gids[i] = next(&seed) * 99;
		len = tirpc_encode_call(data, sizeof(data), &call);
		assert_true(len > 0);
		hf_xdr_in_init(&in, data, len);
		assert_int_equal(hf_rpc_parse_call(&header, &stat, &in), HF_RPC_CALL);
		assert_int_equal(hf_xdr_in_left(&in), 0);
		assert_int_equal(header.xid, call.xid);
		assert_int_equal(header.program, call.program);
		assert_int_equal(header.version, call.version);
		assert_int_equal(header.procedure, call.procedure);
		assert_int_equal(header.cred.flavor, call.is_sys);
		if (!call.is_sys)
			continue;
		assert_int_equal(header.cred.uid, call.uid);
		assert_int_equal(header.cred.gid, call.gid);
		assert_int_equal(header.cred.n_gids, call.n_gids);
		assert_memory_equal(header.cred.gids, call.gids, call.n_gids * 4);
		assert_true(hf_bytes_equal(header.cred.machine, hf_bytes_of_str(call.name)));
	}
}

/* What the server sends as a client, libtirpc reads alike. */
static void test_tirpc_calls_out(void **state)
{
	static const char *const names[] = { "", "a", "host", "host.example.org" };

	for (size_t i = 0; i < 2 * HF_ARRAY_SIZE(names); i++) {
		const char *name = names[i / 2];
		struct hf_rpc_outgoing call = { 0xfeedface, 100021, 4, 15, i % 2, i % 2 ? name : NULL };
		struct tirpc_call seen;
		uint8_t data[512];
		struct hf_xdr_out out;

		hf_xdr_out_init(&out, data, sizeof(data));
		hf_rpc_put_call(&out, &call);
		assert_int_equal(tirpc_decode_call(&seen, data, (size_t)(out.p - data)), out.p - data);
		assert_int_equal(seen.xid, 0xfeedface);
		assert_int_equal(seen.program, 100021);
		assert_int_equal(seen.version, 4);
		assert_int_equal(seen.procedure, 15);
		assert_int_equal(seen.is_sys, i % 2);
		if (i % 2) {
			assert_string_equal(seen.name, name);
			assert_int_equal(seen.uid, 0);
			assert_int_equal(seen.n_gids, 0);
		}
	}
}

static struct tirpc_reply decoded(uint8_t *data, const struct hf_xdr_out *out)
{
	struct tirpc_reply reply;

	assert_int_equal(tirpc_decode_reply(&reply, data, (size_t)(out->p - data)), out->p - data);
	return reply;
}

static void test_tirpc_reads_replies(void **state)
{
	uint8_t data[64];
	struct hf_xdr_out out;
	struct tirpc_reply r;

	for (uint32_t stat = 0; stat <= 5; stat++) {
		hf_xdr_out_init(&out, data, sizeof(data));
		if (stat == HF_RPC_SUCCESS)
			hf_rpc_put_success(&out, 1);
		else if (stat == HF_RPC_PROG_MISMATCH)
			hf_rpc_put_prog_mismatch(&out, 1, 2, 4);
		else
			hf_rpc_put_accept_error(&out, 1, stat);
		r = decoded(data, &out);
		assert_int_equal(r.xid, 1);
		assert_false(r.is_denied);
		assert_int_equal(r.stat, stat);
		assert_int_equal(r.low, stat == HF_RPC_PROG_MISMATCH ? 2 : 0);
		assert_int_equal(r.high, stat == HF_RPC_PROG_MISMATCH ? 4 : 0);
	}
	hf_xdr_out_init(&out, data, sizeof(data));
	hf_rpc_put_rpc_mismatch(&out, 4);
	r = decoded(data, &out);
	assert_true(r.is_denied && r.stat == 0 && r.low == 2 && r.high == 2);
	hf_xdr_out_init(&out, data, sizeof(data));
	hf_rpc_put_auth_error(&out, 5, HF_RPC_AUTH_REJECTEDCRED);
	r = decoded(data, &out);
	assert_true(r.is_denied && r.stat == 1 && r.why == HF_RPC_AUTH_REJECTEDCRED);
}

static void test_tirpc_replies_in(void **state)
{
	static const struct {
		struct tirpc_reply reply;
		enum hf_rpc_reply result;
	} cases[] = {
		{ { 1, false, 0 }, HF_RPC_REPLY_OK },
		{ { 0xffffffff, false, 0, .verifier_len = 400 }, HF_RPC_REPLY_OK },
		{ { 2, false, 1, .verifier_len = 3 }, HF_RPC_REPLY_NO_PROG },
		{ { 3, false, 2, 3, 4 }, HF_RPC_REPLY_NO_PROG },
		{ { 4, false, 3 }, HF_RPC_REPLY_NO_PROC },
		{ { 5, false, 4 }, HF_RPC_REPLY_NO_SENSE },
		{ { 6, false, 5 }, HF_RPC_REPLY_NO_SENSE },
		{ { 7, true, 0, 2, 2 }, HF_RPC_REPLY_REFUSED },
		{ { 8, true, 1, .why = 5 }, HF_RPC_REPLY_REFUSED },
	};

	for (size_t i = 0; i < HF_ARRAY_SIZE(cases); i++) {
		struct hf_xdr_in in;
		uint8_t data[512];
		size_t len = tirpc_encode_reply(data, sizeof(data), &cases[i].reply);
		uint32_t xid;

		assert_true(len > 0);
		assert_true(hf_rpc_peek_reply_xid(&xid, hf_bytes_of(data, (uint32_t)len)));
		assert_int_equal(xid, cases[i].reply.xid);
		hf_xdr_in_init(&in, data, len);
		assert_int_equal(hf_rpc_parse_reply(&in), cases[i].result);
		if (cases[i].result == HF_RPC_REPLY_OK)
			assert_int_equal(hf_xdr_in_left(&in), 0);
		for (size_t cut = 0; cut < len; cut++) {
			hf_xdr_in_init(&in, data, cut);
			assert_int_not_equal(hf_rpc_parse_reply(&in), HF_RPC_REPLY_OK);
			assert_int_equal(hf_rpc_peek_reply_xid(&xid, hf_bytes_of(data, (uint32_t)cut)),
					 cut >= 8);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replies),
		cmocka_unit_test(test_calls_out),
		cmocka_unit_test(test_auth_sys_limits),
		cmocka_unit_test(test_flavours),
		cmocka_unit_test(test_starttls),
		cmocka_unit_test(test_header_truncations),
		cmocka_unit_test(test_tirpc_calls_in),
		cmocka_unit_test(test_tirpc_calls_out),
		cmocka_unit_test(test_tirpc_reads_replies),
		cmocka_unit_test(test_tirpc_replies_in),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
