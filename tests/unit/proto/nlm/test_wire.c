/* Arguments, the server's codec against rpcgen's, in every version, and against nonsense; and GRANTED, which
 * repeats them. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "proto/nlm/wire.h"

#include "nlm_oracle.h"

#define BUFFER 8192

static const uint32_t versions[] = { 1, 3, 4 };

/* What a client might send, and the edges of what it may. */
static const struct sample {
	const char *cookie;
	uint32_t cookie_len;
	const char *name;
	uint32_t handle_len;
	uint32_t oh_len;
	int32_t svid;
	uint64_t offset;
	uint64_t len;
	bool block, exclusive, reclaim;
	int32_t state;
} samples[] = {
	{ "\0\0\x12\x35", 4, "clienta", 28, 9, 0, 0, 0, false, true, false, 3 },
	{ "", 0, "c", 32, 0, -1, 10, 5, true, false, false, 0 },
	{ "eight by", 8, "name.example.org", 64, 1024, INT32_MAX, INT32_MAX, 1, true, true, true, -1 },
	{ "x", 1, "abc", 1, 3, INT32_MIN, 0, INT32_MAX, false, false, true, INT32_MAX },
	{ "xyz", 3, "abcd", 0, 1, 7, 1, 2, true, true, true, 5 },
};

static uint8_t filler[2048]; /* of handles, owners and long cookies */

static int setup(void **state)
{
	for (size_t i = 0; i < sizeof(filler); i++)
		filler[i] = (uint8_t)(i * 7 + 1);
	return 0;
}

static nlm_netobj netobj(const void *data, uint32_t len)
{
	return (nlm_netobj){ len, oracle_text(data) };
}

/* Lengthens the range where the version can say more. */
static uint64_t wide(uint32_t version, uint64_t value)
{
	return version == 4 && value > 1 ? value << 31 | value : value;
}

static struct nlm_lock old_lock(const struct sample *s)
{
	return (struct nlm_lock){ .caller_name = oracle_text(s->name),
				  .fh = { s->handle_len, oracle_text(filler) },
				  .oh = netobj(filler, s->oh_len),
				  .svid = s->svid,
				  .l_offset = (uint32_t)s->offset,
				  .l_len = (uint32_t)s->len };
}

static struct nlm4_lock new_lock(const struct sample *s)
{
	return (struct nlm4_lock){ .caller_name = oracle_text(s->name),
				   .fh = { s->handle_len, oracle_text(filler) },
				   .oh = netobj(filler, s->oh_len),
				   .svid = s->svid,
				   .l_offset = wide(4, s->offset),
				   .l_len = wide(4, s->len) };
}

static void check_lock(const struct hf_nlm_args *args, const struct sample *s, uint32_t version)
{
	assert_true(hf_bytes_equal(args->cookie, hf_bytes_of(s->cookie, s->cookie_len)));
	assert_true(hf_bytes_equal(args->caller, hf_bytes_of_str(s->name)));
	assert_true(hf_bytes_equal(args->handle, hf_bytes_of(filler, s->handle_len)));
	assert_true(hf_bytes_equal(args->oh, hf_bytes_of(filler, s->oh_len)));
	assert_int_equal(args->svid, s->svid);
	assert_int_equal(args->offset, wide(version, s->offset));
	assert_int_equal(args->len, wide(version, s->len));
}

/* The four kinds of arguments about a lock, of which each has some of the same parts */

enum kind {
	TEST,
	LOCK,
	CANCEL,
	UNLOCK,
	N_KINDS
};

static size_t encode_old(enum kind kind, const struct sample *s, uint8_t *out)
{
	nlm_netobj cookie = netobj(s->cookie, s->cookie_len);
	struct nlm_lock alock = old_lock(s);

	if (kind == TEST)
		return oracle_encode(out, BUFFER, (xdrproc_t)xdr_nlm_testargs,
				     &(struct nlm_testargs){ cookie, s->exclusive, alock });
	if (kind == LOCK)
		return oracle_encode(out, BUFFER, (xdrproc_t)xdr_nlm_lockargs,
				     &(struct nlm_lockargs){ cookie, s->block, s->exclusive, alock,
							     s->reclaim, s->state });
	if (kind == CANCEL)
		return oracle_encode(out, BUFFER, (xdrproc_t)xdr_nlm_cancargs,
				     &(struct nlm_cancargs){ cookie, s->block, s->exclusive, alock });
	return oracle_encode(out, BUFFER, (xdrproc_t)xdr_nlm_unlockargs,
			     &(struct nlm_unlockargs){ cookie, alock });
}

static size_t encode_new(enum kind kind, const struct sample *s, uint8_t *out)
{
	nlm_netobj cookie = netobj(s->cookie, s->cookie_len);
	struct nlm4_lock alock = new_lock(s);

	if (kind == TEST)
		return oracle_encode(out, BUFFER, (xdrproc_t)xdr_nlm4_testargs,
				     &(struct nlm4_testargs){ cookie, s->exclusive, alock });
	if (kind == LOCK)
		return oracle_encode(out, BUFFER, (xdrproc_t)xdr_nlm4_lockargs,
				     &(struct nlm4_lockargs){ cookie, s->block, s->exclusive, alock,
							      s->reclaim, s->state });
	if (kind == CANCEL)
		return oracle_encode(out, BUFFER, (xdrproc_t)xdr_nlm4_cancargs,
				     &(struct nlm4_cancargs){ cookie, s->block, s->exclusive, alock });
	return oracle_encode(out, BUFFER, (xdrproc_t)xdr_nlm4_unlockargs,
			     &(struct nlm4_unlockargs){ cookie, alock });
}

static size_t encode(enum kind kind, const struct sample *s, uint32_t version, uint8_t *out)
{
	return version == 4 ? encode_new(kind, s, out) : encode_old(kind, s, out);
}

static void (*const decoders[])(struct hf_nlm_args *, uint32_t, struct hf_xdr_in *) = {
	[TEST] = hf_nlm_get_test,
	[LOCK] = hf_nlm_get_lock,
	[CANCEL] = hf_nlm_get_cancel,
	[UNLOCK] = hf_nlm_get_unlock,
};

static void check_args(enum kind kind, const struct sample *s, uint32_t version)
{
	uint8_t data[BUFFER];
	size_t len = encode(kind, s, version, data);
	struct hf_nlm_args args;
	struct hf_xdr_in in;

	assert_true(len > 0);
	hf_xdr_in_init(&in, data, len);
	decoders[kind](&args, version, &in);
	assert_true(hf_xdr_in_is_ok(&in));
	assert_int_equal(hf_xdr_in_left(&in), 0);
	check_lock(&args, s, version);
	assert_int_equal(args.exclusive, kind != UNLOCK && s->exclusive);
	assert_int_equal(args.block, (kind == LOCK || kind == CANCEL) && s->block);
	assert_int_equal(args.reclaim, kind == LOCK && s->reclaim);
	assert_int_equal(args.state, kind == LOCK ? s->state : 0);
}

static void test_arguments(void **state)
{
	for (int kind = 0; kind < N_KINDS; kind++)
		for (size_t i = 0; i < HF_ARRAY_SIZE(samples); i++)
			for (size_t v = 0; v < HF_ARRAY_SIZE(versions); v++)
				check_args((enum kind)kind, &samples[i], versions[v]);
}

/* Cut anywhere they are refused; the bytes live on the heap, so that a sanitizer sees a read past them. */
static void test_arguments_cut(void **state)
{
	uint8_t data[BUFFER];

	for (int kind = 0; kind < N_KINDS; kind++) {
		for (size_t v = 0; v < HF_ARRAY_SIZE(versions); v++) {
			size_t len = encode((enum kind)kind, &samples[0], versions[v], data);

			for (size_t cut = 0; cut < len; cut++) {
				uint8_t *part = malloc(cut + 1);
				struct hf_nlm_args args;
				struct hf_xdr_in in;

				assert_non_null(part);
				memcpy(part, data, cut);
				hf_xdr_in_init(&in, part, cut);
				decoders[kind](&args, versions[v], &in);
				assert_false(hf_xdr_in_is_ok(&in));
				free(part);
			}
		}
	}
}

/* Each variable part one byte over its limit, which is where the oracle refuses as well. */
static void test_arguments_too_long(void **state)
{
	static char long_name[1026];
	struct nlm4_unlockargs args = { .alock.caller_name = oracle_text("host") };
	uint8_t data[BUFFER];

	memset(long_name, 'n', sizeof(long_name) - 1);
	for (int part = 0; part < 4; part++) {
		const uint32_t limits[] = { HF_NLM_MAX_NETOBJ, HF_NLM_MAX_STRING, HF_NLM_MAX_HANDLE,
					    HF_NLM_MAX_NETOBJ };
		struct hf_nlm_args ours;
		struct hf_xdr_out out;
		struct hf_xdr_in in;

		for (uint32_t over = 0; over < 2; over++) {
			const struct hf_bytes parts[] = {
				hf_bytes_of(filler, part == 0 ? limits[0] + over : 1),
				hf_bytes_of(long_name, part == 1 ? limits[1] + over : 1),
				hf_bytes_of(filler, part == 2 ? limits[2] + over : 1),
				hf_bytes_of(filler, part == 3 ? limits[3] + over : 1),
			};

			hf_xdr_out_init(&out, data, sizeof(data));
			for (size_t i = 0; i < HF_ARRAY_SIZE(parts); i++)
				hf_xdr_put_opaque(&out, parts[i]);
			hf_xdr_put_i32(&out, 1);
			hf_xdr_put_u64(&out, 0);
			hf_xdr_put_u64(&out, 0);
			hf_xdr_in_init(&in, data, (size_t)(out.p - data));
			hf_nlm_get_unlock(&ours, 4, &in);
			assert_int_equal(hf_xdr_in_is_ok(&in), !over);
			memset(&args, 0, sizeof(args));
			assert_int_equal(oracle_decode(data, (size_t)(out.p - data),
						       (xdrproc_t)xdr_nlm4_unlockargs, &args),
					 !over);
			oracle_free((xdrproc_t)xdr_nlm4_unlockargs, &args);
		}
	}
}

/* Names become keys, ids and log lines: none may end before its end. */
static void test_name_with_nul(void **state)
{
	/* after an empty cookie, and for UNLOCK, SHARE and FREE_ALL alike: the name, and zeros for the rest
	 */
	uint8_t data[64] = { 0, 0, 0, 0, 0, 0, 0, 3, 'a', 'c', 'b' };

	for (int is_bad = 0; is_bad < 2; is_bad++) {
		struct hf_nlm_notify notify;
		struct hf_nlm_args args;
		struct hf_xdr_in in;

		data[9] = is_bad ? '\0' : 'c';
		hf_xdr_in_init(&in, data, sizeof(data));
		hf_nlm_get_unlock(&args, 4, &in);
		assert_int_equal(hf_xdr_in_is_ok(&in), !is_bad);
		hf_xdr_in_init(&in, data, sizeof(data));
		hf_nlm_get_share(&args, &in);
		assert_int_equal(hf_xdr_in_is_ok(&in), !is_bad);
		hf_xdr_in_init(&in, data + 4, sizeof(data) - 4);
		hf_nlm_get_notify(&notify, &in);
		assert_int_equal(hf_xdr_in_is_ok(&in), !is_bad);
	}
}

static void test_bools(void **state)
{
	uint8_t data[BUFFER];
	struct hf_nlm_args args;
	struct hf_xdr_in in;
	size_t len = encode(CANCEL, &samples[1], 4, data);

	memcpy(data + 4, "\x80\0\0\0\0\0\0\x02", 8); /* block, exclusive after an empty cookie */
	hf_xdr_in_init(&in, data, len);
	hf_nlm_get_cancel(&args, 4, &in);
	assert_true(hf_xdr_in_is_ok(&in));
	assert_true(args.block && args.exclusive);
}

/* Ranges that the old versions cannot end: to the end of the file, from where they begin. */
static void test_old_range(void **state)
{
	static const struct {
		uint32_t offset, len;
		bool is_to_end;
	} rows[] = {
		{ 0, INT32_MAX, false }, { 0, 0x80000000, false }, { 0, 0x80000001, true },
		{ INT32_MAX, 1, false }, { INT32_MAX, 2, true },   { 0x80000000, 1, true },
		{ UINT32_MAX, 1, true }, { 1, UINT32_MAX, true },  { UINT32_MAX, UINT32_MAX, true },
		{ 0x40000000, 0, true },
	};

	for (size_t i = 0; i < HF_ARRAY_SIZE(rows); i++) {
		struct sample s = samples[0];
		struct hf_nlm_args args;
		uint8_t data[BUFFER];
		struct hf_range range;
		struct hf_xdr_in in;

		s.offset = rows[i].offset;
		s.len = rows[i].len;
		hf_xdr_in_init(&in, data, encode(UNLOCK, &s, 3, data));
		hf_nlm_get_unlock(&args, 3, &in);
		assert_true(hf_xdr_in_is_ok(&in));
		assert_int_equal(hf_nlm_range_of(&range, 3, &args), 0);
		assert_int_equal(range.start, rows[i].offset);
		assert_int_equal(range.end == HF_RANGE_EOF, rows[i].is_to_end);
	}
}

/* Shares and notices */

static void test_share(void **state)
{
	for (uint32_t modes = 0; modes < 25; modes++) {
		struct nlm_shareargs theirs = { .cookie = netobj("cook", 4),
						.share = { .caller_name = oracle_text("dos"),
							   .fh = { 32, oracle_text(filler) },
							   .oh = netobj(filler, 5),
							   .mode = modes % 5,
							   .access = modes / 5 },
						.reclaim = true };
		uint8_t data[BUFFER];
		size_t len = oracle_encode(data, sizeof(data), (xdrproc_t)xdr_nlm_shareargs, &theirs);

		/* whole, and without its last word, as some clients send it */
		for (size_t cut = 0; cut <= 4; cut += 4) {
			struct hf_nlm_args args;
			struct hf_xdr_in in;

			hf_xdr_in_init(&in, data, len - cut);
			hf_nlm_get_share(&args, &in);
			assert_int_equal(hf_xdr_in_is_ok(&in),
					 theirs.share.mode < 4 && theirs.share.access < 4);
			if (!hf_xdr_in_is_ok(&in))
				continue;
			assert_true(hf_bytes_equal(args.caller, hf_bytes_of_str("dos")));
			assert_true(hf_bytes_equal(args.handle, hf_bytes_of(filler, 32)));
			assert_true(hf_bytes_equal(args.oh, hf_bytes_of(filler, 5)));
			assert_int_equal(args.deny, theirs.share.mode);
			assert_int_equal(args.access, theirs.share.access);
			assert_int_equal(args.reclaim, cut == 0);
		}
	}
}

static void test_notices(void **state)
{
	struct nlm_notify free_all = { oracle_text("host"), -5 };
	struct nlm_sm_status status = { oracle_text("10.0.0.1"), 7, "priv" };
	struct hf_nlm_notify notify;
	uint8_t data[BUFFER];
	struct hf_xdr_in in;
	size_t len;

	hf_xdr_in_init(&in, data, oracle_encode(data, sizeof(data), (xdrproc_t)xdr_nlm_notify, &free_all));
	hf_nlm_get_notify(&notify, &in);
	assert_true(hf_xdr_in_is_ok(&in));
	assert_int_equal(hf_xdr_in_left(&in), 0);
	assert_true(hf_bytes_equal(notify.name, hf_bytes_of_str("host")));
	assert_int_equal(notify.state, -5);

	len = oracle_encode(data, sizeof(data), (xdrproc_t)xdr_nlm_sm_status, &status);
	hf_xdr_in_init(&in, data, len);
	hf_nlm_get_sm_notify(&notify, &in);
	assert_true(hf_xdr_in_is_ok(&in));
	assert_int_equal(hf_xdr_in_left(&in), 0);
	assert_int_equal(notify.state, 7);
	hf_xdr_in_init(&in, data, len - 4);
	hf_nlm_get_sm_notify(&notify, &in);
	assert_false(hf_xdr_in_is_ok(&in));
}

static void test_res_in(void **state)
{
	struct nlm_res theirs = { netobj("12345678", 8), NLM4_DENIED };
	uint8_t data[BUFFER];
	struct hf_nlm_res res;
	struct hf_xdr_in in;

	hf_xdr_in_init(&in, data, oracle_encode(data, sizeof(data), (xdrproc_t)xdr_nlm_res, &theirs));
	hf_nlm_get_res(&res, &in);
	assert_true(hf_xdr_in_is_ok(&in));
	assert_true(hf_bytes_equal(res.cookie, hf_bytes_of_str("12345678")));
	assert_int_equal(res.stat, HF_NLM_DENIED);
}

/* GRANTED says what was asked, to the bit: decoded from a LOCK, and back. */
static void test_granted(void **state)
{
	struct sample s = samples[2];
	uint8_t data[BUFFER], call[HF_NLM_MAX_CALL];
	struct hf_nlm_args args;
	struct hf_xdr_out out;
	struct hf_xdr_in in;

	for (size_t v = 0; v < HF_ARRAY_SIZE(versions); v++) {
		s.offset = UINT32_MAX - 1;
		s.len = UINT32_MAX;
		hf_xdr_in_init(&in, data, encode(LOCK, &s, versions[v], data));
		hf_nlm_get_lock(&args, versions[v], &in);
		assert_true(hf_xdr_in_is_ok(&in));
		hf_xdr_out_init(&out, call, sizeof(call));
		hf_nlm_put_granted(&out, versions[v], &args);
		assert_true(hf_xdr_out_is_ok(&out));
		assert_int_equal(encode(TEST, &s, versions[v], data), (size_t)(out.p - call));
		assert_memory_equal(data, call, (size_t)(out.p - call));
	}
}

static void test_granted_at_its_largest(void **state)
{
	const struct hf_nlm_args args = { .cookie = hf_bytes_of(filler, HF_NLM_COOKIE),
					  .caller = hf_bytes_of(filler, HF_NLM_MAX_STRING),
					  .handle = hf_bytes_of(filler, HF_NLM_MAX_HANDLE),
					  .oh = hf_bytes_of(filler, HF_NLM_MAX_NETOBJ),
					  .offset = UINT64_MAX,
					  .len = UINT64_MAX };
	uint8_t call[HF_NLM_MAX_CALL];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, call, sizeof(call));
	hf_nlm_put_granted(&out, 4, &args);
	assert_true(hf_xdr_out_is_ok(&out));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_arguments_cut),
		cmocka_unit_test(test_arguments_too_long),
		cmocka_unit_test(test_name_with_nul),
		cmocka_unit_test(test_bools),
		cmocka_unit_test(test_old_range),
		cmocka_unit_test(test_share),
		cmocka_unit_test(test_notices),
		cmocka_unit_test(test_res_in),
		cmocka_unit_test(test_granted),
		cmocka_unit_test(test_granted_at_its_largest),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
